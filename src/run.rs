//! The broker as a process: from a configuration to a graceful stop.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::broker::queue::{Backoff, QueueSettings, Retry};
use crate::broker::settings::Settings;
use crate::broker::topic::{RouteSource, dead_letter_channel_name};
use crate::broker::{Broker, BrokerSetup, ChannelSetup, QueueParts, RetainedSetup, Start, Wake};
use crate::cli::LogFormat;
use crate::config::{self, ChannelSettings, Config, ProtocolVersion};
use crate::descriptors::bound_connections;
use crate::mqtt::{MonotonicClock, Server, ServerSettings, ServerWakes};
use crate::storage::log::{ChannelSpec, Durability, LogOptions, LogStore, PublishCommit};
use crate::storage::{ChannelId, ChannelKind, Store};

/// Runs the broker until a signal stops it.
///
/// # Errors
/// What kept it from starting, as a sentence for whoever started it.
pub fn run(config: Config, log_format: LogFormat) -> Result<(), Box<dyn Error>> {
    start_log(config.broker.log_level.as_str(), log_format);
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(serve(&config, log_format))
}

fn start_log(level: &str, format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::new(level);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false);
    // Only fails where a log is running already, as in a test that runs two brokers.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

async fn serve(config: &Config, log_format: LogFormat) -> Result<(), Box<dyn Error>> {
    // Caught from the first moment: a stop asked for during a long start is not lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Unanswered, each of these would end the process.
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut user_1 = signal(SignalKind::user_defined1())?;
    let mut user_2 = signal(SignalKind::user_defined2())?;

    tracing::info!(id = %config.broker.id, "starting");
    let max_connections = bound_connections(config.broker.limits.max_connections);
    let clock = MonotonicClock::start();
    let wakes = ServerWakes::default();
    let providers = open_providers(config, &wakes)?;
    let broker = open_broker(config, &providers, clock, wakes.timer.callback())?;
    let addresses: Vec<_> = config
        .broker
        .mqtt
        .listeners
        .iter()
        .map(|listener| listener.address)
        .collect();
    let server = Server::start(
        broker,
        server_settings(config, max_connections),
        clock,
        &addresses,
        wakes,
    )
    .await?;
    for address in server.addresses() {
        announce(*address, log_format);
    }
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => does_nothing("SIGHUP"),
            _ = user_1.recv() => does_nothing("SIGUSR1"),
            _ = user_2.recv() => does_nothing("SIGUSR2"),
        }
    }
    tracing::info!("stopping; a second signal aborts");
    tokio::select! {
        () = server.stop() => tracing::info!("stopped"),
        () = second(&mut terminate, &mut interrupt) => {
            tracing::warn!("aborted by a second signal");
            std::process::exit(1);
        }
    }
    Ok(())
}

fn does_nothing(signal: &str) {
    tracing::info!(
        "{signal} does nothing: this version reads nothing again; SIGTERM stops the broker"
    );
}

/// The line that says the broker is ready, whatever the log level: whoever started it waits for it.
fn announce(address: SocketAddr, format: LogFormat) {
    let message = format!("listening on {address}");
    let line = match format {
        LogFormat::Text => message,
        LogFormat::Json => {
            serde_json::json!({"level": "INFO", "fields": {"message": message}}).to_string()
        }
    };
    // Nobody may be reading.
    let _ = writeln!(std::io::stdout(), "{line}");
}

async fn second(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn server_settings(config: &Config, max_connections: usize) -> ServerSettings {
    let limits = &config.broker.limits;
    ServerSettings {
        max_connections,
        connect_timeout: limits.connect_timeout,
        write_timeout: limits.write_timeout,
        max_connect_size: size(limits.max_connect_size),
        max_message_size: size(limits.max_message_size),
        max_topic_length: limits.max_topic_length,
    }
}

/// A configured size on a machine that may have fewer bits.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn seconds<T: TryFrom<u64>>(duration: Duration, most: T) -> T {
    T::try_from(duration.as_secs()).unwrap_or(most)
}

fn broker_settings(config: &Config) -> Settings {
    let limits = &config.broker.limits;
    Settings {
        topics: limits.topics(),
        max_message_size: u32::try_from(limits.max_message_size).unwrap_or(u32::MAX),
        max_header_count: limits.max_header_count,
        max_header_bytes: size(limits.max_header_bytes),
        max_client_id_length: limits.max_client_id_length,
        max_subscriptions: limits.max_subscriptions,
        max_session_expiry: seconds(limits.max_session_expiry, u32::MAX),
        max_keepalive: limits.max_keepalive.map(|most| seconds(most, u16::MAX)),
        session_queue_bytes: limits.session_queue_bytes,
        max_inflight_per_client: config.broker.qos2.max_inflight_per_client,
        share_expires_after: config.broker.share.expires_after,
        exactly_once_expires_after: config.broker.qos2.expires_after,
        ack_commit_interval: config.broker.session.ack_commit_interval,
        admit_v311: config.broker.mqtt.min_protocol_version == ProtocolVersion::V311,
    }
}

/// Broadcast messages some session is owed. No channel of the configuration can have this name.
const BROADCAST_LOG: &str = "$broadcast";

/// The last broadcast message with RETAIN of each topic.
const RETAINED: &str = "$retained";

/// A provider and the channels it was opened with.
struct Provider {
    store: Arc<dyn Store>,
    channels: BTreeMap<String, ChannelId>,
}

impl Provider {
    fn channel(&self, name: &str) -> Result<ChannelId, String> {
        let found = self.channels.get(name).copied();
        found.ok_or_else(|| format!("the provider does not know the channel `{name}`"))
    }
}

fn open_providers(
    config: &Config,
    wakes: &ServerWakes,
) -> Result<BTreeMap<String, Provider>, Box<dyn Error>> {
    let mut providers = BTreeMap::new();
    for provider in &config.broker.storage.providers {
        let mut specs: Vec<ChannelSpec> = config
            .channels
            .iter()
            .filter(|channel| channel.storage == provider.name)
            .flat_map(specs)
            .collect();
        specs.extend(own_channels(config, provider));
        let options = LogOptions {
            dir: provider.log_dir.clone(),
            segment_bytes: provider.segment_bytes,
            max_bytes: provider.max_bytes,
            max_record_bytes: config.broker.limits.largest_record_bytes(),
            tail_cache_bytes: provider.tail_cache_bytes,
            durability: durability(provider.durability),
            flush_interval: provider.flush_interval,
            publish_commit: publish_commit(provider.publish_commit),
            checkpoint_bytes: provider.checkpoint_bytes,
            only_provider: config.broker.storage.providers.len() == 1,
            wake: wakes.outcomes.callback(),
            gather: Some(wakes.gather.callback()),
        };
        let opened = LogStore::open(&options, &specs);
        let (store, ids, report) =
            opened.map_err(|error| format!("the storage provider `{}`: {error}", provider.name))?;
        for kept in &report.channels {
            let ours = [BROADCAST_LOG, RETAINED].contains(&kept.name.as_str());
            if !ours && !specs.iter().any(|spec| spec.name == kept.name) {
                tracing::warn!(
                    provider = %provider.name,
                    channel = %kept.name,
                    records = kept.count,
                    "the store holds a channel that the configuration does not name: what is published to its topics is broadcast now, and its records stay where they are; name it again to go on with it"
                );
            }
        }
        let names = specs.into_iter().map(|spec| spec.name);
        providers.insert(
            provider.name.clone(),
            Provider {
                store: Arc::new(store),
                channels: names.zip(ids).collect(),
            },
        );
    }
    Ok(providers)
}

fn durability(durability: config::Durability) -> Durability {
    match durability {
        config::Durability::Sync => Durability::Sync,
        config::Durability::Interval => Durability::Interval,
    }
}

fn publish_commit(publish_commit: config::PublishCommit) -> PublishCommit {
    match publish_commit {
        config::PublishCommit::AsTheyCome => PublishCommit::AsTheyCome,
        config::PublishCommit::Alone => PublishCommit::Alone,
        config::PublishCommit::Wait {
            interval,
            max_records,
        } => PublishCommit::Wait {
            interval,
            records: max_records,
        },
    }
}

/// A channel in its provider; a queue's dead letters are kept beside it.
fn specs(channel: &config::Channel) -> Vec<ChannelSpec> {
    let spec = |name: &str, kind, max_bytes| ChannelSpec {
        name: name.to_owned(),
        kind,
        max_bytes,
        durability: durability(channel.durability),
    };
    let name = channel.name.as_str();
    match &channel.settings {
        ChannelSettings::Append(append) => {
            vec![spec(name, ChannelKind::Append, append.max_bytes)]
        }
        ChannelSettings::Latest(_) => vec![spec(name, ChannelKind::Latest, None)],
        ChannelSettings::Queue(queue) => vec![
            spec(name, ChannelKind::Queue, queue.max_bytes),
            spec(&dead_letter_channel_name(name), ChannelKind::Append, None),
        ],
    }
}

/// What the broker keeps for itself in a provider.
fn own_channels(config: &Config, provider: &config::LogProvider) -> Vec<ChannelSpec> {
    let spec = |name: &str, kind| ChannelSpec {
        name: name.to_owned(),
        kind,
        max_bytes: None,
        durability: durability(provider.durability),
    };
    let mut specs = vec![];
    if config.broker.session.storage == provider.name {
        specs.push(spec(BROADCAST_LOG, ChannelKind::Queue));
    }
    if config.broker.retained.storage == provider.name {
        specs.push(spec(RETAINED, ChannelKind::Latest));
    }
    specs
}

fn open_broker(
    config: &Config,
    providers: &BTreeMap<String, Provider>,
    clock: MonotonicClock,
    timer: Wake,
) -> Result<Arc<Broker>, Box<dyn Error>> {
    let mut channels = Vec::with_capacity(config.channels.len());
    for channel in &config.channels {
        channels.push(channel_setup(channel, providers)?);
    }
    let sessions = provider(providers, &config.broker.session.storage)?;
    let retained = provider(providers, &config.broker.retained.storage)?;
    let setup = BrokerSetup {
        settings: broker_settings(config),
        channels,
        session_store: sessions.store.clone(),
        broadcast_log: sessions.channel(BROADCAST_LOG)?,
        retained: RetainedSetup {
            store: retained.store.clone(),
            channel: retained.channel(RETAINED)?,
            retention_period: config.broker.retained.retention_period,
        },
        clock: clock.handed_in(),
        timer,
    };
    Ok(Broker::open(setup, clock.now())?)
}

fn provider<'a>(
    providers: &'a BTreeMap<String, Provider>,
    name: &str,
) -> Result<&'a Provider, String> {
    let found = providers.get(name);
    found.ok_or_else(|| format!("there is no storage provider `{name}`"))
}

fn channel_setup(
    channel: &config::Channel,
    providers: &BTreeMap<String, Provider>,
) -> Result<ChannelSetup, String> {
    let provider = provider(providers, &channel.storage)?;
    let mut setup = ChannelSetup {
        source: RouteSource {
            name: channel.name.clone(),
            kind: channel.kind(),
            filter: channel.filter.clone(),
        },
        id: provider.channel(&channel.name)?,
        store: provider.store.clone(),
        start: Start::Floor,
        retention_period: None,
        retention_bytes: None,
        deletion_retention_period: None,
        queue: None,
    };
    match &channel.settings {
        ChannelSettings::Append(append) => {
            setup.start = match append.start {
                config::Start::Floor => Start::Floor,
                config::Start::Tail => Start::Tail,
            };
            setup.retention_period = append.retention_period;
            setup.retention_bytes = append.retention_bytes;
        }
        ChannelSettings::Latest(latest) => {
            setup.retention_period = latest.retention_period;
            setup.deletion_retention_period = Some(latest.deletion_retention_period);
        }
        ChannelSettings::Queue(queue) => {
            setup.queue = Some(QueueParts {
                settings: queue_settings(queue),
                dead_letters: provider.channel(&dead_letter_channel_name(&channel.name))?,
                retention_period: queue.dlq_retention_period,
                retention_bytes: queue.dlq_retention_bytes,
            });
        }
    }
    Ok(setup)
}

fn queue_settings(queue: &config::QueueSettings) -> QueueSettings {
    QueueSettings {
        visibility_timeout: queue.visibility_timeout,
        job_expires_after: queue.job_expires_after,
        retry: Retry {
            max_attempts: queue.retry.max_attempts,
            backoff: match queue.retry.backoff {
                config::Backoff::None => Backoff::None,
                config::Backoff::Linear { base } => Backoff::Linear { base },
                config::Backoff::Exponential { base } => Backoff::Exponential { base },
            },
        },
    }
}

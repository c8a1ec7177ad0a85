//! The configuration as the rest of the broker sees it: checked, with every default filled in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::broker::topic::{ChannelFilter, RouteConflict, RouteSource, Routes, TopicLimits};
use crate::storage::ChannelKind;

/// Everything one file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `broker`.
    pub broker: Broker,
    /// `channels`, in the order of the file. Dead-letter channels are derived, see
    /// [`Config::routes`].
    pub channels: Vec<Channel>,
}

/// `broker`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// What this broker calls itself.
    pub id: String,
    /// The least severe line logged.
    pub log_level: LogLevel,
    /// How clients connect.
    pub mqtt: Mqtt,
    /// Where records are kept.
    pub storage: Storage,
    /// What is kept for clients that are away.
    pub session: Session,
    /// What is kept of broadcast messages with RETAIN.
    pub retained: Retained,
    /// What is held for shared subscriptions.
    pub share: Share,
    /// The bounds of what is published at QoS 2.
    pub qos2: Qos2,
    /// The bound of everything a client can make the broker hold.
    pub limits: Limits,
}

/// `broker.log_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What an operator wants to know.
    Info,
    /// What went wrong and was dealt with.
    Warn,
    /// What went wrong and was not.
    Error,
}

/// `broker.mqtt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mqtt {
    /// At least one; names are unique.
    pub listeners: Vec<TcpListener>,
    /// Whether a client without a user name is admitted.
    pub allow_anonymous: bool,
    /// The oldest MQTT version admitted.
    pub min_protocol_version: ProtocolVersion,
}

/// One of `broker.mqtt.listen.tcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpListener {
    /// What the logs call it.
    pub name: String,
    /// The address to bind; port 0 takes any free one.
    pub address: SocketAddr,
}

/// A version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtocolVersion {
    /// MQTT 3.1.1, protocol level 4.
    V311,
    /// MQTT 5.
    V5,
}

/// `broker.storage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The provider of whatever names none; one of `providers`.
    pub default: String,
    /// How long records are kept where a channel does not say; `None`: for ever.
    pub default_retention_period: Option<Duration>,
    /// How many bytes are kept where a channel does not say; `None`: all.
    pub default_retention_bytes: Option<u64>,
    /// At least one, in the order of the file; names and directories are unique.
    pub providers: Vec<LogProvider>,
}

/// A provider of `type: log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProvider {
    /// Its name.
    pub name: String,
    /// Its directory: absolute, without `..`. It need not exist yet.
    pub log_dir: PathBuf,
    /// What the directory may take, bytes; at least 16 MiB and four of the largest records; `None`:
    /// all there is.
    pub max_bytes: Option<u64>,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// The size of a log file at which the next is begun, bytes; at least 1 MiB.
    pub segment_bytes: u64,
    /// How long what is acknowledged and not synced stays so, 10 ms to 1 s.
    pub flush_interval: Duration,
    /// Who shares a commit.
    pub publish_commit: PublishCommit,
    /// Log after which a checkpoint is written at the latest, bytes.
    pub checkpoint_bytes: u64,
    /// How much of the newest records is kept in memory, bytes.
    pub tail_cache_bytes: u64,
}

/// What an acknowledgement of a log provider promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// What is acknowledged is on the disk.
    Sync,
    /// What is acknowledged is in the system's hands, and on the disk within the flush interval.
    Interval,
}

/// Who shares a commit of a log provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishCommit {
    /// What arrived during the commit before.
    AsTheyCome,
    /// Nobody.
    Alone,
    /// What arrives within an interval, 1 ms to 1 s, or this many operations.
    Wait {
        /// The interval.
        interval: Duration,
        /// The operations.
        max_records: usize,
    },
}

/// `broker.session`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The provider that keeps sessions; one of [`Storage::providers`].
    pub storage: String,
    /// The longest a stored position lags behind its acknowledgements, 10 ms to 1 s.
    pub ack_commit_interval: Duration,
}

/// `broker.retained`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The provider that keeps them; one of [`Storage::providers`].
    pub storage: String,
    /// How long the value of a quiet topic is kept; `None`: for ever.
    pub retention_period: Option<Duration>,
}

/// `broker.share`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How long a message that no member takes is held; `None`: as long as it takes.
    pub expires_after: Option<Duration>,
}

/// `broker.qos2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos2 {
    /// Publishes of one client that are held for their PUBREL, 1 to 1,024.
    pub max_inflight_per_client: usize,
    /// How long one is held.
    pub expires_after: Duration,
}

/// `broker.limits`. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest packet, its fixed header included; 1 KiB to 24 MiB.
    pub max_message_size: u64,
    /// The longest topic or filter; 1 to 65,535.
    pub max_topic_length: usize,
    /// The deepest topic or filter, levels; 1 to 65,535.
    pub max_topic_levels: usize,
    /// The longest client id, bytes; 23 to 65,000.
    pub max_client_id_length: usize,
    /// The most User Properties on a message.
    pub max_header_count: usize,
    /// The most bytes of their keys and values.
    pub max_header_bytes: u64,
    /// The most connections at once.
    pub max_connections: usize,
    /// The most subscriptions of one client.
    pub max_subscriptions: usize,
    /// The longest a session outlives its connection.
    pub max_session_expiry: Duration,
    /// The longest keepalive of an MQTT 5 client, at most 65,535 s; `None`: any.
    pub max_keepalive: Option<Duration>,
    /// How long a client may take to take what is written; `None`: its keepalive bounds it.
    pub write_timeout: Option<Duration>,
    /// How long a connection may take to send its CONNECT.
    pub connect_timeout: Duration,
    /// The largest CONNECT.
    pub max_connect_size: u64,
    /// The most one session may be owed; at least `max_message_size`.
    pub session_queue_bytes: u64,
}

/// One of `channels`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name: 1 to 128 of `A-Z a-z 0-9 . _ -`, never ending in `__dlq`.
    pub name: String,
    /// The topics it holds.
    pub filter: ChannelFilter,
    /// The provider that keeps it; one of [`Storage::providers`].
    pub storage: String,
    /// What its acknowledgements promise.
    pub durability: Durability,
    /// What its type says.
    pub settings: ChannelSettings,
}

/// What a channel's type says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelSettings {
    /// `type: append`.
    Append(AppendSettings),
    /// `type: latest`.
    Latest(LatestSettings),
    /// `type: queue`.
    Queue(QueueSettings),
}

/// The keys of an append channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendSettings {
    /// How long a record is kept; `None`: for ever.
    pub retention_period: Option<Duration>,
    /// How many bytes are kept; `None`: all.
    pub retention_bytes: Option<u64>,
    /// Past how many bytes a publish is refused; `None`: never.
    pub max_bytes: Option<u64>,
    /// Where a subscriber without a position begins.
    pub start: Start,
}

/// Where a subscriber without a position begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record.
    Floor,
    /// After the newest.
    Tail,
}

/// The keys of a latest channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestSettings {
    /// How long the value of a quiet topic is kept; `None`: for ever.
    pub retention_period: Option<Duration>,
    /// How long a deletion is kept.
    pub deletion_retention_period: Duration,
}

/// The keys of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Past how many bytes a publish is refused; `None`: never.
    pub max_bytes: Option<u64>,
    /// How long a worker has.
    pub visibility_timeout: Duration,
    /// The age at which a job is dead-lettered, longer than `visibility_timeout`; `None`: never.
    pub job_expires_after: Option<Duration>,
    /// What follows a failed attempt.
    pub retry: Retry,
    /// How long a dead letter is kept; `None`: for ever.
    pub dlq_retention_period: Option<Duration>,
    /// How many bytes of dead letters are kept; `None`: all.
    pub dlq_retention_bytes: Option<u64>,
}

/// `retry` of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The attempt after which a job is dead-lettered; at least 1.
    pub max_attempts: u32,
    /// How long a job waits before it is offered again.
    pub backoff: Backoff,
}

/// How the wait between attempts grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// No wait.
    None,
    /// `base × n` after attempt n.
    Linear {
        /// The base.
        base: Duration,
    },
    /// `base × 2^(n−1)` after attempt n.
    Exponential {
        /// The base.
        base: Duration,
    },
}

impl LogLevel {
    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Bytes of a stored message beside payload and properties: its topic, the response topic, the
/// publisher's name, the correlation data and the rest of its headers, each of which MQTT bounds.
const OTHER_RECORD_BYTES: u64 = 256 << 10;

impl Limits {
    /// The most one stored message takes, in bytes.
    #[must_use]
    pub fn largest_record_bytes(&self) -> u64 {
        self.max_message_size
            .saturating_add(self.max_header_bytes)
            .saturating_add(OTHER_RECORD_BYTES)
    }

    /// The bounds of a topic.
    #[must_use]
    pub fn topics(&self) -> TopicLimits {
        TopicLimits {
            max_length: self.max_topic_length,
            max_levels: self.max_topic_levels,
        }
    }
}

impl Channel {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> ChannelKind {
        match self.settings {
            ChannelSettings::Append(_) => ChannelKind::Append,
            ChannelSettings::Latest(_) => ChannelKind::Latest,
            ChannelSettings::Queue(_) => ChannelKind::Queue,
        }
    }
}

impl Config {
    /// The channel list compiled; index n of it is `channels[n]`, dead-letter channels follow.
    ///
    /// # Errors
    /// Two channels with one name or filter. A loaded configuration has none.
    pub fn routes(&self) -> Result<Routes, Vec<RouteConflict>> {
        let sources: Vec<RouteSource> = self
            .channels
            .iter()
            .map(|channel| RouteSource {
                name: channel.name.clone(),
                kind: channel.kind(),
                filter: channel.filter.clone(),
            })
            .collect();
        Routes::compile(&sources)
    }

    /// What is legal and still probably not meant, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let used = |name: &str| {
            self.broker.session.storage == name
                || self.broker.retained.storage == name
                || self.channels.iter().any(|channel| channel.storage == name)
        };
        self.broker
            .storage
            .providers
            .iter()
            .filter(|provider| !used(&provider.name))
            .map(|provider| format!("no channel uses the provider `{}`", provider.name))
            .collect()
    }
}

//! A configuration written back as the one YAML document that loads to it.

use std::fmt::{self, Write};
use std::time::Duration;

use super::model::{
    AppendSettings, Backoff, Broker, Channel, ChannelSettings, Config, Durability, LatestSettings,
    Limits, ProtocolVersion, PublishCommit, QueueSettings, Start, Storage,
};
use super::value::{show_duration, show_size};
use super::yaml::quote;
use crate::broker::topic::type_name;

impl Config {
    /// The whole configuration, every default spelled out, as one YAML document.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut out = Writer::default();
        // Writing to a string does not fail.
        let _ = out.config(self);
        out.text
    }
}

#[derive(Default)]
struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    fn line(&mut self, name: &str, value: &str) -> fmt::Result {
        writeln!(self.text, "{:1$}{name}: {value}", "", self.depth * 2)
    }

    fn below(&mut self, name: &str, keys: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        writeln!(self.text, "{:1$}{name}:", "", self.depth * 2)?;
        self.depth += 1;
        keys(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn period(&mut self, name: &str, period: Option<Duration>) -> fmt::Result {
        self.line(name, &period.map_or("none".to_owned(), show_duration))
    }

    fn size(&mut self, name: &str, bytes: Option<u64>) -> fmt::Result {
        self.line(name, &bytes.map_or("none".to_owned(), show_size))
    }

    fn config(&mut self, config: &Config) -> fmt::Result {
        self.below("broker", |out| out.broker(&config.broker))?;
        if config.channels.is_empty() {
            return self.line("channels", "{}");
        }
        self.below("channels", |out| {
            config
                .channels
                .iter()
                .try_for_each(|channel| out.channel(channel))
        })
    }

    fn broker(&mut self, broker: &Broker) -> fmt::Result {
        self.line("id", &quote(&broker.id))?;
        self.line("log_level", broker.log_level.as_str())?;
        self.below("mqtt", |out| {
            out.below("listen", |out| {
                out.below("tcp", |out| {
                    broker.mqtt.listeners.iter().try_for_each(|listener| {
                        let name = quote(&listener.name);
                        out.line("- name", &name)?;
                        let address = quote(&listener.address.to_string());
                        out.line("  address", &address)
                    })
                })
            })?;
            out.line("allow_anonymous", &broker.mqtt.allow_anonymous.to_string())?;
            let version = match broker.mqtt.min_protocol_version {
                ProtocolVersion::V311 => "3.1.1",
                ProtocolVersion::V5 => "5",
            };
            out.line("min_protocol_version", &quote(version))
        })?;
        self.below("storage", |out| out.storage(&broker.storage))?;
        self.below("session", |out| {
            out.line("storage", &quote(&broker.session.storage))?;
            let interval = broker.session.ack_commit_interval;
            out.line("ack_commit_interval", &show_duration(interval))
        })?;
        self.below("retained", |out| {
            out.line("storage", &quote(&broker.retained.storage))?;
            out.period("retention_period", broker.retained.retention_period)
        })?;
        let share = broker.share.expires_after;
        self.below("share", |out| out.period("expires_after", share))?;
        self.below("qos2", |out| {
            let most = broker.qos2.max_inflight_per_client;
            out.line("max_inflight_per_client", &most.to_string())?;
            out.period("expires_after", Some(broker.qos2.expires_after))
        })?;
        self.below("limits", |out| out.limits(&broker.limits))
    }

    fn storage(&mut self, storage: &Storage) -> fmt::Result {
        self.line("default", &quote(&storage.default))?;
        self.period("default_retention_period", storage.default_retention_period)?;
        self.size("default_retention_bytes", storage.default_retention_bytes)?;
        self.below("providers", |out| {
            storage.providers.iter().try_for_each(|provider| {
                out.below(&quote(&provider.name), |out| {
                    out.line("type", "log")?;
                    out.line("log_dir", &quote(&provider.log_dir.to_string_lossy()))?;
                    out.size("max_bytes", provider.max_bytes)?;
                    out.line("durability", durability(provider.durability))?;
                    out.period("flush_interval", Some(provider.flush_interval))?;
                    match provider.publish_commit {
                        PublishCommit::AsTheyCome => {}
                        PublishCommit::Alone => out.period("publish_commit_interval", None)?,
                        PublishCommit::Wait {
                            interval,
                            max_records,
                        } => {
                            out.period("publish_commit_interval", Some(interval))?;
                            let max_records = max_records.to_string();
                            out.line("publish_commit_max_records", &max_records)?;
                        }
                    }
                    out.size("segment_bytes", Some(provider.segment_bytes))?;
                    out.size("checkpoint_bytes", Some(provider.checkpoint_bytes))?;
                    out.size("tail_cache_bytes", Some(provider.tail_cache_bytes))
                })
            })
        })
    }

    fn limits(&mut self, limits: &Limits) -> fmt::Result {
        self.size("max_message_size", Some(limits.max_message_size))?;
        self.line("max_topic_length", &limits.max_topic_length.to_string())?;
        self.line("max_topic_levels", &limits.max_topic_levels.to_string())?;
        let client_id = limits.max_client_id_length.to_string();
        self.line("max_client_id_length", &client_id)?;
        self.line("max_header_count", &limits.max_header_count.to_string())?;
        self.size("max_header_bytes", Some(limits.max_header_bytes))?;
        self.line("max_connections", &limits.max_connections.to_string())?;
        self.line("max_subscriptions", &limits.max_subscriptions.to_string())?;
        self.period("max_session_expiry", Some(limits.max_session_expiry))?;
        self.period("max_keepalive", limits.max_keepalive)?;
        self.period("write_timeout", limits.write_timeout)?;
        self.period("connect_timeout", Some(limits.connect_timeout))?;
        self.size("max_connect_size", Some(limits.max_connect_size))?;
        self.size("session_queue_bytes", Some(limits.session_queue_bytes))
    }

    fn channel(&mut self, channel: &Channel) -> fmt::Result {
        self.below(&quote(&channel.name), |out| {
            out.line("type", type_name(channel.kind()))?;
            out.line("filter", &quote(channel.filter.as_written()))?;
            out.line("storage", &quote(&channel.storage))?;
            out.line("durability", durability(channel.durability))?;
            match &channel.settings {
                ChannelSettings::Append(settings) => out.append(settings),
                ChannelSettings::Latest(settings) => out.latest(settings),
                ChannelSettings::Queue(settings) => out.queue(settings),
            }
        })
    }

    fn append(&mut self, settings: &AppendSettings) -> fmt::Result {
        self.period("retention_period", settings.retention_period)?;
        self.size("retention_bytes", settings.retention_bytes)?;
        self.size("max_bytes", settings.max_bytes)?;
        let start = match settings.start {
            Start::Floor => "floor",
            Start::Tail => "tail",
        };
        self.line("start", start)
    }

    fn latest(&mut self, settings: &LatestSettings) -> fmt::Result {
        self.period("retention_period", settings.retention_period)?;
        let deletions = settings.deletion_retention_period;
        self.period("deletion_retention_period", Some(deletions))
    }

    fn queue(&mut self, settings: &QueueSettings) -> fmt::Result {
        self.size("max_bytes", settings.max_bytes)?;
        self.period("visibility_timeout", Some(settings.visibility_timeout))?;
        self.period("job_expires_after", settings.job_expires_after)?;
        self.below("retry", |out| {
            out.line("max_attempts", &settings.retry.max_attempts.to_string())?;
            match settings.retry.backoff {
                Backoff::None => out.line("backoff", "none"),
                Backoff::Linear { base } => {
                    out.line("backoff", "linear")?;
                    out.period("backoff_base", Some(base))
                }
                Backoff::Exponential { base } => {
                    out.line("backoff", "exponential")?;
                    out.period("backoff_base", Some(base))
                }
            }
        })?;
        self.period("dlq_retention_period", settings.dlq_retention_period)?;
        self.size("dlq_retention_bytes", settings.dlq_retention_bytes)
    }
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Interval => "interval",
    }
}

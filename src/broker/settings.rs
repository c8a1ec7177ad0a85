//! The bounds and periods the broker runs under.

use std::time::Duration;

use super::topic::TopicLimits;

/// Receive Maximum for every client's publishes: more QoS 1 than this waits in the socket.
pub const RECEIVE_MAXIMUM: u16 = 1024;

/// Topic aliases a client may use.
pub const TOPIC_ALIAS_MAXIMUM: u16 = 16;

/// What the operator set, with every default resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest topic and deepest topic.
    pub topics: TopicLimits,
    /// Largest packet taken from a client, bytes, fixed header included.
    pub max_message_size: u32,
    /// User Properties on one PUBLISH.
    pub max_header_count: usize,
    /// Keys and values of one PUBLISH's User Properties together, bytes.
    pub max_header_bytes: usize,
    /// Client identifier, bytes.
    pub max_client_id_length: usize,
    /// Subscriptions of one client.
    pub max_subscriptions: usize,
    /// Longest Session Expiry Interval granted, seconds.
    pub max_session_expiry: u32,
    /// Longest Keep Alive granted, seconds; `None` bounds nothing.
    pub max_keepalive: Option<u16>,
    /// Broadcast messages waiting for one client, bytes, entries counted at their measured cost.
    pub session_queue_bytes: u64,
    /// QoS 2 publishes of one client between their PUBREC and their PUBREL.
    pub max_inflight_per_client: usize,
    /// How long a QoS 2 publish waits for its PUBREL.
    pub exactly_once_expires_after: Duration,
    /// How long a shared group holds a message that no member takes; `None`: as long as it takes.
    pub share_expires_after: Option<Duration>,
    /// A stored position lags what was acknowledged by at most this.
    pub ack_commit_interval: Duration,
    /// Whether MQTT 3.1.1 is admitted.
    pub admit_v311: bool,
}

impl Default for Settings {
    /// The documented defaults.
    fn default() -> Self {
        Settings {
            topics: TopicLimits {
                max_length: 1024,
                max_levels: 200,
            },
            max_message_size: 1024 * 1024,
            max_header_count: 32,
            max_header_bytes: 8 * 1024,
            max_client_id_length: 256,
            max_subscriptions: 10_000,
            max_session_expiry: 30 * 24 * 3600,
            max_keepalive: None,
            session_queue_bytes: 1024 * 1024,
            max_inflight_per_client: 20,
            exactly_once_expires_after: Duration::from_secs(300),
            share_expires_after: None,
            ack_commit_interval: Duration::from_millis(200),
            admit_v311: true,
        }
    }
}

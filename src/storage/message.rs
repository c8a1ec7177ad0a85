//! What a publish becomes once a channel holds it.

use bytes::Bytes;

/// The identity of a message for its whole life: a UUIDv7, the publisher's own or minted by the
/// broker. Never a position (invariant 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub [u8; 16]);

impl std::fmt::Debug for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}

/// A publish as a channel keeps it. Cloning shares the bytes.
///
/// Property regions are stored in MQTT 5 wire form, verbatim and in order, so that delivering one
/// is a copy. They never contain Message Expiry (0x02), Subscription Identifiers (0x0B) or a Topic
/// Alias (0x23): those belong to one hop, not to the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Identity, stable across redelivery, dead-lettering and replay.
    pub id: MessageId,
    /// Topic exactly as sent; valid UTF-8.
    pub topic: Bytes,
    /// Application payload; empty on a `latest` channel means deletion.
    pub payload: Bytes,
    /// Payload Format Indicator, Content Type and User Properties in MQTT 5 wire form, without any
    /// key beginning `saguin-`. Forwarded unaltered.
    pub properties: Bytes,
    /// Keys and values of the User Properties in `properties`, in bytes: part of the counted size.
    pub user_property_bytes: u32,
    /// The publisher's Response Topic, if any; valid UTF-8.
    pub response_topic: Option<Bytes>,
    /// The publisher's Correlation Data, if any.
    pub correlation_data: Option<Bytes>,
    /// Message Expiry Interval in seconds as published. It rides on deliveries and never removes a
    /// record (invariant 2).
    pub expiry_seconds: Option<u32>,
    /// Broker receipt, Unix milliseconds. A record without one is never too old.
    pub received_at: Option<u64>,
    /// Client id of the publisher: never delivered, kept for No Local. Empty when unknown.
    pub publisher: Bytes,
    /// The publisher's RETAIN flag, for Retain As Published.
    pub retain: bool,
    /// The publisher's QoS, 0..=2.
    pub qos: u8,
}

impl Message {
    /// The same with every part copied to its size: a slice would keep the whole buffer it was cut
    /// from.
    #[must_use]
    pub fn detached(self) -> Message {
        let copy = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
        Message {
            topic: copy(self.topic),
            payload: copy(self.payload),
            properties: copy(self.properties),
            response_topic: self.response_topic.map(copy),
            correlation_data: self.correlation_data.map(copy),
            publisher: copy(self.publisher),
            ..self
        }
    }

    /// The size charged against a channel's and a provider's bound, in bytes: payload, topic, 16
    /// for the id, and the keys and values of its User Properties.
    #[must_use]
    pub fn counted_size(&self) -> u64 {
        (self.payload.len() + self.topic.len() + 16) as u64 + u64::from(self.user_property_bytes)
    }
}

/// A message at its place in a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Channel-local position, from 1.
    pub offset: u64,
    /// The message kept there.
    pub message: Message,
}

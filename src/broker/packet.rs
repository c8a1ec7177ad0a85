//! What clients say and are told, without the wire form.
//!
//! The front end turns bytes into these and back. Both protocol versions share them; where they
//! differ, the version is looked at where the difference is made.

use bytes::Bytes;

use super::reason::{Reason, Refusal};

/// A protocol version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1.1.
    V311,
    /// MQTT 5.
    V5,
}

/// User Properties in MQTT 5 wire form: for each pair 0x26, the key and the value, each valid UTF-8
/// behind a two-byte length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPairs {
    wire: Bytes,
    count: usize,
}

impl UserPairs {
    /// The wire form the front end has checked, of `count` pairs.
    #[must_use]
    pub fn new(wire: Bytes, count: usize) -> Self {
        UserPairs { wire, count }
    }

    /// The wire form.
    #[must_use]
    pub fn wire(&self) -> &Bytes {
        &self.wire
    }

    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all keys and values together.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.iter()
            .map(|pair| pair.key.len() + pair.value.len())
            .sum()
    }

    /// The pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = UserPair<'_>> {
        let mut rest = &self.wire[..];
        std::iter::from_fn(move || {
            let (pair, after) = UserPair::first(rest)?;
            rest = after;
            Some(pair)
        })
    }

    /// The first key that begins with `prefix`.
    #[must_use]
    pub fn find_prefix(&self, prefix: &[u8]) -> Option<&[u8]> {
        let mut rest = &self.wire[..];
        while let Some((pair, after)) = UserPair::first(rest) {
            if pair.key.starts_with(prefix) {
                return Some(pair.key);
            }
            rest = after;
        }
        None
    }
}

/// One User Property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserPair<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The whole of it, in wire form.
    pub wire: &'a [u8],
}

impl<'a> UserPair<'a> {
    fn first(wire: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let rest = wire.strip_prefix(&[0x26])?;
        let (key, rest) = first_string(rest)?;
        let (value, rest) = first_string(rest)?;
        let whole = wire.get(..wire.len() - rest.len())?;
        Some((
            UserPair {
                key,
                value,
                wire: whole,
            },
            rest,
        ))
    }
}

fn first_string(wire: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = wire.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// What a PUBLISH or a Will carries besides topic and payload. Empty from an MQTT 3.1.1 client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishProperties {
    /// Payload Format Indicator, where the client sent one: whether the payload claims to be UTF-8.
    pub payload_is_utf8: Option<bool>,
    /// Message Expiry Interval, seconds.
    pub expiry_seconds: Option<u32>,
    /// Content Type; valid UTF-8.
    pub content_type: Option<Bytes>,
    /// Response Topic; valid UTF-8 without a wildcard.
    pub response_topic: Option<Bytes>,
    /// Correlation Data.
    pub correlation_data: Option<Bytes>,
    /// User Properties, in order, repeats kept.
    pub user_properties: UserPairs,
}

/// A message a client wants published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Packet identifier; 0 at QoS 0.
    pub packet_id: u16,
    /// 0, 1 or 2.
    pub qos: u8,
    /// The RETAIN flag.
    pub retain: bool,
    /// A topic name: valid UTF-8, not empty, no wildcard, no U+0000, aliases resolved.
    pub topic: Bytes,
    /// The payload.
    pub payload: Bytes,
    /// The rest.
    pub properties: PublishProperties,
}

/// A Will as armed by a CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// What is published. Its packet identifier means nothing.
    pub publish: Publish,
    /// Will Delay Interval, seconds.
    pub delay_seconds: u32,
}

/// A CONNECT that parses.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The protocol version.
    pub protocol: Protocol,
    /// Client identifier; empty where the broker is to assign one.
    pub client_id: String,
    /// Clean Start, or 3.1.1's cleanSession.
    pub clean_start: bool,
    /// Keep Alive, seconds; 0 is none.
    pub keep_alive: u16,
    /// Session Expiry Interval, seconds. A 3.1.1 client's cleanSession 0 means the longest kept,
    /// which the broker puts in.
    pub session_expiry: u32,
    /// Receive Maximum, at least 1; 65,535 where the client states none.
    pub receive_maximum: u16,
    /// Maximum Packet Size, bytes, at least 1; `None` where the client states none.
    pub maximum_packet_size: Option<u32>,
    /// Request Problem Information; true where the client states none.
    pub request_problem_information: bool,
    /// Whether an Authentication Method was sent.
    pub authentication_method: bool,
    /// The CONNECT's own User Properties.
    pub user_properties: UserPairs,
    /// User Name.
    pub user_name: Option<String>,
    /// The Will.
    pub will: Option<Will>,
}

/// What the broker promises a client it admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connack {
    /// Whether the client's earlier session goes on.
    pub session_present: bool,
    /// The identifier given to a client that sent none.
    pub assigned_client_id: Option<String>,
    /// The Session Expiry Interval in force, where it is not the one asked for.
    pub session_expiry: Option<u32>,
    /// The Keep Alive in force, where it is not the one asked for (MQTT 5 only).
    pub server_keep_alive: Option<u16>,
    /// Receive Maximum for this client's publishes.
    pub receive_maximum: u16,
    /// Maximum Packet Size taken from this client, bytes, the whole packet counted.
    pub maximum_packet_size: u32,
    /// Topic Alias Maximum.
    pub topic_alias_maximum: u16,
    /// Whether shared subscriptions are served to this client.
    pub shared_subscriptions: bool,
}

/// One filter of a SUBSCRIBE, options as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// The filter.
    pub filter: String,
    /// Maximum QoS, 0..=2.
    pub qos: u8,
    /// No Local.
    pub no_local: bool,
    /// Retain As Published.
    pub retain_as_published: bool,
    /// Retain Handling, 0..=2.
    pub retain_handling: u8,
}

/// A SUBSCRIBE: at least one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Packet identifier.
    pub packet_id: u16,
    /// Subscription Identifier, 1..=268,435,455.
    pub identifier: Option<u32>,
    /// The filters, in order.
    pub filters: Vec<SubscribeRequest>,
    /// User Properties.
    pub user_properties: UserPairs,
}

/// An UNSUBSCRIBE: at least one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Packet identifier.
    pub packet_id: u16,
    /// The filters, in order.
    pub filters: Vec<String>,
    /// User Properties.
    pub user_properties: UserPairs,
}

/// A DISCONNECT from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Its reason code; 0x00 withdraws the Will.
    pub reason_code: u8,
    /// Session Expiry Interval, where it is changed.
    pub session_expiry: Option<u32>,
}

/// A packet for a client, ready to be encoded and written in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A message.
    Publish(OutgoingPublish),
    /// The answer to a QoS 1 PUBLISH.
    Puback {
        /// Whose answer.
        packet_id: u16,
        /// Success or a refusal.
        reason: Reason,
        /// A sentence, where there is one and the client wants it.
        text: Option<String>,
    },
    /// The answer to a QoS 2 PUBLISH.
    Pubrec {
        /// Whose answer.
        packet_id: u16,
        /// Success, or a refusal that ends the exchange.
        reason: Reason,
        /// A sentence, where there is one and the client wants it.
        text: Option<String>,
    },
    /// The answer to a PUBREC.
    Pubrel {
        /// Of the QoS 2 delivery.
        packet_id: u16,
        /// Success, or that there is no such delivery.
        reason: Reason,
    },
    /// The answer to a PUBREL.
    Pubcomp {
        /// Whose answer.
        packet_id: u16,
        /// Success, or that nothing was held under the identifier.
        reason: Reason,
    },
    /// The answer to a SUBSCRIBE.
    Suback {
        /// Whose answer.
        packet_id: u16,
        /// One per filter.
        reasons: Vec<SubackReason>,
        /// A sentence about the first refusal.
        text: Option<String>,
    },
    /// The answer to an UNSUBSCRIBE.
    Unsuback {
        /// Whose answer.
        packet_id: u16,
        /// One per filter.
        reasons: Vec<Reason>,
        /// User Properties of the UNSUBSCRIBE that were not understood.
        unread: Vec<Bytes>,
    },
    /// The answer to a PINGREQ.
    Pingresp,
    /// The last packet: after it the connection is closed. To MQTT 3.1.1 nothing is written.
    Disconnect(Refusal),
}

/// One filter's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubackReason {
    /// Granted at this QoS, 0 to 2.
    Granted(u8),
    /// Refused.
    Refused(Reason),
}

/// A message for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingPublish {
    /// Packet identifier; 0 at QoS 0.
    pub packet_id: u16,
    /// 0 to 2.
    pub qos: u8,
    /// The DUP flag.
    pub dup: bool,
    /// The RETAIN flag.
    pub retain: bool,
    /// The topic.
    pub topic: Bytes,
    /// The payload.
    pub payload: Bytes,
    /// Every property, in MQTT 5 wire form without the length in front. MQTT 3.1.1 leaves it out.
    pub properties: Bytes,
}

impl OutgoingPublish {
    /// The size of the whole packet on the wire, bytes, fixed header included.
    #[must_use]
    pub fn encoded_size(&self, protocol: Protocol) -> u64 {
        let identifier = if self.qos > 0 { 2 } else { 0 };
        let properties = match protocol {
            Protocol::V311 => 0,
            Protocol::V5 => self.properties.len() + varint_size(self.properties.len()),
        };
        let remaining = 2 + self.topic.len() + identifier + properties + self.payload.len();
        (1 + varint_size(remaining) + remaining) as u64
    }
}

/// How many bytes a Variable Byte Integer takes.
fn varint_size(value: usize) -> usize {
    match value {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_every_byte_of_the_packet() {
        let publish = OutgoingPublish {
            packet_id: 7,
            qos: 1,
            dup: false,
            retain: false,
            topic: Bytes::from_static(b"a/b"),
            payload: Bytes::from_static(b"hi"),
            properties: Bytes::from_static(&[0x0B, 1]),
        };
        // Fixed header 2, topic 2+3, identifier 2, properties 1+2, payload 2.
        assert_eq!(publish.encoded_size(Protocol::V5), 14);
        assert_eq!(publish.encoded_size(Protocol::V311), 11);
        let long = OutgoingPublish {
            payload: Bytes::from(vec![0; 200]),
            ..publish
        };
        assert_eq!(long.encoded_size(Protocol::V311), 3 + 7 + 200);
    }
}

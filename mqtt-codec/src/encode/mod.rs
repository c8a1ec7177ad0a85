//! From packets to bytes.

mod answers;
mod connect;
mod publish;
mod sink;
mod subscribe;

use std::fmt;

use bytes::BytesMut;

use crate::packet::{
    MAX_REMAINING_LENGTH, MAX_SUBSCRIPTION_IDENTIFIER, Packet, PacketType, QoS, Version,
};
use crate::property::Property;
use crate::reason::ReasonCode;
use crate::text::Text;
use sink::Measure;

pub(crate) use sink::{Sink, integer_len};

/// A packet that has no form on the wire. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The fields after the fixed header take more than 268,435,455 bytes.
    PacketTooLarge {
        /// How many they take.
        found: usize,
    },
    /// Binary Data, or properties kept in wire form, longer than its length can say.
    TooLong {
        /// Which field.
        field: &'static str,
        /// Its length, bytes.
        found: usize,
    },
    /// Packet identifier 0 where there has to be one.
    PacketIdentifierZero,
    /// A value the standard gives no room for.
    Value {
        /// Which field.
        field: &'static str,
        /// The value.
        found: u32,
    },
    /// A topic name with a wildcard.
    TopicWildcard {
        /// Which field.
        field: &'static str,
    },
    /// A field that has to have something in it has nothing.
    Missing {
        /// Which field.
        field: &'static str,
    },
    /// A reason code this packet cannot carry in this version. To MQTT 3.1.1 that is every
    /// refusal of a PUBLISH: an answer there would say that it was taken.
    ReasonCode {
        /// The packet.
        packet: PacketType,
        /// The code.
        found: ReasonCode,
    },
    /// A packet, or a version of a CONNECT, that this version does not have.
    NotInThisVersion {
        /// The packet.
        packet: PacketType,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::PacketTooLarge { found } => write!(
                f,
                "a packet of {found} bytes after its fixed header; there can be {MAX_REMAINING_LENGTH}"
            ),
            EncodeError::TooLong { field, found } => {
                write!(f, "{field} has {found} bytes, more than can be said")
            }
            EncodeError::PacketIdentifierZero => {
                f.write_str("packet identifier 0; it is 1 to 65535")
            }
            EncodeError::Value { field, found } => write!(f, "{field} cannot be {found}"),
            EncodeError::TopicWildcard { field } => write!(f, "{field} has a wildcard"),
            EncodeError::Missing { field } => write!(f, "{field} is missing"),
            EncodeError::ReasonCode { packet, found } => {
                write!(f, "{} cannot carry {found} in this version", packet.name())
            }
            EncodeError::NotInThisVersion { packet } => {
                write!(f, "this version has no such {}", packet.name())
            }
        }
    }
}

impl std::error::Error for EncodeError {}

/// Appends a packet to `out`, in the form of `version`. What MQTT 3.1.1 has no place for is left
/// out, where leaving it out says nothing false.
///
/// # Errors
/// The packet has no form in that version; then `out` is as it was.
pub fn encode(packet: &Packet, version: Version, out: &mut BytesMut) -> Result<(), EncodeError> {
    let remaining = remaining_len(packet, version)?;
    out.reserve(1 + integer_len(remaining) + remaining);
    out.u8(first_byte(packet));
    out.integer(remaining);
    let before = out.len();
    write_body(packet, version, out)?;
    debug_assert_eq!(out.len() - before, remaining);
    Ok(())
}

/// Bytes the whole packet takes, fixed header included: what a Maximum Packet Size is compared
/// with.
///
/// # Errors
/// As [`encode`].
pub fn encoded_len(packet: &Packet, version: Version) -> Result<usize, EncodeError> {
    let remaining = remaining_len(packet, version)?;
    Ok(1 + integer_len(remaining) + remaining)
}

/// Walks over the packet as writing it does, so that writing it afterwards cannot fail.
fn remaining_len(packet: &Packet, version: Version) -> Result<usize, EncodeError> {
    let mut measure = Measure::default();
    write_body(packet, version, &mut measure)?;
    check_remaining(measure.len())
}

pub(crate) fn check_remaining(found: usize) -> Result<usize, EncodeError> {
    if found > MAX_REMAINING_LENGTH {
        return Err(EncodeError::PacketTooLarge { found });
    }
    Ok(found)
}

pub(crate) fn check_subscription_identifier(found: u32) -> Result<(), EncodeError> {
    if (1..=MAX_SUBSCRIPTION_IDENTIFIER).contains(&found) {
        return Ok(());
    }
    Err(EncodeError::Value {
        field: Property::SubscriptionIdentifier.name(),
        found,
    })
}

pub(crate) fn check_topic(topic: &Text, field: &'static str) -> Result<(), EncodeError> {
    if topic.has_wildcard() {
        return Err(EncodeError::TopicWildcard { field });
    }
    Ok(())
}

/// MQTT-3.3.1-2.
pub(crate) fn check_dup(dup: bool, qos: QoS) -> Result<(), EncodeError> {
    if dup && qos == QoS::AtMostOnce {
        return Err(EncodeError::Value {
            field: "DUP at QoS 0",
            found: 1,
        });
    }
    Ok(())
}

fn first_byte(packet: &Packet) -> u8 {
    let packet_type = packet.packet_type();
    let flags = match packet {
        Packet::Publish(publish) => publish_flags(publish.dup, publish.qos, publish.retain),
        Packet::PubRel(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) => 0b0010,
        _ => 0,
    };
    (packet_type as u8) << 4 | flags
}

/// The lower half of the first byte of a PUBLISH.
pub(crate) fn publish_flags(dup: bool, qos: QoS, retain: bool) -> u8 {
    u8::from(dup) << 3 | qos.level() << 1 | u8::from(retain)
}

fn write_body(packet: &Packet, version: Version, out: &mut dyn Sink) -> Result<(), EncodeError> {
    match packet {
        Packet::Connect(connect) => connect::write(connect, version, out),
        Packet::ConnAck(connack) => answers::write_connack(connack, version, out),
        Packet::Publish(publish) => publish::write(publish, version, out),
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            answers::write_ack(packet.packet_type(), ack, version, out)
        }
        Packet::Subscribe(subscribe) => subscribe::write_subscribe(subscribe, version, out),
        Packet::SubAck(ack) => answers::write_suback(ack, version, out),
        Packet::Unsubscribe(unsubscribe) => subscribe::write_unsubscribe(unsubscribe, version, out),
        Packet::UnsubAck(ack) => answers::write_unsuback(ack, version, out),
        Packet::PingReq | Packet::PingResp => Ok(()),
        Packet::Disconnect(last) => answers::write_disconnect(last, version, out),
        Packet::Auth(auth) => answers::write_auth(auth, version, out),
    }
}

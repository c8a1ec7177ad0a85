//! From bytes to packets.

mod acks;
mod connect;
mod properties;
mod publish;
mod reader;
mod subscribe;

use bytes::BytesMut;

use crate::error::{DecodeError, Fault};
use crate::packet::{Packet, PacketType, QoS, Role, Version};
use reader::{Reader, variable_byte_integer};

/// What one packet may cost. Each bound is looked at before the memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a whole packet, fixed header included. It is compared with the declared size, as
    /// soon as that has arrived.
    pub max_packet: usize,
    /// User Properties in one packet; those of a Will count apart from those of its CONNECT. They
    /// cost no more than their bytes on the wire, so a bound that is answered in another way than
    /// by closing may as well be looked at afterwards.
    pub max_user_properties: usize,
    /// Filters in one SUBSCRIBE or UNSUBSCRIBE. A filter of four bytes on the wire takes about
    /// forty in memory.
    pub max_filters: usize,
}

impl Limits {
    /// Packets of at most `max_packet` bytes, with at most 16,384 filters and as many User
    /// Properties as fit.
    #[must_use]
    pub fn new(max_packet: usize) -> Self {
        Limits {
            max_packet,
            max_user_properties: usize::MAX,
            max_filters: 16_384,
        }
    }
}

/// Takes the first packet off `buf`, or `None` while it is not all there.
///
/// `version` is `None` until a client's CONNECT has been taken; that CONNECT says the version from
/// then on. `sender` is the side the bytes came from. Bytes after the packet stay, and `buf` is
/// never grown: read into it what arrives, at the pace it arrives.
///
/// # Errors
/// What is wrong with the packet, as early as that can be told: a packet type, flags or a size
/// that will not do are refused before the rest has come. The connection is to be closed, after
/// writing what [`DecodeError::reply`] allows; what is left in `buf` means nothing any more.
pub fn decode(
    buf: &mut BytesMut,
    version: Option<Version>,
    sender: Role,
    limits: &Limits,
) -> Result<Option<Packet>, DecodeError> {
    let Some(&first) = buf.first() else {
        return Ok(None);
    };
    let packet_type = PacketType::from_u8(first >> 4);
    let fail = |fault, version| DecodeError::new(fault, packet_type, version, sender);
    let header = Header::read(buf, first, version, sender).map_err(|fault| fail(fault, version))?;
    let Some(header) = header else {
        return Ok(None);
    };
    let version = match (version, header.packet_type) {
        (None, PacketType::Connect) => {
            let arrived = buf.get(header.len..).unwrap_or_default();
            match connect::sniff(arrived, header.remaining).map_err(|fault| fail(fault, None))? {
                Some(version) => version,
                None => return Ok(None),
            }
        }
        (None, _) => return Err(fail(Fault::ConnectExpected, None)),
        (Some(version), _) => version,
    };
    let declared = header.len + header.remaining;
    header
        .check(declared, limits)
        .map_err(|fault| fail(fault, Some(version)))?;
    if buf.len() < declared {
        return Ok(None);
    }
    let mut frame = buf.split_to(declared).freeze();
    let body = Reader::new(frame.split_off(header.len));
    let context = Context {
        version,
        sender,
        limits,
    };
    read_body(&header, body, &context)
        .map(Some)
        .map_err(|fault| fail(fault, Some(version)))
}

/// What the fields of a packet are read by.
struct Context<'a> {
    version: Version,
    sender: Role,
    limits: &'a Limits,
}

/// The first byte and the Remaining Length.
struct Header {
    packet_type: PacketType,
    flags: u8,
    /// Bytes the header takes, 2 to 5.
    len: usize,
    /// Bytes that follow it.
    remaining: usize,
}

impl Header {
    fn read(
        buf: &[u8],
        first: u8,
        version: Option<Version>,
        sender: Role,
    ) -> Result<Option<Self>, Fault> {
        let (number, flags) = (first >> 4, first & 0x0F);
        let reserved = Fault::ReservedPacketType { found: number };
        let packet_type = match (PacketType::from_u8(number), version) {
            (None, _) | (Some(PacketType::Auth), Some(Version::V311)) => return Err(reserved),
            (Some(packet_type), _) => packet_type,
        };
        match (packet_type, sender, version) {
            (PacketType::Connect, Role::Server, _) => return Err(Fault::WrongDirection),
            (PacketType::Connect, Role::Client, Some(_)) => return Err(Fault::SecondConnect),
            (PacketType::Connect, Role::Client, None) => {}
            (_, _, None) => return Err(Fault::ConnectExpected),
            // The flags of a CONNECT wait until the version is known, so that they can be answered.
            (_, _, Some(_)) => check_flags(packet_type, flags)?,
        }
        let after_first = buf.get(1..).unwrap_or_default();
        let integer = variable_byte_integer(after_first, "the Remaining Length")?;
        Ok(integer.map(|(remaining, size)| Header {
            packet_type,
            flags,
            len: 1 + size,
            remaining: remaining as usize,
        }))
    }

    fn check(&self, declared: usize, limits: &Limits) -> Result<(), Fault> {
        if declared > limits.max_packet {
            return Err(Fault::PacketTooLarge {
                declared,
                limit: limits.max_packet,
            });
        }
        check_flags(self.packet_type, self.flags)
    }
}

fn check_flags(packet_type: PacketType, found: u8) -> Result<(), Fault> {
    let expected = match packet_type {
        PacketType::Publish => {
            return match QoS::from_u8((found >> 1) & 3) {
                Some(_) => Ok(()),
                None => Err(Fault::PublishQos3),
            };
        }
        PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 0b0010,
        _ => 0,
    };
    if found == expected {
        Ok(())
    } else {
        Err(Fault::FixedHeaderFlags { expected, found })
    }
}

fn read_body(header: &Header, mut body: Reader, context: &Context<'_>) -> Result<Packet, Fault> {
    let body = &mut body;
    let packet = match header.packet_type {
        PacketType::Connect => Packet::Connect(Box::new(connect::read(body, context)?)),
        PacketType::ConnAck => Packet::ConnAck(Box::new(acks::read_connack(body, context)?)),
        PacketType::Publish => Packet::Publish(publish::read(header.flags, body, context)?),
        PacketType::PubAck => Packet::PubAck(acks::read_ack(header.packet_type, body, context)?),
        PacketType::PubRec => Packet::PubRec(acks::read_ack(header.packet_type, body, context)?),
        PacketType::PubRel => Packet::PubRel(acks::read_ack(header.packet_type, body, context)?),
        PacketType::PubComp => Packet::PubComp(acks::read_ack(header.packet_type, body, context)?),
        PacketType::Subscribe => Packet::Subscribe(subscribe::read_subscribe(body, context)?),
        PacketType::SubAck => Packet::SubAck(acks::read_suback(body, context)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(subscribe::read_unsubscribe(body, context)?),
        PacketType::UnsubAck => Packet::UnsubAck(acks::read_unsuback(body, context)?),
        PacketType::PingReq => Packet::PingReq,
        PacketType::PingResp => Packet::PingResp,
        PacketType::Disconnect => Packet::Disconnect(acks::read_disconnect(body, context)?),
        PacketType::Auth => Packet::Auth(acks::read_auth(body, context)?),
    };
    body.finish()?;
    if let Packet::Connect(connect) = &packet {
        connect::check_will_topic(connect)?;
    }
    // A packet of the wrong side that parses breaks a rule; one that does not is malformed.
    if !header
        .packet_type
        .may_come_from(context.sender, context.version)
    {
        return Err(Fault::WrongDirection);
    }
    Ok(packet)
}

//! What comes from a broker, read where it lies.
//!
//! PUBACK and PUBLISH come by the hundred thousand a second, so their bytes are looked at in the read
//! buffer and nothing is copied. Everything else goes through the codec.

use bytes::BytesMut;
use saguin_mqtt_codec::{Limits, Packet, PublishProperties, Role, Version, decode};

use crate::failure::Failure;

/// One packet from a broker.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A PUBACK.
    PubAck {
        /// Of this PUBLISH.
        id: u16,
        /// Its reason code, not judged yet.
        code: u8,
        /// The whole packet, for the codec.
        whole: &'a [u8],
    },
    /// A PUBLISH.
    Publish(Delivery<'a>),
    /// Any other packet.
    Other(Box<Packet>),
}

/// A PUBLISH from a broker.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its topic.
    pub topic: &'a [u8],
    /// Its packet identifier; 0 at QoS 0.
    pub id: u16,
    /// Its payload.
    pub payload: &'a [u8],
    /// The whole packet, for the codec.
    whole: &'a [u8],
}

impl Delivery<'_> {
    /// Its properties, through the codec.
    ///
    /// # Errors
    /// What is wrong with the packet.
    pub fn properties(&self) -> Result<PublishProperties, Failure> {
        match packet(self.whole)? {
            Packet::Publish(publish) => Ok(publish.properties),
            _ => Ok(PublishProperties::default()),
        }
    }
}

/// A packet through the codec.
///
/// # Errors
/// What is wrong with it.
pub fn packet(whole: &[u8]) -> Result<Packet, Failure> {
    let mut bytes = BytesMut::from(whole);
    let limits = Limits::new(usize::MAX);
    let packet = decode(&mut bytes, Some(Version::V5), Role::Server, &limits)?;
    packet.ok_or_else(malformed)
}

fn malformed() -> Failure {
    Failure::Broken("the broker sent a packet that is shorter than what it says is in it".into())
}

/// Takes the first packet off `bytes`, and says how long it was; nothing while it is not all there.
///
/// # Errors
/// A packet that is none.
pub fn next(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Failure> {
    let Some((header, remaining)) = lengths(bytes)? else {
        return Ok(None);
    };
    let Some(whole) = bytes.get(..header + remaining) else {
        return Ok(None);
    };
    let body = whole.get(header..).unwrap_or_default();
    let first = whole.first().copied().unwrap_or_default();
    let frame = match (first >> 4, body) {
        (4, [high, low, rest @ ..]) => Frame::PubAck {
            id: u16::from_be_bytes([*high, *low]),
            code: rest.first().copied().unwrap_or_default(),
            whole,
        },
        (3, _) => Frame::Publish(delivery(first, body, whole).ok_or_else(malformed)?),
        _ => Frame::Other(Box::new(packet(whole)?)),
    };
    Ok(Some((frame, whole.len())))
}

/// Bytes of the fixed header, and of what follows it.
fn lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, Failure> {
    let mut at = 1;
    let Some(remaining) = integer(bytes, &mut at) else {
        return match bytes.len() {
            0..5 => Ok(None),
            _ => Err(malformed()),
        };
    };
    Ok(Some((at, remaining)))
}

/// A variable byte integer; nothing where it is cut off or longer than four bytes.
fn integer(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn delivery<'a>(first: u8, body: &'a [u8], whole: &'a [u8]) -> Option<Delivery<'a>> {
    let (len, rest) = body.split_at_checked(2)?;
    let len = usize::from(u16::from_be_bytes([*len.first()?, *len.get(1)?]));
    let (topic, rest) = rest.split_at_checked(len)?;
    let (id, rest) = match first >> 1 & 3 {
        0 => (0, rest),
        _ => {
            let (id, rest) = rest.split_at_checked(2)?;
            (u16::from_be_bytes([*id.first()?, *id.get(1)?]), rest)
        }
    };
    let mut at = 0;
    let properties = integer(rest, &mut at)?;
    let payload = rest.get(at + properties..)?;
    Some(Delivery {
        topic,
        id,
        payload,
        whole,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saguin_mqtt_codec::{Ack, Publish, QoS, ReasonCode, Text, encode};

    use super::*;

    fn wire(packet: &Packet) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        encode(packet, Version::V5, &mut bytes).unwrap();
        bytes.to_vec()
    }

    #[test]
    fn a_publish_reads_as_the_codec_wrote_it_and_a_part_of_it_as_nothing() {
        for (qos, size) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 300)] {
            let id = if qos == QoS::AtMostOnce { 0 } else { 515 };
            let publish = Publish {
                qos,
                topic: Text::try_from("a/b").unwrap(),
                packet_id: id,
                payload: Bytes::from(vec![7; size]),
                properties: PublishProperties {
                    correlation_data: Some(Bytes::from_static(b"which")),
                    ..PublishProperties::default()
                },
                ..Publish::default()
            };
            let bytes = wire(&Packet::Publish(publish.clone()));
            for cut in 0..bytes.len() {
                assert!(next(&bytes[..cut]).unwrap().is_none(), "{cut}");
            }
            let Some((Frame::Publish(read), len)) = next(&bytes).unwrap() else {
                panic!("no PUBLISH");
            };
            assert_eq!(len, bytes.len());
            assert_eq!((read.topic, read.id), (&b"a/b"[..], id));
            assert_eq!(read.payload, &publish.payload[..]);
            assert_eq!(read.properties().unwrap(), publish.properties);
        }
    }

    #[test]
    fn a_puback_reads_as_the_codec_wrote_it() {
        for reason in [ReasonCode::Success, ReasonCode::QuotaExceeded] {
            let bytes = wire(&Packet::PubAck(Ack::new(258, reason)));
            let read = next(&bytes).unwrap();
            let Some((Frame::PubAck { id, code, .. }, len)) = read else {
                panic!("no PUBACK");
            };
            assert_eq!((id, code, len), (258, reason.code(), bytes.len()));
        }
    }

    #[test]
    fn what_is_no_packet_is_an_error() {
        for bytes in [
            &[0x40, 0x80, 0x80, 0x80, 0x80, 0x01][..],
            &[0x30, 2, 0, 9],
            &[0x32, 3, 0, 0, 9],
        ] {
            assert!(next(bytes).is_err(), "{bytes:?}");
        }
    }
}

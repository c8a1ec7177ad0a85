//! What the tests of this crate share.
#![allow(dead_code, clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use saguin_mqtt_codec::*;

pub const V311: Option<Version> = Some(Version::V311);
pub const V5: Option<Version> = Some(Version::V5);

/// Room for anything a test sends.
pub fn limits() -> Limits {
    Limits::new(1 << 20)
}

pub fn text(text: &str) -> Text {
    Text::try_from(text).unwrap()
}

pub fn users(pairs: &[(&str, &str)]) -> UserProperties {
    let mut builder = UserPropertiesBuilder::new();
    for (key, value) in pairs {
        builder.push(key, value).unwrap();
    }
    builder.build()
}

/// A frame: first byte, Remaining Length, body.
pub fn frame(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    out.extend(integer(body.len()));
    out.extend(body);
    out
}

/// A Variable Byte Integer.
pub fn integer(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = (value % 128) as u8;
        value /= 128;
        if value == 0 {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

/// Bytes with two bytes of length in front.
pub fn sized(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut out = (bytes.len() as u16).to_be_bytes().to_vec();
    out.extend(bytes);
    out
}

/// Properties with their length in front.
pub fn properties(wire: &[&[u8]]) -> Vec<u8> {
    let wire = wire.concat();
    let mut out = integer(wire.len());
    out.extend(wire);
    out
}

pub fn decode_from(
    sender: Role,
    version: Option<Version>,
    bytes: &[u8],
) -> Result<Option<Packet>, DecodeError> {
    let mut buf = BytesMut::from(bytes);
    decode(&mut buf, version, sender, &limits())
}

/// One whole packet of a client, with nothing left over.
pub fn taken(version: Option<Version>, bytes: &[u8]) -> Packet {
    taken_from(Role::Client, version, bytes)
}

pub fn taken_from(sender: Role, version: Option<Version>, bytes: &[u8]) -> Packet {
    let mut buf = BytesMut::from(bytes);
    match decode(&mut buf, version, sender, &limits()) {
        Ok(Some(packet)) => {
            assert!(buf.is_empty(), "{} bytes are left", buf.len());
            packet
        }
        other => panic!("{bytes:02X?} should be taken: {other:?}"),
    }
}

/// What is wrong with the bytes of a client.
pub fn refused(version: Option<Version>, bytes: &[u8]) -> DecodeError {
    refused_from(Role::Client, version, bytes)
}

pub fn refused_from(sender: Role, version: Option<Version>, bytes: &[u8]) -> DecodeError {
    match decode_from(sender, version, bytes) {
        Err(error) => error,
        other => panic!("{bytes:02X?} should be refused: {other:?}"),
    }
}

pub fn encoded(packet: &Packet, version: Version) -> Bytes {
    let mut out = BytesMut::new();
    encode(packet, version, &mut out).unwrap();
    assert_eq!(encoded_len(packet, version), Ok(out.len()));
    out.freeze()
}

/// A CONNECT: level, connect flags, properties (MQTT 5), and what follows them.
pub fn connect(level: u8, flags: u8, props: &[&[u8]], payload: &[Vec<u8>]) -> Vec<u8> {
    let mut body = sized("MQTT");
    body.extend([level, flags, 0, 60]);
    if level >= 5 {
        body.extend(properties(props));
    }
    body.extend(payload.concat());
    frame(0x10, &body)
}

/// A PUBLISH of MQTT 5 at QoS 0 on topic `t`.
pub fn publish(props: &[&[u8]]) -> Vec<u8> {
    let body = [sized("t"), properties(props), b"hi".to_vec()].concat();
    frame(0x30, &body)
}

/// A SUBSCRIBE of MQTT 5.
pub fn subscribe(props: &[&[u8]], filters: &[(&str, u8)]) -> Vec<u8> {
    let mut body = vec![0, 1];
    body.extend(properties(props));
    for (filter, options) in filters {
        body.extend(sized(filter));
        body.push(*options);
    }
    frame(0x82, &body)
}

//! Compared with another implementation: mqtt-protocol-core reads what is written here and makes
//! the same of it, and takes every mutated frame that is taken here, with the exceptions named.
#![allow(clippy::unwrap_used)]

#[path = "common/any.rs"]
mod any;
mod common;
#[path = "common/samples.rs"]
mod samples;

use std::sync::Arc;

use any::*;
use common::*;
use mqtt_protocol_core::mqtt::packet as oracle;
use proptest::prelude::*;
use saguin_mqtt_codec::*;
use samples::samples;

/// Reads a frame with the other implementation, and writes it again.
fn read_and_write(version: Version, bytes: &[u8]) -> Result<Vec<u8>, String> {
    macro_rules! parse {
        ($($type:tt)+) => {{
            let body = body(bytes);
            let (packet, consumed) = $($type)+::parse(body).map_err(|error| error.to_string())?;
            if consumed != body.len() {
                return Err(format!("{consumed} of {} bytes", body.len()));
            }
            packet.to_buffers().iter().flat_map(|part| part.to_vec()).collect()
        }};
    }
    macro_rules! parse_publish {
        ($($type:tt)+) => {{
            let body: Arc<[u8]> = body(bytes).into();
            let (packet, _) = $($type)+::parse(bytes[0] & 0xF, body)
                .map_err(|error| error.to_string())?;
            packet.to_buffers().iter().flat_map(|part| part.to_vec()).collect()
        }};
    }
    use oracle::{v3_1_1 as old, v5_0 as new};
    Ok(match (version, bytes[0] >> 4) {
        (Version::V311, 1) => parse!(old::Connect),
        (Version::V311, 2) => parse!(old::Connack),
        (Version::V311, 3) => parse_publish!(old::Publish),
        (Version::V311, 4) => parse!(old::Puback),
        (Version::V311, 5) => parse!(old::Pubrec),
        (Version::V311, 6) => parse!(old::Pubrel),
        (Version::V311, 7) => parse!(old::Pubcomp),
        (Version::V311, 8) => parse!(old::Subscribe),
        (Version::V311, 9) => parse!(old::Suback),
        (Version::V311, 10) => parse!(old::Unsubscribe),
        (Version::V311, 11) => parse!(old::Unsuback),
        (Version::V5, 1) => parse!(new::Connect),
        (Version::V5, 2) => parse!(new::Connack),
        (Version::V5, 3) => parse_publish!(new::Publish),
        (Version::V5, 4) => parse!(new::Puback),
        (Version::V5, 5) => parse!(new::Pubrec),
        (Version::V5, 6) => parse!(new::Pubrel),
        (Version::V5, 7) => parse!(new::Pubcomp),
        (Version::V5, 8) => parse!(new::Subscribe),
        (Version::V5, 9) => parse!(new::Suback),
        (Version::V5, 10) => parse!(new::Unsubscribe),
        (Version::V5, 11) => parse!(new::Unsuback),
        (Version::V5, 14) => parse!(new::Disconnect),
        (Version::V5, 15) => parse!(new::Auth),
        // Nothing is in these.
        _ => bytes.to_vec(),
    })
}

fn body(bytes: &[u8]) -> &[u8] {
    let header = 2 + bytes[1..]
        .iter()
        .take_while(|byte| **byte & 0x80 != 0)
        .count();
    &bytes[header..]
}

/// What the other implementation refuses although it is to be taken.
fn is_refused_by_the_other(packet: &Packet) -> bool {
    match packet {
        // MQTT 5 allows a password without a user name.
        Packet::Connect(connect) => connect.password.is_some() && connect.user_name.is_none(),
        // A filter that is none is answered in the SUBACK, and does not end the connection.
        Packet::Subscribe(subscribe) => subscribe.filters.iter().any(|subscription| {
            let filter = subscription.filter.as_str();
            filter
                .strip_prefix("$share/")
                .is_some_and(|rest| !rest.contains('/') || rest.starts_with('/'))
        }),
        _ => false,
    }
}

fn agrees(version: Version, packet: &Packet) {
    let bytes = encoded(packet, version);
    match read_and_write(version, &bytes) {
        Ok(written) => assert_eq!(written, bytes, "{packet:?}"),
        Err(error) => assert!(is_refused_by_the_other(packet), "{error}: {packet:?}"),
    }
}

#[test]
fn the_other_reads_every_sample_as_it_was_meant() {
    for sample in samples() {
        agrees(sample.version, &sample.packet);
    }
}

#[test]
fn a_publish_has_the_same_fields_there() {
    let mut seen = 0;
    for sample in samples() {
        let (Packet::Publish(publish), Version::V5) = (&sample.packet, sample.version) else {
            continue;
        };
        let body: Arc<[u8]> = body(&sample.bytes).into();
        let (there, _) = oracle::v5_0::Publish::parse(sample.bytes[0] & 0xF, body).unwrap();
        assert_eq!(there.topic_name(), publish.topic.as_str());
        assert_eq!(there.packet_id().unwrap_or(0), publish.packet_id);
        assert_eq!(there.qos() as u8, publish.qos.level());
        assert_eq!((there.dup(), there.retain()), (publish.dup, publish.retain));
        assert_eq!(there.payload().as_slice(), &publish.payload[..]);
        let users: Vec<_> = there
            .props()
            .iter()
            .filter_map(|property| match property {
                oracle::Property::UserProperty(user) => Some((user.key(), user.val())),
                _ => None,
            })
            .collect();
        let here: Vec<_> = publish.properties.user_properties.iter().collect();
        assert_eq!(users, here);
        seen += 1;
    }
    assert!(seen >= 4);
}

#[test]
fn a_connect_has_the_same_fields_there() {
    let sample = &samples()[0];
    let Packet::Connect(connect) = &sample.packet else {
        panic!("no CONNECT");
    };
    let (there, _) = oracle::v5_0::Connect::parse(body(&sample.bytes)).unwrap();
    let will = connect.will.as_ref().unwrap();
    assert_eq!(there.client_id(), connect.client_id.as_str());
    assert_eq!(
        (there.clean_start(), there.keep_alive()),
        (connect.clean_start, 60)
    );
    assert_eq!(there.will_topic(), Some(will.topic.as_str()));
    assert_eq!(there.will_payload(), Some(&will.payload[..]));
    assert_eq!(there.will_qos() as u8, will.qos.level());
    assert_eq!(there.will_retain(), will.retain);
    assert_eq!(
        there.user_name(),
        connect.user_name.as_ref().map(|name| name.as_str())
    );
    assert_eq!(there.password(), connect.password.as_deref());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_other_agrees_on_connect(connect in any_connect()) {
        let old = without_v5(connect.clone());
        agrees(Version::V5, &Packet::Connect(connect.into()));
        agrees(Version::V311, &Packet::Connect(old.into()));
    }

    #[test]
    fn the_other_agrees_on_connack(connack in any_connack()) {
        agrees(Version::V5, &Packet::ConnAck(connack.into()));
    }

    #[test]
    fn the_other_agrees_on_publish(publish in any_publish()) {
        agrees(Version::V5, &Packet::Publish(publish.clone()));
        if !publish.topic.is_empty() {
            agrees(Version::V311, &Packet::Publish(publish));
        }
    }

    #[test]
    fn the_other_agrees_on_acks(
        puback in any_ack(PacketType::PubAck),
        pubrec in any_ack(PacketType::PubRec),
        pubrel in any_ack(PacketType::PubRel),
        pubcomp in any_ack(PacketType::PubComp),
    ) {
        agrees(Version::V5, &Packet::PubAck(puback));
        agrees(Version::V5, &Packet::PubRec(pubrec));
        agrees(Version::V5, &Packet::PubRel(pubrel));
        agrees(Version::V5, &Packet::PubComp(pubcomp));
    }
}

/// Illegal frames the other takes, which are refused here. Should it grow stricter, that shows.
#[test]
fn what_is_refused_here_and_taken_there() {
    let will = |flags: u8, topic: &str| {
        connect(
            5,
            flags,
            &[],
            &[sized("c"), vec![0], sized(topic), sized("")],
        )
    };
    let publish_on = |topic: &str| frame(0x30, &[sized(topic), vec![0]].concat());
    let stricter = [
        ("U+0000 in a topic", publish_on("a\0")),
        ("a wildcard in a topic", publish_on("a/#")),
        (
            "U+0000 in a user property",
            publish(&[&[0x26], &sized("\0"), &sized("")]),
        ),
        (
            "a wildcard in a Response Topic",
            publish(&[&[8], &sized("+")]),
        ),
        ("DUP at QoS 0", frame(0x38, &[sized("t"), vec![0]].concat())),
        (
            "a Subscription Identifier from a client",
            publish(&[&[0x0B, 1]]),
        ),
        (
            "a property length that is not minimal",
            frame(0x30, &[0, 1, b't', 0x80, 0]),
        ),
        ("no property length", frame(0x30, &sized("t"))),
        ("an empty Will topic", will(6, "")),
        ("a wildcard in a Will topic", will(6, "#")),
        ("Will QoS 3", will(0x1E, "w")),
        (
            "Will QoS without a Will",
            connect(5, 0x0A, &[], &[sized("c")]),
        ),
        (
            "Will Retain without a Will",
            connect(5, 0x22, &[], &[sized("c")]),
        ),
        (
            "Authentication Data alone",
            connect(5, 2, &[&[0x16], &sized("x")], &[sized("c")]),
        ),
        (
            "two Subscription Identifiers",
            subscribe(&[&[0x0B, 1], &[0x0B, 2]], &[("t", 0)]),
        ),
        (
            "No Local on a shared filter",
            subscribe(&[], &[("$share/g/t", 4)]),
        ),
    ];
    for (name, bytes) in stricter {
        let version = if bytes[0] == 0x10 { None } else { V5 };
        refused(version, &bytes);
        assert!(
            read_and_write(Version::V5, &bytes).is_ok(),
            "{name} is refused there too"
        );
    }
}

/// Whatever single byte of a sample is changed, and to whatever value that tells something: a
/// frame that is taken here is taken there, and means the same.
#[test]
fn nothing_is_taken_here_alone() {
    let mut both = 0;
    let mut alone = Vec::new();
    for sample in samples() {
        for at in 0..sample.bytes.len() {
            for value in [
                0,
                1,
                2,
                3,
                0x0B,
                0x26,
                0x7F,
                0x80,
                0xFF,
                sample.bytes[at] ^ 4,
            ] {
                let mut bytes = sample.bytes.to_vec();
                bytes[at] = value;
                let Ok(Some(packet)) = decode_from(sample.sender, sample.spoken(), &bytes) else {
                    continue;
                };
                let version = match &packet {
                    Packet::Connect(connect) => connect.version,
                    _ => sample.version,
                };
                // A shorter length leaves bytes behind, which are no part of the frame.
                let Some(len) = declared(&bytes) else {
                    continue;
                };
                match read_and_write(version, &bytes[..len]) {
                    Ok(written) => {
                        let again = taken_from(sample.sender, sample.spoken(), &written);
                        assert_eq!(again, packet);
                        both += 1;
                    }
                    Err(error) if !is_refused_by_the_other(&packet) => {
                        alone.push(format!("{error}: {packet:?}"));
                    }
                    Err(_) => {}
                }
            }
        }
    }
    assert!(alone.is_empty(), "{}:\n{}", alone.len(), alone.join("\n"));
    assert!(both > 2_000, "{both}");
}

fn declared(bytes: &[u8]) -> Option<usize> {
    let body = body(bytes);
    let header = bytes.len() - body.len();
    let len = bytes[1..header]
        .iter()
        .rev()
        .fold(0, |len, byte| len << 7 | usize::from(byte & 0x7F));
    (header + len <= bytes.len()).then_some(header + len)
}

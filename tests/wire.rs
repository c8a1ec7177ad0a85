//! What arrives broken ends the connection it came on, with the right code, and nothing else.

mod common;

use common::{Answer, Broker, Client, Setup, hello, hello_v311, return_code, text};
use saguin_mqtt_codec::{Packet, QoS, ReasonCode, Version};

use ReasonCode as R;

/// A frame: its first byte, the Remaining Length its body asks for, the body.
fn frame(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend(length(body.len()));
    bytes.extend_from_slice(body);
    bytes
}

fn length(mut rest: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (rest % 128) as u8;
        rest /= 128;
        if rest == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

/// A CONNECT of Keep Alive 0: flags, properties where there are any, payload.
fn connect(level: u8, flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT".to_vec();
    body.extend([level, flags, 0, 0]);
    if level >= 5 {
        body.extend(length(properties.len()));
        body.extend_from_slice(properties);
    }
    body.extend_from_slice(payload);
    frame(0x10, &body)
}

/// Somebody who is connected all the while, and must not notice.
struct Witness(Client);

impl Witness {
    fn new(broker: &Broker) -> Self {
        let mut client = hello("witness").connect(broker);
        client.follow("events/#");
        Witness(client)
    }

    fn is_served(&mut self, what: &str) {
        assert_eq!(
            self.0.publish("events/witness", what.to_owned()),
            R::Success
        );
        assert_eq!(self.0.take().payload, what.as_bytes());
    }
}

/// What a broken CONNECT is answered with.
enum First {
    /// Closed, nothing said.
    Closed,
    /// An MQTT 5 CONNACK.
    V5(ReasonCode),
    /// An MQTT 3.1.1 CONNACK with this return code.
    V311(u8),
}

#[test]
fn a_broken_connect_is_answered_as_far_as_its_version_is_known() {
    use First::{Closed, V5, V311};
    let broker = Broker::start();
    let mut witness = Witness::new(&broker);
    let id = b"\x00\x01a";
    let with = |more: &[u8]| [id.as_slice(), more].concat();
    let will = |flags, tail: &[u8]| connect(5, flags, &[], &with(tail));
    let table: Vec<(&str, Vec<u8>, First)> = vec![
        ("not MQTT", b"GET / HTTP/1.1\r\n\r\n".to_vec(), Closed),
        ("a PINGREQ first", vec![0xC0, 0], Closed),
        ("a PUBLISH first", frame(0x30, b"\x00\x01ax"), Closed),
        ("packet type 0", vec![0, 0], Closed),
        (
            "an endless length",
            vec![0x10, 0xFF, 0xFF, 0xFF, 0xFF],
            Closed,
        ),
        (
            "another protocol",
            frame(0x10, b"\x00\x04MQTX\x05\x02\0\0\0\0\0"),
            Closed,
        ),
        (
            "MQTT 3.1",
            frame(0x10, b"\x00\x06MQIsdp\x03\x02\0\0\0\x01a"),
            V311(1),
        ),
        ("MQTT level 3", connect(3, 2, &[], id), V311(1)),
        ("MQTT 6", connect(6, 2, &[], id), V5(R::UnsupportedVersion)),
        (
            "flags of the header",
            [&[0x11][..], &connect(5, 2, &[], id)[1..]].concat(),
            V5(R::MalformedPacket),
        ),
        (
            "reserved flag",
            connect(5, 3, &[], id),
            V5(R::MalformedPacket),
        ),
        ("reserved flag, 3.1.1", connect(4, 3, &[], id), Closed),
        (
            "Will QoS 3",
            will(0x1E, b"\x00\x00\x01t\x00\x00"),
            V5(R::MalformedPacket),
        ),
        (
            "Will QoS 3, 3.1.1",
            connect(4, 0x1E, &[], &with(b"\x00\x01t\x00\x00")),
            Closed,
        ),
        (
            "Will QoS without Will",
            connect(5, 0x0A, &[], id),
            V5(R::MalformedPacket),
        ),
        (
            "Will Retain without Will",
            connect(5, 0x22, &[], id),
            V5(R::ProtocolError),
        ),
        (
            "Will Retain without Will, 3.1.1",
            connect(4, 0x22, &[], id),
            Closed,
        ),
        (
            "a wildcard in the Will",
            will(0x06, b"\x00\x00\x01#\x00\x00"),
            V5(R::TopicNameInvalid),
        ),
        (
            "a wildcard in the Will, 3.1.1",
            connect(4, 0x06, &[], &with(b"\x00\x01#\x00\x00")),
            V311(5),
        ),
        (
            "Response Topic of the Will",
            will(0x06, b"\x04\x08\x00\x01#\x00\x01t\x00\x00"),
            V5(R::ProtocolError),
        ),
        (
            "user name",
            connect(5, 0x82, &[], &with(b"\x00\x01\xFF")),
            V5(R::MalformedPacket),
        ),
        (
            "user name, 3.1.1",
            connect(4, 0x82, &[], &with(b"\x00\x01\xFF")),
            Closed,
        ),
        (
            "password alone, 3.1.1",
            connect(4, 0x42, &[], &with(b"\x00\x01p")),
            Closed,
        ),
        (
            "client id",
            connect(5, 2, &[], b"\x00\x01\xFF"),
            V5(R::MalformedPacket),
        ),
        (
            "cut short",
            connect(5, 2, &[], b"\x00\x09a"),
            V5(R::MalformedPacket),
        ),
        (
            "bytes left over",
            connect(5, 2, &[], &with(b"x")),
            V5(R::MalformedPacket),
        ),
        (
            "property twice",
            connect(5, 2, b"\x21\x00\x01\x21\x00\x01", id),
            V5(R::ProtocolError),
        ),
        (
            "Receive Maximum 0",
            connect(5, 2, b"\x21\x00\x00", id),
            V5(R::ProtocolError),
        ),
        (
            "Maximum Packet Size 0",
            connect(5, 2, b"\x27\0\0\0\0", id),
            V5(R::ProtocolError),
        ),
        (
            "a PUBLISH's property",
            connect(5, 2, b"\x23\x00\x01", id),
            V5(R::MalformedPacket),
        ),
        (
            "a property nobody knows",
            connect(5, 2, b"\x7F", id),
            V5(R::MalformedPacket),
        ),
        (
            "properties past the end",
            connect(5, 2, &[0x21], b""),
            V5(R::MalformedPacket),
        ),
        (
            "Authentication Data alone",
            connect(5, 2, b"\x16\x00\x01x", id),
            V5(R::ProtocolError),
        ),
        (
            "Authentication Method",
            connect(5, 2, b"\x15\x00\x01x", id),
            V5(R::BadAuthenticationMethod),
        ),
        // Held against its declared length: none of the 100 KiB has come, nor ever will.
        ("too large", oversize(5), V5(R::PacketTooLarge)),
        ("too large, 3.1.1", oversize(4), Closed),
    ];
    for (what, bytes, expected) in table {
        let version = match expected {
            V311(_) => Version::V311,
            _ => Version::V5,
        };
        let mut client = Client::open(&broker, version);
        client.send_bytes(&bytes);
        let answer = client.read();
        match (expected, answer) {
            (Closed, Answer::Closed) => {}
            (V5(reason), Answer::Packet(Packet::ConnAck(connack))) => {
                assert_eq!(connack.reason, reason, "{what}");
                assert!(
                    connack.properties.reason_string.is_some(),
                    "{what}: no reason given"
                );
                client.expect_closed();
            }
            (V311(code), Answer::Packet(Packet::ConnAck(connack))) => {
                assert_eq!(return_code(connack.reason), code, "{what}");
                client.expect_closed();
            }
            (_, answer) => panic!("{what}: {answer:?}"),
        }
        witness.is_served(what);
    }
}

/// The head of a CONNECT that says it has 200,000 bytes.
fn oversize(level: u8) -> Vec<u8> {
    let mut bytes = vec![0x10];
    bytes.extend(length(200_000));
    bytes.extend_from_slice(b"\x00\x04MQTT");
    bytes.extend([level, 2, 0, 0, 0]);
    bytes
}

#[test]
fn a_broken_packet_ends_its_connection_with_its_code() {
    let broker = Broker::start();
    let mut witness = Witness::new(&broker);
    let v5: Vec<(&str, Vec<u8>, ReasonCode)> = vec![
        (
            "a second CONNECT",
            connect(5, 2, &[], b"\x00\x01a"),
            R::ProtocolError,
        ),
        ("packet type 0", vec![0, 0], R::MalformedPacket),
        ("a CONNACK", frame(0x20, b"\x00\x00\x00"), R::ProtocolError),
        (
            "a SUBACK",
            frame(0x90, b"\x00\x01\x00\x00"),
            R::ProtocolError,
        ),
        ("a PINGRESP", vec![0xD0, 0], R::ProtocolError),
        ("an AUTH", vec![0xF0, 0], R::ProtocolError),
        (
            "QoS 3",
            frame(0x36, b"\x00\x01t\x00\x01\x00"),
            R::MalformedPacket,
        ),
        (
            "DUP at QoS 0",
            frame(0x38, b"\x00\x01t\x00"),
            R::ProtocolError,
        ),
        (
            "packet identifier 0",
            frame(0x32, b"\x00\x01t\x00\x00\x00"),
            R::ProtocolError,
        ),
        (
            "a wildcard",
            frame(0x30, b"\x00\x03t/+\x00"),
            R::ProtocolError,
        ),
        (
            "a wildcard at QoS 1",
            frame(0x32, b"\x00\x03t/#\x00\x01\x00"),
            R::ProtocolError,
        ),
        ("no topic", frame(0x30, b"\x00\x00\x00"), R::ProtocolError),
        (
            "NUL in the topic",
            frame(0x30, b"\x00\x01\x00\x00"),
            R::MalformedPacket,
        ),
        (
            "half a topic",
            frame(0x30, b"\x00\x09t"),
            R::MalformedPacket,
        ),
        (
            "not UTF-8",
            frame(0x30, b"\x00\x01\xFF\x00"),
            R::MalformedPacket,
        ),
        (
            "alias 0",
            frame(0x30, b"\x00\x01t\x03\x23\x00\x00"),
            R::TopicAliasInvalid,
        ),
        (
            "alias 17",
            frame(0x30, b"\x00\x01t\x03\x23\x00\x11"),
            R::TopicAliasInvalid,
        ),
        (
            "alias of nothing",
            frame(0x30, b"\x00\x00\x03\x23\x00\x10"),
            R::ProtocolError,
        ),
        (
            "property twice",
            frame(0x30, b"\x00\x01t\x04\x01\x00\x01\x00"),
            R::ProtocolError,
        ),
        (
            "payload format 2",
            frame(0x30, b"\x00\x01t\x02\x01\x02"),
            R::ProtocolError,
        ),
        (
            "a property nobody knows",
            frame(0x30, b"\x00\x01t\x01\x7F"),
            R::MalformedPacket,
        ),
        (
            "a CONNECT's property",
            frame(0x30, b"\x00\x01t\x03\x21\x00\x01"),
            R::MalformedPacket,
        ),
        (
            "a Subscription Identifier",
            frame(0x30, b"\x00\x01t\x02\x0B\x01"),
            R::ProtocolError,
        ),
        (
            "Response Topic with a wildcard",
            frame(0x30, b"\x00\x01t\x04\x08\x00\x01+"),
            R::ProtocolError,
        ),
        (
            "flags of a SUBSCRIBE",
            frame(0x80, b"\x00\x01\x00\x00\x01t\x00"),
            R::MalformedPacket,
        ),
        (
            "an empty SUBSCRIBE",
            frame(0x82, b"\x00\x01\x00"),
            R::ProtocolError,
        ),
        (
            "SUBSCRIBE with identifier 0",
            frame(0x82, b"\x00\x00\x00\x00\x01t\x00"),
            R::ProtocolError,
        ),
        (
            "SUBSCRIBE to QoS 3",
            frame(0x82, b"\x00\x01\x00\x00\x01t\x03"),
            R::ProtocolError,
        ),
        (
            "Retain Handling 3",
            frame(0x82, b"\x00\x01\x00\x00\x01t\x30"),
            R::ProtocolError,
        ),
        (
            "reserved options",
            frame(0x82, b"\x00\x01\x00\x00\x01t\x40"),
            R::MalformedPacket,
        ),
        (
            "No Local on $share",
            frame(0x82, b"\x00\x01\x00\x00\x0A$share/g/t\x05"),
            R::ProtocolError,
        ),
        (
            "Subscription Identifier 0",
            frame(0x82, b"\x00\x01\x02\x0B\x00\x00\x01t\x00"),
            R::ProtocolError,
        ),
        (
            "an empty UNSUBSCRIBE",
            frame(0xA2, b"\x00\x01\x00"),
            R::ProtocolError,
        ),
        ("flags of a PINGREQ", vec![0xC1, 0], R::MalformedPacket),
        (
            "a PINGREQ with a body",
            frame(0xC0, b"x"),
            R::MalformedPacket,
        ),
        (
            "a PUBACK with a reason of others",
            frame(0x40, b"\x00\x01\x18\x00"),
            R::ProtocolError,
        ),
        (
            "an expiry that was none",
            frame(0xE0, b"\x00\x05\x11\x00\x00\x00\x05"),
            R::ProtocolError,
        ),
        (
            "an endless length",
            vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF],
            R::MalformedPacket,
        ),
        (
            "a length longer than need be",
            vec![0xC0, 0x80, 0x00],
            R::MalformedPacket,
        ),
        // Held against the declared length: 256 MiB that never come take no memory.
        (
            "too large",
            vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F],
            R::PacketTooLarge,
        ),
    ];
    for (what, bytes, reason) in v5 {
        let mut client = hello("hostile").connect(&broker);
        client.send_bytes(&bytes);
        eprintln!("case: {what}");
        client.expect_disconnect(reason);
        witness.is_served(what);
    }
    let v311: Vec<(&str, Vec<u8>)> = vec![
        ("a second CONNECT", connect(4, 2, &[], b"\x00\x01a")),
        ("packet type 0", vec![0, 0]),
        ("packet type 15", vec![0xF0, 0]),
        ("a CONNACK", frame(0x20, b"\x00\x00")),
        ("QoS 3", frame(0x36, b"\x00\x01t\x00\x01")),
        ("packet identifier 0", frame(0x32, b"\x00\x01t\x00\x00")),
        ("a wildcard", frame(0x30, b"\x00\x01#")),
        ("no topic", frame(0x30, b"\x00\x00")),
        ("not UTF-8", frame(0x30, b"\x00\x01\xFF")),
        ("an empty SUBSCRIBE", frame(0x82, b"\x00\x01")),
        ("SUBSCRIBE to QoS 3", frame(0x82, b"\x00\x01\x00\x01t\x03")),
        ("no filter", frame(0x82, b"\x00\x01\x00\x02t#\x00")),
        ("an empty filter", frame(0x82, b"\x00\x01\x00\x00\x00")),
        ("a PINGREQ with a body", frame(0xC0, b"x")),
        ("an endless length", vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF]),
        ("too large", vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F]),
    ];
    for (what, bytes) in v311 {
        let mut client = hello_v311("hostile").connect(&broker);
        client.send_bytes(&bytes);
        client.expect_closed();
        witness.is_served(what);
    }
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, Version::V5);
    for byte in connect(5, 2, &[], b"\x00\x04slow") {
        client.send_bytes(&[byte]);
    }
    match client.read() {
        Answer::Packet(Packet::ConnAck(connack)) => assert_eq!(connack.reason, R::Success),
        other => panic!("{other:?}"),
    }
    for byte in frame(0x32, b"\x00\x08events/a\x00\x07\x00x") {
        client.send_bytes(&[byte]);
    }
    assert_eq!(client.puback(7).reason, R::Success);
}

#[test]
fn packets_may_come_all_at_once() {
    let broker = Broker::start();
    let mut bytes = connect(5, 2, &[], b"\x00\x05hasty");
    bytes.extend(frame(0x82, b"\x00\x01\x00\x00\x08events/#\x01"));
    bytes.extend(frame(0x32, b"\x00\x08events/a\x00\x02\x00x"));
    bytes.extend([0xC0, 0]);
    let mut client = Client::open(&broker, Version::V5);
    client.send_bytes(&bytes);
    client.wait_for("a CONNACK", |packet| {
        matches!(packet, Packet::ConnAck(_)).then_some(())
    });
    assert_eq!(client.puback(2).reason, R::Success);
    assert_eq!(client.take().payload, "x");
}

#[test]
fn silence_past_the_keep_alive_ends_the_connection() {
    let broker = Broker::start();
    let keep_alive = |hello: common::Hello| hello.set(|connect| connect.keep_alive = 1);
    let mut v5 = keep_alive(hello("silent")).connect(&broker);
    let mut v311 = keep_alive(hello_v311("quiet")).connect(&broker);
    v5.expect_disconnect(R::KeepAliveTimeout);
    v311.expect_closed();
}

#[test]
fn the_longest_keep_alive_is_the_brokers() {
    let broker = Broker::with(&Setup {
        limits: "max_keepalive: 1s",
        ..Setup::default()
    });
    // None at all is longer than any.
    let (mut client, connack) = hello("silent").answer(&broker);
    assert_eq!(connack.properties.server_keep_alive, Some(1));
    client.expect_disconnect(R::KeepAliveTimeout);
}

#[test]
fn a_client_identifier_is_taken_over() {
    let broker = Broker::start();
    let mut first = hello("same").connect(&broker);
    let mut second = hello_v311("same").connect(&broker);
    first.expect_disconnect(R::SessionTakenOver);
    let mut third = hello("same").connect(&broker);
    second.expect_closed();
    third.ping();
}

#[test]
fn a_client_is_sent_no_more_than_its_receive_maximum() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for number in 1..=10 {
        assert_eq!(
            publisher.publish("events/a", number.to_string()),
            R::Success
        );
    }
    let mut consumer = hello("narrow")
        .set(|connect| connect.receive_maximum = 3)
        .connect(&broker);
    consumer.follow("events/#");
    let mut held: Vec<_> = (0..3).map(|_| consumer.delivery()).collect();
    for number in 4..=10 {
        consumer.expect_nothing();
        let oldest = held.remove(0);
        consumer.acknowledge(&oldest);
        held.push(consumer.delivery());
        assert_eq!(held[2].payload, number.to_string());
    }
    let ids: Vec<u16> = held.iter().map(|delivery| delivery.packet_id).collect();
    assert_eq!(ids, [8, 9, 10], "identifiers count up");
}

#[test]
fn publishes_past_the_brokers_receive_maximum_wait() {
    let broker = Broker::start();
    let (mut publisher, connack) = hello("eager").answer(&broker);
    assert_eq!(connack.properties.receive_maximum, Some(1024));
    let publish = |_| {
        publisher.send_publish(saguin_mqtt_codec::Publish {
            qos: QoS::AtLeastOnce,
            topic: text("events/a"),
            ..Default::default()
        })
    };
    let ids: Vec<u16> = (0..3000).map(publish).collect();
    for id in ids {
        assert_eq!(publisher.puback(id).reason, R::Success);
    }
}

#[test]
fn a_record_too_large_for_a_client_ends_its_connection_and_is_not_skipped() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    assert_eq!(publisher.publish("events/a", "small"), R::Success);
    assert_eq!(publisher.publish("events/a", "x".repeat(1000)), R::Success);
    let small = |hello: common::Hello| hello.set(|c| c.maximum_packet_size = Some(500));
    let mut consumer = small(hello("small").durable()).connect(&broker);
    consumer.follow("events/#");
    assert_eq!(consumer.take().payload, "small");
    consumer.expect_disconnect(R::PacketTooLarge);
    let mut consumer = hello("small").durable().connect(&broker);
    assert!(consumer.session_present);
    let mut next = consumer.take();
    if next.payload == "small" {
        // The connection was ended before its PUBACK was read.
        assert!(next.dup);
        next = consumer.take();
    }
    assert_eq!(next.payload.len(), 1000);
}

#[test]
fn a_broadcast_too_large_for_a_client_is_dropped_for_it_alone() {
    let broker = Broker::start();
    let mut small = hello("small")
        .set(|connect| connect.maximum_packet_size = Some(500))
        .connect(&broker);
    let mut large = hello("large").connect(&broker);
    small.follow("talk/#");
    large.follow("talk/#");
    let mut publisher = hello("publisher").connect(&broker);
    assert_eq!(publisher.publish("talk/a", "x".repeat(1000)), R::Success);
    assert_eq!(publisher.publish("talk/a", "next"), R::Success);
    assert_eq!(small.take().payload, "next");
    assert_eq!(large.take().payload.len(), 1000);
    assert_eq!(large.take().payload, "next");
}

#[test]
fn sixteen_topics_have_an_alias() {
    let broker = Broker::start();
    let (mut publisher, connack) = hello("publisher").answer(&broker);
    assert_eq!(connack.properties.topic_alias_maximum, Some(16));
    let mut consumer = hello("consumer")
        .set(|connect| connect.topic_alias_maximum = 10)
        .connect(&broker);
    consumer.follow("events/#");
    let aliased = |alias| saguin_mqtt_codec::PublishProperties {
        topic_alias: Some(alias),
        ..Default::default()
    };
    for alias in 1..=16 {
        let topic = format!("events/{alias}");
        assert_eq!(
            publisher.publish_with(&topic, "named", aliased(alias)),
            R::Success
        );
    }
    for alias in 1..=16 {
        assert_eq!(
            publisher.publish_with("", "by alias", aliased(alias)),
            R::Success
        );
    }
    for payload in ["named", "by alias"] {
        for alias in 1..=16 {
            let event = consumer.take();
            assert_eq!(event.topic.as_str(), format!("events/{alias}"));
            assert_eq!(event.payload, payload);
            assert_eq!(event.properties.topic_alias, None, "none is sent outbound");
        }
    }
}

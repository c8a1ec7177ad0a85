//! The bytes of every packet, written out: both ways.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::*;
use saguin_mqtt_codec::*;

/// The packet encodes to these bytes, and they decode to the packet.
fn same(sender: Role, version: Version, packet: Packet, bytes: &[u8]) {
    assert_eq!(encoded(&packet, version), bytes, "{packet:?}");
    let spoken = match packet {
        Packet::Connect(_) => None,
        _ => Some(version),
    };
    assert_eq!(taken_from(sender, spoken, bytes), packet);
}

fn will() -> Will {
    Will {
        topic: text("w"),
        payload: Bytes::from_static(b"bye"),
        qos: QoS::AtLeastOnce,
        retain: true,
        ..Will::default()
    }
}

#[test]
fn connect_v311() {
    let mut connect = Connect::new(Version::V311, text("c"));
    connect.keep_alive = 60;
    connect.will = Some(will());
    connect.user_name = Some(text("u"));
    connect.password = Some(Bytes::from_static(b"p"));
    let bytes =
        b"\x10\x1B\x00\x04MQTT\x04\xEE\x00\x3C\x00\x01c\x00\x01w\x00\x03bye\x00\x01u\x00\x01p";
    same(
        Role::Client,
        Version::V311,
        Packet::Connect(connect.into()),
        bytes,
    );
}

#[test]
fn connect_v5() {
    let mut connect = Connect::new(Version::V5, text("c"));
    connect.clean_start = false;
    connect.keep_alive = 60;
    connect.session_expiry = u32::MAX;
    connect.receive_maximum = 10;
    connect.maximum_packet_size = Some(1000);
    connect.topic_alias_maximum = 3;
    connect.request_response_information = true;
    connect.request_problem_information = false;
    connect.authentication_method = Some(text("m"));
    connect.authentication_data = Some(Bytes::from_static(&[0xFF]));
    connect.user_properties = users(&[("k", "v")]);
    let mut will = will();
    will.delay_seconds = 5;
    will.properties.expiry_seconds = Some(6);
    will.properties.payload_is_utf8 = Some(true);
    will.properties.content_type = Some(text("x"));
    will.properties.response_topic = Some(text("r"));
    will.properties.correlation_data = Some(Bytes::from_static(b"d"));
    will.properties.user_properties = users(&[("a", "b")]);
    connect.will = Some(will);
    connect.password = Some(Bytes::from_static(b"p"));
    let bytes = [
        &b"\x10\x5C\x00\x04MQTT\x05\x6C\x00\x3C"[..],
        b"\x23\x11\xFF\xFF\xFF\xFF\x21\x00\x0A\x27\x00\x00\x03\xE8\x22\x00\x03\x19\x01\x17\x00",
        b"\x15\x00\x01m\x16\x00\x01\xFF\x26\x00\x01k\x00\x01v",
        b"\x00\x01c",
        b"\x1F\x18\x00\x00\x00\x05\x02\x00\x00\x00\x06\x01\x01\x03\x00\x01x\x08\x00\x01r",
        b"\x09\x00\x01d\x26\x00\x01a\x00\x01b",
        b"\x00\x01w\x00\x03bye\x00\x01p",
    ]
    .concat();
    same(
        Role::Client,
        Version::V5,
        Packet::Connect(connect.into()),
        &bytes,
    );
}

#[test]
fn connack() {
    let mut connack = ConnAck {
        session_present: true,
        reason: ReasonCode::Success,
        properties: ConnAckProperties::default(),
    };
    let packet = |connack: &ConnAck| Packet::ConnAck(connack.clone().into());
    same(
        Role::Server,
        Version::V311,
        packet(&connack),
        b"\x20\x02\x01\x00",
    );
    same(
        Role::Server,
        Version::V5,
        packet(&connack),
        b"\x20\x03\x01\x00\x00",
    );
    connack.session_present = false;
    connack.reason = ReasonCode::NotAuthorized;
    same(
        Role::Server,
        Version::V311,
        packet(&connack),
        b"\x20\x02\x00\x05",
    );
    connack.reason = ReasonCode::Success;
    connack.properties = ConnAckProperties {
        session_expiry: Some(1),
        receive_maximum: Some(1024),
        maximum_qos: Some(QoS::AtLeastOnce),
        retain_available: Some(true),
        maximum_packet_size: Some(65_536),
        assigned_client_id: Some(text("i")),
        topic_alias_maximum: Some(16),
        reason_string: Some(text("why")),
        wildcard_subscription_available: Some(true),
        subscription_identifiers_available: Some(true),
        shared_subscription_available: Some(false),
        server_keep_alive: Some(30),
        response_information: Some(text("r")),
        server_reference: Some(text("s")),
        authentication_method: Some(text("m")),
        authentication_data: Some(Bytes::new()),
        user_properties: users(&[("k", "v")]),
    };
    let bytes = [
        &b"\x20\x40\x00\x00\x3D\x11\x00\x00\x00\x01\x21\x04\x00\x24\x01\x25\x01"[..],
        b"\x27\x00\x01\x00\x00\x12\x00\x01i\x22\x00\x10\x28\x01\x29\x01\x2A\x00\x13\x00\x1E",
        b"\x1A\x00\x01r\x1C\x00\x01s\x15\x00\x01m\x16\x00\x00\x1F\x00\x03why\x26\x00\x01k\x00\x01v",
    ]
    .concat();
    same(Role::Server, Version::V5, packet(&connack), &bytes);
}

#[test]
fn publish_of_both_versions() {
    let mut publish = Publish {
        topic: text("a/b"),
        payload: Bytes::from_static(b"hi"),
        ..Publish::default()
    };
    let packet = |publish: &Publish| Packet::Publish(publish.clone());
    same(
        Role::Client,
        Version::V311,
        packet(&publish),
        b"\x30\x07\x00\x03a/bhi",
    );
    same(
        Role::Client,
        Version::V5,
        packet(&publish),
        b"\x30\x08\x00\x03a/b\x00hi",
    );
    publish.qos = QoS::ExactlyOnce;
    publish.dup = true;
    publish.retain = true;
    publish.packet_id = 0x0102;
    same(
        Role::Client,
        Version::V311,
        packet(&publish),
        b"\x3D\x09\x00\x03a/b\x01\x02hi",
    );
    publish.properties = PublishProperties {
        payload_is_utf8: Some(true),
        expiry_seconds: Some(9),
        topic_alias: Some(2),
        response_topic: Some(text("r")),
        correlation_data: Some(Bytes::from_static(&[0, 1])),
        subscription_identifiers: vec![1, 200],
        content_type: Some(text("x")),
        user_properties: users(&[("k", "v"), ("k", "w")]),
    };
    let bytes = [
        &b"\x3D\x34\x00\x03a/b\x01\x02"[..],
        b"\x2A\x02\x00\x00\x00\x09\x23\x00\x02\x0B\x01\x0B\xC8\x01\x01\x01\x03\x00\x01x\x08\x00\x01r",
        b"\x09\x00\x02\x00\x01\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01whi",
    ]
    .concat();
    same(Role::Server, Version::V5, packet(&publish), &bytes);
    // MQTT 3.1.1 has no place for properties.
    assert_eq!(
        encoded(&packet(&publish), Version::V311),
        &b"\x3D\x09\x00\x03a/b\x01\x02hi"[..]
    );
}

#[test]
fn acks() {
    for (first, wrap) in [
        (0x40, Packet::PubAck as fn(Ack) -> Packet),
        (0x50, Packet::PubRec),
        (0x62, Packet::PubRel),
        (0x70, Packet::PubComp),
    ] {
        let mut ack = Ack::new(0x0102, ReasonCode::Success);
        for version in [Version::V311, Version::V5] {
            same(Role::Client, version, wrap(ack.clone()), &[first, 2, 1, 2]);
        }
        ack.reason = match first {
            0x40 | 0x50 => ReasonCode::QuotaExceeded,
            _ => ReasonCode::PacketIdentifierNotFound,
        };
        let code = ack.reason.code();
        same(
            Role::Client,
            Version::V5,
            wrap(ack.clone()),
            &[first, 3, 1, 2, code],
        );
        ack.reason_string = Some(text("w"));
        ack.user_properties = users(&[("k", "v")]);
        let body = [
            &[1, 2, code, 11][..],
            b"\x1F\x00\x01w\x26\x00\x01k\x00\x01v",
        ]
        .concat();
        same(Role::Client, Version::V5, wrap(ack), &frame(first, &body));
    }
}

#[test]
fn subscribe_of_both_versions() {
    let mut subscribe = Subscribe {
        packet_id: 7,
        filters: vec![
            Subscription {
                filter: text("a"),
                qos: QoS::ExactlyOnce,
                ..Subscription::default()
            },
            Subscription {
                filter: text("#"),
                ..Subscription::default()
            },
        ],
        ..Subscribe::default()
    };
    let packet = |subscribe: &Subscribe| Packet::Subscribe(subscribe.clone());
    let bytes = b"\x82\x0A\x00\x07\x00\x01a\x02\x00\x01#\x00";
    same(Role::Client, Version::V311, packet(&subscribe), bytes);
    subscribe.subscription_identifier = Some(268_435_455);
    subscribe.user_properties = users(&[("k", "v")]);
    subscribe.filters[1].no_local = true;
    subscribe.filters[1].retain_as_published = true;
    subscribe.filters[1].retain_handling = RetainHandling::Never;
    let properties = b"\x0C\x0B\xFF\xFF\xFF\x7F\x26\x00\x01k\x00\x01v";
    let bytes = [
        &b"\x82\x17\x00\x07"[..],
        properties,
        b"\x00\x01a\x02\x00\x01#\x2C",
    ]
    .concat();
    same(Role::Client, Version::V5, packet(&subscribe), &bytes);
}

#[test]
fn suback_of_both_versions() {
    let mut ack = SubAck::new(7, vec![ReasonCode::GrantedQos2, ReasonCode::Unspecified]);
    let packet = |ack: &SubAck| Packet::SubAck(ack.clone());
    same(
        Role::Server,
        Version::V311,
        packet(&ack),
        b"\x90\x04\x00\x07\x02\x80",
    );
    ack.reasons[1] = ReasonCode::TopicFilterInvalid;
    same(
        Role::Server,
        Version::V5,
        packet(&ack),
        b"\x90\x05\x00\x07\x00\x02\x8F",
    );
    // Every refusal is the one that MQTT 3.1.1 has.
    assert_eq!(
        encoded(&packet(&ack), Version::V311),
        &b"\x90\x04\x00\x07\x02\x80"[..]
    );
    ack.reason_string = Some(text("w"));
    ack.user_properties = users(&[("k", "v")]);
    let bytes = b"\x90\x10\x00\x07\x0B\x1F\x00\x01w\x26\x00\x01k\x00\x01v\x02\x8F";
    same(Role::Server, Version::V5, packet(&ack), bytes);
}

#[test]
fn unsubscribe_and_unsuback_of_both_versions() {
    let mut unsubscribe = Unsubscribe {
        packet_id: 7,
        filters: vec![text("a"), text("#")],
        ..Unsubscribe::default()
    };
    let packet = |unsubscribe: &Unsubscribe| Packet::Unsubscribe(unsubscribe.clone());
    let bytes = b"\xA2\x08\x00\x07\x00\x01a\x00\x01#";
    same(Role::Client, Version::V311, packet(&unsubscribe), bytes);
    unsubscribe.user_properties = users(&[("k", "v")]);
    let bytes = b"\xA2\x10\x00\x07\x07\x26\x00\x01k\x00\x01v\x00\x01a\x00\x01#";
    same(Role::Client, Version::V5, packet(&unsubscribe), bytes);
    let mut ack = UnsubAck::new(7, vec![]);
    same(
        Role::Server,
        Version::V311,
        Packet::UnsubAck(ack.clone()),
        b"\xB0\x02\x00\x07",
    );
    ack.reasons = vec![ReasonCode::Success, ReasonCode::NoSubscriptionExisted];
    same(
        Role::Server,
        Version::V5,
        Packet::UnsubAck(ack.clone()),
        b"\xB0\x05\x00\x07\x00\x00\x11",
    );
    ack.user_properties = users(&[("k", "v")]);
    ack.reason_string = Some(text("w"));
    let bytes = b"\xB0\x10\x00\x07\x0B\x1F\x00\x01w\x26\x00\x01k\x00\x01v\x00\x11";
    same(Role::Server, Version::V5, Packet::UnsubAck(ack), bytes);
}

#[test]
fn pings() {
    for version in [Version::V311, Version::V5] {
        same(Role::Client, version, Packet::PingReq, &[0xC0, 0]);
        same(Role::Server, version, Packet::PingResp, &[0xD0, 0]);
    }
}

#[test]
fn disconnect_of_both_sides() {
    let mut last = Disconnect::new(ReasonCode::Success);
    for version in [Version::V311, Version::V5] {
        same(
            Role::Client,
            version,
            Packet::Disconnect(last.clone()),
            &[0xE0, 0],
        );
    }
    last.reason = ReasonCode::DisconnectWithWill;
    same(
        Role::Client,
        Version::V5,
        Packet::Disconnect(last.clone()),
        &[0xE0, 1, 4],
    );
    last.session_expiry = Some(1);
    last.user_properties = users(&[("k", "v")]);
    let bytes = b"\xE0\x0E\x04\x0C\x11\x00\x00\x00\x01\x26\x00\x01k\x00\x01v";
    same(Role::Client, Version::V5, Packet::Disconnect(last), bytes);
    let mut last = Disconnect::new(ReasonCode::ServerMoved);
    last.server_reference = Some(text("s"));
    last.reason_string = Some(text("w"));
    let bytes = b"\xE0\x0A\x9D\x08\x1C\x00\x01s\x1F\x00\x01w";
    same(Role::Server, Version::V5, Packet::Disconnect(last), bytes);
}

#[test]
fn auth() {
    let mut auth = Auth {
        reason: ReasonCode::Success,
        authentication_method: None,
        authentication_data: None,
        reason_string: None,
        user_properties: UserProperties::new(),
    };
    same(
        Role::Server,
        Version::V5,
        Packet::Auth(auth.clone()),
        &[0xF0, 0],
    );
    auth.reason = ReasonCode::ContinueAuthentication;
    auth.authentication_method = Some(text("m"));
    auth.authentication_data = Some(Bytes::from_static(b"d"));
    auth.reason_string = Some(text("w"));
    auth.user_properties = users(&[("k", "v")]);
    let bytes = b"\xF0\x15\x18\x13\x15\x00\x01m\x16\x00\x01d\x1F\x00\x01w\x26\x00\x01k\x00\x01v";
    same(Role::Client, Version::V5, Packet::Auth(auth), bytes);
}

#[test]
fn what_has_no_form_on_the_wire_is_refused_and_writes_nothing() {
    let publish = |change: fn(&mut Publish)| {
        let mut publish = Publish {
            topic: text("t"),
            ..Publish::default()
        };
        change(&mut publish);
        Packet::Publish(publish)
    };
    let refusals = [
        publish(|p| p.topic = text("")),
        publish(|p| p.topic = text("a/#")),
        publish(|p| p.dup = true),
        publish(|p| p.qos = QoS::AtLeastOnce),
        publish(|p| p.properties.topic_alias = Some(0)),
        publish(|p| p.properties.subscription_identifiers = vec![0]),
        publish(|p| p.properties.response_topic = Some(text("+"))),
        publish(|p| p.properties.correlation_data = Some(vec![0; 65_536].into())),
        publish(|p| p.payload = vec![0; MAX_REMAINING_LENGTH].into()),
        Packet::PubAck(Ack::new(0, ReasonCode::Success)),
        Packet::PubAck(Ack::new(1, ReasonCode::PacketIdentifierNotFound)),
        Packet::Subscribe(Subscribe {
            packet_id: 1,
            ..Subscribe::default()
        }),
        Packet::Unsubscribe(Unsubscribe {
            packet_id: 1,
            ..Unsubscribe::default()
        }),
        Packet::SubAck(SubAck::new(1, vec![])),
        Packet::SubAck(SubAck::new(1, vec![ReasonCode::Banned])),
        Packet::ConnAck(Box::new(ConnAck {
            session_present: true,
            reason: ReasonCode::NotAuthorized,
            properties: ConnAckProperties::default(),
        })),
        Packet::Connect(Box::new(Connect::new(Version::V311, text("c")))),
    ];
    for packet in refusals {
        let mut out = bytes::BytesMut::new();
        let error = encode(&packet, Version::V5, &mut out).unwrap_err();
        assert!(out.is_empty(), "{error}");
        assert_eq!(encoded_len(&packet, Version::V5), Err(error));
    }
}

#[test]
fn a_refusal_is_never_written_as_a_success_to_mqtt_3_1_1() {
    let refusals = [
        Packet::PubAck(Ack::new(1, ReasonCode::QuotaExceeded)),
        Packet::PubRec(Ack::new(1, ReasonCode::ImplementationSpecific)),
        Packet::PubComp(Ack::new(1, ReasonCode::PacketIdentifierNotFound)),
        Packet::Disconnect(Disconnect::new(ReasonCode::DisconnectWithWill)),
        Packet::Disconnect(Disconnect::new(ReasonCode::ServerShuttingDown)),
        Packet::ConnAck(Box::new(ConnAck {
            session_present: false,
            reason: ReasonCode::PacketTooLarge,
            properties: ConnAckProperties::default(),
        })),
    ];
    for packet in refusals {
        let expected = packet.packet_type();
        let mut out = bytes::BytesMut::new();
        let error = encode(&packet, Version::V311, &mut out).unwrap_err();
        assert!(matches!(error, EncodeError::ReasonCode { packet, .. } if packet == expected));
        assert!(out.is_empty());
    }
}

//! Packets that are easily refused by mistake.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use saguin_mqtt_codec::*;

fn connect_of(bytes: &[u8]) -> Connect {
    match taken(None, bytes) {
        Packet::Connect(connect) => *connect,
        other => panic!("{other:?}"),
    }
}

fn publish_of(bytes: &[u8]) -> Publish {
    match taken(V5, bytes) {
        Packet::Publish(publish) => publish,
        other => panic!("{other:?}"),
    }
}

#[test]
fn message_expiry_0() {
    let publish = publish_of(&publish(&[&[2, 0, 0, 0, 0]]));
    assert_eq!(publish.properties.expiry_seconds, Some(0));
}

#[test]
fn an_empty_client_identifier_with_and_without_clean_start() {
    for (flags, clean_start) in [(0, false), (2, true)] {
        for level in [4, 5] {
            let connect = connect_of(&connect(level, flags, &[], &[sized("")]));
            assert_eq!(
                (connect.client_id.as_str(), connect.clean_start),
                ("", clean_start)
            );
        }
    }
}

#[test]
fn an_explicit_payload_format_0_stays_explicit() {
    let bytes = publish(&[&[1, 0]]);
    let publish = publish_of(&bytes);
    assert_eq!(publish.properties.payload_is_utf8, Some(false));
    assert_eq!(encoded(&Packet::Publish(publish), Version::V5), bytes);
}

#[test]
fn a_disconnect_of_every_length() {
    let success = Packet::Disconnect(Disconnect::new(ReasonCode::Success));
    assert_eq!(taken(V5, &[0xE0, 0]), success);
    assert_eq!(taken(V311, &[0xE0, 0]), success);
    assert_eq!(taken(V5, &[0xE0, 1, 0]), success);
    assert_eq!(taken(V5, &[0xE0, 2, 0, 0]), success);
    let with_will = Packet::Disconnect(Disconnect::new(ReasonCode::DisconnectWithWill));
    assert_eq!(taken(V5, &[0xE0, 1, 4]), with_will);
    let Packet::Disconnect(last) = taken(V5, &[0xE0, 7, 0, 5, 0x11, 0, 0, 0, 0]) else {
        panic!("no DISCONNECT");
    };
    assert_eq!(last.session_expiry, Some(0));
}

#[test]
fn an_answer_of_every_length() {
    for (first, wrap) in [
        (0x40, Packet::PubAck as fn(Ack) -> Packet),
        (0x50, Packet::PubRec),
        (0x62, Packet::PubRel),
        (0x70, Packet::PubComp),
    ] {
        let success = wrap(Ack::new(258, ReasonCode::Success));
        assert_eq!(taken(V311, &[first, 2, 1, 2]), success);
        assert_eq!(taken(V5, &[first, 2, 1, 2]), success);
        assert_eq!(taken(V5, &[first, 3, 1, 2, 0]), success);
        assert_eq!(taken(V5, &[first, 4, 1, 2, 0, 0]), success);
        let body = [vec![1, 2, 0], properties(&[&[0x1F], &sized("why")])].concat();
        let mut ack = Ack::new(258, ReasonCode::Success);
        ack.reason_string = Some(text("why"));
        assert_eq!(taken(V5, &frame(first, &body)), wrap(ack));
    }
}

#[test]
fn an_empty_topic_beside_an_alias() {
    let publish = publish_of(&frame(
        0x30,
        &[&[0, 0][..], &properties(&[&[0x23, 0, 7]])].concat(),
    ));
    assert_eq!(
        (publish.topic.as_str(), publish.properties.topic_alias),
        ("", Some(7))
    );
}

#[test]
fn an_empty_payload_and_empty_correlation_data() {
    let body = [sized("t"), properties(&[&[9, 0, 0]])].concat();
    let publish = publish_of(&frame(0x31, &body));
    assert!(publish.retain && publish.payload.is_empty());
    assert_eq!(
        publish.properties.correlation_data.as_deref(),
        Some(&b""[..])
    );
}

#[test]
fn user_properties_repeated_and_empty() {
    let pair = [&[0x26][..], &sized("k"), &sized("")].concat();
    let publish = publish_of(&publish(&[&pair, &pair]));
    assert_eq!(
        publish.properties.user_properties,
        users(&[("k", ""), ("k", "")])
    );
}

#[test]
fn unusual_characters_are_text() {
    // Control characters, a byte order mark, noncharacters, and beyond the basic plane.
    let odd = "\u{1}\u{7F}\u{FEFF}\u{FFFF}\u{1F980}";
    let publish = publish_of(&frame(0x30, &[sized(odd), vec![0]].concat()));
    assert_eq!(publish.topic.as_str(), odd);
}

#[test]
fn a_long_length_that_is_minimal() {
    let body = [sized("t"), vec![0], vec![1; 20_000]].concat();
    let publish = publish_of(&frame(0x30, &body));
    assert_eq!(publish.payload.len(), 20_000);
}

#[test]
fn packets_both_sides_send() {
    for bytes in [
        publish(&[]),
        vec![0x40, 2, 0, 1],
        vec![0x62, 2, 0, 1],
        vec![0xE0, 0],
    ] {
        taken(V5, &bytes);
        taken_from(Role::Server, V5, &bytes);
    }
    taken_from(Role::Server, V5, &[0xF0, 0]);
}

#[test]
fn properties_without_their_length() {
    let kept = publish_of(&publish(&[
        &[1, 1],
        &[2, 0, 0, 0, 9],
        &[3],
        &sized("c"),
        &[8],
        &sized("r"),
        &[9],
        &sized("d"),
        &[0x23, 0, 1],
        &[0x26],
        &sized("k"),
        &sized("v"),
    ]))
    .properties;
    let mut wire = bytes::BytesMut::new();
    kept.write_forwarded(&mut wire).unwrap();
    let back = PublishProperties::from_wire(wire.freeze(), &limits()).unwrap();
    let forwarded = PublishProperties {
        expiry_seconds: None,
        topic_alias: None,
        ..kept
    };
    assert_eq!(back, forwarded);
    for belongs_to_a_connection in [&[0x23, 0, 1][..], &[0x0B, 1]] {
        let wire = belongs_to_a_connection.to_vec().into();
        assert!(PublishProperties::from_wire(wire, &limits()).is_err());
    }
}

#[test]
fn problem_information_is_taken_out_of_answers_only() {
    let mut suback = SubAck::new(1, vec![ReasonCode::NotAuthorized]);
    suback.reason_string = Some(text("why"));
    suback.user_properties = users(&[("k", "v")]);
    let mut packet = Packet::SubAck(suback);
    packet.remove_problem_information();
    assert_eq!(
        packet,
        Packet::SubAck(SubAck::new(1, vec![ReasonCode::NotAuthorized]))
    );
    let bytes = publish(&[&[0x26], &sized("k"), &sized("v")]);
    let mut packet = taken(V5, &bytes);
    packet.remove_problem_information();
    assert_eq!(packet, taken(V5, &bytes));
}

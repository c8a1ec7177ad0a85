//! Sizes, versions and partial input: what is told from how many bytes.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::BytesMut;
use common::*;
use saguin_mqtt_codec::*;

fn decode_within(
    max_packet: usize,
    version: Option<Version>,
    bytes: &[u8],
) -> Result<Option<Packet>, DecodeError> {
    let mut buf = BytesMut::from(bytes);
    decode(&mut buf, version, Role::Client, &Limits::new(max_packet))
}

#[test]
fn a_declared_size_over_the_limit_is_refused_before_the_rest_comes() {
    // 2 + 126 bytes are declared; only the header has come.
    assert_eq!(decode_within(128, V5, &[0x30, 126]), Ok(None));
    let error = decode_within(127, V5, &[0x30, 126]).unwrap_err();
    assert_eq!(
        error.fault,
        Fault::PacketTooLarge {
            declared: 128,
            limit: 127
        }
    );
    assert_eq!(error.reason, ReasonCode::PacketTooLarge);
    assert_eq!(error.reply(), Reply::DisconnectV5);
    let error = decode_within(127, V311, &[0x30, 126]).unwrap_err();
    assert_eq!(error.reply(), Reply::Nothing);
}

#[test]
fn no_memory_is_taken_for_a_declared_size() {
    let mut buf = BytesMut::with_capacity(64);
    buf.extend_from_slice(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, b't']);
    let capacity = buf.capacity();
    let limits = Limits::new(usize::MAX);
    assert_eq!(decode(&mut buf, V5, Role::Client, &limits), Ok(None));
    assert_eq!((buf.capacity(), buf.len()), (capacity, 8));
}

#[test]
fn an_oversize_connect_is_refused_in_its_own_version() {
    let payload = [sized(vec![b'c'; 200])];
    for (level, reply) in [(4, Reply::Nothing), (5, Reply::ConnAckV5)] {
        let bytes = connect(level, 2, &[], &payload);
        for arrived in 0..=bytes.len() {
            let outcome = decode_within(100, None, &bytes[..arrived]);
            // Fixed header, name and level are ten bytes: from then on the version is known.
            if arrived < 10 {
                assert_eq!(outcome, Ok(None), "{arrived}");
            } else {
                let error = outcome.unwrap_err();
                assert_eq!(error.reason, ReasonCode::PacketTooLarge);
                assert_eq!(error.reply(), reply);
            }
        }
    }
}

#[test]
fn protocol_levels_that_are_not_served() {
    for level in 0..=u8::MAX {
        let bytes = connect(level, 2, &[], &[sized("c")]);
        let reply = match level {
            4 | 5 => continue,
            0..=3 => Reply::ConnAckV311(ConnectReturnCode::UnacceptableProtocolVersion),
            6.. => Reply::ConnAckV5,
        };
        let error = refused(None, &bytes);
        assert_eq!(error.fault, Fault::UnsupportedLevel { found: level });
        assert_eq!(error.reason, ReasonCode::UnsupportedVersion);
        assert_eq!((error.reply(), error.version), (reply, None));
        // The rest of the packet is not waited for.
        assert_eq!(refused(None, &bytes[..9]), error);
    }
}

#[test]
fn mqtt_3_1_is_told_so_in_its_own_words() {
    let bytes = frame(
        0x10,
        &[sized("MQIsdp"), vec![3, 2, 0, 0], sized("c")].concat(),
    );
    let error = refused(None, &bytes);
    assert_eq!(error.fault, Fault::UnsupportedLevel { found: 3 });
    let code = ConnectReturnCode::UnacceptableProtocolVersion;
    assert_eq!(error.reply(), Reply::ConnAckV311(code));
    let mut other = bytes;
    other[10] = 4;
    assert_eq!(refused(None, &other).fault, Fault::ProtocolName);
}

#[test]
fn a_name_that_is_not_mqtt_is_closed_without_a_word() {
    for name in ["mqtt", "MQTTT", "MQT", "", "HTTP", "MQIsdp2"] {
        let bytes = frame(
            0x10,
            &[sized(name), vec![5, 2, 0, 0, 0], sized("c")].concat(),
        );
        let error = refused(None, &bytes);
        assert_eq!(
            (&error.fault, error.reply()),
            (&Fault::ProtocolName, Reply::Nothing)
        );
        assert_eq!(error.reason, ReasonCode::MalformedPacket);
    }
    // The first wrong byte is enough.
    assert_eq!(
        refused(None, &[0x10, 50, 0, 4, b'm']).fault,
        Fault::ProtocolName
    );
}

#[test]
fn a_complete_connect_that_is_too_short_is_not_waited_for() {
    let full = [sized("MQTT"), vec![5]].concat();
    for len in 0..full.len() {
        let error = refused(None, &frame(0x10, &full[..len]));
        let field = "the protocol name and level";
        assert_eq!(
            (&error.fault, error.reply()),
            (&Fault::Truncated { field }, Reply::Nothing)
        );
        // The same bytes of a longer CONNECT are waited upon, also with another packet behind.
        let longer = [&[0x10, 50], &full[..len]].concat();
        assert_eq!(decode_from(Role::Client, None, &longer), Ok(None));
    }
    // What follows the declared end does not count.
    let error = refused(None, &[&[0x10, 6][..], &full].concat());
    assert!(matches!(error.fault, Fault::Truncated { .. }));
}

#[test]
fn user_properties_are_counted_before_they_are_taken() {
    let pair = [&[0x26][..], &sized("k"), &sized("v")].concat();
    let bytes = publish(&[&pair, &pair, &pair]);
    for (max_user_properties, taken) in [(2, false), (3, true)] {
        let limits = Limits {
            max_user_properties,
            ..limits()
        };
        let mut buf = BytesMut::from(&bytes[..]);
        match decode(&mut buf, V5, Role::Client, &limits) {
            Ok(Some(Packet::Publish(publish))) => {
                assert!(taken);
                assert_eq!(publish.properties.user_properties.len(), 3);
            }
            other => {
                let error = other.unwrap_err();
                assert!(!taken);
                assert_eq!(error.fault, Fault::TooManyUserProperties { limit: 2 });
                assert_eq!(error.reason, ReasonCode::QuotaExceeded);
            }
        }
    }
}

#[test]
fn a_flood_of_user_properties_costs_its_bytes_on_the_wire() {
    let flood: Vec<u8> = [0x26, 0, 0, 0, 0].repeat(50_000);
    let bytes = publish(&[&flood]);
    let Packet::Publish(publish) = taken(V5, &bytes) else {
        panic!("no PUBLISH");
    };
    let users = publish.properties.user_properties;
    assert_eq!(
        (users.len(), users.text_len(), users.wire().len()),
        (50_000, 0, 250_000)
    );
}

#[test]
fn filters_are_counted_before_they_are_taken() {
    let limits = Limits {
        max_filters: 2,
        ..limits()
    };
    let try_one = |bytes: &[u8]| {
        let mut buf = BytesMut::from(bytes);
        decode(&mut buf, V5, Role::Client, &limits).map(|packet| packet.is_some())
    };
    assert_eq!(try_one(&subscribe(&[], &[("a", 0); 2])), Ok(true));
    let error = try_one(&subscribe(&[], &[("a", 0); 3])).unwrap_err();
    assert_eq!(error.fault, Fault::TooManyFilters { limit: 2 });
    assert_eq!(error.reason, ReasonCode::QuotaExceeded);
    let body = [vec![0, 1, 0], sized("a").repeat(3)].concat();
    let error = try_one(&frame(0xA2, &body)).unwrap_err();
    assert_eq!(error.fault, Fault::TooManyFilters { limit: 2 });
}

#[test]
fn packets_come_off_one_by_one_and_the_rest_stays() {
    let mut buf = BytesMut::new();
    buf.extend_from_slice(&publish(&[]));
    buf.extend_from_slice(&[0xC0, 0]);
    buf.extend_from_slice(&[0x40, 2, 0]);
    let take = |buf: &mut BytesMut| decode(buf, V5, Role::Client, &limits()).unwrap();
    assert!(matches!(take(&mut buf), Some(Packet::Publish(_))));
    assert_eq!(take(&mut buf), Some(Packet::PingReq));
    assert_eq!(take(&mut buf), None);
    assert_eq!(&buf[..], [0x40, 2, 0]);
    buf.extend_from_slice(&[9]);
    assert_eq!(
        take(&mut buf),
        Some(Packet::PubAck(Ack::new(9, ReasonCode::Success)))
    );
    assert_eq!((take(&mut buf), buf.len()), (None, 0));
}

#[test]
fn payload_and_text_are_slices_of_what_was_read() {
    let bytes = publish(&[&[3], &sized("text/plain")]);
    let mut buf = BytesMut::from(&bytes[..]);
    let within = buf.as_ptr_range();
    let Ok(Some(Packet::Publish(publish))) = decode(&mut buf, V5, Role::Client, &limits()) else {
        panic!("no PUBLISH");
    };
    let content_type = publish.properties.content_type.unwrap();
    for slice in [publish.payload.as_ptr(), content_type.as_bytes().as_ptr()] {
        assert!(within.contains(&slice));
    }
    let pair = [&[0x26][..], &sized("k"), &sized("v")].concat();
    assert!(!within.contains(&content_type.detached().as_bytes().as_ptr()));
    // User Properties with another property in between are gathered, in order.
    let split = common::publish(&[&pair, &[1, 1], &[0x26], &sized("a"), &sized("b"), &pair]);
    let Packet::Publish(publish) = taken(V5, &split) else {
        panic!("no PUBLISH");
    };
    let users = publish.properties.user_properties;
    assert_eq!(users, common::users(&[("k", "v"), ("a", "b"), ("k", "v")]));
}

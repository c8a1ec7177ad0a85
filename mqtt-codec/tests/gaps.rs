//! Packets that are easily taken by mistake, each with the answer it gets.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use saguin_mqtt_codec::*;

/// Both forms of a check: what it is called, and what may be written about it.
fn assert_refused(version: Option<Version>, bytes: &[u8], fault: Fault, reason: ReasonCode) {
    let error = refused(version, bytes);
    assert_eq!(
        (&error.fault, error.reason),
        (&fault, reason),
        "{bytes:02X?}"
    );
    let expected = match version {
        V5 => Reply::DisconnectV5,
        _ => Reply::Nothing,
    };
    assert_eq!(error.reply(), expected);
    assert!(error.to_string().len() > 20, "{error}");
}

fn malformed(version: Option<Version>, bytes: &[u8], fault: Fault) {
    assert_refused(version, bytes, fault, ReasonCode::MalformedPacket);
}

fn breaks_a_rule(version: Option<Version>, bytes: &[u8], fault: Fault) {
    assert_refused(version, bytes, fault, ReasonCode::ProtocolError);
}

/// A CONNECT of MQTT 5 gets its reason; the same of MQTT 3.1.1 gets nothing, where there is one.
fn connect_refused(flags: u8, payload: &[Vec<u8>], fault: Fault, reason: ReasonCode) {
    let error = refused(None, &connect(5, flags, &[], payload));
    assert_eq!((&error.fault, error.reason), (&fault, reason));
    assert_eq!(error.reply(), Reply::ConnAckV5);
    let error = refused(None, &connect(4, flags, &[], payload));
    assert_eq!((&error.fault, error.reason), (&fault, reason));
    assert_eq!(error.reply(), Reply::Nothing);
}

// Text.

#[test]
fn u0000_in_a_topic() {
    let body = [sized("a\0b"), vec![0]].concat();
    let fault = Fault::NulInText {
        field: "the topic",
        at: 1,
    };
    malformed(V5, &frame(0x30, &body), fault.clone());
    malformed(V311, &frame(0x30, &sized("a\0b")), fault);
}

#[test]
fn u0000_in_a_filter() {
    let fault = Fault::NulInText {
        field: "a filter",
        at: 0,
    };
    malformed(V5, &subscribe(&[], &[("\0", 0)]), fault.clone());
    let body = [vec![0, 1, 0], sized("\0")].concat();
    malformed(V5, &frame(0xA2, &body), fault);
}

#[test]
fn u0000_in_each_string_of_a_connect() {
    let nul = |field| Fault::NulInText { field, at: 0 };
    let m = ReasonCode::MalformedPacket;
    connect_refused(2, &[sized("\0")], nul("the client identifier"), m);
    connect_refused(0x82, &[sized("c"), sized("\0")], nul("the user name"), m);
    let error = refused(
        None,
        &connect(4, 6, &[], &[sized("c"), sized("\0"), sized("")]),
    );
    assert_eq!(error.fault, nul("the Will topic"));
    assert_eq!(error.reply(), Reply::Nothing);
}

#[test]
fn u0000_in_each_string_property() {
    for (identifier, name) in [(3, "Content Type"), (8, "Response Topic")] {
        malformed(
            V5,
            &publish(&[&[identifier], &sized("\0")]),
            Fault::NulInText { field: name, at: 0 },
        );
    }
    let key = Fault::NulInText {
        field: "the key of a User Property",
        at: 1,
    };
    malformed(V5, &publish(&[&[0x26], &sized("k\0"), &sized("v")]), key);
    let value = Fault::NulInText {
        field: "the value of a User Property",
        at: 0,
    };
    malformed(V5, &publish(&[&[0x26], &sized("k"), &sized("\0")]), value);
}

#[test]
fn text_that_is_not_utf8() {
    // An overlong form, a surrogate, above U+10FFFF, and a character cut short.
    for bad in [
        &[0xC0, 0xAF][..],
        &[0xED, 0xA0, 0x80],
        &[0xF4, 0x90, 0x80, 0x80],
        &[0xE2, 0x82],
    ] {
        let fault = Fault::NotUtf8 {
            field: "the topic",
            at: 0,
        };
        malformed(V311, &frame(0x30, &sized(bad)), fault);
        connect_refused(
            2,
            &[sized(bad)],
            Fault::NotUtf8 {
                field: "the client identifier",
                at: 0,
            },
            ReasonCode::MalformedPacket,
        );
    }
}

#[test]
fn a_wildcard_in_a_topic() {
    for topic in ["#", "a/+/b", "a#", "+"] {
        let fault = Fault::TopicWildcard { field: "the topic" };
        breaks_a_rule(
            V5,
            &frame(0x30, &[sized(topic), vec![0]].concat()),
            fault.clone(),
        );
        breaks_a_rule(V311, &frame(0x30, &sized(topic)), fault);
    }
}

#[test]
fn a_wildcard_in_a_response_topic() {
    let fault = Fault::TopicWildcard {
        field: "Response Topic",
    };
    breaks_a_rule(V5, &publish(&[&[8], &sized("a/#")]), fault.clone());
    let will = [
        sized("c"),
        properties(&[&[8], &sized("+")]),
        sized("w"),
        sized(""),
    ];
    let error = refused(None, &connect(5, 6, &[], &will));
    assert_eq!(
        (error.fault.clone(), error.reason),
        (fault, ReasonCode::ProtocolError)
    );
    assert_eq!(error.reply(), Reply::ConnAckV5);
}

#[test]
fn an_empty_response_topic() {
    let fault = Fault::TopicEmpty {
        field: "Response Topic",
    };
    breaks_a_rule(V5, &publish(&[&[8], &sized("")]), fault);
}

#[test]
fn a_will_topic_that_could_never_be_delivered() {
    for topic in ["", "#", "a/+"] {
        let v5 = refused(
            None,
            &connect(5, 6, &[], &[sized("c"), vec![0], sized(topic), sized("")]),
        );
        assert_eq!(
            (&v5.fault, v5.reason),
            (&Fault::WillTopic, ReasonCode::TopicNameInvalid)
        );
        assert_eq!(v5.reply(), Reply::ConnAckV5);
        let v311 = refused(
            None,
            &connect(4, 6, &[], &[sized("c"), sized(topic), sized("")]),
        );
        assert_eq!(
            v311.reply(),
            Reply::ConnAckV311(ConnectReturnCode::NotAuthorized)
        );
        // One that is badly made as well gets nothing.
        let payload = [sized("c"), sized(topic), sized(""), vec![0]];
        let v311 = refused(None, &connect(4, 6, &[], &payload));
        assert_eq!(v311.fault, Fault::TrailingBytes { count: 1 });
        assert_eq!(v311.reply(), Reply::Nothing);
    }
}

#[test]
fn an_empty_topic_without_an_alias() {
    let fault = Fault::TopicEmpty { field: "the topic" };
    breaks_a_rule(V5, &frame(0x30, &[0, 0, 0]), fault.clone());
    breaks_a_rule(V311, &frame(0x30, &[0, 0]), fault);
}

// The fixed header.

#[test]
fn dup_at_qos_0() {
    breaks_a_rule(
        V5,
        &frame(0x38, &[sized("t"), vec![0]].concat()),
        Fault::DupAtQos0,
    );
    breaks_a_rule(V311, &frame(0x38, &sized("t")), Fault::DupAtQos0);
    // One that does not parse is malformed all the same.
    let fault = Fault::Truncated { field: "the topic" };
    malformed(V5, &frame(0x38, &[0, 2, b't']), fault);
}

#[test]
fn publish_qos_3() {
    for version in [V311, V5] {
        malformed(
            version,
            &frame(0x36, &[0, 1, b't', 0, 1]),
            Fault::PublishQos3,
        );
    }
}

#[test]
fn reserved_flags_of_every_packet() {
    for first in 0x20..=0xFF_u8 {
        let (kind, found) = (first >> 4, first & 0xF);
        if kind == 3 {
            continue;
        }
        let expected = if matches!(kind, 6 | 8 | 10) { 2 } else { 0 };
        if found == expected {
            continue;
        }
        // Refused from the first byte on, before a length has come.
        malformed(V5, &[first], Fault::FixedHeaderFlags { expected, found });
    }
    for flags in 1..=0xF {
        let mut bytes = connect(5, 2, &[], &[sized("c")]);
        bytes[0] |= flags;
        let error = refused(None, &bytes);
        assert_eq!(
            error.fault,
            Fault::FixedHeaderFlags {
                expected: 0,
                found: flags
            }
        );
        assert_eq!(error.reply(), Reply::ConnAckV5);
    }
}

#[test]
fn reserved_packet_types() {
    for version in [None, V311, V5] {
        let error = refused(version, &[0x00, 0]);
        assert_eq!(error.fault, Fault::ReservedPacketType { found: 0 });
        assert_eq!(error.packet, None);
    }
    malformed(V311, &[0xF0, 0], Fault::ReservedPacketType { found: 15 });
}

#[test]
fn a_length_that_is_not_minimal() {
    let fault = Fault::IntegerNotMinimal {
        field: "the Remaining Length",
    };
    for version in [V311, V5] {
        malformed(version, &[0xC0, 0x80, 0x00], fault.clone());
        malformed(version, &[0xC0, 0x80, 0x80, 0x80, 0x00], fault.clone());
    }
    let fault = Fault::IntegerNotMinimal {
        field: "the property length",
    };
    malformed(V5, &frame(0x30, &[0, 1, b't', 0x80, 0]), fault);
    let fault = Fault::IntegerNotMinimal {
        field: "Subscription Identifier",
    };
    malformed(V5, &subscribe(&[&[0x0B, 0x81, 0]], &[("t", 0)]), fault);
}

#[test]
fn a_length_that_goes_on_and_on() {
    let fault = Fault::IntegerTooLong {
        field: "the Remaining Length",
    };
    malformed(V5, &[0x30, 0xFF, 0xFF, 0xFF, 0xFF], fault.clone());
    malformed(V5, &[0x30, 0x80, 0x80, 0x80, 0x80, 0x01], fault);
}

#[test]
fn trailing_bytes() {
    for (version, bytes) in [
        (V5, &[0xC0, 1, 0][..]),
        (V311, &[0xC0, 1, 0]),
        (V311, &[0xE0, 1, 0]),
        (V311, &[0x40, 3, 0, 1, 0]),
        (V5, &[0x40, 5, 0, 1, 0, 0, 9]),
        (V5, &[0xE0, 3, 0, 0, 9]),
    ] {
        malformed(version, bytes, Fault::TrailingBytes { count: 1 });
    }
    connect_refused(
        2,
        &[sized("c"), vec![1, 2]],
        Fault::TrailingBytes { count: 2 },
        ReasonCode::MalformedPacket,
    );
}

// CONNECT.

#[test]
fn connect_reserved_flag() {
    let m = ReasonCode::MalformedPacket;
    connect_refused(3, &[sized("c")], Fault::ConnectReservedFlag, m);
}

#[test]
fn will_flags_without_a_will() {
    let m = ReasonCode::MalformedPacket;
    connect_refused(0x0A, &[sized("c")], Fault::WillQosWithoutWill, m);
    connect_refused(0x12, &[sized("c")], Fault::WillQosWithoutWill, m);
    let p = ReasonCode::ProtocolError;
    connect_refused(0x22, &[sized("c")], Fault::WillRetainWithoutWill, p);
}

#[test]
fn will_qos_3() {
    let m = ReasonCode::MalformedPacket;
    connect_refused(0x1E, &[sized("c")], Fault::WillQos3, m);
    connect_refused(0x1A, &[sized("c")], Fault::WillQos3, m);
}

#[test]
fn a_password_without_a_user_name() {
    let payload = [sized("c"), sized("secret")];
    let error = refused(None, &connect(4, 0x42, &[], &payload));
    assert_eq!(error.fault, Fault::PasswordWithoutUserName);
    assert_eq!(error.reply(), Reply::Nothing);
    let Packet::Connect(connect) = taken(None, &connect(5, 0x42, &[], &payload)) else {
        panic!("no CONNECT");
    };
    assert_eq!(
        (connect.user_name, connect.password.as_deref()),
        (None, Some(&b"secret"[..]))
    );
}

#[test]
fn authentication_data_without_a_method() {
    let error = refused(None, &connect(5, 2, &[&[0x16], &sized("x")], &[sized("c")]));
    assert_eq!(error.fault, Fault::AuthenticationDataWithoutMethod);
    assert_eq!(error.reason, ReasonCode::ProtocolError);
    // The order of the two does not matter.
    let wire: [&[u8]; 4] = [&[0x16], &sized("x"), &[0x15], &sized("m")];
    assert!(matches!(
        taken(None, &connect(5, 2, &wire, &[sized("c")])),
        Packet::Connect(connect) if connect.authentication_data.is_some()
    ));
}

#[test]
fn values_a_connect_cannot_have() {
    for (name, wire) in [
        ("Receive Maximum", &[0x21, 0, 0][..]),
        ("Maximum Packet Size", &[0x27, 0, 0, 0, 0]),
    ] {
        let error = refused(None, &connect(5, 2, &[wire], &[sized("c")]));
        assert_eq!(error.fault, Fault::PropertyValue { name, found: 0 });
        assert_eq!(error.reason, ReasonCode::ProtocolError);
    }
    for identifier in [0x17, 0x19] {
        let error = refused(None, &connect(5, 2, &[&[identifier, 2]], &[sized("c")]));
        assert!(matches!(error.fault, Fault::PropertyValue { found: 2, .. }));
    }
}

#[test]
fn a_property_twice_is_a_protocol_error() {
    let once: &[u8] = &[0x11, 0, 0, 0, 1];
    let error = refused(None, &connect(5, 2, &[once, once], &[sized("c")]));
    let name = "Session Expiry Interval";
    assert_eq!(error.fault, Fault::DuplicateProperty { name });
    assert_eq!(
        (error.reason, error.reply()),
        (ReasonCode::ProtocolError, Reply::ConnAckV5)
    );
    let once: &[u8] = &[1, 0];
    let name = "Payload Format Indicator";
    breaks_a_rule(
        V5,
        &publish(&[once, once]),
        Fault::DuplicateProperty { name },
    );
}

#[test]
fn a_property_that_is_none_or_not_of_this_packet() {
    for found in [0x00, 0x04, 0x7F] {
        malformed(
            V5,
            &publish(&[&[found]]),
            Fault::UnknownProperty {
                found: found.into(),
            },
        );
    }
    // An identifier is a Variable Byte Integer, and none has two bytes.
    malformed(
        V5,
        &publish(&[&[0x80, 1]]),
        Fault::UnknownProperty { found: 128 },
    );
    let name = "Will Delay Interval";
    malformed(
        V5,
        &publish(&[&[0x18, 0, 0, 0, 1]]),
        Fault::PropertyNotAllowed { name },
    );
    let name = "Topic Alias";
    let will = [
        sized("c"),
        properties(&[&[0x23, 0, 1]]),
        sized("w"),
        sized(""),
    ];
    let error = refused(None, &connect(5, 6, &[], &will));
    assert_eq!(error.fault, Fault::PropertyNotAllowed { name });
}

// PUBLISH.

#[test]
fn a_v5_publish_without_a_property_length() {
    let fault = Fault::Truncated {
        field: "the property length",
    };
    malformed(V5, &frame(0x30, &sized("t")), fault);
}

#[test]
fn a_topic_that_runs_past_the_packet() {
    // More bytes follow in the buffer; they belong to the next packet.
    let bytes = [frame(0x30, &[0, 9, b't', 0]), vec![0; 20]].concat();
    malformed(V5, &bytes, Fault::Truncated { field: "the topic" });
}

#[test]
fn properties_that_run_past_the_packet_or_end_inside_a_value() {
    let fault = Fault::Truncated {
        field: "the properties",
    };
    malformed(V5, &frame(0x30, &[0, 1, b't', 9, 1]), fault);
    let fault = Fault::Truncated {
        field: "Message Expiry Interval",
    };
    malformed(V5, &publish(&[&[2, 0, 0]]), fault);
}

#[test]
fn packet_identifier_0() {
    for (first, body) in [
        (0x32, &[0, 1, b't', 0, 0, 0][..]),
        (0x34, &[0, 1, b't', 0, 0, 0]),
        (0x40, &[0, 0]),
        (0x50, &[0, 0]),
        (0x62, &[0, 0]),
        (0x70, &[0, 0]),
        (0x82, &[0, 0, 0, 0, 1, b't', 0]),
        (0xA2, &[0, 0, 0, 0, 1, b't']),
    ] {
        breaks_a_rule(V5, &frame(first, body), Fault::PacketIdentifierZero);
    }
}

#[test]
fn topic_alias_0() {
    let bytes = publish(&[&[0x23, 0, 0]]);
    assert_refused(
        V5,
        &bytes,
        Fault::TopicAliasZero,
        ReasonCode::TopicAliasInvalid,
    );
}

#[test]
fn payload_format_2() {
    let name = "Payload Format Indicator";
    breaks_a_rule(
        V5,
        &publish(&[&[1, 2]]),
        Fault::PropertyValue { name, found: 2 },
    );
}

#[test]
fn a_subscription_identifier_from_a_client() {
    let name = "Subscription Identifier";
    breaks_a_rule(
        V5,
        &publish(&[&[0x0B, 1]]),
        Fault::PropertyFromWrongSide { name },
    );
    // From a server there may be any number, and 0 is none.
    let packet = taken_from(Role::Server, V5, &publish(&[&[0x0B, 1], &[0x0B, 0x80, 1]]));
    assert!(matches!(
        packet,
        Packet::Publish(publish) if publish.properties.subscription_identifiers == [1, 128]
    ));
    let error = refused_from(Role::Server, V5, &publish(&[&[0x0B, 0]]));
    assert_eq!(error.fault, Fault::PropertyValue { name, found: 0 });
}

// SUBSCRIBE and UNSUBSCRIBE.

#[test]
fn a_filter_that_is_none_is_left_to_the_suback() {
    let filters = [("a/#/b", 0), ("a+", 1), ("", 2), ("$share//x", 0)];
    let Packet::Subscribe(subscribe) = taken(V5, &subscribe(&[], &filters)) else {
        panic!("no SUBSCRIBE");
    };
    let kept: Vec<_> = subscribe
        .filters
        .iter()
        .map(|one| one.filter.as_str())
        .collect();
    assert_eq!(kept, ["a/#/b", "a+", "", "$share//x"]);
}

#[test]
fn no_local_on_a_shared_filter() {
    let fault = Fault::NoLocalOnSharedSubscription;
    breaks_a_rule(V5, &subscribe(&[], &[("$share/g/t", 0b100)]), fault);
    taken(
        V5,
        &subscribe(&[], &[("$shared/g/t", 0b100), ("$share/g/t", 0)]),
    );
}

#[test]
fn options_a_filter_cannot_have() {
    breaks_a_rule(V5, &subscribe(&[], &[("t", 3)]), Fault::SubscriptionQos3);
    breaks_a_rule(V5, &subscribe(&[], &[("t", 0x30)]), Fault::RetainHandling3);
    for found in [0x40, 0x80, 0xC1] {
        let fault = Fault::SubscriptionReservedBits { found };
        malformed(V5, &subscribe(&[], &[("t", found)]), fault);
    }
    // MQTT 3.1.1 has a QoS there and nothing else.
    for found in [0x04, 0x08, 0x10, 0x80] {
        let body = [vec![0, 1], sized("t"), vec![found]].concat();
        malformed(
            V311,
            &frame(0x82, &body),
            Fault::SubscriptionReservedBits { found },
        );
    }
    let body = [vec![0, 1], sized("t"), vec![3]].concat();
    breaks_a_rule(V311, &frame(0x82, &body), Fault::SubscriptionQos3);
}

#[test]
fn subscription_identifiers_a_subscribe_cannot_have() {
    let name = "Subscription Identifier";
    let twice = subscribe(&[&[0x0B, 1], &[0x0B, 1]], &[("t", 0)]);
    breaks_a_rule(V5, &twice, Fault::DuplicateProperty { name });
    let zero = subscribe(&[&[0x0B, 0]], &[("t", 0)]);
    breaks_a_rule(V5, &zero, Fault::PropertyValue { name, found: 0 });
}

#[test]
fn a_subscribe_or_unsubscribe_of_nothing() {
    let fault = Fault::Empty { field: "filter" };
    breaks_a_rule(V5, &subscribe(&[], &[]), fault.clone());
    breaks_a_rule(V311, &frame(0x82, &[0, 1]), fault.clone());
    breaks_a_rule(V5, &frame(0xA2, &[0, 1, 0]), fault.clone());
    breaks_a_rule(V311, &frame(0xA2, &[0, 1]), fault);
}

// Answers.

#[test]
fn reason_codes_a_packet_cannot_carry() {
    for (bytes, found) in [
        (&[0x40, 3, 0, 1, 0x92][..], 0x92),
        (&[0x50, 3, 0, 1, 0x01], 0x01),
        (&[0x62, 3, 0, 1, 0x80], 0x80),
        (&[0x70, 3, 0, 1, 0xFF], 0xFF),
        // Only a server says these.
        (&[0xE0, 1, 0x8E], 0x8E),
        (&[0xE0, 1, 0x87], 0x87),
        (&[0xF0, 0], 0x00),
    ] {
        breaks_a_rule(V5, bytes, Fault::ReasonCode { found });
    }
    let error = refused_from(Role::Server, V5, &[0xE0, 1, 0x04]);
    assert_eq!(error.fault, Fault::ReasonCode { found: 4 });
}

#[test]
fn what_only_the_other_side_says_in_a_disconnect() {
    let name = "Server Reference";
    let body = [vec![0], properties(&[&[0x1C], &sized("s")])].concat();
    breaks_a_rule(
        V5,
        &frame(0xE0, &body),
        Fault::PropertyFromWrongSide { name },
    );
    let body = [vec![0x8E], properties(&[&[0x11, 0, 0, 0, 0]])].concat();
    let error = refused_from(Role::Server, V5, &frame(0xE0, &body));
    let name = "Session Expiry Interval";
    assert_eq!(error.fault, Fault::PropertyFromWrongSide { name });
}

#[test]
fn an_auth_without_a_method() {
    breaks_a_rule(V5, &[0xF0, 2, 0x18, 0], Fault::AuthenticationMethodMissing);
}

#[test]
fn connacks_that_are_none() {
    let refused = |version, body: &[u8]| refused_from(Role::Server, version, &frame(0x20, body));
    assert_eq!(
        refused(V5, &[2, 0, 0]).fault,
        Fault::ConnAckFlags { found: 2 }
    );
    assert_eq!(
        refused(V311, &[1, 5]).fault,
        Fault::SessionPresentWithRefusal
    );
    assert_eq!(refused(V311, &[0, 6]).fault, Fault::ReturnCode { found: 6 });
    assert_eq!(
        refused(V5, &[0, 1, 0]).fault,
        Fault::ReasonCode { found: 1 }
    );
    let error = refused(V5, &[0, 0, 2, 0x24, 2]);
    assert_eq!(
        error.fault,
        Fault::PropertyValue {
            name: "Maximum QoS",
            found: 2
        }
    );
    assert_eq!(error.reply(), Reply::Nothing);
}

#[test]
fn subacks_that_are_none() {
    let refused = |version, body: &[u8]| refused_from(Role::Server, version, &frame(0x90, body));
    assert_eq!(
        refused(V311, &[0, 1, 0x87]).fault,
        Fault::ReturnCode { found: 0x87 }
    );
    assert_eq!(
        refused(V5, &[0, 1, 0, 3]).fault,
        Fault::ReasonCode { found: 3 }
    );
    assert_eq!(
        refused(V5, &[0, 1, 0]).fault,
        Fault::Empty {
            field: "reason code"
        }
    );
}

// Who may send what, and when.

#[test]
fn packets_only_a_server_sends() {
    for bytes in [
        frame(0x20, &[0, 0, 0]),
        frame(0x90, &[0, 1, 0, 0]),
        frame(0xB0, &[0, 1, 0, 0]),
        frame(0xD0, &[]),
    ] {
        breaks_a_rule(V5, &bytes, Fault::WrongDirection);
    }
    // Those that do not parse are malformed.
    malformed(V5, &frame(0xD0, &[1]), Fault::TrailingBytes { count: 1 });
    malformed(
        V5,
        &frame(0x20, &[0]),
        Fault::Truncated {
            field: "the reason code",
        },
    );
}

#[test]
fn packets_only_a_client_sends() {
    for bytes in [subscribe(&[], &[("t", 0)]), frame(0xC0, &[])] {
        assert_eq!(
            refused_from(Role::Server, V5, &bytes).fault,
            Fault::WrongDirection
        );
    }
    let connect = connect(5, 2, &[], &[sized("c")]);
    assert_eq!(
        refused_from(Role::Server, V5, &connect).fault,
        Fault::WrongDirection
    );
    // MQTT 3.1.1 has no DISCONNECT from a server.
    let error = refused_from(Role::Server, V311, &[0xE0, 0]);
    assert_eq!(error.fault, Fault::WrongDirection);
}

#[test]
fn a_first_packet_that_is_no_connect() {
    for first in [0x20, 0x30, 0x82, 0xC0, 0xE0, 0xF0] {
        let error = refused(None, &[first]);
        assert_eq!(
            (&error.fault, error.reply()),
            (&Fault::ConnectExpected, Reply::Nothing)
        );
        assert_eq!(error.reason, ReasonCode::ProtocolError);
    }
}

#[test]
fn a_second_connect() {
    let connect = connect(5, 2, &[], &[sized("c")]);
    breaks_a_rule(V5, &connect, Fault::SecondConnect);
    breaks_a_rule(V311, &connect, Fault::SecondConnect);
}

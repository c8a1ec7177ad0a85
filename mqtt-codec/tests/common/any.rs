//! Strategies for every packet that can be written.
#![allow(dead_code, clippy::unwrap_used)]

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use saguin_mqtt_codec::*;

use super::text;

pub fn any_text() -> impl Strategy<Value = Text> {
    prop_oneof![
        4 => "[a-z/]{0,12}",
        1 => vec(any::<char>(), 0..8).prop_map(String::from_iter),
        1 => (100..300_usize).prop_map(|len| "x".repeat(len)),
    ]
    .prop_map(|chars| Text::lossy(&chars))
}

pub fn any_topic() -> impl Strategy<Value = Text> {
    any_text().prop_map(|given| {
        let topic = given.as_str().replace(['#', '+'], "-");
        Text::lossy(if topic.is_empty() { "t" } else { &topic })
    })
}

pub fn any_binary() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

pub fn any_users() -> impl Strategy<Value = UserProperties> {
    vec((any_text(), any_text()), 0..4).prop_map(|pairs| {
        let mut builder = UserPropertiesBuilder::new();
        for (key, value) in &pairs {
            builder.push(key.as_str(), value.as_str()).unwrap();
        }
        builder.build()
    })
}

pub fn any_qos() -> impl Strategy<Value = QoS> {
    (0..3_u8).prop_map(|level| QoS::from_u8(level).unwrap())
}

pub fn any_id() -> impl Strategy<Value = u16> {
    1..=u16::MAX
}

pub fn any_identifier() -> impl Strategy<Value = u32> {
    prop_oneof![1..=200_u32, 1..=MAX_SUBSCRIPTION_IDENTIFIER]
}

/// A reason code that this packet may carry from this side.
pub fn any_reason(packet: PacketType, sender: Role) -> impl Strategy<Value = ReasonCode> {
    let allowed: Vec<_> = ReasonCode::ALL
        .iter()
        .copied()
        .filter(|reason| reason.is_allowed_in(packet, sender))
        .collect();
    prop::sample::select(allowed)
}

/// What a PUBLISH and a Will have in common.
pub fn any_message() -> impl Strategy<Value = PublishProperties> {
    (
        of(any::<bool>()),
        of(any::<u32>()),
        of(any_text()),
        of(any_topic()),
        of(any_binary()),
        any_users(),
    )
        .prop_map(
            |(format, expiry, content_type, response_topic, data, users)| PublishProperties {
                payload_is_utf8: format,
                expiry_seconds: expiry,
                content_type,
                response_topic,
                correlation_data: data,
                user_properties: users,
                ..PublishProperties::default()
            },
        )
}

pub fn any_will() -> impl Strategy<Value = Will> {
    (
        (any_topic(), any_binary(), any_qos()),
        (any::<bool>(), any::<u32>(), any_message()),
    )
        .prop_map(
            |((topic, payload, qos), (retain, delay_seconds, properties))| Will {
                topic,
                payload,
                qos,
                retain,
                delay_seconds,
                properties,
            },
        )
}

pub fn any_connect() -> impl Strategy<Value = Connect> {
    (
        (any_text(), any::<bool>(), any::<u16>(), any::<u32>()),
        (1..=u16::MAX, of(1..=u32::MAX), any::<u16>()),
        (any::<bool>(), any::<bool>()),
        of((any_text(), of(any_binary()))),
        (
            any_users(),
            of(any_will()),
            of(any_text()),
            of(any_binary()),
        ),
    )
        .prop_map(|(first, limits, request, authentication, last)| {
            let mut connect = Connect::new(Version::V5, first.0);
            (
                connect.clean_start,
                connect.keep_alive,
                connect.session_expiry,
            ) = (first.1, first.2, first.3);
            (connect.receive_maximum, connect.maximum_packet_size) = (limits.0, limits.1);
            connect.topic_alias_maximum = limits.2;
            connect.request_response_information = request.0;
            connect.request_problem_information = request.1;
            if let Some((method, data)) = authentication {
                connect.authentication_method = Some(method);
                connect.authentication_data = data;
            }
            (connect.user_properties, connect.will) = (last.0, last.1);
            (connect.user_name, connect.password) = (last.2, last.3);
            connect
        })
}

/// What is left of a CONNECT in MQTT 3.1.1.
pub fn without_v5(connect: Connect) -> Connect {
    Connect {
        clean_start: connect.clean_start,
        keep_alive: connect.keep_alive,
        will: connect.will.map(|will| Will {
            delay_seconds: 0,
            properties: PublishProperties::default(),
            ..will
        }),
        password: connect.password.filter(|_| connect.user_name.is_some()),
        user_name: connect.user_name,
        ..Connect::new(Version::V311, connect.client_id)
    }
}

pub fn any_connack() -> impl Strategy<Value = ConnAck> {
    (
        (any::<bool>(), any_reason(PacketType::ConnAck, Role::Server)),
        (of(any::<u32>()), of(1..=u16::MAX), of(1..=u32::MAX)),
        (of(any::<u16>()), of(any::<u16>())),
        vec(of(any::<bool>()), 5),
        vec(of(any_text()), 4),
        (of((any_text(), of(any_binary()))), any_users()),
    )
        .prop_map(|(first, limits, small, flags, texts, last)| ConnAck {
            session_present: first.0 && first.1 == ReasonCode::Success,
            reason: first.1,
            properties: ConnAckProperties {
                session_expiry: limits.0,
                receive_maximum: limits.1,
                maximum_packet_size: limits.2,
                topic_alias_maximum: small.0,
                server_keep_alive: small.1,
                maximum_qos: flags[0].map(|one| {
                    if one {
                        QoS::AtLeastOnce
                    } else {
                        QoS::AtMostOnce
                    }
                }),
                retain_available: flags[1],
                wildcard_subscription_available: flags[2],
                subscription_identifiers_available: flags[3],
                shared_subscription_available: flags[4],
                assigned_client_id: texts[0].clone(),
                reason_string: texts[1].clone(),
                response_information: texts[2].clone(),
                server_reference: texts[3].clone(),
                authentication_method: last.0.as_ref().map(|(method, _)| method.clone()),
                authentication_data: last.0.and_then(|(_, data)| data),
                user_properties: last.1,
            },
        })
}

pub fn any_publish() -> impl Strategy<Value = Publish> {
    (
        (any::<bool>(), any_qos(), any::<bool>(), any_id()),
        (of(any_topic()), any_message(), of(any_id())),
        vec(any_identifier(), 0..3),
        vec(any::<u8>(), 0..400),
    )
        .prop_map(|(flags, (topic, message, alias), identifiers, payload)| {
            let at_most_once = flags.1 == QoS::AtMostOnce;
            let empty_is_legal = alias.is_some();
            Publish {
                dup: flags.0 && !at_most_once,
                qos: flags.1,
                retain: flags.2,
                packet_id: if at_most_once { 0 } else { flags.3 },
                topic: match topic {
                    None if !empty_is_legal => text("t"),
                    topic => topic.unwrap_or_default(),
                },
                properties: PublishProperties {
                    topic_alias: alias,
                    subscription_identifiers: identifiers,
                    ..message
                },
                payload: payload.into(),
            }
        })
}

pub fn any_ack(packet: PacketType) -> impl Strategy<Value = Ack> {
    (
        any_id(),
        any_reason(packet, Role::Client),
        of(any_text()),
        any_users(),
    )
        .prop_map(|(packet_id, reason, reason_string, user_properties)| Ack {
            packet_id,
            reason,
            reason_string,
            user_properties,
        })
}

pub fn any_subscription() -> impl Strategy<Value = Subscription> {
    (any_text(), any_qos(), any::<bool>(), any::<bool>(), 0..3_u8).prop_map(
        |(filter, qos, no_local, retain_as_published, handling)| Subscription {
            no_local: no_local && !filter.as_str().starts_with("$share/"),
            filter,
            qos,
            retain_as_published,
            retain_handling: match handling {
                0 => RetainHandling::Always,
                1 => RetainHandling::NewSubscription,
                _ => RetainHandling::Never,
            },
        },
    )
}

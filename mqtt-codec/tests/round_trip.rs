//! Any packet that can be written is read back as it was, in both versions.
#![allow(clippy::unwrap_used)]

#[path = "common/any.rs"]
mod any;
mod common;

use any::*;
use bytes::BytesMut;
use common::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use saguin_mqtt_codec::*;

/// Writes, reads back, and has the length right.
fn there_and_back(sender: Role, version: Version, packet: &Packet) -> Result<(), TestCaseError> {
    let mut out = BytesMut::from(&b"before"[..]);
    encode(packet, version, &mut out).unwrap();
    let mut wire = out.split_off(6);
    prop_assert_eq!(&out[..], b"before");
    prop_assert_eq!(encoded_len(packet, version), Ok(wire.len()));
    let spoken = match packet {
        Packet::Connect(_) => None,
        _ => Some(version),
    };
    wire.extend_from_slice(b"behind");
    let back = decode(&mut wire, spoken, sender, &limits());
    prop_assert_eq!(back.as_ref(), Ok(&Some(packet.clone())));
    prop_assert_eq!(&wire[..], b"behind");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn connect(connect in any_connect()) {
        let old = without_v5(connect.clone());
        there_and_back(Role::Client, Version::V5, &Packet::Connect(connect.into()))?;
        there_and_back(Role::Client, Version::V311, &Packet::Connect(old.into()))?;
    }

    #[test]
    fn connack(connack in any_connack()) {
        there_and_back(Role::Server, Version::V5, &Packet::ConnAck(connack.clone().into()))?;
        // To MQTT 3.1.1 several reasons are one return code, so what comes back is that one's.
        if let Some(code) = connack.reason.return_code() {
            let old = ConnAck {
                reason: code.reason(),
                properties: ConnAckProperties::default(),
                ..connack
            };
            there_and_back(Role::Server, Version::V311, &Packet::ConnAck(old.into()))?;
        }
    }

    #[test]
    fn publish(publish in any_publish()) {
        there_and_back(Role::Server, Version::V5, &Packet::Publish(publish.clone()))?;
        let mut from_client = publish.clone();
        from_client.properties.subscription_identifiers.clear();
        there_and_back(Role::Client, Version::V5, &Packet::Publish(from_client))?;
        if !publish.topic.is_empty() {
            let old = Publish { properties: PublishProperties::default(), ..publish };
            there_and_back(Role::Client, Version::V311, &Packet::Publish(old.clone()))?;
            there_and_back(Role::Server, Version::V311, &Packet::Publish(old))?;
        }
    }

    #[test]
    fn acks(
        puback in any_ack(PacketType::PubAck),
        pubrec in any_ack(PacketType::PubRec),
        pubrel in any_ack(PacketType::PubRel),
        pubcomp in any_ack(PacketType::PubComp),
    ) {
        let bare = Ack::new(puback.packet_id, ReasonCode::Success);
        for packet in [
            Packet::PubAck(puback),
            Packet::PubRec(pubrec),
            Packet::PubRel(pubrel),
            Packet::PubComp(pubcomp),
        ] {
            there_and_back(Role::Client, Version::V5, &packet)?;
            there_and_back(Role::Server, Version::V5, &packet)?;
        }
        for wrap in [
            Packet::PubAck as fn(Ack) -> Packet,
            Packet::PubRec,
            Packet::PubRel,
            Packet::PubComp,
        ] {
            there_and_back(Role::Client, Version::V311, &wrap(bare.clone()))?;
        }
    }

    #[test]
    fn subscribe(
        packet_id in any_id(),
        subscription_identifier in of(any_identifier()),
        user_properties in any_users(),
        filters in vec(any_subscription(), 1..5),
    ) {
        let old = Subscribe {
            packet_id,
            filters: filters
                .iter()
                .map(|one| Subscription {
                    filter: one.filter.clone(),
                    qos: one.qos,
                    ..Subscription::default()
                })
                .collect(),
            ..Subscribe::default()
        };
        there_and_back(Role::Client, Version::V311, &Packet::Subscribe(old))?;
        let subscribe = Subscribe { packet_id, subscription_identifier, user_properties, filters };
        there_and_back(Role::Client, Version::V5, &Packet::Subscribe(subscribe))?;
    }

    #[test]
    fn suback(
        packet_id in any_id(),
        reason_string in of(any_text()),
        user_properties in any_users(),
        reasons in vec(any_reason(PacketType::SubAck, Role::Server), 1..5),
    ) {
        let merged = reasons
            .iter()
            .map(|reason| if reason.is_refusal() { ReasonCode::Unspecified } else { *reason })
            .collect();
        let old = Packet::SubAck(SubAck::new(packet_id, merged));
        there_and_back(Role::Server, Version::V311, &old)?;
        let suback = SubAck { packet_id, reason_string, user_properties, reasons };
        there_and_back(Role::Server, Version::V5, &Packet::SubAck(suback))?;
    }

    #[test]
    fn unsubscribe(
        packet_id in any_id(),
        user_properties in any_users(),
        filters in vec(any_text(), 1..5),
    ) {
        let old = Unsubscribe { packet_id, filters: filters.clone(), ..Unsubscribe::default() };
        there_and_back(Role::Client, Version::V311, &Packet::Unsubscribe(old))?;
        let unsubscribe = Unsubscribe { packet_id, user_properties, filters };
        there_and_back(Role::Client, Version::V5, &Packet::Unsubscribe(unsubscribe))?;
    }

    #[test]
    fn unsuback(
        packet_id in any_id(),
        reason_string in of(any_text()),
        user_properties in any_users(),
        reasons in vec(any_reason(PacketType::UnsubAck, Role::Server), 1..5),
    ) {
        let old = Packet::UnsubAck(UnsubAck::new(packet_id, vec![]));
        there_and_back(Role::Server, Version::V311, &old)?;
        let unsuback = UnsubAck { packet_id, reason_string, user_properties, reasons };
        there_and_back(Role::Server, Version::V5, &Packet::UnsubAck(unsuback))?;
    }

    #[test]
    fn disconnect(
        from_client in any_reason(PacketType::Disconnect, Role::Client),
        from_server in any_reason(PacketType::Disconnect, Role::Server),
        session_expiry in of(any::<u32>()),
        server_reference in of(any_text()),
        reason_string in of(any_text()),
        user_properties in any_users(),
    ) {
        let last = Disconnect { reason_string, user_properties, ..Disconnect::new(from_client) };
        let client = Disconnect { session_expiry, ..last.clone() };
        there_and_back(Role::Client, Version::V5, &Packet::Disconnect(client))?;
        let server = Disconnect { server_reference, reason: from_server, ..last };
        there_and_back(Role::Server, Version::V5, &Packet::Disconnect(server))?;
        let old = Packet::Disconnect(Disconnect::new(ReasonCode::Success));
        there_and_back(Role::Client, Version::V311, &old)?;
    }

    #[test]
    fn auth(
        reason in any_reason(PacketType::Auth, Role::Client),
        method in any_text(),
        authentication_data in of(any_binary()),
        reason_string in of(any_text()),
        user_properties in any_users(),
    ) {
        let auth = Auth {
            reason,
            authentication_method: Some(method),
            authentication_data,
            reason_string,
            user_properties,
        };
        there_and_back(Role::Client, Version::V5, &Packet::Auth(auth))?;
    }
}

#[test]
fn pings() {
    for version in [Version::V311, Version::V5] {
        there_and_back(Role::Client, version, &Packet::PingReq).unwrap();
        there_and_back(Role::Server, version, &Packet::PingResp).unwrap();
    }
}

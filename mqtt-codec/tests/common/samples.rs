//! Legal frames of every packet, as rich as they get.
#![allow(dead_code, clippy::unwrap_used)]

use bytes::Bytes;
use saguin_mqtt_codec::*;

use super::{encoded, text, users};

/// One frame: who sends it, in which version, and its bytes.
#[derive(Clone, Debug)]
pub struct Sample {
    pub sender: Role,
    pub version: Version,
    pub packet: Packet,
    pub bytes: Bytes,
}

impl Sample {
    /// The version as the decoder is told it.
    pub fn spoken(&self) -> Option<Version> {
        match self.packet {
            Packet::Connect(_) => None,
            _ => Some(self.version),
        }
    }
}

fn message() -> PublishProperties {
    PublishProperties {
        payload_is_utf8: Some(true),
        expiry_seconds: Some(300),
        content_type: Some(text("text/plain")),
        response_topic: Some(text("answers/here")),
        correlation_data: Some(Bytes::from_static(&[0, 1, 2, 255])),
        user_properties: users(&[("key", "value"), ("key", "übergröße"), ("", "")]),
        ..PublishProperties::default()
    }
}

fn connects() -> Vec<Packet> {
    let mut rich = Connect::new(Version::V5, text("client-1"));
    rich.keep_alive = 60;
    rich.session_expiry = 3600;
    rich.receive_maximum = 20;
    rich.maximum_packet_size = Some(65_536);
    rich.topic_alias_maximum = 4;
    rich.request_response_information = true;
    rich.request_problem_information = false;
    rich.authentication_method = Some(text("method"));
    rich.authentication_data = Some(Bytes::from_static(b"data"));
    rich.user_properties = users(&[("a", "b")]);
    rich.will = Some(Will {
        topic: text("wills/client-1"),
        payload: Bytes::from_static(b"gone"),
        qos: QoS::ExactlyOnce,
        retain: true,
        delay_seconds: 10,
        properties: message(),
    });
    rich.user_name = Some(text("user"));
    rich.password = Some(Bytes::from_static(b"secret"));
    let mut old = Connect::new(Version::V311, text("client-1"));
    old.will = rich.will.clone().map(|will| Will {
        delay_seconds: 0,
        properties: PublishProperties::default(),
        ..will
    });
    old.user_name = rich.user_name.clone();
    old.password = rich.password.clone();
    let bare = Connect::new(Version::V5, text(""));
    [rich, old, bare]
        .into_iter()
        .map(|connect| Packet::Connect(connect.into()))
        .collect()
}

fn connack() -> ConnAck {
    ConnAck {
        session_present: false,
        reason: ReasonCode::Success,
        properties: ConnAckProperties {
            session_expiry: Some(10),
            receive_maximum: Some(1024),
            maximum_qos: Some(QoS::AtLeastOnce),
            retain_available: Some(true),
            maximum_packet_size: Some(1 << 20),
            assigned_client_id: Some(text("assigned")),
            topic_alias_maximum: Some(16),
            reason_string: Some(text("a sentence")),
            wildcard_subscription_available: Some(true),
            subscription_identifiers_available: Some(true),
            shared_subscription_available: Some(false),
            server_keep_alive: Some(30),
            response_information: Some(text("info")),
            server_reference: Some(text("elsewhere")),
            authentication_method: Some(text("method")),
            authentication_data: Some(Bytes::from_static(b"data")),
            user_properties: users(&[("a", "b")]),
        },
    }
}

fn publishes() -> Vec<Publish> {
    let plain = Publish {
        topic: text("sensors/kitchen/temperature"),
        payload: Bytes::from_static(b"21.5"),
        ..Publish::default()
    };
    let rich = Publish {
        dup: true,
        qos: QoS::AtLeastOnce,
        retain: true,
        packet_id: 4711,
        properties: PublishProperties {
            topic_alias: Some(3),
            ..message()
        },
        ..plain.clone()
    };
    vec![plain, rich]
}

/// Samples of every packet, of both sides and both versions.
pub fn samples() -> Vec<Sample> {
    let mut all = Vec::new();
    let mut add = |sender, version, packet: Packet| {
        let bytes = encoded(&packet, version);
        all.push(Sample {
            sender,
            version,
            packet,
            bytes,
        });
    };
    use Role::{Client, Server};
    use Version::{V5, V311};
    for connect in connects() {
        let version = match &connect {
            Packet::Connect(connect) => connect.version,
            _ => V5,
        };
        add(Client, version, connect);
    }
    let bare = ConnAck {
        properties: ConnAckProperties::default(),
        session_present: true,
        ..connack()
    };
    add(Server, V311, Packet::ConnAck(bare.into()));
    add(Server, V5, Packet::ConnAck(connack().into()));
    for publish in publishes() {
        let old = Publish {
            properties: PublishProperties::default(),
            ..publish.clone()
        };
        add(Client, V311, Packet::Publish(old));
        add(Client, V5, Packet::Publish(publish.clone()));
        let mut identified = publish;
        identified.properties.subscription_identifiers = vec![1, 300];
        add(Server, V5, Packet::Publish(identified));
    }
    for wrap in [
        Packet::PubAck as fn(Ack) -> Packet,
        Packet::PubRec,
        Packet::PubRel,
        Packet::PubComp,
    ] {
        let mut ack = Ack::new(258, ReasonCode::Success);
        add(Client, V311, wrap(ack.clone()));
        add(Client, V5, wrap(ack.clone()));
        ack.reason_string = Some(text("a sentence"));
        ack.user_properties = users(&[("a", "b")]);
        add(Server, V5, wrap(ack));
    }
    let filters = ["a/+/#", "$share/g/b"].map(|filter| Subscription {
        filter: text(filter),
        qos: QoS::AtLeastOnce,
        ..Subscription::default()
    });
    let subscribe = Subscribe {
        packet_id: 9,
        filters: filters.to_vec(),
        ..Subscribe::default()
    };
    add(Client, V311, Packet::Subscribe(subscribe.clone()));
    let mut rich = subscribe;
    rich.subscription_identifier = Some(300);
    rich.user_properties = users(&[("a", "b")]);
    rich.filters[0].no_local = true;
    rich.filters[0].retain_as_published = true;
    rich.filters[1].retain_handling = RetainHandling::NewSubscription;
    add(Client, V5, Packet::Subscribe(rich));
    let reasons = vec![ReasonCode::GrantedQos1, ReasonCode::Unspecified];
    add(
        Server,
        V311,
        Packet::SubAck(SubAck::new(9, reasons.clone())),
    );
    add(
        Server,
        V5,
        Packet::SubAck(SubAck {
            reason_string: Some(text("a sentence")),
            user_properties: users(&[("a", "b")]),
            ..SubAck::new(9, reasons)
        }),
    );
    let unsubscribe = Unsubscribe {
        packet_id: 10,
        filters: vec![text("a/+/#"), text("b")],
        ..Unsubscribe::default()
    };
    add(Client, V311, Packet::Unsubscribe(unsubscribe.clone()));
    add(
        Client,
        V5,
        Packet::Unsubscribe(Unsubscribe {
            user_properties: users(&[("a", "b")]),
            ..unsubscribe
        }),
    );
    add(Server, V311, Packet::UnsubAck(UnsubAck::new(10, vec![])));
    add(
        Server,
        V5,
        Packet::UnsubAck(UnsubAck {
            reason_string: Some(text("a sentence")),
            user_properties: users(&[("a", "b")]),
            ..UnsubAck::new(
                10,
                vec![ReasonCode::Success, ReasonCode::NoSubscriptionExisted],
            )
        }),
    );
    for version in [V311, V5] {
        add(Client, version, Packet::PingReq);
        add(Server, version, Packet::PingResp);
        add(
            Client,
            version,
            Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
        );
    }
    add(
        Client,
        V5,
        Packet::Disconnect(Disconnect {
            session_expiry: Some(60),
            reason_string: Some(text("a sentence")),
            user_properties: users(&[("a", "b")]),
            ..Disconnect::new(ReasonCode::DisconnectWithWill)
        }),
    );
    add(
        Server,
        V5,
        Packet::Disconnect(Disconnect {
            server_reference: Some(text("elsewhere")),
            ..Disconnect::new(ReasonCode::ServerMoved)
        }),
    );
    add(
        Client,
        V5,
        Packet::Auth(Auth {
            reason: ReasonCode::ContinueAuthentication,
            authentication_method: Some(text("method")),
            authentication_data: Some(Bytes::from_static(b"data")),
            reason_string: Some(text("a sentence")),
            user_properties: users(&[("a", "b")]),
        }),
    );
    all
}

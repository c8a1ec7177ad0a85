//! What a publish is answered, and when.

use super::*;
use crate::broker::Burst;
use crate::storage::{Operation, StoreError};

#[test]
fn a_channel_publish_is_acknowledged_only_once_it_is_stored() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client
        .connection
        .publish(publish("events/1", "x"), world.now());
    assert_eq!(client.take(), []);
    world.settle();
    assert!(matches!(
        client.take()[..],
        [Outgoing::Puback {
            packet_id: 9,
            reason: Reason::Success,
            ..
        }]
    ));
}

#[test]
fn answers_keep_the_order_of_their_publishes_over_different_paths() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let with_id = |packet_id, topic| Publish {
        packet_id,
        ..publish(topic, "x")
    };
    // Stored, then answered at once, then refused at once.
    for (id, topic) in [(5, "events/1"), (3, "broadcast"), (4, "$SYS/x")] {
        client.connection.publish(with_id(id, topic), world.now());
    }
    assert_eq!(client.take(), []);
    world.settle();
    let ids: Vec<u16> = client
        .take()
        .into_iter()
        .map(|packet| match packet {
            Outgoing::Puback { packet_id, .. } => packet_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [5, 3, 4]);
}

#[test]
fn a_publish_is_refused_with_the_reason_of_its_rule() {
    let world = World::with(Options {
        settings: Settings {
            max_header_count: 1,
            max_header_bytes: 10,
            ..Settings::default()
        },
        ..Options::default()
    });
    let client = world.connect(connect("a"));
    for (topic, reason) in [
        ("$SYS/x", Reason::NotAuthorized),
        ("jobs/__dlq/x", Reason::NotAuthorized),
        ("$saguin/other", Reason::TopicNameInvalid),
        ("$saguin/queue/events/response", Reason::TopicNameInvalid),
        ("$share/g/x", Reason::TopicNameInvalid),
    ] {
        assert_eq!(client.publish(topic, "x"), reason, "{topic}");
    }
    let deep = "a/".repeat(200);
    assert_eq!(client.publish(&deep, "x"), Reason::TopicNameInvalid);
    let with = |properties| Publish {
        properties,
        ..publish("events/1", "x")
    };
    let headers = |user_properties| PublishProperties {
        user_properties,
        ..PublishProperties::default()
    };
    let many = headers(pairs(&[("a", "1"), ("b", "2")]));
    assert_eq!(client.send(with(many)), Reason::QuotaExceeded);
    let long = headers(pairs(&[("a", "0123456789")]));
    assert_eq!(client.send(with(long)), Reason::QuotaExceeded);
    let not_utf8 = Publish {
        payload: Bytes::from_static(&[0xff]),
        properties: PublishProperties {
            payload_is_utf8: Some(true),
            ..PublishProperties::default()
        },
        ..publish("events/1", "")
    };
    assert_eq!(client.send(not_utf8), Reason::PayloadFormatInvalid);
    assert_eq!(world.store.stored().len(), 0);
    let refused = world.broker.counters().refused();
    assert_eq!(refused.values().sum::<u64>(), 9);
}

#[test]
fn a_full_channel_and_a_failed_store_are_told_apart() {
    let world = World::new();
    let client = world.connect(connect("a"));
    world.store.set_max_bytes(EVENTS, 1);
    assert_eq!(client.publish("events/1", "x"), Reason::QuotaExceeded);
    world
        .store
        .refuse_when(|_| Some(StoreError::Failed("broken".into())));
    assert_eq!(
        client.publish("state/1", "x"),
        Reason::ImplementationSpecific
    );
}

#[test]
fn mqtt_311_is_never_told_that_a_refused_publish_was_taken() {
    let world = World::new();
    let client = world.connect(v311("a"));
    client
        .connection
        .publish(publish("$SYS/x", "x"), world.now());
    let out = client.take();
    assert!(matches!(out[..], [Outgoing::Disconnect(_)]), "{out:?}");
}

#[test]
fn nothing_is_lost_by_retain_on_a_channel() {
    let world = World::new();
    let client = world.connect(connect("b"));
    let retained = |topic| Publish {
        retain: true,
        ..publish(topic, "x")
    };
    assert_eq!(client.send(retained("events/1")), Reason::Success);
    assert_eq!(client.send(retained("jobs/1")), Reason::Success);
}

#[test]
fn the_publishers_own_id_is_kept_and_its_other_labels_are_not() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.subscribe("events/#");
    client.subscribe("live");
    let id = "018bcfe5-6800-7abc-8def-0123456789ab";
    let labelled = |topic| Publish {
        properties: PublishProperties {
            user_properties: pairs(&[("saguin-id", id), ("k", "v"), ("saguin-offset", "77")]),
            ..PublishProperties::default()
        },
        qos: 0,
        ..publish(topic, "x")
    };
    client.connection.publish(labelled("events/1"), world.now());
    world.settle();
    let messages = client.messages();
    assert_eq!(property(&messages[0], "saguin-id").as_deref(), Some(id));
    assert_eq!(
        property(&messages[0], "saguin-offset").as_deref(),
        Some("1")
    );
    assert_eq!(property(&messages[0], "k").as_deref(), Some("v"));

    // Broadcast carries none of them, the publisher's id included.
    client.connection.publish(labelled("live"), world.now());
    let messages = client.messages();
    assert_eq!(property(&messages[0], "saguin-id"), None);
    assert_eq!(property(&messages[0], "k").as_deref(), Some("v"));
}

#[test]
fn broadcast_reaches_those_who_are_there_at_the_lower_qos() {
    let world = World::new();
    let (a, b) = (world.connect(connect("a")), world.connect(connect("b")));
    a.subscribe("x/+");
    b.subscribe_as(SubscribeRequest {
        qos: 0,
        ..request("x/#")
    });
    assert_eq!(a.publish("y", "nobody"), Reason::Success);
    a.connection.publish(publish("x/1", "both"), world.now());
    let at = |client: &Client| {
        let messages = client.messages();
        messages
            .iter()
            .map(|m| (payload(m), m.qos))
            .collect::<Vec<_>>()
    };
    assert_eq!(at(&a), [("both".to_owned(), 1)]);
    assert_eq!(at(&b), [("both".to_owned(), 0)]);
}

#[test]
fn overlapping_subscriptions_make_one_broadcast_with_every_identifier() {
    let world = World::new();
    let client = world.connect(connect("a"));
    for (identifier, filter, qos) in [(1, "x/+", 0), (2, "x/#", 1)] {
        let subscribe = Subscribe {
            packet_id: 1,
            identifier: Some(identifier),
            filters: vec![SubscribeRequest {
                qos,
                ..request(filter)
            }],
            user_properties: UserPairs::default(),
        };
        client.connection.subscribe(&subscribe);
    }
    client.take();
    client.connection.publish(publish("x/1", "m"), world.now());
    let messages = client.messages();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].qos, 1);
    assert_eq!(
        messages[0].properties,
        Bytes::from_static(&[0x0B, 1, 0x0B, 2])
    );
}

#[test]
fn no_local_withholds_what_a_client_said_itself() {
    let world = World::new();
    let (a, b) = (world.connect(connect("a")), world.connect(connect("b")));
    for filter in ["x", "events/#"] {
        a.subscribe_as(SubscribeRequest {
            no_local: true,
            ..request(filter)
        });
    }
    for client in [&a, &b] {
        client.connection.publish(publish("x", "live"), world.now());
        client.publish("events/1", "kept");
    }
    assert_eq!(a.payloads(), ["live", "kept"]);
}

#[test]
fn an_expiry_counts_down_and_removes_only_broadcast() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.subscribe("x");
    client.subscribe("events/#");
    let expiring = |topic, seconds| Publish {
        qos: 0,
        properties: PublishProperties {
            expiry_seconds: Some(seconds),
            ..PublishProperties::default()
        },
        ..publish(topic, topic)
    };
    for (topic, seconds) in [("x", 10), ("x", 3), ("events/1", 3)] {
        client
            .connection
            .publish(expiring(topic, seconds), world.now());
    }
    world.settle();
    world.pass(Duration::from_secs(4));
    let messages = client.messages();
    let topics: Vec<String> = messages.iter().map(payload).collect();
    assert_eq!(topics, ["x", "events/1"]);
    assert_eq!(messages[0].properties, Bytes::from_static(&[2, 0, 0, 0, 6]));
    // A record outlives its expiry; what is over is left out (invariant 2).
    assert!(!messages[1].properties.starts_with(&[2]));
}

#[test]
fn a_burst_is_stored_as_so_many_publishes_and_each_is_answered_for_itself() {
    let world = World::new();
    let reader = world.connect(connect("reader"));
    for filter in ["events/#", "state/#"] {
        assert_eq!(reader.subscribe(filter), SubackReason::Granted(1));
    }
    world.store.refuse_when(|operation| match operation {
        Operation::Append { message, .. } if message.payload == "refused" => {
            Some(StoreError::ProviderFull)
        }
        _ => None,
    });
    let client = world.connect(connect("a"));
    let mut burst = Burst::default();
    let sent = [
        (1, 1, "events/1", "one"),
        (2, 1, "events/1", "refused"),
        (3, 1, "$SYS/x", "not to be published"),
        (4, 1, "state/1", "two"),
        (0, 0, "events/2", "three"),
        (5, 1, "broadcast", "four"),
        (6, 1, "events/2", "five"),
    ];
    for (packet_id, qos, topic, payload) in sent {
        let publish = Publish {
            packet_id,
            qos,
            ..publish(topic, payload)
        };
        let flow = client
            .connection
            .publish_in(&mut burst, publish, world.now());
        assert_eq!(flow, Flow::Continue);
    }
    world.settle();
    assert_eq!(
        client.take(),
        [],
        "nothing is stored before the burst is handed over"
    );
    client.connection.flush(&mut burst);
    world.settle();
    let answers: Vec<_> = client
        .take()
        .into_iter()
        .map(|packet| match packet {
            Outgoing::Puback {
                packet_id, reason, ..
            } => (packet_id, reason),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        answers,
        [
            (1, Reason::Success),
            (2, Reason::QuotaExceeded),
            (3, Reason::NotAuthorized),
            (4, Reason::Success),
            (5, Reason::Success),
            (6, Reason::Success),
        ]
    );
    let mut seen = reader.payloads();
    seen.sort_unstable();
    assert_eq!(seen, ["five", "one", "three", "two"]);
}

#[test]
fn a_burst_has_a_bound() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let mut burst = Burst::default();
    for _ in 0..100 {
        client
            .connection
            .publish_in(&mut burst, publish("events/1", "x"), world.now());
    }
    world.settle();
    assert_eq!(client.take().len(), 64);
    client.connection.flush(&mut burst);
    world.settle();
    assert_eq!(client.take().len(), 36);
    let large = "x".repeat(64 * 1024);
    client
        .connection
        .publish_in(&mut burst, publish("events/1", &large), world.now());
    world.settle();
    assert_eq!(client.take().len(), 1);
}

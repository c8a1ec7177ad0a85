//! What is legal and refused, each with its code, and what the broker promises in its CONNACK.

mod common;

use bytes::Bytes;
use common::{Broker, Hello, Setup, hello, hello_v311, property, return_code, text};
use saguin_mqtt_codec::{
    Publish, PublishProperties, QoS, ReasonCode, Subscribe, Subscription, UserProperties,
    UserPropertiesBuilder, Will,
};

use ReasonCode as R;

fn pairs(pairs: &[(&str, &str)]) -> UserProperties {
    let mut builder = UserPropertiesBuilder::new();
    for (key, value) in pairs {
        builder.push(key, value).expect("a pair");
    }
    builder.build()
}

fn with_pairs(of: &[(&str, &str)]) -> PublishProperties {
    PublishProperties {
        user_properties: pairs(of),
        ..PublishProperties::default()
    }
}

#[test]
fn the_connack_says_what_is_served() {
    let broker = Broker::with(&Setup {
        limits: "max_message_size: 64KiB, max_session_expiry: 1h",
        ..Setup::default()
    });
    let (_client, connack) = hello("")
        .set(|connect| connect.session_expiry = 7200)
        .answer(&broker);
    let said = &connack.properties;
    assert!(!connack.session_present);
    assert_eq!(said.maximum_qos, None);
    assert_eq!(said.retain_available, Some(true));
    assert_eq!(said.shared_subscription_available, Some(true));
    assert_eq!(said.topic_alias_maximum, Some(16));
    assert_eq!(said.receive_maximum, Some(1024));
    assert_eq!(said.maximum_packet_size, Some(64 * 1024));
    assert_eq!(said.session_expiry, Some(3600), "capped, and said so");
    assert_eq!(said.server_keep_alive, None);
    let assigned = said.assigned_client_id.as_ref().expect("an identifier");
    assert!(!assigned.is_empty());
    let (_other, connack) = hello("").answer(&broker);
    assert_ne!(
        connack.properties.assigned_client_id.as_ref(),
        Some(assigned)
    );
    assert_eq!(connack.properties.session_expiry, None);
}

#[test]
fn a_connect_is_refused_with_its_code() {
    let broker = Broker::with(&Setup {
        limits: "max_client_id_length: 23, max_topic_length: 100, max_topic_levels: 10, \
                 max_message_size: 2KiB",
        ..Setup::default()
    });
    let both = |what: &str, build: &dyn Fn(Hello) -> Hello, v5: ReasonCode, v311: u8| {
        assert_eq!(build(hello("c")).refused(&broker), v5, "{what}");
        let refused = build(hello_v311("c")).refused(&broker);
        assert_eq!(return_code(refused), v311, "{what}, 3.1.1");
    };
    let id = |id: &'static str| move |hello: Hello| hello.set(|c| c.client_id = text(id));
    both(
        "24 bytes",
        &id("abcdefghijklmnopqrstuvwx"),
        R::ClientIdNotValid,
        2,
    );
    both("a control character", &id("a\nb"), R::ClientIdNotValid, 2);
    both(
        "empty, and a session",
        &|hello| id("")(hello).set(|c| c.clean_start = false),
        R::ClientIdNotValid,
        2,
    );
    let will = |topic: String, qos, retain| {
        move |hello: Hello| {
            hello.set(|c| {
                c.will = Some(Will {
                    topic: text(&topic),
                    qos,
                    retain,
                    ..Will::default()
                });
            })
        }
    };
    let plain = |topic: &str| will(topic.to_owned(), QoS::AtMostOnce, false);
    for topic in [
        "$SYS/x",
        "$saguin/x",
        "$share/g/x",
        "jobs/__dlq/x",
        "$saguin/queue/jobs/response",
    ] {
        both(topic, &plain(topic), R::TopicNameInvalid, 5);
    }
    both(
        "a long Will",
        &plain(&"x".repeat(101)),
        R::TopicNameInvalid,
        5,
    );
    both(
        "a deep Will",
        &plain(&"/".repeat(10)),
        R::TopicNameInvalid,
        5,
    );

    let with_will = |change: fn(&mut Will)| {
        hello("c").set(|c| {
            let mut will = Will {
                topic: text("t"),
                ..Will::default()
            };
            change(&mut will);
            c.will = Some(will);
        })
    };
    let too_many = with_will(|will| {
        will.properties.user_properties = pairs(&[("a", "b"); 33]);
    });
    assert_eq!(too_many.refused(&broker), R::QuotaExceeded);
    let not_utf8 = with_will(|will| {
        will.properties.payload_is_utf8 = Some(true);
        will.payload = Bytes::from_static(b"\xFF");
    });
    assert_eq!(not_utf8.refused(&broker), R::PayloadFormatInvalid);
    let too_large = with_will(|will| will.payload = vec![0; 3000].into());
    assert_eq!(too_large.refused(&broker), R::PacketTooLarge);
    let label = hello("c").set(|c| c.user_properties = pairs(&[("saguin-x", "1")]));
    assert_eq!(label.refused(&broker), R::ImplementationSpecific);
    let method = hello("c").set(|c| c.authentication_method = Some(text("SCRAM")));
    assert_eq!(method.refused(&broker), R::BadAuthenticationMethod);
    // What was refused left nothing behind.
    assert!(!hello("c").durable().connect(&broker).session_present);
}

#[test]
fn more_connections_than_there_are_slots_are_refused() {
    let broker = Broker::with(&Setup {
        limits: "max_connections: 2",
        ..Setup::default()
    });
    let first = hello("one").connect(&broker);
    let mut second = hello("two").connect(&broker);
    assert_eq!(hello("three").refused(&broker), R::ServerBusy);
    let refused = hello_v311("three").refused(&broker);
    assert_eq!(return_code(refused), 3);
    second.ping();
    first.disconnect();
    hello("three").connect(&broker).ping();
}

#[test]
fn mqtt_5_alone_may_be_admitted() {
    let broker = Broker::start();
    let yaml = std::fs::read_to_string(broker.config()).expect("the configuration");
    let yaml = yaml.replace("  mqtt:\n", "  mqtt:\n    min_protocol_version: \"5\"\n");
    std::fs::write(broker.config(), yaml).expect("the configuration");
    let mut broker = broker;
    broker.restart();
    assert_eq!(return_code(hello_v311("old").refused(&broker)), 1);
    hello("new").connect(&broker).ping();
}

#[test]
fn a_refused_client_may_ask_not_to_be_told_why() {
    let broker = Broker::start();
    let (_, connack) = hello("c")
        .set(|c| {
            c.request_problem_information = false;
            c.authentication_method = Some(text("x"));
        })
        .answer(&broker);
    assert_eq!(connack.reason, R::BadAuthenticationMethod);
    assert_eq!(connack.properties.reason_string, None);
}

/// Publishes that are refused: topic, properties, payload, code.
fn refused_publishes() -> Vec<(String, PublishProperties, Bytes, ReasonCode)> {
    let plain = |topic: &str, reason| {
        (
            topic.to_owned(),
            PublishProperties::default(),
            Bytes::new(),
            reason,
        )
    };
    let mut table = vec![
        plain("$SYS", R::NotAuthorized),
        plain("$SYS/broker", R::NotAuthorized),
        plain("jobs/__dlq/a", R::NotAuthorized),
        plain("$saguin", R::TopicNameInvalid),
        plain("$saguin/none", R::TopicNameInvalid),
        plain("$saguin/queue/jobs", R::TopicNameInvalid),
        plain("$saguin/queue/events/response", R::TopicNameInvalid),
        plain("$share/g/a", R::TopicNameInvalid),
        plain(&"x".repeat(101), R::TopicNameInvalid),
        plain(&"/".repeat(10), R::TopicNameInvalid),
        plain("$saguin/consumer/state/seek", R::TopicNameInvalid),
        plain("$saguin/consumer/jobs/seek", R::TopicNameInvalid),
        plain("$saguin/consumer/none/seek", R::TopicNameInvalid),
        plain("$saguin/consumer/events/seek/reply", R::TopicNameInvalid),
        plain("$saguin/kv/get", R::ImplementationSpecific),
        plain("$saguin/kv/other", R::TopicNameInvalid),
        plain("$saguin/catalogue/events", R::ImplementationSpecific),
        plain("$saguin/catalogue/none", R::ImplementationSpecific),
        plain("$saguin/catalogue", R::TopicNameInvalid),
        plain("$saguin/sessions/disconnect", R::ImplementationSpecific),
        plain("$saguin/sessions", R::TopicNameInvalid),
    ];
    for topic in ["events/a", "state/a", "jobs/a", "talk/a"] {
        let not_utf8 = PublishProperties {
            payload_is_utf8: Some(true),
            ..PublishProperties::default()
        };
        let payload = Bytes::from_static(b"\xFF");
        table.push((topic.to_owned(), not_utf8, payload, R::PayloadFormatInvalid));
        let many = with_pairs(&[("a", "b"); 4]);
        table.push((topic.to_owned(), many, Bytes::new(), R::QuotaExceeded));
        let long = "x".repeat(2000);
        let large = with_pairs(&[("a", &long)]);
        table.push((topic.to_owned(), large, Bytes::new(), R::QuotaExceeded));
    }
    table
}

#[test]
fn a_publish_is_refused_with_its_code_and_reaches_nobody() {
    let broker = Broker::with(&Setup {
        limits: "max_topic_length: 100, max_topic_levels: 10, max_header_count: 3, \
                 max_header_bytes: 1KiB",
        ..Setup::default()
    });
    let mut listener = hello("listener").connect(&broker);
    listener.follow("#");
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    let mut publisher = hello("publisher").connect(&broker);
    for (topic, properties, payload, reason) in refused_publishes() {
        let found = publisher.publish_with(&topic, payload.clone(), properties.clone());
        assert_eq!(found, reason, "{topic}");
        // At QoS 0 it is dropped, with nobody to be told.
        publisher.send_publish(Publish {
            topic: text(&topic),
            payload,
            properties,
            ..Publish::default()
        });
        publisher.ping();
    }
    assert_eq!(publisher.publish("talk/a", "the first"), R::Success);
    assert_eq!(publisher.publish("events/a", "an event"), R::Success);
    let mut heard = [listener.take().payload, listener.take().payload];
    heard.sort();
    assert_eq!(heard, ["an event", "the first"]);
    worker.expect_nothing();
}

#[test]
fn a_refused_publish_of_mqtt_3_1_1_closes_and_is_not_acknowledged() {
    let broker = Broker::with(&Setup {
        limits: "max_topic_length: 100, max_topic_levels: 10",
        ..Setup::default()
    });
    let bare = refused_publishes()
        .into_iter()
        .filter(|(_, properties, ..)| *properties == PublishProperties::default());
    for (topic, ..) in bare {
        let mut publisher = hello_v311("old").connect(&broker);
        publisher.tell(&topic, "dropped");
        publisher.ping();
        publisher.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            topic: text(&topic),
            ..Publish::default()
        });
        publisher.expect_closed();
    }
}

#[test]
fn a_filter_is_refused_with_its_code() {
    let broker = Broker::with(&Setup {
        limits: "max_topic_length: 100, max_topic_levels: 10",
        ..Setup::default()
    });
    let long = "x".repeat(101);
    let deep = "/".repeat(10);
    let table = [
        ("a/#/b", R::TopicFilterInvalid),
        ("a+", R::TopicFilterInvalid),
        ("", R::TopicFilterInvalid),
        (long.as_str(), R::TopicFilterInvalid),
        (deep.as_str(), R::TopicFilterInvalid),
        ("jobs/#", R::TopicFilterInvalid),
        ("jobs/a", R::TopicFilterInvalid),
        ("jobs/+/x", R::TopicFilterInvalid),
        ("$saguin/queue/none", R::TopicFilterInvalid),
        ("$saguin/queue/events", R::TopicFilterInvalid),
        ("$saguin/queue/jobs__dlq", R::TopicFilterInvalid),
        ("$saguin/queue/jobs/x", R::TopicFilterInvalid),
        ("$saguin/queue/+", R::TopicFilterInvalid),
        ("$saguin/queue/#", R::TopicFilterInvalid),
        ("$saguin/queue/jobs/#", R::TopicFilterInvalid),
        ("$saguin/consumer/state/seek/reply", R::TopicFilterInvalid),
        ("$saguin/consumer/jobs/seek/reply", R::TopicFilterInvalid),
        ("$saguin/consumer/none/seek/reply", R::TopicFilterInvalid),
        ("$saguin/consumer/events/seek", R::NotAuthorized),
        ("$saguin/kv/get", R::NotAuthorized),
        ("$SHARE/g/a", R::TopicFilterInvalid),
        ("$share/g", R::TopicFilterInvalid),
        ("$share/+/a", R::TopicFilterInvalid),
        ("$share/g/$share/h/a", R::TopicFilterInvalid),
        ("$SYS/#", R::NotAuthorized),
        ("$SYS", R::NotAuthorized),
        ("$saguin", R::NotAuthorized),
        ("$saguin/#", R::NotAuthorized),
        ("$saguin/other", R::NotAuthorized),
        ("$share/g/$saguin/queue/jobs", R::NotAuthorized),
    ];
    let mut client = hello("new").connect(&broker);
    for (filter, reason) in table {
        assert_eq!(
            client.subscribe(filter, QoS::AtLeastOnce),
            reason,
            "{filter}"
        );
    }
    let at_most_once = client.subscribe("$saguin/queue/jobs", QoS::AtMostOnce);
    assert_eq!(at_most_once, R::ImplementationSpecific);
    let subscription = |filter: &str, no_local| Subscription {
        filter: text(filter),
        qos: QoS::AtLeastOnce,
        no_local,
        ..Subscription::default()
    };
    // Each filter by itself: the refused ones do not take the others with them.
    let all = client.subscribe_all(vec![
        subscription("$saguin/queue/jobs", true),
        subscription("events/#", false),
        subscription("a/#/b", false),
        subscription("$saguin/queue/jobs", false),
    ]);
    assert_eq!(
        all.reasons,
        [
            R::TopicFilterInvalid,
            R::GrantedQos1,
            R::TopicFilterInvalid,
            R::GrantedQos1
        ]
    );
    assert!(all.reason_string.is_some());
    for label in ["saguin-x", "saguin-deletion"] {
        let labelled = client.send_subscribe(Subscribe {
            user_properties: pairs(&[(label, "topic_hash(2, 0)")]),
            filters: vec![subscription("talk/a", false), subscription("a/#/b", false)],
            ..Subscribe::default()
        });
        assert_eq!(labelled.reasons, [R::ImplementationSpecific; 2], "{label}");
    }
    assert_eq!(client.subscribe("talk/#", QoS::ExactlyOnce), R::GrantedQos2);
    assert_eq!(
        client.subscribe("$saguin/queue/jobs", QoS::ExactlyOnce),
        R::GrantedQos1
    );

    let mut old = hello_v311("old").connect(&broker);
    for filter in [
        "jobs/#",
        "$saguin/queue/jobs",
        "$saguin/queue/none",
        "$SYS/#",
        "$share/g/a",
        long.as_str(),
    ] {
        assert_eq!(
            old.subscribe(filter, QoS::AtLeastOnce),
            R::Unspecified,
            "{filter}"
        );
    }
    assert_eq!(old.subscribe("events/#", QoS::AtLeastOnce), R::GrantedQos1);
}

#[test]
fn a_client_has_a_bounded_number_of_subscriptions() {
    let broker = Broker::with(&Setup {
        limits: "max_subscriptions: 2",
        ..Setup::default()
    });
    let mut client = hello("client").connect(&broker);
    client.follow("a");
    client.follow("b");
    assert_eq!(client.subscribe("c", QoS::AtLeastOnce), R::QuotaExceeded);
    client.follow("a");
    assert_eq!(client.unsubscribe("a", None).reasons, [R::Success]);
    client.follow("c");
    hello("another").connect(&broker).follow("a");
}

#[test]
fn an_unsubscribe_says_what_it_did_and_did_not_read() {
    let broker = Broker::start();
    let mut client = hello("client").connect(&broker);
    client.follow("talk/#");
    let none = client.unsubscribe("other", None);
    assert_eq!(none.reasons, [R::NoSubscriptionExisted]);
    let done = client.unsubscribe("talk/#", Some(("saguin-filter", "x")));
    assert_eq!(done.reasons, [R::Success]);
    assert_eq!(
        done.user_properties.get("saguin-unread"),
        Some("saguin-filter")
    );
    assert_eq!(client.publish("talk/a", "unheard"), R::Success);
    client.expect_nothing();
}

#[test]
fn what_a_publisher_sends_is_delivered_but_for_the_brokers_labels() {
    let broker = Broker::start();
    let mut listener = hello("listener").connect(&broker);
    listener.follow("events/#");
    listener.follow("talk/#");
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let sent = PublishProperties {
        payload_is_utf8: Some(true),
        expiry_seconds: Some(3600),
        response_topic: Some(text("talk/reply")),
        correlation_data: Some(Bytes::from_static(b"c")),
        content_type: Some(text("text/plain")),
        user_properties: pairs(&[
            ("b", "2"),
            ("saguin-attempt", "9"),
            ("a", "1"),
            ("saguin-id", id),
            ("b", "2"),
        ]),
        ..PublishProperties::default()
    };
    let mut publisher = hello("publisher").connect(&broker);
    for topic in ["events/a", "talk/a"] {
        assert_eq!(
            publisher.publish_with(topic, "payload", sent.clone()),
            R::Success
        );
        let came = listener.take();
        let kept = &came.properties;
        assert_eq!(kept.payload_is_utf8, Some(true));
        assert!(
            kept.expiry_seconds
                .is_some_and(|left| left <= 3600 && left > 3000)
        );
        assert_eq!(kept.response_topic, sent.response_topic);
        assert_eq!(kept.correlation_data, sent.correlation_data);
        assert_eq!(kept.content_type, sent.content_type);
        let own: Vec<_> = kept
            .user_properties
            .iter()
            .filter(|(key, _)| !key.starts_with("saguin-"))
            .collect();
        assert_eq!(own, [("b", "2"), ("a", "1"), ("b", "2")], "{topic}");
        assert_eq!(kept.user_properties.get("saguin-attempt"), None);
        let labels = kept.user_properties.len() - own.len();
        if topic == "talk/a" {
            assert_eq!(labels, 0, "broadcast carries none");
        } else {
            assert_eq!(property(&came, "saguin-id"), id);
            assert_eq!(property(&came, "saguin-offset"), "1");
            let received: u64 = property(&came, "saguin-timestamp").parse().expect("ms");
            let expires: u64 = property(&came, "saguin-expires").parse().expect("ms");
            assert_eq!(expires, received + 3_600_000);
            assert_eq!(kept.user_properties.get("saguin-channel"), None);
            assert_eq!(labels, 4);
        }
    }
}

//! What a client asks the broker by a publish, and is answered.

mod common;

use common::{Broker, Client, hello, hello_v311, property, text};
use saguin_mqtt_codec::{Publish, PublishProperties, QoS, ReasonCode};

use ReasonCode as R;

const SEEK: &str = "$saguin/consumer/events/seek";
const SEEK_REPLY: &str = "$saguin/consumer/events/seek/reply";

fn publish(client: &mut Client, topic: &str, payloads: &[&'static str]) {
    for payload in payloads {
        assert_eq!(client.publish(topic, *payload), R::Success);
    }
}

fn expect(client: &mut Client, payloads: &[&str]) {
    for payload in payloads {
        assert_eq!(client.take().payload, payload.as_bytes());
    }
}

fn asking() -> PublishProperties {
    PublishProperties {
        response_topic: Some(text("to/me")),
        correlation_data: Some("17".into()),
        ..PublishProperties::default()
    }
}

/// Asks and waits for the PUBACK and the reply.
fn ask(client: &mut Client, topic: &str, payload: &'static str) -> (Publish, ReasonCode) {
    let reason = client.publish_with(topic, payload, asking());
    let reply = client.delivery();
    assert_eq!(reply.topic.as_str(), "to/me");
    assert_eq!(reply.qos, QoS::AtMostOnce);
    assert_eq!(reply.properties.correlation_data, Some("17".into()));
    (reply, reason)
}

#[test]
fn a_consumer_seeks_and_its_place_outlives_a_kill() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["1", "2", "3"]);
    let mut consumer = hello("consumer").durable().connect(&broker);
    consumer.follow("events/#");
    expect(&mut consumer, &["1", "2", "3"]);
    for (target, offset, replayed) in [
        ("0", "1", &["1", "2", "3"][..]),
        ("2", "2", &["2", "3"]),
        ("-1h", "1", &["1", "2", "3"]),
        ("1970-01-01T00:00:00Z", "1", &["1", "2", "3"]),
        ("-1", "4", &[]),
    ] {
        let (reply, reason) = ask(&mut consumer, SEEK, target);
        assert_eq!((reply.payload, reason), (offset.into(), R::Success));
        expect(&mut consumer, replayed);
        consumer.expect_nothing();
    }
    let (reply, _) = ask(&mut consumer, SEEK, "3");
    assert_eq!(reply.payload, "3");
    broker.restart();
    let mut consumer = hello("consumer").durable().connect(&broker);
    assert!(consumer.session_present);
    expect(&mut consumer, &["3"]);
    consumer.expect_nothing();
}

#[test]
fn a_refused_seek_is_answered_twice_over() {
    let broker = Broker::with_channels("{events: {type: append, retention_bytes: 1KiB}}");
    let mut publisher = hello("publisher").connect(&broker);
    let large: &'static str = "x".repeat(600).leak();
    publish(&mut publisher, "events/a", &[large, large, large]);
    let mut consumer = hello("consumer").durable().connect(&broker);
    let refused = R::ImplementationSpecific;
    // The sweep removes the oldest in its time; the floor has risen once this is answered so.
    let floor = loop {
        let (reply, reason) = ask(&mut consumer, SEEK, "1");
        if reason == refused {
            assert_eq!(reply.payload, "below-floor");
            break property(&reply, "saguin-floor").to_owned();
        }
    };
    let (reply, reason) = ask(&mut consumer, SEEK, "0");
    assert_eq!((reply.payload, reason), (floor.into(), R::Success));
    let (reply, reason) = ask(&mut consumer, SEEK, "99");
    assert_eq!(
        (reply.payload.clone(), reason),
        ("beyond-end".into(), refused)
    );
    assert_eq!(property(&reply, "saguin-next"), "4");
    for (target, word) in [("365d", "below-floor"), ("soon", "malformed")] {
        let (reply, reason) = ask(&mut consumer, SEEK, target);
        assert_eq!((reply.payload, reason), (word.into(), refused));
    }
    let (reply, reason) = ask(&mut publisher, SEEK, "0");
    assert_eq!((reply.payload, reason), ("no-session".into(), refused));
}

#[test]
fn a_consumer_of_mqtt_3_1_1_seeks_too() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["1", "2"]);
    let mut consumer = hello_v311("consumer").durable().connect(&broker);
    consumer.follow("events/#");
    expect(&mut consumer, &["1", "2"]);
    consumer.follow(SEEK_REPLY);
    assert_eq!(consumer.publish(SEEK, "2"), R::Success);
    let reply = consumer.delivery();
    assert_eq!(
        (reply.topic.as_str(), &reply.payload[..]),
        (SEEK_REPLY, &b"2"[..])
    );
    expect(&mut consumer, &["2"]);
    // At QoS 0 there is the reply alone.
    consumer.tell(SEEK, "9");
    assert_eq!(consumer.delivery().payload, "beyond-end");
    consumer.ping();
    consumer.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: text(SEEK),
        payload: "9".into(),
        ..Publish::default()
    });
    assert_eq!(consumer.delivery().payload, "beyond-end");
    consumer.expect_closed();
}

#[test]
fn the_current_value_of_one_topic_is_read() {
    let broker = Broker::start();
    let mut client = hello("client").connect(&broker);
    publish(&mut client, "state/a", &["1", "2"]);
    let (reply, reason) = ask(&mut client, "$saguin/kv/get", "state/a");
    assert_eq!((reply.payload, reason), ("2".into(), R::Success));
    assert!(!reply.retain);
    let (reply, reason) = ask(&mut client, "$saguin/kv/get", "state/none");
    assert_eq!((reply.payload, reason), ("".into(), R::Success));
    for (key, reason) in [
        ("", R::ImplementationSpecific),
        ("events/a", R::TopicNameInvalid),
        ("jobs/a", R::TopicNameInvalid),
        ("talk", R::TopicNameInvalid),
        ("state/#", R::TopicNameInvalid),
        ("$saguin/kv/get", R::TopicNameInvalid),
    ] {
        let found = client.publish_with("$saguin/kv/get", key, asking());
        assert_eq!(found, reason, "{key}");
    }
    let without = client.publish("$saguin/kv/get", "state/a");
    assert_eq!(without, R::ImplementationSpecific);
    client.send_publish(Publish {
        topic: text("$saguin/kv/get"),
        payload: "state/a".into(),
        properties: asking(),
        ..Publish::default()
    });
    client.expect_nothing();
    // Nobody else is told.
    let mut other = hello("other").connect(&broker);
    other.follow("to/me");
    ask(&mut client, "$saguin/kv/get", "state/a");
    other.expect_nothing();
    let mut old = hello_v311("old").connect(&broker);
    old.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: text("$saguin/kv/get"),
        payload: "state/a".into(),
        ..Publish::default()
    });
    old.expect_closed();
}

#[test]
fn a_channel_is_described_as_the_operator_wrote_it() {
    let broker = Broker::with_channels(
        "{events: {type: append, filter: 'plant/{a,b}/#'}, jobs: {type: queue}}",
    );
    let mut client = hello("client").connect(&broker);
    let (reply, reason) = ask(&mut client, "$saguin/catalogue/events", "");
    assert_eq!(reason, R::Success);
    assert_eq!(
        reply.payload,
        r#"{"name":"events","type":"append","filter":"plant/{a,b}/#","verbs":["write","read","seek"]}"#
    );
    let (reply, _) = ask(&mut client, "$saguin/catalogue/jobs", "");
    let told = std::str::from_utf8(&reply.payload).expect("text");
    assert!(told.ends_with(r#""pin":"$saguin/queue/jobs"}"#), "{told}");
    let (reply, reason) = ask(&mut client, "$saguin/catalogue/none", "");
    assert_eq!((&reply.payload[..], reason), (&b""[..], R::Success));
    let nowhere = client.publish("$saguin/catalogue/events", "");
    assert_eq!(nowhere, R::ImplementationSpecific);
    // Without a Response Topic there is nothing to be told, and MQTT 3.1.1 has none.
    let mut old = hello_v311("old").connect(&broker);
    old.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: text("$saguin/catalogue/events"),
        ..Publish::default()
    });
    old.expect_closed();
}

#[test]
fn an_operator_hangs_a_client_up_and_its_session_is_kept() {
    const HANG_UP: &str = "$saguin/sessions/disconnect";
    let broker = Broker::with_channels("{events: {type: append}}");
    let mut operator = hello("operator").connect(&broker);
    let mut device = hello("device").durable().connect(&broker);
    device.follow("events/#");
    let mut old = hello_v311("old").durable().connect(&broker);
    old.follow("events/#");
    let (reply, reason) = ask(&mut operator, HANG_UP, "device");
    assert_eq!((&reply.payload[..], reason), (&b"hung-up"[..], R::Success));
    device.expect_disconnect(R::AdministrativeAction);
    let (reply, _) = ask(&mut operator, HANG_UP, "old");
    assert_eq!(&reply.payload[..], b"hung-up");
    old.expect_closed();
    let (reply, _) = ask(&mut operator, HANG_UP, "nobody");
    assert_eq!(&reply.payload[..], b"no-such-client");
    for refused in ["", "operator"] {
        let reason = operator.publish_with(HANG_UP, refused, asking());
        assert_eq!(reason, R::ImplementationSpecific, "{refused:?}");
    }
    publish(&mut operator, "events/x", &["kept"]);
    for again in [hello("device").durable(), hello_v311("old").durable()] {
        let (mut client, connack) = again.answer(&broker);
        assert!(connack.session_present);
        expect(&mut client, &["kept"]);
    }
}

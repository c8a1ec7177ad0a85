//! MQTT 3.1.1 at every kind of channel: it has no properties and no reasons, and is promised the same.

mod common;

use common::{Broker, Client, hello, hello_v311, property, text};
use saguin_mqtt_codec::{Publish, QoS, ReasonCode, Subscription};

use ReasonCode as R;

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

#[test]
fn a_session_resumes_an_append_channel_where_it_said_goodbye_and_after_a_kill() {
    let mut broker = Broker::start();
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["1", "2", "3"]);
    let mut consumer = hello_v311("consumer").durable().connect(&broker);
    assert!(!consumer.session_present);
    consumer.follow("events/#");
    expect(&mut consumer, &["1", "2"]);
    // The third is not acknowledged.
    assert_eq!(consumer.delivery().payload, "3");
    consumer.disconnect();
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["4"]);
    let mut consumer = hello_v311("consumer").durable().connect(&broker);
    assert!(consumer.session_present);
    let again = consumer.take();
    assert_eq!((again.payload, again.dup), ("3".into(), true));
    expect(&mut consumer, &["4"]);
    consumer.disconnect();
    broker.restart();
    let mut consumer = hello_v311("consumer").durable().connect(&broker);
    assert!(consumer.session_present);
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["5"]);
    expect(&mut consumer, &["5"]);
    consumer.expect_nothing();
    // Without a session it begins at the beginning, and RETAIN is not its replay's.
    let mut new = hello_v311("new").connect(&broker);
    new.follow("events/#");
    for number in ["1", "2", "3", "4", "5"] {
        let record = new.take();
        assert_eq!((record.payload, record.retain), (number.into(), false));
    }
}

#[test]
fn a_session_is_sent_the_current_values_it_has_not_seen() {
    let mut broker = Broker::start();
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "state/a", &["old", "current"]);
    publish(&mut publisher, "state/b", &["current"]);
    let mut subscriber = hello_v311("subscriber").durable().connect(&broker);
    subscriber.follow("state/#");
    for topic in ["state/a", "state/b"] {
        let value = subscriber.take();
        assert_eq!(value.topic.as_str(), topic);
        assert_eq!((value.payload, value.retain), ("current".into(), true));
    }
    publish(&mut publisher, "state/a", &["changed"]);
    let change = subscriber.take();
    assert_eq!((change.payload, change.retain), ("changed".into(), false));
    subscriber.disconnect();
    publish(&mut publisher, "state/b", &[""]);
    publish(&mut publisher, "state/c", &["while away"]);
    let mut subscriber = hello_v311("subscriber").durable().connect(&broker);
    let deletion = subscriber.take();
    assert_eq!(deletion.topic, "state/b");
    assert_eq!((deletion.payload.len(), deletion.retain), (0, false));
    expect(&mut subscriber, &["while away"]);
    subscriber.expect_nothing();
    // The mark is in memory: after a restart all of the current state comes again.
    subscriber.disconnect();
    broker.restart();
    let mut subscriber = hello_v311("subscriber").durable().connect(&broker);
    expect(&mut subscriber, &["changed", "while away"]);
    subscriber.expect_nothing();
}

#[test]
fn a_job_is_published_by_it_and_worked_on_by_others() {
    let broker = Broker::start();
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "jobs/a", &["acknowledged"]);
    publisher.send_publish(Publish {
        topic: text("jobs/b"),
        payload: "at most once, retained".into(),
        retain: true,
        ..Publish::default()
    });
    publisher.ping();
    let refused = publisher.subscribe("$saguin/queue/jobs", QoS::AtLeastOnce);
    assert_eq!(refused, R::Unspecified);
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    for payload in ["acknowledged", "at most once, retained"] {
        let job = worker.take();
        assert_eq!(job.payload, payload);
        assert_eq!((job.qos, job.retain), (QoS::AtLeastOnce, false));
        assert_eq!(worker.answer(&job, "ack"), R::Success);
    }
    worker.expect_nothing();
}

#[test]
fn dead_letters_are_read_by_it_like_any_append_channel() {
    let broker = Broker::with_channels("{jobs: {type: queue, retry: {max_attempts: 1}}}");
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "jobs/a/b", &["1"]);
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    let job = worker.take();
    assert_eq!(property(&job, "saguin-attempt"), "1");
    assert_eq!(worker.answer(&job, "return"), R::Success);
    let mut reader = hello_v311("reader").durable().connect(&broker);
    reader.follow("jobs/__dlq/#");
    let letter = reader.take();
    assert_eq!(letter.topic, "jobs/__dlq/a/b");
    assert_eq!(letter.payload, "1");
    reader.disconnect();
    let mut reader = hello_v311("reader").durable().connect(&broker);
    reader.expect_nothing();
    // Nobody publishes there.
    reader.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: text("jobs/__dlq/a"),
        ..Publish::default()
    });
    reader.expect_closed();
}

#[test]
fn several_filters_of_one_subscribe_are_one_reader_of_a_channel() {
    let broker = Broker::start();
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["1"]);
    publish(&mut publisher, "events/b", &["2"]);
    publish(&mut publisher, "events/c", &["3"]);
    let filter = |filter: &str| Subscription {
        filter: text(filter),
        qos: QoS::AtLeastOnce,
        ..Subscription::default()
    };
    let mut consumer = hello_v311("consumer").connect(&broker);
    let granted = consumer.subscribe_all(vec![filter("events/b"), filter("events/a")]);
    assert_eq!(granted.reasons, [R::GrantedQos1; 2]);
    // In the order they were stored, not in the order of the filters.
    expect(&mut consumer, &["1", "2"]);
    // A filter added later does not reach back.
    consumer.follow("events/c");
    consumer.expect_nothing();
    publish(&mut publisher, "events/c", &["4"]);
    expect(&mut consumer, &["4"]);
}

#[test]
fn the_largest_records_fit_it() {
    // MQTT 3.1.1 names no Maximum Packet Size, so every record fits; what a broker takes bounds it.
    let broker = Broker::start();
    let mut publisher = hello_v311("publisher").connect(&broker);
    let large = "x".repeat(500_000);
    assert_eq!(publisher.publish("events/a", large.clone()), R::Success);
    let mut consumer = hello_v311("consumer").connect(&broker);
    consumer.follow("events/#");
    assert_eq!(consumer.take().payload, large.as_bytes());
}

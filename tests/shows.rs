//! What the broker is for, from end to end and across `kill -9`.

mod common;

use common::{Broker, Client, hello, property};
use saguin_mqtt_codec::{Publish, QoS, ReasonCode};

/// A thousand events whose payload is their number, in flight all at once.
fn publish_events(publisher: &mut Client, numbers: std::ops::RangeInclusive<u32>) {
    let ids: Vec<u16> = numbers
        .map(|number| {
            publisher.send_publish(Publish {
                qos: QoS::AtLeastOnce,
                topic: common::text("events/line"),
                payload: number.to_string().into(),
                ..Publish::default()
            })
        })
        .collect();
    for id in ids {
        assert_eq!(publisher.puback(id).reason, ReasonCode::Success);
    }
}

fn number(event: &Publish) -> u32 {
    let payload = std::str::from_utf8(&event.payload).expect("digits");
    payload.parse().expect("a number")
}

fn expect_events(consumer: &mut Client, numbers: std::ops::RangeInclusive<u32>) {
    for expected in numbers {
        let event = consumer.take();
        assert_eq!(number(&event), expected);
        assert_eq!(property(&event, "saguin-offset"), expected.to_string());
        assert_eq!(event.topic, "events/line");
    }
}

#[test]
fn a_job_is_retried_and_dead_lettered_across_kills() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    assert_eq!(
        publisher.publish("jobs/resize/42", "the photograph"),
        ReasonCode::Success
    );

    broker.restart();
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    let first = worker.take();
    assert_eq!(first.topic, "jobs/resize/42");
    assert_eq!(first.payload, "the photograph");
    assert_eq!(first.qos, QoS::AtLeastOnce);
    assert_eq!(property(&first, "saguin-attempt"), "1");
    assert_eq!(property(&first, "saguin-offset"), "1");
    let message_id = property(&first, "saguin-id").to_owned();
    let delivery_id = first.properties.correlation_data.clone().expect("an id");
    assert!(!delivery_id.is_empty() && delivery_id.len() <= 32);
    assert_eq!(
        first.properties.response_topic.as_ref().expect("a topic"),
        &"$saguin/queue/jobs/response"
    );

    // It says nothing: the job times out and comes again.
    let second = worker.take();
    assert_eq!(property(&second, "saguin-attempt"), "2");
    assert_eq!(property(&second, "saguin-id"), message_id);
    assert_ne!(second.properties.correlation_data, Some(delivery_id));

    // The attempt was counted when it was taken, so the kill does not give it back.
    assert_eq!(worker.answer(&second, "return"), ReasonCode::Success);
    broker.restart();
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    let third = worker.take();
    assert_eq!(property(&third, "saguin-attempt"), "3");
    let mut reader = hello("reader").connect(&broker);
    reader.follow("jobs/__dlq/#");
    assert_eq!(worker.answer(&third, "return"), ReasonCode::Success);
    expect_dead_letter(&mut reader, &message_id);

    // A dead letter is a record like any other.
    broker.restart();
    let mut later = hello("later").connect(&broker);
    later.follow("jobs/__dlq/#");
    expect_dead_letter(&mut later, &message_id);
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    worker.expect_nothing();
}

fn expect_dead_letter(reader: &mut Client, message_id: &str) {
    let letter = reader.take();
    assert_eq!(letter.topic, "jobs/__dlq/resize/42");
    assert_eq!(letter.payload, "the photograph");
    assert_eq!(property(&letter, "saguin-id"), message_id);
    assert_eq!(property(&letter, "saguin-dlq-channel"), "jobs");
    assert_eq!(property(&letter, "saguin-dlq-offset"), "1");
    assert_eq!(property(&letter, "saguin-dlq-attempts"), "3");
    assert_eq!(property(&letter, "saguin-dlq-reason"), "attempts_exhausted");
    let moment = |key| -> u64 { property(&letter, key).parse().expect("milliseconds") };
    let (first, last, at) = (
        moment("saguin-dlq-first"),
        moment("saguin-dlq-last"),
        moment("saguin-dlq-at"),
    );
    assert!(first < last && last <= at, "{first} {last} {at}");
    assert!(moment("saguin-timestamp") <= first);
    assert!(letter.properties.response_topic.is_none());
    assert!(letter.properties.correlation_data.is_none());
}

#[test]
fn a_thousand_events_are_replayed_in_order_after_a_kill() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish_events(&mut publisher, 1..=1000);
    broker.restart();
    let mut consumer = hello("new").connect(&broker);
    consumer.follow("events/#");
    expect_events(&mut consumer, 1..=1000);
    consumer.expect_nothing();

    // Numbering goes on where it was.
    let mut publisher = hello("publisher").connect(&broker);
    publish_events(&mut publisher, 1001..=1001);
    expect_events(&mut consumer, 1001..=1001);
}

#[test]
fn a_durable_consumer_resumes_exactly_where_it_said_goodbye() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish_events(&mut publisher, 1..=1000);
    let mut consumer = hello("durable").durable().connect(&broker);
    assert!(!consumer.session_present);
    consumer.follow("events/#");
    expect_events(&mut consumer, 1..=400);
    consumer.disconnect();
    broker.restart();
    let mut consumer = hello("durable").durable().connect(&broker);
    assert!(consumer.session_present);
    expect_events(&mut consumer, 401..=1000);
    consumer.expect_nothing();
}

#[test]
fn a_durable_consumer_killed_in_the_middle_skips_nothing() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish_events(&mut publisher, 1..=1000);
    let mut acknowledged = 0;
    // Each round acknowledges some and dies without a word: the stored position may be behind what
    // was acknowledged, never ahead, and nothing between is left out.
    for round in 1..=4 {
        let mut consumer = hello("durable").durable().connect(&broker);
        if round == 1 {
            consumer.follow("events/#");
        } else {
            assert!(consumer.session_present);
        }
        let mut last = number(&consumer.take());
        assert!(last <= acknowledged + 1, "{last} after {acknowledged}");
        while last < round * 250 {
            let next = number(&consumer.take());
            assert_eq!(next, last + 1);
            last = next;
        }
        acknowledged = last;
        broker.restart();
    }
    assert_eq!(acknowledged, 1000);
}

//! Channels of records in order.

mod common;

use std::time::Instant;

use common::{Broker, Client, PATIENCE, hello, hello_v311, property, text};
use saguin_mqtt_codec::{Publish, QoS, ReasonCode, RetainHandling, Subscription};

use ReasonCode as R;

fn publish(client: &mut Client, topic: &str, payloads: &[&'static str]) {
    for payload in payloads {
        assert_eq!(client.publish(topic, *payload), R::Success);
    }
}

fn expect(client: &mut Client, payloads: &[&str]) {
    for payload in payloads {
        let record = client.take();
        assert_eq!(record.payload, payload.as_bytes());
        assert!(!record.retain);
    }
}

#[test]
fn a_new_consumer_begins_at_the_oldest_record_whatever_it_speaks() {
    let broker = Broker::start();
    let mut publisher = hello_v311("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["1", "2"]);
    publisher.tell("events/a", "3");
    publisher.ping();
    for hello in [hello("new"), hello_v311("old")] {
        let mut consumer = hello.connect(&broker);
        consumer.follow("events/#");
        expect(&mut consumer, &["1", "2", "3"]);
        consumer.expect_nothing();
    }
    let mut at_most_once = hello("at most once").connect(&broker);
    assert_eq!(
        at_most_once.subscribe("events/a", QoS::AtMostOnce),
        R::Success
    );
    for payload in ["1", "2", "3"] {
        let record = at_most_once.delivery();
        assert_eq!(
            (record.qos, record.payload),
            (QoS::AtMostOnce, payload.into())
        );
    }
}

#[test]
fn a_channel_may_begin_at_its_tail() {
    let broker = Broker::with_channels("{events: {type: append, start: tail}}");
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["before"]);
    let mut consumer = hello("consumer").connect(&broker);
    consumer.follow("events/#");
    publish(&mut publisher, "events/a", &["after"]);
    expect(&mut consumer, &["after"]);
}

#[test]
fn a_filter_over_several_channels_is_told_which() {
    let broker = Broker::with_channels(
        "
  north: {type: append, filter: site/north/#}
  south: {type: append, filter: site/south/#}
  lamps: {type: latest, filter: site/lamps/#}
  work: {type: queue, filter: site/work/#}
",
    );
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "site/north/a", &["1"]);
    publish(&mut publisher, "site/south/a", &["2"]);
    publish(&mut publisher, "site/lamps/a", &["3"]);
    publish(&mut publisher, "site/work/a", &["never"]);
    let mut consumer = hello("consumer").connect(&broker);
    consumer.follow("site/#");
    let mut came: Vec<_> = (0..3)
        .map(|_| {
            let record = consumer.take();
            let channel = property(&record, "saguin-channel").to_owned();
            (channel, record.topic.as_str().to_owned(), record.retain)
        })
        .collect();
    came.sort();
    let expected = [
        ("lamps", "site/lamps/a", true),
        ("north", "site/north/a", false),
        ("south", "site/south/a", false),
    ];
    let expected =
        expected.map(|(channel, topic, retain)| (channel.to_owned(), topic.to_owned(), retain));
    assert_eq!(came, expected);
    publish(&mut publisher, "site/broadcast", &["4"]);
    let broadcast = consumer.take();
    assert_eq!(broadcast.payload, "4");
    assert!(broadcast.properties.user_properties.is_empty());
    let mut exact = hello("exact").connect(&broker);
    exact.follow("site/north/#");
    let record = exact.take();
    assert_eq!(
        record.properties.user_properties.get("saguin-channel"),
        None
    );
}

#[test]
fn retain_handling_2_is_from_now_on() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["1", "2"]);
    let mut consumer = hello("consumer").durable().connect(&broker);
    let from_now = Subscription {
        filter: text("events/#"),
        qos: QoS::AtLeastOnce,
        retain_handling: RetainHandling::Never,
        ..Subscription::default()
    };
    let suback = consumer.subscribe_all(vec![from_now]);
    assert_eq!(suback.reasons, [R::GrantedQos1]);
    // It is stored before it is answered: the kill does not bring the old records back.
    broker.restart();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["3"]);
    let mut consumer = hello("consumer").durable().connect(&broker);
    assert!(consumer.session_present);
    expect(&mut consumer, &["3"]);
    consumer.expect_nothing();
}

#[test]
fn retain_as_published_and_no_local_are_honoured() {
    let broker = Broker::start();
    let mut client = hello("client").connect(&broker);
    let options = |filter: &str| Subscription {
        filter: text(filter),
        qos: QoS::AtLeastOnce,
        no_local: filter == "events/own",
        retain_as_published: true,
        ..Subscription::default()
    };
    client.subscribe_all(vec![options("events/own"), options("events/any")]);
    publish(&mut client, "events/own", &["unheard"]);
    assert_eq!(client.publish_retained("events/any", "kept"), R::Success);
    let mut other = hello("other").connect(&broker);
    publish(&mut other, "events/own", &["heard"]);
    let retained = client.take();
    assert_eq!(retained.payload, "kept");
    assert!(retained.retain);
    expect(&mut client, &["heard"]);
}

#[test]
fn every_matching_subscription_identifier_is_carried_once_per_record() {
    let broker = Broker::start();
    let mut consumer = hello("consumer").connect(&broker);
    for (identifier, filter) in [(7, "events/#"), (9, "events/+")] {
        let suback = consumer.send_subscribe(saguin_mqtt_codec::Subscribe {
            subscription_identifier: Some(identifier),
            filters: vec![Subscription {
                filter: text(filter),
                qos: QoS::AtLeastOnce,
                ..Subscription::default()
            }],
            ..Default::default()
        });
        assert_eq!(suback.reasons, [R::GrantedQos1]);
    }
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", &["both"]);
    publish(&mut publisher, "events/a/b", &["one"]);
    let mut both = consumer.take().properties.subscription_identifiers;
    both.sort_unstable();
    assert_eq!(both, [7, 9]);
    assert_eq!(consumer.take().properties.subscription_identifiers, [7]);
}

#[test]
fn a_full_channel_refuses_and_says_so() {
    let broker = Broker::with_channels("{events: {type: append, max_bytes: 2KiB}}");
    let mut publisher = hello("publisher").connect(&broker);
    let record = "x".repeat(500);
    let mut stored = 0;
    let refused = loop {
        match publisher.publish("events/a", record.clone()) {
            R::Success => stored += 1,
            refused => break refused,
        }
    };
    assert_eq!(refused, R::QuotaExceeded);
    // Counted: payload, topic, 16 for the id: 524 each, and three of them in 2,048.
    assert_eq!(stored, 3);
    let mut old = hello_v311("old").connect(&broker);
    old.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: text("events/a"),
        payload: record.clone().into(),
        ..Publish::default()
    });
    old.expect_closed();
    // A smaller one still has room, and what was refused is nowhere.
    publish(&mut publisher, "events/a", &["small"]);
    let mut consumer = hello("consumer").connect(&broker);
    consumer.follow("events/#");
    expect(&mut consumer, &[&record, &record, &record, "small"]);
    consumer.expect_nothing();
}

#[test]
fn the_oldest_go_where_bytes_are_bounded_and_offsets_stay() {
    let broker = Broker::with_channels("{events: {type: append, retention_bytes: 2KiB}}");
    let mut publisher = hello("publisher").connect(&broker);
    for _ in 0..100 {
        assert_eq!(publisher.publish("events/a", "x".repeat(500)), R::Success);
    }
    // Three of 524 counted bytes are within 2,048. The sweep runs when it runs; then a new consumer
    // begins there.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut consumer = hello("consumer").connect(&broker);
        consumer.follow("events/#");
        let first = consumer.take();
        if property(&first, "saguin-offset") == "98" {
            break;
        }
        assert!(Instant::now() < deadline, "nothing went: {first:?}");
    }
}

#[test]
fn publishes_sent_at_once_are_kept_or_refused_one_by_one() {
    let broker = Broker::with_channels("{events: {type: append, max_bytes: 2KiB}}");
    let mut publisher = hello("publisher").connect(&broker);
    let large = "x".repeat(900);
    // 900 + 8 + 16 counted, twice in 2,048, and room for a small one after what was refused.
    let sent = [&large[..], &large, &large, "small", &large, "smaller"];
    let ids = sent.map(|payload| {
        publisher.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            topic: text("events/a"),
            payload: payload.to_owned().into(),
            ..Publish::default()
        })
    });
    let told = ids.map(|id| publisher.puback(id).reason);
    let full = R::QuotaExceeded;
    assert_eq!(
        told,
        [R::Success, R::Success, full, R::Success, full, R::Success]
    );
    let mut consumer = hello("consumer").connect(&broker);
    consumer.follow("events/#");
    expect(&mut consumer, &[&large, &large, "small", "smaller"]);
    consumer.expect_nothing();
}

#[test]
fn a_position_that_retention_passed_ends_its_session_and_reading_begins_again_at_the_floor() {
    let broker = Broker::with_channels("{events: {type: append, retention_bytes: 4KiB}}");
    let mut publisher = hello("publisher").durable().connect(&broker);
    publish(&mut publisher, "events/a", &["1"]);
    let consumers = || [hello("new").durable(), hello_v311("old").durable()];
    for hello in consumers() {
        let mut consumer = hello.connect(&broker);
        consumer.follow("events/#");
        expect(&mut consumer, &["1"]);
        consumer.disconnect();
    }
    for _ in 0..40 {
        assert_eq!(publisher.publish("events/a", "x".repeat(500)), R::Success);
    }
    // The sweep removes the oldest soon; the floor is what a seek to it answers.
    let floor = loop {
        let seek = "$saguin/consumer/events/seek";
        assert_eq!(publisher.publish(seek, "0"), R::Success);
        let told = publisher.delivery().payload;
        let told = std::str::from_utf8(&told).expect("text").parse::<u64>();
        match told.expect("an offset") {
            floor if floor > 2 => break floor,
            _ => {}
        }
    };
    for hello in consumers() {
        let (mut consumer, connack) = hello.answer(&broker);
        assert!(!connack.session_present, "what it stood on is gone");
        consumer.expect_nothing();
        consumer.follow("events/#");
        let first = consumer.take();
        assert_eq!(first.payload.len(), 500);
        if let Some(offset) = first.properties.user_properties.get("saguin-offset") {
            let offset = offset.parse::<u64>().expect("an offset");
            assert!(offset >= floor);
        }
    }
    broker.wait_for_line("retention");
}

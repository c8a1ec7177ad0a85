//! `saguin-filter`: one filter's topics divided among consumers.

use std::collections::BTreeSet;

use super::*;
use crate::broker::topic::topic_hash;

/// Subscribes with declarations.
fn share(client: &Client, filters: &[&str], declared: &[&str]) -> Vec<SubackReason> {
    let declared: Vec<_> = declared
        .iter()
        .map(|value| ("saguin-filter", *value))
        .collect();
    let subscribe = Subscribe {
        packet_id: 1,
        identifier: None,
        filters: filters.iter().map(|filter| request(filter)).collect(),
        user_properties: pairs(&declared),
    };
    client.connection.subscribe(&subscribe);
    client.settle();
    let suback = client.pick(|packet| match packet {
        Outgoing::Suback { reasons, .. } => Some(reasons.clone()),
        _ => None,
    });
    suback.expect("a SUBACK")
}

const GRANTED: SubackReason = SubackReason::Granted(1);

fn topics(prefix: &str) -> Vec<String> {
    (0..40).map(|n| format!("{prefix}/{n}")).collect()
}

fn slice(topics: &[String], of: u64, slice: u64) -> BTreeSet<String> {
    let mine = |topic: &&String| topic_hash(topic.as_bytes()) % of == slice;
    topics.iter().filter(mine).cloned().collect()
}

/// What a client is sent, all of it acknowledged: its topics.
fn received(client: &Client) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    loop {
        let messages = client.messages();
        if messages.is_empty() {
            return seen;
        }
        for message in &messages {
            let topic = String::from_utf8(message.topic.to_vec()).unwrap();
            assert!(seen.insert(topic), "{message:?} came twice");
        }
        client.ack(&messages);
        client.settle();
    }
}

#[test]
fn consumers_divide_every_kind_of_topic_completely_and_once() {
    for prefix in ["events", "state", "live"] {
        let world = World::new();
        let publisher = world.connect(connect("publisher"));
        let topics = topics(prefix);
        let (before, after) = topics.split_at(20);
        for topic in before {
            publisher.publish(topic, "before");
        }
        let filter = format!("{prefix}/#");
        let one = world.connect(connect("one"));
        let two = world.connect(connect("two"));
        assert_eq!(share(&one, &[&filter], &["topic_hash(3, 0)"]), [GRANTED]);
        let rest = ["topic_hash(3, 1)", "topic_hash( 3,2 )"];
        assert_eq!(share(&two, &[&filter], &rest), [GRANTED]);
        for topic in after {
            publisher.publish(topic, "after");
        }
        // Broadcast is for those who were there.
        let all = if prefix == "live" { after } else { &topics[..] };
        let first = slice(all, 3, 0);
        let second = &slice(all, 3, 1) | &slice(all, 3, 2);
        assert!(!first.is_empty() && !second.is_empty());
        assert_eq!(received(&one), first, "{prefix}");
        assert_eq!(received(&two), second, "{prefix}");
    }
}

#[test]
fn a_position_passes_what_is_outside_the_slice_and_the_share_outlives_a_crash() {
    let world = World::new();
    let consumer = world.connect(durable("consumer"));
    assert_eq!(
        share(&consumer, &["events/#"], &["topic_hash(2, 1)"]),
        [GRANTED]
    );
    let publisher = world.connect(connect("publisher"));
    let topics = topics("events");
    for topic in &topics {
        publisher.publish(topic, "x");
    }
    assert_eq!(received(&consumer), slice(&topics, 2, 1));
    consumer.disconnect();
    world.settle();
    assert_eq!(world.store.position("consumer", EVENTS), Some(41));
    let world = world.crash();
    let publisher = world.connect(connect("publisher"));
    for topic in &topics {
        publisher.publish(topic, "again");
    }
    let consumer = world.connect(durable("consumer"));
    assert_eq!(received(&consumer), slice(&topics, 2, 1));
}

#[test]
fn subscribing_again_replaces_the_share() {
    let world = World::new();
    let publisher = world.connect(connect("publisher"));
    let consumer = world.connect(connect("consumer"));
    let topics = topics("live");
    let heard = || {
        for topic in &topics {
            publisher.publish(topic, "x");
        }
        received(&consumer)
    };
    share(&consumer, &["live/#"], &["topic_hash(2, 0)"]);
    assert_eq!(heard(), slice(&topics, 2, 0));
    share(&consumer, &["live/#"], &["topic_hash(2, 1)"]);
    assert_eq!(heard(), slice(&topics, 2, 1));
    share(&consumer, &["live/#"], &[]);
    assert_eq!(heard().len(), 40);
}

#[test]
fn overlapping_subscriptions_are_joined_by_what_each_takes() {
    let world = World::new();
    let consumer = world.connect(connect("consumer"));
    let subscribe = |filter: &str, identifier, declared: &[(&str, &str)]| {
        let subscribe = Subscribe {
            packet_id: 1,
            identifier: Some(identifier),
            filters: vec![request(filter)],
            user_properties: pairs(declared),
        };
        consumer.connection.subscribe(&subscribe);
        consumer.settle();
        consumer.take();
    };
    subscribe("events/#", 1, &[("saguin-filter", "topic_hash(2, 0)")]);
    subscribe("events/+", 2, &[("saguin-filter", "topic_hash(2, 1)")]);
    let publisher = world.connect(connect("publisher"));
    for topic in topics("events") {
        publisher.publish(&topic, "x");
        let messages = consumer.messages();
        assert_eq!(messages.len(), 1, "{topic}");
        // Property 0x0B and the identifier are what the region begins with.
        let identifier = 1 + (topic_hash(topic.as_bytes()) % 2) as u8;
        assert_eq!(messages[0].properties[..2], [0x0b, identifier]);
        assert_ne!(messages[0].properties[2], 0x0b);
        consumer.ack(&messages);
    }
}

#[test]
fn a_bad_declaration_refuses_the_packet_and_a_good_one_what_is_shared_already() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let refused = SubackReason::Refused(Reason::ImplementationSpecific);
    for bad in [
        &["topic_hash(0, 0)"][..],
        &["topic_hash(4, 4)"],
        &["topic_hash(4, 1)", "topic_hash(8, 1)"],
        &["hash(4, 1)"],
    ] {
        assert_eq!(share(&client, &["events/#", "live"], bad), [refused; 2]);
    }
    let shared = [
        "events/#",
        "$saguin/queue/jobs",
        "$share/g/live",
        "$saguin/consumer/events/seek/reply",
    ];
    assert_eq!(
        share(&client, &shared, &["topic_hash(4, 1)"]),
        [GRANTED, refused, refused, GRANTED]
    );
}

#[test]
fn a_seek_replays_the_share_alone() {
    let world = World::new();
    let consumer = world.connect(durable("consumer"));
    share(&consumer, &["events/#"], &["topic_hash(2, 0)"]);
    let publisher = world.connect(connect("publisher"));
    let topics = topics("events");
    for topic in &topics {
        publisher.publish(topic, "x");
    }
    let mine = slice(&topics, 2, 0);
    assert_eq!(received(&consumer), mine);
    let seek = super::requests::ask("$saguin/consumer/events/seek", "0");
    let (reply, reason) = consumer.ask(seek);
    assert_eq!(payload(&reply.expect("a reply")), "1");
    assert_eq!(reason, Reason::Success);
    assert_eq!(received(&consumer), mine);
}

#[test]
fn a_share_that_was_replaced_is_replaced_after_a_crash_too() {
    let world = World::new();
    let consumer = world.connect(durable("consumer"));
    let topics = topics("events");
    share(&consumer, &["events/#"], &["topic_hash(2, 0)"]);
    share(&consumer, &["events/#"], &["topic_hash(2, 1)"]);
    let world = world.crash();
    let publisher = world.connect(connect("publisher"));
    for topic in &topics {
        publisher.publish(topic, "x");
    }
    let consumer = world.connect(durable("consumer"));
    assert_eq!(received(&consumer), slice(&topics, 2, 1));
    share(&consumer, &["events/#"], &[]);
    let world = world.crash();
    let publisher = world.connect(connect("publisher"));
    for topic in &topics {
        publisher.publish(topic, "x");
    }
    let consumer = world.connect(durable("consumer"));
    assert_eq!(received(&consumer).len(), topics.len());
}

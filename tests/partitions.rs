//! Consumers that divide the topics of one filter.

mod common;

use std::collections::BTreeSet;

use common::{Broker, Client, hello, text};
use saguin_mqtt_codec::{QoS, ReasonCode, Subscribe, Subscription, UserPropertiesBuilder};

const TOPICS: usize = 40;

fn share(client: &mut Client, filter: &str, declared: &[&str]) -> ReasonCode {
    let mut properties = UserPropertiesBuilder::new();
    for value in declared {
        properties.push("saguin-filter", value).expect("a pair");
    }
    let suback = client.send_subscribe(Subscribe {
        filters: vec![Subscription {
            filter: text(filter),
            qos: QoS::AtLeastOnce,
            ..Subscription::default()
        }],
        user_properties: properties.build(),
        ..Subscribe::default()
    });
    suback.reasons[0]
}

/// The hash that consumers are told, written down once more.
fn slice_of_two(topic: &str) -> u64 {
    let mut h = 14_695_981_039_346_656_037_u64;
    for byte in topic.bytes() {
        h = (h ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    h = (h ^ (h >> 30)).wrapping_mul(13_787_848_793_156_543_929);
    h = (h ^ (h >> 27)).wrapping_mul(10_723_151_780_598_845_931);
    (h ^ (h >> 31)) % 2
}

fn topics(slice: u64) -> BTreeSet<String> {
    (0..TOPICS)
        .map(|n| format!("events/{n}"))
        .filter(|topic| slice_of_two(topic) == slice)
        .collect()
}

fn take(client: &mut Client, count: usize) -> BTreeSet<String> {
    (0..count)
        .map(|_| client.take().topic.as_str().to_owned())
        .collect()
}

fn publish_all(broker: &Broker) {
    let mut publisher = hello("publisher").connect(broker);
    for n in 0..TOPICS {
        let topic = format!("events/{n}");
        assert_eq!(publisher.publish(&topic, "x"), ReasonCode::Success);
    }
}

#[test]
fn two_consumers_divide_a_channel_and_keep_their_shares_over_a_kill() {
    let mut broker = Broker::with_channels("{events: {type: append}}");
    publish_all(&broker);
    let mut one = hello("one").durable().connect(&broker);
    let mut two = hello("two").durable().connect(&broker);
    let granted = ReasonCode::GrantedQos1;
    assert_eq!(share(&mut one, "events/#", &["topic_hash(2, 0)"]), granted);
    assert_eq!(share(&mut two, "events/#", &["topic_hash(2, 1)"]), granted);
    let (first, second) = (topics(0), topics(1));
    assert!(!first.is_empty() && !second.is_empty());
    assert_eq!(take(&mut one, first.len()), first);
    one.expect_nothing();
    assert_eq!(take(&mut two, second.len()), second);
    two.expect_nothing();
    one.disconnect();
    two.disconnect();
    broker.restart();
    publish_all(&broker);
    let mut one = hello("one").durable().connect(&broker);
    assert_eq!(take(&mut one, first.len()), first);
    one.expect_nothing();
    let mut two = hello("two").durable().connect(&broker);
    assert_eq!(take(&mut two, second.len()), second);
    two.expect_nothing();
}

#[test]
fn what_is_no_declaration_refuses_every_filter_of_its_packet() {
    let broker = Broker::with_channels("{events: {type: append}}");
    let mut client = hello("client").connect(&broker);
    let refused = ReasonCode::ImplementationSpecific;
    for bad in [
        &["topic_hash(0, 0)"][..],
        &["topic_hash(2, 2)"],
        &["topic_hash(2, 0)", "topic_hash(3, 0)"],
        &["everything"],
    ] {
        assert_eq!(share(&mut client, "events/#", bad), refused, "{bad:?}");
    }
    let queue = share(&mut client, "$saguin/queue/jobs", &["topic_hash(2, 0)"]);
    assert_eq!(queue, refused);
}

#[test]
fn different_numbers_on_one_filter_are_warned_of_once() {
    let broker = Broker::with_channels("{events: {type: append}}");
    for (name, declared) in [
        ("one", "topic_hash(2, 0)"),
        ("two", "topic_hash(3, 1)"),
        ("three", "topic_hash(4, 1)"),
    ] {
        let mut client = hello(name).connect(&broker);
        share(&mut client, "events/#", &[declared]);
        client.ping();
    }
    let line = broker.wait_for_line("divide this filter's topics");
    assert!(line.contains("by 2 and by 3"), "{line}");
    let logged = broker.logged();
    assert_eq!(logged.matches("divide this filter's topics").count(), 1);
}

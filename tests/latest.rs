//! A channel of current values.

mod common;

use common::{Broker, Client, hello, hello_v311, property, text};
use saguin_mqtt_codec::{QoS, ReasonCode, RetainHandling, Subscribe, Subscription};

use ReasonCode as R;

fn set(client: &mut Client, topic: &str, value: &'static str) {
    assert_eq!(client.publish(topic, value), R::Success);
}

/// Takes as many deliveries and sorts them: topic, value, RETAIN.
fn take_sorted(client: &mut Client, count: usize) -> Vec<(String, String, bool)> {
    let mut taken: Vec<_> = (0..count)
        .map(|_| {
            let value = client.take();
            let payload = String::from_utf8(value.payload.to_vec()).expect("text");
            (value.topic.as_str().to_owned(), payload, value.retain)
        })
        .collect();
    taken.sort();
    taken
}

fn value(topic: &str, payload: &str, retain: bool) -> (String, String, bool) {
    (topic.to_owned(), payload.to_owned(), retain)
}

#[test]
fn a_subscriber_gets_the_current_values_and_then_the_changes() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    set(&mut publisher, "state/a", "old");
    set(&mut publisher, "state/a", "new");
    set(&mut publisher, "state/b", "gone");
    set(&mut publisher, "state/b", "");
    set(&mut publisher, "state/c", "stays");
    let current = [
        value("state/a", "new", true),
        value("state/c", "stays", true),
    ];
    broker.restart();
    for hello in [hello("new"), hello_v311("old")] {
        let mut subscriber = hello.connect(&broker);
        subscriber.follow("state/#");
        assert_eq!(take_sorted(&mut subscriber, 2), current);
        subscriber.expect_nothing();
    }
    let mut publisher = hello("publisher").connect(&broker);
    let mut subscriber = hello("subscriber").connect(&broker);
    subscriber.follow("state/#");
    assert_eq!(take_sorted(&mut subscriber, 2), current);
    set(&mut publisher, "state/a", "newer");
    let change = subscriber.take();
    assert_eq!(change.payload, "newer");
    assert!(!change.retain, "a change is no current value");
    property(&change, "saguin-id");
    property(&change, "saguin-offset");
    property(&change, "saguin-timestamp");
    set(&mut publisher, "state/a", "");
    let deletion = subscriber.take();
    assert_eq!(
        (deletion.topic.as_str(), deletion.payload.len()),
        ("state/a", 0)
    );
    assert!(!deletion.retain);
    // Subscribing again is another pass.
    subscriber.follow("state/#");
    assert_eq!(
        take_sorted(&mut subscriber, 1),
        [value("state/c", "stays", true)]
    );
}

#[test]
fn values_set_with_and_without_retain_are_the_same_but_as_published() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    let mut subscriber = hello("subscriber").connect(&broker);
    let mut verbatim = hello("verbatim").connect(&broker);
    subscriber.follow("state/#");
    let as_published = Subscription {
        filter: text("state/#"),
        qos: QoS::AtLeastOnce,
        retain_as_published: true,
        ..Subscription::default()
    };
    verbatim.subscribe_all(vec![as_published]);
    assert_eq!(publisher.publish_retained("state/a", "1"), R::Success);
    set(&mut publisher, "state/a", "2");
    assert_eq!(
        [subscriber.take().retain, subscriber.take().retain],
        [false, false]
    );
    assert_eq!(
        [verbatim.take().retain, verbatim.take().retain],
        [true, false]
    );
}

#[test]
fn retain_handling_decides_about_the_pass_alone() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    set(&mut publisher, "state/a", "1");
    let mut subscriber = hello("subscriber").connect(&broker);
    let ask = |subscriber: &mut Client, retain_handling| {
        let subscription = Subscription {
            filter: text("state/#"),
            qos: QoS::AtLeastOnce,
            retain_handling,
            ..Subscription::default()
        };
        let suback = subscriber.subscribe_all(vec![subscription]);
        assert_eq!(suback.reasons, [R::GrantedQos1]);
    };
    ask(&mut subscriber, RetainHandling::Never);
    set(&mut publisher, "state/a", "2");
    assert_eq!(
        take_sorted(&mut subscriber, 1),
        [value("state/a", "2", false)]
    );
    ask(&mut subscriber, RetainHandling::NewSubscription);
    set(&mut publisher, "state/a", "3");
    assert_eq!(
        take_sorted(&mut subscriber, 1),
        [value("state/a", "3", false)]
    );
    ask(&mut subscriber, RetainHandling::Always);
    assert_eq!(
        take_sorted(&mut subscriber, 1),
        [value("state/a", "3", true)]
    );
    subscriber.unsubscribe("state/#", None);
    ask(&mut subscriber, RetainHandling::NewSubscription);
    assert_eq!(
        take_sorted(&mut subscriber, 1),
        [value("state/a", "3", true)]
    );
}

#[test]
fn deletions_are_in_the_pass_of_who_asks_for_them() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    set(&mut publisher, "state/a", "1");
    set(&mut publisher, "state/a", "");
    // Deleting nothing stores nothing.
    set(&mut publisher, "state/never", "");
    let mut subscriber = hello("subscriber").connect(&broker);
    let mut asks = saguin_mqtt_codec::UserPropertiesBuilder::new();
    asks.push("saguin-deletions", "yes").expect("a pair");
    let suback = subscriber.send_subscribe(Subscribe {
        user_properties: asks.build(),
        filters: vec![Subscription {
            filter: text("state/#"),
            qos: QoS::AtLeastOnce,
            ..Subscription::default()
        }],
        ..Subscribe::default()
    });
    assert_eq!(suback.reasons, [R::GrantedQos1]);
    let deletion = subscriber.take();
    assert_eq!(
        (deletion.topic.as_str(), deletion.payload.len()),
        ("state/a", 0)
    );
    subscriber.expect_nothing();
}

#[test]
fn a_session_is_sent_only_what_changed_while_it_was_away() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    set(&mut publisher, "state/same", "1");
    set(&mut publisher, "state/changed", "1");
    set(&mut publisher, "state/deleted", "1");
    let mut subscriber = hello("subscriber").durable().connect(&broker);
    subscriber.follow("state/#");
    take_sorted(&mut subscriber, 3);
    subscriber.disconnect();
    set(&mut publisher, "state/changed", "2");
    set(&mut publisher, "state/changed", "3");
    set(&mut publisher, "state/deleted", "");
    let mut subscriber = hello("subscriber").durable().connect(&broker);
    assert!(subscriber.session_present);
    let changes: Vec<_> = take_sorted(&mut subscriber, 2)
        .into_iter()
        .map(|(topic, payload, _)| (topic, payload))
        .collect();
    assert_eq!(
        changes,
        [
            ("state/changed".to_owned(), "3".to_owned()),
            ("state/deleted".to_owned(), String::new())
        ]
    );
    subscriber.expect_nothing();
}

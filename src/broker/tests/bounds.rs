//! Everything that accumulates has a bound and an outcome at it (invariant 13).

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::broker::session::inflight::MAX_IN_FLIGHT;
use crate::broker::settings::RECEIVE_MAXIMUM;

#[test]
fn past_receive_maximum_the_socket_is_not_read() {
    let world = World::new();
    let client = world.connect(connect("a"));
    for packet_id in 1..=RECEIVE_MAXIMUM {
        assert!(client.connection.may_read());
        let publish = Publish {
            packet_id,
            ..publish("events/1", "x")
        };
        client.connection.publish(publish, world.now());
    }
    assert!(!client.connection.may_read());
    world.settle();
    // Answered is not enough: the answers have to be taken.
    assert!(!client.connection.may_read());
    assert_eq!(client.take().len(), usize::from(RECEIVE_MAXIMUM));
    assert!(client.connection.may_read());
}

#[test]
fn control_replies_nobody_takes_stop_the_reading() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let mut pings = 0;
    while client.connection.may_read() {
        client.connection.ping();
        pings += 1;
        assert!(pings < 10_000);
    }
    assert_eq!(client.take().len(), pings);
    assert!(client.connection.may_read());
}

#[test]
fn a_deaf_subscriber_loses_qos_0_and_delays_nobody() {
    let world = World::with(Options {
        settings: Settings {
            session_queue_bytes: 16 * 1024,
            ..Settings::default()
        },
        ..Options::default()
    });
    let deaf = world.connect(connect("deaf"));
    deaf.subscribe_as(SubscribeRequest {
        qos: 0,
        ..request("x")
    });
    let publisher = world.connect(connect("p"));
    for _ in 0..1000 {
        assert_eq!(publisher.publish("x", "0123456789"), Reason::Success);
    }
    let dropped = world
        .broker
        .counters()
        .broadcast_dropped_queue_full
        .load(Relaxed);
    assert!(dropped > 900, "{dropped}");
    assert_eq!(deaf.messages().len() as u64, 1000 - dropped);
}

#[test]
fn no_more_is_under_way_than_the_client_asked_for() {
    let world = World::new();
    let client = world.connect(Connect {
        receive_maximum: 2,
        ..connect("a")
    });
    client.subscribe("events/#");
    client.subscribe("live");
    let other = world.connect(connect("b"));
    for topic in ["events/1", "live", "events/2", "live"] {
        other.publish(topic, topic);
    }
    let mut seen = 0;
    while seen < 4 {
        let messages = client.messages();
        assert!((1..=2).contains(&messages.len()));
        seen += messages.len();
        client.ack(&messages);
    }
}

#[test]
fn a_record_too_large_ends_the_connection_and_broadcast_is_dropped() {
    let world = World::new();
    let client = world.connect(Connect {
        maximum_packet_size: Some(200),
        ..durable("a")
    });
    client.subscribe("events/#");
    client.subscribe("live");
    let other = world.connect(connect("b"));
    let large = "x".repeat(200);
    other.publish("live", &large);
    assert!(client.messages().is_empty());
    assert_eq!(
        world
            .broker
            .counters()
            .broadcast_dropped_too_large
            .load(Relaxed),
        1
    );
    other.publish("events/1", &large);
    assert_eq!(client.closed(), Some(Reason::PacketTooLarge));
    client.lose();
    // Its place is untouched: with more room it is served the record.
    let client = world.connect(durable("a"));
    assert_eq!(client.payloads(), [large]);
}

#[test]
fn what_one_session_has_under_way_is_bounded_and_a_queue_waits_its_turn() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.subscribe("$saguin/queue/jobs");
    let other = world.connect(connect("b"));
    for _ in 0..MAX_IN_FLIGHT + 10 {
        other.publish("events/1", "x");
    }
    assert_eq!(client.messages().len(), MAX_IN_FLIGHT);
    client.lose();
    other.publish("jobs/1", "job");
    // The job finds no identifier free, and nobody looks for one for ever.
    let client = world.connect(durable("a"));
    let again = client.messages();
    assert_eq!(again.len(), MAX_IN_FLIGHT);
    assert!(again.iter().all(|message| message.dup));
    client.ack(&again);
    let mut rest = client.payloads();
    rest.sort();
    assert_eq!(rest.len(), 11);
    assert_eq!(rest[0], "job");
}

#[test]
fn a_resumed_session_is_sent_no_more_than_receive_maximum() {
    let world = World::new();
    let narrow = || Connect {
        receive_maximum: 1,
        ..durable("a")
    };
    let client = world.connect(narrow());
    client.subscribe("events/#");
    client.subscribe("$saguin/queue/jobs");
    let other = world.connect(connect("b"));
    other.publish("events/1", "record");
    assert_eq!(client.payloads(), ["record"]);
    client.lose();
    other.publish("jobs/1", "job");
    let client = world.connect(narrow());
    let first = client.messages();
    assert_eq!(first.iter().map(payload).collect::<Vec<_>>(), ["record"]);
    assert!(first[0].dup);
    client.ack(&first);
    assert_eq!(client.payloads(), ["job"]);
}

#[test]
fn a_delivery_that_is_void_makes_room_for_a_job() {
    let world = World::new();
    let narrow = || Connect {
        receive_maximum: 1,
        ..durable("a")
    };
    let client = world.connect(narrow());
    client.subscribe("state/#");
    client.subscribe("$saguin/queue/jobs");
    let other = world.connect(connect("b"));
    other.publish("state/1", "old");
    assert_eq!(client.payloads(), ["old"]);
    client.lose();
    // Replaced, so there is nothing to send again, and then removed altogether.
    let empty = Publish {
        retain: true,
        ..publish("state/1", "")
    };
    assert_eq!(other.send(empty), Reason::Success);
    other.publish("jobs/1", "job");
    let client = world.connect(narrow());
    let mut seen = Vec::new();
    loop {
        let messages = client.messages();
        assert!(messages.len() <= 1);
        if messages.is_empty() {
            break;
        }
        seen.extend(messages.iter().map(payload));
        client.ack(&messages);
    }
    assert!(seen.contains(&"job".to_owned()), "{seen:?}");
}

#[test]
fn what_subscriptions_cost_in_memory_is_bounded_and_given_back() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let deep = |number: u32| format!("{number}{}", "/x".repeat(199));
    let refused = SubackReason::Refused(Reason::QuotaExceeded);
    let granted = (0..10_000)
        .take_while(|number| client.subscribe(&deep(*number)) != refused)
        .count();
    assert!((100..1000).contains(&granted), "{granted}");
    // One that is there already takes nothing more, and one that goes gives its place back.
    assert_eq!(client.subscribe(&deep(0)), SubackReason::Granted(1));
    assert_eq!(client.unsubscribe(&deep(0)), Reason::Success);
    assert_eq!(client.subscribe(&deep(99_999)), SubackReason::Granted(1));
    assert_eq!(client.subscribe(&deep(0)), refused);
    // Another client's are its own.
    let other = world.connect(connect("b"));
    assert_eq!(other.subscribe(&deep(0)), SubackReason::Granted(1));
}

#[test]
fn ten_thousand_filters_of_eight_levels_have_their_place() {
    let filter = "site/building/floor/room/rack/device/sensor/0000";
    let cost = crate::broker::session::Subscription::cost(filter, 1, 0);
    assert!(
        10_000 * cost <= crate::broker::session::MAX_SUBSCRIPTION_BYTES,
        "{cost}"
    );
}

#[test]
fn without_room_the_oldest_that_is_owed_gives_way_and_what_is_on_the_wire_stays() {
    let world = World::new();
    let reader = world.connect(durable("reader"));
    reader.subscribe("live/#");
    let publisher = world.connect(connect("publisher"));
    publisher.publish("live/1", "on the wire");
    assert_eq!(reader.payloads(), Vec::<String>::new());
    world.settle();
    assert_eq!(reader.payloads(), ["on the wire"]);
    reader.lose();
    for number in 0..1000 {
        publisher.publish("live/1", &number.to_string());
    }
    // One sweep without room is what tidying takes; the next gives way.
    world.store.set_needs_room(true);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.counted(BROADCAST_LOG).count, 1001);
    world.advance(Duration::from_secs(1));
    world.store.set_needs_room(false);
    world.advance(Duration::from_secs(1));
    let given_way = world.broker.counters().broadcast_given_way.load(Relaxed);
    assert_eq!(given_way, 250, "a step, but for what is on the wire");
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.counted(BROADCAST_LOG).count, 751);
    let world = world.crash();
    let reader = world.connect(durable("reader"));
    let first = reader.payloads();
    world.settle();
    assert_eq!(first, ["on the wire"]);
    reader.ack(&[]);
    assert_eq!(reader.payloads().first().map(String::as_str), Some("250"));
}

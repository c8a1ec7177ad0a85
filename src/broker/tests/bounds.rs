//! Everything that accumulates has a bound and an outcome at it (invariant 13).

use std::sync::atomic::Ordering::Relaxed;

use super::*;
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

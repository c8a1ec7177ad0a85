//! What a subscriber of current values is sent when it is slow, returns, or takes no acknowledgements.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Payload and RETAIN of what there is to write now.
fn values(client: &Client) -> Vec<(String, bool)> {
    let messages = client.messages();
    client.ack(&messages);
    messages.iter().map(|m| (payload(m), m.retain)).collect()
}

fn at_qos_0(filter: &str) -> SubscribeRequest {
    SubscribeRequest {
        qos: 0,
        ..request(filter)
    }
}

fn retained(payload: &str) -> (String, bool) {
    (payload.to_owned(), true)
}

fn changed(payload: &str) -> (String, bool) {
    (payload.to_owned(), false)
}

#[test]
fn a_resumed_subscriber_at_qos_0_is_sent_all_of_the_current_state_once() {
    let world = World::new();
    let client = world.connect(durable("a"));
    assert_eq!(
        client.subscribe_as(at_qos_0("state/#")),
        SubackReason::Granted(0)
    );
    let other = world.connect(connect("b"));
    for (topic, value) in [("state/1", "one"), ("state/2", "two"), ("state/3", "three")] {
        other.publish(topic, value);
    }
    assert_eq!(values(&client).len(), 3);
    client.lose();
    other.publish("state/2", "two again");
    other.publish("state/3", "");
    let client = world.connect(durable("a"));
    // Neither the change a second time nor the deletion.
    assert_eq!(values(&client), [retained("one"), retained("two again")]);
    other.publish("state/1", "one again");
    assert_eq!(values(&client), [changed("one again")]);
    // Nothing happened while it was away, and it is sent all of it again.
    client.lose();
    let client = world.connect(durable("a"));
    assert_eq!(
        values(&client),
        [retained("two again"), retained("one again")]
    );
}

#[test]
fn what_acknowledges_keeps_its_mark_beside_what_does_not() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("state/kept/#");
    client.subscribe_as(at_qos_0("state/told/#"));
    let other = world.connect(connect("b"));
    for topic in [
        "state/kept/1",
        "state/kept/2",
        "state/told/1",
        "state/told/2",
    ] {
        other.publish(topic, topic);
    }
    assert_eq!(client.consume().len(), 4);
    client.lose();
    other.publish("state/kept/2", "kept, changed");
    other.publish("state/kept/1", "");
    other.publish("state/told/2", "told, changed");
    other.publish("state/told/1", "");
    let client = world.connect(durable("a"));
    assert_eq!(
        values(&client),
        [
            retained("told, changed"),
            changed("kept, changed"),
            changed("")
        ]
    );
}

#[test]
fn a_value_that_retention_removed_is_not_sent_to_whoever_was_slow() {
    let world = World::with(Options {
        retention_period: Some(HOUR),
        ..Options::default()
    });
    let slow = world.connect(Connect {
        receive_maximum: 1,
        ..connect("slow")
    });
    slow.subscribe("state/#");
    let other = world.connect(connect("b"));
    for topic in ["state/1", "state/2", "state/3"] {
        other.publish(topic, topic);
    }
    let first = slow.messages();
    assert_eq!(first.len(), 1, "the others wait");
    world.advance(HOUR + Duration::from_secs(1));
    assert_eq!(world.store.counted(STATE).count, 0);
    slow.ack(&first);
    assert!(slow.payloads().is_empty());
    other.publish("state/4", "state/4");
    assert_eq!(slow.payloads(), ["state/4"]);
    let superseded = &world.broker.counters().latest_superseded;
    let superseded = superseded.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(superseded, 0, "nothing replaced them");
}

#[test]
fn a_value_never_delivered_is_sent_when_its_session_returns() {
    let world = World::new();
    let client = world.connect(Connect {
        receive_maximum: 1,
        ..durable("a")
    });
    client.subscribe("state/#");
    let other = world.connect(connect("b"));
    for topic in ["state/1", "state/2", "state/3"] {
        other.publish(topic, topic);
    }
    // The second waits for the window when the connection is lost.
    assert_eq!(client.consume(), ["state/1"]);
    let held = client.messages();
    assert_eq!(payload(&held[0]), "state/2");
    client.lose();
    let client = world.connect(durable("a"));
    let again = client.messages();
    let seen: Vec<_> = again.iter().map(|m| (payload(m), m.dup)).collect();
    assert_eq!(
        seen,
        [("state/2".to_owned(), true), ("state/3".to_owned(), false)]
    );
}

#[test]
fn a_value_too_large_for_its_client_is_sent_once_the_client_takes_it() {
    let world = World::new();
    let small = Connect {
        maximum_packet_size: Some(300),
        ..durable("a")
    };
    let client = world.connect(small.clone());
    client.subscribe("state/#");
    let other = world.connect(connect("b"));
    let large = "x".repeat(300);
    other.publish("state/1", &large);
    other.publish("state/2", "after it");
    assert_eq!(client.closed(), Some(Reason::PacketTooLarge));
    client.lose();
    let client = world.connect(small);
    assert_eq!(client.closed(), Some(Reason::PacketTooLarge));
    client.lose();
    let client = world.connect(durable("a"));
    assert_eq!(client.consume(), [large.as_str(), "after it"]);
}

#[test]
fn a_topic_set_and_deleted_while_its_subscriber_was_away_is_sent_as_its_deletion() {
    let world = World::with(Options {
        deletion_retention_period: Some(HOUR),
        ..Options::default()
    });
    let client = world.connect(Connect {
        session_expiry: 100_000,
        ..durable("a")
    });
    client.subscribe("state/#");
    let other = world.connect(connect("b"));
    let away = |client: Client| {
        client.lose();
        other.publish("state/brief", "x");
        other.publish("state/brief", "");
    };
    away(client);
    let back = Connect {
        session_expiry: 100_000,
        ..durable("a")
    };
    let client = world.connect(back.clone());
    assert_eq!(values(&client), [changed("")]);
    // Once the deletion is forgotten there is nothing to tell.
    away(client);
    world.advance(HOUR + Duration::from_secs(360));
    let client = world.connect(back.clone());
    assert_eq!(values(&client), []);
    // Nor is there after a restart, when all that is current is sent.
    away(client);
    let world = world.crash();
    assert_eq!(values(&world.connect(back)), []);
}

#[test]
fn no_local_withholds_a_clients_own_values_from_its_pass_too() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let other = world.connect(connect("b"));
    client.publish("state/own", "own");
    other.publish("state/other", "other");
    client.subscribe_as(SubscribeRequest {
        no_local: true,
        ..request("state/#")
    });
    assert_eq!(values(&client), [retained("other")]);
    client.publish("state/own", "own");
    other.publish("state/own", "of another");
    assert_eq!(values(&client), [changed("of another")]);
}

//! What a session keeps, for how long, and across what.

use super::*;

#[test]
fn a_durable_consumer_goes_on_where_it_was_after_a_crash() {
    let world = World::new();
    let client = world.connect(durable("a"));
    assert_eq!(client.subscribe("events/#"), SubackReason::Granted(1));
    for payload in ["1", "2", "3"] {
        client
            .connection
            .publish(publish("events/x", payload), world.now());
    }
    world.settle();
    let messages = client.messages();
    client.ack(&messages[..1]);
    // Acknowledged and not yet stored: it may come again, and never goes missing.
    let early = world.store.crash().position("a", EVENTS);
    assert_eq!(early, Some(1));
    world.advance(Duration::from_millis(200));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(2));
    let world = world.crash();
    let client = world.connect(durable("a"));
    assert!(client.connack.session_present);
    assert_eq!(client.consume(), ["2", "3"]);
}

#[test]
fn a_position_stays_at_the_lowest_that_is_not_acknowledged() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    for payload in ["1", "2", "3"] {
        client
            .connection
            .publish(publish("events/x", payload), world.now());
    }
    world.settle();
    let messages = client.messages();
    client.ack(&messages[1..]);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(1));
    client.ack(&messages[..1]);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(4));
}

#[test]
fn what_was_under_way_is_sent_again_with_dup_under_its_identifier() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.publish("events/x", "1");
    client
        .connection
        .publish(publish("events/x", "2"), world.now());
    world.settle();
    let first = client.messages();
    let ids: Vec<u16> = first.iter().map(|message| message.packet_id).collect();
    client.lose();
    let client = world.connect(durable("a"));
    client
        .connection
        .publish(publish("events/x", "3"), world.now());
    world.settle();
    let again = client.messages();
    let seen: Vec<_> = again
        .iter()
        .map(|m| (payload(m), m.packet_id, m.dup))
        .collect();
    assert!(
        ids.iter()
            .all(|id| seen[..ids.len()].iter().any(|s| s.1 == *id))
    );
    assert!(seen[..ids.len()].iter().all(|(_, _, dup)| *dup));
    assert_eq!(seen.last().unwrap().0, "3");
    assert!(!seen.last().unwrap().2);
    client.ack(&again);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(4));
}

#[test]
fn a_delivery_that_cannot_be_read_to_be_sent_again_is_not_stepped_over() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.publish("events/x", "1");
    let first = client.messages();
    client.lose();
    world.store.set_unreadable(Some("a bad sector"));
    let client = world.connect(durable("a"));
    assert_eq!(client.closed(), Some(Reason::ImplementationSpecific));
    world.store.set_unreadable(None);
    client.lose();
    let client = world.connect(durable("a"));
    let again = client.messages();
    assert_eq!(again.len(), 1);
    assert_eq!(
        (again[0].packet_id, again[0].dup),
        (first[0].packet_id, true)
    );
}

#[test]
fn a_clean_disconnect_is_closed_only_once_everything_is_stored() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.publish("events/x", "1");
    client.consume();
    let last = Disconnect {
        reason_code: 0,
        session_expiry: None,
    };
    client.connection.disconnect(last, world.now());
    let mut out = Vec::new();
    let taken = client.connection.take(1000, &mut out, world.now());
    assert!(matches!(taken, Taken::Idle), "{taken:?}");
    world.settle();
    let taken = client.connection.take(1000, &mut out, world.now());
    assert!(matches!(taken, Taken::Close), "{taken:?}");
    assert_eq!(world.store.crash().position("a", EVENTS), Some(2));
}

#[test]
fn a_disconnect_whose_writes_are_refused_closes_and_is_written_again() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.publish("events/x", "1");
    client.consume();
    world
        .store
        .refuse_when(|_| Some(crate::storage::StoreError::ProviderFull));
    client.disconnect();
    let mut out = Vec::new();
    let taken = client.connection.take(1000, &mut out, world.now());
    assert!(matches!(taken, Taken::Close), "{taken:?}");
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(1));
    world.store.refuse_nothing();
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(2));
}

#[test]
fn a_session_ends_with_its_connection_or_when_its_expiry_passes() {
    let world = World::new();
    let short = || Connect {
        session_expiry: 10,
        ..durable("a")
    };
    world.connect(short()).lose();
    world.advance(Duration::from_secs(9));
    let client = world.connect(short());
    assert!(client.connack.session_present);
    client.subscribe("events/#");
    client.lose();
    world.advance(Duration::from_secs(10));
    assert!(world.store.crash().scan_all().is_empty());
    assert_eq!(world.broker.session_counts(), (0, 0));
    assert!(!world.connect(short()).connack.session_present);

    let passing = Connect {
        clean_start: false,
        ..connect("b")
    };
    world.connect(passing.clone()).lose();
    assert!(!world.connect(passing).connack.session_present);
}

#[test]
fn an_expiry_found_by_the_connect_ends_the_session_too() {
    let world = World::new();
    let client = world.connect(Connect {
        session_expiry: 10,
        ..durable("a")
    });
    client.subscribe("events/#");
    client.lose();
    world.pass(Duration::from_secs(10));
    assert!(!world.connect(durable("a")).connack.session_present);
}

#[test]
fn an_expiry_counts_through_a_stop_and_from_the_start_where_nobody_wrote_the_end() {
    let world = World::new();
    world.connect(durable("away")).lose();
    let _connected = world.connect(durable("connected"));
    world.pass(Duration::from_secs(3000));
    let world = world.crash();
    world.advance(Duration::from_secs(601));
    assert!(!world.connect(durable("away")).connack.session_present);
    assert!(world.connect(durable("connected")).connack.session_present);

    let world = World::new();
    world.connect(durable("away")).lose();
    world.pass(Duration::from_secs(3600));
    let world = world.crash();
    assert_eq!(world.broker.session_counts(), (0, 0));
    assert!(world.store.crash().scan_all().is_empty());
}

#[test]
fn clean_start_ends_the_old_session_whole_in_one_write() {
    let world = World::new();
    let old = world.connect(durable("a"));
    old.subscribe("events/#");
    old.lose();
    let client = world.connect(Connect {
        session_expiry: 3600,
        ..connect("a")
    });
    assert!(!client.connack.session_present);
    let world = world.crash();
    let client = world.connect(durable("a"));
    assert!(client.connack.session_present);
    assert_eq!(world.store.crash().position("a", EVENTS), None);
    client.publish("events/x", "1");
    assert!(client.payloads().is_empty());
}

#[test]
fn a_position_that_retention_passed_ends_the_session_before_the_connack() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.lose();
    let other = world.connect(connect("b"));
    for payload in ["1", "2", "3"] {
        other.publish("events/x", payload);
    }
    world.store.put(crate::storage::Operation::Trim {
        channel: EVENTS,
        floor: 3,
    });
    let world = world.crash();
    let client = world.connect(durable("a"));
    assert!(!client.connack.session_present);
    assert_eq!(client.subscribe("events/#"), SubackReason::Granted(1));
    assert_eq!(client.payloads(), ["3"]);
    let lost = &world.broker.counters().position_lost_records;
    assert_eq!(lost.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn a_disconnect_may_shorten_a_session_and_not_begin_one() {
    let world = World::new();
    let client = world.connect(durable("a"));
    let ending = |session_expiry| Disconnect {
        reason_code: 0,
        session_expiry: Some(session_expiry),
    };
    client.connection.disconnect(ending(0), world.now());
    world.settle();
    assert!(world.store.crash().scan_all().is_empty());
    let client = world.connect(connect("b"));
    client.connection.disconnect(ending(5), world.now());
    assert_eq!(client.closed(), Some(Reason::ProtocolError));
}

#[test]
fn an_expiry_over_the_longest_is_capped_and_told() {
    let world = World::new();
    let for_ever = Connect {
        session_expiry: u32::MAX,
        ..connect("a")
    };
    let most = Settings::default().max_session_expiry;
    assert_eq!(world.connect(for_ever).connack.session_expiry, Some(most));
    assert_eq!(world.connect(durable("b")).connack.session_expiry, None);
}

#[test]
fn a_resumed_latest_subscriber_is_sent_what_changed() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("state/#");
    let other = world.connect(connect("b"));
    other.publish("state/1", "one");
    other.publish("state/2", "two");
    assert_eq!(client.consume(), ["one", "two"]);
    client.lose();
    other.publish("state/2", "two again");
    let client = world.connect(durable("a"));
    assert_eq!(client.consume(), ["two again"]);
    // Across a restart the mark is lost and all of it is sent.
    let world = world.crash();
    let client = world.connect(durable("a"));
    assert_eq!(client.consume(), ["one", "two again"]);
}

#[test]
fn a_value_replaced_while_it_was_under_way_is_not_sent_again() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("state/#");
    let other = world.connect(connect("b"));
    other.publish("state/1", "old");
    assert_eq!(client.payloads(), ["old"]);
    client.lose();
    other.publish("state/1", "new");
    let client = world.connect(durable("a"));
    let messages = client.messages();
    assert_eq!(messages.iter().map(payload).collect::<Vec<_>>(), ["new"]);
    assert!(!messages[0].dup);
}

#[test]
fn a_quiet_reader_is_moved_past_what_does_not_match_it() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/mine");
    client.take();
    let other = world.connect(connect("b"));
    for _ in 0..5 {
        other.publish("events/theirs", "x");
    }
    for _ in 0..61 {
        world.advance(Duration::from_secs(1));
    }
    assert_eq!(world.store.crash().position("a", EVENTS), Some(6));
    other.publish("events/mine", "seen");
    assert_eq!(client.consume(), ["seen"]);
}

#[test]
fn the_stored_session_is_not_started_blank_where_it_cannot_be_read() {
    let world = World::new();
    world.store.put(crate::storage::Operation::Put {
        space: crate::storage::Space::Sessions,
        key: Bytes::from_static(b"a"),
        value: Bytes::from_static(b"{"),
    });
    let opened = Broker::open(
        BrokerSetup {
            settings: Settings::default(),
            channels: Vec::new(),
            session_store: Arc::new(world.store.clone()),
            broadcast_log: BROADCAST_LOG,
            retained: RetainedSetup {
                store: Arc::new(world.store.clone()),
                channel: RETAINED,
                retention_period: None,
            },
            clock: Arc::new(Now::default),
            timer: Arc::new(|| {}),
        },
        Now::default(),
    );
    assert!(opened.is_err_and(|error| error.to_string().contains("client `a`")));
}

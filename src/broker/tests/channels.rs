//! What a subscriber is served from append and latest channels.

use super::*;

#[test]
fn an_append_channel_is_replayed_from_the_floor_or_from_now() {
    let world = World::new();
    let client = world.connect(connect("a"));
    for channel in ["events", "tail"] {
        client.publish(&format!("{channel}/x"), "before");
    }
    client.subscribe("events/#");
    client.subscribe("tail/#");
    for channel in ["events", "tail"] {
        client
            .connection
            .publish(publish(&format!("{channel}/x"), "after"), world.now());
    }
    world.settle();
    let mut seen: Vec<(String, String)> = client
        .messages()
        .iter()
        .map(|m| (String::from_utf8(m.topic.to_vec()).unwrap(), payload(m)))
        .collect();
    seen.sort();
    let expected = [
        ("events/x", "after"),
        ("events/x", "before"),
        ("tail/x", "after"),
    ];
    assert_eq!(seen, expected.map(|(t, p)| (t.to_owned(), p.to_owned())));
}

#[test]
fn a_record_names_its_channel_only_to_a_filter_that_reaches_several() {
    let world = World::new();
    let (one, all) = (world.connect(connect("a")), world.connect(connect("b")));
    one.subscribe("events/#");
    all.subscribe("#");
    world.connect(connect("c")).publish("events/x", "x");
    let label = |client: &Client| property(&client.messages()[0], "saguin-channel");
    assert_eq!(label(&one), None);
    assert_eq!(label(&all).as_deref(), Some("events"));
}

#[test]
fn a_wildcard_reaches_channels_and_broadcast_and_never_a_queue() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.subscribe("#");
    let other = world.connect(connect("b"));
    for topic in ["events/1", "state/1", "jobs/1", "live"] {
        other.publish(topic, topic);
    }
    let mut seen = client.payloads();
    seen.sort();
    assert_eq!(seen, ["events/1", "live", "state/1"]);
}

#[test]
fn current_values_carry_retain_and_changes_do_not() {
    let world = World::new();
    let other = world.connect(connect("b"));
    other.publish("state/1", "now");
    let client = world.connect(connect("a"));
    client.subscribe("state/#");
    let now = client.messages();
    other.publish("state/1", "then");
    other.publish("state/1", "");
    let then = client.messages();
    assert_eq!((payload(&now[0]).as_str(), now[0].retain), ("now", true));
    // Both changes were waiting for one topic: only the deletion is left of them.
    assert_eq!(then.len(), 1);
    assert_eq!((payload(&then[0]).as_str(), then[0].retain), ("", false));
}

#[test]
fn retain_handling_is_honoured() {
    let world = World::new();
    let other = world.connect(connect("b"));
    other.publish("state/1", "value");
    other.publish("events/1", "old");
    let client = world.connect(connect("a"));
    let handling = |filter, retain_handling| SubscribeRequest {
        retain_handling,
        ..request(filter)
    };
    client.subscribe_as(handling("state/#", 2));
    assert!(client.payloads().is_empty());
    client.subscribe_as(handling("state/#", 1));
    assert!(client.payloads().is_empty());
    client.subscribe_as(handling("state/#", 0));
    assert_eq!(client.payloads(), ["value"]);
    client.subscribe_as(handling("events/#", 2));
    other.publish("events/1", "new");
    assert_eq!(client.payloads(), ["new"]);
}

#[test]
fn deletions_are_part_of_a_pass_only_where_they_are_asked_for() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.publish("state/1", "x");
    client.publish("state/1", "");
    client.subscribe("state/#");
    assert!(client.messages().is_empty());
    let subscribe = Subscribe {
        packet_id: 1,
        identifier: None,
        filters: vec![request("state/#")],
        user_properties: pairs(&[("saguin-deletions", "1")]),
    };
    client.connection.subscribe(&subscribe);
    assert_eq!(client.payloads(), [""]);
}

#[test]
fn a_consumer_that_retention_passes_while_connected_goes_on_at_the_floor() {
    let world = World::new();
    let client = world.connect(Connect {
        receive_maximum: 1,
        ..connect("a")
    });
    client.subscribe("events/#");
    let other = world.connect(connect("b"));
    for payload in ["1", "2", "3", "4"] {
        other.publish("events/x", payload);
    }
    let first = client.messages();
    assert_eq!(first.len(), 1);
    world.store.put(crate::storage::Operation::Trim {
        channel: EVENTS,
        floor: 4,
    });
    world.advance(Duration::from_secs(1));
    client.ack(&first);
    assert_eq!(client.payloads(), ["4"]);
    let lost = &world.broker.counters().position_lost_records;
    assert_eq!(lost.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn dead_letters_are_read_like_any_append_channel() {
    let world = World::with(Options {
        queue: QueueSettings {
            job_expires_after: Some(Duration::from_secs(60)),
            ..QueueSettings::default()
        },
        ..Options::default()
    });
    let client = world.connect(connect("a"));
    assert_eq!(client.subscribe("jobs/__dlq/#"), SubackReason::Granted(1));
    client.publish("jobs/x", "late");
    world.advance(Duration::from_secs(61));
    let letters = client.messages();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].topic, "jobs/__dlq/x");
    assert_eq!(
        property(&letters[0], "saguin-dlq-reason").as_deref(),
        Some("expired")
    );
}

#[test]
fn a_deletion_on_its_way_is_sent_again_and_a_value_of_a_pass_keeps_its_flag() {
    let world = World::new();
    let publisher = world.connect(connect("p"));
    publisher.publish("state/kept", "1");
    let client = world.connect(durable("a"));
    client.subscribe("state/#");
    publisher.publish("state/gone", "1");
    publisher.publish("state/gone", "");
    let seen = |messages: Vec<OutgoingPublish>| -> Vec<(String, String, bool)> {
        let tell = |m: &OutgoingPublish| {
            let topic = String::from_utf8(m.topic.to_vec()).unwrap();
            (topic, payload(m), m.retain)
        };
        messages.iter().map(tell).collect()
    };
    let first = seen(client.messages());
    let expected = [("state/kept", "1", true), ("state/gone", "", false)];
    let expected = expected.map(|(t, p, retain)| (t.to_owned(), p.to_owned(), retain));
    assert_eq!(first, expected);
    client.lose();
    let client = world.connect(durable("a"));
    let again = client.messages();
    assert!(again.iter().all(|message| message.dup));
    assert_eq!(seen(again), expected);
}

#[test]
fn a_subscribe_that_could_not_be_stored_has_skipped_nothing() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    world.connect(connect("p")).publish("events/x", "1");
    world
        .store
        .refuse_when(|_| Some(crate::storage::StoreError::ProviderFull));
    let live_only = SubscribeRequest {
        retain_handling: 2,
        ..request("events/#")
    };
    // No room is a bound that was reached, and not a failure.
    let refused = SubackReason::Refused(Reason::QuotaExceeded);
    assert_eq!(client.subscribe_as(live_only), refused);
    world.store.refuse_nothing();
    assert_eq!(client.consume(), ["1"]);
}

#[test]
fn values_that_the_filter_matches_no_more_are_counted_at_the_start() {
    let World {
        broker,
        store,
        time,
        settings,
        mut channels,
    } = {
        let world = World::new();
        let client = world.connect(connect("a"));
        for topic in ["state/a", "state/b", "state/b/c"] {
            client.publish(topic, "1");
        }
        world
    };
    let latest = crate::broker::topic::ChannelIndex(1);
    assert_eq!(broker.report_strays(latest), 0);
    channels[1].source.filter = ChannelFilter::parse("state/b/#").unwrap();
    let world = World::open(settings, channels, store, time);
    assert_eq!(world.broker.report_strays(latest), 1);
    // They stay where they were set, for whoever asks for them.
    let client = world.connect(connect("b"));
    client.subscribe("#");
    assert_eq!(client.messages().len(), 3);
}

#[test]
fn what_is_replaced_while_it_waits_is_counted() {
    let world = World::new();
    let client = world.connect(Connect {
        receive_maximum: 1,
        ..connect("a")
    });
    client.subscribe("state/#");
    let publisher = world.connect(connect("p"));
    publisher.publish("state/a", "1");
    publisher.publish("state/b", "1");
    let first = client.messages();
    assert_eq!(first.len(), 1);
    publisher.publish("state/b", "2");
    client.ack(&first);
    assert_eq!(client.consume(), ["2"]);
    let counted = &world.broker.counters().latest_superseded;
    assert_eq!(counted.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn filters_of_one_subscribe_are_served_alike_in_any_order() {
    for first in [0, 1] {
        let world = World::new();
        let other = world.connect(connect("b"));
        other.publish("events/live", "old");
        other.publish("events/all", "old, and replayed");
        let client = world.connect(connect("a"));
        let mut filters = vec![
            SubscribeRequest {
                retain_handling: 2,
                ..request("events/live")
            },
            request("events/all"),
        ];
        filters.rotate_left(first);
        let subscribe = Subscribe {
            packet_id: 1,
            identifier: None,
            filters,
            user_properties: UserPairs::default(),
        };
        client.connection.subscribe(&subscribe);
        world.settle();
        assert_eq!(client.consume(), ["old, and replayed"], "{first} first");
        other.publish("events/live", "new");
        assert_eq!(client.consume(), ["new"], "{first} first");
    }
}

#[test]
fn retain_handling_2_on_a_stored_position_commits_it_at_the_head_at_once() {
    for hello in [
        durable("a"),
        Connect {
            session_expiry: 60,
            ..durable("a")
        },
    ] {
        let world = World::new();
        let other = world.connect(connect("b"));
        let client = world.connect(Connect {
            receive_maximum: 1,
            ..hello.clone()
        });
        client.subscribe("events/#");
        for number in ["1", "2", "3"] {
            other.publish("events/x", number);
        }
        let under_way = client.messages();
        assert_eq!(under_way.len(), 1);
        assert_eq!(world.store.crash().position("a", EVENTS), Some(1));
        let from_now = SubscribeRequest {
            retain_handling: 2,
            ..request("events/#")
        };
        assert_eq!(client.subscribe_as(from_now), SubackReason::Granted(1));
        assert_eq!(world.store.crash().position("a", EVENTS), Some(4));
        // What was under way is void.
        client.ack(&under_way);
        assert!(client.payloads().is_empty());
        let world = world.crash();
        let client = world.connect(hello);
        assert!(client.payloads().is_empty());
        world.connect(connect("b")).publish("events/x", "4");
        assert_eq!(client.consume(), ["4"]);
    }
}

#[test]
fn an_expiry_removes_a_record_from_no_kind_of_channel() {
    let world = World::with(Options {
        queue: QueueSettings {
            job_expires_after: Some(Duration::from_secs(60)),
            ..QueueSettings::default()
        },
        ..Options::default()
    });
    let other = world.connect(connect("b"));
    let publish_expiring = |topic: &str| {
        other.send(Publish {
            properties: PublishProperties {
                expiry_seconds: Some(1),
                ..PublishProperties::default()
            },
            ..publish(topic, topic)
        })
    };
    for topic in ["events/1", "state/1", "jobs/1"] {
        assert_eq!(publish_expiring(topic), Reason::Success);
    }
    world.advance(Duration::from_secs(2));
    let client = world.connect(connect("a"));
    for filter in ["events/#", "state/#", "$saguin/queue/jobs", "jobs/__dlq/#"] {
        client.subscribe(filter);
    }
    let mut seen = client.messages();
    // Its dead letter outlives it as well.
    client.lose();
    world.advance(Duration::from_secs(61));
    let client = world.connect(connect("a"));
    client.subscribe("jobs/__dlq/#");
    seen.extend(client.messages());
    let topics: std::collections::BTreeSet<_> = seen.iter().map(|m| m.topic.clone()).collect();
    let expected = ["events/1", "jobs/1", "jobs/__dlq/1", "state/1"];
    assert_eq!(
        topics,
        expected
            .map(|topic| Bytes::from_static(topic.as_bytes()))
            .into()
    );
    for message in &seen {
        assert_eq!(
            property(message, "saguin-expires").as_deref(),
            Some("1700000001000"),
            "{message:?}"
        );
        assert_ne!(message.properties[0], 0x02, "a Message Expiry of nothing");
    }
}

#[test]
fn a_will_is_its_clients_own_where_no_local_asks() {
    let world = World::new();
    let quiet = |client: &Client| {
        client.subscribe_as(SubscribeRequest {
            no_local: true,
            ..request("events/#")
        })
    };
    let armed = Connect {
        will: will("events/will", "gone", 0),
        ..durable("a")
    };
    let client = world.connect(armed);
    quiet(&client);
    let other = world.connect(connect("b"));
    quiet(&other);
    client.lose();
    assert_eq!(other.consume(), ["gone"]);
    let client = world.connect(durable("a"));
    assert!(client.payloads().is_empty());
    other.publish("events/x", "heard");
    assert_eq!(client.consume(), ["heard"]);
}

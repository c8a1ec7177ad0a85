//! A cursor over current values: the pass, the changes, and what a slow subscriber misses.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::cursor::ReadBound;
use super::*;
use crate::storage::testing::{ModelStore, message};
use crate::storage::{ChannelId, Operation, Store};

const VALUES: ChannelId = ChannelId(1);

fn bounds(records: usize, in_flight: usize) -> Bounds {
    Bounds {
        read: ReadBound {
            records,
            bytes: 1 << 20,
        },
        in_flight,
    }
}

fn set(store: &ModelStore, topic: &str, payload: &str) {
    let mut value = message(topic, payload);
    value.retain = true;
    store.put(Operation::Set {
        channel: VALUES,
        message: value,
    });
}

fn head(store: &ModelStore) -> u64 {
    store.counters(VALUES).next
}

fn at_qos(qos: u8) -> impl FnMut(Scope, &Record) -> Option<Selection> {
    move |_, _| {
        Some(Selection {
            qos,
            ..Selection::default()
        })
    }
}

fn next(
    consumer: &mut LatestConsumer,
    store: &ModelStore,
    matches: &mut dyn FnMut(Scope, &Record) -> Option<Selection>,
) -> Option<Box<Delivery>> {
    loop {
        match consumer.next(matches) {
            Next::Send(delivery) => return Some(delivery),
            Next::Wait => return None,
            Next::Read(request) => {
                let answer = store.changes_from(VALUES, request.offset, request.limit);
                consumer.filled(&request, answer).unwrap();
            }
        }
    }
}

/// `topic=payload`, with `!` where RETAIN is set.
fn show(delivery: &Delivery) -> String {
    let message = &delivery.record.message;
    format!(
        "{}{}={}",
        if delivery.retain { "!" } else { "" },
        String::from_utf8_lossy(&message.topic),
        String::from_utf8_lossy(&message.payload)
    )
}

fn send_all_with(
    consumer: &mut LatestConsumer,
    store: &ModelStore,
    matches: &mut dyn FnMut(Scope, &Record) -> Option<Selection>,
) -> Vec<String> {
    consumer.wake(head(store));
    let mut sent = Vec::new();
    while let Some(delivery) = next(consumer, store, matches) {
        sent.push(show(&delivery));
        consumer.sent(&delivery);
    }
    sent
}

fn send_all(consumer: &mut LatestConsumer, store: &ModelStore) -> Vec<String> {
    send_all_with(consumer, store, &mut at_qos(0))
}

fn subscribed(store: &ModelStore, deletions: bool) -> LatestConsumer {
    let mut consumer = LatestConsumer::new(head(store), bounds(2, 100));
    consumer.begin_pass(head(store), deletions).unwrap();
    consumer
}

#[test]
fn a_subscribe_gets_every_current_value_marked_retain_then_changes_without() {
    let store = ModelStore::new();
    for (topic, payload) in [("a", "1"), ("b", "1"), ("c", "1"), ("a", "2")] {
        set(&store, topic, payload);
    }
    let mut consumer = subscribed(&store, false);
    assert_eq!(send_all(&mut consumer, &store), ["!b=1", "!c=1", "!a=2"]);
    set(&store, "b", "2");
    assert_eq!(send_all(&mut consumer, &store), ["b=2"]);
    assert_eq!(send_all(&mut consumer, &store), [] as [&str; 0]);
}

#[test]
fn the_publishers_flag_is_kept_on_changes_only_if_asked_for() {
    let store = ModelStore::new();
    let mut consumer = LatestConsumer::new(head(&store), bounds(2, 100));
    set(&store, "a", "1");
    let mut as_published = |_: Scope, record: &Record| {
        Some(Selection {
            retain: record.message.retain,
            ..Selection::default()
        })
    };
    assert_eq!(
        send_all_with(&mut consumer, &store, &mut as_published),
        ["!a=1"]
    );
}

#[test]
fn retain_handling_2_gets_changes_only() {
    let store = ModelStore::new();
    set(&store, "a", "1");
    let mut consumer = LatestConsumer::new(head(&store), bounds(2, 100));
    assert_eq!(send_all(&mut consumer, &store), [] as [&str; 0]);
    set(&store, "a", "2");
    assert_eq!(send_all(&mut consumer, &store), ["a=2"]);
}

#[test]
fn deletions_are_in_a_pass_only_if_asked_for_and_always_in_the_changes() {
    let store = ModelStore::new();
    set(&store, "a", "1");
    set(&store, "b", "1");
    set(&store, "a", "");
    let mut plain = subscribed(&store, false);
    assert_eq!(send_all(&mut plain, &store), ["!b=1"]);
    let mut asking = subscribed(&store, true);
    assert_eq!(send_all(&mut asking, &store), ["!b=1", "!a="]);
    set(&store, "b", "");
    assert_eq!(send_all(&mut plain, &store), ["b="]);
}

#[test]
fn a_value_that_changes_during_the_pass_is_sent_once_as_a_change() {
    let store = ModelStore::new();
    for topic in ["a", "b", "c", "d"] {
        set(&store, topic, "1");
    }
    let mut consumer = subscribed(&store, false);
    let first = next(&mut consumer, &store, &mut at_qos(0)).unwrap();
    assert_eq!(show(&first), "!a=1");
    consumer.sent(&first);
    set(&store, "d", "2");
    assert_eq!(send_all(&mut consumer, &store), ["!b=1", "!c=1", "d=2"]);
}

#[test]
fn a_slow_subscriber_has_one_waiting_value_per_topic_the_newest() {
    let store = ModelStore::new();
    let mut consumer = LatestConsumer::new(head(&store), bounds(10, 1));
    for (topic, payload) in [("a", "1"), ("b", "1"), ("c", "1")] {
        set(&store, topic, payload);
    }
    consumer.wake(head(&store));
    let first = next(&mut consumer, &store, &mut at_qos(1)).unwrap();
    consumer.sent(&first);
    // The window is full: b and c wait, and b is replaced twice meanwhile.
    assert!(next(&mut consumer, &store, &mut at_qos(1)).is_none());
    set(&store, "b", "2");
    set(&store, "b", "3");
    consumer.wake(head(&store));
    let mut sent = Vec::new();
    let mut on_its_way = first;
    loop {
        consumer.acked(Era::default(), on_its_way.record.offset);
        let Some(delivery) = next(&mut consumer, &store, &mut at_qos(1)) else {
            break;
        };
        sent.push(show(&delivery));
        consumer.sent(&delivery);
        on_its_way = delivery;
    }
    assert_eq!(sent, ["c=1", "b=3"]);
    assert_eq!(consumer.take_superseded(), 1);
}

#[test]
fn a_value_not_taken_gives_way_to_the_one_that_replaced_it() {
    let store = ModelStore::new();
    set(&store, "a", "1");
    set(&store, "b", "1");
    let mut consumer = subscribed(&store, false);
    let refused = next(&mut consumer, &store, &mut at_qos(0)).unwrap();
    assert_eq!(show(&refused), "!a=1");
    set(&store, "a", "2");
    assert_eq!(send_all(&mut consumer, &store), ["!b=1", "a=2"]);
}

#[test]
fn a_second_subscribe_gets_its_own_pass_and_disturbs_no_change() {
    let store = ModelStore::new();
    set(&store, "a", "1");
    set(&store, "b", "1");
    let mut consumer = LatestConsumer::new(head(&store), bounds(10, 100));
    set(&store, "a", "2");
    consumer.wake(head(&store));
    let waiting = next(&mut consumer, &store, &mut at_qos(0)).unwrap();
    assert_eq!(show(&waiting), "a=2");
    set(&store, "a", "3");
    consumer.begin_pass(head(&store), false).unwrap();
    // a=2 was read ahead; the pass brings a=3, after which a=2 must not come.
    assert_eq!(send_all(&mut consumer, &store), ["!b=1", "!a=3", "a=3"]);
}

#[test]
fn a_pass_begins_at_the_first_value_whatever_was_read_ahead() {
    let store = ModelStore::new();
    let mut consumer = LatestConsumer::new(head(&store), bounds(10, 100));
    set(&store, "a", "1");
    set(&store, "b", "1");
    consumer.wake(head(&store));
    let first = next(&mut consumer, &store, &mut at_qos(0)).unwrap();
    consumer.sent(&first);
    consumer.begin_pass(head(&store), false).unwrap();
    assert_eq!(send_all(&mut consumer, &store), ["!a=1", "!b=1", "b=1"]);
}

#[test]
fn a_pass_serves_the_subscriptions_that_began_it() {
    let store = ModelStore::new();
    set(&store, "a", "1");
    let mut consumer = LatestConsumer::new(head(&store), bounds(10, 100));
    let first = consumer.begin_pass(head(&store), false).unwrap();
    let second = consumer.begin_pass(head(&store), false).unwrap();
    set(&store, "a", "2");
    let mut scopes = Vec::new();
    let mut matches = |scope: Scope, record: &Record| {
        scopes.push((scope, record.message.payload.clone()));
        Some(Selection::default())
    };
    send_all_with(&mut consumer, &store, &mut matches);
    // Neither pass reaches what came after it: it is a change.
    assert_eq!(scopes, [(Scope::Live, "2".into())]);
    assert_ne!(first, second);
}

#[test]
fn passes_that_wait_are_bounded() {
    let store = ModelStore::new();
    let mut consumer = LatestConsumer::new(1, bounds(10, 100));
    for _ in 0..MAX_PASSES {
        consumer.begin_pass(1, false).unwrap();
    }
    assert_eq!(consumer.begin_pass(1, false), Err(TooManyPasses));
    send_all(&mut consumer, &store);
    assert!(consumer.begin_pass(1, false).is_ok());
}

#[test]
fn a_resumed_session_gets_only_what_changed_deletions_included() {
    let store = ModelStore::new();
    for topic in ["a", "b", "c"] {
        set(&store, topic, "1");
    }
    let mut consumer = subscribed(&store, false);
    send_all(&mut consumer, &store);
    consumer.away();
    set(&store, "b", "2");
    set(&store, "c", "");
    assert_eq!(send_all(&mut consumer, &store), ["b=2", "c="]);
}

#[test]
fn an_unfinished_pass_goes_on_after_a_resume() {
    let store = ModelStore::new();
    for topic in ["a", "b", "c"] {
        set(&store, topic, "1");
    }
    let mut consumer = subscribed(&store, false);
    let first = next(&mut consumer, &store, &mut at_qos(1)).unwrap();
    consumer.sent(&first);
    consumer.away();
    set(&store, "b", "2");
    assert_eq!(send_all(&mut consumer, &store), ["!c=1", "b=2"]);
}

#[test]
fn the_mark_stays_below_what_was_not_acknowledged() {
    let store = ModelStore::new();
    for topic in ["a", "b", "c"] {
        set(&store, topic, "1");
    }
    let mut consumer = subscribed(&store, false);
    let mut qos1 = at_qos(1);
    assert_eq!(send_all_with(&mut consumer, &store, &mut qos1).len(), 3);
    assert_eq!(consumer.mark(), 1);
    consumer.acked(Era::default(), 1);
    consumer.acked(Era::default(), 3);
    assert_eq!(consumer.mark(), 2);
    consumer.acked(Era::default(), 2);
    assert_eq!(consumer.mark(), 4);
}

#[test]
fn a_failed_read_is_not_repeated_until_a_wake() {
    let store = ModelStore::new();
    set(&store, "a", "1");
    let mut consumer = subscribed(&store, false);
    let mut matches = at_qos(0);
    let Next::Read(request) = consumer.next(&mut matches) else {
        panic!("a read");
    };
    let failed = consumer.filled(&request, Err(ReadError::Failed("bad".to_owned())));
    assert!(failed.is_err());
    assert!(matches!(consumer.next(&mut matches), Next::Wait));
    assert_eq!(send_all(&mut consumer, &store), ["!a=1"]);
}

#[derive(Clone, Debug)]
enum Step {
    Set(usize, bool),
    Send,
    /// Handed out, and not taken.
    Refuse,
    Ack(usize),
    Pass,
    Away,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_usize, any::<bool>()).prop_map(|(t, delete)| Step::Set(t, delete)),
        10 => Just(Step::Send),
        2 => Just(Step::Refuse),
        6 => any::<usize>().prop_map(Step::Ack),
        1 => Just(Step::Pass),
        1 => Just(Step::Away),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_older_value_follows_a_newer_one_and_the_last_one_always_arrives(
        steps in prop::collection::vec(step(), 1..120),
        records in 1..4_usize,
        in_flight in 1..4_usize,
    ) {
        let store = ModelStore::new();
        let mut consumer = LatestConsumer::new(1, bounds(records, in_flight));
        let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut on_its_way = Vec::new();
        let mut matches = at_qos(1);
        let mut steps = steps;
        // At the end everything is taken and acknowledged.
        for _ in 0..200 {
            steps.push(Step::Ack(0));
            steps.push(Step::Send);
        }
        for (n, step) in steps.iter().enumerate() {
            match step {
                Step::Set(topic, delete) => {
                    let payload = if *delete { String::new() } else { n.to_string() };
                    set(&store, ["a", "b", "c", "d"][*topic], &payload);
                }
                Step::Send | Step::Refuse => {
                    consumer.wake(head(&store));
                    let Some(delivery) = next(&mut consumer, &store, &mut matches) else {
                        continue;
                    };
                    if matches!(step, Step::Refuse) {
                        continue;
                    }
                    let offset = delivery.record.offset;
                    let topic = delivery.record.message.topic.to_vec();
                    let before = seen.insert(topic, offset).unwrap_or(0);
                    prop_assert!(offset >= before, "an older value after a newer one");
                    consumer.sent(&delivery);
                    on_its_way.push(offset);
                    prop_assert!(on_its_way.len() <= in_flight);
                }
                Step::Ack(which) => {
                    if !on_its_way.is_empty() {
                        let at = which % on_its_way.len();
                        consumer.acked(Era::default(), on_its_way.swap_remove(at));
                    }
                }
                Step::Pass => {
                    // More than are allowed to wait is refused, which is not what this is about.
                    let _ = consumer.begin_pass(head(&store), true);
                }
                Step::Away => consumer.away(),
            }
            let lowest = on_its_way.iter().min().copied().unwrap_or(u64::MAX);
            prop_assert!(consumer.mark() <= lowest);
        }
        let limit = crate::storage::ReadLimit { records: 100, bytes: u64::MAX };
        for record in store.changes_from(VALUES, 0, limit).unwrap().records {
            let last = seen.get(&record.message.topic[..]).copied();
            prop_assert_eq!(last, Some(record.offset));
        }
        prop_assert_eq!(consumer.mark(), head(&store));
    }
}

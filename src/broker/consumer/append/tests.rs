//! A cursor in an append channel: what it sends, what it steps past, and what may be stored.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::cursor::ReadBound;
use super::*;
use crate::storage::testing::{ModelStore, message};
use crate::storage::{ChannelId, Operation, Store};

const LOG: ChannelId = ChannelId(1);

fn bounds(records: usize, in_flight: usize) -> Bounds {
    Bounds {
        read: ReadBound {
            records,
            bytes: 1 << 20,
        },
        in_flight,
    }
}

fn log(records: u64) -> ModelStore {
    let store = ModelStore::new();
    for n in 0..records {
        append(&store, n);
    }
    store
}

fn append(store: &ModelStore, n: u64) {
    let topic = if n % 3 == 2 { "log/other" } else { "log/mine" };
    store.put(Operation::Append {
        channel: LOG,
        message: message(topic, &n.to_string()),
    });
}

fn trim(store: &ModelStore, floor: u64) {
    store.put(Operation::Trim {
        channel: LOG,
        floor,
    });
}

fn wake(consumer: &mut AppendConsumer, store: &ModelStore) {
    let counters = store.counters(LOG);
    consumer.wake(counters.next, counters.floor);
}

fn everything(_: &Record) -> Option<Selection> {
    Some(Selection {
        qos: 1,
        ..Selection::default()
    })
}

fn mine(record: &Record) -> Option<Selection> {
    everything(record).filter(|_| record.message.topic == "log/mine")
}

/// The next delivery, reading as the consumer asks.
fn next(
    consumer: &mut AppendConsumer,
    store: &ModelStore,
    matches: &mut dyn FnMut(&Record) -> Option<Selection>,
) -> Option<Box<Delivery>> {
    loop {
        match consumer.next(matches) {
            Next::Send(delivery) => return Some(delivery),
            Next::Wait => return None,
            Next::Read(request) => {
                let answer = store.read_from(LOG, request.offset, request.limit);
                consumer.filled(&request, answer).unwrap();
            }
        }
    }
}

fn send_all(
    consumer: &mut AppendConsumer,
    store: &ModelStore,
    matches: &mut dyn FnMut(&Record) -> Option<Selection>,
) -> Vec<u64> {
    let mut offsets = Vec::new();
    while let Some(delivery) = next(consumer, store, matches) {
        offsets.push(delivery.record.offset);
        consumer.sent(&delivery);
    }
    offsets
}

#[test]
fn every_matching_record_is_sent_once_in_order() {
    let store = log(9);
    let mut consumer = AppendConsumer::new(1, bounds(2, 100));
    wake(&mut consumer, &store);
    assert_eq!(
        send_all(&mut consumer, &store, &mut mine),
        [1, 2, 4, 5, 7, 8]
    );
    append(&store, 9);
    assert_eq!(send_all(&mut consumer, &store, &mut mine), [] as [u64; 0]);
    wake(&mut consumer, &store);
    assert_eq!(send_all(&mut consumer, &store, &mut mine), [10]);
}

#[test]
fn the_position_is_the_lowest_offset_not_acknowledged() {
    let store = log(6);
    let mut consumer = AppendConsumer::new(1, bounds(10, 100));
    wake(&mut consumer, &store);
    let era = consumer.era();
    assert_eq!(consumer.position(), 1);
    assert_eq!(send_all(&mut consumer, &store, &mut mine), [1, 2, 4, 5]);
    assert_eq!(consumer.position(), 1);
    for (acked, position) in [(4, 1), (1, 2), (2, 5), (5, 7)] {
        consumer.acked(era, acked);
        assert_eq!(consumer.position(), position);
    }
}

#[test]
fn at_qos_0_the_position_moves_as_it_is_sent() {
    let store = log(3);
    let mut consumer = AppendConsumer::new(1, bounds(10, 0));
    wake(&mut consumer, &store);
    let mut matches = |_: &Record| Some(Selection::default());
    let first = next(&mut consumer, &store, &mut matches).unwrap();
    assert_eq!(consumer.position(), 1);
    consumer.sent(&first);
    assert_eq!(consumer.position(), 2);
    assert_eq!(send_all(&mut consumer, &store, &mut matches), [2, 3]);
    assert_eq!(consumer.position(), 4);
}

#[test]
fn a_record_that_was_not_taken_is_neither_stepped_past_nor_lost() {
    let store = log(2);
    let mut consumer = AppendConsumer::new(1, bounds(10, 10));
    wake(&mut consumer, &store);
    let refused = next(&mut consumer, &store, &mut everything).unwrap();
    assert_eq!(consumer.position(), 1);
    let again = next(&mut consumer, &store, &mut everything).unwrap();
    assert_eq!(refused, again);
}

#[test]
fn what_is_on_its_way_is_bounded() {
    let store = log(5);
    let mut consumer = AppendConsumer::new(1, bounds(10, 2));
    wake(&mut consumer, &store);
    assert_eq!(send_all(&mut consumer, &store, &mut everything), [1, 2]);
    assert_eq!(consumer.in_flight(), 2);
    consumer.acked(consumer.era(), 2);
    assert_eq!(send_all(&mut consumer, &store, &mut everything), [3]);
}

#[test]
fn reading_ahead_is_bounded() {
    let store = log(50);
    let mut consumer = AppendConsumer::new(1, bounds(4, 100));
    wake(&mut consumer, &store);
    let Next::Read(request) = consumer.next(&mut everything) else {
        panic!("a read");
    };
    assert_eq!((request.offset, request.limit.records), (1, 4));
    assert!(
        matches!(consumer.next(&mut everything), Next::Wait),
        "one read at a time"
    );
    let answer = store.read_from(LOG, request.offset, request.limit);
    consumer.filled(&request, answer).unwrap();
    for offset in 1..=4 {
        let Next::Send(delivery) = consumer.next(&mut everything) else {
            panic!("what was read goes first");
        };
        assert_eq!(delivery.record.offset, offset);
        consumer.sent(&delivery);
    }
    assert!(matches!(consumer.next(&mut everything), Next::Read(r) if r.offset == 5));
}

#[test]
fn a_floor_that_passes_the_reader_is_reported_and_nothing_below_it_served() {
    let store = log(10);
    let mut consumer = AppendConsumer::new(1, bounds(3, 100));
    wake(&mut consumer, &store);
    // Three records are read ahead, and one of them is sent.
    let first = next(&mut consumer, &store, &mut everything).unwrap();
    consumer.sent(&first);
    trim(&store, 7);
    wake(&mut consumer, &store);
    assert_eq!(
        send_all(&mut consumer, &store, &mut everything),
        [7, 8, 9, 10]
    );
    assert_eq!(consumer.take_lost(), 5);
    assert_eq!(consumer.take_lost(), 0);
}

#[test]
fn a_floor_found_by_the_read_is_reported_too() {
    let store = log(10);
    let mut consumer = AppendConsumer::new(2, bounds(3, 100));
    wake(&mut consumer, &store);
    trim(&store, 11);
    assert_eq!(
        send_all(&mut consumer, &store, &mut everything),
        [] as [u64; 0]
    );
    assert_eq!(consumer.take_lost(), 9);
    assert_eq!(consumer.position(), 11);
}

#[test]
fn a_seek_voids_what_is_on_its_way() {
    let store = log(6);
    let mut consumer = AppendConsumer::new(1, bounds(2, 100));
    wake(&mut consumer, &store);
    let old = consumer.era();
    send_all(&mut consumer, &store, &mut everything);
    consumer.seek(3);
    assert_eq!(consumer.position(), 3);
    assert_eq!(
        send_all(&mut consumer, &store, &mut everything),
        [3, 4, 5, 6]
    );
    for offset in 1..=6 {
        consumer.acked(old, offset);
    }
    assert_eq!(consumer.position(), 3);
    consumer.acked(consumer.era(), 3);
    assert_eq!(consumer.position(), 4);
}

#[test]
fn a_read_from_before_a_seek_is_dropped() {
    let store = log(6);
    let mut consumer = AppendConsumer::new(1, bounds(10, 100));
    wake(&mut consumer, &store);
    let Next::Read(stale) = consumer.next(&mut everything) else {
        panic!("a read");
    };
    consumer.seek(5);
    let Next::Read(request) = consumer.next(&mut everything) else {
        panic!("another read");
    };
    let answer = store.read_from(LOG, stale.offset, stale.limit);
    consumer.filled(&stale, answer).unwrap();
    let answer = store.read_from(LOG, request.offset, request.limit);
    consumer.filled(&request, answer).unwrap();
    assert_eq!(send_all(&mut consumer, &store, &mut everything), [5, 6]);
}

#[test]
fn a_resumed_consumer_serves_what_was_not_sent_and_keeps_its_position() {
    let store = log(6);
    let mut consumer = AppendConsumer::resume(2, &[2, 4], bounds(10, 100));
    wake(&mut consumer, &store);
    assert_eq!(consumer.position(), 2);
    assert_eq!(send_all(&mut consumer, &store, &mut everything), [5, 6]);
    consumer.acked(consumer.era(), 2);
    assert_eq!(consumer.position(), 4);
}

#[test]
fn going_away_gives_up_the_buffer_and_nothing_else() {
    let store = log(6);
    let mut consumer = AppendConsumer::new(1, bounds(10, 100));
    wake(&mut consumer, &store);
    let first = next(&mut consumer, &store, &mut everything).unwrap();
    consumer.sent(&first);
    consumer.away();
    assert_eq!(consumer.position(), 1);
    assert_eq!(
        send_all(&mut consumer, &store, &mut everything),
        [2, 3, 4, 5, 6]
    );
}

#[test]
fn a_failed_read_is_not_repeated_until_a_wake() {
    let store = log(3);
    let mut consumer = AppendConsumer::new(1, bounds(10, 100));
    wake(&mut consumer, &store);
    let Next::Read(request) = consumer.next(&mut everything) else {
        panic!("a read");
    };
    store.set_unreadable(Some("a bad sector"));
    let answer = store.read_from(LOG, request.offset, request.limit);
    assert_eq!(
        consumer.filled(&request, answer),
        Err("a bad sector".to_owned())
    );
    assert!(matches!(consumer.next(&mut everything), Next::Wait));
    store.set_unreadable(None);
    wake(&mut consumer, &store);
    assert_eq!(send_all(&mut consumer, &store, &mut everything), [1, 2, 3]);
}

#[derive(Clone, Debug)]
enum Step {
    Append,
    Trim(u64),
    Send,
    Ack(prop::sample::Index),
    AckOldEra(u64),
    Seek(u64),
    Wake,
    Away,
    /// The broker restarts from the stored position.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Append),
        1 => (0..6_u64).prop_map(Step::Trim),
        10 => Just(Step::Send),
        8 => any::<prop::sample::Index>().prop_map(Step::Ack),
        1 => (1..40_u64).prop_map(Step::AckOldEra),
        1 => (1..40_u64).prop_map(Step::Seek),
        4 => Just(Step::Wake),
        1 => Just(Step::Away),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_consumer_sends_each_matching_record_of_an_era_once_in_order_and_its_position_never_leads(
        steps in prop::collection::vec(step(), 1..150),
        records in 1..5_usize,
        in_flight in 1..4_usize,
    ) {
        let store = ModelStore::new();
        let mut appended = 0;
        let mut consumer = AppendConsumer::new(1, bounds(records, in_flight));
        let mut era = consumer.era();
        // What the consumer owes next, and what it has sent and not been acknowledged, per era.
        let mut owed = 1;
        let mut on_its_way: BTreeSet<u64> = BTreeSet::new();
        let mut expect_lost = 0;
        let mut lost = 0;
        for step in &steps {
            match step {
                Step::Append => {
                    append(&store, appended);
                    appended += 1;
                }
                Step::Trim(by) => {
                    let counters = store.counters(LOG);
                    trim(&store, (counters.floor + by).min(counters.next));
                }
                Step::Send => {
                    wake(&mut consumer, &store);
                    let floor = store.counters(LOG).floor;
                    if owed < floor {
                        expect_lost += floor - owed;
                        owed = floor;
                    }
                    if let Some(delivery) = next(&mut consumer, &store, &mut mine) {
                        let offset = delivery.record.offset;
                        let due = (owed..).find(|offset| (offset - 1) % 3 != 2).unwrap();
                        prop_assert_eq!(offset, due);
                        prop_assert!(offset >= floor);
                        consumer.sent(&delivery);
                        owed = offset + 1;
                        on_its_way.insert(offset);
                    } else {
                        let rest = (owed..=appended).filter(|offset| (offset - 1) % 3 != 2);
                        prop_assert!(on_its_way.len() == in_flight || rest.count() == 0);
                    }
                    prop_assert!(on_its_way.len() <= in_flight);
                }
                Step::Ack(index) => {
                    if !on_its_way.is_empty() {
                        let all: Vec<u64> = on_its_way.iter().copied().collect();
                        let offset = all[index.index(all.len())];
                        consumer.acked(era, offset);
                        on_its_way.remove(&offset);
                    }
                }
                Step::AckOldEra(offset) => {
                    consumer.acked(Era(era.0.wrapping_sub(1)), *offset);
                }
                Step::Seek(offset) => {
                    let counters = store.counters(LOG);
                    let offset = (*offset).clamp(counters.floor, counters.next);
                    consumer.seek(offset);
                    era = consumer.era();
                    owed = offset;
                    on_its_way.clear();
                }
                Step::Wake => {
                    wake(&mut consumer, &store);
                    let floor = store.counters(LOG).floor;
                    if owed < floor {
                        expect_lost += floor - owed;
                        owed = floor;
                    }
                }
                Step::Away => consumer.away(),
                Step::Restart => {
                    let position = consumer.position();
                    lost += consumer.take_lost();
                    let floor = store.counters(LOG).floor;
                    let position = if position < floor { floor } else { position };
                    consumer = AppendConsumer::new(position, bounds(records, in_flight));
                    era = consumer.era();
                    owed = position;
                    on_its_way.clear();
                }
            }
            // Nothing matching below the position is unacknowledged or still owed. A record
            // stepped past is nobody's.
            let position = consumer.position();
            prop_assert!(on_its_way.iter().all(|offset| *offset >= position));
            let owed_matching = (owed..).find(|offset| (offset - 1) % 3 != 2).unwrap();
            prop_assert!(position <= owed_matching);
        }
        // What did not match and was stepped past is not a loss.
        lost += consumer.take_lost();
        prop_assert!(lost <= expect_lost);
    }
}

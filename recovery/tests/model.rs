//! Random operations against the engine and against a plain model, with closing, dying and reading
//! in between, and segments so small that rolling is the common case.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use common::*;
use proptest::prelude::*;
use saguin_log_engine::format::{POSITIONS, position_key, position_value};
use saguin_log_engine::storage::MemFiles;
use saguin_log_engine::{
    Batch, ChannelId, CommitError, Engine, Operation, Options, ReadError, ReadLimit, Target, Tidied,
};

#[derive(Clone, Debug)]
enum Step {
    Append {
        dead: bool,
        len: usize,
    },
    Trim {
        part: u64,
    },
    Enqueue {
        len: usize,
    },
    Attempt {
        pick: usize,
        attempts: u32,
    },
    Resolve {
        pick: usize,
    },
    DeadLetter {
        pick: usize,
    },
    Set {
        key: u8,
        len: usize,
    },
    Remove {
        key: u8,
    },
    Forget {
        key: u8,
        stale: bool,
    },
    Put {
        key: u8,
        value: u8,
    },
    Delete {
        key: u8,
    },
    Hold {
        key: u8,
        len: usize,
    },
    Release {
        pick: usize,
        target: u8,
    },
    Drop {
        pick: usize,
    },
    Position {
        who: u8,
        part: u64,
    },
    DeletePosition {
        who: u8,
    },
    /// Two appends and a job that is not there, in one batch: refused whole.
    Refused,
    Tidy,
    Close,
    Die,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 0..300usize).prop_map(|(dead, len)| Step::Append { dead, len }),
        2 => (0..=100u64).prop_map(|part| Step::Trim { part }),
        4 => (0..100usize).prop_map(|len| Step::Enqueue { len }),
        2 => (any::<usize>(), any::<u32>()).prop_map(|(pick, attempts)| Step::Attempt { pick, attempts }),
        2 => any::<usize>().prop_map(|pick| Step::Resolve { pick }),
        2 => any::<usize>().prop_map(|pick| Step::DeadLetter { pick }),
        3 => (0..5u8, 0..100usize).prop_map(|(key, len)| Step::Set { key, len }),
        2 => (0..5u8).prop_map(|key| Step::Remove { key }),
        1 => (0..5u8, any::<bool>()).prop_map(|(key, stale)| Step::Forget { key, stale }),
        2 => (0..5u8, any::<u8>()).prop_map(|(key, value)| Step::Put { key, value }),
        1 => (0..5u8).prop_map(|key| Step::Delete { key }),
        3 => (0..6u8, 0..200usize).prop_map(|(key, len)| Step::Hold { key, len }),
        2 => (any::<usize>(), 0..4u8).prop_map(|(pick, target)| Step::Release { pick, target }),
        1 => any::<usize>().prop_map(|pick| Step::Drop { pick }),
        2 => (0..4u8, 0..=105u64).prop_map(|(who, part)| Step::Position { who, part }),
        1 => (0..4u8).prop_map(|who| Step::DeletePosition { who }),
        1 => Just(Step::Refused),
        2 => Just(Step::Tidy),
        1 => Just(Step::Close),
        1 => Just(Step::Die),
    ]
}

#[derive(Default)]
struct Log {
    records: BTreeMap<u64, String>,
    next: u64,
    floor: u64,
}

/// What the engine should say.
struct Model {
    logs: [Log; 2],
    jobs: BTreeMap<u64, (String, u32)>,
    next_job: u64,
    map: BTreeMap<Bytes, (u64, Option<String>)>,
    next_change: u64,
    keys: BTreeMap<Bytes, Bytes>,
    held: BTreeMap<Bytes, String>,
    positions: BTreeMap<u8, u64>,
}

impl Model {
    fn new() -> Model {
        let log = || Log {
            next: 1,
            floor: 1,
            ..Log::default()
        };
        Model {
            logs: [log(), log()],
            jobs: BTreeMap::new(),
            next_job: 1,
            map: BTreeMap::new(),
            next_change: 1,
            keys: BTreeMap::new(),
            held: BTreeMap::new(),
            positions: BTreeMap::new(),
        }
    }

    fn append(&mut self, log: usize, body: &str) -> u64 {
        let log = &mut self.logs[log];
        log.records.insert(log.next, body.to_owned());
        log.next += 1;
        log.next - 1
    }

    fn pick(&self, pick: usize) -> Option<u64> {
        let at = pick % self.jobs.len().max(1);
        self.jobs.keys().nth(at).copied()
    }
}

fn key(key: u8) -> Bytes {
    Bytes::from(vec![b'k', key])
}

fn body(len: usize, n: usize) -> String {
    format!("{n}{}", "x".repeat(len))
}

fn offset_of(engine: &Engine, operation: Operation) -> Option<u64> {
    engine.submit(operation).wait().unwrap().offsets[0]
}

/// One step on both sides, and what the engine answered compared at once.
fn apply(engine: &Engine, c: &Channels, model: &mut Model, step: &Step, n: usize) {
    match *step {
        Step::Append { dead, len } => {
            let body = body(len, n);
            let (index, channel) = if dead { (1, c.dead) } else { (0, c.log) };
            assert_eq!(append(engine, channel, &body), model.append(index, &body));
        }
        Step::Trim { part } => {
            let log = &mut model.logs[0];
            let floor = log.floor + (log.next - log.floor) * part / 100;
            if let Some(plan) = engine.plan_trim(c.log, floor).unwrap() {
                assert!(floor > log.floor);
                let gone = log.records.range(..floor).count() as u64;
                assert_eq!(plan.removed(), gone);
                engine.submit(Operation::Trim(plan)).wait().unwrap();
                log.records = log.records.split_off(&floor);
                log.floor = floor;
            } else {
                assert_eq!(floor, log.floor);
            }
        }
        Step::Enqueue { len } => {
            let body = body(len, n);
            let op = Operation::Enqueue {
                channel: c.work,
                record: record(&body),
                max_bytes: None,
            };
            assert_eq!(offset_of(engine, op), Some(model.next_job));
            model.jobs.insert(model.next_job, (body, 0));
            model.next_job += 1;
        }
        Step::Attempt { pick, attempts } => {
            let Some(offset) = model.pick(pick) else {
                return;
            };
            let (first, last) = (1, 2);
            let op = Operation::Attempt {
                channel: c.work,
                offset,
                attempts,
                first,
                last,
            };
            offset_of(engine, op);
            model.jobs.get_mut(&offset).unwrap().1 = attempts;
        }
        Step::Resolve { pick } => {
            let Some(offset) = model.pick(pick) else {
                return;
            };
            offset_of(
                engine,
                Operation::Resolve {
                    channel: c.work,
                    offset,
                },
            );
            model.jobs.remove(&offset);
        }
        Step::DeadLetter { pick } => {
            let Some(offset) = model.pick(pick) else {
                return;
            };
            let (body, _) = model.jobs.remove(&offset).unwrap();
            let record = record(&body);
            let op = Operation::DeadLetter {
                work: c.work,
                offset,
                channel: c.dead,
                record,
            };
            assert_eq!(offset_of(engine, op), Some(model.append(1, &body)));
        }
        Step::Set { key: k, len } => {
            let body = body(len, n);
            let op = Operation::Set {
                channel: c.map,
                key: key(k),
                record: record(&body),
            };
            assert_eq!(offset_of(engine, op), Some(model.next_change));
            model.map.insert(key(k), (model.next_change, Some(body)));
            model.next_change += 1;
        }
        Step::Remove { key: k } => {
            let op = Operation::Remove {
                channel: c.map,
                key: key(k),
                record: record(""),
            };
            let expected = match model.map.get(&key(k)) {
                Some((_, Some(_))) => {
                    model.map.insert(key(k), (model.next_change, None));
                    model.next_change += 1;
                    Some(model.next_change - 1)
                }
                _ => None,
            };
            assert_eq!(offset_of(engine, op), expected);
        }
        Step::Forget { key: k, stale } => {
            let Some(&(offset, _)) = model.map.get(&key(k)) else {
                return;
            };
            let offset = if stale {
                offset.saturating_sub(1)
            } else {
                offset
            };
            offset_of(
                engine,
                Operation::Forget {
                    channel: c.map,
                    key: key(k),
                    offset,
                },
            );
            if !stale {
                model.map.remove(&key(k));
            }
        }
        Step::Put { key: k, value } => {
            let value = Bytes::from(vec![value]);
            offset_of(
                engine,
                Operation::Put {
                    space: 7,
                    key: key(k),
                    value: value.clone(),
                },
            );
            model.keys.insert(key(k), value);
        }
        Step::Delete { key: k } => {
            offset_of(
                engine,
                Operation::Delete {
                    space: 7,
                    key: key(k),
                },
            );
            model.keys.remove(&key(k));
        }
        Step::Hold { key: k, len } => {
            let body = body(len, n);
            let op = Operation::Hold {
                key: key(k),
                record: record(&body),
            };
            let answer = engine.submit(op).wait();
            match model.held.entry(key(k)) {
                Entry::Occupied(_) => {
                    assert_eq!(answer, Err(CommitError::AlreadyHeld { key: key(k) }));
                }
                Entry::Vacant(free) => {
                    assert_eq!(answer.unwrap().offsets, [None]);
                    free.insert(body);
                }
            }
        }
        Step::Release { pick, target } => release(engine, c, model, pick, target),
        Step::Drop { pick } => {
            let Some(key) = held(model, pick) else { return };
            offset_of(engine, Operation::Drop { key: key.clone() });
            model.held.remove(&key);
            let again = engine.submit(Operation::Drop { key: key.clone() }).wait();
            assert_eq!(again, Err(CommitError::NotHeld { key }));
        }
        Step::Position { who, part } => {
            let next = model.logs[0].next;
            let position = next * part / 100;
            let answer = engine.submit(put_position(c, who, position)).wait();
            if position <= next {
                answer.unwrap();
                model.positions.insert(who, position);
            } else {
                let refused = CommitError::PositionAhead {
                    channel: c.log,
                    next,
                    position,
                };
                assert_eq!(answer, Err(refused));
            }
        }
        Step::DeletePosition { who } => {
            let key = Bytes::from(position_key(c.log.0, &[who]));
            let space = POSITIONS;
            offset_of(engine, Operation::Delete { space, key });
            model.positions.remove(&who);
        }
        Step::Refused => {
            let put = |channel: ChannelId| Operation::Append {
                channel,
                record: record("never"),
                max_bytes: None,
            };
            let wrong = Operation::Resolve {
                channel: c.work,
                offset: u64::MAX,
            };
            let batch = Batch {
                operations: vec![put(c.log), put(c.dead), wrong],
            };
            let refused = engine.submit(batch).wait();
            assert!(matches!(refused, Err(CommitError::NoSuchItem { .. })));
        }
        Step::Tidy => while engine.tidy().unwrap() != Tidied::Nothing {},
        Step::Close | Step::Die => {}
    }
}

fn held(model: &Model, pick: usize) -> Option<Bytes> {
    let at = pick % model.held.len().max(1);
    model.held.keys().nth(at).cloned()
}

fn put_position(c: &Channels, who: u8, position: u64) -> Operation {
    Operation::Put {
        space: POSITIONS,
        key: position_key(c.log.0, &[who]).into(),
        value: Bytes::copy_from_slice(&position_value(position)),
    }
}

/// What was held is read back, and goes to one of the places a record can go to.
fn release(engine: &Engine, c: &Channels, model: &mut Model, pick: usize, target: u8) {
    let Some(hold) = held(model, pick) else {
        return;
    };
    let body = model.held.remove(&hold).unwrap();
    let read = engine.held(&hold).unwrap().unwrap();
    assert_eq!(read.body, body.as_bytes());
    let record = record(&body);
    let (target, expected) = match target {
        0 => {
            let (channel, max_bytes) = (c.log, None);
            let expected = model.append(0, &body);
            let target = Target::Append {
                channel,
                record,
                max_bytes,
            };
            (target, expected)
        }
        1 => {
            let (channel, max_bytes) = (c.work, None);
            model.jobs.insert(model.next_job, (body, 0));
            model.next_job += 1;
            let target = Target::Enqueue {
                channel,
                record,
                max_bytes,
            };
            (target, model.next_job - 1)
        }
        _ => {
            let (channel, key) = (c.map, key(1));
            model
                .map
                .insert(key.clone(), (model.next_change, Some(body)));
            model.next_change += 1;
            let target = Target::Set {
                channel,
                key,
                record,
            };
            (target, model.next_change - 1)
        }
    };
    let op = Operation::Release { key: hold, target };
    assert_eq!(offset_of(engine, op), Some(expected));
}

fn compare(engine: &Engine, c: &Channels, model: &Model) {
    for (log, channel) in model.logs.iter().zip([c.log, c.dead]) {
        let expected: Vec<_> = log.records.clone().into_iter().collect();
        assert_eq!(bodies(engine, channel, log.floor), expected);
        let numbers = engine.numbers(channel).unwrap();
        let bytes: usize = log.records.values().map(String::len).sum();
        assert_eq!((numbers.next, numbers.floor), (log.next, log.floor));
        assert_eq!(
            (numbers.count, numbers.bytes),
            (expected.len() as u64, bytes as u64)
        );
        let limit = ReadLimit {
            records: 1,
            bytes: 1,
        };
        if log.floor > 1 {
            let refused = engine.read_from(channel, log.floor - 1, limit).unwrap_err();
            assert_eq!(refused, ReadError::BelowFloor { floor: log.floor });
        }
    }
    let jobs: Vec<_> = engine.unresolved(c.work).unwrap();
    let seen: Vec<_> = jobs
        .iter()
        .map(|(offset, item)| (*offset, item.attempts))
        .collect();
    let expected: Vec<_> = model
        .jobs
        .iter()
        .map(|(o, (_, attempts))| (*o, *attempts))
        .collect();
    assert_eq!(seen, expected);
    for (offset, (body, _)) in &model.jobs {
        assert_eq!(
            engine.job(c.work, *offset).unwrap().unwrap().body,
            body.as_bytes()
        );
    }
    let all = ReadLimit {
        records: 1000,
        bytes: u64::MAX,
    };
    let seen: BTreeMap<_, _> = engine
        .changes_from(c.map, 1, all)
        .unwrap()
        .records
        .into_iter()
        .map(|r| (r.offset, (r.key, (!r.deletion).then_some(r.body))))
        .collect();
    let expected: BTreeMap<_, _> = model
        .map
        .iter()
        .map(|(key, (offset, body))| (*offset, (key.clone(), body.clone().map(Bytes::from))))
        .collect();
    assert_eq!(seen, expected);
    let keys: BTreeMap<_, _> = engine.values(7, b"").into_iter().collect();
    assert_eq!(keys, model.keys);
    let listed: Vec<_> = engine.holds(b"k", None, 100);
    let listed: Vec<_> = listed.iter().map(|(k, hold)| (k, hold.size)).collect();
    let expected = model.held.iter();
    let expected: Vec<_> = expected.map(|(k, body)| (k, body.len() as u64)).collect();
    assert_eq!(listed, expected);
    for (key, body) in &model.held {
        assert_eq!(engine.held(key).unwrap().unwrap().body, body.as_bytes());
        let after = engine.holds(b"", Some(key), 1);
        let next = model.held.keys().find(|other| *other > key);
        assert_eq!(after.first().map(|(key, _)| key), next);
    }
    let lowest = model.positions.values().min().copied();
    let positions = (model.positions.len() as u64, lowest);
    assert_eq!(engine.positions(c.log), positions);
}

fn run(steps: &[Step], tail_cache_bytes: u64) {
    let options = Options {
        tail_cache_bytes,
        ..options()
    };
    let mut files = MemFiles::new();
    let mut engine = open_with(&files, &options).unwrap().0;
    let c = define(&engine);
    let mut model = Model::new();
    for (n, step) in steps.iter().enumerate() {
        apply(&engine, &c, &mut model, step, n);
        match step {
            Step::Close => {
                drop(engine);
                engine = open_with(&files, &options).unwrap().0;
            }
            // The process is gone with whatever it had in memory; the files are as they were.
            Step::Die => {
                files = files.copy();
                engine = open_with(&files, &options).unwrap().0;
            }
            _ => continue,
        }
        compare(&engine, &c, &model);
    }
    compare(&engine, &c, &model);
    drop(engine);
    let engine = open_with(&files, &options).unwrap().0;
    compare(&engine, &c, &model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_the_model_whenever_it_stops(
        steps in proptest::collection::vec(step(), 1..120),
        cache in prop_oneof![Just(0), Just(1000), Just(1 << 20)],
    ) {
        run(&steps, cache);
    }
}

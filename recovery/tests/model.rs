//! Random operations against the engine and against a plain model, with closing, dying and reading
//! in between, and segments so small that rolling is the common case.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::disk::CutDisk;
use common::gate::GatedFiles;
use common::*;
use proptest::prelude::*;
use saguin_log_engine::format::{POSITIONS, position_key, position_value};
use saguin_log_engine::storage::FileSystem;
use saguin_log_engine::{
    Batch, ChannelId, CommitError, Durability, Engine, Operation, Options, ReadError, ReadLimit,
    Target, Tidied,
};
use saguin_recovery::{RecoverError, inspect, recover};

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
    /// Six changes and a note, each judged by itself: three are refused.
    Each {
        len: usize,
    },
    Tidy,
    Flush,
    /// A checkpoint, with these steps in the middle of it, one before each write.
    Checkpoint(Vec<Step>),
    Close,
    Die,
    /// The power goes: what was not synced is gone.
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let meanwhile = proptest::collection::vec(change(), 0..12);
    prop_oneof![
        40 => change(),
        2 => meanwhile.prop_map(Step::Checkpoint),
        1 => Just(Step::Close),
        1 => Just(Step::Die),
        2 => Just(Step::Cut),
    ]
}

fn change() -> impl Strategy<Value = Step> {
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
        3 => (0..300usize).prop_map(|len| Step::Each { len }),
        2 => Just(Step::Tidy),
        1 => Just(Step::Flush),
    ]
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![2 => Just(Durability::Sync), 3 => Just(Durability::Interval)]
}

#[derive(Clone, Default)]
struct Log {
    records: BTreeMap<u64, String>,
    next: u64,
    floor: u64,
}

/// What the engine should say.
#[derive(Clone)]
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

/// How a step's batch is kept. It also notes the step, so that what a cut left says which step it is.
#[derive(Clone, Copy)]
struct How {
    n: usize,
    durability: Durability,
}

const NOTES: u8 = 9;

impl How {
    fn batch(self, operations: Vec<Operation>) -> Batch {
        let mut operations = operations;
        operations.push(Operation::Put {
            space: NOTES,
            key: Bytes::from_static(b"step"),
            value: Bytes::copy_from_slice(&(self.n as u64).to_le_bytes()),
        });
        Batch {
            operations,
            durability: self.durability,
        }
    }

    fn offset_of(self, engine: &Engine, operation: Operation) -> Option<u64> {
        let kept = engine.submit(self.batch(vec![operation])).wait();
        kept.unwrap().offsets[0]
    }
}

/// One step on both sides, and what the engine answered compared at once.
fn apply(engine: &Engine, c: &Channels, model: &mut Model, step: &Step, how: How) {
    let n = how.n;
    match *step {
        Step::Append { dead, len } => {
            let body = body(len, n);
            let (index, channel) = if dead { (1, c.dead) } else { (0, c.log) };
            let op = Operation::Append {
                channel,
                record: record(&body),
                max_bytes: None,
            };
            let offset = model.append(index, &body);
            assert_eq!(how.offset_of(engine, op), Some(offset));
        }
        Step::Trim { part } => {
            let log = &mut model.logs[0];
            let floor = log.floor + (log.next - log.floor) * part / 100;
            if let Some(plan) = engine.plan_trim(c.log, floor).unwrap() {
                assert!(floor > log.floor);
                let gone = log.records.range(..floor).count() as u64;
                assert_eq!(plan.removed(), gone);
                how.offset_of(engine, Operation::Trim(plan));
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
            assert_eq!(how.offset_of(engine, op), Some(model.next_job));
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
            how.offset_of(engine, op);
            model.jobs.get_mut(&offset).unwrap().1 = attempts;
        }
        Step::Resolve { pick } => {
            let Some(offset) = model.pick(pick) else {
                return;
            };
            how.offset_of(
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
            assert_eq!(how.offset_of(engine, op), Some(model.append(1, &body)));
        }
        Step::Set { key: k, len } => {
            let body = body(len, n);
            let op = Operation::Set {
                channel: c.map,
                key: key(k),
                record: record(&body),
            };
            assert_eq!(how.offset_of(engine, op), Some(model.next_change));
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
            assert_eq!(how.offset_of(engine, op), expected);
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
            how.offset_of(
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
            how.offset_of(
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
            how.offset_of(
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
            let answer = engine.submit(how.batch(vec![op])).wait();
            match model.held.entry(key(k)) {
                Entry::Occupied(_) => {
                    assert_eq!(answer, Err(CommitError::AlreadyHeld { key: key(k) }));
                }
                Entry::Vacant(free) => {
                    assert_eq!(answer.unwrap().offsets, [None, None]);
                    free.insert(body);
                }
            }
        }
        Step::Release { pick, target } => release(engine, c, model, (pick, target), how),
        Step::Drop { pick } => {
            let Some(key) = held(model, pick) else { return };
            how.offset_of(engine, Operation::Drop { key: key.clone() });
            model.held.remove(&key);
            let again = engine.submit(Operation::Drop { key: key.clone() }).wait();
            assert_eq!(again, Err(CommitError::NotHeld { key }));
        }
        Step::Position { who, part } => {
            let next = model.logs[0].next;
            let position = next * part / 100;
            let put = how.batch(vec![put_position(c, who, position)]);
            let answer = engine.submit(put).wait();
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
            how.offset_of(engine, Operation::Delete { space, key });
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
            let batch = how.batch(vec![put(c.log), put(c.dead), wrong]);
            let refused = engine.submit(batch).wait();
            assert!(matches!(refused, Err(CommitError::NoSuchItem { .. })));
        }
        Step::Each { len } => each(engine, c, model, len, how),
        Step::Tidy => while engine.tidy().unwrap() != Tidied::Nothing {},
        Step::Flush => engine.flush().unwrap(),
        Step::Checkpoint(_) | Step::Close | Step::Die | Step::Cut => {}
    }
}

/// Operations that were published together and have nothing to do with each other: those that are
/// refused leave no trace, and the others are kept in their order.
fn each(engine: &Engine, c: &Channels, model: &mut Model, len: usize, how: How) {
    let body = body(len, how.n);
    let append = |channel: ChannelId, max_bytes| Operation::Append {
        channel,
        record: record(&body),
        max_bytes,
    };
    let operations = vec![
        append(c.dead, Some(0)),
        append(c.log, None),
        Operation::Resolve {
            channel: c.work,
            offset: u64::MAX,
        },
        Operation::Set {
            channel: c.map,
            key: key(2),
            record: record(&body),
        },
        Operation::Enqueue {
            channel: c.work,
            record: record(&body),
            max_bytes: Some(0),
        },
        append(c.log, None),
    ];
    let (told, outcome) = std::sync::mpsc::channel();
    let done = move |outcome| told.send(outcome).unwrap();
    engine.submit_each(how.batch(operations), Box::new(done));
    let receipt = outcome.recv().unwrap().unwrap();
    let refused: Vec<_> = receipt.refused.iter().map(|(place, _)| *place).collect();
    assert_eq!(refused, [0, 2, 4]);
    let (first, value) = (model.append(0, &body), model.next_change);
    model.map.insert(key(2), (value, Some(body.clone())));
    model.next_change += 1;
    let second = model.append(0, &body);
    let kept = [
        None,
        Some(first),
        None,
        Some(value),
        None,
        Some(second),
        None,
    ];
    assert_eq!(receipt.offsets, kept);
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
fn release(
    engine: &Engine,
    c: &Channels,
    model: &mut Model,
    (pick, target): (usize, u8),
    how: How,
) {
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
    assert_eq!(how.offset_of(engine, op), Some(expected));
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

/// Opens the log, once what its checkpoints and footers say was seen to be what its frames say.
fn start(files: &GatedFiles, options: &Options) -> Arc<Engine> {
    match inspect(files, Path::new(DIR), &mut ()) {
        Err(RecoverError::NoLog { .. }) => {}
        found => {
            let report = found.unwrap().0;
            assert_eq!(report.contradiction, None);
            assert_eq!(report.rejected, []);
        }
    }
    let fs: Arc<dyn FileSystem> = Arc::new(files.clone());
    Arc::new(recover(&fs, Path::new(DIR), options).unwrap().0)
}

/// Both sides, and what is known of what lies only in the page cache.
struct Run {
    options: Options,
    disk: CutDisk,
    files: GatedFiles,
    engine: Option<Arc<Engine>>,
    /// Steps so far.
    n: usize,
    c: Channels,
    model: Model,
    /// What the model was before each step since the last one known to be synced.
    unsynced: BTreeMap<usize, Model>,
    /// The next offsets that anybody was ever shown.
    shown: [u64; 4],
    /// Offsets may have been handed out that were not synced.
    may_skip: bool,
}

impl Run {
    fn new(tail_cache_bytes: u64) -> Run {
        let options = Options {
            tail_cache_bytes,
            ..options()
        };
        let disk = CutDisk::quiet();
        let files = GatedFiles::new(disk.clone());
        let engine = start(&files, &options);
        Run {
            files,
            n: 0,
            c: define(&engine),
            options,
            disk,
            engine: Some(engine),
            model: Model::new(),
            unsynced: BTreeMap::new(),
            shown: [1; 4],
            may_skip: false,
        }
    }

    fn channels(&self) -> [ChannelId; 4] {
        [self.c.log, self.c.dead, self.c.work, self.c.map]
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// The disk is another one: that of another process, or after a cut.
    fn restart(&mut self, disk: CutDisk) {
        self.files = GatedFiles::new(disk.clone());
        self.disk = disk;
        self.engine = Some(start(&self.files, &self.options));
    }

    fn checkpoint(&mut self, meanwhile: &[Step], durability: Durability) {
        let stops = self.files.arm();
        let (engine, files) = (self.engine.clone().unwrap(), self.files.clone());
        let checkpoint = std::thread::spawn(move || {
            let written = engine.checkpoint();
            files.disarm();
            written.unwrap();
        });
        let mut meanwhile = meanwhile.iter();
        while let Ok(go) = stops.recv() {
            if let Some(step) = meanwhile.next() {
                self.step(step, durability);
            }
            drop(go);
        }
        checkpoint.join().unwrap();
        for step in meanwhile {
            self.step(step, durability);
        }
    }

    fn step(&mut self, step: &Step, durability: Durability) {
        if let Step::Checkpoint(meanwhile) = step {
            return self.checkpoint(meanwhile, durability);
        }
        let n = self.n;
        self.n += 1;
        self.unsynced.insert(n, self.model.clone());
        let how = How { n, durability };
        let engine = self.engine.as_ref().unwrap();
        apply(engine, &self.c, &mut self.model, step, how);
        match step {
            Step::Close => {
                self.engine = None;
                self.unsynced.clear();
                self.may_skip = false;
                self.restart(self.disk.clone());
            }
            // The process is gone with whatever it had in memory; the files are as they were.
            Step::Die => {
                self.restart(self.disk.next_process());
            }
            Step::Cut => {
                self.restart(self.disk.cut());
                self.after_cut();
            }
            _ => {
                // Some steps find nothing to do and submit nothing.
                let kept = self.last_kept() == Some(n);
                match durability {
                    _ if matches!(step, Step::Flush) => self.unsynced.clear(),
                    Durability::Sync if kept => self.unsynced.clear(),
                    Durability::Interval if kept => self.may_skip = true,
                    _ => {}
                }
                for (at, channel) in self.channels().into_iter().enumerate() {
                    let next = self.engine().numbers(channel).unwrap().next;
                    self.shown[at] = self.shown[at].max(next);
                }
                return;
            }
        }
        self.opened();
        compare(self.engine(), &self.c, &self.model);
    }

    /// The last step whose batch is there.
    fn last_kept(&self) -> Option<usize> {
        let note = self.engine().value(NOTES, b"step")?;
        Some(u64::from_le_bytes(note.as_ref().try_into().unwrap()) as usize)
    }

    /// A cut takes the newest steps and nothing else, and none that was synced.
    fn after_cut(&mut self) {
        let kept = self.last_kept().map_or(0, |kept| kept + 1);
        let first_lost = self
            .unsynced
            .range(kept..)
            .next()
            .map(|(_, before)| before.clone());
        if let Some(before) = first_lost {
            self.model = before;
        }
    }

    /// An opening made what it found durable, and goes on at or above whatever anybody was shown.
    fn opened(&mut self) {
        let next = self
            .channels()
            .map(|c| self.engine().numbers(c).unwrap().next);
        let model = &mut self.model;
        let [log, dead] = &mut model.logs;
        let places = [
            &mut log.next,
            &mut dead.next,
            &mut model.next_job,
            &mut model.next_change,
        ];
        for ((place, next), shown) in places.into_iter().zip(next).zip(self.shown) {
            assert!(next >= shown, "next is {next}, {shown} was shown");
            assert!(next == *place || self.may_skip, "{next} {place}");
            *place = next;
        }
        self.shown = next;
        self.unsynced.clear();
        self.may_skip = false;
    }
}

fn run(steps: &[(Step, Durability)], tail_cache_bytes: u64) {
    let mut run = Run::new(tail_cache_bytes);
    for (step, durability) in steps {
        run.step(step, *durability);
    }
    compare(run.engine(), &run.c, &run.model);
    run.step(&Step::Close, Durability::Sync);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_the_model_whenever_it_stops(
        steps in proptest::collection::vec((step(), durability()), 1..120),
        cache in prop_oneof![Just(0), Just(1000), Just(1 << 20)],
    ) {
        run(&steps, cache);
    }
}

//! What the simulated callers ask for: everything the engine can do, in every mixture.

use bytes::Bytes;
use saguin_log_engine::format::{Kind, POSITIONS, position_key, position_value};
use saguin_log_engine::{Batch, ChannelId, Durability, Engine, NewRecord, Operation, Target};

use super::model::{Content, Model, Op, Record};
use crate::rng::Rng;

/// Every channel there may be. The first few are made at once, the rest on the way.
pub const NAMES: [(&str, Kind); 8] = [
    ("log", Kind::Sequence),
    ("work", Kind::Work),
    ("dead", Kind::Sequence),
    ("map", Kind::Map),
    ("second", Kind::Sequence),
    ("jobs", Kind::Work),
    ("latest", Kind::Map),
    ("third", Kind::Sequence),
];

/// One batch, and when it asks to be acknowledged.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What it changes.
    pub ops: Vec<Op>,
    /// When it asks to be acknowledged.
    pub durability: Durability,
}

impl Submission {
    /// One that is acknowledged once it is synced.
    #[must_use]
    pub fn synced(ops: Vec<Op>) -> Submission {
        Submission {
            ops,
            durability: Durability::Sync,
        }
    }

    /// Whether an acknowledgement promises that a power cut takes nothing of it, nor of what it builds
    /// on. A floor never falls, whatever was asked for.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        let trims = self.ops.iter().any(|op| matches!(op, Op::Trim { .. }));
        trims || (self.durability == Durability::Sync && !self.ops.is_empty())
    }
}

/// Namespaces in use.
pub const SPACES: u8 = 2;

/// Counted bytes a bounded channel may hold.
const MAX_BYTES: u64 = 6000;

/// Makes up batches.
#[derive(Debug)]
pub struct Workload {
    rng: Rng,
    serial: u64,
    clock: u64,
}

impl Workload {
    /// One that follows from `rng`.
    #[must_use]
    pub fn new(rng: Rng) -> Workload {
        Workload {
            rng,
            serial: 0,
            clock: 1_000_000,
        }
    }

    /// The batches that make the usual channels known.
    #[must_use]
    pub fn define() -> Vec<Submission> {
        let name = |i: usize| Op::Define(Bytes::from_static(NAMES[i].0.as_bytes()), NAMES[i].1);
        let define = |ops| Submission {
            ops,
            durability: Durability::Sync,
        };
        vec![
            define(vec![name(0), name(1)]),
            define(vec![name(2), name(3)]),
        ]
    }

    /// Batches that arrive together.
    pub fn group(&mut self, model: &Model) -> Vec<Submission> {
        let batches = match self.rng.below(4) {
            0 => 1 + self.rng.below(5),
            _ => 1,
        };
        (0..batches).map(|_| self.batch(model)).collect()
    }

    /// One record for the first sequence there is.
    pub fn append(&mut self, model: &Model) -> Option<Op> {
        let at = model
            .channels
            .iter()
            .position(|c| c.kind() == Kind::Sequence)?;
        Some(Op::Append(u32::try_from(at).ok()?, self.record(), None))
    }

    fn batch(&mut self, model: &Model) -> Submission {
        let operations = match self.rng.below(3) {
            0 => 1 + self.rng.below(4),
            _ => 1,
        };
        let ops = (0..operations).filter_map(|_| self.op(model)).collect();
        let durability = match self.rng.one_in(2) {
            true => Durability::Interval,
            false => Durability::Sync,
        };
        Submission { ops, durability }
    }

    fn record(&mut self) -> Record {
        self.serial += 1;
        // Clocks step back at times, and some records have no time at all.
        self.clock = match self.rng.below(12) {
            0 => self.clock.saturating_sub(50),
            _ => self.clock + self.rng.below(10),
        };
        let len = match self.rng.below(40) {
            0 => 6000 + self.rng.index(6000),
            1..4 => 500 + self.rng.index(1500),
            4..14 => self.rng.index(400),
            _ => self.rng.index(60),
        };
        let mut body = format!("record {} ", self.serial).into_bytes();
        // Zeros look like what was never written: they must not be taken for it.
        let fill = if self.rng.one_in(3) { 0 } else { b'.' };
        body.resize(body.len() + len, fill);
        Record {
            timestamp: (!self.rng.one_in(9)).then_some(self.clock),
            size: if self.rng.one_in(9) {
                0
            } else {
                body.len() as u64
            },
            body: body.into(),
        }
    }

    fn key(&mut self) -> Bytes {
        Bytes::from(format!("key {}", self.rng.below(7)))
    }

    fn bound(&mut self) -> Option<u64> {
        self.rng.one_in(3).then_some(MAX_BYTES)
    }

    /// A channel of a kind; now and then one that is not, or is not there.
    fn channel(&mut self, model: &Model, kind: Kind) -> Option<u32> {
        if self.rng.one_in(60) {
            // An id that is about to be defined is not known to anybody yet.
            let any = self.rng.index(model.channels.len() + 1);
            return Some(if any < model.channels.len() {
                any as u32
            } else {
                99
            });
        }
        let ids: Vec<u32> = (0u32..)
            .zip(&model.channels)
            .filter(|(_, c)| c.kind() == kind)
            .map(|(id, _)| id)
            .collect();
        ids.get(self.rng.index(ids.len())).copied()
    }

    /// A job there is, mostly.
    fn job(&mut self, model: &Model, channel: u32) -> u64 {
        let jobs = model.channels.get(channel as usize).map(|c| &c.content);
        match jobs {
            Some(Content::Work(jobs)) if !jobs.is_empty() && !self.rng.one_in(20) => {
                let at = self.rng.index(jobs.len());
                jobs.keys().nth(at).copied().unwrap_or(1)
            }
            _ => 1 + self.rng.below(50),
        }
    }

    fn op(&mut self, model: &Model) -> Option<Op> {
        Some(match self.rng.below(40) {
            0..9 => {
                let channel = self.channel(model, Kind::Sequence)?;
                Op::Append(channel, self.record(), self.bound())
            }
            9..14 => {
                let channel = self.channel(model, Kind::Work)?;
                Op::Enqueue(channel, self.record(), self.bound())
            }
            14 | 15 => {
                let channel = self.channel(model, Kind::Work)?;
                let offset = self.job(model, channel);
                let attempts = 1 + self.rng.below(9) as u32;
                Op::Attempt(channel, offset, attempts, self.clock - 5, self.clock)
            }
            16 | 17 => {
                let channel = self.channel(model, Kind::Work)?;
                Op::Resolve(channel, self.job(model, channel))
            }
            18 | 19 => {
                let work = self.channel(model, Kind::Work)?;
                Op::DeadLetter {
                    work,
                    offset: self.job(model, work),
                    channel: self.channel(model, Kind::Sequence)?,
                    record: self.record(),
                }
            }
            20..23 => {
                let channel = self.channel(model, Kind::Map)?;
                Op::Set(channel, self.key(), self.record())
            }
            23 => {
                let channel = self.channel(model, Kind::Map)?;
                Op::Remove(channel, self.key(), self.record())
            }
            24 => {
                let channel = self.channel(model, Kind::Map)?;
                let key = self.key();
                let at = match model.channels.get(channel as usize).map(|c| &c.content) {
                    Some(Content::Map(map)) => map.get(&key).map_or(1, |v| v.offset),
                    _ => 1,
                };
                let stale = self.rng.one_in(4);
                Op::Forget(channel, key, if stale { at + 1 } else { at })
            }
            25 | 26 => {
                let space = self.rng.below(SPACES.into()) as u8;
                let len = self.rng.index(80);
                self.serial += 1;
                let mut value = self.serial.to_le_bytes().to_vec();
                value.resize(8 + len, 0);
                Op::Put(space, self.key(), value.into())
            }
            27 => Op::Delete(self.rng.below(SPACES.into()) as u8, self.key()),
            28 | 29 => return self.trim(model),
            30 => {
                let (name, kind) = NAMES[self.rng.index(NAMES.len())];
                Op::Define(Bytes::from_static(name.as_bytes()), kind)
            }
            32..35 => Op::Hold(self.hold_key(), self.record()),
            35 | 36 => {
                let key = self.held(model);
                // Mostly what was held, as a release does; the engine does not compare them.
                let record = match model.holds.get(&key) {
                    Some(record) => record.clone(),
                    None => self.record(),
                };
                Op::Release(key, Box::new(self.target(model, record)?))
            }
            37 => Op::Drop(self.held(model)),
            38 => {
                let channel = self.channel(model, Kind::Sequence)?;
                let next = model.channels.get(channel as usize).map_or(1, |c| c.next);
                let past = if self.rng.one_in(12) { 1 } else { 0 };
                let position = (next + past).saturating_sub(self.rng.below(6));
                Op::Position(channel, self.key(), position)
            }
            39 if self.rng.one_in(3) => {
                let channel = self.channel(model, Kind::Sequence)?;
                Op::NoPosition(channel, self.key())
            }
            _ => {
                let (name, _) = NAMES[self.rng.index(3)];
                Op::Define(Bytes::from_static(name.as_bytes()), Kind::Map)
            }
        })
    }

    fn hold_key(&mut self) -> Bytes {
        Bytes::from(format!("hold {}", self.rng.below(9)))
    }

    /// A key something is held under, mostly.
    fn held(&mut self, model: &Model) -> Bytes {
        let at = self.rng.index(model.holds.len());
        match model.holds.keys().nth(at) {
            Some(key) if !self.rng.one_in(20) => key.clone(),
            _ => self.hold_key(),
        }
    }

    fn target(&mut self, model: &Model, record: Record) -> Option<Op> {
        Some(match self.rng.below(4) {
            0 => {
                let channel = self.channel(model, Kind::Work)?;
                Op::Enqueue(channel, record, self.bound())
            }
            1 => Op::Set(self.channel(model, Kind::Map)?, self.key(), record),
            2 => Op::Remove(self.channel(model, Kind::Map)?, self.key(), record),
            _ => {
                let channel = self.channel(model, Kind::Sequence)?;
                Op::Append(channel, record, self.bound())
            }
        })
    }

    fn trim(&mut self, model: &Model) -> Option<Op> {
        let channel = self.channel(model, Kind::Sequence)?;
        let known = model.channels.get(channel as usize)?;
        if known.kind() != Kind::Sequence || known.floor == known.next {
            return None;
        }
        let up = self.rng.below(known.next - known.floor);
        // Everything, at times.
        let up = if self.rng.one_in(5) {
            known.next - known.floor
        } else {
            up + 1
        };
        Some(Op::Trim {
            channel,
            from: known.floor,
            floor: known.floor + up,
        })
    }
}

fn new_record(record: &Record) -> NewRecord {
    NewRecord {
        timestamp: record.timestamp,
        size: record.size,
        body: record.body.clone(),
    }
}

/// The batch in the engine's terms; trims are planned here.
///
/// # Errors
/// A sentence, where the engine does not plan a trim that it owes.
pub fn to_batch(engine: &Engine, submission: &Submission) -> Result<Batch, String> {
    let operations = submission
        .ops
        .iter()
        .map(|op| to_operation(engine, op))
        .collect::<Result<Vec<Operation>, String>>()?;
    Ok(Batch {
        operations,
        durability: submission.durability,
    })
}

fn to_operation(engine: &Engine, op: &Op) -> Result<Operation, String> {
    Ok(match op.clone() {
        Op::Define(name, kind) => Operation::Define { name, kind },
        Op::Append(channel, record, max_bytes) => Operation::Append {
            channel: ChannelId(channel),
            record: new_record(&record),
            max_bytes,
        },
        Op::Trim { channel, floor, .. } => {
            let plan = engine.plan_trim(ChannelId(channel), floor);
            let plan = plan.map_err(|e| format!("planning a trim to {floor}: {e}"))?;
            Operation::Trim(plan.ok_or_else(|| format!("a trim to {floor} plans nothing"))?)
        }
        Op::Set(channel, key, record) => Operation::Set {
            channel: ChannelId(channel),
            key,
            record: new_record(&record),
        },
        Op::Remove(channel, key, record) => Operation::Remove {
            channel: ChannelId(channel),
            key,
            record: new_record(&record),
        },
        Op::Forget(channel, key, offset) => Operation::Forget {
            channel: ChannelId(channel),
            key,
            offset,
        },
        Op::Enqueue(channel, record, max_bytes) => Operation::Enqueue {
            channel: ChannelId(channel),
            record: new_record(&record),
            max_bytes,
        },
        Op::Attempt(channel, offset, attempts, first, last) => Operation::Attempt {
            channel: ChannelId(channel),
            offset,
            attempts,
            first,
            last,
        },
        Op::Resolve(channel, offset) => Operation::Resolve {
            channel: ChannelId(channel),
            offset,
        },
        Op::DeadLetter {
            work,
            offset,
            channel,
            record,
        } => Operation::DeadLetter {
            work: ChannelId(work),
            offset,
            channel: ChannelId(channel),
            record: new_record(&record),
        },
        Op::Hold(key, record) => Operation::Hold {
            key,
            record: new_record(&record),
        },
        Op::Release(key, target) => Operation::Release {
            key,
            target: to_target(*target)?,
        },
        Op::Drop(key) => Operation::Drop { key },
        Op::Position(channel, consumer, position) => Operation::Put {
            space: POSITIONS,
            key: position_key(channel, &consumer).into(),
            value: Bytes::copy_from_slice(&position_value(position)),
        },
        Op::NoPosition(channel, consumer) => Operation::Delete {
            space: POSITIONS,
            key: position_key(channel, &consumer).into(),
        },
        Op::Put(space, key, value) => Operation::Put { space, key, value },
        Op::Delete(space, key) => Operation::Delete { space, key },
        Op::Skip(channel, _) => return Err(format!("nobody asks to skip in channel {channel}")),
    })
}

fn to_target(op: Op) -> Result<Target, String> {
    Ok(match op {
        Op::Append(channel, record, max_bytes) => Target::Append {
            channel: ChannelId(channel),
            record: new_record(&record),
            max_bytes,
        },
        Op::Set(channel, key, record) => Target::Set {
            channel: ChannelId(channel),
            key,
            record: new_record(&record),
        },
        Op::Remove(channel, key, record) => Target::Remove {
            channel: ChannelId(channel),
            key,
            record: new_record(&record),
        },
        Op::Enqueue(channel, record, max_bytes) => Target::Enqueue {
            channel: ChannelId(channel),
            record: new_record(&record),
            max_bytes,
        },
        other => {
            return Err(format!(
                "nothing is released as {other:?}: the rig is wrong"
            ));
        }
    })
}

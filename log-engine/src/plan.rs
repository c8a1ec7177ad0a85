//! From batches to one frame: judges each batch against the published state *and* what the frame
//! already holds, hands out offsets in queue order, and encodes.
//!
//! A batch is planned whole or not at all: a refusal undoes what its earlier operations left here.
//! Operations that were submitted to be judged each by itself are so many batches of one.
//! Nothing of this is visible to readers; a frame that does not become durable is dropped with
//! [`Planner::begin`].

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::batch::{
    Batch, ChannelId, CommitError, NewRecord, Operation, Receipt, Tidy, TidyStep, TrimPlan,
};
use crate::breakage::{self, Breakage};
use crate::format::{
    FrameBuilder, Kind, MAX_NAME_BYTES, Op, POSITIONS, RecordRef, decode_position,
};
use crate::room::relieves;
use crate::state::{Channel, Content, KeyEntry, Numbers, State, ceiling};
use crate::tail::StoredRecord;

/// Most channels of one log: a prologue, one frame, restates them all.
const MAX_CHANNELS: u32 = 60_000;

/// How long a frame may be that what is published lies in, and what it is told beyond that.
#[derive(Clone, Debug)]
pub(crate) struct PublishLimit {
    pub(crate) frame_bytes: u64,
    pub(crate) refusal: CommitError,
}

/// Builds one frame after another.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    pub(crate) frame: FrameBuilder,
    /// Records to cache once the frame is durable.
    pub(crate) records: Vec<(ChannelId, StoredRecord)>,
    /// Numbers of the channels this frame touches, as they will be after it, by channel id: ids are
    /// dense. An entry of an earlier frame counts for nothing.
    numbers: Vec<Option<(u64, Numbers)>>,
    /// Counts frames.
    frames: u64,
    /// Jobs this frame adds (their size) or removes (`None`).
    jobs: HashMap<(u32, u64), Option<u64>>,
    /// Map entries this frame sets or drops (`None`).
    keys: HashMap<(u32, Bytes), Option<Entry>>,
    /// Holds this frame takes (their size) or lets go (`None`).
    holds: HashMap<Bytes, Option<u64>>,
    /// Small values this frame puts or deletes.
    values: HashSet<(u8, Bytes)>,
    /// Channels this frame defines.
    defined: Vec<(Bytes, Kind, u32)>,
    undo: Vec<Undo>,
    /// The batch being added may be shown before it is synced.
    unsynced: bool,
    /// The batch being added must not be shown before a sync, whatever it asks for.
    sync_batch: bool,
    /// The same of the whole frame.
    must_sync: bool,
    /// Whether the frame holds a batch that publishes.
    pub(crate) publishes: bool,
    /// Whether a batch that relieves was kept.
    pub(crate) relieves: bool,
}

/// A map entry as the planner needs it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u64,
    deletion: bool,
    size: u64,
}

/// How to take back one change to the overlay.
#[derive(Debug)]
enum Undo {
    Numbers(u32, Option<(u64, Numbers)>),
    Job((u32, u64), Option<Option<u64>>),
    Key((u32, Bytes), Option<Option<Entry>>),
    Hold(Bytes, Option<Option<u64>>),
    Defined,
}

impl Planner {
    /// Begins a frame.
    pub(crate) fn begin(&mut self) {
        self.frame.clear();
        self.records.clear();
        self.frames += 1;
        self.jobs.clear();
        self.keys.clear();
        self.holds.clear();
        self.values.clear();
        self.defined.clear();
        self.undo.clear();
        self.must_sync = false;
        (self.publishes, self.relieves) = (false, false);
    }

    /// Whether a batch in the frame asks for a sync before it is shown.
    pub(crate) fn must_sync(&self) -> bool {
        self.must_sync
    }

    /// Adds a batch; the offsets it takes, one entry per operation, in `offsets`, which is empty.
    pub(crate) fn add(
        &mut self,
        state: &State,
        batch: &Batch,
        mut offsets: Vec<Option<u64>>,
        limit: &PublishLimit,
    ) -> Result<Receipt, CommitError> {
        let sync = batch.is_sync();
        self.add_together(state, &batch.operations, sync, &mut offsets, limit)?;
        Ok(Receipt {
            offsets,
            ..Receipt::default()
        })
    }

    /// Adds each operation of a batch that may be added, and says which may not.
    pub(crate) fn add_each(
        &mut self,
        state: &State,
        batch: &Batch,
        mut offsets: Vec<Option<u64>>,
        limit: &PublishLimit,
    ) -> Receipt {
        let sync = batch.is_sync();
        let mut refused = Vec::new();
        for (place, operation) in batch.operations.iter().enumerate() {
            let alone = std::slice::from_ref(operation);
            if let Err(refusal) = self.add_together(state, alone, sync, &mut offsets, limit) {
                offsets.truncate(place);
                offsets.push(None);
                refused.push((place, refusal));
            }
        }
        Receipt {
            lsn: 0,
            offsets,
            refused,
        }
    }

    /// Adds operations, all of them or none.
    fn add_together(
        &mut self,
        state: &State,
        operations: &[Operation],
        sync: bool,
        offsets: &mut Vec<Option<u64>>,
        limit: &PublishLimit,
    ) -> Result<(), CommitError> {
        let mark = (self.frame.mark(), self.records.len());
        self.undo.clear();
        self.sync_batch = sync;
        self.unsynced = !sync;
        for operation in operations {
            match self.operation(state, operation) {
                Ok(offset) => offsets.push(offset),
                Err(refusal) if breakage::is(Breakage::HalfBatch) => return Err(refusal),
                Err(refusal) => {
                    self.frame.rollback(mark.0);
                    self.records.truncate(mark.1);
                    self.roll_back();
                    return Err(refusal);
                }
            }
        }
        let added = self.frame.operations() > mark.0.1;
        if relieves(state, operations) {
            self.relieves |= added;
        } else if added && self.frame.frame_len() as u64 > limit.frame_bytes {
            self.frame.rollback(mark.0);
            self.records.truncate(mark.1);
            self.roll_back();
            return Err(limit.refusal.clone());
        } else {
            self.publishes |= added;
        }
        self.must_sync |= self.sync_batch;
        Ok(())
    }

    fn operation(
        &mut self,
        state: &State,
        operation: &Operation,
    ) -> Result<Option<u64>, CommitError> {
        match operation {
            Operation::Define { name, kind } => self.define(state, name, *kind).map(Some),
            Operation::Append {
                channel,
                record,
                max_bytes,
            } => {
                let offset = self.take(state, *channel, Kind::Sequence, record, *max_bytes)?;
                let op = Op::Append {
                    channel: channel.0,
                    offset,
                    record: as_ref(record),
                };
                self.frame.push(&op);
                self.cache(*channel, offset, record, &Bytes::new(), false);
                Ok(Some(offset))
            }
            Operation::Trim(plan) => self.trim(state, plan).map(|()| None),
            Operation::Set {
                channel,
                key,
                record,
            } => self.replace(state, *channel, key, record, false).map(Some),
            Operation::Remove {
                channel,
                key,
                record,
            } => {
                if self
                    .key(state, *channel, key)?
                    .is_none_or(|entry| entry.deletion)
                {
                    return Ok(None);
                }
                self.replace(state, *channel, key, record, true).map(Some)
            }
            Operation::Forget {
                channel,
                key,
                offset,
            } => {
                let entry = self.key(state, *channel, key)?;
                if let Some(entry) = entry.filter(|entry| entry.offset == *offset) {
                    self.frame.push(&Op::Forget {
                        channel: channel.0,
                        offset: *offset,
                        freed: entry.size,
                        key,
                    });
                    self.set_key(*channel, key, None);
                }
                Ok(None)
            }
            Operation::Enqueue {
                channel,
                record,
                max_bytes,
            } => {
                let offset = self.take(state, *channel, Kind::Work, record, *max_bytes)?;
                let op = Op::Enqueue {
                    channel: channel.0,
                    offset,
                    record: as_ref(record),
                };
                self.frame.push(&op);
                self.set_job(*channel, offset, Some(record.size));
                self.cache(*channel, offset, record, &Bytes::new(), false);
                Ok(Some(offset))
            }
            Operation::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            } => {
                let size = self.job(state, *channel, *offset)?;
                self.set_job(*channel, *offset, Some(size));
                self.frame.push(&Op::Attempt {
                    channel: channel.0,
                    offset: *offset,
                    attempts: *attempts,
                    first: *first,
                    last: *last,
                });
                Ok(None)
            }
            Operation::Resolve { channel, offset } => {
                let freed = self.remove_job(state, *channel, *offset)?;
                self.frame.push(&Op::Resolve {
                    channel: channel.0,
                    offset: *offset,
                    freed,
                });
                Ok(None)
            }
            Operation::DeadLetter {
                work,
                offset: work_offset,
                channel,
                record,
            } => {
                // Never refused for room: a bound does not refuse what relieves the queue.
                let offset = self.take(state, *channel, Kind::Sequence, record, None)?;
                let freed = self.remove_job(state, *work, *work_offset)?;
                self.frame.push(&Op::DeadLetter {
                    work: work.0,
                    work_offset: *work_offset,
                    freed,
                    channel: channel.0,
                    offset,
                    record: as_ref(record),
                });
                self.cache(*channel, offset, record, &Bytes::new(), false);
                Ok(Some(offset))
            }
            Operation::Hold { key, record } => {
                if self.held(state, key).is_some() {
                    return Err(CommitError::AlreadyHeld { key: key.clone() });
                }
                self.frame.push(&Op::Hold {
                    key,
                    record: as_ref(record),
                });
                self.set_hold(key, Some(record.size));
                Ok(None)
            }
            Operation::Release { key, target } => {
                // Both in one frame: the record is held or where it is for, never both or neither.
                self.let_go(state, key)?;
                if breakage::is(Breakage::HalfRelease) {
                    return Ok(None);
                }
                self.operation(state, &target.clone().into())
            }
            Operation::Drop { key } => self.let_go(state, key).map(|()| None),
            Operation::Put { space, key, value } => {
                self.judge_position(state, *space, key, value)?;
                self.frame.push(&Op::Put {
                    space: *space,
                    key,
                    value,
                });
                self.values.insert((*space, key.clone()));
                Ok(None)
            }
            Operation::Delete { space, key } => {
                let name = (*space, key.clone());
                if state.keyspace().contains_key(&name) || self.values.contains(&name) {
                    self.frame.push(&Op::Delete { space: *space, key });
                    self.values.insert(name);
                }
                Ok(None)
            }
            Operation::Tidy(Tidy(step)) => self.tidy(state, step).map(|()| None),
        }
    }

    /// Housekeeping: whatever changed since it was asked for, or is changed by this frame, is left
    /// alone, and looked at again later.
    fn tidy(&mut self, state: &State, step: &TidyStep) -> Result<(), CommitError> {
        match step {
            TidyStep::Record {
                channel,
                offset,
                record,
            } => {
                let numbers = self.numbers(state, *channel, Kind::Sequence)?;
                if *offset >= numbers.floor {
                    self.frame.push(&Op::MoveRecord {
                        channel: channel.0,
                        offset: *offset,
                        record: as_ref(record),
                    });
                }
            }
            TidyStep::Entry {
                channel,
                offset,
                deletion,
                key,
                record,
            } => {
                let entry = self.key(state, *channel, key)?;
                if entry.is_some_and(|entry| entry.offset == *offset) {
                    self.frame.push(&Op::MoveEntry {
                        channel: channel.0,
                        offset: *offset,
                        deletion: *deletion,
                        key,
                        record: as_ref(record),
                    });
                }
            }
            TidyStep::Job {
                channel,
                offset,
                record,
            } => {
                let known = known(state, *channel, Kind::Work)?;
                let Content::Work(work) = &known.content else {
                    return Ok(());
                };
                let touched = self.jobs.contains_key(&(channel.0, *offset));
                if let Some(item) = work.get(*offset).filter(|_| !touched) {
                    self.frame.push(&Op::MoveJob {
                        channel: channel.0,
                        offset: *offset,
                        attempts: item.attempts,
                        attempted: item.attempted,
                        record: as_ref(record),
                    });
                }
            }
            TidyStep::Hold { key, at, record } => {
                let entry = state.holds().get(key);
                let untouched = !self.holds.contains_key(key);
                if entry.is_some_and(|entry| entry.at == *at) && untouched {
                    self.frame.push(&Op::MoveHold {
                        key,
                        record: as_ref(record),
                    });
                }
            }
            TidyStep::Key {
                space,
                key,
                len,
                from,
            } => {
                let name = (*space, key.clone());
                let entry = state.keyspace().get(&name);
                let untouched = !self.values.contains(&name);
                let same = |e: &&KeyEntry| e.at.segment == *from && e.value.len() == *len;
                if let Some(entry) = entry.filter(|e| untouched && same(e)) {
                    self.frame.push(&Op::Put {
                        space: *space,
                        key,
                        value: &entry.value,
                    });
                }
            }
            TidyStep::Oldest { segment } => {
                self.frame.push(&Op::Segments { oldest: *segment });
            }
            TidyStep::Flush => {}
        }
        Ok(())
    }

    fn define(&mut self, state: &State, name: &Bytes, kind: Kind) -> Result<u64, CommitError> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(CommitError::BadName);
        }
        let known = state
            .channel_named(name)
            .and_then(|id| Some((id, state.channel(id)?.kind)))
            .or_else(|| {
                self.defined
                    .iter()
                    .find(|d| d.0 == name)
                    .map(|d| (d.2, d.1))
            });
        match known {
            Some((id, was)) if was == kind => return Ok(id.into()),
            Some(_) => return Err(CommitError::BadName),
            None => {}
        }
        let id = state.next_channel_id() + self.defined.len() as u32;
        if id >= MAX_CHANNELS {
            let (bytes, max_bytes) = (u64::from(id), u64::from(MAX_CHANNELS));
            return Err(CommitError::TooLarge { bytes, max_bytes });
        }
        self.frame.push(&Op::Define {
            channel: id,
            kind,
            name,
        });
        self.defined.push((name.clone(), kind, id));
        // Whoever learns the id builds on it: a power cut must not give it to another channel.
        self.sync_batch = true;
        self.undo.push(Undo::Defined);
        Ok(id.into())
    }

    /// Takes the next offset of a channel for a record, if the channel has room for it.
    fn take(
        &mut self,
        state: &State,
        channel: ChannelId,
        kind: Kind,
        record: &NewRecord,
        max_bytes: Option<u64>,
    ) -> Result<u64, CommitError> {
        let mut numbers = self.numbers(state, channel, kind)?;
        if let Some(max_bytes) = max_bytes
            && numbers.bytes.saturating_add(record.size) > max_bytes
        {
            return Err(CommitError::ChannelFull {
                channel,
                bytes: numbers.bytes,
                max_bytes,
            });
        }
        let offset = numbers.next;
        if self.unsynced
            && let Some(higher) = ceiling::raised(numbers.ceiling, offset)
        {
            // Synced before the offset is shown, and once for a whole block of them (invariant 9).
            numbers.ceiling = higher;
            self.sync_batch = true;
            self.frame.push(&Op::Ceiling {
                channel: channel.0,
                ceiling: higher,
            });
        }
        numbers.add(offset, record.size);
        self.set_numbers(channel, numbers);
        Ok(offset)
    }

    fn trim(&mut self, state: &State, plan: &TrimPlan) -> Result<(), CommitError> {
        let TrimPlan {
            channel,
            from,
            floor,
            removed,
            freed,
        } = *plan;
        let mut numbers = self.numbers(state, channel, Kind::Sequence)?;
        // Counted from another floor, the numbers would be wrong for ever.
        if numbers.floor != from {
            return Err(CommitError::FloorMoved {
                channel,
                floor: numbers.floor,
            });
        }
        // A floor that a reader was told of never falls (invariant 1).
        self.sync_batch = true;
        numbers.floor = floor;
        numbers.count -= removed;
        numbers.bytes -= freed;
        self.set_numbers(channel, numbers);
        self.frame.push(&Op::Trim {
            channel: channel.0,
            floor,
            removed,
            freed,
        });
        Ok(())
    }

    fn replace(
        &mut self,
        state: &State,
        channel: ChannelId,
        key: &Bytes,
        record: &NewRecord,
        deletion: bool,
    ) -> Result<u64, CommitError> {
        let replaced = self.key(state, channel, key)?.map(|entry| entry.size);
        let offset = self.take(state, channel, Kind::Map, record, None)?;
        let (id, record_ref) = (channel.0, as_ref(record));
        self.frame.push(&if deletion {
            Op::Remove {
                channel: id,
                offset,
                replaced,
                key,
                record: record_ref,
            }
        } else {
            Op::Set {
                channel: id,
                offset,
                replaced,
                key,
                record: record_ref,
            }
        });
        let size = record.size;
        let entry = Entry {
            offset,
            deletion,
            size,
        };
        self.set_key(channel, key, Some(entry));
        self.cache(channel, offset, record, key, deletion);
        Ok(offset)
    }

    /// The size of what is held under a key.
    fn held(&self, state: &State, key: &Bytes) -> Option<u64> {
        match self.holds.get(key) {
            Some(&here) => here,
            None => state.holds().get(key).map(|entry| entry.size),
        }
    }

    fn let_go(&mut self, state: &State, key: &Bytes) -> Result<(), CommitError> {
        let freed = self.held(state, key);
        let freed = freed.ok_or_else(|| CommitError::NotHeld { key: key.clone() })?;
        self.frame.push(&Op::Drop { freed, key });
        self.set_hold(key, None);
        Ok(())
    }

    /// A position past the end is of another log: from there on a consumer would miss what comes.
    /// One below the floor is a consumer that retention has passed.
    fn judge_position(
        &self,
        state: &State,
        space: u8,
        key: &Bytes,
        value: &Bytes,
    ) -> Result<(), CommitError> {
        if space != POSITIONS {
            return Ok(());
        }
        let (channel, position) = decode_position(key, value).ok_or(CommitError::BadPosition)?;
        let channel = ChannelId(channel);
        let known = state.channel(channel.0);
        let known = known.ok_or(CommitError::UnknownChannel { channel })?;
        let next = self.numbers(state, channel, known.kind)?.next;
        if position > next {
            return Err(CommitError::PositionAhead {
                channel,
                next,
                position,
            });
        }
        Ok(())
    }

    fn cache(
        &mut self,
        channel: ChannelId,
        offset: u64,
        record: &NewRecord,
        key: &Bytes,
        deletion: bool,
    ) {
        let NewRecord {
            timestamp,
            size,
            ref body,
        } = *record;
        let (key, body) = (key.clone(), body.clone());
        let stored = StoredRecord {
            offset,
            timestamp,
            size,
            key,
            deletion,
            body,
        };
        self.records.push((channel, stored));
    }

    fn numbers(
        &self,
        state: &State,
        channel: ChannelId,
        kind: Kind,
    ) -> Result<Numbers, CommitError> {
        let known = known(state, channel, kind)?;
        Ok(match self.numbers.get(channel.0 as usize) {
            Some(Some((frame, numbers))) if *frame == self.frames => *numbers,
            _ => known.numbers,
        })
    }

    /// The size of an unresolved job.
    fn job(&self, state: &State, channel: ChannelId, offset: u64) -> Result<u64, CommitError> {
        let known = known(state, channel, Kind::Work)?;
        let size = match self.jobs.get(&(channel.0, offset)) {
            Some(&here) => here,
            None => match &known.content {
                Content::Work(work) => work.get(offset).map(|item| item.size),
                _ => None,
            },
        };
        size.ok_or(CommitError::NoSuchItem { channel, offset })
    }

    /// Takes a job out; its counted size.
    fn remove_job(
        &mut self,
        state: &State,
        channel: ChannelId,
        offset: u64,
    ) -> Result<u64, CommitError> {
        let size = self.job(state, channel, offset)?;
        let mut numbers = self.numbers(state, channel, Kind::Work)?;
        numbers.count -= 1;
        numbers.bytes -= size;
        self.set_numbers(channel, numbers);
        self.set_job(channel, offset, None);
        Ok(size)
    }

    /// A key's entry.
    fn key(
        &self,
        state: &State,
        channel: ChannelId,
        key: &Bytes,
    ) -> Result<Option<Entry>, CommitError> {
        let known = known(state, channel, Kind::Map)?;
        if let Some(&here) = self.keys.get(&(channel.0, key.clone())) {
            return Ok(here);
        }
        let Content::Map(map) = &known.content else {
            return Ok(None);
        };
        Ok(map.get(key).map(|entry| Entry {
            offset: entry.offset,
            deletion: entry.deletion,
            size: entry.size,
        }))
    }

    fn set_numbers(&mut self, channel: ChannelId, numbers: Numbers) {
        let at = channel.0 as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, None);
        }
        let old = self.numbers[at].replace((self.frames, numbers));
        self.undo.push(Undo::Numbers(channel.0, old));
    }

    fn set_job(&mut self, channel: ChannelId, offset: u64, size: Option<u64>) {
        let old = self.jobs.insert((channel.0, offset), size);
        self.undo.push(Undo::Job((channel.0, offset), old));
    }

    fn set_key(&mut self, channel: ChannelId, key: &Bytes, entry: Option<Entry>) {
        let old = self.keys.insert((channel.0, key.clone()), entry);
        self.undo.push(Undo::Key((channel.0, key.clone()), old));
    }

    fn set_hold(&mut self, key: &Bytes, size: Option<u64>) {
        let old = self.holds.insert(key.clone(), size);
        self.undo.push(Undo::Hold(key.clone(), old));
    }

    fn roll_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Numbers(channel, old) => self.numbers[channel as usize] = old,
                Undo::Job(job, old) => restore(&mut self.jobs, job, old),
                Undo::Key(key, old) => restore(&mut self.keys, key, old),
                Undo::Hold(key, old) => restore(&mut self.holds, key, old),
                Undo::Defined => drop(self.defined.pop()),
            }
        }
    }
}

fn restore<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, old: Option<V>) {
    match old {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

fn known(state: &State, channel: ChannelId, kind: Kind) -> Result<&Channel, CommitError> {
    match state.channel(channel.0) {
        None => Err(CommitError::UnknownChannel { channel }),
        Some(known) if known.kind != kind => Err(CommitError::WrongKind {
            channel,
            kind: known.kind,
        }),
        Some(known) => Ok(known),
    }
}

fn as_ref(record: &NewRecord) -> RecordRef<'_> {
    RecordRef {
        timestamp: record.timestamp,
        size: record.size,
        body: &record.body,
    }
}

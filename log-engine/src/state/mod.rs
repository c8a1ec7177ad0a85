//! What the log adds up to: the channels, their numbers and where their records lie.
//!
//! [`State::apply`] is the only thing that changes it. The commit thread calls it with the frame
//! it has just made durable, recovery calls it with the frame it has just verified: the running
//! state and the recovered one cannot mean different things by the same bytes.

pub(crate) mod ceiling;
mod changes;
mod checkpoint;
mod error;
mod holds;
mod map;
mod positions;
mod sequence;
mod work;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

pub use ceiling::CEILING_REACH;
pub(crate) use checkpoint::Cursor;
pub use checkpoint::SegmentRuns;
pub use error::StateError;
pub use holds::{HoldEntry, HoldIndex};
pub use map::{MapEntry, MapIndex};
pub use positions::PositionIndex;
pub use sequence::{Anchor, SequenceIndex};
pub use work::{WorkEntry, WorkIndex};

use crate::breakage::{self, Breakage};
use crate::format::{Kind, Op, POSITIONS, RecordRef, StateLine, decode_position};

/// Where a record lies: the frame that holds it. The record is found by walking the frame's
/// operations, because the frame's checksum has to be verified anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Segment number.
    pub segment: u32,
    /// Position of the frame in the file, in bytes.
    pub frame: u32,
}

/// A channel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The offset the next record takes; from 1, never falling (invariant 9).
    pub next: u64,
    /// The oldest readable offset; never falling, never derived from what survives (invariant 1).
    pub floor: u64,
    /// Offsets below this may have been handed out by frames that were not synced when they were;
    /// zero where none were. An opening goes on at or above it (invariant 9).
    pub ceiling: u64,
    /// Live records, kept and not computed: offsets may have gaps.
    pub count: u64,
    /// Their counted size, in bytes.
    pub bytes: u64,
}

impl Numbers {
    const EMPTY: Numbers = Numbers {
        next: 1,
        floor: 1,
        ceiling: 0,
        count: 0,
        bytes: 0,
    };

    /// The one place that adds a record of `size` at `offset` to a channel's numbers.
    pub(crate) fn add(&mut self, offset: u64, size: u64) {
        self.next = offset + 1;
        self.count += 1;
        self.bytes += size;
    }
}

/// What a channel holds.
#[derive(Debug)]
pub enum Content {
    /// Records of an append log.
    Sequence(SequenceIndex),
    /// Latest values.
    Map(MapIndex),
    /// Unresolved jobs.
    Work(WorkIndex),
}

/// One channel.
#[derive(Debug)]
pub struct Channel {
    /// Name, unique in the log.
    pub name: Box<[u8]>,
    /// Kind.
    pub kind: Kind,
    /// Numbers.
    pub numbers: Numbers,
    /// Content.
    pub content: Content,
    /// What was written below this offset may lie in segments that are gone. It is at most the
    /// channel's next offset where the log begins, and 1 where the log is whole.
    known_from: u64,
}

impl Channel {
    fn new(kind: Kind, name: &[u8], numbers: Numbers) -> Channel {
        let content = match kind {
            Kind::Sequence => Content::Sequence(SequenceIndex::default()),
            Kind::Map => Content::Map(MapIndex::default()),
            Kind::Work => Content::Work(WorkIndex::default()),
        };
        Channel {
            name: name.into(),
            kind,
            numbers,
            content,
            known_from: numbers.next,
        }
    }

    fn line(&self, channel: u32) -> StateLine<'_> {
        let Numbers {
            next,
            floor,
            ceiling,
            count,
            bytes,
        } = self.numbers;
        StateLine {
            channel,
            kind: self.kind,
            name: &self.name,
            next,
            floor,
            ceiling,
            count,
            bytes,
        }
    }
}

/// A small value and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The value.
    pub value: Bytes,
    /// The frame that holds it.
    pub at: Location,
}

/// Everything the log says.
#[derive(Debug, Default)]
pub struct State {
    channels: BTreeMap<u32, Channel>,
    names: HashMap<Box<[u8]>, u32>,
    keyspace: BTreeMap<(u8, Bytes), KeyEntry>,
    keyspace_bytes: u64,
    positions: PositionIndex,
    holds: HoldIndex,
    oldest_segment: u64,
    /// Per segment: map entries, jobs, holds and small values that lie in it.
    entries: BTreeMap<u32, u64>,
}

impl State {
    /// The channel with this id.
    #[must_use]
    pub fn channel(&self, id: u32) -> Option<&Channel> {
        self.channels.get(&id)
    }

    /// The id of the channel with this name.
    #[must_use]
    pub fn channel_named(&self, name: &[u8]) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// Every channel, by id.
    pub fn channels(&self) -> impl Iterator<Item = (u32, &Channel)> {
        self.channels.iter().map(|(&id, channel)| (id, channel))
    }

    /// The id a new channel would take.
    #[must_use]
    pub fn next_channel_id(&self) -> u32 {
        self.channels.last_key_value().map_or(0, |(&id, _)| id + 1)
    }

    /// The keyspace, by namespace and key.
    #[must_use]
    pub fn keyspace(&self) -> &BTreeMap<(u8, Bytes), KeyEntry> {
        &self.keyspace
    }

    /// What is held back.
    #[must_use]
    pub fn holds(&self) -> &HoldIndex {
        &self.holds
    }

    /// Where consumers are.
    #[must_use]
    pub fn positions(&self) -> &PositionIndex {
        &self.positions
    }

    /// The oldest segment that belongs to the log, as the newest prologue states it; zero before
    /// the first.
    #[must_use]
    pub fn oldest_segment(&self) -> u64 {
        self.oldest_segment
    }

    /// Whether anything alive lies in a segment.
    #[must_use]
    pub fn needs(&self, segment: u32) -> bool {
        let records = |channel: &Channel| match &channel.content {
            Content::Sequence(index) => index.lies_in(segment),
            Content::Map(_) | Content::Work(_) => false,
        };
        self.entries.contains_key(&segment) || self.channels.values().any(records)
    }

    /// Bytes of what is alive: counted sizes, and the small values.
    #[must_use]
    pub fn alive_bytes(&self) -> u64 {
        let channels = self.channels.values().map(|c| c.numbers.bytes);
        self.keyspace_bytes + self.holds.bytes() + channels.sum::<u64>()
    }

    fn placed(&mut self, at: Location) {
        *self.entries.entry(at.segment).or_default() += 1;
    }

    fn left(&mut self, at: Location) {
        if let Some(entries) = self.entries.get_mut(&at.segment) {
            *entries -= 1;
            if *entries == 0 {
                self.entries.remove(&at.segment);
            }
        }
    }

    /// The operations of a prologue: everything a later part of the log may build on.
    pub fn prologue(&self) -> impl Iterator<Item = Op<'_>> {
        let segments = Op::Segments {
            oldest: self.oldest_segment.max(1),
        };
        let lines = self
            .channels
            .iter()
            .map(|(&id, channel)| Op::State(channel.line(id)));
        let held = Op::Held {
            count: self.holds.count(),
            bytes: self.holds.bytes(),
        };
        [segments, held].into_iter().chain(lines)
    }

    /// What a deliberate defect makes of a recovered state; nothing without the feature.
    pub(crate) fn damage_on_purpose(&mut self) {
        for channel in self.channels.values_mut() {
            match &mut channel.content {
                Content::Sequence(index) if breakage::is(Breakage::NextFromSurvivors) => {
                    let last = index.since(0).last();
                    channel.numbers.next = last.map_or(1, |a| a.offset + u64::from(a.records));
                }
                Content::Work(work) if breakage::is(Breakage::ForgetAttempts) => {
                    work.forget_attempts();
                }
                _ => {}
            }
        }
    }

    /// Applies one operation of the frame at `at`.
    ///
    /// # Errors
    /// [`StateError`] where a verified frame contradicts what came before it. Nothing was changed.
    pub fn apply(&mut self, op: &Op<'_>, at: Location) -> Result<(), StateError> {
        match *op {
            Op::Define {
                channel,
                kind,
                name,
            } => self.define(channel, kind, name, Numbers::EMPTY),
            Op::State(line) => self.restate(&line),
            Op::Segments { oldest } => {
                self.oldest_segment = self.oldest_segment.max(oldest);
                Ok(())
            }
            Op::Held { count, bytes } => self.holds.restate(count, bytes),
            // Read by whoever walks segments; it changes no channel.
            Op::Seal { .. } => Ok(()),
            Op::Ceiling { channel, ceiling } => self.set_ceiling(channel, ceiling),
            Op::Skip { channel, next } => self.skip(channel, next),
            Op::Append {
                channel,
                offset,
                record,
            } => self.append(channel, offset, &record, at),
            Op::Trim {
                channel,
                floor,
                removed,
                freed,
            } => self.trim(channel, floor, removed, freed),
            Op::Set {
                channel,
                offset,
                replaced,
                key,
                record,
            } => self.replace(channel, offset, replaced, key, &record, false, at),
            Op::Remove {
                channel,
                offset,
                replaced,
                key,
                record,
            } => self.replace(channel, offset, replaced, key, &record, true, at),
            Op::Forget {
                channel,
                offset,
                freed,
                key,
            } => self.forget(channel, offset, freed, key),
            Op::Enqueue {
                channel,
                offset,
                record,
            } => self.enqueue(channel, offset, &record, at),
            Op::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            } => self.attempt(channel, offset, attempts, (first, last)),
            Op::Resolve {
                channel,
                offset,
                freed,
            } => self.resolve(channel, offset, freed),
            Op::DeadLetter {
                work,
                work_offset,
                freed,
                channel,
                offset,
                record,
            } => {
                // Both halves are judged before either is made: a move is never half done
                // (invariant 5).
                self.sequence_mut(channel)?
                    .0
                    .check_offset(channel, offset)?;
                if !breakage::is(Breakage::HalfDeadLetter) {
                    self.resolve(work, work_offset, freed)?;
                }
                self.append(channel, offset, &record, at)
            }
            Op::MoveRecord {
                channel,
                offset,
                record,
            } => {
                let (numbers, index) = self.sequence_mut(channel)?;
                if !(numbers.floor..numbers.next).contains(&offset) {
                    return Err(StateError::NoSuchItem { channel, offset });
                }
                index.moved(offset, &record, at);
                Ok(())
            }
            Op::MoveEntry {
                channel,
                offset,
                deletion,
                key,
                record,
            } => self.move_entry(channel, offset, deletion, key, &record, at),
            Op::MoveJob {
                channel,
                offset,
                attempts,
                attempted,
                record,
            } => self.move_job(channel, offset, (attempts, attempted), &record, at),
            Op::Hold { key, record } => {
                self.holds.hold(key, HoldEntry::new(at, &record))?;
                self.placed(at);
                Ok(())
            }
            Op::Drop { freed, key } => {
                if let Some(was) = self.holds.drop(key, freed)? {
                    self.left(was);
                }
                Ok(())
            }
            Op::MoveHold { key, record } => {
                let was = self.holds.moved(key, HoldEntry::new(at, &record))?;
                self.placed(at);
                if let Some(was) = was {
                    self.left(was);
                }
                Ok(())
            }
            Op::Put { space, key, value } => {
                self.check_position(space, key, value)?;
                let key = (space, Bytes::copy_from_slice(key));
                self.put(key, Bytes::copy_from_slice(value), at);
                Ok(())
            }
            Op::Delete { space, key } => {
                let key = (space, Bytes::copy_from_slice(key));
                if let Some(old) = self.keyspace.remove(&key) {
                    self.forget_value(&key, &old);
                }
                Ok(())
            }
        }
    }

    fn put(&mut self, key: (u8, Bytes), value: Bytes, at: Location) {
        self.keyspace_bytes += key_bytes(&key, &value);
        let old = self.keyspace.insert(key.clone(), KeyEntry { value, at });
        self.placed(at);
        if let Some(old) = old {
            self.forget_value(&key, &old);
        }
        if let Some(KeyEntry { value, .. }) = self.keyspace.get(&key)
            && let Some((channel, position)) = position_in(&key, value)
        {
            self.positions.add(channel, position);
        }
    }

    /// Judges the position an entry of the keyspace is, if it is in their namespace. One below the
    /// floor is a consumer that retention has passed; one past the end is of another log, or of this
    /// one before it lost something.
    fn check_position(&self, space: u8, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        if space != POSITIONS {
            return Ok(());
        }
        let Some((channel, found)) = decode_position(key, value) else {
            let key = key.escape_ascii().to_string();
            return Err(StateError::NoPosition { key });
        };
        let known = self.channels.get(&channel);
        let next = known
            .ok_or(StateError::UnknownChannel { channel })?
            .numbers
            .next;
        if found > next {
            return Err(StateError::PositionAhead {
                channel,
                next,
                found,
            });
        }
        Ok(())
    }

    /// What goes with a value that was replaced or deleted.
    fn forget_value(&mut self, key: &(u8, Bytes), old: &KeyEntry) {
        self.keyspace_bytes -= key_bytes(key, &old.value);
        self.left(old.at);
        if let Some((channel, position)) = position_in(key, &old.value) {
            self.positions.remove(channel, position);
        }
    }

    fn define(
        &mut self,
        id: u32,
        kind: Kind,
        name: &[u8],
        numbers: Numbers,
    ) -> Result<(), StateError> {
        if self.channels.contains_key(&id) || self.names.contains_key(name) {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(StateError::DefinedTwice { channel: id, name });
        }
        self.names.insert(name.into(), id);
        self.channels.insert(id, Channel::new(kind, name, numbers));
        Ok(())
    }

    /// A prologue line: it creates a channel whose earlier segments are gone, and must agree with
    /// what was replayed where they are not.
    fn restate(&mut self, line: &StateLine<'_>) -> Result<(), StateError> {
        let Some(known) = self.channels.get(&line.channel) else {
            let StateLine {
                next,
                floor,
                ceiling,
                count,
                bytes,
                ..
            } = *line;
            let numbers = Numbers {
                next,
                floor,
                ceiling,
                count,
                bytes,
            };
            return self.define(line.channel, line.kind, line.name, numbers);
        };
        let known = known.line(line.channel);
        if known == *line {
            return Ok(());
        }
        Err(StateError::PrologueDisagrees {
            channel: line.channel,
            replayed: format!("{known:?}"),
            stated: format!("{line:?}"),
        })
    }

    fn append(
        &mut self,
        channel: u32,
        offset: u64,
        record: &RecordRef<'_>,
        at: Location,
    ) -> Result<(), StateError> {
        let (numbers, index) = self.sequence_mut(channel)?;
        numbers.check_offset(channel, offset)?;
        numbers.add(offset, record.size);
        index.push(offset, record, at);
        Ok(())
    }

    fn trim(
        &mut self,
        channel: u32,
        floor: u64,
        removed: u64,
        freed: u64,
    ) -> Result<(), StateError> {
        let (numbers, index) = self.sequence_mut(channel)?;
        let possible = floor > numbers.floor
            && floor <= numbers.next
            && removed <= numbers.count
            && freed <= numbers.bytes;
        if !possible {
            return Err(StateError::ImpossibleTrim {
                channel,
                floor,
                removed,
                freed,
            });
        }
        // Floor, count and bytes move in the operation that removes the records (invariant 1).
        if !breakage::is(Breakage::DeletionWithoutFloor) {
            numbers.floor = floor;
        }
        if breakage::is(Breakage::FloorWithoutDeletion) {
            return Ok(());
        }
        numbers.count -= removed;
        numbers.bytes -= freed;
        index.trim(floor);
        Ok(())
    }

    fn channel_mut(&mut self, id: u32) -> Result<&mut Channel, StateError> {
        self.channels
            .get_mut(&id)
            .ok_or(StateError::UnknownChannel { channel: id })
    }

    fn sequence_mut(&mut self, id: u32) -> Result<(&mut Numbers, &mut SequenceIndex), StateError> {
        let Channel {
            kind,
            numbers,
            content,
            ..
        } = self.channel_mut(id)?;
        match content {
            Content::Sequence(index) => Ok((numbers, index)),
            _ => Err(StateError::WrongKind {
                channel: id,
                kind: *kind,
                wanted: Kind::Sequence,
            }),
        }
    }

    fn map_mut(&mut self, id: u32) -> Result<(&mut Numbers, &mut MapIndex), StateError> {
        let Channel {
            kind,
            numbers,
            content,
            ..
        } = self.channel_mut(id)?;
        match content {
            Content::Map(index) => Ok((numbers, index)),
            _ => Err(StateError::WrongKind {
                channel: id,
                kind: *kind,
                wanted: Kind::Map,
            }),
        }
    }

    fn work_mut(&mut self, id: u32) -> Result<(&mut Numbers, &mut WorkIndex), StateError> {
        let Channel {
            kind,
            numbers,
            content,
            ..
        } = self.channel_mut(id)?;
        match content {
            Content::Work(index) => Ok((numbers, index)),
            _ => Err(StateError::WrongKind {
                channel: id,
                kind: *kind,
                wanted: Kind::Work,
            }),
        }
    }
}

/// The channel and position an entry of the keyspace is, if it is one.
fn position_in(key: &(u8, Bytes), value: &[u8]) -> Option<(u32, u64)> {
    (key.0 == POSITIONS).then(|| decode_position(&key.1, value))?
}

fn key_bytes(key: &(u8, Bytes), value: &Bytes) -> u64 {
    (key.1.len() + value.len()) as u64
}

impl Numbers {
    /// Takes one record of `size` out of the numbers.
    fn subtract(&mut self, channel: u32, offset: u64, size: u64) -> Result<(), StateError> {
        match (self.count.checked_sub(1), self.bytes.checked_sub(size)) {
            (Some(count), Some(bytes)) => {
                (self.count, self.bytes) = (count, bytes);
                Ok(())
            }
            _ => Err(StateError::NoSuchItem { channel, offset }),
        }
    }

    /// A record takes exactly the next offset: one below it would be a reused number, one above it
    /// a record that is missing (invariant 9).
    fn check_offset(&self, channel: u32, offset: u64) -> Result<(), StateError> {
        if offset == self.next && offset < u64::MAX {
            return Ok(());
        }
        Err(StateError::OffsetOutOfOrder {
            channel,
            expected: self.next,
            found: offset,
        })
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

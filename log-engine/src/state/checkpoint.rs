//! The state to and from a checkpoint.
//!
//! A checkpoint names a segment; the state at that segment's prologue is what it stands for. The
//! numbers are in the prologue itself, and where records of sequences lie is in the footers of the
//! segments before it. What is left, the entries of maps, work sets and the keyspace and what is held
//! back, is copied piece by piece *while commits go on*, so the copy is of no one moment. That is no
//! harm: what lies in that segment or a later one is not taken from the copy, and the replay makes
//! every change again that was made meanwhile. Of what was alive at the prologue, only what went, or
//! was written elsewhere, before it was copied is missing then; its going is replayed with the size
//! it gave back, its moving with all of it. That is the very case of a log whose front is gone.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Anchor, Content, HoldEntry, KeyEntry, Location, MapEntry, SequenceIndex, State, StateError,
    WorkEntry,
};
use crate::breakage::{self, Breakage};
use crate::format::{Chunk, HoldItem, JobItem, MapItem, Op, ValueItem};

/// Bytes of keys and values after which a chunk takes no more.
const CHUNK_BYTES: usize = 1 << 20;

/// How far a copy has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// At this offset of this channel.
    Channel(u32, u64),
    /// At this key of the keyspace.
    Key(u8, Bytes),
    /// After this key of what is held back.
    Hold(Option<Bytes>),
    /// At the end.
    Done,
}

impl Cursor {
    pub(crate) const START: Cursor = Cursor::Channel(0, 0);
}

impl State {
    /// The next piece of what is alive, of at most so many entries; `None` at the end.
    pub(crate) fn chunk(&self, cursor: &mut Cursor, most: usize) -> Option<Chunk> {
        if let Cursor::Channel(from, offset) = *cursor {
            let mut offset = offset;
            for (&id, channel) in self.channels.range(from..) {
                if id != from {
                    offset = 0;
                }
                let (chunk, next) = match &channel.content {
                    Content::Sequence(_) => continue,
                    Content::Map(map) => {
                        let (entries, next) = full(most, map.from_offset(offset), |(key, e)| {
                            let item = map_item(key, &e);
                            (key.len(), e.offset, item)
                        });
                        let none = entries.is_empty();
                        let channel = id;
                        ((!none).then_some(Chunk::Map { channel, entries }), next)
                    }
                    Content::Work(work) => {
                        let (jobs, next) = full(most, work.from_offset(offset), |(o, e)| {
                            (0, o, job_item(o, e))
                        });
                        let none = jobs.is_empty();
                        let channel = id;
                        ((!none).then_some(Chunk::Work { channel, jobs }), next)
                    }
                };
                if chunk.is_some() {
                    *cursor = match next {
                        Some(offset) => Cursor::Channel(id, offset),
                        None => Cursor::Channel(id.saturating_add(1), 0),
                    };
                    return chunk;
                }
            }
            *cursor = Cursor::Key(0, Bytes::new());
        }
        if let Cursor::Key(space, key) = cursor.clone() {
            let values = self.keyspace.range((space, key)..);
            let (values, next) = full(most, values, |(name, entry)| {
                let bytes = name.1.len() + entry.value.len();
                (bytes, name.clone(), value_item(name, entry))
            });
            *cursor = match next {
                Some((space, key)) => Cursor::Key(space, key),
                None => Cursor::Hold(None),
            };
            if !values.is_empty() {
                return Some(Chunk::Values(values));
            }
        }
        let Cursor::Hold(after) = cursor.clone() else {
            return None;
        };
        let mut last = after.clone();
        let (holds, next) = full(most, self.holds.after(after.as_deref()), |(key, entry)| {
            (key.len(), key.clone(), hold_item(key, entry))
        });
        if let Some(hold) = holds.last() {
            last = Some(hold.key.clone());
        }
        *cursor = match next {
            Some(_) => Cursor::Hold(last),
            None => Cursor::Done,
        };
        (!holds.is_empty()).then_some(Chunk::Holds(holds))
    }

    /// Takes one piece of a checkpoint into the state at the prologue of `segment`. What lies there or
    /// later is left to the replay.
    ///
    /// # Errors
    /// [`StateError`] where the piece contradicts the prologue.
    pub fn load(&mut self, chunk: Chunk, segment: u32) -> Result<(), StateError> {
        let earlier = |at: u32| at < segment || breakage::is(Breakage::BelieveCopy);
        match chunk {
            Chunk::Map { channel, entries } => {
                for item in entries.into_iter().filter(|item| earlier(item.segment)) {
                    self.load_entry(channel, item)?;
                }
            }
            Chunk::Work { channel, jobs } => {
                for item in jobs.into_iter().filter(|item| earlier(item.segment)) {
                    self.load_job(channel, &item)?;
                }
            }
            Chunk::Values(values) => {
                for item in values.into_iter().filter(|item| earlier(item.segment)) {
                    let at = place(item.segment, item.frame);
                    self.check_position(item.space, &item.key, &item.value)?;
                    self.put((item.space, item.key), item.value, at);
                }
            }
            Chunk::Holds(holds) => {
                for item in holds.into_iter().filter(|item| earlier(item.segment)) {
                    let at = place(item.segment, item.frame);
                    let entry = HoldEntry {
                        at,
                        size: item.size,
                        timestamp: item.timestamp,
                    };
                    self.holds.moved(&item.key, entry)?;
                    self.placed(at);
                }
            }
        }
        Ok(())
    }

    fn load_entry(&mut self, channel: u32, item: MapItem) -> Result<(), StateError> {
        let at = place(item.segment, item.frame);
        let offset = item.offset;
        let entry = MapEntry {
            offset,
            at,
            size: item.size,
            timestamp: item.timestamp,
            deletion: item.deletion,
        };
        let (numbers, map) = self.map_mut(channel)?;
        if offset >= numbers.next || map.get(&item.key).is_some() {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        map.insert(item.key, entry);
        self.placed(at);
        Ok(())
    }

    fn load_job(&mut self, channel: u32, item: &JobItem) -> Result<(), StateError> {
        let at = place(item.segment, item.frame);
        let offset = item.offset;
        let entry = WorkEntry {
            at,
            size: item.size,
            timestamp: item.timestamp,
            attempts: item.attempts,
            attempted: item.attempted,
        };
        let (numbers, work) = self.work_mut(channel)?;
        if offset >= numbers.next || work.get(offset).is_some() {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        work.insert(offset, entry);
        self.placed(at);
        Ok(())
    }

    /// Takes the runs of one channel that a segment's footer names, oldest segment first.
    ///
    /// # Errors
    /// [`StateError`] where there is no such sequence.
    pub fn load_runs(&mut self, channel: u32, runs: Vec<Anchor>) -> Result<(), StateError> {
        let (_, index) = self.sequence_mut(channel)?;
        for run in runs {
            index.place(run);
        }
        Ok(())
    }

    /// Ends the loading of footers: what lies below the floors goes.
    pub fn loaded(&mut self) {
        for channel in self.channels.values_mut() {
            if let Content::Sequence(index) = &mut channel.content {
                index.trim(channel.numbers.floor);
            }
        }
    }

    /// Everything alive is known from here on, so whatever is taken away must be there.
    pub fn completed(&mut self) {
        for channel in self.channels.values_mut() {
            channel.known_from = 1;
        }
    }

    /// Sees that what is known of every channel is as much as its numbers say, which no checksum
    /// does.
    ///
    /// # Errors
    /// [`StateError::Miscounted`] for the first channel where it is not.
    pub fn check_counts(&self) -> Result<(), StateError> {
        for (&id, channel) in &self.channels {
            let found = match &channel.content {
                Content::Sequence(index) => index.count(channel.numbers.floor),
                Content::Map(map) => map.len() as u64,
                Content::Work(work) => work.len() as u64,
            };
            let stated = channel.numbers.count;
            if found != stated {
                let channel = id;
                return Err(StateError::Miscounted {
                    channel,
                    stated,
                    found,
                });
            }
        }
        Ok(())
    }

    /// The first thing in which two states that should be one differ, in words.
    #[must_use]
    pub fn difference(&self, other: &State) -> Option<String> {
        let ids = |state: &State| state.channels.keys().copied().collect::<Vec<_>>();
        if ids(self) != ids(other) {
            return Some("the channels".to_owned());
        }
        for ((id, a), b) in self.channels.iter().zip(other.channels.values()) {
            let name = String::from_utf8_lossy(&a.name);
            if (a.kind, &a.name, a.numbers) != (b.kind, &b.name, b.numbers) {
                return Some(format!(
                    "channel {id} ({name}): {:?} and {:?}",
                    a.numbers, b.numbers
                ));
            }
            let same = match (&a.content, &b.content) {
                (Content::Sequence(x), Content::Sequence(y)) => x.same_places(y, a.numbers.floor),
                (Content::Map(x), Content::Map(y)) => x.from_offset(0).eq(y.from_offset(0)),
                (Content::Work(x), Content::Work(y)) => x.iter().eq(y.iter()),
                _ => false,
            };
            if !same {
                return Some(format!("what channel {id} ({name}) holds, or where"));
            }
        }
        if self.keyspace != other.keyspace || self.keyspace_bytes != other.keyspace_bytes {
            return Some("the small values".to_owned());
        }
        if self.positions != other.positions {
            return Some("the positions".to_owned());
        }
        if self.holds != other.holds {
            return Some("what is held back, or where".to_owned());
        }
        let differ = self.entries != other.entries;
        differ.then(|| "how much lies in which segment".to_owned())
    }
}

/// Where the records of sequences lie in one segment: what its footer says, from its frames.
#[derive(Debug, Default)]
pub struct SegmentRuns {
    channels: BTreeMap<u32, SequenceIndex>,
}

impl SegmentRuns {
    /// Takes one operation of the frame at `at`.
    pub fn operation(&mut self, op: &Op<'_>, at: Location) {
        match op {
            Op::Append {
                channel,
                offset,
                record,
            }
            | Op::DeadLetter {
                channel,
                offset,
                record,
                ..
            } => self.of(*channel).push(*offset, record, at),
            Op::MoveRecord {
                channel,
                offset,
                record,
            } => self.of(*channel).moved(*offset, record, at),
            _ => {}
        }
    }

    /// Channels and their runs, in offset order.
    #[must_use]
    pub fn finish(self) -> Vec<(u32, Vec<Anchor>)> {
        let runs = |(id, index): (u32, SequenceIndex)| (id, index.runs().copied().collect());
        self.channels.into_iter().map(runs).collect()
    }

    fn of(&mut self, channel: u32) -> &mut SequenceIndex {
        self.channels.entry(channel).or_default()
    }
}

fn place(segment: u32, frame: u32) -> Location {
    Location { segment, frame }
}

/// Takes items until a chunk is full: the items, and the place of the next one.
fn full<I: Iterator, T, P>(
    most: usize,
    items: I,
    mut take: impl FnMut(I::Item) -> (usize, P, T),
) -> (Vec<T>, Option<P>) {
    let (mut out, mut bytes) = (Vec::new(), 0);
    for item in items {
        let (size, place, item) = take(item);
        if out.len() >= most || bytes >= CHUNK_BYTES {
            return (out, Some(place));
        }
        bytes += size;
        out.push(item);
    }
    (out, None)
}

fn map_item(key: &Bytes, entry: &MapEntry) -> MapItem {
    MapItem {
        key: key.clone(),
        offset: entry.offset,
        segment: entry.at.segment,
        frame: entry.at.frame,
        size: entry.size,
        timestamp: entry.timestamp,
        deletion: entry.deletion,
    }
}

fn job_item(offset: u64, entry: &WorkEntry) -> JobItem {
    JobItem {
        offset,
        segment: entry.at.segment,
        frame: entry.at.frame,
        size: entry.size,
        timestamp: entry.timestamp,
        attempts: entry.attempts,
        attempted: entry.attempted,
    }
}

fn hold_item(key: &Bytes, entry: &HoldEntry) -> HoldItem {
    HoldItem {
        key: key.clone(),
        segment: entry.at.segment,
        frame: entry.at.frame,
        size: entry.size,
        timestamp: entry.timestamp,
    }
}

fn value_item(name: &(u8, Bytes), entry: &KeyEntry) -> ValueItem {
    ValueItem {
        space: name.0,
        key: name.1.clone(),
        value: entry.value.clone(),
        segment: entry.at.segment,
        frame: entry.at.frame,
    }
}

//! What may be deleted, and how what is alive gets out of its way.
//!
//! Segments go from the front only. One goes once nothing alive lies in it: the frame that says that
//! the log begins after it is durable first, then the file is unlinked, or set aside to become the next
//! one, then the directory synced.
//! The other order could lose a segment that a recovery still counts on.
//!
//! What pins the front segment (a current value, an unresolved job, a record of a slow channel, a
//! hold, a small value) is *moved*: stated again at the end of the log under the same offset, once the log
//! takes more than about twice what is alive in it. A crash at any point leaves the old place or
//! the new one.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use crate::batch::{
    Batch, ChannelId, CommitError, Durability, NewRecord, Operation, Tidy, TidyStep,
};
use crate::breakage::{self, Breakage};
use crate::engine::Engine;
use crate::read::ReadError;
use crate::segment::Segment;
use crate::spare::Fresh;
use crate::state::{Anchor, Content, HoldEntry, Location, State};
use crate::sync::{Arc, lock, read};
use crate::tail::StoredRecord;

/// Counted bytes one step moves, about: a step is one frame, and others' commits wait for it.
const STEP_BYTES: u64 = 256 << 10;
/// Entries looked at while readers and the commit thread are kept out.
const LOOK: usize = 4096;
/// What moving leaves of the last segment there is room for: the frame that lets the emptied one go.
const STARVED_MARGIN: u64 = 256;
/// Segments a log may have beyond twice what is alive: the one written to, the next one, and one
/// that is being emptied.
const SLACK_SEGMENTS: u64 = 3;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidied {
    /// There is nothing to do.
    Nothing,
    /// This many records, entries, jobs and values were stated again.
    Moved(usize),
    /// This many segments were let go of.
    Dropped(usize),
}

/// Why a step was not made. Nothing was lost by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TidyError {
    /// What has to be moved cannot be read.
    Read(ReadError),
    /// It could not be stated again, or the end of the old segments could not be recorded.
    Commit(CommitError),
}

impl std::fmt::Display for TidyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TidyError::Read(error) => write!(f, "an old segment cannot be emptied: {error}"),
            TidyError::Commit(error) => write!(f, "an old segment cannot be let go of: {error}"),
        }
    }
}

impl std::error::Error for TidyError {}

impl From<ReadError> for TidyError {
    fn from(error: ReadError) -> TidyError {
        TidyError::Read(error)
    }
}

impl From<CommitError> for TidyError {
    fn from(error: CommitError) -> TidyError {
        TidyError::Commit(error)
    }
}

/// What pins a segment.
enum Pin {
    Run(ChannelId, Anchor),
    Entry(ChannelId, Bytes, Place, bool),
    Job(ChannelId, Place),
    Hold(Bytes, HoldEntry),
    Key(u8, Bytes, usize),
}

struct Place {
    offset: u64,
    at: Location,
}

impl Engine {
    /// Makes one step towards giving disk space back. Called from a thread of the engine's own, or
    /// by whoever runs an engine without one.
    ///
    /// # Errors
    /// [`TidyError`]; the next call tries again.
    pub fn tidy(&self) -> Result<Tidied, TidyError> {
        self.shared.tidy()
    }
}

impl crate::engine::Shared {
    pub(crate) fn tidy(&self) -> Result<Tidied, TidyError> {
        // One step at a time: two would move the same things.
        let _turn = lock(&self.tidying);
        let segments = self.segments.snapshot();
        let [sealed @ .., _] = segments.as_slice() else {
            return Ok(Tidied::Nothing);
        };
        let dead = {
            let published = read(&self.published);
            let needed = |s: &&Arc<Segment>| {
                published.state.needs(s.number()) && !breakage::is(Breakage::UnlinkLive)
            };
            sealed
                .iter()
                .position(|s| needed(&s))
                .unwrap_or(sealed.len())
        };
        if dead > 0 {
            self.drop_front(&segments, dead)?;
            return Ok(Tidied::Dropped(dead));
        }
        let Some(front) = sealed.first() else {
            return Ok(Tidied::Nothing);
        };
        let needed = self.needs_room();
        if !needed && !self.is_wasteful(&segments) {
            return Ok(Tidied::Nothing);
        }
        self.empty(front.number(), needed)
    }

    /// Lets the first `dead` segments go.
    fn drop_front(&self, segments: &[Arc<Segment>], dead: usize) -> Result<(), TidyError> {
        let oldest = segments[dead].header.number;
        let step = TidyStep::Oldest { segment: oldest };
        if !breakage::is(Breakage::UnlinkBeforeFloor) {
            self.submit(as_batch(vec![step])).wait()?;
        }
        self.segments.drop_before(oldest);
        let mut spent = None;
        for segment in &segments[..dead] {
            if spent.is_none() && self.is_of_use(segment) {
                spent = self.set_aside(segment);
                if spent.is_some() {
                    continue;
                }
            }
            // One that stays is no part of the log any more and is removed when it is next opened.
            if let Err(error) = self.fs.remove(&segment.path) {
                self.room.add_other(segment.header.capacity);
                tracing::warn!(path = %segment.path.display(), %error, "an old segment could not be removed");
            }
        }
        if breakage::is(Breakage::ReuseBeforeSync)
            && let Some(spent) = &spent
        {
            let _ = spent.file.write_all_at(&[0u8; 64], 0);
        }
        match self.fs.sync_dir(&self.layout.segment_dir()) {
            // Only now: under its old name a cut would bring back a segment of zeros.
            Ok(()) => spent
                .into_iter()
                .for_each(|spent| self.next_segment.offer_spent(spent)),
            Err(error) => {
                tracing::warn!(%error, "the removal of old segments could not be synced");
            }
        }
        if breakage::is(Breakage::UnlinkBeforeFloor) {
            let step = TidyStep::Oldest { segment: oldest };
            self.submit(as_batch(vec![step])).wait()?;
        }
        Ok(())
    }

    /// Whether the next segment can be made from a dead one's file: nobody reads it any more, it is no
    /// larger than it has to be, and its room is not wanted back.
    fn is_of_use(&self, segment: &Arc<Segment>) -> bool {
        let ordinary = self.segment_bytes..=self.segment_bytes + self.segment_bytes / 4;
        // Readers hold lists of segments; this one is of the list held here.
        let unread = Arc::strong_count(segment) == 1;
        let wanted_back = self.room.max_bytes.is_some() || self.room.is_starved();
        unread
            && !wanted_back
            && ordinary.contains(&segment.bytes())
            && self.next_segment.wants_spent()
    }

    /// Takes a dead segment's name away, so that its file can be used again.
    fn set_aside(&self, segment: &Segment) -> Option<Fresh> {
        let name = format!("spent-{:020}", segment.header.first_lsn);
        let path = self.layout.scratch_path(&name);
        if let Err(error) = self.fs.rename(&segment.path, &path) {
            tracing::warn!(path = %segment.path.display(), %error, "an old segment could not be renamed");
            return None;
        }
        Some(Fresh {
            path,
            file: segment.file.clone(),
            // Its footer is overwritten too.
            capacity: segment.bytes(),
        })
    }

    /// Whether the log takes more room than about twice what is alive.
    fn is_wasteful(&self, segments: &[Arc<Segment>]) -> bool {
        let taken: u64 = segments.iter().map(|s| s.header.capacity).sum();
        let alive = read(&self.published).state.alive_bytes();
        taken > 2 * alive + SLACK_SEGMENTS * self.segment_bytes
    }

    /// Moves some of what is alive in a segment; what relieved may pay for it where room is `needed`.
    fn empty(&self, segment: u32, needed: bool) -> Result<Tidied, TidyError> {
        // What cannot be paid for is not looked for either: that takes a walk over all that is alive.
        let worth = STEP_BYTES.min(self.segment_bytes) / 4;
        let earned = if needed { self.room.earned() } else { 0 };
        if self.credit.load(Relaxed).saturating_add(earned) < worth {
            return Ok(Tidied::Nothing);
        }
        let starved = self.room.is_starved();
        let mut steps = Vec::new();
        let mut bytes = 0;
        for pin in self.pins(segment) {
            bytes += self.steps_for(pin, segment, &mut steps)?;
            if bytes >= STEP_BYTES {
                break;
            }
        }
        let moved = steps.len();
        let batch = as_batch(steps);
        // Never more is moved than was written for others since the start, and where room is needed a
        // multiple of what gave some back: whatever the sizes say, what is alive is not carried round
        // and round.
        let cost = batch.encoded_bound();
        if starved && (bytes >= STEP_BYTES || cost + STARVED_MARGIN > self.room.left()) {
            // There is no other segment: emptied in one step, or what is left of this one is wasted.
            return Ok(Tidied::Nothing);
        }
        let paid = |credit: u64| credit.checked_sub(cost);
        let credit = || self.credit.fetch_update(Relaxed, Relaxed, paid).is_ok();
        if moved == 0 || !(credit() || needed && self.room.pay(cost)) {
            return Ok(Tidied::Nothing);
        }
        self.submit(batch).wait()?;
        self.meters.add(&self.meters.moved_bytes, cost);
        Ok(Tidied::Moved(moved))
    }

    /// What lies in a segment, up to about a step's worth.
    fn pins(&self, segment: u32) -> Vec<Pin> {
        let mut pins = Vec::new();
        let mut bytes = 0;
        let channels: Vec<u32> = {
            let published = read(&self.published);
            published.state.channels().map(|(id, _)| id).collect()
        };
        for id in channels {
            let mut from = Some(0);
            while let Some(offset) = from.take()
                && bytes < STEP_BYTES
            {
                let published = read(&self.published);
                from = pins_of(&published.state, id, segment, offset, &mut pins, &mut bytes);
            }
        }
        let mut after = Some(None::<Bytes>);
        while let Some(key) = after.take()
            && bytes < STEP_BYTES
        {
            let published = read(&self.published);
            let mut looked = published.state.holds().after(key.as_deref()).peekable();
            let mut last = None;
            for (key, entry) in looked.by_ref().take(LOOK) {
                last = Some(key.clone());
                if entry.at.segment == segment && bytes < STEP_BYTES {
                    bytes += entry.size;
                    pins.push(Pin::Hold(key.clone(), *entry));
                }
            }
            after = looked.peek().map(|_| last);
        }
        let mut from = Some((0, Bytes::new()));
        while let Some(key) = from.take()
            && bytes < STEP_BYTES
        {
            let published = read(&self.published);
            let mut looked = published.state.keyspace().range(key..);
            for ((space, key), entry) in looked.by_ref().take(LOOK) {
                if entry.at.segment == segment && bytes < STEP_BYTES {
                    bytes += entry.value.len() as u64;
                    pins.push(Pin::Key(*space, key.clone(), entry.value.len()));
                }
            }
            from = looked.next().map(|(key, _)| key.clone());
        }
        pins
    }

    /// The steps that move one pin; the counted bytes they take.
    fn steps_for(
        &self,
        pin: Pin,
        segment: u32,
        steps: &mut Vec<TidyStep>,
    ) -> Result<u64, TidyError> {
        let mut frames = self.frames();
        match pin {
            Pin::Run(channel, anchor) => {
                // All of a run is moved in one frame.
                let mut bytes = 0;
                frames.run(&anchor, channel, &mut |offset, record| {
                    bytes += record.size;
                    steps.push(TidyStep::Record {
                        channel,
                        offset,
                        record: NewRecord {
                            timestamp: record.timestamp,
                            size: record.size,
                            body: Bytes::copy_from_slice(record.body),
                        },
                    });
                    true
                })?;
                Ok(bytes)
            }
            Pin::Entry(channel, key, Place { offset, at }, deletion) => {
                let found = frames.one(at, channel, offset, &key, deletion)?;
                let size = found.size;
                let record = as_new(found);
                steps.push(TidyStep::Entry {
                    channel,
                    offset,
                    deletion,
                    key,
                    record,
                });
                Ok(size)
            }
            Pin::Job(channel, Place { offset, at }) => {
                let found = frames.one(at, channel, offset, &Bytes::new(), false)?;
                let size = found.size;
                let record = as_new(found);
                steps.push(TidyStep::Job {
                    channel,
                    offset,
                    record,
                });
                Ok(size)
            }
            Pin::Hold(key, entry) => {
                let record = as_new(frames.hold(&key, &entry)?);
                let (at, size) = (entry.at, entry.size);
                steps.push(TidyStep::Hold { key, at, record });
                Ok(size)
            }
            Pin::Key(space, key, len) => {
                steps.push(TidyStep::Key {
                    space,
                    key,
                    len,
                    from: segment,
                });
                Ok(len as u64)
            }
        }
    }
}

/// What of one channel lies in a segment, among the next few entries from `offset` on; where to go
/// on, if there are more.
fn pins_of(
    state: &State,
    id: u32,
    segment: u32,
    offset: u64,
    pins: &mut Vec<Pin>,
    bytes: &mut u64,
) -> Option<u64> {
    let channel = state.channel(id)?;
    let floor = channel.numbers.floor;
    let id = ChannelId(id);
    match &channel.content {
        Content::Sequence(index) => {
            for anchor in index.in_segment(segment) {
                if *bytes >= STEP_BYTES {
                    break;
                }
                *bytes += anchor.bytes;
                pins.push(Pin::Run(id, anchor.from_floor(floor)));
            }
            None
        }
        Content::Map(map) => {
            let mut looked = map.from_offset(offset);
            for (key, entry) in looked.by_ref().take(LOOK) {
                if entry.at.segment == segment && *bytes < STEP_BYTES {
                    *bytes += entry.size;
                    let place = Place {
                        offset: entry.offset,
                        at: entry.at,
                    };
                    pins.push(Pin::Entry(id, key.clone(), place, entry.deletion));
                }
            }
            looked.next().map(|(_, entry)| entry.offset)
        }
        Content::Work(work) => {
            let mut looked = work.from_offset(offset);
            for (offset, item) in looked.by_ref().take(LOOK) {
                if item.at.segment == segment && *bytes < STEP_BYTES {
                    *bytes += item.size;
                    let at = item.at;
                    pins.push(Pin::Job(id, Place { offset, at }));
                }
            }
            looked.next().map(|(offset, _)| offset)
        }
    }
}

pub(crate) fn as_batch(steps: Vec<TidyStep>) -> Batch {
    let operations = steps.into_iter().map(|step| Operation::Tidy(Tidy(step)));
    Batch {
        operations: operations.collect(),
        // What is moved or let go of is built on at once: it is always synced.
        durability: Durability::Sync,
    }
}

fn as_new(record: StoredRecord) -> NewRecord {
    NewRecord {
        timestamp: record.timestamp,
        size: record.size,
        body: record.body,
    }
}

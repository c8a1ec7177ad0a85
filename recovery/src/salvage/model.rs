//! What the readable frames of a damaged log add up to.
//!
//! The engine's own state refuses the first frame that contradicts what came before it, as it must.
//! This one goes on: it keeps every record it met, knows which offsets it never saw, and believes
//! the numbers that frames after a gap state.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use saguin_log_engine::format::{Kind, Op, RecordRef};
use saguin_log_engine::state::{CEILING_REACH, HoldEntry, Location, MapEntry, WorkEntry};

use crate::stored::{Run, Stored};

/// Most records and most bytes of log one run of an append log stands for.
const RUN_RECORDS: u64 = 64;
const RUN_SPAN: u32 = 64 << 10;

/// Offsets from the first to the last, both included.
pub type Offsets = (u64, u64);

/// Consecutive records of an append log.
#[derive(Clone, Copy, Debug)]
struct Records {
    count: u64,
    at: Location,
    /// Gaps in the log that were met before these: a run never spans one.
    gaps: u32,
}

/// What of a channel's content can be read.
#[derive(Debug)]
pub enum Kept {
    /// An append log's.
    Sequence(Sequence),
    /// Latest values, by key.
    Map(HashMap<Bytes, MapEntry>),
    /// Unresolved jobs, by offset.
    Work(BTreeMap<u64, WorkEntry>),
}

/// The readable records of an append log.
#[derive(Debug, Default)]
pub struct Sequence {
    runs: BTreeMap<u64, Records>,
}

/// A channel of a damaged log.
#[derive(Debug)]
pub struct SalvagedChannel {
    /// Its name; `None` where the frame that defined it is lost and none restates it.
    pub name: Option<Bytes>,
    /// Its kind.
    pub kind: Kind,
    /// The offset after the last one that is known to have been taken.
    pub next: u64,
    /// The oldest readable offset, as the log last stated it.
    pub floor: u64,
    /// Offsets up to here may have been handed out ahead of their frames; zero where none were.
    pub ceiling: u64,
    /// Live records, as the log counts them: what can be read is in `kept`.
    pub counted: u64,
    /// What can be read.
    pub kept: Kept,
    /// Offsets that were taken by frames that are lost.
    pub jumps: Vec<Offsets>,
    /// At most so many offsets may have been taken after `next` by frames that are lost.
    pub unsure: u64,
    /// Offsets that no record was kept under though no frame is lost: an opening after a crash went
    /// on at the ceiling. In order.
    skips: Vec<Offsets>,
    /// Frames were lost since an offset was last taken or stated: they may have taken some.
    next_lost: bool,
    /// Frames were lost since a prologue last stated how many records there are.
    count_lost: bool,
    /// Frames were lost since the ceiling was last stated: they may have raised it.
    ceiling_lost: bool,
}

/// Records that are held back, in no channel yet.
#[derive(Debug, Default)]
pub struct Holds {
    /// Those that can be read, by key.
    pub entries: BTreeMap<Bytes, HoldEntry>,
    /// How many there are, as the log counts them.
    pub counted: u64,
    /// The log held some at some time.
    pub used: bool,
}

/// Channels and small values, as far as they can be read.
#[derive(Debug, Default)]
pub struct Model {
    /// Channels, by id.
    pub channels: BTreeMap<u32, SalvagedChannel>,
    /// Small values, by namespace and key.
    pub keyspace: BTreeMap<(u8, Bytes), Bytes>,
    /// Records that are held back.
    pub holds: Holds,
    /// The oldest segment that belongs to the log.
    pub oldest_segment: u64,
    gaps: u32,
    /// Next offset and ceiling that were stated of channels whose definition is lost, until a record
    /// says of which kind they are.
    undefined: BTreeMap<u32, (u64, u64)>,
}

impl Model {
    /// Frames are lost here, in which each channel may have taken up to `offsets` offsets.
    pub(super) fn gap(&mut self, offsets: u64) {
        self.settle();
        self.gaps += 1;
        for channel in self.channels.values_mut() {
            channel.unsure = channel.unsure.saturating_add(offsets);
            (channel.next_lost, channel.count_lost, channel.ceiling_lost) = (true, true, true);
        }
    }

    /// Up to here nothing more is lost than was found to be: where a channel has as many records as it
    /// counts, the offsets between them were skipped. What stated that may lie in a segment that is
    /// gone, its records having been moved.
    pub(super) fn settle(&mut self) {
        for channel in self.channels.values_mut() {
            if !channel.count_lost && channel.counted == channel.readable(channel.floor) {
                channel.skips = channel.gaps();
            }
        }
    }

    /// The log ends with a clean stop: everything was synced before it, so no offset was handed out
    /// that is not known.
    pub(super) fn stopped(&mut self) {
        for channel in self.channels.values_mut() {
            channel.ceiling_lost = false;
        }
    }

    /// Applies one operation of the frame at `at`.
    ///
    /// Every kind of operation has its arm: one that is added to the format has to say here what it
    /// means after a gap.
    pub(super) fn apply(&mut self, op: &Op<'_>, at: Location) {
        match *op {
            Op::Define {
                channel,
                kind,
                name,
            } => {
                let known = self.channels.contains_key(&channel);
                self.name(channel, kind, name);
                if let (Some(channel), false) = (self.channels.get_mut(&channel), known) {
                    channel.whole();
                }
            }
            Op::State(line) => {
                let known = self.channels.contains_key(&line.channel);
                self.name(line.channel, line.kind, line.name);
                let Some(channel) = self.channels.get_mut(&line.channel) else {
                    return;
                };
                if known && line.next > channel.next {
                    channel.jumps.push((channel.next, line.next - 1));
                }
                channel.next = channel.next.max(line.next);
                channel.raise_floor(line.floor);
                (channel.ceiling, channel.counted) = (line.ceiling, line.count);
                channel.whole();
            }
            Op::Ceiling { channel, ceiling } => match self.channels.get_mut(&channel) {
                Some(channel) => (channel.ceiling, channel.ceiling_lost) = (ceiling, false),
                None => self.undefined.entry(channel).or_insert((1, 0)).1 = ceiling,
            },
            Op::Skip { channel, next } => match self.channels.get_mut(&channel) {
                Some(channel) => channel.skip(next),
                None => _ = self.undefined.insert(channel, (next, 0)),
            },
            Op::Held { count, .. } => {
                self.holds.counted = count;
                self.holds.used |= count > 0;
            }
            Op::Segments { oldest } => {
                self.oldest_segment = self.oldest_segment.max(oldest);
                // Nothing before this segment is alive, so what was read of it counts for nothing.
                if oldest == u64::from(at.segment) {
                    self.channels.clear();
                    self.keyspace.clear();
                    self.holds.entries.clear();
                }
            }
            Op::Seal { .. } => {}
            Op::Trim {
                channel,
                floor,
                removed,
                ..
            } => {
                let channel = self.channel(channel, Kind::Sequence);
                channel.raise_floor(floor);
                channel.counted = channel.counted.saturating_sub(removed);
            }
            Op::Append {
                channel, offset, ..
            } => self.append(channel, offset, at),
            Op::DeadLetter {
                work,
                work_offset,
                channel,
                offset,
                ..
            } => {
                self.resolve(work, work_offset);
                self.append(channel, offset, at);
            }
            Op::Set {
                channel, replaced, ..
            }
            | Op::Remove {
                channel, replaced, ..
            } => {
                self.entry(op, at);
                let channel = self.channel(channel, Kind::Map);
                let replaced = u64::from(replaced.is_some());
                channel.counted = (channel.counted + 1).saturating_sub(replaced);
            }
            Op::MoveEntry { .. } => self.entry(op, at),
            Op::Forget {
                channel,
                offset,
                key,
                ..
            } => {
                let channel = self.channel(channel, Kind::Map);
                channel.counted = channel.counted.saturating_sub(1);
                if let Kept::Map(entries) = &mut channel.kept
                    && entries.get(key).is_some_and(|entry| entry.offset <= offset)
                {
                    entries.remove(key);
                }
            }
            Op::Enqueue {
                channel,
                offset,
                record,
            } => {
                let channel = self.channel(channel, Kind::Work);
                channel.take(offset);
                channel.counted += 1;
                channel.job(offset, &record, at, (0, None));
            }
            Op::MoveJob {
                channel,
                offset,
                attempts,
                attempted,
                record,
            } => {
                let channel = self.channel(channel, Kind::Work);
                channel.job(offset, &record, at, (attempts, attempted));
            }
            Op::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            } => {
                let channel = self.channel(channel, Kind::Work);
                if let Kept::Work(jobs) = &mut channel.kept
                    && let Some(job) = jobs.get_mut(&offset)
                {
                    (job.attempts, job.attempted) = (attempts, Some((first, last)));
                }
            }
            Op::Resolve {
                channel, offset, ..
            } => self.resolve(channel, offset),
            Op::MoveRecord {
                channel, offset, ..
            } => {
                let gaps = self.gaps;
                let channel = self.channel(channel, Kind::Sequence);
                if let Kept::Sequence(sequence) = &mut channel.kept {
                    sequence.push(offset, at, gaps);
                }
            }
            Op::Hold { key, record } => {
                self.holds.counted += 1;
                self.holds.keep(key, &record, at);
            }
            Op::MoveHold { key, record } => self.holds.keep(key, &record, at),
            Op::Drop { key, .. } => {
                self.holds.counted = self.holds.counted.saturating_sub(1);
                self.holds.entries.remove(key);
            }
            Op::Put { space, key, value } => {
                let key = (space, Bytes::copy_from_slice(key));
                self.keyspace.insert(key, Bytes::copy_from_slice(value));
            }
            Op::Delete { space, key } => {
                self.keyspace.remove(&(space, Bytes::copy_from_slice(key)));
            }
        }
    }

    fn name(&mut self, id: u32, kind: Kind, name: &[u8]) {
        let channel = self.channel(id, kind);
        channel.name = Some(Bytes::copy_from_slice(name));
    }

    /// A channel; one nobody defined is made, its name unknown.
    fn channel(&mut self, id: u32, kind: Kind) -> &mut SalvagedChannel {
        let (next, ceiling) = match self.channels.contains_key(&id) {
            true => (1, 0),
            false => self.undefined.remove(&id).unwrap_or((1, 0)),
        };
        let gaps = self.gaps > 0;
        self.channels.entry(id).or_insert_with(|| SalvagedChannel {
            name: None,
            kind,
            next,
            floor: 1,
            ceiling,
            counted: 0,
            kept: match kind {
                Kind::Sequence => Kept::Sequence(Sequence::default()),
                Kind::Map => Kept::Map(HashMap::new()),
                Kind::Work => Kept::Work(BTreeMap::new()),
            },
            jumps: Vec::new(),
            unsure: 0,
            skips: Vec::new(),
            next_lost: gaps,
            count_lost: gaps,
            ceiling_lost: gaps,
        })
    }

    fn append(&mut self, id: u32, offset: u64, at: Location) {
        let gaps = self.gaps;
        let channel = self.channel(id, Kind::Sequence);
        channel.take(offset);
        channel.counted += 1;
        if let Kept::Sequence(sequence) = &mut channel.kept {
            sequence.push(offset, at, gaps);
        }
    }

    fn entry(&mut self, op: &Op<'_>, at: Location) {
        let Some(stored) = Stored::of(op) else { return };
        let moved = matches!(op, Op::MoveEntry { .. });
        let channel = self.channel(stored.channel, Kind::Map);
        if !moved {
            channel.take(stored.offset);
        }
        let Kept::Map(entries) = &mut channel.kept else {
            return;
        };
        let key = stored.key.unwrap_or_default();
        if entries.get(key).is_some_and(|e| e.offset > stored.offset) {
            return;
        }
        let entry = MapEntry {
            offset: stored.offset,
            at,
            size: stored.record.size,
            timestamp: stored.record.timestamp,
            deletion: stored.deletion,
        };
        entries.insert(Bytes::copy_from_slice(key), entry);
    }

    fn resolve(&mut self, id: u32, offset: u64) {
        let channel = self.channel(id, Kind::Work);
        channel.counted = channel.counted.saturating_sub(1);
        if let Kept::Work(jobs) = &mut channel.kept {
            jobs.remove(&offset);
        }
    }
}

impl SalvagedChannel {
    /// An offset was taken: those between it and the last one known were taken by lost frames.
    fn take(&mut self, offset: u64) {
        if offset > self.next {
            self.jumps.push((self.next, offset - 1));
            if let Kept::Sequence(_) = self.kept {
                // Until a prologue states how many there are.
                self.counted = self.counted.saturating_add(offset - self.next);
            }
        }
        self.next = self.next.max(offset.saturating_add(1));
        (self.unsure, self.next_lost) = (0, false);
    }

    /// All its numbers were stated: no frame lost before says anything else of them.
    fn whole(&mut self) {
        self.unsure = 0;
        (self.next_lost, self.count_lost, self.ceiling_lost) = (false, false, false);
    }

    /// An opening after a crash went on at the ceiling: no record was ever kept in between, and that is
    /// no loss. But where frames are lost before it, some may have been in those.
    fn skip(&mut self, next: u64) {
        if next > self.next {
            let between = (self.next, next - 1);
            match self.next_lost {
                true => self.jumps.push(between),
                false => self.skips.push(between),
            }
            self.next = next;
        }
        (self.ceiling, self.unsure) = (0, 0);
        (self.next_lost, self.ceiling_lost) = (false, false);
    }

    fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        if let Kept::Sequence(sequence) = &mut self.kept {
            sequence.trim(self.floor);
        }
    }

    fn job(
        &mut self,
        offset: u64,
        record: &RecordRef<'_>,
        at: Location,
        (attempts, attempted): (u32, Option<(u64, u64)>),
    ) {
        if let Kept::Work(jobs) = &mut self.kept {
            let job = WorkEntry {
                at,
                size: record.size,
                timestamp: record.timestamp,
                attempts,
                attempted,
            };
            jobs.insert(offset, job);
        }
    }

    /// Offsets of an append log that should be readable and are not. Offsets that were skipped are
    /// none; where it cannot be told whether they were, they count.
    #[must_use]
    pub fn holes(&self) -> Vec<Offsets> {
        let mut holes = Vec::new();
        let mut skips = self.skips.iter().peekable();
        for (mut first, last) in self.gaps() {
            while first <= last {
                while skips.next_if(|skip| skip.1 < first).is_some() {}
                let skip = skips.peek().filter(|skip| skip.0 <= last);
                let Some(&&(from, to)) = skip else {
                    holes.push((first, last));
                    break;
                };
                if from > first {
                    holes.push((first, from - 1));
                }
                first = to.saturating_add(1);
            }
        }
        holes
    }

    /// Offsets of an append log from its floor on that no readable record has.
    fn gaps(&self) -> Vec<Offsets> {
        let Kept::Sequence(sequence) = &self.kept else {
            return Vec::new();
        };
        let mut holes = Vec::new();
        let mut next = self.floor;
        for (&first, run) in &sequence.runs {
            if first > next {
                holes.push((next, first - 1));
            }
            next = next.max(first.saturating_add(run.count));
        }
        if next < self.next {
            holes.push((next, self.next - 1));
        }
        holes
    }

    /// The floor this channel has to have, so that no reader passes lost records as if nothing had
    /// been there (invariant 1): above the last hole that records follow. Where none follow, the
    /// records before the hole are all there is, and stay.
    #[must_use]
    pub fn new_floor(&self) -> u64 {
        let holes = self.holes();
        match &self.kept {
            Kept::Sequence(sequence) if self.readable(self.floor) > 0 => {
                let last_run = sequence.runs.last_key_value();
                let end = last_run.map_or(0, |(first, run)| first + run.count);
                let followed = holes.iter().rfind(|(_, last)| *last < end);
                followed.map_or(self.floor, |(_, last)| last + 1)
            }
            _ if holes.is_empty() => self.floor,
            _ => self.next,
        }
    }

    /// The offset the next record must take, so that none is ever reused (invariant 9).
    #[must_use]
    pub fn new_next(&self) -> u64 {
        let ahead = self.next.saturating_add(self.unsure);
        let ahead = match self.ceiling_lost {
            true => ahead.saturating_add(CEILING_REACH),
            false => ahead,
        };
        ahead.max(self.ceiling).min(u64::MAX - 1)
    }

    /// How many records at or above `floor` can be read.
    #[must_use]
    pub fn readable(&self, floor: u64) -> u64 {
        match &self.kept {
            Kept::Sequence(sequence) => {
                let above = |(&first, run): (&u64, &Records)| {
                    let below = floor.saturating_sub(first).min(run.count);
                    run.count - below
                };
                sequence.runs.iter().map(above).sum()
            }
            Kept::Map(entries) => entries.len() as u64,
            Kept::Work(jobs) => jobs.len() as u64,
        }
    }

    /// Where the readable records lie, in offset order.
    pub(super) fn runs(&self) -> Vec<Run> {
        let one = |offset, at| Run { at, last: offset };
        match &self.kept {
            Kept::Sequence(sequence) => {
                let run = |(first, run): (&u64, &Records)| one(first + run.count - 1, run.at);
                sequence.runs.iter().map(run).collect()
            }
            Kept::Map(entries) => {
                let mut runs: Vec<_> = entries.values().map(|e| one(e.offset, e.at)).collect();
                runs.sort_by_key(|run| run.last);
                runs
            }
            Kept::Work(jobs) => jobs.iter().map(|(&o, job)| one(o, job.at)).collect(),
        }
    }

    /// Whether a stored record is one of those kept.
    pub(super) fn holds(&self, stored: &Stored<'_>) -> bool {
        match &self.kept {
            Kept::Sequence(_) => true,
            Kept::Map(entries) => stored
                .key
                .and_then(|key| entries.get(key))
                .is_some_and(|entry| entry.offset == stored.offset),
            Kept::Work(jobs) => jobs.contains_key(&stored.offset),
        }
    }
}

impl Holds {
    fn keep(&mut self, key: &[u8], record: &RecordRef<'_>, at: Location) {
        self.used = true;
        let entry = HoldEntry {
            at,
            size: record.size,
            timestamp: record.timestamp,
        };
        self.entries.insert(Bytes::copy_from_slice(key), entry);
    }

    /// How many that were held back can not be read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.counted.saturating_sub(self.entries.len() as u64)
    }
}

impl Sequence {
    /// A record; one that is there already (it was moved) stays where it was.
    fn push(&mut self, offset: u64, at: Location, gaps: u32) {
        if let Some((&first, last)) = self.runs.range_mut(..=offset).next_back() {
            if offset < first + last.count {
                return;
            }
            let near = last.at.segment == at.segment
                && at.frame - last.at.frame <= RUN_SPAN
                && last.count < RUN_RECORDS;
            let follows = first + last.count == offset && last.gaps == gaps;
            if follows && (near || last.at == at) {
                last.count += 1;
                return;
            }
        }
        let run = Records { count: 1, at, gaps };
        self.runs.insert(offset, run);
    }

    fn trim(&mut self, floor: u64) {
        while let Some(run) = self.runs.first_entry()
            && run.key() + run.get().count <= floor
        {
            run.remove();
        }
    }
}

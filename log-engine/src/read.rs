//! Reading records back: from the tail cache, else from the frames, every one verified.
//!
//! A read takes what it needs to know (floor, end, where the records lie) in one look at the
//! published state, then reads files without holding anything. So a trim in between cannot hand
//! back survivors as if nothing was missing (invariant 1).

use std::ops::Range;

use bytes::Bytes;

use crate::batch::{ChannelId, TrimPlan};
use crate::engine::{Engine, Published, Shared};
use crate::format::{Kind, Op, OpError, Ops, RecordRef};
use crate::resume::{MAX_REST_BYTES, Rest};
use crate::scan::{ReadAhead, ScanError, Scanner};
use crate::segment::{Segment, find};
use crate::state::{Anchor, Channel, Content, HoldEntry, Location, MapEntry, Numbers, WorkEntry};
use crate::sync::{Arc, read};
use crate::tail::StoredRecord;

/// How much one read returns; at least one record where there is one.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// Most records.
    pub records: usize,
    /// Counted bytes after which no further record is added.
    pub bytes: u64,
}

/// Records in offset order, and the channel's next offset when they were looked up.
#[derive(Clone, Debug, Default)]
pub struct ReadRecords {
    /// The records.
    pub records: Vec<StoredRecord>,
    /// With no records, the reader is caught up to here.
    pub next: u64,
}

/// Why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// What was asked for is gone; what survives is not served in its place.
    BelowFloor {
        /// The oldest readable offset.
        floor: u64,
    },
    /// There is no such channel.
    UnknownChannel {
        /// The id.
        channel: ChannelId,
    },
    /// The channel is of another kind.
    WrongKind {
        /// The id.
        channel: ChannelId,
        /// What it is.
        kind: Kind,
    },
    /// The bytes are not what was written there, or cannot be read.
    Damaged {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong, with the position.
        what: String,
    },
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::BelowFloor { floor } => {
                write!(f, "the position was removed; the oldest record is {floor}")
            }
            ReadError::UnknownChannel { channel } => write!(f, "there is no channel {}", channel.0),
            ReadError::WrongKind { channel, kind } => {
                write!(f, "channel {} is a {kind}", channel.0)
            }
            ReadError::Damaged { path, what } => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

/// Most anchors one read follows; each stands for at least one record.
const MAX_ANCHORS: usize = 128;

impl Engine {
    /// The numbers of a channel; `None` where there is none.
    #[must_use]
    pub fn numbers(&self, channel: ChannelId) -> Option<Numbers> {
        Some(
            read(&self.shared.published)
                .state
                .channel(channel.0)?
                .numbers,
        )
    }

    /// The channel with a name.
    #[must_use]
    pub fn channel_named(&self, name: &[u8]) -> Option<(ChannelId, Kind)> {
        let published = read(&self.shared.published);
        let id = published.state.channel_named(name)?;
        Some((ChannelId(id), published.state.channel(id)?.kind))
    }

    /// Records of a sequence from `offset` on. Past the end is empty.
    ///
    /// # Errors
    /// [`ReadError::BelowFloor`] and the rest of [`ReadError`].
    pub fn read_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<ReadRecords, ReadError> {
        let published = read(&self.shared.published);
        let (numbers, index) = sequence(&published, channel)?;
        if offset < numbers.floor {
            return Err(ReadError::BelowFloor {
                floor: numbers.floor,
            });
        }
        let mut found = ReadRecords {
            records: Vec::new(),
            next: numbers.next,
        };
        let mut filling = Filling::new(&mut found.records, limit);
        if offset >= numbers.next {
            return Ok(found);
        }
        for record in published.tail.from(channel, offset) {
            if !filling.add(|| record.clone()) {
                return Ok(found);
            }
        }
        if !filling.out.is_empty() {
            return Ok(found);
        }
        let most = limit.records.clamp(1, MAX_ANCHORS);
        let anchors: Vec<Anchor> = index.from_offset(offset).take(most).copied().collect();
        let mut frames = self.shared.frames();
        drop(published);
        frames.rest = self.shared.rests.take(channel, offset);
        let mut gathered = Gathered::new(limit);
        for anchor in anchors {
            let wanted = anchor.offset.max(offset)..anchor.end();
            let read = frames.run(&anchor, channel, &mut |record_offset, record| {
                !wanted.contains(&record_offset) || gathered.add(record_offset, record)
            });
            match read {
                Ok(true) => {}
                Ok(false) => break,
                // What lies before the damage is good, and is served; the next read begins at it.
                Err(_) if !gathered.records.is_empty() => break,
                Err(damaged) => return Err(damaged),
            }
        }
        if let Some(rest) = frames.rest.take() {
            self.shared.rests.put(channel, rest);
        }
        found.records = gathered.finish();
        Ok(found)
    }

    /// The earliest offset of a sequence whose record is at or after a moment; its next offset
    /// where there is none. A record without a timestamp counts as newer than any moment.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn at_or_after(&self, channel: ChannelId, unix_ms: u64) -> Result<u64, ReadError> {
        let published = read(&self.shared.published);
        let (numbers, index) = sequence(&published, channel)?;
        // The first run may begin below the floor and owe its time to what is gone: then the
        // answer is in the second.
        let anchors: Vec<Anchor> = index.since(unix_ms).take(2).copied().collect();
        let mut frames = self.shared.frames();
        drop(published);
        for anchor in anchors {
            let mut earliest = None;
            frames.run(&anchor, channel, &mut |offset, record| {
                let late = record.timestamp.is_none_or(|t| t >= unix_ms);
                if offset >= numbers.floor && late {
                    earliest = Some(offset);
                }
                earliest.is_none()
            })?;
            if let Some(offset) = earliest {
                return Ok(offset);
            }
        }
        Ok(numbers.next)
    }

    /// Counts what a trim to `floor` would remove; `None` where it would remove nothing. A floor
    /// past the end means everything.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn plan_trim(&self, channel: ChannelId, floor: u64) -> Result<Option<TrimPlan>, ReadError> {
        let published = read(&self.shared.published);
        let (numbers, index) = sequence(&published, channel)?;
        let from = numbers.floor;
        let floor = floor.min(numbers.next);
        if floor <= from {
            return Ok(None);
        }
        let (mut removed, mut freed, mut partial) = (0, 0, Vec::new());
        for anchor in index.from_offset(from).take_while(|a| a.offset < floor) {
            let whole = anchor.offset >= from && anchor.offset + u64::from(anchor.records) <= floor;
            if whole {
                removed += u64::from(anchor.records);
                freed += anchor.bytes;
            } else {
                partial.push(*anchor);
            }
        }
        let mut frames = self.shared.frames();
        drop(published);
        for anchor in partial {
            frames.run(&anchor, channel, &mut |offset, record| {
                if (from..floor).contains(&offset) {
                    removed += 1;
                    freed += record.size;
                }
                offset < floor
            })?;
        }
        Ok(Some(TrimPlan {
            channel,
            from,
            floor,
            removed,
            freed,
        }))
    }

    /// The newest record of a key of a map, a deletion included.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn get(&self, channel: ChannelId, key: &[u8]) -> Result<Option<StoredRecord>, ReadError> {
        let published = read(&self.shared.published);
        let Some(entry) = map(&published, channel)?.1.get(key) else {
            return Ok(None);
        };
        if let Some(record) = published.tail.get(channel, entry.offset) {
            return Ok(Some(record.clone()));
        }
        let mut frames = self.shared.frames();
        drop(published);
        let key = Bytes::copy_from_slice(key);
        frames.entry(channel, &key, &entry).map(Some)
    }

    /// The newest records of a map's keys, deletions included, at or above `offset`, in offset
    /// order: each key once.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn changes_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<ReadRecords, ReadError> {
        let published = read(&self.shared.published);
        let (numbers, index) = map(&published, channel)?;
        let mut found = ReadRecords {
            records: Vec::new(),
            next: numbers.next,
        };
        let mut bytes = 0;
        let mut wanted = Vec::new();
        for (key, entry) in index.from_offset(offset) {
            if wanted.len() >= limit.records.max(1) || (bytes >= limit.bytes && !wanted.is_empty())
            {
                break;
            }
            bytes += entry.size;
            let cached = published.tail.get(channel, entry.offset).cloned();
            wanted.push((key.clone(), entry, cached));
        }
        let mut frames = self.shared.frames();
        drop(published);
        for (key, entry, cached) in wanted {
            found.records.push(match cached {
                Some(record) => record,
                None => frames.entry(channel, &key, &entry)?,
            });
        }
        Ok(found)
    }

    /// Entries of a map with their offset, time and deletion mark but without their records,
    /// at or above `offset`, in offset order.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn map_entries(
        &self,
        channel: ChannelId,
        offset: u64,
        most: usize,
    ) -> Result<Vec<(Bytes, MapEntry)>, ReadError> {
        let published = read(&self.shared.published);
        let (_, index) = map(&published, channel)?;
        Ok(index
            .from_offset(offset)
            .take(most)
            .map(|(key, entry)| (key.clone(), entry))
            .collect())
    }

    /// Every unresolved job, in offset order.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn unresolved(&self, channel: ChannelId) -> Result<Vec<(u64, WorkEntry)>, ReadError> {
        let published = read(&self.shared.published);
        match &known(&published, channel)?.content {
            Content::Work(work) => Ok(work.iter().map(|(offset, item)| (offset, *item)).collect()),
            _ => Err(wrong_kind(&published, channel)),
        }
    }

    /// The record of an unresolved job; `None` where it is resolved.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn job(&self, channel: ChannelId, offset: u64) -> Result<Option<StoredRecord>, ReadError> {
        let published = read(&self.shared.published);
        let Content::Work(work) = &known(&published, channel)?.content else {
            return Err(wrong_kind(&published, channel));
        };
        let Some(item) = work.get(offset).copied() else {
            return Ok(None);
        };
        if let Some(record) = published.tail.get(channel, offset) {
            return Ok(Some(record.clone()));
        }
        let mut frames = self.shared.frames();
        drop(published);
        frames
            .one(item.at, channel, offset, &Bytes::new(), false)
            .map(Some)
    }

    /// The record held under a key; its offset is 0, because it has none.
    ///
    /// # Errors
    /// [`ReadError::Damaged`].
    pub fn held(&self, key: &[u8]) -> Result<Option<StoredRecord>, ReadError> {
        let published = read(&self.shared.published);
        let Some(entry) = published.state.holds().get(key) else {
            return Ok(None);
        };
        let mut frames = self.shared.frames();
        drop(published);
        frames.hold(key, &entry).map(Some)
    }

    /// What is held under keys that start with `prefix`, in key order: at most `most`, after the key
    /// `after`.
    #[must_use]
    pub fn holds(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        most: usize,
    ) -> Vec<(Bytes, HoldEntry)> {
        let published = read(&self.shared.published);
        let holds = published.state.holds();
        let listed = |key: &Bytes| key.starts_with(prefix);
        let first = holds.get(prefix).filter(|_| after.is_none());
        let first = first.map(|entry| (Bytes::copy_from_slice(prefix), entry));
        // Keys that start with a prefix come right after it.
        let from = after.map_or(prefix, |after| after.max(prefix));
        let rest = holds.after(Some(from)).take_while(|(key, _)| listed(key));
        let rest = rest.map(|(key, entry)| (key.clone(), *entry));
        first.into_iter().chain(rest).take(most).collect()
    }

    /// How many consumers have a position in a channel, and the lowest of these.
    #[must_use]
    pub fn positions(&self, channel: ChannelId) -> (u64, Option<u64>) {
        let published = read(&self.shared.published);
        published.state.positions().of(channel.0)
    }

    /// A small value.
    #[must_use]
    pub fn value(&self, space: u8, key: &[u8]) -> Option<Bytes> {
        let key = (space, Bytes::copy_from_slice(key));
        read(&self.shared.published)
            .state
            .keyspace()
            .get(&key)
            .map(|entry| entry.value.clone())
    }

    /// The keys and values of a namespace that start with `prefix`, in key order.
    #[must_use]
    pub fn values(&self, space: u8, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
        let from = (space, Bytes::copy_from_slice(prefix));
        let published = read(&self.shared.published);
        let range = published.state.keyspace().range(from..);
        range
            .take_while(|((s, key), _)| *s == space && key.starts_with(prefix))
            .map(|((_, key), entry)| (key.clone(), entry.value.clone()))
            .collect()
    }
}

impl Shared {
    pub(crate) fn frames(&self) -> Frames {
        Frames {
            segments: self.segments.snapshot(),
            ahead: None,
            rest: None,
        }
    }
}

/// Adds records until a limit is reached.
struct Filling<'o> {
    out: &'o mut Vec<StoredRecord>,
    limit: ReadLimit,
    bytes: u64,
}

impl<'o> Filling<'o> {
    fn new(out: &'o mut Vec<StoredRecord>, limit: ReadLimit) -> Filling<'o> {
        Filling {
            out,
            limit,
            bytes: 0,
        }
    }

    /// Adds a record if there is room; whether there was.
    fn add(&mut self, record: impl FnOnce() -> StoredRecord) -> bool {
        let full = self.out.len() >= self.limit.records || self.bytes >= self.limit.bytes;
        if full && !self.out.is_empty() {
            return false;
        }
        let record = record();
        self.bytes += record.size;
        self.out.push(record);
        true
    }
}

/// Records read from frames. Their bodies share one block: it takes one allocation for all, and a
/// record that stays pins no more than what was read together with it.
struct Gathered {
    limit: ReadLimit,
    bytes: u64,
    block: Vec<u8>,
    records: Vec<StoredRecord>,
    /// Where each record's body ends in the block.
    ends: Vec<usize>,
}

impl Gathered {
    fn new(limit: ReadLimit) -> Gathered {
        Gathered {
            limit,
            bytes: 0,
            block: Vec::new(),
            records: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Adds a record if there is room; whether there was.
    fn add(&mut self, offset: u64, record: &RecordRef<'_>) -> bool {
        let full = self.records.len() >= self.limit.records || self.bytes >= self.limit.bytes;
        if full && !self.records.is_empty() {
            return false;
        }
        self.bytes += record.size;
        self.block.extend_from_slice(record.body);
        self.ends.push(self.block.len());
        self.records.push(StoredRecord {
            offset,
            timestamp: record.timestamp,
            size: record.size,
            key: Bytes::new(),
            deletion: false,
            body: Bytes::new(),
        });
        true
    }

    fn finish(self) -> Vec<StoredRecord> {
        let (block, mut records) = (Bytes::from(self.block), self.records);
        let mut from = 0;
        for (record, end) in records.iter_mut().zip(self.ends) {
            record.body = block.slice(from..end);
            from = end;
        }
        records
    }
}

/// Reads frames of a snapshot of the segments.
pub(crate) struct Frames {
    segments: Arc<Vec<Arc<Segment>>>,
    /// What the last run read past its end, and in which segment: the next run usually begins there.
    ahead: Option<(u32, ReadAhead)>,
    /// Where the last run, or a reader before, stopped in the middle of a frame.
    rest: Option<Rest>,
}

impl Frames {
    fn segment(&self, at: Location) -> Result<Arc<Segment>, ReadError> {
        find(&self.segments, at.segment)
            .cloned()
            .ok_or_else(|| ReadError::Damaged {
                path: format!("segment {}", at.segment).into(),
                what: "it is not open".to_owned(),
            })
    }

    /// Hands the records of one run to `each`, in order, until it answers false; whether it never
    /// did. A run that ends early is damage: the index was built from these very frames.
    pub(crate) fn run(
        &mut self,
        anchor: &Anchor,
        channel: ChannelId,
        each: &mut dyn FnMut(u64, &RecordRef<'_>) -> bool,
    ) -> Result<bool, ReadError> {
        let segment = self.segment(anchor.at)?;
        let mut scanner = scanner(&segment, anchor.at);
        if let Some((_, ahead)) = self.ahead.take_if(|(of, _)| *of == anchor.at.segment) {
            scanner.go_on(ahead);
        }
        let mut wanted = anchor.offset..anchor.end();
        let here = |rest: &Rest| rest.segment == anchor.at.segment && wanted.contains(&rest.offset);
        if let Some(rest) = self.rest.take().filter(here) {
            wanted.start = rest.offset;
            let ops = Ops::resume(&rest.operations, rest.left);
            let taken = take_run(ops, channel, &mut wanted, each)
                .map_err(|e| damaged_at(&segment, rest.next_frame, &e.to_string()))?;
            if let Some((bytes, left)) = taken.rest {
                let operations = rest.operations.slice_ref(bytes);
                self.rest = Some(Rest {
                    offset: wanted.start,
                    operations,
                    left,
                    ..rest
                });
            }
            if taken.stopped {
                return Ok(false);
            }
            scanner.seek(rest.next_frame);
        }
        while !wanted.is_empty() {
            let Some((at, frame)) = scanner.next().map_err(|e| damaged(&segment, &e))? else {
                break;
            };
            let taken = take_run(frame.operations(), channel, &mut wanted, each)
                .map_err(|e| damaged_at(&segment, at, &e.to_string()))?;
            if taken.stopped {
                let rest = taken.rest.filter(|(b, _)| b.len() <= MAX_REST_BYTES);
                self.rest = rest.map(|(bytes, left)| Rest {
                    segment: anchor.at.segment,
                    offset: wanted.start,
                    operations: Bytes::copy_from_slice(bytes),
                    left,
                    next_frame: at + frame.header.frame_len(),
                });
                return Ok(false);
            }
        }
        if !wanted.is_empty() {
            let what = format!(
                "the record at offset {} is not where it was written",
                wanted.start
            );
            return Err(damaged_at(&segment, u64::from(anchor.at.frame), &what));
        }
        self.ahead = Some((anchor.at.segment, scanner.into_ahead()));
        Ok(true)
    }

    fn entry(
        &mut self,
        channel: ChannelId,
        key: &Bytes,
        entry: &MapEntry,
    ) -> Result<StoredRecord, ReadError> {
        self.one(entry.at, channel, entry.offset, key, entry.deletion)
    }

    /// A held record. One frame may hold, drop and hold again under one key: the last counts.
    pub(crate) fn hold(
        &mut self,
        key: &[u8],
        entry: &HoldEntry,
    ) -> Result<StoredRecord, ReadError> {
        let segment = self.segment(entry.at)?;
        let mut scanner = scanner(&segment, entry.at);
        let mut found = None;
        if let Some((at, frame)) = scanner.next().map_err(|e| damaged(&segment, &e))? {
            for op in frame.operations() {
                match op.map_err(|e| damaged_at(&segment, at, &e.to_string()))? {
                    Op::Hold { key: k, record } | Op::MoveHold { key: k, record } if k == key => {
                        let key = Bytes::copy_from_slice(key);
                        found = Some(stored(0, &record, key, false));
                    }
                    _ => {}
                }
            }
        }
        found.ok_or_else(|| {
            let what = format!("what is held under {} is not there", key.escape_ascii());
            damaged_at(&segment, u64::from(entry.at.frame), &what)
        })
    }

    /// One record out of one frame.
    pub(crate) fn one(
        &mut self,
        at: Location,
        channel: ChannelId,
        offset: u64,
        key: &Bytes,
        deletion: bool,
    ) -> Result<StoredRecord, ReadError> {
        let segment = self.segment(at)?;
        let mut scanner = scanner(&segment, at);
        if let Some((position, frame)) = scanner.next().map_err(|e| damaged(&segment, &e))? {
            for op in frame.operations() {
                let op = op.map_err(|e| damaged_at(&segment, position, &e.to_string()))?;
                let here = match op {
                    Op::Set {
                        channel: c,
                        offset: o,
                        record,
                        ..
                    }
                    | Op::Remove {
                        channel: c,
                        offset: o,
                        record,
                        ..
                    }
                    | Op::Enqueue {
                        channel: c,
                        offset: o,
                        record,
                    }
                    | Op::MoveEntry {
                        channel: c,
                        offset: o,
                        record,
                        ..
                    }
                    | Op::MoveJob {
                        channel: c,
                        offset: o,
                        record,
                        ..
                    } => (c, o, record),
                    _ => continue,
                };
                if (here.0, here.1) == (channel.0, offset) {
                    return Ok(stored(offset, &here.2, key.clone(), deletion));
                }
            }
        }
        let what = format!("the record at offset {offset} is not where it was written");
        Err(damaged_at(&segment, u64::from(at.frame), &what))
    }
}

/// How far a frame's operations were taken.
struct Taken<'f> {
    /// Whoever takes the records wants no more.
    stopped: bool,
    /// The operations from the first on that was not taken, where there are any.
    rest: Option<(&'f [u8], u16)>,
}

/// Hands the records of a run that lie in one frame to `each`. The frame also holds records of the
/// runs before and after it, and of other channels.
fn take_run<'f>(
    mut ops: Ops<'f>,
    channel: ChannelId,
    wanted: &mut Range<u64>,
    each: &mut dyn FnMut(u64, &RecordRef<'_>) -> bool,
) -> Result<Taken<'f>, OpError> {
    while !wanted.is_empty() {
        let place = ops.place();
        let Some(op) = ops.next() else {
            return Ok(Taken {
                stopped: false,
                rest: None,
            });
        };
        let Some((offset, record)) = sequence_record(&op?, channel) else {
            continue;
        };
        if offset != wanted.start {
            continue;
        }
        if !each(offset, &record) {
            return Ok(Taken {
                stopped: true,
                rest: Some(place),
            });
        }
        wanted.start += 1;
    }
    let rest = Some(ops.place()).filter(|(_, left)| *left > 0);
    Ok(Taken {
        stopped: false,
        rest,
    })
}

fn scanner(segment: &Segment, at: Location) -> Scanner<'_> {
    let header = &segment.header;
    Scanner::new(
        &*segment.file,
        header.salt,
        u64::from(at.frame),
        header.capacity,
    )
}

fn damaged(segment: &Segment, error: &ScanError) -> ReadError {
    ReadError::Damaged {
        path: segment.path.clone(),
        what: error.to_string(),
    }
}

fn damaged_at(segment: &Segment, at: u64, what: &str) -> ReadError {
    ReadError::Damaged {
        path: segment.path.clone(),
        what: format!("at {at}: {what}"),
    }
}

/// The record an operation adds to a sequence.
fn sequence_record<'a>(op: &Op<'a>, channel: ChannelId) -> Option<(u64, RecordRef<'a>)> {
    match *op {
        Op::Append {
            channel: c,
            offset,
            record,
        }
        | Op::MoveRecord {
            channel: c,
            offset,
            record,
        }
        | Op::DeadLetter {
            channel: c,
            offset,
            record,
            ..
        } if c == channel.0 => Some((offset, record)),
        _ => None,
    }
}

/// Copies a record out of the buffer it was read into: a slice would pin all of it.
fn stored(offset: u64, record: &RecordRef<'_>, key: Bytes, deletion: bool) -> StoredRecord {
    let RecordRef {
        timestamp,
        size,
        body,
    } = *record;
    StoredRecord {
        offset,
        timestamp,
        size,
        key,
        deletion,
        body: Bytes::copy_from_slice(body),
    }
}

fn known(published: &Published, channel: ChannelId) -> Result<&Channel, ReadError> {
    published
        .state
        .channel(channel.0)
        .ok_or(ReadError::UnknownChannel { channel })
}

fn wrong_kind(published: &Published, channel: ChannelId) -> ReadError {
    match known(published, channel) {
        Ok(known) => ReadError::WrongKind {
            channel,
            kind: known.kind,
        },
        Err(unknown) => unknown,
    }
}

fn sequence(
    published: &Published,
    channel: ChannelId,
) -> Result<(Numbers, &crate::state::SequenceIndex), ReadError> {
    let known = known(published, channel)?;
    match &known.content {
        Content::Sequence(index) => Ok((known.numbers, index)),
        _ => Err(ReadError::WrongKind {
            channel,
            kind: known.kind,
        }),
    }
}

fn map(
    published: &Published,
    channel: ChannelId,
) -> Result<(Numbers, &crate::state::MapIndex), ReadError> {
    let known = known(published, channel)?;
    match &known.content {
        Content::Map(index) => Ok((known.numbers, index)),
        _ => Err(ReadError::WrongKind {
            channel,
            kind: known.kind,
        }),
    }
}

//! Reading records back: from the tail cache, else from the frames, every one verified.
//!
//! A read takes what it needs to know (floor, end, where the records lie) in one look at the
//! published state, then reads files without holding anything. So a trim in between cannot hand
//! back survivors as if nothing was missing (invariant 1).

use bytes::Bytes;

use crate::batch::{ChannelId, TrimPlan};
use crate::engine::{Engine, Published};
use crate::format::{Kind, RecordRef};
use crate::state::{Anchor, Channel, Content, HoldEntry, MapEntry, Numbers, WorkEntry};
use crate::sync::read;
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

    /// Whether a read of a sequence or of a map's changes from `offset` on is answered from memory
    /// now, up to `most` entries of a map: so a caller may make it where it must not wait for a disk.
    #[must_use]
    pub fn is_in_memory(&self, channel: ChannelId, offset: u64, most: usize) -> bool {
        let published = read(&self.shared.published);
        let Some(known) = published.state.channel(channel.0) else {
            return true;
        };
        let cached = |offset| published.tail.get(channel, offset).is_some();
        match &known.content {
            Content::Sequence(_) => {
                let held = known.numbers.floor..known.numbers.next;
                !held.contains(&offset) || cached(offset)
            }
            Content::Map(map) => {
                let mut entries = map.from_offset(offset).take(most.max(1));
                entries.all(|(_, entry)| cached(entry.offset))
            }
            Content::Work(_) => false,
        }
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
        let ahead = anchors
            .iter()
            .map(|a| a.end().saturating_sub(a.offset.max(offset)))
            .sum();
        let mut gathered = Gathered::new(limit, ahead, numbers);
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
    /// With room for what `ahead` records of the channel come to by its own average, never for more
    /// than the limit: a vector that grows costs a scan more than the reading.
    fn new(limit: ReadLimit, ahead: u64, channel: Numbers) -> Gathered {
        let average = channel.bytes.checked_div(channel.count).unwrap_or(0);
        let by_bytes = limit.bytes.checked_div(average).unwrap_or(0) + 1;
        let records = ahead.min(by_bytes).min(limit.records.max(1) as u64);
        let block = records.saturating_mul(average).min(limit.bytes) as usize;
        Gathered {
            limit,
            bytes: 0,
            block: Vec::with_capacity(block),
            records: Vec::with_capacity(records as usize),
            ends: Vec::with_capacity(records as usize),
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

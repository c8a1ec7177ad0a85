//! What the log should hold, kept as plainly as possible: maps in memory, no files, no frames.

use std::collections::BTreeMap;

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::{ChannelId, CommitError};

/// A record.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Unix milliseconds.
    pub timestamp: Option<u64>,
    /// Counted size, in bytes.
    pub size: u64,
    /// Bytes.
    pub body: Bytes,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = self.body.get(..self.body.len().min(14)).unwrap_or_default();
        let head = String::from_utf8_lossy(head);
        write!(
            f,
            "{:?} {}B {}B @",
            head.trim_end_matches(['.', '\0']),
            self.body.len(),
            self.size
        )?;
        match self.timestamp {
            Some(timestamp) => write!(f, "{timestamp}"),
            None => f.write_str("-"),
        }
    }
}

/// An unresolved job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its record.
    pub record: Record,
    /// Attempts made.
    pub attempts: u32,
    /// First and latest attempt.
    pub attempted: Option<(u64, u64)>,
}

/// The newest record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Offset.
    pub offset: u64,
    /// The record.
    pub record: Record,
    /// The key was deleted.
    pub deletion: bool,
}

/// What a channel holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Records by offset.
    Sequence(BTreeMap<u64, Record>),
    /// Values by key.
    Map(BTreeMap<Bytes, Value>),
    /// Jobs by offset.
    Work(BTreeMap<u64, Job>),
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Name.
    pub name: Bytes,
    /// Offset the next record takes.
    pub next: u64,
    /// Oldest readable offset.
    pub floor: u64,
    /// Records, as the engine counts them.
    pub count: u64,
    /// Their counted bytes.
    pub bytes: u64,
    /// Content.
    pub content: Content,
}

impl Channel {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.content {
            Content::Sequence(_) => Kind::Sequence,
            Content::Map(_) => Kind::Map,
            Content::Work(_) => Kind::Work,
        }
    }
}

/// One change, as the simulation submits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes a channel known.
    Define(Bytes, Kind),
    /// Adds to a sequence, within a bound of counted bytes.
    Append(u32, Record, Option<u64>),
    /// Raises the floor of a sequence; planned when the floor was `from`.
    Trim {
        /// Channel.
        channel: u32,
        /// Floor when it was planned.
        from: u64,
        /// New floor.
        floor: u64,
    },
    /// Replaces a key's value.
    Set(u32, Bytes, Record),
    /// Deletes a key.
    Remove(u32, Bytes, Record),
    /// Drops a key's entry if it is the one at this offset.
    Forget(u32, Bytes, u64),
    /// Adds a job.
    Enqueue(u32, Record, Option<u64>),
    /// Notes attempts.
    Attempt(u32, u64, u32, u64, u64),
    /// Removes a job.
    Resolve(u32, u64),
    /// Moves a job.
    DeadLetter {
        /// Work set.
        work: u32,
        /// Job.
        offset: u64,
        /// Sequence.
        channel: u32,
        /// Record there.
        record: Record,
    },
    /// Holds a record back.
    Hold(Bytes, Record),
    /// Lets a hold become what another operation adds.
    Release(Bytes, Box<Op>),
    /// Gives a hold up.
    Drop(Bytes),
    /// Stores a consumer's position: channel, consumer, position.
    Position(u32, Bytes, u64),
    /// Deletes one.
    NoPosition(u32, Bytes),
    /// Stores a small value.
    Put(u8, Bytes, Bytes),
    /// Deletes a small value.
    Delete(u8, Bytes),
    /// What an opening does to a channel whose newest offsets may be lost: goes on at this one.
    Skip(u32, u64),
}

impl Op {
    /// The channel it takes an offset of, if it takes one.
    #[must_use]
    pub fn takes_offset_of(&self) -> Option<u32> {
        match self {
            Op::Append(channel, ..)
            | Op::Set(channel, ..)
            | Op::Remove(channel, ..)
            | Op::Enqueue(channel, ..)
            | Op::DeadLetter { channel, .. } => Some(*channel),
            Op::Release(_, target) => target.takes_offset_of(),
            _ => None,
        }
    }
}

impl Op {
    /// Whether it publishes: what a log at its bound may refuse. Written down here a second time, on
    /// purpose. A put may or may not, by what it replaces.
    #[must_use]
    pub fn publishes(&self) -> bool {
        match self {
            Op::Append(..) | Op::Set(..) | Op::Enqueue(..) | Op::Hold(..) | Op::Put(..) => true,
            Op::Define(..)
            | Op::Trim { .. }
            | Op::Remove(..)
            | Op::Forget(..)
            | Op::Attempt(..)
            | Op::Resolve(..)
            | Op::DeadLetter { .. }
            | Op::Release(..)
            | Op::Drop(..)
            | Op::Position(..)
            | Op::NoPosition(..)
            | Op::Skip(..)
            | Op::Delete(..) => false,
        }
    }

    /// Whether it publishes whatever it replaces.
    #[must_use]
    pub fn always_publishes(&self) -> bool {
        self.publishes() && !matches!(self, Op::Put(..))
    }
}

/// Everything that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Channels by id.
    pub channels: Vec<Channel>,
    /// The keyspace.
    pub values: BTreeMap<(u8, Bytes), Bytes>,
    /// What is held back.
    pub holds: BTreeMap<Bytes, Record>,
    /// Consumers' positions, by channel and name.
    pub positions: BTreeMap<(u32, Bytes), u64>,
}

/// What a batch is given: per operation its offset or id.
pub type Offsets = Vec<Option<u64>>;

impl Model {
    /// Applies a batch whole, or not at all with the refusal the engine owes.
    ///
    /// # Errors
    /// The refusal.
    pub fn apply(&mut self, batch: &[Op]) -> Result<Offsets, CommitError> {
        let mut after = self.clone();
        let offsets = batch
            .iter()
            .map(|op| after.operation(op))
            .collect::<Result<Offsets, CommitError>>()?;
        *self = after;
        Ok(offsets)
    }

    /// The channel with a name.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<u32> {
        let at = self.channels.iter().position(|c| c.name == name)?;
        u32::try_from(at).ok()
    }

    fn operation(&mut self, op: &Op) -> Result<Option<u64>, CommitError> {
        match op {
            Op::Define(name, kind) => self.define(name, *kind).map(Some),
            Op::Append(id, record, max) => self.append(*id, record, *max).map(Some),
            Op::Trim {
                channel,
                from,
                floor,
            } => self.trim(*channel, *from, *floor),
            Op::Set(id, key, record) => self.replace(*id, key, record, false).map(Some),
            Op::Remove(id, key, record) => {
                let gone = self.map(*id)?.1.get(key).is_none_or(|v| v.deletion);
                if gone {
                    return Ok(None);
                }
                self.replace(*id, key, record, true).map(Some)
            }
            Op::Forget(id, key, offset) => {
                let (mut numbers, map) = self.map(*id)?;
                if map.get(key).is_some_and(|v| v.offset == *offset)
                    && let Some(old) = map.remove(key)
                {
                    numbers.2 -= 1;
                    numbers.3 -= old.record.size;
                    self.store(*id, numbers);
                }
                Ok(None)
            }
            Op::Enqueue(id, record, max) => {
                self.room(*id, Kind::Work, record, *max)?;
                let (mut numbers, jobs) = self.work(*id)?;
                let offset = numbers.0;
                let job = Job {
                    record: record.clone(),
                    attempts: 0,
                    attempted: None,
                };
                jobs.insert(offset, job);
                numbers = added(numbers, record.size);
                self.store(*id, numbers);
                Ok(Some(offset))
            }
            Op::Attempt(id, offset, attempts, first, last) => {
                let (_, jobs) = self.work(*id)?;
                let job = jobs.get_mut(offset).ok_or(no_item(*id, *offset))?;
                job.attempts = *attempts;
                job.attempted = Some((*first, *last));
                Ok(None)
            }
            Op::Resolve(id, offset) => self.resolve(*id, *offset).map(|()| None),
            Op::DeadLetter {
                work,
                offset,
                channel,
                record,
            } => {
                let taken = self.append(*channel, record, None)?;
                self.resolve(*work, *offset)?;
                Ok(Some(taken))
            }
            Op::Hold(key, record) => {
                if self.holds.contains_key(key) {
                    return Err(CommitError::AlreadyHeld { key: key.clone() });
                }
                self.holds.insert(key.clone(), record.clone());
                Ok(None)
            }
            Op::Release(key, target) => {
                self.let_go(key)?;
                self.operation(target)
            }
            Op::Drop(key) => self.let_go(key).map(|()| None),
            Op::Position(id, consumer, position) => {
                let channel = ChannelId(*id);
                let known = self.channels.get(*id as usize);
                let next = known.ok_or(CommitError::UnknownChannel { channel })?.next;
                if *position > next {
                    return Err(CommitError::PositionAhead {
                        channel,
                        next,
                        position: *position,
                    });
                }
                self.positions.insert((*id, consumer.clone()), *position);
                Ok(None)
            }
            Op::NoPosition(id, consumer) => {
                self.positions.remove(&(*id, consumer.clone()));
                Ok(None)
            }
            Op::Put(space, key, value) => {
                self.values.insert((*space, key.clone()), value.clone());
                Ok(None)
            }
            Op::Delete(space, key) => {
                self.values.remove(&(*space, key.clone()));
                Ok(None)
            }
            Op::Skip(id, next) => {
                if let Some(channel) = self.channels.get_mut(*id as usize) {
                    channel.next = *next;
                }
                Ok(None)
            }
        }
    }

    fn let_go(&mut self, key: &Bytes) -> Result<(), CommitError> {
        match self.holds.remove(key) {
            Some(_) => Ok(()),
            None => Err(CommitError::NotHeld { key: key.clone() }),
        }
    }

    /// What takes everything out that can be taken out.
    #[must_use]
    pub fn relief(&self) -> Vec<Vec<Op>> {
        let mut relief: Vec<Vec<Op>> = Vec::new();
        let holds = self.holds.keys().map(|key| vec![Op::Drop(key.clone())]);
        relief.extend(holds);
        for (id, channel) in (0u32..).zip(&self.channels) {
            match &channel.content {
                Content::Sequence(_) if channel.floor < channel.next => {
                    relief.push(vec![Op::Trim {
                        channel: id,
                        from: channel.floor,
                        floor: channel.next,
                    }]);
                }
                Content::Sequence(_) => {}
                Content::Map(map) => {
                    let forget = |(key, value): (&Bytes, &Value)| {
                        vec![Op::Forget(id, key.clone(), value.offset)]
                    };
                    relief.extend(map.iter().map(forget));
                }
                Content::Work(jobs) => {
                    relief.extend(jobs.keys().map(|job| vec![Op::Resolve(id, *job)]));
                }
            }
        }
        relief
    }

    fn define(&mut self, name: &Bytes, kind: Kind) -> Result<u64, CommitError> {
        if let Some(id) = self.named(name) {
            let same = self.channels[id as usize].kind() == kind;
            return if same {
                Ok(id.into())
            } else {
                Err(CommitError::BadName)
            };
        }
        let content = match kind {
            Kind::Sequence => Content::Sequence(BTreeMap::new()),
            Kind::Map => Content::Map(BTreeMap::new()),
            Kind::Work => Content::Work(BTreeMap::new()),
        };
        self.channels.push(Channel {
            name: name.clone(),
            next: 1,
            floor: 1,
            count: 0,
            bytes: 0,
            content,
        });
        Ok(self.channels.len() as u64 - 1)
    }

    fn append(&mut self, id: u32, record: &Record, max: Option<u64>) -> Result<u64, CommitError> {
        self.room(id, Kind::Sequence, record, max)?;
        let (numbers, records) = self.sequence(id)?;
        let offset = numbers.0;
        records.insert(offset, record.clone());
        self.store(id, added(numbers, record.size));
        Ok(offset)
    }

    fn trim(&mut self, id: u32, from: u64, floor: u64) -> Result<Option<u64>, CommitError> {
        let (mut numbers, records) = self.sequence(id)?;
        if numbers.1 != from {
            return Err(CommitError::FloorMoved {
                channel: ChannelId(id),
                floor: numbers.1,
            });
        }
        let kept = records.split_off(&floor);
        for gone in std::mem::replace(records, kept).values() {
            numbers.2 -= 1;
            numbers.3 -= gone.size;
        }
        numbers.1 = floor;
        self.store(id, numbers);
        Ok(None)
    }

    fn replace(
        &mut self,
        id: u32,
        key: &Bytes,
        record: &Record,
        deletion: bool,
    ) -> Result<u64, CommitError> {
        let (mut numbers, map) = self.map(id)?;
        let offset = numbers.0;
        let value = Value {
            offset,
            record: record.clone(),
            deletion,
        };
        if let Some(old) = map.insert(key.clone(), value) {
            numbers.2 -= 1;
            numbers.3 -= old.record.size;
        }
        self.store(id, added(numbers, record.size));
        Ok(offset)
    }

    fn resolve(&mut self, id: u32, offset: u64) -> Result<(), CommitError> {
        let (mut numbers, jobs) = self.work(id)?;
        let job = jobs.remove(&offset).ok_or(no_item(id, offset))?;
        numbers.2 -= 1;
        numbers.3 -= job.record.size;
        self.store(id, numbers);
        Ok(())
    }

    fn room(
        &mut self,
        id: u32,
        kind: Kind,
        record: &Record,
        max: Option<u64>,
    ) -> Result<(), CommitError> {
        let bytes = self.channel(id, kind)?.bytes;
        match max {
            Some(max_bytes) if bytes + record.size > max_bytes => Err(CommitError::ChannelFull {
                channel: ChannelId(id),
                bytes,
                max_bytes,
            }),
            _ => Ok(()),
        }
    }

    fn channel(&mut self, id: u32, kind: Kind) -> Result<&mut Channel, CommitError> {
        let channel = ChannelId(id);
        match self.channels.get_mut(id as usize) {
            None => Err(CommitError::UnknownChannel { channel }),
            Some(known) if known.kind() != kind => Err(CommitError::WrongKind {
                channel,
                kind: known.kind(),
            }),
            Some(known) => Ok(known),
        }
    }

    fn sequence(&mut self, id: u32) -> Result<(Numbers, &mut BTreeMap<u64, Record>), CommitError> {
        let channel = self.channel(id, Kind::Sequence)?;
        let numbers = numbers(channel);
        match &mut channel.content {
            Content::Sequence(records) => Ok((numbers, records)),
            _ => Err(CommitError::BadName),
        }
    }

    fn map(&mut self, id: u32) -> Result<(Numbers, &mut BTreeMap<Bytes, Value>), CommitError> {
        let channel = self.channel(id, Kind::Map)?;
        let numbers = numbers(channel);
        match &mut channel.content {
            Content::Map(map) => Ok((numbers, map)),
            _ => Err(CommitError::BadName),
        }
    }

    fn work(&mut self, id: u32) -> Result<(Numbers, &mut BTreeMap<u64, Job>), CommitError> {
        let channel = self.channel(id, Kind::Work)?;
        let numbers = numbers(channel);
        match &mut channel.content {
            Content::Work(jobs) => Ok((numbers, jobs)),
            _ => Err(CommitError::BadName),
        }
    }

    fn store(&mut self, id: u32, numbers: Numbers) {
        let channel = &mut self.channels[id as usize];
        (channel.next, channel.floor, channel.count, channel.bytes) = numbers;
    }
}

/// Next, floor, count, bytes.
type Numbers = (u64, u64, u64, u64);

fn numbers(channel: &Channel) -> Numbers {
    (channel.next, channel.floor, channel.count, channel.bytes)
}

fn added(numbers: Numbers, size: u64) -> Numbers {
    (numbers.0 + 1, numbers.1, numbers.2 + 1, numbers.3 + size)
}

fn no_item(id: u32, offset: u64) -> CommitError {
    CommitError::NoSuchItem {
        channel: ChannelId(id),
        offset,
    }
}

/// The first thing that is not as expected, in words.
#[must_use]
pub fn difference(expected: &Model, found: &Model) -> Option<String> {
    for (i, want) in expected.channels.iter().enumerate() {
        let name = String::from_utf8_lossy(&want.name);
        let Some(have) = found.channels.get(i) else {
            return Some(format!("channel {name} is not there"));
        };
        if numbers(want) != numbers(have) || want.name != have.name {
            let show = |c: &Channel| {
                format!(
                    "{} next {} floor {} count {} bytes {}",
                    String::from_utf8_lossy(&c.name),
                    c.next,
                    c.floor,
                    c.count,
                    c.bytes
                )
            };
            return Some(format!("expected {}, found {}", show(want), show(have)));
        }
        let inner = match (&want.content, &have.content) {
            (Content::Sequence(a), Content::Sequence(b)) => entries(a, b),
            (Content::Map(a), Content::Map(b)) => entries(a, b),
            (Content::Work(a), Content::Work(b)) => entries(a, b),
            _ => Some("another kind".to_owned()),
        };
        if let Some(inner) = inner {
            return Some(format!("{name}: {inner}"));
        }
    }
    if let Some(more) = found.channels.get(expected.channels.len()) {
        let name = String::from_utf8_lossy(&more.name);
        return Some(format!("a channel {name} that should not be there"));
    }
    let values = entries(&expected.values, &found.values).map(|e| format!("keyspace: {e}"));
    let holds = || entries(&expected.holds, &found.holds).map(|e| format!("holds: {e}"));
    let positions =
        || entries(&expected.positions, &found.positions).map(|e| format!("positions: {e}"));
    values.or_else(holds).or_else(positions)
}

fn entries<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    expected: &BTreeMap<K, V>,
    found: &BTreeMap<K, V>,
) -> Option<String> {
    for (key, want) in expected {
        match found.get(key) {
            None => return Some(format!("{key:?} is missing: expected {}", short(want))),
            Some(have) if have != want => {
                return Some(format!(
                    "{key:?}: expected {}, found {}",
                    short(want),
                    short(have)
                ));
            }
            Some(_) => {}
        }
    }
    let more = found.iter().find(|(key, _)| !expected.contains_key(key))?;
    Some(format!(
        "{:?} should not be there: found {}",
        more.0,
        short(more.1)
    ))
}

fn short(value: &impl std::fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 160 {
        text.truncate(
            (0..=160)
                .rev()
                .find(|&i| text.is_char_boundary(i))
                .unwrap_or(0),
        );
        text.push('…');
    }
    text
}

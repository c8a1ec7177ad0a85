//! What callers submit, and what they get back.

use bytes::Bytes;

use crate::format::Kind;
use crate::latch::Failure;
use crate::state::Location;

/// A channel of one log. Stable for the life of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// What a caller wants kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Unix milliseconds; a record without one is never too old.
    pub timestamp: Option<u64>,
    /// Size to charge, in bytes: the caller's figure, whatever the encoding costs.
    pub size: u64,
    /// The caller's bytes. Kept in the tail cache as they are, so they should not pin a larger
    /// buffer.
    pub body: Bytes,
}

/// Most operations of a batch that is not synced: each may need a ceiling stated beside it, and a
/// frame counts its operations in 16 bits.
const MAX_INTERVAL_OPERATIONS: usize = 16_384;

/// When a batch is acknowledged and shown, and so what a power cut may take of it. A process that
/// dies takes nothing under either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once its frame is synced: a power cut takes nothing.
    #[default]
    Sync,
    /// Once its frame is written to the operating system: a power cut may take what was acknowledged
    /// in about the last [`flush_interval`](crate::Options::flush_interval) and one sync, always the
    /// newest and never a hole below something that stays. A batch that makes a channel known or
    /// trims one is kept as [`Sync`](Durability::Sync) all the same: an id is never given twice, and a
    /// floor that somebody was told of never falls. So is one of more than 16,384 operations.
    Interval,
}

/// One change. All changes of a [`Batch`] happen together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a channel known under a name; an existing one of the same kind is fine.
    Define {
        /// Unique in the log, 1 to 255 bytes.
        name: Bytes,
        /// Its kind, for ever.
        kind: Kind,
    },
    /// Adds a record to a sequence; takes the next offset.
    Append {
        /// A sequence.
        channel: ChannelId,
        /// The record.
        record: NewRecord,
        /// Counted bytes the channel may hold with it.
        max_bytes: Option<u64>,
    },
    /// Removes every record below a floor. Obtained from [`Engine::plan_trim`], which counts what
    /// goes.
    ///
    /// [`Engine::plan_trim`]: crate::Engine::plan_trim
    Trim(TrimPlan),
    /// Replaces the value of a key; takes the next offset.
    Set {
        /// A map.
        channel: ChannelId,
        /// Its key.
        key: Bytes,
        /// The record.
        record: NewRecord,
    },
    /// Deletes a key: stores the deletion under the next offset. Where the key has no value it
    /// changes nothing and takes no offset.
    Remove {
        /// A map.
        channel: ChannelId,
        /// Its key.
        key: Bytes,
        /// The deletion, as a record.
        record: NewRecord,
    },
    /// Drops a key's entry if it still is the one at `offset`; otherwise changes nothing.
    Forget {
        /// A map.
        channel: ChannelId,
        /// Its key.
        key: Bytes,
        /// The entry judged.
        offset: u64,
    },
    /// Adds a job; takes the next offset.
    Enqueue {
        /// A work set.
        channel: ChannelId,
        /// The record.
        record: NewRecord,
        /// Counted bytes the channel may hold with it.
        max_bytes: Option<u64>,
    },
    /// Notes how often a job was tried.
    Attempt {
        /// A work set.
        channel: ChannelId,
        /// The job.
        offset: u64,
        /// Attempts so far.
        attempts: u32,
        /// First attempt, Unix milliseconds.
        first: u64,
        /// Latest attempt, Unix milliseconds.
        last: u64,
    },
    /// Removes a job: it is done.
    Resolve {
        /// A work set.
        channel: ChannelId,
        /// The job.
        offset: u64,
    },
    /// Moves a job into a sequence under a new offset, in one step.
    DeadLetter {
        /// A work set.
        work: ChannelId,
        /// The job.
        offset: u64,
        /// A sequence.
        channel: ChannelId,
        /// The record it becomes there.
        record: NewRecord,
    },
    /// Holds a record back: kept and counted, in no channel and without an offset, until it is
    /// released or dropped. How many there may be is the caller's to bound; each takes its key and
    /// about 100 bytes of memory.
    Hold {
        /// Key, at most [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), under which nothing may be held yet.
        key: Bytes,
        /// The record.
        record: NewRecord,
    },
    /// Moves a held record to where it is for, in one step; takes the offset that takes.
    Release {
        /// Key.
        key: Bytes,
        /// What becomes of the record, which the caller read with [`Engine::held`].
        ///
        /// [`Engine::held`]: crate::Engine::held
        target: Target,
    },
    /// Gives a held record up.
    Drop {
        /// Key.
        key: Bytes,
    },
    /// Stores a small value. One in the namespace [`POSITIONS`](crate::format::POSITIONS) is a
    /// consumer's position, and lies at or below its channel's next offset.
    Put {
        /// Namespace.
        space: u8,
        /// Key, at most [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES).
        key: Bytes,
        /// Value, at most [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
        value: Bytes,
    },
    /// Deletes a small value; deleting nothing is fine.
    Delete {
        /// Namespace.
        space: u8,
        /// Key.
        key: Bytes,
    },
    /// Housekeeping of the engine itself.
    Tidy(Tidy),
}

/// What a held record becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// [`Operation::Append`].
    Append {
        /// A sequence.
        channel: ChannelId,
        /// The record.
        record: NewRecord,
        /// Counted bytes the channel may hold with it.
        max_bytes: Option<u64>,
    },
    /// [`Operation::Set`].
    Set {
        /// A map.
        channel: ChannelId,
        /// Its key.
        key: Bytes,
        /// The record.
        record: NewRecord,
    },
    /// [`Operation::Remove`].
    Remove {
        /// A map.
        channel: ChannelId,
        /// Its key.
        key: Bytes,
        /// The deletion, as a record.
        record: NewRecord,
    },
    /// [`Operation::Enqueue`].
    Enqueue {
        /// A work set.
        channel: ChannelId,
        /// The record.
        record: NewRecord,
        /// Counted bytes the channel may hold with it.
        max_bytes: Option<u64>,
    },
}

impl From<Target> for Operation {
    fn from(target: Target) -> Operation {
        match target {
            Target::Append {
                channel,
                record,
                max_bytes,
            } => Operation::Append {
                channel,
                record,
                max_bytes,
            },
            Target::Set {
                channel,
                key,
                record,
            } => Operation::Set {
                channel,
                key,
                record,
            },
            Target::Remove {
                channel,
                key,
                record,
            } => Operation::Remove {
                channel,
                key,
                record,
            },
            Target::Enqueue {
                channel,
                record,
                max_bytes,
            } => Operation::Enqueue {
                channel,
                record,
                max_bytes,
            },
        }
    }
}

/// One step of making an old segment unnecessary. Only the engine makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tidy(pub(crate) TidyStep);

/// States again what lies in an old segment, if it still does; or lets such segments go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TidyStep {
    /// A record of a sequence.
    Record {
        channel: ChannelId,
        offset: u64,
        record: NewRecord,
    },
    /// The entry of a key of a map.
    Entry {
        channel: ChannelId,
        offset: u64,
        deletion: bool,
        key: Bytes,
        record: NewRecord,
    },
    /// An unresolved job.
    Job {
        channel: ChannelId,
        offset: u64,
        record: NewRecord,
    },
    /// A hold that lies at `at`.
    Hold {
        key: Bytes,
        at: Location,
        record: NewRecord,
    },
    /// A small value of `len` bytes that lies in `from`.
    Key {
        space: u8,
        key: Bytes,
        len: usize,
        from: u32,
    },
    /// Segments before this one belong to the log no longer.
    Oldest { segment: u64 },
    /// Changes nothing; being synced, it has everything before it synced.
    Flush,
}

/// A trim whose cost was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimPlan {
    pub(crate) channel: ChannelId,
    /// The floor the count began at; the trim is refused if it has moved since.
    pub(crate) from: u64,
    pub(crate) floor: u64,
    pub(crate) removed: u64,
    pub(crate) freed: u64,
}

impl TrimPlan {
    /// Records it removes.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }
}

/// Changes that happen together or not at all: one batch lies in one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order they apply.
    pub operations: Vec<Operation>,
    /// When it is acknowledged.
    pub durability: Durability,
}

impl From<Operation> for Batch {
    fn from(operation: Operation) -> Batch {
        Batch {
            operations: vec![operation],
            durability: Durability::Sync,
        }
    }
}

impl Batch {
    /// Whether it is the engine's own housekeeping.
    pub(crate) fn is_tidying(&self) -> bool {
        is_tidying(&self.operations)
    }

    /// Whether it asks for a sync. One without operations asks for nothing.
    pub(crate) fn is_sync(&self) -> bool {
        let asks = match self.durability {
            Durability::Sync => true,
            Durability::Interval => self.operations.len() > MAX_INTERVAL_OPERATIONS,
        };
        asks && !self.operations.is_empty()
    }

    /// Whether it waits for no company: only what is published does. Whoever answers a job, connects
    /// or subscribes would otherwise wait each time for others who may never come.
    pub(crate) fn is_urgent(&self) -> bool {
        let published = |operation: &Operation| {
            matches!(
                operation,
                Operation::Append { .. }
                    | Operation::Set { .. }
                    | Operation::Remove { .. }
                    | Operation::Enqueue { .. }
                    | Operation::Hold { .. }
                    | Operation::Release { .. }
            )
        };
        !self.operations.iter().any(published)
    }

    /// An upper bound of the bytes the batch takes in a frame.
    #[must_use]
    pub fn encoded_bound(&self) -> u64 {
        self.operations.iter().map(Operation::encoded_bound).sum()
    }
}

/// Whether operations are the engine's own housekeeping.
pub(crate) fn is_tidying(operations: &[Operation]) -> bool {
    matches!(operations.first(), Some(Operation::Tidy(_)))
}

/// More than the kind byte and the numbers of any operation can take, and of the ceiling it may need.
const FIXED_BOUND: usize = 100;

impl Operation {
    /// The first clone of a `Bytes` made of a vector allocates. The commit thread clones what it
    /// caches, so that is made here, on the caller's thread.
    pub(crate) fn share(&self) {
        match self {
            Operation::Append { record, .. }
            | Operation::Enqueue { record, .. }
            | Operation::DeadLetter { record, .. } => drop(record.body.clone()),
            Operation::Set { key, record, .. } | Operation::Remove { key, record, .. } => {
                drop((key.clone(), record.body.clone()));
            }
            _ => {}
        }
    }

    pub(crate) fn encoded_bound(&self) -> u64 {
        let opaque = match self {
            Operation::Define { name, .. } => name.len(),
            Operation::Append { record, .. }
            | Operation::Enqueue { record, .. }
            | Operation::DeadLetter { record, .. } => record.body.len(),
            Operation::Set { key, record, .. } | Operation::Remove { key, record, .. } => {
                key.len() + record.body.len()
            }
            Operation::Forget { key, .. }
            | Operation::Delete { key, .. }
            | Operation::Drop { key } => key.len(),
            Operation::Hold { key, record } => key.len() + record.body.len(),
            Operation::Release { key, target } => FIXED_BOUND + key.len() + target.opaque_bytes(),
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Tidy(Tidy(step)) => match step {
                TidyStep::Record { record, .. } | TidyStep::Job { record, .. } => record.body.len(),
                TidyStep::Entry { key, record, .. } | TidyStep::Hold { key, record, .. } => {
                    key.len() + record.body.len()
                }
                TidyStep::Key { key, len, .. } => key.len() + len,
                TidyStep::Oldest { .. } | TidyStep::Flush => 0,
            },
            Operation::Trim(_) | Operation::Attempt { .. } | Operation::Resolve { .. } => 0,
        };
        (FIXED_BOUND + opaque) as u64
    }
}

impl Target {
    fn opaque_bytes(&self) -> usize {
        match self {
            Target::Append { record, .. } | Target::Enqueue { record, .. } => record.body.len(),
            Target::Set { key, record, .. } | Target::Remove { key, record, .. } => {
                key.len() + record.body.len()
            }
        }
    }
}

/// What a batch that was kept was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The frame that holds it.
    pub lsn: u64,
    /// Per operation, in order: the offset it took, or for `Define` the channel's id.
    pub offsets: Vec<Option<u64>>,
    /// Operations that were refused, by their place, in order, and why; the others were kept. Only
    /// [`Engine::submit_each`](crate::Engine::submit_each) has any.
    pub refused: Vec<(usize, CommitError)>,
}

/// Why a batch was not kept. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The channel has no room for it under its `max_bytes`.
    ChannelFull {
        /// The channel.
        channel: ChannelId,
        /// Counted bytes it holds.
        bytes: u64,
        /// The bound.
        max_bytes: u64,
    },
    /// The log takes what its `max_bytes` leaves to what is published; the rest is for what gives
    /// room back. Resolve, trim or drop something, or raise the bound.
    LogFull {
        /// Bytes the directory takes.
        bytes: u64,
        /// The bound.
        max_bytes: u64,
    },
    /// The disk has no room. The engine lives on; a later batch may fit.
    NoSpace,
    /// The batch is larger than a frame may be, or has more operations than one may hold.
    TooLarge {
        /// Bytes it may take.
        bytes: u64,
        /// The bound.
        max_bytes: u64,
    },
    /// More is waiting to be committed than may wait. Try again later.
    Overloaded,
    /// There is no such channel.
    UnknownChannel {
        /// The id.
        channel: ChannelId,
    },
    /// The channel is of another kind than the operation needs.
    WrongKind {
        /// The id.
        channel: ChannelId,
        /// What it is.
        kind: Kind,
    },
    /// There is no such unresolved job.
    NoSuchItem {
        /// The work set.
        channel: ChannelId,
        /// The offset.
        offset: u64,
    },
    /// Something is held under this key already.
    AlreadyHeld {
        /// The key.
        key: Bytes,
    },
    /// Nothing is held under this key.
    NotHeld {
        /// The key.
        key: Bytes,
    },
    /// A consumer's position lies past the end of its channel.
    PositionAhead {
        /// The channel.
        channel: ChannelId,
        /// Its next offset.
        next: u64,
        /// The position.
        position: u64,
    },
    /// An entry of the namespace of positions is not one.
    BadPosition,
    /// The floor moved after the trim was planned; plan again.
    FloorMoved {
        /// The sequence.
        channel: ChannelId,
        /// Where the floor is now.
        floor: u64,
    },
    /// A name or key is empty or too long, or a name is taken by another kind.
    BadName,
    /// The engine failed earlier, or is closed, and keeps nothing more until it is reopened.
    Failed(Failure),
}

impl std::fmt::Display for CommitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CommitError::ChannelFull {
                channel,
                bytes,
                max_bytes,
            } => {
                write!(
                    f,
                    "channel {} holds {bytes} of its {max_bytes} bytes",
                    channel.0
                )
            }
            CommitError::LogFull { bytes, max_bytes } => write!(
                f,
                "the log takes {bytes} of its {max_bytes} bytes, and the rest is kept for what gives room back"
            ),
            CommitError::NoSpace => f.write_str("no room on the disk for another segment"),
            CommitError::TooLarge { bytes, max_bytes } => {
                write!(f, "{bytes} bytes do not fit one frame of {max_bytes}")
            }
            CommitError::Overloaded => f.write_str("too much is waiting to be committed"),
            CommitError::UnknownChannel { channel } => {
                write!(f, "there is no channel {}", channel.0)
            }
            CommitError::WrongKind { channel, kind } => {
                write!(f, "channel {} is a {kind}", channel.0)
            }
            CommitError::NoSuchItem { channel, offset } => {
                write!(
                    f,
                    "channel {}: nothing unresolved at offset {offset}",
                    channel.0
                )
            }
            CommitError::AlreadyHeld { key } => {
                write!(f, "something is held under {} already", key.escape_ascii())
            }
            CommitError::NotHeld { key } => {
                write!(f, "nothing is held under {}", key.escape_ascii())
            }
            CommitError::PositionAhead {
                channel,
                next,
                position,
            } => write!(
                f,
                "channel {}: position {position} is past the next offset {next}",
                channel.0
            ),
            CommitError::BadPosition => {
                f.write_str("a position is a channel and a name, and eight bytes")
            }
            CommitError::FloorMoved { channel, floor } => {
                write!(f, "channel {}: the floor is {floor} by now", channel.0)
            }
            CommitError::BadName => f.write_str("a name or key is empty, too long or taken"),
            CommitError::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for CommitError {}

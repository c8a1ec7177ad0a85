//! The [`Store`] trait and the types that cross it.

use bytes::Bytes;

use super::message::{Message, Record};

/// A channel as its provider knows it. Obtained from the provider by name when the broker starts;
/// stable for the life of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// How a channel keeps its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// A replayable log.
    Append,
    /// One current value per topic.
    Latest,
    /// Unresolved work.
    Queue,
}

/// Namespaces of the small keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Space {
    /// Session records, by client id.
    Sessions = 1,
    /// Stored positions of durable consumers, by [`Space::position_key`].
    Positions = 2,
    /// What a session that outlives its connection is owed of broadcast and has on its way, by
    /// client id.
    Windows = 4,
    /// Wills that outlive a process, by client id.
    Wills = 5,
    /// Where shared groups are, by group and filter.
    Groups = 6,
}

impl Space {
    /// The key of one client's position in one channel: the channel id, big-endian, then the
    /// client id. The value is the offset, little-endian.
    #[must_use]
    pub fn position_key(channel: ChannelId, client_id: &[u8]) -> Bytes {
        let mut key = Vec::with_capacity(4 + client_id.len());
        key.extend_from_slice(&channel.0.to_be_bytes());
        key.extend_from_slice(client_id);
        Bytes::from(key)
    }
}

/// One change inside a [`Batch`].
#[derive(Clone, Debug)]
pub enum Operation {
    /// Adds a record to an append channel; takes the next offset.
    Append {
        /// An append channel.
        channel: ChannelId,
        /// What to keep.
        message: Message,
    },
    /// Raises an append channel's floor to `floor` and removes every record below it, in one step
    /// (invariant 1). A floor at or below the present one changes nothing.
    Trim {
        /// An append channel.
        channel: ChannelId,
        /// The new oldest readable offset; at most the channel's next offset.
        floor: u64,
    },
    /// Replaces the current value of `message.topic`; takes the next offset. An empty payload is
    /// stored as a deletion, until [`Operation::Forget`]; deleting a topic that has no value takes
    /// no offset and stores nothing.
    Set {
        /// A latest channel.
        channel: ChannelId,
        /// The value; its topic is the key.
        message: Message,
    },
    /// Removes a latest channel's entry (value or deletion) by retention, if `topic` still has it
    /// at `offset`; otherwise changes nothing.
    Forget {
        /// A latest channel.
        channel: ChannelId,
        /// The topic whose entry goes.
        topic: Bytes,
        /// The offset the entry had when retention judged it.
        offset: u64,
    },
    /// Adds a job to a queue; takes the next offset.
    Enqueue {
        /// A queue.
        channel: ChannelId,
        /// The job.
        message: Message,
    },
    /// Records the delivery facts of an unresolved job that survive a restart.
    Attempt {
        /// A queue.
        channel: ChannelId,
        /// The job.
        offset: u64,
        /// Attempts made so far.
        attempts: u32,
        /// First attempt, Unix milliseconds.
        first: u64,
        /// Latest attempt, Unix milliseconds.
        last: u64,
    },
    /// Removes a job because it is done (invariant 2: resolution, not retention).
    Resolve {
        /// A queue.
        channel: ChannelId,
        /// The job.
        offset: u64,
    },
    /// Moves a job to its dead-letter channel: leaves the one and appears in the other under a new
    /// offset, or neither (invariant 5).
    DeadLetter {
        /// The queue the job leaves.
        channel: ChannelId,
        /// The job.
        offset: u64,
        /// The append channel that takes it.
        target: ChannelId,
        /// The dead letter as it will be read: same id, its new topic and properties.
        message: Message,
    },
    /// Holds a message back: kept and counted, in no channel and without an offset, until it is
    /// released or dropped. What a QoS 2 PUBLISH becomes between its PUBREC and its PUBREL.
    Hold {
        /// At most 65,535 bytes; nothing may be held under it yet.
        key: Bytes,
        /// What to keep.
        message: Message,
    },
    /// Moves a held message to where it is for, in one step: it is no longer held and the operation
    /// has been carried out, or neither. Takes the offset that takes.
    Release {
        /// The key it is held under.
        key: Bytes,
        /// [`Append`](Operation::Append), [`Set`](Operation::Set) or
        /// [`Enqueue`](Operation::Enqueue) of the message, which the caller read with
        /// [`Store::held`].
        into: Box<Operation>,
    },
    /// Gives a held message up.
    Drop {
        /// The key it is held under.
        key: Bytes,
    },
    /// Stores a small value.
    Put {
        /// Namespace.
        space: Space,
        /// Key, at most 65,535 bytes.
        key: Bytes,
        /// Value, at most 1 MiB.
        value: Bytes,
    },
    /// Deletes a small value; deleting nothing is not an error.
    Delete {
        /// Namespace.
        space: Space,
        /// Key.
        key: Bytes,
    },
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In the order they apply.
    pub operations: Vec<Operation>,
}

impl From<Operation> for Batch {
    fn from(operation: Operation) -> Self {
        Batch {
            operations: vec![operation],
        }
    }
}

/// What a stored batch was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Per operation, in order: the offset it took, if it took one.
    pub offsets: Vec<Option<u64>>,
}

/// Why a batch was not stored. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The channel holds `bytes` of its `max_bytes` and the batch does not fit.
    ChannelFull {
        /// The channel that has no room.
        channel: ChannelId,
        /// Counted bytes held.
        bytes: u64,
        /// The bound.
        max_bytes: u64,
    },
    /// The provider or its disk has no room.
    ProviderFull,
    /// The batch is larger than one commit may be.
    TooLarge {
        /// Encoded size.
        bytes: u64,
        /// The bound.
        max_bytes: u64,
    },
    /// The operation names a job that is not there: already resolved or moved.
    NoSuchJob {
        /// The queue.
        channel: ChannelId,
        /// The offset asked for.
        offset: u64,
    },
    /// The operation names a held message that is not there.
    NotHeld,
    /// The store failed and accepts no write until the broker is restarted. The text says what
    /// happened.
    Failed(String),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreError::ChannelFull {
                bytes, max_bytes, ..
            } => write!(
                f,
                "the channel holds {bytes} of its max_bytes {max_bytes}; consume or trim it, or raise max_bytes"
            ),
            StoreError::ProviderFull => {
                f.write_str("the storage provider has no room; free disk space or raise max_bytes")
            }
            StoreError::TooLarge { bytes, max_bytes } => {
                write!(
                    f,
                    "{bytes} bytes are more than one commit may hold ({max_bytes})"
                )
            }
            StoreError::NoSuchJob { offset, .. } => {
                write!(f, "there is no unresolved job at offset {offset}")
            }
            StoreError::NotHeld => f.write_str("nothing is held under that key"),
            StoreError::Failed(why) => {
                write!(
                    f,
                    "storage failed and takes no write until a restart: {why}"
                )
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// Whether it is for want of room, which may be found later; anything else is the store's own
    /// failure.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            StoreError::ChannelFull { .. } | StoreError::ProviderFull | StoreError::TooLarge { .. }
        )
    }
}

/// Called once with the outcome of a batch, inside [`Store::run_completions`] and nowhere else.
pub type Completion = Box<dyn FnOnce(Result<Receipt, StoreError>) + Send>;

/// Called once with the outcome of operations that were submitted to be judged each by itself, one
/// per operation in their order: the offset it took, if it took one. As [`Completion`] is.
pub type EachCompletion = Box<dyn FnOnce(Vec<Result<Option<u64>, StoreError>>) + Send>;

/// A channel's numbers at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The offset the next record will take; 1 on an empty channel. Covers acknowledged records only.
    pub next: u64,
    /// The oldest offset still readable (append). Rises only (invariant 1).
    pub floor: u64,
    /// Records held: live records, current values and kept deletions, or unresolved jobs.
    pub count: u64,
    /// Their counted size, in bytes.
    pub bytes: u64,
}

/// How much one read may return. A read returns at least one record if there is one, however large.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// At most this many records, at least 1.
    pub records: usize,
    /// Stop once this many counted bytes are reached.
    pub bytes: u64,
}

/// The answer to a read: records in offset order, and where the channel stood at that instant.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// In offset order.
    pub records: Vec<Record>,
    /// The channel's next offset at the instant of the read: with no records, the reader is caught
    /// up to here.
    pub next: u64,
}

/// Why a read was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The offset is below the floor: what was there is gone, and survivors are not served in its
    /// place (invariant 1).
    BelowFloor {
        /// The oldest offset still readable.
        floor: u64,
    },
    /// The store could not read or verify the record. The text names file and position.
    Failed(String),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::BelowFloor { floor } => {
                write!(
                    f,
                    "the position was removed; the oldest record still kept is {floor}"
                )
            }
            ReadError::Failed(why) => write!(f, "the record could not be read: {why}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// An unresolved job, without its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// Its offset in the queue.
    pub offset: u64,
    /// Attempts made, as last recorded.
    pub attempts: u32,
    /// First and latest attempt, Unix milliseconds; `None` before the first.
    pub attempted: Option<(u64, u64)>,
    /// Broker receipt, Unix milliseconds.
    pub received_at: Option<u64>,
    /// Counted size, bytes.
    pub size: u64,
}

/// A storage provider.
///
/// Reads may touch the disk and so may block for a moment; they never wait for a commit. Nothing
/// here waits for a client.
pub trait Store: Send + Sync {
    /// Queues a batch. Batches are stored in the order they are submitted. Never blocks on the
    /// disk; the outcome arrives through `done`, once the batch is as durable as the configuration
    /// promises for what it changes, and nothing of it is shown before.
    fn submit(&self, batch: Batch, done: Completion);

    /// Whether a channel has room for a message by its own bound. It may be gone by the time the
    /// message is submitted, and is judged again then.
    ///
    /// # Errors
    /// [`StoreError::ChannelFull`].
    fn room_for(&self, channel: ChannelId, message: &Message) -> Result<(), StoreError> {
        let _ = (channel, message);
        Ok(())
    }

    /// Whether what is published is refused for want of room, or will be soon unless something goes.
    fn needs_room(&self) -> bool {
        false
    }

    /// Queues operations that have nothing to do with each other: each is stored or refused by
    /// itself, in its turn. What it keeps of their messages it copies.
    fn submit_each(&self, operations: Vec<Operation>, done: EachCompletion);

    /// Batches that wait for their commit.
    fn waiting(&self) -> usize {
        0
    }

    /// Nothing more is on its way to the store, which was opened with a callback to ask for this:
    /// what waits is committed.
    fn go(&self) {}

    /// Runs the completions of every batch that has an outcome, in submission order, on the
    /// calling thread; returns how many. The provider was given a wake-up callback when it was
    /// opened and calls it when there is something to run: once per commit, not once per batch.
    fn run_completions(&self) -> usize;

    /// The channel's numbers.
    fn counters(&self, channel: ChannelId) -> Counters;

    /// Records of an append channel from `offset` on. Past the end is empty.
    ///
    /// # Errors
    /// [`ReadError::BelowFloor`] where `offset` is below the floor.
    fn read_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError>;

    /// Whether a read of an append or a latest channel from `offset` on would be answered without a
    /// disk. It may be wrong about what happens in between, and then costs a moment.
    fn is_in_memory(&self, channel: ChannelId, offset: u64, limit: ReadLimit) -> bool {
        let _ = (channel, offset, limit);
        false
    }

    /// The earliest offset of an append channel whose record was received at or after `unix_ms`;
    /// the channel's next offset where there is none.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    fn at_or_after(&self, channel: ChannelId, unix_ms: u64) -> Result<u64, ReadError>;

    /// The current entries of a latest channel (values and kept deletions) whose offset is at or
    /// above `offset`, in offset order: each topic at most once, at its newest offset.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    fn changes_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError>;

    /// The current value of one topic of a latest channel; a deletion reads as `None`.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    fn current(&self, channel: ChannelId, topic: &[u8]) -> Result<Option<Record>, ReadError>;

    /// Every unresolved job of a queue, in offset order.
    fn unresolved(&self, channel: ChannelId) -> Vec<WorkItem>;

    /// One unresolved job with its message; `None` where it is resolved.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    fn job(&self, channel: ChannelId, offset: u64) -> Result<Option<Record>, ReadError>;

    /// A held message; `None` where nothing is held under the key.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    fn held(&self, key: &[u8]) -> Result<Option<Message>, ReadError>;

    /// At most `most` keys under which something is held, in order, after the key `after`; with
    /// each, when its message was received, Unix milliseconds.
    fn holds(&self, after: Option<&[u8]>, most: usize) -> Vec<(Bytes, Option<u64>)>;

    /// A small value.
    fn get(&self, space: Space, key: &[u8]) -> Option<Bytes>;

    /// Every key and value of a namespace whose key starts with `prefix`, in key order.
    fn scan(&self, space: Space, prefix: &[u8]) -> Vec<(Bytes, Bytes)>;
}

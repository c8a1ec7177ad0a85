//! The `log` provider: the storage contract over the log engine.
//!
//! It translates and nothing else: a message becomes a record's bytes (`message`), an operation
//! of the contract becomes one of the engine, and an outcome waits in a queue until the broker runs
//! its completion.

mod message;
mod space;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{FileSystem, OsFiles};
use saguin_log_engine::{self as engine, CommitError, Engine, Outcome, TrimPlan};
pub use saguin_log_engine::{Durability, PublishCommit};
use saguin_recovery::{RecoverError, Report, recover};

use super::contract::{
    Batch, ChannelId, ChannelKind, Completion, Counters, EachCompletion, Operation, ReadError,
    ReadLimit, Receipt, Records, Space, Store, StoreError, WorkItem,
};
use super::message::{Message, Record};
use space::Spaces;

/// How a log provider is run.
#[derive(Clone)]
pub struct LogOptions {
    /// Its directory; made where it does not exist.
    pub dir: PathBuf,
    /// Capacity of a segment, in bytes.
    pub segment_bytes: u64,
    /// What the directory may take, in bytes.
    pub max_bytes: Option<u64>,
    /// The largest record there will be, with its headers, in bytes.
    pub max_record_bytes: u64,
    /// Bound of the cache of recent records, in bytes.
    pub tail_cache_bytes: u64,
    /// What an acknowledgement of what belongs to no channel promises.
    pub durability: Durability,
    /// How long what is acknowledged and not synced stays so, at most.
    pub flush_interval: Duration,
    /// Who shares a commit.
    pub publish_commit: PublishCommit,
    /// Bytes of log after which a checkpoint is written at the latest.
    pub checkpoint_bytes: u64,
    /// It is the only provider: every position kept in it is of one of its own channels.
    pub only_provider: bool,
    /// Called once per commit when completions are ready to be run; must not block.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// Called where something waits to be committed with whatever else is on its way, which
    /// [`Store::go`] ends soon; must not block.
    pub gather: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// A channel the configuration places in a provider.
#[derive(Clone, Debug)]
pub struct ChannelSpec {
    /// Its name, which is its identity.
    pub name: String,
    /// Its kind.
    pub kind: ChannelKind,
    /// Counted bytes it may hold.
    pub max_bytes: Option<u64>,
    /// What an acknowledgement promises.
    pub durability: Durability,
}

/// Why a provider did not open.
#[derive(Debug)]
pub enum OpenError {
    /// The directory could not be read back.
    Recover(RecoverError),
    /// A channel could not be made known.
    Define {
        /// Its name.
        name: String,
        /// The kind asked for.
        kind: ChannelKind,
        /// Why not.
        error: CommitError,
    },
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Recover(error) => error.fmt(f),
            OpenError::Define {
                name,
                kind,
                error: CommitError::BadName,
            } => write!(
                f,
                "channel {name} is kept as another type than {kind:?}; give it its old type or a new name"
            ),
            OpenError::Define { name, error, .. } => write!(f, "channel {name}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// A log directory as a store.
pub struct LogStore {
    engine: Engine,
    spaces: Spaces,
    max_bytes: HashMap<ChannelId, u64>,
    /// Of what belongs to no channel.
    durability: Durability,
    /// Channels whose acknowledgements do not wait for a sync.
    interval: HashSet<ChannelId>,
    ready: Arc<Ready>,
}

impl std::fmt::Debug for LogStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStore")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// Outcomes whose completions have not been run. Bounded by what the engine lets wait.
#[derive(Default)]
struct Ready {
    queue: Mutex<VecDeque<(Done, Outcome)>>,
}

/// Who is told, and of what.
enum Done {
    Batch(Completion),
    /// As many operations, each by itself.
    Each(EachCompletion, usize),
}

impl Done {
    fn run(self, outcome: Outcome) {
        match self {
            Done::Batch(done) => done(match outcome {
                Ok(receipt) => Ok(Receipt {
                    offsets: receipt.offsets,
                }),
                Err(error) => Err(store_error(error)),
            }),
            Done::Each(done, operations) => done(each_outcome(outcome, operations)),
        }
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Done, Outcome)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogStore {
    /// Opens the directory and makes the channels known; their ids are in the order of `channels`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        options: &LogOptions,
        channels: &[ChannelSpec],
    ) -> Result<(LogStore, Vec<ChannelId>, Report), OpenError> {
        LogStore::open_on(
            &(Arc::new(OsFiles) as Arc<dyn FileSystem>),
            options,
            channels,
        )
    }

    /// [`open`](Self::open) on another file system.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_on(
        fs: &Arc<dyn FileSystem>,
        options: &LogOptions,
        channels: &[ChannelSpec],
    ) -> Result<(LogStore, Vec<ChannelId>, Report), OpenError> {
        let engine_options = engine::Options {
            segment_bytes: options.segment_bytes,
            max_bytes: options.max_bytes,
            max_record_bytes: options.max_record_bytes,
            tail_cache_bytes: options.tail_cache_bytes,
            flush_interval: options.flush_interval,
            publish_commit: options.publish_commit,
            checkpoint_bytes: options.checkpoint_bytes,
            prepare_ahead: true,
            tidy_in_background: true,
            wake: Some(options.wake.clone()),
            gather: options.gather.clone(),
            ..engine::Options::default()
        };
        let opened = recover(fs, &options.dir, &engine_options);
        let (engine, report) = opened.map_err(OpenError::Recover)?;
        let mut ids = Vec::with_capacity(channels.len());
        let (mut max_bytes, mut interval) = (HashMap::new(), HashSet::new());
        for ChannelSpec {
            name,
            kind,
            max_bytes: bound,
            durability,
        } in channels
        {
            let defined = engine.define(name, engine_kind(*kind));
            let id = defined.map_err(|error| OpenError::Define {
                name: name.clone(),
                kind: *kind,
                error,
            })?;
            let id = ChannelId(id.0);
            ids.push(id);
            if let Some(bound) = bound {
                max_bytes.insert(id, *bound);
            }
            if *durability == Durability::Interval {
                interval.insert(id);
            }
        }
        Ok((
            LogStore {
                engine,
                spaces: Spaces {
                    own_positions: options.only_provider,
                },
                max_bytes,
                durability: options.durability,
                interval,
                ready: Arc::default(),
            },
            ids,
            report,
        ))
    }

    /// Translates one operation; `None` where it would change nothing.
    fn translate(&self, operation: Operation) -> Result<Option<engine::Operation>, StoreError> {
        use engine::Operation as To;
        Ok(Some(match operation {
            Operation::Append { channel, message } => To::Append {
                channel: id(channel),
                record: message::to_record(&message, false),
                max_bytes: self.max_bytes.get(&channel).copied(),
            },
            Operation::Trim { channel, floor } => match self.plan_trim(channel, floor)? {
                Some(plan) => To::Trim(plan),
                None => return Ok(None),
            },
            Operation::Set { channel, message } => {
                // The state keeps it: a slice would keep the buffer the publish came in.
                let (channel, key) = (id(channel), Bytes::copy_from_slice(&message.topic));
                let record = message::to_record(&message, true);
                if message.payload.is_empty() {
                    To::Remove {
                        channel,
                        key,
                        record,
                    }
                } else {
                    To::Set {
                        channel,
                        key,
                        record,
                    }
                }
            }
            Operation::Forget {
                channel,
                topic,
                offset,
            } => To::Forget {
                channel: id(channel),
                key: topic,
                offset,
            },
            Operation::Enqueue { channel, message } => To::Enqueue {
                channel: id(channel),
                record: message::to_record(&message, false),
                max_bytes: self.max_bytes.get(&channel).copied(),
            },
            Operation::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            } => To::Attempt {
                channel: id(channel),
                offset,
                attempts,
                first,
                last,
            },
            Operation::Resolve { channel, offset } => To::Resolve {
                channel: id(channel),
                offset,
            },
            Operation::DeadLetter {
                channel,
                offset,
                target,
                message,
            } => To::DeadLetter {
                work: id(channel),
                offset,
                channel: id(target),
                record: message::to_record(&message, false),
            },
            Operation::Hold { key, message } => To::Hold {
                key,
                record: message::to_record(&message, false),
            },
            Operation::Release { key, into } => {
                let Some(target) = self.translate(*into)?.and_then(target) else {
                    return Err(StoreError::Failed(
                        "a held message is released into a channel and nothing else".into(),
                    ));
                };
                To::Release { key, target }
            }
            Operation::Drop { key } => To::Drop { key },
            Operation::Put { space, key, value } => To::Put {
                space: self.spaces.of(space),
                key,
                value,
            },
            Operation::Delete { space, key } => To::Delete {
                space: self.spaces.of(space),
                key,
            },
        }))
    }

    /// Whether an operation is acknowledged before it is synced. A batch is if all of it is.
    fn is_interval(&self, operation: &Operation) -> bool {
        match operation {
            // A floor that a reader was told of does not fall (invariant 1).
            Operation::Trim { .. } => false,
            Operation::Append { channel, .. }
            | Operation::Set { channel, .. }
            | Operation::Forget { channel, .. }
            | Operation::Enqueue { channel, .. }
            | Operation::Attempt { channel, .. }
            | Operation::Resolve { channel, .. } => self.interval.contains(channel),
            Operation::DeadLetter {
                channel, target, ..
            } => self.interval.contains(channel) && self.interval.contains(target),
            Operation::Release { into, .. } => self.is_interval(into),
            Operation::Hold { .. }
            | Operation::Drop { .. }
            | Operation::Put { .. }
            | Operation::Delete { .. } => self.durability == Durability::Interval,
        }
    }

    /// What the engine has done since the log was opened, for whoever draws it.
    #[must_use]
    pub fn engine_counters(&self) -> engine::EngineCounters {
        self.engine.counters()
    }

    fn plan_trim(&self, channel: ChannelId, floor: u64) -> Result<Option<TrimPlan>, StoreError> {
        let planned = self.engine.plan_trim(id(channel), floor);
        planned.map_err(|e| StoreError::Failed(e.to_string()))
    }

    /// Hands an outcome over without the engine.
    fn answer(&self, done: Completion, outcome: Outcome, wake: bool) {
        self.ready.lock().push_back((Done::Batch(done), outcome));
        if wake {
            // An empty batch: its only effect is that whoever runs completions is woken.
            self.engine
                .submit_with(engine::Batch::default(), Box::new(|_| {}));
        }
    }
}

impl Store for LogStore {
    fn submit(&self, batch: Batch, done: Completion) {
        let mut operations = Vec::with_capacity(batch.operations.len());
        // How many of the engine's operations each of the contract's is.
        let mut kept = Vec::with_capacity(batch.operations.len());
        let interval = batch.operations.iter().all(|o| self.is_interval(o));
        for operation in batch.operations {
            let earlier = match &operation {
                Operation::Put { space, key, .. } | Operation::Delete { space, key } => {
                    self.spaces.clear_earlier(*space, key)
                }
                _ => None,
            };
            match self.translate(operation) {
                Ok(Some(operation)) => {
                    kept.push(1 + usize::from(earlier.is_some()));
                    operations.push(operation);
                    operations.extend(earlier);
                }
                Ok(None) => kept.push(0),
                Err(StoreError::Failed(reason)) => {
                    let failure = engine::Failure {
                        reason: reason.into(),
                    };
                    return self.answer(done, Err(CommitError::Failed(failure)), true);
                }
                Err(_) => return self.answer(done, Err(CommitError::NoSpace), true),
            }
        }
        let batch = engine::Batch {
            operations,
            durability: durability(interval),
        };
        let ready = self.ready.clone();
        let callback = move |outcome: Outcome| {
            let outcome = outcome.map(|receipt| spread(receipt, &kept));
            ready.lock().push_back((Done::Batch(done), outcome));
        };
        self.engine.submit_with(batch, Box::new(callback));
    }

    fn room_for(&self, channel: ChannelId, message: &Message) -> Result<(), StoreError> {
        let Some(&max_bytes) = self.max_bytes.get(&channel) else {
            return Ok(());
        };
        let bytes = Store::counters(self, channel).bytes;
        if bytes.saturating_add(message.counted_size()) > max_bytes {
            return Err(StoreError::ChannelFull {
                channel,
                bytes,
                max_bytes,
            });
        }
        Ok(())
    }

    fn submit_each(&self, operations: Vec<Operation>, done: EachCompletion) {
        let count = operations.len();
        // Written in one frame they are synced together, and told of together.
        let interval = operations.iter().all(|o| self.is_interval(o));
        let mut translated = Vec::with_capacity(count);
        for operation in operations {
            match self.translate(operation) {
                Ok(Some(operation)) => translated.push(operation),
                // Only a trim comes to nothing, or has to ask the engine; nobody publishes one.
                Ok(None) | Err(_) => {
                    let failure = engine::Failure {
                        reason: "an operation that is not published was submitted as one".into(),
                    };
                    let mut ready = self.ready.lock();
                    ready.push_back((Done::Each(done, count), Err(CommitError::Failed(failure))));
                    drop(ready);
                    self.engine
                        .submit_with(engine::Batch::default(), Box::new(|_| {}));
                    return;
                }
            }
        }
        let batch = engine::Batch {
            operations: translated,
            durability: durability(interval),
        };
        let ready = self.ready.clone();
        let callback = move |outcome: Outcome| {
            ready.lock().push_back((Done::Each(done, count), outcome));
        };
        self.engine.submit_each(batch, Box::new(callback));
    }

    fn needs_room(&self) -> bool {
        self.engine.needs_room()
    }

    fn waiting(&self) -> usize {
        self.engine.waiting()
    }

    fn go(&self) {
        self.engine.go();
    }

    fn run_completions(&self) -> usize {
        let mut run = 0;
        loop {
            // Taken in one go: a completion may submit, and must not find the queue locked.
            let ready = std::mem::take(&mut *self.ready.lock());
            if ready.is_empty() {
                return run;
            }
            for (done, outcome) in ready {
                run += 1;
                done.run(outcome);
            }
        }
    }

    fn counters(&self, channel: ChannelId) -> Counters {
        let numbers = self.engine.numbers(id(channel));
        numbers.map_or_else(Counters::default, |n| Counters {
            next: n.next,
            floor: n.floor,
            count: n.count,
            bytes: n.bytes,
        })
    }

    fn read_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError> {
        let read = self
            .engine
            .read_from(id(channel), offset, engine_limit(limit));
        records(read.map_err(read_error)?)
    }

    fn is_in_memory(&self, channel: ChannelId, offset: u64, limit: ReadLimit) -> bool {
        self.engine.is_in_memory(id(channel), offset, limit.records)
    }

    fn at_or_after(&self, channel: ChannelId, unix_ms: u64) -> Result<u64, ReadError> {
        self.engine
            .at_or_after(id(channel), unix_ms)
            .map_err(read_error)
    }

    fn changes_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError> {
        let read = self
            .engine
            .changes_from(id(channel), offset, engine_limit(limit));
        records(read.map_err(read_error)?)
    }

    fn current(&self, channel: ChannelId, topic: &[u8]) -> Result<Option<Record>, ReadError> {
        let found = self.engine.get(id(channel), topic).map_err(read_error)?;
        found
            .filter(|r| !r.deletion)
            .map(|r| message::from_record(&r))
            .transpose()
    }

    fn unresolved(&self, channel: ChannelId) -> Vec<WorkItem> {
        let items = self.engine.unresolved(id(channel)).unwrap_or_default();
        let item = |(offset, entry): (u64, engine::state::WorkEntry)| WorkItem {
            offset,
            attempts: entry.attempts,
            attempted: entry.attempted,
            received_at: entry.timestamp,
            size: entry.size,
        };
        items.into_iter().map(item).collect()
    }

    fn job(&self, channel: ChannelId, offset: u64) -> Result<Option<Record>, ReadError> {
        let found = self.engine.job(id(channel), offset).map_err(read_error)?;
        found.map(|r| message::from_record(&r)).transpose()
    }

    fn held(&self, key: &[u8]) -> Result<Option<Message>, ReadError> {
        let found = self.engine.held(key).map_err(read_error)?;
        let message = found.map(|r| message::from_record(&r)).transpose()?;
        Ok(message.map(|record| record.message))
    }

    fn holds(&self, after: Option<&[u8]>, most: usize) -> Vec<(Bytes, Option<u64>)> {
        let holds = self.engine.holds(&[], after, most).into_iter();
        holds.map(|(key, entry)| (key, entry.timestamp)).collect()
    }

    fn get(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        let earlier = || self.engine.value(self.spaces.earlier(space)?, key);
        self.engine
            .value(self.spaces.of(space), key)
            .or_else(earlier)
    }

    fn scan(&self, space: Space, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
        let mut found = self.engine.values(self.spaces.of(space), prefix);
        if let Some(earlier) = self.spaces.earlier(space) {
            found.extend(self.engine.values(earlier, prefix));
            found.sort();
        }
        found
    }
}

/// Puts an engine's offsets where the contract's operations were: one that changed nothing was not
/// submitted and took none, one that was two took what the first of them took.
fn spread(receipt: engine::Receipt, kept: &[usize]) -> engine::Receipt {
    if kept.iter().all(|&operations| operations == 1) {
        return receipt;
    }
    let mut taken = receipt.offsets.into_iter();
    let offsets = kept
        .iter()
        .map(|&operations| taken.by_ref().take(operations).fold(None, Option::or));
    engine::Receipt {
        lsn: receipt.lsn,
        offsets: offsets.collect(),
        refused: receipt.refused,
    }
}

/// What each of so many operations came to.
fn each_outcome(outcome: Outcome, operations: usize) -> Vec<Result<Option<u64>, StoreError>> {
    let receipt = match outcome {
        Ok(receipt) => receipt,
        Err(error) => {
            let error = store_error(error);
            return (0..operations).map(|_| Err(error.clone())).collect();
        }
    };
    let mut each: Vec<_> = receipt.offsets.into_iter().map(Ok).collect();
    for (place, refusal) in receipt.refused {
        if let Some(outcome) = each.get_mut(place) {
            *outcome = Err(store_error(refusal));
        }
    }
    each
}

/// The operation a held record is released into.
fn target(operation: engine::Operation) -> Option<engine::Target> {
    use engine::{Operation as From, Target as To};
    Some(match operation {
        From::Append {
            channel,
            record,
            max_bytes,
        } => To::Append {
            channel,
            record,
            max_bytes,
        },
        From::Set {
            channel,
            key,
            record,
        } => To::Set {
            channel,
            key,
            record,
        },
        From::Remove {
            channel,
            key,
            record,
        } => To::Remove {
            channel,
            key,
            record,
        },
        From::Enqueue {
            channel,
            record,
            max_bytes,
        } => To::Enqueue {
            channel,
            record,
            max_bytes,
        },
        _ => return None,
    })
}

fn durability(interval: bool) -> Durability {
    if interval {
        Durability::Interval
    } else {
        Durability::Sync
    }
}

fn id(channel: ChannelId) -> engine::ChannelId {
    engine::ChannelId(channel.0)
}

fn engine_kind(kind: ChannelKind) -> Kind {
    match kind {
        ChannelKind::Append => Kind::Sequence,
        ChannelKind::Latest => Kind::Map,
        ChannelKind::Queue => Kind::Work,
    }
}

fn engine_limit(limit: ReadLimit) -> engine::ReadLimit {
    engine::ReadLimit {
        records: limit.records,
        bytes: limit.bytes,
    }
}

fn records(read: engine::ReadRecords) -> Result<Records, ReadError> {
    let records = read
        .records
        .iter()
        .map(message::from_record)
        .collect::<Result<_, _>>()?;
    Ok(Records {
        records,
        next: read.next,
    })
}

fn store_error(error: CommitError) -> StoreError {
    match error {
        CommitError::ChannelFull {
            channel,
            bytes,
            max_bytes,
        } => StoreError::ChannelFull {
            channel: ChannelId(channel.0),
            bytes,
            max_bytes,
        },
        // Too much waiting is a lack of room as well: a later attempt may find some.
        CommitError::NoSpace | CommitError::LogFull { .. } | CommitError::Overloaded => {
            StoreError::ProviderFull
        }
        CommitError::TooLarge { bytes, max_bytes } => StoreError::TooLarge { bytes, max_bytes },
        CommitError::NoSuchItem { channel, offset } => StoreError::NoSuchJob {
            channel: ChannelId(channel.0),
            offset,
        },
        CommitError::NotHeld { .. } => StoreError::NotHeld,
        other @ (CommitError::UnknownChannel { .. }
        | CommitError::WrongKind { .. }
        | CommitError::FloorMoved { .. }
        | CommitError::AlreadyHeld { .. }
        | CommitError::PositionAhead { .. }
        | CommitError::BadPosition
        | CommitError::BadName
        | CommitError::Failed(_)) => StoreError::Failed(other.to_string()),
    }
}

fn read_error(error: engine::ReadError) -> ReadError {
    match error {
        engine::ReadError::BelowFloor { floor } => ReadError::BelowFloor { floor },
        other => ReadError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests;

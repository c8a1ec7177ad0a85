//! A store for tests: in memory, synchronous, and honest about the contract.
//!
//! Nothing happens by itself. [`ModelStore::commit`] stores what was submitted,
//! [`Store::run_completions`] commits and then tells; [`ModelStore::crash`] loses what was not
//! committed, and every completion not yet run. Cloning shares the store.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::{
    Batch, ChannelId, Completion, Counters, EachCompletion, Message, Operation, ReadError,
    ReadLimit, Receipt, Record, Records, Space, Store, StoreError, WorkItem,
};

type Outcome = (Completion, Result<Receipt, StoreError>);
type Refusal = Box<dyn FnMut(&Operation) -> Option<StoreError> + Send>;

/// A message with its topic and payload, and nothing else worth naming.
#[must_use]
pub fn message(topic: &str, payload: &str) -> Message {
    Message {
        id: super::MessageId([7; 16]),
        topic: Bytes::copy_from_slice(topic.as_bytes()),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        properties: Bytes::new(),
        user_property_bytes: 0,
        response_topic: None,
        correlation_data: None,
        expiry_seconds: None,
        received_at: None,
        publisher: Bytes::new(),
        retain: false,
        qos: 1,
    }
}

/// The model store.
#[derive(Clone, Default)]
pub struct ModelStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    durable: Contents,
    submitted: VecDeque<(Batch, Completion)>,
    outcomes: VecDeque<Outcome>,
    refusal: Option<Refusal>,
    unreadable: Option<String>,
    needs_room: bool,
    stored: Vec<Operation>,
}

#[derive(Clone, Default)]
struct Contents {
    channels: BTreeMap<ChannelId, Channel>,
    small: BTreeMap<(Space, Bytes), Bytes>,
    holds: BTreeMap<Bytes, Message>,
}

#[derive(Clone)]
struct Channel {
    next: u64,
    floor: u64,
    max_bytes: Option<u64>,
    entries: BTreeMap<u64, Entry>,
    /// Latest channels: where each topic's entry is.
    topics: HashMap<Bytes, u64>,
}

#[derive(Clone)]
struct Entry {
    message: Message,
    attempts: u32,
    attempted: Option<(u64, u64)>,
}

impl Default for Channel {
    fn default() -> Self {
        Channel {
            next: 1,
            floor: 1,
            max_bytes: None,
            entries: BTreeMap::new(),
            topics: HashMap::new(),
        }
    }
}

impl Channel {
    fn bytes(&self) -> u64 {
        self.entries
            .values()
            .map(|entry| entry.message.counted_size())
            .sum()
    }

    fn push(&mut self, id: ChannelId, message: Message) -> Result<u64, StoreError> {
        let bytes = self.bytes();
        if let Some(max_bytes) = self.max_bytes
            && bytes + message.counted_size() > max_bytes
        {
            return Err(StoreError::ChannelFull {
                channel: id,
                bytes,
                max_bytes,
            });
        }
        Ok(self.push_past_the_bound(message))
    }

    fn push_past_the_bound(&mut self, message: Message) -> u64 {
        let offset = self.next;
        self.next += 1;
        let entry = Entry {
            message,
            attempts: 0,
            attempted: None,
        };
        self.entries.insert(offset, entry);
        offset
    }

    fn read(&self, offset: u64, limit: ReadLimit) -> Records {
        let mut bytes = 0;
        let mut records = Vec::new();
        for (&offset, entry) in self.entries.range(offset..) {
            if records.len() >= limit.records.max(1) || (bytes >= limit.bytes && bytes > 0) {
                break;
            }
            bytes += entry.message.counted_size();
            records.push(Record {
                offset,
                message: entry.message.clone(),
            });
        }
        Records {
            records,
            next: self.next,
        }
    }
}

impl Contents {
    fn apply(&mut self, operation: Operation) -> Result<Option<u64>, StoreError> {
        match operation {
            Operation::Append { channel, message } | Operation::Enqueue { channel, message } => {
                self.channel(channel).push(channel, message).map(Some)
            }
            Operation::Trim { channel, floor } => {
                let channel = self.channel(channel);
                assert!(floor <= channel.next, "a floor above the next offset");
                channel.floor = channel.floor.max(floor);
                channel.entries = channel.entries.split_off(&floor);
                Ok(None)
            }
            Operation::Set { channel, message } => self.set(channel, message),
            Operation::Forget {
                channel,
                topic,
                offset,
            } => {
                let channel = self.channel(channel);
                if channel.topics.get(&topic) == Some(&offset) {
                    channel.topics.remove(&topic);
                    channel.entries.remove(&offset);
                }
                Ok(None)
            }
            Operation::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            } => {
                let entry = self.channel(channel).entries.get_mut(&offset);
                let entry = entry.ok_or(StoreError::NoSuchJob { channel, offset })?;
                entry.attempts = attempts;
                entry.attempted = Some((first, last));
                Ok(None)
            }
            Operation::Resolve { channel, offset } => {
                let removed = self.channel(channel).entries.remove(&offset);
                removed.ok_or(StoreError::NoSuchJob { channel, offset })?;
                Ok(None)
            }
            Operation::DeadLetter {
                channel,
                offset,
                target,
                message,
            } => {
                let removed = self.channel(channel).entries.remove(&offset);
                removed.ok_or(StoreError::NoSuchJob { channel, offset })?;
                Ok(Some(self.channel(target).push_past_the_bound(message)))
            }
            Operation::Hold { key, message } => {
                if self.holds.contains_key(&key) {
                    return Err(StoreError::Failed("held already".into()));
                }
                self.holds.insert(key, message);
                Ok(None)
            }
            Operation::Release { key, into } => {
                self.holds.remove(&key).ok_or(StoreError::NotHeld)?;
                self.apply(*into)
            }
            Operation::Drop { key } => {
                self.holds.remove(&key).ok_or(StoreError::NotHeld)?;
                Ok(None)
            }
            Operation::Put { space, key, value } => {
                self.small.insert((space, key), value);
                Ok(None)
            }
            Operation::Delete { space, key } => {
                self.small.remove(&(space, key));
                Ok(None)
            }
        }
    }

    fn set(&mut self, id: ChannelId, message: Message) -> Result<Option<u64>, StoreError> {
        let channel = self.channel(id);
        let topic = message.topic.clone();
        let old = channel.topics.get(&topic).copied();
        if message.payload.is_empty() {
            let has_value = old
                .and_then(|old| channel.entries.get(&old))
                .is_some_and(|entry| !entry.message.payload.is_empty());
            if !has_value {
                return Ok(None);
            }
        }
        if let Some(old) = old {
            channel.entries.remove(&old);
        }
        let offset = channel.push(id, message)?;
        channel.topics.insert(topic, offset);
        Ok(Some(offset))
    }

    fn channel(&mut self, id: ChannelId) -> &mut Channel {
        self.channels.entry(id).or_default()
    }
}

impl ModelStore {
    /// An empty store. Channels come into being as they are used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds a channel.
    pub fn set_max_bytes(&self, channel: ChannelId, max_bytes: u64) {
        self.lock().durable.channel(channel).max_bytes = Some(max_bytes);
    }

    /// From now on every operation is asked for first; a batch with one that is refused fails
    /// whole, with that error.
    pub fn refuse_when(
        &self,
        refusal: impl FnMut(&Operation) -> Option<StoreError> + Send + 'static,
    ) {
        self.lock().refusal = Some(Box::new(refusal));
    }

    /// Nothing is refused any more.
    pub fn refuse_nothing(&self) {
        self.lock().refusal = None;
    }

    /// Whether it says that it has no room.
    pub fn set_needs_room(&self, needs_room: bool) {
        self.lock().needs_room = needs_room;
    }

    /// Whether reads of jobs and records fail, with these words.
    pub fn set_unreadable(&self, why: Option<&str>) {
        self.lock().unreadable = why.map(str::to_owned);
    }

    /// Stores what was submitted; tells nobody yet.
    pub fn commit(&self) {
        let mut inner = self.lock();
        while let Some((batch, done)) = inner.submitted.pop_front() {
            let outcome = inner.store(batch);
            inner.outcomes.push_back((done, outcome));
        }
    }

    /// Stores the first so many batches of what was submitted; tells nobody yet.
    pub fn commit_first(&self, batches: usize) {
        let mut inner = self.lock();
        for _ in 0..batches {
            let Some((batch, done)) = inner.submitted.pop_front() else {
                return;
            };
            let outcome = inner.store(batch);
            inner.outcomes.push_back((done, outcome));
        }
    }

    /// Commits and tells until nothing is left to tell.
    pub fn settle(&self) {
        while self.run_completions() > 0 {}
    }

    /// The process dies: what was not committed is lost, and nobody is told anything more. Returns
    /// what the next start finds, as another store.
    #[must_use]
    pub fn crash(&self) -> ModelStore {
        let mut inner = self.lock();
        inner.submitted.clear();
        inner.outcomes.clear();
        let durable = inner.durable.clone();
        ModelStore {
            inner: Arc::new(Mutex::new(Inner {
                durable,
                ..Inner::default()
            })),
        }
    }

    /// Every operation stored so far, in order.
    #[must_use]
    pub fn stored(&self) -> Vec<Operation> {
        self.lock().stored.clone()
    }

    /// Batches submitted and not committed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.lock().submitted.len()
    }

    /// Submits one operation and settles: for setting a scene.
    ///
    /// # Panics
    /// If the store refuses it.
    pub fn put(&self, operation: Operation) -> Option<u64> {
        let offset = Arc::new(Mutex::new(None));
        let told = Arc::clone(&offset);
        let done = Box::new(move |outcome: Result<Receipt, StoreError>| {
            *told.lock().unwrap() = outcome.unwrap().offsets[0];
        });
        self.submit(operation.into(), done);
        self.settle();
        *offset.lock().unwrap()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    fn store(&mut self, batch: Batch) -> Result<Receipt, StoreError> {
        let mut changed = self.durable.clone();
        let mut receipt = Receipt::default();
        for operation in &batch.operations {
            if let Some(why) = self.refusal.as_mut().and_then(|refuse| refuse(operation)) {
                return Err(why);
            }
            receipt.offsets.push(changed.apply(operation.clone())?);
        }
        self.durable = changed;
        self.stored.extend(batch.operations);
        Ok(receipt)
    }

    fn readable(&self) -> Result<(), ReadError> {
        match &self.unreadable {
            Some(why) => Err(ReadError::Failed(why.clone())),
            None => Ok(()),
        }
    }
}

impl Store for ModelStore {
    fn submit(&self, batch: Batch, done: Completion) {
        self.lock().submitted.push_back((batch, done));
    }

    fn needs_room(&self) -> bool {
        self.lock().needs_room
    }

    fn room_for(&self, id: ChannelId, message: &Message) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let channel = inner.durable.channel(id);
        let bytes = channel.bytes();
        match channel.max_bytes {
            Some(max_bytes) if bytes + message.counted_size() > max_bytes => {
                Err(StoreError::ChannelFull {
                    channel: id,
                    bytes,
                    max_bytes,
                })
            }
            _ => Ok(()),
        }
    }

    fn submit_each(&self, operations: Vec<Operation>, done: EachCompletion) {
        let count = operations.len();
        let told = Arc::new(Mutex::new((Some(done), Vec::with_capacity(count))));
        for operation in operations {
            let told = told.clone();
            let one = move |outcome: Result<Receipt, StoreError>| {
                let mut told = told.lock().unwrap();
                let offset = |receipt: Receipt| receipt.offsets.first().copied().flatten();
                told.1.push(outcome.map(offset));
                if told.1.len() == count {
                    let (done, each) = (told.0.take(), std::mem::take(&mut told.1));
                    drop(told);
                    done.unwrap()(each);
                }
            };
            self.submit(operation.into(), Box::new(one));
        }
    }

    fn run_completions(&self) -> usize {
        self.commit();
        let outcomes = std::mem::take(&mut self.lock().outcomes);
        let count = outcomes.len();
        for (done, outcome) in outcomes {
            done(outcome);
        }
        count
    }

    fn counters(&self, channel: ChannelId) -> Counters {
        let inner = self.lock();
        let Some(channel) = inner.durable.channels.get(&channel) else {
            return Counters {
                next: 1,
                floor: 1,
                ..Counters::default()
            };
        };
        Counters {
            next: channel.next,
            floor: channel.floor,
            count: channel.entries.len() as u64,
            bytes: channel.bytes(),
        }
    }

    fn read_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError> {
        let inner = self.lock();
        inner.readable()?;
        let empty = Channel::default();
        let channel = inner.durable.channels.get(&channel).unwrap_or(&empty);
        if offset < channel.floor {
            return Err(ReadError::BelowFloor {
                floor: channel.floor,
            });
        }
        Ok(channel.read(offset, limit))
    }

    fn at_or_after(&self, channel: ChannelId, unix_ms: u64) -> Result<u64, ReadError> {
        let inner = self.lock();
        inner.readable()?;
        let Some(channel) = inner.durable.channels.get(&channel) else {
            return Ok(1);
        };
        let late = |entry: &Entry| entry.message.received_at.is_some_and(|at| at >= unix_ms);
        let mut found = channel.entries.iter().filter(|(_, entry)| late(entry));
        Ok(found.next().map_or(channel.next, |(&offset, _)| offset))
    }

    fn changes_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError> {
        let inner = self.lock();
        inner.readable()?;
        let empty = Channel::default();
        let channel = inner.durable.channels.get(&channel).unwrap_or(&empty);
        Ok(channel.read(offset, limit))
    }

    fn current(&self, channel: ChannelId, topic: &[u8]) -> Result<Option<Record>, ReadError> {
        let inner = self.lock();
        inner.readable()?;
        let found = inner.durable.channels.get(&channel).and_then(|channel| {
            let offset = *channel.topics.get(topic)?;
            let message = channel.entries.get(&offset)?.message.clone();
            (!message.payload.is_empty()).then_some(Record { offset, message })
        });
        Ok(found)
    }

    fn unresolved(&self, channel: ChannelId) -> Vec<WorkItem> {
        let inner = self.lock();
        let Some(channel) = inner.durable.channels.get(&channel) else {
            return Vec::new();
        };
        let items = channel.entries.iter().map(|(&offset, entry)| WorkItem {
            offset,
            attempts: entry.attempts,
            attempted: entry.attempted,
            received_at: entry.message.received_at,
            size: entry.message.counted_size(),
        });
        items.collect()
    }

    fn job(&self, channel: ChannelId, offset: u64) -> Result<Option<Record>, ReadError> {
        let inner = self.lock();
        inner.readable()?;
        let channel = inner.durable.channels.get(&channel);
        let entry = channel.and_then(|channel| channel.entries.get(&offset));
        Ok(entry.map(|entry| Record {
            offset,
            message: entry.message.clone(),
        }))
    }

    fn held(&self, key: &[u8]) -> Result<Option<Message>, ReadError> {
        let inner = self.lock();
        inner.readable()?;
        Ok(inner.durable.holds.get(key).cloned())
    }

    fn holds(&self, after: Option<&[u8]>, most: usize) -> Vec<(Bytes, Option<u64>)> {
        let inner = self.lock();
        let holds = inner.durable.holds.iter();
        holds
            .filter(|(key, _)| after.is_none_or(|after| &key[..] > after))
            .take(most)
            .map(|(key, message)| (key.clone(), message.received_at))
            .collect()
    }

    fn get(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        let key = (space, Bytes::copy_from_slice(key));
        self.lock().durable.small.get(&key).cloned()
    }

    fn scan(&self, space: Space, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
        let inner = self.lock();
        let all = inner.durable.small.iter();
        all.filter(|((s, key), _)| *s == space && key.starts_with(prefix))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: ChannelId = ChannelId(1);
    const LATEST: ChannelId = ChannelId(2);
    const LIMIT: ReadLimit = ReadLimit {
        records: 10,
        bytes: 1 << 20,
    };

    #[test]
    fn a_batch_is_stored_whole_or_not_at_all() {
        let store = ModelStore::new();
        let batch = Batch {
            operations: vec![
                Operation::Enqueue {
                    channel: QUEUE,
                    message: message("q/a", "1"),
                },
                Operation::Resolve {
                    channel: QUEUE,
                    offset: 99,
                },
            ],
        };
        store.submit(batch, Box::new(|outcome| assert!(outcome.is_err())));
        assert_eq!(store.run_completions(), 1);
        assert_eq!(store.counters(QUEUE).next, 1);
    }

    #[test]
    fn a_crash_loses_what_was_not_committed() {
        let store = ModelStore::new();
        let enqueue = |payload| Operation::Enqueue {
            channel: QUEUE,
            message: message("q/a", payload),
        };
        store.put(enqueue("1"));
        store.submit(
            enqueue("2").into(),
            Box::new(|_| panic!("told after a crash")),
        );
        let after = store.crash();
        store.settle();
        after.settle();
        assert_eq!(after.unresolved(QUEUE).len(), 1);
    }

    #[test]
    fn deleting_nothing_stores_nothing() {
        let store = ModelStore::new();
        let set = |payload| Operation::Set {
            channel: LATEST,
            message: message("l/a", payload),
        };
        assert_eq!(store.put(set("")), None);
        assert_eq!(store.put(set("1")), Some(1));
        assert_eq!(store.put(set("")), Some(2));
        assert_eq!(store.put(set("")), None);
        let read = store.changes_from(LATEST, 0, LIMIT).unwrap();
        let offsets: Vec<u64> = read.records.iter().map(|r| r.offset).collect();
        assert_eq!(offsets, [2]);
        assert_eq!(store.current(LATEST, b"l/a").unwrap(), None);
    }
}

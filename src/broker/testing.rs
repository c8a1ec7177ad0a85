//! A broker for the front end's tests: over the model store, which commits as soon as it is asked.

use std::sync::Arc;

use bytes::Bytes;

use super::queue::{Clock, QueueSettings};
use super::settings::Settings;
use super::topic::{ChannelFilter, RouteSource};
use super::{Broker, BrokerSetup, ChannelSetup, QueueParts, RetainedSetup, Start, Wake};
use crate::storage::testing::ModelStore;
use crate::storage::{
    Batch, ChannelId, ChannelKind, Completion, Counters, EachCompletion, Message, Operation,
    ReadError, ReadLimit, Record, Records, Space, Store, WorkItem,
};

/// The model store with a wake-up, as the providers have one.
struct Waking {
    store: ModelStore,
    wake: Wake,
}

impl Store for Waking {
    fn submit(&self, batch: Batch, done: Completion) {
        self.store.submit(batch, done);
        (self.wake)();
    }

    fn submit_each(&self, operations: Vec<Operation>, done: EachCompletion) {
        self.store.submit_each(operations, done);
        (self.wake)();
    }

    fn run_completions(&self) -> usize {
        self.store.run_completions()
    }

    fn counters(&self, channel: ChannelId) -> Counters {
        self.store.counters(channel)
    }

    fn read_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError> {
        self.store.read_from(channel, offset, limit)
    }

    fn at_or_after(&self, channel: ChannelId, unix_ms: u64) -> Result<u64, ReadError> {
        self.store.at_or_after(channel, unix_ms)
    }

    fn changes_from(
        &self,
        channel: ChannelId,
        offset: u64,
        limit: ReadLimit,
    ) -> Result<Records, ReadError> {
        self.store.changes_from(channel, offset, limit)
    }

    fn current(&self, channel: ChannelId, topic: &[u8]) -> Result<Option<Record>, ReadError> {
        self.store.current(channel, topic)
    }

    fn unresolved(&self, channel: ChannelId) -> Vec<WorkItem> {
        self.store.unresolved(channel)
    }

    fn job(&self, channel: ChannelId, offset: u64) -> Result<Option<Record>, ReadError> {
        self.store.job(channel, offset)
    }

    fn held(&self, key: &[u8]) -> Result<Option<Message>, ReadError> {
        self.store.held(key)
    }

    fn holds(&self, after: Option<&[u8]>, most: usize) -> Vec<(Bytes, Option<u64>)> {
        self.store.holds(after, most)
    }

    fn get(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        self.store.get(space, key)
    }

    fn scan(&self, space: Space, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
        self.store.scan(space, prefix)
    }
}

/// A broker with `events/#` append, `state/#` latest and `jobs/#` queue.
pub fn open(settings: Settings, clock: Clock, wake: Wake, timer: Wake) -> Arc<Broker> {
    let store: Arc<dyn Store> = Arc::new(Waking {
        store: ModelStore::new(),
        wake,
    });
    let channel = |name: &str, kind, id, queue| ChannelSetup {
        source: RouteSource {
            name: name.into(),
            kind,
            filter: ChannelFilter::parse(&format!("{name}/#")).unwrap(),
        },
        id: ChannelId(id),
        store: store.clone(),
        start: Start::Floor,
        retention_period: None,
        retention_bytes: None,
        deletion_retention_period: None,
        queue,
    };
    let jobs = QueueParts {
        settings: QueueSettings::default(),
        dead_letters: ChannelId(4),
        retention_period: None,
        retention_bytes: None,
    };
    let channels = vec![
        channel("events", ChannelKind::Append, 1, None),
        channel("state", ChannelKind::Latest, 2, None),
        channel("jobs", ChannelKind::Queue, 3, Some(jobs)),
    ];
    let now = clock();
    Broker::open(
        BrokerSetup {
            settings,
            channels,
            session_store: store.clone(),
            broadcast_log: ChannelId(100),
            retained: RetainedSetup {
                store,
                channel: ChannelId(101),
                retention_period: None,
            },
            clock,
            timer,
        },
        now,
    )
    .unwrap()
}

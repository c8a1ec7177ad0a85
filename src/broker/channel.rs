//! A channel as the broker runs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::storage::{ChannelId, ChannelKind, Store};

use super::lock;
use super::queue::{QueueChannel, QueueSettings};
use super::session::Session;
use super::topic::RouteSource;

/// Where a consumer without a position begins on an append channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record still kept.
    #[default]
    Floor,
    /// At what comes next.
    Tail,
}

/// A configured channel, with everything the broker needs to run it.
#[derive(Clone)]
pub struct ChannelSetup {
    /// Its name, type and filter.
    pub source: RouteSource,
    /// Its id in its provider.
    pub id: ChannelId,
    /// Its provider.
    pub store: Arc<dyn Store>,
    /// Append: where a consumer without a position begins.
    pub start: Start,
    /// Append and latest: how long a record is kept.
    pub retention_period: Option<Duration>,
    /// Append: how many counted bytes are kept.
    pub retention_bytes: Option<u64>,
    /// Latest: how long a deletion is kept.
    pub deletion_retention_period: Option<Duration>,
    /// A queue's own settings and its dead-letter channel.
    pub queue: Option<QueueParts>,
}

/// What a queue has besides.
#[derive(Clone, Debug)]
pub struct QueueParts {
    /// What the operator decided about delivery.
    pub settings: QueueSettings,
    /// The id of its dead-letter channel, in the same provider.
    pub dead_letters: ChannelId,
    /// How long a dead letter is kept, from when it became one.
    pub retention_period: Option<Duration>,
    /// How many counted bytes of dead letters are kept.
    pub retention_bytes: Option<u64>,
}

/// A channel at work.
pub(crate) struct Channel {
    pub name: String,
    pub kind: ChannelKind,
    pub id: ChannelId,
    pub store: Arc<dyn Store>,
    pub start: Start,
    pub retention_period: Option<Duration>,
    pub retention_bytes: Option<u64>,
    pub deletion_retention_period: Option<Duration>,
    pub is_dead_letters: bool,
    pub queue: Option<Arc<QueueChannel>>,
    /// Sessions that have a reader on it, by key.
    readers: Mutex<BTreeMap<u64, Arc<Session>>>,
    /// Every record below this has woken the readers whose filters match it.
    pub woken_to: Mutex<u64>,
    /// Next offset and floor at the last sweep.
    pub swept: Mutex<(u64, u64)>,
}

impl Channel {
    pub fn new(setup: &ChannelSetup, queue: Option<Arc<QueueChannel>>) -> Self {
        Channel {
            name: setup.source.name.clone(),
            kind: setup.source.kind,
            id: setup.id,
            store: setup.store.clone(),
            start: setup.start,
            retention_period: setup.retention_period,
            retention_bytes: setup.retention_bytes,
            deletion_retention_period: setup.deletion_retention_period,
            is_dead_letters: false,
            queue,
            readers: Mutex::default(),
            woken_to: Mutex::default(),
            swept: Mutex::default(),
        }
    }

    /// The dead-letter channel of a queue.
    pub fn dead_letters(name: String, queue: &ChannelSetup, parts: &QueueParts) -> Self {
        Channel {
            name,
            kind: ChannelKind::Append,
            id: parts.dead_letters,
            store: queue.store.clone(),
            start: Start::Floor,
            retention_period: parts.retention_period,
            retention_bytes: parts.retention_bytes,
            deletion_retention_period: None,
            is_dead_letters: true,
            queue: None,
            readers: Mutex::default(),
            woken_to: Mutex::default(),
            swept: Mutex::default(),
        }
    }

    pub fn add_reader(&self, session: &Arc<Session>) {
        lock(&self.readers).insert(session.key, session.clone());
    }

    pub fn remove_reader(&self, session: &Session) {
        lock(&self.readers).remove(&session.key);
    }

    pub fn has_readers(&self) -> bool {
        !lock(&self.readers).is_empty()
    }

    pub fn readers(&self) -> Vec<Arc<Session>> {
        lock(&self.readers).values().cloned().collect()
    }
}

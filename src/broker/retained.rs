//! Retained broadcast values: one store, one value per topic.
//!
//! | comes | becomes |
//! |---|---|
//! | a broadcast publish with RETAIN | the topic's value; it goes out live as well |
//! | the same with an empty payload | no value |
//! | a SUBSCRIBE | a pass of the values that match, in `session/retained_pass` |
//! | the publisher's own expiry, or `retention_period` | the value goes |
//! | a channel that claims the topic, at a start | the value moves into a latest channel, and is dropped for any other |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::storage::{
    Batch, ChannelId, ChannelKind, Counters, Message, Operation, ReadError, ReadLimit, Receipt,
    Record, Store,
};

use super::consumer::select;
use super::counters::bump;
use super::publish::text;
use super::session::Subscription;
use super::session::broadcast::BroadcastDelivery;
use super::session::retained_pass::{Asked, RetainedAnswer, RetainedRead};
use super::time::Now;
use super::topic::ChannelIndex;
use super::{Broker, lock};

/// How often values are looked through for what is to go.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Values one step of that looks at.
const SWEEP_STEP: ReadLimit = ReadLimit {
    records: 256,
    bytes: 1024 * 1024,
};

/// Steps one sweep makes; the next one goes on from there.
const SWEEP_STEPS: usize = 64;

/// Where retained values are kept.
#[derive(Clone)]
pub struct RetainedSetup {
    /// The provider.
    pub store: Arc<dyn Store>,
    /// A latest channel's kind of channel there.
    pub channel: ChannelId,
    /// How long a value that nobody sets again is kept; `None`: for ever.
    pub retention_period: Option<Duration>,
}

/// The retained values.
pub(crate) struct Retained {
    pub store: Arc<dyn Store>,
    pub channel: ChannelId,
    retention_period: Option<Duration>,
    /// When they are next looked through.
    next_sweep: std::sync::Mutex<Duration>,
    /// Where that goes on.
    swept_to: AtomicU64,
    /// Values that a start moves, on their way to the stores.
    moving: Arc<AtomicUsize>,
}

impl Retained {
    pub fn new(setup: RetainedSetup) -> Self {
        Retained {
            store: setup.store,
            channel: setup.channel,
            retention_period: setup.retention_period,
            next_sweep: std::sync::Mutex::default(),
            swept_to: AtomicU64::new(0),
            moving: Arc::default(),
        }
    }

    /// Keeps a value; an empty payload deletes the topic's (MQTT-3.3.1-6).
    pub fn put(&self, message: &Message) -> Operation {
        Operation::Set {
            channel: self.channel,
            message: message.clone(),
        }
    }

    /// A deletion that was stored need not be remembered: nobody is told of it later.
    pub fn forget_deletion(&self, message: &Message, receipt: &Receipt) {
        if message.payload.is_empty()
            && let Some(offset) = receipt.offsets.first().copied().flatten()
        {
            let forget = self.forget(message, offset);
            self.store.submit(
                forget.into(),
                // What stays is found by the next sweep.
                Box::new(|_| {}),
            );
        }
    }

    fn forget(&self, message: &Message, offset: u64) -> Operation {
        Operation::Forget {
            channel: self.channel,
            topic: message.topic.clone(),
            offset,
        }
    }

    pub fn counters(&self) -> Counters {
        self.store.counters(self.channel)
    }

    /// Whether a read would be answered without a disk.
    pub fn is_in_memory(&self, read: &RetainedRead) -> bool {
        match &read.what {
            Asked::Topics(_) => false,
            Asked::From(offset, limit) => self.store.is_in_memory(self.channel, *offset, *limit),
        }
    }

    /// Reads what a pass asks for. May touch a disk.
    pub fn read(&self, read: &RetainedRead) -> Result<RetainedAnswer, ReadError> {
        match &read.what {
            Asked::Topics(topics) => {
                let mut found = Vec::with_capacity(topics.len());
                for (topic, end) in topics {
                    let record = self.store.current(self.channel, topic.as_bytes())?;
                    found.push(record.filter(|record| record.offset < *end));
                }
                Ok(RetainedAnswer::Topics(found))
            }
            Asked::From(offset, limit) => {
                let read = self.store.changes_from(self.channel, *offset, *limit)?;
                Ok(RetainedAnswer::From(read.records))
            }
        }
    }

    /// Whether the time of a value is over, or it is none: it is sent to nobody, whenever it goes.
    pub fn is_over(&self, record: &Record, now: Now) -> bool {
        let message = &record.message;
        let Some(received_at) = message.received_at else {
            return message.payload.is_empty();
        };
        let age = Duration::from_millis(now.unix_ms.saturating_sub(received_at));
        let expiry = message
            .expiry_seconds
            .map(|s| Duration::from_secs(s.into()));
        let shortest = [expiry, self.retention_period].into_iter().flatten().min();
        message.payload.is_empty() || shortest.is_some_and(|period| age >= period)
    }
}

/// A retained value for one subscription of a client: with RETAIN (MQTT-3.3.1-8), unless the client
/// published it and asked not to be sent its own.
pub(super) fn retained_delivery(
    record: &Record,
    subscription: &Subscription,
    client: &[u8],
    now: Now,
) -> Option<BroadcastDelivery> {
    if !subscription.takes(&record.message.topic) {
        return None;
    }
    let selection = select(record, client, [subscription.options(None)])?;
    let received_at = record.message.received_at.unwrap_or(now.unix_ms);
    Some(BroadcastDelivery {
        message: Arc::new(record.message.clone()),
        logged: None,
        group: None,
        record: None,
        published: now.since_start,
        aged: now.unix_ms.saturating_sub(received_at) / 1000,
        qos: selection.qos,
        retain: true,
        identifiers: selection.identifiers,
    })
}

impl Broker {
    /// Lets go of values that are over.
    pub(super) fn sweep_retained(self: &Arc<Self>, now: Now) {
        {
            let mut next = lock(&self.retained.next_sweep);
            if *next > now.since_start {
                return;
            }
            *next = now.since_start + SWEEP_INTERVAL;
        }
        if self.retained.counters().count == 0 {
            return;
        }
        for _ in 0..SWEEP_STEPS {
            let at = self.retained.swept_to.load(Relaxed);
            let store = &self.retained.store;
            let Ok(read) = store.changes_from(self.retained.channel, at, SWEEP_STEP) else {
                return;
            };
            let Some(last) = read.records.last() else {
                self.retained.swept_to.store(0, Relaxed);
                return;
            };
            self.retained.swept_to.store(last.offset + 1, Relaxed);
            let over = read
                .records
                .iter()
                .filter(|record| self.retained.is_over(record, now));
            let forget = |record: &Record| self.retained.forget(&record.message, record.offset);
            let operations: Vec<Operation> = over.map(forget).collect();
            if operations.is_empty() {
                continue;
            }
            self.counters
                .retained_expired
                .fetch_add(operations.len() as u64, Relaxed);
            store.submit(
                Batch { operations },
                Box::new(|outcome| {
                    if let Err(error) = outcome {
                        tracing::error!(%error, "retained values that are over could not be removed");
                    }
                }),
            );
        }
    }

    /// Values whose topic a channel claims by now are its business: a latest channel takes them over,
    /// unless it knows better; the others have no place for them.
    pub(super) fn rehome_retained(&self) {
        let (mut moved, mut dropped, mut at) = (0u64, 0u64, 0);
        loop {
            let store = &self.retained.store;
            let read = match store.changes_from(self.retained.channel, at, SWEEP_STEP) {
                Ok(read) => read,
                Err(why) => {
                    tracing::error!(%why, "the retained values could not be gone through");
                    break;
                }
            };
            let Some(last) = read.records.last() else {
                break;
            };
            at = last.offset + 1;
            for record in &read.records {
                if let Some(route) = self.routes.route(text(&record.message.topic)) {
                    if self.rehome(record, route.channel) {
                        moved += 1;
                    } else {
                        dropped += 1;
                        bump(&self.counters.retained_dropped);
                    }
                }
            }
        }
        if moved + dropped > 0 {
            tracing::warn!(
                moved,
                dropped,
                "retained values whose topics a channel has now: a latest channel took them over, others have no place for them"
            );
        }
    }

    /// Returns whether a channel took the value over.
    fn rehome(&self, record: &Record, index: ChannelIndex) -> bool {
        let channel = self.channel(index);
        let forget = self.retained.forget(&record.message, record.offset);
        let is_value = !record.message.payload.is_empty();
        let known = match channel.kind {
            ChannelKind::Latest if is_value => {
                channel.store.current(channel.id, &record.message.topic)
            }
            _ => {
                self.submit_rehoming(forget.into());
                return false;
            }
        };
        let newer_there = match known {
            Ok(known) => {
                known.is_some_and(|known| known.message.received_at >= record.message.received_at)
            }
            Err(why) => {
                tracing::error!(channel = %channel.name, %why, "a retained value stays where it is");
                return false;
            }
        };
        if newer_there {
            self.submit_rehoming(forget.into());
            return false;
        }
        let set = Operation::Set {
            channel: channel.id,
            message: record.message.clone().detached(),
        };
        if Arc::ptr_eq(&channel.store, &self.retained.store) {
            let operations = vec![set, forget];
            self.submit_rehoming(Batch { operations });
            return true;
        }
        let retained = self.retained.store.clone();
        let moving = self.retained.moving.clone();
        moving.fetch_add(1, Relaxed);
        channel.store.submit(
            set.into(),
            Box::new(move |stored| match stored {
                // Taken over twice is taken over once.
                Ok(_) => retained.submit(
                    forget.into(),
                    Box::new(move |_| {
                        moving.fetch_sub(1, Relaxed);
                    }),
                ),
                Err(error) => {
                    moving.fetch_sub(1, Relaxed);
                    tracing::error!(%error, "a retained value could not be moved and stays where it is");
                }
            }),
        );
        true
    }

    /// Whether values are still being moved, as a start does: nobody is served before it is done.
    pub fn is_settling(&self) -> bool {
        self.retained.moving.load(Relaxed) > 0
    }

    fn submit_rehoming(&self, batch: Batch) {
        let moving = self.retained.moving.clone();
        moving.fetch_add(1, Relaxed);
        self.retained.store.submit(
            batch,
            Box::new(move |outcome| {
                moving.fetch_sub(1, Relaxed);
                if let Err(error) = outcome {
                    tracing::error!(%error, "a retained value could not be moved and stays where it is");
                }
            }),
        );
    }
}

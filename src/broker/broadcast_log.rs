//! The broadcast log: what sessions that outlive their connection are owed of broadcast, kept once.
//!
//! A message lies in it under an offset from the publish on until nobody owes it, whatever the order
//! in which it is delivered to whom. Each session that owes it holds a share of the entry; the last
//! one to let go of its share marks it done, and what is done leaves the log with the next sweep. A
//! crash before that finds it at the next start, where no session owes it, and lets it go then.

use std::sync::{Arc, Mutex};

use crate::storage::{ChannelId, Operation, Store};

use super::lock;

/// Most entries that leave the log in one hand-over.
const RESOLVE_STEP: usize = 4096;

/// The log, in the provider of the sessions.
pub(crate) struct BroadcastLog {
    pub store: Arc<dyn Store>,
    pub channel: ChannelId,
    done: Arc<Mutex<Vec<u64>>>,
}

/// A share of one entry.
#[derive(Debug)]
pub(crate) struct Logged {
    pub offset: u64,
    done: Arc<Mutex<Vec<u64>>>,
}

impl Drop for Logged {
    fn drop(&mut self) {
        lock(&self.done).push(self.offset);
    }
}

impl BroadcastLog {
    pub fn new(store: Arc<dyn Store>, channel: ChannelId) -> Self {
        BroadcastLog {
            store,
            channel,
            done: Arc::default(),
        }
    }

    /// The first share of an entry.
    pub fn share(&self, offset: u64) -> Arc<Logged> {
        Arc::new(Logged {
            offset,
            done: self.done.clone(),
        })
    }

    /// The offset the next message will take.
    pub fn next(&self) -> u64 {
        self.store.counters(self.channel).next
    }

    /// Lets go of what nobody owes any more.
    pub fn resolve_done(&self) {
        let done = std::mem::take(&mut *lock(&self.done));
        for step in done.chunks(RESOLVE_STEP) {
            let resolve = |offset: &u64| Operation::Resolve {
                channel: self.channel,
                offset: *offset,
            };
            self.store.submit_each(
                step.iter().map(resolve).collect(),
                Box::new(|outcomes| {
                    // What stays is let go of by the next start.
                    if let Some(error) = outcomes.into_iter().find_map(Result::err) {
                        tracing::warn!(%error, "a delivered message stays in the broadcast log");
                    }
                }),
            );
        }
    }
}

//! The broadcast log: what sessions that outlive their connection are owed of broadcast, kept once.
//!
//! A message lies in it under an offset from the publish on until nobody owes it, whatever the order
//! in which it is delivered to whom. Each session that owes it holds a share of the entry; the last
//! one to let go of its share marks it done, and what is done leaves the log with the next sweep. A
//! crash before that finds it at the next start, where no session owes it, and lets it go then.
//!
//! Where the provider has no room it gives way, oldest first, and for as long as that lasts: a channel's
//! records are worth more than what a client that is away would have been sent. What is on the wire
//! is never taken back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::storage::{ChannelId, Operation, Store};

use super::{Broker, lock};

/// One sweep gives up one in so many entries, so that what room is needed costs no more than it has to.
const GIVE_WAY: usize = 4;

/// Most entries that leave the log in one hand-over.
const RESOLVE_STEP: usize = 4096;

/// The log, in the provider of the sessions.
pub(crate) struct BroadcastLog {
    pub store: Arc<dyn Store>,
    pub channel: ChannelId,
    done: Arc<Mutex<Vec<u64>>>,
    /// The store had no room at the last sweep, or has refused something since.
    pressed: AtomicBool,
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
            pressed: AtomicBool::new(false),
        }
    }

    /// The first share of an entry.
    pub fn share(&self, offset: u64) -> Arc<Logged> {
        Arc::new(Logged {
            offset,
            done: self.done.clone(),
        })
    }

    /// The store refused something for want of room.
    pub fn press(&self) {
        self.pressed.store(true, Relaxed);
    }

    /// Up to where the log is to give way now, if it is. Tidying is given from one sweep to the next to
    /// find room without it.
    fn gives_way_to(&self) -> Option<u64> {
        let needs_room = self.store.needs_room();
        let was_pressed = self.pressed.swap(needs_room, Relaxed);
        if !(needs_room && was_pressed) {
            return None;
        }
        let entries = self.store.unresolved(self.channel);
        let step = entries.len().div_ceil(GIVE_WAY);
        let last = entries.get(step.checked_sub(1)?)?;
        Some(last.offset + 1)
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

impl Broker {
    /// Gives up the oldest of what is owed, where the store has no room for anything more.
    pub(super) fn give_way(&self) {
        let Some(offset) = self.log.gives_way_to() else {
            return;
        };
        let mut given_up = 0;
        let sessions = lock(&self.registry).sessions();
        for session in sessions {
            given_up += session.lock().broadcast.give_up_below(offset);
        }
        given_up += self.give_up_in_groups(offset);
        if given_up > 0 {
            tracing::warn!(
                given_up,
                "the provider of the sessions has no room: the oldest of what is owed of broadcast is given up"
            );
        }
        self.counters
            .broadcast_given_way
            .fetch_add(given_up as u64, Relaxed);
    }
}

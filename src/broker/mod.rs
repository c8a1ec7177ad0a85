//! The broker: synchronous state machines over a storage contract.
//!
//! Nothing here reads a clock, opens a socket or touches a file: `now` and a
//! [`Store`] are handed in.
//!
//! One publish, in the order of the files: `connection` takes it, `publish` judges and routes it,
//! a [`Store`] keeps it, `wake` wakes who reads the channel, `deliver` hands it to each reader's
//! writer. A broadcast message goes through `fanout` instead of a store.
//!
//! Locks, and what may be taken while one is held: a queue's, then a session's, then the
//! subscription index, a channel's list of readers or one of the broker's small lists. None is
//! held across a store read, and none is held by anything that waits.

mod acknowledge;
mod broadcast_log;
mod burst;
mod channel;
mod connect;
mod connection;
pub mod consumer;
pub mod counters;
mod deliver;
pub mod delivery;
mod exactly_once;
mod fanout;
mod labels;
mod lifecycle;
mod open;
pub mod packet;
mod publish;
pub mod queue;
pub mod reason;
mod request;
mod restore;
mod retained;
mod session;
pub mod settings;
mod shape;
mod share;
mod subscribe;
mod sweep;
pub mod time;
pub mod topic;
mod turns;
mod unsubscribe;
mod wake;
mod will;
mod worker;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::storage::Store;

pub use burst::Burst;
pub use channel::{ChannelSetup, QueueParts, Start};
pub use connect::{Claim, Wakes};
pub use connection::{Connection, Flow, Taken};
pub use deliver::Reads;
pub use open::{BrokerSetup, OpenError};
pub use retained::RetainedSetup;

use broadcast_log::BroadcastLog;
use channel::Channel;
use connect::Registry;
use counters::Counters;
use fanout::Subscriber;
use queue::Clock;
use retained::Retained;
use settings::Settings;
use share::Groups;
use sweep::Schedule;
use topic::{ChannelIndex, Routes, SubscriptionTrie};
use wake::Committed;

/// A wake-up: may be called from any thread, often, and never blocks.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The broker.
pub struct Broker {
    pub(crate) settings: Settings,
    pub(crate) routes: Routes,
    /// By [`ChannelIndex`].
    channels: Vec<Channel>,
    /// Every store a completion may come from, each once.
    stores: Vec<Arc<dyn Store>>,
    /// Where sessions and positions are kept.
    pub(crate) session_store: Arc<dyn Store>,
    /// What sessions that outlive their connection are owed of broadcast.
    pub(crate) log: BroadcastLog,
    pub(crate) retained: Retained,
    pub(crate) groups: Groups,
    pub(crate) counters: Counters,
    pub(crate) registry: Mutex<Registry>,
    subscriptions: RwLock<SubscriptionTrie<u64, Subscriber>>,
    /// What the topics of a filter are divided by, and whether different numbers were warned of.
    partitions: Mutex<BTreeMap<String, (u32, bool)>>,
    /// What the present round of completions brought.
    committed: Mutex<Vec<Committed>>,
    pub(crate) schedule: Schedule,
    /// A graceful stop has begun.
    stopping: AtomicBool,
    clock: Clock,
}

impl Broker {
    /// A channel by its index. Indexes only ever come from the routes the channels were built of.
    pub(crate) fn channel(&self, index: ChannelIndex) -> &Channel {
        &self.channels[index.0]
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The present moment, for what happens inside a completion.
    pub(crate) fn now(&self) -> time::Now {
        (self.clock)()
    }
}

/// Takes a lock. What a panicking thread left behind it is still whole: no critical section here
/// leaves its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

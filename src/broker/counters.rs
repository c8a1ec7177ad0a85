//! What the broker counts: every refusal and every drop a client could notice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::reason::Reason;

/// Packet kinds that are answered with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refused {
    /// A CONNECT.
    Connect,
    /// A PUBLISH, answered, closed upon or dropped.
    Publish,
    /// One filter of a SUBSCRIBE.
    Subscribe,
    /// A connection ended by the broker.
    Disconnect,
}

/// Totals since start. Each is bumped where the thing happens and only ever read elsewhere.
#[derive(Debug, Default)]
pub struct Counters {
    /// Publishes taken from clients, refused ones included.
    pub publishes_received: AtomicU64,
    /// Publishes written to clients.
    pub publishes_sent: AtomicU64,
    /// Broadcast QoS 0 messages a full output queue did not take.
    pub broadcast_dropped_queue_full: AtomicU64,
    /// Broadcast QoS 1 messages given up, oldest first, for newer ones.
    pub broadcast_given_up: AtomicU64,
    /// Broadcast messages owed to sessions and groups, given up because the provider had no room.
    pub broadcast_given_way: AtomicU64,
    /// Broadcast messages larger than the subscriber's Maximum Packet Size.
    pub broadcast_dropped_too_large: AtomicU64,
    /// Broadcast messages whose Message Expiry ran out before they were sent.
    pub broadcast_expired: AtomicU64,
    /// Messages of shared groups that no member could take and none was to be kept for.
    pub shared_dropped: AtomicU64,
    /// Messages held for shared groups and given up, oldest first, for newer ones.
    pub shared_given_up: AtomicU64,
    /// Messages held for shared groups past `share.expires_after` or their own expiry.
    pub shared_expired: AtomicU64,
    /// QoS 2 messages of shared groups whose member ended with its PUBREC outstanding.
    pub shared_unreceived: AtomicU64,
    /// QoS 2 publishes dropped between PUBREC and PUBREL, because their session ended or their topic
    /// takes none any more.
    pub exactly_once_dropped: AtomicU64,
    /// QoS 2 publishes whose PUBREL did not come in time.
    pub exactly_once_expired: AtomicU64,
    /// Retained values that went because their time was over.
    pub retained_expired: AtomicU64,
    /// Retained values that a channel claims at a start and has no place for.
    pub retained_dropped: AtomicU64,
    /// RETAIN flags dropped from publishes to a queue.
    pub queue_retain_dropped: AtomicU64,
    /// Consumers whose position retention passed, at CONNECT or while reading.
    pub position_lost: AtomicU64,
    /// Records that went with those positions.
    pub position_lost_records: AtomicU64,
    /// Values of latest channels replaced by newer ones while they waited for a subscriber.
    pub latest_superseded: AtomicU64,
    /// Answers to queue deliveries that were no longer current or could not be read.
    pub answers_ignored: AtomicU64,
    /// Connections ended because a write took longer than the write timeout.
    pub write_timeouts: AtomicU64,
    /// Connections turned away because every slot was taken.
    pub connections_refused: AtomicU64,
    /// Wills published as their connection ended.
    pub wills_immediate: AtomicU64,
    /// Wills published after their delay.
    pub wills_delayed: AtomicU64,
    /// Wills published because their session ended.
    pub wills_session_ended: AtomicU64,
    /// Wills published at a start, their moment having passed while the broker was stopped.
    pub wills_start: AtomicU64,
    /// Wills whose publish was refused.
    pub wills_refused: AtomicU64,
    /// Records removed by retention.
    pub retention_removed: AtomicU64,
    /// Writes of positions or session records that the store refused.
    pub session_store_errors: AtomicU64,
    refused: Mutex<BTreeMap<(Refused, Reason), u64>>,
}

impl Counters {
    /// Counts one refusal.
    pub fn refuse(&self, what: Refused, reason: Reason) {
        // At most (kinds x reasons) entries, both closed sets.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry((what, reason)).or_default() += 1;
    }

    /// Refusals so far, by kind and reason.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<(Refused, Reason), u64> {
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Adds one to a counter.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

//! Broadcast messages waiting for one client, within `session_queue_bytes`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::broadcast_log::Logged;
use crate::broker::share::Group;
use crate::broker::topic::ChannelIndex;
use crate::storage::Message;

/// A broadcast message on its way to one subscriber. The message itself is shared by all of them.
#[derive(Clone, Debug)]
pub(crate) struct BroadcastDelivery {
    pub message: Arc<Message>,
    /// The session's share of the entry in the broadcast log, where the message is kept for it. QoS,
    /// RETAIN and identifiers are then decided again when it is sent.
    pub logged: Option<Arc<Logged>>,
    /// The shared group it was handed out by.
    pub group: Option<Arc<Group>>,
    /// Where it lies, if it is of a channel: a group's only.
    pub record: Option<(ChannelIndex, u64)>,
    /// When it was published, on the clock that never steps: what its expiry counts from.
    pub published: Duration,
    /// Seconds it had waited by then: before this process was started.
    pub aged: u64,
    /// 0 to 2.
    pub qos: u8,
    pub retain: bool,
    /// Subscription Identifiers of every subscription that matched.
    pub identifiers: Vec<u32>,
}

impl BroadcastDelivery {
    /// What holding this costs, in bytes. The message is shared, but a slow client may be the last
    /// to hold it, so each is charged for it whole (invariant 13).
    pub fn cost(&self) -> u64 {
        let message = &*self.message;
        let optional = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
        let content = message.topic.len()
            + message.payload.len()
            + message.properties.len()
            + message.publisher.len()
            + optional(&message.response_topic)
            + optional(&message.correlation_data);
        let entry = size_of::<Self>() + size_of::<Message>() + 4 * self.identifiers.capacity();
        (content + entry) as u64
    }
}

/// What offering a message to a queue did to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It waits, and so many older ones were given up for it.
    Taken { given_up: usize },
    /// It does not fit and was dropped.
    Dropped,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct BroadcastQueue {
    waiting: VecDeque<BroadcastDelivery>,
    waiting_bytes: u64,
    /// How many of those waiting are to be acknowledged.
    waiting_acked: usize,
    /// What groups had handed to this session and it gave up for something of its own.
    displaced: Vec<BroadcastDelivery>,
    /// QoS 1 and 2 on the wire and not acknowledged.
    sent_bytes: u64,
    /// Of the broadcast log, everything below this has been taken or given up.
    taken_to: u64,
    /// Something did not fit since it was last empty.
    overflowed: bool,
}

impl BroadcastQueue {
    /// Adds a message. Where `max_bytes` would be passed, a QoS 0 message is dropped; for a QoS 1
    /// message the oldest ones waiting make room.
    pub fn offer(&mut self, delivery: BroadcastDelivery, max_bytes: u64) -> Offered {
        let cost = delivery.cost();
        let mut given_up = 0;
        while self.waiting_bytes + self.sent_bytes + cost > max_bytes {
            if delivery.qos == 0 {
                return Offered::Dropped;
            }
            let Some(oldest) = self.waiting.pop_front() else {
                return Offered::Dropped;
            };
            self.left(&oldest);
            if oldest.group.is_some() {
                // Another member may have room for it.
                self.displaced.push(oldest);
            } else {
                given_up += 1;
            }
        }
        self.waiting_bytes += cost;
        self.waiting_acked += usize::from(delivery.qos > 0);
        self.waiting.push_back(delivery);
        Offered::Taken { given_up }
    }

    /// Something did not fit: whether that is news since the queue was last empty.
    pub fn overflows(&mut self) -> bool {
        !std::mem::replace(&mut self.overflowed, true)
    }

    /// The next message, if it may be sent: QoS 1 needs `window`, and no more than half the bound
    /// is ever on the wire, unless that is a single message.
    pub fn pop(&mut self, window: bool, max_bytes: u64) -> Option<BroadcastDelivery> {
        let next = self.waiting.front()?;
        if next.qos > 0 && (!window || self.is_crowded(next, max_bytes)) {
            return None;
        }
        let delivery = self.waiting.pop_front()?;
        self.left(&delivery);
        if self.waiting.is_empty() {
            // An idle client keeps no room for the burst it once had.
            self.waiting = VecDeque::new();
            self.overflowed = false;
        }
        Some(delivery)
    }

    /// Whether one more fits without anything being given up for it.
    pub fn has_room(&self, delivery: &BroadcastDelivery, max_bytes: u64) -> bool {
        self.waiting_bytes + self.sent_bytes + delivery.cost() <= max_bytes
    }

    /// How many that wait are to be acknowledged.
    pub fn waiting_acked(&self) -> usize {
        self.waiting_acked
    }

    /// Gives up what waits and lies in the broadcast log below `offset`; returns how many that were.
    /// What is on the wire stays.
    pub fn give_up_below(&mut self, offset: u64) -> usize {
        let before = self.waiting.len();
        let is_below = |delivery: &BroadcastDelivery| {
            let logged = delivery.logged.as_ref();
            logged.is_some_and(|logged| logged.offset < offset)
        };
        for delivery in self.waiting.iter().filter(|delivery| is_below(delivery)) {
            if let Some(group) = &delivery.group {
                group.is_done_with(delivery);
            }
        }
        self.waiting.retain(|delivery| !is_below(delivery));
        let given_up = before - self.waiting.len();
        if given_up > 0 {
            self.taken_to = self.taken_to.max(offset);
            self.recount();
        }
        given_up
    }

    /// What of groups was given up since the last call, to be returned to them.
    pub fn take_displaced(&mut self) -> Vec<BroadcastDelivery> {
        std::mem::take(&mut self.displaced)
    }

    /// Takes out what groups handed to this session and it has not sent.
    pub fn take_shared(&mut self) -> Vec<BroadcastDelivery> {
        let waiting = std::mem::take(&mut self.waiting);
        let (shared, own) = waiting
            .into_iter()
            .partition::<VecDeque<_>, _>(|delivery| delivery.group.is_some());
        self.waiting = own;
        self.recount();
        shared.into()
    }

    fn recount(&mut self) {
        self.waiting_bytes = self.waiting.iter().map(BroadcastDelivery::cost).sum();
        self.waiting_acked = self.waiting.iter().filter(|d| d.qos > 0).count();
    }

    /// Whether a QoS 1 or 2 message has to wait for what is on the wire already.
    pub fn is_crowded(&self, next: &BroadcastDelivery, max_bytes: u64) -> bool {
        self.sent_bytes > 0 && self.sent_bytes + next.cost() > max_bytes / 2
    }

    /// A QoS 1 message went out.
    pub fn sent(&mut self, delivery: &BroadcastDelivery) {
        self.sent_bytes += delivery.cost();
    }

    /// A QoS 1 message that went out was acknowledged.
    pub fn acknowledged(&mut self, delivery: &BroadcastDelivery) {
        self.sent_bytes = self.sent_bytes.saturating_sub(delivery.cost());
    }

    /// A QoS 1 or 2 message that is on the wire already, put back by a start.
    pub fn restore_sent(&mut self, delivery: &BroadcastDelivery) {
        self.sent(delivery);
    }

    /// One that waited is taken or given up.
    fn left(&mut self, delivery: &BroadcastDelivery) {
        self.waiting_bytes -= delivery.cost();
        self.waiting_acked -= usize::from(delivery.qos > 0);
        // Where a group is is in its own ledger.
        if let (Some(logged), None) = (&delivery.logged, &delivery.group) {
            self.taken_to = self.taken_to.max(logged.offset + 1);
        }
    }

    /// Of the broadcast log, everything below this has been taken or given up.
    pub fn taken_to(&self) -> u64 {
        self.taken_to
    }

    /// As stored by an earlier process.
    pub fn set_taken_to(&mut self, offset: u64) {
        self.taken_to = offset;
    }

    /// The connection ended and the session is kept: QoS 0 is for those who are there.
    pub fn away(&mut self) {
        self.waiting.retain(|delivery| delivery.qos > 0);
        self.waiting.shrink_to_fit();
        self.recount();
    }

    /// Forgets everything; returns how many messages were waiting.
    pub fn clear(&mut self) -> usize {
        let waiting = self.waiting.len();
        *self = BroadcastQueue::default();
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MessageId;
    use bytes::Bytes;

    fn delivery(qos: u8, name: &'static str, payload: usize) -> BroadcastDelivery {
        BroadcastDelivery {
            message: Arc::new(Message {
                id: MessageId([0; 16]),
                topic: Bytes::from_static(name.as_bytes()),
                payload: Bytes::from(vec![0; payload]),
                properties: Bytes::new(),
                user_property_bytes: 0,
                response_topic: None,
                correlation_data: None,
                expiry_seconds: None,
                received_at: None,
                publisher: Bytes::new(),
                retain: false,
                qos,
            }),
            logged: None,
            group: None,
            record: None,
            published: Duration::ZERO,
            aged: 0,
            qos,
            retain: false,
            identifiers: Vec::new(),
        }
    }

    #[test]
    fn a_full_queue_drops_qos_0_and_gives_up_the_oldest_for_qos_1() {
        let cost = delivery(1, "a", 1000).cost();
        let bound = 2 * cost;
        let mut queue = BroadcastQueue::default();
        assert_eq!(
            queue.offer(delivery(1, "a", 1000), bound),
            Offered::Taken { given_up: 0 }
        );
        assert_eq!(
            queue.offer(delivery(0, "b", 1000), bound),
            Offered::Taken { given_up: 0 }
        );
        assert_eq!(queue.offer(delivery(0, "c", 1000), bound), Offered::Dropped);
        assert_eq!(
            queue.offer(delivery(1, "d", 1000), bound),
            Offered::Taken { given_up: 1 }
        );
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(true, bound))
            .map(|delivery| delivery.message.topic.clone())
            .collect();
        assert_eq!(order, ["b", "d"]);
    }

    #[test]
    fn the_cost_of_an_entry_counts_though_its_payload_is_empty() {
        let mut queue = BroadcastQueue::default();
        let bound = 64 * 1024;
        let taken = (0..10_000)
            .filter(|_| queue.offer(delivery(0, "a", 0), bound) != Offered::Dropped)
            .count();
        assert!(taken <= 64 * 1024 / size_of::<BroadcastDelivery>());
    }

    #[test]
    fn at_most_half_the_bound_is_on_the_wire() {
        let cost = delivery(1, "a", 1000).cost();
        let bound = 4 * cost;
        let mut queue = BroadcastQueue::default();
        for _ in 0..4 {
            queue.offer(delivery(1, "a", 1000), bound);
        }
        let mut on_the_wire = Vec::new();
        while let Some(delivery) = queue.pop(true, bound) {
            queue.sent(&delivery);
            on_the_wire.push(delivery);
        }
        assert_eq!(on_the_wire.len(), 2);
        queue.acknowledged(&on_the_wire[0]);
        assert!(queue.pop(true, bound).is_some());
    }

    #[test]
    fn without_a_window_nothing_at_qos_1_is_taken() {
        let mut queue = BroadcastQueue::default();
        queue.offer(delivery(1, "a", 1), u64::MAX);
        assert!(queue.pop(false, u64::MAX).is_none());
        assert!(queue.pop(true, u64::MAX).is_some());
    }
}

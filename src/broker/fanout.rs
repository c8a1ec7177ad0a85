//! One broadcast message to every subscriber there is.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::storage::Message;

use super::Broker;
use super::counters::bump;
use super::publish::text;
use super::session::broadcast::{BroadcastDelivery, Offered};
use super::session::{Session, Subscription};
use super::time::Now;

/// A subscription in the index.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub session: Arc<Session>,
    pub subscription: Arc<Subscription>,
}

/// What the matching subscriptions of one session come to.
struct Combined {
    session: Arc<Session>,
    qos: u8,
    retain_as_published: bool,
    identifiers: Vec<u32>,
}

impl Broker {
    /// Hands a message to the queue of each session it is for. Nothing here waits: a queue that is
    /// full gives something up, by its own rule, and the publisher goes on (invariant 16).
    pub(crate) fn broadcast(&self, message: Message, now: Now) {
        let subscribers = self.subscribers(&message);
        if subscribers.is_empty() {
            return;
        }
        let message = Arc::new(message);
        for combined in subscribers.into_values() {
            let delivery = BroadcastDelivery {
                message: message.clone(),
                published: now.since_start,
                qos: combined.qos.min(message.qos),
                retain: combined.retain_as_published && message.retain,
                identifiers: combined.identifiers,
            };
            self.offer_broadcast(&combined.session, delivery);
        }
    }

    /// The sessions a message is for. Overlapping subscriptions of one client make one delivery:
    /// the highest QoS and every identifier.
    fn subscribers(&self, message: &Message) -> BTreeMap<u64, Combined> {
        let mut found: BTreeMap<u64, Combined> = BTreeMap::new();
        let index = self
            .subscriptions
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        index.visit(text(&message.topic), |key, subscriber| {
            let subscription = &subscriber.subscription;
            let own = subscriber.session.client_id.as_bytes() == &message.publisher[..];
            if (subscription.no_local && own) || !subscription.takes(&message.topic) {
                return;
            }
            let combined = found.entry(*key).or_insert_with(|| Combined {
                session: subscriber.session.clone(),
                qos: 0,
                retain_as_published: false,
                identifiers: Vec::new(),
            });
            combined.qos = combined.qos.max(subscription.qos);
            combined.retain_as_published |= subscription.retain_as_published;
            combined.identifiers.extend(subscription.identifier);
        });
        found
    }

    fn offer_broadcast(&self, session: &Session, delivery: BroadcastDelivery) {
        let mut state = session.lock();
        if state.link.is_none() {
            // Broadcast is granted at QoS 0 to a session that outlives its connection, and QoS 0
            // is for those who are there.
            return;
        }
        let offered = state
            .broadcast
            .offer(delivery, self.settings.session_queue_bytes);
        match offered {
            Offered::Dropped => bump(&self.counters.broadcast_dropped_queue_full),
            Offered::Taken { given_up } => {
                for _ in 0..given_up {
                    bump(&self.counters.broadcast_given_up);
                }
                state.wake_writer();
            }
        }
    }
}

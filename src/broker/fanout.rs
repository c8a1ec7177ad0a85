//! One broadcast message to every subscriber there is.
//!
//! | who subscribes | at QoS 0 | at QoS 1 and 2 |
//! |---|---|---|
//! | a session that ends with its connection | from memory | from memory |
//! | a session that outlives it | from memory, while connected | the message is in the broadcast log first |
//!
//! The log is written once for all of them, and the publisher is answered once it is
//! (invariant 18); it waits for nothing any of them does (invariant 16).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use crate::storage::{Batch, Message, Operation, Receipt, Store, StoreError};

use super::counters::bump;
use super::publish::{Answer, text};
use super::session::broadcast::{BroadcastDelivery, Offered};
use super::session::{Session, Subscription};
use super::time::Now;
use super::turns::{Turn, Turns, hand_out_in};
use super::{Broker, lock};

/// A subscription in the index.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub session: Arc<Session>,
    pub subscription: Arc<Subscription>,
}

/// A QoS 2 message between its PUBREC and its PUBREL.
pub(crate) struct HeldMessage {
    pub key: Bytes,
    /// The store that holds it.
    pub store: Arc<dyn Store>,
    pub message: Message,
    /// Its place in what its publisher's connection hands out.
    pub turn: Turn,
}

/// Told once whether a held message was released; where it was not, it is held as before.
pub(crate) type Released = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What the matching subscriptions of one session come to.
struct Combined {
    session: Arc<Session>,
    qos: u8,
    retain_as_published: bool,
    identifiers: Vec<u32>,
}

impl Broker {
    /// Publishes a broadcast message: stores what has to be stored, answers, and hands it out in its
    /// publisher's order.
    pub(crate) fn publish_broadcast(
        self: &Arc<Self>,
        message: Message,
        turns: Option<&Arc<Turns>>,
        now: Now,
        answer: Answer,
    ) {
        let owed = self.is_owed(&message);
        if !message.retain && !owed {
            match turns {
                Some(turns) => self.broadcast_in(turns, message, now),
                None => self.broadcast(message, now),
            }
            return answer(Ok(()));
        }
        let turn = turns.map(Turns::take);
        let put = message.retain.then(|| self.retained.put(&message));
        let retained_apart = !Arc::ptr_eq(&self.retained.store, &self.log.store);
        let broker = self.clone();
        match put {
            Some(put) if owed && retained_apart => {
                self.retain_apart(put, message, turn, answer);
            }
            Some(put) if !owed => self.retained.store.submit(
                put.into(),
                Box::new(move |stored| match stored {
                    Ok(receipt) => {
                        answer(Ok(()));
                        broker.retained.forget_deletion(&message, &receipt);
                        hand_out_in(turn, move || broker.broadcast(message, broker.now()));
                    }
                    Err(error) => answer(Err(broker.refused_by_store(&error))),
                }),
            ),
            put => self.log_broadcast(put, message, turn, answer),
        }
    }

    /// Stores a message in the broadcast log, behind its retained value, and hands it out.
    fn log_broadcast(
        self: &Arc<Self>,
        put: Option<Operation>,
        message: Message,
        turn: Option<Turn>,
        answer: Answer,
    ) {
        let retains = put.is_some();
        let mut operations: Vec<Operation> = put.into_iter().collect();
        operations.push(self.enqueue_to_log(&message));
        let broker = self.clone();
        self.log.store.submit(
            Batch { operations },
            Box::new(move |stored| match stored {
                Ok(receipt) => {
                    answer(Ok(()));
                    if retains {
                        broker.retained.forget_deletion(&message, &receipt);
                    }
                    let offset = receipt.offsets.last().copied().flatten();
                    hand_out_in(turn, move || {
                        broker.hand_out(Arc::new(message), offset, broker.now());
                    });
                }
                Err(error) => answer(Err(broker.refused_by_store(&error))),
            }),
        );
    }

    fn enqueue_to_log(&self, message: &Message) -> Operation {
        Operation::Enqueue {
            channel: self.log.channel,
            message: message.clone(),
        }
    }

    /// A message that is owed and whose value is retained in another store. It is held in the log's
    /// store first, which is where a lack of room is told, then retained, then released to the log,
    /// which takes no more room: refused, it has changed nothing. What a crash leaves held is nobody's
    /// and is dropped by the next start.
    fn retain_apart(
        self: &Arc<Self>,
        put: Operation,
        message: Message,
        turn: Option<Turn>,
        answer: Answer,
    ) {
        let number = lock(&self.registry).number();
        let key: Bytes = [b"\0retained".as_slice(), &number.to_be_bytes()]
            .concat()
            .into();
        let hold = Operation::Hold {
            key: key.clone(),
            message: message.clone(),
        };
        let broker = self.clone();
        let retained = move |stored: Result<Receipt, StoreError>| match stored {
            Err(error) => {
                let drop = Operation::Drop { key };
                broker.log.store.submit(drop.into(), Box::new(|_| {}));
                answer(Err(broker.refused_by_store(&error)));
            }
            Ok(receipt) => {
                broker.retained.forget_deletion(&message, &receipt);
                let release = Operation::Release {
                    key,
                    into: Box::new(broker.enqueue_to_log(&message)),
                };
                let released = broker.clone();
                broker.log.store.submit(
                    release.into(),
                    Box::new(move |stored| match stored {
                        Ok(receipt) => {
                            answer(Ok(()));
                            let offset = receipt.offsets.last().copied().flatten();
                            hand_out_in(turn, move || {
                                released.hand_out(Arc::new(message), offset, released.now());
                            });
                        }
                        Err(error) => answer(Err(released.refused_by_store(&error))),
                    }),
                );
            }
        };
        let broker = self.clone();
        self.log.store.submit(
            hold.into(),
            Box::new(move |stored| match stored {
                Ok(_) => broker.retained.store.submit(put.into(), Box::new(retained)),
                Err(error) => retained(Err(error)),
            }),
        );
    }

    /// Publishes a QoS 2 broadcast message that is held: it is held no more, and retained and in the
    /// broadcast log where that is due, in one step. Only where the configuration has moved one of
    /// them to another provider since are there two: what is in two stores cannot be one step, and
    /// landing comes first.
    pub(crate) fn release_broadcast(self: &Arc<Self>, hold: HeldMessage, done: Released) {
        if !hold.message.retain {
            return self.release_to_log(hold, Batch::default(), done);
        }
        let put = self.retained.put(&hold.message);
        let in_one = Arc::ptr_eq(&self.retained.store, &hold.store)
            && Arc::ptr_eq(&self.log.store, &hold.store);
        if in_one {
            return self.release_to_log(hold, put.into(), done);
        }
        // Retained twice is retained once.
        let broker = self.clone();
        self.retained.store.submit(
            put.into(),
            Box::new(move |stored| match stored {
                Ok(receipt) => {
                    broker.retained.forget_deletion(&hold.message, &receipt);
                    broker.release_to_log(hold, Batch::default(), done);
                }
                Err(error) => done(Err(error)),
            }),
        );
    }

    fn release_to_log(self: &Arc<Self>, hold: HeldMessage, mut batch: Batch, done: Released) {
        let HeldMessage {
            key,
            store,
            message,
            turn,
        } = hold;
        let owed = self.is_owed(&message);
        let retains = !batch.operations.is_empty();
        let enqueue = self.enqueue_to_log(&message);
        let in_one = Arc::ptr_eq(&self.log.store, &store);
        let first = if owed && !in_one {
            self.log.store.clone()
        } else {
            store.clone()
        };
        batch.operations.push(match (owed, in_one) {
            (true, true) => Operation::Release {
                key: key.clone(),
                into: Box::new(enqueue),
            },
            (true, false) => enqueue,
            (false, _) => Operation::Drop { key: key.clone() },
        });
        let broker = self.clone();
        first.submit(
            batch,
            Box::new(move |stored| match stored {
                Ok(receipt) => {
                    if owed && !in_one {
                        store.submit(Operation::Drop { key }.into(), Box::new(|_| {}));
                    }
                    done(Ok(()));
                    if retains {
                        broker.retained.forget_deletion(&message, &receipt);
                    }
                    let offset = receipt.offsets.last().copied().flatten();
                    turn.come(Box::new(move || {
                        let offset = offset.filter(|_| owed);
                        broker.hand_out(Arc::new(message), offset, broker.now());
                    }));
                }
                Err(error) => done(Err(error)),
            }),
        );
    }

    /// Whether a message is owed to anybody who may be away when it is to be delivered.
    pub(crate) fn is_owed(&self, message: &Message) -> bool {
        if message.qos == 0 {
            return false;
        }
        let index = self
            .subscriptions
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut owed = false;
        index.visit(text(&message.topic), |_, subscriber| {
            owed |= subscriber.session.outlives()
                && subscriber.subscription.qos > 0
                && is_for(subscriber, message);
        });
        drop(index);
        owed || self.is_owed_to_a_group(message)
    }

    /// Hands a message that is kept nowhere to those it is for, behind what its publisher published
    /// before it.
    pub(crate) fn broadcast_in(self: &Arc<Self>, turns: &Arc<Turns>, message: Message, now: Now) {
        if turns.is_empty() {
            return self.broadcast(message, now);
        }
        let broker = self.clone();
        turns
            .take()
            .come(Box::new(move || broker.broadcast(message, broker.now())));
    }

    /// Hands a message that is kept nowhere to those it is for.
    pub(crate) fn broadcast(&self, message: Message, now: Now) {
        self.hand_out(Arc::new(message), None, now);
    }

    /// Hands a message to the queue of each session it is for; `offset` is its place in the broadcast
    /// log. Nothing here waits: a queue that is full gives something up, by its own rule, and the
    /// publisher goes on (invariant 16).
    pub(crate) fn hand_out(&self, message: Arc<Message>, offset: Option<u64>, now: Now) {
        let logged = offset.map(|offset| self.log.share(offset));
        for combined in self.subscribers(&message).into_values() {
            let delivery = BroadcastDelivery {
                message: message.clone(),
                logged: None,
                group: None,
                record: None,
                published: now.since_start,
                aged: 0,
                qos: combined.qos.min(message.qos),
                retain: combined.retain_as_published && message.retain,
                identifiers: combined.identifiers,
            };
            self.offer_broadcast(&combined.session, delivery, logged.as_ref());
        }
        self.hand_to_groups(&message, logged.as_ref(), now);
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
            if !is_for(subscriber, message) {
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

    fn offer_broadcast(
        &self,
        session: &Session,
        mut delivery: BroadcastDelivery,
        logged: Option<&Arc<super::broadcast_log::Logged>>,
    ) {
        let mut state = session.lock();
        if state.ended {
            return;
        }
        if delivery.qos > 0 && state.expiry_seconds > 0 {
            delivery.logged = logged.cloned();
        }
        if state.link.is_none() && delivery.logged.is_none() {
            // What is kept nowhere is for those who are there.
            return;
        }
        let offered = state
            .broadcast
            .offer(delivery, self.settings.session_queue_bytes);
        let fits = offered == Offered::Taken { given_up: 0 };
        if !fits && state.broadcast.overflows() {
            tracing::info!(
                client = %session.client_id,
                session_queue_bytes = self.settings.session_queue_bytes,
                "a client takes broadcast slower than it comes, or is away: messages for it are dropped until it has caught up"
            );
        }
        match offered {
            Offered::Dropped => bump(&self.counters.broadcast_dropped_queue_full),
            Offered::Taken { given_up } => {
                for _ in 0..given_up {
                    bump(&self.counters.broadcast_given_up);
                }
                state.wake_writer();
            }
        }
        let displaced = state.broadcast.take_displaced();
        drop(state);
        if !displaced.is_empty() {
            self.return_to_groups(displaced, self.now());
        }
    }
}

/// Whether a message that the filter of a subscription matches is for it.
pub(super) fn is_for(subscriber: &Subscriber, message: &Message) -> bool {
    let own = subscriber.session.client_id.as_bytes() == &message.publisher[..];
    let withheld = subscriber.subscription.no_local && own;
    !withheld && subscriber.subscription.takes(&message.topic)
}

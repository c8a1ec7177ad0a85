//! What a client says to what it was sent: PUBACK, PUBREC, PUBCOMP; and what the store has to have
//! before a packet goes out.
//!
//! | the client says | at QoS 1 | at QoS 2 |
//! |---|---|---|
//! | PUBACK | the delivery is over | nothing |
//! | PUBREC | nothing: a PUBREL 0x92 | received: stored, then PUBREL |
//! | PUBREC that refuses | nothing | the delivery is over |
//! | PUBCOMP | nothing | the delivery is over, if it was received |
//!
//! A session that outlives its connection has its *window* stored before a PUBLISH goes out under an
//! identifier the client will remember, and before a PUBREL: one write for all that is ready
//! (invariant 18). While one is on its way nothing else that needs one is taken.

use std::collections::BTreeSet;

use crate::storage::{ChannelKind, Receipt, StoreError};

use super::connection::{Connection, Flow};
use super::counters::{Refused, bump};
use super::packet::Outgoing;
use super::reason::{Reason, Refusal};
use super::session::State;
use super::session::broadcast::BroadcastDelivery;
use super::session::inflight::{Held, Received};
use super::time::Now;
use super::topic::ChannelIndex;

impl Connection {
    /// A PUBACK. One for an identifier that is not in use is ignored.
    pub fn puback(&self, packet_id: u16, now: Now) -> Flow {
        let (held, ask) = {
            let mut state = self.session.lock();
            if state.owned_by(self.number).is_none() {
                return Flow::Stop;
            }
            if state.inflight.qos(packet_id) != Some(1) {
                tracing::debug!(client = self.client_id(), packet_id, "stray PUBACK");
                return Flow::Continue;
            }
            let Some(held) = state.inflight.remove(packet_id) else {
                return Flow::Continue;
            };
            self.over(&mut state, &held, now);
            (held, std::mem::take(&mut state.refused_queues))
        };
        if let Held::Job { queue, delivery } = held
            && let Some(queue) = &self.broker.channel(queue).queue
        {
            // The visibility clock starts here and not at the send (invariant 7).
            queue.transport_acked(&delivery);
        }
        self.ask_queues(ask);
        self.ask_groups(now);
        Flow::Continue
    }

    /// A PUBREC, which takes the delivery or refuses it.
    pub fn pubrec(&self, packet_id: u16, refuses: bool, now: Now) -> Flow {
        let ask = {
            let mut state = self.session.lock();
            let Some(link) = state.owned_by(self.number) else {
                return Flow::Stop;
            };
            if link.control_is_full() {
                return Flow::Retry;
            }
            if refuses && state.inflight.qos(packet_id) == Some(2) {
                if let Some(held) = state.inflight.remove(packet_id) {
                    self.over(&mut state, &held, now);
                }
                std::mem::take(&mut state.refused_queues)
            } else if refuses {
                return Flow::Continue;
            } else {
                match state.inflight.received(packet_id) {
                    Received::First => {
                        // The client has it: the message is owed no more, the exchange is.
                        if let Some(delivery) = state.inflight.take_broadcast(packet_id) {
                            state.broadcast.acknowledged(&delivery);
                            is_done_with(&delivery);
                        }
                        self.owe_pubrel(&mut state, packet_id);
                    }
                    Received::Again => self.owe_pubrel(&mut state, packet_id),
                    Received::Unknown => {
                        if let Some(link) = state.owned_by(self.number) {
                            link.reply(Outgoing::Pubrel {
                                packet_id,
                                reason: Reason::PacketIdentifierNotFound,
                            });
                        }
                    }
                }
                state.wake_writer();
                BTreeSet::new()
            }
        };
        self.ask_queues(ask);
        self.ask_groups(now);
        Flow::Continue
    }

    /// A PUBCOMP. One for an exchange that is not that far is ignored.
    pub fn pubcomp(&self, packet_id: u16, now: Now) -> Flow {
        let ask = {
            let mut state = self.session.lock();
            if state.owned_by(self.number).is_none() {
                return Flow::Stop;
            }
            let Some(held) = state.inflight.completed(packet_id) else {
                tracing::debug!(client = self.client_id(), packet_id, "stray PUBCOMP");
                return Flow::Continue;
            };
            self.over(&mut state, &held, now);
            std::mem::take(&mut state.refused_queues)
        };
        self.ask_queues(ask);
        self.ask_groups(now);
        Flow::Continue
    }

    /// A delivery is over: its identifier is free by now.
    fn over(&self, state: &mut State, held: &Held, now: Now) {
        self.landed(state, held);
        match held {
            Held::Append { channel, .. } => self.position_moved(state, *channel, now),
            Held::Broadcast(delivery) if delivery.logged.is_none() => {}
            Held::Broadcast(_) | Held::Gone => self.window_moved(state, now),
            Held::Latest { .. } | Held::Job { .. } => {}
        }
        state.wake_writer();
    }

    /// A delivery that cannot be sent again. At QoS 1 its identifier is free and its reader does not
    /// wait for it; at QoS 2 the client may have it, and a PUBREL closes the exchange.
    pub(super) fn forget(&self, state: &mut State, packet_id: u16) {
        if state.inflight.message_gone(packet_id) {
            if let Some(delivery) = state.inflight.take_broadcast(packet_id) {
                state.broadcast.acknowledged(&delivery);
                is_done_with(&delivery);
            }
        } else if let Some(held) = state.inflight.remove(packet_id) {
            self.landed(state, &held);
        }
    }

    /// Tells queues that found no room in the window that there may be some. Called without a lock
    /// held.
    pub(crate) fn ask_queues(&self, queues: BTreeSet<ChannelIndex>) {
        for queue in queues {
            if let Some(queue) = &self.broker.channel(queue).queue {
                queue.worker_ready(super::queue::WorkerId(self.number));
            }
        }
    }

    /// Groups that found no room in the session are served again, as far as there is some now. Called
    /// without a lock held.
    pub(super) fn ask_groups(&self, now: Now) {
        if self.broker.groups.is_empty() {
            return;
        }
        let groups = std::mem::take(&mut self.session.lock().refused_groups);
        self.broker.serve_groups(&groups, now);
    }

    fn landed(&self, state: &mut State, held: &Held) {
        match held {
            Held::Append {
                channel,
                offset,
                era,
            }
            | Held::Latest {
                channel,
                offset,
                era,
                ..
            } => {
                if let Some(reader) = state.readers.get_mut(channel) {
                    reader.acked(*era, *offset);
                }
            }
            Held::Broadcast(delivery) => {
                state.broadcast.acknowledged(delivery);
                is_done_with(delivery);
            }
            Held::Gone | Held::Job { .. } => {}
        }
    }

    /// An append position moved: it is stored within `ack_commit_interval`.
    pub(super) fn position_moved(&self, state: &mut State, index: ChannelIndex, now: Now) {
        if state.expiry_seconds == 0 || self.broker.channel(index).kind != ChannelKind::Append {
            return;
        }
        state.dirty_positions.insert(index);
        self.broker.list_if_unlisted(state, &self.session, now);
    }

    /// Something left the window: that is stored within `ack_commit_interval`.
    fn window_moved(&self, state: &mut State, now: Now) {
        if state.expiry_seconds == 0 {
            return;
        }
        state.window_dirty = true;
        self.broker.list_if_unlisted(state, &self.session, now);
    }

    /// A PUBREL goes out once the store has its PUBREC, where the session outlives its connection.
    pub(super) fn owe_pubrel(&self, state: &mut State, packet_id: u16) {
        let pubrel = Outgoing::Pubrel {
            packet_id,
            reason: Reason::Success,
        };
        if state.expiry_seconds == 0 || !state.stored {
            if let Some(link) = state.owned_by(self.number) {
                link.reply(pubrel);
            }
            return;
        }
        let same = |packet: &Outgoing| matches!(packet, Outgoing::Pubrel { packet_id: waiting, .. } if *waiting == packet_id);
        if !state.unstored.iter().chain(&state.stored_out).any(same) {
            state.unstored.push(pubrel);
        }
    }

    /// Has the store take what is ready to go out but for its identifiers.
    pub(super) fn store_window(&self, state: &mut State) {
        let waits = state.unstored.is_empty() || state.window_writing;
        if waits || state.claimed || state.ended {
            return;
        }
        let packets = std::mem::take(&mut state.unstored);
        state.window_writing = true;
        let connection = self.clone();
        // Under the session's lock, so that it does not follow the end of its session.
        self.broker.submit_window(
            &self.session,
            state,
            Box::new(move |stored| connection.window_stored(packets, stored)),
        );
    }

    fn window_stored(&self, packets: Vec<Outgoing>, stored: Result<Receipt, StoreError>) {
        let mut state = self.session.lock();
        state.window_writing = false;
        state.window_lost = stored.is_err();
        if let Err(error) = stored {
            bump(&self.broker.counters.session_store_errors);
            tracing::error!(client = self.client_id(), %error, "what goes out to a client could not be stored");
            let pubrel = |packet: &Outgoing| matches!(packet, Outgoing::Pubrel { .. });
            let reason = if packets.iter().any(pubrel) {
                Reason::Unspecified
            } else {
                Reason::ImplementationSpecific
            };
            let text =
                format!("what is on its way could not be stored: {error}; connect again later");
            if state.owned_by(self.number).is_some()
                && self.handle.close(Refusal::new(reason, text))
            {
                self.broker.counters.refuse(Refused::Disconnect, reason);
            }
            return;
        }
        // Whoever has the session now sends again what an earlier connection did not.
        if state.owned_by(self.number).is_some() {
            let publishes = packets.iter().filter(|p| matches!(p, Outgoing::Publish(_)));
            let sent = &self.broker.counters.publishes_sent;
            sent.fetch_add(
                publishes.count() as u64,
                std::sync::atomic::Ordering::Relaxed,
            );
            state.stored_out.extend(packets);
        }
        state.wake_writer();
    }
}

/// A group's message is delivered, or will never be.
fn is_done_with(delivery: &BroadcastDelivery) {
    if let Some(group) = &delivery.group {
        group.is_done_with(delivery);
    }
}

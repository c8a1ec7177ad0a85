//! One connection's hold on a session: what its reader says and its writer asks for.
//!
//! Everything here may be called after the connection has lost its session; then it changes
//! nothing (invariant 17).

use std::sync::{Arc, Mutex};

use super::burst::Burst;
use super::connect::Wakes;
use super::counters::{Refused, bump};
use super::deliver::{Reads, Turn};
use super::packet::{Outgoing, Protocol, Publish};
use super::publish::{Destination, Publisher};
use super::reason::{Reason, Refusal};
use super::session::acks::{AckKind, Outcome};
use super::session::{Form, Session, State, Subscription};
use super::time::Now;
use super::turns::Turns;
use super::{Broker, lock};

/// What the reader does after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Reads on.
    Continue,
    /// Waits for its wake-up and hands the same packet in again.
    Retry,
    /// Reads no more.
    Stop,
}

/// What the writer does after it has written what it was given.
#[derive(Debug)]
pub enum Taken {
    /// Has these reads made ([`Connection::read`]), where blocking for a moment does no harm, and
    /// asks again.
    Read(Reads),
    /// There may be more: asks again.
    More,
    /// Waits for its wake-up.
    Idle,
    /// Closes the connection.
    Close,
}

/// What outlives the connection's hold: how it is woken, and how it ends.
pub(crate) struct LinkHandle {
    wakes: Wakes,
    /// The order in which the broadcast messages of its client are handed out.
    pub turns: Arc<Turns>,
    ending: Mutex<Option<Ending>>,
}

/// How a connection ends.
#[derive(Clone, Debug)]
enum Ending {
    /// The broker ends it, and says why where the protocol lets it.
    Told(Refusal),
    /// The client ended it, and all it asked for is stored.
    Quiet,
}

impl LinkHandle {
    pub fn new(wakes: Wakes) -> Self {
        LinkHandle {
            turns: Turns::new(wakes.reader.clone()),
            wakes,
            ending: Mutex::new(None),
        }
    }

    pub fn wake_writer(&self) {
        (self.wakes.writer)();
    }

    pub fn wake_reader(&self) {
        (self.wakes.reader)();
    }

    /// Ends the connection, saying why. The first reason stands.
    pub fn close(&self, refusal: Refusal) -> bool {
        self.end(Ending::Told(refusal))
    }

    /// Ends the connection without a word.
    pub fn close_quietly(&self) {
        self.end(Ending::Quiet);
    }

    fn end(&self, how: Ending) -> bool {
        let mut ending = lock(&self.ending);
        if ending.is_some() {
            return false;
        }
        *ending = Some(how);
        drop(ending);
        self.wake_writer();
        self.wake_reader();
        true
    }

    pub fn is_closing(&self) -> bool {
        lock(&self.ending).is_some()
    }

    fn ending(&self) -> Option<Ending> {
        lock(&self.ending).clone()
    }
}

/// A connection that owns, or owned, a session. A clone is the same connection.
#[derive(Clone)]
pub struct Connection {
    pub(crate) broker: Arc<Broker>,
    pub(crate) session: Arc<Session>,
    pub(crate) number: u64,
    pub(crate) handle: Arc<LinkHandle>,
}

impl Connection {
    pub(crate) fn new(
        broker: Arc<Broker>,
        session: Arc<Session>,
        number: u64,
        handle: Arc<LinkHandle>,
    ) -> Self {
        Connection {
            broker,
            session,
            number,
            handle,
        }
    }

    /// The client identifier.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.session.client_id
    }

    /// Whether the connection is to be closed.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.handle.is_closing()
    }

    /// Whether the reader may read one more packet: its answer has a place. Where not, the reader's
    /// wake-up is called once there is room (backpressure, never a disconnect).
    #[must_use]
    pub fn may_read(&self) -> bool {
        let mut state = self.session.lock();
        state
            .owned_by(self.number)
            .is_none_or(|link| link.has_room() && link.handle.turns.has_room())
    }

    /// Ends the connection with a reason, told to an MQTT 5 client. Used by the front end for what
    /// only it sees: what cannot be parsed, keepalive, shutdown.
    pub fn close(&self, refusal: Refusal) {
        let reason = refusal.reason;
        if self.handle.close(refusal) {
            self.broker.counters.refuse(Refused::Disconnect, reason);
        }
    }

    /// Ends the connection without a word.
    pub fn close_quietly(&self) {
        self.handle.close_quietly();
    }

    /// Ends the connection because its client did not take a write in time.
    pub fn write_timed_out(&self) {
        bump(&self.broker.counters.write_timeouts);
        tracing::info!(
            client = self.client_id(),
            "a write timed out; the connection ends"
        );
        self.handle.close_quietly();
    }

    /// A PUBLISH by itself. The reader has seen [`may_read`](Self::may_read).
    pub fn publish(&self, publish: Publish, now: Now) -> Flow {
        let mut burst = Burst::default();
        let flow = self.publish_in(&mut burst, publish, now);
        self.flush(&mut burst);
        flow
    }

    /// A PUBLISH among others: what a channel is to keep of it waits in the burst, which the reader
    /// [flushes](Self::flush). The reader has seen [`may_read`](Self::may_read).
    pub fn publish_in(&self, burst: &mut Burst, publish: Publish, now: Now) -> Flow {
        bump(&self.broker.counters.publishes_received);
        if publish.qos == 2 {
            self.flush(burst);
            return self.hold(publish, now);
        }
        let ticket = match self.reserve(&publish) {
            Ok(ticket) => ticket,
            Err(flow) => return flow,
        };
        if let Some(ask) = self.asked(&publish) {
            self.flush(burst);
            return self.take_request(&publish, ticket, ask);
        }
        let publisher = Publisher {
            client_id: &self.session.publisher,
            worker: Some(self.number),
            turns: Some(&self.handle.turns),
        };
        let destination = match burst.known(&publish.topic) {
            Some(channel) => self
                .broker
                .check_bounds(&publish)
                .map(|()| Destination::Channel(channel)),
            None => self.broker.judge(&publish),
        };
        if let Ok(Destination::Channel(channel)) = destination {
            self.keep(burst, ticket, channel, publish, now);
            return Flow::Continue;
        }
        if publish.qos > 0 && !publish.retain && matches!(destination, Ok(Destination::Broadcast)) {
            let message = Broker::message(self.session.publisher.clone(), publish, now).detached();
            if self.broker.is_owed(&message) {
                self.log(burst, ticket, message);
            } else {
                self.broker.broadcast_in(&self.handle.turns, message, now);
                if let Some(ticket) = ticket {
                    self.session.settle(self.number, ticket, Ok(()));
                }
            }
            return Flow::Continue;
        }
        let session = self.session.clone();
        let number = self.number;
        self.broker.publish(
            &publisher,
            publish,
            now,
            Box::new(move |outcome| {
                if let Some(ticket) = ticket {
                    session.settle(number, ticket, outcome);
                }
            }),
        );
        Flow::Continue
    }

    /// Its client is back: the groups it is a member of may have waited for it.
    pub(super) fn rejoin_groups(&self, now: Now) {
        if self.broker.groups.is_empty() {
            return;
        }
        let groups: Vec<_> = {
            let state = self.session.lock();
            let shared = |(name, held): (&Arc<str>, &Arc<Subscription>)| {
                let is_shared = matches!(held.form, Form::Shared(_));
                is_shared.then(|| self.broker.groups.by_name(name))?
            };
            state.subscriptions.iter().filter_map(shared).collect()
        };
        self.broker.serve_groups(&groups, now);
    }

    /// Keeps the place of the answer to a publish at QoS 1; none at QoS 0. The error is what the reader does
    /// where there is no place.
    fn reserve(&self, publish: &Publish) -> Result<Option<u64>, Flow> {
        let mut state = self.session.lock();
        let Some(link) = state.owned_by(self.number) else {
            return Err(Flow::Stop);
        };
        if !link.acks.has_room() {
            drop(state);
            self.close(Refusal::new(
                Reason::ReceiveMaximumExceeded,
                "more publishes are unanswered than Receive Maximum allows",
            ));
            return Err(Flow::Stop);
        }
        let kind = AckKind::Puback;
        Ok((publish.qos > 0).then(|| link.acks.reserve(kind, publish.packet_id)))
    }

    /// A PINGREQ.
    pub fn ping(&self) -> Flow {
        let mut state = self.session.lock();
        match state.owned_by(self.number) {
            Some(link) => {
                link.reply(Outgoing::Pingresp);
                Flow::Continue
            }
            None => Flow::Stop,
        }
    }

    /// What the writer writes next, in order, up to about `budget` bytes of it. What is taken
    /// counts as sent: it is handed to the socket right after.
    pub fn take(&self, budget: usize, out: &mut Vec<Outgoing>, now: Now) -> Taken {
        let ending = self.handle.ending();
        let mut turn = Turn::new(budget, out, now);
        let taken = {
            let mut state = self.session.lock();
            let owned = state.owned_by(self.number).is_some();
            if owned {
                self.take_replies(&mut state, &mut turn);
            }
            match ending {
                // What was answered goes out before the goodbye.
                Some(_) if owned && turn.budget.is_spent() => Taken::More,
                Some(Ending::Told(refusal)) => {
                    turn.out.push(Outgoing::Disconnect(refusal));
                    Taken::Close
                }
                Some(Ending::Quiet) => Taken::Close,
                // What it asked for at the end is on its way to the store; the close follows that
                // (invariant 18).
                None if !owned => Taken::Idle,
                // An answer just taken ends it.
                None if self.handle.is_closing() => Taken::More,
                None => self.take_deliveries(&mut state, &mut turn),
            }
        };
        let (unsent, asks, returned) = (turn.unsent, turn.asks, turn.returned);
        let freed = turn.freed;
        self.return_unsent(unsent);
        self.ask_queues(asks);
        if freed {
            self.broker.return_to_groups(returned, now);
            self.ask_groups(now);
        }
        taken
    }

    fn take_replies(&self, state: &mut State, turn: &mut Turn<'_>) {
        let budget = &mut turn.budget;
        let mut refused = Vec::new();
        let Some(link) = state.link.as_mut() else {
            return;
        };
        let had_room = link.has_room();
        while !budget.is_spent()
            && let Some(reply) = link.take_reply()
        {
            budget.spend(64);
            turn.out.push(reply);
        }
        while !budget.is_spent()
            && let Some((kind, packet_id, outcome)) = link.acks.pop()
        {
            budget.spend(8);
            let (reason, text) = match outcome {
                Ok(()) => (Reason::Success, None),
                // Nothing is held, and its PUBCOMP has no place to say so.
                Err(_) if link.protocol == Protocol::V311 && kind == AckKind::Pubcomp => {
                    (Reason::Success, None)
                }
                Err(refusal) if link.protocol == Protocol::V311 => {
                    // MQTT 3.1.1 has no word for it, so it is never acknowledged: the client
                    // keeps the message and learns of it by the close.
                    link.handle.close(refusal);
                    break;
                }
                Err(refusal) => (refusal.reason, link.problem_text(&refusal.text)),
            };
            turn.out.push(match kind {
                AckKind::Puback => Outgoing::Puback {
                    packet_id,
                    reason,
                    text,
                },
                AckKind::Pubrec => {
                    if reason != Reason::Success {
                        refused.push(packet_id);
                    }
                    Outgoing::Pubrec {
                        packet_id,
                        reason,
                        text,
                    }
                }
                AckKind::Pubcomp => Outgoing::Pubcomp { packet_id, reason },
            });
        }
        if !had_room && link.has_room() {
            link.handle.wake_reader();
        }
        for packet_id in refused {
            state.refused_exactly_once(packet_id);
        }
    }
}

impl Session {
    /// The outcomes of publishes of connection `number`, as [`settle`](Self::settle).
    pub(super) fn settle_all(&self, number: u64, outcomes: Vec<(u64, Outcome)>) {
        let mut state = self.lock();
        let Some(link) = state.owned_by(number) else {
            return;
        };
        let mut due = false;
        for (ticket, outcome) in outcomes {
            due |= link.acks.settle(ticket, outcome);
        }
        if due {
            link.handle.wake_writer();
        }
    }

    /// The outcome of a publish of connection `number`: its PUBACK goes out in its turn.
    pub(super) fn settle(&self, number: u64, ticket: u64, outcome: Outcome) {
        let mut state = self.lock();
        // A connection that has lost the session is owed nothing any more.
        let Some(link) = state.owned_by(number) else {
            return;
        };
        if link.acks.settle(ticket, outcome) {
            link.handle.wake_writer();
        }
    }
}

/// Bytes the writer still takes in this turn. The first packet always fits.
pub(crate) struct Budget {
    left: usize,
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Budget { left: bytes }
    }

    pub fn left(&self) -> usize {
        self.left
    }

    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

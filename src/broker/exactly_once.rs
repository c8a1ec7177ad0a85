//! QoS 2 from a client: held between PUBREC and PUBREL, released in one step.
//!
//! What was received and not released is a *hold* in the store of the channel or broadcast log it is
//! for: it has no offset and nobody sees it. Whatever happens in between, it lands once.
//!
//! | state | moved on by |
//! |---|---|
//! | storing | stored → held, and the PUBREC goes out; refused → gone, and the PUBREC says why |
//! | held | PUBREL → releasing; `expires_after` → gone; the end of its session → gone |
//! | releasing | stored → gone, and the PUBCOMP goes out; refused → held, and the connection ends |
//! | answered (it asked the broker something, or answered a job: done at the PUBLISH) | PUBREL → gone |
//!
//! A PUBLISH under an identifier that is held is answered and not stored again. A crash finds the
//! hold, or the record, and never both: releasing is one operation of the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::storage::{
    ChannelKind, Message, Operation, ReadError, Receipt, Record, Store, StoreError,
};

use super::connection::{Connection, Flow};
use super::counters::{Refused, bump};
use super::fanout::HeldMessage;
use super::packet::Publish;
use super::publish::{Answer, Destination, Publisher, text};
use super::reason::{Reason, Refusal};
use super::session::acks::{AckKind, Outcome};
use super::session::{Session, State};
use super::settings::RECEIVE_MAXIMUM;
use super::time::Now;
use super::topic::ChannelIndex;
use super::turns::Turns;
use super::wake::Committed;
use super::{Broker, lock};

/// Holds read from a store in one step of a start.
const RESTORE_STEP: usize = 1024;

/// A QoS 2 publish between its PUBREC and its PUBREL.
pub(crate) struct Hold {
    phase: Phase,
    /// When it was received, on the clock that never steps.
    since: Duration,
}

enum Phase {
    /// Connection numbers and tickets of the PUBRECs that wait for the store.
    Storing(Vec<(u64, u64)>, Arc<dyn Store>),
    Held(Arc<dyn Store>),
    Releasing,
    Answered,
}

/// The key a hold lies under: whose it is, of which of that client's sessions, and its identifier.
/// A client identifier holds no control character, so none is the beginning of another's key.
fn hold_key(session: &Session, packet_id: u16) -> Bytes {
    let mut key = Vec::with_capacity(session.client_id.len() + 11);
    key.extend_from_slice(session.client_id.as_bytes());
    key.push(0);
    key.extend_from_slice(&session.stamp.to_be_bytes());
    key.extend_from_slice(&packet_id.to_be_bytes());
    key.into()
}

/// Client identifier, stamp and packet identifier of a key.
fn read_key(key: &[u8]) -> Option<(&str, u64, u16)> {
    let (key, packet_id) = key.split_last_chunk::<2>()?;
    let (key, stamp) = key.split_last_chunk::<8>()?;
    let client_id = std::str::from_utf8(key.strip_suffix(&[0])?).ok()?;
    let numbers = (u64::from_be_bytes(*stamp), u16::from_be_bytes(*packet_id));
    Some((client_id, numbers.0, numbers.1))
}

impl Connection {
    /// A PUBLISH at QoS 2. Whatever was published before it has been handed to the store.
    pub(super) fn hold(&self, publish: Publish, now: Now) -> Flow {
        let packet_id = publish.packet_id;
        let ask = self.asked(&publish);
        let ticket = {
            let mut state = self.session.lock();
            let State { holds, link, .. } = &mut *state;
            let Some(link) = link.as_mut().filter(|link| link.number == self.number) else {
                return Flow::Stop;
            };
            let unfinished = holds.len();
            if let Some(hold) = holds.get_mut(&packet_id) {
                // Sent again: it is answered as the first was, and kept once (MQTT-4.3.3-10).
                let ticket = link.acks.reserve(AckKind::Pubrec, packet_id);
                match &mut hold.phase {
                    Phase::Storing(waiting, _) => waiting.push((self.number, ticket)),
                    _ => {
                        if link.acks.settle(ticket, Ok(())) {
                            link.handle.wake_writer();
                        }
                    }
                }
                return Flow::Continue;
            }
            if unfinished >= usize::from(RECEIVE_MAXIMUM) {
                drop(state);
                self.close(Refusal::new(
                    Reason::ReceiveMaximumExceeded,
                    "more QoS 2 publishes are unfinished than Receive Maximum allows",
                ));
                return Flow::Stop;
            }
            let ticket = link.acks.reserve(AckKind::Pubrec, packet_id);
            if unfinished >= self.broker.settings.max_inflight_per_client {
                drop(state);
                self.refuse_hold(
                    ticket,
                    Refusal::new(
                        Reason::QuotaExceeded,
                        format!(
                            "at most {} QoS 2 publishes of a client are unfinished here; release some",
                            self.broker.settings.max_inflight_per_client
                        ),
                    ),
                );
                return Flow::Continue;
            }
            ticket
        };
        if let Some(ask) = ask {
            self.mark_answered(packet_id, now);
            return self.take_request(&publish, Some(ticket), ask);
        }
        match self.broker.judge(&publish) {
            Err(refusal) => self.refuse_hold(ticket, refusal),
            Ok(Destination::QueueResponse(_)) => self.answer_at_once(ticket, publish, now),
            Ok(Destination::Channel(index)) => {
                let channel = self.broker.channel(index);
                let message = Broker::message(self.session.publisher.clone(), publish, now);
                if let Err(full) = channel.store.room_for(channel.id, &message) {
                    let refusal = self.broker.not_stored(index, &full);
                    self.session.settle(self.number, ticket, Err(refusal));
                } else {
                    self.store_hold(packet_id, ticket, channel.store.clone(), message, now);
                }
            }
            Ok(Destination::Broadcast) => {
                let message = Broker::message(self.session.publisher.clone(), publish, now);
                let store = self.broker.log.store.clone();
                self.store_hold(packet_id, ticket, store, message, now);
            }
        }
        Flow::Continue
    }

    fn refuse_hold(&self, ticket: u64, refusal: Refusal) {
        self.broker
            .counters
            .refuse(Refused::Publish, refusal.reason);
        tracing::debug!(client = self.client_id(), %refusal, "publish refused");
        self.session.settle(self.number, ticket, Err(refusal));
    }

    /// The answer to a job: done now, and by a repeat of it no second time.
    fn answer_at_once(&self, ticket: u64, publish: Publish, now: Now) {
        self.mark_answered(publish.packet_id, now);
        let (session, number) = (self.session.clone(), self.number);
        let publisher = Publisher {
            client_id: &self.session.publisher,
            worker: Some(self.number),
            turns: None,
        };
        let answer: Answer = Box::new(move |outcome| session.settle(number, ticket, outcome));
        self.broker.publish(&publisher, publish, now, answer);
    }

    /// A QoS 2 publish that is carried out when it comes: its PUBREL has nothing left to release.
    fn mark_answered(&self, packet_id: u16, now: Now) {
        let mut state = self.session.lock();
        if state.owned_by(self.number).is_some() {
            let answered = Hold {
                phase: Phase::Answered,
                since: now.since_start,
            };
            let at = self.broker.hold_expires(&answered);
            state.holds.insert(packet_id, answered);
            self.broker.schedule_expiry(&self.session, packet_id, at);
        }
    }

    fn store_hold(
        &self,
        packet_id: u16,
        ticket: u64,
        store: Arc<dyn Store>,
        message: Message,
        now: Now,
    ) {
        {
            let mut state = self.session.lock();
            if state.owned_by(self.number).is_none() {
                return;
            }
            let storing = Hold {
                phase: Phase::Storing(vec![(self.number, ticket)], store.clone()),
                since: now.since_start,
            };
            state.holds.insert(packet_id, storing);
        }
        let hold = Operation::Hold {
            key: hold_key(&self.session, packet_id),
            message,
        };
        let (broker, session) = (self.broker.clone(), self.session.clone());
        store.submit(
            hold.into(),
            Box::new(move |stored| broker.hold_stored(&session, packet_id, stored)),
        );
    }

    /// A PUBREL.
    pub fn pubrel(&self, packet_id: u16) -> Flow {
        let (ticket, store) = {
            let mut state = self.session.lock();
            let State { holds, link, .. } = &mut *state;
            let Some(link) = link.as_mut().filter(|link| link.number == self.number) else {
                return Flow::Stop;
            };
            let settled = |outcome: Outcome, link: &mut super::session::Link| {
                let ticket = link.acks.reserve(AckKind::Pubcomp, packet_id);
                if link.acks.settle(ticket, outcome) {
                    link.handle.wake_writer();
                }
                Flow::Continue
            };
            let Some(hold) = holds.get_mut(&packet_id) else {
                return settled(Err(nothing_held()), link);
            };
            match &hold.phase {
                // The client is ahead of its answer: what comes of it is known soon.
                Phase::Storing(..) | Phase::Releasing => return Flow::Retry,
                Phase::Answered => {
                    self.broker.forget_expiry(&self.session, packet_id, hold);
                    holds.remove(&packet_id);
                    return settled(Ok(()), link);
                }
                Phase::Held(store) => {
                    let store = store.clone();
                    hold.phase = Phase::Releasing;
                    (link.acks.reserve(AckKind::Pubcomp, packet_id), store)
                }
            }
        };
        let release = Release {
            broker: self.broker.clone(),
            session: self.session.clone(),
            number: self.number,
            packet_id,
            ticket,
            store,
            turns: self.handle.turns.clone(),
        };
        release.begin();
        Flow::Continue
    }
}

fn nothing_held() -> Refusal {
    Refusal::new(
        Reason::PacketIdentifierNotFound,
        "nothing is held under this packet identifier",
    )
}

/// A PUBREL being carried out.
struct Release {
    broker: Arc<Broker>,
    session: Arc<Session>,
    /// The connection that asked for it.
    number: u64,
    packet_id: u16,
    ticket: u64,
    store: Arc<dyn Store>,
    turns: Arc<Turns>,
}

impl Release {
    fn key(&self) -> Bytes {
        hold_key(&self.session, self.packet_id)
    }

    fn begin(self) {
        let message = match self.store.held(&self.key()) {
            Ok(Some(message)) => message.detached(),
            Ok(None) => return self.concluded(Err(StoreError::NotHeld)),
            Err(ReadError::Failed(why)) => return self.concluded(Err(StoreError::Failed(why))),
            Err(ReadError::BelowFloor { .. }) => {
                return self.concluded(Err(StoreError::NotHeld));
            }
        };
        let topic = message.topic.clone();
        match self.broker.destination(text(&topic)) {
            Ok(Destination::Channel(index)) => self.into_channel(index, message),
            Ok(Destination::Broadcast) => self.into_broadcast(message),
            // The configuration has changed since: nobody may publish there now.
            Ok(Destination::QueueResponse(_)) | Err(_) => {
                tracing::warn!(
                    client = %self.session.client_id,
                    topic = text(&topic),
                    "a QoS 2 publish held from before is for a topic that takes none now, and is dropped"
                );
                bump(&self.broker.counters.exactly_once_dropped);
                let drop = Operation::Drop { key: self.key() };
                let store = self.store.clone();
                store.submit(
                    drop.into(),
                    Box::new(move |_| self.concluded(Err(StoreError::NotHeld))),
                );
            }
        }
    }

    fn into_channel(self, index: ChannelIndex, mut message: Message) {
        let broker = self.broker.clone();
        let channel = broker.channel(index);
        if channel.kind == ChannelKind::Queue && std::mem::take(&mut message.retain) {
            bump(&broker.counters.queue_retain_dropped);
        }
        let kept = message.clone();
        let id = channel.id;
        let into = match channel.kind {
            ChannelKind::Append => Operation::Append {
                channel: id,
                message,
            },
            ChannelKind::Latest => Operation::Set {
                channel: id,
                message,
            },
            ChannelKind::Queue => Operation::Enqueue {
                channel: id,
                message,
            },
        };
        if Arc::ptr_eq(&channel.store, &self.store) {
            let release = Operation::Release {
                key: self.key(),
                into: Box::new(into),
            };
            let store = self.store.clone();
            store.submit(
                release.into(),
                Box::new(move |stored| self.landed(index, kept, stored)),
            );
            return;
        }
        // The channel has moved to another provider since: what is in two stores cannot be one step,
        // and landing comes first.
        channel.store.submit(
            into.into(),
            Box::new(move |stored| {
                if stored.is_ok() {
                    let drop = Operation::Drop { key: self.key() };
                    self.store.submit(drop.into(), Box::new(|_| {}));
                }
                self.landed(index, kept, stored);
            }),
        );
    }

    /// The channel has it, or not: the answer goes first, then its readers are woken.
    fn landed(self, index: ChannelIndex, message: Message, stored: Result<Receipt, StoreError>) {
        let broker = self.broker.clone();
        let offset = match &stored {
            Ok(receipt) => receipt.offsets.first().copied().flatten(),
            Err(_) => None,
        };
        self.concluded(stored.map(|_| ()));
        let Some(offset) = offset else { return };
        match &broker.channel(index).queue {
            Some(queue) => queue.enqueued(&[Record { offset, message }]),
            None => broker.committed([Committed {
                channel: index,
                topic: message.topic,
                offset,
            }]),
        }
    }

    fn into_broadcast(self, message: Message) {
        let broker = self.broker.clone();
        let hold = HeldMessage {
            key: self.key(),
            store: self.store.clone(),
            message,
            turn: self.turns.take(),
        };
        broker.release_broadcast(hold, Box::new(move |stored| self.concluded(stored)));
    }

    /// What the PUBREL came to.
    fn concluded(self, outcome: Result<(), StoreError>) {
        let mut state = self.session.lock();
        let answer = match &outcome {
            Ok(()) => Ok(()),
            Err(StoreError::NotHeld) => Err(nothing_held()),
            Err(error) => {
                // It stays as it was, and the same PUBREL sent again completes it later.
                if let Some(hold) = state.holds.get_mut(&self.packet_id) {
                    hold.phase = Phase::Held(self.store.clone());
                }
                let (reason, what) = if error.is_full() {
                    (Reason::QuotaExceeded, "there is no room for it now")
                } else {
                    (Reason::ImplementationSpecific, "it could not be stored")
                };
                tracing::debug!(client = %self.session.client_id, %error, "a QoS 2 publish was not released");
                if let Some(link) = state.owned_by(self.number) {
                    let text = format!("a QoS 2 publish stays held: {what}: {error}");
                    if link.handle.close(Refusal::new(reason, text)) {
                        self.broker.counters.refuse(Refused::Disconnect, reason);
                    }
                }
                state.wake_reader();
                return;
            }
        };
        if let Some(hold) = state.holds.remove(&self.packet_id) {
            self.broker
                .forget_expiry(&self.session, self.packet_id, &hold);
        }
        if let Some(link) = state.owned_by(self.number)
            && link.acks.settle(self.ticket, answer)
        {
            link.handle.wake_writer();
        }
        state.wake_reader();
    }
}

impl Broker {
    fn hold_expires(&self, hold: &Hold) -> Duration {
        hold.since
            .saturating_add(self.settings.exactly_once_expires_after)
    }

    fn forget_expiry(&self, session: &Session, packet_id: u16, hold: &Hold) {
        let at = self.hold_expires(hold);
        lock(&self.schedule.holds).remove(&(at, session.key, packet_id));
    }

    fn schedule_expiry(&self, session: &Arc<Session>, packet_id: u16, at: Duration) {
        lock(&self.schedule.holds).insert((at, session.key, packet_id), session.clone());
        self.schedule.wake();
    }

    /// A hold is stored, or is not: its PUBRECs go out.
    fn hold_stored(
        self: &Arc<Self>,
        session: &Arc<Session>,
        packet_id: u16,
        stored: Result<Receipt, StoreError>,
    ) {
        let mut state = session.lock();
        // Gone where its session ended meanwhile, which has it dropped in the store.
        let Some(hold) = state.holds.get_mut(&packet_id) else {
            return;
        };
        let Phase::Storing(waiting, store) = &mut hold.phase else {
            return;
        };
        let waiting = std::mem::take(waiting);
        let store = store.clone();
        let outcome: Outcome = match &stored {
            Ok(_) => {
                hold.phase = Phase::Held(store);
                let at = self.hold_expires(hold);
                self.schedule_expiry(session, packet_id, at);
                Ok(())
            }
            Err(error) => {
                state.holds.remove(&packet_id);
                Err(self.refused_by_store(error))
            }
        };
        for (number, ticket) in waiting {
            if let Some(link) = state.owned_by(number)
                && link.acks.settle(ticket, outcome.clone())
            {
                link.handle.wake_writer();
            }
        }
        state.wake_reader();
    }

    /// Why a store did not keep what belongs to no channel, in the words of an answer.
    pub(crate) fn refused_by_store(&self, error: &StoreError) -> Refusal {
        if *error == StoreError::ProviderFull {
            self.log.press();
        }
        let reason = if error.is_full() {
            Reason::QuotaExceeded
        } else {
            Reason::ImplementationSpecific
        };
        self.counters.refuse(Refused::Publish, reason);
        Refusal::new(reason, error.to_string())
    }

    /// The session ends: what it had received and not released goes with it. Called under its lock,
    /// so that the drops follow whatever was submitted for the holds.
    pub(crate) fn drop_holds(&self, session: &Session, state: &mut State) {
        for (packet_id, hold) in std::mem::take(&mut state.holds) {
            self.forget_expiry(session, packet_id, &hold);
            match hold.phase {
                Phase::Storing(_, store) | Phase::Held(store) => {
                    bump(&self.counters.exactly_once_dropped);
                    self.drop_hold(session, packet_id, &store);
                }
                // It lands: its client had asked for that.
                Phase::Releasing | Phase::Answered => {}
            }
        }
    }

    fn drop_hold(&self, session: &Session, packet_id: u16, store: &Arc<dyn Store>) {
        let drop = Operation::Drop {
            key: hold_key(session, packet_id),
        };
        let client = session.client_id.clone();
        store.submit(
            drop.into(),
            Box::new(move |outcome| match outcome {
                Ok(_) | Err(StoreError::NotHeld) => {}
                Err(error) => {
                    // The next start drops it: its session is not there then.
                    tracing::error!(%client, %error, "a QoS 2 publish could not be dropped from the store");
                }
            }),
        );
    }

    /// Drops what was not released in time.
    pub(crate) fn tick_holds(&self, now: Now) {
        loop {
            let ((_, _, packet_id), session) = {
                let mut holds = lock(&self.schedule.holds);
                match holds.first_entry() {
                    Some(entry) if entry.key().0 <= now.since_start => entry.remove_entry(),
                    _ => return,
                }
            };
            let mut state = session.lock();
            let Some(hold) = state.holds.get(&packet_id) else {
                continue;
            };
            if self.hold_expires(hold) > now.since_start {
                // Another than the one this was set for, which has gone.
                continue;
            }
            match &hold.phase {
                Phase::Held(store) => {
                    let store = store.clone();
                    state.holds.remove(&packet_id);
                    bump(&self.counters.exactly_once_expired);
                    self.drop_hold(&session, packet_id, &store);
                }
                Phase::Releasing => {
                    // Judged again if that comes to nothing.
                    let later = Broker::after_seconds(now, 1);
                    self.schedule_expiry(&session, packet_id, later);
                }
                // Carried out when it came: all that goes is what a repeat was known by.
                Phase::Answered => {
                    state.holds.remove(&packet_id);
                }
                Phase::Storing(..) => {}
            }
        }
    }

    /// Gives the sessions that were stored what the stores hold back for them, and drops the rest:
    /// it is of sessions that ended.
    pub(crate) fn restore_holds(&self, now: Now) {
        let mut dropped: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
        for (number, store) in self.stores.iter().enumerate() {
            let mut after: Option<Bytes> = None;
            loop {
                let holds = store.holds(after.as_deref(), RESTORE_STEP);
                let Some((last, _)) = holds.last() else { break };
                after = Some(last.clone());
                for (key, received_at) in holds {
                    if !self.restore_hold(&key, received_at, store, now) {
                        dropped.entry(number).or_default().push(key);
                    }
                }
            }
        }
        for (number, keys) in dropped {
            for key in keys {
                bump(&self.counters.exactly_once_dropped);
                let drop = Operation::Drop { key };
                self.stores[number].submit(drop.into(), Box::new(|_| {}));
            }
        }
    }

    fn restore_hold(
        &self,
        key: &Bytes,
        received_at: Option<u64>,
        store: &Arc<dyn Store>,
        now: Now,
    ) -> bool {
        let Some((client_id, stamp, packet_id)) = read_key(key) else {
            return false;
        };
        let session = lock(&self.registry).session(client_id);
        let Some(session) = session.filter(|session| session.stamp == stamp) else {
            return false;
        };
        let waited = now
            .unix_ms
            .saturating_sub(received_at.unwrap_or(now.unix_ms));
        let left = self
            .settings
            .exactly_once_expires_after
            .saturating_sub(Duration::from_millis(waited));
        if left.is_zero() {
            return false;
        }
        let mut state = session.lock();
        // Counted from here so that it runs out when it would have.
        let at = now.since_start + left;
        let since = at.saturating_sub(self.settings.exactly_once_expires_after);
        let hold = Hold {
            phase: Phase::Held(store.clone()),
            since,
        };
        let at = self.hold_expires(&hold);
        state.holds.insert(packet_id, hold);
        self.schedule_expiry(&session, packet_id, at);
        true
    }
}

impl State {
    /// A QoS 2 publish that was carried out when it came was refused: nothing goes under its
    /// identifier.
    pub(super) fn refused_exactly_once(&mut self, packet_id: u16) {
        if let Some(hold) = self.holds.get(&packet_id)
            && matches!(hold.phase, Phase::Answered)
        {
            self.holds.remove(&packet_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_whose_it_is() {
        let session = Session::new(1, "a/client".into(), 77);
        let key = hold_key(&session, 258);
        assert_eq!(read_key(&key), Some(("a/client", 77, 258)));
        assert_eq!(read_key(&key[1..10]), None);
    }
}

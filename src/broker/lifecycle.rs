//! How a connection lets go of its session, and how a session ends.
//!
//! Each happens once. What was a worker's goes back to its queue at once; a session that outlives
//! its connection has its positions and the moment it was left stored; one that does not is ended
//! whole, record and positions in one batch.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::storage::{Batch, Operation};

use super::connection::{Connection, Flow};
use super::counters::bump;
use super::packet::Disconnect;
use super::queue::WorkerId;
use super::reason::{Reason, Refusal};
use super::session::broadcast::BroadcastDelivery;
use super::session::inflight::Held;
use super::session::retained_pass::RetainedPasses;
use super::session::{Session, State};
use super::time::Now;
use super::topic::ChannelIndex;
use super::will::{ArmedWill, WillCause};
use super::{Broker, lock};

/// What is left to do for a session that was let go of, once no lock is held.
pub(crate) struct Detached {
    session: Arc<Session>,
    /// The connection that worked on these queues.
    worker: Option<u64>,
    queues: Vec<ChannelIndex>,
    will: Option<(ArmedWill, WillCause)>,
    /// The writes it calls for; empty while a CONNECT of the same client decides what is stored.
    writes: Vec<Operation>,
    /// Messages of groups that go back to them.
    returns: Vec<BroadcastDelivery>,
    /// What becomes of its Will, which is this end's to say whoever comes next.
    will_writes: Vec<Operation>,
}

/// What becomes of the session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Another connection goes on with it at once.
    Resumed,
    /// It is kept for as long as its expiry says, or ends with its connection.
    Left,
    /// It ends now.
    Ended,
}

impl Detached {
    /// Its Will is published. Its moment is stored first: a crash in between makes it late, not lost.
    fn publishes(&mut self, will: ArmedWill, cause: WillCause, now: Now) {
        self.will_writes
            .extend(will.put(self.session.stamp, now.unix_ms));
        self.will = Some((will, cause));
    }
}

impl Broker {
    /// Takes a session from whatever connection owns it, for the sake of a CONNECT whose CONNACK
    /// has been written: the connection is told 0x8E. The store has been seen to by that CONNECT.
    pub(crate) fn detach(&self, session: &Arc<Session>, now: Now, ends: bool) -> Detached {
        let mut state = session.lock();
        let fate = if ends { Fate::Ended } else { Fate::Resumed };
        if let Some(link) = &state.link {
            link.handle.close(Refusal::new(
                Reason::SessionTakenOver,
                "another connection uses this client identifier now",
            ));
        }
        // Armed, and its connection ended with an earlier process: its client's return replaces it.
        let unmissed = state.link.is_none() && state.will_due.is_none();
        let replaced = state.will.take_if(|_| unmissed);
        let mut detached = self.release(session, &mut state, fate, now);
        detached.writes.clear();
        let replaced = replaced.and_then(|will| will.delete());
        detached.will_writes.extend(replaced);
        detached
    }

    /// Carries out what a release left to do. Called with no lock held. `stored` is called once
    /// everything that had to be stored is.
    pub(crate) fn finish_detached(self: &Arc<Self>, detached: Detached, now: Now) {
        self.finish_then(detached, now, None);
    }

    fn finish_then(
        self: &Arc<Self>,
        detached: Detached,
        now: Now,
        stored: Option<Box<dyn FnOnce() + Send>>,
    ) {
        if let Some(worker) = detached.worker {
            for queue in detached.queues {
                if let Some(queue) = &self.channel(queue).queue {
                    queue.worker_gone(WorkerId(worker));
                }
            }
        }
        self.return_to_groups(detached.returns, now);
        let session = detached.session;
        let mut operations = detached.writes;
        operations.extend(detached.will_writes);
        self.store_end(&session, Batch { operations }, stored);
        // Behind its due moment, so that what is stored last is that it is gone.
        if let Some((will, cause)) = detached.will {
            self.publish_will(&session.client_id, will, cause, now);
        }
    }

    fn store_end(
        self: &Arc<Self>,
        session: &Arc<Session>,
        batch: Batch,
        stored: Option<Box<dyn FnOnce() + Send>>,
    ) {
        if batch.operations.is_empty() {
            if let Some(stored) = stored {
                stored();
            }
            return;
        }
        let broker = self.clone();
        let session = session.clone();
        self.session_store.submit(
            batch,
            Box::new(move |outcome| {
                if let Err(error) = outcome {
                    bump(&broker.counters.session_store_errors);
                    tracing::error!(
                        client = %session.client_id,
                        %error,
                        "the end of a connection could not be stored; it is tried again every second"
                    );
                    session.lock().window_lost = true;
                    broker.write_again(session);
                }
                if let Some(stored) = stored {
                    stored();
                }
            }),
        );
    }

    /// Takes the session from its connection. Everything that can be done under its lock.
    fn release(&self, session: &Arc<Session>, state: &mut State, fate: Fate, now: Now) -> Detached {
        let link = state.link.take();
        self.schedule.session_not_due(session, state);
        let mut detached = Detached {
            session: session.clone(),
            worker: link.as_ref().map(|link| link.number),
            queues: std::mem::take(&mut state.queues).into_iter().collect(),
            will: None,
            writes: Vec::new(),
            returns: Vec::new(),
            will_writes: Vec::new(),
        };
        // The queue returns them as it learns that the worker is gone.
        state.offers.clear();
        state.reserved = 0;
        state.refused_queues.clear();
        state.unstored.clear();
        state.stored_out.clear();
        let kept = fate != Fate::Ended && state.expiry_seconds > 0;
        detached.returns = state.broadcast.take_shared();
        state.refused_groups.clear();
        if !kept {
            self.store_returns(session, state);
            self.take_back_shared(state, &mut detached.returns);
        }
        if kept {
            state.broadcast.away();
            state.retained.away();
        } else {
            state.broadcast.clear();
            state.retained = RetainedPasses::default();
        }
        state.inflight.connection_ended();
        state.resend_read = None;
        for reader in state.readers.values_mut() {
            reader.away();
        }
        let outlives = state.expiry_seconds > 0;
        match fate {
            Fate::Resumed => {
                // A Will that waits out a delay is withdrawn by the return of its client, and one
                // without a delay is due, for its connection is closed (MQTT-3.1.3-9).
                state.will_due = None;
                if let Some(will) = state.will.take() {
                    if link.is_some() && will.will.delay_seconds == 0 {
                        detached.publishes(will, WillCause::Immediate, now);
                    } else {
                        detached.will_writes.extend(will.delete());
                    }
                }
            }
            Fate::Left if outlives => {
                // A stop of the broker is no failure of its clients and publishes no Will; the next
                // start finds it armed.
                if !self.stopping.load(SeqCst)
                    && let Some(will) = state.will.take()
                {
                    let delay = will.will.delay_seconds.min(state.expiry_seconds);
                    if delay == 0 {
                        detached.publishes(will, WillCause::Immediate, now);
                    } else {
                        let due_unix_ms = now.unix_ms + 1000 * u64::from(delay);
                        detached
                            .will_writes
                            .extend(will.put(session.stamp, due_unix_ms));
                        state.will = Some(will);
                        state.will_due = Some((Broker::after_seconds(now, delay), due_unix_ms));
                    }
                }
                let expires_at = Broker::after_seconds(now, state.expiry_seconds);
                state.away_since_unix_ms = Some(now.unix_ms);
                state.expires_at = Some(expires_at);
                let first = state
                    .will_due
                    .map_or(expires_at, |(due, _)| due.min(expires_at));
                self.schedule.session_at(session, state, first);
                if !state.claimed {
                    state.window_dirty |= state.has_window();
                    detached.writes = session.put_moved_positions(state);
                    let record = session.put_record(state, state.expiry_seconds, Some(now.unix_ms));
                    // It was stored before with as many subscriptions, so it can be written down.
                    detached.writes.extend(record);
                }
            }
            Fate::Left | Fate::Ended => {
                // A session that ends with its Will waiting publishes it (MQTT-3.1.2-8).
                if let Some(will) = state.will.take()
                    && !self.stopping.load(SeqCst)
                {
                    let cause = if link.is_some() && will.will.delay_seconds == 0 {
                        WillCause::Immediate
                    } else {
                        WillCause::SessionEnded
                    };
                    detached.publishes(will, cause, now);
                }
                state.will_due = None;
                state.ended = true;
                session.set_outlives(false);
                self.drop_holds(session, state);
                if !state.claimed {
                    detached.writes = session.delete_everything(state);
                }
                self.forget_subscriptions(session, state);
            }
        }
        detached
    }

    /// What a group handed to a session that ends is the group's again, if its client cannot have it
    /// for good: at QoS 2 it may, so that is dropped.
    fn take_back_shared(&self, state: &mut State, returns: &mut Vec<BroadcastDelivery>) {
        let mut back = Vec::new();
        for on_its_way in state.inflight.on_their_way() {
            let Held::Broadcast(delivery) = on_its_way.held else {
                continue;
            };
            let Some(group) = &delivery.group else {
                continue;
            };
            if on_its_way.qos == 1 {
                back.push(delivery);
            } else {
                group.is_done_with(&delivery);
                bump(&self.counters.shared_unreceived);
            }
        }
        state
            .inflight
            .remove_where(|held| matches!(held, Held::Broadcast(d) if d.group.is_some()));
        // Ahead of what waited behind them.
        back.append(returns);
        *returns = back;
    }

    /// Ends an away session whose time has come, or publishes the Will it left waiting; whichever
    /// is due. Nothing where its client is back, or about to be.
    pub(crate) fn session_due(self: &Arc<Self>, session: &Arc<Session>, now: Now) {
        let detached = {
            let mut state = session.lock();
            self.schedule.session_not_due(session, &mut state);
            if state.ended || state.claimed || state.link.is_some() {
                if state.claimed {
                    // Judged again if that CONNECT comes to nothing.
                    let later = Broker::after_seconds(now, 1);
                    self.schedule.session_at(session, &mut state, later);
                }
                return;
            }
            if state.expires_at.is_some_and(|at| at <= now.since_start) {
                self.release(session, &mut state, Fate::Ended, now)
            } else {
                let mut will = None;
                if state
                    .will_due
                    .is_some_and(|(due, _)| due <= now.since_start)
                {
                    state.will_due = None;
                    will = state.will.take().map(|will| (will, WillCause::Delayed));
                }
                let due = state.will_due.map(|(due, _)| due);
                if let Some(at) = due.into_iter().chain(state.expires_at).min() {
                    self.schedule.session_at(session, &mut state, at);
                }
                Detached {
                    session: session.clone(),
                    worker: None,
                    queues: Vec::new(),
                    will,
                    writes: Vec::new(),
                    returns: Vec::new(),
                    will_writes: Vec::new(),
                }
            }
        };
        self.finish_detached(detached, now);
    }

    /// Ends every connection, for a stop. Sessions are kept or ended as their connections go.
    pub fn close_all(&self, refusal: &Refusal) {
        let sessions = lock(&self.registry).sessions();
        self.stopping.store(true, SeqCst);
        for session in sessions {
            if let Some(link) = &session.lock().link {
                link.handle.close(refusal.clone());
            }
        }
    }

    /// Writes a batch about a client's session that nobody waits for.
    pub(crate) fn submit_session_write(&self, client_id: &Arc<str>, batch: Batch) {
        if batch.operations.is_empty() {
            return;
        }
        let client = client_id.clone();
        self.session_store.submit(
            batch,
            Box::new(move |outcome| {
                if let Err(error) = outcome {
                    tracing::error!(%client, %error, "a session could not be put back in the store");
                }
            }),
        );
    }

    /// Puts a session on the list of those written again in a second.
    fn write_again(&self, session: Arc<Session>) {
        lock(&self.schedule.rewrites).push(session);
        self.schedule.wake();
    }

    /// Writes again what a session's end could not.
    pub(crate) fn rewrite(self: &Arc<Self>, session: Arc<Session>) {
        let (operations, client) = {
            let mut state = session.lock();
            // A client that is back has had its own writes since.
            let back = state.link.is_some() || state.claimed;
            let superseded = lock(&self.registry)
                .session(&session.client_id)
                .is_some_and(|current| current.key != session.key);
            if back || superseded {
                return;
            }
            state.dirty_positions.clear();
            (
                {
                    let sought = self.put_sought(&session, &state);
                    session.restore_everything(&mut state, sought)
                },
                session.client_id.clone(),
            )
        };
        let broker = self.clone();
        self.session_store.submit(
            Batch { operations },
            Box::new(move |outcome| match outcome {
                Ok(_) => tracing::info!(%client, "the session was stored after all"),
                Err(_) => broker.write_again(session),
            }),
        );
    }
}

impl Connection {
    /// The connection is gone. Runs once; later calls, and one from a connection that has lost
    /// the session, change nothing.
    pub fn end(&self, now: Now) {
        self.let_go(now, None, None);
        // Whatever still waits on the connection learns that there is nothing more to come.
        self.handle.close_quietly();
    }

    fn let_go(
        &self,
        now: Now,
        withdrawn: Option<ArmedWill>,
        stored: Option<Box<dyn FnOnce() + Send>>,
    ) {
        let mut detached = {
            let mut state = self.session.lock();
            if state.owned_by(self.number).is_none() {
                return;
            }
            self.broker
                .release(&self.session, &mut state, Fate::Left, now)
        };
        let withdrawn = withdrawn.and_then(|will| will.delete());
        detached.will_writes.extend(withdrawn);
        self.broker.finish_then(detached, now, stored);
    }

    /// A DISCONNECT. The connection is closed once what it changes is stored (invariant 18).
    pub fn disconnect(&self, disconnect: Disconnect, now: Now) -> Flow {
        let withdrawn = {
            let mut state = self.session.lock();
            if state.owned_by(self.number).is_none() {
                return Flow::Stop;
            }
            if state.claimed {
                return Flow::Retry;
            }
            if let Some(expiry) = disconnect.session_expiry {
                if state.expiry_seconds == 0 && expiry > 0 {
                    drop(state);
                    self.close(Refusal::new(
                        Reason::ProtocolError,
                        "a session that ends with its connection cannot be kept by a DISCONNECT; ask for it in the CONNECT",
                    ));
                    return Flow::Stop;
                }
                state.expiry_seconds = expiry.min(self.broker.settings.max_session_expiry);
                self.session.set_outlives(state.expiry_seconds > 0);
            }
            let withdraws = disconnect.reason_code == 0;
            withdraws.then(|| state.will.take()).flatten()
        };
        let handle = self.handle.clone();
        self.let_go(
            now,
            withdrawn,
            Some(Box::new(move || handle.close_quietly())),
        );
        Flow::Stop
    }
}

//! From a CONNECT to the ownership of a client identifier (invariants 17 and 18).
//!
//! Every check that can refuse runs before a session is looked at. Then the CONNECT waits its turn
//! among those of its client identifier, what its CONNACK will say is stored, and only when the
//! CONNACK has been written does ownership move. A claim dropped before that is given back: the
//! earlier session is as it was, and one begun by the claim never was.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::storage::{Batch, Operation, Space, StoreError};

use super::connection::{Connection, LinkHandle};
use super::counters::{Refused, bump};
use super::packet::{Connack, Connect, Protocol};
use super::reason::{Reason, Refusal};
use super::session::{Link, Session, State};
use super::settings::{RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM};
use super::time::Now;
use super::will::ArmedWill;
use super::{Broker, Wake, lock};

/// Who owns which client identifier, and which CONNECTs wait for one.
#[derive(Default)]
pub(crate) struct Registry {
    clients: HashMap<Arc<str>, Client>,
    last_number: u64,
}

#[derive(Default)]
struct Client {
    session: Option<Arc<Session>>,
    /// CONNECTs in the order they came; the one in front has its turn. Each is a connection, so
    /// `max_connections` bounds them.
    turns: VecDeque<(u64, Wake)>,
}

impl Registry {
    /// A number never given before in this process.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn session(&self, client_id: &str) -> Option<Arc<Session>> {
        self.clients.get(client_id)?.session.clone()
    }

    pub fn insert(&mut self, session: Arc<Session>) {
        let client = self.clients.entry(session.client_id.clone()).or_default();
        client.session = Some(session);
    }

    /// Forgets `session`, if it is still the one of its client identifier.
    pub fn remove(&mut self, session: &Session) {
        if let Some(client) = self.clients.get_mut(&session.client_id) {
            if client
                .session
                .as_ref()
                .is_some_and(|held| held.key == session.key)
            {
                client.session = None;
            }
            self.prune(&session.client_id);
        }
    }

    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.clients
            .values()
            .filter_map(|client| client.session.clone())
            .collect()
    }

    fn queue(&mut self, client_id: &Arc<str>, wake: Wake) -> u64 {
        let number = self.number();
        let client = self.clients.entry(client_id.clone()).or_default();
        client.turns.push_back((number, wake));
        number
    }

    fn has_turn(&self, client_id: &str, number: u64) -> bool {
        self.clients
            .get(client_id)
            .and_then(|client| client.turns.front())
            .is_some_and(|(front, _)| *front == number)
    }

    /// Ends a turn, or a wait for one; returns the wake-up of whoever is next.
    fn leave(&mut self, client_id: &str, number: u64) -> Option<Wake> {
        let client = self.clients.get_mut(client_id)?;
        client.turns.retain(|(waiting, _)| *waiting != number);
        let next = client.turns.front().map(|(_, wake)| wake.clone());
        if next.is_none() {
            client.turns = VecDeque::new();
        }
        self.prune(client_id);
        next
    }

    fn prune(&mut self, client_id: &str) {
        if let Some(client) = self.clients.get(client_id)
            && client.session.is_none()
            && client.turns.is_empty()
        {
            self.clients.remove(client_id);
        }
    }
}

/// The front end's wake-ups for one connection. Each may be called from any thread, often, and
/// never blocks.
#[derive(Clone)]
pub struct Wakes {
    /// Something may be there to write, or the connection is to be closed.
    pub writer: Wake,
    /// Reading may go on, a claim may have advanced, or the connection is to be closed.
    pub reader: Wake,
}

/// A CONNECT on its way to a session.
pub struct Claim {
    broker: Arc<Broker>,
    connect: Connect,
    client_id: Arc<str>,
    expiry_seconds: u32,
    wakes: Wakes,
    number: u64,
    /// Names what it has stored among all its client ever had.
    stamp: u64,
    step: Step,
}

enum Step {
    Turn,
    Storing(Plan, Arc<Mutex<Option<Result<(), StoreError>>>>),
    Ready(Plan),
    Over,
}

/// What the CONNACK will say, once it is true.
struct Plan {
    /// The session the client will have.
    session: Arc<Session>,
    /// The session it had, live or away, where that is another one.
    replaced: Option<Arc<Session>>,
    /// Whether the client goes on with the session it had.
    resumes: bool,
    /// Whether the store was asked to change anything.
    wrote: bool,
    /// The Will this CONNECT arms.
    will: Option<ArmedWill>,
}

impl Broker {
    /// Checks a CONNECT. A refusal has changed nothing.
    ///
    /// # Errors
    /// The reason for a CONNACK.
    pub fn connect(
        self: &Arc<Self>,
        mut connect: Connect,
        wakes: Wakes,
        now: Now,
    ) -> Result<Claim, Refusal> {
        if let Err(refusal) = self.admit(&connect) {
            self.counters.refuse(Refused::Connect, refusal.reason);
            return Err(refusal);
        }
        if connect.protocol == Protocol::V311 {
            connect.session_expiry = if connect.clean_start { 0 } else { u32::MAX };
        }
        let expiry_seconds = connect.session_expiry.min(self.settings.max_session_expiry);
        let client_id: Arc<str> = if connect.client_id.is_empty() {
            self.assign_client_id(now)
        } else {
            connect.client_id.as_str().into()
        };
        let number = lock(&self.registry).queue(&client_id, wakes.reader.clone());
        Ok(Claim {
            broker: self.clone(),
            connect,
            client_id,
            expiry_seconds,
            wakes,
            number,
            stamp: Broker::stamp(now, number),
            step: Step::Turn,
        })
    }

    fn assign_client_id(&self, now: Now) -> Arc<str> {
        format!("saguin-{}", super::publish::mint_id(now)).into()
    }

    fn admit(&self, connect: &Connect) -> Result<(), Refusal> {
        if connect.protocol == Protocol::V311 && !self.settings.admit_v311 {
            return Err(Refusal::new(
                Reason::UnsupportedVersion,
                "this broker admits MQTT 5 only",
            ));
        }
        if connect.authentication_method {
            return Err(Refusal::new(
                Reason::BadAuthenticationMethod,
                "no Authentication Method is served; send a user name and a password",
            ));
        }
        self.admit_client_id(connect)?;
        if let Some(key) = connect.user_properties.find_prefix(b"saguin-") {
            return Err(Refusal::new(
                Reason::ImplementationSpecific,
                format!(
                    "a CONNECT has no User Property {:?}; leave it out",
                    String::from_utf8_lossy(key)
                ),
            ));
        }
        match &connect.will {
            Some(will) => self.admit_will(will),
            None => Ok(()),
        }
    }

    fn admit_client_id(&self, connect: &Connect) -> Result<(), Refusal> {
        let invalid = |text: String| Err(Refusal::new(Reason::ClientIdNotValid, text));
        if connect.client_id.len() > self.settings.max_client_id_length {
            return invalid(format!(
                "a client identifier has at most {} bytes here",
                self.settings.max_client_id_length
            ));
        }
        if connect.client_id.chars().any(char::is_control) {
            return invalid("a client identifier holds no control character".into());
        }
        if connect.client_id.is_empty() && !connect.clean_start {
            return invalid(
                "an empty client identifier has no session to go on with; set Clean Start".into(),
            );
        }
        Ok(())
    }
}

impl Claim {
    /// Advances as far as it can without waiting. `Pending` until the reader's wake-up is called;
    /// then this is called again.
    ///
    /// # Errors
    /// The reason for a CONNACK: the store could not keep what it would have said.
    pub fn poll(&mut self, now: Now) -> Poll<Result<Connack, Refusal>> {
        loop {
            match std::mem::replace(&mut self.step, Step::Over) {
                Step::Turn => {
                    if !lock(&self.broker.registry).has_turn(&self.client_id, self.number) {
                        self.step = Step::Turn;
                        return Poll::Pending;
                    }
                    self.step = match self.plan(now) {
                        Ok(step) => step,
                        Err(refusal) => return Poll::Ready(Err(self.refuse(refusal))),
                    };
                }
                Step::Storing(plan, outcome) => {
                    let stored = lock(&outcome).take();
                    match stored {
                        None => {
                            self.step = Step::Storing(plan, outcome);
                            return Poll::Pending;
                        }
                        Some(Ok(())) => self.step = Step::Ready(plan),
                        Some(Err(error)) => {
                            // Nothing was stored, so there is nothing to take back there.
                            self.give_back(Plan {
                                wrote: false,
                                ..plan
                            });
                            bump(&self.broker.counters.session_store_errors);
                            let for_will = error.is_full() && self.connect.will.is_some();
                            let (reason, what) = if for_will {
                                (Reason::QuotaExceeded, "the session and its Will")
                            } else {
                                (Reason::ImplementationSpecific, "the session")
                            };
                            let text = format!("{what} could not be stored: {error}");
                            let refusal = Refusal::new(reason, text);
                            return Poll::Ready(Err(self.refuse(refusal)));
                        }
                    }
                }
                Step::Ready(plan) => {
                    let session_present = plan.resumes;
                    self.step = Step::Ready(plan);
                    return Poll::Ready(Ok(self.connack(session_present)));
                }
                Step::Over => {
                    return Poll::Ready(Err(Refusal::new(
                        Reason::Unspecified,
                        "this CONNECT was answered",
                    )));
                }
            }
        }
    }

    fn refuse(&self, refusal: Refusal) -> Refusal {
        self.broker
            .counters
            .refuse(Refused::Connect, refusal.reason);
        refusal
    }

    /// Decides, in its turn, which session the client will have, and has that stored.
    fn plan(&mut self, now: Now) -> Result<Step, Refusal> {
        let old = lock(&self.broker.registry).session(&self.client_id);
        let mut batch = Batch::default();
        let mut resumed = None;
        if let Some(old) = &old {
            let mut state = old.lock();
            if !self.connect.clean_start && self.broker.can_resume(old, &state, now) {
                if state.stored || self.expiry_seconds > 0 {
                    batch
                        .operations
                        .push(old.put_record(&state, self.expiry_seconds, None)?);
                }
                if state.will_due.is_some() {
                    // The return of its client withdraws a Will that waits.
                    let waiting = state.will.as_ref().and_then(ArmedWill::delete);
                    batch.operations.extend(waiting);
                }
                resumed = Some(old.clone());
            } else {
                self.broker.store_returns(old, &state);
                batch.operations.extend(old.delete_everything(&state));
            }
            state.claimed = true;
        }
        let mut plan = match (resumed, old) {
            (Some(session), _) => Plan {
                session,
                replaced: None,
                resumes: true,
                wrote: false,
                will: None,
            },
            (None, replaced) => {
                let key = lock(&self.broker.registry).number();
                let stamp = Broker::stamp(now, key);
                let session = Session::new(key, self.client_id.clone(), stamp);
                if self.expiry_seconds > 0 {
                    let mut state = session.lock();
                    batch
                        .operations
                        .push(session.put_record(&state, self.expiry_seconds, None)?);
                    state.stored = true;
                }
                Plan {
                    session,
                    replaced,
                    resumes: false,
                    wrote: false,
                    will: None,
                }
            }
        };
        match self.arm(&plan.session) {
            Ok((armed, put)) => {
                plan.will = armed;
                batch.operations.extend(put);
            }
            Err(refusal) => {
                self.give_back(plan);
                return Err(refusal);
            }
        }
        plan.wrote = !batch.operations.is_empty();
        if !plan.wrote {
            return Ok(Step::Ready(plan));
        }
        let outcome = Arc::new(Mutex::new(None));
        let slot = outcome.clone();
        let wake = self.wakes.reader.clone();
        self.broker.session_store.submit(
            batch,
            Box::new(move |stored| {
                *lock(&slot) = Some(stored.map(|_| ()));
                wake();
            }),
        );
        Ok(Step::Storing(plan, outcome))
    }

    /// The Will of this CONNECT, and its record where its session outlives the connection.
    fn arm(&self, session: &Session) -> Result<(Option<ArmedWill>, Option<Operation>), Refusal> {
        let Some(will) = self.connect.will.clone() else {
            return Ok((None, None));
        };
        if self.expiry_seconds == 0 {
            return Ok((Some(ArmedWill::unstored(will)), None));
        }
        let (armed, put) = ArmedWill::stored(will, session, self.stamp)?;
        Ok((Some(armed), Some(put)))
    }

    fn connack(&self, session_present: bool) -> Connack {
        let keep_alive = self.keep_alive();
        let v5 = self.connect.protocol == Protocol::V5;
        Connack {
            session_present,
            assigned_client_id: (v5 && self.connect.client_id.is_empty())
                .then(|| self.client_id.to_string()),
            session_expiry: (self.expiry_seconds != self.connect.session_expiry)
                .then_some(self.expiry_seconds),
            server_keep_alive: (keep_alive != self.connect.keep_alive).then_some(keep_alive),
            receive_maximum: RECEIVE_MAXIMUM,
            maximum_packet_size: self.broker.settings.max_message_size,
            topic_alias_maximum: TOPIC_ALIAS_MAXIMUM,
            shared_subscriptions: true,
        }
    }

    /// The Keep Alive in force, seconds; 0 is none. An MQTT 3.1.1 client cannot be told another
    /// than its own.
    #[must_use]
    pub fn keep_alive(&self) -> u16 {
        let asked = self.connect.keep_alive;
        match self.broker.settings.max_keepalive {
            Some(most) if self.connect.protocol == Protocol::V5 && (asked == 0 || asked > most) => {
                most
            }
            _ => asked,
        }
    }

    /// The client identifier, given or assigned.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// The CONNACK has been written: ownership moves, and whoever owned the client identifier is
    /// told 0x8E. `None` where there was no accepted claim.
    #[must_use]
    pub fn established(mut self, now: Now) -> Option<Connection> {
        let Step::Ready(plan) = std::mem::replace(&mut self.step, Step::Over) else {
            return None;
        };
        let handle = Arc::new(LinkHandle::new(self.wakes.clone()));
        let link = Link::new(self.number, handle.clone(), &self.connect);
        let session = plan.session.clone();
        let before = match &plan.replaced {
            Some(replaced) => self.broker.detach(replaced, now, true),
            None => self.broker.detach(&session, now, false),
        };
        {
            let mut state = session.lock();
            state.claimed = false;
            session.set_outlives(self.expiry_seconds > 0);
            state.attach(link, self.expiry_seconds, plan.will);
            if plan.resumes {
                state.stored |= plan.wrote;
                self.broker.resume_readers(&mut state);
            }
        }
        if !plan.resumes {
            lock(&self.broker.registry).insert(session.clone());
        }
        let connection = Connection::new(self.broker.clone(), session, self.number, handle);
        self.broker.finish_detached(before, now);
        connection.rejoin_queues();
        connection.rejoin_groups(now);
        Some(connection)
    }

    /// Undoes a plan that was not carried out.
    fn give_back(&self, plan: Plan) {
        let old = match (&plan.replaced, plan.resumes) {
            (Some(replaced), _) => Some(replaced.clone()),
            (None, true) => Some(plan.session.clone()),
            (None, false) => None,
        };
        let mut batch = Batch::default();
        let armed = plan.will.as_ref().and_then(ArmedWill::delete);
        let armed = armed.filter(|_| plan.wrote);
        match &old {
            Some(old) => {
                let mut state = old.lock();
                state.claimed = false;
                if plan.wrote {
                    let sought = self.broker.put_sought(old, &state);
                    batch.operations = old.restore_everything(&mut state, sought);
                }
                if state.ended {
                    // Its connection ended meanwhile, and left the store to this claim.
                    drop(state);
                    lock(&self.broker.registry).remove(old);
                } else {
                    state.wake_reader();
                    // What waited for the store may go there now.
                    state.wake_writer();
                }
            }
            None if plan.wrote => batch.operations.push(Operation::Delete {
                space: Space::Sessions,
                key: plan.session.store_key(),
            }),
            None => {}
        }
        batch.operations.extend(armed);
        if !batch.operations.is_empty() {
            self.broker.submit_session_write(&self.client_id, batch);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Storing(plan, _) | Step::Ready(plan) => self.give_back(plan),
            Step::Turn | Step::Over => {}
        }
        // The turn passes on only now, after whatever was written: the next CONNECT of this client
        // sees the outcome of this one.
        let next = lock(&self.broker.registry).leave(&self.client_id, self.number);
        if let Some(wake) = next {
            wake();
        }
    }
}

impl Broker {
    /// Whether `old` may go on under a new connection: it outlives its connection, its expiry has
    /// not passed, and retention has not passed what it had still to read (invariant 1).
    fn can_resume(&self, old: &Session, state: &State, now: Now) -> bool {
        if state.ended || state.expiry_seconds == 0 {
            return false;
        }
        if state.expires_at.is_some_and(|at| at <= now.since_start) {
            return false;
        }
        let lost = self.positions_below_floor(state);
        if lost.is_empty() {
            return true;
        }
        for (channel, records) in lost {
            bump(&self.counters.position_lost);
            self.counters
                .position_lost_records
                .fetch_add(records, std::sync::atomic::Ordering::Relaxed);
            tracing::warn!(
                client = %old.client_id,
                channel = %self.channel(channel).name,
                records,
                "retention passed the position of a session that was away; the session has ended"
            );
        }
        false
    }

    /// Names a session among all its client ever had.
    pub(crate) fn stamp(now: Now, number: u64) -> u64 {
        (now.unix_ms << 12) | (number & 0xFFF)
    }

    /// Wills and sessions end on the monotonic clock, to the second.
    pub(crate) fn after_seconds(now: Now, seconds: u32) -> Duration {
        now.since_start
            .saturating_add(Duration::from_secs(u64::from(seconds)))
    }
}

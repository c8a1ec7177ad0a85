//! A queue at work: the state machine, its store and its workers.
//!
//! Every event (a publish stored, a PUBACK, an answer, a worker come or gone, a deadline) changes
//! the state under the queue's lock and then offers what can be offered. Nothing polls.
//!
//! Lock order: the queue's lock before a worker's. [`Worker::reserve`] and [`Worker::offer`] may
//! take the worker's lock and must not call the queue; a session calls the queue while it holds no
//! lock of its own. Completions run without either.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::dead_letter::{Circumstances, dead_letter};
use super::delivery_id::{DeliveryId, Epoch};
use super::settings::QueueSettings;
use super::state::QueueState;
use super::terms::{Answer, Counts, Effect, Ignored, JobView, Offer, Totals, Verb, WorkerId};
use bytes::Bytes;

use crate::broker::time::Now;
use crate::broker::topic::{TopicFilter, dead_letter_topic};
use crate::storage::{ChannelId, Message, Operation, Record, Store, StoreError};

/// Where the present moment comes from: handed in, so that tests hand in theirs.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Asks for a call of [`QueueChannel::on_deadline`] no later than a moment of the monotonic clock.
/// Called whenever that moment comes nearer, never under the queue's lock; the earliest moment
/// asked for and not yet served counts, and a call too many does no harm.
pub type Alarm = Arc<dyn Fn(Duration) + Send + Sync>;

/// A connection that takes jobs.
pub trait Worker: Send + Sync {
    /// Its name among workers.
    fn id(&self) -> WorkerId;

    /// Sets a place in its window aside for one offer: yes only if the connection is live, has
    /// room, and is granted the queue now. Called under the queue's lock.
    fn reserve(&self) -> bool;

    /// Gives back a place set aside for an offer that could not be made.
    fn release(&self);

    /// Takes the offer the place was set aside for; on a connection that ended meanwhile it is
    /// dropped, for the queue has been or will be told by [`QueueChannel::worker_gone`]. What
    /// cannot be written goes back with [`QueueChannel::unsent`], though not from inside this
    /// call. Never called under the queue's lock.
    fn offer(&self, offer: JobOffer);
}

/// A job for a worker, with what it carries. Always sent at QoS 1, on the job's own topic.
#[derive(Clone, Debug)]
pub struct JobOffer {
    /// The queue.
    pub channel: ChannelId,
    /// Where the answer goes: `$saguin/queue/<queue>/response`.
    pub response_topic: Arc<str>,
    /// The name of this delivery.
    pub delivery: DeliveryId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The job.
    pub job: Record,
}

/// What an answer came to; either way its publish is acknowledged with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// It applied, and is stored.
    Applied,
    /// It changed nothing, and is to be logged.
    Ignored(Ignored),
}

/// What a queue is opened with.
pub struct QueueSetup {
    /// Its name.
    pub name: Arc<str>,
    /// The filter it carries: where its dead letters' topics gain their level.
    pub filter: TopicFilter,
    /// The queue.
    pub channel: ChannelId,
    /// The append channel that takes its dead letters, in the same store.
    pub dead_letters: ChannelId,
    /// What the operator decided.
    pub settings: QueueSettings,
    /// This queue's alone, new with every start.
    pub epoch: Epoch,
    /// Where both channels are kept.
    pub store: Arc<dyn Store>,
    /// The present moment.
    pub clock: Clock,
    /// How to be called back.
    pub alarm: Alarm,
}

type Done<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// One queue.
pub struct QueueChannel {
    name: Arc<str>,
    channel: ChannelId,
    dead_letters: ChannelId,
    filter: TopicFilter,
    response_topic: Arc<str>,
    store: Arc<dyn Store>,
    clock: Clock,
    alarm: Alarm,
    inner: Mutex<Inner>,
}

struct Inner {
    state: QueueState,
    workers: HashMap<WorkerId, Arc<dyn Worker>>,
    /// The moment the alarm was last asked for and has not come.
    alarm_at: Option<Duration>,
}

impl std::fmt::Debug for QueueChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueChannel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl QueueChannel {
    /// Opens a queue over what its store has unresolved: everything is available. Both sweeps run
    /// at once.
    #[must_use]
    pub fn open(setup: QueueSetup) -> Arc<Self> {
        let unresolved = setup.store.unresolved(setup.channel);
        let queue = Arc::new(QueueChannel {
            response_topic: format!("$saguin/queue/{}/response", setup.name).into(),
            filter: setup.filter,
            name: setup.name,
            channel: setup.channel,
            dead_letters: setup.dead_letters,
            store: setup.store,
            clock: setup.clock,
            alarm: setup.alarm,
            inner: Mutex::new(Inner {
                state: QueueState::new(setup.settings, setup.epoch, unresolved),
                workers: HashMap::new(),
                alarm_at: None,
            }),
        });
        queue.pump(&[]);
        queue
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue's channel.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    // -- events ---------------------------------------------------------------------------------

    /// Stores a job. `done` runs once it is stored, with its offset, or refused; only then is it
    /// offered.
    pub fn publish(self: &Arc<Self>, message: Message, done: Done<u64>) {
        let queue = Arc::clone(self);
        let enqueue = Operation::Enqueue {
            channel: self.channel,
            message: message.clone(),
        };
        let completion = Box::new(
            move |outcome: Result<crate::storage::Receipt, StoreError>| {
                let receipt = match outcome {
                    Ok(receipt) => receipt,
                    Err(why) => return done(Err(why)),
                };
                match receipt.offsets.first().copied().flatten() {
                    Some(offset) => {
                        done(Ok(offset));
                        queue.enqueued(&[Record { offset, message }]);
                    }
                    None => done(Err(StoreError::Failed(
                        "the store gave a job no offset".to_owned(),
                    ))),
                }
            },
        );
        self.store.submit(enqueue.into(), completion);
    }

    /// Jobs have been stored, by [`publish`](Self::publish) or as part of another batch; in the
    /// order of their offsets.
    pub fn enqueued(self: &Arc<Self>, jobs: &[Record]) {
        {
            let state = &mut self.lock().state;
            for job in jobs {
                state.enqueued(job.offset, job.message.received_at);
            }
        }
        self.pump(jobs);
    }

    /// A connection subscribed to the queue's jobs. Subscribing again changes nothing.
    pub fn add_worker(self: &Arc<Self>, worker: Arc<dyn Worker>) {
        {
            let mut inner = self.lock();
            let id = worker.id();
            inner.state.add_worker(id);
            inner.workers.insert(id, worker);
        }
        self.pump(&[]);
    }

    /// A connection unsubscribed: no further offers; a job it holds stays held.
    pub fn remove_worker(&self, worker: WorkerId) {
        self.lock().state.remove_worker(worker);
    }

    /// A worker's connection or session ended: its job is available at once.
    pub fn worker_gone(self: &Arc<Self>, worker: WorkerId) {
        let now = (self.clock)();
        {
            let mut inner = self.lock();
            inner.state.worker_gone(worker, now);
            inner.workers.remove(&worker);
        }
        self.pump(&[]);
    }

    /// A worker's window has room again, or its grant came back. To be called whenever that is so
    /// after [`Worker::reserve`] said no: nothing else asks that worker again.
    pub fn worker_ready(self: &Arc<Self>, worker: WorkerId) {
        self.lock().state.worker_ready(worker);
        self.pump(&[]);
    }

    /// Grants have changed: every worker is asked again.
    pub fn all_workers_ready(self: &Arc<Self>) {
        self.lock().state.all_workers_ready();
        self.pump(&[]);
    }

    /// The PUBACK of an offer arrived: the visibility clock starts. The session frees the place in
    /// its window first.
    pub fn transport_acked(self: &Arc<Self>, delivery: &DeliveryId) {
        let now = (self.clock)();
        let effect = self.lock().state.transport_acked(delivery, now);
        self.carry_out(effect);
        self.pump(&[]);
    }

    /// An offer was never written: its job is available with the attempt unspent. The worker is
    /// asked again after [`worker_ready`](Self::worker_ready).
    pub fn unsent(self: &Arc<Self>, delivery: &DeliveryId) {
        let now = (self.clock)();
        self.lock().state.unsent(delivery, now);
        self.pump(&[]);
    }

    /// A worker answered with this Correlation Data. `done` runs once what it did is stored, or at
    /// once where it changed nothing.
    pub fn answer(
        self: &Arc<Self>,
        correlation_data: &[u8],
        worker: WorkerId,
        verb: Verb,
        done: Done<AnswerOutcome>,
    ) {
        let now = (self.clock)();
        let answer = match DeliveryId::parse(correlation_data) {
            Some(delivery) => self.lock().state.answer(&delivery, worker, verb, now),
            None => Answer::Ignored(Ignored::NotCurrent),
        };
        match answer {
            Answer::Ignored(why) => done(Ok(AnswerOutcome::Ignored(why))),
            Answer::Applied(effect) => {
                let done = Box::new(|outcome: Result<(), StoreError>| {
                    done(outcome.map(|()| AnswerOutcome::Applied));
                });
                self.submit(effect, Some(done));
            }
        }
        self.pump(&[]);
    }

    /// The moment asked for has come.
    pub fn on_deadline(self: &Arc<Self>) {
        self.lock().alarm_at = None;
        self.pump(&[]);
    }

    // -- what it looks like ---------------------------------------------------------------------

    /// How many jobs are where.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().state.counts()
    }

    /// What has happened since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.lock().state.totals()
    }

    /// At most `limit` jobs, those with the most attempts first.
    #[must_use]
    pub fn view(&self, limit: usize) -> Vec<JobView> {
        self.lock().state.view(limit)
    }

    // -- inside ---------------------------------------------------------------------------------

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due, offers what can be offered, and asks to be called back. `fresh` are jobs
    /// at hand, which then need not be read.
    fn pump(self: &Arc<Self>, fresh: &[Record]) {
        loop {
            let now = (self.clock)();
            let (effects, offer, alarm) = {
                let mut inner = self.lock();
                let effects = inner.state.tick(now);
                let offer = inner.offer(now);
                let alarm = match offer {
                    Some(_) => None,
                    None => inner.next_alarm(now),
                };
                (effects, offer, alarm)
            };
            self.carry_out(effects);
            if let Some(at) = alarm {
                (self.alarm)(at);
            }
            match offer {
                Some((offer, worker)) => self.hand_over(&offer, &*worker, fresh),
                None => return,
            }
        }
    }

    fn hand_over(self: &Arc<Self>, offer: &Offer, worker: &dyn Worker, fresh: &[Record]) {
        let job = match fresh.iter().find(|job| job.offset == offer.offset) {
            Some(job) => Ok(Some(job.clone())),
            None => self.store.job(self.channel, offer.offset),
        };
        match job {
            Ok(Some(job)) => worker.offer(JobOffer {
                channel: self.channel,
                response_topic: Arc::clone(&self.response_topic),
                delivery: offer.delivery,
                attempt: offer.attempt,
                job,
            }),
            Ok(None) => {
                tracing::error!(
                    queue = &*self.name,
                    offset = offer.offset,
                    "a job to be offered is not in the store; it is dropped from the queue"
                );
                worker.release();
                self.lock().state.resolved(offer.offset);
            }
            Err(why) => {
                tracing::error!(
                    queue = &*self.name,
                    offset = offer.offset,
                    "a job cannot be offered and is tried again later: {why}"
                );
                worker.release();
                let now = (self.clock)();
                self.lock().state.unreadable(&offer.delivery, now);
            }
        }
    }

    fn carry_out(self: &Arc<Self>, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            self.submit(effect, None);
        }
    }

    /// Has the store do what the state decided, and tells the state what came of it.
    fn submit(self: &Arc<Self>, effect: Effect, done: Option<Done<()>>) {
        let operation = match self.operation(&effect) {
            Ok(operation) => operation,
            Err(why) => {
                self.concluded(effect, &Err(why.clone()));
                if let Some(done) = done {
                    done(Err(why));
                }
                return;
            }
        };
        let queue = Arc::clone(self);
        let completion = Box::new(
            move |outcome: Result<crate::storage::Receipt, StoreError>| {
                let outcome = outcome.map(|_| ());
                queue.concluded(effect, &outcome);
                if let Some(done) = done {
                    done(outcome);
                }
                queue.pump(&[]);
            },
        );
        self.store.submit(operation.into(), completion);
    }

    fn operation(&self, effect: &Effect) -> Result<Operation, StoreError> {
        let channel = self.channel;
        match *effect {
            Effect::StoreAttempt {
                offset,
                attempts,
                attempted: (first, last),
            } => Ok(Operation::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            }),
            Effect::Resolve { offset } => Ok(Operation::Resolve { channel, offset }),
            Effect::DeadLetter {
                offset,
                reason,
                attempts,
                attempted,
            } => {
                let job = match self.store.job(channel, offset) {
                    Ok(Some(job)) => job,
                    Ok(None) => return Err(StoreError::NoSuchJob { channel, offset }),
                    Err(why) => return Err(StoreError::Failed(why.to_string())),
                };
                let told = Circumstances {
                    queue: &self.name,
                    reason,
                    attempts,
                    attempted,
                    at: (self.clock)().unix_ms,
                };
                let topic = std::str::from_utf8(&job.message.topic).map_err(|why| {
                    StoreError::Failed(format!("a job's topic is not text: {why}"))
                })?;
                let topic = Bytes::from(dead_letter_topic(&self.filter, topic));
                Ok(Operation::DeadLetter {
                    channel,
                    offset,
                    target: self.dead_letters,
                    message: dead_letter(&job, topic, &told),
                })
            }
        }
    }

    fn concluded(self: &Arc<Self>, effect: Effect, outcome: &Result<(), StoreError>) {
        let now = (self.clock)();
        let gone = matches!(outcome, Err(StoreError::NoSuchJob { .. }));
        if let Err(why) = outcome {
            tracing::error!(
                queue = &*self.name,
                ?effect,
                "a queue's write failed: {why}"
            );
        }
        let more = {
            let state = &mut self.lock().state;
            match effect {
                Effect::StoreAttempt { offset, .. } | Effect::Resolve { offset } if gone => {
                    state.resolved(offset);
                    None
                }
                Effect::StoreAttempt { offset, .. } => {
                    if outcome.is_ok() {
                        state.attempt_stored(offset, now);
                    } else {
                        state.attempt_failed(offset, now);
                    }
                    None
                }
                Effect::Resolve { offset } if outcome.is_ok() => {
                    state.resolved(offset);
                    None
                }
                Effect::Resolve { offset } => state.resolve_failed(offset, now),
                Effect::DeadLetter { offset, .. } if outcome.is_ok() || gone => {
                    state.dead_lettered(offset);
                    None
                }
                Effect::DeadLetter { offset, .. } => state.dead_letter_failed(offset, now),
            }
        };
        self.carry_out(more);
    }
}

impl Inner {
    fn offer(&mut self, now: Now) -> Option<(Offer, Arc<dyn Worker>)> {
        let workers = &self.workers;
        let mut room = |id: WorkerId| workers.get(&id).is_some_and(|worker| worker.reserve());
        let offer = self.state.offer(now, &mut room)?;
        let worker = Arc::clone(workers.get(&offer.worker)?);
        Some((offer, worker))
    }

    /// The next deadline, if the alarm has not been asked for one as near.
    fn next_alarm(&mut self, now: Now) -> Option<Duration> {
        let next = self.state.next_deadline(now)?;
        if self.alarm_at.is_some_and(|at| at <= next) {
            return None;
        }
        self.alarm_at = Some(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests;

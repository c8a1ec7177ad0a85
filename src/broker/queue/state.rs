//! What a queue decides, without a clock, a store or a socket of its own.
//!
//! A job is in exactly one place, and each move has one mover:
//!
//! | place | moved on by |
//! |---|---|
//! | ready | `offer` → delivering; `offer` or `tick` (expired) → doomed |
//! | waiting (backoff) | `tick` → ready or doomed |
//! | delivering (PUBLISH handed over) | `transport_acked` → leased; `answer` → resolving, storing or moving; `unsent`, `worker_gone` → ready |
//! | leased (PUBACK came, clock runs) | `answer` → resolving, storing or moving; `tick` (timeout), `worker_gone` → storing, waiting, ready or doomed |
//! | storing (its attempt is on its way to the store) | `attempt_stored` → ready, waiting or doomed; `attempt_failed` → unstored |
//! | unstored (its attempt could not be stored) | `tick`, after a pause → storing |
//! | resolving (its removal is on its way) | `resolved` → gone; `resolve_failed` → waiting or doomed |
//! | doomed (to be dead-lettered, in its turn) | `tick` → moving |
//! | moving (its move is on its way) | `dead_lettered` → gone; `dead_letter_failed` → doomed, later |
//!
//! Only a ready job is offered, and delivering or leased is the only place with a worker and a
//! Delivery ID: so a job has at most one live delivery (invariant 4), and an ID that has been
//! answered, timed out or returned is in no place at all (invariant 3).
//!
//! Nothing asks whether a packet was written: until its PUBACK or answer, an attempt is unspent
//! either way, and there is no clock on delivering (invariant 7).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::time::Duration;

use super::delivery_id::{DeliveryId, Epoch};
use super::settings::QueueSettings;
use super::terms::{
    Answer, Counts, Effect, Ignored, JobStanding, JobView, Offer, Reason, Totals, Verb, WorkerId,
};
use crate::broker::time::Now;
use crate::storage::WorkItem;

mod job;
mod places;

use job::{Job, Place};

#[derive(Debug, Default)]
struct WorkerState {
    /// Subscribed. A worker that unsubscribed stays only until its job ends.
    accepting: bool,
    holds: Option<u64>,
    /// Its key in `idle`. A worker with neither a job nor a turn had no room when it was asked
    /// and waits for [`QueueState::worker_ready`].
    turn: Option<u64>,
}

/// Moves to the dead-letter channel on their way at one time: what one tick may ask of the store.
const MAX_MOVES: usize = 64;
/// Expired jobs one tick looks at, so that a sweep of a large backlog never holds the queue.
const MAX_EXPIRED_PER_TICK: usize = 1024;
/// How long a job waits after its removal could not be stored, and the first pause after a move
/// was refused.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between tries of refused moves.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The jobs and workers of one queue. See the module for its places.
#[derive(Debug)]
pub struct QueueState {
    settings: QueueSettings,
    epoch: Epoch,
    next_delivery: u64,
    next_turn: u64,
    /// Every job except those that are ready and were never tried: a backlog costs no more than
    /// its entries in `ready`.
    jobs: HashMap<u64, Job>,
    /// Every ready job, with its broker receipt in Unix milliseconds.
    ready: BTreeMap<u64, Option<NonZeroU64>>,
    /// How many of `ready` are not in `jobs`.
    untried: usize,
    waiting: BTreeSet<(Duration, u64)>,
    leases: BTreeSet<(Duration, u64)>,
    doomed: BTreeSet<(Duration, u64)>,
    /// Wall-clock deadlines, Unix milliseconds; empty without `job_expires_after`.
    expiries: BTreeSet<(u64, u64)>,
    /// Delivery number to job: exactly the live deliveries.
    current: HashMap<u64, u64>,
    workers: HashMap<WorkerId, WorkerState>,
    idle: BTreeMap<u64, WorkerId>,
    resolving: usize,
    moving: usize,
    /// `Some` after a refused move: no other is tried before this moment, and then one alone.
    moves_paused_until: Option<Duration>,
    pause: Duration,
    totals: Totals,
}

impl QueueState {
    /// A queue holding what its store has unresolved. Everything is available, nothing is in
    /// flight (invariant 15); a job whose attempts are used up is dead-lettered by the first
    /// [`tick`](Self::tick).
    #[must_use]
    pub fn new(settings: QueueSettings, epoch: Epoch, unresolved: Vec<WorkItem>) -> Self {
        let mut state = QueueState {
            settings,
            epoch,
            next_delivery: 1,
            next_turn: 0,
            jobs: HashMap::new(),
            ready: BTreeMap::new(),
            untried: 0,
            waiting: BTreeSet::new(),
            leases: BTreeSet::new(),
            doomed: BTreeSet::new(),
            expiries: BTreeSet::new(),
            current: HashMap::new(),
            workers: HashMap::new(),
            idle: BTreeMap::new(),
            resolving: 0,
            moving: 0,
            moves_paused_until: None,
            pause: FIRST_PAUSE,
            totals: Totals::default(),
        };
        for item in unresolved {
            state.insert(item.offset, item.attempts, item.attempted, item.received_at);
        }
        state
    }

    fn insert(
        &mut self,
        offset: u64,
        attempts: u32,
        attempted: Option<(u64, u64)>,
        received_at: Option<u64>,
    ) {
        if self.jobs.contains_key(&offset) || self.ready.contains_key(&offset) {
            return;
        }
        self.jobs.insert(
            offset,
            Job {
                attempts,
                attempted,
                received_at: received_at.and_then(NonZeroU64::new),
                unstored: 0,
                dirty: false,
                place: Place::Ready,
            },
        );
        if attempts >= self.settings.retry.max_attempts {
            self.totals.exhausted_at_start += 1;
            self.doom(offset, Reason::AttemptsExhausted);
        } else {
            self.make_ready(offset);
        }
    }

    // -- jobs and workers come and go ------------------------------------------------------------

    /// A job has been stored.
    pub fn enqueued(&mut self, offset: u64, received_at: Option<u64>) {
        self.insert(offset, 0, None, received_at);
    }

    /// A worker subscribed. Subscribing again changes nothing.
    pub fn add_worker(&mut self, worker: WorkerId) {
        self.workers.entry(worker).or_default().accepting = true;
        self.worker_ready(worker);
    }

    /// A worker unsubscribed: it gets no further offers, and keeps the job it holds until that is
    /// answered, timed out or its connection ends.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        let Some(state) = self.workers.get_mut(&worker) else {
            return;
        };
        state.accepting = false;
        if let Some(turn) = state.turn.take() {
            self.idle.remove(&turn);
        }
        if state.holds.is_none() {
            self.workers.remove(&worker);
        }
    }

    /// A worker's connection or session ended: its job is returned at once. Its attempt counts if
    /// its PUBACK came, and is unspent if it did not.
    pub fn worker_gone(&mut self, worker: WorkerId, now: Now) {
        let Some(state) = self.workers.remove(&worker) else {
            return;
        };
        if let Some(turn) = state.turn {
            self.idle.remove(&turn);
        }
        if let Some(offset) = state.holds {
            self.delivery_lapsed(offset, now);
        }
    }

    /// A worker that had no room when it was asked may have some now.
    pub fn worker_ready(&mut self, worker: WorkerId) {
        let Some(state) = self.workers.get_mut(&worker) else {
            return;
        };
        if state.accepting && state.holds.is_none() && state.turn.is_none() {
            state.turn = Some(self.next_turn);
            self.idle.insert(self.next_turn, worker);
            self.next_turn += 1;
        }
    }

    /// Every worker may have room now: what they are granted has changed.
    pub fn all_workers_ready(&mut self) {
        let mut all: Vec<WorkerId> = self.workers.keys().copied().collect();
        all.sort_unstable();
        for worker in all {
            self.worker_ready(worker);
        }
    }

    // -- deliveries --------------------------------------------------------------------------------

    /// Hands the first ready job to the next worker in turn that `room` says can take it: asked
    /// only of workers holding no job of this queue, and a yes must be kept by the caller. A
    /// worker without room is passed over until [`worker_ready`](Self::worker_ready).
    pub fn offer(&mut self, now: Now, room: &mut dyn FnMut(WorkerId) -> bool) -> Option<Offer> {
        let offset = self.first_ready(now)?;
        let worker = loop {
            let (_, worker) = self.idle.pop_first()?;
            if let Some(state) = self.workers.get_mut(&worker) {
                state.turn = None;
                if room(worker) {
                    state.holds = Some(offset);
                    break worker;
                }
            }
        };
        let number = self.next_delivery;
        self.next_delivery += 1;
        self.take_ready(offset);
        let job = self.jobs.get_mut(&offset)?;
        job.place = Place::Delivering { number, worker };
        self.current.insert(number, offset);
        self.totals.delivered += 1;
        Some(Offer {
            offset,
            delivery: DeliveryId::new(self.epoch, number),
            worker,
            attempt: job.attempts.saturating_add(1),
        })
    }

    /// The lowest ready job that has not expired; those that have leave on the way.
    fn first_ready(&mut self, now: Now) -> Option<u64> {
        loop {
            let (&offset, &received_at) = self.ready.first_key_value()?;
            if !self.expired(received_at, now) {
                return Some(offset);
            }
            self.take_ready(offset);
            self.totals.expired += 1;
            self.doom(offset, Reason::Expired);
        }
    }

    /// A delivery was never written: refused, no room after all, too large for that worker. The
    /// job is available again with its attempt unspent, and the worker is asked again only after
    /// [`worker_ready`](Self::worker_ready), so the two cannot chase each other.
    pub fn unsent(&mut self, delivery: &DeliveryId, now: Now) {
        let Some(offset) = self.live(delivery) else {
            return;
        };
        let Some(&Job {
            place: Place::Delivering { worker, .. },
            ..
        }) = self.jobs.get(&offset)
        else {
            return;
        };
        self.release_worker(worker, false);
        self.delivery_lapsed(offset, now);
    }

    /// A delivery could not be made because its job could not be read. The job waits a while with
    /// its attempt unspent; the worker is free.
    pub fn unreadable(&mut self, delivery: &DeliveryId, now: Now) {
        let Some(offset) = self.live(delivery) else {
            return;
        };
        if let Some(worker) = self.take_delivery(offset) {
            self.release_worker(worker, true);
            self.totals.redelivered += 1;
            self.settle(offset, now.since_start.saturating_add(FIRST_PAUSE), now);
        }
    }

    /// The PUBACK of a delivery arrived: the attempt counts and the visibility clock starts
    /// (invariant 7). One that comes after the answer, or after the delivery lapsed, is ignored.
    pub fn transport_acked(&mut self, delivery: &DeliveryId, now: Now) -> Option<Effect> {
        let offset = self.live(delivery)?;
        let job = self.jobs.get_mut(&offset)?;
        let Place::Delivering { number, worker } = job.place else {
            return None;
        };
        let until = now
            .since_start
            .saturating_add(self.settings.visibility_timeout);
        job.place = Place::Leased {
            number,
            worker,
            until,
        };
        job.count_attempt(now);
        let effect = job.store_attempt(offset);
        self.leases.insert((until, offset));
        effect
    }

    /// A worker answered. Applied only while the delivery is current and this worker holds it;
    /// applying consumes the Delivery ID, so the same answer again is ignored (invariant 3). It
    /// may come before the PUBACK and counts as receipt.
    pub fn answer(
        &mut self,
        delivery: &DeliveryId,
        worker: WorkerId,
        verb: Verb,
        now: Now,
    ) -> Answer {
        let Some(offset) = self.live(delivery) else {
            return Answer::Ignored(Ignored::NotCurrent);
        };
        if self.workers.get(&worker).and_then(|w| w.holds) != Some(offset) {
            return Answer::Ignored(Ignored::NotHolder);
        }
        self.take_delivery(offset);
        self.release_worker(worker, true);
        let backoff = self.settings.retry;
        let Some(job) = self.jobs.get_mut(&offset) else {
            return Answer::Ignored(Ignored::NotCurrent);
        };
        if matches!(job.place, Place::Delivering { .. }) {
            job.count_attempt(now);
        }
        if verb == Verb::Ack {
            job.place = Place::Resolving;
            self.resolving += 1;
            return Answer::Applied(Effect::Resolve { offset });
        }
        if job.attempts >= backoff.max_attempts {
            let reason = Reason::AttemptsExhausted;
            job.place = Place::Moving { reason };
            let effect = job.dead_letter(offset, reason);
            self.forget_expiry(offset);
            self.moving += 1;
            self.totals.dead_lettered += 1;
            return Answer::Applied(effect);
        }
        self.totals.returned += 1;
        let wait = backoff.backoff.after(job.attempts);
        job.place = Place::Storing {
            until: now.since_start.saturating_add(wait),
        };
        match job.store_attempt(offset) {
            Some(effect) => Answer::Applied(effect),
            None => Answer::Ignored(Ignored::NotCurrent),
        }
    }

    // -- time ---------------------------------------------------------------------------------------

    /// Everything that is due: leases that ended, backoffs over, jobs too old, moves to the
    /// dead-letter channel. One call does a bounded amount; [`next_deadline`](Self::next_deadline)
    /// says when to call again.
    #[must_use]
    pub fn tick(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(&(until, offset)) = self.leases.first()
            && until <= now.since_start
        {
            self.leases.remove(&(until, offset));
            if let Some(worker) = self.holder(offset) {
                self.release_worker(worker, true);
            }
            self.delivery_lapsed(offset, now);
        }
        while let Some(&(until, offset)) = self.waiting.first()
            && until <= now.since_start
        {
            self.waiting.remove(&(until, offset));
            effects.extend(self.wait_over(offset, until, now));
        }
        self.sweep_expired(now);
        self.due_moves(now, &mut effects);
        effects
    }

    fn wait_over(&mut self, offset: u64, until: Duration, now: Now) -> Option<Effect> {
        if let Some(job) = self.jobs.get_mut(&offset)
            && let Place::Unstored { until, .. } = job.place
        {
            job.place = Place::Storing { until };
            return job.store_attempt(offset);
        }
        self.settle(offset, until, now);
        None
    }

    fn sweep_expired(&mut self, now: Now) {
        for _ in 0..MAX_EXPIRED_PER_TICK {
            let Some(&(at, offset)) = self.expiries.first() else {
                return;
            };
            if at > now.unix_ms {
                return;
            }
            self.expiries.remove(&(at, offset));
            // A job that is out with a worker, or back and being stored, is judged when it settles.
            if !self.take_ready(offset) {
                match self.jobs.get(&offset).map(|job| job.place) {
                    Some(Place::Waiting { until }) => self.waiting.remove(&(until, offset)),
                    _ => continue,
                };
            }
            self.totals.expired += 1;
            self.doom(offset, Reason::Expired);
        }
    }

    fn due_moves(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while self.may_move(now)
            && let Some(&(not_before, offset)) = self.doomed.first()
            && not_before <= now.since_start
        {
            self.doomed.remove(&(not_before, offset));
            if let Some(job) = self.jobs.get_mut(&offset)
                && let Place::Doomed { reason, .. } = job.place
            {
                job.place = Place::Moving { reason };
                self.moving += 1;
                effects.push(job.dead_letter(offset, reason));
            }
        }
    }

    /// Whether another move may be tried now: after a refusal one at a time, and not before the
    /// pause is over, however many jobs wait.
    fn may_move(&self, now: Now) -> bool {
        match self.moves_paused_until {
            None => self.moving < MAX_MOVES,
            Some(until) => self.moving == 0 && until <= now.since_start,
        }
    }

    /// When [`tick`](Self::tick) next has something to do, on the monotonic clock; `None` while it
    /// has nothing.
    #[must_use]
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let expiry = self.expiries.first().map(|&(at, _)| {
            let wait = Duration::from_millis(at.saturating_sub(now.unix_ms));
            now.since_start.saturating_add(wait)
        });
        let room = match self.moves_paused_until {
            None => self.moving < MAX_MOVES,
            Some(_) => self.moving == 0,
        };
        let doomed = self.doomed.first().filter(|_| room);
        let doomed = doomed.map(|&(at, _)| at.max(self.moves_paused_until.unwrap_or_default()));
        let lease = self.leases.first().map(|&(at, _)| at);
        let waiting = self.waiting.first().map(|&(at, _)| at);
        [lease, waiting, doomed, expiry].into_iter().flatten().min()
    }

    // -- what the store made of it -----------------------------------------------------------------

    /// An attempt is stored: a job waiting for that may be offered.
    pub fn attempt_stored(&mut self, offset: u64, now: Now) {
        let Some(job) = self.jobs.get_mut(&offset) else {
            return;
        };
        job.unstored = job.unstored.saturating_sub(1);
        if job.unstored == 0
            && let Place::Storing { until } = job.place
        {
            self.settle(offset, until, now);
        }
    }

    /// An attempt could not be stored: it is tried again after a pause, and the job is offered only
    /// once it is.
    pub fn attempt_failed(&mut self, offset: u64, now: Now) {
        let Some(job) = self.jobs.get_mut(&offset) else {
            return;
        };
        job.dirty = true;
        job.unstored = job.unstored.saturating_sub(1);
        if job.unstored == 0
            && let Place::Storing { until } = job.place
        {
            let retry_at = now.since_start.saturating_add(FIRST_PAUSE);
            job.place = Place::Unstored { until, retry_at };
            self.waiting.insert((retry_at, offset));
        }
    }

    /// A job is no longer in the store: resolved, or found to be gone.
    pub fn resolved(&mut self, offset: u64) {
        if let Some(Place::Resolving) = self.remove(offset) {
            self.totals.acknowledged += 1;
        }
    }

    /// A job's removal could not be stored. Its Delivery ID stays consumed; the job is tried again
    /// after a pause.
    pub fn resolve_failed(&mut self, offset: u64, now: Now) -> Option<Effect> {
        let job = self.jobs.get_mut(&offset)?;
        if !matches!(job.place, Place::Resolving) {
            return None;
        }
        self.resolving -= 1;
        if job.attempts >= self.settings.retry.max_attempts {
            self.totals.dead_lettered += 1;
        } else {
            self.totals.redelivered += 1;
        }
        let pause = self.settings.retry.backoff.after(job.attempts);
        let until = now.since_start.saturating_add(pause.max(FIRST_PAUSE));
        let effect = if job.dirty {
            job.store_attempt(offset)
        } else {
            None
        };
        self.back_from_worker(offset, until, now);
        effect
    }

    /// A job has left for its dead-letter channel.
    pub fn dead_lettered(&mut self, offset: u64) {
        if let Some(Place::Moving { .. }) = self.remove(offset) {
            self.moves_paused_until = None;
            self.pause = FIRST_PAUSE;
        }
    }

    /// A move was refused. The job stays as it was (invariant 5) and the move is tried again after
    /// a pause that doubles up to a minute.
    pub fn dead_letter_failed(&mut self, offset: u64, now: Now) -> Option<Effect> {
        let job = self.jobs.get_mut(&offset)?;
        let Place::Moving { reason } = job.place else {
            return None;
        };
        self.moving -= 1;
        // Moves refused together are one refusal, and lengthen the pause once.
        let not_before = match self.moves_paused_until {
            Some(until) if now.since_start < until => until,
            _ => now.since_start.saturating_add(self.pause),
        };
        if self.moves_paused_until != Some(not_before) {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.moves_paused_until = Some(not_before);
        }
        job.place = Place::Doomed { reason, not_before };
        self.doomed.insert((not_before, offset));
        if job.dirty {
            job.store_attempt(offset)
        } else {
            None
        }
    }

    // -- what it looks like --------------------------------------------------------------------------

    /// How many jobs are where.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            unresolved: self.jobs.len() + self.untried,
            ready: self.ready.len(),
            waiting: self.waiting.len(),
            inflight: self.current.len() + self.resolving,
            doomed: self.doomed.len() + self.moving,
            workers: self.workers.len(),
        }
    }

    /// What has happened since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// At most `limit` jobs, those with the most attempts first, then the oldest. Looks at every
    /// job that was ever tried: for an operator's question, not for the path of a job.
    #[must_use]
    pub fn view(&self, limit: usize) -> Vec<JobView> {
        let mut worst = BTreeSet::new();
        for (&offset, job) in &self.jobs {
            worst.insert((std::cmp::Reverse(job.attempts), offset));
            if worst.len() > limit {
                worst.pop_last();
            }
        }
        // Of those never tried the oldest will do: the set holds no more than twice the limit.
        let untried = self.ready.keys().filter(|o| !self.jobs.contains_key(o));
        worst.extend(untried.take(limit).map(|&o| (std::cmp::Reverse(0), o)));
        let views = worst.into_iter().take(limit).map(|(_, offset)| {
            let job = self.jobs.get(&offset);
            JobView {
                offset,
                attempts: job.map_or(0, |job| job.attempts),
                attempted: job.and_then(|job| job.attempted),
                standing: job.map_or(JobStanding::Waiting, Job::standing),
            }
        });
        views.collect()
    }
}

#[cfg(test)]
mod tests;

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
use std::time::Duration;

use super::delivery_id::{DeliveryId, Epoch};
use super::settings::QueueSettings;
use crate::broker::time::Now;
use crate::storage::WorkItem;

/// One connection's place among the workers of queues. Never reused while the broker runs: a
/// client that reconnects comes back under another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u64);

/// What a worker says about the job it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The work is done; the job leaves the queue.
    Ack,
    /// The work is not done; the job may be tried again.
    Return,
}

impl Verb {
    /// The verb an answer's payload spells, if it spells one.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        match payload {
            b"ack" => Some(Verb::Ack),
            b"return" => Some(Verb::Return),
            _ => None,
        }
    }
}

/// Why a job is dead-lettered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has had `retry.max_attempts` attempts.
    AttemptsExhausted,
    /// It is older than `job_expires_after`.
    Expired,
}

impl Reason {
    /// As `saguin-dlq-reason` spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::AttemptsExhausted => "attempts_exhausted",
            Reason::Expired => "expired",
        }
    }
}

/// Something the store has to do, whose outcome is fed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Store the attempts of a job; then [`QueueState::attempt_stored`] or
    /// [`QueueState::attempt_failed`], once per effect.
    StoreAttempt {
        /// The job.
        offset: u64,
        /// Attempts made.
        attempts: u32,
        /// First and latest, Unix milliseconds.
        attempted: (u64, u64),
    },
    /// Remove a job that is done; then [`QueueState::resolved`] or [`QueueState::resolve_failed`].
    Resolve {
        /// The job.
        offset: u64,
    },
    /// Move a job to the dead-letter channel; then [`QueueState::dead_lettered`] or
    /// [`QueueState::dead_letter_failed`].
    DeadLetter {
        /// The job.
        offset: u64,
        /// Why.
        reason: Reason,
        /// Attempts made.
        attempts: u32,
        /// First and latest, Unix milliseconds; `None` where there was none.
        attempted: Option<(u64, u64)>,
    },
}

/// A job for one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The job.
    pub offset: u64,
    /// The name of this delivery.
    pub delivery: DeliveryId,
    /// Who gets it.
    pub worker: WorkerId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It applied; it is done once this effect is stored.
    Applied(Effect),
    /// It changed nothing: to be logged, and acknowledged all the same.
    Ignored(Ignored),
}

/// Why an answer changed nothing (invariant 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The Delivery ID is not, or no longer, current.
    NotCurrent,
    /// The delivery is current and held by another worker.
    NotHolder,
}

/// How many jobs are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Every unresolved job, wherever it is.
    pub unresolved: usize,
    /// Ready to be offered.
    pub ready: usize,
    /// Waiting out a backoff.
    pub waiting: usize,
    /// Out with a worker, or answered `ack` and not yet stored so.
    pub inflight: usize,
    /// To be dead-lettered, now or later.
    pub doomed: usize,
    /// Workers subscribed, or unsubscribed and still holding a job.
    pub workers: usize,
}

/// What has happened since the start. Every delivery ends in exactly one of `acknowledged`,
/// `returned`, `redelivered`, `dead_lettered`; until then it is in [`Counts::inflight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Deliveries made.
    pub delivered: u64,
    /// Deliveries whose `ack` is stored.
    pub acknowledged: u64,
    /// Deliveries the worker returned, with an attempt left.
    pub returned: u64,
    /// Deliveries that ended unanswered, with an attempt left: timed out, worker gone, not sent.
    pub redelivered: u64,
    /// Deliveries that ended a job's last attempt.
    pub dead_lettered: u64,
    /// Jobs found too old while not out with a worker.
    pub expired: u64,
    /// Jobs found without an attempt left when the queue was opened.
    pub exhausted_at_start: u64,
}

/// One job as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its offset.
    pub offset: u64,
    /// Attempts made.
    pub attempts: u32,
    /// First and latest attempt, Unix milliseconds.
    pub attempted: Option<(u64, u64)>,
    /// Where it is.
    pub standing: JobStanding,
}

/// Where a job is, in an operator's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStanding {
    /// Not out with a worker.
    Waiting,
    /// Handed to a worker whose transport acknowledgement has not come.
    Delivering {
        /// The worker.
        worker: WorkerId,
    },
    /// Held under a lease.
    Leased {
        /// The worker.
        worker: WorkerId,
        /// When the lease ends, on the monotonic clock.
        until: Duration,
    },
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Ready,
    Waiting {
        until: Duration,
    },
    Delivering {
        number: u64,
        worker: WorkerId,
    },
    Leased {
        number: u64,
        worker: WorkerId,
        until: Duration,
    },
    Storing {
        until: Duration,
    },
    Unstored {
        until: Duration,
        retry_at: Duration,
    },
    Resolving,
    Doomed {
        reason: Reason,
        not_before: Duration,
    },
    Moving {
        reason: Reason,
    },
}

#[derive(Debug)]
struct Job {
    attempts: u32,
    attempted: Option<(u64, u64)>,
    received_at: Option<u64>,
    /// Attempt writes on their way to the store.
    unstored: u16,
    /// The attempts here are ahead of what has been handed to the store.
    dirty: bool,
    place: Place,
}

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
    jobs: HashMap<u64, Job>,
    ready: BTreeSet<u64>,
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
            jobs: HashMap::with_capacity(unresolved.len()),
            ready: BTreeSet::new(),
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
        let job = Job {
            attempts,
            attempted,
            received_at,
            unstored: 0,
            dirty: false,
            place: Place::Ready,
        };
        if self.jobs.contains_key(&offset) {
            return;
        }
        self.jobs.insert(offset, job);
        if attempts >= self.settings.retry.max_attempts {
            self.totals.exhausted_at_start += 1;
            self.doom(offset, Reason::AttemptsExhausted);
        } else {
            self.ready.insert(offset);
            self.watch_expiry(offset);
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
        let job = self.jobs.get_mut(&offset)?;
        job.place = Place::Delivering { number, worker };
        self.ready.remove(&offset);
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
            let offset = *self.ready.first()?;
            if !self.expired(offset, now) {
                return Some(offset);
            }
            self.ready.remove(&offset);
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
            match self.jobs.get(&offset).map(|job| job.place) {
                Some(Place::Ready) => {
                    self.ready.remove(&offset);
                }
                Some(Place::Waiting { until }) => {
                    self.waiting.remove(&(until, offset));
                }
                _ => continue,
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
            unresolved: self.jobs.len(),
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
    /// job: for an operator's question, not for the path of a job.
    #[must_use]
    pub fn view(&self, limit: usize) -> Vec<JobView> {
        let mut worst = BTreeSet::new();
        for (&offset, job) in &self.jobs {
            worst.insert((std::cmp::Reverse(job.attempts), offset));
            if worst.len() > limit {
                worst.pop_last();
            }
        }
        let views = worst.into_iter().filter_map(|(_, offset)| {
            let job = self.jobs.get(&offset)?;
            Some(JobView {
                offset,
                attempts: job.attempts,
                attempted: job.attempted,
                standing: job.standing(),
            })
        });
        views.collect()
    }

    // -- inside ---------------------------------------------------------------------------------------

    fn live(&self, delivery: &DeliveryId) -> Option<u64> {
        self.current.get(&delivery.number(self.epoch)?).copied()
    }

    fn holder(&self, offset: u64) -> Option<WorkerId> {
        match self.jobs.get(&offset)?.place {
            Place::Delivering { worker, .. } | Place::Leased { worker, .. } => Some(worker),
            _ => None,
        }
    }

    /// Ends the live delivery of a job, whoever ended it: from here its ID names nothing.
    fn take_delivery(&mut self, offset: u64) -> Option<WorkerId> {
        match self.jobs.get(&offset)?.place {
            Place::Delivering { number, worker } => {
                self.current.remove(&number);
                Some(worker)
            }
            Place::Leased {
                number,
                worker,
                until,
            } => {
                self.current.remove(&number);
                self.leases.remove(&(until, offset));
                Some(worker)
            }
            _ => None,
        }
    }

    /// A worker's job has ended; with `ready` it takes its turn again.
    fn release_worker(&mut self, worker: WorkerId, ready: bool) {
        let Some(state) = self.workers.get_mut(&worker) else {
            return;
        };
        state.holds = None;
        if !state.accepting {
            self.workers.remove(&worker);
        } else if ready {
            self.worker_ready(worker);
        }
    }

    /// A delivery ended without an answer.
    fn delivery_lapsed(&mut self, offset: u64, now: Now) {
        self.take_delivery(offset);
        let Some(job) = self.jobs.get(&offset) else {
            return;
        };
        match job.place {
            // Never acknowledged, so never counted: there is no attempt to wait for.
            Place::Delivering { .. } => {
                self.totals.redelivered += 1;
                self.settle(offset, now.since_start, now);
            }
            Place::Leased { .. } => {
                let wait = self.settings.retry.backoff.after(job.attempts);
                if job.attempts >= self.settings.retry.max_attempts {
                    self.totals.dead_lettered += 1;
                } else {
                    self.totals.redelivered += 1;
                }
                self.back_from_worker(offset, now.since_start.saturating_add(wait), now);
            }
            _ => {}
        }
    }

    /// A job is back. It is offered only once its attempts are stored, so that no offer states an
    /// attempt which a crash could take back.
    fn back_from_worker(&mut self, offset: u64, until: Duration, now: Now) {
        match self.jobs.get_mut(&offset) {
            Some(job) if job.attempts >= self.settings.retry.max_attempts => {
                self.doom(offset, Reason::AttemptsExhausted);
            }
            Some(job) if job.unstored > 0 => job.place = Place::Storing { until },
            Some(job) if job.dirty => {
                let retry_at = now.since_start;
                job.place = Place::Unstored { until, retry_at };
                self.waiting.insert((retry_at, offset));
            }
            _ => self.settle(offset, until, now),
        }
    }

    /// Puts a job that nobody holds where it belongs.
    fn settle(&mut self, offset: u64, until: Duration, now: Now) {
        let expired = self.expired(offset, now);
        let Some(job) = self.jobs.get_mut(&offset) else {
            return;
        };
        if job.attempts >= self.settings.retry.max_attempts {
            self.doom(offset, Reason::AttemptsExhausted);
        } else if expired {
            self.totals.expired += 1;
            self.doom(offset, Reason::Expired);
        } else if until > now.since_start {
            job.place = Place::Waiting { until };
            self.waiting.insert((until, offset));
            self.watch_expiry(offset);
        } else {
            job.place = Place::Ready;
            self.ready.insert(offset);
            self.watch_expiry(offset);
        }
    }

    fn doom(&mut self, offset: u64, reason: Reason) {
        self.forget_expiry(offset);
        let not_before = Duration::ZERO;
        if let Some(job) = self.jobs.get_mut(&offset) {
            job.place = Place::Doomed { reason, not_before };
            self.doomed.insert((not_before, offset));
        }
    }

    fn expires_at(&self, offset: u64) -> Option<u64> {
        let age = self.settings.job_expires_after?;
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Some(self.jobs.get(&offset)?.received_at?.saturating_add(age))
    }

    fn expired(&self, offset: u64, now: Now) -> bool {
        self.expires_at(offset).is_some_and(|at| at <= now.unix_ms)
    }

    fn watch_expiry(&mut self, offset: u64) {
        if let Some(at) = self.expires_at(offset) {
            self.expiries.insert((at, offset));
        }
    }

    fn forget_expiry(&mut self, offset: u64) {
        if let Some(at) = self.expires_at(offset) {
            self.expiries.remove(&(at, offset));
        }
    }

    /// Takes a job out of wherever it is, and says where that was.
    fn remove(&mut self, offset: u64) -> Option<Place> {
        let place = self.jobs.get(&offset)?.place;
        self.forget_expiry(offset);
        match place {
            Place::Ready => {
                self.ready.remove(&offset);
            }
            Place::Waiting { until }
            | Place::Unstored {
                retry_at: until, ..
            } => {
                self.waiting.remove(&(until, offset));
            }
            Place::Delivering { .. } | Place::Leased { .. } => {
                if let Some(worker) = self.take_delivery(offset) {
                    self.totals.redelivered += 1;
                    self.release_worker(worker, true);
                }
            }
            Place::Doomed { not_before, .. } => {
                self.doomed.remove(&(not_before, offset));
            }
            Place::Storing { .. } => {}
            Place::Resolving => self.resolving -= 1,
            Place::Moving { .. } => self.moving -= 1,
        }
        self.jobs.remove(&offset);
        Some(place)
    }
}

impl Job {
    fn count_attempt(&mut self, now: Now) {
        self.attempts = self.attempts.saturating_add(1);
        let first = self.attempted.map_or(now.unix_ms, |(first, _)| first);
        self.attempted = Some((first, now.unix_ms));
        self.dirty = true;
    }

    /// The attempts as they stand, to be stored; nothing before the first.
    fn store_attempt(&mut self, offset: u64) -> Option<Effect> {
        let attempted = self.attempted?;
        self.dirty = false;
        self.unstored = self.unstored.saturating_add(1);
        Some(Effect::StoreAttempt {
            offset,
            attempts: self.attempts,
            attempted,
        })
    }

    fn dead_letter(&self, offset: u64, reason: Reason) -> Effect {
        Effect::DeadLetter {
            offset,
            reason,
            attempts: self.attempts,
            attempted: self.attempted,
        }
    }

    fn standing(&self) -> JobStanding {
        match self.place {
            Place::Delivering { worker, .. } => JobStanding::Delivering { worker },
            Place::Leased { worker, until, .. } => JobStanding::Leased { worker, until },
            _ => JobStanding::Waiting,
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

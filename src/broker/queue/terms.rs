//! The words a queue speaks in: what it is told, what it decides, and what it shows.

use std::time::Duration;

use super::delivery_id::DeliveryId;

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
    /// Store the attempts of a job; then [`attempt_stored`](super::QueueState::attempt_stored) or
    /// [`attempt_failed`](super::QueueState::attempt_failed), once per effect.
    StoreAttempt {
        /// The job.
        offset: u64,
        /// Attempts made.
        attempts: u32,
        /// First and latest, Unix milliseconds.
        attempted: (u64, u64),
    },
    /// Remove a job that is done; then [`resolved`](super::QueueState::resolved) or [`resolve_failed`](super::QueueState::resolve_failed).
    Resolve {
        /// The job.
        offset: u64,
    },
    /// Move a job to the dead-letter channel; then [`dead_lettered`](super::QueueState::dead_lettered) or
    /// [`dead_letter_failed`](super::QueueState::dead_letter_failed).
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

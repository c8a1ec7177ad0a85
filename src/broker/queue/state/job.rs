//! One job: where it is, and its attempts.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Effect, JobStanding, Now, Reason, WorkerId};

/// Where a job is; the table of moves is the module above's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
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
pub(super) struct Job {
    pub(super) attempts: u32,
    pub(super) attempted: Option<(u64, u64)>,
    pub(super) received_at: Option<NonZeroU64>,
    /// Attempt writes on their way to the store.
    pub(super) unstored: u16,
    /// The attempts here are ahead of what has been handed to the store.
    pub(super) dirty: bool,
    pub(super) place: Place,
}

impl Job {
    pub(super) fn count_attempt(&mut self, now: Now) {
        self.attempts = self.attempts.saturating_add(1);
        let first = self.attempted.map_or(now.unix_ms, |(first, _)| first);
        self.attempted = Some((first, now.unix_ms));
        self.dirty = true;
    }

    /// The attempts as they stand, to be stored; nothing before the first.
    pub(super) fn store_attempt(&mut self, offset: u64) -> Option<Effect> {
        let attempted = self.attempted?;
        self.dirty = false;
        self.unstored = self.unstored.saturating_add(1);
        Some(Effect::StoreAttempt {
            offset,
            attempts: self.attempts,
            attempted,
        })
    }

    pub(super) fn dead_letter(&self, offset: u64, reason: Reason) -> Effect {
        Effect::DeadLetter {
            offset,
            reason,
            attempts: self.attempts,
            attempted: self.attempted,
        }
    }

    pub(super) fn standing(&self) -> JobStanding {
        match self.place {
            Place::Delivering { worker, .. } => JobStanding::Delivering { worker },
            Place::Leased { worker, until, .. } => JobStanding::Leased { worker, until },
            _ => JobStanding::Waiting,
        }
    }
}

//! Moving jobs between places, each with the index that finds it there.

use std::num::NonZeroU64;
use std::time::Duration;

use super::job::{Job, Place};
use super::{DeliveryId, Now, QueueState, Reason, WorkerId};

impl QueueState {
    pub(super) fn live(&self, delivery: &DeliveryId) -> Option<u64> {
        self.current.get(&delivery.number(self.epoch)?).copied()
    }

    pub(super) fn holder(&self, offset: u64) -> Option<WorkerId> {
        match self.jobs.get(&offset)?.place {
            Place::Delivering { worker, .. } | Place::Leased { worker, .. } => Some(worker),
            _ => None,
        }
    }

    /// Ends the live delivery of a job, whoever ended it: from here its ID names nothing.
    pub(super) fn take_delivery(&mut self, offset: u64) -> Option<WorkerId> {
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
    pub(super) fn release_worker(&mut self, worker: WorkerId, ready: bool) {
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
    pub(super) fn delivery_lapsed(&mut self, offset: u64, now: Now) {
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
    pub(super) fn back_from_worker(&mut self, offset: u64, until: Duration, now: Now) {
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
    pub(super) fn settle(&mut self, offset: u64, until: Duration, now: Now) {
        let Some(job) = self.jobs.get_mut(&offset) else {
            return;
        };
        let (attempts, received_at) = (job.attempts, job.received_at);
        if attempts >= self.settings.retry.max_attempts {
            self.doom(offset, Reason::AttemptsExhausted);
        } else if self.expired(received_at, now) {
            self.totals.expired += 1;
            self.doom(offset, Reason::Expired);
        } else if until > now.since_start {
            self.set_place(offset, Place::Waiting { until });
            self.waiting.insert((until, offset));
            self.watch_expiry(offset, received_at);
        } else {
            self.make_ready(offset);
        }
    }

    pub(super) fn doom(&mut self, offset: u64, reason: Reason) {
        let not_before = Duration::ZERO;
        self.forget_expiry(offset);
        self.set_place(offset, Place::Doomed { reason, not_before });
        self.doomed.insert((not_before, offset));
    }

    pub(super) fn set_place(&mut self, offset: u64, place: Place) {
        if let Some(job) = self.jobs.get_mut(&offset) {
            job.place = place;
        }
    }

    /// A job that was never tried is from here on no more than its entry in `ready`.
    pub(super) fn make_ready(&mut self, offset: u64) {
        let Some(job) = self.jobs.get_mut(&offset) else {
            return;
        };
        job.place = Place::Ready;
        let received_at = job.received_at;
        if job.attempts == 0 {
            self.jobs.remove(&offset);
            self.untried += 1;
        }
        self.ready.insert(offset, received_at);
        self.watch_expiry(offset, received_at);
    }

    /// Takes a job that is ready out of that, into `jobs`; whether it was ready.
    pub(super) fn take_ready(&mut self, offset: u64) -> bool {
        let Some(received_at) = self.ready.remove(&offset) else {
            return false;
        };
        self.jobs.entry(offset).or_insert_with(|| {
            self.untried -= 1;
            Job {
                attempts: 0,
                attempted: None,
                received_at,
                unstored: 0,
                dirty: false,
                place: Place::Ready,
            }
        });
        true
    }

    pub(super) fn expires_at(&self, received_at: Option<NonZeroU64>) -> Option<u64> {
        let age = self.settings.job_expires_after?;
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Some(received_at?.get().saturating_add(age))
    }

    pub(super) fn expired(&self, received_at: Option<NonZeroU64>, now: Now) -> bool {
        let at = self.expires_at(received_at);
        at.is_some_and(|at| at <= now.unix_ms)
    }

    pub(super) fn watch_expiry(&mut self, offset: u64, received_at: Option<NonZeroU64>) {
        if let Some(at) = self.expires_at(received_at) {
            self.expiries.insert((at, offset));
        }
    }

    pub(super) fn forget_expiry(&mut self, offset: u64) {
        let received_at = self.jobs.get(&offset).and_then(|job| job.received_at);
        if let Some(at) = self.expires_at(received_at) {
            self.expiries.remove(&(at, offset));
        }
    }

    /// Takes a job out of wherever it is, and says where that was.
    pub(super) fn remove(&mut self, offset: u64) -> Option<Place> {
        self.take_ready(offset);
        let place = self.jobs.get(&offset)?.place;
        self.forget_expiry(offset);
        match place {
            Place::Ready => {}
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

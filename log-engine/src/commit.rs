//! When is a batch acknowledged? Here: take what waits, one frame, one write, one sync, make it
//! visible, complete the tickets in order.
//!
//! Nobody waits for company: a frame holds what arrived while the previous one was being synced.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::batch::{CommitError, Receipt};
use crate::breakage::{self, Breakage};
use crate::engine::Shared;
use crate::handoff::{Next, Outcome, Pending, TakeLimit};
use crate::latch::Failure;
use crate::plan::Planner;
use crate::state::Location;
use crate::sync::{Arc, read, write};
use crate::writer::{WriteError, Writer};

/// Most batches in one frame.
const FRAME_BATCHES: usize = 256;
/// Encoded bytes after which a frame takes no further batch.
const FRAME_BYTES: u64 = 1 << 20;

/// The commit thread's work. It alone changes the published state and the end of the log.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Writer,
    pub(crate) planner: Planner,
    /// See [`Options::idle`](crate::Options::idle).
    pub(crate) idle: Duration,
    /// Taken from the queue and not yet completed.
    pub(crate) taken: Vec<Pending>,
}

impl Committer {
    /// Runs until the engine is closed. However it ends, nobody is left waiting.
    pub(crate) fn run(mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        let failure = match ended {
            Ok(()) => self.shared.latch.get(),
            Err(_) => Some(
                self.shared
                    .latch
                    .set("the commit thread panicked; this is a defect"),
            ),
        };
        let failure = failure.unwrap_or_else(|| Failure {
            reason: "it is closed".into(),
        });
        self.refuse_taken(&failure);
        self.shared.handoff.shut(&failure);
        self.shared.outcomes_ready();
    }

    fn work(&mut self) {
        let limit = TakeLimit {
            batches: FRAME_BATCHES,
            bytes: FRAME_BYTES,
        };
        loop {
            match self.shared.handoff.take(&mut self.taken, limit, self.idle) {
                Next::Work => self.commit(),
                Next::Idle => self.quietly(Writer::witness),
                Next::End => break,
            }
        }
        self.quietly(Writer::stop);
    }

    /// A write nobody waits for.
    fn quietly(&mut self, step: fn(&mut Writer) -> Result<(), WriteError>) {
        if self.shared.latch.get().is_some() {
            return;
        }
        if let Err(WriteError::Failed(reason)) = step(&mut self.writer) {
            self.shared.latch.set(&reason);
        }
    }

    fn commit(&mut self) {
        if let Some(failure) = self.shared.latch.get() {
            self.refuse_taken(&failure);
        } else {
            let planned = self.plan();
            if breakage::is(Breakage::AckBeforeSync) {
                self.complete(planned, &Ok(self.writer.next_lsn));
                let _ = self.store();
                return self.shared.outcomes_ready();
            }
            let stored = self.store();
            if stored.is_ok() {
                let others = self.taken.iter().filter(|p| !p.batch.is_tidying());
                let bytes = others.map(|p| p.bytes).sum();
                self.shared.credit.fetch_add(bytes, Relaxed);
            }
            self.complete(planned, &stored);
        }
        // One wake of the callers' runtime per frame, never one per caller.
        self.shared.outcomes_ready();
    }

    /// Puts every batch that may be kept into the frame; refusals are per batch.
    fn plan(&mut self) -> Vec<Result<Vec<Option<u64>>, CommitError>> {
        let published = read(&self.shared.published);
        self.planner.begin();
        let planner = &mut self.planner;
        self.taken
            .iter_mut()
            .map(|p| planner.add(&published.state, &p.batch, std::mem::take(&mut p.offsets)))
            .collect()
    }

    /// Makes the frame durable, then visible. `Ok` holds its LSN.
    fn store(&mut self) -> Result<u64, CommitError> {
        if self.planner.frame.operations() == 0 {
            // Nothing to keep: whatever these batches build on is durable already.
            return Ok(self.writer.durable_lsn);
        }
        if breakage::is(Breakage::ShowBeforeSync) {
            let at = Location {
                segment: self.writer.segment.number(),
                frame: self.writer.at as u32,
            };
            self.publish(at)?;
        }
        let segments = &self.shared.segments;
        let written = {
            let published = read(&self.shared.published);
            let bell = &self.shared.bell;
            let mut rolled = |segment: &Arc<_>| {
                segments.push(Arc::clone(segment));
                bell.ring();
            };
            self.writer
                .commit(&mut self.planner.frame, &published.state, &mut rolled)
        };
        match written {
            Ok((_, lsn)) if breakage::is(Breakage::ShowBeforeSync) => Ok(lsn),
            Ok((at, lsn)) => {
                self.publish(at)?;
                Ok(lsn)
            }
            Err(WriteError::NoSpace) => Err(CommitError::NoSpace),
            Err(WriteError::Failed(reason)) => {
                Err(CommitError::Failed(self.shared.latch.set(&reason)))
            }
        }
    }

    /// Applies the frame as it lies on the disk, so that what runs and what would be recovered are
    /// the same by construction. Readers see all of it or none.
    fn publish(&mut self, at: Location) -> Result<(), CommitError> {
        let mut published = write(&self.shared.published);
        for op in self.planner.frame.ops() {
            let applied = match op {
                Ok(op) => published.state.apply(&op, at).map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
            if let Err(why) = applied {
                let reason = format!("a durable frame cannot be applied, a defect: {why}");
                return Err(CommitError::Failed(self.shared.latch.set(&reason)));
            }
        }
        for (channel, record) in self.planner.records.drain(..) {
            published.tail.push(channel, record);
        }
        Ok(())
    }

    /// Completes every batch in the order it was submitted.
    fn complete(
        &mut self,
        planned: Vec<Result<Vec<Option<u64>>, CommitError>>,
        stored: &Result<u64, CommitError>,
    ) {
        for (pending, offsets) in self.taken.drain(..).zip(planned) {
            let outcome: Outcome = match (offsets, stored) {
                (Err(refusal), _) => Err(refusal),
                (Ok(offsets), Ok(lsn)) => Ok(Receipt { lsn: *lsn, offsets }),
                (Ok(_), Err(failed)) => Err(failed.clone()),
            };
            pending.completion.complete(outcome);
        }
    }

    fn refuse_taken(&mut self, failure: &Failure) {
        for pending in self.taken.drain(..) {
            pending
                .completion
                .complete(Err(CommitError::Failed(failure.clone())));
        }
    }
}

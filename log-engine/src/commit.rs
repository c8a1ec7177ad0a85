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
use crate::format::SEGMENT_HEADER_BYTES;
use crate::handoff::{Next, Outcome, Pending, TakeLimit};
use crate::latch::Failure;
use crate::plan::{Planner, PublishLimit};
use crate::room::relieves;
use crate::state::{Location, State};
use crate::sync::{Arc, read, write};
use crate::writer::{TAIL_ROOM, WriteError, Writer};

/// Most batches in one frame.
const FRAME_BATCHES: usize = 256;
/// Encoded bytes after which a frame takes no further batch.
const FRAME_BYTES: u64 = 1 << 20;

/// No line of a prologue takes more beside the channel's name.
const PROLOGUE_LINE_BYTES: u64 = 80;

/// A batch's offsets, or why it is refused.
type Planned = Result<Vec<Option<u64>>, CommitError>;

/// The commit thread's work. It alone changes the published state and the end of the log.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Writer,
    pub(crate) planner: Planner,
    /// See [`Options::idle`](crate::Options::idle).
    pub(crate) idle: Duration,
    /// Taken from the queue and not yet completed.
    pub(crate) taken: Vec<Pending>,
    /// Channels, and no less than a prologue of that many takes: where its frame ends.
    pub(crate) prologue: (usize, u64),
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
            let mut planned = self.plan(None);
            if breakage::is(Breakage::AckBeforeSync) {
                self.complete(planned, &Ok(self.writer.next_lsn));
                let _ = self.store();
                return self.shared.outcomes_ready();
            }
            let at_bound = |p: &Planned| matches!(p, Err(CommitError::LogFull { .. }));
            if planned.iter().any(at_bound) {
                self.shared.room.set_refused(true);
            }
            let alive = self.alive_if_needed();
            let mut stored = self.store();
            let mixed = self.planner.publishes && self.planner.relieves;
            if stored == Err(CommitError::NoSpace) && mixed {
                // No room for what is published. What relieves may fit yet, and then there will be.
                planned = self.plan(Some(CommitError::NoSpace));
                stored = self.store();
            }
            if stored.is_ok() {
                self.earn(alive);
                if self.planner.publishes && !planned.iter().any(at_bound) {
                    self.shared.room.set_refused(false);
                }
                let others = self.taken.iter().filter(|p| !p.batch.is_tidying());
                let bytes = others.map(|p| p.bytes).sum();
                self.shared.credit.fetch_add(bytes, Relaxed);
            }
            self.complete(planned, &stored);
            if self.shared.needs_room() {
                self.shared.bell.ring();
            }
        }
        // One wake of the callers' runtime per frame, never one per caller.
        self.shared.outcomes_ready();
    }

    /// Puts every batch that may be kept into the frame; refusals are per batch. With `refusal`
    /// nothing that publishes is kept.
    fn plan(&mut self, refusal: Option<CommitError>) -> Vec<Planned> {
        let shared = self.shared.clone();
        let published = read(&shared.published);
        let mut limit = match refusal {
            Some(refusal) => PublishLimit {
                frame_bytes: 0,
                refusal,
            },
            None => self.publish_limit(&published.state),
        };
        loop {
            self.planner.begin();
            let planner = &mut self.planner;
            let batches = self.taken.iter().map(|p| &p.batch);
            let planned = batches.map(|batch| planner.add(&published.state, batch, &limit));
            let planned = planned.collect();
            let fits = self.planner.frame.frame_len() as u64 <= limit.frame_bytes;
            if fits || !self.planner.publishes {
                return planned;
            }
            // What relieves came after it and left no room: then it goes alone.
            limit.frame_bytes = 0;
        }
    }

    /// What the bound leaves to what is published.
    fn publish_limit(&mut self, state: &State) -> PublishLimit {
        let room = &self.shared.room;
        let Some(max_bytes) = room.max_bytes else {
            return PublishLimit {
                frame_bytes: u64::MAX,
                refusal: CommitError::NoSpace,
            };
        };
        // Channels only become more: counted again where there is one more.
        let channels = state.channels().count();
        if self.prologue.0 != channels {
            let names = state.channels().map(|(_, c)| c.name.len() as u64);
            let lines = names.map(|name| name + PROLOGUE_LINE_BYTES).sum::<u64>();
            let end = SEGMENT_HEADER_BYTES as u64 + PROLOGUE_LINE_BYTES + lines;
            self.prologue = (channels, end + TAIL_ROOM);
        }
        let bytes = self.shared.directory_bytes();
        let ready = self.shared.prepared_bytes().0;
        let left = self.writer.left(true);
        PublishLimit {
            frame_bytes: room.longest_publish(bytes, ready, left, self.prologue.1),
            refusal: CommitError::LogFull { bytes, max_bytes },
        }
    }

    /// Bytes alive, where room is needed.
    fn alive_if_needed(&self) -> Option<u64> {
        let needed = self.shared.needs_room();
        needed.then(|| read(&self.shared.published).state.alive_bytes())
    }

    /// Counts what was written to relieve, and what went by it: moving what is alive may cost a
    /// multiple of that.
    fn earn(&self, alive: Option<u64>) {
        let Some(alive) = alive else { return };
        let published = read(&self.shared.published);
        let freed = alive.saturating_sub(published.state.alive_bytes());
        let relief = self
            .taken
            .iter()
            .filter(|p| !p.batch.is_tidying() && relieves(&published.state, &p.batch));
        let written: u64 = relief.map(|p| p.bytes).sum();
        let used = self.shared.directory_bytes();
        self.shared.room.earn(written + freed, used);
    }

    /// Notes how a write ended that may have made a segment.
    fn rolled(&self, rolled: bool, no_room: bool) {
        let room = &self.shared.room;
        room.set_left(self.writer.left(false));
        if no_room {
            room.set_starved(true);
        } else if rolled {
            room.set_starved(false);
            let used = self.shared.directory_bytes();
            room.watch(used);
            // A file is prepared for what is published: what relieves makes do without.
            if room.has_next(used) {
                self.writer.spares.want(self.writer.segment_bytes);
            }
        }
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
        let mut rolled_over = false;
        let written = {
            let published = read(&self.shared.published);
            let bell = &self.shared.bell;
            let mut rolled = |segment: &Arc<_>| {
                segments.push(Arc::clone(segment));
                rolled_over = true;
                bell.ring();
            };
            let publishes = self.planner.publishes;
            let frame = &mut self.planner.frame;
            self.writer
                .commit(frame, publishes, &published.state, &mut rolled)
        };
        self.rolled(rolled_over, matches!(written, Err(WriteError::NoSpace)));
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
    fn complete(&mut self, planned: Vec<Planned>, stored: &Result<u64, CommitError>) {
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

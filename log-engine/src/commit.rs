//! When is a batch acknowledged? Here: take what waits, one frame, one write, one sync, make it
//! visible, complete the tickets in order.
//!
//! A frame in which nobody asks for a sync is made visible and completed once it is written, and is
//! synced at the latest after the flush interval, with whatever else is written by then. A frame in
//! which anybody asks is synced whole, and with it everything before it.
//!
//! Nobody waits for company unless the options say so: a frame holds what arrived while the previous
//! one was being synced.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::batch::{CommitError, Operation, Receipt};
use crate::breakage::{self, Breakage};
use crate::engine::Shared;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::handoff::{Closed, Next, Outcome, Pending, TakeLimit, Unsynced};
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
/// What one frame takes.
pub(crate) const TAKE: TakeLimit = TakeLimit {
    batches: FRAME_BATCHES,
    bytes: FRAME_BYTES,
};

/// No line of a prologue takes more beside the channel's name.
const PROLOGUE_LINE_BYTES: u64 = 80;

/// What a batch will be told once its frame is stored, or why it is refused.
type Planned = Result<Receipt, CommitError>;

/// Whether the bound on the log refused a batch, or any of what was judged by itself.
fn at_bound(planned: &Planned) -> bool {
    let is_bound = |error: &CommitError| matches!(error, CommitError::LogFull { .. });
    match planned {
        Ok(receipt) => receipt.refused.iter().any(|(_, refusal)| is_bound(refusal)),
        Err(refusal) => is_bound(refusal),
    }
}

/// The commit thread's work. It alone changes the published state and the end of the log.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Writer,
    pub(crate) planner: Planner,
    /// See [`Options::idle`](crate::Options::idle).
    pub(crate) idle: Duration,
    /// See [`Options::flush_interval`](crate::Options::flush_interval).
    pub(crate) flush_interval: Duration,
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
        loop {
            let since = self.writer.unsynced_since;
            let most = self.flush_interval;
            // A failed engine syncs nothing any more.
            let since = since.filter(|_| self.shared.latch.get().is_none());
            let unsynced = since.map(|since| Unsynced { since, most });
            let handoff = &self.shared.handoff;
            match handoff.take(&mut self.taken, self.idle, unsynced.as_ref()) {
                Next::Work(closed) => self.commit(closed),
                Next::Idle => self.quietly(Writer::witness),
                Next::Flush => self.quietly(Writer::flush),
                Next::End => break,
            }
        }
        self.lower_ceilings();
        self.quietly(Writer::stop);
        if self.shared.latch.get().is_none() {
            write(&self.shared.published).last_lsn = self.writer.next_lsn - 1;
        }
    }

    /// Nothing handed out can be lost any more once all is synced: the next opening need not skip.
    /// Where there is no room to say so, it does.
    fn lower_ceilings(&mut self) {
        if self.shared.latch.get().is_some() {
            return;
        }
        self.planner.begin();
        for op in read(&self.shared.published).state.lowered_ceilings() {
            self.planner.frame.push(&op);
        }
        if self.planner.frame.operations() > 0 {
            // A failure latches, and then nothing more is written.
            let _ = self.store(true);
        }
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

    fn commit(&mut self, closed: Closed) {
        if let Some(failure) = self.shared.latch.get() {
            self.refuse_taken(&failure);
        } else {
            let mut planned = self.plan(None);
            if breakage::is(Breakage::AckBeforeSync) {
                self.complete(planned, &Ok(self.writer.next_lsn));
                let _ = self.store(true);
                return self.shared.outcomes_ready();
            }
            if planned.iter().any(at_bound) {
                self.shared.room.set_refused(true);
            }
            let alive = self.alive_if_needed();
            let mut stored = self.store(self.must_sync());
            let mixed = self.planner.publishes && self.planner.relieves;
            if stored == Err(CommitError::NoSpace) && mixed {
                // No room for what is published. What relieves may fit yet, and then there will be.
                planned = self.plan(Some(CommitError::NoSpace));
                stored = self.store(self.must_sync());
            }
            if stored.is_ok() {
                self.earn(alive);
                if self.planner.publishes && !planned.iter().any(at_bound) {
                    self.shared.room.set_refused(false);
                }
            }
            self.count(&planned, &stored, closed);
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
            let planned = self.taken.iter_mut().map(|p| {
                let offsets = std::mem::take(&mut p.offsets);
                if p.each {
                    return Ok(planner.add_each(&published.state, &p.batch, offsets, &limit));
                }
                planner.add(&published.state, &p.batch, offsets, &limit)
            });
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
        let state = &published.state;
        let relief = |p: &Pending| match &p.batch.operations[..] {
            together if !p.each && relieves(state, together) => p.bytes,
            each if p.each => {
                let alone = each
                    .iter()
                    .filter(|o| relieves(state, std::slice::from_ref(*o)));
                alone.map(Operation::encoded_bound).sum()
            }
            _ => 0,
        };
        let others = self.taken.iter().filter(|p| !p.batch.is_tidying());
        let written: u64 = others.map(relief).sum();
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

    /// Whether a batch that is kept asks for a sync.
    fn must_sync(&self) -> bool {
        let unsynced = |p: &Pending| !p.batch.operations.is_empty() && !p.batch.is_sync();
        let mixed = breakage::is(Breakage::MixedUnsynced)
            && self.taken.iter().any(unsynced)
            && self.taken.iter().any(|p| p.batch.is_sync());
        self.planner.must_sync() && !mixed
    }

    fn count(&self, planned: &[Planned], stored: &Result<u64, CommitError>, closed: Closed) {
        let meters = &self.shared.meters;
        let others = self.taken.iter().zip(planned);
        let others = others.filter(|(p, kept)| kept.is_ok() && !p.batch.is_tidying());
        let (mut batches, mut operations, mut bytes) = (0, 0, 0);
        for (pending, kept) in others {
            let refused = kept.as_ref().map_or(0, |receipt| receipt.refused.len());
            batches += u64::from(!pending.batch.operations.is_empty());
            operations += (pending.batch.operations.len() - refused) as u64;
            bytes += pending.bytes;
        }
        match stored {
            Ok(_) => {
                self.shared.credit.fetch_add(bytes, Relaxed);
                meters.add(&meters.batches, batches);
                meters.add(&meters.operations, operations);
                if self.planner.frame.operations() > 0 {
                    meters.closed(closed);
                }
            }
            Err(CommitError::NoSpace) => meters.add(&meters.refused_no_space, batches),
            Err(_) => {}
        }
    }

    /// Writes the frame, with `sync` makes it durable, then visible. `Ok` holds its LSN.
    fn store(&mut self, sync: bool) -> Result<u64, CommitError> {
        if self.planner.frame.operations() == 0 {
            // Nothing to keep. What these batches build on may not be durable yet.
            let flushed = if sync { self.writer.flush() } else { Ok(()) };
            return match flushed {
                Err(WriteError::Failed(reason)) => {
                    Err(CommitError::Failed(self.shared.latch.set(&reason)))
                }
                _ => Ok(self.writer.last_lsn),
            };
        }
        if breakage::is(Breakage::ShowBeforeSync) {
            let at = Location {
                segment: self.writer.segment.number(),
                frame: self.writer.at as u32,
            };
            self.publish(at, self.writer.next_lsn)?;
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
                .commit(frame, publishes, &published.state, sync, &mut rolled)
        };
        self.rolled(rolled_over, matches!(written, Err(WriteError::NoSpace)));
        match written {
            Ok((_, lsn)) if breakage::is(Breakage::ShowBeforeSync) => Ok(lsn),
            Ok((at, lsn)) => {
                self.publish(at, lsn)?;
                Ok(lsn)
            }
            Err(WriteError::NoSpace) => Err(CommitError::NoSpace),
            Err(WriteError::Failed(reason)) => {
                Err(CommitError::Failed(self.shared.latch.set(&reason)))
            }
        }
    }

    /// Applies the frame as it lies in the log, so that what runs and what would be recovered are
    /// the same by construction. Readers see all of it or none.
    fn publish(&mut self, at: Location, lsn: u64) -> Result<(), CommitError> {
        let mut published = write(&self.shared.published);
        for op in self.planner.frame.ops() {
            let applied = match op {
                Ok(op) => published.state.apply(&op, at).map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
            if let Err(why) = applied {
                let reason = format!("a written frame cannot be applied, a defect: {why}");
                return Err(CommitError::Failed(self.shared.latch.set(&reason)));
            }
        }
        for (channel, record) in self.planner.records.drain(..) {
            published.tail.push(channel, record);
        }
        published.last_lsn = lsn;
        Ok(())
    }

    /// Completes every batch in the order it was submitted.
    fn complete(&mut self, planned: Vec<Planned>, stored: &Result<u64, CommitError>) {
        for (pending, planned) in self.taken.drain(..).zip(planned) {
            let outcome: Outcome = match (planned, stored) {
                (Err(refusal), _) => Err(refusal),
                (Ok(receipt), Ok(lsn)) => Ok(Receipt {
                    lsn: *lsn,
                    ..receipt
                }),
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

//! How much a log may take, and what is kept of that for whatever relieves it.
//!
//! A directory at its bound refuses what is published and nothing else: a bound never refuses the
//! operation that would relieve it. Which is which is decided by batch; one operation that publishes
//! makes it a batch that publishes.
//!
//! | publishes: stops at the reserve | relieves: never refused by the bound |
//! |---|---|
//! | append, set, enqueue, hold | trim, forget, resolve, drop, delete: something goes |
//! | put of a new or a longer value | put of a position or a window: what is acknowledged leaves with it |
//! | | put of a value no longer than the one it replaces |
//! | | remove: a deletion in the place of a value |
//! | | attempt: what a delivery that goes on has to say |
//! | | dead letter, release: what is kept already goes elsewhere |
//! | | define; whatever tidying does |
//!
//! With `max_bytes` the *reserve* is one largest record and what compaction needs to make progress:
//!
//! ```text
//!   segment = segment_bytes, at most max_bytes / 16, at least MIN_SEGMENT_BYTES
//!   reserve = max_record_bytes + the larger of 3 segments and max_bytes / 16
//! ```
//!
//! Three segments: one for what relieves, one for what is moved out of the oldest, and one that both
//! may be in the middle of when the oldest goes. What is published is kept only while the directory,
//! with the segment it needs, takes no more than `max_bytes` less the reserve. What relieves goes on
//! in the reserve. Where it were to use that up before tidying gives something back, it goes on beyond
//! `max_bytes`, with a warning: the bound is worth less than what it would refuse.
//!
//! The same on a disk that is full, where nothing can be promised, because the log is not alone on it:
//! a segment for what is published is made only where the disk has room for one more after it; and the
//! end of every segment, [`relief_tail`] bytes of it, takes only frames that relieve. So those go on,
//! and give segments back, when no further segment can be made.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::batch::{Operation, is_tidying};
use crate::breakage::{self, Breakage};
use crate::engine::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, Options};
use crate::format::{POSITIONS, WINDOWS};
use crate::state::State;

/// A bounded directory holds at least this many ordinary segments.
const SEGMENTS: u64 = 16;

/// Most bytes at the end of a segment that only what relieves may take.
const MAX_RELIEF_TAIL: u64 = 64 << 10;

/// Bytes that may be moved for each byte that was written to relieve or went by it, where room is
/// needed: enough to carry a log that is 15/16 alive once around.
const EARNED: u64 = 16;

/// Bytes of the lock file.
const LOCK_FILE_BYTES: u64 = 33;

/// Bytes at the end of a segment of `capacity` bytes that only what relieves may take.
pub(crate) fn relief_tail(capacity: u64) -> u64 {
    (capacity / 16).min(MAX_RELIEF_TAIL)
}

/// Capacity at which `needed` bytes fit before the [`relief_tail`].
pub(crate) fn with_relief_tail(needed: u64) -> u64 {
    needed + (needed / 15 + 1).min(MAX_RELIEF_TAIL)
}

/// Largest `needed` that [`with_relief_tail`] makes no more than `capacity`.
fn without_relief_tail(capacity: u64) -> u64 {
    capacity.saturating_sub(relief_tail(capacity) + 1)
}

/// A bound that leaves no room for a log to work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundTooSmall {
    /// The bound asked for, in bytes.
    pub max_bytes: u64,
    /// The least that works, in bytes.
    pub least: u64,
}

impl std::fmt::Display for BoundTooSmall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "max_bytes {} is too small for a log whose largest record it has to hold twice over; write {} or more",
            self.max_bytes, self.least
        )
    }
}

impl std::error::Error for BoundTooSmall {}

impl Options {
    /// Capacity of an ordinary segment, in bytes: what was asked for, fitted to the bounds.
    #[must_use]
    pub fn ordinary_segment_bytes(&self) -> u64 {
        let fit = self.max_bytes.map_or(u64::MAX, |max| max / SEGMENTS);
        let wanted = self.segment_bytes.min(fit);
        wanted.clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)
    }

    /// What of `max_bytes` is kept for what relieves, in bytes; zero without a bound.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        self.max_bytes.map_or(0, |max| {
            let compaction = (3 * self.ordinary_segment_bytes()).max(max / SEGMENTS);
            self.max_record_bytes + compaction
        })
    }

    /// The least `max_bytes` that works, in bytes: sixteen of the smallest segments, and four of the
    /// largest record, so that the reserve is no more than half of it.
    #[must_use]
    pub fn least_max_bytes(&self) -> u64 {
        (SEGMENTS * MIN_SEGMENT_BYTES).max(self.max_record_bytes.saturating_mul(4))
    }

    /// Whether a log can be run so.
    ///
    /// # Errors
    /// [`BoundTooSmall`].
    pub fn check(&self) -> Result<(), BoundTooSmall> {
        match self.max_bytes {
            Some(max_bytes) if max_bytes < self.least_max_bytes() => Err(BoundTooSmall {
                max_bytes,
                least: self.least_max_bytes(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether all of what is judged together relieves; see the table of this module.
pub(crate) fn relieves(state: &State, operations: &[Operation]) -> bool {
    if breakage::is(Breakage::BoundRefusesRelief) && !is_tidying(operations) {
        return false;
    }
    operations.iter().all(|operation| match operation {
        Operation::Append { .. }
        | Operation::Set { .. }
        | Operation::Enqueue { .. }
        | Operation::Hold { .. } => false,
        Operation::Put { space, key, value } => {
            *space == POSITIONS || *space == WINDOWS || {
                let old = state.keyspace().get(&(*space, key.clone()));
                old.is_some_and(|old| value.len() <= old.value.len())
            }
        }
        Operation::Define { .. }
        | Operation::Trim(_)
        | Operation::Remove { .. }
        | Operation::Forget { .. }
        | Operation::Attempt { .. }
        | Operation::Resolve { .. }
        | Operation::DeadLetter { .. }
        | Operation::Release { .. }
        | Operation::Drop { .. }
        | Operation::Delete { .. }
        | Operation::Tidy(_) => true,
    })
}

/// What a log knows of the room it has.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) max_bytes: Option<u64>,
    /// What the directory may take and still keep what is published.
    publish_bytes: u64,
    /// Capacity of an ordinary segment.
    segment_bytes: u64,
    /// Bytes of files that are neither segments nor on the way to becoming one. Whoever makes or
    /// removes such a file says so here.
    other: AtomicU64,
    /// Bytes of checkpoints.
    checkpoints: AtomicU64,
    /// The disk had no room for the last segment that was asked for.
    starved: AtomicBool,
    /// Something that is published was refused at the bound, and nothing was kept since.
    refused: AtomicBool,
    /// Bytes frames may take in the segment written to.
    left: AtomicU64,
    /// Bytes that may be moved because of what relieved.
    earned: AtomicU64,
    /// The directory takes more than `max_bytes`, and that was said.
    passed: AtomicBool,
}

impl Room {
    pub(crate) fn new(options: &Options) -> Room {
        let max_bytes = options.max_bytes;
        let reserve = options.reserve();
        Room {
            max_bytes,
            publish_bytes: max_bytes.map_or(u64::MAX, |max| max.saturating_sub(reserve)),
            segment_bytes: options.ordinary_segment_bytes(),
            other: AtomicU64::new(LOCK_FILE_BYTES),
            checkpoints: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            left: AtomicU64::new(u64::MAX),
            earned: AtomicU64::new(0),
            passed: AtomicBool::new(false),
        }
    }

    /// Bytes of the files that are no segments.
    pub(crate) fn other(&self) -> u64 {
        self.other.load(Relaxed) + self.checkpoints.load(Relaxed)
    }

    /// A file that is no segment was made, or a segment that belongs to the log no longer stayed.
    pub(crate) fn add_other(&self, bytes: u64) {
        self.other.fetch_add(bytes, Relaxed);
    }

    /// Checkpoints take so much.
    pub(crate) fn set_checkpoints(&self, bytes: u64) {
        self.checkpoints.store(bytes, Relaxed);
    }

    /// Whether a directory that takes `used` bytes has room for one more segment that takes what is
    /// published.
    pub(crate) fn has_next(&self, used: u64) -> bool {
        used.saturating_add(self.segment_bytes) <= self.publish_bytes
    }

    /// The longest frame of a directory that takes `used` bytes that what is published may lie in:
    /// `left` in the segment written to, or one a new segment can be made for beside a prologue that
    /// ends at `prologue_end`. A `ready` prepared file becomes that segment.
    pub(crate) fn longest_publish(
        &self,
        used: u64,
        ready: u64,
        left: u64,
        prologue_end: u64,
    ) -> u64 {
        if used > self.publish_bytes {
            return 0;
        }
        let free = self.publish_bytes - used + ready;
        if free < self.segment_bytes.max(ready) {
            return left;
        }
        left.max(without_relief_tail(free).saturating_sub(prologue_end))
    }

    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Relaxed)
    }

    /// A segment was made, or could not be for want of room.
    pub(crate) fn set_starved(&self, starved: bool) {
        self.starved.store(starved, Relaxed);
    }

    /// Whether the bound refused the last that was published: a record may need a segment larger than
    /// ordinary ones, so that there is room for one of those says little.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Something that is published was kept, or refused at the bound.
    pub(crate) fn set_refused(&self, refused: bool) {
        self.refused.store(refused, Relaxed);
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    pub(crate) fn set_left(&self, bytes: u64) {
        self.left.store(bytes, Relaxed);
    }

    /// `bytes` may be moved.
    pub(crate) fn allow(&self, bytes: u64) {
        self.earned.store(bytes, Relaxed);
    }

    /// `bytes` were written to relieve or went by it, in a directory that takes `used`.
    pub(crate) fn earn(&self, bytes: u64, used: u64) {
        let earned = |now: u64| {
            let more = now.saturating_add(bytes.saturating_mul(EARNED));
            // Twice around is enough, however long nobody needed it.
            Some(more.min(used.saturating_mul(2)))
        };
        let _ = self.earned.fetch_update(Relaxed, Relaxed, earned);
    }

    /// Bytes that may be moved because of what relieved.
    pub(crate) fn earned(&self) -> u64 {
        self.earned.load(Relaxed)
    }

    /// Takes what moving `bytes` costs; whether it was there.
    pub(crate) fn pay(&self, bytes: u64) -> bool {
        let paid = |now: u64| now.checked_sub(bytes);
        self.earned.fetch_update(Relaxed, Relaxed, paid).is_ok()
    }

    /// Says once, each time, that what relieves took the directory past its bound.
    pub(crate) fn watch(&self, used: u64) {
        let passed = self.max_bytes.is_some_and(|max| used > max);
        if passed != self.passed.swap(passed, Relaxed) && passed {
            tracing::warn!(
                bytes = used,
                max_bytes = self.max_bytes,
                "the log takes more than its max_bytes: what gives room back is never refused; publishing is, until tidying has caught up"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_made_room_for_fits_before_the_tail_and_the_inverse_is_safe() {
        for needed in (4096..3_000_000u64).step_by(997) {
            let capacity = with_relief_tail(needed);
            assert!(needed + relief_tail(capacity) <= capacity, "{needed}");
            let most = without_relief_tail(needed);
            assert!(with_relief_tail(most) <= needed, "{needed}");
        }
    }

    #[test]
    fn the_reserve_is_at_most_half_of_any_bound_that_is_taken() {
        for max_record_bytes in [0, 1000, 1 << 20, 8 << 20] {
            for segment_bytes in [MIN_SEGMENT_BYTES, 1 << 20, 1 << 30] {
                let mut options = Options {
                    max_record_bytes,
                    segment_bytes,
                    ..Options::default()
                };
                for factor in [1, 2, 100] {
                    let max = options.least_max_bytes() * factor;
                    options.max_bytes = Some(max);
                    assert_eq!(options.check(), Ok(()));
                    assert!(options.reserve() <= max / 2, "{options:?}");
                    assert!(options.ordinary_segment_bytes() <= max / SEGMENTS);
                }
                options.max_bytes = Some(options.least_max_bytes() - 1);
                assert!(options.check().is_err());
            }
        }
    }

    #[test]
    fn nothing_is_published_into_the_reserve() {
        let options = Options {
            max_bytes: Some(1 << 20),
            max_record_bytes: 10_000,
            segment_bytes: 1 << 20,
            ..Options::default()
        };
        let (room, segment) = (Room::new(&options), 1 << 16);
        let publish = (1 << 20) - 10_000 - 3 * segment;
        assert_eq!(room.longest_publish(publish + 1, 0, 500, 4096), 0);
        assert_eq!(room.longest_publish(publish, 0, 500, 4096), 500);
        let short = publish - segment + 1;
        assert_eq!(room.longest_publish(short, 0, 500, 4096), 500);
        assert!(room.longest_publish(short - 1, 0, 500, 4096) > 50_000);
        // A prepared file is counted already.
        assert!(room.longest_publish(publish, segment, 500, 4096) > 50_000);
        assert!(room.has_next(short - 1) && !room.has_next(short));
    }
}

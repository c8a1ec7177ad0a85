//! What the engine has done since it was opened, for whoever draws it. Plain numbers: counting takes
//! no lock and allocates nothing on the commit path.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::engine::Engine;
use crate::handoff::Closed;
use crate::sync::read;

/// One look at the counters. Those of one kind belong together; between two kinds a commit may have
/// been made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Frames written that hold operations, since the log was opened.
    pub frames: u64,
    /// Batches kept, the engine's own left out.
    pub batches: u64,
    /// Operations in them.
    pub operations: u64,
    /// Bytes written to segments: frames, headers and prologues.
    pub written_bytes: u64,
    /// Data syncs of segments, those that failed included.
    pub syncs: u64,
    /// Nanoseconds spent in them.
    pub sync_nanoseconds: u64,
    /// Commits that as many operations closed as [`PublishCommit::Wait`] waits for.
    ///
    /// [`PublishCommit::Wait`]: crate::PublishCommit::Wait
    pub closed_by_records: u64,
    /// Commits closed because its interval had passed.
    pub closed_by_interval: u64,
    /// Commits that waited for nothing but the commit before: what they took had waited long enough
    /// for that, or filled a frame, or could not wait.
    pub closed_by_commit: u64,
    /// Commits of an engine that gives every batch one of its own.
    pub unbatched: u64,
    /// Batches refused because the disk had no room.
    pub refused_no_space: u64,
    /// Encoded bytes stated again so that old segments could go.
    pub moved_bytes: u64,
    /// Segments there are now.
    pub segments: u64,
    /// Counted bytes of what is alive now, and the small values.
    pub live_bytes: u64,
    /// 1 where the engine failed and takes no writes until it is reopened, else 0.
    pub poisoned: u64,
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) frames: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_nanoseconds: AtomicU64,
    pub(crate) closed: [AtomicU64; 4],
    pub(crate) refused_no_space: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
}

impl Meters {
    pub(crate) fn add(&self, meter: &AtomicU64, more: u64) {
        meter.fetch_add(more, Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.add(&self.syncs, 1);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add(&self.sync_nanoseconds, nanoseconds);
    }

    pub(crate) fn closed(&self, by: Closed) {
        self.add(&self.closed[by as usize], 1);
    }
}

impl Engine {
    /// What was done since the log was opened, and what there is now.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        let meters = &self.shared.meters;
        let get = |meter: &AtomicU64| meter.load(Relaxed);
        let closed = |by: Closed| get(&meters.closed[by as usize]);
        EngineCounters {
            frames: get(&meters.frames),
            batches: get(&meters.batches),
            operations: get(&meters.operations),
            written_bytes: get(&meters.written_bytes),
            syncs: get(&meters.syncs),
            sync_nanoseconds: get(&meters.sync_nanoseconds),
            closed_by_records: closed(Closed::Records),
            closed_by_interval: closed(Closed::Interval),
            closed_by_commit: closed(Closed::Commit),
            unbatched: closed(Closed::Unbatched),
            refused_no_space: get(&meters.refused_no_space),
            moved_bytes: get(&meters.moved_bytes),
            segments: self.shared.segments.snapshot().len() as u64,
            live_bytes: read(&self.shared.published).state.alive_bytes(),
            poisoned: u64::from(self.shared.latch.get().is_some()),
        }
    }
}

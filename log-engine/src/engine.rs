//! The open log.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::batch::{Batch, ChannelId, CommitError, Operation, Target, TidyStep};
use crate::breakage::{self, Breakage};
use crate::checkpoint::Checkpointed;
use crate::commit::{Committer, TAKE};
use crate::counters::Meters;
use crate::format::{FrameBuilder, Kind, MAX_BODY_BYTES, MAX_NAME_BYTES};
use crate::handoff::{Callback, Completion, Gather, Handoff, Pending, PublishCommit, Ticket};
use crate::latch::{Failure, Latch};
use crate::plan::Planner;
use crate::resume::{OpenFrames, Rests};
use crate::room::Room;
use crate::segment::{Layout, Segment, Segments};
use crate::spare::{Readiness, Spares};
use crate::state::State;
use crate::storage::{FileSystem, Lock};
use crate::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, lock};
use crate::tail::TailCache;
use crate::tidy::{Tidied, as_batch};
use crate::writer::{WriteError, Writer};

/// Largest key of the keyspace or a map, in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;
/// Largest value of the keyspace, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
/// Most bytes one batch may take in a frame.
pub const MAX_BATCH_BYTES: u64 = 32 << 20;
/// Most operations in one batch.
pub const MAX_BATCH_OPERATIONS: usize = 32_768;
/// Smallest segment, in bytes: for tests. The broker's configuration asks for more.
pub const MIN_SEGMENT_BYTES: u64 = 4 << 10;
/// Largest segment, in bytes, unless one batch needs more.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

/// Called on the commit thread once per frame, after every batch in it has its outcome. It must not
/// block.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// How a log is run.
#[derive(Clone)]
pub struct Options {
    /// Capacity of a segment, in bytes, [`MIN_SEGMENT_BYTES`] to [`MAX_SEGMENT_BYTES`]; a segment
    /// made for a larger batch is larger.
    pub segment_bytes: u64,
    /// Bound of the cache of recent records, in bytes; 0 is none.
    pub tail_cache_bytes: u64,
    /// What the directory may take, in bytes; at least [`Options::least_max_bytes`]. A part of it, the
    /// [`Options::reserve`], is kept for what gives room back.
    pub max_bytes: Option<u64>,
    /// The largest record there will be, with its headers, in bytes: what the reserve has room for.
    pub max_record_bytes: u64,
    /// Prepare the next segment on a thread of its own.
    pub prepare_ahead: bool,
    /// Give disk space back on a thread of its own; where not, [`Engine::tidy`] does it.
    pub tidy_in_background: bool,
    /// Bytes of log after which the next checkpoint is written at the latest, at the next roll.
    pub checkpoint_bytes: u64,
    /// Entries of maps, work sets and the keyspace that a checkpoint copies at once, at least 1:
    /// readers and commits wait that long.
    pub checkpoint_entries: usize,
    /// The longest a frame of [`Durability::Interval`](crate::Durability::Interval) batches stays
    /// unsynced, beside one sync. The broker's configuration asks for 10 ms to 1 s.
    pub flush_interval: Duration,
    /// Who shares a frame.
    pub publish_commit: PublishCommit,
    /// How long the log is idle before its last frame gets a witness; see [`Engine::settle`].
    pub idle: Duration,
    /// See [`Wake`].
    pub wake: Option<Wake>,
    /// Where it is given and commits share a frame as they come, a commit holds what is on its way
    /// to the engine when it begins, and not just what came first: the engine asks, and waits for
    /// [`Engine::go`], at most [`idle`](Self::idle). Only what is submitted with a callback waits so.
    pub gather: Option<Gather>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            tail_cache_bytes: 16 << 20,
            max_bytes: None,
            max_record_bytes: (1 << 20) + (64 << 10),
            prepare_ahead: true,
            tidy_in_background: true,
            checkpoint_bytes: 256 << 20,
            checkpoint_entries: 2048,
            flush_interval: Duration::from_millis(150),
            publish_commit: PublishCommit::AsTheyCome,
            idle: Duration::from_secs(1),
            wake: None,
            gather: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("segment_bytes", &self.segment_bytes)
            .field("tail_cache_bytes", &self.tail_cache_bytes)
            .field("max_bytes", &self.max_bytes)
            .field("max_record_bytes", &self.max_record_bytes)
            .field("prepare_ahead", &self.prepare_ahead)
            .field("tidy_in_background", &self.tidy_in_background)
            .field("checkpoint_bytes", &self.checkpoint_bytes)
            .field("checkpoint_entries", &self.checkpoint_entries)
            .field("flush_interval", &self.flush_interval)
            .field("publish_commit", &self.publish_commit)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

/// What readers see: changed once per frame, all at once.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) state: State,
    pub(crate) tail: TailCache,
    /// The last frame in it.
    pub(crate) last_lsn: u64,
}

pub(crate) struct Shared {
    pub(crate) published: RwLock<Published>,
    pub(crate) segments: Segments,
    pub(crate) rests: Rests,
    pub(crate) opened: Arc<OpenFrames>,
    pub(crate) handoff: Handoff,
    pub(crate) latch: Latch,
    pub(crate) next_segment: Readiness,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) layout: Layout,
    pub(crate) segment_bytes: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) checkpoint_entries: usize,
    pub(crate) room: Room,
    /// Bytes committed for others that tidying has not matched by bytes moved.
    pub(crate) credit: AtomicU64,
    pub(crate) meters: Arc<Meters>,
    /// Held for one step of tidying.
    pub(crate) tidying: Mutex<()>,
    /// The newest checkpoint; held while the next one is written.
    pub(crate) checkpointing: Mutex<Option<Checkpointed>>,
    /// Rung to have the tidying thread look, or end.
    pub(crate) bell: Bell,
    wake: Option<Wake>,
}

/// How often the tidying thread looks though nobody rang.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Its rest after a step that moved something: others' commits go first.
const REST: Duration = Duration::from_millis(5);

/// Rung for the tidying thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    ring: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    look: bool,
    end: bool,
}

impl Bell {
    pub(crate) fn ring(&self) {
        lock(&self.rung).look = true;
        self.ring.notify_all();
    }

    fn end(&self) {
        lock(&self.rung).end = true;
        self.ring.notify_all();
    }

    /// Waits to be rung, or for `time`; false at the end.
    fn wait(&self, time: Duration) -> bool {
        let mut rung = lock(&self.rung);
        if !rung.look && !rung.end {
            let waited = self.ring.wait_timeout(rung, time);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        rung.look = false;
        !rung.end
    }
}

impl Shared {
    /// Bytes the log's directory takes: segments, files on the way to becoming one, and all else.
    pub(crate) fn directory_bytes(&self) -> u64 {
        let segments = self.segments.snapshot();
        let segments: u64 = segments.iter().map(|s| s.bytes()).sum();
        segments + self.prepared_bytes().1 + self.room.other()
    }

    /// Bytes of the prepared file, and of all files on the way to becoming a segment.
    pub(crate) fn prepared_bytes(&self) -> (u64, u64) {
        self.next_segment.bytes()
    }

    /// Whether what is published is refused for want of room, or will be at the next roll.
    pub(crate) fn needs_room(&self) -> bool {
        let bounded = self.room.max_bytes.is_some();
        let refused = self.room.is_starved() || self.room.has_refused();
        refused || bounded && !self.room.has_next(self.directory_bytes())
    }

    fn tidy_until_closed(&self) {
        let mut wait = LOOK_EVERY;
        let mut tidying = Fault::new("disk space is not given back; tried again");
        let mut checkpoints = Fault::new("no checkpoint is written; tried again");
        while self.bell.wait(wait) {
            let tidied = self.tidy();
            wait = match tidied {
                Ok(Tidied::Nothing) => LOOK_EVERY,
                Ok(_) => REST,
                Err(_) => LOOK_EVERY * 10,
            };
            let checkpointed = self.checkpoint_if_due();
            // A failed engine says so elsewhere, once.
            if self.latch.get().is_none() {
                tidying.tell(&tidied);
                checkpoints.tell(&checkpointed);
            }
        }
    }

    pub(crate) fn submit(&self, batch: Batch) -> Ticket {
        let (ticket, completion) = Ticket::new();
        self.push(batch, false, completion);
        ticket
    }

    fn push(&self, batch: Batch, each: bool, completion: Completion) {
        let bytes = batch.encoded_bound();
        let mut pending = Pending {
            batch,
            each,
            gathers: matches!(completion, Completion::Call(_)),
            bytes,
            offsets: Vec::new(),
            completion,
            arrived: self.handoff.waits().then(Instant::now),
        };
        let pushed = match bounded(&pending.batch, bytes) {
            Ok(()) => {
                let operations = &pending.batch.operations;
                pending.offsets.reserve_exact(operations.len());
                operations.iter().for_each(Operation::share);
                self.handoff.push(pending)
            }
            Err(refusal) => Err((pending, refusal)),
        };
        if let Err((pending, refusal)) = pushed {
            pending.completion.complete(Err(refusal));
            self.outcomes_ready();
        }
    }

    pub(crate) fn outcomes_ready(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

/// What recovery found: the only thing an engine is made of.
#[derive(Debug)]
pub struct Recovered {
    /// The file system the log lies on.
    pub fs: Arc<dyn FileSystem>,
    /// Its files.
    pub layout: Layout,
    /// The lock, held for the engine's life.
    pub lock: Box<dyn Lock>,
    /// What the frames add up to.
    pub state: State,
    /// Every segment, by number; the last is the one that goes on.
    pub segments: Vec<Arc<Segment>>,
    /// Position after the last frame of the last segment.
    pub end: u64,
    /// The last frame's LSN.
    pub last_lsn: u64,
    /// Files on the way to becoming a segment that an earlier opening left.
    pub leftovers: Vec<PathBuf>,
    /// The newest checkpoint that holds.
    pub checkpoint: Option<Checkpointed>,
}

/// An open log. Clones of nothing: share it behind an `Arc`. Dropping it commits what is queued,
/// says in the log that it ended on purpose, and releases the lock.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    tidier: Option<JoinHandle<()>>,
    _lock: Box<dyn Lock>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Goes on where recovery found the end. Called by recovery, which is the only way to a
    /// [`Recovered`] that is true; opening and inspecting can therefore never disagree.
    ///
    /// # Errors
    /// Where a thread cannot be started, or there is no segment to go on in.
    pub fn resume(recovered: Recovered, options: &Options) -> std::io::Result<Engine> {
        let (mut engine, committer) = Engine::unstarted(recovered, options)?;
        let thread = std::thread::Builder::new()
            .name("saguin-commit".into())
            .spawn(move || committer.run())?;
        engine.thread = Some(thread);
        if options.tidy_in_background {
            let shared = engine.shared.clone();
            let work = move || shared.tidy_until_closed();
            let named = std::thread::Builder::new().name("saguin-tidy".into());
            engine.tidier = Some(named.spawn(work)?);
        }
        Ok(engine)
    }

    /// The engine and the work of its commit thread, for a model that runs it on threads of its own.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    #[cfg(loom)]
    pub fn for_model(
        recovered: Recovered,
        options: &Options,
    ) -> std::io::Result<(Engine, impl FnOnce() + Send + 'static)> {
        let (engine, committer) = Engine::unstarted(recovered, options)?;
        Ok((engine, move || committer.run()))
    }

    /// Takes nothing more and ends once what waits is committed: what dropping does.
    #[cfg(loom)]
    pub fn close(&self) {
        self.shared.handoff.close();
    }

    fn unstarted(recovered: Recovered, options: &Options) -> std::io::Result<(Engine, Committer)> {
        let Recovered {
            fs,
            layout,
            lock,
            mut state,
            mut segments,
            end,
            last_lsn,
            leftovers,
            checkpoint,
        } = recovered;
        state.damage_on_purpose();
        let Some(segment) = segments.last().cloned() else {
            return Err(std::io::Error::other("a log has at least one segment"));
        };
        options.check().map_err(std::io::Error::other)?;
        let segment_bytes = options.ordinary_segment_bytes();
        let spares = Spares::new(fs.clone(), layout.clone(), options.prepare_ahead, leftovers)?;
        let room = Room::new(options);
        room.set_checkpoints(checkpoint.map_or(0, |c| c.bytes));
        let taken = segments.iter().map(|s| s.bytes()).sum::<u64>();
        // What went before is not known to this run: once around is paid for.
        room.allow(taken);
        if room.has_next(taken + room.other()) {
            spares.want(segment_bytes);
        }
        let meters = Arc::<Meters>::default();
        let readiness = spares.readiness();
        let mut writer = Writer {
            fs: fs.clone(),
            layout: layout.clone(),
            spares,
            segment,
            at: end,
            next_lsn: last_lsn + 1,
            // Recovery synced what it read, so all of it is durable.
            durable_lsn: last_lsn,
            segment_bytes,
            witnessed: true,
            last_lsn,
            unsynced_since: None,
            meters: meters.clone(),
        };
        if !breakage::is(Breakage::IgnoreCeiling) {
            skip_to_ceilings(&mut writer, &mut state, &mut segments)?;
        }
        let shared = Arc::new(Shared {
            published: RwLock::new(Published {
                state,
                tail: TailCache::new(options.tail_cache_bytes),
                last_lsn: writer.last_lsn,
            }),
            segments: Segments::new(segments),
            rests: Rests::default(),
            opened: Arc::default(),
            handoff: Handoff::new(TAKE, options.publish_commit, options.gather.clone()),
            latch: Latch::default(),
            next_segment: readiness,
            fs,
            layout,
            segment_bytes,
            checkpoint_bytes: options.checkpoint_bytes,
            checkpoint_entries: options.checkpoint_entries.max(1),
            room,
            credit: AtomicU64::new(0),
            meters,
            tidying: Mutex::new(()),
            checkpointing: Mutex::new(checkpoint),
            bell: Bell::default(),
            wake: options.wake.clone(),
        });
        let planner = Planner::default();
        let committer = Committer {
            shared: shared.clone(),
            writer,
            planner,
            idle: options.idle,
            flush_interval: options.flush_interval,
            taken: Vec::new(),
            prologue: (0, 0),
        };
        let engine = Engine {
            shared,
            thread: None,
            tidier: None,
            _lock: lock,
        };
        Ok((engine, committer))
    }

    /// Submits a batch; it is kept when its ticket says so. Batches are kept in the order they are
    /// submitted. Never blocks on the disk.
    pub fn submit(&self, batch: impl Into<Batch>) -> Ticket {
        let (ticket, completion) = Ticket::new();
        self.shared.push(batch.into(), false, completion);
        ticket
    }

    /// Submits a batch and has its outcome handed to `done` on the commit thread, before
    /// [`Options::wake`] is called. A batch refused at once is completed on the calling thread, and
    /// `wake` is called there too.
    pub fn submit_with(&self, batch: impl Into<Batch>, done: Callback) {
        let completion = Completion::Call(done);
        self.shared.push(batch.into(), false, completion);
    }

    /// As [`submit_with`](Self::submit_with), but each operation is kept or refused by itself, in
    /// its turn: what many publishers sent costs one hand-over. They share a frame; the receipt
    /// names those that were [refused](crate::Receipt::refused). An error is all of theirs.
    pub fn submit_each(&self, batch: Batch, done: Callback) {
        self.shared.push(batch, true, Completion::Call(done));
    }

    /// Answers [`Options::gather`]: nothing more is on its way, and what waits is committed.
    pub fn go(&self) {
        self.shared.handoff.go();
    }

    /// Batches that wait to be committed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.handoff.waiting()
    }

    /// Witnesses the last frame now, as [`Options::idle`] would later: before the next batch is
    /// committed, an empty frame is written that vouches for what is durable, so that damage to
    /// the last acknowledged frame is told from a torn tail.
    pub fn settle(&self) {
        self.shared.handoff.settle();
    }

    /// Has everything submitted before synced now, as [`Options::flush_interval`] would later, and
    /// waits for it.
    ///
    /// # Errors
    /// [`CommitError::Failed`] where the engine failed, now or before;
    /// [`CommitError::Overloaded`] where too much waits.
    pub fn flush(&self) -> Result<(), CommitError> {
        let flush = as_batch(vec![TidyStep::Flush]);
        self.submit(flush).wait().map(|_| ())
    }

    /// The id of the channel with a name, making it known if it is new; durable on return.
    ///
    /// # Errors
    /// [`CommitError::BadName`] where the name is taken by another kind; the rest as for any batch.
    pub fn define(&self, name: &str, kind: Kind) -> Result<ChannelId, CommitError> {
        let name = bytes::Bytes::copy_from_slice(name.as_bytes());
        let receipt = self.submit(Operation::Define { name, kind }).wait()?;
        let id = receipt.offsets.first().copied().flatten();
        let id = id
            .and_then(|id| u32::try_from(id).ok())
            .ok_or(CommitError::BadName)?;
        Ok(ChannelId(id))
    }

    /// The failure that stopped the engine from keeping anything more, if there was one. Reads go
    /// on regardless.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.shared.latch.get()
    }

    /// Bytes the log's directory takes: segments, files on the way to becoming one, and all else.
    #[must_use]
    pub fn directory_bytes(&self) -> u64 {
        self.shared.directory_bytes()
    }

    /// Whether what is published is refused for want of room, or will be soon unless tidying gives some
    /// back.
    #[must_use]
    pub fn needs_room(&self) -> bool {
        self.shared.needs_room()
    }

    /// Whether the next segment is prepared: until it is, a roll falls back to one whose blocks were
    /// never written, and commits into that are slower.
    #[must_use]
    pub fn next_segment_ready(&self) -> bool {
        self.shared.next_segment.is_ready()
    }

    /// Where the log's segments are, for messages.
    #[must_use]
    pub fn newest_segment(&self) -> Option<std::path::PathBuf> {
        let segments = self.shared.segments.snapshot();
        segments.last().map(|s| Path::to_owned(&s.path))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The tidying thread first: it waits for commits.
        self.shared.bell.end();
        if let Some(tidier) = self.tidier.take()
            && tidier.join().is_err()
        {
            tracing::error!("the thread that gives disk space back panicked; this is a defect");
        }
        self.shared.handoff.close();
        let Some(thread) = self.thread.take() else {
            return;
        };
        if thread.join().is_err() {
            tracing::error!("the commit thread panicked outside its guard; this is a defect");
        }
        // The last frame is known now: a log that ends before it was cut.
        if self.shared.latch.get().is_none()
            && let Err(error) = self.shared.checkpoint(true)
        {
            tracing::warn!(%error, "the log closes without a checkpoint; opening it takes longer");
        }
    }
}

/// Goes on at the ceiling in every channel whose next offset is below it: what was handed out between
/// the two may be lost. Durable before anybody can ask for an offset; a cut in here leaves the
/// ceilings, and the next opening does it again.
fn skip_to_ceilings(
    writer: &mut Writer,
    state: &mut State,
    segments: &mut Vec<Arc<Segment>>,
) -> std::io::Result<()> {
    let mut frame = FrameBuilder::default();
    frame.clear();
    for skip in state.skips() {
        frame.push(&skip);
    }
    if frame.operations() == 0 {
        return Ok(());
    }
    let mut rolled = |segment: &Arc<Segment>| segments.push(segment.clone());
    let (at, _) = match writer.commit(&mut frame, false, state, true, &mut rolled) {
        Ok(written) => written,
        Err(WriteError::NoSpace) => {
            return Err(std::io::Error::new(
                std::io::ErrorKind::StorageFull,
                "no room to note which offsets may be lost; free some disk space",
            ));
        }
        Err(WriteError::Failed(why)) => return Err(std::io::Error::other(why)),
    };
    for op in frame.ops() {
        let op = op.map_err(std::io::Error::other)?;
        state.apply(&op, at).map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// Most bytes of a batch of the engine's own: it may have to state again, together, what several
/// batches brought.
const MAX_TIDY_BYTES: u64 = MAX_BODY_BYTES as u64 - (1 << 20);

/// The bounds of one batch, checked before it takes a place in the queue.
fn bounded(batch: &Batch, bytes: u64) -> Result<(), CommitError> {
    let max_bytes = if batch.is_tidying() {
        MAX_TIDY_BYTES
    } else {
        MAX_BATCH_BYTES
    };
    if bytes > max_bytes || batch.operations.len() > MAX_BATCH_OPERATIONS {
        return Err(CommitError::TooLarge { bytes, max_bytes });
    }
    for operation in &batch.operations {
        let good = match operation {
            Operation::Define { name, .. } => (1..=MAX_NAME_BYTES).contains(&name.len()),
            Operation::Set { key, .. }
            | Operation::Remove { key, .. }
            | Operation::Forget { key, .. }
            | Operation::Hold { key, .. }
            | Operation::Drop { key }
            | Operation::Delete { key, .. } => key.len() <= MAX_KEY_BYTES,
            Operation::Release { key, target } => {
                let of_target = match target {
                    Target::Set { key, .. } | Target::Remove { key, .. } => key.len(),
                    Target::Append { .. } | Target::Enqueue { .. } => 0,
                };
                key.len().max(of_target) <= MAX_KEY_BYTES
            }
            Operation::Put { key, value, .. } => {
                key.len() <= MAX_KEY_BYTES && value.len() <= MAX_VALUE_BYTES
            }
            _ => true,
        };
        if !good {
            return Err(CommitError::BadName);
        }
    }
    Ok(())
}

/// Something tried over and over: one line when it begins to fail, one when it fails otherwise, one
/// when it is over.
struct Fault {
    what: &'static str,
    told: Option<String>,
}

impl Fault {
    fn new(what: &'static str) -> Fault {
        Fault { what, told: None }
    }

    fn tell<T, E: std::fmt::Display>(&mut self, outcome: &Result<T, E>) {
        let now = outcome.as_ref().err().map(ToString::to_string);
        if now == self.told {
            return;
        }
        match &now {
            Some(error) => tracing::warn!(%error, "{}", self.what),
            None => tracing::info!("over: {}", self.what),
        }
        self.told = now;
    }
}

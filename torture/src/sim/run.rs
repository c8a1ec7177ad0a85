//! One run: submit, cut, recover, compare, go on.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use saguin_log_engine::state::Numbers;
use saguin_log_engine::storage::FileSystem;
use saguin_log_engine::{
    Batch, ChannelId, CommitError, Durability, Engine, MIN_SEGMENT_BYTES, Options, Outcome, Tidied,
};
use saguin_recovery::{RecoverError, recover};

use super::kept::Kept;
use super::model::{Content, Op, difference};
use super::report::{Counts, Violation};
use super::view::view;
use super::workload::{Submission, Workload, to_batch};
use crate::disk::{End, Fault, SimDisk};
use crate::rng::Rng;

/// The simulated log's directory.
pub(super) const DIR: &str = "/data/saguin";

/// Steps shown with a violation.
const SHOWN: usize = 12;

/// How long a hung engine is waited for: only a defect ever gets there.
const HUNG: Duration = Duration::from_secs(60);

/// No record of the workload takes more, headers and all.
const MAX_RECORD_BYTES: u64 = 13_000;

/// Steps of tidying at one time.
const MAX_TIDY_STEPS: u64 = 50;

/// What is expected, what is found.
pub(super) struct Broken(pub(super) String, pub(super) String);

pub(super) type Checked<T = ()> = Result<T, Broken>;

pub(super) fn broken<T>(expected: impl Into<String>, found: impl Into<String>) -> Checked<T> {
    Err(Broken(expected.into(), found.into()))
}

/// One answer, and whether the process was over when it came.
struct Answer {
    batch: usize,
    outcome: Outcome,
    too_late: bool,
}

/// One run.
pub struct Run {
    seed: u64,
    pub(super) rng: Rng,
    pub(super) disk: SimDisk,
    workload: Workload,
    pub(super) options: Options,
    /// What must be there: all that was acknowledged, and all that a reader was shown.
    pub(super) kept: Kept,
    pub(super) engine: Option<Arc<Engine>>,
    pub(super) latched: bool,
    /// Files that were changed behind the log's back and left so, because it did no harm.
    pub(super) tampered: BTreeSet<PathBuf>,
    step: u64,
    steps: VecDeque<String>,
    pub(super) counts: Counts,
}

impl Run {
    /// The run of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let segment_bytes = MIN_SEGMENT_BYTES + [256, 700, 1500, 4000][rng.index(4)];
        let tail_cache_bytes = [0, 600, 1 << 20][rng.index(3)];
        // Tight enough to be met, loose enough to hold everything that is alive at times.
        let max_bytes = [None, Some(20), Some(28)][rng.index(3)].map(|n| n * segment_bytes);
        Run {
            seed,
            disk: SimDisk::new(rng.fork()),
            workload: Workload::new(rng.fork()),
            options: Options {
                segment_bytes,
                max_bytes,
                max_record_bytes: MAX_RECORD_BYTES,
                tail_cache_bytes,
                // The only other thread: what it does and when is not the run's to say.
                prepare_ahead: false,
                tidy_in_background: false,
                checkpoint_entries: 1 + rng.index(3),
                idle: Duration::from_secs(1 << 30),
                flush_interval: Duration::from_secs(1 << 30),
                ..Options::default()
            },
            kept: Kept::default(),
            engine: None,
            latched: false,
            tampered: BTreeSet::new(),
            step: 0,
            steps: VecDeque::new(),
            counts: Counts::default(),
            rng,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The broken promise.
    pub fn go(mut self) -> Result<Counts, Box<Violation>> {
        match self.all() {
            Ok(()) => {
                self.counts.disk_operations = self.disk.operations();
                self.counts.digest ^= self.counts.disk_operations.rotate_left(32);
                Ok(self.counts)
            }
            Err(Broken(expected, found)) => Err(Box::new(Violation {
                seed: self.seed,
                step: self.step,
                expected,
                found,
                steps: self.steps.into(),
                disk: self.disk.recent(),
            })),
        }
    }

    fn all(&mut self) -> Checked {
        let steps = 20 + self.rng.below(60);
        while self.step < steps {
            self.step += 1;
            self.one()?;
        }
        self.note("the end");
        self.calm();
        self.end(End::Cut)?;
        self.open()?;
        self.calm();
        // It goes on: the next batch is kept, at the next offset.
        self.submit(Workload::define())?;
        let group = self.workload.group(&self.kept.model);
        self.submit(group)?;
        self.compare()?;
        self.relieve()
    }

    /// However full it was: once everything is taken out, there is room again.
    fn relieve(&mut self) -> Checked {
        if self.options.max_bytes.is_none() {
            return Ok(());
        }
        for batch in self.kept.model.relief() {
            self.submit(vec![Submission::synced(batch)])?;
            self.tidy()?;
        }
        let Some(publish) = self.workload.append(&self.kept.model) else {
            return Ok(());
        };
        let acknowledged = self.counts.acknowledged;
        self.submit(vec![Submission::synced(vec![publish.clone()])])?;
        if self.counts.acknowledged == acknowledged {
            // Refused, it says how much it needs.
            self.tidy()?;
            self.submit(vec![Submission::synced(vec![publish])])?;
        }
        if self.counts.acknowledged == acknowledged {
            let taken = self.engine()?.directory_bytes();
            return broken(
                "a log from which everything was taken accepts again",
                format!("it takes {taken} bytes and refuses"),
            );
        }
        self.compare()
    }

    pub(super) fn note(&mut self, what: &str) {
        for byte in what.bytes() {
            self.counts.digest =
                (self.counts.digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.steps.len() == SHOWN {
            self.steps.pop_front();
        }
        self.steps.push_back(format!("{:3} {what}", self.step));
    }

    /// No accident is on its way any more.
    pub(super) fn calm(&self) {
        self.disk.set_fuse(None);
        self.disk.set_fault(None);
        self.disk.set_free(None);
    }

    fn one(&mut self) -> Checked {
        if self.engine.is_none() {
            self.open()?;
            return self.submit(Workload::define());
        }
        match self.rng.below(100) {
            0..62 => {
                let no_room = self.counts.no_room;
                let group = self.workload.group(&self.kept.model);
                self.submit(group)?;
                // What was refused for want of room is gone, before anything else is written too.
                if self.counts.no_room > no_room && self.rng.one_in(2) {
                    return self.end(self.disk.ended().unwrap_or(End::Cut));
                }
            }
            62..65 => self.checkpoint()?,
            65..68 => self.flush()?,
            68..71 => self.settle()?,
            71..74 => {
                // In the middle of it, often: it is over soon.
                if self.rng.one_in(2) {
                    self.arm(8);
                }
                self.tidy()?;
            }
            74..78 => self.compare()?,
            78..81 => self.close()?,
            81..83 => self.end(End::Death)?,
            83..85 => self.end(End::Cut)?,
            85..91 => self.arm(40),
            91..95 => {
                let fault = [Fault::Io, Fault::NoSpace][self.rng.index(2)];
                // The very next is mostly a frame, which alone can be taken back.
                let after = if self.rng.one_in(2) {
                    0
                } else {
                    self.rng.below(12)
                };
                self.note(&format!("{fault:?} in {after} operations"));
                self.disk.set_fault(Some((after, fault)));
            }
            95..98 => {
                let free = (!self.rng.one_in(2)).then(|| self.rng.below(9000));
                self.note(&format!("free: {free:?}"));
                self.disk.set_free(free);
            }
            _ => self.second_opener()?,
        }
        if let Some(end) = self.disk.ended() {
            self.end(end)?;
        }
        Ok(())
    }

    pub(super) fn arm(&mut self, within: u64) {
        let end = if self.rng.one_in(3) {
            End::Death
        } else {
            End::Cut
        };
        let after = self.rng.below(within);
        self.note(&format!("{end:?} in {after} operations"));
        self.disk.set_fuse(Some((after, end)));
    }

    fn engine(&self) -> Checked<&Arc<Engine>> {
        match &self.engine {
            Some(engine) => Ok(engine),
            None => broken("an open engine", "none: the rig is wrong"),
        }
    }

    /// Damage to the last frame is told from a torn tail from here on.
    fn settle(&mut self) -> Checked {
        self.note("settle");
        let failures = self.disk.failures().0;
        let engine = self.engine()?;
        engine.settle();
        // Answered after the witness is written.
        let _ = engine.submit(Batch::default()).wait();
        self.failed_for_a_reason(failures)
    }

    /// Old segments are emptied and let go, as far as there are any to let go.
    fn tidy(&mut self) -> Checked {
        self.note("tidy");
        let failures = self.disk.failures().0;
        let engine = self.engine()?;
        let mut steps = 0;
        while let Ok(Tidied::Moved(_) | Tidied::Dropped(_)) = engine.tidy()
            && steps < MAX_TIDY_STEPS
        {
            steps += 1;
        }
        self.counts.tidied += steps;
        self.failed_for_a_reason(failures)
    }

    /// A checkpoint, which may fail and stops nothing.
    fn checkpoint(&mut self) -> Checked {
        self.note("checkpoint");
        let (failures, at_risk) = (self.disk.failures(), self.kept.at_risk());
        let written = self.engine()?.checkpoint();
        if self.disk.ended().is_some() || self.latched {
            return Ok(());
        }
        match written {
            Ok(_) => {
                self.counts.checkpoints += 1;
                self.kept.all_synced();
            }
            Err(error) if self.disk.failures() == failures => {
                return broken("a checkpoint", error.to_string());
            }
            Err(error) => self.note(&format!("no checkpoint: {error}")),
        }
        match self.engine()?.failure() {
            // It syncs what was acknowledged before its sync, and that is the log's own.
            Some(_) if at_risk > 0 => self.failed_for_a_reason(failures.0),
            Some(failure) => broken(
                "a checkpoint that fails does not stop the log",
                failure.to_string(),
            ),
            None => Ok(()),
        }
    }

    fn second_opener(&mut self) -> Checked {
        self.note("a second opener");
        if self.disk.ended().is_some() {
            return Ok(());
        }
        let before = self.disk.operations();
        let fs: Arc<dyn FileSystem> = Arc::new(self.disk.process());
        match recover(&fs, Path::new(DIR), &self.options) {
            Err(RecoverError::Locked { .. }) if self.disk.operations() == before => Ok(()),
            Err(RecoverError::Locked { .. }) => {
                broken("a refused opener changes nothing", "it changed something")
            }
            other => broken(
                "a second opener is refused",
                format!("{:?}", other.map(|opened| opened.1)),
            ),
        }
    }

    /// Submits batches that share a frame, waits for all, and judges every answer.
    fn submit(&mut self, group: Vec<Submission>) -> Checked {
        if self.disk.ended().is_some() {
            return Ok(());
        }
        let engine = self.engine()?.clone();
        let batches: Result<Vec<Batch>, String> =
            group.iter().map(|batch| to_batch(&engine, batch)).collect();
        let batches = batches.or_else(|why| broken("every batch can be planned", why))?;
        self.note(&format!("submit {group:?}"));
        let (failures, refusals) = self.disk.failures();
        let was_latched = self.latched;
        let early = self.watch(&engine);
        let answers = self.answers(&engine, batches)?;
        drop(engine);
        self.disk.set_probe(None);
        if let Some(early) = lock(&early).take() {
            return broken("nothing is shown before it is durable", early);
        }
        let failed = self.disk.failures().0 > failures || self.disk.ended().is_some();
        // A segment for what is published is made where there is room for another one.
        let two = 2 * (self.options.segment_bytes + 2 * MAX_RECORD_BYTES);
        let tight = self.disk.free().is_some_and(|free| free < two);
        let judged = Judged {
            // A segment that cannot be made, for whatever reason, is no room and no failure.
            no_room: failed || tight || self.disk.failures().1 > refusals,
            failed,
            was_latched,
        };
        self.judge(group, answers, &judged)?;
        if self.disk.ended().is_some() {
            return Ok(());
        }
        self.failed_for_a_reason(failures)?;
        if self.step.is_multiple_of(4) {
            return self.compare();
        }
        self.compare_numbers()
    }

    /// Looks at the published numbers whenever the engine is about to sync.
    fn watch(&self, engine: &Arc<Engine>) -> Arc<Mutex<Option<String>>> {
        let seen = Arc::new(Mutex::new(None));
        let engine: Weak<Engine> = Arc::downgrade(engine);
        let expected: Vec<u64> = self.kept.model.channels.iter().map(|c| c.next).collect();
        let out = seen.clone();
        self.disk.set_probe(Some(Arc::new(move || {
            let Some(engine) = engine.upgrade() else {
                return;
            };
            for (id, &next) in (0u32..).zip(&expected) {
                let shown = engine.numbers(ChannelId(id)).map(|n| n.next);
                if shown != Some(next) {
                    let what =
                        format!("channel {id} shows next {shown:?} before the sync, was {next}");
                    lock(&out).get_or_insert(what);
                }
            }
        })));
        seen
    }

    fn answers(&self, engine: &Arc<Engine>, batches: Vec<Batch>) -> Checked<Vec<Answer>> {
        let (sender, answers) = channel();
        let count = batches.len();
        let submissions: Vec<_> = batches
            .into_iter()
            .enumerate()
            .map(|(batch, submitted)| {
                let (sender, disk) = (sender.clone(), self.disk.clone());
                let done = Box::new(move |outcome| {
                    let too_late = disk.ended().is_some();
                    // The run waits for every answer, so somebody listens.
                    let _ = sender.send(Answer {
                        batch,
                        outcome,
                        too_late,
                    });
                });
                (submitted, done)
            })
            .collect();
        drop(sender);
        if count == 1 {
            for (batch, done) in submissions {
                engine.submit_with(batch, done);
            }
        } else {
            // On the commit thread, which therefore finds them all together.
            let inside = Arc::downgrade(engine);
            let together = Box::new(move |_| {
                let Some(engine) = inside.upgrade() else {
                    return;
                };
                for (batch, done) in submissions {
                    engine.submit_with(batch, done);
                }
            });
            engine.submit_with(Batch::default(), together);
        }
        receive(&answers, count)
    }

    fn judge(&mut self, group: Vec<Submission>, answers: Vec<Answer>, judged: &Judged) -> Checked {
        // What every batch is owed if all before it are kept, and if only those are that were.
        let mut optimistic = self.kept.model.clone();
        let mut kept = self.kept.model.clone();
        // And if only what relieves was tried, because there was no room for the rest.
        let mut relieved = self.kept.model.clone();
        let (mut in_flight, mut relief_in_flight) = (Vec::new(), Vec::new());
        let mut published = false;
        for (submission, answer) in group.into_iter().zip(answers) {
            let synced = submission.is_synced();
            let ops = submission.ops;
            // One that is synced for another reason takes its offsets below a ceiling all the same.
            let unsynced = submission.durability == Durability::Interval;
            self.kept.submitted(&ops, unsynced);
            let before = self.options.max_bytes.map(|_| optimistic.clone());
            let owed = optimistic.apply(&ops);
            let publishes = ops.iter().any(Op::always_publishes);
            let relief = if publishes {
                relieved.clone().apply(&ops)
            } else {
                relieved.apply(&ops)
            };
            if !publishes && relief.is_ok() {
                relief_in_flight.push(ops.clone());
            }
            match answer.outcome {
                Ok(_) if judged.was_latched => {
                    return broken(
                        "an engine that failed acknowledges nothing",
                        format!("{ops:?} acknowledged"),
                    );
                }
                // Nobody is there any more to hear it.
                Ok(_) if answer.too_late => in_flight.push(ops),
                Ok(receipt) => {
                    if kept.apply(&ops).as_ref() != Ok(&receipt.offsets) {
                        return broken(
                            format!("{ops:?} answered with {owed:?}"),
                            format!("{receipt:?}"),
                        );
                    }
                    let last_lsn = self.kept.last_lsn();
                    if receipt.lsn < last_lsn {
                        let found = format!("{} after {last_lsn}", receipt.lsn);
                        return broken("frame numbers rise", found);
                    }
                    published |= publishes;
                    self.kept.acknowledged(ops, receipt.lsn, synced);
                    self.counts.acknowledged += 1;
                }
                Err(CommitError::LogFull { bytes, max_bytes }) => {
                    if Some(max_bytes) != self.options.max_bytes || !ops.iter().any(Op::publishes) {
                        return broken(
                            "a bound refuses nothing that relieves",
                            format!("{ops:?} refused at {bytes} of {max_bytes} bytes"),
                        );
                    }
                    // One record may take a segment of its own, with its prologue.
                    let next = self.options.segment_bytes + 3 * MAX_RECORD_BYTES;
                    if bytes + next + self.options.reserve() < max_bytes {
                        return broken(
                            "a log that is not at its bound refuses nothing for it",
                            format!("{ops:?} refused at {bytes} of {max_bytes} bytes"),
                        );
                    }
                    // Whatever happens to the rest, this one is not before it.
                    optimistic = before.unwrap_or(optimistic);
                    self.counts.at_bound += 1;
                }
                Err(CommitError::NoSpace) if judged.no_room => self.counts.no_room += 1,
                Err(CommitError::Failed(_)) if judged.was_latched => {}
                Err(CommitError::Failed(_)) if judged.failed => {
                    self.latched = true;
                    if owed.is_ok() {
                        in_flight.push(ops);
                    }
                }
                Err(refusal) => {
                    let alone = kept.clone().apply(&ops);
                    let refused = [&owed, &alone, &relief];
                    if refused
                        .iter()
                        .all(|answer| answer.as_ref() != Err(&refusal))
                    {
                        return broken(
                            format!("{ops:?} answered with {owed:?}"),
                            format!("{refusal:?}"),
                        );
                    }
                    self.counts.refused += 1;
                }
            }
        }
        self.kept.now(kept);
        if !judged.was_latched {
            if in_flight.is_empty() {
                relief_in_flight.clear();
            }
            self.kept.in_flight = in_flight;
            self.kept.relief_in_flight = relief_in_flight;
        }
        self.reserve_is_kept(published)
    }

    /// After something was published, the directory leaves the reserve to what relieves.
    fn reserve_is_kept(&self, published: bool) -> Checked {
        let Some(max_bytes) = self.options.max_bytes.filter(|_| published) else {
            return Ok(());
        };
        let (taken, most) = (self.disk.used_by("seg"), max_bytes - self.options.reserve());
        if taken > most {
            return broken(
                format!("what is published leaves the reserve: at most {most} bytes"),
                format!("the segments take {taken}"),
            );
        }
        Ok(())
    }

    /// Everything acknowledged is synced from here on.
    fn flush(&mut self) -> Checked {
        let at_risk = self.kept.at_risk();
        self.note(&format!("flush, {at_risk} at risk"));
        let failures = self.disk.failures().0;
        let flushed = self.engine()?.flush();
        match flushed {
            Ok(()) if self.latched => {
                return broken("an engine that failed flushes nothing", "it did");
            }
            Ok(()) => self.kept.all_synced(),
            Err(_) => {}
        }
        self.failed_for_a_reason(failures)
    }

    /// An engine fails only after something failed under it, and then says so.
    fn failed_for_a_reason(&mut self, failures: u64) -> Checked {
        if self.disk.ended().is_some() {
            return Ok(());
        }
        let Some(failure) = self.engine()?.failure() else {
            if self.latched {
                return broken("an engine that failed says so", "no failure");
            }
            return Ok(());
        };
        if !self.latched && self.disk.failures().0 == failures {
            return broken("an engine that works", failure.to_string());
        }
        if !self.latched {
            self.note("the engine failed");
        }
        self.counts.failed += u64::from(self.latched);
        self.latched = true;
        Ok(())
    }

    fn compare_numbers(&self) -> Checked {
        let engine = self.engine()?;
        for (id, known) in (0u32..).zip(&self.kept.model.channels) {
            let found = engine.numbers(ChannelId(id));
            let same = found.is_some_and(|n: Numbers| {
                (n.next, n.floor, n.count, n.bytes)
                    == (known.next, known.floor, known.count, known.bytes)
            });
            if !same {
                let expected = format!(
                    "channel {id}: next {} floor {} count {} bytes {}",
                    known.next, known.floor, known.count, known.bytes
                );
                return broken(expected, format!("{found:?}"));
            }
        }
        Ok(())
    }

    /// Everything acknowledged can be read, and nothing else.
    fn compare(&mut self) -> Checked {
        if self.disk.ended().is_some() {
            return Ok(());
        }
        let seen = view(self.engine()?);
        let seen = seen.or_else(|why| broken("everything can be read", why))?;
        if let Some(difference) = difference(&self.kept.model, &seen) {
            return broken(
                "what was acknowledged is shown, and nothing else",
                difference,
            );
        }
        self.moments()
    }

    /// A moment finds the earliest record at or after it, though clocks step back.
    fn moments(&mut self) -> Checked {
        for (id, known) in (0u32..).zip(&self.kept.model.channels) {
            let Content::Sequence(records) = &known.content else {
                continue;
            };
            let times: Vec<u64> = records.values().filter_map(|r| r.timestamp).collect();
            let Some(&time) = times.get(self.rng.index(times.len())) else {
                continue;
            };
            let time = time + self.rng.below(3);
            let first = records
                .iter()
                .find(|(_, r)| r.timestamp.is_none_or(|t| t >= time));
            let expected = first.map_or(known.next, |(offset, _)| *offset);
            let found = self.engine()?.at_or_after(ChannelId(id), time);
            if found != Ok(expected) {
                return broken(
                    format!("channel {id} at or after {time}: {expected}"),
                    format!("{found:?}"),
                );
            }
        }
        Ok(())
    }
}

struct Judged {
    no_room: bool,
    failed: bool,
    was_latched: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive(answers: &Receiver<Answer>, count: usize) -> Checked<Vec<Answer>> {
    let mut all: Vec<Answer> = Vec::with_capacity(count);
    for i in 0..count {
        match answers.recv_timeout(HUNG) {
            Ok(answer) if answer.batch == i => all.push(answer),
            Ok(answer) => {
                let found = format!("batch {} answered in place of {i}", answer.batch);
                return broken("answers in the order of the batches", found);
            }
            Err(_) => return broken("every batch is answered", format!("batch {i} is not")),
        }
    }
    Ok(all)
}

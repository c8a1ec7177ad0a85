//! Reading every segment and frame in order.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saguin_log_engine::breakage::{self, Breakage};
use saguin_log_engine::format::{
    FLAG_CLEAN, FLAG_PROLOGUE, FrameError, FrameHeader, Op, SEGMENT_HEADER_BYTES, SegmentHeader,
};
use saguin_log_engine::scan::{ScanError, Scanner};
use saguin_log_engine::state::{Anchor, Location, SegmentRuns, State};
use saguin_log_engine::storage::{FileSystem, read_full_at};
use saguin_log_engine::{Layout, Segment};

use crate::checkpoint::{self, Checkpoint, Rejected};
use crate::error::{Damage, DamageKind, RecoverError, io};
use crate::report::SegmentReport;
use crate::tail::{Rest, Torn};

/// Sees every operation as it is applied.
pub trait Visitor {
    /// One operation of the frame `lsn`, which lies at `at` in `segment`.
    fn operation(&mut self, segment: &Segment, at: u64, lsn: u64, op: &Op<'_>);
}

impl Visitor for () {
    fn operation(&mut self, _: &Segment, _: u64, _: u64, _: &Op<'_>) {}
}

/// How the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a whole frame.
    Whole {
        /// That frame says that the log was closed on purpose.
        clean: bool,
    },
    /// With a frame that a crash tore.
    Torn(Torn),
}

/// A segment that is not the last and has no seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsealed {
    /// Its file.
    pub path: PathBuf,
    /// Where the seal belongs.
    pub at: u64,
    /// What is torn there.
    pub torn: Option<Torn>,
}

/// A frame that verifies, but that no later frame claims to be durable: it may lie in the page cache
/// of this machine and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// Number of its segment.
    pub segment: u64,
    /// Position.
    pub at: u64,
    /// Length, in bytes.
    pub len: u64,
    lsn: u64,
}

/// What a walk found.
#[derive(Debug)]
pub struct Walk {
    /// What the frames add up to.
    pub state: State,
    /// The segments, by number.
    pub segments: Vec<Arc<Segment>>,
    /// What was in each.
    pub reports: Vec<SegmentReport>,
    /// Position after the last frame.
    pub end: u64,
    /// The last frame's LSN.
    pub last_lsn: u64,
    /// How it ends.
    pub ending: Ending,
    /// A crash between making the last segment and sealing the one before: the place in that one
    /// where the seal belongs, and what is torn there.
    pub unsealed: Option<Unsealed>,
    /// Segments from before the log's beginning, whose removal a crash cut short.
    pub dead: Vec<PathBuf>,
    /// The last frames, in order, as far as nothing proves them durable.
    pub unproven: VecDeque<Unproven>,
    /// Files that are no part of the log: left by a crash, or put there by somebody.
    pub others: Vec<PathBuf>,
    /// The newest checkpoint that holds.
    pub checkpoint: Option<Checkpoint>,
    /// Checkpoints that do not.
    pub rejected: Vec<Rejected>,
}

/// How much of a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every frame of every segment.
    Whole,
    /// What comes after the newest checkpoint, where there is one that holds.
    FromCheckpoint,
}

/// Reads a log, showing every operation that is read to `visitor`. Where what comes after a
/// checkpoint does not fit to it, everything is read: the frames are what counts.
///
/// # Errors
/// [`RecoverError::Damage`] at the first thing that is not what was written;
/// [`RecoverError::NoLog`] where there is no segment; [`RecoverError::Io`].
pub fn walk(
    fs: &dyn FileSystem,
    layout: &Layout,
    write: bool,
    reading: Reading,
    visitor: &mut dyn Visitor,
) -> Result<Walk, RecoverError> {
    // Before the segments: a log that is open elsewhere only grows meanwhile.
    let listed = checkpoint::list(fs, layout)?;
    let opened = open_segments(fs, layout, write)?;
    let id = opened.segments.last().map(|s| s.header.engine_id);
    let (checkpoint, mut rejected) = listed.newest(fs, &id.unwrap_or_default());
    let start = checkpoint
        .as_ref()
        .filter(|c| reading == Reading::FromCheckpoint && c.start(&opened.segments).is_some());
    let fast = read(fs, layout, write, opened.clone(), start, visitor);
    let mut walk = match (fast, start) {
        (Err(RecoverError::Damage(damage)), Some(start)) => {
            let path = start.path.clone();
            let walk = read(fs, layout, write, opened, None, visitor)?;
            let why = format!("what follows it does not fit to it: {damage}");
            rejected.push(Rejected { path, why });
            walk
        }
        (fast, _) => fast?,
    };
    if let Some(checkpoint) = &checkpoint
        && walk.last_lsn < checkpoint.trailer.reaches
    {
        let kind = DamageKind::Short {
            reaches: checkpoint.trailer.reaches,
            last: walk.last_lsn,
            checkpoint: checkpoint.path.clone(),
        };
        let path = walk.segments.last().map_or(layout.root(), |s| &s.path);
        return Err(Damage::new(path, walk.end, kind).into());
    }
    walk.others.extend(listed.others);
    walk.rejected = rejected;
    walk.checkpoint = checkpoint;
    Ok(walk)
}

/// Reads the segments from where the replay begins.
fn read(
    fs: &dyn FileSystem,
    layout: &Layout,
    write: bool,
    opened: Opened,
    start: Option<&Checkpoint>,
    visitor: &mut dyn Visitor,
) -> Result<Walk, RecoverError> {
    let Opened {
        mut segments,
        before_gap,
        others,
    } = opened;
    let gap = before_gap.last().map(|s| s.header.number + 1);
    let missing = |number| {
        let kind = DamageKind::MissingSegment { number };
        RecoverError::from(Damage::new(&layout.segment_dir(), 0, kind))
    };
    let begin = start.and_then(|c| c.start(&segments)).unwrap_or(0);
    let older = segments[..begin].to_vec();
    let mut walker = Walker {
        state: State::default(),
        reports: segments
            .windows(2)
            .take(begin)
            .map(|pair| SegmentReport::unread(&pair[0], &pair[1]))
            .collect(),
        last_lsn: segments
            .get(begin)
            .map_or(0, |s| s.header.first_lsn.saturating_sub(1)),
        end: 0,
        ending: Ending::Whole { clean: false },
        unsealed: None,
        unproven: VecDeque::new(),
        complete_at: start.map(|c| c.trailer.reaches),
        start: start.map(|c| (c, older)),
        written_elsewhere: !write,
        visitor,
    };
    let mut i = begin;
    while let Some(segment) = segments.get(i).cloned() {
        let next = segments.get(i + 1).map(|s| &**s);
        let read = walker.segment(&segment, next, i + 2 == segments.len());
        // What contradicts the frames before it does so because of a gap. Frames that do not verify
        // are another loss, and named themselves.
        let read = match (read, gap) {
            (Err(RecoverError::Damage(d)), Some(number)) if is_contradiction(&d) => {
                Err(missing(number))
            }
            (read, _) => read,
        };
        let sealed = walker.reports.get(i).is_some_and(|report| report.sealed);
        if !write && next.is_none() && sealed {
            // An open log may have rolled since its files were listed.
            let path = layout.segment_path(walker.last_lsn + 1);
            match open_segment(fs, &path, write) {
                Ok(rolled) => {
                    check_header(&rolled, walker.last_lsn + 1, Some(&segment.header))?;
                    segments.push(Arc::new(rolled));
                }
                Err(_) => read?,
            }
        } else {
            read?;
        }
        i += 1;
    }
    let Walker {
        state,
        reports,
        end,
        last_lsn,
        ending,
        unsealed,
        unproven,
        ..
    } = walker;
    // The log itself says which segments belong to it: a missing front is seen too.
    let oldest = state.oldest_segment();
    if let Some(first) = segments.first()
        && first.header.number > oldest
    {
        return Err(missing(gap.unwrap_or(first.header.number - 1)));
    }
    // Before the log was said to begin after a segment, what lay in it and is alive was moved.
    let lost = state.holds().unseen();
    if lost > 0 {
        let kind = DamageKind::HoldsGone { count: lost };
        return Err(Damage::new(&layout.segment_dir(), 0, kind).into());
    }
    let belongs = |s: &Arc<Segment>| s.header.number >= oldest;
    let gone = before_gap
        .iter()
        .chain(segments.iter().filter(|s| !belongs(s)));
    let dead = gone.map(|s| s.path.clone()).collect();
    segments.retain(belongs);
    if let Err(error) = state.check_counts() {
        let kind = DamageKind::State(error);
        return Err(Damage::new(&layout.segment_dir(), 0, kind).into());
    }
    Ok(Walk {
        state,
        segments,
        reports,
        end,
        last_lsn,
        ending,
        unsealed,
        dead,
        unproven,
        others,
        checkpoint: None,
        rejected: Vec::new(),
    })
}

fn is_contradiction(damage: &Damage) -> bool {
    matches!(damage.kind, DamageKind::State(_))
}

/// The files of a log.
#[derive(Clone)]
struct Opened {
    /// The newest segments without a gap in their numbers.
    segments: Vec<Arc<Segment>>,
    /// Those before the last gap: dead, or the gap is a loss.
    before_gap: Vec<Arc<Segment>>,
    others: Vec<PathBuf>,
}

/// Opens every segment and checks the headers against each other.
fn open_segments(
    fs: &dyn FileSystem,
    layout: &Layout,
    write: bool,
) -> Result<Opened, RecoverError> {
    let dir = layout.segment_dir();
    let names = match fs.list(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(RecoverError::NoLog {
                path: layout.root().to_owned(),
            });
        }
        other => other.map_err(io("list", &dir))?,
    };
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for name in names {
        match Layout::parse_segment_name(&name) {
            Some(first_lsn) => found.push((first_lsn, dir.join(&name))),
            None => others.push(dir.join(&name)),
        }
    }
    found.sort();
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    let mut before_gap = Vec::new();
    for (first_lsn, path) in found {
        let segment = open_segment(fs, &path, write)?;
        match check_header(&segment, first_lsn, segments.last().map(|s| &s.header)) {
            Ok(()) => {}
            Err(Damage {
                kind: DamageKind::MissingSegment { .. },
                ..
            }) => before_gap.append(&mut segments),
            Err(damage) => return Err(damage.into()),
        }
        segments.push(Arc::new(segment));
    }
    if segments.is_empty() {
        return Err(RecoverError::NoLog {
            path: layout.root().to_owned(),
        });
    }
    Ok(Opened {
        segments,
        before_gap,
        others,
    })
}

fn open_segment(fs: &dyn FileSystem, path: &Path, write: bool) -> Result<Segment, RecoverError> {
    let file = fs.open(path, write).map_err(io("open", path))?;
    let mut bytes = [0u8; SEGMENT_HEADER_BYTES];
    let read = read_full_at(&*file, &mut bytes, 0).map_err(io("read", path))?;
    let header = SegmentHeader::decode(&bytes[..read])
        .map_err(|e| Damage::new(path, 0, DamageKind::Header(e)))?;
    Ok(Segment::new(header, file, path.to_owned()))
}

fn check_header(
    segment: &Segment,
    name: u64,
    before: Option<&SegmentHeader>,
) -> Result<(), Damage> {
    let header = &segment.header;
    let damage = |kind| Err(Damage::new(&segment.path, 0, kind));
    if header.first_lsn != name {
        return damage(DamageKind::Misnamed {
            name,
            header: header.first_lsn,
        });
    }
    for (field, found) in [("capacity", header.capacity), ("number", header.number)] {
        if found > u64::from(u32::MAX) {
            return damage(DamageKind::Absurd { field, found });
        }
    }
    let Some(before) = before else { return Ok(()) };
    if header.engine_id != before.engine_id {
        let (expected, found) = (hex(&before.engine_id), hex(&header.engine_id));
        return damage(DamageKind::ForeignSegment { expected, found });
    }
    match before.number + 1 {
        next if header.number == next => Ok(()),
        next if header.number < next => damage(DamageKind::DuplicateSegment {
            number: header.number,
        }),
        number => damage(DamageKind::MissingSegment { number }),
    }
}

/// An id as people read it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

struct Walker<'v> {
    state: State,
    reports: Vec<SegmentReport>,
    last_lsn: u64,
    end: u64,
    ending: Ending,
    unsealed: Option<Unsealed>,
    unproven: VecDeque<Unproven>,
    /// Where the replay began, and the segments before that, until they are taken into the state.
    start: Option<(&'v Checkpoint, Vec<Arc<Segment>>)>,
    /// The LSN from which on everything alive is known.
    complete_at: Option<u64>,
    /// The log is only looked at, and somebody else may be writing to it.
    written_elsewhere: bool,
    visitor: &'v mut dyn Visitor,
}

/// How one segment ended.
enum SegmentEnd {
    Sealed,
    /// No frame verifies here.
    Stopped(FrameError),
}

/// Whether a whole frame lies at `at`.
fn verifies(segment: &Segment, at: u64, limit: u64) -> bool {
    let mut scanner = Scanner::new(&*segment.file, segment.header.salt, at, limit);
    matches!(scanner.next(), Ok(Some(_)))
}

/// Where the records of sequences lie in a sealed segment, from its frames.
fn scan_runs(
    segment: &Segment,
    report: &mut SegmentReport,
) -> Result<Vec<(u32, Vec<Anchor>)>, String> {
    let header = &segment.header;
    let from = SEGMENT_HEADER_BYTES as u64;
    let mut scanner = Scanner::new(&*segment.file, header.salt, from, header.capacity);
    let mut runs = SegmentRuns::default();
    let mut lsn = header.first_lsn;
    report.read = true;
    loop {
        let damaged = |why: &dyn std::fmt::Display| format!("{}: {why}", segment.path.display());
        let (at, frame) = match scanner.next() {
            Ok(Some(found)) => found,
            Ok(None) => return Err(damaged(&"it ends without a seal")),
            Err(error) => return Err(damaged(&error)),
        };
        if frame.header.lsn != lsn {
            return Err(damaged(&format!("expected frame {lsn} at {at}")));
        }
        lsn += 1;
        let place = Location {
            segment: segment.number(),
            frame: at as u32,
        };
        report.frames += 1;
        report.operations += u64::from(frame.header.operations);
        for op in frame.operations() {
            let op = op.map_err(|e| damaged(&e))?;
            runs.operation(&op, place);
            if let Op::Seal { .. } = op {
                let _ = segment.seal.set(at);
                report.end = at + frame.header.frame_len();
                return Ok(runs.finish());
            }
        }
    }
}

impl Walker<'_> {
    /// Reads one segment. `next` is the one after it; `next_is_last` says that this is the last
    /// but one.
    fn segment(
        &mut self,
        segment: &Segment,
        next: Option<&Segment>,
        next_is_last: bool,
    ) -> Result<(), RecoverError> {
        if self.last_lsn + 1 != segment.header.first_lsn {
            let (expected, found) = (self.last_lsn + 1, segment.header.first_lsn);
            let kind = DamageKind::Lsn { expected, found };
            return Err(Damage::new(&segment.path, 0, kind).into());
        }
        let len = segment.file.len().map_err(io("measure", &segment.path))?;
        // A segment has its whole length before it has its name.
        let limit = segment.header.capacity;
        if len < limit {
            let (expected, found) = (limit, len);
            let kind = DamageKind::Truncated { expected, found };
            return Err(Damage::new(&segment.path, found, kind).into());
        }
        let mut report = SegmentReport::new(segment);
        let ended = loop {
            let ended = self.frames(segment, limit, &mut report)?;
            self.end = report.end;
            let SegmentEnd::Stopped(error) = ended else {
                break None;
            };
            match self.rest(segment, limit).judge(&error) {
                Ok(None) => break Some((Ok(None), error)),
                // What was read as no frame has become one since, and the log goes on after it.
                _ if self.written_elsewhere && verifies(segment, self.end, limit) => {}
                judged => break Some((judged, error)),
            }
        };
        let empty = report.frames == 0;
        self.reports.push(report);
        match (ended, next) {
            (None, Some(_)) => Ok(()),
            (None, None) => {
                let number = segment.header.number + 1;
                let kind = DamageKind::MissingSegment { number };
                Err(Damage::new(&segment.path, self.end, kind).into())
            }
            (Some((judged, error)), next) => {
                let torn = judged?;
                // The prologue was durable before the segment had its name: no crash tears it, and
                // a log that went on without it could not be opened again.
                if empty {
                    let kind = DamageKind::Frame {
                        lsn: segment.header.first_lsn,
                        error,
                        intact_after: torn.map_or(0, |torn| torn.frames),
                    };
                    return Err(Damage::new(&segment.path, self.end, kind).into());
                }
                match next {
                    None => {
                        if let Some(torn) = torn {
                            self.ending = Ending::Torn(torn);
                        }
                        Ok(())
                    }
                    Some(next) => self.unsealed(segment, next, next_is_last, torn),
                }
            }
        }
    }

    /// A segment without a seal that is not the last: right after a crash in the middle of a roll,
    /// and only if the one missing frame is the seal itself.
    fn unsealed(
        &mut self,
        segment: &Segment,
        next: &Segment,
        next_is_last: bool,
        torn: Option<Torn>,
    ) -> Result<(), RecoverError> {
        let seal_lsn = self.last_lsn + 1;
        if !next_is_last || next.header.first_lsn != seal_lsn + 1 {
            let kind = DamageKind::Unsealed {
                lsn: seal_lsn,
                next: next.header.first_lsn,
            };
            return Err(Damage::new(&segment.path, self.end, kind).into());
        }
        let (path, at) = (segment.path.clone(), self.end);
        self.unsealed = Some(Unsealed { path, at, torn });
        self.last_lsn = seal_lsn;
        Ok(())
    }

    /// Takes a checkpoint and the footers of the segments before it into the state, which is at the
    /// checkpoint's prologue. A footer that is missing or does not hold is read from the frames.
    fn preload(&mut self, checkpoint: &Checkpoint, older: &[Arc<Segment>]) -> Result<(), String> {
        checkpoint.load(&mut self.state)?;
        let oldest = self.state.oldest_segment();
        for (i, segment) in older.iter().enumerate() {
            if segment.header.number < oldest {
                continue;
            }
            let len = segment.file.len().map_err(|e| e.to_string())?;
            if len < segment.header.capacity {
                return Err(format!("{} was cut short", segment.path.display()));
            }
            let report = &mut self.reports[i];
            let channels = match report.note_footer(segment) {
                Some(footer) => {
                    if footer.last_lsn != report.last_lsn {
                        return Err(format!(
                            "{}: its footer ends with frame {}, the next segment begins after {}",
                            segment.path.display(),
                            footer.last_lsn,
                            report.last_lsn
                        ));
                    }
                    let _ = segment.seal.set(footer.seal);
                    report.end = footer.seal;
                    footer.channels
                }
                None => scan_runs(segment, report)?,
            };
            for (channel, runs) in channels {
                let loaded = self.state.load_runs(channel, runs);
                loaded.map_err(|e| format!("{}: {e}", segment.path.display()))?;
            }
        }
        self.state.loaded();
        Ok(())
    }

    /// Frames are in order, and so is what they claim.
    fn unproven(&mut self, segment: &Segment, at: u64, header: &FrameHeader) {
        while self
            .unproven
            .front()
            .is_some_and(|frame| frame.lsn <= header.durable_lsn)
        {
            self.unproven.pop_front();
        }
        self.unproven.push_back(Unproven {
            segment: segment.header.number,
            at,
            len: header.frame_len(),
            lsn: header.lsn,
        });
    }

    fn rest<'f>(&self, segment: &'f Segment, limit: u64) -> Rest<'f> {
        Rest {
            file: &*segment.file,
            path: &segment.path,
            salt: segment.header.salt,
            at: self.end,
            end: limit,
            lsn: self.last_lsn + 1,
        }
    }

    fn frames(
        &mut self,
        segment: &Segment,
        limit: u64,
        report: &mut SegmentReport,
    ) -> Result<SegmentEnd, RecoverError> {
        let start = SEGMENT_HEADER_BYTES as u64;
        let from = report.end.max(start);
        let mut scanner = Scanner::new(&*segment.file, segment.header.salt, from, limit);
        loop {
            report.end = scanner.position();
            let (at, frame) = match scanner.next() {
                Ok(Some(found)) => found,
                Ok(None) => {
                    let found = limit.saturating_sub(report.end);
                    return Ok(SegmentEnd::Stopped(FrameError::Short {
                        needed: found + 1,
                        found,
                    }));
                }
                Err(ScanError::Frame { error, .. }) => return Ok(SegmentEnd::Stopped(error)),
                Err(ScanError::Io { error, .. }) => return Err(io("read", &segment.path)(error)),
            };
            let damage = |kind| RecoverError::Damage(Damage::new(&segment.path, at, kind));
            let header = frame.header;
            let expected = self.last_lsn + 1;
            if header.lsn != expected && !breakage::is(Breakage::IgnoreLsnGap) {
                return Err(damage(DamageKind::Lsn {
                    expected,
                    found: header.lsn,
                }));
            }
            if (header.flags & FLAG_PROLOGUE != 0) != (at == start) {
                return Err(damage(DamageKind::Prologue));
            }
            // Only a segment made by a roll that was completed holds frames after its prologue.
            if let Some(unsealed) = &self.unsealed
                && at != start
            {
                let (lsn, next) = (segment.header.first_lsn - 1, segment.header.first_lsn);
                let kind = DamageKind::Unsealed { lsn, next };
                return Err(Damage::new(&unsealed.path, unsealed.at, kind).into());
            }
            let place = Location {
                segment: segment.number(),
                frame: at as u32,
            };
            let mut sealed = false;
            for op in frame.operations() {
                let op = op.map_err(|e| damage(DamageKind::Operation(e)))?;
                self.state
                    .apply(&op, place)
                    .map_err(|e| damage(DamageKind::State(e)))?;
                self.visitor.operation(segment, at, header.lsn, &op);
                sealed |= matches!(op, Op::Seal { .. });
            }
            if at == start
                && let Some((checkpoint, older)) = self.start.take()
            {
                self.preload(checkpoint, &older)
                    .map_err(|why| damage(DamageKind::Checkpoint(why)))?;
            }
            if self.complete_at.is_some_and(|lsn| header.lsn >= lsn) {
                self.complete_at = None;
                self.state.completed();
            }
            self.unproven(segment, at, &header);
            self.last_lsn = header.lsn;
            self.ending = Ending::Whole {
                clean: header.flags & FLAG_CLEAN != 0,
            };
            report.frames += 1;
            report.operations += u64::from(header.operations);
            report.last_lsn = header.lsn;
            if sealed {
                let _ = segment.seal.set(at);
                report.note_footer(segment);
                report.sealed = true;
                report.end = scanner.position();
                return Ok(SegmentEnd::Sealed);
            }
        }
    }
}

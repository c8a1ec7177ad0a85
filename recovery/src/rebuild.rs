//! A log that opens, made of what can be read of a damaged one.
//!
//! Everything that is kept is stated again in new segments, under the offset it has: the prologue of
//! the first says that nothing before it belongs to the log, states every channel's numbers, and what
//! is alive follows as *moved*. Cutting the damaged file instead would be less work and wrong: the
//! numbers after the damage would be those from before it, and offsets that readers have seen would be
//! handed out a second time (invariant 9).
//!
//! The new segments come into being under scratch names, synced, and take their names last-first. So
//! until the first of them has its name the directory is as damaged as it was, and from then on the log
//! is the new one and the old files are dead: a cut anywhere leaves one or the other.
//!
//! Checkpoints go last. One claims that a frame was durable, and while the old files are the log the
//! claim must stand: without it a log that has lost its end would open as if it had not. To the new log
//! it is void: its first frame comes after every frame that was claimed, and no segment of it has the
//! number a replay would begin with.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use saguin_log_engine::format::{
    FLAG_CLEAN, FLAG_PROLOGUE, FLAG_SEAL, FRAME_HEADER_BYTES, FrameBuilder, Kind, Op,
    SEAL_FRAME_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, StateLine,
};
use saguin_log_engine::state::{Location, State, StateError};
use saguin_log_engine::storage::{File, FileSystem};
use saguin_log_engine::{Layout, writer_name};

use crate::error::{RecoverError, io};
use crate::salvage::{Kept, Salvage, SalvagedChannel};
use crate::stored::{Read, ReadFault};

/// A frame takes no further operation beyond either of these.
const FRAME_BYTES: usize = 1 << 20;
const FRAME_OPERATIONS: u16 = 8192;
/// Capacity of the new segments where the old ones do not say.
const SEGMENT_BYTES: u64 = 4 << 20;
/// Frames that may have followed the last one that is known.
const FRAMES_OF_A_LOST_END: u64 = 1 << 40;

/// Why no new log was made. The damaged one is as it was.
#[derive(Debug)]
pub enum RebuildError {
    /// The system refused something.
    Io(RecoverError),
    /// A record that was readable is not any more.
    Read(ReadFault),
    /// What was found contradicts itself; a sentence.
    Contradiction(String),
}

impl std::fmt::Display for RebuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RebuildError::Io(error) => error.fmt(f),
            RebuildError::Read(fault) => write!(f, "a record could not be carried over: {fault}"),
            RebuildError::Contradiction(why) => {
                write!(f, "what can be read does not make a log: {why}")
            }
        }
    }
}

impl std::error::Error for RebuildError {}

impl From<RecoverError> for RebuildError {
    fn from(error: RecoverError) -> RebuildError {
        RebuildError::Io(error)
    }
}

impl From<ReadFault> for RebuildError {
    fn from(fault: ReadFault) -> RebuildError {
        RebuildError::Read(fault)
    }
}

impl From<StateError> for RebuildError {
    fn from(error: StateError) -> RebuildError {
        RebuildError::Contradiction(error.to_string())
    }
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Segments of the new log.
    pub segments: usize,
    /// Records in it.
    pub records: u64,
    /// Records that are held back in it.
    pub holds: u64,
    /// Small values in it.
    pub keys: u64,
    /// Small values the engine would not take, by namespace and key: they contradict what is left.
    pub refused_keys: Vec<(u8, Vec<u8>)>,
}

/// Replaces the log of `layout` by what `salvage` found of it. The caller holds the lock and has a copy
/// of the directory.
///
/// # Errors
/// [`RebuildError`]; up to the first rename the log is as it was.
pub fn rebuild(
    fs: &dyn FileSystem,
    layout: &Layout,
    salvage: &Salvage,
) -> Result<Rebuilt, RebuildError> {
    let numbers = numbers(salvage)?;
    let mut out = Writer::new(fs, layout, salvage)?;
    let mut rebuilt = Rebuilt::default();
    out.begin(&numbers, salvage)?;
    for (&id, channel) in &salvage.model.channels {
        let floor = channel.new_floor();
        let mut failed = None;
        each(
            salvage,
            id,
            floor,
            &mut |read| match out.push(&moved(channel, read)) {
                Ok(()) => {
                    rebuilt.records += 1;
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    salvage.each_hold(&mut |key, record| {
        rebuilt.holds += 1;
        out.push(&Op::MoveHold { key, record })
    })?;
    for ((space, key), value) in &salvage.model.keyspace {
        let put = Op::Put {
            space: *space,
            key,
            value,
        };
        match out.push(&put) {
            Ok(()) => rebuilt.keys += 1,
            Err(RebuildError::Contradiction(_)) => {
                rebuilt.refused_keys.push((*space, key.to_vec()));
            }
            Err(other) => return Err(other),
        }
    }
    out.end()?;
    rebuilt.segments = out.done.len();
    let new = out.done;
    swap(fs, layout, &new)?;
    forget_checkpoints(fs, layout)?;
    Ok(rebuilt)
}

/// What a channel is called where nothing readable says its name.
#[must_use]
pub fn lost_name(id: u32) -> String {
    format!("lost-channel-{id}")
}

/// A channel's numbers in the new log.
struct Line {
    kind: Kind,
    name: Vec<u8>,
    next: u64,
    floor: u64,
    count: u64,
    bytes: u64,
}

/// Every record is read once before anything is written: counts and bytes are those of what is really
/// carried over.
fn numbers(salvage: &Salvage) -> Result<BTreeMap<u32, Line>, RebuildError> {
    let mut lines = BTreeMap::new();
    for (&id, channel) in &salvage.model.channels {
        let floor = channel.new_floor();
        let (mut count, mut bytes) = (0, 0);
        each(salvage, id, floor, &mut |read| {
            count += 1;
            bytes += read.stored.record.size;
            ControlFlow::Continue(())
        })?;
        let name = match &channel.name {
            Some(name) => name.to_vec(),
            None => lost_name(id).into_bytes(),
        };
        let line = Line {
            kind: channel.kind,
            name,
            next: channel.new_next(),
            floor,
            count,
            bytes,
        };
        lines.insert(id, line);
    }
    Ok(lines)
}

fn each(
    salvage: &Salvage,
    id: u32,
    floor: u64,
    sink: &mut dyn FnMut(&Read<'_>) -> ControlFlow<()>,
) -> Result<(), RebuildError> {
    let from = match salvage.model.channels.get(&id).map(|c| c.kind) {
        Some(Kind::Sequence) => floor,
        _ => 0,
    };
    salvage
        .each_record(id, from, sink)
        .map_err(RebuildError::Read)
}

/// The record, stated again.
fn moved<'a>(channel: &SalvagedChannel, read: &Read<'a>) -> Op<'a> {
    let stored = read.stored;
    let (channel_id, offset, record) = (stored.channel, stored.offset, stored.record);
    match &channel.kept {
        Kept::Sequence(_) => Op::MoveRecord {
            channel: channel_id,
            offset,
            record,
        },
        Kept::Map(_) => Op::MoveEntry {
            channel: channel_id,
            offset,
            deletion: stored.deletion,
            key: stored.key.unwrap_or_default(),
            record,
        },
        Kept::Work(jobs) => {
            let job = jobs.get(&offset);
            Op::MoveJob {
                channel: channel_id,
                offset,
                attempts: job.map_or(0, |job| job.attempts),
                attempted: job.and_then(|job| job.attempted),
                record,
            }
        }
    }
}

/// A segment that is being written, under its scratch name.
struct Current {
    scratch: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    header: SegmentHeader,
    at: u64,
}

struct Writer<'w> {
    fs: &'w dyn FileSystem,
    layout: &'w Layout,
    engine_id: [u8; 16],
    capacity: u64,
    state: State,
    frame: FrameBuilder,
    next_lsn: u64,
    next_number: u64,
    current: Option<Current>,
    /// Scratch name and name of each segment.
    done: Vec<(PathBuf, PathBuf)>,
}

impl<'w> Writer<'w> {
    fn new(
        fs: &'w dyn FileSystem,
        layout: &'w Layout,
        salvage: &Salvage,
    ) -> Result<Writer<'w>, RebuildError> {
        let headers = || salvage.handles.iter().map(|s| &s.header);
        let number = headers().map(|h| h.number).max().unwrap_or(0);
        // Names of files that could not be read count too: no LSN and no name is used twice.
        let named = salvage.left_out.iter().filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            Layout::parse_segment_name(name)
        });
        let claim = salvage.checkpoint.as_ref();
        let claim = claim.map_or((0, 0), |c| (c.trailer.reaches, c.header.segment));
        let mut lsn = named.max().unwrap_or(0).max(salvage.last_lsn).max(claim.0);
        if salvage.end_is_lost() {
            lsn = lsn.saturating_add(FRAMES_OF_A_LOST_END);
        }
        let newest = salvage.newest().map_or(SEGMENT_BYTES, |h| h.capacity);
        // A gap in the numbers: what lies before it is not read, only removed.
        let next_number = number.max(claim.1) + 2;
        if next_number > u64::from(u32::MAX) {
            let why = format!("segment number {next_number} is too large");
            return Err(RebuildError::Contradiction(why));
        }
        Ok(Writer {
            fs,
            layout,
            engine_id: salvage.engine_id,
            capacity: newest,
            state: State::default(),
            frame: FrameBuilder::default(),
            next_lsn: lsn.saturating_add(2),
            next_number,
            current: None,
            done: Vec::new(),
        })
    }

    fn begin(
        &mut self,
        lines: &BTreeMap<u32, Line>,
        salvage: &Salvage,
    ) -> Result<(), RebuildError> {
        let nowhere = Location {
            segment: 0,
            frame: 0,
        };
        let oldest = self.next_number;
        self.state.apply(&Op::Segments { oldest }, nowhere)?;
        let holds = &salvage.model.holds.entries;
        let held = Op::Held {
            count: holds.len() as u64,
            bytes: holds.values().map(|hold| hold.size).sum(),
        };
        self.state.apply(&held, nowhere)?;
        for (&channel, line) in lines {
            let line = StateLine {
                channel,
                kind: line.kind,
                name: &line.name,
                next: line.next,
                floor: line.floor,
                ceiling: 0,
                count: line.count,
                bytes: line.bytes,
            };
            self.state.apply(&Op::State(line), nowhere)?;
        }
        self.open(0)?;
        self.frame.clear();
        Ok(())
    }

    /// Makes the next segment, with room for a frame of `frame_len` after its prologue.
    fn open(&mut self, frame_len: u64) -> Result<(), RebuildError> {
        let mut prologue = FrameBuilder::default();
        prologue.clear();
        for op in self.state.prologue() {
            prologue.push(&op);
        }
        let end = (SEGMENT_HEADER_BYTES + prologue.frame_len()) as u64;
        let capacity = self.capacity.max(end + frame_len + TAIL_ROOM);
        let mut salt = [0u8; 4];
        let dir = self.layout.segment_dir();
        let doing = io("choose a salt for a segment in", &dir);
        self.fs.random(&mut salt).map_err(doing)?;
        let (number, lsn) = (self.next_number, self.next_lsn);
        let header = SegmentHeader {
            engine_id: self.engine_id,
            number,
            first_lsn: lsn,
            salt: u32::from_le_bytes(salt),
            capacity,
            written_at: unix_ms(),
            writer: writer_name(),
        };
        let scratch = self.layout.scratch_path(&format!("repair-{number}"));
        match self.fs.remove(&scratch) {
            // Left by a repair that was cut short.
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(io("remove", &scratch)(e).into());
            }
            _ => {}
        }
        let file = self.fs.create(&scratch).map_err(io("make", &scratch))?;
        let room = io("reserve room for", &scratch);
        file.allocate(capacity).map_err(room)?;
        let mut bytes = header.encode();
        bytes.extend_from_slice(prologue.finish(lsn, lsn - 1, FLAG_PROLOGUE, header.salt));
        let write = io("write", &scratch);
        file.write_all_at(&bytes, 0).map_err(write)?;
        let path = self.layout.segment_path(lsn);
        self.current = Some(Current {
            scratch,
            path,
            file,
            header,
            at: end,
        });
        self.next_lsn = lsn + 1;
        self.next_number = number + 1;
        Ok(())
    }

    /// Adds an operation, in a new frame and a new segment where the present ones are full.
    fn push(&mut self, op: &Op<'_>) -> Result<(), RebuildError> {
        let mut mark = self.frame.mark();
        self.frame.push(op);
        let first = self.frame.operations() == 1;
        let full = self.frame.frame_len() > FRAME_BYTES
            || self.frame.operations() > FRAME_OPERATIONS
            || !self.fits();
        if full && !first {
            self.frame.rollback(mark);
            self.flush(0)?;
            mark = self.frame.mark();
            self.frame.push(op);
        }
        if !self.fits() {
            let len = self.frame.frame_len() as u64;
            self.frame.rollback(mark);
            self.roll(len)?;
            self.frame.push(op);
        }
        let at = self.current.as_ref().map(|current| Location {
            segment: u32::try_from(current.header.number).unwrap_or(u32::MAX),
            frame: u32::try_from(current.at).unwrap_or(u32::MAX),
        });
        let applied = match at {
            Some(at) => self.state.apply(op, at),
            None => Ok(()),
        };
        if applied.is_err() {
            self.frame.rollback(mark);
        }
        Ok(applied?)
    }

    fn fits(&self) -> bool {
        self.current.as_ref().is_some_and(|current| {
            current.at + self.frame.frame_len() as u64 + TAIL_ROOM <= current.header.capacity
        })
    }

    /// Writes the frame, if there is anything in it or it says something by itself.
    fn flush(&mut self, flags: u16) -> Result<(), RebuildError> {
        if self.frame.operations() == 0 && flags == 0 {
            return Ok(());
        }
        let lsn = self.next_lsn;
        if let Some(current) = &mut self.current {
            let bytes = self.frame.finish(lsn, lsn - 1, flags, current.header.salt);
            let write = io("write", &current.scratch);
            current
                .file
                .write_all_at(bytes, current.at)
                .map_err(write)?;
            current.at += bytes.len() as u64;
        }
        self.next_lsn += 1;
        self.frame.clear();
        Ok(())
    }

    fn roll(&mut self, frame_len: u64) -> Result<(), RebuildError> {
        self.frame.push(&Op::Seal {
            next_segment: self.next_number,
        });
        self.flush(FLAG_SEAL)?;
        self.finish()?;
        self.open(frame_len)
    }

    fn end(&mut self) -> Result<(), RebuildError> {
        self.flush(0)?;
        // It vouches for the last frame, and says that the log ends here on purpose.
        self.flush(FLAG_CLEAN)?;
        self.finish()
    }

    fn finish(&mut self) -> Result<(), RebuildError> {
        if let Some(current) = self.current.take() {
            let sync = io("sync", &current.scratch);
            current.file.sync_data().map_err(sync)?;
            self.done.push((current.scratch, current.path));
        }
        Ok(())
    }
}

/// What every frame leaves free behind it: an empty frame and a seal.
const TAIL_ROOM: u64 = (SEAL_FRAME_BYTES + FRAME_HEADER_BYTES) as u64;

/// Gives the new segments their names, last first, and removes the old ones.
fn swap(
    fs: &dyn FileSystem,
    layout: &Layout,
    new: &[(PathBuf, PathBuf)],
) -> Result<(), RebuildError> {
    let dir = layout.segment_dir();
    let sync = || io("sync", &dir);
    fs.sync_dir(&dir).map_err(sync())?;
    for (scratch, path) in new.iter().rev() {
        fs.rename(scratch, path).map_err(io("rename", scratch))?;
    }
    // The names are durable before what they replace goes.
    fs.sync_dir(&dir).map_err(sync())?;
    for name in fs.list(&dir).map_err(io("list", &dir))? {
        let path = dir.join(&name);
        let is_new = new.iter().any(|(_, new)| *new == path);
        if Layout::parse_segment_name(&name).is_some() && !is_new {
            fs.remove(&path).map_err(io("remove", &path))?;
        }
    }
    fs.sync_dir(&dir).map_err(sync())?;
    Ok(())
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Removes the checkpoints: they speak of segments that are gone.
fn forget_checkpoints(fs: &dyn FileSystem, layout: &Layout) -> Result<(), RecoverError> {
    let dir = layout.checkpoint_dir();
    let names = match fs.list(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(io("list", &dir))?,
    };
    for name in names {
        if Layout::parse_checkpoint_name(&name).is_some() {
            let path = dir.join(name);
            fs.remove(&path).map_err(io("remove", &path))?;
        }
    }
    fs.sync_dir(&dir).map_err(io("sync", &dir))
}

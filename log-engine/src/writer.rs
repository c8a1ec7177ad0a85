//! The end of the log: puts frames there, one positioned write and one data sync each, and rolls
//! over to the next segment.

use std::io;
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::breakage::{self, Breakage};
use crate::counters::Meters;
use crate::format::{
    FLAG_CLEAN, FLAG_PROLOGUE, FLAG_SEAL, FRAME_HEADER_BYTES, FrameBuilder, Op, SEAL_FRAME_BYTES,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};
use crate::room::{relief_tail, with_relief_tail};
use crate::segment::{Layout, Segment, at_path, writer_name};
use crate::spare::{Fresh, Spares, prepare};
use crate::state::{Location, State};
use crate::storage::{FileSystem, is_no_space};
use crate::sync::Arc;

/// Every frame leaves this much of its segment free: for one empty frame that witnesses it, and for
/// the frame that seals the segment.
pub(crate) const TAIL_ROOM: u64 = (SEAL_FRAME_BYTES + FRAME_HEADER_BYTES) as u64;

/// Largest file position a [`Location`] can name.
const MAX_CAPACITY: u64 = u32::MAX as u64;

/// Capacity of a new log's first segment, in bytes, where ordinary ones are larger.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

/// Why a frame is not in the log.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// No room; the frame was undone and the log is as it was.
    NoSpace,
    /// What is on the disk is no longer known.
    Failed(String),
}

/// Where the log ends.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) layout: Layout,
    pub(crate) spares: Spares,
    pub(crate) segment: Arc<Segment>,
    /// Position of the next frame.
    pub(crate) at: u64,
    pub(crate) next_lsn: u64,
    /// Highest LSN that is synced.
    pub(crate) durable_lsn: u64,
    /// Capacity of an ordinary segment.
    pub(crate) segment_bytes: u64,
    /// The last frame with operations has a later frame that vouches for it.
    pub(crate) witnessed: bool,
    /// LSN of the last frame with operations, synced or not.
    pub(crate) last_lsn: u64,
    /// When the first frame with operations that is not synced was written; `None` where all are.
    pub(crate) unsynced_since: Option<Instant>,
    pub(crate) meters: Arc<Meters>,
}

impl Writer {
    /// Bytes a frame may take in the segment written to; one that publishes leaves its end to those
    /// that relieve.
    pub(crate) fn left(&self, publishes: bool) -> u64 {
        let capacity = self.segment.header.capacity;
        let tail = if publishes { relief_tail(capacity) } else { 0 };
        capacity.saturating_sub(self.at + TAIL_ROOM + tail)
    }

    /// Appends the frame and, with `sync`, makes it and every frame before it durable. On success the
    /// frame's place and number.
    pub(crate) fn commit(
        &mut self,
        frame: &mut FrameBuilder,
        publishes: bool,
        state: &State,
        sync: bool,
        rolled: &mut dyn FnMut(&Arc<Segment>),
    ) -> Result<(Location, u64), WriteError> {
        let len = frame.frame_len() as u64;
        if len > self.left(publishes) {
            if publishes && !self.leaves_room(state, len) {
                return Err(WriteError::NoSpace);
            }
            let next = self.roll(state, len)?;
            rolled(&next);
        }
        let (at, lsn) = (self.at, self.next_lsn);
        let bytes = frame.finish(lsn, self.durable_lsn, 0, self.segment.header.salt);
        if let Err(error) = self.segment.file.write_all_at(bytes, at) {
            return Err(self.undo(at, &error));
        }
        self.meters.add(&self.meters.frames, 1);
        self.meters.add(&self.meters.written_bytes, len);
        if sync && !breakage::is(Breakage::SkipFrameSync) {
            self.sync("sync")?;
        }
        self.at += len;
        self.next_lsn += 1;
        self.last_lsn = lsn;
        self.witnessed = false;
        if sync {
            self.all_durable();
        } else {
            self.unsynced_since.get_or_insert_with(Instant::now);
        }
        Ok((
            Location {
                segment: self.segment.number(),
                frame: at as u32,
            },
            lsn,
        ))
    }

    /// Makes what is written durable, if it is not yet: one sync, which is also the first that says
    /// so. One that fails says nothing about the disk any more.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        if self.unsynced_since.is_some() {
            self.sync("sync")?;
            self.all_durable();
            self.witnessed = false;
        }
        Ok(())
    }

    /// A sync covered everything written so far.
    fn all_durable(&mut self) {
        self.durable_lsn = self.next_lsn - 1;
        self.unsynced_since = None;
    }

    /// Whether the disk has room for another segment, beside the one a frame of `frame_len` needs:
    /// what gives room back has to go on somewhere.
    fn leaves_room(&self, state: &State, frame_len: u64) -> bool {
        let Ok(free) = self.fs.available_space(&self.layout.segment_dir()) else {
            // Then making the segment says whether there is any.
            return true;
        };
        let ready = self.spares.readiness().bytes().0;
        let free = free.saturating_add(ready);
        let mut prologue = FrameBuilder::default();
        prologue.clear();
        state.prologue().for_each(|op| prologue.push(&op));
        let end = (SEGMENT_HEADER_BYTES + prologue.frame_len()) as u64;
        let room = Room {
            segment_bytes: self.segment_bytes,
            frame_len,
        };
        free >= capacity_for(end, room).max(ready) + self.segment_bytes
    }

    /// Writes an empty frame, unsynced, so that damage to the last acknowledged frame is seen as
    /// damage and not as a torn tail. Once per idle time; an idle log does not grow.
    pub(crate) fn witness(&mut self) -> Result<(), WriteError> {
        // What is not synced has nobody to vouch for it yet; it is flushed soon.
        if self.witnessed || self.unsynced_since.is_some() {
            return Ok(());
        }
        self.empty_frame(0)?;
        self.witnessed = true;
        Ok(())
    }

    /// Says that the log ends here on purpose, once everything before it is durable.
    pub(crate) fn stop(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        self.empty_frame(FLAG_CLEAN)?;
        self.sync("sync")
    }

    fn empty_frame(&mut self, flags: u16) -> Result<(), WriteError> {
        if self.at + (FRAME_HEADER_BYTES + SEAL_FRAME_BYTES) as u64 > self.segment.header.capacity {
            return Ok(());
        }
        let mut frame = FrameBuilder::default();
        frame.clear();
        let salt = self.segment.header.salt;
        let bytes = frame.finish(self.next_lsn, self.durable_lsn, flags, salt);
        let written = self.segment.file.write_all_at(bytes, self.at);
        written.map_err(|e| self.failed("write", &e))?;
        self.at += bytes.len() as u64;
        self.next_lsn += 1;
        self.meters
            .add(&self.meters.written_bytes, bytes.len() as u64);
        Ok(())
    }

    /// A write that failed for want of room is taken back: the frame's head is made zero, so that
    /// whatever else of it reached the file never verifies. Durably, before anybody is told that
    /// there was no room: what was refused must not be there after a power cut.
    fn undo(&mut self, at: u64, error: &io::Error) -> WriteError {
        if !is_no_space(error) {
            return self.failed("write", error);
        }
        let zeros = [0u8; FRAME_HEADER_BYTES];
        let undone = self.segment.file.write_all_at(&zeros, at);
        let undone = undone.and_then(|()| match breakage::is(Breakage::UndoUnsynced) {
            true => Ok(()),
            false => self.sync_data(),
        });
        match undone {
            Ok(()) => {
                // Frames before it that were not synced are now.
                if !breakage::is(Breakage::UndoUnsynced) {
                    self.all_durable();
                }
                WriteError::NoSpace
            }
            Err(again) => self.failed("undo a frame in", &again),
        }
    }

    fn failed(&self, doing: &str, error: &io::Error) -> WriteError {
        WriteError::Failed(at_path(doing, &self.segment.path, error))
    }

    fn sync(&self, doing: &str) -> Result<(), WriteError> {
        match self.sync_data() {
            Err(_) if breakage::is(Breakage::BelieveFailedSync) => Ok(()),
            synced => synced.map_err(|e| self.failed(doing, &e)),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let began = Instant::now();
        let synced = self.segment.file.sync_data();
        self.meters.synced(began.elapsed());
        synced
    }

    /// Goes on in a new segment with room for a frame of `frame_len`.
    ///
    /// The new segment is durable, name included, before the old one is sealed, and the seal is
    /// durable before any frame with operations goes into the new one. So a seal without a next
    /// segment is a missing file, and a next segment without a seal is a crash in between.
    fn roll(&mut self, state: &State, frame_len: u64) -> Result<Arc<Segment>, WriteError> {
        let old = self.segment.clone();
        // A witness, or frames acknowledged without it, may not be synced yet. The new segment's name is a claim that everything before
        // its seal is there: without this a cut could leave the name and take the witness.
        if self.durable_lsn + 1 < self.next_lsn && !breakage::is(Breakage::SkipWitnessSync) {
            self.sync("sync")?;
            self.all_durable();
        }
        let seal_lsn = self.next_lsn;
        let identity = Identity {
            engine_id: old.header.engine_id,
            number: old.header.number + 1,
            first_lsn: seal_lsn + 1,
            durable_lsn: self.durable_lsn,
        };
        let take = |capacity: u64| self.spares.take(capacity);
        let made = make_segment(
            &*self.fs,
            &self.layout,
            &identity,
            state,
            Room {
                segment_bytes: self.segment_bytes,
                frame_len,
            },
            &take,
        )?;
        let mut seal = FrameBuilder::default();
        seal.clear();
        seal.push(&Op::Seal {
            next_segment: identity.number,
        });
        let bytes = seal.finish(seal_lsn, self.durable_lsn, FLAG_SEAL, old.header.salt);
        let written = old.file.write_all_at(bytes, self.at);
        written.map_err(|e| self.failed("seal", &e))?;
        if !breakage::is(Breakage::SkipSealSync) {
            self.sync("sync the seal of")?;
        }
        // Known from here on to whoever sees the new segment; set once, so it was not before.
        let _ = old.seal.set(self.at);
        self.at = made.end;
        self.next_lsn = identity.first_lsn + 1;
        self.durable_lsn = identity.first_lsn;
        self.last_lsn = identity.first_lsn;
        self.unsynced_since = None;
        let written = bytes.len() as u64 + made.end;
        self.meters.add(&self.meters.written_bytes, written);
        self.segment = made.segment;
        Ok(self.segment.clone())
    }
}

/// What a new segment is called.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) engine_id: [u8; 16],
    pub(crate) number: u64,
    pub(crate) first_lsn: u64,
    pub(crate) durable_lsn: u64,
}

/// How large a new segment has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) segment_bytes: u64,
    /// The frame it is made for must fit, even where that makes it larger than the rest.
    pub(crate) frame_len: u64,
}

/// Capacity of a segment whose prologue ends at `end`.
fn capacity_for(end: u64, room: Room) -> u64 {
    let needed = end + room.frame_len + TAIL_ROOM;
    room.segment_bytes.max(with_relief_tail(needed))
}

pub(crate) struct Made {
    pub(crate) segment: Arc<Segment>,
    /// Position after the prologue.
    pub(crate) end: u64,
}

/// Makes a segment with its header and prologue, durable under its name.
pub(crate) fn make_segment(
    fs: &dyn FileSystem,
    layout: &Layout,
    identity: &Identity,
    state: &State,
    room: Room,
    take: &dyn Fn(u64) -> io::Result<Fresh>,
) -> Result<Made, WriteError> {
    let mut prologue = FrameBuilder::default();
    prologue.clear();
    for op in state.prologue() {
        prologue.push(&op);
    }
    let end = (SEGMENT_HEADER_BYTES + prologue.frame_len()) as u64;
    let capacity = capacity_for(end, room);
    if capacity > MAX_CAPACITY {
        return Err(WriteError::Failed(format!(
            "a segment of {capacity} bytes is too large"
        )));
    }
    let path = layout.segment_path(identity.first_lsn);
    let no_room = |path: &PathBuf, doing: &str, error: &io::Error| {
        if is_no_space(error) {
            WriteError::NoSpace
        } else {
            WriteError::Failed(at_path(doing, path, error))
        }
    };
    // Nothing has happened yet, so no failure here stops the log: a file that cannot be made, for
    // want of room, of descriptors or of anything else, is made later or not at all.
    let fresh = take(capacity).map_err(|error| {
        if !is_no_space(&error) {
            tracing::warn!(path = %path.display(), %error, "the next segment cannot be made");
        }
        WriteError::NoSpace
    })?;
    let mut salt = [0u8; 4];
    let failed = |doing: &str, e: io::Error| WriteError::Failed(at_path(doing, &path, &e));
    fs.random(&mut salt)
        .map_err(|e| failed("choose a salt for", e))?;
    let header = SegmentHeader {
        engine_id: identity.engine_id,
        number: identity.number,
        first_lsn: identity.first_lsn,
        salt: u32::from_le_bytes(salt),
        capacity: fresh.capacity,
        written_at: unix_ms(),
        writer: writer_name(),
    };
    let mut bytes = header.encode();
    let salt = header.salt;
    let frame = prologue.finish(
        identity.first_lsn,
        identity.durable_lsn,
        FLAG_PROLOGUE,
        salt,
    );
    bytes.extend_from_slice(frame);
    if let Err(error) = fresh.file.write_all_at(&bytes, 0) {
        let answer = no_room(&path, "write", &error);
        // It counts for nothing under its scratch name; removing it only gives the room back.
        let _ = fs.remove(&fresh.path);
        return Err(answer);
    }
    // File first, then its name, then the directory: a segment that can be seen is whole.
    if !breakage::is(Breakage::SkipSegmentSync) {
        fresh.file.sync_data().map_err(|e| failed("sync", e))?;
    }
    fs.rename(&fresh.path, &path)
        .map_err(|e| failed("rename", e))?;
    if !breakage::is(Breakage::SkipDirSync) {
        fs.sync_dir(&layout.segment_dir())
            .map_err(|e| failed("sync the directory of", e))?;
    }
    let segment = Arc::new(Segment::new(header, fresh.file, path));
    Ok(Made { segment, end })
}

/// Makes the first segment of a new log.
pub(crate) fn make_first_segment(
    fs: &dyn FileSystem,
    layout: &Layout,
    engine_id: [u8; 16],
    state: &State,
    segment_bytes: u64,
) -> Result<Made, WriteError> {
    let identity = Identity {
        engine_id,
        number: 1,
        first_lsn: 1,
        durable_lsn: 0,
    };
    // Small, because somebody waits for it to be written; the next one is made in the background.
    let room = Room {
        segment_bytes: segment_bytes.min(FIRST_SEGMENT_BYTES),
        frame_len: 0,
    };
    let take = |capacity| {
        let path = layout.scratch_path("first");
        // Left by an opening that was cut short; nothing else makes a file of this name.
        match fs.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => {
                let file = fs.create(&path)?;
                prepare(fs, path, file, capacity)
            }
        }
    };
    make_segment(fs, layout, &identity, state, room, &take)
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

//! Reading on past damage: what is lost, and what can still be read.
//!
//! [`walk`](crate::walk) stops at the first damage, because nothing may be *opened* after it. This
//! goes on, for whoever wants to know what there is to save: every frame vouches for itself with its
//! checksum, and every segment can be read on its own from its prologue. Nothing here opens a log,
//! and nothing here writes.

mod files;
mod holds;
mod model;
mod scan;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saguin_log_engine::format::{HeaderError, OpError, SegmentHeader};
use saguin_log_engine::storage::FileSystem;
use saguin_log_engine::{Layout, Segment};

use crate::checkpoint::{self, Checkpoint, Rejected};
use crate::error::{DamageKind, RecoverError};
use crate::stored::{Read, ReadFault, each_stored};

pub use model::{Holds, Kept, Model, Offsets, SalvagedChannel, Sequence};

/// More offsets than the segments that may be missing at the end of a log can have held: a segment
/// holds fewer than 2^32, so this covers the loss of 256 whole ones.
pub const OFFSETS_OF_A_LOST_END: u64 = 1 << 40;

/// What is wrong in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The bytes are not what was written, or not there.
    Damage(DamageKind),
    /// The system cannot read them; its words.
    Unreadable(String),
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Damage(kind) => kind.fmt(f),
            Cause::Unreadable(why) => write!(f, "it cannot be read: {why}"),
        }
    }
}

/// Which frames are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// None.
    None,
    /// From the first to the last, both included.
    Range(u64, u64),
    /// This one and all that followed, however many these were.
    From(u64),
    /// From the first to the last, both included, and all that followed, if any did.
    AtLeast(u64, u64),
    /// Those before this one.
    Before(u64),
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, or the directory of segments where a file is missing.
    pub path: PathBuf,
    /// Number of its segment, where that is known.
    pub segment: Option<u64>,
    /// Position of the first byte that is not what was written.
    pub at: u64,
    /// Position of the next byte that is, or of the end of what was to be read.
    pub until: u64,
    /// What is wrong.
    pub cause: Cause,
    /// What is lost by it.
    pub frames: Frames,
}

/// One segment, as far as it can be read.
#[derive(Debug)]
pub struct SalvagedSegment {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Frames that verify.
    pub frames: u64,
    /// The first and the last of them.
    pub lsns: Option<(u64, u64)>,
    /// It ends with the frame that seals it.
    pub sealed: bool,
}

/// What is left of a log.
#[derive(Debug)]
pub struct Salvage {
    /// The log's id.
    pub engine_id: [u8; 16],
    /// Its segments, by number.
    pub segments: Vec<SalvagedSegment>,
    /// The same segments, for reading records.
    pub handles: Vec<Arc<Segment>>,
    /// Files with a segment's name that were not read as part of the log.
    pub left_out: Vec<PathBuf>,
    /// Every damaged place, in the order of the log.
    pub findings: Vec<Finding>,
    /// What the readable frames add up to.
    pub model: Model,
    /// The newest checkpoint that holds: what it says was durable must be there.
    pub checkpoint: Option<Checkpoint>,
    /// Checkpoints that do not.
    pub rejected: Vec<Rejected>,
    /// The last frame that was read.
    pub last_lsn: u64,
    /// How many frames were read.
    pub frames: u64,
}

impl Salvage {
    /// Whether something here was written by a build this one does not understand: it is whole to
    /// that build, and must not be taken for damage.
    #[must_use]
    pub fn newer(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| {
            matches!(
                &finding.cause,
                Cause::Damage(
                    DamageKind::Header(HeaderError::Version { .. })
                        | DamageKind::Operation(OpError::UnknownKind { .. })
                )
            )
        })
    }

    /// Whether frames may be lost after the last one that is known.
    #[must_use]
    pub fn end_is_lost(&self) -> bool {
        let from = |f: &Finding| matches!(f.frames, Frames::From(_) | Frames::AtLeast(..));
        self.findings.iter().any(from)
    }

    /// Shows every record of a channel that can be read, at or above `from`, to `sink`, in offset
    /// order.
    ///
    /// # Errors
    /// [`ReadFault`] where a record that was read before cannot be read now.
    pub fn each_record(
        &self,
        channel: u32,
        from: u64,
        sink: &mut dyn FnMut(&Read<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadFault> {
        let Some(known) = self.model.channels.get(&channel) else {
            return Ok(());
        };
        let from = match known.kept {
            Kept::Sequence(_) => from.max(known.floor),
            Kept::Map(_) | Kept::Work(_) => from,
        };
        let mut runs = known.runs().into_iter();
        let live = |stored: &crate::stored::Stored<'_>| known.holds(stored);
        each_stored(&self.handles, channel, from, &mut runs, &live, sink)
    }

    /// The largest segment header that was read, by number.
    #[must_use]
    pub fn newest(&self) -> Option<&SegmentHeader> {
        self.handles.last().map(|segment| &segment.header)
    }
}

/// Reads what can be read of the log in `dir`.
///
/// # Errors
/// [`RecoverError::NoLog`] where no segment can be read at all; [`RecoverError::Io`] where the
/// directory cannot be listed.
pub fn salvage(fs: &dyn FileSystem, dir: &Path) -> Result<Salvage, RecoverError> {
    let layout = Layout::new(dir);
    // Before the segments: a log that is open elsewhere only grows meanwhile.
    let listed = checkpoint::list(fs, &layout)?;
    let files = files::find(fs, &layout)?;
    let (checkpoint, rejected) = listed.newest(fs, &files.engine_id);
    let mut salvage = scan::read(&layout, files, checkpoint.as_ref());
    (salvage.checkpoint, salvage.rejected) = (checkpoint, rejected);
    Ok(salvage)
}

//! Records read back from where they lie, one after another. Each frame is read again, verified and
//! dropped, so memory is bounded by the largest frame. Frames never change, so this is also true of
//! an open log.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saguin_log_engine::Segment;
use saguin_log_engine::format::{Op, RecordRef};
use saguin_log_engine::scan::{ScanError, Scanner};
use saguin_log_engine::state::Location;

/// A record as some operation stored it.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Its channel.
    pub channel: u32,
    /// Its offset.
    pub offset: u64,
    /// Of a map's entry.
    pub key: Option<&'a [u8]>,
    /// A map's entry that says that the key was deleted.
    pub deletion: bool,
    /// The record.
    pub record: RecordRef<'a>,
}

impl<'a> Stored<'a> {
    /// The record in an operation that stores one.
    #[must_use]
    pub fn of(op: &Op<'a>) -> Option<Stored<'a>> {
        let (channel, offset, key, record) = match *op {
            Op::Append {
                channel,
                offset,
                record,
            }
            | Op::Enqueue {
                channel,
                offset,
                record,
            }
            | Op::DeadLetter {
                channel,
                offset,
                record,
                ..
            }
            | Op::MoveRecord {
                channel,
                offset,
                record,
            }
            | Op::MoveJob {
                channel,
                offset,
                record,
                ..
            } => (channel, offset, None, record),
            Op::Set {
                channel,
                offset,
                key,
                record,
                ..
            }
            | Op::Remove {
                channel,
                offset,
                key,
                record,
                ..
            }
            | Op::MoveEntry {
                channel,
                offset,
                key,
                record,
                ..
            } => (channel, offset, Some(key), record),
            _ => return None,
        };
        Some(Stored {
            channel,
            offset,
            key,
            deletion: matches!(op, Op::Remove { .. } | Op::MoveEntry { deletion: true, .. }),
            record,
        })
    }
}

/// Consecutive records from one frame on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The frame of the first.
    pub at: Location,
    /// Offset of the last.
    pub last: u64,
}

/// A record that should be readable is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFault {
    /// The file.
    pub path: PathBuf,
    /// Position in it.
    pub at: u64,
    /// A sentence.
    pub why: String,
}

impl std::fmt::Display for ReadFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.path.display(), self.at, self.why)
    }
}

impl std::error::Error for ReadFault {}

pub(crate) fn fault(path: &Path, at: u64, why: &dyn std::fmt::Display) -> ReadFault {
    ReadFault {
        path: path.to_owned(),
        at,
        why: why.to_string(),
    }
}

/// Where a record was read.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The record.
    pub stored: Stored<'a>,
    /// The file.
    pub path: &'a Path,
    /// Position of its frame.
    pub position: u64,
    /// Number of its frame.
    pub lsn: u64,
}

/// Shows the records of `channel` that lie in `runs` (in offset order) at or above `from` and that
/// `live` accepts to `sink`, in offset order, until `sink` breaks.
///
/// # Errors
/// [`ReadFault`] where a frame of a run cannot be read and verified.
pub fn each_stored(
    segments: &[Arc<Segment>],
    channel: u32,
    from: u64,
    runs: &mut dyn Iterator<Item = Run>,
    live: &dyn Fn(&Stored<'_>) -> bool,
    sink: &mut dyn FnMut(&Read<'_>) -> ControlFlow<()>,
) -> Result<(), ReadFault> {
    let mut next = from;
    // What was moved lies in a later segment than what follows it, so any segment may be next.
    let mut open: Option<(&Segment, Scanner<'_>)> = None;
    for run in runs {
        if run.last < next {
            continue;
        }
        let (segment, scanner) = match &mut open {
            Some((segment, scanner)) if segment.number() == run.at.segment => (*segment, scanner),
            _ => {
                let found = segments.iter().find(|s| s.number() == run.at.segment);
                let Some(segment) = found else {
                    let why = format!(
                        "record {} should be in segment {}, which is not there",
                        run.last, run.at.segment
                    );
                    return Err(fault(Path::new(""), 0, &why));
                };
                let len = segment.file.len();
                let len = len.map_err(|e| fault(&segment.path, 0, &e))?;
                let end = len.min(segment.header.capacity);
                let scanner = Scanner::new(&*segment.file, segment.header.salt, 0, end);
                let (segment, scanner) = open.insert((segment, scanner));
                (*segment, scanner)
            }
        };
        let path = &segment.path;
        scanner.seek(run.at.frame.into());
        while next <= run.last {
            let at = scanner.position();
            let frame = scanner.next().map_err(|e| match &e {
                ScanError::Io { error, .. } => fault(path, at, error),
                ScanError::Frame { error, .. } => fault(path, at, error),
            })?;
            let Some((position, frame)) = frame else {
                let why = format!("record {} should be here and is not", run.last);
                return Err(fault(path, at, &why));
            };
            for op in frame.operations() {
                let op = op.map_err(|e| fault(path, at, &e))?;
                let Some(stored) = Stored::of(&op) else {
                    continue;
                };
                let offset = stored.offset;
                // A frame may hold records of the channel that another run accounts for.
                if stored.channel != channel || offset < next || offset > run.last {
                    continue;
                }
                if !live(&stored) {
                    continue;
                }
                next = offset + 1;
                let read = Read {
                    stored,
                    path,
                    position,
                    lsn: frame.header.lsn,
                };
                if sink(&read).is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

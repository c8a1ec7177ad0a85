//! A channel's live records, one after another. The state says which frames hold them; each frame
//! is read again, verified and dropped, so memory is bounded by the largest frame, and the walk
//! ends as soon as enough was seen. Frames never change, so this is also true of an open log.

use std::ops::ControlFlow;
use std::path::Path;

use saguin_log_engine::format::{Op, RecordRef};
use saguin_log_engine::scan::{ScanError, Scanner};
use saguin_log_engine::state::{Channel, Content, Location, WorkEntry};
use saguin_recovery::Walk;
use saguin_recovery::body::Body;

use crate::cli::Failure;

/// One live record and where it lies.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    pub(crate) offset: u64,
    /// Of a map's entry.
    pub(crate) key: Option<&'a [u8]>,
    /// A map's entry that says that the key was deleted.
    pub(crate) deletion: bool,
    /// Of an unresolved job.
    pub(crate) job: Option<WorkEntry>,
    pub(crate) record: RecordRef<'a>,
    pub(crate) path: &'a Path,
    /// Position of the frame that holds it.
    pub(crate) position: u64,
    pub(crate) lsn: u64,
}

/// Consecutive records from one frame on.
struct Run {
    at: Location,
    last: u64,
}

/// Shows every live record of the channel `id` at or above `from` to `sink`, in offset order.
pub(crate) fn each(
    walk: &Walk,
    id: u32,
    from: u64,
    sink: &mut dyn FnMut(&Live<'_>) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let Some(channel) = walk.state.channel(id) else {
        return Ok(());
    };
    let first = from.max(channel.numbers.floor);
    let mut next = first;
    let mut runs = runs(channel, first).peekable();
    for segment in &walk.segments {
        let number = segment.number();
        let len = segment.file.len();
        let len = len.map_err(|e| failed(&segment.path, 0, &e))?;
        let end = len.min(segment.header.capacity);
        let mut scanner = Scanner::new(&*segment.file, segment.header.salt, 0, end);
        while let Some(run) = runs.next_if(|run| run.at.segment == number) {
            if run.last < next {
                continue;
            }
            scanner.seek(run.at.frame.into());
            while next <= run.last {
                let at = scanner.position();
                let frame = scanner
                    .next()
                    .map_err(|e| scan_failed(&segment.path, at, &e))?;
                let Some((position, frame)) = frame else {
                    let why = format!("record {} should be here and is not", run.last);
                    return Err(failed(&segment.path, at, &why));
                };
                for op in frame.operations() {
                    let op = op.map_err(|e| failed(&segment.path, at, &e))?;
                    let Some(stored) = stored(&op) else { continue };
                    if stored.channel != id || stored.offset < next {
                        continue;
                    }
                    let Stored { offset, key, .. } = stored;
                    let Some(job) = job_if_live(channel, offset, key) else {
                        continue;
                    };
                    next = offset + 1;
                    let live = Live {
                        offset,
                        key,
                        deletion: stored.deletion,
                        job,
                        record: stored.record,
                        path: &segment.path,
                        position,
                        lsn: frame.header.lsn,
                    };
                    if sink(&live).is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }
    match runs.peek() {
        None => Ok(()),
        Some(run) => Err(Failure::Read(format!(
            "record {} should be in segment {}, which is not there",
            run.last, run.at.segment
        ))),
    }
}

fn runs(channel: &Channel, from: u64) -> Box<dyn Iterator<Item = Run> + '_> {
    let one = |offset, at| Run { at, last: offset };
    match &channel.content {
        Content::Sequence(index) => Box::new(index.from_offset(from).map(|anchor| Run {
            at: anchor.at,
            last: anchor.offset + u64::from(anchor.records.max(1)) - 1,
        })),
        Content::Map(index) => Box::new(
            index
                .from_offset(from)
                .map(move |(_, e)| one(e.offset, e.at)),
        ),
        Content::Work(index) => Box::new(
            index
                .iter()
                .filter(move |&(offset, _)| offset >= from)
                .map(move |(offset, entry)| one(offset, entry.at)),
        ),
    }
}

/// A record as some operation stored it.
struct Stored<'a> {
    channel: u32,
    offset: u64,
    key: Option<&'a [u8]>,
    deletion: bool,
    record: RecordRef<'a>,
}

fn stored<'a>(op: &Op<'a>) -> Option<Stored<'a>> {
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

/// The job an unresolved record is; `None` where a record of this offset and key is not live.
fn job_if_live(channel: &Channel, offset: u64, key: Option<&[u8]>) -> Option<Option<WorkEntry>> {
    match &channel.content {
        Content::Sequence(_) => (offset >= channel.numbers.floor).then_some(None),
        Content::Map(index) => {
            let entry = index.get(key?)?;
            (entry.offset == offset).then_some(None)
        }
        Content::Work(index) => index.get(offset).copied().map(Some),
    }
}

/// The channel of the record in `op`, where it is not a message this build can read.
pub(crate) fn unreadable(op: &Op<'_>) -> Option<u32> {
    let Stored {
        channel,
        key,
        record,
        ..
    } = stored(op)?;
    let decoded = Body::decode(record.body, key.unwrap_or_default());
    decoded.is_err().then_some(channel)
}

fn failed(path: &Path, at: u64, why: &dyn std::fmt::Display) -> Failure {
    Failure::Read(format!("{} at {at}: {why}", path.display()))
}

fn scan_failed(path: &Path, at: u64, error: &ScanError) -> Failure {
    match error {
        ScanError::Io { error, .. } => failed(path, at, error),
        ScanError::Frame { error, .. } => failed(path, at, error),
    }
}

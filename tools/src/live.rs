//! A channel's live records, one after another. The state says which frames hold them; recovery reads
//! these again. Frames never change while their segment belongs to the log. But a broker that has it open
//! lets go of segments, and makes a new one of the file: what was alive in it lies elsewhere then, or is
//! removed, so the log is read again.

use std::ops::ControlFlow;
use std::path::Path;

use saguin_log_engine::format::{Op, RecordRef};
use saguin_log_engine::state::{Channel, Content, WorkEntry};
use saguin_recovery::Walk;
use saguin_recovery::body::Body;
use saguin_recovery::salvage::{Kept, Salvage};
use saguin_recovery::stored::{Read, ReadFault, Run, Stored, each_stored};

use crate::cli::Failure;
use crate::source::Log;

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

impl<'a> Live<'a> {
    fn new(read: &Read<'a>, job: Option<WorkEntry>) -> Live<'a> {
        let stored = read.stored;
        Live {
            offset: stored.offset,
            key: stored.key,
            deletion: stored.deletion,
            job,
            record: stored.record,
            path: read.path,
            position: read.position,
            lsn: read.lsn,
        }
    }
}

/// Readings of a log in which nothing more could be shown before it is given up.
const READINGS: usize = 5;

/// Shows every live record of the channel `id` at or above `from` to `sink`, in offset order.
pub(crate) fn each(
    walk: &Walk,
    id: u32,
    from: u64,
    sink: &mut dyn FnMut(&Live<'_>) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let mut next = from;
    let mut left = READINGS;
    let mut again: Option<Walk> = None;
    loop {
        let before = next;
        let walk = again.as_ref().unwrap_or(walk);
        let mut show = |live: &Live<'_>| {
            next = live.offset + 1;
            sink(live)
        };
        let Err(fault) = pass(walk, id, before, &mut show) else {
            return Ok(());
        };
        left = if next > before { READINGS } else { left - 1 };
        let dir = fault.path.parent().and_then(Path::parent);
        let Some(dir) = dir.filter(|_| left > 0 && !fault.path.exists()) else {
            return Err(Failure::Read(fault.to_string()));
        };
        let log = Log::read(dir)?;
        // Where nothing was shown or asked for by its offset, the oldest there is is as good a beginning.
        if next > from || from > 1 {
            removed_meanwhile(dir, &log.walk, id, next)?;
        }
        again = Some(log.walk);
    }
}

/// What was removed while it was read is never passed over as if it had not been there (invariant 1).
fn removed_meanwhile(dir: &Path, walk: &Walk, id: u32, next: u64) -> Result<(), Failure> {
    let channel = walk.state.channel(id);
    let floor = channel.map_or(0, |channel| channel.numbers.floor);
    if next >= floor {
        return Ok(());
    }
    Err(Failure::Read(format!(
        "{}: records {next} to {} were removed while they were read; ask again, or ask a copy of a snapshot",
        dir.display(),
        floor - 1
    )))
}

fn pass(
    walk: &Walk,
    id: u32,
    from: u64,
    sink: &mut dyn FnMut(&Live<'_>) -> ControlFlow<()>,
) -> Result<(), ReadFault> {
    let Some(channel) = walk.state.channel(id) else {
        return Ok(());
    };
    let first = from.max(channel.numbers.floor);
    let mut runs = runs(channel, first);
    let live = |stored: &Stored<'_>| job_if_live(channel, stored).is_some();
    let mut show = |read: &Read<'_>| {
        let job = job_if_live(channel, &read.stored).flatten();
        sink(&Live::new(read, job))
    };
    each_stored(&walk.segments, id, first, &mut *runs, &live, &mut show)
}

/// The same of a damaged log: every record that can be read.
pub(crate) fn each_salvaged(
    salvage: &Salvage,
    id: u32,
    sink: &mut dyn FnMut(&Live<'_>) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let jobs = salvage.model.channels.get(&id).map(|c| &c.kept);
    let mut show = |read: &Read<'_>| {
        let job = match jobs {
            Some(Kept::Work(jobs)) => jobs.get(&read.stored.offset).copied(),
            _ => None,
        };
        sink(&Live::new(read, job))
    };
    salvage
        .each_record(id, 0, &mut show)
        .map_err(|fault| Failure::Read(fault.to_string()))
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
                .from_offset(from)
                .map(move |(offset, entry)| one(offset, entry.at)),
        ),
    }
}

/// The job an unresolved record is; `None` where a record of this offset and key is not live.
fn job_if_live(channel: &Channel, stored: &Stored<'_>) -> Option<Option<WorkEntry>> {
    match &channel.content {
        Content::Sequence(_) => (stored.offset >= channel.numbers.floor).then_some(None),
        Content::Map(index) => {
            let entry = index.get(stored.key?)?;
            (entry.offset == stored.offset).then_some(None)
        }
        Content::Work(index) => index.get(stored.offset).copied().map(Some),
    }
}

/// The channel of the record in `op`, where it is not a message this build can read.
pub(crate) fn unreadable(op: &Op<'_>) -> Option<u32> {
    let stored = Stored::of(op)?;
    let decoded = Body::decode(stored.record.body, stored.key.unwrap_or_default());
    decoded.is_err().then_some(stored.channel)
}

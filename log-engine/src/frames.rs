//! Records out of frames: every frame that is read is verified, every time it is read.

use std::ops::Range;

use bytes::Bytes;

use crate::batch::ChannelId;
use crate::engine::Shared;
use crate::format::{Op, OpError, Ops, RecordRef};
use crate::read::ReadError;
use crate::resume::{MAX_REST_BYTES, OpenFrame, OpenFrames, Rest};
use crate::scan::{ReadAhead, ScanError, Scanner};
use crate::segment::{Segment, find};
use crate::state::{Anchor, HoldEntry, Location, MapEntry};
use crate::sync::Arc;
use crate::tail::StoredRecord;

impl Shared {
    pub(crate) fn frames(&self) -> Frames {
        Frames {
            segments: self.segments.snapshot(),
            opened: Arc::clone(&self.opened),
            ahead: None,
            rest: None,
            open: None,
        }
    }
}

/// Reads frames of a snapshot of the segments.
pub(crate) struct Frames {
    segments: Arc<Vec<Arc<Segment>>>,
    opened: Arc<OpenFrames>,
    /// What the last run read past its end, and in which segment: the next run usually begins there.
    ahead: Option<(u32, ReadAhead)>,
    /// Where the last run, or a reader before, stopped in the middle of a frame.
    pub(crate) rest: Option<Rest>,
    /// The frame the last single record was read from.
    open: Option<OpenFrame>,
}

impl Frames {
    fn segment(&self, at: Location) -> Result<Arc<Segment>, ReadError> {
        find(&self.segments, at.segment)
            .cloned()
            .ok_or_else(|| ReadError::Damaged {
                path: format!("segment {}", at.segment).into(),
                what: "it is not open".to_owned(),
            })
    }

    /// Hands the records of one run to `each`, in order, until it answers false; whether it never
    /// did. A run that ends early is damage: the index was built from these very frames.
    pub(crate) fn run(
        &mut self,
        anchor: &Anchor,
        channel: ChannelId,
        each: &mut dyn FnMut(u64, &RecordRef<'_>) -> bool,
    ) -> Result<bool, ReadError> {
        let segment = self.segment(anchor.at)?;
        let mut scanner = scanner(&segment, anchor.at);
        if let Some((_, ahead)) = self.ahead.take_if(|(of, _)| *of == anchor.at.segment) {
            scanner.go_on(ahead);
        }
        let mut wanted = anchor.offset..anchor.end();
        let here = |rest: &Rest| rest.segment == anchor.at.segment && wanted.contains(&rest.offset);
        if let Some(rest) = self.rest.take().filter(here) {
            wanted.start = rest.offset;
            let ops = Ops::resume(&rest.operations, rest.left);
            let taken = take_run(ops, channel, &mut wanted, each)
                .map_err(|e| damaged_at(&segment, rest.next_frame, &e.to_string()))?;
            if let Some((bytes, left)) = taken.rest {
                let operations = rest.operations.slice_ref(bytes);
                self.rest = Some(Rest {
                    offset: wanted.start,
                    operations,
                    left,
                    ..rest
                });
            }
            if taken.stopped {
                return Ok(false);
            }
            scanner.seek(rest.next_frame);
        }
        while !wanted.is_empty() {
            let Some((at, frame)) = scanner.next().map_err(|e| damaged(&segment, &e))? else {
                break;
            };
            let taken = take_run(frame.operations(), channel, &mut wanted, each)
                .map_err(|e| damaged_at(&segment, at, &e.to_string()))?;
            if taken.stopped {
                let rest = taken.rest.filter(|(b, _)| b.len() <= MAX_REST_BYTES);
                self.rest = rest.map(|(bytes, left)| Rest {
                    segment: anchor.at.segment,
                    offset: wanted.start,
                    operations: Bytes::copy_from_slice(bytes),
                    left,
                    next_frame: at + frame.header.frame_len(),
                });
                return Ok(false);
            }
        }
        if !wanted.is_empty() {
            let what = format!(
                "the record at offset {} is not where it was written",
                wanted.start
            );
            return Err(damaged_at(&segment, u64::from(anchor.at.frame), &what));
        }
        self.ahead = Some((anchor.at.segment, scanner.into_ahead()));
        Ok(true)
    }

    pub(crate) fn entry(
        &mut self,
        channel: ChannelId,
        key: &Bytes,
        entry: &MapEntry,
    ) -> Result<StoredRecord, ReadError> {
        self.one(entry.at, channel, entry.offset, key, entry.deletion)
    }

    /// A held record. One frame may hold, drop and hold again under one key: the last counts.
    pub(crate) fn hold(
        &mut self,
        key: &[u8],
        entry: &HoldEntry,
    ) -> Result<StoredRecord, ReadError> {
        let segment = self.segment(entry.at)?;
        let mut scanner = scanner(&segment, entry.at);
        let mut found = None;
        if let Some((at, frame)) = scanner.next().map_err(|e| damaged(&segment, &e))? {
            for op in frame.operations() {
                match op.map_err(|e| damaged_at(&segment, at, &e.to_string()))? {
                    Op::Hold { key: k, record } | Op::MoveHold { key: k, record } if k == key => {
                        let key = Bytes::copy_from_slice(key);
                        found = Some(stored(0, &record, key, false));
                    }
                    _ => {}
                }
            }
        }
        found.ok_or_else(|| {
            let what = format!("what is held under {} is not there", key.escape_ascii());
            damaged_at(&segment, u64::from(entry.at.frame), &what)
        })
    }

    /// One record out of one frame.
    pub(crate) fn one(
        &mut self,
        at: Location,
        channel: ChannelId,
        offset: u64,
        key: &Bytes,
        deletion: bool,
    ) -> Result<StoredRecord, ReadError> {
        let segment = self.segment(at)?;
        let mut pick = |operations: &mut Ops<'_>| -> Result<_, OpError> {
            for op in operations {
                let Some((c, o, record)) = single_record(&op?) else {
                    continue;
                };
                if (c, o) == (channel.0, offset) {
                    return Ok(Some(stored(offset, &record, key.clone(), deletion)));
                }
            }
            Ok(None)
        };
        let is_damaged = |e: OpError| damaged_at(&segment, u64::from(at.frame), &e.to_string());
        if self.open.as_ref().is_none_or(|frame| frame.at != at) {
            self.keep_open();
            self.open = self.opened.take(at);
        }
        if let Some(frame) = &mut self.open
            && let Some(found) = frame.find(&mut pick).map_err(is_damaged)?
        {
            return Ok(found);
        }
        let mut scanner = scanner(&segment, at);
        if let Some((_, frame)) = scanner.next().map_err(|e| damaged(&segment, &e))? {
            self.open = OpenFrame::new(at, frame.operations());
            let found = match &mut self.open {
                Some(open) => open.find(&mut pick),
                None => pick(&mut frame.operations()),
            };
            if let Some(found) = found.map_err(is_damaged)? {
                return Ok(found);
            }
        }
        let what = format!("the record at offset {offset} is not where it was written");
        Err(damaged_at(&segment, u64::from(at.frame), &what))
    }

    fn keep_open(&mut self) {
        if let Some(frame) = self.open.take() {
            self.opened.put(frame);
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.keep_open();
    }
}

/// The record of an operation that records are read from one at a time: its channel and offset.
fn single_record<'a>(op: &Op<'a>) -> Option<(u32, u64, RecordRef<'a>)> {
    match *op {
        Op::Set {
            channel,
            offset,
            record,
            ..
        }
        | Op::Remove {
            channel,
            offset,
            record,
            ..
        }
        | Op::Enqueue {
            channel,
            offset,
            record,
        }
        | Op::MoveEntry {
            channel,
            offset,
            record,
            ..
        }
        | Op::MoveJob {
            channel,
            offset,
            record,
            ..
        } => Some((channel, offset, record)),
        _ => None,
    }
}

/// How far a frame's operations were taken.
struct Taken<'f> {
    /// Whoever takes the records wants no more.
    stopped: bool,
    /// The operations from the first on that was not taken, where there are any.
    rest: Option<(&'f [u8], u16)>,
}

/// Hands the records of a run that lie in one frame to `each`. The frame also holds records of the
/// runs before and after it, and of other channels.
fn take_run<'f>(
    mut ops: Ops<'f>,
    channel: ChannelId,
    wanted: &mut Range<u64>,
    each: &mut dyn FnMut(u64, &RecordRef<'_>) -> bool,
) -> Result<Taken<'f>, OpError> {
    while !wanted.is_empty() {
        let place = ops.place();
        let Some(op) = ops.next() else {
            return Ok(Taken {
                stopped: false,
                rest: None,
            });
        };
        let Some((offset, record)) = sequence_record(&op?, channel) else {
            continue;
        };
        if offset != wanted.start {
            continue;
        }
        if !each(offset, &record) {
            return Ok(Taken {
                stopped: true,
                rest: Some(place),
            });
        }
        wanted.start += 1;
    }
    let rest = Some(ops.place()).filter(|(_, left)| *left > 0);
    Ok(Taken {
        stopped: false,
        rest,
    })
}

fn scanner(segment: &Segment, at: Location) -> Scanner<'_> {
    let header = &segment.header;
    Scanner::new(
        &*segment.file,
        header.salt,
        u64::from(at.frame),
        header.capacity,
    )
}

fn damaged(segment: &Segment, error: &ScanError) -> ReadError {
    ReadError::Damaged {
        path: segment.path.clone(),
        what: error.to_string(),
    }
}

fn damaged_at(segment: &Segment, at: u64, what: &str) -> ReadError {
    ReadError::Damaged {
        path: segment.path.clone(),
        what: format!("at {at}: {what}"),
    }
}

/// The record an operation adds to a sequence.
fn sequence_record<'a>(op: &Op<'a>, channel: ChannelId) -> Option<(u64, RecordRef<'a>)> {
    match *op {
        Op::Append {
            channel: c,
            offset,
            record,
        }
        | Op::MoveRecord {
            channel: c,
            offset,
            record,
        }
        | Op::DeadLetter {
            channel: c,
            offset,
            record,
            ..
        } if c == channel.0 => Some((offset, record)),
        _ => None,
    }
}

/// Copies a record out of the buffer it was read into: a slice would pin all of it.
fn stored(offset: u64, record: &RecordRef<'_>, key: Bytes, deletion: bool) -> StoredRecord {
    let RecordRef {
        timestamp,
        size,
        body,
    } = *record;
    StoredRecord {
        offset,
        timestamp,
        size,
        key,
        deletion,
        body: Bytes::copy_from_slice(body),
    }
}

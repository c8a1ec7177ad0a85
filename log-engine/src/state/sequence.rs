//! Where the records of an append log lie, without an entry per record.
//!
//! An [`Anchor`] stands for a run of consecutive records: it ends after [`ANCHOR_RECORDS`] records,
//! at a segment's end, or once the log has grown by [`ANCHOR_SPAN_BYTES`] since the run began. So a
//! busy log costs an anchor per 64 records or 64 KiB, and a record of a quiet one, far from its
//! neighbours, has an anchor of its own: no read walks more than that span to find a record.

use std::collections::VecDeque;

use super::Location;
use crate::format::RecordRef;

/// Most records one anchor stands for, unless one frame holds more.
pub const ANCHOR_RECORDS: u32 = 64;
/// Most bytes of log between the first and the last frame of one anchor's run.
pub const ANCHOR_SPAN_BYTES: u32 = 64 << 10;

/// A run of consecutive records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Offset of the run's first record.
    pub offset: u64,
    /// Newest timestamp in the run; a record without one counts as newer than any, because it is
    /// never too old.
    pub newest: u64,
    /// Counted size of the run, in bytes.
    pub bytes: u64,
    /// Frame of the run's first record.
    pub at: Location,
    /// Records in the run.
    pub records: u32,
}

impl Anchor {
    /// The offset after the run's last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.records)
    }

    /// The run without what lies below the floor.
    #[must_use]
    pub fn from_floor(&self, floor: u64) -> Anchor {
        let below = floor
            .saturating_sub(self.offset)
            .min(u64::from(self.records));
        Anchor {
            offset: self.offset + below,
            records: self.records - below as u32,
            ..*self
        }
    }
}

/// The anchors of one channel, oldest first.
#[derive(Debug, Default)]
pub struct SequenceIndex {
    anchors: VecDeque<Anchor>,
}

impl SequenceIndex {
    pub(super) fn push(&mut self, offset: u64, record: &RecordRef<'_>, at: Location) {
        let newest = record.timestamp.unwrap_or(u64::MAX);
        if let Some(last) = self.anchors.back_mut() {
            let follows = last.offset + u64::from(last.records) == offset;
            let near = last.at.segment == at.segment
                && at.frame - last.at.frame <= ANCHOR_SPAN_BYTES
                && last.records < ANCHOR_RECORDS;
            if follows && (near || last.at == at) {
                last.newest = last.newest.max(newest);
                last.bytes += record.size;
                last.records += 1;
                return;
            }
        }
        self.anchors.push_back(Anchor {
            offset,
            newest,
            bytes: record.size,
            at,
            records: 1,
        });
    }

    /// A record was stated again elsewhere. Records of a run are moved in order and all of them in
    /// one frame, so the run shrinks from its front until it is gone.
    pub(super) fn moved(&mut self, offset: u64, record: &RecordRef<'_>, at: Location) {
        let after = self.anchors.partition_point(|a| a.offset <= offset);
        let mut place = after;
        if let Some(old) = after.checked_sub(1).and_then(|i| self.anchors.get_mut(i)) {
            let end = old.offset + u64::from(old.records);
            if offset < end {
                // What of it lies below this record was moved already or is below the floor.
                old.records = (end - offset - 1) as u32;
                old.offset = offset + 1;
                old.bytes = old.bytes.saturating_sub(record.size);
                place = after - 1;
                if old.records == 0 {
                    self.anchors.remove(place);
                }
            }
        }
        let newest = record.timestamp.unwrap_or(u64::MAX);
        if let Some(before) = place.checked_sub(1).and_then(|i| self.anchors.get_mut(i))
            && before.at == at
            && before.offset + u64::from(before.records) == offset
        {
            before.newest = before.newest.max(newest);
            before.bytes += record.size;
            before.records += 1;
            return;
        }
        let run = Anchor {
            offset,
            newest,
            bytes: record.size,
            at,
            records: 1,
        };
        self.anchors.insert(place, run);
    }

    /// Adds a run that a footer names. A later place of a record is the one that counts: what was
    /// known of the same records goes, but for those before them, which are below the floor.
    pub(super) fn place(&mut self, run: Anchor) {
        let mut from = self.anchors.partition_point(|a| a.end() <= run.offset);
        if let Some(old) = self.anchors.get_mut(from).filter(|a| a.offset < run.offset) {
            old.records = (run.offset - old.offset) as u32;
            from += 1;
        }
        let mut to = from;
        while let Some(old) = self.anchors.get_mut(to).filter(|a| a.offset < run.end()) {
            if old.end() > run.end() {
                old.records = (old.end() - run.end()) as u32;
                old.offset = run.end();
                break;
            }
            to += 1;
        }
        self.anchors.drain(from..to);
        self.anchors.insert(from, run);
    }

    /// All of them.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Anchor> {
        self.anchors.iter()
    }

    /// How many records at or above `floor` the runs stand for.
    pub(super) fn count(&self, floor: u64) -> u64 {
        let runs = self.from_offset(floor).map(|a| a.from_floor(floor));
        runs.map(|a| u64::from(a.records)).sum()
    }

    /// Whether two indexes name the same records in the same segments, at or above a floor. How
    /// records are grouped into runs may differ.
    pub(super) fn same_places(&self, other: &SequenceIndex, floor: u64) -> bool {
        let places = |index: &SequenceIndex| {
            let mut places: Vec<(u64, u64, u32)> = Vec::new();
            for run in index.from_offset(floor).map(|a| a.from_floor(floor)) {
                match places.last_mut() {
                    Some(last) if last.1 == run.offset && last.2 == run.at.segment => {
                        last.1 = run.end();
                    }
                    _ if run.records > 0 => places.push((run.offset, run.end(), run.at.segment)),
                    _ => {}
                }
            }
            places
        };
        places(self) == places(other)
    }

    /// Whether a record lies in a segment.
    pub(super) fn lies_in(&self, segment: u32) -> bool {
        // Moved runs may lie anywhere, so all are asked; there are few.
        self.anchors.iter().any(|a| a.at.segment == segment)
    }

    /// The runs in a segment.
    pub fn in_segment(&self, segment: u32) -> impl Iterator<Item = &Anchor> {
        self.anchors.iter().filter(move |a| a.at.segment == segment)
    }

    /// Drops the runs that lie wholly below `floor`; the first one left may begin below it.
    pub(super) fn trim(&mut self, floor: u64) {
        while self
            .anchors
            .front()
            .is_some_and(|a| a.offset + u64::from(a.records) <= floor)
        {
            self.anchors.pop_front();
        }
    }

    /// The runs with a record at or above `offset`. Offsets may have gaps: a run that ends before
    /// `offset` is none of them, or a reader that stands in a gap would be told that it is caught up.
    pub fn from_offset(&self, offset: u64) -> impl Iterator<Item = &Anchor> {
        let first = self
            .anchors
            .partition_point(|a| a.offset + u64::from(a.records) <= offset);
        self.anchors.range(first..)
    }

    /// The runs with a record at or after `unix_ms`, oldest first. Clocks step back, so these need
    /// not be the last ones.
    pub fn since(&self, unix_ms: u64) -> impl Iterator<Item = &Anchor> {
        self.anchors.iter().filter(move |a| a.newest >= unix_ms)
    }

    /// How many anchors there are.
    #[must_use]
    pub fn anchors(&self) -> usize {
        self.anchors.len()
    }
}

//! Where readers stopped in the middle of a frame.
//!
//! A frame under load holds thousands of records, and a consumer takes a few dozen at a time: without
//! this, each of its reads would verify and decode the whole frame from its beginning. What is left of
//! a frame that was verified is kept for whoever goes on at the very offset where somebody stopped.
//!
//! Jobs and values are asked for one at a time, mostly in the order they were written in: a frame that
//! one of them was read from is kept for the next.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::batch::ChannelId;
use crate::format::Ops;
use crate::state::Location;
use crate::sync::{Mutex, lock};

/// Readers that are remembered; the oldest is forgotten, and reads its frame again.
const MAX_READERS: usize = 16;
/// A longer rest is not kept: frames that long hold few records.
pub(crate) const MAX_REST_BYTES: usize = 1 << 20;

/// What of a frame comes after the records that were read.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    /// The frame's segment.
    pub(crate) segment: u32,
    /// Offset of the next record of the channel that was read.
    pub(crate) offset: u64,
    /// The operations from that record on, verified.
    pub(crate) operations: Bytes,
    /// How many there are.
    pub(crate) left: u16,
    /// Position of the frame after this one.
    pub(crate) next_frame: u64,
}

/// The rests of an open log, at most 16 MiB.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    kept: Mutex<VecDeque<(ChannelId, Rest)>>,
}

impl Rests {
    /// What somebody left who would go on at `offset`.
    pub(crate) fn take(&self, channel: ChannelId, offset: u64) -> Option<Rest> {
        let mut kept = lock(&self.kept);
        let at = kept
            .iter()
            .position(|(of, rest)| *of == channel && rest.offset == offset)?;
        kept.remove(at).map(|(_, rest)| rest)
    }

    pub(crate) fn put(&self, channel: ChannelId, rest: Rest) {
        let mut kept = lock(&self.kept);
        if kept.len() == MAX_READERS {
            kept.pop_front();
        }
        kept.push_back((channel, rest));
    }
}

/// Frames that are kept open; the oldest is forgotten, and read and verified again.
const MAX_OPEN_FRAMES: usize = 8;

/// A verified frame that single records are read from.
#[derive(Clone, Debug)]
pub(crate) struct OpenFrame {
    /// Where it lies. A frame is never changed, and a segment's number never given again.
    pub(crate) at: Location,
    /// Its operations, at most [`MAX_REST_BYTES`].
    operations: Bytes,
    count: u16,
    /// What comes after the last record that was found: the next one wanted is mostly there.
    place: (Bytes, u16),
}

impl OpenFrame {
    /// The frame at `at` whose operations were verified; `None` where it is too long to be kept.
    pub(crate) fn new(at: Location, operations: Ops<'_>) -> Option<OpenFrame> {
        let (bytes, count) = operations.place();
        (bytes.len() <= MAX_REST_BYTES).then(|| {
            let operations = Bytes::copy_from_slice(bytes);
            OpenFrame {
                at,
                place: (operations.clone(), count),
                operations,
                count,
            }
        })
    }

    /// The first thing `pick` finds, from where it was found last time on, else from the beginning;
    /// an error of the operations ends the search.
    pub(crate) fn find<T, E>(
        &mut self,
        mut pick: impl FnMut(&mut Ops<'_>) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let beginning = (self.operations.clone(), self.count);
        for (bytes, left) in [self.place.clone(), beginning] {
            let mut operations = Ops::resume(&bytes, left);
            if let Some(found) = pick(&mut operations)? {
                let (rest, left) = operations.place();
                self.place = (bytes.slice_ref(rest), left);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The frames of an open log that single records were read from last, at most 8 MiB.
#[derive(Debug, Default)]
pub(crate) struct OpenFrames {
    kept: Mutex<VecDeque<OpenFrame>>,
}

impl OpenFrames {
    /// The frame at a place, if it is kept.
    pub(crate) fn take(&self, at: Location) -> Option<OpenFrame> {
        let mut kept = lock(&self.kept);
        let place = kept.iter().position(|frame| frame.at == at)?;
        kept.remove(place)
    }

    pub(crate) fn put(&self, frame: OpenFrame) {
        let mut kept = lock(&self.kept);
        if kept.len() == MAX_OPEN_FRAMES {
            kept.pop_front();
        }
        kept.push_back(frame);
    }
}

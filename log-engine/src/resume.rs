//! Where readers stopped in the middle of a frame.
//!
//! A frame under load holds thousands of records, and a consumer takes a few dozen at a time: without
//! this, each of its reads would verify and decode the whole frame from its beginning. What is left of
//! a frame that was verified is kept for whoever goes on at the very offset where somebody stopped.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::batch::ChannelId;
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

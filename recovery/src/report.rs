//! What a directory holds, for people.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use saguin_log_engine::Segment;
use saguin_log_engine::format::{Footer, Kind};
use saguin_log_engine::state::State;

use crate::checkpoint::{Rejected, footer};
use crate::walk::{Ending, Walk, hex};

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Number, from 1.
    pub number: u64,
    /// File.
    pub path: PathBuf,
    /// First and last LSN in it.
    pub first_lsn: u64,
    /// See `first_lsn`.
    pub last_lsn: u64,
    /// Frames in it.
    pub frames: u64,
    /// Operations in them.
    pub operations: u64,
    /// Position after the last frame, in bytes.
    pub end: u64,
    /// Bytes it may hold.
    pub capacity: u64,
    /// It ends with the frame that seals it.
    pub sealed: bool,
    /// Its frames were read and verified. Where not, a checkpoint and its footer speak for it, and
    /// `frames` and `operations` are zero.
    pub read: bool,
    /// Its footer.
    pub footer: FooterReport,
    /// The build that made it.
    pub writer: String,
    /// When it was made, Unix milliseconds.
    pub written_at: u64,
}

impl SegmentReport {
    pub(crate) fn new(segment: &Segment) -> SegmentReport {
        let header = &segment.header;
        SegmentReport {
            number: header.number,
            path: segment.path.clone(),
            first_lsn: header.first_lsn,
            last_lsn: header.first_lsn.saturating_sub(1),
            frames: 0,
            operations: 0,
            end: 0,
            capacity: header.capacity,
            sealed: false,
            read: true,
            footer: FooterReport::Missing,
            writer: String::from_utf8_lossy(&header.writer)
                .trim_end_matches('\0')
                .to_owned(),
            written_at: header.written_at,
        }
    }
}

impl SegmentReport {
    /// Of a segment that is not read: it is sealed, or it would be.
    pub(crate) fn unread(segment: &Segment, next: &Segment) -> SegmentReport {
        SegmentReport {
            sealed: true,
            read: false,
            last_lsn: next.header.first_lsn.saturating_sub(1),
            ..SegmentReport::new(segment)
        }
    }

    /// Looks at the segment's footer; what it says, if it holds.
    pub(crate) fn note_footer(&mut self, segment: &Segment) -> Option<Footer> {
        let missing = matches!(segment.file.len(), Ok(len) if len <= segment.header.capacity);
        let footer = match footer(segment) {
            _ if missing => return None,
            Ok(footer) => footer,
            Err(why) => {
                self.footer = FooterReport::Bad(why);
                return None;
            }
        };
        let bytes = segment.file.len().unwrap_or_default();
        let bytes = bytes.saturating_sub(segment.header.capacity);
        segment.footer.store(bytes, Relaxed);
        self.footer = FooterReport::Good;
        Some(footer)
    }
}

/// The footer of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FooterReport {
    /// There is none: the segment is not sealed, or was sealed a moment before the end.
    Missing,
    /// It holds.
    Good,
    /// It does not, for this reason; it is written again from the frames.
    Bad(String),
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: Kind,
    /// Offset the next record takes.
    pub next: u64,
    /// Oldest readable offset.
    pub floor: u64,
    /// Live records.
    pub count: u64,
    /// Their counted size, in bytes.
    pub bytes: u64,
}

/// A whole directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The log's id.
    pub engine_id: String,
    /// Segments, by number.
    pub segments: Vec<SegmentReport>,
    /// Channels, by id.
    pub channels: Vec<ChannelReport>,
    /// Entries of the keyspace.
    pub keys: usize,
    /// The last frame.
    pub last_lsn: u64,
    /// How the log ends.
    pub ending: Ending,
    /// A crash in the middle of a roll was found: no frame is lost by it.
    pub roll_cut_short: bool,
    /// Files that are no part of the log.
    pub others: Vec<PathBuf>,
    /// The newest checkpoint that holds, and the LSN it reaches.
    pub checkpoint: Option<(PathBuf, u64)>,
    /// Checkpoints that do not hold. Nothing is lost by them.
    pub rejected: Vec<Rejected>,
    /// What the newest checkpoint or a footer says otherwise than the frames, though its checksum
    /// holds: a defect. Seen by inspecting only.
    pub contradiction: Option<String>,
}

impl Report {
    pub(crate) fn new(walk: &Walk) -> Report {
        let id = walk
            .segments
            .first()
            .map(|s| s.header.engine_id)
            .unwrap_or_default();
        Report {
            engine_id: hex(&id),
            segments: walk.reports.clone(),
            channels: channels(&walk.state),
            keys: walk.state.keyspace().len(),
            last_lsn: walk.last_lsn,
            ending: walk.ending.clone(),
            roll_cut_short: walk.unsealed.is_some(),
            others: walk.others.clone(),
            checkpoint: walk
                .checkpoint
                .as_ref()
                .map(|c| (c.path.clone(), c.trailer.reaches)),
            rejected: walk.rejected.clone(),
            contradiction: None,
        }
    }
}

fn channels(state: &State) -> Vec<ChannelReport> {
    let report = |(id, channel): (u32, &saguin_log_engine::state::Channel)| ChannelReport {
        id,
        name: String::from_utf8_lossy(&channel.name).into_owned(),
        kind: channel.kind,
        next: channel.numbers.next,
        floor: channel.numbers.floor,
        count: channel.numbers.count,
        bytes: channel.numbers.bytes,
    };
    state.channels().map(report).collect()
}

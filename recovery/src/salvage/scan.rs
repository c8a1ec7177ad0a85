//! Every frame that verifies, whatever lies between them.

use std::sync::Arc;

use saguin_log_engine::format::{
    FLAG_CLEAN, FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Op, OpError,
    SEGMENT_HEADER_BYTES, decode_frame, peek_frame_header,
};
use saguin_log_engine::scan::{ScanError, Scanner};
use saguin_log_engine::state::Location;
use saguin_log_engine::storage::read_full_at;
use saguin_log_engine::{Layout, Segment};

use super::files::Files;
use super::{Cause, Finding, Frames, Model, OFFSETS_OF_A_LOST_END, Salvage, SalvagedSegment};
use crate::checkpoint::Checkpoint;
use crate::error::DamageKind;

/// Bytes looked at together in search of the next frame.
const BLOCK: usize = 64 << 10;

struct Reader<'l> {
    layout: &'l Layout,
    model: Model,
    findings: Vec<Finding>,
    last_lsn: u64,
    frames: u64,
    /// Position after the last frame, and whether that one says that the log was closed.
    end: u64,
    clean: bool,
    /// Findings from here on wait to be told where the frames they lost end.
    open: usize,
}

/// Reads the segments in order.
pub(super) fn read(layout: &Layout, files: Files, checkpoint: Option<&Checkpoint>) -> Salvage {
    let Files {
        engine_id,
        segments,
        left_out,
        findings,
    } = files;
    let mut reader = Reader {
        layout,
        model: Model::default(),
        open: findings.len(),
        findings,
        last_lsn: 0,
        frames: 0,
        end: 0,
        clean: false,
    };
    let mut read = Vec::new();
    for (i, segment) in segments.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| segments.get(i));
        reader.before(before, segment, &left_out);
        read.push(reader.segment(segment, segments.get(i + 1)));
    }
    if let (Some(last), Some(salvaged)) = (segments.last(), read.last()) {
        reader.end(last, salvaged.sealed, &left_out);
        if let Some(checkpoint) = checkpoint {
            reader.reaches(last, checkpoint);
        }
    }
    reader.model.settle();
    if reader.clean {
        reader.model.stopped();
    }
    let Reader {
        model,
        mut findings,
        last_lsn,
        frames,
        ..
    } = reader;
    let oldest = model.oldest_segment;
    findings.retain(|f| f.segment.is_none_or(|number| number >= oldest));
    let count = model.holds.lost();
    // Where nothing else is wrong, records that were held back are missing all the same.
    if count > 0 && findings.is_empty() {
        findings.push(Finding {
            path: layout.segment_dir(),
            segment: None,
            at: 0,
            until: 0,
            cause: Cause::Damage(DamageKind::HoldsGone { count }),
            frames: Frames::None,
        });
    }
    findings.sort_by_key(|f| (f.segment.unwrap_or(u64::MAX), f.at));
    read.retain(|s| s.segment.header.number >= oldest);
    Salvage {
        engine_id,
        segments: read,
        handles: segments,
        left_out,
        findings,
        model,
        checkpoint: None,
        rejected: Vec::new(),
        last_lsn,
        frames,
    }
}

impl Reader<'_> {
    fn find(&mut self, segment: &Segment, at: u64, until: u64, cause: Cause, frames: Frames) {
        self.findings.push(Finding {
            path: segment.path.clone(),
            segment: Some(segment.header.number),
            at,
            until,
            cause,
            frames,
        });
    }

    fn missing(&mut self, number: u64, frames: Frames) {
        self.findings.push(Finding {
            path: self.layout.segment_dir(),
            segment: Some(number),
            at: 0,
            until: 0,
            cause: Cause::Damage(DamageKind::MissingSegment { number }),
            frames,
        });
    }

    /// Segments that should lie before this one.
    fn before(
        &mut self,
        before: Option<&Arc<Segment>>,
        segment: &Segment,
        left_out: &[std::path::PathBuf],
    ) {
        let first = segment.header.first_lsn;
        let Some(before) = before else {
            // Whether something is missing before the first one, its own prologue says.
            self.last_lsn = first.saturating_sub(1);
            let number = segment.header.number;
            if number > 1 {
                self.missing(number - 1, Frames::Before(first));
            }
            return;
        };
        let number = before.header.number + 1;
        if number < segment.header.number {
            let frames = Frames::Range(self.last_lsn + 1, first.saturating_sub(1));
            let own = |path: &std::path::PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str());
                let lsn = name.and_then(Layout::parse_segment_name);
                lsn.is_some_and(|lsn| lsn > self.last_lsn && lsn < first)
            };
            // A file that could not be read stands where it is missing: one finding is enough.
            match left_out.iter().find(|path| own(path)) {
                Some(path) => {
                    if let Some(finding) = self.findings.iter_mut().find(|f| f.path == *path) {
                        (finding.frames, finding.segment) = (frames, Some(number));
                    }
                }
                None => self.missing(number, frames),
            }
            self.model.gap(0);
        }
        self.last_lsn = self.last_lsn.max(first.saturating_sub(1));
    }

    /// What the end of the log is missing.
    fn end(&mut self, last: &Segment, sealed: bool, left_out: &[std::path::PathBuf]) {
        let after = self.last_lsn + 1;
        let lost = left_out.iter().find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let lsn = name.and_then(Layout::parse_segment_name);
            lsn.is_some_and(|lsn| lsn >= after)
        });
        match lost {
            Some(path) => {
                let foreign = |f: &Finding| {
                    matches!(
                        f.cause,
                        Cause::Damage(
                            DamageKind::ForeignSegment { .. } | DamageKind::DuplicateSegment { .. }
                        )
                    )
                };
                let finding = self.findings.iter_mut().find(|f| f.path == *path);
                if let Some(finding) = finding
                    && (sealed || !foreign(finding))
                {
                    finding.frames = Frames::From(after);
                    finding.segment = Some(last.header.number + 1);
                    self.model.gap(OFFSETS_OF_A_LOST_END);
                }
            }
            None if sealed => {
                self.missing(last.header.number + 1, Frames::From(after));
                self.model.gap(OFFSETS_OF_A_LOST_END);
            }
            None => {}
        }
    }

    /// A checkpoint names a frame that was durable: frames up to it that are not there are lost,
    /// whatever the end of the log looks like.
    fn reaches(&mut self, last: &Segment, checkpoint: &Checkpoint) {
        let (after, reaches) = (self.last_lsn + 1, checkpoint.trailer.reaches);
        if after > reaches {
            return;
        }
        let open = self.findings.iter_mut().find_map(|f| match f.frames {
            Frames::From(first) => Some((first, &mut f.frames)),
            _ => None,
        });
        match open {
            Some((first, frames)) => *frames = Frames::AtLeast(first, reaches),
            None => {
                let kind = DamageKind::Short {
                    reaches,
                    last: self.last_lsn,
                    checkpoint: checkpoint.path.clone(),
                };
                let (at, frames) = (self.end, Frames::AtLeast(after, reaches));
                self.find(last, at, at, Cause::Damage(kind), frames);
            }
        }
        // Not only what fits into this segment: whole ones may have followed.
        self.model.gap(OFFSETS_OF_A_LOST_END);
    }

    fn segment(&mut self, segment: &Arc<Segment>, next: Option<&Arc<Segment>>) -> SalvagedSegment {
        let mut salvaged = SalvagedSegment {
            segment: segment.clone(),
            frames: 0,
            lsns: None,
            sealed: false,
        };
        let capacity = segment.header.capacity;
        let len = match segment.file.len() {
            Ok(len) => len,
            Err(error) => {
                let cause = Cause::Unreadable(error.to_string());
                self.find(segment, 0, capacity, cause, Frames::None);
                0
            }
        };
        let limit = len.min(capacity);
        self.open = self.findings.len();
        let mut at = SEGMENT_HEADER_BYTES as u64;
        while !salvaged.sealed {
            match self.frames(segment, at, limit, &mut salvaged) {
                Some(Stop { at: stopped, cause }) => {
                    let Some(after) = self.stopped(segment, stopped, limit, cause, next.is_none())
                    else {
                        break;
                    };
                    at = after;
                }
                None => break,
            }
        }
        if len < capacity && !salvaged.sealed {
            let (expected, found) = (capacity, len);
            let kind = DamageKind::Truncated { expected, found };
            let frames = match next {
                Some(next) => self.until(next),
                None => Frames::From(self.last_lsn + 1),
            };
            self.find(segment, len, capacity, Cause::Damage(kind), frames);
            self.model.gap(capacity);
        }
        self.close(segment, next, &salvaged);
        salvaged
    }

    /// The frames between the last one read and the next segment.
    fn until(&self, next: &Segment) -> Frames {
        let (first, last) = (self.last_lsn + 1, next.header.first_lsn.saturating_sub(1));
        if first > last {
            return Frames::None;
        }
        Frames::Range(first, last)
    }

    /// Says of what was lost in this segment how far it reached.
    fn close(
        &mut self,
        segment: &Segment,
        next: Option<&Arc<Segment>>,
        salvaged: &SalvagedSegment,
    ) {
        let tail = next.map(|next| (self.until(next), next.header.first_lsn));
        let mut told = false;
        for finding in &mut self.findings[self.open..] {
            if let (Frames::From(_), Some((frames, _))) = (finding.frames, tail) {
                finding.frames = frames;
            }
            told |= finding.until > finding.at && tail.is_some_and(|(f, _)| f == finding.frames);
            if let Cause::Damage(DamageKind::Frame { intact_after, .. }) = &mut finding.cause {
                *intact_after = salvaged.frames.saturating_sub(*intact_after);
            }
        }
        if let Some((frames @ Frames::Range(first, last), next)) = tail
            && !salvaged.sealed
            && !told
        {
            let kind = DamageKind::Unsealed { lsn: first, next };
            // The last frame before a segment is the seal, which holds no data.
            let frames = if first == last { Frames::None } else { frames };
            self.find(
                segment,
                segment.header.capacity,
                0,
                Cause::Damage(kind),
                frames,
            );
        }
        self.open = self.findings.len();
    }

    /// Reads frames from `at` to the first thing that is none.
    fn frames(
        &mut self,
        segment: &Segment,
        at: u64,
        limit: u64,
        salvaged: &mut SalvagedSegment,
    ) -> Option<Stop> {
        let mut scanner = Scanner::new(&*segment.file, segment.header.salt, at, limit);
        loop {
            let at = scanner.position();
            let (position, frame) = match scanner.next() {
                Ok(Some(found)) => found,
                Ok(None) => return None,
                Err(ScanError::Frame { error, .. }) => {
                    let lsn = self.last_lsn + 1;
                    let kind = DamageKind::Frame {
                        lsn,
                        error,
                        // Until the segment is read: how many were before it.
                        intact_after: salvaged.frames,
                    };
                    let cause = Cause::Damage(kind);
                    return Some(Stop { at, cause });
                }
                Err(ScanError::Io { error, .. }) => {
                    let cause = Cause::Unreadable(error.to_string());
                    return Some(Stop { at, cause });
                }
            };
            if let Err(kind) = self.frame(segment, position, &frame, salvaged) {
                let cause = Cause::Damage(kind);
                return Some(Stop {
                    at: position,
                    cause,
                });
            }
            if salvaged.sealed {
                return None;
            }
        }
    }

    fn frame(
        &mut self,
        segment: &Segment,
        at: u64,
        frame: &Frame<'_>,
        salvaged: &mut SalvagedSegment,
    ) -> Result<(), DamageKind> {
        let lsn = frame.header.lsn;
        let expected = self.last_lsn + 1;
        let readable: Result<Vec<Op<'_>>, OpError> = frame.operations().collect();
        let ops = readable.map_err(DamageKind::Operation)?;
        if lsn < expected {
            return Err(DamageKind::Lsn {
                expected,
                found: lsn,
            });
        }
        if lsn > expected && self.findings.len() == self.open {
            let kind = DamageKind::Lsn {
                expected,
                found: lsn,
            };
            let lost = Frames::Range(expected, lsn - 1);
            self.find(segment, at, at, Cause::Damage(kind), lost);
            self.model.gap(0);
        }
        // What the last finding lost ends before this frame.
        for finding in &mut self.findings[self.open..] {
            if let Frames::From(first) = finding.frames {
                finding.frames = match first < lsn {
                    true => Frames::Range(first, lsn - 1),
                    false => Frames::None,
                };
            }
        }
        let place = Location {
            segment: segment.number(),
            frame: at as u32,
        };
        for op in &ops {
            self.model.apply(op, place);
            salvaged.sealed |= matches!(op, Op::Seal { .. });
        }
        self.end = at + frame.header.frame_len();
        self.clean = frame.header.flags & FLAG_CLEAN != 0;
        salvaged.frames += 1;
        salvaged.lsns = Some((salvaged.lsns.map_or(lsn, |(first, _)| first), lsn));
        self.last_lsn = lsn;
        self.frames += 1;
        Ok(())
    }

    /// Judges what stopped the reading at `at`; where it goes on, if it does.
    fn stopped(
        &mut self,
        segment: &Segment,
        at: u64,
        limit: u64,
        cause: Cause,
        last: bool,
    ) -> Option<u64> {
        let missing = self.last_lsn + 1;
        let rest = Rest {
            segment,
            limit,
            lsn: missing,
        };
        let found = rest.next_frame(at);
        // What was read as no frame may have become one since, where the log is being written.
        if matches!(cause, Cause::Damage(DamageKind::Frame { .. }))
            && rest.whole(at).is_some_and(|h| h.lsn == missing)
        {
            return Some(at);
        }
        match (found, &cause) {
            // A torn tail: no later frame proves that this one was ever whole. But a prologue was.
            (None, Cause::Damage(DamageKind::Frame { .. }))
                if last && at > SEGMENT_HEADER_BYTES as u64 =>
            {
                None
            }
            (Some((_, header)), Cause::Damage(DamageKind::Frame { .. }))
                if last && at > SEGMENT_HEADER_BYTES as u64 && header.durable_lsn < missing =>
            {
                None
            }
            (Some((after, _)), _) => {
                self.find(segment, at, after, cause, Frames::From(missing));
                self.model.gap(after - at);
                Some(after)
            }
            // To the end of the segment. Where nothing but zeros is left and the log goes on in the
            // next one, only the end is missing.
            (None, Cause::Damage(DamageKind::Frame { .. })) if limit < segment.header.capacity => {
                None // The file was cut short, which is said once.
            }
            (None, _) => {
                let end = rest.last_byte(at).unwrap_or(at);
                if end > at || last {
                    self.find(segment, at, end.max(at), cause, Frames::From(missing));
                    self.model.gap(limit - at);
                }
                None
            }
        }
    }
}

/// Why the frames stopped.
struct Stop {
    at: u64,
    cause: Cause,
}

/// What follows in a segment.
struct Rest<'s> {
    segment: &'s Segment,
    limit: u64,
    /// The frame that should be next.
    lsn: u64,
}

impl Rest<'_> {
    /// The next whole frame after `at` that can be a later one of this log.
    fn next_frame(&self, at: u64) -> Option<(u64, FrameHeader)> {
        let mut block = vec![0u8; BLOCK];
        let mut from = at + FRAME_ALIGN as u64;
        while from < self.limit {
            let want = (self.limit - from).min(BLOCK as u64) as usize;
            let read = read_full_at(&*self.segment.file, &mut block[..want], from).unwrap_or(0);
            for (i, chunk) in block[..read].chunks(FRAME_ALIGN).enumerate() {
                let here = from + (i * FRAME_ALIGN) as u64;
                let head = block[..read].get(i * FRAME_ALIGN..i * FRAME_ALIGN + FRAME_HEADER_BYTES);
                // Most places are ruled out by what is in memory of them.
                let possible = match head {
                    Some(head) => peek_frame_header(head).is_ok(),
                    None => chunk.iter().any(|&b| b != 0),
                };
                if possible && let Some(header) = self.whole(here) {
                    return Some((here, header));
                }
            }
            // A place that cannot be read is passed over.
            from += want as u64;
        }
        None
    }

    /// The header of the frame at `at`, if it is whole and not from before.
    fn whole(&self, at: u64) -> Option<FrameHeader> {
        let file = &*self.segment.file;
        let mut head = [0u8; FRAME_HEADER_BYTES];
        read_full_at(file, &mut head, at).ok()?;
        let header = peek_frame_header(&head).ok()?;
        let possible = self
            .lsn
            .saturating_add(self.limit / FRAME_HEADER_BYTES as u64);
        let fits = header.frame_len() <= self.limit.checked_sub(at)?;
        if header.lsn < self.lsn || header.lsn > possible || !fits {
            return None;
        }
        // The length lies within the file, so this is no more memory than the file has bytes.
        let mut bytes = vec![0u8; header.frame_len() as usize];
        read_full_at(file, &mut bytes, at).ok()?;
        let frame: Result<Frame<'_>, FrameError> = decode_frame(&bytes, self.segment.header.salt);
        frame.ok().map(|frame| frame.header)
    }

    /// The position after the last byte that is not zero.
    fn last_byte(&self, at: u64) -> Option<u64> {
        let mut block = vec![0u8; BLOCK];
        let (mut last, mut from) = (None, at);
        while from < self.limit {
            let want = (self.limit - from).min(BLOCK as u64) as usize;
            let read = read_full_at(&*self.segment.file, &mut block[..want], from).unwrap_or(0);
            if let Some(found) = block[..read].iter().rposition(|&b| b != 0) {
                last = Some(from + found as u64 + 1);
            }
            from += want as u64;
        }
        last
    }
}

//! Which files are the segments of a damaged log.
//!
//! Names may lie (somebody renamed or copied files to get past an error), headers are checksummed:
//! so a segment is where its header says, and its name only decides between two copies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use saguin_log_engine::format::{
    FLAG_PROLOGUE, HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader, WRITER_BYTES, decode_frame,
    peek_frame_header,
};
use saguin_log_engine::storage::{File, FileSystem, read_full_at};
use saguin_log_engine::{Layout, Segment};

use super::{Cause, Finding, Frames};
use crate::error::{DamageKind, RecoverError, io};
use crate::walk::hex;

/// What there is to read.
pub(super) struct Files {
    pub(super) engine_id: [u8; 16],
    /// By number, each number once.
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) left_out: Vec<PathBuf>,
    pub(super) findings: Vec<Finding>,
}

/// A file that is called as a segment is.
struct Candidate {
    name: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    header: Result<SegmentHeader, HeaderError>,
    bytes: Vec<u8>,
}

pub(super) fn find(fs: &dyn FileSystem, layout: &Layout) -> Result<Files, RecoverError> {
    let dir = layout.segment_dir();
    let no_log = || RecoverError::NoLog {
        path: layout.root().to_owned(),
    };
    let names = match fs.list(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(no_log()),
        other => other.map_err(io("list", &dir))?,
    };
    let mut found: Vec<(u64, PathBuf)> = names
        .iter()
        .filter_map(|name| Some((Layout::parse_segment_name(name)?, dir.join(name))))
        .collect();
    found.sort();
    let mut files = Files {
        engine_id: [0; 16],
        segments: Vec::new(),
        left_out: Vec::new(),
        findings: Vec::new(),
    };
    let mut candidates = Vec::new();
    for (name, path) in found {
        match open(fs, name, &path) {
            Ok(candidate) => candidates.push(candidate),
            Err(error) => files.leave_out(&path, None, Cause::Unreadable(error.to_string())),
        }
    }
    files.engine_id = id_of(fs, layout, &candidates).ok_or_else(no_log)?;
    let mut segments: Vec<(u64, Segment)> = Vec::new();
    for candidate in candidates {
        files.judge(candidate, &mut segments);
    }
    // The one whose name fits comes first among those of one number.
    segments.sort_by_key(|(name, s)| (s.header.number, *name != s.header.first_lsn));
    for (_, segment) in segments {
        let number = segment.header.number;
        if files
            .segments
            .last()
            .is_some_and(|s| s.header.number == number)
        {
            let kind = DamageKind::DuplicateSegment { number };
            files.leave_out(&segment.path, Some(number), Cause::Damage(kind));
        } else {
            files.segments.push(Arc::new(segment));
        }
    }
    if files.segments.is_empty() {
        return Err(no_log());
    }
    Ok(files)
}

fn open(fs: &dyn FileSystem, name: u64, path: &Path) -> std::io::Result<Candidate> {
    let file = fs.open(path, false)?;
    // The header and the prologue behind it, if it is a short one.
    let mut bytes = vec![0u8; SEGMENT_HEADER_BYTES];
    let read = read_full_at(&*file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Candidate {
        name,
        path: path.to_owned(),
        file,
        header: SegmentHeader::decode(&bytes),
        bytes,
    })
}

/// The log's id: the one in the lock file, else the one most headers have.
fn id_of(fs: &dyn FileSystem, layout: &Layout, candidates: &[Candidate]) -> Option<[u8; 16]> {
    let ids: Vec<[u8; 16]> = candidates
        .iter()
        .filter_map(|c| Some(c.header.as_ref().ok()?.engine_id))
        .collect();
    let known = crate::open::read_identity(fs, layout).ok().flatten();
    let named = ids.iter().find(|id| Some(hex(&id[..])) == known);
    let most = ids
        .iter()
        .max_by_key(|id| ids.iter().filter(|other| other == id).count());
    named.or(most).copied()
}

impl Files {
    fn leave_out(&mut self, path: &Path, segment: Option<u64>, cause: Cause) {
        self.left_out.push(path.to_owned());
        // It is no part of the log, so what else is wrong with it says nothing.
        self.findings.retain(|finding| finding.path != path);
        self.findings.push(Finding {
            path: path.to_owned(),
            segment,
            at: 0,
            until: 0,
            cause,
            frames: Frames::None,
        });
    }

    fn note(&mut self, candidate: &Candidate, number: u64, kind: DamageKind) {
        self.findings.push(Finding {
            path: candidate.path.clone(),
            segment: Some(number),
            at: 0,
            until: SEGMENT_HEADER_BYTES as u64,
            cause: Cause::Damage(kind),
            frames: Frames::None,
        });
    }

    fn judge(&mut self, candidate: Candidate, segments: &mut Vec<(u64, Segment)>) {
        let header = match &candidate.header {
            Ok(header) => header.clone(),
            Err(error) => {
                let kind = DamageKind::Header(error.clone());
                let readable = !matches!(error, HeaderError::Version { .. });
                match readable.then(|| behind(&candidate, self.engine_id)) {
                    Some(Some(header)) => {
                        self.note(&candidate, header.number, kind);
                        header
                    }
                    _ => return self.leave_out(&candidate.path, None, Cause::Damage(kind)),
                }
            }
        };
        let number = header.number;
        if header.engine_id != self.engine_id {
            let (expected, found) = (hex(&self.engine_id), hex(&header.engine_id));
            let kind = DamageKind::ForeignSegment { expected, found };
            return self.leave_out(&candidate.path, None, Cause::Damage(kind));
        }
        for (field, found) in [("capacity", header.capacity), ("number", number)] {
            if found > u64::from(u32::MAX) {
                let kind = DamageKind::Absurd { field, found };
                return self.leave_out(&candidate.path, None, Cause::Damage(kind));
            }
        }
        if header.first_lsn != candidate.name {
            let (name, header) = (candidate.name, header.first_lsn);
            self.note(&candidate, number, DamageKind::Misnamed { name, header });
        }
        let segment = Segment::new(header, candidate.file, candidate.path);
        segments.push((candidate.name, segment));
    }
}

/// The header of a segment whose header's checksum does not hold, if what matters of it is intact:
/// the frame behind it verifies with its salt and is the prologue that the file's name promises.
fn behind(candidate: &Candidate, engine_id: [u8; 16]) -> Option<SegmentHeader> {
    let bytes = candidate.bytes.get(..SEGMENT_HEADER_BYTES)?;
    let number = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|b| u64::from_le_bytes(*b))
    };
    let salt = u32::from_le_bytes(*bytes.get(48..)?.first_chunk()?);
    let capacity = candidate.file.len().ok()?;
    let at = SEGMENT_HEADER_BYTES as u64;
    let mut head = [0u8; saguin_log_engine::format::FRAME_HEADER_BYTES];
    read_full_at(&*candidate.file, &mut head, at).ok()?;
    let peeked = peek_frame_header(&head).ok()?;
    if peeked.frame_len() > capacity.saturating_sub(at) {
        return None;
    }
    // The length lies within the file, so this is no more memory than the file has bytes.
    let mut frame = vec![0u8; peeked.frame_len() as usize];
    read_full_at(&*candidate.file, &mut frame, at).ok()?;
    let header = decode_frame(&frame, salt).ok()?.header;
    (header.flags & FLAG_PROLOGUE != 0 && header.lsn == candidate.name).then_some(())?;
    let segment = number(32)?;
    // Either of these may be what was damaged, not both by one stray write of a few bytes.
    let same_log = bytes[16..32] == engine_id;
    let plausible = segment >= 1 && segment <= candidate.name;
    (same_log && plausible).then_some(SegmentHeader {
        engine_id,
        number: segment,
        first_lsn: candidate.name,
        salt,
        capacity,
        written_at: 0,
        writer: [0; WRITER_BYTES],
    })
}

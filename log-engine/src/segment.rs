//! Segments: their names, their handles, and the set a reader sees.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::format::{FORMAT_VERSION, SegmentHeader, WRITER_BYTES};
use crate::storage::File;
use crate::sync::{Arc, RwLock, read, write};

/// Where a log's files are.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The log at `root`.
    #[must_use]
    pub fn new(root: &Path) -> Layout {
        Layout {
            root: root.to_owned(),
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file whose lock says that the log is open. Its content is the log's id, so that a
    /// directory whose segments are gone is not taken for a new one.
    #[must_use]
    pub fn lock_path(&self) -> PathBuf {
        self.root.join("saguin.lock")
    }

    /// The directory of segments.
    #[must_use]
    pub fn segment_dir(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The segment whose first frame is `first_lsn`.
    #[must_use]
    pub fn segment_path(&self, first_lsn: u64) -> PathBuf {
        self.segment_dir().join(format!("{first_lsn:020}.seg"))
    }

    /// A file on its way to becoming a segment; whatever it holds counts for nothing.
    #[must_use]
    pub fn scratch_path(&self, name: &str) -> PathBuf {
        self.segment_dir().join(format!("{name}.tmp"))
    }

    /// The directory of checkpoints.
    #[must_use]
    pub fn checkpoint_dir(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    /// The checkpoint that reaches `lsn`.
    #[must_use]
    pub fn checkpoint_path(&self, lsn: u64) -> PathBuf {
        self.checkpoint_dir().join(format!("{lsn:020}.ckpt"))
    }

    /// A checkpoint on its way; whatever it holds counts for nothing.
    #[must_use]
    pub fn checkpoint_scratch_path(&self) -> PathBuf {
        self.checkpoint_dir().join("next.tmp")
    }

    /// The LSN a checkpoint's file name states; `None` where it is no checkpoint's name.
    #[must_use]
    pub fn parse_checkpoint_name(name: &str) -> Option<u64> {
        number_before(name, ".ckpt")
    }

    /// The first LSN a segment's file name states; `None` where it is no segment's name.
    #[must_use]
    pub fn parse_segment_name(name: &str) -> Option<u64> {
        number_before(name, ".seg")
    }
}

fn number_before(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// One segment, open.
#[derive(Debug)]
pub struct Segment {
    /// Its header.
    pub header: SegmentHeader,
    /// The open file.
    pub file: Arc<dyn File>,
    /// Its path, for messages.
    pub path: PathBuf,
    /// Position of the frame that seals it, once it is sealed.
    pub seal: OnceLock<u64>,
    /// Bytes of its footer; zero where it has none.
    pub footer: AtomicU64,
}

impl Segment {
    /// A segment that is not sealed.
    #[must_use]
    pub fn new(header: SegmentHeader, file: Arc<dyn File>, path: PathBuf) -> Segment {
        Segment {
            header,
            file,
            path,
            seal: OnceLock::new(),
            footer: AtomicU64::new(0),
        }
    }

    /// Bytes its file takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.header.capacity + self.footer.load(Relaxed)
    }

    /// Its number as locations carry it. Numbers beyond 32 bits are refused when a segment is
    /// opened, and a log would need 256 PiB to get there.
    #[must_use]
    pub fn number(&self) -> u32 {
        u32::try_from(self.header.number).unwrap_or(u32::MAX)
    }
}

/// The segments of an open log, by number. Readers take a snapshot: a segment stays readable for
/// as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct Segments {
    list: RwLock<Arc<Vec<Arc<Segment>>>>,
}

impl Segments {
    pub(crate) fn new(list: Vec<Arc<Segment>>) -> Segments {
        Segments {
            list: RwLock::new(Arc::new(list)),
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<Vec<Arc<Segment>>> {
        read(&self.list).clone()
    }

    /// Forgets the segments before number `oldest`. A reader that holds one may still read it.
    pub(crate) fn drop_before(&self, oldest: u64) {
        let mut list = write(&self.list);
        let kept = list.iter().filter(|s| s.header.number >= oldest);
        *list = Arc::new(kept.cloned().collect());
    }

    pub(crate) fn push(&self, segment: Arc<Segment>) {
        let mut list = write(&self.list);
        let mut longer = Vec::with_capacity(list.len() + 1);
        longer.extend(list.iter().cloned());
        longer.push(segment);
        *list = Arc::new(longer);
    }
}

/// The segment with a number, in a list ordered by number.
pub(crate) fn find(list: &[Arc<Segment>], number: u32) -> Option<&Arc<Segment>> {
    let at = list.partition_point(|s| s.number() < number);
    list.get(at).filter(|s| s.number() == number)
}

/// This build's name, as segments carry it.
#[must_use]
pub fn writer_name() -> [u8; WRITER_BYTES] {
    let mut out = [0u8; WRITER_BYTES];
    let name = concat!("saguin ", env!("CARGO_PKG_VERSION"));
    let len = name.len().min(WRITER_BYTES);
    out[..len].copy_from_slice(&name.as_bytes()[..len]);
    out
}

/// An error with the file it happened to and what was being done.
pub(crate) fn at_path(doing: &str, path: &Path, error: &io::Error) -> String {
    format!("{doing} {}: {error}", path.display())
}

/// The format every new segment has.
pub const SEGMENT_FORMAT: u32 = FORMAT_VERSION;

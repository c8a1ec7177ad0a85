//! Why a directory does not open.

use std::path::{Path, PathBuf};

use saguin_log_engine::BoundTooSmall;
use saguin_log_engine::format::{FrameError, HeaderError, OpError};
use saguin_log_engine::state::StateError;

/// Acknowledged data is not what was written, or not there. Nothing is opened and nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Position in it, in bytes.
    pub at: u64,
    /// What was expected and found.
    pub kind: DamageKind,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The segment's header.
    Header(HeaderError),
    /// The header names another log.
    ForeignSegment {
        /// This log's id.
        expected: String,
        /// The segment's.
        found: String,
    },
    /// The header does not belong to a file of this name.
    Misnamed {
        /// First LSN in the file's name.
        name: u64,
        /// First LSN in the header.
        header: u64,
    },
    /// A segment is not there.
    MissingSegment {
        /// Its number.
        number: u64,
    },
    /// Two segments have one number.
    DuplicateSegment {
        /// The number.
        number: u64,
    },
    /// A size or number in the header is beyond what this build writes.
    Absurd {
        /// Which field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// The file is shorter than the segment was made.
    Truncated {
        /// Bytes the header says it has.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// A frame that was durable does not verify.
    Frame {
        /// LSN it should have.
        lsn: u64,
        /// Why it does not verify.
        error: FrameError,
        /// Frames after it in the file that do.
        intact_after: u64,
    },
    /// A frame verifies but is not the one that belongs here.
    Lsn {
        /// LSN expected.
        expected: u64,
        /// LSN found.
        found: u64,
    },
    /// A segment does not begin with a prologue, or has one elsewhere.
    Prologue,
    /// The segment ends without the frame that seals it, but the log goes on after it.
    Unsealed {
        /// LSN of the first frame missing.
        lsn: u64,
        /// First LSN of the next segment.
        next: u64,
    },
    /// A verified frame holds what this build cannot read.
    Operation(OpError),
    /// A verified frame contradicts what came before it.
    State(StateError),
    /// The log ends before a frame that was durable when the newest checkpoint was written.
    Short {
        /// That frame.
        reaches: u64,
        /// The log's last one.
        last: u64,
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A checkpoint contradicts the log it was made from.
    Checkpoint(String),
    /// Records that were held back when the log began here are nowhere in it.
    HoldsGone {
        /// How many.
        count: u64,
    },
    /// There is a checkpoint and no log for it.
    OnlyCheckpoints,
    /// The directory once held this log, but holds no segments.
    SegmentsGone {
        /// The log's id.
        id: String,
    },
}

impl std::fmt::Display for DamageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DamageKind::Header(error) => error.fmt(f),
            DamageKind::ForeignSegment { expected, found } => {
                write!(
                    f,
                    "the segment belongs to log {found}, this directory is log {expected}"
                )
            }
            DamageKind::Misnamed { name, header } => write!(
                f,
                "the name says the first frame is {name}, the header says {header}; was it renamed?"
            ),
            DamageKind::MissingSegment { number } => {
                write!(f, "segment number {number} is missing")
            }
            DamageKind::DuplicateSegment { number } => {
                write!(f, "segment number {number} is there twice")
            }
            DamageKind::Absurd { field, found } => {
                write!(
                    f,
                    "the header's {field} is {found}, more than this build can read"
                )
            }
            DamageKind::Truncated { expected, found } => write!(
                f,
                "the segment was made with {expected} bytes and the file has {found}; it was cut short"
            ),
            DamageKind::Frame {
                lsn,
                error,
                intact_after,
            } => write!(
                f,
                "frame {lsn} was durable and does not verify: {error}; {intact_after} frames after it in this file are intact"
            ),
            DamageKind::Lsn { expected, found } => {
                write!(f, "expected frame {expected}, found frame {found}")
            }
            DamageKind::Prologue => {
                f.write_str("a segment begins with one prologue frame, and here it does not")
            }
            DamageKind::Unsealed { lsn, next } => write!(
                f,
                "frame {lsn} is missing: the segment ends here, and the next one begins with frame {next}"
            ),
            DamageKind::Operation(error) => error.fmt(f),
            DamageKind::State(error) => error.fmt(f),
            DamageKind::Short {
                reaches,
                last,
                checkpoint,
            } => write!(
                f,
                "the log ends with frame {last}, but frame {reaches} was durable when {} was written",
                checkpoint.display()
            ),
            DamageKind::Checkpoint(why) => write!(f, "the checkpoint contradicts the log: {why}"),
            DamageKind::HoldsGone { count } => write!(
                f,
                "{count} records that were held back before the oldest segment were neither released nor moved"
            ),
            DamageKind::OnlyCheckpoints => f.write_str(
                "this is a checkpoint of a log that has no segments any more; restore them, or remove the directory of checkpoints to start a new log",
            ),
            DamageKind::SegmentsGone { id } => write!(
                f,
                "log {id} was here and has no segments any more; restore them, or remove this file to start a new log"
            ),
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.path.display(), self.at, self.kind)
    }
}

impl Damage {
    pub(crate) fn new(path: &Path, at: u64, kind: DamageKind) -> Damage {
        Damage {
            path: path.to_owned(),
            at,
            kind,
        }
    }
}

/// Why a directory could not be opened or read.
#[derive(Debug)]
pub enum RecoverError {
    /// Somebody has it open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// There is no log.
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// Acknowledged data is damaged.
    Damage(Damage),
    /// The system refused something.
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The answer.
        error: std::io::Error,
    },
    /// The bound asked for is too small for any log.
    Bound(BoundTooSmall),
    /// A new log could not be made.
    Create(String),
}

impl std::fmt::Display for RecoverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecoverError::Locked { path } => write!(
                f,
                "{} is locked: another process has this directory open; stop it first",
                path.display()
            ),
            RecoverError::NoLog { path } => {
                write!(
                    f,
                    "{} holds no log: there are no segments in it",
                    path.display()
                )
            }
            RecoverError::Damage(damage) => write!(
                f,
                "damaged log, nothing was changed: {damage}; look with saguin-inspect verify"
            ),
            RecoverError::Io { doing, path, error } => {
                write!(f, "could not {doing} {}: {error}", path.display())
            }
            RecoverError::Bound(error) => error.fmt(f),
            RecoverError::Create(why) => write!(f, "could not make a new log: {why}"),
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<Damage> for RecoverError {
    fn from(damage: Damage) -> RecoverError {
        RecoverError::Damage(damage)
    }
}

/// Wraps an I/O error with what was being done to which file.
pub(crate) fn io(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> RecoverError + use<> {
    let path = path.to_owned();
    move |error| RecoverError::Io { doing, path, error }
}

//! Walking the frames of a segment. Everybody who reads frames reads them through this: readers of
//! records, recovery and the inspector.

use std::io;

use crate::format::{
    FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, decode_frame, peek_frame_header,
};
use crate::storage::{File, read_full_at};

/// Bytes first read at once: somebody may want one record.
const FIRST_CHUNK_BYTES: usize = 8 << 10;
/// Bytes read at once by whoever goes on.
const CHUNK_BYTES: usize = 128 << 10;

/// Why a walk stopped.
#[derive(Debug)]
pub enum ScanError {
    /// The file could not be read.
    Io {
        /// Position.
        at: u64,
        /// What the system said.
        error: io::Error,
    },
    /// The bytes are not a frame.
    Frame {
        /// Position.
        at: u64,
        /// Why not.
        error: FrameError,
    },
}

impl std::fmt::Display for ScanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ScanError::Io { at, error } => write!(f, "at {at}: {error}"),
            ScanError::Frame { at, error } => write!(f, "at {at}: {error}"),
        }
    }
}

impl std::error::Error for ScanError {}

/// Walks verified frames, reading ahead in one buffer that grows only to the largest frame met.
#[derive(Debug)]
pub struct Scanner<'f> {
    file: &'f dyn File,
    salt: u32,
    /// Frames end at or before this position.
    end: u64,
    /// Position of the next frame.
    at: u64,
    /// Bytes the next read asks for; doubled by each.
    chunk: usize,
    buffer: Vec<u8>,
    /// File position of the buffer's first byte.
    start: u64,
    filled: usize,
}

impl<'f> Scanner<'f> {
    /// A walk of the frames of `file` from `at` up to `end`.
    #[must_use]
    pub fn new(file: &'f dyn File, salt: u32, at: u64, end: u64) -> Scanner<'f> {
        Scanner {
            file,
            salt,
            end,
            at,
            chunk: FIRST_CHUNK_BYTES,
            buffer: Vec::new(),
            start: at,
            filled: 0,
        }
    }

    /// Goes on with what another walk of the same file has read ahead.
    pub(crate) fn go_on(&mut self, ahead: ReadAhead) {
        (self.start, self.filled, self.chunk) = (ahead.start, ahead.filled, ahead.chunk);
        self.buffer = ahead.buffer;
    }

    /// What this walk has read ahead, for the next one of the same file.
    pub(crate) fn into_ahead(self) -> ReadAhead {
        ReadAhead {
            start: self.start,
            filled: self.filled,
            chunk: self.chunk,
            buffer: self.buffer,
        }
    }

    /// Position of the frame that [`next`](Self::next) reads.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Continues elsewhere in the file.
    pub fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// The next frame, verified, and its position; `None` at the end.
    ///
    /// # Errors
    /// [`ScanError`]; the position does not move.
    #[allow(
        clippy::should_implement_trait,
        reason = "frames borrow the scanner's buffer"
    )]
    pub fn next(&mut self) -> Result<Option<(u64, Frame<'_>)>, ScanError> {
        let at = self.at;
        if at + FRAME_HEADER_BYTES as u64 > self.end {
            return Ok(None);
        }
        let header = self.header(at)?;
        let len = header.frame_len();
        let left = self.end - at;
        if len > left {
            let error = FrameError::Short {
                needed: len,
                found: left,
            };
            return Err(ScanError::Frame { at, error });
        }
        let bytes = self.bytes(at, len as usize)?;
        let from = bytes.start;
        let salt = self.salt;
        let frame = decode_frame(&self.buffer[from..from + bytes.len], salt)
            .map_err(|error| ScanError::Frame { at, error })?;
        self.at = at + len;
        Ok(Some((at, frame)))
    }

    fn header(&mut self, at: u64) -> Result<FrameHeader, ScanError> {
        let bytes = self.bytes(at, FRAME_HEADER_BYTES)?;
        let bytes = &self.buffer[bytes.start..bytes.start + bytes.len];
        peek_frame_header(bytes).map_err(|error| ScanError::Frame { at, error })
    }

    /// Makes up to `len` bytes from `at` on present in the buffer; fewer only at the file's end.
    fn bytes(&mut self, at: u64, len: usize) -> Result<Range, ScanError> {
        let buffered = self.start + self.filled as u64;
        if at < self.start || at + len as u64 > buffered {
            self.fill(at, len)?;
        }
        let start = (at - self.start) as usize;
        Ok(Range {
            start,
            len: len.min(self.filled.saturating_sub(start)),
        })
    }

    fn fill(&mut self, at: u64, len: usize) -> Result<(), ScanError> {
        let kept = self.start + self.filled as u64;
        if at >= self.start && at < kept {
            // Keep what is read already: the front of a frame that crosses the buffer's end.
            let from = (at - self.start) as usize;
            self.buffer.copy_within(from..self.filled, 0);
            self.filled -= from;
        } else {
            self.filled = 0;
        }
        self.start = at;
        // `len` was bounded by the segment before it was asked for.
        let want = len
            .max(self.chunk)
            .min((self.end - at) as usize)
            .max(self.filled);
        self.chunk = (self.chunk * 2).min(CHUNK_BYTES);
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        let read_at = at + self.filled as u64;
        let target = &mut self.buffer[self.filled..want];
        let read = read_full_at(self.file, target, read_at)
            .map_err(|error| ScanError::Io { at: read_at, error })?;
        self.filled += read;
        Ok(())
    }
}

/// Bytes of a file that a walk has read and not used.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    start: u64,
    filled: usize,
    chunk: usize,
    buffer: Vec<u8>,
}

struct Range {
    start: usize,
    len: usize,
}

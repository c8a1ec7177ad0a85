//! What the first byte that is no frame means.
//!
//! Frames are written one after another, each synced before the next is written. So at a crash at
//! most the last frame with operations, and an empty one after it, can be torn; and a later frame
//! that verifies and claims that the broken one was durable proves that it once was whole.

use std::path::{Path, PathBuf};

use saguin_log_engine::breakage::{self, Breakage};
use saguin_log_engine::format::{
    FRAME_ALIGN, FRAME_HEADER_BYTES, FrameError, decode_frame, peek_frame_header,
};
use saguin_log_engine::storage::{File, read_full_at};

use crate::error::{Damage, DamageKind, RecoverError, io};

/// Bytes looked at together.
const BLOCK: usize = 64 << 10;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// What a crash left behind the last whole frame. Nothing in it was ever acknowledged as durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub path: PathBuf,
    /// Where the log ends.
    pub at: u64,
    /// Bytes from there to the last one that is not zero.
    pub bytes: u64,
    /// Whole frames among them, dropped because one before them is not whole.
    pub frames: u64,
}

/// A segment's file, as far as the walk got.
pub(crate) struct Rest<'f> {
    pub(crate) file: &'f dyn File,
    pub(crate) path: &'f Path,
    pub(crate) salt: u32,
    /// Where the frame that does not verify begins.
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// LSN of the frame that should be there.
    pub(crate) lsn: u64,
}

impl Rest<'_> {
    /// Judges the rest of the segment. `None` is a clean end: nothing but zeros.
    pub(crate) fn judge(&self, error: &FrameError) -> Result<Option<Torn>, RecoverError> {
        let mut last_byte = None;
        let mut frames = 0;
        let mut vouched = false;
        let mut block = vec![0u8; BLOCK];
        let mut at = self.at;
        while at < self.end {
            let want = (self.end - at).min(BLOCK as u64) as usize;
            let read =
                read_full_at(self.file, &mut block[..want], at).map_err(io("read", self.path))?;
            if read == 0 {
                break;
            }
            let block = &block[..read];
            let last = match block == &ZEROS[..read] {
                // Comparing is much faster than searching, and most of a segment was never written.
                true => None,
                false => block.iter().rposition(|&b| b != 0),
            };
            if let Some(last) = last {
                last_byte = Some(at + last as u64);
                for from in (0..read).step_by(FRAME_ALIGN) {
                    let here = at + from as u64;
                    if here == self.at {
                        continue;
                    }
                    if let Some(durable) = self.frame_at(&block[from..], here)? {
                        frames += 1;
                        vouched |= durable >= self.lsn;
                    }
                }
            }
            at += read as u64;
        }
        if vouched && !breakage::is(Breakage::DamageAsTornTail) {
            let kind = DamageKind::Frame {
                lsn: self.lsn,
                error: error.clone(),
                intact_after: frames,
            };
            return Err(Damage::new(self.path, self.at, kind).into());
        }
        Ok(last_byte.map(|last| Torn {
            path: self.path.to_owned(),
            at: self.at,
            bytes: last + 1 - self.at,
            frames,
        }))
    }

    /// The durable LSN of a whole frame of this segment's future at `at`, if there is one.
    /// `seen` is what is in memory of it; most places are ruled out by their first 32 bytes.
    fn frame_at(&self, seen: &[u8], at: u64) -> Result<Option<u64>, RecoverError> {
        let mut head = [0u8; FRAME_HEADER_BYTES];
        let head = match seen.get(..FRAME_HEADER_BYTES) {
            Some(head) => head,
            None => {
                read_full_at(self.file, &mut head, at).map_err(io("read", self.path))?;
                &head[..]
            }
        };
        let Ok(header) = peek_frame_header(head) else {
            return Ok(None);
        };
        let most = self
            .lsn
            .saturating_add((self.end - self.at) / FRAME_HEADER_BYTES as u64);
        if header.lsn < self.lsn || header.lsn > most || at + header.frame_len() > self.end {
            return Ok(None);
        }
        // The length lies within the file, so this is no more memory than the file has bytes.
        let mut bytes = vec![0u8; header.frame_len() as usize];
        read_full_at(self.file, &mut bytes, at).map_err(io("read", self.path))?;
        Ok(decode_frame(&bytes, self.salt)
            .ok()
            .map(|frame| frame.header.durable_lsn))
    }
}

//! The frame: the unit of atomic commit.
//!
//! ```text
//!    0  crc          u32 CRC32C of everything after this field, seeded with the segment's salt
//!    4  body length  u32 bytes after this header, a multiple of 8, at most MAX_BODY_BYTES
//!    8  lsn          u64 rising by one, never reused
//!   16  durable lsn  u64 the highest lsn known synced when this frame was written
//!   24  operations   u16
//!   26  flags        u16 1 prologue, 2 seal, 4 clean stop
//!   28  reserved     u32 zero
//!   32  operations, then zero bytes to the next multiple of eight
//! ```
//!
//! The length is under the checksum, and the checksum is seeded, so neither a torn header nor a
//! frame from an earlier life of the file is ever taken for the end of one.

use crate::breakage::{self, Breakage};

use super::header::{u16_at, u32_at, u64_at};
use super::op::Op;
use super::ops::Ops;

/// Bytes of a frame before its operations.
pub const FRAME_HEADER_BYTES: usize = 32;
/// Frames begin and end on multiples of this.
pub const FRAME_ALIGN: usize = 8;
/// A body longer than this is not believed, whatever its header says.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// Every segment keeps this much free for the frame that seals it.
pub const SEAL_FRAME_BYTES: usize = FRAME_HEADER_BYTES + 16;

/// The frame restates every channel's numbers at the head of a segment.
pub const FLAG_PROLOGUE: u16 = 1;
/// The last frame of a segment: the log goes on in the next one.
pub const FLAG_SEAL: u16 = 2;
/// Written at a graceful stop, after everything before it was synced.
pub const FLAG_CLEAN: u16 = 4;

/// The fields of a frame before its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// CRC as stored.
    pub crc: u32,
    /// Bytes after the header.
    pub body_len: u32,
    /// This frame's number.
    pub lsn: u64,
    /// Highest LSN known synced when this frame was written.
    pub durable_lsn: u64,
    /// Operations in the body.
    pub operations: u16,
    /// `FLAG_*`.
    pub flags: u16,
}

impl FrameHeader {
    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_len(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.body_len)
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Fewer bytes than the frame needs.
    Short {
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The header cannot be one: a length beyond the bound or not a multiple of eight, or a
    /// reserved field that is not zero.
    Header,
    /// The checksum does not match.
    Checksum {
        /// Stored in the file.
        expected: u32,
        /// Computed over the bytes.
        found: u32,
    },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::Short { needed, found } => {
                write!(f, "frame: expected {needed} bytes, found {found}")
            }
            FrameError::Header => f.write_str("frame: the header is not one this program writes"),
            FrameError::Checksum { expected, found } => {
                write!(
                    f,
                    "frame checksum: expected {expected:08x}, found {found:08x}"
                )
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// A verified frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The operations in order.
    #[must_use]
    pub fn operations(&self) -> Ops<'a> {
        Ops::new(self.body, self.header.operations)
    }
}

/// Reads the header of the frame `bytes` begin with, without verifying the checksum.
///
/// # Errors
/// [`FrameError::Short`] or [`FrameError::Header`].
pub fn peek_frame_header(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
    let Some(bytes) = bytes.get(..FRAME_HEADER_BYTES) else {
        return Err(FrameError::Short {
            needed: FRAME_HEADER_BYTES as u64,
            found: bytes.len() as u64,
        });
    };
    let header = FrameHeader {
        crc: u32_at(bytes, 0),
        body_len: u32_at(bytes, 4),
        lsn: u64_at(bytes, 8),
        durable_lsn: u64_at(bytes, 16),
        operations: u16_at(bytes, 24),
        flags: u16_at(bytes, 26),
    };
    let body_len = header.body_len as usize;
    // LSNs start at 1: a stretch of zeros is never a frame, whatever the seed of its checksum.
    if header.lsn == 0
        || body_len > MAX_BODY_BYTES
        || !body_len.is_multiple_of(FRAME_ALIGN)
        || u32_at(bytes, 28) != 0
    {
        return Err(FrameError::Header);
    }
    Ok(header)
}

/// Verifies the frame `bytes` begin with.
///
/// # Errors
/// [`FrameError`].
pub fn decode_frame(bytes: &[u8], salt: u32) -> Result<Frame<'_>, FrameError> {
    let header = peek_frame_header(bytes)?;
    let len = FRAME_HEADER_BYTES + header.body_len as usize;
    let Some(bytes) = bytes.get(..len) else {
        return Err(FrameError::Short {
            needed: len as u64,
            found: bytes.len() as u64,
        });
    };
    let found = crc32c::crc32c_append(salt, &bytes[4..]);
    if found != header.crc && !breakage::is(Breakage::TornTailAccepts) {
        return Err(FrameError::Checksum {
            expected: header.crc,
            found,
        });
    }
    Ok(Frame {
        header,
        body: &bytes[FRAME_HEADER_BYTES..],
    })
}

/// Builds one frame after another in a buffer it keeps.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    buffer: Vec<u8>,
    operations: u16,
}

impl FrameBuilder {
    /// Begins a new frame, keeping the buffer's memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.resize(FRAME_HEADER_BYTES, 0);
        self.operations = 0;
    }

    /// Adds an operation.
    pub fn push(&mut self, op: &Op<'_>) {
        debug_assert!(
            self.buffer.len() >= FRAME_HEADER_BYTES,
            "clear() begins a frame"
        );
        op.encode(&mut self.buffer);
        self.operations += 1;
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> u16 {
        self.operations
    }

    /// Bytes the finished frame would have now.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.buffer
            .len()
            .max(FRAME_HEADER_BYTES)
            .next_multiple_of(FRAME_ALIGN)
    }

    /// Marks a place to come back to with [`rollback`](Self::rollback).
    #[must_use]
    pub fn mark(&self) -> (usize, u16) {
        (self.buffer.len(), self.operations)
    }

    /// Drops everything pushed since `mark`.
    pub fn rollback(&mut self, mark: (usize, u16)) {
        self.buffer.truncate(mark.0);
        self.operations = mark.1;
    }

    /// The operations of the frame being built or just finished.
    #[must_use]
    pub fn ops(&self) -> Ops<'_> {
        Ops::new(&self.buffer[FRAME_HEADER_BYTES..], self.operations)
    }

    /// Pads, numbers and seals the frame; the bytes are ready to be written in one piece.
    pub fn finish(&mut self, lsn: u64, durable_lsn: u64, flags: u16, salt: u32) -> &[u8] {
        let len = self.frame_len();
        self.buffer.resize(len, 0);
        let body_len = (len - FRAME_HEADER_BYTES) as u32;
        let head = &mut self.buffer[..FRAME_HEADER_BYTES];
        head[4..8].copy_from_slice(&body_len.to_le_bytes());
        head[8..16].copy_from_slice(&lsn.to_le_bytes());
        head[16..24].copy_from_slice(&durable_lsn.to_le_bytes());
        head[24..26].copy_from_slice(&self.operations.to_le_bytes());
        head[26..28].copy_from_slice(&flags.to_le_bytes());
        head[28..32].fill(0);
        let crc = crc32c::crc32c_append(salt, &self.buffer[4..]);
        self.buffer[0..4].copy_from_slice(&crc.to_le_bytes());
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut builder = FrameBuilder::default();
        builder.clear();
        builder.push(&Op::Resolve {
            channel: 3,
            offset: 9,
            freed: 40,
        });
        builder.push(&Op::Seal { next_segment: 2 });
        builder.finish(5, 4, FLAG_SEAL, 77).to_vec()
    }

    #[test]
    fn a_frame_comes_back_and_every_flip_and_cut_is_seen() {
        let bytes = sample();
        assert_eq!(bytes.len() % FRAME_ALIGN, 0);
        let frame = decode_frame(&bytes, 77).expect("whole");
        assert_eq!(
            (
                frame.header.lsn,
                frame.header.durable_lsn,
                frame.header.flags
            ),
            (5, 4, 2)
        );
        let ops: Vec<_> = frame.operations().collect::<Result<_, _>>().expect("ops");
        assert_eq!(
            ops,
            [
                Op::Resolve {
                    channel: 3,
                    offset: 9,
                    freed: 40
                },
                Op::Seal { next_segment: 2 }
            ]
        );
        for cut in 0..bytes.len() {
            assert!(decode_frame(&bytes[..cut], 77).is_err(), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&bad, 77).is_err(), "bit {bit}");
        }
        assert!(
            decode_frame(&bytes, 78).is_err(),
            "another life of the file"
        );
    }

    #[test]
    fn zeros_are_never_a_frame() {
        for salt in [0, 1, 0xffff_ffff] {
            assert_eq!(
                decode_frame(&[0u8; 64], salt).err(),
                Some(FrameError::Header)
            );
        }
    }

    #[test]
    fn a_seal_fits_where_room_is_kept_for_it() {
        let mut builder = FrameBuilder::default();
        builder.clear();
        builder.push(&Op::Seal {
            next_segment: u64::MAX,
        });
        assert!(builder.frame_len() <= SEAL_FRAME_BYTES);
    }
}

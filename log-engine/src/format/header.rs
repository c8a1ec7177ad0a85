//! The first 4 KiB of a segment.
//!
//! ```text
//!    0  magic           8   "SAGUINLG"
//!    8  crc             u32 CRC32C of bytes 12..4096
//!   12  format version  u32
//!   16  engine id       16  random, the same in every segment of one log
//!   32  segment number  u64 from 1, rising by one
//!   40  first lsn       u64 of the prologue frame
//!   48  salt            u32 seeds the CRC of every frame in this file
//!   52  reserved        u32 zero
//!   56  capacity        u64 bytes of the file that may hold frames, header included
//!   64  written at      u64 Unix milliseconds
//!   72  writer          24  build that wrote it, ASCII, zero-padded
//!   96  zero to 4096
//! ```
//!
//! Magic, CRC and version keep their places in every future version, so any build can say which
//! format and which build wrote a file it cannot read.

/// Bytes of a segment before its first frame.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// The first eight bytes of every segment.
pub const MAGIC: [u8; 8] = *b"SAGUINLG";
/// The format this build reads and writes.
pub const FORMAT_VERSION: u32 = 1;
/// Room for the name of the build that wrote a segment.
pub const WRITER_BYTES: usize = 24;

/// A segment's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Random id of the log; a segment of another log is refused.
    pub engine_id: [u8; 16],
    /// From 1, rising by one.
    pub number: u64,
    /// LSN of the first frame in the file.
    pub first_lsn: u64,
    /// Seeds the CRC of every frame, so bytes left from an earlier life of the file never verify.
    pub salt: u32,
    /// Bytes of the file that may hold frames, the header included.
    pub capacity: u64,
    /// Unix milliseconds.
    pub written_at: u64,
    /// The build that wrote it, ASCII, zero-padded.
    pub writer: [u8; WRITER_BYTES],
}

/// Why a header was not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The file is shorter than a header.
    Short {
        /// Its length.
        found: usize,
    },
    /// It does not begin with the magic: not a segment of this program.
    Magic,
    /// The checksum does not match.
    Checksum {
        /// Stored in the file.
        expected: u32,
        /// Computed over the bytes.
        found: u32,
    },
    /// Whole, but of a format this build does not know.
    Version {
        /// The file's format.
        found: u32,
        /// The build that wrote it.
        writer: String,
    },
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HeaderError::Short { found } => write!(
                f,
                "segment header: expected {SEGMENT_HEADER_BYTES} bytes, found {found}"
            ),
            HeaderError::Magic => f.write_str("segment header: this is not a segment of this log"),
            HeaderError::Checksum { expected, found } => write!(
                f,
                "segment header checksum: expected {expected:08x}, found {found:08x}"
            ),
            HeaderError::Version { found, writer } => write!(
                f,
                "segment format {found}, written by {writer:?}; this build reads format {FORMAT_VERSION}"
            ),
        }
    }
}

impl std::error::Error for HeaderError {}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0u8; SEGMENT_HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.engine_id);
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_lsn.to_le_bytes());
        out[48..52].copy_from_slice(&self.salt.to_le_bytes());
        out[56..64].copy_from_slice(&self.capacity.to_le_bytes());
        out[64..72].copy_from_slice(&self.written_at.to_le_bytes());
        out[72..96].copy_from_slice(&self.writer);
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header back.
    ///
    /// # Errors
    /// [`HeaderError`], in the order: length, magic, checksum, version.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Err(HeaderError::Short { found: bytes.len() });
        };
        if bytes[0..8] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let expected = u32_at(bytes, 8);
        let found = crc32c::crc32c(&bytes[12..]);
        if expected != found {
            return Err(HeaderError::Checksum { expected, found });
        }
        let writer: [u8; WRITER_BYTES] = array_at(bytes, 72);
        let version = u32_at(bytes, 12);
        if version != FORMAT_VERSION {
            let writer = String::from_utf8_lossy(&writer)
                .trim_end_matches('\0')
                .to_owned();
            return Err(HeaderError::Version {
                found: version,
                writer,
            });
        }
        Ok(SegmentHeader {
            engine_id: array_at(bytes, 16),
            number: u64_at(bytes, 32),
            first_lsn: u64_at(bytes, 40),
            salt: u32_at(bytes, 48),
            capacity: u64_at(bytes, 56),
            written_at: u64_at(bytes, 64),
            writer,
        })
    }
}

/// Copies `N` bytes out of `bytes` at `at`; the caller has checked the length.
pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0u8; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SegmentHeader {
        let mut writer = [0u8; WRITER_BYTES];
        writer[..6].copy_from_slice(b"saguin");
        SegmentHeader {
            engine_id: [7; 16],
            number: 3,
            first_lsn: 41,
            salt: 0xdead_beef,
            capacity: 1 << 20,
            written_at: 1_700_000_000_000,
            writer,
        }
    }

    #[test]
    fn a_header_comes_back_and_any_flipped_byte_is_seen() {
        let bytes = sample().encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(sample()));
        for at in 0..SEGMENT_HEADER_BYTES {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(SegmentHeader::decode(&bad).is_err(), "byte {at}");
        }
        assert_eq!(
            SegmentHeader::decode(&bytes[..100]),
            Err(HeaderError::Short { found: 100 })
        );
    }

    #[test]
    fn an_unknown_version_is_named_with_its_writer() {
        let mut bytes = sample().encode();
        bytes[12] = 9;
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(
            SegmentHeader::decode(&bytes),
            Err(HeaderError::Version {
                found: 9,
                writer: "saguin".into()
            })
        );
    }
}

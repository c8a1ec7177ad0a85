//! A checkpoint: what maps, work sets and the keyspace hold, so that a log need not be replayed from
//! its beginning.
//!
//! ```text
//!    0  magic          8   "SAGUCKPT"
//!    8  crc            u32 CRC32C of bytes 12..96
//!   12  format version u32 1
//!   16  log id         16
//!   32  segment        u64 number of the segment whose prologue the replay begins with
//!   40  first lsn      u64 that prologue's
//!   48  written at     u64 Unix milliseconds
//!   56  zero           16
//!   72  writer         24  build that wrote it
//!   96  chunks: u32 length, then that many bytes
//!  −32  magic          8   "SAGUCEND"
//!  −24  crc            u32 CRC32C of everything else in the file
//!  −20  chunks         u32
//!  −16  reaches        u64 an lsn that was durable when this was written, also the file's name
//!   −8  chunk bytes    u64 all chunks with their lengths
//! ```
//!
//! Magic, CRC, version and writer lie where a segment's do. A chunk is a [`Chunk`], encoded by
//! `bincode` with fixed-width integers; the golden fixtures see to it that its bytes never change
//! unnoticed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::header::{array_at, u32_at, u64_at};
use super::{FORMAT_VERSION, WRITER_BYTES};

/// Bytes before the first chunk.
pub const CHECKPOINT_HEADER_BYTES: usize = 96;
/// Bytes after the last one.
pub const CHECKPOINT_TRAILER_BYTES: usize = 32;
/// Largest chunk, in bytes; a longer one is not believed.
pub const MAX_CHUNK_BYTES: usize = 8 << 20;

const MAGIC: [u8; 8] = *b"SAGUCKPT";
const END_MAGIC: [u8; 8] = *b"SAGUCEND";

/// Limits what a length in the bytes may claim before memory is taken for it.
const ENCODING: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<MAX_CHUNK_BYTES>,
> = bincode::config::standard()
    .with_fixed_int_encoding()
    .with_limit::<MAX_CHUNK_BYTES>();

/// Begins a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The log's id.
    pub engine_id: [u8; 16],
    /// Number of the segment whose prologue the replay begins with.
    pub segment: u64,
    /// That prologue's LSN.
    pub first_lsn: u64,
    /// Unix milliseconds.
    pub written_at: u64,
    /// Build that wrote it.
    pub writer: [u8; WRITER_BYTES],
}

/// Ends a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointTrailer {
    /// CRC32C of the rest of the file.
    pub crc: u32,
    /// How many chunks there are.
    pub chunks: u32,
    /// An LSN that was durable before the checkpoint was: a log that ends before it is damaged.
    pub reaches: u64,
    /// Bytes of the chunks, lengths included.
    pub chunk_bytes: u64,
}

/// Why bytes are not a checkpoint of this log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointError {
    /// Shorter than a checkpoint can be, or not one.
    Shape(&'static str),
    /// A checksum does not match.
    Checksum {
        /// Stored.
        expected: u32,
        /// Computed.
        found: u32,
    },
    /// A format this build does not know.
    Version {
        /// The version found.
        found: u32,
        /// Build that wrote it.
        writer: String,
    },
    /// A chunk cannot be read though the checksum matches.
    Chunk(String),
}

impl std::fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckpointError::Shape(what) => write!(f, "checkpoint: {what}"),
            CheckpointError::Checksum { expected, found } => write!(
                f,
                "checkpoint checksum: expected {expected:08x}, found {found:08x}"
            ),
            CheckpointError::Version { found, writer } => write!(
                f,
                "checkpoint format {found}, written by {writer:?}; this build reads format {FORMAT_VERSION}"
            ),
            CheckpointError::Chunk(why) => write!(f, "checkpoint: a chunk is not readable: {why}"),
        }
    }
}

impl std::error::Error for CheckpointError {}

impl CheckpointHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CHECKPOINT_HEADER_BYTES] {
        let mut out = [0u8; CHECKPOINT_HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.engine_id);
        out[32..40].copy_from_slice(&self.segment.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_lsn.to_le_bytes());
        out[48..56].copy_from_slice(&self.written_at.to_le_bytes());
        out[72..96].copy_from_slice(&self.writer);
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header back.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn decode(bytes: &[u8]) -> Result<CheckpointHeader, CheckpointError> {
        let Some(bytes) = bytes.get(..CHECKPOINT_HEADER_BYTES) else {
            return Err(CheckpointError::Shape("cut short in its header"));
        };
        if bytes[0..8] != MAGIC {
            return Err(CheckpointError::Shape("this is not one"));
        }
        let (expected, found) = (u32_at(bytes, 8), crc32c::crc32c(&bytes[12..]));
        if expected != found {
            return Err(CheckpointError::Checksum { expected, found });
        }
        let writer: [u8; WRITER_BYTES] = array_at(bytes, 72);
        let version = u32_at(bytes, 12);
        if version != FORMAT_VERSION {
            let writer = String::from_utf8_lossy(&writer)
                .trim_end_matches('\0')
                .to_owned();
            return Err(CheckpointError::Version {
                found: version,
                writer,
            });
        }
        Ok(CheckpointHeader {
            engine_id: array_at(bytes, 16),
            segment: u64_at(bytes, 32),
            first_lsn: u64_at(bytes, 40),
            written_at: u64_at(bytes, 48),
            writer,
        })
    }
}

impl CheckpointTrailer {
    /// The trailer's bytes, its checksum computed: `before` is the CRC32C of everything before it.
    #[must_use]
    pub fn encode(&self, before: u32) -> [u8; CHECKPOINT_TRAILER_BYTES] {
        let mut out = [0u8; CHECKPOINT_TRAILER_BYTES];
        out[0..8].copy_from_slice(&END_MAGIC);
        out[12..16].copy_from_slice(&self.chunks.to_le_bytes());
        out[16..24].copy_from_slice(&self.reaches.to_le_bytes());
        out[24..32].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        let crc = checksum(&out, before);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Whether bytes look like the trailer of a checkpoint of so many bytes of chunks, before any sum
    /// is computed over them.
    #[must_use]
    pub fn ends(bytes: &[u8; CHECKPOINT_TRAILER_BYTES], chunk_bytes: u64) -> bool {
        bytes[0..8] == END_MAGIC && u64_at(bytes, 24) == chunk_bytes
    }

    /// Reads a trailer back, and verifies it with the file before it: `before` is the CRC32C of
    /// that.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn decode(bytes: &[u8], before: u32) -> Result<CheckpointTrailer, CheckpointError> {
        if bytes.len() != CHECKPOINT_TRAILER_BYTES || bytes[0..8] != END_MAGIC {
            return Err(CheckpointError::Shape("cut short, its end is not there"));
        }
        let (expected, found) = (u32_at(bytes, 8), checksum(bytes, before));
        if expected != found {
            return Err(CheckpointError::Checksum { expected, found });
        }
        Ok(CheckpointTrailer {
            crc: expected,
            chunks: u32_at(bytes, 12),
            reaches: u64_at(bytes, 16),
            chunk_bytes: u64_at(bytes, 24),
        })
    }
}

fn checksum(trailer: &[u8], before: u32) -> u32 {
    let crc = crc32c::crc32c_append(before, &trailer[..8]);
    crc32c::crc32c_append(crc, &trailer[12..])
}

/// Some of what is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// Entries of a map, in offset order.
    Map {
        /// The map.
        channel: u32,
        /// Its entries.
        entries: Vec<MapItem>,
    },
    /// Jobs of a work set, in offset order.
    Work {
        /// The work set.
        channel: u32,
        /// Its jobs.
        jobs: Vec<JobItem>,
    },
    /// Values of the keyspace, in key order.
    Values(Vec<ValueItem>),
    /// Records that are held back, in key order.
    Holds(Vec<HoldItem>),
}

/// A map entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapItem {
    /// Key.
    pub key: Bytes,
    /// Offset.
    pub offset: u64,
    /// Segment number of its frame.
    pub segment: u32,
    /// Position of its frame.
    pub frame: u32,
    /// Counted size.
    pub size: u64,
    /// Unix milliseconds.
    pub timestamp: Option<u64>,
    /// The key was deleted.
    pub deletion: bool,
}

/// An unresolved job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobItem {
    /// Offset.
    pub offset: u64,
    /// Segment number of its frame.
    pub segment: u32,
    /// Position of its frame.
    pub frame: u32,
    /// Counted size.
    pub size: u64,
    /// Unix milliseconds.
    pub timestamp: Option<u64>,
    /// Attempts made.
    pub attempts: u32,
    /// First and latest attempt, Unix milliseconds.
    pub attempted: Option<(u64, u64)>,
}

/// A small value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueItem {
    /// Namespace.
    pub space: u8,
    /// Key.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Segment number of its frame.
    pub segment: u32,
    /// Position of its frame.
    pub frame: u32,
}

/// A record that is held back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldItem {
    /// Key.
    pub key: Bytes,
    /// Segment number of its frame.
    pub segment: u32,
    /// Position of its frame.
    pub frame: u32,
    /// Counted size.
    pub size: u64,
    /// Unix milliseconds.
    pub timestamp: Option<u64>,
}

impl Chunk {
    /// The chunk with its length before it.
    ///
    /// # Errors
    /// Where it is larger than [`MAX_CHUNK_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, CheckpointError> {
        let refused = |e: &dyn std::fmt::Display| CheckpointError::Chunk(e.to_string());
        let mut out =
            bincode::serde::encode_to_vec((0u32, self), ENCODING).map_err(|e| refused(&e))?;
        let len = out.len() - 4;
        if len > MAX_CHUNK_BYTES {
            return Err(refused(&"it is too large"));
        }
        out[..4].copy_from_slice(&(len as u32).to_le_bytes());
        Ok(out)
    }

    /// Reads one chunk back, without its length.
    ///
    /// # Errors
    /// [`CheckpointError::Chunk`].
    pub fn decode(bytes: &[u8]) -> Result<Chunk, CheckpointError> {
        let refused = |e: &dyn std::fmt::Display| CheckpointError::Chunk(e.to_string());
        let (chunk, read) =
            bincode::serde::decode_from_slice(bytes, ENCODING).map_err(|e| refused(&e))?;
        if read != bytes.len() {
            return Err(refused(&"bytes are left over"));
        }
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks() -> Vec<Chunk> {
        let entry = MapItem {
            key: Bytes::from_static(b"key"),
            offset: 7,
            segment: 2,
            frame: 4096,
            size: 12,
            timestamp: None,
            deletion: true,
        };
        let job = JobItem {
            offset: 9,
            segment: 2,
            frame: 4200,
            size: 30,
            timestamp: Some(5),
            attempts: 2,
            attempted: Some((6, 7)),
        };
        let value = ValueItem {
            space: 1,
            key: Bytes::from_static(b"a"),
            value: Bytes::from_static(b"value"),
            segment: 1,
            frame: 5000,
        };
        let hold = HoldItem {
            key: Bytes::from_static(b"k/7"),
            segment: 2,
            frame: 4300,
            size: 30,
            timestamp: Some(5),
        };
        vec![
            Chunk::Map {
                channel: 1,
                entries: vec![entry],
            },
            Chunk::Work {
                channel: 2,
                jobs: vec![job],
            },
            Chunk::Values(vec![value]),
            Chunk::Holds(vec![hold]),
        ]
    }

    #[test]
    fn chunks_come_back_and_no_cut_or_flip_panics_or_takes_memory() {
        for chunk in chunks() {
            let bytes = chunk.encode().expect("small");
            assert_eq!(
                u32_at(&bytes, 0) as usize,
                bytes.len() - 4,
                "its length before it"
            );
            assert_eq!(Chunk::decode(&bytes[4..]).as_ref(), Ok(&chunk));
            for cut in 4..bytes.len() {
                assert!(Chunk::decode(&bytes[4..cut]).is_err(), "cut at {cut}");
            }
            let mut huge = bytes[4..].to_vec();
            for at in 0..huge.len() {
                let was = std::mem::replace(&mut huge[at], 0xff);
                let _ = Chunk::decode(&huge);
                huge[at] = was;
            }
        }
    }

    #[test]
    fn header_and_trailer_come_back_and_every_flip_is_seen() {
        let header = CheckpointHeader {
            engine_id: [3; 16],
            segment: 4,
            first_lsn: 90,
            written_at: 1,
            writer: [b'w'; WRITER_BYTES],
        };
        let bytes = header.encode();
        assert_eq!(CheckpointHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert!(CheckpointHeader::decode(&bad).is_err(), "byte {at}");
        }
        let trailer = CheckpointTrailer {
            crc: 0,
            chunks: 2,
            reaches: 95,
            chunk_bytes: 1000,
        };
        let bytes = trailer.encode(77);
        let back = CheckpointTrailer::decode(&bytes, 77).expect("whole");
        assert_eq!((back.chunks, back.reaches, back.chunk_bytes), (2, 95, 1000));
        assert!(CheckpointTrailer::decode(&bytes, 78).is_err());
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert!(CheckpointTrailer::decode(&bad, 77).is_err(), "byte {at}");
        }
    }
}

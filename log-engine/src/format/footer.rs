//! The footer of a sealed segment: where the records of its sequences lie, so that opening a log
//! does not read its history.
//!
//! It follows the part of the file that may hold frames:
//!
//! ```text
//! capacity  body: v channels; for each: v channel, v runs; for each run, in offset order:
//!           v first offset − end of the run before it, v records, v counted bytes,
//!           v newest timestamp + 1 (0: a record has none), v position of the frame / 8
//!       −48 magic        8   "SAGUFOOT"
//!       −40 crc          u32 CRC32C of the body and of everything after this field, seeded with the
//!                            segment's salt
//!       −36 body length  u32
//!       −32 number       u64 the segment's
//!       −24 seal         u64 position of the frame that seals it
//!       −16 last lsn     u64 that frame's
//!        −8 zero         8
//! ```
//!
//! A footer is written after the seal is durable and says nothing that the frames do not say: one
//! that is missing, torn or damaged is written again from them.

use super::header::{u32_at, u64_at};
use super::varint;
use crate::state::{Anchor, Location};

/// Bytes of a footer after its body.
pub const FOOTER_TRAILER_BYTES: usize = 48;
/// A longer body is not believed: more than the runs of a segment of the largest size take.
pub const MAX_FOOTER_BYTES: usize = 256 << 20;

const MAGIC: [u8; 8] = *b"SAGUFOOT";

/// What lies in one sealed segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// The segment's number.
    pub segment: u64,
    /// Position of the frame that seals it.
    pub seal: u64,
    /// That frame's LSN.
    pub last_lsn: u64,
    /// Channels and their runs in this segment, in offset order.
    pub channels: Vec<(u32, Vec<Anchor>)>,
}

/// Why bytes are not the footer of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FooterError {
    /// The file ends where its frames do.
    Missing,
    /// Cut short, or not a footer.
    Trailer,
    /// The checksum does not match.
    Checksum {
        /// Stored.
        expected: u32,
        /// Computed.
        found: u32,
    },
    /// It is another segment's.
    Foreign {
        /// Number in it.
        found: u64,
    },
    /// A field is out of range.
    Field(&'static str),
}

impl std::fmt::Display for FooterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FooterError::Missing => f.write_str("there is no footer"),
            FooterError::Trailer => f.write_str("footer: cut short, or not one"),
            FooterError::Checksum { expected, found } => write!(
                f,
                "footer checksum: expected {expected:08x}, found {found:08x}"
            ),
            FooterError::Foreign { found } => {
                write!(f, "footer: it belongs to segment number {found}")
            }
            FooterError::Field(field) => write!(f, "footer: its {field} is not readable"),
        }
    }
}

impl std::error::Error for FooterError {}

impl Footer {
    /// The footer's bytes, to lie at the segment's capacity.
    #[must_use]
    pub fn encode(&self, salt: u32) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.channels.len() as u64);
        for (channel, runs) in &self.channels {
            varint::put(&mut out, u64::from(*channel));
            varint::put(&mut out, runs.len() as u64);
            let mut end = 0;
            for run in runs {
                varint::put(&mut out, run.offset - end);
                varint::put(&mut out, u64::from(run.records));
                varint::put(&mut out, run.bytes);
                varint::put(&mut out, run.newest.wrapping_add(1));
                varint::put(&mut out, u64::from(run.at.frame / 8));
                end = run.end();
            }
        }
        let body_len = out.len() as u32;
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&body_len.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.seal.to_le_bytes());
        out.extend_from_slice(&self.last_lsn.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        let crc = checksum(&out, salt);
        let at = out.len() - FOOTER_TRAILER_BYTES + 8;
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the footer of segment `number`; `bytes` are what follows the segment's capacity.
    ///
    /// # Errors
    /// [`FooterError`].
    pub fn decode(bytes: &[u8], salt: u32, number: u32) -> Result<Footer, FooterError> {
        if bytes.is_empty() {
            return Err(FooterError::Missing);
        }
        let body_len = bytes.len().checked_sub(FOOTER_TRAILER_BYTES);
        let body_len = body_len.ok_or(FooterError::Trailer)?;
        let (mut body, trailer) = bytes.split_at(body_len);
        if trailer[..8] != MAGIC || u32_at(trailer, 12) as usize != body_len {
            return Err(FooterError::Trailer);
        }
        let (expected, found) = (u32_at(trailer, 8), checksum(bytes, salt));
        if expected != found {
            return Err(FooterError::Checksum { expected, found });
        }
        let mut footer = Footer {
            segment: u64_at(trailer, 16),
            seal: u64_at(trailer, 24),
            last_lsn: u64_at(trailer, 32),
            channels: Vec::new(),
        };
        if footer.segment != u64::from(number) {
            let found = footer.segment;
            return Err(FooterError::Foreign { found });
        }
        let channels = take(&mut body, "channels")?;
        for _ in 0..channels {
            let channel = take(&mut body, "channel")?;
            let channel = u32::try_from(channel).map_err(|_| FooterError::Field("channel"))?;
            footer.channels.push((channel, runs(&mut body, number)?));
        }
        if !body.is_empty() {
            return Err(FooterError::Field("length"));
        }
        Ok(footer)
    }
}

fn runs(body: &mut &[u8], segment: u32) -> Result<Vec<Anchor>, FooterError> {
    let count = take(body, "runs")?;
    // Grows as runs are read: what a count claims is not memory.
    let mut runs = Vec::new();
    let mut end = 0u64;
    for _ in 0..count {
        let offset = take(body, "offset")?.checked_add(end);
        let records = u32::try_from(take(body, "records")?)
            .ok()
            .filter(|&n| n > 0);
        let bytes = take(body, "bytes")?;
        let newest = take(body, "timestamp")?.wrapping_sub(1);
        let frame = take(body, "position")?.checked_mul(8);
        let frame = frame.and_then(|at| u32::try_from(at).ok());
        let (Some(offset), Some(records), Some(frame)) = (offset, records, frame) else {
            return Err(FooterError::Field("run"));
        };
        end = offset
            .checked_add(u64::from(records))
            .ok_or(FooterError::Field("run"))?;
        runs.push(Anchor {
            offset,
            newest,
            bytes,
            at: Location { segment, frame },
            records,
        });
    }
    Ok(runs)
}

fn take(body: &mut &[u8], field: &'static str) -> Result<u64, FooterError> {
    varint::take(body).ok_or(FooterError::Field(field))
}

/// Of everything but the field that holds it.
fn checksum(bytes: &[u8], salt: u32) -> u32 {
    let field = bytes.len() - FOOTER_TRAILER_BYTES + 8;
    let before = crc32c::crc32c_append(salt, &bytes[..field]);
    crc32c::crc32c_append(before, &bytes[field + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Footer {
        let run = |offset, records, newest, frame| Anchor {
            offset,
            newest,
            bytes: 100,
            at: Location { segment: 3, frame },
            records,
        };
        Footer {
            segment: 3,
            seal: 9000,
            last_lsn: 77,
            channels: vec![
                (0, vec![run(5, 64, 1000, 4096), run(80, 1, u64::MAX, 8192)]),
                (9, vec![run(1, 2, 7, 4096)]),
            ],
        }
    }

    #[test]
    fn a_footer_comes_back_and_every_flip_and_cut_is_seen() {
        let bytes = sample().encode(5);
        assert_eq!(Footer::decode(&bytes, 5, 3), Ok(sample()));
        assert_eq!(
            Footer::decode(&bytes, 5, 4),
            Err(FooterError::Foreign { found: 3 })
        );
        assert!(Footer::decode(&bytes, 6, 3).is_err(), "another life");
        assert_eq!(Footer::decode(&[], 5, 3), Err(FooterError::Missing));
        for cut in 1..bytes.len() {
            assert!(Footer::decode(&bytes[..cut], 5, 3).is_err(), "cut at {cut}");
            assert!(Footer::decode(&bytes[cut..], 5, 3).is_err(), "from {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&bad, 5, 3).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_count_is_not_believed_before_there_are_bytes_for_it() {
        let mut footer = sample();
        footer.channels.clear();
        let empty = footer.encode(5);
        let mut bytes = Vec::new();
        varint::put(&mut bytes, u64::MAX);
        bytes.extend_from_slice(&empty[empty.len() - FOOTER_TRAILER_BYTES..]);
        let at = bytes.len() - FOOTER_TRAILER_BYTES;
        let len = at as u32;
        bytes[at + 12..at + 16].copy_from_slice(&len.to_le_bytes());
        let crc = checksum(&bytes, 5);
        bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(
            Footer::decode(&bytes, 5, 3),
            Err(FooterError::Field("channel"))
        );
    }
}

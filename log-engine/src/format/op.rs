//! Operations inside a frame.
//!
//! Each is a kind byte, then its fields: `v` is an unsigned LEB128 number in its shortest form,
//! `bytes` is `v` length and that many bytes. A *record* is
//! `v timestamp + 1 (0: none), v counted size, bytes body`.
//!
//! ```text
//!    1 define       v channel, u8 kind, bytes name
//!    2 state        v channel, u8 kind, bytes name, v next, v floor, v ceiling, v count, v bytes
//!    3 segments     v oldest segment that belongs to the log
//!    4 seal         v next segment
//!    5 ceiling      v channel, v ceiling
//!    6 skip         v channel, v next
//!    7 held         v count, v bytes
//!   16 append       v channel, v offset, record
//!   17 trim         v channel, v floor, v removed, v freed
//!   18 set          v channel, v offset, v replaced, bytes key, record
//!   19 remove       v channel, v offset, v replaced, bytes key, record
//!   20 forget       v channel, v offset, v freed, bytes key
//!   21 enqueue      v channel, v offset, record
//!   22 attempt      v channel, v offset, v attempts, v first, v last
//!   23 resolve      v channel, v offset, v freed
//!   24 dead letter  v work channel, v work offset, v freed, v channel, v offset, record
//!   25 put          u8 namespace, bytes key, bytes value
//!   26 delete       u8 namespace, bytes key
//!   27 move record  v channel, v offset, record
//!   28 move entry   v channel, v offset, u8 deletion, bytes key, record
//!   29 move job     v channel, v offset, v attempts, v first, v last, record
//!   30 hold         bytes key, record
//!   31 drop         v freed, bytes key
//!   32 move hold    bytes key, record
//! ```
//!
//! *freed* is the counted size of what goes; *replaced* is 0 where the key had no entry, else that
//! entry's counted size and 1. So the numbers can be followed from any segment on, though what went
//! was written in one that is gone. A *move* states again, at the same offset, what lies in a
//! segment that is to go. A *ceiling* says below which offset frames may be handed out before they are
//! synced, 0 that none are; a *skip* raises the next offset to it and sets it to 0.
//!
//! A kind this list does not have is an error: the frame was verified, so it is a newer build's.

use super::varint;

/// Longest channel name, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// What a channel is to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// An append log.
    Sequence = 1,
    /// Latest value per key.
    Map = 2,
    /// Unresolved jobs.
    Work = 3,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            1 => Some(Kind::Sequence),
            2 => Some(Kind::Map),
            3 => Some(Kind::Work),
            _ => None,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Sequence => "sequence",
            Kind::Map => "map",
            Kind::Work => "work set",
        })
    }
}

/// A record as it lies in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Unix milliseconds, where the caller gave one.
    pub timestamp: Option<u64>,
    /// Size charged against bounds, in bytes: the caller's figure, not the encoded length.
    pub size: u64,
    /// The caller's bytes.
    pub body: &'a [u8],
}

/// A channel's numbers, as a prologue restates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLine<'a> {
    /// Id.
    pub channel: u32,
    /// Kind.
    pub kind: Kind,
    /// Name.
    pub name: &'a [u8],
    /// The offset the next record takes.
    pub next: u64,
    /// The oldest readable offset.
    pub floor: u64,
    /// Offsets below this may have been handed out by frames that were not synced; zero where none
    /// were.
    pub ceiling: u64,
    /// Live records.
    pub count: u64,
    /// Their counted size.
    pub bytes: u64,
}

/// One change inside a frame. Documented field by field in the module's table.
#[allow(missing_docs, reason = "the module's table has every field")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    Define {
        channel: u32,
        kind: Kind,
        name: &'a [u8],
    },
    State(StateLine<'a>),
    Segments {
        oldest: u64,
    },
    Seal {
        next_segment: u64,
    },
    Ceiling {
        channel: u32,
        ceiling: u64,
    },
    Skip {
        channel: u32,
        next: u64,
    },
    Held {
        count: u64,
        bytes: u64,
    },
    Append {
        channel: u32,
        offset: u64,
        record: RecordRef<'a>,
    },
    Trim {
        channel: u32,
        floor: u64,
        removed: u64,
        freed: u64,
    },
    Set {
        channel: u32,
        offset: u64,
        replaced: Option<u64>,
        key: &'a [u8],
        record: RecordRef<'a>,
    },
    Remove {
        channel: u32,
        offset: u64,
        replaced: Option<u64>,
        key: &'a [u8],
        record: RecordRef<'a>,
    },
    Forget {
        channel: u32,
        offset: u64,
        freed: u64,
        key: &'a [u8],
    },
    Enqueue {
        channel: u32,
        offset: u64,
        record: RecordRef<'a>,
    },
    Attempt {
        channel: u32,
        offset: u64,
        attempts: u32,
        first: u64,
        last: u64,
    },
    Resolve {
        channel: u32,
        offset: u64,
        freed: u64,
    },
    DeadLetter {
        work: u32,
        work_offset: u64,
        freed: u64,
        channel: u32,
        offset: u64,
        record: RecordRef<'a>,
    },
    Put {
        space: u8,
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        space: u8,
        key: &'a [u8],
    },
    MoveRecord {
        channel: u32,
        offset: u64,
        record: RecordRef<'a>,
    },
    MoveEntry {
        channel: u32,
        offset: u64,
        deletion: bool,
        key: &'a [u8],
        record: RecordRef<'a>,
    },
    MoveJob {
        channel: u32,
        offset: u64,
        attempts: u32,
        attempted: Option<(u64, u64)>,
        record: RecordRef<'a>,
    },
    Hold {
        key: &'a [u8],
        record: RecordRef<'a>,
    },
    Drop {
        freed: u64,
        key: &'a [u8],
    },
    MoveHold {
        key: &'a [u8],
        record: RecordRef<'a>,
    },
}

/// A verified frame holds something this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpError {
    /// A kind byte this build does not know.
    UnknownKind {
        /// The byte.
        found: u8,
    },
    /// A field is cut short, out of range or not in its one encoding.
    Field {
        /// Kind byte of the operation.
        kind: u8,
        /// Which field.
        field: &'static str,
    },
    /// The operations do not end where the body does.
    Trailing {
        /// Bytes left over.
        bytes: usize,
    },
}

impl std::fmt::Display for OpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpError::UnknownKind { found } => write!(
                f,
                "operation kind {found} is unknown to this build; a newer one may have written it"
            ),
            OpError::Field { kind, field } => {
                write!(f, "operation kind {kind}: its {field} is not readable")
            }
            OpError::Trailing { bytes } => {
                write!(f, "{bytes} bytes follow the frame's last operation")
            }
        }
    }
}

impl std::error::Error for OpError {}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn plus_one(size: Option<u64>) -> u64 {
    size.map_or(0, |size| size.saturating_add(1))
}

fn put_record(out: &mut Vec<u8>, record: &RecordRef<'_>) {
    let timestamp = record.timestamp.map_or(0, |t| t.saturating_add(1));
    varint::put_all(out, [timestamp, record.size, record.body.len() as u64]);
    out.extend_from_slice(record.body);
}

impl Op<'_> {
    /// Appends the operation's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, numbers: &[u64]| {
            out.push(kind);
            for &n in numbers {
                varint::put(out, n);
            }
        };
        match *self {
            Op::Define {
                channel,
                kind,
                name,
            } => {
                head(1, &[channel.into()]);
                out.push(kind as u8);
                put_bytes(out, name);
            }
            Op::State(line) => {
                head(2, &[line.channel.into()]);
                out.push(line.kind as u8);
                put_bytes(out, line.name);
                for n in [line.next, line.floor, line.ceiling, line.count, line.bytes] {
                    varint::put(out, n);
                }
            }
            Op::Segments { oldest } => head(3, &[oldest]),
            Op::Seal { next_segment } => head(4, &[next_segment]),
            Op::Ceiling { channel, ceiling } => head(5, &[channel.into(), ceiling]),
            Op::Skip { channel, next } => head(6, &[channel.into(), next]),
            Op::Held { count, bytes } => head(7, &[count, bytes]),
            Op::Append {
                channel,
                offset,
                record,
            } => {
                // What there is most of, in as few pieces as can be: its kind is a number of one byte.
                varint::put_all(out, [16, channel.into(), offset]);
                put_record(out, &record);
            }
            Op::Trim {
                channel,
                floor,
                removed,
                freed,
            } => {
                head(17, &[channel.into(), floor, removed, freed]);
            }
            Op::Set {
                channel,
                offset,
                replaced,
                key,
                record,
            } => {
                head(18, &[channel.into(), offset, plus_one(replaced)]);
                put_bytes(out, key);
                put_record(out, &record);
            }
            Op::Remove {
                channel,
                offset,
                replaced,
                key,
                record,
            } => {
                head(19, &[channel.into(), offset, plus_one(replaced)]);
                put_bytes(out, key);
                put_record(out, &record);
            }
            Op::Forget {
                channel,
                offset,
                freed,
                key,
            } => {
                head(20, &[channel.into(), offset, freed]);
                put_bytes(out, key);
            }
            Op::Enqueue {
                channel,
                offset,
                record,
            } => {
                head(21, &[channel.into(), offset]);
                put_record(out, &record);
            }
            Op::Attempt {
                channel,
                offset,
                attempts,
                first,
                last,
            } => {
                head(22, &[channel.into(), offset, attempts.into(), first, last]);
            }
            Op::Resolve {
                channel,
                offset,
                freed,
            } => head(23, &[channel.into(), offset, freed]),
            Op::DeadLetter {
                work,
                work_offset,
                freed,
                channel,
                offset,
                record,
            } => {
                let numbers = [work.into(), work_offset, freed, channel.into(), offset];
                head(24, &numbers);
                put_record(out, &record);
            }
            Op::MoveRecord {
                channel,
                offset,
                record,
            } => {
                head(27, &[channel.into(), offset]);
                put_record(out, &record);
            }
            Op::MoveEntry {
                channel,
                offset,
                deletion,
                key,
                record,
            } => {
                head(28, &[channel.into(), offset]);
                out.push(u8::from(deletion));
                put_bytes(out, key);
                put_record(out, &record);
            }
            Op::MoveJob {
                channel,
                offset,
                attempts,
                attempted,
                record,
            } => {
                let (first, last) = attempted.unwrap_or_default();
                let numbers = [channel.into(), offset, attempts.into(), first, last];
                head(29, &numbers);
                put_record(out, &record);
            }
            Op::Hold { key, record } => {
                head(30, &[]);
                put_bytes(out, key);
                put_record(out, &record);
            }
            Op::Drop { freed, key } => {
                head(31, &[freed]);
                put_bytes(out, key);
            }
            Op::MoveHold { key, record } => {
                head(32, &[]);
                put_bytes(out, key);
                put_record(out, &record);
            }
            Op::Put { space, key, value } => {
                head(25, &[]);
                out.push(space);
                put_bytes(out, key);
                put_bytes(out, value);
            }
            Op::Delete { space, key } => {
                head(26, &[]);
                out.push(space);
                put_bytes(out, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ops::Ops;
    use super::*;

    pub(crate) fn one_of_each() -> Vec<Op<'static>> {
        let record = RecordRef {
            timestamp: Some(1_700_000_000_123),
            size: 40,
            body: b"body",
        };
        let bare = RecordRef {
            timestamp: None,
            size: 0,
            body: b"",
        };
        vec![
            Op::Define {
                channel: 1,
                kind: Kind::Work,
                name: b"jobs",
            },
            Op::State(StateLine {
                channel: 2,
                kind: Kind::Map,
                name: b"state",
                next: 300,
                floor: 1,
                ceiling: 0,
                count: 4,
                bytes: 1 << 40,
            }),
            Op::Segments { oldest: 3 },
            Op::Seal { next_segment: 9 },
            Op::Ceiling {
                channel: 4,
                ceiling: 8193,
            },
            Op::Skip {
                channel: 4,
                next: 8193,
            },
            Op::Append {
                channel: 0,
                offset: u64::MAX,
                record,
            },
            Op::Trim {
                channel: 1,
                floor: 10,
                removed: 9,
                freed: 360,
            },
            Op::Set {
                channel: 2,
                offset: 7,
                replaced: Some(0),
                key: b"a/b",
                record,
            },
            Op::Remove {
                channel: 2,
                offset: 8,
                replaced: None,
                key: b"a/b",
                record: bare,
            },
            Op::Forget {
                channel: 2,
                offset: 8,
                freed: 40,
                key: b"a/b",
            },
            Op::Enqueue {
                channel: 3,
                offset: 1,
                record,
            },
            Op::Attempt {
                channel: 3,
                offset: 1,
                attempts: 2,
                first: 5,
                last: 6,
            },
            Op::Resolve {
                channel: 3,
                offset: 1,
                freed: 40,
            },
            Op::DeadLetter {
                work: 3,
                work_offset: 1,
                freed: 40,
                channel: 4,
                offset: 1,
                record,
            },
            Op::Put {
                space: 2,
                key: b"k",
                value: b"v",
            },
            Op::Delete {
                space: 2,
                key: b"k",
            },
            Op::MoveRecord {
                channel: 4,
                offset: 1,
                record,
            },
            Op::MoveEntry {
                channel: 2,
                offset: 8,
                deletion: true,
                key: b"a/b",
                record: bare,
            },
            Op::MoveJob {
                channel: 3,
                offset: 2,
                attempts: 1,
                attempted: Some((5, 6)),
                record,
            },
            Op::Held {
                count: 2,
                bytes: 300,
            },
            Op::Hold { key: b"k", record },
            Op::Drop {
                freed: 40,
                key: b"k",
            },
            Op::MoveHold { key: b"k", record },
        ]
    }

    #[test]
    fn every_operation_comes_back_and_every_cut_is_seen() {
        for op in one_of_each() {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            assert_eq!(
                Ops::new(&bytes, 1).collect::<Result<Vec<_>, _>>(),
                Ok(vec![op])
            );
            for cut in 0..bytes.len() {
                let first = Ops::new(&bytes[..cut], 1).next();
                assert!(matches!(first, Some(Err(_))), "{op:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn bytes_after_the_last_operation_are_an_error_unless_padding() {
        let mut bytes = Vec::new();
        Op::Resolve {
            channel: 1,
            offset: 1,
            freed: 0,
        }
        .encode(&mut bytes);
        bytes.extend([0; 7]);
        assert!(Ops::new(&bytes, 1).all(|op| op.is_ok()));
        bytes.push(0);
        assert!(
            Ops::new(&bytes, 1).any(|op| op.is_err()),
            "eight zeros are not padding"
        );
        assert!(matches!(
            Ops::new(&[99], 1).next(),
            Some(Err(OpError::UnknownKind { found: 99 }))
        ));
    }
}

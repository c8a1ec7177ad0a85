//! The bytes of format 1. A change here is a change of what lies on people's disks: it needs a new
//! version, a reader for this one, and a line in rfcs/0004, not an edit of the expected strings.
#![allow(clippy::unwrap_used, missing_docs)]

use bytes::Bytes;
use saguin_log_engine::format::{
    CheckpointHeader, CheckpointTrailer, Chunk, FLAG_CLEAN, FLAG_PROLOGUE, FLAG_SEAL, Footer,
    FrameBuilder, HoldItem, JobItem, Kind, MapItem, Op, RecordRef, SegmentHeader, StateLine,
    ValueItem, WRITER_BYTES, decode_frame,
};
use saguin_log_engine::state::{Anchor, Location};

const SALT: u32 = 0x0bad_cafe;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn frame(ops: &[Op<'_>], lsn: u64, flags: u16) -> String {
    let mut builder = FrameBuilder::default();
    builder.clear();
    for op in ops {
        builder.push(op);
    }
    let bytes = builder.finish(lsn, lsn - 1, flags, SALT);
    assert!(
        decode_frame(bytes, SALT)
            .unwrap()
            .operations()
            .all(|op| op.is_ok())
    );
    hex(bytes)
}

const RECORD: RecordRef<'static> = RecordRef {
    timestamp: Some(1_764_500_000_123),
    size: 21,
    body: b"body",
};

#[test]
fn a_segment_header_has_the_documented_bytes() {
    let mut writer = [0u8; WRITER_BYTES];
    writer[..12].copy_from_slice(b"saguin 0.1.0");
    let header = SegmentHeader {
        engine_id: *b"0123456789abcdef",
        number: 2,
        first_lsn: 300,
        salt: SALT,
        capacity: 64 << 20,
        written_at: 1_764_500_000_000,
        writer,
    };
    let bytes = header.encode();
    assert_eq!(hex(&bytes[..96]), HEADER);
    assert!(bytes[96..].iter().all(|&b| b == 0));
}

#[test]
fn an_append_frame_has_the_documented_bytes() {
    let op = Op::Append {
        channel: 1,
        offset: 812,
        record: RECORD,
    };
    assert_eq!(frame(&[op], 41, 0), APPEND);
}

#[test]
fn an_empty_witness_a_clean_stop_and_a_seal_have_the_documented_bytes() {
    assert_eq!(frame(&[], 42, 0), WITNESS);
    assert_eq!(frame(&[], 43, FLAG_CLEAN), CLEAN);
    assert_eq!(frame(&[Op::Seal { next_segment: 3 }], 44, FLAG_SEAL), SEAL);
}

#[test]
fn a_prologue_has_the_documented_bytes() {
    let line = StateLine {
        channel: 1,
        kind: Kind::Sequence,
        name: b"events",
        next: 813,
        floor: 200,
        ceiling: 0,
        count: 613,
        bytes: 70_000,
    };
    let ops = [Op::Segments { oldest: 1 }, Op::State(line)];
    assert_eq!(frame(&ops, 45, FLAG_PROLOGUE), PROLOGUE);
}

#[test]
fn the_other_operations_have_the_documented_bytes() {
    let ops = [
        Op::Define {
            channel: 2,
            kind: Kind::Work,
            name: b"jobs",
        },
        Op::Trim {
            channel: 1,
            floor: 300,
            removed: 100,
            freed: 2100,
        },
        Op::Set {
            channel: 3,
            offset: 5,
            replaced: Some(30),
            key: b"a/b",
            record: RECORD,
        },
        Op::Remove {
            channel: 3,
            offset: 6,
            replaced: Some(21),
            key: b"a/b",
            record: RecordRef {
                timestamp: None,
                size: 19,
                body: b"",
            },
        },
        Op::Forget {
            channel: 3,
            offset: 6,
            freed: 19,
            key: b"a/b",
        },
        Op::Enqueue {
            channel: 2,
            offset: 1,
            record: RECORD,
        },
        Op::Attempt {
            channel: 2,
            offset: 1,
            attempts: 3,
            first: 1000,
            last: 2000,
        },
        Op::Resolve {
            channel: 2,
            offset: 1,
            freed: 21,
        },
        Op::DeadLetter {
            work: 2,
            work_offset: 2,
            freed: 21,
            channel: 4,
            offset: 1,
            record: RECORD,
        },
        Op::Put {
            space: 2,
            key: b"k",
            value: b"value",
        },
        Op::Delete {
            space: 2,
            key: b"k",
        },
        Op::MoveRecord {
            channel: 4,
            offset: 1,
            record: RECORD,
        },
        Op::MoveEntry {
            channel: 3,
            offset: 6,
            deletion: true,
            key: b"a/b",
            record: RECORD,
        },
        Op::MoveJob {
            channel: 2,
            offset: 3,
            attempts: 2,
            attempted: Some((1000, 2000)),
            record: RECORD,
        },
    ];
    assert_eq!(frame(&ops, 46, 0), OTHERS);
}

#[test]
fn a_footer_has_the_documented_bytes() {
    let run = |offset, records, newest, frame| Anchor {
        offset,
        newest,
        bytes: 1344,
        at: Location { segment: 2, frame },
        records,
    };
    let footer = Footer {
        segment: 2,
        seal: 60_000,
        last_lsn: 900,
        channels: vec![
            (
                1,
                vec![
                    run(812, 64, 1_764_500_000_123, 4136),
                    run(900, 1, u64::MAX, 8000),
                ],
            ),
            (4, vec![run(1, 2, 1000, 4136)]),
        ],
    };
    let bytes = footer.encode(SALT);
    assert_eq!(hex(&bytes), FOOTER);
    assert_eq!(Footer::decode(&bytes, SALT, 2), Ok(footer));
}

#[test]
fn a_checkpoint_has_the_documented_bytes() {
    let mut writer = [0u8; WRITER_BYTES];
    writer[..12].copy_from_slice(b"saguin 0.1.0");
    let header = CheckpointHeader {
        engine_id: *b"0123456789abcdef",
        segment: 2,
        first_lsn: 300,
        written_at: 1_764_500_000_000,
        writer,
    };
    let chunks = [
        Chunk::Map {
            channel: 3,
            entries: vec![MapItem {
                key: Bytes::from_static(b"a/b"),
                offset: 6,
                segment: 2,
                frame: 4136,
                size: 21,
                timestamp: Some(1_764_500_000_123),
                deletion: true,
            }],
        },
        Chunk::Work {
            channel: 2,
            jobs: vec![JobItem {
                offset: 3,
                segment: 1,
                frame: 5000,
                size: 21,
                timestamp: None,
                attempts: 2,
                attempted: Some((1000, 2000)),
            }],
        },
        Chunk::Values(vec![ValueItem {
            space: 2,
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"value"),
            segment: 1,
            frame: 4096,
        }]),
        Chunk::Holds(vec![HoldItem {
            key: Bytes::from_static(b"k/7"),
            segment: 1,
            frame: 4096,
            size: 21,
            timestamp: Some(1_764_500_000_123),
        }]),
    ];
    let mut bytes = header.encode().to_vec();
    for chunk in &chunks {
        bytes.extend_from_slice(&chunk.encode().unwrap());
    }
    let trailer = CheckpointTrailer {
        crc: 0,
        chunks: 4,
        reaches: 345,
        chunk_bytes: bytes.len() as u64 - 96,
    };
    let end = trailer.encode(crc32c::crc32c(&bytes));
    bytes.extend_from_slice(&end);
    assert_eq!(hex(&bytes), CHECKPOINT);
}

#[test]
fn a_ceiling_and_a_skip_have_the_documented_bytes() {
    let ops = [
        Op::Ceiling {
            channel: 300,
            ceiling: 8193,
        },
        Op::Skip {
            channel: 300,
            next: 8193,
        },
        Op::Ceiling {
            channel: 1,
            ceiling: 0,
        },
    ];
    assert_eq!(frame(&ops, 47, 0), CEILINGS);
}

#[test]
fn holds_and_what_a_prologue_says_of_them_have_the_documented_bytes() {
    let held = Op::Held {
        count: 2,
        bytes: 300,
    };
    let hold = Op::Hold {
        key: b"k/7",
        record: RECORD,
    };
    let drop = Op::Drop {
        freed: 21,
        key: b"k/7",
    };
    let moved = Op::MoveHold {
        key: b"k/7",
        record: RECORD,
    };
    assert_eq!(frame(&[held, hold, drop, moved], 47, 0), HOLDS);
}

const HEADER: &str = concat!(
    "53414755494e4c47deac12a001000000303132333435363738396162636465660200000000000000",
    "2c01000000000000fecaad0b000000000000000400000000004d65d49a01000073616775696e2030",
    "2e312e30000000000000000000000000",
);
const APPEND: &str = concat!(
    "736bd016100000002900000000000000280000000000000001000000000000001001ac06fc9a95a3",
    "ad331504626f6479",
);
const WITNESS: &str = "a466e634000000002a0000000000000029000000000000000000000000000000";
const CLEAN: &str = "aef3a42f000000002b000000000000002a000000000000000000040000000000";
const SEAL: &str =
    "ad364688080000002c000000000000002b0000000000000001000200000000000403000000000000";
const PROLOGUE: &str = concat!(
    "03ca4b53180000002d000000000000002c0000000000000002000100000000000301020101066576",
    "656e7473ad06c80100e504f0a2040000",
);
const CEILINGS: &str = concat!(
    "f67254f4100000002f000000000000002e00000000000000030000000000000005ac02814006ac02",
    "8140050100000000",
);
const OTHERS: &str = concat!(
    "fb43424ea80000002e000000000000002d000000000000000e00000000000000010203046a6f6273",
    "1101ac0264b4101203051f03612f62fc9a95a3ad331504626f64791303061603612f620013001403",
    "061303612f62150201fc9a95a3ad331504626f647916020103e807d00f17020115180202150401fc",
    "9a95a3ad331504626f64791902016b0576616c75651a02016b1b0401fc9a95a3ad331504626f6479",
    "1c03060103612f62fc9a95a3ad331504626f64791d020302e807d00ffc9a95a3ad331504626f6479",
);
const FOOTER: &str = concat!(
    "020102ac0640c00afc9a95a3ad3385041801c00a00e80704010102c00ae907850453414755464f4f",
    "54bdccaea721000000020000000000000060ea000000000000840300000000000000000000000000",
    "00",
);
const CHECKPOINT: &str = concat!(
    "53414755434b505432d8ab0001000000303132333435363738396162636465660200000000000000",
    "2c01000000000000004d65d49a0100000000000000000000000000000000000073616775696e2030",
    "2e312e300000000000000000000000003d0000000000000003000000010000000000000003000000",
    "00000000612f62060000000000000002000000281000001500000000000000017b4d65d49a010000",
    "013e0000000100000002000000010000000000000003000000000000000100000088130000150000",
    "0000000000000200000001e803000000000000d0070000000000002b000000020000000100000000",
    "0000000201000000000000006b050000000000000076616c75650100000000100000300000000300",
    "0000010000000000000003000000000000006b2f3701000000001000001500000000000000017b4d",
    "65d49a0100005341475543454e44f2942e66040000005901000000000000e600000000000000",
);
const HOLDS: &str = concat!(
    "353bbdfe300000002f000000000000002e0000000000000004000000000000000702ac021e036b2f",
    "37fc9a95a3ad331504626f64791f15036b2f3720036b2f37fc9a95a3ad331504626f647900000000",
);

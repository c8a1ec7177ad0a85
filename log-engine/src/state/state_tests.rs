//! The state against hostile but verified operations: an error, and nothing changed.

use super::*;

const AT: Location = Location {
    segment: 1,
    frame: 4096,
};

fn record(size: u64) -> RecordRef<'static> {
    RecordRef {
        timestamp: Some(5),
        size,
        body: b"x",
    }
}

fn state() -> State {
    let mut state = State::default();
    for (channel, kind, name) in [
        (0, Kind::Sequence, &b"log"[..]),
        (1, Kind::Map, b"map"),
        (2, Kind::Work, b"work"),
    ] {
        state
            .apply(
                &Op::Define {
                    channel,
                    kind,
                    name,
                },
                AT,
            )
            .expect("define");
    }
    state
}

#[test]
fn offsets_are_never_reused_even_when_everything_was_removed() {
    let mut s = state();
    for offset in 1..=3 {
        s.apply(
            &Op::Append {
                channel: 0,
                offset,
                record: record(10),
            },
            AT,
        )
        .expect("append");
    }
    s.apply(
        &Op::Trim {
            channel: 0,
            floor: 4,
            removed: 3,
            freed: 30,
        },
        AT,
    )
    .expect("trim");
    let numbers = s.channel(0).expect("channel").numbers;
    assert_eq!(
        (numbers.next, numbers.floor, numbers.count, numbers.bytes),
        (4, 4, 0, 0)
    );
    let reused = s.apply(
        &Op::Append {
            channel: 0,
            offset: 3,
            record: record(1),
        },
        AT,
    );
    assert_eq!(
        reused,
        Err(StateError::OffsetOutOfOrder {
            channel: 0,
            expected: 4,
            found: 3
        })
    );
}

#[test]
fn a_floor_never_falls_and_never_passes_the_end() {
    let mut s = state();
    s.apply(
        &Op::Append {
            channel: 0,
            offset: 1,
            record: record(10),
        },
        AT,
    )
    .expect("append");
    for floor in [0, 1, 3] {
        let op = Op::Trim {
            channel: 0,
            floor,
            removed: 0,
            freed: 0,
        };
        assert!(
            matches!(s.apply(&op, AT), Err(StateError::ImpossibleTrim { .. })),
            "{floor}"
        );
    }
}

#[test]
fn a_move_is_never_half_done() {
    let mut s = state();
    s.apply(
        &Op::Enqueue {
            channel: 2,
            offset: 1,
            record: record(7),
        },
        AT,
    )
    .expect("enqueue");
    let wrong_offset = Op::DeadLetter {
        work: 2,
        work_offset: 1,
        freed: 7,
        channel: 0,
        offset: 9,
        record: record(9),
    };
    assert!(s.apply(&wrong_offset, AT).is_err());
    assert_eq!(
        s.channel(2).expect("work").numbers.count,
        1,
        "the job is still there"
    );
    let no_job = Op::DeadLetter {
        work: 2,
        work_offset: 5,
        freed: 7,
        channel: 0,
        offset: 1,
        record: record(9),
    };
    assert!(s.apply(&no_job, AT).is_err());
    assert_eq!(
        s.channel(0).expect("log").numbers.next,
        1,
        "nothing was appended"
    );
    let good = Op::DeadLetter {
        work: 2,
        work_offset: 1,
        freed: 7,
        channel: 0,
        offset: 1,
        record: record(9),
    };
    s.apply(&good, AT).expect("moved");
    assert_eq!(s.channel(2).expect("work").numbers.bytes, 0);
    assert_eq!(s.channel(0).expect("log").numbers.bytes, 9);
}

#[test]
fn a_map_holds_one_entry_a_key_and_hands_out_changes_by_offset() {
    let mut s = state();
    for (offset, key, replaced) in [(1, &b"a"[..], None), (2, b"b", None), (3, b"a", Some(4))] {
        s.apply(
            &Op::Set {
                channel: 1,
                offset,
                replaced,
                key,
                record: record(4),
            },
            AT,
        )
        .expect("set");
    }
    s.apply(
        &Op::Remove {
            channel: 1,
            offset: 4,
            replaced: Some(4),
            key: b"b",
            record: record(1),
        },
        AT,
    )
    .expect("remove");
    let channel = s.channel(1).expect("map");
    assert_eq!((channel.numbers.count, channel.numbers.bytes), (2, 5));
    let Content::Map(map) = &channel.content else {
        panic!("a map")
    };
    let seen: Vec<_> = map
        .from_offset(2)
        .map(|(k, e)| (k.as_ref(), e.offset, e.deletion))
        .collect();
    assert_eq!(seen, [(&b"a"[..], 3, false), (&b"b"[..], 4, true)]);
    assert!(
        s.apply(
            &Op::Forget {
                channel: 1,
                offset: 2,
                freed: 4,
                key: b"b"
            },
            AT
        )
        .is_err(),
        "replaced since"
    );
    s.apply(
        &Op::Forget {
            channel: 1,
            offset: 4,
            freed: 1,
            key: b"b",
        },
        AT,
    )
    .expect("forget");
    assert_eq!(s.channel(1).expect("map").numbers.count, 1);
}

#[test]
fn a_prologue_that_disagrees_with_the_frames_before_it_is_refused() {
    let mut s = state();
    s.apply(
        &Op::Append {
            channel: 0,
            offset: 1,
            record: record(10),
        },
        AT,
    )
    .expect("append");
    let lines: Vec<_> = s
        .prologue()
        .filter_map(|op| {
            if let Op::State(line) = op {
                Some((line.channel, line.next))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(lines, [(0, 2), (1, 1), (2, 1)]);
    let mut line = s.channel(0).expect("channel").line(0);
    line.next = 5;
    let (channel, kind, next) = (line.channel, line.kind, line.next);
    let op = Op::State(StateLine {
        channel,
        kind,
        name: b"log",
        next,
        floor: 1,
        ceiling: 0,
        count: 1,
        bytes: 10,
    });
    assert!(matches!(
        s.apply(&op, AT),
        Err(StateError::PrologueDisagrees { channel: 0, .. })
    ));
}

#[test]
fn a_quiet_channel_has_an_anchor_a_record_and_a_busy_one_has_few() {
    let mut quiet = SequenceIndex::default();
    let mut busy = SequenceIndex::default();
    for i in 0..1000u32 {
        let far = Location {
            segment: 1,
            frame: 4096 + i * (sequence::ANCHOR_SPAN_BYTES + 8),
        };
        quiet.push(u64::from(i) + 1, &record(1), far);
        let near = Location {
            segment: 1,
            frame: 4096 + i * 40,
        };
        busy.push(u64::from(i) + 1, &record(1), near);
    }
    assert_eq!(quiet.anchors(), 1000);
    assert_eq!(busy.anchors(), 1000usize.div_ceil(64));
    let found = busy.from_offset(130).next().expect("anchor");
    assert!(found.offset <= 130 && found.offset + u64::from(found.records) > 130);
    busy.trim(130);
    assert!(busy.from_offset(1).next().expect("anchor").offset > 64);
}

#[test]
fn of_two_footers_that_name_a_record_the_later_one_counts() {
    let run = |offset, records, segment| Anchor {
        offset,
        newest: 5,
        bytes: u64::from(records) * 10,
        at: Location {
            segment,
            frame: 4096,
        },
        records,
    };
    let mut index = SequenceIndex::default();
    for run in [run(1, 64, 1), run(65, 36, 1), run(101, 10, 2)] {
        index.place(run);
    }
    // The records from 11 on were moved; those before them are below the floor by now.
    index.place(run(11, 90, 3));
    index.trim(11);
    let seen: Vec<_> = index
        .runs()
        .map(|a| (a.offset, a.records, a.at.segment))
        .collect();
    assert_eq!(seen, [(11, 90, 3), (101, 10, 2)]);
    assert_eq!(index.count(11), 100);
    // And some of those again.
    index.place(run(11, 20, 4));
    let seen: Vec<_> = index.runs().map(|a| (a.offset, a.end())).collect();
    assert_eq!(seen, [(11, 31), (31, 101), (101, 111)]);
}

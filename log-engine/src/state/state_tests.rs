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

fn hold(key: &'static [u8], size: u64) -> Op<'static> {
    Op::Hold {
        key,
        record: record(size),
    }
}

#[test]
fn what_is_held_counts_as_alive_until_it_is_dropped() {
    let mut s = state();
    s.apply(&hold(b"a", 10), AT).expect("hold");
    s.apply(&hold(b"b", 5), AT).expect("hold");
    assert_eq!((s.holds().count(), s.alive_bytes()), (2, 15));
    assert!(s.needs(1), "its segment stays");
    assert!(matches!(
        s.apply(&hold(b"a", 1), AT),
        Err(StateError::HeldTwice { .. })
    ));
    let wrong = Op::Drop {
        freed: 9,
        key: b"a",
    };
    assert!(matches!(
        s.apply(&wrong, AT),
        Err(StateError::NotHeld { .. })
    ));
    let later = Location {
        segment: 2,
        frame: 4096,
    };
    let moved = Op::MoveHold {
        key: b"b",
        record: record(5),
    };
    s.apply(&moved, later).expect("moved");
    let drop = Op::Drop {
        freed: 10,
        key: b"a",
    };
    s.apply(&drop, later).expect("drop");
    assert!(s.apply(&drop, later).is_err(), "once");
    assert!(!s.needs(1) && s.needs(2));
    assert_eq!((s.holds().count(), s.alive_bytes()), (1, 5));
}

#[test]
fn holds_from_before_the_replay_turn_up_or_are_missed() {
    let mut s = State::default();
    let held = |count, bytes| Op::Held { count, bytes };
    s.apply(&held(2, 12), AT).expect("where the replay begins");
    assert_eq!((s.holds().unseen(), s.alive_bytes()), (2, 12));
    let moved = Op::MoveHold {
        key: b"a",
        record: record(5),
    };
    s.apply(&moved, AT).expect("one of the two");
    assert!(s.holds().get(b"a").is_some());
    let too_much = Op::Drop {
        freed: 8,
        key: b"b",
    };
    assert!(s.apply(&too_much, AT).is_err(), "seven bytes are left");
    let drop = Op::Drop {
        freed: 7,
        key: b"b",
    };
    s.apply(&drop, AT).expect("the other");
    assert_eq!(s.holds().unseen(), 0);
    assert!(s.apply(&drop, AT).is_err(), "there were two");
    s.apply(&held(1, 5), AT).expect("as it adds up");
    assert!(matches!(
        s.apply(&held(2, 5), AT),
        Err(StateError::HoldsDisagree { .. })
    ));
}

#[test]
fn a_channel_knows_its_lowest_position_and_none_passes_its_end() {
    let mut s = state();
    for offset in 1..=3 {
        let append = Op::Append {
            channel: 0,
            offset,
            record: record(10),
        };
        s.apply(&append, AT).expect("append");
    }
    let put = |s: &mut State, who: &[u8], position: u64| {
        let key = crate::format::position_key(0, who);
        let value = crate::format::position_value(position);
        let op = Op::Put {
            space: POSITIONS,
            key: &key,
            value: &value,
        };
        s.apply(&op, AT)
    };
    assert_eq!(s.positions().of(0), (0, None));
    put(&mut s, b"a", 2).expect("put");
    put(&mut s, b"b", 2).expect("put");
    put(&mut s, b"c", 4).expect("at the end");
    assert_eq!(s.positions().of(0), (3, Some(2)));
    let ahead = StateError::PositionAhead {
        channel: 0,
        next: 4,
        found: 5,
    };
    assert_eq!(put(&mut s, b"a", 5), Err(ahead));
    put(&mut s, b"a", 3).expect("goes on");
    assert_eq!(s.positions().of(0), (3, Some(2)));
    put(&mut s, b"b", 4).expect("goes on");
    assert_eq!(s.positions().of(0), (3, Some(3)));
    let trim = Op::Trim {
        channel: 0,
        floor: 4,
        removed: 3,
        freed: 30,
    };
    s.apply(&trim, AT).expect("trim");
    assert_eq!(
        s.positions().of(0),
        (3, Some(3)),
        "below the floor is legal"
    );
    put(&mut s, b"d", 1).expect("stated again below the floor");
    for who in [b"a", b"b", b"c", b"d"] {
        let key = crate::format::position_key(0, who);
        let delete = Op::Delete {
            space: POSITIONS,
            key: &key,
        };
        s.apply(&delete, AT).expect("delete");
    }
    assert_eq!(s.positions().of(0), (0, None));
    let no_position = Op::Put {
        space: POSITIONS,
        key: b"abc",
        value: b"",
    };
    assert!(matches!(
        s.apply(&no_position, AT),
        Err(StateError::NoPosition { .. })
    ));
}

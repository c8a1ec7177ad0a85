//! What an engine kept is there after any stop: closed on purpose, or gone in the middle.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use bytes::Bytes;
use common::*;
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{Batch, CommitError, Operation, Options, ReadError, ReadLimit, Tidied};
use saguin_recovery::{Ending, RecoverError};

#[test]
fn records_come_back_from_file_and_from_cache_across_segments_and_restarts() {
    for tail_cache_bytes in [0, 2_000, 1 << 20] {
        let options = Options {
            tail_cache_bytes,
            ..options()
        };
        let files = MemFiles::new();
        let mut expected = Vec::new();
        for round in 0..4 {
            let (engine, _) = open_with(&files, &options).unwrap();
            let channels = define(&engine);
            for i in 0..50 {
                let body = format!("round {round} record {i}");
                let offset = append(&engine, channels.log, &body);
                expected.push((offset, body));
            }
            assert_eq!(bodies(&engine, channels.log, 1), expected);
            assert_eq!(bodies(&engine, channels.log, 33), expected[32..]);
        }
        assert!(segments(&files).len() > 4, "the test must roll");
        let offsets: Vec<u64> = expected.iter().map(|e| e.0).collect();
        assert_eq!(offsets, (1..=200).collect::<Vec<u64>>());
    }
}

#[test]
fn what_is_read_without_a_disk_is_known() {
    let options = Options {
        tail_cache_bytes: 1 << 20,
        ..options()
    };
    let files = MemFiles::new();
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let set = |engine: &saguin_log_engine::Engine, name: &'static str| {
        let op = Operation::Set {
            channel: c.map,
            key: Bytes::from_static(name.as_bytes()),
            record: record("value"),
        };
        engine.submit(op).wait().unwrap();
    };
    append(&engine, c.log, "1");
    set(&engine, "a");
    for (channel, next) in [(c.log, 2), (c.map, 2)] {
        assert!(
            engine.is_in_memory(channel, 1, 64),
            "it was stored just now"
        );
        assert!(engine.is_in_memory(channel, next, 64), "there is nothing");
    }
    drop(engine);
    let (engine, _) = open_with(&files, &options).unwrap();
    append(&engine, c.log, "2");
    set(&engine, "b");
    for channel in [c.log, c.map] {
        assert!(!engine.is_in_memory(channel, 1, 64), "it is in a file");
        assert!(engine.is_in_memory(channel, 2, 64));
    }
}

#[test]
fn a_process_that_dies_loses_nothing_it_acknowledged() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let channels = define(&engine);
    for i in 0..20 {
        append(&engine, channels.log, &format!("{i}"));
        // What the disk holds at this moment, seen by a process that knows nothing else.
        let (after, report) = open(&files.copy()).unwrap();
        assert_eq!(after.numbers(channels.log).unwrap().next, i + 2);
        assert_eq!(bodies(&after, channels.log, 1).len() as u64, i + 1);
        assert_eq!(report.ending, Ending::Whole { clean: false });
    }
    drop(engine);
    let (_, report) = open(&files).unwrap();
    assert_eq!(report.ending, Ending::Whole { clean: true });
}

#[test]
fn a_work_set_keeps_jobs_and_attempts_and_moves_them_in_one_step() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let enqueue = |body: &str| {
        let op = Operation::Enqueue {
            channel: c.work,
            record: record(body),
            max_bytes: None,
        };
        engine.submit(op).wait().unwrap().offsets[0].unwrap()
    };
    assert_eq!([enqueue("a"), enqueue("b"), enqueue("c")], [1, 2, 3]);
    let attempt = Operation::Attempt {
        channel: c.work,
        offset: 2,
        attempts: 4,
        first: 10,
        last: 40,
    };
    engine.submit(attempt).wait().unwrap();
    let resolve = Operation::Resolve {
        channel: c.work,
        offset: 1,
    };
    engine.submit(resolve.clone()).wait().unwrap();
    let moved = Operation::DeadLetter {
        work: c.work,
        offset: 3,
        channel: c.dead,
        record: record("c, dead"),
    };
    assert_eq!(
        engine.submit(moved.clone()).wait().unwrap().offsets,
        [Some(1)]
    );
    drop(engine);

    let (engine, _) = open(&files).unwrap();
    let left = engine.unresolved(c.work).unwrap();
    assert_eq!(
        left.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(
        (left[0].1.attempts, left[0].1.attempted),
        (4, Some((10, 40)))
    );
    assert_eq!(engine.job(c.work, 2).unwrap().unwrap().body, "b");
    assert_eq!(engine.job(c.work, 3).unwrap(), None);
    assert_eq!(bodies(&engine, c.dead, 1), [(1, "c, dead".to_owned())]);
    for gone in [resolve, moved] {
        assert!(matches!(
            engine.submit(gone).wait(),
            Err(CommitError::NoSuchItem { .. })
        ));
    }
    let next = Operation::Enqueue {
        channel: c.work,
        record: record("d"),
        max_bytes: None,
    };
    assert_eq!(
        engine.submit(next).wait().unwrap().offsets,
        [Some(4)],
        "3 is never used again"
    );
}

#[test]
fn a_map_keeps_the_latest_and_its_deletions() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let set = |key: &'static str, body: &str| {
        let key = Bytes::from_static(key.as_bytes());
        Operation::Set {
            channel: c.map,
            key,
            record: record(body),
        }
    };
    let remove = |key: &'static str| Operation::Remove {
        channel: c.map,
        key: Bytes::from_static(key.as_bytes()),
        record: record(""),
    };
    for op in [set("a", "1"), set("b", "2"), set("a", "3")] {
        engine.submit(op).wait().unwrap();
    }
    assert_eq!(
        engine.submit(remove("x")).wait().unwrap().offsets,
        [None],
        "nothing to delete"
    );
    assert_eq!(
        engine.submit(remove("b")).wait().unwrap().offsets,
        [Some(4)]
    );
    assert_eq!(
        engine.submit(remove("b")).wait().unwrap().offsets,
        [None],
        "already deleted"
    );
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    let all = ReadLimit {
        records: 10,
        bytes: 1000,
    };
    let seen: Vec<_> = engine
        .changes_from(c.map, 1, all)
        .unwrap()
        .records
        .into_iter()
        .map(|r| (r.offset, r.key, r.deletion, r.body))
        .collect();
    let (a, b) = (Bytes::from("a"), Bytes::from("b"));
    assert_eq!(
        seen,
        [
            (3, a, false, Bytes::from("3")),
            (4, b.clone(), true, Bytes::new())
        ]
    );
    let forget = |offset| Operation::Forget {
        channel: c.map,
        key: b.clone(),
        offset,
    };
    engine.submit(forget(2)).wait().unwrap();
    assert!(
        engine.get(c.map, b"b").unwrap().is_some(),
        "it is not the entry that was judged"
    );
    engine.submit(forget(4)).wait().unwrap();
    assert_eq!(engine.get(c.map, b"b").unwrap(), None);
    assert_eq!(engine.numbers(c.map).unwrap().count, 1);
}

#[test]
fn a_floor_moves_with_what_it_removes_and_nothing_below_it_is_served() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    for i in 1..=150 {
        append(&engine, c.log, &"x".repeat(i % 5));
    }
    let bytes_of = |range: std::ops::RangeInclusive<u64>| range.map(|i| i % 5).sum::<u64>();
    let early = engine.plan_trim(c.log, 40).unwrap().unwrap();
    let late = engine.plan_trim(c.log, 100).unwrap().unwrap();
    engine.submit(Operation::Trim(early)).wait().unwrap();
    assert!(matches!(
        engine.submit(Operation::Trim(late)).wait(),
        Err(CommitError::FloorMoved { floor: 40, .. })
    ));
    let numbers = engine.numbers(c.log).unwrap();
    assert_eq!(
        (numbers.floor, numbers.count, numbers.bytes),
        (40, 111, bytes_of(40..=150))
    );
    let again = engine.plan_trim(c.log, 101).unwrap().unwrap();
    engine.submit(Operation::Trim(again)).wait().unwrap();
    drop(engine);

    let (engine, _) = open(&files).unwrap();
    let numbers = engine.numbers(c.log).unwrap();
    assert_eq!(
        (numbers.floor, numbers.count, numbers.bytes),
        (101, 50, bytes_of(101..=150))
    );
    let limit = ReadLimit {
        records: 1,
        bytes: 1,
    };
    assert_eq!(
        engine.read_from(c.log, 100, limit).unwrap_err(),
        ReadError::BelowFloor { floor: 101 }
    );
    assert_eq!(bodies(&engine, c.log, 101).len(), 50);
    let all = engine.plan_trim(c.log, u64::MAX).unwrap().unwrap();
    engine.submit(Operation::Trim(all)).wait().unwrap();
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(
        append(&engine, c.log, "next"),
        151,
        "an emptied channel goes on counting"
    );
}

#[test]
fn the_moment_asked_for_is_found_though_clocks_step_back() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let times: Vec<u64> = (0..300)
        .map(|i| if i == 77 { 10_000 } else { 100 + i })
        .collect();
    for &t in &times {
        let mut record = record("r");
        record.timestamp = Some(t);
        engine
            .submit(Operation::Append {
                channel: c.log,
                record,
                max_bytes: None,
            })
            .wait()
            .unwrap();
    }
    let oracle = |floor: u64, t: u64| {
        let at = (floor..=300).find(|&o| times[o as usize - 1] >= t);
        at.unwrap_or(301)
    };
    for floor in [1, 60, 90] {
        if let Some(plan) = engine.plan_trim(c.log, floor).unwrap() {
            engine.submit(Operation::Trim(plan)).wait().unwrap();
        }
        for t in [0, 150, 177, 178, 399, 400, 10_000, 10_001] {
            assert_eq!(
                engine.at_or_after(c.log, t).unwrap(),
                oracle(floor, t),
                "{floor} {t}"
            );
        }
    }
}

#[test]
fn a_refused_batch_leaves_nothing_behind_and_fails_nobody_else() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let put = |n: &'static str| Operation::Append {
        channel: c.log,
        record: record(n),
        max_bytes: Some(10),
    };
    let bad = Batch {
        operations: vec![
            put("one"),
            Operation::Enqueue {
                channel: c.work,
                record: record("job"),
                max_bytes: None,
            },
            Operation::Resolve {
                channel: c.work,
                offset: 9,
            },
        ],
        ..Batch::default()
    };
    let tickets = [
        engine.submit(put("12345")),
        engine.submit(bad),
        engine.submit(put("67890")),
        engine.submit(put("x")),
    ];
    let outcomes: Vec<_> = tickets
        .into_iter()
        .map(saguin_log_engine::Ticket::wait)
        .collect();
    assert_eq!(outcomes[0].as_ref().unwrap().offsets, [Some(1)]);
    assert!(matches!(outcomes[1], Err(CommitError::NoSuchItem { .. })));
    assert_eq!(outcomes[2].as_ref().unwrap().offsets, [Some(2)]);
    assert!(matches!(
        outcomes[3],
        Err(CommitError::ChannelFull {
            bytes: 10,
            max_bytes: 10,
            ..
        })
    ));
    assert_eq!(engine.numbers(c.work).unwrap().next, 1);
}

#[test]
fn the_keyspace_comes_back() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let b = Bytes::from_static;
    let put = |space, key, value| Operation::Put { space, key, value };
    engine.submit(put(1, b(b"a"), b(b"1"))).wait().unwrap();
    engine.submit(put(1, b(b"ab"), b(b"2"))).wait().unwrap();
    engine.submit(put(3, b(b"a"), b(b"3"))).wait().unwrap();
    engine
        .submit(Operation::Delete {
            space: 1,
            key: b(b"a"),
        })
        .wait()
        .unwrap();
    engine
        .submit(Operation::Delete {
            space: 1,
            key: b(b"zz"),
        })
        .wait()
        .unwrap();
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(engine.value(1, b"a"), None);
    assert_eq!(engine.values(1, b"a"), [(b(b"ab"), b(b"2"))]);
    assert_eq!(engine.value(3, b"a"), Some(b(b"3")));
}

#[test]
fn a_record_larger_than_a_segment_gets_a_segment_of_its_own() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append(&engine, c.log, "small");
    let big = "B".repeat(100_000);
    append(&engine, c.log, &big);
    append(&engine, c.log, "small again");
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    let seen = bodies(&engine, c.log, 1);
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[1].1, big);
}

#[test]
fn a_second_opener_is_refused_and_the_first_goes_on() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let second = open(&files).unwrap_err();
    assert!(matches!(&second, RecoverError::Locked { path } if path.ends_with("saguin.lock")));
    let c = define(&engine);
    append(&engine, c.log, "still");
    drop(engine);
    open(&files).unwrap();
}

#[test]
fn a_name_keeps_its_kind() {
    use saguin_log_engine::format::Kind;
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let id = engine.define("x", Kind::Map).unwrap();
    assert_eq!(engine.define("x", Kind::Map).unwrap(), id);
    assert_eq!(engine.define("x", Kind::Work), Err(CommitError::BadName));
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(engine.define("x", Kind::Map).unwrap(), id);
}

#[test]
fn readers_that_stop_in_the_middle_of_a_frame_go_on_there() {
    let files = MemFiles::new();
    let options = Options {
        segment_bytes: 1 << 20,
        ..options()
    };
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let append = |channel, i: u64| Operation::Append {
        channel,
        record: record(&format!("record {i}")),
        max_bytes: None,
    };
    // Frames of many records of two channels, and some of one record.
    for batch in 0..4 {
        let operations = (1..=150)
            .flat_map(|i| {
                let i = batch * 151 + i;
                [append(c.log, i), append(c.dead, i)]
            })
            .collect();
        let batch_of_many = Batch {
            operations,
            ..Batch::default()
        };
        engine.submit(batch_of_many).wait().unwrap();
        for channel in [c.log, c.dead] {
            engine
                .submit(append(channel, batch * 151 + 151))
                .wait()
                .unwrap();
        }
    }
    let mut readers: Vec<_> = [
        (c.log, 1),
        (c.dead, 1),
        (c.log, 7),
        (c.dead, 50),
        (c.log, 300),
    ]
    .into_iter()
    .zip([1usize, 3, 7, 64, 200])
    .map(|((channel, from), step)| (channel, from, step))
    .collect();
    let mut reading = true;
    while reading {
        reading = false;
        for (channel, next, step) in &mut readers {
            let limit = ReadLimit {
                records: *step,
                bytes: u64::MAX,
            };
            let read = engine.read_from(*channel, *next, limit).unwrap().records;
            assert!(read.len() == *step || *next + *step as u64 > 604);
            for record in &read {
                assert_eq!(record.offset, *next);
                assert_eq!(record.body, format!("record {next}").as_bytes());
                *next += 1;
            }
            reading |= !read.is_empty();
        }
    }
    assert!(readers.iter().all(|(_, next, _)| *next == 605));
    // Where somebody stopped is no way around a floor.
    let one = ReadLimit {
        records: 10,
        bytes: u64::MAX,
    };
    engine.read_from(c.log, 1, one).unwrap();
    let plan = engine.plan_trim(c.log, 20).unwrap().unwrap();
    engine.submit(Operation::Trim(plan)).wait().unwrap();
    let refused = engine.read_from(c.log, 11, one).unwrap_err();
    assert_eq!(refused, ReadError::BelowFloor { floor: 20 });
}

#[test]
fn a_dead_segments_file_becomes_the_next_one() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let mut renewed = 0;
    let mut kept = 0;
    for i in 0..200u64 {
        append(&engine, c.log, &format!("a record with number {i}"));
        if i >= 20 {
            let plan = engine.plan_trim(c.log, i - 10).unwrap();
            engine
                .submit(Operation::Trim(plan.unwrap()))
                .wait()
                .unwrap();
        }
        let before = segments(&files).len();
        while engine.tidy().unwrap() != Tidied::Nothing {}
        let spent: Vec<_> = files
            .list(&std::path::Path::new(DIR).join("log"))
            .unwrap()
            .into_iter()
            .filter(|name| name.starts_with("spent-"))
            .collect();
        assert!(spent.len() <= 1, "{spent:?}");
        renewed += usize::from(before > segments(&files).len() && !spent.is_empty());
        kept = segments(&files).len();
    }
    assert!(renewed > 3, "{renewed}");
    assert!(kept < 8, "{kept}");
    let expected: Vec<_> = (189..=200)
        .map(|n| (n, format!("a record with number {}", n - 1)))
        .collect();
    assert_eq!(bodies(&engine, c.log, 189), expected);
    drop(engine);
    let names = files.list(&std::path::Path::new(DIR).join("log")).unwrap();
    assert!(names.iter().all(|name| name.ends_with(".seg")), "{names:?}");
    let (engine, report) = open(&files).unwrap();
    assert_eq!(report.contradiction, None);
    assert_eq!(bodies(&engine, c.log, 189), expected);
}

//! Batches that are acknowledged before they are synced: what a power cut may take of them, and that
//! an offset they were given is never given again.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::disk::{CutDisk, Image};
use common::*;
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{
    Batch, ChannelId, CommitError, Durability, Engine, EngineCounters, Operation, Options,
    PublishCommit, ReadLimit,
};
use saguin_recovery::{Ending, recover};

/// What the engine promises to keep between a channel's next offset and its ceiling.
const BLOCK: u64 = 4096;

/// One segment, so that only what is asked for is synced.
fn roomy() -> Options {
    Options {
        segment_bytes: 1 << 20,
        ..options()
    }
}

fn start(disk: &CutDisk) -> Engine {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    recover(&fs, Path::new(DIR), &options()).unwrap().0
}

fn append_op(channel: ChannelId, body: &str) -> Operation {
    Operation::Append {
        channel,
        record: record(body),
        max_bytes: None,
    }
}

#[test]
fn an_interval_batch_is_read_at_once_and_synced_when_asked() {
    let files = MemFiles::new();
    let (engine, _) = open_with(&files, &roomy()).unwrap();
    let c = define(&engine);
    assert_eq!(append_interval(&engine, c.log, "first"), 1);
    let before = files.syncs();
    for i in 2..=100 {
        let body = format!("{i}");
        assert_eq!(append_interval(&engine, c.log, &body), i);
        assert_eq!(bodies(&engine, c.log, i), [(i, body)]);
    }
    assert_eq!(files.syncs(), before, "acknowledged without a sync");
    engine.flush().unwrap();
    assert_eq!(files.syncs(), before + 1, "one for all of them");
    engine.flush().unwrap();
    assert_eq!(files.syncs(), before + 1, "there is nothing to sync");
}

#[test]
fn what_a_batch_without_effect_builds_on_is_durable_before_it_is_acknowledged() {
    let files = MemFiles::new();
    let (engine, _) = open_with(&files, &roomy()).unwrap();
    let c = define(&engine);
    let remove = || Operation::Remove {
        channel: c.map,
        key: "key".into(),
        record: record(""),
    };
    let set = Operation::Set {
        channel: c.map,
        key: "key".into(),
        record: record("value"),
    };
    engine.submit(set).wait().unwrap();
    let set_again = Operation::Set {
        channel: c.map,
        key: "key".into(),
        record: record("newer"),
    };
    // The first raises the ceiling and is synced for it, the second is not.
    engine.submit(interval(set_again)).wait().unwrap();
    engine.submit(interval(remove())).wait().unwrap();
    let before = files.syncs();
    let again = engine.submit(remove()).wait().unwrap();
    assert_eq!(again.offsets, [None], "it is deleted already");
    assert_eq!(files.syncs(), before + 1, "and that is durable now");
    let put = |value: &'static str| Operation::Put {
        space: 1,
        key: "k".into(),
        value: value.into(),
    };
    let delete = || Operation::Delete {
        space: 1,
        key: "k".into(),
    };
    engine.submit(put("v")).wait().unwrap();
    engine.submit(interval(delete())).wait().unwrap();
    let before = files.syncs();
    engine.submit(delete()).wait().unwrap();
    assert_eq!(files.syncs(), before + 1, "the deletion is durable now");
}

#[test]
fn a_clock_syncs_what_is_written_though_more_keeps_coming() {
    let files = MemFiles::new();
    let options = Options {
        flush_interval: Duration::from_millis(10),
        ..roomy()
    };
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    append_interval(&engine, c.log, "ceiling");
    let before = files.syncs();
    // Idle: nothing else comes, and it is synced.
    append_interval(&engine, c.log, "alone");
    while files.syncs() == before {
        std::thread::yield_now();
    }
    // Under load: something always waits, and it is synced all the same. A key takes no offset, so no
    // ceiling is the reason.
    let before = files.syncs();
    while files.syncs() < before + 2 {
        let put = Operation::Put {
            space: 1,
            key: "k".into(),
            value: "v".into(),
        };
        let tickets: Vec<_> = (0..10)
            .map(|_| engine.submit(interval(put.clone())))
            .collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
    }
}

#[test]
fn a_ceiling_costs_one_sync_in_a_block_of_offsets() {
    let files = MemFiles::new();
    let (engine, _) = open_with(
        &files,
        &Options {
            segment_bytes: 8 << 20,
            ..options()
        },
    )
    .unwrap();
    let c = define(&engine);
    let before = files.syncs();
    let batches = 100;
    let in_one = 200;
    for _ in 0..batches {
        let batch = Batch {
            operations: vec![append_op(c.log, "x"); in_one],
            durability: Durability::Interval,
        };
        engine.submit(batch).wait().unwrap();
    }
    let records = batches * in_one as u64;
    let numbers = engine.numbers(c.log).unwrap();
    assert_eq!(numbers.next, records + 1);
    assert!(numbers.ceiling >= numbers.next + BLOCK - 1);
    let syncs = files.syncs() - before;
    assert!(syncs <= 1 + records / BLOCK, "{syncs} syncs");
    assert!(syncs > 1, "it is raised again");
}

/// What was promised at some moment of the scenario.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    /// Records that a power cut must not take.
    durable: u64,
    /// The next offset anybody was shown.
    shown: u64,
}

/// Appends, mostly unsynced, over several segments; some synced, some flushed.
fn scenario(disk: &CutDisk) -> Vec<Promised> {
    let engine = start(disk);
    let c = define(&engine);
    let mut moments = vec![Promised::default()];
    for n in 1..=40 {
        let body = format!("record {n}");
        let mut now = *moments.last().unwrap();
        if n % 11 == 0 {
            assert_eq!(append(&engine, c.log, &body), n);
            now.durable = n;
        } else {
            assert_eq!(append_interval(&engine, c.log, &body), n);
        }
        if n % 13 == 0 {
            engine.flush().unwrap();
            now.durable = n;
        }
        now.shown = n + 1;
        moments.push(now);
        disk.acknowledge(moments.len() - 1);
    }
    moments
}

/// The first records, at least what is durable, and the next one takes an offset nobody was shown.
fn check(engine: &Engine, promised: Promised) {
    let Some((log, _)) = engine.channel_named(b"log") else {
        assert_eq!(promised.durable, 0);
        return;
    };
    let seen = bodies(engine, log, 1);
    assert!(seen.len() as u64 >= promised.durable, "{promised:?}");
    for (i, (offset, body)) in (1..).zip(&seen) {
        assert_eq!((*offset, body), (i, &format!("record {i}")), "no hole");
    }
    let numbers = engine.numbers(log).unwrap();
    assert!(numbers.next >= promised.shown, "{numbers:?} {promised:?}");
    assert_eq!(numbers.ceiling, 0, "it is skipped to before anybody reads");
    assert_eq!(numbers.count, seen.len() as u64);
}

#[test]
fn a_power_cut_takes_the_newest_unsynced_records_and_never_an_offset() {
    let disk = CutDisk::default();
    let moments = scenario(&disk);
    let images = disk.take_images();
    let (mut lost, mut skipped_twice, mut second_cuts) = (0, 0, 0);
    for (i, image) in images.iter().enumerate() {
        let promised = moments[image.acknowledged];
        let engine = start_from(image, i);
        check(&engine, promised);
        let c = define(&engine);
        let seen = bodies(&engine, c.log, 1).len() as u64;
        lost += usize::from(seen + 1 < promised.shown);
        let next = engine.numbers(c.log).unwrap().next;
        assert_eq!(append_interval(&engine, c.log, "afterwards"), next);
        drop(engine);
        if i % 7 == 0 {
            let again = CutDisk::with(image);
            let engine = start(&again);
            let next = engine
                .channel_named(b"log")
                .map(|(log, _)| engine.numbers(log));
            drop(engine);
            // The clean stop too: whatever it wrote, the skip is made once.
            for image in again.take_images() {
                second_cuts += 1;
                let engine = start_from(&image, i);
                check(&engine, promised);
                let now = engine
                    .channel_named(b"log")
                    .map(|(log, _)| engine.numbers(log));
                skipped_twice +=
                    usize::from(now.map(|n| n.unwrap().next) != next.map(|n| n.unwrap().next));
            }
        }
    }
    assert!(lost > 20, "{lost} images lost something that was shown");
    assert!(second_cuts > 100, "{second_cuts}");
    assert_eq!(skipped_twice, 0, "a cut in between changes nothing");
}

fn start_from(image: &Image, i: usize) -> Engine {
    match open(&image.mount()) {
        Ok((engine, _)) => engine,
        Err(error) => panic!("image {i}, moment {}: {error}", image.acknowledged),
    }
}

#[test]
fn offsets_of_a_lost_tail_are_not_given_again_in_a_second_life_either() {
    let disk = CutDisk::default();
    let engine = start(&disk);
    let c = define(&engine);
    for n in 1..=3 {
        append_interval(&engine, c.log, &format!("record {n}"));
    }
    // The engine is still there when the power goes, and says nothing more.
    let mut disk = disk.cut();
    let mut highest = 3;
    for life in 0..3 {
        let engine = start(&disk);
        for _ in 0..4 {
            let offset = append_interval(&engine, c.log, "later");
            assert!(offset > highest, "life {life}: {offset} was given before");
            highest = offset;
        }
        let cut = disk.cut();
        drop(engine);
        disk = cut;
    }
}

#[test]
fn a_process_that_dies_loses_nothing_that_was_acknowledged_unsynced() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    for n in 1..=30 {
        append_interval(&engine, c.log, &format!("record {n}"));
    }
    let (after, _) = open(&files.copy()).unwrap();
    assert_eq!(bodies(&after, c.log, 1), bodies(&engine, c.log, 1));
    assert!(append(&after, c.log, "next") > 30);
}

#[test]
fn a_clean_stop_leaves_no_gap_and_a_channel_without_unsynced_batches_never_has_one() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    for n in 1..=10 {
        assert_eq!(append_interval(&engine, c.log, "x"), n);
        assert_eq!(append(&engine, c.dead, "x"), n);
    }
    let died = files.copy();
    drop(engine);
    let (engine, report) = open(&files).unwrap();
    assert_eq!(report.ending, Ending::Whole { clean: true });
    assert_eq!(append_interval(&engine, c.log, "x"), 11);
    assert_eq!(append(&engine, c.dead, "x"), 11);
    let (engine, _) = open(&died).unwrap();
    assert!(append(&engine, c.log, "x") > 11);
    assert_eq!(append(&engine, c.dead, "x"), 11, "every offset was synced");
}

#[test]
fn readers_pass_a_gap_and_miss_nothing_beyond_it() {
    for tail_cache_bytes in [0, 1 << 20] {
        let options = Options {
            tail_cache_bytes,
            ..options()
        };
        let files = MemFiles::new();
        let (engine, _) = open_with(&files, &options).unwrap();
        let c = define(&engine);
        for _ in 0..3 {
            append_interval(&engine, c.log, "before");
        }
        let (engine, _) = open_with(&files.copy(), &options).unwrap();
        let after = append(&engine, c.log, "the first one after");
        assert!(after > 1000);
        append(&engine, c.log, "the second");
        let one = ReadLimit {
            records: 1,
            bytes: 1,
        };
        for from in [4, 5, 4097, after - 1, after] {
            let read = engine.read_from(c.log, from, one).unwrap();
            assert_eq!(read.records[0].offset, after, "from {from}");
        }
        assert_eq!(engine.at_or_after(c.log, 1010), Ok(after));
        let into_gap = engine.plan_trim(c.log, 2000).unwrap().unwrap();
        assert_eq!(into_gap.removed(), 3);
        engine.submit(Operation::Trim(into_gap)).wait().unwrap();
        let numbers = engine.numbers(c.log).unwrap();
        assert_eq!((numbers.floor, numbers.count), (2000, 2));
        assert_eq!(bodies(&engine, c.log, 2000).len(), 2);
        let beyond = engine.plan_trim(c.log, after + 1).unwrap().unwrap();
        assert_eq!(beyond.removed(), 1, "counted from inside the gap");
    }
}

#[test]
fn a_failed_flush_stops_the_engine() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append_interval(&engine, c.log, "shown");
    append_interval(&engine, c.log, "shown and not synced");
    files.fail_syncs(Some(ErrorKind::Other));
    assert!(matches!(engine.flush(), Err(CommitError::Failed(_))));
    files.fail_syncs(None);
    assert!(matches!(engine.flush(), Err(CommitError::Failed(_))));
    let refused = engine.submit(interval(append_op(c.log, "never"))).wait();
    assert!(matches!(refused, Err(CommitError::Failed(_))));
    assert_eq!(engine.counters().poisoned, 1);
    assert_eq!(bodies(&engine, c.log, 1).len(), 2, "reads go on");
}

#[test]
fn a_flush_that_the_clock_asks_for_and_that_fails_stops_the_engine() {
    let files = MemFiles::new();
    let options = Options {
        flush_interval: Duration::from_millis(10),
        ..options()
    };
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    append_interval(&engine, c.log, "synced with its ceiling");
    files.fail_syncs(Some(ErrorKind::Other));
    let shown = engine.submit(interval(append_op(c.log, "shown"))).wait();
    shown.unwrap();
    while engine.failure().is_none() {
        std::thread::yield_now();
    }
    let refused = engine.submit(interval(append_op(c.log, "never"))).wait();
    assert!(matches!(refused, Err(CommitError::Failed(_))));
}

/// Submits batches that share a frame.
fn together(engine: &Arc<Engine>, batches: Vec<Batch>) {
    let (sent, done) = channel();
    let inside = engine.clone();
    let count = batches.len();
    // On the commit thread, which therefore finds them all together.
    let submit = Box::new(move |_| {
        for batch in batches {
            let sent = sent.clone();
            let answer = Box::new(move |outcome| sent.send(outcome).unwrap());
            inside.submit_with(batch, answer);
        }
    });
    engine.submit_with(Batch::default(), submit);
    for _ in 0..count {
        done.recv().unwrap().unwrap();
    }
}

#[test]
fn a_frame_in_which_anybody_asks_for_a_sync_is_synced_whole() {
    let disk = CutDisk::quiet();
    let engine = Arc::new(start(&disk));
    let c = define(&engine);
    append_interval(&engine, c.log, "one");
    append_interval(&engine, c.log, "two");
    together(
        &engine,
        vec![
            interval(append_op(c.log, "three")),
            append_op(c.dead, "synced").into(),
            interval(append_op(c.log, "four")),
        ],
    );
    let after = start(&disk.cut());
    assert_eq!(bodies(&after, c.log, 1).len(), 4);
    assert_eq!(bodies(&after, c.dead, 1).len(), 1);
}

#[test]
fn a_frame_without_room_is_undone_and_takes_no_unsynced_frame_before_it() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    for n in 1..=3 {
        append_interval(&engine, c.log, &format!("kept {n}"));
    }
    for durability in [Durability::Interval, Durability::Sync] {
        files.fail_writes(ErrorKind::StorageFull, 1);
        let batch = Batch {
            operations: vec![append_op(c.log, &"no room ".repeat(20))],
            durability,
        };
        assert_eq!(engine.submit(batch).wait(), Err(CommitError::NoSpace));
    }
    assert_eq!(append_interval(&engine, c.log, "next"), 4);
    assert_eq!(engine.counters().refused_no_space, 2);
    let (after, _) = open(&files.copy()).unwrap();
    let bodies = bodies(&after, c.log, 1);
    assert_eq!(bodies.len(), 4);
    assert_eq!(bodies[3].1, "next");
}

#[test]
fn a_full_disk_stops_no_close_and_no_open_of_what_needs_no_room() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let mut kept = 0;
    files.set_room(Some(3 * 5120));
    while engine
        .submit(interval(append_op(c.log, &"x".repeat(100))))
        .wait()
        .is_ok()
    {
        kept += 1;
        assert!(kept < 1000, "the disk never filled");
    }
    drop(engine);
    files.set_room(None);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(bodies(&engine, c.log, 1).len(), kept);
    assert!(append(&engine, c.log, "room again") > kept as u64);
}

#[test]
fn a_commit_waits_for_company_and_is_closed_by_what_comes_first() {
    let files = MemFiles::new();
    let options = Options {
        publish_commit: PublishCommit::Wait {
            interval: Duration::from_secs(3600),
            records: 3,
        },
        ..roomy()
    };
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let before = engine.counters();
    let tickets: Vec<_> = (0..3)
        .map(|_| engine.submit(append_op(c.log, "x")))
        .collect();
    let lsns: Vec<_> = tickets
        .into_iter()
        .map(|ticket| ticket.wait().unwrap().lsn)
        .collect();
    assert!(lsns.windows(2).all(|pair| pair[0] == pair[1]), "{lsns:?}");
    let EngineCounters {
        frames,
        batches,
        operations,
        closed_by_records,
        closed_by_interval,
        unbatched,
        ..
    } = engine.counters();
    assert_eq!(frames - before.frames, 1);
    assert_eq!(
        (batches - before.batches, operations - before.operations),
        (3, 3)
    );
    assert_eq!(
        (closed_by_records, closed_by_interval, unbatched),
        (1, 0, 0)
    );
    // What publishes nothing waits for nobody: a client that subscribes, a worker that is done.
    let put = Operation::Put {
        space: 9,
        key: bytes::Bytes::from_static(b"session"),
        value: bytes::Bytes::from_static(b"value"),
    };
    engine.submit(put).wait().unwrap();
    // A flush has nobody wait for company.
    let waits = engine.submit(append_op(c.log, "x"));
    engine.flush().unwrap();
    waits.wait().unwrap();
    // Nor does a close.
    let last = engine.submit(append_op(c.log, "x"));
    drop(engine);
    last.wait().unwrap();
}

#[test]
fn a_commit_without_company_goes_when_the_interval_has_passed() {
    let files = MemFiles::new();
    let options = Options {
        publish_commit: PublishCommit::Wait {
            interval: Duration::from_millis(20),
            records: 1000,
        },
        ..roomy()
    };
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let before = engine.counters();
    append(&engine, c.log, "alone");
    let after = engine.counters();
    // A commit thread that came late finds that it has waited already.
    let closed = |c: EngineCounters| c.closed_by_interval + c.closed_by_commit;
    assert_eq!(closed(after) - closed(before), 1);
    assert_eq!(after.closed_by_records, 0);
}

#[test]
fn a_commit_of_its_own_for_every_batch_where_that_is_asked_for() {
    let options = Options {
        publish_commit: PublishCommit::Alone,
        ..roomy()
    };
    let (engine, _) = open_with(&MemFiles::new(), &options).unwrap();
    let c = define(&engine);
    let before = engine.counters();
    let tickets: Vec<_> = (0..50)
        .map(|_| engine.submit(append_op(c.log, "x")))
        .collect();
    let lsns: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap().lsn).collect();
    assert!(lsns.windows(2).all(|pair| pair[0] < pair[1]), "{lsns:?}");
    let after = engine.counters();
    assert_eq!(after.frames - before.frames, 50);
    assert_eq!(after.unbatched - before.unbatched, 50);
}

#[test]
fn the_counters_say_what_was_done() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let before = (engine.counters(), files.syncs(), files.writes());
    for _ in 0..30 {
        append(&engine, c.log, &"x".repeat(100));
    }
    let after = engine.counters();
    assert_eq!(after.frames - before.0.frames, 30);
    assert_eq!(after.closed_by_commit - before.0.closed_by_commit, 30);
    assert_eq!(after.live_bytes, 3000);
    assert_eq!(after.segments, segments(&files).len() as u64);
    assert!(after.segments > 3 && after.poisoned == 0);
    assert!(after.written_bytes - before.0.written_bytes > 3000);
    // New segments are synced before they have a name, which is not the commit's to count.
    let rolls = after.segments - before.0.segments;
    assert_eq!(
        after.syncs - before.0.syncs + rolls,
        files.syncs() - before.1
    );
}

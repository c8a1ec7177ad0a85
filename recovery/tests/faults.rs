//! A disk that is full, fails or lies.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::ErrorKind;

use common::*;
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{CheckpointFailure, CommitError, Operation, Options, ReadLimit};
use saguin_recovery::Ending;

#[test]
fn one_frame_is_one_write_and_one_sync() {
    let files = MemFiles::new();
    let options = Options {
        segment_bytes: 1 << 20,
        ..options()
    };
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let before = (files.writes(), files.syncs());
    for i in 0..100 {
        append(&engine, c.log, &format!("{i}"));
    }
    assert_eq!(
        (files.writes() - before.0, files.syncs() - before.1),
        (100, 100)
    );
}

#[test]
fn a_full_disk_refuses_and_the_engine_goes_on_when_there_is_room() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let used: u64 = 3 * 5120;
    files.set_room(Some(used));
    let mut kept = 0;
    let refused = loop {
        let op = Operation::Append {
            channel: c.log,
            record: record(&"x".repeat(100)),
            max_bytes: None,
        };
        match engine.submit(op).wait() {
            Ok(_) => kept += 1,
            Err(refusal) => break refusal,
        }
        assert!(kept < 1000, "the disk never filled");
    };
    assert_eq!(refused, CommitError::NoSpace);
    assert!(engine.failure().is_none());
    assert_eq!(bodies(&engine, c.log, 1).len(), kept);
    files.set_room(None);
    append(&engine, c.log, "room again");
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(bodies(&engine, c.log, 1).len(), kept + 1);
}

#[test]
fn a_write_without_room_is_undone_and_the_next_one_takes_its_place() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append(&engine, c.log, "kept");
    files.fail_writes(ErrorKind::StorageFull, 1);
    let op = Operation::Append {
        channel: c.log,
        record: record(&"no room ".repeat(20)),
        max_bytes: None,
    };
    assert_eq!(engine.submit(op).wait(), Err(CommitError::NoSpace));
    let (after, report) = open(&files.copy()).unwrap();
    assert!(
        matches!(report.ending, Ending::Torn(_)),
        "half a frame is there, and dropped"
    );
    assert_eq!(bodies(&after, c.log, 1), [(1, "kept".to_owned())]);
    assert_eq!(
        append(&engine, c.log, "next"),
        2,
        "no offset is lost to a refusal"
    );
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(
        bodies(&engine, c.log, 1),
        [(1, "kept".to_owned()), (2, "next".to_owned())]
    );
}

#[test]
fn a_write_that_cannot_be_taken_back_stops_the_engine() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append(&engine, c.log, "kept");
    files.fail_writes(ErrorKind::StorageFull, 2);
    let op = Operation::Append {
        channel: c.log,
        record: record("lost"),
        max_bytes: None,
    };
    assert!(matches!(
        engine.submit(op).wait(),
        Err(CommitError::Failed(_))
    ));
    drop(engine);
    let (engine, _) = open(&files).unwrap();
    assert_eq!(bodies(&engine, c.log, 1), [(1, "kept".to_owned())]);
    assert_eq!(append(&engine, c.log, "next"), 2);
}

#[test]
fn a_failed_sync_acknowledges_nothing_after_and_reads_go_on() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append(&engine, c.log, "kept");
    files.fail_syncs(Some(ErrorKind::Other));
    let append_op = || Operation::Append {
        channel: c.log,
        record: record("never"),
        max_bytes: None,
    };
    let first = engine.submit(append_op()).wait().unwrap_err();
    assert!(matches!(first, CommitError::Failed(_)));
    files.fail_syncs(None);
    let second = engine.submit(append_op()).wait().unwrap_err();
    assert_eq!(first, second, "a sync that works again is not believed");
    assert!(engine.failure().is_some());
    let limit = ReadLimit {
        records: 10,
        bytes: 100,
    };
    assert_eq!(engine.read_from(c.log, 1, limit).unwrap().records.len(), 1);
    assert_eq!(
        engine.numbers(c.log).unwrap().next,
        2,
        "what was not synced is not visible"
    );
}

#[test]
fn a_write_error_stops_the_engine_and_a_reopen_finds_what_was_kept() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append(&engine, c.log, "kept");
    files.fail_writes(ErrorKind::Other, 1);
    let op = Operation::Append {
        channel: c.log,
        record: record("half"),
        max_bytes: None,
    };
    assert!(matches!(
        engine.submit(op).wait(),
        Err(CommitError::Failed(_))
    ));
    drop(engine);
    let (engine, report) = open(&files).unwrap();
    assert!(
        matches!(report.ending, Ending::Torn(_)),
        "{:?}",
        report.ending
    );
    assert_eq!(bodies(&engine, c.log, 1), [(1, "kept".to_owned())]);
}

#[test]
fn everybody_who_waits_is_answered_when_the_engine_is_closed() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    let tickets: Vec<_> = (0..500)
        .map(|i| {
            let record = record(&format!("{i}"));
            engine.submit(Operation::Append {
                channel: c.log,
                record,
                max_bytes: None,
            })
        })
        .collect();
    drop(engine);
    for ticket in tickets {
        ticket.wait().unwrap();
    }
}

#[test]
fn a_checkpoint_that_fails_stops_nothing_and_leaves_the_one_before() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    append(&engine, c.log, "first");
    let first = engine.checkpoint().unwrap();
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        append(&engine, c.log, "more");
        files.fail_writes(kind, 1);
        let refused = engine.checkpoint().unwrap_err();
        assert!(matches!(refused, CheckpointFailure::Io(_)), "{refused}");
        files.fail_writes(kind, 0);
        assert!(engine.failure().is_none());
        let (_, report) = open(&files.copy()).unwrap();
        assert_eq!(report.checkpoint.unwrap().1, first.reaches);
        assert_eq!(report.rejected, []);
    }
    append(&engine, c.log, "still here");
    let second = engine.checkpoint().unwrap();
    assert!(second.reaches > first.reaches);
    append(&engine, c.log, "after it");
    let third = engine.checkpoint().unwrap();
    let kept = files.list(&std::path::Path::new(DIR).join("checkpoint"));
    let mut kept = kept.unwrap();
    kept.sort();
    let name = |lsn: u64| format!("{lsn:020}.ckpt");
    assert_eq!(kept, [name(second.reaches), name(third.reaches)]);
}

#[test]
fn no_checkpoint_is_written_by_an_engine_that_failed() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    files.fail_syncs(Some(ErrorKind::Other));
    let op = Operation::Append {
        channel: c.log,
        record: record("lost"),
        max_bytes: None,
    };
    assert!(engine.submit(op).wait().is_err());
    let refused = engine.checkpoint().unwrap_err();
    assert!(matches!(refused, CheckpointFailure::Failed(_)), "{refused}");
    drop(engine);
    let names = files.list(&std::path::Path::new(DIR).join("checkpoint"));
    assert_eq!(names.unwrap_or_default(), Vec::<String>::new());
}

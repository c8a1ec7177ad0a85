//! What a repair makes of numbers that were skipped, of ceilings, and of records that are held back.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::*;
use saguin_log_engine::format::{FRAME_HEADER_BYTES, Kind, Op, SEGMENT_HEADER_BYTES};
use saguin_log_engine::storage::OsFiles;
use saguin_log_engine::{Batch, ChannelId, Durability, Engine, Operation, Segment};
use saguin_recovery::Visitor;
use serde_json::Value;

/// Positions of the frames that hold an operation of a kind.
struct Frames<'k>(&'k dyn Fn(&Op<'_>) -> bool, Vec<(PathBuf, usize)>);

impl Visitor for Frames<'_> {
    fn operation(&mut self, segment: &Segment, at: u64, _: u64, op: &Op<'_>) {
        if at > SEGMENT_HEADER_BYTES as u64 && (self.0)(op) {
            self.1.push((segment.path.clone(), at as usize));
        }
    }
}

/// Damages the last frame with such an operation.
fn damage(dir: &Path, which: &dyn Fn(&Op<'_>) -> bool) {
    let mut frames = Frames(which, Vec::new());
    saguin_recovery::inspect(&OsFiles, dir, &mut frames).unwrap();
    let (path, at) = frames.1.pop().unwrap();
    edit(&path, |bytes| bytes[at + FRAME_HEADER_BYTES + 2] ^= 0x41);
}

fn early(engine: &Engine, channel: ChannelId) -> u64 {
    let append = Operation::Append {
        channel,
        record: record(body("events/a", b"early").encode(false)),
        max_bytes: None,
    };
    let batch = Batch {
        operations: vec![append],
        durability: Durability::Interval,
    };
    engine.submit(batch).wait().unwrap().offsets[0].unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// A log that was killed after records were acknowledged ahead of the disk, and started again.
fn skipped(root: &Path, filling: u64) -> (PathBuf, Channels) {
    let (before, dir) = (root.join("before"), root.join("data"));
    let engine = open(&before);
    let c = fill(&engine);
    for _ in 0..filling {
        append(&engine, c.log, &body("events/a", b"filling"));
    }
    for _ in 0..3 {
        early(&engine, c.log);
    }
    copy(&before, &dir);
    drop(engine);
    (dir, c)
}

fn channel(dir: &Path, name: &str) -> Value {
    let answer = inspect("channels", dir, &["--json"]).json();
    let all = answer["channels"].as_array().unwrap();
    all.iter().find(|c| c["name"] == name).unwrap().clone()
}

#[test]
fn offsets_that_were_skipped_are_no_loss() {
    let root = tempfile::tempdir().unwrap();
    let (dir, c) = skipped(root.path(), 0);
    let engine = open(&dir);
    let offset = append(&engine, c.log, &body("events/a", b"after"));
    assert!(offset > 4096, "an opening went on at the ceiling: {offset}");
    enqueue(&engine, c.queue, b"lost");
    append(&engine, c.log, &body("events/a", b"last"));
    close(engine, &dir);
    assert_eq!(inspect("verify", &dir, &[]).code, 0);
    let before = channel(&dir, "events");
    damage(&dir, &|op| matches!(op, Op::Enqueue { .. }));
    let verdict = inspect("verify", &dir, &["--json"]).json();
    let lost = verdict["losses"]["channels"].as_array().unwrap();
    assert!(lost.iter().all(|c| c["channel"] != "events"), "{verdict}");
    let answer = inspect("repair", &dir, &["--yes"]);
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert_eq!(channel(&dir, "events"), before, "{}", answer.out);
    // The segment that said so is gone now, and the records were moved.
    let engine = open(&dir);
    for _ in 0..3 {
        enqueue(&engine, c.queue, b"lost again");
    }
    append(&engine, c.log, &body("events/a", b"end"));
    close(engine, &dir);
    let before = channel(&dir, "events");
    damage(&dir, &|op| matches!(op, Op::Enqueue { .. }));
    let answer = inspect("repair", &dir, &[]);
    assert_eq!(answer.code, 1);
    assert!(!answer.out.contains("events"), "{}", answer.out);
    let copies = std::fs::read_dir(root.path()).unwrap();
    for copy in copies.map(|e| e.unwrap().path()) {
        if copy.to_str().unwrap().contains("before-repair") {
            std::fs::remove_dir_all(copy).unwrap();
        }
    }
    assert_eq!(inspect("repair", &dir, &["--yes"]).code, 0);
    assert_eq!(channel(&dir, "events"), before);
}

#[test]
fn no_offset_below_a_ceiling_is_used_again_after_a_repair() {
    // Whether a prologue states it again depends on where a segment ends.
    for filling in 0..12 {
        let root = tempfile::tempdir().unwrap();
        let (dir, c) = skipped(root.path(), filling);
        // The frame that raised it is lost, and so is what was handed out after the copy was made.
        damage(&dir, &|op| matches!(op, Op::Ceiling { .. }));
        let answer = inspect("repair", &dir, &["--yes"]);
        assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
        let engine = open(&dir);
        let next = append(&engine, c.log, &body("events/a", b"after"));
        assert!(
            next > 33 + 4096,
            "{next} may have been handed out, filling {filling}"
        );
        close(engine, &dir);
        assert_eq!(inspect("verify", &dir, &[]).code, 0);
    }
}

fn hold(engine: &Engine, key: &'static str) {
    let op = Operation::Hold {
        key: Bytes::from_static(key.as_bytes()),
        record: record(body("events/a", key.as_bytes()).encode(false)),
    };
    submit(engine, op);
}

#[test]
fn records_that_are_held_back_are_carried_over_and_lost_ones_are_counted() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let engine = open(&dir);
    let log = engine.define("events", Kind::Sequence).unwrap();
    for key in ["a", "b", "c"] {
        hold(&engine, key);
    }
    submit(
        &engine,
        Operation::Drop {
            key: Bytes::from_static(b"a"),
        },
    );
    for _ in 0..40 {
        append(&engine, log, &body("events/a", b"some"));
    }
    close(engine, &dir);
    let summary = inspect("summary", &dir, &["--json"]).json();
    assert_eq!(
        summary["holds"],
        serde_json::json!({ "count": 2, "bytes": 154 })
    );
    let text = inspect("summary", &dir, &[]).out;
    assert!(text.contains("held back: 2 records, 154 bytes\n"), "{text}");
    damage(&dir, &|op| matches!(op, Op::Hold { key: b"c", .. }));
    let verdict = inspect("verify", &dir, &["--json"]).json();
    let holds = &verdict["losses"]["holds"];
    assert_eq!(
        (&holds["counted"], &holds["readable"]),
        (&2.into(), &1.into())
    );
    let answer = inspect("repair", &dir, &["--yes"]);
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let said =
        "LOST held back: 1 record of 2 that had not come into a channel yet; their publishers were";
    assert!(answer.out.contains(said), "{}", answer.out);
    let engine = open(&dir);
    let left = engine.held(b"b").unwrap().unwrap();
    assert_eq!(left.body, body("events/a", b"b").encode(false));
    assert!(engine.held(b"a").unwrap().is_none() && engine.held(b"c").unwrap().is_none());
    submit(
        &engine,
        Operation::Drop {
            key: Bytes::from_static(b"b"),
        },
    );
    close(engine, &dir);
    assert_eq!(inspect("verify", &dir, &[]).code, 0);
}

//! `repair`: every kind of damage, what it says, and that what it leaves is a log the broker opens:
//! nothing that was there comes back different, no offset is used twice, no floor falls.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::*;
use saguin_log_engine::format::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINT_TRAILER_BYTES, CheckpointTrailer, FRAME_HEADER_BYTES, Kind,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};
use serde_json::Value;

/// A log of some segments, in a directory of its own, and what was in it.
struct Case {
    // Removed with everything in it at the end.
    _root: tempfile::TempDir,
    dir: PathBuf,
    records: BTreeMap<(String, u64), Value>,
    channels: BTreeMap<String, Value>,
}

fn exported(dir: &Path) -> (Answer, BTreeMap<(String, u64), Value>) {
    let answer = inspect("export", dir, &[]);
    let key = |line: &Value| {
        let channel = line["channel"].as_str().unwrap().to_owned();
        (channel, line["offset"].as_u64().unwrap())
    };
    let lines = answer.lines().into_iter();
    let records = lines.map(|line| (key(&line), line)).collect();
    (answer, records)
}

fn channels(dir: &Path) -> BTreeMap<String, Value> {
    let answer = inspect("channels", dir, &["--json"]).json();
    let all = answer["channels"].as_array().unwrap().iter();
    all.map(|c| (c["name"].as_str().unwrap().to_owned(), c.clone()))
        .collect()
}

impl Case {
    fn new() -> Case {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        let engine = open(&dir);
        let made = fill(&engine);
        readers(&engine, made.log);
        close(engine, &dir);
        let (_, records) = exported(&dir);
        let channels = channels(&dir);
        Case {
            _root: root,
            dir,
            records,
            channels,
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        segments(&self.dir)
    }

    fn copies(&self) -> Vec<PathBuf> {
        let beside = std::fs::read_dir(self.dir.parent().unwrap()).unwrap();
        let paths = beside.map(|entry| entry.unwrap().path());
        paths.filter(|path| *path != self.dir).collect()
    }

    /// Repairs, and checks everything that must hold of any repair. The verdict before it, and what
    /// the repair said.
    fn repair(&self, what: &str) -> (Value, Answer) {
        let before = contents(&self.dir);
        let verdict = inspect("verify", &self.dir, &["--json"]);
        assert_eq!(verdict.code, 1, "{what}: {}", verdict.out);
        let verdict = verdict.json();
        let preview = inspect("repair", &self.dir, &[]);
        assert_eq!(preview.code, 1, "{what}: {}", preview.err);
        assert!(
            preview.out.contains("nothing was changed"),
            "{what}: {}",
            preview.out
        );
        assert!(
            before == contents(&self.dir),
            "{what}: the preview changed something"
        );
        let (_, readable) = exported(&self.dir);

        let answer = inspect("repair", &self.dir, &["--yes"]);
        assert_eq!(answer.code, 0, "{what}: {}{}", answer.out, answer.err);
        let copies = self.copies();
        assert_eq!(copies.len(), 1);
        assert!(
            before == contents(&copies[0]),
            "{what}: the copy is not what was there"
        );
        assert!(answer.out.contains(copies[0].to_str().unwrap()));

        let after = inspect("verify", &self.dir, &[]);
        assert_eq!(after.code, 0, "{what}: {}{}", after.out, after.err);
        let (_, kept) = exported(&self.dir);
        for (key, record) in &kept {
            assert_eq!(readable.get(key), Some(record), "{what}: {key:?}");
        }
        let now = channels(&self.dir);
        for (key, record) in &readable {
            let floor = now[&key.0]["floor"].as_u64().unwrap();
            let expected = (key.1 >= floor || now[&key.0]["type"] != "append").then_some(record);
            assert_eq!(kept.get(key), expected, "{what}: {key:?}");
        }
        for (name, was) in &self.channels {
            let Some(is) = now.get(name) else {
                continue;
            };
            for number in ["next", "floor"] {
                let (was, is) = (was[number].as_u64(), is[number].as_u64());
                assert!(
                    is >= was,
                    "{what}: {name}: {number} fell from {was:?} to {is:?}"
                );
            }
        }
        self.goes_on(what, &now);
        std::fs::remove_dir_all(&copies[0]).unwrap();
        (verdict, answer)
    }

    /// The engine opens it and goes on: no hole that a reader could pass, no offset taken twice.
    fn goes_on(&self, what: &str, now: &BTreeMap<String, Value>) {
        let engine = open(&self.dir);
        for (name, channel) in now {
            if channel["type"] != "append" {
                continue;
            }
            let id = engine.define(name, Kind::Sequence).unwrap();
            let offset = append(&engine, id, &body("events/a", b"after"));
            assert_eq!(Some(offset), channel["next"].as_u64(), "{what}: {name}");
        }
        close(engine, &self.dir);
        let (answer, records) = exported(&self.dir);
        assert_eq!(answer.code, 0, "{what}: {}", answer.err);
        let events = records.keys().filter(|(name, _)| name == "events");
        let offsets: Vec<_> = events.map(|(_, offset)| *offset).collect();
        let holes = offsets.windows(2).filter(|w| w[0] + 1 != w[1]).count();
        // At most one, before what was written just now.
        assert!(holes <= 1, "{what}: {offsets:?}");
    }
}

/// The files and what is in them.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let relative = |path: &Path| path.strip_prefix(dir).unwrap().to_owned();
    let all = everything(dir).into_iter();
    all.map(|(path, (_, content))| (relative(&path), content))
        .collect()
}

/// Where the frames of a file end: a footer lies behind its capacity.
fn used(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let capacity = SegmentHeader::decode(&bytes).unwrap().capacity as usize;
    bytes[..capacity].iter().rposition(|&b| b != 0).unwrap() + 1
}

#[test]
fn a_whole_log_is_left_alone() {
    let case = Case::new();
    let before = everything(&case.dir);
    for args in [&[][..], &["--yes"], &["--json"]] {
        let answer = inspect("repair", &case.dir, args);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    }
    assert!(
        inspect("repair", &case.dir, &["--yes"])
            .out
            .starts_with("nothing to repair")
    );
    assert!(before == everything(&case.dir) && case.copies().is_empty());
}

#[test]
fn a_flipped_byte_anywhere_is_repaired() {
    let count = Case::new().segments().len();
    for i in 0..count {
        let last = if i + 1 == count {
            FRAME_HEADER_BYTES
        } else {
            0
        };
        let end = used(&Case::new().segments()[i]) - last;
        for at in (SEGMENT_HEADER_BYTES + 3..end).step_by(151) {
            let case = Case::new();
            let path = case.segments().remove(i);
            edit(&path, |bytes| bytes[at] ^= 0x41);
            let (verdict, _) = case.repair(&format!("byte {at} of segment {}", i + 1));
            assert_eq!(verdict["damages"].as_array().unwrap().len(), 1, "{verdict}");
            let lost = &verdict["losses"]["places"][0];
            assert_eq!(
                lost["first_lost_lsn"], lost["last_lost_lsn"],
                "one frame: {lost}"
            );
        }
    }
}

#[test]
fn damage_in_a_header_loses_nothing_where_the_frames_vouch_for_themselves() {
    for i in 0..3 {
        let case = Case::new();
        // The time it was written: no frame depends on it.
        edit(&case.segments()[i], |bytes| bytes[66] ^= 1);
        let (verdict, answer) = case.repair(&format!("header of segment {}", i + 1));
        assert_eq!(
            verdict["losses"]["channels"],
            serde_json::json!([]),
            "{verdict}"
        );
        assert!(!answer.out.contains("LOST"), "{}", answer.out);
        // The salt: nothing in the file verifies without it.
        let case = Case::new();
        edit(&case.segments()[i], |bytes| bytes[49] ^= 1);
        let (_, answer) = case.repair(&format!("salt of segment {}", i + 1));
        assert!(answer.out.contains("LOST frame"), "{}", answer.out);
    }
}

#[test]
fn a_missing_segment_is_repaired_and_its_records_are_named() {
    let count = Case::new().segments().len();
    for i in 0..count {
        let case = Case::new();
        std::fs::remove_file(&case.segments()[i]).unwrap();
        let (verdict, answer) = case.repair(&format!("without segment {}", i + 1));
        assert!(answer.out.contains("LOST frame"), "{}", answer.out);
        let missing = format!("segment number {} is missing", i + 1);
        assert!(answer.out.contains(&missing), "{}", answer.out);
        if i == 1 {
            let lost = verdict["losses"]["channels"][0].clone();
            assert_eq!(lost["channel"], "events", "{verdict}");
            let last = lost["lost"][0][1].as_u64().unwrap();
            assert_eq!(lost["floor_after_repair"].as_u64(), Some(last + 1));
            let said = format!("the floor will be {}", last + 1);
            assert!(answer.out.contains("POSITION LOST reader late") && answer.out.contains(&said));
        }
        if i + 1 == count {
            assert_eq!(verdict["losses"]["end_is_lost"], true);
            let next = channels(&case.dir)["events"]["next"].as_u64().unwrap();
            assert!(
                next > 1 << 40,
                "no offset of the lost end is used again: {next}"
            );
        }
    }
}

#[test]
fn a_cut_file_is_repaired() {
    for i in 0..3 {
        let whole = used(&Case::new().segments()[i]) as u64;
        for len in [0, 4000, 4096, 4200, whole - 500, whole - 40] {
            let case = Case::new();
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(&case.segments()[i]);
            file.unwrap().set_len(len).unwrap();
            case.repair(&format!("segment {} cut to {len}", i + 1));
        }
    }
}

#[test]
fn files_in_each_others_place_lose_nothing() {
    let case = Case::new();
    let paths = case.segments();
    let aside = case.dir.join("aside");
    std::fs::rename(&paths[0], &aside).unwrap();
    std::fs::rename(&paths[1], &paths[0]).unwrap();
    std::fs::rename(&aside, &paths[1]).unwrap();
    let (verdict, answer) = case.repair("swapped");
    assert!(answer.out.contains("was it renamed?"), "{}", answer.out);
    assert_eq!(verdict["losses"]["channels"], serde_json::json!([]));
    assert_eq!(verdict["damages"].as_array().unwrap().len(), 2);

    let case = Case::new();
    let copy = case.dir.join("log").join("00000000000000000777.seg");
    std::fs::copy(&case.segments()[1], copy).unwrap();
    let (verdict, answer) = case.repair("doubled");
    assert!(
        answer.out.contains("segment number 2 is there twice"),
        "{}",
        answer.out
    );
    assert_eq!(verdict["losses"]["channels"], serde_json::json!([]));
    let (_, kept) = exported(&case.dir);
    for (key, record) in &case.records {
        assert_eq!(kept.get(key), Some(record));
    }
}

#[test]
fn a_segment_of_another_log_is_left_out() {
    let (case, other) = (Case::new(), Case::new());
    // In the place of its own second one.
    std::fs::copy(&other.segments()[1], &case.segments()[1]).unwrap();
    let (verdict, answer) = case.repair("foreign");
    assert!(answer.out.contains("belongs to log"), "{}", answer.out);
    assert_eq!(verdict["segments"][1]["status"], "damaged");
    assert_eq!(verdict["losses"]["channels"][0]["channel"], "events");
}

#[test]
fn several_damages_are_found_in_one_look() {
    let case = Case::new();
    for path in &case.segments()[..2] {
        let at = used(path) - 400;
        edit(path, |bytes| bytes[at] ^= 1);
    }
    let (verdict, _) = case.repair("two flips");
    assert_eq!(verdict["damages"].as_array().unwrap().len(), 2, "{verdict}");
    assert_eq!(verdict["segments"][2]["status"], "readable");
}

fn checkpoints(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("checkpoint")).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Takes the last frames of a closed log away, as if its newest segment had been put back from an
/// earlier copy.
fn shorten(case: &Case) {
    let path = case.segments().pop().unwrap();
    edit(&path, |bytes| {
        let body = u32::from_le_bytes(bytes[4100..4104].try_into().unwrap()) as usize;
        let prologue = (FRAME_HEADER_BYTES + body).next_multiple_of(8);
        let capacity = SegmentHeader::decode(bytes).unwrap().capacity as usize;
        bytes[SEGMENT_HEADER_BYTES + prologue..capacity].fill(0);
    });
}

#[test]
fn a_log_that_ends_short_of_its_checkpoint_is_repaired_and_the_claim_is_a_loss() {
    let case = Case::new();
    shorten(&case);
    let stale = checkpoints(&case.dir);
    let claim = std::fs::read(stale.last().unwrap()).unwrap();
    let (verdict, answer) = case.repair("short");
    let damages = verdict["damages"].as_array().unwrap();
    assert_eq!(damages.len(), 1, "{verdict}");
    let reaches = verdict["checkpoint"]["reaches"].as_u64().unwrap();
    let last = damages[0]["found"].as_str().unwrap();
    let first: u64 = last.parse::<u64>().unwrap() + 1;
    let said = format!("LOST frames {first} to {reaches}, which were acknowledged, and all after");
    assert!(answer.out.contains(&said), "{}", answer.out);
    assert_eq!(verdict["losses"]["end_is_lost"], true);
    for path in &stale {
        assert!(!path.exists(), "{} was discarded", path.display());
    }
    // Cut before the claim is gone: it is void, because the new log begins after all it claims.
    let case = Case::new();
    shorten(&case);
    assert_eq!(inspect("repair", &case.dir, &["--yes"]).code, 0);
    let void = checkpoints(&case.dir).into_iter().next();
    assert_eq!(void, None);
    let name = stale.last().unwrap().file_name().unwrap();
    let other = checkpoint_of(&case.copies()[0]);
    std::fs::write(case.dir.join("checkpoint").join(name), &other).unwrap();
    assert_eq!(other.len(), claim.len());
    let verdict = inspect("verify", &case.dir, &["--json"]);
    assert_eq!(verdict.code, 0, "{}", verdict.out);
    close(open(&case.dir), &case.dir);
    assert_eq!(inspect("verify", &case.dir, &[]).code, 0);
}

fn checkpoint_of(dir: &Path) -> Vec<u8> {
    std::fs::read(checkpoints(dir).last().unwrap()).unwrap()
}

#[test]
fn a_damaged_last_segment_that_a_checkpoint_vouches_for_is_one_loss() {
    let case = Case::new();
    let path = case.segments().pop().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(SEGMENT_HEADER_BYTES as u64).unwrap();
    let (verdict, _) = case.repair("cut to its header");
    let places = verdict["losses"]["places"].as_array().unwrap();
    assert_eq!(places.len(), 1, "{verdict}");
}

#[test]
fn a_checkpoint_that_says_otherwise_than_the_frames_stops_a_start_and_loses_nothing() {
    let case = Case::new();
    let path = checkpoints(&case.dir).pop().unwrap();
    // Everything that lives by key or by job is left out of it.
    edit(&path, |bytes| {
        let end = bytes.len() - CHECKPOINT_TRAILER_BYTES;
        let crc = crc(&bytes[..end]);
        let mut trailer = CheckpointTrailer::decode(&bytes[end..], crc).unwrap();
        (trailer.chunks, trailer.chunk_bytes) = (0, 0);
        bytes.truncate(CHECKPOINT_HEADER_BYTES);
        let trailer = trailer.encode(self::crc(bytes));
        bytes.extend_from_slice(&trailer);
    });
    let text = inspect("verify", &case.dir, &[]);
    assert_eq!(text.code, 1);
    assert!(text.out.contains("CONTRADICTION in "), "{}", text.out);
    assert!(!text.out.contains("whole: "), "{}", text.out);
    let (_, answer) = case.repair("contradiction");
    assert!(
        answer.out.contains("the checkpoint contradicts the log: "),
        "{}",
        answer.out
    );
    assert!(!answer.out.contains("LOST"), "{}", answer.out);
}

/// CRC32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1))
        })
    })
}

#[test]
fn export_of_a_damaged_log_has_what_is_readable_and_says_what_is_not() {
    let case = Case::new();
    let path = case.segments().remove(1);
    let at = used(&path) - 400;
    edit(&path, |bytes| bytes[at] ^= 1);
    let (answer, records) = exported(&case.dir);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("LOST frame"), "{}", answer.err);
    let missing: Vec<_> = case
        .records
        .keys()
        .filter(|k| !records.contains_key(*k))
        .collect();
    assert!(
        missing.len() <= 1,
        "one frame holds one record here: {missing:?}"
    );
    for (key, record) in &records {
        assert_eq!(case.records.get(key), Some(record));
    }
}

/// A directory in the place of a file: the system answers a read with an error.
#[test]
fn a_file_that_cannot_be_read_stops_a_repair_and_not_an_export() {
    let case = Case::new();
    let path = case.segments().remove(1);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let (answer, records) = exported(&case.dir);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("it cannot be read: "), "{}", answer.err);
    assert!(records.len() > case.records.len() / 3);
    for (key, record) in &records {
        // A topic whose newest value is lost has an older one, which is said.
        let older = key.0 == "state" && answer.err.contains("these may show an older one");
        let was = case.records.get(key);
        assert!(was == Some(record) || older && was.is_none(), "{key:?}");
    }
    for args in [&["verify"][..], &["repair", "--yes"]] {
        let answer = inspect(args[0], &case.dir, &args[1..]);
        assert_eq!(answer.code, 1);
        assert!(
            answer.err.contains(path.to_str().unwrap()),
            "{}",
            answer.err
        );
    }
    assert!(path.is_dir() && case.copies().is_empty());
}

#[test]
fn what_cannot_be_repaired_is_refused_in_words() {
    // Nothing is left.
    let case = Case::new();
    for path in case.segments() {
        std::fs::remove_file(path).unwrap();
    }
    let refused = |case: &Case, why: &str| {
        let before = everything(&case.dir);
        for args in [&[][..], &["--yes"]] {
            let answer = inspect("repair", &case.dir, args);
            assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{why}");
            assert!(answer.err.contains(why), "{}", answer.err);
        }
        assert!(before == everything(&case.dir) && case.copies().is_empty());
    };
    refused(&case, "nothing left to repair: restore");
    // Only a checkpoint is.
    std::fs::remove_file(case.dir.join("saguin.lock")).unwrap();
    refused(&case, "nothing left to repair: restore");
    let verdict = inspect("verify", &case.dir, &[]);
    assert_eq!(verdict.code, 1);
    assert!(
        verdict.out.contains("every record is lost"),
        "{}",
        verdict.out
    );
    // The lock file names another log.
    let case = Case::new();
    std::fs::write(case.dir.join("saguin.lock"), "0".repeat(32)).unwrap();
    refused(&case, "which of them belongs here cannot be told");
    // Every header is gone.
    let case = Case::new();
    for path in case.segments() {
        edit(&path, |bytes| bytes[..64].fill(0xff));
    }
    refused(&case, "no segment here can be read at all");
}

#[test]
fn a_lock_file_without_an_id_is_no_damage() {
    let case = Case::new();
    std::fs::write(case.dir.join("saguin.lock"), "").unwrap();
    assert_eq!(inspect("repair", &case.dir, &["--yes"]).code, 0);
    let path = case.segments().remove(0);
    let at = used(&path) - 300;
    edit(&path, |bytes| bytes[at] ^= 1);
    case.repair("no id");
}

#[test]
fn an_open_directory_is_refused_naming_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    fill(&engine);
    let before = everything(dir.path());
    for args in [&[][..], &["--yes"]] {
        let answer = inspect("repair", dir.path(), args);
        assert_eq!(answer.code, 1);
        assert!(
            answer.err.contains("saguin.lock is locked"),
            "{}",
            answer.err
        );
    }
    assert!(before == everything(dir.path()));
    close(engine, dir.path());
}

#[test]
fn a_repair_cut_short_between_the_new_names_can_be_done_again() {
    let case = Case::new();
    let old = case.segments();
    let at = used(&old[0]) - 300;
    edit(&old[0], |bytes| bytes[at] ^= 1);
    let damaged: Vec<_> = old
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert_eq!(inspect("repair", &case.dir, &["--yes"]).code, 0);
    let (_, kept) = exported(&case.dir);
    std::fs::remove_dir_all(&case.copies()[0]).unwrap();
    let new = case.segments();
    // All new names are there, and the old files still are.
    for (path, bytes) in old.iter().zip(&damaged) {
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(inspect("verify", &case.dir, &[]).code, 0);
    assert_eq!(exported(&case.dir).1, kept);
    // The first of the new ones has no name yet: as damaged as before, and repaired the same.
    assert!(new.len() >= 2, "the set-up has to make several");
    std::fs::rename(&new[0], case.dir.join("log/repair-5.tmp")).unwrap();
    let answer = inspect("verify", &case.dir, &[]);
    assert_eq!(answer.code, 1, "{}", answer.out);
    case_is_repaired_from_the_old(&case, &kept);
}

fn case_is_repaired_from_the_old(case: &Case, kept: &BTreeMap<(String, u64), Value>) {
    assert_eq!(inspect("repair", &case.dir, &["--yes"]).code, 0);
    assert_eq!(inspect("verify", &case.dir, &[]).code, 0);
    let (_, again) = exported(&case.dir);
    for (key, record) in &again {
        assert!(kept.get(key).is_none_or(|was| was == record), "{key:?}");
    }
    let jobs = |all: &BTreeMap<(String, u64), Value>| {
        all.keys().filter(|(name, _)| name == "jobs").count()
    };
    assert!(jobs(&again) >= jobs(kept));
}

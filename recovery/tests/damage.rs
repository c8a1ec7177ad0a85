//! Damage is never silence: whatever is done to the files behind the log's back ends in a named
//! error or in a reported torn tail that held nothing acknowledged, and never in an empty or
//! shorter start.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::{Path, PathBuf};

use common::*;
use saguin_log_engine::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{ChannelId, Operation, ReadError, ReadLimit};
use saguin_recovery::{DamageKind, Ending, FooterReport, RecoverError, inspect};

/// A closed log of several segments with every kind of operation in it.
fn log() -> MemFiles {
    log_on(MemFiles::new())
}

fn log_on(files: MemFiles) -> MemFiles {
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    for i in 0..40u64 {
        append(&engine, c.log, &format!("record {i}"));
        let job = Operation::Enqueue {
            channel: c.work,
            record: record("job"),
            max_bytes: None,
        };
        let offset = engine.submit(job).wait().unwrap().offsets[0].unwrap();
        if i % 3 == 0 {
            engine
                .submit(Operation::Resolve {
                    channel: c.work,
                    offset,
                })
                .wait()
                .unwrap();
        }
    }
    drop(engine);
    assert!(segments(&files).len() >= 3);
    files
}

fn damage(files: &MemFiles) -> saguin_recovery::Damage {
    let found = match open(&files.copy()) {
        Err(RecoverError::Damage(damage)) => damage,
        other => panic!("expected damage, found {other:?}"),
    };
    match inspect(files, Path::new(DIR), &mut ()) {
        Err(RecoverError::Damage(same)) => assert_eq!(same, found, "inspecting agrees"),
        other => panic!("expected damage, found {other:?}"),
    }
    found
}

/// Where the frames of a segment end.
fn ends(files: &MemFiles) -> Vec<(PathBuf, u64)> {
    let (report, _) = inspect(files, Path::new(DIR), &mut ()).unwrap();
    report
        .segments
        .into_iter()
        .map(|s| (s.path, s.end))
        .collect()
}

/// What follows the newest checkpoint is read when a log is opened, and what is before it when it is
/// asked for or verified: a flip is named by one or the other, and never served.
#[test]
fn any_flipped_byte_of_what_was_acknowledged_is_named_with_file_and_position() {
    let files = log();
    let ends = ends(&files);
    let mut found_by_reading = 0;
    for (i, (path, end)) in ends.iter().enumerate() {
        let newest = i + 1 == ends.len();
        for at in (0..*end).step_by(13) {
            let files = files.copy();
            files.edit(path, |bytes| bytes[at as usize] ^= 0x41);
            let damage = match inspect(&files, Path::new(DIR), &mut ()) {
                Err(RecoverError::Damage(damage)) => damage,
                other => panic!("expected damage, found {other:?}"),
            };
            assert_eq!(&damage.path, path, "byte {at}");
            assert!(damage.at <= at, "byte {at} of {}: {damage}", path.display());
            let (engine, report) = match open(&files) {
                Err(RecoverError::Damage(same)) => {
                    assert_eq!(same, damage, "opening and inspecting agree");
                    continue;
                }
                Ok(opened) => opened,
                Err(other) => panic!("expected damage, found {other:?}"),
            };
            assert!(!newest && at >= SEGMENT_HEADER_BYTES as u64);
            assert!(!report.segments[i].read, "what was read was verified");
            let (id, _) = engine.channel_named(b"log").unwrap();
            match read_all(&engine, id) {
                Err(ReadError::Damaged { path: named, .. }) => {
                    found_by_reading += 1;
                    assert_eq!(named, *path);
                }
                // The flip is in something that is not one of its records.
                Ok(records) => assert_eq!(records, 40),
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(found_by_reading > 10, "{found_by_reading}");
}

fn read_all(engine: &saguin_log_engine::Engine, id: ChannelId) -> Result<u64, ReadError> {
    let limit = ReadLimit {
        records: 7,
        bytes: 1000,
    };
    let mut offset = 1;
    loop {
        let read = engine.read_from(id, offset, limit)?.records;
        let Some(last) = read.last() else {
            return Ok(offset - 1);
        };
        for (i, record) in read.iter().enumerate() {
            let expected = offset + i as u64;
            assert_eq!(record.body, format!("record {}", expected - 1).as_bytes());
        }
        offset = last.offset + 1;
    }
}

#[test]
fn bytes_after_the_end_are_reported_as_a_torn_tail_and_lose_nothing() {
    let files = log();
    let (path, end) = ends(&files).pop().unwrap();
    for (from, count) in [(end, 1), (end + 3, 8), (end, 40)] {
        let files = files.copy();
        files.edit(&path, |bytes| bytes[from as usize..][..count].fill(0x77));
        let (engine, report) = open(&files).unwrap();
        let Ending::Torn(torn) = report.ending else {
            panic!("{:?}", report.ending)
        };
        assert_eq!((torn.at, torn.bytes), (end, from + count as u64 - end));
        let (id, _) = engine.channel_named(b"log").unwrap();
        assert_eq!(bodies(&engine, id, 1).len(), 40);
        drop(engine);
        let (_, report) = open(&files).unwrap();
        assert_eq!(
            report.ending,
            Ending::Whole { clean: true },
            "the repair lasts"
        );
    }
}

#[test]
fn a_missing_duplicated_swapped_or_foreign_segment_is_named() {
    let files = log();
    let paths = segments(&files);
    for (i, path) in paths.iter().enumerate() {
        let files = files.copy();
        files.remove(path).unwrap();
        let kind = damage(&files).kind;
        let number = i as u64 + 1;
        assert_eq!(
            kind,
            DamageKind::MissingSegment { number },
            "{}",
            path.display()
        );
    }
    // A frame that does not verify is not explained by it.
    let both = files.copy();
    both.remove(&paths[1]).unwrap();
    both.edit(&paths[2], |bytes| bytes[4096 + 20] ^= 1);
    let found = damage(&both);
    assert!(matches!(found.kind, DamageKind::Frame { .. }), "{found}");
    assert_eq!(found.path, paths[2]);

    let duplicated = files.copy();
    let content = contents(&files, &paths[1]);
    let other_name = paths[1].with_file_name(format!("{:020}.seg", 3));
    write(&duplicated, &other_name, &content);
    assert!(matches!(
        damage(&duplicated).kind,
        DamageKind::Misnamed { .. }
    ));

    let swapped = files.copy();
    let (a, b) = (contents(&files, &paths[0]), contents(&files, &paths[1]));
    swapped.edit(&paths[0], |bytes| *bytes = b.clone());
    swapped.edit(&paths[1], |bytes| *bytes = a.clone());
    assert!(matches!(damage(&swapped).kind, DamageKind::Misnamed { .. }));

    // Another log with the same history: every name and LSN fits, the id does not.
    let foreign = files.copy();
    let stranger = MemFiles::new();
    stranger.random(&mut [0; 4]).unwrap();
    let (engine, _) = open(&stranger).unwrap();
    let c = define(&engine);
    for i in 0..80 {
        append(&engine, c.log, &format!("record {i}"));
    }
    drop(engine);
    let theirs = contents(&stranger, &segments(&stranger)[0]);
    foreign.edit(&paths[0], |bytes| *bytes = theirs.clone());
    assert!(matches!(
        damage(&foreign).kind,
        DamageKind::ForeignSegment { .. }
    ));
}

#[test]
fn a_truncated_segment_is_named() {
    let files = log();
    for (path, end) in ends(&files) {
        let header = SEGMENT_HEADER_BYTES as u64;
        for len in [
            0,
            7,
            100,
            header - 1,
            header,
            header + 5,
            (header + end) / 2,
            end,
        ] {
            let files = files.copy();
            files.edit(&path, |bytes| bytes.truncate(len as usize));
            assert_eq!(damage(&files).path, path, "cut to {len} of {end}");
        }
    }
}

#[test]
fn a_segment_emptied_behind_its_header_is_named() {
    let files = log();
    for (path, _) in ends(&files) {
        let files = files.copy();
        files.edit(&path, |bytes| bytes[SEGMENT_HEADER_BYTES..].fill(0));
        assert_eq!(damage(&files).path, path);
    }
}

#[test]
fn a_directory_whose_segments_are_gone_is_not_a_new_one() {
    let files = log();
    for path in segments(&files) {
        files.remove(&path).unwrap();
    }
    assert!(matches!(
        damage(&files).kind,
        DamageKind::SegmentsGone { .. }
    ));
    files.remove(&Path::new(DIR).join("saguin.lock")).unwrap();
    assert_eq!(damage(&files).kind, DamageKind::OnlyCheckpoints);
}

#[test]
fn the_last_acknowledged_frame_is_guarded_once_the_log_was_idle() {
    // What an idle second or a clean stop leaves behind it: a frame that vouches for it.
    let files = log();
    let (path, end) = ends(&files).pop().unwrap();
    let at = end as usize - FRAME_HEADER_BYTES - 4;
    files.edit(&path, |bytes| bytes[at] ^= 1);
    assert!(matches!(
        damage(&files).kind,
        DamageKind::Frame {
            intact_after: 1,
            ..
        }
    ));
}

fn contents(files: &MemFiles, path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    files.edit(path, |bytes| out.clone_from(bytes));
    out
}

fn write(files: &MemFiles, path: &Path, bytes: &[u8]) {
    files.create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

#[test]
fn records_before_a_damaged_one_are_served_and_the_damage_is_named() {
    let files = MemFiles::new();
    let (engine, _) = open(&files).unwrap();
    let c = define(&engine);
    for i in 1..=5 {
        append(&engine, c.log, &format!("a record with number {i}"));
    }
    let path = segments(&files).pop().unwrap();
    files.edit(&path, |bytes| {
        let at = bytes.windows(8).position(|w| w == b"number 3").unwrap();
        bytes[at] ^= 1;
    });
    let limit = ReadLimit {
        records: 10,
        bytes: 1000,
    };
    let good = engine.read_from(c.log, 1, limit).unwrap().records;
    assert_eq!(good.iter().map(|r| r.offset).collect::<Vec<_>>(), [1, 2]);
    let damaged = engine.read_from(c.log, 3, limit).unwrap_err();
    assert!(
        matches!(&damaged, ReadError::Damaged { path: p, .. } if *p == path),
        "{damaged}"
    );
}

/// The checkpoints of a log, oldest first.
fn checkpoints(files: &MemFiles) -> Vec<PathBuf> {
    let dir = Path::new(DIR).join("checkpoint");
    let mut names = files.list(&dir).unwrap();
    names.sort();
    names.iter().map(|name| dir.join(name)).collect()
}

/// A log opened and closed twice: two checkpoints.
fn log_twice() -> MemFiles {
    let files = log();
    let (engine, _) = open(&files).unwrap();
    let (id, _) = engine.channel_named(b"dead").unwrap();
    append(&engine, id, "later");
    drop(engine);
    assert_eq!(checkpoints(&files).len(), 2);
    files
}

fn all_is_there(files: &MemFiles) -> saguin_recovery::Report {
    let (engine, report) = open(files).unwrap();
    let (id, _) = engine.channel_named(b"log").unwrap();
    assert_eq!(read_all(&engine, id).unwrap(), 40);
    let (work, _) = engine.channel_named(b"work").unwrap();
    assert_eq!(engine.unresolved(work).unwrap().len(), 26);
    report
}

#[test]
fn a_checkpoint_that_is_damaged_in_any_way_is_reported_and_nothing_is_lost() {
    let files = log_twice();
    let paths = checkpoints(&files);
    let newest = paths.last().unwrap();
    let whole = contents(&files, newest);
    for at in (0..whole.len()).step_by(3) {
        let files = files.copy();
        files.edit(newest, |bytes| bytes[at] ^= 0x20);
        let report = all_is_there(&files);
        assert_eq!(report.rejected.len(), 1, "byte {at}");
        assert_eq!(&report.rejected[0].path, newest);
        assert_eq!(
            report.checkpoint.as_ref().unwrap().0,
            paths[0],
            "the one before it"
        );
    }
    for cut in (0..whole.len()).step_by(7) {
        let files = files.copy();
        files.edit(newest, |bytes| bytes.truncate(cut));
        assert_eq!(all_is_there(&files).rejected.len(), 1, "cut at {cut}");
    }
    // Both gone, swapped, one under another name, one of another log.
    let gone = files.copy();
    for path in &paths {
        gone.remove(path).unwrap();
    }
    assert_eq!(all_is_there(&gone).checkpoint, None);
    let swapped = files.copy();
    let older = contents(&files, &paths[0]);
    swapped.edit(newest, |bytes| *bytes = older.clone());
    swapped.edit(&paths[0], |bytes| *bytes = whole.clone());
    assert_eq!(all_is_there(&swapped).rejected.len(), 2);
    let duplicated = files.copy();
    let name = newest.with_file_name(format!("{:020}.ckpt", 999_999));
    write(&duplicated, &name, &whole);
    assert_eq!(all_is_there(&duplicated).rejected.len(), 1);
    let foreign = files.copy();
    let stranger = MemFiles::new();
    stranger.random(&mut [0; 4]).unwrap();
    let stranger = log_on(stranger);
    let theirs = contents(&stranger, &checkpoints(&stranger)[0]);
    foreign.remove(newest).unwrap();
    foreign.edit(&paths[0], |bytes| *bytes = theirs.clone());
    let report = all_is_there(&foreign);
    assert!(
        report.rejected[0].why.contains("belongs to log"),
        "{report:?}"
    );
}

#[test]
fn a_log_that_ends_short_of_its_checkpoint_is_named() {
    let files = log_twice();
    let (path, end) = ends(&files).pop().unwrap();
    // The clean end and the frame before it, as if they had never been written: without the
    // checkpoint this is a log that ends a little earlier.
    files.edit(&path, |bytes| {
        bytes[end as usize - FRAME_HEADER_BYTES..end as usize].fill(0);
    });
    let damage = damage(&files);
    assert!(matches!(damage.kind, DamageKind::Short { .. }), "{damage}");
    for path in checkpoints(&files) {
        files.remove(&path).unwrap();
    }
    all_is_there(&files);
}

#[test]
fn a_footer_that_is_gone_or_damaged_is_written_again() {
    let files = log_twice();
    let path = &segments(&files)[0];
    let whole = contents(&files, path);
    let (report, _) = inspect(&files, Path::new(DIR), &mut ()).unwrap();
    let capacity = report.segments[0].capacity as usize;
    assert_eq!(report.segments[0].footer, FooterReport::Good);
    assert!(whole.len() > capacity);
    for at in capacity..whole.len() {
        let files = files.copy();
        files.edit(path, |bytes| bytes[at] ^= 1);
        let report = all_is_there(&files);
        assert!(
            matches!(report.segments[0].footer, FooterReport::Bad(_)),
            "byte {at}"
        );
        assert!(report.segments[0].read, "so its frames were read");
        assert_eq!(contents(&files, path), whole, "written again at the close");
    }
    for cut in capacity..whole.len() {
        let files = files.copy();
        files.edit(path, |bytes| bytes.truncate(cut));
        all_is_there(&files);
        assert_eq!(contents(&files, path), whole, "cut at {cut}");
    }
}

/// Every file of a log, and one of no use.
fn every_file(files: &MemFiles) -> Vec<PathBuf> {
    let mut paths = segments(files);
    paths.extend(checkpoints(files));
    paths.push(Path::new(DIR).join("saguin.lock"));
    paths
}

/// A named error, or everything that was acknowledged: by no means an empty or a shorter start.
fn named_or_whole(files: &MemFiles, what: &str) {
    let (engine, _) = match open(files) {
        Ok(opened) => opened,
        Err(RecoverError::Damage(damage)) => {
            assert!(!damage.to_string().is_empty());
            return;
        }
        Err(other) => panic!("{what}: {other}"),
    };
    let (id, _) = engine.channel_named(b"log").unwrap();
    match read_all(&engine, id) {
        Ok(records) => assert_eq!(records, 40, "{what}"),
        Err(ReadError::Damaged { .. }) => {}
        Err(other) => panic!("{what}: {other}"),
    }
    let (work, _) = engine.channel_named(b"work").unwrap();
    assert_eq!(engine.unresolved(work).unwrap().len(), 26, "{what}");
    let (dead, _) = engine.channel_named(b"dead").unwrap();
    assert_eq!(engine.numbers(dead).unwrap().next, 2, "{what}");
}

#[test]
fn whatever_is_done_to_any_file_is_named_or_harmless() {
    let files = log_twice();
    let paths = every_file(&files);
    for path in &paths {
        let name = path.display();
        let whole = contents(&files, path);
        for part in 0..40 {
            let at = whole.len() * part / 40;
            let flipped = files.copy();
            flipped.edit(path, |bytes| bytes[at] ^= 0x11);
            named_or_whole(&flipped, &format!("{name} flipped at {at}"));
            let cut = files.copy();
            cut.edit(path, |bytes| bytes.truncate(at));
            named_or_whole(&cut, &format!("{name} cut to {at}"));
        }
        let gone = files.copy();
        gone.remove(path).unwrap();
        named_or_whole(&gone, &format!("{name} deleted"));
        for number in [2, 9999] {
            let twice = files.copy();
            let extension = path.extension().unwrap().to_str().unwrap();
            let copy = path.with_file_name(format!("{number:020}.{extension}"));
            write(&twice, &copy, &whole);
            named_or_whole(&twice, &format!("{name} duplicated as {}", copy.display()));
        }
        for other in paths.iter().filter(|other| *other != path) {
            let swapped = files.copy();
            let theirs = contents(&files, other);
            swapped.edit(path, |bytes| *bytes = theirs.clone());
            swapped.edit(other, |bytes| *bytes = whole.clone());
            named_or_whole(
                &swapped,
                &format!("{name} swapped with {}", other.display()),
            );
        }
    }
}

//! A power cut at every write, rename, removal and sync of a repair, and again in the repair that
//! follows it. After each, the directory is as damaged as it was, said to be so and repaired again to
//! the same log; or it is the new log, whole.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::disk::{CutDisk, Image};
use common::*;
use saguin_log_engine::format::{Kind, SEGMENT_HEADER_BYTES};
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{Engine, Layout, Operation};
use saguin_recovery::salvage::salvage;
use saguin_recovery::{DamageKind, RecoverError, inspect, rebuild, recover};

/// A closed log with something of every kind alive in most of its segments, and checkpoints.
fn filled() -> Image {
    let disk = CutDisk::default();
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (engine, _) = recover(&fs, Path::new(DIR), &options()).unwrap();
    let c = define(&engine);
    let submit = |op: Operation| engine.submit(op).wait().unwrap();
    for step in 1..=24u64 {
        append(&engine, c.log, &format!("record {step}"));
        submit(Operation::Set {
            channel: c.map,
            key: Bytes::from(format!("topic {}", step % 5)),
            record: record(&format!("value {step}")),
        });
        submit(Operation::Enqueue {
            channel: c.work,
            record: record(&format!("job {step}")),
            max_bytes: None,
        });
        if step.is_multiple_of(3) {
            submit(Operation::DeadLetter {
                work: c.work,
                offset: step,
                channel: c.dead,
                record: record(&format!("dead {step}")),
            });
        }
        submit(Operation::Hold {
            key: Bytes::from(format!("hold {step:02}")),
            record: record(&format!("held {step}")),
        });
        if step.is_multiple_of(2) {
            let key = Bytes::from(format!("hold {:02}", step - 1));
            submit(Operation::Drop { key });
        }
        submit(Operation::Put {
            space: 1,
            key: Bytes::from(format!("session {}", step % 4)),
            value: Bytes::from(format!("{step}")),
        });
        if step.is_multiple_of(10) {
            engine.checkpoint().unwrap();
        }
    }
    drop(engine);
    disk.take_images().pop().unwrap()
}

/// The segments of an image, oldest first.
fn segments_of(image: &Image) -> Vec<std::path::PathBuf> {
    let is_segment = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "seg");
    image.files.keys().filter(is_segment).cloned().collect()
}

fn used(bytes: &[u8], capacity: usize) -> usize {
    let frames = &bytes[..capacity.min(bytes.len())];
    frames.iter().rposition(|&b| b != 0).unwrap() + 1
}

fn capacity() -> usize {
    usize::try_from(options().segment_bytes).unwrap()
}

/// A frame in the middle of a segment in the middle.
fn flipped() -> Image {
    let mut image = filled();
    let paths = segments_of(&image);
    let bytes = image.files.get_mut(&paths[paths.len() / 2]).unwrap();
    let at = (SEGMENT_HEADER_BYTES + used(bytes, capacity())) / 2;
    bytes[at] ^= 0x41;
    image
}

/// The end of the log is gone, and a checkpoint knows of it.
fn short() -> Image {
    let mut image = filled();
    let bytes = image
        .files
        .get_mut(&segments_of(&image).pop().unwrap())
        .unwrap();
    let end = used(bytes, capacity());
    bytes[end - 150..end].fill(0);
    image
}

/// The first segment is gone.
fn headless() -> Image {
    let mut image = filled();
    let first = segments_of(&image).remove(0);
    image.files.remove(&first);
    image
}

/// What a log holds, without the offsets the next records take.
fn contents(engine: &Engine) -> Vec<String> {
    let mut out = Vec::new();
    for name in ["log", "map", "work", "dead", "lost-channel-0"] {
        let Some((id, kind)) = engine.channel_named(name.as_bytes()) else {
            continue;
        };
        let numbers = engine.numbers(id).unwrap();
        let (floor, count, bytes) = (numbers.floor, numbers.count, numbers.bytes);
        out.push(format!("{name} {floor} {count} {bytes}"));
        match kind {
            Kind::Sequence => out.extend(
                bodies(engine, id, floor)
                    .iter()
                    .map(|(offset, body)| format!("{offset} {body}")),
            ),
            Kind::Map => {
                for (key, entry) in engine.map_entries(id, 0, usize::MAX).unwrap() {
                    let value = engine.get(id, &key).unwrap();
                    out.push(format!("{key:?} {} {value:?}", entry.offset));
                }
            }
            Kind::Work => {
                for (offset, job) in engine.unresolved(id).unwrap() {
                    let body = engine.job(id, offset).unwrap();
                    out.push(format!("{offset} {} {body:?}", job.attempts));
                }
            }
        }
    }
    for (key, _) in engine.holds(b"", None, usize::MAX) {
        out.push(format!("{key:?} {:?}", engine.held(&key).unwrap()));
    }
    out.extend(engine.values(1, b"").iter().map(|v| format!("{v:?}")));
    out
}

/// The offsets the next records take.
fn nexts(engine: &Engine) -> Vec<Option<u64>> {
    let next = |name: &str| {
        let (id, _) = engine.channel_named(name.as_bytes())?;
        Some(engine.numbers(id)?.next)
    };
    ["log", "map", "work", "dead"].map(next).to_vec()
}

fn repair(fs: &dyn FileSystem) {
    let found = salvage(fs, Path::new(DIR)).unwrap();
    rebuild(fs, &Layout::new(Path::new(DIR)), &found).unwrap();
}

/// What a repaired log has to be.
struct Expected {
    contents: Vec<String>,
    nexts: Vec<Option<u64>>,
}

/// Whether the new log was there; if not, it is repaired, and is then.
fn check(image: &Image, expected: &Expected, what: &str) -> bool {
    let files = image.mount();
    let whole = match inspect(&files, Path::new(DIR), &mut ()) {
        Ok((report, _)) => {
            assert_eq!(report.contradiction, None, "{what}");
            true
        }
        Err(RecoverError::Damage(_)) => {
            still_the_old_one(&files.copy(), what);
            repair(&files);
            false
        }
        Err(other) => panic!("{what}: {other}"),
    };
    is_new(&files, expected, what);
    whole
}

/// It does not open. Or all that is damaged lies before its newest checkpoint: then it opens as it did
/// before the repair, without anything of the new log.
fn still_the_old_one(files: &MemFiles, what: &str) {
    match open(files) {
        Err(RecoverError::Damage(_)) => {}
        Ok((_, report)) => {
            assert_ne!(report.checkpoint, None, "{what}: it is damaged and opens");
            assert_eq!(report.segments[0].number, 1, "{what}");
            let unread = report.segments.iter().filter(|s| !s.read).count();
            assert_eq!(unread, report.segments.len() - 1, "{what}");
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

fn is_new(files: &MemFiles, expected: &Expected, what: &str) {
    let (engine, _) = open(files).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(contents(&engine), expected.contents, "{what}");
    for (now, once) in nexts(&engine).iter().zip(&expected.nexts) {
        assert!(now >= once, "{what}: {now:?} after {once:?}");
    }
    let c = define(&engine);
    let next = engine.numbers(c.log).unwrap().next;
    assert_eq!(append(&engine, c.log, "afterwards"), next, "{what}");
    drop(engine);
    // Nothing of the old log is left for the next opening to stumble over.
    let (report, _) = inspect(files, Path::new(DIR), &mut ()).unwrap();
    assert_eq!((report.contradiction, report.rejected), (None, vec![]));
}

fn cut_everywhere(damaged: &Image, is_kind: impl Fn(&DamageKind) -> bool) {
    let files = damaged.mount();
    match inspect(&files, Path::new(DIR), &mut ()) {
        Err(RecoverError::Damage(damage)) if is_kind(&damage.kind) => {}
        other => panic!("expected damage, found {other:?}"),
    }
    repair(&files);
    assert!(segments(&files).len() > 1, "several new segments");
    let (engine, _) = open(&files.copy()).unwrap();
    let expected = Expected {
        contents: contents(&engine),
        nexts: nexts(&engine),
    };
    assert!(expected.contents.len() > 40, "{:?}", expected.contents);
    drop(engine);
    let disk = CutDisk::with(damaged);
    repair(&disk);
    let images = disk.take_images();
    let (mut new, mut second_cuts) = (0, 0);
    for (i, image) in images.iter().enumerate() {
        let whole = check(image, &expected, &format!("image {i}"));
        new += usize::from(whole);
        // Now and then a cut inside the repair that follows.
        if !whole && (i % 23 == 0 || new > 0) {
            let again = CutDisk::with(image);
            repair(&again);
            for (j, image) in again.take_images().iter().enumerate().step_by(7) {
                second_cuts += 1;
                check(image, &expected, &format!("image {j} after image {i}"));
            }
        }
    }
    assert!(new > 3 && new < images.len(), "{new} of {}", images.len());
    assert!(second_cuts > 20, "{second_cuts} second cuts");
}

#[test]
fn a_cut_in_the_repair_of_a_bad_frame_leaves_the_damaged_log_or_the_new_one() {
    let is_frame = |kind: &DamageKind| matches!(kind, DamageKind::Frame { .. });
    let mut damaged = flipped();
    cut_everywhere(&damaged, is_frame);
    damaged
        .files
        .retain(|path, _| path.extension().is_none_or(|e| e != "ckpt"));
    cut_everywhere(&damaged, is_frame);
}

#[test]
fn a_cut_in_the_repair_of_a_log_that_lost_its_end_leaves_one_or_the_other() {
    cut_everywhere(&short(), |kind| matches!(kind, DamageKind::Short { .. }));
}

#[test]
fn a_cut_in_the_repair_of_a_log_that_lost_its_beginning_leaves_one_or_the_other() {
    cut_everywhere(&headless(), |_| true);
}

//! A power cut at every write, sync, rename and directory sync of a scenario that rolls several
//! times, and again at every such step of the recovery from it. After each: everything that was
//! acknowledged is there, once, in order; nothing is half done; and the log goes on.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::disk::{CutDisk, Image};
use common::*;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{Engine, NewRecord, Operation, Target, Tidied};
use saguin_recovery::{RecoverError, inspect, recover};

fn start(disk: &CutDisk) -> Engine {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    recover(&fs, Path::new(DIR), &options()).unwrap().0
}

/// Step n appends record n, enqueues job n, and every third step moves that job to the dead letters.
/// Every step holds a record, every second one releases it into the fifth channel, every fifth
/// drops the one before.
const STEPS: u64 = 24;

fn scenario(disk: &CutDisk) {
    let engine = start(disk);
    let c = define(&engine);
    for step in 1..=STEPS {
        assert_eq!(append(&engine, c.log, &format!("record {step}")), step);
        let job = Operation::Enqueue {
            channel: c.work,
            record: record("job"),
            max_bytes: None,
        };
        assert_eq!(engine.submit(job).wait().unwrap().offsets, [Some(step)]);
        if step % 3 == 0 {
            let moved = Operation::DeadLetter {
                work: c.work,
                offset: step,
                channel: c.dead,
                record: record(&format!("dead {step}")),
            };
            engine.submit(moved).wait().unwrap();
        }
        if step % 6 == 0 {
            engine.checkpoint().unwrap();
        }
        hold_and_release(&engine, step);
        disk.acknowledge(step as usize);
    }
}

fn hold_key(step: u64) -> Bytes {
    Bytes::from(format!("hold {step:02}"))
}

fn hold_and_release(engine: &Engine, step: u64) {
    let released = engine.define("released", Kind::Sequence).unwrap();
    let (key, body) = (hold_key(step), format!("held {step}"));
    let record = record(&body);
    let hold = Operation::Hold { key, record };
    engine.submit(hold).wait().unwrap();
    if step.is_multiple_of(2) {
        let key = hold_key(step);
        let read = engine.held(&key).unwrap().unwrap();
        let target = Target::Append {
            channel: released,
            record: NewRecord {
                timestamp: read.timestamp,
                size: read.size,
                body: read.body,
            },
            max_bytes: None,
        };
        let release = Operation::Release { key, target };
        let offset = engine.submit(release).wait().unwrap().offsets[0];
        assert_eq!(offset, Some(step / 2));
    }
    if step.is_multiple_of(5) && !(step - 1).is_multiple_of(2) {
        let key = hold_key(step - 1);
        engine.submit(Operation::Drop { key }).wait().unwrap();
    }
}

/// Every record that was held is held, or where it was released to, or dropped: once.
fn check_holds(engine: &Engine, acknowledged: u64) {
    let Some((released, _)) = engine.channel_named(b"released") else {
        assert_eq!(acknowledged, 0);
        return;
    };
    let landed = bodies(engine, released, 1);
    for (i, (_, body)) in landed.iter().enumerate() {
        assert_eq!(*body, format!("held {}", 2 * (i + 1)));
    }
    for step in 1..=acknowledged + 1 {
        let held = engine.held(&hold_key(step)).unwrap();
        let landed = landed.len() as u64 >= step / 2 && step.is_multiple_of(2);
        assert!(held.is_none() || !landed, "hold {step} is in both places");
        if let Some(held) = &held {
            assert_eq!(held.body, format!("held {step}").as_bytes());
        }
        if step > acknowledged {
            continue;
        }
        let dropped = (step + 1).is_multiple_of(5) && !step.is_multiple_of(2);
        if step.is_multiple_of(2) {
            assert!(landed && held.is_none(), "hold {step} was released");
        } else if !dropped {
            assert!(held.is_some(), "hold {step} was not dropped");
        } else if step < acknowledged {
            assert!(held.is_none(), "hold {step} was dropped");
        }
    }
    assert_eq!(
        engine.holds(b"", None, 1000).len(),
        engine.holds(b"hold", None, 1000).len()
    );
}

/// Everything acknowledged is there, and what came after it is whole or absent.
fn check(engine: &Engine, acknowledged: u64) {
    let Some((log, _)) = engine.channel_named(b"log") else {
        assert_eq!(acknowledged, 0);
        return;
    };
    let seen = bodies(engine, log, 1);
    assert!(
        seen.len() as u64 >= acknowledged,
        "{} of {acknowledged}",
        seen.len()
    );
    assert!(
        seen.len() as u64 <= acknowledged + 1,
        "at most the record that was on its way"
    );
    for (i, (offset, body)) in seen.iter().enumerate() {
        assert_eq!(
            (*offset, body.as_str()),
            (i as u64 + 1, &*format!("record {offset}"))
        );
    }
    check_holds(engine, acknowledged);
    let Some((dead, _)) = engine.channel_named(b"dead") else {
        return;
    };
    let (work, _) = engine.channel_named(b"work").unwrap();
    let jobs: Vec<u64> = engine
        .unresolved(work)
        .unwrap()
        .iter()
        .map(|j| j.0)
        .collect();
    let moved: Vec<u64> = bodies(engine, dead, 1)
        .iter()
        .map(|(_, body)| body.trim_start_matches("dead ").parse().unwrap())
        .collect();
    for step in 1..=acknowledged {
        let (queued, dead) = (jobs.contains(&step), moved.contains(&step));
        assert_eq!((queued, dead), (step % 3 != 0, step % 3 == 0), "job {step}");
    }
    for step in moved {
        assert!(!jobs.contains(&step), "job {step} is in both places");
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_a_power_cut_nor_to_a_second_one_in_the_recovery() {
    let disk = CutDisk::default();
    scenario(&disk);
    let images = disk.take_images();
    assert!(images.len() > 300, "{} images", images.len());
    let mut second_cuts = 0;
    for (i, image) in images.iter().enumerate() {
        let acknowledged = image.acknowledged as u64;
        let engine = start_from(image, i);
        check(&engine, acknowledged);
        goes_on(&engine);
        drop(engine);
        // Now and then a cut inside the recovery; each image of it is a cut of its own.
        if i % 31 == 0 {
            let again = CutDisk::with(image);
            drop(start(&again));
            for image in again.take_images() {
                second_cuts += 1;
                check(&start_from(&image, i), acknowledged);
            }
        }
    }
    assert!(second_cuts > 100, "{second_cuts} second cuts");
}

/// What has a checkpoint's name is a whole one, and says what the frames say.
fn checkpoints_hold(files: &MemFiles, i: usize) {
    match inspect(files, Path::new(DIR), &mut ()) {
        Ok((report, _)) => {
            assert_eq!(report.contradiction, None, "image {i}");
            assert_eq!(report.rejected, [], "image {i}");
        }
        Err(error) => assert!(
            matches!(error, RecoverError::NoLog { .. }),
            "image {i}: {error}"
        ),
    }
}

fn start_from(image: &Image, i: usize) -> Engine {
    let files = image.mount();
    // Reading everything three times takes its time: every fifth will do, each kind comes by.
    if i.is_multiple_of(5) {
        checkpoints_hold(&files, i);
    }
    match open(&files) {
        Ok((engine, _)) => engine,
        Err(error) => panic!("image {i}, {} acknowledged: {error}", image.acknowledged),
    }
}

/// A recovered log takes the next record at the next offset.
fn goes_on(engine: &Engine) {
    let c = define(engine);
    let next = engine.numbers(c.log).unwrap().next;
    assert_eq!(append(engine, c.log, "afterwards"), next);
}

/// Steps of the scenario in which old segments are emptied and let go.
const TIDY_STEPS: u64 = 30;

/// What a step leaves as the floor of the log.
fn floor_after(step: u64) -> u64 {
    if step < 5 { 1 } else { step / 5 * 5 - 2 }
}

/// Two old jobs, a rarely set key and a small value pin the first segments, while the log goes on,
/// is trimmed behind, and every segment that can be given back is.
fn tidy_scenario(disk: &CutDisk) {
    let engine = start(disk);
    let c = define(&engine);
    let set = |key: &'static str, body: &str| {
        let key = Bytes::from_static(key.as_bytes());
        let record = record(body);
        let set = Operation::Set {
            channel: c.map,
            key,
            record,
        };
        engine.submit(set).wait().unwrap();
    };
    for step in 1..=TIDY_STEPS {
        if step == 1 {
            for body in ["old job", "resolved job"] {
                let record = record(body);
                let channel = c.work;
                let job = Operation::Enqueue {
                    channel,
                    record,
                    max_bytes: None,
                };
                engine.submit(job).wait().unwrap();
            }
            let attempt = Operation::Attempt {
                channel: c.work,
                offset: 1,
                attempts: 3,
                first: 1,
                last: 2,
            };
            engine.submit(attempt).wait().unwrap();
            set("quiet", "set once");
            let (key, record) = (hold_key(0), record("held long"));
            engine
                .submit(Operation::Hold { key, record })
                .wait()
                .unwrap();
            let (key, value) = (Bytes::from_static(b"key"), Bytes::from_static(b"value"));
            engine
                .submit(Operation::Put {
                    space: 1,
                    key,
                    value,
                })
                .wait()
                .unwrap();
        }
        if step == 20 {
            let resolve = Operation::Resolve {
                channel: c.work,
                offset: 2,
            };
            engine.submit(resolve).wait().unwrap();
        }
        assert_eq!(append(&engine, c.log, &format!("record {step}")), step);
        set("busy", &format!("{step}"));
        if let Some(plan) = engine.plan_trim(c.log, floor_after(step)).unwrap() {
            engine.submit(Operation::Trim(plan)).wait().unwrap();
        }
        while engine.tidy().unwrap() != Tidied::Nothing {}
        // Often enough that the places checkpoints and footers name are moved from.
        if step % 4 == 0 {
            engine.checkpoint().unwrap();
        }
        disk.acknowledge(step as usize);
    }
    let fs: &dyn FileSystem = disk;
    let segments = fs.list(Path::new("/data/log")).unwrap().len();
    assert!(segments < 12, "{segments} segments are left of about 30");
}

fn check_tidied(engine: &Engine, acknowledged: u64) {
    if acknowledged == 0 {
        return;
    }
    let log = engine.channel_named(b"log").unwrap().0;
    let numbers = engine.numbers(log).unwrap();
    assert!(numbers.next > acknowledged && numbers.next <= acknowledged + 2);
    assert!(
        numbers.floor >= floor_after(acknowledged),
        "a floor never falls"
    );
    assert!(numbers.floor <= floor_after(acknowledged + 1));
    let seen = bodies(engine, log, numbers.floor);
    let expected: Vec<_> = (numbers.floor..numbers.next)
        .map(|n| (n, format!("record {n}")))
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(numbers.count, numbers.next - numbers.floor);
    let map = engine.channel_named(b"map").unwrap().0;
    let value = |key: &[u8]| engine.get(map, key).unwrap().unwrap().body;
    assert_eq!(value(b"quiet"), "set once");
    let busy: u64 = std::str::from_utf8(&value(b"busy"))
        .unwrap()
        .parse()
        .unwrap();
    assert!(busy == acknowledged || busy == acknowledged + 1);
    assert_eq!(engine.numbers(map).unwrap().count, 2);
    let work = engine.channel_named(b"work").unwrap().0;
    let jobs = engine.unresolved(work).unwrap();
    assert_eq!((jobs[0].0, jobs[0].1.attempts), (1, 3));
    assert_eq!(engine.job(work, 1).unwrap().unwrap().body, "old job");
    assert!(jobs.len() == 1 || acknowledged < 20);
    assert!(jobs.len() == 2 || acknowledged >= 19);
    assert_eq!(engine.numbers(work).unwrap().count, jobs.len() as u64);
    let held = engine.held(&hold_key(0)).unwrap().unwrap();
    assert_eq!(held.body, "held long");
    assert_eq!(engine.value(1, b"key"), Some(Bytes::from_static(b"value")));
}

#[test]
fn nothing_alive_is_lost_when_old_segments_are_emptied_and_let_go() {
    let disk = CutDisk::default();
    tidy_scenario(&disk);
    let images = disk.take_images();
    for (i, image) in images.iter().enumerate() {
        let acknowledged = image.acknowledged as u64;
        let engine = start_from(image, i);
        check_tidied(&engine, acknowledged);
        while engine.tidy().unwrap() != Tidied::Nothing {}
        check_tidied(&engine, acknowledged);
        drop(engine);
        if i % 43 == 0 {
            let again = CutDisk::with(image);
            drop(start(&again));
            for image in again.take_images() {
                check_tidied(&start_from(&image, i), acknowledged);
            }
        }
    }
}

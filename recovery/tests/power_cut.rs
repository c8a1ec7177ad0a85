//! A power cut at every write, sync, rename and directory sync of a scenario that rolls several
//! times, and again at every such step of the recovery from it. After each: everything that was
//! acknowledged is there, once, in order; nothing is half done; and the log goes on.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::disk::{CutDisk, Image};
use common::*;
use saguin_log_engine::storage::FileSystem;
use saguin_log_engine::{Engine, Operation};
use saguin_recovery::recover;

fn start(disk: &CutDisk) -> Engine {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    recover(&fs, Path::new(DIR), &options()).unwrap().0
}

/// Step n appends record n, enqueues job n, and every third step moves that job to the dead letters.
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
        disk.acknowledge(step as usize);
    }
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
        // Every ninth: the cut inside the recovery; each image is a cut of its own.
        if i % 9 == 0 {
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

fn start_from(image: &Image, i: usize) -> Engine {
    let files = image.mount();
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

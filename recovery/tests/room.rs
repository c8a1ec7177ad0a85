//! A log at its bound, and one on a disk that is full: what is published is refused, what gives room
//! back is not, and then there is room again.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use bytes::Bytes;
use common::*;
use saguin_log_engine::format::{POSITIONS, position_key, position_value};
use saguin_log_engine::storage::MemFiles;
use saguin_log_engine::{
    BoundTooSmall, ChannelId, CommitError, Engine, NewRecord, Operation, Options, Target, Tidied,
};
use saguin_recovery::RecoverError;

const SEGMENT: u64 = 64 << 10;
const RECORD: u64 = 20_000;

fn bounded(segments: u64) -> Options {
    Options {
        segment_bytes: SEGMENT,
        max_bytes: Some(segments * SEGMENT),
        max_record_bytes: RECORD,
        ..options()
    }
}

fn full_disk() -> Options {
    Options {
        segment_bytes: SEGMENT,
        ..options()
    }
}

fn payload(len: usize) -> NewRecord {
    record(&"x".repeat(len))
}

fn enqueue(engine: &Engine, channel: ChannelId, len: usize) -> Result<u64, CommitError> {
    let op = Operation::Enqueue {
        channel,
        record: payload(len),
        max_bytes: None,
    };
    Ok(engine.submit(op).wait()?.offsets[0].unwrap())
}

fn try_append(engine: &Engine, channel: ChannelId, len: usize) -> Result<u64, CommitError> {
    let op = Operation::Append {
        channel,
        record: payload(len),
        max_bytes: None,
    };
    Ok(engine.submit(op).wait()?.offsets[0].unwrap())
}

/// Publishes until that is refused; how many were kept, and the refusal.
fn fill(mut publish: impl FnMut() -> Result<u64, CommitError>) -> (u64, CommitError) {
    for kept in 0..100_000 {
        if let Err(refusal) = publish() {
            return (kept, refusal);
        }
    }
    panic!("it never filled");
}

fn tidy(engine: &Engine) {
    for _ in 0..10_000 {
        // On a full disk a step may find no room; the next one does not go on for ever either.
        match engine.tidy() {
            Ok(Tidied::Nothing) | Err(_) => return,
            Ok(_) => {}
        }
    }
    panic!("tidying never ends");
}

fn is_room(refusal: &CommitError) -> bool {
    matches!(refusal, CommitError::LogFull { .. } | CommitError::NoSpace)
}

fn directory(files: &MemFiles) -> u64 {
    let fs: &dyn saguin_log_engine::storage::FileSystem = files;
    let len = |path| fs.open(path, false).unwrap().len().unwrap();
    files.paths().iter().map(|path| len(path)).sum()
}

#[test]
fn a_bound_too_small_is_refused_in_words() {
    let files = MemFiles::new();
    let options = Options {
        max_bytes: Some(70_000),
        ..bounded(16)
    };
    match open_with(&files, &options) {
        Err(error @ RecoverError::Bound(_)) => {
            assert!(error.to_string().contains("write 80000 or more"), "{error}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    let least = options.least_max_bytes();
    let max_bytes = 70_000;
    assert_eq!(options.check(), Err(BoundTooSmall { max_bytes, least }));
}

#[test]
fn what_is_published_never_takes_the_reserve() {
    let files = MemFiles::new();
    let options = bounded(20);
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let (kept, refusal) = fill(|| try_append(&engine, c.log, 500));
    let max_bytes = 20 * SEGMENT;
    assert!(kept > 1500, "{kept}");
    assert!(
        matches!(refusal, CommitError::LogFull { bytes, max_bytes: max }
        if max == max_bytes && bytes == engine.directory_bytes())
    );
    assert_eq!(engine.directory_bytes(), directory(&files));
    assert!(directory(&files) <= max_bytes - options.reserve());
    // Everything that publishes is refused, and nothing that relieves.
    let key = Bytes::from_static(b"k");
    for publish in [
        Operation::Set {
            channel: c.map,
            key: key.clone(),
            record: payload(4000),
        },
        Operation::Enqueue {
            channel: c.work,
            record: payload(4000),
            max_bytes: None,
        },
        Operation::Hold {
            key: key.clone(),
            record: payload(4000),
        },
        Operation::Put {
            space: 1,
            key,
            value: Bytes::from(vec![0; 4000]),
        },
    ] {
        let refused = engine.submit(publish.clone()).wait();
        assert!(
            matches!(refused, Err(CommitError::LogFull { .. })),
            "{publish:?}"
        );
    }
    let position = |position: u64| Operation::Put {
        space: POSITIONS,
        key: position_key(c.log.0, b"slow").into(),
        value: Bytes::copy_from_slice(&position_value(position)),
    };
    // Far more of them than the reserve is long, and a log that takes no more for it.
    for n in 0..8000 {
        engine.submit(position(n % kept + 1)).wait().unwrap();
        if n % 100 == 0 {
            tidy(&engine);
        }
        assert!(engine.directory_bytes() <= max_bytes, "{n}");
    }
    assert_eq!(bodies(&engine, c.log, 1).len() as u64, kept);
    drop(engine);
    let (engine, _) = open_with(&files, &options).unwrap();
    assert!(matches!(
        try_append(&engine, c.log, 4000),
        Err(CommitError::LogFull { .. })
    ));
    assert_eq!(engine.positions(c.log).0, 1);
}

/// Fills a queue, takes jobs out in some order with others' attempts in between, and expects room.
fn drain(files: &MemFiles, options: &Options, order: impl Fn(u64, u64) -> u64) {
    let (engine, _) = open_with(files, options).unwrap();
    let c = define(&engine);
    let (kept, refusal) = fill(|| enqueue(&engine, c.work, 1500));
    assert!(is_room(&refusal), "{refusal}");
    assert!(kept > 300, "{kept}");
    for n in 0..kept {
        let offset = order(n, kept);
        let attempt = Operation::Attempt {
            channel: c.work,
            offset,
            attempts: 1,
            first: 1,
            last: 2,
        };
        if n % 4 == 0 {
            engine.submit(attempt).wait().unwrap();
        }
        let channel = c.work;
        let resolve = Operation::Resolve { channel, offset };
        let resolved = engine.submit(resolve).wait();
        resolved.unwrap_or_else(|e| panic!("job {n} of {kept}: {e}"));
        if n % 64 == 0 {
            tidy(&engine);
        }
        if let Some(max) = options.max_bytes {
            assert!(engine.directory_bytes() <= max, "after {n} of {kept}");
        }
    }
    assert!(engine.unresolved(c.work).unwrap().is_empty());
    tidy(&engine);
    let (again, _) = fill(|| enqueue(&engine, c.work, 1500));
    assert!(again * 10 > kept * 9, "{again} of {kept}");
    drop(engine);
    let (engine, _) = open_with(files, options).unwrap();
    assert_eq!(engine.unresolved(c.work).unwrap().len() as u64, again);
}

#[test]
fn a_queue_full_to_the_bound_is_drained_in_any_order_and_accepts_again() {
    drain(&MemFiles::new(), &bounded(16), |n, _| n + 1);
    drain(&MemFiles::new(), &bounded(16), |n, kept| kept - n);
    // A stride that meets each once: 7919 is prime, and larger than any count here.
    drain(&MemFiles::new(), &bounded(16), |n, kept| {
        n * 7919 % kept + 1
    });
}

#[test]
fn a_queue_that_filled_the_disk_is_drained_and_accepts_again() {
    let files = MemFiles::new();
    files.set_room(Some(12 * SEGMENT));
    drain(&files, &full_disk(), |n, _| n + 1);
}

/// Fills a log, trims half of it away, and expects room.
fn trim(files: &MemFiles, options: &Options) {
    let (engine, _) = open_with(files, options).unwrap();
    let c = define(&engine);
    // Alive all along, in the oldest segment.
    let key = Bytes::from_static(b"old");
    for op in [
        Operation::Set {
            channel: c.map,
            key: key.clone(),
            record: payload(100),
        },
        Operation::Hold {
            key: key.clone(),
            record: payload(100),
        },
    ] {
        engine.submit(op).wait().unwrap();
    }
    let (kept, refusal) = fill(|| try_append(&engine, c.log, 500));
    assert!(is_room(&refusal), "{refusal}");
    for round in 0..5 {
        let numbers = engine.numbers(c.log).unwrap();
        let plan = engine.plan_trim(c.log, numbers.next - kept / 2).unwrap();
        engine
            .submit(Operation::Trim(plan.unwrap()))
            .wait()
            .unwrap();
        tidy(&engine);
        let (again, refusal) = fill(|| try_append(&engine, c.log, 500));
        assert!(is_room(&refusal), "{refusal}");
        assert!(again * 4 > kept, "round {round}: {again} of {kept}");
    }
    let target = Target::Append {
        channel: c.log,
        record: payload(100),
        max_bytes: None,
    };
    let release = Operation::Release {
        key: key.clone(),
        target,
    };
    engine.submit(release).wait().unwrap();
    assert_eq!(engine.get(c.map, &key).unwrap().unwrap().body.len(), 100);
}

#[test]
fn a_log_at_its_bound_accepts_again_after_a_trim() {
    trim(&MemFiles::new(), &bounded(16));
}

#[test]
fn a_log_that_filled_the_disk_accepts_again_after_a_trim() {
    let files = MemFiles::new();
    files.set_room(Some(12 * SEGMENT));
    trim(&files, &full_disk());
}

#[test]
fn tidying_a_log_that_is_all_alive_at_its_bound_ends() {
    let files = MemFiles::new();
    let (engine, _) = open_with(&files, &bounded(16)).unwrap();
    let c = define(&engine);
    fill(|| enqueue(&engine, c.work, 1500));
    let before = files.writes();
    tidy(&engine);
    // Nobody commits: what was written for others is the most that is moved.
    tidy(&engine);
    let moved = files.writes() - before;
    tidy(&engine);
    assert_eq!(files.writes() - before, moved, "and no more of it");
}

#[test]
fn a_record_of_the_largest_size_is_released_at_the_bound() {
    let files = MemFiles::new();
    let options = bounded(16);
    let (engine, _) = open_with(&files, &options).unwrap();
    let c = define(&engine);
    let key = Bytes::from_static(b"large");
    let record = payload(RECORD as usize - 200);
    let hold = Operation::Hold {
        key: key.clone(),
        record,
    };
    engine.submit(hold).wait().unwrap();
    fill(|| try_append(&engine, c.log, 100));
    let held = engine.held(&key).unwrap().unwrap();
    let target = Target::Enqueue {
        channel: c.work,
        record: NewRecord {
            timestamp: held.timestamp,
            size: held.size,
            body: held.body,
        },
        max_bytes: None,
    };
    engine
        .submit(Operation::Release { key, target })
        .wait()
        .unwrap();
    assert!(engine.directory_bytes() <= options.max_bytes.unwrap());
    assert_eq!(engine.unresolved(c.work).unwrap().len(), 1);
}

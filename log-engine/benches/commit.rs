//! What a commit costs beside its physical limit: a bare loop that writes and syncs the same number
//! of bytes into a file whose every block was written before. Both run in one process, turn by turn,
//! so that a disk that slows down slows both; medians and their ratio are what counts.
//!
//! `cargo bench -p saguin-log-engine`. `SAGUIN_BENCH_DIR` names a directory on the disk to measure;
//! the default is inside the build directory.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use saguin_log_engine::format::{FrameBuilder, Kind, Op, RecordRef};
use saguin_log_engine::storage::{FileSystem, OsFiles};
use saguin_log_engine::{Batch, ChannelId, Engine, NewRecord, Operation, Options};

/// The ratio a commit may cost.
const TARGET: f64 = 1.4;
const BARE_FILE_BYTES: u64 = 64 << 20;

struct Case {
    records: usize,
    record_bytes: usize,
    rounds: usize,
}

fn main() {
    let root = std::env::var_os("SAGUIN_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&root).unwrap();
    let dir = tempfile::tempdir_in(&root).unwrap();
    println!(
        "commit, durability sync, in {}: p50 of each, turn by turn",
        root.display()
    );
    println!(
        "{:>18} {:>12} {:>12} {:>8} {:>8}",
        "records", "bare", "engine", "ratio", "target"
    );
    for case in [
        Case {
            records: 1,
            record_bytes: 128,
            rounds: 2000,
        },
        Case {
            records: 32,
            record_bytes: 128,
            rounds: 2000,
        },
        Case {
            records: 256,
            record_bytes: 128,
            rounds: 2000,
        },
        Case {
            records: 1,
            record_bytes: 16 << 10,
            rounds: 1000,
        },
        Case {
            records: 32,
            record_bytes: 16 << 10,
            rounds: 300,
        },
        Case {
            records: 256,
            record_bytes: 16 << 10,
            rounds: 60,
        },
    ] {
        measure(dir.path(), &case);
    }
    unprepared(dir.path());
}

fn measure(dir: &Path, case: &Case) {
    let name = format!("{} x {} B", case.records, case.record_bytes);
    let path = dir.join(name.replace(' ', ""));
    let body = Bytes::from(vec![0x5a; case.record_bytes]);
    let frame = vec![0xa5u8; frame_bytes(case, &body)];
    let warm_up = case.rounds / 20;
    // One segment holds the whole case: what it costs to prepare is not part of a commit.
    let whole = (frame.len() * (case.rounds + warm_up + 2)) as u64 + (1 << 20);
    let (engine, channel) = open(&path.join("engine"), whole.max(64 << 20));
    // Past the small first segment, into a prepared one, with the one after it prepared as well.
    wait_until_prepared(&engine);
    let first = engine.newest_segment();
    while engine.newest_segment() == first {
        let filler = Bytes::from(vec![0; 1 << 20]);
        engine.submit(batch(channel, 1, &filler)).wait().unwrap();
    }
    wait_until_prepared(&engine);
    let bare = BareFile::create(&path.join("bare"));
    let (mut of_bare, mut of_engine) = (Vec::new(), Vec::new());
    let mut at = 0;
    for round in 0..case.rounds + warm_up {
        let batch = batch(channel, case.records, &body);
        let began = Instant::now();
        at = bare.write(&frame, at);
        let bare_took = began.elapsed();
        let began = Instant::now();
        engine.submit(batch).wait().unwrap();
        let engine_took = began.elapsed();
        if round >= warm_up {
            of_bare.push(bare_took);
            of_engine.push(engine_took);
        }
    }
    row(
        &name,
        median(&mut of_bare),
        median(&mut of_engine),
        Some(TARGET),
    );
}

/// Commits as large as they get, faster than segments can be prepared.
fn unprepared(dir: &Path) {
    let case = Case {
        records: 256,
        record_bytes: 16 << 10,
        rounds: 60,
    };
    let path = dir.join("unprepared");
    let body = Bytes::from(vec![0x5a; case.record_bytes]);
    let frame = vec![0xa5u8; frame_bytes(&case, &body)];
    let (engine, channel) = open(&path.join("engine"), 64 << 20);
    let bare = BareFile::create(&path.join("bare"));
    let (mut of_bare, mut of_engine) = (Vec::new(), Vec::new());
    let mut at = 0;
    for _ in 0..case.rounds {
        let began = Instant::now();
        at = bare.write(&frame, at);
        of_bare.push(began.elapsed());
        let batch = batch(channel, case.records, &body);
        let began = Instant::now();
        engine.submit(batch).wait().unwrap();
        of_engine.push(began.elapsed());
    }
    row(
        "the same, rolling",
        median(&mut of_bare),
        median(&mut of_engine),
        None,
    );
}

fn row(name: &str, bare: Duration, engine: Duration, target: Option<f64>) {
    let ratio = engine.as_secs_f64() / bare.as_secs_f64();
    let verdict = match target {
        Some(target) if ratio > target => format!("{target:>8.2}  over the target"),
        Some(target) => format!("{target:>8.2}"),
        None => "       -".to_owned(),
    };
    println!("{name:>18} {bare:>12.1?} {engine:>12.1?} {ratio:>8.2} {verdict}");
}

fn wait_until_prepared(engine: &Engine) {
    while !engine.next_segment_ready() {
        std::thread::yield_now();
    }
}

fn open(dir: &Path, segment_bytes: u64) -> (Engine, ChannelId) {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFiles);
    let options = Options {
        segment_bytes,
        ..Options::default()
    };
    let (engine, _) = saguin_recovery::recover(&fs, dir, &options).unwrap();
    let channel = engine.define("bench", Kind::Sequence).unwrap();
    (engine, channel)
}

fn batch(channel: ChannelId, records: usize, body: &Bytes) -> Batch {
    let record = NewRecord {
        timestamp: Some(1 << 40),
        size: 128,
        body: body.clone(),
    };
    let operation = Operation::Append {
        channel,
        record,
        max_bytes: None,
    };
    Batch {
        operations: vec![operation; records],
        ..Batch::default()
    }
}

/// The bytes the engine writes for one such commit.
fn frame_bytes(case: &Case, body: &Bytes) -> usize {
    let mut frame = FrameBuilder::default();
    frame.clear();
    let record = RecordRef {
        timestamp: Some(1 << 40),
        size: 128,
        body,
    };
    for _ in 0..case.records {
        frame.push(&Op::Append {
            channel: 0,
            offset: 100_000,
            record,
        });
    }
    frame.frame_len()
}

struct BareFile(File);

impl BareFile {
    fn create(path: &Path) -> BareFile {
        let file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let zeros = vec![0u8; 1 << 20];
        for i in 0..BARE_FILE_BYTES >> 20 {
            file.write_all_at(&zeros, i << 20).unwrap();
        }
        file.sync_all().unwrap();
        BareFile(file)
    }

    fn write(&self, bytes: &[u8], at: u64) -> u64 {
        let at = if at + bytes.len() as u64 > BARE_FILE_BYTES {
            0
        } else {
            at
        };
        self.0.write_all_at(bytes, at).unwrap();
        self.0.sync_data().unwrap();
        at + bytes.len() as u64
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

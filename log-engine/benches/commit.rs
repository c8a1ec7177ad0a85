//! What a commit costs beside its physical limit, a bare loop that writes and syncs the same bytes
//! into a file whose every block was written before, and beside SQLite. All run in one process, turn
//! by turn, so that a disk that slows down slows all; medians and their ratios are what counts.
//!
//! `cargo bench -p saguin-log-engine` runs this and the other benchmarks.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;
mod crowd;

use saguin_log_engine::format::FRAME_HEADER_BYTES;

use common::sqlite::Sqlite;
use common::{Bare, Run, Shape, head, micros, open, open_prepared, ratio, row, timed_commit};
use common::{turn_by_turn, verdict};

struct Case {
    shape: Shape,
    /// Over the limit, where one is set.
    target: Option<f64>,
    rounds: usize,
}

const fn case(records: usize, record_bytes: usize, target: Option<f64>, rounds: usize) -> Case {
    Case {
        shape: Shape {
            records,
            record_bytes,
        },
        target,
        rounds,
    }
}

const CASES: [Case; 6] = [
    case(1, 128, Some(1.15), 3000),
    case(32, 128, Some(1.15), 3000),
    case(256, 128, Some(1.2), 2000),
    case(1, 16 << 10, None, 1500),
    case(32, 16 << 10, Some(1.1), 200),
    case(256, 16 << 10, None, 20),
];

fn main() {
    let run = Run::new();
    println!("{}", common::machine());
    if run.wants("alone") {
        alone(&run);
    }
    if run.wants("crowd") {
        crowd::measure(&run);
    }
    if run.wants("space") {
        space(&run);
    }
}

fn alone(run: &Run) {
    run.heading("Commit, durability sync: p50 of each, turn by turn");
    head(&[
        "records", "limit", "engine", "of limit", "target", "", "SQLite", "of limit",
    ]);
    for case in &CASES {
        measure(run, case);
    }
    rolling(run);
}

fn measure(run: &Run, case: &Case) {
    let Case { shape, rounds, .. } = *case;
    let rounds = run.rounds(rounds);
    let dir = run.dir().join(shape.name().replace(' ', ""));
    std::fs::create_dir_all(&dir).unwrap();
    let (body, frame) = (shape.body(), shape.frame());
    let (engine, channel) = open_prepared(
        &dir.join("engine"),
        (frame.len() * (rounds + rounds / 20)) as u64,
    );
    let mut bare = Bare::prepared(&dir.join("bare"), 16 << 20);
    let mut sqlite = Sqlite::create(&dir.join("sqlite"));
    let times = turn_by_turn(
        rounds,
        &mut [
            &mut || bare.commit(&frame),
            &mut || timed_commit(&engine, shape.batch(channel, &body)),
            &mut || sqlite.commit(shape, &body),
        ],
    );
    let [limit, engine_took, sqlite_took] = [0, 1, 2].map(|i| times[i].median());
    let of_limit = ratio(engine_took, limit);
    row(&[
        shape.name(),
        micros(limit),
        micros(engine_took),
        format!("{of_limit:.2}"),
        case.target.map_or(String::new(), |t| format!("{t:.2}")),
        case.target
            .map_or("", |target| verdict(of_limit, target))
            .to_owned(),
        micros(sqlite_took),
        format!("{:.2}", ratio(sqlite_took, limit)),
    ]);
    drop(engine);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Commits as large as they get, faster than segments can be prepared.
fn rolling(run: &Run) {
    let shape = Shape {
        records: 256,
        record_bytes: 16 << 10,
    };
    let dir = run.dir().join("rolling");
    let (body, frame) = (shape.body(), shape.frame());
    let (engine, channel) = open(&dir.join("engine"), 64 << 20);
    let mut bare = Bare::prepared(&dir.join("bare"), 16 << 20);
    let times = turn_by_turn(
        run.rounds(30),
        &mut [&mut || bare.commit(&frame), &mut || {
            timed_commit(&engine, shape.batch(channel, &body))
        }],
    );
    let (limit, engine_took) = (times[0].median(), times[1].median());
    let blank = String::new;
    row(&[
        "the same, rolling".to_owned(),
        micros(limit),
        micros(engine_took),
        format!("{:.2}", ratio(engine_took, limit)),
        blank(),
        blank(),
        blank(),
        blank(),
    ]);
}

/// The empty frame that says the log ended on purpose.
const STOP: u64 = FRAME_HEADER_BYTES as u64;

/// Bytes of log a record takes beyond its own.
fn space(run: &Run) {
    run.heading(
        "Disk per 128 B record, beyond the payload (topic and id are part of the body): bytes",
    );
    head(&["records a commit", "engine", "target", "", "SQLite"]);
    for records in [1, 32, 256] {
        let shape = Shape {
            records,
            record_bytes: 128,
        };
        let dir = run.dir().join(format!("space{records}"));
        let body = shape.body();
        let (engine, channel) = open_prepared(&dir, 0);
        drop(engine);
        let before = log_end(&dir);
        let (engine, _) = open(&dir, 64 << 20);
        let mut sqlite = Sqlite::create(&dir.join("sqlite"));
        let empty = sqlite.bytes();
        let commits = run.rounds(20_000 / records.max(10));
        let tickets: Vec<_> = (0..commits)
            .map(|_| {
                // A commit of its own each: they would share frames if they were in a hurry.
                engine.submit(shape.batch(channel, &body)).wait()
            })
            .collect();
        assert!(tickets.iter().all(Result::is_ok));
        // Before it is idle: then it would write a frame that vouches for the last one.
        drop(engine);
        for _ in 0..commits {
            sqlite.commit(shape, &body);
        }
        let all = (commits * records) as f64;
        let per_record = |bytes: u64| bytes as f64 / all - 128.0;
        let engine_bytes = per_record(log_end(&dir) - before - STOP);
        row(&[
            records.to_string(),
            format!("{engine_bytes:.1}"),
            "48".to_owned(),
            verdict(engine_bytes, 48.0).to_owned(),
            format!("{:.1}", per_record(sqlite.bytes() - empty)),
        ]);
    }
}

/// Where the frames of the newest segment end.
fn log_end(dir: &std::path::Path) -> u64 {
    let fs = common::files();
    let (_, walk) = saguin_recovery::inspect(&*fs, dir, &mut ()).unwrap();
    walk.end
}

//! What kind of file to commit into, and how to be rid of a dead one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{Bare, Run, Shape, Times, head, micros, ratio, row, turn_by_turn};

const SEGMENT: u64 = 64 << 20;

pub fn prepared_or_not(run: &Run) {
    run.heading("(a) The file committed into: p50 of a write and data sync, turn by turn");
    head(&[
        "bytes",
        "zero-filled",
        "reserved",
        "of zero-filled",
        "growing",
        "of zero-filled",
    ]);
    for (records, record_bytes, rounds) in [(1, 128, 2000), (32, 16 << 10, 60)] {
        let shape = Shape {
            records,
            record_bytes,
        };
        let dir = run.dir().join(format!("files{records}"));
        std::fs::create_dir_all(&dir).unwrap();
        let frame = shape.frame();
        let rounds = run.rounds(rounds);
        let room = (frame.len() * rounds * 2) as u64;
        let mut prepared = Bare::prepared(&dir.join("prepared"), room.next_multiple_of(1 << 20));
        let mut reserved = Bare::allocated(&dir.join("reserved"), room);
        let mut growing = Bare::growing(&dir.join("growing"), u64::MAX);
        let times = turn_by_turn(
            rounds,
            &mut [
                &mut || prepared.commit(&frame),
                &mut || reserved.commit(&frame),
                &mut || growing.commit(&frame),
            ],
        );
        let [prepared, reserved, growing] = [0, 1, 2].map(|i| times[i].median());
        row(&[
            shape.name(),
            micros(prepared),
            micros(reserved),
            format!("{:.2}", ratio(reserved, prepared)),
            micros(growing),
            format!("{:.2}", ratio(growing, prepared)),
        ]);
    }
}

/// Lets a segment go.
type Way = fn(&Path);

/// What one way to be rid of a dead segment does to commits beside it.
pub fn unlink_or_rename(run: &Run) {
    run.heading("(b) A dead 64 MiB segment let go every 50 ms, and commits of 128 B meanwhile");
    head(&[
        "",
        "p50",
        "p99",
        "p99.9",
        "the call and its directory sync, p50",
    ]);
    let dir = run.dir().join("unlink");
    std::fs::create_dir_all(&dir).unwrap();
    let frame = Shape {
        records: 1,
        record_bytes: 128,
    }
    .frame();
    let mut bare = Bare::prepared(&dir.join("bare"), SEGMENT);
    let (turns, dead) = if run.quick { (1, 1) } else { (3, 12) };
    let ways: [(&str, Way); 3] = [
        ("nothing", |_| ()),
        ("unlinked", |path| std::fs::remove_file(path).unwrap()),
        ("recycled by renaming", |path| {
            std::fs::rename(path, path.with_extension("fresh")).unwrap();
        }),
    ];
    let mut commits = [const { Vec::new() }; 3];
    let mut calls = [const { Vec::new() }; 3];
    for _ in 0..turns {
        for (i, (_, way)) in ways.iter().enumerate() {
            let paths: Vec<PathBuf> = (0..dead).map(|n| dir.join(format!("dead-{n}"))).collect();
            for path in &paths {
                drop(Bare::prepared(path, SEGMENT));
            }
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let letting_go = scope.spawn(|| {
                    let took = paths.iter().map(|path| let_go(&dir, path, way)).collect();
                    done.store(true, Relaxed);
                    took
                });
                while !done.load(Relaxed) {
                    commits[i].push(bare.commit(&frame));
                }
                let took: Vec<Duration> = letting_go.join().unwrap();
                calls[i].extend(took);
            });
            for path in &paths {
                let _ = std::fs::remove_file(path);
                let _ = std::fs::remove_file(path.with_extension("fresh"));
            }
        }
    }
    for (((name, _), commits), calls) in ways.iter().zip(commits).zip(calls) {
        let (commits, calls) = (Times::sorted(commits), Times::sorted(calls));
        row(&[
            (*name).to_owned(),
            micros(commits.at(0.5)),
            micros(commits.at(0.99)),
            micros(commits.at(0.999)),
            micros(calls.median()),
        ]);
    }
}

fn let_go(dir: &Path, path: &Path, way: &Way) -> Duration {
    std::thread::sleep(Duration::from_millis(50));
    let began = std::time::Instant::now();
    way(path);
    File::open(dir).unwrap().sync_all().unwrap();
    began.elapsed()
}

//! What it costs to open a log whose process was killed, and to read it from end to end.
//!
//! A child process fills a directory and is killed while it commits; further children open it, each
//! once, and report how long it took and what memory they then had.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Run, Shape, Times, head, micros, open, ratio, row, turn_by_turn, verdict};
use saguin_log_engine::{ChannelId, Engine, Layout, Options, ReadLimit};

const SHAPE: Shape = Shape {
    records: 256,
    record_bytes: 128,
};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "child-fill", dir, records] => fill(Path::new(dir), records.parse().unwrap()),
        [_, "child-open", dir] => opened(Path::new(dir)),
        _ => measure(&Run::new()),
    }
}

fn measure(run: &Run) {
    println!("{}", common::machine());
    run.heading(
        "Open after SIGKILL, 128 B records: median time, memory of the process then and at most",
    );
    head(&[
        "records", "cache", "time", "target", "", "RSS", "target", "", "peak",
    ]);
    let million = killed(run, 1_000_000);
    let ms = Duration::from_millis;
    opening(run, &million, "1 M", false, Some((ms(30), 8)));
    opening(run, &million, "1 M", true, Some((ms(60), 8)));
    let ten = killed(run, 10_000_000);
    opening(run, &ten, "10 M", false, Some((ms(1000), 64)));
    opening(run, &ten, "10 M", true, None);
    std::fs::remove_dir_all(&ten).unwrap();
    scanning(run, &million);
}

/// A directory whose process was killed after it had stored that many records.
fn killed(run: &Run, records: usize) -> PathBuf {
    let records = run.rounds(records);
    let dir = run.dir().join(format!("killed{records}"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child-fill", dir.to_str().unwrap(), &records.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "stored\n");
    child.kill().unwrap();
    child.wait().unwrap();
    dir
}

fn fill(dir: &Path, records: usize) {
    let (engine, channel) = open(dir, 64 << 20);
    let body = SHAPE.body();
    let commit = || engine.submit(SHAPE.batch(channel, &body));
    let mut stored = 0;
    while stored < records {
        // A few under way: the frames are as large as one batch all the same.
        let tickets: Vec<_> = (0..4).map(|_| commit()).collect();
        for ticket in tickets {
            ticket.wait().unwrap();
            stored += SHAPE.records;
        }
    }
    println!("stored");
    loop {
        commit().wait().unwrap();
    }
}

fn opening(run: &Run, dir: &Path, name: &str, cold: bool, target: Option<(Duration, u64)>) {
    let times = if run.quick { 1 } else { 5 };
    let mut found: Vec<(Duration, u64, u64)> = Vec::new();
    if !cold {
        open_in_child(dir);
    }
    for _ in 0..times {
        if cold {
            forget_cached(dir);
        }
        found.push(open_in_child(dir));
    }
    let time = Times::sorted(found.iter().map(|f| f.0).collect()).median();
    let most = |pick: fn(&(Duration, u64, u64)) -> u64| found.iter().map(pick).max().unwrap();
    let (rss, peak) = (most(|f| f.1), most(|f| f.2));
    let mib = |kib: u64| kib as f64 / 1024.0;
    let [time_target, time_met, rss_target, rss_met] = match target {
        None => [const { String::new() }; 4],
        Some((most_time, most_mib)) => [
            format!("{:.0} ms", most_time.as_secs_f64() * 1e3),
            verdict(time.as_secs_f64(), most_time.as_secs_f64()).to_owned(),
            format!("{most_mib} MiB"),
            verdict(mib(rss), most_mib as f64).to_owned(),
        ],
    };
    row(&[
        name.to_owned(),
        if cold { "cold" } else { "warm" }.to_owned(),
        micros(time),
        time_target,
        time_met,
        format!("{:.1} MiB", mib(rss)),
        rss_target,
        rss_met,
        format!("{:.1} MiB", mib(peak)),
    ]);
}

/// Time to open, resident and peak memory in KiB.
fn open_in_child(dir: &Path) -> (Duration, u64, u64) {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["child-open", dir.to_str().unwrap()])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let numbers: Vec<u64> = out.split_whitespace().map(|n| n.parse().unwrap()).collect();
    (Duration::from_nanos(numbers[0]), numbers[1], numbers[2])
}

fn opened(dir: &Path) {
    let fs = common::files();
    let began = Instant::now();
    let (engine, _) = saguin_recovery::recover(&fs, dir, &Options::default()).unwrap();
    let took = began.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    println!("{} {} {}", took.as_nanos(), kib("VmRSS"), kib("VmHWM"));
    assert!(engine.failure().is_none());
    // As killed as before: the next one opens after a crash as well.
    std::process::exit(0);
}

/// Has the system let go of what it holds of these files; nobody else's.
fn forget_cached(dir: &Path) {
    for path in files_of(dir) {
        let file = std::fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// Every file of a log, wherever in its directory it is.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_of(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn scanning(run: &Run, dir: &Path) {
    run.heading("Reading 1 M records of 128 B from the page cache, turn by turn");
    let (engine, channel) = open(dir, 64 << 20);
    let segments = Layout::new(dir).segment_dir();
    let (_, found) = saguin_recovery::inspect(&*common::files(), dir, &mut ()).unwrap();
    let mut files: Vec<_> = files_of(&segments)
        .into_iter()
        .filter(|f| f.extension().is_some_and(|e| e == "seg"))
        .map(|f| (std::fs::File::open(f).unwrap(), u64::MAX))
        .collect();
    // Of the last one, as far as there are frames.
    files.last_mut().unwrap().1 = found.end;
    let numbers = engine.numbers(channel).unwrap();
    let times = turn_by_turn(
        if run.quick { 1 } else { 15 },
        &mut [
            &mut || timed(|| files.iter().for_each(read_file)),
            &mut || timed(|| walk(dir)),
            &mut || timed(|| assert_eq!(read_all(&engine, channel), numbers.count)),
        ],
    );
    head(&["", "time", "of reading the file", "target", ""]);
    let limit = times[0].median();
    for (name, took, target) in [
        ("the segments' bytes, in reads of 128 KiB", &times[0], None),
        (
            "every frame verified and applied, as an opening does",
            &times[1],
            None,
        ),
        ("records read through the engine", &times[2], Some(2.0)),
    ] {
        let of_limit = ratio(took.median(), limit);
        row(&[
            name.to_owned(),
            micros(took.median()),
            format!("{of_limit:.2}"),
            target.map_or(String::new(), |t: f64| format!("{t:.1}")),
            target.map_or("", |t| verdict(of_limit, t)).to_owned(),
        ]);
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn read_file((file, end): &(std::fs::File, u64)) {
    let mut buffer = vec![0; 128 << 10];
    let mut at = 0;
    while at < *end {
        match file.read_at(&mut buffer, at).unwrap() {
            0 => return,
            n => at += n as u64,
        }
        std::hint::black_box(&buffer);
    }
}

fn walk(dir: &Path) {
    let fs = common::files();
    let (_, found) = saguin_recovery::inspect(&*fs, dir, &mut ()).unwrap();
    std::hint::black_box(found.end);
}

fn read_all(engine: &Engine, channel: ChannelId) -> u64 {
    let limit = ReadLimit {
        records: 8192,
        bytes: 1 << 20,
    };
    let (mut offset, mut read) = (1, 0);
    loop {
        let found = engine.read_from(channel, offset, limit).unwrap();
        let Some(last) = found.records.last() else {
            return read;
        };
        offset = last.offset + 1;
        read += found.records.len() as u64;
    }
}

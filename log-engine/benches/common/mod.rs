//! What the benchmarks share: the physical limit, an engine to measure, turns, and how a figure is
//! printed.
#![allow(dead_code, reason = "each benchmark uses its part")]

pub mod sqlite;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use saguin_log_engine::format::{FrameBuilder, Kind, Op, RecordRef};
use saguin_log_engine::storage::{FileSystem, OsFiles};
use saguin_log_engine::{Batch, ChannelId, Engine, NewRecord, Operation, Options};

/// How a benchmark was asked to run.
pub struct Run {
    /// A few rounds that show the benchmark works; its figures mean nothing.
    pub quick: bool,
    dir: tempfile::TempDir,
}

impl Run {
    /// `cargo bench` measures; `-- --quick`, and `cargo test --benches`, only show that it runs.
    /// `SAGUIN_BENCH_DIR` names a directory on the disk to measure; the default is in the build
    /// directory.
    pub fn new() -> Run {
        let told = |flag: &str| std::env::args().any(|a| a == flag);
        let dir = tempfile::tempdir_in(root()).unwrap();
        Run {
            quick: told("--quick") || !told("--bench"),
            dir,
        }
    }

    /// Whether a part was asked for: `-- PART...`, or all where none is named.
    pub fn wants(&self, part: &str) -> bool {
        let mut named = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
        let all = named.next().is_none();
        all || std::env::args().any(|a| a == part)
    }

    /// A directory that goes with the run.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// So many, or a small part of it where the run is quick.
    pub fn rounds(&self, n: usize) -> usize {
        if self.quick { (n / 100).max(3) } else { n }
    }

    /// A heading, and what the figures under it were taken on.
    pub fn heading(&self, what: &str) {
        println!("\n{what}");
        if self.quick {
            println!("(quick: the figures mean nothing)");
        }
    }
}

/// Where the files to measure lie.
pub fn root() -> PathBuf {
    let root = std::env::var_os("SAGUIN_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&root).unwrap();
    root
}

/// Processor, kernel and file system, for whoever reads the figures elsewhere.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |m| {
        m.trim_start_matches(['\t', ':', ' '])
    });
    let cores = cpuinfo
        .lines()
        .filter(|l| l.starts_with("processor"))
        .count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel
        .split('-')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned();
    let root = std::fs::canonicalize(root()).unwrap();
    let mounts = read("/proc/self/mounts");
    let mount = mounts
        .lines()
        .map(|l| l.split(' ').collect::<Vec<_>>())
        .filter(|m| m.len() > 2 && root.starts_with(m[1]))
        .max_by_key(|m| m[1].len());
    let (kind, device) = mount.map_or(("?", "?"), |m| (m[2], m[0]));
    let device = match device.rsplit('/').next().unwrap_or_default() {
        d if d.starts_with("vd") => "virtio block device",
        d if d.starts_with("nvme") => "NVMe device",
        d if d.starts_with("sd") => "SCSI or SATA device",
        _ => "other device",
    };
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!(
        "{cores} cores of {model}, Linux {kernel}, {kind} on a {device}; load {load} at the start"
    )
}

/// The physical limit: writes and data-syncs bytes into a file whose every block was written before.
pub struct Bare {
    file: File,
    len: u64,
    at: u64,
}

impl Bare {
    /// A zero-filled file.
    pub fn prepared(path: &Path, len: u64) -> Bare {
        let bare = Bare::growing(path, len);
        let zeros = vec![0u8; 1 << 20];
        for i in 0..len >> 20 {
            bare.file.write_all_at(&zeros, i << 20).unwrap();
        }
        bare.file.sync_all().unwrap();
        bare
    }

    /// A file whose room is reserved and not written.
    pub fn allocated(path: &Path, len: u64) -> Bare {
        let bare = Bare::growing(path, len);
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&bare.file, flags, 0, len).unwrap();
        bare.file.sync_all().unwrap();
        bare
    }

    /// An empty file that grows with every write.
    pub fn growing(path: &Path, len: u64) -> Bare {
        let mut options = File::options();
        let file = options.create_new(true).read(true).write(true).open(path);
        let file = file.unwrap();
        Bare { file, len, at: 0 }
    }

    /// One write and one data sync.
    pub fn commit(&mut self, bytes: &[u8]) -> Duration {
        if self.at + bytes.len() as u64 > self.len {
            self.at = 0;
        }
        let began = Instant::now();
        self.file.write_all_at(bytes, self.at).unwrap();
        self.file.sync_data().unwrap();
        self.at += bytes.len() as u64;
        began.elapsed()
    }
}

/// A commit to measure.
#[derive(Clone, Copy)]
pub struct Shape {
    pub records: usize,
    pub record_bytes: usize,
}

impl Shape {
    pub fn name(self) -> String {
        match self.record_bytes {
            b if b.is_multiple_of(1024) => format!("{} x {} KiB", self.records, b / 1024),
            b => format!("{} x {b} B", self.records),
        }
    }

    pub fn body(self) -> Bytes {
        Bytes::from(vec![0x5a; self.record_bytes])
    }

    pub fn batch(self, channel: ChannelId, body: &Bytes) -> Batch {
        let operations = vec![append(channel, body); self.records];
        Batch {
            operations,
            ..Batch::default()
        }
    }

    /// As many bytes as the engine writes for one such commit.
    pub fn frame(self) -> Vec<u8> {
        let body = self.body();
        let mut frame = FrameBuilder::default();
        frame.clear();
        let record = RecordRef {
            timestamp: Some(TIMESTAMP),
            size: self.record_bytes as u64,
            body: &body,
        };
        for _ in 0..self.records {
            frame.push(&Op::Append {
                channel: 0,
                offset: 100_000,
                record,
            });
        }
        vec![0xa5u8; frame.frame_len()]
    }
}

/// Unix milliseconds of every record.
pub const TIMESTAMP: u64 = 1 << 40;

pub fn append(channel: ChannelId, body: &Bytes) -> Operation {
    let record = NewRecord {
        timestamp: Some(TIMESTAMP),
        size: body.len() as u64,
        body: body.clone(),
    };
    Operation::Append {
        channel,
        record,
        max_bytes: None,
    }
}

pub fn files() -> Arc<dyn FileSystem> {
    Arc::new(OsFiles)
}

pub fn open_with(dir: &Path, options: &Options) -> (Engine, ChannelId) {
    let (engine, _) = saguin_recovery::recover(&files(), dir, options).unwrap();
    let channel = engine.define("bench", Kind::Sequence).unwrap();
    (engine, channel)
}

pub fn open(dir: &Path, segment_bytes: u64) -> (Engine, ChannelId) {
    let options = Options {
        segment_bytes,
        ..Options::default()
    };
    open_with(dir, &options)
}

/// An engine in a prepared segment that has room for `bytes`, with the one after it prepared too:
/// what a segment costs to prepare is not part of a commit.
pub fn open_prepared(dir: &Path, bytes: u64) -> (Engine, ChannelId) {
    open_prepared_on(&files(), dir, bytes)
}

pub fn open_prepared_on(fs: &Arc<dyn FileSystem>, dir: &Path, bytes: u64) -> (Engine, ChannelId) {
    // No larger than needed: a virtual disk answers a burst of writes with a slow spell.
    let options = Options {
        segment_bytes: (bytes + (2 << 20)).max(8 << 20),
        ..Options::default()
    };
    let (engine, _) = saguin_recovery::recover(fs, dir, &options).unwrap();
    let channel = engine.define("bench", Kind::Sequence).unwrap();
    wait_until_prepared(&engine);
    let first = engine.newest_segment();
    let filler = Bytes::from(vec![0; 1 << 20]);
    while engine.newest_segment() == first {
        engine.submit(append(channel, &filler)).wait().unwrap();
    }
    wait_until_prepared(&engine);
    (engine, channel)
}

pub fn wait_until_prepared(engine: &Engine) {
    while !engine.next_segment_ready() {
        std::thread::yield_now();
    }
}

/// What it takes to submit and wait.
pub fn timed_commit(engine: &Engine, batch: Batch) -> Duration {
    let began = Instant::now();
    engine.submit(batch).wait().unwrap();
    began.elapsed()
}

/// Runs contenders turn by turn, each round beginning with the next one, so that a disk that slows
/// down slows all of them and none always follows the same other. The first twentieth warms up.
pub fn turn_by_turn(rounds: usize, contenders: &mut [&mut dyn FnMut() -> Duration]) -> Vec<Times> {
    let warm_up = rounds / 20;
    let n = contenders.len();
    let mut times = vec![Times::default(); n];
    for round in 0..rounds + warm_up {
        for i in 0..n {
            let who = (round + i) % n;
            let took = contenders[who]();
            if round >= warm_up {
                times[who].0.push(took);
            }
        }
    }
    times.iter_mut().for_each(|t| t.0.sort());
    times
}

/// Measured times, in order of size.
#[derive(Clone, Default)]
pub struct Times(pub Vec<Duration>);

impl Times {
    pub fn sorted(mut times: Vec<Duration>) -> Times {
        times.sort();
        Times(times)
    }

    /// The time that `share` of all stay within.
    pub fn at(&self, share: f64) -> Duration {
        let last = self.0.len() - 1;
        self.0[((last as f64 * share).round() as usize).min(last)]
    }

    pub fn median(&self) -> Duration {
        self.at(0.5)
    }
}

pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// Whether a figure that should be small meets its target.
pub fn verdict(figure: f64, most: f64) -> &'static str {
    if figure <= most { "met" } else { "MISSED" }
}

/// A row of a Markdown table.
pub fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

/// The head of a Markdown table.
pub fn head(cells: &[&str]) {
    println!("| {} |", cells.join(" | "));
    println!("|{}", "---|".repeat(cells.len()));
}

pub fn micros(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 1e-2 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.1} ms", s * 1e3),
    }
}

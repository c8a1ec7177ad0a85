//! Where a commit's time goes, and so what encoding the next frame during a sync could save: nothing
//! but what lies between the outcome of one frame and the write of the next.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saguin_log_engine::storage::{File, FileSystem, Lock, OsFiles};
use saguin_log_engine::{Batch, Engine, Operation, Options};

use crate::common::{Run, Shape, Times, append, head, micros, open_with, row};

/// When the newest frame reached each stage.
#[derive(Clone, Copy, Debug)]
struct Clock {
    write: Instant,
    written: Instant,
    synced: Instant,
}

/// The real file system, with the time of each write and sync noted.
#[derive(Clone, Debug)]
struct Noted(Arc<Mutex<Clock>>);

#[derive(Debug)]
struct NotedFile(Arc<dyn File>, Noted);

impl Noted {
    fn note(&self, change: impl FnOnce(&mut Clock)) {
        change(&mut self.0.lock().unwrap());
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(NotedFile(file, self.clone()))
    }
}

impl File for NotedFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let began = Instant::now();
        let written = self.0.write_all_at(bytes, at);
        self.1.note(|clock| {
            clock.write = began;
            clock.written = Instant::now();
        });
        written
    }
    fn sync_data(&self) -> io::Result<()> {
        let synced = self.0.sync_data();
        self.1.note(|clock| clock.synced = Instant::now());
        synced
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl FileSystem for Noted {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        OsFiles.create_dir_all(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        OsFiles.list(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.file(OsFiles.create(path)?))
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn File>> {
        Ok(self.file(OsFiles.open(path, write)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsFiles.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        OsFiles.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsFiles.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        OsFiles.lock(path)
    }
    fn available_space(&self, dir: &Path) -> io::Result<u64> {
        OsFiles.available_space(dir)
    }
    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        OsFiles.random(out)
    }
}

const CALLERS: usize = 16;

pub fn measure(run: &Run) {
    run.heading("(c) The stages of a commit: p50");
    head(&[
        "records",
        "wake, plan, encode",
        "write",
        "sync",
        "publish",
        "wake of the caller",
        "all",
    ]);
    let now = Instant::now();
    let noted = Noted(Arc::new(Mutex::new(Clock {
        write: now,
        written: now,
        synced: now,
    })));
    for records in [1, 32, 256] {
        let shape = Shape {
            records,
            record_bytes: 128,
        };
        let dir = run.dir().join(format!("stages{records}"));
        let (engine, channel) = start(&noted, &dir);
        let body = shape.body();
        let stages = (0..run.rounds(2000))
            .map(|_| one(&engine, &noted, shape.batch(channel, &body)))
            .collect();
        print(&shape.name(), stages);
    }
    let dir = run.dir().join("stages-callers");
    let (engine, channel) = start(&noted, &dir);
    let body = Shape {
        records: 1,
        record_bytes: 128,
    }
    .body();
    let stages = (0..run.rounds(2000))
        .map(|_| {
            // As many batches as there are callers, all queued before the last is waited for.
            let batch = || Batch::from(append(channel, &body));
            let others: Vec<_> = (1..CALLERS).map(|_| engine.submit(batch())).collect();
            let stages = one(&engine, &noted, batch());
            others.into_iter().for_each(|t| drop(t.wait().unwrap()));
            stages
        })
        .collect();
    print("16 batches of 1 x 128 B", stages);
}

fn start(noted: &Noted, dir: &Path) -> (Engine, saguin_log_engine::ChannelId) {
    let fs: Arc<dyn FileSystem> = Arc::new(noted.clone());
    let options = Options {
        // Nothing else writes meanwhile.
        prepare_ahead: false,
        tidy_in_background: false,
        segment_bytes: 512 << 20,
        ..Options::default()
    };
    let (engine, _) = saguin_recovery::recover(&fs, dir, &options).unwrap();
    drop(engine);
    open_with_noted(&fs, dir, &options)
}

fn open_with_noted(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    options: &Options,
) -> (Engine, saguin_log_engine::ChannelId) {
    let (engine, _) = saguin_recovery::recover(fs, dir, options).unwrap();
    let kind = saguin_log_engine::format::Kind::Sequence;
    let channel = engine.define("bench", kind).unwrap();
    (engine, channel)
}

/// The five stages of one commit.
fn one(engine: &Engine, noted: &Noted, batch: impl Into<Batch>) -> [Duration; 5] {
    let batch = batch.into();
    let outcome = Arc::new((Mutex::new(None), std::sync::Condvar::new()));
    let told = outcome.clone();
    let began = Instant::now();
    let done = move |kept: saguin_log_engine::Outcome| {
        kept.unwrap();
        *told.0.lock().unwrap() = Some(Instant::now());
        told.1.notify_one();
    };
    engine.submit_with(batch, Box::new(done));
    let mut slot = outcome.0.lock().unwrap();
    let completed = loop {
        match *slot {
            Some(at) => break at,
            None => slot = outcome.1.wait(slot).unwrap(),
        }
    };
    let woken = Instant::now();
    let clock = *noted.0.lock().unwrap();
    [
        clock.write - began.min(clock.write),
        clock.written - clock.write,
        clock.synced - clock.written,
        completed - clock.synced,
        woken - completed,
    ]
}

fn print(name: &str, stages: Vec<[Duration; 5]>) {
    let median = |of: &dyn Fn(&[Duration; 5]) -> Duration| {
        Times::sorted(stages.iter().map(of).collect()).median()
    };
    let mut cells = vec![name.to_owned()];
    cells.extend((0..5).map(|i| micros(median(&|s| s[i]))));
    cells.push(micros(median(&|s| s.iter().sum())));
    row(&cells);
}

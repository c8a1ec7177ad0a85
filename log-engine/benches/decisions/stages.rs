//! Where a commit's time goes, and so what encoding the next frame during a sync could save: nothing
//! but what lies between the outcome of one frame and the write of the next.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saguin_log_engine::storage::{File, FileSystem, Lock, OsFiles};
use saguin_log_engine::{Batch, Engine};

use crate::common::{Bare, Run, Shape, Times, head, micros, open_prepared_on, row};

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

pub fn measure(run: &Run) {
    run.heading(
        "(c) The stages of a commit, and a bare write and sync of the same bytes in turn: p50",
    );
    head(&[
        "a frame of",
        "limit",
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
    let fs: Arc<dyn FileSystem> = Arc::new(noted.clone());
    for (batches, records) in [(1, 1), (1, 32), (1, 256), (16, 1)] {
        let shape = Shape {
            records,
            record_bytes: 128,
        };
        let frame = Shape {
            records: batches * records,
            ..shape
        }
        .frame();
        let dir = run.dir().join(format!("stages{batches}-{records}"));
        let (engine, channel) = open_prepared_on(&fs, &dir, 100 << 20);
        let mut bare = Bare::prepared(&dir.join("bare"), 16 << 20);
        let body = shape.body();
        let (mut limits, mut stages) = (Vec::new(), Vec::new());
        for _ in 0..run.rounds(1500) {
            limits.push(bare.commit(&frame));
            // All but one are queued when the commit thread wakes: they share its frame.
            let batch = || shape.batch(channel, &body);
            let others: Vec<_> = (1..batches).map(|_| engine.submit(batch())).collect();
            stages.push(one(&engine, &noted, batch()));
            others.into_iter().for_each(|t| drop(t.wait().unwrap()));
        }
        print(&format!("{batches} of {}", shape.name()), limits, stages);
    }
}

/// The five stages of one commit.
fn one(engine: &Engine, noted: &Noted, batch: Batch) -> [Duration; 5] {
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

fn print(name: &str, limits: Vec<Duration>, stages: Vec<[Duration; 5]>) {
    let median = |of: &dyn Fn(&[Duration; 5]) -> Duration| {
        Times::sorted(stages.iter().map(of).collect()).median()
    };
    let mut cells = vec![name.to_owned(), micros(Times::sorted(limits).median())];
    cells.extend((0..5).map(|i| micros(median(&|s| s[i]))));
    cells.push(micros(median(&|s| s.iter().sum())));
    row(&cells);
}

//! One positioned write and one data sync for each frame, and nothing else: no directory is synced,
//! no file made, renamed or enlarged between two rolls. Once at the engine's own door to the disk,
//! which runs everywhere, and once by the kernel's count, which needs strace.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{File, FileSystem, Lock, MemFiles, OsFiles};
use saguin_log_engine::{ChannelId, Engine, NewRecord, Operation, Options};

const COMMITS: u64 = 50;

fn options() -> Options {
    Options {
        // An idle log writes a frame of its own.
        idle: Duration::from_secs(3600),
        ..Options::default()
    }
}

fn append(channel: ChannelId) -> Operation {
    let record = NewRecord {
        timestamp: Some(1),
        size: 128,
        body: Bytes::from_static(&[0x5a; 128]),
    };
    Operation::Append {
        channel,
        record,
        max_bytes: None,
    }
}

/// A log that has nothing to do but what it is told: the next segment is prepared.
fn settled(fs: &Arc<dyn FileSystem>, dir: &Path) -> (Engine, ChannelId) {
    let (engine, _) = saguin_recovery::recover(fs, dir, &options()).expect("a log");
    let channel = engine.define("log", Kind::Sequence).expect("a channel");
    while !engine.next_segment_ready() {
        std::thread::yield_now();
    }
    (engine, channel)
}

#[derive(Debug, Default)]
struct Calls {
    writes: AtomicU64,
    data_syncs: AtomicU64,
    /// Whatever else changes the disk.
    others: AtomicU64,
}

impl Calls {
    fn seen(&self) -> [u64; 3] {
        [&self.writes, &self.data_syncs, &self.others].map(|n| n.load(SeqCst))
    }
}

#[derive(Debug)]
struct Counted(MemFiles, Arc<Calls>);

#[derive(Debug)]
struct CountedFile(Arc<dyn File>, Arc<Calls>);

impl Counted {
    fn other(&self) -> &MemFiles {
        self.1.others.fetch_add(1, SeqCst);
        &self.0
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(CountedFile(file, self.1.clone()))
    }
}

impl FileSystem for Counted {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.other().create_dir_all(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.other().create(path)?))
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.0.open(path, write)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.other().rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.other().remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.other().sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.lock(path)
    }
    fn available_space(&self, dir: &Path) -> io::Result<u64> {
        self.0.available_space(dir)
    }
    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.0.random(out)
    }
}

impl File for CountedFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.1.writes.fetch_add(1, SeqCst);
        self.0.write_all_at(bytes, at)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.data_syncs.fetch_add(1, SeqCst);
        self.0.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.1.others.fetch_add(1, SeqCst);
        self.0.allocate(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[test]
fn a_frame_is_one_write_and_one_data_sync_at_the_door_to_the_disk() {
    let calls = Arc::new(Calls::default());
    let fs: Arc<dyn FileSystem> = Arc::new(Counted(MemFiles::new(), calls.clone()));
    let (engine, channel) = settled(&fs, Path::new("/data"));
    let before = calls.seen();
    for _ in 0..COMMITS {
        engine.submit(append(channel)).wait().expect("stored");
    }
    let grown = |before: [u64; 3]| {
        let now = calls.seen();
        [0, 1, 2].map(|i| now[i] - before[i])
    };
    assert_eq!(grown(before), [COMMITS, COMMITS, 0]);
    // Many callers in one frame are still one write and one sync: they are queued while the commit
    // thread is busy telling the one before them.
    let before = calls.seen();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = gate.clone();
    let hold = move |_| {
        let mut go = held.0.lock().expect("gate");
        while !*go {
            go = held.1.wait(go).expect("gate");
        }
    };
    engine.submit_with(append(channel), Box::new(hold));
    while calls.seen()[1] == before[1] {
        std::thread::yield_now();
    }
    let tickets: Vec<_> = (0..20).map(|_| engine.submit(append(channel))).collect();
    *gate.0.lock().expect("gate") = true;
    gate.1.notify_all();
    for ticket in tickets {
        ticket.wait().expect("stored");
    }
    assert_eq!(grown(before), [2, 2, 0], "one frame, then twenty in one");
}

/// Names the directory in the traced process: this test, started once more.
const TRACED: &str = "SAGUIN_TRACED_DIR";
/// Set where strace must be there and work, so that a skip cannot go unseen.
const REQUIRED: &str = "SAGUIN_REQUIRE_STRACE";
const BEGIN: &str = "steady from here";
const END: &str = "steady until here";
/// Every call that changes a file, a name, or what is durable.
const CALLS: &str = "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync,syncfs,\
    sync_file_range,msync,fallocate,ftruncate,truncate,creat,rename,renameat,renameat2,unlink,\
    unlinkat,link,linkat,mkdir,mkdirat,copy_file_range,sendfile,splice,io_submit,io_uring_enter";

#[test]
fn a_frame_is_one_write_and_one_data_sync_as_the_kernel_counts() {
    if let Some(dir) = std::env::var_os(TRACED) {
        return commit_in_steady_state(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("trace");
    let this = std::env::current_exe().expect("this test");
    let run = Command::new("strace")
        .args(["-f", "-qq", "-s", "64", "-e", &format!("trace={CALLS}")])
        .arg("-o")
        .arg(&trace)
        .arg(this)
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg("a_frame_is_one_write_and_one_data_sync_as_the_kernel_counts")
        .env(TRACED, dir.path().join("data"))
        .output();
    let trace = match run {
        Err(error) => return skip(&format!("strace cannot be started: {error}")),
        Ok(out) => match std::fs::read_to_string(&trace) {
            Ok(trace) if trace.contains(END) => trace,
            // Where tracing is forbidden the traced process never ran.
            Ok(trace) if trace.is_empty() => {
                return skip(&String::from_utf8_lossy(&out.stderr));
            }
            _ => panic!("the traced process failed: {out:?}"),
        },
    };
    let steady = trace
        .lines()
        .skip_while(|line| !line.contains(BEGIN))
        .skip(1)
        .take_while(|line| !line.contains(END));
    let (mut writes, mut syncs, mut others) = (0, 0, Vec::new());
    for line in steady {
        // `PID name(...`; the second half of a call that was interrupted names no call.
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        match call.split('(').next() {
            Some("pwrite64") => writes += 1,
            Some("fdatasync") => syncs += 1,
            _ if call.starts_with("<...") => {}
            _ => others.push(line),
        }
    }
    assert_eq!((writes, syncs), (COMMITS, COMMITS), "of {COMMITS} commits");
    assert!(others.is_empty(), "{others:#?}");
}

fn commit_in_steady_state(dir: &Path) {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFiles);
    let (engine, channel) = settled(&fs, dir);
    println!("{BEGIN}");
    for _ in 0..COMMITS {
        engine.submit(append(channel)).wait().expect("stored");
    }
    println!("{END}");
}

fn skip(why: &str) {
    assert!(std::env::var_os(REQUIRED).is_none(), "{why}");
    // Past the harness, which would keep it to itself.
    let _ = writeln!(
        io::stderr(),
        "\nSKIPPED: the kernel's count of a commit's system calls needs strace: {why}"
    );
}

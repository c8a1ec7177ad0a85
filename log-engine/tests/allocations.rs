//! The commit thread allocates nothing for a record of an append log: a frame of many costs it what a
//! frame of one costs. Decided by counts; the only allowance is an index that grows, which happens
//! ever more seldom.
#![allow(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{FileSystem, OsFiles};
use saguin_log_engine::{ChannelId, Engine, NewRecord, Operation, Options};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is going away allocates unseen.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(at, layout, size) }
    }
}

const FRAMES: u64 = 40;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Holds the commit thread after each frame, so that a frame holds exactly what the test wants.
#[derive(Default)]
struct Gate {
    inner: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    holding: bool,
    /// Frames let through.
    allowed: u64,
    frames: u64,
    /// Of the commit thread, since it began.
    allocations: u64,
}

impl Gate {
    /// Called on the commit thread after each frame.
    fn frame_done(&self) {
        let mut held = self.inner.lock().expect("gate");
        held.allocations = ALLOCATIONS.with(Cell::get);
        held.frames += 1;
        self.changed.notify_all();
        while held.holding && held.frames > held.allowed {
            held = self.changed.wait(held).expect("gate");
        }
    }

    fn hold(&self) {
        let mut held = self.inner.lock().expect("gate");
        held.holding = true;
        held.allowed = held.frames;
    }

    /// Lets one frame through; the commit thread's allocations after it.
    fn one_frame(&self) -> u64 {
        let mut held = self.inner.lock().expect("gate");
        held.allowed += 1;
        let until = held.allowed + 1;
        self.changed.notify_all();
        while held.frames < until {
            held = self.changed.wait(held).expect("gate");
        }
        held.allocations
    }

    fn open(&self) {
        self.inner.lock().expect("gate").holding = false;
        self.changed.notify_all();
    }
}

struct Rig {
    engine: Engine,
    gate: Arc<Gate>,
    log: ChannelId,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let gate = Arc::new(Gate::default());
        let at_gate = gate.clone();
        let options = Options {
            // Small: it is full soon, and from then on as it always is.
            tail_cache_bytes: 64 << 10,
            tidy_in_background: false,
            idle: Duration::from_secs(3600),
            wake: Some(Arc::new(move || at_gate.frame_done())),
            ..Options::default()
        };
        let fs: Arc<dyn FileSystem> = Arc::new(OsFiles);
        let (engine, _) = saguin_recovery::recover(&fs, dir.path(), &options).expect("a log");
        let log = engine.define("log", Kind::Sequence).expect("a channel");
        Rig {
            engine,
            gate,
            log,
            _dir: dir,
        }
    }

    /// Holds the commit thread from its next frame on.
    fn hold(&self) {
        self.gate.hold();
        self.submit(1, &|_| self.append());
        let mut held = self.gate.inner.lock().expect("gate");
        while held.frames == held.allowed {
            held = self.gate.changed.wait(held).expect("gate");
        }
    }

    /// One batch for each number.
    fn submit(&self, batches: usize, operation: &dyn Fn(usize) -> Operation) {
        for i in 0..batches {
            self.engine.submit_with(operation(i), Box::new(|_| ()));
        }
    }

    /// What `frames` frames of so many batches cost the commit thread.
    fn cost(&self, frames: u64, batches: usize, operation: &dyn Fn(usize) -> Operation) -> u64 {
        let seen = || {
            let held = self.gate.inner.lock().expect("gate");
            (held.allocations, held.frames)
        };
        let (before, began) = seen();
        let mut after = before;
        for _ in 0..frames {
            self.submit(batches, operation);
            after = self.gate.one_frame();
        }
        assert_eq!(seen().1 - began, frames, "as many frames as planned");
        after - before
    }

    fn append(&self) -> Operation {
        Operation::Append {
            channel: self.log,
            record: record(),
            max_bytes: None,
        }
    }
}

fn record() -> NewRecord {
    NewRecord {
        timestamp: Some(1),
        size: 128,
        body: Bytes::from(vec![0x5a; 128]),
    }
}

fn key(i: usize) -> Bytes {
    Bytes::from(format!("key {i}").into_bytes())
}

#[test]
fn a_record_costs_the_commit_thread_no_allocation() {
    // Of a deque that doubles: an index of the runs of records.
    const GROWTH: u64 = 4;
    let rig = Rig::new();
    let cost = |frames, batches| rig.cost(frames, batches, &|_| rig.append());
    rig.hold();
    // Every buffer grows to what the largest frame takes, and the cache is full.
    cost(10, 256);
    let [one, some, many] = [1, 64, 256].map(|batches| cost(FRAMES, batches));
    rig.gate.open();
    println!("{FRAMES} frames of 1, 64, 256 batches: {one}, {some}, {many} allocations");
    assert!(one <= FRAMES + GROWTH, "{one} for {FRAMES} frames of one");
    assert!(some <= one + GROWTH, "{some} for 64 batches a frame");
    assert!(many <= one + GROWTH, "{many} for 256 batches a frame");
}

/// Name, how to make one, and most allocations of each.
type Case<'a> = (&'a str, &'a dyn Fn(usize) -> Operation, u64);

#[test]
fn what_owns_its_key_costs_the_commit_thread_few_allocations() {
    // Of trees and tables that split and grow, and the frame's own one.
    const SPARE: u64 = 2 * FRAMES;
    const BATCHES: usize = 64;
    let rig = Rig::new();
    let map = rig.engine.define("map", Kind::Map).expect("a channel");
    let work = rig.engine.define("work", Kind::Work).expect("a channel");
    rig.hold();
    let set = |i| Operation::Set {
        channel: map,
        key: key(i),
        record: record(),
    };
    let put = |i| Operation::Put {
        space: 1,
        key: key(i),
        value: key(i),
    };
    let enqueue = |_| Operation::Enqueue {
        channel: work,
        record: record(),
        max_bytes: None,
    };
    let kinds: [Case<'_>; 3] = [("set", &set, 3), ("put", &put, 4), ("enqueue", &enqueue, 1)];
    for (name, operation, most) in kinds {
        rig.cost(10, BATCHES, operation);
        let cost = rig.cost(FRAMES, BATCHES, operation);
        let each = cost as f64 / (FRAMES * BATCHES as u64) as f64;
        println!("{name}: {each:.2} allocations an operation");
        assert!(
            cost <= FRAMES * BATCHES as u64 * most + SPARE,
            "{name}: {each}"
        );
    }
    rig.gate.open();
}

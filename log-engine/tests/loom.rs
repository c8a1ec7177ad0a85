//! The commit hand-off in every order its threads can take, up to a bound of preemptions:
//! `RUSTFLAGS="--cfg loom" cargo test -p saguin-log-engine --test loom --release`.
//!
//! What runs is the engine's own commit loop, queue, tickets, published state and latch over files in
//! memory; only their locks are the model's. A lost wake-up is a deadlock, which the model reports.
//! The idle time never passes here: whoever waits is woken or waits for ever.
#![cfg(loom)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use loom::thread;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{
    ChannelId, CommitError, Engine, Gather, Layout, MIN_SEGMENT_BYTES, NewRecord, Operation,
    Options, Outcome, ReadLimit, Recovered, create_log,
};
use saguin_recovery::{Reading, Walk, walk};

const LOG: ChannelId = ChannelId(0);

/// A new log with one sequence.
fn files() -> MemFiles {
    let files = MemFiles::new();
    let layout = Layout::new(Path::new("/data"));
    files.create_dir_all(&layout.segment_dir()).expect("mkdir");
    create_log(&files, &layout, [7; 16], MIN_SEGMENT_BYTES + 8192).expect("a log");
    files
}

/// An engine over a copy of `files`, its commit thread running, as a thread of the model.
fn start(files: &MemFiles) -> (Arc<Engine>, MemFiles, thread::JoinHandle<()>) {
    start_with(files, None)
}

fn start_with(
    files: &MemFiles,
    gather: Option<Gather>,
) -> (Arc<Engine>, MemFiles, thread::JoinHandle<()>) {
    let files = files.copy();
    let fs: Arc<dyn FileSystem> = Arc::new(files.clone());
    let layout = Layout::new(Path::new("/data"));
    let lock = fs.lock(&layout.lock_path()).expect("lock").expect("free");
    let Walk {
        state,
        segments,
        end,
        last_lsn,
        ..
    } = walk(&*fs, &layout, true, Reading::Whole, &mut ()).expect("a log");
    let recovered = Recovered {
        fs,
        layout,
        lock,
        state,
        segments,
        end,
        last_lsn,
        leftovers: Vec::new(),
        checkpoint: None,
    };
    let options = Options {
        segment_bytes: MIN_SEGMENT_BYTES + 8192,
        prepare_ahead: false,
        gather,
        ..Options::default()
    };
    let (engine, commits) = Engine::for_model(recovered, &options).expect("an engine");
    (Arc::new(engine), files, thread::spawn(commits))
}

fn define() -> Operation {
    Operation::Define {
        name: Bytes::from_static(b"log"),
        kind: Kind::Sequence,
    }
}

fn append() -> Operation {
    let record = NewRecord {
        timestamp: None,
        size: 1,
        body: Bytes::from_static(b"x"),
    };
    Operation::Append {
        channel: LOG,
        record,
        max_bytes: None,
    }
}

/// Runs `test` in every order with at most `preemptions` of them, each time over a log that has the
/// sequence already.
fn model(preemptions: usize, test: impl Fn(&MemFiles) + Send + Sync + 'static) {
    // Beforehand: what the model runs has to be the same each time.
    let prepared = Arc::new(std::sync::Mutex::new(None));
    let out = prepared.clone();
    bounded(0).check(move || {
        let (engine, files, commits) = start(&files());
        let defined = engine.submit(define()).wait();
        assert!(defined.is_ok(), "{defined:?}");
        engine.close();
        commits.join().expect("the commit thread");
        *out.lock().expect("no panic") = Some(files);
    });
    let files = prepared.lock().expect("no panic").take().expect("a log");
    bounded(preemptions).check(move || test(&files));
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

const ALL: ReadLimit = ReadLimit {
    records: 10,
    bytes: 1000,
};

#[test]
fn a_ticket_completes_only_once_its_record_is_there_to_be_read() {
    model(3, |files| {
        let (engine, _, commits) = start(files);
        let publishers: Vec<_> = (0..2)
            .map(|_| {
                let engine = engine.clone();
                thread::spawn(move || {
                    let receipt = engine.submit(append()).wait().expect("kept");
                    let offset = receipt.offsets[0].expect("an offset");
                    let next = engine.numbers(LOG).expect("numbers").next;
                    assert!(next > offset, "acknowledged {offset}, shown up to {next}");
                    let read = engine.read_from(LOG, offset, ALL).expect("a read");
                    assert_eq!(read.records[0].offset, offset);
                    offset
                })
            })
            .collect();
        let mut offsets: Vec<u64> = publishers
            .into_iter()
            .map(|publisher| publisher.join().expect("a publisher"))
            .collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [1, 2], "each its own, none skipped");
        engine.close();
        commits.join().expect("the commit thread");
    });
}

#[test]
fn no_reader_sees_a_frame_before_it_is_synced_nor_half_of_one() {
    model(3, |files| {
        let (engine, files, commits) = start(files);
        let before = files.syncs();
        let reader = {
            let engine = engine.clone();
            thread::spawn(move || {
                let next = engine.numbers(LOG).expect("numbers").next;
                assert!(next == 1 || next == 3, "half a batch: next {next}");
                assert!(next == 1 || files.syncs() > before, "shown before its sync");
                let read = engine.read_from(LOG, 1, ALL).expect("a read").records.len();
                assert!(read == 0 || read == 2, "half a batch: {read} records");
                assert!(read == 2 || next == 1, "what was shown is taken back");
            })
        };
        let batch = saguin_log_engine::Batch {
            operations: vec![append(), append()],
            ..Default::default()
        };
        engine.submit(batch).wait().expect("kept");
        reader.join().expect("the reader");
        engine.close();
        commits.join().expect("the commit thread");
    });
}

#[test]
fn nobody_is_left_waiting_at_close_and_what_was_kept_is_shown() {
    model(3, |files| {
        let (engine, _, commits) = start(files);
        let publisher = {
            let engine = engine.clone();
            thread::spawn(move || engine.submit(append()).wait())
        };
        engine.close();
        let outcome = publisher.join().expect("the publisher");
        commits.join().expect("the commit thread");
        let next = engine.numbers(LOG).expect("numbers").next;
        match outcome {
            Ok(_) => assert_eq!(next, 2),
            Err(CommitError::Failed(_)) => assert_eq!(next, 1),
            Err(other) => panic!("{other}"),
        }
    });
}

#[test]
fn a_failed_sync_answers_everybody_and_shows_nothing() {
    model(3, |files| {
        let (engine, files, commits) = start(files);
        files.fail_syncs(Some(std::io::ErrorKind::Other));
        let other = {
            let engine = engine.clone();
            thread::spawn(move || engine.submit(append()).wait())
        };
        let outcomes = [
            engine.submit(append()).wait(),
            other.join().expect("a publisher"),
        ];
        for outcome in outcomes {
            assert!(
                matches!(outcome, Err(CommitError::Failed(_))),
                "{outcome:?}"
            );
        }
        assert!(engine.failure().is_some(), "and it says so");
        assert_eq!(engine.numbers(LOG).expect("numbers").next, 1);
        engine.close();
        commits.join().expect("the commit thread");
    });
}

#[test]
fn a_ticket_that_is_awaited_is_woken() {
    model(3, |files| {
        let (engine, _, commits) = start(files);
        let receipt = loom::future::block_on(engine.submit(append()));
        assert_eq!(receipt.expect("kept").offsets, [Some(1)]);
        engine.close();
        commits.join().expect("the commit thread");
    });
}

/// Whoever knows what is on its way, and how many publishes were answered.
#[derive(Default)]
struct Gate {
    asked_and_answered: loom::sync::Mutex<(bool, usize)>,
    changed: loom::sync::Condvar,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut (bool, usize))) {
        change(&mut self.asked_and_answered.lock().expect("no panic"));
        self.changed.notify_all();
    }

    /// Lets every commit go that asks, until so many publishes were answered.
    fn keep(&self, engine: &Engine, publishes: usize) {
        let mut state = self.asked_and_answered.lock().expect("no panic");
        while state.1 < publishes {
            if std::mem::take(&mut state.0) {
                drop(state);
                engine.go();
                state = self.asked_and_answered.lock().expect("no panic");
            } else {
                state = self.changed.wait(state).expect("no panic");
            }
        }
    }
}

#[test]
fn a_commit_that_waits_for_what_is_on_its_way_leaves_nobody_waiting() {
    model(2, |files| {
        let gate = Arc::new(Gate::default());
        let asks = gate.clone();
        let gather: Gather = Arc::new(move || asks.change(|state| state.0 = true));
        let (engine, _, commits) = start_with(files, Some(gather));
        let publisher = {
            let (engine, gate) = (engine.clone(), gate.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let gate = gate.clone();
                    let done = move |outcome: Outcome| {
                        outcome.expect("kept");
                        gate.change(|state| state.1 += 1);
                    };
                    engine.submit_with(append(), Box::new(done));
                }
            })
        };
        // Whoever waits for a ticket waits for nobody's word.
        engine.submit(append()).wait().expect("kept");
        gate.keep(&engine, 2);
        publisher.join().expect("the publisher");
        engine.close();
        commits.join().expect("the commit thread");
    });
}

#[test]
fn settling_wakes_the_commit_thread_and_loses_nobody_else() {
    model(3, |files| {
        let (engine, files, commits) = start(files);
        let before = files.writes();
        let settling = {
            let engine = engine.clone();
            thread::spawn(move || engine.settle())
        };
        engine.submit(append()).wait().expect("kept");
        settling.join().expect("settled");
        engine.close();
        commits.join().expect("the commit thread");
        // The record, at most one witness, and the clean stop.
        let writes = files.writes() - before;
        assert!((2..=3).contains(&writes), "{writes} writes");
    });
}

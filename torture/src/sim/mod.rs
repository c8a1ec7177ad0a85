//! `torture sim`: the engine and its recovery over a disk that misbehaves, checked by an oracle that
//! knows only what was acknowledged and what was on its way.
//!
//! A run follows from one number: what is asked, when the power goes, what the disk then holds. The
//! engine's commit thread is a real one, but the run is in step with it: it submits, waits for every
//! answer, and only then goes on. Batches that are to share a frame are submitted from inside the
//! callback of a batch before them, on the commit thread itself, so they are in the queue together
//! before it looks again. Nothing reads a clock.

mod kept;
pub mod model;
mod reopen;
mod report;
mod run;
mod tamper;
mod view;
mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use report::{Counts, Violation};
pub use view::view;

/// Runs one seed.
///
/// # Errors
/// The broken promise.
pub fn run_seed(seed: u64) -> Result<Counts, Box<Violation>> {
    match catch_unwind(AssertUnwindSafe(|| run::Run::new(seed).go())) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let found = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default();
            Err(Box::new(Violation::panicked(seed, &found)))
        }
    }
}

/// The outcome of many seeds.
#[derive(Debug)]
pub struct Sweep {
    /// What happened in all of them together.
    pub counts: Counts,
    /// Seeds run.
    pub seeds: u64,
    /// The violation of the lowest seed that had one, if any had.
    pub violation: Option<Box<Violation>>,
}

/// Runs `seeds` seeds from `start` on, on `threads` threads, and stops at the first violation.
#[must_use]
pub fn sweep(start: u64, seeds: u64, threads: usize) -> Sweep {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Sweep {
        counts: Counts::default(),
        seeds: 0,
        violation: None,
    });
    let work = || {
        while !stop.load(Ordering::SeqCst) {
            let i = next.fetch_add(1, Ordering::SeqCst);
            if i >= seeds {
                return;
            }
            let outcome = run_seed(start.wrapping_add(i));
            let mut total = total.lock().unwrap_or_else(|e| e.into_inner());
            total.seeds += 1;
            match outcome {
                Ok(counts) => total.counts.add(&counts),
                Err(violation) => {
                    stop.store(true, Ordering::SeqCst);
                    // Seeds before this one were all begun: the lowest of those that fail is the
                    // same in every sweep.
                    let lower = total.violation.as_ref().is_none_or(|v| {
                        violation.seed.wrapping_sub(start) < v.seed.wrapping_sub(start)
                    });
                    if lower {
                        total.violation = Some(violation);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap_or_else(|e| e.into_inner())
}

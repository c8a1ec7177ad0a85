//! From the callers to the commit thread and back: a bounded queue, and one outcome per batch.
//!
//! Who may do what: callers push and wait; the commit thread alone takes, and completes every
//! batch it took exactly once, with success or with the failure. Nobody is left waiting: a push
//! after the end is refused, and what the queue still holds at the end is completed by
//! [`Handoff::shut`].

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::batch::{Batch, CommitError, Receipt};
use crate::latch::Failure;
use crate::sync::{Arc, Condvar, Mutex, lock};

/// The outcome of one batch.
pub type Outcome = Result<Receipt, CommitError>;

/// Called on the commit thread with the outcome. It must not block and must not panic.
pub type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// Most batches that may wait.
const MAX_WAITING: usize = 65_536;
/// Most encoded bytes that may wait.
const MAX_WAITING_BYTES: u64 = 256 << 20;

pub(crate) enum Completion {
    Ticket(Arc<Cell>),
    Call(Callback),
}

impl Completion {
    pub(crate) fn complete(self, outcome: Outcome) {
        match self {
            Completion::Ticket(cell) => cell.fill(outcome),
            Completion::Call(call) => call(outcome),
        }
    }
}

/// A batch on its way.
pub(crate) struct Pending {
    pub(crate) batch: Batch,
    pub(crate) bytes: u64,
    /// Room for its offsets, taken on the caller's thread: the commit thread allocates nothing for
    /// a batch.
    pub(crate) offsets: Vec<Option<u64>>,
    pub(crate) completion: Completion,
}

/// What the commit thread is to do next.
pub(crate) enum Next {
    /// Commit these.
    Work,
    /// Nothing arrived within the idle time.
    Idle,
    /// Nothing will arrive any more.
    End,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Pending>,
    bytes: u64,
    closing: bool,
    /// The commit thread waits for something to arrive.
    asleep: bool,
    /// The next take answers idle, whatever waits.
    settle: bool,
    /// Set once the commit thread has gone, however it went.
    ended: Option<Failure>,
}

#[derive(Default)]
pub(crate) struct Handoff {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

/// How much one frame takes from the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeLimit {
    pub(crate) batches: usize,
    pub(crate) bytes: u64,
}

impl Handoff {
    /// Queues a batch, or hands it back with the reason.
    pub(crate) fn push(&self, pending: Pending) -> Result<(), (Pending, CommitError)> {
        let mut queue = lock(&self.queue);
        if let Some(failure) = &queue.ended {
            let failure = failure.clone();
            return Err((pending, CommitError::Failed(failure)));
        }
        if queue.closing {
            let failure = Failure {
                reason: "it is closed".into(),
            };
            return Err((pending, CommitError::Failed(failure)));
        }
        let bytes = queue.bytes + pending.bytes;
        if queue.waiting.len() >= MAX_WAITING || bytes > MAX_WAITING_BYTES {
            return Err((pending, CommitError::Overloaded));
        }
        queue.bytes = bytes;
        let first = queue.waiting.is_empty();
        queue.waiting.push_back(pending);
        let asleep = queue.asleep;
        drop(queue);
        // The commit thread sleeps only on an empty queue: the batch that ends that wakes it. While
        // it is at work nobody pays for a wake-up.
        if first && asleep {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes what waits, in order, into `into`; waits up to `idle` for the first.
    pub(crate) fn take(&self, into: &mut Vec<Pending>, limit: TakeLimit, idle: Duration) -> Next {
        let mut queue = lock(&self.queue);
        loop {
            if std::mem::take(&mut queue.settle) {
                return Next::Idle;
            }
            if !queue.waiting.is_empty() {
                break;
            }
            if queue.closing {
                return Next::End;
            }
            queue.asleep = true;
            let (back, timeout) = self
                .arrived
                .wait_timeout(queue, idle)
                .unwrap_or_else(crate::sync::PoisonError::into_inner);
            queue = back;
            queue.asleep = false;
            let nothing = queue.waiting.is_empty() && !queue.closing && !queue.settle;
            if timeout.timed_out() && nothing {
                return Next::Idle;
            }
        }
        let mut bytes = 0;
        while let Some(next) = queue.waiting.front() {
            bytes += next.bytes;
            // One batch always fits, however large: it was bounded when it was submitted.
            if !into.is_empty() && (into.len() >= limit.batches || bytes > limit.bytes) {
                break;
            }
            let Some(next) = queue.waiting.pop_front() else {
                break;
            };
            queue.bytes -= next.bytes;
            into.push(next);
        }
        Next::Work
    }

    /// Has the commit thread do now what it does when idle.
    pub(crate) fn settle(&self) {
        lock(&self.queue).settle = true;
        self.arrived.notify_all();
    }

    /// No more pushes; what waits is still committed.
    pub(crate) fn close(&self) {
        lock(&self.queue).closing = true;
        self.arrived.notify_all();
    }

    /// The commit thread is gone: refuses what comes and completes what still waits.
    pub(crate) fn shut(&self, failure: &Failure) {
        let mut queue = lock(&self.queue);
        queue.ended.get_or_insert_with(|| failure.clone());
        queue.bytes = 0;
        let left = std::mem::take(&mut queue.waiting);
        drop(queue);
        for pending in left {
            pending
                .completion
                .complete(Err(CommitError::Failed(failure.clone())));
        }
    }
}

/// Where one batch's outcome arrives.
#[derive(Default)]
pub(crate) struct Cell {
    slot: Mutex<Slot>,
    filled: Condvar,
}

#[derive(Default)]
struct Slot {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    /// A thread sleeps until the outcome is there.
    blocked: bool,
}

impl Cell {
    fn fill(&self, outcome: Outcome) {
        let mut slot = lock(&self.slot);
        slot.outcome = Some(outcome);
        let waker = slot.waker.take();
        let blocked = slot.blocked;
        drop(slot);
        if blocked {
            self.filled.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A batch's outcome to come: a future, or [`wait`](Ticket::wait) for it.
#[must_use = "the batch is not durable until its ticket says so"]
pub struct Ticket {
    cell: Arc<Cell>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

impl Ticket {
    pub(crate) fn new() -> (Ticket, Completion) {
        let cell = Arc::new(Cell::default());
        (Ticket { cell: cell.clone() }, Completion::Ticket(cell))
    }

    /// Blocks until the batch is durable or refused.
    ///
    /// # Errors
    /// [`CommitError`].
    pub fn wait(self) -> Outcome {
        let mut slot = lock(&self.cell.slot);
        loop {
            if let Some(outcome) = slot.outcome.take() {
                return outcome;
            }
            slot.blocked = true;
            slot = self
                .cell
                .filled
                .wait(slot)
                .unwrap_or_else(crate::sync::PoisonError::into_inner);
        }
    }
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut slot = lock(&self.cell.slot);
        match slot.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

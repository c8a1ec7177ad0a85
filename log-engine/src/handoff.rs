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
use std::time::{Duration, Instant};

use crate::batch::{Batch, CommitError, Receipt};
use crate::latch::Failure;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock};

/// The outcome of one batch.
pub type Outcome = Result<Receipt, CommitError>;

/// Called where a batch waits for the commit thread, which waits to be told that no more is on its
/// way: whoever gave it calls [`Engine::go`](crate::Engine::go) soon. It must not block.
pub type Gather = std::sync::Arc<dyn Fn() + Send + Sync>;

/// Operations that are worth a commit whatever else is on its way.
const WORTH_A_COMMIT: usize = 32;

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
    /// Each of its operations is judged by itself.
    pub(crate) each: bool,
    /// It waits for what else is on its way.
    pub(crate) gathers: bool,
    pub(crate) bytes: u64,
    /// Room for its offsets, taken on the caller's thread: the commit thread allocates nothing for
    /// a batch.
    pub(crate) offsets: Vec<Option<u64>>,
    pub(crate) completion: Completion,
    /// When it was queued, where commits wait for company.
    pub(crate) arrived: Option<Instant>,
}

/// Who shares a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishCommit {
    /// Whoever arrived during the commit before: nobody waits for company.
    #[default]
    AsTheyCome,
    /// Nobody: every batch has a frame, and a sync, of its own.
    Alone,
    /// A commit waits for company after its first batch arrived.
    Wait {
        /// How long, at most.
        interval: Duration,
        /// How many operations end the wait.
        records: usize,
    },
}

/// How long a commit waits for company after its first batch arrived, and how many operations end
/// the wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Company {
    pub(crate) interval: Duration,
    pub(crate) records: usize,
}

/// Frames that are written and not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsynced {
    /// When the first of them was written.
    pub(crate) since: Instant,
    /// How long it may stay so.
    pub(crate) most: Duration,
}

impl Unsynced {
    fn left(&self) -> Duration {
        self.most.saturating_sub(self.since.elapsed())
    }
}

/// What ended a commit's wait for company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    Records,
    Interval,
    /// It did not wait: the commit before had just ended, or it was full.
    Commit,
    /// Every batch has one of its own.
    Unbatched,
}

/// What the commit thread is to do next.
pub(crate) enum Next {
    /// Commit these.
    Work(Closed),
    /// Nothing arrived within the idle time.
    Idle,
    /// What is written has waited long enough for its sync.
    Flush,
    /// Nothing will arrive any more.
    End,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Pending>,
    bytes: u64,
    /// Operations in what waits.
    records: usize,
    /// Batches among it that wait for no company.
    urgent: usize,
    /// Batches among it that do not wait for what is on its way.
    prompt: usize,
    /// Whoever knows what is on its way was asked, and has not answered.
    gathering: bool,
    /// Nothing more is on its way.
    go: bool,
    /// Operations the last commit took.
    last: usize,
    /// What the next one would have if whoever was answered came back at once: those, and what waited
    /// already. With fewer it is worth asking for what is on its way.
    expected: usize,
    /// The first of it was kept waiting for company.
    waited: bool,
    closing: bool,
    /// The commit thread waits for something to arrive.
    asleep: bool,
    /// The next take answers idle, whatever waits.
    settle: bool,
    /// Set once the commit thread has gone, however it went.
    ended: Option<Failure>,
}

pub(crate) struct Handoff {
    limit: TakeLimit,
    /// Asked for what is on its way, where commits wait for no company beyond it.
    gather: Option<Gather>,
    company: Option<Company>,
    /// What ends a commit that waits for no company.
    closed: Closed,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

/// How much one frame takes from the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeLimit {
    pub(crate) batches: usize,
    pub(crate) bytes: u64,
}

impl Queue {
    fn full(&self, limit: TakeLimit) -> bool {
        self.waiting.len() >= limit.batches || self.bytes >= limit.bytes
    }

    /// What closes the commit whose first batch came at `arrived`, or how much longer it waits.
    fn company(
        &self,
        company: Company,
        arrived: Option<Instant>,
        limit: TakeLimit,
    ) -> Result<Closed, Duration> {
        if self.records >= company.records {
            return Ok(Closed::Records);
        }
        if self.full(limit) || self.urgent > 0 || self.closing {
            return Ok(Closed::Commit);
        }
        let waits = arrived.map_or(Duration::ZERO, |arrived| arrived.elapsed());
        match company.interval.saturating_sub(waits) {
            Duration::ZERO if self.waited => Ok(Closed::Interval),
            Duration::ZERO => Ok(Closed::Commit),
            more => Err(more),
        }
    }

    /// Whether a commit waits for nothing more that may be on its way.
    fn gathered(&self, limit: TakeLimit) -> bool {
        self.go
            || self.prompt > 0
            || self.records >= self.expected
            || self.full(limit)
            || self.closing
    }

    /// Hands over what one frame takes.
    fn give(&mut self, into: &mut Vec<Pending>, limit: TakeLimit) {
        let (mut bytes, before) = (0, self.records);
        while let Some(next) = self.waiting.front() {
            bytes += next.bytes;
            // One batch always fits, however large: it was bounded when it was submitted.
            if !into.is_empty() && (into.len() >= limit.batches || bytes > limit.bytes) {
                break;
            }
            let Some(next) = self.waiting.pop_front() else {
                break;
            };
            self.bytes -= next.bytes;
            self.records -= next.batch.operations.len();
            self.urgent -= usize::from(next.batch.is_urgent());
            self.prompt -= usize::from(!next.gathers);
            into.push(next);
        }
        (self.gathering, self.go) = (false, false);
        self.last = before - self.records;
    }
}

impl Handoff {
    pub(crate) fn new(
        mut limit: TakeLimit,
        publish_commit: PublishCommit,
        gather: Option<Gather>,
    ) -> Handoff {
        let (company, closed) = match publish_commit {
            PublishCommit::AsTheyCome => (None, Closed::Commit),
            PublishCommit::Alone => {
                limit.batches = 1;
                (None, Closed::Unbatched)
            }
            PublishCommit::Wait { interval, records } => {
                (Some(Company { interval, records }), Closed::Commit)
            }
        };
        Handoff {
            limit,
            gather: gather.filter(|_| publish_commit == PublishCommit::AsTheyCome),
            company,
            closed,
            queue: Mutex::new(Queue::default()),
            arrived: Condvar::new(),
        }
    }

    /// Whether commits wait for company.
    pub(crate) fn waits(&self) -> bool {
        self.company.is_some()
    }

    /// Queues a batch, or hands it back with the reason.
    #[expect(
        clippy::result_large_err,
        reason = "moved on a refusal only; a box would be an allocation"
    )]
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
        queue.records += pending.batch.operations.len();
        queue.urgent += usize::from(pending.batch.is_urgent());
        queue.prompt += usize::from(!pending.gathers);
        queue.waiting.push_back(pending);
        if let Some(gather) = &self.gather {
            self.gather_or_wake(queue, gather);
            return Ok(());
        }
        // The commit thread sleeps on an empty queue, and the batch that ends that wakes it; or it
        // waits for company, and the batch that ends that does.
        let ends_wait = |company: Company| {
            queue.records >= company.records || queue.urgent > 0 || queue.full(self.limit)
        };
        // While it is at work nobody pays for a wake-up.
        let wake = queue.asleep && (first || self.company.is_some_and(ends_wait));
        drop(queue);
        if wake {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// A batch came to a commit thread that gathers: once it sleeps it is woken where nothing is
    /// waited for any more, and whoever knows is asked otherwise.
    fn gather_or_wake(&self, mut queue: MutexGuard<'_, Queue>, gather: &Gather) {
        let wake = queue.asleep && queue.gathered(self.limit);
        let ask = queue.asleep && !wake && !std::mem::replace(&mut queue.gathering, true);
        drop(queue);
        if wake {
            self.arrived.notify_one();
        } else if ask {
            gather();
        }
    }

    /// Nothing more is on its way: what waits is committed.
    pub(crate) fn go(&self) {
        let mut queue = lock(&self.queue);
        if !std::mem::take(&mut queue.gathering) || queue.waiting.is_empty() {
            return;
        }
        queue.go = true;
        let asleep = queue.asleep;
        drop(queue);
        if asleep {
            self.arrived.notify_one();
        }
    }

    /// Batches that wait: for whoever gathers to see whether there are more than before.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).waiting.len()
    }

    /// Takes what waits, in order, into `into`; waits up to `idle` for the first, and no longer than
    /// what is written may stay unsynced.
    pub(crate) fn take(
        &self,
        into: &mut Vec<Pending>,
        idle: Duration,
        unsynced: Option<&Unsynced>,
    ) -> Next {
        let left = || unsynced.map(Unsynced::left);
        let mut queue = lock(&self.queue);
        queue.expected = (queue.records + queue.last).clamp(1, WORTH_A_COMMIT);
        let closed = loop {
            if std::mem::take(&mut queue.settle) {
                return Next::Idle;
            }
            // Before what waits: something always waits under load.
            if left() == Some(Duration::ZERO) {
                return Next::Flush;
            }
            if let Some(first) = queue.waiting.front() {
                let arrived = first.arrived;
                let Some(company) = self.company else {
                    let Some(gather) = &self.gather else {
                        break self.closed;
                    };
                    if queue.gathered(self.limit) {
                        break self.closed;
                    }
                    if !std::mem::replace(&mut queue.gathering, true) {
                        drop(queue);
                        gather();
                        queue = lock(&self.queue);
                        continue;
                    }
                    let time = left().map_or(idle, |left| left.min(idle));
                    let (back, timed_out) = self.wait(queue, time);
                    queue = back;
                    // Nobody has answered for that long: nothing waits for ever.
                    queue.go |= timed_out;
                    continue;
                };
                match queue.company(company, arrived, self.limit) {
                    Ok(closed) => break closed,
                    Err(more) => {
                        queue.waited = true;
                        let time = left().map_or(more, |left| left.min(more));
                        queue = self.wait(queue, time).0;
                        continue;
                    }
                }
            }
            if queue.closing {
                return Next::End;
            }
            let time = left().map_or(idle, |left| left.min(idle));
            let (back, timed_out) = self.wait(queue, time);
            queue = back;
            let nothing = queue.waiting.is_empty() && !queue.closing && !queue.settle;
            if timed_out && nothing && left() != Some(Duration::ZERO) {
                return Next::Idle;
            }
        };
        queue.waited = false;
        queue.give(into, self.limit);
        Next::Work(closed)
    }

    fn wait<'q>(
        &self,
        mut queue: MutexGuard<'q, Queue>,
        time: Duration,
    ) -> (MutexGuard<'q, Queue>, bool) {
        queue.asleep = true;
        let (mut queue, timeout) = self
            .arrived
            .wait_timeout(queue, time)
            .unwrap_or_else(crate::sync::PoisonError::into_inner);
        queue.asleep = false;
        (queue, timeout.timed_out())
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

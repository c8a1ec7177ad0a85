//! Everything that happens because time has passed.
//!
//! One task of the front end asks for the next deadline and calls [`Broker::tick`] when it comes.
//! Nothing here shares a lock with a publish for longer than it takes to look at a list.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::storage::{Batch, ChannelKind, Operation, ReadLimit, Space};

use super::channel::Channel;
use super::connection::Connection;
use super::queue::moved_at;
use super::session::{Session, State};
use super::time::Now;
use super::topic::ChannelIndex;
use super::{Broker, Wake, lock};

/// How often sizes are swept, and ages at the most often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A position that moved only past records that do not match is stored every so many sweeps: often
/// enough to stay ahead of retention, not so often that every quiet session writes.
const STORE_SKIPPED_EVERY: u64 = 60;

/// Records one step of a sweep looks at.
const SWEEP_STEP: ReadLimit = ReadLimit {
    records: 256,
    bytes: 1024 * 1024,
};

/// Steps one sweep of one channel makes, so that a large backlog never holds the timer task; the
/// next sweep goes on.
const SWEEP_STEPS: usize = 64;

/// What is due when.
pub(crate) struct Schedule {
    timer: Wake,
    pub positions: Mutex<PositionList>,
    /// Sessions whose end could not be stored, written again every second.
    pub rewrites: Mutex<Vec<Arc<Session>>>,
    /// Away sessions, by when something of theirs is due.
    sessions: Mutex<BTreeMap<(Duration, u64), Arc<Session>>>,
    /// Queues, by name of channel: when each asked to be called.
    alarms: Arc<Mutex<BTreeMap<ChannelIndex, Duration>>>,
    next_sweep: Mutex<Duration>,
    /// When ages are next looked at.
    next_age_sweep: Mutex<Duration>,
    next_rewrite: Mutex<Option<Duration>>,
    /// QoS 2 publishes that wait for their PUBREL, by when they are given up.
    pub holds: Mutex<BTreeMap<(Duration, u64, u16), Arc<Session>>>,
    /// How many sweeps there were.
    sweeps: Mutex<u64>,
}

/// Sessions whose positions moved.
#[derive(Default)]
pub(crate) struct PositionList {
    pub sessions: Vec<Arc<Session>>,
    pub due: Option<Duration>,
}

impl Schedule {
    /// Nothing is due but a first sweep. `timer` is called whenever a deadline comes nearer.
    pub fn new(timer: Wake) -> Self {
        Schedule {
            timer,
            positions: Mutex::default(),
            rewrites: Mutex::default(),
            sessions: Mutex::default(),
            alarms: Arc::default(),
            next_sweep: Mutex::default(),
            next_age_sweep: Mutex::default(),
            next_rewrite: Mutex::default(),
            holds: Mutex::default(),
            sweeps: Mutex::default(),
        }
    }

    /// Something is due at a moment that may be nearer than the one waited for.
    pub fn wake(&self) {
        (self.timer)();
    }

    /// Something of an away session is due at `at`. A session has one entry here at most, however
    /// often it comes and goes.
    pub fn session_at(&self, session: &Arc<Session>, state: &mut State, at: Duration) {
        self.session_not_due(session, state);
        state.scheduled = Some(at);
        lock(&self.sessions).insert((at, session.key), session.clone());
        (self.timer)();
    }

    /// Its client is back, or it has ended.
    pub fn session_not_due(&self, session: &Session, state: &mut State) {
        if let Some(at) = state.scheduled.take() {
            lock(&self.sessions).remove(&(at, session.key));
        }
    }

    /// How a queue asks to be called back.
    pub fn alarm(&self, queue: ChannelIndex) -> super::queue::Alarm {
        let alarms = self.alarms.clone();
        let wake = self.timer.clone();
        Arc::new(move |at| {
            lock(&alarms)
                .entry(queue)
                .and_modify(|held| *held = (*held).min(at))
                .or_insert(at);
            wake();
        })
    }

    fn next(&self) -> Option<Duration> {
        let rewrite = if lock(&self.rewrites).is_empty() {
            None
        } else {
            *lock(&self.next_rewrite)
        };
        let positions = lock(&self.positions).due;
        let session = lock(&self.sessions).keys().next().map(|(at, _)| *at);
        let alarm = lock(&self.alarms).values().min().copied();
        let sweep = Some(*lock(&self.next_sweep));
        let hold = lock(&self.holds).keys().next().map(|(at, ..)| *at);
        [positions, session, alarm, sweep, rewrite, hold]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Broker {
    /// When [`tick`](Self::tick) next has something to do, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.schedule.next()
    }

    /// Does what is due.
    pub fn tick(self: &Arc<Self>, now: Now) {
        self.store_positions(now);
        self.tick_queues(now);
        self.tick_sessions(now);
        self.tick_holds(now);
        self.tick_rewrites(now);
        let due = {
            let mut next = lock(&self.schedule.next_sweep);
            let due = *next <= now.since_start;
            if due {
                *next = now.since_start + SWEEP_INTERVAL;
            }
            due
        };
        if due {
            self.sweep(now);
        }
    }

    fn store_positions(&self, now: Now) {
        let sessions = {
            let mut list = lock(&self.schedule.positions);
            if list.due.is_none_or(|due| due > now.since_start) {
                return;
            }
            list.due = None;
            std::mem::take(&mut list.sessions)
        };
        for session in sessions {
            self.store_positions_of(&session);
        }
    }

    /// Stores where a session is. A position may lag what was acknowledged and never leads it, so
    /// a write that fails is made up for by the next.
    fn store_positions_of(&self, session: &Arc<Session>) {
        let mut state = session.lock();
        state.position_listed = false;
        if state.ended || state.claimed {
            // A claim that comes to nothing writes all of them.
            return;
        }
        let operations = session.put_moved_positions(&mut state);
        if operations.is_empty() {
            return;
        }
        let client = session.client_id.clone();
        // Under the session's lock, so that no position follows the end of its session.
        self.session_store.submit(
            Batch { operations },
            Box::new(move |outcome| {
                if let Err(error) = outcome {
                    tracing::error!(%client, %error, "a consumer's position could not be stored");
                }
            }),
        );
    }

    fn tick_queues(&self, now: Now) {
        let due: Vec<ChannelIndex> = {
            let mut alarms = lock(&self.schedule.alarms);
            let due = alarms
                .iter()
                .filter(|(_, at)| **at <= now.since_start)
                .map(|(queue, _)| *queue)
                .collect();
            alarms.retain(|_, at| *at > now.since_start);
            due
        };
        for queue in due {
            if let Some(queue) = &self.channel(queue).queue {
                queue.on_deadline();
            }
        }
    }

    fn tick_sessions(self: &Arc<Self>, now: Now) {
        loop {
            let session = {
                let mut sessions = lock(&self.schedule.sessions);
                match sessions.first_entry() {
                    Some(entry) if entry.key().0 <= now.since_start => entry.remove(),
                    _ => return,
                }
            };
            self.session_due(&session, now);
        }
    }

    fn tick_rewrites(self: &Arc<Self>, now: Now) {
        {
            let mut next = lock(&self.schedule.next_rewrite);
            if next.is_some_and(|at| at > now.since_start) {
                return;
            }
            *next = Some(now.since_start + Duration::from_secs(1));
        }
        for session in std::mem::take(&mut *lock(&self.schedule.rewrites)) {
            self.rewrite(session);
        }
    }

    /// Retention, and readers that nothing published since has woken.
    fn sweep(self: &Arc<Self>, now: Now) {
        let ages = {
            let mut next = lock(&self.schedule.next_age_sweep);
            let due = *next <= now.since_start;
            if due {
                *next = now.since_start + self.age_interval();
            }
            due
        };
        let store_skipped = {
            let mut sweeps = lock(&self.schedule.sweeps);
            *sweeps += 1;
            sweeps.is_multiple_of(STORE_SKIPPED_EVERY)
        };
        for (index, channel) in self.channels.iter().enumerate() {
            match channel.kind {
                ChannelKind::Append => {
                    if ages {
                        self.sweep_age(channel, now);
                    }
                    self.sweep_bytes(channel);
                }
                ChannelKind::Latest if ages => self.sweep_latest(ChannelIndex(index), now),
                _ => {}
            }
            self.sweep_readers(ChannelIndex(index), store_skipped);
        }
        self.sweep_retained(now);
        self.sweep_groups(now);
        self.give_way();
        self.log.resolve_done();
    }

    /// A tenth of the shortest period configured, at least every second of it.
    fn age_interval(&self) -> Duration {
        let periods = self
            .channels
            .iter()
            .flat_map(|channel| [channel.retention_period, channel.deletion_retention_period]);
        let shortest = periods.flatten().min().unwrap_or(SWEEP_INTERVAL);
        (shortest / 10).max(SWEEP_INTERVAL)
    }

    /// Removes what an append channel has kept for its period. A record without a receipt time is
    /// never too old, so the sweep stops there.
    fn sweep_age(&self, channel: &Channel, now: Now) {
        let Some(period) = channel.retention_period else {
            return;
        };
        let counters = channel.store.counters(channel.id);
        if counters.count == 0 {
            return;
        }
        let Some(oldest_kept) = oldest_kept(now, period) else {
            return;
        };
        let floor = if channel.is_dead_letters {
            self.first_letter_moved_after(channel, counters.floor, oldest_kept)
        } else {
            channel.store.at_or_after(channel.id, oldest_kept).ok()
        };
        if let Some(floor) = floor
            && floor > counters.floor
        {
            self.trim(channel, floor, "age");
        }
    }

    /// A dead letter's age counts from when it became one: a job may be old when it arrives.
    fn first_letter_moved_after(
        &self,
        channel: &Channel,
        floor: u64,
        oldest_kept: u64,
    ) -> Option<u64> {
        let mut at = floor;
        for _ in 0..SWEEP_STEPS {
            let read = channel.store.read_from(channel.id, at, SWEEP_STEP).ok()?;
            for record in &read.records {
                let age_from = moved_at(&record.message).or(record.message.received_at);
                if age_from.is_none_or(|moved| moved > oldest_kept) {
                    return Some(record.offset);
                }
                at = record.offset + 1;
            }
            if read.records.is_empty() {
                return Some(at);
            }
        }
        Some(at)
    }

    /// Removes the oldest of an append channel until what is left is within its bytes.
    fn sweep_bytes(&self, channel: &Channel) {
        let Some(most) = channel.retention_bytes else {
            return;
        };
        let counters = channel.store.counters(channel.id);
        let Some(mut excess) = counters
            .bytes
            .checked_sub(most)
            .filter(|excess| *excess > 0)
        else {
            return;
        };
        let mut floor = counters.floor;
        'steps: for _ in 0..SWEEP_STEPS {
            let Ok(read) = channel.store.read_from(channel.id, floor, SWEEP_STEP) else {
                return;
            };
            if read.records.is_empty() {
                break;
            }
            for record in &read.records {
                floor = record.offset + 1;
                let size = record.message.counted_size();
                if size >= excess {
                    break 'steps;
                }
                excess -= size;
            }
        }
        self.trim(channel, floor, "size");
    }

    fn trim(&self, channel: &Channel, floor: u64, cause: &'static str) {
        let counters = channel.store.counters(channel.id);
        let removed = floor.saturating_sub(counters.floor);
        tracing::debug!(channel = %channel.name, floor, removed, cause, "retention");
        self.counters.retention_removed.fetch_add(removed, Relaxed);
        let name = channel.name.clone();
        let trim = Operation::Trim {
            channel: channel.id,
            floor,
        };
        channel.store.submit(
            trim.into(),
            Box::new(move |outcome| {
                if let Err(error) = outcome {
                    tracing::error!(channel = %name, %error, "retention could not remove records");
                }
            }),
        );
    }

    /// Removes values that have been quiet for the retention period, and deletions that were kept
    /// for theirs.
    fn sweep_latest(self: &Arc<Self>, index: ChannelIndex, now: Now) {
        let channel = self.channel(index);
        let value_before = channel
            .retention_period
            .and_then(|period| oldest_kept(now, period));
        let deletion_before = channel
            .deletion_retention_period
            .and_then(|period| oldest_kept(now, period));
        if value_before.is_none() && deletion_before.is_none() {
            return;
        }
        let mut at = 0;
        for _ in 0..SWEEP_STEPS {
            let Ok(read) = channel.store.changes_from(channel.id, at, SWEEP_STEP) else {
                return;
            };
            let Some(last) = read.records.last() else {
                return;
            };
            at = last.offset + 1;
            let gone: Vec<Operation> = read
                .records
                .iter()
                .filter(|record| {
                    let before = if record.message.payload.is_empty() {
                        deletion_before
                    } else {
                        value_before
                    };
                    let received = record.message.received_at;
                    before.is_some_and(|before| received.is_some_and(|at| at < before))
                })
                .map(|record| Operation::Forget {
                    channel: channel.id,
                    topic: record.message.topic.clone(),
                    offset: record.offset,
                })
                .collect();
            if gone.is_empty() {
                continue;
            }
            self.counters
                .retention_removed
                .fetch_add(gone.len() as u64, Relaxed);
            let broker = self.clone();
            channel.store.submit(
                Batch { operations: gone },
                Box::new(move |outcome| match outcome {
                    Ok(_) => broker.values_removed(index),
                    Err(error) => {
                        let channel = &broker.channel(index).name;
                        tracing::error!(%channel, %error, "retention could not remove values");
                    }
                }),
            );
        }
    }

    /// Stores every position that has moved, for a graceful stop; `done` is called once they are
    /// stored, or could not be.
    pub fn store_all_positions(&self, done: Wake) {
        let sessions = lock(&self.registry).sessions();
        for session in sessions {
            self.store_positions_of(&session);
        }
        // Batches are stored in order, so this one, which deletes nothing, follows them all.
        let last = Operation::Delete {
            space: Space::Sessions,
            key: bytes::Bytes::new(),
        };
        self.session_store
            .submit(last.into(), Box::new(move |_| done()));
    }

    /// How many sessions are held, and how many connections own one.
    #[must_use]
    pub fn session_counts(&self) -> (usize, usize) {
        let sessions = lock(&self.registry).sessions();
        let connected = sessions
            .iter()
            .filter(|session| session.lock().link.is_some())
            .count();
        (sessions.len(), connected)
    }
}

impl Connection {
    /// Whether the connection still owns its session.
    #[must_use]
    pub fn owns_session(&self) -> bool {
        self.session.lock().owned_by(self.number).is_some()
    }
}

/// What was received before this is older than `period`; `None` while the clock is younger.
fn oldest_kept(now: Now, period: Duration) -> Option<u64> {
    let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    now.unix_ms.checked_sub(period)
}

//! From a commit to those who read the channel.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use crate::storage::{ChannelKind, Operation};

use super::publish::text;
use super::session::reader::Reader;
use super::session::{Session, State};
use super::topic::ChannelIndex;
use super::{Broker, lock};

/// A record that a commit brought.
pub(crate) struct Committed {
    pub channel: ChannelIndex,
    pub topic: Bytes,
    pub offset: u64,
}

impl Broker {
    /// Batches that wait for a commit.
    pub fn waiting(&self) -> usize {
        self.stores.iter().map(|store| store.waiting()).sum()
    }

    /// Nothing more is on its way to the stores: what waits is committed.
    pub fn go(&self) {
        for store in &self.stores {
            store.go();
        }
    }

    /// Runs what the stores have outcomes for, then wakes the readers of what was stored; returns
    /// how many outcomes there were. Called by one task, once per commit.
    ///
    /// The answers come first: nothing between a commit and its PUBACK waits on a reader
    /// (invariant 16), and waking one is no more than a mark and a notification.
    pub fn run_completions(&self) -> usize {
        let ran = self
            .stores
            .iter()
            .map(|store| store.run_completions())
            .sum();
        let committed = std::mem::take(&mut *lock(&self.committed));
        for record in &committed {
            if self.channel(record.channel).has_readers() {
                self.wake_matching(record.channel, text(&record.topic));
            }
        }
        for record in &committed {
            // In the order of their offsets, which is the order they were stored in.
            let mut woken_to = lock(&self.channel(record.channel).woken_to);
            *woken_to = (*woken_to).max(record.offset + 1);
        }
        self.wake_dead_letter_readers();
        self.hand_records_to_groups();
        ran
    }

    /// Wakes the readers of `channel` whose filters match `topic`. Those it does not reach are
    /// caught up by the sweep.
    fn wake_matching(&self, channel: ChannelIndex, topic: &str) {
        let mut found: BTreeMap<u64, Arc<Session>> = BTreeMap::new();
        {
            let index = self
                .subscriptions
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            index.visit(topic, |key, subscriber| {
                if !subscriber.subscription.takes(topic.as_bytes()) {
                    return;
                }
                found
                    .entry(*key)
                    .or_insert_with(|| subscriber.session.clone());
            });
        }
        self.wake_sessions(channel, found.into_values());
    }

    /// Dead letters arrive without a publish of their own.
    fn wake_dead_letter_readers(&self) {
        for (index, channel) in self.channels.iter().enumerate() {
            if !channel.is_dead_letters {
                continue;
            }
            let next = channel.store.counters(channel.id).next;
            let before = std::mem::replace(&mut *lock(&channel.woken_to), next);
            if next != before {
                self.wake_sessions(ChannelIndex(index), channel.readers());
            }
        }
    }

    fn wake_sessions(&self, index: ChannelIndex, sessions: impl IntoIterator<Item = Arc<Session>>) {
        let channel = self.channel(index);
        let counters = channel.store.counters(channel.id);
        for session in sessions {
            let mut state = session.lock();
            if state.link.is_none() {
                continue;
            }
            if let Some(reader) = state.readers.get_mut(&index) {
                reader.wake(counters.next, counters.floor);
                state.wake_writer();
            }
        }
    }

    /// Brings the readers along that nothing stored since has woken, where the channel has moved.
    ///
    /// A reader that stood at the end, and that none of the records after it has woken, has nothing
    /// to read among them: it is moved past them without a read, or a thousand readers of a busy
    /// channel would each read all of it to find nothing. One that retention has passed learns of
    /// its floor.
    pub(crate) fn sweep_readers(&self, index: ChannelIndex, store_skipped: bool) {
        let channel = self.channel(index);
        let counters = channel.store.counters(channel.id);
        let woken_to = *lock(&channel.woken_to);
        let stands = (counters.next, counters.floor);
        if std::mem::replace(&mut *lock(&channel.swept), stands) == stands && !store_skipped {
            return;
        }
        for session in channel.readers() {
            let mut state = session.lock();
            if state.link.is_none() {
                continue;
            }
            let durable = state.expiry_seconds > 0;
            let Some(reader) = state.readers.get_mut(&index) else {
                continue;
            };
            if channel.is_dead_letters || !reader.skip_to(woken_to) {
                reader.wake(counters.next, counters.floor);
                state.wake_writer();
            } else if durable && store_skipped {
                state.dirty_positions.insert(index);
                self.list_if_unlisted(&mut state, &session, self.now());
            }
        }
    }

    /// Values of a latest channel were removed: whoever read them ahead and has not sent them yet
    /// sends them no more.
    pub(crate) fn values_removed(&self, index: ChannelIndex) {
        for session in self.channel(index).readers() {
            let mut state = session.lock();
            if let Some(reader) = state.readers.get_mut(&index) {
                reader.read_again();
            }
            state.wake_writer();
        }
    }

    /// A resumed session's readers go on. What its latest channels held is sent again whole to
    /// subscriptions at QoS 0, which acknowledge nothing and so have no mark to go on from.
    pub(crate) fn resume_readers(&self, state: &mut State) {
        let indexes: Vec<ChannelIndex> = state.readers.keys().copied().collect();
        for index in indexes {
            let channel = self.channel(index);
            let counters = channel.store.counters(channel.id);
            let begin_again = match channel.kind {
                ChannelKind::Latest => state.begin_at_qos_0(index, counters.next),
                ChannelKind::Append | ChannelKind::Queue => Vec::new(),
            };
            let Some(reader) = state.readers.get_mut(&index) else {
                continue;
            };
            reader.wake(counters.next, counters.floor);
            if !begin_again.is_empty()
                && let Err(error) = reader.begin_pass(counters.next, false, begin_again)
            {
                tracing::warn!(channel = %channel.name, %error, "a resumed session is sent no current values");
            }
        }
    }

    /// A reader of `channel` for a session that has none: from `position` where one is stored.
    pub(crate) fn new_reader(&self, index: ChannelIndex, position: Option<u64>) -> Option<Reader> {
        let channel = self.channel(index);
        let counters = channel.store.counters(channel.id);
        match channel.kind {
            ChannelKind::Append => {
                let begin = position.unwrap_or(match channel.start {
                    super::Start::Floor => counters.floor,
                    super::Start::Tail => counters.next,
                });
                let mut reader = Reader::append(channel.id, begin);
                if position.is_none() {
                    // A stored position below the floor is not moved here: that its session has
                    // lost it is for the CONNECT that comes back to be told (invariant 1).
                    reader.wake(counters.next, counters.floor);
                }
                Some(reader)
            }
            ChannelKind::Latest => Some(Reader::latest(channel.id, counters)),
            ChannelKind::Queue => None,
        }
    }

    /// Append channels on which retention has passed the session's position, and how many records
    /// went (invariant 1).
    pub(crate) fn positions_below_floor(&self, state: &State) -> Vec<(ChannelIndex, u64)> {
        let below = |(index, reader): (&ChannelIndex, &Reader)| {
            let (id, position) = reader.stored_position()?;
            let floor = self.channel(*index).store.counters(id).floor;
            (position < floor).then(|| (*index, floor - position))
        };
        let sought = state.sought.iter().filter_map(|(index, position)| {
            let channel = self.channel(*index);
            let floor = channel.store.counters(channel.id).floor;
            (*position < floor).then(|| (*index, floor - position))
        });
        let read = state.readers.iter().filter_map(below);
        read.chain(sought).collect()
    }

    /// Writes the positions a session sought where it has no place yet.
    pub(crate) fn put_sought(&self, session: &Session, state: &State) -> Vec<Operation> {
        let sought = state.sought.iter();
        sought
            .map(|(index, offset)| session.put_position(self.channel(*index).id, *offset))
            .collect()
    }
}

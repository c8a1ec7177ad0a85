//! What sessions had on their way and were owed when the broker stopped, cleanly or not.
//!
//! | the window says | what is found | what becomes of it |
//! |---|---|---|
//! | a broadcast message | in the log | sent again under its identifier, DUP |
//! | | in the log no more: everybody had let go of it | QoS 1: over; QoS 2: PUBREL |
//! | a record of an append channel | at or above the stored position | sent again under its identifier, DUP |
//! | | below it: acknowledged since | QoS 1: over; QoS 2: PUBREL |
//! | nothing, at QoS 2 | | PUBREL |
//!
//! What lies in the broadcast log is then owed to every session whose subscriptions match it, from
//! where the session had got to; what nobody owes leaves the log.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::storage::{ChannelId, Message, Space, Store};

use super::Broker;
use super::broadcast_log::Logged;
use super::counters::bump;
use super::open::OpenError;
use super::publish::text;
use super::session::broadcast::{BroadcastDelivery, Offered};
use super::session::inflight::{Held, OnItsWay, Phase};
use super::session::window::{What, Window};
use super::session::{Session, State};
use super::share::decide_shared;
use super::time::Now;
use super::topic::ChannelIndex;

/// Windows as stored, by client identifier, and those of sessions that are there.
pub(super) struct Windows {
    stored: BTreeMap<Vec<u8>, Window>,
    restored: Vec<(Arc<Session>, Window)>,
}

/// An entry of the broadcast log.
pub(super) type Entry = (Arc<Message>, Arc<Logged>);

impl Windows {
    /// Reads all of them.
    pub fn read(store: &dyn Store) -> Result<Self, OpenError> {
        let mut stored = BTreeMap::new();
        for (client_id, value) in store.scan(Space::Windows, &[]) {
            let window = Window::decode(&value).map_err(|why| OpenError::Session {
                client_id: String::from_utf8_lossy(&client_id).into_owned(),
                why,
            })?;
            stored.insert(client_id.to_vec(), window);
        }
        Ok(Windows {
            stored,
            restored: Vec::new(),
        })
    }

    /// Up to where a client was served of an append channel, and what below that it has on its way.
    /// What lies between its stored position and there, and is not on its way, is over: to serve it
    /// again would be twice.
    pub fn of_channel(
        &self,
        client_id: &str,
        channel: ChannelId,
        position: u64,
    ) -> Option<(u64, Vec<u64>)> {
        let window = self.stored.get(client_id.as_bytes())?;
        let offset = |what: &What| match what {
            What::Append {
                channel: own,
                offset,
            } if *own == channel.0 && *offset >= position => Some(*offset),
            _ => None,
        };
        let served = window.served.iter().find(|(own, _)| *own == channel.0);
        let served_to = served.map_or(position, |(_, offset)| position.max(*offset));
        let entries = window.entries.iter();
        let on_their_way: Vec<u64> = entries.filter_map(|entry| offset(&entry.what)).collect();
        let differs = served_to > position || !on_their_way.is_empty();
        differs.then_some((served_to, on_their_way))
    }

    /// The session of a window is there, its readers in their places.
    pub fn restored(&mut self, session: &Arc<Session>, state: &mut State) {
        if let Some(window) = self.stored.remove(session.client_id.as_bytes()) {
            state.broadcast.set_taken_to(window.taken_to);
            state.inflight.set_last_id(window.last_id);
            self.restored.push((session.clone(), window));
        }
    }
}

impl Broker {
    /// Puts back what was on its way, then what is owed besides.
    pub(super) fn restore_broadcast(self: &Arc<Self>, windows: Windows, now: Now) {
        let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
        for window in windows.stored.values() {
            self.return_handed_out(window);
        }
        for (session, window) in windows.restored {
            let mut state = session.lock();
            if state.ended {
                self.return_handed_out(&window);
            } else {
                self.restore_window(&mut state, &window, &mut entries, now);
            }
        }
        for item in self.log.store.unresolved(self.log.channel) {
            let entry = entries.remove(&item.offset);
            if let Some(entry) = entry.or_else(|| self.log_entry(item.offset)) {
                self.owe(&entry.0, &entry.1, now);
                self.owe_to_groups(&entry, now);
            }
        }
        // A window without a session is of one that has ended.
        for client_id in windows.stored.into_keys() {
            let name: Arc<str> = String::from_utf8_lossy(&client_id).into();
            let delete = crate::storage::Operation::Delete {
                space: Space::Windows,
                key: client_id.into(),
            };
            self.submit_session_write(&name, delete.into());
        }
    }

    /// An entry of the log. One that cannot be read stays there, for whoever mends the disk.
    fn log_entry(&self, offset: u64) -> Option<Entry> {
        match self.log.store.job(self.log.channel, offset) {
            Ok(record) => {
                let message = Arc::new(record?.message.detached());
                Some((message, self.log.share(offset)))
            }
            Err(why) => {
                tracing::error!(offset, %why, "a message that is owed could not be read and is not delivered");
                None
            }
        }
    }

    fn restore_window(
        &self,
        state: &mut State,
        window: &Window,
        entries: &mut BTreeMap<u64, Entry>,
        now: Now,
    ) {
        for entry in &window.entries {
            let held = match &entry.what {
                What::Broadcast { offset } => {
                    self.find_entry(*offset, entries).map(|(message, logged)| {
                        let mut delivery = owed(message, logged, now);
                        delivery.qos = entry.qos;
                        self.decide_for(state, &mut delivery);
                        state.broadcast.restore_sent(&delivery);
                        Held::Broadcast(delivery)
                    })
                }
                What::Shared { offset, group } => {
                    let group = window.groups.get(*group).map_or("", String::as_str);
                    self.restore_handed_out(group, *offset, false);
                    self.restore_shared(state, *offset, group, entry.qos, entries, now)
                }
                What::Append { channel, offset } => self.held_record(state, *channel, *offset),
                What::Gone => None,
            };
            let (held, phase) = match held {
                Some(held) if entry.received => (held, Phase::Received),
                Some(held) => (held, Phase::Published),
                None if entry.qos == 2 => (Held::Gone, Phase::Received),
                None => continue,
            };
            state.inflight.restore(OnItsWay {
                id: entry.id,
                qos: entry.qos,
                phase,
                held,
            });
        }
    }

    /// What groups had handed to a session that has ended is theirs again, where its client cannot have
    /// it for good.
    fn return_handed_out(&self, window: &Window) {
        for entry in &window.entries {
            if let What::Shared { offset, group } = &entry.what
                && entry.qos == 1
                && let Some(group) = window.groups.get(*group)
            {
                self.restore_handed_out(group, *offset, true);
            }
        }
    }

    fn find_entry<'a>(
        &self,
        offset: u64,
        entries: &'a mut BTreeMap<u64, Entry>,
    ) -> Option<&'a Entry> {
        if !entries.contains_key(&offset)
            && let Some(found) = self.log_entry(offset)
        {
            entries.insert(offset, found);
        }
        entries.get(&offset)
    }

    fn restore_shared(
        &self,
        state: &mut State,
        offset: u64,
        group: &str,
        qos: u8,
        entries: &mut BTreeMap<u64, Entry>,
        now: Now,
    ) -> Option<Held> {
        let (message, logged) = self.find_entry(offset, entries)?;
        let mut delivery = owed(message, logged, now);
        delivery.group = self.groups.by_name(group);
        decide_shared(state, &mut delivery);
        delivery.qos = qos;
        state.broadcast.restore_sent(&delivery);
        Some(Held::Broadcast(delivery))
    }

    /// Identifiers and RETAIN of what is sent again are those of the subscriptions there are; its
    /// QoS is the one it went out with.
    fn decide_for(&self, state: &State, delivery: &mut BroadcastDelivery) {
        let topic = text(&delivery.message.topic);
        let mut retain = false;
        state.matching.visit(topic, |subscription| {
            if subscription.takes(topic.as_bytes()) {
                retain |= subscription.retain_as_published;
                delivery.identifiers.extend(subscription.identifier);
            }
        });
        delivery.retain = retain && delivery.message.retain;
    }

    fn held_record(&self, state: &State, channel: u32, offset: u64) -> Option<Held> {
        let (index, reader) = state
            .readers
            .iter()
            .find(|(_, reader)| reader.id() == ChannelId(channel))?;
        let era = reader.era();
        reader.waits_for(era, offset).then_some(Held::Append {
            channel: ChannelIndex(index.0),
            offset,
            era,
        })
    }

    /// Owes a message to everybody its subscriptions say.
    fn owe(&self, message: &Arc<Message>, logged: &Arc<Logged>, now: Now) {
        let mut sessions: BTreeMap<u64, Arc<Session>> = BTreeMap::new();
        {
            let index = self
                .subscriptions
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            index.visit(text(&message.topic), |key, subscriber| {
                let subscription = &subscriber.subscription;
                if subscriber.session.outlives()
                    && subscription.qos > 0
                    && logged.offset >= subscription.log_from
                    && super::fanout::is_for(subscriber, message)
                {
                    sessions.insert(*key, subscriber.session.clone());
                }
            });
        }
        for session in sessions.into_values() {
            let mut state = session.lock();
            if logged.offset < state.broadcast.taken_to() {
                continue;
            }
            let most = self.settings.session_queue_bytes;
            match state.broadcast.offer(owed(message, logged, now), most) {
                Offered::Dropped => bump(&self.counters.broadcast_given_up),
                Offered::Taken { given_up } => {
                    for _ in 0..given_up {
                        bump(&self.counters.broadcast_given_up);
                    }
                }
            }
        }
    }
}

/// A delivery of what was published before this process. How it goes out is decided when it does.
pub(super) fn owed(message: &Arc<Message>, logged: &Arc<Logged>, now: Now) -> BroadcastDelivery {
    let received_at = message.received_at.unwrap_or(now.unix_ms);
    BroadcastDelivery {
        message: message.clone(),
        logged: Some(logged.clone()),
        group: None,
        record: None,
        published: now.since_start,
        aged: now.unix_ms.saturating_sub(received_at) / 1000,
        qos: message.qos,
        retain: false,
        identifiers: Vec::new(),
    }
}

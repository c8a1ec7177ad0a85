//! A broker over its stores, with the sessions they kept.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use crate::storage::{Batch, ChannelId, ChannelKind, ReadLimit, Record, Space, Store};

use super::broadcast_log::BroadcastLog;
use super::channel::{Channel, ChannelSetup};
use super::connect::Registry;
use super::queue::{Clock, Epoch, QueueChannel, QueueSetup};
use super::restore::Windows;
use super::retained::{Retained, RetainedSetup};
use super::session::reader::Reader;
use super::session::record::{SessionRecord, SubscriptionRecord};
use super::session::{Form, Session, Subscription};
use super::settings::Settings;
use super::share::Groups;
use super::sweep::Schedule;
use super::time::Now;
use super::topic::{ChannelIndex, RouteConflict, Routes, SubscribeFilter, SubscriptionTrie};
use super::{Broker, Wake, lock, publish::text};

/// How many values are looked at in one read at the start.
const STRAYS_STEP: ReadLimit = ReadLimit {
    records: 1024,
    bytes: 1024 * 1024,
};

/// What a broker is opened with.
pub struct BrokerSetup {
    /// Bounds and periods.
    pub settings: Settings,
    /// The channels, as configured.
    pub channels: Vec<ChannelSetup>,
    /// Where sessions and positions are kept.
    pub session_store: Arc<dyn Store>,
    /// The broadcast log, in the same store: a queue's kind of channel.
    pub broadcast_log: ChannelId,
    /// Where retained broadcast values are kept.
    pub retained: RetainedSetup,
    /// The present moment, for what happens when a store has an outcome.
    pub clock: Clock,
    /// Called when [`Broker::next_deadline`] may have come nearer.
    pub timer: Wake,
}

/// Why a broker was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// Two channels cannot both be there.
    Routes(Vec<RouteConflict>),
    /// A channel is a queue and has no queue settings, or the other way round.
    QueueSettings {
        /// The channel.
        channel: String,
    },
    /// A stored session could not be read. It is not started as a blank one.
    Session {
        /// The client identifier.
        client_id: String,
        /// What is wrong with it.
        why: String,
    },
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Routes(conflicts) => {
                for (index, conflict) in conflicts.iter().enumerate() {
                    let lead = if index > 0 { "; " } else { "" };
                    write!(f, "{lead}{conflict}")?;
                }
                Ok(())
            }
            OpenError::QueueSettings { channel } => write!(
                f,
                "the channel `{channel}` needs queue settings if and only if it is a queue"
            ),
            OpenError::Session { client_id, why } => {
                write!(f, "the stored session of client `{client_id}`: {why}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl Broker {
    /// Opens a broker: queues offer what is unresolved, and the sessions that were stored are away.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed.
    pub fn open(setup: BrokerSetup, now: Now) -> Result<Arc<Self>, OpenError> {
        let sources: Vec<_> = setup.channels.iter().map(|c| c.source.clone()).collect();
        let routes = Routes::compile(&sources).map_err(OpenError::Routes)?;
        let schedule = Schedule::new(setup.timer);
        let channels = open_channels(&setup.channels, &routes, &schedule, &setup.clock)?;
        let mut stores: Vec<Arc<dyn Store>> = vec![setup.session_store.clone()];
        for channel in &channels {
            if !stores.iter().any(|held| Arc::ptr_eq(held, &channel.store)) {
                stores.push(channel.store.clone());
            }
        }
        let retained = &setup.retained.store;
        if !stores.iter().any(|held| Arc::ptr_eq(held, retained)) {
            stores.push(retained.clone());
        }
        let share_expires_after = setup.settings.share_expires_after;
        let broker = Arc::new(Broker {
            settings: setup.settings,
            routes,
            channels,
            stores,
            log: BroadcastLog::new(setup.session_store.clone(), setup.broadcast_log),
            retained: Retained::new(setup.retained),
            groups: Groups::new(share_expires_after),
            session_store: setup.session_store,
            counters: super::counters::Counters::default(),
            registry: Mutex::new(Registry::default()),
            subscriptions: RwLock::new(SubscriptionTrie::new()),
            partitions: Mutex::default(),
            committed: Mutex::default(),
            schedule,
            stopping: AtomicBool::new(false),
            clock: setup.clock,
        });
        broker.rehome_retained();
        broker.restore_sessions(now)?;
        broker.restore_holds(now);
        broker.restore_wills(now)?;
        for index in 0..broker.channels.len() {
            broker.report_strays(ChannelIndex(index));
        }
        Ok(broker)
    }

    /// Values stay where they were set when a filter changes; those that no filter of their latest
    /// channel matches any more are counted, so that the operator knows of them.
    pub(super) fn report_strays(&self, index: ChannelIndex) -> u64 {
        let (channel, route) = (self.channel(index), self.routes.channel(index));
        let (ChannelKind::Latest, Some(route)) = (channel.kind, route) else {
            return 0;
        };
        let (mut at, mut strays) = (0, 0);
        loop {
            let read = match channel.store.changes_from(channel.id, at, STRAYS_STEP) {
                Ok(read) => read,
                Err(why) => {
                    // Whoever reads it is told; the other channels are served.
                    tracing::error!(channel = %channel.name, %why, "the values could not be gone through");
                    break;
                }
            };
            let Some(last) = read.records.last() else {
                break;
            };
            at = last.offset + 1;
            let is_stray = |record: &&Record| {
                let topic = text(&record.message.topic);
                !route.filters.iter().any(|filter| filter.matches(topic))
            };
            strays += read.records.iter().filter(is_stray).count() as u64;
        }
        if strays > 0 {
            tracing::warn!(
                channel = %channel.name,
                strays,
                "values are kept whose topics the channel's filter matches no more; publishes to those topics go elsewhere now"
            );
        }
        strays
    }

    /// Every session the store kept is away, its subscriptions in force.
    fn restore_sessions(self: &Arc<Self>, now: Now) -> Result<(), OpenError> {
        let mut positions = self.stored_positions();
        let mut windows = Windows::read(&*self.session_store)?;
        for (client_id, value) in self.session_store.scan(Space::Sessions, &[]) {
            let failed = |why: String| OpenError::Session {
                client_id: String::from_utf8_lossy(&client_id).into_owned(),
                why,
            };
            let name = std::str::from_utf8(&client_id)
                .map_err(|_| failed("its client identifier is not UTF-8".into()))?;
            let record = SessionRecord::decode(&value).map_err(failed)?;
            let positions = positions.remove(&client_id[..]).unwrap_or_default();
            self.restore_session(name, &record, positions, &mut windows, now);
        }
        self.restore_ledgers()?;
        self.restore_broadcast(windows, now);
        // Positions without a session are of a client whose session has ended.
        for (client_id, positions) in positions {
            let session = Session::new(0, String::from_utf8_lossy(&client_id).into(), 0);
            let operations = positions
                .keys()
                .map(|channel| session.delete_position(*channel))
                .collect();
            self.submit_session_write(&session.client_id, Batch { operations });
        }
        Ok(())
    }

    /// Positions by client identifier and channel.
    fn stored_positions(&self) -> BTreeMap<Vec<u8>, BTreeMap<ChannelId, u64>> {
        let mut positions: BTreeMap<Vec<u8>, BTreeMap<ChannelId, u64>> = BTreeMap::new();
        for (key, value) in self.session_store.scan(Space::Positions, &[]) {
            let Some((channel, client_id)) = key.split_first_chunk::<4>() else {
                continue;
            };
            let Ok(position) = <[u8; 8]>::try_from(&value[..]) else {
                continue;
            };
            positions.entry(client_id.to_vec()).or_default().insert(
                ChannelId(u32::from_be_bytes(*channel)),
                u64::from_le_bytes(position),
            );
        }
        positions
    }

    fn restore_session(
        self: &Arc<Self>,
        client_id: &str,
        record: &SessionRecord,
        positions: BTreeMap<ChannelId, u64>,
        windows: &mut Windows,
        now: Now,
    ) {
        let key = lock(&self.registry).number();
        let session = Session::new(key, client_id.into(), record.stamp);
        session.set_outlives(record.expiry_seconds > 0);
        let mut refused = None;
        {
            let mut state = session.lock();
            state.stored = true;
            state.stored_positions = positions.keys().copied().collect();
            state.expiry_seconds = record.expiry_seconds;
            // Without a moment of leaving, nobody wrote one: it counts from this start.
            let away_since = record.away_since_unix_ms.unwrap_or(now.unix_ms);
            state.away_since_unix_ms = Some(away_since);
            let away = Duration::from_millis(now.unix_ms.saturating_sub(away_since));
            let expiry = Duration::from_secs(u64::from(record.expiry_seconds));
            state.expires_at = Some(now.since_start + expiry.saturating_sub(away));
            for stored in &record.subscriptions {
                match self.restored(stored) {
                    Ok(subscription) => {
                        self.restore_subscription(
                            &mut state,
                            &session,
                            &stored.filter,
                            Arc::new(subscription),
                        );
                    }
                    Err(why) => refused = Some((stored.filter.clone(), why)),
                }
            }
            self.restore_readers(&mut state, &session, &positions, windows);
            windows.restored(&session, &mut state);
            if refused.is_some() {
                state.expires_at = Some(now.since_start);
            }
            let at = state.expires_at.unwrap_or(now.since_start);
            self.schedule.session_at(&session, &mut state, at);
        }
        if let Some((filter, why)) = refused {
            tracing::warn!(
                client = client_id,
                filter,
                why,
                "a stored subscription is refused now; the session ends"
            );
        }
        lock(&self.registry).insert(session.clone());
        // What expired while the broker was stopped ends before anybody connects.
        self.session_due(&session, now);
    }

    /// A stored subscription as it would be granted now.
    fn restored(&self, stored: &SubscriptionRecord) -> Result<Subscription, String> {
        let parsed = SubscribeFilter::parse(&stored.filter, self.settings.topics)
            .map_err(|refusal| refusal.to_string())?;
        let (form, reaches) = match parsed {
            SubscribeFilter::Plain(filter) => {
                let reach = self.routes.reach(&filter);
                if reach.inside_queue.is_some() {
                    return Err("it lies inside a queue".into());
                }
                (Form::Plain(filter), reach.channels)
            }
            SubscribeFilter::Queue { queue } => {
                let index = self
                    .routes
                    .by_name(&queue)
                    .filter(|index| self.channel(*index).kind == ChannelKind::Queue)
                    .ok_or("there is no such queue")?;
                (Form::Queue(index), Vec::new())
            }
            SubscribeFilter::SeekReply { channel } => {
                self.append_channel(&channel)
                    .ok_or("there is no such append channel")?;
                (Form::SeekReplies, Vec::new())
            }
            SubscribeFilter::Shared { filter, .. } => (Form::Shared(filter), Vec::new()),
        };
        let from = stored
            .from
            .iter()
            .filter_map(|(id, offset)| {
                let index = reaches
                    .iter()
                    .find(|index| self.channel_id(**index).0 == *id)?;
                Some((*index, *offset))
            })
            .collect();
        let partition = match &stored.partition {
            None => None,
            Some(record) => {
                let partition = record.read().ok_or("its partition is none")?;
                self.note_partition(&stored.filter, partition.of());
                Some(Arc::new(partition))
            }
        };
        Ok(Subscription {
            form,
            qos: stored.qos,
            no_local: stored.no_local,
            retain_as_published: stored.retain_as_published,
            identifier: stored.identifier,
            reaches,
            from,
            log_from: stored.log_from,
            partition,
        })
    }

    /// Readers at their stored positions. A latest channel is read from its current state again:
    /// where the session was is not kept across a restart.
    fn restore_readers(
        &self,
        state: &mut super::session::State,
        session: &Arc<Session>,
        positions: &BTreeMap<ChannelId, u64>,
        windows: &Windows,
    ) {
        let mut reached: BTreeMap<ChannelIndex, Vec<Arc<Subscription>>> = BTreeMap::new();
        for subscription in state.subscriptions.values() {
            for index in &subscription.reaches {
                reached
                    .entry(*index)
                    .or_default()
                    .push(subscription.clone());
            }
        }
        for (index, subscriptions) in reached {
            let channel = self.channel(index);
            let position = positions.get(&channel.id).copied();
            let window = position
                .and_then(|position| windows.of_channel(&session.client_id, channel.id, position));
            let reader = match window {
                Some((served_to, on_their_way)) => {
                    // An unsynced tail may have gone with the power, its offsets never given again.
                    let served_to = served_to.min(channel.store.counters(channel.id).next);
                    Some(Reader::resume(channel.id, served_to, &on_their_way))
                }
                None => self.new_reader(index, position),
            };
            let Some(mut reader) = reader else { continue };
            if channel.kind == ChannelKind::Latest {
                let head = channel.store.counters(channel.id).next;
                // Those at QoS 0 are sent everything at every resume, this one included.
                let subscriptions = subscriptions
                    .into_iter()
                    .filter(|subscription| subscription.qos > 0)
                    .collect();
                // The first pass of a reader always has room.
                let _ = reader.begin_pass(head, false, subscriptions);
            }
            state.readers.insert(index, reader);
            channel.add_reader(session);
        }
        // Where it has no place yet, its first read starts at the position it sought.
        for (position, channel) in self.channels.iter().enumerate() {
            let index = ChannelIndex(position);
            let stored = positions.get(&channel.id);
            if channel.kind == ChannelKind::Append
                && !state.readers.contains_key(&index)
                && let Some(offset) = stored
            {
                state.sought.insert(index, *offset);
            }
        }
    }
}

fn open_channels(
    setups: &[ChannelSetup],
    routes: &Routes,
    schedule: &Schedule,
    clock: &Clock,
) -> Result<Vec<Channel>, OpenError> {
    let mut channels = Vec::with_capacity(routes.channels().len());
    for (index, setup) in setups.iter().enumerate() {
        let is_queue = setup.source.kind == ChannelKind::Queue;
        if is_queue != setup.queue.is_some() {
            return Err(OpenError::QueueSettings {
                channel: setup.source.name.clone(),
            });
        }
        let parts = setup
            .queue
            .as_ref()
            // A queue's filter has no alternatives, so it stands for one plain filter.
            .zip(setup.source.filter.plain().first());
        let queue = parts.map(|(parts, filter)| {
            QueueChannel::open(QueueSetup {
                name: setup.source.name.as_str().into(),
                filter: filter.clone(),
                channel: setup.id,
                dead_letters: parts.dead_letters,
                settings: parts.settings,
                epoch: Epoch::random(),
                store: setup.store.clone(),
                clock: clock.clone(),
                alarm: schedule.alarm(ChannelIndex(index)),
            })
        });
        channels.push(Channel::new(setup, queue));
    }
    // The routes put the dead-letter channels last, in the order of their queues.
    for derived in &routes.channels()[setups.len()..] {
        let setup = derived
            .dead_letters_of
            .and_then(|index| setups.get(index.0));
        let parts = setup.and_then(|setup| Some((setup, setup.queue.as_ref()?)));
        let Some((setup, parts)) = parts else {
            return Err(OpenError::QueueSettings {
                channel: derived.name.clone(),
            });
        };
        channels.push(Channel::dead_letters(derived.name.clone(), setup, parts));
    }
    Ok(channels)
}

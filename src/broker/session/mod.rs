//! A session: what the broker keeps for one client identifier, connected or away.
//!
//! All of it is behind one lock, taken for moments and never across a store read, a socket or
//! another session. Publishers push a small entry or a mark; what is sent is pulled by the
//! connection's writer when the socket and the client's window have room.

pub(crate) mod acks;
pub(crate) mod broadcast;
pub(crate) mod inflight;
pub(crate) mod matching;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod retained_pass;
pub(crate) mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;

use crate::storage::{ChannelId, Operation, Record, Space};

use self::acks::AckQueue;
use self::broadcast::BroadcastQueue;
use self::inflight::{Held, InFlight, OnItsWay, Phase};
use self::matching::Matching;
use self::reader::Reader;
use self::record::{SessionRecord, SubscriptionRecord};
use self::retained_pass::RetainedPasses;
use self::window::{What, Window, WindowEntry};
use super::connection::LinkHandle;
use super::exactly_once::Hold;
use super::lock;
use super::packet::{Connect, Outgoing, Protocol};
use super::queue::JobOffer;
use super::reason::{Reason, Refusal};
use super::request::{MAX_REQUESTS, Request};
use super::share::Group;
use super::topic::{ChannelIndex, Partition, SubscriptionTrie, TopicFilter};
use super::will::ArmedWill;

/// Control replies waiting for the writer, in bytes as estimated by [`control_cost`]. Past this
/// the socket is not read (invariant 13).
pub(crate) const MAX_CONTROL_BYTES: usize = 16 * 1024;

/// A value of the store may have this many bytes.
const MAX_RECORD_BYTES: usize = 1024 * 1024;

/// One client identifier's session.
pub(crate) struct Session {
    /// Never reused in this process.
    pub key: u64,
    pub client_id: Arc<str>,
    /// The same, as what the client publishes names it.
    pub publisher: Bytes,
    /// Part of the keys of what the store holds back for it: never the same for two sessions of one
    /// client, so that what an ended one left is not taken for its successor's.
    pub stamp: u64,
    /// Whether it outlives its connection, for those who ask without its lock.
    outlives: AtomicBool,
    state: Mutex<State>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} {:?})", self.key, self.client_id)
    }
}

/// Everything behind the lock.
pub(crate) struct State {
    /// It has ended: nothing of it is served, and nothing may be stored for it any more.
    pub ended: bool,
    /// A CONNECT of this client has its turn and has not been answered. Whatever would be stored
    /// for the session meanwhile waits for how that comes out.
    pub claimed: bool,
    /// The store holds, or has been asked to hold, a record of it.
    pub stored: bool,
    /// Session Expiry Interval in force, seconds; 0 ends with the connection.
    pub expiry_seconds: u32,
    /// When the last connection ended, Unix milliseconds.
    pub away_since_unix_ms: Option<u64>,
    /// When an away session ends.
    pub expires_at: Option<Duration>,
    /// Its entry in the schedule.
    pub scheduled: Option<Duration>,
    /// The connection that owns it; `None` while away.
    pub link: Option<Link>,
    pub subscriptions: BTreeMap<Arc<str>, Arc<Subscription>>,
    /// Those an UNSUBSCRIBE ends once the store has it. They are in force until then, and no record
    /// written meanwhile names them.
    pub leaving: BTreeSet<Arc<str>>,
    /// What they cost in memory, by [`Subscription::cost`].
    pub subscription_bytes: usize,
    /// The plain ones of them again, to be asked which match a topic.
    pub matching: Matching,
    pub readers: BTreeMap<ChannelIndex, Reader>,
    /// Whose turn it is among the readers.
    pub last_reader: ChannelIndex,
    /// Queues this connection has worked on, which are told when it ends: one it has left may
    /// still have lent it a job.
    pub queues: BTreeSet<ChannelIndex>,
    /// Jobs offered and not yet sent.
    pub offers: VecDeque<(ChannelIndex, JobOffer)>,
    /// Places in the window set aside for offers on their way.
    pub reserved: usize,
    /// Queues that found no room in the window and are told when there is some.
    pub refused_queues: BTreeSet<ChannelIndex>,
    pub inflight: InFlight,
    /// The record read for the next delivery to be sent again; `None` inside where it is gone.
    pub resend_read: Option<(u16, Option<Record>)>,
    pub broadcast: BroadcastQueue,
    /// Retained values its subscriptions asked for.
    pub retained: RetainedPasses,
    /// QoS 2 publishes of its client that were received and not released, by packet identifier.
    pub holds: BTreeMap<u16, Hold>,
    /// Packets whose identifiers the store has to have first; they go with its next write.
    pub unstored: Vec<Outgoing>,
    /// Messages of groups that went out and whose window is still to be written.
    pub shared_unstored: Vec<(Arc<Group>, u64)>,
    /// Groups that found no room here and are asked again when there is some.
    pub refused_groups: Vec<Arc<Group>>,
    /// Packets whose identifiers are stored, waiting for the writer.
    pub stored_out: VecDeque<Outgoing>,
    /// A write of the window is on its way to the store.
    pub window_writing: bool,
    /// A write of the window failed: nothing goes out, again either, before one has not.
    pub window_lost: bool,
    /// The window changed since it was last handed to the store.
    pub window_dirty: bool,
    pub will: Option<ArmedWill>,
    /// When a Will that waits out its delay is published: on the clock that never steps, and in Unix
    /// milliseconds.
    pub will_due: Option<(Duration, u64)>,
    /// Append channels whose position moved since it was last handed to the store.
    pub dirty_positions: BTreeSet<ChannelIndex>,
    /// Positions sought in append channels the session has no place in yet: its first read starts
    /// there. At most one for each channel.
    pub sought: BTreeMap<ChannelIndex, u64>,
    /// A seek is on its way to the store.
    pub seeking: bool,
    /// Channels the store may hold a position of this session for.
    pub stored_positions: BTreeSet<ChannelId>,
    /// It is on the list of sessions whose positions are to be stored.
    pub position_listed: bool,
}

/// What the subscriptions of one client may cost in memory, bytes (invariant 13). Ten thousand
/// filters of eight levels fit.
pub(crate) const MAX_SUBSCRIPTION_BYTES: usize = 48 * 1024 * 1024;

/// What a slice of a partition costs: its number, and its digits in the session's record.
const SLICE_BYTES: usize = 16;

/// A subscription as granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub form: Form,
    /// Granted QoS.
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub identifier: Option<u32>,
    /// The append and latest channels the filter reaches.
    pub reaches: Vec<ChannelIndex>,
    /// The first offset of a channel that is this subscription's to see, where it is not the
    /// reader's own place.
    pub from: BTreeMap<ChannelIndex, u64>,
    /// The first offset of the broadcast log that is this subscription's to see.
    pub log_from: u64,
    /// Its share of the topics; all of them where there is none.
    pub partition: Option<Arc<Partition>>,
}

/// The forms of subscription that are granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Append and latest channels and broadcast.
    Plain(TopicFilter),
    /// `$saguin/queue/<queue>`.
    Queue(ChannelIndex),
    /// `$share/<group>/<filter>`.
    Shared(TopicFilter),
    /// `$saguin/consumer/<channel>/seek/reply`. Replies go to who asked, subscribed or not.
    SeekReplies,
}

impl Subscription {
    /// Whether a topic that its filter matches is in its share.
    pub fn takes(&self, topic: &[u8]) -> bool {
        let partition = self.partition.as_ref();
        partition.is_none_or(|partition| partition.has(topic))
    }

    /// [`cost`](Self::cost) of this one.
    pub fn own_cost(&self, filter: &str) -> usize {
        let slices = self.partition.as_ref().map_or(0, |own| own.slices().len());
        Subscription::cost(filter, self.reaches.len(), slices)
    }

    /// What a subscription to `filter` that reaches so many channels costs in memory at most, bytes:
    /// in the session's tree, in the broker's, and by name. Levels it shares with another count as
    /// if it did not; its partition, which the filters of one SUBSCRIBE share, as if it were its own.
    pub fn cost(filter: &str, reaches: usize, slices: usize) -> usize {
        type Own = SubscriptionTrie<(), Arc<Subscription>>;
        type All = SubscriptionTrie<u64, super::fanout::Subscriber>;
        let levels = filter.split('/').count();
        let places = reaches * (size_of::<ChannelIndex>() + 2 * size_of::<(ChannelIndex, u64)>());
        let entry = 2 * size_of::<(Arc<str>, Arc<Subscription>)>() + 32;
        // Its text: the name of the subscription, its form, and the levels of two trees.
        levels * (Own::LEVEL_BYTES + All::LEVEL_BYTES)
            + Own::VALUE_BYTES
            + All::VALUE_BYTES
            + 4 * filter.len()
            + size_of::<Subscription>()
            + places
            + entry
            + slices * SLICE_BYTES
    }
}

/// The connection that owns a session.
pub(crate) struct Link {
    /// Its number; also its name among the workers of queues.
    pub number: u64,
    pub handle: Arc<LinkHandle>,
    pub protocol: Protocol,
    pub receive_maximum: u16,
    /// Maximum Packet Size of the client, bytes.
    pub maximum_packet_size: u64,
    pub problem_information: bool,
    pub acks: AckQueue,
    pub control: VecDeque<Outgoing>,
    pub control_bytes: usize,
    /// What was asked and is carried out among the writer's reads.
    pub requests: VecDeque<Request>,
    /// SUBSCRIBEs whose record is on its way to the store: nothing they earn goes out before
    /// their SUBACK.
    pub pending_grants: usize,
}

impl Link {
    pub fn new(number: u64, handle: Arc<LinkHandle>, connect: &Connect) -> Self {
        Link {
            number,
            handle,
            protocol: connect.protocol,
            receive_maximum: connect.receive_maximum.max(1),
            maximum_packet_size: connect.maximum_packet_size.map_or(u64::MAX, u64::from),
            problem_information: connect.request_problem_information,
            acks: AckQueue::default(),
            control: VecDeque::new(),
            control_bytes: 0,
            requests: VecDeque::new(),
            pending_grants: 0,
        }
    }

    /// Queues a control reply.
    pub fn reply(&mut self, reply: Outgoing) {
        self.control_bytes += control_cost(&reply);
        self.control.push_back(reply);
        self.handle.wake_writer();
    }

    /// Whether no more control replies are taken for now.
    pub fn control_is_full(&self) -> bool {
        self.control_bytes >= MAX_CONTROL_BYTES
    }

    pub fn take_reply(&mut self) -> Option<Outgoing> {
        let reply = self.control.pop_front()?;
        if self.control.is_empty() {
            // Nine of ten connections are idle, and none of those holds room for replies.
            self.control = VecDeque::new();
        }
        self.control_bytes -= control_cost(&reply);
        Some(reply)
    }

    /// Whether one more packet may be read: its answer has a place (invariant 13).
    pub fn has_room(&self) -> bool {
        self.acks.has_room() && !self.control_is_full() && self.requests.len() < MAX_REQUESTS
    }

    /// The sentence of a refusal, if this client wants one.
    pub fn problem_text(&self, text: &str) -> Option<String> {
        (self.protocol == Protocol::V5 && self.problem_information).then(|| text.to_owned())
    }
}

/// What a waiting control reply costs, bytes.
fn control_cost(reply: &Outgoing) -> usize {
    let content = match reply {
        Outgoing::Suback { reasons, text, .. } => {
            2 * reasons.len() + text.as_ref().map_or(0, String::len)
        }
        Outgoing::Unsuback {
            reasons, unread, ..
        } => reasons.len() + unread.iter().map(|key| 32 + key.len()).sum::<usize>(),
        Outgoing::Puback { text, .. } | Outgoing::Pubrec { text, .. } => {
            text.as_ref().map_or(0, String::len)
        }
        Outgoing::Publish(publish) => {
            publish.topic.len() + publish.payload.len() + publish.properties.len()
        }
        Outgoing::Pubrel { .. }
        | Outgoing::Pubcomp { .. }
        | Outgoing::Pingresp
        | Outgoing::Disconnect(_) => 0,
    };
    size_of::<Outgoing>() + content
}

impl Session {
    /// A session that holds nothing yet and that nobody knows of.
    pub fn new(key: u64, client_id: Arc<str>, stamp: u64) -> Arc<Self> {
        Arc::new(Session {
            key,
            stamp,
            outlives: AtomicBool::new(false),
            publisher: Bytes::copy_from_slice(client_id.as_bytes()),
            client_id,
            state: Mutex::new(State {
                ended: false,
                claimed: false,
                stored: false,
                expiry_seconds: 0,
                away_since_unix_ms: None,
                expires_at: None,
                scheduled: None,
                link: None,
                subscriptions: BTreeMap::new(),
                leaving: BTreeSet::new(),
                subscription_bytes: 0,
                matching: Matching::default(),
                readers: BTreeMap::new(),
                last_reader: ChannelIndex(0),
                queues: BTreeSet::new(),
                offers: VecDeque::new(),
                reserved: 0,
                refused_queues: BTreeSet::new(),
                inflight: InFlight::default(),
                resend_read: None,
                broadcast: BroadcastQueue::default(),
                retained: RetainedPasses::default(),
                holds: BTreeMap::new(),
                unstored: Vec::new(),
                shared_unstored: Vec::new(),
                refused_groups: Vec::new(),
                stored_out: VecDeque::new(),
                window_writing: false,
                window_lost: false,
                window_dirty: false,
                will: None,
                will_due: None,
                dirty_positions: BTreeSet::new(),
                sought: BTreeMap::new(),
                seeking: false,
                stored_positions: BTreeSet::new(),
                position_listed: false,
            }),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether it outlives its connection. May be behind by a moment.
    pub fn outlives(&self) -> bool {
        self.outlives.load(Relaxed)
    }

    /// How long it is kept has changed.
    pub fn set_outlives(&self, outlives: bool) {
        self.outlives.store(outlives, Relaxed);
    }

    /// The key of its record.
    pub fn store_key(&self) -> Bytes {
        Bytes::copy_from_slice(self.client_id.as_bytes())
    }

    /// Writes its record.
    pub fn put_record(
        &self,
        state: &State,
        expiry_seconds: u32,
        away_since_unix_ms: Option<u64>,
    ) -> Result<Operation, Refusal> {
        let subscriptions = state
            .subscriptions
            .iter()
            .filter(|(filter, _)| !state.leaving.contains(*filter))
            .map(|(filter, subscription)| SubscriptionRecord {
                filter: filter.to_string(),
                qos: subscription.qos,
                no_local: subscription.no_local,
                retain_as_published: subscription.retain_as_published,
                identifier: subscription.identifier,
                log_from: subscription.log_from,
                from: subscription
                    .from
                    .iter()
                    .filter_map(|(index, offset)| {
                        let reader = state.readers.get(index)?;
                        Some((reader.id().0, *offset))
                    })
                    .collect(),
                partition: subscription.partition.as_deref().map(Into::into),
            })
            .collect();
        let mut record = SessionRecord::new(expiry_seconds, away_since_unix_ms, subscriptions);
        record.stamp = self.stamp;
        let value = record
            .encode()
            .map_err(|text| Refusal::new(Reason::ImplementationSpecific, text))?;
        if value.len() > MAX_RECORD_BYTES {
            return Err(Refusal::new(
                Reason::QuotaExceeded,
                format!(
                    "the session's subscriptions take {} bytes and a session may hold {MAX_RECORD_BYTES}",
                    value.len()
                ),
            ));
        }
        Ok(Operation::Put {
            space: Space::Sessions,
            key: self.store_key(),
            value,
        })
    }

    pub fn put_position(&self, channel: ChannelId, position: u64) -> Operation {
        Operation::Put {
            space: Space::Positions,
            key: Space::position_key(channel, self.client_id.as_bytes()),
            value: Bytes::copy_from_slice(&position.to_le_bytes()),
        }
    }

    pub fn delete_position(&self, channel: ChannelId) -> Operation {
        Operation::Delete {
            space: Space::Positions,
            key: Space::position_key(channel, self.client_id.as_bytes()),
        }
    }

    /// Writes what it has on its way.
    pub fn put_window(&self, state: &mut State) -> Operation {
        state.window_dirty = false;
        Operation::Put {
            space: Space::Windows,
            key: self.store_key(),
            value: state.window_record().encode(),
        }
    }

    fn delete_window(&self) -> Operation {
        Operation::Delete {
            space: Space::Windows,
            key: self.store_key(),
        }
    }

    /// Writes a Will that waits out its delay.
    pub fn put_waiting_will(&self, state: &State) -> Option<Operation> {
        let (_, due_unix_ms) = state.will_due?;
        state.will.as_ref()?.put(self.stamp, due_unix_ms)
    }

    /// Writes the positions that moved since they were last written, and the window if it did.
    pub fn put_moved_positions(&self, state: &mut State) -> Vec<Operation> {
        let dirty = std::mem::take(&mut state.dirty_positions);
        let mut operations = Vec::with_capacity(dirty.len() + 1);
        if state.window_dirty {
            operations.push(self.put_window(state));
        }
        for channel in dirty {
            if let Some((id, position)) = state
                .readers
                .get(&channel)
                .and_then(Reader::stored_position)
            {
                state.stored_positions.insert(id);
                operations.push(self.put_position(id, position));
            }
        }
        operations
    }

    /// Deletes all the store holds of it: its record and its positions, which end together.
    pub fn delete_everything(&self, state: &State) -> Vec<Operation> {
        if !state.stored {
            return Vec::new();
        }
        let mut operations = vec![
            Operation::Delete {
                space: Space::Sessions,
                key: self.store_key(),
            },
            self.delete_window(),
        ];
        for channel in &state.stored_positions {
            operations.push(self.delete_position(*channel));
        }
        operations
    }

    /// Writes all of it again as it is, after a CONNECT that had it changed came to nothing.
    pub fn restore_everything(&self, state: &mut State, sought: Vec<Operation>) -> Vec<Operation> {
        let nothing = Operation::Delete {
            space: Space::Sessions,
            key: self.store_key(),
        };
        if state.ended || !state.stored {
            let positions = state.stored_positions.iter();
            return [nothing, self.delete_window()]
                .into_iter()
                .chain(positions.map(|channel| self.delete_position(*channel)))
                .collect();
        }
        let mut operations = vec![self.put_window(state)];
        operations.extend(self.put_waiting_will(state));
        // It was stored before, so it can be written down.
        operations.extend(self.put_record(state, state.expiry_seconds, state.away_since_unix_ms));
        for reader in state.readers.values() {
            if let Some((channel, position)) = reader.stored_position() {
                operations.push(self.put_position(channel, position));
            }
        }
        operations.extend(sought);
        operations
    }
}

impl State {
    /// What the session has on its way of what is told apart across a restart.
    fn window_record(&self) -> Window {
        let mut groups: Vec<String> = Vec::new();
        let mut place = |name: &str| match groups.iter().position(|own| own == name) {
            Some(place) => place,
            None => {
                groups.push(name.to_owned());
                groups.len() - 1
            }
        };
        let entry = |on_its_way: OnItsWay| {
            let qos_2 = on_its_way.qos == 2;
            let what = match &on_its_way.held {
                Held::Broadcast(delivery) => match &delivery.logged {
                    Some(logged) => match &delivery.group {
                        Some(group) => What::Shared {
                            offset: logged.offset,
                            group: place(&group.name),
                        },
                        None => What::Broadcast {
                            offset: logged.offset,
                        },
                    },
                    None if qos_2 => What::Gone,
                    None => return None,
                },
                // Those at QoS 1 as well: the reader goes on behind the highest of them.
                Held::Append {
                    channel,
                    offset,
                    era,
                } => match self.readers.get(channel) {
                    Some(reader) if reader.waits_for(*era, *offset) => What::Append {
                        channel: reader.id().0,
                        offset: *offset,
                    },
                    // Its reader has gone elsewhere since.
                    _ if qos_2 => What::Gone,
                    _ => return None,
                },
                // All that is current goes out again after a restart.
                Held::Latest { .. } | Held::Gone if qos_2 => What::Gone,
                _ => return None,
            };
            Some(WindowEntry {
                id: on_its_way.id,
                qos: on_its_way.qos,
                received: on_its_way.phase == Phase::Received,
                what,
            })
        };
        let on_their_way = self.inflight.on_their_way().into_iter();
        let entries: Vec<WindowEntry> = on_their_way.filter_map(entry).collect();
        let served = self.readers.values().filter_map(Reader::served_to);
        Window::new(
            self.broadcast.taken_to(),
            self.inflight.last_id(),
            served.map(|(id, offset)| (id.0, offset)).collect(),
            groups,
            entries,
        )
    }

    /// Whether a restart has anything to know of what is on its way.
    pub fn has_window(&self) -> bool {
        self.inflight.holds_any() || self.broadcast.taken_to() > 0
    }

    /// Whether something waits for the store to have its identifier, or for the writer since.
    pub fn waits_for_store(&self) -> bool {
        self.window_writing || !self.unstored.is_empty() || !self.stored_out.is_empty()
    }

    /// The link, if connection `number` still owns the session (invariant 17).
    pub fn owned_by(&mut self, number: u64) -> Option<&mut Link> {
        self.link.as_mut().filter(|link| link.number == number)
    }

    /// A new connection owns the session.
    pub fn attach(&mut self, link: Link, expiry_seconds: u32, will: Option<ArmedWill>) {
        self.link = Some(link);
        self.expiry_seconds = expiry_seconds;
        self.away_since_unix_ms = None;
        self.expires_at = None;
        self.will = will;
        self.will_due = None;
    }

    /// Puts a subscription beneath its filter.
    pub fn put_subscription(&mut self, filter: Arc<str>, subscription: Arc<Subscription>) {
        self.take_subscription(&filter);
        self.subscription_bytes += subscription.own_cost(&filter);
        self.subscriptions.insert(filter, subscription);
    }

    /// Takes a subscription out.
    pub fn take_subscription(&mut self, filter: &str) -> Option<Arc<Subscription>> {
        let taken = self.subscriptions.remove(filter)?;
        self.subscription_bytes -= taken.own_cost(filter);
        Some(taken)
    }

    /// Begins again with the subscriptions at QoS 0 to a latest channel whose next offset is `next`,
    /// and returns them: older changes are not theirs, as they are sent what is current.
    pub fn begin_at_qos_0(&mut self, index: ChannelIndex, next: u64) -> Vec<Arc<Subscription>> {
        let begun: Vec<(Arc<str>, Arc<Subscription>)> = self
            .subscriptions
            .iter()
            .filter(|(_, held)| held.qos == 0 && held.reaches.contains(&index))
            .map(|(filter, held)| {
                let mut again = Subscription::clone(held);
                again.from.insert(index, next);
                (filter.clone(), Arc::new(again))
            })
            .collect();
        for (filter, subscription) in &begun {
            if let Form::Plain(plain) = &subscription.form {
                self.matching.insert(plain, subscription.clone());
            }
            self.put_subscription(filter.clone(), subscription.clone());
        }
        begun.into_iter().map(|(_, again)| again).collect()
    }

    /// Whether a filter is subscribed to, and not about to be no more.
    pub fn subscribes(&self, filter: &str) -> bool {
        self.subscriptions.contains_key(filter) && !self.leaving.contains(filter)
    }

    pub fn wake_writer(&self) {
        if let Some(link) = &self.link {
            link.handle.wake_writer();
        }
    }

    pub fn wake_reader(&self) {
        if let Some(link) = &self.link {
            link.handle.wake_reader();
        }
    }

    /// How many more QoS 1 publishes the client takes of what is not promised a place yet: channel
    /// records, broadcast, and offers still to be promised one.
    ///
    /// What waits to be sent again and what is promised have their places, so that all of it
    /// together never passes Receive Maximum (MQTT-3.3.4-9).
    pub fn window(&self) -> usize {
        self.offer_window()
            .saturating_sub(self.offers.len() + self.reserved)
    }

    /// How many offers may go out, each on the place it was promised.
    pub fn offer_window(&self) -> usize {
        self.link
            .as_ref()
            .map_or(0, |link| self.inflight.room(link.receive_maximum))
    }

    /// How many deliveries of an earlier connection may be sent again now. Offers were promised
    /// places only where these had theirs, so neither waits for the other.
    pub fn resend_window(&self) -> usize {
        self.link.as_ref().map_or(0, |link| {
            self.inflight
                .resend_room(link.receive_maximum)
                .saturating_sub(self.offers.len() + self.reserved)
        })
    }
}

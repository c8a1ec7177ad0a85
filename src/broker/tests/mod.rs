//! The broker's rules, one test each, over the model store and a clock that moves when told.

mod bounds;
mod catalogue;
mod channels;
mod exactly_once;
mod latest;
mod ownership;
mod partitions;
mod publishing;
mod queues;
mod requests;
mod retention;
mod sessions;
mod subscribing;
mod wills;

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use super::packet::{
    Connack, Connect, Disconnect, Outgoing, OutgoingPublish, Protocol, Publish, PublishProperties,
    SubackReason, Subscribe, SubscribeRequest, Unsubscribe, UserPairs, Will,
};
use super::queue::QueueSettings;
use super::reason::{Reason, Refusal};
use super::settings::Settings;
use super::time::Now;
use super::topic::{ChannelFilter, RouteSource};
use super::{
    Broker, BrokerSetup, ChannelSetup, Claim, Connection, Flow, QueueParts, RetainedSetup, Start,
    Taken, Wakes,
};
use crate::storage::testing::ModelStore;
use crate::storage::{ChannelId, ChannelKind, Space, Store};

pub(super) const EVENTS: ChannelId = ChannelId(1);
pub(super) const STATE: ChannelId = ChannelId(2);
pub(super) const JOBS: ChannelId = ChannelId(3);
pub(super) const DEAD_JOBS: ChannelId = ChannelId(4);
pub(super) const TAIL: ChannelId = ChannelId(5);
pub(super) const BROADCAST_LOG: ChannelId = ChannelId(100);
pub(super) const RETAINED: ChannelId = ChannelId(101);

/// A broker with one channel of each kind: `events/#` append, `tail/#` append from now, `state/#`
/// latest, `jobs/#` queue.
pub(super) struct World {
    pub broker: Arc<Broker>,
    pub store: ModelStore,
    time: Arc<Mutex<Now>>,
    settings: Settings,
    channels: Vec<ChannelSetup>,
}

#[derive(Default)]
pub(super) struct Options {
    pub settings: Settings,
    pub retention_period: Option<Duration>,
    pub retention_bytes: Option<u64>,
    pub deletion_retention_period: Option<Duration>,
    pub queue: QueueSettings,
}

fn setup(name: &str, kind: ChannelKind, id: ChannelId, store: &ModelStore) -> ChannelSetup {
    ChannelSetup {
        source: RouteSource {
            name: name.into(),
            kind,
            filter: ChannelFilter::parse(&format!("{name}/#")).unwrap(),
        },
        id,
        store: Arc::new(store.clone()),
        start: Start::Floor,
        retention_period: None,
        retention_bytes: None,
        deletion_retention_period: None,
        queue: None,
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let store = ModelStore::new();
        let channels = vec![
            ChannelSetup {
                retention_period: options.retention_period,
                retention_bytes: options.retention_bytes,
                ..setup("events", ChannelKind::Append, EVENTS, &store)
            },
            ChannelSetup {
                retention_period: options.retention_period,
                deletion_retention_period: options.deletion_retention_period,
                ..setup("state", ChannelKind::Latest, STATE, &store)
            },
            ChannelSetup {
                queue: Some(QueueParts {
                    settings: options.queue,
                    dead_letters: DEAD_JOBS,
                    retention_period: None,
                    retention_bytes: None,
                }),
                ..setup("jobs", ChannelKind::Queue, JOBS, &store)
            },
            ChannelSetup {
                start: Start::Tail,
                ..setup("tail", ChannelKind::Append, TAIL, &store)
            },
        ];
        let time = Arc::new(Mutex::new(Now {
            since_start: Duration::from_secs(1),
            unix_ms: 1_700_000_000_000,
        }));
        Self::open(options.settings, channels, store, time)
    }

    fn open(
        settings: Settings,
        channels: Vec<ChannelSetup>,
        store: ModelStore,
        time: Arc<Mutex<Now>>,
    ) -> Self {
        let shared = Arc::new(store.clone());
        let channels: Vec<ChannelSetup> = channels
            .into_iter()
            .map(|channel| ChannelSetup {
                store: shared.clone(),
                ..channel
            })
            .collect();
        let clock = time.clone();
        let now = *time.lock().unwrap();
        let broker = Broker::open(
            BrokerSetup {
                settings: settings.clone(),
                channels: channels.clone(),
                session_store: shared.clone(),
                broadcast_log: BROADCAST_LOG,
                retained: RetainedSetup {
                    store: shared,
                    channel: RETAINED,
                    retention_period: None,
                },
                clock: Arc::new(move || *clock.lock().unwrap()),
                timer: Arc::new(|| {}),
            },
            now,
        )
        .unwrap();
        let world = World {
            broker,
            store,
            time,
            settings,
            channels,
        };
        world.settle();
        world
    }

    /// The process dies and another takes its place.
    pub fn crash(self) -> Self {
        let store = self.store.crash();
        Self::open(self.settings, self.channels, store, self.time)
    }

    pub fn now(&self) -> Now {
        *self.time.lock().unwrap()
    }

    /// Lets time pass, without anybody noticing.
    pub fn pass(&self, time: Duration) {
        let mut now = self.time.lock().unwrap();
        now.since_start += time;
        now.unix_ms += u64::try_from(time.as_millis()).unwrap();
    }

    /// Lets time pass and does what is due.
    pub fn advance(&self, time: Duration) {
        self.pass(time);
        self.broker.tick(self.now());
        self.settle();
    }

    pub fn settle(&self) {
        while self.broker.run_completions() > 0 {}
    }

    pub fn connect(&self, connect: Connect) -> Client {
        let mut claim = self.claim(connect).unwrap();
        self.settle();
        let Poll::Ready(Ok(connack)) = claim.poll(self.now()) else {
            panic!("not accepted");
        };
        self.establish(claim, connack)
    }

    pub fn establish(&self, claim: Claim, connack: Connack) -> Client {
        let connection = claim.established(self.now()).unwrap();
        self.settle();
        Client {
            connection,
            connack,
            stash: Mutex::default(),
            time: self.time.clone(),
            broker: self.broker.clone(),
        }
    }

    /// A CONNECT that got as far as its first poll.
    pub fn claim(&self, connect: Connect) -> Result<Claim, Refusal> {
        let wakes = Wakes {
            reader: Arc::new(|| {}),
            writer: Arc::new(|| {}),
        };
        let mut claim = self.broker.connect(connect, wakes, self.now())?;
        let _ = claim.poll(self.now());
        Ok(claim)
    }

    pub fn refused(&self, connect: Connect) -> Reason {
        match self.claim(connect) {
            Err(refusal) => refusal.reason,
            Ok(_) => panic!("admitted"),
        }
    }
}

/// One client and what its connection was told.
pub(super) struct Client {
    pub connection: Connection,
    pub connack: Connack,
    /// What was taken on the way to something else.
    stash: Mutex<Vec<Outgoing>>,
    time: Arc<Mutex<Now>>,
    broker: Arc<Broker>,
}

impl Client {
    fn now(&self) -> Now {
        *self.time.lock().unwrap()
    }

    fn settle(&self) {
        while self.broker.run_completions() > 0 {}
    }

    /// Everything there is to write now.
    pub fn take(&self) -> Vec<Outgoing> {
        let mut out = std::mem::take(&mut *self.stash.lock().unwrap());
        loop {
            let before = out.len();
            match self.connection.take(64 * 1024, &mut out, self.now()) {
                Taken::Read(reads) => self.connection.read(reads, self.now()),
                Taken::Close => return out,
                Taken::Idle if out.len() == before => return out,
                Taken::More | Taken::Idle => {}
            }
        }
    }

    /// The messages among what there is to write now.
    pub fn messages(&self) -> Vec<OutgoingPublish> {
        self.take().into_iter().filter_map(message).collect()
    }

    /// The payloads of those.
    pub fn payloads(&self) -> Vec<String> {
        self.messages().iter().map(payload).collect()
    }

    /// Acknowledges messages.
    pub fn ack(&self, messages: &[OutgoingPublish]) {
        for message in messages.iter().filter(|message| message.qos > 0) {
            self.connection.puback(message.packet_id, self.now());
        }
        self.settle();
    }

    /// Takes messages and acknowledges them.
    pub fn consume(&self) -> Vec<String> {
        let messages = self.messages();
        self.ack(&messages);
        messages.iter().map(payload).collect()
    }

    /// Publishes at QoS 1 and returns what its PUBACK says.
    pub fn publish(&self, topic: &str, payload: &str) -> Reason {
        self.send(publish(topic, payload))
    }

    pub fn send(&self, publish: Publish) -> Reason {
        assert_eq!(self.connection.publish(publish, self.now()), Flow::Continue);
        self.settle();
        let puback = |packet: &Outgoing| match packet {
            Outgoing::Puback { reason, .. } => Some(*reason),
            _ => None,
        };
        self.pick(puback).expect("a PUBACK")
    }

    /// The first packet that `wanted` finds; the others stay to be taken.
    fn pick<T>(&self, wanted: impl Fn(&Outgoing) -> Option<T>) -> Option<T> {
        let mut out = self.take();
        let found = out
            .iter()
            .enumerate()
            .find_map(|(index, packet)| Some((index, wanted(packet)?)));
        let picked = found.map(|(index, picked)| {
            out.remove(index);
            picked
        });
        *self.stash.lock().unwrap() = out;
        picked
    }

    /// Subscribes at QoS 1 and returns what was granted.
    pub fn subscribe(&self, filter: &str) -> SubackReason {
        self.subscribe_as(request(filter))
    }

    pub fn subscribe_as(&self, request: SubscribeRequest) -> SubackReason {
        let subscribe = Subscribe {
            packet_id: 1,
            identifier: None,
            filters: vec![request],
            user_properties: UserPairs::default(),
        };
        assert_eq!(self.connection.subscribe(&subscribe), Flow::Continue);
        self.settle();
        self.suback()
    }

    /// The next SUBACK's first answer. Nothing may have come before it.
    pub fn suback(&self) -> SubackReason {
        let mut out = Vec::new();
        // One byte: what is taken is the first packet.
        self.connection.take(1, &mut out, self.now());
        match out.first() {
            Some(Outgoing::Suback { reasons, .. }) => reasons[0],
            other => panic!("{other:?}"),
        }
    }

    pub fn unsubscribe(&self, filter: &str) -> Reason {
        let unsubscribe = Unsubscribe {
            packet_id: 2,
            filters: vec![filter.into()],
            user_properties: UserPairs::default(),
        };
        self.connection.unsubscribe(&unsubscribe);
        self.settle();
        let unsuback = |packet: &Outgoing| match packet {
            Outgoing::Unsuback { reasons, .. } => Some(reasons[0]),
            _ => None,
        };
        self.pick(unsuback).expect("an UNSUBACK")
    }

    /// The socket is lost.
    pub fn lose(&self) {
        self.connection.end(self.now());
        self.settle();
    }

    /// A clean DISCONNECT.
    pub fn disconnect(&self) {
        let disconnect = Disconnect {
            reason_code: 0,
            session_expiry: None,
        };
        self.connection.disconnect(disconnect, self.now());
        self.settle();
    }

    /// Why the connection is closed, if it is.
    pub fn closed(&self) -> Option<Reason> {
        self.take().into_iter().find_map(|packet| match packet {
            Outgoing::Disconnect(refusal) => Some(refusal.reason),
            _ => None,
        })
    }
}

pub(super) fn message(packet: Outgoing) -> Option<OutgoingPublish> {
    match packet {
        Outgoing::Publish(publish) => Some(publish),
        _ => None,
    }
}

pub(super) fn payload(publish: &OutgoingPublish) -> String {
    String::from_utf8(publish.payload.to_vec()).unwrap()
}

/// The value of a User Property in a property region.
pub(super) fn property(publish: &OutgoingPublish, key: &str) -> Option<String> {
    let region = &publish.properties;
    let mut wanted = vec![0x26];
    wanted.extend_from_slice(&u16::try_from(key.len()).unwrap().to_be_bytes());
    wanted.extend_from_slice(key.as_bytes());
    let at = region
        .windows(wanted.len())
        .position(|window| window == wanted)?;
    let rest = &region[at + wanted.len()..];
    let len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    Some(String::from_utf8(rest[2..2 + len].to_vec()).unwrap())
}

/// A clean-start MQTT 5 CONNECT.
pub(super) fn connect(client_id: &str) -> Connect {
    Connect {
        protocol: Protocol::V5,
        client_id: client_id.into(),
        clean_start: true,
        keep_alive: 0,
        session_expiry: 0,
        receive_maximum: u16::MAX,
        maximum_packet_size: None,
        request_problem_information: true,
        authentication_method: false,
        user_properties: UserPairs::default(),
        user_name: None,
        will: None,
    }
}

/// One that goes on with its session, kept for an hour.
pub(super) fn durable(client_id: &str) -> Connect {
    Connect {
        clean_start: false,
        session_expiry: 3600,
        ..connect(client_id)
    }
}

pub(super) fn v311(client_id: &str) -> Connect {
    Connect {
        protocol: Protocol::V311,
        ..connect(client_id)
    }
}

pub(super) fn request(filter: &str) -> SubscribeRequest {
    SubscribeRequest {
        filter: filter.into(),
        qos: 1,
        no_local: false,
        retain_as_published: false,
        retain_handling: 0,
    }
}

pub(super) fn publish(topic: &str, payload: &str) -> Publish {
    Publish {
        packet_id: 9,
        qos: 1,
        retain: false,
        topic: Bytes::copy_from_slice(topic.as_bytes()),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        properties: PublishProperties::default(),
    }
}

pub(super) fn pairs(pairs: &[(&str, &str)]) -> UserPairs {
    let mut wire = Vec::new();
    for (key, value) in pairs {
        wire.push(0x26);
        for text in [key, value] {
            wire.extend_from_slice(&u16::try_from(text.len()).unwrap().to_be_bytes());
            wire.extend_from_slice(text.as_bytes());
        }
    }
    UserPairs::new(wire.into(), pairs.len())
}

pub(super) fn will(topic: &str, payload: &str, delay_seconds: u32) -> Option<Will> {
    Some(Will {
        publish: Publish {
            packet_id: 0,
            ..publish(topic, payload)
        },
        delay_seconds,
    })
}

/// What the tests look up in a store.
pub(super) trait Look {
    /// Every small value.
    fn scan_all(&self) -> Vec<(Bytes, Bytes)>;
    /// A client's stored position.
    fn position(&self, client_id: &str, channel: ChannelId) -> Option<u64>;
    /// Jobs that are not done.
    fn unresolved_jobs(&self) -> usize;
    /// A channel's numbers.
    fn counted(&self, channel: ChannelId) -> crate::storage::Counters;
}

impl Look for ModelStore {
    fn scan_all(&self) -> Vec<(Bytes, Bytes)> {
        let mut all = self.scan(Space::Sessions, &[]);
        all.extend(self.scan(Space::Positions, &[]));
        all
    }

    fn position(&self, client_id: &str, channel: ChannelId) -> Option<u64> {
        let key = Space::position_key(channel, client_id.as_bytes());
        let value = self.get(Space::Positions, &key)?;
        Some(u64::from_le_bytes(value[..].try_into().unwrap()))
    }

    fn unresolved_jobs(&self) -> usize {
        self.unresolved(JOBS).len()
    }

    fn counted(&self, channel: ChannelId) -> crate::storage::Counters {
        self.counters(channel)
    }
}

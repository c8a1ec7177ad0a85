//! Clients that keep their side of QoS 1 and 2, a network that loses connections and a process that
//! dies between any two writes: nothing that was acknowledged is lost, and nothing at QoS 2 comes
//! twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;

/// SplitMix64: one number is one run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
}

/// How far a publisher is with one of its own.
#[derive(Clone, Debug)]
enum Mine {
    Published(Box<Publish>),
    Released,
}

/// A client as the standard wants it: what it has to remember it remembers.
struct Peer {
    id: &'static str,
    qos: u8,
    filters: &'static [&'static str],
    receive_maximum: u16,
    client: Option<Client>,
    subscribed: bool,
    /// What came and has not been looked at: lost with the connection.
    inbox: VecDeque<Outgoing>,
    /// Its own publishes that are not over, by identifier.
    mine: BTreeMap<u16, Mine>,
    last_id: u16,
    /// Packets it has still to send on this connection.
    outbox: VecDeque<Say>,
    /// QoS 2 deliveries received and not released.
    received: BTreeSet<u16>,
    /// How often each payload came to the application.
    came: BTreeMap<String, usize>,
    /// Its publishes that the broker said are done.
    done: usize,
}

enum Say {
    Publish(Box<Publish>),
    Pubrel(u16),
    Puback(u16),
    Pubrec(u16),
    Pubcomp(u16),
}

impl Peer {
    fn new(
        id: &'static str,
        qos: u8,
        filters: &'static [&'static str],
        receive_maximum: u16,
    ) -> Self {
        Peer {
            id,
            qos,
            filters,
            receive_maximum,
            client: None,
            subscribed: false,
            inbox: VecDeque::new(),
            mine: BTreeMap::new(),
            last_id: 0,
            outbox: VecDeque::new(),
            received: BTreeSet::new(),
            came: BTreeMap::new(),
            done: 0,
        }
    }

    /// Goes on with its session, or ends it and begins another.
    fn connect(&mut self, world: &World, begins_again: bool) {
        if begins_again {
            self.subscribed = false;
            self.received.clear();
        }
        let client = world.connect(Connect {
            receive_maximum: self.receive_maximum,
            clean_start: begins_again,
            ..durable(self.id)
        });
        assert_eq!(
            client.connack.session_present, self.subscribed,
            "{}",
            self.id
        );
        if !self.subscribed {
            for filter in self.filters {
                let granted = client.subscribe_as(SubscribeRequest {
                    qos: self.qos,
                    ..request(filter)
                });
                assert_eq!(granted, SubackReason::Granted(self.qos));
            }
            self.subscribed = true;
        }
        for (id, mine) in &self.mine {
            self.outbox.push_back(match mine {
                Mine::Published(publish) => Say::Publish(publish.clone()),
                Mine::Released => Say::Pubrel(*id),
            });
        }
        self.client = Some(client);
    }

    fn lose(&mut self, world: &World, ends: bool) {
        if let Some(client) = self.client.take()
            && ends
        {
            client.connection.end(world.now());
        }
        self.inbox.clear();
        self.outbox.clear();
    }

    fn publish(&mut self, topic: &str, payload: String, qos: u8) {
        if self.client.is_none() || self.mine.len() >= 8 {
            return;
        }
        self.last_id += 1;
        let publish = Box::new(Publish {
            packet_id: self.last_id,
            qos,
            ..publish(topic, &payload)
        });
        self.mine
            .insert(self.last_id, Mine::Published(publish.clone()));
        self.outbox.push_back(Say::Publish(publish));
    }

    /// Has the broker take the next packet it has to send, or another answer before its turn.
    fn say(&mut self, now: Now, at: usize) {
        let Some(client) = &self.client else { return };
        let is_answer =
            |say: &Say| matches!(say, Say::Puback(_) | Say::Pubrec(_) | Say::Pubcomp(_));
        let at = if self.outbox.iter().all(is_answer) {
            at % self.outbox.len().max(1)
        } else {
            0
        };
        let Some(say) = self.outbox.remove(at) else {
            return;
        };
        let connection = &client.connection;
        let flow = match &say {
            Say::Publish(publish) => connection.publish(Publish::clone(publish), now),
            Say::Pubrel(id) => connection.pubrel(*id),
            Say::Puback(id) => connection.puback(*id, now),
            Say::Pubrec(id) => connection.pubrec(*id, false, now),
            Say::Pubcomp(id) => connection.pubcomp(*id, now),
        };
        match flow {
            Flow::Continue => {}
            Flow::Retry => self.outbox.push_front(say),
            Flow::Stop => panic!("{} was stopped", self.id),
        }
    }

    fn fetch(&mut self) {
        if let Some(client) = &self.client {
            self.inbox.extend(client.take());
        }
    }

    /// Looks at one packet that came.
    fn look(&mut self) {
        match self.inbox.pop_front() {
            Some(Outgoing::Publish(publish)) => {
                let id = publish.packet_id;
                let is_new = publish.qos < 2 || self.received.insert(id);
                if is_new {
                    *self.came.entry(payload(&publish)).or_default() += 1;
                }
                match publish.qos {
                    0 => {}
                    1 => self.outbox.push_back(Say::Puback(id)),
                    _ => self.outbox.push_back(Say::Pubrec(id)),
                }
            }
            Some(Outgoing::Pubrel { packet_id, .. }) => {
                self.received.remove(&packet_id);
                self.outbox.push_back(Say::Pubcomp(packet_id));
            }
            Some(Outgoing::Puback { packet_id, .. }) => {
                self.done += usize::from(self.mine.remove(&packet_id).is_some());
            }
            Some(Outgoing::Pubrec {
                packet_id, reason, ..
            }) => {
                assert_eq!(reason, Reason::Success);
                if let Some(mine) = self.mine.get_mut(&packet_id) {
                    *mine = Mine::Released;
                    self.outbox.push_back(Say::Pubrel(packet_id));
                }
            }
            Some(Outgoing::Pubcomp { packet_id, .. }) => {
                self.done += usize::from(self.mine.remove(&packet_id).is_some());
            }
            Some(Outgoing::Disconnect(refusal)) => panic!("{}: {refusal}", self.id),
            Some(_) | None => {}
        }
    }

    fn is_quiet(&self) -> bool {
        self.inbox.is_empty() && self.outbox.is_empty() && self.mine.is_empty()
    }
}

const TOPICS: [&str; 2] = ["live/1", "events/1"];

struct Run {
    seed: u64,
    /// A member's session ends now and then: at QoS 2 what it may have had is nobody else's.
    ends: bool,
    dice: Dice,
    world: Option<World>,
    peers: Vec<Peer>,
    /// Payloads by topic and QoS.
    published: BTreeMap<(&'static str, u8), Vec<String>>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new();
        let mut peers = vec![
            Peer::new("publisher", 0, &[], u16::MAX),
            Peer::new("plain", 2, &["live/#", "events/#"], 3),
            Peer::new("member a", 2, &["$share/g/live/#"], 2),
            Peer::new("member b", 2, &["$share/g/live/#"], 2),
        ];
        for peer in &mut peers {
            peer.connect(&world, false);
        }
        Run {
            seed,
            ends: seed % 2 == 1,
            dice: Dice(seed),
            world: Some(world),
            peers,
            published: BTreeMap::new(),
        }
    }

    fn world(&self) -> &World {
        self.world.as_ref().expect("there is one but for a moment")
    }

    fn step(&mut self) {
        let at = self.dice.below(self.peers.len());
        match self.dice.below(100) {
            0..15 => {
                let topic = TOPICS[self.dice.below(2)];
                let qos = 1 + u8::from(self.dice.below(2) == 0);
                let list = self.published.entry((topic, qos)).or_default();
                let text = format!("{topic} {qos} {}", list.len());
                let publisher = &mut self.peers[0];
                let before = publisher.last_id;
                publisher.publish(topic, text.clone(), qos);
                if publisher.last_id != before {
                    list.push(text);
                }
            }
            15..40 => {
                let now = self.world().now();
                let before_its_turn = match self.dice.below(8) {
                    0 => self.dice.below(4),
                    _ => 0,
                };
                self.peers[at].say(now, before_its_turn);
            }
            40..55 => self.peers[at].fetch(),
            55..75 => self.peers[at].look(),
            75..88 => {
                let batches = self.dice.below(3);
                self.world().store.commit_first(batches);
                self.world().broker.run_completions();
            }
            88..92 => self.world().store.commit_first(2),
            92..94 => {
                let time = Duration::from_millis(300);
                let world = self.world.take().expect("a world");
                world.pass(time);
                world.broker.tick(world.now());
                self.world = Some(world);
            }
            94..97 => {
                let world = self.world.take().expect("a world");
                self.peers[at].lose(&world, true);
                self.world = Some(world);
            }
            97..99 => {
                if self.peers[at].client.is_none() {
                    let world = self.world.take().expect("a world");
                    let begins_again = self.ends && at == 3 && self.dice.below(3) == 0;
                    self.peers[at].connect(&world, begins_again);
                    self.world = Some(world);
                }
            }
            _ => {
                let world = self.world.take().expect("a world");
                for peer in &mut self.peers {
                    peer.lose(&world, false);
                }
                self.world = Some(world.crash());
            }
        }
    }

    fn finish(&mut self) {
        let world = self.world.take().expect("a world");
        for peer in &mut self.peers {
            peer.lose(&world, true);
            world.settle();
            peer.connect(&world, false);
        }
        for _ in 0..10_000 {
            for peer in &mut self.peers {
                peer.fetch();
                peer.look();
                peer.say(world.now(), 0);
                world.settle();
            }
            if self.peers.iter().all(Peer::is_quiet) {
                world.advance(Duration::from_secs(1));
                for peer in &mut self.peers {
                    peer.fetch();
                }
                if self.peers.iter().all(Peer::is_quiet) {
                    self.judge();
                    self.world = Some(world);
                    return;
                }
            }
        }
        panic!("seed {}: it does not come to rest", self.seed);
    }

    fn judge(&self) {
        let came = |peer: usize, text: &str| self.peers[peer].came.get(text).copied().unwrap_or(0);
        for ((topic, qos), texts) in &self.published {
            for text in texts {
                let seed = self.seed;
                let to_plain = came(1, text);
                let to_group = came(2, text) + came(3, text);
                let exactly = *qos == 2;
                assert!(
                    to_plain == 1 || (!exactly && to_plain > 1),
                    "seed {seed}: {text:?} came {to_plain} times"
                );
                if *topic == "live/1" {
                    assert!(
                        to_group == 1
                            || (!exactly && to_group > 1)
                            || (exactly && self.ends && to_group == 0),
                        "seed {seed}: {text:?} came to the group {to_group} times"
                    );
                }
            }
        }
    }
}

#[test]
fn whatever_dies_in_between_nothing_is_lost_and_nothing_at_qos_2_comes_twice() {
    let seeds: Vec<u64> = match std::env::var("SAGUIN_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        // 1060: a record acknowledged behind one that was not came again after the second crash.
        Err(_) => (0..100).chain([1060]).collect(),
    };
    for seed in seeds {
        let mut run = Run::new(seed);
        for _ in 0..1500 {
            run.step();
        }
        run.finish();
    }
}

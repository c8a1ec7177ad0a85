//! `fan`: one publisher to many subscribers, or pairs of one each, from memory.

use std::time::{Duration, Instant};

use saguin_mqtt_codec::QoS;

use super::Measured;
use super::crew::stray;
use super::tally::Order;
use crate::cli::seconds;
use crate::connections::{Connections, Out, append_puback, connect_packet};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::latency::Latencies;
use crate::publisher::{Message, Publisher, STAMP, Window};
use crate::report::{Figure, figure, known, per_second};
use crate::target::{Cost, Target};

/// What `fan` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// QoS of the publishes and the subscriptions
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Subscribers of one publisher
    #[arg(long, default_value_t = 50, value_name = "N", conflicts_with = "pairs", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: u32,
    /// Instead: so many publishers with a subscriber each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pairs: Option<u32>,
    /// Messages of a publisher that have not come to all its subscribers, at most
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// Instead of as fast as the window allows: so many publishes a second, all publishers together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(STAMP as i64..=16_777_216))]
    size: u32,
    /// How long each run takes
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// The topics are below this one, where no channel is
    #[arg(long, default_value = "bench/fan", value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        let who = match self.pairs {
            Some(pairs) => format!("{pairs} pairs"),
            None => format!("1 publisher to {} subscribers", self.subscribers),
        };
        let pace = match self.rate {
            Some(rate) => format!("{rate}/s"),
            None => format!("window {}", self.window),
        };
        format!(
            "{who}, QoS {}, {pace}, {} B, {} s",
            self.qos,
            self.size,
            self.seconds.as_secs_f64()
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let mut connections = target.connections()?;
        let mut fan = self.open(target, &mut connections)?;
        let (cost, begun) = (Cost::begin(target), Instant::now());
        let end = begun + self.seconds;
        match self.rate {
            None => {
                fan.begin(&mut connections)?;
                while Instant::now() < end {
                    fan.turn(&mut connections, Some(end))?;
                }
            }
            Some(rate) => fan.pace(&mut connections, Duration::from_secs(1) / rate, end)?,
        }
        let (took, count) = (begun.elapsed().as_secs_f64(), fan.deliveries);
        let (broker, generator) = (cost.broker_micros(count), cost.generator_micros(count));
        let latencies = std::mem::take(&mut fan.latencies);
        // What is on its way has to come too.
        fan.stopping = true;
        while !fan.is_done() {
            fan.turn(&mut connections, None)?;
        }
        let figures = [
            Some(figure("deliveries", "/s", per_second(count, took))),
            Some(figure(
                "publish to last subscriber p50",
                "µs",
                latencies.micros(0.5),
            )),
            Some(figure(
                "publish to last subscriber p99",
                "µs",
                latencies.micros(0.99),
            )),
            known("broker CPU per delivery", "µs", broker),
            known("generator CPU per delivery", "µs", generator),
        ];
        Ok(figures.into_iter().flatten().collect())
    }
}

impl Args {
    fn open(&self, target: &Target, connections: &mut Connections) -> Result<Fan, Failure> {
        let qos = QoS::from_u8(self.qos).unwrap_or_default();
        let (publishers, each) = match self.pairs {
            Some(pairs) => (pairs as usize, 1),
            None => (1, self.subscribers as usize),
        };
        let topic = |number: usize| format!("{}/{}/{number}", self.topic, target.run);
        for number in 0..publishers * each {
            let connect = connect_packet(&target.client("read", number), false, true)?;
            let (at, _) = connections.open(connect)?;
            connections.subscribe(at, &topic(number / each), qos)?;
        }
        let mut groups = Vec::with_capacity(publishers);
        for number in 0..publishers {
            let message = Message {
                topic: topic(number),
                size: self.size as usize,
                qos,
                retain: false,
            };
            let connect = connect_packet(&target.client("pub", number), false, true)?;
            let window = Window::Asked(self.window);
            let publisher = Publisher::open(connections, connect, &message, window)?;
            groups.push(Group {
                publisher: publisher.stamped(0),
                orders: vec![Order::new(1); each],
                sent_at: vec![Instant::now(); usize::from(self.window)],
                came_to: vec![0; usize::from(self.window)],
                complete: 0,
            });
        }
        Ok(Fan {
            groups,
            each,
            latencies: Latencies::default(),
            deliveries: 0,
            stopping: self.rate.is_some(),
        })
    }
}

/// A publisher and its subscribers.
struct Group {
    publisher: Publisher,
    orders: Vec<Order>,
    /// Of the messages under way, by number modulo the window: when each was sent, and to how many it came.
    sent_at: Vec<Instant>,
    came_to: Vec<usize>,
    /// Messages that came to all.
    complete: u64,
}

impl Group {
    fn window(&self) -> u64 {
        self.sent_at.len() as u64
    }

    fn place(&self, message: u64) -> usize {
        usize::try_from(message % self.window()).unwrap_or_default()
    }

    /// Sends what the window has room for. A message may have come before its PUBACK.
    fn send(&mut self, now: Instant, out: &mut Out) {
        while self.has_room() {
            self.send_one(now, out);
        }
    }

    fn has_room(&self) -> bool {
        let behind = self.complete.min(self.publisher.acknowledged);
        self.publisher.sent - behind < self.window()
    }

    fn send_one(&mut self, now: Instant, out: &mut Out) {
        if !self.has_room() {
            return;
        }
        let place = self.place(self.publisher.sent);
        if let Some(sent_at) = self.sent_at.get_mut(place) {
            *sent_at = now;
        }
        self.publisher.send(now, out);
    }

    /// Counts a delivery; how long the message took, where this was the last subscriber's.
    fn take(
        &mut self,
        subscriber: usize,
        payload: &[u8],
        now: Instant,
    ) -> Result<Option<Duration>, Failure> {
        let Some(order) = self.orders.get_mut(subscriber) else {
            return Ok(None);
        };
        let message = order.count();
        order.take(payload)?;
        let (place, all) = (self.place(message), self.orders.len());
        let (Some(came_to), Some(sent_at)) = (self.came_to.get_mut(place), self.sent_at.get(place))
        else {
            return Ok(None);
        };
        *came_to += 1;
        if *came_to < all {
            return Ok(None);
        }
        *came_to = 0;
        self.complete += 1;
        Ok(Some(now.saturating_duration_since(*sent_at)))
    }
}

/// All groups. Subscribers have the first connections, those of a group side by side.
struct Fan {
    groups: Vec<Group>,
    each: usize,
    latencies: Latencies,
    deliveries: u64,
    stopping: bool,
}

impl Fan {
    fn begin(&mut self, connections: &mut Connections) -> Result<(), Failure> {
        for group in &mut self.groups {
            let at = group.publisher.connection;
            group.send(Instant::now(), connections.out(at));
            connections.flush(at)?;
        }
        Ok(())
    }

    /// One publish each `apart`, the publishers by turns. One that has its window under way misses its turn.
    fn pace(
        &mut self,
        connections: &mut Connections,
        apart: Duration,
        end: Instant,
    ) -> Result<(), Failure> {
        let (mut due, mut turn) = (Instant::now(), 0);
        while due < end {
            let number = turn % self.groups.len();
            if let Some(group) = self.groups.get_mut(number) {
                let at = group.publisher.connection;
                group.send_one(Instant::now(), connections.out(at));
                connections.flush(at)?;
            }
            turn += 1;
            due += apart;
            while Instant::now() < due {
                self.turn(connections, Some(due))?;
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let done = |group: &Group| {
            let sent = group.publisher.sent;
            group.complete == sent && group.publisher.acknowledged == sent
        };
        self.groups.iter().all(done)
    }

    fn turn(
        &mut self,
        connections: &mut Connections,
        until: Option<Instant>,
    ) -> Result<(), Failure> {
        let mut moved = Vec::new();
        connections.turn(
            "the deliveries that have not come",
            until,
            &mut |at, frame: Frame<'_>, now, out: &mut Out| {
                let subscribers = self.groups.len() * self.each;
                let number = if at < subscribers {
                    at / self.each
                } else {
                    at - subscribers
                };
                let Some(group) = self.groups.get_mut(number) else {
                    return Err(stray(&frame));
                };
                match frame {
                    Frame::Publish(delivery) => {
                        self.deliveries += 1;
                        if delivery.id != 0 {
                            append_puback(delivery.id, out);
                        }
                        let took = group.take(at % self.each, delivery.payload, now)?;
                        let Some(took) = took else { return Ok(()) };
                        self.latencies.record(took);
                    }
                    Frame::PubAck { id, .. } => {
                        group.publisher.acknowledge(id, now)?;
                    }
                    frame @ Frame::Other(_) => return Err(stray(&frame)),
                }
                if moved.last() != Some(&number) {
                    moved.push(number);
                }
                Ok(())
            },
        )?;
        if self.stopping {
            return Ok(());
        }
        let now = Instant::now();
        for number in moved {
            if let Some(group) = self.groups.get_mut(number) {
                let at = group.publisher.connection;
                group.send(now, connections.out(at));
                connections.flush(at)?;
            }
        }
        Ok(())
    }
}

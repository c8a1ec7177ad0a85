//! `replay --consumers` and `slow`: what others cost a publisher.

use std::time::{Duration, Instant};

use saguin_mqtt_codec::QoS;

use super::crew::{Crew, stray};
use super::tally::Order;
use crate::connections::{Connections, Out, append_puback, connect_packet};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::latency::Latencies;
use crate::publisher::{Message, Publisher, Window};
use crate::report::{Figure, figure};
use crate::target::Target;

/// Sent to a subscriber that does not read, before the publisher is measured beside it: more than its
/// socket holds, in messages that no window of deliveries holds back.
const FLOOD: u64 = 256;
const FLOOD_BYTES: usize = 64 * 1024;

/// Each half begins with this, or as long as it takes itself where that is less, and nothing of it counts:
/// a broker that has just started prepares its files.
const LEAD_IN: Duration = Duration::from_secs(1);

/// Who else is there.
#[derive(Clone, Copy, Debug)]
pub enum Beside {
    /// So many durable consumers of what is published.
    Consumers(usize),
    /// A subscriber of it that does not read.
    Deaf,
}

/// A publisher that keeps a pace, alone and in company.
#[derive(Clone, Debug)]
pub struct Company {
    /// Who else is there in the second half.
    pub beside: Beside,
    /// Publishes a second.
    pub rate: u32,
    /// How long each half takes.
    pub seconds: Duration,
    /// Bytes of payload.
    pub size: usize,
    /// The topic prefix.
    pub topic: String,
}

impl Company {
    /// Both halves of one run.
    ///
    /// # Errors
    /// A record that a consumer was not given.
    pub fn measure(&self, target: &Target) -> Result<Vec<Figure>, Failure> {
        let alone = self.half(target, "alone", Beside::Consumers(0))?;
        let company = self.half(target, "company", self.beside)?;
        Ok(vec![
            figure("alone: PUBACK p50", "µs", alone.micros(0.5)),
            figure("alone: PUBACK p99", "µs", alone.micros(0.99)),
            figure("in company: PUBACK p50", "µs", company.micros(0.5)),
            figure("in company: PUBACK p99", "µs", company.micros(0.99)),
            figure(
                "p99 in company of alone",
                "x",
                company.micros(0.99) / alone.micros(0.99),
            ),
        ])
    }

    fn half(&self, target: &Target, name: &str, beside: Beside) -> Result<Latencies, Failure> {
        let mut connections = target.connections()?;
        let topic = format!("{}/{}/{name}", self.topic, target.run);
        let consumers = match beside {
            Beside::Consumers(consumers) => consumers,
            Beside::Deaf => 0,
        };
        for number in 0..consumers {
            let connect = connect_packet(&target.client("read", number), true, true)?;
            let (at, _) = connections.open(connect)?;
            connections.subscribe(at, &topic, QoS::AtLeastOnce)?;
        }
        if matches!(beside, Beside::Deaf) {
            flood(target, &mut connections, &topic)?;
        }
        let message = Message {
            topic,
            size: self.size,
            qos: QoS::AtLeastOnce,
            retain: false,
        };
        let connect = connect_packet(&target.client("paced", 0), false, true)?;
        let publisher =
            Publisher::open(&mut connections, connect, &message, Window::AtMost(1024))?.stamped(0);
        let mut half = Half {
            publisher,
            orders: vec![Order::new(1); consumers],
            counts_from: Instant::now() + LEAD_IN.min(self.seconds),
            latencies: Latencies::default(),
        };
        half.run(&mut connections, self.rate, self.seconds)?;
        for at in 0..consumers {
            connections.goodbye(at, true)?;
        }
        Ok(half.latencies)
    }
}

/// A subscriber that does not read, and more for it than its socket holds.
fn flood(target: &Target, connections: &mut Connections, topic: &str) -> Result<(), Failure> {
    let (at, _) = connections.open(connect_packet(&target.client("deaf", 0), false, true)?)?;
    connections.subscribe(at, topic, QoS::AtLeastOnce)?;
    connections.deafen(at)?;
    let message = |_| Message {
        topic: topic.to_owned(),
        size: FLOOD_BYTES,
        qos: QoS::AtLeastOnce,
        retain: false,
    };
    let window = Window::AtMost(16);
    Crew::open(target, connections, window, vec![FLOOD], message, |_, p| p)?.load(connections)?;
    Ok(())
}

/// One publisher, and what each consumer has been given. Consumers have the first numbers.
struct Half {
    publisher: Publisher,
    orders: Vec<Order>,
    /// What was due before this does not count.
    counts_from: Instant,
    latencies: Latencies,
}

impl Half {
    /// Publishes at a pace, then waits until everything is acknowledged and has come to everybody.
    fn run(
        &mut self,
        connections: &mut Connections,
        rate: u32,
        seconds: Duration,
    ) -> Result<(), Failure> {
        let (begun, pace) = (Instant::now(), Duration::from_secs(1) / rate);
        let mut due = begun;
        while due < self.counts_from + seconds {
            while Instant::now() < due {
                self.turn(connections, Some(due))?;
            }
            if self.publisher.room() == 0 {
                return Err(Failure::Broken(format!(
                    "the broker does not keep a pace of {rate}/s, {} publishes are not acknowledged: ask for less with --rate",
                    self.publisher.sent - self.publisher.acknowledged
                )));
            }
            // Counted from when it was due: a broker that holds the generator up gains nothing by it.
            let at = self.publisher.connection;
            self.publisher.send(due, connections.out(at));
            connections.flush(at)?;
            due += pace;
        }
        while !self.is_done() {
            self.turn(connections, None)?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let sent = self.publisher.sent;
        self.publisher.acknowledged == sent && self.orders.iter().all(|order| order.count() == sent)
    }

    fn turn(
        &mut self,
        connections: &mut Connections,
        until: Option<Instant>,
    ) -> Result<(), Failure> {
        connections.turn(
            "PUBACKs and records",
            until,
            &mut |at, frame: Frame<'_>, now, out: &mut Out| match (&frame, self.orders.get_mut(at))
            {
                (Frame::Publish(record), Some(order)) => {
                    append_puback(record.id, out);
                    order.take(record.payload)
                }
                (Frame::PubAck { id, .. }, None) => {
                    let latency = self.publisher.acknowledge(*id, now)?;
                    if now - latency >= self.counts_from {
                        self.latencies.record(latency);
                    }
                    Ok(())
                }
                _ => Err(stray(&frame)),
            },
        )?;
        Ok(())
    }
}

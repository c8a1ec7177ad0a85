//! `replay --consumers`: what many durable consumers of a channel cost its publisher.

use std::time::{Duration, Instant};

use saguin_mqtt_codec::QoS;

use super::crew::stray;
use super::tally::Order;
use crate::connections::{Connections, Out, append_puback, connect_packet};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::latency::Latencies;
use crate::publisher::{Message, Publisher, Window};
use crate::report::{Figure, figure};
use crate::target::Target;

/// A publisher that keeps a pace, alone and in company.
#[derive(Clone, Debug)]
pub struct Company {
    /// Durable consumers beside it.
    pub consumers: usize,
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
        let alone = self.half(target, "alone", 0)?;
        let company = self.half(target, "company", self.consumers)?;
        Ok(vec![
            figure("alone: PUBACK p50", "µs", alone.micros(0.5)),
            figure("alone: PUBACK p99", "µs", alone.micros(0.99)),
            figure("with consumers: PUBACK p50", "µs", company.micros(0.5)),
            figure("with consumers: PUBACK p99", "µs", company.micros(0.99)),
            figure(
                "p99 with consumers of alone",
                "x",
                company.micros(0.99) / alone.micros(0.99),
            ),
        ])
    }

    fn half(&self, target: &Target, name: &str, consumers: usize) -> Result<Latencies, Failure> {
        let mut connections = target.connections()?;
        let topic = format!("{}/{}/{name}", self.topic, target.run);
        for number in 0..consumers {
            let connect = connect_packet(&target.client("read", number), true, true)?;
            let (at, _) = connections.open(connect)?;
            connections.subscribe(at, &topic, QoS::AtLeastOnce)?;
        }
        let message = Message {
            topic,
            size: self.size,
            qos: QoS::AtLeastOnce,
            retain: false,
        };
        let connect = connect_packet(&target.client("pub", 0), false, true)?;
        let publisher =
            Publisher::open(&mut connections, connect, &message, Window::AtMost(1024))?.stamped(0);
        let mut half = Half {
            publisher,
            orders: vec![Order::new(1); consumers],
            latencies: Latencies::default(),
        };
        half.run(&mut connections, self.rate, self.seconds)?;
        for at in 0..consumers {
            connections.goodbye(at, true)?;
        }
        Ok(half.latencies)
    }
}

/// One publisher, and what each consumer has been given. Consumers have the first numbers.
struct Half {
    publisher: Publisher,
    orders: Vec<Order>,
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
        while due < begun + seconds {
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
                    // In the same turn many records may be read first.
                    self.latencies.record(self.publisher.acknowledge(*id, now)?);
                    Ok(())
                }
                _ => Err(stray(&frame)),
            },
        )?;
        Ok(())
    }
}

//! `replay`: a durable consumer reads a filled channel; or what many consumers cost a publisher.

use std::time::{Duration, Instant};

use saguin_mqtt_codec::QoS;

use super::company::{Beside, Company};
use super::crew::{Crew, shares, stray};
use super::tally::Order;
use super::{Measured, prefix};
use crate::cli::seconds;
use crate::connections::{append, append_puback, connect_packet, granted, subscribe_packet};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::publisher::{Message, Publisher, STAMP, Window};
use crate::report::{Figure, figure, known, per_second};
use crate::target::{Cost, Target};

/// Connections that fill the channel, and what each has unacknowledged.
const FILLERS: usize = 8;
const WINDOW: Window = Window::AtMost(64);

/// What `replay` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records the channel is filled with
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    records: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(STAMP as i64..=16_777_216))]
    size: u32,
    /// Instead: what so many durable consumers cost a publisher that keeps a pace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    consumers: Option<u32>,
    /// With --consumers: publishes a second
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// With --consumers: how long the publisher is measured alone, and then in company
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// The topics are below this one, which is the append channel's
    #[arg(long, default_value = prefix::LOG, value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        if let Some(consumers) = self.consumers {
            return format!(
                "a publisher at {}/s, {} B, {} s alone, then as long with {consumers} durable consumers",
                self.rate,
                self.size,
                self.seconds.as_secs_f64()
            );
        }
        format!(
            "{} records of {} B, then one durable consumer at QoS 1 from the beginning",
            self.records, self.size
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.size as usize)
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        match self.consumers {
            Some(consumers) => self.company(consumers).measure(target),
            None => self.replay(target),
        }
    }
}

impl Args {
    fn company(&self, consumers: u32) -> Company {
        Company {
            beside: Beside::Consumers(consumers as usize),
            rate: self.rate,
            seconds: self.seconds,
            size: self.size as usize,
            topic: self.topic.clone(),
        }
    }

    fn replay(&self, target: &Target) -> Result<Vec<Figure>, Failure> {
        let records = u64::from(self.records);
        let name = target.client("read", 0);
        let filter = format!("{}/{}/#", self.topic, target.run);
        if !target.kind.has_channels() {
            // Without a channel only a session that was there before is owed anything.
            let mut connections = target.connections()?;
            let (at, _) = connections.open(connect_packet(&name, true, true)?)?;
            connections.subscribe(at, &filter, QoS::AtLeastOnce)?;
            connections.goodbye(at, false)?;
        }
        let stored = self.fill(target)?;
        let mut connections = target.connections()?;
        let (cost, begun) = (Cost::begin(target), Instant::now());
        let (at, _) = connections.open(connect_packet(&name, true, false)?)?;
        if target.kind.has_channels() {
            append(
                &subscribe_packet(&filter, QoS::AtLeastOnce)?,
                connections.out(at),
            )?;
            connections.flush(at)?;
        }
        let mut order = Order::new(FILLERS);
        connections.turn_until("the records that have not come", |_, frame, _, out| {
            match frame {
                Frame::Publish(record) => {
                    order.take(record.payload)?;
                    append_puback(record.id, out);
                }
                Frame::Other(packet) => granted(&packet)?,
                frame => return Err(stray(&frame)),
            }
            Ok(order.count() == records)
        })?;
        let took = begun.elapsed().as_secs_f64();
        let broker = cost.broker_micros(records);
        connections.goodbye(at, true)?;
        let figures = [
            Some(figure("records stored", "/s", stored)),
            Some(figure("records read", "/s", per_second(records, took))),
            known("broker CPU per record read", "µs", broker),
        ];
        Ok(figures.into_iter().flatten().collect())
    }

    /// Fills the channel; how many records a second.
    fn fill(&self, target: &Target) -> Result<f64, Failure> {
        let mut connections = target.connections()?;
        let shares = shares(u64::from(self.records), FILLERS);
        let message = |number| Message {
            topic: format!("{}/{}/{number}", self.topic, target.run),
            size: self.size as usize,
            qos: QoS::AtLeastOnce,
            retain: false,
        };
        let shape = |number: usize, publisher: Publisher| {
            publisher.stamped(u32::try_from(number).unwrap_or_default())
        };
        let mut crew = Crew::open(target, &mut connections, WINDOW, shares, message, shape)?;
        let begun = Instant::now();
        crew.load(&mut connections)?;
        Ok(per_second(
            u64::from(self.records),
            begun.elapsed().as_secs_f64(),
        ))
    }
}

//! `pub`: publishers with a window each.

use std::time::{Duration, Instant};

use saguin_mqtt_codec::{Packet, QoS};

use super::crew::{Crew, shares, stray};
use super::{Measured, prefix};
use crate::cli::seconds;
use crate::connections::{Connections, Out, append};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::latency::Latencies;
use crate::publisher::{Message, Window};
use crate::report::{Figure, figure, known, per_second};
use crate::target::{Cost, Target};

/// At QoS 0 nothing holds a publisher up but its socket: so many are written between two looks at it.
const QOS_0_BATCH: u64 = 64;
/// This share of the time, and no longer than a second, comes before the first figure is taken.
const LEAD_IN_SHARE: u32 = 10;

/// What `pub` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// QoS of the publishes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Publishing connections
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    connections: u32,
    /// Publishes each has unacknowledged at most
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    size: u32,
    /// How long each run takes
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// How many messages each run has, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    count: Option<u64>,
    /// The topics are below this one; beside bench/log, bench/work and bench/now nothing is stored
    #[arg(long, default_value = prefix::LOG, value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        let until = match self.count {
            Some(count) => format!("{count} messages"),
            None => format!("{} s", self.seconds.as_secs_f64()),
        };
        format!(
            "QoS {} to {}/..., {} connections x window {}, {} B, {until}",
            self.qos, self.topic, self.connections, self.window, self.size
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        (self.qos > 0 && self.size > 0).then_some(self.size as usize)
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let mut connections = target.connections()?;
        let count = self
            .count
            .unwrap_or(u64::from(u32::MAX) * u64::from(self.connections));
        let message = |number| Message {
            topic: format!("{}/{}/{number}", self.topic, target.run),
            size: self.size as usize,
            qos: QoS::from_u8(self.qos).unwrap_or_default(),
            retain: false,
        };
        let shares = shares(count, self.connections as usize);
        let window = Window::Asked(self.window);
        let crew = Crew::open(target, &mut connections, window, shares, message, |_, p| p)?;
        match self.qos {
            0 => self.unacknowledged(target, &mut connections, crew),
            _ => self.acknowledged(target, &mut connections, crew),
        }
    }
}

impl Args {
    fn acknowledged(
        &self,
        target: &Target,
        connections: &mut Connections,
        mut crew: Crew,
    ) -> Result<Vec<Figure>, Failure> {
        let lead_in = (self.seconds / LEAD_IN_SHARE).min(Duration::from_secs(1));
        if self.count.is_none() {
            // What the broker learns by its first messages is not what is measured.
            let until = Instant::now() + lead_in;
            crew.begin(connections)?;
            run_until(connections, &mut crew, until, &mut Latencies::default())?;
        }
        let (cost, begun, before) = (Cost::begin(target), Instant::now(), crew.acknowledged());
        let mut latencies = Latencies::default();
        match self.count {
            Some(_) => latencies = crew.load(connections)?,
            None => run_until(connections, &mut crew, begun + self.seconds, &mut latencies)?,
        }
        let (took, count) = (begun.elapsed(), crew.acknowledged() - before);
        let (broker, generator) = (cost.broker_micros(count), cost.generator_micros(count));
        // What is still on its way has to be acknowledged too.
        crew.stop();
        while !crew.is_done() {
            run_once(connections, &mut crew, None, &mut Latencies::default())?;
        }
        let figures = [
            Some(figure(
                "messages",
                "/s",
                per_second(count, took.as_secs_f64()),
            )),
            Some(figure("PUBACK p50", "µs", latencies.micros(0.5))),
            Some(figure("PUBACK p99", "µs", latencies.micros(0.99))),
            known("broker CPU per message", "µs", broker),
            known("generator CPU per message", "µs", generator),
        ];
        Ok(figures.into_iter().flatten().collect())
    }

    fn unacknowledged(
        &self,
        target: &Target,
        connections: &mut Connections,
        mut crew: Crew,
    ) -> Result<Vec<Figure>, Failure> {
        let (cost, begun) = (Cost::begin(target), Instant::now());
        let until = match self.count {
            Some(_) => None,
            None => Some(begun + self.seconds),
        };
        let mut stray_take = |_, frame: Frame<'_>, _, _: &mut Out| Err(stray(&frame));
        while !crew.is_done() && until.is_none_or(|until| Instant::now() < until) {
            if !crew.push(connections, QOS_0_BATCH)? {
                // Every socket is full.
                connections.turn("room to publish", until, &mut stray_take)?;
            }
        }
        let count = crew.sent();
        // A PINGRESP says that everything before its PINGREQ was read.
        let mut pings = self.connections;
        for at in 0..self.connections as usize {
            append(&Packet::PingReq, connections.out(at))?;
            connections.flush(at)?;
        }
        connections.turn_until("PINGRESPs", |_, frame, _, _| match frame {
            Frame::Other(packet) if matches!(*packet, Packet::PingResp) => {
                pings -= 1;
                Ok(pings == 0)
            }
            frame => Err(stray(&frame)),
        })?;
        let took = begun.elapsed();
        let figures = [
            Some(figure(
                "messages",
                "/s",
                per_second(count, took.as_secs_f64()),
            )),
            known("broker CPU per message", "µs", cost.broker_micros(count)),
            known(
                "generator CPU per message",
                "µs",
                cost.generator_micros(count),
            ),
        ];
        Ok(figures.into_iter().flatten().collect())
    }
}

fn run_until(
    connections: &mut Connections,
    crew: &mut Crew,
    until: Instant,
    latencies: &mut Latencies,
) -> Result<(), Failure> {
    while Instant::now() < until {
        run_once(connections, crew, Some(until), latencies)?;
    }
    Ok(())
}

fn run_once(
    connections: &mut Connections,
    crew: &mut Crew,
    until: Option<Instant>,
    latencies: &mut Latencies,
) -> Result<(), Failure> {
    let mut take =
        |at, frame: Frame<'_>, now, out: &mut Out| crew.take(at, &frame, now, out, latencies);
    connections.turn("PUBACKs", until, &mut take)?;
    Ok(())
}

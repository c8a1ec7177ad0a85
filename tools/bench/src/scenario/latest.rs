//! `latest`: a subscribe pass over the current values of many topics.

use std::time::Instant;

use saguin_mqtt_codec::QoS;

use super::crew::{Crew, shares, stray};
use super::{Measured, prefix};
use crate::connections::{append, append_puback, connect_packet, granted, subscribe_packet};
use crate::failure::Failure;
use crate::frame::{Delivery, Frame};
use crate::publisher::{Message, Publisher, Window};
use crate::report::{Figure, figure, known, per_second};
use crate::target::{Cost, Target};

/// Connections that fill the topics, and what each has unacknowledged.
const FILLERS: usize = 8;
const WINDOW: Window = Window::AtMost(64);
/// Digits of a topic's number, at the end of the topic.
const DIGITS: usize = 7;

/// What `latest` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Topics
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9_999_999))]
    topics: u32,
    /// Bytes of each value
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(4..=16_777_216))]
    size: u32,
    /// The topics are below this one, which is the latest channel's
    #[arg(long, default_value = prefix::NOW, value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!(
            "{} topics of {} B, filled by {FILLERS} connections x window 64, read by one at QoS 1",
            self.topics, self.size
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.size as usize)
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let filled = self.fill(target)?;
        let mut connections = target.connections()?;
        let (at, _) = connections.open(connect_packet(&target.client("read", 0), false, true)?)?;
        let filter = format!("{}/{}/#", self.topic, target.run);
        let mut came = vec![false; self.topics as usize];
        let mut left = u64::from(self.topics);
        let (cost, begun) = (Cost::begin(target), Instant::now());
        append(
            &subscribe_packet(&filter, QoS::AtLeastOnce)?,
            connections.out(at),
        )?;
        connections.flush(at)?;
        connections.turn_until("the values that have not come", |_, frame, _, out| {
            match frame {
                Frame::Publish(value) => {
                    take(&value, &mut came)?;
                    left -= 1;
                    if value.id != 0 {
                        append_puback(value.id, out);
                    }
                }
                Frame::Other(packet) => granted(&packet)?,
                frame => return Err(stray(&frame)),
            }
            Ok(left == 0)
        })?;
        let took = begun.elapsed().as_secs_f64();
        let topics = u64::from(self.topics);
        let figures = [
            Some(figure("topics filled", "/s", filled)),
            Some(figure("values read", "/s", per_second(topics, took))),
            Some(figure("whole pass", "ms", took * 1e3)),
            known(
                "broker CPU per value read",
                "µs",
                cost.broker_micros(topics),
            ),
        ];
        Ok(figures.into_iter().flatten().collect())
    }
}

impl Args {
    /// Gives every topic a value; how many a second.
    fn fill(&self, target: &Target) -> Result<f64, Failure> {
        let mut connections = target.connections()?;
        let shares = shares(u64::from(self.topics), FILLERS);
        let message = |_| Message {
            topic: format!("{}/{}/{}", self.topic, target.run, "0".repeat(DIGITS)),
            size: self.size as usize,
            qos: QoS::AtLeastOnce,
            // A latest channel keeps it anyway; elsewhere this is what keeps it.
            retain: !target.kind.has_channels(),
        };
        let firsts: Vec<u64> = (0..FILLERS)
            .map(|number| shares.iter().take(number).sum())
            .collect();
        let shape = |number: usize, publisher: Publisher| {
            let first = firsts.get(number).copied().unwrap_or_default();
            publisher.numbered(u32::try_from(first).unwrap_or_default())
        };
        let mut crew = Crew::open(target, &mut connections, WINDOW, shares, message, shape)?;
        let begun = Instant::now();
        crew.load(&mut connections)?;
        Ok(per_second(
            u64::from(self.topics),
            begun.elapsed().as_secs_f64(),
        ))
    }
}

/// Counts a value: its topic's number is its payload's, and it comes once.
fn take(value: &Delivery<'_>, came: &mut [bool]) -> Result<(), Failure> {
    let digits = value.topic.len().saturating_sub(DIGITS);
    let digits = value.topic.get(digits..).map(std::str::from_utf8);
    let number = digits.and_then(|digits| digits.ok()?.parse::<u32>().ok());
    let payload = value
        .payload
        .first_chunk()
        .map(|first| u32::from_be_bytes(*first));
    let place = number.and_then(|number| came.get_mut(number as usize));
    match place {
        Some(came) if number == payload && !*came => {
            *came = true;
            Ok(())
        }
        _ => {
            let topic = String::from_utf8_lossy(value.topic);
            Err(Failure::Broken(format!(
                "the broker delivered {topic:?} twice, or with a value it was not given"
            )))
        }
    }
}

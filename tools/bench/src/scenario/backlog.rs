//! `backlog`: what is stored for sessions that are away, and read when they come back.

use std::time::Instant;

use saguin_mqtt_codec::{Packet, QoS};

use super::crew::{Crew, stray};
use super::tally::Order;
use super::{Measured, prefix};
use crate::connections::{admitted, append_puback, connect_packet};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::publisher::{Message, STAMP, Window};
use crate::report::{Figure, figure, per_second};
use crate::target::Target;

/// What each publisher has unacknowledged.
const WINDOW: Window = Window::AtMost(64);

/// What `backlog` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sessions that are away, each with a topic and a publisher of its own
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Messages for each
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(STAMP as i64..=16_777_216))]
    size: u32,
    /// The topics are below this one
    #[arg(long, default_value = prefix::LOG, value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!(
            "{} sessions that are away x {} messages of {} B at QoS 1",
            self.sessions, self.messages, self.size
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.size as usize)
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        self.leave(target)?;
        let stored = self.fill(target)?;
        let read = self.come_back(target)?;
        let all = u64::from(self.sessions) * u64::from(self.messages);
        Ok(vec![
            figure("messages stored", "/s", per_second(all, stored)),
            figure("messages read on coming back", "/s", per_second(all, read)),
        ])
    }
}

impl Args {
    fn topic(&self, target: &Target, number: usize) -> String {
        format!("{}/{}/{number}", self.topic, target.run)
    }

    /// Every session subscribes and goes.
    fn leave(&self, target: &Target) -> Result<(), Failure> {
        let mut connections = target.connections()?;
        for number in 0..self.sessions as usize {
            let connect = connect_packet(&target.client("away", number), true, true)?;
            let (at, _) = connections.open(connect)?;
            connections.subscribe(at, &self.topic(target, number), QoS::AtLeastOnce)?;
            connections.goodbye(at, false)?;
        }
        Ok(())
    }

    /// Publishes what they are owed; how long it took, seconds.
    fn fill(&self, target: &Target) -> Result<f64, Failure> {
        let mut connections = target.connections()?;
        let shares = vec![u64::from(self.messages); self.sessions as usize];
        let message = |number| Message {
            topic: self.topic(target, number),
            size: self.size as usize,
            qos: QoS::AtLeastOnce,
            retain: false,
        };
        let shape = |_, publisher: crate::publisher::Publisher| publisher.stamped(0);
        let mut crew = Crew::open(target, &mut connections, WINDOW, shares, message, shape)?;
        let begun = Instant::now();
        crew.load(&mut connections)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// All come back at once and read; how long it took, seconds.
    fn come_back(&self, target: &Target) -> Result<f64, Failure> {
        let mut connections = target.connections()?;
        let sessions = self.sessions as usize;
        let begun = Instant::now();
        for number in 0..sessions {
            let connect = connect_packet(&target.client("away", number), true, false)?;
            connections.start(connect)?;
        }
        let mut orders = vec![Order::new(1); sessions];
        let mut left = u64::from(self.sessions) * u64::from(self.messages);
        connections.turn_until("the messages that have not come", |at, frame, _, out| {
            match (frame, orders.get_mut(at)) {
                (Frame::Publish(delivery), Some(order)) => {
                    order.take(delivery.payload)?;
                    append_puback(delivery.id, out);
                    left -= 1;
                }
                (Frame::Other(packet), Some(_)) if matches!(*packet, Packet::ConnAck(_)) => {
                    if !admitted(*packet)?.session_present {
                        return Err(Failure::Broken(
                            "the broker has lost a session it was to keep for an hour".into(),
                        ));
                    }
                }
                (frame, _) => return Err(stray(&frame)),
            }
            Ok(left == 0)
        })?;
        let took = begun.elapsed().as_secs_f64();
        for at in 0..sessions {
            connections.goodbye(at, true)?;
        }
        Ok(took)
    }
}

//! `storm`: many clients connect at once.

use std::time::Instant;

use saguin_mqtt_codec::Packet;

use super::Measured;
use super::crew::stray;
use crate::connections::{admitted, connect_packet};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::latency::Latencies;
use crate::report::{Figure, figure};
use crate::target::Target;

/// What `storm` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Clients
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=25_000))]
    clients: u32,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!("{} clients connect at once", self.clients)
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let mut connections = target.connections()?;
        let mut latencies = Latencies::default();
        let begun = Instant::now();
        for number in 0..self.clients as usize {
            connections.start(connect_packet(
                &target.client("storm", number),
                false,
                true,
            )?)?;
        }
        let mut left = self.clients;
        connections.turn_until("the CONNACKs that have not come", |_, frame, now, _| {
            match frame {
                Frame::Other(packet) if matches!(*packet, Packet::ConnAck(_)) => admitted(*packet)?,
                frame => return Err(stray(&frame)),
            };
            latencies.record(now.saturating_duration_since(begun));
            left -= 1;
            Ok(left == 0)
        })?;
        Ok(vec![
            figure("half of them in", "ms", latencies.micros(0.5) / 1e3),
            figure("all of them in", "ms", latencies.micros(1.0) / 1e3),
        ])
    }
}

//! `idle`: what a connection with one subscription takes of the broker's memory.

use std::thread;
use std::time::{Duration, Instant};

use saguin_mqtt_codec::QoS;

use super::Measured;
use crate::connections::connect_packet;
use crate::failure::Failure;
use crate::report::{Figure, figure, per_second};
use crate::target::Target;

/// A broker gives memory back some time after it used it: it is looked at so often, until it is the same twice.
const SETTLING: Duration = Duration::from_millis(100);
const LOOKS: u32 = 20;

/// What `idle` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Connections, each with one subscription
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=25_000))]
    connections: u32,
    /// The topics are below this one
    #[arg(long, default_value = "bench/idle", value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!(
            "{} connections with one subscription each",
            self.connections
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let before = resident(target)?;
        let mut connections = target.connections()?;
        let begun = Instant::now();
        for number in 0..self.connections as usize {
            let connect = connect_packet(&target.client("idle", number), false, true)?;
            let (at, _) = connections.open(connect)?;
            let filter = format!("{}/{}/{number}", self.topic, target.run);
            connections.subscribe(at, &filter, QoS::AtLeastOnce)?;
        }
        let took = begun.elapsed().as_secs_f64();
        let count = u64::from(self.connections);
        let grown = resident(target)?.saturating_sub(before);
        Ok(vec![
            figure(
                "memory per connection",
                "KiB",
                per_second(grown, 1024.0) / f64::from(self.connections),
            ),
            figure(
                "connected and subscribed, one after the other",
                "/s",
                per_second(count, took),
            ),
        ])
    }
}

/// What the broker has resident once that stands still.
fn resident(target: &Target) -> Result<u64, Failure> {
    let look = || target.process.and_then(|process| process.resident());
    let unknown = || {
        Failure::Options(
            "this scenario looks at the broker's memory: let it be started, or name its process with --broker-pid".into(),
        )
    };
    let mut last = look().ok_or_else(unknown)?;
    for _ in 0..LOOKS {
        thread::sleep(SETTLING);
        let now = look().ok_or_else(unknown)?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

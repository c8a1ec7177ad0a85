//! `recover`: from a start on what SIGKILL left to listening.

use saguin_mqtt_codec::QoS;

use super::crew::{Crew, shares};
use super::{Measured, prefix};
use crate::failure::Failure;
use crate::publisher::{Message, Window};
use crate::report::{Figure, figure};
use crate::target::Target;

/// Connections that fill the log, and what each has unacknowledged.
const FILLERS: usize = 8;
const WINDOW: Window = Window::AtMost(256);

/// What `recover` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records that are stored when the broker is killed
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    records: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    size: u32,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!(
            "SIGKILL and a start with {} records of {} B",
            self.records, self.size
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        target.own()?;
        let mut connections = target.connections()?;
        let shares = shares(u64::from(self.records), FILLERS);
        let message = |number| Message {
            topic: format!("{}/{}/{number}", prefix::LOG, target.run),
            size: self.size as usize,
            qos: QoS::AtLeastOnce,
            retain: false,
        };
        let mut crew = Crew::open(target, &mut connections, WINDOW, shares, message, |_, p| p)?;
        crew.load(&mut connections)?;
        let broker = target.own()?;
        let took = broker.kill_and_start()?.as_secs_f64() * 1e3;
        let resident = broker.process().resident();
        let mut figures = vec![figure("start to listening", "ms", took)];
        #[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
        figures
            .extend(resident.map(|bytes| figure("memory then", "MiB", bytes as f64 / 1048576.0)));
        Ok(figures)
    }
}

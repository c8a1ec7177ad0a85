//! `space`: what a record takes on the disk.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use saguin_mqtt_codec::QoS;

use super::crew::{Crew, shares};
use super::{Measured, prefix};
use crate::cli::Plan;
use crate::failure::Failure;
use crate::publisher::{Message, Window};
use crate::report::{Figure, figure, per_second};
use crate::target::{Source, Target};

/// Connections that fill the log, and what each has unacknowledged.
const FILLERS: usize = 8;
const WINDOW: Window = Window::AtMost(64);

/// What `space` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records, stored twice: what the second time adds is measured
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    records: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    size: u32,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!(
            "{} records of {} B by {FILLERS} connections x window 64; files of 1 MiB, which is how exact it is",
            self.records, self.size
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }

    fn prepare(&self, plan: &mut Plan) {
        for (_, source) in &mut plan.sources {
            if let Source::Start(launch) = source {
                launch.segment_bytes = "1MiB";
            }
        }
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let data = target.own()?.data();
        let topic = |number: usize| format!("{}/{}/{number}", prefix::LOG, target.run);
        let topic_bytes = topic(0).len();
        let mut taken = Vec::new();
        for _ in 0..2 {
            let mut connections = target.connections()?;
            let message = |number| Message {
                topic: topic(number),
                size: self.size as usize,
                qos: QoS::AtLeastOnce,
                retain: false,
            };
            let shares = shares(u64::from(self.records), FILLERS);
            let mut crew = Crew::open(target, &mut connections, WINDOW, shares, message, |_, p| p)?;
            crew.load(&mut connections)?;
            taken.push(
                blocks_of(&data).map_err(Failure::system("look into the data directory"))? * 512,
            );
        }
        let added = match taken[..] {
            [first, second] => second.saturating_sub(first),
            _ => 0,
        };
        let each = per_second(added, f64::from(self.records));
        #[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
        let topic_bytes = topic_bytes as f64;
        Ok(vec![
            figure("disk per record", "B", each),
            figure("beyond its payload", "B", each - f64::from(self.size)),
            figure("of which its topic is", "B", topic_bytes),
        ])
    }
}

/// Blocks of 512 bytes that the files of a directory take.
fn blocks_of(directory: &Path) -> std::io::Result<u64> {
    let mut blocks = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        blocks += match about.is_dir() {
            true => blocks_of(&entry.path())?,
            false => about.blocks(),
        };
    }
    Ok(blocks)
}

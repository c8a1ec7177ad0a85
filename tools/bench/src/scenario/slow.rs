//! `slow`: what a subscriber that stops reading costs a publisher.

use std::time::Duration;

use super::company::{Beside, Company};
use super::{Measured, prefix};
use crate::cli::seconds;
use crate::failure::Failure;
use crate::publisher::STAMP;
use crate::report::Figure;
use crate::target::Target;

/// What `slow` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Publishes a second
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long the publisher is measured alone, and then with the deaf subscriber
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
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
            "a publisher at {}/s, {} B, {} s alone, then as long with a subscriber that does not read",
            self.rate,
            self.size,
            self.seconds.as_secs_f64()
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.size as usize)
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let company = Company {
            beside: Beside::Deaf,
            rate: self.rate,
            seconds: self.seconds,
            size: self.size as usize,
            topic: self.topic.clone(),
        };
        company.measure(target)
    }
}

//! A broker process of one's own, and a client that speaks in packets.
//!
//! Every test starts the built binary on a directory and a port nobody else has. Waiting is for
//! events only; [`PATIENCE`] bounds it so that a failure ends.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its part of this"
)]

mod broker;
mod client;

use std::time::Duration;

pub use broker::{Broker, CHANNELS, ENDS, End, Setup, check, raise};
pub use client::{Answer, Client, Hello, hello, hello_v311, property, return_code, text};

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

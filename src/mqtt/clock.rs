//! The one place where the time is read.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::broker::queue::Clock;
use crate::broker::time::Now;

/// The clocks of the machine.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    start: Instant,
}

impl MonotonicClock {
    /// A clock whose monotonic side begins now.
    #[must_use]
    pub fn start() -> Self {
        MonotonicClock {
            start: Instant::now(),
        }
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Now {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            since_start: self.start.elapsed(),
            unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The clock as the broker takes it.
    #[must_use]
    pub fn handed_in(self) -> Clock {
        Arc::new(move || self.now())
    }

    /// A moment of the monotonic side, as the timer takes it.
    pub(super) fn instant(&self, since_start: Duration) -> tokio::time::Instant {
        (self.start + since_start).into()
    }
}

//! The clock as the broker sees it: handed in, never read.

use std::time::Duration;

/// The present moment, on both clocks. Deadlines use `since_start`, which never steps; what is
/// stored and shown uses `unix_ms`, which may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic time since an arbitrary start of this process.
    pub since_start: Duration,
    /// Wall clock, Unix milliseconds.
    pub unix_ms: u64,
}

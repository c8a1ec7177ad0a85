//! What an operator decides about a queue.

use std::time::Duration;

/// How long a returned job waits before it is offered again, measured from when a worker last had
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Not at all.
    None,
    /// `base × n` after the n-th attempt.
    Linear {
        /// The wait after the first attempt.
        base: Duration,
    },
    /// `base × 2^(n−1)` after the n-th attempt.
    Exponential {
        /// The wait after the first attempt.
        base: Duration,
    },
}

impl Backoff {
    /// The wait after `attempts` attempts; saturates instead of overflowing, and is nothing before
    /// the first attempt.
    #[must_use]
    pub fn after(self, attempts: u32) -> Duration {
        match self {
            _ if attempts == 0 => Duration::ZERO,
            Backoff::None => Duration::ZERO,
            Backoff::Linear { base } => base.saturating_mul(attempts),
            Backoff::Exponential { base } => {
                let factor = 2_u32.checked_pow(attempts - 1);
                factor.map_or_else(
                    || {
                        if base.is_zero() {
                            Duration::ZERO
                        } else {
                            Duration::MAX
                        }
                    },
                    |factor| base.saturating_mul(factor),
                )
            }
        }
    }
}

/// When a job is tried again, and when it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// A job with this many attempts is dead-lettered instead of becoming available. At least 1.
    pub max_attempts: u32,
    /// The wait between attempts.
    pub backoff: Backoff,
}

/// A queue's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How long a worker may hold a job, from the moment its transport acknowledgement arrived
    /// (invariant 7).
    pub visibility_timeout: Duration,
    /// A job older than this, by broker receipt, that is not out with a worker is dead-lettered.
    pub job_expires_after: Option<Duration>,
    /// Attempts and the waits between them.
    pub retry: Retry,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings {
            visibility_timeout: Duration::from_secs(30),
            job_expires_after: None,
            retry: Retry {
                max_attempts: 5,
                backoff: Backoff::None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn backoff_grows_as_it_says() {
        let linear = Backoff::Linear { base: SECOND };
        let exponential = Backoff::Exponential { base: SECOND };
        let waits = |b: Backoff| (0..=4).map(|n| b.after(n).as_secs()).collect::<Vec<_>>();
        assert_eq!(waits(Backoff::None), [0, 0, 0, 0, 0]);
        assert_eq!(waits(linear), [0, 1, 2, 3, 4]);
        assert_eq!(waits(exponential), [0, 1, 2, 4, 8]);
    }

    #[test]
    fn backoff_saturates() {
        for base in [SECOND, Duration::MAX] {
            assert!(Backoff::Exponential { base }.after(u32::MAX) == Duration::MAX);
            assert!(Backoff::Linear { base }.after(u32::MAX) >= base);
        }
        let none = Backoff::Exponential {
            base: Duration::ZERO,
        };
        assert_eq!(none.after(u32::MAX), Duration::ZERO);
    }
}

//! The engine's one answer after any failed write or sync.

use crate::breakage::{self, Breakage};
use crate::sync::{Arc, Mutex, lock};

/// Why the engine keeps nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened, where.
    pub reason: Arc<str>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the log takes no writes until it is reopened: {}",
            self.reason
        )
    }
}

/// Set once, never cleared: after a failed sync nothing is known about what the disk holds, so
/// nothing is acknowledged until a recovery has read it (promise 6).
#[derive(Debug, Default)]
pub(crate) struct Latch {
    failure: Mutex<Option<Failure>>,
}

impl Latch {
    /// Sets the latch; the first failure is the one reported ever after.
    pub(crate) fn set(&self, reason: &str) -> Failure {
        let mut failure = lock(&self.failure);
        failure.get_or_insert_with(|| {
            tracing::error!(
                reason,
                "the log failed and takes no writes until it is reopened"
            );
            Failure {
                reason: reason.into(),
            }
        });
        failure.clone().unwrap_or_else(|| Failure {
            reason: reason.into(),
        })
    }

    /// The failure, if there was one.
    pub(crate) fn get(&self) -> Option<Failure> {
        let failure = lock(&self.failure).clone();
        failure.filter(|_| !breakage::is(Breakage::Unlatched))
    }
}

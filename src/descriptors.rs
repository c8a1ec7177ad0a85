//! File descriptors: as many as the system gives, and no more connections than they are enough for.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors kept from connections: segments, listeners, pipes, and connections being refused.
const RESERVE: u64 = 200;

/// Raises the soft limit of open files to the hard one; returns what is in force, `None` where
/// nothing limits them.
pub(crate) fn raise_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be raised to its hard limit");
            soft
        }
    }
}

/// How many of the `wanted` connections this limit of open files is enough for.
pub(crate) fn connections_within(wanted: usize, limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return wanted };
    let room = usize::try_from(limit.saturating_sub(RESERVE)).unwrap_or(usize::MAX);
    wanted.min(room.max(1))
}

/// Raises the limit of open files and bounds connections by it, with a warning where that is fewer
/// than `wanted`.
pub(crate) fn bound_connections(wanted: usize) -> usize {
    let limit = raise_limit();
    let most = connections_within(wanted, limit);
    if most < wanted {
        tracing::warn!(
            max_connections = wanted,
            open_files = limit,
            "at most {most} connections are taken: raise the hard limit of open files (`ulimit -Hn`, `LimitNOFILE`) to {} for all of max_connections",
            (wanted as u64).saturating_add(RESERVE)
        );
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_reserve_alone() {
        assert_eq!(connections_within(10_000, None), 10_000);
        assert_eq!(connections_within(10_000, Some(1_048_576)), 10_000);
        assert_eq!(connections_within(10_000, Some(10_200)), 10_000);
        assert_eq!(connections_within(10_000, Some(10_199)), 9_999);
        assert_eq!(connections_within(10_000, Some(1024)), 824);
        assert_eq!(connections_within(10_000, Some(10)), 1);
    }
}

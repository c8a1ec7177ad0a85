//! What the system knows of a process.

use std::time::Duration;

/// A process looked at through `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    /// This one.
    pub fn own() -> Self {
        Process(std::process::id())
    }

    /// The CPU time it has used, in the system's ticks of usually 10 ms; nothing where it is not known.
    pub fn cpu(self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        cpu_of(&stat, rustix::param::clock_ticks_per_second())
    }

    /// The memory it has resident, bytes; nothing where it is not known.
    pub fn resident(self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        resident_of(&status)
    }
}

/// User and system time, the 14th and 15th word. The second word is a name that may have anything in it.
fn cpu_of(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    let micros = (user + system).checked_mul(1_000_000)? / ticks_per_second.max(1);
    Some(Duration::from_micros(micros))
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_name_with_anything_in_it() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 9 9 20 0 1 0 5 6 7";
        assert_eq!(cpu_of(stat, 100), Some(Duration::from_secs(3)));
        assert_eq!(cpu_of("7 (a", 100), None);
        assert_eq!(cpu_of("7 (a) S 1", 100), None);
    }

    #[test]
    fn resident_memory_is_read() {
        let status = "Name:\ta\nVmRSS:\t    2048 kB\nThreads:\t1\n";
        assert_eq!(resident_of(status), Some(2 * 1024 * 1024));
        assert_eq!(resident_of("Name:\ta\n"), None);
        assert!(Process::own().resident().unwrap() > 0);
        assert!(Process::own().cpu().is_some());
    }
}

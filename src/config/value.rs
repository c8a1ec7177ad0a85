//! Scalars: durations, sizes, whole numbers, and how they are written back.

use std::time::Duration;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Reads a whole number: digits only, no sign, no leading zero.
pub(super) fn whole(text: &str) -> Result<u64, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a whole number");
    }
    if text.len() > 1 && text.starts_with('0') {
        // Some readers take 010 for eight, others for ten.
        return Err("has a leading zero");
    }
    text.parse().map_err(|_| "is too large a number")
}

/// Reads a size: bytes, or a whole number of `KiB`, `MiB` or `GiB`.
pub(super) fn size(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => return Err("is not a size"),
    };
    whole(number)?
        .checked_mul(factor)
        .ok_or("is too large a size")
}

/// Reads a duration: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = split_unit(text);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("is not a duration"),
    };
    whole(number)?
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or("is too long a duration")
}

fn split_unit(text: &str) -> (&str, &str) {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(digits)
}

/// A size in its largest whole unit.
pub(super) fn show_size(bytes: u64) -> String {
    for (factor, unit) in [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if bytes > 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// A duration in its largest whole unit.
pub(super) fn show_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (factor, unit) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if milliseconds > 0 && milliseconds.is_multiple_of(factor) {
            return format!("{}{unit}", milliseconds / factor);
        }
    }
    format!("{milliseconds}ms")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_what_is_meant() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("1024"), Ok(1024));
        assert_eq!(size("20GiB"), Ok(20 << 30));
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for text in [
            "", "1KB", "1 MiB", "1.5GiB", "-1", "+1", "1_000", "1kib", "010",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
        for text in ["", "5", "1w", "1h30m", "1.5s", "-1s", "05s", "1 s", "1S"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(size("18446744073709551615GiB"), Err("is too large a size"));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(n in any::<u64>(), shift in 0u32..40) {
            let bytes = n << shift >> shift;
            prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
            let period = Duration::from_millis(n >> shift);
            prop_assert_eq!(duration(&show_duration(period)), Ok(period));
        }
    }
}

//! Moments as a seek spells them: so long ago, or a date and time of RFC 3339.

const DAY_MS: i64 = 86_400_000;

/// A moment before `now`: `-12h`, `90m`, `7d`. The sign says nothing. Unix milliseconds; what lies
/// before 1970 is its beginning. `None` where it is no such thing.
pub(super) fn ago(text: &str, now_unix_ms: u64) -> Option<u64> {
    let text = text.strip_prefix('-').unwrap_or(text);
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let ago = number.parse::<u64>().ok()?.checked_mul(unit)?;
    Some(now_unix_ms.saturating_sub(ago))
}

/// A date and time of RFC 3339, `2026-03-01T12:30:00.25+01:00`. Unix milliseconds, cut; what lies
/// before 1970 is its beginning. `None` where it is no such thing.
pub(super) fn rfc_3339(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !text.is_ascii() || separators.iter().any(|(at, c)| bytes.get(*at) != Some(c)) {
        return None;
    }
    if !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (year, month) = (number(text.get(0..4)?)?, number(text.get(5..7)?)?);
    let day = number(text.get(8..10)?)?;
    let (hour, minute) = (number(text.get(11..13)?)?, number(text.get(14..16)?)?);
    let second = number(text.get(17..19)?)?;
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        // A leap second is the beginning of the next minute.
        && second <= 60;
    if !in_range {
        return None;
    }
    let (fraction_ms, zone) = fraction(text.get(19..)?)?;
    let local = ((hour * 60 + minute) * 60 + second) * 1_000 + fraction_ms;
    let unix_ms = days_since_1970(year, month, day) * DAY_MS + local - offset_ms(zone)?;
    Some(u64::try_from(unix_ms).unwrap_or(0))
}

/// Digits and nothing else.
fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Milliseconds of a fraction of a second, if there is one, and what comes after it.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(text) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let thousandths: String = digits.chars().chain("000".chars()).take(3).collect();
    Some((number(&thousandths)?, rest))
}

/// `Z`, or the distance from UTC, in milliseconds.
fn offset_ms(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes() {
        [b'Z' | b'z'] => return Some(0),
        [b'+', _, _, b':', _, _] => 1,
        [b'-', _, _, b':', _, _] => -1,
        _ => return None,
    };
    let (hours, minutes) = (number(zone.get(1..3)?)?, number(zone.get(4..6)?)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes) * 60_000)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the beginning of 1970 to a date, negative before it.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let years_before = year - 1;
    let leap_days = |years: i64| years / 4 - years / 100 + years / 400;
    let to_year = 365 * (year - 1970) + leap_days(years_before) - leap_days(1969);
    let to_month: i64 = (1..month).map(|month| days_in(year, month)).sum();
    to_year + to_month + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_long_ago_with_or_without_a_sign() {
        let now = 1_700_000_000_000;
        for (text, before) in [
            ("-12h", 12 * 3_600_000),
            ("90m", 90 * 60_000),
            ("7d", 7 * 86_400_000),
            ("-250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(ago(text, now), Some(now - before), "{text}");
        }
        assert_eq!(ago("100000d", now), Some(0), "before 1970");
        for text in [
            "",
            "-",
            "h",
            "12",
            "+1h",
            "1.5h",
            "1w",
            "--1h",
            "1h ",
            "99999999999999999999d",
        ] {
            assert_eq!(ago(text, now), None, "{text}");
        }
    }

    #[test]
    fn dates_and_times_of_rfc_3339() {
        for (text, unix_ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14t23:13:20.250+01:00", 1_700_000_000_250),
            ("2023-11-14 20:43:20.2509-01:30", 1_700_000_000_250),
            ("2024-02-29T00:00:00z", 1_709_164_800_000),
            ("2000-03-01T00:00:00.5Z", 951_868_800_500),
            ("1969-12-31T23:59:59Z", 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ] {
            assert_eq!(rfc_3339(text), Some(unix_ms), "{text}");
        }
        for text in [
            "",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13Z",
            "2023-13-14T22:13:20Z",
            "2023-02-29T22:13:20Z",
            "2023-11-14T24:13:20Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+0100",
            "2023-11-14T22:13:20Zz",
            "2023-1é-14T22:13:20Z",
            "-023-11-14T22:13:20Z",
        ] {
            assert_eq!(rfc_3339(text), None, "{text}");
        }
    }
}

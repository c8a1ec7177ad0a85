//! How something from the disk is shown: never as bytes a terminal would obey.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

/// Text in which everything a terminal could take for a command, or that would hide or reorder
/// what stands beside it, is spelled out, as `\u{1b}`; and `\` is `\\`, so that nothing is
/// ambiguous.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}

/// Prints one object on one line.
pub(crate) fn json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(value).map_err(io::Error::from)?;
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        // JSON asks only for the first 32 to be escaped; a terminal obeys others too. Outside of
        // strings there is nothing but printable ASCII.
        if c >= '\x7f' && c.escape_debug().next() == Some('\\') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    writeln!(out, "{safe}")
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// Bytes in base64, with padding (RFC 4648, section 4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit.into() } else { '=' });
        }
    }
    out
}

/// A message id as logs and deliveries spell it.
pub(crate) fn message_id(id: &[u8; 16]) -> String {
    let hex = hex(id);
    let mut out = String::with_capacity(36);
    for (i, c) in hex.chars().enumerate() {
        if matches!(i, 8 | 12 | 16 | 20) {
            out.push('-');
        }
        out.push(c);
    }
    out
}

/// A file without the directory it is in.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Unix milliseconds as RFC 3339 in UTC; `None` beyond the year 9999, which it cannot express.
pub(crate) fn rfc3339(unix_ms: u64) -> Option<String> {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = date(days);
    if year > 9999 {
        return None;
    }
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1000 % 60, ms % 1000);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
    ))
}

/// The Gregorian date so many days after 1970-01-01. Years are counted from March, so that a leap
/// day is the last of its year and every month before it has a fixed place.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + EPOCH;
    let (cycle, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days: 31, 30, 31, 30, 31.
    let from_march = (5 * day + 2) / 153;
    let day = day - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = cycle * 400 + year + u64::from(month <= 2);
    (year, month, day)
}

/// A time for people: both the date and the number it stands for.
pub(crate) fn time(unix_ms: u64) -> String {
    match rfc3339(unix_ms) {
        Some(date) => format!("{date} ({unix_ms})"),
        None => unix_ms.to_string(),
    }
}

/// Prints columns as wide as their widest cell, two spaces apart; those in `right` to the right.
pub(crate) fn table(out: &mut dyn Write, right: &[usize], rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            let _ = if right.contains(&i) {
                write!(line, "{gap}{cell:>width$}")
            } else {
                write!(line, "{gap}{cell:<width$}")
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `1 frame`, `2 frames`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_terminal_obeys_gets_through() {
        let bad = "\x1b[2J\u{9b}31m\u{202e}\u{7f}\r\0";
        let text = escape(bad);
        assert_eq!(text, "\\u{1b}[2J\\u{9b}31m\\u{202e}\\u{7f}\\r\\0");
        let mut json = Vec::new();
        json_line(&mut json, &serde_json::json!({ "a": bad })).unwrap();
        let line = String::from_utf8(json).unwrap();
        assert!(
            line.trim_end().bytes().all(|b| (0x20..0x7f).contains(&b)),
            "{line}"
        );
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["a"], bad, "escaped, not lost");
        assert_eq!(escape("{\"é\": 'ok'} ñ 日本"), "{\"é\": 'ok'} ñ 日本");
    }

    #[test]
    fn json_escapes_beyond_the_basic_plane_as_pairs() {
        // A language tag character: invisible, and two UTF-16 units.
        let mut json = Vec::new();
        json_line(&mut json, &"\u{e0041}").unwrap();
        assert_eq!(json, b"\"\\udb40\\udc41\"\n");
    }

    #[test]
    fn dates_are_right_around_every_kind_of_leap() {
        for (ms, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms).as_deref(), Some(date));
        }
        for beyond in [253_402_300_800_000, u64::MAX] {
            assert_eq!(rfc3339(beyond), None);
        }
    }

    #[test]
    fn base64_has_the_published_test_vectors() {
        let vectors = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (n, expected) in vectors.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..n]), *expected);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let leap =
            |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        let (mut y, mut m, mut d) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(date(days), (y, m, d), "day {days}");
            let length = match m {
                2 if leap(y) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            d += 1;
            if d > length {
                (d, m) = (1, m + 1);
            }
            if m > 12 {
                (m, y) = (1, y + 1);
            }
        }
    }
}

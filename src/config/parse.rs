//! One value against what its key takes.

use std::net::SocketAddr;
use std::path::{Component, Path};
use std::time::Duration;

use super::keys::{Kind, LARGEST, LONGEST};
use super::value;
use super::yaml;
use crate::broker::topic::ChannelFilter;

/// A value that is what its key takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Text(String),
    Flag(bool),
    Whole(u64),
    Size(u64),
    Duration(Duration),
    Address(SocketAddr),
    Filter(ChannelFilter),
    /// `none`.
    Unbounded,
}

/// Reads a scalar as what `kind` takes. The error completes "`broker.id` …".
pub(super) fn parse(kind: &Kind, text: &str, quoted: bool) -> Result<Parsed, String> {
    if !quoted && yaml::is_null(text) {
        return Err("has no value".to_owned());
    }
    let shown = shorten(text);
    match kind {
        Kind::Text { .. } | Kind::Path | Kind::Name | Kind::Filter { .. }
            if !quoted && !yaml::is_string(text) =>
        {
            Err(format!(
                "is `{shown}`, which is not a string without quotes"
            ))
        }
        Kind::Flag { .. } | Kind::Whole { .. } | Kind::Size { .. } | Kind::Duration { .. }
            if quoted && !yaml::is_string(text) =>
        {
            Err(format!("is \"{shown}\", a string: quotes make it one"))
        }
        Kind::Text { max } if text.is_empty() || text.len() > *max => {
            Err(format!("has {} bytes", text.len()))
        }
        Kind::Text { .. } if text.contains(char::is_control) => {
            Err("holds a control character".to_owned())
        }
        Kind::Text { .. } => Ok(Parsed::Text(text.to_owned())),
        Kind::Flag { only } => flag(text, *only),
        Kind::Choice { of, not_yet } => choice(text, of, not_yet),
        Kind::Whole { min, max } => {
            let number = value::whole(text).map_err(|why| format!("is `{shown}`, which {why}"))?;
            within(number, *min, *max, &shown).map(Parsed::Whole)
        }
        Kind::Size { none: true, .. } | Kind::Duration { none: true, .. } if text == "none" => {
            Ok(Parsed::Unbounded)
        }
        Kind::Size { min, max, .. } => {
            let bytes = value::size(text).map_err(|why| format!("is `{shown}`, which {why}"))?;
            within(bytes, *min, *max, &shown).map(Parsed::Size)
        }
        Kind::Duration {
            min,
            max,
            sub_second,
            ..
        } => duration(text, *min, *max, *sub_second),
        Kind::Path => path(text),
        Kind::Address => address(text),
        Kind::Filter { braces } => filter(text, *braces),
        Kind::Name => check_name(text).map(|()| Parsed::Text(text.to_owned())),
        // These never hold a scalar of use; whoever reads the section says what they are.
        Kind::Section | Kind::NotYet | Kind::Refused(_) => {
            Err(format!("is `{shown}`, where a mapping stands"))
        }
    }
}

fn flag(text: &str, only: bool) -> Result<Parsed, String> {
    let value = match text {
        "true" => true,
        "false" => false,
        _ => return Err(format!("is `{}`, which is not a boolean", shorten(text))),
    };
    if value == only {
        Ok(Parsed::Flag(value))
    } else {
        Err(format!(
            "is `{text}`, which is not supported by this version"
        ))
    }
}

fn choice(text: &str, of: &[&str], not_yet: &[&str]) -> Result<Parsed, String> {
    if of.contains(&text) {
        Ok(Parsed::Text(text.to_owned()))
    } else if not_yet.contains(&text) {
        Err(format!(
            "is `{text}`, which is not supported by this version"
        ))
    } else {
        Err(format!("is `{}`, which it does not take", shorten(text)))
    }
}

fn within(number: u64, min: u64, max: u64, shown: &str) -> Result<u64, String> {
    if number < min {
        Err(format!("is `{shown}`, which is too little"))
    } else if number > max {
        Err(format!("is `{shown}`, which is too much"))
    } else {
        Ok(number)
    }
}

fn duration(text: &str, min: u64, max: u64, sub_second: bool) -> Result<Parsed, String> {
    let shown = shorten(text);
    let duration = value::duration(text).map_err(|why| format!("is `{shown}`, which {why}"))?;
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if !sub_second && !milliseconds.is_multiple_of(1_000) {
        return Err(format!("is `{shown}`, which is no whole number of seconds"));
    }
    within(milliseconds, min, max, &shown)?;
    Ok(Parsed::Duration(duration))
}

fn path(text: &str) -> Result<Parsed, String> {
    let shown = shorten(text);
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!("is `{shown}`, which is not absolute"));
    }
    if text.contains('\0') {
        return Err("holds the character U+0000".to_owned());
    }
    // Two spellings of one directory would be two providers on it.
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("is `{shown}`, which goes up by `..`"));
    }
    Ok(Parsed::Text(text.to_owned()))
}

fn address(text: &str) -> Result<Parsed, String> {
    let every_address = text
        .strip_prefix(':')
        .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|port| format!("0.0.0.0:{port}"));
    let shown = shorten(text);
    every_address
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map(Parsed::Address)
        .map_err(|_| {
            let has_port = text.parse::<std::net::IpAddr>().is_err();
            if has_port {
                format!("is `{shown}`, which is not an IP address and a port")
            } else {
                format!("is `{shown}`, which has no port")
            }
        })
}

fn filter(text: &str, braces: bool) -> Result<Parsed, String> {
    let shown = shorten(text);
    let filter = ChannelFilter::parse(text)
        .map_err(|why| format!("is `{shown}`, which cannot be a channel's filter: {why}"))?;
    if filter.has_braces() && !braces {
        return Err(format!(
            "is `{shown}`: a queue has one filter, without braces"
        ));
    }
    Ok(Parsed::Filter(filter))
}

/// The rule for every name an operator chooses.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let shown = shorten(name);
    if name.is_empty() || name.len() > 128 {
        return Err(format!("has {} characters", name.len()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
        return Err(format!(
            "is `{shown}`, which holds `{}`",
            bad.escape_debug()
        ));
    }
    if matches!(name, "." | "..") {
        return Err(format!("is `{shown}`, which names a directory"));
    }
    Ok(())
}

pub(super) const NAME_RULE: &str = "1 to 128 characters of `A-Z a-z 0-9 . _ -`, not `.` or `..`";

/// What a key takes, in words: for remedies and for the documentation.
pub(super) fn takes(kind: &Kind) -> String {
    let or_none = |none: &bool| if *none { ", or `none`" } else { "" };
    match kind {
        Kind::Text { max } => {
            format!("text of 1 to {max} bytes, without control characters")
        }
        Kind::Flag { only } => format!("`{only}`"),
        Kind::Choice { of, .. } => {
            let words: Vec<String> = of.iter().map(|word| format!("`{word}`")).collect();
            words.join(" or ")
        }
        Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Size { min, max, none } => {
            let (least, most) = (value::show_size(*min), value::show_size(*max));
            let range = range(least, most, *max == LARGEST);
            format!("a size {range}{}", or_none(none))
        }
        Kind::Duration { min, max, none, .. } => {
            let show = |ms: &u64| value::show_duration(Duration::from_millis(*ms));
            let range = range(show(min), show(max), *max == LONGEST);
            format!("a duration {range}{}", or_none(none))
        }
        Kind::Path => "an absolute path, without `..`".to_owned(),
        Kind::Address => "an IP address and a port, as `127.0.0.1:1883`".to_owned(),
        Kind::Filter { braces: true } => {
            "an MQTT filter, its first level spelled out; a level may be `{a,b}`".to_owned()
        }
        Kind::Filter { braces: false } => "one MQTT filter, its first level spelled out".to_owned(),
        Kind::Name => format!("a name of {NAME_RULE}"),
        Kind::Section => "a mapping".to_owned(),
        Kind::NotYet | Kind::Refused(_) => "nothing".to_owned(),
    }
}

/// A bound that is only there to keep arithmetic whole is not worth a reader's time.
fn range(least: String, most: String, beyond_use: bool) -> String {
    if beyond_use {
        format!("of {least} or more")
    } else {
        format!("from {least} to {most}")
    }
}

/// As much of a value as a line has room for.
pub(super) fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(64).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

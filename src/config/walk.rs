//! A section of the file against its table: everything wrong with it, and what is right.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::finding::{Finding, Position};
use super::keys::{Key, Kind, Section, WhenAbsent};
use super::parse::{Parsed, parse, shorten, takes};
use super::yaml::{Entry, Node, Value, is_null};
use crate::broker::topic::ChannelFilter;

/// What was read of one section. A key with a finding is missing from it, so that whoever compares
/// two keys compares only what is right in itself.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    path: String,
    at: Position,
    values: HashMap<&'static str, (Parsed, Position)>,
    below: HashMap<&'static str, &'n Node>,
    written: HashSet<&'static str>,
    is_mapping: bool,
}

/// Reads `node` as `section`, which stands at `path` in this file.
pub(super) fn read_section<'n>(
    node: &'n Node,
    section: &'static Section,
    path: &str,
    findings: &mut Vec<Finding>,
) -> Fields<'n> {
    let mut fields = Fields {
        path: path.to_owned(),
        at: node.at,
        values: HashMap::new(),
        below: HashMap::new(),
        written: HashSet::new(),
        is_mapping: false,
    };
    let Some(entries) = entries_of(node, path, findings) else {
        return fields;
    };
    fields.is_mapping = true;
    for entry in entries {
        match section.key(&entry.key) {
            Some(key) => fields.read_entry(key, entry, findings),
            None => findings.push(unknown_key(section, path, entry)),
        }
    }
    for key in section.keys {
        if !fields.is_written(key.name) {
            fields.fill_in(key, findings);
        }
    }
    fields
}

/// The entries of a mapping; anything else is a finding.
pub(super) fn entries_of<'n>(
    node: &'n Node,
    path: &str,
    findings: &mut Vec<Finding>,
) -> Option<&'n [Entry]> {
    let problem = match &node.value {
        Value::Map(entries) => return Some(entries),
        Value::Reported => return None,
        Value::List(_) => format!("{} is a list", name_of(path)),
        Value::Scalar { text, quoted } if !quoted && is_null(text) => {
            format!("{} holds nothing", name_of(path))
        }
        Value::Scalar { text, .. } => format!("{} is `{}`", name_of(path), shorten(text)),
    };
    let remedy = "write a mapping of keys to values there";
    findings.push(Finding::new(node.at, problem, remedy));
    None
}

fn name_of(path: &str) -> String {
    if path.is_empty() {
        "the file".to_owned()
    } else {
        format!("`{path}`")
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn unknown_key(section: &Section, path: &str, entry: &Entry) -> Finding {
    let known: Vec<&str> = section
        .keys
        .iter()
        .filter(|key| !matches!(key.kind, Kind::NotYet | Kind::Refused(_)))
        .map(|key| key.name)
        .collect();
    let near = known
        .iter()
        .filter(|name| distance(name, &entry.key) <= 2)
        .min_by_key(|name| distance(name, &entry.key));
    let remedy = match near {
        Some(name) => format!("write `{name}`"),
        None => format!("write one of {}", known.join(", ")),
    };
    let full = shorten(&join(path, &entry.key));
    Finding::new(entry.at, format!("there is no key `{full}`"), remedy)
}

/// How many characters apart two names are.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl<'n> Fields<'n> {
    fn read_entry(&mut self, key: &'static Key, entry: &'n Entry, findings: &mut Vec<Finding>) {
        self.written.insert(key.name);
        let full = join(&self.path, key.name);
        match (&key.kind, &entry.node.value) {
            (Kind::NotYet, _) => findings.push(Finding::new(
                entry.at,
                format!("`{full}` is not supported by this version"),
                "leave it out",
            )),
            (Kind::Refused(why), _) => findings.push(Finding::new(
                entry.at,
                format!("`{full}` does not belong here: {why}"),
                "leave it out",
            )),
            (Kind::Section, _) => {
                self.below.insert(key.name, &entry.node);
            }
            (_, Value::Reported) => {}
            (kind, Value::Scalar { text, quoted }) => match parse(kind, text, *quoted) {
                Ok(parsed) => {
                    self.values.insert(key.name, (parsed, entry.node.at));
                }
                Err(problem) => findings.push(Finding::new(
                    entry.node.at,
                    format!("`{full}` {problem}"),
                    remedy(kind, text),
                )),
            },
            (kind, Value::List(_) | Value::Map(_)) => findings.push(Finding::new(
                entry.node.at,
                format!("`{full}` is a list or a mapping"),
                format!("write {}", takes(kind)),
            )),
        }
    }

    fn fill_in(&mut self, key: &'static Key, findings: &mut Vec<Finding>) {
        match key.default {
            WhenAbsent::Absent(_) => {}
            WhenAbsent::Is(text) => {
                // A default is checked like anything written; a test reads them all.
                if let Ok(parsed) = parse(&key.kind, text, false) {
                    self.values.insert(key.name, (parsed, self.at));
                }
            }
            WhenAbsent::Required => {
                let full = join(&self.path, key.name);
                let what = takes(&key.kind);
                findings.push(Finding::new(
                    self.at,
                    format!("`{full}` is missing"),
                    format!("write `{}:` and {what}", key.name),
                ));
            }
        }
    }

    /// Whether the section itself could be read, whatever its keys hold.
    pub(super) fn is_mapping(&self) -> bool {
        self.is_mapping
    }

    /// Whether the file holds the key, right or wrong.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.written.contains(name)
    }

    /// The section below, where it is written.
    pub(super) fn section(&self, name: &str) -> Option<&'n Node> {
        self.below.get(name).copied()
    }

    /// Where a value stands; where the section does, for a default.
    pub(super) fn at(&self, name: &str) -> Position {
        self.values.get(name).map_or(self.at, |(_, at)| *at)
    }

    fn value(&self, name: &str) -> Option<&Parsed> {
        self.values.get(name).map(|(parsed, _)| parsed)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Parsed::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name) {
            Some(Parsed::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Parsed::Whole(number)) => Some(*number),
            _ => None,
        }
    }

    /// A count of things held in memory.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        usize::try_from(self.whole(name)?).ok()
    }

    pub(super) fn size(&self, name: &str) -> Option<u64> {
        self.size_or_none(name).flatten()
    }

    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        self.duration_or_none(name).flatten()
    }

    /// `Some(None)` is a written `none`; `None` is absent, or wrong.
    pub(super) fn size_or_none(&self, name: &str) -> Option<Option<u64>> {
        match self.value(name)? {
            Parsed::Size(bytes) => Some(Some(*bytes)),
            Parsed::Unbounded => Some(None),
            _ => None,
        }
    }

    /// As [`Fields::size_or_none`].
    pub(super) fn duration_or_none(&self, name: &str) -> Option<Option<Duration>> {
        match self.value(name)? {
            Parsed::Duration(duration) => Some(Some(*duration)),
            Parsed::Unbounded => Some(None),
            _ => None,
        }
    }

    pub(super) fn address(&self, name: &str) -> Option<SocketAddr> {
        match self.value(name) {
            Some(Parsed::Address(address)) => Some(*address),
            _ => None,
        }
    }

    pub(super) fn filter(&self, name: &str) -> Option<&ChannelFilter> {
        match self.value(name) {
            Some(Parsed::Filter(filter)) => Some(filter),
            _ => None,
        }
    }
}

fn remedy(kind: &Kind, text: &str) -> String {
    let unit_hint = match kind {
        Kind::Size { .. } if text.ends_with('B') || text.ends_with(['k', 'K', 'M', 'G']) => {
            "; units are KiB, MiB and GiB"
        }
        Kind::Duration { .. } => "; units are ms, s, m, h and d",
        _ => "",
    };
    format!("write {}{unit_hint}", takes(kind))
}

//! `docs/configuration.md`, written from the tables so that it cannot say anything else.

use super::keys::{Key, Kind, SECTIONS, Section, WhenAbsent};
use super::parse::takes;

const HEAD: &str = "\
# The configuration file

One YAML document, named by `--config`. It is checked whole before anything starts: every finding is
reported at once, with its line and what to write instead, and then nothing starts. `--check-config`
does the same and nothing else; with `--output` it prints the configuration with every default
spelled out, as a document that loads to itself. `examples/quickstart.yaml` is a file to begin with.

A duration is a whole number and one of `ms`, `s`, `m`, `h`, `d`, as `90m`; only where a range
begins below a second may it have a part of one. A size is a whole number of bytes, or of `KiB`,
`MiB` or `GiB`. A number has no leading zero, and in quotes it is text. Paths are absolute. A name
is 1 to 128 characters of `A-Z a-z 0-9 . _ -` and not `.` or `..`; a channel's does not end in
`__dlq`.

Refused wherever they stand: unknown keys, keys written twice, keys that are not strings, anchors,
aliases, merge keys, tags, directives, a second document, and a file of more than 4 MiB.
";

const TAIL: &str = "
## Which channel holds a topic

Of the filters that match a topic, the most exact decides: from the left, at the first level where
two differ, a spelled-out level beats `+`, `+` beats `#`, and a filter that ends beats one going on
with `#`. The order of the file decides nothing. A topic that no filter matches is broadcast.
`--route` answers for a topic, and says for a filter which channels it is served from.

A channel's filter spells its first level out and does not begin it with `$`. No filter spells the
level `__dlq`: every queue `q` brings an append channel `q__dlq` in the same provider, whose filter
is the queue's with one level `__dlq` before a final `#`, else at the end. `jobs/a` of the queue
`jobs/#` has the dead letter `jobs/__dlq/a`.

## What must agree

* Two channels carry no filter in common, once braces stand for each of their alternatives (at most
  1024 for one filter) and dead-letter filters are counted. The finding names both.
* A filter is no longer and no deeper than `max_topic_length` and `max_topic_levels`.
* Every `storage` names a provider there is. Two providers do not share a directory.
* Two listeners share neither a name nor a port of one address.
* `session_queue_bytes` is at least `max_message_size`.
* A provider's `max_bytes` is at least four of the largest records that `max_message_size` and
  `max_header_bytes` allow, each with 256KiB for its topic and the like.
* `visibility_timeout` is shorter than `job_expires_after`.
* `publish_commit_interval` as a duration and `publish_commit_max_records` stand together; `none` stands
  alone.
* `backoff_base` is there if `backoff` is `linear` or `exponential`, and only then.

A provider that no channel uses is warned of, not refused.
";

/// The text of `docs/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = HEAD.to_owned();
    for (heading, section) in SECTIONS {
        text.push_str(&section_text(heading, section));
    }
    text.push_str(TAIL);
    text
}

fn section_text(heading: &str, section: &Section) -> String {
    let mut text = format!(
        "\n## {heading}\n\n{}\n\n| key | takes | default | |\n|---|---|---|---|\n",
        section.about
    );
    for key in section.keys {
        if !matches!(key.kind, Kind::NotYet | Kind::Refused(_)) {
            text.push_str(&row(key));
        }
    }
    let not_yet: Vec<String> = section
        .keys
        .iter()
        .filter(|key| matches!(key.kind, Kind::NotYet))
        .map(|key| format!("`{}`", key.name))
        .chain(section.keys.iter().flat_map(values_not_yet))
        .collect();
    if !not_yet.is_empty() {
        let list = not_yet.join(", ");
        text.push_str(&format!(
            "\nRefused, not supported by this version: {list}.\n"
        ));
    }
    let mut reasons: Vec<(&str, Vec<String>)> = vec![];
    for key in section.keys {
        if let Kind::Refused(why) = key.kind {
            let name = format!("`{}`", key.name);
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
    }
    for (index, (why, names)) in reasons.iter().enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        text.push_str(&format!("{gap}* Refused: {}: {why}.\n", names.join(", ")));
    }
    text
}

fn row(key: &Key) -> String {
    let default = match key.default {
        WhenAbsent::Required => "required".to_owned(),
        WhenAbsent::Is(value) => format!("`{value}`"),
        WhenAbsent::Absent(words) => words.to_owned(),
    };
    let takes = match key.kind {
        Kind::Name => "a name".to_owned(),
        _ => takes(&key.kind),
    };
    format!("| `{}` | {takes} | {default} | {} |\n", key.name, key.about)
}

fn values_not_yet(key: &Key) -> Vec<String> {
    match key.kind {
        Kind::Choice { not_yet, .. } => not_yet
            .iter()
            .map(|value| format!("`{}: {value}`", key.name))
            .collect(),
        Kind::Flag { only } => vec![format!("`{}: {}`", key.name, !only)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::reference;

    /// `SAGUIN_WRITE_DOCS=1 cargo test` writes the page anew.
    #[test]
    fn the_page_says_what_the_tables_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        if std::env::var_os("SAGUIN_WRITE_DOCS").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == reference(),
            "docs/configuration.md is not current; run the tests with SAGUIN_WRITE_DOCS=1"
        );
    }
}

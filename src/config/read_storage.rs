//! `broker.storage`, from the tree to [`Storage`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::finding::{Finding, Position};
use super::keys;
use super::model::{Durability, Limits, LogProvider, PublishCommit, Storage};
use super::parse::{NAME_RULE, check_name};
use super::walk::{Fields, entries_of, join, read_section};
use super::yaml::{Node, Value};

pub(super) fn read_storage(
    node: &Node,
    limits: Option<&Limits>,
    findings: &mut Vec<Finding>,
) -> Option<Storage> {
    let path = "broker.storage";
    let fields = read_section(node, &keys::STORAGE, path, findings);
    let providers = fields
        .section("providers")
        .and_then(|node| read_providers(node, limits, findings));
    let default = fields.text("default").map(str::to_owned);
    if let (Some(default), Some(providers)) = (&default, &providers) {
        check_provider(
            &join(path, "default"),
            default,
            fields.at("default"),
            providers.names.iter().map(String::as_str),
            findings,
        );
    }
    let providers = providers?;
    Some(Storage {
        default: default.unwrap_or_default(),
        default_retention_period: fields.duration("default_retention_period"),
        default_retention_bytes: fields.size("default_retention_bytes"),
        // With a finding the result is dropped; what is checked later needs every name.
        providers: providers.all(),
    })
}

/// The providers that could be read, and the names of those that could not as well: a channel that
/// names one of them is not wrong too.
struct Providers {
    names: Vec<String>,
    read: Vec<LogProvider>,
}

impl Providers {
    fn all(self) -> Vec<LogProvider> {
        let mut all = self.read;
        for name in self.names {
            if !all.iter().any(|provider| provider.name == name) {
                all.push(LogProvider {
                    name,
                    log_dir: PathBuf::new(),
                    durability: Durability::Sync,
                    flush_interval: Duration::ZERO,
                    publish_commit: None,
                    segment_bytes: 0,
                    tail_cache_bytes: 0,
                });
            }
        }
        all
    }
}

fn read_providers(
    node: &Node,
    limits: Option<&Limits>,
    findings: &mut Vec<Finding>,
) -> Option<Providers> {
    let path = "broker.storage.providers";
    if matches!(node.value, Value::List(_)) {
        findings.push(Finding::new(
            node.at,
            format!("a list of `{path}` is not supported by this version"),
            "write a mapping of names to providers",
        ));
        return None;
    }
    let entries = entries_of(node, path, findings)?;
    if entries.is_empty() {
        findings.push(Finding::new(
            node.at,
            format!("`{path}` is empty"),
            "write at least one provider",
        ));
        return None;
    }
    let mut providers = Providers {
        names: vec![],
        read: vec![],
    };
    let mut directories: HashMap<PathBuf, (String, usize)> = HashMap::new();
    for entry in entries {
        let path = join(path, &entry.key);
        providers.names.push(entry.key.clone());
        if let Err(problem) = check_name(&entry.key) {
            findings.push(Finding::new(
                entry.at,
                format!("the provider's name {problem}"),
                format!("write {NAME_RULE}"),
            ));
        }
        let before = findings.len();
        if let Some(type_name) = unsupported_type(&entry.node) {
            findings.push(Finding::new(
                entry.at,
                format!(
                    "`{path}` is of type `{type_name}`, which is not supported by this version"
                ),
                "write `type: log`",
            ));
            continue;
        }
        let fields = read_section(&entry.node, &keys::LOG_PROVIDER, &path, findings);
        if let Some(log_dir) = fields.text("log_dir") {
            let directory: PathBuf = Path::new(log_dir).components().collect();
            let here = (entry.key.clone(), fields.at("log_dir").line);
            if let Some((other, line)) = directories.insert(directory, here) {
                findings.push(Finding::new(
                    fields.at("log_dir"),
                    format!(
                        "the providers `{other}` (line {line}) and `{}` share the directory \
                         `{log_dir}`",
                        entry.key
                    ),
                    "give each a directory of its own",
                ));
            }
        }
        let commit = publish_commit(&path, &fields, limits, findings);
        if findings.len() == before {
            providers.read.extend(provider(&entry.key, &fields, commit));
        }
    }
    Some(providers)
}

/// The type of a provider of the language that this version does not have. Its other keys are not
/// looked at: they are right or wrong by rules this version does not know.
fn unsupported_type(node: &Node) -> Option<&str> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let entry = entries.iter().find(|entry| entry.key == "type")?;
    match &entry.node.value {
        Value::Scalar { text, .. } if matches!(text.as_str(), "sqlite" | "memory") => Some(text),
        _ => None,
    }
}

/// How a commit waits for company: both keys or neither.
fn publish_commit(
    path: &str,
    fields: &Fields<'_>,
    limits: Option<&Limits>,
    findings: &mut Vec<Finding>,
) -> Option<PublishCommit> {
    let (interval_key, records_key) = ("publish_commit_interval", "publish_commit_max_records");
    for (there, other) in [(interval_key, records_key), (records_key, interval_key)] {
        if fields.is_written(there) && !fields.is_written(other) {
            findings.push(Finding::new(
                fields.at(there),
                format!("`{path}.{there}` stands without `{other}`"),
                format!("write `{other}` too, or leave both out"),
            ));
            return None;
        }
    }
    let max_records = fields.count(records_key)?;
    if let Some(limits) = limits
        && max_records > limits.max_connections
    {
        findings.push(Finding::new(
            fields.at(records_key),
            format!(
                "`{path}.{records_key}` ({max_records}) is more than \
                 `broker.limits.max_connections` ({}): so many never publish at once",
                limits.max_connections
            ),
            format!("write 2 to {}", limits.max_connections),
        ));
    }
    Some(PublishCommit {
        interval: fields.duration(interval_key)?,
        max_records,
    })
}

fn provider(
    name: &str,
    fields: &Fields<'_>,
    publish_commit: Option<PublishCommit>,
) -> Option<LogProvider> {
    Some(LogProvider {
        name: name.to_owned(),
        log_dir: Path::new(fields.text("log_dir")?).components().collect(),
        durability: Durability::from_word(fields.text("durability")?),
        flush_interval: fields.duration("flush_interval")?,
        publish_commit,
        segment_bytes: fields.size("segment_bytes")?,
        tail_cache_bytes: fields.size("tail_cache_bytes")?,
    })
}

/// Reports a provider that is named and not there.
pub(super) fn check_provider<'p>(
    path: &str,
    name: &str,
    at: Position,
    mut providers: impl Iterator<Item = &'p str> + Clone,
    findings: &mut Vec<Finding>,
) {
    if !providers.clone().any(|provider| provider == name) {
        let first = providers.next().unwrap_or_default().to_owned();
        let known = providers.fold(first, |list, name| format!("{list}, {name}"));
        findings.push(Finding::new(
            at,
            format!("`{path}` names the provider `{name}`, which there is not"),
            format!("write one of {known}"),
        ));
    }
}

//! `channels`, from the tree to [`Channel`]s, and what they must agree on.

use std::collections::HashMap;

use super::finding::{Finding, Position};
use super::keys::{self, Section};
use super::model::{
    AppendSettings, Backoff, Channel, ChannelSettings, Durability, LatestSettings, QueueSettings,
    Retry, Start,
};
use super::parse::{NAME_RULE, check_name, shorten};
use super::read_broker::{Known, absent_section};
use super::read_storage::check_provider;
use super::value::show_duration;
use super::walk::{Fields, entries_of, join, read_section};
use super::yaml::{Entry, Node, Value};
use crate::broker::topic::{
    ChannelFilter, DEAD_LETTER_LEVEL, TopicFilter, TopicLimits, dead_letter_channel_name,
    dead_letter_filter,
};
use crate::storage::ChannelKind;

/// A channel's filter, whatever else is wrong with the channel.
struct Claim {
    name: String,
    filter: ChannelFilter,
    at: Position,
    queue: bool,
}

pub(super) fn read_channels(
    node: &Node,
    known: Known<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<Channel> {
    if matches!(node.value, Value::List(_)) {
        findings.push(Finding::new(
            node.at,
            "a list of `channels` is not supported by this version",
            "write a mapping of names to channels",
        ));
        return vec![];
    }
    let Some(entries) = entries_of(node, "channels", findings) else {
        return vec![];
    };
    let mut channels = vec![];
    let mut claims = vec![];
    for entry in entries {
        channels.extend(read_channel(entry, known, &mut claims, findings));
    }
    check_same_filters(&claims, findings);
    channels
}

fn read_channel(
    entry: &Entry,
    known: Known<'_>,
    claims: &mut Vec<Claim>,
    findings: &mut Vec<Finding>,
) -> Option<Channel> {
    let name_is_good = check_channel_name(entry, findings);
    let path = join("channels", &shorten(&entry.key));
    let kind = kind_of(entry, &path, findings)?;
    let fields = read_section(&entry.node, section_of(kind), &path, findings);

    let filter = match fields.filter("filter") {
        Some(filter) => Some(filter.clone()),
        None if fields.is_written("filter") || !name_is_good => None,
        None => ChannelFilter::parse(&format!("{}/#", entry.key)).ok(),
    };
    if let Some(filter) = &filter {
        if let Some(limits) = known.limits {
            check_depth(
                &path,
                filter,
                fields.at("filter"),
                limits.topics(),
                findings,
            );
        }
        claims.push(Claim {
            name: entry.key.clone(),
            filter: filter.clone(),
            at: if fields.is_written("filter") {
                fields.at("filter")
            } else {
                entry.at
            },
            queue: kind == ChannelKind::Queue,
        });
    }
    if let (Some(name), Some(storage)) = (fields.text("storage"), known.storage) {
        let providers = storage.providers.iter().map(|p| p.name.as_str());
        let path = join(&path, "storage");
        check_provider(&path, name, fields.at("storage"), providers, findings);
    }
    let settings = match kind {
        ChannelKind::Append => ChannelSettings::Append(read_append(&fields, known)?),
        ChannelKind::Latest => ChannelSettings::Latest(read_latest(&fields, known)?),
        ChannelKind::Queue => ChannelSettings::Queue(read_queue(&fields, &path, known, findings)?),
    };
    let default_storage = known.storage.map(|storage| storage.default.as_str());
    let storage = fields.text("storage").or(default_storage)?.to_owned();
    let providers = known.storage.map(|s| s.providers.as_slice());
    let mut providers = providers.unwrap_or_default().iter();
    let provider = providers.find(|provider| provider.name == storage);
    let of_provider = provider.map_or(Durability::Sync, |provider| provider.durability);
    Some(Channel {
        name: entry.key.clone(),
        filter: filter?,
        storage,
        durability: fields
            .text("durability")
            .map_or(of_provider, Durability::from_word),
        settings,
    })
}

fn check_channel_name(entry: &Entry, findings: &mut Vec<Finding>) -> bool {
    if let Err(problem) = check_name(&entry.key) {
        findings.push(Finding::new(
            entry.at,
            format!("the channel's name {problem}"),
            format!("write {NAME_RULE}"),
        ));
        return false;
    }
    if entry.key.ends_with(DEAD_LETTER_LEVEL) {
        findings.push(Finding::new(
            entry.at,
            format!(
                "the channel's name `{}` ends in `{DEAD_LETTER_LEVEL}`",
                entry.key
            ),
            "choose another: the broker names the dead letters of a queue so",
        ));
        return false;
    }
    true
}

/// Which table a channel's keys are read by.
fn section_of(kind: ChannelKind) -> &'static Section {
    match kind {
        ChannelKind::Append => &keys::APPEND,
        ChannelKind::Latest => &keys::LATEST,
        ChannelKind::Queue => &keys::QUEUE,
    }
}

fn kind_of(entry: &Entry, path: &str, findings: &mut Vec<Finding>) -> Option<ChannelKind> {
    let entries = entries_of(&entry.node, path, findings)?;
    let Some(type_entry) = entries.iter().find(|entry| entry.key == "type") else {
        findings.push(Finding::new(
            entry.node.at,
            format!("`{path}.type` is missing"),
            "write `type: append`, `type: latest` or `type: queue`",
        ));
        return None;
    };
    let Value::Scalar { text, .. } = &type_entry.node.value else {
        findings.push(Finding::new(
            type_entry.node.at,
            format!("`{path}.type` is not a word"),
            "write `append`, `latest` or `queue`",
        ));
        return None;
    };
    match text.as_str() {
        "append" => Some(ChannelKind::Append),
        "latest" => Some(ChannelKind::Latest),
        "queue" => Some(ChannelKind::Queue),
        other => {
            findings.push(Finding::new(
                type_entry.node.at,
                format!(
                    "`{path}.type` is `{}`, which is no type of channel",
                    shorten(other)
                ),
                "write `append`, `latest` or `queue`",
            ));
            None
        }
    }
}

fn check_depth(
    path: &str,
    filter: &ChannelFilter,
    at: Position,
    limits: TopicLimits,
    findings: &mut Vec<Finding>,
) {
    if filter.depth() > limits.max_levels {
        findings.push(Finding::new(
            at,
            format!(
                "`{path}.filter` has {} levels, `broker.limits.max_topic_levels` is {}",
                filter.depth(),
                limits.max_levels
            ),
            "write a filter of fewer levels, or raise the limit",
        ));
    }
    let longest = filter
        .plain()
        .iter()
        .map(|plain| plain.as_str().len())
        .max();
    if longest > Some(limits.max_length) {
        findings.push(Finding::new(
            at,
            format!(
                "`{path}.filter` has {} bytes, `broker.limits.max_topic_length` is {}",
                longest.unwrap_or_default(),
                limits.max_length
            ),
            "write a shorter filter, or raise the limit",
        ));
    }
}

fn read_append(fields: &Fields<'_>, known: Known<'_>) -> Option<AppendSettings> {
    let storage = known.storage?;
    Some(AppendSettings {
        retention_period: fields
            .duration_or_none("retention_period")
            .unwrap_or(storage.default_retention_period),
        retention_bytes: fields
            .size_or_none("retention_bytes")
            .unwrap_or(storage.default_retention_bytes),
        max_bytes: fields.size_or_none("max_bytes")?,
        start: match fields.text("start")? {
            "tail" => Start::Tail,
            _ => Start::Floor,
        },
    })
}

fn read_latest(fields: &Fields<'_>, known: Known<'_>) -> Option<LatestSettings> {
    Some(LatestSettings {
        retention_period: fields
            .duration_or_none("retention_period")
            .unwrap_or(known.storage?.default_retention_period),
        deletion_retention_period: fields.duration("deletion_retention_period")?,
    })
}

fn read_queue(
    fields: &Fields<'_>,
    path: &str,
    known: Known<'_>,
    findings: &mut Vec<Finding>,
) -> Option<QueueSettings> {
    let absent = absent_section(fields.at("retry"));
    let retry_path = join(path, "retry");
    let retry_node = fields.section("retry").unwrap_or(&absent);
    let retry = read_retry(retry_node, &retry_path, findings);

    let visibility_timeout = fields.duration("visibility_timeout");
    let job_expires_after = fields.duration_or_none("job_expires_after");
    if let (Some(visibility), Some(Some(expiry))) = (visibility_timeout, job_expires_after)
        && visibility >= expiry
    {
        findings.push(Finding::new(
            fields.at("job_expires_after"),
            format!(
                "`{path}.visibility_timeout` ({}) is not shorter than `job_expires_after` ({}): \
                 every job would expire in its worker's hands",
                show_duration(visibility),
                show_duration(expiry)
            ),
            "write a shorter `visibility_timeout` or a longer `job_expires_after`",
        ));
    }
    let storage = known.storage?;
    Some(QueueSettings {
        max_bytes: fields.size_or_none("max_bytes")?,
        visibility_timeout: visibility_timeout?,
        job_expires_after: job_expires_after?,
        retry: retry?,
        dlq_retention_period: fields
            .duration_or_none("dlq_retention_period")
            .unwrap_or(storage.default_retention_period),
        dlq_retention_bytes: fields
            .size_or_none("dlq_retention_bytes")
            .unwrap_or(storage.default_retention_bytes),
    })
}

fn read_retry(node: &Node, path: &str, findings: &mut Vec<Finding>) -> Option<Retry> {
    let fields = read_section(node, &keys::RETRY, path, findings);
    let base = fields.duration("backoff_base");
    let backoff = match (fields.text("backoff")?, base) {
        ("none", None) if !fields.is_written("backoff_base") => Backoff::None,
        ("none", _) => {
            findings.push(Finding::new(
                fields.at("backoff_base"),
                format!("`{path}.backoff_base` is the base of no `backoff`"),
                "write `backoff: linear` or `backoff: exponential`, or leave it out",
            ));
            return None;
        }
        ("linear", Some(base)) => Backoff::Linear { base },
        ("exponential", Some(base)) => Backoff::Exponential { base },
        (word, _) => {
            if !fields.is_written("backoff_base") {
                findings.push(Finding::new(
                    fields.at("backoff"),
                    format!("`{path}.backoff` is `{word}`, and there is no `backoff_base`"),
                    "write `backoff_base:` and a duration",
                ));
            }
            return None;
        }
    };
    Some(Retry {
        max_attempts: u32::try_from(fields.whole("max_attempts")?).ok()?,
        backoff,
    })
}

/// Invariant 12: one filter, one channel. Dead-letter filters are channels' filters too.
fn check_same_filters(claims: &[Claim], findings: &mut Vec<Finding>) {
    let mut first: HashMap<TopicFilter, (String, Position)> = HashMap::new();
    for claim in claims {
        let own = claim.filter.plain().iter();
        let own = own.map(|filter| (filter.clone(), claim.name.clone()));
        let derived = claim
            .filter
            .plain()
            .iter()
            .filter(|_| claim.queue)
            .map(|filter| {
                (
                    dead_letter_filter(filter),
                    dead_letter_channel_name(&claim.name),
                )
            });
        for (filter, name) in own.chain(derived) {
            match first.get(&filter) {
                Some((other, at)) => findings.push(Finding::new(
                    claim.at,
                    format!(
                        "the channels `{other}` (line {}) and `{name}` both carry the filter \
                         `{filter}`",
                        at.line
                    ),
                    "give each a filter of its own",
                )),
                None => {
                    first.insert(filter, (name, claim.at));
                }
            }
        }
    }
}

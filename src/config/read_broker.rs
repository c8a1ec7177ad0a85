//! `broker`, from the tree to [`Broker`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::finding::{Finding, Position};
use super::keys;
use super::model::{
    Broker, Durability, Limits, LogLevel, LogProvider, Mqtt, ProtocolVersion, Session, Storage,
    TcpListener,
};
use super::parse::{NAME_RULE, check_name};
use super::value::show_size;
use super::walk::{Fields, entries_of, join, read_section};
use super::yaml::{Node, Value};

/// A section nobody wrote: empty, so that its defaults are filled in.
pub(super) fn absent_section(at: Position) -> Node {
    Node {
        at,
        value: Value::Map(vec![]),
    }
}

/// What of `broker` could be read. A mistake in one part hides none in what depends on another.
#[derive(Default)]
pub(super) struct BrokerParts {
    id: Option<String>,
    log_level: Option<LogLevel>,
    mqtt: Option<Mqtt>,
    storage: Option<Storage>,
    session: Option<Session>,
    limits: Option<Limits>,
}

/// What the channels are checked against.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) storage: Option<&'a Storage>,
    pub(super) limits: Option<&'a Limits>,
}

impl BrokerParts {
    pub(super) fn known(&self) -> Known<'_> {
        Known {
            storage: self.storage.as_ref(),
            limits: self.limits.as_ref(),
        }
    }

    pub(super) fn whole(self) -> Option<Broker> {
        Some(Broker {
            id: self.id?,
            log_level: self.log_level?,
            mqtt: self.mqtt?,
            storage: self.storage?,
            session: self.session?,
            limits: self.limits?,
        })
    }
}

pub(super) fn read_broker(node: &Node, findings: &mut Vec<Finding>) -> BrokerParts {
    let fields = read_section(node, &keys::BROKER, "broker", findings);
    if !fields.is_mapping() {
        return BrokerParts::default();
    }
    let absent = absent_section(node.at);
    let mqtt = read_mqtt(fields.section("mqtt").unwrap_or(&absent), findings);
    let limits = read_limits(fields.section("limits").unwrap_or(&absent), findings);
    let storage = fields
        .section("storage")
        .and_then(|node| read_storage(node, limits.as_ref(), findings));
    let session_node = fields.section("session").unwrap_or(&absent);
    let session = read_session(session_node, storage.as_ref(), findings);
    BrokerParts {
        id: fields.text("id").map(str::to_owned),
        log_level: fields.text("log_level").map(log_level),
        mqtt,
        storage,
        session,
        limits,
    }
}

fn log_level(word: &str) -> LogLevel {
    match word {
        "debug" => LogLevel::Debug,
        "warn" => LogLevel::Warn,
        "error" => LogLevel::Error,
        _ => LogLevel::Info,
    }
}

fn read_mqtt(node: &Node, findings: &mut Vec<Finding>) -> Option<Mqtt> {
    let fields = read_section(node, &keys::MQTT, "broker.mqtt", findings);
    let listeners = match fields.section("listen") {
        Some(listen) => read_listen(listen, findings),
        None => Some(vec![TcpListener {
            name: "tcp".to_owned(),
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 1883),
        }]),
    };
    Some(Mqtt {
        listeners: listeners?,
        allow_anonymous: fields.flag("allow_anonymous")?,
        min_protocol_version: match fields.text("min_protocol_version")? {
            "5" => ProtocolVersion::V5,
            _ => ProtocolVersion::V311,
        },
    })
}

fn read_listen(node: &Node, findings: &mut Vec<Finding>) -> Option<Vec<TcpListener>> {
    let fields = read_section(node, &keys::LISTEN, "broker.mqtt.listen", findings);
    let tcp = fields.section("tcp")?;
    let path = "broker.mqtt.listen.tcp";
    let mut found: Vec<(TcpListener, Position)> = vec![];
    let mut complete = true;
    match &tcp.value {
        Value::List(items) => {
            if items.is_empty() {
                findings.push(Finding::new(
                    tcp.at,
                    format!("`{path}` is an empty list"),
                    "write at least one listener, or leave `listen` out",
                ));
                complete = false;
            }
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                let fields = read_section(item, &keys::TCP, &path, findings);
                complete &= push_listener(&fields, item.at, None, &mut found, findings);
            }
        }
        _ => {
            let fields = read_section(tcp, &keys::TCP, path, findings);
            complete &= push_listener(&fields, tcp.at, Some("tcp"), &mut found, findings);
        }
    }
    complete.then(|| found.into_iter().map(|(listener, _)| listener).collect())
}

fn push_listener(
    fields: &Fields<'_>,
    at: Position,
    default_name: Option<&str>,
    found: &mut Vec<(TcpListener, Position)>,
    findings: &mut Vec<Finding>,
) -> bool {
    if !fields.is_mapping() {
        return false;
    }
    let Some(name) = fields.text("name").or(default_name) else {
        if !fields.is_written("name") {
            findings.push(Finding::new(
                at,
                "a listener in a list has no `name`",
                "write `name:` and a name of its own",
            ));
        }
        return false;
    };
    if let Some((_, first)) = found.iter().find(|(other, _)| other.name == name) {
        findings.push(Finding::new(
            fields.at("name"),
            format!(
                "two listeners are named `{name}`, the first on line {}",
                first.line
            ),
            "give each a name of its own",
        ));
        return false;
    }
    let Some(address) = fields.address("address") else {
        return false;
    };
    if let Some((other, first)) = found
        .iter()
        .find(|(other, _)| share_port(other.address, address))
    {
        findings.push(Finding::new(
            fields.at("address"),
            format!(
                "the listeners `{}` (line {}) and `{name}` share port {}",
                other.name,
                first.line,
                address.port()
            ),
            "give each a port of its own",
        ));
        return false;
    }
    let listener = TcpListener {
        name: name.to_owned(),
        address,
    };
    found.push((listener, at));
    true
}

fn share_port(a: SocketAddr, b: SocketAddr) -> bool {
    let same_address = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && same_address
}

fn read_limits(node: &Node, findings: &mut Vec<Finding>) -> Option<Limits> {
    let path = "broker.limits";
    let fields = read_section(node, &keys::LIMITS, path, findings);
    let limits = Limits {
        max_message_size: fields.size("max_message_size")?,
        max_topic_length: fields.count("max_topic_length")?,
        max_topic_levels: fields.count("max_topic_levels")?,
        max_client_id_length: fields.count("max_client_id_length")?,
        max_header_count: fields.count("max_header_count")?,
        max_header_bytes: fields.size("max_header_bytes")?,
        max_connections: fields.count("max_connections")?,
        max_subscriptions: fields.count("max_subscriptions")?,
        max_session_expiry: fields.duration("max_session_expiry")?,
        max_keepalive: fields.duration_or_none("max_keepalive")?,
        write_timeout: fields.duration_or_none("write_timeout")?,
        connect_timeout: fields.duration("connect_timeout")?,
        max_connect_size: fields.size("max_connect_size")?,
        session_queue_bytes: fields.size("session_queue_bytes")?,
    };
    if limits.session_queue_bytes < limits.max_message_size {
        findings.push(Finding::new(
            fields.at("session_queue_bytes"),
            format!(
                "`{path}.session_queue_bytes` is {}, less than one message of `max_message_size` \
                 ({})",
                show_size(limits.session_queue_bytes),
                show_size(limits.max_message_size)
            ),
            format!("write {} or more", show_size(limits.max_message_size)),
        ));
    }
    Some(limits)
}

fn read_storage(
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
                    max_bytes: None,
                    durability: Durability::Sync,
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
        check_room(&fields, &path, limits, findings);
        if let Some(log_dir) = fields.text("log_dir") {
            let directory: PathBuf = Path::new(log_dir).components().collect();
            let here = (entry.key.clone(), fields.at("log_dir").line);
            if let Some((other, line)) = directories.insert(directory, here) {
                findings.push(Finding::new(
                    fields.at("log_dir"),
                    format!(
                        "the providers `{other}` (line {line}) and `{}` share the directory `{log_dir}`",
                        entry.key
                    ),
                    "give each a directory of its own",
                ));
            }
        }
        if findings.len() == before {
            providers.read.extend(provider(&entry.key, &fields));
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

fn check_room(
    fields: &Fields<'_>,
    path: &str,
    limits: Option<&Limits>,
    findings: &mut Vec<Finding>,
) {
    let (Some(max_bytes), Some(limits)) = (fields.size("max_bytes"), limits) else {
        return;
    };
    let least = limits.reserve().saturating_mul(2);
    if max_bytes < least {
        findings.push(Finding::new(
            fields.at("max_bytes"),
            format!(
                "`{path}.max_bytes` is {}, less than twice the reserve of one largest message \
                 (`max_message_size` and `max_header_bytes`)",
                show_size(max_bytes)
            ),
            format!("write {} or more, or `none`", show_size(least)),
        ));
    }
}

fn provider(name: &str, fields: &Fields<'_>) -> Option<LogProvider> {
    Some(LogProvider {
        name: name.to_owned(),
        log_dir: Path::new(fields.text("log_dir")?).components().collect(),
        max_bytes: fields.size_or_none("max_bytes")?,
        durability: Durability::Sync,
        segment_bytes: fields.size("segment_bytes")?,
        tail_cache_bytes: fields.size("tail_cache_bytes")?,
    })
}

fn read_session(
    node: &Node,
    storage: Option<&Storage>,
    findings: &mut Vec<Finding>,
) -> Option<Session> {
    let fields = read_section(node, &keys::SESSION, "broker.session", findings);
    let storage = storage?;
    let name = fields.text("storage").unwrap_or(&storage.default);
    if fields.is_written("storage") {
        check_provider(
            "broker.session.storage",
            name,
            fields.at("storage"),
            storage.providers.iter().map(|p| p.name.as_str()),
            findings,
        );
    }
    Some(Session {
        storage: name.to_owned(),
        ack_commit_interval: fields.duration("ack_commit_interval")?,
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

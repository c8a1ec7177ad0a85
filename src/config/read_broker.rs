//! `broker`, from the tree to [`Broker`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::finding::{Finding, Position};
use super::keys;
use super::model::{
    Broker, Limits, LogLevel, Mqtt, ProtocolVersion, Qos2, Retained, Session, Share, Storage,
    TcpListener,
};
use super::read_storage::{check_provider, read_storage};
use super::value::show_size;
use super::walk::{Fields, read_section};
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
    retained: Option<Retained>,
    share: Option<Share>,
    qos2: Option<Qos2>,
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
            retained: self.retained?,
            share: self.share?,
            qos2: self.qos2?,
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
    let retained_node = fields.section("retained").unwrap_or(&absent);
    let retained = read_retained(retained_node, storage.as_ref(), findings);
    let share = read_share(fields.section("share").unwrap_or(&absent), findings);
    let qos2 = read_qos2(fields.section("qos2").unwrap_or(&absent), findings);
    BrokerParts {
        id: fields.text("id").map(str::to_owned),
        log_level: fields.text("log_level").map(log_level),
        mqtt,
        storage,
        session,
        retained,
        share,
        qos2,
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

fn read_session(
    node: &Node,
    storage: Option<&Storage>,
    findings: &mut Vec<Finding>,
) -> Option<Session> {
    let fields = read_section(node, &keys::SESSION, "broker.session", findings);
    Some(Session {
        storage: provider_of(&fields, "broker.session.storage", storage?, findings),
        ack_commit_interval: fields.duration("ack_commit_interval")?,
    })
}

fn read_retained(
    node: &Node,
    storage: Option<&Storage>,
    findings: &mut Vec<Finding>,
) -> Option<Retained> {
    let fields = read_section(node, &keys::RETAINED, "broker.retained", findings);
    Some(Retained {
        storage: provider_of(&fields, "broker.retained.storage", storage?, findings),
        retention_period: fields.duration_or_none("retention_period")?,
    })
}

fn read_share(node: &Node, findings: &mut Vec<Finding>) -> Option<Share> {
    let fields = read_section(node, &keys::SHARE, "broker.share", findings);
    Some(Share {
        expires_after: fields.duration_or_none("expires_after")?,
    })
}

fn read_qos2(node: &Node, findings: &mut Vec<Finding>) -> Option<Qos2> {
    let fields = read_section(node, &keys::QOS2, "broker.qos2", findings);
    Some(Qos2 {
        max_inflight_per_client: fields.count("max_inflight_per_client")?,
        expires_after: fields.duration("expires_after")?,
    })
}

/// The provider that the key `storage` of a section names, or the default one.
fn provider_of(
    fields: &Fields<'_>,
    path: &str,
    storage: &Storage,
    findings: &mut Vec<Finding>,
) -> String {
    let name = fields.text("storage").unwrap_or(&storage.default);
    if fields.is_written("storage") {
        check_provider(
            path,
            name,
            fields.at("storage"),
            storage.providers.iter().map(|p| p.name.as_str()),
            findings,
        );
    }
    name.to_owned()
}

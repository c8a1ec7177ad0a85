//! `sessions`: who is expected back.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use saguin_log_engine::state::State;
use saguin_recovery::keys::{Position, SESSIONS, holds_positions};
use serde::Serialize;
use serde_json::Value;

use crate::cli::{Code, Failure};
use crate::source::Log;
use crate::text::{escape, json_line, table, time};

#[derive(Serialize)]
struct Sessions {
    sessions: Vec<Session>,
    /// Entries of namespaces this build does not know, by namespace.
    other_keys: BTreeMap<u8, u64>,
}

#[derive(Serialize)]
struct Partition {
    of: u64,
    slices: Vec<u64>,
}

#[derive(Default, Serialize)]
struct Session {
    client_id: String,
    /// Null where the record does not say.
    protocol: Option<String>,
    expiry_seconds: Option<u64>,
    /// When its connection ended; null while it is connected, or where the broker was killed.
    away_since_ms: Option<u64>,
    subscriptions: Option<usize>,
    filters: Vec<String>,
    /// Shares of topics, by filter: what they are divided by, and which slices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    partitions: BTreeMap<String, Partition>,
    /// Deliveries that are not acknowledged; null where the record does not hold them.
    in_flight: Option<usize>,
    positions: usize,
    record_bytes: usize,
    /// Why the record cannot be read, where it cannot.
    error: Option<String>,
}

pub(crate) fn run(dir: &Path, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let Log { walk, .. } = Log::read(dir)?;
    let sessions = read(&walk.state);
    if json {
        json_line(out, &sessions)?;
    } else {
        print(&sessions, out)?;
    }
    Ok(Code::Good)
}

fn read(state: &State) -> Sessions {
    let mut positions: BTreeMap<&[u8], usize> = BTreeMap::new();
    let mut other_keys = BTreeMap::new();
    for ((space, key), entry) in state.keyspace() {
        match *space {
            SESSIONS => {}
            space if holds_positions(space) => {
                if let Some(found) = Position::read(space, key, &entry.value) {
                    *positions.entry(found.reader).or_default() += 1;
                }
            }
            other => *other_keys.entry(other).or_default() += 1,
        }
    }
    let mut sessions = Vec::new();
    for ((space, key), entry) in state.keyspace() {
        if *space == SESSIONS {
            let mut session = Session::new(key, &entry.value);
            session.positions = positions.get(&key[..]).copied().unwrap_or(0);
            sessions.push(session);
        }
    }
    Sessions {
        sessions,
        other_keys,
    }
}

impl Session {
    /// What a record says that this build knows to look for; a later broker may say more.
    fn new(client_id: &[u8], value: &[u8]) -> Session {
        let mut session = Session {
            client_id: String::from_utf8_lossy(client_id).into_owned(),
            record_bytes: value.len(),
            ..Session::default()
        };
        let record: Value = match serde_json::from_slice(value) {
            Ok(record) => record,
            Err(error) => {
                session.error = Some(format!("the record is not readable: {error}"));
                return session;
            }
        };
        session.expiry_seconds = record["expiry_seconds"].as_u64();
        if session.expiry_seconds.is_none() {
            session.error = Some("the record names no expiry".to_owned());
        }
        session.away_since_ms = record["away_since_unix_ms"].as_u64();
        session.protocol = match &record["protocol"] {
            Value::String(name) => Some(name.clone()),
            Value::Number(level) => Some(level.to_string()),
            _ => None,
        };
        session.in_flight = record["in_flight"].as_array().map(Vec::len);
        if let Some(subscriptions) = record["subscriptions"].as_array() {
            session.subscriptions = Some(subscriptions.len());
            let filters = subscriptions.iter().filter_map(|s| s["filter"].as_str());
            session.filters = filters.map(str::to_owned).collect();
            let shares = subscriptions.iter().filter_map(share);
            session.partitions = shares.collect();
        }
        session
    }
}

/// The share of a subscription's topics, where it has not all of them.
fn share(subscription: &Value) -> Option<(String, Partition)> {
    let filter = subscription["filter"].as_str()?;
    let stated = &subscription["partition"];
    let slices = stated["slices"].as_array()?.iter();
    let partition = Partition {
        of: stated["of"].as_u64()?,
        slices: slices.filter_map(Value::as_u64).collect(),
    };
    Some((filter.to_owned(), partition))
}

fn print(sessions: &Sessions, out: &mut dyn Write) -> std::io::Result<()> {
    let head = [
        "client",
        "protocol",
        "expiry s",
        "subscriptions",
        "in flight",
        "positions",
        "bytes",
        "away since",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let number = |n: Option<usize>| n.map_or("-".to_owned(), |n| n.to_string());
    for s in &sessions.sessions {
        let away = match (&s.error, s.away_since_ms) {
            (Some(error), _) => format!("UNREADABLE: {}", escape(error)),
            (None, Some(at)) => time(at),
            (None, None) => "connected, or the broker was killed".to_owned(),
        };
        rows.push(vec![
            escape(&s.client_id),
            s.protocol.as_deref().map_or("-".to_owned(), escape),
            s.expiry_seconds.map_or("-".to_owned(), |n| n.to_string()),
            number(s.subscriptions),
            number(s.in_flight),
            s.positions.to_string(),
            s.record_bytes.to_string(),
            away,
        ]);
    }
    table(out, &[2, 3, 4, 5, 6], &rows)?;
    for (space, entries) in &sessions.other_keys {
        writeln!(
            out,
            "namespace {space}, which this build does not know: {entries} entries"
        )?;
    }
    Ok(())
}

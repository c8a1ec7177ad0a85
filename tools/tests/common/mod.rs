//! Log directories on the real file system, and the built binary to look at them with.
#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{FileSystem, OsFiles};
use saguin_log_engine::{ChannelId, Engine, NewRecord, Operation, Options};
use saguin_recovery::body::Body;
use saguin_recovery::keys::{
    POSITIONS, SESSIONS, UNJUDGED_POSITIONS, position_key, position_value,
};
use saguin_recovery::recover;
use serde_json::Value;

/// 2026-03-01T12:00:00.250Z.
pub const NOON: u64 = 1_772_366_400_250;

pub fn open(dir: &Path) -> Engine {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFiles);
    let options = Options {
        segment_bytes: 4096 + 2048,
        tail_cache_bytes: 0,
        prepare_ahead: false,
        tidy_in_background: false,
        wake: None,
        ..Options::default()
    };
    recover(&fs, dir, &options).unwrap().0
}

/// Closes a log. A process that another test is just starting holds the lock too, until it has
/// become the inspector; so the lock is waited for.
pub fn close(engine: Engine, dir: &Path) {
    drop(engine);
    let lock = std::fs::File::open(dir.join("saguin.lock")).unwrap();
    lock.lock_shared().unwrap();
}

pub fn body<'a>(topic: &'a str, payload: &'a [u8]) -> Body<'a> {
    Body {
        id: [0xab; 16],
        topic: topic.as_bytes(),
        publisher: b"pump-1",
        expiry_seconds: None,
        response_topic: None,
        correlation_data: None,
        user_property_bytes: 2,
        properties: &[0x26, 0, 1, b'k', 0, 1, b'v'],
        payload,
        retain: false,
        qos: 1,
    }
}

pub fn record(body: Vec<u8>) -> NewRecord {
    NewRecord {
        timestamp: Some(NOON),
        size: 77,
        body: Bytes::from(body),
    }
}

pub fn submit(engine: &Engine, op: Operation) -> u64 {
    let receipt = engine.submit(op).wait().unwrap();
    receipt.offsets.first().copied().flatten().unwrap_or(0)
}

pub fn append(engine: &Engine, channel: ChannelId, body: &Body<'_>) -> u64 {
    append_raw(engine, channel, body.encode(false))
}

pub fn append_raw(engine: &Engine, channel: ChannelId, bytes: Vec<u8>) -> u64 {
    let op = Operation::Append {
        channel,
        record: record(bytes),
        max_bytes: None,
    };
    submit(engine, op)
}

pub fn set(engine: &Engine, channel: ChannelId, topic: &str, payload: &[u8]) -> u64 {
    let key = Bytes::copy_from_slice(topic.as_bytes());
    let record = record(body(topic, payload).encode(true));
    let op = match payload {
        [] => Operation::Remove {
            channel,
            key,
            record,
        },
        _ => Operation::Set {
            channel,
            key,
            record,
        },
    };
    submit(engine, op)
}

pub fn enqueue(engine: &Engine, channel: ChannelId, payload: &[u8]) -> u64 {
    let op = Operation::Enqueue {
        channel,
        record: record(body("jobs/a", payload).encode(false)),
        max_bytes: None,
    };
    submit(engine, op)
}

pub struct Channels {
    pub log: ChannelId,
    pub latest: ChannelId,
    pub queue: ChannelId,
    pub dead: ChannelId,
}

pub fn define(engine: &Engine) -> Channels {
    Channels {
        log: engine.define("events", Kind::Sequence).unwrap(),
        latest: engine.define("state", Kind::Map).unwrap(),
        queue: engine.define("jobs", Kind::Work).unwrap(),
        dead: engine.define("jobs__dlq", Kind::Sequence).unwrap(),
    }
}

/// Some of everything, over several segments: 30 events of which the first 9 are trimmed, three
/// topics of which one is deleted, nine jobs of which three are done, one is tried twice and one
/// dead-lettered.
pub fn fill(engine: &Engine) -> Channels {
    let c = define(engine);
    for i in 1..=30u64 {
        append(
            engine,
            c.log,
            &body("events/a", format!("event {i}").as_bytes()),
        );
        if i % 5 == 0 {
            set(
                engine,
                c.latest,
                &format!("state/{}", i % 3),
                format!("value {i}").as_bytes(),
            );
        }
        if i <= 9 {
            enqueue(engine, c.queue, format!("job {i}").as_bytes());
        }
    }
    set(engine, c.latest, "state/0", b"");
    for offset in [1, 4, 7] {
        let channel = c.queue;
        submit(engine, Operation::Resolve { channel, offset });
    }
    let tried = Operation::Attempt {
        channel: c.queue,
        offset: 2,
        attempts: 2,
        first: NOON + 1,
        last: NOON + 2,
    };
    submit(engine, tried);
    let dead = Operation::DeadLetter {
        work: c.queue,
        offset: 3,
        channel: c.dead,
        record: record(body("jobs/a", b"job 3").encode(false)),
    };
    submit(engine, dead);
    let trim = engine.plan_trim(c.log, 10).unwrap().unwrap();
    submit(engine, Operation::Trim(trim));
    let put = Operation::Put {
        space: 1,
        key: Bytes::from_static(b"key"),
        value: Bytes::from_static(b"value"),
    };
    submit(engine, put);
    c
}

/// A closed log in a directory of its own.
pub fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    fill(&engine);
    close(engine, dir.path());
    assert!(segments(dir.path()).len() >= 3);
    dir
}

pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("log")).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{}", self.out);
        serde_json::from_str(&self.out).unwrap()
    }

    pub fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap();
        self.out.lines().map(parse).collect()
    }
}

pub fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_saguin-inspect"))
}

/// `saguin-inspect VERB DIR ARGS`.
pub fn inspect(verb: &str, dir: &Path, args: &[&str]) -> Answer {
    let Output {
        status,
        stdout,
        stderr,
    } = command().arg(verb).arg(dir).args(args).output().unwrap();
    Answer {
        code: status.code().expect("it ends by itself"),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// Every file and directory: when it was changed, and what is in it.
pub fn everything(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = std::fs::metadata(&path).unwrap();
        let content = if meta.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            None
        } else {
            Some(std::fs::read(&path).unwrap())
        };
        found.insert(path, (meta.modified().unwrap(), content));
    }
    found
}

/// Changes bytes of a file in place.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Two stored sessions, and positions of three readers in `events`: at its end, in it, and, once
/// `trimmed`, below its floor.
pub fn readers(engine: &Engine, events: ChannelId) {
    let put = |space: u8, key: Vec<u8>, value: Vec<u8>| {
        let put = Operation::Put {
            space,
            key: Bytes::from(key),
            value: Bytes::from(value),
        };
        submit(engine, put);
    };
    let session = br#"{"version":1,"expiry_seconds":60,"away_since_unix_ms":1772366400250,"subscriptions":[{"filter":"events/#","qos":1,"no_local":false,"retain_as_published":false,"identifier":null,"from":{"0":1},"partition":{"of":4,"slices":[1,3]}}]}"#;
    put(SESSIONS, b"late".to_vec(), session.to_vec());
    put(SESSIONS, b"\x1b[2J".to_vec(), b"{".to_vec());
    for (reader, at) in [("done", 31u64), ("late", 4), ("middle", 20)] {
        let key = position_key(events.0, reader.as_bytes());
        put(POSITIONS, key, position_value(at).to_vec());
    }
    put(
        UNJUDGED_POSITIONS,
        position_key(77, b"else"),
        position_value(5).to_vec(),
    );
}

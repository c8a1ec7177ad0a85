//! What every test of a whole log needs.
#![allow(dead_code, clippy::unwrap_used, missing_docs)]

pub mod disk;
pub mod gate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::storage::{FileSystem, MemFiles};
use saguin_log_engine::{
    Batch, ChannelId, Durability, Engine, NewRecord, Operation, Options, ReadLimit,
};
use saguin_recovery::{RecoverError, Report, recover};

pub const DIR: &str = "/data";

/// Small segments, so that rolling is the common case; no thread but the commit thread.
pub fn options() -> Options {
    Options {
        segment_bytes: 4096 + 1024,
        tail_cache_bytes: 0,
        prepare_ahead: false,
        tidy_in_background: false,
        checkpoint_entries: 2,
        // What is unsynced stays so until somebody asks.
        flush_interval: Duration::from_secs(1 << 30),
        wake: None,
        ..Options::default()
    }
}

pub fn open(files: &MemFiles) -> Result<(Engine, Report), RecoverError> {
    open_with(files, &options())
}

pub fn open_with(files: &MemFiles, options: &Options) -> Result<(Engine, Report), RecoverError> {
    let fs: Arc<dyn FileSystem> = Arc::new(files.clone());
    recover(&fs, Path::new(DIR), options)
}

pub fn record(body: &str) -> NewRecord {
    let size = body.len() as u64;
    NewRecord {
        timestamp: Some(1000 + size),
        size,
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

pub struct Channels {
    pub log: ChannelId,
    pub map: ChannelId,
    pub work: ChannelId,
    pub dead: ChannelId,
}

pub fn define(engine: &Engine) -> Channels {
    Channels {
        log: engine.define("log", Kind::Sequence).unwrap(),
        map: engine.define("map", Kind::Map).unwrap(),
        work: engine.define("work", Kind::Work).unwrap(),
        dead: engine.define("dead", Kind::Sequence).unwrap(),
    }
}

pub fn append(engine: &Engine, channel: ChannelId, body: &str) -> u64 {
    let op = Operation::Append {
        channel,
        record: record(body),
        max_bytes: None,
    };
    engine.submit(op).wait().unwrap().offsets[0].unwrap()
}

/// One operation, acknowledged once it is written.
pub fn interval(operation: Operation) -> Batch {
    Batch {
        operations: vec![operation],
        durability: Durability::Interval,
    }
}

/// As [`append`], acknowledged once it is written.
pub fn append_interval(engine: &Engine, channel: ChannelId, body: &str) -> u64 {
    let op = Operation::Append {
        channel,
        record: record(body),
        max_bytes: None,
    };
    engine.submit(interval(op)).wait().unwrap().offsets[0].unwrap()
}

pub fn bodies(engine: &Engine, channel: ChannelId, from: u64) -> Vec<(u64, String)> {
    let mut out = Vec::new();
    let mut at = from;
    loop {
        let read = engine
            .read_from(
                channel,
                at,
                ReadLimit {
                    records: 7,
                    bytes: 100,
                },
            )
            .unwrap();
        let Some(last) = read.records.last() else {
            return out;
        };
        at = last.offset + 1;
        out.extend(
            read.records
                .iter()
                .map(|r| (r.offset, String::from_utf8_lossy(&r.body).into_owned())),
        );
    }
}

/// The segments' paths, oldest first.
pub fn segments(files: &MemFiles) -> Vec<PathBuf> {
    files
        .paths()
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "seg"))
        .collect()
}

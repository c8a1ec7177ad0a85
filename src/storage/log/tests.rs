//! When a batch is acknowledged follows what it changes.

use std::path::PathBuf;
use std::sync::mpsc::channel;

use saguin_log_engine::format::{position_key, position_value};
use saguin_log_engine::storage::MemFiles;

use super::*;
use crate::storage::testing::message;

const INTERVAL: ChannelId = ChannelId(0);
const SYNC: ChannelId = ChannelId(1);
const QUEUE: ChannelId = ChannelId(2);

/// A store whose small values follow `durability`, and the files it lies on. Nothing is synced by the
/// clock while a test looks.
fn store(durability: Durability) -> (LogStore, MemFiles, std::sync::mpsc::Receiver<()>) {
    let files = MemFiles::new();
    let (woken, wakes) = channel();
    let options = LogOptions {
        dir: PathBuf::from("/data"),
        segment_bytes: 1 << 20,
        tail_cache_bytes: 1 << 20,
        durability,
        flush_interval: Duration::from_secs(1 << 30),
        publish_commit: PublishCommit::AsTheyCome,
        checkpoint_bytes: 1 << 30,
        max_bytes: None,
        max_record_bytes: 1 << 20,
        only_provider: true,
        // Whoever listens may be gone at the end.
        wake: Arc::new(move || {
            let _ = woken.send(());
        }),
        gather: None,
    };
    let spec = |name: &str, kind, durability| ChannelSpec {
        name: name.to_owned(),
        kind,
        max_bytes: None,
        durability,
    };
    let specs = [
        spec("interval", ChannelKind::Append, Durability::Interval),
        spec("sync", ChannelKind::Append, Durability::Sync),
        spec("queue", ChannelKind::Queue, Durability::Interval),
    ];
    let fs: Arc<dyn FileSystem> = Arc::new(files.clone());
    let (store, ids, _) = LogStore::open_on(&fs, &options, &specs).unwrap();
    assert_eq!(ids, [INTERVAL, SYNC, QUEUE]);
    let after_the_ceilings = [
        append(INTERVAL),
        append(SYNC),
        Operation::Enqueue {
            channel: QUEUE,
            message: message("q/a", "job"),
        },
        Operation::Enqueue {
            channel: QUEUE,
            message: message("q/b", "job"),
        },
    ];
    for operation in after_the_ceilings {
        kept(&store, &wakes, vec![operation]);
    }
    store.engine.flush().unwrap();
    (store, files, wakes)
}

fn append(channel: ChannelId) -> Operation {
    Operation::Append {
        channel,
        message: message("a/b", "record"),
    }
}

fn put() -> Operation {
    Operation::Put {
        space: Space::Positions,
        key: position_key(INTERVAL.0, b"reader").into(),
        value: Bytes::copy_from_slice(&position_value(1)),
    }
}

/// Stores a batch and waits until it is acknowledged.
fn kept(store: &LogStore, wakes: &std::sync::mpsc::Receiver<()>, operations: Vec<Operation>) {
    let (told, outcome) = channel();
    let done = Box::new(move |answer| told.send(answer).unwrap());
    store.submit(Batch { operations }, done);
    loop {
        store.run_completions();
        if let Ok(answer) = outcome.try_recv() {
            answer.unwrap();
            return;
        }
        wakes.recv().unwrap();
    }
}

/// Whether a batch is acknowledged without a sync. The files of the next segment may be prepared
/// meanwhile, so only the engine's own syncs count.
fn unsynced(durability: Durability, operations: Vec<Operation>) -> bool {
    let (store, _, wakes) = store(durability);
    let before = store.engine_counters().syncs;
    kept(&store, &wakes, operations);
    store.engine_counters().syncs == before
}

#[test]
fn a_batch_is_acknowledged_unsynced_only_where_everything_in_it_may_be() {
    let resolve = |offset| Operation::Resolve {
        channel: QUEUE,
        offset,
    };
    let dead_letter = |target| Operation::DeadLetter {
        channel: QUEUE,
        offset: 1,
        target,
        message: message("q/a", "job"),
    };
    let trim = Operation::Trim {
        channel: INTERVAL,
        floor: 2,
    };
    use Durability::{Interval, Sync};
    for (provider, operations, expected) in [
        (Sync, vec![append(INTERVAL)], true),
        (Sync, vec![append(INTERVAL), resolve(1)], true),
        (Sync, vec![append(SYNC)], false),
        (Interval, vec![append(SYNC)], false),
        (Sync, vec![append(INTERVAL), append(SYNC)], false),
        (Sync, vec![dead_letter(INTERVAL)], true),
        (Sync, vec![dead_letter(SYNC)], false),
        (Sync, vec![put()], false),
        (Interval, vec![put()], true),
        (Sync, vec![append(INTERVAL), put()], false),
        (Interval, vec![append(INTERVAL), put()], true),
        (Interval, vec![trim], false),
    ] {
        let what = format!("{operations:?} of a provider with {provider:?}");
        assert_eq!(unsynced(provider, operations), expected, "{what}");
    }
}

#[test]
fn what_is_acknowledged_unsynced_is_there_after_the_process_died() {
    let (store, files, wakes) = store(Durability::Interval);
    kept(&store, &wakes, vec![append(INTERVAL), put()]);
    let counters = store.counters(INTERVAL);
    assert_eq!(counters.count, 2);
    let fs: Arc<dyn FileSystem> = Arc::new(files.copy());
    let (engine, _) = recover(&fs, &PathBuf::from("/data"), &engine::Options::default()).unwrap();
    assert_eq!(engine.numbers(id(INTERVAL)).unwrap().count, 2);
    assert!(engine.numbers(id(INTERVAL)).unwrap().next >= counters.next);
    assert!(
        engine
            .value(Space::Positions as u8, &position_key(INTERVAL.0, b"reader"))
            .is_some()
    );
}

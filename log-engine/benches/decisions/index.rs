//! What the index of an append log takes in memory.

use bytes::Bytes;
use saguin_log_engine::format::Kind;
use saguin_log_engine::state::{Anchor, Content};
use saguin_log_engine::{Batch, Options};

use crate::common::{Run, append, files, head, row};

pub fn size(run: &Run) {
    run.heading("(e) Memory of the index, 1 M records of 128 B");
    head(&[
        "channels",
        "records a commit",
        "anchors",
        "bytes a record",
        "resident growth, bytes a record",
    ]);
    let records = run.rounds(1_000_000);
    for (channels, a_commit) in [(1, 1000), (1, 32), (1000, 1000)] {
        let dir = run.dir().join(format!("index{channels}-{a_commit}"));
        let options = Options {
            tail_cache_bytes: 0,
            ..Options::default()
        };
        let (engine, _) = saguin_recovery::recover(&files(), &dir, &options).unwrap();
        let ids: Vec<_> = (0..channels)
            .map(|i| engine.define(&format!("{i}"), Kind::Sequence).unwrap())
            .collect();
        let body = Bytes::from(vec![0x5a; 128]);
        let mut next = 0;
        for _ in 0..records.div_ceil(a_commit) {
            let operations = (0..a_commit).map(|_| {
                next += 1;
                append(ids[next % channels], &body)
            });
            let operations = operations.collect();
            engine
                .submit(Batch {
                    operations,
                    ..Batch::default()
                })
                .wait()
                .unwrap();
        }
        drop(engine);
        let before = resident();
        let (_, walk) = saguin_recovery::inspect(&*files(), &dir, &mut ()).unwrap();
        let grown = resident().saturating_sub(before);
        let anchors: usize = walk
            .state
            .channels()
            .map(|(_, channel)| match &channel.content {
                Content::Sequence(index) => index.anchors(),
                _ => 0,
            })
            .sum();
        let bytes = anchors * size_of::<Anchor>();
        let per_record = |bytes: usize| format!("{:.2}", bytes as f64 / records as f64);
        row(&[
            channels.to_string(),
            a_commit.to_string(),
            anchors.to_string(),
            per_record(bytes),
            per_record(grown),
        ]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

//! What the commit thread computes, without a disk: criterion compares with the run before. Where a
//! disk is involved the other benchmarks take turns with their limit, which criterion cannot.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use saguin_log_engine::format::{FrameBuilder, Kind, Op, RecordRef, decode_frame};
use saguin_log_engine::state::{Location, State};

const RECORDS: u64 = 256;
const SALT: u32 = 7;

fn frame(body: &[u8], from: u64, frame: &mut FrameBuilder) {
    frame.clear();
    for offset in from..from + RECORDS {
        frame.push(&Op::Append {
            channel: 0,
            offset,
            record: RecordRef {
                timestamp: Some(1 << 40),
                size: body.len() as u64,
                body,
            },
        });
    }
}

fn channel() -> State {
    let mut state = State::default();
    let define = Op::Define {
        channel: 0,
        kind: Kind::Sequence,
        name: b"bench",
    };
    state
        .apply(
            &define,
            Location {
                segment: 1,
                frame: 0,
            },
        )
        .unwrap();
    state
}

fn benchmarks(c: &mut Criterion) {
    let mut group = c.benchmark_group("256 records of 128 B");
    group.throughput(Throughput::Elements(RECORDS));
    let body = [0x5a; 128];
    let mut builder = FrameBuilder::default();
    group.bench_function("encode", |b| {
        b.iter(|| {
            frame(black_box(&body), 100_000, &mut builder);
            black_box(builder.frame_len());
        });
    });
    frame(&body, 1, &mut builder);
    group.bench_function("checksum", |b| {
        b.iter(|| black_box(builder.finish(9, 8, 0, SALT).len()));
    });
    let bytes = builder.finish(9, 8, 0, SALT).to_vec();
    group.bench_function("verify", |b| {
        b.iter(|| black_box(decode_frame(black_box(&bytes), SALT).unwrap().header));
    });
    let whole = decode_frame(&bytes, SALT).unwrap();
    group.bench_function("decode", |b| {
        b.iter(|| whole.operations().for_each(|op| _ = black_box(op.unwrap())));
    });
    group.bench_function("decode and apply", |b| {
        b.iter_batched_ref(
            channel,
            |state| {
                let at = Location {
                    segment: 1,
                    frame: 4096,
                };
                for op in whole.operations() {
                    state.apply(&op.unwrap(), at).unwrap();
                }
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = cpu;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = benchmarks
}
criterion_main!(cpu);

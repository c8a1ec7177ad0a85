//! Memory mapping against positioned reads.
#![allow(
    unsafe_code,
    reason = "a mapping is unsafe; nobody shortens these files meanwhile"
)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use saguin_log_engine::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, decode_frame};
use saguin_log_engine::scan::Scanner;

use crate::common::{Run, Shape, files, head, micros, open, ratio, row, turn_by_turn};

/// One segment, open both ways.
struct Opened {
    file: std::fs::File,
    map: Mmap,
    salt: u32,
    segment: std::sync::Arc<saguin_log_engine::Segment>,
    end: u64,
}

pub fn mapped_or_not(run: &Run) {
    run.heading("(d) Reading frames, every one verified, from the page cache: p50, turn by turn");
    head(&["", "positioned reads", "mapped", "of positioned"]);
    let scanned = filled(run, 256, run.rounds(1_000_000));
    let mut times = turn_by_turn(
        if run.quick { 1 } else { 15 },
        &mut [
            &mut || timed(|| scanned.iter().for_each(scan_reads)),
            &mut || timed(|| scanned.iter().for_each(scan_map)),
        ],
    );
    print("1 M records in frames of 256, scanned", &mut times);
    let scattered = filled(run, 1, run.rounds(20_000));
    let places: Vec<(usize, u64, usize)> = (0..scattered.len())
        .flat_map(|i| frames(&scattered[i]).map(move |(at, len)| (i, at, len)))
        .collect();
    // A fixed stride that has no factor in common with the number of frames meets each once.
    let stride = (places.len() * 7 / 11) | 1;
    let mut next = 0;
    let mut pick = move |places: &[(usize, u64, usize)]| {
        next = (next + stride) % places.len();
        places[next]
    };
    let mut again = pick;
    let mut buffer = vec![0u8; 1 << 10];
    let mut times = turn_by_turn(
        run.rounds(50_000),
        &mut [
            &mut || {
                let (i, at, len) = pick(&places);
                timed(|| {
                    let of = &scattered[i];
                    of.file.read_exact_at(&mut buffer[..len], at).unwrap();
                    std::hint::black_box(decode_frame(&buffer[..len], of.salt).unwrap());
                })
            },
            &mut || {
                let (i, at, len) = again(&places);
                timed(|| {
                    let of = &scattered[i];
                    let bytes = &of.map[at as usize..at as usize + len];
                    std::hint::black_box(decode_frame(bytes, of.salt).unwrap());
                })
            },
        ],
    );
    print("single records, scattered", &mut times);
}

fn print(name: &str, times: &mut [crate::common::Times]) {
    let [read, mapped] = [0, 1].map(|i| times[i].median());
    let show = |t: Duration| match t.as_nanos() {
        ns @ 0..10_000 => format!("{ns} ns"),
        _ => micros(t),
    };
    row(&[
        name.to_owned(),
        show(read),
        show(mapped),
        format!("{:.2}", ratio(mapped, read)),
    ]);
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// The segments of a new log with so many records.
fn filled(run: &Run, a_commit: usize, records: usize) -> Vec<Opened> {
    let dir = run.dir().join(format!("reading{a_commit}"));
    let shape = Shape {
        records: a_commit,
        record_bytes: 128,
    };
    let (engine, channel) = open(&dir, 64 << 20);
    let body = shape.body();
    for _ in 0..records.div_ceil(a_commit) {
        engine.submit(shape.batch(channel, &body)).wait().unwrap();
    }
    drop(engine);
    opened(&dir)
}

fn opened(dir: &Path) -> Vec<Opened> {
    let (_, walk) = saguin_recovery::inspect(&*files(), dir, &mut ()).unwrap();
    let last = walk.segments.len() - 1;
    let open = |(i, segment): (usize, std::sync::Arc<saguin_log_engine::Segment>)| {
        let file = std::fs::File::open(&segment.path).unwrap();
        // SAFETY: the files are this benchmark's own, in a directory of its own.
        let map = unsafe { Mmap::map(&file).unwrap() };
        let salt = segment.header.salt;
        let whole = segment.header.capacity;
        Opened {
            file,
            map,
            salt,
            segment,
            end: if i == last { walk.end } else { whole },
        }
    };
    walk.segments.into_iter().enumerate().map(open).collect()
}

fn scan_reads(of: &Opened) {
    let from = SEGMENT_HEADER_BYTES as u64;
    let mut scanner = Scanner::new(&*of.segment.file, of.salt, from, of.end);
    // A sealed segment ends with room that no frame takes.
    while let Ok(Some((at, _))) = scanner.next() {
        std::hint::black_box(at);
    }
}

fn scan_map(of: &Opened) {
    for (at, len) in frames(of) {
        let bytes = &of.map[at as usize..at as usize + len];
        std::hint::black_box(decode_frame(bytes, of.salt).unwrap());
    }
}

/// Position and length of every frame.
fn frames(of: &Opened) -> impl Iterator<Item = (u64, usize)> {
    let mut at = SEGMENT_HEADER_BYTES;
    std::iter::from_fn(move || {
        let head = of.map.get(at..at + FRAME_HEADER_BYTES)?;
        let len = saguin_log_engine::format::peek_frame_header(head)
            .ok()?
            .frame_len() as usize;
        let here = at;
        at += len;
        (at as u64 <= of.end).then_some((here as u64, len))
    })
}

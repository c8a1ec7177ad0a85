//! Many callers with one record each: how many records one sync acknowledges.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use saguin_log_engine::{ChannelId, Engine};

use crate::common::sqlite::Sqlite;
use crate::common::{Bare, Run, Shape, append, head, open_prepared, row};

const CALLERS: usize = 16;
const TARGET: f64 = 60_000.0;
const ONE: Shape = Shape {
    records: 1,
    record_bytes: 128,
};

pub fn measure(run: &Run) {
    run.heading("16 callers, one 128 B record each, durability sync: records/s, median of turns");
    let slice = Duration::from_millis(if run.quick { 10 } else { 400 });
    let turns = if run.quick { 2 } else { 9 };
    let dir = run.dir().join("crowd");
    std::fs::create_dir_all(&dir).unwrap();
    let (engine, channel) = open_prepared(&dir.join("engine"), 160 << 20);
    let (engine, body) = (Arc::new(engine), ONE.body());
    let mut bare = Bare::prepared(&dir.join("bare"), 16 << 20);
    let sqlite = Mutex::new(Sqlite::create(&dir.join("sqlite")));
    let frame = Shape {
        records: CALLERS,
        ..ONE
    }
    .frame();
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..turns {
        let (began, mut commits) = (Instant::now(), 0);
        while began.elapsed() < slice {
            bare.commit(&frame);
            commits += 1;
        }
        let limit = (commits * CALLERS) as f64 / began.elapsed().as_secs_f64();
        rates[0].push(limit);
        rates[1].push(threads(slice, &|| {
            engine.submit(append(channel, &body)).wait().unwrap();
        }));
        rates[2].push(callbacks(&engine, channel, &body, slice));
        rates[3].push(threads(slice, &|| {
            sqlite.lock().unwrap().commit(ONE, &body);
        }));
    }
    let [limit, blocking, called, sqlite] = rates.map(|mut r| {
        r.sort_by(f64::total_cmp);
        r[r.len() / 2]
    });
    head(&["callers", "records/s", "target", ""]);
    let met = |rate| if rate >= TARGET { "met" } else { "MISSED" };
    for (name, rate, judged) in [
        ("limit: 16 records in one write and sync", limit, false),
        (
            "engine, 16 threads that wait for their ticket",
            blocking,
            true,
        ),
        (
            "engine, 16 callers called back on the commit thread",
            called,
            false,
        ),
        ("SQLite, 16 threads, one transaction each", sqlite, false),
    ] {
        row(&[
            name.to_owned(),
            format!("{rate:.0}"),
            if judged { "60000" } else { "" }.to_owned(),
            if judged { met(rate) } else { "" }.to_owned(),
        ]);
    }
}

/// Records a second of 16 threads that each store one after another.
fn threads(slice: Duration, store: &(dyn Fn() + Sync)) -> f64 {
    let (stop, stored) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(CALLERS + 1);
    let took = std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                start.wait();
                while !stop.load(Relaxed) {
                    store();
                    stored.fetch_add(1, Relaxed);
                }
            });
        }
        start.wait();
        let began = Instant::now();
        std::thread::sleep(slice);
        stop.store(true, Relaxed);
        began.elapsed()
    });
    stored.into_inner() as f64 / took.as_secs_f64()
}

/// The same without a thread each: every outcome submits the caller's next record.
fn callbacks(engine: &Arc<Engine>, channel: ChannelId, body: &Bytes, slice: Duration) -> f64 {
    struct Callers {
        engine: Arc<Engine>,
        channel: ChannelId,
        body: Bytes,
        stop: AtomicBool,
        stored: AtomicU64,
    }
    fn next(callers: Arc<Callers>) {
        let again = callers.clone();
        let batch = append(callers.channel, &callers.body);
        let done = move |outcome: saguin_log_engine::Outcome| {
            outcome.unwrap();
            again.stored.fetch_add(1, Relaxed);
            if !again.stop.load(Relaxed) {
                next(again);
            }
        };
        callers.engine.submit_with(batch, Box::new(done));
    }
    let callers = Arc::new(Callers {
        engine: engine.clone(),
        channel,
        body: body.clone(),
        stop: AtomicBool::new(false),
        stored: AtomicU64::new(0),
    });
    let began = Instant::now();
    for _ in 0..CALLERS {
        next(callers.clone());
    }
    std::thread::sleep(slice);
    callers.stop.store(true, Relaxed);
    let (took, stored) = (began.elapsed(), callers.stored.load(Relaxed));
    // What is still under way ends with this one: batches are kept in order.
    engine.submit(append(channel, body)).wait().unwrap();
    stored as f64 / took.as_secs_f64()
}

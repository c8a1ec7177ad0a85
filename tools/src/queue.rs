//! `queue`: the jobs of one queue that are not done.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use saguin_log_engine::format::Kind;
use saguin_recovery::Report;
use saguin_recovery::body::Body;
use serde::Serialize;

use crate::channels::type_name;
use crate::cli::{Code, Failure};
use crate::live::{self, Live};
use crate::records::choose;
use crate::source::Log;
use crate::text::{counted, escape, json_line, table, time};

/// What the name of a queue's dead-letter channel adds to the queue's.
const DEAD_LETTERS: &str = "__dlq";

#[derive(Serialize)]
struct Queue {
    queue: String,
    unresolved: u64,
    bytes: u64,
    next: u64,
    jobs: Vec<Job>,
    /// How many jobs were tried how often.
    attempts: Vec<Attempts>,
    dead_letters: Option<DeadLetters>,
}

#[derive(Serialize)]
struct Job {
    offset: u64,
    /// Null where the message cannot be read.
    topic: Option<String>,
    attempts: u32,
    first_attempt_ms: Option<u64>,
    last_attempt_ms: Option<u64>,
    size: u64,
    received_ms: Option<u64>,
    /// Since it was received, by this machine's clock.
    age_ms: Option<u64>,
}

#[derive(Serialize)]
struct Attempts {
    attempts: u32,
    jobs: u64,
}

#[derive(Serialize)]
struct DeadLetters {
    channel: String,
    records: u64,
    bytes: u64,
    next: u64,
}

pub(crate) fn run(
    dir: &Path,
    name: &str,
    json: bool,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let Log { report, walk, .. } = Log::read(dir)?;
    let (id, _, _) = choose(&report, Some(name))?;
    let channels = report.channels.iter();
    let Some(channel) = channels.into_iter().find(|c| c.id == id) else {
        return Ok(Code::Usage);
    };
    if channel.kind != Kind::Work {
        let kind = type_name(channel.kind);
        return Err(Failure::Usage(format!(
            "channel {name:?} is of type {kind}, not a queue"
        )));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let mut jobs = Vec::new();
    live::each(&walk, id, 0, &mut |live| {
        jobs.push(Job::new(live, now));
        ControlFlow::Continue(())
    })?;
    let mut attempts = BTreeMap::new();
    for job in &jobs {
        *attempts.entry(job.attempts).or_default() += 1;
    }
    let queue = Queue {
        queue: name.to_owned(),
        unresolved: channel.count,
        bytes: channel.bytes,
        next: channel.next,
        jobs,
        attempts: attempts
            .into_iter()
            .map(|(attempts, jobs)| Attempts { attempts, jobs })
            .collect(),
        dead_letters: dead_letters(&report, name),
    };
    if json {
        json_line(out, &queue)?;
    } else {
        print(&queue, out)?;
    }
    Ok(Code::Good)
}

fn dead_letters(report: &Report, name: &str) -> Option<DeadLetters> {
    let channel = format!("{name}{DEAD_LETTERS}");
    let found = report.channels.iter().find(|c| c.name == channel)?;
    Some(DeadLetters {
        records: found.count,
        bytes: found.bytes,
        next: found.next,
        channel,
    })
}

impl Job {
    fn new(live: &Live<'_>, now: u64) -> Job {
        let decoded = Body::decode(live.record.body, live.key.unwrap_or_default());
        let attempted = live.job.and_then(|job| job.attempted);
        Job {
            offset: live.offset,
            topic: decoded
                .ok()
                .map(|body| String::from_utf8_lossy(body.topic).into_owned()),
            attempts: live.job.map_or(0, |job| job.attempts),
            first_attempt_ms: attempted.map(|(first, _)| first),
            last_attempt_ms: attempted.map(|(_, last)| last),
            size: live.record.size,
            received_ms: live.record.timestamp,
            // A clock that stepped back makes nothing younger than new.
            age_ms: live.record.timestamp.map(|at| now.saturating_sub(at)),
        }
    }
}

fn print(queue: &Queue, out: &mut dyn Write) -> std::io::Result<()> {
    let (jobs, bytes) = (counted(queue.unresolved, "job"), queue.bytes);
    let name = escape(&queue.queue);
    writeln!(
        out,
        "queue {name}: {jobs} not done, {bytes} bytes; the next one takes offset {}",
        queue.next
    )?;
    match &queue.dead_letters {
        Some(dead) => writeln!(
            out,
            "dead letters in {}: {}, {} bytes; {} ever",
            escape(&dead.channel),
            counted(dead.records, "record"),
            dead.bytes,
            dead.next - 1
        )?,
        None => writeln!(out, "dead letters: this log has no {name}{DEAD_LETTERS}")?,
    }
    for Attempts { attempts, jobs } in &queue.attempts {
        let attempts = counted((*attempts).into(), "attempt");
        writeln!(out, "{attempts}: {}", counted(*jobs, "job"))?;
    }
    writeln!(out)?;
    let head = [
        "offset",
        "attempts",
        "size",
        "age",
        "first attempt",
        "last attempt",
        "topic",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let or_dash = |at: Option<u64>| at.map_or("-".to_owned(), time);
    for job in &queue.jobs {
        rows.push(vec![
            job.offset.to_string(),
            job.attempts.to_string(),
            job.size.to_string(),
            job.age_ms.map_or("-".to_owned(), age),
            or_dash(job.first_attempt_ms),
            or_dash(job.last_attempt_ms),
            job.topic.as_deref().map_or("unreadable".to_owned(), escape),
        ]);
    }
    table(out, &[0, 1, 2, 3], &rows)
}

/// `3 d 4 h`, `5 h 6 m`, `7 m 8 s`, `9 s`.
fn age(ms: u64) -> String {
    let s = ms / 1000;
    let (d, h, m) = (s / 86_400, s / 3600 % 24, s / 60 % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, m) => format!("{m} m {} s", s % 60),
        (0, h, m) => format!("{h} h {m} m"),
        (d, h, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn an_age_has_its_two_largest_units() {
        let shown = [9_999, 428_000, 18_360_000, 273_600_000].map(age);
        assert_eq!(shown, ["9 s", "7 m 8 s", "5 h 6 m", "3 d 4 h"]);
    }
}

//! `segments`, `positions`, `queue`, `sessions` and `export` of a whole log, for people and programs.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use saguin_log_engine::format::{Kind, SEGMENT_HEADER_BYTES};
use saguin_log_engine::{Operation, Tidied};
use serde_json::{Value, json};

fn with_readers() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let channels = fill(&engine);
    readers(&engine, channels.log);
    close(engine, dir.path());
    dir
}

#[test]
fn segments_say_what_lies_in_each_and_what_is_alive() {
    let dir = filled();
    let answer = inspect("segments", dir.path(), &["--json"]).json();
    let all = answer["segments"].as_array().unwrap();
    assert_eq!(all.len(), segments(dir.path()).len());
    let events = |s: &Value| {
        let channels = s["channels"].as_array().unwrap();
        let found = channels.iter().find(|c| c["channel"] == "events").cloned();
        found.map(|c| (c["first"].as_u64().unwrap(), c["last"].as_u64().unwrap()))
    };
    let ranges: Vec<_> = all.iter().filter_map(events).collect();
    assert_eq!((ranges[0].0, ranges.last().unwrap().1), (1, 30));
    assert!(
        ranges.windows(2).all(|w| w[0].1 + 1 == w[1].0),
        "{ranges:?}"
    );
    // 30 live records, and one small value.
    let alive: u64 = all.iter().map(|s| s["alive"].as_u64().unwrap()).sum();
    assert_eq!(alive, 31);
    let text = inspect("segments", dir.path(), &[]);
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    assert!(
        text.out.contains("channel events  offsets 1 to "),
        "{}",
        text.out
    );
}

#[test]
fn positions_say_who_is_behind_and_who_has_missed_what() {
    let dir = with_readers();
    let answer = inspect("positions", dir.path(), &["--json"]).json();
    let all = answer["positions"].as_array().unwrap();
    let late = json!({
        "channel": "events", "perhaps": null, "channel_id": 0, "type": "append", "reader": "late",
        "position": 4, "floor": 10, "next": 31, "behind": 21, "below_floor": true, "missed": 6,
    });
    assert_eq!(all[0], late);
    let short = |p: &Value| {
        (
            p["reader"].clone(),
            p["behind"].clone(),
            p["missed"].clone(),
        )
    };
    assert_eq!(short(&all[1]), (json!("middle"), json!(11), json!(0)));
    assert_eq!(short(&all[2]), (json!("done"), json!(0), json!(0)));
    assert_eq!(
        (&all[3]["channel"], &all[3]["channel_id"]),
        (&Value::Null, &json!(77))
    );
    let text = inspect("positions", dir.path(), &["--channel", "events"]).out;
    assert!(text.contains("BELOW THE FLOOR: missed 6"), "{text}");
    assert!(!text.contains("not in this log"), "{text}");
    let unknown = inspect("positions", dir.path(), &["--channel", "evnts"]);
    assert_eq!(unknown.code, 2);
}

#[test]
fn a_queue_shows_its_jobs_and_how_often_they_were_tried() {
    let dir = filled();
    let answer = inspect("queue", dir.path(), &["jobs", "--json"]).json();
    assert_eq!(
        (&answer["unresolved"], &answer["next"]),
        (&json!(5), &json!(10))
    );
    let attempts = json!([{ "attempts": 0, "jobs": 4 }, { "attempts": 2, "jobs": 1 }]);
    assert_eq!(answer["attempts"], attempts);
    let dead = json!({ "channel": "jobs__dlq", "records": 1, "bytes": 77, "next": 2 });
    assert_eq!(answer["dead_letters"], dead);
    let mut job = answer["jobs"][0].clone();
    assert!(
        job.as_object_mut()
            .unwrap()
            .remove("age_ms")
            .unwrap()
            .is_u64()
    );
    let expected = json!({
        "offset": 2, "topic": "jobs/a", "attempts": 2, "size": 77, "received_ms": NOON,
        "first_attempt_ms": NOON + 1, "last_attempt_ms": NOON + 2,
    });
    assert_eq!(job, expected);
    let text = inspect("queue", dir.path(), &["jobs"]).out;
    assert!(text.starts_with("queue jobs: 5 jobs not done"), "{text}");
    assert!(text.contains("2 attempts: 1 job\n"), "{text}");
    for (name, why) in [("events", "not a queue"), ("nope", "there is no channel")] {
        let answer = inspect("queue", dir.path(), &[name]);
        assert_eq!(answer.code, 2);
        assert!(answer.err.contains(why), "{}", answer.err);
    }
}

#[test]
fn sessions_are_listed_and_an_unreadable_one_is_said_to_be() {
    let dir = with_readers();
    let answer = inspect("sessions", dir.path(), &["--json"]).json();
    let all = answer["sessions"].as_array().unwrap();
    let late = all.iter().find(|s| s["client_id"] == "late").unwrap();
    assert_eq!(
        (&late["expiry_seconds"], &late["subscriptions"]),
        (&json!(60), &json!(1))
    );
    assert_eq!(
        (&late["filters"], &late["positions"]),
        (&json!(["events/#"]), &json!(1))
    );
    assert_eq!(
        late["partitions"],
        json!({"events/#": {"of": 4, "slices": [1, 3]}})
    );
    assert_eq!(
        (&late["away_since_ms"], &late["in_flight"]),
        (&json!(NOON), &Value::Null)
    );
    let bad = all.iter().find(|s| s["client_id"] == "\x1b[2J").unwrap();
    assert!(bad["error"].as_str().unwrap().contains("not readable"));
    let text = inspect("sessions", dir.path(), &[]);
    assert_eq!(text.code, 0);
    assert!(
        text.out.contains("UNREADABLE") && !text.out.contains('\x1b'),
        "{}",
        text.out
    );
}

#[test]
fn an_export_has_every_live_record_once_in_order() {
    let dir = filled();
    let answer = inspect("export", dir.path(), &[]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let lines = answer.lines();
    let of = |name: &str| -> Vec<u64> {
        let here = lines.iter().filter(|l| l["channel"] == name);
        here.map(|l| l["offset"].as_u64().unwrap()).collect()
    };
    assert_eq!(of("events"), (10..=30).collect::<Vec<_>>());
    assert_eq!(of("jobs"), [2, 5, 6, 8, 9]);
    assert_eq!((of("state"), of("jobs__dlq")), (vec![4, 5, 7], vec![1]));
    assert_eq!(lines.len(), 30);
    let job = lines.iter().find(|l| l["channel"] == "jobs").unwrap();
    assert_eq!(
        (&job["payload"], &job["attempts"]),
        (&json!("job 2"), &json!(2))
    );
    assert_eq!(job["user_properties"], json!([["k", "v"]]));
    let again = inspect("export", dir.path(), &[]);
    assert_eq!(again.out, answer.out, "the order is stable");
    let one = inspect("export", dir.path(), &["--channel", "state"]).lines();
    assert!(one.len() == 3 && one.iter().any(|l| l["deletion"] == true));
}

#[test]
fn an_export_goes_to_a_new_file_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let (log, file) = (dir.path().join("log"), dir.path().join("records.jsonl"));
    let engine = open(&log);
    let only = engine.define("only", Kind::Sequence).unwrap();
    append(&engine, only, &body("a", &[0xff, 0xfe]));
    append_raw(&engine, only, b"\x07 no message".to_vec());
    close(engine, &log);
    let args = ["--out", file.to_str().unwrap()];
    let answer = inspect("export", &log, &args);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (1, ""),
        "one record is no message"
    );
    assert!(
        answer.err.contains("record 2: message layout 7"),
        "{}",
        answer.err
    );
    let written = std::fs::read_to_string(&file).unwrap();
    let line: Value = serde_json::from_str(written.trim_end()).unwrap();
    assert_eq!(
        (&line["payload"], &line["payload_base64"]),
        (&Value::Null, &json!("//4="))
    );
    let again = inspect("export", &log, &args);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("is not overwritten"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
}

/// What was moved lies in a later segment than its younger neighbours.
#[test]
fn moved_records_are_read_in_offset_order() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let slow = engine.define("slow", Kind::Sequence).unwrap();
    let work = engine.define("work", Kind::Work).unwrap();
    let busy = engine.define("busy", Kind::Sequence).unwrap();
    let mut moved = 0;
    for round in 1..=40u64 {
        append(
            &engine,
            slow,
            &body("slow", format!("slow {round}").as_bytes()),
        );
        enqueue(&engine, work, format!("job {round}").as_bytes());
        for _ in 0..20 {
            append(&engine, busy, &body("busy", b"many"));
        }
        let plan = engine.plan_trim(busy, round * 20).unwrap().unwrap();
        submit(&engine, Operation::Trim(plan));
        loop {
            match engine.tidy().unwrap() {
                Tidied::Nothing => break,
                Tidied::Moved(n) => moved += n,
                Tidied::Dropped(_) => {}
            }
        }
    }
    assert!(moved > 0, "the set-up has to move something");
    close(engine, dir.path());
    let lines = inspect("export", dir.path(), &["--channel", "slow"]).lines();
    let payloads: Vec<_> = lines
        .iter()
        .map(|l| l["payload"].as_str().unwrap())
        .collect();
    let expected: Vec<_> = (1..=40).map(|n| format!("slow {n}")).collect();
    assert_eq!(payloads, expected);
    let queue = inspect("queue", dir.path(), &["work", "--json"]).json();
    assert_eq!(queue["jobs"].as_array().unwrap().len(), 40);
}

#[test]
fn every_command_answers_consistently_while_a_thread_writes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let channels = define(&engine);
    for _ in 0..30 {
        append(&engine, channels.log, &body("events/a", b"before"));
    }
    readers(&engine, channels.log);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Acquire) {
                n += 1;
                append(&engine, channels.log, &body("events/a", b"one of many"));
                enqueue(&engine, channels.queue, b"a job");
                if n % 50 == 0 {
                    let plan = engine.plan_trim(channels.log, n - 10).unwrap().unwrap();
                    submit(&engine, Operation::Trim(plan));
                    let channel = channels.queue;
                    for offset in n - 49..=n {
                        submit(&engine, Operation::Resolve { channel, offset });
                    }
                    while engine.tidy().unwrap() != Tidied::Nothing {}
                }
            }
        });
        let mut answers = Vec::new();
        for round in 0..6 {
            let json: &[&str] = if round % 2 == 0 { &["--json"] } else { &[] };
            for verb in ["segments", "positions", "sessions", "export", "verify"] {
                answers.push((verb, inspect(verb, dir.path(), json)));
            }
            let args = [&["jobs"], json].concat();
            answers.push(("queue", inspect("queue", dir.path(), &args)));
            answers.push(("repair", inspect("repair", dir.path(), json)));
        }
        done.store(true, Ordering::Release);
        writer.join().unwrap();
        for (verb, answer) in answers {
            let said = format!("{verb}: {}{}", answer.out, answer.err);
            if verb == "repair" {
                assert_eq!(answer.code, 1, "{said}");
                assert!(answer.err.contains("saguin.lock is locked"), "{said}");
                continue;
            }
            let changed = answer
                .err
                .contains("ask again, or ask a copy of a snapshot");
            assert!(answer.code == 0 || changed && answer.code == 1, "{said}");
            if verb == "export" && answer.code == 0 {
                let lines = answer.lines();
                let events = lines.iter().filter(|l| l["channel"] == "events");
                let offsets: Vec<_> = events.map(|l| l["offset"].as_u64().unwrap()).collect();
                assert!(offsets.windows(2).all(|w| w[0] + 1 == w[1]), "{offsets:?}");
            }
        }
    });
}

/// Whatever segments went, their files are soon the next ones. Those that are already are left alone.
fn overwrite_what_went(dir: &Path, links: &Path) {
    let number = |path: PathBuf| std::fs::metadata(path).unwrap().ino();
    let used: BTreeSet<u64> = segments(dir).into_iter().map(number).collect();
    let mut went = 0;
    for link in std::fs::read_dir(links).unwrap() {
        let path = link.unwrap().path();
        if !used.contains(&number(path.clone())) {
            edit(&path, |bytes| bytes[SEGMENT_HEADER_BYTES..].fill(0));
            went += 1;
        }
    }
    assert!(went > 10, "{went} segments went");
}

/// Reads a channel's records, stops after the first and calls `meanwhile`, then reads the rest: their
/// offsets, what was said, and the exit code.
fn read_around(
    dir: &Path,
    channel: &str,
    meanwhile: impl FnOnce(),
) -> (Vec<u64>, String, Option<i32>) {
    let args = ["records", "--json", "--full", "--limit", "100000"];
    let mut child = command()
        .args(args)
        .args(["--channel", channel])
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap();
    // It waits for its reader soon, far from the end.
    let aside = tempfile::tempdir().unwrap();
    for path in segments(dir) {
        let link = aside.path().join(path.file_name().unwrap());
        std::fs::hard_link(path, link).unwrap();
    }
    meanwhile();
    overwrite_what_went(dir, aside.path());
    let offset = |line: std::io::Result<String>| {
        let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
        record["offset"].as_u64().unwrap()
    };
    let offsets = std::iter::once(first).chain(lines).map(offset).collect();
    let mut err = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut err).unwrap();
    (offsets, err, child.wait().unwrap().code())
}

/// A segment whose records are all removed goes, and its file becomes the next one, while somebody
/// reads it.
#[test]
fn records_that_are_removed_while_they_are_read_are_no_damage_and_never_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let c = fill(&engine);
    for _ in 0..400 {
        append(&engine, c.log, &body("events/a", &[b'x'; 500]));
    }
    let (offsets, err, code) = read_around(dir.path(), "events", || {
        let plan = engine.plan_trim(c.log, 350).unwrap().unwrap();
        submit(&engine, Operation::Trim(plan));
        while engine.tidy().unwrap() != Tidied::Nothing {}
        for _ in 0..20 {
            append(&engine, c.log, &body("events/a", b"later"));
        }
    });
    let next = offsets.last().unwrap() + 1;
    let holes = offsets.windows(2).filter(|w| w[0] + 1 != w[1]).count();
    assert_eq!(holes, 0, "{offsets:?}");
    let said = format!("records {next} to 349 were removed while they were read; ask again");
    assert!(code == Some(1) && err.contains(&said), "{err}");
}

#[test]
fn records_that_are_moved_while_they_are_read_are_read_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let c = fill(&engine);
    for _ in 0..400 {
        enqueue(&engine, c.queue, &[b'x'; 500]);
    }
    let kept = |offset: &u64| offset.is_multiple_of(20);
    let (offsets, err, code) = read_around(dir.path(), "jobs", || {
        for offset in (10..=350).filter(|offset| !kept(offset)) {
            let channel = c.queue;
            submit(&engine, Operation::Resolve { channel, offset });
        }
        while engine.tidy().unwrap() != Tidied::Nothing {}
    });
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(offsets.windows(2).all(|w| w[0] < w[1]), "{offsets:?}");
    let found: Vec<_> = offsets.iter().copied().filter(kept).collect();
    let expected: Vec<_> = (1..=409).filter(kept).collect();
    assert_eq!(found, expected);
    assert!(
        offsets.len() < 300,
        "what was resolved meanwhile is not all there"
    );
}

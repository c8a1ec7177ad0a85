//! What the four commands say of a good log, on a stopped, an open and a copied directory.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use saguin_log_engine::format::Kind;
use serde_json::{Value, json};

const ALL: [&[&str]; 9] = [
    &["summary"],
    &["channels"],
    &["records", "--channel", "events"],
    &["verify"],
    &["segments"],
    &["positions"],
    &["queue", "jobs"],
    &["sessions"],
    &["export"],
];

#[test]
fn a_summary_says_what_the_log_is_and_how_it_ends() {
    let dir = filled();
    let paths = segments(dir.path());
    std::fs::write(dir.path().join("log/notes.txt"), "mine").unwrap();
    let answer = inspect("summary", dir.path(), &["--json"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let found = answer.json();
    let id = std::fs::read_to_string(dir.path().join("saguin.lock")).unwrap();
    assert_eq!(found["log_id"], id.trim());
    assert_eq!(found["directory"], dir.path().to_str().unwrap());
    assert_eq!(found["open"], false);
    assert_eq!((&found["channels"], &found["keys"]), (&json!(4), &json!(1)));
    assert_eq!(found["ending"], json!({ "kind": "clean_stop" }));
    assert_eq!(found["roll_cut_short"], false);
    let notes = dir.path().join("log/notes.txt");
    assert_eq!(found["other_files"], json!([notes.to_str().unwrap()]));
    let listed = found["segments"].as_array().unwrap();
    assert_eq!(listed.len(), paths.len());
    let mut next = 1;
    for (i, segment) in listed.iter().enumerate() {
        assert_eq!(segment["number"], i as u64 + 1);
        assert_eq!(
            segment["file"],
            paths[i].file_name().unwrap().to_str().unwrap()
        );
        assert_eq!(segment["first_lsn"], next);
        let last = segment["last_lsn"].as_u64().unwrap();
        assert_eq!(segment["frames"], last + 1 - next);
        assert_eq!(segment["sealed"], i + 1 < listed.len());
        let (used, room) = (&segment["bytes_used"], &segment["capacity_bytes"]);
        assert!(used.as_u64() <= room.as_u64() && used.as_u64() > Some(4096));
        assert!(segment["writer"].as_str().unwrap().starts_with("saguin "));
        assert!(segment["written_at"].as_str().unwrap().ends_with('Z'));
        next = last + 1;
    }
    assert_eq!(found["last_lsn"], next - 1);
    let checkpoint = dir.path().join(format!("checkpoint/{:020}.ckpt", next - 1));
    let expected = json!({ "file": checkpoint.to_str().unwrap(), "reaches": next - 1 });
    assert_eq!(found["checkpoint"], expected);
    assert_eq!(found["rejected_checkpoints"], json!([]));
    assert_eq!(found["contradiction"], Value::Null);
    assert_eq!(found["holds"], json!({ "count": 0, "bytes": 0 }));
    let text = inspect("summary", dir.path(), &[]).out;
    assert!(text.contains("ends: with a clean stop"), "{text}");
    assert!(text.contains("open: no process has it open"), "{text}");
}

#[test]
fn channels_are_listed_with_their_numbers() {
    let dir = filled();
    let line = |id: u32, name: &str, kind: &str, next: u64, floor: u64, count: u64| {
        json!({
            "id": id, "name": name, "type": kind, "next": next, "floor": floor,
            "count": count, "bytes": count * 77,
        })
    };
    let expected = json!({ "channels": [
        line(0, "events", "append", 31, 10, 21),
        line(1, "state", "latest", 8, 1, 3),
        line(2, "jobs", "queue", 10, 1, 5),
        line(3, "jobs__dlq", "append", 2, 1, 1),
    ] });
    let answer = inspect("channels", dir.path(), &["--json"]);
    assert_eq!((answer.code, answer.json()), (0, expected));
    let text = inspect("channels", dir.path(), &[]).out;
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["0", "events", "append", "31", "10", "21", "1617"]);
}

fn offsets(lines: &[Value]) -> Vec<u64> {
    lines
        .iter()
        .map(|l| l["offset"].as_u64().unwrap())
        .collect()
}

fn records(dir: &Path, channel: &str, args: &[&str]) -> Vec<Value> {
    let args = [&["--json", "--channel", channel], args].concat();
    let answer = inspect("records", dir, &args);
    assert_eq!(answer.code, 0, "{}", answer.err);
    answer.lines()
}

#[test]
fn a_record_is_shown_with_its_message_and_its_place() {
    let dir = filled();
    let mut found = records(dir.path(), "jobs", &["--from", "2", "--limit", "1"]);
    let mut found = found.pop().unwrap();
    let object = found.as_object_mut().unwrap();
    let file = object.remove("file").unwrap();
    let position = object.remove("position").unwrap().as_u64().unwrap() as usize;
    assert!(object.remove("lsn").unwrap().as_u64().unwrap() > 1);
    let expected = json!({
        "channel": "jobs",
        "offset": 2,
        "time": "2026-03-01T12:00:00.250Z",
        "time_ms": NOON,
        "size": 77,
        "deletion": false,
        "attempts": 2,
        "first_attempt_ms": NOON + 1,
        "last_attempt_ms": NOON + 2,
        "error": null,
        "message": {
            "id": "abababab-abab-abab-abab-abababababab",
            "topic": "jobs/a",
            "publisher": "pump-1",
            "qos": 1,
            "retain": false,
            "expiry_seconds": null,
            "user_properties": 1,
            "payload": "job 2",
            "payload_encoding": "utf-8",
            "payload_bytes": 5,
            "payload_cut": false,
        },
    });
    assert_eq!(found, expected);
    // The frame is where it is said to be: the payload lies shortly after its header.
    let bytes = std::fs::read(dir.path().join("log").join(file.as_str().unwrap())).unwrap();
    let frame = &bytes[position..position + 160];
    assert!(frame.windows(5).any(|w| w == b"job 2"));
}

#[test]
fn only_live_records_are_shown_in_offset_order() {
    let dir = filled();
    let events = records(dir.path(), "events", &[]);
    assert_eq!(offsets(&events), (10..=30).collect::<Vec<_>>());
    for event in &events {
        let payload = format!("event {}", event["offset"]);
        assert_eq!(event["message"]["payload"], payload);
        assert_eq!(event["attempts"], Value::Null);
    }
    let state = records(dir.path(), "state", &[]);
    let shown: Vec<_> = state
        .iter()
        .map(|s| {
            (
                s["message"]["topic"].as_str().unwrap(),
                s["deletion"].as_bool().unwrap(),
            )
        })
        .collect();
    let expected = [("state/2", false), ("state/1", false), ("state/0", true)];
    assert_eq!(shown, expected);
    assert_eq!(state[0]["message"]["payload"], "value 20");
    let jobs = records(dir.path(), "jobs", &[]);
    assert_eq!(offsets(&jobs), [2, 5, 6, 8, 9]);
    let dead = records(dir.path(), "jobs__dlq", &[]);
    assert_eq!(
        (offsets(&dead), &dead[0]["message"]["payload"]),
        (vec![1], &json!("job 3"))
    );
}

#[test]
fn a_limit_and_a_removed_beginning_are_said() {
    let dir = filled();
    let ask = |args: &[&str]| {
        let args = [&["--json", "--channel", "events"], args].concat();
        inspect("records", dir.path(), &args)
    };
    let answer = ask(&["--from", "3", "--limit", "2"]);
    assert_eq!(offsets(&answer.lines()), [10, 11]);
    assert!(
        answer.err.contains("records 3 to 9 were removed"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("go on with --from 12"),
        "{}",
        answer.err
    );
    let answer = ask(&["--from", "29", "--limit", "2"]);
    assert_eq!(
        (offsets(&answer.lines()), answer.err.as_str()),
        (vec![29, 30], "")
    );
    let answer = ask(&["--from", "31"]);
    assert_eq!(
        (answer.code, answer.out.as_str(), answer.err.as_str()),
        (0, "", "")
    );
}

#[test]
fn payloads_are_cut_escaped_or_hexadecimal() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let only = engine.define("only", Kind::Sequence).unwrap();
    append(
        &engine,
        only,
        &body("a", b"\x1b]0;owned\x07 \xc2\x9b2J caf\xc3\xa9"),
    );
    append(&engine, only, &body("b", &[0xff; 300]));
    append(&engine, only, &body("c", &[b'x'; 300]));
    append_raw(&engine, only, b"\x07 no message".to_vec());
    close(engine, dir.path());

    let answer = inspect("records", dir.path(), &[]);
    assert_eq!(
        answer.code, 0,
        "the only channel needs no name: {}",
        answer.err
    );
    let bad = answer.out.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(bad, None, "{:?}", answer.out);
    assert!(
        answer
            .out
            .contains("text: \\u{1b}]0;owned\\u{7} \\u{9b}2J café\n"),
        "{}",
        answer.out
    );
    let cut = format!("300 bytes, hex: {} ...\n", "ff".repeat(256));
    assert!(answer.out.contains(&cut), "{}", answer.out);
    assert!(
        answer
            .out
            .contains("unreadable: message layout 7 is unknown"),
        "{}",
        answer.out
    );

    let lines = inspect("records", dir.path(), &["--json"]).lines();
    assert_eq!(
        lines[0]["message"]["payload"],
        "\x1b]0;owned\x07 \u{9b}2J café"
    );
    assert_eq!(lines[1]["message"]["payload_encoding"], "hex");
    assert_eq!(lines[2]["message"]["payload"], "x".repeat(256));
    assert_eq!(lines[2]["message"]["payload_cut"], true);
    assert_eq!(lines[3]["message"], Value::Null);
    assert!(lines[3]["error"].as_str().unwrap().contains("layout 7"));
    let full = inspect("records", dir.path(), &["--json", "--full"]).lines();
    assert_eq!(full[1]["message"]["payload"], "ff".repeat(300));
    assert_eq!(full[2]["message"]["payload_cut"], false);
}

#[test]
fn nothing_changes_and_nothing_is_made() {
    let dir = filled();
    // As in a copy: without the lock file, and with what a crash leaves.
    std::fs::remove_file(dir.path().join("saguin.lock")).unwrap();
    std::fs::write(dir.path().join("log/spare.tmp"), "half").unwrap();
    let last = segments(dir.path())
        .into_iter()
        .rfind(|p| p.extension().unwrap() == "seg");
    edit(&last.unwrap(), |bytes| {
        let end = bytes.len() - 64;
        bytes[end..].fill(0x77);
    });
    let before = everything(dir.path());
    for json in [false, true] {
        for command in ALL {
            let mut args = command[1..].to_vec();
            args.extend(json.then_some("--json"));
            let answer = inspect(command[0], dir.path(), &args);
            assert_eq!(answer.code, 0, "{command:?}: {}", answer.err);
        }
    }
    assert!(before == everything(dir.path()), "something was changed");
}

#[test]
fn an_open_log_can_be_read_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let channels = fill(&engine);
    let before = everything(dir.path());
    for command in ALL {
        let answer = inspect(command[0], dir.path(), &command[1..]);
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.err);
    }
    assert_eq!(
        inspect("summary", dir.path(), &["--json"]).json()["open"],
        true
    );
    assert!(before == everything(dir.path()), "something was changed");
    append(&engine, channels.log, &body("events/a", b"after"));
    let after = records(dir.path(), "events", &["--from", "31"]);
    assert_eq!(after[0]["message"]["payload"], "after");
    close(engine, dir.path());
    assert_eq!(
        inspect("summary", dir.path(), &["--json"]).json()["open"],
        false
    );
    close(open(dir.path()), dir.path());
}

#[test]
fn a_log_that_is_being_written_is_never_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let log = define(&engine).log;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                append(&engine, log, &body("events/a", b"one of many"));
            }
        });
        let mut answers = Vec::new();
        for _ in 0..25 {
            answers.push(inspect("verify", dir.path(), &[]));
        }
        done.store(true, Ordering::Release);
        writer.join().unwrap();
        for answer in answers {
            assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
        }
    });
}

#[test]
fn what_makes_no_sense_is_a_usage_error_in_a_sentence() {
    let empty = tempfile::tempdir().unwrap();
    for dir in [empty.path(), &empty.path().join("nowhere")] {
        for command in ALL {
            let answer = inspect(command[0], dir, &command[1..]);
            assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{command:?}");
            assert!(answer.err.contains("holds no log"), "{}", answer.err);
        }
    }
    assert_eq!(everything(empty.path()).len(), 1, "nothing was made");
    let dir = filled();
    let answer = inspect("verify", &dir.path().join("log"), &[]);
    assert_eq!(answer.code, 2);
    assert!(
        answer.err.contains("name the directory above"),
        "{}",
        answer.err
    );
    for args in [&[][..], &["--channel", "evnts"]] {
        let answer = inspect("records", dir.path(), args);
        assert_eq!(answer.code, 2);
        assert!(
            answer.err.contains("events, state, jobs, jobs__dlq"),
            "{}",
            answer.err
        );
    }
    assert_eq!(inspect("mend", dir.path(), &[]).code, 2);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let only = engine.define("only", Kind::Sequence).unwrap();
    for _ in 0..300 {
        // More than a pipe holds, so that writing to it must fail.
        append(&engine, only, &body("a", &[b'x'; 1500]));
    }
    close(engine, dir.path());
    let mut child = command()
        .args(["records", "--full", "--limit", "300"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 10]).unwrap();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
}

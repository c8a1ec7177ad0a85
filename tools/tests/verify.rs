//! `verify`: damage is named with its file and position, and what a crash leaves is not damage.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::Path;

use common::*;
use saguin_log_engine::Operation;
use saguin_log_engine::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use serde_json::{Value, json};

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Where the frames of each segment end.
fn ends(dir: &Path) -> Vec<u64> {
    let summary = inspect("summary", dir, &["--json"]).json();
    let segments = summary["segments"].as_array().unwrap();
    let end = |s: &Value| s["bytes_used"].as_u64().unwrap();
    segments.iter().map(end).collect()
}

fn statuses(verdict: &Value) -> Vec<&str> {
    let segments = verdict["segments"].as_array().unwrap();
    segments
        .iter()
        .map(|s| s["status"].as_str().unwrap())
        .collect()
}

#[test]
fn a_good_log_is_whole() {
    let dir = filled();
    let answer = inspect("verify", dir.path(), &[]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    assert_eq!(
        answer.out.matches("  ok  ").count(),
        segments(dir.path()).len()
    );
    assert!(
        answer
            .out
            .ends_with("whole: every frame verifies, and 30 live records can be read\n")
    );
    let verdict = inspect("verify", dir.path(), &["--json"]).json();
    assert_eq!(
        (&verdict["whole"], &verdict["damage"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(verdict["live_records"], 30);
    assert_eq!(verdict["ending"], json!({ "kind": "clean_stop" }));
}

#[test]
fn a_flipped_byte_is_named_with_its_file_and_position() {
    let dir = filled();
    let (paths, ends) = (segments(dir.path()), ends(dir.path()));
    for (i, (path, &end)) in paths.iter().zip(&ends).enumerate() {
        // The last frame of the log says that it was closed and acknowledges nothing.
        let last = i + 1 == paths.len();
        let end = if last {
            end - FRAME_HEADER_BYTES as u64
        } else {
            end
        };
        let header = (0..SEGMENT_HEADER_BYTES as u64).step_by(509);
        let frames = (SEGMENT_HEADER_BYTES as u64..end).step_by(23);
        for at in header.chain(frames) {
            let flip = |bytes: &mut Vec<u8>| bytes[at as usize] ^= 0x41;
            edit(path, flip);
            let answer = inspect("verify", dir.path(), &["--json"]);
            assert_eq!(answer.code, 1, "byte {at} of {}", path.display());
            let verdict = answer.json();
            assert_eq!(verdict["whole"], false);
            let damage = &verdict["damage"];
            assert_eq!(damage["file"], path.to_str().unwrap(), "byte {at}");
            let position = damage["position"].as_u64().unwrap();
            assert!(position <= at, "byte {at}: {damage}");
            let expected: Vec<_> = (0..paths.len())
                .map(|j| match j.cmp(&i) {
                    // Headers are read first, all of them.
                    std::cmp::Ordering::Less if at < SEGMENT_HEADER_BYTES as u64 => "readable",
                    std::cmp::Ordering::Less => "ok",
                    std::cmp::Ordering::Equal => "damaged",
                    std::cmp::Ordering::Greater => "readable",
                })
                .collect();
            assert_eq!(statuses(&verdict), expected, "byte {at}");
            if at % 7 == 0 {
                let before = everything(dir.path());
                let text = inspect("verify", dir.path(), &[]);
                assert_eq!(text.code, 1);
                let named = format!("DAMAGE in {} at {position}: ", path.display());
                assert!(text.out.contains(&named), "{}", text.out);
                let row = format!("segment {}  DAMAGE at {position}", name(path));
                assert!(text.out.contains(&row), "{}", text.out);
                assert_eq!(inspect("summary", dir.path(), &[]).code, 1);
                assert!(before == everything(dir.path()), "something was changed");
            }
            edit(path, flip);
        }
    }
    assert_eq!(inspect("verify", dir.path(), &[]).code, 0);
}

#[test]
fn what_was_read_before_the_damage_is_said_with_both_sums() {
    let dir = filled();
    let (path, end) = (segments(dir.path()).remove(1), ends(dir.path())[1]);
    edit(&path, |bytes| bytes[end as usize / 8 * 8 - 300] ^= 1);
    let verdict = inspect("verify", dir.path(), &["--json"]).json();
    let damage = &verdict["damage"];
    let (expected, found) = (&damage["expected"], &damage["found"]);
    assert!(
        expected.as_str().unwrap().len() == 8 && expected != found,
        "{damage}"
    );
    let what = damage["what"].as_str().unwrap();
    assert!(what.contains(expected.as_str().unwrap()) && what.contains(found.as_str().unwrap()));
    let last = verdict["segments"][1]["last_lsn"].as_u64().unwrap();
    assert!(
        what.starts_with(&format!("frame {} was durable", last + 1)),
        "{what}"
    );
    let text = inspect("verify", dir.path(), &[]).out;
    let safe = format!("frames up to {last}; ");
    assert!(
        text.contains(&safe) && !text.contains("nothing after it is opened"),
        "{text}"
    );
    // It lies before the newest checkpoint: a start reads from that on, and serves the rest.
    assert_eq!(verdict["starts"], true);
    assert!(
        text.contains("a start reads from the newest checkpoint on and would not stop"),
        "{text}"
    );
    close(open(dir.path()), dir.path());
    std::fs::remove_dir_all(dir.path().join("checkpoint")).unwrap();
    let verdict = inspect("verify", dir.path(), &["--json"]).json();
    assert_eq!(verdict["starts"], false);
    let text = inspect("verify", dir.path(), &[]).out;
    assert!(
        text.contains(&format!("{safe}nothing after it is opened")),
        "{text}"
    );
}

#[test]
fn missing_segments_and_a_foreign_lock_file_are_damage() {
    let dir = filled();
    let paths = segments(dir.path());
    for (i, path) in paths.iter().enumerate() {
        let aside = dir.path().join("aside");
        std::fs::rename(path, &aside).unwrap();
        let answer = inspect("verify", dir.path(), &[]);
        assert_eq!(answer.code, 1);
        let missing = format!("segment number {} is missing", i + 1);
        // Without its beginning a log can contradict itself before its end is reached.
        let named = answer.out.contains(&missing) || i == 0 && answer.out.contains("DAMAGE in ");
        assert!(named, "{}", answer.out);
        std::fs::rename(&aside, path).unwrap();
    }
    let lock = dir.path().join("saguin.lock");
    std::fs::write(&lock, "0".repeat(32)).unwrap();
    let answer = inspect("verify", dir.path(), &[]);
    assert_eq!(answer.code, 1);
    assert!(answer.out.contains(&"0".repeat(32)), "{}", answer.out);
    // Everything but the lock file is gone: never a directory that looks new.
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    let answer = inspect("verify", dir.path(), &[]);
    assert_eq!(answer.code, 1);
    assert!(
        answer.out.contains("has no segments any more"),
        "{}",
        answer.out
    );
}

#[test]
fn a_torn_tail_is_normal_after_a_crash() {
    let dir = filled();
    let path = segments(dir.path()).pop().unwrap();
    let end = ends(dir.path()).pop().unwrap();
    let torn = json!({ "file": path.to_str().unwrap(), "position": end, "bytes": 40, "frames": 0 });
    edit(&path, |bytes| bytes[end as usize..][..40].fill(0x77));
    let answer = inspect("verify", dir.path(), &[]);
    assert_eq!(answer.code, 0);
    assert!(
        answer.out.contains(&format!(", torn tail at {end}\n")),
        "{}",
        answer.out
    );
    let said = format!(
        "{} from position {end} on: 40 bytes and 0 whole frames",
        path.display()
    );
    assert!(answer.out.contains(&said), "{}", answer.out);
    assert!(
        answer.out.contains("normal after a crash"),
        "{}",
        answer.out
    );
    for verb in ["verify", "summary"] {
        let mut ending = inspect(verb, dir.path(), &["--json"]).json()["ending"].take();
        let kind = ending.as_object_mut().unwrap().remove("kind");
        assert_eq!((kind, &ending), (Some(json!("torn_tail")), &torn));
    }
    close(open(dir.path()), dir.path());
    let verdict = inspect("verify", dir.path(), &["--json"]).json();
    assert_eq!(
        verdict["ending"]["kind"], "clean_stop",
        "opening dropped it"
    );
}

#[test]
fn a_roll_cut_short_is_said_and_is_no_damage() {
    let dir = filled();
    let (paths, ends) = (segments(dir.path()), ends(dir.path()));
    // As a crash leaves it: the newest segment holds its prologue, the one before has no seal.
    let [.., before, last] = &paths[..] else {
        panic!()
    };
    let seal = ends[ends.len() - 2] as usize - 40;
    let first = u32::from_le_bytes(std::fs::read(last).unwrap()[4100..4104].try_into().unwrap());
    edit(last, |bytes| {
        bytes[SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + first as usize..].fill(0)
    });
    edit(before, |bytes| bytes[seal..].fill(0));
    // A crash comes before a checkpoint of what is not written.
    std::fs::remove_dir_all(dir.path().join("checkpoint")).unwrap();
    let answer = inspect("verify", dir.path(), &[]);
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let said = format!("in {} at {seal}: a crash came", before.display());
    assert!(answer.out.contains(&said), "{}", answer.out);
    assert_eq!(
        inspect("summary", dir.path(), &["--json"]).json()["roll_cut_short"],
        true
    );
}

#[test]
fn a_live_record_that_is_no_message_is_named_until_it_is_removed() {
    let dir = filled();
    let engine = open(dir.path());
    let (log, _) = engine.channel_named(b"events").unwrap();
    let offset = append_raw(&engine, log, vec![9; 40]);
    append(&engine, log, &body("events/a", b"good"));
    let answer = inspect("verify", dir.path(), &[]);
    assert_eq!(answer.code, 1, "{}", answer.out);
    assert!(answer.out.contains(&format!(
        "channel events, record {offset}: message layout 9"
    )));
    assert!(!answer.out.contains("whole: "), "{}", answer.out);
    let verdict = inspect("verify", dir.path(), &["--json"]).json();
    assert_eq!(
        (&verdict["whole"], &verdict["damage"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(verdict["unreadable_records"], 1);
    let named = &verdict["unreadable"][0];
    assert_eq!(
        (&named["channel"], &named["offset"]),
        (&json!("events"), &json!(offset))
    );
    assert!(named["file"].as_str().unwrap().ends_with(".seg"));
    let trim = engine.plan_trim(log, offset + 1).unwrap().unwrap();
    submit(&engine, Operation::Trim(trim));
    assert_eq!(inspect("verify", dir.path(), &[]).code, 0);
}

#[test]
fn checkpoints_and_footers_that_do_not_hold_are_named_and_are_no_damage() {
    let dir = filled();
    let verdict = || inspect("verify", dir.path(), &["--json"]);
    let good = verdict().json();
    let reaches = good["checkpoint"]["reaches"].as_u64().unwrap();
    assert_eq!(good["segments"][0]["footer"], "good");
    assert_eq!(good["rejected_checkpoints"], json!([]));
    let name = format!("{reaches:020}.ckpt");
    let path = dir.path().join("checkpoint").join(&name);
    edit(&path, |bytes| bytes[20] ^= 1);
    let first = segments(dir.path()).remove(0);
    edit(&first, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let second = segments(dir.path()).remove(1);
    edit(&second, |bytes| {
        let capacity = SegmentHeader::decode(bytes).unwrap().capacity as usize;
        bytes.truncate(capacity);
    });
    let bad = verdict();
    assert_eq!(bad.code, 0, "{}", bad.out);
    let bad = bad.json();
    assert_eq!((&bad["whole"], &bad["damages"]), (&json!(true), &json!([])));
    assert_eq!(bad["segments"][0]["footer"], "bad");
    assert_eq!(bad["segments"][1]["footer"], "missing");
    let rejected = &bad["rejected_checkpoints"][0];
    assert!(rejected["file"].as_str().unwrap().ends_with(&name), "{bad}");
    let listed = inspect("segments", dir.path(), &["--json"]).json();
    let footers = |i: usize| {
        (
            &listed["segments"][i]["footer"],
            &listed["segments"][i]["footer_fault"],
        )
    };
    assert_eq!(footers(0).0, "bad");
    assert!(
        footers(0).1.as_str().unwrap().starts_with("footer"),
        "{listed}"
    );
    assert_eq!(footers(1), (&json!("missing"), &Value::Null));
    let last = segments(dir.path()).len() - 1;
    assert_eq!(
        footers(last),
        (&Value::Null, &Value::Null),
        "it is not sealed"
    );
    let text = inspect("segments", dir.path(), &[]).out;
    assert!(text.contains(", sealed, footer bad\n"), "{text}");
    let summary = inspect("summary", dir.path(), &["--json"]).json();
    assert_eq!(
        summary["rejected_checkpoints"],
        json!([path.to_str().unwrap()])
    );
    let older = summary["checkpoint"]["reaches"].as_u64();
    assert!(older < Some(reaches), "{summary}");
    let text = inspect("summary", dir.path(), &[]).out;
    assert!(
        text.contains(&format!(
            "checkpoint that does not hold, see verify: {name}\n"
        )),
        "{text}"
    );
    let text = inspect("verify", dir.path(), &[]).out;
    let said = format!("checkpoint {name}  does not hold: checkpoint checksum");
    assert!(text.contains(&said), "{text}");
    assert!(text.contains("nothing is lost by it"), "{text}");
    close(open(dir.path()), dir.path());
    let again = verdict().json();
    assert_eq!(again["segments"][0]["footer"], "good", "written again");
    assert!(again["checkpoint"]["reaches"].as_u64() > Some(reaches));
}

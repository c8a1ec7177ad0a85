//! The built binary against the built broker, at sizes that are small: what is shown is that each
//! scenario comes to its end with everything there, not how fast.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The broker that `cargo test --workspace` builds beside this crate's binary. `cargo test -p
/// saguin-bench` alone does not build it; then there is nothing to measure.
fn broker() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_saguin-bench")).with_file_name("saguin");
    if beside.exists() {
        return Some(beside);
    }
    eprintln!(
        "SKIPPED: {} is not there: cargo build -p saguin",
        beside.display()
    );
    None
}

fn bench(arguments: &str) -> Output {
    let directory = tempfile::TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_saguin-bench"))
        .args(arguments.split_whitespace())
        .arg("--dir")
        .arg(directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a scenario once and returns its figures: each has to be there and above zero.
fn figures(arguments: &str, names: &[&str]) -> Option<Value> {
    broker()?;
    let output = bench(&format!("{arguments} --runs 1 --json"));
    assert!(output.status.success(), "{arguments}: {}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for side in json["sides"].as_array().unwrap() {
        for name in names {
            let mut figures = side["figures"].as_array().unwrap().iter();
            let found = figures.find(|figure| figure["name"] == *name);
            let median = found.and_then(|figure| figure["median"].as_f64());
            assert!(
                median.is_some_and(|m| m > 0.0),
                "{arguments}: {name} in {json}"
            );
        }
    }
    Some(json)
}

#[test]
fn pub_counts_what_is_acknowledged() {
    let names = ["messages", "PUBACK p50", "PUBACK p99"];
    let json = figures("pub --connections 3 --window 4 --count 300", &names);
    let Some(json) = json else { return };
    assert!(json["limit"]["median"].as_f64().unwrap() > 0.0);
    figures(
        "pub --connections 2 --seconds 0.2 --topic elsewhere",
        &names,
    );
}

#[test]
fn pub_at_qos_0_is_over_when_everything_was_read() {
    figures("pub --qos 0 --connections 3 --count 500", &["messages"]);
    figures(
        "pub --qos 0 --connections 2 --seconds 0.1 --topic elsewhere",
        &["messages"],
    );
}

#[test]
fn queue_completes_every_job() {
    let names = ["jobs, to completion", "publish to idle worker p50"];
    figures(
        "queue --jobs 60 --singles 5 --workers 3 --publishers 2",
        &names,
    );
}

#[test]
fn replay_reads_every_record_in_order() {
    figures("replay --records 500", &["records stored", "records read"]);
}

#[test]
fn replay_with_consumers_gives_every_record_to_everybody() {
    let names = ["alone: PUBACK p99", "p99 in company of alone"];
    figures("replay --consumers 3 --rate 100 --seconds 0.2", &names);
}

#[test]
fn latest_reads_every_topic_once() {
    figures(
        "latest --topics 300",
        &["topics filled", "values read", "whole pass"],
    );
}

#[test]
fn fan_brings_every_message_to_every_subscriber() {
    let names = ["deliveries", "publish to last subscriber p99"];
    figures("fan --subscribers 5 --window 4 --seconds 0.1", &names);
    figures("fan --qos 1 --pairs 3 --window 4 --seconds 0.1", &names);
}

#[test]
fn idle_looks_at_the_memory_of_the_broker() {
    figures(
        "idle --connections 40",
        &["connected and subscribed, one after the other"],
    );
    let unknown = bench("idle --connections 1 --broker 127.0.0.1:1");
    assert!(
        said(&unknown).contains("--broker-pid"),
        "{}",
        said(&unknown)
    );
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn recover_kills_a_broker_and_starts_it_again() {
    figures(
        "recover --records 500",
        &["start to listening", "memory then"],
    );
    let running = bench("recover --broker 127.0.0.1:1");
    assert!(
        said(&running).contains("--broker-cmd"),
        "{}",
        said(&running)
    );
    assert_eq!(running.status.code(), Some(2));
}

#[test]
fn storm_lets_everybody_in() {
    figures("storm --clients 40", &["half of them in", "all of them in"]);
    let nobody = bench("storm --clients 2 --broker 127.0.0.1:1");
    assert_eq!(nobody.status.code(), Some(1), "{}", said(&nobody));
}

#[test]
fn backlog_is_read_whole_by_those_who_come_back() {
    let names = ["messages stored", "messages read on coming back"];
    figures("backlog --sessions 4 --messages 20", &names);
}

#[test]
fn slow_has_a_subscriber_that_does_not_read() {
    let names = ["alone: PUBACK p99", "p99 in company of alone"];
    figures("slow --rate 100 --seconds 0.1", &names);
}

#[test]
fn space_looks_into_the_data_directory() {
    figures("space --records 8000 --size 512", &["disk per record"]);
}

#[test]
fn two_brokers_take_turns_and_are_compared() {
    let two = "pub --count 100 --versus-config saguin-interval";
    let Some(json) = figures(two, &["messages"]) else {
        return;
    };
    let names: Vec<&Value> = json["sides"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["name"])
        .collect();
    assert_eq!(names, ["A saguin", "B saguin-interval"]);
    let table = bench(&format!("{two} --runs 1"));
    assert!(String::from_utf8_lossy(&table.stdout).contains("B of A"));
}

#[test]
fn options_that_make_no_sense_end_in_a_sentence_and_2() {
    for (arguments, part) in [
        ("pub --window 0", "1..=65535"),
        ("pub --seconds 0", "a number above 0"),
        ("pub --count 5 --seconds 1", "cannot be used with"),
        ("queue --size 7", "8..=16777216"),
        ("pub --broker localhost", "name a host and a port"),
        ("nothing", "unrecognized subcommand"),
        (
            "pub --broker 127.0.0.1:1 --broker-cmd x",
            "give one of them",
        ),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(
            said(&output).contains(part),
            "{arguments}: {}",
            said(&output)
        );
    }
}

#[test]
fn a_broker_that_is_not_there_or_ends_is_an_error_that_says_so() {
    for (arguments, part) in [
        (
            "pub --broker 127.0.0.1:1",
            "there is no connection to 127.0.0.1:1",
        ),
        ("pub --broker-cmd /nowhere/saguin", "could not be started"),
        ("pub --broker-cmd false", "ended by itself (exit status: 1)"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(
            said(&output).contains(part),
            "{arguments}: {}",
            said(&output)
        );
    }
}

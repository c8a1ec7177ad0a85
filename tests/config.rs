//! The command line and the configuration file, as whoever types them sees them.

mod common;

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use common::{Broker, check};

fn run(arguments: &[&str], file: &Path) -> Output {
    let mut all: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    all.push(file.into());
    check(&all)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_valid_file_is_checked_and_nothing_is_made() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart.yaml");
    let checked = run(&["--check-config"], &example);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    for channel in ["events", "state", "jobs"] {
        assert!(out(&checked).contains(channel), "{}", out(&checked));
    }

    let directory = tempfile::TempDir::new().expect("a directory");
    let log_dir = directory.path().join("log");
    let file = directory.path().join("saguin.yaml");
    let yaml = fs::read_to_string(&example).expect("the example");
    let yaml = yaml.replace("/tmp/saguin-quickstart", &log_dir.display().to_string());
    fs::write(&file, yaml).expect("the file");
    assert_eq!(run(&["--check-config"], &file).status.code(), Some(0));
    assert!(!log_dir.exists());
    // What it prints loads to itself.
    let printed = run(&["--output", "--check-config"], &file);
    assert_eq!(printed.status.code(), Some(0), "{}", err(&printed));
    let whole = directory.path().join("whole.yaml");
    fs::write(&whole, &printed.stdout).expect("the file");
    let again = run(&["--output", "--check-config"], &whole);
    assert_eq!(again.stdout, printed.stdout);
}

#[test]
fn every_mistake_is_named_with_its_line_and_nothing_starts() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let log_dir = directory.path().join("log");
    let file = directory.path().join("saguin.yaml");
    let yaml = format!(
        "broker:
  id: test
  colour: green
  mqtt: {{listen: {{tcp: {{address: \"127.0.0.1:0\"}}}}}}
  storage:
    default: main
    default_retention_period: none
    default_retention_bytes: none
    providers: {{main: {{type: log, log_dir: \"{}\"}}}}
channels:
  one: {{type: append, filter: a/#}}
  two: {{type: latest, filter: a/#}}
  three: {{type: queue, visibility_timeout: 5}}
",
        log_dir.display()
    );
    fs::write(&file, yaml).expect("the file");
    for command in ["--check-config", "--config"] {
        let found = run(&[command], &file);
        assert_eq!(found.status.code(), Some(2), "{command}");
        let said = err(&found);
        for part in ["colour", ":3:", ":13:", "visibility_timeout"] {
            assert!(said.contains(part), "no {part} in:\n{said}");
        }
        assert!(!out(&found).contains("listening"));
        assert!(!log_dir.exists());
    }
    let missing = run(&["--config"], &directory.path().join("none.yaml"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(err(&missing).contains("none.yaml"));
}

#[test]
fn usage_errors_are_2_and_help_is_0() {
    assert_eq!(check::<&str>(&[]).status.code(), Some(2));
    assert_eq!(check(&["--no-such-thing"]).status.code(), Some(2));
    assert_eq!(check(&["--help"]).status.code(), Some(0));
    let version = check(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(out(&version).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_address_in_use_is_a_failure_to_start() {
    let mut broker = Broker::start();
    broker.kill9();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let yaml = fs::read_to_string(broker.config()).expect("the file");
    fs::write(broker.config(), yaml.replace("127.0.0.1:0", &address)).expect("the file");
    let start = run(&["--config"], &broker.config());
    assert_eq!(start.status.code(), Some(1));
    assert!(err(&start).contains(&address), "{}", err(&start));
}

#[test]
fn a_route_is_what_the_broker_does() {
    let broker = Broker::start();
    let route = |subject: &str| {
        let output = check(&[
            OsString::from("--route"),
            broker.config().into(),
            subject.into(),
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    assert!(route("jobs/__dlq/a").contains("jobs__dlq"));
    assert!(route("events/a").contains("events"));
    assert!(route("talk/a").contains("broadcast"));
}

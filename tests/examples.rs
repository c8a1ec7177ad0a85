//! The example programs do what they say. They are skipped, loudly, where their tools are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

fn has(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn succeeds(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_tour_with_mosquitto() {
    // Both exit with 1 after printing their usage.
    let there = |program| Command::new(program).arg("--help").output().is_ok();
    if !there("mosquitto_pub") || !there("mosquitto_sub") {
        eprintln!("SKIPPED: mosquitto_pub and mosquitto_sub are not installed");
        return;
    }
    let mut command = Command::new(example("tour.sh"));
    succeeds(command.env("SAGUIN", env!("CARGO_BIN_EXE_saguin")));
}

#[test]
fn the_tour_with_paho() {
    let wanted = "from paho.mqtt.client import CallbackAPIVersion";
    if !has("python3", &["-c", wanted]) {
        eprintln!("SKIPPED: paho-mqtt 2 is not installed");
        return;
    }
    let mut command = Command::new("python3");
    command.arg(example("tour.py"));
    succeeds(command.args(["--broker", env!("CARGO_BIN_EXE_saguin")]));
}

//! Against brokers that go wrong: each is a few bytes on a socket, and each ends in a sentence.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

/// A CONNACK with Success, and one with a Receive Maximum of 2.
const CONNACK: &[u8] = &[0x20, 3, 0, 0, 0];
const CONNACK_OF_TWO: &[u8] = &[0x20, 6, 0, 0, 3, 0x21, 0, 2];

/// Admits a client with `connack`, waits for its first publish, says `answer`, and then ends or is silent.
fn broker(connack: &'static [u8], answer: &'static [u8], closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut some = [0; 4096];
        let _ = stream.read(&mut some);
        stream.write_all(connack).unwrap();
        let _ = stream.read(&mut some);
        let _ = stream.write_all(answer);
        if !closes {
            read_to_the_end(&mut stream);
        }
    });
    address
}

fn read_to_the_end(stream: &mut TcpStream) {
    let mut some = [0; 4096];
    while stream.read(&mut some).is_ok_and(|read| read > 0) {}
}

fn publish(address: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_saguin-bench"))
        .args("pub --runs 1 --connections 1 --window 3 --count 9 --patience 0.3".split(' '))
        .args(["--broker", address])
        .output()
        .unwrap()
}

fn says(connack: &'static [u8], answer: &'static [u8], closes: bool, code: i32, part: &str) {
    let output = publish(&broker(connack, answer, closes));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(part), "{said}");
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_publish_that_is_not_acknowledged_is_waited_for_and_then_missed() {
    says(CONNACK, &[], false, 1, "while PUBACKs was waited for");
}

#[test]
fn acknowledgements_in_the_wrong_order_are_no_figure() {
    says(
        CONNACK,
        &[0x40, 2, 0, 2],
        false,
        1,
        "acknowledged the publish 2 where 1 was next",
    );
}

#[test]
fn a_refused_publish_says_with_what() {
    says(
        CONNACK,
        &[0x40, 4, 0, 1, 0x97, 0],
        false,
        1,
        "refused a publish with 0x97",
    );
}

#[test]
fn a_refused_connection_says_with_what() {
    says(
        &[0x20, 3, 0, 0x87, 0],
        &[],
        false,
        1,
        "refused a connection with 0x87",
    );
}

#[test]
fn a_connection_that_is_closed_says_during_what() {
    says(CONNACK, &[], true, 1, "closed a connection without a word");
    says(CONNACK, &[0xE0, 1, 0x8B], true, 1, "with 0x8B");
}

#[test]
fn what_nobody_published_is_not_counted() {
    says(
        CONNACK,
        &[0x30, 6, 0, 1, b'a', 0, 1, 2],
        false,
        1,
        "did not publish",
    );
}

#[test]
fn bytes_that_are_no_packet_are_said_to_be_none() {
    says(CONNACK, &[0x00, 0x00], false, 1, "something MQTT has not");
}

#[test]
fn a_window_that_the_broker_does_not_take_is_a_wrong_option() {
    says(CONNACK_OF_TWO, &[], false, 2, "use --window 2 or less");
}

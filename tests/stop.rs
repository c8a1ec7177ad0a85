//! Signals.

mod common;

use std::io::Read;
use std::net::TcpStream;

use common::{Broker, Setup, hello, hello_v311};
use rustix::process::Signal;
use saguin_mqtt_codec::ReasonCode;

use ReasonCode as R;

#[test]
fn a_stop_tells_every_client_and_exits_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut broker = Broker::start();
        let mut new = hello("new").connect(&broker);
        let mut old = hello_v311("old").connect(&broker);
        new.ping();
        old.ping();
        broker.signal(signal);
        new.expect_disconnect(R::ServerShuttingDown);
        old.expect_closed();
        assert_eq!(broker.wait().code(), Some(0), "{signal:?}");
        assert!(broker.logged().contains("stopped"));
        // The lock is gone with it.
        broker.launch();
        hello("new").connect(&broker).ping();
    }
}

#[test]
fn a_stop_stores_positions_and_gives_jobs_back() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for payload in ["1", "2", "3"] {
        assert_eq!(publisher.publish("events/a", payload), R::Success);
    }
    assert_eq!(publisher.publish("jobs/a", "job"), R::Success);
    let mut consumer = hello("consumer").durable().connect(&broker);
    consumer.follow("events/#");
    assert_eq!(consumer.take().payload, "1");
    assert_eq!(consumer.take().payload, "2");
    let third = consumer.delivery();
    consumer.ping();
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    worker.take();
    worker.ping();
    assert_eq!(broker.stop().code(), Some(0));
    broker.launch();
    let mut consumer = hello("consumer").durable().connect(&broker);
    assert!(consumer.session_present);
    let again = consumer.take();
    assert_eq!(again.payload, third.payload);
    consumer.expect_nothing();
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    assert_eq!(common::property(&worker.take(), "saguin-attempt"), "2");
}

#[test]
fn a_hang_up_is_no_stop() {
    let broker = Broker::start();
    let mut client = hello("client").connect(&broker);
    broker.signal(Signal::HUP);
    broker.wait_for_line("SIGHUP");
    client.ping();
}

#[test]
fn a_stop_with_nobody_connected_is_a_stop() {
    let mut broker = Broker::start();
    assert_eq!(broker.stop().code(), Some(0));
}

#[test]
fn neither_a_half_open_socket_nor_a_deaf_client_holds_a_stop_up() {
    let mut broker = Broker::with(&Setup {
        limits: "write_timeout: 1h, connect_timeout: 1h, session_queue_bytes: 64MiB",
        ..Setup::default()
    });
    let mut half_open = TcpStream::connect(broker.address()).unwrap();
    let mut deaf = hello("deaf").connect(&broker);
    deaf.follow("events/#");
    let mut publisher = hello("publisher").connect(&broker);
    let large = "x".repeat(500_000);
    for _ in 0..40 {
        assert_eq!(publisher.publish("events/a", large.clone()), R::Success);
    }
    // Without an end to its patience the broker would outlast that of this test.
    assert_eq!(broker.stop().code(), Some(0));
    assert_eq!(half_open.read(&mut [0]).unwrap(), 0);
    assert!(!broker.logged().contains("did not end in time"));
    drop(deaf);
}

#[test]
fn a_signal_with_no_meaning_here_is_logged_and_ends_nothing() {
    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        let broker = Broker::start();
        let mut client = hello("client").connect(&broker);
        broker.signal(signal);
        broker.wait_for_line(name);
        client.ping();
    }
}

//! The limit of open files.

mod common;

use common::{Broker, Setup, hello};
use rustix::process::{Resource, getrlimit, setrlimit};

// The limits of this process are those of the broker it starts, so this is a test binary alone.
#[test]
fn the_soft_limit_is_raised_and_connections_are_bounded_by_the_hard_one() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(150);
    limit.maximum = Some(300);
    setrlimit(Resource::Nofile, limit).unwrap();
    let broker = Broker::with(&Setup {
        limits: "max_connections: 1000",
        ..Setup::default()
    });
    let warned = broker.wait_for_line("at most 100 connections");
    assert!(warned.contains("to 1200"), "{warned}");
    hello("client").connect(&broker).ping();
}

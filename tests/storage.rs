//! The log's directory: whose it is, what damage to it does, and what a full disk does.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Broker, Client, Setup, check, hello, hello_v311, property, return_code};
use saguin_mqtt_codec::{Publish, QoS, ReasonCode};

use ReasonCode as R;

#[test]
fn a_second_broker_on_the_directory_is_refused() {
    let mut broker = Broker::start();
    let arguments = ["--config".into(), broker.config().into_os_string()];
    let second = check(&arguments);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("is locked"), "{said}");
    assert!(
        said.contains(&broker.log_dir().display().to_string()),
        "{said}"
    );
    hello("still served").connect(&broker).ping();
    // The lock goes with the process, however that ends.
    broker.restart();
}

#[test]
fn a_channel_the_configuration_no_longer_names_is_warned_of() {
    let mut broker = Broker::start();
    let mut client = hello("client").connect(&broker);
    assert_eq!(client.publish("events/a", "x"), R::Success);
    assert_eq!(broker.stop().code(), Some(0));
    let text = std::fs::read_to_string(broker.config()).unwrap();
    let without = text.replace("events: {type", "renamed: {type");
    std::fs::write(broker.config(), without).unwrap();
    broker.launch();
    let warned = broker.wait_for_line("does not name");
    assert!(warned.contains("channel=events"), "{warned}");
    assert!(!warned.contains("renamed"), "{warned}");
}

/// The file under `directory` that has `needle` in it, and where.
fn find(directory: &Path, needle: &[u8]) -> (PathBuf, usize) {
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("the directory");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let bytes = fs::read(&path).expect("the file");
        let found = bytes
            .windows(needle.len())
            .position(|window| window == needle);
        if let Some(at) = found {
            return (path, at);
        }
    }
    panic!("{needle:?} is in no file of {}", directory.display());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("the file");
    bytes[at] ^= 0x10;
    fs::write(path, bytes).expect("the file");
}

fn expect_damage(broker: &Broker, path: &Path) {
    let arguments = ["--config".into(), broker.config().into_os_string()];
    let before = fs::read(path).expect("the file");
    let start = check(&arguments);
    let said = String::from_utf8_lossy(&start.stderr);
    assert_eq!(start.status.code(), Some(1), "{said}");
    assert!(said.contains(&path.display().to_string()), "{said}");
    let heard = String::from_utf8_lossy(&start.stdout);
    assert!(!heard.contains("listening"), "{heard}");
    // Evidence: a refused start changes nothing.
    assert_eq!(fs::read(path).expect("the file"), before);
}

#[test]
fn a_flipped_bit_in_an_acknowledged_record_is_a_named_error() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for payload in ["the first record", "the second record", "the third record"] {
        assert_eq!(publisher.publish("events/a", payload), R::Success);
    }
    broker.kill9();
    let (path, at) = find(broker.log_dir(), b"the second record");
    flip(&path, at + 4);
    expect_damage(&broker, &path);
    // Undone, it is as it was.
    flip(&path, at + 4);
    broker.launch();
    let mut consumer = hello("consumer").connect(&broker);
    consumer.follow("events/#");
    for payload in ["the first record", "the second record", "the third record"] {
        assert_eq!(consumer.take().payload, payload);
    }
}

#[test]
fn a_flipped_bit_in_the_last_record_is_found_after_a_clean_stop() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    assert_eq!(publisher.publish("events/a", "the last record"), R::Success);
    assert_eq!(broker.stop().code(), Some(0));
    let (path, at) = find(broker.log_dir(), b"the last record");
    flip(&path, at);
    expect_damage(&broker, &path);
}

/// A small filesystem of its own, gone with this.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount.
    fn mount(bytes: u64) -> Option<Self> {
        let directory = tempfile::TempDir::new().expect("a directory");
        let flags = rustix::mount::MountFlags::empty();
        let size = std::ffi::CString::new(format!("size={bytes}")).expect("an option");
        let mounted =
            rustix::mount::mount("tmpfs", directory.path(), "tmpfs", flags, size.as_c_str());
        match mounted {
            Ok(()) => Some(SmallDisk(directory)),
            Err(error) => {
                eprintln!("SKIPPED: a small filesystem cannot be mounted here: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).expect("the filler");
        for size in [64 * 1024, 4096, 1] {
            while std::io::Write::write_all(&mut filler, &vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("the filler");
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Publishes numbered records until one is refused; returns the number that was.
fn publish_until_refused(publisher: &mut Client, mut number: u32, size: usize) -> u32 {
    loop {
        let payload = format!("{number:0size$}");
        match publisher.publish("events/a", payload) {
            R::Success => number += 1,
            refused => {
                assert_eq!(refused, R::QuotaExceeded);
                return number;
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_and_the_broker_goes_on() {
    // A broker outlives its disk in this order of dropping: declared after, killed before.
    let Some(disk) = SmallDisk::mount(16 * 1024 * 1024) else {
        return;
    };
    let mut broker = Broker::with(&Setup {
        log_dir: Some(disk.path().join("log")),
        ..Setup::default()
    });
    let mut publisher = hello("publisher").connect(&broker);
    let mut listener = hello("listener").connect(&broker);
    listener.follow("talk/#");
    let mut durable = hello("durable").durable().connect(&broker);
    let mut old_durable = hello_v311("old durable").durable().connect(&broker);
    disk.fill();
    let next = publish_until_refused(&mut publisher, 1, 60_000);
    let next = publish_until_refused(&mut publisher, next, 10);
    let mut old = hello_v311("old").connect(&broker);
    old.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: common::text("events/a"),
        payload: vec![b'x'; 100_000].into(),
        ..Default::default()
    });
    old.expect_closed();
    // What needs no disk goes on.
    assert_eq!(publisher.publish("talk/a", "on"), R::Success);
    assert_eq!(listener.take().payload, "on");
    expect_numbers(&broker, next - 1);
    expect_no_room_for_sessions(&broker);
    let long = |number: usize| format!("{}{number}", "x".repeat(500));
    let subscribed = |client: &mut Client| {
        (0..100)
            .map(|number| client.subscribe(&long(number), QoS::AtMostOnce))
            .find(|reason| *reason != R::Success)
    };
    assert_eq!(subscribed(&mut durable), Some(R::QuotaExceeded));
    assert_eq!(subscribed(&mut old_durable), Some(R::Unspecified));

    disk.make_room();
    let refused_still = |publisher: &mut Client| {
        let payload = format!("{next:010}");
        publisher.publish("events/a", payload) != R::Success
    };
    // The log finds the room when it finds it.
    while refused_still(&mut publisher) {}
    expect_numbers(&broker, next);
    assert!(!hello("away").durable().connect(&broker).session_present);
    broker.restart();
    expect_numbers(&broker, next);
}

#[test]
fn a_full_provider_refuses_what_is_published_and_takes_what_relieves_it() {
    let mut broker = Broker::with(&Setup {
        limits: "max_message_size: 64KiB",
        ..Setup::default()
    });
    let yaml = fs::read_to_string(broker.config()).expect("the configuration");
    let bounded = yaml.replace(
        "segment_bytes: 1MiB",
        "segment_bytes: 1MiB, max_bytes: 16MiB",
    );
    fs::write(broker.config(), bounded).expect("the configuration");
    broker.restart();
    let mut publisher = hello("publisher").connect(&broker);
    let mut jobs = 0;
    let refused = loop {
        match publisher.publish("jobs/a", vec![b'x'; 60_000]) {
            R::Success => jobs += 1,
            refused => break refused,
        }
    };
    assert_eq!(refused, R::QuotaExceeded);
    // Less than the bound, for its reserve is kept; most of it all the same.
    assert!((100..280).contains(&jobs), "{jobs} jobs");
    assert_eq!(
        publisher.publish("events/a", vec![b'x'; 60_000]),
        R::QuotaExceeded
    );
    let mut old = hello_v311("old").connect(&broker);
    old.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: common::text("events/a"),
        payload: vec![b'x'; 60_000].into(),
        ..Publish::default()
    });
    old.expect_closed();
    let mut worker = hello("worker").connect(&broker);
    worker.follow("$saguin/queue/jobs");
    for _ in 0..jobs {
        let job = worker.take();
        assert_eq!(worker.answer(&job, "ack"), R::Success);
    }
    // Its space is given back behind the answers.
    while publisher.publish("events/a", vec![b'x'; 60_000]) != R::Success {}
}

/// Every number that was acknowledged, once, in order, at consecutive offsets.
fn expect_numbers(broker: &Broker, last: u32) {
    let mut consumer = hello("consumer").connect(broker);
    consumer.follow("events/#");
    for number in 1..=last {
        let record = consumer.take();
        let payload = std::str::from_utf8(&record.payload).expect("digits");
        assert_eq!(payload.parse(), Ok(number));
        assert_eq!(property(&record, "saguin-offset"), number.to_string());
    }
    consumer.expect_nothing();
}

/// The record of a session may be smaller than a publish, so the first few may still fit.
fn expect_no_room_for_sessions(broker: &Broker) {
    let refused = (0..1000).find_map(|number| {
        let name = format!("{}{number}", "x".repeat(200));
        let (_, connack) = hello(&name).durable().answer(broker);
        (connack.reason != R::Success).then_some(connack.reason)
    });
    assert_eq!(refused, Some(R::ImplementationSpecific));
    let name = "y".repeat(250);
    assert_eq!(return_code(hello_v311(&name).durable().refused(broker)), 3);
}

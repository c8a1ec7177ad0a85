//! A disk that fails under a running broker: nothing is promised after, in either protocol version,
//! and what was kept is still served.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Broker, Client, Setup, hello, hello_v311, return_code, text};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use saguin_mqtt_codec::{Publish, PublishProperties, QoS, ReasonCode};

use ReasonCode as R;

const IMAGE_BYTES: u64 = 256 * 1024 * 1024;

/// A filesystem in a file in memory, whose every write fails once it [dies](Self::die).
struct DyingDisk {
    directory: tempfile::TempDir,
}

impl DyingDisk {
    /// `None`, said loudly, where this process may not do it.
    fn mount() -> Option<Self> {
        let directory = tempfile::TempDir::new().expect("a directory");
        let disk = DyingDisk { directory };
        for path in [disk.memory(), disk.path()] {
            std::fs::create_dir(path).expect("a directory");
        }
        match disk.prepare() {
            Ok(()) => Some(disk),
            Err(why) => {
                eprintln!("SKIPPED: a disk that fails cannot be made here: {why}");
                None
            }
        }
    }

    fn prepare(&self) -> Result<(), String> {
        let size = c"size=192m";
        mount("tmpfs", self.memory(), "tmpfs", MountFlags::empty(), size)
            .map_err(|error| format!("tmpfs: {error}"))?;
        let image = File::create(self.image()).map_err(|error| error.to_string())?;
        image
            .set_len(IMAGE_BYTES)
            .map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").arg("-qF").arg(self.image()))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(self.image())
            .arg(self.path()))
    }

    fn memory(&self) -> PathBuf {
        self.directory.path().join("memory")
    }

    fn image(&self) -> PathBuf {
        self.memory().join("image")
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Takes the memory under the disk away: what is read stays in the page cache, and what is
    /// written has nowhere to go.
    fn die(&self) {
        run(Command::new("fallocate")
            .args(["--punch-hole", "--offset", "0", "--length"])
            .arg(IMAGE_BYTES.to_string())
            .arg(self.image()))
        .expect("the hole");
        let mut filler = File::create(self.memory().join("filler")).expect("the filler");
        for size in [1 << 20, 4096] {
            while std::io::Write::write_all(&mut filler, &vec![1; size]).is_ok() {}
        }
    }
}

impl Drop for DyingDisk {
    fn drop(&mut self) {
        for path in [self.path(), self.memory()] {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn broker_on(path: &Path) -> Broker {
    Broker::with(&Setup {
        log_dir: Some(path.join("log")),
        ..Setup::default()
    })
}

fn publish_v311(client: &mut Client, topic: &str) {
    client.send_publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: text(topic),
        payload: "x".into(),
        ..Publish::default()
    });
}

#[test]
fn a_disk_that_fails_is_never_believed_again() {
    // Declared before the broker: a broker is gone before its disk is.
    let Some(disk) = DyingDisk::mount() else {
        return;
    };
    let broker = broker_on(&disk.path());
    let mut publisher = hello("publisher").connect(&broker);
    for topic in ["events/a", "state/a"] {
        assert_eq!(publisher.publish(topic, "kept"), R::Success);
    }
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("events/#");
    assert_eq!(reader.take().payload, "kept");
    let mut old = hello_v311("old").durable().connect(&broker);
    disk.die();

    let failed = R::ImplementationSpecific;
    for topic in ["events/a", "state/a", "jobs/a", "events/b"] {
        assert_eq!(publisher.publish(topic, "lost"), failed, "{topic}");
    }
    let mut old_publisher = hello_v311("old publisher").connect(&broker);
    publish_v311(&mut old_publisher, "events/a");
    old_publisher.expect_closed();

    // What is told of a session has to be stored as well.
    assert_eq!(reader.subscribe("state/#", QoS::AtLeastOnce), failed);
    assert_eq!(old.subscribe("state/#", QoS::AtLeastOnce), R::Unspecified);
    assert_eq!(hello("new").durable().refused(&broker), failed);
    let refused = hello_v311("newer").durable().refused(&broker);
    assert_eq!(return_code(refused), 3);
    let asking = PublishProperties {
        response_topic: Some(text("to/me")),
        ..PublishProperties::default()
    };
    let sought = reader.publish_with("$saguin/consumer/events/seek", "0", asking);
    assert_eq!(sought, failed);
    assert_eq!(reader.delivery().payload, "storage");

    // Whoever needs no promise is served on.
    let mut visitor = hello("visitor").connect(&broker);
    visitor.follow("events/#");
    assert_eq!(visitor.take().payload, "kept");
    visitor.follow("state/#");
    assert_eq!(visitor.take().payload, "kept");
    visitor.follow("talk/#");
    assert_eq!(publisher.publish("talk/a", "on"), R::Success);
    assert_eq!(visitor.take().payload, "on");
    visitor.expect_nothing();
}

//! The broker that is measured: one that runs, or one that is started for it and ended behind it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tempfile::TempDir;

use crate::cores::Cores;
use crate::failure::Failure;
use crate::process::Process;

/// How often a starting broker is asked whether it listens.
const ASK_AGAIN: Duration = Duration::from_millis(1);
/// How much of its log is shown where it did not start.
const SHOWN_LINES: usize = 12;

/// What a broker is, which decides how it is configured and spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Saguin, every acknowledged record synced
    Saguin,
    /// Saguin with `durability: interval`
    SaguinInterval,
    /// Mosquitto, nothing stored
    Mosquitto,
    /// Mosquitto, saving on every change
    MosquittoSaving,
}

impl Kind {
    /// Whether it has channels: an append channel, a queue and a latest channel. Others are asked for
    /// the nearest there is: a session's queue, `$share`, retained messages.
    pub fn has_channels(self) -> bool {
        matches!(self, Kind::Saguin | Kind::SaguinInterval)
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Saguin => "saguin",
            Kind::SaguinInterval => "saguin-interval",
            Kind::Mosquitto => "mosquitto",
            Kind::MosquittoSaving => "mosquitto-saving",
        }
    }

    fn configuration(self, port: u16, data: &Path, segment_bytes: &str) -> String {
        if self.has_channels() {
            let durability = match self {
                Kind::SaguinInterval => "interval",
                _ => "sync",
            };
            return saguin(port, data, durability, segment_bytes);
        }
        // Mosquitto's own defaults drop what waits past 1,000 messages and delay small writes.
        let mut text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n\
             max_queued_messages 0\nmax_inflight_messages 0\nlog_type error\nuser root\n"
        );
        if self == Kind::MosquittoSaving {
            text += &format!(
                "persistence true\npersistence_location {}/\nautosave_on_changes true\n\
                 autosave_interval 1\n",
                data.display()
            );
        }
        text
    }
}

fn saguin(port: u16, data: &Path, durability: &str, segment_bytes: &str) -> String {
    format!(
        "broker:
  id: bench
  log_level: warn
  mqtt:
    listen:
      tcp: {{address: \"127.0.0.1:{port}\"}}
  storage:
    default: main
    default_retention_period: none
    default_retention_bytes: none
    providers:
      main: {{type: log, log_dir: {data:?}, durability: {durability}, segment_bytes: {segment_bytes}}}
  limits: {{max_connections: 100000, write_timeout: 10m}}
channels:
  bench-log: {{type: append, filter: bench/log/#}}
  bench-work: {{type: queue, filter: bench/work/#}}
  bench-now: {{type: latest, filter: bench/now/#}}
"
    )
}

/// How a broker is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments; the configuration is added.
    pub command: Vec<String>,
    /// What it is.
    pub kind: Kind,
    /// Its data lies in a directory of its own in this one.
    pub dir: PathBuf,
    /// Where it runs; anywhere where nothing.
    pub cores: Option<Cores>,
    /// How long it may take to listen.
    pub patience: Duration,
    /// How large a file of its log becomes, as its configuration says it.
    pub segment_bytes: &'static str,
}

/// A broker of ours. Dropped, it is killed and its directory goes.
#[derive(Debug)]
pub struct Broker {
    launch: Launch,
    directory: TempDir,
    address: SocketAddr,
    child: Child,
}

impl Broker {
    /// Starts one on a port of its own and waits until it listens.
    ///
    /// # Errors
    /// One that ends instead, or does not listen in time.
    pub fn start(launch: &Launch) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("saguin-bench-")
            .tempdir_in(&launch.dir)
            .map_err(Failure::system("make a directory for the broker in --dir"))?;
        let address = free_address()?;
        let data = directory.path().join("data");
        let failed = "write the broker's configuration";
        std::fs::create_dir(&data).map_err(Failure::system(failed))?;
        let text = launch
            .kind
            .configuration(address.port(), &data, launch.segment_bytes);
        std::fs::write(directory.path().join("config"), text).map_err(Failure::system(failed))?;
        let child = spawn(launch, directory.path())?;
        let mut broker = Broker {
            launch: launch.clone(),
            directory,
            address,
            child,
        };
        broker.wait_until_it_listens()?;
        Ok(broker)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn process(&self) -> Process {
        Process(self.child.id())
    }

    /// Where its data lies.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Kills it as SIGKILL does and starts it again on what it left: how long it took from there to
    /// listening.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn kill_and_start(&mut self) -> Result<Duration, Failure> {
        self.end();
        let begun = Instant::now();
        self.child = spawn(&self.launch, self.directory.path())?;
        self.wait_until_it_listens()?;
        Ok(begun.elapsed())
    }

    /// # Errors
    /// A broker that has ended by itself.
    pub fn check_it_runs(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(self.ended(&format!("ended by itself ({status})"))),
            Ok(None) => Ok(()),
            Err(error) => Err(Failure::system("look at the broker's process")(error)),
        }
    }

    fn wait_until_it_listens(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.launch.patience;
        loop {
            let listens = TcpStream::connect_timeout(&self.address, self.launch.patience).is_ok();
            // Another process may have taken the port in between, and then this one ends.
            self.check_it_runs()?;
            if listens {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let waited = self.launch.patience.as_secs();
                return Err(self.ended(&format!(
                    "does not listen on {} after {waited} s, which is all --patience allows",
                    self.address
                )));
            }
            thread::sleep(ASK_AGAIN);
        }
    }

    fn ended(&self, how: &str) -> Failure {
        let log = std::fs::read(self.directory.path().join("output")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines.get(lines.len().saturating_sub(SHOWN_LINES)..);
        let command = self.launch.command.join(" ");
        Failure::Start(format!(
            "the broker {command:?} {how}; the end of what it said:\n{}",
            shown.unwrap_or_default().join("\n")
        ))
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(launch: &Launch, directory: &Path) -> Result<Child, Failure> {
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err(Failure::Options(
            "--broker-cmd and --versus-cmd name a program: what they say is empty".into(),
        ));
    };
    let failed = || Failure::system("make a file for what the broker says");
    let output = File::options()
        .create(true)
        .append(true)
        .open(directory.join("output"))
        .map_err(failed())?;
    let also = output.try_clone().map_err(failed())?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(if launch.kind.has_channels() {
            "--config"
        } else {
            "-c"
        })
        .arg(directory.join("config"))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(also);
    let mut start = || {
        command.spawn().map_err(|error| {
            Failure::Start(format!(
                "the broker {program:?} could not be started: {error}. Name it with --broker-cmd, or one that runs with --broker"
            ))
        })
    };
    match launch.cores {
        Some(cores) => cores.start(start),
        None => start(),
    }
}

/// A port nobody has at the moment.
fn free_address() -> Result<SocketAddr, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Failure::system("find a free port"))
}

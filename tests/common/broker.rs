//! The broker process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::PATIENCE;

/// A channel of each type.
pub const CHANNELS: &str = "
  events: {type: append, filter: events/#}
  state: {type: latest, filter: state/#}
  jobs: {type: queue, filter: jobs/#, visibility_timeout: 1s, retry: {max_attempts: 3}}
";

/// What of the configuration a test chooses. Each is YAML of its place.
pub struct Setup<'a> {
    /// Under `channels`, two spaces in.
    pub channels: &'a str,
    /// Inside the braces of `limits`.
    pub limits: &'a str,
    /// Inside the braces of `session`.
    pub session: &'a str,
    /// More keys of `broker`, two spaces in.
    pub broker: &'a str,
    /// More keys of the provider, each behind a comma.
    pub provider: &'a str,
    /// The directory of the log; one in the test's own directory where `None`.
    pub log_dir: Option<PathBuf>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            channels: CHANNELS,
            limits: "",
            session: "",
            broker: "",
            provider: "",
            log_dir: None,
        }
    }
}

/// How a broker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM, and it stops by itself.
    Sigterm,
    /// `kill -9`.
    Kill9,
}

/// Both of them.
pub const ENDS: [End; 2] = [End::Sigterm, End::Kill9];

/// A running broker. Dropped, it is killed and its directory goes.
pub struct Broker {
    directory: TempDir,
    log_dir: PathBuf,
    process: Option<Child>,
    address: SocketAddr,
    log: Arc<Log>,
}

impl Broker {
    /// A broker with [`CHANNELS`].
    pub fn start() -> Self {
        Self::with(&Setup::default())
    }

    /// A broker with these channels.
    pub fn with_channels(channels: &str) -> Self {
        Self::with(&Setup {
            channels,
            ..Setup::default()
        })
    }

    /// A broker with this configuration.
    pub fn with(setup: &Setup<'_>) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        let log_dir = setup
            .log_dir
            .clone()
            .unwrap_or_else(|| directory.path().join("log"));
        let text = configuration(setup, &log_dir);
        std::fs::write(directory.path().join("saguin.yaml"), text).expect("the configuration");
        let mut broker = Broker {
            directory,
            log_dir,
            process: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            log: Arc::default(),
        };
        broker.launch();
        broker
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("saguin.yaml")
    }

    /// Its log's directory.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// Starts it again after [`kill9`](Self::kill9) or [`stop`](Self::stop).
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "the broker runs already");
        let mut process = command()
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker starts");
        self.log = Arc::default();
        self.log
            .clone()
            .follow(process.stdout.take().expect("piped"));
        self.log
            .clone()
            .follow(process.stderr.take().expect("piped"));
        self.process = Some(process);
        let line = self.wait_for_line("listening on ");
        let address = line.rsplit(' ').next().expect("a last word");
        self.address = address.parse().expect("an address");
    }

    /// SIGKILL, and gone.
    pub fn kill9(&mut self) {
        let mut process = self.process.take().expect("a running broker");
        process.kill().expect("SIGKILL");
        process.wait().expect("its end");
    }

    /// Ended in one way or the other, and started again.
    pub fn restart_by(&mut self, end: End) {
        match end {
            End::Sigterm => assert!(self.stop().success()),
            End::Kill9 => self.kill9(),
        }
        self.launch();
    }

    /// Killed and started again.
    pub fn restart(&mut self) {
        self.kill9();
        self.launch();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        raise(self.process.as_ref().expect("a running broker"), signal);
    }

    /// SIGTERM, and its exit status.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let process = self.process.take().expect("a running broker");
        end_of(process).status
    }

    /// Waits for a line of the log that has `part` in it.
    pub fn wait_for_line(&self, part: &str) -> String {
        self.log.wait_for(part)
    }

    /// Everything logged so far.
    pub fn logged(&self) -> String {
        self.log.text()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        if thread::panicking() {
            eprintln!("--- the broker's log\n{}---", self.log.text());
        }
    }
}

fn configuration(setup: &Setup<'_>, log_dir: &Path) -> String {
    format!(
        "broker:
  id: test
  log_level: debug
  mqtt:
    listen:
      tcp: {{address: \"127.0.0.1:0\"}}
  storage:
    default: main
    default_retention_period: none
    default_retention_bytes: none
    providers:
      main: {{type: log, log_dir: \"{}\", segment_bytes: 1MiB{}}}
  session: {{{}}}
  limits: {{{}}}
{}
channels: {}
",
        log_dir.display(),
        setup.provider,
        setup.session,
        setup.limits,
        setup.broker,
        if setup.channels.is_empty() {
            "{}"
        } else {
            setup.channels
        },
    )
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_saguin"))
}

/// Sends a process of ours a signal.
pub fn raise(process: &Child, signal: Signal) {
    let id = i32::try_from(process.id()).expect("a process id");
    kill_process(Pid::from_raw(id).expect("a process id"), signal).expect("a signal");
}

/// Runs the binary with arguments until it ends, which it has to do by itself.
pub fn check<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Output {
    let process = command()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    end_of(process)
}

/// The end of a process, waited for in a thread so that one that does not end fails the test.
fn end_of(process: Child) -> Output {
    let id = i32::try_from(process.id()).expect("a process id");
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(move || send.send(process.wait_with_output()));
    match receive.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("its output"),
        Err(_) => {
            let _ = kill_process(Pid::from_raw(id).expect("a process id"), Signal::KILL);
            panic!("the process did not end");
        }
    }
}

/// The lines a broker wrote.
#[derive(Default)]
struct Log {
    lines: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Default)]
struct Lines {
    text: Vec<String>,
    ended: usize,
}

impl Log {
    fn follow(self: Arc<Self>, output: impl Read + Send + 'static) {
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                self.lines.lock().expect("the log").text.push(line);
                self.grown.notify_all();
            }
            self.lines.lock().expect("the log").ended += 1;
            self.grown.notify_all();
        });
    }

    fn text(&self) -> String {
        let lines = self.lines.lock().expect("the log");
        lines.text.iter().map(|line| format!("{line}\n")).collect()
    }

    fn wait_for(&self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.lines.lock().expect("the log");
        loop {
            if let Some(line) = lines.text.iter().find(|line| line.contains(part)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let over = lines.ended == 2 || left.is_zero();
            assert!(!over, "no {part:?} in the log:\n{}", lines.text.join("\n"));
            lines = self.grown.wait_timeout(lines, left).expect("the log").0;
        }
    }
}

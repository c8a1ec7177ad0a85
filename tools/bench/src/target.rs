//! What one run measures: a broker, and topics nobody else uses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::broker::{Broker, Kind, Launch};
use crate::connections::Connections;
use crate::failure::Failure;
use crate::process::Process;

/// Where a side's broker comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It runs.
    Running {
        /// Where.
        address: SocketAddr,
        /// As what, where that is known.
        process: Option<Process>,
        /// What it is.
        kind: Kind,
    },
    /// It is started for each run.
    Start(Launch),
}

impl Source {
    /// What it is.
    pub fn kind(&self) -> Kind {
        match self {
            Source::Running { kind, .. } => *kind,
            Source::Start(launch) => launch.kind,
        }
    }
}

/// The broker of one run.
#[derive(Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it is.
    pub kind: Kind,
    /// Its process, where that is known.
    pub process: Option<Process>,
    /// The broker, where it is ours.
    pub broker: Option<Broker>,
    /// A level of topics and a part of client ids that no other run has.
    pub run: String,
    /// The name of its queue.
    pub queue: String,
    /// How long nothing may come before that is an error.
    pub patience: Duration,
}

impl Target {
    /// Ready to be measured.
    ///
    /// # Errors
    /// A broker that does not start.
    pub fn ready(source: &Source, queue: &str, patience: Duration) -> Result<Self, Failure> {
        let (address, kind, process, broker) = match source {
            Source::Running {
                address,
                process,
                kind,
            } => (*address, *kind, *process, None),
            Source::Start(launch) => {
                let broker = Broker::start(launch)?;
                let process = Some(broker.process());
                (broker.address(), launch.kind, process, Some(broker))
            }
        };
        Ok(Target {
            address,
            kind,
            process,
            broker,
            run: fresh_name(),
            queue: queue.to_owned(),
            patience,
        })
    }

    /// Connections to it.
    ///
    /// # Errors
    /// The system's.
    pub fn connections(&self) -> Result<Connections, Failure> {
        Connections::new(self.address, self.patience)
    }

    /// A client id of this run.
    pub fn client(&self, role: &str, number: usize) -> String {
        format!("{}-{role}-{number}", self.run)
    }

    /// # Errors
    /// A broker of ours that has ended by itself.
    pub fn check(&mut self) -> Result<(), Failure> {
        match &mut self.broker {
            Some(broker) => broker.check_it_runs(),
            None => Ok(()),
        }
    }

    /// The broker, for what can be asked of one that was started only.
    ///
    /// # Errors
    /// One that runs already.
    pub fn own(&mut self) -> Result<&mut Broker, Failure> {
        self.broker.as_mut().ok_or_else(|| {
            Failure::Options(
                "this scenario kills the broker or looks into its directory: let it be started with --broker-cmd instead of --broker".into(),
            )
        })
    }
}

fn fresh_name() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    format!("b{millis:x}-{:x}-{run}", std::process::id())
}

/// What the broker and the generator cost between two moments.
#[derive(Debug)]
pub struct Cost {
    broker: Option<(Process, Duration)>,
    generator: Option<Duration>,
}

impl Cost {
    /// From now on.
    pub fn begin(target: &Target) -> Self {
        Cost {
            broker: target
                .process
                .and_then(|process| Some((process, process.cpu()?))),
            generator: Process::own().cpu(),
        }
    }

    /// Microseconds of the broker's CPU so far for each of `count`; nothing where its process is not known.
    pub fn broker_micros(&self, count: u64) -> Option<f64> {
        let (process, before) = self.broker?;
        Some(each(process.cpu()?.saturating_sub(before), count))
    }

    /// The same of the generator's.
    pub fn generator_micros(&self, count: u64) -> Option<f64> {
        Some(each(
            Process::own().cpu()?.saturating_sub(self.generator?),
            count,
        ))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn each(used: Duration, count: u64) -> f64 {
    used.as_secs_f64() * 1e6 / count as f64
}

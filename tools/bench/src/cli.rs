//! The command line: what can be asked, and whether it makes sense.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use crate::broker::{Kind, Launch};
use crate::cores::Cores;
use crate::failure::Failure;
use crate::process::Process;
use crate::scenario::Scenario;
use crate::target::Source;

/// Puts load on an MQTT broker and says what the broker made of it.
#[derive(Debug, Parser)]
#[command(name = "saguin-bench", version, subcommand_required = true)]
pub struct Cli {
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
    /// What is measured.
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// What every scenario takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which broker, and how often")]
pub struct Common {
    /// A broker that runs; without it one is started for each run and killed behind it
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub broker: Option<String>,
    /// The process of --broker, whose CPU and memory are then measured
    #[arg(long, global = true, value_name = "PID")]
    pub broker_pid: Option<u32>,
    /// The program to start, with arguments; by default the saguin beside this program, or mosquitto
    #[arg(long, global = true, value_name = "CMD")]
    pub broker_cmd: Option<String>,
    /// What the broker is: how it is configured and spoken to
    #[arg(long, global = true, value_enum, default_value = "saguin")]
    pub broker_config: Kind,
    /// A second broker that runs, measured in turn with the first
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub versus: Option<String>,
    /// The process of --versus
    #[arg(long, global = true, value_name = "PID")]
    pub versus_pid: Option<u32>,
    /// The program of a second broker, measured in turn with the first
    #[arg(long, global = true, value_name = "CMD")]
    pub versus_cmd: Option<String>,
    /// What the second broker is; by default what the first is
    #[arg(long, global = true, value_enum)]
    pub versus_config: Option<Kind>,
    /// The name of the queue of a broker that runs
    #[arg(long, global = true, default_value = "bench-work", value_name = "NAME")]
    pub queue: String,
    /// The broker on one core, this program on another
    #[arg(long, global = true)]
    pub pin: bool,
    /// How often each broker is measured; the table has the medians
    #[arg(long, global = true, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Where the data of a started broker lies, and where one sync is measured [default: the system's temporary directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How many seconds nothing may come from the broker before that is an error
    #[arg(long, global = true, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub patience: Duration,
    /// Print one JSON object instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// What [`Common`] comes to.
#[derive(Debug)]
pub struct Plan {
    /// One broker or two, each with its name.
    pub sources: Vec<(String, Source)>,
    /// Where data lies.
    pub dir: PathBuf,
    /// A core for the broker and one for the generator.
    pub cores: Option<Cores>,
}

/// One broker's options.
struct Side<'a> {
    running: Option<&'a String>,
    process: Option<u32>,
    command: Option<&'a String>,
    kind: Kind,
    options: [&'static str; 3],
}

impl Common {
    /// Whether the options make sense together.
    ///
    /// # Errors
    /// Those that do not, or a directory that is none.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = dir.canonicalize().map_err(|error| {
            Failure::Options(format!(
                "--dir {} cannot be used: {error}. Name a directory there is",
                dir.display()
            ))
        })?;
        let cores = self.pin.then(Cores::choose).transpose()?;
        let first = Side {
            running: self.broker.as_ref(),
            process: self.broker_pid,
            command: self.broker_cmd.as_ref(),
            kind: self.broker_config,
            options: ["--broker", "--broker-pid", "--broker-cmd"],
        };
        let mut sources = vec![self.side("A", &first, &dir, cores)?];
        if let Some(second) = self.versus_side()? {
            sources.push(self.side("B", &second, &dir, cores)?);
        }
        Ok(Plan {
            sources,
            dir,
            cores,
        })
    }

    fn versus_side(&self) -> Result<Option<Side<'_>>, Failure> {
        let asked =
            self.versus.is_some() || self.versus_cmd.is_some() || self.versus_config.is_some();
        if !asked && self.versus_pid.is_some() {
            return Err(Failure::Options(
                "--versus-pid is the process of a broker that runs: name it with --versus".into(),
            ));
        }
        Ok(asked.then_some(Side {
            running: self.versus.as_ref(),
            process: self.versus_pid,
            command: self.versus_cmd.as_ref(),
            kind: self.versus_config.unwrap_or(self.broker_config),
            options: ["--versus", "--versus-pid", "--versus-cmd"],
        }))
    }

    fn side(
        &self,
        letter: &str,
        side: &Side<'_>,
        dir: &std::path::Path,
        cores: Option<Cores>,
    ) -> Result<(String, Source), Failure> {
        let [running, process, command] = side.options;
        let source = match (side.running, side.command) {
            (Some(_), Some(_)) => {
                return Err(Failure::Options(format!(
                    "{running} is a broker that runs and {command} one to be started: give one of them"
                )));
            }
            (None, _) if side.process.is_some() => {
                return Err(Failure::Options(format!(
                    "{process} is the process of a broker that runs: name it with {running}"
                )));
            }
            (Some(address), None) => Source::Running {
                address: resolve(running, address)?,
                process: side.process.map(Process),
                kind: side.kind,
            },
            (None, command) => Source::Start(Launch {
                command: match command {
                    Some(command) => command.split_whitespace().map(str::to_owned).collect(),
                    None => vec![usual_command(side.kind)],
                },
                kind: side.kind,
                dir: dir.to_owned(),
                cores,
                patience: self.patience,
                segment_bytes: "64MiB",
            }),
        };
        Ok((format!("{letter} {}", side.kind.name()), source))
    }
}

/// The saguin beside this program, or mosquitto wherever it is found.
fn usual_command(kind: Kind) -> String {
    if !kind.has_channels() {
        return "mosquitto".into();
    }
    let beside = std::env::current_exe().map(|own| own.with_file_name("saguin"));
    beside.map_or_else(|_| "saguin".into(), |path| path.display().to_string())
}

fn resolve(option: &str, address: &str) -> Result<SocketAddr, Failure> {
    let found = address.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(Failure::Options(format!(
            "{option} {address} has no address: name a host and a port, as 127.0.0.1:1883"
        ))),
        Err(error) => Err(Failure::Options(format!(
            "{option} {address} has no address ({error}): name a host and a port, as 127.0.0.1:1883"
        ))),
    }
}

/// Seconds, also a part of one.
///
/// # Errors
/// What is no number above zero, or more than a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "write seconds as a number above 0 and at most 86400, as 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if !(seconds > 0.0 && seconds <= 86_400.0) {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arguments: &[&str]) -> Result<Plan, String> {
        let whole = ["saguin-bench", "pub"].iter().chain(arguments);
        let cli = Cli::try_parse_from(whole).map_err(|error| error.to_string())?;
        cli.common.plan().map_err(|failure| failure.to_string())
    }

    fn refused(arguments: &[&str]) -> String {
        match plan(arguments) {
            Ok(plan) => panic!("{plan:?}"),
            Err(said) => said,
        }
    }

    #[test]
    fn without_options_the_saguin_beside_this_program_is_started() {
        let plan = plan(&[]).unwrap();
        let [(name, Source::Start(launch))] = &plan.sources[..] else {
            panic!("{plan:?}");
        };
        assert_eq!(name, "A saguin");
        assert!(launch.command[0].ends_with("/saguin"));
        assert_eq!(plan.cores, None);
    }

    #[test]
    fn a_second_broker_is_what_the_first_is_unless_it_is_said() {
        let two = plan(&["--versus-cmd", "other/saguin --quiet"]).unwrap();
        let (name, Source::Start(launch)) = &two.sources[1] else {
            panic!("{two:?}");
        };
        assert_eq!(name, "B saguin");
        assert_eq!(launch.command, ["other/saguin", "--quiet"]);
        let two = plan(&["--versus-config", "mosquitto-saving"]).unwrap();
        let (name, Source::Start(launch)) = &two.sources[1] else {
            panic!("{two:?}");
        };
        assert_eq!(name, "B mosquitto-saving");
        assert_eq!(launch.command, ["mosquitto"]);
    }

    #[test]
    fn a_broker_that_runs_is_named_with_its_process() {
        let plan = plan(&["--broker", "127.0.0.1:1883", "--broker-pid", "7"]).unwrap();
        let Source::Running {
            address, process, ..
        } = &plan.sources[0].1
        else {
            panic!("{plan:?}");
        };
        assert_eq!(address.to_string(), "127.0.0.1:1883");
        assert_eq!(process.unwrap().0, 7);
    }

    #[test]
    fn options_that_make_no_sense_are_refused_with_what_to_do() {
        for (arguments, part) in [
            (
                &["--broker", "127.0.0.1:1", "--broker-cmd", "x"][..],
                "give one of them",
            ),
            (&["--broker-pid", "7"], "name it with --broker"),
            (&["--versus-pid", "7"], "name it with --versus"),
            (&["--broker", "127.0.0.1"], "as 127.0.0.1:1883"),
            (&["--dir", "/nowhere/at/all"], "Name a directory there is"),
            (&["--patience", "0"], "above 0"),
            (&["--patience", "NaN"], "above 0"),
            (&["--runs", "0"], "1..=1000"),
            (&["--broker-config", "nats"], "saguin-interval"),
        ] {
            let said = refused(arguments);
            assert!(said.contains(part), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}

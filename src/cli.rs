//! The command line: what `saguin` is asked to do, and its exit code.
//!
//! 0 is success, 1 a failure at startup or while running, 2 a usage error or a configuration that
//! is not valid. What was asked for goes to standard output, what is wrong to standard error.

mod route;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Parser, ValueEnum};

use crate::broker::topic::type_name;
use crate::config::{Config, Findings};

/// Everything went as asked.
pub const SUCCESS: u8 = 0;
/// The broker could not start or stopped for an error, or the output could not be written.
pub const FAILURE: u8 = 1;
/// The command line or the configuration is not valid.
pub const INVALID: u8 = 2;

const COMMANDS: [&str; 3] = ["config", "check_config", "route"];
const NOT_ROUTE: [&str; 2] = ["config", "check_config"];

/// An MQTT broker that never acknowledges a promise it cannot keep.
#[derive(Debug, Parser)]
#[command(name = "saguin", version, about, long_about = None)]
#[command(group = ArgGroup::new("command").required(true).args(COMMANDS))]
struct Arguments {
    /// Run the broker with this configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check this configuration file and print its channels; create nothing, bind nothing
    #[arg(long, value_name = "FILE")]
    check_config: Option<PathBuf>,

    /// With --check-config: print the whole configuration, defaults included, as YAML
    #[arg(long, requires = "check_config", conflicts_with_all = ["config", "route"])]
    output: bool,

    /// Say which channel of this configuration file holds a topic, or what serves a filter
    #[arg(long, value_name = "FILE")]
    route: Option<PathBuf>,

    /// With --route: the topic or filter; without it, standard input has one on each line
    #[arg(value_name = "TOPIC|FILTER", requires = "route", conflicts_with_all = NOT_ROUTE)]
    subject: Option<String>,

    /// With --route: one JSON object on each line instead of columns
    #[arg(long, requires = "route", conflicts_with_all = NOT_ROUTE)]
    json: bool,

    /// How the broker writes its log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line to read.
    Text,
    /// A JSON object on each line.
    Json,
}

/// Where a command reads and writes.
pub struct Streams<'a> {
    /// Standard input.
    pub input: &'a mut dyn BufRead,
    /// Standard output.
    pub output: &'a mut dyn Write,
    /// Standard error.
    pub errors: &'a mut dyn Write,
}

/// Does what the command line asks and returns the exit code of the process.
///
/// `args` begin with the program's name. `broker` runs the broker until it stops; it is called for
/// `--config` with a configuration that is valid, and has [`Config::warnings`] to log.
pub fn run<I, A>(
    args: I,
    broker: impl FnOnce(Config, LogFormat) -> Result<(), Box<dyn Error>>,
) -> u8
where
    I: IntoIterator<Item = A>,
    A: Into<OsString> + Clone,
{
    let mut streams = Streams {
        input: &mut io::stdin().lock(),
        output: &mut io::stdout(),
        errors: &mut io::stderr(),
    };
    run_with(args, broker, &mut streams)
}

/// As [`run`], with streams of the caller's.
pub fn run_with<I, A>(
    args: I,
    broker: impl FnOnce(Config, LogFormat) -> Result<(), Box<dyn Error>>,
    streams: &mut Streams<'_>,
) -> u8
where
    I: IntoIterator<Item = A>,
    A: Into<OsString> + Clone,
{
    let done = match Arguments::try_parse_from(args) {
        Ok(arguments) => obey(arguments, broker, streams),
        Err(answer) => show_usage(&answer, streams),
    };
    done.unwrap_or_else(|error| {
        // Nobody may be left to read it; the exit code still tells.
        let _ = writeln!(
            streams.errors,
            "saguin: the output cannot be written: {error}"
        );
        FAILURE
    })
}

fn show_usage(answer: &clap::Error, streams: &mut Streams<'_>) -> io::Result<u8> {
    if answer.use_stderr() {
        write!(streams.errors, "{}", answer.render())?;
        return Ok(INVALID);
    }
    write!(streams.output, "{}", answer.render())?;
    Ok(SUCCESS)
}

fn obey(
    arguments: Arguments,
    broker: impl FnOnce(Config, LogFormat) -> Result<(), Box<dyn Error>>,
    streams: &mut Streams<'_>,
) -> io::Result<u8> {
    if let Some(path) = &arguments.config {
        return match Config::load(path) {
            Ok(config) => serve(config, arguments.log_format, broker, streams),
            Err(findings) => refuse(&findings, streams),
        };
    }
    if let Some(path) = &arguments.check_config {
        return check(path, arguments.output, streams);
    }
    if let Some(path) = &arguments.route {
        return match Config::load(path) {
            Ok(config) => route::answer(
                &config,
                arguments.subject.as_deref(),
                arguments.json,
                streams,
            ),
            Err(findings) => refuse(&findings, streams),
        };
    }
    // The group of commands is required, so one of them was there.
    Ok(INVALID)
}

fn serve(
    config: Config,
    log_format: LogFormat,
    broker: impl FnOnce(Config, LogFormat) -> Result<(), Box<dyn Error>>,
    streams: &mut Streams<'_>,
) -> io::Result<u8> {
    match broker(config, log_format) {
        Ok(()) => Ok(SUCCESS),
        Err(error) => {
            writeln!(streams.errors, "saguin: {error}")?;
            Ok(FAILURE)
        }
    }
}

fn refuse(findings: &Findings, streams: &mut Streams<'_>) -> io::Result<u8> {
    writeln!(streams.errors, "{findings}")?;
    Ok(INVALID)
}

fn check(path: &Path, output: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(findings) => return refuse(&findings, streams),
    };
    for warning in config.warnings() {
        writeln!(streams.errors, "{}: warning: {warning}", path.display())?;
    }
    if output {
        write!(streams.output, "{}", config.to_yaml())?;
    } else {
        print_channels(&config, streams)?;
    }
    streams.output.flush()?;
    Ok(SUCCESS)
}

/// The channels as columns, dead-letter channels under those of the file.
fn print_channels(config: &Config, streams: &mut Streams<'_>) -> io::Result<()> {
    let routes = match config.routes() {
        Ok(routes) => routes,
        Err(conflicts) => {
            // A loaded configuration has none; saying so beats saying nothing if that ever breaks.
            for conflict in conflicts {
                writeln!(streams.errors, "saguin: {conflict}")?;
            }
            return Ok(());
        }
    };
    let mut rows = vec![["# channel", "type", "filter", "storage"].map(str::to_owned)];
    for (index, channel) in routes.channels().iter().enumerate() {
        // Dead letters are kept where their queue is: the move is one step in one provider.
        let configured = channel.dead_letters_of.map_or(index, |queue| queue.0);
        rows.push([
            channel.name.clone(),
            type_name(channel.kind).to_owned(),
            channel.written_filter.clone(),
            config
                .channels
                .get(configured)
                .map(|channel| channel.storage.clone())
                .unwrap_or_default(),
        ]);
    }
    for row in rows {
        writeln!(streams.output, "{}", row.join("\t"))?;
    }
    Ok(())
}

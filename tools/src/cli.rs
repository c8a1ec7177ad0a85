//! The command line: what can be asked, and how a run ends.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use saguin_recovery::RecoverError;

use crate::text::escape;
use crate::{
    channels, export, positions, queue, records, repair, segments, sessions, summary, verify,
};

/// Looks into a log directory, also while a broker has it open. Only `repair --yes` ever changes
/// anything in it.
#[derive(Debug, Parser)]
#[command(name = "saguin-inspect", version, subcommand_required = true)]
pub struct Cli {
    /// Print JSON: one object, or for `records` and `export` one object per line
    #[arg(long, global = true)]
    pub json: bool,
    /// What is asked.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be asked of a directory.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The log as a whole: its segments, its end, and whether a broker has it open
    Summary {
        /// The directory a `log` provider names
        dir: PathBuf,
    },
    /// The segments, with what is alive in each
    Segments {
        /// The directory a `log` provider names
        dir: PathBuf,
    },
    /// The channels, with their offsets and sizes
    Channels {
        /// The directory a `log` provider names
        dir: PathBuf,
    },
    /// The live records of one channel
    Records(RecordsArgs),
    /// Where every durable reader is, and what it has missed
    Positions {
        /// The directory a `log` provider names
        dir: PathBuf,
        /// Only this channel
        #[arg(long, value_name = "NAME")]
        channel: Option<String>,
    },
    /// The unresolved jobs of one queue
    Queue {
        /// The directory a `log` provider names
        dir: PathBuf,
        /// The queue
        name: String,
    },
    /// The stored sessions
    Sessions {
        /// The directory a `log` provider names
        dir: PathBuf,
    },
    /// Every live record as JSON lines; of a damaged log, every one that can be read
    Export(ExportArgs),
    /// What would make a damaged log open again; done only with --yes, after a complete copy
    Repair {
        /// The directory a `log` provider names
        dir: PathBuf,
        /// Copy the directory beside itself, then repair it
        #[arg(long)]
        yes: bool,
    },
    /// Whether every byte is what was written; exit code 1 where it is not
    Verify {
        /// The directory a `log` provider names
        dir: PathBuf,
    },
}

/// Which records.
#[derive(Debug, Args)]
pub struct RecordsArgs {
    /// The directory a `log` provider names
    pub dir: PathBuf,
    /// The channel; may be left out where there is only one
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// The first offset to print
    #[arg(long, value_name = "OFFSET", default_value_t = 1)]
    pub from: u64,
    /// The most records to print
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u64,
    /// Print whole payloads, not only their first 256 bytes
    #[arg(long)]
    pub full: bool,
}

/// Which records, and where to.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The directory a `log` provider names
    pub dir: PathBuf,
    /// Only this channel
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// Write to this file, which must not exist yet, instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It was answered; for `verify`: the log is whole.
    Good = 0,
    /// The log is damaged, or could not be read.
    Failed = 1,
    /// The question makes no sense, or the directory holds no log.
    Usage = 2,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The directory could not be read.
    Recover(RecoverError),
    /// The question does not fit the directory; a sentence.
    Usage(String),
    /// A record could not be fetched; a sentence.
    Read(String),
    /// The answer could not be written.
    Output(io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Recover(error) => error.fmt(f),
            Failure::Usage(why) | Failure::Read(why) => f.write_str(why),
            Failure::Output(error) => write!(f, "could not write the answer: {error}"),
        }
    }
}

impl From<RecoverError> for Failure {
    fn from(error: RecoverError) -> Failure {
        Failure::Recover(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl Failure {
    fn code(&self) -> Code {
        match self {
            Failure::Usage(_) | Failure::Recover(RecoverError::NoLog { .. }) => Code::Usage,
            // Whoever reads the answer has read enough of it.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Code::Good,
            _ => Code::Failed,
        }
    }
}

/// Answers `cli` on `out`; what went wrong, and what an answer leaves out, is said on `err`.
pub fn run(cli: &Cli, out: &mut dyn Write, err: &mut dyn Write) -> Code {
    let mut out = BufWriter::new(out);
    let answered = match &cli.command {
        Command::Summary { dir } => summary::run(dir, cli.json, &mut out),
        Command::Channels { dir } => channels::run(dir, cli.json, &mut out),
        Command::Segments { dir } => segments::run(dir, cli.json, &mut out),
        Command::Positions { dir, channel } => {
            positions::run(dir, channel.as_deref(), cli.json, &mut out)
        }
        Command::Queue { dir, name } => queue::run(dir, name, cli.json, &mut out),
        Command::Sessions { dir } => sessions::run(dir, cli.json, &mut out),
        Command::Export(args) => export::run(args, &mut out, err),
        Command::Repair { dir, yes } => repair::run(dir, *yes, cli.json, &mut out),
        Command::Records(args) => records::run(args, cli.json, &mut out, err),
        Command::Verify { dir } => verify::run(dir, cli.json, &mut out),
    };
    let answered = answered.and_then(|code| Ok(out.flush().or_else(quiet).map(|()| code)?));
    answered.unwrap_or_else(|failure| {
        let code = failure.code();
        if code != Code::Good {
            // Nobody is left to be told where this cannot be written either.
            let _ = writeln!(err, "saguin-inspect: {}", escape(&failure.to_string()));
        }
        code
    })
}

/// A reader that went away does not change what was found.
pub(crate) fn quiet(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}

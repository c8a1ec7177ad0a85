//! The runs of a scenario: A B A B, so that whatever else the machine does falls on both.

use std::io::{self, Write};
use std::process::ExitCode;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cli::{Cli, Plan};
use crate::failure::Failure;
use crate::limit::{is_memory, one_sync};
use crate::report::{Report, Side};
use crate::target::Target;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// There are figures.
    Good = 0,
    /// There are none: the broker refused, closed, or lost something, or the system failed.
    Failed = 1,
    /// The options make no sense.
    Usage = 2,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// Measures what `cli` asks for and prints it on `out`; why there are no figures is said on `err`.
pub fn run(cli: &Cli, out: &mut dyn Write, err: &mut dyn Write) -> Code {
    match measure(cli) {
        Ok(report) => {
            let printed = if cli.common.json {
                writeln!(out, "{}", report.json())
            } else {
                out.write_all(report.table().as_bytes())
            };
            match printed {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    let _ = writeln!(err, "saguin-bench: could not print the figures: {error}");
                    Code::Failed
                }
                _ => Code::Good,
            }
        }
        Err(failure) => {
            // Nobody is left to be told where this cannot be written either.
            let _ = writeln!(err, "saguin-bench: {failure}");
            match failure {
                Failure::Options(_) => Code::Usage,
                _ => Code::Failed,
            }
        }
    }
}

fn measure(cli: &Cli) -> Result<Report, Failure> {
    let (common, scenario) = (&cli.common, &cli.scenario);
    scenario.check()?;
    let mut plan = common.plan()?;
    scenario.prepare(&mut plan);
    take_all_descriptors();
    if let Some(cores) = plan.cores {
        cores.generate()?;
    }
    let mut report = Report {
        scenario: scenario.name(),
        settings: scenario.settings(),
        sides: sides(&plan),
        limit: None,
        notes: Vec::new(),
    };
    let mut limits = Vec::new();
    for _ in 0..common.runs {
        if let Some(bytes) = scenario.stored_bytes() {
            limits.push(one_sync(&plan.dir, bytes)?.micros(0.5));
        }
        for ((_, source), side) in plan.sources.iter().zip(&mut report.sides) {
            let mut target = Target::ready(source, &common.queue, common.patience)?;
            // A broker that died says more than the connection that ended with it.
            let figures = scenario.measure(&mut target);
            if !matches!(figures, Err(Failure::Options(_))) {
                target.check()?;
            }
            side.runs.push(figures?);
        }
    }
    report.limit = scenario.stored_bytes().map(|bytes| (bytes, limits));
    report.notes = notes(&plan);
    Ok(report)
}

fn sides(plan: &Plan) -> Vec<Side> {
    let side = |(name, _): &(String, _)| Side {
        name: name.clone(),
        runs: Vec::new(),
    };
    plan.sources.iter().map(side).collect()
}

fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if is_memory(&plan.dir) {
        notes.push(format!(
            "{} is memory, where a sync costs nothing: name a directory on a disk with --dir",
            plan.dir.display()
        ));
    }
    if plan.cores.is_none() {
        notes.push(
            "broker and generator share all cores: with --pin each has one of its own".into(),
        );
    }
    notes
}

/// As many descriptors as the system allows, for this process and the broker it starts: a connection
/// is one in each.
fn take_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Too few of them are seen when a connection is refused one.
    let _ = setrlimit(Resource::Nofile, limit);
}

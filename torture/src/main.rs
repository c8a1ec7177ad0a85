//! `saguin-torture`: rigs that try to break the promises.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use saguin_log_engine::breakage::Breakage;
use saguin_torture::sim::{run_seed, sweep};

#[derive(Parser)]
#[command(
    version,
    about = "Rigs that try to break the promises of the broker and its log"
)]
struct Cli {
    #[command(subcommand)]
    rig: Rig,
}

#[derive(Subcommand)]
enum Rig {
    /// The engine and its recovery over a simulated disk.
    Sim(Sim),
}

#[derive(Args)]
struct Sim {
    /// How many seeds to run.
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Run with a deliberate defect (see --list).
    #[arg(long = "break", value_name = "NAME")]
    defect: Option<String>,
    /// Show that every deliberate defect is found within --seeds.
    #[arg(long)]
    prove: bool,
    /// List the deliberate defects.
    #[arg(long)]
    list: bool,
    /// Threads; as many as there are processors, if not given.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let Rig::Sim(sim) = Cli::parse().rig;
    if sim.list {
        for breakage in Breakage::ALL {
            println!("{:24} {}", breakage.name(), breakage.what());
        }
        return ExitCode::SUCCESS;
    }
    match sim.go() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

impl Sim {
    fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(processors)
    }

    fn go(&self) -> Result<(), String> {
        if self.prove {
            return self.prove();
        }
        if let Some(name) = &self.defect {
            let known = Breakage::ALL.iter().find(|b| b.name() == name);
            let breakage =
                known.ok_or_else(|| format!("there is no defect {name}; --list shows them"))?;
            set(Some(*breakage))?;
        }
        if let Some(seed) = self.seed {
            let counts = run_seed(seed).map_err(|v| v.to_string())?;
            println!("seed {seed} holds: {counts:#?}");
            return Ok(());
        }
        let started = Instant::now();
        let swept = sweep(self.start, self.seeds, self.threads());
        let seconds = started.elapsed().as_secs_f64();
        println!("{:#?}", swept.counts);
        println!(
            "{} seeds from {} in {seconds:.1} s, {:.0} a second",
            swept.seeds,
            self.start,
            swept.seeds as f64 / seconds
        );
        match swept.violation {
            None => {
                println!("nothing found");
                Ok(())
            }
            Some(violation) => Err(format!(
                "{violation}again with: saguin-torture sim --seed {}",
                violation.seed
            )),
        }
    }

    fn prove(&self) -> Result<(), String> {
        let mut missed = Vec::new();
        for &breakage in Breakage::ALL {
            set(Some(breakage))?;
            let swept = sweep(self.start, self.seeds, self.threads());
            match swept.violation {
                Some(violation) => println!(
                    "{:24} found by seed {:5}: expected {}; found {}",
                    breakage.name(),
                    violation.seed,
                    short(&violation.expected),
                    short(&violation.found)
                ),
                None => {
                    println!("{:24} NOT FOUND in {} seeds", breakage.name(), swept.seeds);
                    missed.push(breakage.name());
                }
            }
        }
        set(None)?;
        if missed.is_empty() {
            println!("all {} defects are found", Breakage::ALL.len());
            Ok(())
        } else {
            Err(format!("not found: {}", missed.join(", ")))
        }
    }
}

fn short(text: &str) -> String {
    let mut out: String = text.chars().take(100).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(feature = "breakages")]
fn set(breakage: Option<Breakage>) -> Result<(), String> {
    saguin_log_engine::breakage::set(breakage);
    Ok(())
}

#[cfg(not(feature = "breakages"))]
fn set(_: Option<Breakage>) -> Result<(), String> {
    Err("this build holds no defects; build with --features breakages".to_owned())
}

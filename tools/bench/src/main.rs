//! The `saguin-bench` binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Clap answers a usage error itself, with exit code 2.
    let cli = saguin_bench::Cli::parse();
    let (out, err) = (std::io::stdout(), std::io::stderr());
    saguin_bench::run(&cli, &mut out.lock(), &mut err.lock()).into()
}

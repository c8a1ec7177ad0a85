//! The `saguin-inspect` binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Clap answers a usage error itself, with exit code 2.
    let cli = saguin_inspect::Cli::parse();
    let (out, err) = (std::io::stdout(), std::io::stderr());
    saguin_inspect::run(&cli, &mut out.lock(), &mut err.lock()).into()
}

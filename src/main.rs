//! The `saguin` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(saguin::cli::run(std::env::args_os(), saguin::run::run))
}

//! The measurements that decided how the engine works; docs/benchmarks.md has their outcome.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod files;
mod index;
mod reading;
mod stages;

fn main() {
    let run = common::Run::new();
    println!("{}", common::machine());
    files::prepared_or_not(&run);
    files::unlink_or_rename(&run);
    stages::measure(&run);
    reading::mapped_or_not(&run);
    index::size(&run);
}

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
    // The one that writes most comes last: a virtual disk answers a burst with a slow spell.
    stages::measure(&run);
    files::prepared_or_not(&run);
    reading::mapped_or_not(&run);
    index::size(&run);
    files::unlink_or_rename(&run);
}

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
    if run.wants("stages") {
        stages::measure(&run);
    }
    if run.wants("prepared") {
        files::prepared_or_not(&run);
    }
    if run.wants("mapped") {
        reading::mapped_or_not(&run);
    }
    if run.wants("index") {
        index::size(&run);
    }
    if run.wants("unlink") {
        files::unlink_or_rename(&run);
    }
}

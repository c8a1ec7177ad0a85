//! The `saguin` binary.

fn main() {}

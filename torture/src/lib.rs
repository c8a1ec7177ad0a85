//! Rigs that try to break the promises of the broker and its log.

pub mod disk;
pub mod rng;
pub mod sim;

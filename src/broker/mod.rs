//! The broker: synchronous state machines over a storage contract.

pub mod topic;

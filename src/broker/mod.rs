//! The broker: synchronous state machines over a storage contract.
//!
//! Nothing here reads a clock, opens a socket or touches a file: `now` and a
//! [`Store`](crate::storage::Store) are handed in.

pub mod counters;
pub mod packet;
pub mod reason;
pub mod settings;
pub mod time;
pub mod topic;

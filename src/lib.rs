//! Sagüin: an MQTT broker that never acknowledges a promise it cannot keep.

pub mod broker;
pub mod cli;
pub mod config;
mod descriptors;
pub mod mqtt;
pub mod run;
pub mod storage;

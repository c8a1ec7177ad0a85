//! Load for any MQTT broker, and what the broker made of it.
//!
//! One thread drives all connections, so that the generator costs little beside the broker it shares a
//! machine with. What comes back is checked: an acknowledgement out of order, a record that is missing,
//! a job delivered twice end the run with a sentence instead of a figure.
//!
//! | question | module |
//! |---|---|
//! | what can be asked, and does it make sense? | `cli` |
//! | which runs, in which order? | `measure` |
//! | what does each scenario do? | `scenario` |
//! | which broker, and what does it cost? | `broker`, `target`, `process`, `cores` |
//! | how is it spoken to? | `connections`, `alarm`, `frame`, `publisher` |
//! | what do the figures say? | `latency`, `limit`, `report` |
//! | why is there no figure? | `failure` |

mod alarm;
mod broker;
mod cli;
mod connections;
mod cores;
mod failure;
mod frame;
mod latency;
mod limit;
mod measure;
mod process;
mod publisher;
mod report;
mod scenario;
mod target;

pub use broker::Kind;
pub use cli::{Cli, Common};
pub use measure::{Code, run};
pub use scenario::Scenario;

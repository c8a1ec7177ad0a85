//! The MQTT front end: sockets, framing, keepalive.
//!
//! It turns bytes into what the broker understands and back, and owns every wait on a socket. Of
//! a connection's two tasks one reads and says what it read; the other asks what there is to write
//! and writes it. Neither holds a lock while it waits, and no other client's socket is ever waited
//! for (invariant 16).

mod clock;
mod convert;
mod inbound;
mod outbound;
mod reader;
mod scratch;
mod serve;
mod server;
mod writer;

#[cfg(test)]
mod tests;

pub use clock::MonotonicClock;
pub use server::{Server, ServerError, ServerSettings, ServerWakes};

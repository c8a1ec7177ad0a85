//! Consumers: how far one session has read in one channel, and what it is sent next.
//!
//! Pure: a consumer says what it wants read, is handed what was read, and says what to send. It
//! never learns who the session is; whoever holds it says which records match, asks whether the
//! session may have each (granted, fits its packet size, has a packet identifier) and calls
//! `sent` only for what was taken: a record that was not taken is offered again, never stepped
//! over.
//!
//! ```text
//! loop {
//!     match consumer.next(matches) {
//!         Next::Read(request) => consumer.filled(&request, store.read_from(channel, request.offset, request.limit)),
//!         Next::Send(delivery) if session.take(&delivery) => consumer.sent(&delivery),
//!         Next::Send(_) | Next::Wait => break,
//!     }
//! }
//! ```

mod append;
mod cursor;
mod latest;
mod selection;

pub use append::AppendConsumer;
pub use cursor::{Bounds, Delivery, Era, Next, ReadBound, ReadRequest};
pub use latest::{LatestConsumer, PassId, Scope, TooManyPasses};
pub use selection::{Options, Selection, select};

//! The storage contract: what the broker may ask of a provider, and what a provider promises.
//!
//! The broker is written against [`Store`]; it never learns which provider it talks to. A provider
//! never learns what a client is: it keeps [`Message`]s under channel names and hands them back.
//!
//! Promises every implementation keeps (invariants 1, 5, 9, 18):
//! * a [`Completion`] reports success only after the batch is as durable as the channel promises;
//! * a batch is applied whole or not at all, and nothing in it is readable before it is durable;
//! * offsets of a channel start at 1, rise by one and are never reused;
//! * a floor only rises, in the same step as the deletion it reports.

mod contract;
pub mod log;
mod message;
#[cfg(test)]
pub mod testing;

pub use contract::{
    Batch, ChannelId, ChannelKind, Completion, Counters, EachCompletion, Operation, ReadError,
    ReadLimit, Receipt, Records, Space, Store, StoreError, WorkItem,
};
pub use message::{Message, MessageId, Record};

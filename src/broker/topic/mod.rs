//! Topics: what a filter matches, and which channel a topic belongs to.
//!
//! A [`TopicFilter`] is a plain MQTT filter. A [`ChannelFilter`] is what an operator writes on a
//! channel: one filter whose levels may carry alternatives in braces. [`Routes`] is the channel
//! list compiled for the two questions a broker asks of it: who holds this topic, and what does
//! this filter reach. [`PublishTopic`] and [`SubscribeFilter`] sort what a client sent into the
//! reserved space and everything else. [`Partition`] is a consumer's share of the topics of a filter. [`SubscriptionTrie`] finds the subscribers of a topic.

mod channel_filter;
mod dead_letter;
mod filter;
mod partition;
mod relation;
mod reserved;
mod routes;
mod tree;
mod trie;

pub use channel_filter::{ChannelFilter, ChannelFilterError, MAX_ALTERNATIVES};
pub use dead_letter::{
    DEAD_LETTER_LEVEL, dead_letter_channel_name, dead_letter_filter, dead_letter_topic,
};
pub use filter::{FilterError, Level, MAX_FILTER_BYTES, TopicFilter, TopicLimits, level_count};
pub use partition::{Partition, topic_hash};
pub use relation::{lies_inside, touches};
pub use reserved::{PublishTopic, SubscribeFilter, TopicRefusal};
pub use routes::{
    ChannelIndex, Reach, Route, RouteChannel, RouteConflict, RouteSource, Routes, type_name,
};
pub use trie::SubscriptionTrie;

#[cfg(test)]
mod properties;

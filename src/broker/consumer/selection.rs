//! How a record goes to one session, given those of its subscriptions whose filter matches.

use crate::storage::Record;

/// The options of one subscription that bear on a channel record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Granted QoS, 0..=2.
    pub qos: u8,
    /// Withhold what this client published itself.
    pub no_local: bool,
    /// Keep the publisher's RETAIN flag.
    pub retain_as_published: bool,
    /// Its Subscription Identifier, if it was given one.
    pub identifier: Option<u32>,
    /// The channel's next offset when the subscription was made, where nothing older is its: Retain
    /// Handling 2 on an append channel, and any subscription on a latest channel, whose older
    /// values are its pass's. 0 otherwise.
    pub from: u64,
}

/// How one record goes to one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The lower of the record's QoS and the highest granted to a matching subscription.
    pub qos: u8,
    /// The RETAIN flag of a live delivery: the publisher's, where a matching subscription asked
    /// for it to be kept.
    pub retain: bool,
    /// Of every matching subscription that has one, in the order given.
    pub identifiers: Vec<u32>,
}

/// Combines the subscriptions of `client` whose filter (and partition) match the record; `None`
/// where none is left to serve it to: the consumer steps past.
#[must_use]
pub fn select(
    record: &Record,
    client: &[u8],
    matching: impl IntoIterator<Item = Options>,
) -> Option<Selection> {
    let message = &record.message;
    let own = !message.publisher.is_empty() && message.publisher == client;
    let mut selection: Option<Selection> = None;
    for options in matching {
        if (options.no_local && own) || record.offset < options.from {
            continue;
        }
        let selection = selection.get_or_insert_default();
        selection.qos = selection.qos.max(options.qos);
        selection.retain |= options.retain_as_published && message.retain;
        selection.identifiers.extend(options.identifier);
    }
    let mut selection = selection?;
    selection.qos = selection.qos.min(message.qos);
    Some(selection)
}

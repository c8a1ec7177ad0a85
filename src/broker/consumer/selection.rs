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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::message;

    fn record(qos: u8) -> Record {
        let mut message = message("a/b", "x");
        message.publisher = "device".into();
        message.retain = true;
        message.qos = qos;
        Record { offset: 5, message }
    }

    #[test]
    fn the_highest_qos_and_every_identifier_of_what_matches() {
        let matching = [
            Options {
                qos: 0,
                identifier: Some(7),
                ..Options::default()
            },
            Options {
                qos: 2,
                ..Options::default()
            },
            Options {
                qos: 1,
                identifier: Some(9),
                ..Options::default()
            },
        ];
        let selection = select(&record(2), b"me", matching).unwrap();
        assert_eq!(selection.qos, 2);
        assert_eq!(selection.identifiers, [7, 9]);
        assert!(!selection.retain);
        assert_eq!(select(&record(1), b"me", matching).unwrap().qos, 1);
        assert_eq!(select(&record(2), b"me", []), None);
    }

    #[test]
    fn no_local_is_judged_by_the_subscription_and_the_stored_publisher() {
        let quiet = Options {
            no_local: true,
            ..Options::default()
        };
        let plain = Options {
            identifier: Some(3),
            ..Options::default()
        };
        assert_eq!(select(&record(1), b"device", [quiet]), None);
        assert!(select(&record(1), b"other", [quiet]).is_some());
        let both = select(&record(1), b"device", [quiet, plain]).unwrap();
        assert_eq!(both.identifiers, [3]);
        let mut unknown = record(1);
        unknown.message.publisher = "".into();
        assert!(select(&unknown, b"", [quiet]).is_some());
    }

    #[test]
    fn retain_is_the_publishers_and_only_if_asked_for() {
        let keep = Options {
            retain_as_published: true,
            ..Options::default()
        };
        assert!(
            select(&record(1), b"me", [Options::default(), keep])
                .unwrap()
                .retain
        );
        let mut plain = record(1);
        plain.message.retain = false;
        assert!(!select(&plain, b"me", [keep]).unwrap().retain);
    }

    #[test]
    fn a_subscription_is_not_served_what_is_older_than_it() {
        let from = |from| Options {
            from,
            ..Options::default()
        };
        assert!(select(&record(1), b"me", [from(5)]).is_some());
        assert!(select(&record(1), b"me", [from(6)]).is_none());
    }
}

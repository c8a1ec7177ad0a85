//! What a session that outlives its connection has on its way of its own messages, as the store keeps
//! it: packet identifiers are the client's to remember as well, so none may come to mean another
//! message across a crash, or a QoS 2 message would be taken for one the client already has.
//!
//! It is written before a message goes out under its identifier, and before a PUBREL (invariant 18).
//! What was acknowledged is taken out with the next write, at most `ack_commit_interval` later.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The version this build writes, and the only one it reads.
const VERSION: u8 = 1;

/// A window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    version: u8,
    /// Of the broadcast log, everything below this has been taken for sending or given up.
    pub taken_to: u64,
    /// The packet identifier last given.
    pub last_id: u16,
    /// Of each append channel, by id, the lowest offset neither sent nor stepped past: what lies below
    /// it and is not on its way is over, though the stored position may not have got there.
    pub served: Vec<(u32, u64)>,
    /// The groups that entries are of, each once: a name may be as long as a filter.
    pub groups: Vec<String>,
    /// In the order they went out.
    pub entries: Vec<WindowEntry>,
}

/// A delivery on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowEntry {
    pub id: u16,
    pub qos: u8,
    /// QoS 2: the client has it, and is owed a PUBREL.
    pub received: bool,
    pub what: What,
}

/// What a delivery is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// An entry of the broadcast log.
    Broadcast { offset: u64 },
    /// A record of an append channel.
    Append { channel: u32, offset: u64 },
    /// A message that is kept nowhere: of QoS 2, to close its exchange.
    Gone,
    /// An entry of the broadcast log that a group handed to this session.
    Shared {
        offset: u64,
        /// Its place among the window's groups.
        group: usize,
    },
}

impl Window {
    pub fn new(
        taken_to: u64,
        last_id: u16,
        served: Vec<(u32, u64)>,
        groups: Vec<String>,
        entries: Vec<WindowEntry>,
    ) -> Self {
        Window {
            version: VERSION,
            taken_to,
            last_id,
            served,
            groups,
            entries,
        }
    }

    /// The stored form.
    pub fn encode(&self) -> Bytes {
        // Numbers and bytes that are all in memory: writing them down cannot fail.
        bincode::serde::encode_to_vec(self, bincode::config::standard())
            .unwrap_or_default()
            .into()
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "what it has on its way has version {other} and this broker reads version {VERSION}; start the version that wrote it"
                ));
            }
            None => return Err("what it has on its way is cut short".into()),
        }
        let limit = bincode::config::standard().with_limit::<{ 4 * 1024 * 1024 }>();
        let (window, read) = bincode::serde::decode_from_slice(bytes, limit)
            .map_err(|error| format!("what it has on its way could not be read: {error}"))?;
        if read != bytes.len() {
            return Err("what it has on its way goes on past its end".into());
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Window {
        let entry = |id, qos, received, what| WindowEntry {
            id,
            qos,
            received,
            what,
        };
        Window::new(
            17,
            9,
            vec![(2, 6)],
            vec!["$share/g/a".into()],
            vec![
                entry(7, 1, false, What::Broadcast { offset: 16 }),
                entry(8, 2, true, What::Gone),
                entry(
                    9,
                    2,
                    false,
                    What::Append {
                        channel: 2,
                        offset: 5,
                    },
                ),
            ],
        )
    }

    #[test]
    fn a_window_reads_back_as_written_and_every_cut_is_seen() {
        let encoded = sample().encode();
        assert_eq!(Window::decode(&encoded), Ok(sample()));
        for cut in 0..encoded.len() {
            assert!(Window::decode(&encoded[..cut]).is_err(), "cut at {cut}");
        }
        let longer = [&encoded[..], &[0]].concat();
        assert!(Window::decode(&longer).is_err());
    }

    #[test]
    fn an_unknown_version_is_refused_naming_both() {
        let error = Window::decode(&[2, 0, 0, 0]).unwrap_err();
        assert!(
            error.contains("version 2") && error.contains("version 1"),
            "{error}"
        );
    }
}

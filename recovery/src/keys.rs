//! The keys and small values the broker keeps beside its records, drawn here so that the inspector
//! can read them without the broker.
//!
//! ```text
//! namespace 1, sessions:   key  client id, UTF-8
//!                          value  one JSON object, see below
//! namespace 2, positions:  the engine's own, see `saguin_log_engine::format::POSITIONS`
//! namespace 3, positions that the engine does not judge: the same bytes; the number may be that of a
//!                          channel in another provider
//! ```
//!
//! A session is `{"version":1,"expiry_seconds":N,"away_since_unix_ms":N or null,"subscriptions":[...]}`;
//! a subscription is an object with `filter` and `qos` among its fields.

pub use saguin_log_engine::format::{POSITIONS, decode_position, position_key, position_value};

/// Namespace of session records.
pub const SESSIONS: u8 = 1;
/// Namespace of positions whose channel may be in another log: the engine sees opaque bytes.
pub const UNJUDGED_POSITIONS: u8 = 3;

/// A stored position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position<'k> {
    /// Number of the channel.
    pub channel: u32,
    /// Who reads: the client id.
    pub reader: &'k [u8],
    /// The next offset the reader is owed.
    pub offset: u64,
    /// The channel is one of this log.
    pub judged: bool,
}

/// Whether a namespace holds positions.
#[must_use]
pub fn holds_positions(space: u8) -> bool {
    matches!(space, POSITIONS | UNJUDGED_POSITIONS)
}

impl<'k> Position<'k> {
    /// Reads an entry of a namespace that holds positions; `None` where it is none.
    #[must_use]
    pub fn read(space: u8, key: &'k [u8], value: &[u8]) -> Option<Position<'k>> {
        let (channel, offset) = decode_position(key, value).filter(|_| holds_positions(space))?;
        Some(Position {
            channel,
            reader: key.get(4..)?,
            offset,
            judged: space == POSITIONS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_of_either_namespace_reads_back_with_its_reader() {
        let (key, value) = (position_key(258, b"pump"), position_value(3));
        for (space, judged) in [(POSITIONS, true), (UNJUDGED_POSITIONS, false)] {
            let expected = Position {
                channel: 258,
                reader: b"pump",
                offset: 3,
                judged,
            };
            assert_eq!(Position::read(space, &key, &value), Some(expected));
            assert_eq!(Position::read(space, &key[..3], &value), None);
            assert_eq!(Position::read(space, &key, &value[..7]), None);
        }
        assert_eq!(Position::read(SESSIONS, &key, &value), None);
    }
}

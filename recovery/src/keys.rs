//! The keys and small values the broker keeps beside its records, drawn here so that the inspector
//! can read them without the broker. The engine sees opaque bytes.
//!
//! ```text
//! namespace 1, sessions:   key  client id, UTF-8
//!                          value  one JSON object, see below
//! namespace 2, positions:  key  u32 channel, big-endian, so that a channel's positions lie together;
//!                               then the client id
//!                          value  u64 offset, little-endian: the next record its reader is owed
//! ```
//!
//! A session is `{"version":1,"expiry_seconds":N,"away_since_unix_ms":N or null,"subscriptions":[...]}`;
//! a subscription is an object with `filter` and `qos` among its fields.

/// Namespace of session records.
pub const SESSIONS: u8 = 1;
/// Namespace of stored positions.
pub const POSITIONS: u8 = 2;

/// The key of one client's position in one channel.
#[must_use]
pub fn position_key(channel: u32, client_id: &[u8]) -> Vec<u8> {
    [&channel.to_be_bytes(), client_id].concat()
}

/// The value of a position.
#[must_use]
pub fn position_value(offset: u64) -> [u8; 8] {
    offset.to_le_bytes()
}

/// Channel, client id and offset of a stored position; `None` where these bytes are none.
#[must_use]
pub fn decode_position<'k>(key: &'k [u8], value: &[u8]) -> Option<(u32, &'k [u8], u64)> {
    let (channel, client_id) = key.split_first_chunk::<4>()?;
    let offset = <[u8; 8]>::try_from(value).ok()?;
    let channel = u32::from_be_bytes(*channel);
    Some((channel, client_id, u64::from_le_bytes(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_the_drawn_bytes_and_reads_back() {
        let (key, value) = (position_key(258, b"pump"), position_value(3));
        assert_eq!(key, [0, 0, 1, 2, b'p', b'u', b'm', b'p']);
        assert_eq!(value, [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_position(&key, &value), Some((258, &b"pump"[..], 3)));
        assert_eq!(decode_position(&key[..3], &value), None);
        assert_eq!(decode_position(&key, &value[..7]), None);
    }
}

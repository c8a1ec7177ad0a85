//! Positions of consumers: the one namespace of the keyspace whose content the engine reads.
//!
//! ```text
//!   namespace  2
//!   key        u32 channel, big-endian; then the consumer's name
//!   value      u64 position, little-endian: the offset the consumer goes on at
//! ```
//!
//! The channel is one of the same log. Big-endian, so that one channel's positions lie together.

/// The namespace of positions.
pub const POSITIONS: u8 = 2;

/// The namespace of what consumers have on its way, in their own words. The engine does not read
/// it, and knows that writing it is what lets records go.
pub const WINDOWS: u8 = 4;

/// The key of a consumer's position in a channel.
#[must_use]
pub fn position_key(channel: u32, consumer: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + consumer.len());
    key.extend_from_slice(&channel.to_be_bytes());
    key.extend_from_slice(consumer);
    key
}

/// The value of a position.
#[must_use]
pub fn position_value(position: u64) -> [u8; 8] {
    position.to_le_bytes()
}

/// Channel and position of an entry of [`POSITIONS`]; `None` where it is none.
#[must_use]
pub fn decode_position(key: &[u8], value: &[u8]) -> Option<(u32, u64)> {
    let (channel, _) = key.split_first_chunk::<4>()?;
    let position = <[u8; 8]>::try_from(value).ok()?;
    Some((u32::from_be_bytes(*channel), u64::from_le_bytes(position)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_the_documented_bytes() {
        let key = position_key(0x0102, b"pump");
        assert_eq!(key, b"\0\0\x01\x02pump");
        assert_eq!(position_value(0x0304), [4, 3, 0, 0, 0, 0, 0, 0]);
        let found = decode_position(&key, &position_value(0x0304));
        assert_eq!(found, Some((0x0102, 0x0304)));
        assert_eq!(decode_position(b"abc", &position_value(1)), None);
        assert_eq!(decode_position(&key, b"1234567"), None);
    }
}

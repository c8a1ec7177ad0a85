//! Which namespace of the engine a namespace of the contract is.
//!
//! The engine indexes positions, and judges each by the channel of its own log that the key names.
//! Sessions lie in one provider and their positions with them, so where there are several providers
//! a position may be of a channel in another one, whose number says nothing here: such a broker keeps
//! positions in a namespace the engine does not read. What an earlier run put into the one or the
//! other is found in both.

use bytes::Bytes;
use saguin_log_engine::Operation;
use saguin_log_engine::format::{POSITIONS, WINDOWS};
use saguin_recovery::keys::UNJUDGED_POSITIONS;

use crate::storage::contract::Space;

const _: () = assert!(Space::Positions as u8 == POSITIONS);
const _: () = assert!(Space::Windows as u8 == WINDOWS);
const _: () = assert!(Space::Sessions as u8 != UNJUDGED_POSITIONS);
const _: () = assert!(Space::Windows as u8 != UNJUDGED_POSITIONS);
const _: () = assert!(Space::Wills as u8 != UNJUDGED_POSITIONS);
const _: () = assert!(Space::Groups as u8 != UNJUDGED_POSITIONS);

/// The namespaces of one provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spaces {
    /// Every position is of a channel of this log.
    pub(super) own_positions: bool,
}

impl Spaces {
    /// Where entries of `space` are written.
    pub(super) fn of(self, space: Space) -> u8 {
        match space {
            Space::Positions if !self.own_positions => UNJUDGED_POSITIONS,
            other => other as u8,
        }
    }

    /// Where an earlier run may have written entries of `space`.
    pub(super) fn earlier(self, space: Space) -> Option<u8> {
        match space {
            Space::Positions if self.own_positions => Some(UNJUDGED_POSITIONS),
            Space::Positions => Some(POSITIONS),
            Space::Sessions | Space::Windows | Space::Wills | Space::Groups => None,
        }
    }

    /// What has to go from there when `key` is written or deleted.
    pub(super) fn clear_earlier(self, space: Space, key: &Bytes) -> Option<Operation> {
        Some(Operation::Delete {
            space: self.earlier(space)?,
            key: key.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use saguin_log_engine::format::decode_position;

    use crate::storage::contract::{ChannelId, Space};

    #[test]
    fn the_engine_reads_the_contracts_position_key() {
        let key = Space::position_key(ChannelId(7), b"pump");
        assert_eq!(decode_position(&key, &9u64.to_le_bytes()), Some((7, 9)));
    }
}

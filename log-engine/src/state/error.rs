//! What a verified frame may contradict.

use crate::format::Kind;

/// A frame that verifies but cannot follow what came before it. In a running engine this is a
/// defect; in recovery it is damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// It names a channel that was never defined.
    UnknownChannel {
        /// The id.
        channel: u32,
    },
    /// It treats a channel as another kind than it is.
    WrongKind {
        /// The id.
        channel: u32,
        /// What the channel is.
        kind: Kind,
        /// What the operation needs.
        wanted: Kind,
    },
    /// It defines an id or a name that is taken.
    DefinedTwice {
        /// The id.
        channel: u32,
        /// The name.
        name: String,
    },
    /// A record's offset is not the channel's next.
    OffsetOutOfOrder {
        /// The channel.
        channel: u32,
        /// Its next offset.
        expected: u64,
        /// The record's.
        found: u64,
    },
    /// A trim lowers the floor, passes the end or frees more than there is.
    ImpossibleTrim {
        /// The channel.
        channel: u32,
        /// The new floor.
        floor: u64,
        /// Records it says went.
        removed: u64,
        /// Bytes it says went.
        freed: u64,
    },
    /// It sets a ceiling, or skips to an offset, that the channel's next one has passed.
    ImpossibleCeiling {
        /// The channel.
        channel: u32,
        /// Its next offset.
        next: u64,
        /// What the operation says.
        found: u64,
    },
    /// It names a job or an entry that is not there.
    NoSuchItem {
        /// The channel.
        channel: u32,
        /// The offset.
        offset: u64,
    },
    /// It holds a record under a key that is held already.
    HeldTwice {
        /// The key, escaped.
        key: String,
    },
    /// It releases, drops or moves a hold that is not there or is of another size.
    NotHeld {
        /// The key, escaped.
        key: String,
    },
    /// A segment's prologue states other holds than the frames before it add up to.
    HoldsDisagree {
        /// Count and bytes replay gave.
        replayed: (u64, u64),
        /// Count and bytes the prologue says.
        stated: (u64, u64),
    },
    /// A consumer's position is not readable as one.
    NoPosition {
        /// Key of the entry, escaped.
        key: String,
    },
    /// A consumer's position lies past the end of its channel.
    PositionAhead {
        /// The channel.
        channel: u32,
        /// The channel's next offset.
        next: u64,
        /// The position.
        found: u64,
    },
    /// A segment's prologue states other numbers than the frames before it add up to.
    PrologueDisagrees {
        /// The channel.
        channel: u32,
        /// What replay gave.
        replayed: String,
        /// What the prologue says.
        stated: String,
    },
    /// A channel holds another number of records than its numbers say.
    Miscounted {
        /// The channel.
        channel: u32,
        /// What its numbers say.
        stated: u64,
        /// What was found.
        found: u64,
    },
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::UnknownChannel { channel } => {
                write!(f, "channel {channel} was never defined")
            }
            StateError::WrongKind {
                channel,
                kind,
                wanted,
            } => {
                write!(
                    f,
                    "channel {channel} is a {kind}, the operation needs a {wanted}"
                )
            }
            StateError::DefinedTwice { channel, name } => {
                write!(f, "channel {channel} {name:?} is defined twice")
            }
            StateError::OffsetOutOfOrder {
                channel,
                expected,
                found,
            } => {
                write!(
                    f,
                    "channel {channel}: expected offset {expected}, found {found}"
                )
            }
            StateError::ImpossibleTrim {
                channel,
                floor,
                removed,
                freed,
            } => write!(
                f,
                "channel {channel}: a trim to {floor} removing {removed} records and {freed} bytes is impossible"
            ),
            StateError::ImpossibleCeiling {
                channel,
                next,
                found,
            } => write!(
                f,
                "channel {channel}: expected a ceiling or skip at or above the next offset {next}, found {found}"
            ),
            StateError::NoSuchItem { channel, offset } => {
                write!(
                    f,
                    "channel {channel}: nothing unresolved at offset {offset}"
                )
            }
            StateError::HeldTwice { key } => write!(f, "{key} is held already"),
            StateError::NotHeld { key } => {
                write!(f, "nothing of this size is held under {key}")
            }
            StateError::HoldsDisagree { replayed, stated } => write!(
                f,
                "the prologue states {} holds of {} bytes, the frames before it add up to {} of {}",
                stated.0, stated.1, replayed.0, replayed.1
            ),
            StateError::NoPosition { key } => {
                write!(f, "the entry {key} is not a consumer's position")
            }
            StateError::PositionAhead {
                channel,
                next,
                found,
            } => write!(
                f,
                "channel {channel}: a consumer is at {found}, past the next offset {next}"
            ),
            StateError::PrologueDisagrees {
                channel,
                replayed,
                stated,
            } => write!(
                f,
                "channel {channel}: the prologue states {stated}, the frames before it add up to {replayed}"
            ),
            StateError::Miscounted {
                channel,
                stated,
                found,
            } => write!(
                f,
                "channel {channel}: its numbers say {stated} records, and there are {found}"
            ),
        }
    }
}

impl std::error::Error for StateError {}

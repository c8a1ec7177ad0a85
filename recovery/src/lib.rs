//! Reading a log directory back. The only way to obtain an [`Engine`](saguin_log_engine::Engine) is
//! [`recover`]; [`inspect`] is the same reading without the right to write. So opening, verifying
//! and inspecting can never disagree about what a directory holds.
//!
//! * [`walk`] reads segments and frames in order, applies them to a state and stops at the first
//!   byte that is not what was written;
//! * [`Ending`] says what that byte means: the end, a torn tail, or damage;
//! * [`recover`] repairs what a crash may leave (a torn tail, a roll cut short) and nothing else.

pub mod body;
mod checkpoint;
mod error;
mod open;
mod report;
mod tail;
mod walk;

pub use checkpoint::{Checkpoint, Rejected};
pub use error::{Damage, DamageKind, RecoverError};
pub use open::{inspect, recover};
pub use report::{ChannelReport, FooterReport, Report, SegmentReport};
pub use tail::Torn;
pub use walk::{Ending, Reading, Unproven, Unsealed, Visitor, Walk, walk};

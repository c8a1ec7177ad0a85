//! Reading a log directory back. The only way to obtain an [`Engine`](saguin_log_engine::Engine) is
//! [`recover`]; [`inspect`] is the same reading without the right to write. So opening, verifying
//! and inspecting can never disagree about what a directory holds.
//!
//! * [`walk`] reads segments and frames in order, applies them to a state and stops at the first
//!   byte that is not what was written;
//! * [`Ending`] says what that byte means: the end, a torn tail, or damage;
//! * [`recover`] repairs what a crash may leave (a torn tail, a roll cut short) and nothing else;
//! * [`salvage`] reads on past damage, and [`rebuild`] makes a log of what it found: each for whoever
//!   asks for it by name, never as a part of opening.

pub mod body;
mod checkpoint;
mod error;
pub mod keys;
mod open;
mod rebuild;
mod report;
pub mod salvage;
pub mod stored;
mod tail;
mod walk;

pub use checkpoint::{Checkpoint, Rejected};
pub use error::{Damage, DamageKind, RecoverError};
pub use open::{inspect, recover};
pub use rebuild::{RebuildError, Rebuilt, lost_name, rebuild};
pub use report::{ChannelReport, FooterReport, Report, SegmentReport};
pub use tail::Torn;
pub use walk::{Ending, Reading, Unproven, Unsealed, Visitor, Walk, walk};

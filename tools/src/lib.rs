//! What is in a log directory, and whether it is whole. Nothing here writes to a directory, takes
//! a lock that is kept, or makes a file, but for `repair --yes` and the file `export --out` names: an
//! operator runs it on the only copy there is.
//!
//! All reading goes through `saguin-recovery`, so this cannot call a log whole that the broker
//! would refuse to open, nor the other way round.
//!
//! | question | module |
//! |---|---|
//! | what can be asked, and how does it end? | `cli` |
//! | what does the directory hold, and has anybody got it open? | `source` |
//! | where do a channel's live records lie? | `live` |
//! | what does damage cost? | `losses` |
//! | the answers | a module for each command |
//! | how is something from the disk shown? | `text` |

mod channels;
mod cli;
mod export;
mod live;
mod losses;
mod positions;
mod queue;
mod records;
mod repair;
mod segments;
mod sessions;
mod source;
mod summary;
mod text;
mod verify;

pub use cli::{Cli, Code, Command, ExportArgs, RecordsArgs, run};

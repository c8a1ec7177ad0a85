//! The log engine: one directory is one log, many channels share it, and one sync acknowledges
//! everybody who arrived during the last one.
//!
//! A caller submits a [`Batch`]; it lies in one frame, all of it or none of it; its [`Ticket`]
//! completes once that frame is as durable as the batch's [`Durability`] asks, and only then can
//! anyone read it. A *sequence* is an
//! append log, a *map* holds the latest record of each key, a *work set* holds unresolved jobs, and
//! a small keyspace holds the rest. The engine knows nothing of who its callers are.
//!
//! An [`Engine`] is obtained by recovering a directory and in no other way.
//!
//! | question | module |
//! |---|---|
//! | what bytes are in a segment? | [`mod@format`] |
//! | who may touch the disk? | [`storage`] |
//! | what does the log add up to? | [`state`] |
//! | which offsets does a batch get? | `plan` |
//! | when is it acknowledged? | `commit`, `writer` |
//! | what may be deleted? | `tidy` |
//! | what need not be replayed? | `checkpoint` |
//! | what is refused when there is no room? | `room` |
//! | how is a record read back? | `read`, `frames`, `scan` |

mod batch;
pub mod breakage;
mod checkpoint;
mod commit;
mod counters;
mod engine;
pub mod format;
mod frames;
mod handoff;
mod latch;
mod plan;
mod read;
mod resume;
mod room;
pub mod scan;
mod segment;
mod spare;
pub mod state;
pub mod storage;
mod sync;
mod tail;
mod tidy;
mod writer;

pub use batch::{
    Batch, ChannelId, CommitError, Durability, NewRecord, Operation, Receipt, Target, Tidy,
    TrimPlan,
};
pub use checkpoint::{CheckpointFailure, Checkpointed};
pub use counters::EngineCounters;
pub use engine::{
    Engine, MAX_BATCH_BYTES, MAX_BATCH_OPERATIONS, MAX_KEY_BYTES, MAX_SEGMENT_BYTES,
    MAX_VALUE_BYTES, MIN_SEGMENT_BYTES, Options, Recovered, Wake,
};
pub use handoff::{Callback, Gather, Outcome, PublishCommit, Ticket};
pub use latch::Failure;
pub use read::{ReadError, ReadLimit, ReadRecords};
pub use room::BoundTooSmall;
pub use segment::{Layout, SEGMENT_FORMAT, Segment, writer_name};
pub use tail::StoredRecord;
pub use tidy::{Tidied, TidyError};

/// Makes the first segment of a new log: for recovery.
///
/// # Errors
/// A sentence that says what could not be done to which file.
pub fn create_log(
    fs: &dyn storage::FileSystem,
    layout: &Layout,
    engine_id: [u8; 16],
    segment_bytes: u64,
) -> Result<(), String> {
    let state = state::State::default();
    match writer::make_first_segment(fs, layout, engine_id, &state, segment_bytes) {
        Ok(_) => Ok(()),
        Err(writer::WriteError::NoSpace) => Err(format!(
            "no room for a segment of {segment_bytes} bytes in {}",
            layout.segment_dir().display()
        )),
        Err(writer::WriteError::Failed(why)) => Err(why),
    }
}

//! What bytes are in a segment: pure functions, no files, no clocks.
//!
//! A segment is a 4 KiB [`header`](SegmentHeader) followed by [`frames`](FrameHeader), each a
//! multiple of eight bytes; a sealed one ends with a [`Footer`]. A frame holds [operations](Op). A
//! checkpoint is [`Chunk`]s between a header and a trailer. Everything is little-endian and, but for
//! what is in a chunk, specified by hand; golden fixtures in `tests/format_v1.rs` pin every layout.

mod checkpoint;
mod footer;
mod frame;
mod header;
mod op;
mod ops;
mod position;
mod varint;

pub use checkpoint::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINT_TRAILER_BYTES, CheckpointError, CheckpointHeader,
    CheckpointTrailer, Chunk, HoldItem, JobItem, MAX_CHUNK_BYTES, MapItem, ValueItem,
};
pub use footer::{FOOTER_TRAILER_BYTES, Footer, FooterError, MAX_FOOTER_BYTES};
pub use frame::{
    FLAG_CLEAN, FLAG_PROLOGUE, FLAG_SEAL, FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, FrameBuilder,
    FrameError, FrameHeader, MAX_BODY_BYTES, SEAL_FRAME_BYTES, decode_frame, peek_frame_header,
};
pub use header::{
    FORMAT_VERSION, HeaderError, MAGIC, SEGMENT_HEADER_BYTES, SegmentHeader, WRITER_BYTES,
};
pub use op::{Kind, MAX_NAME_BYTES, Op, OpError, RecordRef, StateLine};
pub use ops::Ops;
pub use position::{POSITIONS, WINDOWS, decode_position, position_key, position_value};

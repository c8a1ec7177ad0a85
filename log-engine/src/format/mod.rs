//! What bytes are in a segment: pure functions, no files, no clocks.
//!
//! A segment is a 4 KiB [`header`](SegmentHeader) followed by [`frames`](FrameHeader), each a
//! multiple of eight bytes. A frame holds [operations](Op). Everything is little-endian and
//! specified by hand; golden fixtures in `tests/format_v1.rs` pin every layout.

mod frame;
mod header;
mod op;
mod position;
mod varint;

pub use frame::{
    FLAG_CLEAN, FLAG_PROLOGUE, FLAG_SEAL, FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, FrameBuilder,
    FrameError, FrameHeader, MAX_BODY_BYTES, SEAL_FRAME_BYTES, decode_frame, peek_frame_header,
};
pub use header::{
    FORMAT_VERSION, HeaderError, MAGIC, SEGMENT_HEADER_BYTES, SegmentHeader, WRITER_BYTES,
};
pub use op::{Kind, MAX_NAME_BYTES, Op, OpError, Ops, RecordRef, StateLine};
pub use position::{POSITIONS, decode_position, position_key, position_value};

//! Buffers that a thread lends to the connection it serves at the moment, so that none of ten
//! thousand that are idle holds one, and none that is busy makes one for every packet.

use std::cell::Cell;

use bytes::BytesMut;

use crate::broker::packet::Outgoing;

/// What one read takes at most into a lent buffer, bytes.
const READ_BYTES: usize = 64 * 1024;

/// What is encoded before it is written.
#[derive(Default)]
pub(super) struct Outbox {
    pub packets: Vec<Outgoing>,
    pub bytes: BytesMut,
}

thread_local! {
    static READ: Cell<BytesMut> = Cell::default();
    static WRITE: Cell<Outbox> = Cell::default();
}

/// An empty buffer to read into. It is given back before its borrower waits for anything.
pub(super) fn lend_read() -> BytesMut {
    let mut buffer = READ.take();
    buffer.clear();
    // Packets may share the memory for a while yet: then it is theirs, and this makes another.
    buffer.reserve(READ_BYTES);
    buffer
}

/// Takes a lent buffer back.
pub(super) fn give_read(buffer: BytesMut) {
    READ.set(buffer);
}

/// Lends an empty outbox.
pub(super) fn with_outbox<R>(write: impl FnOnce(&mut Outbox) -> R) -> R {
    let mut outbox = WRITE.take();
    let result = write(&mut outbox);
    outbox.packets.clear();
    outbox.bytes.clear();
    WRITE.set(outbox);
    result
}

//! From a socket to packets.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use bytes::BytesMut;
use saguin_mqtt_codec::{DecodeError, Limits, Packet, Role, Version, decode};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

use super::scratch;

/// The first read for a packet that is not whole yet, bytes. It doubles for as long as reads come
/// back full.
const SMALLEST_READ: usize = 2 * 1024;

/// The largest read, bytes.
const LARGEST_READ: usize = 64 * 1024;

/// The reading half of a connection. What it reads first goes into a buffer its thread lends; of a
/// packet that is not whole yet it has a buffer of its own, which grows as bytes arrive, never to a
/// declared length. An idle connection holds neither.
pub(super) struct Inbound {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    lent: bool,
    next_read: usize,
    version: Option<Version>,
    limits: Limits,
}

/// What one fill of the buffer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// More bytes are there.
    More,
    /// The other side has ended the connection.
    End,
}

impl Inbound {
    /// The socket, its CONNECT bounded by `max_connect_size` bytes.
    pub fn new(socket: OwnedReadHalf, max_connect_size: usize) -> Self {
        Inbound {
            socket,
            buffer: BytesMut::new(),
            lent: false,
            next_read: SMALLEST_READ,
            version: None,
            limits: Limits::new(max_connect_size),
        }
    }

    /// The CONNECT was taken: from here on packets have these bounds.
    pub fn connected(&mut self, version: Version, max_packet: usize) {
        self.version = Some(version);
        self.limits = Limits::new(max_packet);
    }

    /// The next packet, if all of it is there.
    pub fn decode(&mut self) -> Result<Option<Packet>, DecodeError> {
        decode(&mut self.buffer, self.version, Role::Client, &self.limits)
    }

    /// Gives a lent buffer back: called before anything is waited for. What it still holds is
    /// copied to its size.
    pub fn give_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            let rest = BytesMut::from(&self.buffer[..]);
            scratch::give_read(std::mem::replace(&mut self.buffer, rest));
        } else if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Waits for bytes. May be cancelled: no byte is lost.
    pub async fn fill(&mut self) -> io::Result<Filled> {
        loop {
            self.give_back();
            // An idle connection waits here, without a buffer.
            self.socket.readable().await?;
            if self.buffer.is_empty() {
                (self.buffer, self.lent) = (scratch::lend_read(), true);
            } else {
                self.buffer.reserve(self.next_read);
            }
            let read = {
                let mut reading = pin!(self.socket.read_buf(&mut self.buffer));
                // Asked once: a read that finds nothing after all gives the buffer back first.
                poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await
            };
            match read {
                Poll::Ready(Ok(0)) => return Ok(Filled::End),
                Poll::Ready(Ok(read)) => {
                    self.next_read = if read >= self.next_read {
                        (self.next_read * 2).min(LARGEST_READ)
                    } else {
                        SMALLEST_READ.max(self.next_read / 2)
                    };
                    return Ok(Filled::More);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.give_back();
                    // Or it was not this socket's turn to be read: then others have theirs.
                    tokio::task::consume_budget().await;
                }
            }
        }
    }
}

//! From a socket to packets.

use std::io;

use bytes::BytesMut;
use saguin_mqtt_codec::{DecodeError, Limits, Packet, Role, Version, decode};
use tokio::net::tcp::OwnedReadHalf;

/// The first read of a burst, bytes. It doubles for as long as reads come back full.
const SMALLEST_READ: usize = 2 * 1024;

/// The largest read, bytes.
const LARGEST_READ: usize = 64 * 1024;

/// The reading half of a connection. Its buffer grows as bytes arrive, never to a declared length,
/// and is given up whenever it is empty, so that an idle connection holds none.
pub(super) struct Inbound {
    socket: OwnedReadHalf,
    buffer: BytesMut,
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
        let packet = decode(&mut self.buffer, self.version, Role::Client, &self.limits)?;
        if self.buffer.is_empty() {
            // Also lets go of a buffer that packets just decoded still share.
            self.buffer = BytesMut::new();
        }
        Ok(packet)
    }

    /// Waits for bytes. May be cancelled: no byte is lost.
    pub async fn fill(&mut self) -> io::Result<Filled> {
        loop {
            // An idle connection waits here, without a buffer.
            self.socket.readable().await?;
            self.buffer.reserve(self.next_read);
            match self.socket.try_read_buf(&mut self.buffer) {
                Ok(0) => return Ok(Filled::End),
                Ok(read) => {
                    self.next_read = if read >= self.next_read {
                        (self.next_read * 2).min(LARGEST_READ)
                    } else {
                        SMALLEST_READ.max(self.next_read / 2)
                    };
                    return Ok(Filled::More);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

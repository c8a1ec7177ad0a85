//! The writing task of a connection: what the broker has, as fast as the socket takes it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::broker::packet::Outgoing;
use crate::broker::{Connection, Taken};

use super::clock::MonotonicClock;
use super::outbound::Dialect;
use super::scratch::{self, Outbox};
use super::serve::Signals;

/// What one write takes up to, bytes; one packet may be larger.
const WRITE_BUDGET: usize = 64 * 1024;

/// How long writing may still take once the connection is to be closed.
pub(super) const LAST_WRITE: Duration = Duration::from_secs(1);

/// What one turn came to.
struct Turn {
    taken: Taken,
    /// Everything taken was encoded.
    encoded: bool,
    /// What the socket has not taken yet.
    rest: Bytes,
}

/// The writing half of an established connection.
pub(super) struct Writer {
    pub socket: OwnedWriteHalf,
    pub connection: Connection,
    pub signals: Arc<Signals>,
    pub clock: MonotonicClock,
    pub dialect: Dialect,
    /// A write that takes longer ends the connection; `None` bounds it by its closing alone.
    pub write_timeout: Option<Duration>,
    /// When writing ends for good; known once the connection has been seen to be closing.
    pub cut_at: Option<Instant>,
}

impl Writer {
    /// Writes until the connection ends, then closes the socket.
    pub async fn run(mut self) {
        if let Err(error) = self.write_all().await {
            tracing::debug!(client = self.connection.client_id(), %error, "write ended");
            self.connection.close_quietly();
            return;
        }
        // Best effort: the other side may be gone.
        let _ = Box::pin(timeout(LAST_WRITE, self.socket.shutdown())).await;
    }

    async fn write_all(&mut self) -> io::Result<()> {
        loop {
            let Turn {
                taken,
                encoded,
                rest,
            } = scratch::with_outbox(|outbox| self.turn(outbox))?;
            if !rest.is_empty() {
                // On its own allocation: an idle connection has nothing left to write.
                Box::pin(self.write(&rest)).await?;
            }
            if !encoded {
                return Ok(());
            }
            match taken {
                Taken::More => {}
                Taken::Read(reads) => {
                    let now = self.clock.now();
                    let connection = &self.connection;
                    if connection.are_in_memory(&reads) {
                        connection.read(reads, now);
                    } else {
                        // Other connections' tasks move to another thread meanwhile.
                        tokio::task::block_in_place(|| connection.read(reads, now));
                    }
                }
                // Whatever comes after what was taken notifies, and a notification waits.
                Taken::Idle => self.signals.writer.notified().await,
                Taken::Close => return Ok(()),
            }
        }
    }

    /// Takes what there is and writes what the socket takes of it at once, which is nearly always
    /// all of it.
    fn turn(&self, outbox: &mut Outbox) -> io::Result<Turn> {
        let Outbox { packets, bytes } = outbox;
        let taken = self
            .connection
            .take(WRITE_BUDGET, packets, self.clock.now());
        let encoded = self.encode(packets.drain(..), bytes);
        let mut written = 0;
        while written < bytes.len() {
            match self.socket.try_write(&bytes[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Turn {
            taken,
            encoded,
            rest: Bytes::copy_from_slice(&bytes[written..]),
        })
    }

    /// Encodes packets; returns whether all of them could be. What could not ends the connection:
    /// a reply is never left out.
    fn encode(&self, packets: impl Iterator<Item = Outgoing>, bytes: &mut BytesMut) -> bool {
        for packet in packets {
            if self.dialect.write(packet, bytes).is_err() {
                tracing::info!(
                    client = self.connection.client_id(),
                    maximum_packet_size = self.dialect.maximum_packet_size,
                    "a reply is larger than the client's Maximum Packet Size"
                );
                self.connection.close_quietly();
                return false;
            }
        }
        true
    }

    /// One bounded write (invariant 16): by the write timeout, and by the connection's closing,
    /// which a client that does not read holds up for [`LAST_WRITE`] in all.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let connection = &self.connection;
        let signals = &self.signals;
        let cut_at = &mut self.cut_at;
        let closing = async {
            while !connection.is_closing() {
                signals.writer.notified().await;
            }
            sleep_until(*cut_at.get_or_insert_with(|| Instant::now() + LAST_WRITE)).await;
        };
        let timed_out = async {
            match self.write_timeout {
                Some(limit) => sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A notification taken by another branch is not lost: what it announced is looked for
            // before the next wait.
            written = self.socket.write_all(bytes) => written,
            () = closing => Err(io::ErrorKind::TimedOut.into()),
            () = timed_out => {
                connection.write_timed_out();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

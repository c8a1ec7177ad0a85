//! The reading task of a connection: packets in, in order, no faster than they can be answered.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use saguin_mqtt_codec::{DecodeError, Packet, Reply};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::broker::reason::{Reason, Refusal};
use crate::broker::time::Now;
use crate::broker::{Burst, Connection, Flow};

use super::clock::MonotonicClock;
use super::convert::{self, Aliases};
use super::inbound::{Filled, Inbound};
use super::serve::Signals;

/// Why reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadEnd {
    /// The client is gone: nothing can be written either.
    Gone,
    /// The connection is being closed by either side's word; the writer finishes it.
    Closing,
}

/// What a packet came to.
enum Taken<'a> {
    Done(Flow),
    Waits(Pin<Box<dyn Future<Output = Flow> + Send + 'a>>),
}

/// The reading half of an established connection.
pub(super) struct Reader {
    pub inbound: Inbound,
    pub connection: Connection,
    pub signals: Arc<Signals>,
    pub clock: MonotonicClock,
    pub aliases: Aliases,
    /// One and a half times the Keep Alive; `None` waits for ever.
    pub silence: Option<Duration>,
    /// What the client published and the store has not been handed.
    pub burst: Burst,
    /// When the bytes at hand were read.
    pub now: Now,
}

impl Reader {
    /// Reads until the connection ends.
    pub async fn run(&mut self) -> ReadEnd {
        let end = self.read_on().await;
        self.flush();
        end
    }

    /// Hands what was published to the store.
    fn flush(&mut self) {
        self.connection.flush(&mut self.burst);
    }

    async fn read_on(&mut self) -> ReadEnd {
        let mut heard = Instant::now();
        let mut alarm = pin!(sleep_until(heard + self.silence.unwrap_or_default()));
        // When the bytes at hand came.
        let mut filled = heard;
        loop {
            if self.connection.is_closing() {
                return ReadEnd::Closing;
            }
            if !self.connection.may_read() {
                self.flush();
                self.inbound.give_back();
                // What it sends next waits in the socket, its keepalive with it: a client is not
                // cut off for a silence that is ours.
                self.signals.reader.notified().await;
                heard = Instant::now();
                filled = heard;
                self.now = self.clock.now();
                continue;
            }
            match self.inbound.decode() {
                Ok(Some(packet)) => {
                    heard = filled;
                    let flow = match self.take(packet) {
                        Taken::Done(flow) => flow,
                        Taken::Waits(rest) => rest.await,
                    };
                    if flow != Flow::Continue {
                        return ReadEnd::Closing;
                    }
                }
                Ok(None) => {
                    self.flush();
                    if let Some(end) = self.wait(heard, alarm.as_mut()).await {
                        return end;
                    }
                    filled = Instant::now();
                    self.now = self.clock.now();
                }
                Err(error) => {
                    self.unreadable(&error);
                    return ReadEnd::Closing;
                }
            }
        }
    }

    /// Waits for bytes, a signal, or the end of the client's patience. The alarm is only set again
    /// once it has gone off: setting it for every packet would cost more than the packet.
    async fn wait(&mut self, heard: Instant, mut alarm: Pin<&mut Sleep>) -> Option<ReadEnd> {
        let silence = self.silence;
        loop {
            tokio::select! {
                filled = self.inbound.fill() => return match filled {
                    Ok(Filled::More) => None,
                    Ok(Filled::End) => Some(ReadEnd::Gone),
                    Err(error) => {
                        let client = self.connection.client_id();
                        tracing::debug!(client, %error, "connection lost");
                        Some(ReadEnd::Gone)
                    }
                },
                () = self.signals.reader.notified() => return None,
                () = alarm.as_mut(), if silence.is_some() => {}
            }
            let patience_ends = heard + silence.unwrap_or_default();
            if patience_ends <= Instant::now() {
                self.connection.close(Refusal::new(
                    Reason::KeepAliveTimeout,
                    "nothing was heard for one and a half times the Keep Alive",
                ));
                return Some(ReadEnd::Closing);
            }
            alarm.as_mut().reset(patience_ends);
        }
    }

    fn unreadable(&self, error: &DecodeError) {
        tracing::debug!(client = self.connection.client_id(), %error, "unreadable packet");
        match error.reply() {
            Reply::DisconnectV5 => self.connection.close(convert::refusal(error)),
            _ => self.connection.close_quietly(),
        }
    }

    /// Carries one packet out. What may have to wait for its turn does so on an allocation of its own:
    /// an idle connection has none.
    fn take(&mut self, packet: Packet) -> Taken<'_> {
        let now = self.now;
        if !matches!(packet, Packet::Publish(_) | Packet::PubAck(_)) {
            self.flush();
        }
        let connection = &self.connection;
        Taken::Done(match packet {
            Packet::Publish(publish) => match self.aliases.publish(publish) {
                Ok(publish) => connection.publish_in(&mut self.burst, publish, now),
                Err(refusal) => {
                    connection.close(refusal);
                    Flow::Stop
                }
            },
            Packet::PubAck(ack) => connection.puback(ack.packet_id, now),
            Packet::PingReq => connection.ping(),
            Packet::PubComp(ack) => connection.pubcomp(ack.packet_id, now),
            other => return Taken::Waits(Box::pin(self.take_in_turn(other))),
        })
    }

    async fn take_in_turn(&mut self, packet: Packet) -> Flow {
        let connection = self.connection.clone();
        match packet {
            Packet::Subscribe(subscribe) => {
                let subscribe = convert::subscribe(subscribe);
                self.until_taken(|_| connection.subscribe(&subscribe)).await
            }
            Packet::Unsubscribe(unsubscribe) => {
                let unsubscribe = convert::unsubscribe(unsubscribe);
                self.until_taken(|_| connection.unsubscribe(&unsubscribe))
                    .await
            }
            Packet::Disconnect(disconnect) => {
                let disconnect = convert::disconnect(&disconnect);
                self.until_taken(|now| connection.disconnect(disconnect, now))
                    .await
            }
            Packet::PubRec(ack) => {
                let refuses = ack.reason.code() >= 0x80;
                self.until_taken(|now| connection.pubrec(ack.packet_id, refuses, now))
                    .await
            }
            Packet::PubRel(ack) => self.until_taken(|_| connection.pubrel(ack.packet_id)).await,
            // Packets that only a server sends, and no authentication goes on.
            other => {
                connection.close(Refusal::new(
                    Reason::ProtocolError,
                    format!("{} has no place here", other.packet_type().name()),
                ));
                Flow::Stop
            }
        }
    }

    /// Hands a packet in again while a CONNECT of the same client holds it up.
    async fn until_taken(&mut self, take: impl Fn(Now) -> Flow) -> Flow {
        loop {
            match take(self.clock.now()) {
                Flow::Retry => {
                    self.inbound.give_back();
                    self.signals.reader.notified().await;
                }
                flow => return flow,
            }
        }
    }
}

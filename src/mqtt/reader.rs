//! The reading task of a connection: packets in, in order, no faster than they can be answered.

use std::time::Duration;

use saguin_mqtt_codec::{DecodeError, Packet, Reply};
use tokio::time::{Instant, timeout_at};

use crate::broker::reason::{Reason, Refusal};
use crate::broker::{Connection, Flow};

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

/// The reading half of an established connection.
pub(super) struct Reader<'a> {
    pub inbound: Inbound,
    pub connection: &'a Connection,
    pub signals: &'a Signals,
    pub clock: MonotonicClock,
    pub aliases: Aliases,
    /// One and a half times the Keep Alive; `None` waits for ever.
    pub silence: Option<Duration>,
}

impl Reader<'_> {
    /// Reads until the connection ends.
    pub async fn run(&mut self) -> ReadEnd {
        let mut heard = Instant::now();
        loop {
            if self.connection.is_closing() {
                return ReadEnd::Closing;
            }
            if !self.connection.may_read() {
                // What it sends next waits in the socket, its keepalive with it: a client is not
                // cut off for a silence that is ours.
                self.signals.reader.notified().await;
                heard = Instant::now();
                continue;
            }
            match self.inbound.decode() {
                Ok(Some(packet)) => {
                    heard = Instant::now();
                    if !self.handle(packet).await {
                        return ReadEnd::Closing;
                    }
                }
                Ok(None) => match self.wait(heard).await {
                    Some(end) => return end,
                    None => continue,
                },
                Err(error) => {
                    self.unreadable(&error);
                    return ReadEnd::Closing;
                }
            }
        }
    }

    /// Waits for bytes, a signal, or the end of the client's patience.
    async fn wait(&mut self, heard: Instant) -> Option<ReadEnd> {
        let silence = self.silence;
        let signals = self.signals;
        let inbound = &mut self.inbound;
        let next = async {
            tokio::select! {
                filled = inbound.fill() => Some(filled),
                () = signals.reader.notified() => None,
            }
        };
        let filled = match silence {
            None => next.await,
            Some(silence) => match timeout_at(heard + silence, next).await {
                Ok(filled) => filled,
                Err(_) => {
                    self.connection.close(Refusal::new(
                        Reason::KeepAliveTimeout,
                        "nothing was heard for one and a half times the Keep Alive",
                    ));
                    return Some(ReadEnd::Closing);
                }
            },
        };
        match filled {
            None | Some(Ok(Filled::More)) => None,
            Some(Ok(Filled::End)) => Some(ReadEnd::Gone),
            Some(Err(error)) => {
                tracing::debug!(client = self.connection.client_id(), %error, "connection lost");
                Some(ReadEnd::Gone)
            }
        }
    }

    fn unreadable(&self, error: &DecodeError) {
        tracing::debug!(client = self.connection.client_id(), %error, "unreadable packet");
        match error.reply() {
            Reply::DisconnectV5 => self.connection.close(convert::refusal(error)),
            _ => self.connection.close_quietly(),
        }
    }

    /// Carries one packet out; returns whether to read on.
    async fn handle(&mut self, packet: Packet) -> bool {
        let now = self.clock.now();
        let connection = self.connection;
        let flow = match packet {
            Packet::Publish(publish) => match self.aliases.publish(publish) {
                Ok(publish) => connection.publish(publish, now),
                Err(refusal) => {
                    connection.close(refusal);
                    Flow::Stop
                }
            },
            Packet::PubAck(ack) => connection.puback(ack.packet_id, now),
            Packet::PingReq => connection.ping(),
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
            // Nothing is ever sent or taken at QoS 2, and no authentication goes on.
            other => {
                connection.close(Refusal::new(
                    Reason::ProtocolError,
                    format!("{} has no place here", other.packet_type().name()),
                ));
                Flow::Stop
            }
        };
        flow == Flow::Continue
    }

    /// Hands a packet in again while a CONNECT of the same client holds it up.
    async fn until_taken(&self, take: impl Fn(crate::broker::time::Now) -> Flow) -> Flow {
        loop {
            match take(self.clock.now()) {
                Flow::Retry => self.signals.reader.notified().await,
                flow => return flow,
            }
        }
    }
}

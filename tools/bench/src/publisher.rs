//! One connection that publishes with a window: so many unacknowledged and no more.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use saguin_mqtt_codec::{Connect, Packet, Publish, QoS, Version, encode};

use crate::connections::{Connections, Out, text};
use crate::failure::Failure;

/// Bytes at the front of a stamped payload: the publisher's number and the message's, big-endian.
pub const STAMP: usize = 8;

/// What is published.
#[derive(Clone, Debug)]
pub struct Message {
    /// Where to. For [`Publisher::numbered`] it ends in seven digits, which are made the message's number.
    pub topic: String,
    /// Bytes of payload.
    pub size: usize,
    /// At which QoS: 0 or 1.
    pub qos: QoS,
    /// With RETAIN.
    pub retain: bool,
}

/// How many publishes may be unacknowledged.
#[derive(Clone, Copy, Debug)]
pub enum Window {
    /// So many as was asked for: a broker that takes fewer is not measured with fewer.
    Asked(u16),
    /// So many, or as many as the broker takes.
    AtMost(u16),
}

impl Window {
    /// What it comes to where the broker takes `most`.
    fn held_against(self, most: u16) -> Result<u16, Failure> {
        match self {
            Window::AtMost(window) => Ok(window.min(most)),
            Window::Asked(window) if window <= most => Ok(window),
            Window::Asked(_) => Err(Failure::Options(format!(
                "the broker takes at most {most} publishes unacknowledged from a client: use --window {most} or less"
            ))),
        }
    }
}

/// A PUBLISH encoded once; each copy has its packet identifier, stamp and number patched in.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    id_at: usize,
    payload_at: usize,
}

impl Template {
    fn new(message: &Message) -> Result<Self, Failure> {
        let mut bytes = BytesMut::new();
        let publish = Publish {
            qos: message.qos,
            retain: message.retain,
            topic: text(&message.topic)?,
            packet_id: u16::from(message.qos != QoS::AtMostOnce),
            payload: Bytes::from(vec![b'.'; message.size]),
            ..Publish::default()
        };
        encode(&Packet::Publish(publish), Version::V5, &mut bytes)?;
        let payload_at = bytes.len() - message.size;
        // In front of the payload is the length of no properties, before that the identifier.
        let id_at = payload_at - 1 - if message.qos == QoS::AtMostOnce { 0 } else { 2 };
        Ok(Template {
            bytes: bytes.to_vec(),
            id_at,
            payload_at,
        })
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

/// A publishing connection.
#[derive(Debug)]
pub struct Publisher {
    /// Its connection.
    pub connection: usize,
    template: Template,
    qos: QoS,
    number: u32,
    stamped: bool,
    numbered: bool,
    /// When the message under each identifier was sent. Identifiers take turns from 1 to the window.
    sent_at: Vec<Instant>,
    /// Messages sent.
    pub sent: u64,
    /// Messages acknowledged.
    pub acknowledged: u64,
}

impl Publisher {
    /// Opens a connection that publishes `message` with that window.
    ///
    /// # Errors
    /// No connection, or a broker that takes fewer unacknowledged than that.
    pub fn open(
        connections: &mut Connections,
        connect: Connect,
        message: &Message,
        window: Window,
    ) -> Result<Self, Failure> {
        let (connection, connack) = connections.open(connect)?;
        let window = match message.qos {
            // Nothing is acknowledged, so nothing is waited for.
            QoS::AtMostOnce => 1,
            _ => window.held_against(connack.properties.receive_maximum.unwrap_or(u16::MAX))?,
        };
        Ok(Publisher {
            connection,
            template: Template::new(message)?,
            qos: message.qos,
            number: 0,
            stamped: false,
            numbered: false,
            sent_at: vec![Instant::now(); usize::from(window)],
            sent: 0,
            acknowledged: 0,
        })
    }

    /// Payloads say which publisher and which message they are; they have [`STAMP`] bytes or more.
    #[must_use]
    pub fn stamped(mut self, number: u32) -> Self {
        self.stamped = true;
        self.number = number;
        self.template
            .patch(self.template.payload_at, &number.to_be_bytes());
        self
    }

    /// The seven digits at the end of the topic are the message's number, counted from `first`.
    #[must_use]
    pub fn numbered(mut self, first: u32) -> Self {
        self.numbered = true;
        self.number = first;
        self
    }

    /// How many may be sent before one is acknowledged.
    pub fn room(&self) -> u64 {
        self.sent_at.len() as u64 - (self.sent - self.acknowledged)
    }

    /// Appends the next message, which is taken to go out at `now`. At QoS 1 there has to be
    /// [`room`](Self::room).
    pub fn send(&mut self, now: Instant, out: &mut Out) {
        if self.qos != QoS::AtMostOnce {
            let slot = slot(self.sent, self.sent_at.len());
            if let Some(at) = self.sent_at.get_mut(usize::from(slot)) {
                *at = now;
            }
            self.template
                .patch(self.template.id_at, &(slot + 1).to_be_bytes());
        }
        let sent = u32::try_from(self.sent).unwrap_or(u32::MAX);
        if self.stamped {
            self.template
                .patch(self.template.payload_at + 4, &sent.to_be_bytes());
        }
        if self.numbered {
            let digits = format!("{:07}", self.number + sent);
            self.template
                .patch(self.template.id_at - digits.len(), digits.as_bytes());
            if self.template.bytes.len() >= self.template.payload_at + 4 {
                let number = (self.number + sent).to_be_bytes();
                self.template.patch(self.template.payload_at, &number);
            }
        }
        out.extend_from_slice(&self.template.bytes);
        self.sent += 1;
        if self.qos == QoS::AtMostOnce {
            // Nobody will say more of it.
            self.acknowledged = self.sent;
        }
    }

    /// Takes a PUBACK; how long it took.
    ///
    /// # Errors
    /// A PUBACK out of the order of the publishes (MQTT-4.6.0-2), or of none.
    pub fn acknowledge(&mut self, id: u16, now: Instant) -> Result<Duration, Failure> {
        let slot = slot(self.acknowledged, self.sent_at.len());
        if self.acknowledged >= self.sent || id != slot + 1 {
            return Err(Failure::Broken(format!(
                "the broker acknowledged the publish {id} where {} was next of {} sent: PUBACKs come in the order of their publishes",
                slot + 1,
                self.sent
            )));
        }
        self.acknowledged += 1;
        let sent_at = self.sent_at.get(usize::from(slot)).copied().unwrap_or(now);
        Ok(now.saturating_duration_since(sent_at))
    }
}

/// Which place of the window the message of this number has.
fn slot(number: u64, window: usize) -> u16 {
    u16::try_from(number % window as u64).unwrap_or_default()
}

/// Reads a stamp: the publisher's number and the message's.
pub fn stamp(payload: &[u8]) -> Option<(u32, u32)> {
    let [a, b, c, d, e, f, g, h] = *payload.first_chunk::<STAMP>()?;
    Some((
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    ))
}

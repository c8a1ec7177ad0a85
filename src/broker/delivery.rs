//! What a channel delivery carries: its MQTT 5 properties, in wire form.
//!
//! Most of a delivery is the same for everyone who gets the record, so that part is built once and
//! shared; what one subscriber alone is told is written around it. On the wire:
//!
//! ```text
//! subscriber   Message Expiry left · Subscription Identifiers · an offer's Response Topic and Correlation Data
//! record       saguin-id · saguin-offset · saguin-timestamp · saguin-expires
//! subscriber   saguin-channel · saguin-attempt
//! record       the publisher's Response Topic and Correlation Data · everything else it sent, in order
//! ```

use bytes::Bytes;

use super::queue::DeliveryId;
use crate::storage::Record;

/// MQTT 5 property identifiers used here.
const MESSAGE_EXPIRY: u8 = 0x02;
const RESPONSE_TOPIC: u8 = 0x08;
const CORRELATION_DATA: u8 = 0x09;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
const USER_PROPERTY: u8 = 0x26;

/// Bytes a User Property takes on the wire beside its key and value.
const PAIR_OVERHEAD: usize = 5;

const ID: &str = "saguin-id";
const OFFSET: &str = "saguin-offset";
const TIMESTAMP: &str = "saguin-timestamp";
const EXPIRES: &str = "saguin-expires";
const CHANNEL: &str = "saguin-channel";
const ATTEMPT: &str = "saguin-attempt";

/// The part of a delivery that everyone who gets the record shares. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct RecordProperties {
    bytes: Bytes,
    /// Where the labels end and the publisher's own properties begin.
    labels: usize,
    /// Remaining expiry is measured from here, Unix milliseconds.
    received_at: Option<u64>,
    expiry_seconds: Option<u32>,
}

/// The part of a delivery that is for one subscriber.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscriberProperties<'a> {
    /// The channel's name, where the subscriber's filters reach more than one.
    pub channel: Option<&'a str>,
    /// Of every subscription that matched; each 1..=268,435,455.
    pub subscription_identifiers: &'a [u32],
    /// What a queue offer carries besides.
    pub offer: Option<OfferProperties<'a>>,
}

/// What a queue offer tells its worker.
#[derive(Clone, Copy, Debug)]
pub struct OfferProperties<'a> {
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Where the answer goes: `$saguin/queue/<queue>/response`.
    pub response_topic: &'a str,
    /// What the answer echoes as Correlation Data.
    pub delivery: &'a DeliveryId,
}

impl RecordProperties {
    /// For subscribers: with the Response Topic and Correlation Data the publisher sent.
    #[must_use]
    pub fn for_subscribers(record: &Record) -> Self {
        Self::build(record, true)
    }

    /// For a queue offer, which brings its own Response Topic and Correlation Data.
    #[must_use]
    pub fn for_offer(record: &Record) -> Self {
        Self::build(record, false)
    }

    fn build(record: &Record, publishers_reply: bool) -> Self {
        let message = &record.message;
        let mut out = Vec::with_capacity(160 + message.properties.len());
        put_pair(&mut out, ID, message.id.to_string().as_bytes());
        put_pair(&mut out, OFFSET, record.offset.to_string().as_bytes());
        if let Some(at) = message.received_at {
            put_pair(&mut out, TIMESTAMP, at.to_string().as_bytes());
            if let Some(expiry) = message.expiry_seconds {
                let expires = at.saturating_add(u64::from(expiry) * 1000);
                put_pair(&mut out, EXPIRES, expires.to_string().as_bytes());
            }
        }
        let labels = out.len();
        if publishers_reply {
            if let Some(topic) = &message.response_topic {
                put_bytes(&mut out, RESPONSE_TOPIC, topic);
            }
            if let Some(data) = &message.correlation_data {
                put_bytes(&mut out, CORRELATION_DATA, data);
            }
        }
        out.extend_from_slice(&message.properties);
        RecordProperties {
            bytes: Bytes::from(out),
            labels,
            received_at: message.received_at,
            expiry_seconds: message.expiry_seconds,
        }
    }

    /// The size of the whole property region for one subscriber, in bytes, without its length
    /// prefix.
    #[must_use]
    pub fn encoded_len(&self, subscriber: &SubscriberProperties<'_>, unix_ms: u64) -> usize {
        let mut len = self.bytes.len();
        if self.remaining_expiry(unix_ms).is_some() {
            len += 5;
        }
        for id in subscriber.subscription_identifiers {
            len += 1 + variable_len(*id);
        }
        if let Some(channel) = subscriber.channel {
            len += PAIR_OVERHEAD + CHANNEL.len() + channel.len();
        }
        if let Some(offer) = &subscriber.offer {
            len += 3 + offer.response_topic.len() + 3 + offer.delivery.as_bytes().len();
            len += PAIR_OVERHEAD + ATTEMPT.len() + decimal_len(offer.attempt);
        }
        len
    }

    /// Appends the whole property region for one subscriber, without its length prefix.
    pub fn encode(&self, subscriber: &SubscriberProperties<'_>, unix_ms: u64, out: &mut Vec<u8>) {
        if let Some(left) = self.remaining_expiry(unix_ms) {
            out.push(MESSAGE_EXPIRY);
            out.extend_from_slice(&left.to_be_bytes());
        }
        for id in subscriber.subscription_identifiers {
            out.push(SUBSCRIPTION_IDENTIFIER);
            put_variable(out, *id);
        }
        if let Some(offer) = &subscriber.offer {
            put_bytes(out, RESPONSE_TOPIC, offer.response_topic.as_bytes());
            put_bytes(out, CORRELATION_DATA, offer.delivery.as_bytes());
        }
        let (labels, rest) = self.bytes.split_at(self.labels);
        out.extend_from_slice(labels);
        if let Some(channel) = subscriber.channel {
            put_pair(out, CHANNEL, channel.as_bytes());
        }
        if let Some(offer) = &subscriber.offer {
            put_pair(out, ATTEMPT, offer.attempt.to_string().as_bytes());
        }
        out.extend_from_slice(rest);
    }

    /// The Message Expiry Interval less the time the record has waited, whole seconds; `None`
    /// where there is none, or it is past: a record is never withheld for it (invariant 2).
    fn remaining_expiry(&self, unix_ms: u64) -> Option<u32> {
        let expiry = self.expiry_seconds?;
        // A record that does not know when it came cannot have waited.
        let waited = unix_ms.saturating_sub(self.received_at.unwrap_or(unix_ms)) / 1000;
        let left = expiry.saturating_sub(u32::try_from(waited).unwrap_or(u32::MAX));
        (left > 0).then_some(left)
    }
}

/// Appends a User Property. Keys and values come from the broker or were once on the wire, so
/// neither is over 65,535 bytes; one that were would be cut there rather than corrupt what follows.
pub(super) fn put_pair(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.push(USER_PROPERTY);
    put_string(out, key.as_bytes());
    put_string(out, value);
}

fn put_bytes(out: &mut Vec<u8>, property: u8, value: &[u8]) {
    out.push(property);
    put_string(out, value);
}

fn put_string(out: &mut Vec<u8>, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&value[..usize::from(len)]);
}

fn put_variable(out: &mut Vec<u8>, mut value: u32) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

fn variable_len(value: u32) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

fn decimal_len(value: u32) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

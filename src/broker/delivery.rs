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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MessageId;
    use crate::storage::testing::message;

    const AT: u64 = 1_700_000_000_000;

    fn record() -> Record {
        let mut message = message("a/b", "x");
        message.id =
            MessageId(*b"\x01\x8b\xcf\xe5\x68\x00\x70\x00\x80\x00\x00\x00\x00\x00\x00\x01");
        message.received_at = Some(AT);
        message.expiry_seconds = Some(60);
        message.response_topic = Some("reply/here".into());
        message.correlation_data = Some("c".into());
        let mut properties = vec![0x01, 1];
        put_pair(&mut properties, "k", b"v");
        put_pair(&mut properties, "k", b"v");
        message.properties = properties.into();
        Record {
            offset: 812,
            message,
        }
    }

    /// One word per property, in order.
    fn read(region: &[u8]) -> Vec<String> {
        fn string(rest: &mut &[u8]) -> String {
            let len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            let text = String::from_utf8(rest[2..2 + len].to_vec()).unwrap();
            *rest = &rest[2 + len..];
            text
        }
        let mut rest = region;
        let mut words = Vec::new();
        while let Some((&property, after)) = rest.split_first() {
            rest = after;
            words.push(match property {
                0x01 => {
                    rest = &rest[1..];
                    "utf8".to_owned()
                }
                MESSAGE_EXPIRY => {
                    let left = u32::from_be_bytes(rest[..4].try_into().unwrap());
                    rest = &rest[4..];
                    format!("expiry={left}")
                }
                RESPONSE_TOPIC => format!("response={}", string(&mut rest)),
                CORRELATION_DATA => format!("correlation={}", string(&mut rest)),
                SUBSCRIPTION_IDENTIFIER => {
                    let mut value = 0;
                    for shift in 0.. {
                        let (&byte, after) = rest.split_first().unwrap();
                        rest = after;
                        value |= u32::from(byte & 0x7f) << (7 * shift);
                        if byte < 0x80 {
                            break;
                        }
                    }
                    format!("subscription={value}")
                }
                USER_PROPERTY => {
                    let key = string(&mut rest);
                    format!("{key}={}", string(&mut rest))
                }
                other => panic!("property {other:#x}"),
            });
        }
        words
    }

    fn encoded(
        properties: &RecordProperties,
        subscriber: &SubscriberProperties<'_>,
        unix_ms: u64,
    ) -> Vec<String> {
        let mut out = Vec::new();
        properties.encode(subscriber, unix_ms, &mut out);
        assert_eq!(out.len(), properties.encoded_len(subscriber, unix_ms));
        read(&out)
    }

    #[test]
    fn a_subscriber_gets_the_labels_then_what_the_publisher_sent() {
        let subscriber = SubscriberProperties {
            channel: Some("values"),
            subscription_identifiers: &[1, 127, 128, 16_383, 16_384, 2_097_152, 268_435_455],
            offer: None,
        };
        let properties = RecordProperties::for_subscribers(&record());
        assert_eq!(
            encoded(&properties, &subscriber, AT + 10_500),
            [
                "expiry=50",
                "subscription=1",
                "subscription=127",
                "subscription=128",
                "subscription=16383",
                "subscription=16384",
                "subscription=2097152",
                "subscription=268435455",
                "saguin-id=018bcfe5-6800-7000-8000-000000000001",
                "saguin-offset=812",
                "saguin-timestamp=1700000000000",
                "saguin-expires=1700000060000",
                "saguin-channel=values",
                "response=reply/here",
                "correlation=c",
                "utf8",
                "k=v",
                "k=v",
            ]
        );
    }

    #[test]
    fn an_offer_brings_its_own_reply_and_its_attempt() {
        let delivery = DeliveryId::parse(b"0123456789abcdef000000000000002a").unwrap();
        let properties = RecordProperties::for_offer(&record());
        for attempt in [1, 9, 10, 4_000_000_000] {
            let subscriber = SubscriberProperties {
                offer: Some(OfferProperties {
                    attempt,
                    response_topic: "$saguin/queue/jobs/response",
                    delivery: &delivery,
                }),
                ..SubscriberProperties::default()
            };
            assert_eq!(
                encoded(&properties, &subscriber, AT),
                [
                    "expiry=60".to_owned(),
                    "response=$saguin/queue/jobs/response".to_owned(),
                    "correlation=0123456789abcdef000000000000002a".to_owned(),
                    "saguin-id=018bcfe5-6800-7000-8000-000000000001".to_owned(),
                    "saguin-offset=812".to_owned(),
                    "saguin-timestamp=1700000000000".to_owned(),
                    "saguin-expires=1700000060000".to_owned(),
                    format!("saguin-attempt={attempt}"),
                    "utf8".to_owned(),
                    "k=v".to_owned(),
                    "k=v".to_owned(),
                ]
            );
        }
    }

    #[test]
    fn an_expiry_counts_down_and_is_left_out_once_past() {
        let properties = RecordProperties::for_subscribers(&record());
        let left = |at| {
            let words = encoded(&properties, &SubscriberProperties::default(), at);
            assert!(words.contains(&"saguin-expires=1700000060000".to_owned()));
            words[0].strip_prefix("expiry=").map(str::to_owned)
        };
        assert_eq!(
            left(AT - 5_000).as_deref(),
            Some("60"),
            "a clock that stepped back"
        );
        assert_eq!(left(AT + 59_999).as_deref(), Some("1"));
        assert_eq!(left(AT + 60_000), None);
        assert_eq!(left(u64::MAX), None);
    }

    #[test]
    fn a_record_without_a_receipt_time_has_no_times() {
        let mut record = record();
        record.message.received_at = None;
        let properties = RecordProperties::for_subscribers(&record);
        let words = encoded(&properties, &SubscriberProperties::default(), AT);
        assert_eq!(words[0], "expiry=60");
        assert!(
            !words
                .iter()
                .any(|w| w.contains("timestamp") || w.contains("expires"))
        );
    }
}

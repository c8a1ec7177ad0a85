//! A message shaped for one subscriber: the properties its PUBLISH carries.

use bytes::Bytes;

use crate::storage::Record;

use super::delivery::{RecordProperties, SubscriberProperties};
use super::packet::OutgoingPublish;
use super::session::broadcast::BroadcastDelivery;
use super::time::Now;

/// MQTT 5 property identifiers used here.
const MESSAGE_EXPIRY: u8 = 0x02;
const RESPONSE_TOPIC: u8 = 0x08;
const CORRELATION_DATA: u8 = 0x09;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;

/// The properties of a channel delivery for one subscriber.
pub(super) fn shape(
    record: &Record,
    channel: Option<&String>,
    identifiers: &[u32],
    now: Now,
) -> Bytes {
    let shared = RecordProperties::for_subscribers(record);
    let subscriber = SubscriberProperties {
        channel: channel.map(String::as_str),
        subscription_identifiers: identifiers,
        offer: None,
    };
    let mut out = Vec::with_capacity(shared.encoded_len(&subscriber, now.unix_ms));
    shared.encode(&subscriber, now.unix_ms, &mut out);
    out.into()
}

/// A message of a session's queue for its client: broadcast, or a record of a channel that a group
/// handed to it, which never expires.
pub(super) fn delivery_publish(delivery: &BroadcastDelivery, now: Now) -> Option<OutgoingPublish> {
    let Some((_, offset)) = delivery.record else {
        return broadcast_publish(delivery, now);
    };
    let record = Record {
        offset,
        message: delivery.message.as_ref().clone(),
    };
    Some(OutgoingPublish {
        packet_id: 0,
        qos: delivery.qos,
        dup: false,
        retain: delivery.retain,
        topic: record.message.topic.clone(),
        payload: record.message.payload.clone(),
        properties: shape(&record, None, &delivery.identifiers, now),
    })
}

/// A broadcast message for one subscriber; `None` where its expiry ran out while it waited
/// (MQTT-3.3.2-5). It carries none of the broker's labels.
fn broadcast_publish(delivery: &BroadcastDelivery, now: Now) -> Option<OutgoingPublish> {
    let message = &delivery.message;
    let properties = broadcast_properties(delivery, now)?;
    Some(OutgoingPublish {
        packet_id: 0,
        qos: delivery.qos,
        dup: false,
        retain: delivery.retain,
        topic: message.topic.clone(),
        payload: message.payload.clone(),
        properties,
    })
}

fn broadcast_properties(delivery: &BroadcastDelivery, now: Now) -> Option<Bytes> {
    let message = &delivery.message;
    let is_plain = message.expiry_seconds.is_none()
        && message.response_topic.is_none()
        && message.correlation_data.is_none();
    if is_plain && delivery.identifiers.is_empty() {
        // Encoded once, when it was published, and shared by all its subscribers.
        return Some(message.properties.clone());
    }
    let mut properties = Vec::with_capacity(message.properties.len() + 32);
    if let Some(expiry) = message.expiry_seconds {
        let here = now.since_start.saturating_sub(delivery.published).as_secs();
        let waited = delivery.aged.saturating_add(here);
        let left = u64::from(expiry).checked_sub(waited)?;
        if left == 0 && expiry > 0 {
            return None;
        }
        properties.push(MESSAGE_EXPIRY);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        properties.extend_from_slice(&left.to_be_bytes());
    }
    for identifier in &delivery.identifiers {
        properties.push(SUBSCRIPTION_IDENTIFIER);
        put_variable(&mut properties, *identifier);
    }
    if let Some(topic) = &message.response_topic {
        put_bytes(&mut properties, RESPONSE_TOPIC, topic);
    }
    if let Some(data) = &message.correlation_data {
        put_bytes(&mut properties, CORRELATION_DATA, data);
    }
    properties.extend_from_slice(&message.properties);
    Some(properties.into())
}

pub(super) fn put_bytes(out: &mut Vec<u8>, property: u8, value: &[u8]) {
    out.push(property);
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

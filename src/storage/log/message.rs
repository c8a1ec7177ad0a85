//! Between a [`Message`] and a record's bytes.

use bytes::Bytes;
use saguin_log_engine::{NewRecord, StoredRecord};
use saguin_recovery::body::Body;
use saguin_recovery::keys;

use crate::storage::contract::{ReadError, Space};
use crate::storage::message::{Message, MessageId, Record};

// The inspector reads these namespaces without the broker.
const _: () = assert!(Space::Sessions as u8 == keys::SESSIONS);
const _: () = assert!(Space::Positions as u8 == keys::POSITIONS);

/// The record a message is kept as.
pub(super) fn to_record(message: &Message, topic_is_key: bool) -> NewRecord {
    let body = Body {
        id: message.id.0,
        topic: &message.topic,
        publisher: &message.publisher,
        expiry_seconds: message.expiry_seconds,
        response_topic: message.response_topic.as_deref(),
        correlation_data: message.correlation_data.as_deref(),
        user_property_bytes: message.user_property_bytes,
        properties: &message.properties,
        payload: &message.payload,
        retain: message.retain,
        qos: message.qos,
    };
    NewRecord {
        timestamp: message.received_at,
        size: message.counted_size(),
        // A copy of its own size: slices of a connection's read buffer would pin all of it.
        body: Bytes::from(body.encode(topic_is_key)),
    }
}

/// The message of a record; its parts share the record's bytes.
pub(super) fn from_record(record: &StoredRecord) -> Result<Record, ReadError> {
    let body = Body::decode(&record.body, &record.key)
        .map_err(|e| ReadError::Failed(format!("record {}: {e}", record.offset)))?;
    let share = |part: &[u8]| record.body.slice_ref(part);
    let topic_is_key = body.topic.as_ptr_range() == record.key.as_ptr_range();
    let topic = if topic_is_key {
        record.key.clone()
    } else {
        share(body.topic)
    };
    let message = Message {
        id: MessageId(body.id),
        topic,
        payload: share(body.payload),
        properties: share(body.properties),
        user_property_bytes: body.user_property_bytes,
        response_topic: body.response_topic.map(share),
        correlation_data: body.correlation_data.map(share),
        expiry_seconds: body.expiry_seconds,
        received_at: record.timestamp,
        publisher: share(body.publisher),
        retain: body.retain,
        qos: body.qos,
    };
    Ok(Record {
        offset: record.offset,
        message,
    })
}

#[cfg(test)]
mod tests {
    use saguin_recovery::keys::{decode_position, position_key};

    use crate::storage::contract::{ChannelId, Space};

    #[test]
    fn the_inspector_reads_the_position_key_that_is_written() {
        let key = Space::position_key(ChannelId(258), b"pump");
        assert_eq!(key, position_key(258, b"pump"));
        let read = decode_position(&key, &3u64.to_le_bytes());
        assert_eq!(read, Some((258, 3)));
    }
}

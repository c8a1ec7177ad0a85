//! Writes a PUBLISH.

use bytes::BytesMut;

use super::EncodeError;
use super::sink::{PropertySink, Sink, nonzero, properties};
use crate::packet::{Publish, PublishProperties, QoS, Version};
use crate::property::Property;

pub(super) fn write(
    publish: &Publish,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    super::check_topic(&publish.topic, "the topic")?;
    let has_alias = version == Version::V5 && publish.properties.topic_alias.is_some();
    if publish.topic.is_empty() && !has_alias {
        return Err(EncodeError::Missing { field: "the topic" });
    }
    super::check_dup(publish.dup, publish.qos)?;
    out.text(&publish.topic);
    if publish.qos != QoS::AtMostOnce {
        out.packet_id(publish.packet_id)?;
    }
    if version == Version::V5 {
        write_properties(&publish.properties, out)?;
    }
    out.slice(&publish.payload);
    Ok(())
}

/// First what belongs to one connection or one moment, then what every receiver is sent alike.
fn write_properties(written: &PublishProperties, out: &mut dyn Sink) -> Result<(), EncodeError> {
    let topic_alias = nonzero(Property::TopicAlias, written.topic_alias)?;
    properties(out, |to| {
        to.u32(Property::MessageExpiry, written.expiry_seconds);
        to.u16(Property::TopicAlias, topic_alias);
        for identifier in &written.subscription_identifiers {
            to.subscription_identifier(*identifier)?;
        }
        write_forwarded_properties(written, to)
    })
}

/// Writes what is forwarded unaltered (MQTT-3.3.2-4, -15, -16, -17, -18 and -20).
pub(super) fn write_forwarded_properties(
    written: &PublishProperties,
    to: &mut PropertySink<'_>,
) -> Result<(), EncodeError> {
    if let Some(topic) = &written.response_topic {
        super::check_topic(topic, Property::ResponseTopic.name())?;
        if topic.is_empty() {
            return Err(EncodeError::Missing {
                field: Property::ResponseTopic.name(),
            });
        }
    }
    to.flag(Property::PayloadFormat, written.payload_is_utf8);
    to.text(Property::ContentType, written.content_type.as_ref());
    to.text(Property::ResponseTopic, written.response_topic.as_ref());
    to.binary(Property::CorrelationData, written.correlation_data.as_ref())?;
    to.wire(written.user_properties.wire());
    Ok(())
}

impl PublishProperties {
    /// Appends, in wire form and without a length in front, what is forwarded unaltered: Payload
    /// Format Indicator, Content Type, Response Topic, Correlation Data and the User Properties in
    /// order. Message Expiry, which shrinks by the wait, is left out, as are Topic Alias and
    /// Subscription Identifiers, which belong to one connection.
    ///
    /// # Errors
    /// Correlation Data that is too long, or a Response Topic that is empty or has a wildcard;
    /// never for properties that were decoded. Then `out` is as it was.
    pub fn write_forwarded(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let before = out.len();
        write_forwarded_properties(self, &mut PropertySink(out))
            .inspect_err(|_| out.truncate(before))
    }
}

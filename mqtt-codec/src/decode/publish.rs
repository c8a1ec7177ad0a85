//! Reads a PUBLISH, and the properties it has in common with a Will.

use bytes::Bytes;

use super::properties::{Properties, not_allowed};
use super::reader::Reader;
use super::{Context, Limits};
use crate::error::Fault;
use crate::packet::{Publish, PublishProperties, QoS, Role, Version};
use crate::property::Property;

pub(super) fn read(flags: u8, body: &mut Reader, context: &Context<'_>) -> Result<Publish, Fault> {
    let qos = QoS::from_u8((flags >> 1) & 3).ok_or(Fault::PublishQos3)?;
    let mut publish = Publish {
        dup: flags & 0b1000 != 0,
        qos,
        retain: flags & 1 != 0,
        topic: body.topic("the topic")?,
        ..Publish::default()
    };
    if qos != QoS::AtMostOnce {
        publish.packet_id = body.packet_id()?;
    }
    if context.version == Version::V5 {
        publish.properties = read_properties(body, context)?;
    }
    if publish.topic.is_empty() && publish.properties.topic_alias.is_none() {
        return Err(Fault::TopicEmpty { field: "the topic" });
    }
    publish.payload = body.rest();
    // Last, because a PUBLISH that does not parse is malformed whatever its flags (MQTT-3.3.1-2).
    if publish.dup && qos == QoS::AtMostOnce {
        return Err(Fault::DupAtQos0);
    }
    Ok(publish)
}

fn read_properties(body: &mut Reader, context: &Context<'_>) -> Result<PublishProperties, Fault> {
    let mut properties = Properties::open(body, context.limits)?;
    let mut read = PublishProperties::default();
    while let Some(property) = properties.next()? {
        match property {
            Property::TopicAlias => match properties.u16(property)? {
                0 => return Err(Fault::TopicAliasZero),
                alias => read.topic_alias = Some(alias),
            },
            Property::SubscriptionIdentifier => {
                let identifier = properties.nonzero_integer(property)?;
                if context.sender == Role::Client {
                    // MQTT-3.3.4-6.
                    return Err(Fault::PropertyFromWrongSide {
                        name: property.name(),
                    });
                }
                read.subscription_identifiers.push(identifier);
            }
            _ => read_publish_property(&mut read, property, &mut properties)?,
        }
    }
    read.user_properties = properties.user_properties();
    Ok(read)
}

/// Reads a property that a PUBLISH and a Will both have.
pub(super) fn read_publish_property(
    read: &mut PublishProperties,
    property: Property,
    properties: &mut Properties,
) -> Result<(), Fault> {
    match property {
        Property::PayloadFormat => read.payload_is_utf8 = Some(properties.flag(property)?),
        Property::MessageExpiry => read.expiry_seconds = Some(properties.u32(property)?),
        Property::ContentType => read.content_type = Some(properties.text(property)?),
        Property::ResponseTopic => read.response_topic = Some(properties.topic(property)?),
        Property::CorrelationData => read.correlation_data = Some(properties.binary(property)?),
        _ => return Err(not_allowed(property)),
    }
    Ok(())
}

impl PublishProperties {
    /// Reads properties that were kept in their wire form, without the length in front, such as
    /// [`write_forwarded`](Self::write_forwarded) makes.
    ///
    /// # Errors
    /// They are not properties of a message, or they have a Topic Alias or a Subscription
    /// Identifier, which belong to one connection and are never kept.
    pub fn from_wire(wire: Bytes, limits: &Limits) -> Result<Self, Fault> {
        let mut properties = Properties::of(wire, limits);
        let mut read = PublishProperties::default();
        while let Some(property) = properties.next()? {
            read_publish_property(&mut read, property, &mut properties)?;
        }
        read.user_properties = properties.user_properties();
        Ok(read)
    }
}

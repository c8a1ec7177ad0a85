//! Between the codec's packets and the broker's.

use bytes::Bytes;
use saguin_mqtt_codec as codec;

use crate::broker::packet::{
    Connect, Disconnect, Protocol, Publish, PublishProperties, Subscribe, SubscribeRequest,
    Unsubscribe, UserPairs, Will,
};
use crate::broker::reason::{Reason, Refusal};
use crate::broker::settings::TOPIC_ALIAS_MAXIMUM;

/// The codec's version as the broker says it.
pub(super) fn protocol(version: codec::Version) -> Protocol {
    match version {
        codec::Version::V311 => Protocol::V311,
        codec::Version::V5 => Protocol::V5,
    }
}

/// The broker's version as the codec says it.
pub(super) fn version(protocol: Protocol) -> codec::Version {
    match protocol {
        Protocol::V311 => codec::Version::V311,
        Protocol::V5 => codec::Version::V5,
    }
}

/// A reason of the broker, as the codec says it. They are the same numbers.
pub(super) fn reason_code(reason: Reason) -> codec::ReasonCode {
    codec::ReasonCode::from_u8(reason.code()).unwrap_or(codec::ReasonCode::Unspecified)
}

/// What the codec found wrong, as a refusal.
pub(super) fn refusal(error: &codec::DecodeError) -> Refusal {
    let reason = Reason::from_code(error.reason.code()).unwrap_or(Reason::MalformedPacket);
    Refusal::new(reason, error.to_string())
}

fn user_pairs(properties: &codec::UserProperties) -> UserPairs {
    UserPairs::new(properties.wire().clone(), properties.len())
}

fn text(bytes: Option<codec::Text>) -> Option<Bytes> {
    bytes.map(codec::Text::into_bytes)
}

fn publish_properties(properties: codec::PublishProperties) -> PublishProperties {
    PublishProperties {
        payload_is_utf8: properties.payload_is_utf8,
        expiry_seconds: properties.expiry_seconds,
        user_properties: user_pairs(&properties.user_properties),
        content_type: text(properties.content_type),
        response_topic: text(properties.response_topic),
        correlation_data: properties.correlation_data,
    }
}

/// A CONNECT. What of it lives as long as the connection is copied out of the read buffer.
pub(super) fn connect(connect: codec::Connect) -> Connect {
    Connect {
        protocol: protocol(connect.version),
        client_id: connect.client_id.as_str().to_owned(),
        clean_start: connect.clean_start,
        keep_alive: connect.keep_alive,
        session_expiry: connect.session_expiry,
        receive_maximum: connect.receive_maximum,
        maximum_packet_size: connect.maximum_packet_size,
        request_problem_information: connect.request_problem_information,
        authentication_method: connect.authentication_method.is_some(),
        user_properties: user_pairs(&connect.user_properties),
        user_name: connect.user_name.map(|name| name.as_str().to_owned()),
        will: connect.will.map(will),
    }
}

/// A Will waits as long as its connection lasts, so it is copied out of the read buffer.
fn will(will: codec::Will) -> Will {
    let copy = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
    let properties = publish_properties(will.properties);
    let pairs = &properties.user_properties;
    Will {
        delay_seconds: will.delay_seconds,
        publish: Publish {
            packet_id: 0,
            qos: will.qos.level(),
            retain: will.retain,
            topic: copy(will.topic.into_bytes()),
            payload: copy(will.payload),
            properties: PublishProperties {
                user_properties: UserPairs::new(copy(pairs.wire().clone()), pairs.len()),
                content_type: properties.content_type.map(copy),
                response_topic: properties.response_topic.map(copy),
                correlation_data: properties.correlation_data.map(copy),
                ..properties
            },
        },
    }
}

/// A SUBSCRIBE.
pub(super) fn subscribe(subscribe: codec::Subscribe) -> Subscribe {
    let filters = subscribe
        .filters
        .into_iter()
        .map(|wanted| SubscribeRequest {
            filter: wanted.filter.as_str().to_owned(),
            qos: wanted.qos.level(),
            no_local: wanted.no_local,
            retain_as_published: wanted.retain_as_published,
            retain_handling: wanted.retain_handling as u8,
        });
    Subscribe {
        packet_id: subscribe.packet_id,
        identifier: subscribe.subscription_identifier,
        filters: filters.collect(),
        user_properties: user_pairs(&subscribe.user_properties),
    }
}

/// An UNSUBSCRIBE.
pub(super) fn unsubscribe(unsubscribe: codec::Unsubscribe) -> Unsubscribe {
    Unsubscribe {
        packet_id: unsubscribe.packet_id,
        filters: unsubscribe
            .filters
            .iter()
            .map(|filter| filter.as_str().to_owned())
            .collect(),
        user_properties: user_pairs(&unsubscribe.user_properties),
    }
}

/// A DISCONNECT.
pub(super) fn disconnect(disconnect: &codec::Disconnect) -> Disconnect {
    Disconnect {
        reason_code: disconnect.reason.code(),
        session_expiry: disconnect.session_expiry,
    }
}

/// The topic aliases of one connection.
pub(super) struct Aliases {
    topics: Vec<Option<Bytes>>,
    max_topic_length: usize,
}

impl Aliases {
    /// None yet; of a topic longer than `max_topic_length` bytes no more is held than says so, for
    /// it is held as long as the connection (invariant 13).
    pub fn new(max_topic_length: usize) -> Self {
        Aliases {
            topics: Vec::new(),
            max_topic_length,
        }
    }

    /// A PUBLISH with its topic in place.
    pub fn publish(&mut self, publish: codec::Publish) -> Result<Publish, Refusal> {
        let topic = match publish.properties.topic_alias {
            None => publish.topic.into_bytes(),
            Some(alias) => self.resolve(alias, publish.topic.into_bytes())?,
        };
        Ok(Publish {
            packet_id: publish.packet_id,
            qos: publish.qos.level(),
            retain: publish.retain,
            topic,
            payload: publish.payload,
            properties: publish_properties(publish.properties),
        })
    }

    fn resolve(&mut self, alias: u16, topic: Bytes) -> Result<Bytes, Refusal> {
        if alias == 0 || alias > TOPIC_ALIAS_MAXIMUM {
            return Err(Refusal::new(
                Reason::TopicAliasInvalid,
                format!("a Topic Alias is 1 to {TOPIC_ALIAS_MAXIMUM} here"),
            ));
        }
        let index = usize::from(alias) - 1;
        if topic.is_empty() {
            let known = self.topics.get(index).cloned().flatten();
            return known.ok_or_else(|| {
                Refusal::new(
                    Reason::ProtocolError,
                    format!("Topic Alias {alias} stands for no topic on this connection"),
                )
            });
        }
        if self.topics.is_empty() {
            self.topics = vec![None; usize::from(TOPIC_ALIAS_MAXIMUM)];
        }
        let kept = self.kept(&topic);
        self.topics[index] = Some(Bytes::copy_from_slice(kept));
        Ok(topic)
    }

    /// What an alias keeps of its topic: of one that is too long, as much as is too long still, so
    /// that every publish beneath the alias is answered as one that spells the topic out.
    fn kept<'t>(&self, topic: &'t [u8]) -> &'t [u8] {
        let text = std::str::from_utf8(topic).unwrap_or_default();
        let mut ends = text.char_indices().map(|(at, _)| at);
        let end = ends.find(|at| *at > self.max_topic_length);
        &topic[..end.unwrap_or(topic.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(topic: &str, alias: u16) -> codec::Publish {
        codec::Publish {
            topic: codec::Text::lossy(topic),
            properties: codec::PublishProperties {
                topic_alias: Some(alias),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    #[test]
    fn an_alias_stands_for_the_topic_it_was_last_given() {
        let mut aliases = Aliases::new(10);
        assert_eq!(aliases.publish(publish("a", 16)).unwrap().topic, "a");
        assert_eq!(aliases.publish(publish("", 16)).unwrap().topic, "a");
        assert_eq!(aliases.publish(publish("b", 16)).unwrap().topic, "b");
        assert_eq!(aliases.publish(publish("", 16)).unwrap().topic, "b");
    }

    #[test]
    fn an_alias_that_is_not_served_ends_the_connection_with_its_reason() {
        let mut aliases = Aliases::new(3);
        let reason = |refused: Result<Publish, Refusal>| refused.unwrap_err().reason;
        assert_eq!(
            reason(aliases.publish(publish("a", 17))),
            Reason::TopicAliasInvalid
        );
        assert_eq!(
            reason(aliases.publish(publish("", 3))),
            Reason::ProtocolError
        );
    }

    #[test]
    fn a_topic_that_is_too_long_stays_too_long_beneath_its_alias_and_is_not_kept_whole() {
        let mut aliases = Aliases::new(3);
        for long in ["abcdefgh", "aé€€€€", "a€bcdefg"] {
            assert_eq!(aliases.publish(publish(long, 3)).unwrap().topic, long);
            let again = aliases.publish(publish("", 3)).unwrap().topic;
            assert!((4..=6).contains(&again.len()), "{again:?}");
            assert!(long.starts_with(std::str::from_utf8(&again).unwrap()));
        }
    }
}

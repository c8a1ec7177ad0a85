//! The current value of one topic of a latest channel, asked for by `$saguin/kv/get`.

use bytes::Bytes;

use super::{Ask, Reply, Request};
use crate::broker::Broker;
use crate::broker::connection::Connection;
use crate::broker::packet::Publish;
use crate::broker::reason::{Reason, Refusal};
use crate::broker::topic::{ChannelIndex, PublishTopic};
use crate::storage::ChannelKind;

impl Broker {
    /// The payload names the topic. Only an acknowledged publish is answered: at QoS 0 nobody could
    /// be told that it was refused.
    pub(super) fn asked_value(&self, publish: &Publish) -> Result<Ask, Refusal> {
        let bad = |text: &str| Refusal::new(Reason::ImplementationSpecific, text);
        if publish.qos == 0 {
            return Err(bad("a point read is published at QoS 1"));
        }
        if !super::is_answerable(publish) {
            return Err(bad("a point read has a Response Topic to be answered on"));
        }
        if publish.payload.is_empty() {
            return Err(bad("the payload of a point read is the topic to be read"));
        }
        let no_topic = |text: &str| Refusal::new(Reason::TopicNameInvalid, text);
        let topic = std::str::from_utf8(&publish.payload)
            .ok()
            .filter(|topic| !topic.contains(['+', '#', '\0']))
            .ok_or_else(|| no_topic("the payload is no topic: text without a wildcard"))?;
        let topic = match PublishTopic::parse(topic, self.settings.topics) {
            Ok(PublishTopic::Ordinary(topic)) => topic,
            Ok(_) => return Err(no_topic("nothing is kept under the broker's own topics")),
            Err(refusal) => return Err(no_topic(&refusal.to_string())),
        };
        let channel = self.routes.route(topic).map(|route| route.channel);
        let channel = channel
            .filter(|index| self.channel(*index).kind == ChannelKind::Latest)
            .ok_or_else(|| no_topic("the topic is in no latest channel; only those hold values"))?;
        Ok(Ask::Value {
            channel,
            topic: Bytes::copy_from_slice(topic.as_bytes()),
        })
    }
}

impl Connection {
    /// Answers with the value, or with nothing where there is none.
    pub(super) fn point_read(&self, request: Request, index: ChannelIndex, topic: Bytes) {
        let channel = self.broker.channel(index);
        let outcome = match channel.store.current(channel.id, &topic) {
            Ok(found) => {
                let value = found.map_or_else(Bytes::new, |record| record.message.payload);
                self.answer_value(&request, topic, value)
            }
            Err(why) => {
                tracing::error!(channel = %channel.name, %why, "a point read failed");
                Err(Refusal::new(
                    Reason::ImplementationSpecific,
                    "the value could not be read; ask again later",
                ))
            }
        };
        self.conclude_request(request.ticket, outcome);
    }

    fn answer_value(&self, request: &Request, topic: Bytes, value: Bytes) -> Result<(), Refusal> {
        let mut state = self.session.lock();
        if state.owned_by(self.number).is_none() {
            return Ok(());
        }
        let reply = Reply {
            topic: request.response_topic.clone().unwrap_or_default(),
            // Copied: a piece of what was read would keep all of it in memory.
            payload: Bytes::copy_from_slice(&value),
            correlation_data: request.correlation_data.as_ref().or(Some(&topic)),
            labels: &[],
        };
        if self.reply(&mut state, reply) {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::ImplementationSpecific,
            "the value is larger than this client's Maximum Packet Size; raise it and connect again",
        ))
    }
}

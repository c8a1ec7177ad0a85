//! What a client asks of the broker by a publish, and is answered on its own connection: a seek, the
//! value of one topic, what a channel is, or the end of somebody's connection.
//!
//! The reader takes a request and goes on; the writer has it carried out among its reads, so that a
//! store read holds up nobody but the client that asked. The reply is queued before the PUBACK and
//! goes to the connection that asked and to no other: it is never published.

mod catalogue;
mod hang_up;
mod moment;
mod point_read;
mod seek;

use bytes::Bytes;

use super::connection::{Connection, Flow};
use super::counters::{Refused, bump};
use super::delivery::put_pair;
use super::packet::{Outgoing, OutgoingPublish, Publish};
use super::reason::{Reason, Refusal};
use super::session::State;
use super::shape::put_bytes;
use super::topic::{ChannelIndex, PublishTopic};
use super::{Broker, publish::text};
use crate::storage::ChannelKind;

/// Requests of one connection that may wait at one time. Past this its socket is not read
/// (invariant 13).
pub(crate) const MAX_REQUESTS: usize = 64;

const CORRELATION_DATA: u8 = 0x09;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// The asker's own position in an append channel.
    Seek {
        channel: ChannelIndex,
        /// Where to, as sent.
        target: Bytes,
    },
    /// The current value of a topic of a latest channel.
    Value { channel: ChannelIndex, topic: Bytes },
    /// What a channel is; `None` where there is none of that name.
    Catalogue { channel: Option<ChannelIndex> },
    /// The end of a client's connection.
    HangUp { client_id: Bytes },
}

/// A request as taken from its connection.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub ask: Ask,
    /// Its place among the PUBACKs; `None` at QoS 0.
    pub ticket: Option<u64>,
    pub response_topic: Option<Bytes>,
    pub correlation_data: Option<Bytes>,
}

/// Whether a publish says where it is to be answered.
fn is_answerable(publish: &Publish) -> bool {
    let response_topic = publish.properties.response_topic.as_ref();
    response_topic.is_some_and(|topic| !topic.is_empty())
}

impl Connection {
    /// What a publish asks for, if it is to a topic for asking; the refusal where nothing can come
    /// of it.
    pub(super) fn asked(&self, publish: &Publish) -> Option<Result<Ask, Refusal>> {
        if !publish.topic.starts_with(b"$") {
            return None;
        }
        let broker = &self.broker;
        let ask = match PublishTopic::parse(text(&publish.topic), broker.settings.topics).ok()? {
            PublishTopic::Seek { channel } => broker.asked_seek(channel, publish),
            PublishTopic::PointRead => broker.asked_value(publish),
            PublishTopic::Catalogue { channel } => broker.asked_catalogue(channel, publish),
            PublishTopic::HangUp => self.asked_hang_up(publish),
            PublishTopic::Ordinary(_) | PublishTopic::QueueResponse { .. } => return None,
        };
        Some(ask.and_then(|ask| {
            broker.check_bounds(publish)?;
            Ok(ask)
        }))
    }
}

impl Broker {
    fn asked_seek(&self, channel: &str, publish: &Publish) -> Result<Ask, Refusal> {
        let channel = self.append_channel(channel).ok_or_else(|| {
            Refusal::new(
                Reason::TopicNameInvalid,
                "there is no such append channel; only those are read from a position",
            )
        })?;
        Ok(Ask::Seek {
            channel,
            target: Bytes::copy_from_slice(&publish.payload),
        })
    }

    /// An append channel by its name, those of dead letters included.
    pub(crate) fn append_channel(&self, name: &str) -> Option<ChannelIndex> {
        self.routes
            .by_name(name)
            .filter(|index| self.channel(*index).kind == ChannelKind::Append)
    }
}

impl Connection {
    /// Takes a request. The caller has seen that the publish is one, and kept the place of its answer.
    pub(super) fn take_request(
        &self,
        publish: &Publish,
        ticket: Option<u64>,
        ask: Result<Ask, Refusal>,
    ) -> Flow {
        let ask = match ask {
            Ok(ask) => ask,
            Err(refusal) => {
                self.conclude_request(ticket, Err(refusal));
                return Flow::Continue;
            }
        };
        let mut state = self.session.lock();
        let Some(link) = state.owned_by(self.number) else {
            return Flow::Stop;
        };
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let properties = &publish.properties;
        link.requests.push_back(Request {
            ask,
            ticket,
            // An empty one names no topic a reply could go out under.
            response_topic: properties
                .response_topic
                .as_ref()
                .filter(|topic| !topic.is_empty())
                .map(copy),
            correlation_data: properties.correlation_data.as_ref().map(copy),
        });
        link.handle.wake_writer();
        Flow::Continue
    }

    /// Carries a request out. May touch a disk; no lock is held.
    pub(super) fn carry_out(&self, request: Request) {
        match &request.ask {
            Ask::Seek { channel, target } => {
                let (channel, target) = (*channel, target.clone());
                self.seek(request, channel, &target);
            }
            Ask::Value { channel, topic } => {
                let (channel, topic) = (*channel, topic.clone());
                self.point_read(request, channel, topic);
            }
            Ask::Catalogue { channel } => self.tell_catalogue(&request, *channel),
            Ask::HangUp { client_id } => self.hang_up(&request, client_id),
        }
    }

    /// Fills in the PUBACK of a request. Its reply is queued by now.
    fn conclude_request(&self, ticket: Option<u64>, outcome: Result<(), Refusal>) {
        if let Err(refusal) = &outcome {
            let counters = &self.broker.counters;
            counters.refuse(Refused::Publish, refusal.reason);
            tracing::debug!(client = self.client_id(), %refusal, "request refused");
        }
        if let Some(ticket) = ticket {
            self.session.settle(self.number, ticket, outcome);
        }
    }

    /// Queues a reply for the connection that asked, at QoS 0; returns whether its client takes a
    /// packet of that size.
    fn reply(&self, state: &mut State, reply: Reply<'_>) -> bool {
        let Some(link) = state.owned_by(self.number) else {
            return false;
        };
        let mut properties = Vec::new();
        if let Some(data) = reply.correlation_data {
            put_bytes(&mut properties, CORRELATION_DATA, data);
        }
        for (key, value) in reply.labels {
            put_pair(&mut properties, key, value.as_bytes());
        }
        let publish = OutgoingPublish {
            packet_id: 0,
            qos: 0,
            dup: false,
            retain: false,
            topic: reply.topic,
            payload: reply.payload,
            properties: properties.into(),
        };
        if publish.encoded_size(link.protocol) > link.maximum_packet_size {
            return false;
        }
        bump(&self.broker.counters.publishes_sent);
        link.reply(Outgoing::Publish(publish));
        true
    }
}

/// The message a client is answered with.
struct Reply<'a> {
    topic: Bytes,
    payload: Bytes,
    correlation_data: Option<&'a Bytes>,
    labels: &'a [(&'static str, String)],
}

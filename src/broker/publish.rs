//! One PUBLISH, from the client that sent it to the channel or the subscribers it is for.
//!
//! topic rules and bounds → which channel holds the topic → its store → the answer, then the
//! readers. The answer waits for the store and for nothing any other client does (invariant 16).

use std::sync::Arc;

use bytes::Bytes;

use crate::storage::{ChannelKind, Message, MessageId, Operation, Receipt, StoreError};

use super::counters::{Refused, bump};
use super::packet::{Publish, PublishProperties, Will};
use super::reason::{Reason, Refusal};
use super::session::acks::Outcome;
use super::time::Now;
use super::topic::{ChannelIndex, PublishTopic};
use super::turns::Turns;
use super::wake::Committed;
use super::{Broker, lock};

/// Called once with what a publish came to.
pub(crate) type Answer = Box<dyn FnOnce(Outcome) + Send>;

/// Who publishes. A queue's answer is only taken from a live connection.
pub(crate) struct Publisher<'a> {
    /// Its client identifier, kept for No Local.
    pub client_id: &'a Bytes,
    /// Its connection's number among the workers of queues; `None` for a Will.
    pub worker: Option<u64>,
    /// The order of its connection's broadcast messages; `None` for what has no place in it.
    pub turns: Option<&'a Arc<Turns>>,
}

/// Where a publish goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination<'a> {
    Broadcast,
    Channel(ChannelIndex),
    QueueResponse(&'a str),
}

impl Broker {
    /// Where a publish goes, or the rule it breaks.
    pub(crate) fn judge<'a>(&self, publish: &'a Publish) -> Result<Destination<'a>, Refusal> {
        let destination = self.destination(text(&publish.topic))?;
        self.check_bounds(publish)?;
        Ok(destination)
    }

    /// Carries a publish out. `answer` is called exactly once, perhaps before this returns.
    pub(crate) fn publish(
        self: &Arc<Self>,
        publisher: &Publisher<'_>,
        publish: Publish,
        now: Now,
        answer: Answer,
    ) {
        let topic = publish.topic.clone();
        let destination = self.destination(text(&topic)).and_then(|destination| {
            self.check_bounds(&publish)?;
            Ok(destination)
        });
        match destination {
            Err(refusal) => self.refuse_publish(publisher, &refusal, answer),
            Ok(Destination::Broadcast) => {
                let message = Broker::message(publisher.client_id.clone(), publish, now);
                self.publish_broadcast(message.detached(), publisher.turns, now, answer);
            }
            Ok(Destination::Channel(channel)) => {
                let message = Broker::message(publisher.client_id.clone(), publish, now);
                self.keep(channel, message.detached(), answer);
            }
            Ok(Destination::QueueResponse(queue)) => {
                self.take_answer(queue, publisher, &publish, answer);
            }
        }
    }

    fn refuse_publish(&self, publisher: &Publisher<'_>, refusal: &Refusal, answer: Answer) {
        self.counters.refuse(Refused::Publish, refusal.reason);
        tracing::debug!(client = text(publisher.client_id), %refusal, "publish refused");
        answer(Err(refusal.clone()));
    }

    /// Where a topic leads, or why nobody may publish to it.
    pub(crate) fn destination<'a>(&self, topic: &'a str) -> Result<Destination<'a>, Refusal> {
        let topic = match PublishTopic::parse(topic, self.settings.topics) {
            Ok(PublishTopic::Ordinary(topic)) => topic,
            Ok(PublishTopic::QueueResponse { queue }) => {
                return Ok(Destination::QueueResponse(queue));
            }
            Ok(
                PublishTopic::Seek { .. }
                | PublishTopic::PointRead
                | PublishTopic::HangUp
                | PublishTopic::Catalogue { .. },
            ) => {
                return Err(Refusal::new(
                    Reason::TopicNameInvalid,
                    "only a connected client may ask this",
                ));
            }
            Err(refusal) => {
                let reason = match refusal.reason_code() {
                    0x87 => Reason::NotAuthorized,
                    _ => Reason::TopicNameInvalid,
                };
                return Err(Refusal::new(reason, refusal.to_string()));
            }
        };
        match self.routes.route(topic) {
            None => Ok(Destination::Broadcast),
            Some(route) => {
                let is_dead_letter = self
                    .routes
                    .channel(route.channel)
                    .is_some_and(|channel| channel.dead_letters_of.is_some());
                if is_dead_letter {
                    return Err(Refusal::new(
                        Reason::NotAuthorized,
                        "dead letters are moved by the broker and published by nobody",
                    ));
                }
                Ok(Destination::Channel(route.channel))
            }
        }
    }

    pub(crate) fn check_bounds(&self, publish: &Publish) -> Result<(), Refusal> {
        let properties = &publish.properties;
        let quota = |text: String| Err(Refusal::new(Reason::QuotaExceeded, text));
        if properties.user_properties.len() > self.settings.max_header_count {
            return quota(format!(
                "a publish has at most {} User Properties here",
                self.settings.max_header_count
            ));
        }
        let bytes = properties.user_properties.text_bytes();
        if bytes > self.settings.max_header_bytes {
            return quota(format!(
                "the User Properties of a publish have at most {} bytes here",
                self.settings.max_header_bytes
            ));
        }
        if properties.payload_is_utf8 == Some(true)
            && std::str::from_utf8(&publish.payload).is_err()
        {
            return Err(Refusal::new(
                Reason::PayloadFormatInvalid,
                "the payload format says UTF-8 and the payload is not",
            ));
        }
        Ok(())
    }

    /// Whether a Will could be published: asked when it is armed, so that the refusal has somebody
    /// to be told to.
    pub(crate) fn admit_will(&self, will: &Will) -> Result<(), Refusal> {
        let publish = &will.publish;
        let undeliverable =
            |text: String| Refusal::new(Reason::TopicNameInvalid, format!("the Will: {text}"));
        match self.destination(text(&publish.topic)) {
            Ok(Destination::Channel(_)) => {}
            Ok(Destination::Broadcast) => {}
            Ok(Destination::QueueResponse(_)) => {
                return Err(undeliverable("a Will cannot answer a delivery".into()));
            }
            Err(refusal) => return Err(undeliverable(refusal.text)),
        }
        self.check_bounds(publish)?;
        let size = self.publish_size(publish);
        if size > u64::from(self.settings.max_message_size) {
            return Err(Refusal::new(
                Reason::PacketTooLarge,
                format!(
                    "the Will is {size} bytes as a PUBLISH and at most {} are taken",
                    self.settings.max_message_size
                ),
            ));
        }
        Ok(())
    }

    /// What a PUBLISH of this would take on the wire, bytes, to within a few.
    fn publish_size(&self, publish: &Publish) -> u64 {
        let (region, _) = property_region(&publish.properties);
        let optional = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| 3 + bytes.len());
        (publish.topic.len()
            + publish.payload.len()
            + region.len()
            + optional(&publish.properties.response_topic)
            + optional(&publish.properties.correlation_data)
            + 18) as u64
    }

    /// The message a publish becomes. It shares the read buffer the publish came in: whoever keeps
    /// it [detaches](Message::detached) it.
    pub(crate) fn message(publisher: Bytes, publish: Publish, now: Now) -> Message {
        let properties = publish.properties;
        let id = own_id(&properties).unwrap_or_else(|| mint_id(now));
        let (region, user_property_bytes) = property_region(&properties);
        Message {
            id,
            topic: publish.topic,
            payload: publish.payload,
            properties: region,
            user_property_bytes,
            response_topic: properties.response_topic,
            correlation_data: properties.correlation_data,
            expiry_seconds: properties.expiry_seconds,
            received_at: Some(now.unix_ms),
            publisher,
            retain: publish.retain,
            qos: publish.qos,
        }
    }

    /// Has a channel keep a message.
    fn keep(self: &Arc<Self>, channel: ChannelIndex, mut message: Message, answer: Answer) {
        let kept = self.channel(channel);
        let operation = match kept.kind {
            ChannelKind::Append => Operation::Append {
                channel: kept.id,
                message: message.clone(),
            },
            ChannelKind::Latest => Operation::Set {
                channel: kept.id,
                message: message.clone(),
            },
            ChannelKind::Queue => {
                if std::mem::take(&mut message.retain) {
                    bump(&self.counters.queue_retain_dropped);
                }
                return self.enqueue(channel, message, answer);
            }
        };
        let broker = self.clone();
        let topic = message.topic;
        kept.store.submit(
            operation.into(),
            Box::new(move |stored| {
                let offset = match &stored {
                    Ok(receipt) => receipt.offsets.first().copied().flatten(),
                    Err(_) => None,
                };
                answer(broker.outcome(channel, stored));
                broker.committed(offset.map(|offset| Committed {
                    channel,
                    topic,
                    offset,
                }));
            }),
        );
    }

    /// A commit brought something to channels: their readers are woken once all the answers of that
    /// commit are on their way.
    pub(crate) fn committed(&self, committed: impl IntoIterator<Item = Committed>) {
        lock(&self.committed).extend(committed);
    }

    /// What the store said, in the words of an answer.
    pub(crate) fn outcome(
        &self,
        channel: ChannelIndex,
        stored: Result<Receipt, StoreError>,
    ) -> Outcome {
        let error = stored.err();
        error.map_or(Ok(()), |error| Err(self.not_stored(channel, &error)))
    }

    /// Why the store did not keep a publish, in the words of an answer.
    pub(crate) fn not_stored(&self, channel: ChannelIndex, error: &StoreError) -> Refusal {
        if *error == StoreError::ProviderFull {
            self.log.press();
        }
        let reason = match error {
            StoreError::ChannelFull { .. }
            | StoreError::ProviderFull
            | StoreError::TooLarge { .. } => Reason::QuotaExceeded,
            StoreError::NoSuchJob { .. } | StoreError::NotHeld | StoreError::Failed(_) => {
                Reason::ImplementationSpecific
            }
        };
        self.counters.refuse(Refused::Publish, reason);
        tracing::debug!(channel = %self.channel(channel).name, %error, "publish not stored");
        Refusal::new(reason, error.to_string())
    }
}

/// The text of a topic. The front end has checked that it is UTF-8; anything else names nothing.
pub(crate) fn text(topic: &[u8]) -> &str {
    std::str::from_utf8(topic).unwrap_or_default()
}

/// A fresh Message ID: a UUIDv7 of this moment.
pub(crate) fn mint_id(now: Now) -> MessageId {
    let nanos = (now.unix_ms % 1000) as u32 * 1_000_000;
    let moment = uuid::Timestamp::from_unix(uuid::NoContext, now.unix_ms / 1000, nanos);
    MessageId(uuid::Uuid::new_v7(moment).into_bytes())
}

/// The publisher's own id, if it sent a UUIDv7 in its usual form.
fn own_id(properties: &PublishProperties) -> Option<MessageId> {
    let pair = properties
        .user_properties
        .iter()
        .find(|pair| pair.key == b"saguin-id")?;
    let value = std::str::from_utf8(pair.value).ok()?;
    let id = uuid::Uuid::try_parse(value).ok()?;
    let is_plain = value.len() == uuid::fmt::Hyphenated::LENGTH;
    (is_plain && id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122)
        .then(|| MessageId(id.into_bytes()))
}

/// Payload Format Indicator, Content Type and User Properties in wire form, without the broker's
/// own labels; and the bytes of keys and values kept.
fn property_region(properties: &PublishProperties) -> (Bytes, u32) {
    let mut region = Vec::new();
    if let Some(is_utf8) = properties.payload_is_utf8 {
        region.extend_from_slice(&[0x01, u8::from(is_utf8)]);
    }
    if let Some(content_type) = &properties.content_type {
        region.push(0x03);
        put_string(&mut region, content_type);
    }
    let mut kept = 0;
    for pair in properties.user_properties.iter() {
        if !pair.key.starts_with(b"saguin-") {
            region.extend_from_slice(pair.wire);
            kept += pair.key.len() + pair.value.len();
        }
    }
    (Bytes::from(region), u32::try_from(kept).unwrap_or(u32::MAX))
}

/// A string came in with a two-byte length, so it goes out with one.
fn put_string(out: &mut Vec<u8>, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&value[..usize::from(len)]);
}

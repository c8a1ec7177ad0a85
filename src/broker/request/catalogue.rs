//! What a channel is, asked for by `$saguin/catalogue/<channel>`.

use bytes::Bytes;
use serde::Serialize;

use super::{Ask, Reply, Request};
use crate::broker::Broker;
use crate::broker::connection::Connection;
use crate::broker::packet::Publish;
use crate::broker::reason::{Reason, Refusal};
use crate::broker::topic::{ChannelIndex, type_name};
use crate::storage::ChannelKind;

/// One channel, as a client is told of it.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    /// As the operator wrote it.
    filter: &'a str,
    /// What the client that asks may do.
    verbs: &'static [&'static str],
    /// The one filter that makes a worker of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<String>,
}

impl Broker {
    pub(super) fn asked_catalogue(&self, name: &str, publish: &Publish) -> Result<Ask, Refusal> {
        if !super::is_answerable(publish) {
            return Err(Refusal::new(
                Reason::ImplementationSpecific,
                "the catalogue is asked with a Response Topic to be answered on",
            ));
        }
        Ok(Ask::Catalogue {
            channel: self.routes.by_name(name),
        })
    }

    fn catalogue(&self, index: ChannelIndex) -> Option<Vec<u8>> {
        let channel = self.routes.channel(index)?;
        let verbs: &[&str] = match channel.kind {
            // Dead letters are published by nobody.
            ChannelKind::Append if channel.dead_letters_of.is_some() => &["read", "seek"],
            ChannelKind::Append => &["write", "read", "seek"],
            ChannelKind::Latest => &["write", "read", "delete"],
            ChannelKind::Queue => &["write", "consume"],
        };
        let is_queue = channel.kind == ChannelKind::Queue;
        let entry = Entry {
            name: &channel.name,
            kind: type_name(channel.kind),
            filter: &channel.written_filter,
            verbs,
            pin: is_queue.then(|| format!("$saguin/queue/{}", channel.name)),
        };
        serde_json::to_vec(&entry).ok()
    }
}

impl Connection {
    /// Answers with the channel, or with nothing where there is none: nobody learns more by asking
    /// for what is not theirs than by asking for what is not there.
    pub(super) fn tell_catalogue(&self, request: &Request, channel: Option<ChannelIndex>) {
        let entry = channel.and_then(|index| self.broker.catalogue(index));
        let outcome = self.tell(request, entry.unwrap_or_default().into());
        self.conclude_request(request.ticket, outcome);
    }

    /// Answers on the request's Response Topic.
    pub(super) fn tell(&self, request: &Request, payload: Bytes) -> Result<(), Refusal> {
        let mut state = self.session.lock();
        if state.owned_by(self.number).is_none() {
            return Ok(());
        }
        let reply = Reply {
            topic: request.response_topic.clone().unwrap_or_default(),
            payload,
            correlation_data: request.correlation_data.as_ref(),
            labels: &[],
        };
        if self.reply(&mut state, reply) {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::ImplementationSpecific,
            "the reply is larger than this client's Maximum Packet Size; raise it and connect again",
        ))
    }
}

//! UNSUBSCRIBE. Where the session outlives its connection, what is left of it is stored before the
//! answer (invariant 18).

use crate::storage::Batch;

use super::Broker;
use super::connection::{Connection, Flow};
use super::counters::bump;
use super::packet::{Outgoing, Unsubscribe};
use super::queue::WorkerId;
use super::reason::Reason;
use super::session::{Form, State};
use super::topic::ChannelIndex;

impl Connection {
    /// An UNSUBSCRIBE. The session's place in a channel goes with the last filter that reaches it.
    pub fn unsubscribe(&self, unsubscribe: &Unsubscribe) -> Flow {
        let mut state = self.session.lock();
        if state.owned_by(self.number).is_none() {
            return Flow::Stop;
        }
        if state.claimed {
            return Flow::Retry;
        }
        let mut reasons = Vec::with_capacity(unsubscribe.filters.len());
        let mut left_queues = Vec::new();
        let mut changed = false;
        for filter in &unsubscribe.filters {
            let removed = self
                .broker
                .drop_subscription(&mut state, &self.session, filter);
            reasons.push(match &removed {
                Some(_) => Reason::Success,
                None => Reason::NoSubscriptionExisted,
            });
            changed |= removed.is_some();
            if let Some(Form::Queue(queue)) = removed.map(|removed| removed.form.clone()) {
                left_queues.push(queue);
            }
        }
        let mut operations = Vec::new();
        let readers: Vec<ChannelIndex> = state.readers.keys().copied().collect();
        for index in readers {
            if Broker::still_reads(&state, index) {
                continue;
            }
            if let Some(reader) = state.readers.remove(&index) {
                state.dirty_positions.remove(&index);
                if state.stored_positions.remove(&reader.id()) {
                    operations.push(self.session.delete_position(reader.id()));
                }
            }
            self.broker.channel(index).remove_reader(&self.session);
        }
        let unread = unread_labels(&state, unsubscribe);
        let unsuback = Outgoing::Unsuback {
            packet_id: unsubscribe.packet_id,
            reasons,
            unread,
        };
        let durable = state.expiry_seconds > 0 && changed;
        let record = durable.then(|| self.session.put_record(&state, state.expiry_seconds, None));
        match record {
            Some(Ok(record)) => {
                operations.insert(0, record);
                let connection = self.clone();
                self.broker.session_store.submit(
                    Batch { operations },
                    Box::new(move |stored| connection.unsubscribed(unsuback, stored)),
                );
            }
            // Fewer subscriptions than were stored already take no more room.
            Some(Err(_)) | None => self.answer_subscribe(&mut state, unsuback),
        }
        drop(state);
        for queue in left_queues {
            if let Some(queue) = &self.broker.channel(queue).queue {
                queue.remove_worker(WorkerId(self.number));
            }
        }
        Flow::Continue
    }

    fn unsubscribed(
        &self,
        unsuback: Outgoing,
        stored: Result<crate::storage::Receipt, crate::storage::StoreError>,
    ) {
        let mut state = self.session.lock();
        let unsuback = match (stored, unsuback) {
            (
                Err(error),
                Outgoing::Unsuback {
                    packet_id,
                    reasons,
                    unread,
                },
            ) => {
                bump(&self.broker.counters.session_store_errors);
                tracing::error!(client = self.client_id(), %error, "the end of a subscription could not be stored");
                Outgoing::Unsuback {
                    packet_id,
                    reasons: vec![Reason::ImplementationSpecific; reasons.len()],
                    unread,
                }
            }
            (_, unsuback) => unsuback,
        };
        self.answer_subscribe(&mut state, unsuback);
    }
}

/// The `saguin-` User Properties an UNSUBSCRIBE carried for nothing, named where the client allows.
fn unread_labels(state: &State, unsubscribe: &Unsubscribe) -> Vec<bytes::Bytes> {
    let told = state
        .link
        .as_ref()
        .is_some_and(|link| link.problem_information);
    let labels = unsubscribe
        .user_properties
        .iter()
        .filter(|pair| told && pair.key.starts_with(b"saguin-"))
        .map(|pair| bytes::Bytes::copy_from_slice(pair.key));
    labels.collect()
}

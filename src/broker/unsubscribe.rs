//! UNSUBSCRIBE. Where the session outlives its connection, what is left of it is stored before the
//! answer (invariant 18).

use crate::storage::Batch;

use super::Broker;
use super::connection::{Connection, Flow};
use super::counters::bump;
use super::packet::{Outgoing, Unsubscribe};
use super::queue::WorkerId;
use super::reason::Reason;
use super::session::reader::Reader;
use super::session::{Form, State};
use super::topic::ChannelIndex;

impl Connection {
    /// An UNSUBSCRIBE. The session's place in a channel goes with the last filter that reaches it.
    pub fn unsubscribe(&self, unsubscribe: &Unsubscribe) -> Flow {
        let mut state = self.session.lock();
        if state.owned_by(self.number).is_none() {
            return Flow::Stop;
        }
        // One at a time: each is answered by what the store says of it.
        if state.claimed || state.seeking || !state.leaving.is_empty() {
            return Flow::Retry;
        }
        let mut reasons = Vec::with_capacity(unsubscribe.filters.len());
        for filter in &unsubscribe.filters {
            let held = state.subscriptions.get_key_value(filter.as_str());
            let held = held.map(|(filter, _)| filter.clone());
            reasons.push(match held {
                Some(filter) if !state.leaving.contains(&filter) => {
                    state.leaving.insert(filter);
                    Reason::Success
                }
                _ => Reason::NoSubscriptionExisted,
            });
        }
        let unsuback = Outgoing::Unsuback {
            packet_id: unsubscribe.packet_id,
            reasons,
            unread: unread_labels(&state, unsubscribe),
        };
        let durable = state.expiry_seconds > 0 && !state.leaving.is_empty();
        let record = durable.then(|| self.session.put_record(&state, state.expiry_seconds, None));
        // Fewer subscriptions than were stored already take no more room, so there is no error.
        if let Some(Ok(record)) = record {
            let mut operations = vec![record];
            let readers = state.readers.iter();
            let ending: Vec<_> = readers
                .filter(|(index, _)| !Broker::still_reads(&state, **index))
                .map(|(_, reader)| reader.id())
                .collect();
            for id in ending {
                if state.stored_positions.remove(&id) {
                    operations.push(self.session.delete_position(id));
                }
            }
            let connection = self.clone();
            // Submitted under the session's lock, as every write of a session is.
            self.broker.session_store.submit(
                Batch { operations },
                Box::new(move |stored| connection.unsubscribed(unsuback, stored)),
            );
            return Flow::Continue;
        }
        let left_queues = self.drop_leaving(&mut state);
        self.answer_subscribe(&mut state, unsuback);
        drop(state);
        self.leave_queues(left_queues);
        Flow::Continue
    }

    /// The filters are in force until the store has their end, and where it cannot have it they
    /// stay: what the answer says is so, in memory and on disk.
    fn unsubscribed(
        &self,
        mut unsuback: Outgoing,
        stored: Result<crate::storage::Receipt, crate::storage::StoreError>,
    ) {
        let mut state = self.session.lock();
        let (left_queues, kept_queues) = match stored {
            Ok(_) => (self.drop_leaving(&mut state), Vec::new()),
            Err(error) => {
                bump(&self.broker.counters.session_store_errors);
                tracing::error!(client = self.client_id(), %error, "the end of a subscription could not be stored; it stays in force");
                let kept_queues = self.keep_leaving(&mut state);
                if let Outgoing::Unsuback { reasons, .. } = &mut unsuback {
                    for reason in reasons.iter_mut().filter(|r| **r == Reason::Success) {
                        *reason = Reason::ImplementationSpecific;
                    }
                }
                (Vec::new(), kept_queues)
            }
        };
        self.answer_subscribe(&mut state, unsuback);
        state.wake_reader();
        let owner = state.link.as_ref().map(|link| link.number);
        drop(state);
        self.leave_queues(left_queues);
        if let Some(owner) = owner {
            for queue in kept_queues {
                // It took no offer while it was leaving, and is asked again.
                self.broker.add_worker(&self.session, owner, queue);
            }
        }
    }

    /// The subscriptions that were leaving stay; returns the queues among them.
    fn keep_leaving(&self, state: &mut State) -> Vec<ChannelIndex> {
        let leaving = std::mem::take(&mut state.leaving);
        let positions = state.readers.values().filter_map(Reader::stored_position);
        state.stored_positions.extend(positions.map(|(id, _)| id));
        let forms = leaving
            .iter()
            .filter_map(|filter| state.subscriptions.get(filter));
        forms
            .filter_map(|subscription| match subscription.form {
                Form::Queue(queue) => Some(queue),
                Form::Plain(_) | Form::Shared(_) | Form::SeekReplies => None,
            })
            .collect()
    }

    /// Ends the subscriptions that are leaving, and the session's place in every channel that no
    /// other reaches; returns the queues left.
    fn drop_leaving(&self, state: &mut State) -> Vec<ChannelIndex> {
        let mut left_queues = Vec::new();
        for filter in std::mem::take(&mut state.leaving) {
            let removed = self.broker.drop_subscription(state, &self.session, &filter);
            if let Some(Form::Queue(queue)) = removed.map(|removed| removed.form.clone()) {
                left_queues.push(queue);
            }
        }
        let readers: Vec<ChannelIndex> = state.readers.keys().copied().collect();
        for index in readers {
            if Broker::still_reads(state, index) {
                continue;
            }
            state.readers.remove(&index);
            state.dirty_positions.remove(&index);
            self.broker.channel(index).remove_reader(&self.session);
        }
        left_queues
    }

    /// Called without a lock held. Whatever connection has the session now works there no more.
    fn leave_queues(&self, queues: Vec<ChannelIndex>) {
        if queues.is_empty() {
            return;
        }
        let owner = self.session.lock().link.as_ref().map(|link| link.number);
        for queue in queues {
            if let (Some(owner), Some(queue)) = (owner, &self.broker.channel(queue).queue) {
                queue.remove_worker(WorkerId(owner));
            }
        }
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

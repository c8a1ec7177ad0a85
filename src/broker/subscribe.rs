//! SUBSCRIBE.
//!
//! A subscription is in force before its SUBACK is written, and the SUBACK goes out before anything
//! the subscription earns. Where the session outlives its connection, the record of it is stored
//! before it (invariant 18).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, PoisonError};

use crate::storage::{Batch, ChannelKind, Operation};

use super::connection::{Connection, Flow};
use super::counters::{Refused, bump};
use super::fanout::Subscriber;
use super::labels::Labels;
use super::packet::{Outgoing, Protocol, SubackReason, Subscribe, SubscribeRequest};
use super::reason::{Reason, Refusal};
use super::session::{Form, MAX_SUBSCRIPTION_BYTES, Session, State, Subscription};
use super::topic::{ChannelIndex, Partition, SubscribeFilter, TopicFilter};
use super::{Broker, lock};

/// Filters whose partitions are remembered to warn of different ones (invariant 13).
const MAX_NOTED_PARTITIONS: usize = 1024;

/// One filter a SUBSCRIBE was granted.
struct Granted {
    filter: Arc<str>,
    subscription: Arc<Subscription>,
    /// The subscription it replaced.
    before: Option<Arc<Subscription>>,
}

/// What a SUBSCRIBE changed, to be taken back where its record cannot be stored.
#[derive(Default)]
struct Changes {
    filters: Vec<Granted>,
    readers: Vec<ChannelIndex>,
    /// Places in append channels that were moved to the end, and where they were.
    moved: Vec<(ChannelIndex, u64)>,
    /// Positions sought earlier that the first read of a channel started at.
    sought: Vec<(ChannelIndex, u64)>,
    /// Queues to be joined once the SUBACK is on its way.
    queues: Vec<ChannelIndex>,
    operations: Vec<Operation>,
    /// Per latest channel, the subscriptions whose current values are asked for.
    passes: BTreeMap<ChannelIndex, Vec<Arc<Subscription>>>,
}

impl Connection {
    /// A SUBSCRIBE.
    pub fn subscribe(&self, subscribe: &Subscribe) -> Flow {
        let mut state = self.session.lock();
        let Some(link) = state.owned_by(self.number) else {
            return Flow::Stop;
        };
        let protocol = link.protocol;
        if state.claimed || state.seeking || !state.leaving.is_empty() {
            return Flow::Retry;
        }
        if subscribe.filters.is_empty() {
            drop(state);
            self.close(Refusal::new(
                Reason::ProtocolError,
                "a SUBSCRIBE has at least one filter",
            ));
            return Flow::Stop;
        }
        let of_a_group = |request: &&SubscribeRequest| request.filter.starts_with("$share/");
        let mut shared = subscribe.filters.iter().filter(of_a_group);
        if shared.any(|request| request.no_local) {
            drop(state);
            self.close(Refusal::new(
                Reason::ProtocolError,
                "a shared subscription has no No Local (MQTT-3.8.3-4)",
            ));
            return Flow::Stop;
        }
        if protocol == Protocol::V311
            && let Some(no_filter) = subscribe
                .filters
                .iter()
                .find_map(|request| TopicFilter::parse(&request.filter).err())
        {
            // MQTT 3.1.1 has no answer to what is no filter at all.
            drop(state);
            self.close(Refusal::new(
                Reason::TopicFilterInvalid,
                no_filter.to_string(),
            ));
            return Flow::Stop;
        }
        let labels = Labels::read(subscribe);
        let mut changes = Changes::default();
        let mut reasons = vec![SubackReason::Granted(0); subscribe.filters.len()];
        let mut first_refusal = None;
        for at in granting_order(&subscribe.filters) {
            let request = &subscribe.filters[at];
            let granted = match &labels {
                Ok(labels) => {
                    let partition = labels.partition.as_ref();
                    self.grant(
                        &mut state,
                        protocol,
                        (subscribe, request),
                        partition,
                        &mut changes,
                    )
                }
                Err(refusal) => Err(refusal.clone()),
            };
            reasons[at] = match granted {
                Ok(qos) => SubackReason::Granted(qos),
                Err(refusal) => {
                    self.broker
                        .counters
                        .refuse(Refused::Subscribe, refusal.reason);
                    let reason = refusal.reason;
                    first_refusal.get_or_insert(refusal);
                    SubackReason::Refused(reason)
                }
            };
        }
        // All filters are recorded before any is replayed.
        let deletions = labels.is_ok_and(|labels| labels.deletions);
        self.begin_passes(&mut state, &mut changes, deletions);
        let text = first_refusal.and_then(|refusal| {
            let link = state.link.as_ref()?;
            link.problem_text(&refusal.text)
        });
        let suback = Outgoing::Suback {
            packet_id: subscribe.packet_id,
            reasons,
            text,
        };
        self.conclude(state, changes, suback)
    }

    /// Stores what changed where it has to be stored, and answers.
    fn conclude(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        mut changes: Changes,
        suback: Outgoing,
    ) -> Flow {
        let durable = state.expiry_seconds > 0 && !changes.filters.is_empty();
        if !durable {
            let queues = std::mem::take(&mut changes.queues);
            self.answer_subscribe(&mut state, suback);
            drop(state);
            self.join(queues);
            return Flow::Continue;
        }
        let expiry = state.expiry_seconds;
        match self.session.put_record(&state, expiry, None) {
            Ok(record) => {
                changes.operations.insert(0, record);
                if !changes.readers.is_empty() || !changes.moved.is_empty() {
                    // What is on its way is another reader's, or no reader's, and the window says so
                    // with the position.
                    changes.operations.push(self.session.put_window(&mut state));
                }
            }
            Err(refusal) => {
                self.take_back(&mut state, &changes);
                let suback = refused(&state, suback, &refusal);
                self.answer_subscribe(&mut state, suback);
                return Flow::Continue;
            }
        }
        state.stored = true;
        if let Some(link) = state.owned_by(self.number) {
            link.pending_grants += 1;
        }
        let batch = Batch {
            operations: std::mem::take(&mut changes.operations),
        };
        let connection = self.clone();
        // Submitted under the session's lock, so that the writes of one session reach the store in
        // the order in which they were decided.
        self.broker.session_store.submit(
            batch,
            Box::new(move |stored| connection.subscribed(changes, suback, stored)),
        );
        Flow::Continue
    }

    fn subscribed(
        &self,
        changes: Changes,
        suback: Outgoing,
        stored: Result<crate::storage::Receipt, crate::storage::StoreError>,
    ) {
        let mut state = self.session.lock();
        if let Some(link) = state.owned_by(self.number) {
            link.pending_grants = link.pending_grants.saturating_sub(1);
        }
        if let Err(error) = stored {
            bump(&self.broker.counters.session_store_errors);
            tracing::error!(client = self.client_id(), %error, "a subscription could not be stored");
            self.take_back(&mut state, &changes);
            // No room is a bound that was reached; anything else is the store's own failure.
            let reason = if error.is_full() {
                Reason::QuotaExceeded
            } else {
                Reason::ImplementationSpecific
            };
            let text = format!("the subscription could not be stored: {error}");
            let suback = refused(&state, suback, &Refusal::new(reason, text));
            self.answer_subscribe(&mut state, suback);
            return;
        }
        self.answer_subscribe(&mut state, suback);
        drop(state);
        self.join(changes.queues);
    }

    pub(super) fn answer_subscribe(&self, state: &mut State, suback: Outgoing) {
        if let Some(link) = state.owned_by(self.number) {
            link.reply(suback);
        }
    }

    fn join(&self, queues: Vec<ChannelIndex>) {
        for queue in queues {
            self.broker.add_worker(&self.session, self.number, queue);
        }
    }

    /// Grants one filter, in memory, or says why not.
    fn grant(
        &self,
        state: &mut State,
        protocol: Protocol,
        (subscribe, request): (&Subscribe, &SubscribeRequest),
        partition: Option<&Arc<Partition>>,
        changes: &mut Changes,
    ) -> Result<u8, Refusal> {
        let parsed = SubscribeFilter::parse(&request.filter, self.broker.settings.topics);
        let filter = match parsed {
            Ok(SubscribeFilter::Queue { .. } | SubscribeFilter::Shared { .. })
                if partition.is_some() =>
            {
                return Err(Refusal::new(
                    Reason::ImplementationSpecific,
                    "the members of a queue or a group share its messages already; leave saguin-filter out",
                ));
            }
            Ok(SubscribeFilter::Plain(filter)) => filter,
            Ok(SubscribeFilter::Queue { queue }) => {
                return self.grant_queue(state, protocol, subscribe, request, &queue, changes);
            }
            Ok(SubscribeFilter::Shared { filter, .. }) => {
                return self.grant_shared(state, protocol, (subscribe, request), &filter, changes);
            }
            Ok(SubscribeFilter::SeekReply { channel }) => {
                return self.grant_seek_replies(state, subscribe, request, &channel, changes);
            }
            Err(refusal) => {
                let reason = match refusal.reason_code() {
                    0x87 => Reason::NotAuthorized,
                    _ => Reason::TopicFilterInvalid,
                };
                return Err(Refusal::new(reason, refusal.to_string()));
            }
        };
        let reach = self.broker.routes.reach(&filter);
        if let Some(queue) = reach.inside_queue {
            return Err(Refusal::new(
                Reason::TopicFilterInvalid,
                format!(
                    "the filter lies inside a queue; its workers subscribe to $saguin/queue/{}",
                    self.broker.channel(queue).name
                ),
            ));
        }
        let slices = partition.map_or(0, |partition| partition.slices().len());
        self.check_room(state, request, reach.channels.len(), slices)?;
        if let Some(partition) = partition {
            self.broker.note_partition(&request.filter, partition.of());
        }
        let qos = request.qos.min(2);
        self.install_plain(
            state,
            (subscribe, request),
            (filter, partition.cloned()),
            &reach.channels,
            qos,
            changes,
        );
        Ok(qos)
    }

    /// Whether one more subscription has its place, before anything is taken for it.
    fn check_room(
        &self,
        state: &State,
        request: &SubscribeRequest,
        reaches: usize,
        slices: usize,
    ) -> Result<(), Refusal> {
        let most = self.broker.settings.max_subscriptions;
        let before = state.subscriptions.get(request.filter.as_str());
        let (is_new, freed) = match before {
            Some(before) => (false, before.own_cost(&request.filter)),
            None => (true, 0),
        };
        if is_new && state.subscriptions.len() >= most {
            return Err(Refusal::new(
                Reason::QuotaExceeded,
                format!("a client has at most {most} subscriptions here"),
            ));
        }
        let cost = Subscription::cost(&request.filter, reaches, slices);
        if cost > freed && state.subscription_bytes + cost - freed > MAX_SUBSCRIPTION_BYTES {
            return Err(Refusal::new(
                Reason::QuotaExceeded,
                format!(
                    "a client's subscriptions take at most {MAX_SUBSCRIPTION_BYTES} bytes of memory, and this one would take {cost} more; subscribe to fewer or shallower filters"
                ),
            ));
        }
        Ok(())
    }

    fn grant_queue(
        &self,
        state: &mut State,
        protocol: Protocol,
        subscribe: &Subscribe,
        request: &SubscribeRequest,
        queue: &str,
        changes: &mut Changes,
    ) -> Result<u8, Refusal> {
        let invalid = |text: &str| Err(Refusal::new(Reason::TopicFilterInvalid, text));
        if protocol == Protocol::V311 {
            return invalid("a worker speaks MQTT 5: its answers carry Correlation Data");
        }
        if request.no_local {
            return invalid("a queue has no No Local: a job is done by whoever is free");
        }
        let index = self
            .broker
            .routes
            .by_name(queue)
            .filter(|index| self.broker.channel(*index).kind == ChannelKind::Queue);
        let Some(index) = index else {
            return invalid("there is no such queue");
        };
        if request.qos == 0 {
            return Err(Refusal::new(
                Reason::ImplementationSpecific,
                "a worker subscribes at QoS 1: its PUBACK starts the visibility timeout",
            ));
        }
        self.check_room(state, request, 0, 0)?;
        let subscription = Arc::new(Subscription {
            form: Form::Queue(index),
            qos: 1,
            no_local: false,
            retain_as_published: false,
            identifier: subscribe.identifier,
            reaches: Vec::new(),
            from: BTreeMap::new(),
            log_from: 0,
            partition: None,
        });
        let filter: Arc<str> = request.filter.as_str().into();
        let before = state.subscriptions.get(&filter).cloned();
        state.put_subscription(filter.clone(), subscription.clone());
        changes.filters.push(Granted {
            filter,
            subscription,
            before,
        });
        changes.queues.push(index);
        Ok(1)
    }

    fn grant_shared(
        &self,
        state: &mut State,
        protocol: Protocol,
        (subscribe, request): (&Subscribe, &SubscribeRequest),
        filter: &TopicFilter,
        changes: &mut Changes,
    ) -> Result<u8, Refusal> {
        if protocol == Protocol::V311 {
            return Err(Refusal::new(
                Reason::TopicFilterInvalid,
                "shared subscriptions are of MQTT 5",
            ));
        }
        self.check_room(state, request, 0, 0)?;
        let qos = request.qos.min(2);
        let text: Arc<str> = request.filter.as_str().into();
        let before = state.subscriptions.get(&text).cloned();
        let subscription = Arc::new(Subscription {
            form: Form::Shared(filter.clone()),
            qos,
            no_local: false,
            retain_as_published: request.retain_as_published,
            identifier: subscribe.identifier,
            reaches: Vec::new(),
            from: BTreeMap::new(),
            log_from: 0,
            partition: None,
        });
        state.put_subscription(text.clone(), subscription.clone());
        self.broker.join_group(&text, filter, &self.session);
        if state.expiry_seconds > 0 {
            self.broker.store_group(&text, &self.session);
        }
        changes.filters.push(Granted {
            filter: text,
            subscription,
            before,
        });
        Ok(qos)
    }

    /// Nothing is published there, so the grant costs nothing and a client that filters what it is
    /// sent by its subscriptions sees its replies.
    fn grant_seek_replies(
        &self,
        state: &mut State,
        subscribe: &Subscribe,
        request: &SubscribeRequest,
        channel: &str,
        changes: &mut Changes,
    ) -> Result<u8, Refusal> {
        if self.broker.append_channel(channel).is_none() {
            return Err(Refusal::new(
                Reason::TopicFilterInvalid,
                "there is no such append channel; only those are read from a position",
            ));
        }
        self.check_room(state, request, 0, 0)?;
        let qos = request.qos.min(2);
        let subscription = Arc::new(Subscription {
            form: Form::SeekReplies,
            qos,
            no_local: request.no_local,
            retain_as_published: request.retain_as_published,
            identifier: subscribe.identifier,
            reaches: Vec::new(),
            from: BTreeMap::new(),
            log_from: 0,
            partition: None,
        });
        let filter: Arc<str> = request.filter.as_str().into();
        let before = state.subscriptions.get(&filter).cloned();
        state.put_subscription(filter.clone(), subscription.clone());
        changes.filters.push(Granted {
            filter,
            subscription,
            before,
        });
        Ok(qos)
    }

    fn install_plain(
        &self,
        state: &mut State,
        (subscribe, request): (&Subscribe, &SubscribeRequest),
        (filter, partition): (TopicFilter, Option<Arc<Partition>>),
        channels: &[ChannelIndex],
        qos: u8,
        changes: &mut Changes,
    ) {
        let text: Arc<str> = request.filter.as_str().into();
        let before = state.subscriptions.get(&text).cloned();
        let mut subscription = Subscription {
            form: Form::Plain(filter.clone()),
            qos,
            no_local: request.no_local,
            retain_as_published: request.retain_as_published,
            identifier: subscribe.identifier,
            reaches: channels.to_vec(),
            from: before
                .as_ref()
                .map(|before| before.from.clone())
                .unwrap_or_default(),
            // A filter that replaces itself is owed what it was owed.
            log_from: before
                .as_ref()
                .map_or_else(|| self.broker.log.next(), |before| before.log_from),
            partition,
        };
        // In the index before any head is read: what is stored after that head wakes this session.
        self.broker
            .index(&filter, &self.session, Arc::new(subscription.clone()));
        for index in channels {
            self.open_reader(
                state,
                *index,
                request,
                &text,
                before.is_none(),
                &mut subscription,
                changes,
            );
        }
        let subscription = Arc::new(subscription);
        self.broker
            .index(&filter, &self.session, subscription.clone());
        state.matching.insert(&filter, subscription.clone());
        state.put_subscription(text.clone(), subscription.clone());
        let is_new = before.is_none();
        let wants_pass = request.retain_handling == 0 || (request.retain_handling == 1 && is_new);
        if wants_pass {
            self.ask_for_retained(state, &text, &subscription, is_new);
            for index in channels {
                if self.broker.channel(*index).kind == ChannelKind::Latest {
                    let asked = changes.passes.entry(*index).or_default();
                    asked.push(subscription.clone());
                }
            }
        }
        changes.filters.push(Granted {
            filter: text,
            subscription,
            before,
        });
    }

    /// Retained values go out behind the SUBACK; where there are none, nothing is asked.
    fn ask_for_retained(
        &self,
        state: &mut State,
        filter: &Arc<str>,
        subscription: &Arc<Subscription>,
        is_new: bool,
    ) {
        let counters = self.broker.retained.counters();
        if counters.count > 0 {
            let (filter, subscription) = (filter.clone(), subscription.clone());
            state
                .retained
                .begin(filter, subscription, !is_new, counters.next);
        }
    }

    /// The session's place in one channel the filter reaches, made where there is none.
    #[expect(
        clippy::too_many_arguments,
        reason = "one SUBSCRIBE entry, taken apart"
    )]
    fn open_reader(
        &self,
        state: &mut State,
        index: ChannelIndex,
        request: &SubscribeRequest,
        filter: &str,
        is_new: bool,
        subscription: &mut Subscription,
        changes: &mut Changes,
    ) {
        let channel = self.broker.channel(index);
        let live_only = request.retain_handling == 2;
        if let Entry::Vacant(place) = state.readers.entry(index) {
            let sought = state.sought.get(&index).copied();
            let Some(reader) = self.broker.new_reader(index, sought) else {
                return;
            };
            let reader = place.insert(reader);
            if let Some(offset) = state.sought.remove(&index) {
                let counters = channel.store.counters(channel.id);
                reader.wake(counters.next, counters.floor);
                changes.sought.push((index, offset));
            }
            channel.add_reader(&self.session);
            changes.readers.push(index);
        }
        let next = channel.store.counters(channel.id).next;
        match channel.kind {
            ChannelKind::Append if live_only => {
                // Another filter may still have older records of the channel to come, so the place
                // is moved only where this filter alone holds it.
                let alone = !state.subscriptions.iter().any(|(other, subscription)| {
                    &**other != filter && subscription.reaches.contains(&index)
                });
                if alone && let Some(reader) = state.readers.get_mut(&index) {
                    let before = reader.stored_position().map(|(_, position)| position);
                    let before = before.filter(|_| !changes.readers.contains(&index));
                    changes.moved.extend(before.map(|before| (index, before)));
                    reader.seek(next);
                } else {
                    subscription.from.insert(index, next);
                }
            }
            ChannelKind::Latest if is_new => {
                // Older values are its pass's.
                subscription.from.insert(index, next);
            }
            _ => {}
        }
        if state.expiry_seconds > 0
            && let Some((id, position)) = state
                .readers
                .get(&index)
                .and_then(super::session::reader::Reader::stored_position)
        {
            // Stored with the subscription, or a restart would begin at another place.
            state.stored_positions.insert(id);
            changes
                .operations
                .push(self.session.put_position(id, position));
        }
    }

    fn begin_passes(&self, state: &mut State, changes: &mut Changes, deletions: bool) {
        for (index, asked) in std::mem::take(&mut changes.passes) {
            let channel = self.broker.channel(index);
            let head = channel.store.counters(channel.id).next;
            if let Some(reader) = state.readers.get_mut(&index)
                && let Err(error) = reader.begin_pass(head, deletions, asked)
            {
                tracing::warn!(client = self.client_id(), channel = %channel.name, %error, "a subscribe pass was not begun");
                self.handle
                    .close(Refusal::new(Reason::QuotaExceeded, error.to_string()));
            }
        }
    }

    /// Takes back what a SUBSCRIBE changed, as far as nothing has changed it since.
    fn take_back(&self, state: &mut State, changes: &Changes) {
        for Granted {
            filter,
            subscription,
            before,
        } in &changes.filters
        {
            let current = state.subscriptions.get(filter);
            if !current.is_some_and(|current| Arc::ptr_eq(current, subscription)) {
                continue;
            }
            self.broker.drop_subscription(state, &self.session, filter);
            if let Some(before) = before {
                self.broker
                    .restore_subscription(state, &self.session, filter, before.clone());
            }
        }
        // What was refused has skipped nothing.
        for (index, before) in changes.moved.iter().rev() {
            if let Some(reader) = state.readers.get_mut(index) {
                reader.seek(*before);
                state.wake_writer();
            }
        }
        for index in &changes.readers {
            if !Broker::still_reads(state, *index) {
                state.readers.remove(index);
                self.broker.channel(*index).remove_reader(&self.session);
            }
        }
        for (index, offset) in &changes.sought {
            if !state.readers.contains_key(index) {
                state.sought.insert(*index, *offset);
            }
        }
    }
}

/// The order in which the filters of one SUBSCRIBE are granted: those that want only what comes from
/// now on last, so that a place another filter is to be served from is not moved to the end first. One
/// filter given twice stays in its order, as the later one replaces the earlier.
fn granting_order(requests: &[SubscribeRequest]) -> Vec<usize> {
    let handling: BTreeMap<&str, u8> = requests
        .iter()
        .map(|request| (request.filter.as_str(), request.retain_handling))
        .collect();
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|at| handling.get(requests[*at].filter.as_str()) == Some(&2));
    order
}

/// The same SUBACK with nothing granted, and why.
fn refused(state: &State, suback: Outgoing, refusal: &Refusal) -> Outgoing {
    let reason = refusal.reason;
    let why = state
        .link
        .as_ref()
        .and_then(|link| link.problem_text(&refusal.text));
    match suback {
        Outgoing::Suback {
            packet_id,
            reasons,
            text,
        } => Outgoing::Suback {
            packet_id,
            reasons: reasons
                .into_iter()
                .map(|given| match given {
                    SubackReason::Granted(_) => SubackReason::Refused(reason),
                    refused @ SubackReason::Refused(_) => refused,
                })
                .collect(),
            text: text.or(why),
        },
        other => other,
    }
}

impl Broker {
    /// Consumers that divide one filter's topics by different numbers leave some to nobody and take
    /// others twice: said once for each filter, as far as it is remembered.
    pub(super) fn note_partition(&self, filter: &str, of: u32) {
        let mut seen = lock(&self.partitions);
        let Some((earlier, told)) = seen.get_mut(filter) else {
            if seen.len() < MAX_NOTED_PARTITIONS {
                seen.insert(filter.into(), (of, false));
            }
            return;
        };
        if *earlier != of && !std::mem::replace(told, true) {
            tracing::warn!(
                filter,
                "consumers divide this filter's topics by {earlier} and by {of}: some topics go to nobody, or to two; give all of them one N"
            );
        }
    }

    /// Puts a subscription in the index.
    pub(crate) fn index(
        &self,
        filter: &TopicFilter,
        session: &Arc<Session>,
        subscription: Arc<Subscription>,
    ) {
        let subscriber = Subscriber {
            session: session.clone(),
            subscription,
        };
        self.subscriptions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(filter, session.key, subscriber);
    }

    fn unindex(&self, filter: &TopicFilter, session: &Session) {
        self.subscriptions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(filter, &session.key);
    }

    /// Takes a subscription out of the session and the index.
    pub(crate) fn drop_subscription(
        &self,
        state: &mut State,
        session: &Session,
        filter: &str,
    ) -> Option<Arc<Subscription>> {
        let removed = state.take_subscription(filter)?;
        state.retained.end(filter);
        match &removed.form {
            Form::Plain(filter) => {
                state.matching.remove(filter);
                self.unindex(filter, session);
            }
            Form::Shared(_) => self.leave_group(filter, session),
            Form::Queue(_) | Form::SeekReplies => {}
        }
        Some(removed)
    }

    /// Puts a subscription into the session and the index.
    pub(crate) fn restore_subscription(
        &self,
        state: &mut State,
        session: &Arc<Session>,
        filter: &str,
        subscription: Arc<Subscription>,
    ) {
        match &subscription.form {
            Form::Plain(plain) => {
                state.matching.insert(plain, subscription.clone());
                self.index(plain, session, subscription.clone());
            }
            Form::Shared(shared) => self.join_group(&filter.into(), shared, session),
            Form::Queue(_) | Form::SeekReplies => {}
        }
        state.put_subscription(filter.into(), subscription);
    }

    /// Whether any subscription of the session still reaches a channel.
    pub(super) fn still_reads(state: &State, index: ChannelIndex) -> bool {
        state
            .subscriptions
            .iter()
            .filter(|(filter, _)| !state.leaving.contains(*filter))
            .any(|(_, subscription)| subscription.reaches.contains(&index))
    }

    /// Takes everything of an ended session out of the indexes.
    pub(crate) fn forget_subscriptions(&self, session: &Session, state: &mut State) {
        let filters: Vec<Arc<str>> = state.subscriptions.keys().cloned().collect();
        for filter in filters {
            self.drop_subscription(state, session, &filter);
        }
        for index in std::mem::take(&mut state.readers).into_keys() {
            self.channel(index).remove_reader(session);
        }
        lock(&self.registry).remove(session);
    }
}

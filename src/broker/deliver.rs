//! What a connection's writer is given: read ahead from channels, chosen, and shaped for this
//! client.
//!
//! The writer asks when its socket has room. What it is given comes in this order: what was under
//! way on an earlier connection, jobs, then channel records and broadcast by turns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use crate::storage::{ChannelId, ChannelKind, ReadError, ReadLimit, Record};

use super::connection::{Budget, Connection, Taken};
use super::consumer::{ReadRequest, select};
use super::counters::bump;
use super::delivery::{OfferProperties, RecordProperties, SubscriberProperties};
use super::packet::{Outgoing, OutgoingPublish};
use super::queue::JobOffer;
use super::reason::{Reason, Refusal};
use super::request::Request;
use super::retained::retained_delivery;
use super::session::broadcast::BroadcastDelivery;
use super::session::inflight::{Held, Phase};
use super::session::reader::{Chosen, Step};
use super::session::retained_pass::RetainedRead;
use super::session::{Form, Session, State};
use super::shape::{delivery_publish, shape};
use super::share::decide_shared;
use super::time::Now;
use super::topic::ChannelIndex;
use super::{Broker, lock};

/// Reads that a store has to make before there is more to send. Made without any lock held.
#[derive(Debug)]
pub struct Reads(Vec<PendingRead>);

#[derive(Debug)]
enum PendingRead {
    /// The next records of a channel.
    Ahead {
        channel: ChannelIndex,
        request: ReadRequest,
    },
    /// A record that has to be sent again.
    Again {
        packet_id: u16,
        channel: ChannelIndex,
        offset: u64,
        topic: Option<Bytes>,
    },
    /// What the client asked for.
    Request(Request),
    /// Retained values.
    Retained(RetainedRead),
}

/// What one call of the writer collects.
pub(crate) struct Turn<'a> {
    pub budget: Budget,
    pub out: &'a mut Vec<Outgoing>,
    /// Jobs that cannot be sent after all.
    pub unsent: Vec<(ChannelIndex, JobOffer)>,
    /// Queues that found no room in the window, where there may be some now.
    pub asks: BTreeSet<ChannelIndex>,
    /// Messages of groups that cannot be sent after all.
    pub returned: Vec<BroadcastDelivery>,
    /// Something left the queue: groups that found no room in it may find some.
    pub freed: bool,
    reads: Vec<PendingRead>,
    pub now: Now,
}

impl<'a> Turn<'a> {
    pub fn new(budget: usize, out: &'a mut Vec<Outgoing>, now: Now) -> Self {
        Turn {
            budget: Budget::new(budget),
            out,
            unsent: Vec::new(),
            asks: BTreeSet::new(),
            returned: Vec::new(),
            freed: false,
            reads: Vec::new(),
            now,
        }
    }
}

/// Whether a source has more for this turn.
#[derive(PartialEq, Eq)]
enum Sent {
    /// It was put in the turn.
    Yes,
    /// Nothing can be sent now.
    No,
    /// It is too large for the client, whose connection ends for it.
    Ended,
}

impl Connection {
    /// Fills the turn with what the session has for its client.
    pub(crate) fn take_deliveries(&self, state: &mut State, turn: &mut Turn<'_>) -> Taken {
        // A SUBACK goes out before anything its subscription earns.
        if state
            .link
            .as_ref()
            .is_some_and(|link| link.pending_grants > 0)
        {
            return Taken::Idle;
        }
        take_stored(state, turn);
        self.take_request_up(state, turn);
        self.take_resends(state, turn);
        if !state.inflight.owes_resend() {
            self.take_offers(state, turn);
            // What waits for the store is not overtaken.
            if !state.waits_for_store() {
                self.take_retained(state, turn);
                self.take_broadcast(state, turn, 2);
                self.take_records(state, turn);
                self.take_broadcast(state, turn, 1);
            }
        }
        self.store_window(state);
        if self.handle.is_closing() {
            return Taken::More;
        }
        if !turn.reads.is_empty() {
            return Taken::Read(Reads(std::mem::take(&mut turn.reads)));
        }
        if turn.budget.is_spent() {
            Taken::More
        } else {
            Taken::Idle
        }
    }

    /// One request at a time: a seek is not begun before the one in front of it is stored or
    /// refused, nor before an UNSUBSCRIBE that may end the place it moves.
    fn take_request_up(&self, state: &mut State, turn: &mut Turn<'_>) {
        if !state.leaving.is_empty() {
            return;
        }
        let Some(link) = &mut state.link else { return };
        let had_room = link.has_room();
        if let Some(request) = link.requests.pop_front() {
            turn.reads.push(PendingRead::Request(request));
        }
        if !had_room && link.has_room() {
            link.handle.wake_reader();
        }
    }

    /// What was under way when an earlier connection ended goes first, under its identifier and
    /// with DUP (MQTT-4.4.0-1, MQTT-3.3.1-1).
    fn take_resends(&self, state: &mut State, turn: &mut Turn<'_>) {
        while !turn.budget.is_spent() {
            let Some(next) = state.inflight.next_resend() else {
                return;
            };
            let packet_id = next.id;
            if state.resend_window() == 0 {
                return;
            }
            if next.phase == Phase::Received {
                // The client has the message and is owed the rest of the exchange (MQTT-4.4.0-1).
                state.inflight.resent(packet_id);
                self.owe_pubrel(state, packet_id);
                continue;
            }
            let (channel, offset, topic, retain) = match next.held {
                Held::Append {
                    channel, offset, ..
                } => (channel, offset, None, None),
                Held::Latest {
                    channel,
                    offset,
                    topic,
                    retain,
                    ..
                } => (channel, offset, Some(topic), Some(retain)),
                Held::Broadcast(delivery) => {
                    if !self.resend_broadcast(state, turn, packet_id, next.qos, &delivery) {
                        return;
                    }
                    continue;
                }
                Held::Gone | Held::Job { .. } => {
                    self.forget(state, packet_id);
                    continue;
                }
            };
            let Some((id, record)) = state.resend_read.take().filter(|(id, _)| *id == packet_id)
            else {
                turn.reads.push(PendingRead::Again {
                    packet_id,
                    channel,
                    offset,
                    topic,
                });
                return;
            };
            let Some(record) = record else {
                // Removed by retention, or replaced by a newer value: there is nothing to send
                // again.
                self.forget(state, packet_id);
                turn.asks.append(&mut state.refused_queues);
                continue;
            };
            let mut publish = self.resend(state, channel, &record, turn.now);
            publish.packet_id = id;
            publish.qos = next.qos;
            publish.retain = retain.unwrap_or(publish.retain);
            if self.put(state, turn, publish) == Sent::Ended {
                return;
            }
            state.inflight.resent(packet_id);
        }
    }

    fn resend(
        &self,
        state: &State,
        channel: ChannelIndex,
        record: &Record,
        now: Now,
    ) -> OutgoingPublish {
        let mut options = Vec::new();
        let mut names_channel = false;
        let topic = super::publish::text(&record.message.topic);
        state.matching.visit(topic, |subscription| {
            if !subscription.takes(topic.as_bytes()) {
                return;
            }
            names_channel |= subscription.reaches.len() > 1;
            options.push(super::consumer::Options {
                qos: subscription.qos,
                no_local: false,
                retain_as_published: subscription.retain_as_published,
                identifier: subscription.identifier,
                from: 0,
            });
        });
        let client = self.session.client_id.as_bytes();
        // Unsubscribed meanwhile: what was under way is completed all the same (MQTT-3.10.4-3).
        let selection = select(record, client, options).unwrap_or_default();
        let name = &self.broker.channel(channel).name;
        OutgoingPublish {
            packet_id: 0,
            qos: 1,
            dup: true,
            retain: selection.retain,
            topic: record.message.topic.clone(),
            payload: record.message.payload.clone(),
            properties: shape(
                record,
                names_channel.then_some(name),
                &selection.identifiers,
                now,
            ),
        }
    }

    /// A broadcast message goes out again; returns whether the next may follow.
    fn resend_broadcast(
        &self,
        state: &mut State,
        turn: &mut Turn<'_>,
        packet_id: u16,
        qos: u8,
        delivery: &BroadcastDelivery,
    ) -> bool {
        let Some(mut publish) = delivery_publish(delivery, turn.now) else {
            bump(&self.broker.counters.broadcast_expired);
            self.forget(state, packet_id);
            return true;
        };
        if self.too_large(state, &publish) {
            bump(&self.broker.counters.broadcast_dropped_too_large);
            self.forget(state, packet_id);
            return true;
        }
        (publish.packet_id, publish.qos, publish.dup) = (packet_id, qos, true);
        state.inflight.resent(packet_id);
        self.put(state, turn, publish) == Sent::Yes
    }

    fn take_offers(&self, state: &mut State, turn: &mut Turn<'_>) {
        while !turn.budget.is_spent()
            && state.offer_window() > 0
            && let Some((queue, offer)) = state.offers.pop_front()
        {
            if !self.broker.works_on(state, queue) {
                // Unsubscribed meanwhile: no more is begun for it.
                turn.unsent.push((queue, offer));
                continue;
            }
            let identifiers = state
                .subscriptions
                .values()
                .filter(|subscription| subscription.form == Form::Queue(queue))
                .filter_map(|subscription| subscription.identifier)
                .collect::<Vec<u32>>();
            let record = &offer.job;
            let shared = RecordProperties::for_offer(record);
            let subscriber = SubscriberProperties {
                channel: None,
                subscription_identifiers: &identifiers,
                offer: Some(OfferProperties {
                    attempt: offer.attempt,
                    response_topic: &offer.response_topic,
                    delivery: &offer.delivery,
                }),
            };
            let mut properties = Vec::new();
            shared.encode(&subscriber, turn.now.unix_ms, &mut properties);
            let publish = OutgoingPublish {
                packet_id: 0,
                qos: 1,
                dup: false,
                retain: false,
                topic: record.message.topic.clone(),
                payload: record.message.payload.clone(),
                properties: properties.into(),
            };
            let held = Held::Job {
                queue,
                delivery: offer.delivery,
            };
            match self.put_held(state, turn, publish, held) {
                Sent::Yes => {}
                Sent::No | Sent::Ended => {
                    turn.unsent.push((queue, offer));
                    return;
                }
            }
        }
    }

    /// Retained values that a SUBSCRIBE asked for.
    fn take_retained(&self, state: &mut State, turn: &mut Turn<'_>) {
        let most = self.broker.settings.session_queue_bytes;
        while !turn.budget.is_spent() {
            let window = state.window() > 0;
            let Some((record, filter)) = state.retained.front() else {
                break;
            };
            let client = self.session.client_id.as_bytes();
            let is_over = self.broker.retained.is_over(record, turn.now);
            let subscription = state.subscriptions.get(filter).filter(|_| !is_over);
            let delivery =
                subscription.and_then(|own| retained_delivery(record, own, client, turn.now));
            if let Some(delivery) = delivery {
                let crowded = state.broadcast.is_crowded(&delivery, most);
                if delivery.qos > 0 && (!window || crowded) {
                    return;
                }
                self.send_broadcast(state, turn, delivery);
            }
            state.retained.advance();
        }
        if let Some(read) = state.retained.next_read() {
            turn.reads.push(PendingRead::Retained(read));
        }
    }

    /// Broadcast, up to a `share`-th of what the turn has left.
    fn take_broadcast(&self, state: &mut State, turn: &mut Turn<'_>, share: usize) {
        if state.retained.holds_back() {
            return;
        }
        let most = self.broker.settings.session_queue_bytes;
        let stop_at = turn.budget.left() - turn.budget.left() / share;
        while turn.budget.left() > stop_at || (share == 1 && !turn.budget.is_spent()) {
            let window = state.window() > 0;
            let Some(mut delivery) = state.broadcast.pop(window, most) else {
                return;
            };
            turn.freed = true;
            if delivery.group.is_some() {
                self.send_shared(state, turn, delivery);
                continue;
            }
            if !self.decide(state, &mut delivery) {
                // Nothing it is subscribed to now matches.
                continue;
            }
            self.send_broadcast(state, turn, delivery);
        }
    }

    /// A message of a group goes out, or back to the group where it cannot go out here.
    fn send_shared(&self, state: &mut State, turn: &mut Turn<'_>, mut delivery: BroadcastDelivery) {
        let goes = decide_shared(state, &mut delivery);
        let publish = delivery_publish(&delivery, turn.now);
        let publish = publish.filter(|publish| goes && !self.too_large(state, publish));
        let (Some(publish), Some(group)) = (publish, delivery.group.clone()) else {
            // The group judges its expiry, too.
            turn.returned.push(delivery);
            return;
        };
        if delivery.qos == 0 {
            group.is_done_with(&delivery);
            self.put(state, turn, publish);
            return;
        }
        state.broadcast.sent(&delivery);
        if let Some(logged) = &delivery.logged
            && self.is_stored_first(state, &Held::Broadcast(delivery.clone()), delivery.qos)
        {
            state.shared_unstored.push((group, logged.offset));
        }
        self.put_held(state, turn, publish, Held::Broadcast(delivery));
    }

    fn send_broadcast(&self, state: &mut State, turn: &mut Turn<'_>, delivery: BroadcastDelivery) {
        let Some(publish) = delivery_publish(&delivery, turn.now) else {
            bump(&self.broker.counters.broadcast_expired);
            return;
        };
        if self.too_large(state, &publish) {
            // A channel record would end the connection; broadcast is dropped for this client
            // alone.
            bump(&self.broker.counters.broadcast_dropped_too_large);
            return;
        }
        if delivery.qos > 0 {
            state.broadcast.sent(&delivery);
            self.put_held(state, turn, publish, Held::Broadcast(delivery));
        } else {
            self.put(state, turn, publish);
        }
    }

    /// QoS, RETAIN and identifiers of a message that was owed are those of the subscriptions it has
    /// by now; returns whether there is one.
    fn decide(&self, state: &State, delivery: &mut BroadcastDelivery) -> bool {
        let Some(logged) = &delivery.logged else {
            return true;
        };
        let message = &delivery.message;
        let mut found = false;
        let (mut qos, mut retain) = (0, false);
        delivery.identifiers.clear();
        state
            .matching
            .visit(super::publish::text(&message.topic), |subscription| {
                let own = self.session.client_id.as_bytes() == &message.publisher[..];
                let withheld = subscription.no_local && own;
                if withheld
                    || !subscription.takes(&message.topic)
                    || logged.offset < subscription.log_from
                {
                    return;
                }
                found = true;
                qos = qos.max(subscription.qos);
                retain |= subscription.retain_as_published;
                delivery.identifiers.extend(subscription.identifier);
            });
        delivery.qos = qos.min(message.qos);
        delivery.retain = retain && message.retain;
        found
    }

    /// Channel records, each channel in its turn.
    fn take_records(&self, state: &mut State, turn: &mut Turn<'_>) {
        let after = state.last_reader;
        let later = state.readers.range(after..).map(|(index, _)| *index);
        let earlier = state.readers.range(..after).map(|(index, _)| *index);
        let order: Vec<ChannelIndex> = later
            .filter(|index| *index != after)
            .chain(earlier)
            .chain(state.readers.contains_key(&after).then_some(after))
            .collect();
        for index in order {
            if turn.budget.is_spent() {
                return;
            }
            state.last_reader = index;
            if self.take_channel(state, turn, index) == Sent::Ended {
                return;
            }
        }
    }

    fn take_channel(&self, state: &mut State, turn: &mut Turn<'_>, index: ChannelIndex) -> Sent {
        while !turn.budget.is_spent() {
            let window = state.window();
            let State {
                readers, matching, ..
            } = state;
            let Some(reader) = readers.get_mut(&index) else {
                return Sent::No;
            };
            let step = reader.next(index, self.session.client_id.as_bytes(), matching);
            let superseded = reader.take_superseded();
            self.broker
                .counters
                .latest_superseded
                .fetch_add(superseded, Relaxed);
            let lost = reader.take_lost();
            if lost > 0 {
                self.report_lost(index, lost);
                // Or a crash would take the session for what it has been served past already.
                self.position_moved(state, index, turn.now);
            }
            let chosen = match step {
                Step::Send(chosen) => chosen,
                Step::Read(request) => {
                    turn.reads.push(PendingRead::Ahead {
                        channel: index,
                        request,
                    });
                    return Sent::No;
                }
                Step::Wait => return Sent::No,
            };
            if chosen.delivery.selection.qos > 0 && window == 0 {
                return Sent::No;
            }
            match self.send_chosen(state, turn, index, &chosen) {
                Sent::Yes => {}
                other => return other,
            }
        }
        Sent::Yes
    }

    fn send_chosen(
        &self,
        state: &mut State,
        turn: &mut Turn<'_>,
        index: ChannelIndex,
        chosen: &Chosen,
    ) -> Sent {
        let delivery = &chosen.delivery;
        let record = &delivery.record;
        let channel = self.broker.channel(index);
        let publish = OutgoingPublish {
            packet_id: 0,
            qos: delivery.selection.qos,
            dup: false,
            retain: delivery.retain,
            topic: record.message.topic.clone(),
            payload: record.message.payload.clone(),
            properties: shape(
                record,
                chosen.names_channel.then_some(&channel.name),
                &delivery.selection.identifiers,
                turn.now,
            ),
        };
        let sent = if publish.qos == 0 {
            self.put(state, turn, publish)
        } else {
            let held = match channel.kind {
                ChannelKind::Latest => Held::Latest {
                    channel: index,
                    // Copied: a piece of what was read would keep all of it in memory.
                    topic: Bytes::copy_from_slice(&record.message.topic),
                    offset: record.offset,
                    era: delivery.era,
                    retain: delivery.retain,
                },
                _ => Held::Append {
                    channel: index,
                    offset: record.offset,
                    era: delivery.era,
                },
            };
            self.put_held(state, turn, publish, held)
        };
        if sent == Sent::Yes {
            if let Some(reader) = state.readers.get_mut(&index) {
                reader.sent(delivery);
            }
            if delivery.selection.qos == 0 {
                self.position_moved(state, index, turn.now);
            }
        }
        sent
    }

    fn put_held(
        &self,
        state: &mut State,
        turn: &mut Turn<'_>,
        mut publish: OutgoingPublish,
        held: Held,
    ) -> Sent {
        if self.ends_too_large(state, &publish) {
            return Sent::Ended;
        }
        let to_be_stored = self.is_stored_first(state, &held, publish.qos);
        let Some(packet_id) = state.inflight.send(held, publish.qos) else {
            return Sent::No;
        };
        publish.packet_id = packet_id;
        if to_be_stored {
            // Its identifier is the client's to remember, so the store has it first.
            spend(turn, &publish);
            state.unstored.push(Outgoing::Publish(publish));
            return Sent::Yes;
        }
        self.put(state, turn, publish)
    }

    /// Whether the store has to know of a delivery before it goes out.
    fn is_stored_first(&self, state: &State, held: &Held, qos: u8) -> bool {
        state.expiry_seconds > 0 && state.stored && held.is_stored_first(qos)
    }

    fn put(&self, state: &mut State, turn: &mut Turn<'_>, publish: OutgoingPublish) -> Sent {
        if self.ends_too_large(state, &publish) {
            return Sent::Ended;
        }
        spend(turn, &publish);
        if state.unstored.is_empty() && !state.window_lost {
            bump(&self.broker.counters.publishes_sent);
            turn.out.push(Outgoing::Publish(publish));
        } else {
            // Records of a channel go out in their order, and nothing under an identifier that the
            // store could not be told of.
            state.unstored.push(Outgoing::Publish(publish));
        }
        Sent::Yes
    }

    fn too_large(&self, state: &State, publish: &OutgoingPublish) -> bool {
        state
            .link
            .as_ref()
            .is_some_and(|link| publish.encoded_size(link.protocol) > link.maximum_packet_size)
    }

    /// A record the client cannot take ends its connection, its place in the channel untouched: to
    /// step over it would be to lose it.
    fn ends_too_large(&self, state: &State, publish: &OutgoingPublish) -> bool {
        let too_large = self.too_large(state, publish);
        if too_large {
            self.close(Refusal::new(
                Reason::PacketTooLarge,
                "the next record is larger than this client's Maximum Packet Size; raise it and connect again",
            ));
        }
        too_large
    }

    fn report_lost(&self, index: ChannelIndex, records: u64) {
        bump(&self.broker.counters.position_lost);
        self.broker
            .counters
            .position_lost_records
            .fetch_add(records, Relaxed);
        tracing::warn!(
            client = self.client_id(),
            channel = %self.broker.channel(index).name,
            records,
            "retention passed a connected consumer; it goes on at the floor"
        );
    }

    /// Whether reads would be made without a disk: a consumer that keeps up reads what was stored
    /// just now.
    #[must_use]
    pub fn are_in_memory(&self, reads: &Reads) -> bool {
        reads.0.iter().all(|read| match read {
            PendingRead::Ahead { channel, request } => {
                let channel = self.broker.channel(*channel);
                channel
                    .store
                    .is_in_memory(channel.id, request.offset, request.limit)
            }
            PendingRead::Retained(read) => self.broker.retained.is_in_memory(read),
            PendingRead::Again { .. } | PendingRead::Request(_) => false,
        })
    }

    /// Makes reads and hands their answers to the session. May touch a disk; takes no lock while it
    /// does.
    pub fn read(&self, reads: Reads, now: Now) {
        for read in reads.0 {
            match read {
                PendingRead::Ahead { channel, request } => {
                    self.read_ahead(channel, &request, now);
                }
                PendingRead::Again {
                    packet_id,
                    channel,
                    offset,
                    topic,
                } => match self.read_again(channel, offset, topic.as_deref()) {
                    Ok(record) => {
                        self.session.lock().resend_read = Some((packet_id, record));
                    }
                    Err(why) => self.unreadable(channel, offset, &why),
                },
                PendingRead::Request(request) => self.carry_out(request),
                PendingRead::Retained(read) => self.read_retained(&read),
            }
        }
    }

    fn read_ahead(&self, index: ChannelIndex, request: &ReadRequest, now: Now) {
        let channel = self.broker.channel(index);
        let answer = match channel.kind {
            ChannelKind::Latest => {
                channel
                    .store
                    .changes_from(channel.id, request.offset, request.limit)
            }
            _ => channel
                .store
                .read_from(channel.id, request.offset, request.limit),
        };
        let mut state = self.session.lock();
        let Some(reader) = state.readers.get_mut(&index) else {
            return;
        };
        let before = reader.stored_position();
        let filled = reader.filled(request, answer);
        let moved = reader.stored_position() != before;
        if let Err(why) = filled {
            tracing::error!(channel = %channel.name, why, "a consumer's read failed");
        }
        if moved {
            self.position_moved(&mut state, index, now);
        }
    }

    fn read_retained(&self, read: &RetainedRead) {
        let answer = self.broker.retained.read(read);
        let mut state = self.session.lock();
        match answer {
            Ok(answer) => state.retained.filled(read.number(), answer),
            Err(why) => {
                tracing::error!(client = self.client_id(), %why, "retained values could not be read");
                state.retained.failed(read.number());
            }
        }
    }

    /// The record of a delivery to be sent again; `None` where retention removed it or a newer value
    /// replaced it.
    fn read_again(
        &self,
        index: ChannelIndex,
        offset: u64,
        topic: Option<&[u8]>,
    ) -> Result<Option<Record>, ReadError> {
        let channel = self.broker.channel(index);
        let limit = ReadLimit {
            records: 1,
            bytes: 1,
        };
        let record = match topic {
            // A deletion is sent again as any other change is: a client that was not told of it
            // would keep the value.
            Some(topic) => {
                let changes = channel.store.changes_from(channel.id, offset, limit)?;
                let first = changes.records.into_iter().next();
                first.filter(|record| record.message.topic == topic)
            }
            None => match channel.store.read_from(channel.id, offset, limit) {
                Ok(read) => read.records.into_iter().next(),
                Err(ReadError::BelowFloor { .. }) => None,
                Err(failed) => return Err(failed),
            },
        };
        Ok(record.filter(|record| record.offset == offset))
    }

    /// What has to be sent again cannot be read. To step over it would be to lose it, and nothing
    /// else may go before it: the connection ends, and the session keeps what it is owed.
    fn unreadable(&self, index: ChannelIndex, offset: u64, why: &ReadError) {
        let channel = &self.broker.channel(index).name;
        tracing::error!(client = self.client_id(), %channel, offset, %why, "a delivery could not be sent again");
        self.close(Refusal::new(
            Reason::ImplementationSpecific,
            format!("a delivery owed from {channel} could not be read; connect again later"),
        ));
    }
}

fn spend(turn: &mut Turn<'_>, publish: &OutgoingPublish) {
    turn.budget
        .spend(64 + publish.topic.len() + publish.payload.len() + publish.properties.len());
}

/// What waited for the store and is stored.
fn take_stored(state: &mut State, turn: &mut Turn<'_>) {
    while !turn.budget.is_spent()
        && let Some(packet) = state.stored_out.pop_front()
    {
        if let Outgoing::Publish(publish) = &packet {
            spend(turn, publish);
        } else {
            turn.budget.spend(8);
        }
        turn.out.push(packet);
    }
}

impl Broker {
    pub(crate) fn channel_id(&self, index: ChannelIndex) -> ChannelId {
        self.channel(index).id
    }

    /// Puts a session on the list of those whose positions are to be stored.
    pub(crate) fn list_if_unlisted(&self, state: &mut State, session: &Arc<Session>, now: Now) {
        if std::mem::replace(&mut state.position_listed, true) {
            return;
        }
        let due = now.since_start + self.settings.ack_commit_interval;
        let first = {
            let mut list = lock(&self.schedule.positions);
            list.sessions.push(session.clone());
            let first = list.due.is_none();
            list.due.get_or_insert(due);
            first
        };
        if first {
            self.schedule.wake();
        }
    }
}

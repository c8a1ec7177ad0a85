//! Who of a group takes a message, and what waits until somebody can.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Group;
use crate::broker::broadcast_log::Logged;
use crate::broker::counters::bump;
use crate::broker::publish::text;
use crate::broker::session::broadcast::BroadcastDelivery;
use crate::broker::session::{Session, State, Subscription};
use crate::broker::shape::delivery_publish;
use crate::broker::time::Now;
use crate::broker::topic::ChannelIndex;
use crate::broker::{Broker, lock};
use crate::storage::{ChannelKind, Message, ReadLimit};

/// Most messages a group holds, however small: its ledger has to fit a value of the store.
const MAX_HELD: usize = 200_000;

/// One read of a channel for its groups.
const READ: ReadLimit = ReadLimit {
    records: 256,
    bytes: 256 * 1024,
};

/// The messages no member could take, oldest first, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Who took the last one.
    last: Option<Arc<str>>,
    held: VecDeque<BroadcastDelivery>,
    bytes: u64,
}

/// What came of a message that a group has to give.
enum Given {
    /// A member has it.
    Yes,
    /// Nobody can take it now.
    No(BroadcastDelivery),
    /// It is larger than every member that is there takes.
    TooLarge(BroadcastDelivery),
}

/// Why a member did not take one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Away,
    Busy,
    TooLarge,
}

impl Line {
    /// What waits names its group no more, or the group would keep itself alive.
    fn push_back(&mut self, mut delivery: BroadcastDelivery) {
        delivery.group = None;
        self.bytes += delivery.cost();
        self.held.push_back(delivery);
    }

    fn push_front(&mut self, mut delivery: BroadcastDelivery) {
        delivery.group = None;
        self.bytes += delivery.cost();
        self.held.push_front(delivery);
    }

    fn pop(&mut self) -> Option<BroadcastDelivery> {
        let delivery = self.held.pop_front()?;
        self.bytes -= delivery.cost();
        Some(delivery)
    }
}

impl Broker {
    /// Whether a broadcast message is a group's to keep where no member can take it.
    pub(in crate::broker) fn is_owed_to_a_group(&self, message: &Message) -> bool {
        !self.groups.is_empty()
            && message.qos > 0
            && self
                .groups
                .matching(text(&message.topic))
                .iter()
                .any(|group| group.holds())
    }

    /// Hands a broadcast message to one member of each group it is for.
    pub(in crate::broker) fn hand_to_groups(
        &self,
        message: &Arc<Message>,
        logged: Option<&Arc<Logged>>,
        now: Now,
    ) {
        if self.groups.is_empty() {
            return;
        }
        for group in self.groups.matching(text(&message.topic)) {
            let logged = logged.filter(|_| group.holds());
            if let Some(logged) = logged {
                group.takes_on(logged.offset);
            }
            let delivery = BroadcastDelivery {
                message: message.clone(),
                logged: logged.cloned(),
                group: Some(group.clone()),
                record: None,
                published: now.since_start,
                aged: 0,
                qos: message.qos,
                retain: false,
                identifiers: Vec::new(),
            };
            self.hand_to(&group, delivery, now);
        }
    }

    /// Hands groups what was stored in channels they reach since they were last handed anything.
    /// Called by one task, after the answers of a commit.
    pub(in crate::broker) fn hand_records_to_groups(&self) {
        if self.groups.is_empty() {
            return;
        }
        let mut cursors = lock(&self.groups.cursors).clone();
        for (index, cursor) in &mut cursors {
            self.hand_records(*index, cursor);
        }
        let mut kept = lock(&self.groups.cursors);
        for (index, cursor) in cursors {
            // Gone meanwhile: the last group of all has left.
            if let Some(kept) = kept.get_mut(&index) {
                *kept = (*kept).max(cursor);
            }
        }
    }

    fn hand_records(&self, index: ChannelIndex, cursor: &mut u64) {
        let channel = self.channel(index);
        while *cursor < channel.store.counters(channel.id).next {
            let read = match channel.kind {
                ChannelKind::Latest => channel.store.changes_from(channel.id, *cursor, READ),
                _ => channel.store.read_from(channel.id, *cursor, READ),
            };
            let read = match read {
                Ok(read) => read,
                Err(crate::storage::ReadError::BelowFloor { floor }) => {
                    *cursor = floor;
                    continue;
                }
                Err(why) => {
                    tracing::error!(channel = %channel.name, %why, "what groups are to be handed could not be read");
                    *cursor = channel.store.counters(channel.id).next;
                    return;
                }
            };
            *cursor = match read.records.last() {
                Some(last) => last.offset + 1,
                None => read.next.max(*cursor + 1),
            };
            let now = self.now();
            for record in read.records {
                let groups = self.groups.matching(text(&record.message.topic));
                let message = Arc::new(record.message.detached());
                for group in groups {
                    if !group.is_served(index, record.offset) {
                        continue;
                    }
                    let delivery = BroadcastDelivery {
                        message: message.clone(),
                        logged: None,
                        group: Some(group.clone()),
                        record: Some((index, record.offset)),
                        published: now.since_start,
                        aged: 0,
                        qos: message.qos,
                        retain: false,
                        identifiers: Vec::new(),
                    };
                    self.hand_to(&group, delivery, now);
                }
            }
        }
    }

    fn hand_to(&self, group: &Arc<Group>, delivery: BroadcastDelivery, now: Now) {
        let mut line = lock(&group.line);
        self.serve_line(group, &mut line, now);
        // What is held goes first; QoS 0 has nothing to wait for.
        let given = if line.held.is_empty() || delivery.message.qos == 0 {
            self.give(group, &mut line, delivery, now)
        } else {
            Given::No(delivery)
        };
        match given {
            Given::Yes => {}
            Given::TooLarge(delivery) => self.drop_too_large(group, &delivery),
            Given::No(delivery) => self.hold_in_line(group, &mut line, delivery),
        }
    }

    /// What none of the members that are there can ever take is dropped, as broadcast is for a client
    /// alone: held, it would hold up all that comes behind it.
    fn drop_too_large(&self, group: &Group, delivery: &BroadcastDelivery) {
        group.is_done_with(delivery);
        bump(&self.counters.broadcast_dropped_too_large);
    }

    /// Serves what is held, as far as there are members to take it.
    pub(in crate::broker) fn serve_group(&self, group: &Arc<Group>, now: Now) {
        let mut line = lock(&group.line);
        self.serve_line(group, &mut line, now);
    }

    fn serve_line(&self, group: &Arc<Group>, line: &mut Line, now: Now) {
        while let Some(delivery) = line.pop() {
            if self.has_waited_too_long(&delivery, now) {
                group.is_done_with(&delivery);
                bump(&self.counters.shared_expired);
                continue;
            }
            match self.give(group, line, delivery, now) {
                Given::Yes => {}
                Given::TooLarge(delivery) => self.drop_too_large(group, &delivery),
                Given::No(delivery) => {
                    line.push_front(delivery);
                    return;
                }
            }
        }
    }

    fn has_waited_too_long(&self, delivery: &BroadcastDelivery, now: Now) -> bool {
        let here = now.since_start.saturating_sub(delivery.published);
        let waited = here + Duration::from_secs(delivery.aged);
        let bound = self.groups.expires_after;
        bound.is_some_and(|bound| waited >= bound) || delivery_publish(delivery, now).is_none()
    }

    /// Keeps a message until a member can take it, or drops it where the group does not hold.
    pub(super) fn hold_in_line(
        &self,
        group: &Arc<Group>,
        line: &mut Line,
        delivery: BroadcastDelivery,
    ) {
        if delivery.message.qos == 0 || !group.holds() {
            group.is_done_with(&delivery);
            bump(&self.counters.shared_dropped);
            return;
        }
        line.push_back(delivery);
        self.keep_to_the_bound(group, line);
    }

    fn keep_to_the_bound(&self, group: &Arc<Group>, line: &mut Line) {
        while line.bytes > self.settings.session_queue_bytes || line.held.len() > MAX_HELD {
            let Some(oldest) = line.pop() else { return };
            group.is_done_with(&oldest);
            bump(&self.counters.shared_given_up);
        }
    }

    /// Messages that members did not take after all come back ahead of what is held, in their order.
    /// Called without a session's lock.
    pub(in crate::broker) fn return_to_groups(&self, returned: Vec<BroadcastDelivery>, now: Now) {
        let mut groups: BTreeMap<u64, Arc<Group>> = BTreeMap::new();
        for delivery in returned.into_iter().rev() {
            let Some(group) = delivery.group.clone() else {
                continue;
            };
            if delivery.message.qos == 0 || group.members().is_empty() {
                group.is_done_with(&delivery);
                bump(&self.counters.shared_dropped);
                continue;
            }
            lock(&group.line).push_front(delivery);
            groups.insert(group.number, group);
        }
        for group in groups.into_values() {
            let mut line = lock(&group.line);
            self.serve_line(&group, &mut line, now);
            if !group.holds() {
                // Nobody could take it, and nobody's session is kept.
                self.drop_all(&group, &mut line);
            }
            self.keep_to_the_bound(&group, &mut line);
        }
    }

    /// Serves groups that found no room in a session. Called without its lock.
    pub(in crate::broker) fn serve_groups(&self, groups: &[Arc<Group>], now: Now) {
        for group in groups {
            self.serve_group(group, now);
        }
    }

    /// Lets go of what has waited too long, and stores where groups are.
    pub(in crate::broker) fn sweep_groups(&self, now: Now) {
        for group in self.groups.all() {
            self.serve_group(&group, now);
        }
        self.store_ledgers();
        for group in std::mem::take(&mut *lock(&self.groups.ended)) {
            self.drop_all(&group, &mut lock(&group.line));
        }
    }

    /// Gives up what is held and lies in the broadcast log below `offset`; returns how many that were.
    pub(in crate::broker) fn give_up_in_groups(&self, offset: u64) -> usize {
        let mut given_up = 0;
        for group in self.groups.all() {
            let mut line = lock(&group.line);
            for _ in 0..line.held.len() {
                let Some(delivery) = line.pop() else { break };
                let logged = delivery.logged.as_ref();
                if logged.is_some_and(|logged| logged.offset < offset) {
                    group.is_done_with(&delivery);
                    given_up += 1;
                } else {
                    line.push_back(delivery);
                }
            }
        }
        given_up
    }

    fn drop_all(&self, group: &Group, line: &mut Line) {
        while let Some(delivery) = line.pop() {
            group.is_done_with(&delivery);
            bump(&self.counters.shared_dropped);
        }
    }

    /// Gives a message to the first member behind the last one that can take it.
    fn give(
        &self,
        group: &Arc<Group>,
        line: &mut Line,
        mut delivery: BroadcastDelivery,
        now: Now,
    ) -> Given {
        let members = group.members();
        let behind = match &line.last {
            Some(last) => members.partition_point(|member| member.client_id <= *last),
            None => 0,
        };
        let (mut too_large, mut busy) = (false, false);
        for member in members[behind..].iter().chain(&members[..behind]) {
            match self.give_to(member, group, delivery, now) {
                Ok(()) => {
                    line.last = Some(member.client_id.clone());
                    return Given::Yes;
                }
                Err((refused, why)) => {
                    delivery = refused;
                    too_large |= why == Why::TooLarge;
                    busy |= why == Why::Busy;
                }
            }
        }
        if too_large && !busy {
            Given::TooLarge(delivery)
        } else {
            Given::No(delivery)
        }
    }

    fn give_to(
        &self,
        member: &Session,
        group: &Arc<Group>,
        mut delivery: BroadcastDelivery,
        now: Now,
    ) -> Result<(), (BroadcastDelivery, Why)> {
        let mut state = member.lock();
        delivery.group = Some(group.clone());
        let is_there = state.link.is_some() && !state.ended && !state.claimed;
        if !is_there || !decide_shared(&state, &mut delivery) {
            return Err((delivery, Why::Away));
        }
        let bound = state
            .link
            .as_ref()
            .map(|link| (link.protocol, link.maximum_packet_size));
        if let Some((protocol, bound)) = bound
            && bound < u64::MAX
            && delivery_publish(&delivery, now)
                .is_some_and(|publish| publish.encoded_size(protocol) > bound)
        {
            return Err((delivery, Why::TooLarge));
        }
        let most = self.settings.session_queue_bytes;
        let window = delivery.qos == 0 || state.window() > state.broadcast.waiting_acked();
        if !window || !state.broadcast.has_room(&delivery, most) {
            let is_known = |own: &Arc<Group>| Arc::ptr_eq(own, group);
            if !state.refused_groups.iter().any(is_known) {
                state.refused_groups.push(group.clone());
            }
            return Err((delivery, Why::Busy));
        }
        state.broadcast.offer(delivery, most);
        state.wake_writer();
        Ok(())
    }
}

/// QoS, RETAIN and identifier of a group's message are those of the member's subscription as it is;
/// returns whether there is one.
pub(in crate::broker) fn decide_shared(state: &State, delivery: &mut BroadcastDelivery) -> bool {
    let Some(group) = &delivery.group else {
        return false;
    };
    if state.leaving.contains(&group.name) {
        return false;
    }
    let subscription: Option<&Arc<Subscription>> = state.subscriptions.get(&group.name);
    let Some(subscription) = subscription else {
        return false;
    };
    delivery.qos = subscription.qos.min(delivery.message.qos);
    delivery.retain = subscription.retain_as_published && delivery.message.retain;
    delivery.identifiers.clear();
    delivery.identifiers.extend(subscription.identifier);
    true
}

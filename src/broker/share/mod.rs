//! Shared subscriptions: `$share/<group>/<filter>`, each message to one member.
//!
//! A group is served what is published from its beginning on: broadcast, records of append channels,
//! changes of latest channels; of a queue nothing. Who takes a message is decided as it comes, by turns
//! in the order of client identifiers, among the members that are connected and have room for it.
//!
//! | a message that no member can take | becomes |
//! |---|---|
//! | at QoS 0 | dropped, counted |
//! | of a group whose members' sessions all end with their connections | dropped, counted |
//! | at QoS 1 or 2, of a group with a member whose session is kept | held, in order, ahead of later ones, within `session_queue_bytes` and `share.expires_after` |
//! | the same of broadcast | in the broadcast log besides, and held again after a start |
//!
//! What comes from a channel has no place in the group across a restart: the channel keeps its records,
//! and a group has no position there.
//!
//! Locks: a group's line is taken before a session's lock; its list of members, its ledger and the
//! index of groups behind one.

mod ledger;
mod offsets;
mod serve;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::storage::{Operation, Space};

use super::session::Session;
use super::topic::{ChannelIndex, SubscriptionTrie, TopicFilter};
use super::{Broker, lock};

pub(super) use serve::decide_shared;

use ledger::Ledger;
use serve::Line;

/// Every group there is.
pub(crate) struct Groups {
    by_name: Mutex<HashMap<Arc<str>, Arc<Group>>>,
    /// By number, so that one filter may have many groups.
    index: RwLock<SubscriptionTrie<u64, Arc<Group>>>,
    /// How many there are, for those who ask without a lock.
    count: AtomicUsize,
    /// Up to where each channel that groups reach has been handed to them.
    cursors: Mutex<BTreeMap<ChannelIndex, u64>>,
    /// Groups whose last member has left; what they held is dropped and counted by the next sweep.
    ended: Mutex<Vec<Arc<Group>>>,
    /// Held while a ledger is read and handed to the store, so that no older one follows a newer.
    pub(super) writing: Mutex<()>,
    /// How long a held message waits for a member; `None`: as long as it takes.
    pub(super) expires_after: Option<Duration>,
}

/// One group with one filter.
pub(crate) struct Group {
    number: u64,
    /// The whole subscription, as its members wrote it.
    pub(super) name: Arc<str>,
    filter: TopicFilter,
    /// The channels it is served from, and from which offset on.
    channels: Vec<(ChannelIndex, u64)>,
    /// In the order of client identifiers.
    members: Mutex<Arc<Vec<Arc<Session>>>>,
    line: Mutex<Line>,
    ledger: Mutex<Ledger>,
    /// Its last member has left: the store is to know nothing of it any more.
    has_ended: AtomicBool,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({:?})", self.name)
    }
}

impl Groups {
    pub fn new(expires_after: Option<Duration>) -> Self {
        Groups {
            by_name: Mutex::default(),
            index: RwLock::new(SubscriptionTrie::new()),
            count: AtomicUsize::new(0),
            cursors: Mutex::default(),
            ended: Mutex::default(),
            writing: Mutex::default(),
            expires_after,
        }
    }

    /// Whether there is none. May be behind by a moment.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<Group>> {
        lock(&self.by_name).get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<Group>> {
        lock(&self.by_name).values().cloned().collect()
    }

    /// The groups whose filter matches a topic.
    fn matching(&self, topic: &str) -> Vec<Arc<Group>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        index.visit(topic, |_, group| found.push(group.clone()));
        found
    }
}

impl Group {
    fn members(&self) -> Arc<Vec<Arc<Session>>> {
        lock(&self.members).clone()
    }

    /// Whether a message that no member can take is kept for one that comes back.
    fn holds(&self) -> bool {
        self.members().iter().any(|member| member.outlives())
    }

    /// Whether a record of a channel is the group's: it began before it.
    fn is_served(&self, channel: ChannelIndex, offset: u64) -> bool {
        let from = self.channels.iter().find(|(own, _)| *own == channel);
        from.is_some_and(|(_, from)| offset >= *from)
    }

    fn add(&self, session: &Arc<Session>) {
        let mut members = lock(&self.members);
        let mut changed: Vec<_> = members.iter().cloned().collect();
        changed.retain(|member| member.client_id != session.client_id);
        let at = changed.partition_point(|member| member.client_id < session.client_id);
        changed.insert(at, session.clone());
        *members = Arc::new(changed);
    }

    /// Returns whether nobody is left.
    fn remove(&self, session: &Session) -> bool {
        let mut members = lock(&self.members);
        let mut left: Vec<_> = members.iter().cloned().collect();
        left.retain(|member| member.key != session.key);
        let is_empty = left.is_empty();
        *members = Arc::new(left);
        is_empty
    }
}

impl Broker {
    /// Makes a session a member; the group begins with its first. May be called under the session's
    /// lock.
    pub(crate) fn join_group(&self, name: &Arc<str>, filter: &TopicFilter, session: &Arc<Session>) {
        let mut by_name = lock(&self.groups.by_name);
        if let Some(group) = by_name.get(name) {
            group.add(session);
            return;
        }
        let number = lock(&self.registry).number();
        // In the index before any offset is read: what is stored after that is handed to it.
        let reaches = self.routes.reach(filter).channels;
        let mut cursors = lock(&self.groups.cursors);
        let channels = reaches.into_iter().map(|index| {
            let channel = self.channel(index);
            let next = channel.store.counters(channel.id).next;
            cursors.entry(index).or_insert(next);
            (index, next)
        });
        let group = Arc::new(Group {
            number,
            name: name.clone(),
            filter: filter.clone(),
            channels: channels.collect(),
            members: Mutex::default(),
            line: Mutex::default(),
            ledger: Mutex::new(Ledger::beginning(self.log.next())),
            has_ended: AtomicBool::new(false),
        });
        drop(cursors);
        group.add(session);
        self.groups
            .index
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(filter, number, group.clone());
        by_name.insert(name.clone(), group);
        self.groups.count.store(by_name.len(), Relaxed);
    }

    /// Ends a membership; with the last one the group ends, and what it held with it. May be called
    /// under the session's lock.
    pub(crate) fn leave_group(&self, name: &str, session: &Session) {
        let mut by_name = lock(&self.groups.by_name);
        let Some(group) = by_name.get(name) else {
            return;
        };
        if !group.remove(session) {
            return;
        }
        self.groups
            .index
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&group.filter, &group.number);
        group.has_ended.store(true, Relaxed);
        let group = by_name.remove(name);
        self.groups.count.store(by_name.len(), Relaxed);
        if by_name.is_empty() {
            lock(&self.groups.cursors).clear();
        }
        let is_stored = group
            .as_ref()
            .is_some_and(|group| lock(&group.ledger).is_stored());
        lock(&self.groups.ended).extend(group);
        if is_stored {
            let delete = Operation::Delete {
                space: Space::Groups,
                key: bytes::Bytes::copy_from_slice(name.as_bytes()),
            };
            let _writing = lock(&self.groups.writing);
            self.submit_session_write(&session.client_id, delete.into());
        }
    }
}

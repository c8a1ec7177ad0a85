//! Who is subscribed to a topic.

use std::collections::BTreeMap;

use super::filter::TopicFilter;
use super::tree::LevelTree;

/// Subscribers by filter: each filter holds at most one value per key.
///
/// `K` is who is subscribed, `V` what the subscription says (its options). Visiting a topic costs
/// what its matches cost, never the whole tree, and a filter's nodes go with its last subscriber.
#[derive(Debug)]
pub struct SubscriptionTrie<K, V = ()> {
    tree: LevelTree<Holders<K, V>>,
    len: usize,
}

/// Who holds one filter. Most have one holder, which costs no map.
#[derive(Debug)]
enum Holders<K, V> {
    One(K, V),
    Many(BTreeMap<K, V>),
}

impl<K: Ord, V> Holders<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        match self {
            Holders::One(own, value) => (own == key).then_some(value),
            Holders::Many(map) => map.get(key),
        }
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Holders::One(own, value) => (own == key).then_some(value),
            Holders::Many(map) => map.get_mut(key),
        }
    }

    fn insert(self, key: K, value: V) -> (Self, Option<V>) {
        match self {
            Holders::One(own, before) if own == key => (Holders::One(own, value), Some(before)),
            Holders::One(own, held) => {
                let map = BTreeMap::from([(own, held), (key, value)]);
                (Holders::Many(map), None)
            }
            Holders::Many(mut map) => {
                let before = map.insert(key, value);
                (Holders::Many(map), before)
            }
        }
    }

    /// What is left, and what `key` held.
    fn remove(self, key: &K) -> (Option<Self>, Option<V>) {
        match self {
            Holders::One(own, value) if own == *key => (None, Some(value)),
            one @ Holders::One(..) => (Some(one), None),
            Holders::Many(mut map) => {
                let before = map.remove(key);
                let left = match map.len() {
                    0 => None,
                    1 => map.pop_first().map(|(own, held)| Holders::One(own, held)),
                    _ => Some(Holders::Many(map)),
                };
                (left, before)
            }
        }
    }
}

impl<K, V> Default for SubscriptionTrie<K, V> {
    fn default() -> Self {
        Self {
            tree: LevelTree::default(),
            len: 0,
        }
    }
}

impl<K: Ord, V> SubscriptionTrie<K, V> {
    /// What one level of a filter costs at most where it shares none with another, its name's text
    /// aside, bytes.
    pub const LEVEL_BYTES: usize = LevelTree::<Holders<K, V>>::LEVEL_BYTES;

    /// What a subscription costs at its last level: a map node, which has eleven places.
    pub const VALUE_BYTES: usize = 11 * (size_of::<K>() + size_of::<V>()) + 32;

    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Subscribes `key` to `filter`; hands back what an equal subscription held before.
    pub fn insert(&mut self, filter: &TopicFilter, key: K, value: V) -> Option<V> {
        let place = self.tree.place(filter);
        let (holders, before) = match place.take() {
            None => (Holders::One(key, value), None),
            Some(holders) => holders.insert(key, value),
        };
        *place = Some(holders);
        if before.is_none() {
            self.len += 1;
        }
        before
    }

    /// Ends the subscription of `key` to exactly `filter`; hands back what it held.
    pub fn remove(&mut self, filter: &TopicFilter, key: &K) -> Option<V> {
        // Looked at first: taking a filter out takes its levels with it.
        self.tree.get(filter)?.get(key)?;
        let (left, before) = self.tree.take(filter)?.remove(key);
        if left.is_some() {
            *self.tree.place(filter) = left;
        }
        self.len -= 1;
        before
    }

    /// What `key` holds on exactly `filter`.
    #[must_use]
    pub fn get(&self, filter: &TopicFilter, key: &K) -> Option<&V> {
        self.tree.get(filter)?.get(key)
    }

    /// As [`SubscriptionTrie::get`], to change it.
    pub fn get_mut(&mut self, filter: &TopicFilter, key: &K) -> Option<&mut V> {
        self.tree.get_mut(filter)?.get_mut(key)
    }

    /// Calls `visit` for every subscription whose filter matches `topic`.
    ///
    /// A key with several matching filters is visited once for each. The order is fixed: the most
    /// exact filter first, and by key within a filter.
    pub fn visit<'t>(&'t self, topic: &str, mut visit: impl FnMut(&'t K, &'t V)) {
        self.tree.visit(topic, |subscribers| {
            match subscribers {
                Holders::One(key, value) => visit(key, value),
                Holders::Many(map) => map.iter().for_each(|(key, value)| visit(key, value)),
            }
            true
        });
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many levels the tree holds, for those who account for its memory; 1 when empty.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.tree.node_count()
    }
}

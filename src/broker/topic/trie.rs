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
    tree: LevelTree<BTreeMap<K, V>>,
    len: usize,
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
    pub const LEVEL_BYTES: usize = LevelTree::<BTreeMap<K, V>>::LEVEL_BYTES;

    /// What a subscription costs at its last level: a map node, which has eleven places.
    pub const VALUE_BYTES: usize = 11 * (size_of::<K>() + size_of::<V>()) + 32;

    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Subscribes `key` to `filter`; hands back what an equal subscription held before.
    pub fn insert(&mut self, filter: &TopicFilter, key: K, value: V) -> Option<V> {
        let subscribers = self.tree.place(filter).get_or_insert_with(BTreeMap::new);
        let before = subscribers.insert(key, value);
        if before.is_none() {
            self.len += 1;
        }
        before
    }

    /// Ends the subscription of `key` to exactly `filter`; hands back what it held.
    pub fn remove(&mut self, filter: &TopicFilter, key: &K) -> Option<V> {
        let subscribers = self.tree.get_mut(filter)?;
        let before = subscribers.remove(key)?;
        if subscribers.is_empty() {
            self.tree.take(filter);
        }
        self.len -= 1;
        Some(before)
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
            for (key, value) in subscribers {
                visit(key, value);
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

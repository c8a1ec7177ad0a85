//! Who wants a topic: an index from filters to the sessions subscribed to them.
//!
//! One index serves broadcast, which is pushed, and append and latest channels, whose readers are
//! woken. It is read for every publish and written by SUBSCRIBE, UNSUBSCRIBE and the end of a
//! session; it is never held while anything else is locked.

use std::collections::{BTreeMap, HashMap};

/// An index of values by filter and owner. An owner has at most one value per filter.
#[derive(Debug)]
pub struct SubscriptionIndex<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
struct Node<T> {
    levels: HashMap<Box<str>, Node<T>>,
    any: Option<Box<Node<T>>>,
    here: BTreeMap<u64, T>,
    below: BTreeMap<u64, T>,
}

impl<T> Node<T> {
    fn new() -> Self {
        Node {
            levels: HashMap::new(),
            any: None,
            here: BTreeMap::new(),
            below: BTreeMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.levels.is_empty()
            && self.any.is_none()
            && self.here.is_empty()
            && self.below.is_empty()
    }

    /// The node of `level`, made where it is missing.
    fn child(&mut self, level: &str) -> &mut Node<T> {
        if level == "+" {
            return self.any.get_or_insert_with(|| Box::new(Node::new()));
        }
        self.levels.entry(level.into()).or_insert_with(Node::new)
    }

    fn existing_child(&mut self, level: &str) -> Option<&mut Node<T>> {
        if level == "+" {
            self.any.as_deref_mut()
        } else {
            self.levels.get_mut(level)
        }
    }

    fn drop_child(&mut self, level: &str) {
        if level == "+" {
            self.any = None;
        } else {
            self.levels.remove(level);
        }
    }
}

impl<T> Default for SubscriptionIndex<T> {
    fn default() -> Self {
        SubscriptionIndex {
            root: Node::new(),
            len: 0,
        }
    }
}

impl<T> SubscriptionIndex<T> {
    /// Adds `owner`'s value under `filter`, or replaces it.
    pub fn insert(&mut self, filter: &str, owner: u64, value: T) {
        let mut node = &mut self.root;
        let mut below = false;
        for level in filter.split('/') {
            if level == "#" {
                below = true;
                break;
            }
            node = node.child(level);
        }
        let place = if below {
            &mut node.below
        } else {
            &mut node.here
        };
        if place.insert(owner, value).is_none() {
            self.len += 1;
        }
    }

    /// Removes `owner`'s value under `filter`; returns whether there was one.
    pub fn remove(&mut self, filter: &str, owner: u64) -> bool {
        let mut levels: Vec<&str> = filter.split('/').collect();
        let below = levels.last() == Some(&"#");
        if below {
            levels.pop();
        }
        let Some(node) = levels
            .iter()
            .try_fold(&mut self.root, |node, level| node.existing_child(level))
        else {
            return false;
        };
        let place = if below {
            &mut node.below
        } else {
            &mut node.here
        };
        if place.remove(&owner).is_none() {
            return false;
        }
        self.len -= 1;
        self.prune(&levels);
        true
    }

    /// Drops the branch of `levels` from its first node that leads nowhere any more, so that
    /// filters that come and go leave nothing behind (invariant 13).
    fn prune(&mut self, levels: &[&str]) {
        let mut emptied = 0;
        // The longest prefix that something else still uses.
        let mut node = &self.root;
        for (depth, level) in levels.iter().enumerate() {
            let child = if *level == "+" {
                node.any.as_deref()
            } else {
                node.levels.get(*level)
            };
            let Some(child) = child else { return };
            let only_child = node.levels.len() + usize::from(node.any.is_some()) == 1;
            if !(only_child && node.here.is_empty() && node.below.is_empty()) {
                emptied = depth;
            }
            node = child;
        }
        if levels.is_empty() || !node.is_empty() {
            return;
        }
        let (keep, gone) = levels.split_at(emptied);
        let Some(parent) = keep
            .iter()
            .try_fold(&mut self.root, |node, level| node.existing_child(level))
        else {
            return;
        };
        if let Some(level) = gone.first() {
            parent.drop_child(level);
        }
    }

    /// Calls `found` with the owner and value of every filter that matches `topic`. An owner with
    /// several matching filters is reported once for each.
    pub fn for_each_match(&self, topic: &str, mut found: impl FnMut(u64, &T)) {
        let levels: Vec<&str> = topic.split('/').collect();
        // MQTT-4.7.2-1: a leading wildcard does not match a topic that begins with `$`.
        let dollar = topic.starts_with('$');
        // A stack of our own: a filter may have as many levels as the operator allows.
        let mut open: Vec<(&Node<T>, usize)> = vec![(&self.root, 0)];
        while let Some((node, depth)) = open.pop() {
            let wildcards = !(dollar && depth == 0);
            if wildcards {
                // `a/#` matches `a` too (MQTT-4.7.1-2, non-normative), hence before the end test.
                for (owner, value) in &node.below {
                    found(*owner, value);
                }
            }
            match levels.get(depth) {
                None => {
                    for (owner, value) in &node.here {
                        found(*owner, value);
                    }
                }
                Some(level) => {
                    if let Some(child) = node.levels.get(*level) {
                        open.push((child, depth + 1));
                    }
                    if wildcards && let Some(child) = &node.any {
                        open.push((child, depth + 1));
                    }
                }
            }
        }
    }

    /// How many values are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(index: &SubscriptionIndex<()>, topic: &str) -> Vec<u64> {
        let mut owners = Vec::new();
        index.for_each_match(topic, |owner, ()| owners.push(owner));
        owners.sort_unstable();
        owners
    }

    #[test]
    fn a_filter_finds_its_topics_and_no_others() {
        let mut index = SubscriptionIndex::default();
        for (owner, filter) in ["a/b", "a/+", "a/#", "#", "+/b", "+", "/", "a/+/c"]
            .iter()
            .enumerate()
        {
            index.insert(filter, owner as u64, ());
        }
        assert_eq!(matches(&index, "a/b"), [0, 1, 2, 3, 4]);
        assert_eq!(matches(&index, "a"), [2, 3, 5]);
        assert_eq!(matches(&index, "/"), [3, 6]);
        assert_eq!(matches(&index, "a/x/c"), [2, 3, 7]);
        assert_eq!(matches(&index, "a/"), [1, 2, 3]);
    }

    #[test]
    fn a_leading_wildcard_does_not_reach_a_dollar_topic() {
        let mut index = SubscriptionIndex::default();
        index.insert("#", 1, ());
        index.insert("+/b", 2, ());
        index.insert("$a/#", 3, ());
        index.insert("$a/+", 4, ());
        assert_eq!(matches(&index, "$a/b"), [3, 4]);
    }

    #[test]
    fn what_is_removed_leaves_no_branch_behind() {
        let mut index = SubscriptionIndex::default();
        index.insert("a/b/c", 1, ());
        index.insert("a/b/#", 1, ());
        index.insert("a/b/c", 2, ());
        assert!(index.remove("a/b/c", 1));
        assert!(!index.remove("a/b/c", 1));
        assert_eq!(matches(&index, "a/b/c"), [1, 2]);
        assert!(index.remove("a/b/#", 1));
        assert!(index.remove("a/b/c", 2));
        assert!(index.is_empty());
        assert!(index.root.is_empty());
    }

    /// The definition, level by level, without an index.
    fn plainly_matches(filter: &str, topic: &str) -> bool {
        if topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
            return false;
        }
        let mut topic = topic.split('/');
        for level in filter.split('/') {
            if level == "#" {
                return true;
            }
            match topic.next() {
                Some(at) if level == "+" || level == at => {}
                _ => return false,
            }
        }
        topic.next().is_none()
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_the_definition(
            filters in proptest::collection::vec("[ab+$]?(/[ab+]?){0,3}(/#)?", 1..12),
            removed in proptest::collection::vec(any::<bool>(), 12),
            topic in "[ab$]?(/[ab]?){0,4}",
        ) {
            let mut index = SubscriptionIndex::default();
            for (owner, filter) in filters.iter().enumerate() {
                index.insert(filter, owner as u64, ());
            }
            for (owner, filter) in filters.iter().enumerate() {
                if removed[owner] {
                    prop_assert!(index.remove(filter, owner as u64));
                }
            }
            let expected: Vec<u64> = filters
                .iter()
                .enumerate()
                .filter(|(owner, filter)| !removed[*owner] && plainly_matches(filter, &topic))
                .map(|(owner, _)| owner as u64)
                .collect();
            prop_assert_eq!(matches(&index, &topic), expected);
            for (owner, filter) in filters.iter().enumerate() {
                index.remove(filter, owner as u64);
            }
            prop_assert!(index.root.is_empty());
        }
    }
}

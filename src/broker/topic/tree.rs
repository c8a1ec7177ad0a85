//! Filters laid out as a tree of levels, shared by routing and by subscriptions.
//!
//! The nodes live in one vector and point at each other by number. A filter may have as many
//! levels as it has bytes, and a tree of owned boxes would recurse that deep when walked or
//! dropped: a hostile filter would overflow the stack.

use std::collections::HashMap;

use super::filter::{Level, TopicFilter};

const ROOT: usize = 0;

/// A child's entry in a map that is half full, and its name's allocation.
const ENTRY_BYTES: usize = 2 * size_of::<(Box<str>, usize)>() + 16;

/// A tree of filters with at most one value each.
#[derive(Debug)]
pub(super) struct LevelTree<V> {
    nodes: Vec<Node<V>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Node<V> {
    names: Names,
    plus: Option<usize>,
    hash: Option<usize>,
    value: Option<V>,
}

/// The children with a name. Most nodes of a deep filter have one, which costs no map.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a map in place would make every node twice as large"
)]
enum Names {
    #[default]
    None,
    One(Box<str>, usize),
    Many(Box<HashMap<Box<str>, usize>>),
}

impl Names {
    fn get(&self, name: &str) -> Option<usize> {
        match self {
            Names::None => None,
            Names::One(held, child) => (**held == *name).then_some(*child),
            Names::Many(children) => children.get(name).copied(),
        }
    }

    fn insert(&mut self, name: &str, child: usize) {
        *self = match std::mem::take(self) {
            Names::None => Names::One(name.into(), child),
            Names::One(held, first) => {
                Names::Many(Box::new([(held, first), (name.into(), child)].into()))
            }
            Names::Many(mut children) => {
                children.insert(name.into(), child);
                Names::Many(children)
            }
        };
    }

    fn remove(&mut self, name: &str) -> Option<usize> {
        let removed = match self {
            Names::None => None,
            Names::One(..) => {
                let child = self.get(name)?;
                *self = Names::None;
                Some(child)
            }
            Names::Many(children) => children.remove(name),
        };
        // A map keeps its room when emptied; a node that once had many children would hold it for
        // ever.
        if matches!(self, Names::Many(children) if children.is_empty()) {
            *self = Names::None;
        }
        removed
    }

    fn is_empty(&self) -> bool {
        matches!(self, Names::None)
    }
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self {
            names: Names::None,
            plus: None,
            hash: None,
            value: None,
        }
    }
}

impl<V> Node<V> {
    fn child(&self, level: Level<'_>) -> Option<usize> {
        match level {
            Level::Name(name) => self.names.get(name),
            Level::Plus => self.plus,
            Level::Hash => self.hash,
        }
    }

    fn is_bare(&self) -> bool {
        self.value.is_none() && self.plus.is_none() && self.hash.is_none() && self.names.is_empty()
    }
}

impl<V> Default for LevelTree<V> {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: Vec::new(),
        }
    }
}

impl<V> LevelTree<V> {
    /// What one level costs at most, its name's text aside, bytes: the node, twice while the vector
    /// grows, and its entry in its parent with the rounding of the allocator.
    pub(super) const LEVEL_BYTES: usize = 2 * size_of::<Node<V>>() + ENTRY_BYTES;

    /// The place of `filter`'s value; the nodes on the way there are made.
    pub(super) fn place(&mut self, filter: &TopicFilter) -> &mut Option<V> {
        let mut at = ROOT;
        for level in filter.levels() {
            at = match self.nodes[at].child(level) {
                Some(child) => child,
                None => self.grow(at, level),
            };
        }
        &mut self.nodes[at].value
    }

    /// The value of `filter` itself, whatever it matches.
    pub(super) fn get(&self, filter: &TopicFilter) -> Option<&V> {
        let mut at = ROOT;
        for level in filter.levels() {
            at = self.nodes[at].child(level)?;
        }
        self.nodes[at].value.as_ref()
    }

    /// As [`LevelTree::get`], to change it.
    pub(super) fn get_mut(&mut self, filter: &TopicFilter) -> Option<&mut V> {
        let mut at = ROOT;
        for level in filter.levels() {
            at = self.nodes[at].child(level)?;
        }
        self.nodes[at].value.as_mut()
    }

    /// Takes the value of `filter` out, and every node that then leads nowhere.
    pub(super) fn take(&mut self, filter: &TopicFilter) -> Option<V> {
        let mut path = vec![];
        let mut at = ROOT;
        for level in filter.levels() {
            path.push((at, level));
            at = self.nodes[at].child(level)?;
        }
        let value = self.nodes[at].value.take();
        while let Some((parent, level)) = path.pop() {
            if !self.nodes[at].is_bare() {
                break;
            }
            self.cut(parent, level);
            at = parent;
        }
        value
    }

    /// How many nodes are in use, the root included.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Every value whose filter matches `topic`, the most exact first, until `visit` says `false`.
    pub(super) fn visit<'t>(&'t self, topic: &str, mut visit: impl FnMut(&'t V) -> bool) {
        // What is left to look at, the most exact on top: below a spelled-out level comes first,
        // then below `+`, then `#` (invariant 12). No node is looked at twice.
        let mut left = vec![(ROOT, Some(topic))];
        let hidden = topic.starts_with('$');
        while let Some((at, rest)) = left.pop() {
            let node = &self.nodes[at];
            // MQTT-4.7.2-1: a leading wildcard does not see `$`.
            let wildcards_apply = !(hidden && at == ROOT);
            if rest.is_none()
                && let Some(value) = &node.value
                && !visit(value)
            {
                return;
            }
            if wildcards_apply && let Some(hash) = node.hash {
                left.push((hash, None));
            }
            let Some(rest) = rest else { continue };
            let (name, below) = match rest.split_once('/') {
                Some((name, below)) => (name, Some(below)),
                None => (rest, None),
            };
            if wildcards_apply && let Some(plus) = node.plus {
                left.push((plus, below));
            }
            if let Some(child) = node.names.get(name) {
                left.push((child, below));
            }
        }
    }

    fn grow(&mut self, parent: usize, level: Level<'_>) -> usize {
        let child = match self.free.pop() {
            Some(reused) => reused,
            None => {
                self.nodes.push(Node::default());
                self.nodes.len() - 1
            }
        };
        let node = &mut self.nodes[parent];
        match level {
            Level::Name(name) => {
                node.names.insert(name, child);
            }
            Level::Plus => node.plus = Some(child),
            Level::Hash => node.hash = Some(child),
        }
        child
    }

    fn cut(&mut self, parent: usize, level: Level<'_>) {
        let node = &mut self.nodes[parent];
        let child = match level {
            Level::Name(name) => node.names.remove(name),
            Level::Plus => node.plus.take(),
            Level::Hash => node.hash.take(),
        };
        if let Some(child) = child {
            self.nodes[child] = Node::default();
            self.free.push(child);
        }
        self.shed_free_tail();
    }

    /// Gives memory back once everything is gone.
    fn shed_free_tail(&mut self) {
        if self.node_count() == 1 && self.nodes.len() > 1 {
            self.nodes.truncate(1);
            self.nodes.shrink_to_fit();
            self.free = Vec::new();
        }
    }
}

//! Which of a session's subscriptions match a topic.
//!
//! Most clients have one or a few, for which a list is smaller than a tree and as fast; from
//! [`FEW`] on it is a tree.

use std::sync::Arc;

use super::Subscription;
use crate::broker::topic::{SubscriptionTrie, TopicFilter};

/// How many are kept in a list.
const FEW: usize = 4;

/// The plain subscriptions of one session.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    /// The most exact filter first. Empty where there is a tree.
    few: Vec<(TopicFilter, Arc<Subscription>)>,
    many: Option<Box<SubscriptionTrie<(), Arc<Subscription>>>>,
}

impl Matching {
    /// Puts a subscription beneath its filter, in the place of one that is there.
    pub fn insert(&mut self, filter: &TopicFilter, subscription: Arc<Subscription>) {
        if let Some(many) = &mut self.many {
            many.insert(filter, (), subscription);
            return;
        }
        if let Some((_, held)) = self.few.iter_mut().find(|(own, _)| own == filter) {
            *held = subscription;
            return;
        }
        if self.few.len() < FEW {
            let before = |(own, _): &(TopicFilter, _)| own.exactness(filter).is_gt();
            let at = self.few.partition_point(before);
            self.few.reserve_exact(1);
            self.few.insert(at, (filter.clone(), subscription));
            return;
        }
        let mut many = SubscriptionTrie::new();
        for (own, held) in std::mem::take(&mut self.few) {
            many.insert(&own, (), held);
        }
        many.insert(filter, (), subscription);
        self.many = Some(Box::new(many));
    }

    /// Takes the subscription to exactly this filter out.
    pub fn remove(&mut self, filter: &TopicFilter) {
        if let Some(many) = &mut self.many {
            many.remove(filter, &());
            if many.is_empty() {
                self.many = None;
            }
        }
        self.few.retain(|(own, _)| own != filter);
    }

    /// Calls `visit` for every subscription whose filter matches a topic, the most exact filter first.
    pub fn visit<'t>(&'t self, topic: &str, mut visit: impl FnMut(&'t Arc<Subscription>)) {
        if let Some(many) = &self.many {
            many.visit(topic, |(), subscription| visit(subscription));
        }
        for (filter, subscription) in &self.few {
            if filter.matches(topic) {
                visit(subscription);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::broker::session::Form;

    fn subscription(filter: &TopicFilter, identifier: u32) -> Arc<Subscription> {
        Arc::new(Subscription {
            form: Form::Plain(filter.clone()),
            qos: 1,
            no_local: false,
            retain_as_published: false,
            identifier: Some(identifier),
            reaches: Vec::new(),
            from: BTreeMap::new(),
            log_from: 0,
            partition: None,
        })
    }

    fn found(matching: &Matching, topic: &str) -> Vec<u32> {
        let mut found = Vec::new();
        matching.visit(topic, |subscription| found.extend(subscription.identifier));
        found
    }

    #[test]
    fn a_list_and_a_tree_find_the_same_in_the_same_order() {
        let filters = ["a/#", "#", "a/+", "a/b", "+/b", "x", "a/b/c"];
        let filters = filters.map(|text| TopicFilter::parse(text).unwrap());
        let mut tree = SubscriptionTrie::new();
        let mut matching = Matching::default();
        let check = |matching: &Matching, tree: &SubscriptionTrie<(), u32>| {
            for topic in ["a/b", "a", "x", "a/b/c", "y/b", "$a/b"] {
                let mut expected = Vec::new();
                tree.visit(topic, |(), number| expected.push(*number));
                assert_eq!(found(matching, topic), expected, "{topic}");
            }
        };
        for round in 0..2 {
            for (number, filter) in (10 * round..).zip(&filters) {
                matching.insert(filter, subscription(filter, number));
                tree.insert(filter, (), number);
                check(&matching, &tree);
            }
        }
        for filter in &filters {
            matching.remove(filter);
            tree.remove(filter, &());
            check(&matching, &tree);
        }
    }
}

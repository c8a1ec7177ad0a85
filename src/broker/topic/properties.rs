//! The decisions of this module against brute force over a small universe of topics.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::storage::ChannelKind;

/// Two names that filters use, one that begins with `$`, the empty one, and one no filter uses:
/// any filter drawn from the first four tells any two topics apart that these five can spell.
const NAMES: [&str; 5] = ["a", "b", "$s", "", "z"];
const FILTER_NAMES: [&str; 4] = ["a", "b", "$s", ""];
const FILTER_DEPTH: usize = 3;

/// Every topic of at most one level more than a filter here has. The empty one is no topic.
fn universe() -> &'static [String] {
    static TOPICS: LazyLock<Vec<String>> = LazyLock::new(spell_universe);
    &TOPICS
}

fn spell_universe() -> Vec<String> {
    let mut topics: Vec<String> = vec![];
    let mut layer: Vec<String> = NAMES.iter().map(ToString::to_string).collect();
    for _ in 0..=FILTER_DEPTH {
        topics.extend(layer.iter().filter(|topic| !topic.is_empty()).cloned());
        layer = layer
            .iter()
            .flat_map(|start| NAMES.iter().map(move |name| format!("{start}/{name}")))
            .collect();
    }
    topics
}

/// The universe, and each topic of it with one `z` turned into the level of dead letters.
fn with_dead_letters() -> &'static [String] {
    static TOPICS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let turned = universe().iter().flat_map(|topic| {
            let levels: Vec<&str> = topic.split('/').collect();
            let places: Vec<usize> = (0..levels.len()).filter(|at| levels[*at] == "z").collect();
            places.into_iter().map(move |at| {
                let mut levels = levels.clone();
                levels[at] = DEAD_LETTER_LEVEL;
                levels.join("/")
            })
        });
        universe().iter().cloned().chain(turned).collect()
    });
    &TOPICS
}

/// MQTT's matching rules, said again in the plainest way.
fn matches_by_hand(filter: &[&str], topic: &[&str]) -> bool {
    match (filter.first(), topic.first()) {
        (Some(&"#"), _) | (None, None) => true,
        (Some(level), Some(name)) if *level == "+" || level == name => {
            matches_by_hand(&filter[1..], &topic[1..])
        }
        _ => false,
    }
}

fn a_filter() -> impl Strategy<Value = TopicFilter> {
    let level = prop_oneof![
        3 => proptest::sample::select(&FILTER_NAMES[..]),
        2 => Just("+"),
    ];
    (
        proptest::collection::vec(level, 0..=FILTER_DEPTH),
        any::<bool>(),
    )
        .prop_filter_map("the empty text is no filter", |(mut levels, hash)| {
            levels.truncate(if hash { FILTER_DEPTH - 1 } else { FILTER_DEPTH });
            if hash {
                levels.push("#");
            }
            TopicFilter::parse(&levels.join("/")).ok()
        })
}

fn a_channel_filter() -> impl Strategy<Value = ChannelFilter> {
    a_filter().prop_filter_map("a channel spells its first level out", |filter| {
        ChannelFilter::parse(filter.as_str()).ok()
    })
}

fn a_channel_list() -> impl Strategy<Value = Vec<RouteSource>> {
    let kind = prop_oneof![
        Just(ChannelKind::Append),
        Just(ChannelKind::Latest),
        Just(ChannelKind::Queue)
    ];
    let one = (kind, a_channel_filter());
    proptest::collection::vec(one, 0..8).prop_map(|list| {
        let mut by_filter = BTreeMap::new();
        for (kind, filter) in list {
            by_filter.insert(filter.as_written().to_owned(), (kind, filter));
        }
        by_filter
            .into_values()
            .enumerate()
            .map(|(index, (kind, filter))| RouteSource {
                name: format!("c{index}"),
                kind,
                filter,
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn matching_agrees_with_the_rules_said_plainly(filter in a_filter()) {
        let levels: Vec<&str> = filter.as_str().split('/').collect();
        for topic in universe() {
            let hidden = topic.starts_with('$') && matches!(levels[0], "+" | "#");
            let names: Vec<&str> = topic.split('/').collect();
            let expected = !hidden && matches_by_hand(&levels, &names);
            prop_assert_eq!(filter.matches(topic), expected, "{} {}", filter, topic);
        }
    }

    #[test]
    fn touching_and_lying_inside_are_exact(a in a_filter(), b in a_filter()) {
        let topics = universe();
        let shared = topics.iter().any(|topic| a.matches(topic) && b.matches(topic));
        let inside = topics.iter().all(|topic| !a.matches(topic) || b.matches(topic));
        prop_assert_eq!(touches(&a, &b), shared, "{} {}", a, b);
        prop_assert_eq!(lies_inside(&a, &b), inside, "{} in {}", a, b);
    }

    #[test]
    fn exactness_is_an_order_with_no_ties(a in a_filter(), b in a_filter(), c in a_filter()) {
        prop_assert_eq!(a.exactness(&b), b.exactness(&a).reverse());
        prop_assert_eq!(a.exactness(&b).is_eq(), a == b);
        if a.exactness(&b).is_ge() && b.exactness(&c).is_ge() {
            prop_assert!(a.exactness(&c).is_ge());
        }
        // A filter that lies inside another is never the less exact of the two, as long as it is
        // not the same set of topics in another spelling.
        if lies_inside(&a, &b) && !lies_inside(&b, &a) && !a.starts_with_wildcard() {
            let first_difference = a.levels().zip(b.levels()).find(|(x, y)| x != y);
            if first_difference.is_some() {
                prop_assert!(a.exactness(&b).is_gt() || a.depth() > b.depth());
            }
        }
    }

    #[test]
    fn routing_is_the_most_exact_match(list in a_channel_list()) {
        let routes = Routes::compile(&list).unwrap();
        for topic in universe() {
            let expected = routes
                .channels()
                .iter()
                .flat_map(|channel| channel.filters.iter().map(move |f| (&channel.name, f)))
                .filter(|(_, filter)| filter.matches(topic))
                .max_by(|(_, a), (_, b)| a.exactness(b));
            let found = routes.route(topic).map(|route| {
                (&routes.channels()[route.channel.0].name, route.filter)
            });
            prop_assert_eq!(found, expected, "{}", topic);
        }
    }

    #[test]
    fn a_subscriber_reaches_what_it_touches(list in a_channel_list(), filter in a_filter()) {
        let routes = Routes::compile(&list).unwrap();
        let topics = with_dead_letters();
        let mut expected = Reach::default();
        for (index, channel) in routes.channels().iter().enumerate() {
            let touched = topics
                .iter()
                .any(|topic| filter.matches(topic) && channel.filters[0].matches(topic));
            match channel.kind {
                _ if !touched => {}
                ChannelKind::Queue => expected.crossed_queues.push(ChannelIndex(index)),
                _ => expected.channels.push(ChannelIndex(index)),
            }
        }
        let reach = routes.reach(&filter);
        prop_assert_eq!(&reach.channels, &expected.channels);
        prop_assert_eq!(&reach.crossed_queues, &expected.crossed_queues);
        // Of the filters that hold every topic of this one, the most exact says whose it is.
        let holds = |own: &TopicFilter| {
            topics.iter().all(|topic| !filter.matches(topic) || own.matches(topic))
        };
        let holder = routes
            .channels()
            .iter()
            .enumerate()
            .filter(|(_, channel)| holds(&channel.filters[0]))
            .max_by(|(_, a), (_, b)| a.filters[0].exactness(&b.filters[0]));
        let inside = holder
            .filter(|(_, channel)| channel.kind == ChannelKind::Queue)
            .map(|(index, _)| ChannelIndex(index));
        prop_assert_eq!(reach.inside_queue, inside, "{}", filter);
    }

    #[test]
    fn a_dead_letter_is_held_by_its_channels_filter(queue in a_channel_filter()) {
        let queue = &queue.plain()[0];
        let derived = dead_letter_filter(queue);
        for topic in universe() {
            if queue.matches(topic) {
                let letter = dead_letter_topic(queue, topic);
                prop_assert!(derived.matches(&letter), "{} {}", derived, letter);
                prop_assert_eq!(level_count(&letter), level_count(topic) + 1);
            }
        }
    }

    #[test]
    fn the_subscription_tree_agrees_with_a_list(
        steps in proptest::collection::vec((a_filter(), 0u8..4, 0u16..100, any::<bool>()), 0..60)
    ) {
        let mut tree = SubscriptionTrie::new();
        let mut model: BTreeMap<(TopicFilter, u8), u16> = BTreeMap::new();
        for (filter, key, value, add) in steps {
            if add {
                prop_assert_eq!(
                    tree.insert(&filter, key, value),
                    model.insert((filter, key), value)
                );
            } else {
                prop_assert_eq!(tree.remove(&filter, &key), model.remove(&(filter, key)));
            }
            prop_assert_eq!(tree.len(), model.len());
        }
        for topic in universe() {
            let mut found = vec![];
            tree.visit(topic, |key, value| found.push((*key, *value)));
            let mut expected: Vec<_> = model
                .iter()
                .filter(|((filter, _), _)| filter.matches(topic))
                .collect();
            expected.sort_by(|((f, k), _), ((g, l), _)| g.exactness(f).then(k.cmp(l)));
            let expected: Vec<_> = expected.into_iter().map(|((_, k), v)| (*k, *v)).collect();
            prop_assert_eq!(found, expected, "{}", topic);
        }
        for ((filter, key), _) in model {
            prop_assert!(tree.remove(&filter, &key).is_some());
        }
        prop_assert!(tree.is_empty());
        prop_assert_eq!(tree.node_count(), 1);
    }

    #[test]
    fn no_text_is_too_odd_to_be_sorted(text in any::<String>()) {
        let limits = TopicLimits { max_length: 1024, max_levels: 200 };
        let _ = TopicFilter::parse(&text);
        let _ = ChannelFilter::parse(&text);
        let _ = SubscribeFilter::parse(&text, limits);
        let _ = PublishTopic::parse(&text, limits);
    }
}

/// Depth is walked, never recursed into: the stack does not depend on what a client sends.
#[test]
fn the_deepest_filter_there_can_be_is_walked_and_dropped() {
    let filter = TopicFilter::parse(&"/".repeat(MAX_FILTER_BYTES)).unwrap();
    let mut tree = SubscriptionTrie::new();
    tree.insert(&filter, 1, ());
    let mut visits = 0;
    tree.visit(filter.as_str(), |_, ()| visits += 1);
    assert_eq!(visits, 1);
    assert_eq!(tree.node_count(), MAX_FILTER_BYTES + 2);
    assert_eq!(tree.remove(&filter, &1), Some(()));
    assert_eq!(tree.node_count(), 1);
}

//! The channel list, compiled: who holds a topic, and what a filter reaches.

use std::collections::HashMap;
use std::fmt;

use super::channel_filter::ChannelFilter;
use super::dead_letter::{dead_letter_channel_name, dead_letter_filter};
use super::filter::TopicFilter;
use super::relation::{lies_inside, touches};
use super::tree::LevelTree;
use crate::storage::ChannelKind;

/// The word the configuration file and the command line use for a channel's type.
#[must_use]
pub fn type_name(kind: ChannelKind) -> &'static str {
    match kind {
        ChannelKind::Append => "append",
        ChannelKind::Latest => "latest",
        ChannelKind::Queue => "queue",
    }
}

/// A channel as configured.
#[derive(Clone, Debug)]
pub struct RouteSource {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ChannelKind,
    /// Its filter.
    pub filter: ChannelFilter,
}

/// A channel's place in [`Routes::channels`]: the configured ones first, in the order given, then
/// one dead-letter channel for each queue, in the order of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelIndex(pub usize);

/// A channel a topic can be held by, derived ones included.
#[derive(Clone, Debug)]
pub struct RouteChannel {
    /// Its name; `<queue>__dlq` for a dead-letter channel.
    pub name: String,
    /// Its type; a dead-letter channel is an append channel.
    pub kind: ChannelKind,
    /// Its filter as written, or as derived.
    pub written_filter: String,
    /// The plain filters that stands for.
    pub filters: Vec<TopicFilter>,
    /// Of a dead-letter channel: its queue.
    pub dead_letters_of: Option<ChannelIndex>,
    /// Of a queue: its dead-letter channel.
    pub dead_letters: Option<ChannelIndex>,
}

/// Which channel holds a topic, and by which of its filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// The channel.
    pub channel: ChannelIndex,
    /// The filter of it that is the most exact on this topic.
    pub filter: &'a TopicFilter,
}

/// What a subscriber's filter reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The append and latest channels it touches, dead-letter channels included, in order.
    pub channels: Vec<ChannelIndex>,
    /// The queues some of its topics belong to by filter. It is served none of their records
    /// (invariant 11).
    pub crossed_queues: Vec<ChannelIndex>,
    /// The queue it lies wholly inside of, where no more exact append or latest filter holds it
    /// whole. A plain subscription to it could never be served anything: 0x8F.
    pub inside_queue: Option<ChannelIndex>,
}

/// Two channels that cannot both be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteConflict {
    /// One name twice.
    SameName {
        /// The name.
        name: String,
        /// Which source had it first.
        first: usize,
        /// Which source has it again.
        second: usize,
    },
    /// One plain filter on two channels.
    SameFilter {
        /// The filter.
        filter: TopicFilter,
        /// The channel that had it first.
        first: String,
        /// The channel that has it again.
        second: String,
    },
}

impl fmt::Display for RouteConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName { name, .. } => write!(f, "two channels are named `{name}`"),
            Self::SameFilter {
                filter,
                first,
                second,
            } => write!(
                f,
                "the channels `{first}` and `{second}` both carry the filter `{filter}`"
            ),
        }
    }
}

impl std::error::Error for RouteConflict {}

/// The compiled channel list. Holds no records and no state; it is replaced as a whole.
#[derive(Debug, Default)]
pub struct Routes {
    channels: Vec<RouteChannel>,
    by_name: HashMap<String, ChannelIndex>,
    by_filter: LevelTree<(ChannelIndex, TopicFilter)>,
}

impl Routes {
    /// Compiles the configured channels and derives the dead-letter channels.
    ///
    /// # Errors
    /// Every pair of channels with one name or one filter. Nothing else can make two channels
    /// equally exact on a topic (invariant 12), so there is never a tie to break.
    pub fn compile(sources: &[RouteSource]) -> Result<Self, Vec<RouteConflict>> {
        let mut routes = Self {
            channels: with_dead_letter_channels(sources),
            ..Self::default()
        };
        let mut conflicts = routes.index_names();
        conflicts.extend(routes.index_filters());
        if conflicts.is_empty() {
            Ok(routes)
        } else {
            Err(conflicts)
        }
    }

    fn index_names(&mut self) -> Vec<RouteConflict> {
        let mut conflicts = vec![];
        for (index, channel) in self.channels.iter().enumerate() {
            match self.by_name.get(&channel.name) {
                Some(first) => conflicts.push(RouteConflict::SameName {
                    name: channel.name.clone(),
                    first: first.0,
                    second: index,
                }),
                None => {
                    self.by_name
                        .insert(channel.name.clone(), ChannelIndex(index));
                }
            }
        }
        conflicts
    }

    fn index_filters(&mut self) -> Vec<RouteConflict> {
        let mut conflicts = vec![];
        for (index, channel) in self.channels.iter().enumerate() {
            for filter in &channel.filters {
                let place = self.by_filter.place(filter);
                match place {
                    Some((first, _)) => conflicts.push(RouteConflict::SameFilter {
                        filter: filter.clone(),
                        first: self.channels[first.0].name.clone(),
                        second: channel.name.clone(),
                    }),
                    None => *place = Some((ChannelIndex(index), filter.clone())),
                }
            }
        }
        conflicts
    }

    /// Every channel, dead-letter channels last.
    #[must_use]
    pub fn channels(&self) -> &[RouteChannel] {
        &self.channels
    }

    /// The channel at `index`, which this value handed out.
    #[must_use]
    pub fn channel(&self, index: ChannelIndex) -> Option<&RouteChannel> {
        self.channels.get(index.0)
    }

    /// The channel of this name, dead-letter channels included.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<ChannelIndex> {
        self.by_name.get(name).copied()
    }

    /// The channel that holds `topic`: of the filters that match it, the most exact decides
    /// (invariant 12). `None`: the topic is broadcast.
    #[must_use]
    pub fn route(&self, topic: &str) -> Option<Route<'_>> {
        let mut found = None;
        self.by_filter.visit(topic, |(channel, filter)| {
            found = Some(Route {
                channel: *channel,
                filter,
            });
            false
        });
        found
    }

    /// What a subscription to `filter` reaches. The reserved space is not asked about here.
    #[must_use]
    pub fn reach(&self, filter: &TopicFilter) -> Reach {
        let mut reach = Reach::default();
        let mut holder: Option<(ChannelIndex, &TopicFilter)> = None;
        for (index, channel) in self.channels.iter().enumerate() {
            let index = ChannelIndex(index);
            let mut touched = false;
            for own in &channel.filters {
                touched |= touches(filter, own);
                let more_exact = holder.is_none_or(|(_, held)| own.exactness(held).is_gt());
                if more_exact && lies_inside(filter, own) {
                    holder = Some((index, own));
                }
            }
            if touched && channel.kind == ChannelKind::Queue {
                reach.crossed_queues.push(index);
            } else if touched {
                reach.channels.push(index);
            }
        }
        reach.inside_queue = holder
            .map(|(index, _)| index)
            .filter(|index| self.channels[index.0].kind == ChannelKind::Queue);
        reach
    }
}

fn with_dead_letter_channels(sources: &[RouteSource]) -> Vec<RouteChannel> {
    let mut channels: Vec<RouteChannel> = sources
        .iter()
        .map(|source| RouteChannel {
            name: source.name.clone(),
            kind: source.kind,
            written_filter: source.filter.as_written().to_owned(),
            filters: source.filter.plain().to_vec(),
            dead_letters_of: None,
            dead_letters: None,
        })
        .collect();
    for index in 0..sources.len() {
        if channels[index].kind != ChannelKind::Queue {
            continue;
        }
        let queue = &channels[index];
        let filters: Vec<TopicFilter> = queue.filters.iter().map(dead_letter_filter).collect();
        let dead_letters = RouteChannel {
            name: dead_letter_channel_name(&queue.name),
            kind: ChannelKind::Append,
            written_filter: filters.first().map(ToString::to_string).unwrap_or_default(),
            filters,
            dead_letters_of: Some(ChannelIndex(index)),
            dead_letters: None,
        };
        channels[index].dead_letters = Some(ChannelIndex(channels.len()));
        channels.push(dead_letters);
    }
    channels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(list: &[(&str, ChannelKind, &str)]) -> Result<Routes, Vec<RouteConflict>> {
        let sources: Vec<RouteSource> = list
            .iter()
            .map(|(name, kind, filter)| RouteSource {
                name: (*name).to_owned(),
                kind: *kind,
                filter: ChannelFilter::parse(filter).unwrap(),
            })
            .collect();
        Routes::compile(&sources)
    }

    fn name_of(routes: &Routes, topic: &str) -> Option<String> {
        let route = routes.route(topic)?;
        Some(routes.channel(route.channel)?.name.clone())
    }

    #[test]
    fn the_most_exact_filter_holds_a_topic_whatever_the_order() {
        use ChannelKind::{Append, Latest, Queue};
        let mut list = vec![
            ("all", Append, "iot/#"),
            ("state", Latest, "iot/+/state"),
            ("one", Latest, "iot/x/+"),
            ("work", Queue, "iot/+/work/#"),
        ];
        for _ in 0..list.len() {
            list.rotate_left(1);
            let routes = compile(&list).unwrap();
            for (topic, holder) in [
                ("iot", Some("all")),
                ("iot/a/b", Some("all")),
                ("iot/a/state", Some("state")),
                ("iot/x/state", Some("one")),
                ("iot/a/work/1", Some("work")),
                ("iot/a/work/__dlq/1", Some("work__dlq")),
                ("other", None),
            ] {
                assert_eq!(name_of(&routes, topic).as_deref(), holder, "{topic}");
            }
        }
    }

    #[test]
    fn a_filter_reaches_append_and_latest_and_never_a_queue() {
        use ChannelKind::{Append, Latest, Queue};
        let routes = compile(&[
            ("events", Append, "a/events/#"),
            ("state", Latest, "a/state/#"),
            ("jobs", Queue, "a/jobs/#"),
            ("audit", Append, "a/jobs/audit/#"),
        ])
        .unwrap();
        let names = |list: &[ChannelIndex]| -> Vec<String> {
            list.iter()
                .map(|index| routes.channels()[index.0].name.clone())
                .collect()
        };
        let reach = |text: &str| routes.reach(&TopicFilter::parse(text).unwrap());

        let all = reach("a/#");
        assert_eq!(
            names(&all.channels),
            ["events", "state", "audit", "jobs__dlq"]
        );
        assert_eq!(names(&all.crossed_queues), ["jobs"]);
        assert_eq!(all.inside_queue, None);

        for inside in ["a/jobs/#", "a/jobs/1", "a/jobs/+/x", "a/jobs"] {
            assert_eq!(
                reach(inside).inside_queue,
                routes.by_name("jobs"),
                "{inside}"
            );
        }
        for held in ["a/jobs/__dlq/#", "a/jobs/__dlq/1", "a/jobs/audit/x"] {
            assert_eq!(reach(held).inside_queue, None, "{held}");
        }
        assert_eq!(reach("nothing/yet"), Reach::default());
    }

    #[test]
    fn every_conflict_is_named_with_both_sides() {
        use ChannelKind::{Append, Latest};
        let conflicts = compile(&[
            ("one", Append, "a/{b,c}"),
            ("two", Latest, "a/c"),
            ("one", Append, "d"),
        ])
        .unwrap_err();
        let lines: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "two channels are named `one`",
                "the channels `one` and `two` both carry the filter `a/c`"
            ]
        );
    }
}

//! A plain MQTT topic filter.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::dead_letter::DEAD_LETTER_LEVEL;

/// The longest filter an MQTT string can carry, in bytes.
pub const MAX_FILTER_BYTES: usize = 65_535;

/// One level of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level<'a> {
    /// A spelled-out level; it may be empty.
    Name(&'a str),
    /// `+`: any one level.
    Plus,
    /// `#`: this level's parent and everything below it.
    Hash,
}

/// A plain MQTT topic filter, checked on the way in. Cheap to clone.
///
/// Equality and order are those of the text; [`TopicFilter::exactness`] is the order that decides
/// which of two channels holds a topic.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicFilter {
    text: Arc<str>,
}

/// Why a text is not a topic filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// No characters at all.
    Empty,
    /// Longer than [`MAX_FILTER_BYTES`].
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// It holds U+0000, which no MQTT string may.
    Nul,
    /// `#` stands before the last level.
    HashNotLast {
        /// The level it was found on, counted from 1.
        level: usize,
    },
    /// A level holds a wildcard beside other characters.
    WildcardInName {
        /// The level it was found on, counted from 1.
        level: usize,
    },
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a topic filter has at least one character"),
            Self::TooLong { bytes } => write!(
                f,
                "a topic filter has at most {MAX_FILTER_BYTES} bytes, this one has {bytes}"
            ),
            Self::Nul => write!(f, "a topic filter may not hold the character U+0000"),
            Self::HashNotLast { level } => {
                write!(
                    f,
                    "`#` may only be the last level, it stands on level {level}"
                )
            }
            Self::WildcardInName { level } => write!(
                f,
                "a wildcard fills its whole level, level {level} has other characters beside it"
            ),
        }
    }
}

impl std::error::Error for FilterError {}

/// How long and how deep a topic or filter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicLimits {
    /// `broker.limits.max_topic_length`, bytes.
    pub max_length: usize,
    /// `broker.limits.max_topic_levels`.
    pub max_levels: usize,
}

impl TopicLimits {
    /// Whether a topic a client publishes to is within both bounds.
    #[must_use]
    pub fn admit_topic(&self, topic: &str) -> bool {
        topic.len() <= self.max_length && level_count(topic) <= self.max_levels
    }

    /// Whether a filter a client subscribes with is within both bounds.
    ///
    /// A dead letter's topic is one level deeper than its job's, even past the bound; a filter
    /// that spells that level out is given the same room, or such a letter could not be read by
    /// the filter of its own channel.
    #[must_use]
    pub fn admit_filter(&self, filter: &TopicFilter) -> bool {
        let spells_dead_letter = filter
            .levels()
            .any(|level| level == Level::Name(DEAD_LETTER_LEVEL));
        let (more_bytes, more_levels) = if spells_dead_letter {
            (DEAD_LETTER_LEVEL.len() + 1, 1)
        } else {
            (0, 0)
        };
        filter.as_str().len() <= self.max_length.saturating_add(more_bytes)
            && filter.depth() <= self.max_levels.saturating_add(more_levels)
    }
}

/// How many levels a topic or filter has: one more than its slashes.
#[must_use]
pub fn level_count(topic: &str) -> usize {
    topic.bytes().filter(|byte| *byte == b'/').count() + 1
}

impl TopicFilter {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`FilterError`] says which rule the text breaks; a broker answers it with 0x8F.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        if text.len() > MAX_FILTER_BYTES {
            return Err(FilterError::TooLong { bytes: text.len() });
        }
        if text.contains('\0') {
            return Err(FilterError::Nul);
        }
        let mut levels = text.split('/').enumerate().peekable();
        while let Some((index, level)) = levels.next() {
            let level_number = index + 1;
            if level.len() > 1 && level.contains(['+', '#']) {
                return Err(FilterError::WildcardInName {
                    level: level_number,
                });
            }
            if level == "#" && levels.peek().is_some() {
                return Err(FilterError::HashNotLast {
                    level: level_number,
                });
            }
        }
        Ok(Self { text: text.into() })
    }

    /// Takes a text the module itself put together from checked parts.
    pub(super) fn from_checked(text: String) -> Self {
        Self { text: text.into() }
    }

    /// The filter as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its levels, from the left.
    pub fn levels(&self) -> impl Iterator<Item = Level<'_>> {
        self.text.split('/').map(|level| match level {
            "+" => Level::Plus,
            "#" => Level::Hash,
            name => Level::Name(name),
        })
    }

    /// How many levels it has, wildcards included.
    #[must_use]
    pub fn depth(&self) -> usize {
        level_count(&self.text)
    }

    /// Whether its first level is `+` or `#`.
    #[must_use]
    pub fn starts_with_wildcard(&self) -> bool {
        self.text.starts_with(['+', '#'])
    }

    /// Whether it holds any wildcard at all.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.text.contains(['+', '#'])
    }

    /// Whether it matches `topic`.
    ///
    /// A filter that starts with a wildcard matches no topic that starts with `$`
    /// (MQTT-4.7.2-1). `a/#` matches `a` as well (MQTT-4.7.1-2).
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        if self.starts_with_wildcard() && topic.starts_with('$') {
            return false;
        }
        let mut names = topic.split('/');
        for level in self.levels() {
            match (level, names.next()) {
                (Level::Hash, _) => return true,
                (Level::Plus, Some(_)) => {}
                (Level::Name(wanted), Some(name)) if wanted == name => {}
                _ => return false,
            }
        }
        names.next().is_none()
    }

    /// Compares by exactness: `Greater` means `self` spells a topic out more exactly.
    ///
    /// From the left, the first level at which the two differ decides (invariant 12): a spelled-out
    /// level beats `+`, `+` beats `#`, and a filter that ends beats one going on with `#`. Two
    /// filters that match one topic are never equal here unless they are the same text. Filters
    /// that share no topic are ordered too, so that a list of them can be sorted.
    #[must_use]
    pub fn exactness(&self, other: &Self) -> Ordering {
        let mut mine = self.levels();
        let mut theirs = other.levels();
        loop {
            let (a, b) = (mine.next(), theirs.next());
            if a.is_none() && b.is_none() {
                return Ordering::Equal;
            }
            let decided = match (a, b) {
                // Which of two names comes first decides nothing: no topic has both.
                (Some(Level::Name(a)), Some(Level::Name(b))) => b.cmp(a),
                (a, b) => rank(a).cmp(&rank(b)),
            };
            if decided != Ordering::Equal {
                return decided;
            }
        }
    }
}

fn rank(level: Option<Level<'_>>) -> u8 {
    match level {
        Some(Level::Name(_)) => 3,
        Some(Level::Plus) => 2,
        None => 1,
        Some(Level::Hash) => 0,
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicFilter({:?})", &*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::parse(text).unwrap()
    }

    #[test]
    fn what_is_no_filter_is_refused_with_its_reason() {
        assert_eq!(TopicFilter::parse(""), Err(FilterError::Empty));
        assert_eq!(TopicFilter::parse("a\0b"), Err(FilterError::Nul));
        assert_eq!(
            TopicFilter::parse("a/#/b"),
            Err(FilterError::HashNotLast { level: 2 })
        );
        for text in ["a+", "+a", "a/#b", "a/b#", "++", "##", "a/+#"] {
            assert!(
                matches!(
                    TopicFilter::parse(text),
                    Err(FilterError::WildcardInName { .. })
                ),
                "{text}"
            );
        }
        let long = "a".repeat(MAX_FILTER_BYTES + 1);
        assert_eq!(
            TopicFilter::parse(&long),
            Err(FilterError::TooLong { bytes: 65_536 })
        );
        for text in ["/", "a//b", "+", "#", "/#", "+/+/#", "$SYS/#", " "] {
            assert!(TopicFilter::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn matching_follows_the_examples_of_mqtt() {
        for (text, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/score/w",
                true,
            ),
            ("sport/#", "sport", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/monitor", true),
            ("a/+", "a/$b", true),
            ("A", "a", false),
            ("é/+", "é/x", true),
        ] {
            assert_eq!(filter(text).matches(topic), expected, "{text} on {topic}");
        }
    }

    #[test]
    fn exactness_is_decided_at_the_first_difference() {
        for (more, less) in [
            ("a/b", "a/+"),
            ("a/+", "a/#"),
            ("a", "a/#"),
            ("a/b/#", "a/+/c"),
            ("a/b/+", "a/b/#"),
            ("a/+/c", "a/+/+"),
            ("a/+/#", "a/#"),
        ] {
            let (more, less) = (filter(more), filter(less));
            assert_eq!(more.exactness(&less), Ordering::Greater, "{more} {less}");
            assert_eq!(less.exactness(&more), Ordering::Less, "{less} {more}");
        }
    }

    #[test]
    fn limits_leave_a_dead_letter_filter_its_extra_level() {
        let limits = TopicLimits {
            max_length: 11,
            max_levels: 3,
        };
        assert!(limits.admit_topic("a/b/c"));
        assert!(!limits.admit_topic("a/b/c/d"));
        assert!(!limits.admit_topic("aaaaaaaaaaaa"));
        assert!(!limits.admit_filter(&filter("a/b/+/#")));
        assert!(limits.admit_filter(&filter("a/b/+/__dlq")));
        assert!(!limits.admit_filter(&filter("a/b/c/+/__dlq")));
    }
}

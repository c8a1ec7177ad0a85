//! Where a queue's dead letters go.
//!
//! Every queue `<q>` has an append channel `<q>__dlq`. Its filter is the queue's with one level
//! `__dlq` before a final `#`, else at the end, and a dead letter's topic gains that level at the
//! same place: `jobs/#` turns `jobs/a` into `jobs/__dlq/a`, `iot/+/work/+` turns `iot/x/work/y`
//! into `iot/x/work/y/__dlq`. No operator filter spells this level, so the two never collide.

use super::filter::{Level, TopicFilter};

/// The level that marks a dead letter's topic, and the end of its channel's name.
pub const DEAD_LETTER_LEVEL: &str = "__dlq";

/// The name of the channel that holds a queue's dead letters.
#[must_use]
pub fn dead_letter_channel_name(queue: &str) -> String {
    format!("{queue}{DEAD_LETTER_LEVEL}")
}

/// The filter of the channel that holds the dead letters of a queue with this filter.
#[must_use]
pub fn dead_letter_filter(queue: &TopicFilter) -> TopicFilter {
    let text = match before_final_hash(queue) {
        Some("") => format!("{DEAD_LETTER_LEVEL}/#"),
        Some(parent) => format!("{parent}{DEAD_LETTER_LEVEL}/#"),
        None => format!("{queue}/{DEAD_LETTER_LEVEL}"),
    };
    TopicFilter::from_checked(text)
}

/// The topic a job published on `topic` has as a dead letter.
///
/// `topic` is one the queue's filter matches, so it has at least the levels before a final `#`.
#[must_use]
pub fn dead_letter_topic(queue: &TopicFilter, topic: &str) -> String {
    if before_final_hash(queue).is_none() {
        return format!("{topic}/{DEAD_LETTER_LEVEL}");
    }
    let kept_levels = queue.depth() - 1;
    let mut levels: Vec<&str> = topic.split('/').collect();
    levels.insert(kept_levels.min(levels.len()), DEAD_LETTER_LEVEL);
    levels.join("/")
}

/// What stands before a final `#`, its slash included; `None` where there is no such level.
fn before_final_hash(filter: &TopicFilter) -> Option<&str> {
    match filter.levels().last() {
        Some(Level::Hash) => filter.as_str().strip_suffix('#'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_goes_before_a_final_hash_or_to_the_end() {
        for (queue, dead, topic, letter) in [
            ("jobs/#", "jobs/__dlq/#", "jobs/a", "jobs/__dlq/a"),
            ("jobs/#", "jobs/__dlq/#", "jobs", "jobs/__dlq"),
            ("jobs/#", "jobs/__dlq/#", "jobs/a/b", "jobs/__dlq/a/b"),
            (
                "iot/+/work/+",
                "iot/+/work/+/__dlq",
                "iot/x/work/y",
                "iot/x/work/y/__dlq",
            ),
            ("a/+/#", "a/+/__dlq/#", "a/b/c", "a/b/__dlq/c"),
            ("jobs", "jobs/__dlq", "jobs", "jobs/__dlq"),
            ("#", "__dlq/#", "a", "__dlq/a"),
        ] {
            let queue = TopicFilter::parse(queue).unwrap();
            let derived = dead_letter_filter(&queue);
            assert_eq!(derived.as_str(), dead);
            assert_eq!(dead_letter_topic(&queue, topic), letter);
            assert!(derived.matches(letter));
        }
        assert_eq!(dead_letter_channel_name("jobs"), "jobs__dlq");
    }
}

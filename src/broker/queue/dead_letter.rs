//! Dead letters: where a job goes, and what it carries there.

use bytes::Bytes;

use super::state::Reason;
use crate::broker::delivery::put_pair;
use crate::storage::{Message, Record};

const LEVEL: &[u8] = b"__dlq";

const CHANNEL: &str = "saguin-dlq-channel";
const OFFSET: &str = "saguin-dlq-offset";
const ATTEMPTS: &str = "saguin-dlq-attempts";
const FIRST: &str = "saguin-dlq-first";
const LAST: &str = "saguin-dlq-last";
const AT: &str = "saguin-dlq-at";
const REASON: &str = "saguin-dlq-reason";

/// Where a queue's dead letters are published: the level `__dlq` goes in before the final `#` of
/// the queue's filter, or at the end, and at the same place in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterTopic {
    /// Levels of a topic that precede `__dlq`; `None`: all of them.
    before: Option<usize>,
}

impl DeadLetterTopic {
    /// For a queue that carries `filter`.
    #[must_use]
    pub fn of_filter(filter: &str) -> Self {
        let levels = filter.split('/').count();
        DeadLetterTopic {
            before: (filter.rsplit('/').next() == Some("#")).then(|| levels - 1),
        }
    }

    /// The dead letter's topic for a job's.
    #[must_use]
    pub fn apply(&self, topic: &[u8]) -> Bytes {
        let mut levels: Vec<&[u8]> = topic.split(|&c| c == b'/').collect();
        let at = self.before.map_or(levels.len(), |n| n.min(levels.len()));
        levels.insert(at, LEVEL);
        Bytes::from(levels.join(&b'/'))
    }
}

/// What a job's move to its dead-letter channel is told by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) queue: &'a str,
    pub(super) reason: Reason,
    pub(super) attempts: u32,
    pub(super) attempted: Option<(u64, u64)>,
    /// Unix milliseconds.
    pub(super) at: u64,
}

/// The dead letter of a job: the same message under the same id (invariant 8), with its new topic,
/// its circumstances and everything it carried. It keeps the moment it was received, so its age
/// and expiry stay its own; [`moved_at`] has the moment it became a dead letter.
pub(super) fn dead_letter(job: &Record, topic: Bytes, told: &Circumstances<'_>) -> Message {
    let mut pairs: Vec<(&str, String)> = vec![
        (CHANNEL, told.queue.to_owned()),
        (OFFSET, job.offset.to_string()),
        (ATTEMPTS, told.attempts.to_string()),
    ];
    if let Some((first, last)) = told.attempted {
        pairs.push((FIRST, first.to_string()));
        pairs.push((LAST, last.to_string()));
    }
    pairs.push((AT, told.at.to_string()));
    pairs.push((REASON, told.reason.as_str().to_owned()));

    let mut properties = Vec::with_capacity(256 + job.message.properties.len());
    let mut added = 0;
    for (key, value) in &pairs {
        put_pair(&mut properties, key, value.as_bytes());
        added += key.len() + value.len();
    }
    properties.extend_from_slice(&job.message.properties);
    let added = u32::try_from(added).unwrap_or(u32::MAX);
    Message {
        topic,
        properties: Bytes::from(properties),
        user_property_bytes: job.message.user_property_bytes.saturating_add(added),
        ..job.message.clone()
    }
}

/// When a dead letter was moved, Unix milliseconds; `None` for any other message. Retention of a
/// dead-letter channel by age counts from here: a job may be old when it arrives.
#[must_use]
pub fn moved_at(message: &Message) -> Option<u64> {
    let mut rest = &message.properties[..];
    // A publisher's own `saguin-` keys are never stored, and the broker's come first.
    while let Some((key, value, after)) = first_pair(rest) {
        if key == AT.as_bytes() {
            return std::str::from_utf8(value).ok()?.parse().ok();
        }
        rest = after;
    }
    None
}

fn first_pair(region: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&0x26, rest) = region.split_first()? else {
        return None;
    };
    let (key, rest) = first_string(rest)?;
    let (value, rest) = first_string(rest)?;
    Some((key, value, rest))
}

fn first_string(region: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = region.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

//! Dead letters: what a job carries once it is one.

use bytes::Bytes;

use super::terms::Reason;
use crate::broker::delivery::put_pair;
use crate::storage::{Message, Record};

const CHANNEL: &str = "saguin-dlq-channel";
const OFFSET: &str = "saguin-dlq-offset";
const ATTEMPTS: &str = "saguin-dlq-attempts";
const FIRST: &str = "saguin-dlq-first";
const LAST: &str = "saguin-dlq-last";
const AT: &str = "saguin-dlq-at";
const REASON: &str = "saguin-dlq-reason";

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::message;

    #[test]
    fn a_dead_letter_says_where_it_came_from_and_carries_what_it_carried() {
        let mut job = message("jobs/a", "work");
        let mut own = Vec::new();
        put_pair(&mut own, "color", b"red");
        job.properties = Bytes::from(own.clone());
        job.user_property_bytes = 8;
        job.expiry_seconds = Some(60);
        job.received_at = Some(5);
        let job = Record {
            offset: 12,
            message: job,
        };
        let told = Circumstances {
            queue: "jobs",
            reason: Reason::AttemptsExhausted,
            attempts: 5,
            attempted: Some((100, 200)),
            at: 300,
        };
        let letter = dead_letter(&job, "jobs/__dlq/a".into(), &told);
        let mut expected = Vec::new();
        let mut bytes = 8;
        for (key, value) in [
            ("saguin-dlq-channel", "jobs"),
            ("saguin-dlq-offset", "12"),
            ("saguin-dlq-attempts", "5"),
            ("saguin-dlq-first", "100"),
            ("saguin-dlq-last", "200"),
            ("saguin-dlq-at", "300"),
            ("saguin-dlq-reason", "attempts_exhausted"),
        ] {
            put_pair(&mut expected, key, value.as_bytes());
            bytes += key.len() + value.len();
        }
        expected.extend_from_slice(&own);
        assert_eq!(letter.properties, expected);
        assert_eq!(letter.user_property_bytes as usize, bytes);
        assert_eq!(letter.topic, "jobs/__dlq/a");
        assert_eq!(moved_at(&letter), Some(300));
        let unchanged = Message {
            topic: job.message.topic.clone(),
            properties: job.message.properties.clone(),
            user_property_bytes: 8,
            ..letter
        };
        assert_eq!(unchanged, job.message);
    }

    #[test]
    fn a_job_never_tried_has_no_first_and_last() {
        let job = Record {
            offset: 1,
            message: message("jobs/a", "work"),
        };
        let told = Circumstances {
            queue: "jobs",
            reason: Reason::Expired,
            attempts: 0,
            attempted: None,
            at: 300,
        };
        let letter = dead_letter(&job, "jobs/__dlq/a".into(), &told);
        let text = String::from_utf8_lossy(&letter.properties).into_owned();
        assert!(text.contains("expired"));
        assert!(!text.contains("-first") && !text.contains("-last"));
    }

    #[test]
    fn other_messages_were_never_moved() {
        let mut plain = message("a", "b");
        assert_eq!(moved_at(&plain), None);
        for properties in [
            &b"\x26"[..],
            b"\x26\x00",
            b"\x26\x00\x01a\x00\xffb",
            b"\x01\x01",
            b"\x26\x00\x01a\x00\x01b",
        ] {
            plain.properties = Bytes::copy_from_slice(properties);
            assert_eq!(moved_at(&plain), None);
        }
    }
}

//! What a client may publish to and subscribe to in the space the broker keeps for itself.
//!
//! Only the shape is judged here. Whether the channel named exists, and is of the right type, is
//! for whoever holds the channels to say.

use std::fmt;

use super::filter::{FilterError, TopicFilter, TopicLimits};

/// A topic a client published to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishTopic<'a> {
    /// A topic of the clients': a channel's, or broadcast.
    Ordinary(&'a str),
    /// `$saguin/queue/<queue>/response`: a worker's answer. Not a queue: 0x90.
    QueueResponse {
        /// The name between, unchecked.
        queue: &'a str,
    },
    /// `$saguin/consumer/<channel>/seek`. Not an append channel: 0x90.
    Seek {
        /// The name between, unchecked.
        channel: &'a str,
    },
    /// `$saguin/kv/get`: a point read.
    PointRead,
    /// `$saguin/sessions/disconnect`: hang a client up.
    HangUp,
    /// `$saguin/catalogue/<channel>`.
    Catalogue {
        /// The name at the end, unchecked.
        channel: &'a str,
    },
}

/// A filter a client subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscribeFilter {
    /// A plain filter over channels and broadcast.
    Plain(TopicFilter),
    /// `$share/<group>/<filter>`.
    Shared {
        /// The group's name.
        group: String,
        /// The filter after it.
        filter: TopicFilter,
    },
    /// `$saguin/queue/<queue>`, the one form that is served jobs. Unknown queue: 0x8F.
    Queue {
        /// The queue's name, unchecked.
        queue: String,
    },
    /// `$saguin/consumer/<channel>/seek/reply`. Not an append channel: 0x8F.
    SeekReply {
        /// The channel's name, unchecked.
        channel: String,
    },
}

/// Why a topic or filter is refused by its shape alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRefusal {
    /// Published to `$SYS` or below.
    PublishUnderSys,
    /// Published to a topic that begins with `$share/`.
    PublishUnderShare,
    /// Published to a topic under `$saguin` that is none of the broker's.
    UnknownReservedTopic,
    /// Published to a topic over `max_topic_length` or `max_topic_levels`.
    TopicOverLimits(TopicLimits),
    /// Not a filter.
    NotAFilter(FilterError),
    /// A filter over `max_topic_length` or `max_topic_levels`.
    FilterOverLimits(TopicLimits),
    /// A reserved space that nothing is delivered under.
    NothingDelivered,
    /// Under `$saguin/queue/`, and not the queue form.
    NotTheQueueForm,
    /// `$share` in other letters, without a group or filter, or inside another.
    MisshapenShare,
}

impl TopicRefusal {
    /// The MQTT 5 reason code that carries it.
    #[must_use]
    pub fn reason_code(&self) -> u8 {
        match self {
            Self::PublishUnderSys | Self::NothingDelivered => 0x87,
            Self::PublishUnderShare | Self::UnknownReservedTopic | Self::TopicOverLimits(_) => 0x90,
            Self::NotAFilter(_)
            | Self::FilterOverLimits(_)
            | Self::NotTheQueueForm
            | Self::MisshapenShare => 0x8F,
        }
    }
}

impl fmt::Display for TopicRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PublishUnderSys => write!(f, "nobody may publish under `$SYS`"),
            Self::PublishUnderShare => write!(
                f,
                "`$share/` is a subscription form; publish to the topic itself"
            ),
            Self::UnknownReservedTopic => write!(
                f,
                "no such topic under `$saguin`; that space is the broker's own"
            ),
            Self::TopicOverLimits(limits) => write!(
                f,
                "a topic has at most {} bytes and {} levels here",
                limits.max_length, limits.max_levels
            ),
            Self::NotAFilter(error) => error.fmt(f),
            Self::FilterOverLimits(limits) => write!(
                f,
                "a filter has at most {} bytes and {} levels here",
                limits.max_length, limits.max_levels
            ),
            Self::NothingDelivered => {
                write!(f, "nothing is delivered under this reserved space")
            }
            Self::NotTheQueueForm => write!(
                f,
                "a queue is subscribed to as `$saguin/queue/<queue>` and in no other form"
            ),
            Self::MisshapenShare => write!(
                f,
                "a shared subscription is `$share/<group>/<filter>`, in these letters, once"
            ),
        }
    }
}

impl std::error::Error for TopicRefusal {}

impl<'a> PublishTopic<'a> {
    /// Sorts a topic name, which the reader of the packet has found to be one (no wildcard, no
    /// U+0000, not empty).
    ///
    /// # Errors
    /// [`TopicRefusal`], for a topic nobody may publish to.
    pub fn parse(topic: &'a str, limits: TopicLimits) -> Result<Self, TopicRefusal> {
        if is_at_or_under(topic, "$SYS") {
            return Err(TopicRefusal::PublishUnderSys);
        }
        if topic.starts_with("$share/") {
            return Err(TopicRefusal::PublishUnderShare);
        }
        if is_at_or_under(topic, "$saguin") {
            return Self::parse_reserved(topic).ok_or(TopicRefusal::UnknownReservedTopic);
        }
        if !limits.admit_topic(topic) {
            return Err(TopicRefusal::TopicOverLimits(limits));
        }
        Ok(Self::Ordinary(topic))
    }

    fn parse_reserved(topic: &'a str) -> Option<Self> {
        let mut levels = topic.split('/').skip(1);
        // Five levels tell every form apart; a sixth is only asked for to see that it is not there.
        let found: [Option<&str>; 4] = std::array::from_fn(|_| levels.next());
        match found {
            [Some("queue"), Some(queue), Some("response"), None] => {
                Some(Self::QueueResponse { queue })
            }
            [Some("consumer"), Some(channel), Some("seek"), None] => Some(Self::Seek { channel }),
            [Some("kv"), Some("get"), None, None] => Some(Self::PointRead),
            [Some("sessions"), Some("disconnect"), None, None] => Some(Self::HangUp),
            [Some("catalogue"), Some(channel), None, None] => Some(Self::Catalogue { channel }),
            _ => None,
        }
    }
}

impl SubscribeFilter {
    /// Sorts the text of a SUBSCRIBE's filter.
    ///
    /// # Errors
    /// [`TopicRefusal`], for what is no filter and for what is never granted.
    pub fn parse(text: &str, limits: TopicLimits) -> Result<Self, TopicRefusal> {
        let filter = TopicFilter::parse(text).map_err(TopicRefusal::NotAFilter)?;
        if is_share(text) {
            return Self::parse_shared(text, limits);
        }
        if is_at_or_under(text, "$SYS") {
            return Err(TopicRefusal::NothingDelivered);
        }
        if is_at_or_under(text, "$saguin") {
            return Self::parse_reserved(text);
        }
        if !limits.admit_filter(&filter) {
            return Err(TopicRefusal::FilterOverLimits(limits));
        }
        Ok(Self::Plain(filter))
    }

    fn parse_shared(text: &str, limits: TopicLimits) -> Result<Self, TopicRefusal> {
        let after = text
            .strip_prefix("$share/")
            .ok_or(TopicRefusal::MisshapenShare)?;
        let (group, text) = after.split_once('/').ok_or(TopicRefusal::MisshapenShare)?;
        // MQTT-4.8.2-1, MQTT-4.8.2-2: a group has a name, and no wildcard in it.
        if group.is_empty() || group.contains(['+', '#']) || text.is_empty() || is_share(text) {
            return Err(TopicRefusal::MisshapenShare);
        }
        if is_at_or_under(text, "$SYS") || is_at_or_under(text, "$saguin") {
            return Err(TopicRefusal::NothingDelivered);
        }
        let filter = TopicFilter::parse(text).map_err(TopicRefusal::NotAFilter)?;
        if !limits.admit_filter(&filter) {
            return Err(TopicRefusal::FilterOverLimits(limits));
        }
        Ok(Self::Shared {
            group: group.to_owned(),
            filter,
        })
    }

    fn parse_reserved(text: &str) -> Result<Self, TopicRefusal> {
        if let Some(queue) = text.strip_prefix("$saguin/queue/") {
            // Invariant 4: one form and no other, or one job would have two populations of workers.
            if queue.is_empty() || queue.contains(['/', '+', '#']) {
                return Err(TopicRefusal::NotTheQueueForm);
            }
            return Ok(Self::Queue {
                queue: queue.to_owned(),
            });
        }
        let channel = text
            .strip_prefix("$saguin/consumer/")
            .and_then(|rest| rest.strip_suffix("/seek/reply"))
            .filter(|channel| !channel.contains('/'))
            .ok_or(TopicRefusal::NothingDelivered)?;
        Ok(Self::SeekReply {
            channel: channel.to_owned(),
        })
    }
}

/// Whether `text` is `root` or lies below it.
fn is_at_or_under(text: &str, root: &str) -> bool {
    text.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the first level is `$share` in any letters: in others than these it is a mistake to be
/// told about, not a filter to be granted and never served.
fn is_share(text: &str) -> bool {
    text.split('/')
        .next()
        .is_some_and(|first| first.eq_ignore_ascii_case("$share"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TopicLimits = TopicLimits {
        max_length: 40,
        max_levels: 5,
    };

    #[test]
    fn publishing_is_sorted_by_shape() {
        use PublishTopic as P;
        for (topic, expected) in [
            ("a/b", Ok(P::Ordinary("a/b"))),
            ("$other/x", Ok(P::Ordinary("$other/x"))),
            ("$saguinx", Ok(P::Ordinary("$saguinx"))),
            ("$share", Ok(P::Ordinary("$share"))),
            (
                "$saguin/queue/jobs/response",
                Ok(P::QueueResponse { queue: "jobs" }),
            ),
            ("$saguin/consumer/e/seek", Ok(P::Seek { channel: "e" })),
            ("$saguin/kv/get", Ok(P::PointRead)),
            ("$saguin/sessions/disconnect", Ok(P::HangUp)),
            ("$saguin/catalogue/e", Ok(P::Catalogue { channel: "e" })),
            ("$saguin", Err(0x90)),
            ("$saguin/", Err(0x90)),
            ("$saguin/queue/jobs", Err(0x90)),
            ("$saguin/queue/jobs/response/x", Err(0x90)),
            ("$saguin/consumer/e/seek/reply", Err(0x90)),
            ("$saguin/kv/get/", Err(0x90)),
            ("$share/g/a", Err(0x90)),
            ("$SYS", Err(0x87)),
            ("$SYS/broker", Err(0x87)),
            ("a/b/c/d/e/f", Err(0x90)),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Err(0x90)),
        ] {
            let found = P::parse(topic, LIMITS).map_err(|refusal| refusal.reason_code());
            assert_eq!(found, expected, "{topic}");
        }
    }

    #[test]
    fn subscribing_is_sorted_by_shape() {
        use SubscribeFilter as S;
        let plain = |text| S::Plain(TopicFilter::parse(text).unwrap());
        let shared = |group: &str, text| S::Shared {
            group: group.to_owned(),
            filter: TopicFilter::parse(text).unwrap(),
        };
        let queue = |queue: &str| S::Queue {
            queue: queue.to_owned(),
        };
        let reply = |channel: &str| S::SeekReply {
            channel: channel.to_owned(),
        };
        for (text, expected) in [
            ("a/+/#", Ok(plain("a/+/#"))),
            ("#", Ok(plain("#"))),
            ("$other/#", Ok(plain("$other/#"))),
            ("$share/g/a/#", Ok(shared("g", "a/#"))),
            ("$share/g//a", Ok(shared("g", "/a"))),
            ("$saguin/queue/jobs", Ok(queue("jobs"))),
            ("$saguin/consumer/e/seek/reply", Ok(reply("e"))),
            ("", Err(0x8F)),
            ("a#", Err(0x8F)),
            ("a/b/c/d/e/f", Err(0x8F)),
            ("$share/g/a/b/c/d/e/f", Err(0x8F)),
            ("$share", Err(0x8F)),
            ("$share/g", Err(0x8F)),
            ("$share/g/", Err(0x8F)),
            ("$share//a", Err(0x8F)),
            ("$share/+/a", Err(0x8F)),
            ("$SHARE/g/a", Err(0x8F)),
            ("$share/g/$share/h/a", Err(0x8F)),
            ("$share/g/$saguin/queue/jobs", Err(0x87)),
            ("$share/g/$SYS/#", Err(0x87)),
            ("$SYS", Err(0x87)),
            ("$SYS/#", Err(0x87)),
            ("$saguin", Err(0x87)),
            ("$saguin/#", Err(0x87)),
            ("$saguin/+/jobs", Err(0x87)),
            ("$saguin/queue", Err(0x87)),
            ("$saguin/kv/get", Err(0x87)),
            ("$saguin/consumer/e/seek", Err(0x87)),
            ("$saguin/queue/", Err(0x8F)),
            ("$saguin/queue/+", Err(0x8F)),
            ("$saguin/queue/#", Err(0x8F)),
            ("$saguin/queue/jobs/response", Err(0x8F)),
        ] {
            let found = S::parse(text, LIMITS).map_err(|refusal| refusal.reason_code());
            assert_eq!(found, expected, "{text}");
        }
    }
}

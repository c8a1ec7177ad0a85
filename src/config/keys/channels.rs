//! The keys of a channel, by its type.

use super::Kind::{Choice, Filter, Name, Section as Below};
use super::WhenAbsent::{Absent, Is, Required};
use super::{Key, Section, count, key, period, period_or_none, refused, size_or_none};

const STORAGE_OF_CHANNEL: Key = key(
    "storage",
    Name,
    Absent("`broker.storage.default`"),
    "The provider that keeps it.",
);

const DURABILITY_OF_CHANNEL: Key = key(
    "durability",
    Choice {
        of: &["sync", "interval"],
        not_yet: &[],
    },
    Absent("its provider's"),
    "When what is published to it is acknowledged; see its provider.",
);

const NEVER_AGED: &str = "a queue is never aged out: a job stays until it is done or dead-lettered";
const ONE_VALUE: &str = "a latest channel holds one value per topic and has no bound of bytes";
const QUEUE_ONLY: &str = "it is a key of `type: queue`";
const APPEND_ONLY: &str = "it is a key of `type: append`";
const LATEST_ONLY: &str = "it is a key of `type: latest`";

pub(in crate::config) static APPEND: Section = Section {
    about: "Every record, to every subscriber, in order, from its own position.",
    keys: &[
        TYPE_OF_CHANNEL,
        FILTER_WITH_BRACES,
        STORAGE_OF_CHANNEL,
        DURABILITY_OF_CHANNEL,
        key(
            "retention_period",
            period_or_none(),
            Absent("`broker.storage.default_retention_period`"),
            "How long a record is kept.",
        ),
        key(
            "retention_bytes",
            size_or_none(),
            Absent("`broker.storage.default_retention_bytes`"),
            "How many bytes are kept; past it the oldest go.",
        ),
        key(
            "max_bytes",
            size_or_none(),
            Is("none"),
            "How many bytes it may hold; past it publishes are refused (0x97).",
        ),
        key(
            "start",
            Choice {
                of: &["floor", "tail"],
                not_yet: &[],
            },
            Is("floor"),
            "Where a subscriber without a position begins: at the oldest record, or now.",
        ),
        refused("deletion_retention_period", LATEST_ONLY),
        refused("visibility_timeout", QUEUE_ONLY),
        refused("job_expires_after", QUEUE_ONLY),
        refused("retry", QUEUE_ONLY),
        refused("dlq_retention_period", QUEUE_ONLY),
        refused("dlq_retention_bytes", QUEUE_ONLY),
    ],
};

pub(in crate::config) static LATEST: Section = Section {
    about: "The current value of each topic on subscribing, then its changes.",
    keys: &[
        TYPE_OF_CHANNEL,
        FILTER_WITH_BRACES,
        STORAGE_OF_CHANNEL,
        DURABILITY_OF_CHANNEL,
        key(
            "retention_period",
            period_or_none(),
            Absent("`broker.storage.default_retention_period`"),
            "How long the value of a topic that no longer changes is kept.",
        ),
        key(
            "deletion_retention_period",
            period(),
            Is("1d"),
            "How long a deletion is kept for those who were away.",
        ),
        refused("retention_bytes", ONE_VALUE),
        refused("max_bytes", ONE_VALUE),
        refused("start", APPEND_ONLY),
        refused("visibility_timeout", QUEUE_ONLY),
        refused("job_expires_after", QUEUE_ONLY),
        refused("retry", QUEUE_ONLY),
        refused("dlq_retention_period", QUEUE_ONLY),
        refused("dlq_retention_bytes", QUEUE_ONLY),
    ],
};

pub(in crate::config) static QUEUE: Section = Section {
    about: "Each record to one worker at a time, under a lease. A queue `q` brings an append \
            channel `q__dlq` for its dead letters.",
    keys: &[
        TYPE_OF_CHANNEL,
        key(
            "filter",
            Filter { braces: false },
            Absent("`<name>/#`"),
            "The topics it holds.",
        ),
        STORAGE_OF_CHANNEL,
        DURABILITY_OF_CHANNEL,
        key(
            "max_bytes",
            size_or_none(),
            Is("none"),
            "How many bytes of unfinished jobs it may hold; past it publishes are refused (0x97).",
        ),
        key(
            "visibility_timeout",
            period(),
            Is("30s"),
            "How long a worker has, from its acknowledgement of receipt. Shorter than \
             `job_expires_after`.",
        ),
        key(
            "job_expires_after",
            period_or_none(),
            Is("none"),
            "The age at which a job no worker holds is dead-lettered.",
        ),
        key(
            "retry",
            Below,
            Absent("its defaults"),
            "What follows a failed attempt.",
        ),
        key(
            "dlq_retention_period",
            period_or_none(),
            Absent("`broker.storage.default_retention_period`"),
            "How long a dead letter is kept.",
        ),
        key(
            "dlq_retention_bytes",
            size_or_none(),
            Absent("`broker.storage.default_retention_bytes`"),
            "How many bytes of dead letters are kept; past it the oldest go.",
        ),
        refused("retention_period", NEVER_AGED),
        refused("retention_bytes", NEVER_AGED),
        refused("start", APPEND_ONLY),
        refused("deletion_retention_period", LATEST_ONLY),
    ],
};

const TYPE_OF_CHANNEL: Key = key(
    "type",
    Choice {
        of: &["append", "latest", "queue"],
        not_yet: &[],
    },
    Required,
    "What the channel delivers.",
);

const FILTER_WITH_BRACES: Key = key(
    "filter",
    Filter { braces: true },
    Absent("`<name>/#`"),
    "The topics it holds. A level may be `{a,b}`: one filter for each.",
);

pub(in crate::config) static RETRY: Section = Section {
    about: "What follows a failed attempt at a job of a queue.",
    keys: &[
        key(
            "max_attempts",
            count(1, 1_000_000),
            Is("5"),
            "The attempt after which a job is dead-lettered.",
        ),
        key(
            "backoff",
            Choice {
                of: &["none", "linear", "exponential"],
                not_yet: &[],
            },
            Is("none"),
            "How the wait before attempt n+1 grows: not at all, base × n, or base × 2^(n−1).",
        ),
        key(
            "backoff_base",
            period(),
            Absent("required with `backoff`, refused without"),
            "The base of that wait.",
        ),
    ],
};

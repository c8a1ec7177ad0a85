//! The keys outside `channels`.

use super::Kind::{Address, Choice, Duration, Flag, Name, Path, Section as Below, Size, Text};
use super::WhenAbsent::{Absent, Is, Required};
use super::{
    DAY, GIB, KIB, LARGEST, LARGEST_PACKET, LONGEST_CLIENT_ID, LONGEST_STRING, MIB, SECOND,
    Section, count, key, not_yet, period_or_none, refused, size_or_none,
};

pub(in crate::config) static ROOT: Section = Section {
    about: "What stands at the left margin.",
    keys: &[
        key("broker", Below, Required, "The broker itself."),
        key(
            "channels",
            Below,
            Absent("no channel: every topic is broadcast"),
            "The channels, by name.",
        ),
        not_yet("bridges"),
    ],
};

pub(in crate::config) static BROKER: Section = Section {
    about: "The broker itself.",
    keys: &[
        key(
            "id",
            Text { max: 128 },
            Required,
            "What this broker calls itself in its logs.",
        ),
        key(
            "log_level",
            Choice {
                of: &["debug", "info", "warn", "error"],
                not_yet: &[],
            },
            Is("info"),
            "The least severe line that is logged.",
        ),
        key(
            "mqtt",
            Below,
            Absent("its defaults"),
            "How clients connect.",
        ),
        key("storage", Below, Required, "Where records are kept."),
        key(
            "session",
            Below,
            Absent("its defaults"),
            "What is kept for clients that are away.",
        ),
        key(
            "limits",
            Below,
            Absent("its defaults"),
            "The bound of everything a client can make the broker hold.",
        ),
        not_yet("pid_file"),
        not_yet("operations"),
        not_yet("retained"),
        not_yet("share"),
        not_yet("qos2"),
    ],
};

pub(in crate::config) static MQTT: Section = Section {
    about: "How clients connect.",
    keys: &[
        key(
            "listen",
            Below,
            Absent("`tcp` on `0.0.0.0:1883`"),
            "Where clients connect to.",
        ),
        key(
            "allow_anonymous",
            Flag { only: true },
            Is("true"),
            "Whether a client without a user name is admitted.",
        ),
        key(
            "min_protocol_version",
            Choice {
                of: &["3.1.1", "5"],
                not_yet: &[],
            },
            Is("3.1.1"),
            "The oldest MQTT version admitted.",
        ),
        not_yet("password_file"),
        not_yet("acl_file"),
    ],
};

pub(in crate::config) static LISTEN: Section = Section {
    about: "Where clients connect to.",
    keys: &[
        key(
            "tcp",
            Below,
            Required,
            "One TCP listener, or a list of them, each with a `name`.",
        ),
        not_yet("ws"),
        not_yet("unix"),
    ],
};

pub(in crate::config) static TCP: Section = Section {
    about: "A TCP listener. Two may not share a port of one address.",
    keys: &[
        key(
            "name",
            Name,
            Absent("`tcp`; required in a list"),
            "What the logs call it.",
        ),
        key(
            "address",
            Address,
            Required,
            "The address bound. A port is part of it; port 0 takes any free one.",
        ),
        not_yet("tls"),
        not_yet("password_file"),
        not_yet("allow_anonymous"),
        not_yet("proxy_protocol"),
    ],
};

pub(in crate::config) static STORAGE: Section = Section {
    about: "Where records are kept.",
    keys: &[
        key(
            "default",
            Name,
            Required,
            "The provider of whatever names none.",
        ),
        key(
            "default_retention_period",
            period_or_none(),
            Required,
            "How long records are kept where a channel does not say.",
        ),
        key(
            "default_retention_bytes",
            size_or_none(),
            Required,
            "How many bytes are kept where a channel does not say.",
        ),
        key("providers", Below, Required, "The providers, by name."),
    ],
};

pub(in crate::config) static LOG_PROVIDER: Section = Section {
    about: "A provider: one directory, locked by one broker at a time.",
    keys: &[
        key(
            "type",
            Choice {
                of: &["log"],
                not_yet: &["sqlite", "memory"],
            },
            Required,
            "`log` is a log of segments in one directory.",
        ),
        key(
            "log_dir",
            Path,
            Required,
            "Its directory. Two providers may not share one.",
        ),
        // A log keeps no reserve for what relieves it yet, so no bound on it could be kept.
        not_yet("max_bytes"),
        key(
            "durability",
            Choice {
                of: &["sync", "interval"],
                not_yet: &[],
            },
            Is("sync"),
            "`sync`: nothing is acknowledged before it is on the disk. `interval`: once the operating \
             system has it; a power cut can cost what was acknowledged in about the last \
             `flush_interval` and one sync. A channel may say otherwise; sessions and positions \
             follow their provider.",
        ),
        key(
            "flush_interval",
            Duration {
                min: 10,
                max: SECOND,
                none: false,
                sub_second: true,
            },
            Is("150ms"),
            "The longest what `durability: interval` acknowledged stays off the disk, beside one sync.",
        ),
        key(
            "publish_commit_interval",
            Duration {
                min: 1,
                max: SECOND,
                none: false,
                sub_second: true,
            },
            Absent("no wait"),
            "How long a commit waits for company after its first publish.",
        ),
        key(
            "publish_commit_max_records",
            count(2, 1_000_000),
            Absent("no wait"),
            "How many records end that wait. At most `max_connections`.",
        ),
        key(
            "segment_bytes",
            Size {
                min: MIB,
                max: GIB,
                none: false,
            },
            Is("64MiB"),
            "How large a file of the log becomes before the next is begun.",
        ),
        key(
            "tail_cache_bytes",
            Size {
                min: KIB,
                max: 64 * GIB,
                none: false,
            },
            Is("16MiB"),
            "How much of the newest records is kept in memory for readers.",
        ),
        not_yet("checkpoint_bytes"),
        refused("file_path", "a log is a directory, named by `log_dir`"),
        refused("synchronous", "it is a key of `type: sqlite`"),
        refused("read_connections", "it is a key of `type: sqlite`"),
        refused("snapshot_dir", "it is a key of `type: memory`"),
    ],
};

pub(in crate::config) static SESSION: Section = Section {
    about: "What is kept for clients that are away.",
    keys: &[
        key(
            "storage",
            Name,
            Absent("`broker.storage.default`"),
            "The provider that keeps sessions.",
        ),
        key(
            "ack_commit_interval",
            Duration {
                min: 10,
                max: SECOND,
                none: false,
                sub_second: true,
            },
            Is("200ms"),
            "The longest a consumer's stored position lags behind its acknowledgements.",
        ),
    ],
};

pub(in crate::config) static LIMITS: Section = Section {
    about: "The bound of everything a client can make the broker hold.",
    keys: &[
        key(
            "max_message_size",
            Size {
                min: KIB,
                max: LARGEST_PACKET,
                none: false,
            },
            Is("1MiB"),
            "The largest packet, its fixed header included; told to MQTT 5 clients. Larger: 0x95.",
        ),
        key(
            "max_topic_length",
            count(1, LONGEST_STRING),
            Is("1024"),
            "The longest topic or filter, bytes.",
        ),
        key(
            "max_topic_levels",
            count(1, LONGEST_STRING),
            Is("200"),
            "The deepest topic or filter, levels.",
        ),
        key(
            "max_client_id_length",
            count(23, LONGEST_CLIENT_ID),
            Is("256"),
            "The longest client id, bytes. Longer: 0x85.",
        ),
        key(
            "max_header_count",
            count(0, LONGEST_STRING),
            Is("32"),
            "The most User Properties on a message. More: 0x97.",
        ),
        key(
            "max_header_bytes",
            Size {
                min: 1,
                max: LARGEST_PACKET,
                none: false,
            },
            Is("8KiB"),
            "The most bytes their keys and values may have together. More: 0x97.",
        ),
        key(
            "max_connections",
            count(1, 1_000_000),
            Is("10000"),
            "The most connections at once. More: 0x89.",
        ),
        key(
            "max_subscriptions",
            count(1, 1_000_000),
            Is("10000"),
            "The most subscriptions of one client. More: 0x97, as where they would take more than 48 MiB of memory.",
        ),
        key(
            "max_session_expiry",
            Duration {
                min: SECOND,
                max: 0xFFFF_FFFE * SECOND,
                none: false,
                sub_second: false,
            },
            Is("30d"),
            "The longest a session outlives its connection; a longer wish is cut to it.",
        ),
        key(
            "max_keepalive",
            Duration {
                min: SECOND,
                max: 65_535 * SECOND,
                none: true,
                sub_second: false,
            },
            Is("none"),
            "The longest keepalive of an MQTT 5 client; a longer one, or none, is cut to it.",
        ),
        key(
            "write_timeout",
            Duration {
                min: 1,
                max: DAY,
                none: true,
                sub_second: true,
            },
            Is("5s"),
            "How long a client may take to take what is written to it. With `none` its keepalive \
             bounds it.",
        ),
        key(
            "connect_timeout",
            Duration {
                min: SECOND,
                max: DAY,
                none: false,
                sub_second: false,
            },
            Is("10s"),
            "How long a connection may take to send its CONNECT.",
        ),
        key(
            "max_connect_size",
            Size {
                min: KIB,
                max: LARGEST_PACKET,
                none: false,
            },
            Is("100KiB"),
            "The largest CONNECT, held against its declared length before it is read.",
        ),
        key(
            "session_queue_bytes",
            Size {
                min: KIB,
                max: LARGEST,
                none: false,
            },
            Is("1MiB"),
            "The most one session may be owed. At least `max_message_size`.",
        ),
        not_yet("publish_rate"),
        not_yet("publish_bytes"),
        not_yet("max_connect_rate"),
    ],
};

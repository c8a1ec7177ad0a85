//! The keys outside `channels`.

use super::Kind::{Address, Choice, Duration, Flag, Name, Path, Section as Below, Size, Text};
use super::WhenAbsent::{Absent, Is, Required};
use super::{
    DAY, GIB, KIB, LARGEST, LARGEST_PACKET, LONGEST_CLIENT_ID, LONGEST_STRING, MIB, SECOND,
    Section, count, key, not_yet, period, period_or_none, refused, size_or_none,
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
            "retained",
            Below,
            Absent("its defaults"),
            "What is kept of broadcast messages with RETAIN.",
        ),
        key(
            "share",
            Below,
            Absent("its defaults"),
            "What is held for shared subscriptions.",
        ),
        key(
            "qos2",
            Below,
            Absent("its defaults"),
            "The bounds of what is published at QoS 2.",
        ),
        key(
            "limits",
            Below,
            Absent("its defaults"),
            "The bound of everything a client can make the broker hold.",
        ),
        not_yet("pid_file"),
        not_yet("operations"),
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
        key(
            "max_bytes",
            Size {
                min: 16 * MIB,
                max: 1024 * 1024 * GIB,
                none: true,
            },
            Is("none"),
            "What its directory may take. Publishing is refused before that, so that what gives room \
             back never is: see the reserve in `rfcs/0004-storage.md`. Files of the log are at most \
             a sixteenth of it. At least four of the largest records: `max_message_size` and \
             `max_header_bytes`.",
        ),
        key(
            "durability",
            Choice {
                of: &["sync", "interval"],
                not_yet: &[],
            },
            Is("sync"),
            "What an acknowledgement promises. `sync`: it is on the disk, and a power cut costs nothing \
             acknowledged. `interval`: the system has it, so that a crash of the broker costs nothing; a \
             power cut costs what was acknowledged in the last `flush_interval` and one sync, never \
             something older than what is left. A channel may say otherwise for itself.",
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
            "How long what was acknowledged under `durability: interval` stays unsynced, at most.",
        ),
        key(
            "publish_commit_interval",
            Duration {
                min: 1,
                max: SECOND,
                none: true,
                sub_second: true,
            },
            Absent("a commit takes what arrived during the one before, and waits for nothing"),
            "How long a commit waits for company after its first publish arrived: fewer, larger writes. \
             `none`: every publish has a write and a sync of its own.",
        ),
        key(
            "publish_commit_max_records",
            count(1, 32_768),
            Absent("required with a `publish_commit_interval`"),
            "How many operations end that wait.",
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
        key(
            "checkpoint_bytes",
            Size {
                min: MIB,
                max: 64 * GIB,
                none: false,
            },
            Is("256MiB"),
            "After how much more log a checkpoint is written at the latest. It is written earlier where \
             it is small; opening the log replays what follows it.",
        ),
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
            "The provider that keeps sessions, what they are owed, and Wills. Named anew, it starts with none; \
             those of the one before stay there.",
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

pub(in crate::config) static RETAINED: Section = Section {
    about: "What is kept of broadcast messages with RETAIN: the last of each topic, for whoever subscribes \
            later.",
    keys: &[
        key(
            "storage",
            Name,
            Absent("`broker.storage.default`"),
            "The provider that keeps them. Named anew, it starts with none; those of the one before stay there.",
        ),
        key(
            "retention_period",
            period_or_none(),
            Is("none"),
            "How long the value of a quiet topic is kept. The publisher's own expiry ends it earlier.",
        ),
    ],
};

pub(in crate::config) static SHARE: Section = Section {
    about: "What is held for shared subscriptions. A group with a member whose session is kept holds QoS 1 \
            and 2 messages that no member can take, as many as `limits.session_queue_bytes` says.",
    keys: &[key(
        "expires_after",
        period_or_none(),
        Is("none"),
        "How long such a message is held. Then it is dropped.",
    )],
};

pub(in crate::config) static QOS2: Section = Section {
    about: "The bounds of what is published at QoS 2 and not yet released by its publisher.",
    keys: &[
        key(
            "max_inflight_per_client",
            count(1, KIB),
            Is("20"),
            "How many of one client are held. More: 0x97; with MQTT 3.1.1 the connection is closed.",
        ),
        key(
            "expires_after",
            period(),
            Is("5m"),
            "How long one waits for its PUBREL. Then it is dropped.",
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

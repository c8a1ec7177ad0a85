//! Every key there is, said once: its name, what it takes, its default and what it is for.
//!
//! The reader checks files against these tables and `docs/configuration.md` is written from them.

mod broker;
mod channels;

use Kind::{Duration, NotYet, Refused, Size, Whole};
use WhenAbsent::Absent;
pub(super) use broker::{
    BROKER, LIMITS, LISTEN, LOG_PROVIDER, MQTT, QOS2, RETAINED, ROOT, SESSION, SHARE, STORAGE, TCP,
};
pub(super) use channels::{APPEND, LATEST, QUEUE, RETRY};

/// A mapping in the file.
#[derive(Debug)]
pub(super) struct Section {
    /// What it is for; shown above its keys.
    pub(super) about: &'static str,
    /// Every key it may hold.
    pub(super) keys: &'static [Key],
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: WhenAbsent,
    pub(super) about: &'static str,
}

/// What a key takes.
#[derive(Debug)]
pub(super) enum Kind {
    /// Text of 1 to this many bytes, no control characters.
    Text { max: usize },
    /// `true` or `false`, of which this version supports one.
    Flag { only: bool },
    /// One of these words; `not_yet` are words of the language that this version refuses.
    Choice {
        of: &'static [&'static str],
        not_yet: &'static [&'static str],
    },
    /// A whole number.
    Whole { min: u64, max: u64 },
    /// A size in bytes.
    Size { min: u64, max: u64, none: bool },
    /// A duration; bounds in milliseconds. Whole seconds unless `sub_second`.
    Duration {
        min: u64,
        max: u64,
        none: bool,
        sub_second: bool,
    },
    /// An absolute path.
    Path,
    /// An IP address and a port.
    Address,
    /// A channel's filter.
    Filter { braces: bool },
    /// The name of a listener, or of a provider.
    Name,
    /// A mapping with a table of its own, or a list of them.
    Section,
    /// A key of the language that this version refuses.
    NotYet,
    /// A key that has no meaning in this place, and why.
    Refused(&'static str),
}

/// What holds where a key is absent.
#[derive(Debug)]
pub(super) enum WhenAbsent {
    /// The key must be there.
    Required,
    /// This value, as it would be written.
    Is(&'static str),
    /// What these words say.
    Absent(&'static str),
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const SECOND: u64 = 1_000;
const DAY: u64 = 86_400 * SECOND;
/// A hundred years: longer than any of this is meant to run, and far from any overflow.
pub(super) const LONGEST: u64 = 36_500 * DAY;
/// An exbibyte: past any disk this is meant for, and far from any overflow.
pub(super) const LARGEST: u64 = 1 << 60;
/// The log refuses a batch that is larger by more than what it adds to a record.
const LARGEST_PACKET: u64 = 24 * MIB;
/// The longest MQTT string, bytes.
const LONGEST_STRING: u64 = 65_535;
/// A stored position's key is the client id and a few bytes more, 65,535 in all.
const LONGEST_CLIENT_ID: u64 = 65_000;

const fn key(name: &'static str, kind: Kind, default: WhenAbsent, about: &'static str) -> Key {
    Key {
        name,
        kind,
        default,
        about,
    }
}

const fn not_yet(name: &'static str) -> Key {
    key(name, NotYet, Absent(""), "")
}

const fn refused(name: &'static str, why: &'static str) -> Key {
    key(name, Refused(why), Absent(""), "")
}

/// A period of whole seconds, at least one, that may be `none`.
const fn period_or_none() -> Kind {
    Duration {
        min: SECOND,
        max: LONGEST,
        none: true,
        sub_second: false,
    }
}

const fn period() -> Kind {
    Duration {
        min: SECOND,
        max: LONGEST,
        none: false,
        sub_second: false,
    }
}

const fn size_or_none() -> Kind {
    Size {
        min: 1,
        max: LARGEST,
        none: true,
    }
}

const fn count(min: u64, max: u64) -> Kind {
    Whole { min, max }
}

/// Every section, in the order of the documentation, with its heading there.
pub(super) static SECTIONS: [(&str, &Section); 16] = [
    ("The file", &ROOT),
    ("`broker`", &BROKER),
    ("`broker.mqtt`", &MQTT),
    ("`broker.mqtt.listen`", &LISTEN),
    ("`broker.mqtt.listen.tcp`", &TCP),
    ("`broker.storage`", &STORAGE),
    ("`broker.storage.providers.<name>`", &LOG_PROVIDER),
    ("`broker.session`", &SESSION),
    ("`broker.retained`", &RETAINED),
    ("`broker.share`", &SHARE),
    ("`broker.qos2`", &QOS2),
    ("`broker.limits`", &LIMITS),
    ("`channels.<name>` with `type: append`", &APPEND),
    ("`channels.<name>` with `type: latest`", &LATEST),
    ("`channels.<name>` with `type: queue`", &QUEUE),
    ("`channels.<name>.retry`", &RETRY),
];

impl Section {
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

//! A session as the store keeps it, so that it outlives the process.
//!
//! One JSON object per client id: small, written seldom, and legible to whoever inspects a data
//! directory. Positions are not in it; they move far more often and have their own keys.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::broker::topic::Partition;

/// The version this build writes, and the only one it reads.
const VERSION: u32 = 1;

/// A session record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRecord {
    version: u32,
    /// Session Expiry Interval in force, seconds.
    pub expiry_seconds: u32,
    /// When the connection ended, Unix milliseconds; absent while connected. A session connected
    /// when the broker stopped without saying so counts its expiry from the next start.
    pub away_since_unix_ms: Option<u64>,
    /// Names what is held back for this session and no other of its client; see
    /// [`Session::stamp`](super::Session::stamp).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stamp: u64,
    /// Every subscription in force.
    pub subscriptions: Vec<SubscriptionRecord>,
}

/// A subscription as granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriptionRecord {
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub identifier: Option<u32>,
    /// By channel id: the first offset that is this subscription's to see.
    pub from: BTreeMap<u32, u64>,
    /// The first offset of the broadcast log that is this subscription's to see.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_from: u64,
    /// Its share of the topics; absent where it has all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionRecord>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A subscription's share of the topics its filter matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionRecord {
    pub of: u32,
    pub slices: Vec<u32>,
}

impl From<&Partition> for PartitionRecord {
    fn from(partition: &Partition) -> Self {
        PartitionRecord {
            of: partition.of(),
            slices: partition.slices().to_vec(),
        }
    }
}

impl PartitionRecord {
    /// The partition it states, if it is one.
    pub fn read(&self) -> Option<Partition> {
        Partition::new(self.of, self.slices.iter().copied())
    }
}

impl SessionRecord {
    pub fn new(
        expiry_seconds: u32,
        away_since_unix_ms: Option<u64>,
        subscriptions: Vec<SubscriptionRecord>,
    ) -> Self {
        SessionRecord {
            version: VERSION,
            expiry_seconds,
            away_since_unix_ms,
            stamp: 0,
            subscriptions,
        }
    }

    /// The stored form.
    pub fn encode(&self) -> Result<Bytes, String> {
        serde_json::to_vec(self)
            .map(Bytes::from)
            .map_err(|error| format!("the session could not be written down: {error}"))
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let read = |error| format!("a session record could not be read: {error}");
        let Version { version } = serde_json::from_slice(bytes).map_err(read)?;
        if version != VERSION {
            return Err(format!(
                "a session record has version {version} and this broker reads version {VERSION}; start the version that wrote it"
            ));
        }
        serde_json::from_slice(bytes).map_err(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SessionRecord {
        SessionRecord::new(
            60,
            Some(1_700_000_000_000),
            vec![SubscriptionRecord {
                filter: "a/+".into(),
                qos: 1,
                no_local: true,
                retain_as_published: false,
                identifier: Some(5),
                from: BTreeMap::from([(3, 17)]),
                log_from: 0,
                partition: None,
            }],
        )
    }

    #[test]
    fn a_partition_is_written_where_there_is_one() {
        let mut record = sample();
        record.subscriptions[0].partition = Partition::new(4, [3, 1]).as_ref().map(Into::into);
        let encoded = record.encode().unwrap();
        let expected = br#""from":{"3":17},"partition":{"of":4,"slices":[1,3]}}]}"#;
        assert!(encoded.ends_with(expected), "{encoded:?}");
        assert_eq!(SessionRecord::decode(&encoded), Ok(record));
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let encoded = sample().encode().unwrap();
        assert_eq!(SessionRecord::decode(&encoded), Ok(sample()));
    }

    /// The inspector looks for these names.
    #[test]
    fn a_record_has_the_names_the_inspector_looks_for() {
        let expected = br#"{"version":1,"expiry_seconds":60,"away_since_unix_ms":1700000000000,"subscriptions":[{"filter":"a/+","qos":1,"no_local":true,"retain_as_published":false,"identifier":5,"from":{"3":17}}]}"#;
        assert_eq!(sample().encode().unwrap(), &expected[..]);
    }

    #[test]
    fn an_unknown_version_is_refused_naming_both() {
        let error = SessionRecord::decode(br#"{"version":2,"more":"than this"}"#).unwrap_err();
        assert!(
            error.contains("version 2") && error.contains("version 1"),
            "{error}"
        );
    }

    #[test]
    fn a_cut_record_is_an_error_and_never_a_blank_session() {
        let encoded = sample().encode().unwrap();
        for cut in 0..encoded.len() {
            assert!(SessionRecord::decode(&encoded[..cut]).is_err());
        }
    }
}

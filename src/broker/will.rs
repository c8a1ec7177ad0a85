//! Wills: armed by a CONNECT, kept until they are published or withdrawn.
//!
//! | state | what the store holds | moved on by |
//! |---|---|---|
//! | armed: its connection is there | the Will, no due moment | DISCONNECT → withdrawn; the end of the connection → waiting or due |
//! | waiting: its client is away, its delay runs | the Will and its due moment | the client's return → withdrawn; its moment or the end of the session → due |
//! | due | the Will and a moment that has come | published, or refused → gone |
//! | withdrawn | nothing | |
//!
//! Only a session that outlives its connection has its Will stored. A start finds it as it was: one
//! that waited goes on waiting or is published; one whose connection had not ended waits for its
//! client's return, which replaces it, or for the end of the session. A crash between the publish and
//! the store letting go has it published again: at least once.
//!
//! Each armed Will has a key of its own, so that the end of one never takes another with it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::storage::{Operation, Space};

use super::counters::{Counters, bump};
use super::open::OpenError;
use super::packet::{Publish, PublishProperties, UserPairs, Will};
use super::publish::Publisher;
use super::reason::{Reason, Refusal};
use super::session::Session;
use super::time::Now;
use super::{Broker, lock};

/// The version this build writes, and the only one it reads.
const VERSION: u8 = 1;

/// A value of the store may have this many bytes.
const MAX_RECORD_BYTES: usize = 1024 * 1024;

/// Why a Will is published; each is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WillCause {
    /// Its connection ended, and it has no delay.
    Immediate,
    /// Its delay has passed.
    Delayed,
    /// Its session ended, with its connection or after it.
    SessionEnded,
    /// Its moment passed while the broker was stopped.
    Start,
}

impl WillCause {
    fn counter(self, counters: &Counters) -> &AtomicU64 {
        match self {
            WillCause::Immediate => &counters.wills_immediate,
            WillCause::Delayed => &counters.wills_delayed,
            WillCause::SessionEnded => &counters.wills_session_ended,
            WillCause::Start => &counters.wills_start,
        }
    }
}

/// A Will a session has.
#[derive(Clone, Debug)]
pub(crate) struct ArmedWill {
    pub will: Will,
    /// Where the store has it, if it has.
    pub key: Option<Bytes>,
}

/// A Will as stored.
#[derive(Debug, Serialize, Deserialize)]
struct WillRecord {
    version: u8,
    /// The session it is of: its client may have another by now.
    stamp: u64,
    /// When it is published, Unix milliseconds; 0 while its connection is there.
    due: u64,
    delay_seconds: u32,
    qos: u8,
    retain: bool,
    topic: Vec<u8>,
    payload: Vec<u8>,
    payload_is_utf8: Option<bool>,
    expiry_seconds: Option<u32>,
    content_type: Option<Vec<u8>>,
    response_topic: Option<Vec<u8>>,
    correlation_data: Option<Vec<u8>>,
    user_properties: Vec<u8>,
    user_property_count: u32,
}

impl WillRecord {
    fn new(stamp: u64, due: u64, will: &Will) -> Self {
        let publish = &will.publish;
        let properties = &publish.properties;
        let copy = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
        WillRecord {
            version: VERSION,
            stamp,
            due,
            delay_seconds: will.delay_seconds,
            qos: publish.qos,
            retain: publish.retain,
            topic: publish.topic.to_vec(),
            payload: publish.payload.to_vec(),
            payload_is_utf8: properties.payload_is_utf8,
            expiry_seconds: properties.expiry_seconds,
            content_type: copy(&properties.content_type),
            response_topic: copy(&properties.response_topic),
            correlation_data: copy(&properties.correlation_data),
            user_properties: properties.user_properties.wire().to_vec(),
            user_property_count: u32::try_from(properties.user_properties.len())
                .unwrap_or(u32::MAX),
        }
    }

    fn will(self) -> Will {
        Will {
            publish: Publish {
                packet_id: 0,
                qos: self.qos,
                retain: self.retain,
                topic: self.topic.into(),
                payload: self.payload.into(),
                properties: PublishProperties {
                    payload_is_utf8: self.payload_is_utf8,
                    expiry_seconds: self.expiry_seconds,
                    content_type: self.content_type.map(Bytes::from),
                    response_topic: self.response_topic.map(Bytes::from),
                    correlation_data: self.correlation_data.map(Bytes::from),
                    user_properties: UserPairs::new(
                        self.user_properties.into(),
                        self.user_property_count as usize,
                    ),
                },
            },
            delay_seconds: self.delay_seconds,
        }
    }

    /// Numbers have their full width, so that a record does not grow by its due moment: at a bound,
    /// what is no longer than what it replaces is stored.
    fn encode(&self) -> Bytes {
        let config = bincode::config::standard().with_fixed_int_encoding();
        // Numbers and bytes that are all in memory: writing them down cannot fail.
        bincode::serde::encode_to_vec(self, config)
            .unwrap_or_default()
            .into()
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "its Will has version {other} and this broker reads version {VERSION}; start the version that wrote it"
                ));
            }
            None => return Err("its Will is cut short".into()),
        }
        let config = bincode::config::standard()
            .with_fixed_int_encoding()
            .with_limit::<{ 4 * 1024 * 1024 }>();
        let (record, read) = bincode::serde::decode_from_slice(bytes, config)
            .map_err(|error| format!("its Will could not be read: {error}"))?;
        if read != bytes.len() {
            return Err("its Will goes on past its end".into());
        }
        Ok(record)
    }
}

/// The key of a Will: whose it is, and a number no other Will of that client has.
fn will_key(client_id: &str, number: u64) -> Bytes {
    let mut key = Vec::with_capacity(client_id.len() + 9);
    key.extend_from_slice(client_id.as_bytes());
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key.into()
}

fn read_key(key: &[u8]) -> Option<&str> {
    let (key, _) = key.split_last_chunk::<8>()?;
    std::str::from_utf8(key.strip_suffix(&[0])?).ok()
}

impl ArmedWill {
    /// A Will that ends with its connection, whatever happens.
    pub fn unstored(will: Will) -> Self {
        ArmedWill { will, key: None }
    }

    /// A Will to be stored under a number of its own, and its record.
    ///
    /// # Errors
    /// It is larger than the store keeps.
    pub fn stored(
        will: Will,
        session: &Session,
        number: u64,
    ) -> Result<(Self, Operation), Refusal> {
        let armed = ArmedWill {
            will,
            key: Some(will_key(&session.client_id, number)),
        };
        let put = armed.put(session.stamp, 0);
        if let Some(Operation::Put { value, .. }) = &put
            && value.len() > MAX_RECORD_BYTES
        {
            return Err(Refusal::new(
                Reason::QuotaExceeded,
                format!(
                    "the Will takes {} bytes in the session store and may take {MAX_RECORD_BYTES}",
                    value.len()
                ),
            ));
        }
        match put {
            Some(put) => Ok((armed, put)),
            None => Err(Refusal::new(
                Reason::Unspecified,
                "the Will could not be written down",
            )),
        }
    }

    /// Writes it with its due moment, Unix milliseconds; 0 while its connection is there.
    pub fn put(&self, stamp: u64, due: u64) -> Option<Operation> {
        Some(Operation::Put {
            space: Space::Wills,
            key: self.key.clone()?,
            value: WillRecord::new(stamp, due, &self.will).encode(),
        })
    }

    /// Lets the store forget it.
    pub fn delete(&self) -> Option<Operation> {
        Some(Operation::Delete {
            space: Space::Wills,
            key: self.key.clone()?,
        })
    }
}

impl Broker {
    /// Publishes a Will through the ordinary path, as the client that armed it; then the store may
    /// forget it.
    pub(crate) fn publish_will(
        self: &Arc<Self>,
        client_id: &Arc<str>,
        armed: ArmedWill,
        cause: WillCause,
        now: Now,
    ) {
        let publisher = Publisher {
            client_id: &Bytes::copy_from_slice(client_id.as_bytes()),
            worker: None,
            turns: None,
        };
        let delete = armed.delete();
        let broker = self.clone();
        let client = client_id.clone();
        self.publish(
            &publisher,
            armed.will.publish,
            now,
            Box::new(move |outcome| {
                match outcome {
                    Ok(()) => bump(cause.counter(&broker.counters)),
                    Err(refusal) => {
                        bump(&broker.counters.wills_refused);
                        tracing::warn!(%client, %refusal, "a Will could not be published");
                    }
                }
                if let Some(delete) = delete {
                    broker.submit_session_write(&client, delete.into());
                }
            }),
        );
    }

    /// Gives sessions back the Wills the store kept for them, and publishes those whose moment has
    /// passed.
    pub(super) fn restore_wills(self: &Arc<Self>, now: Now) -> Result<(), OpenError> {
        let mut due_now = Vec::new();
        for (key, value) in self.session_store.scan(Space::Wills, &[]) {
            let client_id: Arc<str> = read_key(&key).unwrap_or_default().into();
            let record = WillRecord::decode(&value).map_err(|why| OpenError::Session {
                client_id: client_id.to_string(),
                why,
            })?;
            let (stamp, due) = (record.stamp, record.due);
            let armed = ArmedWill {
                will: record.will(),
                key: Some(key),
            };
            let session = lock(&self.registry).session(&client_id);
            let session = session.filter(|session| session.stamp == stamp);
            match session {
                Some(session) if due == 0 => self.restore_armed(&session, armed),
                Some(session) if due > now.unix_ms => {
                    if let Some(armed) = self.restore_waiting(&session, armed, due, now) {
                        due_now.push((client_id, armed));
                    }
                }
                None if due == 0 => {
                    // Its session ended while the broker was stopped, and nobody saw it go.
                    let delete = armed.delete().into_iter().collect();
                    let batch = crate::storage::Batch { operations: delete };
                    self.submit_session_write(&client_id, batch);
                }
                Some(_) | None => due_now.push((client_id, armed)),
            }
        }
        for (client_id, armed) in due_now {
            self.publish_will(&client_id, armed, WillCause::Start, now);
        }
        Ok(())
    }

    /// Keys rise with time, so of two that were armed the later is found last and stays.
    fn restore_armed(&self, session: &Arc<Session>, armed: ArmedWill) {
        let mut state = session.lock();
        let replaced = match state.will_due {
            // One that waits, from before a CONNECT nobody was told the outcome of.
            Some(_) => Some(armed),
            None => state.will.replace(armed),
        };
        let delete = replaced.and_then(|replaced| replaced.delete());
        drop(state);
        if let Some(delete) = delete {
            self.submit_session_write(&session.client_id, delete.into());
        }
    }

    /// Returns the Will where another waits in its place.
    fn restore_waiting(
        &self,
        session: &Arc<Session>,
        armed: ArmedWill,
        due: u64,
        now: Now,
    ) -> Option<ArmedWill> {
        let mut state = session.lock();
        if state.will.is_some() {
            return Some(armed);
        }
        let left = Duration::from_millis(due - now.unix_ms);
        let at = now.since_start + left;
        state.will = Some(armed);
        state.will_due = Some((at, due));
        let first = state.expires_at.map_or(at, |expires| expires.min(at));
        self.schedule.session_at(session, &mut state, first);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Will {
        Will {
            publish: Publish {
                packet_id: 0,
                qos: 2,
                retain: true,
                topic: "a/b".into(),
                payload: "gone".into(),
                properties: PublishProperties {
                    expiry_seconds: Some(7),
                    content_type: Some("text".into()),
                    ..PublishProperties::default()
                },
            },
            delay_seconds: 9,
        }
    }

    #[test]
    fn a_will_reads_back_as_written_and_every_cut_is_seen() {
        let encoded = WillRecord::new(77, 5, &sample()).encode();
        let record = WillRecord::decode(&encoded).expect("its own");
        assert_eq!((record.stamp, record.due), (77, 5));
        assert_eq!(record.will(), sample());
        for cut in 0..encoded.len() {
            assert!(WillRecord::decode(&encoded[..cut]).is_err(), "cut at {cut}");
        }
        let longer = [&encoded[..], &[0]].concat();
        assert!(WillRecord::decode(&longer).is_err());
        let mut newer = encoded.to_vec();
        newer[0] = 2;
        let error = WillRecord::decode(&newer).unwrap_err();
        assert!(error.contains("version 2"), "{error}");
    }

    #[test]
    fn a_due_moment_makes_a_record_no_longer() {
        let armed = WillRecord::new(77, 0, &sample()).encode();
        let due = WillRecord::new(77, u64::MAX, &sample()).encode();
        assert_eq!(armed.len(), due.len());
    }

    #[test]
    fn a_key_says_whose_it_is_and_later_ones_follow() {
        let key = will_key("a/client", 258);
        assert_eq!(read_key(&key), Some("a/client"));
        assert!(key < will_key("a/client", 259));
    }
}

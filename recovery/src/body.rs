//! The bytes of one stored message: what the broker's log provider puts into a record, kept here so
//! that the inspector can print it without the broker. The engine sees opaque bytes.
//!
//! ```text
//!    0  version  u8   1
//!    1  flags    u8   1 retain, 2|4 qos, 8 response topic, 16 correlation data, 32 expiry,
//!                     64 properties, 128 the topic is the record's key and not repeated here
//!    2  id       16
//!   18  [bytes topic]  bytes publisher  [u32 expiry, seconds]
//!       [bytes response topic]  [bytes correlation data]
//!       [u32 counted user property bytes, bytes properties]
//!       payload to the end
//! ```
//!
//! `bytes` is a u32 length and that many bytes. Everything is little-endian.

/// The layout this build writes and reads.
const VERSION: u8 = 1;

const RETAIN: u8 = 1;
const QOS_SHIFT: u8 = 1;
const QOS_MASK: u8 = 0b110;
const RESPONSE_TOPIC: u8 = 8;
const CORRELATION: u8 = 16;
const EXPIRY: u8 = 32;
const PROPERTIES: u8 = 64;
const TOPIC_IS_KEY: u8 = 128;

/// One stored message, borrowing its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// Message id.
    pub id: [u8; 16],
    /// Topic, UTF-8.
    pub topic: &'a [u8],
    /// Client id of the publisher, UTF-8; empty when unknown.
    pub publisher: &'a [u8],
    /// Message expiry as published, in seconds.
    pub expiry_seconds: Option<u32>,
    /// Response topic, UTF-8.
    pub response_topic: Option<&'a [u8]>,
    /// Correlation data.
    pub correlation_data: Option<&'a [u8]>,
    /// Keys and values of the user properties in `properties`, in bytes.
    pub user_property_bytes: u32,
    /// Further properties in MQTT 5 wire form.
    pub properties: &'a [u8],
    /// Payload.
    pub payload: &'a [u8],
    /// RETAIN as published.
    pub retain: bool,
    /// QoS as published, 0 to 2.
    pub qos: u8,
}

/// A record that is whole but not a message this build can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Another layout than this build knows.
    Version {
        /// The record's.
        found: u8,
    },
    /// A field is cut short or out of range.
    Field(&'static str),
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BodyError::Version { found } => write!(
                f,
                "message layout {found} is unknown to this build, which reads {VERSION}; a newer one may have written it"
            ),
            BodyError::Field(field) => write!(f, "the message's {field} is not readable"),
        }
    }
}

impl std::error::Error for BodyError {}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    // Every field comes out of an MQTT packet, whose fields are shorter than 2^28 bytes.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl<'a> Body<'a> {
    /// The message's bytes. With `topic_is_key` the topic is left to the record's key.
    #[must_use]
    pub fn encode(&self, topic_is_key: bool) -> Vec<u8> {
        let parts = [
            self.topic.len(),
            self.publisher.len(),
            self.response_topic.map_or(0, <[u8]>::len),
            self.correlation_data.map_or(0, <[u8]>::len),
            self.properties.len(),
            self.payload.len(),
        ];
        let mut out = Vec::with_capacity(50 + parts.iter().sum::<usize>());
        out.push(VERSION);
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.push(
            flag(self.retain, RETAIN)
                | ((self.qos << QOS_SHIFT) & QOS_MASK)
                | flag(self.response_topic.is_some(), RESPONSE_TOPIC)
                | flag(self.correlation_data.is_some(), CORRELATION)
                | flag(self.expiry_seconds.is_some(), EXPIRY)
                | flag(!self.properties.is_empty(), PROPERTIES)
                | flag(topic_is_key, TOPIC_IS_KEY),
        );
        out.extend_from_slice(&self.id);
        if !topic_is_key {
            put(&mut out, self.topic);
        }
        put(&mut out, self.publisher);
        if let Some(seconds) = self.expiry_seconds {
            out.extend_from_slice(&seconds.to_le_bytes());
        }
        for part in [self.response_topic, self.correlation_data]
            .into_iter()
            .flatten()
        {
            put(&mut out, part);
        }
        if !self.properties.is_empty() {
            out.extend_from_slice(&self.user_property_bytes.to_le_bytes());
            put(&mut out, self.properties);
        }
        out.extend_from_slice(self.payload);
        out
    }

    /// Reads a message back; `key` is the record's key, for one whose topic is it.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(bytes: &'a [u8], key: &'a [u8]) -> Result<Body<'a>, BodyError> {
        let mut rest = Rest(bytes);
        let version = rest.array::<1>("version")?[0];
        if version != VERSION {
            return Err(BodyError::Version { found: version });
        }
        let flags = rest.array::<1>("flags")?[0];
        let id = rest.array::<16>("id")?;
        let has = |bit: u8| flags & bit != 0;
        let topic = if has(TOPIC_IS_KEY) {
            key
        } else {
            rest.bytes("topic")?
        };
        let publisher = rest.bytes("publisher")?;
        let expiry_seconds = if has(EXPIRY) {
            Some(rest.number("expiry")?)
        } else {
            None
        };
        let response_topic = if has(RESPONSE_TOPIC) {
            Some(rest.bytes("response topic")?)
        } else {
            None
        };
        let correlation_data = if has(CORRELATION) {
            Some(rest.bytes("correlation data")?)
        } else {
            None
        };
        let (user_property_bytes, properties) = if has(PROPERTIES) {
            (
                rest.number("user property size")?,
                rest.bytes("properties")?,
            )
        } else {
            (0, &[][..])
        };
        let qos = (flags & QOS_MASK) >> QOS_SHIFT;
        if qos > 2 {
            return Err(BodyError::Field("qos"));
        }
        Ok(Body {
            id,
            topic,
            publisher,
            expiry_seconds,
            response_topic,
            correlation_data,
            user_property_bytes,
            properties,
            payload: rest.0,
            retain: has(RETAIN),
            qos,
        })
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], BodyError> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(BodyError::Field(field))?;
        self.0 = tail;
        Ok(*head)
    }

    fn number(&mut self, field: &'static str) -> Result<u32, BodyError> {
        Ok(u32::from_le_bytes(self.array::<4>(field)?))
    }

    fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], BodyError> {
        let len = self.number(field)? as usize;
        if len > self.0.len() {
            return Err(BodyError::Field(field));
        }
        let (bytes, tail) = self.0.split_at(len);
        self.0 = tail;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Body<'static> {
        Body {
            id: [9; 16],
            topic: b"jobs/a",
            publisher: b"pump-1",
            expiry_seconds: Some(60),
            response_topic: Some(b"answers"),
            correlation_data: Some(b"\x00\x01"),
            user_property_bytes: 2,
            properties: &[0x26, 0, 1, b'k', 0, 1, b'v'],
            payload: b"{}",
            retain: true,
            qos: 1,
        }
    }

    fn bare() -> Body<'static> {
        Body {
            id: [0; 16],
            topic: b"t",
            publisher: b"",
            expiry_seconds: None,
            response_topic: None,
            correlation_data: None,
            user_property_bytes: 0,
            properties: b"",
            payload: b"",
            retain: false,
            qos: 0,
        }
    }

    #[test]
    fn a_message_comes_back_with_and_without_its_topic() {
        for body in [full(), bare()] {
            assert_eq!(Body::decode(&body.encode(false), b""), Ok(body));
            assert_eq!(Body::decode(&body.encode(true), body.topic), Ok(body));
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let hex: String = full()
            .encode(false)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let expected = concat!(
            "01",
            "7b",
            "09090909090909090909090909090909",
            "06000000",
            "6a6f62732f61",
            "06000000",
            "70756d702d31",
            "3c000000",
            "07000000",
            "616e7377657273",
            "02000000",
            "0001",
            "02000000",
            "07000000",
            "2600016b000176",
            "7b7d",
        );
        assert_eq!(hex, expected);
    }

    #[test]
    fn a_cut_message_is_an_error_and_never_a_panic() {
        let bytes = full().encode(false);
        let head = bytes.len() - 2;
        for cut in 0..head {
            assert!(Body::decode(&bytes[..cut], b"").is_err(), "cut at {cut}");
        }
        assert_eq!(
            Body::decode(&[7; 40], b""),
            Err(BodyError::Version { found: 7 })
        );
    }
}

//! Reads the fields of one packet, never past its end.

use bytes::{Buf, Bytes};

use crate::error::Fault;
use crate::text::{Text, TextError};

/// What is left of a packet, or of a part of one.
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub fn new(rest: Bytes) -> Self {
        Reader { rest }
    }

    pub fn len(&self) -> usize {
        self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, Fault> {
        self.rest
            .try_get_u8()
            .map_err(|_| Fault::Truncated { field })
    }

    pub fn u16(&mut self, field: &'static str) -> Result<u16, Fault> {
        self.rest
            .try_get_u16()
            .map_err(|_| Fault::Truncated { field })
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, Fault> {
        self.rest
            .try_get_u32()
            .map_err(|_| Fault::Truncated { field })
    }

    /// A Variable Byte Integer.
    pub fn integer(&mut self, field: &'static str) -> Result<u32, Fault> {
        let (value, size) =
            variable_byte_integer(&self.rest, field)?.ok_or(Fault::Truncated { field })?;
        self.rest.advance(size);
        Ok(value)
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize, field: &'static str) -> Result<Bytes, Fault> {
        if len > self.rest.len() {
            return Err(Fault::Truncated { field });
        }
        Ok(self.rest.split_to(len))
    }

    /// Binary Data: two bytes of length, then as many bytes.
    pub fn binary(&mut self, field: &'static str) -> Result<Bytes, Fault> {
        let len = self.u16(field)?;
        self.take(usize::from(len), field)
    }

    /// A UTF-8 Encoded String.
    pub fn text(&mut self, field: &'static str) -> Result<Text, Fault> {
        Text::new(self.binary(field)?).map_err(|error| match error {
            TextError::NotUtf8 { at } => Fault::NotUtf8 { field, at },
            TextError::Nul { at } => Fault::NulInText { field, at },
            // Two bytes of length cannot say more.
            TextError::TooLong { .. } => Fault::Truncated { field },
        })
    }

    /// A topic name: text without a wildcard (MQTT-3.3.2-2).
    pub fn topic(&mut self, field: &'static str) -> Result<Text, Fault> {
        let topic = self.text(field)?;
        if topic.has_wildcard() {
            return Err(Fault::TopicWildcard { field });
        }
        Ok(topic)
    }

    /// A packet identifier, which is never 0 (MQTT-2.2.1-3).
    pub fn packet_id(&mut self) -> Result<u16, Fault> {
        match self.u16("the packet identifier")? {
            0 => Err(Fault::PacketIdentifierZero),
            packet_id => Ok(packet_id),
        }
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// What is left, untouched.
    pub fn peek(&self) -> &Bytes {
        &self.rest
    }

    /// Nothing may follow the last field.
    pub fn finish(&self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(Fault::TrailingBytes { count }),
        }
    }
}

/// The Variable Byte Integer at the front of `bytes` and how many bytes it takes; `None` where
/// more bytes are needed to tell.
pub(super) fn variable_byte_integer(
    bytes: &[u8],
    field: &'static str,
) -> Result<Option<(u32, usize)>, Fault> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            // A last byte of 0 adds nothing, so the integer had a shorter form.
            if *byte == 0 && at > 0 {
                return Err(Fault::IntegerNotMinimal { field });
            }
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() >= 4 {
        return Err(Fault::IntegerTooLong { field });
    }
    Ok(None)
}

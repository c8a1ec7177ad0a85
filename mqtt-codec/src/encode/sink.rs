//! Where fields are written to: a buffer, or a count of what a buffer would take.

use bytes::{BufMut, Bytes, BytesMut};

use super::EncodeError;
use crate::packet::MAX_REMAINING_LENGTH;
use crate::property::Property;
use crate::text::Text;

/// Takes fields one after the other. The function that writes a packet is the one that measures
/// it, so the two cannot disagree.
pub(crate) trait Sink {
    fn slice(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.slice(&[value]);
    }

    fn u16(&mut self, value: u16) {
        self.slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.slice(&value.to_be_bytes());
    }

    /// A Variable Byte Integer, in as few bytes as it needs.
    fn integer(&mut self, mut value: usize) {
        while value > 0x7F {
            self.u8((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    fn text(&mut self, text: &Text) {
        // A `Text` has at most 65,535 bytes.
        self.u16(text.len() as u16);
        self.slice(text.as_bytes());
    }

    fn binary(&mut self, field: &'static str, bytes: &[u8]) -> Result<(), EncodeError> {
        let len = u16::try_from(bytes.len()).map_err(|_| EncodeError::TooLong {
            field,
            found: bytes.len(),
        })?;
        self.u16(len);
        self.slice(bytes);
        Ok(())
    }

    fn packet_id(&mut self, packet_id: u16) -> Result<(), EncodeError> {
        if packet_id == 0 {
            return Err(EncodeError::PacketIdentifierZero);
        }
        self.u16(packet_id);
        Ok(())
    }
}

impl Sink for BytesMut {
    fn slice(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }
}

/// Counts bytes.
#[derive(Default)]
pub(crate) struct Measure(usize);

impl Measure {
    pub fn len(&self) -> usize {
        self.0
    }
}

impl Sink for Measure {
    fn slice(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// How many bytes a Variable Byte Integer takes.
pub(crate) fn integer_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Writes properties with their length in front. `write` is called twice: to measure them, and to
/// write them.
pub(super) fn properties(
    out: &mut dyn Sink,
    write: impl Fn(&mut PropertySink<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let mut measure = Measure::default();
    write(&mut PropertySink(&mut measure))?;
    if measure.len() > MAX_REMAINING_LENGTH {
        return Err(EncodeError::TooLong {
            field: "the properties",
            found: measure.len(),
        });
    }
    out.integer(measure.len());
    write(&mut PropertySink(out))
}

/// Writes properties; `None` leaves one out.
pub(super) struct PropertySink<'a>(pub &'a mut dyn Sink);

impl PropertySink<'_> {
    pub fn u16(&mut self, property: Property, value: Option<u16>) {
        if let Some(value) = value {
            self.0.u8(property as u8);
            self.0.u16(value);
        }
    }

    pub fn u32(&mut self, property: Property, value: Option<u32>) {
        if let Some(value) = value {
            self.0.u8(property as u8);
            self.0.u32(value);
        }
    }

    pub fn flag(&mut self, property: Property, value: Option<bool>) {
        if let Some(value) = value {
            self.0.u8(property as u8);
            self.0.u8(u8::from(value));
        }
    }

    pub fn text(&mut self, property: Property, value: Option<&Text>) {
        if let Some(value) = value {
            self.0.u8(property as u8);
            self.0.text(value);
        }
    }

    pub fn binary(&mut self, property: Property, value: Option<&Bytes>) -> Result<(), EncodeError> {
        if let Some(value) = value {
            self.0.u8(property as u8);
            self.0.binary(property.name(), value)?;
        }
        Ok(())
    }

    /// Properties that are in their wire form already.
    pub fn wire(&mut self, wire: &[u8]) {
        self.0.slice(wire);
    }

    /// A Subscription Identifier.
    pub fn subscription_identifier(&mut self, identifier: u32) -> Result<(), EncodeError> {
        super::check_subscription_identifier(identifier)?;
        self.0.u8(Property::SubscriptionIdentifier as u8);
        self.0.integer(identifier as usize);
        Ok(())
    }
}

/// A value that may be left out, and is not 0 where it is there.
pub(super) fn nonzero<T: Copy + Into<u32>>(
    property: Property,
    value: Option<T>,
) -> Result<Option<T>, EncodeError> {
    match value {
        Some(zero) if zero.into() == 0 => Err(EncodeError::Value {
            field: property.name(),
            found: 0,
        }),
        value => Ok(value),
    }
}

//! Delivery IDs: the name of one delivery of one job, as the worker echoes it.

use std::hash::{BuildHasher, Hasher};

/// What the Delivery IDs of one queue in one run of the broker share: random, so that no ID from
/// before a restart, and none of another queue, names anything here (invariant 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u64);

impl Epoch {
    /// A new epoch. Every queue takes its own.
    #[must_use]
    pub fn random() -> Self {
        // The standard library keys its hasher from the operating system's random numbers.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(0x5a67_7569_6e00_0001);
        Epoch(hasher.finish())
    }
}

/// Opaque to workers: 32 ASCII characters that go out as Correlation Data and come back with the
/// answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryId([u8; 32]);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl DeliveryId {
    /// The `number`-th delivery of `epoch`.
    pub(super) fn new(epoch: Epoch, number: u64) -> Self {
        let value = (u128::from(epoch.0) << 64) | u128::from(number);
        let mut text = [0; 32];
        for (byte, digit) in value.to_be_bytes().iter().zip(text.chunks_exact_mut(2)) {
            digit[0] = HEX[usize::from(byte >> 4)];
            digit[1] = HEX[usize::from(byte & 15)];
        }
        DeliveryId(text)
    }

    /// The ID that Correlation Data holds; `None` for bytes that are no Delivery ID of any run.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text: [u8; 32] = bytes.try_into().ok()?;
        text.iter()
            .all(|c| HEX.contains(c))
            .then_some(DeliveryId(text))
    }

    /// The delivery's number, if it is of `epoch`.
    pub(super) fn number(&self, epoch: Epoch) -> Option<u64> {
        let text = std::str::from_utf8(&self.0).ok()?;
        let value = u128::from_str_radix(text, 16).ok()?;
        let number = u64::try_from(value & u128::from(u64::MAX)).ok()?;
        (value >> 64 == u128::from(epoch.0)).then_some(number)
    }

    /// The bytes that go out as Correlation Data.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for DeliveryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_as_it_went_out() {
        let epoch = Epoch(0x0123_4567_89ab_cdef);
        let id = DeliveryId::new(epoch, 42);
        assert_eq!(id.to_string(), "0123456789abcdef000000000000002a");
        let back = DeliveryId::parse(id.as_bytes()).unwrap();
        assert_eq!(back.number(epoch), Some(42));
        assert_eq!(back.number(Epoch(1)), None);
    }

    #[test]
    fn other_bytes_are_no_id() {
        let text = "0123456789abcdef000000000000002a";
        assert!(DeliveryId::parse(text.as_bytes()).is_some());
        assert!(DeliveryId::parse(&text.as_bytes()[1..]).is_none());
        assert!(DeliveryId::parse(text.to_uppercase().as_bytes()).is_none());
        assert!(DeliveryId::parse(&[0xff; 32]).is_none());
        assert!(DeliveryId::parse(b"").is_none());
    }

    #[test]
    fn two_epochs_differ() {
        assert_ne!(Epoch::random(), Epoch::random());
    }
}

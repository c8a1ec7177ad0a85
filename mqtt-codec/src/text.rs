//! A UTF-8 string of MQTT, kept as the bytes it came in.

use std::fmt;

use bytes::Bytes;

/// Text that MQTT can carry: UTF-8, without U+0000, at most 65,535 bytes.
///
/// A `Text` that was decoded is a slice of the read buffer and keeps that buffer alive.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(Bytes);

/// Why bytes are not a [`Text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// Not UTF-8; the first wrong byte is here.
    NotUtf8 {
        /// Its place, bytes from the start.
        at: usize,
    },
    /// A U+0000 (MQTT-1.5.4-2).
    Nul {
        /// Its place, bytes from the start.
        at: usize,
    },
    /// Longer than 65,535 bytes.
    TooLong {
        /// The length, bytes.
        found: usize,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::NotUtf8 { at } => write!(f, "byte {at} is not UTF-8; send UTF-8"),
            TextError::Nul { at } => write!(f, "byte {at} is U+0000; leave it out"),
            TextError::TooLong { found } => {
                write!(f, "{found} bytes are more than MQTT's 65535; send fewer")
            }
        }
    }
}

impl std::error::Error for TextError {}

impl Text {
    /// The most bytes a string of MQTT has.
    pub const MAX_LEN: usize = u16::MAX as usize;

    /// Checks bytes, without copying them.
    ///
    /// # Errors
    /// Too long, not UTF-8, or with a U+0000 in it.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, TextError> {
        let bytes = bytes.into();
        Self::check(&bytes)?;
        Ok(Text(bytes))
    }

    /// Text for a person, such as a Reason String: a U+0000 is left out and what is over 65,535
    /// bytes is cut off.
    #[must_use]
    pub fn lossy(text: &str) -> Self {
        let mut kept: String = text.chars().filter(|c| *c != '\0').collect();
        let mut end = kept.len().min(Self::MAX_LEN);
        while !kept.is_char_boundary(end) {
            end -= 1;
        }
        kept.truncate(end);
        Text(kept.into())
    }

    /// The text. It is checked again on the way, which is cheap; hold on to the result in a loop.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only checked bytes get into a `Text`, so the default is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, shared.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The bytes, shared.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same text in a buffer of its own, so that it pins no other.
    #[must_use]
    pub fn detached(&self) -> Self {
        Text(Bytes::copy_from_slice(&self.0))
    }

    /// Whether the text holds `#` or `+`, which a topic name may not (MQTT-3.3.2-2).
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.0.iter().any(|byte| matches!(byte, b'#' | b'+'))
    }

    pub(crate) fn check(bytes: &[u8]) -> Result<(), TextError> {
        if bytes.len() > Self::MAX_LEN {
            return Err(TextError::TooLong { found: bytes.len() });
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            return Err(TextError::NotUtf8 {
                at: error.valid_up_to(),
            });
        }
        match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => Err(TextError::Nul { at }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl TryFrom<&str> for Text {
    type Error = TextError;

    fn try_from(text: &str) -> Result<Self, TextError> {
        Self::check(text.as_bytes())?;
        Ok(Text(Bytes::copy_from_slice(text.as_bytes())))
    }
}

impl TryFrom<String> for Text {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        Text::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_mqtt_can_carry_is_text() {
        assert_eq!(Text::new("grün/日").map(|t| t.len()), Ok(9));
        assert_eq!(Text::new("a\0b"), Err(TextError::Nul { at: 1 }));
        assert_eq!(
            Text::new(vec![b'a', 0xED, 0xA0, 0x80]),
            Err(TextError::NotUtf8 { at: 1 }),
            "a surrogate is no UTF-8"
        );
        assert_eq!(
            Text::new("x".repeat(65_536)),
            Err(TextError::TooLong { found: 65_536 })
        );
    }

    #[test]
    fn a_sentence_that_does_not_fit_is_cut_between_characters() {
        let text = Text::lossy(&format!("a\0{}", "ü".repeat(40_000)));
        assert_eq!(text.len(), 65_535);
        assert!(text.as_str().starts_with("aü") && text.as_str().ends_with('ü'));
        // One byte less in front, and the last character no longer ends on the bound.
        assert_eq!(Text::lossy(&"ü".repeat(40_000)).len(), 65_534);
    }
}

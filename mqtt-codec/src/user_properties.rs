//! User Properties, kept in their wire form.
//!
//! A pair costs what it cost on the wire and nothing more, however many there are: five bytes on
//! the wire stay five bytes in memory.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::property::Property;
use crate::text::{Text, TextError};

/// Bytes of a pair that are neither key nor value: the identifier and two lengths.
const PAIR_OVERHEAD: usize = 5;

/// User Properties in order, repeats kept; every key and value is [`Text`].
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct UserProperties {
    wire: Bytes,
    count: usize,
}

impl UserProperties {
    /// No pair at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Pairs of a wire form that was checked, `count` of them.
    pub(crate) fn from_checked(wire: Bytes, count: usize) -> Self {
        UserProperties { wire, count }
    }

    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all keys and all values together.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.wire.len() - PAIR_OVERHEAD * self.count
    }

    /// The wire form: for each pair 0x26, the key and the value, each with two bytes of length.
    #[must_use]
    pub fn wire(&self) -> &Bytes {
        &self.wire
    }

    /// The pairs in order, key first.
    #[must_use]
    pub fn iter(&self) -> Pairs<'_> {
        Pairs { rest: &self.wire }
    }

    /// The value of the first pair with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find_map(|(found, value)| (found == key).then_some(value))
    }

    /// The pairs whose key does not begin with `prefix`, in order. Where that is all of them
    /// nothing is copied.
    #[must_use]
    pub fn without_prefix(&self, prefix: &str) -> Self {
        let goes = |pair: &RawPair<'_>| pair.key.starts_with(prefix.as_bytes());
        if !self.raw().any(|pair| goes(&pair)) {
            return self.clone();
        }
        let mut kept = UserPropertiesBuilder::default();
        for pair in self.raw().filter(|pair| !goes(pair)) {
            kept.wire.extend_from_slice(pair.wire);
            kept.count += 1;
        }
        kept.build()
    }

    /// The same pairs in a buffer of their own, so that they pin no other.
    #[must_use]
    pub fn detached(&self) -> Self {
        UserProperties {
            wire: Bytes::copy_from_slice(&self.wire),
            count: self.count,
        }
    }

    fn raw(&self) -> RawPairs<'_> {
        RawPairs { rest: &self.wire }
    }
}

impl fmt::Debug for UserProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a UserProperties {
    type Item = (&'a str, &'a str);
    type IntoIter = Pairs<'a>;

    fn into_iter(self) -> Pairs<'a> {
        self.iter()
    }
}

/// The pairs of [`UserProperties`], key first.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = next_pair(&mut self.rest)?;
        // Only checked text gets into the wire form, so the defaults are never taken.
        Some((
            std::str::from_utf8(pair.key).unwrap_or_default(),
            std::str::from_utf8(pair.value).unwrap_or_default(),
        ))
    }
}

struct RawPairs<'a> {
    rest: &'a [u8],
}

struct RawPair<'a> {
    wire: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Iterator for RawPairs<'a> {
    type Item = RawPair<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        next_pair(&mut self.rest)
    }
}

fn next_pair<'a>(rest: &mut &'a [u8]) -> Option<RawPair<'a>> {
    let (key, after_key) = split_text(rest.get(1..)?)?;
    let (value, after_value) = split_text(after_key)?;
    let wire = rest.get(..rest.len() - after_value.len())?;
    *rest = after_value;
    Some(RawPair { wire, key, value })
}

fn split_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// Builds [`UserProperties`] pair by pair.
#[derive(Clone, Debug, Default)]
pub struct UserPropertiesBuilder {
    wire: BytesMut,
    count: usize,
}

impl UserPropertiesBuilder {
    /// A builder with no pair yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a pair.
    ///
    /// # Errors
    /// The key or the value is not [`Text`]; then nothing was appended.
    pub fn push(&mut self, key: &str, value: &str) -> Result<&mut Self, TextError> {
        Text::check(key.as_bytes())?;
        Text::check(value.as_bytes())?;
        self.wire.reserve(PAIR_OVERHEAD + key.len() + value.len());
        self.wire.put_u8(Property::User as u8);
        for text in [key, value] {
            // The check above bounds both to 16 bits.
            self.wire.put_u16(text.len() as u16);
            self.wire.put_slice(text.as_bytes());
        }
        self.count += 1;
        Ok(self)
    }

    /// Appends every pair of `others`, in order.
    pub fn extend(&mut self, others: &UserProperties) -> &mut Self {
        self.wire.extend_from_slice(&others.wire);
        self.count += others.count;
        self
    }

    /// The pairs appended so far.
    #[must_use]
    pub fn build(self) -> UserProperties {
        UserProperties {
            wire: self.wire.freeze(),
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(&str, &str)]) -> UserProperties {
        let mut builder = UserPropertiesBuilder::new();
        for (key, value) in of {
            assert!(builder.push(key, value).is_ok());
        }
        builder.build()
    }

    #[test]
    fn pairs_come_back_in_order_with_repeats() {
        let given = [("a", "1"), ("", ""), ("a", "2"), ("ü", "日本")];
        let built = pairs(&given);
        assert_eq!(built.iter().collect::<Vec<_>>(), given);
        assert_eq!((built.len(), built.text_len()), (4, 4 + 2 + 6));
        assert_eq!(built.wire().len(), 5 * 4 + 12);
        assert_eq!(built.get("a"), Some("1"));
        assert_eq!(built.get("b"), None);
    }

    #[test]
    fn a_prefix_takes_its_pairs_and_no_others() {
        let all = pairs(&[
            ("saguin-id", "x"),
            ("a", "1"),
            ("saguin", "kept"),
            ("a", "2"),
        ]);
        assert_eq!(
            all.without_prefix("saguin-"),
            pairs(&[("a", "1"), ("saguin", "kept"), ("a", "2")])
        );
        let untouched = all.without_prefix("other-");
        assert_eq!(untouched.wire().as_ptr(), all.wire().as_ptr());
        assert!(all.without_prefix("").is_empty());
    }

    #[test]
    fn what_is_not_text_is_not_appended() {
        let mut builder = UserPropertiesBuilder::new();
        assert!(builder.push("key", "a\0").is_err());
        assert!(builder.push(&"k".repeat(65_536), "").is_err());
        assert!(builder.build().is_empty());
    }
}

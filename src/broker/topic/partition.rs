//! Partitions: the share of a filter's topics that one consumer takes of several (spec 04).
//!
//! `saguin-filter: topic_hash(N, i)` on a SUBSCRIBE: of the topics its filters match, those whose
//! hash modulo N is i. Several on one SUBSCRIBE are the union of their slices.

use std::collections::BTreeSet;

/// The largest N.
const MAX_OF: u32 = 2_147_483_647;

/// Most declarations on one SUBSCRIBE: every filter of it is stored with all of them (invariant 13).
const MAX_DECLARED: usize = 1024;

/// A topic's place in the space that partitions divide: FNV-1a of its bytes, mixed until its low
/// bits are as good as its high ones.
#[must_use]
pub fn topic_hash(topic: &[u8]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for byte in topic {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    h ^= h >> 30;
    h = h.wrapping_mul(13_787_848_793_156_543_929);
    h ^= h >> 27;
    h = h.wrapping_mul(10_723_151_780_598_845_931);
    h ^ (h >> 31)
}

/// What a subscription takes of the topics its filter matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    of: u32,
    /// In order, each once, each below `of`; at least one.
    slices: Box<[u32]>,
}

impl Partition {
    /// The slices of a partition of `of`; `None` where there are none, or one is not below `of`, or
    /// `of` is 0 or above 2,147,483,647.
    #[must_use]
    pub fn new(of: u32, slices: impl IntoIterator<Item = u32>) -> Option<Partition> {
        let slices: BTreeSet<u32> = slices.into_iter().collect();
        let good = (1..=MAX_OF).contains(&of) && slices.last().is_some_and(|last| *last < of);
        good.then(|| Partition {
            of,
            slices: slices.into_iter().collect(),
        })
    }

    /// The declarations of one SUBSCRIBE together.
    ///
    /// # Errors
    /// The sentence to refuse it with.
    pub fn declared<'a>(
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<Partition>, String> {
        let mut all: Option<(u32, Vec<u32>)> = None;
        for (count, value) in values.into_iter().enumerate() {
            if count == MAX_DECLARED {
                return Err(format!(
                    "a SUBSCRIBE has at most {MAX_DECLARED} saguin-filter; divide by a smaller N"
                ));
            }
            let shown = String::from_utf8_lossy(value);
            let (of, slice) = parse(value).ok_or_else(|| {
                format!(
                    "saguin-filter {shown:?} is not topic_hash(N, i) with N from 1 to {MAX_OF} and i below N, in decimal digits"
                )
            })?;
            match &mut all {
                None => all = Some((of, vec![slice])),
                Some((earlier, slices)) if *earlier == of => slices.push(slice),
                Some((earlier, _)) => {
                    return Err(format!(
                        "saguin-filter divides by {earlier} and by {of} in one SUBSCRIBE; all of them have one N"
                    ));
                }
            }
        }
        Ok(all.and_then(|(of, slices)| Partition::new(of, slices)))
    }

    /// What the topics are divided by.
    #[must_use]
    pub fn of(&self) -> u32 {
        self.of
    }

    /// The slices taken, in order.
    #[must_use]
    pub fn slices(&self) -> &[u32] {
        &self.slices
    }

    /// Whether a topic is in it.
    #[must_use]
    pub fn has(&self, topic: &[u8]) -> bool {
        // Below `of`, which is 32 bits.
        let slice = (topic_hash(topic) % u64::from(self.of)) as u32;
        self.slices.binary_search(&slice).is_ok()
    }
}

/// `topic_hash(N, i)`: space, tab, CR and LF around the name, the parentheses and the comma, decimal
/// digits, and nothing else (spec 12, answer 22).
fn parse(value: &[u8]) -> Option<(u32, u32)> {
    let rest = after(value, b"topic_hash")?;
    let (of, rest) = number(after(rest, b"(")?)?;
    let (slice, rest) = number(after(rest, b",")?)?;
    let rest = after(rest, b")")?;
    let good = skip_blanks(rest).is_empty() && (1..=MAX_OF).contains(&of) && slice < of;
    good.then_some((of, slice))
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let blanks = bytes.iter().take_while(|byte| blank(byte)).count();
    &bytes[blanks..]
}

fn after<'a>(bytes: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    skip_blanks(bytes).strip_prefix(word)
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let bytes = skip_blanks(bytes);
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, rest) = bytes.split_at(digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_hash_is_the_one_that_clients_compute() {
        for (topic, hash) in [
            ("iot/depot/events/dev-1", 16_961_261_177_379_703_000_u64),
            ("iot/water/w-7/inspect", 16_406_880_391_913_018_636),
            ("orders/resize/thumbnails/42", 10_596_179_872_049_748_585),
            ("a", 198_367_012_849_983_736),
        ] {
            assert_eq!(topic_hash(topic.as_bytes()), hash, "{topic}");
        }
    }

    #[test]
    fn a_declaration_is_read_exactly() {
        for (text, read) in [
            ("topic_hash(4, 0)", Some((4, 0))),
            ("topic_hash(4,3)", Some((4, 3))),
            (" \ttopic_hash \r( 1\n , 0 ) \n", Some((1, 0))),
            (
                "topic_hash(2147483647, 2147483646)",
                Some((2_147_483_647, 2_147_483_646)),
            ),
            ("topic_hash(004, 03)", Some((4, 3))),
            ("topic_hash(2147483648, 0)", None),
            ("topic_hash(0, 0)", None),
            ("topic_hash(4, 4)", None),
            ("topic_hash(4, -1)", None),
            ("topic_hash(+4, 1)", None),
            ("topic_hash(4 4, 1)", None),
            ("topic_hash(4, 1", None),
            ("topic_hash(4, 1))", None),
            ("topic_hash(4, 1) x", None),
            ("topic_hash(4)", None),
            ("topic_hash(, 1)", None),
            ("topic_hash(4, 0x1)", None),
            ("topic_hash(99999999999999999999, 1)", None),
            ("Topic_hash(4, 1)", None),
            ("topic _hash(4, 1)", None),
            ("topic_hash\u{a0}(4, 1)", None),
            ("topic_hash(٤, 1)", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), read, "{text:?}");
        }
    }

    #[test]
    fn declarations_of_one_subscribe_are_a_union_and_have_one_n() {
        let declared = |values: &[&str]| Partition::declared(values.iter().map(|v| v.as_bytes()));
        let both = declared(&["topic_hash(4, 3)", "topic_hash(4, 1)", "topic_hash(4, 3)"]);
        assert_eq!(both.unwrap().unwrap().slices(), [1, 3]);
        assert_eq!(declared(&[]), Ok(None));
        let error = declared(&["topic_hash(4, 3)", "topic_hash(5, 1)"]).unwrap_err();
        assert!(error.contains("by 4 and by 5"), "{error}");
        let error = declared(&["topic_hash(4, 3)", "hash"]).unwrap_err();
        assert!(error.contains("\"hash\""), "{error}");
        assert!(declared(&["topic_hash(4, 3)"; MAX_DECLARED]).is_ok());
        let error = declared(&["topic_hash(4, 3)"; MAX_DECLARED + 1]).unwrap_err();
        assert!(error.contains("at most 1024"), "{error}");
    }

    proptest! {
        #[test]
        fn every_topic_is_in_exactly_one_slice(topic in ".{0,40}", of in 1..50_u32) {
            let slices = (0..of).map(|slice| Partition::new(of, [slice]).unwrap());
            prop_assert_eq!(slices.filter(|slice| slice.has(topic.as_bytes())).count(), 1);
            prop_assert!(Partition::new(of, 0..of).unwrap().has(topic.as_bytes()));
        }

        #[test]
        fn no_declaration_is_a_panic(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&value);
        }
    }
}

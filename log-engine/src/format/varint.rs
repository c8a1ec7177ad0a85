//! Unsigned LEB128, at most ten bytes, minimal form only: one number has one encoding.

/// Most bytes of one number.
const MOST: usize = 10;

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    put_all(out, [value]);
}

/// Appends several numbers, in one piece: a record has more numbers than anything else.
#[inline]
pub(crate) fn put_all<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    const { assert!(N * MOST <= PIECE, "fits in the piece") };
    let mut piece = [0u8; PIECE];
    let mut len = 0;
    for mut value in values {
        while value >= 0x80 {
            piece[len] = (value as u8) | 0x80;
            value >>= 7;
            len += 1;
        }
        piece[len] = value as u8;
        len += 1;
    }
    out.extend_from_slice(&piece[..len]);
}

const PIECE: usize = 4 * MOST;

/// Takes a number off the front of `input`; `None` where it is cut short, too large or not in its
/// shortest form.
#[inline]
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    // Most numbers take a byte.
    if let Some((&byte, rest)) = input.split_first()
        && byte < 0x80
    {
        *input = rest;
        return Some(byte.into());
    }
    take_bytewise(input)
}

fn take_bytewise(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().enumerate().take(MOST) {
        let bits = u64::from(byte & 0x7f);
        if i == MOST - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            if byte == 0 && i > 0 {
                return None;
            }
            *input = &input[i + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn what_is_read_does_not_depend_on_how_much_follows(
            bits in 0u32..64, value: u64, junk in proptest::collection::vec(proptest::num::u8::ANY, 0..20),
        ) {
            let value = value >> bits;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            bytes.extend_from_slice(&junk);
            let mut rest = &bytes[..];
            proptest::prop_assert_eq!(take(&mut rest), Some(value));
            proptest::prop_assert_eq!(rest, &junk[..]);
            // Any bytes at all: both ways of reading agree.
            let (mut one, mut other) = (&junk[..], &junk[..]);
            proptest::prop_assert_eq!(take(&mut one), take_bytewise(&mut other));
            proptest::prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn numbers_come_back_and_have_one_encoding() {
        for value in [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut rest = &bytes[..];
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
            assert_eq!(
                take(&mut &bytes[..bytes.len() - 1]),
                None,
                "{value} cut short"
            );
        }
        assert_eq!(take(&mut &[0x80, 0x00][..]), None, "zero in two bytes");
        let long = [0x80, 0x00, 1, 1, 1, 1, 1, 1];
        assert_eq!(take(&mut &long[..]), None, "and with more after it");
        assert_eq!(take(&mut &[0xff; 10][..]), None, "more than 64 bits");
    }
}

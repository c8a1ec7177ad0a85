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
    match **input {
        [byte, ref rest @ ..] if byte < 0x80 => {
            *input = rest;
            Some(u64::from(byte))
        }
        [a, b, c, d, e, f, g, h, ..] => take_of_eight(input, [a, b, c, d, e, f, g, h]),
        _ => take_bytewise(input),
    }
}

/// A number of up to eight bytes, all at once: replaying a log is mostly this.
#[inline]
fn take_of_eight(input: &mut &[u8], bytes: [u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(bytes);
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return take_bytewise(input);
    }
    let len = ends.trailing_zeros() as usize / 8 + 1;
    let word = word & (u64::MAX >> (64 - 8 * len));
    if len > 1 && word >> (8 * (len - 1)) == 0 {
        return None;
    }
    // Seven bits of each byte, then fourteen of each pair, then twenty-eight of each four.
    let word = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
    let word = (word & 0x0000_3fff_0000_3fff) | ((word & 0x3fff_0000_3fff_0000) >> 2);
    let word = (word & 0x0fff_ffff) | ((word & 0x0fff_ffff_0000_0000) >> 4);
    *input = &input[len..];
    Some(word)
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

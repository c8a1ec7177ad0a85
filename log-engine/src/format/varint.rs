//! Unsigned LEB128, at most ten bytes, minimal form only: one number has one encoding.

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `input`; `None` where it is cut short, too large or not in its
/// shortest form.
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
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
        assert_eq!(take(&mut &[0xff; 10][..]), None, "more than 64 bits");
    }
}

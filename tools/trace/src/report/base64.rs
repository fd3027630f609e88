//! Bytes as text that HTML can hold.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes `bytes` in base64 with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for position in 0..4 {
            let digit = (bits >> (18 - 6 * position) & 63) as usize;
            text.push(if position <= group.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

/// Decodes base64 with padding; `None` when the text is something else.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        let at = ALPHABET.iter().position(|letter| *letter == byte)?;
        u32::try_from(at).ok()
    };
    let table: [Option<u32>; 256] =
        core::array::from_fn(|byte| u8::try_from(byte).ok().and_then(digit));
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    for (index, group) in text.chunks(4).enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && (index + 1) * 4 != text.len()) {
            return None;
        }
        let mut bits = 0;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | table[usize::from(*byte)]?;
        }
        let [_, whole @ ..] = (bits << (6 * padding)).to_be_bytes();
        bytes.extend(&whole[..3 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn known_texts_come_out() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()));
        }
        for wrong in ["Z", "Zg=", "Z===", "Zg==Zg==", "Zm9\u{e9}", "Zm 9"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        assert_eq!(encode(&[0xff, 0xfe, 0xfd]), "//79");
    }
}

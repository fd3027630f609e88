//! Numbers in as few bytes as they need: seven bits a byte, low bits first, the top bit set on all but the last.

/// Appends `value`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Bytes for a record's length, kind and eight numbers.
pub(super) const ROOM: usize = 96;

/// Writes a record's kind and numbers to a buffer that has room for them.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    bytes: &'a mut [u8; ROOM],
    length: usize,
}

impl<'a> Frame<'a> {
    /// Begins behind the two bytes of the length.
    #[inline]
    pub(super) const fn new(bytes: &'a mut [u8; ROOM]) -> Self {
        Self { bytes, length: 2 }
    }

    #[inline]
    pub(super) const fn byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    #[inline]
    pub(super) const fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.byte((value & 0x7f) as u8);
    }

    /// Writes a number in eight bytes.
    #[inline]
    pub(super) fn word(&mut self, value: u64) {
        self.bytes[self.length..self.length + 8].copy_from_slice(&value.to_le_bytes());
        self.length += 8;
    }

    /// Writes the length of everything so far plus `more` bytes that will follow; returns the bytes used.
    #[inline]
    pub(super) fn end(self, more: usize) -> usize {
        // Text is at most 4 KiB and a number ten bytes, so the length always fits.
        let length = u16::try_from(self.length - 2 + more).unwrap_or(u16::MAX);
        self.bytes[..2].copy_from_slice(&length.to_le_bytes());
        self.length
    }
}

/// Takes a number off the front of `bytes`; `None` when they end first or the number passes 64 bits.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut shift = 0;
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit only.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{put, take};

    #[test]
    fn every_width_survives_and_overlong_is_refused() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                assert_eq!(take(&mut &bytes[..]), Some(value));
                assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]),
            None
        );
    }
}

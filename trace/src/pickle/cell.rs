//! One value in eight bytes.

/// A value: a small number, a piece of the input, or the number of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cell(u64);

/// Value of a [`Cell`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// `None`, a float, bytes, a set, or a number past 56 bits: nothing that a reader here uses.
    Other,
    /// A whole number or a truth value.
    Int(i64),
    /// Text: where it starts in the input, and its bytes.
    Text(usize, usize),
    /// A list or tuple.
    List(u32),
    /// A dictionary.
    Dict(u32),
}

const TAG_SHIFT: u32 = 56;
const BITS: u64 = (1 << TAG_SHIFT) - 1;
const INT: u64 = 1;
const TEXT: u64 = 2;
const LIST: u64 = 3;
const DICT: u64 = 4;
const LENGTH_BITS: u32 = 16;

impl Cell {
    pub(crate) const OTHER: Self = Self(0);

    pub(crate) fn int(value: i64) -> Self {
        let fits = value << 8 >> 8 == value;
        if fits { Self(INT << TAG_SHIFT | value.cast_unsigned() & BITS) } else { Self::OTHER }
    }

    /// Text too long or too far into the input to note becomes [`Cell::OTHER`].
    pub(crate) fn text(start: usize, length: usize) -> Self {
        let (start, length) = (start as u64, length as u64);
        if length >> LENGTH_BITS != 0 || start >> (TAG_SHIFT - LENGTH_BITS) != 0 {
            return Self::OTHER;
        }
        Self(TEXT << TAG_SHIFT | start << LENGTH_BITS | length)
    }

    pub(crate) fn list(index: u32) -> Self {
        Self(LIST << TAG_SHIFT | u64::from(index))
    }

    pub(crate) fn dict(index: u32) -> Self {
        Self(DICT << TAG_SHIFT | u64::from(index))
    }

    /// Returns a total order; equal only for the same number, text or container.
    pub(crate) fn order(self) -> u64 {
        self.0
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "each part was that narrow when it was packed"
    )]
    pub(crate) fn value(self) -> Value {
        let bits = self.0 & BITS;
        match self.0 >> TAG_SHIFT {
            INT => Value::Int(bits.cast_signed() << 8 >> 8),
            TEXT => Value::Text(
                (bits >> LENGTH_BITS) as usize,
                (bits & ((1 << LENGTH_BITS) - 1)) as usize,
            ),
            LIST => Value::List(bits as u32),
            DICT => Value::Dict(bits as u32),
            _ => Value::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Value};

    #[test]
    fn every_kind_comes_back() {
        for value in [0, 1, -1, (1 << 55) - 1, -(1 << 55)] {
            assert_eq!(Cell::int(value).value(), Value::Int(value));
        }
        assert_eq!(Cell::int(1 << 55).value(), Value::Other);
        assert_eq!(Cell::text((1 << 40) - 1, 65_535).value(), Value::Text((1 << 40) - 1, 65_535));
        assert_eq!(Cell::text(0, 65_536).value(), Value::Other);
        assert_eq!(Cell::list(u32::MAX).value(), Value::List(u32::MAX));
        assert_eq!(Cell::dict(7).value(), Value::Dict(7));
    }
}

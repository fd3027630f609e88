//! One value in eight bytes.

/// A value: a small number, a piece of the input, or the number of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell(u64);

/// Value of a [`Cell`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// `None`, a float, bytes, a set, or a number past 56 bits: nothing that a reader here uses.
    Other,
    /// A whole number or a truth value.
    Int(i64),
    /// Text: where it starts in the input, and its bytes.
    Text(usize, usize),
    /// A list or tuple.
    List(u32),
    /// A dictionary of [`Keys::Only`](crate::Keys::Only).
    Dict(u32),
    /// A dictionary of [`Keys::All`](crate::Keys::All).
    Pairs(u32),
    /// A global, by its position in [`Rules::globals`](crate::Rules::globals).
    Global(u32),
    /// A call that was not made: the global, then its arguments.
    Call(u32),
    /// A persistent id that is a tuple.
    Persistent(u32),
}

const TAG_SHIFT: u32 = 56;
const BITS: u64 = (1 << TAG_SHIFT) - 1;
const INT: u64 = 1;
const TEXT: u64 = 2;
const LIST: u64 = 3;
const DICT: u64 = 4;
const PAIRS: u64 = 5;
const GLOBAL: u64 = 6;
const CALL: u64 = 7;
const PERSISTENT: u64 = 8;
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

    pub(crate) fn pairs(index: u32) -> Self {
        Self(PAIRS << TAG_SHIFT | u64::from(index))
    }

    pub(crate) fn global(index: u32) -> Self {
        Self(GLOBAL << TAG_SHIFT | u64::from(index))
    }

    pub(crate) fn call(index: u32) -> Self {
        Self(CALL << TAG_SHIFT | u64::from(index))
    }

    pub(crate) fn persistent(index: u32) -> Self {
        Self(PERSISTENT << TAG_SHIFT | u64::from(index))
    }

    /// Returns a total order; equal only for the same number, text or container.
    #[must_use]
    pub fn order(self) -> u64 {
        self.0
    }

    /// Returns the value.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each part was that narrow when it was packed"
    )]
    #[must_use]
    pub fn value(self) -> Value {
        let bits = self.0 & BITS;
        match self.0 >> TAG_SHIFT {
            INT => Value::Int(bits.cast_signed() << 8 >> 8),
            TEXT => Value::Text(
                (bits >> LENGTH_BITS) as usize,
                (bits & ((1 << LENGTH_BITS) - 1)) as usize,
            ),
            LIST => Value::List(bits as u32),
            DICT => Value::Dict(bits as u32),
            PAIRS => Value::Pairs(bits as u32),
            GLOBAL => Value::Global(bits as u32),
            CALL => Value::Call(bits as u32),
            PERSISTENT => Value::Persistent(bits as u32),
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
        assert_eq!(Cell::pairs(7).value(), Value::Pairs(7));
        assert_eq!(Cell::global(7).value(), Value::Global(7));
        assert_eq!(Cell::call(7).value(), Value::Call(7));
        assert_eq!(Cell::persistent(7).value(), Value::Persistent(7));
    }
}

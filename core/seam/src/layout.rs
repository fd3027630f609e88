//! Sizes, alignments, and the spans everything is made of.

/// A power-of-two alignment in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Align(u64);

impl Align {
    /// No constraint.
    pub const ONE: Self = Self(1);

    /// Returns `None` unless `bytes` is a power of two.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() { Some(Self(bytes)) } else { None }
    }

    /// Creates an alignment known when the program is written.
    ///
    /// # Panics
    ///
    /// Panics when `bytes` is not a power of two; in a `const` this is a compile error.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        match Self::new(bytes) {
            Some(align) => align,
            None => panic!("an alignment is a power of two"),
        }
    }

    /// Returns the alignment in bytes.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Rounds `offset` up, or `None` on overflow.
    #[inline]
    #[must_use]
    pub const fn up(self, offset: u64) -> Option<u64> {
        match offset.checked_add(self.0 - 1) {
            Some(n) => Some(n & !(self.0 - 1)),
            None => None,
        }
    }

    /// Rounds `offset` down.
    #[inline]
    #[must_use]
    pub const fn down(self, offset: u64) -> u64 {
        offset & !(self.0 - 1)
    }

    /// Returns true if `offset` is a multiple of this alignment.
    #[inline]
    #[must_use]
    pub const fn divides(self, offset: u64) -> bool {
        offset & (self.0 - 1) == 0
    }

    /// Returns the stricter of two alignments.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
    }
}

/// Size and alignment that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes; zero is refused wherever a layout is placed.
    pub size: u64,
    /// Required alignment of the span's start.
    pub align: Align,
}

impl Layout {
    /// `size` bytes at any offset.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size, align: Align::ONE }
    }

    /// Returns the same bytes at a multiple of `align`.
    #[must_use]
    pub const fn align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    /// Room for `count` values of `T`, or `None` when the size overflows.
    #[must_use]
    pub const fn array<T>(count: u64) -> Option<Self> {
        match count.checked_mul(size_of::<T>() as u64) {
            Some(size) => Some(Self { size, align: Align::of(align_of::<T>() as u64) }),
            None => None,
        }
    }
}

/// Class of bytes that may be neighbours: devices keep unlike neighbours a granule apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Bytes in order: buffers and linear images.
    #[default]
    Linear,
    /// Bytes in an order that only the device knows: tiled images.
    Tiled,
}

/// A piece of a block: offset and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Start, relative to the block.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

impl Span {
    /// Returns the first offset past the span.
    ///
    /// Spans come from checked arithmetic, so the sum of a live span cannot overflow.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.offset + self.size
    }

    /// Returns the part `offset..offset + size` of this span, or `None` when it reaches outside.
    #[must_use]
    pub const fn part(self, offset: u64, size: u64) -> Option<Self> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Some(Self { offset: self.offset + offset, size }),
            _ => None,
        }
    }

    /// Cuts the span into pieces of `most` bytes, of which the last may be shorter. `most` is not zero.
    pub fn pieces(self, most: u64) -> impl Iterator<Item = Self> {
        (0..self.size.div_ceil(most))
            .filter_map(move |at| self.part(at * most, most.min(self.size - at * most)))
    }

    /// Returns true if two spans share a byte.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

//! The strategies under test, and what each promises beyond the trait.
use crate::first_fit::FirstFit;
use omniheap_core::strategy::{Buddy, Bump, Piece, PieceState, Ring, Slab, Stack, Strategy, Tlsf};
use omniheap_core::{Align, Class, Layout};
use omniheap_extras::Exact;

/// A strategy and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// General purpose.
    Tlsf,
    /// Powers of two, down to the unit.
    Buddy {
        /// The smallest span.
        unit: Align,
    },
    /// Slots of one size.
    Slab {
        /// Size and alignment of a slot.
        slot: Layout,
    },
    /// Last in, first out.
    Stack,
    /// One block, round and round.
    Ring,
    /// Ascending until a block is empty.
    Bump,
    /// At the caller's place, else the lowest hole.
    Exact,
    /// From outside the core: the lowest hole.
    FirstFit,
}

impl Subject {
    /// Makes the strategy.
    ///
    /// # Panics
    ///
    /// Panics when a slab's slot is zero or overflows.
    #[must_use]
    pub fn make(self, granularity: Align) -> Box<dyn Strategy> {
        match self {
            Self::Tlsf => Box::new(Tlsf::new(granularity)),
            Self::Buddy { unit } => Box::new(Buddy::new(unit, granularity)),
            Self::Slab { slot } => {
                Box::new(Slab::new(slot, granularity).expect("the subject's slot is sound"))
            }
            Self::Stack => Box::new(Stack::new(granularity)),
            Self::Ring => Box::new(Ring::new(granularity)),
            Self::Bump => Box::new(Bump::new(granularity)),
            Self::Exact => Box::new(Exact::new(granularity)),
            Self::FirstFit => Box::new(FirstFit::new(granularity)),
        }
    }

    /// The size of the span that a request gets, or `None` when no block could ever hold it.
    #[must_use]
    pub fn granted(self, layout: Layout, class: Class, granularity: Align) -> Option<u64> {
        match self {
            Self::Buddy { unit } => {
                let granule = if class == Class::Tiled { granularity.get() } else { 1 };
                let least = unit.get().max(layout.align.get()).max(granule);
                layout.size.checked_next_power_of_two().map(|size| size.max(least))
            }
            Self::Slab { .. } => {
                let stride = self.stride()?;
                (layout.size <= stride && stride.is_multiple_of(layout.align.get()))
                    .then_some(stride)
            }
            _ => Some(layout.size),
        }
    }

    /// Bytes from one slot of a slab to the next; `None` for the others.
    #[must_use]
    pub fn stride(self) -> Option<u64> {
        match self {
            Self::Slab { slot } => slot.align.up(slot.size),
            _ => None,
        }
    }

    /// The holes of an empty block: how many, and the largest; `None` when the block is refused.
    #[must_use]
    pub fn empty_block(self, size: u64) -> Option<(u64, u64)> {
        let (count, largest) = match self {
            Self::Buddy { unit } => {
                let usable = unit.down(size);
                (u64::from(usable.count_ones()), usable.checked_ilog2().map_or(0, |log| 1 << log))
            }
            Self::Slab { .. } => {
                let stride = self.stride()?;
                let slots = u32::try_from(size / stride).ok().filter(|&slots| slots != u32::MAX)?;
                (slots.into(), if slots > 0 { stride } else { 0 })
            }
            // Larger blocks have no bin.
            Self::Tlsf if size > 1 << 62 => return None,
            _ => (1, size),
        };
        (largest > 0).then_some((count, largest))
    }

    /// Returns the number of blocks that it takes.
    #[must_use]
    pub const fn most_blocks(self) -> usize {
        match self {
            Self::Ring => 1,
            _ => usize::MAX,
        }
    }

    /// Returns true if holes that touch become one.
    #[must_use]
    pub const fn coalesces(self) -> bool {
        !matches!(self, Self::Buddy { .. } | Self::Slab { .. })
    }

    /// Returns true if freeing a span makes all of its bytes a hole at once.
    #[must_use]
    pub const fn reuses_at_once(self) -> bool {
        !matches!(self, Self::Ring | Self::Bump | Self::Stack)
    }

    /// Returns true if the class of a freed span still counts for what may follow it.
    #[must_use]
    pub const fn remembers(self) -> bool {
        matches!(self, Self::Ring | Self::Bump)
    }

    /// Returns true if this strategy must grant the request, by its documented bound, when `hole` is a hole.
    ///
    /// `alike` says whether all that may stand beside it has the request's class; see [`Subject::remembers`].
    #[must_use]
    pub fn must_fit(
        self,
        hole: Piece,
        layout: Layout,
        class: Class,
        granularity: Align,
        alike: Alike,
    ) -> bool {
        debug_assert_eq!(hole.state, PieceState::Hole);
        let Some(size) = self.granted(layout, class, granularity) else { return false };
        match self {
            Self::Buddy { .. } => hole.span.size >= size,
            Self::Slab { .. } => alike == Alike::Yes || granularity.divides(size),
            Self::Tlsf | Self::Stack | Self::Bump | Self::Ring | Self::Exact | Self::FirstFit => {
                let (align, ends) = match alike {
                    Alike::Yes => (layout.align, 0),
                    Alike::No => (layout.align.max(granularity), granularity.get() - 1),
                };
                let start = align.up(hole.span.offset);
                let slack = if matches!(self, Self::Stack | Self::Bump) { 0 } else { ends };
                let end = start.and_then(|start| start.checked_add(size)?.checked_add(slack));
                end.is_some_and(|end| end <= hole.span.end())
            }
        }
    }
}

/// Likeness of everything in a block to the class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// Everything has that class, or the block is empty.
    Yes,
    /// Something differs.
    No,
}

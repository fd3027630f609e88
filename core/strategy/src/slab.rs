//! Slab: blocks cut into slots of one size.
#![forbid(unsafe_code)]
use super::blocks::Blocks;
use super::keys::{Keys, NONE};
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage, refusal, validate_pieces};
use alloc::vec::Vec;
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};

/// Allocates slots of one size, from the first block that has a free one.
///
/// # Algorithm
///
/// A block is cut into as many slots as it holds; what remains at its end is padding. A bit per slot says that it is
/// free, and a bit per block that it has a free slot, each under levels of summary bits. A request takes the lowest
/// free slot of the lowest such block, so that spans gather in few blocks and the others empty and can be removed.
/// A request that is smaller than a slot gets the whole slot; each free slot is a hole of its own.
///
/// Classes: where slots do not begin and end on granules, a block holds spans of one class at a time: that of its
/// first span, until the block is empty again.
///
/// # Cost
///
/// Allocating and freeing look at one word per level, which is at most six words for blocks of 2³² slots: *O*(1).
/// A slot costs 4 bytes and 1/8 byte, a live span 16 bytes more. Allocating takes host memory only when more spans are
/// live than ever before.
///
/// # When to choose it
///
/// For many spans of one size: descriptors, instance records, pages. Not for mixed sizes, where each span wastes what
/// it leaves of its slot.
///
/// # Examples
///
/// ```
/// use omniheap_strategy::{Slab, Strategy};
/// use omniheap_seam::{Align, Class, ErrorKind, Layout};
///
/// let mut slab = Slab::new(Layout::new(96).align(Align::of(64)), Align::ONE)?;
/// slab.add_block(300)?;
/// let a = slab.allocate(Layout::new(96), Class::Linear)?;
/// let b = slab.allocate(Layout::new(10), Class::Linear)?;
/// assert_eq!((a.span.offset, b.span.offset, b.span.size), (0, 128, 128));
/// assert_eq!(slab.allocate(Layout::new(96), Class::Linear), Err(ErrorKind::OutOfDeviceMemory));
/// # Ok::<(), ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Slab {
    /// Bytes from one slot to the next.
    slot: u64,
    /// True if spans of both classes may share a block.
    mixed: bool,
    blocks: Blocks<Slots>,
    /// The blocks with a free slot for `Linear`, and for `Tiled`.
    open: [Bits; 2],
    records: Keys<Record>,
    /// Slots of all blocks.
    slots: u64,
}

/// The slots of one block.
#[derive(Clone, Debug)]
struct Slots {
    free: Bits,
    /// The record of each slot, as an index; `NONE` where the slot is free.
    owners: Vec<u32>,
    /// The class of the live spans. Meaningless while there are none.
    class: Class,
}

/// The slot of a live span.
#[derive(Clone, Copy, Debug)]
struct Record {
    block: BlockId,
    slot: u32,
}

impl Slots {
    /// Cuts `size` bytes into slots, all of them free.
    fn cut(size: u64, slot: u64) -> Result<Self, ErrorKind> {
        let slots = u32::try_from(size / slot).ok().filter(|&slots| slots != NONE && slots > 0);
        let slots = slots.ok_or(ErrorKind::ExceedsLimit)? as usize;
        let free = Bits::full(slots)?;
        let mut owners = Vec::new();
        owners.try_reserve_exact(slots).map_err(|_| ErrorKind::OutOfHostMemory)?;
        owners.resize(slots, NONE);
        Ok(Self { free, owners, class: Class::default() })
    }

    /// Checks every slot against its record.
    fn validate(&self, block: BlockId, records: &Keys<Record>) -> Result<(), &'static str> {
        for (slot, &owner) in (0..).zip(&self.owners) {
            if self.free.contains(slot as usize) != (owner == NONE) {
                return Err("a slot's bit disagrees with its owner");
            }
            if owner == NONE {
                continue;
            }
            let (_, record) = records.at(owner).ok_or("a slot's record is vacant")?;
            if (record.block, record.slot) != (block, slot) {
                return Err("a record belongs to another slot");
            }
        }
        Ok(())
    }
}

impl Slab {
    /// Creates a strategy without blocks for spans of at most `slot`. Spans of different class stay `granularity` apart.
    ///
    /// # Errors
    ///
    /// `ZeroSize`; `SizeOverflow` when the size, rounded up to the alignment, does not fit in 64 bits.
    pub fn new(slot: Layout, granularity: Align) -> Result<Self, ErrorKind> {
        if slot.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let stride = slot.align.up(slot.size).ok_or(ErrorKind::SizeOverflow)?;
        Ok(Self {
            slot: stride,
            mixed: granularity.divides(stride),
            blocks: Blocks::new(),
            open: [Bits::empty(0)?, Bits::empty(0)?],
            records: Keys::new(),
            slots: 0,
        })
    }

    fn span(&self, slot: u32) -> Span {
        Span { offset: u64::from(slot) * self.slot, size: self.slot }
    }

    /// Returns whether a block has a free slot for `Linear`, and for `Tiled`.
    fn is_open(&self, block: BlockId) -> [bool; 2] {
        let Some(slots) = self.blocks.get(block) else { return [false; 2] };
        let free = !slots.free.is_empty();
        let any = self.mixed || slots.is_empty();
        [Class::Linear, Class::Tiled].map(|class| free && (any || slots.class == class))
    }

    /// Updates the open bits of a block.
    fn update_open(&mut self, block: BlockId) {
        let (id, open) = (block.0 as usize, self.is_open(block));
        for (bits, open) in self.open.iter_mut().zip(open) {
            match (bits.contains(id), open) {
                (false, true) => bits.insert(id),
                (true, false) => bits.remove(id),
                _ => {}
            }
        }
    }
}

impl Strategy for Slab {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        let block = self.blocks.reserve(size)?;
        let slots = Slots::cut(size, self.slot)?;
        let id = block.0 as usize;
        if id >= self.open[0].bound() {
            self.open = [self.open[0].grown(id + 1)?, self.open[1].grown(id + 1)?];
        }
        self.slots += slots.owners.len() as u64;
        self.blocks.insert(size, slots);
        self.update_open(block);
        Ok(block)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.slots -= self.blocks.remove(block)?.owners.len() as u64;
        self.update_open(block);
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        if layout.size > self.slot || !layout.align.divides(self.slot) {
            return Err(ErrorKind::ExceedsLimit);
        }
        let Some(index) = self.open[class as usize].first() else {
            let largest = if self.slots > 0 { self.slot } else { 0 };
            return Err(refusal(self.slot, largest, self.usage().free));
        };
        let block = BlockId(u32::try_from(index).expect("block ids have 32 bits"));
        let free = self.blocks.get_mut(block).free.first();
        let free = free.expect("an open block has a free slot");
        let slot = u32::try_from(free).expect("`cut` counts slots in 32 bits");
        let key = self.records.insert(Record { block, slot })?;
        let slots = self.blocks.add_live(block, self.slot);
        slots.free.remove(free);
        slots.owners[free] = key.index;
        slots.class = class;
        self.update_open(block);
        Ok(Grant { block, span: self.span(slot), key })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let Record { block, slot } = self.records.remove(key)?;
        let slots = self.blocks.remove_live(block, self.slot);
        slots.free.insert(slot as usize);
        slots.owners[slot as usize] = NONE;
        self.update_open(block);
        Ok(Grant { block, span: self.span(slot), key })
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        let &Record { block, slot } = self.records.get(key)?;
        Ok(Grant { block, span: self.span(slot), key })
    }

    fn usage(&self) -> Usage {
        let usage = self.blocks.usage();
        let holes = self.slots - usage.live;
        let largest_hole = if holes > 0 { self.slot } else { 0 };
        Usage { free: holes * self.slot, largest_hole, holes, ..usage }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.blocks.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (block, slots) in self.blocks.iter() {
            let mut end = 0;
            for (slot, &owner) in (0..).zip(&slots.owners) {
                let key = self.records.at(owner).map(|(key, _)| PieceState::Live(key));
                let span = self.span(slot);
                visit(Piece { block, span, state: key.unwrap_or(PieceState::Hole) });
                end = span.end();
            }
            if end < slots.size() {
                let span = Span { offset: end, size: slots.size() - end };
                visit(Piece { block, span, state: PieceState::Padding });
            }
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        for (block, slots) in self.blocks.iter() {
            slots.validate(block, &self.records)?;
        }
        for id in 0..self.open[0].bound() {
            let block = BlockId(u32::try_from(id).map_err(|_| "a block's id exceeds 32 bits")?);
            if self.is_open(block) != [0, 1].map(|class: usize| self.open[class].contains(id)) {
                return Err("a block's open bits disagree with its slots");
            }
        }
        validate_pieces(self)
    }
}

/// A set of numbers below a bound, one bit each. A higher level has one bit for each word of the level below, so that the
/// lowest member is found by looking at one word a level.
#[derive(Clone, Debug)]
struct Bits {
    levels: Vec<Vec<u64>>,
    bound: usize,
}

impl Bits {
    /// Creates the set of all numbers below `bound`.
    fn full(bound: usize) -> Result<Self, ErrorKind> {
        let mut bits = Self::empty(bound)?;
        let mut count = bound;
        for level in &mut bits.levels {
            level.fill(u64::MAX);
            if !count.is_multiple_of(64) {
                level[count / 64] = (1 << (count % 64)) - 1;
            }
            count = count.div_ceil(64);
        }
        Ok(bits)
    }

    /// Creates an empty set for numbers below `bound`.
    fn empty(bound: usize) -> Result<Self, ErrorKind> {
        let mut levels = Vec::new();
        let mut count = bound;
        while count > 0 {
            count = count.div_ceil(64);
            let mut level = Vec::new();
            level.try_reserve_exact(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
            level.resize(count, 0);
            levels.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            levels.push(level);
            if count == 1 {
                break;
            }
        }
        Ok(Self { levels, bound })
    }

    /// Returns a copy with a bound of at least `bound`. Doubles it, so that growing one by one stays cheap.
    fn grown(&self, bound: usize) -> Result<Self, ErrorKind> {
        let mut grown = Self::empty(bound.max(self.bound.saturating_mul(2)))?;
        for number in (0..self.bound).filter(|&number| self.contains(number)) {
            grown.insert(number);
        }
        Ok(grown)
    }

    const fn bound(&self) -> usize {
        self.bound
    }

    fn is_empty(&self) -> bool {
        self.levels.last().is_none_or(|top| top[0] == 0)
    }

    fn contains(&self, number: usize) -> bool {
        number < self.bound && self.levels[0][number / 64] >> (number % 64) & 1 == 1
    }

    fn insert(&mut self, number: usize) {
        let mut at = number;
        for level in &mut self.levels {
            #[cfg(test)]
            super::steps::count();
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    fn remove(&mut self, number: usize) {
        let mut at = number;
        for level in &mut self.levels {
            #[cfg(test)]
            super::steps::count();
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
    }

    /// Returns the lowest member.
    fn first(&self) -> Option<usize> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            #[cfg(test)]
            super::steps::count();
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        (!self.levels.is_empty()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_member_is_found_at_every_bound() {
        // Three levels are enough for Miri, which is slow.
        let bounds: &[usize] = match cfg!(miri) {
            true => &[1, 63, 64, 65, 4097],
            false => &[1, 63, 64, 65, 4095, 4096, 4097, 300_000],
        };
        for &bound in bounds {
            let mut bits = Bits::full(bound).expect("host memory suffices");
            for number in 0..bound {
                assert_eq!(bits.first(), Some(number), "bound {bound}");
                bits.remove(number);
            }
            assert_eq!(bits.first(), None);
            bits.insert(bound - 1);
            assert_eq!(bits.first(), Some(bound - 1));
            let grown = bits.grown(bound + 1).expect("host memory suffices");
            assert_eq!(grown.first(), Some(bound - 1));
        }
        assert_eq!(Bits::empty(0).expect("nothing is needed").first(), None);
    }
}

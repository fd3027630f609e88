//! Slab: blocks cut into slots of one size.
#![forbid(unsafe_code)]
mod bits;
mod block;
pub(in crate::strategy) mod keys;

use self::bits::Bits;
use self::block::{Block, Record};
use self::keys::{Keys, NONE};
use super::bump::cursors::refusal;
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use crate::{Align, Class, ErrorKind, Layout, Span};
use alloc::vec::Vec;

/// Hands out slots of one size, from the oldest block that has one.
///
/// # Algorithm
///
/// A block is cut into as many slots as it holds; what remains at its end is padding. A bit per slot says that it is
/// free, and a bit per block that it has a free slot, each under levels of summary bits. A request takes the lowest
/// free slot of the lowest such block, so that spans gather in few blocks and the others empty and can be removed.
/// A request that is smaller than a slot gets the whole slot; each free slot is a hole of its own.
///
/// Neighbours: where slots do not begin and end on granules, a block holds spans of one class at a time: that of its
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
/// use omniheap_core::strategy::{Slab, Strategy};
/// use omniheap_core::{Align, Class, ErrorKind, Layout};
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
    neighbours: Neighbours,
    blocks: Vec<Option<Block>>,
    /// The blocks that have a free slot for `Linear`, and for `Tiled`.
    open: [Bits; 2],
    records: Keys<Record>,
    total: u64,
    slots: u64,
    live: u64,
}

/// Whether spans of both classes may share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    Mixed,
    Alike,
}

impl Slab {
    /// A strategy without blocks, for spans of `slot` or less, that keeps unlike neighbours `granularity` apart.
    ///
    /// # Errors
    ///
    /// `ZeroSize`; `SizeOverflow` when the size, rounded up to the alignment, does not fit in 64 bits.
    pub fn new(slot: Layout, granularity: Align) -> Result<Self, ErrorKind> {
        if slot.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let stride = slot.align.up(slot.size).ok_or(ErrorKind::SizeOverflow)?;
        let apart = granularity.divides(stride);
        Ok(Self {
            slot: stride,
            neighbours: if apart { Neighbours::Mixed } else { Neighbours::Alike },
            blocks: Vec::new(),
            open: [Bits::empty(0)?, Bits::empty(0)?],
            records: Keys::new(),
            total: 0,
            slots: 0,
            live: 0,
        })
    }

    /// Whether every slot starts where the request must.
    fn holds(&self, layout: Layout) -> bool {
        layout.size <= self.slot && layout.align.divides(self.slot)
    }

    fn block(&self, block: BlockId) -> Option<&Block> {
        self.blocks.get(block.0 as usize)?.as_ref()
    }

    fn block_mut(&mut self, block: BlockId) -> &mut Block {
        let block = self.blocks[block.0 as usize].as_mut();
        block.expect("open blocks and blocks of live records are there")
    }

    fn span(&self, slot: u32) -> Span {
        Span { offset: u64::from(slot) * self.slot, size: self.slot }
    }

    /// Brings the open bits of a block up to date.
    fn publish(&mut self, block: BlockId) {
        let neighbours = self.neighbours;
        let there =
            self.block(block).map(|block| (block.free.first().is_some(), block.live, block.class));
        let (room, live, only) = there.unwrap_or((false, 0, Class::default()));
        for class in [Class::Linear, Class::Tiled] {
            let alike = live == 0 || only == class || neighbours == Neighbours::Mixed;
            let open = &mut self.open[class as usize];
            if room && alike {
                open.insert(block.0 as usize);
            } else {
                open.remove(block.0 as usize);
            }
        }
    }
}

impl Strategy for Slab {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let total = self.total.checked_add(size).ok_or(ErrorKind::ExceedsLimit)?;
        let block = Block::cut(size, self.slot)?;
        let vacant = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        let id = u32::try_from(vacant).map_err(|_| ErrorKind::ExceedsLimit)?;
        if vacant >= self.open[0].bound() {
            self.open = [self.open[0].grown(vacant + 1)?, self.open[1].grown(vacant + 1)?];
        }
        if vacant == self.blocks.len() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push(None);
        }
        self.total = total;
        self.slots += block.owners.len() as u64;
        self.blocks[vacant] = Some(block);
        self.publish(BlockId(id));
        Ok(BlockId(id))
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let there = self.block(block).ok_or(ErrorKind::Stale)?;
        if there.live > 0 {
            return Err(ErrorKind::Busy);
        }
        let (size, slots) = (there.size, there.owners.len() as u64);
        self.total -= size;
        self.slots -= slots;
        self.blocks[block.0 as usize] = None;
        self.publish(block);
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        if !self.holds(layout) {
            return Err(ErrorKind::ExceedsLimit);
        }
        let Some(index) = self.open[class as usize].first() else {
            let largest = if self.slots > 0 { self.slot } else { 0 };
            return Err(refusal(self.slot, largest, (self.slots - self.live) * self.slot));
        };
        let block = BlockId(u32::try_from(index).expect("`add_block` counts blocks in 32 bits"));
        let slot = self.block(block).and_then(|block| block.free.first());
        let slot = slot.expect("`publish` closes blocks without a free slot");
        let record =
            Record { block, slot: u32::try_from(slot).expect("`cut` counts slots in 32 bits") };
        let key = self.records.insert(record)?;
        let there = self.block_mut(block);
        there.free.remove(slot);
        there.owners[slot] = key.index;
        there.live += 1;
        there.class = class;
        self.live += 1;
        self.publish(block);
        Ok(Grant { block, span: self.span(record.slot), key })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let Record { block, slot } = self.records.remove(key)?;
        let there = self.block_mut(block);
        there.free.insert(slot as usize);
        there.owners[slot as usize] = NONE;
        there.live -= 1;
        self.live -= 1;
        self.publish(block);
        Ok(Grant { block, span: self.span(slot), key })
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.records.get(key).map(|&Record { block, slot }| Grant {
            block,
            span: self.span(slot),
            key,
        })
    }

    fn usage(&self) -> Usage {
        let holes = self.slots - self.live;
        Usage {
            total: self.total,
            used: self.live * self.slot,
            free: holes * self.slot,
            largest_hole: if holes > 0 { self.slot } else { 0 },
            live: self.live,
            holes,
        }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.block(block).is_some_and(|block| block.live == 0)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (id, there) in (0..).zip(&self.blocks) {
            let Some(there) = there else { continue };
            let block = BlockId(id);
            let mut end = 0;
            for (slot, &owner) in (0..).zip(&there.owners) {
                let key = self.records.at(owner).map(|(key, _)| PieceState::Live(key));
                let span = self.span(slot);
                visit(Piece { block, span, state: key.unwrap_or(PieceState::Hole) });
                end = span.end();
            }
            if end < there.size {
                let span = Span { offset: end, size: there.size - end };
                visit(Piece { block, span, state: PieceState::Padding });
            }
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let (mut total, mut slots, mut live) = (0, 0, 0);
        for (id, block) in (0..).zip(&self.blocks) {
            let mut open = [false; 2];
            if let Some(block) = block {
                block.validate(BlockId(id), &self.records)?;
                total += block.size;
                slots += block.owners.len() as u64;
                live += u64::from(block.live);
                let any = block.live == 0 || self.neighbours == Neighbours::Mixed;
                let room = (block.live as usize) < block.owners.len();
                open = [Class::Linear, Class::Tiled]
                    .map(|class| room && (any || block.class == class));
            }
            if open != [0, 1].map(|class: usize| self.open[class].contains(id as usize)) {
                return Err("a block's open bits disagree with its slots");
            }
        }
        let sums = (total, slots, live);
        if sums != (self.total, self.slots, self.live) {
            Err("the sums disagree with the blocks")
        } else {
            Ok(())
        }
    }
}

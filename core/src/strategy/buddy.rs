//! Buddy: power-of-two spans that split in halves and merge with their twins.
#![forbid(unsafe_code)]
mod nodes;

use self::nodes::{Nodes, State};
use super::bump::cursors::refusal;
use super::slab::keys::NONE;
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use crate::{Align, Class, ErrorKind, Layout, Span};
use alloc::vec::Vec;

/// Hands out spans whose size is a power of two, at multiples of their size.
///
/// # Algorithm
///
/// A request is rounded up to a power of two that is at least its alignment and at least the unit. The smallest free
/// span that is large enough, in any block, is halved until it has that size; the upper halves are free. A freed span
/// merges with its twin, the other half, while that is free too, so that no two free twins ever stand side by side.
///
/// A block need not be a power of two: it begins as the powers of two that its size is the sum of, largest first. Only
/// what is left below one unit is padding.
///
/// Neighbours: a `Tiled` span takes at least a granule. It starts and ends on granules, so it shares none; `Linear`
/// spans share granules only among themselves.
///
/// # Cost
///
/// Allocating and freeing are *O*(log(block ÷ unit)): at most one split or merge for each power of two, and one bit scan
/// over all blocks. A free span of the rounded size always holds the request.
/// Bookkeeping is 40 bytes for each node of the tree of halves: about 80 bytes for a live span where spans fill their
/// blocks, up to 80 for each halving where they are few. A request loses up to half of its span to rounding.
///
/// # When to choose it
///
/// For sizes that are powers of two anyway, or where alignment equals size: page tables, texture tiles, reserved
/// address space. Not for sizes that are not: a quarter of the memory is lost on average.
///
/// # Examples
///
/// ```
/// use omniheap_core::strategy::{Buddy, Strategy};
/// use omniheap_core::{Align, Class, ErrorKind, Layout};
///
/// let mut buddy = Buddy::new(Align::of(16), Align::ONE);
/// buddy.add_block(1024)?;
/// let a = buddy.allocate(Layout::new(200), Class::Linear)?;
/// let b = buddy.allocate(Layout::new(512), Class::Linear)?;
/// assert_eq!((a.span.offset, a.span.size, b.span.offset), (0, 256, 512));
///
/// buddy.free(a.key)?;
/// buddy.free(b.key)?;
/// assert_eq!(buddy.usage().largest_hole, 1024);
/// assert_eq!(buddy.free(b.key), Err(ErrorKind::Stale));
/// # Ok::<(), ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Buddy {
    unit: Align,
    granularity: Align,
    blocks: Vec<Option<Block>>,
    nodes: Nodes,
    total: u64,
    used: u64,
    live: u64,
    /// The largest span that any block can begin with.
    largest_root: u64,
}

#[derive(Clone, Debug)]
struct Block {
    size: u64,
    live: u64,
    /// The spans that the block began as, as indices of nodes, lowest offset first.
    roots: Vec<u32>,
}

impl Buddy {
    /// A strategy without blocks that divides down to `unit` and keeps unlike neighbours `granularity` apart.
    #[must_use]
    pub const fn new(unit: Align, granularity: Align) -> Self {
        Self {
            unit,
            granularity,
            blocks: Vec::new(),
            nodes: Nodes::new(),
            total: 0,
            used: 0,
            live: 0,
            largest_root: 0,
        }
    }

    /// The power of two that a request takes, or `None` when it does not fit in 64 bits.
    fn rounded(&self, layout: Layout, class: Class) -> Option<u64> {
        let granule = match class {
            Class::Linear => Align::ONE,
            Class::Tiled => self.granularity,
        };
        let least = layout.align.max(self.unit).max(granule).get();
        layout.size.checked_next_power_of_two().map(|size| size.max(least))
    }

    /// The powers of two that `size` is the sum of, down to the unit; largest first, with their offsets.
    fn roots(&self, size: u64) -> impl Iterator<Item = Span> + use<> {
        let mut rest = self.unit.down(size);
        let mut offset = 0;
        core::iter::from_fn(move || {
            let size = 1 << rest.checked_ilog2()?;
            let span = Span { offset, size };
            rest -= size;
            offset += size;
            Some(span)
        })
    }

    fn block(&self, block: BlockId) -> Option<&Block> {
        self.blocks.get(block.0 as usize)?.as_ref()
    }

    /// The block of a live span.
    fn block_mut(&mut self, block: BlockId) -> &mut Block {
        let block = self.blocks[block.0 as usize].as_mut();
        block.expect("a block with a live span cannot be removed")
    }

    fn visit(&self, index: u32, visit: &mut dyn FnMut(Piece)) {
        let node = self.nodes.get(index);
        let state = match node.state {
            State::Split { pair } => {
                self.visit(pair, visit);
                return self.visit(pair + 1, visit);
            }
            State::Live => PieceState::Live(Key { index, stamp: node.stamp }),
            State::Free { .. } => PieceState::Hole,
            State::Vacant { .. } => unreachable!("a tree holds no vacant node"),
        };
        visit(Piece { block: node.block, span: node.span(), state });
    }
}

impl Strategy for Buddy {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let total = self.total.checked_add(size).ok_or(ErrorKind::ExceedsLimit)?;
        let vacant = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        let id = BlockId(u32::try_from(vacant).map_err(|_| ErrorKind::ExceedsLimit)?);
        let count = self.roots(size).count();
        let largest = self.roots(size).next().ok_or(ErrorKind::ExceedsLimit)?.size;
        let mut roots = Vec::new();
        roots.try_reserve_exact(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.nodes.reserve(count)?;
        if vacant == self.blocks.len() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push(None);
        }
        for span in self.roots(size) {
            roots.push(self.nodes.plant(id, span));
        }
        self.blocks[vacant] = Some(Block { size, live: 0, roots });
        self.total = total;
        self.largest_root = self.largest_root.max(largest);
        Ok(id)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        if self.block(block).ok_or(ErrorKind::Stale)?.live > 0 {
            return Err(ErrorKind::Busy);
        }
        if let Some(gone) = self.blocks[block.0 as usize].take() {
            self.total -= gone.size;
            gone.roots.into_iter().for_each(|root| self.nodes.uproot(root));
        }
        let first = |block: &Block| self.nodes.get(block.roots[0]).span().size;
        self.largest_root = self.blocks.iter().flatten().map(first).max().unwrap_or(0);
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let size = self.rounded(layout, class).ok_or(ErrorKind::ExceedsLimit)?;
        let Some(index) = self.nodes.take(size)? else {
            return Err(refusal(size, self.largest_root, self.nodes.free()));
        };
        let node = self.nodes.get(index);
        let (block, span) = (node.block, node.span());
        let key = Key { index, stamp: node.stamp };
        self.block_mut(block).live += 1;
        self.used += span.size;
        self.live += 1;
        Ok(Grant { block, span, key })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let grant = self.grant(key)?;
        self.nodes.give(key.index);
        self.block_mut(grant.block).live -= 1;
        self.used -= grant.span.size;
        self.live -= 1;
        Ok(grant)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        match self.nodes.find(key.index) {
            Some(node) if node.stamp == key.stamp && matches!(node.state, State::Live) => {
                Ok(Grant { block: node.block, span: node.span(), key })
            }
            _ => Err(ErrorKind::Stale),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            total: self.total,
            used: self.used,
            free: self.nodes.free(),
            largest_hole: self.nodes.largest_free(),
            live: self.live,
            holes: self.nodes.holes(),
        }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.block(block).is_some_and(|block| block.live == 0)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (id, block) in (0..).zip(&self.blocks) {
            let Some(block) = block else { continue };
            for &root in &block.roots {
                self.visit(root, visit);
            }
            let end = self.unit.down(block.size);
            if end < block.size {
                let span = Span { offset: end, size: block.size - end };
                visit(Piece { block: BlockId(id), span, state: PieceState::Padding });
            }
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let (mut total, mut sums) = (0, nodes::Sums::default());
        for (id, block) in (0..).zip(&self.blocks) {
            let Some(block) = block else { continue };
            let before = sums.live;
            if !self
                .roots(block.size)
                .eq(block.roots.iter().map(|&root| self.nodes.get(root).span()))
            {
                return Err("a block's roots are not the powers of two of its size");
            }
            for &root in &block.roots {
                self.nodes.validate_tree(root, (NONE, BlockId(id)), &mut sums)?;
            }
            total += block.size;
            if sums.live - before != block.live {
                return Err("a block's count disagrees with its tree");
            }
        }
        if (total, sums.used, sums.live) != (self.total, self.used, self.live) {
            return Err("the sums disagree with the trees");
        }
        self.nodes.validate_lists(&sums)
    }
}

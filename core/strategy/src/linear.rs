//! The linear strategies, bump and stack: spans follow one another upwards from a cursor in each block.
#![forbid(unsafe_code)]
use super::blocks::Blocks;
use super::keys::{Keys, NONE};
use super::max_tree::MaxTree;
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage, refusal, validate_pieces};
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};

/// Allocates ascending offsets, and reuses a block once nothing in it is live.
///
/// # Algorithm
///
/// Each block has a cursor. A request goes to the first block, in the order of their ids, whose rest can hold it;
/// the span starts at the cursor, rounded up to its alignment, and the cursor moves to its end. The bytes of a freed span
/// stay padding until the last live span of the block is freed, which resets the cursor to zero.
///
/// Classes: where the class changes from the span placed before, the new span starts at the next granule. All
/// spans that share a granule are then of one class, because every one of them has the class of the one before it.
///
/// # Cost
///
/// Allocating is *O*(log blocks), plus one try for each block whose rest is long enough but not once aligned; a rest of
/// `size + max(align, granularity) - 1` bytes always holds the request. Freeing is *O*(log blocks).
/// A live span costs 40 bytes of bookkeeping, which is used again at once when the span is freed. Allocating takes host
/// memory only when more spans are live than ever before.
///
/// # When to choose it
///
/// For data of one lifetime: the temporary data of a frame or a step. Not where one long-lived span may lie among
/// short-lived ones, because it keeps its whole block.
///
/// # Examples
///
/// ```
/// use omniheap_strategy::{Bump, Strategy};
/// use omniheap_seam::{Align, Class, Layout};
///
/// let mut bump = Bump::new(Align::ONE);
/// let block = bump.add_block(1024)?;
/// let a = bump.allocate(Layout::new(100), Class::Linear)?;
/// let b = bump.allocate(Layout::new(100).align(Align::of(64)), Class::Linear)?;
/// assert_eq!((a.span.offset, b.span.offset), (0, 128));
///
/// bump.free(a.key)?;
/// assert_eq!(bump.usage().free, 1024 - 228);
/// bump.free(b.key)?;
/// assert!(bump.is_empty(block));
/// assert_eq!(bump.usage().free, 1024);
/// # Ok::<(), omniheap_seam::ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bump {
    granularity: Align,
    blocks: Blocks<Cursor>,
    /// The free bytes above each block's cursor.
    rests: MaxTree,
    records: Keys<Record>,
    free: u64,
}

/// The state of one block. Everything below `next` is live or padding.
#[derive(Clone, Debug)]
struct Cursor {
    /// Lowest offset of the next span.
    next: u64,
    /// The class of the last span placed below `next`.
    class: Class,
    /// Lowest and highest live span, as indices of records.
    first: u32,
    last: u32,
}

#[derive(Clone, Debug)]
struct Record {
    span: Span,
    block: BlockId,
    class: Class,
    /// The next live spans below and above in the same block, as indices of records.
    below: u32,
    above: u32,
}

impl Bump {
    /// Creates a strategy without blocks that keeps spans of different class `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self {
            granularity,
            blocks: Blocks::new(),
            rests: MaxTree::new(),
            records: Keys::new(),
            free: 0,
        }
    }

    /// Returns the first block that can hold the request, and the offset of the span in it.
    fn place(&self, layout: Layout, class: Class) -> Option<(BlockId, u64)> {
        let mut from = 0;
        while let Some(index) = self.rests.first(from, layout.size) {
            let block = BlockId(u32::try_from(index).expect("block ids have 32 bits"));
            if let Some(offset) = self.offset(block, layout, class) {
                return Some((block, offset));
            }
            from = index + 1;
        }
        None
    }

    fn offset(&self, block: BlockId, layout: Layout, class: Class) -> Option<u64> {
        let cursor = self.blocks.get(block)?;
        let mut offset = layout.align.up(cursor.next)?;
        if cursor.next > 0
            && cursor.class != class
            && self.granularity.down(cursor.next - 1) == self.granularity.down(offset)
        {
            offset = layout.align.max(self.granularity).up(cursor.next)?;
        }
        (offset.checked_add(layout.size)? <= cursor.size()).then_some(offset)
    }

    /// Ends a live span without moving the cursor: its bytes become padding.
    fn release(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let Record { span, block, below, above, .. } = self.records.remove(key)?;
        match self.records.at_mut(below) {
            Some(record) => record.above = above,
            None => self.blocks.get_mut(block).first = above,
        }
        match self.records.at_mut(above) {
            Some(record) => record.below = below,
            None => self.blocks.get_mut(block).last = below,
        }
        self.blocks.remove_live(block, span.size);
        Ok(Grant { block, span, key })
    }

    /// Moves the cursor of a block down to the end of its highest live span.
    fn rewind(&mut self, block: BlockId) {
        let last = self.blocks.get_mut(block).last;
        let (next, class) = match self.records.at(last) {
            Some((_, record)) => (record.span.end(), record.class),
            None => (0, Class::default()),
        };
        self.move_cursor(block, next, class);
    }

    fn move_cursor(&mut self, block: BlockId, next: u64, class: Class) {
        let cursor = self.blocks.get_mut(block);
        cursor.class = class;
        let before = core::mem::replace(&mut cursor.next, next);
        self.free = self.free + before - next;
        self.rests.set(block.0 as usize, cursor.size() - next);
    }

    /// Checks the links between the records of one block.
    fn validate_links(&self, block: BlockId, cursor: &Cursor) -> Result<(), &'static str> {
        let (mut below, mut index) = (NONE, cursor.first);
        while index != NONE {
            let (_, record) = self.records.at(index).ok_or("a block leads to a vacant record")?;
            if record.block != block || record.below != below {
                return Err("a record is linked wrongly");
            }
            (below, index) = (index, record.above);
        }
        if below != cursor.last {
            return Err("a block's last record is not the end of its list");
        }
        Ok(())
    }
}

impl Strategy for Bump {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        let block = self.blocks.reserve(size)?;
        self.rests.grow(block.0 as usize + 1)?;
        let class = Class::default();
        self.blocks.insert(size, Cursor { next: 0, class, first: NONE, last: NONE });
        self.rests.set(block.0 as usize, size);
        self.free += size;
        Ok(block)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.blocks.remove(block)?;
        // The cursor of an empty block is at zero, so all of the block was free.
        self.free -= self.rests.get(block.0 as usize);
        self.rests.set(block.0 as usize, 0);
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let Some((block, offset)) = self.place(layout, class) else {
            return Err(refusal(layout.size, self.blocks.largest(), self.free));
        };
        let span = Span { offset, size: layout.size };
        let below = self.blocks.get_mut(block).last;
        let key = self.records.insert(Record { span, block, class, below, above: NONE })?;
        if let Some(record) = self.records.at_mut(below) {
            record.above = key.index;
        }
        let cursor = self.blocks.add_live(block, span.size);
        cursor.last = key.index;
        if below == NONE {
            cursor.first = key.index;
        }
        self.move_cursor(block, span.end(), class);
        Ok(Grant { block, span, key })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let grant = self.release(key)?;
        if self.blocks.is_empty(grant.block) {
            self.rewind(grant.block);
        }
        Ok(grant)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.records.get(key).map(|record| Grant { block: record.block, span: record.span, key })
    }

    fn usage(&self) -> Usage {
        let holes = self.blocks.iter().filter(|(_, cursor)| cursor.next < cursor.size()).count();
        Usage {
            free: self.free,
            largest_hole: self.rests.max(),
            holes: holes as u64,
            ..self.blocks.usage()
        }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.blocks.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (block, cursor) in self.blocks.iter() {
            let mut at = 0;
            let mut piece = |end: u64, state: PieceState| {
                if end > at {
                    visit(Piece { block, span: Span { offset: at, size: end - at }, state });
                    at = end;
                }
            };
            let mut index = cursor.first;
            while let Some((key, record)) = self.records.at(index) {
                piece(record.span.offset, PieceState::Padding);
                piece(record.span.end(), PieceState::Live(key));
                index = record.above;
            }
            piece(cursor.next, PieceState::Padding);
            piece(cursor.size(), PieceState::Hole);
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        for (block, cursor) in self.blocks.iter() {
            if self.rests.get(block.0 as usize) != cursor.size().saturating_sub(cursor.next) {
                return Err("a block's free bytes disagree with its cursor");
            }
            if cursor.first == NONE && cursor.next != 0 {
                return Err("the cursor of an empty block is not at zero");
            }
            self.validate_links(block, cursor)?;
        }
        validate_pieces(self)
    }
}

/// Allocates spans that are freed in reverse order.
///
/// # Algorithm
///
/// Each block has a cursor, as in [`Bump`](super::Bump), and requests are placed by the same rule. Freeing the highest
/// live span of a block moves the cursor back to the end of the next one below. A span that is freed out of turn becomes
/// padding, which is free again when all spans above it are.
///
/// Classes: where the class changes from the span below, the new span starts at the next granule, so that all spans
/// which share a granule are of one class.
///
/// # Cost
///
/// Allocating and freeing are *O*(log blocks); allocating adds one try for each block whose rest is long enough but
/// not once aligned. A rest of `size + max(align, granularity) - 1` bytes always holds the request.
/// A live span costs 48 bytes, and nothing scatters: the rest of each block is one hole.
///
/// # When to choose it
///
/// For scopes that nest: a recursive algorithm's scratch, the inside of one function. Not where lifetimes overlap
/// without nesting; [`Bump`](super::Bump) or [`Ring`](super::Ring) serve those.
///
/// # Examples
///
/// ```
/// use omniheap_strategy::{Stack, Strategy};
/// use omniheap_seam::{Align, Class, ErrorKind, Layout};
///
/// let mut stack = Stack::new(Align::ONE);
/// stack.add_block(1024)?;
/// let outer = stack.allocate(Layout::new(100), Class::Linear)?;
/// let inner = stack.allocate(Layout::new(100), Class::Linear)?;
/// assert_eq!(inner.span.offset, 100);
///
/// stack.free(outer.key)?;
/// assert_eq!(stack.usage().free, 824); // `inner` is above it.
/// stack.free(inner.key)?;
/// assert_eq!(stack.usage().free, 1024);
/// assert_eq!(stack.free(outer.key), Err(ErrorKind::Stale));
/// # Ok::<(), ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack {
    bump: Bump,
}

impl Stack {
    /// Creates a strategy without blocks that keeps spans of different class `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self { bump: Bump::new(granularity) }
    }
}

impl Strategy for Stack {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        self.bump.add_block(size)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.bump.remove_block(block)
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        self.bump.allocate(layout, class)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let grant = self.bump.release(key)?;
        self.bump.rewind(grant.block);
        Ok(grant)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.bump.grant(key)
    }

    fn usage(&self) -> Usage {
        self.bump.usage()
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.bump.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.bump.for_each(visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        self.bump.validate()
    }
}

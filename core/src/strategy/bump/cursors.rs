//! Blocks that are filled upwards from a cursor: what bump and stack have in common.
use super::rooms::Rooms;
use crate::strategy::slab::keys::{Keys, NONE};
use crate::strategy::{BlockId, Grant, Key, Piece, PieceState, Usage};
use crate::{Align, Class, ErrorKind, Layout, Span};
use alloc::vec::Vec;

/// Why a strategy has no hole for `need` bytes, rounded as the strategy rounds them.
pub(in crate::strategy) const fn refusal(need: u64, largest_block: u64, free: u64) -> ErrorKind {
    if need > largest_block {
        ErrorKind::ExceedsLimit
    } else if need > free {
        ErrorKind::OutOfDeviceMemory
    } else {
        ErrorKind::Fragmented
    }
}

/// A set of blocks, each with a cursor below which everything is handed out or lost until the cursor comes back.
#[derive(Clone, Debug)]
pub(in crate::strategy) struct Cursors {
    granularity: Align,
    blocks: Vec<Option<Cursor>>,
    rooms: Rooms,
    records: Keys<Record>,
    total: u64,
    used: u64,
    free: u64,
    live: u64,
    largest_block: u64,
}

#[derive(Clone, Debug)]
struct Cursor {
    size: u64,
    /// Where the next span may start.
    next: u64,
    /// The class of the span last placed below `next`.
    class: Class,
    live: u32,
    /// Lowest and highest live span, as indices of records.
    first: u32,
    last: u32,
}

#[derive(Clone, Debug)]
struct Record {
    span: Span,
    block: BlockId,
    class: Class,
    /// Live neighbours in the same block, as indices of records.
    below: u32,
    above: u32,
}

impl Cursors {
    pub(in crate::strategy) const fn new(granularity: Align) -> Self {
        Self {
            granularity,
            blocks: Vec::new(),
            rooms: Rooms::new(),
            records: Keys::new(),
            total: 0,
            used: 0,
            free: 0,
            live: 0,
            largest_block: 0,
        }
    }

    pub(in crate::strategy) fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let total = self.total.checked_add(size).ok_or(ErrorKind::ExceedsLimit)?;
        let vacant = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        let id = u32::try_from(vacant).map_err(|_| ErrorKind::ExceedsLimit)?;
        self.rooms.grow(vacant + 1)?;
        if vacant == self.blocks.len() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push(None);
        }
        let class = Class::default();
        self.blocks[vacant] =
            Some(Cursor { size, next: 0, class, live: 0, first: NONE, last: NONE });
        self.rooms.set(vacant, size);
        self.total = total;
        self.free += size;
        self.largest_block = self.largest_block.max(size);
        Ok(BlockId(id))
    }

    pub(in crate::strategy) fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let cursor = self.cursor(block).ok_or(ErrorKind::Stale)?;
        if cursor.live > 0 {
            return Err(ErrorKind::Busy);
        }
        let size = cursor.size;
        // Both callers rewind a block with its last span, so an empty block is all free.
        self.blocks[block.0 as usize] = None;
        self.rooms.set(block.0 as usize, 0);
        self.total -= size;
        self.free -= size;
        if size == self.largest_block {
            self.largest_block =
                self.blocks.iter().flatten().map(|cursor| cursor.size).max().unwrap_or(0);
        }
        Ok(())
    }

    /// Places a span in the first block that can hold it.
    pub(in crate::strategy) fn allocate(
        &mut self,
        layout: Layout,
        class: Class,
    ) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let Some((block, offset)) = self.place(layout, class) else {
            return Err(refusal(layout.size, self.largest_block, self.free));
        };
        let span = Span { offset, size: layout.size };
        let below = self.cursor(block).expect("`place` found this block").last;
        let key = self.records.insert(Record { span, block, class, below, above: NONE })?;
        if let Some(record) = self.records.at_mut(below) {
            record.above = key.index;
        }
        let cursor = self.cursor_mut(block);
        cursor.last = key.index;
        if below == NONE {
            cursor.first = key.index;
        }
        cursor.live += 1;
        cursor.class = class;
        self.move_cursor(block, span.end());
        self.used += span.size;
        self.live += 1;
        Ok(Grant { block, span, key })
    }

    fn place(&self, layout: Layout, class: Class) -> Option<(BlockId, u64)> {
        let mut from = 0;
        while let Some(index) = self.rooms.first(from, layout.size) {
            let cursor = self.blocks[index].as_ref().expect("a block that is gone has no room");
            if let Some(offset) = self.offset(cursor, layout, class) {
                let id = u32::try_from(index).expect("`add_block` counts blocks in 32 bits");
                return Some((BlockId(id), offset));
            }
            from = index + 1;
        }
        None
    }

    fn offset(&self, cursor: &Cursor, layout: Layout, class: Class) -> Option<u64> {
        let mut offset = layout.align.up(cursor.next)?;
        if cursor.next > 0
            && cursor.class != class
            && self.granularity.down(cursor.next - 1) == self.granularity.down(offset)
        {
            offset = layout.align.max(self.granularity).up(cursor.next)?;
        }
        (offset.checked_add(layout.size)? <= cursor.size).then_some(offset)
    }

    /// Forgets a live span; its bytes come back when the cursor moves below them.
    pub(in crate::strategy) fn release(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let Record { span, block, below, above, .. } = self.records.remove(key)?;
        match self.records.at_mut(below) {
            Some(record) => record.above = above,
            None => self.cursor_mut(block).first = above,
        }
        match self.records.at_mut(above) {
            Some(record) => record.below = below,
            None => self.cursor_mut(block).last = below,
        }
        self.cursor_mut(block).live -= 1;
        self.used -= span.size;
        self.live -= 1;
        Ok(Grant { block, span, key })
    }

    /// Moves the cursor of a block down to the end of its highest live span.
    pub(in crate::strategy) fn rewind(&mut self, block: BlockId) {
        let last = self.cursor_mut(block).last;
        let (next, class) = match self.records.at(last) {
            Some((_, record)) => (record.span.end(), record.class),
            None => (0, Class::default()),
        };
        self.cursor_mut(block).class = class;
        self.move_cursor(block, next);
    }

    pub(in crate::strategy) fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.records.get(key).map(|record| Grant { block: record.block, span: record.span, key })
    }

    pub(in crate::strategy) fn is_empty(&self, block: BlockId) -> bool {
        self.cursor(block).is_some_and(|cursor| cursor.live == 0)
    }

    pub(in crate::strategy) fn usage(&self) -> Usage {
        let holes = self.blocks.iter().flatten().filter(|cursor| cursor.next < cursor.size).count();
        Usage {
            total: self.total,
            used: self.used,
            free: self.free,
            largest_hole: self.rooms.largest(),
            live: self.live,
            holes: holes as u64,
        }
    }

    pub(in crate::strategy) fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (id, cursor) in (0..).zip(&self.blocks) {
            let Some(cursor) = cursor else { continue };
            let block = BlockId(id);
            let mut at = 0;
            let mut piece = |at: &mut u64, end: u64, state: PieceState| {
                if end > *at {
                    visit(Piece { block, span: Span { offset: *at, size: end - *at }, state });
                    *at = end;
                }
            };
            let mut index = cursor.first;
            while let Some((key, record)) = self.records.at(index) {
                piece(&mut at, record.span.offset, PieceState::Padding);
                piece(&mut at, record.span.end(), PieceState::Live(key));
                index = record.above;
            }
            piece(&mut at, cursor.next, PieceState::Padding);
            piece(&mut at, cursor.size, PieceState::Hole);
        }
    }

    pub(in crate::strategy) fn validate(&self) -> Result<(), &'static str> {
        let (mut total, mut free, mut used, mut live) = (0, 0, 0, 0);
        for (index, cursor) in self.blocks.iter().enumerate() {
            let room = cursor.as_ref().map_or(0, |cursor| cursor.size.saturating_sub(cursor.next));
            if self.rooms.get(index) != room {
                return Err("a block's room disagrees with its cursor");
            }
            let Some(cursor) = cursor else { continue };
            let (bytes, spans) = self.validate_block(index, cursor)?;
            total += cursor.size;
            free += room;
            used += bytes;
            live += spans;
        }
        if (total, free, used, live) != (self.total, self.free, self.used, self.live) {
            return Err("the sums disagree with the blocks");
        }
        Ok(())
    }

    /// Walks one block; returns its live bytes and spans.
    fn validate_block(&self, block: usize, cursor: &Cursor) -> Result<(u64, u64), &'static str> {
        let (mut at, mut below, mut used, mut live) = (0, NONE, 0, 0);
        let mut index = cursor.first;
        while index != NONE {
            let (_, record) = self.records.at(index).ok_or("a block leads to a vacant record")?;
            if record.block.0 as usize != block || record.below != below {
                return Err("a record is linked wrongly");
            }
            if record.span.offset < at {
                return Err("spans overlap or descend");
            }
            at = record.span.end();
            used += record.span.size;
            live += 1;
            (below, index) = (index, record.above);
        }
        if below != cursor.last || live != u64::from(cursor.live) {
            return Err("a block's ends or count disagree with its records");
        }
        if at > cursor.next || cursor.next > cursor.size || (live == 0 && cursor.next != 0) {
            return Err("a cursor is below a live span, past its block, or left behind");
        }
        Ok((used, live))
    }

    fn cursor(&self, block: BlockId) -> Option<&Cursor> {
        self.blocks.get(block.0 as usize)?.as_ref()
    }

    /// The cursor of a block that has, or just had, a live span.
    fn cursor_mut(&mut self, block: BlockId) -> &mut Cursor {
        let cursor = self.blocks[block.0 as usize].as_mut();
        cursor.expect("a block with a live span cannot be removed")
    }

    fn move_cursor(&mut self, block: BlockId, next: u64) {
        let cursor = self.cursor_mut(block);
        let before = core::mem::replace(&mut cursor.next, next);
        let room = cursor.size - next;
        self.free = self.free + before - next;
        self.rooms.set(block.0 as usize, room);
    }
}

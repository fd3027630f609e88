//! Exact: spans where the caller wants them.
use omniheap_core::strategy::{BlockId, Grant, Key, Piece, PieceState, Strategy, TakeSpan, Usage};
use omniheap_core::{Align, Class, ErrorKind, Layout, Span};
use std::collections::BTreeMap;

/// Allocates the spans that the caller names, for programs that know all places in advance.
///
/// # Algorithm
///
/// Live spans are kept by block and offset. [`take`](TakeSpan::take) looks at the two spans around the one that is
/// asked for. [`allocate`](Strategy::allocate), which names no offset, walks the spans and takes the first hole that
/// fits.
///
/// Neighbours: spans of unlike class share no granule. A taken span is linear; `take` answers `Busy` where a tiled neighbour uses one of
/// its granules.
///
/// # Cost
///
/// Taking and freeing are *O*(log spans), allocating is *O*(spans). A live span costs about 80 bytes.
///
/// # When to choose it
///
/// For a plan that was made ahead; for everything else [`Tlsf`](omniheap_core::strategy::Tlsf) is faster.
///
/// # Examples
///
/// ```
/// use omniheap_core::strategy::{Strategy, TakeSpan};
/// use omniheap_core::{Align, ErrorKind, Span};
/// use omniheap_extras::Exact;
///
/// let mut exact = Exact::new(Align::ONE);
/// let block = exact.add_block(1024)?;
/// let first = exact.take(block, Span { offset: 100, size: 50 })?;
/// assert_eq!(exact.take(block, Span { offset: 149, size: 1 }), Err(ErrorKind::Busy));
/// exact.free(first.key)?;
/// exact.take(block, Span { offset: 149, size: 1 })?;
/// # Ok::<(), ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Exact {
    granularity: Align,
    /// The size of each block; `None` where one was removed.
    blocks: Vec<Option<u64>>,
    /// Live spans by block and offset, as indices of `records`.
    order: BTreeMap<(u32, u64), u32>,
    records: Vec<Record>,
    unused: Vec<u32>,
    used: u64,
}

/// One live span, or the last one that had this index.
#[derive(Clone, Copy, Debug)]
struct Record {
    block: BlockId,
    span: Span,
    class: Class,
    stamp: u32,
}

impl Exact {
    /// Creates a strategy without blocks that keeps unlike neighbours `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self {
            granularity,
            blocks: Vec::new(),
            order: BTreeMap::new(),
            records: Vec::new(),
            unused: Vec::new(),
            used: 0,
        }
    }

    fn size_of(&self, block: BlockId) -> Result<u64, ErrorKind> {
        self.blocks.get(block.0 as usize).copied().flatten().ok_or(ErrorKind::Stale)
    }

    fn live(&self, key: Key) -> Result<&Record, ErrorKind> {
        let record = self.records.get(key.index() as usize).filter(|r| r.stamp == key.stamp());
        let at = |r: &&Record| self.order.get(&(r.block.0, r.span.offset)) == Some(&key.index());
        record.filter(at).ok_or(ErrorKind::Stale)
    }

    /// Returns the live spans of a block, lowest first.
    fn spans(&self, block: BlockId) -> impl Iterator<Item = (u32, &Record)> {
        let all = self.order.range((block.0, 0)..=(block.0, u64::MAX));
        all.map(|(_, &index)| (index, &self.records[index as usize]))
    }

    fn admit(&mut self, block: BlockId, span: Span, class: Class) -> Result<Grant, ErrorKind> {
        let index = match self.unused.last() {
            Some(&index) => index,
            None => u32::try_from(self.records.len()).map_err(|_| ErrorKind::ExceedsLimit)?,
        };
        self.records.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        // Room for every record to be unused, so that a free needs no memory.
        let missing = self.records.len() + 1 - self.unused.len();
        self.unused.try_reserve(missing).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let mut record = Record { block, span, class, stamp: 0 };
        if self.unused.pop().is_some() {
            record.stamp = self.records[index as usize].stamp + 1;
            self.records[index as usize] = record;
        } else {
            self.records.push(record);
        }
        self.order.insert((block.0, span.offset), index);
        self.used += span.size;
        Ok(Grant { block, span, key: Key::new(index, record.stamp) })
    }

    /// Returns the lowest place in a block for a request.
    fn place(&self, block: BlockId, end: u64, layout: Layout, class: Class) -> Option<u64> {
        let mut below: Option<&Record> = None;
        for (_, above) in self.spans(block) {
            if let Some(at) = self.fit(below, Some(above), above.span.offset, layout, class) {
                return Some(at);
            }
            below = Some(above);
        }
        self.fit(below, None, end, layout, class)
    }

    /// Returns the lowest place between two neighbours, if there is one.
    fn fit(
        &self,
        below: Option<&Record>,
        above: Option<&Record>,
        end: u64,
        layout: Layout,
        class: Class,
    ) -> Option<u64> {
        let unlike = |neighbour: Option<&Record>| neighbour.is_some_and(|n| n.class != class);
        let align = if unlike(below) { layout.align.max(self.granularity) } else { layout.align };
        let end = if unlike(above) { self.granularity.down(end) } else { end };
        let start = align.up(below.map_or(0, |b| b.span.end()))?;
        (start.checked_add(layout.size)? <= end).then_some(start)
    }
}

impl TakeSpan for Exact {
    fn take(&mut self, block: BlockId, span: Span) -> Result<Grant, ErrorKind> {
        if span.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let end = span.offset.checked_add(span.size).ok_or(ErrorKind::OutOfRange)?;
        if end > self.size_of(block)? {
            return Err(ErrorKind::OutOfRange);
        }
        // Spans do not overlap, so the last one that starts before the end is the only one that can reach inside.
        let record = |(_, &at): (_, &u32)| self.records[at as usize];
        let below = self.order.range((block.0, 0)..(block.0, end)).next_back().map(record);
        let above = self.order.range((block.0, end)..=(block.0, u64::MAX)).next().map(record);
        let granule = |byte: u64| self.granularity.down(byte);
        let tiled = |record: &Record| record.class != Class::Linear;
        let meets_below = below.is_some_and(|below| {
            let shared = granule(below.span.end() - 1) >= granule(span.offset);
            below.span.end() > span.offset || tiled(&below) && shared
        });
        let meets_above = above
            .is_some_and(|above| tiled(&above) && granule(above.span.offset) <= granule(end - 1));
        if meets_below || meets_above {
            return Err(ErrorKind::Busy);
        }
        self.admit(block, span, Class::Linear)
    }
}

impl Strategy for Exact {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let total: u64 = self.blocks.iter().flatten().sum();
        total.checked_add(size).ok_or(ErrorKind::ExceedsLimit)?;
        let at = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        if at == self.blocks.len() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push(None);
        }
        self.blocks[at] = Some(size);
        u32::try_from(at).map(BlockId).map_err(|_| ErrorKind::ExceedsLimit)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.size_of(block)?;
        if !self.is_empty(block) {
            return Err(ErrorKind::Busy);
        }
        self.blocks[block.0 as usize] = None;
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let blocks = (0u32..).map(BlockId).zip(&self.blocks);
        let mut held = blocks.filter_map(|(id, size)| Some((id, (*size)?)));
        let found = held.find_map(|(id, end)| Some((id, self.place(id, end, layout, class)?)));
        if let Some((block, offset)) = found {
            return self.admit(block, Span { offset, size: layout.size }, class);
        }
        if self.blocks.iter().flatten().all(|size| *size < layout.size) {
            return Err(ErrorKind::ExceedsLimit);
        }
        let scattered = self.usage().free >= layout.size;
        Err(if scattered { ErrorKind::Fragmented } else { ErrorKind::OutOfDeviceMemory })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let Record { block, span, .. } = *self.live(key)?;
        self.order.remove(&(block.0, span.offset));
        self.used -= span.size;
        // An index whose stamps ran out is not used again, so an old key never fits a new span.
        if key.stamp() < u32::MAX - 1 {
            self.unused.push(key.index());
        }
        Ok(Grant { block, span, key })
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.live(key).map(|record| Grant { block: record.block, span: record.span, key })
    }

    fn usage(&self) -> Usage {
        let mut usage =
            Usage { used: self.used, live: self.order.len() as u64, ..Usage::default() };
        self.for_each(&mut |piece| {
            usage.total += piece.span.size;
            if piece.state == PieceState::Hole {
                usage.free += piece.span.size;
                usage.holes += 1;
                usage.largest_hole = usage.largest_hole.max(piece.span.size);
            }
        });
        usage
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.size_of(block).is_ok() && self.spans(block).next().is_none()
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (block, size) in (0u32..).map(BlockId).zip(&self.blocks) {
            let Some(size) = *size else { continue };
            let mut at = 0;
            let hole = |from: u64, to: u64, visit: &mut dyn FnMut(Piece)| {
                if from < to {
                    let span = Span { offset: from, size: to - from };
                    visit(Piece { block, span, state: PieceState::Hole });
                }
            };
            for (index, record) in self.spans(block) {
                hole(at, record.span.offset, visit);
                let key = Key::new(index, record.stamp);
                visit(Piece { block, span: record.span, state: PieceState::Live(key) });
                at = record.span.end();
            }
            hole(at, size, visit);
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let (mut used, mut at) = (0, (0, 0));
        for (&(block, offset), &index) in &self.order {
            let record = self.records.get(index as usize).ok_or("a span has no record")?;
            if (record.block.0, record.span.offset) != (block, offset) {
                return Err("a record is elsewhere than its place in the order");
            }
            if (block, offset) < at {
                return Err("two live spans overlap");
            }
            if record.span.end() > self.size_of(record.block).map_err(|_| "a span has no block")? {
                return Err("a span leaves its block");
            }
            at = (block, record.span.end());
            used += record.span.size;
        }
        if used == self.used { Ok(()) } else { Err("the bytes in use differ from a walk") }
    }

    fn as_take(&mut self) -> Option<&mut dyn TakeSpan> {
        Some(self)
    }
}

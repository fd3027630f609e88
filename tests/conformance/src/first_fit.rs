//! A strategy that the core does not have: the first hole that fits, found by looking at everything.
use omniheap_core::strategy::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use omniheap_core::{Align, Class, ErrorKind, Layout, Span};

/// Takes the first hole that fits. Simple rather than fast: every call looks at all live spans.
///
/// The strategy stands for those that users write, and uses nothing that they could not use.
#[derive(Debug)]
pub(crate) struct FirstFit {
    granularity: Align,
    /// The size of each block; `None` where one was removed.
    blocks: Vec<Option<u64>>,
    /// Live spans, by block and offset.
    live: Vec<(Grant, Class)>,
    /// The key of the next span: none ever comes back.
    granted: u32,
}

impl FirstFit {
    /// A strategy without blocks that keeps spans of different class `granularity` apart.
    pub(crate) const fn new(granularity: Align) -> Self {
        Self { granularity, blocks: Vec::new(), live: Vec::new(), granted: 0 }
    }

    fn sizes(&self) -> impl Iterator<Item = (BlockId, u64)> {
        let ids = (0..).map(BlockId).zip(&self.blocks);
        ids.filter_map(|(id, size)| Some((id, (*size)?)))
    }

    fn position(&self, key: Key) -> Result<usize, ErrorKind> {
        self.live.iter().position(|(grant, _)| grant.key == key).ok_or(ErrorKind::Stale)
    }

    /// The first place of a block that suits a request.
    fn place(&self, block: BlockId, size: u64, layout: Layout, class: Class) -> Option<Span> {
        let mut below: Option<&(Grant, Class)> = None;
        let here = self.live.iter().filter(|(grant, _)| grant.block == block);
        for above in here.map(Some).chain([None]) {
            let unlike = |other: Option<&(Grant, Class)>| other.is_some_and(|one| one.1 != class);
            let align = if unlike(below) { self.granularity } else { Align::ONE };
            let end = above.map_or(size, |(grant, _)| grant.span.offset);
            let end = if unlike(above) { self.granularity.down(end) } else { end };
            let start = layout.align.max(align).up(below.map_or(0, |(one, _)| one.span.end()));
            let fits = |start: &u64| start.checked_add(layout.size).is_some_and(|at| at <= end);
            if let Some(offset) = start.filter(fits) {
                return Some(Span { offset, size: layout.size });
            }
            below = above;
        }
        None
    }
}

impl Strategy for FirstFit {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let total: u64 = self.blocks.iter().flatten().sum();
        total.checked_add(size).ok_or(ErrorKind::ExceedsLimit)?;
        let at = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        let id = u32::try_from(at).map_err(|_| ErrorKind::ExceedsLimit)?;
        if at == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[at] = Some(size);
        Ok(BlockId(id))
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        if !self.sizes().any(|(id, _)| id == block) {
            return Err(ErrorKind::Stale);
        }
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
        let find = |(id, size)| Some((id, self.place(id, size, layout, class)?));
        let Some((block, span)) = self.sizes().find_map(find) else {
            let Usage { free, .. } = self.usage();
            return Err(match self.sizes().all(|(_, size)| size < layout.size) {
                true => ErrorKind::ExceedsLimit,
                false if free < layout.size => ErrorKind::OutOfDeviceMemory,
                false => ErrorKind::Fragmented,
            });
        };
        let key = Key::new(self.granted, 0);
        self.granted = self.granted.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        let grant = Grant { block, span, key };
        let before = |(one, _): &(Grant, Class)| {
            (one.block, one.span.offset) < (grant.block, grant.span.offset)
        };
        self.live.insert(self.live.partition_point(before), (grant, class));
        Ok(grant)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        self.position(key).map(|at| self.live.remove(at).0)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.position(key).map(|at| self.live[at].0)
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.for_each(&mut |piece| usage.add(piece));
        usage
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.sizes().any(|(id, _)| id == block)
            && self.live.iter().all(|(grant, _)| grant.block != block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (block, size) in self.sizes() {
            let hole = |from: u64, to: u64, visit: &mut dyn FnMut(Piece)| {
                if from < to {
                    let span = Span { offset: from, size: to - from };
                    visit(Piece { block, span, state: PieceState::Hole });
                }
            };
            let mut at = 0;
            for (grant, _) in self.live.iter().filter(|(grant, _)| grant.block == block) {
                hole(at, grant.span.offset, visit);
                visit(Piece { block, span: grant.span, state: PieceState::Live(grant.key) });
                at = grant.span.end();
            }
            hole(at, size, visit);
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let meet = |pair: &[(Grant, Class)]| {
            pair[0].0.block == pair[1].0.block && pair[0].0.span.end() > pair[1].0.span.offset
        };
        if self.live.windows(2).any(meet) { Err("two spans overlap") } else { Ok(()) }
    }
}

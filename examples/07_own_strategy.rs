//! A pool with an algorithm of your own: it knows sizes and offsets, and nothing of devices.
//!
//! `cargo run --release --example 07_own_strategy -- --backend auto|cuda|hip|vulkan|wgpu|host`
use omniheap::seam::{Class, Layout, Span};
use omniheap::strategy::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use omniheap::{Align, ErrorKind, PoolConfig, Request, placement::Keyword as _};
use omniheap_examples::{Outcome, check, noise};

/// The first hole that fits.
#[derive(Debug)]
struct FirstFit {
    /// All spans start here or at a multiple, so that neighbours of any class are far enough apart.
    granularity: Align,
    /// The blocks' sizes; `None` where one was removed.
    blocks: Vec<Option<u64>>,
    /// Live grants, by block and offset.
    live: Vec<Grant>,
    next_key: u32,
}

impl FirstFit {
    /// Calls `visit` with every hole, first to last, and with what is live between them.
    fn pieces(&self, mut visit: impl FnMut(Piece)) {
        for (block, size) in (0..).map(BlockId).zip(&self.blocks) {
            let Some(size) = *size else { continue };
            let (mut start, end) = (0, Span { offset: size, size: 0 });
            let live = self.live.iter().filter(|grant| grant.block == block);
            for (span, key) in live.map(|g| (g.span, Some(g.key))).chain([(end, None)]) {
                if start < span.offset {
                    let hole = Span { offset: start, size: span.offset - start };
                    visit(Piece { block, span: hole, state: PieceState::Hole });
                }
                start = span.end();
                let live = key.map(|key| Piece { block, span, state: PieceState::Live(key) });
                live.into_iter().for_each(&mut visit);
            }
        }
    }
}

impl Strategy for FirstFit {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        let at = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        self.blocks.resize(self.blocks.len().max(at + 1), None);
        self.blocks[at] = Some(size);
        u32::try_from(at).map(BlockId).map_err(|_| ErrorKind::ExceedsLimit)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let known = self.blocks.get_mut(block.0 as usize).ok_or(ErrorKind::Stale)?;
        if self.live.iter().any(|grant| grant.block == block) {
            return Err(ErrorKind::Busy);
        }
        known.take().map(drop).ok_or(ErrorKind::Stale)
    }

    fn allocate(&mut self, layout: Layout, _: Class) -> Result<Grant, ErrorKind> {
        let (align, mut found) = (layout.align.max(self.granularity), None);
        self.pieces(|Piece { block, span, state }| {
            let start = align.up(span.offset).unwrap_or(u64::MAX);
            let fits = start.saturating_add(layout.size) <= span.end();
            if found.is_none() && state == PieceState::Hole && fits {
                found = Some((block, Span { offset: start, size: layout.size }));
            }
        });
        let (block, span) = found.ok_or(ErrorKind::OutOfDeviceMemory)?;
        let grant = Grant { block, span, key: Key::new(self.next_key, 0) };
        self.next_key = self.next_key.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        let at = self.live.partition_point(|g| (g.block, g.span.offset) < (block, span.offset));
        self.live.insert(at, grant);
        Ok(grant)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let at = self.live.iter().position(|grant| grant.key == key).ok_or(ErrorKind::Stale)?;
        Ok(self.live.remove(at))
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.live.iter().find(|grant| grant.key == key).copied().ok_or(ErrorKind::Stale)
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.pieces(|piece| usage.add(piece));
        usage
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.blocks.get(block.0 as usize).is_some_and(Option::is_some)
            && self.live.iter().all(|grant| grant.block != block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.pieces(visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        let meet = |p: &[Grant]| p[0].block == p[1].block && p[0].span.end() > p[1].span.offset;
        if self.live.windows(2).any(meet) { Err("two spans overlap") } else { Ok(()) }
    }
}

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let make = |granularity| -> Box<dyn Strategy> {
        Box::new(FirstFit { granularity, blocks: vec![], live: vec![], next_key: 0 })
    };
    let placed = manager.explain(&Request::new(4096))?.placement;
    println!("  pool: {} memory, because {}", placed.region.word(), placed.reason);
    let pool = manager.create_pool_with(placed.heaps.as_slice()[0], PoolConfig::new(), make)?;
    let ask = || pool.allocate(&Request::new(4096));
    let mut live = (0..100).map(|_| ask()).collect::<Result<Vec<_>, _>>()?;
    drop(live.split_off(50));
    let (again, numbers, mut back) = (ask()?, noise(1024), vec![0.0f32; 1024]);
    again.write(0, bytemuck::cast_slice(&numbers))?;
    again.read(0, bytemuck::cast_slice_mut(&mut back))?;
    check(&back, &numbers)
}

//! An algorithm of your own that divides device memory: it knows sizes and offsets, and nothing of devices.
//!
//! `cargo run --release --example 07_own_strategy -- --backend auto|cuda|hip|vulkan|wgpu|host`
use omniheap::strategy::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use omniheap::{Class, ErrorKind, Layout, Request, Span};
use omniheap_examples::{Outcome, check, noise, place};

/// The first hole that fits.
#[derive(Debug, Default)]
struct FirstFit {
    /// The blocks' sizes; removed ones are zero.
    blocks: Vec<u64>,
    /// What is live, by block and offset.
    live: Vec<Grant>,
    stamp: u32,
}

impl FirstFit {
    /// Calls `visit` with every hole, first to last.
    fn holes(&self, mut visit: impl FnMut(BlockId, Span)) {
        for (block, size) in (0u32..).map(BlockId).zip(&self.blocks) {
            let mut start = 0;
            for grant in self.live.iter().filter(|grant| grant.block == block) {
                visit(block, Span { offset: start, size: grant.span.offset - start });
                start = grant.span.end();
            }
            visit(block, Span { offset: start, size: size - start });
        }
    }
}

impl Strategy for FirstFit {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        let id = u32::try_from(self.blocks.len()).map_err(|_| ErrorKind::ExceedsLimit)?;
        self.blocks.push(size);
        if size == 0 { Err(ErrorKind::ZeroSize) } else { Ok(BlockId(id)) }
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        if !self.is_empty(block) {
            return Err(ErrorKind::Busy);
        }
        self.blocks[block.0 as usize] = 0;
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, _: Class) -> Result<Grant, ErrorKind> {
        let mut found = None;
        self.holes(|block, hole| {
            let start = layout.align.up(hole.offset).unwrap_or(u64::MAX);
            if found.is_none() && start.saturating_add(layout.size) <= hole.end() {
                found = Some((block, Span { offset: start, size: layout.size }));
            }
        });
        let (block, span) = found.ok_or(ErrorKind::OutOfDeviceMemory)?;
        self.stamp += 1;
        let grant = Grant { block, span, key: Key::new(0, self.stamp) };
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
        let mut usage = Usage { live: self.live.len() as u64, ..Usage::default() };
        usage.total = self.blocks.iter().sum();
        usage.used = self.live.iter().map(|grant| grant.span.size).sum();
        self.holes(|_, hole| {
            usage.free += hole.size;
            usage.largest_hole = usage.largest_hole.max(hole.size);
            usage.holes += u64::from(hole.size > 0);
        });
        usage
    }

    fn is_empty(&self, block: BlockId) -> bool {
        (block.0 as usize) < self.blocks.len() && self.live.iter().all(|g| g.block != block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.holes(|block, span| visit(Piece { block, span, state: PieceState::Hole }));
        for Grant { block, span, key } in self.live.iter().copied() {
            visit(Piece { block, span, state: PieceState::Live(key) });
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let meet = |p: &[Grant]| p[0].block == p[1].block && p[0].span.end() > p[1].span.offset;
        if self.live.windows(2).any(meet) { Err("two spans overlap") } else { Ok(()) }
    }
}

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let (block, _) = place(&manager, "the block that is divided", 1 << 18, &Request::new(0))?;
    let block = block.allocation();
    let mut strategy = FirstFit::default();
    strategy.add_block(block.size())?;
    let mut take = || strategy.allocate(Layout::new(4096), Class::Linear);
    let grants = (0..100).map(|_| take()).collect::<Result<Vec<_>, _>>()?;
    for grant in grants.iter().step_by(2) {
        strategy.free(grant.key)?;
    }
    let again = strategy.allocate(Layout::new(4096), Class::Linear)?;
    strategy.validate()?;
    println!("  {:?}, again {}", strategy.usage(), again.span.offset);
    let (numbers, mut back) = (noise(1024), vec![0.0f32; 1024]);
    block.write(again.span.offset, bytemuck::cast_slice(&numbers))?;
    block.read(again.span.offset, bytemuck::cast_slice_mut(&mut back))?;
    check(&back, &numbers)
}

//! A pool with an algorithm of your own: it knows sizes and offsets, and nothing of devices.
//!
//! `cargo run --release --example 07_own_strategy -- --backend auto|cuda|hip|vulkan|wgpu|host`
use omniheap::strategy::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use omniheap::{Align, Class, ErrorKind, Layout, PoolConfig, Request, Span};
use omniheap_examples::{Outcome, check, noise};

/// The first hole that fits.
#[derive(Debug)]
struct FirstFit {
    /// All spans start here or at a multiple, so that neighbours of any class are far enough apart.
    granularity: Align,
    /// The blocks' sizes; `None` where one was removed.
    blocks: Vec<Option<u64>>,
    /// What is live, by block and offset.
    live: Vec<Grant>,
    next_key: u32,
}

impl FirstFit {
    /// Calls `visit` with every hole, first to last, and with what is live between them.
    fn pieces(&self, mut visit: impl FnMut(Piece)) {
        for (block, size) in (0..).map(BlockId).zip(&self.blocks) {
            let Some(size) = *size else { continue };
            let mut start = 0;
            let end = Span { offset: size, size: 0 };
            let live = self.live.iter().filter(|grant| grant.block == block);
            for (span, key) in live.map(|g| (g.span, Some(g.key))).chain([(end, None)]) {
                if start < span.offset {
                    let hole = Span { offset: start, size: span.offset - start };
                    visit(Piece { block, span: hole, state: PieceState::Hole });
                }
                if let Some(key) = key {
                    visit(Piece { block, span, state: PieceState::Live(key) });
                }
                start = span.end();
            }
        }
    }
}

impl Strategy for FirstFit {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let at = self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len());
        let id = u32::try_from(at).map_err(|_| ErrorKind::ExceedsLimit)?;
        self.blocks.resize(self.blocks.len().max(at + 1), None);
        self.blocks[at] = Some(size);
        Ok(BlockId(id))
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let at = block.0 as usize;
        if self.blocks.get(at).is_none_or(Option::is_none) {
            return Err(ErrorKind::Stale);
        }
        if !self.is_empty(block) {
            return Err(ErrorKind::Busy);
        }
        self.blocks[at] = None;
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, _: Class) -> Result<Grant, ErrorKind> {
        let align = layout.align.max(self.granularity);
        let mut found = None;
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
        self.pieces(|Piece { span, state, .. }| {
            usage.total += span.size;
            if state == PieceState::Hole {
                usage.free += span.size;
                usage.holes += 1;
                usage.largest_hole = usage.largest_hole.max(span.size);
            } else {
                usage.used += span.size;
                usage.live += 1;
            }
        });
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
    let make = |granularity| {
        let (blocks, live) = (Vec::new(), Vec::new());
        Box::new(FirstFit { granularity, blocks, live, next_key: 0 }) as Box<dyn Strategy>
    };
    let config = PoolConfig { block: Some(1 << 20), ..PoolConfig::new() };
    let plain = manager.explain(&Request::new(4096))?.placement.heaps;
    let heap = *plain.as_slice().first().ok_or("the device has no heap for plain bytes")?;
    let pool = manager.create_pool_with(heap, config, make)?;
    let mut live =
        (0..100).map(|_| pool.allocate(&Request::new(4096))).collect::<Result<Vec<_>, _>>()?;
    let mut odd = true;
    live.retain(|_| {
        odd = !odd;
        odd
    });
    let again = pool.allocate(&Request::new(4096))?;
    println!("  {} live, the next one at offset {}", live.len(), again.binding().span().offset);
    let (numbers, mut back) = (noise(1024), vec![0.0f32; 1024]);
    again.write(0, bytemuck::cast_slice(&numbers))?;
    again.read(0, bytemuck::cast_slice_mut(&mut back))?;
    manager.validate()?;
    check(&back, &numbers)
}

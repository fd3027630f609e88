//! Scratch memory in which the device leaves copies of guards until the host can look at them.
use super::{Guarded, MOST};
use crate::device::{Block, Device};
use crate::{Backend, BlockOffset, ErrorKind, HeapId, Point};
use alloc::{sync::Arc, vec::Vec};

/// Bytes of one copy: what is looked at, and the word that it starts in.
const CELL: u64 = 2 * MOST;
/// Bytes of one block of copies.
const BLOCK: u64 = 128 * CELL;

/// Room for one copy.
pub(super) struct Cell<B: Backend> {
    block: Arc<Block<B>>,
    offset: u64,
}

impl<B: Backend> Cell<B> {
    pub(super) fn at(&self) -> BlockOffset<'_, B::Block> {
        self.block.at(self.offset)
    }
}

/// A copy on its way.
pub(super) struct Sent<B: Backend> {
    pub(super) cell: Cell<B>,
    /// The point at which it is there.
    pub(super) point: Point,
    pub(super) about: Guarded,
}

/// Copies on their way, and room for more.
pub(super) struct Log<B: Backend> {
    blocks: Vec<Arc<Block<B>>>,
    free: Vec<Cell<B>>,
    /// Cells that a call has taken, and neither sent nor put back yet.
    in_hand: usize,
    sent: Vec<Sent<B>>,
    /// Room that may be written at any time: copies that could not be followed.
    lost: Vec<Cell<B>>,
}

impl<B: Backend> Log<B> {
    pub(super) const fn new() -> Self {
        let blocks = Vec::new();
        Self { blocks, free: Vec::new(), in_hand: 0, sent: Vec::new(), lost: Vec::new() }
    }

    /// Takes room for a copy, to be [put back](Self::put), [sent](Self::send) or [lost](Self::lose).
    pub(super) fn take(&mut self) -> Option<Cell<B>> {
        let cell = self.free.pop()?;
        self.in_hand += 1;
        Some(cell)
    }

    pub(super) fn put(&mut self, cell: Cell<B>) {
        self.in_hand -= 1;
        self.free.push(cell);
    }

    pub(super) fn send(&mut self, sent: Sent<B>) {
        self.in_hand -= 1;
        self.sent.push(sent);
    }

    /// Abandons room that something may still touch.
    pub(super) fn lose(&mut self, cell: Cell<B>) {
        self.in_hand -= 1;
        self.lost.push(cell);
    }

    /// Takes all copies on their way in hand.
    pub(super) fn take_sent(&mut self) -> Vec<Sent<B>> {
        self.in_hand += self.sent.len();
        core::mem::take(&mut self.sent)
    }

    /// Adds the cells of a block, and takes one.
    pub(super) fn grow(&mut self, block: Block<B>) -> Option<Cell<B>> {
        let block = Arc::new(block);
        let offsets = (0..block.size() / CELL).rev().map(|at| at * CELL);
        self.free.extend(offsets.map(|offset| Cell { block: Arc::clone(&block), offset }));
        self.blocks.push(block);
        self.take()
    }

    /// Takes out the blocks that no copy uses, where none is on its way.
    pub(super) fn empty(&mut self) -> Vec<Arc<Block<B>>> {
        if !self.sent.is_empty() || self.in_hand > 0 {
            return Vec::new();
        }
        self.free.clear();
        let lost = &self.lost;
        let is_unused =
            |block: &mut Arc<Block<B>>| lost.iter().all(|cell| !Arc::ptr_eq(&cell.block, block));
        self.blocks.extract_if(.., is_unused).collect()
    }

    /// Frees everything; room that may still be written only once the device is idle, or never.
    pub(super) fn dismantle(mut self, device: &Device<B>) {
        drop(self.empty());
        if self.blocks.is_empty() {
            return;
        }
        let idle = device.backend().wait_idle();
        if idle.is_err_and(|error| error.kind() != ErrorKind::DeviceLost) {
            for block in self.blocks.drain(..) {
                device.quarantine(block.size(), "copies of guards could not be followed");
                core::mem::forget(block);
            }
        }
    }
}

/// Allocates a block for more cells, where the device has one.
pub(super) fn block<B: Backend>(device: &Arc<Device<B>>, heap: HeapId) -> Option<Block<B>> {
    let about = device.heap(heap).ok()?;
    let size = about.granule.up(BLOCK)?.min(about.max_block);
    device.allocate(heap, size).ok()
}

//! Where the device leaves copies of guards until the host can look at them.
#![forbid(unsafe_code)]
use super::sentry::Facts;
use crate::device::{Block, Device};
use crate::{Backend, ErrorKind, HeapId, Place, Point};
use alloc::{sync::Arc, vec::Vec};

/// Bytes of one copy: what is looked at, and the word that it starts in.
const CELL: u64 = 2 * super::MOST;
/// Bytes of one block of copies.
const BLOCK: u64 = 128 * CELL;

/// Room for one copy.
pub(super) struct Cell<B: Backend> {
    block: Arc<Block<B>>,
    offset: u64,
}

impl<B: Backend> Cell<B> {
    pub(super) fn place(&self) -> Place<'_, B::Block> {
        Place { block: self.block.raw(), offset: self.offset }
    }
}

/// A copy on its way.
pub(super) struct Sent<B: Backend> {
    pub(super) cell: Cell<B>,
    /// When it is there.
    pub(super) point: Point,
    pub(super) facts: Facts,
}

/// Copies on their way, and room for more.
pub(super) struct Log<B: Backend> {
    free: Vec<Cell<B>>,
    pub(super) sent: Vec<Sent<B>>,
    /// Room that may be written at any time: copies that could not be followed.
    pub(super) lost: Vec<Cell<B>>,
}

impl<B: Backend> Log<B> {
    pub(super) const fn new() -> Self {
        Self { free: Vec::new(), sent: Vec::new(), lost: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Option<Cell<B>> {
        self.free.pop()
    }

    pub(super) fn put(&mut self, cell: Cell<B>) {
        self.free.push(cell);
    }

    /// Adds the cells of a block.
    pub(super) fn add(&mut self, block: Block<B>) {
        let block = Arc::new(block);
        let offsets = (0..block.size() / CELL).rev().map(|at| at * CELL);
        self.free.extend(offsets.map(|offset| Cell { block: Arc::clone(&block), offset }));
    }

    /// Takes out all cells, where no copy is on its way: their blocks go back when they are dropped.
    pub(super) fn empty(&mut self) -> Vec<Cell<B>> {
        if self.sent.is_empty() { core::mem::take(&mut self.free) } else { Vec::new() }
    }

    /// Gives everything back: what may still be written once the device is idle, or never.
    pub(super) fn dismantle(&mut self, device: &Device<B>) {
        let lost = core::mem::take(&mut self.lost);
        if lost.is_empty() {
            return;
        }
        let idle = device.backend().wait_idle();
        if idle.is_err_and(|error| error.kind() != ErrorKind::DeviceLost) {
            device.quarantine(BLOCK, "copies of guards could not be followed");
            core::mem::forget(lost);
        }
    }
}

/// A block for more cells, where the heap has one.
pub(super) fn grow<B: Backend>(device: &Arc<Device<B>>, heap: HeapId) -> Option<Block<B>> {
    let about = device.heap(heap).ok()?;
    let size = about.granule.up(BLOCK)?.min(about.max_block);
    device.allocate(heap, size).ok()
}

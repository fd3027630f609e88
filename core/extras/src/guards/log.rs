//! Scratch memory in which the device leaves copies of guards until the host can look at them.
use super::MOST;
use omniheap_core::{ErrorKind, Point, Sanitized, SanitizerDevice, ScratchId, ScratchPlace};

/// Bytes of one copy: what is looked at, and the word that it starts in.
const CELL: u64 = 2 * MOST;
/// Bytes of one block of copies.
const BLOCK: u64 = 128 * CELL;

/// A copy on its way.
pub(super) struct Sent {
    pub(super) cell: ScratchPlace,
    /// When it is there.
    pub(super) point: Point,
    pub(super) about: Sanitized,
}

/// Copies on their way, and room for more.
#[derive(Default)]
pub(super) struct Log {
    blocks: Vec<ScratchId>,
    free: Vec<ScratchPlace>,
    /// Cells that a call has taken, and neither sent nor put back yet.
    in_hand: usize,
    sent: Vec<Sent>,
    /// Room that may be written at any time: copies that could not be followed.
    lost: Vec<ScratchPlace>,
}

impl Log {
    /// Takes room for a copy, to be [put back](Self::put), [sent](Self::send) or [lost](Self::lose).
    pub(super) fn take(&mut self) -> Option<ScratchPlace> {
        let cell = self.free.pop()?;
        self.in_hand += 1;
        Some(cell)
    }

    pub(super) fn put(&mut self, cell: ScratchPlace) {
        self.in_hand -= 1;
        self.free.push(cell);
    }

    pub(super) fn send(&mut self, sent: Sent) {
        self.in_hand -= 1;
        self.sent.push(sent);
    }

    /// Abandons room that something may still touch.
    pub(super) fn lose(&mut self, cell: ScratchPlace) {
        self.in_hand -= 1;
        self.lost.push(cell);
    }

    /// Takes all copies on their way in hand.
    pub(super) fn take_sent(&mut self) -> Vec<Sent> {
        self.in_hand += self.sent.len();
        core::mem::take(&mut self.sent)
    }

    /// Adds the cells of a block.
    fn add(&mut self, block: ScratchId, size: u64) {
        self.blocks.push(block);
        let offsets = (0..size / CELL).rev().map(|at| at * CELL);
        self.free.extend(offsets.map(|offset| ScratchPlace { block, offset }));
    }

    /// Allocates more room.
    pub(super) fn grow(&mut self, (block, size): (ScratchId, u64)) -> Option<ScratchPlace> {
        self.add(block, size);
        self.take()
    }

    /// Takes out the blocks that no copy uses, where none is on its way.
    pub(super) fn empty(&mut self) -> Vec<ScratchId> {
        if !self.sent.is_empty() || self.in_hand > 0 {
            return Vec::new();
        }
        self.free.clear();
        let lost = &self.lost;
        self.blocks.extract_if(.., |block| lost.iter().all(|cell| cell.block != *block)).collect()
    }

    /// Frees everything; room that may still be written only once the device is idle, or never.
    pub(super) fn dismantle(&mut self, device: &dyn SanitizerDevice) {
        self.empty().into_iter().for_each(|block| device.free_scratch(block));
        if self.blocks.is_empty() {
            return;
        }
        let idle = device.wait_idle();
        let is_running = idle.is_err_and(|error| error.kind() != ErrorKind::DeviceLost);
        for block in self.blocks.drain(..) {
            match is_running {
                true => device.abandon_scratch(block, "copies of guards could not be followed"),
                false => device.free_scratch(block),
            }
        }
    }
}

/// Returns a block for more cells, where the device has one.
pub(super) fn block(device: &dyn SanitizerDevice) -> Option<(ScratchId, u64)> {
    device.take_scratch(BLOCK)
}

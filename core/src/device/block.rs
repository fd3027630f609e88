//! A driver allocation that returns itself.
#![expect(unsafe_code, reason = "returns blocks to the backend")]
use super::Device;
use crate::event::{BlockNumber, Event};
use crate::{Backend, HeapId};
use alloc::sync::Arc;
use core::fmt;

/// One driver allocation that returns itself.
pub(crate) struct Block<B: Backend> {
    pub(super) device: Arc<Device<B>>,
    pub(super) number: BlockNumber,
    pub(super) heap: HeapId,
    pub(super) size: u64,
    pub(super) claimed: u64,
    pub(super) raw: Option<B::Block>,
}

impl<B: Backend> fmt::Debug for Block<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("heap", &self.heap)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Block<B> {
    pub(crate) fn raw(&self) -> &B::Block {
        self.raw.as_ref().expect("present until drop")
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) const fn number(&self) -> BlockNumber {
        self.number
    }
}

impl<B: Backend> Drop for Block<B> {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        // Told before the driver has it: afterwards another block may have the same address, and tools know of no memory there.
        self.device.tell(&Event::ReturnBlock { block: self.number });
        self.device.count_call();
        // SAFETY: the block came from this backend in `take`. Lanes drop a block only when nothing in it is live and
        // its timelines have passed the last free, or after the device went idle.
        if unsafe { self.device.backend().free(raw) }.is_err() {
            self.device.quarantine(self.claimed, "the driver refused to take a block back");
        }
        self.device.release_block();
        self.device.release(self.heap, self.claimed);
    }
}

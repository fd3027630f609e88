//! The seam: every verb and capability, checked before anything happens.
#![expect(unsafe_code, reason = "signs the contract of Backend")]
use crate::block::{Backing, Block, Body};
use crate::device::Host;
use crate::driver::Memory;
use omniheap_seam::{
    Address, Backend, Caps, DriverBudget, ErrorKind, Heap, HeapBudget, HeapId, Launch, Map, Result,
    SystemLimit, Timelines, Transfer,
};
#[cfg(target_os = "linux")]
use omniheap_seam::{Export, Remap};
use std::sync::Arc;

impl Host {
    /// Returns the heap, while the device is there.
    pub(crate) fn heap(&self, heap: HeapId) -> Result<&Heap> {
        self.check_alive()?;
        self.caps.heap(heap).ok_or(ErrorKind::NoSuchHeap.into())
    }

    /// Counts a block of `size` bytes, makes it, and takes the count back when that fails.
    pub(crate) fn admit(
        &self,
        id: HeapId,
        size: u64,
        make: impl FnOnce(&Heap, u64) -> Result<(Memory, Backing)>,
    ) -> Result<Block> {
        let heap = self.heap(id)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let size = heap.granule.up(size).ok_or(ErrorKind::ExceedsLimit)?;
        if size > heap.max_block || size > heap.size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        self.ledger.charge(id, size, 1)?;
        match make(heap, size) {
            Ok((memory, backing)) => {
                Ok(Block { body: Arc::new(Body::new(self.id, id, size, memory, backing)) })
            }
            Err(error) => {
                self.ledger.refund(id, size, 1);
                Err(error)
            }
        }
    }

    /// Checks that this block may be freed now.
    fn may_free(&self, body: &Body) -> Result<()> {
        self.check_alive()?;
        #[cfg(target_os = "linux")]
        if let Backing::Pages(slots) = &body.backing
            && !slots.is_empty()
        {
            return Err(ErrorKind::Busy.into());
        }
        if body.is_claimed() { Err(ErrorKind::Busy.into()) } else { Ok(()) }
    }
}

// SAFETY: every block has a mapping of its own, at least as long as asked for and aligned by `Memory`; `caps` is
// never written; all state is behind locks or atomics.
unsafe impl Backend for Host {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        self.admit(heap, size, |heap, size| {
            Ok((Memory::anonymous(size, heap.align.get())?, Backing::Plain))
        })
    }

    /// Answers `Foreign` for a block of another device, `Busy` when work still used it or pages were mapped. The memory
    /// of a busy block returns when its work has finished.
    unsafe fn free(&self, block: Block) -> Result<()> {
        self.own(&block)?;
        if let Err(error) = self.check_process() {
            core::mem::forget(block);
            return Err(error);
        }
        let verdict = self.may_free(&block.body);
        let Body { heap, size, .. } = *block.body;
        let reserved = block.body.is_reserved();
        drop(block);
        if !reserved {
            self.ledger.refund(heap, size, 1);
        }
        verdict
    }

    fn wait_idle(&self) -> Result<()> {
        self.check_process()?;
        self.wait_for_lines();
        self.check_alive()
    }

    fn as_map(&self) -> Option<&dyn Map<Block = Block>> {
        Some(self)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Block>> {
        Some(self)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    #[cfg(target_os = "linux")]
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.caps.heaps.iter().any(|heap| heap.page.is_some()).then_some(self as _)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }
    #[cfg(target_os = "linux")]
    fn as_export(&self) -> Option<&dyn Export<Block = Block>> {
        Some(self)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        Some(self)
    }
}

// SAFETY: the address is that of the block's own mapping, which stays until the block is freed.
unsafe impl Address for Host {
    type Block = Block;

    /// # Panics
    ///
    /// Panics when the block belongs to another device.
    fn address(&self, block: &Block) -> u64 {
        let body = self.own(block).expect("the block belongs to this device");
        body.memory.base().addr().get() as u64
    }
}

impl DriverBudget for Host {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        self.check_alive()?;
        self.ledger.budget(heap)
    }
    fn limits(&self, _: HeapId) -> Vec<SystemLimit> {
        self.limits.read()
    }
}

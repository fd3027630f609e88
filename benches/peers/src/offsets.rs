//! Peers that divide offsets without a device.
use crate::measure::Peer;
use crate::workload::{ALIGN, Workload};

/// `offset-allocator` counts in 32 bits, so it is given units of the alignment.
pub struct OffsetAllocator(offset_allocator::Allocator<u32>);

impl OffsetAllocator {
    pub fn new(workload: &Workload) -> Self {
        let units = u32::try_from(workload.peak_live * 2 / ALIGN).expect("fits 32 bits of units");
        Self(offset_allocator::Allocator::with_max_allocs(units, 1 << 20))
    }
}

impl Peer for OffsetAllocator {
    type Held = offset_allocator::Allocation<u32>;
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        self.0.allocate(u32::try_from(size / ALIGN).ok()?)
    }
    fn free(&mut self, held: Self::Held) {
        self.0.free(held);
    }
}

/// VMA's virtual block, through `vk-mem`.
pub struct Virtual(vk_mem::VirtualBlock);

impl Virtual {
    pub fn new(workload: &Workload) -> Self {
        let info =
            vk_mem::VirtualBlockCreateInfo { size: workload.peak_live * 2, ..Default::default() };
        Self(vk_mem::VirtualBlock::new(info).expect("a virtual block"))
    }
}

impl Peer for Virtual {
    type Held = vk_mem::VirtualAllocation;
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        let info = vk_mem::VirtualAllocationCreateInfo {
            size,
            alignment: ALIGN,
            user_data: 0,
            flags: vk_mem::VirtualAllocationCreateFlags::empty(),
        };
        // SAFETY: the size is not zero and the alignment a power of two.
        unsafe { self.0.allocate(info) }.ok().map(|(held, _)| held)
    }
    fn free(&mut self, mut held: Self::Held) {
        // SAFETY: `held` came from `allocate` of this block and is freed once.
        unsafe { self.0.free(&mut held) };
    }
}

//! `gpu-alloc` over a driver that costs nothing.
use crate::measure::Peer;
use crate::workload::{ALIGN, Workload};
use core::cell::Cell;
use core::ptr::NonNull;
use gpu_alloc::{Config, GpuAllocator, MemoryBlock, Request, UsageFlags};
use gpu_alloc_types::{
    AllocationFlags, DeviceMapError, DeviceProperties, MappedMemoryRange, MemoryDevice, MemoryHeap,
    MemoryPropertyFlags, MemoryType, OutOfMemory,
};

/// Memory objects without bytes, counted.
#[derive(Default)]
struct Driver {
    held: Cell<u64>,
    peak: Cell<u64>,
    calls: Cell<u64>,
}

// The memory object is its own size, so that the count needs no table.
impl MemoryDevice<u64> for Driver {
    unsafe fn allocate_memory(
        &self,
        size: u64,
        _: u32,
        _: AllocationFlags,
    ) -> Result<u64, OutOfMemory> {
        self.calls.set(self.calls.get() + 1);
        self.held.set(self.held.get() + size);
        self.peak.set(self.peak.get().max(self.held.get()));
        Ok(size)
    }
    unsafe fn deallocate_memory(&self, memory: u64) {
        self.calls.set(self.calls.get() + 1);
        self.held.set(self.held.get() - memory);
    }
    unsafe fn map_memory(
        &self,
        _: &mut u64,
        _: u64,
        _: u64,
    ) -> Result<NonNull<u8>, DeviceMapError> {
        Err(DeviceMapError::MapFailed)
    }
    unsafe fn unmap_memory(&self, _: &mut u64) {}
    unsafe fn invalidate_memory_ranges(
        &self,
        _: &[MappedMemoryRange<'_, u64>],
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }
    unsafe fn flush_memory_ranges(
        &self,
        _: &[MappedMemoryRange<'_, u64>],
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }
}

/// `gpu-alloc` with the settings that its documentation gives for today's devices.
pub struct GpuAlloc {
    allocator: GpuAllocator<u64>,
    driver: Driver,
}

impl GpuAlloc {
    pub fn new(_: &Workload) -> Self {
        let properties = DeviceProperties {
            memory_types: vec![MemoryType { heap: 0, props: MemoryPropertyFlags::DEVICE_LOCAL }]
                .into(),
            memory_heaps: vec![MemoryHeap { size: 1 << 38 }].into(),
            max_memory_allocation_count: u32::MAX,
            max_memory_allocation_size: 1 << 38,
            non_coherent_atom_size: 64,
            buffer_device_address: false,
        };
        let allocator = GpuAllocator::new(Config::i_am_prototyping(), properties);
        Self { allocator, driver: Driver::default() }
    }
}

impl Peer for GpuAlloc {
    type Held = MemoryBlock<u64>;
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        let usage = UsageFlags::FAST_DEVICE_ACCESS;
        let request = Request { size, align_mask: ALIGN - 1, usage, memory_types: 1 };
        // SAFETY: the allocator is only ever used with this device.
        unsafe { self.allocator.alloc(&self.driver, request) }.ok()
    }
    fn free(&mut self, held: Self::Held) {
        // SAFETY: `held` came from `allocate` of this allocator and device.
        unsafe { self.allocator.dealloc(&self.driver, held) };
    }
    fn peak_reserved(&self) -> Option<u64> {
        Some(self.driver.peak.get())
    }
    fn driver_calls(&self) -> Option<u64> {
        Some(self.driver.calls.get())
    }
}

impl Drop for GpuAlloc {
    fn drop(&mut self) {
        // SAFETY: as for `allocate`.
        unsafe { self.allocator.cleanup(&self.driver) };
    }
}

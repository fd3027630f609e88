//! Memory properties from the driver below wgpu, because wgpu does not expose them.
use omniheap_seam::HeapBudget;

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
#[path = "hal/vulkan.rs"]
mod driver;

/// On this platform there is no driver that can be asked.
#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
mod driver {
    use super::{DriverMemory, HeapBudget};

    pub(crate) fn memory(_device: &wgpu::Device) -> Option<DriverMemory> {
        None
    }

    pub(crate) fn budget(_device: &wgpu::Device, _heap: u8) -> Option<HeapBudget> {
        None
    }
}

pub(crate) use driver::{budget, memory};

/// Property bits of a memory type, as Vulkan numbers them.
pub(crate) mod bits {
    pub(crate) const DEVICE_LOCAL: u32 = 1;
    pub(crate) const HOST_VISIBLE: u32 = 2;
    pub(crate) const HOST_COHERENT: u32 = 4;
    pub(crate) const HOST_CACHED: u32 = 8;
}

/// The driver's own view of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverMemory {
    /// Bytes of each physical heap.
    pub(crate) heaps: Vec<u64>,
    /// Each memory type, best first.
    pub(crate) types: Vec<MemoryType>,
    /// Live driver allocations the driver tolerates.
    pub(crate) max_blocks: u64,
    /// Bytes that a buffer and a texture in one block must keep apart.
    pub(crate) granularity: u32,
    /// Identity of the device across APIs and processes.
    pub(crate) uuid: Option<[u8; 16]>,
    /// True if the driver tells how much is left.
    pub(crate) tells_budget: bool,
}

/// One kind of memory of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryType {
    /// Its [`bits`].
    pub(crate) properties: u32,
    /// The physical heap it takes from.
    pub(crate) heap: u8,
}

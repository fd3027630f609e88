//! Settings that callers pass in: where memory lies, what is logged, how large blocks may be.

/// Memory that a resource should lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryLocation {
    /// Anywhere.
    Unknown,
    /// In device memory.
    GpuOnly,
    /// In memory that the host writes and the device reads.
    CpuToGpu,
    /// In memory that the device writes and the host reads.
    GpuToCpu,
}

/// Events that are logged.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct AllocatorDebugSettings {
    /// Log the heaps and memory types of the device when the allocator is created.
    pub log_memory_information: bool,
    /// Log allocations that are still live when the allocator is dropped, as warnings.
    pub log_leaks_on_shutdown: bool,
    /// Keep the stack trace of every allocation, for the log of leaks.
    pub store_stack_traces: bool,
    /// Log every allocation.
    pub log_allocations: bool,
    /// Log every free.
    pub log_frees: bool,
    /// Log the stack trace with `log_allocations` and `log_frees`.
    pub log_stack_traces: bool,
}

impl Default for AllocatorDebugSettings {
    fn default() -> Self {
        Self {
            log_memory_information: false,
            log_leaks_on_shutdown: true,
            store_stack_traces: false,
            log_allocations: false,
            log_frees: false,
            log_stack_traces: false,
        }
    }
}

const MIB: u64 = 1 << 20;
/// Requests up to this size share blocks of 4 MiB at most.
#[cfg(feature = "vulkan")]
const SMALL: u64 = MIB;
/// The largest block that several larger requests share.
#[cfg(feature = "vulkan")]
const SHARED_BLOCK: u64 = 32 * MIB;

/// The largest blocks that several allocations share.
///
/// omniheap begins with blocks of 1 MiB and less, and chooses larger ones by request and by how much is live. It uses the maximum
/// of each kind as an upper bound, and ignores the minimum. An allocation that is larger than the bound gets a block of its own.
///
/// ```
/// use gpu_allocator::AllocationSizes;
/// let sizes = AllocationSizes::new(8 << 20, 8 << 20)
///     .with_max_device_memblock_size(256 << 20)
///     .with_max_host_memblock_size(64 << 20);
/// # let _ = sizes;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AllocationSizes {
    device: u64,
    host: u64,
}

impl AllocationSizes {
    /// Bounds the blocks of device and of host memory, both between 4 and 256 MiB.
    #[must_use]
    pub fn new(device_memblock_size: u64, host_memblock_size: u64) -> Self {
        Self { device: bounded(device_memblock_size), host: bounded(host_memblock_size) }
    }

    /// Raises the bound of device memory.
    #[must_use]
    pub fn with_max_device_memblock_size(self, size: u64) -> Self {
        Self { device: bounded(size).max(self.device), ..self }
    }

    /// Raises the bound of host memory.
    #[must_use]
    pub fn with_max_host_memblock_size(self, size: u64) -> Self {
        Self { host: bounded(size).max(self.host), ..self }
    }

    /// Returns the largest request that shares a block, of host or of device memory.
    #[cfg(feature = "vulkan")]
    pub(crate) const fn largest_shared(self, is_host: bool) -> u64 {
        let bound = self.bound(is_host);
        if bound < SHARED_BLOCK { SMALL } else { bound }
    }

    #[cfg(feature = "vulkan")]
    pub(crate) const fn bound(self, is_host: bool) -> u64 {
        if is_host { self.host } else { self.device }
    }
}

impl Default for AllocationSizes {
    fn default() -> Self {
        Self { device: 256 * MIB, host: 64 * MIB }
    }
}

fn bounded(size: u64) -> u64 {
    size.clamp(4 * MIB, 256 * MIB).next_multiple_of(4 * MIB)
}

//! Device attributes from the runtime as plain data, and constants of all HIP devices.
use crate::{driver::Driver, sys::hipDeviceAttribute_t};
use omniheap_seam::{Align, DeviceInfo, Result, SharedCaps};
use omniheap_stream::{
    BlockSource, ConstantHeap, Facts, MemoryDriver, host_memory, selftest::Claims,
};

/// Alignment of every `hipMalloc` result; checked at each allocation.
const DEVICE_ALIGN: Align = Align::of(256);
/// Allocation granularity of `hipMalloc`: AMD's page. May be larger where HIP is forwarded to another vendor.
const DEVICE_GRANULE: Align = Align::of(4 << 10);
/// Allocation granularity of managed memory: the host's page.
const MANAGED_GRANULE: Align = Align::of(4 << 10);
/// Banks of shared memory and the bytes of one word, on every architecture up to CDNA 3 and RDNA 4.
const SHARED_BANKS: (u32, u32) = (32, 4);

/// The device's attributes, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) name: String,
    /// The architecture with its features: `gfx90a:sramecc+:xnack-`.
    pub(crate) arch: String,
    /// As the runtime encodes it: major · 10⁷ + minor · 10⁵ + patch.
    pub(crate) version: i32,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) total_memory: u64,
    pub(crate) host_memory: Option<u64>,
    pub(crate) constant_memory: u64,
    pub(crate) shared_per_group: u64,
    pub(crate) shared_opt_in: u64,
    pub(crate) shared_per_multiprocessor: u64,
    pub(crate) claims: Claims,
}

impl Attributes {
    /// Queries the runtime.
    pub(crate) fn read(driver: &Driver, block_source: BlockSource) -> Result<Self> {
        use hipDeviceAttribute_t as A;
        let value = |attribute| driver.attribute(attribute);
        let (name, arch) = driver.names()?;
        Ok(Self {
            name,
            arch,
            version: driver.version()?,
            uuid: driver.uuid().ok(),
            total_memory: driver.memory_info()?.total,
            host_memory: host_memory(),
            constant_memory: value(A::hipDeviceAttributeTotalConstantMemory),
            shared_per_group: value(A::hipDeviceAttributeMaxSharedMemoryPerBlock),
            shared_opt_in: value(A::hipDeviceAttributeSharedMemPerBlockOptin),
            shared_per_multiprocessor: value(A::hipDeviceAttributeMaxSharedMemoryPerMultiprocessor),
            claims: Claims {
                has_pages: value(A::hipDeviceAttributeVirtualMemoryManagementSupported) != 0,
                has_managed: value(A::hipDeviceAttributeManagedMemory) != 0,
                has_concurrent_managed: value(A::hipDeviceAttributeConcurrentManagedAccess) != 0,
                wants_managed: true,
                has_pools: value(A::hipDeviceAttributeMemoryPoolsSupported) != 0,
                block_source,
            },
        })
    }

    /// Returns the bytes for constants: what the runtime says, and no more than the device has.
    pub(crate) fn constants(&self) -> u64 {
        self.constant_memory.min(self.total_memory)
    }

    /// Returns the facts that caps are made of.
    pub(crate) fn facts(&self) -> Facts {
        let (major, minor) = (self.version / 10_000_000, self.version / 100_000 % 100);
        let (banks, bank_width) = SHARED_BANKS;
        Facts {
            device: DeviceInfo {
                backend: "hip",
                name: format!("{} ({})", self.name, self.arch),
                driver: format!("HIP runtime {major}.{minor}.{}", self.version % 100_000),
                uuid: self.uuid,
            },
            total_memory: self.total_memory,
            host_memory: self.host_memory,
            device_align: DEVICE_ALIGN,
            device_granule: DEVICE_GRANULE,
            managed_granule: MANAGED_GRANULE,
            constant: (self.constants() > 0).then(|| ConstantHeap {
                name: "read-only device",
                size: self.constants(),
                align: DEVICE_ALIGN,
                granule: DEVICE_GRANULE,
                physical: 0,
            }),
            shared: SharedCaps {
                per_group: self.shared_per_group,
                // AMD's devices give all of it without being asked, and may report zero here.
                per_group_opt_in: self.shared_opt_in.max(self.shared_per_group),
                per_multiprocessor: self.shared_per_multiprocessor,
                banks,
                bank_width,
            },
        }
    }
}

#[cfg(test)]
mod tests;

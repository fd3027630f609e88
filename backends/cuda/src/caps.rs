//! Device attributes from the driver as plain data, and constants of all CUDA devices.
use crate::{config::Config, driver::Driver, sys::Attribute};
use omniheap_seam::{Align, DeviceInfo, Result, SharedCaps};
use omniheap_stream::{ConstantHeap, Facts, host_memory, selftest::Claims};

/// Alignment of every `cuMemAlloc` result; checked at each allocation.
const DEVICE_ALIGN: Align = Align::of(512);
/// Allocation granularity of `cuMemAlloc`. Measured, because the driver does not report it.
const DEVICE_GRANULE: Align = Align::of(2 << 20);
/// Allocation granularity of managed memory: the driver's smallest resident unit.
const MANAGED_GRANULE: Align = Align::of(64 << 10);
/// Alignment of the bank's symbol, as `kernels/constant_bank.cu` declares it, and of the blocks inside.
pub(crate) const BANK_ALIGN: Align = Align::of(256);
/// Bytes of the bank's symbol, as `kernels/constant_bank.cu` declares it.
const BANK_SIZE: u64 = 64 << 10;
/// Banks of shared memory and the bytes of one word, on every architecture since Kepler.
const SHARED_BANKS: (u32, u32) = (32, 4);

/// The device's attributes, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) name: String,
    /// As the driver encodes it: 13000 is 13.0.
    pub(crate) driver_version: i32,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) total_memory: u64,
    pub(crate) host_memory: Option<u64>,
    pub(crate) constant_memory: u64,
    pub(crate) shared_per_group: u64,
    pub(crate) shared_opt_in: u64,
    pub(crate) shared_per_multiprocessor: u64,
    pub(crate) max_pitch: u64,
    pub(crate) has_fd_handles: bool,
    pub(crate) claims: Claims,
}

impl Attributes {
    /// Queries the driver.
    pub(crate) fn read(driver: &Driver, config: &Config) -> Result<Self> {
        use Attribute as A;
        let value = |attribute| driver.attribute(attribute);
        Ok(Self {
            name: driver.name()?,
            driver_version: driver.version()?,
            uuid: driver.uuid().ok(),
            total_memory: driver.total_memory()?,
            host_memory: host_memory(),
            constant_memory: value(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
            shared_per_group: value(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            shared_opt_in: value(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            shared_per_multiprocessor: value(
                A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            ),
            max_pitch: value(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
            has_fd_handles: value(
                A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            ) != 0,
            claims: Claims {
                has_pages: value(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0,
                has_managed: value(A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) != 0,
                has_concurrent_managed: value(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
                    != 0,
                wants_managed: !config.is_light,
                has_pools: value(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0,
                block_source: config.block_source,
            },
        })
    }

    /// Returns the bytes of the constant bank: our symbol, or less where the device has less.
    pub(crate) fn bank(&self) -> u64 {
        self.constant_memory.min(BANK_SIZE)
    }

    /// Returns the facts that caps are made of.
    pub(crate) fn facts(&self) -> Facts {
        let (major, minor) = (self.driver_version / 1000, self.driver_version % 1000 / 10);
        let (banks, bank_width) = SHARED_BANKS;
        Facts {
            device: DeviceInfo {
                backend: "cuda",
                name: self.name.clone(),
                driver: format!("CUDA driver {major}.{minor}"),
                uuid: self.uuid,
            },
            total_memory: self.total_memory,
            host_memory: self.host_memory,
            device_align: DEVICE_ALIGN,
            device_granule: DEVICE_GRANULE,
            managed_granule: MANAGED_GRANULE,
            constant: (self.bank() > 0).then(|| ConstantHeap {
                name: "constant bank",
                size: self.bank(),
                align: BANK_ALIGN,
                granule: BANK_ALIGN,
                physical: 2,
            }),
            shared: SharedCaps {
                per_group: self.shared_per_group,
                // Devices before the opt-in report zero there.
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

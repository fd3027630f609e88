//! What the driver says about the device, as plain data, and its translation to [`Caps`].
use crate::{driver::Driver, sys::Attribute};
use omniheap_core::{
    Align, Caps, ConstantCaps, CopyCaps, DeviceInfo, Heap, HeapKind, HostAccess, InsideBlock,
    Result, SharedCaps, Use,
};

/// Alignment of every `cuMemAlloc` result; checked at each allocation.
const DEVICE_ALIGN: Align = Align::of(512);
/// Alignment of pinned and managed blocks; checked at each allocation.
const HOST_ALIGN: Align = Align::of(256);
/// What `cuMemAlloc` takes from the device at a time. The driver does not tell; to be measured again per driver.
const DEVICE_GRANULE: Align = Align::of(2 << 20);
/// What pinned memory takes from the host at a time: its page.
const HOST_GRANULE: Align = Align::of(4 << 10);
/// What managed memory takes at a time: the driver's smallest resident piece.
const MANAGED_GRANULE: Align = Align::of(64 << 10);
/// Alignment of the bank's symbol, as `shaders/constant_bank` declares it, and of the blocks inside.
pub(crate) const BANK_ALIGN: Align = Align::of(256);
/// Bytes of the bank's symbol, as `shaders/constant_bank` declares it.
const BANK_SIZE: u64 = 64 << 10;
/// Start of a constant span: the widest load of one thread.
const CONSTANT_ALIGN: Align = Align::of(16);
/// Bytes of kernel arguments that every driver from CUDA 12.0 on accepts.
const ARGUMENT_BYTES: u64 = 4096;
/// Banks of shared memory and the bytes of one word, on every architecture since Kepler.
const SHARED_BANKS: (u32, u32) = (32, 4);

/// Where a heap's blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `cuMemAlloc`, the driver's pool, or pages.
    Device,
    /// Pinned host memory, write-combined.
    Combined,
    /// Pinned host memory, cached.
    Cached,
    /// Managed memory.
    Managed,
    /// The constant bank of our module.
    Constant,
}

/// The device's attributes, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) name: String,
    /// As the driver encodes it: 13000 is 13.0.
    pub(crate) driver_version: i32,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) total_memory: u64,
    pub(crate) host_memory: Option<u64>,
    /// Compute capability.
    pub(crate) compute: (u32, u32),
    pub(crate) constant_memory: u64,
    pub(crate) shared_per_group: u64,
    pub(crate) shared_opt_in: u64,
    pub(crate) shared_per_multiprocessor: u64,
    pub(crate) max_threads: u64,
    pub(crate) max_pitch: u64,
    pub(crate) has_virtual_memory: bool,
    pub(crate) has_fd_handles: bool,
    pub(crate) has_managed: bool,
    pub(crate) has_concurrent_managed: bool,
    pub(crate) has_pools: bool,
}

/// What the self-test left standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usable {
    /// The page size, where pages work.
    pub(crate) page: Option<Align>,
    /// The managed heap, where it works.
    pub(crate) managed: Option<Source>,
}

impl Attributes {
    /// Asks the driver.
    pub(crate) fn read(driver: &Driver) -> Result<Self> {
        use Attribute as A;
        let value = |attribute| driver.attribute(attribute);
        let narrow = |attribute| u32::try_from(driver.attribute(attribute)).unwrap_or(0);
        Ok(Self {
            name: driver.name()?,
            driver_version: driver.version()?,
            uuid: driver.uuid().ok(),
            total_memory: driver.total_memory()?,
            host_memory: host_memory(),
            compute: (
                narrow(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                narrow(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
            constant_memory: value(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
            shared_per_group: value(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            shared_opt_in: value(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            shared_per_multiprocessor: value(
                A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            ),
            max_threads: value(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            max_pitch: value(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
            has_virtual_memory: value(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
                != 0,
            has_fd_handles: value(
                A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            ) != 0,
            has_managed: value(A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) != 0,
            has_concurrent_managed: value(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) != 0,
            has_pools: value(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0,
        })
    }

    /// Bytes of the constant bank: our symbol, or less where the device has less.
    pub(crate) fn bank(&self) -> u64 {
        self.constant_memory.min(BANK_SIZE)
    }
}

/// Translates attributes to [`Caps`], with the source of each heap.
pub(crate) fn translate(attributes: &Attributes, usable: Usable) -> (Caps, Vec<Source>) {
    let sources: Vec<Source> = [Source::Device, Source::Combined, Source::Cached]
        .into_iter()
        .chain(usable.managed)
        .chain((attributes.bank() > 0).then_some(Source::Constant))
        .collect();
    let heaps = sources.iter().map(|&source| heap(source, attributes, usable)).collect();
    let caps = Caps {
        device: device(attributes),
        heaps,
        max_blocks: u64::from(u32::MAX),
        copy: CopyCaps { align: Align::ONE, inside_block: InsideBlock::Allowed },
        neighbour_granularity: Align::ONE,
        atom: Align::ONE,
        constant: (attributes.bank() > 0).then(|| ConstantCaps {
            bank: attributes.bank(),
            align: CONSTANT_ALIGN,
            max_bind: attributes.bank(),
            push: ARGUMENT_BYTES,
        }),
        shared: Some(shared(attributes)),
    };
    (caps, sources)
}

fn device(attributes: &Attributes) -> DeviceInfo {
    let (major, minor) = (attributes.driver_version / 1000, attributes.driver_version % 1000 / 10);
    DeviceInfo {
        backend: "cuda",
        name: attributes.name.clone(),
        driver: format!("CUDA driver {major}.{minor}"),
        uuid: attributes.uuid,
    }
}

fn shared(attributes: &Attributes) -> SharedCaps {
    let (banks, bank_width) = SHARED_BANKS;
    SharedCaps {
        per_group: attributes.shared_per_group,
        // Devices before the opt-in report zero there.
        per_group_opt_in: attributes.shared_opt_in.max(attributes.shared_per_group),
        per_multiprocessor: attributes.shared_per_multiprocessor,
        banks,
        bank_width,
    }
}

fn heap(source: Source, attributes: &Attributes, usable: Usable) -> Heap {
    let total = attributes.total_memory;
    // Where the host does not tell its size, the device's is the more careful guess.
    let host = attributes.host_memory.unwrap_or(total);
    let (kind, name, size, align, granule, access, physical) = match source {
        Source::Device => {
            (HeapKind::Device, "device", total, DEVICE_ALIGN, DEVICE_GRANULE, HostAccess::None, 0)
        }
        Source::Combined => {
            let name = "pinned host, write-combined";
            (HeapKind::Staging, name, host, HOST_ALIGN, HOST_GRANULE, HostAccess::Combined, 1)
        }
        Source::Cached => {
            let name = "pinned host, cached";
            (HeapKind::Staging, name, host, HOST_ALIGN, HOST_GRANULE, HostAccess::Cached, 1)
        }
        Source::Managed => {
            let access = HostAccess::Cached;
            (HeapKind::Unified, "managed", total, HOST_ALIGN, MANAGED_GRANULE, access, 0)
        }
        Source::Constant => {
            let bank = attributes.bank();
            (HeapKind::Constant, "constant bank", bank, BANK_ALIGN, BANK_ALIGN, HostAccess::None, 2)
        }
    };
    let page = if source == Source::Device { usable.page } else { None };
    Heap {
        kind,
        name: name.into(),
        size,
        max_block: size,
        align,
        granule,
        page,
        host: access,
        use_when: Use::Normal,
        physical,
    }
}

/// Bytes of RAM, where the system tells it in a file.
fn host_memory() -> Option<u64> {
    parse_host_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_host_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests;

//! What the runtime says about the device, as plain data, and its translation to [`Caps`].
use crate::{driver::Driver, sys::hipDeviceAttribute_t};
use omniheap_core::{
    Align, Caps, ConstantCaps, CopyCaps, DeviceInfo, Heap, HeapKind, HostAccess, InsideBlock,
    Result, SharedCaps, Use,
};

/// Alignment of every `hipMalloc` result; checked at each allocation.
const DEVICE_ALIGN: Align = Align::of(256);
/// Alignment of pinned and managed blocks; checked at each allocation.
const HOST_ALIGN: Align = Align::of(256);
/// What `hipMalloc` takes from the device at a time: AMD's page. Forwarded to another vendor it may be more.
const DEVICE_GRANULE: Align = Align::of(4 << 10);
/// What pinned and managed memory takes at a time: the host's page.
const HOST_GRANULE: Align = Align::of(4 << 10);
/// Start of a constant span: the widest load of one thread.
const CONSTANT_ALIGN: Align = Align::of(16);
/// Bytes of kernel arguments that every runtime accepts.
const ARGUMENT_BYTES: u64 = 4096;
/// Banks of shared memory and the bytes of one word, on every architecture up to CDNA 3 and RDNA 4.
const SHARED_BANKS: (u32, u32) = (32, 4);

/// Where a heap's blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `hipMalloc`, the runtime's pool, or pages.
    Device,
    /// Pinned host memory, write-combined.
    Combined,
    /// Pinned host memory, cached.
    Cached,
    /// Managed memory.
    Managed,
    /// Read-only device memory.
    Constant,
}

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
    pub(crate) has_virtual_memory: bool,
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
    /// Asks the runtime.
    pub(crate) fn read(driver: &Driver) -> Result<Self> {
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
            has_virtual_memory: value(A::hipDeviceAttributeVirtualMemoryManagementSupported) != 0,
            has_managed: value(A::hipDeviceAttributeManagedMemory) != 0,
            has_concurrent_managed: value(A::hipDeviceAttributeConcurrentManagedAccess) != 0,
            has_pools: value(A::hipDeviceAttributeMemoryPoolsSupported) != 0,
        })
    }

    /// Bytes for constants: what the runtime says, and no more than the device has.
    pub(crate) fn constants(&self) -> u64 {
        self.constant_memory.min(self.total_memory)
    }
}

/// Translates attributes to [`Caps`], with the source of each heap.
pub(crate) fn translate(attributes: &Attributes, usable: Usable) -> (Caps, Vec<Source>) {
    let sources: Vec<Source> = [Source::Device, Source::Combined, Source::Cached]
        .into_iter()
        .chain(usable.managed)
        .chain((attributes.constants() > 0).then_some(Source::Constant))
        .collect();
    let heaps = sources.iter().map(|&source| heap(source, attributes, usable)).collect();
    let caps = Caps {
        device: device(attributes),
        heaps,
        max_blocks: u64::from(u32::MAX),
        copy: CopyCaps { align: Align::ONE, inside_block: InsideBlock::Allowed },
        neighbour_granularity: Align::ONE,
        atom: Align::ONE,
        constant: (attributes.constants() > 0).then(|| ConstantCaps {
            bank: attributes.constants(),
            align: CONSTANT_ALIGN,
            max_bind: attributes.constants(),
            push: ARGUMENT_BYTES,
        }),
        shared: Some(shared(attributes)),
    };
    (caps, sources)
}

fn device(attributes: &Attributes) -> DeviceInfo {
    let (major, minor) = (attributes.version / 10_000_000, attributes.version / 100_000 % 100);
    DeviceInfo {
        backend: "hip",
        name: format!("{} ({})", attributes.name, attributes.arch),
        driver: format!("HIP runtime {major}.{minor}.{}", attributes.version % 100_000),
        uuid: attributes.uuid,
    }
}

fn shared(attributes: &Attributes) -> SharedCaps {
    let (banks, bank_width) = SHARED_BANKS;
    SharedCaps {
        per_group: attributes.shared_per_group,
        // AMD's devices give all of it without being asked, and may report zero here.
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
            (HeapKind::Unified, "managed", total, HOST_ALIGN, HOST_GRANULE, access, 0)
        }
        Source::Constant => {
            let (name, size) = ("read-only device", attributes.constants());
            let align = DEVICE_ALIGN;
            (HeapKind::Constant, name, size, align, DEVICE_GRANULE, HostAccess::None, 0)
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

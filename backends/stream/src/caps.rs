//! Capabilities from what a driver says of a device: [`Caps`].
use omniheap_seam::{
    Align, Caps, ConstantCaps, DeviceInfo, Heap, HeapKind, HostAccess, SharedCaps,
};

/// Alignment of pinned and managed blocks; checked at each allocation.
const HOST_ALIGN: Align = Align::of(256);
/// Allocation granularity of pinned memory: the host's page.
const HOST_GRANULE: Align = Align::of(4 << 10);
/// Start of a constant span: the widest load of one thread.
const CONSTANT_ALIGN: Align = Align::of(16);
/// Bytes of kernel arguments that every driver accepts.
const ARGUMENT_BYTES: u64 = 4096;

/// Source of a heap's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The driver's plain memory, its pool, or pages.
    Device,
    /// Pinned host memory, write-combined.
    Combined,
    /// Pinned host memory, cached.
    Cached,
    /// Managed memory.
    Managed,
    /// Memory for constants.
    Constant,
}

/// Features that passed the self-test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// The page size, where pages work.
    pub page: Option<Align>,
    /// The managed heap, where it works.
    pub managed: Option<Source>,
    /// Granule of the sizes of exportable memory, where the device can export.
    pub exportable: Option<Align>,
}

/// Facts about a device, from its driver and the vendor's documentation.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Identity of the device.
    pub device: DeviceInfo,
    /// Bytes of its memory.
    pub total_memory: u64,
    /// Bytes of the host's, where it tells.
    pub host_memory: Option<u64>,
    /// Alignment of plain memory; checked at each allocation.
    pub device_align: Align,
    /// Allocation granularity of device memory.
    pub device_granule: Align,
    /// Allocation granularity of managed memory.
    pub managed_granule: Align,
    /// The heap for constants, where there is one.
    pub constant: Option<ConstantHeap>,
    /// Shared memory of kernels.
    pub shared: SharedCaps,
}

/// The heap for constants.
#[derive(Clone, Copy, Debug)]
pub struct ConstantHeap {
    /// Display name.
    pub name: &'static str,
    /// Bytes of it.
    pub size: u64,
    /// Alignment of its blocks.
    pub align: Align,
    /// Allocation granularity of a block.
    pub granule: Align,
    /// The memory it lies in: zero is the device's.
    pub physical: u8,
}

impl Facts {
    /// Translates to [`Caps`], with the source of each heap.
    #[must_use]
    pub fn translate(self, usable: Usable) -> (Caps, Vec<Source>) {
        let sources: Vec<Source> = [Source::Device, Source::Combined, Source::Cached]
            .into_iter()
            .chain(usable.managed)
            .chain(self.constant.map(|_| Source::Constant))
            .collect();
        let heaps = sources.iter().map(|&source| self.heap(source, usable)).collect();
        let constant = self.constant.map(|constant| ConstantCaps {
            bank: constant.size,
            align: CONSTANT_ALIGN,
            max_bind: constant.size,
            push: ARGUMENT_BYTES,
        });
        let caps = Caps::new(self.device, heaps)
            .max_blocks(u64::from(u32::MAX))
            .constant(constant)
            .shared(Some(self.shared));
        (caps, sources)
    }

    fn heap(&self, source: Source, usable: Usable) -> Heap {
        let total = self.total_memory;
        // A host that does not tell its size is assumed to be as large as the device: the more careful guess.
        let host = self.host_memory.unwrap_or(total);
        let (align, granule) = (self.device_align, self.device_granule);
        let (kind, name, size, align, granule, access, physical) = match (source, self.constant) {
            (Source::Combined, _) => {
                let name = "pinned host, write-combined";
                (HeapKind::Staging, name, host, HOST_ALIGN, HOST_GRANULE, HostAccess::Combined, 1)
            }
            (Source::Cached, _) => {
                let name = "pinned host, cached";
                (HeapKind::Staging, name, host, HOST_ALIGN, HOST_GRANULE, HostAccess::Cached, 1)
            }
            (Source::Managed, _) => {
                let (access, granule) = (HostAccess::Cached, self.managed_granule);
                (HeapKind::Unified, "managed", total, HOST_ALIGN, granule, access, 0)
            }
            (Source::Constant, Some(constant)) => {
                let ConstantHeap { name, size, align, granule, physical } = constant;
                (HeapKind::Constant, name, size, align, granule, HostAccess::None, physical)
            }
            (Source::Device | Source::Constant, _) => {
                (HeapKind::Device, "device", total, align, granule, HostAccess::None, 0)
            }
        };
        let is_device = source == Source::Device;
        let page = usable.page.filter(|_| is_device);
        Heap::new(kind, size)
            .name(name)
            .align(align)
            .granule(granule)
            .page(page)
            .registrable(usable.exportable.filter(|_| is_device && page.is_some()))
            .host(access)
            .physical(physical)
    }
}

/// Returns the bytes of RAM, where the system tells it in a file.
#[must_use]
pub fn host_memory() -> Option<u64> {
    parse_host_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_host_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests;

//! The device's limits in core's words.
use crate::hal::{DriverMemory, MemoryType, bits};
use omniheap_seam::{
    Align, Caps, ConstantCaps, CopyCaps, DeviceInfo, Heap, HeapId, HeapKind, HostAccess,
    InsideBlock, KernelAccess, SharedCaps,
};
use wgpu::{AdapterInfo, BufferUsages, DeviceType, Limits};

/// wgpu copies, fills and rounds buffers in whole words.
pub(crate) const COPY_ALIGN: Align = Align::of(wgpu::COPY_BUFFER_ALIGNMENT);

/// Every offset alignment that WebGPU lets a device ask for divides this, and a buffer starts at offset zero.
pub(crate) const BASE_ALIGN: Align = Align::of(256);

/// Far from overflow when a size is rounded up, and more than a slice can hold.
const LARGEST: u64 = 1 << 62;

/// Usages of a heap's buffers, which define a heap on wgpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapClass {
    /// Storage that kernels write, and everything else that a buffer can be.
    Device,
    /// Uniforms.
    Constant,
    /// Written by the host, copied from by the device.
    Upload,
    /// Copied to by the device, read by the host.
    ReadBack,
    /// Data that kernels only read: vertices, indices, uniforms, storage bound as `read`, indirect arguments.
    ReadOnly,
}

impl HeapClass {
    /// Every class, in the order of the heaps.
    pub(crate) const ALL: [Self; 5] =
        [Self::Device, Self::Constant, Self::Upload, Self::ReadBack, Self::ReadOnly];

    /// Returns the class of a heap.
    pub(crate) fn of(heap: HeapId) -> Option<Self> {
        Self::ALL.get(usize::from(heap.0)).copied()
    }

    /// Returns the usages of its buffers.
    pub(crate) fn usages(self) -> BufferUsages {
        let copies = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        match self {
            Self::Device | Self::ReadOnly => {
                let shapes = BufferUsages::VERTEX | BufferUsages::INDEX | BufferUsages::INDIRECT;
                copies | shapes | BufferUsages::STORAGE | BufferUsages::UNIFORM
            }
            Self::Constant => copies | BufferUsages::UNIFORM,
            Self::Upload => BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC,
            Self::ReadBack => BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        }
    }

    fn kind(self) -> HeapKind {
        match self {
            Self::Device | Self::ReadOnly => HeapKind::Device,
            Self::Constant => HeapKind::Constant,
            Self::Upload | Self::ReadBack => HeapKind::Staging,
        }
    }

    /// Returns what kernels may do with its buffers.
    ///
    /// wgpu tracks whole buffers: one that a dispatch or a render pass binds as `read_write` storage may not be bound there in
    /// any other way. So data that kernels only read has buffers of its own. A buffer that the host maps takes part in copies alone.
    pub(crate) fn kernels(self) -> KernelAccess {
        match self {
            Self::Device => KernelAccess::ReadWrite,
            Self::Constant | Self::ReadOnly => KernelAccess::ReadOnly,
            Self::Upload | Self::ReadBack => KernelAccess::None,
        }
    }

    /// Returns the host access of staging memory: cached for reads, write-combined for writes.
    ///
    /// wgpu maps such blocks for the time of a transfer, never for good: there is no `Map`.
    fn host(self) -> HostAccess {
        match self {
            Self::Device | Self::Constant | Self::ReadOnly => HostAccess::None,
            Self::Upload => HostAccess::Combined,
            Self::ReadBack => HostAccess::Cached,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Device => "buffers that kernels write",
            Self::ReadOnly => "buffers that kernels only read",
            Self::Constant => "uniform buffers",
            Self::Upload => "MAP_WRITE buffers (upload)",
            Self::ReadBack => "MAP_READ buffers (read-back)",
        }
    }

    /// Property bits that wgpu looks for, the most wanted set first.
    pub(crate) fn wanted(self) -> &'static [u32] {
        const HOST: u32 = bits::HOST_VISIBLE | bits::HOST_COHERENT;
        match self {
            Self::Device | Self::Constant | Self::ReadOnly => &[bits::DEVICE_LOCAL, 0],
            Self::Upload => &[HOST | bits::DEVICE_LOCAL, HOST, 0],
            Self::ReadBack => &[HOST | bits::HOST_CACHED, HOST, 0],
        }
    }

    /// Returns the physical heap behind the class.
    fn physical(self, types: &[MemoryType]) -> Option<u8> {
        let find = |bits| types.iter().find(move |kind| kind.properties & bits == bits);
        self.wanted().iter().find_map(|&bits| find(bits)).map(|kind| kind.heap)
    }
}

/// Translates what wgpu and the driver under it told.
pub(crate) fn describe(
    info: &AdapterInfo,
    limits: &Limits,
    immediates: u64,
    memory: Option<&DriverMemory>,
) -> Caps {
    let device = DeviceInfo { uuid: memory.and_then(|memory| memory.uuid), ..who(info) };
    let heaps = HeapClass::ALL.map(|class| heap(class, info, limits, memory)).into();
    Caps::new(device, heaps)
        .max_blocks(memory.map_or(u64::from(u32::MAX), |memory| memory.max_blocks))
        .copy(CopyCaps { align: COPY_ALIGN, inside_block: InsideBlock::Forbidden })
        .constant(Some(constant(limits, immediates)))
        .shared(Some(shared(limits)))
}

/// Returns the identity of the device.
pub(crate) fn who(info: &AdapterInfo) -> DeviceInfo {
    let driver = [&*format!("{:?}", info.backend), &info.driver, &info.driver_info];
    let driver: Vec<_> = driver.into_iter().filter(|word| !word.is_empty()).collect();
    DeviceInfo { backend: "wgpu", name: info.name.clone(), driver: driver.join(" "), uuid: None }
}

fn heap(
    class: HeapClass,
    info: &AdapterInfo,
    limits: &Limits,
    memory: Option<&DriverMemory>,
) -> Heap {
    let largest = limits.max_buffer_size.min(LARGEST);
    let told = memory.and_then(|memory| {
        let physical = class.physical(&memory.types)?;
        memory.heaps.get(usize::from(physical)).map(|&size| (physical, size))
    });
    let (physical, size, known) = match told {
        Some((physical, size)) => (physical, size, "size from the driver"),
        None => (guess(class, info.device_type), largest, "size unknown: that of one block"),
    };
    Heap::new(class.kind(), size)
        .name(format!("{}; {known}", class.name()))
        .max_block(COPY_ALIGN.down(largest.min(size)))
        .align(BASE_ALIGN)
        .granule(COPY_ALIGN)
        .host(class.host())
        .kernels(class.kernels())
        .physical(physical)
}

/// Guesses the physical memory of a heap when the driver cannot be asked: only a discrete device has its own.
fn guess(class: HeapClass, device: DeviceType) -> u8 {
    let staging = matches!(class.kind(), HeapKind::Staging);
    u8::from(staging && matches!(device, DeviceType::DiscreteGpu | DeviceType::VirtualGpu))
}

/// Returns the constant limits: a bank is what one uniform binding can show.
fn constant(limits: &Limits, immediates: u64) -> ConstantCaps {
    let max_bind = limits.max_uniform_buffer_binding_size.min(LARGEST);
    ConstantCaps {
        bank: max_bind,
        align: offset_align(limits.min_uniform_buffer_offset_alignment),
        max_bind,
        push: immediates,
    }
}

/// wgpu tells the bytes of one group; the rest is what every desktop device has (32 banks of four bytes).
fn shared(limits: &Limits) -> SharedCaps {
    let per_group = u64::from(limits.max_compute_workgroup_storage_size);
    SharedCaps {
        per_group,
        per_group_opt_in: per_group,
        per_multiprocessor: per_group,
        banks: 32,
        bank_width: 4,
    }
}

/// Returns an offset alignment out of wgpu's limits, which are powers of two.
pub(crate) fn offset_align(limit: u32) -> Align {
    Align::new(u64::from(limit)).unwrap_or(BASE_ALIGN)
}

#[cfg(test)]
mod tests;

//! Peers on a real device: memory alone, and memory with a buffer created and bound.
use crate::device::Device;
use crate::measure::Peer;
use crate::workload::ALIGN;
use ash::vk;
use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme, AllocatorCreateDesc};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use omniheap_core::{Allocation, HeapKind, Manager, ManagerConfig, Request};
use omniheap_vulkan::Vulkan;
use vk_mem::Alloc;

const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

fn buffer_info(size: u64) -> vk::BufferCreateInfo<'static> {
    vk::BufferCreateInfo::default().size(size).usage(USAGE)
}

fn requirements(device: &Device, size: u64) -> vk::MemoryRequirements {
    vk::MemoryRequirements { size, alignment: ALIGN, memory_type_bits: 1 << device.memory_type }
}

/// VMA's allocator, through `vk-mem`.
pub struct Vma<'a> {
    allocator: vk_mem::Allocator,
    device: &'a Device,
}

impl<'a> Vma<'a> {
    pub fn new(device: &'a Device) -> Self {
        device.reset();
        let info =
            vk_mem::AllocatorCreateInfo::new(device.instance(), &device.counted, device.physical());
        // SAFETY: the handles belong together and outlive the allocator.
        let allocator = unsafe { vk_mem::Allocator::new(info) }.expect("an allocator");
        Self { allocator, device }
    }

    fn wanted() -> vk_mem::AllocationCreateInfo {
        let required_flags = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        vk_mem::AllocationCreateInfo { required_flags, ..Default::default() }
    }
}

impl Peer for Vma<'_> {
    type Held = vk_mem::Allocation;
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        let asked = requirements(self.device, size);
        // SAFETY: requirements that the device can meet.
        unsafe { self.allocator.allocate_memory(&asked, &Self::wanted()) }.ok()
    }
    fn free(&mut self, mut held: Self::Held) {
        // SAFETY: it came from `allocate`, and nothing uses it.
        unsafe { self.allocator.free_memory(&mut held) };
    }
    fn peak_reserved(&self) -> Option<u64> {
        Some(self.device.peak())
    }
}

/// VMA with a buffer for every allocation.
pub struct VmaBuffers<'a>(Vma<'a>);

impl<'a> VmaBuffers<'a> {
    pub fn new(device: &'a Device) -> Self {
        Self(Vma::new(device))
    }
}

impl Peer for VmaBuffers<'_> {
    type Held = (vk::Buffer, vk_mem::Allocation);
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        // SAFETY: a plain buffer of the device's own limits.
        unsafe { self.0.allocator.create_buffer(&buffer_info(size), &Vma::wanted()) }.ok()
    }
    fn free(&mut self, (buffer, mut held): Self::Held) {
        // SAFETY: both came from `allocate`, and nothing uses them.
        unsafe { self.0.allocator.destroy_buffer(buffer, &mut held) };
    }
    fn peak_reserved(&self) -> Option<u64> {
        self.0.peak_reserved()
    }
}

/// `gpu-allocator`.
pub struct GpuAllocator<'a> {
    allocator: gpu_allocator::vulkan::Allocator,
    device: &'a Device,
}

impl<'a> GpuAllocator<'a> {
    pub fn new(device: &'a Device) -> Self {
        device.reset();
        let allocator = gpu_allocator::vulkan::Allocator::new(&AllocatorCreateDesc {
            instance: device.instance().clone(),
            device: device.counted.clone(),
            physical_device: device.physical(),
            debug_settings: AllocatorDebugSettings::default(),
            buffer_device_address: false,
            allocation_sizes: AllocationSizes::default(),
        });
        Self { allocator: allocator.expect("an allocator"), device }
    }

    fn serve(
        &mut self,
        requirements: vk::MemoryRequirements,
    ) -> Option<gpu_allocator::vulkan::Allocation> {
        let wanted = AllocationCreateDesc {
            name: "",
            requirements,
            location: MemoryLocation::GpuOnly,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        self.allocator.allocate(&wanted).ok()
    }
}

impl Peer for GpuAllocator<'_> {
    type Held = gpu_allocator::vulkan::Allocation;
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        self.serve(requirements(self.device, size))
    }
    fn free(&mut self, held: Self::Held) {
        self.allocator.free(held).expect("live");
    }
    fn peak_reserved(&self) -> Option<u64> {
        Some(self.device.peak())
    }
}

/// `gpu-allocator` with a buffer for every allocation.
pub struct GpuAllocatorBuffers<'a>(GpuAllocator<'a>);

impl<'a> GpuAllocatorBuffers<'a> {
    pub fn new(device: &'a Device) -> Self {
        Self(GpuAllocator::new(device))
    }
}

impl Peer for GpuAllocatorBuffers<'_> {
    type Held = (vk::Buffer, gpu_allocator::vulkan::Allocation);
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        let device = &self.0.device.counted;
        // SAFETY: a plain buffer of the device's own limits.
        let buffer = unsafe { device.create_buffer(&buffer_info(size), None) }.ok()?;
        // SAFETY: created just above.
        let asked = unsafe { device.get_buffer_memory_requirements(buffer) };
        let held = self.0.serve(asked)?;
        // SAFETY: the allocation lives until `free`.
        let memory = unsafe { held.memory() };
        // SAFETY: a fresh buffer, and memory that meets its requirements.
        unsafe { self.0.device.counted.bind_buffer_memory(buffer, memory, held.offset()) }.ok()?;
        Some((buffer, held))
    }
    fn free(&mut self, (buffer, held): Self::Held) {
        // SAFETY: created in `allocate`, and nothing uses it.
        unsafe { self.0.device.counted.destroy_buffer(buffer, None) };
        self.0.free(held);
    }
    fn peak_reserved(&self) -> Option<u64> {
        self.0.peak_reserved()
    }
}

/// The manager over our Vulkan backend.
pub struct Ours<'a> {
    manager: Manager<Vulkan>,
    device: &'a Device,
}

impl<'a> Ours<'a> {
    pub fn new(device: &'a Device) -> Self {
        let backend = device.backend();
        device.reset();
        Self { manager: Manager::with_config(backend, ManagerConfig::default().plain()), device }
    }
}

impl Peer for Ours<'_> {
    type Held = Allocation<Vulkan>;
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        self.manager.allocate(&Request::new(size)).ok()
    }
    fn free(&mut self, held: Self::Held) {
        drop(held);
    }
    fn peak_reserved(&self) -> Option<u64> {
        Some(self.device.peak())
    }
}

/// The manager with a buffer for every allocation.
pub struct OurBuffers<'a>(Ours<'a>);

impl<'a> OurBuffers<'a> {
    pub fn new(device: &'a Device) -> Self {
        Self(Ours::new(device))
    }
}

impl Peer for OurBuffers<'_> {
    type Held = (vk::Buffer, Allocation<Vulkan>);
    fn allocate(&mut self, size: u64) -> Option<Self::Held> {
        let vulkan = self.0.manager.backend();
        // SAFETY: a plain buffer of the device's own limits.
        let buffer =
            unsafe { self.0.device.counted.create_buffer(&buffer_info(size), None) }.ok()?;
        // SAFETY: created just above.
        let needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Device) }.ok()?;
        let request = Request::new(needs.layout.size).align(needs.layout.align);
        let held = self.0.manager.allocate(&request).ok()?;
        let binding = held.binding();
        // SAFETY: a fresh buffer with its own needs; the allocation lives until `free`.
        unsafe { vulkan.bind_buffer(buffer, &needs, binding.block(), binding.span().offset) }
            .ok()?;
        drop(binding);
        Some((buffer, held))
    }
    fn free(&mut self, (buffer, held): Self::Held) {
        // SAFETY: created in `allocate`, and nothing uses it.
        unsafe { self.0.device.counted.destroy_buffer(buffer, None) };
        drop(held);
    }
    fn peak_reserved(&self) -> Option<u64> {
        self.0.peak_reserved()
    }
}

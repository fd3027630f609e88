//! Blocks over memory that this backend allocates itself: on Vulkan, a wgpu engine then chooses among all memory types.
#![expect(unsafe_code, reason = "makes native buffers for wgpu's hal")]
use crate::{
    Block, Wgpu,
    caps::HeapClass,
    hal::{self, DriverMemory, bits},
};
use ash::vk;
use omniheap_seam::{Align, Error, ErrorKind, Heap, HeapId, HeapKind, Result, Use};
use wgpu::hal::api::Vulkan;

/// Property bits of the memory types that are offered; others are protected, lazily backed or a vendor's own.
const PLAIN: u32 =
    bits::DEVICE_LOCAL | bits::HOST_VISIBLE | bits::HOST_COHERENT | bits::HOST_CACHED;

/// Alignment of blocks over our own memory. They start at its first byte, and images need no more.
pub(crate) const OWN_ALIGN: Align = Align::of(256 << 10);

impl Wgpu {
    /// Takes the memory of device and constant blocks straight from the driver, and offers every memory type as a heap
    /// of its own behind the usual ones.
    ///
    /// The usual heaps then are what they say: one block is one driver allocation in a known heap, outside of wgpu's own
    /// allocator, so budgets are exact and a trimmed block is really returned. The further heaps are used when a request
    /// names them, for example to keep buffers in host memory when the device is full. wgpu maps only what it allocated, so
    /// the upload and read-back heaps stay wgpu's.
    ///
    /// # Errors
    ///
    /// `Unsupported` where wgpu does not run on Vulkan; the driver's error.
    pub fn with_own_memory(mut self) -> Result<Self> {
        let memory = hal::memory(self.device()).ok_or(ErrorKind::Unsupported)?;
        let accepted = accepted(&self.native()?)?;
        let find = |class: HeapClass| match class {
            HeapClass::Upload | HeapClass::ReadBack => None,
            HeapClass::Device | HeapClass::Constant | HeapClass::ReadOnly => {
                memory_type(&memory, class, accepted)
            }
        };
        self.own = HeapClass::ALL.map(find).into();
        for (heap, _) in self.caps.heaps.iter_mut().zip(&self.own).filter(|(_, own)| own.is_some())
        {
            heap.align = OWN_ALIGN;
        }
        // Textures may now stand beside buffers.
        self.caps.neighbour_granularity = crate::caps::offset_align(memory.granularity);
        let most = self.caps.heaps[0].max_block;
        for (index, kind) in (0u32..).zip(&memory.types) {
            let size = memory.heaps.get(usize::from(kind.heap)).copied().unwrap_or(0);
            if accepted & (1 << index) != 0 && kind.properties & !PLAIN == 0 && size > 0 {
                self.own.push(Some(index));
                self.caps.heaps.push(heap(index, kind.properties, kind.heap, size, most));
            }
        }
        Ok(self)
    }

    /// Returns whether blocks lie in memory that this backend allocates itself.
    #[cfg(feature = "manager")]
    pub(crate) const fn has_own_memory(&self) -> bool {
        !self.own.is_empty()
    }

    /// Returns the native device.
    pub(crate) fn native(&self) -> Result<ash::Device> {
        // SAFETY: nothing is destroyed through the guard.
        let hal = unsafe { self.device().as_hal::<Vulkan>() }.ok_or(ErrorKind::Unsupported)?;
        Ok(hal.raw_device().clone())
    }

    /// Returns a block over memory of one type, zeroed as wgpu's own are.
    pub(crate) fn allocate_own(&self, heap: HeapId, memory_type: u32, size: u64) -> Result<Block> {
        let piece = Piece::allocate(self.native()?, memory_type, size)?;
        let (buffer, memory) = (piece.buffer, piece.memory);
        // SAFETY: made just above for this device, with all usages, of that size, with memory of its own; it lives until
        // `released` runs, and what it holds is cleared before anyone reads it.
        let block = unsafe { self.adopt(buffer, heap, size, move || drop(piece)) }?;
        let block = block.over(memory);
        self.driver.submit(|encoder| encoder.clear_buffer(block.buffer(), 0, None))?;
        Ok(block)
    }
}

/// A buffer and the memory bound to it; dropping it returns both.
struct Piece {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    device: ash::Device,
}

impl Piece {
    fn allocate(device: ash::Device, memory_type: u32, size: u64) -> Result<Self> {
        let buffer = create(&device, size)?;
        // From here on `drop` cleans up; a null memory is freed without effect.
        let mut piece = Self { buffer, memory: vk::DeviceMemory::null(), device };
        // SAFETY: the buffer is alive.
        let asked = unsafe { piece.device.get_buffer_memory_requirements(buffer) };
        if asked.memory_type_bits & (1 << memory_type) == 0 {
            return Err(ErrorKind::NoSuchHeap.into());
        }
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(asked.size)
            .memory_type_index(memory_type);
        // SAFETY: the type is one that the device has and the buffer takes.
        piece.memory = check(unsafe { piece.device.allocate_memory(&info, None) })?;
        // SAFETY: both were made above, for each other.
        check(unsafe { piece.device.bind_buffer_memory(buffer, piece.memory, 0) })?;
        Ok(piece)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: made by `allocate`, dropped once wgpu and the device are done with it.
        unsafe { self.device.destroy_buffer(self.buffer, None) };
        // SAFETY: as above; the only buffer over it is gone.
        unsafe { self.device.free_memory(self.memory, None) };
    }
}

fn create(device: &ash::Device, size: u64) -> Result<vk::Buffer> {
    use vk::BufferUsageFlags as U;
    let copies = U::TRANSFER_SRC | U::TRANSFER_DST;
    let shapes = U::VERTEX_BUFFER | U::INDEX_BUFFER | U::INDIRECT_BUFFER;
    let usage = copies | shapes | U::UNIFORM_BUFFER | U::STORAGE_BUFFER;
    let info = vk::BufferCreateInfo::default().size(size).usage(usage);
    // SAFETY: the device is alive as long as wgpu's, which the caller holds.
    check(unsafe { device.create_buffer(&info, None) })
}

/// Returns the memory types that such buffers take, as a bit set.
fn accepted(device: &ash::Device) -> Result<u32> {
    let buffer = create(device, 256)?;
    // SAFETY: made just above.
    let asked = unsafe { device.get_buffer_memory_requirements(buffer) };
    // SAFETY: as above, and nothing uses it.
    unsafe { device.destroy_buffer(buffer, None) };
    Ok(asked.memory_type_bits)
}

/// Returns the first memory type that suits a class, best first as the driver lists them.
fn memory_type(memory: &DriverMemory, class: HeapClass, accepted: u32) -> Option<u32> {
    let takes = |index: u32, properties: u32, wanted: u32| {
        accepted & (1 << index) != 0 && properties & wanted == wanted && properties & !PLAIN == 0
    };
    class.wanted().iter().find_map(|wanted| {
        let all = (0u32..).zip(&memory.types);
        let mut fitting = all.filter(|(index, kind)| takes(*index, kind.properties, *wanted));
        fitting.next().map(|(index, _)| index)
    })
}

fn heap(memory_type: u32, properties: u32, physical: u8, size: u64, most: u64) -> Heap {
    let local = properties & bits::DEVICE_LOCAL != 0;
    let place = if local { "device" } else { "host" };
    let window = properties & bits::HOST_VISIBLE != 0;
    let seen = if window { "host-visible" } else { "hidden from the host" };
    // Not visible to the host: wgpu cannot map what it did not allocate.
    Heap::new(if local { HeapKind::Device } else { HeapKind::Staging }, size)
        .name(format!("memory type {memory_type}: {place} memory, {seen}"))
        .max_block(crate::caps::COPY_ALIGN.down(most.min(size)))
        .align(OWN_ALIGN)
        .granule(crate::caps::COPY_ALIGN)
        .use_when(Use::OnRequest)
        .physical(physical)
}

pub(crate) fn check<T>(result: ash::prelude::VkResult<T>) -> Result<T> {
    result.map_err(|code| {
        let kind = match code {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_TOO_MANY_OBJECTS => {
                ErrorKind::OutOfDeviceMemory
            }
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => ErrorKind::OutOfHostMemory,
            vk::Result::ERROR_DEVICE_LOST => ErrorKind::DeviceLost,
            _ => ErrorKind::Driver,
        };
        Error::new(kind).with_native(i64::from(code.as_raw()))
    })
}

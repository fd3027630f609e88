//! Owners of native objects: each destroys what it holds, once, and keeps the device alive until then.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    caps::features::Feature,
    driver::{
        check,
        device::Device,
        error,
        hooks::{Hooks, MemoryEventKind, MemoryExtras},
    },
};
use ash::vk;
use core::{ptr::NonNull, sync::atomic::Ordering};
use omniheap_seam::{ErrorKind, Result};
use std::sync::Arc;

/// Returns the usages of a block's buffer.
pub(crate) fn usage(device: &Device) -> vk::BufferUsageFlags {
    use vk::BufferUsageFlags as U;
    let all = U::TRANSFER_SRC
        | U::TRANSFER_DST
        | U::STORAGE_BUFFER
        | U::UNIFORM_BUFFER
        | U::STORAGE_TEXEL_BUFFER
        | U::UNIFORM_TEXEL_BUFFER
        | U::VERTEX_BUFFER
        | U::INDEX_BUFFER
        | U::INDIRECT_BUFFER;
    match device.features.has(Feature::BufferDeviceAddress) {
        true => all | U::SHADER_DEVICE_ADDRESS,
        false => all,
    }
}

/// A buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) raw: vk::Buffer,
    device: Arc<Device>,
}

/// Kind of buffer: bound once, or sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of it, once.
    Plain,
    /// All of it, once, from memory that leaves or enters the process.
    Shared,
    /// Page by page.
    Sparse,
}

impl Buffer {
    /// Creates a buffer for a whole block.
    pub(crate) fn create(device: &Arc<Device>, size: u64, kind: Kind) -> Result<Self> {
        let mut info = vk::BufferCreateInfo::default().size(size).usage(usage(device));
        // Blocks are used by every timeline: concurrent sharing spares ownership transfers, and buffers lose nothing.
        if device.families.len() > 1 {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(&device.families);
        }
        let mut outside = vk::ExternalMemoryBufferCreateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        match kind {
            Kind::Plain => {}
            Kind::Shared => info = info.push_next(&mut outside),
            Kind::Sparse => {
                use vk::BufferCreateFlags as F;
                info = info.flags(F::SPARSE_BINDING | F::SPARSE_RESIDENCY);
            }
        }
        // SAFETY: the device is alive; sparse flags and fd sharing are used only where the features were found.
        let raw = check(unsafe { device.raw.create_buffer(&info, None) })?;
        Ok(Self { raw, device: Arc::clone(device) })
    }

    /// Returns the buffer's memory requirements.
    pub(crate) fn requirements(&self) -> vk::MemoryRequirements {
        // SAFETY: the buffer is alive as long as `self`.
        unsafe { self.device.raw.get_buffer_memory_requirements(self.raw) }
    }

    /// Binds the buffer to the start of `memory`, which it then must not outlive.
    pub(crate) fn bind(&self, memory: &Memory) -> Result<()> {
        // SAFETY: both are alive and of one device; the only caller binds a fresh buffer to memory that was allocated
        // from its requirements.
        check(unsafe { self.device.raw.bind_buffer_memory(self.raw, memory.raw, 0) })
    }

    /// Returns the device address, zero where addresses are not enabled.
    pub(crate) fn address(&self) -> u64 {
        if !self.device.features.has(Feature::BufferDeviceAddress) {
            return 0;
        }
        let info = vk::BufferDeviceAddressInfo::default().buffer(self.raw);
        match &self.device.address_khr {
            // SAFETY: the buffer is alive, was created for addresses, and is bound or sparse.
            Some(old) => unsafe { old.get_buffer_device_address(&info) },
            // SAFETY: as above.
            None => unsafe { self.device.raw.get_buffer_device_address(&info) },
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: created by `create`, destroyed once; whoever drops it knows that no work uses it (see `Block`).
        unsafe { self.device.raw.destroy_buffer(self.raw, None) };
    }
}

/// Parameters of a memory allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) size: u64,
    pub(crate) memory_type: u32,
    pub(crate) priority: Option<f32>,
    /// The one resource that the memory is for.
    pub(crate) dedicated: Option<vk::MemoryDedicatedAllocateInfo<'static>>,
    pub(crate) share: Share,
}

/// Sharing of memory: exported, imported, or neither.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// Stays in this process.
    No,
    /// Exportable as a descriptor.
    Export,
    /// Imported from this descriptor, which the driver owns after success.
    Import(i32),
}

/// A driver allocation, counted.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) raw: vk::DeviceMemory,
    pub(crate) size: u64,
    memory_type: u32,
    /// True if the device had its hooks when this memory was allocated. Older memory is freed without them.
    has_hooks: bool,
    device: Arc<Device>,
}

impl Memory {
    /// Queries the driver.
    ///
    /// # Errors
    ///
    /// `OutOfDeviceMemory` beyond [`Options::max_blocks`](crate::Options::max_blocks); the driver's error.
    pub(crate) fn allocate(device: &Arc<Device>, ask: Ask) -> Result<Self> {
        let most = device.most_live.load(Ordering::Relaxed);
        let count = |live: u64| (live < most).then_some(live + 1);
        if device.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_err() {
            return Err(error(vk::Result::ERROR_TOO_MANY_OBJECTS));
        }
        let (Ask { size, memory_type, .. }, hooks) = (ask, device.hooks.get());
        let allowed = hooks.map_or(Ok(()), |hooks| hooks.reserve(memory_type, size));
        let made = allowed.and_then(|()| {
            ask_driver(device, ask, hooks).inspect_err(|_| {
                if let Some(hooks) = hooks {
                    hooks.release(memory_type, size);
                }
            })
        });
        match made {
            Ok(raw) => {
                if let Some(hooks) = hooks {
                    hooks.tell(MemoryEventKind::Allocated, raw, memory_type, size);
                }
                let has_hooks = hooks.is_some();
                Ok(Self { raw, size, memory_type, has_hooks, device: Arc::clone(device) })
            }
            Err(why) => {
                device.live.fetch_sub(1, Ordering::Relaxed);
                Err(why)
            }
        }
    }

    /// Maps all of it. Called once: mapping twice is an error in the API.
    pub(crate) fn map(&self) -> Result<NonNull<u8>> {
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: alive as long as `self`, not mapped yet (callers keep the pointer), and of a visible type.
        let start = unsafe { self.device.raw.map_memory(self.raw, 0, vk::WHOLE_SIZE, flags) };
        NonNull::new(check(start)?.cast()).ok_or(ErrorKind::NotMappable.into())
    }

    /// Makes host writes visible to the device. Whole atoms of mapped memory.
    pub(crate) fn flush(&self, offset: u64, size: u64) -> Result<()> {
        let range = [self.range(offset, size)];
        // SAFETY: alive, mapped, and the caller keeps to whole atoms inside the memory.
        check(unsafe { self.device.raw.flush_mapped_memory_ranges(&range) })
    }

    /// Makes device writes visible to the host. Whole atoms of mapped memory.
    pub(crate) fn invalidate(&self, offset: u64, size: u64) -> Result<()> {
        let range = [self.range(offset, size)];
        // SAFETY: as for `flush`.
        check(unsafe { self.device.raw.invalidate_mapped_memory_ranges(&range) })
    }

    fn range(&self, offset: u64, size: u64) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default().memory(self.raw).offset(offset).size(size)
    }
}

fn ask_driver(device: &Device, ask: Ask, hooks: Option<&Hooks>) -> Result<vk::DeviceMemory> {
    let mut flags =
        vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
    let mut priority = vk::MemoryPriorityAllocateInfoEXT::default();
    let (mut dedicated, extras) = (ask.dedicated, MemoryExtras::current());
    let fd = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
    let told = hooks.map(|hooks| hooks.export_of(ask.memory_type)).unwrap_or_default();
    let kinds = if matches!(ask.share, Share::Export) { fd | told } else { told };
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(kinds);
    let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(fd);
    let mut info = vk::MemoryAllocateInfo::default()
        .allocation_size(ask.size)
        .memory_type_index(ask.memory_type);
    info.p_next = extras.chain();
    let image = ask.dedicated.is_some_and(|one| one.image != vk::Image::null());
    if device.features.has(Feature::BufferDeviceAddress) && !image {
        info = info.push_next(&mut flags);
    }
    let hints = device.features.has(Feature::MemoryPriority);
    let level = ask.priority.or(extras.priority);
    if let Some(level) = level.filter(|level| hints && !level.is_nan()) {
        priority = priority.priority(level.clamp(0.0, 1.0));
        info = info.push_next(&mut priority);
    }
    if let Some(dedicated) = &mut dedicated {
        info = info.push_next(dedicated);
    }
    if !kinds.is_empty() {
        info = info.push_next(&mut export);
    }
    if let Share::Import(descriptor) = ask.share {
        import = import.fd(descriptor);
        info = info.push_next(&mut import);
    }
    let callbacks = hooks.and_then(Hooks::for_driver);
    // SAFETY: the device is alive; size, type and chain were checked against what the device reported, and who chained more or gave
    // callbacks answers for those.
    check(unsafe { device.raw.allocate_memory(&info, callbacks) })
}

impl Drop for Memory {
    fn drop(&mut self) {
        let hooks = self.device.hooks.get().filter(|_| self.has_hooks);
        if let Some(hooks) = hooks {
            hooks.tell(MemoryEventKind::Freed, self.raw, self.memory_type, self.size);
        }
        let callbacks = hooks.and_then(Hooks::for_driver);
        // SAFETY: allocated by `allocate`, freed once, unmapped by this; whoever drops it knows that no work uses it. The callbacks are
        // those it was allocated with: `has_hooks` says whether the hooks were there, and once there they never change.
        unsafe { self.device.raw.free_memory(self.raw, callbacks) };
        if let Some(hooks) = hooks {
            hooks.release(self.memory_type, self.size);
        }
        self.device.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sharing capabilities of a block's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing(vk::ExternalMemoryFeatureFlags);

impl Sharing {
    /// Queries the driver, if descriptors are enabled.
    pub(crate) fn read(device: &Device) -> Self {
        if !device.features.has(Feature::ExternalMemoryFd) {
            return Self(vk::ExternalMemoryFeatureFlags::empty());
        }
        let info = vk::PhysicalDeviceExternalBufferInfo::default()
            .usage(usage(device))
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut answer = vk::ExternalBufferProperties::default();
        let (raw, instance) = (device.physical, &device.instance.raw);
        // SAFETY: the physical device is this instance's.
        unsafe {
            instance.get_physical_device_external_buffer_properties(raw, &info, &mut answer);
        }
        Self(answer.external_memory_properties.external_memory_features)
    }

    /// Returns whether blocks can leave and enter.
    pub(crate) fn works(self) -> bool {
        use vk::ExternalMemoryFeatureFlags as F;
        self.0.contains(F::EXPORTABLE | F::IMPORTABLE)
    }

    /// Returns the memory's one resource, where the driver insists on one.
    pub(crate) fn dedicated(
        self,
        buffer: vk::Buffer,
    ) -> Option<vk::MemoryDedicatedAllocateInfo<'static>> {
        match self.0.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY) {
            true => Some(vk::MemoryDedicatedAllocateInfo::default().buffer(buffer)),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::opened;
    use omniheap_seam::{Backend as _, lock};
    use std::sync::Mutex;

    #[test]
    fn memory_from_before_the_hooks_is_freed_without_them() {
        let Some(vulkan) = opened() else { return };
        let (heap, _) = vulkan.caps().heap_ids().next().expect("every device has memory");
        let make = || vulkan.allocate(heap, 4096).expect("4 KiB are free");
        let told = Arc::new(Mutex::new(Vec::new()));
        let (before, heard) = (make(), Arc::clone(&told));
        vulkan.set_hooks(Hooks::default().told(move |event| lock(&heard).push(event.kind)));
        let after = make();
        drop((before, after));
        assert_eq!(*lock(&told), [MemoryEventKind::Allocated, MemoryEventKind::Freed]);
    }
}

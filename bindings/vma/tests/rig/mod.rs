//! A Vulkan device of the test's own, and an allocator over it.
#![allow(dead_code, reason = "each test uses a part")]
use ash::vk;
use core::ffi::c_void;
use omniheap_vma::abi::*;
use omniheap_vma::*;

/// Calls a C function, or reads what one wrote.
macro_rules! c {
    ($call:expr) => {
        // SAFETY: everything that is passed is live and as long as is said, or null or stale where that is tested; a structure of zeroes
        // is null handles and pointers, and no flags.
        unsafe { $call }
    };
}

/// A device, with the validation layer where it is installed. Its messages count as failures.
pub(crate) struct Rig {
    _entry: ash::Entry,
    pub(crate) instance: ash::Instance,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) device: ash::Device,
    pub(crate) allocator: VmaAllocator,
    /// In a box: the messenger holds the address.
    #[expect(clippy::box_collection, reason = "the address must stay")]
    messages: Box<Vec<String>>,
    messenger: Option<(ash::ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
}

unsafe extern "system" fn note(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    message: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    to: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer's message, which lives during the call.
    let message = unsafe { &*message };
    // SAFETY: as above.
    let text = unsafe { message.message_as_c_str() };
    // SAFETY: the box of the rig, which outlives the messenger; the tests call from one thread.
    let to = unsafe { &mut *to.cast::<Vec<String>>() };
    to.extend(text.map(|text| text.to_string_lossy().into_owned()));
    vk::FALSE
}

/// An allocator's description before anything is said.
pub(crate) fn described() -> VmaAllocatorCreateInfo {
    // SAFETY: all bits zero are null handles and pointers, and no flags.
    unsafe { core::mem::zeroed() }
}

/// A request before anything is said.
pub(crate) fn wanted() -> VmaAllocationCreateInfo {
    // SAFETY: as above.
    unsafe { core::mem::zeroed() }
}

pub(crate) fn pool_info(memory_type_index: u32) -> VmaPoolCreateInfo {
    // SAFETY: as above.
    VmaPoolCreateInfo { memory_type_index, priority: 0.5, ..unsafe { core::mem::zeroed() } }
}

pub(crate) fn buffer_info(size: u64) -> vk::BufferCreateInfo<'static> {
    use vk::BufferUsageFlags as U;
    vk::BufferCreateInfo::default()
        .size(size)
        .usage(U::VERTEX_BUFFER | U::TRANSFER_DST | U::TRANSFER_SRC)
}

pub(crate) fn image_info(side: u32) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: side, height: side, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST)
}

impl Rig {
    /// A device and a plain allocator; none where there is no Vulkan.
    pub(crate) fn open() -> Option<Self> {
        Self::open_with(described(), None)
    }

    pub(crate) fn open_with(
        mut info: VmaAllocatorCreateInfo,
        program: Option<OmniheapVmaProgram>,
    ) -> Option<Self> {
        let mut rig = Self::bare()?;
        rig.fill(&mut info);
        let program = program.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: handles of the rig, which outlive the allocator.
        let made = unsafe { omniheap_vma_create_allocator(&info, program, &mut rig.allocator) };
        assert_eq!(made, vk::Result::SUCCESS);
        assert!(!rig.allocator.is_null());
        Some(rig)
    }

    pub(crate) fn fill(&self, info: &mut VmaAllocatorCreateInfo) {
        info.instance = self.instance.handle();
        info.physical_device = self.physical;
        info.device = self.device.handle();
        info.vulkan_api_version = vk::API_VERSION_1_3;
    }

    /// A device without an allocator.
    pub(crate) fn bare() -> Option<Self> {
        Self::bare_of(vk::API_VERSION_1_3)
    }

    /// A device of an instance of this version, without an allocator.
    pub(crate) fn bare_of(version: u32) -> Option<Self> {
        // SAFETY: the system's loader.
        let entry = unsafe { ash::Entry::load() }.ok()?;
        let app = vk::ApplicationInfo::default().api_version(version);
        // SAFETY: the entry is loaded.
        let layers = unsafe { entry.enumerate_instance_layer_properties() }.ok()?;
        let layer = c"VK_LAYER_KHRONOS_validation";
        let is_there = layers.iter().any(|one| one.layer_name_as_c_str() == Ok(layer));
        let (names, extensions) = ([layer.as_ptr()], [ash::ext::debug_utils::NAME.as_ptr()]);
        let mut info = vk::InstanceCreateInfo::default().application_info(&app);
        if is_there {
            info = info.enabled_layer_names(&names).enabled_extension_names(&extensions);
        }
        // SAFETY: names that the loader listed.
        let instance = unsafe { entry.create_instance(&info, None) }.ok()?;
        let mut messages = Box::new(Vec::new());
        let messenger = is_there.then(|| {
            let utils = ash::ext::debug_utils::Instance::new(&entry, &instance);
            let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
                .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
                .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
                .pfn_user_callback(Some(note))
                .user_data(core::ptr::from_mut(&mut *messages).cast());
            // SAFETY: the box outlives the messenger.
            let made = unsafe { utils.create_debug_utils_messenger(&info, None) };
            (utils, made.expect("a messenger"))
        });
        // SAFETY: the instance is alive.
        let physical = *unsafe { instance.enumerate_physical_devices() }.ok()?.first()?;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let mut address =
            vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(true);
        let mut info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        if version >= vk::API_VERSION_1_2 {
            info = info.push_next(&mut address);
        }
        // SAFETY: the device is the instance's, and every device that we test on has family 0 and the feature.
        let device = unsafe { instance.create_device(physical, &info, None) }.ok()?;
        let allocator = VmaAllocator::NULL;
        Some(Self { _entry: entry, instance, physical, device, allocator, messages, messenger })
    }

    /// Makes a buffer; the call must succeed.
    pub(crate) fn buffer(
        &self,
        size: u64,
        wanted: &VmaAllocationCreateInfo,
    ) -> (vk::Buffer, VmaAllocation) {
        let (result, buffer, allocation) = self.try_buffer(size, wanted);
        assert_eq!(result, vk::Result::SUCCESS);
        (buffer, allocation)
    }

    pub(crate) fn try_buffer(
        &self,
        size: u64,
        wanted: &VmaAllocationCreateInfo,
    ) -> (vk::Result, vk::Buffer, VmaAllocation) {
        let (mut buffer, mut allocation) = (vk::Buffer::null(), VmaAllocation::NULL);
        // SAFETY: live pointers.
        let result = unsafe {
            vmaCreateBuffer(
                self.allocator,
                &buffer_info(size),
                wanted,
                &mut buffer,
                &mut allocation,
                core::ptr::null_mut(),
            )
        };
        (result, buffer, allocation)
    }

    pub(crate) fn destroy(&self, (buffer, allocation): (vk::Buffer, VmaAllocation)) {
        // SAFETY: nothing uses them.
        unsafe { vmaDestroyBuffer(self.allocator, buffer, allocation) };
    }

    pub(crate) fn info(&self, allocation: VmaAllocation) -> VmaAllocationInfo {
        // SAFETY: a place for the answer.
        let mut info = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        unsafe { vmaGetAllocationInfo(self.allocator, allocation, &mut info) };
        info
    }

    pub(crate) fn budgets(&self) -> [VmaBudget; vk::MAX_MEMORY_HEAPS] {
        let mut budgets = [VmaBudget::default(); vk::MAX_MEMORY_HEAPS];
        // SAFETY: room for every heap.
        unsafe { vmaGetHeapBudgets(self.allocator, budgets.as_mut_ptr()) };
        budgets
    }

    pub(crate) fn total(&self) -> VmaDetailedStatistics {
        // SAFETY: all bits zero are a value.
        let mut stats: VmaTotalStatistics = unsafe { core::mem::zeroed() };
        // SAFETY: a place for the answer.
        unsafe { vmaCalculateStatistics(self.allocator, &mut stats) };
        stats.total
    }

    /// Returns the memory type that the host sees and that buffers may have.
    pub(crate) fn host_type(&self) -> u32 {
        let mut found = u32::MAX;
        let info = VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_CPU_ONLY, ..wanted() };
        // SAFETY: live pointers.
        let result = unsafe {
            vmaFindMemoryTypeIndexForBufferInfo(self.allocator, &buffer_info(64), &info, &mut found)
        };
        assert_eq!(result, vk::Result::SUCCESS);
        found
    }

    pub(crate) fn pool(&self, info: &VmaPoolCreateInfo) -> VmaPool {
        let mut pool = VmaPool::NULL;
        // SAFETY: live pointers.
        let made = unsafe { vmaCreatePool(self.allocator, info, &mut pool) };
        assert_eq!(made, vk::Result::SUCCESS);
        pool
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // SAFETY: nothing uses it; null is nothing.
        unsafe { vmaDestroyAllocator(self.allocator) };
        // SAFETY: its last user.
        unsafe { self.device.destroy_device(None) };
        if let Some((utils, messenger)) = self.messenger.take() {
            // SAFETY: as above.
            unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: as above.
        unsafe { self.instance.destroy_instance(None) };
        if !std::thread::panicking() {
            assert!(self.messages.is_empty(), "the validation layer: {:#?}", self.messages);
        }
    }
}

//! The engine's own instance, device and queue. omniheap only borrows them.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use core::error::Error;
use omniheap_core::{Manager, Point, TimelineId, Timelines};
use omniheap_vulkan::{Existing, Feature, Options, Vulkan, ash, ash::vk};

const MAIN: TimelineId = TimelineId::MAIN;

/// Everything that the engine opened.
pub(crate) struct Device {
    pub(crate) raw: ash::Device,
    pool: vk::CommandPool,
    queue: vk::Queue,
    family: u32,
    physical: vk::PhysicalDevice,
    enabled: Vec<Feature>,
    instance: ash::Instance,
    entry: ash::Entry,
}

/// Work that the device may still do.
pub(crate) struct Submitted {
    commands: vk::CommandBuffer,
    point: Point,
}

impl Device {
    /// Opens the first device that renders without render passes; `None` where there is none.
    pub(crate) fn open() -> Result<Option<Self>, Box<dyn Error>> {
        // SAFETY: the system's loader is trusted like any system library.
        let Ok(entry) = (unsafe { ash::Entry::load() }) else { return Ok(None) };
        let app = vk::ApplicationInfo::default()
            .application_name(c"vulkan_engine")
            .api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&app);
        // SAFETY: the description is complete.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: the instance is alive.
        let all = unsafe { instance.enumerate_physical_devices() }?;
        let found =
            all.into_iter().find_map(|physical| Some((physical, family(&instance, physical)?)));
        let Some((physical, family)) = found else {
            // SAFETY: nothing was made from it.
            unsafe { instance.destroy_instance(None) };
            return Ok(None);
        };
        let (raw, enabled) = create(&instance, physical, family)?;
        // SAFETY: `create` asked for this queue.
        let queue = unsafe { raw.get_device_queue(family, 0) };
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the family is the device's.
        let pool = unsafe { raw.create_command_pool(&info, None) }?;
        Ok(Some(Self { raw, pool, queue, family, physical, enabled, instance, entry }))
    }

    /// Lends the device to omniheap, which then manages memory on it.
    pub(crate) fn memory(&self) -> Result<Vulkan, Box<dyn Error>> {
        let existing = Existing {
            entry: self.entry.clone(),
            instance: self.instance.clone(),
            physical_device: self.physical,
            device: self.raw.clone(),
            queues: &[(self.family, self.queue)],
            enabled: &self.enabled,
        };
        // SAFETY: the handles belong together, `create` enabled these features, `main` drops the manager first, and the
        // queue is used only inside `with_queue`.
        Ok(unsafe { Vulkan::wrap(existing, Options::default()) }?)
    }

    /// Records commands and submits them on the main timeline.
    pub(crate) fn submit(
        &self,
        manager: &Manager<Vulkan>,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> Result<Submitted, Box<dyn Error>> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .command_buffer_count(1);
        // SAFETY: the pool is alive and used by one thread.
        let commands = unsafe { self.raw.allocate_command_buffers(&info) }?[0];
        // SAFETY: fresh.
        unsafe { self.raw.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()) }?;
        record(commands);
        // SAFETY: recording since the call above.
        unsafe { self.raw.end_command_buffer(commands) }?;
        let list = [commands];
        let batch = [vk::SubmitInfo::default().command_buffers(&list)];
        let vulkan = manager.backend();
        vulkan.with_queue(MAIN, |queue, _| {
            // SAFETY: recorded above; `with_queue` holds the queue for us alone.
            unsafe { self.raw.queue_submit(queue, &batch, vk::Fence::null()) }
        })??;
        let point = Point { timeline: MAIN, epoch: vulkan.mark(MAIN)? };
        Ok(Submitted { commands, point })
    }

    /// Waits for work and takes its commands back.
    pub(crate) fn finish(
        &self,
        manager: &Manager<Vulkan>,
        work: Submitted,
    ) -> Result<(), Box<dyn Error>> {
        manager.backend().wait(work.point)?;
        // SAFETY: the device has passed them.
        unsafe { self.raw.free_command_buffers(self.pool, &[work.commands]) };
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from it was dropped before, as `main` orders it; here and below.
        unsafe { self.raw.destroy_command_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { self.raw.destroy_device(None) };
        // SAFETY: as above.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// Returns a family that renders, on a device of version 1.3.
fn family(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Option<u32> {
    // SAFETY: the physical device is this instance's; here and below.
    let properties = unsafe { instance.get_physical_device_properties(physical) };
    if properties.api_version < vk::API_VERSION_1_3 {
        return None;
    }
    // SAFETY: as above.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let renders = |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::GRAPHICS);
    (0u32..).zip(&families).find(|(_, family)| renders(family)).map(|(index, _)| index)
}

/// Creates a device with what omniheap makes use of; returns it with the list for [`Existing::enabled`].
fn create(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    family: u32,
) -> Result<(ash::Device, Vec<Feature>), vk::Result> {
    // SAFETY: the physical device is this instance's.
    let known = unsafe { instance.enumerate_device_extension_properties(physical) }?;
    let has = |name| known.iter().any(|one| one.extension_name_as_c_str() == Ok(name));
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let mut newer = vk::PhysicalDeviceVulkan13Features::default().dynamic_rendering(true);
    let mut new = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .buffer_device_address(true);
    let mut priority = vk::PhysicalDeviceMemoryPriorityFeaturesEXT::default().memory_priority(true);
    let mut enabled = vec![Feature::TimelineSemaphore, Feature::BufferDeviceAddress];
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .push_next(&mut newer)
        .push_next(&mut new);
    let mut names = Vec::new();
    if has(ash::ext::memory_budget::NAME) {
        names.push(ash::ext::memory_budget::NAME.as_ptr());
        enabled.push(Feature::MemoryBudget);
    }
    if has(ash::ext::memory_priority::NAME) {
        names.push(ash::ext::memory_priority::NAME.as_ptr());
        enabled.push(Feature::MemoryPriority);
        info = info.push_next(&mut priority);
    }
    let info = info.enabled_extension_names(&names);
    // SAFETY: the family exists, version 1.3 demands the first features, and the extensions are there.
    let device = unsafe { instance.create_device(physical, &info, None) }?;
    Ok((device, enabled))
}

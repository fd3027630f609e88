//! The questions, asked of Vulkan through wgpu's hal.
#![expect(unsafe_code, reason = "reads plain properties through wgpu's hal")]
use super::{DriverMemory, HeapBudget, MemoryType};
use ash::{Instance, ext, vk};
use wgpu::hal::api::Vulkan;

/// Queries the driver; `None` if wgpu does not run on Vulkan.
pub(crate) fn memory(device: &wgpu::Device) -> Option<DriverMemory> {
    // SAFETY: nothing is destroyed through the guard; only properties are read below, while it lives.
    let hal = unsafe { device.as_hal::<Vulkan>() }?;
    let instance = hal.shared_instance().raw_instance();
    let physical = hal.raw_physical_device();
    // SAFETY: the device behind `hal` was made from this physical device of this instance, and keeps both alive.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    // SAFETY: as above.
    let properties = unsafe { instance.get_physical_device_properties(physical) };
    let version = hal.shared_instance().instance_api_version().min(properties.api_version);
    let types = memory.memory_types_as_slice().iter().map(|kind| MemoryType {
        properties: kind.property_flags.as_raw(),
        heap: u8::try_from(kind.heap_index).expect("Vulkan has at most 16 heaps"),
    });
    let extended = version >= vk::API_VERSION_1_1;
    Some(DriverMemory {
        heaps: memory.memory_heaps_as_slice().iter().map(|heap| heap.size).collect(),
        types: types.collect(),
        max_blocks: u64::from(properties.limits.max_memory_allocation_count),
        granularity: u32::try_from(properties.limits.buffer_image_granularity).unwrap_or(u32::MAX),
        uuid: extended.then(|| uuid(instance, physical)),
        tells_budget: extended && tells_budget(instance, physical),
    })
}

/// Queries the budget of a physical heap; only if [`memory`] reported that it is available.
pub(crate) fn budget(device: &wgpu::Device, heap: u8) -> Option<HeapBudget> {
    // SAFETY: as in `memory`.
    let hal = unsafe { device.as_hal::<Vulkan>() }?;
    let instance = hal.shared_instance().raw_instance();
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    let physical = hal.raw_physical_device();
    // SAFETY: version and extension were checked by `memory`; the rest as there.
    unsafe { instance.get_physical_device_memory_properties2(physical, &mut memory) };
    let heap = usize::from(heap);
    Some(HeapBudget { budget: *budget.heap_budget.get(heap)?, used: budget.heap_usage[heap] })
}

fn uuid(instance: &Instance, physical: vk::PhysicalDevice) -> [u8; 16] {
    let mut identity = vk::PhysicalDeviceIDProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut identity);
    // SAFETY: `memory` read both from one device, and checked the version.
    unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
    identity.device_uuid
}

fn tells_budget(instance: &Instance, physical: vk::PhysicalDevice) -> bool {
    // SAFETY: `memory` read both from one device.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) };
    let is_budget = |extension: &vk::ExtensionProperties| {
        extension.extension_name_as_c_str() == Ok(ext::memory_budget::NAME)
    };
    extensions.unwrap_or_default().iter().any(is_budget)
}

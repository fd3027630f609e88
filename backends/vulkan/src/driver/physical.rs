//! One physical device, asked everything once.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    caps::features::{Feature, Features},
    driver::{Instance, LEAST, Names, check},
};
use ash::{amd, ext, khr, vk};
use core::ffi::CStr;
use omniheap_seam::{DeviceInfo, ErrorKind, HeapBudget, Result};

/// Properties of a physical device.
pub(crate) struct Physical {
    pub(crate) raw: vk::PhysicalDevice,
    pub(crate) kind: vk::PhysicalDeviceType,
    pub(crate) info: DeviceInfo,
    pub(crate) api: u32,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) families: Vec<vk::QueueFamilyProperties>,
    pub(crate) max_allocation: u64,
    pub(crate) max_buffer: u64,
    pub(crate) alignments: Alignments,
    /// Supported features.
    pub(crate) features: Features,
    /// The extensions to enable for `features`.
    pub(crate) extensions: Vec<&'static CStr>,
}

/// Alignments that extensions ask for; 1 where the device has no such extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignments {
    /// Alignment of descriptor buffers.
    pub(crate) descriptors: u64,
    /// Alignment of shader binding tables.
    pub(crate) binding_table: u64,
}

impl Physical {
    /// Queries the driver.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a device below version 1.1 of an instance that is not; the driver's error.
    ///
    /// # Safety
    ///
    /// `raw` belongs to `instance`.
    pub(crate) unsafe fn read(instance: &Instance, raw: vk::PhysicalDevice) -> Result<Self> {
        // SAFETY: the caller promises that `raw` belongs to the live instance.
        let basic = unsafe { instance.raw.get_physical_device_properties(raw) };
        if basic.api_version < LEAST.min(instance.version) {
            return Err(ErrorKind::Unsupported.because("the device's Vulkan is older than 1.1"));
        }
        // SAFETY: as above.
        let known = check(unsafe { instance.raw.enumerate_device_extension_properties(raw) })?;
        let found = |name: &CStr| known.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
        let api = basic.api_version.min(instance.version).min(vk::API_VERSION_1_3);
        let details = details(instance, raw, (api, &basic), &found);
        // SAFETY: as above.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(raw) };
        // SAFETY: as above.
        let families = unsafe { instance.raw.get_physical_device_queue_family_properties(raw) };
        let features = features(instance, raw, api, &found, &families);
        let extensions = extensions(api, features, &found);
        let (max_allocation, max_buffer) = (details.max_allocation, details.max_buffer);
        let alignments = alignments(instance, raw, api, &found);
        let (info, limits, kind) = (details.info, basic.limits, basic.device_type);
        Ok(Self {
            raw,
            kind,
            info,
            api,
            limits,
            memory,
            families,
            max_allocation,
            max_buffer,
            alignments,
            features,
            extensions,
        })
    }
}

struct Details {
    info: DeviceInfo,
    max_allocation: u64,
    max_buffer: u64,
}

fn details(
    instance: &Instance,
    raw: vk::PhysicalDevice,
    (api, basic): (u32, &vk::PhysicalDeviceProperties),
    found: &impl Fn(&CStr) -> bool,
) -> Details {
    let mut ids = vk::PhysicalDeviceIDProperties::default();
    let mut third = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut fourth = vk::PhysicalDeviceMaintenance4Properties::default();
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut all =
        vk::PhysicalDeviceProperties2::default().push_next(&mut ids).push_next(&mut third);
    if api >= vk::API_VERSION_1_3 || found(khr::maintenance4::NAME) {
        all = all.push_next(&mut fourth);
    }
    if api >= vk::API_VERSION_1_2 || found(khr::driver_properties::NAME) {
        all = all.push_next(&mut driver);
    }
    ask_all(instance, raw, api, &mut all);
    let text = |name: Result<&CStr, _>| -> String {
        name.map_or_else(
            |_: core::ffi::FromBytesUntilNulError| String::new(),
            |name| name.to_string_lossy().into_owned(),
        )
    };
    let version = basic.driver_version;
    let spoken = text(driver.driver_name_as_c_str());
    let info = DeviceInfo {
        backend: "vulkan",
        name: text(basic.device_name_as_c_str()),
        driver: match spoken.is_empty() {
            true => format!("version {version:#x}"),
            false => format!("{spoken} {}", text(driver.driver_info_as_c_str())),
        },
        uuid: Some(ids.device_uuid).filter(|uuid| *uuid != [0; 16]),
    };
    Details {
        info,
        // Version 1.0 tells nothing: then only the driver knows.
        max_allocation: match third.max_memory_allocation_size {
            0 => u64::MAX,
            most => most,
        },
        max_buffer: if fourth.max_buffer_size == 0 { u64::MAX } else { fourth.max_buffer_size },
    }
}

/// Asks for properties with a chain; version 1.0 has no such call, and leaves all as it is.
fn ask_all(
    instance: &Instance,
    raw: vk::PhysicalDevice,
    api: u32,
    all: &mut vk::PhysicalDeviceProperties2<'_>,
) {
    if api >= LEAST {
        // SAFETY: `raw` belongs to the live instance (the caller of `read` promises it); the chain outlives the call and
        // holds only structures that the device's version or extensions define.
        unsafe { instance.raw.get_physical_device_properties2(raw, all) };
    }
}

fn alignments(
    instance: &Instance,
    raw: vk::PhysicalDevice,
    api: u32,
    found: &impl Fn(&CStr) -> bool,
) -> Alignments {
    let mut descriptors = vk::PhysicalDeviceDescriptorBufferPropertiesEXT::default();
    let mut tracing = vk::PhysicalDeviceRayTracingPipelinePropertiesKHR::default();
    let mut all = vk::PhysicalDeviceProperties2::default();
    if found(ext::descriptor_buffer::NAME) {
        all = all.push_next(&mut descriptors);
    }
    if found(khr::ray_tracing_pipeline::NAME) {
        all = all.push_next(&mut tracing);
    }
    ask_all(instance, raw, api, &mut all);
    Alignments {
        descriptors: descriptors.descriptor_buffer_offset_alignment.max(1),
        binding_table: tracing.shader_group_base_alignment.max(1).into(),
    }
}

fn features(
    instance: &Instance,
    raw: vk::PhysicalDevice,
    api: u32,
    found: &impl Fn(&CStr) -> bool,
    families: &[vk::QueueFamilyProperties],
) -> Features {
    // Nor does version 1.0 tell of features that are not its own.
    if api < LEAST {
        return Features::default();
    }
    let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
    let mut address = vk::PhysicalDeviceBufferDeviceAddressFeatures::default();
    let mut priority = vk::PhysicalDeviceMemoryPriorityFeaturesEXT::default();
    let mut coherent = vk::PhysicalDeviceCoherentMemoryFeaturesAMD::default();
    let mut protected = vk::PhysicalDeviceProtectedMemoryFeatures::default();
    let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut protected);
    let modern = api >= vk::API_VERSION_1_2;
    if modern || found(khr::timeline_semaphore::NAME) {
        all = all.push_next(&mut timeline);
    }
    if modern || found(khr::buffer_device_address::NAME) {
        all = all.push_next(&mut address);
    }
    if found(ext::memory_priority::NAME) {
        all = all.push_next(&mut priority);
    }
    if found(amd::device_coherent_memory::NAME) {
        all = all.push_next(&mut coherent);
    }
    // SAFETY: as in `ask_all`.
    unsafe { instance.raw.get_physical_device_features2(raw, &mut all) };
    let sparse = all.features.sparse_binding != 0
        && all.features.sparse_residency_buffer != 0
        && families.iter().any(|f| f.queue_flags.contains(vk::QueueFlags::SPARSE_BINDING));
    [
        (timeline.timeline_semaphore != 0, Feature::TimelineSemaphore),
        (address.buffer_device_address != 0, Feature::BufferDeviceAddress),
        (sparse, Feature::SparseBuffers),
        (found(ext::memory_budget::NAME), Feature::MemoryBudget),
        (priority.memory_priority != 0, Feature::MemoryPriority),
        (found(khr::external_memory_fd::NAME), Feature::ExternalMemoryFd),
        (coherent.device_coherent_memory != 0, Feature::DeviceCoherentMemory),
        (instance.names == Names::Shown, Feature::DebugUtils),
        (protected.protected_memory != 0, Feature::ProtectedMemory),
    ]
    .into_iter()
    .filter_map(|(present, feature)| present.then_some(feature))
    .collect()
}

fn extensions(api: u32, features: Features, found: &impl Fn(&CStr) -> bool) -> Vec<&'static CStr> {
    let old = api < vk::API_VERSION_1_2;
    [
        (old && features.has(Feature::TimelineSemaphore), khr::timeline_semaphore::NAME),
        (old && features.has(Feature::BufferDeviceAddress), khr::buffer_device_address::NAME),
        (features.has(Feature::MemoryBudget), ext::memory_budget::NAME),
        (features.has(Feature::MemoryPriority), ext::memory_priority::NAME),
        (features.has(Feature::ExternalMemoryFd), khr::external_memory_fd::NAME),
        (features.has(Feature::DeviceCoherentMemory), amd::device_coherent_memory::NAME),
        // The specification demands it wherever it is offered.
        (found(khr::portability_subset::NAME), khr::portability_subset::NAME),
    ]
    .into_iter()
    .filter_map(|(wanted, name)| wanted.then_some(name))
    .collect()
}

/// Returns the driver's current budget of every physical heap, by one call.
///
/// # Safety
///
/// `raw` belongs to `instance` and has `VK_EXT_memory_budget`.
pub(crate) unsafe fn budgets(
    instance: &Instance,
    raw: vk::PhysicalDevice,
) -> [HeapBudget; vk::MAX_MEMORY_HEAPS] {
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    // SAFETY: the caller promises both conditions; the chain outlives the call.
    unsafe { instance.raw.get_physical_device_memory_properties2(raw, &mut all) };
    core::array::from_fn(|heap| HeapBudget {
        budget: budget.heap_budget[heap],
        used: budget.heap_usage[heap],
    })
}

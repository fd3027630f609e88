//! Devices that the caller owns.
#![expect(unsafe_code, reason = "takes over the caller's handles")]
use crate::handle::{Holder, OmniheapManager};
use crate::open::{OmniheapConfig, publish, settings};
use crate::sized::{grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, call, check};
use ash::vk::{self, Handle as _};
use core::ffi::c_void;
use omniheap::cuda::Cuda;
use omniheap::hip::{Hip, hipStream_t};
use omniheap::vulkan::{Bare, Existing, Feature, Options, Vulkan};

/// A queue of a Vulkan device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapVulkanQueue {
    /// The `VkQueue`.
    pub queue: *mut c_void,
    /// Its family.
    pub family: u32,
}

/// A Vulkan device that the caller owns. Start from `omniheap_vulkan_device_default`. The handles belong together and outlive the manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapVulkanDevice {
    /// Bytes of this struct, which `omniheap_vulkan_device_default` sets.
    pub struct_size: usize,
    /// `vkGetInstanceProcAddr`.
    pub get_instance_proc_addr: *const c_void,
    /// The `VkInstance`, of version 1.1 or later.
    pub instance: *mut c_void,
    /// The `VkPhysicalDevice`.
    pub physical_device: *mut c_void,
    /// The `VkDevice`.
    pub device: *mut c_void,
    /// Queues; the first is the main timeline's. While the manager lives, they are used only inside
    /// `omniheap_vulkan_with_queue`.
    pub queues: *const OmniheapVulkanQueue,
    /// Number of queues.
    pub queue_count: u32,
    /// Features that were enabled when the device was created: `OMNIHEAP_VULKAN_…`, added up.
    pub enabled: u32,
    /// Most frames under way on queues that are not in `queues`. Above zero, call `omniheap_vulkan_end_frame` once a frame.
    pub frames_in_flight: u32,
}

/// No handles yet; C has it as an inline function.
#[must_use]
pub fn omniheap_vulkan_device_default() -> OmniheapVulkanDevice {
    OmniheapVulkanDevice {
        struct_size: size_of::<OmniheapVulkanDevice>(),
        get_instance_proc_addr: core::ptr::null(),
        instance: core::ptr::null_mut(),
        physical_device: core::ptr::null_mut(),
        device: core::ptr::null_mut(),
        queues: core::ptr::null(),
        queue_count: 0,
        enabled: 0,
        frames_in_flight: 0,
    }
}

grows!(OmniheapVulkanDevice to enabled: "device" from "omniheap_vulkan_device_default");

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_vulkan_device_default` is the short way.
///
/// # Safety
///
/// `device` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_device_init(
    device: *mut OmniheapVulkanDevice,
    struct_size: usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(device, struct_size, &omniheap_vulkan_device_default()) }
}

/// `timelineSemaphore` was enabled.
pub const OMNIHEAP_VULKAN_TIMELINE_SEMAPHORE: u32 = 1;
/// `bufferDeviceAddress` was enabled.
pub const OMNIHEAP_VULKAN_BUFFER_DEVICE_ADDRESS: u32 = 2;
/// `sparseBinding` and `sparseResidencyBuffer` were enabled.
pub const OMNIHEAP_VULKAN_SPARSE_BUFFERS: u32 = 4;
/// `VK_EXT_memory_budget` was enabled.
pub const OMNIHEAP_VULKAN_MEMORY_BUDGET: u32 = 8;
/// `VK_EXT_memory_priority` was enabled.
pub const OMNIHEAP_VULKAN_MEMORY_PRIORITY: u32 = 16;

const FEATURES: [(u32, Feature); 5] = [
    (OMNIHEAP_VULKAN_TIMELINE_SEMAPHORE, Feature::TimelineSemaphore),
    (OMNIHEAP_VULKAN_BUFFER_DEVICE_ADDRESS, Feature::BufferDeviceAddress),
    (OMNIHEAP_VULKAN_SPARSE_BUFFERS, Feature::SparseBuffers),
    (OMNIHEAP_VULKAN_MEMORY_BUDGET, Feature::MemoryBudget),
    (OMNIHEAP_VULKAN_MEMORY_PRIORITY, Feature::MemoryPriority),
];

/// Manages memory in a CUDA context that the caller owns, with a stream as main timeline, or one of its own.
///
/// # Safety
///
/// `context` is null or a live `CUcontext`, `stream` null or a live `CUstream` of it; both outlive the manager. The rest as
/// for `omniheap_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_wrap_cuda(
    context: *mut c_void,
    stream: *mut c_void,
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
) -> OmniheapStatus {
    call(|| {
        if context.is_null() {
            return Err(Failure::null("context"));
        }
        // SAFETY: the caller's promise.
        let settings = unsafe { settings(config) }?;
        let stream = (!stream.is_null()).then_some(stream.cast());
        // SAFETY: as above.
        let backend = unsafe { Cuda::wrap(context.cast(), stream, omniheap::cuda::Config::new()) }?;
        // SAFETY: as above.
        unsafe { publish(|| Holder::cuda(backend, settings), manager) }
    })
}

/// Manages memory of a HIP device with the caller's stream as main timeline; null is the default stream.
///
/// # Safety
///
/// `stream` is null or a live `hipStream_t` of the device that outlives the manager. The rest as for `omniheap_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_wrap_hip(
    ordinal: u32,
    stream: *mut c_void,
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let settings = unsafe { settings(config) }?;
        let stream = hipStream_t(stream);
        // SAFETY: as above.
        let backend = unsafe { Hip::wrap(ordinal, stream, omniheap::hip::Config::new()) }?;
        // SAFETY: as above.
        unsafe { publish(|| Holder::hip(backend, settings), manager) }
    })
}

/// Manages memory of a Vulkan device that the caller owns. `OMNIHEAP_LIMIT` knows it by its place in the instance's list, and
/// `OMNIHEAP_ARBITER` as device 0.
///
/// # Safety
///
/// `device` is null or points to a description that holds. The rest as for `omniheap_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_wrap_vulkan(
    device: *const OmniheapVulkanDevice,
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { wrap_vulkan(device, config, manager, adopt) }
}

/// Manages memory of a Vulkan device that the caller owns, without any of its queues: for engines and layers that hand on instance,
/// physical device and device alone. `device.queues` is null and `device.queue_count` zero.
///
/// Memory is allocated, mapped, counted and limited; bind resources with `omniheap_vulkan_bind_buffer` and `…_bind_image`, or at what
/// `omniheap_vulkan_place` says. There are no transfers, timelines, kernels or pages: memory that the host does not see is not written or
/// read, and nothing moves. Free what the device has finished with. Of `device.enabled`, `OMNIHEAP_VULKAN_BUFFER_DEVICE_ADDRESS` and
/// `OMNIHEAP_VULKAN_MEMORY_PRIORITY` matter; the driver's budget is read where there is one.
///
/// # Safety
///
/// As for `omniheap_wrap_vulkan`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_wrap_vulkan_memory(
    device: *const OmniheapVulkanDevice,
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { wrap_vulkan(device, config, manager, adopt_memory) }
}

/// Opens a manager over what `adopt` makes of a description.
///
/// # Safety
///
/// As for `omniheap_wrap_vulkan`; `adopt` asks no more than that the description holds.
unsafe fn wrap_vulkan(
    device: *const OmniheapVulkanDevice,
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
    adopt: unsafe fn(&OmniheapVulkanDevice) -> Result<Vulkan, Failure>,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { read_sized(device, omniheap_vulkan_device_default()) }?;
        // SAFETY: as above.
        let settings = unsafe { settings(config) }?;
        // SAFETY: as above.
        let backend = unsafe { adopt(&device) }?;
        // SAFETY: as above.
        unsafe { publish(|| Holder::vulkan(backend, 0, settings), manager) }
    })
}

/// # Safety
///
/// The description holds.
unsafe fn adopt(described: &OmniheapVulkanDevice) -> Result<Vulkan, Failure> {
    check_described(described)?;
    check(described.queues, "device.queues")?;
    if described.queue_count == 0 {
        let message = "device.queue_count is zero; pass one queue at least, or call omniheap_wrap_vulkan_memory";
        return Err(Failure::invalid(message));
    }
    // SAFETY: the caller promises `queue_count` queues.
    let queues =
        unsafe { core::slice::from_raw_parts(described.queues, described.queue_count as usize) };
    if let Some(at) = queues.iter().position(|queue| queue.queue.is_null()) {
        return Err(Failure::null(&format!("device.queues[{at}].queue")));
    }
    let queues: Vec<_> = queues
        .iter()
        .map(|queue| (queue.family, vk::Queue::from_raw(queue.queue.addr() as u64)))
        .collect();
    // SAFETY: as above, and no handle is null.
    let (entry, instance, device) = unsafe { load(described) };
    let physical_device = vk::PhysicalDevice::from_raw(described.physical_device.addr() as u64);
    let enabled = enabled(described);
    let existing =
        Existing { entry, instance, physical_device, device, queues: &queues, enabled: &enabled };
    // SAFETY: the caller's promise.
    Ok(unsafe { Vulkan::wrap(existing, options(described)) }?)
}

/// # Safety
///
/// The description holds.
unsafe fn adopt_memory(described: &OmniheapVulkanDevice) -> Result<Vulkan, Failure> {
    check_described(described)?;
    if !described.queues.is_null() || described.queue_count != 0 {
        let message = "device.queues is not used without transfers; leave it null and device.queue_count zero, \
                       or call omniheap_wrap_vulkan";
        return Err(Failure::invalid(message));
    }
    // SAFETY: the caller's promise, and no handle is null.
    let (_, instance, device) = unsafe { load(described) };
    let physical_device = vk::PhysicalDevice::from_raw(described.physical_device.addr() as u64);
    let bare = Bare { instance, physical_device, device, enabled: &enabled(described) };
    // SAFETY: the caller's promise.
    Ok(unsafe { Vulkan::wrap_memory(bare, options(described)) }?)
}

fn options(described: &OmniheapVulkanDevice) -> Options {
    Options::default().frames_in_flight(described.frames_in_flight)
}

/// Refuses null handles, and features that are none.
fn check_described(described: &OmniheapVulkanDevice) -> Result<(), Failure> {
    let handles = [
        (described.get_instance_proc_addr, "device.get_instance_proc_addr"),
        (described.instance.cast_const(), "device.instance"),
        (described.physical_device.cast_const(), "device.physical_device"),
        (described.device.cast_const(), "device.device"),
    ];
    if let Some((_, name)) = handles.iter().find(|(handle, _)| handle.is_null()) {
        return Err(Failure::null(name));
    }
    match FEATURES.iter().fold(described.enabled, |rest, (bit, _)| rest & !bit) {
        0 => Ok(()),
        rest => {
            let message = format!(
                "device.enabled has bits that mean nothing: {rest:#x}; add up OMNIHEAP_VULKAN_… constants"
            );
            Err(Failure::invalid(message))
        }
    }
}

fn enabled(described: &OmniheapVulkanDevice) -> Vec<Feature> {
    let enabled = FEATURES.iter().filter(|(bit, _)| described.enabled & bit != 0);
    enabled.map(|(_, feature)| *feature).collect()
}

/// Loads the functions of the caller's instance and device.
///
/// # Safety
///
/// The description holds, and none of its handles is null.
unsafe fn load(described: &OmniheapVulkanDevice) -> (ash::Entry, ash::Instance, ash::Device) {
    // SAFETY: the caller promises the function; it is not null.
    let first = unsafe {
        core::mem::transmute::<*const c_void, vk::PFN_vkGetInstanceProcAddr>(
            described.get_instance_proc_addr,
        )
    };
    let functions = ash::StaticFn { get_instance_proc_addr: first };
    // SAFETY: as above.
    let entry = unsafe { ash::Entry::from_static_fn(functions) };
    let instance = vk::Instance::from_raw(described.instance.addr() as u64);
    // SAFETY: the caller promises a live instance of this loader.
    let instance = unsafe { ash::Instance::load(entry.static_fn(), instance) };
    let device = vk::Device::from_raw(described.device.addr() as u64);
    // SAFETY: the caller promises a live device of this instance.
    let device = unsafe { ash::Device::load(instance.fp_v1_0(), device) };
    (entry, instance, device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_the_feature_that_its_constant_names() {
        let of = |bits| {
            enabled(&OmniheapVulkanDevice { enabled: bits, ..omniheap_vulkan_device_default() })
        };
        assert_eq!(of(omniheap_vulkan_device_default().enabled), []);
        for (bit, feature) in [
            (OMNIHEAP_VULKAN_TIMELINE_SEMAPHORE, Feature::TimelineSemaphore),
            (OMNIHEAP_VULKAN_BUFFER_DEVICE_ADDRESS, Feature::BufferDeviceAddress),
            (OMNIHEAP_VULKAN_SPARSE_BUFFERS, Feature::SparseBuffers),
            (OMNIHEAP_VULKAN_MEMORY_BUDGET, Feature::MemoryBudget),
            (OMNIHEAP_VULKAN_MEMORY_PRIORITY, Feature::MemoryPriority),
        ] {
            assert_eq!(of(bit), [feature]);
        }
    }
}

//! A Vulkan layer that counts what `vkAllocateMemory` gives, and refuses beyond `OMNIHEAP_LAYER_LIMIT` bytes.
//!
//! The layer makes a device small for a program whose allocator is not ours to limit. Load it with `VK_LAYER_PATH` (the
//! folder of its manifest) and `VK_INSTANCE_LAYERS=VK_LAYER_OMNIHEAP_limit`. When a device is destroyed, it writes the
//! peak to the standard error.
//!
//! With `OMNIHEAP_LAYER_SWAP` it also swaps the offsets of staging buffers, as an allocator with a bug might: see [`swap`].
#![expect(unsafe_code, reason = "is called by the Vulkan loader, and calls the driver")]
mod swap;

use ash::vk;
use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Struct with which the loader and a layer agree on an interface; the layouts below are those of its header
/// `vk_layer.h`.
#[repr(C)]
pub struct Negotiation {
    kind: u32,
    next: *mut c_void,
    version: u32,
    get_instance: Option<vk::PFN_vkGetInstanceProcAddr>,
    get_device: Option<vk::PFN_vkGetDeviceProcAddr>,
    get_physical_device: Option<vk::PFN_vkGetInstanceProcAddr>,
}

/// The functions of the layer below.
#[repr(C)]
struct Link {
    next: *mut Link,
    get_instance: vk::PFN_vkGetInstanceProcAddr,
    /// `vkGetDeviceProcAddr` for devices; something else for instances.
    get_device: vk::PFN_vkGetDeviceProcAddr,
}

/// An element of the chain at `pNext`; the loader puts one with the links there.
#[repr(C)]
struct Chained {
    kind: vk::StructureType,
    next: *const Chained,
    function: u32,
    link: *mut Link,
}

const LINK: u32 = 0;

/// The functions of one device that this layer calls.
#[derive(Clone, Copy)]
struct Below {
    get: vk::PFN_vkGetDeviceProcAddr,
    allocate: vk::PFN_vkAllocateMemory,
    free: vk::PFN_vkFreeMemory,
    destroy: vk::PFN_vkDestroyDevice,
    swap: swap::Below,
}

#[derive(Default)]
struct State {
    get_instance: Option<vk::PFN_vkGetInstanceProcAddr>,
    devices: HashMap<vk::Device, Below>,
    sizes: HashMap<vk::DeviceMemory, u64>,
    held: u64,
    peak: u64,
    staging: swap::Staging,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
static LIMIT: LazyLock<u64> = LazyLock::new(|| {
    let told = std::env::var("OMNIHEAP_LAYER_LIMIT").ok();
    told.map_or(u64::MAX, |limit| limit.parse().expect("OMNIHEAP_LAYER_LIMIT is a number of bytes"))
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
///
/// The loader calls it with its own struct.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn negotiate(told: *mut Negotiation) -> vk::Result {
    // SAFETY: the loader's promise.
    let told = unsafe { &mut *told };
    told.version = told.version.min(2);
    told.get_instance = Some(get_instance_proc_addr);
    told.get_device = Some(get_device_proc_addr);
    told.get_physical_device = None;
    vk::Result::SUCCESS
}

/// A function of this layer, as the loader hands it on.
macro_rules! function {
    ($name:ident: $kind:ty) => {{
        let function: $kind = $name;
        // SAFETY: callers know the type of a function by its name.
        Some(unsafe { transmute::<$kind, unsafe extern "system" fn()>(function) })
    }};
}
use function;

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"vkGetInstanceProcAddr" => {
            function!(get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr)
        }
        b"vkCreateInstance" => function!(create_instance: vk::PFN_vkCreateInstance),
        b"vkCreateDevice" => function!(create_device: vk::PFN_vkCreateDevice),
        b"vkGetDeviceProcAddr" => function!(get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr),
        bytes => own(bytes).or_else(|| {
            let next = state().get_instance?;
            // SAFETY: as above, handed on to the layer below.
            unsafe { next(instance, name) }
        }),
    }
}

/// Returns this layer's own function of a device.
fn own(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkAllocateMemory" => function!(allocate_memory: vk::PFN_vkAllocateMemory),
        b"vkFreeMemory" => function!(free_memory: vk::PFN_vkFreeMemory),
        b"vkDestroyDevice" => function!(destroy_device: vk::PFN_vkDestroyDevice),
        _ if *swap::IS_ON => swap::own(name),
        _ => None,
    }
}

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    own(bytes).or_else(|| {
        let below = state().devices.get(&device).copied()?;
        // SAFETY: as above, handed on to the layer below.
        unsafe { (below.get)(device, name) }
    })
}

/// Finds the links of the layers below, and moves the chain on by one: the next layer finds its own.
///
/// # Safety
///
/// `first` is the `pNext` that the loader gave.
unsafe fn link(first: *const c_void, kind: vk::StructureType) -> Option<Link> {
    let mut at = first.cast::<Chained>().cast_mut();
    // SAFETY: a chain of structs that begin with their type and the next one.
    while let Some(chained) = unsafe { at.as_mut() } {
        if chained.kind == kind && chained.function == LINK {
            // SAFETY: the loader's link is there.
            let found = unsafe { chained.link.read() };
            chained.link = found.next;
            return Some(found);
        }
        at = chained.next.cast_mut();
    }
    None
}

unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let first = unsafe { (*info).p_next };
    // SAFETY: as above.
    let found = unsafe { link(first, vk::StructureType::LOADER_INSTANCE_CREATE_INFO) };
    let Some(below) = found else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    // SAFETY: a function of the layer below, by its name.
    let create =
        unsafe { (below.get_instance)(vk::Instance::null(), c"vkCreateInstance".as_ptr()) };
    let Some(create) = create else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    state().get_instance = Some(below.get_instance);
    // SAFETY: the type that this name has.
    let create: vk::PFN_vkCreateInstance = unsafe { transmute(create) };
    // SAFETY: handed on as it came.
    unsafe { create(info, callbacks, instance) }
}

unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let first = unsafe { (*info).p_next };
    // SAFETY: as above.
    let found = unsafe { link(first, vk::StructureType::LOADER_DEVICE_CREATE_INFO) };
    let Some(below) = found else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    // SAFETY: a function of the layer below, by its name.
    let create = unsafe { (below.get_instance)(vk::Instance::null(), c"vkCreateDevice".as_ptr()) };
    let Some(create) = create else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    // SAFETY: the type that this name has.
    let create: vk::PFN_vkCreateDevice = unsafe { transmute(create) };
    // SAFETY: handed on as it came.
    let made = unsafe { create(physical, info, callbacks, device) };
    if made == vk::Result::SUCCESS {
        // SAFETY: written by the successful call.
        let device = unsafe { *device };
        // SAFETY: made just above, by that layer.
        let functions = unsafe { functions(device, below.get_device) };
        state().devices.extend(functions.map(|functions| (device, functions)));
    }
    made
}

/// # Safety
///
/// `get` is the device's.
unsafe fn functions(device: vk::Device, get: vk::PFN_vkGetDeviceProcAddr) -> Option<Below> {
    // SAFETY: the caller's promise.
    let find = &|name: &CStr| unsafe { get(device, name.as_ptr()) };
    let (allocate, free) = (find(c"vkAllocateMemory")?, find(c"vkFreeMemory")?);
    let destroy = find(c"vkDestroyDevice")?;
    // SAFETY: the type that this name has.
    let allocate: vk::PFN_vkAllocateMemory = unsafe { transmute(allocate) };
    // SAFETY: as above.
    let free: vk::PFN_vkFreeMemory = unsafe { transmute(free) };
    // SAFETY: as above.
    let destroy: vk::PFN_vkDestroyDevice = unsafe { transmute(destroy) };
    // SAFETY: the caller's promise.
    let swap = unsafe { swap::functions(find) }?;
    Some(Below { get, allocate, free, destroy, swap })
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let size = unsafe { (*info).allocation_size };
    let mut state = state();
    let Some(below) = state.devices.get(&device).copied() else {
        return vk::Result::ERROR_DEVICE_LOST;
    };
    if state.held.saturating_add(size) > *LIMIT {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    }
    // SAFETY: handed on as it came.
    let made = unsafe { (below.allocate)(device, info, callbacks, memory) };
    if made == vk::Result::SUCCESS {
        // SAFETY: written by the successful call.
        let memory = unsafe { *memory };
        state.sizes.insert(memory, size);
        state.held += size;
        state.peak = state.peak.max(state.held);
    }
    made
}

unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    let mut state = state();
    let Some(below) = state.devices.get(&device).copied() else { return };
    let size = state.sizes.remove(&memory).unwrap_or(0);
    state.held -= size;
    // SAFETY: handed on as it came.
    unsafe { (below.free)(device, memory, callbacks) };
}

unsafe extern "system" fn destroy_device(
    device: vk::Device,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    let mut state = state();
    let below = state.devices.remove(&device);
    eprintln!(
        "limit layer: {} bytes at peak, {} memory objects left",
        state.peak,
        state.sizes.len()
    );
    if *swap::IS_ON {
        eprintln!("limit layer: {} offsets swapped", state.staging.swapped());
    }
    drop(state);
    if let Some(below) = below {
        // SAFETY: handed on as it came.
        unsafe { (below.destroy)(device, callbacks) };
    }
}

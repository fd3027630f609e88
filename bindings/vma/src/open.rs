//! The program's device: its functions, by the program's pointers or by name, and the engine over it.
#![expect(unsafe_code, reason = "asks the loader for functions by name")]
use crate::abi::{
    OmniheapVmaFunctions, OmniheapVmaProgram, VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT,
    VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT, VMA_ALLOCATOR_CREATE_EXT_MEMORY_PRIORITY_BIT,
    VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE4_BIT, VmaAllocatorCreateInfo,
};
use crate::call::Refused;
use ash::vk;
use core::ffi::{CStr, c_void};
use core::ptr;
use omniheap_vulkan::{Bare, Feature, Options, Vulkan};
use std::ffi::CString;

/// A device of the program, ready for use.
pub(crate) struct Opened {
    pub(crate) vulkan: Vulkan,
    pub(crate) properties: vk::PhysicalDeviceProperties,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) newer: Newer,
    /// The loader, where the library had to open it.
    pub(crate) loader: Option<ash::Entry>,
}

/// Functions beyond Vulkan 1.0 that the device has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newer {
    /// Requirements can be asked for with a chain, and memory tied to its resource.
    pub(crate) asks_chains: bool,
    /// Resources can be bound with a chain.
    pub(crate) binds_chains: bool,
    /// Requirements can be asked for by a description, without its resource.
    pub(crate) asks_infos: bool,
}

impl Newer {
    /// Asks for the functions of a device.
    fn of(info: &VmaAllocatorCreateInfo, of_device: impl Fn(&CStr) -> *const c_void) -> Self {
        let has = |names: [&CStr; 2]| names.into_iter().all(|name| !of_device(name).is_null());
        let may_ask_infos = info.vulkan_api_version >= vk::API_VERSION_1_3
            || info.flags & VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE4_BIT != 0;
        Self {
            asks_chains: has([c"vkGetBufferMemoryRequirements2", c"vkGetImageMemoryRequirements2"]),
            binds_chains: has([c"vkBindBufferMemory2", c"vkBindImageMemory2"]),
            asks_infos: may_ask_infos
                && has([
                    c"vkGetDeviceBufferMemoryRequirements",
                    c"vkGetDeviceImageMemoryRequirements",
                ]),
        }
    }
}

/// Functions of [`Given`] that every program must provide: those up to `vkDestroyImage`.
const OF_VULKAN_1_0: usize = 16;

/// Returns the version whose functions an instance and its device have. A program may say less than it has, so they are asked.
///
/// The loader gives the functions of an instance to one of 1.0 too. So the device is asked `by_name`, which knows no older names, or
/// the instance for the older name that an extension brings.
fn version(
    of_device: u32,
    of_instance: impl Fn(&CStr) -> *const c_void,
    by_name: impl Fn(&CStr) -> *const c_void,
) -> u32 {
    let is_newer = !by_name(c"vkGetBufferMemoryRequirements2").is_null()
        || !of_instance(c"vkGetPhysicalDeviceProperties2KHR").is_null();
    let needed = [
        c"vkGetPhysicalDeviceProperties2",
        c"vkGetPhysicalDeviceFeatures2",
        c"vkGetPhysicalDeviceMemoryProperties2",
    ];
    let is_newer = is_newer && of_device >= vk::API_VERSION_1_1;
    match is_newer && needed.into_iter().all(|name| !of_instance(name).is_null()) {
        true => vk::API_VERSION_1_3,
        false => vk::API_VERSION_1_0,
    }
}

/// The program's functions by name. A function that was once an extension has both names.
struct Given(Vec<(&'static CStr, *const c_void)>);

macro_rules! given {
    ($from:expr, $($field:ident: $($name:literal),+;)*) => {
        Given([$($(($name, $from.$field.map_or(ptr::null(), |function| function as *const c_void))),+),*].into())
    };
}

impl Given {
    fn new(from: &OmniheapVmaFunctions) -> Self {
        given! {
            from,
            vk_get_physical_device_properties: c"vkGetPhysicalDeviceProperties";
            vk_get_physical_device_memory_properties: c"vkGetPhysicalDeviceMemoryProperties";
            vk_allocate_memory: c"vkAllocateMemory";
            vk_free_memory: c"vkFreeMemory";
            vk_map_memory: c"vkMapMemory";
            vk_unmap_memory: c"vkUnmapMemory";
            vk_flush_mapped_memory_ranges: c"vkFlushMappedMemoryRanges";
            vk_invalidate_mapped_memory_ranges: c"vkInvalidateMappedMemoryRanges";
            vk_bind_buffer_memory: c"vkBindBufferMemory";
            vk_bind_image_memory: c"vkBindImageMemory";
            vk_get_buffer_memory_requirements: c"vkGetBufferMemoryRequirements";
            vk_get_image_memory_requirements: c"vkGetImageMemoryRequirements";
            vk_create_buffer: c"vkCreateBuffer";
            vk_destroy_buffer: c"vkDestroyBuffer";
            vk_create_image: c"vkCreateImage";
            vk_destroy_image: c"vkDestroyImage";
            vk_get_buffer_memory_requirements2_khr: c"vkGetBufferMemoryRequirements2";
            vk_get_image_memory_requirements2_khr: c"vkGetImageMemoryRequirements2";
            vk_bind_buffer_memory2_khr: c"vkBindBufferMemory2";
            vk_bind_image_memory2_khr: c"vkBindImageMemory2";
            vk_get_physical_device_memory_properties2_khr: c"vkGetPhysicalDeviceMemoryProperties2";
            vk_get_device_buffer_memory_requirements: c"vkGetDeviceBufferMemoryRequirements";
            vk_get_device_image_memory_requirements: c"vkGetDeviceImageMemoryRequirements";
            vk_get_physical_device_properties2_khr: c"vkGetPhysicalDeviceProperties2";
        }
    }

    /// Checks that all functions of Vulkan 1.0 are given, if none may be looked up by name.
    fn must_be_enough(&self, may_ask: bool) -> Result<(), Refused> {
        let missing = self.0.iter().take(OF_VULKAN_1_0).find(|(_, function)| function.is_null());
        match missing {
            Some((name, _)) if !may_ask => Err(Refused::invalid(format!(
                "VMA_DYNAMIC_VULKAN_FUNCTIONS is 0, and pVulkanFunctions has no {}",
                name.to_string_lossy()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the program's function of this name, or the one that `ask` finds under this or its older name.
    fn find(&self, name: &CStr, ask: impl Fn(&CStr) -> *const c_void) -> *const c_void {
        let known = self.0.iter().find(|(known, _)| *known == name);
        let given = known.map_or(ptr::null(), |(_, function)| *function);
        if !given.is_null() {
            return given;
        }
        let found = ask(name);
        if !found.is_null() {
            return found;
        }
        let older = CString::new([name.to_bytes(), b"KHR"].concat());
        older.map_or(ptr::null(), |older| ask(&older))
    }
}

fn address(function: vk::PFN_vkVoidFunction) -> *const c_void {
    function.map_or(ptr::null(), |function| function as *const c_void)
}

/// Opens the device that the program describes.
///
/// # Errors
///
/// `ERROR_INITIALIZATION_FAILED` for null handles, and if a function cannot be found; errors of the engine about the device.
///
/// # Safety
///
/// The handles belong together and outlive the returned device. Each function is the one of its name.
pub(crate) unsafe fn open(
    info: &VmaAllocatorCreateInfo,
    program: Option<&OmniheapVmaProgram>,
    functions: &OmniheapVmaFunctions,
) -> Result<Opened, Refused> {
    use vk::Handle as _;
    let handles = [
        (info.instance.as_raw(), "instance"),
        (info.physical_device.as_raw(), "physicalDevice"),
        (info.device.as_raw(), "device"),
    ];
    if let Some((_, name)) = handles.into_iter().find(|(handle, _)| *handle == 0) {
        return Err(Refused::invalid(format!("{name} is null")));
    }
    // A program may forbid lookups by name. Its loader's functions are then stubs or missing.
    let may_ask = program.is_none_or(|one| one.dynamic_functions != 0);
    let (loader, instance_proc) =
        if may_ask { loader(functions)? } else { (None, of_the_process()?) };
    let given = Given::new(functions);
    given.must_be_enough(may_ask)?;
    let of_instance = |name: &CStr| {
        // SAFETY: the loader's function, with a live instance and a text.
        given.find(name, |name| address(unsafe { instance_proc(info.instance, name.as_ptr()) }))
    };
    // SAFETY: a function of this name has this type.
    let instance = unsafe { ash::Instance::load_with(of_instance, info.instance) };
    let device_proc = functions.vk_get_device_proc_addr.filter(|_| may_ask);
    let device_proc = device_proc.unwrap_or(instance.fp_v1_0().get_device_proc_addr);
    // SAFETY: as above, with a live device.
    let by_name = |name: &CStr| address(unsafe { device_proc(info.device, name.as_ptr()) });
    let of_device = |name: &CStr| given.find(name, by_name);
    let newer = Newer::of(info, of_device);
    // SAFETY: as above.
    let device = unsafe { ash::Device::load_with(of_device, info.device) };
    // SAFETY: the caller's promise.
    let properties = unsafe { instance.get_physical_device_properties(info.physical_device) };
    // SAFETY: as above.
    let memory = unsafe { instance.get_physical_device_memory_properties(info.physical_device) };
    let enabled = enabled(info.flags);
    let physical_device = info.physical_device;
    let bare = Bare { instance, physical_device, device, enabled: &enabled };
    let promised = u64::from(properties.limits.max_memory_allocation_count);
    let is_bound = program.is_some_and(|one| one.dont_exceed_max_memory_allocation_count != 0);
    let version = version(properties.api_version, of_instance, by_name);
    let options = Options::default().instance_version(version);
    let options = if is_bound { options.max_blocks(promised) } else { options };
    // SAFETY: the caller's promise; memory is freed only when the program frees what lies in it, which the device has finished with.
    let vulkan = unsafe { Vulkan::wrap_memory(bare, options) }?;
    Ok(Opened { vulkan, properties, memory, newer, loader })
}

/// Returns the function of the loader that the process already has. The engine reads more facts of the device than VMA, so it needs
/// a loader even if the program forbids lookups through its own.
fn of_the_process() -> Result<vk::PFN_vkGetInstanceProcAddr, Refused> {
    let refused = |why: libloading::Error| {
        Refused::invalid(format!(
            "VMA_DYNAMIC_VULKAN_FUNCTIONS is 0, and the process has no loader of Vulkan: {why}; define it as 1, and give \
            vkGetInstanceProcAddr"
        ))
    };
    let library = loaded().map_err(refused)?;
    // SAFETY: a function of this name has this type.
    let found = unsafe { library.get::<vk::PFN_vkGetInstanceProcAddr>(b"vkGetInstanceProcAddr\0") };
    let found = *found.map_err(refused)?;
    // The function lives as long as the library: until the process ends.
    core::mem::forget(library);
    Ok(found)
}

#[cfg(unix)]
fn loaded() -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_NOW};
    let name = if cfg!(target_os = "macos") { "libvulkan.1.dylib" } else { "libvulkan.so.1" };
    // SAFETY: nothing is loaded, so no initialiser runs.
    unsafe { Library::open(Some(name), RTLD_NOW | libc::RTLD_NOLOAD) }.map(Into::into)
}

#[cfg(windows)]
fn loaded() -> Result<libloading::Library, libloading::Error> {
    libloading::os::windows::Library::open_already_loaded("vulkan-1.dll").map(Into::into)
}

/// Returns the function that finds others: the program's, or that of the system's loader.
fn loader(
    functions: &OmniheapVmaFunctions,
) -> Result<(Option<ash::Entry>, vk::PFN_vkGetInstanceProcAddr), Refused> {
    if let Some(given) = functions.vk_get_instance_proc_addr {
        return Ok((None, given));
    }
    // SAFETY: loading runs the library's initialisers; the system's loader is trusted like any system library.
    let entry = unsafe { ash::Entry::load() };
    let entry = entry.map_err(|why| {
        Refused::invalid(format!(
            "vkGetInstanceProcAddr is null, and the system's loader is not to be had: {why}"
        ))
    })?;
    let found = entry.static_fn().get_instance_proc_addr;
    Ok((Some(entry), found))
}

fn enabled(flags: u32) -> Vec<Feature> {
    let known = [
        (VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT, Feature::BufferDeviceAddress),
        (VMA_ALLOCATOR_CREATE_EXT_MEMORY_PRIORITY_BIT, Feature::MemoryPriority),
        (VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT, Feature::DeviceCoherentMemory),
    ];
    known.into_iter().filter(|(flag, _)| flags & flag != 0).map(|(_, feature)| feature).collect()
}

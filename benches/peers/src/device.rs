//! One Vulkan device for all peers, whose memory calls are counted.
use ash::vk;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_vulkan::{Existing, Options, Vulkan};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

/// The driver's own functions.
struct Real {
    look_up: vk::PFN_vkGetDeviceProcAddr,
    allocate: vk::PFN_vkAllocateMemory,
    free: vk::PFN_vkFreeMemory,
}

static REAL: OnceLock<Real> = OnceLock::new();
static SIZES: Mutex<Option<HashMap<vk::DeviceMemory, u64>>> = Mutex::new(None);
static HELD: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

fn real() -> &'static Real {
    REAL.get().expect("set when the device was opened")
}

unsafe extern "system" fn allocate(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: the peer's own call, passed on unchanged.
    let answer = unsafe { (real().allocate)(device, info, callbacks, out) };
    if answer == vk::Result::SUCCESS {
        // SAFETY: the caller's pointer, which the driver has just read.
        let size = unsafe { (*info).allocation_size };
        // SAFETY: the driver has just written it.
        let memory = unsafe { *out };
        SIZES.lock().expect("nobody panics here").get_or_insert_default().insert(memory, size);
        PEAK.fetch_max(HELD.fetch_add(size, Relaxed) + size, Relaxed);
    }
    answer
}

unsafe extern "system" fn free(
    device: vk::Device,
    memory: vk::DeviceMemory,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: the peer's own call, passed on unchanged.
    unsafe { (real().free)(device, memory, callbacks) };
    let size = SIZES.lock().expect("nobody panics here").get_or_insert_default().remove(&memory);
    HELD.fetch_sub(size.unwrap_or(0), Relaxed);
}

unsafe extern "system" fn look_up(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the binding passes names that end with a zero byte.
    let text = unsafe { CStr::from_ptr(name) };
    let counted = match text.to_bytes() {
        b"vkAllocateMemory" => allocate as *const (),
        b"vkFreeMemory" => free as *const (),
        // SAFETY: the binding's own call, passed on unchanged.
        _ => return unsafe { (real().look_up)(device, name) },
    };
    // SAFETY: a function of the type that this name stands for.
    Some(unsafe { core::mem::transmute::<*const (), unsafe extern "system" fn()>(counted) })
}

/// The device, and the same device seen through the counting functions.
pub struct Device {
    owner: Vulkan,
    pub counted: ash::Device,
    /// The memory type that every peer uses: the best of the device's own.
    pub memory_type: u32,
}

impl Device {
    /// Returns the best device here, or `None` where there is none.
    pub fn open() -> Option<Self> {
        let owner = Vulkan::open_with(Options::default()).ok()?;
        let mut table = owner.ash_instance().fp_v1_0().clone();
        let functions = owner.ash_device().fp_v1_0();
        let (allocate, free) = (functions.allocate_memory, functions.free_memory);
        REAL.set(Real { look_up: table.get_device_proc_addr, allocate, free }).ok()?;
        table.get_device_proc_addr = look_up;
        // SAFETY: the owner's device, alive; `look_up` answers for every function.
        let counted = unsafe { ash::Device::load(&table, owner.ash_device().handle()) };
        let heap = *owner.candidates(u32::MAX, omniheap_core::HeapKind::Device).first()?;
        let memory_type = owner.memory_type(heap)?;
        Some(Self { owner, counted, memory_type })
    }

    pub fn name(&self) -> String {
        omniheap_core::Backend::caps(&self.owner).device.name.clone()
    }

    pub fn instance(&self) -> &ash::Instance {
        self.owner.ash_instance()
    }

    pub fn physical(&self) -> vk::PhysicalDevice {
        self.owner.physical_device()
    }

    /// Our backend on this device, through the counting functions.
    pub fn backend(&self) -> Vulkan {
        // SAFETY: family 0 has a queue, because the owner opened the device with one.
        let queue = unsafe { self.counted.get_device_queue(0, 0) };
        let existing = Existing {
            entry: self.owner.ash_entry().cloned().expect("its own loader"),
            instance: self.instance().clone(),
            physical_device: self.physical(),
            device: self.counted.clone(),
            queues: &[(0, queue)],
            enabled: &[],
        };
        // SAFETY: the handles are the owner's, which lives until the bench ends and submits nothing.
        unsafe { Vulkan::wrap(existing, Options::default()) }.expect("the owner's device")
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        PEAK.store(HELD.load(Relaxed), Relaxed);
    }

    /// Returns the most bytes held since [`reset`](Self::reset).
    pub fn peak(&self) -> u64 {
        PEAK.load(Relaxed)
    }
}

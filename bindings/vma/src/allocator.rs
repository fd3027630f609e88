//! Allocators: handles of the live ones, and the contents of each.
#![expect(
    unsafe_code,
    reason = "takes over the program's device, and finds allocators by their handles"
)]
use crate::abi::{
    OmniheapVmaFunctions, OmniheapVmaProgram, VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT,
    VMA_ALLOCATOR_CREATE_EXTERNALLY_SYNCHRONIZED_BIT, VmaAllocator, VmaAllocatorCreateInfo,
    VmaAllocatorInfo, VmaDeviceMemoryCallbacks,
};
use crate::args::{Layout, array, borrow, put, read_if, read_prefix};
use crate::budget::LastTold;
use crate::call::{Refused, call, complain, run};
use crate::choice::Types;
use crate::counts::Counts;
use crate::defrag::Defragmentation;
use crate::margin::Debug;
use crate::memory::Memory;
use crate::open::{self, Newer, Opened};
use crate::pools::{CustomPool, Defaults, one_lane};
use crate::slots::Slots;
use ash::vk::{self, MemoryPropertyFlags as F};
use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use omniheap_c::{OmniheapManager, OmniheapStatus, adopt, omniheap_close};
use omniheap_core::{Align, AnyBackend, Defragmentation as Moves, HeapId, Manager, ManagerConfig};
use omniheap_seam::{Backend as _, erase, lock};
use omniheap_vulkan::{Hooks, MemoryEventKind, Vulkan};
use std::sync::{Arc, Mutex, OnceLock};

/// Everything behind one `VmaAllocator`. Memory ends before the pools, and those before the device.
pub(crate) struct Allocator {
    pub(crate) slots: Slots<Memory>,
    pub(crate) defragmentations: Slots<Defragmentation>,
    pub(crate) pools: Slots<Arc<CustomPool>>,
    pub(crate) defaults: Defaults,
    pub(crate) counts: Arc<Counts>,
    pub(crate) told: LastTold,
    pub(crate) types: Types,
    /// The engine's heap of each memory type.
    heaps: Vec<HeapId>,
    pub(crate) flags: u32,
    pub(crate) layout: Layout,
    pub(crate) newer: Newer,
    pub(crate) debug: Debug,
    /// Preferred block size for heaps above a GiB; zero if the program gives none.
    large_block: u64,
    small_heap: u64,
    /// The program's number of the present frame.
    frame: AtomicU64,
    pub(crate) callbacks: Option<vk::AllocationCallbacks<'static>>,
    properties: Box<vk::PhysicalDeviceProperties>,
    pub(crate) memory: Box<vk::PhysicalDeviceMemoryProperties>,
    /// Handle of the manager in omniheap's own C interface, once the program asked for it.
    shown: OnceLock<OmniheapManager>,
    pub(crate) manager: Manager<AnyBackend>,
    pub(crate) vulkan: Arc<Vulkan>,
    /// Keeps the loader's library in memory, where the program gave no functions.
    _loader: Option<ash::Entry>,
}

// SAFETY: the callbacks hold pointers that are only handed to the driver, from any thread, as VMA does; everything else is.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

const MOST: usize = 4096;
/// Handles of live allocators, by place. A handle is the place, and a number that no other allocator ever had.
static HANDLES: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static ALLOCATORS: [AtomicPtr<Allocator>; MOST] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];
/// Held while a place is given or taken.
static CHANGES: Mutex<usize> = Mutex::new(0);

/// Returns the allocator behind a handle.
///
/// # Safety
///
/// No other thread destroys the allocator while it is used.
#[inline]
unsafe fn find<'a>(handle: VmaAllocator) -> Result<&'a Allocator, Refused> {
    let number = handle.0.addr();
    let place = number % MOST;
    if number == 0 || HANDLES[place].load(Acquire) != number {
        return Err(no_allocator(handle));
    }
    // SAFETY: a handle stands in the table only while its allocator lives, and the caller promises that it goes on living.
    unsafe { ALLOCATORS[place].load(Acquire).as_ref() }.ok_or_else(|| no_allocator(handle))
}

#[cold]
fn no_allocator(handle: VmaAllocator) -> Refused {
    Refused::invalid(match handle.is_null() {
        true => "the allocator is null",
        false => "the allocator was destroyed, or never was one",
    })
}

/// Runs an exported function on an allocator.
///
/// # Safety
///
/// As for C: no other thread destroys the allocator meanwhile.
#[inline]
pub(crate) unsafe fn with(
    function: &str,
    handle: VmaAllocator,
    work: impl FnOnce(&Allocator) -> Result<(), Refused>,
) -> vk::Result {
    // SAFETY: the caller's promise.
    call(function, || work(unsafe { find(handle) }?))
}

/// Runs an exported function that returns nothing on an allocator.
///
/// # Safety
///
/// As for [`with`].
#[inline]
pub(crate) unsafe fn on(
    function: &str,
    handle: VmaAllocator,
    work: impl FnOnce(&Allocator) -> Result<(), Refused>,
) {
    // SAFETY: the caller's promise.
    run(function, || work(unsafe { find(handle) }?));
}

impl Allocator {
    pub(crate) fn device(&self) -> &ash::Device {
        self.vulkan.ash_device()
    }

    pub(crate) fn heap(&self, memory_type: u32) -> HeapId {
        self.heaps[index(memory_type)]
    }

    /// Returns the alignment of the start of every block.
    pub(crate) fn base_align(&self, memory_type: u32) -> Align {
        self.manager.caps().heap(self.heap(memory_type)).map_or(Align::ONE, |heap| heap.align)
    }

    pub(crate) fn type_flags(&self, memory_type: u32) -> F {
        self.types.flags[index(memory_type)]
    }

    /// Returns the driver's heap of a memory type.
    pub(crate) fn heap_of(&self, memory_type: u32) -> usize {
        index(self.memory.memory_types[index(memory_type)].heap_index)
    }

    pub(crate) fn type_count(&self) -> u32 {
        self.memory.memory_type_count
    }

    pub(crate) fn limits(&self) -> &vk::PhysicalDeviceLimits {
        &self.properties.limits
    }

    /// Returns the number of lanes of pools: one if only one thread at a time calls, else `None`, which lets the pool decide.
    pub(crate) fn lanes(&self) -> Option<u32> {
        let is_single = self.flags & VMA_ALLOCATOR_CREATE_EXTERNALLY_SYNCHRONIZED_BIT != 0;
        is_single.then_some(1)
    }

    /// Returns the largest size of shared blocks of a memory type. VMA would make every block of this size.
    pub(crate) fn preferred_block(&self, memory_type: u32) -> u64 {
        let size = self.memory.memory_heaps[self.heap_of(memory_type)].size;
        let block = if size <= self.small_heap { size / 8 } else { self.large_block };
        block.next_multiple_of(32)
    }

    pub(crate) fn frame(&self) -> u64 {
        self.frame.load(Relaxed)
    }

    /// Returns memory that nothing lies in to the driver, until that is `enough` bytes.
    pub(crate) fn trim(&self, enough: u64) -> u64 {
        // A lost device has nothing to give back; the calls that allocate report it.
        self.manager.trim_bytes(enough).unwrap_or(0)
    }

    /// Logs the allocations and pools that were not freed.
    fn report_leaks(&self) {
        for slot in self.slots.iter().take(64) {
            let (size, name) = (slot.facts.size.load(Relaxed), slot.name_text());
            let name = name.as_deref().unwrap_or("unnamed");
            complain("vmaDestroyAllocator", &format!("`{name}` of {size} bytes was not freed"));
        }
        let (live, pools) = (self.slots.iter().count(), self.pools.iter().count());
        if live + pools > 0 {
            let what = format!("{live} allocations and {pools} pools were not freed; they end now");
            complain("vmaDestroyAllocator", &what);
        }
    }
}

pub(crate) fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the hooks around the driver's memory calls: exports, the program's callbacks, and counts.
fn hooks(
    counts: &Arc<Counts>,
    &Parts { callbacks, told, exports, .. }: &Parts<'_>,
    handle: VmaAllocator,
) -> Hooks {
    struct Program(VmaDeviceMemoryCallbacks, VmaAllocator);
    // SAFETY: the program promised that its functions may be called with their pointer from any thread.
    unsafe impl Send for Program {}
    // SAFETY: as above.
    unsafe impl Sync for Program {}
    impl Program {
        fn tell(&self, event: omniheap_vulkan::MemoryEvent) {
            let Self(of, allocator) = self;
            let function = match event.kind {
                MemoryEventKind::Allocated => of.pfn_allocate,
                MemoryEventKind::Freed => of.pfn_free,
            };
            let Some(function) = function else { return };
            // SAFETY: the program's function, with the arguments and the pointer that it registered.
            unsafe {
                function(*allocator, event.memory_type, event.memory, event.size, of.p_user_data);
            }
        }
    }
    let (counts, program) = (Arc::clone(counts), told.map(|told| Program(told, handle)));
    let hooks = Hooks::default().exports(exports.to_vec()).told(move |event| {
        counts.told(event);
        if let Some(program) = &program {
            program.tell(event);
        }
    });
    match callbacks {
        // SAFETY: the program promised that they outlive the allocator and may be called from any thread.
        Some(callbacks) => unsafe { hooks.callbacks(callbacks) },
        None => hooks,
    }
}

/// Limits what the memory types of each heap hold together to what the program says.
fn limited(hooks: Hooks, memory: &vk::PhysicalDeviceMemoryProperties, limits: &[u64]) -> Hooks {
    let limits = (0u32..).zip(limits).filter(|(_, limit)| **limit != vk::WHOLE_SIZE);
    limits.fold(hooks, |hooks, (heap, limit)| {
        let types = (0u32..).zip(memory.memory_types_as_slice());
        let own = types.filter(|(_, one)| one.heap_index == heap);
        hooks.limit(own.fold(0, |all, (at, _)| all | 1 << at), *limit)
    })
}

/// Settings that a program passes beside its handles.
struct Parts<'a> {
    callbacks: Option<vk::AllocationCallbacks<'static>>,
    told: Option<VmaDeviceMemoryCallbacks>,
    exports: &'a [vk::ExternalMemoryHandleTypeFlags],
    limits: &'a [u64],
}

/// # Safety
///
/// `info` and `program` are what C says.
unsafe fn parts<'a>(
    info: &VmaAllocatorCreateInfo,
    program: Option<&OmniheapVmaProgram>,
    memory: &vk::PhysicalDeviceMemoryProperties,
) -> Result<Parts<'a>, Refused> {
    let exports = program.map_or(info.p_type_external_memory_handle_types, |one| {
        one.type_external_memory_handle_types
    });
    let optional = |is_null: bool, count: u32| if is_null { 0 } else { index(count) };
    let types = optional(exports.is_null(), memory.memory_type_count);
    let heaps = optional(info.p_heap_size_limit.is_null(), memory.memory_heap_count);
    Ok(Parts {
        // SAFETY: the caller's promise.
        callbacks: unsafe { read_if(info.p_allocation_callbacks, "pAllocationCallbacks") }?,
        // SAFETY: as above.
        told: unsafe { read_if(info.p_device_memory_callbacks, "pDeviceMemoryCallbacks") }?,
        // SAFETY: as above.
        exports: unsafe { array(exports, types, "pTypeExternalMemoryHandleTypes") }?,
        // SAFETY: as above.
        limits: unsafe { array(info.p_heap_size_limit, heaps, "pHeapSizeLimit") }?,
    })
}

/// Lowers the heaps' sizes to the program's limits.
fn limit(memory: &mut vk::PhysicalDeviceMemoryProperties, limits: &[u64]) {
    for (heap, limit) in memory.memory_heaps.iter_mut().zip(limits) {
        heap.size = heap.size.min(*limit);
    }
}

fn types(opened: &Opened, flags: u32) -> Types {
    let of = opened.memory.memory_types_as_slice();
    let special = F::DEVICE_COHERENT_AMD | F::DEVICE_UNCACHED_AMD;
    let may_be_special = flags & VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT != 0;
    let usable = (0u32..)
        .zip(of)
        .filter(|(_, one)| may_be_special || !one.property_flags.intersects(special));
    Types {
        usable: usable.fold(0, |all, (at, _)| all | 1 << at),
        flags: of.iter().map(|one| one.property_flags).collect(),
        is_integrated: opened.properties.device_type == vk::PhysicalDeviceType::INTEGRATED_GPU,
    }
}

/// Makes an allocator, with a handle of its own.
///
/// # Safety
///
/// As for [`omniheap_vma_create_allocator`].
unsafe fn create(
    info: &VmaAllocatorCreateInfo,
    program: Option<&OmniheapVmaProgram>,
) -> Result<VmaAllocator, Refused> {
    let none = OmniheapVmaFunctions::default();
    let functions = match program {
        Some(program) => &program.functions,
        None if info.p_vulkan_functions.is_null() => &none,
        // SAFETY: the caller's promise.
        None => unsafe { borrow(info.p_vulkan_functions, "pVulkanFunctions") }?,
    };
    // SAFETY: the caller's promise.
    let mut opened = unsafe { open::open(info, program, functions) }?;
    // SAFETY: as above.
    let parts = unsafe { parts(info, program, &opened.memory) }?;
    limit(&mut opened.memory, parts.limits);
    let mut next = lock(&CHANGES);
    let place = (1..MOST).map(|step| (*next + step) % MOST).filter(|place| *place != 0);
    let place = place.into_iter().find(|place| HANDLES[*place].load(Relaxed) == 0);
    let place = place
        .ok_or_else(|| Refused::new(vk::Result::ERROR_TOO_MANY_OBJECTS, "4095 allocators live"))?;
    static NUMBER: AtomicUsize = AtomicUsize::new(1);
    let handle = NUMBER.fetch_add(1, Relaxed) * MOST + place;
    let shown = VmaAllocator(core::ptr::without_provenance_mut(handle));
    let allocator = assemble(opened, info, program, &parts, (place, shown))?;
    *next = place;
    ALLOCATORS[place].store(Box::into_raw(Box::new(allocator)), Release);
    HANDLES[place].store(handle, Release);
    Ok(shown)
}

fn assemble(
    opened: Opened,
    info: &VmaAllocatorCreateInfo,
    program: Option<&OmniheapVmaProgram>,
    parts: &Parts<'_>,
    (place, shown): (usize, VmaAllocator),
) -> Result<Allocator, Refused> {
    let (counts, types) = (Arc::new(Counts::default()), types(&opened, info.flags));
    let Opened { vulkan, properties, memory, newer, loader } = opened;
    vulkan.set_hooks(limited(hooks(&counts, parts, shown), &memory, parts.limits));
    let vulkan = Arc::new(vulkan);
    let heaps = heaps(&vulkan, &memory);
    let manager = Manager::with_config(erase(Arc::clone(&vulkan)), config(&vulkan));
    let owner = u16::try_from(place).unwrap_or(0);
    let given = |own: u64, macro_: fn(&OmniheapVmaProgram) -> u64, usual: u64| {
        [own, program.map_or(0, macro_)].into_iter().find(|value| *value > 0).unwrap_or(usual)
    };
    let own = info.preferred_large_heap_block_size;
    Ok(Allocator {
        slots: Slots::new(owner),
        defragmentations: Slots::new(owner),
        pools: Slots::new(owner),
        defaults: Defaults::default(),
        counts,
        told: LastTold::default(),
        types,
        heaps,
        flags: info.flags,
        layout: program.map_or(Layout::Full, |one| Layout::of(one.layout)),
        newer,
        debug: program.map(Debug::of).unwrap_or_default(),
        large_block: given(own, |one| one.default_large_heap_block_size, 256 << 20),
        small_heap: given(0, |one| one.small_heap_max_size, 1 << 30),
        frame: AtomicU64::new(0),
        callbacks: parts.callbacks,
        properties: Box::new(properties),
        memory: Box::new(memory),
        shown: OnceLock::new(),
        manager,
        vulkan,
        _loader: loader,
    })
}

/// Returns the engine's heap of each memory type.
fn heaps(vulkan: &Vulkan, memory: &vk::PhysicalDeviceMemoryProperties) -> Vec<HeapId> {
    let types = 0..memory.memory_type_count;
    types.filter_map(|at| vulkan.heaps_with(1 << at, F::empty()).first().copied()).collect()
}

/// Settings of the manager: plain blocks, in units of a whole granule where that is small.
fn config(vulkan: &Vulkan) -> ManagerConfig {
    let mut config = ManagerConfig::default().plain();
    config.pool = one_lane();
    // The manager has no queues and copies nothing, so a request that fails must not look for moves.
    config.defragmentation = Moves::Off;
    let granule = vulkan.caps().neighbour_granularity;
    if granule.get() <= 1024 {
        config.unit = config.unit.max(granule);
    }
    config
}

/// Makes an allocator of a device that the program owns. The header's `vmaCreateAllocator` calls this.
///
/// # Safety
///
/// `info` is null or what C says, with all fields where `program` is null, and else all but the last; `program` is null or one of
/// this version. Handles and functions belong together and outlive the allocator. `allocator` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vma_create_allocator(
    info: *const VmaAllocatorCreateInfo,
    program: *const OmniheapVmaProgram,
    allocator: *mut VmaAllocator,
) -> vk::Result {
    call("vmaCreateAllocator", || {
        // SAFETY: the caller's promise.
        unsafe { put(allocator, VmaAllocator::NULL, "pAllocator") }?;
        let program = match program.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { borrow(program, "program") }?),
        };
        let all = match program {
            Some(_) => offset_of!(VmaAllocatorCreateInfo, p_type_external_memory_handle_types),
            None => size_of::<VmaAllocatorCreateInfo>(),
        };
        if program.is_some_and(|program| program.size < size_of::<OmniheapVmaProgram>()) {
            return Err(Refused::invalid(
                "the header is older than the library; compile against the one that came with it",
            ));
        }
        // SAFETY: as above.
        let info = unsafe { read_prefix(info, all, "pCreateInfo") }?;
        // SAFETY: as above.
        let made = unsafe { create(&info, program) }?;
        // SAFETY: as above.
        unsafe { put(allocator, made, "pAllocator") }
    })
}

/// Destroys an allocator. Allocations and pools that were not freed are logged, and end with it.
///
/// # Safety
///
/// No other thread uses the allocator, and the device has finished with its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaDestroyAllocator(allocator: VmaAllocator) {
    run("vmaDestroyAllocator", || {
        if allocator.is_null() {
            return Ok(());
        }
        // The handle is still valid here, for callbacks that use it.
        // SAFETY: the caller's promise.
        unsafe { find(allocator) }?.trim(u64::MAX);
        let changes = lock(&CHANGES);
        let (number, place) = (allocator.0.addr(), allocator.0.addr() % MOST);
        let is_own = HANDLES[place].compare_exchange(number, 0, Acquire, Relaxed).is_ok();
        let ended = is_own.then(|| ALLOCATORS[place].swap(core::ptr::null_mut(), Acquire));
        drop(changes);
        let ended =
            ended.filter(|ended| !ended.is_null()).ok_or_else(|| no_allocator(allocator))?;
        // SAFETY: made by `create`, and taken out of the table by this call alone.
        let ended = unsafe { Box::from_raw(ended) };
        if let Some(shown) = ended.shown.get()
            && omniheap_close(*shown) == OmniheapStatus::Busy
        {
            complain(
                "vmaDestroyAllocator",
                "what was made through omniheap_vma_manager is live; free it first",
            );
        }
        ended.report_leaks();
        drop(ended);
        Ok(())
    });
}

/// Writes the Vulkan objects that an allocator was made with.
///
/// # Safety
///
/// `info` is null or may be written; no other thread destroys the allocator. The same holds for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetAllocatorInfo(allocator: VmaAllocator, info: *mut VmaAllocatorInfo) {
    let work = |of: &Allocator| {
        let shown = VmaAllocatorInfo {
            instance: of.vulkan.ash_instance().handle(),
            physical_device: of.vulkan.physical_device(),
            device: of.device().handle(),
        };
        // SAFETY: the caller's promise.
        unsafe { put(info, shown, "pAllocatorInfo") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetAllocatorInfo", allocator, work) };
}

/// Shows the device's properties, which stay where they are until the allocator ends.
///
/// # Safety
///
/// As for [`vmaGetAllocatorInfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetPhysicalDeviceProperties(
    allocator: VmaAllocator,
    properties: *mut *const vk::PhysicalDeviceProperties,
) {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        unsafe { put(properties, &raw const *of.properties, "ppPhysicalDeviceProperties") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetPhysicalDeviceProperties", allocator, work) };
}

/// Shows the device's memory; heaps have the sizes that the program allows.
///
/// # Safety
///
/// As for [`vmaGetAllocatorInfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetMemoryProperties(
    allocator: VmaAllocator,
    properties: *mut *const vk::PhysicalDeviceMemoryProperties,
) {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        unsafe { put(properties, &raw const *of.memory, "ppPhysicalDeviceMemoryProperties") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetMemoryProperties", allocator, work) };
}

/// Writes the properties of a memory type.
///
/// # Safety
///
/// As for [`vmaGetAllocatorInfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetMemoryTypeProperties(
    allocator: VmaAllocator,
    memory_type: u32,
    flags: *mut F,
) {
    let work = |of: &Allocator| {
        if memory_type >= of.type_count() {
            return Err(Refused::invalid(format!("there is no memory type {memory_type}")));
        }
        // SAFETY: the caller's promise.
        unsafe { put(flags, of.type_flags(memory_type), "pFlags") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetMemoryTypeProperties", allocator, work) };
}

/// Sets the number of the frame, for reports. Budgets are asked for anew.
///
/// # Safety
///
/// As for [`vmaGetAllocatorInfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaSetCurrentFrameIndex(allocator: VmaAllocator, frame: u32) {
    let work = |of: &Allocator| {
        of.frame.store(u64::from(frame), Relaxed);
        of.told.forget();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on("vmaSetCurrentFrameIndex", allocator, work) };
}

/// Returns the handle of the manager behind an allocator, for the functions of `omniheap.h`: reports, budgets, pressure. It ends with
/// the allocator. Zero for a handle that is no allocator.
///
/// # Safety
///
/// As for [`vmaGetAllocatorInfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vma_manager(allocator: VmaAllocator) -> OmniheapManager {
    let mut found = OmniheapManager { id: 0 };
    let work = |of: &Allocator| {
        if of.shown.get().is_none() {
            let made = adopt(of.manager.clone());
            let made = made.map_err(|_| Refused::invalid("there are too many managers"))?;
            if of.shown.set(made).is_err() {
                // Another thread was first, and its handle counts.
                let _ = omniheap_close(made);
            }
        }
        found = of.shown.get().copied().unwrap_or(found);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on("omniheap_vma_manager", allocator, work) };
    found
}

/// The address of nothing, as a pointer of the program's own.
pub(crate) const NOTHING: *mut c_void = core::ptr::null_mut();

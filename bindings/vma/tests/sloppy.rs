//! Sloppy calls that VMA accepts, and exact answers, on the Vulkan driver of this machine. Some functions are the test's own, which make a
//! device out of the one that is here: two heaps, memory that is not coherent, a large granule.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "a test of a C interface")]
#[macro_use]
mod rig;

use ash::vk;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_vma::abi::*;
use omniheap_vma::*;
use rig::{Rig, image_info, pool_info, wanted};
use std::process::Command;

const DONE: vk::Result = vk::Result::SUCCESS;
const KIB: u64 = 1 << 10;

/// Values of a VMA 3.4 program that sets no macro.
fn program() -> OmniheapVmaProgram {
    // SAFETY: all bits zero are no functions, null pointers and zeros.
    let mut program: OmniheapVmaProgram = unsafe { core::mem::zeroed() };
    program.size = size_of::<OmniheapVmaProgram>();
    (program.layout, program.dynamic_functions) = (3004, 1);
    program
}

/// Returns a function of the system's loader.
fn of_loader(name: &CStr) -> *const c_void {
    // SAFETY: the system's loader, which the rig has loaded before.
    let library = unsafe { libloading::Library::new("libvulkan.so.1") }.expect("the rig found it");
    // SAFETY: the address alone is read; the library stays.
    let found = unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) };
    let found = *found.expect("the loader exports it");
    core::mem::forget(library);
    found
}

fn memory(rig: &Rig, size: u64, info: &VmaAllocationCreateInfo) -> VmaAllocation {
    let asked = vk::MemoryRequirements { size, alignment: 1, memory_type_bits: u32::MAX };
    let mut allocation = VmaAllocation::NULL;
    let result =
        c!(vmaAllocateMemory(rig.allocator, &asked, info, &mut allocation, ptr::null_mut()));
    assert_eq!(result, DONE);
    allocation
}

fn on_host() -> VmaAllocationCreateInfo {
    let required_flags = vk::MemoryPropertyFlags::HOST_VISIBLE;
    VmaAllocationCreateInfo { required_flags, ..wanted() }
}

/// Flushes and invalidates ranges that leave an allocation of 100 bytes, and says what came of it.
fn sync_beyond(rig: &Rig) -> [vk::Result; 4] {
    let one = memory(rig, 100, &on_host());
    let outcomes = [
        c!(vmaFlushAllocation(rig.allocator, one, 0, 256)),
        c!(vmaFlushAllocation(rig.allocator, one, u64::MAX - 1, 4)),
        c!(vmaInvalidateAllocation(rig.allocator, one, 101, vk::WHOLE_SIZE - 1)),
        c!(vmaFlushAllocations(rig.allocator, 1, &one, &101, &1)),
    ];
    c!(vmaFreeMemory(rig.allocator, one));
    outcomes
}

#[test]
fn ranges_of_coherent_memory_are_not_looked_at() {
    let Some(rig) = Rig::open() else { return };
    assert_eq!(sync_beyond(&rig), [DONE; 4]);
}

type MemoryProperties = vk::PhysicalDeviceMemoryProperties;

fn real_memory(physical: vk::PhysicalDevice, to: *mut MemoryProperties) {
    let real = of_loader(c"vkGetPhysicalDeviceMemoryProperties");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkGetPhysicalDeviceMemoryProperties = unsafe { core::mem::transmute(real) };
    c!(real(physical, to));
}

unsafe extern "system" fn incoherent(physical: vk::PhysicalDevice, to: *mut MemoryProperties) {
    real_memory(physical, to);
    // SAFETY: written just now.
    let shown = unsafe { &mut *to };
    for one in &mut shown.memory_types {
        one.property_flags &= !vk::MemoryPropertyFlags::HOST_COHERENT;
    }
}

#[test]
fn ranges_of_other_memory_are_checked() {
    let mut program = program();
    program.functions.vk_get_physical_device_memory_properties = Some(incoherent);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    assert_eq!(sync_beyond(&rig), [vk::Result::ERROR_INITIALIZATION_FAILED; 4]);
}

/// A second heap, with the memory type of the first: nothing is allocated there.
unsafe extern "system" fn two_heaps(physical: vk::PhysicalDevice, to: *mut MemoryProperties) {
    real_memory(physical, to);
    // SAFETY: written just now.
    let shown = unsafe { &mut *to };
    let (heaps, types) = (shown.memory_heap_count as usize, shown.memory_type_count as usize);
    shown.memory_heaps[heaps] = shown.memory_heaps[0];
    shown.memory_types[types] = shown.memory_types[0];
    shown.memory_types[types].heap_index = shown.memory_heap_count;
    (shown.memory_heap_count, shown.memory_type_count) =
        (shown.memory_heap_count + 1, shown.memory_type_count + 1);
}

static ASKED: AtomicU64 = AtomicU64::new(0);

unsafe extern "system" fn counted(
    physical: vk::PhysicalDevice,
    to: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    ASKED.fetch_add(1, Relaxed);
    let real = of_loader(c"vkGetPhysicalDeviceMemoryProperties2");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 = unsafe { core::mem::transmute(real) };
    c!(real(physical, to));
}

type Extension = vk::ExtensionProperties;

/// The device's extensions, and `VK_EXT_memory_budget`, which not every device here has.
unsafe extern "system" fn extended(
    physical: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    to: *mut Extension,
) -> vk::Result {
    let real = of_loader(c"vkEnumerateDeviceExtensionProperties");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkEnumerateDeviceExtensionProperties = unsafe { core::mem::transmute(real) };
    let outcome = c!(real(physical, layer, count, to));
    // SAFETY: written just now.
    let known = unsafe { &mut *count };
    if !to.is_null() {
        let mut own = Extension::default();
        own = own.extension_name(ash::ext::memory_budget::NAME).expect("it fits");
        // SAFETY: the call before counted one more than there are.
        unsafe { to.wrapping_add(*known as usize).write(own) };
    }
    *known += 1;
    outcome
}

unsafe extern "system" fn find(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: a text of the caller.
    if unsafe { CStr::from_ptr(name) } == c"vkEnumerateDeviceExtensionProperties" {
        let own: vk::PFN_vkEnumerateDeviceExtensionProperties = extended;
        // SAFETY: whoever asks for a function by its name gives it its type again.
        return Some(unsafe { core::mem::transmute::<*const (), VoidFunction>(own as *const ()) });
    }
    let real = of_loader(c"vkGetInstanceProcAddr");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkGetInstanceProcAddr = unsafe { core::mem::transmute(real) };
    c!(real(instance, name))
}

type VoidFunction = unsafe extern "system" fn();

#[test]
fn budgets_of_all_heaps_are_one_call_of_the_driver() {
    let mut program = program();
    program.functions.vk_get_physical_device_memory_properties = Some(two_heaps);
    program.functions.vk_get_physical_device_memory_properties2_khr = Some(counted);
    program.functions.vk_get_instance_proc_addr = Some(find);
    let mut info = rig::described();
    info.flags = VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT;
    let Some(rig) = Rig::open_with(info, Some(program)) else { return };
    let before = ASKED.load(Relaxed);
    let budgets = rig.budgets();
    assert!(budgets[0].budget > 0 && budgets[1].budget > 0, "{budgets:?}");
    assert_eq!(ASKED.load(Relaxed) - before, 1);
}

unsafe extern "system" fn in_large_granules(
    physical: vk::PhysicalDevice,
    to: *mut vk::PhysicalDeviceProperties,
) {
    let real = of_loader(c"vkGetPhysicalDeviceProperties");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkGetPhysicalDeviceProperties = unsafe { core::mem::transmute(real) };
    c!(real(physical, to));
    // SAFETY: written just now.
    unsafe { (*to).limits.buffer_image_granularity = 64 * KIB };
}

#[test]
fn an_image_of_unknown_tiling_shares_no_granule() {
    let mut program = program();
    program.functions.vk_get_physical_device_properties = Some(in_large_granules);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    let auto = VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_GPU_ONLY, ..wanted() };
    let mut made = Vec::new();
    for at in 0..4 {
        let (mut image, mut allocation) = (vk::Image::null(), VmaAllocation::NULL);
        let (info, none) = (image_info(16), ptr::null_mut());
        if at % 2 == 0 {
            let (of, to) = (rig.allocator, &mut allocation);
            assert_eq!(c!(vmaCreateImage(of, &info, &auto, &mut image, to, none)), DONE);
        } else {
            image = c!(rig.device.create_image(&info, None)).expect("a small image");
            let (of, to) = (rig.allocator, &mut allocation);
            assert_eq!(c!(vmaAllocateMemoryForImage(of, image, &auto, to, none)), DONE);
        }
        made.push((image, allocation));
    }
    let granule = |at: usize| {
        let info = rig.info(made[at].1);
        (info.device_memory, info.offset / (64 * KIB))
    };
    for at in [1, 3] {
        assert!((0..4).all(|other| other == at || granule(other) != granule(at)), "{at}");
    }
    for (image, allocation) in made {
        c!(vmaDestroyImage(rig.allocator, image, allocation));
    }
}

#[test]
fn what_nobody_can_have_is_no_unused_range() {
    let Some(rig) = Rig::open() else { return };
    let info = VmaPoolCreateInfo { block_size: 64 * KIB, ..pool_info(rig.host_type()) };
    let pool = rig.pool(&info);
    let inside = VmaAllocationCreateInfo { pool, ..wanted() };
    let live = [100; 4].map(|size| memory(&rig, size, &inside));
    let mut stats = VmaDetailedStatistics::default();
    c!(vmaCalculatePoolStatistics(rig.allocator, pool, &mut stats));
    assert_eq!((stats.statistics.allocation_count, stats.statistics.allocation_bytes), (4, 400));
    assert_eq!((stats.unused_range_count, stats.unused_range_size_max), (1, 64 * KIB - 1024));
    c!(vmaFreeMemory(rig.allocator, live[1]));
    c!(vmaCalculatePoolStatistics(rig.allocator, pool, &mut stats));
    assert_eq!((stats.unused_range_count, stats.unused_range_size_min), (2, 256));
    for one in [live[0], live[2], live[3]] {
        c!(vmaFreeMemory(rig.allocator, one));
    }
    c!(vmaDestroyPool(rig.allocator, pool));
}

#[test]
fn margins_are_read_while_other_threads_free() {
    let mut program = program();
    // A margin so long that a check of it takes longer than a free.
    (program.debug_margin, program.detect_corruption) = (256 * KIB, 1);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    let allocator = rig.allocator.0.addr();
    // A block for each, so that blocks go back to the driver meanwhile.
    let pool =
        rig.pool(&VmaPoolCreateInfo { block_size: 2048 * KIB, ..pool_info(rig.host_type()) });
    let inside = VmaAllocationCreateInfo { pool, ..wanted() };
    for _ in 0..5 {
        let live: Vec<_> = (0..16).map(|_| memory(&rig, 1 << 20, &inside).0.addr()).collect();
        std::thread::scope(|scope| {
            let free = scope.spawn(|| {
                let of = VmaAllocator(ptr::without_provenance_mut(allocator));
                for one in &live {
                    c!(vmaFreeMemory(of, VmaAllocation(ptr::without_provenance_mut(*one))));
                }
            });
            while !free.is_finished() {
                assert_eq!(c!(vmaCheckCorruption(rig.allocator, u32::MAX)), DONE);
            }
        });
    }
    c!(vmaDestroyPool(rig.allocator, pool));
}

#[test]
fn margins_are_laid_before_a_check_sees_them() {
    let mut program = program();
    (program.debug_margin, program.detect_corruption) = (64 * KIB, 1);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 256 * KIB, ..pool_info(rig.host_type()) });
    let (allocator, number) = (rig.allocator.0.addr(), pool.0.addr());
    std::thread::scope(|scope| {
        let make = scope.spawn(|| {
            let of = VmaAllocator(ptr::without_provenance_mut(allocator));
            let pool = VmaPool(ptr::without_provenance_mut(number));
            let zeroes = vec![0u8; 128 << 10];
            // The bytes of the long one are the margin of the short one.
            for size in [128 * KIB, 64].into_iter().cycle().take(100) {
                let asked =
                    vk::MemoryRequirements { size, alignment: 1, memory_type_bits: u32::MAX };
                let inside = VmaAllocationCreateInfo { pool, ..wanted() };
                let (mut one, none) = (VmaAllocation::NULL, ptr::null_mut());
                assert_eq!(c!(vmaAllocateMemory(of, &asked, &inside, &mut one, none)), DONE);
                let from = zeroes.as_ptr().cast();
                assert_eq!(c!(vmaCopyMemoryToAllocation(of, from, one, 0, size)), DONE);
                c!(vmaFreeMemory(of, one));
            }
        });
        while !make.is_finished() {
            assert_eq!(c!(vmaCheckCorruption(rig.allocator, u32::MAX)), DONE);
        }
    });
    c!(vmaDestroyPool(rig.allocator, pool));
}

fn report(rig: &Rig) -> String {
    let manager = c!(omniheap_vma_manager(rig.allocator));
    let (mut text, mut length) = (vec![0u8; 1 << 20], 0);
    let (to, room) = (text.as_mut_ptr().cast(), text.len());
    let status = c!(omniheap_c::omniheap_report_json(manager, to, room, &mut length));
    assert_eq!(status, omniheap_c::OmniheapStatus::Ok);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Moves everything that a pass plans, without a copy: nobody reads the bytes.
fn defragment(rig: &Rig, pool: VmaPool) -> u32 {
    // SAFETY: all bits zero are null handles and no limits.
    let mut info: VmaDefragmentationInfo = unsafe { core::mem::zeroed() };
    (info.pool, info.flags) = (pool, VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT);
    let mut context = VmaDefragmentationContext::NULL;
    assert_eq!(c!(vmaBeginDefragmentation(rig.allocator, &info, &mut context)), DONE);
    // SAFETY: all bits zero are no moves.
    let mut pass: VmaDefragmentationPassMoveInfo = unsafe { core::mem::zeroed() };
    let more = vk::Result::INCOMPLETE;
    while c!(vmaBeginDefragmentationPass(rig.allocator, context, &mut pass)) == more {
        if c!(vmaEndDefragmentationPass(rig.allocator, context, &mut pass)) == DONE {
            break;
        }
    }
    let mut stats = VmaDefragmentationStats::default();
    c!(vmaEndDefragmentation(rig.allocator, context, &mut stats));
    stats.allocations_moved
}

#[test]
fn what_was_moved_keeps_its_name_in_every_report() {
    let Some(rig) = Rig::open() else { return };
    let info = VmaPoolCreateInfo { block_size: 64 * KIB, ..pool_info(rig.host_type()) };
    let pool = rig.pool(&info);
    let inside = VmaAllocationCreateInfo { pool, ..wanted() };
    let live: Vec<_> = (0..8).map(|_| memory(&rig, 16 * KIB, &inside)).collect();
    let (gone, left): (Vec<_>, Vec<_>) = (0..8).zip(live).partition(|(at, _)| at % 2 == 0);
    gone.into_iter().for_each(|(_, one)| c!(vmaFreeMemory(rig.allocator, one)));
    let name = |at: i32| format!("wandering {at}\0");
    for (at, one) in &left {
        c!(vmaSetAllocationName(rig.allocator, *one, name(*at).as_ptr().cast()));
    }
    let named = || {
        let report = report(&rig);
        left.iter().filter(|(at, _)| report.contains(name(*at).trim_end_matches('\0'))).count()
    };
    assert_eq!(named(), 4);
    assert!(defragment(&rig, pool) > 0);
    assert_eq!(named(), 4);
    left.iter().for_each(|(_, one)| c!(vmaFreeMemory(rig.allocator, *one)));
    c!(vmaDestroyPool(rig.allocator, pool));
}

#[test]
fn what_was_moved_has_a_margin_at_its_new_place() {
    let mut program = program();
    (program.debug_margin, program.detect_corruption) = (16, 1);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    let info = VmaPoolCreateInfo { block_size: 64 * KIB, ..pool_info(rig.host_type()) };
    let pool = rig.pool(&info);
    let inside = VmaAllocationCreateInfo { pool, ..wanted() };
    // The freed allocations are larger, so that none of their margins lies at a checked place.
    let live = [24, 16, 24, 16, 24, 16].map(|size| memory(&rig, size * KIB, &inside));
    let (gone, left): (Vec<_>, Vec<_>) = (0..6).zip(live).partition(|(at, _)| at % 2 == 0);
    gone.into_iter().for_each(|(_, one)| c!(vmaFreeMemory(rig.allocator, one)));
    assert!(defragment(&rig, pool) > 0);
    assert_eq!(c!(vmaCheckCorruption(rig.allocator, u32::MAX)), DONE);
    left.iter().for_each(|(_, one)| c!(vmaFreeMemory(rig.allocator, *one)));
    c!(vmaDestroyPool(rig.allocator, pool));
}

/// A program whose standard error is full is told nothing, and goes on.
#[test]
fn a_refusal_that_nobody_can_read_ends_nothing() {
    const CHILD: &str = "OMNIHEAP_TEST_REFUSES";
    if std::env::var_os(CHILD).is_some() {
        c!(vmaFreeMemory(VmaAllocator(ptr::without_provenance_mut(4097)), VmaAllocation::NULL));
        return;
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own);
    child.args(["--exact", "--nocapture", "a_refusal_that_nobody_can_read_ends_nothing"]);
    let done = child.env(CHILD, "1").stderr(full).output().expect("it starts");
    assert!(done.status.success(), "{done:?}");
}

static TOLD: AtomicU64 = AtomicU64::new(0);

/// Tells that a MiB of 64 is used, whatever is allocated.
unsafe extern "system" fn told_small(
    physical: vk::PhysicalDevice,
    to: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    TOLD.fetch_add(1, Relaxed);
    // SAFETY: the caller's structure.
    let shown = unsafe { &mut *to };
    real_memory(physical, &mut shown.memory_properties);
    let budget = shown.p_next.cast::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>();
    // SAFETY: whoever asks for budgets chains the structure for them, and nothing else.
    let budget = unsafe { &mut *budget };
    budget.heap_budget = [65536 * KIB; vk::MAX_MEMORY_HEAPS];
    budget.heap_usage = [1024 * KIB; vk::MAX_MEMORY_HEAPS];
}

#[test]
fn requests_within_the_budget_share_an_answer_of_the_driver() {
    let mut program = program();
    program.functions.vk_get_physical_device_memory_properties2_khr = Some(told_small);
    program.functions.vk_get_instance_proc_addr = Some(find);
    let mut info = rig::described();
    info.flags = VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT;
    let Some(rig) = Rig::open_with(info, Some(program)) else { return };
    let flags =
        VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT | VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT;
    let within = VmaAllocationCreateInfo { flags, ..on_host() };
    let asked =
        vk::MemoryRequirements { size: 10240 * KIB, alignment: 1, memory_type_bits: u32::MAX };
    let before = TOLD.load(Relaxed);
    let take = |_| {
        let mut one = VmaAllocation::NULL;
        let _ = c!(vmaAllocateMemory(rig.allocator, &asked, &within, &mut one, ptr::null_mut()));
        one
    };
    let mut all: Vec<_> = (0..8).map(take).collect();
    let taken = all.iter().filter(|one| !one.is_null()).count();
    assert_eq!(taken, 6, "of 10 MiB each, beside the one that is used");
    assert_eq!(TOLD.load(Relaxed) - before, 1, "what was taken since is known without it");
    c!(vmaSetCurrentFrameIndex(rig.allocator, 1));
    all.push(memory(&rig, 10240 * KIB, &within));
    assert_eq!(TOLD.load(Relaxed) - before, 2, "a frame asks anew, and is told 1 MiB again");
    all.into_iter().for_each(|one| c!(vmaFreeMemory(rig.allocator, one)));
}

/// A second memory type of the only heap, like the first.
unsafe extern "system" fn two_types(physical: vk::PhysicalDevice, to: *mut MemoryProperties) {
    real_memory(physical, to);
    // SAFETY: written just now.
    let shown = unsafe { &mut *to };
    shown.memory_types[1] = shown.memory_types[0];
    (shown.memory_heap_count, shown.memory_type_count) = (1, 2);
}

/// Allocates from the first type, which the second one is made of.
unsafe extern "system" fn from_the_first(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    to: *mut vk::DeviceMemory,
) -> vk::Result {
    let real = of_loader(c"vkAllocateMemory");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkAllocateMemory = unsafe { core::mem::transmute(real) };
    // SAFETY: the caller's structure.
    let info = vk::MemoryAllocateInfo { memory_type_index: 0, ..unsafe { *info } };
    c!(real(device, &info, callbacks, to))
}

#[test]
fn memory_types_of_a_heap_share_its_limit() {
    let mut program = program();
    program.functions.vk_get_physical_device_memory_properties = Some(two_types);
    program.functions.vk_allocate_memory = Some(from_the_first);
    let mut limits = [vk::WHOLE_SIZE; vk::MAX_MEMORY_HEAPS];
    limits[0] = 16384 * KIB;
    let mut info = rig::described();
    info.p_heap_size_limit = limits.as_ptr();
    let Some(rig) = Rig::open_with(info, Some(program)) else { return };
    let take = |size: u64, memory_type_bits: u32| {
        let asked = vk::MemoryRequirements { size, alignment: 1, memory_type_bits };
        let (mut one, none) = (VmaAllocation::NULL, ptr::null_mut());
        let result = c!(vmaAllocateMemory(rig.allocator, &asked, &wanted(), &mut one, none));
        (result, one)
    };
    let first = take(12288 * KIB, 0b01);
    assert_eq!(first.0, DONE);
    assert_eq!(take(12288 * KIB, 0b10).0, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    assert_eq!(take(12288 * KIB, 0b11).0, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    let small = take(1024 * KIB, 0b10);
    assert_eq!(small.0, DONE, "there is room for it beside");
    c!(vmaFreeMemory(rig.allocator, first.1));
    let second = take(12288 * KIB, 0b10);
    assert_eq!(second.0, DONE);
    for (_, one) in [small, second] {
        c!(vmaFreeMemory(rig.allocator, one));
    }
}

static REFUSALS: AtomicU64 = AtomicU64::new(0);

/// Refuses all memory until `REFUSALS` are used up.
unsafe extern "system" fn refuse(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    to: *mut vk::DeviceMemory,
) -> vk::Result {
    if REFUSALS.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    }
    let real = of_loader(c"vkAllocateMemory");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkAllocateMemory = unsafe { core::mem::transmute(real) };
    c!(real(device, info, callbacks, to))
}

#[test]
fn memory_that_the_driver_refuses_takes_nothing_of_a_limit() {
    let mut program = program();
    program.functions.vk_allocate_memory = Some(refuse);
    let mut limits = [vk::WHOLE_SIZE; vk::MAX_MEMORY_HEAPS];
    limits[0] = 16384 * KIB;
    let mut info = rig::described();
    info.p_heap_size_limit = limits.as_ptr();
    let Some(rig) = Rig::open_with(info, Some(program)) else { return };
    let asked =
        vk::MemoryRequirements { size: 12288 * KIB, alignment: 1, memory_type_bits: u32::MAX };
    let take = || {
        let (mut one, none) = (VmaAllocation::NULL, ptr::null_mut());
        let result = c!(vmaAllocateMemory(rig.allocator, &asked, &wanted(), &mut one, none));
        (result, one)
    };
    REFUSALS.store(u64::MAX, Relaxed);
    for _ in 0..4 {
        assert_eq!(take().0, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    }
    assert!(REFUSALS.swap(0, Relaxed) <= u64::MAX - 4, "the driver was asked each time");
    let (result, one) = take();
    assert_eq!(result, DONE, "the refusals took nothing of the limit");
    assert_eq!(take().0, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, "this took most of it");
    c!(vmaFreeMemory(rig.allocator, one));
}

static MADE: AtomicU64 = AtomicU64::new(0);

unsafe extern "system" fn made(
    device: vk::Device,
    info: *const vk::ImageCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    to: *mut vk::Image,
) -> vk::Result {
    MADE.fetch_add(1, Relaxed);
    let real = of_loader(c"vkCreateImage");
    // SAFETY: a function of this name has this type.
    let real: vk::PFN_vkCreateImage = unsafe { core::mem::transmute(real) };
    c!(real(device, info, callbacks, to))
}

#[test]
fn a_memory_type_is_found_without_the_image() {
    let mut program = program();
    program.functions.vk_create_image = Some(made);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    let (of, auto) =
        (rig.allocator, VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_AUTO, ..wanted() });
    let (info, mut found) = (image_info(4096), u32::MAX);
    assert_eq!(c!(vmaFindMemoryTypeIndexForImageInfo(of, &info, &auto, &mut found)), DONE);
    let by_name = c!(rig
        .instance
        .get_device_proc_addr(rig.device.handle(), c"vkGetDeviceImageMemoryRequirements".as_ptr()));
    let expected = u64::from(by_name.is_none());
    assert_eq!(MADE.load(Relaxed), expected, "only where the driver cannot be asked otherwise");
    let (mut image, mut allocation) = (vk::Image::null(), VmaAllocation::NULL);
    let small = image_info(16);
    let (to, none) = (&mut allocation, ptr::null_mut());
    assert_eq!(c!(vmaCreateImage(of, &small, &auto, &mut image, to, none)), DONE);
    assert_eq!(rig.info(allocation).memory_type, found);
    c!(vmaDestroyImage(of, image, allocation));
}

//! Pools, statistics, reports and defragmentation through the C interface, on the Vulkan driver of this machine.
#![expect(unsafe_code, reason = "calls C functions")]
#[macro_use]
mod rig;

use ash::vk;
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use omniheap_vma::abi::*;
use omniheap_vma::*;
use rig::{Rig, pool_info, wanted};

const KIB: u64 = 1 << 10;
const DONE: vk::Result = vk::Result::SUCCESS;
const FULL: vk::Result = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;

fn in_pool(pool: VmaPool) -> VmaAllocationCreateInfo {
    VmaAllocationCreateInfo { pool, ..wanted() }
}

fn memory(rig: &Rig, size: u64, info: &VmaAllocationCreateInfo) -> (vk::Result, VmaAllocation) {
    let asked = vk::MemoryRequirements { size, alignment: 1, memory_type_bits: u32::MAX };
    let mut allocation = VmaAllocation::NULL;
    let result =
        c!(vmaAllocateMemory(rig.allocator, &asked, info, &mut allocation, ptr::null_mut()));
    (result, allocation)
}

/// Ends a pool in which nothing is live.
fn end(rig: &Rig, pool: VmaPool) {
    c!(vmaDestroyPool(rig.allocator, pool));
}

fn statistics(rig: &Rig, pool: VmaPool) -> (VmaStatistics, VmaDetailedStatistics) {
    let (mut short, mut long) = (VmaStatistics::default(), VmaDetailedStatistics::default());
    c!(vmaGetPoolStatistics(rig.allocator, pool, &mut short));
    c!(vmaCalculatePoolStatistics(rig.allocator, pool, &mut long));
    assert_eq!(short, long.statistics);
    (short, long)
}

#[test]
fn a_pool_keeps_its_limits_and_counts() {
    let Some(rig) = Rig::open() else { return };
    let info = VmaPoolCreateInfo {
        block_size: 1024 * KIB,
        min_block_count: 1,
        max_block_count: 2,
        ..pool_info(rig.host_type())
    };
    let pool = rig.pool(&info);
    assert_eq!(statistics(&rig, pool).0.block_count, 1, "the least is made at once");
    let made: Vec<_> = (0..8).map(|_| memory(&rig, 256 * KIB, &in_pool(pool))).collect();
    assert!(made.iter().all(|(result, _)| *result == DONE));
    assert_eq!(memory(&rig, 256 * KIB, &in_pool(pool)).0, FULL);
    let (short, long) = statistics(&rig, pool);
    assert_eq!((short.block_count, short.allocation_count), (2, 8));
    assert_eq!((short.block_bytes, short.allocation_bytes), (2048 * KIB, 2048 * KIB));
    assert_eq!((long.unused_range_count, long.unused_range_size_min), (0, vk::WHOLE_SIZE));
    end(&rig, pool);
    assert_eq!(statistics(&rig, pool).0.allocation_count, 8, "it is in use, and stays");
    made.iter().for_each(|(_, one)| c!(vmaFreeMemory(rig.allocator, *one)));
    end(&rig, pool);
    let mut name = ptr::null();
    c!(vmaGetPoolName(rig.allocator, pool, &mut name));
    assert!(name.is_null());
    assert_eq!(memory(&rig, 1, &in_pool(pool)).0, vk::Result::ERROR_INITIALIZATION_FAILED);
}

#[test]
fn wrong_pools_are_refused() {
    let Some(rig) = Rig::open() else { return };
    let host = pool_info(rig.host_type());
    let create = |info: VmaPoolCreateInfo| {
        let mut pool = VmaPool::NULL;
        let result = c!(vmaCreatePool(rig.allocator, &info, &mut pool));
        assert!(pool.is_null());
        result
    };
    let (absent, bad) =
        (vk::Result::ERROR_FEATURE_NOT_PRESENT, vk::Result::ERROR_INITIALIZATION_FAILED);
    assert_eq!(create(pool_info(99)), absent);
    assert_eq!(create(VmaPoolCreateInfo { min_block_count: 3, max_block_count: 2, ..host }), bad);
    assert_eq!(create(VmaPoolCreateInfo { min_allocation_alignment: 3, ..host }), bad);
    assert_eq!(create(VmaPoolCreateInfo { block_size: 1 << 62, ..host }), FULL);
    assert_eq!(
        create(VmaPoolCreateInfo { block_size: 1 << 62, min_block_count: usize::MAX, ..host }),
        FULL
    );
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 64 * KIB, ..host });
    let alone = VmaAllocationCreateInfo {
        flags: VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT,
        ..in_pool(pool)
    };
    assert_eq!(memory(&rig, 1, &alone).0, absent);
    let never = VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT;
    assert_eq!(memory(&rig, 1, &VmaAllocationCreateInfo { flags: never, ..in_pool(pool) }).0, FULL);
    let upper = VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT;
    assert_eq!(
        memory(&rig, 1, &VmaAllocationCreateInfo { flags: upper, ..in_pool(pool) }).0,
        absent
    );
    end(&rig, pool);
}

/// A linear pool of one block of a thousand bytes.
fn linear(rig: &Rig) -> VmaPool {
    let flags =
        VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT | VMA_POOL_CREATE_IGNORE_BUFFER_IMAGE_GRANULARITY_BIT;
    let info = pool_info(rig.host_type());
    rig.pool(&VmaPoolCreateInfo { flags, block_size: 1000, max_block_count: 1, ..info })
}

/// Takes bytes; returns the offset, too.
fn take(rig: &Rig, pool: VmaPool, size: u64, flags: u32) -> Option<(VmaAllocation, u64)> {
    let (result, one) = memory(rig, size, &VmaAllocationCreateInfo { flags, ..in_pool(pool) });
    (result == DONE).then(|| (one, rig.info(one).offset))
}

#[test]
fn a_linear_pool_is_a_stack_and_a_ring() {
    let Some(rig) = Rig::open() else { return };
    let pool = linear(&rig);
    let free = |one: VmaAllocation| c!(vmaFreeMemory(rig.allocator, one));
    let mut live: Vec<_> = (0..10).filter_map(|_| take(&rig, pool, 100, 0)).collect();
    assert!(live.iter().map(|(_, at)| *at).eq((0..10).map(|at| at * 100)));
    assert!(take(&rig, pool, 100, 0).is_none());
    live.drain(..2).for_each(|(one, _)| free(one));
    live.extend(take(&rig, pool, 150, 0));
    assert_eq!(live.last().map(|(_, at)| *at), Some(0), "around");
    assert!(take(&rig, pool, 100, 0).is_none());
    live.drain(..).for_each(|(one, _)| free(one));
    assert_eq!(take(&rig, pool, 1000, 0).map(|(one, at)| (free(one), at)), Some(((), 0)));
    assert_eq!(statistics(&rig, pool).0.block_count, 1);
    end(&rig, pool);
}

#[test]
fn a_linear_pool_is_two_stacks() {
    let Some(rig) = Rig::open() else { return };
    let pool = linear(&rig);
    let mapped = VMA_ALLOCATION_CREATE_MAPPED_BIT;
    let top =
        take(&rig, pool, 100, VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT | mapped).expect("room");
    let bottom = take(&rig, pool, 100, mapped).expect("room");
    assert_eq!((top.1, bottom.1), (900, 0));
    let host = |one| rig.info(one).p_mapped_data.addr();
    assert_eq!(host(top.0) - host(bottom.0), 900);
    assert!(take(&rig, pool, 801, 0).is_none());
    for (one, _) in [top, bottom] {
        c!(vmaFreeMemory(rig.allocator, one));
    }
    end(&rig, pool);
}

#[test]
fn a_report_shows_pools_and_names() {
    let Some(rig) = Rig::open() else { return };
    let pool = linear(&rig);
    c!(vmaSetPoolName(rig.allocator, pool, c"frames".as_ptr()));
    let (one, _) = take(&rig, pool, 100, 0).expect("room");
    c!(vmaSetAllocationName(rig.allocator, one, c"first \"half\"".as_ptr()));
    let mut text = ptr::null_mut();
    c!(vmaBuildStatsString(rig.allocator, &mut text, vk::TRUE));
    let report: serde_json::Value =
        serde_json::from_str(c!(CStr::from_ptr(text)).to_str().expect("UTF-8")).expect("JSON");
    let home = &report["CustomPools"][format!("Type {}", rig.host_type())][0];
    assert_eq!(home["Name"], "0 - frames");
    let block = &home["Blocks"]["0"];
    assert_eq!((&block["TotalBytes"], &block["UnusedBytes"]), (&1000.into(), &900.into()));
    let first = &block["Suballocations"][0];
    assert_eq!((&first["Type"], &first["Name"]), (&"UNKNOWN".into(), &"first \"half\"".into()));
    assert_eq!(report["Total"]["AllocationBytes"], 100);
    assert!(report["MemoryInfo"]["Heap 0"]["Budget"]["UsageBytes"].is_u64());
    vmaFreeStatsString(rig.allocator, text);
    vmaFreeStatsString(rig.allocator, text);
    c!(vmaFreeMemory(rig.allocator, one));
    end(&rig, pool);
}

/// Bytes of driver allocations that the callbacks were told of.
static HELD: AtomicI64 = AtomicI64::new(0);

unsafe extern "system" fn grown(
    _: VmaAllocator,
    _: u32,
    _: vk::DeviceMemory,
    size: u64,
    to: *mut c_void,
) {
    assert_eq!(to.addr(), 7);
    HELD.fetch_add(i64::try_from(size).expect("a small number"), Relaxed);
}

unsafe extern "system" fn shrunk(
    allocator: VmaAllocator,
    _: u32,
    _: vk::DeviceMemory,
    size: u64,
    _: *mut c_void,
) {
    let mut memory = ptr::null();
    c!(vmaGetMemoryProperties(allocator, &mut memory));
    assert!(!memory.is_null(), "the handle is good in callbacks, to the last");
    HELD.fetch_sub(i64::try_from(size).expect("a small number"), Relaxed);
}

#[test]
fn budgets_and_callbacks_see_every_driver_allocation() {
    let told = VmaDeviceMemoryCallbacks {
        pfn_allocate: Some(grown),
        pfn_free: Some(shrunk),
        p_user_data: ptr::without_provenance_mut(7),
    };
    let limits = [16384 * KIB; vk::MAX_MEMORY_HEAPS];
    let info = VmaAllocatorCreateInfo {
        p_device_memory_callbacks: &told,
        p_heap_size_limit: limits.as_ptr(),
        ..rig::described()
    };
    let Some(rig) = Rig::open_with(info, None) else { return };
    let host = VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_CPU_ONLY, ..wanted() };
    let one = memory(&rig, 12288 * KIB, &host);
    assert_eq!(one.0, DONE);
    assert!(HELD.load(Relaxed) >= 12288 << 10);
    let heap = rig
        .budgets()
        .into_iter()
        .find(|heap| heap.statistics.block_count > 0)
        .expect("a heap in use");
    assert_eq!(
        i64::try_from(heap.statistics.block_bytes).expect("a small number"),
        HELD.load(Relaxed)
    );
    assert!(heap.usage >= heap.statistics.block_bytes && heap.budget <= 16384 * KIB);
    assert_eq!(memory(&rig, 8192 * KIB, &host).0, FULL, "beyond the limit");
    let within = VmaAllocationCreateInfo { flags: VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT, ..host };
    assert_eq!(memory(&rig, 3072 * KIB, &within).0, FULL, "beyond the budget");
    c!(vmaFreeMemory(rig.allocator, one.1));
    let small = memory(&rig, 1000, &host);
    c!(vmaFreeMemory(rig.allocator, small.1));
    assert!(HELD.load(Relaxed) > 0, "a block is held for what comes next");
    drop(rig);
    assert_eq!(HELD.load(Relaxed), 0);
}

/// Runs all passes, as a program that copies by the host.
fn defragment(rig: &Rig, pool: VmaPool, flags: u32, most: u32) -> VmaDefragmentationStats {
    let mut info: VmaDefragmentationInfo = c!(core::mem::zeroed());
    (info.pool, info.flags, info.max_allocations_per_pass) = (pool, flags, most);
    let mut context = VmaDefragmentationContext::NULL;
    assert_eq!(c!(vmaBeginDefragmentation(rig.allocator, &info, &mut context)), DONE);
    let mut pass: VmaDefragmentationPassMoveInfo = c!(core::mem::zeroed());
    while c!(vmaBeginDefragmentationPass(rig.allocator, context, &mut pass))
        == vk::Result::INCOMPLETE
    {
        let moves = c!(core::slice::from_raw_parts(pass.p_moves, pass.move_count as usize));
        assert!(most == 0 || moves.len() <= most as usize);
        for one in moves {
            let size = rig.info(one.src_allocation).size;
            let mut bytes = vec![0u8; usize::try_from(size).expect("a small number")];
            let (of, to) = (rig.allocator, bytes.as_mut_ptr().cast::<c_void>());
            assert_eq!(c!(vmaCopyAllocationToMemory(of, one.src_allocation, 0, to, size)), DONE);
            assert_eq!(
                c!(vmaCopyMemoryToAllocation(of, to, one.dst_tmp_allocation, 0, size)),
                DONE
            );
        }
        if c!(vmaEndDefragmentationPass(rig.allocator, context, &mut pass)) == DONE {
            break;
        }
    }
    let mut stats = VmaDefragmentationStats::default();
    c!(vmaEndDefragmentation(rig.allocator, context, &mut stats));
    stats
}

/// Memory of which each byte is `value`.
fn filled(rig: &Rig, size: u64, info: &VmaAllocationCreateInfo, value: u8) -> VmaAllocation {
    let (result, one) = memory(rig, size, info);
    assert_eq!(result, DONE);
    let bytes = vec![value; usize::try_from(size).expect("a small number")];
    let copied = c!(vmaCopyMemoryToAllocation(rig.allocator, bytes.as_ptr().cast(), one, 0, size));
    assert_eq!(copied, DONE);
    one
}

#[test]
fn defragmentation_empties_blocks_and_keeps_the_bytes() {
    let Some(rig) = Rig::open() else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 256 * KIB, ..pool_info(rig.host_type()) });
    let info = in_pool(pool);
    let mut live: Vec<_> = (0..64u8).map(|at| (at, filled(&rig, 16 * KIB, &info, at))).collect();
    assert_eq!(statistics(&rig, pool).0.block_count, 4);
    live.retain(|(at, one)| {
        let stays = at % 4 == 0;
        if !stays {
            c!(vmaFreeMemory(rig.allocator, *one));
        }
        stays
    });
    let stats = defragment(&rig, pool, 0, 3);
    assert!(stats.allocations_moved > 0 && stats.device_memory_blocks_freed >= 2, "{stats:?}");
    assert_eq!(stats.bytes_moved, u64::from(stats.allocations_moved) * 16 * KIB);
    assert!(statistics(&rig, pool).0.block_count <= 2);
    for (value, one) in &live {
        let mut bytes = vec![0u8; 16 << 10];
        let to = bytes.as_mut_ptr().cast();
        assert_eq!(c!(vmaCopyAllocationToMemory(rig.allocator, *one, 0, to, 16 * KIB)), DONE);
        assert!(bytes.iter().all(|byte| byte == value));
        c!(vmaFreeMemory(rig.allocator, *one));
    }
    assert_eq!(defragment(&rig, VmaPool::NULL, 0, 0).allocations_moved, 0, "nothing is left");
    let mut pass: VmaDefragmentationPassMoveInfo = c!(core::mem::zeroed());
    let stale = VmaDefragmentationContext(ptr::without_provenance_mut(1 << 44));
    let begun = c!(vmaBeginDefragmentationPass(rig.allocator, stale, &mut pass));
    assert_eq!(begun, vk::Result::ERROR_INITIALIZATION_FAILED);
    end(&rig, pool);
}

#[test]
fn two_blocks_that_are_half_full_become_one() {
    let Some(rig) = Rig::open() else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 512 * KIB, ..pool_info(rig.host_type()) });
    let all: Vec<_> = (0..16u8).map(|at| filled(&rig, 64 * KIB, &in_pool(pool), at)).collect();
    let free = |one: &VmaAllocation| c!(vmaFreeMemory(rig.allocator, *one));
    all.iter().skip(1).step_by(2).for_each(free);
    let fast = VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FAST_BIT;
    let stats = defragment(&rig, pool, fast, 0);
    assert_eq!((stats.allocations_moved, stats.bytes_moved), (4, 256 * KIB));
    assert_eq!((stats.device_memory_blocks_freed, stats.bytes_freed), (1, 512 * KIB));
    all.iter().step_by(2).for_each(free);
    end(&rig, pool);
}

/// Four blocks of 25 places each, of which every second is freed: 12, 13, 12 and 13 live.
#[test]
fn nothing_moves_inside_a_block_that_empties() {
    let Some(rig) = Rig::open() else { return };
    let blocks = VmaPoolCreateInfo { block_size: 100 * KIB, ..pool_info(rig.host_type()) };
    let pool = rig.pool(&blocks);
    let take = || memory(&rig, 4 * KIB, &in_pool(pool)).1;
    let free = |one: &VmaAllocation| c!(vmaFreeMemory(rig.allocator, *one));
    let all: Vec<_> = (0..100).map(|_| take()).collect();
    // Once more, after frees in another order: what a strategy has seen before decides nothing.
    all.iter().rev().for_each(free);
    let all: Vec<_> = (0..100).map(|_| take()).collect();
    all.iter().step_by(2).for_each(free);
    let full = VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT;
    let stats = defragment(&rig, pool, full, 0);
    assert_eq!((stats.allocations_moved, stats.device_memory_blocks_freed), (24, 2), "{stats:?}");
    all.iter().skip(1).step_by(2).for_each(free);
    end(&rig, pool);
}

#[test]
fn holes_inside_a_block_are_closed_by_the_fewest_moves() {
    let Some(rig) = Rig::open() else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 256 * KIB, ..pool_info(rig.host_type()) });
    let all: Vec<_> = (0..30u8).map(|at| filled(&rig, 4 * KIB, &in_pool(pool), at)).collect();
    let free = |one: &VmaAllocation| c!(vmaFreeMemory(rig.allocator, *one));
    (0..15).map(|at| at * 4 % 15 * 2).for_each(|at: usize| free(&all[at]));
    let live: Vec<_> = all.into_iter().skip(1).step_by(2).collect();
    let fast = defragment(&rig, pool, VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FAST_BIT, 0);
    assert_eq!(fast.allocations_moved, 0, "there is one block");
    let stats = defragment(&rig, pool, VMA_DEFRAGMENTATION_FLAG_ALGORITHM_EXTENSIVE_BIT, 2);
    assert_eq!((stats.allocations_moved, stats.bytes_moved), (8, 32 * KIB));
    let mut places: Vec<_> = live.iter().map(|one| rig.info(*one).offset / (4 * KIB)).collect();
    places.sort_unstable();
    assert_eq!(places, (0..15).collect::<Vec<_>>());
    live.iter().for_each(free);
    end(&rig, pool);
}

#[test]
fn of_two_empty_blocks_one_goes_back() {
    let Some(rig) = Rig::open() else { return };
    let info = pool_info(rig.host_type());
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 1024 * KIB, min_block_count: 2, ..info });
    let all: Vec<_> = (0..5).map(|_| memory(&rig, 512 * KIB, &in_pool(pool)).1).collect();
    let free = |one: &VmaAllocation| c!(vmaFreeMemory(rig.allocator, *one));
    all[..2].iter().for_each(free);
    assert_eq!(statistics(&rig, pool).0.block_count, 3, "one that is empty stays");
    free(&all[4]);
    assert_eq!(statistics(&rig, pool).0.block_count, 2);
    all[2..4].iter().for_each(free);
    assert_eq!(statistics(&rig, pool).0.block_count, 2, "the least stays");
    end(&rig, pool);
}

#[test]
fn the_manager_behind_an_allocator_is_within_reach() {
    let Some(rig) = Rig::open() else { return };
    let host = VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_CPU_ONLY, ..wanted() };
    let one = memory(&rig, 1000, &host).1;
    let manager = c!(omniheap_vma_manager(rig.allocator));
    assert_eq!(c!(omniheap_vma_manager(rig.allocator)), manager);
    assert_eq!(c!(omniheap_vma_manager(VmaAllocator::NULL)).id, 0);
    let mut length = 0;
    let status = c!(omniheap_c::omniheap_report_json(manager, ptr::null_mut(), 0, &mut length));
    assert!(length > 100, "{status:?}");
    c!(vmaFreeMemory(rig.allocator, one));
    drop(rig);
    let mut count = 0;
    let status = c!(omniheap_c::omniheap_heap_count(manager, &mut count));
    assert_eq!(status, omniheap_c::OmniheapStatus::Stale);
}

#[test]
fn a_write_behind_the_end_is_found() {
    let mut program: OmniheapVmaProgram = c!(core::mem::zeroed());
    program.size = size_of::<OmniheapVmaProgram>();
    (program.layout, program.dynamic_functions) = (3004, 1);
    (program.debug_margin, program.detect_corruption) = (16, 1);
    let Some(rig) = Rig::open_with(rig::described(), Some(program)) else { return };
    let mapped = VmaAllocationCreateInfo {
        usage: VMA_MEMORY_USAGE_CPU_ONLY,
        flags: VMA_ALLOCATION_CREATE_MAPPED_BIT,
        ..wanted()
    };
    let one = memory(&rig, 100, &mapped).1;
    assert_eq!(c!(vmaCheckCorruption(rig.allocator, u32::MAX)), DONE);
    let data = rig.info(one).p_mapped_data.cast::<u8>();
    let before = c!(data.wrapping_add(100).read());
    c!(data.wrapping_add(100).write(1));
    assert_eq!(c!(vmaCheckCorruption(rig.allocator, u32::MAX)), vk::Result::ERROR_UNKNOWN);
    c!(data.wrapping_add(100).write(before));
    assert_eq!(c!(vmaCheckCorruption(rig.allocator, 0)), vk::Result::ERROR_FEATURE_NOT_PRESENT);
    c!(vmaFreeMemory(rig.allocator, one));
}

/// Runs `work` while other threads free and take memory of a pool.
fn beside_threads(rig: &Rig, info: &VmaAllocationCreateInfo, mut work: impl FnMut()) {
    let ends = AtomicBool::new(false);
    let (allocator, pool) = (rig.allocator.0.addr(), info.pool.0.addr());
    let churn = || {
        let of = VmaAllocator(ptr::without_provenance_mut(allocator));
        let info = in_pool(VmaPool(ptr::without_provenance_mut(pool)));
        let mut live = [VmaAllocation::NULL; 301];
        for at in (0..live.len()).cycle().take_while(|_| !ends.load(Relaxed)) {
            c!(vmaFreeMemory(of, live[at]));
            let size = 256 << (at % 5);
            let asked = vk::MemoryRequirements { size, alignment: 1, memory_type_bits: u32::MAX };
            let _ = c!(vmaAllocateMemory(of, &asked, &info, &mut live[at], ptr::null_mut()));
        }
        live.into_iter().for_each(|one| c!(vmaFreeMemory(of, one)));
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(churn)));
        work();
        ends.store(true, Relaxed);
    });
}

#[test]
fn sums_are_told_while_other_threads_free() {
    let Some(rig) = Rig::open() else { return };
    let pool =
        rig.pool(&VmaPoolCreateInfo { block_size: 8192 * KIB, ..pool_info(rig.host_type()) });
    let info = in_pool(pool);
    let stays = memory(&rig, 256, &info).1;
    let mut least = u32::MAX;
    beside_threads(&rig, &info, || {
        for _ in 0..100 {
            least = least.min(rig.total().statistics.allocation_count);
        }
    });
    assert!((1..u32::MAX).contains(&least), "{least}");
    c!(vmaFreeMemory(rig.allocator, stays));
    end(&rig, pool);
}

#[test]
fn passes_name_their_sources_while_other_threads_free() {
    let Some(rig) = Rig::open() else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 16 * KIB, ..pool_info(rig.host_type()) });
    let mut info: VmaDefragmentationInfo = c!(core::mem::zeroed());
    info.pool = pool;
    let mut nulls = 0;
    beside_threads(&rig, &in_pool(pool), || {
        for _ in 0..100 {
            let mut context = VmaDefragmentationContext::NULL;
            assert_eq!(c!(vmaBeginDefragmentation(rig.allocator, &info, &mut context)), DONE);
            let mut pass: VmaDefragmentationPassMoveInfo = c!(core::mem::zeroed());
            let _ = c!(vmaBeginDefragmentationPass(rig.allocator, context, &mut pass));
            if pass.move_count > 0 {
                let count = pass.move_count as usize;
                let moves = c!(core::slice::from_raw_parts_mut(pass.p_moves, count));
                for one in moves {
                    nulls += u32::from(one.src_allocation.is_null());
                    one.operation = VMA_DEFRAGMENTATION_MOVE_OPERATION_IGNORE;
                }
                let _ = c!(vmaEndDefragmentationPass(rig.allocator, context, &mut pass));
            }
            c!(vmaEndDefragmentation(rig.allocator, context, ptr::null_mut()));
        }
    });
    assert_eq!(nulls, 0);
    assert_eq!(statistics(&rig, pool).0.allocation_count, 0);
    end(&rig, pool);
}

#[test]
fn what_is_mapped_during_a_pass_stays_mapped() {
    let Some(rig) = Rig::open() else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 128 * KIB, ..pool_info(rig.host_type()) });
    let all: Vec<_> = (0..4).map(|_| memory(&rig, 64 * KIB, &in_pool(pool)).1).collect();
    let free = |one: VmaAllocation| c!(vmaFreeMemory(rig.allocator, one));
    [all[0], all[3]].into_iter().for_each(free);
    let mut info: VmaDefragmentationInfo = c!(core::mem::zeroed());
    info.pool = pool;
    let mut context = VmaDefragmentationContext::NULL;
    assert_eq!(c!(vmaBeginDefragmentation(rig.allocator, &info, &mut context)), DONE);
    let mut pass: VmaDefragmentationPassMoveInfo = c!(core::mem::zeroed());
    let begun = c!(vmaBeginDefragmentationPass(rig.allocator, context, &mut pass));
    assert_eq!((begun, pass.move_count), (vk::Result::INCOMPLETE, 1));
    let moved = c!((*pass.p_moves).src_allocation);
    let mut data = ptr::null_mut();
    assert_eq!(c!(vmaMapMemory(rig.allocator, moved, &mut data)), DONE);
    let _ = c!(vmaEndDefragmentationPass(rig.allocator, context, &mut pass));
    let now = rig.info(moved).p_mapped_data;
    assert!(!now.is_null() && now != data);
    c!(vmaUnmapMemory(rig.allocator, moved));
    c!(vmaEndDefragmentation(rig.allocator, context, ptr::null_mut()));
    [all[1], all[2]].into_iter().for_each(free);
    end(&rig, pool);
}

#[test]
fn a_pass_passes_over_what_is_too_large_for_it() {
    let Some(rig) = Rig::open() else { return };
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 256 * KIB, ..pool_info(rig.host_type()) });
    let sizes = [160, 96, 16, 64, 176].map(|size| size * KIB);
    let all = sizes.map(|size| memory(&rig, size, &in_pool(pool)).1);
    let free = |one: VmaAllocation| c!(vmaFreeMemory(rig.allocator, one));
    // A small and a large allocation of the second block stay. The first block has room for both.
    [all[1], all[4]].into_iter().for_each(free);
    let mut info: VmaDefragmentationInfo = c!(core::mem::zeroed());
    (info.pool, info.max_bytes_per_pass) = (pool, 32 * KIB);
    let mut context = VmaDefragmentationContext::NULL;
    assert_eq!(c!(vmaBeginDefragmentation(rig.allocator, &info, &mut context)), DONE);
    let mut pass: VmaDefragmentationPassMoveInfo = c!(core::mem::zeroed());
    let _ = c!(vmaBeginDefragmentationPass(rig.allocator, context, &mut pass));
    assert_eq!(pass.move_count, 1, "the small one");
    assert_eq!(c!((*pass.p_moves).src_allocation), all[2]);
    c!(vmaEndDefragmentation(rig.allocator, context, ptr::null_mut()));
    [all[0], all[2], all[3]].into_iter().for_each(free);
    end(&rig, pool);
}

#[test]
fn a_full_pool_serves_threads_that_are_new_to_it() {
    let Some(rig) = Rig::open() else { return };
    let info = VmaPoolCreateInfo {
        block_size: 1000 * KIB + 1,
        min_block_count: 1,
        max_block_count: 1,
        ..pool_info(rig.host_type())
    };
    let pool = rig.pool(&info);
    assert_eq!(statistics(&rig, pool).0.block_count, 1);
    let (allocator, number) = (rig.allocator.0.addr(), pool.0.addr());
    let all = std::thread::spawn(move || {
        let of = VmaAllocator(ptr::without_provenance_mut(allocator));
        let info = in_pool(VmaPool(ptr::without_provenance_mut(number)));
        let size = 1000 * KIB + 1;
        let asked = vk::MemoryRequirements { size, alignment: 1, memory_type_bits: u32::MAX };
        let mut one = VmaAllocation::NULL;
        let _ = c!(vmaAllocateMemory(of, &asked, &info, &mut one, ptr::null_mut()));
        one.0.addr()
    });
    let all = VmaAllocation(ptr::without_provenance_mut(all.join().expect("no panic")));
    assert!(!all.is_null(), "the whole block, by a thread that has no lane of it yet");
    c!(vmaFreeMemory(rig.allocator, all));
    end(&rig, pool);
}

#[test]
fn the_lowest_place_is_given_where_that_is_asked_for() {
    let Some(rig) = Rig::open() else { return };
    let info = pool_info(rig.host_type());
    let pool = rig.pool(&VmaPoolCreateInfo { block_size: 256 * KIB, ..info });
    let wanted = VmaAllocationCreateInfo {
        flags: VMA_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT,
        ..in_pool(pool)
    };
    for limit in
        [0, VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT, VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT]
    {
        let mut all: Vec<_> = (0..6).map(|_| memory(&rig, 8 * KIB, &wanted).1).collect();
        for at in [0, 2, 4] {
            c!(vmaFreeMemory(rig.allocator, all[at]));
        }
        let wanted = VmaAllocationCreateInfo { flags: wanted.flags | limit, ..wanted };
        for at in [0, 2, 4] {
            let (result, one) = memory(&rig, 8 * KIB, &wanted);
            assert_eq!(result, DONE);
            assert_eq!(rig.info(one).offset, at * 8 * KIB, "{limit:#x}");
            all[usize::try_from(at).expect("a small number")] = one;
        }
        // What no hole has room for is new, if the pool may grow.
        let (result, large) = memory(&rig, 256 * KIB, &wanted);
        let never = limit == VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT;
        assert_eq!(result, if never { FULL } else { DONE });
        all.into_iter().chain([large]).for_each(|one| c!(vmaFreeMemory(rig.allocator, one)));
    }
    end(&rig, pool);
}

#[test]
fn pools_give_alignments_above_a_mebibyte() {
    let Some(rig) = Rig::open() else { return };
    let blocks = VmaPoolCreateInfo {
        block_size: 16384 * KIB,
        max_block_count: 1,
        ..pool_info(rig.host_type())
    };
    let pool = rig.pool(&blocks);
    let small = memory(&rig, KIB, &in_pool(pool)).1;
    let aligned = VmaAllocationCreateInfo { min_alignment: 4096 * KIB, ..in_pool(pool) };
    let large = [(); 3].map(|()| memory(&rig, 1024 * KIB, &aligned));
    for (result, one) in large {
        assert_eq!((result, rig.info(one).offset % (4096 * KIB)), (DONE, 0));
    }
    assert_eq!(memory(&rig, KIB, &aligned).0, FULL);
    let all = large.into_iter().map(|(_, one)| one).chain([small]);
    all.for_each(|one| c!(vmaFreeMemory(rig.allocator, one)));
    end(&rig, pool);
}

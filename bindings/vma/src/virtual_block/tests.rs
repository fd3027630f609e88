use super::*;
use crate::abi::VMA_VIRTUAL_BLOCK_CREATE_LINEAR_ALGORITHM_BIT as LINEAR;
use core::ffi::CStr;
use vk::Result as R;

fn create(size: u64, flags: u32) -> (vk::Result, VmaVirtualBlock) {
    let info = VmaVirtualBlockCreateInfo { size, flags, p_allocation_callbacks: ptr::null() };
    let mut block = VmaVirtualBlock(ptr::without_provenance_mut(77));
    // SAFETY: both live until the call returns.
    let result = unsafe { vmaCreateVirtualBlock(&raw const info, &raw mut block) };
    (result, block)
}

fn take(block: VmaVirtualBlock, size: u64, alignment: u64, flags: u32) -> (vk::Result, u64, u64) {
    let p_user_data = ptr::without_provenance_mut(usize::try_from(size % 4096).unwrap_or(0));
    let info = VmaVirtualAllocationCreateInfo { size, alignment, flags, p_user_data };
    let (mut part, mut offset) = (77, 77);
    // SAFETY: all three live until the call returns.
    let result =
        unsafe { vmaVirtualAllocate(block, &raw const info, &raw mut part, &raw mut offset) };
    (result, part, offset)
}

fn info(block: VmaVirtualBlock, part: u64) -> (u64, u64, usize) {
    let mut info = VmaVirtualAllocationInfo { offset: 7, size: 7, p_user_data: ptr::null_mut() };
    // SAFETY: it lives until the call returns.
    unsafe { vmaGetVirtualAllocationInfo(block, part, &raw mut info) };
    (info.offset, info.size, info.p_user_data.addr())
}

fn statistics(block: VmaVirtualBlock) -> VmaDetailedStatistics {
    let mut all = VmaDetailedStatistics::default();
    // SAFETY: it lives until the call returns.
    unsafe { vmaCalculateVirtualBlockStatistics(block, &raw mut all) };
    let mut few = VmaStatistics::default();
    // SAFETY: it lives until the call returns.
    unsafe { vmaGetVirtualBlockStatistics(block, &raw mut few) };
    assert_eq!(few, all.statistics);
    all
}

#[test]
fn a_block_is_divided_and_told_about() {
    let (result, block) = create(1000, 0);
    assert_eq!((result, vmaIsVirtualBlockEmpty(block)), (R::SUCCESS, vk::TRUE));
    let (first, second) = (take(block, 100, 0, 0), take(block, 200, 64, 0));
    assert_eq!((first.0, first.2, second.0, second.2), (R::SUCCESS, 0, R::SUCCESS, 128));
    assert_eq!((info(block, first.1), info(block, second.1)), ((0, 100, 100), (128, 200, 200)));
    vmaSetVirtualAllocationUserData(block, first.1, ptr::without_provenance_mut(9));
    assert_eq!(info(block, first.1), (0, 100, 9));
    let all = statistics(block);
    assert_eq!((all.statistics.allocation_count, all.statistics.allocation_bytes), (2, 300));
    assert_eq!((all.statistics.block_count, all.statistics.block_bytes), (1, 1000));
    assert_eq!((all.allocation_size_min, all.allocation_size_max), (100, 200));
    let holes = (all.unused_range_count, all.unused_range_size_min, all.unused_range_size_max);
    assert_eq!(holes, (2, 28, 672));
    assert_eq!(take(block, 700, 1, 0), (R::ERROR_OUT_OF_DEVICE_MEMORY, 0, u64::MAX));
    vmaVirtualFree(block, first.1);
    vmaVirtualFree(block, 0);
    vmaClearVirtualBlock(block);
    assert_eq!(vmaIsVirtualBlockEmpty(block), vk::TRUE);
    assert_eq!(statistics(block).allocation_size_min, vk::WHOLE_SIZE);
    vmaDestroyVirtualBlock(block);
}

#[test]
fn the_text_has_the_schema_that_tools_read() {
    let (_, block) = create(1000, LINEAR);
    assert_eq!(take(block, 100, 1, 0).0, R::SUCCESS);
    for (detailed, count) in [(vk::FALSE, None), (vk::TRUE, Some(2))] {
        let mut text = ptr::null_mut();
        // SAFETY: it lives until the call returns.
        unsafe { vmaBuildVirtualBlockStatsString(block, &raw mut text, detailed) };
        // SAFETY: the call returned a text.
        let shown = unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8");
        let shown: Value = serde_json::from_str(shown).expect("JSON");
        assert_eq!(shown["Stats"]["AllocationBytes"], 100);
        assert_eq!(shown["Stats"].get("AllocationSizeMin"), None, "there is one");
        let pieces = shown["Details"]["Suballocations"].as_array();
        assert_eq!(pieces.map(Vec::len), count);
        if let Some([part, hole]) = pieces.map(Vec::as_slice) {
            assert_eq!(*part, json!({ "Offset": 0, "Size": 100, "CustomData": "0x64" }));
            assert_eq!(*hole, json!({ "Offset": 100, "Size": 900, "Type": "FREE" }));
        }
        vmaFreeVirtualBlockStatsString(block, text);
        vmaFreeVirtualBlockStatsString(block, text); // Once too often: refused.
    }
    vmaDestroyVirtualBlock(block);
}

#[test]
fn bad_arguments_are_refused_and_change_nothing() {
    let invalid = R::ERROR_INITIALIZATION_FAILED;
    assert_eq!(create(0, 0), (invalid, VmaVirtualBlock::NULL));
    assert_eq!(create(1, 2), (invalid, VmaVirtualBlock::NULL));
    // SAFETY: null is refused.
    assert_eq!(unsafe { vmaCreateVirtualBlock(ptr::null(), ptr::null_mut()) }, invalid);
    let (_, block) = create(1000, 0);
    for (size, alignment, flags) in [(0, 1, 0), (1, 3, 0), (1, 1, 0x40), (1, 1, 0x80)] {
        assert_eq!(take(block, size, alignment, flags), (invalid, 0, u64::MAX));
    }
    for (size, alignment) in [(1 << 63, 1), (u64::MAX, 1 << 63), (1001, 0)] {
        assert_eq!(take(block, size, alignment, 0).0, R::ERROR_OUT_OF_DEVICE_MEMORY);
    }
    // SAFETY: null is refused.
    let result =
        unsafe { vmaVirtualAllocate(block, ptr::null(), ptr::null_mut(), ptr::null_mut()) };
    assert_eq!((result, vmaIsVirtualBlockEmpty(block)), (invalid, vk::TRUE));
    vmaDestroyVirtualBlock(block);
}

#[test]
fn stale_handles_are_refused() {
    let (_, block) = create(1000, 0);
    let (_, part, _) = take(block, 10, 1, 0);
    vmaVirtualFree(block, part);
    vmaVirtualFree(block, part);
    assert_eq!(info(block, part), (0, 0, 0));
    vmaDestroyVirtualBlock(block);
    vmaDestroyVirtualBlock(block);
    let (_, other) = create(1000, 0);
    assert_ne!(block, other, "a slot is used again under another handle");
    let made_up = VmaVirtualBlock(ptr::without_provenance_mut(usize::MAX));
    for stale in [block, made_up, VmaVirtualBlock::NULL] {
        assert_eq!(take(stale, 10, 1, 0), (R::ERROR_INITIALIZATION_FAILED, 0, u64::MAX));
        assert_eq!(vmaIsVirtualBlockEmpty(stale), vk::FALSE);
        vmaClearVirtualBlock(stale);
        vmaDestroyVirtualBlock(stale);
        assert_eq!(statistics(stale), VmaDetailedStatistics::default());
    }
    assert_eq!(take(other, 10, 1, 0).0, R::SUCCESS);
    vmaDestroyVirtualBlock(other);
}

#[test]
fn threads_that_race_destroy_are_refused_or_served() {
    for _ in 0..50 {
        let (_, VmaVirtualBlock(block)) = create(1 << 20, LINEAR);
        let block = block.addr();
        std::thread::scope(|scope| {
            for number in 0..3 {
                scope.spawn(move || {
                    let block = VmaVirtualBlock(ptr::without_provenance_mut(block));
                    for _ in 0..20 {
                        let (_, part, _) = take(block, 16, 16, 0);
                        vmaVirtualFree(block, part);
                    }
                    if number == 0 {
                        vmaDestroyVirtualBlock(block);
                    }
                });
            }
        });
    }
}

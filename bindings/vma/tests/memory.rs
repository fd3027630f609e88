//! Memory, buffers and images through the C interface, on the Vulkan driver of this machine. Without one, nothing is tested.
#![expect(unsafe_code, reason = "calls C functions")]
#[macro_use]
mod rig;

use ash::vk;
use core::ptr;
use omniheap_vma::abi::*;
use omniheap_vma::*;
use rig::{Rig, buffer_info, image_info, wanted};

const SEQUENTIAL: u32 = VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT;
const RANDOM: u32 = VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;

fn auto(flags: u32) -> VmaAllocationCreateInfo {
    VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_AUTO, flags, ..wanted() }
}

#[test]
fn buffers_and_images_come_and_go() {
    let Some(rig) = Rig::open() else { return };
    let first = rig.buffer(100_000, &auto(0));
    let (mut image, mut allocation) = (vk::Image::null(), VmaAllocation::NULL);
    let info = image_info(64);
    let made = c!(vmaCreateImage(
        rig.allocator,
        &info,
        &auto(0),
        &mut image,
        &mut allocation,
        ptr::null_mut()
    ));
    assert_eq!(made, vk::Result::SUCCESS);
    let sum = rig.total();
    assert_eq!(sum.statistics.allocation_count, 2);
    assert!(sum.statistics.block_bytes <= 3 << 20, "{sum:?}");
    assert!(sum.statistics.allocation_bytes <= sum.statistics.block_bytes);
    let held = rig.budgets().iter().map(|heap| heap.statistics.allocation_bytes).sum::<u64>();
    assert_eq!(held, sum.statistics.allocation_bytes);
    rig.destroy(first);
    c!(vmaDestroyImage(rig.allocator, image, allocation));
    assert_eq!(rig.total().statistics.allocation_count, 0);
}

#[test]
fn the_first_block_of_a_mebibyte_has_room_for_three_more() {
    let Some(rig) = Rig::open() else { return };
    let first = rig.buffer(1 << 20, &auto(0));
    let memory = rig.info(first.1).device_memory;
    let held = auto(VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT);
    for more in [(); 3].map(|()| rig.buffer(1 << 20, &held)) {
        assert_eq!(rig.info(more.1).device_memory, memory);
        rig.destroy(more);
    }
    rig.destroy(first);
}

#[test]
fn what_is_mapped_keeps_its_bytes() {
    let Some(rig) = Rig::open() else { return };
    let mapped = rig.buffer(4096, &auto(SEQUENTIAL | VMA_ALLOCATION_CREATE_MAPPED_BIT));
    let info = rig.info(mapped.1);
    assert!(!info.p_mapped_data.is_null());
    let other = rig.buffer(4096, &auto(RANDOM));
    assert!(rig.info(other.1).p_mapped_data.is_null(), "nobody mapped it");
    let mut data = ptr::null_mut();
    for _ in 0..2 {
        assert_eq!(c!(vmaMapMemory(rig.allocator, other.1, &mut data)), vk::Result::SUCCESS);
    }
    assert_eq!(rig.info(other.1).p_mapped_data, data);
    let bytes: Vec<u8> = (0..=255).collect();
    let copied =
        c!(vmaCopyMemoryToAllocation(rig.allocator, bytes.as_ptr().cast(), other.1, 100, 256));
    assert_eq!(copied, vk::Result::SUCCESS);
    let mut back = [0u8; 256];
    let copied =
        c!(vmaCopyAllocationToMemory(rig.allocator, other.1, 100, back.as_mut_ptr().cast(), 256));
    assert_eq!((copied, &back[..]), (vk::Result::SUCCESS, &bytes[..]));
    c!(vmaUnmapMemory(rig.allocator, other.1));
    assert!(!rig.info(other.1).p_mapped_data.is_null(), "two calls, one undone");
    c!(vmaUnmapMemory(rig.allocator, other.1));
    assert!(rig.info(other.1).p_mapped_data.is_null());
    for (offset, size) in [(0, vk::WHOLE_SIZE), (7, 13), (4096, 0)] {
        let flushed = c!(vmaFlushAllocation(rig.allocator, other.1, offset, size));
        assert_eq!(flushed, vk::Result::SUCCESS);
        let seen = c!(vmaInvalidateAllocation(rig.allocator, mapped.1, offset, size));
        assert_eq!(seen, vk::Result::SUCCESS);
    }
    rig.destroy(mapped);
    rig.destroy(other);
}

#[test]
fn memory_of_its_own_has_its_size_and_goes_back() {
    let Some(rig) = Rig::open() else { return };
    let one = rig.buffer(1 << 20, &auto(VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT));
    let mut info: VmaAllocationInfo2 = c!(core::mem::zeroed());
    c!(vmaGetAllocationInfo2(rig.allocator, one.1, &mut info));
    let inner = info.allocation_info;
    assert_eq!((info.dedicated_memory, inner.offset, info.block_size), (1, 0, inner.size));
    assert_eq!(rig.total().statistics.block_bytes, inner.size);
    rig.destroy(one);
    assert_eq!(rig.total().statistics.block_count, 0);
}

#[test]
fn small_allocations_share_a_block_and_names_are_copies() {
    let Some(rig) = Rig::open() else { return };
    let asked = vk::MemoryRequirements { size: 1000, alignment: 16, memory_type_bits: u32::MAX };
    let info = VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_CPU_ONLY, ..wanted() };
    let mut allocations = [VmaAllocation::NULL; 20];
    let made = c!(vmaAllocateMemoryPages(
        rig.allocator,
        &asked,
        &info,
        20,
        allocations.as_mut_ptr(),
        ptr::null_mut(),
    ));
    assert_eq!(made, vk::Result::SUCCESS);
    assert_eq!(rig.total().statistics.block_count, 1);
    assert_eq!(rig.total().statistics.block_bytes, 256 << 10, "the first block is small");
    let name = c"vertices".to_owned();
    c!(vmaSetAllocationName(rig.allocator, allocations[3], name.as_ptr()));
    drop(name);
    let shown = rig.info(allocations[3]).p_name;
    assert_eq!(c!(core::ffi::CStr::from_ptr(shown)), c"vertices");
    let data = ptr::without_provenance_mut(0x1234);
    c!(vmaSetAllocationUserData(rig.allocator, allocations[3], data));
    assert_eq!(rig.info(allocations[3]).p_user_data, data);
    c!(vmaSetAllocationName(rig.allocator, allocations[3], ptr::null()));
    assert!(rig.info(allocations[3]).p_name.is_null());
    c!(vmaFreeMemoryPages(rig.allocator, 20, allocations.as_ptr()));
    assert_eq!(rig.total().statistics.allocation_count, 0);
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let Some(rig) = Rig::open() else { return };
    let Some(other) = Rig::open() else { return };
    let bad = vk::Result::ERROR_INITIALIZATION_FAILED;
    let one = rig.buffer(4096, &auto(RANDOM));
    let mut data = ptr::null_mut();
    let map = |rig: &Rig, which, data: &mut _| c!(vmaMapMemory(rig.allocator, which, data));
    assert_eq!(map(&other, one.1, &mut data), bad, "another allocator's");
    assert_eq!(map(&rig, VmaAllocation::NULL, &mut data), bad);
    assert_eq!(
        map(&rig, VmaAllocation(ptr::without_provenance_mut(0x7fff_1234_5670)), &mut data),
        bad
    );
    c!(vmaUnmapMemory(rig.allocator, one.1));
    assert_eq!(c!(vmaMapMemory(VmaAllocator::NULL, one.1, &mut data)), bad);
    let none = VmaAllocator(ptr::without_provenance_mut(4097));
    assert_eq!(c!(vmaMapMemory(none, one.1, &mut data)), bad);
    rig.destroy(one);
    c!(vmaFreeMemory(rig.allocator, one.1));
    assert_eq!(map(&rig, one.1, &mut data), bad, "freed");
    assert_eq!(rig.try_buffer(0, &auto(0)).0, bad);
    assert_ne!(rig.try_buffer(1 << 62, &auto(0)).0, vk::Result::SUCCESS);
    let odd = VmaAllocationCreateInfo { min_alignment: 3, ..auto(0) };
    assert_eq!(rig.try_buffer(64, &odd).0, bad);
    let asked = vk::MemoryRequirements { size: 1 << 63, alignment: 1, memory_type_bits: u32::MAX };
    let mut allocation = VmaAllocation::NULL;
    let mut allocate = |asked: &vk::MemoryRequirements, info: &VmaAllocationCreateInfo| {
        c!(vmaAllocateMemory(rig.allocator, asked, info, &mut allocation, ptr::null_mut()))
    };
    assert_eq!(allocate(&asked, &wanted()), vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    let zero = vk::MemoryRequirements { size: 0, ..asked };
    assert_eq!(allocate(&zero, &wanted()), bad);
    let typeless = vk::MemoryRequirements { size: 1, memory_type_bits: 0, ..asked };
    assert_eq!(allocate(&typeless, &wanted()), vk::Result::ERROR_FEATURE_NOT_PRESENT);
    assert_eq!(allocate(&typeless, &auto(0)), vk::Result::ERROR_FEATURE_NOT_PRESENT);
    assert_eq!(rig.total().statistics.allocation_count, 0);
}

#[test]
fn allocators_end_once_and_report_what_is_left() {
    let Some(mut rig) = Rig::bare() else { return };
    let mut info = rig::described();
    let create = |info: &VmaAllocatorCreateInfo, to: *mut VmaAllocator| {
        c!(omniheap_vma_create_allocator(info, ptr::null(), to))
    };
    let bad = vk::Result::ERROR_INITIALIZATION_FAILED;
    let mut made = VmaAllocator::NULL;
    assert_eq!(create(&info, &mut made), bad, "null handles");
    rig.fill(&mut info);
    assert_eq!(create(&info, ptr::null_mut()), bad);
    assert_eq!(create(&info, &mut made), vk::Result::SUCCESS);
    rig.allocator = made;
    let left = rig.buffer(64, &auto(0));
    c!(rig.device.destroy_buffer(left.0, None));
    c!(vmaDestroyAllocator(made));
    c!(vmaDestroyAllocator(made));
    rig.allocator = VmaAllocator::NULL;
    let mut about = VmaAllocatorInfo {
        instance: info.instance,
        physical_device: info.physical_device,
        device: vk::Device::null(),
    };
    c!(vmaGetAllocatorInfo(made, &mut about));
    assert_eq!(about.device, vk::Device::null(), "nothing was written");
}

#[test]
fn resources_share_bytes_where_that_is_asked_for() {
    let Some(rig) = Rig::open() else { return };
    let whole = rig.buffer(1 << 16, &auto(VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT));
    let over = |offset: u64, size: u64| {
        let mut buffer = vk::Buffer::null();
        let result = c!(vmaCreateAliasingBuffer2(
            rig.allocator,
            whole.1,
            offset,
            &buffer_info(size),
            &mut buffer,
        ));
        (result, buffer)
    };
    let (result, buffer) = over(1 << 15, 1 << 15);
    assert_eq!(result, vk::Result::SUCCESS);
    c!(vmaDestroyBuffer(rig.allocator, buffer, VmaAllocation::NULL));
    assert_eq!(over(1 << 15, 1 << 16).0, vk::Result::ERROR_INITIALIZATION_FAILED);
    let unbound = rig.buffer(256, &auto(VMA_ALLOCATION_CREATE_DONT_BIND_BIT));
    let bound = c!(vmaBindBufferMemory(rig.allocator, unbound.1, unbound.0));
    assert_eq!(bound, vk::Result::SUCCESS);
    rig.destroy(unbound);
    rig.destroy(whole);
}

#[test]
fn threads_that_free_the_same_allocation_free_it_once() {
    let Some(rig) = Rig::open() else { return };
    let asked = vk::MemoryRequirements { size: 256, alignment: 16, memory_type_bits: u32::MAX };
    let info = VmaAllocationCreateInfo { usage: VMA_MEMORY_USAGE_CPU_ONLY, ..wanted() };
    let allocator = rig.allocator.0.addr();
    for _ in 0..50 {
        let mut allocation = VmaAllocation::NULL;
        let made =
            c!(vmaAllocateMemory(rig.allocator, &asked, &info, &mut allocation, ptr::null_mut()));
        assert_eq!(made, vk::Result::SUCCESS);
        let which = allocation.0.addr();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    let of = VmaAllocator(ptr::without_provenance_mut(allocator));
                    c!(vmaFreeMemory(of, VmaAllocation(ptr::without_provenance_mut(which))));
                });
            }
        });
    }
    assert_eq!(rig.total().statistics.allocation_count, 0);
}

#[test]
fn threads_that_destroy_the_same_buffer_destroy_it_once() {
    let Some(rig) = Rig::open() else { return };
    let allocator = rig.allocator.0.addr();
    for _ in 0..200 {
        let (buffer, allocation) = rig.buffer(4096, &auto(0));
        let which = allocation.0.addr();
        let all_here = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    all_here.wait();
                    let of = VmaAllocator(ptr::without_provenance_mut(allocator));
                    let which = VmaAllocation(ptr::without_provenance_mut(which));
                    c!(vmaDestroyBuffer(of, buffer, which));
                });
            }
        });
    }
    assert_eq!(rig.total().statistics.allocation_count, 0);
}

#[test]
fn an_instance_of_vulkan_1_0_is_served() {
    let Some(mut rig) = Rig::bare_of(vk::API_VERSION_1_0) else { return };
    let mut info = rig::described();
    rig.fill(&mut info);
    info.vulkan_api_version = vk::API_VERSION_1_0;
    let made = c!(omniheap_vma_create_allocator(&info, ptr::null(), &mut rig.allocator));
    assert_eq!(made, vk::Result::SUCCESS);
    for flags in [0, RANDOM, VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT] {
        let buffer = rig.buffer(4096, &auto(flags));
        let (mut image, mut allocation) = (vk::Image::null(), VmaAllocation::NULL);
        let (of, info, wish, out) = (rig.allocator, image_info(64), auto(flags), ptr::null_mut());
        let made = c!(vmaCreateImage(of, &info, &wish, &mut image, &mut allocation, out));
        assert_eq!(made, vk::Result::SUCCESS);
        c!(vmaDestroyImage(rig.allocator, image, allocation));
        rig.destroy(buffer);
    }
    let heap = rig.budgets()[0];
    assert!(heap.budget > 0 && heap.usage == heap.statistics.block_bytes, "{heap:?}");
}

#[test]
fn a_buffer_without_an_alignment_of_its_own_is_made() {
    let Some(rig) = Rig::open() else { return };
    let make = |align: u64| {
        let mut made = (vk::Buffer::null(), VmaAllocation::NULL);
        let result = c!(vmaCreateBufferWithAlignment(
            rig.allocator,
            &buffer_info(64),
            &auto(0),
            align,
            &mut made.0,
            &mut made.1,
            ptr::null_mut(),
        ));
        (result, made)
    };
    let (result, made) = make(0);
    assert_eq!(result, vk::Result::SUCCESS);
    rig.destroy(made);
    assert_eq!(make(3).0, vk::Result::ERROR_INITIALIZATION_FAILED);
}

//! The layouts and values of the header and of `abi.rs` are those of VMA, as `layout.txt` has them.
use core::fmt::Write as _;
use omniheap_vma::abi::*;
use std::collections::BTreeMap;

mod compile;
use compile::{Outcome, compile};

const TABLE: &str = include_str!("layout.txt");

/// Lines of the table: the name of a measure, and its number.
fn table() -> BTreeMap<&'static str, u64> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let split = |line: &'static str| {
        let (what, number) = line.rsplit_once(' ').expect("a name and a number");
        (what, number.parse().expect("a number"))
    };
    lines.map(split).collect()
}

/// Turns the name of a field of Rust into that of C.
fn field(name: &str) -> String {
    let mut words = name.split('_');
    let mut shown = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        shown.push_str(&if word == "khr" { "KHR".into() } else { first.to_uppercase() + rest });
    }
    shown
}

/// Measures types of Rust: the name in C, the type, its fields.
macro_rules! measured {
    ($($name:literal $type:ty { $($field:ident)* })*) => {{
        let mut found = BTreeMap::new();
        $(
            found.insert(format!("size {}", $name), size_of::<$type>() as u64);
            $(
                let at = core::mem::offset_of!($type, $field) as u64;
                found.insert(format!("offset {} {}", $name, field(stringify!($field))), at);
            )*
        )*
        found
    }};
}

/// Values of constants of Rust.
macro_rules! values {
    ($($name:ident)*) => { [$((concat!("value ", stringify!($name)), u64::from($name)),)*] };
}

fn of_requests() -> BTreeMap<String, u64> {
    measured! {
        "VmaDeviceMemoryCallbacks" VmaDeviceMemoryCallbacks { pfn_allocate pfn_free p_user_data }
        "VmaAllocatorCreateInfo" VmaAllocatorCreateInfo { flags physical_device device preferred_large_heap_block_size p_allocation_callbacks p_device_memory_callbacks p_heap_size_limit p_vulkan_functions instance vulkan_api_version p_type_external_memory_handle_types }
        "VmaAllocatorInfo" VmaAllocatorInfo { instance physical_device device }
        "VmaStatistics" VmaStatistics { block_count allocation_count block_bytes allocation_bytes }
        "VmaDetailedStatistics" VmaDetailedStatistics { statistics unused_range_count allocation_size_min allocation_size_max unused_range_size_min unused_range_size_max }
        "VmaTotalStatistics" VmaTotalStatistics { memory_type memory_heap total }
        "VmaBudget" VmaBudget { statistics usage budget }
        "VmaAllocationCreateInfo" VmaAllocationCreateInfo { flags usage required_flags preferred_flags memory_type_bits pool p_user_data priority min_alignment }
        "VmaPoolCreateInfo" VmaPoolCreateInfo { memory_type_index flags block_size min_block_count max_block_count priority min_allocation_alignment p_memory_allocate_next }
        "VmaAllocationInfo" VmaAllocationInfo { memory_type device_memory offset size p_mapped_data p_user_data p_name }
        "VmaAllocationInfo2" VmaAllocationInfo2 { allocation_info block_size dedicated_memory }
    }
}

fn of_functions() -> BTreeMap<String, u64> {
    measured! {
        "VmaVulkanFunctions" OmniheapVmaFunctions { vk_get_instance_proc_addr vk_get_device_proc_addr vk_get_physical_device_properties vk_get_physical_device_memory_properties vk_allocate_memory vk_free_memory vk_map_memory vk_unmap_memory vk_flush_mapped_memory_ranges vk_invalidate_mapped_memory_ranges vk_bind_buffer_memory vk_bind_image_memory vk_get_buffer_memory_requirements vk_get_image_memory_requirements vk_create_buffer vk_destroy_buffer vk_create_image vk_destroy_image vk_cmd_copy_buffer vk_get_buffer_memory_requirements2_khr vk_get_image_memory_requirements2_khr vk_bind_buffer_memory2_khr vk_bind_image_memory2_khr vk_get_physical_device_memory_properties2_khr vk_get_device_buffer_memory_requirements vk_get_device_image_memory_requirements vk_get_memory_win32_handle_khr vk_get_memory_win32_handle_khr vk_get_physical_device_properties2_khr }
    }
}

fn of_the_rest() -> BTreeMap<String, u64> {
    measured! {
        "VmaDefragmentationInfo" VmaDefragmentationInfo { flags pool max_bytes_per_pass max_allocations_per_pass pfn_break_callback p_break_callback_user_data }
        "VmaDefragmentationMove" VmaDefragmentationMove { operation src_allocation dst_tmp_allocation }
        "VmaDefragmentationPassMoveInfo" VmaDefragmentationPassMoveInfo { move_count p_moves }
        "VmaDefragmentationStats" VmaDefragmentationStats { bytes_moved bytes_freed allocations_moved device_memory_blocks_freed }
        "VmaVirtualBlockCreateInfo" VmaVirtualBlockCreateInfo { size flags p_allocation_callbacks }
        "VmaVirtualAllocationCreateInfo" VmaVirtualAllocationCreateInfo { size alignment flags p_user_data }
        "VmaVirtualAllocationInfo" VmaVirtualAllocationInfo { offset size p_user_data }
        "VmaAllocatorCreateFlagBits" VmaAllocatorCreateFlags {  }
        "VmaMemoryUsage" VmaMemoryUsage {  }
        "VmaAllocationCreateFlagBits" VmaAllocationCreateFlags {  }
        "VmaPoolCreateFlagBits" VmaPoolCreateFlags {  }
        "VmaDefragmentationFlagBits" VmaDefragmentationFlags {  }
        "VmaDefragmentationMoveOperation" VmaDefragmentationMoveOperation {  }
        "VmaVirtualBlockCreateFlagBits" VmaVirtualBlockCreateFlags {  }
        "VmaVirtualAllocationCreateFlagBits" VmaVirtualAllocationCreateFlags {  }
        "VmaAllocator" VmaAllocator {  }
        "VmaPool" VmaPool {  }
        "VmaAllocation" VmaAllocation {  }
        "VmaDefragmentationContext" VmaDefragmentationContext {  }
        "VmaVirtualBlock" VmaVirtualBlock {  }
        "VmaVirtualAllocation" VmaVirtualAllocation {  }
    }
}

fn constants() -> Vec<(&'static str, u64)> {
    values! {
        VMA_ALLOCATOR_CREATE_EXTERNALLY_SYNCHRONIZED_BIT
        VMA_ALLOCATOR_CREATE_KHR_DEDICATED_ALLOCATION_BIT VMA_ALLOCATOR_CREATE_KHR_BIND_MEMORY2_BIT
        VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT
        VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT
        VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT VMA_ALLOCATOR_CREATE_EXT_MEMORY_PRIORITY_BIT
        VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE4_BIT VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE5_BIT
        VMA_ALLOCATOR_CREATE_KHR_EXTERNAL_MEMORY_WIN32_BIT VMA_ALLOCATOR_CREATE_FLAG_BITS_MAX_ENUM
        VMA_MEMORY_USAGE_UNKNOWN VMA_MEMORY_USAGE_GPU_ONLY VMA_MEMORY_USAGE_CPU_ONLY
        VMA_MEMORY_USAGE_CPU_TO_GPU VMA_MEMORY_USAGE_GPU_TO_CPU VMA_MEMORY_USAGE_CPU_COPY
        VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED VMA_MEMORY_USAGE_AUTO
        VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE VMA_MEMORY_USAGE_AUTO_PREFER_HOST
        VMA_MEMORY_USAGE_MAX_ENUM VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT
        VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT VMA_ALLOCATION_CREATE_MAPPED_BIT
        VMA_ALLOCATION_CREATE_USER_DATA_COPY_STRING_BIT VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT
        VMA_ALLOCATION_CREATE_DONT_BIND_BIT VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT
        VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT
        VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT
        VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT
        VMA_ALLOCATION_CREATE_STRATEGY_MIN_MEMORY_BIT VMA_ALLOCATION_CREATE_STRATEGY_MIN_TIME_BIT
        VMA_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT VMA_ALLOCATION_CREATE_STRATEGY_BEST_FIT_BIT
        VMA_ALLOCATION_CREATE_STRATEGY_FIRST_FIT_BIT VMA_ALLOCATION_CREATE_STRATEGY_MASK
        VMA_ALLOCATION_CREATE_FLAG_BITS_MAX_ENUM VMA_POOL_CREATE_IGNORE_BUFFER_IMAGE_GRANULARITY_BIT
        VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT VMA_POOL_CREATE_ALGORITHM_MASK
        VMA_POOL_CREATE_FLAG_BITS_MAX_ENUM VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FAST_BIT
        VMA_DEFRAGMENTATION_FLAG_ALGORITHM_BALANCED_BIT VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT
        VMA_DEFRAGMENTATION_FLAG_ALGORITHM_EXTENSIVE_BIT VMA_DEFRAGMENTATION_FLAG_ALGORITHM_MASK
        VMA_DEFRAGMENTATION_FLAG_BITS_MAX_ENUM VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY
        VMA_DEFRAGMENTATION_MOVE_OPERATION_IGNORE VMA_DEFRAGMENTATION_MOVE_OPERATION_DESTROY
        VMA_VIRTUAL_BLOCK_CREATE_LINEAR_ALGORITHM_BIT VMA_VIRTUAL_BLOCK_CREATE_ALGORITHM_MASK
        VMA_VIRTUAL_BLOCK_CREATE_FLAG_BITS_MAX_ENUM VMA_VIRTUAL_ALLOCATION_CREATE_UPPER_ADDRESS_BIT
        VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_MEMORY_BIT
        VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_TIME_BIT
        VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT
        VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MASK VMA_VIRTUAL_ALLOCATION_CREATE_FLAG_BITS_MAX_ENUM
    }
    .into()
}

#[test]
#[cfg(target_pointer_width = "64")]
fn rust_has_the_layouts_of_vma() {
    let mut found = of_requests();
    found.extend(of_functions());
    found.extend(of_the_rest());
    found.extend(constants().into_iter().map(|(name, value)| (name.to_owned(), value)));
    let wanted: BTreeMap<String, u64> =
        table().into_iter().map(|(name, number)| (name.to_owned(), number)).collect();
    assert_eq!(found, wanted);
}

/// Writes a program that compiles only where the header agrees with the table.
fn program() -> String {
    let mut text = String::from("#include <vk_mem_alloc.h>\n#include <stddef.h>\n");
    text.push_str("#ifndef __cplusplus\n#define static_assert _Static_assert\n#endif\n");
    for (what, number) in table() {
        let words: Vec<&str> = what.split(' ').collect();
        let measured = match words[..] {
            ["size", of] => format!("sizeof({of})"),
            ["offset", of, field] => format!("offsetof({of}, {field})"),
            ["value", name] => format!("(unsigned){name}"),
            _ => panic!("{what}"),
        };
        let _ = writeln!(text, "static_assert({measured} == {number}u, \"{what}\");");
    }
    text
}

#[test]
#[cfg(target_pointer_width = "64")]
fn c_and_cpp_have_the_layouts_of_vma() {
    for language in ["-std=c11", "-std=c++11"] {
        compile(language, &program(), &[]).must_not_fail();
    }
}

#[test]
fn a_wrong_number_is_found() {
    let wrong = program().replacen("== 4u", "== 5u", 1);
    let outcome = compile("-std=c11", &wrong, &[]);
    assert!(!matches!(outcome, Outcome::Compiled), "the assertions bite");
}

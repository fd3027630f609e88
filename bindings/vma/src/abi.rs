//! The types of VMA 3.4 as C lays them out; `include/vk_mem_alloc.h` has the same ones.
//!
//! Values that programs give are integers, never enums of Rust: any bits may come. Handles are pointers that are compared and looked up.
//!
//! In C, the fields of `VmaVulkanFunctions` and the last field of `VmaAllocatorCreateInfo` depend on macros of the program. The library never
//! sees these layouts: the file of the program that defines `VMA_IMPLEMENTATION` compiles `vmaCreateAllocator`, and nothing more. It copies
//! the fields that are there into [`OmniheapVmaProgram`], which has one layout, puts the values of the debug macros beside them, and calls
//! `omniheap_vma_create_allocator(info, program, allocator)`, which the library exports in place of `vmaCreateAllocator`: a program that
//! compiled it and a library that has it could not be linked statically. Programs of other languages call `omniheap_vma_create_allocator`
//! with a null `program`, which says that `info` has all the fields of 3.4, and its functions the layout of [`OmniheapVmaFunctions`].
use ash::vk;
use core::ffi::{c_char, c_void};

/// Declares a handle: an opaque pointer of the library.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());

            /// Returns `true` for the null handle.
            #[must_use]
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }
    };
}

handle! {
    /// Allocator of one Vulkan device.
    VmaAllocator
}
handle! {
    /// Pool of the program's own.
    VmaPool
}
handle! {
    /// Memory of one buffer or image, or of none.
    VmaAllocation
}
handle! {
    /// Defragmentation that has begun.
    VmaDefragmentationContext
}
handle! {
    /// Range of the program's own, divided by the library.
    VmaVirtualBlock
}

/// Part of a virtual block. C has it as a handle that is not dispatchable: a pointer where pointers have 64 bits, else a number.
pub type VmaVirtualAllocation = u64;

/// Flags of [`VmaAllocatorCreateInfo`].
pub type VmaAllocatorCreateFlags = u32;
/// One thread at a time calls.
pub const VMA_ALLOCATOR_CREATE_EXTERNALLY_SYNCHRONIZED_BIT: VmaAllocatorCreateFlags = 0x1;
/// `VK_KHR_dedicated_allocation` is enabled, on Vulkan 1.0.
pub const VMA_ALLOCATOR_CREATE_KHR_DEDICATED_ALLOCATION_BIT: VmaAllocatorCreateFlags = 0x2;
/// `VK_KHR_bind_memory2` is enabled, on Vulkan 1.0.
pub const VMA_ALLOCATOR_CREATE_KHR_BIND_MEMORY2_BIT: VmaAllocatorCreateFlags = 0x4;
/// `VK_EXT_memory_budget` is enabled.
pub const VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT: VmaAllocatorCreateFlags = 0x8;
/// `VK_AMD_device_coherent_memory` is enabled.
pub const VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT: VmaAllocatorCreateFlags = 0x10;
/// `bufferDeviceAddress` is enabled.
pub const VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT: VmaAllocatorCreateFlags = 0x20;
/// `VK_EXT_memory_priority` is enabled.
pub const VMA_ALLOCATOR_CREATE_EXT_MEMORY_PRIORITY_BIT: VmaAllocatorCreateFlags = 0x40;
/// `VK_KHR_maintenance4` is enabled.
pub const VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE4_BIT: VmaAllocatorCreateFlags = 0x80;
/// `VK_KHR_maintenance5` is enabled.
pub const VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE5_BIT: VmaAllocatorCreateFlags = 0x100;
/// `VK_KHR_external_memory_win32` is enabled.
pub const VMA_ALLOCATOR_CREATE_KHR_EXTERNAL_MEMORY_WIN32_BIT: VmaAllocatorCreateFlags = 0x200;
/// Makes the type 32 bits wide in C.
pub const VMA_ALLOCATOR_CREATE_FLAG_BITS_MAX_ENUM: VmaAllocatorCreateFlags = 0x7FFF_FFFF;

/// Use of the memory, from which its type follows.
pub type VmaMemoryUsage = u32;
/// Unspecified: the flags alone decide.
pub const VMA_MEMORY_USAGE_UNKNOWN: VmaMemoryUsage = 0;
/// Memory of the device (older name).
pub const VMA_MEMORY_USAGE_GPU_ONLY: VmaMemoryUsage = 1;
/// Memory of the host, coherent (older name).
pub const VMA_MEMORY_USAGE_CPU_ONLY: VmaMemoryUsage = 2;
/// Memory that the host writes, of the device if it can be (older name).
pub const VMA_MEMORY_USAGE_CPU_TO_GPU: VmaMemoryUsage = 3;
/// Memory that the host reads, cached if it can be (older name).
pub const VMA_MEMORY_USAGE_GPU_TO_CPU: VmaMemoryUsage = 4;
/// Memory of the host, not of the device (older name).
pub const VMA_MEMORY_USAGE_CPU_COPY: VmaMemoryUsage = 5;
/// Memory of attachments that live within a pass.
pub const VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED: VmaMemoryUsage = 6;
/// Follows from the buffer or image and the host-access flags.
pub const VMA_MEMORY_USAGE_AUTO: VmaMemoryUsage = 7;
/// `AUTO`, and device memory if possible.
pub const VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE: VmaMemoryUsage = 8;
/// `AUTO`, and host memory if possible.
pub const VMA_MEMORY_USAGE_AUTO_PREFER_HOST: VmaMemoryUsage = 9;
/// Makes the type 32 bits wide in C.
pub const VMA_MEMORY_USAGE_MAX_ENUM: VmaMemoryUsage = 0x7FFF_FFFF;

/// Flags of [`VmaAllocationCreateInfo`].
pub type VmaAllocationCreateFlags = u32;
/// A `VkDeviceMemory` of its own.
pub const VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT: VmaAllocationCreateFlags = 0x1;
/// Only from existing blocks.
pub const VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT: VmaAllocationCreateFlags = 0x2;
/// Mapped for as long as it lives.
pub const VMA_ALLOCATION_CREATE_MAPPED_BIT: VmaAllocationCreateFlags = 0x4;
/// The user data is a string, copied as the name (older way).
pub const VMA_ALLOCATION_CREATE_USER_DATA_COPY_STRING_BIT: VmaAllocationCreateFlags = 0x20;
/// From the upper end of a linear pool.
pub const VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT: VmaAllocationCreateFlags = 0x40;
/// Not bound to the buffer or image.
pub const VMA_ALLOCATION_CREATE_DONT_BIND_BIT: VmaAllocationCreateFlags = 0x80;
/// Refused if it would exceed the budget.
pub const VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT: VmaAllocationCreateFlags = 0x100;
/// Other objects may be bound to it.
pub const VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT: VmaAllocationCreateFlags = 0x200;
/// The host writes it in order and does not read it.
pub const VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT: VmaAllocationCreateFlags = 0x400;
/// The host reads and writes it in any order.
pub const VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT: VmaAllocationCreateFlags = 0x800;
/// Memory that the host cannot map is acceptable: the program copies then.
pub const VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT: VmaAllocationCreateFlags =
    0x1000;
/// The least hole that fits.
pub const VMA_ALLOCATION_CREATE_STRATEGY_MIN_MEMORY_BIT: VmaAllocationCreateFlags = 0x1_0000;
/// The hole that is found first.
pub const VMA_ALLOCATION_CREATE_STRATEGY_MIN_TIME_BIT: VmaAllocationCreateFlags = 0x2_0000;
/// The lowest hole that fits.
pub const VMA_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT: VmaAllocationCreateFlags = 0x4_0000;
/// Older name of `MIN_MEMORY`.
pub const VMA_ALLOCATION_CREATE_STRATEGY_BEST_FIT_BIT: VmaAllocationCreateFlags = 0x1_0000;
/// Older name of `MIN_TIME`.
pub const VMA_ALLOCATION_CREATE_STRATEGY_FIRST_FIT_BIT: VmaAllocationCreateFlags = 0x2_0000;
/// All bits that name a strategy.
pub const VMA_ALLOCATION_CREATE_STRATEGY_MASK: VmaAllocationCreateFlags = 0x7_0000;
/// Makes the type 32 bits wide in C.
pub const VMA_ALLOCATION_CREATE_FLAG_BITS_MAX_ENUM: VmaAllocationCreateFlags = 0x7FFF_FFFF;

/// Flags of [`VmaPoolCreateInfo`].
pub type VmaPoolCreateFlags = u32;
/// Buffers and images of any tiling may be neighbours.
pub const VMA_POOL_CREATE_IGNORE_BUFFER_IMAGE_GRANULARITY_BIT: VmaPoolCreateFlags = 0x2;
/// Stack, ring or double stack.
pub const VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT: VmaPoolCreateFlags = 0x4;
/// All bits that name an algorithm.
pub const VMA_POOL_CREATE_ALGORITHM_MASK: VmaPoolCreateFlags = 0x4;
/// Makes the type 32 bits wide in C.
pub const VMA_POOL_CREATE_FLAG_BITS_MAX_ENUM: VmaPoolCreateFlags = 0x7FFF_FFFF;

/// Flags of [`VmaDefragmentationInfo`].
pub type VmaDefragmentationFlags = u32;
/// Few moves.
pub const VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FAST_BIT: VmaDefragmentationFlags = 0x1;
/// Between fast and full; the default.
pub const VMA_DEFRAGMENTATION_FLAG_ALGORITHM_BALANCED_BIT: VmaDefragmentationFlags = 0x2;
/// Packs all.
pub const VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT: VmaDefragmentationFlags = 0x4;
/// Packs all, with images and buffers apart.
pub const VMA_DEFRAGMENTATION_FLAG_ALGORITHM_EXTENSIVE_BIT: VmaDefragmentationFlags = 0x8;
/// All bits that name an algorithm.
pub const VMA_DEFRAGMENTATION_FLAG_ALGORITHM_MASK: VmaDefragmentationFlags = 0xF;
/// Makes the type 32 bits wide in C.
pub const VMA_DEFRAGMENTATION_FLAG_BITS_MAX_ENUM: VmaDefragmentationFlags = 0x7FFF_FFFF;

/// Answer of the program to a move.
pub type VmaDefragmentationMoveOperation = u32;
/// Copied: the allocation takes the new place.
pub const VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY: VmaDefragmentationMoveOperation = 0;
/// Ignored: the allocation stays at its old place.
pub const VMA_DEFRAGMENTATION_MOVE_OPERATION_IGNORE: VmaDefragmentationMoveOperation = 1;
/// Destroyed: the allocation is freed, and so is the new place.
pub const VMA_DEFRAGMENTATION_MOVE_OPERATION_DESTROY: VmaDefragmentationMoveOperation = 2;

/// Flags of [`VmaVirtualBlockCreateInfo`].
pub type VmaVirtualBlockCreateFlags = u32;
/// Stack, ring or double stack.
pub const VMA_VIRTUAL_BLOCK_CREATE_LINEAR_ALGORITHM_BIT: VmaVirtualBlockCreateFlags = 0x1;
/// All bits that name an algorithm.
pub const VMA_VIRTUAL_BLOCK_CREATE_ALGORITHM_MASK: VmaVirtualBlockCreateFlags = 0x1;
/// Makes the type 32 bits wide in C.
pub const VMA_VIRTUAL_BLOCK_CREATE_FLAG_BITS_MAX_ENUM: VmaVirtualBlockCreateFlags = 0x7FFF_FFFF;

/// Flags of [`VmaVirtualAllocationCreateInfo`].
pub type VmaVirtualAllocationCreateFlags = u32;
/// From the upper end of a linear block.
pub const VMA_VIRTUAL_ALLOCATION_CREATE_UPPER_ADDRESS_BIT: VmaVirtualAllocationCreateFlags = 0x40;
/// The least hole that fits.
pub const VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_MEMORY_BIT: VmaVirtualAllocationCreateFlags =
    0x1_0000;
/// The hole that is found first.
pub const VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_TIME_BIT: VmaVirtualAllocationCreateFlags =
    0x2_0000;
/// The lowest hole that fits.
pub const VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT: VmaVirtualAllocationCreateFlags =
    0x4_0000;
/// All bits that name a strategy.
pub const VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MASK: VmaVirtualAllocationCreateFlags = 0x7_0000;
/// Makes the type 32 bits wide in C.
pub const VMA_VIRTUAL_ALLOCATION_CREATE_FLAG_BITS_MAX_ENUM: VmaVirtualAllocationCreateFlags =
    0x7FFF_FFFF;

/// Callback after `vkAllocateMemory`, or before `vkFreeMemory`.
pub type PfnVmaDeviceMemoryFunction = unsafe extern "system" fn(
    allocator: VmaAllocator,
    memory_type: u32,
    memory: vk::DeviceMemory,
    size: vk::DeviceSize,
    user_data: *mut c_void,
);

/// Callback between moves: `VK_TRUE` ends the pass.
pub type PfnVmaCheckDefragmentationBreakFunction =
    unsafe extern "system" fn(user_data: *mut c_void) -> vk::Bool32;

/// Callbacks around the calls that take and give back device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaDeviceMemoryCallbacks {
    /// Callback; may be null.
    pub pfn_allocate: Option<PfnVmaDeviceMemoryFunction>,
    /// Callback; may be null.
    pub pfn_free: Option<PfnVmaDeviceMemoryFunction>,
    /// Pointer of the program's own.
    pub p_user_data: *mut c_void,
}

/// Description of a new allocator.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaAllocatorCreateInfo {
    /// Flags.
    pub flags: VmaAllocatorCreateFlags,
    /// Physical device.
    pub physical_device: vk::PhysicalDevice,
    /// Device.
    pub device: vk::Device,
    /// Block size in bytes; 0: the library decides.
    pub preferred_large_heap_block_size: vk::DeviceSize,
    /// Callbacks for memory of the host; may be null.
    pub p_allocation_callbacks: *const vk::AllocationCallbacks<'static>,
    /// Callbacks around device memory; may be null.
    pub p_device_memory_callbacks: *const VmaDeviceMemoryCallbacks,
    /// Limits in bytes, one element for each heap, `VK_WHOLE_SIZE` for none; may be null.
    pub p_heap_size_limit: *const vk::DeviceSize,
    /// Functions of the program; read only without an [`OmniheapVmaProgram`].
    pub p_vulkan_functions: *const OmniheapVmaFunctions,
    /// Instance.
    pub instance: vk::Instance,
    /// Version of Vulkan that the program uses; 0: 1.0.
    pub vulkan_api_version: u32,
    /// Handle types for exports, one element for each memory type; read only without an [`OmniheapVmaProgram`].
    pub p_type_external_memory_handle_types: *const vk::ExternalMemoryHandleTypeFlags,
}

/// Vulkan objects that an allocator was made with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaAllocatorInfo {
    /// Instance.
    pub instance: vk::Instance,
    /// Physical device.
    pub physical_device: vk::PhysicalDevice,
    /// Device.
    pub device: vk::Device,
}

/// Counts and bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmaStatistics {
    /// Number of blocks of device memory.
    pub block_count: u32,
    /// Number of allocations.
    pub allocation_count: u32,
    /// Bytes of the blocks.
    pub block_bytes: vk::DeviceSize,
    /// Bytes of the allocations, at most those of the blocks.
    pub allocation_bytes: vk::DeviceSize,
}

/// Counts, bytes, and the extremes of sizes. Without any, the smallest size is `VK_WHOLE_SIZE` and the largest is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmaDetailedStatistics {
    /// Counts and bytes.
    pub statistics: VmaStatistics,
    /// Number of holes.
    pub unused_range_count: u32,
    /// Size of the least allocation.
    pub allocation_size_min: vk::DeviceSize,
    /// Size of the largest allocation.
    pub allocation_size_max: vk::DeviceSize,
    /// Size of the least hole.
    pub unused_range_size_min: vk::DeviceSize,
    /// Size of the largest hole.
    pub unused_range_size_max: vk::DeviceSize,
}

/// Statistics of each memory type, of each heap, and of all.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaTotalStatistics {
    /// One element for each memory type.
    pub memory_type: [VmaDetailedStatistics; vk::MAX_MEMORY_TYPES],
    /// One element for each heap.
    pub memory_heap: [VmaDetailedStatistics; vk::MAX_MEMORY_HEAPS],
    /// All together.
    pub total: VmaDetailedStatistics,
}

/// Bytes of one heap: the library's, the process's, and the budget.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmaBudget {
    /// Counts and bytes.
    pub statistics: VmaStatistics,
    /// Bytes that the process has.
    pub usage: vk::DeviceSize,
    /// Bytes that the process may have.
    pub budget: vk::DeviceSize,
}

/// Description of a new allocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaAllocationCreateInfo {
    /// Flags.
    pub flags: VmaAllocationCreateFlags,
    /// Use; not read with a pool, nor are the next three.
    pub usage: VmaMemoryUsage,
    /// Properties that the memory type must have.
    pub required_flags: vk::MemoryPropertyFlags,
    /// Properties that it has if it can.
    pub preferred_flags: vk::MemoryPropertyFlags,
    /// Memory types that will do, a bit for each; 0: all.
    pub memory_type_bits: u32,
    /// Pool; null: the default pools.
    pub pool: VmaPool,
    /// Pointer of the program's own.
    pub p_user_data: *mut c_void,
    /// Priority, 0 to 1.
    pub priority: f32,
    /// Least alignment: 0, or a power of two.
    pub min_alignment: vk::DeviceSize,
}

/// Description of a new pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaPoolCreateInfo {
    /// Memory type.
    pub memory_type_index: u32,
    /// Flags.
    pub flags: VmaPoolCreateFlags,
    /// Block size in bytes; 0: the library decides.
    pub block_size: vk::DeviceSize,
    /// Blocks that stay, empty or not.
    pub min_block_count: usize,
    /// Most blocks that it may have; 0: no limit.
    pub max_block_count: usize,
    /// Priority, 0 to 1.
    pub priority: f32,
    /// Alignment of all its allocations; 0 or a power of two.
    pub min_allocation_alignment: vk::DeviceSize,
    /// Chain for each `VkMemoryAllocateInfo` of the pool; lives as long as it.
    pub p_memory_allocate_next: *mut c_void,
}

/// State of an allocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaAllocationInfo {
    /// Memory type.
    pub memory_type: u32,
    /// Block of device memory.
    pub device_memory: vk::DeviceMemory,
    /// Offset in the block.
    pub offset: vk::DeviceSize,
    /// Size in bytes.
    pub size: vk::DeviceSize,
    /// Address of the first byte if it is mapped, else null.
    pub p_mapped_data: *mut c_void,
    /// Pointer of the program's own.
    pub p_user_data: *mut c_void,
    /// Name, or null.
    pub p_name: *const c_char,
}

/// State of an allocation and of its block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaAllocationInfo2 {
    /// State of the allocation.
    pub allocation_info: VmaAllocationInfo,
    /// Size of the whole block.
    pub block_size: vk::DeviceSize,
    /// `VK_TRUE` where the block holds only this allocation.
    pub dedicated_memory: vk::Bool32,
}

/// Description of a defragmentation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaDefragmentationInfo {
    /// Flags.
    pub flags: VmaDefragmentationFlags,
    /// Pool; null: the default pools.
    pub pool: VmaPool,
    /// Most bytes that a pass may move; 0: no limit.
    pub max_bytes_per_pass: vk::DeviceSize,
    /// Most allocations that a pass may move; 0: no limit.
    pub max_allocations_per_pass: u32,
    /// Callback between moves; may be null.
    pub pfn_break_callback: Option<PfnVmaCheckDefragmentationBreakFunction>,
    /// Pointer that the callback gets.
    pub p_break_callback_user_data: *mut c_void,
}

/// One move of a pass.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaDefragmentationMove {
    /// Answer of the program.
    pub operation: VmaDefragmentationMoveOperation,
    /// Allocation that moves.
    pub src_allocation: VmaAllocation,
    /// New place, until the pass ends.
    pub dst_tmp_allocation: VmaAllocation,
}

/// The moves of a pass.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaDefragmentationPassMoveInfo {
    /// Number of moves.
    pub move_count: u32,
    /// The moves.
    pub p_moves: *mut VmaDefragmentationMove,
}

/// Sums of a defragmentation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmaDefragmentationStats {
    /// Bytes of the allocations that moved.
    pub bytes_moved: vk::DeviceSize,
    /// Bytes of the blocks that went back to the driver.
    pub bytes_freed: vk::DeviceSize,
    /// Number of allocations that moved.
    pub allocations_moved: u32,
    /// Number of blocks that went back to the driver.
    pub device_memory_blocks_freed: u32,
}

/// Description of a new virtual block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaVirtualBlockCreateInfo {
    /// Size, in any unit.
    pub size: vk::DeviceSize,
    /// Flags.
    pub flags: VmaVirtualBlockCreateFlags,
    /// Callbacks for memory of the host; may be null.
    pub p_allocation_callbacks: *const vk::AllocationCallbacks<'static>,
}

/// Description of a new part of a virtual block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaVirtualAllocationCreateInfo {
    /// Size, in the block's unit.
    pub size: vk::DeviceSize,
    /// Least alignment: 0, or a power of two.
    pub alignment: vk::DeviceSize,
    /// Flags.
    pub flags: VmaVirtualAllocationCreateFlags,
    /// Pointer of the program's own.
    pub p_user_data: *mut c_void,
}

/// State of a part of a virtual block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmaVirtualAllocationInfo {
    /// Offset in the block.
    pub offset: vk::DeviceSize,
    /// Size, in the block's unit.
    pub size: vk::DeviceSize,
    /// Pointer of the program's own.
    pub p_user_data: *mut c_void,
}

/// All functions that an allocator may call, in one layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OmniheapVmaFunctions {
    /// `vkGetInstanceProcAddr`.
    pub vk_get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    /// `vkGetDeviceProcAddr`.
    pub vk_get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
    /// `vkGetPhysicalDeviceProperties`.
    pub vk_get_physical_device_properties: Option<vk::PFN_vkGetPhysicalDeviceProperties>,
    /// `vkGetPhysicalDeviceMemoryProperties`.
    pub vk_get_physical_device_memory_properties:
        Option<vk::PFN_vkGetPhysicalDeviceMemoryProperties>,
    /// `vkAllocateMemory`.
    pub vk_allocate_memory: Option<vk::PFN_vkAllocateMemory>,
    /// `vkFreeMemory`.
    pub vk_free_memory: Option<vk::PFN_vkFreeMemory>,
    /// `vkMapMemory`.
    pub vk_map_memory: Option<vk::PFN_vkMapMemory>,
    /// `vkUnmapMemory`.
    pub vk_unmap_memory: Option<vk::PFN_vkUnmapMemory>,
    /// `vkFlushMappedMemoryRanges`.
    pub vk_flush_mapped_memory_ranges: Option<vk::PFN_vkFlushMappedMemoryRanges>,
    /// `vkInvalidateMappedMemoryRanges`.
    pub vk_invalidate_mapped_memory_ranges: Option<vk::PFN_vkInvalidateMappedMemoryRanges>,
    /// `vkBindBufferMemory`.
    pub vk_bind_buffer_memory: Option<vk::PFN_vkBindBufferMemory>,
    /// `vkBindImageMemory`.
    pub vk_bind_image_memory: Option<vk::PFN_vkBindImageMemory>,
    /// `vkGetBufferMemoryRequirements`.
    pub vk_get_buffer_memory_requirements: Option<vk::PFN_vkGetBufferMemoryRequirements>,
    /// `vkGetImageMemoryRequirements`.
    pub vk_get_image_memory_requirements: Option<vk::PFN_vkGetImageMemoryRequirements>,
    /// `vkCreateBuffer`.
    pub vk_create_buffer: Option<vk::PFN_vkCreateBuffer>,
    /// `vkDestroyBuffer`.
    pub vk_destroy_buffer: Option<vk::PFN_vkDestroyBuffer>,
    /// `vkCreateImage`.
    pub vk_create_image: Option<vk::PFN_vkCreateImage>,
    /// `vkDestroyImage`.
    pub vk_destroy_image: Option<vk::PFN_vkDestroyImage>,
    /// `vkCmdCopyBuffer`.
    pub vk_cmd_copy_buffer: Option<vk::PFN_vkCmdCopyBuffer>,
    /// `vkGetBufferMemoryRequirements2KHR`.
    pub vk_get_buffer_memory_requirements2_khr: Option<vk::PFN_vkGetBufferMemoryRequirements2>,
    /// `vkGetImageMemoryRequirements2KHR`.
    pub vk_get_image_memory_requirements2_khr: Option<vk::PFN_vkGetImageMemoryRequirements2>,
    /// `vkBindBufferMemory2KHR`.
    pub vk_bind_buffer_memory2_khr: Option<vk::PFN_vkBindBufferMemory2>,
    /// `vkBindImageMemory2KHR`.
    pub vk_bind_image_memory2_khr: Option<vk::PFN_vkBindImageMemory2>,
    /// `vkGetPhysicalDeviceMemoryProperties2KHR`.
    pub vk_get_physical_device_memory_properties2_khr:
        Option<vk::PFN_vkGetPhysicalDeviceMemoryProperties2>,
    /// `vkGetDeviceBufferMemoryRequirements`.
    pub vk_get_device_buffer_memory_requirements:
        Option<vk::PFN_vkGetDeviceBufferMemoryRequirements>,
    /// `vkGetDeviceImageMemoryRequirements`.
    pub vk_get_device_image_memory_requirements: Option<vk::PFN_vkGetDeviceImageMemoryRequirements>,
    /// `vkGetMemoryWin32HandleKHR`.
    pub vk_get_memory_win32_handle_khr: Option<vk::PFN_vkGetMemoryWin32HandleKHR>,
    /// `vkGetPhysicalDeviceProperties2KHR`.
    pub vk_get_physical_device_properties2_khr: Option<vk::PFN_vkGetPhysicalDeviceProperties2>,
}

/// The macros of a program, as its `vmaCreateAllocator` hands them over.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapVmaProgram {
    /// Size of this struct.
    pub size: usize,
    /// `OMNIHEAP_VMA_LAYOUT`: 3003 where [`VmaAllocationCreateInfo`] ends before `min_alignment`, else 3004.
    pub layout: u32,
    /// `VMA_DYNAMIC_VULKAN_FUNCTIONS`: functions that are missing are asked for by name.
    pub dynamic_functions: vk::Bool32,
    /// Functions that the program links or gives.
    pub functions: OmniheapVmaFunctions,
    /// Handle types for exports, one element for each memory type; may be null.
    pub type_external_memory_handle_types: *const vk::ExternalMemoryHandleTypeFlags,
    /// `VMA_DEBUG_MARGIN`: bytes behind each allocation.
    pub debug_margin: vk::DeviceSize,
    /// `VMA_MIN_ALIGNMENT`: least alignment of all.
    pub min_alignment: vk::DeviceSize,
    /// `VMA_DEBUG_MIN_BUFFER_IMAGE_GRANULARITY`.
    pub min_buffer_image_granularity: vk::DeviceSize,
    /// `VMA_SMALL_HEAP_MAX_SIZE`: heaps up to this size have small blocks; 0: the library decides.
    pub small_heap_max_size: vk::DeviceSize,
    /// `VMA_DEFAULT_LARGE_HEAP_BLOCK_SIZE`: block size of other heaps; 0: the library decides.
    pub default_large_heap_block_size: vk::DeviceSize,
    /// `VMA_DEBUG_DETECT_CORRUPTION`: the margins hold a pattern that is checked.
    pub detect_corruption: vk::Bool32,
    /// `VMA_DEBUG_INITIALIZE_ALLOCATIONS`: mapped bytes are 0xDC at first and 0xEF after a free.
    pub initialize_allocations: vk::Bool32,
    /// `VMA_DEBUG_ALWAYS_DEDICATED_MEMORY`.
    pub always_dedicated_memory: vk::Bool32,
    /// `VMA_DEBUG_DONT_EXCEED_MAX_MEMORY_ALLOCATION_COUNT`: the device's limit is ours.
    pub dont_exceed_max_memory_allocation_count: vk::Bool32,
    /// `VMA_DEBUG_DONT_EXCEED_HEAP_SIZE_WITH_ALLOCATION_SIZE`.
    pub dont_exceed_heap_size_with_allocation_size: vk::Bool32,
}

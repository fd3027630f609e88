/* The interface of the Vulkan Memory Allocator (VMA) 3.4, kept by omniheap: programs that include <vk_mem_alloc.h> and define
 * VMA_IMPLEMENTATION in one file link libomniheap_vma instead of compiling VMA into themselves. Names, values and layouts are VMA's; what each
 * call does here is in docs/vma.md.
 *
 * Macros that a program may define ahead of the first #include:
 *
 *   VMA_IMPLEMENTATION              in one file: defines vmaCreateAllocator, which hands this file's macros to the library
 *   VMA_STATIC_VULKAN_FUNCTIONS     1: functions that the program links (default, unless VK_NO_PROTOTYPES)
 *   VMA_DYNAMIC_VULKAN_FUNCTIONS    1: functions that are missing are asked for by name (default)
 *   VMA_VULKAN_VERSION              1003000 and such; together with the next ones it says which fields VmaVulkanFunctions has
 *   VMA_DEDICATED_ALLOCATION, VMA_BIND_MEMORY2, VMA_GET_PHYSICAL_DEVICE_PROPERTIES2, VMA_MEMORY_BUDGET, VMA_BUFFER_DEVICE_ADDRESS,
 *   VMA_MEMORY_PRIORITY, VMA_KHR_MAINTENANCE4, VMA_KHR_MAINTENANCE5, VMA_EXTERNAL_MEMORY, VMA_EXTERNAL_MEMORY_WIN32
 *   VMA_VULKAN_HEADERS_ALREADY_INCLUDED, VMA_CALL_PRE, VMA_CALL_POST, VMA_STATS_STRING_ENABLED
 *   VMA_DEBUG_MARGIN, VMA_DEBUG_DETECT_CORRUPTION, VMA_DEBUG_INITIALIZE_ALLOCATIONS, VMA_DEBUG_ALWAYS_DEDICATED_MEMORY,
 *   VMA_DEBUG_DONT_EXCEED_MAX_MEMORY_ALLOCATION_COUNT, VMA_MIN_ALIGNMENT, VMA_SMALL_HEAP_MAX_SIZE, VMA_DEFAULT_LARGE_HEAP_BLOCK_SIZE
 *                                   read in the file that defines VMA_IMPLEMENTATION
 *   OMNIHEAP_VMA_LAYOUT             3003: layouts of VMA 3.3, for bindings of other languages that were made from it
 */
#ifndef AMD_VULKAN_MEMORY_ALLOCATOR_H
#define AMD_VULKAN_MEMORY_ALLOCATOR_H

#if !defined(VMA_VULKAN_HEADERS_ALREADY_INCLUDED) && !defined(VULKAN_H_)
#include <vulkan/vulkan.h>
#endif

#include <stddef.h>
#include <stdint.h>

#define VMA_VERSION (VK_MAKE_VERSION(3, 4, 0))

#ifndef OMNIHEAP_VMA_LAYOUT
#define OMNIHEAP_VMA_LAYOUT 3004
#endif

#ifndef VMA_VULKAN_VERSION
#if defined(VK_VERSION_1_4)
#define VMA_VULKAN_VERSION 1004000
#elif defined(VK_VERSION_1_3)
#define VMA_VULKAN_VERSION 1003000
#elif defined(VK_VERSION_1_2)
#define VMA_VULKAN_VERSION 1002000
#elif defined(VK_VERSION_1_1)
#define VMA_VULKAN_VERSION 1001000
#else
#define VMA_VULKAN_VERSION 1000000
#endif
#endif

/* Each is 1 where the Vulkan headers know the extension. */
#ifndef VMA_DEDICATED_ALLOCATION
#if defined(VK_KHR_get_memory_requirements2) && defined(VK_KHR_dedicated_allocation)
#define VMA_DEDICATED_ALLOCATION 1
#else
#define VMA_DEDICATED_ALLOCATION 0
#endif
#endif

#ifndef VMA_BIND_MEMORY2
#ifdef VK_KHR_bind_memory2
#define VMA_BIND_MEMORY2 1
#else
#define VMA_BIND_MEMORY2 0
#endif
#endif

#ifndef VMA_GET_PHYSICAL_DEVICE_PROPERTIES2
#if defined(VK_KHR_get_physical_device_properties2) || VMA_VULKAN_VERSION >= 1001000
#define VMA_GET_PHYSICAL_DEVICE_PROPERTIES2 1
#else
#define VMA_GET_PHYSICAL_DEVICE_PROPERTIES2 0
#endif
#endif

#ifndef VMA_MEMORY_BUDGET
#if defined(VK_EXT_memory_budget) && VMA_GET_PHYSICAL_DEVICE_PROPERTIES2
#define VMA_MEMORY_BUDGET 1
#else
#define VMA_MEMORY_BUDGET 0
#endif
#endif

#ifndef VMA_BUFFER_DEVICE_ADDRESS
#if defined(VK_KHR_buffer_device_address) || VMA_VULKAN_VERSION >= 1002000
#define VMA_BUFFER_DEVICE_ADDRESS 1
#else
#define VMA_BUFFER_DEVICE_ADDRESS 0
#endif
#endif

#ifndef VMA_MEMORY_PRIORITY
#ifdef VK_EXT_memory_priority
#define VMA_MEMORY_PRIORITY 1
#else
#define VMA_MEMORY_PRIORITY 0
#endif
#endif

#ifndef VMA_KHR_MAINTENANCE4
#ifdef VK_KHR_maintenance4
#define VMA_KHR_MAINTENANCE4 1
#else
#define VMA_KHR_MAINTENANCE4 0
#endif
#endif

#ifndef VMA_KHR_MAINTENANCE5
#ifdef VK_KHR_maintenance5
#define VMA_KHR_MAINTENANCE5 1
#else
#define VMA_KHR_MAINTENANCE5 0
#endif
#endif

#ifndef VMA_EXTERNAL_MEMORY
#ifdef VK_KHR_external_memory
#define VMA_EXTERNAL_MEMORY 1
#else
#define VMA_EXTERNAL_MEMORY 0
#endif
#endif

#ifndef VMA_EXTERNAL_MEMORY_WIN32
#ifdef VK_KHR_external_memory_win32
#define VMA_EXTERNAL_MEMORY_WIN32 1
#else
#define VMA_EXTERNAL_MEMORY_WIN32 0
#endif
#endif

/* Stand before and after the result of every function. */
#ifndef VMA_CALL_PRE
#define VMA_CALL_PRE
#endif
#ifndef VMA_CALL_POST
#define VMA_CALL_POST
#endif

/* Words for checkers of programs. No declaration here uses them: pointers are checked at run time. */
#ifndef VMA_EXTENDS_VK_STRUCT
#define VMA_EXTENDS_VK_STRUCT(vkStruct)
#endif
#ifndef VMA_LEN_IF_NOT_NULL
#define VMA_LEN_IF_NOT_NULL(len)
#endif
#ifndef VMA_NULLABLE
#ifdef __clang__
#define VMA_NULLABLE _Nullable
#else
#define VMA_NULLABLE
#endif
#endif
#ifndef VMA_NOT_NULL
#ifdef __clang__
#define VMA_NOT_NULL _Nonnull
#else
#define VMA_NOT_NULL
#endif
#endif
/* Handles that are not dispatchable are pointers where pointers have 64 bits. */
#ifndef VMA_NOT_NULL_NON_DISPATCHABLE
#if UINTPTR_MAX > 0xFFFFFFFFu
#define VMA_NOT_NULL_NON_DISPATCHABLE VMA_NOT_NULL
#else
#define VMA_NOT_NULL_NON_DISPATCHABLE
#endif
#endif
#ifndef VMA_NULLABLE_NON_DISPATCHABLE
#if UINTPTR_MAX > 0xFFFFFFFFu
#define VMA_NULLABLE_NON_DISPATCHABLE VMA_NULLABLE
#else
#define VMA_NULLABLE_NON_DISPATCHABLE
#endif
#endif

#ifndef VMA_STATS_STRING_ENABLED
#define VMA_STATS_STRING_ENABLED 1
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Flags and choices ---- */

/* Features that the program enabled on its device, and its promise about threads. */
typedef enum VmaAllocatorCreateFlagBits {
    VMA_ALLOCATOR_CREATE_EXTERNALLY_SYNCHRONIZED_BIT = 0x00000001,    /* one thread at a time calls */
    VMA_ALLOCATOR_CREATE_KHR_DEDICATED_ALLOCATION_BIT = 0x00000002,   /* for Vulkan 1.0 */
    VMA_ALLOCATOR_CREATE_KHR_BIND_MEMORY2_BIT = 0x00000004,           /* for Vulkan 1.0 */
    VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT = 0x00000008,
    VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT = 0x00000010,
    VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT = 0x00000020,
    VMA_ALLOCATOR_CREATE_EXT_MEMORY_PRIORITY_BIT = 0x00000040,
    VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE4_BIT = 0x00000080,
    VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE5_BIT = 0x00000100,
    VMA_ALLOCATOR_CREATE_KHR_EXTERNAL_MEMORY_WIN32_BIT = 0x00000200,
    VMA_ALLOCATOR_CREATE_FLAG_BITS_MAX_ENUM = 0x7FFFFFFF
} VmaAllocatorCreateFlagBits;
typedef VkFlags VmaAllocatorCreateFlags;

/* Use of the memory, from which the memory type follows. */
typedef enum VmaMemoryUsage {
    VMA_MEMORY_USAGE_UNKNOWN = 0, /* the flags say all */
    VMA_MEMORY_USAGE_GPU_ONLY = 1,
    VMA_MEMORY_USAGE_CPU_ONLY = 2,
    VMA_MEMORY_USAGE_CPU_TO_GPU = 3,
    VMA_MEMORY_USAGE_GPU_TO_CPU = 4,
    VMA_MEMORY_USAGE_CPU_COPY = 5,
    VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED = 6, /* attachments that live within a pass */
    VMA_MEMORY_USAGE_AUTO = 7,                 /* from the buffer or image and the host-access flags */
    VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE = 8,
    VMA_MEMORY_USAGE_AUTO_PREFER_HOST = 9,
    VMA_MEMORY_USAGE_MAX_ENUM = 0x7FFFFFFF
} VmaMemoryUsage;

/* Options of one allocation. */
typedef enum VmaAllocationCreateFlagBits {
    VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT = 0x00000001,
    VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT = 0x00000002, /* only from blocks that are there */
    VMA_ALLOCATION_CREATE_MAPPED_BIT = 0x00000004,         /* mapped for as long as it lives */
    VMA_ALLOCATION_CREATE_USER_DATA_COPY_STRING_BIT = 0x00000020,
    VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT = 0x00000040, /* from the upper end of a linear pool */
    VMA_ALLOCATION_CREATE_DONT_BIND_BIT = 0x00000080,
    VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT = 0x00000100,
    VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT = 0x00000200,
    VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT = 0x00000400,
    VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT = 0x00000800,
    VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT = 0x00001000,
    VMA_ALLOCATION_CREATE_STRATEGY_MIN_MEMORY_BIT = 0x00010000,
    VMA_ALLOCATION_CREATE_STRATEGY_MIN_TIME_BIT = 0x00020000,
    VMA_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT = 0x00040000,
    VMA_ALLOCATION_CREATE_STRATEGY_BEST_FIT_BIT = 0x00010000,
    VMA_ALLOCATION_CREATE_STRATEGY_FIRST_FIT_BIT = 0x00020000,
    VMA_ALLOCATION_CREATE_STRATEGY_MASK = 0x00070000,
    VMA_ALLOCATION_CREATE_FLAG_BITS_MAX_ENUM = 0x7FFFFFFF
} VmaAllocationCreateFlagBits;
typedef VkFlags VmaAllocationCreateFlags;

/* Options of a pool of the program's own. */
typedef enum VmaPoolCreateFlagBits {
    VMA_POOL_CREATE_IGNORE_BUFFER_IMAGE_GRANULARITY_BIT = 0x00000002,
    VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT = 0x00000004, /* stack, ring or double stack */
    VMA_POOL_CREATE_ALGORITHM_MASK = 0x00000004,
    VMA_POOL_CREATE_FLAG_BITS_MAX_ENUM = 0x7FFFFFFF
} VmaPoolCreateFlagBits;
typedef VkFlags VmaPoolCreateFlags;

/* Thoroughness of a defragmentation. */
typedef enum VmaDefragmentationFlagBits {
    VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FAST_BIT = 0x1,
    VMA_DEFRAGMENTATION_FLAG_ALGORITHM_BALANCED_BIT = 0x2,
    VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT = 0x4,
    VMA_DEFRAGMENTATION_FLAG_ALGORITHM_EXTENSIVE_BIT = 0x8,
    VMA_DEFRAGMENTATION_FLAG_ALGORITHM_MASK = 0xF,
    VMA_DEFRAGMENTATION_FLAG_BITS_MAX_ENUM = 0x7FFFFFFF
} VmaDefragmentationFlagBits;
typedef VkFlags VmaDefragmentationFlags;

/* The program's answer to a move. */
typedef enum VmaDefragmentationMoveOperation {
    VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY = 0,    /* copied: the allocation takes the new place */
    VMA_DEFRAGMENTATION_MOVE_OPERATION_IGNORE = 1,  /* it stays */
    VMA_DEFRAGMENTATION_MOVE_OPERATION_DESTROY = 2  /* its object is gone: free both places */
} VmaDefragmentationMoveOperation;

/* Algorithm that divides a virtual block. */
typedef enum VmaVirtualBlockCreateFlagBits {
    VMA_VIRTUAL_BLOCK_CREATE_LINEAR_ALGORITHM_BIT = 0x00000001,
    VMA_VIRTUAL_BLOCK_CREATE_ALGORITHM_MASK = 0x00000001,
    VMA_VIRTUAL_BLOCK_CREATE_FLAG_BITS_MAX_ENUM = 0x7FFFFFFF
} VmaVirtualBlockCreateFlagBits;
typedef VkFlags VmaVirtualBlockCreateFlags;

/* Choice of one part of a virtual block. */
typedef enum VmaVirtualAllocationCreateFlagBits {
    VMA_VIRTUAL_ALLOCATION_CREATE_UPPER_ADDRESS_BIT = 0x00000040,
    VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_MEMORY_BIT = 0x00010000,
    VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_TIME_BIT = 0x00020000,
    VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT = 0x00040000,
    VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MASK = 0x00070000,
    VMA_VIRTUAL_ALLOCATION_CREATE_FLAG_BITS_MAX_ENUM = 0x7FFFFFFF
} VmaVirtualAllocationCreateFlagBits;
typedef VkFlags VmaVirtualAllocationCreateFlags;

/* ---- Handles ---- */

VK_DEFINE_HANDLE(VmaAllocator)
VK_DEFINE_HANDLE(VmaPool)
VK_DEFINE_HANDLE(VmaAllocation)
VK_DEFINE_HANDLE(VmaDefragmentationContext)
VK_DEFINE_HANDLE(VmaVirtualBlock)
VK_DEFINE_NON_DISPATCHABLE_HANDLE(VmaVirtualAllocation)

/* ---- Structs ---- */

/* Called after each vkAllocateMemory that succeeded, and before each vkFreeMemory. */
typedef void(VKAPI_PTR *PFN_vmaAllocateDeviceMemoryFunction)(
    VmaAllocator allocator, uint32_t memoryType, VkDeviceMemory memory, VkDeviceSize size, void *pUserData);
typedef void(VKAPI_PTR *PFN_vmaFreeDeviceMemoryFunction)(
    VmaAllocator allocator, uint32_t memoryType, VkDeviceMemory memory, VkDeviceSize size, void *pUserData);

typedef struct VmaDeviceMemoryCallbacks {
    PFN_vmaAllocateDeviceMemoryFunction pfnAllocate; /* may be null */
    PFN_vmaFreeDeviceMemoryFunction pfnFree;         /* may be null */
    void *pUserData;
} VmaDeviceMemoryCallbacks;

/* Functions of the program's own loader. Those that are null come from the program's linkage or by name, as the macros say. */
typedef struct VmaVulkanFunctions {
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr vkGetDeviceProcAddr;
    PFN_vkGetPhysicalDeviceProperties vkGetPhysicalDeviceProperties;
    PFN_vkGetPhysicalDeviceMemoryProperties vkGetPhysicalDeviceMemoryProperties;
    PFN_vkAllocateMemory vkAllocateMemory;
    PFN_vkFreeMemory vkFreeMemory;
    PFN_vkMapMemory vkMapMemory;
    PFN_vkUnmapMemory vkUnmapMemory;
    PFN_vkFlushMappedMemoryRanges vkFlushMappedMemoryRanges;
    PFN_vkInvalidateMappedMemoryRanges vkInvalidateMappedMemoryRanges;
    PFN_vkBindBufferMemory vkBindBufferMemory;
    PFN_vkBindImageMemory vkBindImageMemory;
    PFN_vkGetBufferMemoryRequirements vkGetBufferMemoryRequirements;
    PFN_vkGetImageMemoryRequirements vkGetImageMemoryRequirements;
    PFN_vkCreateBuffer vkCreateBuffer;
    PFN_vkDestroyBuffer vkDestroyBuffer;
    PFN_vkCreateImage vkCreateImage;
    PFN_vkDestroyImage vkDestroyImage;
    PFN_vkCmdCopyBuffer vkCmdCopyBuffer;
#if VMA_DEDICATED_ALLOCATION || VMA_VULKAN_VERSION >= 1001000
    PFN_vkGetBufferMemoryRequirements2KHR vkGetBufferMemoryRequirements2KHR;
    PFN_vkGetImageMemoryRequirements2KHR vkGetImageMemoryRequirements2KHR;
#endif
#if VMA_BIND_MEMORY2 || VMA_VULKAN_VERSION >= 1001000
    PFN_vkBindBufferMemory2KHR vkBindBufferMemory2KHR;
    PFN_vkBindImageMemory2KHR vkBindImageMemory2KHR;
#endif
#if VMA_GET_PHYSICAL_DEVICE_PROPERTIES2
    PFN_vkGetPhysicalDeviceMemoryProperties2KHR vkGetPhysicalDeviceMemoryProperties2KHR;
#endif
#if VMA_KHR_MAINTENANCE4 || VMA_VULKAN_VERSION >= 1003000
    PFN_vkGetDeviceBufferMemoryRequirementsKHR vkGetDeviceBufferMemoryRequirements;
    PFN_vkGetDeviceImageMemoryRequirementsKHR vkGetDeviceImageMemoryRequirements;
#endif
#if VMA_EXTERNAL_MEMORY_WIN32
    PFN_vkGetMemoryWin32HandleKHR vkGetMemoryWin32HandleKHR;
#else
    void *vkGetMemoryWin32HandleKHR;
#endif
#if VMA_GET_PHYSICAL_DEVICE_PROPERTIES2 && OMNIHEAP_VMA_LAYOUT >= 3004
    PFN_vkGetPhysicalDeviceProperties2KHR vkGetPhysicalDeviceProperties2KHR;
#endif
} VmaVulkanFunctions;

typedef struct VmaAllocatorCreateInfo {
    VmaAllocatorCreateFlags flags;
    VkPhysicalDevice physicalDevice;
    VkDevice device;
    VkDeviceSize preferredLargeHeapBlockSize; /* 0: the library decides */
    const VkAllocationCallbacks *pAllocationCallbacks;
    const VmaDeviceMemoryCallbacks *pDeviceMemoryCallbacks;
    const VkDeviceSize *pHeapSizeLimit; /* one for each heap, VK_WHOLE_SIZE for none */
    const VmaVulkanFunctions *pVulkanFunctions;
    VkInstance instance;
    uint32_t vulkanApiVersion; /* 0: Vulkan 1.0 */
#if VMA_EXTERNAL_MEMORY
    const VkExternalMemoryHandleTypeFlagsKHR *pTypeExternalMemoryHandleTypes; /* one for each memory type */
#endif
} VmaAllocatorCreateInfo;

typedef struct VmaAllocatorInfo {
    VkInstance instance;
    VkPhysicalDevice physicalDevice;
    VkDevice device;
} VmaAllocatorInfo;

typedef struct VmaStatistics {
    uint32_t blockCount;          /* VkDeviceMemory objects */
    uint32_t allocationCount;
    VkDeviceSize blockBytes;
    VkDeviceSize allocationBytes; /* at most blockBytes */
} VmaStatistics;

/* Sums with extremes. Without any, the smallest size is VK_WHOLE_SIZE and the largest is 0. */
typedef struct VmaDetailedStatistics {
    VmaStatistics statistics;
    uint32_t unusedRangeCount;
    VkDeviceSize allocationSizeMin;
    VkDeviceSize allocationSizeMax;
    VkDeviceSize unusedRangeSizeMin;
    VkDeviceSize unusedRangeSizeMax;
} VmaDetailedStatistics;

typedef struct VmaTotalStatistics {
    VmaDetailedStatistics memoryType[VK_MAX_MEMORY_TYPES];
    VmaDetailedStatistics memoryHeap[VK_MAX_MEMORY_HEAPS];
    VmaDetailedStatistics total;
} VmaTotalStatistics;

/* Bytes of one heap: the library's, the process's, and the budget. */
typedef struct VmaBudget {
    VmaStatistics statistics;
    VkDeviceSize usage;
    VkDeviceSize budget;
} VmaBudget;

typedef struct VmaAllocationCreateInfo {
    VmaAllocationCreateFlags flags;
    VmaMemoryUsage usage; /* not read with a pool, nor are the next three */
    VkMemoryPropertyFlags requiredFlags;
    VkMemoryPropertyFlags preferredFlags;
    uint32_t memoryTypeBits; /* 0: all */
    VmaPool pool;            /* null: the default pools */
    void *pUserData;
    float priority;          /* 0 to 1 */
#if OMNIHEAP_VMA_LAYOUT >= 3004
    VkDeviceSize minAlignment; /* 0, or a power of two */
#endif
} VmaAllocationCreateInfo;

typedef struct VmaPoolCreateInfo {
    uint32_t memoryTypeIndex;
    VmaPoolCreateFlags flags;
    VkDeviceSize blockSize; /* 0: the library decides */
    size_t minBlockCount;
    size_t maxBlockCount;   /* 0: no limit */
    float priority;
    VkDeviceSize minAllocationAlignment;
    void *pMemoryAllocateNext; /* chained to each VkMemoryAllocateInfo of the pool; lives as long as it */
} VmaPoolCreateInfo;

/* State at the time of the call. Defragmentation, mapping and the setters may change it later. */
typedef struct VmaAllocationInfo {
    uint32_t memoryType;
    VkDeviceMemory deviceMemory;
    VkDeviceSize offset;
    VkDeviceSize size;
    void *pMappedData;
    void *pUserData;
    const char *pName;
} VmaAllocationInfo;

typedef struct VmaAllocationInfo2 {
    VmaAllocationInfo allocationInfo;
    VkDeviceSize blockSize; /* of the whole VkDeviceMemory */
    VkBool32 dedicatedMemory;
} VmaAllocationInfo2;

/* Called between moves; VK_TRUE ends the pass. */
typedef VkBool32(VKAPI_PTR *PFN_vmaCheckDefragmentationBreakFunction)(void *pUserData);

typedef struct VmaDefragmentationInfo {
    VmaDefragmentationFlags flags;
    VmaPool pool;                   /* null: the default pools */
    VkDeviceSize maxBytesPerPass;   /* 0: no limit */
    uint32_t maxAllocationsPerPass; /* 0: no limit */
    PFN_vmaCheckDefragmentationBreakFunction pfnBreakCallback;
    void *pBreakCallbackUserData;
} VmaDefragmentationInfo;

typedef struct VmaDefragmentationMove {
    VmaDefragmentationMoveOperation operation; /* set by the program */
    VmaAllocation srcAllocation;
    VmaAllocation dstTmpAllocation; /* the new place, until the pass ends */
} VmaDefragmentationMove;

typedef struct VmaDefragmentationPassMoveInfo {
    uint32_t moveCount;
    VmaDefragmentationMove *pMoves;
} VmaDefragmentationPassMoveInfo;

typedef struct VmaDefragmentationStats {
    VkDeviceSize bytesMoved;
    VkDeviceSize bytesFreed;
    uint32_t allocationsMoved;
    uint32_t deviceMemoryBlocksFreed;
} VmaDefragmentationStats;

typedef struct VmaVirtualBlockCreateInfo {
    VkDeviceSize size; /* in any unit */
    VmaVirtualBlockCreateFlags flags;
    const VkAllocationCallbacks *pAllocationCallbacks;
} VmaVirtualBlockCreateInfo;

typedef struct VmaVirtualAllocationCreateInfo {
    VkDeviceSize size;
    VkDeviceSize alignment; /* 0, or a power of two */
    VmaVirtualAllocationCreateFlags flags;
    void *pUserData;
} VmaVirtualAllocationCreateInfo;

typedef struct VmaVirtualAllocationInfo {
    VkDeviceSize offset;
    VkDeviceSize size;
    void *pUserData;
} VmaVirtualAllocationInfo;

/* ---- Functions ---- */

/* Allocators. vmaCreateAllocator is defined in the file with VMA_IMPLEMENTATION. */
#if defined(VOLK_HEADER_VERSION)
VMA_CALL_PRE VkResult VMA_CALL_POST vmaImportVulkanFunctionsFromVolk(
    const VmaAllocatorCreateInfo *pAllocatorCreateInfo, VmaVulkanFunctions *pDstVulkanFunctions);
#endif
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateAllocator(const VmaAllocatorCreateInfo *pCreateInfo, VmaAllocator *pAllocator);
VMA_CALL_PRE void VMA_CALL_POST vmaDestroyAllocator(VmaAllocator allocator);
VMA_CALL_PRE void VMA_CALL_POST vmaGetAllocatorInfo(VmaAllocator allocator, VmaAllocatorInfo *pAllocatorInfo);
VMA_CALL_PRE void VMA_CALL_POST vmaGetPhysicalDeviceProperties(VmaAllocator allocator, const VkPhysicalDeviceProperties **ppProperties);
VMA_CALL_PRE void VMA_CALL_POST vmaGetMemoryProperties(VmaAllocator allocator, const VkPhysicalDeviceMemoryProperties **ppProperties);
VMA_CALL_PRE void VMA_CALL_POST vmaGetMemoryTypeProperties(VmaAllocator allocator, uint32_t memoryTypeIndex, VkMemoryPropertyFlags *pFlags);
VMA_CALL_PRE void VMA_CALL_POST vmaSetCurrentFrameIndex(VmaAllocator allocator, uint32_t frameIndex);

/* Statistics and budgets; pBudgets has an element for each heap. */
VMA_CALL_PRE void VMA_CALL_POST vmaCalculateStatistics(VmaAllocator allocator, VmaTotalStatistics *pStats);
VMA_CALL_PRE void VMA_CALL_POST vmaGetHeapBudgets(VmaAllocator allocator, VmaBudget *pBudgets);

/* The memory type that a request would get, or VK_ERROR_FEATURE_NOT_PRESENT. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaFindMemoryTypeIndex(
    VmaAllocator allocator, uint32_t memoryTypeBits, const VmaAllocationCreateInfo *pCreateInfo, uint32_t *pMemoryTypeIndex);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaFindMemoryTypeIndexForBufferInfo(
    VmaAllocator allocator, const VkBufferCreateInfo *pBufferInfo, const VmaAllocationCreateInfo *pCreateInfo, uint32_t *pMemoryTypeIndex);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaFindMemoryTypeIndexForImageInfo(
    VmaAllocator allocator, const VkImageCreateInfo *pImageInfo, const VmaAllocationCreateInfo *pCreateInfo, uint32_t *pMemoryTypeIndex);

/* Pools of the program's own. A name lives until it is replaced or the pool is destroyed. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreatePool(VmaAllocator allocator, const VmaPoolCreateInfo *pCreateInfo, VmaPool *pPool);
VMA_CALL_PRE void VMA_CALL_POST vmaDestroyPool(VmaAllocator allocator, VmaPool pool);
VMA_CALL_PRE void VMA_CALL_POST vmaGetPoolStatistics(VmaAllocator allocator, VmaPool pool, VmaStatistics *pStats);
VMA_CALL_PRE void VMA_CALL_POST vmaCalculatePoolStatistics(VmaAllocator allocator, VmaPool pool, VmaDetailedStatistics *pStats);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCheckPoolCorruption(VmaAllocator allocator, VmaPool pool);
VMA_CALL_PRE void VMA_CALL_POST vmaGetPoolName(VmaAllocator allocator, VmaPool pool, const char **ppName);
VMA_CALL_PRE void VMA_CALL_POST vmaSetPoolName(VmaAllocator allocator, VmaPool pool, const char *pName);

/* Memory without a buffer or image. pInfo may be null everywhere. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaAllocateMemory(
    VmaAllocator allocator, const VkMemoryRequirements *pRequirements, const VmaAllocationCreateInfo *pCreateInfo,
    VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaAllocateDedicatedMemory(
    VmaAllocator allocator, const VkMemoryRequirements *pRequirements, const VmaAllocationCreateInfo *pCreateInfo,
    void *pMemoryAllocateNext, VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaAllocateMemoryPages(
    VmaAllocator allocator, const VkMemoryRequirements *pRequirements, const VmaAllocationCreateInfo *pCreateInfo, size_t allocationCount,
    VmaAllocation *pAllocations, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaAllocateMemoryForBuffer(
    VmaAllocator allocator, VkBuffer buffer, const VmaAllocationCreateInfo *pCreateInfo, VmaAllocation *pAllocation,
    VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaAllocateMemoryForImage(
    VmaAllocator allocator, VkImage image, const VmaAllocationCreateInfo *pCreateInfo, VmaAllocation *pAllocation,
    VmaAllocationInfo *pInfo);
VMA_CALL_PRE void VMA_CALL_POST vmaFreeMemory(VmaAllocator allocator, VmaAllocation allocation);
VMA_CALL_PRE void VMA_CALL_POST vmaFreeMemoryPages(VmaAllocator allocator, size_t allocationCount, const VmaAllocation *pAllocations);

/* About one allocation. Its name is copied. */
VMA_CALL_PRE void VMA_CALL_POST vmaGetAllocationInfo(VmaAllocator allocator, VmaAllocation allocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE void VMA_CALL_POST vmaGetAllocationInfo2(VmaAllocator allocator, VmaAllocation allocation, VmaAllocationInfo2 *pInfo);
VMA_CALL_PRE void VMA_CALL_POST vmaSetAllocationUserData(VmaAllocator allocator, VmaAllocation allocation, void *pUserData);
VMA_CALL_PRE void VMA_CALL_POST vmaSetAllocationName(VmaAllocator allocator, VmaAllocation allocation, const char *pName);
VMA_CALL_PRE void VMA_CALL_POST vmaGetAllocationMemoryProperties(
    VmaAllocator allocator, VmaAllocation allocation, VkMemoryPropertyFlags *pFlags);
#if VMA_EXTERNAL_MEMORY_WIN32
VMA_CALL_PRE VkResult VMA_CALL_POST vmaGetMemoryWin32Handle(
    VmaAllocator allocator, VmaAllocation allocation, HANDLE hTargetProcess, HANDLE *pHandle);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaGetMemoryWin32Handle2(
    VmaAllocator allocator, VmaAllocation allocation, VkExternalMemoryHandleTypeFlagBits handleType, HANDLE hTargetProcess,
    HANDLE *pHandle);
#endif

/* Bytes. Maps are counted. Offsets are within the allocation; VK_WHOLE_SIZE is all that follows; null arrays are 0 and VK_WHOLE_SIZE. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaMapMemory(VmaAllocator allocator, VmaAllocation allocation, void **ppData);
VMA_CALL_PRE void VMA_CALL_POST vmaUnmapMemory(VmaAllocator allocator, VmaAllocation allocation);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaFlushAllocation(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, VkDeviceSize size);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaInvalidateAllocation(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, VkDeviceSize size);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaFlushAllocations(
    VmaAllocator allocator, uint32_t allocationCount, const VmaAllocation *pAllocations, const VkDeviceSize *pOffsets,
    const VkDeviceSize *pSizes);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaInvalidateAllocations(
    VmaAllocator allocator, uint32_t allocationCount, const VmaAllocation *pAllocations, const VkDeviceSize *pOffsets,
    const VkDeviceSize *pSizes);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCopyMemoryToAllocation(
    VmaAllocator allocator, const void *pSource, VmaAllocation allocation, VkDeviceSize offset, VkDeviceSize size);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCopyAllocationToMemory(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, void *pDestination, VkDeviceSize size);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCheckCorruption(VmaAllocator allocator, uint32_t memoryTypeBits);

/* Defragmentation: begin; passes, in which the program copies, while they answer VK_INCOMPLETE; end. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaBeginDefragmentation(
    VmaAllocator allocator, const VmaDefragmentationInfo *pInfo, VmaDefragmentationContext *pContext);
VMA_CALL_PRE void VMA_CALL_POST vmaEndDefragmentation(
    VmaAllocator allocator, VmaDefragmentationContext context, VmaDefragmentationStats *pStats);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaBeginDefragmentationPass(
    VmaAllocator allocator, VmaDefragmentationContext context, VmaDefragmentationPassMoveInfo *pPassInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaEndDefragmentationPass(
    VmaAllocator allocator, VmaDefragmentationContext context, VmaDefragmentationPassMoveInfo *pPassInfo);

/* Buffers and images of the program's over an allocation. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaBindBufferMemory(VmaAllocator allocator, VmaAllocation allocation, VkBuffer buffer);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaBindBufferMemory2(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, VkBuffer buffer, const void *pNext);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaBindImageMemory(VmaAllocator allocator, VmaAllocation allocation, VkImage image);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaBindImageMemory2(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, VkImage image, const void *pNext);

/* Buffers and images with memory of their own. Destroying null does nothing. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateBuffer(
    VmaAllocator allocator, const VkBufferCreateInfo *pBufferInfo, const VmaAllocationCreateInfo *pCreateInfo, VkBuffer *pBuffer,
    VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateBufferWithAlignment(
    VmaAllocator allocator, const VkBufferCreateInfo *pBufferInfo, const VmaAllocationCreateInfo *pCreateInfo, VkDeviceSize minAlignment,
    VkBuffer *pBuffer, VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateDedicatedBuffer(
    VmaAllocator allocator, const VkBufferCreateInfo *pBufferInfo, const VmaAllocationCreateInfo *pCreateInfo, void *pMemoryAllocateNext,
    VkBuffer *pBuffer, VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateAliasingBuffer(
    VmaAllocator allocator, VmaAllocation allocation, const VkBufferCreateInfo *pBufferInfo, VkBuffer *pBuffer);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateAliasingBuffer2(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, const VkBufferCreateInfo *pBufferInfo, VkBuffer *pBuffer);
VMA_CALL_PRE void VMA_CALL_POST vmaDestroyBuffer(VmaAllocator allocator, VkBuffer buffer, VmaAllocation allocation);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateImage(
    VmaAllocator allocator, const VkImageCreateInfo *pImageInfo, const VmaAllocationCreateInfo *pCreateInfo, VkImage *pImage,
    VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateDedicatedImage(
    VmaAllocator allocator, const VkImageCreateInfo *pImageInfo, const VmaAllocationCreateInfo *pCreateInfo, void *pMemoryAllocateNext,
    VkImage *pImage, VmaAllocation *pAllocation, VmaAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateAliasingImage(
    VmaAllocator allocator, VmaAllocation allocation, const VkImageCreateInfo *pImageInfo, VkImage *pImage);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateAliasingImage2(
    VmaAllocator allocator, VmaAllocation allocation, VkDeviceSize offset, const VkImageCreateInfo *pImageInfo, VkImage *pImage);
VMA_CALL_PRE void VMA_CALL_POST vmaDestroyImage(VmaAllocator allocator, VkImage image, VmaAllocation allocation);

/* Virtual blocks: places in a range of the program's own. One thread at a time uses a block. */
VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateVirtualBlock(const VmaVirtualBlockCreateInfo *pCreateInfo, VmaVirtualBlock *pBlock);
VMA_CALL_PRE void VMA_CALL_POST vmaDestroyVirtualBlock(VmaVirtualBlock block);
VMA_CALL_PRE VkBool32 VMA_CALL_POST vmaIsVirtualBlockEmpty(VmaVirtualBlock block);
VMA_CALL_PRE void VMA_CALL_POST vmaGetVirtualAllocationInfo(
    VmaVirtualBlock block, VmaVirtualAllocation allocation, VmaVirtualAllocationInfo *pInfo);
VMA_CALL_PRE VkResult VMA_CALL_POST vmaVirtualAllocate(
    VmaVirtualBlock block, const VmaVirtualAllocationCreateInfo *pCreateInfo, VmaVirtualAllocation *pAllocation, VkDeviceSize *pOffset);
VMA_CALL_PRE void VMA_CALL_POST vmaVirtualFree(VmaVirtualBlock block, VmaVirtualAllocation allocation);
VMA_CALL_PRE void VMA_CALL_POST vmaClearVirtualBlock(VmaVirtualBlock block);
VMA_CALL_PRE void VMA_CALL_POST vmaSetVirtualAllocationUserData(VmaVirtualBlock block, VmaVirtualAllocation allocation, void *pUserData);
VMA_CALL_PRE void VMA_CALL_POST vmaGetVirtualBlockStatistics(VmaVirtualBlock block, VmaStatistics *pStats);
VMA_CALL_PRE void VMA_CALL_POST vmaCalculateVirtualBlockStatistics(VmaVirtualBlock block, VmaDetailedStatistics *pStats);

/* JSON, in VMA's schema; each string is freed by the function beside it. */
#if VMA_STATS_STRING_ENABLED
VMA_CALL_PRE void VMA_CALL_POST vmaBuildVirtualBlockStatsString(VmaVirtualBlock block, char **ppString, VkBool32 detailedMap);
VMA_CALL_PRE void VMA_CALL_POST vmaFreeVirtualBlockStatsString(VmaVirtualBlock block, char *pString);
VMA_CALL_PRE void VMA_CALL_POST vmaBuildStatsString(VmaAllocator allocator, char **ppString, VkBool32 detailedMap);
VMA_CALL_PRE void VMA_CALL_POST vmaFreeStatsString(VmaAllocator allocator, char *pString);
#endif

/* ---- Additions to VMA ---- */

/* The manager behind an allocator, for the functions of <omniheap.h>: reports, budgets, sleep, moves that ask. It lives as long as the
 * allocator, which keeps it; null for a handle that is not an allocator. Include <omniheap.h> first: its struct is returned. */
#ifdef OMNIHEAP_MOVE_COPY
struct omniheap_manager omniheap_vma_manager(VmaAllocator allocator);
#endif

/* All functions that an allocator may call, in one layout for all macros. */
typedef struct OmniheapVmaFunctions {
    PFN_vkVoidFunction vkGetInstanceProcAddr;
    PFN_vkVoidFunction vkGetDeviceProcAddr;
    PFN_vkVoidFunction vkGetPhysicalDeviceProperties;
    PFN_vkVoidFunction vkGetPhysicalDeviceMemoryProperties;
    PFN_vkVoidFunction vkAllocateMemory;
    PFN_vkVoidFunction vkFreeMemory;
    PFN_vkVoidFunction vkMapMemory;
    PFN_vkVoidFunction vkUnmapMemory;
    PFN_vkVoidFunction vkFlushMappedMemoryRanges;
    PFN_vkVoidFunction vkInvalidateMappedMemoryRanges;
    PFN_vkVoidFunction vkBindBufferMemory;
    PFN_vkVoidFunction vkBindImageMemory;
    PFN_vkVoidFunction vkGetBufferMemoryRequirements;
    PFN_vkVoidFunction vkGetImageMemoryRequirements;
    PFN_vkVoidFunction vkCreateBuffer;
    PFN_vkVoidFunction vkDestroyBuffer;
    PFN_vkVoidFunction vkCreateImage;
    PFN_vkVoidFunction vkDestroyImage;
    PFN_vkVoidFunction vkCmdCopyBuffer;
    PFN_vkVoidFunction vkGetBufferMemoryRequirements2KHR;
    PFN_vkVoidFunction vkGetImageMemoryRequirements2KHR;
    PFN_vkVoidFunction vkBindBufferMemory2KHR;
    PFN_vkVoidFunction vkBindImageMemory2KHR;
    PFN_vkVoidFunction vkGetPhysicalDeviceMemoryProperties2KHR;
    PFN_vkVoidFunction vkGetDeviceBufferMemoryRequirements;
    PFN_vkVoidFunction vkGetDeviceImageMemoryRequirements;
    PFN_vkVoidFunction vkGetMemoryWin32HandleKHR;
    PFN_vkVoidFunction vkGetPhysicalDeviceProperties2KHR;
} OmniheapVmaFunctions;

/* Values of a program's macros. */
typedef struct OmniheapVmaProgram {
    size_t size;               /* of this struct */
    uint32_t layout;           /* OMNIHEAP_VMA_LAYOUT */
    VkBool32 dynamicFunctions; /* VMA_DYNAMIC_VULKAN_FUNCTIONS */
    OmniheapVmaFunctions functions;
    const uint32_t *typeExternalMemoryHandleTypes;
    VkDeviceSize debugMargin;
    VkDeviceSize minAlignment;
    VkDeviceSize minBufferImageGranularity;
    VkDeviceSize smallHeapMaxSize;          /* 0: the library decides */
    VkDeviceSize defaultLargeHeapBlockSize; /* 0: the library decides */
    VkBool32 detectCorruption;
    VkBool32 initializeAllocations;
    VkBool32 alwaysDedicatedMemory;
    VkBool32 dontExceedMaxMemoryAllocationCount;
    VkBool32 dontExceedHeapSizeWithAllocationSize;
} OmniheapVmaProgram;

/* vmaCreateAllocator with the macros as an argument. Of `info`, pVulkanFunctions and pTypeExternalMemoryHandleTypes are not read: they are in
 * `program`. A null `program` is one that says nothing: `info` has all fields of 3.4, functions are asked for by name. */
VkResult omniheap_vma_create_allocator(const VmaAllocatorCreateInfo *info, const OmniheapVmaProgram *program, VmaAllocator *allocator);

#ifdef __cplusplus
}
#endif

#endif /* AMD_VULKAN_MEMORY_ALLOCATOR_H */

/* Outside the guard: the file that defines VMA_IMPLEMENTATION may have included the header before. */
#ifdef VMA_IMPLEMENTATION
#undef VMA_IMPLEMENTATION

#include <assert.h>
#include <string.h>

/* Programs of one file lean on what VMA's implementation includes and defines. */
#ifdef __cplusplus
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#if __cplusplus >= 201703L || (defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#include <shared_mutex>
#endif
#if __cplusplus >= 202002L || (defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#include <bit>
#endif
#endif
#ifdef VMA_CONFIGURATION_USER_INCLUDES_H
#include VMA_CONFIGURATION_USER_INCLUDES_H /* it may define the macros below */
#endif
#ifndef VMA_NULL
#ifdef __cplusplus
#define VMA_NULL nullptr
#else
#define VMA_NULL NULL
#endif
#endif
#ifndef VMA_ASSERT
#define VMA_ASSERT(expression) assert(expression)
#endif

#if !defined(VMA_STATIC_VULKAN_FUNCTIONS) && !defined(VK_NO_PROTOTYPES)
#define VMA_STATIC_VULKAN_FUNCTIONS 1
#endif
#ifndef VMA_DYNAMIC_VULKAN_FUNCTIONS
#define VMA_DYNAMIC_VULKAN_FUNCTIONS 1
#endif
#ifndef VMA_DEBUG_MARGIN
#define VMA_DEBUG_MARGIN (0)
#endif
#ifndef VMA_DEBUG_DETECT_CORRUPTION
#define VMA_DEBUG_DETECT_CORRUPTION (0)
#endif
#ifndef VMA_DEBUG_INITIALIZE_ALLOCATIONS
#define VMA_DEBUG_INITIALIZE_ALLOCATIONS (0)
#endif
#ifndef VMA_DEBUG_ALWAYS_DEDICATED_MEMORY
#define VMA_DEBUG_ALWAYS_DEDICATED_MEMORY (0)
#endif
#ifndef VMA_DEBUG_MIN_BUFFER_IMAGE_GRANULARITY
#define VMA_DEBUG_MIN_BUFFER_IMAGE_GRANULARITY (1)
#endif
#ifndef VMA_DEBUG_DONT_EXCEED_MAX_MEMORY_ALLOCATION_COUNT
#define VMA_DEBUG_DONT_EXCEED_MAX_MEMORY_ALLOCATION_COUNT (0)
#endif
#ifndef VMA_DEBUG_DONT_EXCEED_HEAP_SIZE_WITH_ALLOCATION_SIZE
#define VMA_DEBUG_DONT_EXCEED_HEAP_SIZE_WITH_ALLOCATION_SIZE (0)
#endif
#ifndef VMA_MIN_ALIGNMENT
#ifdef VMA_DEBUG_ALIGNMENT
#define VMA_MIN_ALIGNMENT VMA_DEBUG_ALIGNMENT
#else
#define VMA_MIN_ALIGNMENT (1)
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Functions that the program links, as VMA_STATIC_VULKAN_FUNCTIONS says. */
static void omniheap_vma_linked(uint32_t version, OmniheapVmaFunctions *to) {
#if defined(VMA_STATIC_VULKAN_FUNCTIONS) && VMA_STATIC_VULKAN_FUNCTIONS == 1
#define OMNIHEAP_VMA_PUT(field, function) to->field = (PFN_vkVoidFunction)function
    OMNIHEAP_VMA_PUT(vkGetInstanceProcAddr, vkGetInstanceProcAddr);
    OMNIHEAP_VMA_PUT(vkGetDeviceProcAddr, vkGetDeviceProcAddr);
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceProperties, vkGetPhysicalDeviceProperties);
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties, vkGetPhysicalDeviceMemoryProperties);
    OMNIHEAP_VMA_PUT(vkAllocateMemory, vkAllocateMemory);
    OMNIHEAP_VMA_PUT(vkFreeMemory, vkFreeMemory);
    OMNIHEAP_VMA_PUT(vkMapMemory, vkMapMemory);
    OMNIHEAP_VMA_PUT(vkUnmapMemory, vkUnmapMemory);
    OMNIHEAP_VMA_PUT(vkFlushMappedMemoryRanges, vkFlushMappedMemoryRanges);
    OMNIHEAP_VMA_PUT(vkInvalidateMappedMemoryRanges, vkInvalidateMappedMemoryRanges);
    OMNIHEAP_VMA_PUT(vkBindBufferMemory, vkBindBufferMemory);
    OMNIHEAP_VMA_PUT(vkBindImageMemory, vkBindImageMemory);
    OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements, vkGetBufferMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements, vkGetImageMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkCreateBuffer, vkCreateBuffer);
    OMNIHEAP_VMA_PUT(vkDestroyBuffer, vkDestroyBuffer);
    OMNIHEAP_VMA_PUT(vkCreateImage, vkCreateImage);
    OMNIHEAP_VMA_PUT(vkDestroyImage, vkDestroyImage);
    OMNIHEAP_VMA_PUT(vkCmdCopyBuffer, vkCmdCopyBuffer);
#if VMA_VULKAN_VERSION >= 1001000
    if (version >= VK_MAKE_VERSION(1, 1, 0)) {
        OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements2KHR, vkGetBufferMemoryRequirements2);
        OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements2KHR, vkGetImageMemoryRequirements2);
        OMNIHEAP_VMA_PUT(vkBindBufferMemory2KHR, vkBindBufferMemory2);
        OMNIHEAP_VMA_PUT(vkBindImageMemory2KHR, vkBindImageMemory2);
        OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties2KHR, vkGetPhysicalDeviceMemoryProperties2);
        OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceProperties2KHR, vkGetPhysicalDeviceProperties2);
    }
#endif
#if VMA_VULKAN_VERSION >= 1003000
    if (version >= VK_MAKE_VERSION(1, 3, 0)) {
        OMNIHEAP_VMA_PUT(vkGetDeviceBufferMemoryRequirements, vkGetDeviceBufferMemoryRequirements);
        OMNIHEAP_VMA_PUT(vkGetDeviceImageMemoryRequirements, vkGetDeviceImageMemoryRequirements);
    }
#endif
#undef OMNIHEAP_VMA_PUT
#else
    (void)to;
#endif
    (void)version;
}

/* The program's functions, in the fields that its macros leave. */
static void omniheap_vma_given(const VmaVulkanFunctions *from, OmniheapVmaFunctions *to) {
#define OMNIHEAP_VMA_PUT(field) \
    if (from->field) to->field = (PFN_vkVoidFunction)from->field
    OMNIHEAP_VMA_PUT(vkGetInstanceProcAddr);
    OMNIHEAP_VMA_PUT(vkGetDeviceProcAddr);
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceProperties);
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties);
    OMNIHEAP_VMA_PUT(vkAllocateMemory);
    OMNIHEAP_VMA_PUT(vkFreeMemory);
    OMNIHEAP_VMA_PUT(vkMapMemory);
    OMNIHEAP_VMA_PUT(vkUnmapMemory);
    OMNIHEAP_VMA_PUT(vkFlushMappedMemoryRanges);
    OMNIHEAP_VMA_PUT(vkInvalidateMappedMemoryRanges);
    OMNIHEAP_VMA_PUT(vkBindBufferMemory);
    OMNIHEAP_VMA_PUT(vkBindImageMemory);
    OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkCreateBuffer);
    OMNIHEAP_VMA_PUT(vkDestroyBuffer);
    OMNIHEAP_VMA_PUT(vkCreateImage);
    OMNIHEAP_VMA_PUT(vkDestroyImage);
    OMNIHEAP_VMA_PUT(vkCmdCopyBuffer);
#if VMA_DEDICATED_ALLOCATION || VMA_VULKAN_VERSION >= 1001000
    OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements2KHR);
    OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements2KHR);
#endif
#if VMA_BIND_MEMORY2 || VMA_VULKAN_VERSION >= 1001000
    OMNIHEAP_VMA_PUT(vkBindBufferMemory2KHR);
    OMNIHEAP_VMA_PUT(vkBindImageMemory2KHR);
#endif
#if VMA_GET_PHYSICAL_DEVICE_PROPERTIES2
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties2KHR);
#if OMNIHEAP_VMA_LAYOUT >= 3004
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceProperties2KHR);
#endif
#endif
#if VMA_KHR_MAINTENANCE4 || VMA_VULKAN_VERSION >= 1003000
    OMNIHEAP_VMA_PUT(vkGetDeviceBufferMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkGetDeviceImageMemoryRequirements);
#endif
#if VMA_EXTERNAL_MEMORY_WIN32
    OMNIHEAP_VMA_PUT(vkGetMemoryWin32HandleKHR);
#endif
#undef OMNIHEAP_VMA_PUT
}

VMA_CALL_PRE VkResult VMA_CALL_POST vmaCreateAllocator(const VmaAllocatorCreateInfo *pCreateInfo, VmaAllocator *pAllocator) {
    OmniheapVmaProgram program;
    memset(&program, 0, sizeof(program));
    program.size = sizeof(program);
    program.layout = OMNIHEAP_VMA_LAYOUT;
    program.dynamicFunctions = VMA_DYNAMIC_VULKAN_FUNCTIONS;
    program.debugMargin = VMA_DEBUG_MARGIN;
    program.minAlignment = VMA_MIN_ALIGNMENT;
    program.minBufferImageGranularity = VMA_DEBUG_MIN_BUFFER_IMAGE_GRANULARITY;
    program.detectCorruption = VMA_DEBUG_DETECT_CORRUPTION;
    program.initializeAllocations = VMA_DEBUG_INITIALIZE_ALLOCATIONS;
    program.alwaysDedicatedMemory = VMA_DEBUG_ALWAYS_DEDICATED_MEMORY;
    program.dontExceedMaxMemoryAllocationCount = VMA_DEBUG_DONT_EXCEED_MAX_MEMORY_ALLOCATION_COUNT;
    program.dontExceedHeapSizeWithAllocationSize = VMA_DEBUG_DONT_EXCEED_HEAP_SIZE_WITH_ALLOCATION_SIZE;
#ifdef VMA_SMALL_HEAP_MAX_SIZE
    program.smallHeapMaxSize = VMA_SMALL_HEAP_MAX_SIZE;
#endif
#ifdef VMA_DEFAULT_LARGE_HEAP_BLOCK_SIZE
    program.defaultLargeHeapBlockSize = VMA_DEFAULT_LARGE_HEAP_BLOCK_SIZE;
#endif
    if (pCreateInfo) {
        omniheap_vma_linked(pCreateInfo->vulkanApiVersion, &program.functions);
        if (pCreateInfo->pVulkanFunctions) {
            omniheap_vma_given(pCreateInfo->pVulkanFunctions, &program.functions);
        }
#if VMA_EXTERNAL_MEMORY
        program.typeExternalMemoryHandleTypes = pCreateInfo->pTypeExternalMemoryHandleTypes;
#endif
    }
    return omniheap_vma_create_allocator(pCreateInfo, &program, pAllocator);
}

#ifdef VOLK_HEADER_VERSION
VMA_CALL_PRE VkResult VMA_CALL_POST vmaImportVulkanFunctionsFromVolk(
    const VmaAllocatorCreateInfo *pAllocatorCreateInfo, VmaVulkanFunctions *pDstVulkanFunctions) {
    struct VolkDeviceTable table;
    if (!pAllocatorCreateInfo || !pDstVulkanFunctions || !pAllocatorCreateInfo->instance || !pAllocatorCreateInfo->device) {
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    memset(pDstVulkanFunctions, 0, sizeof(*pDstVulkanFunctions));
    memset(&table, 0, sizeof(table));
    volkLoadDeviceTable(&table, pAllocatorCreateInfo->device);
#define OMNIHEAP_VMA_PUT(field, function) \
    if (!pDstVulkanFunctions->field) pDstVulkanFunctions->field = function
    OMNIHEAP_VMA_PUT(vkGetInstanceProcAddr, vkGetInstanceProcAddr);
    OMNIHEAP_VMA_PUT(vkGetDeviceProcAddr, vkGetDeviceProcAddr);
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceProperties, vkGetPhysicalDeviceProperties);
    OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties, vkGetPhysicalDeviceMemoryProperties);
    OMNIHEAP_VMA_PUT(vkAllocateMemory, table.vkAllocateMemory);
    OMNIHEAP_VMA_PUT(vkFreeMemory, table.vkFreeMemory);
    OMNIHEAP_VMA_PUT(vkMapMemory, table.vkMapMemory);
    OMNIHEAP_VMA_PUT(vkUnmapMemory, table.vkUnmapMemory);
    OMNIHEAP_VMA_PUT(vkFlushMappedMemoryRanges, table.vkFlushMappedMemoryRanges);
    OMNIHEAP_VMA_PUT(vkInvalidateMappedMemoryRanges, table.vkInvalidateMappedMemoryRanges);
    OMNIHEAP_VMA_PUT(vkBindBufferMemory, table.vkBindBufferMemory);
    OMNIHEAP_VMA_PUT(vkBindImageMemory, table.vkBindImageMemory);
    OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements, table.vkGetBufferMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements, table.vkGetImageMemoryRequirements);
    OMNIHEAP_VMA_PUT(vkCreateBuffer, table.vkCreateBuffer);
    OMNIHEAP_VMA_PUT(vkDestroyBuffer, table.vkDestroyBuffer);
    OMNIHEAP_VMA_PUT(vkCreateImage, table.vkCreateImage);
    OMNIHEAP_VMA_PUT(vkDestroyImage, table.vkDestroyImage);
    OMNIHEAP_VMA_PUT(vkCmdCopyBuffer, table.vkCmdCopyBuffer);
#if VMA_VULKAN_VERSION >= 1001000
    if (pAllocatorCreateInfo->vulkanApiVersion >= VK_MAKE_VERSION(1, 1, 0)) {
        OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties2KHR, vkGetPhysicalDeviceMemoryProperties2);
#if OMNIHEAP_VMA_LAYOUT >= 3004
        OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceProperties2KHR, vkGetPhysicalDeviceProperties2);
#endif
        OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements2KHR, table.vkGetBufferMemoryRequirements2);
        OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements2KHR, table.vkGetImageMemoryRequirements2);
        OMNIHEAP_VMA_PUT(vkBindBufferMemory2KHR, table.vkBindBufferMemory2);
        OMNIHEAP_VMA_PUT(vkBindImageMemory2KHR, table.vkBindImageMemory2);
    }
#endif
#if VMA_VULKAN_VERSION >= 1003000
    if (pAllocatorCreateInfo->vulkanApiVersion >= VK_MAKE_VERSION(1, 3, 0)) {
        OMNIHEAP_VMA_PUT(vkGetDeviceBufferMemoryRequirements, table.vkGetDeviceBufferMemoryRequirements);
        OMNIHEAP_VMA_PUT(vkGetDeviceImageMemoryRequirements, table.vkGetDeviceImageMemoryRequirements);
    }
#endif
#if VMA_KHR_MAINTENANCE4
    if (pAllocatorCreateInfo->flags & VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE4_BIT) {
        OMNIHEAP_VMA_PUT(vkGetDeviceBufferMemoryRequirements, table.vkGetDeviceBufferMemoryRequirementsKHR);
        OMNIHEAP_VMA_PUT(vkGetDeviceImageMemoryRequirements, table.vkGetDeviceImageMemoryRequirementsKHR);
    }
#endif
#if VMA_DEDICATED_ALLOCATION
    if (pAllocatorCreateInfo->flags & VMA_ALLOCATOR_CREATE_KHR_DEDICATED_ALLOCATION_BIT) {
        OMNIHEAP_VMA_PUT(vkGetBufferMemoryRequirements2KHR, table.vkGetBufferMemoryRequirements2KHR);
        OMNIHEAP_VMA_PUT(vkGetImageMemoryRequirements2KHR, table.vkGetImageMemoryRequirements2KHR);
    }
#endif
#if VMA_BIND_MEMORY2
    if (pAllocatorCreateInfo->flags & VMA_ALLOCATOR_CREATE_KHR_BIND_MEMORY2_BIT) {
        OMNIHEAP_VMA_PUT(vkBindBufferMemory2KHR, table.vkBindBufferMemory2KHR);
        OMNIHEAP_VMA_PUT(vkBindImageMemory2KHR, table.vkBindImageMemory2KHR);
    }
#endif
#if VMA_MEMORY_BUDGET
    if (pAllocatorCreateInfo->flags & VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT) {
        OMNIHEAP_VMA_PUT(vkGetPhysicalDeviceMemoryProperties2KHR, vkGetPhysicalDeviceMemoryProperties2KHR);
    }
#endif
#if VMA_EXTERNAL_MEMORY_WIN32
    if (pAllocatorCreateInfo->flags & VMA_ALLOCATOR_CREATE_KHR_EXTERNAL_MEMORY_WIN32_BIT) {
        OMNIHEAP_VMA_PUT(vkGetMemoryWin32HandleKHR, table.vkGetMemoryWin32HandleKHR);
    }
#endif
#undef OMNIHEAP_VMA_PUT
    return VK_SUCCESS;
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* VMA_IMPLEMENTATION */

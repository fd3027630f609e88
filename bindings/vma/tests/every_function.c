/* Calls every function of the interface, in C99 and (from every_function.cpp) in C++, and then with what may not be. Prints "ok", or
 * "skipped" where no device is. VK_NO_PROTOTYPES: functions come from a loader that is opened here; else they are linked. */
#define VMA_IMPLEMENTATION
#include <vk_mem_alloc.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                       \
    do {                                                                  \
        if (!(what)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);    \
            exit(1);                                                      \
        }                                                                 \
    } while (0)
#define DONE(call) CHECK((call) == VK_SUCCESS)
/* A zeroed variable: `= {0}` warns in C++, `= {}` is not C. */
#define ZEROED(type, name) \
    type name;             \
    memset(&name, 0, sizeof(name))

#define OF_INSTANCE(name) PFN_vk##name name = (PFN_vk##name)get(instance, "vk" #name)

static PFN_vkGetInstanceProcAddr get;
static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
static VmaAllocator allocator;
static uint32_t taken, given;

static void VKAPI_PTR note_taken(VmaAllocator of, uint32_t type, VkDeviceMemory memory, VkDeviceSize size, void *data) {
    CHECK(of && memory && size && type < VK_MAX_MEMORY_TYPES && data == &taken);
    ++taken;
}

static void VKAPI_PTR note_given(VmaAllocator of, uint32_t type, VkDeviceMemory memory, VkDeviceSize size, void *data) {
    CHECK(of && memory && size && type < VK_MAX_MEMORY_TYPES && data == &taken);
    ++given;
}

static int open_device(void) {
    ZEROED(VkApplicationInfo, application);
    ZEROED(VkInstanceCreateInfo, instance_info);
    ZEROED(VkDeviceQueueCreateInfo, queue);
    ZEROED(VkDeviceCreateInfo, device_info);
    uint32_t count = 1;
    float priority = 1.0f;
#ifdef VK_NO_PROTOTYPES
    void *loader = dlopen("libvulkan.so.1", RTLD_NOW);
    if (!loader) return 0;
    get = (PFN_vkGetInstanceProcAddr)(uintptr_t)dlsym(loader, "vkGetInstanceProcAddr");
#else
    get = vkGetInstanceProcAddr;
#endif
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_1;
    instance_info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    instance_info.pApplicationInfo = &application;
    OF_INSTANCE(CreateInstance);
    if (CreateInstance(&instance_info, NULL, &instance) != VK_SUCCESS) return 0;
    OF_INSTANCE(EnumeratePhysicalDevices);
    if (EnumeratePhysicalDevices(instance, &count, &physical) < 0 || count == 0) return 0;
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    device_info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    device_info.queueCreateInfoCount = 1;
    device_info.pQueueCreateInfos = &queue;
    OF_INSTANCE(CreateDevice);
    return CreateDevice(physical, &device_info, NULL, &device) == VK_SUCCESS;
}

#if VMA_DYNAMIC_VULKAN_FUNCTIONS == 0
static PFN_vkVoidFunction VKAPI_PTR not_to_be_called(VkInstance of, const char *name) {
    (void)of;
    fprintf(stderr, "%s was asked for\n", name);
    abort();
}

/* All functions of Vulkan 1.1, and a loader's function that must not be called. */
static void give_all(VmaVulkanFunctions *to) {
#define GIVE(name) to->vk##name = (PFN_vk##name)get(instance, "vk" #name)
#define GIVE_KHR(name) to->vk##name##KHR = (PFN_vk##name##KHR)get(instance, "vk" #name)
    GIVE(GetPhysicalDeviceProperties);
    GIVE(GetPhysicalDeviceMemoryProperties);
    GIVE(AllocateMemory);
    GIVE(FreeMemory);
    GIVE(MapMemory);
    GIVE(UnmapMemory);
    GIVE(FlushMappedMemoryRanges);
    GIVE(InvalidateMappedMemoryRanges);
    GIVE(BindBufferMemory);
    GIVE(BindImageMemory);
    GIVE(GetBufferMemoryRequirements);
    GIVE(GetImageMemoryRequirements);
    GIVE(CreateBuffer);
    GIVE(DestroyBuffer);
    GIVE(CreateImage);
    GIVE(DestroyImage);
    GIVE(CmdCopyBuffer);
    GIVE_KHR(GetBufferMemoryRequirements2);
    GIVE_KHR(GetImageMemoryRequirements2);
    GIVE_KHR(BindBufferMemory2);
    GIVE_KHR(BindImageMemory2);
    GIVE_KHR(GetPhysicalDeviceMemoryProperties2);
    GIVE_KHR(GetPhysicalDeviceProperties2);
    to->vkGetInstanceProcAddr = not_to_be_called;
    to->vkGetDeviceProcAddr = NULL;
}
#endif

static VmaAllocatorCreateInfo allocator_info(VmaVulkanFunctions *functions, VmaDeviceMemoryCallbacks *callbacks) {
    ZEROED(VmaAllocatorCreateInfo, info);
    memset(functions, 0, sizeof(*functions));
    functions->vkGetInstanceProcAddr = get;
    functions->vkGetDeviceProcAddr = (PFN_vkGetDeviceProcAddr)get(instance, "vkGetDeviceProcAddr");
#if VMA_DYNAMIC_VULKAN_FUNCTIONS == 0
    give_all(functions);
#endif
    callbacks->pfnAllocate = note_taken;
    callbacks->pfnFree = note_given;
    callbacks->pUserData = &taken;
    info.physicalDevice = physical;
    info.device = device;
    info.instance = instance;
    info.vulkanApiVersion = VK_API_VERSION_1_1;
    info.pVulkanFunctions = functions;
    info.pDeviceMemoryCallbacks = callbacks;
    return info;
}

static VkBufferCreateInfo buffer_info(VkDeviceSize size) {
    ZEROED(VkBufferCreateInfo, info);
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = size;
    info.usage = VK_BUFFER_USAGE_VERTEX_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    return info;
}

static VkImageCreateInfo image_info(void) {
    ZEROED(VkImageCreateInfo, info);
    info.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    info.imageType = VK_IMAGE_TYPE_2D;
    info.format = VK_FORMAT_R8G8B8A8_UNORM;
    info.extent.width = info.extent.height = 64;
    info.extent.depth = info.mipLevels = info.arrayLayers = 1;
    info.samples = VK_SAMPLE_COUNT_1_BIT;
    info.usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT;
    return info;
}

static VmaAllocationCreateInfo usual(VmaAllocationCreateFlags flags) {
    ZEROED(VmaAllocationCreateInfo, info);
    info.usage = VMA_MEMORY_USAGE_AUTO;
    info.flags = flags;
    return info;
}

/* Memory that the host writes and reads, mapped as long as it lives. */
static VmaAllocationCreateInfo mapped(void) {
    return usual(VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT | VMA_ALLOCATION_CREATE_MAPPED_BIT);
}

static VkMemoryRequirements bytes(VkDeviceSize size) {
    VkMemoryRequirements needs;
    needs.size = size;
    needs.alignment = 256;
    needs.memoryTypeBits = UINT32_MAX;
    return needs;
}

static void about_the_allocator(void) {
    VmaAllocatorInfo info;
    const VkPhysicalDeviceProperties *properties = NULL;
    const VkPhysicalDeviceMemoryProperties *memory = NULL;
    VkMemoryPropertyFlags flags = 0;
    VmaBudget budgets[VK_MAX_MEMORY_HEAPS];
    char *text = NULL;
    vmaGetAllocatorInfo(allocator, &info);
    CHECK(info.instance == instance && info.physicalDevice == physical && info.device == device);
    vmaGetPhysicalDeviceProperties(allocator, &properties);
    CHECK(properties && properties->deviceName[0]);
    vmaGetMemoryProperties(allocator, &memory);
    CHECK(memory && memory->memoryTypeCount > 0 && memory->memoryHeapCount > 0);
    vmaGetMemoryTypeProperties(allocator, 0, &flags);
    CHECK(flags == memory->memoryTypes[0].propertyFlags);
    vmaSetCurrentFrameIndex(allocator, 7);
    vmaGetHeapBudgets(allocator, budgets);
    CHECK(budgets[0].budget > 0 && budgets[0].statistics.allocationBytes <= budgets[0].statistics.blockBytes);
    vmaBuildStatsString(allocator, &text, VK_TRUE);
    CHECK(text && strstr(text, "\"Total\"") && strstr(text, "\"MemoryInfo\""));
    vmaFreeStatsString(allocator, text);
    vmaFreeStatsString(allocator, NULL);
}

static void memory_types(void) {
    VkBufferCreateInfo buffer = buffer_info(1024);
    VkImageCreateInfo image = image_info();
    VmaAllocationCreateInfo wish = usual(0), none = usual(0);
    VkMemoryPropertyFlags flags;
    uint32_t type = UINT32_MAX;
    wish.usage = VMA_MEMORY_USAGE_UNKNOWN;
    wish.requiredFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    DONE(vmaFindMemoryTypeIndex(allocator, UINT32_MAX, &wish, &type));
    vmaGetMemoryTypeProperties(allocator, type, &flags);
    CHECK(flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
    wish = mapped();
    DONE(vmaFindMemoryTypeIndexForBufferInfo(allocator, &buffer, &wish, &type));
    vmaGetMemoryTypeProperties(allocator, type, &flags);
    CHECK(flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
    wish = usual(0);
    DONE(vmaFindMemoryTypeIndexForImageInfo(allocator, &image, &wish, &type));
    vmaGetMemoryTypeProperties(allocator, type, &flags);
    CHECK(flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    none.usage = VMA_MEMORY_USAGE_UNKNOWN;
    none.requiredFlags = VK_MEMORY_PROPERTY_PROTECTED_BIT;
    CHECK(vmaFindMemoryTypeIndex(allocator, UINT32_MAX, &none, &type) == VK_ERROR_FEATURE_NOT_PRESENT);
}

static void memory_alone(void) {
    VkMemoryRequirements needs[2] = {bytes(1000), bytes(2000)};
    VmaAllocationCreateInfo wish = usual(0);
    VmaAllocation one, own, pages[3], more[4];
    VmaAllocationInfo info, infos[3];
    VmaAllocationInfo2 both;
    VkMemoryPropertyFlags flags = 0;
    wish.usage = VMA_MEMORY_USAGE_UNKNOWN;
    wish.requiredFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    wish.pUserData = &wish;
    DONE(vmaAllocateMemory(allocator, &needs[0], &wish, &one, &info));
    CHECK(info.size >= 1000 && info.offset % 256 == 0 && info.deviceMemory && info.pUserData == &wish);
    CHECK(!info.pMappedData && !info.pName);
    vmaSetAllocationUserData(allocator, one, &one);
    vmaSetAllocationName(allocator, one, "one");
    vmaGetAllocationInfo(allocator, one, &info);
    CHECK(info.pUserData == &one && strcmp(info.pName, "one") == 0);
    vmaSetAllocationName(allocator, one, NULL);
    vmaGetAllocationInfo2(allocator, one, &both);
    CHECK(!both.allocationInfo.pName && both.blockSize >= 1000 && !both.dedicatedMemory);
    vmaGetAllocationMemoryProperties(allocator, one, &flags);
    CHECK(flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
    DONE(vmaAllocateDedicatedMemory(allocator, &needs[1], &wish, NULL, &own, &info));
    vmaGetAllocationInfo2(allocator, own, &both);
    CHECK(both.dedicatedMemory && both.blockSize == 2000 && info.offset == 0);
    /* One wish for all: VMA reads the first element of both arrays, and programs pass no more. */
    DONE(vmaAllocateMemoryPages(allocator, &needs[0], &wish, 3, pages, infos));
    CHECK(infos[2].size >= 1000 && pages[0] != pages[2]);
    more[0] = one, more[1] = NULL, more[2] = own, more[3] = pages[0];
    vmaFreeMemoryPages(allocator, 4, more);
    vmaFreeMemory(allocator, pages[1]);
    vmaFreeMemory(allocator, pages[2]);
    vmaFreeMemory(allocator, NULL);
}

static void objects_of_the_program(void) {
    VkBufferCreateInfo buffers = buffer_info(5000);
    VkImageCreateInfo images = image_info();
    VmaAllocationCreateInfo wish = usual(0);
    VmaAllocation of_buffer, of_image;
    VkBuffer buffer, second, aliased, moved;
    VkImage image, other, over, below;
    VmaAllocationInfo info;
    OF_INSTANCE(CreateBuffer);
    OF_INSTANCE(CreateImage);
    OF_INSTANCE(DestroyBuffer);
    OF_INSTANCE(DestroyImage);
    DONE(CreateBuffer(device, &buffers, NULL, &buffer));
    DONE(CreateBuffer(device, &buffers, NULL, &second));
    DONE(CreateImage(device, &images, NULL, &image));
    DONE(CreateImage(device, &images, NULL, &other));
    wish.usage = VMA_MEMORY_USAGE_GPU_ONLY;
    wish.flags = VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT;
    DONE(vmaAllocateMemoryForBuffer(allocator, buffer, &wish, &of_buffer, &info));
    CHECK(info.size >= 5000);
    DONE(vmaAllocateMemoryForImage(allocator, image, &wish, &of_image, NULL));
    DONE(vmaBindBufferMemory(allocator, of_buffer, buffer));
    DONE(vmaBindBufferMemory2(allocator, of_buffer, 0, second, NULL));
    DONE(vmaBindImageMemory(allocator, of_image, image));
    DONE(vmaBindImageMemory2(allocator, of_image, 0, other, NULL));
    DONE(vmaCreateAliasingBuffer(allocator, of_buffer, &buffers, &aliased));
    buffers.size = 100;
    DONE(vmaCreateAliasingBuffer2(allocator, of_buffer, 1024, &buffers, &moved));
    DONE(vmaCreateAliasingImage(allocator, of_image, &images, &over));
    DONE(vmaCreateAliasingImage2(allocator, of_image, 0, &images, &below));
    DestroyBuffer(device, aliased, NULL);
    DestroyBuffer(device, moved, NULL);
    DestroyBuffer(device, second, NULL);
    DestroyImage(device, over, NULL);
    DestroyImage(device, below, NULL);
    DestroyImage(device, other, NULL);
    vmaDestroyBuffer(allocator, buffer, of_buffer);
    vmaDestroyImage(allocator, image, of_image);
}

static void objects_of_the_library(void) {
    VkBufferCreateInfo buffers = buffer_info(5000);
    VkImageCreateInfo images = image_info();
    VmaAllocationCreateInfo wish = usual(0);
    VmaAllocation allocations[5];
    VkBuffer buffer[3];
    VkImage image[2];
    VmaAllocationInfo info;
    VmaAllocationInfo2 both;
    VmaTotalStatistics before, after;
    vmaCalculateStatistics(allocator, &before);
    DONE(vmaCreateBuffer(allocator, &buffers, &wish, &buffer[0], &allocations[0], &info));
    CHECK(buffer[0] && info.size >= 5000);
    DONE(vmaCreateBufferWithAlignment(allocator, &buffers, &wish, 4096, &buffer[1], &allocations[1], &info));
    CHECK(info.offset % 4096 == 0);
    DONE(vmaCreateDedicatedBuffer(allocator, &buffers, &wish, NULL, &buffer[2], &allocations[2], NULL));
    vmaGetAllocationInfo2(allocator, allocations[2], &both);
    CHECK(both.dedicatedMemory);
    DONE(vmaCreateImage(allocator, &images, &wish, &image[0], &allocations[3], NULL));
    DONE(vmaCreateDedicatedImage(allocator, &images, &wish, NULL, &image[1], &allocations[4], &info));
    CHECK(info.offset == 0);
    vmaCalculateStatistics(allocator, &after);
    CHECK(after.total.statistics.allocationCount == before.total.statistics.allocationCount + 5);
    CHECK(after.total.statistics.allocationBytes >= before.total.statistics.allocationBytes + 3 * 5000);
    CHECK(after.total.statistics.blockBytes >= after.total.statistics.allocationBytes);
    for (int i = 0; i < 3; ++i) vmaDestroyBuffer(allocator, buffer[i], allocations[i]);
    for (int i = 0; i < 2; ++i) vmaDestroyImage(allocator, image[i], allocations[3 + i]);
    vmaDestroyBuffer(allocator, VK_NULL_HANDLE, NULL);
    vmaDestroyImage(allocator, VK_NULL_HANDLE, NULL);
    vmaCalculateStatistics(allocator, &after);
    CHECK(after.total.statistics.allocationCount == before.total.statistics.allocationCount);
}

static void reads_and_writes(void) {
    VkBufferCreateInfo buffers = buffer_info(4096);
    VmaAllocationCreateInfo wish = mapped();
    VmaAllocation allocation, both[2];
    VkDeviceSize offsets[2] = {0, 16}, sizes[2] = {VK_WHOLE_SIZE, 100};
    VkBuffer buffer;
    VmaAllocationInfo info;
    void *first = NULL, *second = NULL;
    char text[6] = "?????";
    DONE(vmaCreateBuffer(allocator, &buffers, &wish, &buffer, &allocation, &info));
    CHECK(info.pMappedData);
    DONE(vmaMapMemory(allocator, allocation, &first));
    DONE(vmaMapMemory(allocator, allocation, &second));
    CHECK(first == second && first == info.pMappedData);
    memset(first, 1, 4096);
    vmaUnmapMemory(allocator, allocation);
    vmaUnmapMemory(allocator, allocation);
    memset(info.pMappedData, 2, 4096);
    DONE(vmaFlushAllocation(allocator, allocation, 0, VK_WHOLE_SIZE));
    DONE(vmaInvalidateAllocation(allocator, allocation, 100, 100));
    both[0] = both[1] = allocation;
    DONE(vmaFlushAllocations(allocator, 2, both, offsets, sizes));
    DONE(vmaInvalidateAllocations(allocator, 2, both, NULL, NULL));
    DONE(vmaCopyMemoryToAllocation(allocator, "hello", allocation, 1000, 6));
    DONE(vmaCopyAllocationToMemory(allocator, allocation, 1000, text, 6));
    CHECK(strcmp(text, "hello") == 0 && memcmp((char *)info.pMappedData + 1000, "hello", 6) == 0);
#if VMA_DEBUG_DETECT_CORRUPTION
    DONE(vmaCheckCorruption(allocator, UINT32_MAX));
#else
    CHECK(vmaCheckCorruption(allocator, UINT32_MAX) == VK_ERROR_FEATURE_NOT_PRESENT);
#endif
    vmaDestroyBuffer(allocator, buffer, allocation);
}

static VmaPool new_pool(VmaPoolCreateFlags flags, VkDeviceSize block, size_t most) {
    VkBufferCreateInfo buffers = buffer_info(1024);
    VmaAllocationCreateInfo wish = mapped();
    ZEROED(VmaPoolCreateInfo, info);
    VmaPool pool;
    DONE(vmaFindMemoryTypeIndexForBufferInfo(allocator, &buffers, &wish, &info.memoryTypeIndex));
    info.flags = flags;
    info.blockSize = block;
    info.maxBlockCount = most;
    DONE(vmaCreatePool(allocator, &info, &pool));
    return pool;
}

static void pools(void) {
    VmaPool pool = new_pool(0, 1 << 20, 1);
    VkMemoryRequirements needs = bytes(1 << 16);
    VmaAllocationCreateInfo wish = mapped();
    VmaAllocation allocation, none;
    VmaStatistics few;
    VmaDetailedStatistics all;
    const char *name = "";
    wish.pool = pool;
    vmaGetPoolName(allocator, pool, &name);
    CHECK(!name);
    vmaSetPoolName(allocator, pool, "a pool");
    vmaGetPoolName(allocator, pool, &name);
    CHECK(strcmp(name, "a pool") == 0);
    DONE(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL));
    vmaGetPoolStatistics(allocator, pool, &few);
    CHECK(few.blockCount == 1 && few.blockBytes == 1 << 20 && few.allocationCount == 1 && few.allocationBytes == 1 << 16);
    vmaCalculatePoolStatistics(allocator, pool, &all);
    CHECK(all.allocationSizeMin == 1 << 16 && all.allocationSizeMax == 1 << 16 && all.unusedRangeCount >= 1);
#if VMA_DEBUG_DETECT_CORRUPTION
    DONE(vmaCheckPoolCorruption(allocator, pool));
#else
    CHECK(vmaCheckPoolCorruption(allocator, pool) == VK_ERROR_FEATURE_NOT_PRESENT);
#endif
    needs.size = 1 << 20;
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, &none, NULL) == VK_ERROR_OUT_OF_DEVICE_MEMORY && !none);
    vmaFreeMemory(allocator, allocation);
    vmaDestroyPool(allocator, pool);
    vmaDestroyPool(allocator, NULL);
}

static void linear_pools(void) {
    VmaPool pool = new_pool(VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT, 1 << 20, 1);
    VkMemoryRequirements needs = bytes(1 << 18);
    VmaAllocationCreateInfo wish = mapped();
    VmaAllocation allocations[4], again;
    VmaAllocationInfo info;
    wish.pool = pool;
    for (int i = 0; i < 3; ++i) {
        DONE(vmaAllocateMemory(allocator, &needs, &wish, &allocations[i], &info));
        CHECK(info.offset >= (VkDeviceSize)i << 18);
    }
    vmaFreeMemory(allocator, allocations[2]);
    wish.flags |= VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT;
    DONE(vmaAllocateMemory(allocator, &needs, &wish, &again, &info));
    CHECK(info.offset >= 2 << 18);
    for (int i = 0; i < 2; ++i) vmaFreeMemory(allocator, allocations[i]);
    vmaFreeMemory(allocator, again);
    vmaDestroyPool(allocator, pool);
}

/* Frees every other buffer of a pool and defragments it. The copies are the program's: here each says which buffer it is. */
static void defragmentation(void) {
    enum { COUNT = 64 };
    VmaPool pool = new_pool(0, 1 << 18, 0);
    VkMemoryRequirements needs = bytes(1 << 14);
    VmaAllocationCreateInfo wish = mapped();
    ZEROED(VmaDefragmentationInfo, info);
    VmaDefragmentationContext context;
    VmaDefragmentationPassMoveInfo pass;
    VmaDefragmentationStats sums;
    VmaAllocation allocations[COUNT];
    VmaAllocationInfo from, to;
    VkResult result;
    uint32_t moves = 0;
    wish.pool = pool;
    for (size_t i = 0; i < COUNT; ++i) {
        DONE(vmaAllocateMemory(allocator, &needs, &wish, &allocations[i], &from));
        memset(from.pMappedData, (int)i, 1 << 14);
    }
    for (int i = 0; i < COUNT; i += 2) vmaFreeMemory(allocator, allocations[i]);
    info.flags = VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT;
    info.pool = pool;
    info.maxAllocationsPerPass = 8;
    DONE(vmaBeginDefragmentation(allocator, &info, &context));
    while ((result = vmaBeginDefragmentationPass(allocator, context, &pass)) == VK_INCOMPLETE) {
        CHECK(pass.moveCount > 0 && pass.moveCount <= 8);
        for (uint32_t i = 0; i < pass.moveCount; ++i) {
            CHECK(pass.pMoves[i].operation == VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY);
            vmaGetAllocationInfo(allocator, pass.pMoves[i].srcAllocation, &from);
            vmaGetAllocationInfo(allocator, pass.pMoves[i].dstTmpAllocation, &to);
            CHECK(from.size == to.size && (from.deviceMemory != to.deviceMemory || from.offset != to.offset));
            void *source, *target;
            DONE(vmaMapMemory(allocator, pass.pMoves[i].srcAllocation, &source));
            DONE(vmaMapMemory(allocator, pass.pMoves[i].dstTmpAllocation, &target));
            memmove(target, source, 1 << 14);
            vmaUnmapMemory(allocator, pass.pMoves[i].srcAllocation);
            vmaUnmapMemory(allocator, pass.pMoves[i].dstTmpAllocation);
            ++moves;
        }
        result = vmaEndDefragmentationPass(allocator, context, &pass);
        if (result == VK_SUCCESS) break;
        CHECK(result == VK_INCOMPLETE);
    }
    CHECK(result == VK_SUCCESS);
    vmaEndDefragmentation(allocator, context, &sums);
    CHECK(sums.allocationsMoved == moves && sums.bytesMoved == (VkDeviceSize)moves << 14 && moves > 0);
    for (int i = 1; i < COUNT; i += 2) {
        vmaGetAllocationInfo(allocator, allocations[i], &from);
        CHECK(from.pMappedData && ((unsigned char *)from.pMappedData)[100] == i);
        vmaFreeMemory(allocator, allocations[i]);
    }
    vmaDestroyPool(allocator, pool);
}

static void virtual_blocks(void) {
    ZEROED(VmaVirtualBlockCreateInfo, block_info);
    ZEROED(VmaVirtualAllocationCreateInfo, wish);
    VmaVirtualBlock block;
    VmaVirtualAllocation part = VK_NULL_HANDLE;
    VmaVirtualAllocationInfo info;
    VmaStatistics few;
    VmaDetailedStatistics all;
    VkDeviceSize offset = 7;
    char *text = NULL;
    block_info.size = 1000;
    DONE(vmaCreateVirtualBlock(&block_info, &block));
    CHECK(vmaIsVirtualBlockEmpty(block));
    wish.size = 100;
    wish.alignment = 16;
    wish.pUserData = &wish;
    DONE(vmaVirtualAllocate(block, &wish, &part, &offset));
    vmaGetVirtualAllocationInfo(block, part, &info);
    CHECK(info.offset == offset && info.size == 100 && info.pUserData == &wish);
    vmaSetVirtualAllocationUserData(block, part, NULL);
    vmaGetVirtualBlockStatistics(block, &few);
    CHECK(few.allocationCount == 1 && few.allocationBytes == 100 && few.blockBytes == 1000);
    vmaCalculateVirtualBlockStatistics(block, &all);
    CHECK(all.unusedRangeCount == 1 && all.unusedRangeSizeMax == 900);
    vmaBuildVirtualBlockStatsString(block, &text, VK_TRUE);
    CHECK(text && strstr(text, "Suballocations"));
    vmaFreeVirtualBlockStatsString(block, text);
    vmaVirtualFree(block, part);
    vmaVirtualFree(block, VK_NULL_HANDLE);
    DONE(vmaVirtualAllocate(block, &wish, &part, NULL));
    vmaClearVirtualBlock(block);
    CHECK(vmaIsVirtualBlockEmpty(block));
    vmaDestroyVirtualBlock(block);
    vmaDestroyVirtualBlock(NULL);
}

#ifndef ONLY_GOOD_INPUT
/* Calls on which VMA asserts: here they are refused, and change nothing. */
static void bad_handles(void) {
    VkMemoryRequirements needs = bytes(1000);
    VmaAllocationCreateInfo wish = mapped();
    VmaAllocation allocation;
    VmaAllocation foreign = (VmaAllocation)(uintptr_t)0x1234567890;
    VmaAllocationInfo info;
    VmaPool pool = new_pool(0, 1 << 20, 0);
    void *data = &data;
    wish.usage = VMA_MEMORY_USAGE_UNKNOWN;
    wish.requiredFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    CHECK(vmaAllocateMemory(NULL, &needs, &wish, &allocation, NULL) < 0);
    CHECK(vmaAllocateMemory((VmaAllocator)(uintptr_t)0x1230, &needs, &wish, &allocation, NULL) < 0);
    CHECK(vmaAllocateMemory(allocator, NULL, &wish, &allocation, NULL) < 0);
    CHECK(vmaAllocateMemory(allocator, &needs, NULL, &allocation, NULL) < 0);
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, NULL, NULL) < 0);
    CHECK(vmaMapMemory(allocator, foreign, &data) < 0 && vmaMapMemory(allocator, NULL, &data) < 0);
    vmaFreeMemory(allocator, foreign);
    vmaUnmapMemory(allocator, foreign);
    vmaGetAllocationInfo(allocator, foreign, &info);
    vmaGetAllocationInfo(allocator, NULL, NULL);
    vmaSetAllocationName(allocator, foreign, "x");
    DONE(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL));
    vmaUnmapMemory(allocator, allocation);
    vmaFreeMemory(allocator, allocation);
    vmaFreeMemory(allocator, allocation);
    CHECK(vmaMapMemory(allocator, allocation, &data) < 0);
    wish.pool = pool;
    DONE(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL));
    vmaDestroyPool(allocator, pool); /* in use */
    vmaFreeMemory(allocator, allocation);
    vmaDestroyPool(allocator, pool);
    vmaDestroyPool(allocator, pool);
    vmaDestroyPool(allocator, (VmaPool)(uintptr_t)0x1230);
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL) < 0);
}

static void bad_numbers(void) {
    VkBufferCreateInfo buffers = buffer_info(0);
    VkMemoryRequirements needs = bytes(0);
    VmaAllocationCreateInfo wish = usual(0);
    ZEROED(VmaPoolCreateInfo, pool_info);
    VmaAllocation allocation;
    VkBuffer buffer;
    VmaPool pool;
    VkMemoryPropertyFlags flags;
    uint32_t type;
    wish.usage = VMA_MEMORY_USAGE_UNKNOWN;
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL) < 0 && !allocation);
    needs.size = (VkDeviceSize)1 << 63;
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL) < 0 && !allocation);
    needs = bytes(1000);
    needs.alignment = 3;
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL) < 0 && !allocation);
    needs = bytes(1000);
    needs.memoryTypeBits = 0;
    CHECK(vmaAllocateMemory(allocator, &needs, &wish, &allocation, NULL) < 0 && !allocation);
    wish.usage = VMA_MEMORY_USAGE_AUTO;
    CHECK(vmaCreateBuffer(allocator, &buffers, &wish, &buffer, &allocation, NULL) < 0 && !buffer && !allocation);
    buffers.size = 1000;
    wish.minAlignment = 3;
    CHECK(vmaCreateBuffer(allocator, &buffers, &wish, &buffer, &allocation, NULL) < 0 && !buffer);
    wish = usual(VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT | VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT);
    CHECK(vmaCreateBuffer(allocator, &buffers, &wish, &buffer, &allocation, NULL) < 0 && !buffer);
    wish = usual(0);
    wish.usage = (VmaMemoryUsage)77;
    CHECK(vmaFindMemoryTypeIndexForBufferInfo(allocator, &buffers, &wish, &type) < 0);
    pool_info.memoryTypeIndex = 32;
    CHECK(vmaCreatePool(allocator, &pool_info, &pool) < 0 && !pool);
    pool_info.memoryTypeIndex = 0;
    pool_info.minBlockCount = 2;
    pool_info.maxBlockCount = 1;
    CHECK(vmaCreatePool(allocator, &pool_info, &pool) < 0 && !pool);
    vmaGetMemoryTypeProperties(allocator, 99, &flags);
}

static void bad_ranges(void) {
    VkBufferCreateInfo buffers = buffer_info(1000);
    VmaAllocationCreateInfo wish = mapped();
    VmaAllocation allocation;
    VkBuffer buffer;
    char text[8] = "";
    DONE(vmaCreateBuffer(allocator, &buffers, &wish, &buffer, &allocation, NULL));
    CHECK(vmaCopyMemoryToAllocation(allocator, text, allocation, (VkDeviceSize)1 << 40, 8) < 0);
    CHECK(vmaCopyAllocationToMemory(allocator, allocation, UINT64_MAX, text, 8) < 0);
    VkMemoryPropertyFlags flags;
    vmaGetAllocationMemoryProperties(allocator, allocation, &flags);
    VkResult flushed = vmaFlushAllocation(allocator, allocation, (VkDeviceSize)1 << 40, 8);
    CHECK((flushed == VK_SUCCESS) == !!(flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT));
    vmaDestroyBuffer(allocator, buffer, allocation);
}
#endif

int main(void) {
    VmaVulkanFunctions functions;
    VmaDeviceMemoryCallbacks callbacks;
    VmaAllocatorCreateInfo info;
    if (!open_device()) {
        puts("skipped: no Vulkan device");
        return 0;
    }
    info = allocator_info(&functions, &callbacks);
    DONE(vmaCreateAllocator(&info, &allocator));
    about_the_allocator();
    memory_types();
    memory_alone();
    objects_of_the_program();
    objects_of_the_library();
    reads_and_writes();
    pools();
    linear_pools();
    defragmentation();
    virtual_blocks();
#ifndef ONLY_GOOD_INPUT
    bad_handles();
    bad_numbers();
    bad_ranges();
    VmaAllocator none;
    CHECK(vmaCreateAllocator(NULL, &none) < 0 && vmaCreateAllocator(&info, NULL) < 0);
    info.device = VK_NULL_HANDLE;
    CHECK(vmaCreateAllocator(&info, &none) < 0);
#endif
    vmaDestroyAllocator(allocator);
#ifndef ONLY_GOOD_INPUT
    vmaDestroyAllocator(allocator);
#endif
    vmaDestroyAllocator(NULL);
    CHECK(taken > 0 && taken == given);
    OF_INSTANCE(DestroyDevice);
    OF_INSTANCE(DestroyInstance);
    DestroyDevice(device, NULL);
    DestroyInstance(instance, NULL);
    puts("ok");
    return 0;
}

// A Vulkan program that used the Vulkan Memory Allocator: the calls it made are in the comments, ours below them.
//
//   c++ -std=c++17 vma_to_omniheap.cpp $(pkg-config --cflags --libs omniheap) && ./a.out
//
// The Vulkan loader is opened at run time and the few declarations that are needed are here, so that the program builds
// without a Vulkan SDK; a program of yours includes <vulkan/vulkan.h>.
#include <omniheap.hpp>

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace {

using Handle = void *;
using Function = void (*)();
struct ApplicationInfo { uint32_t type; const void *next; const char *name; uint32_t version; const char *engine; uint32_t engine_version, api; };
struct InstanceInfo { uint32_t type; const void *next; uint32_t flags; const ApplicationInfo *application; uint32_t layers; const char *const *layer_names; uint32_t extensions; const char *const *extension_names; };
struct QueueInfo { uint32_t type; const void *next; uint32_t flags, family, count; const float *priorities; };
struct DeviceInfo { uint32_t type; const void *next; uint32_t flags, queues; const QueueInfo *queue; uint32_t layers; const char *const *layer_names; uint32_t extensions; const char *const *extension_names; const void *features; };
struct BufferInfo { uint32_t type; const void *next; uint32_t flags; uint64_t size; uint32_t usage, sharing, families; const uint32_t *indices; };

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "%s: %s\n", what, omniheap_error());
    std::exit(1);
}

void must(omniheap_status status, const char *what) {
    if (status != OMNIHEAP_STATUS_OK) fail(what);
}

template <typename F> F *function(Handle loader, Handle instance, const char *name) {
    auto get = reinterpret_cast<Function (*)(Handle, const char *)>(dlsym(loader, "vkGetInstanceProcAddr"));
    auto found = reinterpret_cast<F *>(get(instance, name));
    if (!found) fail(name);
    return found;
}

}  // namespace

int main() {
    Handle loader = dlopen("libvulkan.so.1", RTLD_NOW);
    if (!loader) {
        std::puts("skipped: no Vulkan loader here");
        return 0;
    }
    // The program's own instance, device and queue, as before.
    ApplicationInfo application{0, nullptr, "vma_to_omniheap", 0, nullptr, 0, (1u << 22) | (1u << 12)};
    InstanceInfo instance_info{1, nullptr, 0, &application, 0, nullptr, 0, nullptr};
    Handle instance = nullptr;
    if (function<int(const InstanceInfo *, const void *, Handle *)>(loader, nullptr, "vkCreateInstance")(&instance_info, nullptr, &instance) != 0) {
        std::puts("skipped: no Vulkan driver here");
        return 0;
    }
    uint32_t count = 1;
    Handle physical = nullptr;
    function<int(Handle, uint32_t *, Handle *)>(loader, instance, "vkEnumeratePhysicalDevices")(instance, &count, &physical);
    if (count == 0 || !physical) {
        std::puts("skipped: no Vulkan device here");
        return 0;
    }
    float priority = 1.0f;
    QueueInfo queue_info{2, nullptr, 0, 0, 1, &priority};
    DeviceInfo device_info{3, nullptr, 0, 1, &queue_info, 0, nullptr, 0, nullptr, nullptr};
    Handle device = nullptr, queue = nullptr;
    if (function<int(Handle, const DeviceInfo *, const void *, Handle *)>(loader, instance, "vkCreateDevice")(physical, &device_info, nullptr, &device) != 0) fail("vkCreateDevice");
    function<void(Handle, uint32_t, uint32_t, Handle *)>(loader, instance, "vkGetDeviceQueue")(device, 0, 0, &queue);

    // VMA: VmaAllocatorCreateInfo info{…}; vmaCreateAllocator(&info, &allocator);
    omniheap_vulkan_queue queues[] = {{queue, 0}};
    omniheap_vulkan_device wrapped = omniheap_vulkan_device_default();
    wrapped.get_instance_proc_addr = dlsym(loader, "vkGetInstanceProcAddr");
    wrapped.instance = instance;
    wrapped.physical_device = physical;
    wrapped.device = device;
    wrapped.queues = queues;
    wrapped.queue_count = 1;
    omniheap_config config = omniheap_config_default();
    config.paged = 0;  // buffers of the program's own are bound to VkDeviceMemory, which pages have not
    omniheap_manager manager{};
    must(omniheap_wrap_vulkan(&wrapped, &config, &manager), "omniheap_wrap_vulkan");

    // VMA: vmaCreateBuffer(allocator, &buffer_info, &allocation_info, &buffer, &allocation, nullptr);
    omniheap_request request = omniheap_request_default(0);
    request.name = "vertices";
    auto destroy = function<void(Handle, uint64_t, const void *)>(loader, instance, "vkDestroyBuffer");
    std::vector<uint64_t> buffers;
    std::vector<omniheap_allocation> allocations;
    for (uint64_t size : {256u, 4096u, 1u << 20, 3u << 20}) {
        BufferInfo info{12, nullptr, 0, size, 0x3, 0, 0, nullptr};
        omniheap_vulkan_bind bind = omniheap_vulkan_bind_default();
        bind.request = &request;
        bind.kind = OMNIHEAP_KIND_STAGING;
        must(omniheap_vulkan_create_buffer(manager, &info, &bind), "omniheap_vulkan_create_buffer");
        buffers.push_back(bind.buffer);
        allocations.push_back(bind.allocation);
    }

    // The same with an owner, of omniheap.hpp: it is retired at its end.
    {
        omniheap::manager own(manager);
        BufferInfo info{12, nullptr, 0, 4096, 0x3, 0, 0, nullptr};
        omniheap::vulkan_buffer first = own.create_vulkan_buffer(&info), second;
        second = std::move(first);
        if (first || !second || second.memory().place().size < 4096) fail("an owner was moved");
        const uint64_t handle = second.get();
        if (second.replace(7) != handle || second.replace(handle) != 7) fail("a handle was replaced");
        second.retire();
        own.create_vulkan_buffer(&info);
        (void)own.release();
    }

    // VMA: vmaMapMemory(allocator, allocation, &data); … vmaFlushAllocation(…); vmaUnmapMemory(…);
    void *data = nullptr;
    must(omniheap_map(allocations[2], &data), "omniheap_map");
    std::memset(data, 0x5a, 1 << 20);
    must(omniheap_flush(allocations[2], 0, 1 << 20), "omniheap_flush");
    unsigned char back[16];
    must(omniheap_read(allocations[2], 4096, back, sizeof back), "omniheap_read");
    if (back[0] != 0x5a || back[15] != 0x5a) fail("the bytes differ");

    // VMA: vmaGetAllocationInfo(allocator, allocation, &info): info.deviceMemory, info.offset
    omniheap_vulkan_placed place = omniheap_vulkan_placed_default();
    must(omniheap_vulkan_place(allocations[1], &place), "omniheap_vulkan_place");
    std::printf("placed: memory %llx, offset %llu\n", (unsigned long long)place.memory, (unsigned long long)place.offset);

    // VMA: vmaGetHeapBudgets(allocator, budgets); vmaBuildStatsString(allocator, &text, VK_TRUE);
    omniheap_sums sums = omniheap_sums_default();
    do {  // What was retired has gone when the work before it has ended.
        must(omniheap_retire(manager, nullptr), "omniheap_retire");
        must(omniheap_totals(manager, &sums), "omniheap_totals");
    } while (sums.live > 4);
    std::printf("live %llu, %llu bytes; reserved %llu\n", (unsigned long long)sums.live, (unsigned long long)sums.live_bytes, (unsigned long long)sums.reserved_bytes);
    if (sums.live != 4) fail("four buffers are live");

    // VMA: vmaDestroyBuffer(allocator, buffer, allocation); … vmaDestroyAllocator(allocator);
    for (size_t at = 0; at < buffers.size(); ++at) {
        destroy(device, buffers[at], nullptr);
        must(omniheap_free(allocations[at]), "omniheap_free");
    }
    must(omniheap_close(manager), "omniheap_close");
    function<void(Handle, const void *)>(loader, instance, "vkDestroyDevice")(device, nullptr);
    function<void(Handle, const void *)>(loader, instance, "vkDestroyInstance")(instance, nullptr);
    std::puts("ok");
}

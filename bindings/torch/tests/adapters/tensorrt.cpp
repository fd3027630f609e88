/* TensorRT's allocator on host memory, called as TensorRT does: through its base. */
#include "checks.hpp"
#include "omniheap_tensorrt.hpp"

#if defined(__GNUC__)
// The base calls two of them deprecated; TensorRT may call them all the same.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

static void refuses(nvinfer1::IGpuAllocator &allocator, cudaStream_t own) {
    CHECK(allocator.allocateAsync(0, 256, 0, own) == nullptr && allocator.allocate(0, 0, 0) == nullptr);
    for (std::uint64_t size : {std::uint64_t{1} << 40, std::uint64_t{1} << 63, UINT64_MAX}) {
        CHECK(allocator.allocateAsync(size, 256, 0, own) == nullptr && said("out of memory"));
        CHECK(allocator.allocate(size, 256, 0) == nullptr && omniheap_torch_is_shortage() == 1);
    }
    for (std::uint64_t alignment : {3, 1024}) {
        CHECK(allocator.allocateAsync(1, alignment, 0, own) == nullptr && allocator.allocate(1, alignment, 0) == nullptr);
    }
    CHECK(allocator.deallocateAsync(nullptr, own) && allocator.deallocate(nullptr));
    CHECK(!allocator.deallocateAsync(&allocator, own) && said("freed twice, or not ours"));
    CHECK(!allocator.deallocate(&allocator));
    omniheap::tensorrt_allocator nowhere{63};
    CHECK(nowhere.allocateAsync(1, 0, 0, own) == nullptr && said("device 63 cannot be opened"));
}

int main() {
    omniheap::tensorrt_allocator ours{0};
    nvinfer1::IGpuAllocator &allocator = ours;
    const cudaStream_t own = stream(7);
    CHECK(allocator.allocateAsync(1, 0, 0, own) == nullptr && said("cannot be opened"));
    configure();

    void *pointer = allocator.allocateAsync(MIB, 256, 0, own);
    CHECK(pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % 512 == 0);
    std::memset(pointer, 7, MIB);
    CHECK(allocator.reallocate(pointer, 256, 2 * MIB) == nullptr);
    CHECK(allocator.deallocateAsync(pointer, own) && !allocator.deallocateAsync(pointer, own));
    CHECK(allocator.allocateAsync(MIB, 512, 0, own) == pointer);
    CHECK(allocator.deallocateAsync(pointer, stream(9)));
    void *plain = allocator.allocate(MIB, 0, 0);
    std::memset(plain, 7, MIB);
    CHECK(allocator.deallocate(plain) && !allocator.deallocate(plain));
    CHECK(std::strcmp(allocator.getInterfaceInfo().kind, "IGpuAllocator") == 0);
    refuses(allocator, own);
    beside([&](std::uintptr_t number) {
        for (std::uint64_t round = 1; round < 300; ++round) {
            void *mine = allocator.allocateAsync(977 * round, 0, 0, stream(number));
            CHECK(mine != nullptr);
            std::memset(mine, int(number), 977 * round);
            CHECK(allocator.deallocateAsync(mine, stream(number)));
        }
    });
    std::puts("ok");
}

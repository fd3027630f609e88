/* The resource for RMM on host memory. */
#include "checks.hpp"
#include "omniheap_rmm.hpp"

template <class Error, class Work>
bool throws(const char *words, Work work) {
    try {
        work();
    } catch (const Error &error) {
        return std::string(error.what()).find(words) != std::string::npos;
    }
    return false;
}

static void refuses(omniheap::rmm_resource resource, cudaStream_t own) {
    for (std::size_t size : {std::size_t{1} << 40, std::size_t{1} << 63, SIZE_MAX}) {
        CHECK(throws<std::bad_alloc>("out of memory", [&] { resource.allocate(own, size); }));
        CHECK(throws<omniheap::out_of_memory>("out of memory", [&] { resource.allocate_sync(size); }));
    }
    for (std::size_t alignment : {0, 3, 1024}) {
        CHECK(throws<std::invalid_argument>("power of two", [&] { resource.allocate(own, 1, alignment); }));
    }
    CHECK(throws<std::runtime_error>("device 63 cannot be opened", [&] { omniheap::rmm_resource(63).allocate(own, 1); }));
    CHECK(resource.allocate(own, 0) == nullptr && resource.allocate_sync(0) == nullptr);
    resource.deallocate(own, nullptr, 0);
    resource.deallocate_sync(nullptr, 0);
}

int main() {
    omniheap::rmm_resource resource{0}, second{1};
    const cudaStream_t own = stream(7), other = stream(9);
    CHECK(throws<std::runtime_error>("cannot be opened", [&] { resource.allocate(own, 1); }));
    configure();
    CHECK(resource == omniheap::rmm_resource{0} && resource != second);
    get_property(resource, cuda::mr::device_accessible{});

    void *pointer = resource.allocate(own, MIB, 256);
    CHECK(reinterpret_cast<std::uintptr_t>(pointer) % 512 == 0);
    std::memset(pointer, 7, MIB);
    resource.deallocate(own, pointer, MIB, 256);
    void *again = resource.allocate(own, MIB);
    CHECK(again == pointer);
    resource.deallocate(other, again, MIB);
    resource.deallocate(own, again, MIB);
    CHECK(said("freed twice, or not ours"));
    resource.deallocate(own, &resource, 1);
    CHECK(said("freed twice, or not ours"));

    void *plain = second.allocate_sync(MIB);
    std::memset(plain, 7, MIB);
    second.deallocate_sync(plain, MIB);
    refuses(resource, own);
    beside([](std::uintptr_t number) {
        omniheap::rmm_resource resource{0};
        for (std::size_t round = 1; round < 300; ++round) {
            void *mine = resource.allocate(stream(number), 977 * round);
            std::memset(mine, int(number), 977 * round);
            CHECK(static_cast<char *>(mine)[976 * round] == char(number));
            resource.deallocate(stream(round % 2 == 0 ? number : 5), mine, 977 * round);
        }
    });
    std::puts("ok");
}

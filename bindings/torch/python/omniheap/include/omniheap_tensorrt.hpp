/* omniheap as TensorRT's allocator (10.0 and later).
 *
 *     omniheap_torch_configure("cuda", 0, 1);
 *     static omniheap::tensorrt_allocator allocator{0};     // it outlives runtime, builder, engines and contexts
 *     runtime->setGpuAllocator(&allocator);
 *
 * Link with libomniheap_torch, which lies beside the Python package.
 */
#pragma once

#include "omniheap_streams.h"

#include <NvInferRuntime.h>

#include <cstdint>

namespace omniheap {

/* The memory of one device, in the order of the streams that TensorRT names. */
class tensorrt_allocator final : public nvinfer1::IGpuAsyncAllocator {
public:
    explicit tensorrt_allocator(int device) noexcept : device_(device) {}

    /* Null for no bytes, for an alignment above 512, and where there is no memory: TensorRT then fails, and omniheap_torch_error() has the
     * reason on the thread that asked. */
    void *allocateAsync(
        std::uint64_t const size, std::uint64_t const alignment, nvinfer1::AllocatorFlags const, cudaStream_t stream) noexcept override {
        return fits(size, alignment) ? omniheap_stream_alloc(stream, size, device_) : nullptr;
    }

    /* False for an address that is not live. */
    bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept override {
        return omniheap_stream_free(stream, memory, device_) == 0;
    }

    /* The two calls without a stream, deprecated since TensorRT 10. Their bytes wait for all streams, not only for the default one. */
    void *allocate(std::uint64_t const size, std::uint64_t const alignment, nvinfer1::AllocatorFlags const) noexcept override {
        return fits(size, alignment) ? omniheap_unordered_alloc(size, device_) : nullptr;
    }

    bool deallocate(void *const memory) noexcept override { return omniheap_unordered_free(memory) == 0; }

private:
    /* Zero allows any alignment. All addresses are multiples of 512. */
    static bool fits(std::uint64_t size, std::uint64_t alignment) noexcept {
        return size != 0 && alignment <= 512 && (alignment & (alignment - 1)) == 0;
    }

    int device_;
};

} // namespace omniheap

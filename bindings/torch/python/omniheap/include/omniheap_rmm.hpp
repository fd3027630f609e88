/* omniheap as a resource of RMM (26.06 and later) and of everything else that takes resources of CCCL's <cuda/memory_resource>.
 *
 *     omniheap_torch_configure("cuda", 0, 1);
 *     rmm::mr::set_current_device_resource(omniheap::rmm_resource{0});
 *
 * Link with libomniheap_torch, which lies beside the Python package. Set it before the first allocation. A resource is a number, so copies
 * are the same resource, and none has to outlive anything.
 */
#pragma once

#include "omniheap_streams.h"

#include <cuda/memory_resource>
#include <cuda/stream_ref>
#if __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#endif

#include <cstddef>
#include <new>
#include <stdexcept>

namespace omniheap {

/* Memory is short. `what()` has the requested size, the holders of memory, and advice. With RMM it is RMM's own exception: adaptors that
 * make room catch that one. */
#if __has_include(<rmm/error.hpp>)
using out_of_memory = rmm::out_of_memory;
#else
class out_of_memory : public std::bad_alloc {
public:
    explicit out_of_memory(const char *reason) : reason_(reason) {}
    const char *what() const noexcept override { return reason_.what(); }

private:
    // Unlike a string, it can be copied without throwing.
    std::runtime_error reason_;
};
#endif

/* The memory of one device, in the order of streams. */
class rmm_resource {
public:
    /* Addresses are multiples of this. */
    static constexpr std::size_t most_aligned = 512;

    explicit rmm_resource(int device) noexcept : device_(device) {}

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = most_aligned) {
        return checked(bytes, alignment, [&] { return omniheap_stream_alloc(stream.get(), bytes, device_); });
    }

    /* Frees bytes once the stream has passed. An address that is not live is left alone, and omniheap_torch_error() reports it. */
    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t, std::size_t = most_aligned) noexcept {
        (void)omniheap_stream_free(stream.get(), pointer, device_);
    }

    void *allocate_sync(std::size_t bytes, std::size_t alignment = most_aligned) {
        return checked(bytes, alignment, [&] { return omniheap_unordered_alloc(bytes, device_); });
    }

    void deallocate_sync(void *pointer, std::size_t, std::size_t = most_aligned) noexcept {
        (void)omniheap_unordered_free(pointer);
    }

    friend bool operator==(rmm_resource one, rmm_resource other) noexcept { return one.device_ == other.device_; }
    friend bool operator!=(rmm_resource one, rmm_resource other) noexcept { return !(one == other); }
    friend constexpr void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {}

private:
    template <class Allocate>
    static void *checked(std::size_t bytes, std::size_t alignment, Allocate allocate) {
        if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > most_aligned) {
            throw std::invalid_argument("omniheap: the alignment is no power of two up to 512");
        }
        if (bytes == 0) {
            return nullptr;
        }
        void *made = allocate();
        if (made == nullptr) {
            if (omniheap_torch_is_shortage() != 0) {
                throw out_of_memory(omniheap_torch_error());
            }
            throw std::runtime_error(omniheap_torch_error());
        }
        return made;
    }

    int device_;
};

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>, "it is a resource of device memory");

} // namespace omniheap

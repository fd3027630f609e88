/* The virtual functions of TensorRT's allocators, in TensorRT's order: a table of another order calls the wrong ones. */
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

namespace nvinfer1 {

using AllocatorFlags = std::uint32_t;

enum class APILanguage : std::int32_t { kCPP = 0 };

struct InterfaceInfo {
    const char *kind;
    std::int32_t major, minor;
};

class IVersionedInterface {
public:
    virtual APILanguage getAPILanguage() const noexcept { return APILanguage::kCPP; }
    virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
    virtual ~IVersionedInterface() noexcept = default;
};

class IGpuAllocator : public IVersionedInterface {
public:
    virtual void *allocate(std::uint64_t, std::uint64_t, AllocatorFlags) noexcept = 0;
    virtual void *reallocate(void *, std::uint64_t, std::uint64_t) noexcept { return nullptr; }
    virtual bool deallocate(void *) noexcept = 0;
    virtual void *allocateAsync(std::uint64_t, std::uint64_t, AllocatorFlags, cudaStream_t) noexcept = 0;
    virtual bool deallocateAsync(void *, cudaStream_t) noexcept = 0;
    InterfaceInfo getInterfaceInfo() const noexcept override { return {"IGpuAllocator", 1, 0}; }
};

class IGpuAsyncAllocator : public IGpuAllocator {
public:
    void *allocateAsync(std::uint64_t, std::uint64_t, AllocatorFlags, cudaStream_t) noexcept override = 0;
    bool deallocateAsync(void *, cudaStream_t) noexcept override = 0;
};

} // namespace nvinfer1

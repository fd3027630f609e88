// Parts of PyTorch that the library uses: the same names, layouts and virtual functions, and nothing behind them.
// Functions `standin_…` are what the test calls: they do what PyTorch's own code does with an allocator, and say which
// exception came back.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

struct CUstream_st;

namespace c10 {
struct SourceLocation {
    const char* function;
    const char* file;
    uint32_t line;
};

class Error : public std::exception {
    std::string message;

  public:
    Error(SourceLocation, std::string message);
    const char* what() const noexcept override;
};
Error::Error(SourceLocation, std::string message) : message(std::move(message)) {}
const char* Error::what() const noexcept { return message.c_str(); }

class OutOfMemoryError : public Error {
    using Error::Error;

  public:
    ~OutOfMemoryError() override;
};
OutOfMemoryError::~OutOfMemoryError() = default;

struct Device {
    int8_t type;
    int8_t index;
};

static bool profiling = false;
static int64_t heard[6];

bool memoryProfilingEnabled() { return profiling; }
void reportMemoryUsageToProfiler(void* pointer, int64_t bytes, size_t live, size_t held, Device device) {
    heard[0] += 1;
    heard[1] = (int64_t)pointer;
    heard[2] = bytes;
    heard[3] = (int64_t)live;
    heard[4] = (int64_t)held;
    heard[5] = device.type * 100 + device.index;
}

using Deleter = void (*)(void*);
struct DataPtr {
    void* data;
    std::unique_ptr<void, Deleter> context;
    Device device;
};

namespace cuda {
static int code = 0;
static signed char device = 0;
static void* stream = nullptr;

int GetDevice(signed char* out) {
    *out = device;
    return code;
}
struct CUDAStream {
    int64_t device;
    int64_t number;
    void* stream() const;
};
void* CUDAStream::stream() const { return (void*)number; }
CUDAStream getCurrentCUDAStream(signed char device) { return {device, (int64_t)stream}; }

namespace CUDACachingAllocator {
struct AllocatorState {};
struct CheckpointDelta {
    std::vector<void*> freed;
    std::vector<DataPtr> allocated;
};
}  // namespace CUDACachingAllocator
}  // namespace cuda
}  // namespace c10

namespace torch::cuda::CUDAPluggableAllocator {
using namespace c10;
using namespace c10::cuda::CUDACachingAllocator;

// Its own functions refuse: what answers is the library's.
struct CUDAPluggableAllocator {
    virtual DataPtr allocate(size_t);
    virtual void* raw_alloc(size_t);
    virtual void* raw_alloc_with_stream(size_t, CUstream_st*);
    virtual void raw_delete(void*);
    virtual Deleter raw_deleter() const;
    virtual void cacheInfo(signed char, size_t*);
    virtual CheckpointDelta setCheckpointPoolState(signed char, std::shared_ptr<AllocatorState>);
    virtual int untouched();
};
[[noreturn]] static void refuse() { throw std::exception(); }
DataPtr CUDAPluggableAllocator::allocate(size_t) { refuse(); }
void* CUDAPluggableAllocator::raw_alloc(size_t) { refuse(); }
void* CUDAPluggableAllocator::raw_alloc_with_stream(size_t, CUstream_st*) { refuse(); }
void CUDAPluggableAllocator::raw_delete(void*) { refuse(); }
Deleter CUDAPluggableAllocator::raw_deleter() const { refuse(); }
void CUDAPluggableAllocator::cacheInfo(signed char, size_t*) { refuse(); }
CheckpointDelta CUDAPluggableAllocator::setCheckpointPoolState(signed char, std::shared_ptr<AllocatorState>) { refuse(); }
int CUDAPluggableAllocator::untouched() { return 42; }
}  // namespace torch::cuda::CUDAPluggableAllocator

using Pluggable = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

namespace c10::cuda::CUDACachingAllocator {
std::atomic<Pluggable*> allocator{new Pluggable};
}

static std::string last;

// 0 for no exception, 1 for memory that is short, 2 for another error of PyTorch's, 3 for any other.
template <class Work> static int caught(Work work) {
    last.clear();
    try {
        work(*c10::cuda::CUDACachingAllocator::allocator.load());
    } catch (const c10::OutOfMemoryError& error) {
        last = error.what();
        return 1;
    } catch (const c10::Error& error) {
        last = error.what();
        return 2;
    } catch (...) {
        return 3;
    }
    return 0;
}

extern "C" {
const char* standin_what() { return last.c_str(); }
void standin_place(int code, int device, void* stream) {
    c10::cuda::code = code;
    c10::cuda::device = (signed char)device;
    c10::cuda::stream = stream;
}
void standin_profile(int on) { c10::profiling = on; }
const int64_t* standin_heard() { return c10::heard; }

// A tensor: it has bytes of a device until it is gone.
int standin_tensor(size_t size, void** data, int* device, void (*while_it_lives)()) {
    return caught([&](Pluggable& it) {
        c10::DataPtr made = it.allocate(size);
        *data = made.context.get() == made.data ? made.data : nullptr;
        *device = made.device.type * 100 + made.device.index;
        while_it_lives();
    });
}
int standin_raw_alloc(size_t size, void** data) {
    return caught([&](Pluggable& it) { *data = it.raw_alloc(size); });
}
int standin_raw_alloc_with_stream(size_t size, void* stream, void** data) {
    return caught([&](Pluggable& it) { *data = it.raw_alloc_with_stream(size, (CUstream_st*)stream); });
}
int standin_raw_delete(void* data) {
    return caught([&](Pluggable& it) { it.raw_delete(data); });
}
int standin_raw_deleter(void* data) {
    return caught([&](Pluggable& it) { it.raw_deleter()(data); });
}
int standin_workspace(int device, size_t* largest) {
    return caught([&](Pluggable& it) { it.cacheInfo((signed char)device, largest); });
}
// A segment of a pool that is the program's, as PyTorch's own allocator asks for one.
int standin_segment(void* (*segment)(ssize_t, int, CUstream_st*), size_t size, int device, void** data) {
    return caught([&](Pluggable&) { *data = segment((ssize_t)size, device, nullptr); });
}
int standin_untouched(int* answer) {
    return caught([&](Pluggable& it) { *answer = it.untouched(); });
}
// Goes back to a checkpoint; of at most eight each, the addresses that were freed and those that live again, which the caller frees.
int standin_restore(int device, void** freed, void** allocated) {
    return caught([&](Pluggable& it) {
        auto delta = it.setCheckpointPoolState((signed char)device, nullptr);
        std::memcpy(freed, delta.freed.data(), delta.freed.size() * sizeof(void*));
        for (auto& one : delta.allocated) *allocated++ = one.context.release();
    });
}

// The driver's calls that say how large a device is.
int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    *bytes = (size_t)80 << 30;
    return device == 0 ? 0 : 101;
}
}

// The kernels that the workout launches. AMD's and NVIDIA's run-time compilers both take this file; the stand-in
// emulates each kernel by its name and arguments (tests/hip/standin/src/own.rs).

// In braces: with `extern "C"` in front of one declaration, this would not define the array.
extern "C" {
__constant__ unsigned table[16384];
}

struct Move {
    char* to;
    const char* from;
    unsigned long long size;
};

static __device__ unsigned long long thread() {
    return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
}

extern "C" __global__ void fill(unsigned* out, unsigned value, unsigned long long count) {
    if (thread() < count) out[thread()] = value;
}

extern "C" __global__ void lookup(unsigned* out, unsigned long long count) {
    if (thread() < count) out[thread()] = table[thread()];
}

extern "C" __global__ void copy(char* to, const char* from, unsigned long long size) {
    for (unsigned long long i = thread(); i < size; i += gridDim.x * (unsigned long long)blockDim.x) to[i] = from[i];
}

// One group for each move; moves must not overlap.
extern "C" __global__ void compact(const Move* moves, unsigned long long count) {
    for (unsigned long long m = blockIdx.x; m < count; m += gridDim.x)
        for (unsigned long long i = threadIdx.x; i < moves[m].size; i += blockDim.x) moves[m].to[i] = moves[m].from[i];
}

static __device__ unsigned long long nanoseconds() {
#ifdef __HIP__
    return wall_clock64() * 10;  // The clock of AMD's devices runs at 100 MHz.
#else
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
#endif
}

// Takes the given time.
extern "C" __global__ void spin(unsigned long long duration) {
    const unsigned long long end = nanoseconds() + duration;
    while (nanoseconds() < end) {
    }
}

// Runs until the host writes something else than 0.
extern "C" __global__ void hold(const volatile unsigned* word) {
    while (*word == 0) {
    }
}

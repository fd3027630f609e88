// Kernels that keep a timeline busy, for tests of order and reuse.

extern "C" {

__device__ unsigned long long omniheap_nanoseconds() {
#if defined(__HIP_DEVICE_COMPILE__) || defined(__HIPCC_RTC__)
    // The constant clock of AMD devices ticks at 100 MHz.
    return wall_clock64() * 10ull;
#else
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#endif
}

// Runs until the gate in host memory opens, or the time is over: a forgotten gate must not hang the device.
__global__ void omniheap_hold(const volatile unsigned int* gate, unsigned long long nanoseconds) {
    const unsigned long long start = omniheap_nanoseconds();
    while (*gate == 0u && omniheap_nanoseconds() - start < nanoseconds) {
    }
}

// Adds one to every word of shared memory that the launch asked for, and writes their sum.
__global__ void omniheap_sum_shared(unsigned int* to, unsigned int words) {
    extern __shared__ unsigned int scratch[];
    for (unsigned int i = threadIdx.x; i < words; i += blockDim.x) {
        scratch[i] = i + 1u;
    }
    __syncthreads();
    if (threadIdx.x == 0u) {
        unsigned int sum = 0u;
        for (unsigned int i = 0u; i < words; ++i) {
            sum += scratch[i];
        }
        *to = sum;
    }
}

}

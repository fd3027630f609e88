// What shared memory holds when a group starts, and a word that the group leaves there.

struct Parameters {
    unsigned int words;
    unsigned int before;
    unsigned int canary;
    unsigned int after;
};

extern "C" __global__ void residue(unsigned int* __restrict__ output, Parameters p) {
    extern __shared__ volatile unsigned int left[];
    const unsigned int lane = threadIdx.x;
    unsigned int* out = output + blockIdx.x * p.words;
    for (unsigned int i = lane; i < p.words; i += 256u) {
        if (p.before != 0u) {
            left[i] = 0u;
        }
        out[i] = left[i];
        left[i] = p.canary;
    }
    __syncthreads();
    // Looks at what other threads left, so that no compiler leaves it out.
    for (unsigned int i = lane; i < p.words; i += 256u) {
        out[i] ^= left[p.words - 1u - i] ^ p.canary;
    }
    __syncthreads();
    if (p.after != 0u) {
        for (unsigned int i = lane; i < p.words; i += 256u) {
            left[i] = 0u;
        }
        __syncthreads();
        for (unsigned int i = lane; i < p.words; i += 256u) {
            out[i] ^= left[p.words - 1u - i];
        }
    }
}

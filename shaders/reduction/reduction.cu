// The sum of each group's share of the input: groups walk the input in strides, and add up in shared memory.

struct Parameters {
    unsigned int count;
    unsigned int groups;
};

extern "C" __global__ void reduction(const float* __restrict__ input, float* __restrict__ output, Parameters p) {
    extern __shared__ float sums[];
    const unsigned int lane = threadIdx.x;
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * 256u + lane; i < p.count; i += p.groups * 256u) {
        sum += input[i];
    }
    sums[lane] = sum;
    __syncthreads();
    for (unsigned int half = 128u; half > 0u; half /= 2u) {
        if (lane < half) {
            sums[lane] += sums[lane + half];
        }
        __syncthreads();
    }
    if (lane == 0u) {
        output[blockIdx.x] = sums[0];
    }
}

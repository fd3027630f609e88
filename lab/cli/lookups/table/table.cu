// The frame of every kernel that only looks up a table: $name computes `value` for item `i` with input `x`.

struct Parameters {
    unsigned int count;
    unsigned int stride;
};

extern "C" __global__ void $name(
    const float4* __restrict__ table,
    const float* __restrict__ input,
    float* __restrict__ output,
    Parameters parameters
) {
    const unsigned int lane = threadIdx.x;
    const unsigned int threads = 256u;
    const unsigned int rows = ROWS;
    STAGE
    for (unsigned int i = blockIdx.x * 256u + lane; i < parameters.count; i += parameters.stride) {
        const float x = input[i];
        float value = 0.0f;
        $body
        output[i] = value;
    }
}

// A square filter over an image, edges repeated. The table is the filter, row by row, four taps to a row of the table.

struct Parameters {
    unsigned int width;
    unsigned int height;
    unsigned int radius;
};

extern "C" __global__ void convolution(
    const float4* __restrict__ table,
    const float* __restrict__ input,
    float* __restrict__ output,
    Parameters parameters
) {
    const unsigned int lane = threadIdx.y * blockDim.x + threadIdx.x;
    const unsigned int threads = 256u;
    STAGE
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const int width = parameters.width, height = parameters.height, radius = parameters.radius;
    if (x >= width || y >= height) {
        return;
    }
    float sum = 0.0f;
    unsigned int tap = 0u;
    for (int dy = -radius; dy <= radius; ++dy) {
        const int row = min(max(y + dy, 0), height - 1);
        for (int dx = -radius; dx <= radius; ++dx) {
            const int column = min(max(x + dx, 0), width - 1);
            sum += ((const float*)TABLE)[tap] * input[row * width + column];
            ++tap;
        }
    }
    output[y * width + x] = sum;
}

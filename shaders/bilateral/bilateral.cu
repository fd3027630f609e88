// A bilateral filter: neighbours count by how near they are and how alike. The table holds both weights: first those of
// the square of neighbours, row by row, then 256 for the difference of two values; four to a row of the table.

struct Parameters {
    unsigned int width;
    unsigned int height;
    unsigned int radius;
};

extern "C" __global__ void bilateral(
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
    const unsigned int side = 2u * parameters.radius + 1u;
    const float center = input[y * width + x];
    float sum = 0.0f, weight = 0.0f;
    unsigned int tap = 0u;
    for (int dy = -radius; dy <= radius; ++dy) {
        const int row = min(max(y + dy, 0), height - 1);
        for (int dx = -radius; dx <= radius; ++dx) {
            const int column = min(max(x + dx, 0), width - 1);
            const float value = input[row * width + column];
            const unsigned int alike = side * side + min((unsigned int)(fabsf(value - center) * 255.0f), 255u);
            const float w = ((const float*)TABLE)[tap] * ((const float*)TABLE)[alike];
            sum += w * value;
            weight += w;
            ++tap;
        }
    }
    output[y * width + x] = sum / weight;
}

// c = a * b for row-major matrices: a is rows x inner, b is inner x columns. Tiles of 16 x 16 go through shared memory;
// a row of a tile takes `pitch` words, so that a pitch of 17 keeps columns out of each other's bank.

struct Parameters {
    unsigned int rows;
    unsigned int inner;
    unsigned int columns;
    unsigned int pitch;
    unsigned int second;
};

extern "C" __global__ void matmul(
    const float* __restrict__ a,
    const float* __restrict__ b,
    float* __restrict__ c,
    Parameters p
) {
    extern __shared__ float tiles[];
    const unsigned int column = blockIdx.x * 16u + threadIdx.x, row = blockIdx.y * 16u + threadIdx.y;
    const unsigned int mine = threadIdx.y * p.pitch + threadIdx.x;
    float sum = 0.0f;
    for (unsigned int start = 0u; start < p.inner; start += 16u) {
        const bool is_left = row < p.rows && start + threadIdx.x < p.inner;
        const bool is_right = column < p.columns && start + threadIdx.y < p.inner;
        tiles[mine] = is_left ? a[row * p.inner + start + threadIdx.x] : 0.0f;
        tiles[p.second + mine] = is_right ? b[(start + threadIdx.y) * p.columns + column] : 0.0f;
        __syncthreads();
        for (unsigned int k = 0u; k < 16u; ++k) {
            sum += tiles[threadIdx.y * p.pitch + k] * tiles[p.second + k * p.pitch + threadIdx.x];
        }
        __syncthreads();
    }
    if (row < p.rows && column < p.columns) {
        c[row * p.columns + column] = sum;
    }
}

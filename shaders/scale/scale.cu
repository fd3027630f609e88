// output[i] = input[i] * factor + term

struct Parameters {
    unsigned int count;
    float factor;
    float term;
};

extern "C" __global__ void scale(const float* __restrict__ input, float* __restrict__ output, Parameters parameters) {
    const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < parameters.count) {
        output[i] = input[i] * parameters.factor + parameters.term;
    }
}

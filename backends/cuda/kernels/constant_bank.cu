// The constant bank: one symbol that constant blocks are cut from, and a kernel that reads it back.
// Compiled at run time; source that reads the bank is appended to this file.

extern "C" {

alignas(256) __constant__ unsigned char omniheap_bank[65536];

__global__ void omniheap_bank_read(unsigned char* to, unsigned long long offset, unsigned long long size) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
        to[i] = omniheap_bank[offset + i];
    }
}

}

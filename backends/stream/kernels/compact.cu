// Compaction: thousands of copies of any size and alignment in one launch. The host cuts moves into pieces of limited
// size, a warp copies one piece, and a group reads the entries of its pieces together: the table may lie in host memory.
// CUDA C++ that HIP compiles too.

namespace omniheap {

enum : unsigned int { LANES = 32u, GROUP = 256u, PIECES = GROUP / LANES };

// Copies `count` words that both sides are aligned to; a lane has four in flight.
template <typename Word>
__device__ void copy_words(unsigned char* to, const unsigned char* from, unsigned int count, unsigned int lane) {
    Word* const out = reinterpret_cast<Word*>(to);
    const Word* const in = reinterpret_cast<const Word*>(from);
    unsigned int i = lane;
    for (; i + 3u * LANES < count; i += 4u * LANES) {
        const Word a = in[i];
        const Word b = in[i + LANES];
        const Word c = in[i + 2u * LANES];
        const Word d = in[i + 3u * LANES];
        out[i] = a;
        out[i + LANES] = b;
        out[i + 2u * LANES] = c;
        out[i + 3u * LANES] = d;
    }
    for (; i < count; i += LANES) {
        out[i] = in[i];
    }
}

// Copies bytes up to the first whole word of the destination, the words, and the bytes behind the last one. Source and
// destination reach a word's start together.
template <typename Word>
__device__ void copy_piece(unsigned char* to, const unsigned char* from, unsigned int size, unsigned int lane) {
    const unsigned int width = sizeof(Word);
    unsigned int head = static_cast<unsigned int>(-reinterpret_cast<unsigned long long>(to)) & (width - 1u);
    head = head < size ? head : size;
    const unsigned int words = (size - head) / width;
    copy_words<unsigned char>(to, from, head, lane);
    copy_words<Word>(to + head, from + head, words, lane);
    const unsigned int done = head + words * width;
    copy_words<unsigned char>(to + done, from + done, size - done, lane);
}

}  // namespace omniheap

// `table` holds `count` pieces: destination, source and bytes of each. A group copies eight of them.
extern "C" __global__ void __launch_bounds__(256)
    omniheap_compact(const unsigned long long* table, unsigned int count) {
    using namespace omniheap;
    __shared__ unsigned long long entries[3u * PIECES];
    const unsigned int first = blockIdx.x * PIECES;
    const unsigned int here = count - first < PIECES ? count - first : PIECES;
    if (threadIdx.x < 3u * here) {
        entries[threadIdx.x] = table[3ull * first + threadIdx.x];
    }
    __syncthreads();
    const unsigned int piece = threadIdx.x / LANES;
    const unsigned int lane = threadIdx.x % LANES;
    if (piece >= here) {
        return;
    }
    unsigned char* const to = reinterpret_cast<unsigned char*>(entries[3u * piece]);
    const unsigned char* const from = reinterpret_cast<const unsigned char*>(entries[3u * piece + 1u]);
    const unsigned int size = static_cast<unsigned int>(entries[3u * piece + 2u]);
    const unsigned long long apart = entries[3u * piece] ^ entries[3u * piece + 1u];
    if (apart % 16u == 0u) {
        copy_piece<uint4>(to, from, size, lane);
    } else if (apart % 4u == 0u) {
        copy_piece<unsigned int>(to, from, size, lane);
    } else {
        copy_piece<unsigned char>(to, from, size, lane);
    }
}

// Loops over PyTorch's caching allocator, so that no interpreter is in the measurement.
#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>
#include <cstdint>
#include <vector>
namespace A = c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;
static double ns(Clock::duration d) { return std::chrono::duration<double, std::nano>(d).count(); }
static uint64_t next(uint64_t& s) { s += 0x9E3779B97F4A7C15ull; uint64_t z = (s ^ (s >> 30)) * 0xBF58476D1CE4E5B9ull; z = (z ^ (z >> 27)) * 0x94D049BB133111EBull; return z ^ (z >> 31); }
extern "C" double pair_ns(uint64_t size, uint64_t count) {
  A::raw_delete(A::raw_alloc(size));
  auto t = Clock::now();
  for (uint64_t i = 0; i < count; ++i) A::raw_delete(A::raw_alloc(size));
  return ns(Clock::now() - t) / double(count);
}
// One random free and one allocation of a random size from `sizes`, with `live` held; nanoseconds for the two together.
extern "C" double churn_ns(uint64_t live, uint64_t count, uint64_t seed, const uint64_t* sizes, uint64_t n) {
  std::vector<void*> held(live);
  uint64_t s = seed;
  for (auto& p : held) p = A::raw_alloc(sizes[next(s) % n]);
  double best = 1e18;
  for (int r = 0; r < 4; ++r) {
    auto t = Clock::now();
    for (uint64_t i = 0; i < count; ++i) { auto& p = held[next(s) % live]; A::raw_delete(p); p = A::raw_alloc(sizes[next(s) % n]); }
    double d = ns(Clock::now() - t) / double(count);
    if (d < best) best = d;
  }
  for (auto p : held) A::raw_delete(p);
  return best;
}

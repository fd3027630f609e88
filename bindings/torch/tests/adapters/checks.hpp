/* Checks and helpers that the programs in this folder share. */
#pragma once

#include "omniheap_streams.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <string>
#include <thread>
#include <vector>

constexpr std::size_t MIB = std::size_t{1} << 20;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            std::fprintf(stderr, "line %d: %s; %s\n", __LINE__, #what, omniheap_torch_error()); \
            std::exit(1); \
        } \
    } while (0)

/* To host memory a stream is a number. */
inline cudaStream_t stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

inline bool said(const char *words) { return std::string(omniheap_torch_error()).find(words) != std::string::npos; }

inline void configure() { CHECK(omniheap_torch_configure("host", 64 * MIB, 1) == 0); }

/* Runs `work` with four numbers beside each other. */
template <class Work>
void beside(Work work) {
    std::vector<std::thread> threads;
    for (std::uintptr_t number = 1; number <= 4; ++number) {
        threads.emplace_back([=] { work(number); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

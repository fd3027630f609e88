// Contexts, streams, events, host functions, threads and captures, used as they should be.
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

void contexts(void) {
    Handle first = start(), second, third, current = NULL;
    Address of_first, of_second;
    Device device = -1;
    MUST(D.cuMemAlloc_v2(&of_first, 3 << 20));
    DO(D.cuCtxCreate_v2(&second, 0, 0));
    DO(D.cuCtxGetCurrent(&current));
    printf("the new one is current: %d\n", current == second);
    DO(D.cuMemAlloc_v2(&of_second, 3 << 20));
    MUST(D.cuMemsetD32_v2(of_second, 7, 1 << 10));
    look("in the second", of_second, 7, 1 << 10);
    // Memory of one context can be freed while another one is current.
    DO(D.cuMemFree_v2(of_first));
    DO(D.cuCtxPopCurrent_v2(&third));
    printf("the second was popped: %d\n", third == second);
    DO(D.cuCtxGetCurrent(&current));
    printf("the first is current: %d\n", current == first);
    DO(D.cuCtxPushCurrent_v2(second));
    DO(D.cuCtxGetDevice(&device));
    printf("device %d\n", device);
    DO(D.cuMemAlloc_v2(&of_first, 4096));
    DO(D.cuCtxDestroy_v2(second));
    DO(D.cuCtxGetCurrent(&current));
    printf("the first is current: %d\n", current == first);
    DO(D.cuMemAlloc_v2(&of_first, 4096));
    DO(D.cuMemFree_v2(of_first));
    DO(D.cuCtxSetCurrent(NULL));
    DO(D.cuMemAlloc_v2(&of_first, 4096));
    DO(D.cuCtxSetCurrent(first));
    size_t limit = 0;
    DO(D.cuCtxSetLimit(0, 4096));
    DO(D.cuCtxGetLimit(&limit, 0));
    printf("limit: %zu\n", limit);
}

void reset(void) {
    Handle context = start(), again = NULL;
    Address small, large, later;
    unsigned flags = 0;
    int active = -1;
    MUST(D.cuMemAlloc_v2(&small, 4096));
    MUST(D.cuMemAlloc_v2(&large, 8 << 20));
    DO(D.cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active: %d\n", active);
    DO(D.cuDevicePrimaryCtxReset_v2(0));
    DO(D.cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active: %d\n", active);
    DO(D.cuDevicePrimaryCtxRetain(&again, 0));
    DO(D.cuCtxSetCurrent(again));
    (void)context;
    // Earlier allocations are gone.
    DO(D.cuMemFree_v2(small));
    DO(D.cuMemFree_v2(large));
    DO(D.cuMemAlloc_v2(&later, 4096));
    MUST(D.cuMemsetD32_v2(later, 8, 1024));
    look("after the reset", later, 8, 1024);
    DO(D.cuMemFree_v2(later));
}

void released(void) {
    Handle context, again;
    Address at;
    MUST(D.cuInit(0));
    for (int round = 0; round < 3; round++) {
        DO(D.cuDevicePrimaryCtxRetain(&context, 0));
        DO(D.cuDevicePrimaryCtxRetain(&again, 0));
        printf("the same: %d\n", context == again);
        DO(D.cuCtxSetCurrent(context));
        DO(D.cuMemAlloc_v2(&at, 3 << 20));
        DO(D.cuDevicePrimaryCtxRelease_v2(0));
        MUST(D.cuMemsetD32_v2(at, 9, 1024));
        look("held once more", at, 9, 1024);
        DO(D.cuDevicePrimaryCtxRelease_v2(0));
    }
    DO(D.cuDevicePrimaryCtxRelease_v2(0));
}

void order(void) {
    enum { WORDS = 1 << 16 };
    Address at, to;
    Handle stream;
    unsigned *words = malloc(4 * WORDS);
    int right = 0;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    for (unsigned round = 1; round <= 50; round++) {
        MUST(D.cuMemAlloc_v2(&at, 4 * WORDS));
        MUST(D.cuMemAlloc_v2(&to, 4 * WORDS));
        spin(100000, stream);
        fill(at, round, WORDS, stream);
        MUST(D.cuMemcpyDtoDAsync_v2(to, at, 4 * WORDS, stream));
        // Both frees wait for the stream in the driver, so the fill must not write the next allocation.
        MUST(D.cuMemFree_v2(at));
        MUST(D.cuMemAlloc_v2(&at, 4 * WORDS));
        MUST(D.cuMemsetD32_v2(at, 0, WORDS));
        MUST(D.cuMemcpyDtoHAsync_v2(words, to, 4 * WORDS, stream));
        MUST(D.cuStreamSynchronize(stream));
        right += words[0] == round && words[WORDS - 1] == round;
        MUST(D.cuMemcpyDtoH_v2(words, at, 4 * WORDS));
        right += words[0] == 0 && words[WORDS - 1] == 0;
        MUST(D.cuMemFree_v2(to));
        MUST(D.cuMemFree_v2(at));
    }
    printf("rounds that were right: %d\n", right / 2);
    free(words);
}

void events(void) {
    Handle stream, other, before, after;
    Address at;
    float time = -1;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    MUST(D.cuStreamCreate(&other, 1));
    DO(D.cuEventCreate(&before, 0));
    DO(D.cuEventCreate(&after, 0));
    DO(D.cuEventQuery(before));
    MUST(D.cuMemAlloc_v2(&at, 4096));
    DO(D.cuEventRecord(before, stream));
    spin(50000000, stream);
    fill(at, 1, 1024, stream);
    DO(D.cuEventRecord(after, stream));
    DO(D.cuEventQuery(after));
    DO(D.cuStreamQuery(stream));
    DO(D.cuStreamWaitEvent(other, after, 0));
    fill(at, 2, 512, other);
    DO(D.cuStreamSynchronize(other));
    DO(D.cuEventQuery(after));
    DO(D.cuEventSynchronize(after));
    DO(D.cuEventElapsedTime(&time, before, after));
    printf("some milliseconds: %d\n", time > 40);
    look("the second half", at + 2048, 1, 512);
    look("the first half", at, 2, 512);
    DO(D.cuEventDestroy_v2(before));
    DO(D.cuEventDestroy_v2(after));
    DO(D.cuMemFree_v2(at));
}

static void count_up(void *data) {
    __atomic_fetch_add((int *)data, 1, __ATOMIC_SEQ_CST);
}

void host_functions(void) {
    Handle stream;
    int count = 0;
    start();
    MUST(D.cuStreamCreate(&stream, 0));
    for (int i = 0; i < 100; i++) MUST(D.cuLaunchHostFunc(stream, count_up, &count));
    DO(D.cuStreamSynchronize(stream));
    printf("calls: %d\n", count);
    DO(D.cuStreamDestroy_v2(stream));
}

void dying_streams(void) {
    Address at[16];
    start();
    for (int i = 0; i < 16; i++) {
        Handle stream;
        MUST(D.cuStreamCreate(&stream, 1));
        MUST(D.cuMemAllocAsync(&at[i], 1 << 20, stream));
        spin(1000000, stream);
        fill(at[i], (unsigned)i, 1 << 18, stream);
        // The stream's work goes on. Its memory stays, and another stream frees it.
        MUST(D.cuStreamDestroy_v2(stream));
    }
    DO(D.cuCtxSynchronize());
    for (int i = 0; i < 16; i++) {
        look("of a dead stream", at[i], (unsigned)i, 1 << 18);
        if (i % 2)
            MUST(D.cuMemFreeAsync(at[i], NULL));
        else
            MUST(D.cuMemFree_v2(at[i]));
    }
    DO(D.cuCtxSynchronize());
}

static Handle shared_context;
static int wrong;

static void *work(void *data) {
    unsigned seed = (unsigned)(uintptr_t)data;
    Handle stream;
    MUST(D.cuCtxSetCurrent(shared_context));
    MUST(D.cuStreamCreate(&stream, 1));
    for (unsigned round = 0; round < 60; round++) {
        Address at;
        unsigned words[64];
        size_t size = 256u << (rand_r(&seed) % 14);
        int is_async = rand_r(&seed) % 2;
        MUST(is_async ? D.cuMemAllocAsync(&at, size, stream) : D.cuMemAlloc_v2(&at, size));
        MUST(D.cuMemsetD32Async(at, seed, size / 4, stream));
        MUST(D.cuMemcpyDtoHAsync_v2(words, at + size - 256, 256, stream));
        MUST(D.cuStreamSynchronize(stream));
        for (int i = 0; i < 64; i++)
            if (words[i] != seed) __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
        MUST(is_async ? D.cuMemFreeAsync(at, stream) : D.cuMemFree_v2(at));
    }
    MUST(D.cuStreamSynchronize(stream));
    MUST(D.cuStreamDestroy_v2(stream));
    return NULL;
}

void threads(void) {
    pthread_t all[8];
    shared_context = start();
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&all[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    printf("words that were wrong: %d\n", wrong);
}

void churn(void) {
    enum { LIVE = 64 };
    Address at[LIVE] = {0};
    unsigned seed = 1, bad = 0, refused = 0;
    start();
    for (int round = 0; round < 1500; round++) {
        unsigned i = (unsigned)rand_r(&seed) % LIVE;
        if (at[i]) {
            unsigned words[2];
            MUST(D.cuMemcpyDtoH_v2(words, at[i], 8));
            bad += words[0] != i + 1 || words[1] != i + 1;
            MUST(D.cuMemFree_v2(at[i]));
            at[i] = 0;
        } else if (D.cuMemAlloc_v2(&at[i], 8u << (rand_r(&seed) % 20)) == 0) {
            MUST(D.cuMemsetD32_v2(at[i], i + 1, 2));
        } else {
            refused++;
        }
    }
    for (int i = 0; i < LIVE; i++)
        if (at[i]) MUST(D.cuMemFree_v2(at[i]));
    printf("words that were wrong: %u, requests that were refused: %u\n", bad, refused);
}

void captures(void) {
    Handle stream, other, event, graph = NULL, exec = NULL;
    Address at;
    unsigned status = 7;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    MUST(D.cuStreamCreate(&other, 1));
    MUST(D.cuEventCreate(&event, 2));
    MUST(D.cuMemAlloc_v2(&at, 4096));
    MUST(D.cuMemsetD32_v2(at, 0, 1024));
    DO(D.cuStreamBeginCapture_v2(stream, 2));
    DO(D.cuStreamIsCapturing(stream, &status));
    printf("status %u\n", status);
    fill(at, 21, 512, stream);
    DO(D.cuEventRecord(event, stream));
    DO(D.cuStreamWaitEvent(other, event, 0));
    fill(at + 2048, 22, 512, other);
    DO(D.cuEventRecord(event, other));
    DO(D.cuStreamWaitEvent(stream, event, 0));
    DO(D.cuStreamEndCapture(stream, &graph));
    look("not yet", at, 0, 1024);
    DO(D.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        MUST(D.cuMemsetD32_v2(at, 0, 1024));
        DO(D.cuGraphLaunch(exec, stream));
        DO(D.cuStreamSynchronize(stream));
        look("the first half", at, 21, 512);
        look("the second half", at + 2048, 22, 512);
    }
    DO(D.cuGraphExecDestroy(exec));
    DO(D.cuGraphDestroy(graph));
    DO(D.cuMemFree_v2(at));
}

void captured_memory(void) {
    Handle stream, graph = NULL, exec = NULL;
    Address inner, at, between;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    MUST(D.cuMemAlloc_v2(&at, 4096));
    DO(D.cuStreamBeginCapture_v2(stream, 2));
    DO(D.cuMemAllocAsync(&inner, 4096, stream));
    fill(inner, 31, 1024, stream);
    // Memory from outside of the graph, while it is captured by somebody who said that this is meant.
    unsigned mode = 2;
    DO(D.cuThreadExchangeStreamCaptureMode(&mode));
    DO(D.cuMemAlloc_v2(&between, 8 << 20));
    DO(D.cuThreadExchangeStreamCaptureMode(&mode));
    MUST(D.cuMemcpyDtoDAsync_v2(at, inner, 4096, stream));
    DO(D.cuMemFreeAsync(inner, stream));
    DO(D.cuStreamEndCapture(stream, &graph));
    DO(D.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        MUST(D.cuMemsetD32_v2(at, 0, 1024));
        DO(D.cuGraphLaunch(exec, stream));
        DO(D.cuStreamSynchronize(stream));
        look("through memory of the graph", at, 31, 1024);
    }
    DO(D.cuGraphExecDestroy(exec));
    DO(D.cuGraphDestroy(graph));
    DO(D.cuMemFree_v2(between));
    DO(D.cuMemFree_v2(at));
}

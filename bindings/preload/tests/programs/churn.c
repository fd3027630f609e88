/* Threads that allocate, fill, read and free, at once and in the order of their streams, without ever waiting before a free.
   Bytes that are given to somebody else too early show as wrong values. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuStreamCreate(H*, unsigned), cuStreamDestroy_v2(H);
int cuStreamSynchronize(H), cuMemAlloc_v2(P*, size_t), cuMemFree_v2(P), cuMemAllocAsync(P*, size_t, H), cuMemFreeAsync(P, H);
int cuEventCreate(H*, unsigned), cuEventRecord(H, H), cuEventDestroy_v2(H), cuStreamWaitEvent(H, H, unsigned);
int cuMemsetD32Async(P, unsigned, size_t, H), cuMemcpyDtoHAsync_v2(void*, P, size_t, H);
enum { LIVE = 24, STEPS = 600, THREADS = 8 };
static H context;
static int bad;

static void check(int code) { if (code) __sync_fetch_and_add(&bad, 1); }

/* Goes on with another stream, behind what this one has to do. */
static H replace(H stream) {
    H next, event;
    check(cuStreamCreate(&next, 1));
    check(cuEventCreate(&event, 2));
    check(cuEventRecord(event, stream));
    check(cuStreamWaitEvent(next, event, 0));
    check(cuEventDestroy_v2(event));
    check(cuStreamDestroy_v2(stream));
    return next;
}

static void* churn(void* argument) {
    long seed = (long)argument;
    int is_async = seed & 1, count = 0, reads = 0;
    struct { P p; size_t words; unsigned value; } live[LIVE];
    unsigned r = seed * 7919 + 1, *seen = calloc(STEPS, 4), *wanted = calloc(STEPS, 4);
    H stream;
    check(cuCtxSetCurrent(context));
    check(cuStreamCreate(&stream, seed >> 1 & 1));
    for (int i = 0; i < STEPS; i++) {
        r = r * 1664525u + 1013904223u;
        if (i % 50 == 49 && seed & 4) stream = replace(stream);
        if (count < LIVE && (r >> 16) % 3) {
            size_t words = (r >> 8) % 20 == 0 ? (1 << 19) + r % 100000 : 1 + (r >> 4) % 6000;
            P p = 0;
            check(is_async ? cuMemAllocAsync(&p, words * 4, stream) : cuMemAlloc_v2(&p, words * 4));
            check(cuMemsetD32Async(p, r, words, stream));
            live[count].p = p; live[count].words = words; live[count++].value = r;
        } else if (count) {
            int k = (r >> 9) % count;
            P p = live[k].p;
            wanted[reads] = live[k].value;
            check(cuMemcpyDtoHAsync_v2(&seen[reads++], p + r % live[k].words * 4, 4, stream));
            check(is_async ? cuMemFreeAsync(p, stream) : cuMemFree_v2(p));
            live[k] = live[--count];
        }
    }
    check(cuStreamSynchronize(stream));
    for (int i = 0; i < reads; i++) check(seen[i] != wanted[i]);
    while (count) check(cuMemFree_v2(live[--count].p));
    check(cuStreamDestroy_v2(stream));
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    check(cuInit(0)); check(cuDevicePrimaryCtxRetain(&context, 0)); check(cuCtxSetCurrent(context));
    for (int round = 0; round < 2; round++) {
        for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, churn, (void*)(i + round * THREADS));
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    }
    printf("bad %d\n", bad);
    return bad != 0;
}

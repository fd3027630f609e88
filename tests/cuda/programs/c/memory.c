// Memory of every kind, used as it should be.
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void drivers(void) {
    int version = 0, count = 0, value = 0;
    Device device = -1;
    size_t total = 0;
    char name[100] = "";
    const char *text = NULL;
    DO(D.cuDeviceGetCount(&count));
    DO(D.cuInit(1));
    DO(D.cuInit(0));
    DO(D.cuInit(0));
    DO(D.cuDriverGetVersion(&version));
    printf("of CUDA 12 at least: %d\n", version >= 12000);
    DO(D.cuDeviceGetCount(&count));
    printf("devices: %d\n", count > 0);
    DO(D.cuDeviceGet(&device, 0));
    DO(D.cuDeviceGet(&device, 1000));
    DO(D.cuDeviceGetName(name, 100, 0));
    printf("a name: %d\n", name[0] != 0);
    DO(D.cuDeviceTotalMem_v2(&total, 0));
    printf("memory: %d\n", total > 0);
    DO(D.cuDeviceGetAttribute(&value, 75, 0));
    printf("compute capability: %d\n", value >= 5);
    DO(D.cuDeviceGetAttribute(NULL, 75, 0));
    DO(D.cuGetErrorString(2, &text));
    printf("of code 2: %s\n", text);
    DO(D.cuGetErrorName(123456, &text));
    DO(D.cuMemAlloc_v2(NULL, 1));
}

void sizes(void) {
    static const size_t SIZES[] = {1, 4, 511, 512, 4096, 100000, 1 << 20, 2 << 20, (5 << 20) + 4, 64 << 20};
    enum { COUNT = sizeof SIZES / sizeof *SIZES };
    Address at[COUNT];
    start();
    for (int i = 0; i < COUNT; i++) {
        DO(D.cuMemAlloc_v2(&at[i], SIZES[i]));
        printf("of %zu bytes at a multiple of 256: %d\n", SIZES[i], at[i] % 256 == 0);
        MUST(D.cuMemsetD8_v2(at[i], (unsigned char)i, SIZES[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        unsigned char *bytes = malloc(SIZES[i]), *wanted = malloc(SIZES[i]);
        memset(wanted, i, SIZES[i]);
        DO(D.cuMemcpyDtoH_v2(bytes, at[i], SIZES[i]));
        printf("%zu bytes are as they should be: %d\n", SIZES[i], !memcmp(bytes, wanted, SIZES[i]));
        free(bytes);
        free(wanted);
        for (int j = 0; j < i; j++)
            if (at[i] < at[j] + SIZES[j] && at[j] < at[i] + SIZES[i]) printf("%d and %d overlap\n", i, j);
    }
    for (int i = COUNT; i-- > 0;) DO(D.cuMemFree_v2(at[i]));
}

// Asks for the attributes of an address, one by one and together.
static void about(const char *what, Address address, Address base, Handle context) {
    unsigned kind = 0;
    int device = -7;
    Address start = 0, pointer = 0;
    Handle own = NULL;
    size_t size = 0;
    unsigned char managed = 7;
    printf("%s\n", what);
    DO(D.cuPointerGetAttribute(&kind, 2, address));
    printf("kind %u\n", kind);
    DO(D.cuPointerGetAttribute(&own, 1, address));
    printf("of this context: %d\n", own == context);
    DO(D.cuPointerGetAttribute(&pointer, 3, address));
    printf("the same pointer: %d\n", pointer == address);
    DO(D.cuPointerGetAttribute(&managed, 8, address));
    printf("managed: %d\n", managed);
    DO(D.cuPointerGetAttribute(&device, 9, address));
    printf("device %d\n", device);
    DO(D.cuPointerGetAttribute(&start, 11, address));
    printf("its start: %d\n", start == base);
    DO(D.cuPointerGetAttribute(&size, 12, address));
    printf("so many bytes: %zu\n", size);
    unsigned kinds[] = {2, 11, 12, 9};
    void *places[] = {&kind, &start, &size, &device};
    kind = 7, start = 7, size = 7, device = 7;
    DO(D.cuPointerGetAttributes(4, kinds, places, address));
    printf("kind %u, start %d, %zu bytes, device %d\n", kind, start == base, size, device);
}

void ranges(void) {
    Address at, large, base = 0;
    size_t size = 0;
    int local = 0;
    Handle context = start();
    MUST(D.cuMemAlloc_v2(&at, 10000));
    MUST(D.cuMemAlloc_v2(&large, 10 << 20));
    DO(D.cuMemGetAddressRange_v2(&base, &size, at + 9999));
    printf("start %d, %zu bytes\n", base == at, size);
    DO(D.cuMemGetAddressRange_v2(&base, &size, large + (5 << 20)));
    printf("start %d, %zu bytes\n", base == large, size);
    DO(D.cuMemGetAddressRange_v2(&base, NULL, large));
    DO(D.cuMemGetAddressRange_v2(NULL, &size, large));
    about("a small one", at + 100, at, context);
    about("a large one", large + (3 << 20), large, context);
    MUST(D.cuMemFree_v2(at));
    MUST(D.cuMemFree_v2(large));
    DO(D.cuMemGetAddressRange_v2(&base, &size, large));
    unsigned kind = 0, kinds[] = {2, 12};
    void *places[] = {&kind, &size};
    DO(D.cuPointerGetAttribute(&kind, 2, large));
    DO(D.cuPointerGetAttribute(&kind, 2, (Address)(uintptr_t)&local));
    kind = 7, size = 7;
    DO(D.cuPointerGetAttributes(2, kinds, places, (Address)(uintptr_t)&local));
    printf("kind %u, %zu bytes\n", kind, size);
}

void pitch(void) {
    Address at;
    size_t pitch = 0;
    unsigned char rows[10 * 1000];
    start();
    DO(D.cuMemAllocPitch_v2(&at, &pitch, 1000, 10, 4));
    printf("rows are wide enough: %d, and even: %d\n", pitch >= 1000, pitch % 256 == 0);
    DO(D.cuMemsetD8_v2(at, 1, pitch * 10));
    DO(D.cuMemsetD2D8_v2(at, pitch, 2, 1000, 10));
    for (int i = 0; i < 10; i++) MUST(D.cuMemcpyDtoH_v2(rows + 1000 * i, at + pitch * i, 1000));
    int right = 0;
    for (int i = 0; i < 10 * 1000; i++) right += rows[i] == 2;
    printf("bytes that are right: %d\n", right);
    DO(D.cuMemFree_v2(at));
    DO(D.cuMemAllocPitch_v2(&at, &pitch, 1000, 10, 3));
    DO(D.cuMemAllocPitch_v2(&at, &pitch, 0, 10, 4));
    DO(D.cuMemAllocPitch_v2(NULL, &pitch, 1000, 10, 4));
}

void info(void) {
    size_t free_bytes = 0, total = 0, fewer = 0, later = 0;
    Address at;
    start();
    DO(D.cuMemGetInfo_v2(&free_bytes, &total));
    printf("some are free: %d, not more than all: %d\n", free_bytes > 0, free_bytes <= total);
    MUST(D.cuMemAlloc_v2(&at, 256 << 20));
    MUST(D.cuMemGetInfo_v2(&fewer, &total));
    printf("256 MiB fewer: %d\n", free_bytes - fewer >= (256 << 20));
    MUST(D.cuMemFree_v2(at));
    MUST(D.cuMemGetInfo_v2(&later, &total));
    printf("and not more than before: %d\n", later <= free_bytes + (64 << 20));
}

void managed(void) {
    Address at;
    start();
    DO(D.cuMemAllocManaged(&at, 1 << 16, 1));
    unsigned *words = (unsigned *)(uintptr_t)at;
    for (int i = 0; i < 1 << 14; i++) words[i] = 1;
    fill(at, 2, 1 << 13, NULL);
    DO(D.cuCtxSynchronize());
    printf("first %u, last %u\n", words[0], words[(1 << 14) - 1]);
    unsigned char is_managed = 0;
    DO(D.cuPointerGetAttribute(&is_managed, 8, at + 5));
    printf("managed: %d\n", is_managed);
    DO(D.cuMemFree_v2(at));
    DO(D.cuMemAllocManaged(&at, 4096, 0));
}

void pinned(void) {
    unsigned *words;
    Address at, same;
    start();
    DO(D.cuMemHostAlloc((void **)&words, 4096, 0));
    DO(D.cuMemHostGetDevicePointer_v2(&same, words, 0));
    printf("one address: %d\n", same == (Address)(uintptr_t)words);
    for (int i = 0; i < 1024; i++) words[i] = 3;
    MUST(D.cuMemAlloc_v2(&at, 4096));
    DO(D.cuMemcpyHtoDAsync_v2(at, words, 4096, NULL));
    DO(D.cuCtxSynchronize());
    look("copied", at, 3, 1024);
    fill(same, 4, 1024, NULL);
    DO(D.cuCtxSynchronize());
    printf("first %u, last %u\n", words[0], words[1023]);
    unsigned kind = 0;
    DO(D.cuPointerGetAttribute(&kind, 2, same));
    printf("kind %u\n", kind);
    DO(D.cuMemFreeHost(words));
    DO(D.cuMemFree_v2(at));
}

void registered(void) {
    unsigned *words = aligned_alloc(4096, 8192);
    Address at;
    start();
    for (int i = 0; i < 2048; i++) words[i] = 5;
    DO(D.cuMemHostRegister_v2(words, 8192, 1));
    DO(D.cuMemHostRegister_v2(words, 8192, 1));
    MUST(D.cuMemAlloc_v2(&at, 8192));
    DO(D.cuMemcpyHtoDAsync_v2(at, words, 8192, NULL));
    DO(D.cuCtxSynchronize());
    look("copied", at, 5, 2048);
    DO(D.cuMemHostUnregister(words));
    DO(D.cuMemHostUnregister(words));
    MUST(D.cuMemFree_v2(at));
    free(words);
}

void async(void) {
    Address at[8];
    Handle stream, other, event;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    MUST(D.cuStreamCreate(&other, 1));
    MUST(D.cuEventCreate(&event, 2));
    for (int round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 8; i++) {
            MUST(D.cuMemAllocAsync(&at[i], 4096u << i, stream));
            fill(at[i], i, 1024u << i, stream);
        }
        // Another stream may use it, and may free it, once it is in order behind the first.
        MUST(D.cuEventRecord(event, stream));
        MUST(D.cuStreamWaitEvent(other, event, 0));
        for (unsigned i = 0; i < 8; i++) {
            fill(at[i], 100 + i, 512u << i, other);
            if (round == 19) {
                MUST(D.cuStreamSynchronize(other));
                look("the first half", at[i], 100 + i, 512u << i);
                look("the second half", at[i] + 4 * (512u << i), i, 512u << i);
            }
            MUST(D.cuMemFreeAsync(at[i], other));
        }
        // Memory that is taken before the frees have run is other memory, or comes after them.
        MUST(D.cuEventRecord(event, other));
        MUST(D.cuStreamWaitEvent(stream, event, 0));
    }
    DO(D.cuMemAllocAsync(&at[0], 4096, stream));
    DO(D.cuStreamSynchronize(stream));
    DO(D.cuMemFree_v2(at[0]));
    DO(D.cuMemAlloc_v2(&at[0], 4096));
    DO(D.cuMemFreeAsync(at[0], stream));
    DO(D.cuStreamSynchronize(stream));
    DO(D.cuStreamSynchronize(other));
}

void pools(void) {
    PoolProperties properties;
    Handle pool, own, current;
    Handle stream;
    Address at;
    unsigned long long bytes = 1;
    int reuse = 0;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    memset(&properties, 0, sizeof properties);
    properties.type = 1;
    properties.location.type = 1;
    DO(D.cuDeviceGetDefaultMemPool(&pool, 0));
    DO(D.cuDeviceGetMemPool(&current, 0));
    printf("the default one is current: %d\n", pool == current);
    DO(D.cuMemPoolGetAttribute(pool, 4, &bytes));
    printf("it keeps %llu bytes\n", bytes);
    DO(D.cuMemPoolCreate(&own, &properties));
    DO(D.cuMemPoolGetAttribute(own, 1, &reuse));
    printf("reuse: %d\n", reuse);
    bytes = 64 << 20;
    DO(D.cuMemPoolSetAttribute(own, 4, &bytes));
    bytes = 0;
    DO(D.cuMemPoolGetAttribute(own, 4, &bytes));
    printf("it keeps %llu bytes\n", bytes);
    DO(D.cuMemAllocFromPoolAsync(&at, 1 << 20, own, stream));
    fill(at, 9, 1 << 18, stream);
    DO(D.cuStreamSynchronize(stream));
    look("from a pool", at, 9, 1 << 18);
    DO(D.cuMemPoolGetAttribute(own, 7, &bytes));
    printf("used: %llu\n", bytes);
    DO(D.cuMemFreeAsync(at, stream));
    DO(D.cuStreamSynchronize(stream));
    DO(D.cuMemPoolTrimTo(own, 0));
    DO(D.cuMemPoolGetAttribute(own, 7, &bytes));
    printf("used: %llu\n", bytes);
    DO(D.cuMemPoolGetAttribute(own, 5, &bytes));
    printf("held: %llu\n", bytes);
    DO(D.cuDeviceSetMemPool(0, own));
    DO(D.cuMemAllocAsync(&at, 1 << 20, stream));
    DO(D.cuMemFreeAsync(at, stream));
    DO(D.cuDeviceSetMemPool(0, pool));
    DO(D.cuStreamSynchronize(stream));
    DO(D.cuMemPoolDestroy(own));
}

void pages(void) {
    Properties properties;
    Access access = {{1, 0}, 3};
    size_t granule = 0;
    Address first, second;
    unsigned long long page;
    start();
    memset(&properties, 0, sizeof properties);
    properties.type = 1;
    properties.location.type = 1;
    DO(D.cuMemGetAllocationGranularity(&granule, &properties, 0));
    printf("granule: %zu\n", granule);
    DO(D.cuMemAddressReserve(&first, 4 * granule, 0, 0, 0));
    DO(D.cuMemAddressReserve(&second, granule, 0, 0, 0));
    DO(D.cuMemCreate(&page, granule, &properties, 0));
    DO(D.cuMemMap(first + granule, granule, 0, page, 0));
    DO(D.cuMemMap(second, granule, 0, page, 0));
    DO(D.cuMemSetAccess(first + granule, granule, &access, 1));
    DO(D.cuMemSetAccess(second, granule, &access, 1));
    fill(first + granule, 11, 1024, NULL);
    DO(D.cuCtxSynchronize());
    look("the same page elsewhere", second, 11, 1024);
    DO(D.cuMemRelease(page));
    DO(D.cuMemUnmap(first + granule, granule));
    look("still there", second, 11, 1024);
    DO(D.cuMemUnmap(second, granule));
    DO(D.cuMemAddressFree(first, 4 * granule));
    DO(D.cuMemAddressFree(second, granule));
    DO(D.cuMemCreate(&page, granule + 1, &properties, 0));
}

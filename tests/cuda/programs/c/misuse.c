// Memory that is used at forbidden times. A real driver's answer is luck; the stand-in must report the mistake.
#include "driver.h"

#include <stdio.h>
#include <string.h>

// Longer than the program takes to make the mistake.
static const unsigned long long LONG = 100000000;

void use_after_free(void) {
    Address at;
    start();
    MUST(D.cuMemAlloc_v2(&at, 4096));
    MUST(D.cuMemFree_v2(at));
    fill(at, 1, 1024, NULL);
    DO(D.cuCtxSynchronize());
    DO(D.cuMemAlloc_v2(&at, 4096));
}

void use_before_allocation(void) {
    Address at;
    Handle first, second;
    start();
    MUST(D.cuStreamCreate(&first, 1));
    MUST(D.cuStreamCreate(&second, 1));
    spin(LONG, first);
    MUST(D.cuMemAllocAsync(&at, 4096, first));
    fill(at, 1, 1024, second);
    DO(D.cuCtxSynchronize());
}

void free_under_work(void) {
    Address at;
    Handle first, second;
    start();
    MUST(D.cuStreamCreate(&first, 1));
    MUST(D.cuStreamCreate(&second, 1));
    MUST(D.cuMemAllocAsync(&at, 4096, first));
    MUST(D.cuStreamSynchronize(first));
    spin(LONG, second);
    MUST(D.cuMemsetD8Async(at, 1, 4096, second));
    MUST(D.cuMemFreeAsync(at, first));
    DO(D.cuCtxSynchronize());
}

// Two pages' worth of addresses, the first with memory.
static Address map_one(size_t *granule) {
    Properties properties;
    Address at;
    unsigned long long page;
    memset(&properties, 0, sizeof properties);
    properties.type = 1;
    properties.location.type = 1;
    MUST(D.cuMemGetAllocationGranularity(granule, &properties, 0));
    MUST(D.cuMemAddressReserve(&at, 2 * *granule, 0, 0, 0));
    MUST(D.cuMemCreate(&page, *granule, &properties, 0));
    MUST(D.cuMemMap(at, *granule, 0, page, 0));
    MUST(D.cuMemRelease(page));
    return at;
}

void use_without_access(void) {
    size_t granule;
    start();
    fill(map_one(&granule), 1, 1024, NULL);
    DO(D.cuCtxSynchronize());
}

void unmap_under_work(void) {
    Access access = {{1, 0}, 3};
    size_t granule;
    Handle stream;
    start();
    Address at = map_one(&granule);
    MUST(D.cuMemSetAccess(at, granule, &access, 1));
    MUST(D.cuStreamCreate(&stream, 1));
    spin(LONG, stream);
    MUST(D.cuMemsetD8Async(at, 1, granule, stream));
    DO(D.cuMemUnmap(at, granule));
    DO(D.cuCtxSynchronize());
}

void use_beyond_the_end(void) {
    Address at;
    start();
    MUST(D.cuMemAlloc_v2(&at, 3 << 20));
    fill(at + (3 << 20) - 4, 1, 2, NULL);
    DO(D.cuCtxSynchronize());
}

/* HIP by three doors. Arguments: the door (linked, opened, proc) and the case. `answers` prints what every call answers; the others
   do one thing each. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long P; typedef void* H; typedef unsigned char Byte;
typedef struct { int type, device; P device_pointer, host_pointer; int managed; unsigned flags; } About;
typedef struct { unsigned type, handles, location, id; void* win32; Byte rest[64]; } Pool;

#define FUNCTIONS(X) \
    X(hipInit, (unsigned)) X(hipSetDevice, (int)) X(hipGetDevice, (int*)) X(hipGetLastError, (void)) \
    X(hipDeviceSynchronize, (void)) X(hipDeviceReset, (void)) X(hipMalloc, (P*, size_t)) X(hipFree, (P)) \
    X(hipExtMallocWithFlags, (P*, size_t, unsigned)) X(hipMallocManaged, (P*, size_t, unsigned)) \
    X(hipMallocPitch, (P*, size_t*, size_t, size_t)) X(hipMallocAsync, (P*, size_t, H)) X(hipFreeAsync, (P, H)) \
    X(hipMallocFromPoolAsync, (P*, size_t, H, H)) X(hipDeviceGetDefaultMemPool, (H*, int)) X(hipDeviceSetMemPool, (int, H)) \
    X(hipMemPoolCreate, (H*, const Pool*)) X(hipMemPoolDestroy, (H)) X(hipMemPoolTrimTo, (H, size_t)) \
    X(hipMemPoolGetAttribute, (H, unsigned, void*)) X(hipMemGetInfo, (size_t*, size_t*)) \
    X(hipMemGetAddressRange, (P*, size_t*, P)) X(hipPointerGetAttribute, (void*, unsigned, P)) \
    X(hipDrvPointerGetAttributes, (unsigned, unsigned*, void**, P)) X(hipPointerGetAttributes, (About*, P)) \
    X(hipIpcGetMemHandle, (void*, P)) X(hipMemset, (P, int, size_t)) X(hipMemsetD32Async, (P, int, size_t, H)) \
    X(hipMemcpy, (void*, P, size_t, int)) X(hipMemcpyAsync, (void*, P, size_t, int, H)) \
    X(hipStreamCreateWithFlags, (H*, unsigned)) X(hipStreamDestroy, (H)) X(hipStreamSynchronize, (H)) \
    X(hipStreamBeginCapture, (H, unsigned)) X(hipStreamEndCapture, (H, H*)) X(hipGraphDestroy, (H)) \
    X(hipEventCreateWithFlags, (H*, unsigned)) X(hipEventRecord, (H, H)) X(hipEventDestroy, (H)) X(hipStreamWaitEvent, (H, H, unsigned))

#define MEMBER(name, arguments) int(*name) arguments;
static struct { FUNCTIONS(MEMBER) } D;
#ifdef LINKED
#define DECLARE(name, arguments) extern int name arguments;
FUNCTIONS(DECLARE)
#endif

static int enter(const char* door) {
#ifdef LINKED
#define TAKE(name, arguments) D.name = name;
    FUNCTIONS(TAKE)
    return 0;
#endif
    H library = dlopen("libamdhip64.so", RTLD_NOW);
    if (!library) return 1;
    if (!strcmp(door, "proc")) {
        int (*get)(const char*, H*, int, P, int*) = (void*)dlsym(library, "hipGetProcAddress"), status;
#define ASK(name, arguments) if (get(#name, (H*)&D.name, 70000000, 0, &status)) { printf("no %s\n", #name); return 1; }
        FUNCTIONS(ASK)
        return 0;
    }
#define FIND(name, arguments) if (!(*(H*)&D.name = dlsym(library, #name))) { printf("no %s\n", #name); return 1; }
    FUNCTIONS(FIND)
    return 0;
}

enum { TO_HOST = 2, COUNT = 6, LIVE = 24, STEPS = 300, THREADS = 6 };
static int bad;
static void check(int code) { if (code) __sync_fetch_and_add(&bad, 1); }
#define DO(call) printf("%s: %d\n", #call, D.call)

static void sizes(void) {
    static const size_t SIZES[COUNT] = {1, 512, 100000, 1 << 20, (5 << 20) + 4, 64 << 20};
    P at[COUNT], none = 7;
    for (int i = 0; i < COUNT; i++) {
        DO(hipMalloc(&at[i], SIZES[i]));
        printf("%zu bytes at a multiple of 256: %d\n", SIZES[i], at[i] % 256 == 0);
        check(D.hipMemset(at[i], i + 1, SIZES[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        Byte *bytes = malloc(SIZES[i]), *wanted = malloc(SIZES[i]);
        memset(wanted, i + 1, SIZES[i]);
        check(D.hipMemcpy(bytes, at[i], SIZES[i], TO_HOST) || memcmp(bytes, wanted, SIZES[i]));
        free(bytes);
        free(wanted);
    }
    for (int i = COUNT; i-- > 0;) DO(hipFree(at[i]));
    DO(hipMalloc(&none, 0)); printf("nothing: %d\n", none == 0);
    DO(hipFree(0)); DO(hipMalloc(NULL, 1));
    check(D.hipGetLastError() == 0);
    DO(hipMalloc(&none, (size_t)1 << 63));
    printf("the last error: %d\n", D.hipGetLastError());
}

static void ranges(void) {
    P at, base = 0;
    size_t size = 0;
    unsigned kinds[] = {2, 11, 12, 9}, kind = 0;
    int device = -7;
    void* places[] = {&kind, &base, &size, &device};
    About about = {0};
    DO(hipMalloc(&at, 10000));
    DO(hipMemGetAddressRange(&base, &size, at + 9999)); printf("its start %d, %zu bytes\n", base == at, size);
    base = size = 0;
    DO(hipPointerGetAttribute(&base, 11, at + 100)); DO(hipPointerGetAttribute(&size, 12, at + 100));
    printf("its start %d, %zu bytes\n", base == at, size);
    base = size = 0;
    DO(hipDrvPointerGetAttributes(4, kinds, places, at + 100));
    printf("kind %u, its start %d, %zu bytes, device %d\n", kind, base == at, size, device);
    DO(hipPointerGetAttributes(&about, at + 100));
    printf("type %d of device %d, the same pointer %d\n", about.type, about.device, about.device_pointer == at + 100);
    DO(hipFree(at));
    DO(hipMemGetAddressRange(&base, &size, at)); DO(hipPointerGetAttribute(&size, 12, at));
    DO(hipPointerGetAttributes(&about, at)); printf("type %d\n", about.type);
}

static void info(void) {
    size_t before = 0, now = 0, total = 0, pitch = 0;
    P at;
    DO(hipMemGetInfo(&before, &total));
    DO(hipMalloc(&at, 64 << 20));
    DO(hipMemGetInfo(&now, &total)); printf("%zu MiB fewer\n", (before - now) >> 20);
    DO(hipFree(at));
    DO(hipMemGetInfo(&now, &total)); printf("all are back: %d\n", before <= now);
    DO(hipMallocPitch(&at, &pitch, 1000, 10)); printf("wide %d, even %d\n", pitch >= 1000, pitch % 256 == 0);
    DO(hipMemset(at, 1, pitch * 10)); DO(hipFree(at));
    DO(hipMallocPitch(&at, &pitch, 0, 10)); DO(hipMallocPitch(NULL, &pitch, 1000, 10));
    DO(hipExtMallocWithFlags(&at, 4096, 1)); DO(hipFree(at)); DO(hipMallocManaged(&at, 4096, 1)); DO(hipFree(at));
}

static P used(H pool, unsigned attribute) {
    P bytes = 77;
    check(D.hipMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
}

static void async(void) {
    H stream, pool, own;
    P at, other;
    Pool wanted = {1, 0, 1, 0};
    int words[1000] = {0};
    DO(hipStreamCreateWithFlags(&stream, 1)); DO(hipDeviceGetDefaultMemPool(&pool, 0));
    DO(hipMallocAsync(&at, 1 << 20, stream)); printf("used %llu\n", used(pool, 7));
    DO(hipMemsetD32Async(at, 42, 1000, stream)); DO(hipMemcpyAsync(words, at, 4000, TO_HOST, stream));
    DO(hipFreeAsync(at, stream)); DO(hipStreamSynchronize(stream));
    printf("words %d %d, used %llu, at most %llu\n", words[0], words[999], used(pool, 7), used(pool, 8));
    DO(hipMallocFromPoolAsync(&at, 4096, pool, NULL)); DO(hipMallocAsync(&other, 4096, (H)2));
    DO(hipFreeAsync(at, NULL)); DO(hipFreeAsync(other, (H)2)); DO(hipDeviceSynchronize());
    DO(hipMemPoolTrimTo(pool, 0)); printf("held %llu\n", used(pool, 5));
    DO(hipMallocAsync(&at, 0, stream));
    DO(hipMemPoolCreate(&own, &wanted)); DO(hipMallocFromPoolAsync(&at, 4096, own, stream)); printf("used %llu\n", used(own, 7));
    DO(hipFreeAsync(at, stream)); DO(hipStreamSynchronize(stream)); DO(hipDeviceSetMemPool(0, own)); DO(hipMallocAsync(&at, 4096, stream)); printf("used %llu\n", used(own, 7));
    DO(hipFree(at)); DO(hipDeviceSetMemPool(0, pool)); DO(hipStreamSynchronize(stream)); DO(hipMemPoolDestroy(own));
    DO(hipMalloc(&at, 4096)); DO(hipFreeAsync(at, stream)); DO(hipMallocAsync(&at, 4096, stream)); DO(hipFree(at));
    DO(hipStreamDestroy(stream));
}

static void captures(void) {
    H stream, graph = NULL;
    P at, before;
    DO(hipStreamCreateWithFlags(&stream, 1)); DO(hipMalloc(&before, 4096));
    DO(hipStreamBeginCapture(stream, 2)); DO(hipMalloc(&at, 4096)); DO(hipFree(at)); DO(hipMemsetD32Async(before, 1, 10, stream));
    DO(hipStreamEndCapture(stream, &graph)); printf("a graph %d\n", graph != NULL); DO(hipGraphDestroy(graph));
    DO(hipStreamBeginCapture(stream, 0)); DO(hipMalloc(&at, 4096)); DO(hipStreamEndCapture(stream, &graph));
    DO(hipFree(before)); DO(hipMalloc(&at, 4096)); DO(hipFree(at)); DO(hipStreamDestroy(stream));
}

static void wrong(void) {
    P at, other;
    DO(hipMalloc(&at, 1 << 20)); DO(hipMalloc(&other, 4096));
    DO(hipFree(at + 512)); DO(hipFree(at)); DO(hipFree(at)); DO(hipFreeAsync(at, NULL)); DO(hipFree(0x1234));
    DO(hipDeviceReset()); DO(hipFree(other)); DO(hipMalloc(&at, 4096)); DO(hipMemset(at, 1, 4096)); DO(hipFree(at));
}

/* Allocates, fills, reads and frees, at once and in the order of a stream, and never waits before a free. */
static void* churn(void* argument) {
    unsigned number = (unsigned)(size_t)argument, seed = number * 7919 + 1, seen[LIVE] = {0}, value[LIVE];
    P at[LIVE] = {0};
    H stream;
    check(D.hipSetDevice(0) || D.hipStreamCreateWithFlags(&stream, 1));
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (seed = seed * 1103515245 + 12345) / 65536 % LIVE;
        size_t words = 64 + (seed >> 8) % 60000;
        if (at[i]) {
            check(D.hipMemcpyAsync(&seen[i], at[i], 4, TO_HOST, stream));
            check(step % 2 ? D.hipFree(at[i]) : D.hipFreeAsync(at[i], stream));
            check(D.hipStreamSynchronize(stream) || seen[i] != value[i]);
        }
        value[i] = number << 16 | step;
        check(step % 3 ? D.hipMalloc(&at[i], 4 * words) : D.hipMallocAsync(&at[i], 4 * words, stream));
        check(D.hipMemsetD32Async(at[i], value[i], words, stream));
        if (step % 50 == 49) {
            check(D.hipStreamDestroy(stream) || D.hipStreamCreateWithFlags(&stream, 1));
        }
    }
    for (unsigned i = 0; i < LIVE; i++) if (at[i]) check(D.hipFree(at[i]));
    check(D.hipStreamDestroy(stream));
    return NULL;
}

int main(int count, char** words) {
    const char* which = words[2];
    P at, other;
    if (count < 3 || enter(words[1]) || D.hipInit(0)) return 2;
    if (!strcmp(which, "answers")) {
        sizes(); ranges(); info(); async(); captures(); wrong();
        printf("bad %d\n", bad);
    } else if (!strcmp(which, "churn")) {
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, (void*)(i + 1));
        for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        printf("bad %d\n", bad);
    } else if (!strcmp(which, "pairs")) {
        for (int i = 0; i < 1000; i++) check(D.hipMalloc(&at, 1 << 20) || D.hipFree(at));
        printf("bad %d\n", bad);
    } else if (!strcmp(which, "streams")) {
        H stream;
        for (int i = 0; i < 200; i++) {
            check(D.hipStreamCreateWithFlags(&stream, 1) || D.hipMallocAsync(&at, 1 << 20, stream));
            check(D.hipFreeAsync(at, stream) || D.hipStreamDestroy(stream));
        }
        printf("bad %d\n", bad);
    } else if (!strcmp(which, "fill")) {
        int blocks = 0, code;
        while (!(code = D.hipMalloc(&at, 1 << 20))) blocks++;
        printf("%d blocks, then %d, and the last error is %d\n", blocks, code, D.hipGetLastError());
    } else if (!strcmp(which, "overrun")) {
        return D.hipMalloc(&at, 1000) || D.hipMemset(at, 0, 1004) || D.hipFree(at) || D.hipMalloc(&other, 1000);
    } else if (!strcmp(which, "loop")) {
        struct pollfd input = {0, POLLIN, 0};
        check(D.hipMalloc(&at, 3 << 20) || D.hipMemsetD32Async(at, 7, 3 << 18, NULL));
        printf("ready\n"); fflush(stdout);
        for (size_t n = 0; !poll(&input, 1, 2); n++) {
            unsigned seen = 0;
            check(D.hipMemcpy(&seen, at + 4096 * (n % 500), 4, TO_HOST) || seen != 7);
            check(D.hipMalloc(&other, 1 << 20) || D.hipFree(other));
        }
        printf("bad %d\n", bad);
    }
    return 0;
}

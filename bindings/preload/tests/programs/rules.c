/* Rules of the driver that programs count on; the argument names one of them. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuCtxSynchronize(void);
int cuMemAlloc_v2(P*, unsigned long), cuMemFree_v2(P), cuMemAllocAsync(P*, unsigned long, H), cuMemFreeAsync(P, H);
int cuStreamCreate(H*, unsigned), cuStreamSynchronize(H), cuLaunchHostFunc(H, void (*)(void*), void*);
int cuMemAllocPitch_v2(P*, unsigned long*, unsigned long, unsigned long, unsigned), cuMemsetD8_v2(P, unsigned char, unsigned long);
int cuIpcGetMemHandle(char*, P), cuCtxCreate_v2(H*, unsigned, int), cuCtxDestroy(H), cuCtxAttach(H*, unsigned), cuCtxDetach(H);
int cuDevicePrimaryCtxReset(int), cuDevicePrimaryCtxRelease(int), cuDevicePrimaryCtxRelease_v2(int), cuMemPoolCreate(H*, void*);
int cuMemSetMemPool(void*, unsigned, H), cuGreenCtxCreate(H*, H, int, unsigned), cuGreenCtxDestroy(H), cuCtxFromGreenCtx(H*, H);
int cuDeviceGetDefaultMemPool(H*, int), cuMemPoolGetAttribute(H, unsigned, void*), cuMemPoolSetAttribute(H, unsigned, void*);
int cuCtxGetCurrent(H*), cuMemsetD8Async(P, unsigned char, unsigned long, H), cuMemcpyDtoH_v2(void*, P, unsigned long);
int cuStreamBeginCapture_v2(H, unsigned), cuStreamEndCapture(H, H*), cuGraphGetNodes(H, H*, unsigned long*);
int cuMemGetAddressRange_v2(P*, unsigned long*, P), cuStreamDestroy_v2(H), cuStreamDestroy(H), cuStreamBeginCapture(H);
int cuDeviceSetMemPool(int, H), cuMemPoolSetAccess(H, void*, unsigned long), cuMemPoolDestroy(H);
int cuMemPoolTrimTo(H, unsigned long), cuPointerGetAttribute(void*, unsigned, P);
static volatile int go;
static void wait_for_go(void* unused) { while (!go) usleep(1000); }
static void nap(void* unused) { usleep(50000); }
static void set_go(void* unused) { go = 1; }
enum { MIB = 1 << 20 };

/* Runs a thread in the device's context. */
static void* in_context(void* run) {
    H context;
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return "context";
    return ((void* (*)(void*))run)(0);
}

/* A stream that gets memory which another one freed waits for no third one. */
static int streams(void) {
    H waits, a, b; P p, q;
    if (cuStreamCreate(&waits, 1) || cuStreamCreate(&a, 1) || cuStreamCreate(&b, 1)) return 3;
    if (cuLaunchHostFunc(waits, wait_for_go, 0)) return 4;
    if (cuMemAllocAsync(&p, 200 * MIB, a) || cuMemFreeAsync(p, a) || cuStreamSynchronize(a)) return 5;
    if (cuMemAllocAsync(&q, 200 * MIB, b) || cuLaunchHostFunc(b, set_go, 0)) return 6;
    return cuStreamSynchronize(b) || cuCtxSynchronize();
}

/* The first allocation of a context waits for nothing. */
static int first(void) {
    H stream; P p;
    if (cuStreamCreate(&stream, 1) || cuLaunchHostFunc(stream, wait_for_go, 0) || cuMemAlloc_v2(&p, MIB)) return 3;
    go = 1;
    return cuCtxSynchronize() || cuMemFree_v2(p);
}

/* Loaders look up every name there is. */
static int eager(void) {
    P p; H driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!dlsym(driver, "cuIpcGetMemHandle") || !dlsym(driver, "cuMemAlloc_v2")) return 3;
    for (int i = 0; i < 8; i++) if (cuMemAlloc_v2(&p, 4 * MIB) || cuMemFree_v2(p)) return 4;
    return 0;
}

/* After a first export, allocations of every size can be exported. */
static int exports(void) {
    P p, q, r; char handle[64];
    if (cuMemAlloc_v2(&p, MIB) || cuIpcGetMemHandle(handle, p) != 1) return 3;
    if (cuMemAlloc_v2(&q, MIB) || cuIpcGetMemHandle(handle, q)) return 4;
    if (cuMemAlloc_v2(&r, 80) || cuIpcGetMemHandle(handle, r)) return 5;
    return cuMemFree_v2(p) || cuMemFree_v2(q) || cuMemFree_v2(r);
}

/* Contexts go by the names without a version as well. */
static int names(void) {
    H context, again, stream; P p;
    if (cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&p, 4 * MIB) || cuCtxDestroy(context)) return 3;
    if (cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&p, 4 * MIB) || cuCtxAttach(&again, 0)) return 4;
    if (cuCtxDetach(again) || cuMemsetD8_v2(p, 1, 4 * MIB) || cuCtxDetach(context)) return 5;
    if (cuStreamCreate(&stream, 1) || cuMemAlloc_v2(&p, 4 * MIB)) return 6;
    return cuMemAllocAsync(&p, 64 * MIB, stream) || cuMemFreeAsync(p, stream) || cuDevicePrimaryCtxReset(0);
}

/* Captures and streams go by the names without a version as well. */
static int unversioned(void) {
    H stream, graph; P p;
    if (cuStreamCreate(&stream, 1) || cuStreamBeginCapture(stream) || cuMemAllocAsync(&p, MIB, stream)) return 3;
    if (cuMemFreeAsync(p, stream) || cuStreamEndCapture(stream, &graph)) return 4;
    if (cuStreamBeginCapture_v2(stream, 2) || cuStreamDestroy(stream)) return 5;
    return cuMemAlloc_v2(&p, MIB) || cuMemFree_v2(p);
}

/* A context that was reset has no memory, and the next one of its handle has. */
static int again(void) {
    H context; P p;
    if (cuMemAlloc_v2(&p, MIB) || cuDevicePrimaryCtxReset(0) || !cuMemAlloc_v2(&p, MIB)) return 3;
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 4;
    return cuMemAlloc_v2(&p, MIB) || cuMemFree_v2(p);
}

/* Memory goes with its context, whoever freed it. */
static int released(void) {
    H context, stream; P p;
    if (cuDevicePrimaryCtxRelease_v2(0)) return 3;
    for (int i = 0; i < 64; i++) {
        if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 4;
        if (i % 3 ? cuMemAlloc_v2(&p, 1024 * MIB) : cuStreamCreate(&stream, 1) || cuMemAllocAsync(&p, 1024 * MIB, stream)) return 5;
        if (i % 3 == 0 && i % 6 && (cuMemFreeAsync(p, stream) || cuStreamSynchronize(stream))) return 7;
        if (i % 3 && i % 2 && cuMemFree_v2(p)) return 8;
        if (i % 4 < 2 ? cuDevicePrimaryCtxRelease_v2(0) : cuDevicePrimaryCtxRelease(0)) return 6;
    }
    return 0;
}

/* Threads retain and release a context, which ends now and then. */
static void* worker(void* number) {
    H context, part; P p;
    for (long i = 0; i < 600; i++) {
        int greens = (i + (long)number) % 3 == 0;
        if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return "retain";
        if (greens && (cuGreenCtxCreate(&part, 0, 0, 1) || cuDevicePrimaryCtxRelease_v2(0))) return "green";
        if (cuMemAlloc_v2(&p, 4 * MIB) || cuMemsetD8_v2(p, 1, 4 * MIB) || i % 2 && cuMemFree_v2(p)) return "memory";
        if (!cuCtxDestroy(context)) return "destroyed";
        if (greens ? cuGreenCtxDestroy(part) : cuDevicePrimaryCtxRelease_v2(0)) return "release";
        usleep(i * 7 % 300);
    }
    return 0;
}
static int workers(void) {
    pthread_t threads[2]; void* failed; int code = 0;
    if (cuDevicePrimaryCtxRelease_v2(0)) return 3;
    for (long i = 0; i < 2; i++) if (pthread_create(&threads[i], 0, worker, (void*)i)) return 4;
    for (int i = 0; i < 2; i++) if (pthread_join(threads[i], &failed) || failed) puts(failed), code = 5;
    return code;
}

/* To release a context that others retain waits for nothing. */
static int retained(void) {
    H context, stream; P p;
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuStreamCreate(&stream, 1) || cuMemAlloc_v2(&p, MIB)) return 3;
    if (cuLaunchHostFunc(stream, wait_for_go, 0) || cuMemFree_v2(p) || cuDevicePrimaryCtxRelease_v2(0)) return 4;
    go = 1;
    return cuStreamSynchronize(stream);
}

/* Contexts that the driver does not destroy keep their memory. */
static int refused(void) {
    H primary, context; P p, q;
    if (cuCtxGetCurrent(&primary) || cuMemAlloc_v2(&p, MIB)) return 3;
    if (!cuCtxDestroy(primary) || cuCtxDetach(primary) || cuMemsetD8_v2(p, 1, MIB) || cuMemFree_v2(p)) return 4;
    if (cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&q, MIB) || cuCtxSetCurrent(primary)) return 5;
    return !cuCtxDetach(context) || cuCtxSetCurrent(context) || cuMemsetD8_v2(q, 1, MIB) || cuMemFree_v2(q);
}

/* A pool that was chosen for a place of memory serves it. */
static int pool(void) {
    struct { int type, handles, place[2]; void* win32; char reserved[64]; } properties = {1, 0, {1, 0}};
    H own; P p;
    if (cuMemPoolCreate(&own, &properties) || cuMemSetMemPool(properties.place, 1, own)) return 3;
    return cuMemAllocAsync(&p, MIB, 0) || cuMemFreeAsync(p, 0);
}

/* Only a pool that was chosen, and is not the device's own, or one that is open to peers takes asynchronous memory away. */
static int choices(void) {
    struct { int type, handles, place[2]; void* win32; char reserved[64]; } properties = {1, 0, {1, 0}};
    struct { int place[2], rights; } access[] = {{{1, 0}, 3}, {{1, 1}, 0}, {{1, 1}, 3}};
    H own, first, none = 0; P p;
    if (cuMemPoolCreate(&own, &properties) || cuMemPoolSetAccess(own, access, 1) || !cuDeviceSetMemPool(0, none)) return 3;
    if (cuMemAllocAsync(&p, MIB, 0) || cuMemFreeAsync(p, 0)) return 4;
    if (cuDeviceGetDefaultMemPool(&first, 0) || cuDeviceSetMemPool(0, own) || cuDeviceSetMemPool(0, first)) return 5;
    if (cuMemAllocAsync(&p, MIB, 0) || cuMemFreeAsync(p, 0) || cuMemPoolSetAccess(first, access, 2)) return 6;
    if (cuMemAllocAsync(&p, MIB, 0) || cuMemFreeAsync(p, 0) || cuDeviceSetMemPool(0, own) || cuMemPoolDestroy(own)) return 7;
    if (cuMemAllocAsync(&p, MIB, 0) || cuMemFreeAsync(p, 0) || cuMemPoolSetAccess(first, access, 3)) return 8;
    return cuMemAllocAsync(&p, MIB, 0) || cuMemFreeAsync(p, 0);
}

/* Memory of a green context may be used by others. */
static int green(void) {
    H part, context; P p;
    if (cuGreenCtxCreate(&part, 0, 0, 1) || cuCtxFromGreenCtx(&context, part) || cuCtxSetCurrent(context)) return 3;
    return cuMemAlloc_v2(&p, MIB) || cuMemFree_v2(p) || cuGreenCtxDestroy(part);
}

/* A green context retains the primary one, which may end with it. */
static int greens(void) {
    H part, context; P p;
    for (int i = 0; i < 24; i++) {
        if (cuGreenCtxCreate(&part, 0, 0, 1) || cuMemAlloc_v2(&p, 1024 * MIB) || cuDevicePrimaryCtxRelease_v2(0)) return 3;
        if (i % 2 && cuCtxFromGreenCtx(&context, part) || cuMemsetD8_v2(p, 1, 1) || cuGreenCtxDestroy(part)) return 4;
        if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 5;
    }
    return 0;
}

/* Rows have a greatest width. */
static int pitch(void) {
    P p; unsigned long pitch;
    return cuMemAllocPitch_v2(&p, &pitch, 0x7FFFFFFF, 1, 4) != 1;
}

/* The default pool tells what it holds, and gives back what is empty. */
static int figures(void) {
    H pool, stream; P p; unsigned long used = 7, held = 7, most = 7;
    if (cuStreamCreate(&stream, 1) || cuDeviceGetDefaultMemPool(&pool, 0)) return 3;
    if (cuMemAllocAsync(&p, 96 * MIB, stream) || cuMemFreeAsync(p, stream)) return 4;
    if (cuMemPoolGetAttribute(pool, 8, &most) || most != 96 * MIB || cuMemPoolGetAttribute(pool, 6, &held) || held < most) return 9;
    used = 0;
    if (cuMemPoolSetAttribute(pool, 8, &used) || cuMemPoolSetAttribute(pool, 6, &used)) return 10;
    if (cuMemPoolTrimTo(pool, 48 * MIB) || cuMemPoolGetAttribute(pool, 5, &held) || held > 64 * MIB || held < 16 * MIB) return 11;
    if (cuMemAllocAsync(&p, 64 * MIB, stream) || cuMemPoolGetAttribute(pool, 7, &used) || used != 64 * MIB) return 4;
    if (cuMemPoolGetAttribute(pool, 5, &held) || held < 64 * MIB || cuMemPoolTrimTo(pool, 0)) return 5;
    if (cuMemFreeAsync(p, stream) || cuStreamSynchronize(stream)) return 6;
    if (cuMemPoolGetAttribute(pool, 7, &used) || used || cuMemPoolGetAttribute(pool, 8, &most) || most != 64 * MIB) return 7;
    if (cuMemPoolSetAttribute(pool, 8, &used) || cuMemPoolGetAttribute(pool, 8, &most) || most) return 8;
    return cuMemPoolTrimTo(pool, 0) || cuMemPoolGetAttribute(pool, 5, &held) || held;
}

/* Questions about host memory look through no list of frees. */
static int questions(void) {
    enum { MANY = 60000 };
    static P p[MANY];
    P host = (P)p; int kind;
    for (int i = 0; i < MANY; i++) if (cuMemAlloc_v2(&p[i], 512)) return 3;
    for (int i = 0; i < MANY; i++) if (cuMemFree_v2(p[i])) return 4;
    for (int i = 0; i < MANY; i++) if (cuPointerGetAttribute(&kind, 2, host) != 1) return 5;
    return 0;
}

/* Bytes that were freed are given to nobody while a stream writes them. */
static int marked(void) {
    H a, b; P p, q; unsigned char seen = 7;
    if (cuStreamCreate(&a, 1) || cuStreamCreate(&b, 1) || cuMemAlloc_v2(&p, 40 * MIB)) return 3;
    if (cuLaunchHostFunc(a, wait_for_go, 0) || cuMemsetD8Async(p, 1, 40 * MIB, a) || cuMemFree_v2(p)) return 4;
    usleep(20000);
    if (cuMemAlloc_v2(&q, 40 * MIB) || cuMemsetD8Async(q, 2, 40 * MIB, b) || cuStreamSynchronize(b)) return 5;
    go = 1;
    return cuStreamSynchronize(a) || cuMemcpyDtoH_v2(&seen, q, 1) || seen != 2 || cuMemFree_v2(q);
}

/* Blocks that streams freed go back before more are made. */
static int ordered(void) {
    H stream; P p;
    if (cuStreamCreate(&stream, 1)) return 3;
    for (int i = 0; i < 16; i++) if (cuMemAlloc_v2(&p, 64 * MIB) || cuMemFreeAsync(p, stream) || cuStreamSynchronize(stream)) return 4;
    return 0;
}

/* A free on a stream of another context than the current one waits for nothing. */
static int elsewhere(void) {
    H stream, context; P p;
    if (cuStreamCreate(&stream, 1) || cuMemAlloc_v2(&p, MIB) || cuLaunchHostFunc(stream, wait_for_go, 0)) return 3;
    if (cuCtxCreate_v2(&context, 0, 0) || cuMemFreeAsync(p, stream)) return 4;
    go = 1;
    return cuStreamSynchronize(stream) || cuMemFreeAsync(p, stream) == 0;
}

/* A free on a stream of another context than the memory's runs when that stream has. */
static int across(void) {
    H own, other, stream; P p;
    if (cuCtxGetCurrent(&own) || cuMemAlloc_v2(&p, MIB) || cuCtxCreate_v2(&other, 0, 0) || cuStreamCreate(&stream, 1)) return 3;
    if (cuLaunchHostFunc(stream, nap, 0) || cuLaunchHostFunc(stream, set_go, 0) || cuMemFreeAsync(p, stream) || !go) return 4;
    return cuMemFreeAsync(p, stream) == 0 || cuCtxSetCurrent(own) || cuCtxSynchronize();
}

/* A device that is lost is not full. */
static int lost(void) {
    P p;
    if (cuMemAlloc_v2(&p, 48 * MIB) || cuMemsetD8Async(p, 1, 4096L * MIB, 0) || !cuCtxSynchronize()) return 3;
    return cuMemFree_v2(p) || cuMemAlloc_v2(&p, 48 * MIB) != 700;
}

/* Memory that was freed before a capture began can be had while it lasts. */
static int captured(void) {
    H slow, other, recorded, graph; P p;
    if (cuStreamCreate(&slow, 1) || cuStreamCreate(&other, 1) || cuStreamCreate(&recorded, 1)) return 3;
    if (cuMemAlloc_v2(&p, 48 * MIB) || cuLaunchHostFunc(slow, nap, 0) || cuMemFree_v2(p)) return 4;
    if (cuStreamBeginCapture_v2(recorded, 2) || cuMemAllocAsync(&p, 48 * MIB, other) || cuMemFreeAsync(p, other)) return 5;
    return cuStreamEndCapture(recorded, &graph);
}

/* Work that runs when a block of its own is freed may write behind it. */
static int late(void) {
    H stream; P p;
    if (cuStreamCreate(&stream, 1) || cuMemAlloc_v2(&p, MIB) || cuLaunchHostFunc(stream, nap, 0)) return 3;
    return cuMemsetD8Async(p, 7, MIB + 4, stream) || cuMemFree_v2(p);
}

/* What a stream freed that is gone is given to nobody while its work uses it. */
static int heir(void) {
    H a, b; P p, q; unsigned char seen = 7;
    if (cuStreamCreate(&a, 1) || cuMemAllocAsync(&p, 64 * MIB, a) || cuLaunchHostFunc(a, wait_for_go, 0)) return 3;
    if (cuMemsetD8Async(p, 1, 64 * MIB, a) || cuMemFreeAsync(p, a) || cuStreamDestroy_v2(a) || cuStreamCreate(&b, 1)) return 4;
    if (cuMemAllocAsync(&q, 64 * MIB, b) || cuMemsetD8Async(q, 2, 64 * MIB, b) || cuStreamSynchronize(b)) return 5;
    go = 1;
    return cuCtxSynchronize() || cuMemcpyDtoH_v2(&seen, q, 1) || seen != 2 || cuMemFreeAsync(q, b);
}

/* Memory that was written behind its end, of streams that are gone, one of them as a capture begins. */
static int gone(void) {
    H a, b, graph; P p[4]; unsigned char seen = 7; unsigned long nodes = 0;
    if (cuStreamCreate(&a, 1)) return 3;
    for (int i = 0; i < 4; i++) if (cuMemAllocAsync(&p[i], MIB, a) || cuMemsetD8Async(p[i], i, i < 3 ? MIB + 4 : MIB, a)) return 4;
    if (cuStreamSynchronize(a) || cuStreamDestroy_v2(a) || cuStreamCreate(&b, 1)) return 5;
    if (cuMemFree_v2(p[0]) || cuMemFreeAsync(p[1], b) || cuStreamSynchronize(b)) return 6;
    if (cuStreamBeginCapture_v2(b, 2) || cuMemFree_v2(p[3]) || cuStreamEndCapture(b, &graph)) return 7;
    return cuGraphGetNodes(graph, 0, &nodes) || nodes || cuMemcpyDtoH_v2(&seen, p[2], 1) || seen != 2;
}

/* Nothing lives at an address that was freed, whatever lives beside it. */
static int vacant(void) {
    H stream; P p[3], base; unsigned long size; int kind;
    if (cuStreamCreate(&stream, 1)) return 3;
    for (int i = 0; i < 3; i++) if (cuMemAllocAsync(&p[i], MIB, stream)) return 4;
    for (int i = 0; i < 2; i++) {
        if (cuMemFreeAsync(p[i], stream) || cuStreamSynchronize(stream)) return 5;
        if (cuPointerGetAttribute(&kind, 2, p[i]) != 1 || !cuMemGetAddressRange_v2(&base, &size, p[i] + 9)) return 6;
        if (cuPointerGetAttribute(&kind, 2, p[2]) || cuMemGetAddressRange_v2(&base, &size, p[2] + 9) || base != p[2]) return 7;
    }
    return 0;
}

/* Streams come and go, and memory is in the order of each. */
static int brief(void) {
    H stream, other; P p, q = 0;
    alarm(0);
    if (cuStreamCreate(&other, 1)) return 3;
    for (int i = 0, rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 66000; i < rounds; i++) {
        if (cuStreamCreate(&stream, 1) || cuMemAllocAsync(&p, 64 << 10, stream)) return 4;
        /* One outlives its stream. */
        if (q && cuMemFreeAsync(q, i % 2 ? stream : other)) return 5;
        q = 0;
        if (i % 1000 ? cuMemFreeAsync(p, stream) : (q = p, 0)) return 6;
        if (cuStreamDestroy_v2(stream)) return 7;
    }
    return cuCtxSynchronize();
}

/* To destroy a stream waits for nobody who waits for memory. */
static void* asks(void* unused) {
    P p;
    return cuMemAlloc_v2(&p, 48 * MIB) ? "memory" : 0;
}
static int apart(void) {
    H slow, other; P p, q; pthread_t thread; void* failed;
    if (cuStreamCreate(&slow, 1) || cuStreamCreate(&other, 1) || cuMemAllocAsync(&q, 512, other) || cuMemFreeAsync(q, other)) return 3;
    if (cuMemAlloc_v2(&p, 48 * MIB) || cuLaunchHostFunc(slow, wait_for_go, 0) || cuMemFree_v2(p)) return 4;
    if (pthread_create(&thread, 0, in_context, asks)) return 5;
    usleep(50000);
    if (cuStreamDestroy_v2(other)) return 6;
    go = 1;
    return pthread_join(thread, &failed) || failed;
}

static const struct { const char* name; int (*run)(void); } RULES[] = {
    {"streams", streams}, {"first", first},
    {"eager", eager},
    {"exports", exports},
    {"names", names},
    {"unversioned", unversioned},
    {"again", again},
    {"released", released},
    {"workers", workers},
    {"pool", pool},
    {"choices", choices},
    {"green", green},
    {"greens", greens},
    {"pitch", pitch},
    {"figures", figures},
    {"questions", questions},
    {"marked", marked},
    {"retained", retained},
    {"refused", refused},
    {"ordered", ordered},
    {"elsewhere", elsewhere},
    {"across", across},
    {"lost", lost},
    {"captured", captured},
    {"late", late},
    {"brief", brief},
    {"heir", heir},
    {"gone", gone},
    {"apart", apart},
    {"vacant", vacant},
};

int main(int count, char** words) {
    H context;
    alarm(120);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    for (int i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        if (strcmp(words[1], RULES[i].name)) continue;
        int code = RULES[i].run();
        if (!code) printf("done\n");
        return code;
    }
    return 2;
}

/* Rules of the driver that programs count on; the argument names one of them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuCtxSynchronize(void);
int cuMemAlloc_v2(P*, unsigned long), cuMemFree_v2(P), cuMemAllocAsync(P*, unsigned long, H), cuMemFreeAsync(P, H);
int cuStreamCreate(H*, unsigned), cuStreamSynchronize(H), cuLaunchHostFunc(H, void (*)(void*), void*);
static volatile int go;
static void wait_for_go(void* unused) { while (!go) usleep(1000); }
static void set_go(void* unused) { go = 1; }
enum { MIB = 1 << 20 };

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

static const struct { const char* name; int (*run)(void); } RULES[] = {
    {"streams", streams}, {"first", first},
};

int main(int count, char** words) {
    H context;
    alarm(20);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    for (int i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        if (strcmp(words[1], RULES[i].name)) continue;
        int code = RULES[i].run();
        if (!code) printf("done\n");
        return code;
    }
    return 2;
}

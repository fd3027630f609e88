/* Odd things that programs do; the argument names one of them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuDevicePrimaryCtxReset_v2(int), cuCtxSynchronize(void);
int cuMemAlloc_v2(P*, unsigned long), cuMemFree_v2(P), cuMemAllocAsync(P*, unsigned long, H), cuMemFreeAsync(P, H);
int cuMemsetD8Async(P, unsigned char, unsigned long, H);
int cuStreamCreate(H*, unsigned), cuStreamDestroy_v2(H), cuStreamBeginCapture_v2(H, unsigned), cuLaunchHostFunc(H, void (*)(void*), void*);
static volatile int go;
static void wait_for_go(void* unused) { while (!go) usleep(1000); }
int main(int count, char** words) {
    H context, stream; P p, q;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    alarm(120);
    if (!strcmp(words[1], "waits")) {
        /* Work after the free waits for something that the program does only after its next allocation. */
        if (cuStreamCreate(&stream, 1) || cuMemAlloc_v2(&p, 40 << 20) || cuMemFree_v2(p)) return 3;
        if (cuLaunchHostFunc(stream, wait_for_go, 0) || cuMemAlloc_v2(&q, 300 << 20)) return 4;
        go = 1;
        if (cuCtxSynchronize() || cuMemFree_v2(q)) return 5;
    } else if (!strcmp(words[1], "ends-captures")) {
        if (cuMemAlloc_v2(&p, 1 << 20) || cuStreamCreate(&stream, 1) || cuStreamBeginCapture_v2(stream, 2)) return 3;
        if (cuStreamDestroy_v2(stream) || cuMemAlloc_v2(&q, 1 << 20)) return 4;
    } else if (!strcmp(words[1], "pairs")) {
        for (int i = 0; i < 1000; i++) {
            if (cuMemAlloc_v2(&p, 1 << 20) || cuMemFree_v2(p)) return 3;
        }
        if (cuStreamCreate(&stream, 1)) return 4;
        for (int i = 0; i < 1000; i++) {
            if (cuMemAllocAsync(&p, 1 << 20, stream) || cuMemFreeAsync(p, stream)) return 5;
        }
    } else if (!strcmp(words[1], "resets")) {
        if (cuMemAlloc_v2(&p, 1000) || cuMemsetD8Async(p, 0, 1004, 0) || cuCtxSynchronize()) return 3;
        if (cuDevicePrimaryCtxReset_v2(0)) return 4;
    }
    printf("done\n");
    return 0;
}

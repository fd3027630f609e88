/* Works on its memory until its input ends, and reports lost bytes. */
#include <poll.h>
#include <stdio.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuMemAlloc_v2(P*, unsigned long), cuMemFree_v2(P);
int cuMemsetD32Async(P, unsigned, unsigned long, H), cuMemcpyDtoH_v2(void*, P, unsigned long);
enum { COUNT = 10 };
int main(void) {
    struct pollfd input = {0, POLLIN, 0};
    H context; P p[COUNT], q; int bad = 0; unsigned long n = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    for (int i = 0; i < COUNT; i++) bad += cuMemAlloc_v2(&p[i], 3 << 20) || cuMemsetD32Async(p[i], i + 7, 3 << 18, 0);
    printf("ready\n"); fflush(stdout);
    while (!poll(&input, 1, 2)) {
        unsigned seen = 0, i = n++ % COUNT;
        bad += cuMemcpyDtoH_v2(&seen, p[i] + 4096 * (n % 500), 4) || seen != i + 7;
        bad += cuMemAlloc_v2(&q, 1 << 20) || cuMemFree_v2(q);
    }
    printf("bad %d\n", bad);
    return 0;
}

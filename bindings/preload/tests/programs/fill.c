/* Allocates blocks of 1 MiB until memory runs out, and prints their number and the address of the refused one. */
#include <stdio.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuMemAlloc_v2(P*, unsigned long), cuMemGetInfo_v2(unsigned long*, unsigned long*);
int main(void) {
    H context; P p = 7; unsigned long free_, total; int count = 0, code;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    while (!(code = cuMemAlloc_v2(&p, 1 << 20))) count++;
    cuMemGetInfo_v2(&free_, &total);
    printf("%d blocks, then %d at %llu; %lu MiB of %lu free\n", count, code, p, free_ >> 20, total >> 20);
    return 0;
}

/* Writes four bytes behind an allocation, and leaks what it has. */
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuCtxSynchronize(void);
int cuMemAlloc_v2(P*, unsigned long), cuMemFree_v2(P), cuMemsetD8Async(P, unsigned char, unsigned long, H);
int main(void) {
    H context; P p, q;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    if (cuMemAlloc_v2(&p, 1000) || cuMemsetD8Async(p, 0, 1004, 0) || cuCtxSynchronize() || cuMemFree_v2(p)) return 3;
    return cuMemAlloc_v2(&q, 1000) || cuCtxSynchronize();
}

/* A library that finds the driver by itself, as programs in Rust and plugins do, and a program that loads it: its path, the driver's
   name, and a word for RTLD_DEEPBIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
typedef unsigned long long P; typedef int (*F)();
#ifdef PLUGIN
int pairs(const char* name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL), *context;
    if (!library) return -1;
    F init = (F)dlsym(library, "cuInit"), retain = (F)dlsym(library, "cuDevicePrimaryCtxRetain"), set = (F)dlsym(library, "cuCtxSetCurrent");
    F allocate = (F)dlsym(library, "cuMemAlloc_v2"), release = (F)dlsym(library, "cuMemFree_v2");
    P p;
    if (init(0) || retain(&context, 0) || set(context)) return -2;
    for (int i = 0; i < 3; i++) {
        if (allocate(&p, (size_t)1 << 20) || release(p)) return -3;
    }
    return 3;
}
#else
int main(int count, char** words) {
    void* plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL | (count > 3 ? RTLD_DEEPBIND : 0));
    if (!plugin) { printf("%s\n", dlerror()); return 1; }
    printf("%d pairs\n", ((F)dlsym(plugin, "pairs"))(words[2]));
    return 0;
}
#endif

/* The driver by dlopen, dlsym and cuGetProcAddress, as static cudart and Rust programs do it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
typedef unsigned long long P; typedef int (*F)();

static void* need(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (!found) { printf("no %s\n", name); exit(2); }
    return found;
}

int main(int count, char** words) {
    void *library = dlopen(count > 1 ? words[1] : "libcuda.so.1", RTLD_NOW | (count > 2 ? RTLD_DEEPBIND : 0)), *context;
    if (!library) { printf("no driver\n"); return 1; }
    F init = need(library, "cuInit"), retain = need(library, "cuDevicePrimaryCtxRetain"), set = need(library, "cuCtxSetCurrent");
    F get = need(library, "cuGetProcAddress_v2"), allocate = need(library, "cuMemAlloc_v2"), release = need(library, "cuMemFree_v2");
    F allocate_too = 0, release_too = 0, in_order = 0;
    P a = 0, b = 0, c = 0;
    int status;
    printf("init %d\n", init(0)); printf("retain %d\n", retain(&context, 0)); printf("set %d\n", set(context));
    printf("get %d\n", get("cuMemAlloc", &allocate_too, 12000, (P)0, &status));
    printf("get %d\n", get("cuMemFree", &release_too, 12000, (P)0, &status));
    printf("get %d\n", get("cuMemAllocAsync", &in_order, 12000, (P)2, &status));
    printf("same %d %d\n", allocate == allocate_too, release == release_too);
    printf("allocate %d\n", allocate(&a, (size_t)1 << 20)); printf("allocate %d\n", allocate_too(&b, (size_t)1 << 20));
    printf("in order %d\n", in_order(&c, (size_t)1 << 20, (void*)0)); printf("none %d\n", allocate(&c, (size_t)0));
    printf("huge %d\n", allocate(&c, (size_t)1 << 63)); printf("null %d\n", allocate((P*)0, (size_t)1));
    printf("free %d\n", release_too(a)); printf("free %d\n", release(b)); printf("twice %d\n", release(a));
    printf("inside %d\n", release(b + 16)); printf("foreign %d\n", release((P)0x1234));
    printf("no such %d\n", dlsym(library, "cuNoSuchThing") != 0);
    fflush(stdout);
    pid_t child = fork();
    if (!child) { printf("child %d\n", allocate(&a, (size_t)4096)); fflush(stdout); _exit(0); }
    waitpid(child, &status, 0);
    printf("child ended %d\n", WIFEXITED(status)); printf("after %d\n", allocate(&a, (size_t)100));
    return 0;
}

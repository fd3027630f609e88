// Mistakes of programs: wrong calls, and calls from forbidden places.
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void senseless_sizes(void) {
    static const size_t SIZES[] = {0, (size_t)1 << 62, (size_t)1 << 63, SIZE_MAX};
    Address at;
    void *host;
    start();
    for (int i = 0; i < 4; i++) {
        printf("%zu bytes\n", SIZES[i]);
        at = 77;
        DO(D.cuMemAlloc_v2(&at, SIZES[i]));
        DO(D.cuMemAllocAsync(&at, SIZES[i], NULL));
        DO(D.cuMemAllocManaged(&at, SIZES[i], 1));
        DO(D.cuMemHostAlloc(&host, SIZES[i], 0));
        printf("the place is untouched: %d\n", at == 77);
    }
    DO(D.cuMemAlloc_v2(&at, 4096));
    DO(D.cuMemFree_v2(at));
}

void wrong_frees(void) {
    Address small, large;
    int local = 0;
    start();
    MUST(D.cuMemAlloc_v2(&small, 4096));
    MUST(D.cuMemAlloc_v2(&large, 8 << 20));
    DO(D.cuMemFree_v2(0));
    DO(D.cuMemFree_v2((Address)(uintptr_t)&local));
    DO(D.cuMemFree_v2(12345));
    DO(D.cuMemFree_v2(small + 256));
    DO(D.cuMemFree_v2(large + (2 << 20)));
    DO(D.cuMemFree_v2(small));
    DO(D.cuMemFree_v2(small));
    DO(D.cuMemFree_v2(large));
    DO(D.cuMemFree_v2(large));
    DO(D.cuMemFreeHost(&local));
    DO(D.cuMemHostUnregister(&local));
    DO(D.cuMemAlloc_v2(&small, 4096));
    DO(D.cuMemFree_v2(small));
}

void wrong_async_frees(void) {
    Address at;
    Handle stream;
    int local = 0;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    MUST(D.cuMemAllocAsync(&at, 4096, stream));
    DO(D.cuMemFreeAsync(0, stream));
    DO(D.cuMemFreeAsync((Address)(uintptr_t)&local, stream));
    DO(D.cuMemFreeAsync(at + 256, stream));
    DO(D.cuMemFreeAsync(at, stream));
    DO(D.cuMemFreeAsync(at, stream));
    DO(D.cuStreamSynchronize(stream));
    DO(D.cuMemFreeAsync(at, stream));
    DO(D.cuMemFree_v2(at));
    DO(D.cuStreamSynchronize(stream));
}

void spoiled_captures(void) {
    Handle stream, graph = NULL;
    Address at, kept;
    unsigned status = 7;
    start();
    MUST(D.cuStreamCreate(&stream, 1));
    MUST(D.cuMemAlloc_v2(&kept, 8 << 20));
    for (unsigned mode = 0; mode < 3; mode++) {
        printf("mode %u\n", mode);
        DO(D.cuStreamBeginCapture_v2(stream, mode));
        at = 0;
        DO(D.cuMemAlloc_v2(&at, 8 << 20));
        DO(D.cuStreamIsCapturing(stream, &status));
        printf("status %u\n", status);
        DO(D.cuStreamEndCapture(stream, &graph));
        if (graph) MUST(D.cuGraphDestroy(graph));
        if (at) DO(D.cuMemFree_v2(at));
    }
    DO(D.cuStreamBeginCapture_v2(stream, 0));
    DO(D.cuMemFree_v2(kept));
    DO(D.cuStreamEndCapture(stream, &graph));
    DO(D.cuMemFree_v2(kept));
}

static Address from_callback;
static Result callback_codes[3];

static void call(void *data) {
    (void)data;
    callback_codes[0] = D.cuMemAlloc_v2(&from_callback, 8 << 20);
    callback_codes[1] = D.cuMemFree_v2(from_callback);
    callback_codes[2] = D.cuMemAllocAsync(&from_callback, 4096, NULL);
}

void in_callback(void) {
    start();
    DO(D.cuLaunchHostFunc(NULL, call, NULL));
    DO(D.cuCtxSynchronize());
    say("cuMemAlloc in a callback", callback_codes[0]);
    say("cuMemFree in a callback", callback_codes[1]);
    say("cuMemAllocAsync in a callback", callback_codes[2]);
}

static Address kept_for_exit;

static void late(void) {
    Address at;
    DO(D.cuMemAlloc_v2(&at, 3 << 20));
    DO(D.cuMemFree_v2(kept_for_exit));
}

void at_exit(void) {
    // The one that is registered later runs first: while the driver is there, and when it is gone.
    atexit(late);
    start();
    DO(D.cuMemAlloc_v2(&kept_for_exit, 3 << 20));
    atexit(late);
}

static void handler(int signal) {
    Address at = 0;
    (void)signal;
    DO(D.cuMemAlloc_v2(&at, 3 << 20));
    DO(D.cuMemFree_v2(at));
}

void in_signal(void) {
    Address at;
    start();
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    DO(D.cuMemAlloc_v2(&at, 4096));
    raise(SIGUSR1);
    DO(D.cuMemFree_v2(at));
}

void forked(void) {
    Address at, other;
    int status = -1;
    start();
    MUST(D.cuMemAlloc_v2(&at, 3 << 20));
    MUST(D.cuMemsetD32_v2(at, 5, 1024));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        DO(D.cuMemAlloc_v2(&other, 4096));
        DO(D.cuMemFree_v2(at));
        DO(D.cuInit(0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("the child ended: %d\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    look("untouched", at, 5, 1024);
    DO(D.cuMemAlloc_v2(&other, 3 << 20));
    DO(D.cuMemFree_v2(other));
    DO(D.cuMemFree_v2(at));
    // A child that becomes another program has a driver of its own.
    child = fork();
    if (child == 0) execl("/bin/true", "true", (char *)NULL);
    waitpid(child, &status, 0);
    printf("the child ended: %d\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The other process of `shared`: opens the memory, looks at it and writes it.
static void opener(int from, int to) {
    IpcHandle handle;
    Address at = 0;
    if (read(from, &handle, sizeof handle) != sizeof handle) _exit(1);
    start();
    DO(D.cuIpcOpenMemHandle_v2(&at, handle, 1));
    if (!at) _exit(1);
    look("of the other process", at, 41, 1 << 18);
    fill(at, 42, 1 << 18, NULL);
    DO(D.cuCtxSynchronize());
    DO(D.cuIpcCloseMemHandle(at));
    DO(D.cuMemFree_v2(at));
    fflush(stdout);
    if (write(to, "x", 1) != 1) _exit(1);
    _exit(0);
}

void shared(void) {
    int there[2], back[2], status = -1;
    char word;
    IpcHandle handle;
    Address at, none;
    if (pipe(there) || pipe(back)) return;
    // Before the driver is started here: it cannot be used on the other side of a fork.
    pid_t child = fork();
    if (child == 0) opener(there[0], back[1]);
    close(back[1]);
    start();
    DO(D.cuMemAlloc_v2(&at, 4 << 20));
    fill(at, 41, 1 << 20, NULL);
    DO(D.cuCtxSynchronize());
    DO(D.cuIpcGetMemHandle(&handle, at));
    DO(D.cuIpcOpenMemHandle_v2(&none, handle, 1));
    fflush(stdout);
    if (write(there[1], &handle, sizeof handle) != sizeof handle) return;
    if (read(back[0], &word, 1) != 1) return;
    waitpid(child, &status, 0);
    printf("the other process ended: %d\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    look("written by it", at, 42, 1 << 18);
    look("and left alone", at + (2 << 20), 41, 1 << 18);
    DO(D.cuMemFree_v2(at));
}

// A library that is linked to the driver, and opened so that its own dependencies come first.
void deep(void) {
    start();
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_DEEPBIND);
    if (!plugin) {
        printf("no plugin\n");
        return;
    }
    Result (*take)(Address *, size_t) = (Result(*)(Address *, size_t))dlsym(plugin, "plugin_take");
    Result (*give)(Address) = (Result(*)(Address))dlsym(plugin, "plugin_give");
    Address at, own;
    DO(take(&at, 3 << 20));
    DO(D.cuMemAlloc_v2(&own, 3 << 20));
    MUST(D.cuMemsetD32_v2(at, 51, 1024));
    look("of the plugin", at, 51, 1024);
    DO(D.cuMemFree_v2(at));
    DO(take(&at, 4096));
    DO(give(at));
    DO(D.cuMemFree_v2(own));
}

void hidden(void) {
    int count = -1;
    Address at;
    Handle context;
    DO(D.cuInit(0));
    DO(D.cuDeviceGetCount(&count));
    DO(D.cuDevicePrimaryCtxRetain(&context, 0));
    DO(D.cuMemAlloc_v2(&at, 4096));
    DO(D.cuMemFree_v2(4096));
}

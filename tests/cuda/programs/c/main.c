// One program for every case; the first argument says the door to the driver, the second the case.
//
// Doors: `linked` (only in the program that is linked to libcuda.so.1), `soname` and `name` (dlopen of libcuda.so.1 and of
// libcuda.so, and dlsym), `proc` (cuGetProcAddress_v2 from dlsym, as static cudart does it), `thread` (the same, with the
// functions for which zero is the stream of the calling thread).
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Every case.
#define CASES(X) \
    X(names) X(drivers) X(sizes) X(ranges) X(pitch) X(info) X(managed) X(pinned) X(registered) X(async) X(pools) X(pages) X(contexts) \
    X(reset) X(released) X(order) X(events) X(host_functions) X(dying_streams) X(threads) X(churn) X(captures) \
    X(captured_memory) X(spoiled_captures) X(senseless_sizes) X(wrong_frees) X(wrong_async_frees) X(in_callback) \
    X(at_exit) X(in_signal) X(forked) X(shared) X(deep) X(hidden)

// Misuses that the stand-in must report. They run only if named.
#define MISUSES(X) \
    X(use_after_free) X(use_before_allocation) X(free_under_work) X(use_without_access) X(unmap_under_work) \
    X(use_beyond_the_end)

#define DECLARE_CASE(name) void name(void);
CASES(DECLARE_CASE)
MISUSES(DECLARE_CASE)

Driver D;
Handle fill_kernel, spin_kernel;

#ifdef LINKED
#define DECLARE(symbol, name, version, arguments) extern Result symbol arguments;
FUNCTIONS(DECLARE)

static int by_link(void) {
#define TAKE(symbol, name, version, arguments) D.symbol = symbol;
    FUNCTIONS(TAKE)
    return 0;
}
#endif

static int by_name(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) {
        printf("there is no driver\n");
        return 1;
    }
#define FIND(symbol, name, version, arguments) \
    *(void **)&D.symbol = dlsym(handle, #symbol); \
    if (!D.symbol) { \
        printf("no %s\n", #symbol); \
        return 1; \
    }
    FUNCTIONS(FIND)
    return 0;
}

typedef Result (*GetProcAddress)(const char *, void **, int, uint64_t, int *);

static int by_proc(uint64_t flags) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) {
        printf("there is no driver\n");
        return 1;
    }
    GetProcAddress get = (GetProcAddress)dlsym(handle, "cuGetProcAddress_v2");
    // The function is asked for itself too, as run-time libraries do.
    void *again = NULL;
    int status = -1;
    if (!get || get("cuGetProcAddress", &again, 12000, flags, &status) != 0 || !again || status != 0) {
        printf("no cuGetProcAddress\n");
        return 1;
    }
    get = (GetProcAddress)again;
    // Variants for the thread's own stream are of CUDA 7.
    int least = flags ? 7000 : 0;
#define ASK(symbol, name, version, arguments) \
    if (get(name, (void **)&D.symbol, version < least ? least : version, flags, &status) != 0 || !D.symbol || status != 0) { \
        printf("no %s of %d\n", name, version); \
        return 1; \
    }
    FUNCTIONS(ASK)
    return 0;
}

// Asks for one name, and prints what came back.
static void ask(GetProcAddress get, const char *name, int version, uint64_t flags) {
    void *function = &function;
    int status = -1;
    Result code = get(name, &function, version, flags, &status);
    printf("%s of %d: code %d, status %d, a function: %d\n", name, version, code, status, function != NULL);
}

void names(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW), *again = NULL;
    GetProcAddress get = handle ? (GetProcAddress)dlsym(handle, "cuGetProcAddress_v2") : NULL;
    if (!get) return;
    for (int round = 0; round < 2; round++) {
        ask(get, "cuMemAlloc", 12000, 0);
        ask(get, "cuMemAlloc", 1000, 0);
        ask(get, "cuMemAlloc_v2", 12000, 0);
        ask(get, "cuMemAllocAsync", 11020, 2);
        ask(get, "cuMemAllocAsync", 11010, 0);
        ask(get, "cuMemAllocAsync", 12000, 7);
        ask(get, "cuNoSuchFunction", 12000, 0);
        // Again through the function that was found by its own name.
        MUST(get("cuGetProcAddress", &again, 12000, 0, NULL));
        get = (GetProcAddress)again;
    }
}

void say(const char *call, Result code) {
    const char *name = "a code without a name";
    D.cuGetErrorName(code, &name);
    printf("%s: %s\n", strncmp(call, "D.", 2) ? call : call + 2, name ? name : "a code without a name");
    fflush(stdout);
}

void must(const char *call, Result code) {
    if (code) say(call, code);
}

static const char IMAGE[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry standin_fill(.param .u64 to, .param .u32 value, .param .u64 count)\n{\n"
    ".reg .u64 %to, %count, %at;\n.reg .u32 %value, %group, %size, %thread;\n.reg .pred %out;\n"
    "ld.param.u64 %to, [to];\nld.param.u32 %value, [value];\nld.param.u64 %count, [count];\n"
    "mov.u32 %group, %ctaid.x;\nmov.u32 %size, %ntid.x;\nmov.u32 %thread, %tid.x;\n"
    "mad.lo.u32 %thread, %group, %size, %thread;\ncvt.u64.u32 %at, %thread;\n"
    "setp.ge.u64 %out, %at, %count;\n@%out bra done;\n"
    "shl.b64 %at, %at, 2;\nadd.u64 %to, %to, %at;\nst.global.u32 [%to], %value;\ndone:\nret;\n}\n"
    ".visible .entry standin_spin(.param .u64 time)\n{\n"
    ".reg .u64 %time, %start, %now;\n.reg .pred %more;\n"
    "ld.param.u64 %time, [time];\nmov.u64 %start, %globaltimer;\nagain:\nmov.u64 %now, %globaltimer;\n"
    "sub.u64 %now, %now, %start;\nsetp.lt.u64 %more, %now, %time;\n@%more bra again;\nret;\n}\n";

Handle start(void) {
    Device device;
    Handle context, module;
    MUST(D.cuInit(0));
    MUST(D.cuDeviceGet(&device, 0));
    MUST(D.cuDevicePrimaryCtxRetain(&context, device));
    MUST(D.cuCtxSetCurrent(context));
    MUST(D.cuModuleLoadData(&module, IMAGE));
    MUST(D.cuModuleGetFunction(&fill_kernel, module, "standin_fill"));
    MUST(D.cuModuleGetFunction(&spin_kernel, module, "standin_spin"));
    return context;
}

void fill(Address to, unsigned value, unsigned long long count, Handle stream) {
    void *arguments[] = {&to, &value, &count};
    MUST(D.cuLaunchKernel(fill_kernel, (unsigned)((count + 255) / 256), 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
}

void spin(unsigned long long nanoseconds, Handle stream) {
    void *arguments[] = {&nanoseconds};
    MUST(D.cuLaunchKernel(spin_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

void look(const char *what, Address from, unsigned value, size_t count) {
    unsigned *words = calloc(count, 4);
    MUST(D.cuMemcpyDtoH_v2(words, from, 4 * count));
    size_t right = 0;
    while (right < count && words[right] == value) right++;
    if (right == count)
        printf("%s: as it should be\n", what);
    else
        printf("%s: word %zu of %zu is %#x and not %#x\n", what, right, count, words[right], value);
    free(words);
}

static const struct {
    const char *name;
    void (*run)(void);
} ALL[] = {
#define ENTRY(name) {#name, name},
    CASES(ENTRY) MISUSES(ENTRY)};

// Number of listed cases.
#define ONE(name) +1
enum { LISTED = CASES(ONE) };

static int enter(const char *door) {
#ifdef LINKED
    if (!strcmp(door, "linked")) return by_link();
#endif
    if (!strcmp(door, "soname")) return by_name("libcuda.so.1");
    if (!strcmp(door, "name")) return by_name("libcuda.so");
    if (!strcmp(door, "proc")) return by_proc(0);
    if (!strcmp(door, "thread")) return by_proc(2);
    printf("no door of this name\n");
    return 1;
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "list")) {
        for (size_t i = 0; i < LISTED; i++) printf("%s\n", ALL[i].name);
        return 0;
    }
    if (count < 3) return 2;
    if (enter(arguments[1])) return 0;
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        if (strcmp(arguments[2], ALL[i].name)) continue;
        ALL[i].run();
        fflush(stdout);
        return 0;
    }
    printf("no case of this name\n");
    return 2;
}

/* Looks for the driver among the loaded libraries, although it is not loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void* found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    printf("found %d, said %d\n", found != 0, dlerror() != 0);
    return 0;
}

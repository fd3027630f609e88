// A library that is linked to the driver.
#include "driver.h"

extern Result cuMemAlloc_v2(Address *, size_t);
extern Result cuMemFree_v2(Address);

Result plugin_take(Address *out, size_t size) {
    return cuMemAlloc_v2(out, size);
}

Result plugin_give(Address address) {
    return cuMemFree_v2(address);
}

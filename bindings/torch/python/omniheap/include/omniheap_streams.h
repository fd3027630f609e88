/* omniheap for programs that hand over their streams: the functions of libomniheap_torch that need no PyTorch.
 *
 * Call omniheap_torch_configure first. Devices have the driver's numbers; streams are CUstream, cudaStream_t or hipStream_t, null for the
 * default one. With the backend "host", devices are host memory and streams any numbers: for tests. Every function may be called from any
 * thread. Functions that return an int return 0, or -1 on failure; omniheap_torch_error() says what to do about the thread's last failure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets how devices are opened: backend "cuda", "hip" or "host"; the most bytes to hold of each device, 0 for no limit; non-zero `paged` for
 * memory in pages. Call it before the first allocation. A second call with the same settings changes nothing. */
int omniheap_torch_configure(const char *backend, uint64_t limit, int paged);

/* Returns the text of the thread's last failure, good until its next call. */
const char *omniheap_torch_error(void);

/* Returns 1 if memory was short for the thread's last allocation that failed; 0 if something else was wrong. */
int omniheap_torch_is_shortage(void);

/* Allocates in the order of a stream, which lives; null on failure and for no bytes. Addresses are multiples of 512. */
void *omniheap_stream_alloc(void *stream, size_t size, int device);

/* Frees once a stream has passed. Another stream may have allocated the bytes. Null does nothing; -1 for an address that is not live. */
int omniheap_stream_free(void *stream, void *pointer, int device);

/* Allocates bytes that are out of use on every stream; null on failure and for no bytes. */
void *omniheap_unordered_alloc(size_t size, int device);

/* Frees bytes on any device. Bytes of omniheap_unordered_alloc are free once all streams have passed. */
int omniheap_unordered_free(void *pointer);

/* Gives everything empty back to the driver, on every device. */
void omniheap_torch_reset(void);

#ifdef __cplusplus
}
#endif

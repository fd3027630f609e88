"""RMM on omniheap: a memory resource whose memory is omniheap's, for cuDF and everything else that allocates through RMM.

    import omniheap.rmm
    omniheap.rmm.enable()                    # before the first allocation

C++ programs have `include/omniheap_rmm.hpp` in this package.
"""

from . import _library
from ._library import OmniheapError, empty_cache, explain_oom, report, set_limit, stats, trace

__all__ = ["OmniheapError", "empty_cache", "enable", "explain_oom", "report", "resource", "set_limit", "stats", "trace"]


def resource(device=0, limit=None, paged=True):
    """Returns a resource for one device; the other arguments are those of `omniheap.torch.enable`."""
    rmm = _import()
    _library.join("cuda", limit, paged)

    def allocate(size, stream):
        return _library.allocate(size, device, _handle(stream))

    def deallocate(pointer, size, stream):
        # RMM calls this where nothing may be raised: the process would end. As in C++, an address that is not live is left alone.
        _library.load().omniheap_stream_free(_handle(stream), pointer, device)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def enable(limit=None, paged=True):
    """Makes RMM allocate through omniheap on every device; the arguments are those of `omniheap.torch.enable`.

    Allocations that live keep the resource that they came from.
    """
    rmm = _import()
    from cuda.bindings import runtime

    code, count = runtime.cudaGetDeviceCount()
    if int(code) or not count:
        raise OmniheapError("RMM sees no GPU here; run on a machine that has one, and check its driver with nvidia-smi")
    for device in range(count):
        rmm.mr.set_per_device_resource(device, resource(device, limit, paged))


def _handle(stream):
    """The number of a stream, by the protocol that RMM's streams have."""
    return stream.__cuda_stream__()[1]


def _import():
    try:
        import rmm
    except ImportError as error:
        raise OmniheapError(f"RMM cannot be imported ({error}); install rmm-cu13 or rmm-cu12, 26.06 or newer") from None
    if not hasattr(rmm.mr, "CallbackMemoryResource"):
        raise OmniheapError(f"RMM {rmm.__version__} has no CallbackMemoryResource; install 26.06 or newer")
    return rmm

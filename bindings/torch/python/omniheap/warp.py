"""Warp on omniheap: its arrays on CUDA devices are omniheap's memory.

    import omniheap.warp
    omniheap.warp.enable()
"""

from . import _library
from ._library import OmniheapError, empty_cache, explain_oom, report, set_limit, stats, trace

__all__ = ["Allocator", "OmniheapError", "empty_cache", "enable", "explain_oom", "report", "set_limit", "stats", "trace"]


class Allocator:
    """Warp's allocator protocol for one device, in the order of the device's current stream."""

    def __init__(self, device):
        self._device = device

    def allocate(self, size_in_bytes):
        """Returns the address of new bytes; 0 for none."""
        return _library.allocate(size_in_bytes, self._device.ordinal, self._stream())

    def deallocate(self, ptr, size_in_bytes):
        """Frees once the current stream has passed."""
        _library.free(ptr, self._device.ordinal, self._stream())

    def _stream(self):
        return self._device.stream.cuda_stream or 0


def enable(limit=None, paged=True):
    """Makes Warp allocate arrays on all CUDA devices through omniheap; the arguments are those of `omniheap.torch.enable`.

    For one device, or for a while: `warp.ScopedAllocator(device, omniheap.warp.Allocator(warp.get_device(device)))` after this call.
    """
    warp = _import()
    devices = warp.get_cuda_devices()
    if not devices:
        raise OmniheapError("Warp sees no GPU here; run on a machine that has one, and check its driver with nvidia-smi")
    _library.join("cuda", limit, paged)
    for device in devices:
        warp.set_device_allocator(device, Allocator(device))


def _import():
    try:
        import warp
    except ImportError as error:
        raise OmniheapError(f"Warp cannot be imported ({error}); install it with `pip install warp-lang`") from None
    if not hasattr(warp, "set_device_allocator"):
        raise OmniheapError(f"Warp {warp.__version__} takes no allocator; install 1.13 or newer")
    return warp

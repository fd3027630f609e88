"""CuPy on omniheap, with the same manager as PyTorch where both are enabled.

    import omniheap.cupy
    omniheap.cupy.enable()
"""

import functools

from . import _library
from ._library import OmniheapError, empty_cache, explain_oom, report, set_limit, stats, trace

__all__ = ["OmniheapError", "empty_cache", "enable", "explain_oom", "is_enabled", "report", "set_limit", "stats", "trace"]

_UNIT = 512
_allocators = None


def is_enabled():
    """Returns True if CuPy allocates through omniheap in this process."""
    return _allocators is not None


def enable(limit=None, paged=True):
    """Makes CuPy allocate through omniheap; the arguments are those of `omniheap.torch.enable`.

    Leave the arguments out if PyTorch was enabled first: its settings hold.
    """
    global _allocators
    cupy = _import()
    _library.join("hip" if cupy.cuda.runtime.is_hip else "cuda", limit, paged)
    if _allocators is None:
        _announce_captures(cupy)
    _allocators = {}
    cupy.cuda.set_allocator(_allocate)


def _allocate(size):
    """Allocates in the order of CuPy's current stream: one C allocator for each stream."""
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    allocator = _allocators.get(stream)
    if allocator is None:
        alloc, free = _library.address("omniheap_stream_alloc"), _library.address("omniheap_stream_free")
        allocator = _allocators[stream] = cupy.cuda.CFunctionAllocator(stream, alloc, free, _library.load())
    # CuPy's own pool hands out whole units, and programs may fill them.
    memory = allocator.malloc(-(-size // _UNIT) * _UNIT)
    if size and not memory.ptr:
        _library.fail()
    return memory


def _announce_captures(cupy):
    """Has streams say when they are captured: what omniheap does to follow streams would spoil a capture that it does not know of."""
    stream, library = cupy.cuda.stream._BaseStream, _library.load()
    # By stream: a program may choose another device before a capture ends.
    began = {}
    begin, end = stream.begin_capture, stream.end_capture

    @functools.wraps(begin)
    def begin_capture(self, mode=None):
        began[self.ptr] = device = cupy.cuda.runtime.getDevice()
        library.omniheap_stream_begin_capture(device, self.ptr)
        try:
            return begin(self, mode)
        except BaseException:
            ends(self)
            raise

    @functools.wraps(end)
    def end_capture(self):
        try:
            return end(self)
        finally:
            ends(self)

    def ends(self):
        device = began.pop(self.ptr, None)
        library.omniheap_stream_end_capture(cupy.cuda.runtime.getDevice() if device is None else device, self.ptr)

    stream.begin_capture, stream.end_capture = begin_capture, end_capture


def _import():
    try:
        import cupy
    except ImportError as error:
        raise OmniheapError(f"CuPy cannot be imported ({error}); install it, or use omniheap.torch") from None
    if not hasattr(cupy.cuda, "CFunctionAllocator"):
        raise OmniheapError(f"CuPy {cupy.__version__} takes no allocator functions; install another version, such as 14")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if not count:
        raise OmniheapError("CuPy sees no GPU here; run on a machine that has one, and check its driver with nvidia-smi or rocminfo")
    return cupy

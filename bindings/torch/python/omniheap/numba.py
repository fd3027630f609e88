"""Numba on omniheap: its device arrays are omniheap's memory.

    NUMBA_CUDA_MEMORY_MANAGER=omniheap.numba python program.py

`omniheap.numba.enable()` does the same with settings, before anything touches the GPU.
"""

import ctypes
import weakref

from . import _library
from ._library import OmniheapError, empty_cache, explain_oom, report, set_limit, stats, trace

try:
    from numba import cuda as _cuda
    from numba.cuda.cudadrv import driver as _driver
except ImportError as error:
    raise OmniheapError(f"Numba cannot be imported ({error}); install it with `pip install numba-cuda`") from None

__all__ = ["MemoryManager", "OmniheapError", "empty_cache", "enable", "explain_oom", "report", "set_limit", "stats", "trace"]

# CUDA_ERROR_OUT_OF_MEMORY
_SHORTAGE = 2


def enable(limit=None, paged=True):
    """Makes Numba allocate through omniheap; the arguments are those of `omniheap.torch.enable`.

    With paged=False, arrays can be shared by CUDA IPC.
    """
    _library.join("cuda", limit, paged)
    _cuda.set_memory_manager(MemoryManager)


class MemoryManager(_cuda.GetIpcHandleMixin, _cuda.HostOnlyCUDAMemoryManager):
    """Numba's plug-in for one context. Pinned and managed memory stay with Numba.

    Numba names no stream, so the bytes of an array that is gone wait for all of them; no free waits.
    """

    interface_version = 1

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Addresses by array. After a reset, the same address may belong to another array.
        self._live = {}

    def initialize(self):
        _library.join("cuda")

    def memalloc(self, size):
        try:
            address = _library.allocate(size, self.context.device.id)
        except MemoryError as error:
            raise _driver.CudaAPIError(_SHORTAGE, str(error)) from None
        array = object()
        self._live[array] = address
        return _cuda.MemoryPointer(weakref.proxy(self.context), ctypes.c_void_p(address), size, finalizer=lambda live=self._live: _free(live, array))

    def get_memory_info(self):
        free, total = _driver.driver.cuMemGetInfo()
        return _cuda.MemoryInfo(free=free + _library.stats(self.context.device.id)["free_bytes"], total=total)

    def get_ipc_handle(self, memory):
        if _library.stats(self.context.device.id)["paged"]:
            raise OmniheapError("arrays in pages cannot be shared by CUDA IPC; call omniheap.numba.enable(paged=False) before anything touches the GPU")
        return super().get_ipc_handle(memory)

    def reset(self):
        for array in list(self._live):
            _free(self._live, array)
        super().reset()


def _free(live, array):
    """Frees an array once: when it is collected, or at a reset."""
    address = live.pop(array, None)
    if address:
        _library.load().omniheap_unordered_free(address)


_numba_memory_manager = MemoryManager

"""`torch.cuda.MemPool` and captures where omniheap is PyTorch's allocator: PyTorch's own class refuses every allocator but its own."""

import contextlib
import functools
import warnings
import weakref

from ._library import OmniheapError, check, load


def install(torch):
    """Puts our class where programs look for PyTorch's. `torch.cuda.use_mem_pool` takes it as it is."""

    class MemPool:
        """Memory of its own for what is allocated inside `torch.cuda.use_mem_pool`, kept as long as the pool or something in it lives."""

        def __init__(self, allocator=None, use_on_oom=False, no_split=False):
            if allocator is not None:
                raise OmniheapError(
                    "PyTorch allocates through omniheap, and a pool with another allocator needs PyTorch's own; "
                    "leave the argument out, or use omniheap.torch.pool() instead of omniheap.torch.enable()"
                )
            if use_on_oom:
                warnings.warn("use_on_oom has no effect while PyTorch allocates through omniheap: memory of a pool stays with the pool")
            self._place = (torch.cuda.current_device(), torch.cuda.graph_pool_handle())
            device, name = self._place
            check(load().omniheap_torch_hold_pool(device, *name, int(no_split)))
            weakref.finalize(self, torch._C._cuda_releasePool, device, name).atexit = False

        @property
        def id(self):
            """The name of the pool: two numbers."""
            return self._place[1]

        @property
        def allocator(self):
            """None: the pool has no allocator of its own."""

        def use_count(self):
            """Number of holders of the pool: this object, contexts that are open, and graphs."""
            device, name = self._place
            return load().omniheap_torch_pool_users(device, *name)

        def snapshot(self, include_traces=True):
            """The segments of the pool."""
            return torch.cuda.memory_snapshot(self.id, include_traces=include_traces)

    torch.cuda.MemPool = torch.cuda.memory.MemPool = MemPool
    _keep_checkpoints(torch)
    _end_failed_captures(torch)


def _end_failed_captures(torch):
    """Has the library hear of captures that fail: PyTorch does not end them, and memory that other streams used would wait for that end."""
    graphs = torch.cuda.CUDAGraph
    begin, end = graphs.capture_begin, graphs.capture_end

    @contextlib.contextmanager
    def watched(graph):
        try:
            yield
        except BaseException:
            # A capture goes on where somebody tried to end it on another stream than its own.
            with torch.cuda.stream(graph._omniheap_stream):
                if not torch.cuda.is_current_stream_capturing():
                    load().omniheap_torch_capture_failed(torch.cuda.current_device())
            raise

    @functools.wraps(begin)
    def capture_begin(self, *arguments, **more):
        self._omniheap_stream = torch.cuda.current_stream()
        with watched(self):
            begin(self, *arguments, **more)

    @functools.wraps(end)
    def capture_end(self):
        with watched(self):
            end(self)

    graphs.capture_begin, graphs.capture_end = capture_begin, capture_end


class _Checkpoint:
    """Allocations that lived in a pool of graphs, for `torch._C._cuda_setCheckpointPoolState`."""

    def __init__(self, device, pool):
        lib = load()
        self.number = lib.omniheap_torch_checkpoint(device, *pool)
        if self.number < 0:
            raise OmniheapError(lib.omniheap_torch_error().decode())
        weakref.finalize(self, lib.omniheap_torch_forget_checkpoint, self.number).atexit = False


def _keep_checkpoints(torch):
    """Trees of graphs go back to what lived in their pool. PyTorch's function still gives the bytes to tensors, but not the state."""
    restore = torch._C._cuda_setCheckpointPoolState

    @functools.wraps(restore)
    def set_checkpoint(device, state, stale, live=()):
        check(load().omniheap_torch_choose_checkpoint(state.number))
        restore(device, None, stale, list(live))

    torch._C._cuda_getCheckpointState = _Checkpoint
    torch._C._cuda_setCheckpointPoolState = set_checkpoint

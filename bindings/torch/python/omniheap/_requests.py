"""Records the requests to PyTorch's allocator while a step runs on a GPU, from PyTorch's own memory history.

There are no labels, but kernels' workspaces are included, and the step runs at full speed.
"""

import gc
import time

from ._library import OmniheapError


class Requests:
    """Writes requests as a trace."""

    def __init__(self, writer):
        self._writer, self._live, self._streams = writer, {}, {}
        self.allocations = self.live_bytes = self.peak_live_bytes = 0

    def write(self, entries, last):
        """Writes the entries of a history in order. `last`: when the last step began, in microseconds. Frees of memory that is older than the history are
        skipped."""
        before = 0
        for number, entry in enumerate(entries):
            if before < last <= entry["time_us"]:
                self._writer.begin_step()
            before = entry["time_us"]
            if entry["action"] == "alloc":
                self._allocate(number, entry)
            elif entry["action"] == "free_completed" and entry["addr"] in self._live:
                allocation, size = self._live.pop(entry["addr"])
                self._writer.free(number, allocation)
                self.live_bytes -= size

    def _allocate(self, number, entry):
        stream = self._streams.setdefault(entry["stream"], len(self._streams))
        self._live[entry["addr"]] = self._writer.allocate(number, entry["size"], (), stream), entry["size"]
        self.allocations += 1
        self.live_bytes += entry["size"]
        self.peak_live_bytes = max(self.peak_live_bytes, self.live_bytes)


def collect(step):
    """Collects cycles that died in a step, in young generations only: a full collection is slow."""
    gc.collect(min(step, 2))


def run(torch, step, requests, device, steps):
    """Runs the step and writes its requests; returns the bytes by which the last call left more behind than the one before."""
    if device.type != "cuda":
        raise OmniheapError(f"labels=False is about the allocator of a GPU, and the device is {device}; leave it out")
    if torch._C._cuda_isHistoryEnabled():
        raise OmniheapError("a history of memory is being recorded; end it with torch.cuda.memory._record_memory_history(None)")
    torch.cuda.init()
    memory = torch.cuda.memory
    # So that each trace includes the workspaces that cuBLAS allocates once and keeps.
    torch._C._cuda_clearCublasWorkspaces()
    memory._record_memory_history("all", context=None, stacks="python", clear_history=True)
    try:
        made, left, began = step(), [], 0
        for number in range(steps if callable(made) else 0):
            began = time.time_ns() // 1000
            made()
            collect(number)
            left.append(torch.cuda.memory_allocated(device))
        requests.write(memory._snapshot(device)["device_traces"][device.index], began)
    finally:
        memory._record_memory_history(None)
    return max(0, left[-1] - left[-2]) if len(left) > 1 else 0

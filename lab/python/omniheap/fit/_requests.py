"""Records the requests to PyTorch's allocator while a step runs on a GPU, from PyTorch's own memory history.

There are no labels, but kernels' workspaces are included, and the step runs at full speed.
"""

import contextlib
import time

from .._library import OmniheapError
from ._steps import call


class Requests:
    """Writes requests as a trace. `is_regular`: whether the second of two steps asked for what the first did, without what that left."""

    def __init__(self, writer):
        self._writer, self._live, self._streams, self._asked = writer, {}, {}, {}
        self.allocations = self.live_bytes = self.peak_live_bytes = 0
        self.is_regular = False

    def write(self, entries, began, is_regular=False):
        """Writes the entries of a history in order. Frees of memory that is older than the history are skipped.

        began: when each step began, in microseconds.
        is_regular: after the only step, writes the second one, as regular steps have it.
        """
        # Requests of each step: the allocation, and whether it is born.
        steps, running = [[] for _ in began], -1
        for number, entry in enumerate(entries):
            while running + 1 < len(began) and began[running + 1] <= entry["time_us"]:
                running += 1
                if running:
                    self._writer.begin_step()
            request = self._write(number, entry)
            if request is not None and running >= 0:
                steps[running].append(request)
        if is_regular and len(steps) == 1:
            self._again(len(entries), steps[0])
        self.is_regular = len(steps) == 2 and self._pattern(_passing(steps[0])) == self._pattern(steps[1])

    def _write(self, number, entry):
        if entry["action"] == "alloc":
            stream = self._streams.setdefault(entry["stream"], len(self._streams))
            allocation = self._allocate(number, entry["size"], stream)
            self._live[entry["addr"]] = allocation
            return allocation, True
        if entry["action"] == "free_completed" and entry["addr"] in self._live:
            return self._free(number, self._live.pop(entry["addr"])), False
        return None

    def _again(self, number, step):
        self._writer.begin_step()
        made = {}
        for allocation, is_born in _passing(step):
            if is_born:
                made[allocation] = self._allocate(number, *self._asked[allocation])
            elif allocation in made:
                self._free(number, made[allocation])

    def _allocate(self, number, size, stream):
        allocation = self._writer.allocate(number, size, (), stream)
        self._asked[allocation] = size, stream
        self.allocations += 1
        self.live_bytes += size
        self.peak_live_bytes = max(self.peak_live_bytes, self.live_bytes)
        return allocation

    def _free(self, number, allocation):
        self._writer.free(number, allocation)
        self.live_bytes -= self._asked[allocation][0]
        return allocation

    def _pattern(self, step):
        """Returns what steps that ask for the same have in common: sizes and streams, and which of its births a free is about."""
        births = {}
        return [self._asked[each] if is_born and births.setdefault(each, len(births)) >= 0 else births.get(each) for each, is_born in step]


def _passing(step):
    """A step without what it leaves: an optimizer's state, workspaces of libraries."""
    freed = {allocation for allocation, is_born in step if not is_born}
    return [(allocation, is_born) for allocation, is_born in step if allocation in freed]


@contextlib.contextmanager
def history(torch):
    """Has PyTorch record a history of its memory; returns a function of a device that reads it."""
    if torch._C._cuda_isHistoryEnabled():
        raise OmniheapError("a history of memory is being recorded; end it with torch.cuda.memory._record_memory_history(None)")
    memory = torch.cuda.memory
    memory._record_memory_history("all", context=None, stacks="python", clear_history=True)
    try:
        yield lambda device: memory._snapshot(device)["device_traces"][device.index or 0]
    finally:
        memory._record_memory_history(None)


def run(torch, step, requests, device, steps, is_regular):
    """Runs the step and writes its requests; returns the bytes by which the last call left more behind than the one before."""
    if device.type != "cuda":
        raise OmniheapError(f"labels=False is about the allocator of a GPU, and the device is {device}; leave it out")
    torch.cuda.init()
    # So that each trace includes the workspaces that cuBLAS allocates once and keeps.
    torch._C._cuda_clearCublasWorkspaces()
    began = []
    with history(torch) as read:
        # The step keeps the model until the history is read.
        made = step()
        leaked = call(made, steps, lambda _: began.append(time.time_ns() // 1000), lambda: torch.cuda.memory_allocated(device))
        requests.write(read(device), began, is_regular)
    return leaked

"""PyTorch's memory snapshots and its history of allocations, from omniheap: its own functions refuse with any allocator but its own.

`torch.cuda.memory._snapshot()`, `_dump_snapshot()`, `memory_snapshot()`, `_record_memory_history()` and their kin ask a few functions of
`torch._C`; `install` puts ours there. What they return has PyTorch's format, so that its viewers read it.
"""

import atexit
import collections
import ctypes
import json
import threading
import time

from . import _library

_ALLOCATED, _FREED, _OUT_OF_MEMORY, _TRIMMED = range(4)


class _Event(ctypes.Structure):
    """Something that happened, as the library tells it."""

    _fields_ = [
        ("happened", ctypes.c_int32),
        ("device", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
    ]


_WATCHER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Event))


class History:
    """Records the allocations of this process."""

    def __init__(self, torch):
        self._torch, self._observers, self._metadata = torch, [], threading.local()
        self._watcher = _WATCHER(lambda event: self._add(event.contents))
        # Never freed, not even when the interpreter ends: another thread may be on its way into it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._watcher))
        self._enabled = self._context = self._trace = None
        self._cpp, self._skip = False, ()
        self._entries, self._stacks, self._left, self._ranges, self._reserved = {}, {}, {}, {}, {}
        # Stacks of what lived when the last history ended, by allocation.
        self._kept = {}
        atexit.register(self._library().omniheap_torch_watch, None)

    def _library(self):
        return _library.load()

    def _watch(self):
        is_wanted = self._enabled or self._observers or self._trace
        self._library().omniheap_torch_watch(self._watcher if is_wanted else None)

    def record(self, enabled="all", context="all", stacks="all", max_entries=None, clear_history=False, compile_context=False, annotations=False, skip_actions=(), *_):
        """As `torch._C._cuda_record_memory_history`."""
        for name, value, known in (("enabled", enabled, (None, "state", "all")), ("context", context, (None, "state", "alloc", "all")), ("stacks", stacks, ("python", "all"))):
            if value not in known:
                raise RuntimeError(f"{name} is {value!r}; expected one of {', '.join(map(repr, known))}")
        if clear_history or enabled is None:
            self._entries, self._left = {}, {}
        if self._enabled and enabled is None:
            # As PyTorch: what lives when the history ends keeps its stack. Nobody tells of frees from now on, so each is kept with
            # the allocation that it belongs to: a later one at the same address has none.
            live = self._allocations()
            self._kept = {live[address]: stack for address, stack in self._stacks.items() if address in live}
            self._stacks = {}
        elif enabled and self._kept:
            kept, self._kept = self._kept, {}
            self._stacks = {address: kept[name] for address, name in self._allocations().items() if name in kept}
        self._enabled, self._context, self._cpp, self._skip = enabled, context, stacks == "all", tuple(skip_actions or ())
        longest = 1 if enabled == "state" else max_entries
        # Python's own limit of a length, which callers pass for "all", is none for a deque.
        self._longest = longest if longest and longest < 1 << 31 else None
        self._entries = {device: collections.deque(entries, self._longest) for device, entries in self._entries.items()}
        if enabled:
            for device in range(self._torch.cuda.device_count()):
                self._ranges[device] = self._mapped(device)
                self._reserved[device] = sum(size for _, size in self._ranges[device])
        self._watch()

    def record_legacy(self, enabled, record_context=True, max_entries=1, alloc_context=False, cpp=False, clear_history=False, *rest):
        """As `torch._C._cuda_record_memory_history_legacy`."""
        context = ("all" if alloc_context else "state") if record_context else None
        self.record("all" if enabled else None, context, "all" if cpp else "python", max_entries, clear_history, *rest)

    def is_enabled(self):
        """Returns True if a history is recorded."""
        return self._enabled is not None

    def observe(self, observer):
        """Has a function called when memory runs out: device, bytes asked for, bytes of the device, bytes that are free."""
        self._observers.append(observer)
        self._watch()

    def trace(self):
        """Has the callbacks of `torch.cuda._gpu_trace` hear of allocations and frees."""
        self._trace = self._torch.cuda._gpu_trace
        self._watch()

    def is_alive(self, device, pool, live):
        """As `torch._C._cuda_checkPoolLiveAllocations`: whether these addresses, and no others, are live in a pool."""
        blocks = [block for segment in self._segments(device) if tuple(segment["segment_pool_id"]) == tuple(pool) for block in segment["blocks"]]
        return {block["address"] for block in blocks if block["state"] == "active_allocated"} == set(live)

    def set_metadata(self, text):
        """Sets a text that this thread's entries carry."""
        self._metadata.text = text

    def metadata(self):
        """The text that this thread's entries carry."""
        return getattr(self._metadata, "text", "")

    def _add(self, event):
        if event.happened == _OUT_OF_MEMORY:
            free, whole = self._torch.cuda.mem_get_info(event.device)
            for observer in self._observers:
                observer(event.device, event.size, whole, free)
        if self._trace and event.happened == _ALLOCATED:
            self._trace.MemoryAllocationCallbacks.fire_callbacks(event.address)
        if self._trace and event.happened == _FREED:
            self._trace.MemoryDeallocationCallbacks.fire_callbacks(event.address)
        if not self._enabled:
            return
        stack = self._context and self._torch._C._profiler.gather_traceback(True, True, self._cpp)
        late = stack if self._context == "all" else None
        early = stack if self._context in ("alloc", "all") else None
        if event.reserved != self._reserved.get(event.device):
            self._reserved[event.device] = event.reserved
            self._remap(event.device, late)
        place = (event.device, event.address, event.size, event.stream)
        if event.happened == _ALLOCATED:
            self._stacks[event.address] = stack
            self._append("alloc", *place, early)
        elif event.happened == _FREED:
            self._stacks.pop(event.address, None)
            self._left[event.address] = event.size
            self._append("free_requested", *place, late)
            self._append("free_completed", *place, late)
        elif event.happened == _OUT_OF_MEMORY:
            self._append("oom", *place, late, device_free=free)

    def _append(self, action, device, address, size, stream, stack, **more):
        if action in self._skip:
            return
        entry = {"action": action, "addr": address, "size": size, "stream": stream, "time_us": time.time_ns() // 1000, "frames": stack}
        entry.update(compile_context="N/A", user_metadata=self.metadata(), pool_id=(0, 0), **more)
        if stack is not None and self._torch._C.is_anomaly_enabled():
            # Stack of the forward pass that this backward pass belongs to.
            node = self._torch._C._current_autograd_node()
            entry["forward_frames"] = list(node.metadata.get("traceback_") or ()) if node is not None else []
        self._entries.setdefault(device, collections.deque(maxlen=self._longest)).append(entry)

    def _remap(self, device, stack):
        """Notes which memory came from the driver and which went back, since it was looked at last."""
        before, now = self._ranges.get(device, []), self._mapped(device)
        self._ranges[device] = now
        for action, ranges in (("segment_unmap", _without(before, now)), ("segment_map", _without(now, before))):
            for address, size in ranges:
                self._append(action, device, address, size, 0, stack)

    def _mapped(self, device):
        return sorted((segment["address"], segment["total_size"]) for segment in self._segments(device))

    def _segments(self, device):
        text = self._library().omniheap_torch_segments(device)
        if text is None:
            raise _library.OmniheapError(self._library().omniheap_torch_error().decode())
        return json.loads(text)

    def _allocations(self):
        """The name of each allocation that lives, by its address; memory that a graph keeps has none."""
        blocks = [block for device in range(self._torch.cuda.device_count()) for segment in self._segments(device) for block in segment["blocks"]]
        return {block["address"]: block["allocation"] for block in blocks if "allocation" in block}

    def snapshot(self, request=None):
        """As `torch._C._cuda_memorySnapshot`: of all memory, or of the pool that `request` begins with."""
        pool, has_traces = tuple(request[:2]) if request else (0, 0), not request or len(request) < 3 or request[2]
        devices = range(self._torch.cuda.device_count())
        segments = [{**segment, "device": device} for device in devices for segment in self._segments(device)]
        entries = [list(self._entries.get(device, ())) if has_traces else [] for device in devices]
        stack_of = {}
        for block in (block for segment in segments for block in segment["blocks"]):
            name = block.pop("allocation", None)
            stack_of[block["address"]] = self._stacks.get(block["address"]) if self._enabled else self._kept.get(name)
        shown = self._symbolize([*stack_of.values()] + [entry["frames"] for trace in entries for entry in trace])
        for segment in segments:
            segment.update(segment_pool_id=tuple(segment["segment_pool_id"]), registration_counter=-1, frames=[])
            for block in segment["blocks"]:
                is_live = block["state"] == "active_allocated"
                block["frames"] = shown.get(id(stack_of[block["address"]]), []) if is_live else []
                if not is_live:
                    # As PyTorch: what was asked for there last.
                    block["requested_size"] = self._left.get(block["address"], 0)
        traces = [[{**entry, "frames": shown.get(id(entry["frames"]), [])} for entry in trace] for trace in entries]
        if self._enabled:
            for device in devices:
                self._append("snapshot", device, 0, self._reserved.get(device, 0), 0, None)
        wanted = [segment for segment in segments if pool in ((0, 0), segment["segment_pool_id"])]
        return {"segments": wanted, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}

    def _symbolize(self, stacks):
        """The frames of stacks, by the number of the object; without our own."""
        distinct = list({id(stack): stack for stack in stacks if stack is not None}.values())
        frames = self._torch._C._profiler.symbolize_tracebacks(distinct) if distinct else []
        return {id(stack): [frame for frame in found if frame["filename"] != __file__] for stack, found in zip(distinct, frames)}


def _without(ranges, taken):
    """The parts of sorted ranges that sorted others do not cover."""
    left = []
    for start, size in ranges:
        end = start + size
        for other, length in taken:
            if start < other + length and other < end:
                if start < other:
                    left.append((start, other - start))
                start = max(start, min(end, other + length))
        if start < end:
            left.append((start, end - start))
    return left


def install(torch):
    """Makes PyTorch's snapshots and its history those of omniheap."""
    history = History(torch)
    functions = {
        "memorySnapshot": history.snapshot,
        "record_memory_history": history.record,
        "record_memory_history_legacy": history.record_legacy,
        "isHistoryEnabled": history.is_enabled,
        "attach_out_of_memory_observer": history.observe,
        "checkPoolLiveAllocations": history.is_alive,
        "setMemoryMetadata": history.set_metadata,
        "getMemoryMetadata": history.metadata,
    }
    for name, function in functions.items():
        # Not every version has them.
        if hasattr(torch._C, "_cuda_" + name):
            setattr(torch._C, "_cuda_" + name, function)
    activate = getattr(torch._C, "_activate_gpu_trace", None)
    if activate:
        torch._C._activate_gpu_trace = lambda: (activate(), history.trace())[0]

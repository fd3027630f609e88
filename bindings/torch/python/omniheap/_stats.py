"""PyTorch's own memory figures, from omniheap: its functions refuse with any allocator that is not its own.

`torch.cuda.memory_allocated()`, `memory_stats()`, `max_memory_reserved()`, `memory_summary()`, `reset_peak_memory_stats()` and their
kin all ask a few functions of `torch._C`, those of `torch.accelerator` a few more; `install` puts ours there. What omniheap has no equal
of is zero.
"""

from . import _library

_POOLS = ("all", "small_pool", "large_pool")
_ZERO = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
_POOLED = (
    "allocation", "segment", "active", "inactive_split",
    "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
_COUNTERS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "num_oom_rejections", "max_split_size")
# What came and went before `reset_accumulated_memory_stats`, by device.
_earlier = {}


def nested(device):
    """The figures of a device, in the shape that `torch.cuda.memory_stats_as_nested_dict` returns."""
    ours, earlier = _library.stats(device), _earlier.get(device, {})
    since = lambda key: ours[key] - earlier.get(key, 0)
    count = {"current": ours["live"], "peak": ours["peak_live"], "allocated": since("allocated"), "freed": since("freed")}
    asked = {"current": ours["live_bytes"], "peak": ours["peak_live_bytes"], "allocated": since("allocated_bytes"), "freed": since("freed_bytes")}
    size = {
        "current": ours["rounded_bytes"],
        "peak": ours["peak_rounded_bytes"],
        "allocated": since("rounded_allocated_bytes"),
        "freed": since("rounded_freed_bytes"),
    }
    active = size["current"] + ours["waiting_bytes"]
    sums = {
        "allocation": count,
        "active": count,
        "allocated_bytes": size,
        "requested_bytes": asked,
        # Freed bytes that other streams may still use are active.
        "active_bytes": {**size, "current": active, "peak": max(active, size["peak"])},
        "reserved_bytes": {**_ZERO, "current": ours["reserved_bytes"], "peak": ours["peak_reserved_bytes"]},
        "inactive_split_bytes": {**_ZERO, "current": ours["free_bytes"], "peak": ours["free_bytes"]},
    }
    shown = {name: {pool: dict(sums.get(name, _ZERO) if pool == "all" else _ZERO) for pool in _POOLS} for name in _POOLED}
    shown.update({name: dict(_ZERO) for name in ("oversize_allocations", "oversize_segments")})
    shown.update(dict.fromkeys(_COUNTERS, 0), num_ooms=since("out_of_memory"))
    return shown


def reset_peaks(device):
    """Lets the peaks of a device begin anew."""
    _library.check(_library.require_enabled().omniheap_torch_reset_peaks(device))


def reset_accumulated(device):
    """Lets everything that only grows begin anew."""
    _earlier[device] = _library.stats(device)


def install(torch):
    """Makes PyTorch's figures those of omniheap."""
    torch._C._cuda_memoryStats = nested
    torch._C._cuda_resetPeakMemoryStats = reset_peaks
    torch._C._cuda_resetAccumulatedMemoryStats = reset_accumulated
    accelerator = {
        "isAllocatorInitialized": torch.cuda.is_initialized,
        "getDeviceStats": nested,
        "resetPeakStats": reset_peaks,
        "resetAccumulatedStats": reset_accumulated,
        "emptyCache": _library.empty_cache,
    }
    for name, function in accelerator.items():
        # Not every version has them.
        if hasattr(torch._C, "_accelerator_" + name):
            setattr(torch._C, "_accelerator_" + name, function)

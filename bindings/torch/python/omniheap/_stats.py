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
# Counts up to the last `reset_accumulated_memory_stats`, by device.
_earlier = {}
# Fraction given to `set_per_process_memory_fraction`, and the limit in bytes that came of it, by device.
_fractions = {}


def nested(device):
    """The figures of a device, in the shape that `torch.cuda.memory_stats_as_nested_dict` returns."""
    ours, earlier = _library.stats(device), _earlier.get(device)
    shown = {name: {} for name in _POOLED}
    for pool in _POOLS:
        of = lambda figures: figures if pool == "all" else figures["pools"][pool]
        for name, figures in _of_pool(of(ours), of(earlier) if earlier else {}).items():
            shown[name][pool] = figures
    # Freed bytes that other streams may still use are active, and known for all together.
    active = shown["active_bytes"]["all"]
    active["current"] += ours["waiting_bytes"]
    active["peak"] = max(active["peak"], active["current"])
    shown["inactive_split_bytes"]["all"] = {**_ZERO, "current": ours["free_bytes"], "peak": ours["free_bytes"]}
    shown.update({name: dict(_ZERO) for name in ("oversize_allocations", "oversize_segments")})
    shown.update(dict.fromkeys(_COUNTERS, 0), num_ooms=ours["out_of_memory"] - (earlier or {}).get("out_of_memory", 0))
    return shown


def _of_pool(ours, earlier):
    """PyTorch's figures of one of its pools."""
    since = lambda key: ours[key] - earlier.get(key, 0)
    figure = lambda now, peak, came, went: {"current": ours[now], "peak": ours[peak], "allocated": since(came), "freed": since(went)}
    count = figure("live", "peak_live", "allocated", "freed")
    size = figure("rounded_bytes", "peak_rounded_bytes", "rounded_allocated_bytes", "rounded_freed_bytes")
    held = lambda now, peak: {**_ZERO, "current": ours[now], "peak": ours.get(peak, ours[now])}
    known = {
        "allocation": count,
        "active": dict(count),
        "segment": held("segments", "segments"),
        "allocated_bytes": size,
        "active_bytes": dict(size),
        "requested_bytes": figure("live_bytes", "peak_live_bytes", "allocated_bytes", "freed_bytes"),
        "reserved_bytes": held("reserved_bytes", "peak_reserved_bytes"),
    }
    return {name: known.get(name) or dict(_ZERO) for name in _POOLED}


def reset_peaks(device):
    """Lets the peaks of a device begin anew."""
    _library.check(_library.require_enabled().omniheap_torch_reset_peaks(device))


def reset_accumulated(device):
    """Lets everything that only grows begin anew."""
    _earlier[device] = _library.stats(device)


def _set_fraction(fraction, device):
    _library.check(_library.require_enabled().omniheap_torch_memory_fraction(fraction, device))
    _fractions[device] = fraction, _library.stats(device)["limit_bytes"]


def _fraction(device):
    """The share of a device that may be held: what was given, or that of a limit that was set in another way."""
    limit = _library.stats(device)["limit_bytes"]
    given, then = _fractions.get(device, (1.0, None))
    if limit == then:
        return given
    whole = limit and _library.require_enabled().omniheap_torch_device_bytes(_library._enabled.encode(), device)
    return min(1.0, limit / whole) if whole else 1.0


def install(torch):
    """Makes PyTorch's figures those of omniheap."""
    if hasattr(torch._C, "_cuda_getMemoryFraction"):
        # PyTorch's function asks ours, and says nothing of a refusal.
        torch._C._cuda_setMemoryFraction = _set_fraction
        torch._C._cuda_getMemoryFraction = _fraction
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

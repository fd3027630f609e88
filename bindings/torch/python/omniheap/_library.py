"""The shared library: found, loaded once, and its functions with their types."""

import ctypes
import json
import operator
import os
import sys

_NAME = "libomniheap_torch.so"
_BACKENDS = ("cuda", "hip", "host")
_library = None
_enabled = None
# Rank and world size that names of files and errors carry: set by `enable(ranks="auto")`.
_place = None


class OmniheapError(RuntimeError):
    """Something that omniheap refuses; the message says what to do."""


def path():
    """Returns the path of the shared library: OMNIHEAP_LIBRARY, or beside this file."""
    named = os.environ.get("OMNIHEAP_LIBRARY")
    found = named or os.path.join(os.path.dirname(os.path.abspath(__file__)), _NAME)
    if not os.path.isfile(found):
        hint = (
            "OMNIHEAP_LIBRARY names no file; unset it, or set it to the built library"
            if named
            else "install the package with `pip install ./bindings/torch`, "
            "or build it with `cargo build --release -p omniheap-torch` and set OMNIHEAP_LIBRARY"
        )
        raise OmniheapError(f"{found}: not found; {hint}")
    return found


def load():
    """The library, loaded once."""
    global _library
    if _library is not None:
        return _library
    if not sys.platform.startswith("linux"):
        raise OmniheapError(f"omniheap's PyTorch allocator runs on Linux; this is {sys.platform}")
    found = path()
    try:
        lib = ctypes.CDLL(found)
        _declare(lib)
    except OSError as error:
        raise OmniheapError(f"{found}: cannot be loaded ({error}); rebuild it on this machine") from None
    except AttributeError as error:
        raise OmniheapError(f"{found}: is not omniheap's library of this version ({error}); reinstall the package") from None
    _library = lib
    return lib


def _declare(lib):
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("configure", number, [text, ctypes.c_uint64, number]),
        ("device_bytes", ctypes.c_uint64, [text, number]),
        ("error", text, []),
        ("explain_oom", text, []),
        ("is_shortage", number, []),
        ("stats", text, [number]),
        ("segments", text, [number]),
        ("watch", number, [pointer]),
        ("attach", number, []),
        ("capture_failed", number, [number]),
        ("checkpoint", ctypes.c_int64, [number, ctypes.c_uint64, ctypes.c_uint64]),
        ("forget_checkpoint", number, [ctypes.c_int64]),
        ("choose_checkpoint", number, [ctypes.c_int64]),
        ("hold_pool", number, [number, ctypes.c_uint64, ctypes.c_uint64, number]),
        ("pool_users", number, [number, ctypes.c_uint64, ctypes.c_uint64]),
        ("report", number, [number, text]),
        ("digest", text, [number, ctypes.c_uint32, ctypes.c_uint32]),
        ("job", number, [text, text]),
        ("set_rank", number, [number, ctypes.c_uint32, ctypes.c_uint32]),
        ("reset_peaks", number, [number]),
        ("trace", number, [text]),
        ("set_limit", number, [number, ctypes.c_uint64]),
        ("memory_fraction", number, [ctypes.c_double, number]),
        ("reset", None, []),
        ("alloc", pointer, [ctypes.c_ssize_t, number, pointer]),
        ("segment", pointer, [ctypes.c_ssize_t, number, pointer]),
        ("registrable", pointer, [ctypes.c_ssize_t, number, pointer]),
        ("free", None, [pointer, ctypes.c_size_t, number, pointer]),
        ("segment_free", None, [pointer, ctypes.c_size_t, number, pointer]),
        ("record_stream", None, [pointer, pointer]),
        ("enter_tag", number, [text]),
        ("leave_tag", number, []),
        ("sleep", number, [number, text, text]),
        ("prepare_sleep", number, [number, ctypes.c_uint64, number]),
        ("wake", number, [number, text, ctypes.c_uint64]),
        ("residence", text, [number]),
    ):
        function = getattr(lib, "omniheap_torch_" + name)
        function.restype, function.argtypes = result, arguments
    size = ctypes.c_size_t
    for name, result, arguments in (
        ("stream_alloc", pointer, [pointer, size, number]),
        ("stream_free", number, [pointer, pointer, number]),
        ("stream_begin_capture", number, [number, pointer]),
        ("stream_end_capture", number, [number, pointer]),
        ("unordered_alloc", pointer, [size, number]),
        ("unordered_free", number, [pointer]),
        ("alloc_function", pointer, [number, pointer, number]),
    ):
        function = getattr(lib, "omniheap_" + name)
        function.restype, function.argtypes = result, arguments


def address(name):
    """The address of one of the library's functions, for frameworks that want a number."""
    return ctypes.cast(getattr(load(), name), ctypes.c_void_p).value


def check(code):
    """Raises what the library says when a call has failed."""
    if code:
        raise OmniheapError(_said())


def _said():
    """Returns the library's message about the last failure, with the rank."""
    said = load().omniheap_torch_error().decode()
    if _place is None or said.endswith(")") and "(rank " in said:
        return said
    rank, world = _place
    return f"{said} (rank {rank})" if world is None else f"{said} (rank {rank} of {world})"


def name_rank(place):
    """Sets the rank and world size that files and errors are named after; None for neither."""
    global _place
    rank, world = place or (0, None)
    check(load().omniheap_torch_set_rank(int(place is not None), rank, world or 0))
    _place = place


def of_rank(path):
    """The path with the rank before its extension, where the program asked for that: `run.rank3.trace`."""
    if _place is None or path is None:
        return path
    start, end = os.path.splitext(os.fspath(path))
    return f"{start}.rank{_place[0]}{end}" if isinstance(start, str) else start + f".rank{_place[0]}".encode() + end


def to_bytes(limit, backend, device=0):
    """A limit as bytes: a number, a text such as "8GiB", or a share of the device such as 0.5."""
    if limit is None:
        return 0
    limit = _whole(limit)
    if isinstance(limit, bool) or not isinstance(limit, (int, float, str)):
        raise OmniheapError(f"limit is {limit!r}; pass bytes, a text such as '8GiB', or a share such as 0.5")
    if isinstance(limit, str):
        limit = _parse(limit)
    whole = load().omniheap_torch_device_bytes(backend.encode(), device)
    if isinstance(limit, float):
        if not 0.0 < limit <= 1.0:
            raise OmniheapError(f"limit is {limit}; a share lies above 0.0 and is at most 1.0 (bytes are whole numbers)")
        if not whole:
            raise OmniheapError("a share needs a device to be a share of, and there is none; pass bytes")
        limit = int(whole * limit)
    if limit <= 0:
        raise OmniheapError(f"limit is {limit}; pass a positive number of bytes, or leave it out")
    if whole and limit > whole:
        raise OmniheapError(f"limit is {limit} bytes, but the device has {whole}; ask for less, or leave it out")
    return limit


def _parse(text):
    units = {"": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20, "g": 30, "gib": 30, "t": 40, "tib": 40}
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(digits):].strip().lower()
    try:
        return int(float(digits) * (1 << units[unit]))
    except (KeyError, ValueError, OverflowError):
        raise OmniheapError(f"limit is {text!r}; write bytes such as '8GiB', '512MiB' or '1048576'") from None


def _whole(value):
    """A whole number of another library, such as NumPy's, as Python's; everything else as it is."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def parse_size(name, value, example, least=0):
    """The bytes of an argument: a whole number, or a text such as "8GiB"."""
    size = _whole(value)
    if isinstance(value, str):
        try:
            size = _parse(value)
        except OmniheapError:
            size = None
    if isinstance(size, bool) or not isinstance(size, int) or size < least:
        raise OmniheapError(f"{name} is no size: {value!r}; pass bytes as a whole number from {least} on, or a text such as {example!r} (units are powers of 1024: KiB, MiB, GiB, TiB)")
    return size


def configure(backend, limit, paged):
    """Sets how devices are opened; the same settings again change nothing."""
    global _enabled
    if backend not in _BACKENDS:
        raise OmniheapError(f"unknown backend {backend!r}; choose one of {', '.join(_BACKENDS)}")
    if not isinstance(paged, bool):
        raise OmniheapError(f"paged is {paged!r}; pass True or False")
    limit = to_bytes(limit, backend)
    check(load().omniheap_torch_configure(backend.encode(), limit, int(paged)))
    _enabled = backend


def join(backend, limit=None, paged=True):
    """Configures omniheap for one framework of several. Without settings of its own, it takes the present ones."""
    if _enabled is None or limit is not None or paged is not True:
        configure(backend, limit, paged)


def allocate(size, device, stream=None):
    """Allocates in the order of a stream, or of none. Returns the address, or 0 for no bytes."""
    wanted = _whole(size)
    if isinstance(size, bool) or not isinstance(wanted, int) or wanted < 0:
        raise OmniheapError(f"size is {size!r}; pass bytes as a whole number, 0 or more")
    if not wanted:
        return 0
    # Sizes above the largest size_t become it: no device has as much.
    wanted, lib = min(wanted, ctypes.c_size_t(-1).value), require_enabled()
    made = lib.omniheap_unordered_alloc(wanted, device) if stream is None else lib.omniheap_stream_alloc(stream, wanted, device)
    return made or fail()


def free(pointer, device, stream):
    """Frees bytes of `allocate` once a stream has passed. Bytes without a stream wait for all streams."""
    check(load().omniheap_stream_free(stream, pointer, device))


def fail():
    """Raises the error of this thread's last failed allocation: MemoryError if memory is short."""
    raise (MemoryError if load().omniheap_torch_is_shortage() else OmniheapError)(_said())


def require_enabled():
    """The library, where a framework was enabled."""
    if _enabled is None:
        raise OmniheapError("omniheap is not enabled; call omniheap.torch.enable(), or enable() of the module for another runtime, first")
    return load()


def stats(device=0):
    """Figures of one device as a dict: live, reserved and peak bytes, driver calls, rungs of the ladder."""
    text = require_enabled().omniheap_torch_stats(device)
    if text is None:
        raise OmniheapError(_said())
    return json.loads(text)


def report(path, device=0):
    """Writes one device's memory map as a self-contained HTML page; returns its path."""
    path = of_rank(path)
    check(require_enabled().omniheap_torch_report(device, os.fsencode(path)))
    return path


def trace(path):
    """Records what is allocated from now on into a file, and returns its path; `trace(None)` finishes it.

    `omniheap compare FILE` and `omniheap report FILE` read it.
    """
    path = of_rank(path)
    check(require_enabled().omniheap_torch_trace(None if path is None else os.fsencode(path)))
    return path


def empty_cache():
    """Gives everything empty back to the driver."""
    require_enabled().omniheap_torch_reset()


def explain_oom():
    """Returns the reason why the last allocation failed, in words; None when none has."""
    return require_enabled().omniheap_torch_explain_oom().decode() or None


def set_limit(limit, device=0):
    """Sets the most that may be held of a device: bytes, a text such as "8GiB", or None for no limit."""
    lib = require_enabled()
    check(lib.omniheap_torch_set_limit(device, to_bytes(limit, _enabled, device)))

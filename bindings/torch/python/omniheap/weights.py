"""Weights files into PyTorch tensors at the speed of the disk or the bus, with PyTorch's own allocator or omniheap's.

    from omniheap.weights import load_safetensors, load_into

    tensors = load_safetensors("model.safetensors", device="cuda")
    load_into(model, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])

Reads safetensors (also index.json), GGUF and zip files of torch.save. Nothing in a file is ever run.
"""

import array
import ctypes
import json
import os

from . import _library
from ._library import OmniheapError

__all__ = ["OmniheapError", "load_into", "load_safetensors"]

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "C128": "complex128", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
# What sleeps to its files, by address: what counts the writes, and the count when it was loaded.
_loaded = {}
_REPORT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


class _Tensor:
    """A tensor of a file. Types that PyTorch lacks are bytes, block by block."""

    __slots__ = ("dtype", "name", "number", "shape", "size")

    def __init__(self, torch, dtypes, number, entry):
        self.name, dtype, self.shape, elements, block, self.size = entry
        self.number = number
        self.dtype = dtypes.get(dtype)
        if self.dtype is None:
            self.dtype = torch.uint8
            last = self.shape[-1] if self.shape else 1
            self.shape = [*self.shape[:-1], last // elements * block]


class _File:
    """Weights files that are open in the library."""

    def __init__(self, torch, paths):
        self.library = _declare(_library.load())
        if isinstance(paths, (str, os.PathLike)):
            paths = [paths]
        text = json.dumps([os.fspath(path) for path in paths])
        self.handle = self.library.omniheap_torch_weights_open(text.encode())
        if not self.handle:
            raise OmniheapError(self._error())
        listed = self._json(self.library.omniheap_torch_weights_list(self.handle))
        dtypes = {name: getattr(torch, ours, None) for name, ours in _DTYPES.items()}
        self.tensors = [_Tensor(torch, dtypes, number, entry) for number, entry in enumerate(listed)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.omniheap_torch_weights_close(self.handle)

    def _error(self):
        return self.library.omniheap_torch_error().decode()

    def _json(self, text):
        if text is None:
            raise OmniheapError(self._error())
        return json.loads(text)

    def arrange(self, tensors):
        """Bytes of each buffer, and buffer and offset of each tensor."""
        numbers = array.array("Q", [tensor.number for tensor in tensors])
        return self._json(self.library.omniheap_torch_weights_arrange(self.handle, numbers.buffer_info()[0], len(tensors)))

    def load(self, torch, device, buffers, wanted, progress=None):
        """Fills buffers; `wanted` are triples in a row: number of a tensor, number of its buffer, offset in it."""
        backend, ordinal = _place(torch, device)
        raised = []

        def report(done, total, _):
            try:
                if progress is not None:
                    progress(done, total)
                return 0
            except BaseException as error:  # Ctrl-C too: C cannot carry it, so it is raised when the load has ended.
                raised.append(error)
                return 1

        # The layout of the library's structures: 64-bit numbers in a row.
        addresses = array.array("Q", [number for buffer in buffers for number in (buffer.data_ptr(), buffer.nbytes)])
        orders = array.array("Q", wanted)
        if backend != "host":
            # PyTorch hands out memory that earlier work on the stream may still use.
            torch.cuda.current_stream(device).synchronize()
        code = self.library.omniheap_torch_weights_load(
            self.handle, backend.encode(), ordinal,
            addresses.buffer_info()[0], len(buffers), orders.buffer_info()[0], len(orders) // 3, _REPORT(report), None,
        )
        if raised:
            raise raised[0]
        if code:
            raise OmniheapError(self._error())

    def remember(self, torch, tensors, wanted):
        """Notes for `omniheap.torch.sleep(..., to="origin")` what fills whole tensors. Those that do not count writes are left out."""
        if any(tensor.is_inference() for tensor in tensors):
            return
        addresses = array.array("Q", [number for tensor in tensors for number in (tensor.data_ptr(), tensor.nbytes)])
        orders = array.array("Q", wanted)
        known = self.library.omniheap_torch_weights_remember(self.handle, addresses.buffer_info()[0], len(tensors), orders.buffer_info()[0], len(orders) // 3)
        if known > 0:
            for tensor in tensors:
                counter = _counter(torch, tensor)
                _loaded[tensor.data_ptr()] = counter, counter._version


def load_safetensors(paths, device="cuda", only=None, progress=None):
    """Loads tensors; returns a dict of them by name.

    paths: a file, or a list of files.
    only: names to load, or a function that is asked for each name; everything if left out.
    progress: called with bytes done and in total.

    Tensors below 1 MiB share memory: it is freed when the last of them is.
    """
    torch = _torch()
    device = torch.device(device)
    keep = only if callable(only) or only is None else set(only).__contains__
    with _File(torch, paths) as file:
        missing = [] if callable(only) or only is None else sorted(set(only) - {tensor.name for tensor in file.tensors})
        if missing:
            raise OmniheapError(f"there is no tensor {missing[0]!r} in these files; leave it out of `only`")
        chosen = [tensor for tensor in file.tensors if keep is None or keep(tensor.name)]
        sizes, spots = file.arrange(chosen)
        buffers = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
        wanted = [number for tensor, spot in zip(chosen, spots) if tensor.size for number in (tensor.number, *spot)]
        file.load(torch, device, buffers, wanted, progress)
        file.remember(torch, buffers, wanted)
    return _views(torch, chosen, buffers, spots, device)


def load_into(model, paths, strict=True, progress=None):
    """Loads weights into the parameters and buffers of a model, in place.

    strict: refuse names that only the model or only the files have, before anything is written.
    progress: called with bytes done and in total, once per device.

    Returns the names that only the model has, and those that only the files have.
    """
    torch = _torch()
    state = model.state_dict(keep_vars=True)
    with _File(torch, paths) as file:
        found = {tensor.name: tensor for tensor in file.tensors}
        missing, unexpected = sorted(set(state) - set(found)), sorted(set(found) - set(state))
        if strict and (missing or unexpected):
            raise OmniheapError(f"names differ: only in the model {missing[:5]}, only in the files {unexpected[:5]}; pass strict=False to load the others")
        pairs = [(found[name], target) for name, target in state.items() if name in found]
        for tensor, target in pairs:
            if list(target.shape) != tensor.shape:
                raise OmniheapError(f"{tensor.name!r} has shape {tensor.shape} in the files and {list(target.shape)} in the model")
            if target.is_meta:
                raise OmniheapError(f"{tensor.name!r} has no memory (device meta); call model.to_empty(device=...) first")
        by_device = {}
        for tensor, target in pairs:
            by_device.setdefault(target.device, []).append((tensor, target))
        for device, group in by_device.items():
            _load_group(torch, file, device, group, progress)
    return missing, unexpected


def _load_group(torch, file, device, group, progress):
    """Loads tensors to targets of one device; another type or layout goes through a copy."""
    straight = [target.dtype == tensor.dtype and target.is_contiguous() for tensor, target in group]
    buffers = [
        target.detach() if is_straight else torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for (tensor, target), is_straight in zip(group, straight)
    ]
    wanted = [(tensor.number, number, 0) for number, (tensor, _) in enumerate(group) if tensor.size]
    file.load(torch, device, buffers, [number for triple in wanted for number in triple], progress)
    with torch.no_grad():
        for (_, target), buffer, is_straight in zip(group, buffers, straight):
            if not is_straight:
                target.copy_(buffer)
    # A view of something larger is not all that its memory has; the library knows.
    whole = [(tensor, target) for (tensor, target), is_straight in zip(group, straight) if is_straight and tensor.size]
    file.remember(torch, [target for _, target in whole], [number for at, (tensor, _) in enumerate(whole) for number in (tensor.number, at, 0)])


def _views(torch, tensors, buffers, spots, device):
    """Tensors by name, each over its part of a buffer. One call per tensor: files have tens of thousands."""
    typed, views, as_strided = {}, {}, torch.as_strided
    for tensor, (number, offset) in zip(tensors, spots):
        if not tensor.size:
            views[tensor.name] = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
            continue
        key = number, tensor.dtype
        buffer = typed.get(key)
        if buffer is None:
            # Buffers are multiples of 256 bytes, so of every type.
            buffer = typed[key] = buffers[number].view(tensor.dtype)
        strides, stride = [], 1
        for extent in reversed(tensor.shape):
            strides.append(stride)
            stride *= extent
        strides.reverse()
        views[tensor.name] = as_strided(buffer, tensor.shape, strides, offset // buffer.element_size())
    return views


def forget_changed():
    """Forgets the files of tensors that were written since they were loaded: a sleep copies their bytes."""
    for address, (counter, version) in list(_loaded.items()):
        if counter._version != version:
            del _loaded[address]
            _declare(_library.load()).omniheap_torch_weights_forget(address)


def _counter(torch, tensor):
    """A tensor that shares PyTorch's count of writes with another one and its views, and none of its memory."""
    counter = tensor.detach()
    counter.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return counter


def _place(torch, device):
    if device.type == "cpu":
        return "host", 0
    if device.type != "cuda":
        raise OmniheapError(f"weights are loaded to cuda and cpu, not to {device.type}; load to cpu and move them")
    ordinal = torch.cuda.current_device() if device.index is None else device.index
    return "hip" if torch.version.hip else "cuda", ordinal


def _torch():
    try:
        import torch
    except ImportError as error:
        raise OmniheapError(f"PyTorch cannot be imported ({error}); install it") from None
    return torch


def _declare(lib):
    number, pointer, text, size = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("open", number, [text]),
        ("close", ctypes.c_int, [number]),
        ("list", text, [number]),
        ("arrange", text, [number, pointer, size]),
        ("remember", ctypes.c_int, [number, pointer, size, pointer, size]),
        ("forget", ctypes.c_int, [number]),
        ("load", ctypes.c_int, [number, text, ctypes.c_int, pointer, size, pointer, size, _REPORT, pointer]),
    ):
        function = getattr(lib, "omniheap_torch_weights_" + name)
        function.restype, function.argtypes = result, arguments
    return lib

"""Tensors that one process publishes and others of its user attach: one copy of a model's weights for all of them.

Published bytes are the length of a header (8 bytes, little-endian), the header in JSON as in a safetensors file, and the tensors, each at a
multiple of 256 bytes from the first byte. The arbiter that OMNIHEAP_ARBITER names keeps them (`omniheap serve`).
"""

import ctypes
import json
import struct
import types
import weakref

from . import _library, weights
from ._library import OmniheapError

_ALIGN = 256
_NOT_PUBLISHED, _TAKEN, _CHANGED = 1, 2, 3
_FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class NotPublishedError(OmniheapError):
    """Nothing is published under the name, or this user may not attach it."""


class NameTakenError(OmniheapError):
    """Something is published under the name already."""


class ChangedError(OmniheapError):
    """Published bytes are not those that were published: their digest differs."""


_ERRORS = {_NOT_PUBLISHED: NotPublishedError, _TAKEN: NameTakenError, _CHANGED: ChangedError}


class _Attachment(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("address", ctypes.c_uint64), ("length", ctypes.c_uint64)]


def publish(name, tensors, device=None):
    """Publishes tensors under a name, for other processes of this user.

    tensors: a dict of tensors by name, such as `model.state_dict()`. They are copied; these stay as they are.
    device: where the published copy lives; where the first tensor lives, if left out.

    The copy stays until `withdraw(name)`, also when this process ends. Its bytes count for nobody. Raises NameTakenError where the name is taken.
    """
    torch = weights._torch()
    if not isinstance(tensors, dict) or not tensors:
        raise OmniheapError("tensors is no dict of tensors, or empty; pass model.state_dict(), say")
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, torch.Tensor) or tensor.is_meta or tensor.layout != torch.strided:
            raise OmniheapError(f"{key!r} is no name, or what it names is no dense tensor with memory; leave it out")
    place = torch.device(device) if device is not None else next(iter(tensors.values())).device
    library, ordinal = _library_for(torch, place)
    source = _Bytes(torch, tensors)
    code = library.omniheap_share_publish(ordinal, _encoded(name), source.length, _FILL(source.fill), None)
    if source.raised:
        raise source.raised[0]
    _check(library, code)


def attach(name, device="cuda", verify=False):
    """Attaches tensors that were published under a name; returns a dict of them by name.

    device: the device that they were published on; "cpu" for host memory.
    verify: compare the digest of all bytes with that of publication, and raise ChangedError where it differs.

    The bytes are there once, whoever attaches them: read them, and never write them. They stay attached as long as one of the tensors lives.
    Raises NotPublishedError where nothing is published under the name, or this user may not attach it.
    """
    torch = weights._torch()
    place = torch.device(device)
    library, ordinal = _library_for(torch, place)
    found = _Attachment()
    _check(library, library.omniheap_share_attach(ordinal, _encoded(name), ctypes.byref(found)))
    owner = _Owner(library, found)
    if verify:
        _check(library, library.omniheap_share_check(found.id))
    header = owner.header(name)
    whole = owner.tensor(torch, place if place.index is not None or place.type == "cpu" else torch.device(place.type, ordinal))
    dtypes = {ours: getattr(torch, theirs, None) for ours, theirs in weights._DTYPES.items()}
    entries = [_entry(name, key, about, dtypes, found.length) for key, about in header.items()]
    buffers = weights._Buffers(torch, whole.device, [whole], [len(entries)])
    return {entry.name: buffers.view(entry, 0, entry.start) for entry in entries}


def withdraw(name, device="cuda"):
    """Ends a publication: nobody attaches it any more, and its memory is free once nobody has it attached."""
    torch = weights._torch()
    library, ordinal = _library_for(torch, torch.device(device))
    _check(library, library.omniheap_share_withdraw(ordinal, _encoded(name)))


class _Bytes:
    """Bytes of tensors to publish, piece by piece: one tensor at a time is copied to the host."""

    def __init__(self, torch, tensors):
        self.raised, self._torch = [], torch
        names = {getattr(torch, theirs, None): ours for ours, theirs in weights._DTYPES.items()}
        header, start = {}, 0
        for key, tensor in tensors.items():
            if tensor.dtype not in names:
                raise OmniheapError(f"{key!r} has the type {tensor.dtype}, which has no name; convert it")
            header[key] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, start + tensor.nbytes]}
            start += -(-tensor.nbytes // _ALIGN) * _ALIGN
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % _ALIGN)
        self.length = 8 + len(text) + start
        self._pieces = self._all(struct.pack("<Q", len(text)) + text, list(tensors.values()))
        self._piece = memoryview(b"")

    def _all(self, header, tensors):
        yield memoryview(header)
        for tensor in tensors:
            flat = tensor.detach().contiguous().cpu().reshape(-1).view(self._torch.uint8) if tensor.nbytes else None
            if flat is not None:
                array = (ctypes.c_ubyte * flat.numel()).from_address(flat.data_ptr())
                yield memoryview(array).cast("B")
                del array, flat
            yield memoryview(bytes(-tensor.nbytes % _ALIGN))

    def fill(self, address, length, _):
        try:
            while length:
                if not self._piece:
                    self._piece = next(self._pieces)
                    continue
                part = self._piece[:length]
                memoryview((ctypes.c_ubyte * len(part)).from_address(address)).cast("B")[:] = part
                self._piece, address, length = self._piece[len(part):], address + len(part), length - len(part)
            return 0
        except BaseException as error:  # Ctrl-C too: C cannot carry it, so it is raised when the call has ended.
            self.raised.append(error)
            return 1


class _Owner:
    """Attached memory: let go with the last tensor over it."""

    def __init__(self, library, attachment):
        self._library, self.id, self.address, self.length = library, attachment.id, attachment.address, attachment.length
        # Not at exit: the driver may be gone before, and the arbiter sees the end of the process.
        weakref.finalize(self, library.omniheap_share_detach, attachment.id).atexit = False

    def _read(self, offset, length):
        bytes_ = (ctypes.c_ubyte * length)()
        _check(self._library, self._library.omniheap_share_read(self.id, offset, bytes_, length))
        return bytes(bytes_)

    def header(self, name):
        try:
            length = struct.unpack("<Q", self._read(0, 8))[0]
            if length > self.length - 8:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(self._read(8, length))
            start = 8 + length
            return {key: {**about, "data_offsets": [start + at for at in about["data_offsets"]]} for key, about in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OmniheapError) as error:
            raise OmniheapError(f"{name!r} holds no tensors of omniheap.torch.publish ({error}); attach it with the library that published it") from None

    def tensor(self, torch, device):
        """All bytes as a tensor that keeps them attached."""
        if device.type == "cpu":
            array = (ctypes.c_ubyte * self.length).from_address(self.address)
            array._owner = self
            return torch.frombuffer(array, dtype=torch.uint8)
        view = types.SimpleNamespace(
            _owner=self, __cuda_array_interface__={"shape": (self.length,), "typestr": "|u1", "data": (self.address, False), "version": 3}
        )
        return torch.as_tensor(view, device=device)


def _entry(name, key, about, dtypes, length):
    """A tensor of a header, checked: others may have written it."""
    try:
        dtype, shape, (start, end) = dtypes[about["dtype"]], about["shape"], about["data_offsets"]
        elements = 1
        for extent in shape:
            elements *= extent
        fits = min(shape, default=0) >= 0 and 0 <= start <= end <= length and end - start == elements * dtype.itemsize and start % _ALIGN == 0
    except (KeyError, TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        raise OmniheapError(f"{name!r} holds no tensor {key!r} that fits; publish it again")
    return types.SimpleNamespace(name=key, dtype=dtype, shape=shape, strides=weights._strides(shape), size=end - start, start=start)


def _encoded(name):
    if not isinstance(name, str):
        raise OmniheapError(f"{name!r} is no name; use 1 to 64 letters, digits, dots, dashes and underscores")
    return name.encode()


def _check(library, code):
    if code:
        raise _ERRORS.get(code, OmniheapError)(library.omniheap_torch_error().decode())


def _library_for(torch, device):
    backend, ordinal = weights._place(torch, device)
    if _library._enabled is None:
        _library.configure(backend, None, True)
    elif _library._enabled != backend:
        raise OmniheapError(f"omniheap is in use with the backend {_library._enabled!r}, and {device} is of {backend!r}; choose another device")
    return _declare(_library.load()), ordinal


def _declare(lib):
    number, pointer, text, size = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, arguments in (
        ("publish", [ctypes.c_int, text, number, _FILL, pointer]),
        ("attach", [ctypes.c_int, text, ctypes.POINTER(_Attachment)]),
        ("read", [number, number, pointer, size]),
        ("check", [number]),
        ("detach", [number]),
        ("withdraw", [ctypes.c_int, text]),
    ):
        function = getattr(lib, "omniheap_share_" + name)
        function.restype, function.argtypes = ctypes.c_int, arguments
    return lib

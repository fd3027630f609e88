"""Tags: memory that leaves the device and comes back at the same addresses."""

import contextlib
import json
import os
import sys
import threading

from . import weights
from ._library import OmniheapError, check, load, parse_size, require_enabled

_SHORT = -2
_inside = threading.local()


@contextlib.contextmanager
def tag(name):
    """Gives what this thread allocates inside the block to a tag, with which it sleeps and wakes.

        with omniheap.torch.tag("weights"):
            model = Model().cuda()

    Tags do not nest. A graph that is captured inside the block keeps its memory in the tag.
    """
    lib, text = require_enabled(), _encode(name)
    check(lib.omniheap_torch_enter_tag(text))
    _inside.name = name
    try:
        yield
    finally:
        _inside.name = None
        lib.omniheap_torch_leave_tag()


@contextlib.contextmanager
def no_tag():
    """Gives what this thread allocates inside the block to no tag, though the block is inside one."""
    lib, name = require_enabled(), current()
    if name is None:
        yield
        return
    check(lib.omniheap_torch_leave_tag())
    _inside.name = None
    try:
        yield
    finally:
        check(lib.omniheap_torch_enter_tag(_encode(name)))
        _inside.name = name


def current():
    """The name of the tag that this thread is in; None where it is in none."""
    return getattr(_inside, "name", None)


def sleep(tag=None, to="host", device=None):
    """Moves the bytes of a tag away and returns its memory to the driver. Tensors keep their addresses.

    tag: its name; None is all tags that are awake, and everything else that is empty goes back to the driver too.
    to: "host", "disk:/directory", or "nothing", after which tensors wake up zeroed. "origin" copies no weights that `load_safetensors` or
        `load_into` loaded and that are as they were: they are read from their files again. All others go to host memory.
    device: its number; None is the current one.

    Waits for all work that streams were given before. Do not use a tensor of the tag before it is awake again: a kernel that
    does ends with an illegal address. Tensors may be freed meanwhile.
    """
    if not isinstance(to, (str, os.PathLike)):
        raise OmniheapError(f"to is {to!r}; choose 'host', 'disk:/directory', 'origin' or 'nothing'")
    if to == "origin":
        weights.forget_changed()
    lib, name = require_enabled(), None if tag is None else _encode(tag)
    check(lib.omniheap_torch_sleep(_number(device), name, os.fsencode(to)))


def prepare_sleep(what, wait=False, device=None):
    """Takes and pins host memory for a sleep, in the background: call it while a model loads, and the first sleep takes as long as the next ones.

    what: the number of bytes that will sleep, or the name of a tag, for as many as it has now.
    wait: return when the memory is there, and raise where there is too little.
    device: its number; None is the current one.

    A sleep that comes earlier uses what is ready.
    """
    lib, number = require_enabled(), _number(device)
    if isinstance(what, str):
        known = residence(device)
        if what not in known:
            raise OmniheapError(f"nothing was allocated in tag {what!r} on this device; the tags are {sorted(known)}; or pass a number of bytes")
        what = known[what]["device"]
    if isinstance(what, bool) or not isinstance(what, int) or not 0 <= what < 1 << 63:
        raise OmniheapError(f"what is {what!r}; pass the name of a tag, or a number of bytes")
    check(lib.omniheap_torch_prepare_sleep(number, what, 1 if wait else 0))


def wake(tag=None, device=None, host_mapped=0):
    """Gives a tag its memory and its bytes back, at the same addresses; without a name, all tags that sleep, one after the other.

    host_mapped: where the device has too little memory, the most that a tag may have of host memory in its place: bytes, or a text such as
        "8GiB". Kernels reach it over the link, at about its speed, until the tag sleeps and wakes up again.

    Raises `torch.OutOfMemoryError` where there is too little memory: the tag sleeps on, and can be woken later.
    """
    lib, name = require_enabled(), None if tag is None else _encode(tag)
    most = min(parse_size("host_mapped", host_mapped, "8GiB"), (1 << 64) - 1)
    code = lib.omniheap_torch_wake(_number(device), name, most)
    if code == _SHORT:
        raise _shortage()(lib.omniheap_torch_error().decode())
    check(code)


def residence(device=None):
    """Returns the places of the bytes of each tag: {"weights": {"asleep": False, "device": 1 << 30, "host_mapped": 0, "host": 0, "disk": 0, "origin": 0}}.

    "origin" counts the bytes that sleep to it, also those of them that are in host memory.
    """
    text = require_enabled().omniheap_torch_residence(_number(device))
    if text is None:
        raise OmniheapError(load().omniheap_torch_error().decode())
    return json.loads(text)


def _encode(name):
    if not isinstance(name, str) or not name or "\0" in name:
        raise OmniheapError(f"the tag is {name!r}; pass a text that is not empty, such as 'weights'")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise OmniheapError(f"the tag is {name!r}, which is not Unicode; choose another name") from None


def _number(device):
    """The number of a device, as PyTorch's functions take it."""
    torch = sys.modules.get("torch")
    if device is None:
        return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0
    if torch is not None and not isinstance(device, int):
        device = torch.device(device).index
        return torch.cuda.current_device() if device is None else device
    if isinstance(device, bool) or not isinstance(device, int):
        raise OmniheapError(f"the device is {device!r}; pass its number")
    return device


def _shortage():
    """PyTorch's exception for a shortage, where there is a PyTorch that has it."""
    torch = sys.modules.get("torch")
    return getattr(torch, "OutOfMemoryError", None) or OmniheapError

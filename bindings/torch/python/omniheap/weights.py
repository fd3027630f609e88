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
import threading
from concurrent.futures import ThreadPoolExecutor

from . import _library
from ._activations import _have_form_of_statistics, is_plain, _may_be_statistics
from ._library import OmniheapError

__all__ = ["LoadedTensors", "OmniheapError", "load_into", "load_safetensors"]

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "C128": "complex128", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}
# Bytes of copies that exist at a time, where tensors of another type are loaded.
_COPIED = 256 << 20
# Tensors that sleep to their files, by address: what counts the writes, and the count when it was loaded.
_loaded = {}
_REPORT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


class _Form:
    """Type and shape of tensors. Types that PyTorch lacks are bytes, block by block; what it packs is counted by bytes too."""

    __slots__ = ("dtype", "dtypes", "may_be_statistics", "shape", "size", "strides")

    def __init__(self, torch, dtypes, entry):
        dtype, self.shape, elements, block, self.size = entry
        known = dtypes.get(dtype)
        self.dtype = known or torch.uint8
        # Types that a target may have to take the bytes as they are.
        self.dtypes = {self.dtype}
        if known is None or elements > 1:
            self.dtypes.add(torch.uint8)
            last = self.shape[-1] if self.shape else 1
            self.shape = [*self.shape[:-1], last // elements * block]
        # PyTorch takes tuples faster than lists.
        self.shape, self.strides = tuple(self.shape), _strides(self.shape)
        self.may_be_statistics = bool(self.size) and _have_form_of_statistics(len(self.shape), self.dtype)


class _File:
    """Weights files that are open in the library."""

    def __init__(self, paths):
        self.library = _declare(_library.load())
        if isinstance(paths, (str, bytes, os.PathLike)):
            paths = [paths]
        text = json.dumps([os.fsdecode(path) for path in paths])
        count = _numbers(1)
        self.handle = self.library.omniheap_torch_weights_open(text.encode(), _start(count))
        if not self.handle:
            raise OmniheapError(self._error())
        self.count = count[0]

    def list(self, torch):
        """Returns the names, and knows the forms from now on. Files have tens of thousands of tensors and a few forms: nothing here is made for each
        tensor but its name."""
        self._form_of = _numbers(self.count)
        names, forms = self._json(self.library.omniheap_torch_weights_list(self.handle, _start(self._form_of), self.count))
        dtypes = {name: getattr(torch, ours, None) for name, ours in _DTYPES.items()}
        self._forms = [_Form(torch, dtypes, entry) for entry in forms]
        return names

    def form(self, number):
        """The form of a tensor."""
        return self._forms[self._form_of[number]]

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

    def _checked(self, code):
        if code:
            raise OmniheapError(self._error())

    def arrange(self, numbers=None):
        """Bytes and tensors of each buffer; and triples in a row: number of a tensor, number of its buffer, offset in it. Of all tensors, if left out."""
        start, count = (None, self.count) if numbers is None else (_start(numbers), len(numbers))
        wanted = _numbers(3 * count)
        text = self.library.omniheap_torch_weights_arrange(self.handle, start, count, _start(wanted))
        return (*self._json(text), wanted)

    def load(self, torch, device, buffers, wanted, progress=None):
        """Fills buffers; `wanted` are triples as `arrange` returns them."""
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
        if backend != "host":
            # PyTorch hands out memory that earlier work on the stream may still use.
            torch.cuda.current_stream(device).synchronize()
        code = self.library.omniheap_torch_weights_load(
            self.handle, backend.encode(), ordinal,
            _start(addresses), len(buffers), _start(wanted), len(wanted) // 3, _REPORT(report), None,
        )
        if raised:
            raise raised[0]
        self._checked(code)

    def remember(self, torch, tensors, wanted):
        """Notes for `omniheap.torch.sleep(..., to="origin")` what fills whole tensors. Those that do not count writes are left out."""
        if any(tensor.is_inference() for tensor in tensors):
            return
        addresses = array.array("Q", [number for tensor in tensors for number in (tensor.data_ptr(), tensor.nbytes)])
        known = self.library.omniheap_torch_weights_remember(self.handle, _start(addresses), len(tensors), _start(wanted), len(wanted) // 3)
        if known > 0:
            for tensor in tensors:
                counter = _counter(torch, tensor)
                _loaded[tensor.data_ptr()] = counter, counter._version


class _Buffers:
    """Memory that was loaded to, each buffer until the last tensor in it was made or given up."""

    def __init__(self, torch, device, buffers, counts):
        self._torch, self._device = torch, device
        self._buffers, self._left, self._typed = buffers, counts, {}

    def view(self, form, number, offset):
        """A tensor over its part of a buffer."""
        if not form.size:
            return self._torch.empty(form.shape, dtype=form.dtype, device=self._device)
        buffer = self._typed.get((number, form.dtype))
        if buffer is None:
            # Buffers are multiples of 256 bytes, so of every type.
            buffer = self._typed[number, form.dtype] = self._buffers[number].view(form.dtype)
        made = buffer.as_strided(form.shape, form.strides, offset // form.dtype.itemsize)
        self._left[number] -= 1
        if not self._left[number]:
            self._drop(number)
        return made

    def give_up(self, form, number):
        """Counts a tensor that needs its buffer no more."""
        if form.size:
            self._left[number] -= 1
            if not self._left[number]:
                self._drop(number)

    def _drop(self, number):
        self._buffers[number] = None
        self._typed = {key: buffer for key, buffer in self._typed.items() if key[0] != number}


class LoadedTensors(dict):
    """Tensors by name, as `load_safetensors` returns them: a dict whose tensors are made when they are first asked for.

    All bytes are loaded. What takes long for tens of thousands of small tensors is PyTorch's object for each of them; a program that uses some of them,
    or that asks for one after the other, does not wait for all. `dict(tensors)` makes all.
    """

    __slots__ = ("_buffers", "_file", "_lock", "_numbers", "_wanted")

    def __init__(self, *arguments, **named):
        self._numbers, self._lock = {}, threading.RLock()
        super().__init__(*arguments, **named)

    @classmethod
    def _of(cls, names):
        """Tensors that are about to be loaded."""
        tensors = cls()
        tensors._numbers = None
        # The names keep their order and are counted without their tensors.
        dict.update(tensors, dict.fromkeys(names))
        return tensors

    def _in(self, file, buffers, wanted):
        """The same, which wait in buffers now. `wanted` are triples as `arrange` returns them, in the order of the names."""
        self._file, self._buffers, self._wanted = file, buffers, wanted
        return self

    @property
    def _waiting(self):
        """Places of the tensors that are not made, by name. They are numbered when the first of them is asked for."""
        if self._numbers is None:
            with self._lock:
                if self._numbers is None:
                    self._numbers = dict(zip(dict.keys(self), range(len(self))))
        return self._numbers

    def _place(self, at):
        tensor, number, offset = self._wanted[3 * at : 3 * at + 3]
        return self._file.form(tensor), number, offset

    def _make(self, name):
        """Makes a tensor that waits; what it is then, or None where no such tensor is there."""
        with self._lock:
            waiting = self._waiting
            if name in waiting:
                dict.__setitem__(self, name, self._buffers.view(*self._place(waiting[name])))
                del waiting[name]
            return dict.get(self, name)

    def _give_up(self, name):
        with self._lock:
            at = self._waiting.pop(name, None)
            if at is not None:
                form, number, _ = self._place(at)
                self._buffers.give_up(form, number)

    def _make_all(self):
        with self._lock:
            waiting, place, put = self._waiting, self._place, super().__setitem__
            for name in list(waiting):
                put(name, self._buffers.view(*place(waiting[name])))
                del waiting[name]
        return self

    def __getitem__(self, name):
        tensor = dict.__getitem__(self, name)
        # One that waits has no value yet. Any other may have been given none.
        return self._make(name) if tensor is None else tensor

    def get(self, name, default=None):
        return self[name] if name in self else default

    def setdefault(self, name, default=None):
        self._make(name)
        return super().setdefault(name, default)

    def pop(self, name, *default):
        self._make(name)
        return super().pop(name, *default)

    def popitem(self):
        if self:
            self._make(next(reversed(self)))
        return super().popitem()

    def __setitem__(self, name, tensor):
        self._give_up(name)
        super().__setitem__(name, tensor)

    def __delitem__(self, name):
        self._give_up(name)
        super().__delitem__(name)

    def clear(self):
        for name in list(self._waiting):
            self._give_up(name)
        super().clear()

    def update(self, *arguments, **named):
        for name, tensor in dict(*arguments, **named).items():
            self[name] = tensor

    def __ior__(self, other):
        self.update(other)
        return self

    # CPython copies a dict without asking it, unless it iterates in its own way.
    def __iter__(self):
        return super().__iter__()

    def items(self):
        return dict.items(self._make_all())

    def values(self):
        return dict.values(self._make_all())

    def copy(self):
        return dict(self)

    def __reduce_ex__(self, _):
        return dict, (dict(self),)

    def __repr__(self):
        return dict.__repr__(self._make_all())

    def __eq__(self, other):
        return dict(self) == other

    def __ne__(self, other):
        return not self == other

    __hash__ = None

    def __or__(self, other):
        return dict(self) | other

    def __ror__(self, other):
        return other | dict(self)


def _register(torch):
    """Has PyTorch's trees look into loaded tensors, as they look into dicts: they ask for the type itself."""
    tree = getattr(torch.utils, "_pytree", None)
    if hasattr(tree, "register_pytree_node") and LoadedTensors not in getattr(tree, "SUPPORTED_NODES", {LoadedTensors}):
        tree.register_pytree_node(LoadedTensors, lambda tensors: (list(tensors.values()), list(tensors)), lambda values, names: dict(zip(names, values)))


def load_safetensors(paths, device="cuda", only=None, progress=None):
    """Loads tensors; returns a dict of them by name, which makes each when it is first asked for (`LoadedTensors`).

    paths: a file, or a list of files.
    only: names to load, or a function that is asked for each name; everything if left out.
    progress: called with bytes done and in total.

    Tensors below 1 MiB share memory: it is freed when the last of them is.
    """
    torch = _torch()
    device = torch.device(device)
    _place(torch, device)  # Before anything is read.
    _register(torch)
    with _File(paths) as file, ThreadPoolExecutor(1) as beside:
        if only is None:
            numbers, named = None, lambda: LoadedTensors._of(file.list(torch))
        else:
            names = file.list(torch)
            numbers = _chosen(names, only)
            named = lambda: LoadedTensors._of([names[number] for number in numbers])
        sizes, counts, wanted = file.arrange(numbers)
        buffers = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
        # Names of many tensors take as long as their bytes, which the library reads meanwhile.
        tensors = beside.submit(named)
        file.load(torch, device, buffers, wanted, progress)
        tensors = tensors.result()
        file.remember(torch, *_counted(file, buffers, wanted))
        return tensors._in(file, _Buffers(torch, device, buffers, counts), wanted)


def _counted(file, buffers, wanted):
    """Buffers without those in which something may be written that PyTorch does not count, and the triples of their tensors. Names say nothing of that: programs choose them."""
    left_out = {number for tensor, number in zip(wanted[::3], wanted[1::3]) if file.form(tensor).may_be_statistics}
    if not left_out:
        return buffers, wanted
    numbers = {number: at for at, number in enumerate(number for number in range(len(buffers)) if number not in left_out)}
    triples = zip(wanted[::3], wanted[1::3], wanted[2::3])
    return [buffers[number] for number in numbers], array.array("Q", [part for tensor, number, offset in triples if number in numbers for part in (tensor, numbers[number], offset)])


def _chosen(names, only):
    """Numbers of the tensors that are wanted."""
    if not callable(only):
        wanted = set(only)
        missing = sorted(wanted - set(names))
        if missing:
            raise OmniheapError(f"there is no tensor {missing[0]!r} in these files; leave it out of `only`")
        only = wanted.__contains__
    return array.array("Q", [number for number, name in enumerate(names) if only(name)])


def load_into(model, paths, strict=True, progress=None):
    """Loads weights into the parameters and buffers of a model, in place.

    strict: refuse names that only the model or only the files have, before anything is written.
    progress: called with bytes done and in total, once per device.

    If names of the model share a tensor, the last of them counts, as with `load_state_dict`. Returns the names that only the model has, and those that only the files have.

    Values are those that `load_state_dict` would give. A model in which that does more than to copy is refused before anything is written: hooks or methods of its own that change
    what is loaded, a `state_dict()` of other tensors than the model's own, DTensors and other sub-classes, extra state in the files. Use `model.load_state_dict(load_safetensors(...))` there.
    """
    torch = _torch()
    _refuse_loaders(torch, model)
    state = model.state_dict(keep_vars=True)
    own = {**dict(model.named_buffers(remove_duplicate=False)), **dict(model.named_parameters(remove_duplicate=False))}
    with _File(paths) as file:
        found = dict(zip(file.list(torch), range(file.count)))
        missing, unexpected = sorted(set(state) - set(found)), sorted(set(found) - set(state))
        if strict and (missing or unexpected):
            raise OmniheapError(f"names differ: only in the model {missing[:5]}, only in the files {unexpected[:5]}; pass strict=False to load the others")
        by_device = {}
        for name in filter(found.__contains__, state):
            form, target = file.form(found[name]), state[name]
            _check_target(torch, name, target, own.get(name), form)
            # Of names for the same elements the last one counts: threads write in any order.
            elements = (target.data_ptr(), target.dtype, target.shape, target.stride()) if form.size else name
            group = by_device.setdefault(target.device, {})
            group.pop(elements, None)
            group[elements] = (found[name], form, target)
        for device in by_device:
            _place(torch, device)
        for device, group in by_device.items():
            _load_group(torch, file, device, list(group.values()), progress)
    return missing, unexpected


_INSTEAD = "use model.load_state_dict(load_safetensors(...)) instead"


def _refuse_loaders(torch, model):
    """Refuses models for which `load_state_dict` does more than to copy."""
    sharded = next((name for name, each in model.named_parameters() if hasattr(each, "_local_tensor")), None)
    if sharded is not None:
        raise OmniheapError(
            f"{sharded!r} is a DTensor, of which this process has a part, and files have the whole; "
            "use torch.distributed.checkpoint.state_dict.set_model_state_dict(model, load_safetensors(...), options=StateDictOptions(full_state_dict=True)) instead"
        )
    if type(model).load_state_dict is not torch.nn.Module.load_state_dict:
        raise OmniheapError(f"{type(model).__name__} has a load_state_dict of its own, which may change what is loaded; {_INSTEAD}")
    for name, module in model.named_modules():
        # Those of PyTorch's own layers complete files of old versions.
        is_own = not getattr(module._load_from_state_dict, "__module__", "").startswith("torch.nn.modules.")
        if is_own or module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks:
            raise OmniheapError(f"the module {name!r} ({type(module).__name__}) has a hook or a method that may change what load_state_dict loads; {_INSTEAD}")


def _check_target(torch, name, target, own, form):
    """Refuses what cannot be filled in place with the bytes of the files."""
    if not isinstance(target, torch.Tensor):
        raise OmniheapError(f"{name!r} is extra state, which a method of the module reads, and the files have a tensor of that name; {_INSTEAD}")
    if target.shape != form.shape:
        raise OmniheapError(f"{name!r} has shape {list(form.shape)} in the files and {list(target.shape)} in the model")
    if target.is_meta:
        raise OmniheapError(f"{name!r} has no memory (device meta); call model.to_empty(device=...) first")
    if not is_plain(target):
        raise OmniheapError(f"{name!r} is more than bytes of one memory ({type(target).__name__}, {target.layout}); {_INSTEAD}")
    if target is not own:
        raise OmniheapError(f"{name!r} in the model's state_dict() is another tensor than the model's own, such as a copy that a hook makes, and the model would not change; {_INSTEAD}")
    if any(size > 1 and not stride for size, stride in zip(target.shape, target.stride())):
        raise OmniheapError(f"{name!r} is expanded: several of its elements are the same memory; make it contiguous")


def _load_group(torch, file, device, group, progress):
    """Loads tensors to targets of one device. Another type or layout goes through a copy, and so do targets that share bytes, in their order."""
    overlapping = _overlapping([target for _, _, target in group])
    is_straight = [target.dtype in form.dtypes and target.is_contiguous() and at not in overlapping for at, (_, form, target) in enumerate(group)]
    straight, copied = ([each for each, is_one in zip(group, is_straight) if is_one is wanted] for wanted in (True, False))
    done, total = 0, sum(form.size for _, form, _ in group)

    def load(some, buffers):
        nonlocal done
        before = done
        report = None if progress is None else lambda now, _: progress(before + now, total)
        file.load(torch, device, buffers, array.array("Q", [number for at, (tensor, _, _) in enumerate(some) for number in (tensor, at, 0)]), report)
        done += sum(form.size for _, form, _ in some)

    if straight:
        for _, _, target in straight:
            if not target.is_inference():
                # The library writes behind PyTorch's back. Autograd must know what has changed that it saved, also where the load fails half-way.
                torch.autograd.graph.increment_version(target)
        load(straight, [target.detach() for _, _, target in straight])
    for some in _portions(copied):
        buffers = [torch.empty(form.shape, dtype=form.dtype, device=device) for _, form, _ in some]
        load(some, buffers)
        with torch.no_grad():
            for (_, _, target), buffer in zip(some, buffers):
                target.copy_(buffer)
        del buffers, buffer
    # A view of something larger is not all that its memory has; the library knows.
    whole = [(tensor, target) for tensor, form, target in straight if form.size and not _may_be_statistics(target)]
    wanted = [number for at, (tensor, _) in enumerate(whole) for number in (tensor, at, 0)]
    file.remember(torch, [target for _, target in whole], array.array("Q", wanted))


def _overlapping(targets):
    """Numbers of the targets whose spans of memory meet."""
    spans = []
    for at, target in enumerate(targets):
        if target.numel():
            last = sum((size - 1) * stride for size, stride in zip(target.shape, target.stride()))
            spans.append((target.data_ptr(), target.data_ptr() + (last + 1) * target.element_size(), at))
    found, farthest = set(), (0, 0, None)
    for span in sorted(spans):
        if span[0] < farthest[1]:
            found.update((span[2], farthest[2]))
        farthest = max(span, farthest, key=lambda each: each[1])
    return found


def _portions(group):
    """Tensors in groups of so many bytes that their copies are small beside the model."""
    portion, size = [], 0
    for each in group:
        if portion and size + each[1].size > _COPIED:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += each[1].size
    if portion:
        yield portion


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


def _strides(shape):
    """Strides of a dense tensor."""
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def _numbers(count):
    """So many numbers of 64 bits, for the library to fill."""
    return array.array("Q", [0]) * count


def _start(numbers):
    return numbers.buffer_info()[0]


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
        ("open", number, [text, pointer]),
        ("close", ctypes.c_int, [number]),
        ("list", text, [number, pointer, size]),
        ("arrange", text, [number, pointer, size, pointer]),
        ("remember", ctypes.c_int, [number, pointer, size, pointer, size]),
        ("forget", ctypes.c_int, [number]),
        ("load", ctypes.c_int, [number, text, ctypes.c_int, pointer, size, pointer, size, _REPORT, pointer]),
    ):
        function = getattr(lib, "omniheap_torch_weights_" + name)
        function.restype, function.argtypes = result, arguments
    return lib

"""Workspaces: memory that kernels take inside of an operator. Fake tensors do not show it; it is measured on a GPU once, and added to fake steps."""

import contextlib
import functools
import itertools
import json
import os
import warnings

from .._library import OmniheapError
from . import _kernels, _operators, _requests, _saved
from ._ledger import dtype_of
from ._upstream import version

_VERSION = 3
# Less does not matter.
_SMALLEST = 64 << 10


class Workspaces:
    """Bytes by operator, element types and class of shapes, of one GPU and one version of PyTorch.

    `kept_bytes`: what libraries took in the forward pass and in the backward pass, and kept: cuBLAS has a workspace for each thread that multiplies.
    `fixed_bytes`: what the driver counts beside PyTorch's memory: its context, kernels that are loaded, memory of libraries.
    """

    def __init__(self, device, torch, kept_bytes=(0, 0), fixed_bytes=0, known=None, ran=()):
        self.device, self.torch, self.kept_bytes, self.fixed_bytes = device, torch, list(kept_bytes), fixed_bytes
        # Names of all operators that ran in a measured step, those without workspaces too; older files do not say.
        self.ran = set(ran)
        # By operator, types and class: bytes of the tensors that were given, and the workspaces in their order: bytes of each, and how many
        # of those after it begin while it lives.
        self._known = known if known is not None else {}
        self._alike = {}

    def __len__(self):
        return len(self._known)

    def __repr__(self):
        return f"Workspaces({self.device!r}, PyTorch {self.torch}, operators={len(self)}, kept_bytes={self.kept_bytes}, fixed_bytes={self.fixed_bytes})"

    def add(self, key, given, taken):
        """Notes the workspaces of a call, none of them too; the largest of a class count."""
        self.ran.add(key[0])
        self._known[key] = max(self._known.get(key, (0, ())), (given, taken), key=_weight)

    def operators(self):
        """Names of the operators that are known."""
        return {operator for operator, _, _ in self._known}

    def taken(self, operator, tensors):
        """The workspaces of a call: as measured for its class; for the same layer at other batches, on the lines through the two nearest."""
        key = key_of(operator, tensors)
        if key in self._known:
            return self._known[key][1]
        if key not in self._alike:
            self._alike[key] = [(*value, batch) for other, value in self._known.items() if (batch := _batch(other, key))]
        given = bytes_of(tensors)
        near = sorted(sorted(self._alike[key], key=lambda each: abs(each[0] - given))[:2])
        if len(near) < 2 or near[0][0] == near[1][0]:
            return near[-1][1] if near else ()
        return _on_lines(given, *near)

    def merged_with(self, other):
        """Both together; the larger where both know an operator."""
        if (self.device, self.torch) != (other.device, other.torch):
            raise OmniheapError(
                f"these workspaces were measured on {self.device} with PyTorch {self.torch}, and not on {other.device} with {other.torch}; write to another file"
            )
        known = dict(self._known)
        for key, value in other._known.items():
            known[key] = max(known.get(key, value), value, key=_weight)
        # With one that does not say what ran, nobody knows.
        ran = self.ran | other.ran if all(each.ran or not each._known for each in (self, other)) else ()
        return Workspaces(self.device, self.torch, map(max, self.kept_bytes, other.kept_bytes), max(self.fixed_bytes, other.fixed_bytes), known, ran)

    def save(self, path):
        """Writes them as JSON, one call to a line; operators that never had a workspace are left out."""
        has_some = {operator for (operator, _, _), (_, taken) in self._known.items() if taken}
        rows = [json.dumps([*key, *value]) for key, value in sorted(self._known.items()) if key[0] in has_some]
        head = json.dumps({"version": _VERSION, "device": self.device, "torch": self.torch, "kept_bytes": self.kept_bytes, "fixed_bytes": self.fixed_bytes, "ran": sorted(self.ran)})
        _saved.write(path, head[:-1] + ', "workspaces": [\n' + ",\n".join(rows) + "\n]}\n")

    @classmethod
    def shipped(cls, device="NVIDIA H200"):
        """Those that come with the package, measured on this GPU."""
        path = os.path.join(os.path.dirname(__file__), device.lower().replace(" ", "_") + ".json")
        if not os.path.exists(path):
            raise OmniheapError(f"there are no workspaces of {device!r} in the package; those of 'NVIDIA H200' are, and others are measured with omniheap.fit.measure_workspaces")
        return cls.load(path)

    @classmethod
    def of(cls, given):
        """Those that are given, or those of a file."""
        return given if given is None or isinstance(given, cls) else cls.load(given)

    @classmethod
    def load(cls, path):
        """Reads what was saved."""

        def make(saved):
            known = {(str(operator), str(types), str(shapes)): (_count(given), _list(taken)) for operator, types, shapes, given, taken in saved["workspaces"]}
            forward, backward = map(_count, saved["kept_bytes"])
            return cls(str(saved["device"]), str(saved["torch"]), (forward, backward), _count(saved["fixed_bytes"]), known, map(str, saved.get("ran", ())))

        return _saved.read(path, (2, _VERSION), make, ("has no workspaces", "measure them with omniheap.fit.measure_workspaces"))


def _count(value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def _list(taken):
    """The workspaces of a call; files of version 2 have the bytes of the largest alone."""
    if isinstance(taken, int):
        return ((_count(taken), 0),) if taken else ()
    return tuple((_count(size), _count(later)) for size, later in taken)


def _weight(value):
    given, taken = value
    return sum(size for size, _ in taken), given


def key_of(operator, tensors):
    """Operator, element types, and class of shapes: each size up to the next power of two."""
    shapes = ("x".join(str(1 << max(int(size) - 1, 0).bit_length()) for size in each.shape) for each in tensors)
    return operator, ",".join(map(dtype_of, tensors)), ",".join(shapes)


def _on_lines(given, smaller, larger):
    """The workspaces of a call that is given so many bytes, from those of two other batches."""
    (x, lows, few), (y, highs, many) = smaller, larger
    # Bytes given at any batch, such as weights. A kernel that is chosen at the larger batch alone seems to grow faster than the rest, and does not.
    always = max(0, (x * many - y * few) // (many - few)) if many > few else 0
    grown = max(1, (given - always) / max(1, y - always))
    pairs = itertools.zip_longest(lows, highs, fillvalue=(0, 0))
    lines = ((max(0, low + (high - low) * (given - x) // (y - x)), max(low, int(high * grown)), max(later, after)) for (low, later), (high, after) in pairs)
    return tuple((min(line, most), later) for line, most, later in lines if line)


def _batch(one, other):
    """The batch of a key that differs from another by its batch alone: in first sizes, and all of them alike; None for other layers."""
    shapes = [key[2].split(",") for key in (one, other)]
    if one[:2] != other[:2] or len(shapes[0]) != len(shapes[1]):
        return None
    batches = set()
    for shape, another in zip(*shapes):
        (first, _, rest), (second, _, remains) = shape.partition("x"), another.partition("x")
        if rest != remains or bool(first) != bool(second):
            return None
        if first != second:
            batches.add((first, second))
    return int(batches.pop()[0]) if len(batches) == 1 else None


def bytes_of(tensors):
    return sum(each.numel() * each.element_size() for each in tensors)


def _tensors(torch, *given):
    from torch.utils import _pytree as pytree

    return [each for each in pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]


def parts(torch, tensor):
    """The tensors that have the bytes of a tensor."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return (tensor._indices(), tensor._values())
    raise OmniheapError(f"a tensor of the layout {tensor.layout} is not followed; leave it out of the step")


class Meter:
    """Finds in the history of the allocator what operators took beside the tensors that they returned."""

    def __init__(self, torch, device, workspaces):
        self._memory, self._torch, self._device, self._workspaces = torch.cuda.memory, torch, device, workspaces
        # Of each call: its key, bytes that it was given, addresses that it returned, and the pass.
        self._calls = []

    @contextlib.contextmanager
    def reading(self):
        """Records the history of a step, and reads it at the end."""
        with _requests.history(self._torch) as read:
            try:
                yield
                self.read(read(self._device))
            finally:
                self._memory._set_memory_metadata("")

    def begins(self):
        self._memory._set_memory_metadata(str(len(self._calls)))

    def ran(self, function, arguments, options, result, _, is_backward):
        self._memory._set_memory_metadata("")
        if _operators.kind(function) == _operators.VIEW:
            return
        given = _tensors(self._torch, arguments, options)
        here = (part for each in _tensors(self._torch, result) if each.device == self._device for part in parts(self._torch, each))
        made = {each.untyped_storage().data_ptr() for each in here}
        self._calls.append((key_of(str(function), given), bytes_of(given), made, is_backward))

    def read(self, entries):
        """Reads a history, in which each request has the number of the call that made it."""
        requests, running = {}, []
        for entry in entries:
            if entry["action"] == "alloc":
                who = entry.get("user_metadata")
                running = requests.setdefault(who, []) if who else []
                # Address, bytes, and how many requests the call had made when it was freed.
                running.append([entry["addr"], entry["size"], None])
            elif entry["action"] == "free_completed":
                for each in running:
                    if each[0] == entry["addr"] and each[2] is None:
                        each[2] = len(running)
        if any(made for _, _, made, _ in self._calls) and not requests:
            raise OmniheapError("the allocator's history does not say which operator asked for memory; measure with PyTorch's own allocator or omniheap's")
        for number, call in enumerate(self._calls):
            self._note(call, requests.get(str(number), ()))

    def _note(self, call, requests):
        key, given, made, is_backward = call
        # A result is the last request at its address, even if the program freed it at once.
        results = {address: at for at, (address, _, _) in enumerate(requests) if address in made}.values()
        inside = [(at, size, end) for at, (_, size, end) in enumerate(requests) if size >= _SMALLEST and at not in results]
        self._workspaces.kept_bytes[is_backward] += sum(size for _, size, end in inside if end is None)
        freed = [each for each in inside if each[2] is not None]
        self._workspaces.add(key, given, tuple((size, sum(at < other < end for other, _, _ in freed)) for at, size, end in freed))


class Known:
    """Adds workspaces to a fake step: measured ones, else those that follow rules which hold for the GPU."""

    def __init__(self, torch, ledger, workspaces, gpu):
        self._torch, self._ledger, self._workspaces, self._gpu = torch, ledger, workspaces, gpu
        # Bytes that no product has taken yet.
        self._kept = list(workspaces.kept_bytes if workspaces is not None else gpu.library_bytes or (0, 0))
        self._operators = self._workspaces.operators() if self._workspaces is not None else ()
        # Operators that have workspaces, and that no measured step ran.
        self._unmeasured = {}
        if self._workspaces is not None and self._workspaces.torch != version(torch):
            warnings.warn(f"the workspaces were measured with PyTorch {self._workspaces.torch}, and this is {torch.__version__}: measure them once more")

    def begins(self):
        """There is nothing to measure."""

    def ran(self, function, arguments, options, result, path, is_backward):
        is_product = _operators.family(function).endswith("mm")
        if is_product and self._workspaces is None and self._gpu.library_bytes is None:
            self._gpu.lacks("workspaces of cuBLAS")
        if self._kept[is_backward] and is_product:
            size, self._kept[is_backward] = self._kept[is_backward], 0
            self._ledger.born(("kept", is_backward), size, "temporary", (), "libraries", "uint8", False, ["workspace"])
        taken = [each for each in self._taken(function, arguments, options, result) if each[0] >= _SMALLEST]
        for number, (size, _) in enumerate(taken):
            self._ledger.born(("workspace", number), size, "temporary", path, str(function), "uint8", False, ["workspace"])
            for other, (_, later) in enumerate(taken[: number + 1]):
                if number >= min(other + later, len(taken) - 1):
                    self._ledger.died(("workspace", other))

    def ends(self):
        """Says which operators may need more than was added."""
        names = sorted(name for name, is_told in self._unmeasured.items() if is_told)
        for name in names:
            self._gpu.lacks(f"workspaces of {name}")
        if names:
            warnings.warn(f"this step runs {', '.join(names)}, and no measured step did: what they take inside is not in the answer; measure a step that runs them with omniheap.fit.measure_workspaces, to the same file")

    def _taken(self, function, arguments, options, result):
        sizes = _kernels.own(self._gpu, function, arguments, result)
        if sizes is not None:
            return [(size, len(sizes)) for size in sizes]
        if self._workspaces is None:
            return self._by_cudnn(function, arguments, result)
        if self._workspaces.ran and str(function) not in self._workspaces.ran and str(function) not in self._unmeasured:
            self._unmeasured[str(function)] = str(function) in _with_workspaces() or not str(function).startswith("aten.")
        return self._workspaces.taken(str(function), _tensors(self._torch, arguments, options)) if str(function) in self._operators else ()

    def _by_cudnn(self, function, arguments, result):
        sizes = _kernels.cudnn(self._gpu, function, arguments, result) or ()
        if sizes and not self._gpu.is_measured:
            self._gpu.lacks(f"workspaces of {function}")
            return ()
        return sizes


@functools.lru_cache(maxsize=None)
def _with_workspaces():
    """Names of the operators that had workspaces somewhere."""
    return Workspaces.shipped().operators()

"""Workspaces: memory that kernels take inside of an operator. Fake tensors do not show it; it is measured on a GPU once, and added to fake steps."""

import json
import os
import re
import warnings

from . import _kernels, _operators, _saved
from ._ledger import dtype_of
from ._library import OmniheapError

_VERSION = 2
# Less does not matter.
_SMALLEST = 64 << 10


class Workspaces:
    """Bytes by operator, element types and class of shapes, of one GPU and one version of PyTorch.

    `kept_bytes`: what libraries took in the forward pass and in the backward pass, and kept: cuBLAS has a workspace for each thread that multiplies.
    `fixed_bytes`: what the driver counts beside PyTorch's memory: its context, kernels that are loaded, memory of libraries.
    """

    def __init__(self, device, torch, kept_bytes=(0, 0), fixed_bytes=0, known=None):
        self.device, self.torch, self.kept_bytes, self.fixed_bytes = device, torch, list(kept_bytes), fixed_bytes
        # By operator, types and class: bytes of the tensors that were given, and of the workspace.
        self._known = known if known is not None else {}
        self._alike = {}

    def __len__(self):
        return len(self._known)

    def __repr__(self):
        return f"Workspaces({self.device!r}, PyTorch {self.torch}, operators={len(self)}, kept_bytes={self.kept_bytes}, fixed_bytes={self.fixed_bytes})"

    def add(self, operator, tensors, size):
        """Notes the workspace of a call, 0 where it had none; the largest of a class counts."""
        key = _key(operator, tensors)
        self._known[key] = max(self._known.get(key, (0, 0)), (_bytes(tensors), size), key=lambda each: each[::-1])

    def operators(self):
        """Names of the operators that are known."""
        return {operator for operator, _, _ in self._known}

    def bytes(self, operator, tensors):
        """The workspace of a call: as measured for its class; for the same layer at other batches, on the line through the two nearest."""
        key = _key(operator, tensors)
        if key in self._known:
            return self._known[key][1]
        if key not in self._alike:
            self._alike[key] = [value for other, value in self._known.items() if _is_same_layer(other, key)]
        given = _bytes(tensors)
        near = sorted(sorted(self._alike[key], key=lambda each: abs(each[0] - given))[:2])
        if len(near) < 2 or near[0][0] == near[1][0]:
            return near[-1][1] if near else 0
        (x, low), (y, high) = near
        return max(0, low + (high - low) * (given - x) // (y - x))

    def merged_with(self, other):
        """Both together; the larger where both know an operator."""
        if (self.device, self.torch) != (other.device, other.torch):
            raise OmniheapError(
                f"these workspaces were measured on {self.device} with PyTorch {self.torch}, and not on {other.device} with {other.torch}; write to another file"
            )
        known = dict(self._known)
        for key, value in other._known.items():
            known[key] = max(known.get(key, value), value, key=lambda each: each[::-1])
        return Workspaces(self.device, self.torch, map(max, self.kept_bytes, other.kept_bytes), max(self.fixed_bytes, other.fixed_bytes), known)

    def save(self, path):
        """Writes them as JSON, one call to a line; operators that never had a workspace are left out."""
        has_some = {operator for (operator, _, _), (_, size) in self._known.items() if size}
        rows = [json.dumps([*key, *value]) for key, value in sorted(self._known.items()) if key[0] in has_some]
        head = json.dumps({"version": _VERSION, "device": self.device, "torch": self.torch, "kept_bytes": self.kept_bytes, "fixed_bytes": self.fixed_bytes})
        _saved.write(path, head[:-1] + ', "workspaces": [\n' + ",\n".join(rows) + "\n]}\n")

    @classmethod
    def shipped(cls, device="NVIDIA H200"):
        """Those that come with the package, measured on this GPU."""
        path = os.path.join(os.path.dirname(__file__), device.lower().replace(" ", "_") + ".json")
        if not os.path.exists(path):
            raise OmniheapError(f"there are no workspaces of {device!r} in the package; those of 'NVIDIA H200' are, and others are measured with omniheap.torch.measure_workspaces")
        return cls.load(path)

    @classmethod
    def load(cls, path):
        """Reads what was saved."""

        def make(saved):
            known = {(str(operator), str(types), str(shapes)): (_count(given), _count(size)) for operator, types, shapes, given, size in saved["workspaces"]}
            forward, backward = map(_count, saved["kept_bytes"])
            return cls(str(saved["device"]), str(saved["torch"]), (forward, backward), _count(saved["fixed_bytes"]), known)

        return _saved.read(path, _VERSION, make, ("has no workspaces", "measure them with omniheap.torch.measure_workspaces"))


def _count(value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def _key(operator, tensors):
    """Operator, element types, and class of shapes: each size up to the next power of two."""
    shapes = ("x".join(str(1 << max(int(size) - 1, 0).bit_length()) for size in each.shape) for each in tensors)
    return operator, ",".join(map(dtype_of, tensors)), ",".join(shapes)


def _is_same_layer(one, other):
    """Whether two keys differ by their batch alone: in first sizes, and all of them alike."""
    shapes = [key[2].split(",") for key in (one, other)]
    if one[:2] != other[:2] or len(shapes[0]) != len(shapes[1]):
        return False
    batches = set()
    for shape, another in zip(*shapes):
        (first, _, rest), (second, _, remains) = shape.partition("x"), another.partition("x")
        if rest != remains or bool(first) != bool(second):
            return False
        if first != second:
            batches.add((first, second))
    return len(batches) == 1


def _bytes(tensors):
    return sum(each.numel() * each.element_size() for each in tensors)


def _tensors(torch, *given):
    from torch.utils import _pytree as pytree

    return [each for each in pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]


def version(torch):
    """The part of PyTorch's version that kernels depend on."""
    return ".".join(re.findall(r"\d+", torch.__version__)[:2])


class Meter:
    """Compares what the allocator is asked for during each operator with the tensors that it returned."""

    def __init__(self, torch, device, workspaces):
        self._torch, self._device, self._workspaces = torch, device, workspaces

    def begins(self):
        self._torch.cuda.reset_peak_memory_stats(self._device)
        self._before = self._asked()["current"]

    def _asked(self):
        # What is allocated has up to 1 MiB more for each tensor.
        return self._torch.cuda.memory_stats_as_nested_dict(self._device)["requested_bytes"]["all"]

    def ran(self, function, arguments, options, result, _, is_backward):
        if _operators.kind(function) == _operators.VIEW:
            return
        asked, given = self._asked(), _tensors(self._torch, arguments, options)
        there = {each.untyped_storage()._cdata for each in given}
        made = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in _tensors(self._torch, result) if each.device == self._device}
        returned = sum(size for key, size in made.items() if key not in there)
        kept, size = asked["current"] - self._before - returned, asked["peak"] - max(asked["current"], self._before)
        if kept >= _SMALLEST:
            self._workspaces.kept_bytes[is_backward] += kept
        self._workspaces.add(str(function), given, size if size >= _SMALLEST else 0)


class Known:
    """Adds workspaces to a fake step: measured ones, else those that follow rules."""

    def __init__(self, torch, ledger, given=None):
        self._torch, self._ledger = torch, ledger
        self._workspaces = given if given is None or isinstance(given, Workspaces) else Workspaces.load(given)
        # What no product has taken yet.
        self._kept = list(self._workspaces.kept_bytes if self._workspaces is not None else _kernels.CUBLAS_BYTES)
        self._operators = self._workspaces.operators() if self._workspaces is not None else ()
        if self._workspaces is not None and self._workspaces.torch != version(torch):
            warnings.warn(f"the workspaces were measured with PyTorch {self._workspaces.torch}, and this is {torch.__version__}: measure them once more")

    def begins(self):
        """There is nothing to measure."""

    def ran(self, function, arguments, options, result, path, is_backward):
        if self._kept[is_backward] and _operators.family(function).endswith("mm"):
            size, self._kept[is_backward] = self._kept[is_backward], 0
            self._ledger.born(("kept", is_backward), size, "temporary", (), "libraries", "uint8", False, ["workspace"])
        size = self._bytes(function, arguments, options, result)
        if size and size >= _SMALLEST:
            self._ledger.born("workspace", size, "temporary", path, str(function), "uint8", False, ["workspace"])
            self._ledger.died("workspace")

    def _bytes(self, function, arguments, options, result):
        size = _kernels.own(function, arguments)
        if size is None and self._workspaces is None:
            return _kernels.cudnn(function, arguments, result)
        if size is None and str(function) in self._operators:
            return self._workspaces.bytes(str(function), _tensors(self._torch, arguments, options))
        return size

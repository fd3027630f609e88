"""Records a step as a program that a planner can change: what each saved activation is computed from, and when it is idle.

Saved tensors are dropped here, which fake tensors allow: so it is seen when the forward pass itself is done with the bytes, and
when the backward pass wants them again.
"""

import contextlib
import time
import typing

from .._activations import Kept
from .._library import OmniheapError
from . import _operators
from ._ledger import Ledger, Lives, dtype_of, type_of

# Operators that one activation is computed by, at most.
_LONGEST = 64
# Seconds that any kernel takes.
_LAUNCH = 3e-6


class Value:
    """The bytes of a storage between two writes."""

    __slots__ = ("life", "operator", "output", "made_at", "is_overwritten", "is_saved", "is_dropped", "wanted_at", "released_at", "second", "_back", "_wanted")

    def __init__(self, life, operator=None, output=0, made_at=None):
        self.life, self.operator, self.output, self.made_at = life, operator, output, made_at
        self.is_overwritten = self.is_saved = self.is_dropped = False
        self.wanted_at = self.released_at = self.second = None
        self._back, self._wanted = None, 0


class Operator:
    """A call in the model's forward pass."""

    __slots__ = ("call", "function", "held", "types", "seconds", "reads", "runs_again", "writes", "like")

    def __init__(self, call, function, held, types, seconds, reads, runs_again):
        self.call, self.function, self.held, self.types = call, function, held, types
        self.seconds, self.reads, self.runs_again = seconds, reads, runs_again
        # Arguments of the operator, to be measured.
        self.writes, self.like = [], None

    @property
    def name(self):
        return str(self.function)

    def planned(self, sizes):
        """The operator as a plan has it; `sizes`: bytes by number of life."""
        saved = {each.output: sizes[each.life][0] for each in self.writes if each.is_saved}
        return _operators.Planned(self.call, self.name, _operators.family(self.function), self.held, self.types, saved)


class Program:
    """Listens to a recorder. Only the last step counts."""

    def __init__(self, torch, device, speed, min_bytes):
        self._torch, self._device, self._speed, self._min_bytes = torch, device, speed, min_bytes
        self.lives = Lives()
        self.ledger = Ledger(self.lives)
        self.begin()

    def begin(self):
        """A step begins."""
        self.began_at = self.ledger.time
        self.values, self.operators, self.seconds, self.names = [], [], {}, {}
        self.turn = None
        self._current, self._calls, self._roots, self._depth = {}, None, {}, 0

    def enters(self, module):
        if not self._depth:
            self._calls = _operators.Calls(module)
            self._calls.look_for_tensors(module)
            self._roots[module] = self._roots.get(module, 0) + 1
        self._depth += 1
        self._calls.enter(module)

    def leaves(self):
        self._depth -= 1
        self._calls.leave()

    def calls(self):
        """Number of calls of each module by nobody, the model and perhaps others."""
        return self._roots

    def ran(self, function, arguments, options, result, is_backward):
        """An operator has run."""
        from torch.utils import _pytree as pytree

        kind = _operators.kind(function)
        if kind == _operators.VIEW:
            return
        leaves = pytree.tree_leaves(result)
        time, results = self.ledger.time, [each for each in leaves if self._is_here(each)]
        read = [each for each in pytree.tree_leaves((arguments, options)) if self._is_here(each)]
        self.seconds[time] = seconds = self._speed.seconds(function, arguments, options, result, read, results)
        self.names[time] = str(function)
        if is_backward and self.turn is None:
            self.turn = time
        if is_backward or self.turn is not None:
            # Bytes that an optimizer overwrites are not read any more.
            return
        if not self._depth:
            self._overwrites(function, arguments, options)
            return
        types = [type_of(each) if self._is_here(each) else None for each in leaves]
        can_run_again = _operators.can_run_again(function, arguments)
        operator = Operator(self._calls.current(), function, self._calls.reads(arguments), types, seconds, self._values(read), can_run_again)
        given = pytree.tree_leaves((arguments, options)) if can_run_again and self._speed.device is not None else ()
        if given and all(self._is_here(each) for each in given if isinstance(each, self._torch.Tensor)):
            operator.like = pytree.tree_map(lambda each: _Like.of(each) if self._is_here(each) else each, (arguments, options))
        self._overwrites(function, arguments, options)
        for number, tensor in enumerate(leaves):
            life = self.ledger.get(tensor.untyped_storage()._cdata) if self._is_here(tensor) else None
            if life is not None:
                value = Value(life.number, operator, number, time)
                operator.writes.append(value)
                self._current[life] = value
                self.values.append(value)
        self.operators.append(operator)

    def _is_here(self, each):
        return isinstance(each, self._torch.Tensor) and each.device == self._device and each.layout is self._torch.strided

    def _overwrites(self, function, arguments, options):
        for value in self._values(each for each in _operators.targets(function, arguments, options) if self._is_here(each)):
            value.is_overwritten = True

    def _values(self, tensors):
        found = []
        for tensor in tensors:
            life = self.ledger.get(tensor.untyped_storage()._cdata)
            if life is not None:
                found.append(self._current.setdefault(life, Value(life.number)))
        return list(dict.fromkeys(found))

    def pack(self, tensor):
        life = self.ledger.get(tensor.untyped_storage()._cdata) if self._is_here(tensor) else None
        value = self._current.get(life)
        if value is None:
            return Kept(tensor)
        value.is_saved = True
        if value.operator is None or not life.is_forward or life.size < self._min_bytes or not self._depth:
            return Kept(tensor)
        if "empty" in value.operator.name:
            # A stand-in for a kernel has made it, such as for recurrent layers: on the GPU it is the result of another operator.
            return Kept(tensor)
        return _Dropped(self, value, tensor, life.size)

    def unpack(self, kept):
        return kept.tensor()

    def give(self, value, size):
        """Bytes for the backward pass."""
        if value._back is None:
            value.wanted_at = self.ledger.time + 1 if value.wanted_at is None else value.wanted_at
            value._back = self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
            value.second = self.ledger.get(value._back.untyped_storage()._cdata).number
        return value._back

    def released(self, value):
        """One that stood for the value is gone."""
        value.released_at = max(self.ledger.time, value.released_at or 0)
        value._wanted -= 1
        if not value._wanted:
            value._back = None

    def recipe(self, value):
        """The operators that compute a value once more, in order, and the saved values that they read; None if it is impossible."""
        operators, reads, waiting = {}, {}, [value]
        while waiting:
            operator = waiting.pop().operator
            if operator in operators:
                continue
            if not operator.runs_again or len(operators) == _LONGEST:
                return None
            operators[operator] = None
            for each in operator.reads:
                if each.operator is not None and not each.is_saved:
                    waiting.append(each)
                elif each.is_overwritten:
                    return None
                else:
                    reads[each] = None
        order = [operator for operator in self.operators if operator in operators] if len(operators) > 1 else list(operators)
        return order, list(reads)

    def measure(self):
        """Measures the operators that may run again, where the device is at hand."""
        if self._speed.device is not None:
            self._speed.measure(self._torch, [operator for operator in self.operators if operator.like is not None])


class _Like(typing.NamedTuple):
    """A tensor without its bytes."""

    size: tuple
    stride: tuple
    dtype: object

    @classmethod
    def of(cls, tensor):
        return cls(tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype)

    def make(self, torch, device):
        elements = 1 + sum((size - 1) * stride for size, stride in zip(self.size, self.stride)) if all(self.size) else 0
        memory = torch.zeros(elements, dtype=self.dtype, device=device)
        # Products of zeros take less time.
        return (memory.uniform_() if self.dtype.is_floating_point else memory).as_strided(self.size, self.stride)


class _Dropped:
    """Stands for a tensor whose bytes are gone."""

    def __init__(self, program, value, tensor, size):
        self._program, self._value, self._size = program, value, size
        self._dtype, self._shape = tensor.dtype, (tensor.size(), tensor.stride(), tensor.storage_offset())
        value.is_dropped = True
        value._wanted += 1

    def tensor(self):
        whole = self._program.give(self._value, self._size)
        return whole.view(self._dtype).as_strided(*self._shape)

    def __del__(self):
        self._program.released(self._value)


def _made(torch, given, device):
    """Arguments with tensors that have bytes."""
    from torch.utils import _pytree as pytree

    return pytree.tree_map(lambda each: each.make(torch, device) if isinstance(each, _Like) else each, given, is_leaf=lambda each: isinstance(each, _Like))


def _is_there(torch, device):
    """Returns True if a device can be used; a processor always can."""
    return device.type != "cuda" or torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()


class Speed:
    """Times of operators: by a table, and by what the device computes and copies where that says nothing.

    flops: operations in a second, by element type; a number for all of them.
    memory_bytes: bytes in a second.
    times: seconds of one call, by the operator's name, such as "aten.mm.default".
    device: a device that is at hand, such as "cuda:0": operators that may run again are measured on it, each kind of call once, after the step is recorded.
    """

    # About what an NVIDIA H200 reaches.
    _FLOPS = {"float32": 5e13, "bfloat16": 6e14, "float16": 6e14}

    def __init__(self, flops=None, memory_bytes=4e12, times=None, device=None):
        self._flops, self._memory_bytes, self._times, self.device = flops or self._FLOPS, memory_bytes, times or {}, device

    @classmethod
    def known(cls, torch, device):
        """The best that can be known: measured where there is such a GPU."""
        return cls(device=device if device.type == "cuda" and _is_there(torch, device) else None)

    def says(self, gpu):
        """Notes that times are estimates for another GPU, if they are."""
        if self._flops is self._FLOPS:
            gpu.assumes("times of operators that are not measured")

    def check(self, torch):
        """Refuses a device that is not there, before a step is recorded."""
        if self.device is not None and not _is_there(torch, torch.device(self.device)):
            raise OmniheapError(f"there is no {self.device} here to measure operators on; leave device out of Speed, and their times are estimated")

    def measure(self, torch, operators):
        """Measures operators; an estimate stays where a call fails, whatever the reason: there may be no memory for it."""
        device, measured = torch.device(self.device), {}
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
            for operator in (each for each in operators if each.name not in self._times):
                key = (operator.function, repr(operator.like))
                if key not in measured:
                    with contextlib.suppress(Exception):
                        measured[key] = self._measured(torch, device, operator)
                operator.seconds = measured.setdefault(key, operator.seconds)
        if device.type == "cuda":
            torch.cuda.empty_cache()

    @staticmethod
    def _measured(torch, device, operator):
        """Seconds of a call among some, one after the other."""
        arguments, options = _made(torch, operator.like, device)
        function, arguments = operator.function, _operators.settled(operator.function, arguments)

        def run(count):
            start = time.perf_counter()
            for _ in range(count):
                function(*_operators.apart(function, arguments), **options)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return (time.perf_counter() - start) / count

        run(2)
        return min(run(4) for _ in range(2))

    def seconds(self, function, arguments, options, result, read, results):
        known = self._times.get(str(function))
        if known is not None:
            return known
        from torch.utils.flop_counter import flop_registry

        count = flop_registry.get(getattr(function, "_overloadpacket", function))
        flops = count(*arguments, **options, out_val=result) if count is not None else 0
        tensors = {id(each): each for each in (*read, *results)}.values()
        copied = sum(each.numel() * each.element_size() for each in tensors)
        rate = self._flops
        if isinstance(rate, dict):
            rate = rate.get(dtype_of(results[0]) if results else "float32", min(rate.values()))
        return max(flops / rate, copied / self._memory_bytes) + _LAUNCH

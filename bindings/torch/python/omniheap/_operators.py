"""What is known about operators: which can run again with the same result, and how those of a plan are found again in a run.

An operator of a plan is known by the call of a module in which it ran, its family, the parameters that it reads and its number
among such. These are the same on fake tensors and on a GPU, where an operator may have another kernel, and for smaller batches. What a
run has under another name is found by type and shape of its result.
"""

import collections
import functools

VIEW, RUNS_AGAIN, RANDOM, IN_PLACE, OPAQUE = "view", "runs again", "random", "in place", "opaque"

# These share bytes with what they read, and do not say so.
_VIEWS = ("_unsafe_view", "lift_fresh")
# These leave bytes to be written by somebody who is not seen.
_MADE = ("empty", "new_", "zeros", "ones", "full", "_like", "arange", "scalar_tensor", "resize")
# The order of their sums depends on the moment.
_UNORDERED = ("scatter_add", "scatter_reduce", "index_add", "index_put", "put", "histc", "bincount", "cumsum", "cumprod")
# Recurrent layers in one kernel: it asks whether gradients are wanted, or keeps the state of its dropout itself.
_RECURRENT = "_rnn"
_FAMILIES = (("_batch_norm", "batch_norm"), ("_scaled_dot_product", "scaled_dot_product_attention"), ("_fused_rms_norm", "rms_norm"))


def base(function):
    """An operator's name without namespace and overload."""
    # Operators that take functions have no schema.
    return function._schema.name.rpartition("::")[2] if hasattr(function, "_schema") else str(function)


@functools.lru_cache(maxsize=None)
def family(function):
    """The operator without its overload; kernels of one operator are one family."""
    name = base(function)
    for part, known in _FAMILIES:
        if part in name:
            return known
    return name


@functools.lru_cache(maxsize=None)
def kind(function):
    """Whether an operator can run again, and how."""
    import torch

    if not isinstance(function, torch._ops.OpOverload):
        return OPAQUE
    schema, name = function._schema, base(function)
    if not written(function) and (name in _VIEWS or any(value.alias_info is not None for value in schema.returns)):
        return VIEW
    is_made = any(part in name for part in _MADE)
    if not schema.name.startswith("aten::") or is_made or _RECURRENT in name or any(name.startswith(part) for part in _UNORDERED):
        return OPAQUE
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    if written(function):
        is_plain = written(function) == (0,) and not is_random and functional(function) is not None
        return IN_PLACE if is_plain else OPAQUE
    if "batch_norm" in name and name not in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"):
        return OPAQUE
    return RANDOM if is_random else RUNS_AGAIN


@functools.lru_cache(maxsize=None)
def written(function):
    """The numbers of the arguments that an operator writes to."""
    schema = getattr(function, "_schema", None)
    arguments = enumerate(schema.arguments) if schema is not None else ()
    return tuple(number for number, argument in arguments if argument.alias_info is not None and argument.alias_info.is_write)


@functools.lru_cache(maxsize=None)
def is_in_place(function):
    """Whether an operator returns what it has written to."""
    schema = getattr(function, "_schema", None)
    return schema is not None and any(value.alias_info is not None and value.alias_info.is_write for value in schema.returns)


@functools.lru_cache(maxsize=None)
def functional(function):
    """The operator that computes what one in place does, into new bytes; None where there is none."""
    import torch

    name, overload = base(function), function._overloadname
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    return getattr(packet, overload, None) if packet is not None and overload in packet.overloads() else None


def can_run_again(function, arguments):
    """Whether this call can be made once more, for the same result."""
    import torch

    found = kind(function)
    if found == IN_PLACE:
        # It must write all of the bytes, in one type.
        first = arguments[0]
        others = [each for each in arguments[1:] if isinstance(each, torch.Tensor)]
        return first.numel() * first.element_size() == first.untyped_storage().nbytes() and all(each.dtype == first.dtype for each in others)
    return found in (RUNS_AGAIN, RANDOM)


@functools.lru_cache(maxsize=None)
def _rate(function):
    """Which argument is a rate of dropout."""
    return next((number for number, argument in enumerate(function._schema.arguments) if argument.name == "dropout_p"), None)


def draws(function, arguments, options):
    """Whether a call draws random numbers: attention does only with dropout."""
    if kind(function) != RANDOM:
        return False
    number = _rate(function)
    if number is None:
        return True
    return bool(arguments[number] if number < len(arguments) else options.get("dropout_p", 0.0))


def again(function, arguments):
    """The operator and the arguments of a second call, which changes nothing that exists."""
    if kind(function) == IN_PLACE:
        return functional(function), arguments
    if family(function) == "batch_norm" and len(arguments) > 5 and arguments[5]:
        # The statistics of this batch give the result; the running ones were updated the first time.
        return function, (*arguments[:3], None, None, *arguments[5:])
    return function, arguments


class Calls:
    """Names calls of modules while a model runs. `root` is the module that was called by nobody."""

    def __init__(self, root):
        self._names = {module: name for name, module in root.named_modules()}
        self._held = {}
        self._counts = collections.Counter()
        self._stack = []

    def look_for_tensors(self, root):
        """Learns the parameters and buffers, which `reads` names."""
        held = (*root.named_parameters(), *root.named_buffers())
        self._held = {getattr(tensor, "_local_tensor", tensor).untyped_storage()._cdata: name for name, tensor in reversed(held)}

    def enter(self, module):
        """A module begins; modules that are not below the root are parts of the one that calls them."""
        name = self._names.get(module)
        if name is None:
            name = f"{self._stack[-1]}/{type(module).__name__}" if self._stack else type(module).__name__
        self._counts[name] += 1
        number = self._counts[name]
        self._stack.append(name if number == 1 else f"{name}#{number}")

    def leave(self):
        self._stack.pop()

    def current(self):
        """The innermost call, by a name of its own."""
        return self._stack[-1]

    def holds(self, tensor):
        """Whether a tensor is a parameter or a buffer."""
        return tensor.untyped_storage()._cdata in self._held

    def reads(self, arguments):
        """The parameters and buffers among an operator's arguments, by name."""
        import torch

        flat = (part for each in arguments for part in (each if isinstance(each, (list, tuple)) else (each,)))
        names = (self._held.get(each.untyped_storage()._cdata) for each in flat if isinstance(each, torch.Tensor) and each.layout is torch.strided)
        return tuple(name for name in names if name is not None)


class Planned:
    """An operator of a plan.

    call, family, reads: what it is found by. types: those of each result, with shapes, None for what is no tensor of the device.
    saved: bytes of the results that autograd saves, by number. runs_again: whether it is noted, to run once more.
    outputs: what is done with results, by number; those that are not named stay.
    """

    __slots__ = ("call", "name", "family", "reads", "types", "saved", "runs_again", "outputs")

    def __init__(self, call, name, family, reads, types, saved, runs_again=False, outputs=None):
        self.call, self.name, self.family, self.reads, self.types, self.saved = call, name, family, tuple(reads), types, saved
        self.runs_again, self.outputs = runs_again, outputs if outputs is not None else {}

    def listed(self):
        """As JSON has it."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_list(cls, listed):
        call, name, family, reads, types, saved, runs_again, outputs = listed
        by_number = lambda given: {int(number): value for number, value in given.items()}
        return cls(call, name, family, reads, types, by_number(saved), runs_again, by_number(outputs))


class Matches:
    """Finds the operators of a plan while a model runs."""

    def __init__(self, operators):
        self._waiting, self._left = {}, {}
        for each in operators:
            self._waiting.setdefault((each.call, each.family, each.reads), collections.deque()).append(each)
            if each.runs_again or each.outputs or each.saved:
                self._left.setdefault(each.call, {})[each] = None

    def find(self, call, family, reads):
        """The next operator of that family that reads these parameters; None if the plan has no other one."""
        waiting = self._waiting.get((call, family, reads))
        if not waiting:
            return None
        found = waiting.popleft()
        self._left.get(call, {}).pop(found, None)
        return found

    def drop(self, planned):
        """An operator was found otherwise."""
        waiting = self._waiting[planned.call, planned.family, planned.reads]
        if planned in waiting:
            waiting.remove(planned)
        self._left.get(planned.call, {}).pop(planned, None)

    def may_find_like(self, call):
        """Whether there is something left in the plan for this call that `find_like` could find."""
        return bool(self._left.get(call))

    def find_like(self, call, family, reads, type, can_run_again):
        """An operator of the plan that has another name, or reads other parameters, and whose first result has this type and shape.

        Should the operator itself run later, it is found all the same: more is dropped than was planned then, and not less.
        """
        left = self._left.get(call, {})
        for each in left:
            is_alike = each.types[:1] == [type] and (each.family == family or each.reads == reads)
            if is_alike and (can_run_again or not each.runs_again):
                del left[each]
                return each
        return None

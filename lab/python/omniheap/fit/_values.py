"""Values that are known on fake tensors of a device: of what programs count, fill or draw as whole numbers, and whatever follows from those alone.

Programs decide by such values: whether a mask masks anything, how wide each layer is, how many labels there are. Each is a tensor of the host
that hangs on its fake one. Views of a tensor have views of its values, so what is written to one is seen in all.
"""

import contextlib
import functools
import operator
import warnings

from ._operators import VIEW, base, kind, targets, written

# Elements that are worth computing, and of those that are filled with one number: states of optimizers are among them.
_MOST, _FILLED = 1 << 24, 1 << 18
# These fill tensors like others, whose values they do not read.
_LIKE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
_DRAWN = ("randint", "randperm")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Their schemas do not say that they write to running statistics.
_NORMS = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
# Numbers that a program asks for: any, or one that may be a size.
ANY, WHOLE = "any", "whole"


@functools.lru_cache(maxsize=None)
def _needs_all(function):
    """Returns True if an operator says nothing where a part of what it reads is unknown."""
    return base(function) not in (*_LIKE, *_COMPARISONS) and not written(function) and not _hides_writes(function)


@functools.lru_cache(maxsize=None)
def _hides_writes(function):
    """Returns True if an operator may write to what it is given though its schema does not say so: running statistics, and what other ranks send."""
    return base(function) in _NORMS or getattr(function, "namespace", None) == "c10d"


def asking(original, what):
    """Wraps a method that reads a number of a tensor, so that `Values.number` knows what is asked for."""

    def convert(tensor):
        before, Values.asked = Values.asked, what
        try:
            return original(tensor)
        finally:
            Values.asked = before

    return convert


def writes_to(tensor):
    """Counts writes to a tensor; nobody does in inference."""
    return None if tensor.is_inference() else tensor._version


class Values:
    """Follows values through the operators of a step."""

    # Kind of number that Python asks for; None where C++ reads one.
    asked = None

    def __init__(self, torch, device):
        from torch.utils import _pytree as pytree
        from torch.utils._python_dispatch import _disable_current_modes

        self._torch, self._device, self._leaves, self._map, self._apart = torch, device, pytree.tree_leaves, pytree.tree_map_only, _disable_current_modes
        self._warned = set()
        # The state of the device's generator.
        self._drawn = torch.Generator().get_state()

    @staticmethod
    def of(tensor):
        """The values of a fake tensor; None where they are not known."""
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            return constant
        known, storage = getattr(tensor, "known", (None, None))
        if known is None or known.numel() and not known.untyped_storage().nbytes():
            return None
        # The tensor has other values once its `data` was replaced.
        return known if storage == tensor.untyped_storage()._cdata else None

    @staticmethod
    def give(tensor, values):
        """Makes values known."""
        tensor.known = values, tensor.untyped_storage()._cdata

    def ran(self, function, arguments, options, result):
        """Computes what an operator did to values that are known."""
        if _needs_all(function) and any(isinstance(each, self._torch.Tensor) and self.of(each) is None for each in arguments):
            # Nearly all calls.
            return
        if not self.is_here(result) and not self.writes_here(function, arguments, options):
            # PyTorch itself follows values of the host. Only what was copied from the device is forgotten.
            self._forget(function, arguments, options)
            return
        given = [each for each in self._leaves((arguments, options)) if isinstance(each, self._torch.Tensor)]
        name = base(function)
        if given and name not in _LIKE and any(self.of(each) is None for each in given):
            self._forget(function, arguments, options)
            if name in _COMPARISONS:
                self._compare(function, arguments, result)
        elif self._is_known(function, name, bool(given), result):
            self._give(function, self._computed(function, arguments, options), arguments, options, result)
        else:
            self._forget(function, arguments, options)

    def writes_here(self, function, arguments, options):
        """Returns True if an operator writes to tensors of the device."""
        return self.is_here(self._written(function, arguments, options))

    def _written(self, function, arguments, options):
        """Returns what an operator writes to."""
        return (arguments, options) if _hides_writes(function) else targets(function, arguments, options)

    def is_here(self, given):
        """Returns True if a tensor of the device is among what is given."""
        return any(isinstance(each, self._torch.Tensor) and each.device == self._device for each in self._leaves(given))

    def shaped(self, function, arguments, options):
        """Returns the result of an operator whose shape depends on values; None where they are not known."""
        if base(function) == "_ctc_loss":
            return self._ctc_loss(*arguments[:4])
        if base(function) == "_ctc_loss_backward":
            return self._torch.empty_like(arguments[1])
        values = self._computed(function, arguments, options)
        if values is None:
            return self._counted(*arguments) if base(function) == "bincount" else None

        def made(each):
            tensor = self._torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=self._device)
            self.give(tensor, each)
            return tensor

        return self._map(self._torch.Tensor, made, values)

    def _counted(self, tensor, weights=None, least=0):
        """Counts of numbers, as many as the program expects at least: those that it counts are below."""
        return tensor.new_empty(least, dtype=self._torch.int64 if weights is None else weights.dtype) if least else None

    def _ctc_loss(self, chances, _, lengths, target_lengths):
        """A loss for each sequence, and what its kernel keeps: a number before, after and for each label, at each time."""
        known = self.of(target_lengths)
        if known is None:
            return None
        with self._apart():
            longest = int(known.max())
        return chances.new_empty(chances.size(1)), chances.new_empty(chances.size(1), chances.size(0), 2 * longest + 1)

    def number(self, tensor, place):
        """The number that a program asks for; None where it decides something and is not known. No size can be a fraction, so 1.0 is none by mistake."""
        known = self.of(tensor)
        if known is not None:
            with self._apart():
                return known.item()
        compared, asked = getattr(tensor, "compared", (None, None))
        if compared is not None and asked == writes_to(tensor):
            self._say(place())
            return compared
        if tensor.dtype == self._torch.bool or self.asked == WHOLE or not tensor.is_floating_point() and self.asked != ANY:
            return None
        self._say(place())
        return 1.0

    def _say(self, place):
        if place not in self._warned:
            self._warned.add(place)
            warnings.warn(f"a number is read from a fake tensor{place}, and 1.0 is taken for it; if what the step allocates depends on it, record on a GPU with fake=False")

    def _compare(self, function, arguments, result):
        """Notes what a comparison of one number says of 1.0."""
        values = [1.0 if isinstance(each, self._torch.Tensor) and self.of(each) is None else each for each in arguments]
        if all(not isinstance(each, self._torch.Tensor) or each.dim() == 0 and each.is_floating_point() for each in arguments):
            with self._apart():
                numbers = (self.of(each) if isinstance(each, self._torch.Tensor) else each for each in values)
                result.compared = bool(getattr(operator, base(function))(*numbers)), writes_to(result)

    def _is_known(self, function, name, reads, result):
        made = [each for each in self._leaves(result) if isinstance(each, self._torch.Tensor)]
        if getattr(function, "namespace", None) != "aten" or _hides_writes(function) or name == "set_":
            return False
        if not all(hasattr(each, "fake_mode") and each.layout is self._torch.strided for each in made):
            return False
        if kind(function) == VIEW:
            return True
        is_filled = not reads or name in _LIKE
        if any(each.numel() > (_FILLED if is_filled and each.is_floating_point() else _MOST) for each in made):
            return False
        is_random = self._torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
        return not name.startswith(("empty", "new_empty", "_efficient")) and (not is_random or not reads and name.startswith(_DRAWN))

    def _computed(self, function, arguments, options):
        """Returns what an operator computes of values; None where it cannot."""
        if any(isinstance(each, self._torch.Tensor) and self.of(each) is None and base(function) not in _LIKE for each in self._leaves((arguments, options))):
            return None
        on_host = {name: self._torch.device("cpu") if name == "device" else value for name, value in options.items() if name not in ("generator", "pin_memory")}
        with self._apart(), self._drawing(function):
            arguments, on_host = self._map(self._torch.Tensor, self._read, (arguments, on_host))
            try:
                return function(*arguments, **on_host)
            except (RuntimeError, NotImplementedError, ValueError, IndexError):
                return None

    @contextlib.contextmanager
    def _drawing(self, function):
        """Lets the device draw without a change of the numbers that the host draws."""
        if not base(function).startswith(_DRAWN):
            yield
            return
        host = self._torch.get_rng_state()
        self._torch.set_rng_state(self._drawn)
        try:
            yield
        finally:
            self._drawn = self._torch.get_rng_state()
            self._torch.set_rng_state(host)

    def _read(self, tensor):
        known = self.of(tensor)
        # Of what is filled like it, shape and type count.
        return known if known is not None else self._torch.empty((), dtype=tensor.dtype).expand(tensor.shape)

    def _give(self, function, values, arguments, options, result):
        if values is None:
            self._forget(function, arguments, options)
            return
        for tensor, value in zip(self._leaves(result), self._leaves(values)):
            if isinstance(tensor, self._torch.Tensor) and tensor.device == self._device and tensor.shape == value.shape:
                self.give(tensor, value if kind(function) == VIEW else self._in_order(value, tensor))

    def _in_order(self, value, tensor):
        """Values in the order of their tensor, so that its views have theirs."""
        if value.stride() == tensor.stride():
            return value
        with self._apart():
            return self._torch.empty_strided(tensor.shape, tensor.stride(), dtype=value.dtype).copy_(value)

    def _forget(self, function, arguments, options):
        """Values that something unknown is written to are not known any more, nor those of views of them; nor those of which a view is unknown, or whose storage another tensor takes over."""
        shares = kind(function) == VIEW or base(function) == "set_"
        for each in self._leaves((arguments, options) if shares else self._written(function, arguments, options)):
            known, _ = getattr(each, "known", (None, None))
            if known is not None:
                known.untyped_storage().resize_(0)

"""Makes a model follow a plan: keeps, recomputes and moves what autograd saves in its forward pass.

A dispatch mode notes the operators that the plan recomputes, without the bytes between them. When the backward pass wants a tensor
that was dropped, they run again, below autograd, on the same arguments and with the same state of the random generator.
"""

import collections
import contextlib
import copy
import copyreg
import functools
import threading
import warnings
import weakref

from .._activations import Kept, Part, check_version, is_plain, offload_activations
from .._library import OmniheapError
from . import _operators, _upstream
from ._change import MOVE, RECOMPUTE, StepPlan
from ._ledger import type_of


def apply(plan, model):
    """Makes a model follow a plan of `plan_step` whenever gradients are enabled. Returns an `Applied`; `remove()` ends it.

    plan: a `StepPlan`. It stays right for smaller batches.
    model: the module that the planned step calls.

    Losses and gradients are the same to the bit. What the model does not run as it was planned is kept and counted: `figures()`, and `differences()`
    in words. A warning says if the capacity of the plan may be exceeded for it. The model runs in one thread at a time. Copies of the model follow no plan.
    """
    if not isinstance(plan, StepPlan):
        raise OmniheapError(f"plan is {plan!r}; pass what omniheap.fit.plan_step returned")
    torch = _upstream.pytorch()
    if not isinstance(model, torch.nn.Module):
        raise OmniheapError(f"model is {model!r}; pass the torch.nn.Module that the step calls")
    if type(model).__name__ == "OptimizedModule":
        raise OmniheapError("the model is compiled, and its compiler decides what to recompute; apply the plan to the model as it was")
    classes = (vars(each).get("forward") for each in type(model).__mro__)
    if any(isinstance(each, _Forward) and each.is_of(model) for each in classes):
        raise OmniheapError("the model follows a plan already; call remove() on that one first")
    return Applied(plan, model)


class Applied:
    """A model that follows a plan."""

    def __init__(self, plan, model):
        self._plan, self._open = plan, None
        # Steps of the last pass, if the next one may follow it.
        self.track = None
        wanted = ((each, number) for each in plan.operators() for number, choice in each.outputs.items() if choice in (RECOMPUTE, MOVE))
        self._wanted = dict.fromkeys(wanted)
        self._moves = _Moves()
        self._figures = {"recomputed_bytes": 0, "operators_run_again": 0, "missing": 0, "unplanned": 0, "unplanned_bytes": 0, "searched": 0}
        self._missing, self._unplanned, self._has_warned = [], [], False
        # Hooks of a module are not called for Ctrl-C, and the pass must end then too.
        self._forward = _Forward(self, model)

    def remove(self):
        """Lets the model run as it did before. What its last forward pass dropped still comes back."""
        self._forward.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def figures(self):
        """Bytes recomputed and moved so far, operators that ran again, and how the last forward pass differed from the plan.

        `missing`: activations that the plan drops and the pass did not save. `unplanned`: activations that the pass kept and the plan
        does not keep; with their `unplanned_bytes` the step needs more than was planned. A plan for so many bytes less makes up for them.
        `searched`: passes so far whose operators were looked for in the plan, which takes long: the first one, and those that are not like the one before.
        """
        moved = self._moves.figures()
        return {**self._figures, "moved_bytes": moved["offloaded_bytes"]}

    def differences(self):
        """Returns how the last forward pass differed from the plan, in words; an empty text if it did not."""
        lines = []
        if self._missing:
            names = _counted(planned.name for planned, _ in self._missing)
            lines.append(f"{len(self._missing)} of {len(self._wanted)} activations that the plan drops were not saved by this model: {names}")
        if self._unplanned:
            names, size = _counted(name for name, _ in self._unplanned), self._figures["unplanned_bytes"]
            lines.append(f"{len(self._unplanned)} activations with {size} bytes were kept that the plan does not keep: {names}")
        return "\n".join(lines)

    def run(self, model, forward, arguments, options):
        """Runs the model's own `forward`, as the plan says."""
        import torch

        if self._open is not None:
            if not self._open.is_own():
                raise OmniheapError("the model runs in another thread, and its pass follows the plan; let each thread have a copy of the model, and apply the plan to each")
            return forward(*arguments, **options)
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or _is_capturing(torch):
            return forward(*arguments, **options)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise OmniheapError("the model runs inside of torch.func, whose tensors have no bytes of their own to drop; call remove() on its plan first")
        passed = _Pass(torch, self, model)
        try:
            with passed:
                self._open = passed
                result = forward(*arguments, **options)
        finally:
            self._open = None
        self._compare(passed)
        return result

    def _compare(self, passed):
        """Notes how a pass differed from the plan."""
        if self._wanted and not passed.found:
            raise OmniheapError("nothing of the plan was found in this model; plan a step that calls this module itself, not one around it")
        self._missing = [each for each in self._wanted if each not in passed.found]
        self._unplanned = passed.unplanned()
        self.track = passed.track()
        size = sum(size for _, size in self._unplanned)
        self._figures.update(missing=len(self._missing), unplanned=len(self._unplanned), unplanned_bytes=size)
        self._warn(size)

    def _warn(self, size):
        """Says once that the capacity may be exceeded."""
        plan = self._plan
        if self._has_warned or plan.peak_bytes + size <= plan.capacity_bytes:
            return
        self._has_warned = True
        warnings.warn(
            f"the model differs from its plan, and may need {plan.peak_bytes + size} bytes, where the capacity is {plan.capacity_bytes}: "
            f"plan it for {max(plan.capacity_bytes - size, 0)} to make up for that. {self.differences()}"
        )

    def searches(self):
        self._figures["searched"] += 1

    def ran_again(self, size):
        self._figures["recomputed_bytes"] += size
        self._figures["operators_run_again"] += 1


class _Forward:
    """The `forward` of the class that a model has while it follows a plan. Shallow copies have this class too: every other module runs as if there were none."""

    def __init__(self, applied, model):
        self._applied, self._model, self._own = applied, weakref.ref(model, self._forget), type(model)
        self._class = self._made(model)
        # Not by the model's own method, which may look at names.
        object.__setattr__(model, "__class__", self._class)

    def _made(self, model):
        """A class for this model alone. What is pickled is of the model's own one, which is not told that it has a sub-class."""

        # Without `__slots__`: CPython would not let the model have a class that is made of it.
        class Following:
            def __init_subclass__(cls):
                pass

            def __reduce_ex__(instance, protocol):
                return self._in_file(super().__reduce_ex__(protocol))

            def __prepare_scriptable__(instance):
                if self.is_of(instance):
                    raise OmniheapError("the model follows a plan, and torch.jit.script runs none of it; call remove() on the plan first, or script a copy of the model")
                before = getattr(super(), "__prepare_scriptable__", None)
                return instance if before is None else before()

        own = self._own
        return type(own)(own.__name__, (Following, own), {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__, "forward": self})

    def _in_file(self, reduced):
        """Returns the parts of a pickle, with the model's own class."""
        if isinstance(reduced, str):
            return reduced
        function, arguments, *rest = reduced
        function, *arguments = (self._own if each is self._class else each for each in (function, *arguments))
        # Picklers let that one make objects of their own class only.
        return self._own.__new__ if function is copyreg.__newobj__ else function, tuple(arguments), *rest

    def is_of(self, model):
        return self._applied is not None and self._model() is model

    def __get__(self, model, owner):
        import torch

        if model is None:
            return super(self._class, owner).forward
        # As without this descriptor, which is asked first because others may be set.
        own = model.__dict__["forward"] if "forward" in model.__dict__ else super(self._class, model).forward
        # A compiler decides what to recompute, and cannot look into the other one.
        return own if torch.compiler.is_compiling() or not self.is_of(model) else _Followed(self, model, own)

    def __set__(self, model, forward):
        model.__dict__["forward"] = forward

    def __delete__(self, model):
        if "forward" not in model.__dict__:
            raise AttributeError("forward")
        del model.__dict__["forward"]

    def run(self, model, own, arguments, options):
        return own(*arguments, **options) if self._applied is None else self._applied.run(model, own, arguments, options)

    def _forget(self, _):
        self._applied = None

    def remove(self):
        """Ends it, also where somebody has made a class of this one or wrapped a `forward` meanwhile."""
        self._applied, model = None, self._model()
        if type(model) is self._class:
            object.__setattr__(model, "__class__", self._own)


class _Followed:
    """A model's `forward` that goes by the plan, bound as a method is."""

    __slots__ = ("_forward", "_model", "__wrapped__")

    def __init__(self, forward, model, own):
        self._forward, self._model, self.__wrapped__ = forward, model, own

    def __call__(self, *arguments, **options):
        return self._forward.run(self._model, self.__wrapped__, arguments, options)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce__(self):
        # A file of a model that somebody keeps has what it calls, and needs nothing of this package.
        return functools.partial, (self.__wrapped__,)


def _counted(names):
    """Names, the most frequent ones first, with their numbers."""
    counts = collections.Counter(names)
    shown = [f"{name} ({number})" if number > 1 else name for name, number in counts.most_common(8)]
    return ", ".join(shown) + (f" and {len(counts) - 8} others" if len(counts) > 8 else "")


def _is_capturing(torch):
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


class _Moves(offload_activations):
    """Moves what it is told to, whatever its size; the hooks are entered by the pass."""

    def __init__(self):
        super().__init__(min_bytes=0, keep_last=1)

    def pack(self, tensor):
        return self._pack(tensor)

    def unpack(self, kept):
        return self._unpack(kept)

    def finish(self):
        self._finish()
        # Storages of the next pass may have the identities of these.
        self._lasting.clear()


class _Step:
    """Work of a pass at one operator: what the plan says of it, whether it is noted, to run again, and bytes that stay against the plan."""

    __slots__ = ("function", "planned", "is_noted", "is_quiet", "unplanned")

    def __init__(self, function, planned=None, is_noted=False, overwrites=False):
        self.function, self.planned, self.is_noted, self.unplanned = function, planned, is_noted, 0
        # Nothing is to be done but to run it.
        self.is_quiet = not (is_noted or overwrites or (planned is not None and planned.outputs))


class _Stretch:
    """Work of a pass between two beginnings or ends of modules: from step `start` on, after `module` began, or one ended (None).

    context: how many dispatch modes there were then, and whether autograd asked the pass about what it saves. saves: whether autograd saved something that the plan drops.
    """

    __slots__ = ("module", "start", "context", "is_quiet", "saves")

    def __init__(self, module, start, context):
        self.module, self.start, self.context, self.is_quiet, self.saves = module, start, context, False, False


class _Track:
    """The steps and stretches of a pass.

    To find an operator in a plan takes longer than to launch its kernel. Passes are alike, so the next one only compares operators, and
    looks at none in stretches in which there is nothing to do.
    """

    def __init__(self):
        self.steps, self.stretches = [], []

    def finish(self):
        """Finds the stretches in which there is nothing to do."""
        busy = [0]
        for step in self.steps:
            busy.append(busy[-1] + (not step.is_quiet))
        was_quiet = False
        for stretch, after in zip(self.stretches, self.stretches[1:]):
            if stretch.context != after.context:
                # The model opens or closes a context of its own meanwhile, and contexts end in order.
                stretch.saves = True
            elif stretch.start < after.start:
                stretch.is_quiet = busy[stretch.start] == busy[after.start]
            else:
                stretch.is_quiet = was_quiet
            was_quiet = stretch.is_quiet


# The mode or the hooks of a pass are in their place.
_IN = object()


class _Pass:
    """One forward pass of the model: it follows the track of an earlier one, or looks for its operators in the plan and makes a track."""

    def __init__(self, torch, applied, model):
        self._torch, self._applied, self._model = torch, applied, model
        self._thread, self._detach = threading.get_ident(), torch.ops.aten.detach.default
        # Results of the plan that autograd saved.
        self.found = set()
        # Names of calls, which take longer to make than to run their modules: until somebody asks, modules are noted as they begin, and None as they end.
        self._calls, self._begun, self._inside, self._matches = None, [], 0, None
        self._track, self._own, self._is_new = applied.track, [], applied.track is None
        # Of the track: its next step and stretch.
        self._next, self._at = 0, 0
        # The number of dispatch modes while this one is out, and the hooks that autograd asks instead; `_IN` while this one is in its place.
        self._modes_below = self._hooks_below = _IN
        # By storage: what stands for its bytes; and who made them, of those that autograd has not saved so far.
        self._nodes, self._made = {}, {}
        self._moves = applied._moves
        self._mode = _mode(torch)(self)
        self._own_hooks = (self._pack, self._unpack)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(*self._own_hooks)
        if self._is_new:
            self._track = _Track()
            self._look_for_operators()

    def track(self):
        """Returns the track that the next pass follows: nothing after one that differed from its track."""
        if self._is_new:
            self._track.finish()
        return self._track if self._is_new or self._matches is None else None

    def unplanned(self):
        """Returns what autograd saved that the plan does not keep: operators and bytes."""
        steps = self._track.steps if self._is_new else [*self._track.steps[: self._next], *self._own]
        return [(str(step.function), step.unplanned) for step in steps if step.unplanned]

    def __enter__(self):
        import torch

        module = torch.nn.modules.module
        # First, as PyTorch may refuse it: then there is nothing to undo.
        self._hooks.__enter__()
        self._mode.__enter__()
        self._watch = [
            module.register_module_forward_pre_hook(self._enters),
            module.register_module_forward_hook(self._leaves, always_call=True),
        ]
        # Hooks were asked for this one already.
        self._begins(self._model)
        return self

    def is_own(self):
        """Returns True if this is the thread of the pass: hooks of modules are called by all threads."""
        return threading.get_ident() == self._thread

    def _begins(self, module):
        self._inside += 1
        if self._calls is None:
            self._begun.append(module)
        else:
            self._calls.enter(module)

    def _ends(self):
        self._inside -= 1
        if self._calls is None:
            self._begun.append(None)
        else:
            self._calls.leave()

    def _enters(self, module, _):
        if not self.is_own():
            return
        self._begins(module)
        self._begin_stretch(module)

    def _leaves(self, *_):
        if not self._inside or not self.is_own():
            return
        self._ends()
        self._begin_stretch(None)

    def _begin_stretch(self, module):
        """A module began, or one ended (None): a stretch of the track begins."""
        if self._is_new:
            context = (self._torch._C._len_torch_dispatch_stack(), self._top_hooks() == self._own_hooks)
            self._track.stretches.append(_Stretch(module, len(self._track.steps), context))
            return
        if self._matches is not None:
            self._rest(False, False)
            return
        at, stretches = self._at, self._track.stretches
        stretch = stretches[at] if at < len(stretches) else None
        if stretch is None or stretch.module is not module or (self._modes_below is _IN and stretch.start != self._next):
            self._rest(False, False)
            self._look_for_operators()
            return
        self._at, self._next = at + 1, stretch.start
        self._rest(stretch.is_quiet, not stretch.saves)

    def _rest(self, is_quiet, is_unasked):
        """Takes the mode out where there is nothing to do, and the hooks where autograd need not ask; puts them back elsewhere.

        Contexts that the model has opened meanwhile must end first.
        """
        modes = self._torch._C._len_torch_dispatch_stack
        if is_quiet != (self._modes_below is not _IN):
            if not is_quiet and modes() == self._modes_below:
                self._modes_below = _IN
                self._mode.__enter__()
            elif is_quiet and _is_innermost(self._torch, self._mode):
                self._mode.__exit__(None, None, None)
                self._modes_below = modes()
        if is_unasked != (self._hooks_below is not _IN):
            top = self._top_hooks()
            if not is_unasked and top == self._hooks_below:
                self._hooks_below = _IN
                self._hooks.__enter__()
            elif is_unasked and top == self._own_hooks:
                self._hooks.__exit__(None, None, None)
                self._hooks_below = self._top_hooks()

    def _top_hooks(self):
        """The hooks that autograd asks about what it saves."""
        return self._torch._C._autograd._top_saved_tensors_default_hooks(False)

    def __exit__(self, *error):
        for hook in self._watch:
            hook.remove()
        if error[0] is None:
            self._leaves()
        if self._hooks_below is _IN:
            self._hooks.__exit__(*error)
        if self._modes_below is _IN:
            self._mode.__exit__(*error)
        # Autograd holds this by its hooks until the backward pass is over; nodes live as long as somebody wants them.
        self._nodes, self._made, self._mode, self._hooks, self._own_hooks, self._watch = {}, {}, None, None, None, []
        self._moves.finish()

    def run(self, function, arguments, options):
        """Runs an operator, and notes it if the plan says so."""
        if function is self._detach:
            # Autograd does it too, to results that it saves, but only while it asks nobody: tracks do not have it.
            return function(*arguments, **options)
        if self._matches is None:
            steps, at = self._track.steps, self._next
            if at < len(steps) and steps[at].function is function:
                self._next, step = at + 1, steps[at]
                return function(*arguments, **options) if step.is_quiet else self._follow(step, arguments, options)
            self._look_for_operators()
        return self._find(function, arguments, options)

    def _look_for_operators(self):
        """From here on there is no track."""
        self._applied.searches()
        self._matches = _operators.Matches(self._applied._plan.operators())
        for step in self._track.steps[: self._next]:
            if step.planned is not None:
                self._matches.drop(step.planned)
        self._calls = _operators.Calls(self._model)
        for module in self._begun:
            self._calls.leave() if module is None else self._calls.enter(module)
        self._calls.look_for_tensors(self._model)

    def _follow(self, step, arguments, options):
        call, result = self._call(step.function, arguments, options, step.is_noted)
        self._note_choices(step.planned, step.function, call, result)
        return result

    def _find(self, function, arguments, options):
        if _operators.kind(function) == _operators.VIEW or not self._inside:
            self._add(_Step(function))
            return function(*arguments, **options)
        name, family, reads = self._calls.current(), _operators.family(function), self._calls.reads(arguments)
        planned = self._matches.find(name, family, reads)
        is_noted = planned.runs_again if planned is not None else self._matches.may_find_like(name)
        call, result = self._call(function, arguments, options, is_noted)
        results = self._results(result)
        if planned is None and is_noted and results:
            planned = self._matches.find_like(name, family, reads, type_of(results[0][1]), call is not None)
            call = call if planned is not None and planned.runs_again else None
        step = _Step(function, planned, call is not None, self._overwrites(function, arguments, options))
        self._add(step)
        for number, tensor in results:
            storage = tensor.untyped_storage()
            self._made[storage._cdata] = weakref.ref(storage), step, number
        self._note_choices(planned, function, call, result)
        return result

    def _add(self, step):
        (self._track.steps if self._is_new else self._own).append(step)

    def _call(self, function, arguments, options, is_noted):
        """Runs an operator: a `_Call` if it can be made again, and the result."""
        call = None
        if is_noted and _operators.can_run_again(function, arguments):
            # Before it runs: it may write to what it reads.
            call = _Call(self._torch, self, function, arguments, options)
        result = function(*arguments, **options)
        self._forget_written(function, arguments, options)
        return call, result

    def _results(self, result):
        """The tensors of a result that are bytes of a storage, with their numbers."""
        return [(number, each) for number, each in enumerate(_leaves(result)) if isinstance(each, self._torch.Tensor) and is_plain(each)]

    def _note_choices(self, planned, function, call, result):
        """Notes what the plan does with the bytes of results."""
        if planned is None or not planned.outputs:
            return
        leaves, is_in_place = _leaves(result), _operators.is_in_place(function)
        for number, choice in planned.outputs.items():
            tensor = leaves[number] if number < len(leaves) else None
            # Those that are made in inference mode have no count of writes.
            is_counted = isinstance(tensor, self._torch.Tensor) and is_plain(tensor) and not tensor.is_inference()
            if is_counted and (call is not None or choice == MOVE):
                # Autograd counts what is written in place once the operator has returned.
                node = _Node(self._applied, planned, choice, call, number, tensor, tensor._version + is_in_place)
                self._nodes[tensor.untyped_storage()._cdata] = node
                if call is not None:
                    call.made.append(weakref.ref(node))

    def _overwrites(self, function, arguments, options):
        """Returns True if an operator writes to something else than the model's own tensors."""
        return any(not self._calls.holds(each) for each in _operators.targets(function, arguments, options))

    def _forget_written(self, function, arguments, options):
        """Forgets bytes that were written over: they are not there any more, though their storage is."""
        for each in _operators.targets(function, arguments, options):
            node = self._nodes.pop(each.untyped_storage()._cdata, None)
            if node is not None:
                node.reference = _gone

    def node(self, tensor):
        """Returns the node that stands for the bytes of a tensor; None where those stay."""
        if tensor.layout is not self._torch.strided:
            return None
        storage = tensor.untyped_storage()
        node = self._nodes.get(storage._cdata)
        # A storage that is gone may have left its identity to another one; and it may be written to where nothing is looked at.
        return node if node is not None and node.reference() is storage and node.version == tensor._version and is_plain(tensor) else None

    def _pack(self, tensor):
        # Operators from here on are not the model's.
        with self._torch._C._DisableTorchDispatch():
            return self._packed(tensor)

    def _packed(self, tensor):
        node = self.node(tensor)
        if node is not None and self._is_new and self._track.stretches:
            self._track.stretches[-1].saves = True
        if node is None or node.choice not in (RECOMPUTE, MOVE):
            if node is not None:
                node.held = tensor.detach()
            self._keeps(tensor)
            return Kept(tensor)
        self.found.add((node.planned, node.number))
        if node.choice == RECOMPUTE:
            return _Recomputed(node, tensor)
        kept = self._moves.pack(tensor)
        if isinstance(kept, Part):
            node.part, node.held = kept, None
        else:
            node.held = tensor.detach()
            self._keeps(tensor)
        return kept

    def _keeps(self, tensor):
        """Autograd keeps a tensor: counts its bytes if the pass made them and the plan does not have them."""
        if not self._made or not is_plain(tensor):
            return
        storage = tensor.untyped_storage()
        reference, step, number = self._made.pop(storage._cdata, (_gone, None, 0))
        if reference() is not storage:
            return
        planned = step.planned
        is_planned = planned is not None and number in planned.saved and planned.outputs.get(number) not in (RECOMPUTE, MOVE)
        if not is_planned:
            step.unplanned += storage.nbytes()

    def _unpack(self, kept):
        return kept.tensor() if isinstance(kept, _Recomputed) else self._moves.unpack(kept)


def _gone():
    return None


@functools.lru_cache(maxsize=None)
def _mode(torch):
    """The dispatch mode; a function, because its base class is PyTorch's."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        supports_higher_order_operators = True

        def __init__(self, owner):
            super().__init__()
            self._run = owner.run

        @classmethod
        def _should_skip_dynamo(cls):
            # Nothing is followed while a compiler runs; to tell it so at every operator takes time.
            return False

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            return self._run(function, arguments, options or {})

    return Mode


def _is_innermost(torch, mode):
    """Returns True if a mode is the one that is asked first."""
    depth = torch._C._len_torch_dispatch_stack()
    return depth > 0 and torch._C._get_dispatch_stack_at(depth - 1) is mode


def _leaves(result):
    if not isinstance(result, (tuple, list, dict)):
        return (result,)
    if not any(isinstance(each, (tuple, list, dict)) for each in result):
        return result
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(result)


def _form(tensor):
    """Returns the way in which the bytes of a storage are read."""
    return tensor.untyped_storage().nbytes(), tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride()


class _Node:
    """The bytes of a storage that the plan drops: results between operators, activations to recompute, and those that move."""

    __slots__ = ("planned", "choice", "call", "number", "reference", "version", "wanted", "part", "held", "_form", "_back", "_applied", "__weakref__")

    def __init__(self, applied, planned, choice, call, number, tensor, version):
        self._applied, self.planned, self.choice = applied, planned, choice
        self.call, self.number, self._form = call, number, _form(tensor)
        self.reference, self.version, self.wanted = weakref.ref(tensor.untyped_storage()), version, 0
        self.part = self.held = self._back = None

    def here(self):
        """The bytes, if they need not be computed. A storage that lives for other reasons may have been written to, which is not always counted."""
        if self._back is not None:
            return self._back
        if self.part is not None:
            return self.part.storage()
        if self.held is None or self.call is not None and self.held._version != self.version:
            return None
        check_version(self.held, self.version)
        return self.held.untyped_storage()

    def is_kept(self):
        """Returns True if the bytes stay, once they are computed, until the backward pass has used them."""
        return self.choice == RECOMPUTE and self.wanted > 0

    def take(self, tensor):
        """The bytes that were computed, which stay if somebody wants them later. Only what is read as the first time gives the same gradients."""
        if _form(tensor) != self._form:
            raise OmniheapError(
                f"{self.call.function} returned other bytes when it ran again (size, type, offset, shape, strides: {_form(tensor)}, and {self._form} the first time), "
                "and gradients would be wrong; call remove() on the plan, and report this"
            )
        storage = tensor.untyped_storage()
        if self.is_kept() and self.here() is None:
            self._back = storage
            self._applied.ran_again(storage.nbytes())
        return storage

    def compute(self, torch):
        """Computes the bytes if they are not there. What they are computed from comes first, without recursion."""
        if self.here() is not None:
            return
        waiting = [self]
        with torch.no_grad(), torch._C._DisableAutocast():
            while waiting:
                node = waiting[-1]
                before = [] if node.here() is not None else [each for each in node.call.kept_before() if each.here() is None]
                if before:
                    waiting += before
                    continue
                waiting.pop()
                if node.here() is None:
                    node.call.run({})

    def was_used(self, is_first):
        self.wanted -= is_first
        if self.wanted == 0:
            self._back = None


class _Call:
    """A call that can be made again: tensors whose bytes are dropped stand for themselves by a node."""

    __slots__ = ("made", "function", "_torch", "_views", "_arguments", "_options", "_generator", "_state")

    def __init__(self, torch, owner, function, arguments, options):
        self.made, self._views, self._torch, self.function = [], [], torch, function
        self._arguments = [self._note(owner, each) for each in _operators.settled(function, arguments)]
        self._options = {name: self._note(owner, each) for name, each in options.items()} if options else options
        self._generator = _generator(torch, function, arguments, options)
        self._state = None if self._generator is None else self._generator.get_state()

    def _note(self, owner, each):
        """Returns what stands for an argument: operators take tensors, lists of them, and what stays as it is."""
        if isinstance(each, self._torch.Tensor):
            noted = _note(self._torch, owner, each)
            if isinstance(noted, _View):
                self._views.append(noted)
            return noted
        if isinstance(each, (list, tuple)) and any(isinstance(one, self._torch.Tensor) for one in each):
            return _List([self._note(owner, one) for one in each])
        return each

    def _value(self, each, between):
        """The argument that something stands for."""
        if isinstance(each, _View):
            return each.tensor(self._torch, between)
        if isinstance(each, _Held):
            return each.tensor()
        return [self._value(one, between) for one in each] if isinstance(each, _List) else each

    def kept_before(self):
        """Activations that this is computed from, through results that are not kept."""
        found, waiting, seen = [], [self], set()
        while waiting:
            for each in waiting.pop()._views:
                if id(each.node) not in seen and each.node.here() is None:
                    seen.add(id(each.node))
                    (found if each.node.is_kept() else waiting).append(each.node if each.node.is_kept() else each.node.call)
        return found

    def run(self, between):
        """Makes the call, without a gradient; gives its results to the nodes that keep them, and to `between`, by identity."""
        arguments = [self._value(each, between) for each in self._arguments]
        options = {name: self._value(each, between) for name, each in self._options.items()}
        with contextlib.nullcontext() if self._generator is None else _repeating(self._generator, self._state):
            results = _leaves(self.function(*_operators.apart(self.function, arguments), **options))
        for node in filter(None, (reference() for reference in self.made)):
            between[id(node)] = node.take(results[node.number])


def _note(torch, owner, tensor):
    node = owner.node(tensor)
    if node is None:
        return _Held(torch, tensor)
    if node.call is None and node.part is None:
        # Nothing computes it again: it stays here until autograd has saved it, and it moves.
        node.held = _alias(torch, tensor)
    return _View(node, tensor)


def _alias(torch, tensor):
    """The tensor without its history, with its count of writes; below autograd, where operators are noted, `detach` would count anew."""
    nothing = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    with torch._C._ForceDispatchKeyGuard(nothing, nothing):
        return tensor.detach()


class _List(list):
    """Stands for a list of tensors."""


class _Held:
    """A tensor that stays, and may not be written to or given another size meanwhile."""

    __slots__ = ("_tensor", "_version", "_bytes")

    def __init__(self, torch, tensor):
        self._tensor = tensor if tensor.is_leaf else _alias(torch, tensor)
        self._version = None if tensor.is_inference() else tensor._version
        self._bytes = tensor.untyped_storage().nbytes() if is_plain(tensor) else None

    def tensor(self):
        if self._version is not None:
            check_version(self._tensor, self._version)
        if self._bytes is not None and self._tensor.untyped_storage().nbytes() != self._bytes:
            raise OmniheapError(
                f"a tensor of shape {list(self._tensor.shape)} that the plan reads again had {self._bytes} bytes in the forward pass and has "
                f"{self._tensor.untyped_storage().nbytes()} now, such as a sharded parameter that was given back; call remove() on the plan"
            )
        return self._tensor


class _View:
    """A tensor over the bytes of a node."""

    __slots__ = ("node", "_dtype", "_device", "_shape")

    def __init__(self, node, tensor):
        self.node, self._dtype, self._device = node, tensor.dtype, tensor.device
        self._shape = (tensor.storage_offset(), tensor.size(), tensor.stride())

    def tensor(self, torch, between):
        storage = self.node.here()
        if storage is None:
            storage = between.get(id(self.node))
        if storage is None:
            self.node.call.run(between)
            storage = between[id(self.node)]
        return torch.empty(0, dtype=self._dtype, device=self._device).set_(storage, *self._shape)


class _Recomputed:
    """A tensor that autograd saved and the plan dropped."""

    __slots__ = ("_node", "_version", "_is_first", "_view", "_witness")

    def __init__(self, node, tensor):
        self._node, self._version, self._is_first = node, tensor._version, True
        self._view = _View(node, tensor)
        # Has the tensor's version and none of its bytes.
        self._witness = tensor.detach()
        self._witness.data = tensor.new_empty(0)
        node.wanted += 1

    def tensor(self):
        import torch

        check_version(self._witness, self._version)
        if not self._is_first:
            # The graph is retained: its bytes are computed for each pass.
            self._node.wanted += 1
        self._node.compute(torch)
        tensor = self._view.tensor(torch, {})
        self._node.was_used(True)
        self._is_first = False
        return tensor


def _generator(torch, function, arguments, options):
    """The generator that a call draws from: its own one, or that of its device; None where it draws nothing."""
    given = (*arguments, *options.values())
    own = next((each for each in given if isinstance(each, torch.Generator)), None)
    if own is not None or not _operators.draws(function, arguments, options):
        return own
    device = next((each.device for each in given if isinstance(each, torch.Tensor)), options.get("device"))
    return _default_generator(torch, device or torch.device("cpu"))


def _default_generator(torch, device):
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


@contextlib.contextmanager
def _repeating(generator, state):
    """Has a generator draw from an earlier state, and go on afterwards as if it had not."""
    now = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        generator.set_state(now)

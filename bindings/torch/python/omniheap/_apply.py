"""Makes a model follow a plan: keeps, recomputes and moves what autograd saves in its forward pass.

A dispatch mode notes the operators that the plan recomputes, without the bytes between them. When the backward pass wants a tensor
that was dropped, they run again, below autograd, on the same arguments and with the same state of the random generator.
"""

import collections
import functools
import threading
import warnings
import weakref

from . import _operators
from ._activations import _check_version, _is_plain, _Kept, _Part, offload_activations
from ._change import MOVE, RECOMPUTE, StepPlan
from ._ledger import type_of
from ._library import OmniheapError


def apply(plan, model):
    """Makes a model follow a plan of `plan_step` whenever gradients are enabled. Returns an `Applied`; `remove()` ends it.

    plan: a `StepPlan`. It stays right for smaller batches.
    model: the module that the planned step calls.

    Losses and gradients are the same to the bit. What the model does not run as it was planned is kept and counted: `figures()`, and `differences()`
    in words. A warning says if the capacity of the plan may be exceeded for it. The model runs in one thread at a time.
    """
    if not isinstance(plan, StepPlan):
        raise OmniheapError(f"plan is {plan!r}; pass what omniheap.torch.plan_step returned")
    import torch

    if not isinstance(model, torch.nn.Module):
        raise OmniheapError(f"model is {model!r}; pass the torch.nn.Module that the step calls")
    if type(model).__name__ == "OptimizedModule":
        raise OmniheapError("the model is compiled, and its compiler decides what to recompute; apply the plan to the model as it was")
    if any(isinstance(hook, _Enter) for hook in model._forward_pre_hooks.values()):
        raise OmniheapError("the model follows a plan already; call remove() on that one first")
    return Applied(plan, model)


class Applied:
    """A model that follows a plan."""

    def __init__(self, plan, model):
        self._plan, self._hooks, self._open = plan, [], None
        # What the last pass did, if the next one may follow it.
        self.track = None
        wanted = ((each, number) for each in plan.operators() for number, choice in each.outputs.items() if choice in (RECOMPUTE, MOVE))
        self._wanted = dict.fromkeys(wanted)
        self._moves = _Moves()
        self._figures = {"recomputed_bytes": 0, "operators_run_again": 0, "missing": 0, "unplanned": 0, "unplanned_bytes": 0}
        self._missing, self._unplanned, self._has_warned = [], [], False
        self._hooks.append(model.register_forward_pre_hook(_Enter(self), prepend=True))
        self._hooks.append(model.register_forward_hook(self._leave, always_call=True))

    def remove(self):
        """Lets the model run as it did before. What its last forward pass dropped still comes back."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def figures(self):
        """Bytes recomputed and moved so far, operators that ran again, and how the last forward pass differed from the plan.

        `missing`: activations that the plan drops and the pass did not save. `unplanned`: activations that the pass kept and the plan
        does not keep; with their `unplanned_bytes` the step needs more than was planned. A plan for so many bytes less makes up for them.
        """
        moved = self._moves.figures()
        return {**self._figures, "moved_bytes": moved["offloaded_bytes"]}

    def differences(self):
        """How the last forward pass differed from the plan, in words; an empty text if it did not."""
        lines = []
        if self._missing:
            names = _counted(planned.name for planned, _ in self._missing)
            lines.append(f"{len(self._missing)} of {len(self._wanted)} activations that the plan drops were not saved by this model: {names}")
        if self._unplanned:
            names, size = _counted(name for name, _ in self._unplanned), self._figures["unplanned_bytes"]
            lines.append(f"{len(self._unplanned)} activations with {size} bytes were kept that the plan does not keep: {names}")
        return "\n".join(lines)

    def begin(self, model):
        import torch

        if self._open is None and torch.is_grad_enabled() and not torch.compiler.is_compiling() and not _is_capturing(torch):
            opened = _Pass(torch, self, model)
            opened.__enter__()
            self._open = opened
        elif self._open is not None:
            if not self._open.is_own():
                raise OmniheapError("the model runs in another thread, and its pass follows the plan; let each thread have a copy of the model, and apply the plan to each")
            self._open.depth += 1

    def _leave(self, model, arguments, result):
        if self._open is None or not self._open.is_own():
            return
        if self._open.depth:
            self._open.depth -= 1
            return
        open, self._open = self._open, None
        open.__exit__(None, None, None)
        has_failed = result is None
        if self._wanted and not open.found and not has_failed:
            raise OmniheapError("nothing of the plan was found in this model; plan a step that calls this module itself, not one around it")
        self._missing = [each for each in self._wanted if each not in open.found]
        self._unplanned = open.unplanned()
        if not has_failed:
            self.track = open.track()
        size = sum(size for _, size in self._unplanned)
        self._figures.update(missing=len(self._missing), unplanned=len(self._unplanned), unplanned_bytes=size)
        if not has_failed:
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

    def ran_again(self, size):
        self._figures["recomputed_bytes"] += size
        self._figures["operators_run_again"] += 1


class _Enter:
    """The hook that begins a pass; a class, so that it is recognised."""

    def __init__(self, applied):
        self._applied = applied

    def __call__(self, model, _):
        self._applied.begin(model)


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


class _Step:
    """What a pass does at one operator: what the plan says of it, whether it is noted, to run again, and bytes that stay against the plan."""

    __slots__ = ("function", "planned", "is_noted", "is_quiet", "unplanned")

    def __init__(self, function, planned=None, is_noted=False, overwrites=False):
        self.function, self.planned, self.is_noted, self.unplanned = function, planned, is_noted, 0
        # Nothing is to be done but to run it.
        self.is_quiet = not (is_noted or overwrites or (planned is not None and planned.outputs))


class _Visit:
    """A call of a module in a pass: its steps, `start` to `end`, the number of visits when it ended, and whether autograd saved something in it that the plan drops."""

    __slots__ = ("module", "start", "end", "last", "is_quiet", "saves")

    def __init__(self, module, start):
        self.module, self.start, self.end, self.last, self.is_quiet, self.saves = module, start, start, 0, False, False


class _Track:
    """The steps and visits of a pass.

    To find an operator in a plan takes longer than to launch its kernel. Passes are alike, so the next one only compares operators, and
    looks at none in visits in which there is nothing to do.
    """

    def __init__(self):
        self.steps, self.visits = [], []

    def finish(self):
        """Finds the visits in which there is nothing to do."""
        busy = [0]
        for step in self.steps:
            busy.append(busy[-1] + (not step.is_quiet))
        for visit in self.visits:
            visit.is_quiet = visit.start < visit.end and busy[visit.start] == busy[visit.end]


class _Pass:
    """One forward pass of the model: it follows the track of an earlier one, or looks for its operators in the plan and makes a track."""

    def __init__(self, torch, applied, model):
        self._torch, self._applied, self._model, self.depth = torch, applied, model, 0
        self._thread = threading.get_ident()
        # Results of the plan that autograd saved.
        self.found = set()
        # Names of calls, which take longer to make than to run their modules: until somebody asks, modules are noted as they begin, and None as they end.
        self._calls, self._begun, self._inside, self._matches = None, [], 0, None
        self._track, self._own, self._is_new = applied.track, [], applied.track is None
        # Of the track: its next step and visit, and how many modules deep the pass is in a visit in which nothing is to be done.
        self._next, self._visited, self._resting = 0, 0, 0
        # Whether autograd saves without asking meanwhile.
        self._is_unasked = False
        # Visits of a new track that have not ended.
        self._entered = []
        # By storage: what stands for its bytes; and who made them, of those that autograd has not saved so far.
        self._nodes, self._made = {}, {}
        self._moves = applied._moves
        self._mode = _mode(torch)(self)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        if self._is_new:
            self._track = _Track()
            self._look_for_operators()

    def track(self):
        """What the next pass follows: nothing after one that differed from its track."""
        if self._is_new:
            self._track.finish()
        return self._track if self._is_new or self._matches is None else None

    def unplanned(self):
        """What autograd saved that the plan does not keep: operators and bytes."""
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
        # The hooks were asked for this one already.
        self._begins(self._model)

    def is_own(self):
        """Whether this is the thread of the pass: hooks of modules are called by all threads."""
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
        if self._resting:
            self._resting += 1
        elif self._is_new:
            visit = _Visit(module, len(self._track.steps))
            self._entered.append(visit)
            self._track.visits.append(visit)
        elif self._matches is None:
            self._visit(module)

    def _visit(self, module):
        """Enters a module as the track has it."""
        visit = self._track.visits[self._visited] if self._visited < len(self._track.visits) else None
        if visit is None or visit.module is not module or visit.start != self._next:
            self._look_for_operators()
            return
        self._visited += 1
        if visit.is_quiet and _is_innermost(self._torch, self._mode):
            self._mode.__exit__(None, None, None)
            self._next, self._visited, self._resting = visit.end, visit.last, 1
            self._is_unasked = not visit.saves and self._is_asked_first()
            if self._is_unasked:
                self._hooks.__exit__(None, None, None)

    def _is_asked_first(self):
        """Whether autograd asks this pass about what it saves, and no hooks of the model."""
        top = self._torch._C._autograd._top_saved_tensors_default_hooks(False)
        return top is not None and top[0] is self._hooks.pack_hook

    def _leaves(self, *_):
        if not self._inside or not self.is_own():
            return
        self._ends()
        if self._resting:
            self._resting -= 1
            if not self._resting:
                self._mode.__enter__()
                if self._is_unasked:
                    self._hooks.__enter__()
        elif self._entered:
            visit = self._entered.pop()
            visit.end, visit.last = len(self._track.steps), len(self._track.visits)

    def __exit__(self, *error):
        for hook in self._watch:
            hook.remove()
        self._hooks.__exit__(*error)
        self._mode.__exit__(*error)
        # Autograd holds this by its hooks until the backward pass is over; nodes live as long as somebody wants them.
        self._nodes, self._made, self._mode, self._hooks, self._watch = {}, {}, None, None, []
        self._moves.finish()

    def run(self, function, arguments, options):
        """Runs an operator, and notes it if the plan says so."""
        if self._matches is None:
            steps, at = self._track.steps, self._next
            if at < len(steps) and steps[at].function is function:
                self._next, step = at + 1, steps[at]
                return function(*arguments, **options) if step.is_quiet else self._follow(step, arguments, options)
            self._look_for_operators()
        return self._find(function, arguments, options)

    def _look_for_operators(self):
        """From here on there is no track."""
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
        if step.planned is not None and step.planned.outputs:
            for number, tensor in self._results(result):
                self._note_choice(step.planned, call, number, tensor.untyped_storage())
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
        step = _Step(function, planned, call is not None, self._overwrites(function, arguments))
        self._add(step)
        for number, tensor in results:
            storage = tensor.untyped_storage()
            self._made[storage._cdata] = weakref.ref(storage), step, number
            if planned is not None:
                self._note_choice(planned, call, number, storage)
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
        self._forget_written(function, arguments)
        return call, result

    def _results(self, result):
        """The tensors of a result that are bytes of a storage, with their numbers."""
        return [(number, each) for number, each in enumerate(_leaves(result)) if isinstance(each, self._torch.Tensor) and _is_plain(each)]

    def _note_choice(self, planned, call, number, storage):
        """Notes what the plan does with the bytes of a result."""
        choice = planned.outputs.get(number)
        if choice is not None and (call is not None or choice == MOVE):
            node = _Node(self._applied, planned, choice, call, number, storage)
            self._nodes[storage._cdata] = node
            if call is not None:
                call.made.append(weakref.ref(node))

    def _written(self, function, arguments):
        """The tensors that an operator writes to."""
        given = (arguments[number] for number in _operators.written(function) if number < len(arguments))
        return [each for each in given if isinstance(each, self._torch.Tensor)]

    def _overwrites(self, function, arguments):
        """Whether an operator writes to something else than the model's own tensors."""
        return any(not self._calls.holds(each) for each in self._written(function, arguments))

    def _forget_written(self, function, arguments):
        """What was written over is not there any more, though its storage is."""
        for each in self._written(function, arguments):
            node = self._nodes.pop(each.untyped_storage()._cdata, None)
            if node is not None:
                node.reference = _gone

    def node(self, tensor):
        """What stands for the bytes of a tensor; None where those stay."""
        if tensor.layout is not self._torch.strided:
            return None
        storage = tensor.untyped_storage()
        node = self._nodes.get(storage._cdata)
        # A storage that is gone may have left its identity to another one.
        return node if node is not None and node.reference() is storage and _is_plain(tensor) else None

    def _pack(self, tensor):
        # What follows are no operators of the model.
        with self._torch._C._DisableTorchDispatch():
            return self._packed(tensor)

    def _packed(self, tensor):
        node = self.node(tensor)
        for visit in self._entered if node is not None else ():
            visit.saves = True
        if node is None or node.choice not in (RECOMPUTE, MOVE):
            if node is not None:
                node.held = tensor.detach()
            self._keeps(tensor)
            return _Kept(tensor)
        self.found.add((node.planned, node.number))
        if node.choice == RECOMPUTE:
            return _Recomputed(node, tensor)
        kept = self._moves.pack(tensor)
        if isinstance(kept, _Part):
            node.entry, node.held = kept.entry, None
        else:
            node.held = tensor.detach()
            self._keeps(tensor)
        return kept

    def _keeps(self, tensor):
        """Autograd keeps a tensor: counts its bytes if the pass made them and the plan does not have them."""
        if not self._made or not _is_plain(tensor):
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
    """Whether a mode is the one that is asked first."""
    depth = torch._C._len_torch_dispatch_stack()
    return depth > 0 and torch._C._get_dispatch_stack_at(depth - 1) is mode


def _leaves(result):
    if not isinstance(result, (tuple, list, dict)):
        return (result,)
    if not any(isinstance(each, (tuple, list, dict)) for each in result):
        return result
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(result)


class _Node:
    """The bytes of a storage that the plan drops: results between operators, activations to recompute, and those that move."""

    __slots__ = ("planned", "choice", "call", "number", "size", "reference", "wanted", "entry", "held", "_back", "_applied", "__weakref__")

    def __init__(self, applied, planned, choice, call, number, storage):
        self._applied, self.planned, self.choice = applied, planned, choice
        self.call, self.number, self.size = call, number, storage.nbytes()
        self.reference, self.wanted = weakref.ref(storage), 0
        self.entry = self.held = self._back = None

    def here(self):
        """The bytes, if they need not be computed."""
        if self._back is not None:
            return self._back
        if self.held is not None:
            return self.held.untyped_storage()
        return self.entry.storage() if self.entry is not None else self.reference()

    def is_kept(self):
        """Whether the bytes stay, once they are computed, until the backward pass has used them."""
        return self.choice == RECOMPUTE and self.wanted > 0

    def keep(self, storage):
        if storage.nbytes() != self.size:
            raise OmniheapError(f"{self.call.function} returned {storage.nbytes()} bytes the first time and {self.size} now; leave it out of the plan, and report this")
        self._back = storage
        self._applied.ran_again(self.size)

    def storage(self):
        """The bytes, computed if they are not there. What they are computed from comes first, without recursion."""
        waiting = [self]
        while waiting:
            node = waiting[-1]
            before = [] if node.here() is not None else [each for each in node.call.kept_before() if each.here() is None]
            if before:
                waiting += before
                continue
            waiting.pop()
            if node.here() is None:
                node.call.run({})
        return self.here()

    def was_used(self, is_first):
        self.wanted -= is_first
        if self.wanted == 0:
            self._back = None


class _Call:
    """A call that can be made again: tensors whose bytes are dropped stand for themselves by a node."""

    def __init__(self, torch, owner, function, arguments, options):
        self.made, self._views = [], []
        function, arguments = _operators.again(function, arguments)
        self._torch, self.function, self._owner = torch, function, owner
        self._arguments = [self._note(each) for each in arguments]
        self._options = {name: self._note(each) for name, each in options.items()}
        self._owner = self._random = None
        if _operators.kind(function) == _operators.RANDOM:
            self._device = next(each.device for each in (*arguments, *options.values()) if isinstance(each, torch.Tensor))
            self._random = _random_state(torch, self._device)

    def _note(self, each):
        """What stands for an argument: operators take tensors, lists of them, and what stays as it is."""
        if isinstance(each, self._torch.Tensor):
            noted = _note(self._owner, each)
            if isinstance(noted, _View):
                self._views.append(noted)
            return noted
        if isinstance(each, (list, tuple)) and any(isinstance(one, self._torch.Tensor) for one in each):
            return _List([self._note(one) for one in each])
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
        """Makes the call; gives its results to the nodes that keep them, and to `between`, by identity."""
        torch = self._torch
        arguments = [self._value(each, between) for each in self._arguments]
        options = {name: self._value(each, between) for name, each in self._options.items()}
        with torch.no_grad(), torch._C._DisableAutocast():
            if self._random is None:
                result = self.function(*arguments, **options)
            else:
                with _random(torch, self._device, self._random):
                    result = self.function(*arguments, **options)
        results = _leaves(result)
        for reference in self.made:
            node = reference()
            if node is None:
                continue
            storage = results[node.number].untyped_storage()
            between[id(node)] = storage
            if node.is_kept() and node.here() is None:
                node.keep(storage)


def _note(owner, tensor):
    node = owner.node(tensor)
    if node is None:
        return _Held(tensor)
    if node.call is None and node.entry is None:
        # Nothing computes it again: it stays here until autograd has saved it, and it moves.
        node.held = tensor.detach()
    return _View(node, tensor)


class _List(list):
    """Stands for a list of tensors."""


class _Held:
    """A tensor that stays. Below autograd a tensor without history has a version of its own, so the original is asked."""

    def __init__(self, tensor):
        self._tensor, self._original, self._version = tensor.detach(), weakref.ref(tensor), tensor._version

    def tensor(self):
        original = self._original()
        if original is not None:
            _check_version(original, self._version)
        return self._tensor


class _View:
    """A tensor over the bytes of a node."""

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

    def __init__(self, node, tensor):
        self._node, self._version, self._is_first = node, tensor._version, True
        self._view = _View(node, tensor)
        # Has the tensor's version and none of its bytes.
        self._witness = tensor.detach()
        self._witness.data = tensor.new_empty(0)
        node.wanted += 1

    def tensor(self):
        import torch

        _check_version(self._witness, self._version)
        if not self._is_first:
            # The graph is retained: its bytes are computed for each pass.
            self._node.wanted += 1
        self._node.storage()
        tensor = self._view.tensor(torch, {})
        self._node.was_used(True)
        self._is_first = False
        return tensor


def _random_state(torch, device):
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(torch, device, state):
    torch.cuda.set_rng_state(state, device) if device.type == "cuda" else torch.set_rng_state(state)


class _random:
    """Has the random generator repeat itself, and go on afterwards as if it had not."""

    def __init__(self, torch, device, state):
        self._torch, self._device, self._state = torch, device, state

    def __enter__(self):
        self._now = _random_state(self._torch, self._device)
        _set_random_state(self._torch, self._device, self._state)

    def __exit__(self, *_):
        _set_random_state(self._torch, self._device, self._now)

"""Records one training or inference step operator by operator, on fake tensors: no GPU is needed and nothing is computed.

A dispatch mode sees every operator below autograd. Storages are born when an operator returns one that is new, and die when
their weak reference does. On fake tensors the autograd engine would ask a driver for streams, so it is told that tensors are
of the device "meta"; everything that Python sees has the device that the program asked for.
"""

import contextlib
import functools
import gc
import importlib
import os
import threading
import weakref

from .._library import OmniheapError
from . import _fakes, _ranks, _requests, _upstream
from ._devices import Gpu, local
from ._ledger import Ledger, Lives, dtype_of, type_of
from ._operators import written
from ._steps import call
from ._trace import Writer
from ._values import Values
from ._workspaces import Known, Meter, Workspaces, parts

# Held while a step is recorded: functions of PyTorch are replaced meanwhile, for all threads.
_RECORDS = threading.Lock()


class Recording:
    """A recorded step, and the place of its file."""

    def __init__(self, path, ledger, leaked, unknown=()):
        self.path, self.allocations, self.peak_live_bytes, self.leaked_bytes = path, ledger.allocations, ledger.peak_live_bytes, leaked
        # Sentences about what is not known of the GPU.
        self.unknown = list(unknown)
        # Only requests to an allocator are compared.
        self.is_regular = isinstance(ledger, _requests.Requests) and ledger.is_regular

    def __repr__(self):
        return f"Recording({self.path!r}, allocations={self.allocations}, peak_live_bytes={self.peak_live_bytes}, leaked_bytes={self.leaked_bytes})"


def record_step(step, path="step.omt", *, fake=True, device="cuda:0", steps=2, world=None, workspaces=None, labels=True, gpu=None):
    """Records what a step allocates into a trace that `omniheap fit` reads.

    step: a function without arguments. With fake=True it makes the model, its optimizer and its data itself, because whatever
        exists already is not fake. If it returns a function, that one is the step and is called `steps` times; the first
        call then shows what an optimizer makes once, the second what every later step does.
    path: the file to write.
    fake: run on fake tensors, which have shapes and no bytes.
    device: the device whose memory is recorded.
    world: run as rank 0 of a process group of so many ranks, which sends nothing. The step shards its model itself, by
        `omniheap.fit.shard` or PyTorch's own functions; the buffers of gathers and reductions are then events like all others.
    workspaces: a file of `measure_workspaces`, or what it returned: what kernels take inside of operators is added to the fake step.
    gpu: the name of the GPU that a fake step is about. By default the one that `workspaces` were measured on, or the one that is here. What is not known of
        it is left out, or taken as on another, and `Recording.unknown` says so: the rules of this package were measured on an "NVIDIA H200".
    labels: False, with fake=False, records only the requests to PyTorch's allocator: without labels, with kernels' workspaces, at the step's
        usual speed.

    One step is recorded at a time: functions of PyTorch are replaced meanwhile, for all threads.
    """
    return record(step, path, fake, device, steps, world, workspaces, labels, gpu)


def record(step, path, fake=True, device="cuda:0", steps=2, world=None, workspaces=None, labels=True, gpu=None, is_regular=False):
    """As `record_step`. is_regular, without labels: the second step is written as the first one without what it left, and not run."""
    torch, device = _asked(step, steps, fake, device, labels)
    writer = Writer(path, f"omniheap.fit.record_step, PyTorch {torch.__version__}, {'fake' if fake else 'real'}")
    try:
        ledger = Ledger(writer) if labels else _requests.Requests(writer)
        gpu, known = _known(torch, ledger, fake, device, workspaces, gpu)
        with _ranks.group(torch, world):
            if labels:
                leaked = _run(torch, step, ledger, gpu, device, steps, workspaces=known)
                if known is not None:
                    known.ends()
            else:
                with _undisturbed():
                    leaked = _requests.run(torch, step, ledger, device, 1 if is_regular else steps, is_regular)
        if not ledger.allocations:
            raise OmniheapError(f"the step allocates nothing on {device}; move the model and its inputs there, inside of the step")
        if labels:
            ledger.finish()
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return Recording(os.fspath(path), ledger, leaked, gpu.unknown() if gpu is not None else ())


def measure_workspaces(step, path, *, device="cuda:0", steps=2):
    """Runs a step on the GPU and writes what its operators took inside to a file, for `record_step(..., workspaces=path)`: a `Workspaces`.

    step, device, steps: as for `record_step` with fake=False. A file that exists gets what is new, and the larger where both know an operator:
    measure two batches, and those of other batches follow. One file is about one GPU and one version of PyTorch. Its fixed bytes are the
    driver's figure for the whole GPU less PyTorch's: measure on one that no other process uses.
    """
    torch, device = _asked(step, steps, False, device)
    found = Workspaces(torch.cuda.get_device_name(device), _upstream.version(torch))
    # A file of another device is refused before the step runs.
    before = Workspaces.load(path).merged_with(found) if os.path.exists(path) else found
    meter = Meter(torch, device, found)
    with meter.reading():
        _run(torch, step, Ledger(Lives()), None, device, steps, workspaces=meter)
    free, whole = torch.cuda.mem_get_info(device)
    found.fixed_bytes = whole - free - torch.cuda.memory_reserved(device)
    merged = before.merged_with(found)
    merged.save(path)
    return merged


def _asked(step, steps, fake, device, labels=True):
    """PyTorch, and the device with its number; what makes no sense is refused."""
    if not callable(step):
        raise OmniheapError(f"step is {step!r}; pass a function without arguments")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise OmniheapError(f"steps is {steps!r}; pass a whole number from 1 on")
    if fake and not labels:
        raise OmniheapError("labels=False is about steps that run on a GPU; pass fake=False too")
    torch = _upstream.pytorch()
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError):
        raise OmniheapError(f"device is {device!r}; pass a device of PyTorch, such as 'cuda:0' or 'cpu'") from None
    return torch, torch.device("cuda", 0) if device.type == "cuda" and device.index is None else device


def _known(torch, ledger, fake, device, workspaces, name):
    """The GPU of a fake step, and workspaces to add to it; none of a real step, which shows its own."""
    if not fake:
        if workspaces is not None or name is not None:
            raise OmniheapError("workspaces are added to fake steps, gpu names what they stand for, and this one runs on the device; leave them out, or pass fake=True")
        return None, None
    workspaces = Workspaces.of(workspaces)
    gpu = Gpu.of(torch, device, workspaces, name)
    return gpu, Known(torch, ledger, workspaces, gpu) if device.type == "cuda" or workspaces is not None else None


def _run(torch, step, ledger, gpu, device, steps, program=None, workspaces=None):
    """Runs the step under the recorder; returns the bytes by which the last call left more behind than the one before.

    gpu: the one that fake tensors stand for; None for a real step.
    program: a `_program.Program`, which is told of every operator and gets what autograd saves.
    workspaces: a `_workspaces.Meter`, which measures them, or `Known`, which adds those that were measured.
    """
    with _undisturbed():
        recorder = _recorder(torch)(ledger, gpu is not None, device, program, workspaces)
        try:
            with contextlib.ExitStack() as stack:
                if gpu is not None:
                    stack.enter_context(_fakes.faked(torch, device, ledger, gpu))
                stack.enter_context(recorder.watching())
                stack.enter_context(_fakes.explained(torch))
                stack.enter_context(recorder)
                if program is not None:
                    stack.enter_context(torch.autograd.graph.saved_tensors_hooks(program.pack, program.unpack))
                made = step()

                def begin(number):
                    # The first step may make what others do not, such as an optimizer's state: a trace of it alone is not repeated.
                    if number:
                        ledger.begin_step()
                    if program is not None:
                        program.begin()

                leaked = call(made, steps, begin, lambda: ledger.live_bytes)
                recorder.stop()
                del made
        finally:
            # Tensors of a step that failed die later, when nobody writes any more.
            recorder.stop()
    return leaked


@contextlib.contextmanager
def _undisturbed():
    """One recording at a time, without the collector of cycles: it would find them at other operators each time, and traces of two batches must match."""
    if not _RECORDS.acquire(blocking=False):
        raise OmniheapError("a step is being recorded already; record one after the other, or each in a process of its own")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Young generations only: a full collection takes a third of a recording.
        gc.collect(1)
        if was_enabled:
            gc.enable()
        _RECORDS.release()


def _recorder(torch):
    """The dispatch mode; a function, because its base class is PyTorch's."""
    from torch.utils import _pytree as pytree
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, is_traceable_wrapper_subclass_type as is_wrapper

    aten = torch.ops.aten
    asks_device = torch.ops.prim.device.default
    meta = torch.device("meta")
    copies = (aten.clone.default, aten._to_copy.default)
    indexes = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
    asks_number = aten._local_scalar_dense.default
    # Operators whose results, or their shapes, depend on values.
    shaped = {aten.nonzero.default, aten.masked_select.default, aten.equal.default, aten.repeat_interleave.Tensor, aten.bincount.default, aten._unique2.default, aten.unique_consecutive.default, aten._ctc_loss.Tensor, aten._ctc_loss_backward.Tensor}
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    # In C++: compilers have others in Python.
    is_composite = functools.lru_cache(maxsize=None)(lambda function: getattr(function, "namespace", None) == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), composite))

    class Recorder(TorchDispatchMode):
        supports_higher_order_operators = True

        def __init__(self, ledger, fake, device, program, workspaces):
            super().__init__()
            self._ledger, self._fake, self._device, self._program, self._workspaces = ledger, fake, device, program, workspaces
            # Modules may be made and dropped in each step.
            self._references, self._modules, self._parameters, self._roots = {}, weakref.WeakKeyDictionary(), {}, 0
            self._stack, self._optimizer, self._paths = [], None, {}
            self._stopped = False
            # A sum of gradients that may have the bytes of its first part: that one's key, and the birth that waits.
            self._sum = None
            # Elements of tensors of the host that have values, at most. Where the host is the device, single numbers decide, and the rest is fake.
            self._valued_elements = (_fakes.SMALL if device.type != "cpu" else 1) if fake else 0
            self._values = Values(torch, device) if fake and device.type != "cpu" else None

        def stop(self):
            """Ends the recording: what dies from now on lives to the end of the trace."""
            self._settle()
            self._stopped = True

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            options = options or {}
            if any(is_wrapper(each) for each in types):
                # A DTensor runs operators on its own part, which are seen then.
                return NotImplemented
            if torch.is_inference_mode_enabled() and is_composite(function):
                # Without autograd nobody has taken it apart.
                with self:
                    return function._op_dk(composite, *arguments, **options)
            if self._values is not None:
                if function is asks_device:
                    known = arguments[0].fake_device
                    return meta if known.type == self._device.type else known
                if function is asks_number and (number := self._values.number(arguments[0], lambda: _fakes.place(torch))) is not None:
                    return number
                if options.get("device") is not None and options["device"].type == "meta":
                    options = {**options, "device": self._device}
                if function is aten._to_copy.default and self._is_same(arguments[0], options):
                    return self.__torch_dispatch__(aten.alias.default, types, arguments[:1])
                if function in indexes:
                    arguments = (arguments[0], [part for each in arguments[1] for part in self._index(each)], *arguments[2:])
            if self._workspaces is not None and not self._stopped:
                self._workspaces.begins()
            result = self._valued(function, types, arguments, options) if self._valued_elements else function(*arguments, **options)
            if not self._stopped:
                self._ran(function, arguments, options, result)
                if self._program is not None:
                    self._program.ran(function, arguments, options, result, torch._C._current_autograd_node() is not None)
            return result

        def _valued(self, function, types, arguments, options):
            """Runs an operator. Small tensors that the host makes have values: programs decide by them, such as by rates of layers or a shuffled order."""
            written = arguments[0] if arguments and torch.Tag.nondeterministic_seeded in getattr(function, "tags", ()) else None
            constant = getattr(written, "constant", None)
            if self._values is not None and function is aten._to_copy.default:
                # Of the device, too.
                constant = self._values.of(arguments[0])
            result = self._made(function, arguments, options)
            if self._values is not None:
                self._values.ran(function, arguments, options, result)
            # Without types there are no tensors among the arguments.
            if (constant is not None or not types) and isinstance(result, FakeTensor) and result.constant is None and result.device.type == "cpu" and result.numel() <= self._valued_elements:
                with _disable_current_modes():
                    result.constant = function(*(arguments if constant is None else (constant, *arguments[1:])), **options)
                result.fake_mode.fake_tensor_converter.add_constant_storage_mapping(result)
            return result

        def _made(self, function, arguments, options):
            """Returns what an operator returns."""
            if self._values is not None and _writes_alone(function) and self._values.writes_here(function, arguments, options):
                return None
            is_shaped = self._values is not None and function in shaped and self._values.is_here((arguments, options))
            result = self._values.shaped(function, arguments, options) if is_shaped else None
            return result if result is not None else function(*arguments, **options)

        def _index(self, each):
            """An index of a tensor, as those that kernels take."""
            if isinstance(each, FakeTensor) and each.dtype == torch.bool and self._values.of(each) is not None:
                places = self.__torch_dispatch__(aten.nonzero.default, (FakeTensor,), (each,))
                return self.__torch_dispatch__(aten.unbind.int, (FakeTensor,), (places, 1))
            if type(each) is not torch.Tensor or each.device != meta:
                return (each,)
            # C++ makes one of a list on the device that it is told, which is real and has no bytes.
            return (self.__torch_dispatch__(aten.empty.memory_format, (), (each.shape,), {"dtype": each.dtype, "device": self._device}),)

        def _is_same(self, tensor, options):
            """Returns True if a copy to a device would not be made, were the tensor's device known where that is decided."""
            wanted, others = options.get("device"), {"device", "dtype", "non_blocking", "layout", "pin_memory"}
            is_there = wanted is not None and wanted.type == tensor.device.type and wanted.index in (None, tensor.device.index)
            is_same_type = options.get("dtype") in (None, tensor.dtype)
            return is_there and is_same_type and not any(value is not None for name, value in options.items() if name not in others)

        def _ran(self, function, arguments, options, result):
            self._settle()
            ledger = self._ledger
            node = torch._C._current_autograd_node()
            ledger.tick()
            ledger.enters(node is not None)
            path = self._path(node)
            gathers = node.variable if node is not None and hasattr(node, "variable") else None
            # Once: operators of optimizers have all parameters.
            given = functools.lru_cache(maxsize=None)(lambda: {each.untyped_storage()._cdata for each in self._here(arguments)})
            for tensor in self._here(result):
                self._sees(tensor, function, arguments, given, path, node, gathers)
            if self._workspaces is not None and self._is_here((arguments, result)):
                self._workspaces.ran(function, arguments, options, result, path, node is not None)

        def _is_here(self, given):
            return any(isinstance(each, torch.Tensor) and each.device == self._device for each in pytree.tree_leaves(given))

        def _here(self, given):
            """The tensors of the device that have bytes: sparse ones have those of their parts."""
            here = [each for each in pytree.tree_leaves(given) if isinstance(each, torch.Tensor) and each.device == self._device]
            return [part for each in here for part in parts(torch, each)]

        def _sees(self, tensor, function, arguments, given, path, node, gathers):
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            life = self._ledger.get(key)
            # An operator's arguments were there before the recording began.
            if life is None and size and key not in given():
                life = self._born(storage, key, size, tensor, function, arguments, given, path, node)
            elif life is not None:
                self._ledger.resized(key, size)
            if gathers is not None and life is not None and life.category in ("temporary", "activation"):
                owner = self._parameters.get(id(gathers))
                if owner is not None:
                    self._ledger.becomes(key, "gradient", owner[:-1], owner[-1], type_of(gathers))

        def _born(self, storage, key, size, tensor, function, arguments, given, path, node):
            # A copy from the host reads nothing of the device.
            is_input = not self._stack and node is None and not self._optimizer and not given()
            is_forward = node is None and not self._optimizer and not is_input
            category = "input" if is_input else "activation" if is_forward else "temporary"
            self._references[key] = weakref.ref(storage, lambda _: self._died(key))
            marks = ["optimizer"] if self._optimizer else []
            if function in copies and _changes_layout(torch, arguments[0], tensor):
                marks.append("layout")
            birth = (key, size, category, path, str(function), dtype_of(tensor), is_forward, marks)
            if self._fake and node is not None and function is aten.add.Tensor and not hasattr(node, "variable"):
                first = arguments[0].untyped_storage()
                # One for the tensor, and one for this name.
                if first.nbytes() == size and torch._C._storage_Use_Count(first._cdata) == 2:
                    # Autograd adds into the first part where nobody else has it, but never into a fake tensor: that dies now instead.
                    self._sum = (first._cdata, birth)
                    return None
            return self._ledger.born(*birth)

        def _settle(self):
            """The first part of a sum lives on: the sum has bytes of its own."""
            if self._sum is not None:
                (_, birth), self._sum = self._sum, None
                self._ledger.born(*birth)

        def _died(self, key):
            self._references.pop(key, None)
            if self._sum is not None and self._sum[0] == key:
                (_, (sum, *_)), self._sum = self._sum, None
                self._ledger.moved(key, sum)
            elif not self._stopped:
                self._settle()
                self._ledger.died(key)

        def _path(self, node):
            """The module that an operator runs for: the innermost one, or in a backward pass the one that made the node."""
            if self._stack:
                path = self._stack[-1]
            elif self._optimizer:
                return (self._optimizer,)
            elif node is not None:
                return self._paths.get(node._sequence_nr(), ())
            else:
                path = ()
            made = torch.autograd._get_sequence_nr() - 1
            if node is not None:
                # A checkpoint runs forward inside of a backward pass, on numbers that were given before.
                self._paths[made] = path
            else:
                self._paths.setdefault(made, path)
            return path

        @contextlib.contextmanager
        def watching(self):
            """Follows modules and optimizers."""
            module, optimizer = (importlib.import_module(name) for name in ("torch.nn.modules.module", "torch.optim.optimizer"))
            hooks = [
                module.register_module_forward_pre_hook(self._enters_module),
                module.register_module_forward_hook(self._leaves_module, always_call=True),
                optimizer.register_optimizer_step_pre_hook(self._enters_optimizer),
                optimizer.register_optimizer_step_post_hook(self._leaves_optimizer),
            ]
            resize = torch.UntypedStorage.resize_

            def resized(storage, size):
                # Sharded programs free and take the bytes of gathered parameters this way, which is no operator.
                result = resize(storage, size)
                if not self._stopped:
                    self._ledger.resized(storage._cdata, storage.nbytes())
                return result

            torch.UntypedStorage.resize_ = resized
            try:
                yield
            finally:
                torch.UntypedStorage.resize_ = resize
                for hook in hooks:
                    hook.remove()

        def _enters_module(self, module, _):
            if type(module).__name__ == "OptimizedModule":
                raise OmniheapError("the model is compiled, and its compiler plans memory itself; record the model as it was, or run it under omniheap.torch.enable() and omniheap.torch.trace()")
            if not self._stack or module not in self._modules:
                self._learn(module)
            self._stack.append(self._modules[module])
            if self._program is not None:
                self._program.enters(module)

        def _leaves_module(self, module, _, result):
            self._settle()
            if not self._stack:
                return
            path = self._stack.pop()
            if self._program is not None:
                self._program.leaves()
            # The first number on a path is that of a block; modules inside of it may be numbered as well.
            if path and path[-1].isdigit() and not any(part.isdigit() for part in path[:-1]):
                for tensor in self._here(result):
                    life = self._ledger.get(tensor.untyped_storage()._cdata)
                    if life is not None and life.is_forward:
                        life.marks.add("output")

        def _learn(self, root):
            """Names the modules below one that was called by nobody, and what they hold."""
            above = self._stack[-1] if self._stack else ()
            if root not in self._modules:
                if self._roots or above:
                    above = (*above, type(root).__name__)
                self._roots += 1
            else:
                above = self._modules[root]
            for name, module in root.named_modules():
                self._modules.setdefault(module, above + tuple(filter(None, name.split("."))))
            for category, named in (("parameter", root.named_parameters()), ("buffer", root.named_buffers())):
                for name, tensor in named:
                    path = above + tuple(name.split("."))
                    self._parameters[id(tensor)] = path
                    self._becomes(tensor, category, path[:-1], path[-1])

        def _enters_optimizer(self, optimizer, *_):
            self._optimizer = type(optimizer).__name__
            for number, parameter in enumerate(each for group in optimizer.param_groups for each in group["params"]):
                # Tensors that no module has may be trained as well.
                if id(parameter) not in self._parameters:
                    self._parameters[id(parameter)] = ("parameters", str(number))
                    self._becomes(parameter, "parameter", ("parameters",), str(number))
                    if parameter.grad is not None:
                        self._becomes(parameter.grad, "gradient", ("parameters",), str(number))

        def _leaves_optimizer(self, optimizer, *_):
            self._optimizer = None
            for parameter, state in optimizer.state.items():
                # Some keep what is common to all parameters under a name.
                path = self._parameters.get(id(parameter), ("parameters",))
                for name, value in state.items() if isinstance(state, dict) else [(str(parameter), state)]:
                    for part in pytree.tree_leaves(value):
                        if isinstance(part, torch.Tensor):
                            self._becomes(part, "optimizer", path, name)

        def _becomes(self, tensor, category, path, name):
            for part in parts(torch, local(tensor)):
                self._ledger.becomes(part.untyped_storage()._cdata, category, path, name, type_of(part))

    return Recorder


@functools.lru_cache(maxsize=None)
def _writes_alone(function):
    """Returns True if an operator does nothing but write to what it is given: on fake tensors nothing, and some have no fake kernel."""
    return hasattr(function, "_schema") and not function._schema.returns and bool(written(function))


def _changes_layout(torch, before, after):
    """Returns True if a copy goes between the layouts of images, NCHW and NHWC."""
    if not isinstance(before, torch.Tensor) or before.dim() != 4 or before.shape != after.shape:
        return False
    last = torch.channels_last
    is_last = [each.is_contiguous(memory_format=last) and not each.is_contiguous() for each in (before, after)]
    return is_last[0] != is_last[1]

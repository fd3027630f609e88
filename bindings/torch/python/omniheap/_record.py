"""Records one training or inference step operator by operator, on fake tensors: no GPU is needed and nothing is computed.

A dispatch mode sees every operator below autograd. Storages are born when an operator returns one that is new, and die when
their weak reference does. On fake tensors the autograd engine would ask a driver for streams, so it is told that tensors are
of the device "meta"; everything that Python sees has the device that the program asked for.
"""

import contextlib
import functools
import gc
import importlib
import itertools
import os
import pickle
import sys
import threading
import traceback
import warnings
import weakref

from . import _recurrent, _replicas, _requests
from ._ledger import Ledger, Lives, dtype_of, type_of
from ._library import OmniheapError
from ._operators import written
from ._steps import call
from ._trace import Writer
from ._values import ANY, WHOLE, Values, asking, writes_to
from ._workspaces import Known, Meter, Workspaces, parts, version

# Elements of a tensor of the host that has values.
_SMALL = 1 << 16
# Held while a step is recorded: functions of PyTorch are replaced meanwhile, for all threads.
_RECORDS = threading.Lock()
_REAL = "record it on a GPU with fake=False, or leave it out of the step"


class Recording:
    """What was recorded, and where."""

    def __init__(self, path, ledger, leaked):
        self.path, self.allocations, self.peak_live_bytes, self.leaked_bytes = path, ledger.allocations, ledger.peak_live_bytes, leaked
        # Only requests to an allocator are compared.
        self.is_regular = isinstance(ledger, _requests.Requests) and ledger.is_regular

    def __repr__(self):
        return f"Recording({self.path!r}, allocations={self.allocations}, peak_live_bytes={self.peak_live_bytes}, leaked_bytes={self.leaked_bytes})"


def record_step(step, path="step.omt", *, fake=True, device="cuda:0", steps=2, world=None, workspaces=None, labels=True):
    """Records what a step allocates into a trace that `omniheap fit` reads.

    step: a function without arguments. With fake=True it makes the model, its optimizer and its data itself, because whatever
        exists already is not fake. If it returns a function, that one is the step and is called `steps` times; the first
        call then shows what an optimizer makes once, the second what every later step does.
    path: the file to write.
    fake: run on fake tensors, which have shapes and no bytes.
    device: the device whose memory is recorded.
    world: run as rank 0 of a process group of so many ranks, which sends nothing. The step shards its model itself, by
        `omniheap.torch.shard` or PyTorch's own functions; the buffers of gathers and reductions are then events like all others.
    workspaces: a file of `measure_workspaces`, or what it returned: what kernels take inside of operators is added to the fake step.
    labels: False, with fake=False, records only the requests to PyTorch's allocator: without labels, with kernels' workspaces, at the step's
        usual speed.

    One step is recorded at a time: functions of PyTorch are replaced meanwhile, for all threads.
    """
    return record(step, path, fake, device, steps, world, workspaces, labels)


def record(step, path, fake=True, device="cuda:0", steps=2, world=None, workspaces=None, labels=True, is_regular=False):
    """As `record_step`. is_regular, without labels: the second step is written as the first one without what it left, and not run."""
    torch, device = _asked(step, steps, fake, device, labels)
    writer = Writer(path, f"omniheap.torch.record_step, PyTorch {torch.__version__}, {'fake' if fake else 'real'}")
    try:
        ledger = Ledger(writer) if labels else _requests.Requests(writer)
        known = _known(torch, ledger, fake, device, workspaces)
        with _group(torch, world):
            if labels:
                leaked = _run(torch, step, ledger, fake, device, steps, workspaces=known)
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
    return Recording(os.fspath(path), ledger, leaked)


def measure_workspaces(step, path, *, device="cuda:0", steps=2):
    """Runs a step on the GPU and writes what its operators took inside to a file, for `record_step(..., workspaces=path)`: a `Workspaces`.

    step, device, steps: as for `record_step` with fake=False. A file that exists gets what is new, and the larger where both know an operator:
    measure two batches, and those of other batches follow. One file is about one GPU and one version of PyTorch. Its fixed bytes are the
    driver's figure for the whole GPU less PyTorch's: measure on one that no other process uses.
    """
    torch, device = _asked(step, steps, False, device)
    found = Workspaces(torch.cuda.get_device_name(device), version(torch))
    # A file of another device is refused before the step runs.
    before = Workspaces.load(path).merged_with(found) if os.path.exists(path) else found
    meter = Meter(torch, device, found)
    with meter.reading():
        _run(torch, step, Ledger(Lives()), False, device, steps, workspaces=meter)
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
    torch = _import(fake)
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError):
        raise OmniheapError(f"device is {device!r}; pass a device of PyTorch, such as 'cuda:0' or 'cpu'") from None
    return torch, torch.device("cuda", 0) if device.type == "cuda" and device.index is None else device


def _known(torch, ledger, fake, device, workspaces):
    """Workspaces to add to a fake step; a real step shows its own."""
    if workspaces is not None and not fake:
        raise OmniheapError("workspaces are added to fake steps, and this one runs on the device; leave them out, or pass fake=True")
    return Known(torch, ledger, workspaces) if fake and (device.type == "cuda" or workspaces is not None) else None


@contextlib.contextmanager
def _group(torch, world):
    """A process group of so many ranks, of which this is the first and the others do not exist."""
    if world is None:
        yield
        return
    if isinstance(world, bool) or not isinstance(world, int) or world < 1:
        raise OmniheapError(f"world is {world!r}; pass a number of ranks from 1 on, or None")
    distributed = torch.distributed
    if not distributed.is_available():
        raise OmniheapError(f"PyTorch {torch.__version__} was built without torch.distributed; install a build that has it, or leave world out")
    if distributed.is_initialized():
        raise OmniheapError("a process group exists already; leave world out to record in it, or call torch.distributed.destroy_process_group() first")
    # The module makes the backend known.
    store = importlib.import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
    distributed.init_process_group("fake", store=store, rank=0, world_size=world)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _import(fake):
    try:
        import torch
    except ImportError as error:
        raise OmniheapError(f"PyTorch cannot be imported ({error}); install it, on this machine or on another: traces can be carried") from None
    if fake and not hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        raise OmniheapError(f"PyTorch {torch.__version__} cannot run a fake GPU's backward pass; install a newer version, such as 2.11, or pass fake=False")
    return torch


def _run(torch, step, ledger, fake, device, steps, program=None, workspaces=None):
    """Runs the step under the recorder; returns the bytes by which the last call left more behind than the one before.

    program: a `_program.Program`, which is told of every operator and gets what autograd saves.
    workspaces: a `_workspaces.Meter`, which measures them, or `Known`, which adds those that were measured.
    """
    with _undisturbed():
        recorder = _recorder(torch)(ledger, fake, device, program, workspaces)
        try:
            with contextlib.ExitStack() as stack:
                if fake:
                    stack.enter_context(_faked(torch, device, ledger))
                stack.enter_context(recorder.watching())
                stack.enter_context(_explained(torch))
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
            # What a step that failed had made dies later, when nobody writes any more.
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


@contextlib.contextmanager
def _explained(torch):
    """Says what to do about what fake tensors cannot."""
    from torch._subclasses import fake_tensor

    try:
        yield
    except fake_tensor.DataDependentOutputException as error:
        raise OmniheapError(f"{error.func}{_place(torch, error)} needs a value, and fake tensors have none (.item(), a condition on data); {_REAL}") from error
    except fake_tensor.DynamicOutputShapeException as error:
        raise OmniheapError(f"the shape that {error.func}{_place(torch, error)} returns depends on data, and fake tensors have none; {_REAL}") from error
    except fake_tensor.UnsupportedOperatorException as error:
        raise OmniheapError(f"{error.func}{_place(torch, error)} has no fake kernel; register one with torch.library.register_fake, or {_REAL}") from error
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        if "pickle" not in str(error):
            raise
        raise OmniheapError(f"the step{_place(torch, error)} saves or sends fake tensors, which have no bytes ({error}); leave that out of the step") from error
    except (AssertionError, NotImplementedError, RuntimeError, torch.jit.frontend.FrontendError) as error:
        # Without a fake kernel PyTorch goes on to the driver.
        text = f"{error.__context__ or ''}{error}"
        if "convert all Tensors to FakeTensors" in text or "Mixing fake modes" in text:
            raise OmniheapError(f"the step{_place(torch, error)} uses a tensor that exists already; make the model, the optimizer and the data inside of the step, or pass fake=False") from error
        if "nested_tensor_from_mask" in text:
            raise OmniheapError(f"a TransformerEncoder{_place(torch, error)} makes nested tensors of its padding mask; pass enable_nested_tensor=False to it") from error
        if "register_fake" in text or "no fake impl" in text or "Meta' backend" in text:
            raise OmniheapError(f"an operator has no fake kernel ({text.splitlines()[0]}); register one with torch.library.register_fake, or {_REAL}") from error
        if "no NVIDIA driver" in text or "not compiled with CUDA" in text or "CUDA driver" in text or "No HIP GPUs" in text:
            raise OmniheapError(f"the step{_place(torch, error)} asks the driver itself (its free memory, a device's properties, a generator of random numbers), and there is none; leave that out of the step, or record on a machine that has a GPU") from error
        if "data is not allocated yet" in text or "not supported for tensor subclasses" in text:
            raise OmniheapError(f"C++ code{_place(torch, error)} reads bytes, and fake tensors have none; {_REAL}") from error
        if "shape_env must not be None" in text:
            raise OmniheapError(f"the sizes of a nested tensor{_place(torch, error)} depend on data, and fake tensors have none; {_REAL}") from error
        if "TorchScript" in text or isinstance(error, torch.jit.frontend.FrontendError):
            raise OmniheapError("the model is scripted, and TorchScript runs operators that fake tensors cannot; record the model as it was") from error
        raise


def _place(torch, error=None):
    """The line of the program, or of a package that it uses, that an error is about, or that runs."""
    ours = tuple(os.path.dirname(os.path.abspath(each)) + os.sep for each in (torch.__file__, __file__))
    frames = traceback.extract_stack() if error is None else traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not os.path.abspath(frame.filename).startswith(ours)]
    return f" ({os.path.basename(lines[-1].filename)}, line {lines[-1].lineno})" if lines else ""


@contextlib.contextmanager
def _faked(torch, device, ledger):
    """Fake tensors, and the places of PyTorch that look at types or drivers where a fake tensor of a GPU should pass."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    def swap(one, other):
        # The original refuses tensors with weak references, which every fake one has.
        torch._C._swap_tensor_impl(one, other)
        one.__dict__, other.__dict__ = other.__dict__, one.__dict__

    def copied(tensor, memo):
        # The values of a small tensor of the host are real, and a real tensor is not copied among fake ones.
        values, tensor.constant = tensor.constant, None
        known = tensor.__dict__.pop("known", None)
        try:
            return torch.Tensor.__deepcopy__(tensor, memo)
        finally:
            tensor.constant = values
            if known is not None:
                tensor.known = known

    # By module: the packages above do not show them all.
    named = importlib.import_module
    patches = [
        (torch.utils, "swap_tensors", swap),
        (named("torch.cuda.amp.common"), "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
        (FakeTensor, "is_cuda", property(lambda self: self.fake_device.type == "cuda")),
        # Modules are copied by `deepcopy`, which would copy the mode too, and tensors of two modes do not meet.
        (FakeTensorMode, "__deepcopy__", lambda mode, memo: mode),
        (FakeTensor, "__deepcopy__", copied),
        (FakeTensor, "__format__", lambda self, form: format(self.item() if self.dim() == 0 else repr(self), form)),
        (FakeTensor, "__int__", asking(torch.Tensor.__int__, WHOLE)),
        (FakeTensor, "__float__", asking(torch.Tensor.__float__, ANY)),
        (FakeTensor, "item", asking(torch.Tensor.item, ANY)),
        (FakeTensor, "pin_memory", lambda self, device=None: self),
        # Functions that are scripted know what they were.
        (torch.jit.ScriptFunction, "__call__", lambda self, *given, **options: self._torchdynamo_inline(*given, **options)),
        # It asks whether all is finite, which it is in nearly all steps; and a step that is left out needs less.
        (torch.amp.GradScaler, "_maybe_opt_step", lambda self, optimizer, state, *given, **options: optimizer.step(*given, **options)),
        # It asks whether all parameters are allowed, which they are.
        (torch.distributions.Distribution, "_validate_args", False),
        *_grouped_products(torch),
        *_masks(),
        *_endless(torch),
        *_finite(torch),
        (torch.utils.data.DataLoader, "_get_iterator", _in_this_process(torch)),
        # Workers that persist have one iterator for all passes, which begins anew in them alone.
        (torch.utils.data.DataLoader, "__iter__", lambda self: self._get_iterator()),
    ]
    for owner in (named("torch.optim.optimizer"), named("torch.utils._foreach_utils")):
        patches.append((owner, "_foreach_supported_types", [*owner._foreach_supported_types, FakeTensor]))
    if device.type != "cpu":
        # So that results of small tensors have values too, on the host alone.
        patches += [(named("torch._subclasses.fake_tensor"), "CONSTANT_NUMEL_LIMIT", _SMALL), (FakeTensorMode, "avoid_device_init", True)]
        patches += _gpu_choices(torch, device) + _streams(torch, device, ledger)
    patches += _ranks(torch, ledger)
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        with torch.random.fork_rng([]), _autocast(torch), FakeTensorMode(), warnings.catch_warnings():
            # `deepcopy` looks for bytes, and there are none.
            warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            yield
    finally:
        for owner, name, value in before:
            if value is None:
                # It was inherited.
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _grouped_products(torch):
    """Products of a mixture of experts: kernels take every floating type, and the fake one refuses all but one."""
    owner = importlib.import_module("torch._meta_registrations")
    checked, made = (getattr(owner, name, None) for name in ("_meta_grouped_mm_common", "_create_grouped_mm_output_tensor"))
    if checked is None or made is None:
        return []

    def product(left, right, scale_a=None, scale_b=None, offs=None, bias=None, out_dtype=None, **rest):
        if scale_a is None and left.dtype in (torch.float32, torch.float16):
            return made(left, right, offs, out_dtype)
        return checked(left, right, scale_a, scale_b, offs=offs, bias=bias, out_dtype=out_dtype, **rest)

    return [(owner, checked.__name__, product)]


def _of_transformers(name):
    """A module of Transformers, if the program has imported that: modules are read when they are first used, which may be in the step."""
    name = f"transformers.{name}"
    try:
        return importlib.import_module(name) if "transformers" in sys.modules else sys.modules.get(name)
    except ImportError:
        return None


def _masks():
    """Transformers looks at values: whether a row holds several texts, and whether a mask masks anything. Where it thinks that there are none, it makes all masks."""
    masks = _of_transformers("masking_utils")
    patches = [(masks, "find_packed_sequence_indices", lambda positions: None)] if hasattr(masks, "find_packed_sequence_indices") else []
    if hasattr(masks, "is_tracing"):
        asked = masks.is_tracing
        patches.append((masks, "is_tracing", lambda tensor=None: asked(None if Values.of(tensor) is not None else tensor)))
    return patches


def _endless(torch):
    """Transformers looks whether a text has ended: none does before it is as long as it may be."""
    criteria = _of_transformers("generation.stopping_criteria")
    if not hasattr(criteria, "EosTokenCriteria"):
        return []
    return [(criteria.EosTokenCriteria, "__call__", lambda self, ids, *_, **__: torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device))]


def _finite(torch):
    """Programs ask whether all values are finite, and clamp them if not: they are in nearly all steps. What has values is asked itself."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes

    def asks(original, answer):
        def ask(input):
            result = original(input)
            if isinstance(result, FakeTensor) and Values.of(result) is None:
                result.answer = answer, writes_to(result)
                if result.numel() == 1:
                    with _disable_current_modes():
                        Values.give(result, torch.full(result.shape, answer))
            return result

        return ask

    def answers(original):
        def answered(input, *arguments, **options):
            result, (answer, asked) = original(input, *arguments, **options), getattr(input, "answer", (None, None))
            if answer is not None and writes_to(input) == asked and result.numel() == 1:
                with _disable_current_modes():
                    result.constant = torch.full(result.shape, answer)
                result.fake_mode.fake_tensor_converter.add_constant_storage_mapping(result)
            return result

        return answered

    asked = [(owner, name, asks(getattr(owner, name), answer)) for owner in (torch, torch.Tensor) for name, answer in (("isfinite", True), ("isinf", False), ("isnan", False))]
    return asked + [(owner, name, answers(getattr(owner, name))) for owner in (torch, torch.Tensor) for name in ("all", "any")]


def _in_this_process(torch):
    """Loads data without workers: fake tensors cannot be sent by one process to another. Where there would be some, a dataset is told that it is with the only one."""
    original, loaders, workers = torch.utils.data.DataLoader._get_iterator, torch.utils.data.dataloader, torch.utils.data._utils.worker

    @contextlib.contextmanager
    def worker(info):
        before, workers._worker_info = workers._worker_info, info
        try:
            yield
        finally:
            workers._worker_info = before

    def the_only_worker(dataset):
        return worker(workers.WorkerInfo(id=0, num_workers=1, seed=torch.initial_seed(), dataset=dataset))

    class InThisProcess(loaders._SingleProcessDataLoaderIter):
        def __init__(self, loader):
            super().__init__(loader)
            # In workers, batches are put into memory that processes share.
            self._dataset_fetcher.collate_fn = worker(None)(self._collate_fn)

        def _next_data(self):
            with the_only_worker(self._dataset):
                return super()._next_data()

    def without_workers(loader):
        if loader.num_workers == 0:
            return original(loader)
        before = loader.num_workers, loader.timeout
        loader.num_workers = loader.timeout = 0
        try:
            with the_only_worker(loader.dataset):
                return InThisProcess(loader)
        finally:
            loader.num_workers, loader.timeout = before

    return without_workers


class _Stream:
    """A stream or an event of a device that is not there: everything happens at once, in order."""

    number = 0

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, *_):
        pass

    wait_event = wait = record = wait_stream

    def record_event(self, event=None):
        return event or _Stream()

    def query(self):
        return True


def _streams(torch, device, ledger):
    """Streams, for programs that shard: they copy and compute on several. PyTorch gives memory of one stream to no other."""
    numbers = itertools.count(1)

    class Stream(_Stream):
        def __init__(self, *_, **__):
            self.number = next(numbers)

    def current(device=None):
        stream = _Stream()
        stream.number = ledger.stream
        return stream

    @contextlib.contextmanager
    def on(stream):
        before, ledger.stream = ledger.stream, ledger.stream if stream is None else stream.number
        try:
            yield
        finally:
            ledger.stream = before

    return [
        (torch.cuda, "Stream", Stream),
        (torch.cuda, "Event", _Stream),
        (torch.cuda, "current_stream", current),
        (torch.cuda, "stream", on),
        (torch.cuda, "current_device", lambda: device.index or 0),
        (torch.cuda, "synchronize", lambda device=None: None),
        (torch._C, "_get_accelerator", lambda *_: torch.device(device.type)),
    ]


def _ranks(torch, ledger):
    """What distributed programs ask of real tensors while they are set up, which has nothing to do with the device's memory."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return []
    from torch.utils._python_dispatch import _disable_current_modes

    def apart(original):
        def call(*arguments, **options):
            with _disable_current_modes():
                return original(*arguments, **options)

        return call

    meshes = importlib.import_module("torch.distributed.device_mesh")
    owners = [torch.distributed, meshes, *map(importlib.import_module, ("torch.distributed.fsdp._fully_shard._fsdp_init",))]
    patches = [(owner, "init_device_mesh", apart(meshes.init_device_mesh)) for owner in owners if hasattr(owner, "init_device_mesh")]
    groups = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group").FSDPParamGroup
    # Where C++ is told that tensors are of the device "meta", a DTensor remembers it.
    patches.append((groups, "_validate_no_meta_params", lambda self: None))
    patches += _replicas.patches(torch, ledger)
    # Programs that imported init_device_mesh before have the original, which looks its modules up when it is called.
    patches.append((meshes, "torch", _Apart(torch, apart, ("arange", "tensor", "as_tensor"))))
    asked = ("__init__", "__getitem__", "_flatten", "_unflatten", "get_local_rank", "get_coordinate")
    return [*patches, *((meshes.DeviceMesh, name, apart(getattr(meshes.DeviceMesh, name))) for name in asked if hasattr(meshes.DeviceMesh, name))]


class _Apart:
    """A module, some functions of which are called apart from the modes."""

    def __init__(self, module, apart, names):
        self._module = module
        self.__dict__.update({name: apart(getattr(module, name)) for name in names})

    def __getattr__(self, name):
        return getattr(self._module, name)


# What autocast does on a GPU (PyTorch's list in "Automatic Mixed Precision", and its C++ registrations).
_IN_HALF = """linear matmul mm mv bmm addmm addmv addr addbmm baddbmm chain_matmul linalg_multi_dot linalg_vecdot prelu conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution _convolution _convolution.deprecated cudnn_convolution
    cudnn_convolution_transpose einsum scaled_dot_product_attention _scaled_dot_product_flash_attention _thnn_fused_lstm_cell _thnn_fused_gru_cell
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell""".split()
_IN_FLOAT = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus
    layer_norm native_layer_norm group_norm norm.Scalar norm.ScalarOpt_dim norm.names_ScalarOpt_dim frobenius_norm.dim nuclear_norm nuclear_norm.dim
    linalg_vector_norm linalg_matrix_norm linalg_matrix_norm.str_ord cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa""".split()
_TO_FLOAT = "softmax.int log_softmax.int cumprod cumsum prod prod.dim_int sum sum.dim_IntList".split()
_IN_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()


@contextlib.contextmanager
def _autocast(torch):
    """Autocast's kernels of a GPU in Python: the original ones ask the device, and are told another one."""
    from torch.utils import _pytree as pytree

    key = torch._C.DispatchKey.AutocastCUDA
    cache = {}

    def is_cast(value):
        return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64 and value.device.type == "cuda"

    def cast(value, dtype):
        if isinstance(value, (list, tuple)):
            return type(value)(cast(each, dtype) for each in value)
        if not is_cast(value) or value.dtype == dtype:
            return value
        # As the original: leaves are cast once while the outermost context lasts.
        is_kept = dtype != torch.float32 and value.dtype == torch.float32 and value.requires_grad and value.is_leaf and torch.is_autocast_cache_enabled()
        if not is_kept:
            return value.to(dtype)
        if id(value) not in cache:
            cache[id(value)] = (value, value.to(dtype))
        return cache[id(value)][1]

    def in_type(operator, arguments, options, dtype):
        # The last argument is cast first, as the compiler of PyTorch's wheels orders it: a plan's operators are found by their order.
        options = {name: cast(options[name], dtype) for name in reversed(options)}
        arguments = [cast(value, dtype) for value in reversed(arguments)]
        return operator(*reversed(arguments), **options)

    def in_widest(operator, arguments, options):
        given = [each for each in pytree.tree_leaves((arguments, options)) if is_cast(each)]
        is_wide = any(each.dtype == torch.float32 for each in given)
        return in_type(operator, arguments, options, torch.float32 if is_wide else torch.get_autocast_dtype("cuda"))

    def to_float(operator, arguments, options):
        # These are asked for another result, and read what they are given.
        names = [argument.name for argument in operator._schema.arguments]
        options = {**dict(zip(names[1:], arguments[1:])), **options}
        if arguments[0].dtype in (torch.float16, torch.bfloat16) and options.get("dtype") is None:
            options["dtype"] = torch.float32
        return operator(arguments[0], **options)

    calls = (
        (_IN_HALF, lambda *call: in_type(*call, torch.get_autocast_dtype("cuda"))),
        (_IN_FLOAT, lambda *call: in_type(*call, torch.float32)),
        (_TO_FLOAT, to_float),
        (_IN_WIDEST, in_widest),
    )

    def kernel(operator, run):
        def call(*arguments, **options):
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return run(operator, arguments, options)

        return call

    leave = torch.amp.autocast_mode.autocast.__exit__

    def leaves(self, *rest):
        result = leave(self, *rest)
        if not torch.is_autocast_enabled("cuda"):
            cache.clear()
        return result

    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            # That these kernels replace others for a while is what is wanted.
            warnings.simplefilter("ignore")
            for names, run in calls:
                for name in names:
                    base, _, overload = name.partition(".")
                    packet = getattr(torch.ops.aten, base, None)
                    if packet is not None and (overload or "default") in packet.overloads():
                        operator = getattr(packet, overload or "default")
                        library.impl(name, kernel(operator, run), "AutocastCUDA", allow_override=True)
        torch.amp.autocast_mode.autocast.__exit__ = leaves
        yield
    finally:
        torch.amp.autocast_mode.autocast.__exit__ = leave
        library._destroy()


def _gpu_choices(torch, device):
    """Functions that PyTorch makes of other operators on a GPU than elsewhere, which it decides by the device in C++."""
    functional, aten = torch.nn.functional, torch.ops.aten
    original_ctc_loss = functional.ctc_loss
    halves = (torch.float16, torch.bfloat16)
    # That of an H200 where there is no GPU.
    capability = torch.cuda.get_device_capability(device) if torch.cuda.is_available() else (9, 0)
    # As PyTorch: the order of kernels of attention depends on the GPU, and on a version in which cuDNN's were mended.
    prefers_cudnn = capability[0] in (9, 10) and (torch.backends.cudnn.version() or 0) > 91500 and not os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"

    def dropout(input, p=0.5, training=True, inplace=False):
        if not training or inplace or not 0.0 < p < 1.0:
            return NotImplemented
        return torch.native_dropout(input, p, True)[0]

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if query.dim() != 4 or key.size(-1) != value.size(-1):
            return NotImplemented
        allowed = torch.backends.cuda
        is_half = query.dtype in halves or torch.is_autocast_enabled(device.type)
        is_short = is_half and query.size(-1) % 8 == 0
        # Fused kernels read whole rows, and broadcast nothing but the bias: one that is transposed, for example, is not for them.
        is_read = all(each.stride(-1) == 1 for each in (query, key, value, attn_mask) if each is not None) and query.size(0) == key.size(0) == value.size(0)
        is_trained = attn_mask is not None and attn_mask.requires_grad
        is_cudnn = is_read and not is_trained and prefers_cudnn and allowed.cudnn_sdp_enabled() and is_short and query.size(-1) <= 128 and key.size(2) > 1
        is_flash = is_read and allowed.flash_sdp_enabled() and attn_mask is None and is_half and query.size(-1) <= 256
        is_efficient = is_read and allowed.mem_efficient_sdp_enabled() and (is_short or not is_half and query.dtype == torch.float32 and query.size(-1) % 4 == 0)
        if torch.is_autocast_enabled(device.type):
            value, key, query = (each.to(torch.get_autocast_dtype(device.type)) for each in (value, key, query))
        wants_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
        if is_flash and not is_cudnn:
            return flash(query, key, value, dropout_p, is_causal, scale)
        if enable_gqa and not is_cudnn:
            key, value = (each.repeat_interleave(query.size(-3) // each.size(-3), -3) for each in (key, value))
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        if not is_cudnn and not is_efficient:
            return products(query, key, value, attn_mask, dropout_p, is_causal, scale)
        if attn_mask is not None:
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        if is_cudnn:
            return aten._scaled_dot_product_cudnn_attention(query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, False, scale=scale)[0]
        return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, scale=scale)[0]

    def flash(query, key, value, dropout_p, is_causal, scale):
        """Flash attention, for which rows are padded to 16 bytes."""
        width = query.size(-1)
        if width % 8:
            query, key, value = (functional.pad(each, (0, -width % 8)) for each in (query, key, value))
            scale = width**-0.5 if scale is None else scale
        result = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return result[..., :width] if width % 8 else result

    def products(query, key, value, bias, dropout_p, is_causal, scale):
        """Attention where no fused kernel is allowed, or can read what it is given."""
        dtype, factor = query.dtype, (query.size(-1) ** -0.5 if scale is None else scale) ** 0.5
        with torch.autocast(device.type, enabled=False):
            if dtype in halves and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
                query, key, value = (each.float() for each in (query, key, value))
            query = query * factor
            if is_causal:
                seen = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
                bias = torch.zeros_like(seen, dtype=query.dtype).masked_fill_(seen.logical_not(), float("-inf"))
            scores = query.matmul(key.transpose(-2, -1) * factor)
            if bias is not None:
                # In place for every tensor that is not of a subclass, as fake ones are.
                scores.add_(bias)
            weights = aten._safe_softmax(scores, -1)
            if dropout_p > 0:
                weights = torch.native_dropout(weights, dropout_p, True)[0]
            return weights.matmul(value).to(dtype)

    def linear(input, weight, bias=None):
        is_fused = input.dim() < 3 or input.dim() == 3 and input.is_contiguous()
        is_wrapped = _local(input) is not input or torch._C._functorch.is_functorch_wrapped_tensor(input)
        if bias is None or is_fused or is_wrapped:
            return NotImplemented
        # It is added in place to every tensor that is not of a subclass, as fake ones are.
        product = functional.linear(input, weight)
        return product.add_(bias.to(product.dtype))

    def ctc_loss(input, targets, input_lengths, target_lengths, *arguments, **options):
        # Lengths of the host are given as lists, and the device gets a copy.
        lengths = (torch.as_tensor(each).to(input.device) for each in (input_lengths, target_lengths))
        return original_ctc_loss(input, targets, *lengths, *arguments, **options)

    def rms_norm(input, normalized_shape, weight=None, eps=None):
        return aten._fused_rms_norm(input, list(normalized_shape), weight, eps)[0]

    def instead(original, chosen):
        def call(input, *arguments, **options):
            result = NotImplemented
            if isinstance(input, torch.Tensor) and input.device.type == device.type:
                result = chosen(input, *arguments, **options)
            return original(input, *arguments, **options) if result is NotImplemented else result

        return call

    choices = [(functional, "dropout", dropout), (torch, "dropout", dropout), (functional, "scaled_dot_product_attention", attention), (functional, "linear", linear), (functional, "ctc_loss", ctc_loss)]
    if hasattr(aten, "_fused_rms_norm"):
        choices += [(functional, "rms_norm", rms_norm), (torch, "rms_norm", rms_norm)]
    patches = [(owner, name, instead(getattr(owner, name), chosen)) for owner, name, chosen in (*choices, *_recurrent.choices(torch))]
    if not torch.cuda.is_available():
        # Programs choose kernels by it.
        patches.append((torch.cuda, "get_device_capability", lambda device=None: capability))
    return patches


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
    # What they return, or its shape, depends on values.
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
            self._valued_elements = (_SMALL if device.type != "cpu" else 1) if fake else 0
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
                if function is asks_number and (number := self._values.number(arguments[0], lambda: _place(torch))) is not None:
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
            """What an operator returns."""
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
            """Whether a copy to a device would not be made, were the tensor's device known where that is decided."""
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
            # What an operator was given was there before the recording began.
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
            for part in parts(torch, _local(tensor)):
                self._ledger.becomes(part.untyped_storage()._cdata, category, path, name, type_of(part))

    return Recorder


@functools.lru_cache(maxsize=None)
def _writes_alone(function):
    """Whether an operator does nothing but write to what it is given: on fake tensors nothing, and some have no fake kernel."""
    return hasattr(function, "_schema") and not function._schema.returns and bool(written(function))


def _local(tensor):
    """A rank's own part of a tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def _changes_layout(torch, before, after):
    """Whether a copy goes between the layouts of images, NCHW and NHWC."""
    if not isinstance(before, torch.Tensor) or before.dim() != 4 or before.shape != after.shape:
        return False
    last = torch.channels_last
    is_last = [each.is_contiguous(memory_format=last) and not each.is_contiguous() for each in (before, after)]
    return is_last[0] != is_last[1]

"""Fake tensors, the places of PyTorch and Transformers that look at types, drivers or values where a fake tensor should pass, and what cannot be done without bytes."""

import contextlib
import importlib
import os
import pickle
import sys
import traceback
import warnings

from .._library import OmniheapError
from . import _autocast, _devices, _ranks
from ._values import ANY, WHOLE, Values, asking, writes_to

# Elements of a tensor of the host that has values.
SMALL = 1 << 16
_REAL = "record it on a GPU with fake=False, or leave it out of the step"


@contextlib.contextmanager
def faked(torch, device, ledger, gpu):
    """Fake tensors, and what is replaced for them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    replaced = replacements(torch, device, ledger, gpu)
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        with torch.random.fork_rng([]), _autocast.as_on_a_gpu(torch), FakeTensorMode(), warnings.catch_warnings():
            # `deepcopy` looks for bytes, and there are none.
            warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            yield
    finally:
        for owner, name, value in before:
            if value is None:
                # The attribute was inherited.
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def replacements(torch, device, ledger, gpu):
    """Owner, name and value of what stands for functions of PyTorch and Transformers while a step is recorded: in the order in which it is done."""
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
        (FakeTensor, "item", asking(torch.Tensor.item, ANY)),
        (FakeTensor, "pin_memory", lambda self, device=None: self),
        # Functions that are scripted know what they were.
        (torch.jit.ScriptFunction, "__call__", lambda self, *given, **options: self._torchdynamo_inline(*given, **options)),
        # The scaler asks whether all is finite, which it is in nearly all steps; and a step that is left out needs less.
        (torch.amp.GradScaler, "_maybe_opt_step", lambda self, optimizer, state, *given, **options: optimizer.step(*given, **options)),
        # The check asks whether all parameters are allowed, which they are.
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
        patches += [(named("torch._subclasses.fake_tensor"), "CONSTANT_NUMEL_LIMIT", SMALL), (FakeTensorMode, "avoid_device_init", True)]
        patches += _devices.choices(torch, device, gpu) + _devices.streams(torch, device, ledger)
    patches += _ranks.patches(torch, ledger)
    return patches


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


@contextlib.contextmanager
def explained(torch):
    """Says what to do about what fake tensors cannot."""
    from torch._subclasses import fake_tensor

    try:
        yield
    except fake_tensor.DataDependentOutputException as error:
        raise OmniheapError(f"{error.func}{place(torch, error)} needs a value, and fake tensors have none (.item(), a condition on data); {_REAL}") from error
    except fake_tensor.DynamicOutputShapeException as error:
        raise OmniheapError(f"the shape that {error.func}{place(torch, error)} returns depends on data, and fake tensors have none; {_REAL}") from error
    except fake_tensor.UnsupportedOperatorException as error:
        raise OmniheapError(f"{error.func}{place(torch, error)} has no fake kernel; register one with torch.library.register_fake, or {_REAL}") from error
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        if "comm_hook()" in str(error):
            raise OmniheapError("communication hooks of DistributedDataParallel run in C++; record the step without them, or with fake=False on a GPU") from error
        if "pickle" not in str(error):
            raise
        raise OmniheapError(f"the step{place(torch, error)} saves or sends fake tensors, which have no bytes ({error}); leave that out of the step") from error
    except (AssertionError, NotImplementedError, RuntimeError, torch.jit.frontend.FrontendError) as error:
        # Without a fake kernel PyTorch goes on to the driver.
        text = f"{error.__context__ or ''}{error}"
        if "convert all Tensors to FakeTensors" in text or "Mixing fake modes" in text:
            raise OmniheapError(f"the step{place(torch, error)} uses a tensor that exists already; make the model, the optimizer and the data inside of the step, or pass fake=False") from error
        if "nested_tensor_from_mask" in text:
            raise OmniheapError(f"a TransformerEncoder{place(torch, error)} makes nested tensors of its padding mask; pass enable_nested_tensor=False to it") from error
        if "register_fake" in text or "no fake impl" in text or "Meta' backend" in text:
            raise OmniheapError(f"an operator has no fake kernel ({text.splitlines()[0]}); register one with torch.library.register_fake, or {_REAL}") from error
        if "no NVIDIA driver" in text or "not compiled with CUDA" in text or "CUDA driver" in text or "No HIP GPUs" in text:
            raise OmniheapError(f"the step{place(torch, error)} asks the driver itself (its free memory, a device's properties, a generator of random numbers), and there is none; leave that out of the step, or record on a machine that has a GPU") from error
        if "data is not allocated yet" in text or "not supported for tensor subclasses" in text:
            raise OmniheapError(f"C++ code{place(torch, error)} reads bytes, and fake tensors have none; {_REAL}") from error
        if "shape_env must not be None" in text:
            raise OmniheapError(f"the sizes of a nested tensor{place(torch, error)} depend on data, and fake tensors have none; {_REAL}") from error
        if "TorchScript" in text or isinstance(error, torch.jit.frontend.FrontendError):
            raise OmniheapError("the model is scripted, and TorchScript runs operators that fake tensors cannot; record the model as it was") from error
        raise


def place(torch, error=None):
    """The line of the program, or of a package that it uses, that an error is about, or that runs."""
    ours = tuple(os.path.dirname(os.path.abspath(each)) + os.sep for each in (torch.__file__, __file__))
    frames = traceback.extract_stack() if error is None else traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not os.path.abspath(frame.filename).startswith(ours)]
    return f" ({os.path.basename(lines[-1].filename)}, line {lines[-1].lineno})" if lines else ""

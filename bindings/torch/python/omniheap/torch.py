"""PyTorch on omniheap.

    import omniheap.torch
    omniheap.torch.enable()

Call `enable()` before anything touches the GPU: PyTorch cannot change its allocator afterwards. `pool()` instead makes a
`torch.cuda.MemPool` whose memory is omniheap's, at any time, and leaves everything else to PyTorch's own allocator.
"""

import re

from . import _history, _library, _pools, _ranks, _stats, _tags
from ._activations import offload_activations
from ._layers import stream_layers
from ._library import OmniheapError, empty_cache, explain_oom, report, set_limit, stats, trace
from ._ranks import gather
from ._share import ChangedError, NameTakenError, NotPublishedError, attach, publish, withdraw
from ._tags import prepare_sleep, residence, sleep, wake
from .weights import load_into, load_safetensors

__all__ = ["ChangedError", "NameTakenError", "NotPublishedError", "OmniheapError", "attach", "empty_cache", "enable", "explain_oom", "gather", "is_enabled", "load_into", "load_safetensors", "offload_activations", "pool", "prepare_sleep", "publish", "report", "residence", "set_limit", "sleep", "stats", "stream_layers", "tag", "trace", "wake", "withdraw"]

_OLDEST = (2, 3)
_HOOKS = (
    ("set_reset_fn", "omniheap_torch_reset"),
    ("set_memory_fraction_fn", "omniheap_torch_memory_fraction"),
    ("set_record_stream_fn", "omniheap_torch_record_stream"),
    ("set_begin_allocate_to_pool", "omniheap_torch_begin_pool"),
    ("set_end_allocate_to_pool_fn", "omniheap_torch_end_pool"),
    ("set_release_pool", "omniheap_torch_release_pool"),
)
_LABORATORY = ("Speed", "StepDraft", "StepPlan", "Workspaces", "apply", "draft_step", "fit", "largest_batch", "measure_workspaces", "plan_step", "record_step", "shard")
_allocator = None
_pooled = {}


class _MovedError(OmniheapError, AttributeError):
    """A name of the laboratory; `hasattr` answers no."""


def __getattr__(name):
    if name in _LABORATORY:
        raise _MovedError(f"omniheap.torch.{name} is omniheap.fit.{name}: install it with `pip install ./lab/python`, and import omniheap.fit")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_enabled():
    """Returns True if PyTorch allocates through omniheap in this process."""
    return _allocator is not None


def enable(limit=None, paged=True, ranks=None):
    """Makes PyTorch allocate through omniheap.

    limit: the most to hold of each device: bytes, a text such as "8GiB", or a share such as 0.5.
    paged: build memory from pages that are mapped where they are needed, so that holes do not add up.
    ranks: "auto" puts the rank that torchrun, Slurm, Open MPI, MPICH or Ray gave this process into the names of traces and reports
    (`run.rank3.trace`) and into errors. Nothing changes where none of them did.
    """
    global _allocator
    torch = _import()
    backend = _backend(torch)
    if ranks not in (None, "auto"):
        raise OmniheapError(f"ranks is {ranks!r}; pass 'auto', or leave it out")
    if _allocator is not None:
        _library.configure(backend, limit, paged)
        _name_rank(ranks)
        return
    _refuse_what_cannot_work(torch)
    _library.configure(backend, limit, paged)
    _name_rank(ranks)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), "omniheap_torch_alloc", "omniheap_torch_free")
    inner = allocator.allocator()
    missing = [setter for setter, _ in _HOOKS if not hasattr(inner, setter)]
    if missing:
        raise OmniheapError(f"PyTorch {torch.__version__} lacks {', '.join(missing)}; install another version, such as 2.11")
    for setter, function in _HOOKS:
        getattr(inner, setter)(_library.address(function))
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise OmniheapError(
            f"PyTorch takes no other allocator now ({str(error).splitlines()[0]}); "
            "enable omniheap first thing, and no other allocator beside it"
        ) from None
    # A strange PyTorch is refused for what it lacks, as by every other pluggable allocator.
    _library.load().omniheap_torch_attach()
    _stats.install(torch)
    _history.install(torch)
    _pools.install(torch)
    _allocator = allocator


def _name_rank(ranks):
    if ranks == "auto":
        _library.name_rank(_ranks.place())


def pool(limit=None, registrable=False, **options):
    """A `torch.cuda.MemPool` over omniheap; PyTorch's own allocator stays in charge of everything outside of it.

    limit: the most that all pools hold of each device together, as for `enable`.
    registrable: each segment is one driver handle that NCCL, RDMA and symmetric memory can register, and never sleeps.
    options: those of `torch.cuda.MemPool`.

        pool = omniheap.torch.pool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.randn(1 << 20, device="cuda")
    """
    torch = _import()
    if not isinstance(registrable, bool):
        raise OmniheapError(f"registrable is {registrable!r}; pass True or False")
    if not hasattr(torch.cuda, "MemPool"):
        raise OmniheapError(f"PyTorch {torch.__version__} has no MemPool; install another version, such as 2.11, or use omniheap.torch.enable()")
    if _library._enabled is None or limit is not None:
        _library.configure(_backend(torch), limit, True)
    if _allocator is not None:
        if registrable:
            raise OmniheapError(
                "PyTorch registers only pools beside its own allocator; call omniheap.torch.pool(registrable=True) without omniheap.torch.enable()"
            )
        return torch.cuda.MemPool(**options)
    figures = stats(torch.cuda.current_device())
    if registrable and not figures["registrable"]:
        raise OmniheapError(
            "memory of this device cannot be registered: its driver exports no memory as descriptors; leave registrable out"
        )
    if not figures["paged"]:
        raise OmniheapError(
            "a pool needs memory in pages, and there is none (the device has no virtual memory, or paged=False was chosen); "
            "PyTorch would hand parts of larger blocks to other processes as if they were whole; use omniheap.torch.enable()"
        )
    allocate = "omniheap_torch_registrable" if registrable else "omniheap_torch_segment"
    if allocate not in _pooled:
        _pooled[allocate] = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), allocate, "omniheap_torch_segment_free")
    return torch.cuda.MemPool(_pooled[allocate].allocator(), **options)


def tag(name):
    if _allocator is None:
        raise OmniheapError("tags need PyTorch to allocate through omniheap; call omniheap.torch.enable() first thing, not pool()")
    _keep_workspaces_out(_import())
    return _tags.tag(name)


tag.__doc__ = _tags.tag.__doc__


def _keep_workspaces_out(torch):
    """Has PyTorch make the workspace of cuBLAS now: it keeps one for each stream, which must not sleep with whatever came first."""
    if not torch.cuda.is_initialized():
        torch.cuda.init()
        torch.cuda.synchronize()  # Opens the device: cuBLAS warns where it has to.
    if not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_blas_handle()


def _backend(torch):
    return "hip" if torch.version.hip else "cuda"


def _import():
    try:
        import torch
    except ImportError as error:
        raise OmniheapError(f"PyTorch cannot be imported ({error}); install it, or use omniheap.cupy") from None
    return torch


def _refuse_what_cannot_work(torch):
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if not version or tuple(map(int, version.groups())) < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise OmniheapError(f"PyTorch {torch.__version__} is too old, or none: its allocator has no hooks; install {wanted} or newer")
    if not (torch.version.cuda or torch.version.hip):
        raise OmniheapError("this PyTorch was built without CUDA and ROCm; install a build that has one of them")
    if torch.cuda.is_initialized():
        raise OmniheapError(
            "the GPU is in use already, and PyTorch cannot change its allocator then; "
            "call omniheap.torch.enable() first thing, before any tensor is on the GPU"
        )
    if not torch.cuda.is_available():
        raise OmniheapError("PyTorch sees no GPU here; run on a machine that has one, and check its driver with nvidia-smi or rocminfo")

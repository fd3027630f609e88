"""A rank of a process group whose other ranks do not exist: what distributed programs ask while they are set up, and DistributedDataParallel.

The latter reads bytes in C++, and fake tensors have none: it is done in Python here. Only what takes memory is done: buckets of gradients, and the
buffers of broadcasts. Nothing is sent.
"""

import contextlib
import importlib

from .._library import OmniheapError
from ._ledger import type_of


@contextlib.contextmanager
def group(torch, world):
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


def patches(torch, ledger):
    """Replaces what distributed programs ask of real tensors while they are set up, which has nothing to do with the device's memory."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return []
    groups = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group").FSDPParamGroup
    return [
        # C++ reports the device "meta", and a DTensor remembers it.
        (groups, "_validate_no_meta_params", lambda self: None),
        *_replicas(torch, ledger),
    ]


def _replicas(torch, ledger):
    """Owner, name and value of what stands for PyTorch's own while a step is recorded."""
    distributed = torch.distributed

    def broadcast_coalesced(group, tensors, buffer_size, *_):
        for chunk in _chunks(tensors, buffer_size):
            flat, start = torch.cat([each.detach().reshape(-1) for each in chunk]), 0
            for each in chunk:
                each.detach().copy_(flat[start : start + each.numel()].view(each.shape))
                start += each.numel()

    def reducer(*arguments):
        return Reducer(torch, ledger, *arguments)

    return [
        (distributed, "Reducer", reducer),
        (distributed, "Logger", _Logger),
        (distributed, "_broadcast_coalesced", broadcast_coalesced),
        (distributed, "_verify_params_across_processes", lambda *_: None),
    ]


def _chunks(tensors, size):
    """Tensors of one type, up to so many bytes at a time; a larger one is alone."""
    by_type = {}
    for each in tensors:
        by_type.setdefault((each.dtype, each.device), []).append(each)
    for alike in by_type.values():
        chunk, bytes = [], 0
        for each in alike:
            if chunk and bytes + each.nbytes > size:
                yield chunk
                chunk, bytes = [], 0
            chunk.append(each)
            bytes += each.nbytes
        yield chunk


class _Logger:
    """Is told what nobody reads."""

    def __init__(self, *_):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Reducer:
    """Buckets that gradients are copied to. The first pass has those that it was given, the later ones follow the order of that pass."""

    def __init__(self, torch, ledger, parameters, buckets, limits, group, sparse, limit, find_unused, as_views, names, first_limit, *_):
        self._torch, self._ledger, self._parameters = torch, ledger, list(parameters)
        self._as_views, self._limits = as_views, [first_limit, limit]
        self._order, self._is_rebuilt, self._finds_unused, self._missing = [], False, find_unused, 0
        self._make(buckets)
        for number, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(lambda parameter, number=number: self._ready(number, parameter))

    def _make(self, buckets):
        """Makes buckets of parameters, by number; those before are gone, unless gradients are views of them."""
        self._views = {}
        for number, bucket in enumerate(buckets):
            first = self._parameters[bucket[0]]
            size = sum(self._parameters[each].numel() for each in bucket)
            flat, start = self._torch.empty(size, dtype=first.dtype, device=first.device), 0
            self._ledger.becomes(flat.untyped_storage()._cdata, "gradient", ("DistributedDataParallel", "buckets"), str(number), type_of(flat))
            for each in bucket:
                shape = self._parameters[each].shape
                self._views[each] = flat[start : start + shape.numel()].view(shape)
                start += shape.numel()

    def _ready(self, number, parameter):
        """A gradient is there: it goes to its bucket, and comes back summed up."""
        if not self._missing or parameter.grad is None:
            # Of a pass that is not summed up, as inside of no_sync().
            return
        self._missing -= 1
        if not self._is_rebuilt:
            self._order.append(number)
        view = self._views[number]
        with self._torch.no_grad():
            if parameter.grad.untyped_storage()._cdata != view.untyped_storage()._cdata:
                view.copy_(parameter.grad)
            if self._as_views:
                parameter.grad = view

    def prepare_for_forward(self):
        self._missing = 0

    def prepare_for_backward(self, _):
        self._missing = len(self._parameters)

    def _rebuild_buckets(self):
        """Once, where every parameter had a gradient: buckets in the order of the first backward pass."""
        if self._is_rebuilt or self._finds_unused or len(self._order) != len(self._parameters):
            return False
        self._is_rebuilt = True
        ordered = [self._parameters[each] for each in self._order]
        buckets, _ = self._torch.distributed._compute_bucket_assignment_by_size(ordered, self._limits, [False] * len(ordered))
        self._make([[self._order[each] for each in bucket] for bucket in buckets])
        return True

    def __getattr__(self, name):
        if name in _IGNORED:
            return lambda *_: None
        raise AttributeError(name)


_IGNORED = ("set_logger", "_set_static_graph", "_remove_autograd_hooks", "_check_reducer_finalized", "_set_ddp_runtime_logging_sample_rate", "_set_forward_pass_work_handle")

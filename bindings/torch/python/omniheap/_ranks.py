"""One picture of all ranks of a job, through the store that PyTorch's ranks share."""

import datetime
import os
import sys
import weakref

from . import _library
from ._library import OmniheapError

# As `place_from_environment` in the crate omniheap-trace: the most specific launcher first. Ray Train sets torchrun's names.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_MOST = 64 << 10
# Calls of each process group: ranks that come anew, with a group of another size, count from the start as all others do.
_calls = weakref.WeakKeyDictionary()


def place(environment=None):
    """Rank and world size of this process as its launcher says, or None. The world size is None where it does not say."""
    environment = os.environ if environment is None else environment
    return _place_of_ray() or _place_of(environment)


def _place_of_ray():
    """Returns the place that Ray Train tells inside of one of its workers, where it sets no variables."""
    train = sys.modules.get("ray.train")
    try:
        context = train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
    except Exception:  # not imported, or not in a worker: its versions say so in different ways
        return None
    whole = all(isinstance(number, int) for number in (rank, world))
    return (rank, world) if whole and 0 <= rank < world else None


def _place_of(environment):
    for rank, world in _LAUNCHERS:
        rank, world = _number(environment.get(rank)), _number(environment.get(world))
        if rank is not None and (world is None or rank < world):
            return rank, world
    return None


def _number(text):
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) < 1 << 32 else None


def gather(group=None, path="job.html", device=0, timeout=60.0):
    """Writes one page of all ranks' memory on rank 0. Every rank of the group calls it.

    group: a process group of torch.distributed; by default all ranks. Any backend will do: figures travel through its store, at most
    64 KiB a rank.
    path: the page that rank 0 writes.
    timeout: seconds that rank 0 waits for all others together. Ranks that did not answer are named on the page.

    Returns the ranks that did not answer, on rank 0, and None on the others.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e6:
        raise OmniheapError(f"timeout is {timeout!r}; pass seconds, such as 60")
    distributed = _distributed()
    rank, world = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise OmniheapError("this process is not in the group; call gather on the ranks of the group only")
    text = _library.require_enabled().omniheap_torch_digest(device, rank, world)
    if text is None:
        raise OmniheapError(_library.load().omniheap_torch_error().decode())
    if len(text) > _MOST:
        raise OmniheapError(f"the figures of rank {rank} take {len(text)} bytes, more than {_MOST}; please report it")
    store, key = _store(distributed, group), _key(distributed, group, world)
    if rank != 0:
        store.set(key + str(rank), text)
        return None
    digests, missing = _collect(store, key, text, world, timeout)
    _library.check(_library.load().omniheap_torch_job(b"\n".join(digests), os.fsencode(path)))
    return missing


def _key(distributed, group, world):
    """Returns the prefix of the keys of this call's answers. Late answers to an earlier call, or to one before a restart, have another."""
    group = distributed.group.WORLD if group is None else group
    _calls[group] = _calls.get(group, 0) + 1
    restarts = _number(os.environ.get("TORCHELASTIC_RESTART_COUNT")) or 0
    return f"omniheap/gather/{restarts}/{world}/{_calls[group]}/"


def _collect(store, key, own, world, timeout):
    keys = {rank: key + str(rank) for rank in range(1, world)}
    try:
        if keys:
            store.wait(list(keys.values()), datetime.timedelta(seconds=timeout))
        missing = []
    except Exception:  # c10d's stores raise different types when the time is over or the peer is gone
        missing = [rank for rank, name in keys.items() if not store.check([name])]
    digests = [own]
    for rank in keys.keys() - missing:
        digests.append(bytes(store.get(keys[rank])))
        store.delete_key(keys[rank])
    return digests, missing


def _distributed():
    try:
        import torch.distributed as distributed
    except ImportError as error:
        raise OmniheapError(f"torch.distributed cannot be imported ({error}); use `omniheap ranks DIR` on files instead") from None
    if not distributed.is_available() or not distributed.is_initialized():
        raise OmniheapError("torch.distributed is not initialized; call init_process_group first, or use `omniheap ranks DIR` on files")
    return distributed


def _store(distributed, group):
    inner = distributed.distributed_c10d
    if group is not None and hasattr(inner, "_get_process_group_store"):
        return inner._get_process_group_store(group)
    return inner._get_default_store()

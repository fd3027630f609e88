"""One picture of all ranks of a job, through the store that PyTorch's ranks share."""

import datetime
import os
import time

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
_gathered = 0


def place(environment=None):
    """Rank and world size of this process as its launcher says, or None. The world size is None where it does not say."""
    environment = os.environ if environment is None else environment
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
    global _gathered
    distributed = _distributed()
    rank, world = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise OmniheapError("this process is not in the group; call gather on the ranks of the group only")
    text = _library.require_enabled().omniheap_torch_digest(device, rank, world)
    if text is None:
        raise OmniheapError(_library.load().omniheap_torch_error().decode())
    if len(text) > _MOST:
        raise OmniheapError(f"the figures of rank {rank} take {len(text)} bytes, more than {_MOST}; please report it")
    store = _store(distributed, group)
    _gathered += 1
    # Every rank counts its calls: a late answer to an earlier call is not taken for one to this.
    key = f"omniheap/gather/{_gathered}/"
    if rank != 0:
        store.set(key + str(rank), text)
        return None
    digests, missing = _collect(store, key, text, world, timeout)
    _library.check(_library.load().omniheap_torch_job(b"\n".join(digests), os.fsencode(path)))
    return missing


def _collect(store, key, own, world, timeout):
    digests, missing, end = [own], [], time.monotonic() + timeout
    for rank in range(1, world):
        left = max(end - time.monotonic(), 0.001)
        try:
            store.wait([key + str(rank)], datetime.timedelta(seconds=left))
        except Exception:  # c10d's stores raise different types when the time is over or the peer is gone
            missing.append(rank)
            continue
        digests.append(bytes(store.get(key + str(rank))))
        store.delete_key(key + str(rank))
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

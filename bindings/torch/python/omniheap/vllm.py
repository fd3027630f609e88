"""vLLM's sleep mode over omniheap's tags: an entry point registers the backend "omniheap".

    OMNIHEAP_VLLM=1 vllm serve MODEL --enable-sleep-mode --sleep-mode-backend omniheap

The variable makes PyTorch allocate through omniheap in every process of vLLM, which must happen before anything is on the GPU. Without
it, the backend has a name and nothing else changes.
"""

import contextlib
import os

from . import _tags
from . import torch as _torch
from ._library import OmniheapError

try:
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackend, SleepModeBackendFactory
except ImportError:
    # Older versions have one way to sleep, without a name: register() does nothing there.
    SleepModeBackend, SleepModeBackendFactory = object, None

__all__ = ["Allocator", "SleepBackend", "register"]

NAME = "omniheap"
VARIABLE = "OMNIHEAP_VLLM"
_WEIGHTS = "weights"


def register():
    """Tells vLLM of the backend. vLLM calls it in each of its processes, and in some of them twice."""
    if SleepModeBackendFactory is None:
        return
    with contextlib.suppress(ValueError):  # The backend is registered already.
        SleepModeBackendFactory.register_backend(NAME, __name__, "SleepBackend")
    if os.environ.get(VARIABLE, "") not in ("", "0"):
        _take_over()


def _take_over():
    """Puts what vLLM allocates in its pools into tags: its worker asks for an allocator whatever backend was chosen."""
    import vllm.device_allocator

    if not _torch.is_enabled():
        _torch.enable()
    vllm.device_allocator.get_mem_allocator_instance = Allocator


class Allocator:
    """Allocator of sleep mode, as vLLM's worker asks for it. It has no state: every one is the same."""

    @contextlib.contextmanager
    def use_memory_pool(self, tag=None):
        """Gives what this thread allocates inside the block to the tag."""
        with _tags.no_tag(), _torch.tag("default" if tag is None else tag):
            yield

    def sleep(self, offload_tags=None):
        """Keeps the bytes of some tags in host memory, and drops those of all others. Where one cannot sleep, those that kept their bytes wake up."""
        kept = {offload_tags} if isinstance(offload_tags, str) else set(offload_tags or ())
        awake = _with_residence(asleep=False)
        stored = []
        # Dropped tags come last: their sleep cannot be undone.
        for tag in sorted(awake, key=lambda tag: tag not in kept):
            try:
                _tags.sleep(tag, to="host" if tag in kept else "nothing")
            except Exception:
                for back in stored:
                    _tags.wake(back)
                raise
            if tag in kept:
                stored.append(tag)

    def discard(self, tags):
        """Drops the bytes of some tags."""
        wanted = {tags} if isinstance(tags, str) else set(tags)
        for tag in _with_residence(asleep=False):
            if tag in wanted:
                _tags.sleep(tag, to="nothing")

    def wake_up(self, tags=None):
        """Gives tags their memory back, or all tags."""
        wanted = {tags} if isinstance(tags, str) else tags
        for tag in _with_residence(asleep=True):
            if wanted is None or tag in wanted:
                _tags.wake(tag)

    def get_current_usage(self):
        """Bytes of all tags."""
        return sum(now["device"] for now in _tags.residence().values())


class SleepBackend(SleepModeBackend):
    """vLLM's weights leave the device and come back at the same addresses, and so does the memory of its KV cache."""

    def __init__(self):
        if not _torch.is_enabled():
            raise OmniheapError(f"vLLM allocates by itself; set {VARIABLE}=1 before it starts, or choose another sleep-mode backend")
        super().__init__()

    def suspend(self, level=1):
        """Returns the memory: level 1 keeps the weights in host memory, level 2 keeps nothing."""
        Allocator().sleep((_WEIGHTS,) if level == 1 else ())
        self._state = "SUSPENDED"

    def resume(self, tags=None):
        """Takes the memory back."""
        Allocator().wake_up(tags)
        self._state = "RUNNING"

    def discard(self, tags):
        """Drops the bytes of some tags."""
        Allocator().discard(tags)
        self._state = "SUSPENDED"

    @classmethod
    def preserves_communicators(cls):
        """True: they allocate outside of tags."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls):
        """True: code of the device stays where it is."""
        return True


def _with_residence(asleep):
    return [tag for tag, now in _tags.residence().items() if now["asleep"] == asleep]

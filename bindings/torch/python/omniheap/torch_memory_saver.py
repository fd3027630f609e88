"""The calls of the package torch_memory_saver, over omniheap's tags.

    from omniheap.torch_memory_saver import torch_memory_saver

    with torch_memory_saver.region("weights", enable_cpu_backup=True):
        model = Model().cuda()
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

No library is preloaded: the first use enables omniheap, so it comes before anything touches the GPU. Where the original ends
the process, this raises `OmniheapError` and changes nothing. `pause` and `resume` mean the current device.
"""

import contextlib

from . import _tags
from . import torch as _torch
from ._library import OmniheapError, set_limit

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]

_DEFAULT = "default"
_HOOK_MODES = ("preload", "torch")
# A tag may have memory with and without a backup; they are two tags here, and this ends the name of the second.
_DROPPED = " (no backup)"


class TorchMemorySaver:
    """Memory that is given back to the driver between `pause` and `resume`."""

    @contextlib.contextmanager
    def region(self, tag=_DEFAULT, enable_cpu_backup=False):
        """Makes what this thread allocates inside the block pausable. Its content is dropped then, unless it has a backup."""
        _ensure_enabled()
        with _torch.tag(_name(tag, enable_cpu_backup)):
            yield

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag=_DEFAULT, enable_cpu_backup=False):
        """As `torch.cuda.graph`, for a graph whose memory can be paused."""
        _ensure_enabled()
        import torch

        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            with _torch.tag(_name(tag, enable_cpu_backup)):
                yield

    @contextlib.contextmanager
    def disable(self):
        """Makes what is allocated inside the block not pausable, though the block is inside a region."""
        if _tags.current() is None:
            raise OmniheapError("disable() outside of a region; call it inside `with torch_memory_saver.region():`")
        with _tags.no_tag():
            yield

    def pause(self, tag=None):
        """Gives the memory of a tag back to the driver, or that of all tags. A tag without memory is passed over."""
        meant = _meant(tag)
        awake = [(name, dropped) for name, dropped, asleep in meant if not asleep]
        if tag is not None and meant and not awake:
            raise OmniheapError(f"tag {tag!r} is paused already; resume({tag!r}) first")
        for name, dropped in awake:
            _tags.sleep(name, to="nothing" if dropped else "host")

    def resume(self, tag=None):
        """Gives the tensors of a tag their memory back, at the same addresses, or those of all tags.

        Raises `torch.OutOfMemoryError` where the device has too little: what is paused stays so.
        """
        meant = _meant(tag)
        asleep = [name for name, _, is_asleep in meant if is_asleep]
        if tag is not None and meant and not asleep:
            raise OmniheapError(f"tag {tag!r} is not paused; pause({tag!r}) first")
        for name in asleep:
            _tags.wake(name)

    @property
    def enabled(self):
        """True: whatever cannot work raises."""
        return True

    @property
    def hook_mode(self):
        """Way in which the original finds allocations; omniheap is told of them."""
        return "torch"

    @hook_mode.setter
    def hook_mode(self, mode):
        if mode not in _HOOK_MODES:
            raise OmniheapError(f"hook_mode is {mode!r}; choose one of {', '.join(_HOOK_MODES)}: both mean omniheap")

    @property
    def retain_cpu_backup(self):
        """True: host memory is kept for the next pause."""
        return True

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, retain):
        if not retain:
            raise OmniheapError("omniheap keeps host memory for the next pause; leave retain_cpu_backup as it is")

    @property
    def memory_margin_bytes(self):
        """Can only be set."""
        raise NotImplementedError("memory_margin_bytes can only be set")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, margin):
        """Leaves so much of the current device to others."""
        _ensure_enabled()
        import torch

        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory
        if isinstance(margin, bool) or not isinstance(margin, int) or not 0 <= margin < total:
            raise OmniheapError(f"memory_margin_bytes is {margin!r}; pass a number of bytes below the device's {total}")
        set_limit(total - margin if margin else None, device)

    def get_cpu_backup(self, x):
        """Refused: omniheap shows no bytes that sleep."""
        raise OmniheapError("omniheap shows no bytes that sleep; resume the tag, and copy the tensor with .cpu()")


@contextlib.contextmanager
def configure_subprocess():
    """Does nothing: a process needs no preloaded library for this."""
    yield


torch_memory_saver = TorchMemorySaver()


def _ensure_enabled():
    if not _torch.is_enabled():
        _torch.enable()


def _name(tag, enable_cpu_backup):
    if not isinstance(tag, str) or not tag or tag.endswith(_DROPPED):
        raise OmniheapError(f"the tag is {tag!r}; pass a text that is not empty, such as 'weights'")
    return tag if enable_cpu_backup else tag + _DROPPED


def _meant(tag):
    """Returns the tags that a call means: names, whether the content is dropped, and whether they sleep. Where nothing is enabled, there are none."""
    if not _torch.is_enabled():
        return []
    wanted = None if tag is None else {_name(tag, True), _name(tag, False)}
    shown = _tags.residence().items()
    return [(name, name.endswith(_DROPPED), now["asleep"]) for name, now in shown if wanted is None or name in wanted]

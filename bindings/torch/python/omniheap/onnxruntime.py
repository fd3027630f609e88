"""ONNX Runtime on omniheap: options with which its CUDA and ROCm providers allocate there.

    import omniheap.onnxruntime
    options = omniheap.onnxruntime.options(device=0)
    session = onnxruntime.InferenceSession("model.onnx", providers=[("CUDAExecutionProvider", options)])
"""

from . import _library
from ._library import OmniheapError, empty_cache, explain_oom, report, set_limit, stats, trace

__all__ = ["OmniheapError", "empty_cache", "explain_oom", "options", "report", "set_limit", "stats", "trace"]


def options(device=0, stream=None, limit=None, paged=True, backend="cuda"):
    """Returns provider options for one device; add your own to them.

    stream: the handle of the stream that the session computes on, which must outlive it. Then freed bytes are used again at once in its order;
    without it they wait for all streams. A process has 64 pairs of device and stream.
    limit, paged: as for `omniheap.torch.enable`.
    backend: "hip" for the ROCm provider.
    """
    for name, value in (("device", device), ("stream", 0 if stream is None else stream)):
        if isinstance(value, bool) or not isinstance(_library._whole(value), int) or value < 0:
            raise OmniheapError(f"{name} is {value!r}; pass a whole number, 0 or more")
    if device >= 64:
        raise OmniheapError(f"device is {device}; a process has 64 at most")
    _library.join(backend, limit, paged)
    allocate = _library.load().omniheap_alloc_function(device, stream, int(stream is not None))
    if allocate is None:
        raise OmniheapError(_library._said())
    address = lambda name: str(_library.address(name))
    made = {
        "device_id": str(device),
        "gpu_external_alloc": str(allocate),
        "gpu_external_free": address("omniheap_unordered_free"),
        "gpu_external_empty_cache": address("omniheap_torch_reset"),
    }
    if stream is not None:
        made["user_compute_stream"] = str(stream)
    return made

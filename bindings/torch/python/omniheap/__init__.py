"""omniheap: one device-memory manager for PyTorch and CuPy.

    import omniheap.torch
    omniheap.torch.enable(limit="8GiB")      # before anything touches the GPU

Both frameworks share one manager in one process.
"""

from ._library import OmniheapError

__all__ = ["OmniheapError"]
__version__ = "0.1.0"

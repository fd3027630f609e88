"""omniheap: one device-memory manager for PyTorch, CuPy, Numba, Warp, RMM and ONNX Runtime.

    import omniheap.torch
    omniheap.torch.enable(limit="8GiB")      # before anything touches the GPU

All of them share one manager in one process.
"""

import pkgutil

from ._library import OmniheapError

# omniheap-fit adds the package `fit`; in a folder of sources it lies elsewhere.
__path__ = pkgutil.extend_path(__path__, __name__)
__all__ = ["OmniheapError"]
__version__ = "0.1.0"

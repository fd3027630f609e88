"""Versions of PyTorch that this package was tested with: it depends on private parts of it."""

import re

from .._library import OmniheapError

# In docs/fit.md too.
TESTED = ("2.11",)


def pytorch():
    """PyTorch, where it is of a tested version: with another one answers could be wrong without a sign of it."""
    try:
        import torch
    except ImportError as error:
        raise OmniheapError(f"PyTorch cannot be imported ({error}); install it, on this machine or on another: traces can be carried") from None
    if version(torch) not in TESTED:
        raise OmniheapError(
            f"this is PyTorch {torch.__version__}, and omniheap-fit was tested with {', '.join(TESTED)} alone: it depends on private parts of PyTorch, and might answer wrongly; "
            f"run this with `pip install torch=={TESTED[-1]}.*` in an environment of its own (traces and plans can be carried), or install an omniheap-fit that was tested with yours"
        )
    return torch


def version(torch):
    """The part of a version on which private parts and kernels depend."""
    return ".".join(re.findall(r"\d+", torch.__version__)[:2])

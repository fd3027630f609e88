"""omniheap-fit: will a step of PyTorch fit on a GPU, up to which batch, and what to recompute or to move so that it does.

    import omniheap.fit
    omniheap.fit.fit(make_step(8), capacity="24GiB")

Steps are recorded on fake tensors, so no GPU is needed. That depends on private parts of PyTorch: versions that were not tested are refused.
"""

from .._library import OmniheapError
from ._apply import apply
from ._change import StepDraft, StepPlan, draft_step, plan_step
from ._fit import LargestBatch, fit, largest_batch
from ._program import Speed
from ._recorder import Recording, measure_workspaces, record_step
from ._shard import shard
from ._workspaces import Workspaces

__all__ = ["LargestBatch", "OmniheapError", "Recording", "Speed", "StepDraft", "StepPlan", "Workspaces", "apply", "draft_step", "fit", "largest_batch", "measure_workspaces", "plan_step", "record_step", "shard"]
__version__ = "0.1.0"

"""Shards a model over the ranks of its process group by PyTorch's own functions: what is wrapped, gathered ahead and divided is said in a line."""

import fnmatch

from .._library import OmniheapError
from . import _upstream

# Modes of `fsdp` in which ranks divide all parameters; True if FSDP2 frees gathered parameters between the two passes.
_FULLY = {"full": True, "grad_op": False}


def shard(model, fsdp=None, *, wrap=(), prefetch=None, tp=1, tp_plan=None):
    """Shards a model, in a process group that exists or in that of `record_step(..., world=N)`. Returns the module to call.

    fsdp: "full" (FSDP2, ZeRO-3), "grad_op" (parameters stay gathered for the backward pass, ZeRO-2), "ddp" (replicas), or None.
    wrap: names of the modules that are gathered one by one, such as "layers.*"; a star stands for one part of a name. Several are a list.
        The rest of the model is gathered as a whole.
    prefetch: how many wrapped modules are gathered ahead in both passes, in the order in which the model holds them. None leaves it to FSDP2,
        which gathers one ahead in the backward pass.
    tp: ranks that divide layers among themselves. As many groups of them as the world has then divide data by `fsdp`.
    tp_plan: "colwise", "rowwise" or one of PyTorch's styles, by name of module, such as {"layers.*.up": "colwise", "layers.*.down": "rowwise"}.
        By default the model's own (`model.tp_plan`, as Transformers has it).

    Make the model on the CPU: its parts move to the GPU one by one as they are divided, and no rank ever holds all of it there.
    """
    torch = _upstream.pytorch()
    modules = _wrapped(torch, model, fsdp, wrap, prefetch)
    data, tensor = _meshes(torch, fsdp, tp)
    for module, style in _styles(torch, model, tp, tp_plan):
        torch.distributed.tensor.parallel.parallelize_module(module.to(tensor.device_type), tensor, style)
    if fsdp in _FULLY:
        for module in (*modules, model):
            torch.distributed.fsdp.fully_shard(module.to(data.device_type), mesh=data, reshard_after_forward=_FULLY[fsdp])
        if prefetch is not None:
            _gather_ahead([each for each in model.modules() if each in modules], prefetch)
    model.to(data.device_type)
    return torch.nn.parallel.DistributedDataParallel(model, device_mesh=data) if fsdp == "ddp" else model


def _wrapped(torch, model, fsdp, wrap, prefetch):
    """The modules that are gathered one by one; what makes no sense is refused before anything changes."""
    if not isinstance(model, torch.nn.Module):
        raise OmniheapError(f"model is {model!r}; pass a torch.nn.Module")
    if fsdp == "zero1":
        raise OmniheapError('"zero1" divides an optimizer, not a model: pass fsdp="ddp", and make the optimizer by torch.distributed.optim.ZeroRedundancyOptimizer')
    if fsdp not in (None, "ddp", *_FULLY):
        raise OmniheapError(f"fsdp is {fsdp!r}; pass 'full', 'grad_op', 'ddp' or None")
    if (wrap or prefetch is not None) and fsdp not in _FULLY:
        raise OmniheapError(f"wrap and prefetch say what FSDP2 gathers, and fsdp is {fsdp!r}; pass 'full' or 'grad_op' with them")
    if prefetch is not None and (isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1):
        raise OmniheapError(f"prefetch is {prefetch!r}; pass a number of modules from 1 on, or None")
    patterns = [wrap] if isinstance(wrap, str) else wrap
    names = {name for pattern in patterns for name in _named(model, pattern)}
    # FSDP2 wants inner modules first; those of one depth stay in order.
    found = [(name, module) for name, module in model.named_modules() if name in names]
    return [module for _, module in sorted(found, key=lambda each: -each[0].count("."))]


def _named(model, pattern):
    """The modules of a pattern, by name."""
    found = {name: module for name, module in model.named_modules() if name and _matches(name, pattern)}
    if not found:
        parts = ", ".join(name for name, _ in model.named_children())
        raise OmniheapError(f"no module is named {pattern!r}; a star stands for one part of a name, and the model consists of {parts}")
    return found


def _matches(name, pattern):
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _meshes(torch, fsdp, tp):
    """The ranks that divide data, and those that divide layers; None where nobody does."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        raise OmniheapError("there is no process group; record with world=N, or call torch.distributed.init_process_group first")
    world = distributed.get_world_size()
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1 or world % tp:
        raise OmniheapError(f"tp is {tp!r}; pass a number of ranks that divides the world of {world}")
    if fsdp is None and tp != world:
        raise OmniheapError(f"tp={tp} makes {world // tp} groups of the world of {world}, and fsdp says nothing of them; pass 'full', 'grad_op' or 'ddp'")
    mesh = distributed.device_mesh.init_device_mesh(torch._C._get_accelerator().type, (world // tp, tp), mesh_dim_names=("data", "tensor"))
    return mesh["data"], mesh["tensor"]


def _styles(torch, model, tp, tp_plan):
    """The modules that are divided, each with its style of PyTorch."""
    if tp == 1:
        if tp_plan is not None:
            raise OmniheapError("tp_plan divides layers among tp ranks, and tp is 1; pass how many")
        return []
    parallel = torch.distributed.tensor.parallel
    plan = tp_plan if tp_plan is not None else getattr(model, "tp_plan", None)
    if not plan:
        raise OmniheapError('how layers are divided is not known; pass tp_plan={"layers.*.up": "colwise", "layers.*.down": "rowwise"}, by name of module')
    known = {"colwise": parallel.ColwiseParallel, "rowwise": parallel.RowwiseParallel}
    styles = []
    for pattern, style in plan.items():
        if not isinstance(style, parallel.ParallelStyle) and style not in known:
            raise OmniheapError(f"tp_plan[{pattern!r}] is {style!r}; pass 'colwise', 'rowwise' or a style of torch.distributed.tensor.parallel")
        style = known[style]() if isinstance(style, str) else style
        styles += [(module, style) for module in _named(model, pattern).values()]
    return styles


def _gather_ahead(modules, prefetch):
    """Has each module gather the next ones before it runs, in both passes."""
    for at, module in enumerate(modules):
        module.set_modules_to_forward_prefetch(modules[at + 1 : at + 1 + prefetch])
        module.set_modules_to_backward_prefetch(modules[max(0, at - prefetch) : at][::-1])

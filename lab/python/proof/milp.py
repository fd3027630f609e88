"""Decisions of PyTorch's `sac_milp` for the models of apply.py, from fake tensors and by its own cost model, for `apply.py --milp`.

    python milp.py decisions.json [--models gpt2,llama,resnet,unet] [--shares 0.4,0.6,0.8] [--small]

`sac_milp` says which modules to checkpoint and what share of their activations to discard, and a second problem for each module which of its operators are
saved. A budget is a share of the peak that it predicts itself without checkpoints. No GPU is needed: its cost model is told the figures of an H200. Needs pulp before version 3 (later
ones have no solver of their own), pwlf and scipy; says which is not installed.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import sys
import tempfile
from unittest import mock

import torch
from torch.distributed._tools import runtime_estimator
from torch.distributed._tools.ilp_utils import aggregate_stats, get_peak_memory_runtime_baseline, parse_module_info
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed._tools.runtime_estimator import RuntimeEstimator
from torch.distributed._tools.sac_estimator import SACEstimator
from torch.utils import _runtime_estimation

import omniheap.fit
from apply import numbers, say, workloads

_MISSING = [name for name in ("pulp", "pwlf", "scipy") if importlib.util.find_spec(name) is None]
if _MISSING:
    sys.exit(f"sac_milp: not installed: {', '.join(_MISSING)}")
from torch.distributed._tools.sac_ilp import get_optimal_checkpointing_policy_per_module, sac_milp

_MODE = "operator-level-cost-model"
_TFLOPS = {torch.float32: 67.0, torch.bfloat16: 989.0}
_GB_PER_SECOND = 4800.0


@contextlib.contextmanager
def figures_of_an_h200():
    """PyTorch's cost model believes that there is a GPU."""
    compute = runtime_estimator.get_compute_time
    # The cost model knows no operator with results of two types, as attention has: the narrower one says what is computed in.
    one = lambda types: set(sorted(types, key=lambda each: each.itemsize)[:1])
    told = (
        (runtime_estimator, "get_compute_time", lambda packet, arguments, options, result, types: compute(packet, arguments, options, result, one(types))),
        (torch.cuda, "is_available", lambda: True),
        (_runtime_estimation, "get_device_tflops", lambda dtype: _TFLOPS.get(dtype, 67.0)),
        (_runtime_estimation, "get_gpu_dram_gbps", lambda: _GB_PER_SECOND),
    )
    with contextlib.ExitStack() as stack:
        for module, name, value in told:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


class Estimates:
    """Estimates of PyTorch's estimators for a model."""

    def __init__(self, make, data, device):
        self._make, self._data, self._device = make, data, torch.device(device)
        with tempfile.TemporaryDirectory() as folder:
            # The backward pass of fake tensors asks for the GPU itself, unless a step is being recorded.
            omniheap.fit.record_step(self._setup, f"{folder}/step.omt", device=device, steps=1)
        self.peak, _ = get_peak_memory_runtime_baseline(self._graph)

    def _setup(self):
        with self._device:
            model, batch = self._make(), self._data()
        step = functools.partial(self._step, model, batch)
        memory, runtime, self._operators = MemTracker(), RuntimeEstimator(), SACEstimator()
        memory.track_external(model)
        with memory:
            step()
            memory.reset_mod_stats()
            step()
        with figures_of_an_h200():
            with runtime(_MODE):
                step()
            with self._operators(_MODE), torch.autocast(self._device.type, torch.bfloat16):
                loss = model(batch)
        loss.backward()
        self._graph = parse_module_info(aggregate_stats(model, memory, runtime, self._operators, self._device))
        return lambda: None

    def _step(self, model, batch):
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = model(batch)
        loss.backward()
        model.zero_grad()

    def decide(self, budget):
        """Returns what `selective` takes, of modules that are checkpointed; None where there is no solution."""
        discarded, milliseconds, peak = sac_milp(self._graph, memory_budget=budget / 2**30)
        say(budget=budget, discarded=discarded, milliseconds=milliseconds, predicted_peak=peak)
        if peak < 0:
            return None
        return {name.partition(".")[2]: self._operators_of(name, share) for name, share in discarded.items()}

    def _operators_of(self, name, share):
        """A module's operators, and whether each is saved; where the second problem has no solution, all run again."""
        stats = self._operators.sac_mod_stats[name]
        with contextlib.suppress(TypeError):
            saved = get_optimal_checkpointing_policy_per_module(stats, 1 - share)
            if saved:
                return stats.func_names, saved
        return stats.func_names, [0] * len(stats.func_names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--models", default="gpt2,llama,resnet,unet")
    parser.add_argument("--shares", default="0.4,0.6,0.8")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    decisions = {}
    for name in options.models.split(","):
        estimates = Estimates(*workloads(options.small)[name], "cpu" if options.small else "cuda:0")
        say(model=name, predicted_peak=estimates.peak)
        decisions[name] = {f"{share:g}": estimates.decide(share * estimates.peak) for share in numbers(options.shares)}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(decisions, file)


if __name__ == "__main__":
    main()

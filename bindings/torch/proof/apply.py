"""Plans that change the program, on a GPU: step time and peak beside checkpointing and PyTorch's memory budget.

    python apply.py [--small] [--device cuda:0] [--capacities 0.4,0.6,0.8] [--models gpt2,llama,resnet,unet] [--steps 4] [--seconds 80]

Prints a line for each model, capacity and way: `plain`, `plan` (ours), `whole` (all blocks in one checkpoint), `blocks` (each block in its own),
`halves` (every other block), `budget` (torch.compile with activation_memory_budget, at the capacities of --budget, because compiling takes
long). A capacity is a share of the plain peak, which is what is live at most; a way that passes it is printed, and not compared. `--small` runs on a CPU to see that the script works. Needs OMNIHEAP_COMMAND.
"""

import argparse
import contextlib
import gc
import json
import math
import os
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import omniheap.torch


class Block(nn.Module):
    """GPT-2's block, or with `is_llama` one with RMSNorm and a gated MLP."""

    def __init__(self, width, heads, is_llama):
        super().__init__()
        norm = (lambda: nn.RMSNorm(width)) if is_llama else (lambda: nn.LayerNorm(width))
        self.norm_one, self.norm_two, self.heads, self.is_llama = norm(), norm(), heads, is_llama
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 8 * width // 3 // 8 * 8 if is_llama else 4 * width
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)
        self.gate = nn.Linear(width, wide) if is_llama else None

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.into(self.norm_one(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.norm_two(x)
        wide = functional.silu(self.gate(y)) * self.up(y) if self.is_llama else functional.gelu(self.up(y))
        return x + self.down(wide)


class Language(nn.Module):
    def __init__(self, words, width, heads, depth, is_llama):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, is_llama) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).float().flatten(0, 1), tokens.flatten())


class Bottleneck(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        inner = out // 4
        conv = lambda a, b, size, stride=1: nn.Conv2d(a, b, size, stride, size // 2, bias=False)
        self.one, self.two, self.three = conv(width, inner, 1), conv(inner, inner, 3, stride), conv(inner, out, 1)
        self.norm_one, self.norm_two, self.norm_three = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(out)
        self.short = nn.Sequential(conv(width, out, 1, stride), nn.BatchNorm2d(out)) if stride > 1 or width != out else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.norm_one(self.one(x)), inplace=True)
        y = functional.relu(self.norm_two(self.two(y)), inplace=True)
        return functional.relu(self.norm_three(self.three(y)) + self.short(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, depths, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, before = [], width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                out = 4 * width << stage
                blocks.append(Bottleneck(before, out, 2 if stage and not number else 1))
                before = out
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(before, 1000)

    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x.mean((2, 3))), torch.zeros(len(x), dtype=torch.long, device=x.device))


class Unet(nn.Module):
    def __init__(self, width, levels):
        super().__init__()
        pair = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU())
        sizes = [width << level for level in range(levels)]
        downs = [pair(a, b) for a, b in zip([3, *sizes], sizes)]
        ups = [pair(a + b, b) for a, b in zip(sizes[:0:-1], sizes[-2::-1])]
        self.levels, self.blocks, self.out = levels, nn.ModuleList(downs + ups), nn.Conv2d(width, 3, 1)

    def forward(self, images):
        x, kept = images, []
        for block in self.blocks[: self.levels - 1]:
            x = block(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.blocks[self.levels - 1](x)
        for block in self.blocks[self.levels :]:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2), kept.pop()], 1))
        return functional.mse_loss(self.out(x), images)


def workloads(is_small):
    """Name: a model, and its batch."""
    if is_small:
        return {
            "gpt2": (lambda: Language(64, 32, 4, 4, False), lambda: torch.randint(0, 64, (4, 32))),
            "llama": (lambda: Language(64, 32, 4, 4, True), lambda: torch.randint(0, 64, (4, 32))),
            "resnet": (lambda: ResNet((1, 1, 1, 1), 8), lambda: torch.randn(4, 3, 64, 64)),
            "unet": (lambda: Unet(8, 3), lambda: torch.randn(4, 3, 32, 32)),
        }
    return {
        "gpt2": (lambda: Language(50257, 768, 12, 12, False), lambda: torch.randint(0, 50257, (16, 1024))),
        "llama": (lambda: Language(32000, 2048, 16, 18, True), lambda: torch.randint(0, 32000, (4, 2048))),
        "resnet": (lambda: ResNet((3, 4, 6, 3), 64), lambda: torch.randn(256, 3, 224, 224)),
        "unet": (lambda: Unet(64, 5), lambda: torch.randn(16, 3, 256, 256)),
    }


class Bench:
    def __init__(self, make, data, device, steps):
        self._make, self._data, self._device, self._steps = make, data, torch.device(device), steps

    def setup(self):
        """As plan_step takes it; no optimizer, so that ways differ by activations alone."""
        model, batch = self._make().to(self._device), self._data().to(self._device)

        def step():
            with torch.autocast(self._device.type, torch.bfloat16):
                loss = model(batch)
            loss.backward()
            model.zero_grad()
            return loss

        return step

    def run(self, change):
        """Losses, seconds of the median step, and bytes live at most. `change` gets the model, and returns what to call instead."""
        torch.manual_seed(0)
        model, batch = self._make().to(self._device), self._data().to(self._device)
        call = change(model)
        losses, times, peak = [], [], 0

        def step():
            with torch.autocast(self._device.type, torch.bfloat16):
                loss = call(batch)
            loss.backward()
            model.zero_grad()
            return loss.detach()

        for _ in range(2):
            losses.append(step())
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        for _ in range(self._steps):
            start = time.perf_counter()
            losses.append(step())
            if self._device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated()
        else:
            # What was there before is not recorded.
            there = sum(each.untyped_storage().nbytes() for each in (*model.parameters(), *model.buffers(), batch))
            with tempfile.TemporaryDirectory() as folder:
                peak = there + omniheap.torch.record_step(lambda: step, os.path.join(folder, "step.omt"), fake=False, device="cpu").peak_live_bytes
        return [each.item() for each in losses], sorted(times)[len(times) // 2], peak


def whole(model):
    """The model in one checkpoint."""
    return lambda batch: checkpoint(model, batch, use_reentrant=False)


def checkpointed(every):
    """Puts one block out of so many into a checkpoint of its own."""

    def change(model):
        for block in list(model.blocks)[::every]:
            forward = block.forward
            block.forward = lambda *given, forward=forward: checkpoint(forward, *given, use_reentrant=False)
        return model

    return change


def budget(share):
    def change(model):
        torch._dynamo.reset()
        torch._functorch.config.activation_memory_budget = share
        return torch.compile(model)

    return change


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default=None)
    parser.add_argument("--capacities", default="0.4,0.6,0.8")
    parser.add_argument("--models", default="gpt2,llama,resnet,unet")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=80, help="begin nothing new after this")
    parser.add_argument("--budget", default="0.6", help="capacities at which to compile")
    options = parser.parse_args()
    if options.small:
        torch.set_num_threads(1)
    device = options.device or ("cpu" if options.small else "cuda:0")
    began, ratios = time.perf_counter(), []
    is_over = lambda: time.perf_counter() - began > options.seconds
    for name in options.models.split(","):
        bench = Bench(*workloads(options.small)[name], device, options.steps)
        minimum = {"min_bytes": 1024} if options.small else {}
        losses, plain_seconds, plain_peak = bench.run(lambda model: model)
        say(model=name, way="plain", seconds=plain_seconds, peak=plain_peak)
        known = {"whole": bench.run(whole), "halves": bench.run(checkpointed(2)), "blocks": bench.run(checkpointed(1))}
        for capacity in map(float, options.capacities.split(",")):
            if is_over():
                say(model=name, capacity=capacity, skipped="out of time")
                continue
            room = int(plain_peak * capacity)
            ways = dict(known)
            with explained(name, capacity, "plan"):
                ways["plan"] = planned(bench, room, device, minimum)
            if not options.small and str(capacity) in options.budget.split(","):
                with explained(name, capacity, "budget"):
                    ways["budget"] = bench.run(budget(capacity))
            for way, (found, seconds, peak) in ways.items():
                say(model=name, capacity=capacity, way=way, seconds=seconds, peak=peak, room=room, fits=peak <= room * 1.02, losses_equal=found == losses, of_plain=seconds / plain_seconds)
            others = [seconds for way, (_, seconds, peak) in ways.items() if way != "plan" and peak <= room * 1.02]
            if "plan" in ways and others:
                ratios.append(ways["plan"][1] / min(others))
                say(model=name, capacity=capacity, plan_of_best=ratios[-1])
    if ratios:
        say(geometric_mean=math.exp(sum(map(math.log, ratios)) / len(ratios)), worst=max(ratios), seconds=time.perf_counter() - began)


def planned(bench, room, device, minimum):
    start = time.perf_counter()
    # Nothing moves on a CPU.
    plan = omniheap.torch.plan_step(bench.setup, room, device=device, steps=1, seconds=3, move=device != "cpu", **minimum)
    took = time.perf_counter() - start
    kept = []

    def change(model):
        kept.append(omniheap.torch.apply(plan, model))
        return model

    result = bench.run(change)
    say(planned_peak=plan.peak_bytes, peak=result[2], plan_seconds=took, cost_seconds=plan.cost_seconds, least_cost_seconds=plan.least_cost_seconds, **kept[0].figures())
    return result


@contextlib.contextmanager
def explained(name, capacity, way):
    """A way that fails is a line, and the others go on."""
    try:
        yield
    except (omniheap.torch.OmniheapError, RuntimeError) as error:
        say(model=name, capacity=capacity, way=way, failed=str(error).splitlines()[0])


def say(**line):
    print(json.dumps({key: round(value, 5) if isinstance(value, float) else value for key, value in line.items()}), flush=True)


if __name__ == "__main__":
    main()

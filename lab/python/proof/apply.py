"""Plans that change the program, on a GPU: step time and peak beside checkpointing and PyTorch's memory budget.

    python apply.py [--small] [--device cuda:0] [--models gpt2,llama,resnet,unet] [--shares 0.4,0.6,0.8] [--between 0.3,0.6] [--steps 4] [--seconds 100] [--ways blocks,halves,whole] [--milp decisions.json] [--budget 0.75,0.5,0.25] [--backend aot_eager]

Prints a line of JSON for whatever is known, and at the end a table, also of a run that fails or is ended early. A capacity is a share of the
plain peak (`--shares`), or lies between the floor, which no plan can pass, and the plain peak (`--between`); both are printed. Shares below the floor are
said to be so, and not run. Ways: `plan` (ours), `whole` (all blocks in one checkpoint), `halves` (every other block), `blocks` (each block in its own), `milp` (selective checkpoints as
PyTorch's `sac_milp` decides them for a capacity: `--milp`, a file by milp.py),
and with `--budget` compiled models (`activation_memory_budget`, these shares and 1), last, because compiling takes long. A compiled step is compared with the compiled step without
a budget, as ours is with the plain one: `plan_of_budget` is what a plan adds over what the fastest budget that fits adds. `aot_eager` partitions models as if they were compiled, and
runs them by PyTorch's own kernels. On a CPU peaks include what kernels take inside, which no plan knows. A way that passes its capacity by 2 % is printed, and not compared.
`seconds` is the time of a step among `--steps` one after the other, as a training loop runs them, the less of two; in `waited` the GPU has finished each before the next begins, the least: there Python's time shows.
Models share the time: none begins anything new after its part of `--seconds`. `--small` runs on a CPU to see that the script works. Needs OMNIHEAP_COMMAND.
"""

import argparse
import contextlib
import functools
import gc
import json
import math
import pathlib
import signal
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import omniheap.fit


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
    """One workload, with plans for it."""

    def __init__(self, make, data, device, steps, is_small):
        self._make, self._data, self._device, self._steps = make, data, torch.device(device), steps
        self._minimum = {"min_bytes": 1024} if is_small else {}

    def draft(self):
        # Nothing moves on a CPU.
        return omniheap.fit.draft_step(self._setup, device=str(self._device), steps=1, move=self._device.type != "cpu", **self._minimum)

    def _setup(self):
        """As draft_step takes it; no optimizer, so that ways differ by activations alone."""
        model, batch = self._create()
        return lambda: self._step(model, model, batch)

    def _create(self):
        with self._device:
            return self._make(), self._data()

    def _step(self, model, call, batch, look=None):
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = call(batch)
        loss.backward()
        looked = look(model) if look is not None else None
        model.zero_grad()
        return loss.detach(), looked

    def run(self, change):
        """A `Run`. `change` gets the model, and returns what to call instead."""
        torch.manual_seed(0)
        model, batch = self._create()
        call = change(model)
        step = lambda look=None: self._step(model, call, batch, look)
        step()
        step()
        gc.collect()
        self._wait()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        waited = min(self._timed(step, 1) for _ in range(self._steps))
        seconds = min(self._timed(step, self._steps) for _ in range(2))
        peak = torch.cuda.max_memory_allocated() if self._device.type == "cuda" else self._profiled_peak(model, batch, step)
        loss, gradients = step(gradients_of)
        return Run(seconds, waited, peak, loss.item(), gradients)

    def _timed(self, step, count):
        """Seconds of one step among so many, from a GPU that does nothing to one that has finished."""
        start = time.perf_counter()
        for _ in range(count):
            step()
        self._wait()
        return (time.perf_counter() - start) / count

    def _wait(self):
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _profiled_peak(self, model, batch, step):
        # Earlier tensors are not profiled.
        live = most = sum(each.untyped_storage().nbytes() for each in (*model.parameters(), *model.buffers(), batch))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            step()
        events = [(event.start_ns(), event.nbytes()) for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        for _, size in sorted(events, key=lambda event: event[0]):
            live += size
            most = max(most, live)
        return most


def gradients_of(model):
    """A sum for each parameter: equal gradients have equal ones."""
    return [each.grad.double().abs().sum().item() for each in model.parameters() if each.grad is not None]


class Run:
    """Seconds of a step, and of one that is waited for, bytes live at most, and what came out."""

    def __init__(self, seconds, waited, peak, loss, gradients):
        self.seconds, self.waited, self.peak, self.loss, self.gradients = seconds, waited, peak, loss, gradients

    def difference(self, other):
        """The most by which a gradient's sum differs, as a share."""
        if len(self.gradients) != len(other.gradients):
            return math.inf
        return max((abs(a - b) / max(abs(b), 1e-30) for a, b in zip(self.gradients, other.gradients)), default=0.0)


def whole(model):
    """The model in one checkpoint."""
    return lambda batch: checkpoint(model, batch, use_reentrant=False)


def checkpointed(every):
    """Puts one block out of so many into a checkpoint of its own."""

    def change(model):
        for block in list(model.blocks)[::every]:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        return model

    return change


def selective(decided):
    """Checkpoints modules as `sac_milp` decided: for each its operators, and whether they are saved."""

    def change(model):
        for name, (operators, saves) in decided.items():
            module = model.get_submodule(name)
            contexts = lambda operators=operators, saves=saves: create_selective_checkpoint_contexts(functools.partial(_policy, operators, saves, {}))
            module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False, context_fn=contexts)
        return model

    return change


def _policy(operators, saves, counts, context, function, *_, **__):
    """Returns the treatment of the next operator of a pass, or of a pass that is repeated."""
    if function is torch.ops.aten.clone.default:
        # Not among those that are decided about.
        return CheckpointPolicy.PREFER_RECOMPUTE
    number = counts.get(context.is_recompute, 0)
    counts[context.is_recompute] = number + 1
    if _family(operators[number]) != _family(function._overloadpacket.__name__):
        raise ValueError(f"operator {number} was {operators[number]} for sac_milp, and is {function}")
    return CheckpointPolicy.MUST_SAVE if saves[number] else CheckpointPolicy.PREFER_RECOMPUTE


def _family(name):
    """Kernels of attention, and those of batch normalisation, are one operator."""
    return next((part for part in ("_scaled_dot_product", "batch_norm") if part in name), name)


def budget(share, backend):
    def change(model):
        torch._dynamo.reset()
        torch._functorch.config.activation_memory_budget = share
        return torch.compile(model, backend=backend)

    return change


class Table:
    """Lines as they are known, and all of them at the end."""

    _COLUMNS = ("model", "of_peak", "of_room", "way", "of_plain", "waited_of_plain", "peak_of_capacity", "fits", "loss_equal", "gradients_differ")

    def __init__(self):
        self._rows, self._ratios, self._waited, self._began = [], [], [], time.perf_counter()

    def seconds(self):
        return time.perf_counter() - self._began

    def compared(self, ratio, waited):
        self._ratios.append(ratio)
        self._waited.append(waited)

    def add(self, **row):
        self._rows.append(row)
        say(**row)

    def print(self):
        print("| " + " | ".join(self._COLUMNS) + " |\n|" + "---|" * len(self._COLUMNS))
        for row in self._rows:
            print("| " + " | ".join(_cell(row.get(column)) for column in self._COLUMNS) + " |")
        if self._ratios:
            mean = lambda ratios: math.exp(sum(map(math.log, ratios)) / len(ratios))
            say(
                plan_of_best_geometric_mean=mean(self._ratios), worst=max(self._ratios), waited_of_best_geometric_mean=mean(self._waited), waited_worst=max(self._waited),
                compared=len(self._ratios), seconds=self.seconds(),
            )
        sys.stdout.flush()


def _cell(value):
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


class Trial:
    """One model at several capacities."""

    def __init__(self, name, options, device, table, until):
        self._name, self._options, self._table, self._until = name, options, table, until
        self._bench = Bench(*workloads(options.small)[name], device, options.steps, options.small)
        self._known, self._plans = {}, {}
        self._decided = json.loads(pathlib.Path(options.milp).read_text()).get(name, {}) if options.milp else {}

    def run(self):
        bench = self._bench
        self._plain = bench.run(lambda model: model)
        repeated = bench.run(lambda model: model)
        say(model=self._name, way="plain", seconds=self._plain.seconds, waited=self._plain.waited, peak=self._plain.peak, loss_repeats=repeated.loss == self._plain.loss, gradients_differ=repeated.difference(self._plain))
        start = time.perf_counter()
        draft = bench.draft()
        self._floor = draft.floor().bytes
        say(model=self._name, draft_seconds=time.perf_counter() - start, drafted_peak=draft.plain_peak_bytes, floor=str(draft.floor()), floor_of_peak=self._floor / self._plain.peak)
        for way, change in (("blocks", checkpointed(1)), ("halves", checkpointed(2)), ("whole", whole)):
            if way in self._options.ways.split(",") and not self._is_late():
                with explained(self._name, way):
                    self._known[way] = bench.run(change)
        for capacity, share in self._capacities():
            if self._is_late():
                say(model=self._name, of_peak=capacity / self._plain.peak, skipped="out of time")
                continue
            with explained(self._name, "plan"):
                self._compare(draft, capacity, self._milp(share))

    def _is_late(self):
        return self._table.seconds() > self._until

    def _capacities(self):
        """Bytes, and shares of the plain peak as the options have them; those first that are more telling."""
        room, wanted = self._plain.peak - self._floor, []
        for share in numbers(self._options.between):
            wanted.append((int(self._floor + share * room), None))
        for share in numbers(self._options.shares):
            if self._plain.peak * share > self._floor:
                wanted.append((int(self._plain.peak * share), f"{share:g}"))
            else:
                say(model=self._name, of_peak=share, skipped=f"below the floor, which is {self._floor / self._plain.peak:.3f} of the peak")
        return wanted

    def _milp(self, share):
        """A run as `sac_milp` decided for a share, if it did."""
        found = {}
        if self._decided.get(share):
            with explained(self._name, f"milp {share}"):
                found["milp"] = self._bench.run(selective(self._decided[share]))
        elif self._options.milp:
            say(model=self._name, of_peak=share, way="milp", skipped="it found no solution")
        return found

    def _compare(self, draft, capacity, others):
        ways = {**self._known, **others, "plan": self._planned(draft, capacity)}
        self._plans[capacity] = ways["plan"]
        for way, run in ways.items():
            self._say(way, run, capacity)
        others = {way: run for way, run in ways.items() if way != "plan" and fits(run, capacity)}
        if others:
            plan, best = ways["plan"], min(others, key=lambda way: others[way].seconds)
            ratio, waited = plan.seconds / others[best].seconds, plan.waited / min(run.waited for run in others.values())
            say(model=self._name, of_peak=capacity / self._plain.peak, best=best, plan_of_best=ratio, waited_of_best=waited, plan_fits=fits(plan, capacity))
            self._table.compared(ratio, waited)

    def _say(self, way, run, capacity):
        self._table.add(
            model=self._name, way=way, of_peak=capacity / self._plain.peak, of_room=(capacity - self._floor) / (self._plain.peak - self._floor),
            of_plain=run.seconds / self._plain.seconds, waited_of_plain=run.waited / self._plain.waited, peak_of_capacity=run.peak / capacity, fits=fits(run, capacity),
            loss_equal=run.loss == self._plain.loss, gradients_differ=run.difference(self._plain), seconds=run.seconds, waited=run.waited, peak=run.peak, capacity=capacity,
        )

    def _planned(self, draft, capacity):
        """A run by a plan; if the model keeps what the plan does not know, by one that leaves room for it."""
        run, applied = self._followed(draft, capacity, capacity)
        unplanned = applied.figures()["unplanned_bytes"]
        if applied.differences():
            say(model=self._name, of_peak=capacity / self._plain.peak, differences=applied.differences())
        if unplanned and not fits(run, capacity) and not self._is_late():
            run, _ = self._followed(draft, capacity, max(capacity - unplanned, 1))
        return run

    def _followed(self, draft, capacity, planned_for):
        start = time.perf_counter()
        plan = draft.plan(planned_for, seconds=3)
        took, applied = time.perf_counter() - start, []

        def change(model):
            applied.append(omniheap.fit.apply(plan, model))
            return model

        run = self._bench.run(change)
        planned = {f"{choice}_bytes": plan.bytes(choice) for choice in ("keep", "recompute", "move")}
        say(
            model=self._name, planned_for=planned_for / capacity, planned_peak=plan.peak_bytes, peak=run.peak, plan_seconds=took, cost_seconds=plan.cost_seconds,
            least_cost_seconds=plan.least_cost_seconds, **planned, **applied[0].figures(),
        )
        return run, applied[0]

    def compile(self):
        """Budgets for what a compiled model saves, beside the plans."""
        runs = {}
        for share in (1.0, *numbers(self._options.budget)):
            if self._table.seconds() < self._options.seconds:
                start = time.perf_counter()
                with explained(self._name, f"budget {share}"):
                    runs[share] = self._bench.run(budget(share, self._options.backend))
                    say(model=self._name, way=f"budget {share:g}", compiled_seconds=time.perf_counter() - start)
        for capacity, plan in self._plans.items():
            fitting = {share: run for share, run in runs.items() if fits(run, capacity)}
            for share, run in runs.items():
                self._say(f"budget {share:g}", run, capacity)
            if fitting and 1.0 in runs:
                share, best = min(fitting.items(), key=lambda each: each[1].seconds)
                added = best.seconds / runs[1.0].seconds
                say(model=self._name, of_peak=capacity / self._plain.peak, budget=share, of_compiled=added, plan_of_budget=plan.seconds / self._plain.seconds / added)


def fits(run, capacity):
    return run.peak <= capacity * 1.02


def numbers(text):
    return [float(each) for each in text.split(",") if each]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default=None)
    parser.add_argument("--shares", default="0.4,0.6,0.8", help="capacities as shares of the plain peak")
    parser.add_argument("--between", default="0.3,0.6", help="capacities between the floor, 0, and the plain peak, 1")
    parser.add_argument("--models", default="gpt2,llama,resnet,unet")
    parser.add_argument("--ways", default="blocks,halves,whole")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=100, help="begin nothing new after this")
    parser.add_argument("--budget", default="", help="compile models too, with these shares of what they would save, as long as there is time")
    parser.add_argument("--backend", default="inductor", help="what compiles them; aot_eager partitions only")
    parser.add_argument("--milp", default="", help="what sac_milp decided, a file by milp.py")
    options = parser.parse_args()
    if options.small:
        torch.set_num_threads(1)
    device = options.device or ("cpu" if options.small else "cuda:0")
    table, names, trials = Table(), options.models.split(","), []
    # Whoever ends this gets the table of what is known.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for number, name in enumerate(names):
            until = table.seconds() + (options.seconds - table.seconds()) / (len(names) - number)
            with explained(name, "all"):
                trial = Trial(name, options, device, table, until)
                trial.run()
                trials.append(trial)
        for trial in trials if options.budget else ():
            trial.compile()
    finally:
        table.print()


@contextlib.contextmanager
def explained(name, way):
    """Writes a line for what fails, and lets the rest go on."""
    try:
        yield
    except Exception as error:
        say(model=name, way=way, failed=f"{type(error).__name__}: {error}"[:600])
    finally:
        gc.collect()
        if torch.cuda.is_initialized():
            # The workspaces that products of one model leave to cuBLAS are no part of the next one's peak.
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()


def say(**line):
    print(json.dumps({key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in line.items()}), flush=True)


if __name__ == "__main__":
    main()

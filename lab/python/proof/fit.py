"""Predictions of `fit`, `largest_batch` and `record_step(world=N)`, beside what a GPU really takes.

    python fit.py [--workloads gpt2,resnet50,…] [--limits 24,80,8] [--bisect gpt2,resnet50,…] [--ranks 8,64,512] [--parts peak,time,batch,rank,tracker] [--seconds 450] [--folder DIR] [--small]

Prints a line of JSON for whatever is known, and at the end a table, also of a run that is ended early; a workload that fails is a line with `error`.

`fixed`: what the driver gives a process that holds nothing. `rank`: a decoder sharded among so many ranks, of which one exists.
`peak`: reserved bytes of PyTorch's allocator in three steps, and the driver's figure for the process; predicted from fake tensors alone (`fake`) and with workspaces measured at
batches 2 and 8 (`measured`), as shares of what was reserved, and as shares of the driver's figure with the fixed bytes added (`fake_driver`), or with those that were measured with the workspaces (`measured_driver`). Beside them, as shares of what was reserved, PyTorch's `MemTracker` on real tensors at the first batch, and the
formula of `accelerate estimate-memory`.
`batch`: the largest batch by steps that run on the GPU (`largest_batch(..., fake=False)`), whether it runs 20 steps, and the largest that does (`runs`), each with a model of its own: where the answer runs and the next one does not,
it is the largest, else the search goes on from there; `refused` counts requests that were refused in it, after which cuDNN took another algorithm. `foreseen` is the answer of a process that sees no GPU, from fake tensors and the workspaces.
`time`: at the first two limits the workloads of `--bisect` find the largest by bisection as Lightning does (`bisected`): one model is kept, batches double from 1 until memory runs out, then halves, three steps each, and
garbage and the cache are cleared before each. What it finds need not run with a new model, nor for long. Its seconds and those of the answer are taken alone on the GPU, after all kernels were loaded; everything else about batches runs side by side, each in its limit.

Matrix products of float32 run in TF32. `--small` predicts small models on a machine without a GPU, and measures nothing. `--folder` keeps the files of workspaces. Needs OMNIHEAP_COMMAND, Transformers and torchvision.
"""

import argparse
import concurrent.futures
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
import traceback

import torch
import torchvision
import transformers.masking_utils
from torch import nn

import omniheap.fit

GIB = 1 << 30
STEPS = 20
# The GPU that is predicted, in processes that see none.
PREDICTED = "NVIDIA H200"
# Steps of a trial, as Lightning's search for a batch has.
TRIAL = 3
# Batches at which peaks are compared.
PEAKS = (16, 32)
# GiB that processes side by side may take together, of 139, and what each has beside its limit: its context, and traces of batches that are slightly too large.
TOGETHER, BESIDE = 130, 1.12


def training(optimizer, loss, autocast=False):
    def step():
        try:
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                value = loss()
            value.backward()
            optimizer.step()
        finally:
            # The gradients go also where memory ran out: a bisection goes on with this model.
            optimizer.zero_grad()

    return step


def language(kind, small):
    sizes = {"vocab_size": 1000, "layers": 2, "width": 64, "heads": 2} if small else {"vocab_size": 32000, "layers": 12, "width": 768, "heads": 12}
    words, layers, width, heads = sizes.values()
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=words, n_layer=layers, n_embd=width, n_head=heads)
        return transformers.GPT2LMHeadModel(config), words
    if kind == "bert":
        config = transformers.BertConfig(vocab_size=words, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width)
        return transformers.BertForMaskedLM(config), words
    config = transformers.LlamaConfig(
        vocab_size=words, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=8 * width // 3, use_cache=False
    )
    return transformers.LlamaForCausalLM(config), words


def text(kind, length=512, autocast=False):
    """Training of a language model of Transformers."""

    def build(small):
        with torch.device("cuda"):
            model, words = language(kind, small)
        optimizer = torch.optim.AdamW(model.parameters())

        def at(batch):
            tokens = torch.randint(0, words, (batch, 32 if small else length), device="cuda")
            return training(optimizer, lambda: model(input_ids=tokens, labels=tokens).loss, autocast)

        return at

    return build


def reading(kind, length=1024):
    """Inference of a language model of Transformers."""

    def build(small):
        with torch.device("cuda"):
            model, words = language(kind, small)
        model.half()

        def at(batch):
            tokens = torch.randint(0, words, (batch, 32 if small else length), device="cuda")

            def step():
                with torch.no_grad():
                    model(input_ids=tokens)

            return step

        return at

    return build


def pictures(kind, autocast=False):
    """Training of a model of torchvision."""

    def build(_):
        with torch.device("cuda"):
            model = getattr(torchvision.models, kind)(num_classes=100)
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

        def at(batch):
            images, classes = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(0, 100, (batch,), device="cuda")
            return training(optimizer, lambda: nn.functional.cross_entropy(model(images), classes), autocast)

        return at

    return build


def mlp(small):
    """Wide layers alone, where nothing is hidden."""
    width = 64 if small else 4096
    with torch.device("cuda"):
        model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU())))
    optimizer = torch.optim.AdamW(model.parameters())

    def at(batch):
        data = torch.randn(batch * 64, width, device="cuda")
        return training(optimizer, lambda: model(data).square().mean())

    return at


# Each makes a model, and returns a function of a batch that returns a step.
WORKLOADS = {
    "gpt2": text("gpt2"),
    "gpt2_bf16": text("gpt2", 1024, autocast=True),
    "bert": text("bert"),
    "llama": text("llama"),
    "llama_bf16": text("llama", 1024, autocast=True),
    "llama_read": reading("llama"),
    "resnet50": pictures("resnet50"),
    "resnet50_bf16": pictures("resnet50", autocast=True),
    "convnext_tiny": pictures("convnext_tiny"),
    "efficientnet_b0": pictures("efficientnet_b0"),
    "vit_b_16": pictures("vit_b_16", autocast=True),
    "mlp": mlp,
}


def say(**known):
    print(json.dumps(known), flush=True)


def timed(work):
    begin = time.monotonic()
    return work(), time.monotonic() - begin


def shortly(error):
    """An error in a line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:300]} ({os.path.basename(where.filename)}, line {where.lineno})"


def made(name, small=False):
    """A function of a batch that returns a step with a model of its own, as `record_step` takes it."""
    return lambda batch: lambda: WORKLOADS[name](small)(batch)


# Predictions, in processes that see no GPU.


def hide_gpu():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def predicted(setup, **options):
    return omniheap.fit.fit(setup, capacity="1TiB", gpu=PREDICTED, **options)


def foresee_peaks(name, small, workspaces):
    peaks = {}
    for batch in PEAKS:
        answer = predicted(made(name, small)(batch))
        parameters = next(each["bytes"] for each in answer["peak"]["categories"] if each["category"] == "parameter")
        # Answer of `accelerate estimate-memory`: the parameters, or four times that to train them with Adam.
        peaks[batch] = {"fake": answer["peak_reserved_bytes"], "accelerate": parameters * (1 if name.endswith("_read") else 4)}
        if workspaces:
            peaks[batch]["measured"] = predicted(made(name, small)(batch), workspaces=workspaces, fixed=0)["peak_reserved_bytes"]
    return peaks


def foresee_batch(name, gib, small, workspaces):
    # Limits are about PyTorch's memory alone.
    options = {"workspaces": workspaces, "fixed": 0} if workspaces else {}
    found, seconds = timed(lambda: omniheap.fit.largest_batch(made(name, small), capacity=f"{gib}GiB", gpu=PREDICTED, **options))
    return {"foreseen": found.batch, "foreseen_by": found.by, "foreseen_traced": found.traced, "foreseen_seconds": round(seconds, 2)}


def rank(small):
    def setup():
        width, depth = (64, 2) if small else (2048, 16)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        model = omniheap.fit.shard(nn.TransformerEncoder(layer, depth, enable_nested_tensor=False), "full", wrap="layers.*", prefetch=1)
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.randn(4, 256, width, device="cuda")

        return training(optimizer, lambda: model(data).square().mean())

    return setup


def foresee_rank(world, small):
    return predicted(rank(small), world=world)["peak_reserved_bytes"]


# Measurements, on the GPU.


def open_gpu():
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.ones(1, device="cuda")


def clean():
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def used():
    """Bytes of the device that are not free, by its driver."""
    free, whole = torch.cuda.mem_get_info()
    return whole - free


def taken(setup, steps=TRIAL):
    """Returns what PyTorch reserves while a step runs, and the driver's figure then; None where memory runs out."""
    clean()
    try:
        step = setup()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_reserved(), used() - torch.cuda.memory_reserved() + torch.cuda.max_memory_reserved()
    except torch.OutOfMemoryError:
        return None
    finally:
        step = None
        clean()


def largest(runs, batch):
    """The largest batch that runs, by real failures: from this one on steps double until one runs and another does not."""
    good, bad, stride = 0, None, 1
    while batch > good and (bad is None or batch < bad):
        if runs(batch):
            good, batch = batch, batch + stride
        else:
            bad, batch = batch, batch - stride
        stride *= 2
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if runs(middle) else (good, middle)
    return good


def bisection(name):
    """The largest batch as Lightning finds it: batches double from 1 on, then halves, with one model."""
    clean()
    at = WORKLOADS[name](False)

    def runs(batch):
        gc.collect()
        torch.cuda.empty_cache()
        try:
            step = at(batch)
            for _ in range(TRIAL):
                step()
            torch.cuda.synchronize()
            return True
        except torch.OutOfMemoryError:
            return False

    good, bad = 0, 1
    while runs(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if runs(middle) else (good, middle)
    return good


def limit(gib):
    torch.cuda.set_per_process_memory_fraction(min(1.0, (gib * GIB + 1) / torch.cuda.mem_get_info()[1]))


def said(name, gib):
    """The answer by steps on the GPU."""
    clean()
    found, seconds = timed(lambda: omniheap.fit.largest_batch(made(name), capacity=f"{gib}GiB", fake=False))
    return {"said": found.batch, "by": found.by, "traced": found.traced, "seconds": round(seconds, 2), "difference": (found.difference or "")[:160]}


def refusals():
    """Requests that PyTorch's allocator refused so far; where one was for a workspace, cuDNN takes another algorithm."""
    return torch.cuda.memory_stats().get("num_ooms", 0)


def tried(name, gib, known):
    """Returns the truth about an answer: whether it runs 20 steps, and the largest that does, each with a model of its own."""
    results, refused = {0: True}, {0: 0}

    def runs(batch):
        if batch not in results:
            before = refusals()
            results[batch] = taken(made(name)(batch), STEPS) is not None
            refused[batch] = refusals() - before
        return results[batch]

    limit(gib)
    try:
        known["twenty_steps"] = runs(known["said"])
        known["runs"] = largest(runs, max(1, known["said"]))
        known["refused"] = refused[known["runs"]]
    finally:
        limit(1 << 20)
    return known


def compared(name, gib):
    """The answer and a bisection, each with its seconds; the first answer has kernels loaded."""
    said(name, gib)
    known = said(name, gib)
    limit(gib)
    try:
        known["bisected"], seconds = timed(lambda: bisection(name))
    finally:
        limit(1 << 20)
        clean()
    return {**known, "bisection": round(seconds, 2)}


def cell(name, gib, known):
    """A limit of a workload, in a process beside others."""
    if known is None:
        limit(gib * BESIDE)
        known = said(name, gib)
    return tried(name, gib, known)


def tracked(name):
    """The peak of tensors that PyTorch's own tool finds in two steps."""
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    with tracker:
        step = made(name)(PEAKS[0])()
        step()
        tracker.reset_mod_stats()
        step()
    return tracker.get_tracker_snapshot("peak")[torch.device("cuda:0")]["Total"]


def ranked(world):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        return taken(rank(False))[0]
    finally:
        torch.distributed.destroy_process_group()


class Proof:
    def __init__(self, arguments):
        self.small, self.names, self.worlds, self.limits, self.bisected = arguments.small, arguments.workloads, arguments.ranks, arguments.limits, arguments.bisect
        self.parts = arguments.parts
        self.folder, self.ends = arguments.folder or tempfile.mkdtemp(), time.monotonic() + arguments.seconds
        self.peaks, self.batches, self.ranks, self.shares, self.foreseen, self.fixed = {}, [], [], [], [], 0
        spawn = multiprocessing.get_context("spawn")
        cores = os.cpu_count()
        self.blind = concurrent.futures.ProcessPoolExecutor(max(1, cores // 2), spawn, hide_gpu)
        self.sighted = None if self.small else concurrent.futures.ProcessPoolExecutor(max(1, cores // 2), spawn, open_gpu)

    def run(self):
        if not self.small:
            open_gpu()
            self.fixed = used() - torch.cuda.memory_reserved()
            say(part="fixed", bytes=self.fixed)
        measured = {name: found for name in self.names if (found := self.attempt("measure", name, self.measure, name)) is not None}
        known = {}
        if "time" in self.parts and not self.small:
            for gib in self.limits[:2]:
                for name in filter(measured.__contains__, self.bisected):
                    known[name, gib] = self.attempt("time", name, self.compare, name, gib)
        peaks, foreseen, foreseen_ranks = {}, {}, {}
        if "peak" in self.parts:
            peaks = {name: self.blind.submit(foresee_peaks, name, self.small, self.path(name)) for name in measured}
            foreseen = {(name, gib): self.blind.submit(foresee_batch, name, gib, self.small, self.path(name)) for gib in self.limits for name in measured}
        if "rank" in self.parts:
            foreseen_ranks = {world: self.blind.submit(foresee_rank, world, self.small) for world in self.worlds}
        for name, found in peaks.items():
            self.attempt("peak", name, self.peak, name, found, measured[name])
        if self.small:
            for (name, gib), found in foreseen.items():
                self.attempt("batch", name, lambda: say(part="batch", workload=name, limit=gib, **found.result(self.left())))
        else:
            self.side_by_side(known, foreseen, foreseen_ranks, measured)
        for world, found in foreseen_ranks.items() if self.small else ():
            self.attempt("rank", str(world), lambda: say(part="rank", world=world, predicted=found.result(self.left())))

    def left(self):
        """Seconds."""
        return max(1.0, self.ends - time.monotonic())

    def attempt(self, part, name, work, *arguments):
        """Does a part of the work; None where it fails, or where no time is left."""
        if time.monotonic() > self.ends:
            return say(part=part, workload=name, skipped="no time is left")
        try:
            return work(*arguments)
        except Exception as error:
            say(part=part, workload=name, error=shortly(error))

    def path(self, name):
        return None if self.small else os.path.join(self.folder, f"{name}.json")

    def measure(self, name):
        """Measures workspaces, and peaks."""
        if self.small or "peak" not in self.parts:
            return {}
        for batch in (2, 8):
            clean()
            omniheap.fit.measure_workspaces(made(name)(batch), self.path(name))
        return {batch: taken(made(name)(batch)) for batch in PEAKS}

    def compare(self, name, gib):
        known = compared(name, gib)
        self.shares.append(known["seconds"] / known["bisection"])
        say(part="time", workload=name, limit=gib, **known, share=round(self.shares[-1], 3))
        return known

    def peak(self, name, found, measured):
        for batch, found in found.result(self.left()).items():
            if self.small:
                say(part="peak", workload=name, batch=batch, **found)
                continue
            reserved, driver = measured[batch]
            shares = {way: bytes / reserved for way, bytes in found.items()}
            known = omniheap.fit.Workspaces.load(self.path(name)).fixed_bytes
            shares.update(fake_driver=(found["fake"] + self.fixed) / driver, measured_driver=(found["measured"] + known) / driver)
            for way, share in shares.items():
                self.peaks.setdefault(way, []).append(share)
            say(part="peak", workload=name, batch=batch, reserved=reserved, driver=driver, **{way: round(share, 4) for way, share in shares.items()})

    def side_by_side(self, known, foreseen, foreseen_ranks, measured):
        """Everything for which nobody looks at a clock: processes run beside each other, as many as there is memory for."""
        # This process holds its context.
        clean()
        work = [(8, lambda world=world: self.sighted.submit(ranked, world), self.rank, (world, found)) for world, found in foreseen_ranks.items()]
        # Smaller ones find a place beside the largest.
        for gib in sorted(self.limits, reverse=True) if "batch" in self.parts else ():
            for name in measured:
                start = lambda name=name, gib=gib: self.sighted.submit(cell, name, gib, known.get((name, gib)))
                work.append((gib * BESIDE + 1, start, self.batch, (name, gib, foreseen.get((name, gib)))))
        # `MemTracker` keeps what it tracked, so that each has a process of its own.
        alone = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), open_gpu, max_tasks_per_child=1)
        work += [(measured[name][PEAKS[0]][0] / GIB + 1, lambda name=name: alone.submit(tracked, name), self.track, (name, measured[name][PEAKS[0]][0])) for name in measured if measured[name] and "tracker" in self.parts]
        running = {}
        while (work or running) and time.monotonic() < self.ends:
            room = TOGETHER - sum(size for size, _, _ in running.values())
            while work and len(running) < os.cpu_count() // 2 and (fitting := next((each for each in work if each[0] <= room), None)):
                work.remove(fitting)
                size, start, ends, about = fitting
                running[start()] = size, ends, about
                room -= size
            done, _ = concurrent.futures.wait(running, self.left(), concurrent.futures.FIRST_COMPLETED)
            for each in done:
                _, ends, about = running.pop(each)
                self.attempt(ends.__name__, str(about[0]), ends, each, *about)
        for _, ends, about in [each[1:] for each in work] + list(running.values()):
            say(part=ends.__name__, workload=str(about[0]), skipped="no time is left")
        alone.shutdown(wait=False, cancel_futures=True)

    def track(self, done, name, reserved):
        share = done.result() / reserved
        self.peaks.setdefault("tracker", []).append(share)
        say(part="tracker", workload=name, batch=PEAKS[0], tracker=round(share, 4))

    def batch(self, done, name, gib, foreseen):
        known = done.result()
        self.batches.append((known["said"], known["runs"], known["twenty_steps"]))
        say(part="batch", workload=name, limit=gib, **known)
        if foreseen is None:
            return
        other = foreseen.result(self.left())
        self.foreseen.append((other["foreseen"], known["runs"]))
        say(part="foreseen", workload=name, limit=gib, **other, runs=known["runs"])

    def rank(self, done, world, found):
        reserved, predicted = done.result(), found.result(self.left())
        self.ranks.append(predicted / reserved)
        say(part="rank", world=world, reserved=reserved, predicted=round(predicted / reserved, 4))

    def table(self):
        for way, shares in self.peaks.items():
            errors = [abs(share - 1) for share in shares]
            print(f"peak, {way}: median error {statistics.median(errors):.1%}, worst {max(errors):.1%} of {len(errors)}")
        if self.batches:
            equal = sum(said == real for said, real, _ in self.batches)
            larger = sum(said > real for said, real, _ in self.batches)
            near = sum(real * 0.98 <= said < real for said, real, _ in self.batches)
            finished = sum(finishes for *_, finishes in self.batches)
            print(f"largest batch: {equal} of {len(self.batches)} equal, {near} within 2 %, {larger} larger; {finished} run {STEPS} steps")
        if self.foreseen:
            print(f"largest batch without a GPU: {sum(said == real for said, real in self.foreseen)} of {len(self.foreseen)} equal, {sum(said > real for said, real in self.foreseen)} larger")
        if self.shares:
            print(f"time to answer: median {statistics.median(self.shares):.3f} of bisection, worst {max(self.shares):.3f} of {len(self.shares)}")
        if self.ranks:
            print(f"sharding: worst error {max(abs(share - 1) for share in self.ranks):.1%} of {len(self.ranks)}", flush=True)


def main():
    def whole(given):
        return [int(each) for each in given.split(",") if each]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=lambda given: given.split(","), default=list(WORKLOADS))
    parser.add_argument("--limits", type=whole, default=[24, 80, 8])
    parser.add_argument("--ranks", type=whole, default=[8, 64, 512])
    parser.add_argument("--bisect", type=lambda given: given.split(","), default=["gpt2", "bert", "llama_bf16", "resnet50", "efficientnet_b0", "vit_b_16"])
    parser.add_argument("--parts", type=lambda given: given.split(","), default=["peak", "time", "batch", "rank", "tracker"])
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--folder")
    parser.add_argument("--small", action="store_true")
    proof = Proof(parser.parse_args())
    try:
        proof.run()
    finally:
        proof.table()
        for pool in filter(None, (proof.blind, proof.sighted)):
            pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()

"""What `fit`, `largest_batch` and `record_step(world=N)` predict, beside what a GPU really takes.

    python fit.py [--workloads gpt2,resnet50,…] [--limits 24,8,80] [--bisect gpt2,resnet50,…] [--ranks 8,64,512] [--seconds 450] [--folder DIR] [--small]

Prints a line of JSON for whatever is known, and at the end a table, also of a run that is ended early; a workload that fails is a line with `error`.

`fixed`: what the driver gives a process that holds nothing. `rank`: a decoder sharded among so many ranks, of which one exists.
`peak`: reserved bytes of PyTorch's allocator in three steps, and the driver's figure for the process; predicted from fake tensors alone (`fake`) and with workspaces measured at
batches 2 and 8 (`measured`), as shares of what was reserved, and as shares of the driver's figure with the fixed bytes added (`fake_driver`), or with those that were measured with the workspaces (`measured_driver`). Beside them, as shares of what was reserved, PyTorch's `MemTracker` on real tensors at the first batch, and the
formula of `accelerate estimate-memory`.
`batch`: the largest batch that is predicted with those workspaces, whether it runs 20 steps, and the largest that runs three. At the first limit the workloads of `--bisect` find that one
by bisection from 1 on, and the seconds of both are compared; everything else begins at the prediction: where that runs and the next one does not, it is the largest.

Predictions are made by one process for each workload, which sees no GPU, while the others and the GPU work: their seconds are those of one core among busy ones. Matrix products of float32 run in TF32. `--small`
predicts small models on a machine without a GPU, and measures nothing. `--folder` keeps the files of workspaces. Needs OMNIHEAP_COMMAND, Transformers and torchvision.
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

import omniheap.torch

GIB = 1 << 30
STEPS = 20
# Steps of a trial, as Lightning's search for a batch has.
TRIAL = 3
# Batches at which peaks are compared.
PEAKS = (16, 32)


def training(optimizer, loss, autocast=False):
    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        optimizer.step()
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

    def make(batch, small):
        def setup():
            with torch.device("cuda"):
                model, words = language(kind, small)
            optimizer = torch.optim.AdamW(model.parameters())
            tokens = torch.randint(0, words, (batch, 32 if small else length), device="cuda")

            return training(optimizer, lambda: model(input_ids=tokens, labels=tokens).loss, autocast)

        return setup

    return make


def reading(kind, length=1024):
    """Inference of a language model of Transformers."""

    def make(batch, small):
        def setup():
            with torch.device("cuda"):
                model, words = language(kind, small)
            model.half()
            tokens = torch.randint(0, words, (batch, 32 if small else length), device="cuda")

            def step():
                with torch.no_grad():
                    model(input_ids=tokens)

            return step

        return setup

    return make


def pictures(kind, autocast=False):
    """Training of a model of torchvision."""

    def make(batch, _):
        def setup():
            with torch.device("cuda"):
                model = getattr(torchvision.models, kind)(num_classes=100)
            optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
            images, classes = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(0, 100, (batch,), device="cuda")

            return training(optimizer, lambda: nn.functional.cross_entropy(model(images), classes), autocast)

        return setup

    return make


def mlp(batch, small):
    """Wide layers alone, where nothing is hidden."""

    def setup():
        width = 64 if small else 4096
        with torch.device("cuda"):
            model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU())))
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.randn(batch * 64, width, device="cuda")

        return training(optimizer, lambda: model(data).square().mean())

    return setup


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


# Predictions, in processes that see no GPU.


def hide_gpu():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def predicted(setup, **options):
    return omniheap.torch.fit(setup, capacity="1TiB", **options)


def foresee(name, small, limits, batches, workspaces):
    """Everything that is predicted of a workload."""
    make = lambda batch: WORKLOADS[name](batch, small)
    # Limits are about PyTorch's memory alone.
    options = {"workspaces": workspaces, "fixed": 0} if workspaces else {}
    peaks, said = {}, {}
    for batch in batches:
        answer = predicted(make(batch))
        parameters = next(each["bytes"] for each in answer["peak"]["categories"] if each["category"] == "parameter")
        # What `accelerate estimate-memory` says: the parameters, or four times that to train them with Adam.
        peaks[batch] = {"fake": answer["peak_reserved_bytes"], "accelerate": parameters * (1 if name.endswith("_read") else 4)}
        if workspaces:
            peaks[batch]["measured"] = predicted(make(batch), **options)["peak_reserved_bytes"]
    for gib in limits:
        found, seconds = timed(lambda: omniheap.torch.largest_batch(make, capacity=f"{gib}GiB", **options))
        said[gib] = {"said": found.batch, "by": found.by, "traced": found.traced, "seconds": round(seconds, 2)}
    return {"peaks": peaks, "said": said}


def rank(small):
    def setup():
        width, depth = (64, 2) if small else (2048, 16)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        model = omniheap.torch.shard(nn.TransformerEncoder(layer, depth, enable_nested_tensor=False), "full", wrap="layers.*", prefetch=1)
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.randn(4, 256, width, device="cuda")

        return training(optimizer, lambda: model(data).square().mean())

    return setup


def foresee_rank(world, small):
    return predicted(rank(small), world=world)["peak_reserved_bytes"]


# Measurements, on the GPU.


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
    """What PyTorch reserves while a step runs, and the driver's figure then; None where memory runs out."""
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


def runs(make, batch, steps=TRIAL):
    return batch == 0 or taken(make(batch), steps) is not None


def largest(make, batch, is_good=None):
    """The largest batch that runs, by real failures: from this one on steps double until one runs and another does not."""
    good, bad, stride = 0, None, 1
    while batch > good and (bad is None or batch < bad):
        if is_good if is_good is not None else runs(make, batch):
            good, batch = batch, batch + stride
        else:
            bad, batch = batch, batch - stride
        stride, is_good = 2 * stride, None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if runs(make, middle) else (good, middle)
    return good


def limit(gib):
    torch.cuda.set_per_process_memory_fraction(min(1.0, (gib * GIB + 1) / torch.cuda.mem_get_info()[1]))


def tracked(setup):
    """The peak of tensors that PyTorch's own tool finds in two steps."""
    from torch.distributed._tools.mem_tracker import MemTracker

    clean()
    try:
        tracker = MemTracker()
        with tracker:
            step = setup()
            step()
            tracker.reset_mod_stats()
            step()
        return tracker.get_tracker_snapshot("peak")[torch.device("cuda:0")]["Total"]
    finally:
        step = tracker = None
        clean()


class Proof:
    def __init__(self, arguments):
        self.small, self.names, self.worlds, self.limits, self.bisected = arguments.small, arguments.workloads, arguments.ranks, arguments.limits, arguments.bisect
        self.folder, self.ends = arguments.folder or tempfile.mkdtemp(), time.monotonic() + arguments.seconds
        self.peaks, self.batches, self.ranks, self.shares, self.fixed = {}, [], [], [], 0
        # Twelve processes, each with one thread, beside the one that feeds the GPU.
        self.workers = concurrent.futures.ProcessPoolExecutor(min(12, os.cpu_count()), multiprocessing.get_context("spawn"), hide_gpu)

    def run(self):
        ranks = {world: self.workers.submit(foresee_rank, world, self.small) for world in self.worlds}
        if not self.small:
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.ones(1, device="cuda")
            self.fixed = used() - torch.cuda.memory_reserved()
            say(part="fixed", bytes=self.fixed)
        foreseen = {name: found for name in self.names if (found := self.attempt("measure", name, self.measure, name)) is not None}
        # The GPU need not wait for predictions.
        measured = {} if self.small else {name: found for name in foreseen if (found := self.attempt("peak", name, self.measure_peaks, name)) is not None}
        answers = {name: answer for name, found in foreseen.items() if (answer := self.attempt("predict", name, found.result)) is not None}
        for name, answer in answers.items():
            self.attempt("peak", name, self.peak, name, answer["peaks"], measured.get(name))
        for number, gib in enumerate(self.limits):
            for name, answer in answers.items():
                self.attempt("batch", name, self.batch, name, gib, answer["said"][gib], number == 0 and name in self.bisected)
            if number == 0:
                for world, found in ranks.items():
                    self.attempt("rank", str(world), self.rank, world, found)
        # Last, because it may keep what it tracked.
        for name, found in measured.items():
            self.attempt("tracker", name, self.track, name, found[PEAKS[0]][0])

    def track(self, name, reserved):
        share = tracked(self.make(name)(PEAKS[0])) / reserved
        self.peaks.setdefault("tracker", []).append(share)
        say(part="tracker", workload=name, batch=PEAKS[0], tracker=round(share, 4))

    def attempt(self, part, name, work, *arguments):
        """Does a part of the work; None where it fails, or where no time is left."""
        if time.monotonic() > self.ends:
            return say(part=part, workload=name, skipped="no time is left")
        try:
            return work(*arguments)
        except Exception as error:
            say(part=part, workload=name, error=shortly(error))

    def make(self, name):
        return lambda batch: WORKLOADS[name](batch, self.small)

    def path(self, name):
        return os.path.join(self.folder, f"{name}.json")

    def measure(self, name):
        """Measures workspaces, and has everything predicted."""
        path = None if self.small else self.path(name)
        for batch in () if self.small else (2, 8):
            clean()
            omniheap.torch.measure_workspaces(self.make(name)(batch), path)
        return self.workers.submit(foresee, name, self.small, self.limits, PEAKS, path)

    def measure_peaks(self, name):
        return {batch: taken(self.make(name)(batch)) for batch in PEAKS}

    def peak(self, name, predictions, measured):
        for batch, found in predictions.items():
            if self.small:
                say(part="peak", workload=name, batch=batch, **found)
                continue
            reserved, driver = measured[batch]
            shares = {way: bytes / reserved for way, bytes in found.items()}
            known = omniheap.torch.Workspaces.load(self.path(name)).fixed_bytes
            shares.update(fake_driver=(found["fake"] + self.fixed) / driver, measured_driver=(found["measured"] + known) / driver)
            for way, share in shares.items():
                self.peaks.setdefault(way, []).append(share)
            say(part="peak", workload=name, batch=batch, reserved=reserved, driver=driver, **{way: round(share, 4) for way, share in shares.items()})

    def batch(self, name, gib, found, is_bisected):
        if self.small:
            return say(part="batch", workload=name, limit=gib, **found)
        make, said = self.make(name), found["said"]
        limit(gib)
        try:
            finishes = runs(make, said, STEPS)
            real, seconds = timed(lambda: largest(make, 1) if is_bisected else largest(make, max(1, said), finishes if said else None))
        finally:
            limit(1 << 20)
        self.batches.append((said, real, finishes))
        if is_bisected:
            self.shares.append(found["seconds"] / seconds)
            found["bisection"] = round(seconds, 2)
        say(part="batch", workload=name, limit=gib, **found, runs=real, twenty_steps=finishes)

    def rank(self, world, found):
        said = found.result()
        if self.small:
            return say(part="rank", world=world, predicted=said)
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
        try:
            reserved, driver = taken(rank(self.small))
        finally:
            torch.distributed.destroy_process_group()
        self.ranks.append(said / reserved)
        say(part="rank", world=world, reserved=reserved, driver=driver, predicted=round(said / reserved, 4), predicted_driver=round((said + self.fixed) / driver, 4))

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
        if self.shares:
            print(f"time to answer: median {statistics.median(self.shares):.3f} of bisection, worst {max(self.shares):.3f} of {len(self.shares)}")
        if self.ranks:
            print(f"sharding: worst error {max(abs(share - 1) for share in self.ranks):.1%} of {len(self.ranks)}")


def main():
    def whole(given):
        return [int(each) for each in given.split(",") if each]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=lambda given: given.split(","), default=list(WORKLOADS))
    parser.add_argument("--limits", type=whole, default=[24, 8, 80])
    parser.add_argument("--ranks", type=whole, default=[8, 64, 512])
    parser.add_argument("--bisect", type=lambda given: given.split(","), default=["gpt2", "llama_bf16", "resnet50", "vit_b_16"])
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--folder")
    parser.add_argument("--small", action="store_true")
    proof = Proof(parser.parse_args())
    try:
        proof.run()
    finally:
        proof.table()
        proof.workers.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()

"""What `fit`, `largest_batch` and `record_step(world=N)` predict, beside what a GPU really takes.

    python fit.py [--workloads gpt2,resnet50,…] [--limits 8,24,80] [--ranks 8,64,512] [--seconds 500] [--small]

Prints a line of JSON for whatever is known, and at the end a table, also of a run that is ended early. First `rank`: a decoder sharded among so
many ranks, of which one exists, predicted and run. Then for each workload `peak`: reserved bytes of PyTorch's allocator, predicted from fake tensors alone (`fake`) and with workspaces measured at two small batches (`measured`), as
shares of what was reserved. `batch`: for each limit in GiB the largest batch that is predicted, the largest that runs (found by bisection with real failures), the seconds of
both, and whether the predicted one runs 20 steps. `--small` predicts small models on a machine without a GPU, and measures nothing. Needs OMNIHEAP_COMMAND; Transformers and torchvision for their workloads.
"""

import argparse
import gc
import json
import os
import statistics
import tempfile
import time

import torch
from torch import nn

import omniheap.torch

GIB = 1 << 30
STEPS = 20


def training(optimizer, loss, autocast=False):
    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def language(kind, small):
    import transformers

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
            model, words = language(kind, small)
            model = model.cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            tokens = torch.randint(0, words, (batch, 32 if small else length), device="cuda")

            return training(optimizer, lambda: model(input_ids=tokens, labels=tokens).loss, autocast)

        return setup

    return make


def reading(kind, length=1024):
    """Inference of a language model of Transformers."""

    def make(batch, small):
        def setup():
            model, words = language(kind, small)
            model = model.cuda().half()
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
            import torchvision

            model = getattr(torchvision.models, kind)(num_classes=100).cuda()
            optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
            images, classes = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(0, 100, (batch,), device="cuda")

            return training(optimizer, lambda: nn.functional.cross_entropy(model(images), classes), autocast)

        return setup

    return make


def mlp(batch, small):
    """Wide layers alone, where nothing is hidden."""

    def setup():
        width = 64 if small else 4096
        model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU()))).cuda()
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


def clean():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def reserved(setup, steps=2):
    """Bytes that PyTorch reserves while a step runs; None where it runs out of memory."""
    clean()
    try:
        step = setup()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_reserved()
    except torch.OutOfMemoryError:
        return None
    finally:
        step = None
        clean()


def predicted(setup, **options):
    return omniheap.torch.fit(setup, capacity="1TiB", **options)["peak_reserved_bytes"]


def bisect(make):
    """The largest batch that runs, by real failures."""
    good, bad = 0, 1
    while reserved(make(bad)) is not None:
        good, bad = bad, bad * 2
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if reserved(make(middle)) is not None else (good, middle)
    return good


def timed(work):
    begin = time.monotonic()
    return work(), time.monotonic() - begin


def limit(gib):
    torch.cuda.set_per_process_memory_fraction(min(1.0, gib * GIB / torch.cuda.mem_get_info()[1]))


class Proof:
    def __init__(self, arguments):
        self.small, self.folder = arguments.small, tempfile.mkdtemp()
        self.limits, self.ends = arguments.limits, time.monotonic() + arguments.seconds
        self.peaks, self.batches, self.ranks = {"fake": [], "measured": []}, [], []

    def is_over(self):
        return time.monotonic() > self.ends

    def peak(self, name, make):
        """Returns the file of workspaces."""
        path = os.path.join(self.folder, f"{name}.json")
        for batch in () if self.small else (2, 4):
            omniheap.torch.measure_workspaces(make(batch), path)
            clean()
        for batch in (8, 16):
            fake = predicted(make(batch))
            if self.small:
                say(part="peak", workload=name, batch=batch, fake=fake)
                continue
            real, measured = reserved(make(batch)), predicted(make(batch), workspaces=path)
            self.peaks["fake"].append(fake / real)
            self.peaks["measured"].append(measured / real)
            say(part="peak", workload=name, batch=batch, reserved=real, fake=fake / real, measured=measured / real)
        return path

    def batch(self, name, make, workspaces):
        for gib in self.limits:
            if self.is_over():
                return say(part="batch", workload=name, limit=gib, skipped="no time is left")
            options = {} if self.small else {"workspaces": workspaces}
            answer, seconds = timed(lambda: omniheap.torch.largest_batch(make, capacity=f"{gib}GiB", **options).batch)
            if self.small:
                say(part="batch", workload=name, limit=gib, said=answer, seconds=seconds)
                continue
            limit(gib)
            runs = answer == 0 or reserved(make(answer), STEPS) is not None
            real, others = timed(lambda: bisect(make))
            limit(1 << 20)
            self.batches.append((answer, real, seconds / others, runs))
            say(part="batch", workload=name, limit=gib, said=answer, runs=real, seconds=seconds, bisection=others, twenty_steps=runs)

    def rank(self, world):
        def setup():
            width, depth = (64, 2) if self.small else (2048, 16)
            layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
            model = omniheap.torch.shard(nn.TransformerEncoder(layer, depth), "full", wrap="layers.*", prefetch=1)
            optimizer = torch.optim.AdamW(model.parameters())
            data = torch.randn(4, 256, width, device="cuda")

            return training(optimizer, lambda: model(data).square().mean())

        said = predicted(setup, world=world)
        if self.small:
            return say(part="rank", world=world, predicted=said)
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
        try:
            real = reserved(setup)
        finally:
            torch.distributed.destroy_process_group()
        self.ranks.append(said / real)
        say(part="rank", world=world, reserved=real, predicted=said / real)

    def table(self):
        for way, shares in self.peaks.items():
            if shares:
                errors = [abs(share - 1) for share in shares]
                print(f"peak reserved, {way}: median error {statistics.median(errors):.1%}, worst {max(errors):.1%} of {len(errors)}")
        if self.batches:
            equal = sum(said == runs for said, runs, *_ in self.batches)
            larger = sum(said > runs for said, runs, *_ in self.batches)
            near = sum(said != runs and runs * 0.98 <= said < runs for said, runs, *_ in self.batches)
            finished = sum(finishes for *_, finishes in self.batches)
            share = statistics.median(share for _, _, share, _ in self.batches)
            print(f"largest batch: {equal} of {len(self.batches)} equal, {near} within 2 %, {larger} larger; {finished} run {STEPS} steps; median time {share:.3f} of bisection")
        if self.ranks:
            print(f"sharding: worst error {max(abs(share - 1) for share in self.ranks):.1%} of {len(self.ranks)}")


def main():
    def whole(given):
        return [int(each) for each in given.split(",") if each]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=lambda given: given.split(","), default=list(WORKLOADS))
    parser.add_argument("--limits", type=whole, default=[8, 24, 80])
    parser.add_argument("--ranks", type=whole, default=[8, 64, 512])
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    proof = Proof(arguments)
    try:
        for world in arguments.ranks:
            proof.rank(world)
        for name in arguments.workloads:
            if proof.is_over():
                say(workload=name, skipped="no time is left")
                continue

            def make(batch, name=name):
                return WORKLOADS[name](batch, arguments.small)

            proof.batch(name, make, proof.peak(name, make))
    finally:
        proof.table()


if __name__ == "__main__":
    main()

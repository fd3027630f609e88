"""One workload with one allocator, in this process; prints one line of JSON.

usage: one.py WORKLOADS_FILE NAME MODE [--limit GIB] [--passes N] [--share S] [--ask]
MODE: default, expandable, async, omniheap or omniheap-plain. WORKLOADS_FILE defines one function for each workload; a
loss or a sum of outputs is taken from every iteration, so that runs with different allocators can be compared. Models
are made on the device. With --ask, imports first and says READY; the first line that it reads lets it open the device,
and each further line is one pass; it says DONE after each, and others may use the device meanwhile.
"""

import argparse
import importlib
import json
import os
import re
import sys
import time

CONF = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
# Taps that make visible what each workload computes, without changing what it allocates by more than a few bytes.
TAPS = (
    ("loss.backward(); o.step()", "OUT.append(loss.detach()); loss.backward(); o.step()"),
    (re.compile(r"m\.generate\((.*)\)$", re.M), r"OUT.append(m.generate(\1)[:, -8:].float().sum())"),
    ("u = m(x); x = x - 0.1 * (u + 7.5 * (c - u))", "u = m(x); x = x - 0.1 * (u + 7.5 * (c - u)); t == 11 and OUT.append(x.float().abs().mean())"),
    ("q = z * 2", "q = z * 2; OUT.append(q.sum())"),
    ("torch.cuda.Stream()", "STREAM()"),
    (re.compile(r"for it in range\((\d+)\):"), r"for it in TICK(\1):"),
)
# Imports of a workload inside of its function, and modules that must have loaded them before the clock runs.
IMPORTS = re.compile(r"^\s+(?:from (\w+) import (.+)|import (\w+))$", re.M)


class Clock:
    """Stops the device between iterations, takes the time, and the driver's own figure of memory used since the start."""

    def __init__(self, torch, share):
        self.torch, self.share, self.times, self.base, self.peak = torch, share, [], used(torch), 0

    def __call__(self, steps):
        steps = max(2, int(steps * self.share))
        # At most forty stops: to wait in every short step would hide what streams do beside each other.
        every = max(1, steps // 40)
        for step in range(steps):
            if step % every == 0:
                self.stop()
            yield step
        self.stop()

    def stop(self):
        self.torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        self.peak = max(self.peak, used(self.torch) - self.base)


class Streams:
    """The same streams in every pass: new ones would need new memory, and libraries keep some for each."""

    def __init__(self, torch):
        self.torch, self.made, self.given = torch, [], 0

    def __call__(self):
        if self.given == len(self.made):
            self.made.append(self.torch.cuda.Stream())
        self.given += 1
        return self.made[self.given - 1]


def used(torch):
    free, whole = torch.cuda.mem_get_info()
    return whole - free


def source(path):
    text = open(path).read().split("\nW = {")[0]
    text = text[text.index("\ntorch.manual_seed") :]
    for old, new in TAPS:
        text = old.sub(new, text) if hasattr(old, "sub") else text.replace(old, new)
    return text


def import_for(path, name):
    body = re.search(rf"^def {name}\(.*?(?=^\S|\Z)", source(path), re.M | re.S)
    for package, names, plain in IMPORTS.findall(body.group(0) if body else ""):
        module = importlib.import_module(package or plain)
        [getattr(module, each.strip()) for each in names.split(",") if each]


def load(path, name, out, tick, stream, torch):
    import random
    import torch.nn as nn
    import torch.nn.functional as F

    space = dict(torch=torch, nn=nn, F=F, random=random, OUT=out, TICK=tick, STREAM=stream)
    exec(compile(source(path), path, "exec"), space)
    return space[name]


def turns(options):
    """A turn for every pass that is wanted."""
    if not options.ask:
        yield from range(options.passes)
    while options.ask and sys.stdin.readline():
        yield
        print("DONE", flush=True)


def measure(options, torch, ours, mine):
    """Runs passes; `mine` is what this process has taken already, by the driver's figure."""
    result = dict(workload=options.name, mode=options.mode, limit=options.limit, error=None, times=[], losses=[], calls=[])
    streams = Streams(torch)
    for _ in turns(options):
        streams.given = 0
        out, clock, calls = [], Clock(torch, options.share), ours and ours.stats()["driver_calls"]
        torch.manual_seed(0)
        run = load(options.file, options.name, out, clock, streams, torch)
        try:
            with torch.device("cuda"):
                run()
            torch.cuda.synchronize()
        except torch.OutOfMemoryError as error:
            result["error"] = "OutOfMemoryError: " + str(error)[:300]
            break
        result["driver_peak"] = max(result.get("driver_peak", 0), mine + clock.peak)
        # Between passes, others may take memory and give it back.
        mine += used(torch) - clock.base
        result["times"].append(round(clock.times[-1] - clock.times[0], 4))
        result["losses"].append([float(value) for value in out])
        if ours:
            result["calls"].append(ours.stats()["driver_calls"] - calls)
    if ours:
        stats = ours.stats()
        result.update(own_peak=stats["peak_reserved_bytes"], live_peak=stats["peak_live_bytes"], rungs=stats["rungs"])
    else:
        stats = torch.cuda.memory_stats()
        result.update(own_peak=stats.get("reserved_bytes.all.peak"), live_peak=stats.get("requested_bytes.all.peak") or stats.get("allocated_bytes.all.peak"))
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file"), parser.add_argument("name"), parser.add_argument("mode")
    parser.add_argument("--limit", type=float), parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--ask", action="store_true")
    options = parser.parse_args()
    if options.mode in CONF:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = CONF[options.mode]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch

    import_for(options.file, options.name)
    if options.ask:
        print("READY", flush=True)
        sys.stdin.readline()
    ours = None
    if options.mode.startswith("omniheap"):
        import omniheap.torch as ours

        ours.enable(limit=int(options.limit * 2**30) if options.limit else None, paged=options.mode == "omniheap")
    torch.cuda.init()
    torch.cuda.synchronize()
    before = used(torch)
    torch.empty(1, device="cuda")
    if options.limit and not ours:
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(options.limit * 2**30 / whole)
    taken = used(torch) - before
    if options.ask:
        print("DONE", flush=True)
    print("RESULT " + json.dumps(measure(options, torch, ours, taken)), flush=True)


if __name__ == "__main__":
    sys.exit(main())

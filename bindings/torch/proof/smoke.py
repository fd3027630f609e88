"""Streams, graph capture, shortage, threads, CuPy beside PyTorch, reports: everything in one process."""

import json
import os
import sys
import threading

import omniheap.torch
import torch

omniheap.torch.enable(limit="40GiB")
device = "cuda"


def check(name, condition, *shown):
    print(("ok   " if condition else "FAIL ") + name, *shown, flush=True)
    FAILED.append(name) if not condition else None


FAILED = []
a = torch.arange(1 << 20, device=device, dtype=torch.float32)
check("arithmetic", float(a.sum()) == float(torch.arange(1 << 20).double().sum()) or abs(float(a.double().sum()) - 549755289600.0) < 1)
check("empty tensors", torch.empty(0, device=device).numel() == 0)

side = torch.cuda.Stream()
for turn in range(200):
    x = torch.full((1 << 18,), float(turn), device=device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    z = torch.zeros(1 << 18, device=device)
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    if float(y[0]) != 2.0 * turn or float(y[-1]) != 2.0 * turn:
        check("record_stream", False, turn)
        break
else:
    check("record_stream", True)

before = omniheap.torch.stats()["reserved_bytes"]
static = torch.randn(512, 512, device=device)
warm = torch.cuda.Stream()
with torch.cuda.stream(warm):
    (static @ static).relu().sum()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    middle = static @ static
    result = (middle.relu() + 1).sum()
    del middle
other = [torch.randn(512, 512, device=device) for _ in range(50)]
del other
for turn in range(5):
    static.copy_(torch.randn(512, 512, device=device))
    graph.replay()
    noise = torch.full((512, 512), 7.0, device=device)
    expected = ((static @ static).relu() + 1).sum()
    if abs(float(result) - float(expected)) > 1e-3 * abs(float(expected)):
        check("graph replay", False, float(result), float(expected))
        break
else:
    check("graph replay", True)
del result, graph
torch.cuda.synchronize()
torch._C._cuda_clearCublasWorkspaces()
omniheap.torch.empty_cache()
check("graph memory goes back", omniheap.torch.stats()["reserved_bytes"] <= before + (8 << 20), omniheap.torch.stats()["reserved_bytes"] - before)

try:
    torch.empty(41 << 30, dtype=torch.uint8, device=device)
    check("shortage raises", False)
except torch.OutOfMemoryError as error:
    check("shortage raises", "omniheap" in str(error), str(error)[:160])
check("explain_oom", "could not allocate" in (omniheap.torch.explain_oom() or ""))
check("goes on after a shortage", float(torch.ones(10, device=device).sum()) == 10.0)


def churn(seed):
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for _ in range(300):
        size = int(torch.randint(1, 1 << 20, (1,), generator=generator))
        kept.append((torch.full((size,), float(size % 97), device=device), size % 97))
        if len(kept) > 20:
            tensor, value = kept.pop(int(torch.randint(0, 20, (1,), generator=generator)))
            if float(tensor.min()) != value or float(tensor.max()) != value:
                FAILED.append("threads")


threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
check("threads", "threads" not in FAILED)

try:
    import cupy
    import omniheap.cupy

    omniheap.cupy.enable()
    live = omniheap.torch.stats()["live"]
    c = cupy.arange(1000, dtype=cupy.float32)
    check("cupy shares the manager", omniheap.torch.stats()["live"] > live and float(c.sum()) == 499500.0)
    with cupy.cuda.Stream() as stream:
        d = c * 2
    stream.synchronize()
    check("cupy on its own stream", float(d[-1]) == 1998.0)
    try:
        cupy.empty(41 << 30, dtype=cupy.uint8)
        check("cupy shortage raises", False)
    except MemoryError as error:
        check("cupy shortage raises", "omniheap" in str(error))
except ImportError as error:
    print("skip cupy:", error)

for name, call in (("MemPool", torch.cuda.MemPool), ("snapshots", torch.cuda.memory_snapshot), ("CUDA IPC", lambda: a.untyped_storage()._share_cuda_())):
    try:
        call()
        print("note", name, "works: the README says that PyTorch refuses it")
    except RuntimeError as error:
        print("note", name, "is refused:", str(error).splitlines()[0][:100])

torch.cuda.reset_peak_memory_stats()
live = torch.cuda.memory_allocated()
t = torch.empty(123 << 20, dtype=torch.uint8, device=device)
held = torch.cuda.memory_allocated() - live
del t
check("PyTorch's own figures", held == 123 << 20 == torch.cuda.max_memory_allocated() - live and torch.cuda.memory_allocated() == live, held)
check("PyTorch's summary", "GPU" in torch.cuda.memory_summary() and torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() >= live)

folder = os.environ.get("OUT", "/tmp")
omniheap.torch.trace(os.path.join(folder, "smoke.trace"))
t = [torch.empty(1 << 16, device=device) for _ in range(100)]
del t
omniheap.torch.trace(None)
omniheap.torch.report(os.path.join(folder, "smoke.html"))
check("trace and report", all(os.path.getsize(os.path.join(folder, name)) > 500 for name in ("smoke.trace", "smoke.html")))
child = os.fork()
if child == 0:
    del a, static
    try:
        torch.empty(1, device=device)
        os._exit(1)
    except RuntimeError:
        os._exit(0)
check("a fork refuses and lives", os.waitpid(child, 0)[1] == 0)
torch.cuda.set_per_process_memory_fraction(0.5)
print(json.dumps(omniheap.torch.stats()))
print("smoke:", "FAILED " + ", ".join(FAILED) if FAILED else "all ok")
sys.exit(bool(FAILED))

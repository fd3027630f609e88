"""Sleep and wake beside others that do the same, a process for each, one after the other. Prints a table.

usage: sleep_rivals.py [--gib 8] [--cycles 5] [--long 1000] [--limit 60] [--modes omniheap,prepared,saver,cumem,checkpoint]
prepared is omniheap with `prepare_sleep` called before the tensors are made, as a program does that loads a model; its row says how long that took.
saver is torch_memory_saver with a pinned backup that it keeps; cumem is the extension of vLLM's wheel (`cumem_allocator` on PYTHONPATH), used as vLLM does; checkpoint is the driver's own `cuCheckpointProcess*` on a process with the same tensors.
Each has `gib` GiB that live; with holes, a fifth more was allocated between them and freed. `--long` cycles of one tensor, in a process of their own, show
what is left behind. Before the first row a process touches as much host memory: in a virtual machine the first touch ever is the slowest one.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time

MIB = 1 << 20


def clock(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def link(torch):
    """Seconds that a pinned copy of a byte takes, there and back."""
    here, there = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True), torch.empty(1 << 30, dtype=torch.uint8, device="cuda")

    def copy(to, what):
        to.copy_(what, non_blocking=True)
        torch.cuda.synchronize()

    return [min(clock(lambda: copy(*pair)) for _ in range(5)) / (1 << 30) for pair in ((here, there), (there, here))]


def fill(torch, gib, holes):
    """Tensors of several sizes; every fifth is freed where there are holes."""
    sizes = [size * MIB for size in (4, 48, 12, 130, 62)]
    tensors, live, number = [], 0, 0
    while live < gib << 30:
        size = sizes[number % 4 if not holes else number % 5]
        tensors.append(torch.full((size,), number % 251, dtype=torch.uint8, device="cuda"))
        is_hole = holes and number % 5 == 4
        live += 0 if is_hole else size
        number += 1
    values = [n % 251 for n in range(number)]
    kept = [(tensor, value) for n, (tensor, value) in enumerate(zip(tensors, values)) if not (holes and n % 5 == 4)]
    torch.cuda.synchronize()
    return kept, sum(tensor.numel() for tensor, _ in kept)


class Cumem:
    """vLLM's allocator. Its extension maps and unmaps; the loops are vLLM's: each allocation has a new pinned tensor and a copy that is waited for."""

    def __init__(self, torch):
        import cumem_allocator as extension

        self.torch, self.extension, self.live, self.backups = torch, extension, {}, {}
        self.calls = lambda handle: self.live.__setitem__(handle[2], handle), self.live.pop  # The extension does not keep them.
        extension.init_module(*self.calls)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(extension.__file__, "my_malloc", "my_free")
        self.pool = torch.cuda.memory.MemPool(allocator.allocator())
        self.copy = ctypes.CDLL("libcuda.so.1").cuMemcpy

    def scope(self):
        return self.torch.cuda.use_mem_pool(self.pool)

    def move(self, to, start, size):
        code = self.copy(ctypes.c_uint64(to), ctypes.c_uint64(start), ctypes.c_size_t(size))
        assert code == 0, f"cuMemcpy: {code}"

    def sleep(self):
        for start, handle in self.live.items():
            backup = self.backups[start] = self.torch.empty(handle[1], dtype=self.torch.uint8, pin_memory=True)
            self.move(backup.data_ptr(), start, handle[1])
            self.extension.python_unmap_and_release(*handle)

    def wake(self):
        for start, handle in self.live.items():
            self.extension.python_create_and_map(*handle)
            self.move(start, self.backups.pop(start).data_ptr(), handle[1])


def run(mode, gib, cycles, holes, long):
    import torch

    if mode in ("omniheap", "prepared"):
        import omniheap.torch as ours

        ours.enable()
        scope, sleep, wake = lambda: ours.tag("all"), lambda: ours.sleep("all"), lambda: ours.wake("all")
    elif mode == "saver":
        import torch_memory_saver

        saver = torch_memory_saver.torch_memory_saver
        saver.hook_mode = "torch"
        saver.retain_cpu_backup = True
        scope, sleep, wake = lambda: saver.region(enable_cpu_backup=True, cpu_backup_backend="pinned"), saver.pause, saver.resume
    elif mode == "cumem":
        cumem = Cumem(torch)
        scope, sleep, wake = cumem.scope, cumem.sleep, cumem.wake
    rates = link(torch)
    torch.cuda.empty_cache()
    if mode == "checkpoint":
        kept, live = fill(torch, gib, holes)
        print("READY", flush=True)
        sys.stdin.readline()
        print(json.dumps(dict(live=live, rates=rates, equal=check(kept))), flush=True)
        return
    if long:
        print(json.dumps(cycle(torch, scope, sleep, wake, long)), flush=True)
        return
    prepared = None
    if mode == "prepared":
        started = time.perf_counter()
        ours.prepare_sleep(gib << 30)
    with scope():
        kept, live = fill(torch, gib, holes)
    if mode == "prepared":
        ours.prepare_sleep(live, wait=True)  # A program that loads for longer does not wait.
        prepared = time.perf_counter() - started
    times = [(clock(sleep), clock(wake)) for _ in range(1 + cycles)]
    warm = [statistics.median(each) for each in zip(*times[1:])]
    print(json.dumps(dict(live=live, rates=rates, prepared=prepared, first=times[0], sleep=warm[0], wake=warm[1], equal=check(kept))), flush=True)


def cycle(torch, scope, sleep, wake, count):
    """Returns the bytes that the driver has less of after so many cycles."""
    free = lambda: torch.cuda.mem_get_info()[0]
    with scope():
        kept = torch.full((64 * MIB,), 7, dtype=torch.uint8, device="cuda")
    sleep(), wake()
    before = free()
    seconds = clock(lambda: [(sleep(), wake()) for _ in range(count)])
    return dict(left=before - free(), cycles=count, each=seconds / count, equal=bool((kept == 7).all()))


def check(kept):
    return all(bool((tensor == value).all()) for tensor, value in kept)


def drive(child):
    """Checkpoints another process by the driver, and restores it; seconds of both."""
    cuda = ctypes.CDLL("libcuda.so.1")
    call = lambda name: getattr(cuda, "cuCheckpointProcess" + name)(child.pid, None)
    assert cuda.cuInit(0) == 0, "the driver"
    codes = []
    there = clock(lambda: codes.extend((call("Lock"), call("Checkpoint"))))
    back = clock(lambda: codes.extend((call("Restore"), call("Unlock"))))
    return there, back, codes


def measure(options, mode, holes=False, long=0):
    command = [sys.executable, __file__, "--child", mode, "--gib", str(options.gib), "--cycles", str(options.cycles), "--long", str(long), *(["--holes"] if holes else [])]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    extra = {}
    if mode == "checkpoint":
        child.stdout.readline()
        times = [drive(child) for _ in range(2)]
        bad = [code for *_, codes in times for code in codes if code]
        extra = dict(first=times[0][:2], sleep=times[1][0], wake=times[1][1], error=f"driver codes {bad}" if bad else None)
    try:
        out, errors = child.communicate("\n", timeout=options.limit)
    except subprocess.TimeoutExpired:
        child.kill()
        return dict(error=f"no end after {options.limit} s")
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return {**json.loads(lines[-1]), **extra} if lines else dict(error=errors[-400:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=int, default=8), parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--long", type=int, default=1000), parser.add_argument("--modes", default="omniheap,prepared,saver,cumem,checkpoint")
    parser.add_argument("--limit", type=float, default=60, help="seconds of one process")
    parser.add_argument("--child"), parser.add_argument("--holes", action="store_true")
    options = parser.parse_args()
    if options.child:
        return run(options.child, options.gib, options.cycles, options.holes, options.long)
    subprocess.run([sys.executable, "-c", f"import torch; torch.ones({options.gib} << 30, dtype=torch.uint8)"], check=True)
    print("| holes | who | first sleep + wake s | warm sleep s | warm wake s | ÷ pinned copy | ÷ first row | bytes equal |\n|" + "---|" * 8)
    for holes in (False, True):
        ours = None
        for mode in options.modes.split(","):
            one = measure(options, mode, holes)
            if one.get("error"):
                print(f"| {holes} | {mode} | {one['error']!r} |", flush=True)
                continue
            ours = ours or one
            warm = one["sleep"] + one["wake"]
            floor = [one["sleep"] / (one["live"] * one["rates"][0]), one["wake"] / (one["live"] * one["rates"][1])]
            shares = f"{warm / (ours['sleep'] + ours['wake']):.2f}, first {sum(one['first']) / sum(ours['first']):.2f}"
            mode += f" ({one['prepared']:.2f} s)" if one.get("prepared") else ""
            print(f"| {holes} | {mode} | {one['first'][0]:.3f} + {one['first'][1]:.3f} | {one['sleep']:.3f} | {one['wake']:.3f} | {floor[0]:.2f}, {floor[1]:.2f} | {shares} | {one['equal']} |", flush=True)
    for mode in options.modes.split(","):
        if options.long and mode not in ("checkpoint", "prepared"):
            print(mode, "one tensor of 64 MiB:", measure(options, mode, long=options.long), flush=True)


if __name__ == "__main__":
    main()

"""Loads generated weights with omniheap and with other loaders in one run, a process for each, and prints a table of ratios.

    OMNIHEAP_LIBRARY=… PYTHONPATH=bindings/torch/python python bindings/torch/proof/weights.py --folder /tmp/weights [--gib 4] [--tmpfs /dev/shm] [--seconds 150]

Cases: page cache (hot), disk (cold) and tmpfs; one file and eight; tensors of 64 MiB and 256 KiB; 50,000 of 4 KiB beside one of the same bytes. Loaders that are
missing or fail are said. The pinned copy and O_DIRECT of the run are the anchors. Every tensor of omniheap's load is compared with the file once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
LOADERS = ("omniheap", "safetensors", "instanttensor", "fastsafetensors", "runai")
# Name, bytes of a tensor, files, where, whether rivals load it too.
CASES = (
    ("hot large1", 64 * MIB, 1, "disk", True),
    ("hot large8", 64 * MIB, 8, "disk", True),
    ("hot small", 256 << 10, 1, "disk", True),
    ("tmpfs large1", 64 * MIB, 1, "tmpfs", True),
    ("tmpfs large8", 64 * MIB, 8, "tmpfs", False),
    ("tmpfs small", 256 << 10, 1, "tmpfs", False),
    ("cold large1", 64 * MIB, 1, "disk", True),
    ("cold large8", 64 * MIB, 8, "disk", False),
)
TINY = 50_000 * 4096


def write(path, number, count, size):
    """One safetensors file of `count` tensors; no two 64 MiB of it are equal."""
    import numpy

    entries = {f"layers.{number}.{at:05}": dict(dtype="U8", shape=[size], data_offsets=[at * size, (at + 1) * size]) for at in range(count)}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    block = numpy.frombuffer(numpy.random.default_rng(number).bytes(64 * MIB), dtype=numpy.uint64).copy()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        left = count * size
        while left:
            part = memoryview(block).cast("B")[: min(left, len(block) * 8)]
            file.write(part)
            left -= len(part)
            block += 0x9E3779B97F4A7C15 & 0xFFFF
        file.flush()
        os.fsync(file.fileno())  # Nothing is written back while others are measured.


def paths_of(options, case):
    name, size, files, where, _ = case
    folder = options.folder if where == "disk" else options.tmpfs
    return [os.path.join(folder, f"{name.split()[1]}-{at}.safetensors") for at in range(files)]


def make(options):
    """Writes what is missing, file by file; returns the paths."""
    made = []
    for case in CASES:
        _, size, files, where, _ = case
        if where == "tmpfs" and not options.tmpfs:
            continue
        for at, path in enumerate(paths_of(options, case)):
            if path not in made:
                write(path, at, (options.gib << 30) // size // files, size)
                made.append(path)
    for name, count in (("tiny", 50_000), ("whole", 1)):
        path = os.path.join(options.folder, name + ".safetensors")
        write(path, 0, count, TINY // count)
        made.append(path)
    return made


def drop(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(paths):
    buffer = bytearray(16 * MIB)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def pinned_rate(torch, start, size=1 << 30):
    """GB/s of a copy from pinned memory that begins at an odd place, or at none."""
    host, device = torch.empty(size + 4096, dtype=torch.uint8, pin_memory=True), torch.empty(size, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        device.copy_(host[start : start + size], non_blocking=True)
        torch.cuda.synchronize()
        rates.append(size / (time.perf_counter() - begun) / 1e9)
    return max(rates)


def direct_rate(paths, threads, piece):
    """GB/s that the disk itself gives, by threads with O_DIRECT."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    jobs = [(path, offset) for path in paths for offset in range(0, os.path.getsize(path), piece)]

    def read(some):
        buffer, total = mmap.mmap(-1, piece), 0
        for path, offset in some:
            file = os.open(path, os.O_RDONLY | os.O_DIRECT)
            total += os.preadv(file, [buffer], offset)
            os.close(file)
        return total

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(read, [jobs[index::threads] for index in range(threads)]))
    return total / (time.perf_counter() - start) / 1e9


def loader(name):
    """The function that loads paths to the device, each loader as its own documentation has it; `is_hot` where the page cache has them."""
    if name == "omniheap":
        from omniheap.weights import load_safetensors

        return lambda paths, is_hot: load_safetensors(paths, device="cuda")
    if name == "safetensors":
        from safetensors.torch import load_file

        return lambda paths, is_hot: {key: tensor for path in paths for key, tensor in load_file(path, device="cuda").items()}
    if name == "instanttensor":
        import instanttensor

        # Pinned memory is kept for the next load, as ours is.
        os.environ["INSTANTTENSOR_CACHE_BUFFER"] = "1"

        def instant(paths, is_hot):
            # Without this it reads past the page cache.
            backend = instanttensor.BackendPolicy.BUFFERED if is_hot else None
            with instanttensor.safe_open(paths, framework="pt", device=0, backend=backend) as file:
                return dict(file.tensors())

        return instant
    if name == "fastsafetensors":
        from fastsafetensors import fastsafe_open

        def fast(paths, is_hot):
            with fastsafe_open(paths, nogds=True, device="cuda:0") as file:
                return {key: file.get_tensor(key) for key in file.keys()}

        return fast
    from runai_model_streamer import SafetensorsStreamer

    def runai(paths, is_hot):
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(paths)
            return {key: tensor.to("cuda") for key, tensor in streamer.get_tensors()}

    return runai


def peak_host():
    """The most bytes that this process had in memory since `reset_peak`."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_host()


class Watch:
    """The least free memory of the device while something runs, by the driver's count."""

    def __init__(self, torch):
        self.torch, self.over, self.least = torch, threading.Event(), None

    def __enter__(self):
        self.before = self.least = self.torch.cuda.mem_get_info()[0]
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.over.wait(0.002):
            self.least = min(self.least, self.torch.cuda.mem_get_info()[0])

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.extra = self.before - self.least


def checks(torch, folder):
    """Small things: CPU, load_into, errors."""
    from omniheap.weights import load_into, load_safetensors
    from safetensors.torch import save_file

    model = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.Linear(700, 10)).cuda()
    state = {name: torch.randn_like(tensor.cpu()) for name, tensor in model.state_dict().items()}
    path = os.path.join(folder, "small.safetensors")
    save_file(state, path)
    load_into(model, path)
    assert all(torch.equal(model.state_dict()[name].cpu(), tensor) for name, tensor in state.items())
    half = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.Linear(700, 10)).half()
    load_into(half, path)
    assert all(torch.equal(half.state_dict()[name], tensor.half()) for name, tensor in state.items())
    on_cpu = load_safetensors(path, device="cpu", only=lambda name: name.endswith("bias"))
    assert sorted(on_cpu) == ["0.bias", "1.bias"] and torch.equal(on_cpu["0.bias"], state["0.bias"])
    zipped = os.path.join(folder, "small.pt")
    torch.save(model.state_dict(), zipped)
    from_zip = load_safetensors(zipped, device="cuda")
    assert all(torch.equal(from_zip[name].cpu(), tensor) for name, tensor in state.items())
    try:
        load_safetensors(os.path.join(folder, "missing"), device="cuda")
        raise SystemExit("a missing file was loaded")
    except RuntimeError as error:
        assert "missing" in str(error)
    return "load_into, cpu, half, torch zip and errors hold"


def timed(torch, load, paths, is_hot=False):
    torch.cuda.synchronize()
    start = time.perf_counter()
    tensors = load(paths, is_hot)
    torch.cuda.synchronize()
    return tensors, time.perf_counter() - start


def same(tensors, paths):
    """Compares every tensor with what safetensors itself reads."""
    import torch
    from safetensors import safe_open

    count = 0
    for path in paths:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():
                assert torch.equal(tensors[name].cpu(), file.get_tensor(name)), name
                count += 1
    assert count == len(tensors)
    return count


def child(options):
    """Everything that one loader does, a JSON line for each case."""
    import torch

    say = lambda **row: print(json.dumps(row), flush=True)
    name, size = options.child, options.gib << 30
    try:
        load = loader(name)
    except Exception as error:
        return say(case="all", error=f"{type(error).__name__}: {error}"[:200])
    torch.cuda.init()
    if name == "omniheap":
        say(case="checks", said=checks(torch, options.folder))
        say(case="pinned", rate=pinned_rate(torch, 0), odd=pinned_rate(torch, 40))
        torch.cuda.empty_cache()
    for case in CASES:
        label, _, _, where, for_rivals = case
        if (name != "omniheap" and not for_rivals) or (where == "tmpfs" and not options.tmpfs):
            continue
        paths, is_cold, is_hot = paths_of(options, case), label.startswith("cold"), label.startswith("hot")
        row = dict(case=label)
        try:
            if is_cold and name == "omniheap":
                drop(paths)
                row["direct"] = max(direct_rate(paths, 8, 8 * MIB), direct_rate(paths, 16, MIB // 2))
            elif is_hot:
                warm(paths)
            seconds = []
            for _ in range(2 if is_cold or name != "omniheap" else 4):
                if is_cold:
                    drop(paths)
                tensors, took = timed(torch, load, paths, is_hot)
                seconds.append(took)
                if name == "omniheap" and label in ("hot large8", "tmpfs large8") and len(seconds) == 1:
                    row["same"] = same(tensors, paths)
                del tensors
            row.update(rates=[size / took / 1e9 for took in seconds])
            if name == "omniheap":
                before = reset_peak()
                with Watch(torch) as watch:
                    tensors = load(paths, is_hot)
                row.update(host_extra=peak_host() - before, device_extra=watch.extra)
                del tensors
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        say(**row)
    if name == "omniheap":
        times = {}
        for which in ("tiny", "whole"):
            paths = [os.path.join(options.folder, which + ".safetensors")]
            warm(paths)
            times[which] = min(timed(torch, load, paths, is_hot=True)[1] for _ in range(4))
        say(case="tiny", **times)


def measure(options, name, limit):
    """Returns what a loader's process prints; a missing figure is an error."""
    arguments = ["--child", name, "--folder", options.folder, "--gib", str(options.gib), "--tmpfs", options.tmpfs]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=out, stderr=errors)
        try:
            process.wait(timeout=limit)
            ended = f"exit {process.returncode}" if process.returncode else None
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = f"stopped after {limit:.0f} s"
        out.seek(0), errors.seek(0)
        rows = {row["case"]: row for row in (json.loads(line) for line in out if line.startswith("{"))}
        if ended:
            last = errors.read().strip().splitlines()[-1:] or [""]
            rows["ended"] = dict(case="ended", error=f"{ended}; {last[0][:200]}")
        return rows


def median(rows, case):
    rates = rows.get(case, {}).get("rates")
    return statistics.median(rates) if rates else None


def table(found, options):
    ours = found["omniheap"]
    pinned = ours.get("pinned", {}).get("rate")
    print(f"\npinned copy {pinned and round(pinned, 1)} GB/s, from an odd start {ours.get('pinned', {}).get('odd', 0):.1f}; {options.gib} GiB; GB/s, median (best)")
    print("| case | " + " | ".join(LOADERS) + " | ÷ pinned | ÷ O_DIRECT | ÷ safetensors | O_DIRECT ÷ safetensors | ÷ best rival | extra host MiB | extra device MiB |\n|" + "---|" * 13)
    ratio = lambda one, other: f"{one / other:.2f}" if one and other else ""
    for label, *_ in CASES:
        cells = []
        for name in LOADERS:
            row = found[name].get(label, {})
            error = row.get("error") or found[name].get("all", {}).get("error")
            rate = median(found[name], label)
            cells.append(f"{rate:.1f} ({max(row['rates']):.1f})" if rate else (error or "")[:60])
        mine, row = median(ours, label), ours.get(label, {})
        rivals = [rate for name in LOADERS[2:] if (rate := median(found[name], label))]
        anchor, direct = median(found["safetensors"], label), row.get("direct")
        ratios = [ratio(mine, None if label.startswith("cold") else pinned), ratio(mine, direct), ratio(mine, anchor), ratio(direct, anchor), ratio(mine, max(rivals, default=None))]
        extra = [f"{row[key] / MIB:.0f}" if key in row else "" for key in ("host_extra", "device_extra")]
        print("| " + " | ".join([label, *cells, *ratios, *extra]) + " |", flush=True)
    tiny = ours.get("tiny")
    if tiny:
        print(f"50,000 tensors of 4 KiB: {tiny['tiny'] * 1e3:.0f} ms; one of the same bytes: {tiny['whole'] * 1e3:.0f} ms; ratio {tiny['tiny'] / tiny['whole']:.1f}")
    for name in LOADERS:
        for key in ("all", "ended"):
            if key in found[name]:
                print(f"{name}: {found[name][key]['error']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True), parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--tmpfs", default="/dev/shm", help="a folder on tmpfs; empty for none")
    parser.add_argument("--seconds", type=float, default=150, help="for everything"), parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        return child(options)
    end = time.monotonic() + options.seconds
    os.makedirs(options.folder, exist_ok=True)
    if options.tmpfs:
        options.tmpfs = tempfile.mkdtemp(prefix="omniheap-weights-", dir=options.tmpfs)
    made = []
    try:
        made = make(options)
        print(json.dumps(dict(case="files", seconds=options.seconds - (end - time.monotonic()))), flush=True)
        found = {}
        for at, name in enumerate(LOADERS):
            left = end - time.monotonic()
            # Ours and safetensors are the anchors; the others share what is left.
            found[name] = measure(options, name, max(5, left * 0.6 if at < 2 else left / (len(LOADERS) - at)))
            print(json.dumps({name: found[name]}), flush=True)
        table(found, options)
    finally:
        for path in (*made, *(os.path.join(options.folder, name) for name in ("small.safetensors", "small.pt"))):
            if os.path.exists(path):
                os.remove(path)
        if options.tmpfs:
            os.rmdir(options.tmpfs)


if __name__ == "__main__":
    main()

"""Loads generated weights with omniheap and with other loaders in one run, hot and cold, and prints ratios.

    OMNIHEAP_LIBRARY=… PYTHONPATH=bindings/torch/python python bindings/torch/proof/weights.py --folder /tmp/weights --gib 4

Loaders that are not installed are left out. Every tensor of omniheap's load is compared with the file once.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
from omniheap.torch import load_into, load_safetensors
from safetensors import safe_open
from safetensors.torch import load_file, save_file


def write(folder, name, tensor_bytes, count, files):
    """Writes `count` tensors of `tensor_bytes` bytes over some files; returns their paths."""
    paths = []
    each = count // files
    for number in range(files):
        path = os.path.join(folder, f"{name}-{number}.safetensors")
        paths.append(path)
        if os.path.exists(path):
            continue
        block = torch.randint(0, 255, (each, tensor_bytes), dtype=torch.uint8, device="cuda").cpu()
        save_file({f"layers.{number}.{index}": block[index] for index in range(each)}, path)
    return paths


def drop(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(paths):
    for path in paths:
        with open(path, "rb") as file:
            while file.read(64 << 20):
                pass


def pinned_rate(size=1 << 30):
    host, device = torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.empty(size, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        device.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        rates.append(size / (time.perf_counter() - start) / 1e9)
    return max(rates)


def direct_rate(paths):
    """Bytes per second that the disk itself gives, by eight threads with O_DIRECT."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    piece = 8 << 20
    jobs = [(path, offset) for path in paths for offset in range(0, os.path.getsize(path), piece)]

    def read(some):
        buffer, total = mmap.mmap(-1, piece), 0
        for path, offset in some:
            file = os.open(path, os.O_RDONLY | os.O_DIRECT)
            total += os.preadv(file, [buffer], offset)
            os.close(file)
        return total

    start = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        total = sum(pool.map(read, [jobs[index::8] for index in range(8)]))
    return total / (time.perf_counter() - start) / 1e9


def loaders():
    def ours(paths):
        return load_safetensors(paths, device="cuda")

    def safetensors(paths):
        return {name: tensor for path in paths for name, tensor in load_file(path, device="cuda").items()}

    found = {"omniheap": ours, "safetensors": safetensors}
    try:
        from instanttensor import safe_open as instant_open

        def instant(paths):
            with instant_open(paths, framework="pt", device=0) as file:
                return {name: tensor for name, tensor in file.tensors()}

        found["instanttensor"] = instant
    except Exception as error:
        print("instanttensor is left out:", error, file=sys.stderr)
    try:
        from fastsafetensors import fastsafe_open

        def fast(paths):
            with fastsafe_open(paths, nogds=True, device="cuda:0") as file:
                return {name: file.get_tensor(name) for name in file.keys()}

        found["fastsafetensors"] = fast
    except Exception as error:
        print("fastsafetensors is left out:", error, file=sys.stderr)
    try:
        from runai_model_streamer import SafetensorsStreamer

        def runai(paths):
            with SafetensorsStreamer() as streamer:
                streamer.stream_files(paths)
                return {name: tensor.to("cuda") for name, tensor in streamer.get_tensors()}

        found["runai"] = runai
    except Exception as error:
        print("runai is left out:", error, file=sys.stderr)
    return found


def measure(load, paths, prepare, rounds, size):
    rates = []
    for _ in range(rounds):
        prepare(paths)
        torch.cuda.synchronize()
        start = time.perf_counter()
        tensors = load(paths)
        torch.cuda.synchronize()
        rates.append(size / (time.perf_counter() - start) / 1e9)
        del tensors
    return rates


def same(paths):
    """Compares every tensor with what safetensors itself reads."""
    tensors = load_safetensors(paths, device="cuda")
    names = 0
    for path in paths:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():
                assert torch.equal(tensors[name].cpu(), file.get_tensor(name)), name
                names += 1
    assert names == len(tensors)
    return names


def checks(folder):
    """Small things: CPU, load_into, errors."""
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default="large1,large8,small")
    parser.add_argument("--heats", default="hot,cold")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    torch.cuda.init()
    print(json.dumps({"checks": checks(arguments.folder)}), flush=True)
    size = arguments.gib << 30
    found = loaders()
    pinned = pinned_rate()
    print(json.dumps({"pinned": pinned}), flush=True)
    shapes = [("large1", 64 << 20, 1), ("large8", 64 << 20, 8), ("small", 256 << 10, 1)]
    for name, tensor_bytes, files in shapes:
        if name not in arguments.shapes.split(","):
            continue
        paths = write(arguments.folder, name, tensor_bytes, size // tensor_bytes, files)
        warm(paths)
        if name == "large8":
            print(json.dumps({"same": same(paths)}), flush=True)
        for heat, prepare in (("hot", lambda _: None), ("cold", drop)):
            if heat not in arguments.heats.split(",") or (heat == "cold" and name != "large1"):
                continue
            row = {"shape": name, "heat": heat}
            if heat == "cold":
                drop(paths)
                row["direct"] = direct_rate(paths)
            for loader, load in found.items():
                try:
                    rates = measure(load, paths, prepare, arguments.rounds if heat == "hot" else 2, size)
                    row[loader] = {"best": max(rates), "median": statistics.median(rates), "first": rates[0]}
                except Exception as error:
                    row[loader] = str(error)[:200]
            print(json.dumps(row), flush=True)
        for path in paths:
            os.remove(path)
    tiny = write(arguments.folder, "tiny", 4096, 50_000, 1)
    whole = write(arguments.folder, "whole", 4096 * 50_000, 1, 1)
    times = {}
    for name, paths in (("tiny", tiny), ("whole", whole)):
        warm(paths)
        with_python = measure(found["omniheap"], paths, lambda _: None, 5, 4096 * 50_000)
        times[name] = max(with_python)
    print(json.dumps({"tiny": times}), flush=True)


main()

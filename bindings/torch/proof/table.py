"""Every workload with every allocator, one process for each allocator; prints one table, each row when it is there.

usage: table.py WORKLOADS_FILE [--modes default,omniheap] [--names unet_diffusion,…] [other arguments of one.py]
"""

import argparse
import json
import os
import subprocess
import sys

NAMES = "unet_diffusion,streams_serving,llama_serve,resnet_multiscale,moe_checkpoint,gpt2_train"
GIB = 2**30


def runs(options, mode):
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, os.path.join(here, "one.py"), options.file, options.names, mode, *options.rest]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if line.startswith("RESULT "):
                yield json.loads(line[7:])
        errors = child.stderr.read()
    if child.returncode:
        yield dict(workload="?", mode=mode, error=f"exit {child.returncode}: {errors[-500:]}")


def difference(losses, reference):
    pairs = list(zip(losses, reference))
    if len(losses) != len(reference) or not pairs:
        return float("nan")
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in pairs)


def row(one, reference):
    if one["error"]:
        return f"| {one['workload']} | {one['mode']} | {one['error']} |"
    gib = lambda key: f"{one[key] / GIB:.3f}" if one.get(key) else "–"
    ratio, far = one["seconds"] / reference["seconds"], difference(one["losses"], reference["losses"])
    figures = f"{gib('driver_peak')} | {gib('own_peak')} | {gib('live_peak')} | {one['seconds']:.3f} | {ratio:.3f} | {far:.1e}"
    return f"| {one['workload']} | {one['mode']} | {figures} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file"), parser.add_argument("--modes", default="default,expandable,async,omniheap")
    parser.add_argument("--names", default=NAMES), parser.add_argument("--out")
    options, options.rest = parser.parse_known_args()
    print("| workload | allocator | driver's peak GiB | own peak reserved GiB | peak live GiB | seconds | ÷ first | loss difference |\n|---|---|---|---|---|---|---|---|", flush=True)
    results, first = [], {}
    for mode in options.modes.split(","):
        for one in runs(options, mode):
            if not one["error"]:
                first.setdefault(one["workload"], one)
            print(row(one, first.get(one["workload"])), flush=True)
            results.append(one)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()

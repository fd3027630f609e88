"""Every workload with every allocator, one process for each allocator; prints one table, each row when it is there.

usage: table.py WORKLOADS_FILE [--modes default,omniheap] [--names unet_diffusion,…] [--together] [other arguments of one.py]
"""

import argparse
import json
import os
import subprocess
import sys

NAMES = "unet_diffusion,streams_serving,llama_serve,resnet_multiscale,moe_checkpoint,gpt2_train"
GIB = 2**30


def start(options, mode):
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, os.path.join(here, "one.py"), options.file, options.names, mode, *options.rest]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def runs(child, mode):
    for line in child.stdout:
        if line.startswith("RESULT "):
            yield json.loads(line[7:])
    errors = child.stderr.read()
    if child.wait():
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
    seconds, beside = best(one), best(reference)
    far, self_far = difference(one["losses"][-1], reference["losses"][-1]), difference(one["losses"][-1], one["losses"][0])
    figures = f"{gib('driver_peak')} | {gib('own_peak')} | {gib('live_peak')} | {seconds:.3f} | {seconds / beside:.3f} | {far:.1e} | {self_far:.1e} | {one.get('last_calls', '–')}"
    return f"| {one['workload']} | {one['mode']} | {figures} |"


def best(one):
    """The fastest pass after the first, which warms up."""
    return min(one["times"][1:] or one["times"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file"), parser.add_argument("--modes", default="default,expandable,async,omniheap")
    parser.add_argument("--names", default=NAMES), parser.add_argument("--out")
    parser.add_argument("--together", action="store_true", help="start all at once; with --lock they still measure one after the other")
    options, options.rest = parser.parse_known_args()
    print("| workload | allocator | driver's peak GiB | own peak reserved GiB | peak live GiB | seconds | ÷ first | loss difference | between passes | driver calls of the last pass |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    results, first = [], {}
    modes = options.modes.split(",")
    started = [start(options, mode) for mode in modes] if options.together else None
    for at, mode in enumerate(modes):
        for one in runs(started[at] if started else start(options, mode), mode):
            if not one["error"]:
                first.setdefault(one["workload"], one)
            print(row(one, first.get(one["workload"])), flush=True)
            results.append(one)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()

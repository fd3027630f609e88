"""Every workload with every allocator, a process for each; prints one table, each row when it is there.

usage: table.py WORKLOADS_FILE [--modes default,omniheap] [--names unet_diffusion,llama_serve:0.2,…] [other arguments of one.py]

A number behind a name is the share of its iterations. All processes import first, then they measure one after the
other, with nothing beside them. A mode that is named twice is measured twice.
"""

import argparse
import json
import os
import subprocess
import sys

NAMES = "unet_diffusion,streams_serving,resnet_multiscale,llama_serve:0.2,moe_checkpoint,gpt2_train"
MODES = "default,expandable,async,omniheap,default"
GIB = 2**30
HEAD = "workload | allocator | driver's peak GiB | own peak reserved GiB | ÷ peak live | seconds | ÷ first | loss difference | between passes | driver calls a pass"


def start(options, name, mode):
    here = os.path.dirname(os.path.abspath(__file__))
    name, _, share = name.partition(":")
    command = [sys.executable, os.path.join(here, "one.py"), options.file, name, mode, "--ask", *(["--share", share] if share else []), *options.rest]
    return name, mode, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready(child):
    """Waits until a process has imported everything, or has failed to."""
    while (line := child.stdout.readline()) and line.strip() != "READY":
        pass


def finish(name, mode, child):
    result = None
    try:
        child.stdin.write("go\n")
        child.stdin.flush()
    except BrokenPipeError:
        pass  # It ended early; its exit status says so below.
    for line in child.stdout:
        if line.startswith("RESULT "):
            result = json.loads(line[7:])
    errors = child.stderr.read()
    if child.wait() or result is None:
        return dict(workload=name, mode=mode, error=f"exit {child.returncode}: {errors[-500:]}")
    return result


def difference(losses, reference):
    pairs = list(zip(losses, reference))
    if len(losses) != len(reference) or not pairs:
        return float("nan")
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in pairs)


def best(one):
    """The fastest pass after the first, which warms up."""
    return min(one["times"][1:] or one["times"])


def row(one, reference):
    if one["error"]:
        return f"| {one['workload']} | {one['mode']} | {one['error']} |"
    gib = lambda key: f"{one[key] / GIB:.3f}" if one.get(key) else "–"
    # The first allocator's figure of live bytes: the program asks all of them for the same.
    ratio = f"{one['own_peak'] / reference['live_peak']:.3f}" if one.get("own_peak") and reference.get("live_peak") else "–"
    seconds, beside = best(one), best(reference)
    far, self_far = difference(one["losses"][-1], reference["losses"][-1]), difference(one["losses"][-1], one["losses"][0])
    calls = "/".join(map(str, one["calls"])) or "–"
    figures = f"{gib('driver_peak')} | {gib('own_peak')} | {ratio} | {seconds:.3f} | {seconds / beside:.3f} | {far:.1e} | {self_far:.1e} | {calls}"
    return f"| {one['workload']} | {one['mode']} | {figures} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file"), parser.add_argument("--modes", default=MODES)
    parser.add_argument("--names", default=NAMES), parser.add_argument("--out")
    options, options.rest = parser.parse_known_args()
    print(f"| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}", flush=True)
    results, first = [], {}
    turns = [(name, mode) for name in options.names.split(",") for mode in options.modes.split(",")]
    started = [start(options, *turn) for turn in turns]
    for _, _, child in started:
        ready(child)
    for turn in started:
        one = finish(*turn)
        if not one["error"]:
            first.setdefault(one["workload"], one)
        print(row(one, first.get(one["workload"])), flush=True)
        results.append(one)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()

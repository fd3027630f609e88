"""Every workload with every allocator, a process for each; prints one table, the rows of a workload when they are there.

usage: table.py WORKLOADS_FILE [--modes default,omniheap] [--names unet_diffusion,llama_serve:0.2,…] [--warm N] [other arguments of one.py]

A number behind a name is the share of its iterations. All processes import first; then one pass of one process runs at
a time. Allocators that are not timed run two passes and end. The timed ones (default and omniheap, each as often as it
is named) take turns, a warming pass first and then N, so that whatever slows the machine for a while slows them all;
times are medians, and each is divided by the first one's in the same turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

NAMES = "unet_diffusion,streams_serving,resnet_multiscale,llama_serve:0.2,moe_checkpoint,gpt2_train"
MODES = "default,expandable,async,omniheap,default"
TIMED = ("default", "omniheap", "omniheap-plain")
GIB = 2**30
HEAD = "workload | allocator | driver's peak GiB | own peak reserved GiB | ÷ peak live | seconds (least–most) | ÷ first | loss difference | between passes | driver calls a pass"


class Run:
    """One process: a workload with an allocator."""

    def __init__(self, options, name, mode):
        here = os.path.dirname(os.path.abspath(__file__))
        self.name, _, share = name.partition(":")
        self.mode, self.result = mode, None
        command = [sys.executable, os.path.join(here, "one.py"), options.file, self.name, mode, "--ask", *(["--share", share] if share else []), *options.rest]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def until(self, word):
        """Reads until the process says a word or ends."""
        for line in self.child.stdout:
            if line.startswith("RESULT "):
                self.result = json.loads(line[7:])
            if line.startswith(word):
                break

    def turn(self):
        """Lets the process do the next thing: open the device at first, then a pass each time."""
        try:
            self.child.stdin.write("\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # The process ended early; its exit status says so in the end.
        self.until("DONE")

    def finish(self):
        """The result, once the process has ended."""
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        self.until("RESULT ")
        errors = self.child.stderr.read()
        if self.child.wait() or not self.result:
            return dict(workload=self.name, mode=self.mode, error=f"exit {self.child.returncode}: {errors[-500:]}")
        return self.result


def measure(runs, warm):
    """Every result of one workload, in the order of its allocators."""
    results, turns = {}, [run for run in runs if run.mode in TIMED]
    for run in [run for run in runs if run not in turns]:
        [run.turn() for _ in ("open", "grow", "again")]
        results[run] = run.finish()
    for _ in range(2 + warm):
        [run.turn() for run in turns]
    results.update({run: run.finish() for run in turns})
    return [results[run] for run in runs]


def difference(losses, reference):
    pairs = list(zip(losses, reference))
    if len(losses) != len(reference) or not pairs:
        return float("nan")
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in pairs)


def row(one, reference):
    if one["error"]:
        return f"| {one['workload']} | {one['mode']} | {one['error']} |"
    gib = lambda key: f"{one[key] / GIB:.3f}" if one.get(key) else "–"
    # The first allocator's figure of live bytes: the program asks all of them for the same.
    ratio = f"{one['own_peak'] / reference['live_peak']:.3f}" if one.get("own_peak") and reference.get("live_peak") else "–"
    # The first pass warms up.
    times, beside = one["times"][1:], reference["times"][1:]
    seconds = f"{statistics.median(times):.3f} ({min(times):.3f}–{max(times):.3f})"
    share = statistics.median(mine / other for mine, other in zip(times, beside))
    far, self_far = difference(one["losses"][-1], reference["losses"][-1]), difference(one["losses"][-1], one["losses"][0])
    calls = "/".join(map(str, one["calls"])) or "–"
    figures = f"{gib('driver_peak')} | {gib('own_peak')} | {ratio} | {seconds} | {share:.3f} | {far:.1e} | {self_far:.1e} | {calls}"
    return f"| {one['workload']} | {one['mode']} | {figures} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file"), parser.add_argument("--modes", default=MODES)
    parser.add_argument("--names", default=NAMES), parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--out")
    options, options.rest = parser.parse_known_args()
    print(f"| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}", flush=True)
    workloads = [[Run(options, name, mode) for mode in options.modes.split(",")] for name in options.names.split(",")]
    [run.until("READY") for runs in workloads for run in runs]
    results = []
    for runs in workloads:
        rows = measure(runs, options.warm)
        first = next((one for one in rows if not one["error"]), None)
        [print(row(one, first), flush=True) for one in rows]
        results += rows
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()

"""Replays of 64 traces on a local Ray of one worker and of two: times, their ratio, seconds of the processor, whether results are equal.

usage: ray_workers.py TRACE [REPEAT]

The command `omniheap` is the one in PATH, or OMNIHEAP_COMMAND. A machine with fewer than two idle cores shows less. The seconds of the processor say what
two idle cores would: the commands divide among the workers, and Ray's own processes are what is left over.
"""

import os
import sys
import time

import omniheap.ray
import ray

TIMES = ("ns_per_event", "driver_ns")
TICK = os.sysconf("SC_CLK_TCK")


def processor():
    """Seconds of the processor that this process and all below it have used: their own, and those of children that have ended."""
    parents, seconds = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid, ticks = int(entry), list(map(int, fields[11:15]))
        parents[pid], seconds[pid] = int(fields[1]), (sum(ticks[:2]) / TICK, sum(ticks[2:]) / TICK)
    below, own, ended = {os.getpid()}, 0.0, 0.0
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    for pid in below & seconds.keys():
        own, ended = own + seconds[pid][0], ended + seconds[pid][1]
    return own, ended


def replays(workers, trace, repeat):
    ray.init(num_cpus=workers, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        start(workers)
        before = processor()
        begin = time.monotonic()
        results = omniheap.ray.replay([trace] * 64, [["--repeat", repeat]])
        seconds = time.monotonic() - begin
        after = processor()
    finally:
        ray.shutdown()
    told = [{name: value for name, value in each["result"][0].items() if name not in TIMES} for each in results]
    return seconds, told, after[1] - before[1], after[0] - before[0]


def start(workers):
    """Has every worker started: they start with their first task, and take seconds for it."""

    @ray.remote(num_cpus=1)
    def meet():
        time.sleep(1)
        return os.getpid()

    for _ in range(30):
        if len(set(ray.get([meet.remote() for _ in range(workers)]))) == workers:
            return
    raise SystemExit("the workers do not start")


def main():
    trace, repeat = sys.argv[1], (sys.argv[2:] or ["20"])[0]
    runs = [(workers, replays(workers, trace, repeat)) for workers in (1, 2, 1)]
    for workers, (seconds, _, commands, others) in runs:
        print(f"{workers} worker{'s' * (workers > 1)}: {seconds:.2f} s; seconds of the processor: commands {commands:.2f}, Ray and Python {others:.2f}")
    alone = min(runs[0][1][0], runs[2][1][0])
    results = [run[1][1] for run in runs]
    print(f"two workers are {alone / runs[1][1][0]:.2f} times as fast as one; results equal: {results[0] == results[1] == results[2]}")
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

"""Replays of 64 traces on a local Ray of one worker and of two: times, their ratio, whether results are equal.

usage: ray_workers.py TRACE [REPEAT]

The command `omniheap` is the one in PATH, or OMNIHEAP_COMMAND. A machine with fewer than two idle cores shows less; the load is printed.
"""

import os
import sys
import time

import omniheap.ray
import ray

TIMES = ("ns_per_event", "driver_ns")


def replays(workers, trace, repeat):
    ray.init(num_cpus=workers, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        # Workers start with their first task.
        omniheap.ray.replay([trace] * workers, [["--repeat", "1"]])
        begin = time.monotonic()
        results = omniheap.ray.replay([trace] * 64, [["--repeat", repeat]])
        seconds = time.monotonic() - begin
    finally:
        ray.shutdown()
    told = [{name: value for name, value in each["result"][0].items() if name not in TIMES} for each in results]
    return seconds, told


def main():
    trace, repeat = sys.argv[1], (sys.argv[2:] or ["20"])[0]
    one, two = replays(1, trace, repeat), replays(2, trace, repeat)
    again = replays(1, trace, repeat)
    alone = min(one[0], again[0])
    print(f"one worker {one[0]:.2f} s and {again[0]:.2f} s, two workers {two[0]:.2f} s: {alone / two[0]:.2f} times as fast")
    print(f"results equal: {one[1] == two[1] == again[1]}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

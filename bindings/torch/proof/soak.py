"""Traffic as PyTorch programs make it, with every content checked: threads, streams, early frees, graphs that are captured, replayed and reset.

usage: soak.py [--seconds N] [--processes P] [--threads T] [--streams S] [--mode omniheap|default]

Each thread writes a tensor on one stream, reads it on another and frees it before the read has run: the read is declared
(`record_stream`), or the writing stream waits for it. Results are compared on the device. One thread captures graphs meanwhile. With omniheap, one
capture in twenty is spoilt on purpose; PyTorch's own allocator does not recover from that. Prints one line for each process and the sum;
the exit status is 1 where a byte was wrong or a thread failed.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time


NOTHING = dict(rounds=0, allocations=0, captures=0, spoilt=0, wrong=0)


class Soak:
    def __init__(self, options, seed):
        import torch

        self.torch, self.options, self.seed = torch, options, seed
        self.streams = [torch.cuda.Stream() for _ in range(options.streams)]
        self.until = time.monotonic() + options.seconds
        self.lock, self.count = threading.Lock(), dict(NOTHING)
        self.errors = []

    def add(self, **more):
        with self.lock:
            for name, value in more.items():
                self.count[name] += value

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as error:  # Told in the end; the other threads go on.
            self.errors.append(f"{type(error).__name__}: {error}"[:300])

    def traffic(self, number):
        torch, random_, own = self.torch, random.Random(self.seed * 1000 + number), self.torch.cuda.Stream()
        kept, rounds, allocations = [], 0, 0
        with torch.cuda.stream(own):
            wrong = torch.zeros(1, dtype=torch.int64, device="cuda")
        while time.monotonic() < self.until:
            writer, reader = random_.sample(self.streams, 2)
            value, size = random_.randrange(1 << 20), int(2 ** random_.uniform(0, 19))
            with torch.cuda.stream(writer):
                source = torch.full((size,), value, dtype=torch.int32, device="cuda")
                short = [torch.empty(int(2 ** random_.uniform(0, 16)), dtype=torch.uint8, device="cuda") for _ in range(random_.randrange(12))]
            reader.wait_stream(writer)
            with torch.cuda.stream(reader):
                kept.append((source + 1, value + 1, reader))
            if random_.randrange(2):
                source.record_stream(reader)
            else:
                writer.wait_stream(reader)
            rounds, allocations = rounds + 1, allocations + 2 + len(short)
            del source, short
            if len(kept) > random_.randrange(1, 40):
                seen, expected, on = kept.pop(random_.randrange(len(kept)))
                own.wait_stream(on)
                with torch.cuda.stream(own):
                    wrong += (seen != expected).sum()
                    seen.record_stream(own)
                    allocations += 2
                if random_.randrange(50) == 0:
                    own.synchronize()
                del seen
        with torch.cuda.stream(own):
            self.add(rounds=rounds, allocations=allocations, wrong=int(wrong.item()))

    def graphs(self):
        torch, random_, stream = self.torch, random.Random(self.seed), self.torch.cuda.Stream()
        with torch.cuda.stream(stream):
            given = torch.zeros(1 << 12, device="cuda")
        while time.monotonic() < self.until:
            if self.options.mode == "omniheap" and random_.randrange(20) == 0:
                self.spoil(stream, given)
            else:
                self.capture(random_, stream, given)

    def capture(self, random_, stream, given):
        torch, graph, count = self.torch, self.torch.cuda.CUDAGraph(), random_.randrange(1, 6)
        with torch.cuda.stream(stream):
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                result = sum(given * (n + 1) for n in range(count))
            expected = count * (count + 1) // 2
            for turn in range(random_.randrange(1, 4)):
                given.fill_(turn + 1)
                graph.replay()
                self.add(wrong=int((result != expected * (turn + 1)).sum().item()))
            if random_.randrange(2):
                del result
                graph.reset()
            else:
                graph.reset()
                del result
        self.add(captures=1)

    def spoil(self, stream, given):
        """A capture that fails: the program waits for the stream while it is captured."""
        try:
            with self.torch.cuda.graph(self.torch.cuda.CUDAGraph(), stream=stream, capture_error_mode="thread_local"):
                twice = given * 2
                stream.synchronize()
        except RuntimeError:
            self.add(spoilt=1)

    def run(self):
        begun = time.monotonic()
        threads = [threading.Thread(target=self.guarded, args=(self.traffic, number)) for number in range(self.options.threads)]
        threads.append(threading.Thread(target=self.guarded, args=(self.graphs,)))
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return dict(self.count, seconds=round(time.monotonic() - begun, 1), errors=self.errors, reserved=self.torch.cuda.max_memory_reserved(), live=self.torch.cuda.max_memory_allocated())


def one(options):
    if options.mode == "omniheap":
        import omniheap.torch

        omniheap.torch.enable()
    print("RESULT " + json.dumps(Soak(options, options.seed).run()), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20), parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=8), parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--mode", default="omniheap", choices=("omniheap", "default")), parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.seed is not None:
        return one(options)
    given = [word for name in ("seconds", "threads", "streams", "mode") for word in ("--" + name, str(getattr(options, name)))]
    start = lambda seed: subprocess.Popen([sys.executable, __file__, *given, "--seed", str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    total, failed = dict(NOTHING), False
    for seed, child in enumerate([start(seed) for seed in range(1, options.processes + 1)], 1):
        out, errors = child.communicate()
        line = next((line for line in out.splitlines() if line.startswith("RESULT ")), None)
        if child.returncode or line is None:
            failed = True
            print(f"process {seed}: exit {child.returncode}: {errors[-400:]}", flush=True)
            continue
        result = json.loads(line[7:])
        failed |= bool(result["errors"] or result["wrong"])
        total = {name: total[name] + result[name] for name in total}
        print(f"process {seed}: {result}", flush=True)
    print("sum:", total, "FAILED" if failed else "ok", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

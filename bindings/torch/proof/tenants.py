"""Processes that share a GPU through the arbiter, beside processes that do not; prints one line for each figure.

usage: tenants.py COMMAND [--capacity GIB] [--kills N] [--hand-overs N] [--seconds N] [--input MS] [--only PART,…]

COMMAND is the command `omniheap`, which serves. Parts:
* take: the time of 1 GiB from the driver, and of allocations from held memory, with and without an arbiter;
* jobs: three PyTorch jobs whose peaks sum to 1.6 of the capacity: together with room, by the arbiter, in static thirds, one after the other;
  each step waits --input milliseconds for its input, while the device does nothing for it;
* kill: from `kill -9` of a tenant that holds nearly everything to the moment when another has that memory; further tenants start meanwhile;
* shares: three tenants with the weights 1, 2 and 3 that take all they get;
* residue: what one user filled is looked for by another who gets it;
* press: empty memory of one tenant that another asks for;
* publish: published bytes are attached by a second process.
Kills and hand-overs end after --seconds. Users other than this one need a start as root.
"""

import argparse
import collections
import ctypes
import fcntl
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

GIB, MIB = 2**30, 2**20
HERE = os.path.abspath(__file__)
# Processes that are ended after each part, also where it failed.
STARTED = []
PARTS = ("take", "press", "kill", "shares", "residue", "publish", "jobs")


class Arbiter:
    """`omniheap serve` for one part."""

    def __init__(self, command, capacity, policy=""):
        self.folder = tempfile.mkdtemp()
        os.chmod(self.folder, 0o755)
        self.socket, path = os.path.join(self.folder, "s"), os.path.join(self.folder, "policy.toml")
        with open(path, "w") as file:
            file.write(policy)
        group = ["--group", "65534"] if os.getuid() == 0 else []
        self.child = subprocess.Popen([command, "serve", "--socket", self.socket, "--capacity", str(int(capacity)), "--policy", path, *group], stdout=subprocess.DEVNULL)
        STARTED.append(self)
        while not os.path.exists(self.socket):
            if self.child.poll() is not None:
                raise SystemExit("the arbiter ended")
            time.sleep(0.01)

    def end(self):
        self.child.terminate()
        self.child.wait()


class Light:
    """A tenant without PyTorch: the plug-in's own functions. Each line that it reads is a call; it answers by a line."""

    def __init__(self, socket, user=None, **variables):
        environment = dict(os.environ, **variables)
        environment.pop("OMNIHEAP_ARBITER", None)
        if socket:
            environment["OMNIHEAP_ARBITER"] = socket
        become = dict(user=user, group=65534, extra_groups=[]) if user else {}
        self.child = subprocess.Popen([sys.executable, HERE, "--light"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, **become)
        STARTED.append(self)
        self.is_ready = False

    def ready(self):
        """Waits until it has a context; a tenant starts in the background."""
        if not self.is_ready:
            self.is_ready = True
            self.read()
        return self

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def send(self, *words):
        self.ready()
        self.child.stdin.write(json.dumps(words) + "\n")
        self.child.stdin.flush()

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"a tenant ended with {self.child.wait()}")
        return json.loads(line)

    def end(self, number=signal.SIGTERM):
        self.child.send_signal(number)
        self.child.wait()


def light():
    """The life of a light tenant."""
    library = ctypes.CDLL(os.environ["OMNIHEAP_LIBRARY"])
    allocate, free = library.omniheap_stream_alloc, library.omniheap_stream_free
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
    free.restype, free.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    library.omniheap_torch_configure.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    library.omniheap_torch_configure(b"cuda", 0, 1)
    held = []

    def take(size):
        address = allocate(None, size, 0)
        if address:
            held.append((address, size))
        return bool(address)

    def drop():
        """Frees everything; the memory stays with this process."""
        while held:
            free(None, held.pop()[0], 0)

    def give():
        drop()
        library.omniheap_torch_reset()

    def fill(word):
        for address, size in held:
            driver.cuMemsetD32_v2(ctypes.c_uint64(address), ctypes.c_uint(word), ctypes.c_size_t(size // 4))
        return driver.cuCtxSynchronize()

    def find(word):
        """Returns how many of the held words are this one, in the first 16 KiB of each MiB; -1 where they cannot be read."""
        count, copy = 0, ctypes.create_string_buffer(16 * 1024)
        for start, size in held:
            for address in range(start, start + size - len(copy), MIB):
                if driver.cuMemcpyDtoH_v2(copy, ctypes.c_uint64(address), ctypes.c_size_t(len(copy))):
                    return -1
                count += copy.raw.count(word.to_bytes(4, "little"))
        return count

    def turn(size, other, mine):
        """Takes, looks for the word of another, leaves its own, and gives; None where it got nothing."""
        found = find(other) if take(size) else None
        fill(mine), give()
        return found

    def pairs(count, size):
        begun = time.perf_counter()
        for _ in range(count):
            free(None, allocate(None, size, 0), 0)
        return (time.perf_counter() - begun) / count

    def timed(size):
        begun = time.perf_counter()
        return time.perf_counter() - begun if take(size) else None

    def greedy(piece, seconds):
        """Takes all that it gets, and frees a sixteenth whenever it is refused, as programs do between steps; returns what it had at last."""
        begun, seen = time.monotonic(), []
        while (now := time.monotonic() - begun) < seconds:
            if take(piece):
                continue
            if now > seconds * 0.75:
                seen.append(sum(size for _, size in held))
            for _ in range(len(held) // 16 or 1):
                held and free(None, held.pop()[0], 0)
            time.sleep(0.002)
        return statistics.mean(seen or [0])

    def until(size):
        """Asks until it gets so much; returns when that was."""
        while not take(size):
            time.sleep(0.001)
        return time.monotonic()

    calls = dict(take=take, drop=drop, give=give, fill=fill, find=find, pairs=pairs, timed=timed, greedy=greedy, until=until, turn=turn)
    take(MIB), give()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
    print("0", flush=True)
    for line in sys.stdin:
        name, *rest = json.loads(line)
        print(json.dumps(calls[name](*rest)), flush=True)


def job(peak, steps, wait):
    """A training step whose memory swells to a peak and falls back, again and again; returns its seconds and a checksum."""
    import torch
    import omniheap.torch

    omniheap.torch.enable()
    kept = torch.ones(peak // 10 // 4, device="cuda")
    wide = torch.randn(4096, 4096, device="cuda")
    print("READY", flush=True)
    sys.stdin.readline()
    begun, total = time.perf_counter(), 0.0
    for step in range(steps):
        time.sleep(wait / 1e3)
        for _ in range(60):
            wide = (wide @ wide).clamp_(-1, 1)
        with open(os.environ["TENANTS_TURN"]) as turn:
            # One job swells at a time, so that what lives always fits.
            fcntl.flock(turn, fcntl.LOCK_EX)
            swollen = [torch.full((peak // 16 // 4,), float(step), device="cuda") for _ in range(14)]
            total += float(sum(one[:: 1 << 20].sum() for one in swollen))
            del swollen
            torch.cuda.synchronize()
        total += float(kept[:1024].sum())
        torch.cuda.synchronize()
    print("RESULT " + json.dumps([time.perf_counter() - begun, total]), flush=True)


def say(name, **figures):
    print(name, " ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()), flush=True)


def take(options):
    arbiter = Arbiter(options.command, 16 * GIB)
    tenants = Light(arbiter.socket).ready(), Light(None).ready()
    whole, held = ([], []), ([], [])
    for _ in range(9):
        for tenant, one, many in zip(tenants, whole, held):
            one.append(tenant.ask("timed", GIB))
            many.append(tenant.ask("pairs", 20000, 64 * 1024))
            tenant.ask("give")
    with_one, without = map(statistics.median, whole)
    say("take", GiB_ms=with_one * 1e3, without_ms=without * 1e3, ratio=with_one / without)
    with_one, without = map(statistics.median, held)
    say("held", ns=with_one * 1e9, without_ns=without * 1e9, ratio=with_one / without)


def press(options):
    arbiter = Arbiter(options.command, 32 * GIB)
    first, second = Light(arbiter.socket).ready(), Light(arbiter.socket).ready()
    times = []
    for _ in range(5):
        all(first.ask("take", GIB) for _ in range(31))
        first.ask("drop")
        times.append(second.ask("timed", 15 * GIB))
        second.ask("give"), first.ask("give")
    say("press", GB_per_s=15 * GIB / statistics.median(times) / 1e9, ms=statistics.median(times) * 1e3)


def kill(options):
    arbiter = Arbiter(options.command, 8 * GIB)
    heir, times, ended, ends = Light(arbiter.socket).ready(), [], [], time.monotonic() + options.seconds
    coming = collections.deque(Light(arbiter.socket) for _ in range(min(8, options.kills)))
    while coming and time.monotonic() < ends:
        victim = coming.popleft()
        while not victim.ask("take", 7 * GIB):
            time.sleep(0.001)
        heir.send("until", 2 * GIB)
        time.sleep(0.02)
        begun = time.monotonic()
        victim.end(signal.SIGKILL)
        ended.append(time.monotonic() - begun)
        times.append(heir.read() - begun)
        heir.ask("give")
        if len(times) + len(coming) < options.kills:
            coming.append(Light(arbiter.socket))
    say("kill", times=len(times), until_the_process_is_gone_ms=statistics.median(ended) * 1e3, median_ms=statistics.median(times) * 1e3, most_ms=max(times) * 1e3, within_200_ms=sum(one <= 0.2 for one in times))


def shares(options):
    users = [(60001, 1), (60002, 2), (60003, 3)]
    policy = "".join(f'[tenant."uid:{user}"]\nweight = {weight}\n' for user, weight in users)
    arbiter = Arbiter(options.command, 24 * GIB, policy)
    tenants = [Light(arbiter.socket, user) for user, _ in users]
    [tenant.ready() for tenant in tenants]
    [tenant.send("greedy", 32 * MIB, 6) for tenant in tenants]
    held = [tenant.read() for tenant in tenants]
    ideal = [24 * GIB * weight / 6 for _, weight in users]
    say("shares", GiB=[round(one / GIB, 2) for one in held], worst=max(abs(a / b - 1) for a, b in zip(held, ideal)))


def residue(options):
    arbiter = Arbiter(options.command, 1 * GIB)
    tenants, found, ends = [Light(arbiter.socket, user) for user in (60001, 60002)], [], time.monotonic() + options.seconds
    for turn in range(options.hand_overs):
        if time.monotonic() > ends:
            break
        # Mostly two page groups, which the driver hands out again first; now and then nearly everything.
        size = 700 * MIB if turn % 100 < 2 else 64 * MIB
        found.append(tenants[turn % 2].ask("turn", size, 0xA5A5_0000 + (turn - 1) % 2, 0xA5A5_0000 + turn % 2))
    known = [one for one in found if one is not None]
    say("residue", hand_overs=len(known), refused=len(found) - len(known), words_found=sum(known), unreadable=known.count(-1))


PUBLISH = """
import sys, time, torch, omniheap.torch as oh
oh.enable()
if sys.argv[1] == "publish":
    oh.publish("weights", {str(i): torch.full((1 << 28,), i, dtype=torch.float32, device="cuda") for i in range(8)})
else:
    torch.ones(8, device="cuda").sum().item()
    free = torch.cuda.mem_get_info()[0]
    begun = time.perf_counter()
    tensors = oh.attach("weights", device="cuda")
    took = time.perf_counter() - begun
    assert all(float(tensors[str(i)][-1]) == i for i in range(8))
    print("RESULT", took, free - torch.cuda.mem_get_info()[0])
"""


def publish(options):
    arbiter = Arbiter(options.command, 40 * GIB)
    for what in ("publish", "attach", "attach"):
        done = subprocess.run([sys.executable, "-c", PUBLISH, what], env=dict(os.environ, OMNIHEAP_ARBITER=arbiter.socket), capture_output=True, text=True)
        if done.returncode:
            return say("publish", failed=done.stderr.strip().splitlines()[-1])
        if what == "attach":
            took, more = done.stdout.split("RESULT ")[1].split()
            say("attach", GiB=8, ms=float(took) * 1e3, more_bytes=int(more))


def start(peak, wait, socket=None, limit=None):
    environment = dict(os.environ, TENANTS_TURN=HERE, **({"OMNIHEAP_ARBITER": socket} if socket else {}), **({"OMNIHEAP_LIMIT": str(limit)} if limit else {}))
    return subprocess.Popen([sys.executable, HERE, "--job", str(peak), "24", str(wait)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(children):
    """Lets jobs that said they are ready run at the same time; returns their seconds and sums, or what stopped one."""
    children = list(children)
    for child in children:
        child.stdout.readline()
    begun = time.monotonic()
    ends = []
    for child in children:
        try:
            child.stdin.write("\n"), child.stdin.flush()
        except BrokenPipeError:
            pass
    for child in children:
        out, error = child.communicate()
        found = [line for line in out.splitlines() if line.startswith("RESULT ")]
        ends.append(json.loads(found[0][7:]) if found else (error.strip().splitlines() or ["ended"])[-1][:120])
    return time.monotonic() - begun, ends


def jobs(options):
    capacity = int(options.capacity * GIB)
    peak, wait = int(capacity * 1.6 / 3), options.input
    room, ends = finish([start(peak, wait) for _ in range(3)])
    say("jobs", how="with room", seconds=room, ends=ends)
    arbiter = Arbiter(options.command, capacity)
    shared, ends = finish([start(peak, wait, arbiter.socket) for _ in range(3)])
    say("jobs", how="arbiter", seconds=shared, ratio=shared / room, ends=ends)
    _, ends = finish([start(peak, wait, limit=capacity // 3) for _ in range(3)])
    say("jobs", how="static thirds", ends=ends)
    alone = sum(finish([start(peak, wait)])[0] for _ in range(3))
    say("jobs", how="one after the other", seconds=alone, arbiter_ratio=shared / alone)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command"), parser.add_argument("--capacity", type=float, default=24)
    parser.add_argument("--kills", type=int, default=100), parser.add_argument("--hand-overs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600), parser.add_argument("--input", type=int, default=0), parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    for part in options.only.split(","):
        try:
            globals()[part](options)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            say(part, failed=f"{type(error).__name__}: {error}")
        finally:
            while STARTED:
                STARTED.pop().end()


if __name__ == "__main__":
    if sys.argv[1:] == ["--light"]:
        light()
    elif sys.argv[1:2] == ["--job"]:
        job(*map(int, sys.argv[2:]))
    else:
        main()

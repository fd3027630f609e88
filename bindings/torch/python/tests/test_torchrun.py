"""gather with real processes of PyTorch: torchrun on eight CPU ranks (gloo), ranks that die, and a job that shrinks and grows.

Needs PyTorch: in this interpreter, or in the one that OMNIHEAP_TORCH_PYTHON names. Without, it says so; OMNIHEAP_REQUIRE=torch makes that a
failure.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

MIB = 1 << 20


def interpreter():
    """A Python that has PyTorch, or None."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return os.environ.get("OMNIHEAP_TORCH_PYTHON") or None


def environment():
    """The package that is under test, in another interpreter too."""
    import omniheap

    package = os.path.dirname(os.path.dirname(os.path.abspath(omniheap.__file__)))
    quiet = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": package}


def data(path):
    """Returns the data that a page shows."""
    with open(path, encoding="utf-8") as page:
        text = page.read()
    return json.JSONDecoder().raw_decode(text, text.index('{"title"'))[0]


def total(page, name):
    return next(spread["total"] for spread in page["spreads"] if spread["name"] == name)


@unittest.skipUnless(interpreter() or "torch" in os.environ.get("OMNIHEAP_REQUIRE", "").split(","), "there is no PyTorch here")
class Torchrun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *arguments):
        command = [interpreter(), os.path.abspath(__file__), *map(str, arguments)]
        child = subprocess.Popen(command, env=environment())
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def test_eight_ranks_of_torchrun_make_one_page(self):
        command = [interpreter(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8"]
        subprocess.run([*command, os.path.abspath(__file__), "torchrun", self.folder], check=True, env=environment())
        page = data(self.path("job.html"))
        self.assertEqual((page["ranks"], page["missing"], page["worlds"]), (8, [], [{"size": 8, "ranks": 8}]))
        self.assertEqual(page["worst"]["at"]["rank"], 7)
        single = []
        for rank in range(8):
            with open(self.path(f"{rank}.json"), encoding="utf-8") as file:
                single.append(json.load(file))
        for name, figure in (("live", "live_bytes"), ("reserved", "reserved_bytes")):
            self.assertEqual(total(page, name), sum(each[figure] for each in single), name)
        self.assertEqual(data(self.path("some.html"))["ranks"], 3, "a group of three")
        with open(self.path("seconds"), encoding="utf-8") as file:
            print(f"gathering 8 ranks took {float(file.read()) * 1000:.0f} ms", file=sys.stderr)

    def test_ranks_that_die_or_hang_in_the_gather_are_named(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        fates = ("lives", "lives", "hangs", "dies")
        ranks = [self.start("fate", self.folder, f"tcp://127.0.0.1:{port}", rank, 4, fate) for rank, fate in enumerate(fates)]
        self.assertEqual(ranks[0].wait(timeout=120), 0)
        page = data(self.path("job.html"))
        self.assertEqual((page["ranks"], page["missing"]), (2, [2, 3]))
        ranks[2].send_signal(signal.SIGKILL)

    def test_a_job_that_shrinks_and_grows_is_gathered_each_time(self):
        # A process plays these phases: the rank that it has in each, in worlds of three, two and three.
        plans = ("0,0,0", "1,1,1", "2,,", ",,2")
        processes = [self.start("elastic", self.folder, plan) for plan in plans]
        for process in processes:
            self.assertEqual(process.wait(timeout=120), 0)
        for phase, world in enumerate((3, 2, 3)):
            page = data(self.path(f"{phase}.html"))
            self.assertEqual((page["ranks"], page["missing"]), (world, []), phase)
            self.assertEqual(page["worlds"], [{"size": world, "ranks": world}])


def held(rank):
    from omniheap import _library

    _library.configure("host", "256MiB", True)
    assert _library.load().omniheap_torch_alloc((rank + 1) * MIB, 0, None)


def torchrun(folder):
    import omniheap.torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    held(rank)
    with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(omniheap.torch.stats(), file)
    distributed.barrier()
    begin = time.monotonic()
    missing = omniheap.torch.gather(path=os.path.join(folder, "job.html"))
    if rank == 0:
        assert missing == [], missing
        with open(os.path.join(folder, "seconds"), "w", encoding="utf-8") as file:
            file.write(str(time.monotonic() - begin))
    some = distributed.new_group([1, 4, 6])
    if rank in (1, 4, 6):
        omniheap.torch.gather(group=some, path=os.path.join(folder, "some.html"))
    distributed.barrier()
    distributed.destroy_process_group()


def fate(folder, store, rank, world, what):
    import omniheap.torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo", init_method=store, rank=int(rank), world_size=int(world))
    held(int(rank))
    distributed.barrier()
    if what == "dies":
        os._exit(0)
    if what == "hangs":
        os.kill(os.getpid(), signal.SIGSTOP)
    missing = omniheap.torch.gather(path=os.path.join(folder, "job.html"), timeout=3)
    # No end of the process group: it would wait for the dead.
    os._exit(0 if missing in (None, [2, 3]) else 1)


def elastic(folder, plan):
    import omniheap.torch
    import torch.distributed as distributed

    for phase, rank in enumerate(plan.split(",")):
        if not rank:
            continue
        world = (3, 2, 3)[phase]
        store = "file://" + os.path.join(folder, f"store{phase}")
        distributed.init_process_group("gloo", init_method=store, rank=int(rank), world_size=world)
        held(int(rank))
        missing = omniheap.torch.gather(path=os.path.join(folder, f"{phase}.html"))
        assert missing in (None, []), missing
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("torchrun", "fate", "elastic"):
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        unittest.main()

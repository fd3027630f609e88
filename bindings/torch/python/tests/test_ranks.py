"""Ranks without PyTorch: what the launchers' names mean, and a gather over a store in memory."""

import os
import subprocess
import sys
import tempfile
import threading
import types
import unittest

import omniheap.torch
from omniheap import _library, _ranks
from on_host import OnHost, stand_in



class Store:
    """As much of a c10d store as gather uses."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def wait(self, keys, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: all(key in self.values for key in keys), timeout.total_seconds()):
                raise RuntimeError("wait timeout")

    def check(self, keys):
        return all(key in self.values for key in keys)

    def get(self, key):
        return self.values[key]

    def delete_key(self, key):
        return self.values.pop(key, None) is not None


class Group:
    """A process group: only its identity matters."""


def fake_torch(test, store, rank, world, initialized=True):
    inner = types.SimpleNamespace(_get_default_store=lambda: store, _get_process_group_store=lambda group: store)
    distributed = types.ModuleType("torch.distributed")
    distributed.distributed_c10d = inner
    distributed.group = types.SimpleNamespace(WORLD=Group())
    distributed.is_available = lambda: True
    distributed.is_initialized = lambda: initialized
    distributed.get_rank = lambda group: rank
    distributed.get_world_size = lambda group: world
    torch = types.ModuleType("torch")
    torch.distributed = distributed
    stand_in(test, {"torch": torch, "torch.distributed": distributed})


class Places(unittest.TestCase):
    def test_every_launcher_is_known_and_the_inner_one_wins(self):
        self.assertEqual(_ranks.place({"RANK": "5", "WORLD_SIZE": "8"}), (5, 8))
        self.assertEqual(_ranks.place({"OMPI_COMM_WORLD_RANK": "1"}), (1, None))
        self.assertEqual(_ranks.place({"PMI_RANK": "2", "PMI_SIZE": "3"}), (2, 3))
        self.assertEqual(_ranks.place({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "PMI_RANK": "6"}), (6, None))
        self.assertIsNone(_ranks.place({}))

    def test_nonsense_counts_as_not_set(self):
        self.assertIsNone(_ranks.place({"RANK": "8", "WORLD_SIZE": "8"}))
        self.assertIsNone(_ranks.place({"RANK": "-1"}))
        self.assertEqual(_ranks.place({"RANK": "", "SLURM_PROCID": " 4 "}), (4, None))


    def test_ray_train_says_it_inside_of_its_workers(self):
        def context(rank, world):
            return types.SimpleNamespace(get_context=lambda: types.SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: world))

        for said, found in (((2, 4), (2, 4)), ((None, None), None), ((4, 4), None)):
            stand_in(self, {"ray.train": context(*said)})
            self.assertEqual(_ranks.place({}), found)
        stand_in(self, {"ray.train": types.SimpleNamespace()})
        self.assertEqual(_ranks.place({"RANK": "1", "WORLD_SIZE": "2"}), (1, 2), "not in a worker of it")


class Named(unittest.TestCase):
    """`enable(ranks="auto")`: files and errors carry the rank."""

    CODE = """
import os, sys
import omniheap.torch
from omniheap import _library as l
l.configure('host', '64MiB', True)
omniheap.torch._name_rank(sys.argv[2] or None)
os.chdir(sys.argv[1])
print(l.trace('run.trace'))
held = l.load().omniheap_torch_alloc(4096, 0, None)
print(l.report('page.html'))
print(l.trace(None))
assert not l.load().omniheap_torch_segment(1 << 30, 0, None)
print(l.explain_oom())
for call in (lambda: l.report('/nowhere/x.html'), lambda: l.stats(99)):
    try:
        call()
    except l.OmniheapError as error:
        print(error)
"""

    def tell(self, ranks, **variables):
        with tempfile.TemporaryDirectory() as folder:
            launchers = [name for pair in _ranks._LAUNCHERS for name in pair]
            environment = {name: value for name, value in os.environ.items() if name not in launchers}
            done = subprocess.run(
                [sys.executable, "-c", self.CODE, folder, ranks], check=True, capture_output=True, text=True, env={**environment, **variables}
            )
            return done.stdout.splitlines(), sorted(os.listdir(folder))

    def test_every_launcher_names_files_and_errors(self):
        for variables in (
            {"RANK": "3", "WORLD_SIZE": "8"}, {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, {"PMI_RANK": "3", "PMI_SIZE": "8"},
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"},
        ):
            told, files = self.tell("auto", **variables)
            self.assertEqual(files, ["page.rank3.html", "run.rank3.trace"], variables)
            self.assertEqual(told[:3], ["run.rank3.trace", "page.rank3.html", "None"])
            self.assertTrue(len(told) == 6 and all(line.endswith(" (rank 3 of 8)") for line in told[3:]), told)
            self.assertTrue(told[3].startswith("host out of memory"), "as PyTorch's begins")

    def test_nothing_changes_without_a_launcher_or_a_wish(self):
        for ranks, variables in (("auto", {}), ("", {"RANK": "3", "WORLD_SIZE": "8"})):
            told, files = self.tell(ranks, **variables)
            self.assertEqual(files, ["page.html", "run.trace"])
            self.assertNotIn("rank", "".join(told))

    def test_a_world_that_nobody_says(self):
        told, files = self.tell("auto", OMPI_COMM_WORLD_RANK="1")
        self.assertEqual(files, ["page.rank1.html", "run.rank1.trace"])
        self.assertTrue(told[3].endswith(" (rank 1)"), told)

    def test_other_values_are_refused(self):
        torch = types.ModuleType("torch")
        torch.version = types.SimpleNamespace(hip=None)
        stand_in(self, {"torch": torch})
        for wrong in ("yes", 3, True, (0, 1)):
            with self.assertRaises(omniheap.OmniheapError) as caught:
                omniheap.torch.enable(ranks=wrong)
            self.assertIn("pass 'auto'", str(caught.exception))


class Gathering(OnHost):
    def test_rank_0_writes_one_page_and_names_the_dead(self):
        store = Store()
        lib = _library.load()
        held = lib.omniheap_torch_alloc(1 << 20, 0, None)
        for rank in (1, 2):
            fake_torch(self, store, rank, 4)
            self.assertIsNone(omniheap.torch.gather())
        self.assertTrue(all(len(value) <= 64 << 10 for value in store.values.values()))
        fake_torch(self, store, 0, 4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.html")
            self.assertEqual(omniheap.torch.gather(path=path, timeout=0.2), [3])
            with open(path, encoding="utf-8") as page:
                text = page.read()
        self.assertIn('"missing":[3]', text)
        self.assertIn('"ranks":3', text)
        self.assertEqual(store.values, {}, "nothing is left in the store")
        lib.omniheap_torch_free(held, 1 << 20, 0, None)

    def test_reports_and_traces_name_the_rank(self):
        code = (
            "import sys; from omniheap import _library as l; l.configure('host', '64MiB', True); "
            "l.trace(sys.argv[2]); h = l.load().omniheap_torch_alloc(4096, 0, None); l.report(sys.argv[1]); l.trace(None)"
        )
        with tempfile.TemporaryDirectory() as folder:
            page, trace = os.path.join(folder, "page.html"), os.path.join(folder, "run.trace")
            environment = {**os.environ, "RANK": "3", "WORLD_SIZE": "8"}
            subprocess.run([sys.executable, "-c", code, page, trace], check=True, env=environment)
            with open(page, encoding="utf-8") as file:
                text = file.read()
            with open(trace, "rb") as file:
                self.assertIn(b"rank 3", file.read())
        self.assertIn('{"name":"rank","value":"3"}', text)
        self.assertIn('{"name":"world size","value":"8"}', text)

    def test_a_timeout_that_is_none_is_refused(self):
        fake_torch(self, Store(), 0, 1)
        for timeout in (0, -1, True, None, "60", float("nan"), float("inf")):
            with self.assertRaises(omniheap.OmniheapError):
                omniheap.torch.gather(timeout=timeout)

    def test_without_a_process_group_it_says_what_to_do(self):
        fake_torch(self, Store(), 0, 1, initialized=False)
        with self.assertRaises(omniheap.OmniheapError) as caught:
            omniheap.torch.gather()
        self.assertIn("init_process_group", str(caught.exception))

    def test_a_damaged_answer_is_a_problem_on_the_page(self):
        store = Store()
        store.set("omniheap/gather/0/2/1/1", b'{"rank_schema":1,')
        fake_torch(self, store, 0, 2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.html")
            self.assertEqual(omniheap.torch.gather(path=path, timeout=1), [])
            with open(path, encoding="utf-8") as page:
                self.assertIn("not whole", page.read())


if __name__ == "__main__":
    unittest.main()

"""omniheap.ray on a local Ray: results as in order, a worker that is killed, one picture of all ranks, limits from parts of a GPU.

Needs Ray in this interpreter or in the one that OMNIHEAP_RAY_PYTHON names, and the command omniheap (OMNIHEAP_COMMAND). Without, it says so;
OMNIHEAP_REQUIRE=ray makes that a failure.
"""

import importlib.util
import inspect
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from omniheap import OmniheapError
from omniheap import ray as tasks

COMMAND = os.environ.get("OMNIHEAP_COMMAND") or shutil.which("omniheap")
REQUIRED = "ray" in os.environ.get("OMNIHEAP_REQUIRE", "").split(",")
TIMES = ("ns_per_event", "driver_ns", "seconds", "first_plan_seconds")


def here():
    """Returns True if Ray is in this interpreter."""
    return importlib.util.find_spec("ray") is not None


def write_trace(path, rank):
    """Buffers of one size, which are planned at once."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("op,id,size,stream,time_us\n")
        for at in range(200):
            file.write(f"a,{at},{(rank + 1) << 12},0,{at}\n")
            if at >= 20:
                file.write(f"f,{at - 20},{(rank + 1) << 12},0,{at}\n")


def without_times(results):
    for each in results:
        for result in each.get("result", ()):
            for name in TIMES:
                result.pop(name, None)
    return results


def in_order(verb, paths, configs):
    """Returns what the command says without Ray."""
    told = [tasks._command([verb, path, *config, "--json"]) for path in paths for config in configs]
    orders = [(path, list(config)) for path in paths for config in configs]
    return without_times([{"path": path, "config": config, **each} for (path, config), each in zip(orders, told)])


class Elsewhere(unittest.TestCase):
    """The tests below, in an interpreter that has Ray."""

    @unittest.skipIf(here(), "Ray is in this interpreter")
    @unittest.skipUnless(os.environ.get("OMNIHEAP_RAY_PYTHON") or REQUIRED, "there is no Ray here")
    def test_in_the_interpreter_that_has_ray(self):
        import omniheap

        package = os.path.dirname(os.path.dirname(os.path.abspath(omniheap.__file__)))
        environment = {**os.environ, "PYTHONPATH": package}
        subprocess.run([os.environ["OMNIHEAP_RAY_PYTHON"], os.path.abspath(__file__)], check=True, env=environment)


class WithoutRay(unittest.TestCase):
    @unittest.skipIf(here(), "Ray is in this interpreter")
    def test_it_says_what_to_install(self):
        with self.assertRaises(OmniheapError) as caught:
            tasks.replay(["a.csv"])
        self.assertIn("pip install ray", str(caught.exception))

    def test_bad_input_is_refused_before_anything_runs(self):
        for paths in ("one.csv", b"one.csv", []):
            with self.assertRaises(OmniheapError):
                tasks.replay(paths)
        for config in ("--paged", [1]):
            with self.assertRaises(OmniheapError):
                tasks.replay(["a.csv"], configs=[config])
        self.assertEqual(tasks._batches([1, 2, 3], 64), [[1], [2], [3]], "all workers have something to do")
        many = tasks._batches(list(range(100)), 2)
        self.assertEqual(([each for batch in many for each in batch], len(many)), (list(range(100)), 17), "in their order")
        for part in (0, -0.5, True, None, "0.5"):
            with self.assertRaises(OmniheapError):
                tasks.remote(num_gpus=part)


class Limits(unittest.TestCase):
    """A part of a GPU where Ray is not needed to see what a task is made into."""

    def test_a_task_that_yields_has_its_limit_until_it_ends(self):
        def task(many):
            for _ in range(many):
                yield os.environ.get("OMNIHEAP_LIMIT")
            return "done"

        with mock.patch.object(tasks, "share", lambda: 0.25), mock.patch.dict(os.environ):
            os.environ.pop("OMNIHEAP_LIMIT", None)
            limited = tasks._limited(task, 1 << 30)
            self.assertTrue(inspect.isgeneratorfunction(limited), "Ray makes a stream of it")
            self.assertEqual(list(limited(2)), [str(1 << 28)] * 2)
            self.assertNotIn("OMNIHEAP_LIMIT", os.environ)
            left = limited(2)
            next(left)
            left.close()
            self.assertNotIn("OMNIHEAP_LIMIT", os.environ)

    def test_async_tasks_are_refused(self):
        async def task():
            pass

        with self.assertRaisesRegex(OmniheapError, "task is async"):
            tasks._limited(task, 1 << 30)


@unittest.skipUnless(COMMAND, "there is no command omniheap here")
class Quotas(unittest.TestCase):
    """A part of a GPU where there is an arbiter, in a process that stands for a worker."""

    CODE = """
import json, os, subprocess, sys
from omniheap import ray as tasks

def quota():
    told = subprocess.run([sys.argv[1], "tenants", "--json"], check=True, capture_output=True, text=True).stdout
    return next((each["quota_bytes"] for each in map(json.loads, told.splitlines()) if each["pid"] == os.getpid()), None)

tasks.share = lambda: 0.25
seen = [quota()]
inside = tasks._limited(lambda: seen.append(quota()), 64 << 20)
inside()
seen.append(quota())
tasks.share = lambda: 1.0
inside()
tasks.share = lambda: 0.5
seen.append(tasks.limit(64 << 20))
seen.append(tasks.limit(128 << 20))
seen.append(quota())
assert "OMNIHEAP_LIMIT" not in os.environ
print(json.dumps(seen))
"""

    def run_with(self, socket):
        done = subprocess.run(
            [sys.executable, "-c", self.CODE, COMMAND], capture_output=True, text=True, env={**os.environ, "OMNIHEAP_ARBITER": socket}
        )
        return done.stdout, done.stderr

    def test_it_is_a_quota(self):
        with tempfile.TemporaryDirectory() as folder:
            socket = os.path.join(folder, "arbiter.sock")
            with subprocess.Popen([COMMAND, "serve", "--socket", socket, "--capacity", "60MiB"], stdout=subprocess.DEVNULL) as arbiter:
                try:
                    while not os.path.exists(socket) and arbiter.poll() is None:
                        time.sleep(0.01)
                    said, error = self.run_with(socket)
                finally:
                    arbiter.terminate()
        self.assertTrue(said, error)
        mib = 1 << 20
        self.assertEqual(json.loads(said), [None, 16 * mib, 60 * mib, 60 * mib, 32 * mib, 32 * mib, 32 * mib])

    def test_without_the_arbiter_it_fails_in_words(self):
        code = "from omniheap import ray; ray.share = lambda: 0.5; ray.limit(1 << 30)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "OMNIHEAP_ARBITER": "/nowhere.sock"})
        self.assertIn("OmniheapError: quota: /nowhere.sock", done.stderr)
        self.assertIn("omniheap serve", done.stderr)


@unittest.skipUnless(here() and COMMAND, "there is no Ray, or no command omniheap, here")
class OnRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.paths = [os.path.join(cls.folder, f"rank{rank}.csv") for rank in range(8)]
        for rank, path in enumerate(cls.paths):
            write_trace(path, rank)
        # The first task of all kills its worker, once.
        wrapper = os.path.join(cls.folder, "omniheap")
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nif [ "$1" = plan ] && mkdir "{cls.folder}/killed" 2>/dev/null; then kill -9 $PPID; exit 9; fi\n')
            file.write(f'exec "{COMMAND}" "$@"\n')
        os.chmod(wrapper, os.stat(wrapper).st_mode | stat.S_IXUSR)
        os.environ["OMNIHEAP_COMMAND"] = wrapper
        import ray

        ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
        cls.addClassCleanup(ray.shutdown)

    def test_results_are_those_of_one_after_the_other(self):
        configs = [["--repeat", "1"], ["--repeat", "1", "--paged", "no"]]
        self.assertEqual(without_times(tasks.replay(self.paths, configs)), in_order("replay", self.paths, configs))

    def test_a_worker_that_is_killed_costs_nothing_but_time(self):
        planned = without_times(tasks.plan(self.paths))
        self.assertTrue(os.path.isdir(os.path.join(self.folder, "killed")), "one was killed")
        self.assertEqual(planned, in_order("plan", self.paths, [[]]))
        self.assertTrue(all("result" in each for each in planned), planned)

    def test_files_that_cannot_be_read_are_said_and_the_others_are_done(self):
        nowhere = os.path.join(self.folder, "nowhere.csv")
        good, bad = tasks.compare([self.paths[0], nowhere])
        self.assertIn("result", good)
        self.assertIn("nowhere.csv", bad["error"])

    def test_the_picture_is_that_of_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in self.paths:
                shutil.copy(path, folder)
            whole = json.loads(subprocess.run([COMMAND, "ranks", folder, "--json"], check=True, capture_output=True).stdout)
            page = os.path.join(folder, "job.html")
            picture = tasks.ranks(self.paths, report=page)
            self.assertTrue(os.path.getsize(page) > 1000)
        self.assertEqual({**picture, "report": None}, whole)
        self.assertEqual((picture["ranks"], picture["worst"]["rank"]), (8, 7))

    def test_the_picture_names_what_cannot_be_read(self):
        damaged = os.path.join(self.folder, "rank8.csv")
        with open(damaged, "w", encoding="utf-8") as file:
            file.write("this is no trace\n")
        picture = tasks.ranks([*self.paths, damaged])
        self.assertEqual((picture["ranks"], [problem["file"] for problem in picture["problems"]]), (8, [damaged]))
        with self.assertRaises(OmniheapError):
            tasks.ranks([damaged])

    def test_a_part_of_a_gpu_is_a_limit(self):
        import ray

        @tasks.remote(num_gpus=0.25, whole=1 << 30)
        def part():
            return os.environ.get("OMNIHEAP_LIMIT")

        @tasks.remote(num_gpus=1, whole=1 << 30)
        def all_of_it():
            return os.environ.get("OMNIHEAP_LIMIT")

        @tasks.remote(num_gpus=0.5, whole=1 << 30)
        class Actor:
            def limit(self):
                return os.environ.get("OMNIHEAP_LIMIT")

        self.assertEqual(ray.get(part.remote()), str(1 << 28))
        self.assertIsNone(ray.get(all_of_it.remote()))
        self.assertEqual(ray.get(Actor.remote().limit.remote()), str(1 << 29))
        lower = part.options(runtime_env={"env_vars": {"OMNIHEAP_LIMIT": "1MiB"}})
        self.assertEqual(ray.get(lower.remote()), str(1 << 20), "a lower limit stays")
        self.assertNotIn("OMNIHEAP_LIMIT", os.environ)


if __name__ == "__main__":
    unittest.main()

"""The package without a GPU: what it refuses and how, and its allocator functions on the host backend."""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
from importlib import metadata
from unittest import mock

import omniheap.cupy
import omniheap.torch
from omniheap import _history, _library, _pools, _stats
from on_host import OnHost, stand_in


def child(code, **environment):
    """Runs code in a process of its own, because settings are one for a process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class FakeTorch(types.ModuleType):
    """As much of PyTorch as `enable` looks at."""

    def __init__(self, version="2.11.0", cuda="13.0", initialized=False, available=False):
        super().__init__("torch")
        self.__version__ = version
        self.version = types.SimpleNamespace(cuda=cuda, hip=None)
        self.cuda = types.SimpleNamespace(is_initialized=lambda: initialized, is_available=lambda: available)


class Installed(unittest.TestCase):
    """What pip has installed beside this Python."""

    def test_the_command_is_on_the_path(self):
        command = os.path.join(os.path.dirname(sys.executable), "omniheap")
        shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(shown, f"omniheap {metadata.version('omniheap')}\n")
        refused = subprocess.run([command, "no-such-thing"], capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("no-such-thing", refused.stderr)

    def test_the_wheel_is_for_every_python_of_the_platform(self):
        wheel = metadata.distribution("omniheap").read_text("WHEEL")
        self.assertRegex(wheel, r"(?m)^Tag: py3-none-linux_")


class Refusals(unittest.TestCase):
    def refuses(self, torch, *words):
        stand_in(self, {"torch": torch})
        with self.assertRaises(omniheap.OmniheapError) as caught:
            omniheap.torch.enable()
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertFalse(omniheap.torch.is_enabled())

    def test_without_pytorch(self):
        self.refuses(None, "install it")

    def test_an_old_pytorch(self):
        for version in ("2.0.1+cu118", "1.13", "unknown"):
            self.refuses(FakeTorch(version=version), "too old", "2.3")
        # Not too old, whatever follows: refused for what comes next.
        for version in ("2.3.0rc1", "2.11.0a0+git1234", "3.0"):
            self.refuses(FakeTorch(version=version), "no GPU")

    def test_what_moved_to_the_laboratory_says_so(self):
        with self.assertRaisesRegex(omniheap.OmniheapError, "^omniheap.torch.record_step is omniheap.fit.record_step: install it with `pip install ./lab/python`, and import omniheap.fit$"):
            omniheap.torch.record_step
        self.assertFalse(hasattr(omniheap.torch, "record_step"), "programs may ask")
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            omniheap.torch.nothing
        folder = os.path.dirname(os.path.abspath(omniheap.torch.__file__))
        for name in filter(lambda name: name.endswith(".py"), os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                self.assertNotRegex(file.read(), r"(?m)^\s*(from|import) .*\bfit\b", f"{name} needs nothing of the laboratory")

    def test_a_pytorch_for_processors(self):
        self.refuses(FakeTorch(cuda=None), "built without")

    def test_too_late(self):
        self.refuses(FakeTorch(initialized=True), "first thing")

    def test_no_gpu(self):
        self.refuses(FakeTorch(), "no GPU")

    def test_cupy_is_missing(self):
        if "cupy" not in sys.modules:
            with self.assertRaises(omniheap.OmniheapError):
                omniheap.cupy.enable()

    def test_cupy_that_cannot(self):
        class NoDriver(Exception):
            pass

        def fail():
            raise NoDriver

        old = types.SimpleNamespace(__version__="5.0", cuda=types.SimpleNamespace())
        runtime = types.SimpleNamespace(getDeviceCount=fail, CUDARuntimeError=NoDriver)
        blind = types.SimpleNamespace(__version__="14.0", cuda=types.SimpleNamespace(CFunctionAllocator=None, runtime=runtime))
        for module, word in ((old, "such as 14"), (blind, "no GPU")):
            stand_in(self, {"cupy": module})
            with self.assertRaises(omniheap.OmniheapError) as caught:
                omniheap.cupy.enable()
            self.assertIn(word, str(caught.exception))
            self.assertFalse(omniheap.cupy.is_enabled())

    def test_cupy_says_when_it_captures(self):
        said = []

        class Stream:
            ptr, fails = 7, False

            def begin_capture(self, mode=None):
                said.append(("begins", mode))
                if self.fails:
                    raise RuntimeError

            def end_capture(self):
                return "graph"

        say = lambda what: lambda device, stream: said.append((what, device, stream))
        library = types.SimpleNamespace(omniheap_stream_begin_capture=say("hold"), omniheap_stream_end_capture=say("release"))
        devices = [3]
        runtime = types.SimpleNamespace(getDevice=lambda: devices[0])
        cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime, stream=types.SimpleNamespace(_BaseStream=Stream)))
        self.addCleanup(setattr, _library, "load", _library.load)
        _library.load = lambda: library
        omniheap.cupy._announce_captures(cupy)
        stream = Stream()
        stream.begin_capture(2)
        # The program goes on with another device; the capture is that of the first.
        devices[0] = 5
        self.assertEqual(stream.end_capture(), "graph")
        self.assertEqual(said, [("hold", 3, 7), ("begins", 2), ("release", 3, 7)])
        said.clear()
        devices[0] = 3
        stream.fails = True
        self.assertRaises(RuntimeError, stream.begin_capture)
        self.assertEqual(said, [("hold", 3, 7), ("begins", None), ("release", 3, 7)])

    def test_cupy_gets_whole_units(self):
        asked = []
        memory = types.SimpleNamespace(ptr=1)
        allocator = types.SimpleNamespace(malloc=lambda size: asked.append(size) or memory)
        stream = types.SimpleNamespace(ptr=7)
        stand_in(self, {"cupy": types.SimpleNamespace(cuda=types.SimpleNamespace(get_current_stream=lambda: stream))})
        self.addCleanup(setattr, omniheap.cupy, "_allocators", omniheap.cupy._allocators)
        omniheap.cupy._allocators = {7: allocator}
        for size in (0, 1, 512, 513):
            omniheap.cupy._allocate(size)
        self.assertEqual(asked, [0, 512, 512, 1024])

    def test_figures_before_enable(self):
        earlier, _library._enabled = _library._enabled, None
        self.addCleanup(setattr, _library, "_enabled", earlier)
        for call in (_library.stats, _library.empty_cache, _library.explain_oom, lambda: _library.report("x"), lambda: _library.trace("x")):
            with self.assertRaises(omniheap.OmniheapError) as caught:
                call()
            self.assertIn("enable()", str(caught.exception))

    def test_limits(self):
        for limit, word in (("8 parsecs", "8GiB"), (-1, "positive"), (0, "positive"), (1.5, "share"), ([], "bytes"), (True, "bytes"), ("", "8GiB")):
            with self.assertRaises(omniheap.OmniheapError, msg=repr(limit)) as caught:
                _library.to_bytes(limit, "host")
            self.assertIn(word, str(caught.exception))
        self.assertEqual(_library.to_bytes("1.5GiB", "host"), 3 << 29)
        self.assertEqual(_library.to_bytes(None, "host"), 0)

    def test_a_limit_above_the_device(self):
        earlier = _library._library
        self.addCleanup(setattr, _library, "_library", earlier)
        _library._library = types.SimpleNamespace(omniheap_torch_device_bytes=lambda backend, device: 1 << 30)
        for limit in ("2GiB", (1 << 30) + 1):
            with self.assertRaises(omniheap.OmniheapError) as caught:
                _library.to_bytes(limit, "cuda")
            self.assertIn("the device has 1073741824; ask for less", str(caught.exception))
        self.assertEqual(_library.to_bytes(0.5, "cuda"), 1 << 29)

    def test_a_share_of_no_device(self):
        earlier = _library._library
        self.addCleanup(setattr, _library, "_library", earlier)
        _library._library = types.SimpleNamespace(omniheap_torch_device_bytes=lambda backend, device: 0)
        with self.assertRaises(omniheap.OmniheapError) as caught:
            _library.to_bytes(0.5, "cuda")
        self.assertIn("pass bytes", str(caught.exception))

    def with_allocator(self, inner, change=None):
        torch = FakeTorch(available=True)
        allocator = types.SimpleNamespace(allocator=lambda: inner)
        torch.cuda.memory = types.SimpleNamespace(CUDAPluggableAllocator=lambda *names: allocator, change_current_allocator=change)
        earlier = _library.configure
        self.addCleanup(setattr, _library, "configure", earlier)
        _library.configure = lambda *settings: None
        return torch

    def test_a_pytorch_without_hooks(self):
        self.refuses(self.with_allocator(types.SimpleNamespace()), "lacks set_reset_fn", "2.11")

    def test_another_allocator_was_first(self):
        def refuse(allocator):
            raise RuntimeError("Can't swap an already initialized allocator")

        hooks = types.SimpleNamespace(**{setter: lambda address: None for setter, _ in omniheap.torch._HOOKS})
        self.refuses(self.with_allocator(hooks, refuse), "already initialized", "first thing")

    def test_unknown_options(self):
        for backend, paged in (("metal", True), ("host", "yes")):
            with self.assertRaises(omniheap.OmniheapError):
                _library.configure(backend, None, paged)
        with self.assertRaises(TypeError):
            omniheap.torch.enable(colour="green")

    def test_a_wrong_library(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"not a library")
            file.flush()
            code = "from omniheap import _library, OmniheapError\ntry: _library.load()\nexcept OmniheapError as e: print(e)"
            for path, word in (("/no/such/file.so", "names no file"), (file.name, "cannot be loaded")):
                self.assertIn(word, child(code, OMNIHEAP_LIBRARY=path))
            with open("/proc/self/maps") as maps:
                other = [line.split()[-1] for line in maps if "libc.so" in line]
            if other:
                self.assertIn("not omniheap's library", child(code, OMNIHEAP_LIBRARY=other[0]))


class Host(OnHost):
    """The functions that PyTorch and CuPy call, driven through ctypes; short ones by those that return null, as no C++ of PyTorch is here to catch."""

    def test_bytes_are_ours(self):
        held = []
        for number in range(50):
            size = 1 + number * 4099
            pointer = self.lib.omniheap_torch_alloc(size, 0, number % 3)
            ctypes.memset(pointer, number, size)
            held.append((pointer, size, number))
        for pointer, size, number in held:
            self.assertEqual(ctypes.string_at(pointer, size), bytes([number]) * size)
            self.lib.omniheap_torch_record_stream(pointer, 7)
            self.lib.omniheap_torch_free(pointer, size, 0, number % 3)
        _library.empty_cache()
        self.assertEqual(_library.stats()["live"], 0)

    def test_a_shortage_is_explained(self):
        self.assertIsNone(self.lib.omniheap_torch_segment(1 << 40, 0, None))
        self.assertIn("out of memory", _library.explain_oom())

    def test_settings_are_one_for_the_process(self):
        with self.assertRaises(omniheap.OmniheapError) as caught:
            _library.configure("host", "32MiB", True)
        self.assertIn("once", str(caught.exception))
        _library.configure("host", "64MiB", True)

    def test_report_and_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            page, trace = os.path.join(folder, "out.html"), os.path.join(folder, "out.trace")
            _library.trace(trace)
            self.lib.omniheap_torch_free(self.lib.omniheap_torch_alloc(1000, 0, None), 1000, 0, None)
            _library.trace(None)
            _library.report(page)
            with open(page) as file:
                self.assertIn("<html", file.read())
            with open(trace, "rb") as file:
                self.assertEqual(file.read(7), b"OMNITRC")
            with self.assertRaises(omniheap.OmniheapError):
                _library.report(os.path.join(folder, "no", "such", "folder.html"))

    def test_a_fork_lives_and_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "parent.trace")
            _library.trace(path)
            pointer = self.lib.omniheap_torch_alloc(4096, 0, None)
            before = os.path.getsize(path)
            process = os.fork()
            if process == 0:
                self.lib.omniheap_torch_free(pointer, 4096, 0, None)
                refused = self.lib.omniheap_torch_segment(1, 0, None) is None
                told = "spawn" in self.lib.omniheap_torch_explain_oom().decode()
                for call in (lambda: _library.trace(None), lambda: _library.report(path), _library.stats):
                    try:
                        call()
                        told = False
                    except omniheap.OmniheapError as error:
                        told = told and "spawn" in str(error)
                os._exit(0 if refused and told else 1)
            self.assertEqual(os.waitpid(process, 0)[1], 0)
            self.assertEqual(os.path.getsize(path), before, "the trace is the parent's")
            self.lib.omniheap_torch_free(pointer, 4096, 0, None)
            _library.trace(None)

    def test_exits_are_clean(self):
        start = "from omniheap import _library; _library.configure('host', None, True); l = _library.load(); p = l.omniheap_torch_alloc(1 << 20, 0, 3); "
        for end in ("", "import sys; sys.exit(0)", "import os; os._exit(0)", "l.omniheap_torch_free(p, 1 << 20, 0, 3)", "import threading; threading.Thread(target=lambda: l.omniheap_torch_alloc(9, 0, 4)).start()"):
            child(start + end)

    def test_pytorch_shows_our_figures(self):
        torch = FakeTorch()
        torch._C = types.SimpleNamespace(_accelerator_getDeviceStats=None)
        _stats.install(torch)
        torch._C._cuda_resetPeakMemoryStats(0)
        torch._C._cuda_resetAccumulatedMemoryStats(0)
        before = torch._C._cuda_memoryStats(0)
        held = [(self.lib.omniheap_torch_alloc(size, 0, None), size) for size in (1000, 3 << 20, 77)]
        grown = torch._C._cuda_memoryStats(0)
        [self.lib.omniheap_torch_free(pointer, size, 0, None) for pointer, size in held]
        self.assertIsNone(self.lib.omniheap_torch_segment(1 << 40, 0, None))
        after = torch._C._cuda_memoryStats(0)
        asked = sum(size for _, size in held)
        total = sum(-(-size // 512) * 512 for _, size in held)
        got = lambda shown, name, key: shown[name]["all"][key]
        self.assertEqual(got(grown, "allocated_bytes", "current") - got(before, "allocated_bytes", "current"), total)
        self.assertEqual(got(after, "allocated_bytes", "current"), got(before, "allocated_bytes", "current"))
        self.assertEqual(got(after, "allocated_bytes", "peak") - got(before, "allocated_bytes", "current"), total)
        self.assertEqual((got(after, "requested_bytes", "allocated"), got(after, "requested_bytes", "freed")), (asked, asked))
        self.assertEqual((got(after, "allocated_bytes", "allocated"), got(after, "allocated_bytes", "freed")), (total, total))
        self.assertNotEqual(asked, total)
        self.assertEqual((got(after, "allocation", "allocated"), got(after, "allocation", "freed"), after["num_ooms"]), (3, 3, 1))
        self.assertGreaterEqual(got(grown, "reserved_bytes", "peak"), got(grown, "reserved_bytes", "current"))
        self.assertGreaterEqual(got(grown, "reserved_bytes", "current"), total)
        torch._C._cuda_resetPeakMemoryStats(0)
        torch._C._cuda_resetAccumulatedMemoryStats(0)
        again = torch._C._cuda_memoryStats(0)
        self.assertEqual(got(again, "allocated_bytes", "peak"), got(again, "allocated_bytes", "current"))
        self.assertEqual((got(again, "allocation", "allocated"), again["num_ooms"]), (0, 0))
        self.assertEqual(torch._C._accelerator_getDeviceStats(0), again)
        self.assertFalse(hasattr(torch._C, "_accelerator_resetPeakStats"), "this version has none")

    def with_history(self):
        """A PyTorch with our history; its stacks are those of Python."""
        torch = FakeTorch()
        torch.cuda.device_count, torch.cuda.mem_get_info = lambda: 2, lambda device: (7, 64 << 20)
        frames = lambda stack: [dict(name=f.name, filename=f.filename, line=f.lineno) for f in reversed(stack)]
        profiler = types.SimpleNamespace(
            gather_traceback=lambda python, script, cpp: traceback.extract_stack()[:-1],
            symbolize_tracebacks=lambda stacks: [frames(stack) for stack in stacks],
        )
        names = ("memorySnapshot", "record_memory_history", "record_memory_history_legacy", "isHistoryEnabled", "attach_out_of_memory_observer", "checkPoolLiveAllocations")
        node = types.SimpleNamespace(metadata={"traceback_": ["forward"]})
        torch._C = types.SimpleNamespace(_profiler=profiler, is_anomaly_enabled=lambda: False, _current_autograd_node=lambda: node)
        torch._C.__dict__.update({"_cuda_" + name: None for name in names}, _activate_gpu_trace=lambda: None)
        heard = self.heard = []
        registry = lambda what: types.SimpleNamespace(fire_callbacks=lambda address: heard.append((what, address)))
        torch.cuda._gpu_trace = types.SimpleNamespace(MemoryAllocationCallbacks=registry("allocated"), MemoryDeallocationCallbacks=registry("freed"))
        _history.install(torch)
        self.addCleanup(torch._C._cuda_record_memory_history, None)
        self.assertFalse(hasattr(torch._C, "_cuda_setMemoryMetadata"), "this version has none")
        return torch._C

    def test_snapshots_have_pytorchs_format(self):
        torch = self.with_history()
        sizes = (1000, 3 << 20, 77)
        held = [(self.lib.omniheap_torch_alloc(size, 0, 5), size) for size in sizes]
        middle = held.pop(1)
        self.lib.omniheap_torch_free(*middle, 0, 5)
        for request in (None, (0, 0), (0, 0, False)):
            taken = torch._cuda_memorySnapshot(request)
            self.assertEqual(taken["device_traces"], [[], []])
            blocks = {block["address"]: block for segment in taken["segments"] for block in segment["blocks"]}
            for pointer, size in held:
                self.assertEqual((blocks[pointer]["requested_size"], blocks[pointer]["state"]), (size, "active_allocated"))
                self.assertEqual(blocks[pointer]["size"], -(-size // 512) * 512)
            # A stream that is not idle keeps it a while.
            self.assertNotEqual(blocks.get(middle[0], {"state": "inactive"})["state"], "active_allocated")
            for segment in taken["segments"]:
                self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])
                ends = [block["address"] + block["size"] for block in segment["blocks"]]
                self.assertEqual([block["address"] for block in segment["blocks"]], [segment["address"], *ends[:-1]])
                self.assertEqual((segment["segment_pool_id"], segment["device"], segment["frames"]), ((0, 0), 0, []))
            self.assertEqual(sum(segment["total_size"] for segment in taken["segments"]), _library.stats()["reserved_bytes"])
        self.assertEqual(torch._cuda_memorySnapshot((0, 99))["segments"], [])
        [self.lib.omniheap_torch_free(*one, 0, 5) for one in held]

    def test_history_has_what_happened_and_where(self):
        torch = self.with_history()
        _library.empty_cache()

        def here():
            return self.lib.omniheap_torch_alloc(5 << 20, 0, None)

        def there(pointer):
            self.lib.omniheap_torch_free(pointer, 5 << 20, 0, None)

        names = lambda entry: [frame["name"] for frame in entry["frames"]]
        for context in (None, "state", "alloc", "all"):
            torch._cuda_record_memory_history("all", context, "python", 1 << 62, True, False, False, ["oom"])
            self.assertTrue(torch._cuda_isHistoryEnabled())
            pointer = here()
            taken = torch._cuda_memorySnapshot()
            block = next(block for segment in taken["segments"] for block in segment["blocks"] if block["address"] == pointer)
            self.assertEqual("here" in names(block), context is not None)
            if context:
                self.assertEqual(names(block)[0], "here", "our own frames are not shown")
            there(pointer)
            blocks = [block for segment in torch._cuda_memorySnapshot((0, 0, False))["segments"] for block in segment["blocks"]]
            self.assertIn((pointer, 5 << 20), [(block["address"], block["requested_size"]) for block in blocks if block["state"] != "active_allocated"])
            self.assertIsNone(self.lib.omniheap_torch_segment(1 << 40, 0, None))
            _library.empty_cache()
            trace, other = torch._cuda_memorySnapshot()["device_traces"]
            self.assertEqual({entry["action"] for entry in other}, {"snapshot"})
            actions = [entry["action"] for entry in trace]
            self.assertEqual([a for a in actions if not a.startswith("segment")], ["alloc", "snapshot", "free_requested", "free_completed", "snapshot"])
            self.assertLess(actions.index("segment_map"), actions.index("alloc"))
            self.assertEqual(actions[-1], "segment_unmap")
            mapped = sum(entry["size"] * {"segment_map": 1, "segment_unmap": -1}.get(entry["action"], 0) for entry in trace)
            self.assertEqual(mapped, 0)
            alloc, free = trace[actions.index("alloc")], trace[actions.index("free_completed")]
            self.assertEqual((alloc["addr"], alloc["size"], free["addr"], free["size"]), (pointer, 5 << 20) * 2)
            self.assertEqual(("here" in names(alloc), "there" in names(free)), (context in ("alloc", "all"), context == "all"))
            json.dumps(trace)
        torch._cuda_record_memory_history("state")
        [there(here()) for _ in range(3)]
        self.assertEqual(len(torch._cuda_memorySnapshot()["device_traces"][0]), 1, "the last entry alone")
        torch._cuda_record_memory_history(None)
        self.assertFalse(torch._cuda_isHistoryEnabled())
        there(here())
        self.assertEqual(torch._cuda_memorySnapshot()["device_traces"], [[], []])
        torch._cuda_record_memory_history_legacy(True, True, 2)
        [there(here()) for _ in range(3)]
        self.assertEqual(len(torch._cuda_memorySnapshot()["device_traces"][0]), 2)
        self.assertRaises(RuntimeError, torch._cuda_record_memory_history, "some")

    def test_what_lives_when_a_history_ends_keeps_its_stack(self):
        torch = self.with_history()

        def here():
            return self.lib.omniheap_torch_alloc(5 << 20, 0, None)

        def names(pointer):
            blocks = [block for segment in torch._cuda_memorySnapshot()["segments"] for block in segment["blocks"]]
            self.assertFalse([block for block in blocks if "allocation" in block], "PyTorch's format has no such key")
            return [frame["name"] for block in blocks if block["address"] == pointer for frame in block["frames"]]

        for end in (lambda: torch._cuda_record_memory_history_legacy(False), lambda: torch._cuda_record_memory_history(None)):
            torch._cuda_record_memory_history_legacy(True)
            pointer = here()
            self.assertIn("here", names(pointer))
            end()
            self.assertEqual(torch._cuda_memorySnapshot()["device_traces"], [[], []])
            self.assertIn("here", names(pointer))
            end()
            self.assertIn("here", names(pointer), "to end it again changes nothing")
            torch._cuda_record_memory_history_legacy(True)
            self.assertIn("here", names(pointer), "nor does another history")
            end()
            self.lib.omniheap_torch_free(pointer, 5 << 20, 0, None)
            # The same bytes for somebody whom nobody recorded.
            again = self.lib.omniheap_torch_alloc(5 << 20, 0, None)
            self.assertEqual((again, names(again)), (pointer, []))
            self.lib.omniheap_torch_free(again, 5 << 20, 0, None)

    def test_backward_entries_say_where_the_forward_pass_was(self):
        torch = self.with_history()
        torch.is_anomaly_enabled = lambda: True
        torch._cuda_record_memory_history()
        self.lib.omniheap_torch_free(self.lib.omniheap_torch_alloc(512, 0, None), 512, 0, None)
        entries = torch._cuda_memorySnapshot()["device_traces"][0]
        self.assertEqual([entry.get("forward_frames") for entry in entries], [["forward"]] * len(entries))

    def test_traces_hear_of_allocations(self):
        torch = self.with_history()
        first = self.lib.omniheap_torch_alloc(512, 0, None)
        torch._activate_gpu_trace()
        second = self.lib.omniheap_torch_alloc(512, 0, None)
        [self.lib.omniheap_torch_free(one, 512, 0, None) for one in (first, second)]
        self.assertEqual(self.heard, [("allocated", second), ("freed", first), ("freed", second)])
        self.lib.omniheap_torch_watch(None)

    def test_what_is_live_in_a_pool(self):
        torch = self.with_history()
        live = self.lib.omniheap_torch_alloc(512, 0, None)
        blocks = [block for segment in torch._cuda_memorySnapshot()["segments"] for block in segment["blocks"]]
        all_live = {block["address"] for block in blocks if block["state"] == "active_allocated"}
        self.assertIn(live, all_live)
        self.assertTrue(torch._cuda_checkPoolLiveAllocations(0, (0, 0), all_live))
        self.assertFalse(torch._cuda_checkPoolLiveAllocations(0, (0, 0), all_live | {7}))
        self.assertFalse(torch._cuda_checkPoolLiveAllocations(0, (0, 0), all_live - {live}))
        self.assertTrue(torch._cuda_checkPoolLiveAllocations(0, (0, 99), set()))
        self.lib.omniheap_torch_free(live, 512, 0, None)

    def test_observers_hear_of_a_shortage(self):
        torch, heard = self.with_history(), []
        torch._cuda_attach_out_of_memory_observer(lambda *what: heard.append(what))
        self.assertIsNone(self.lib.omniheap_torch_segment(1 << 40, 0, None))
        self.assertEqual(heard, [(0, 1 << 40, 64 << 20, 7)])
        del torch
        gc.collect()
        # Whoever looks on is called as long as the process lives.
        self.assertIsNone(self.lib.omniheap_torch_segment(1 << 40, 0, None))
        self.assertEqual(len(heard), 2)
        self.lib.omniheap_torch_watch(None)

    def test_ranges_that_are_not_covered(self):
        self.assertEqual(_history._without([(0, 10), (20, 10)], [(2, 3), (8, 14)]), [(0, 2), (5, 3), (22, 8)])
        self.assertEqual(_history._without([(0, 10)], []), [(0, 10)])
        self.assertEqual(_history._without([(0, 10)], [(0, 10)]), [])

    def test_pools_while_enabled(self):
        torch, released = FakeTorch(), []
        torch.cuda.current_device, torch.cuda.graph_pool_handle = lambda: 0, lambda: (0, 41)
        torch.cuda.memory_snapshot = lambda name, include_traces: (name, include_traces)
        torch.cuda.memory = types.SimpleNamespace()
        torch.cuda.CUDAGraph = type("CUDAGraph", (), dict(capture_begin=None, capture_end=None))
        torch._C = types.SimpleNamespace(_cuda_releasePool=lambda *what: released.append(what), _cuda_setCheckpointPoolState=None)
        _pools.install(torch)
        with self.assertWarnsRegex(UserWarning, "use_on_oom has no effect"):
            pool = torch.cuda.MemPool(use_on_oom=True)
        self.assertIs(torch.cuda.memory.MemPool, torch.cuda.MemPool)
        self.assertEqual((pool.id, pool.use_count(), pool.allocator), ((0, 41), 1, None))
        self.assertEqual(pool.snapshot(False), ((0, 41), False))
        del pool
        self.assertEqual(released, [(0, (0, 41))])
        with self.assertRaises(omniheap.OmniheapError) as caught:
            torch.cuda.MemPool(object())
        self.assertIn("omniheap.torch.pool()", str(caught.exception))
        self.assertIs(torch._C._cuda_getCheckpointState, _pools._Checkpoint)
        # A pool that the library does not hold would be given back twice.
        torch.cuda.current_device = lambda: 77
        self.assertRaises(omniheap.OmniheapError, torch.cuda.MemPool)
        self.assertEqual(len(released), 1)

    def test_a_checkpoint_without_the_functions_of_pytorch_is_refused(self):
        # Elsewhere, as a process that has them keeps them.
        start = "from omniheap import OmniheapError, _library, _pools\n_library.configure('host', '64MiB', True)\n"
        self.assertIn("cudagraph_trees = False", child(start + "try: _pools._Checkpoint(0, (0, 41))\nexcept OmniheapError as e: print(e)"))

    def test_a_capture_that_fails_ends(self):
        class Name(ctypes.Structure):
            _fields_ = [("captured", ctypes.c_uint64), ("named", ctypes.c_uint64)]

        begin, end = self.lib.omniheap_torch_begin_pool, self.lib.omniheap_torch_end_pool
        begin.argtypes, end.argtypes = [ctypes.c_int, Name, ctypes.c_void_p], [ctypes.c_int, Name]

        class Graph:
            def capture_begin(self, pool):
                self.name = Name(0, pool)
                begin(0, self.name, None)

            def capture_end(self):
                raise RuntimeError("the capture was spoilt")

        torch, capturing = FakeTorch(), [True]
        torch.cuda.memory, torch._C = types.SimpleNamespace(), types.SimpleNamespace(_cuda_setCheckpointPoolState=None)
        torch.cuda.current_device, torch.cuda.current_stream = lambda: 0, lambda: 7
        torch.cuda.stream, torch.cuda.is_current_stream_capturing = contextlib.nullcontext, lambda: capturing[0]
        torch.cuda.CUDAGraph = Graph
        _pools.install(torch)
        users, graph = lambda: self.lib.omniheap_torch_pool_users(0, 0, 51), Graph()
        graph.capture_begin(51)
        for still_captures in (True, False, False):
            capturing[0] = still_captures
            with self.assertRaisesRegex(RuntimeError, "spoilt"):
                graph.capture_end()
            self.assertEqual(users(), int(still_captures), "it goes on where its stream is captured still")
        # Nothing is ended twice: another capture of this thread that goes well is not this one's.
        graph.capture_begin(51)
        end(0, graph.name)
        with self.assertRaises(RuntimeError):
            graph.capture_end()
        self.assertEqual(users(), 1, "its graph releases it")
        self.lib.omniheap_torch_release_pool.argtypes = [ctypes.c_int, Name]
        self.lib.omniheap_torch_release_pool(0, graph.name)

    def torch_with_pools(self):
        """A stand-in for PyTorch whose pools show what they were made of, imported for one test."""
        torch = FakeTorch()
        torch.cuda.current_device = lambda: 0
        torch.cuda.MemPool = lambda *what, **options: (*what, options)
        torch.cuda.memory = types.SimpleNamespace(CUDAPluggableAllocator=lambda *names: types.SimpleNamespace(allocator=lambda: names))
        stand_in(self, {"torch": torch})
        self.addCleanup(omniheap.torch._pooled.clear)
        return torch

    def test_a_pool_beside_pytorchs_allocator(self):
        torch = self.torch_with_pools()
        names, options = omniheap.torch.pool(use_on_oom=True)
        self.assertEqual((names[1:], options), (("omniheap_torch_segment", "omniheap_torch_segment_free"), {"use_on_oom": True}))
        self.assertFalse(omniheap.torch.is_enabled())
        # PyTorch asks again when it is refused, after it has emptied its caches: nothing is thrown.
        self.assertIsNone(self.lib.omniheap_torch_segment(1 << 40, 0, None))
        segment = self.lib.omniheap_torch_segment(2 << 20, 0, None)
        ctypes.memset(segment, 1, 2 << 20)
        _library.empty_cache()
        before = _library.stats()["reserved_bytes"]
        self.lib.omniheap_torch_segment_free(segment, 2 << 20, 0, None)
        self.assertLess(_library.stats()["reserved_bytes"], before, "others need the memory that PyTorch gives up")
        earlier, omniheap.torch.stats = omniheap.torch.stats, lambda device: {"paged": False, "registrable": None}
        self.addCleanup(setattr, omniheap.torch, "stats", earlier)
        with self.assertRaises(omniheap.OmniheapError) as caught:
            omniheap.torch.pool()
        self.assertIn("enable()", str(caught.exception))
        del torch.cuda.MemPool
        with self.assertRaises(omniheap.OmniheapError) as caught:
            omniheap.torch.pool()
        self.assertIn("no MemPool", str(caught.exception))

    def test_a_pool_that_can_be_registered(self):
        self.torch_with_pools()
        plain, registrable = omniheap.torch.pool()[0], omniheap.torch.pool(registrable=True)[0]
        self.assertEqual((plain[1], registrable[1:]), ("omniheap_torch_segment", ("omniheap_torch_registrable", "omniheap_torch_segment_free")))
        granule = _library.stats()["registrable"]
        _library.empty_cache()
        before = _library.stats()
        segment = self.lib.omniheap_torch_registrable(1, 0, None)
        after = _library.stats()
        self.assertEqual(after["reserved_bytes"] - before["reserved_bytes"], granule, "rounded to the granularity, and counted so")
        self.assertEqual(after["segments"] - before["segments"], 1)
        ctypes.memset(segment, 1, 1)
        self.lib.omniheap_torch_segment_free(segment, 1, 0, None)
        self.assertEqual(_library.stats()["reserved_bytes"], before["reserved_bytes"])
        self.assertIsNone(self.lib.omniheap_torch_registrable(1 << 40, 0, None))
        self.assertIn("omniheap could not allocate", _library.explain_oom())
        earlier, omniheap.torch.stats = omniheap.torch.stats, lambda device: {"paged": True, "registrable": None}
        self.addCleanup(setattr, omniheap.torch, "stats", earlier)
        for wrong, words in ((True, "cannot be registered"), (1, "pass True or False")):
            with self.assertRaises(omniheap.OmniheapError) as caught:
                omniheap.torch.pool(registrable=wrong)
            self.assertIn(words, str(caught.exception))
        omniheap.torch._allocator = object()
        self.addCleanup(setattr, omniheap.torch, "_allocator", None)
        with self.assertRaises(omniheap.OmniheapError) as caught:
            omniheap.torch.pool(registrable=True)
        self.assertIn("without omniheap.torch.enable()", str(caught.exception))

    def test_what_cupy_sees_of_a_failure(self):
        alloc = self.lib.omniheap_stream_alloc
        alloc.argtypes, alloc.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_void_p
        for device, error, words in ((0, MemoryError, "out of memory"), (63, omniheap.OmniheapError, "device 63 cannot be opened")):
            allocator = types.SimpleNamespace(malloc=lambda size: types.SimpleNamespace(ptr=alloc(None, size, device)))
            current = lambda: types.SimpleNamespace(ptr=7)
            stand_in(self, {"cupy": types.SimpleNamespace(cuda=types.SimpleNamespace(get_current_stream=current))})
            with mock.patch.object(omniheap.cupy, "_allocators", {7: allocator}), self.assertRaisesRegex(error, words):
                omniheap.cupy._allocate(1 << 40)

    def test_the_fraction_is_remembered(self):
        torch, limit = FakeTorch(), lambda: _library.stats()["limit_bytes"]
        # PyTorch's function says nothing of a refusal.
        torch._C = types.SimpleNamespace(_cuda_setMemoryFraction=lambda *what: self.lib.omniheap_torch_memory_fraction(*what) and None, _cuda_getMemoryFraction=None)
        self.addCleanup(_library.set_limit, limit())
        _stats.install(torch)
        self.assertEqual(torch._C._cuda_getMemoryFraction(0), 1.0)
        torch._C._cuda_setMemoryFraction(0.5, 0)
        half = limit()
        torch._C._cuda_setMemoryFraction(0.25, 0)
        self.assertEqual(torch._C._cuda_getMemoryFraction(0), 0.25)
        with self.assertRaisesRegex(omniheap.OmniheapError, "the share is not between 0 and 1"):
            torch._C._cuda_setMemoryFraction(1.5, 0)
        self.assertEqual(torch._C._cuda_getMemoryFraction(0), 0.25, "what was refused is not shown")
        _library.set_limit(half)
        torch._C._cuda_setMemoryFraction(0.5, 0)
        self.assertEqual((torch._C._cuda_getMemoryFraction(0), limit()), (0.5, half), "a fraction that leaves the limit as it is")
        _library.set_limit(half // 2)
        with mock.patch.object(self.lib, "omniheap_torch_device_bytes", lambda backend, device: limit() * 5):
            self.assertEqual(torch._C._cuda_getMemoryFraction(0), 0.2, "a limit that was set meanwhile")

    def test_stats_are_whole(self):
        stats = _library.stats()
        for key in ("live_bytes", "reserved_bytes", "peak_reserved_bytes", "driver_calls", "rungs", "limit_bytes"):
            self.assertIn(key, stats)
        self.assertEqual(stats["limit_bytes"], 64 << 20)
        json.dumps(stats)


if __name__ == "__main__":
    unittest.main()

"""Tags on the host backend: what sleeps comes back, and what goes wrong is an exception that says what to do."""

import array
import ctypes
import json
import os
import tempfile
import threading
import types
import unittest
from unittest import mock

import omniheap.torch
from omniheap import OmniheapError, _library, _tags, weights
from on_host import MIB, OnHost, stand_in


class Tensor:
    """As much of a tensor as a sleep to files looks at."""

    dtype = device = None

    def __init__(self, pointer, nbytes):
        self.pointer, self.nbytes, self._version = pointer, nbytes, 0

    def detach(self):
        return self

    def data_ptr(self):
        return self.pointer

    def is_inference(self):
        return False


class Tags(OnHost):
    def take(self, size, value):
        pointer = self.lib.omniheap_torch_alloc(size, 0, None)
        self.assertIsNotNone(pointer)
        ctypes.memset(pointer, value, size)
        self.addCleanup(self.lib.omniheap_torch_free, pointer, size, 0, None)
        return pointer

    def tagged(self, tag, size, value):
        with _tags.tag(tag):
            return self.take(size, value)

    def holds(self, pointer, size, value):
        self.assertEqual(ctypes.string_at(pointer, size), bytes([value]) * size)

    def refuses(self, call, *words):
        with self.assertRaises(OmniheapError) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_what_sleeps_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            for to, place in (("host", "host"), ("disk:" + folder, "disk")):
                pointer, other = self.tagged("back", MIB, 7), self.take(MIB, 8)
                _tags.sleep("back", to=to)
                now = _tags.residence()["back"]
                self.assertEqual((now["asleep"], now["device"], now[place]), (True, 0, MIB))
                self.holds(other, MIB, 8)
                _tags.wake("back")
                self.holds(pointer, MIB, 7)
                self.assertFalse(_tags.residence()["back"]["asleep"])
                self.doCleanups()

    def test_what_sleeps_to_nothing_is_zero(self):
        pointer = self.tagged("nothing", MIB, 7)
        _tags.sleep("nothing", to="nothing")
        self.assertEqual(_tags.residence()["nothing"], {"asleep": True, "device": 0, "host_mapped": 0, "host": 0, "disk": 0, "origin": 0})
        _tags.wake("nothing")
        self.holds(pointer, MIB, 0)

    def test_all_at_once(self):
        pointers = [self.tagged(name, MIB, value) for value, name in enumerate(("one", "two"), 1)]
        self.take(MIB, 3)
        _tags.sleep()
        _tags.sleep()
        self.assertTrue(all(tag["asleep"] and not tag["device"] for tag in _tags.residence().values()))
        _tags.wake()
        _tags.wake()
        for value, pointer in enumerate(pointers, 1):
            self.holds(pointer, MIB, value)

    def test_memory_for_a_sleep_is_taken_ahead(self):
        pointer = self.tagged("ahead", MIB, 5)
        _tags.prepare_sleep("ahead", wait=True)
        _tags.prepare_sleep(4 * MIB, wait=True)
        _tags.prepare_sleep(4 * MIB)
        _tags.sleep("ahead")
        _tags.wake("ahead")
        self.holds(pointer, MIB, 5)
        self.refuses(lambda: _tags.prepare_sleep("never"), "'never'", "number of bytes")
        for wrong in (None, True, -1, 1.5, 1 << 70):
            self.refuses(lambda: _tags.prepare_sleep(wrong), "pass the name of a tag")
        self.refuses(lambda: _tags.prepare_sleep(1 << 60, wait=True), "memory")

    def test_weights_sleep_to_their_file_until_they_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "w.safetensors")
            header = json.dumps({"w": {"dtype": "U8", "shape": [MIB], "data_offsets": [0, MIB]}}).encode()
            with open(path, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + bytes([4]) * MIB)
            tensor = Tensor(self.tagged("file", MIB, 4), MIB)
            torch = types.SimpleNamespace(uint8="uint8", empty=lambda *_, **__: None)
            with weights._File(path) as opened:
                opened.remember(torch, [tensor], array.array("Q", [0, 0, 0]))
            _tags.sleep("file", to="origin")
            self.assertEqual(_tags.residence()["file"]["origin"], MIB)
            then = os.stat(path)
            os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns + 5_000_000_000))
            self.refuses(lambda: _tags.wake("file"), "put it back")
            os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
            os.rename(path, path + ".away")  # The file is open while the tag sleeps.
            _tags.wake("file")
            os.rename(path + ".away", path)
            self.holds(tensor.pointer, MIB, 4)
            ctypes.memset(tensor.pointer, 9, MIB)
            tensor._version += 1
            _tags.sleep("file", to="origin")
            os.remove(path)
            _tags.wake("file")
            self.holds(tensor.pointer, MIB, 9)
            self.assertEqual(weights._loaded, {})

    def test_writes_are_counted_without_the_memory(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        buffer = torch.zeros(1024, dtype=torch.uint8)
        counter = weights._counter(torch, buffer)
        view, version = torch.as_strided(buffer.view(torch.float32), (4, 4), (4, 1), 0), counter._version
        del buffer
        self.assertEqual((counter.untyped_storage().nbytes(), counter._version), (0, version))
        parameter = torch.nn.Parameter(view)
        parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD([parameter], lr=1.0).step()
        self.assertGreater(counter._version, version)

    def test_freed_asleep(self):
        with _tags.tag("freed"):
            pointer = self.lib.omniheap_torch_alloc(MIB, 0, None)
        _tags.sleep("freed")
        self.lib.omniheap_torch_free(pointer, MIB, 0, None)
        self.assertEqual(_tags.residence()["freed"]["host"], 0)
        _tags.wake("freed")

    def test_misuse(self):
        self.refuses(lambda: _tags.sleep("never"), "'never'".replace("'", '"'), "the tags are")
        pointer = self.tagged("used", MIB, 5)
        self.refuses(lambda: _tags.wake("used"), "awake already")
        self.refuses(lambda: _tags.sleep("used", to="moon"), "choose", "nothing")
        self.refuses(lambda: _tags.sleep("used", to=7), "choose")
        self.refuses(lambda: _tags.sleep("used", to="disk:/no/such/folder"), "/no/such/folder")
        self.refuses(lambda: _tags.sleep("used", device=99), "sleep")
        for name in ("", None, 7, "a\0b"):
            self.refuses(lambda: _tags.tag(name).__enter__(), "not empty")
        _tags.sleep("used")
        self.refuses(lambda: _tags.sleep("used"), "asleep already", "wake")
        with _tags.tag("used"):
            self.refuses(lambda: _tags.tag("inner").__enter__(), "one tag", "leave")
            self.assertIsNone(self.lib.omniheap_torch_segment(MIB, 0, None))
            self.assertIn('omniheap.torch.wake("used")', _library.load().omniheap_torch_error().decode())
        _tags.wake("used")
        self.holds(pointer, MIB, 5)
        self.assertIsNone(_tags.current())

    def test_an_exception_leaves_the_tag(self):
        with self.assertRaises(ZeroDivisionError):
            with _tags.tag("left"):
                1 / 0
        self.assertIsNone(_tags.current())
        self.tagged("left", MIB, 1)

    def test_a_tag_is_the_threads_own(self):
        with _tags.tag("mine"):
            seen = []
            other = threading.Thread(target=lambda: seen.append((_tags.current(), self.tagged("theirs", MIB, 2))))
            other.start()
            other.join()
        self.assertEqual(seen[0][0], None)
        self.assertNotIn("mine", _tags.residence(), "nothing was allocated in it")

    def test_outside_of_a_tag_for_a_while(self):
        with _tags.tag("outer"):
            with _tags.no_tag():
                self.assertIsNone(_tags.current())
                self.tagged("other", MIB, 1)
            self.assertEqual(_tags.current(), "outer")
        with _tags.no_tag():
            self.assertIsNone(_tags.current())

    def test_a_wake_without_room_is_pytorchs_exception(self):
        class OutOfMemoryError(RuntimeError):
            pass

        pointer = self.tagged("large", 40 * MIB, 6)
        _tags.sleep("large")
        taken = self.take(40 * MIB, 1)
        torch = types.ModuleType("torch")
        torch.OutOfMemoryError = OutOfMemoryError
        torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)
        stand_in(self, {"torch": torch})
        with self.assertRaises(OutOfMemoryError) as caught:
            _tags.wake("large")
        self.assertIn("stays asleep", str(caught.exception))
        self.holds(taken, 40 * MIB, 1)
        self.assertEqual(_tags.residence()["large"]["host"], 40 * MIB)
        self.lib.omniheap_torch_free(taken, 40 * MIB, 0, None)
        _tags.wake("large")
        self.holds(pointer, 40 * MIB, 6)

    def test_a_wake_without_room_takes_host_memory_where_it_may(self):
        stand_in(self, {"torch": None})
        pointer = self.tagged("mapped", 40 * MIB, 7)
        _tags.sleep("mapped")
        taken = self.take(40 * MIB, 1)
        self.refuses(lambda: _tags.wake("mapped", host_mapped=MIB), "stays asleep")
        for wrong in (-1, "many", 1.5, True):
            self.refuses(lambda: _tags.wake("mapped", host_mapped=wrong), "host_mapped is no size")
        _tags.wake("mapped", host_mapped="1GiB")
        now = _tags.residence()["mapped"]
        self.assertFalse(now["asleep"])
        self.assertGreaterEqual(now["host_mapped"], 16 * MIB)
        self.holds(pointer, 40 * MIB, 7)
        self.lib.omniheap_torch_free(taken, 40 * MIB, 0, None)
        _tags.sleep("mapped")
        _tags.wake("mapped", host_mapped=MIB)
        self.assertEqual(_tags.residence()["mapped"]["host_mapped"], 0)
        self.holds(pointer, 40 * MIB, 7)

    def test_before_enable(self):
        earlier, _library._enabled = _library._enabled, None
        self.addCleanup(setattr, _library, "_enabled", earlier)
        for call in (_tags.sleep, _tags.wake, _tags.residence, lambda: _tags.tag("x").__enter__()):
            self.refuses(call, "enable()")
        self.refuses(lambda: omniheap.torch.tag("x"), "enable()")

    def test_the_workspace_of_a_stream_is_made_before_its_tag(self):
        made = []
        torch = types.ModuleType("torch")
        torch.cuda = types.SimpleNamespace(
            is_current_stream_capturing=lambda: False, is_initialized=lambda: True, current_blas_handle=lambda: made.append(_tags.current())
        )
        stand_in(self, {"torch": torch})
        with mock.patch.object(omniheap.torch, "_allocator", "the host's"):
            with omniheap.torch.tag("workspaces"):
                self.assertEqual((made, _tags.current()), ([None], "workspaces"))
            torch.cuda.is_current_stream_capturing = lambda: True
            with omniheap.torch.tag("workspaces"):
                self.assertEqual(made, [None], "a capture has its own")

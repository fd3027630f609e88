"""The calls of torch_memory_saver on the host backend."""

import contextlib
import types
import unittest

from omniheap import OmniheapError, _library, _tags
from omniheap.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver
from on_host import MIB, WithTags


class Saver(WithTags):
    def test_content_is_dropped_without_a_backup(self):
        with torch_memory_saver.region("mixed"):
            dropped = self.take(1)
        with torch_memory_saver.region("mixed", enable_cpu_backup=True):
            kept = self.take(2)
        torch_memory_saver.pause("mixed")
        asleep = dict(sorted((name, now) for name, now in _tags.residence().items() if name.startswith("mixed")))
        self.assertEqual([now["asleep"] for now in asleep.values()], [True, True])
        self.assertEqual([now["host"] for now in asleep.values()], [MIB, 0])
        torch_memory_saver.resume("mixed")
        self.holds(dropped, 0)
        self.holds(kept, 2)

    def test_tags_are_apart_and_none_is_all(self):
        pointers = {}
        for value, tag in enumerate(("a", "b"), 1):
            with torch_memory_saver.region(tag, enable_cpu_backup=True):
                pointers[value] = self.take(value)
        torch_memory_saver.pause("a")
        self.holds(pointers[2], 2)
        torch_memory_saver.pause()
        self.assertTrue(_tags.residence()["b"]["asleep"])
        torch_memory_saver.resume()
        for value, pointer in pointers.items():
            self.holds(pointer, value)

    def test_misuse_raises_and_changes_nothing(self):
        with torch_memory_saver.region("twice", enable_cpu_backup=True):
            pointer = self.take(3)
            with self.assertRaises(OmniheapError):
                with torch_memory_saver.region("inner"):
                    pass
        calls = [lambda: torch_memory_saver.resume("twice")]
        for call in calls:
            self.assertRaises(OmniheapError, call)
        torch_memory_saver.pause("twice")
        with self.assertRaises(OmniheapError) as caught:
            torch_memory_saver.pause("twice")
        self.assertIn("paused already", str(caught.exception))
        torch_memory_saver.resume("twice")
        self.holds(pointer, 3)
        torch_memory_saver.pause("a tag without memory")
        torch_memory_saver.resume("a tag without memory")

        def disable():
            with torch_memory_saver.disable():
                pass

        def set_attribute(name, value):
            setattr(torch_memory_saver, name, value)

        for call in (disable, lambda: torch_memory_saver.get_cpu_backup(None), lambda: torch_memory_saver.pause(7), lambda: set_attribute("hook_mode", "magic"), lambda: set_attribute("retain_cpu_backup", False)):
            self.assertRaises(OmniheapError, call)

    def test_disable_leaves_the_region_for_a_while(self):
        with torch_memory_saver.region("left", enable_cpu_backup=True):
            inside = self.take(4)
            with torch_memory_saver.disable():
                outside = self.take(5)
        torch_memory_saver.pause("left")
        self.assertEqual(_tags.residence()["left"]["host"], MIB, "one of the two")
        self.holds(outside, 5)
        torch_memory_saver.resume("left")
        self.holds(inside, 4)

    def test_a_graph_is_captured_in_the_tag(self):
        seen = []

        @contextlib.contextmanager
        def graph(graph, **options):
            seen.append((graph, options, _tags.current()))
            yield

        self.torch.cuda.graph = graph
        with torch_memory_saver.cuda_graph("graph", pool=1, tag="graphs"):
            seen.append(_tags.current())
        options = {"pool": 1, "stream": None, "capture_error_mode": "global"}
        self.assertEqual(seen, [("graph", options, None), "graphs (no backup)"])

    def test_what_programs_look_at(self):
        saver = TorchMemorySaver()
        saver.hook_mode, saver.retain_cpu_backup = "torch", True
        self.assertTrue(saver.enabled)
        with configure_subprocess():
            pass

    def test_a_margin_is_a_limit(self):
        properties = types.SimpleNamespace(total_memory=64 * MIB)
        self.torch.cuda.get_device_properties = lambda device: properties
        torch_memory_saver.memory_margin_bytes = 16 * MIB
        self.addCleanup(_library.set_limit, "64MiB")
        self.assertEqual(_library.stats()["limit_bytes"], 48 * MIB)
        for wrong in (-1, 64 * MIB, "1GiB", True):
            with self.assertRaises(OmniheapError):
                torch_memory_saver.memory_margin_bytes = wrong

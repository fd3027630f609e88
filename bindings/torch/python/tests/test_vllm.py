"""vLLM's sleep mode on the host backend, with modules that stand in for vLLM's."""

import importlib
import importlib.metadata
import os
import sys
import types
import unittest
from unittest import mock

import omniheap.torch
from omniheap import OmniheapError, _tags
from on_host import MIB, WithTags, stand_in


def vllm_modules():
    """vLLM's modules as far as its worker and plug-ins meet: a registry by name, a base class, and who asks for an allocator."""

    class SleepModeBackend:
        def __init__(self):
            self._state = "RUNNING"

        def state(self):
            return self._state

        @classmethod
        def is_supported(cls):
            return True

    class SleepModeBackendFactory:
        registry = {}

        @classmethod
        def register_backend(cls, name, module_path, class_name):
            if name in cls.registry:
                raise ValueError(f"{name} is already registered")
            cls.registry[name] = (module_path, class_name)

        @classmethod
        def create_backend(cls, name):
            module, of = cls.registry[name]
            return getattr(importlib.import_module(module), of)()

    vllm, allocator, backend = (types.ModuleType(name) for name in ("vllm", "vllm.device_allocator", "vllm.device_allocator.sleep_mode_backend"))
    vllm.device_allocator, allocator.sleep_mode_backend = allocator, backend
    allocator.get_mem_allocator_instance = None
    backend.SleepModeBackend, backend.SleepModeBackendFactory = SleepModeBackend, SleepModeBackendFactory
    return {module.__name__: module for module in (vllm, allocator, backend)}


class Vllm(WithTags):
    def setUp(self):
        super().setUp()
        self.modules = vllm_modules()
        self.factory = self.modules["vllm.device_allocator.sleep_mode_backend"].SleepModeBackendFactory
        stand_in(self, self.modules)
        self.start(mock.patch.dict(os.environ, OMNIHEAP_VLLM="1"))
        sys.modules.pop("omniheap.vllm", None)
        self.plugin = importlib.import_module("omniheap.vllm")

    def allocator(self):
        return self.modules["vllm.device_allocator"].get_mem_allocator_instance()

    def take_in(self, tag, value):
        with self.allocator().use_memory_pool(tag=tag):
            return self.take(value)

    def asleep(self, *tags):
        now = _tags.residence()
        return [now[tag]["asleep"] for tag in tags]

    def serve(self):
        """As vLLM's worker does: plug-ins, weights, cache, backend by name."""
        self.plugin.register()
        self.plugin.register()
        weights, cache = self.take_in("weights", 7), self.take_in("kv_cache", 8)
        return self.factory.create_backend("omniheap"), weights, cache

    def test_the_package_says_where_the_plug_in_is(self):
        try:
            package = importlib.metadata.distribution("omniheap")
        except importlib.metadata.PackageNotFoundError:
            self.skipTest("the package is not installed here")
        found = [point.value for point in package.entry_points if point.group == "vllm.general_plugins"]
        self.assertEqual(found, ["omniheap.vllm:register"])

    def test_level_1_keeps_the_weights_and_drops_the_cache(self):
        backend, weights, cache = self.serve()
        self.assertGreaterEqual(self.allocator().get_current_usage(), 2 * MIB)
        backend.suspend(level=1)
        self.assertEqual((backend.state(), self.asleep("weights", "kv_cache")), ("SUSPENDED", [True, True]))
        self.assertEqual(self.allocator().get_current_usage(), 0)
        backend.resume(tags="kv_cache, weights")
        self.assertEqual(self.asleep("weights", "kv_cache"), [True, True], "a text is one name")
        backend.resume(tags="weights")
        self.assertEqual(self.asleep("weights", "kv_cache"), [False, True])
        backend.suspend(level=1)
        backend.resume(tags=["weights"])
        self.assertEqual(self.asleep("weights", "kv_cache"), [False, True])
        self.holds(weights, 7)
        backend.resume()
        self.assertEqual(backend.state(), "RUNNING")
        self.holds(cache, 0)

    def test_level_2_keeps_nothing_and_discard_what_it_is_not_told_of(self):
        backend, weights, cache = self.serve()
        backend.discard(("kv_cache",))
        self.assertEqual(self.asleep("weights", "kv_cache"), [False, True])
        self.holds(weights, 7)
        backend.suspend(level=2)
        backend.resume()
        self.holds(weights, 0)
        self.holds(cache, 0)

    def test_weights_come_back_where_the_cache_cannot_be_dropped(self):
        backend, weights, cache = self.serve()
        sleep = _tags.sleep

        def refuse(tag, to):
            if to == "nothing":
                raise OmniheapError("pinned")
            sleep(tag, to=to)

        with mock.patch.object(_tags, "sleep", refuse), self.assertRaises(OmniheapError):
            backend.suspend()
        self.assertEqual((backend.state(), self.asleep("weights", "kv_cache")), ("RUNNING", [False, False]))
        self.holds(weights, 7)
        self.holds(cache, 8)

    def test_pools_in_pools_are_tags_one_after_the_other(self):
        self.plugin.register()
        with self.allocator().use_memory_pool("weights"):
            inner = self.take_in("kv_cache", 5)
            self.assertEqual(_tags.current(), "weights")
        self.factory.create_backend("omniheap").discard("kv_cache")
        self.factory.create_backend("omniheap").resume()
        self.holds(inner, 0)

    def test_without_the_variable_vllm_allocates_by_itself(self):
        os.environ["OMNIHEAP_VLLM"] = "0"
        self.plugin.register()
        self.assertIsNone(self.modules["vllm.device_allocator"].get_mem_allocator_instance)
        with mock.patch.object(omniheap.torch, "_allocator", None), self.assertRaisesRegex(OmniheapError, "OMNIHEAP_VLLM=1"):
            self.factory.create_backend("omniheap")

    def test_a_vllm_without_names_is_left_alone(self):
        stand_in(self, {"vllm.device_allocator.sleep_mode_backend": None})
        sys.modules.pop("omniheap.vllm")
        importlib.import_module("omniheap.vllm").register()
        self.assertIsNone(self.modules["vllm.device_allocator"].get_mem_allocator_instance)


if __name__ == "__main__":
    unittest.main()

"""For tests on the host backend: memory of the library through ctypes, and a stand-in for PyTorch where tags ask for one."""

import ctypes
import sys
import types
import unittest
from unittest import mock

import omniheap.torch
from omniheap import _library, _tags

MIB = 1 << 20


def stand_in(test, modules):
    """Lets modules stand for those of these names until a test ends. What is imported meanwhile stays: PyTorch ends a process that imports it twice."""
    earlier = {name: sys.modules[name] for name in modules if name in sys.modules}
    test.addCleanup(sys.modules.update, earlier)
    for name in modules:
        test.addCleanup(sys.modules.pop, name, None)
    sys.modules.update(modules)


class OnHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        _library.configure("host", "64MiB", True)
        cls.lib = _library.load()


class WithTags(OnHost):
    """As if PyTorch allocated through omniheap."""

    def setUp(self):
        cuda = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: True, current_device=lambda: 0)
        self.torch = types.ModuleType("torch")
        self.torch.cuda = cuda
        self.start(mock.patch.object(omniheap.torch, "_allocator", "the host's"))
        stand_in(self, {"torch": self.torch})
        self.addCleanup(_tags.wake)

    def start(self, patch):
        patch.start()
        self.addCleanup(patch.stop)

    def take(self, value):
        pointer = self.lib.omniheap_torch_alloc(MIB, 0, None)
        ctypes.memset(pointer, value, MIB)
        self.addCleanup(self.lib.omniheap_torch_free, pointer, MIB, 0, None)
        return pointer

    def holds(self, pointer, value):
        self.assertEqual(ctypes.string_at(pointer, MIB), bytes([value]) * MIB)

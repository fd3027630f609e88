"""Checkpoints of graph pools through PyTorch's own C++ code, on the host backend: no GPU is needed, but a PyTorch with CUDA is."""

import ctypes
import importlib.util
import json
import unittest

import omniheap.torch
from omniheap import OmniheapError, _library, _pools
from on_host import MIB, OnHost

POOL = (0, 7)
_HAS_TORCH = importlib.util.find_spec("torch") is not None

if _HAS_TORCH:
    import torch


@unittest.skipUnless(_HAS_TORCH and torch.version.cuda, "needs a PyTorch that was built with CUDA")
class Checkpoints(OnHost):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), "omniheap_torch_alloc", "omniheap_torch_free")
        for setter, function in omniheap.torch._HOOKS:
            getattr(allocator.allocator(), setter)(_library.address(function))
        torch.cuda.memory.change_current_allocator(allocator)
        cls.allocator = allocator
        _library.check(cls.lib.omniheap_torch_attach())
        _pools.install(torch)

    def setUp(self):
        # One user that stays, as a graph would be.
        self.lib.omniheap_torch_hold_pool(0, *POOL, 0)
        self.addCleanup(torch._C._cuda_releasePool, 0, POOL)

    def take(self, size):
        """Allocates in the pool."""
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, POOL)
        try:
            return self.lib.omniheap_torch_alloc(size, 0, None)
        finally:
            torch._C._cuda_endAllocateToPool(0, POOL)
            torch._C._cuda_releasePool(0, POOL)

    def storage(self, address, size):
        """Returns what a replayed graph gives out: bytes that nobody frees."""
        return torch._C._construct_storage_from_data_pointer(address, torch.device("cuda:0"), size)

    def live(self):
        segments = [one for one in json.loads(self.lib.omniheap_torch_segments(0)) if tuple(one["segment_pool_id"]) == POOL]
        blocks = [block for one in segments for block in one["blocks"]]
        return {block["address"] for block in blocks if block["state"] == "active_allocated"}

    def delete(self, *addresses):
        for address in addresses:
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)

    def test_what_lived_lives_again_at_its_place(self):
        lived = [self.take(size) for size in (700, 3 * MIB, 4096)]
        state = torch._C._cuda_getCheckpointState(0, POOL)
        self.delete(*lived)
        self.assertEqual(self.live(), set())
        self.assertEqual(self.take(700), lived[0], "a branch uses the bytes")
        self.delete(lived[0])
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
        self.assertEqual(self.live(), set(lived))
        self.delete(*lived)
        self.assertEqual(self.live(), set())
        with self.assertRaisesRegex(RuntimeError, "Trying to free a pointer not allocated here"):
            self.delete(lived[0])

    def test_tensors_own_what_they_are_given_back(self):
        lived = [self.take(MIB) for _ in range(3)]
        state = torch._C._cuda_getCheckpointState(0, POOL)
        self.delete(*lived)
        replayed = [self.storage(address, MIB) for address in lived]
        torch._C._cuda_setCheckpointPoolState(0, state, [], [one._cdata for one in replayed[:2]])
        self.assertTrue(torch._C._has_Standard_Deleter(replayed[0]._cdata))
        self.assertFalse(torch._C._has_Standard_Deleter(replayed[2]._cdata))
        del replayed[0]
        self.assertEqual(self.live(), set(lived[1:]))
        replayed.clear()
        self.assertEqual(self.live(), {lived[2]}, "nobody was told that this one is a tensor's")
        self.delete(lived[2])

    def test_what_lives_on_keeps_its_place(self):
        kept, dead = self.take(MIB), self.take(MIB)
        state = torch._C._cuda_getCheckpointState(0, POOL)
        self.delete(dead)
        ctypes.memset(kept, 7, MIB)
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
        self.assertEqual(ctypes.string_at(kept, MIB), b"\x07" * MIB)
        self.delete(kept, dead)

    @unittest.skipIf(_HAS_TORCH and torch.cuda.is_available(), "a GPU is there")
    def test_without_a_gpu_an_allocation_says_so(self):
        with self.assertRaisesRegex(RuntimeError, "cudaGetDevice failed with code"):
            torch._C._cuda_cudaCachingAllocator_raw_alloc(512, 0)

    def test_what_is_not_there_is_said(self):
        with self.assertRaisesRegex(OmniheapError, "the pool is not there any more"):
            torch._C._cuda_getCheckpointState(0, (0, 8))
        with self.assertRaisesRegex(RuntimeError, "no checkpoint of omniheap was chosen"):
            torch._C._cuda_setCheckpointPoolState.__wrapped__(0, None, [], [])
        state = torch._C._cuda_getCheckpointState(0, POOL)
        state.number += 100
        with self.assertRaisesRegex(OmniheapError, "there is no checkpoint"):
            torch._C._cuda_setCheckpointPoolState(0, state, [], [])


if __name__ == "__main__":
    unittest.main()

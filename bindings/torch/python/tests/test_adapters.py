"""Numba, Warp, RMM and ONNX Runtime on the host backend: with stand-ins of what each one calls, and with Numba and Warp themselves where they are."""

import ctypes
import gc
import importlib
import importlib.util
import os
import sys
import threading
import types
import unittest
import weakref
from unittest import mock

import omniheap.onnxruntime
import omniheap.rmm
import omniheap.warp
from omniheap import OmniheapError, _library
from on_host import OnHost, stand_in
from test_package import child

MIB = 1 << 20


def live(device=0):
    return _library.stats(device)["live"]


class Shared(OnHost):
    """Tests of the functions that all adapters call."""

    def test_sizes(self):
        self.assertEqual((_library.allocate(0, 0), _library.allocate(0, 0, 7)), (0, 0))
        for size in (1 << 40, 1 << 63, 1 << 64, 1 << 100):
            for stream in (None, 7):
                with self.assertRaisesRegex(MemoryError, "out of memory"):
                    _library.allocate(size, 0, stream)
        for size in (-1, 1.5, True, "1MiB", None):
            with self.assertRaisesRegex(OmniheapError, "whole number"):
                _library.allocate(size, 0)
        with self.assertRaisesRegex(OmniheapError, "device 63 cannot be opened"):
            _library.allocate(1, 63)

    def test_what_is_not_ours(self):
        pointer = _library.allocate(MIB, 0, 3)
        _library.free(pointer, 0, 5)
        for wrong in (pointer, 4096):
            with self.assertRaisesRegex(OmniheapError, "freed twice, or not ours"):
                _library.free(wrong, 0, 3)
        _library.free(0, 0, 3)

    def test_before_it_is_enabled(self):
        with mock.patch.object(_library, "_enabled", None), self.assertRaisesRegex(OmniheapError, "not enabled; call"):
            _library.allocate(1, 0)

    def test_no_library(self):
        for module, call in (("warp", "Allocator(device).allocate(1)"), ("rmm", "resource()"), ("onnxruntime", "options()")):
            code = f"""
import sys, types
sys.modules["rmm"] = types.SimpleNamespace(mr=types.SimpleNamespace(CallbackMemoryResource=None))
import omniheap.{module} as it
from omniheap import _library
device = types.SimpleNamespace(ordinal=0, stream=types.SimpleNamespace(cuda_stream=None))
try:
    _library.join("cuda")
    it.{call}
except it.OmniheapError as error: print(error)"""
            self.assertIn("unset it, or set it to the built library", child(code, OMNIHEAP_LIBRARY="/no/such/file.so"), module)

    def test_headers_lie_in_the_package(self):
        folder = os.path.join(omniheap.__path__[0], "include")
        self.assertEqual(sorted(os.listdir(folder)), ["omniheap_rmm.hpp", "omniheap_streams.h", "omniheap_tensorrt.hpp"])

    def test_the_page(self):
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../docs/adapters.md")
        with open(page, encoding="utf-8") as file:
            program = file.read().split("```python\n")[1].split("```")[0]
        self.assertEqual(child(program), "4096\n")

    def test_no_gpu(self):
        code = """
from omniheap import _library
_library.join("cuda")
try: _library.allocate(1, 0)
except _library.OmniheapError as error: print(error)"""
        if not os.path.exists("/dev/nvidiactl"):
            self.assertIn("device 0 cannot be opened", child(code))

    def test_threads(self):
        before = live()

        def work(own):
            for number in range(200):
                pointer = _library.allocate(1 + 977 * number, 0, own)
                ctypes.memset(pointer, own or 0, 1)
                self.assertEqual(ctypes.string_at(pointer, 1), bytes([own or 0]))
                _library.free(pointer, 0, own)

        threads = [threading.Thread(target=work, args=(own,)) for own in (None, 1, 2, None)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(live(), before)


class OnnxRuntime(OnHost):
    def provider(self, **options):
        """Returns the provider's functions from its options, where addresses are decimal numbers."""
        made = omniheap.onnxruntime.options(**options)
        self.assertTrue(all(isinstance(value, str) for value in made.values()), made)
        function = lambda result, arguments, name: ctypes.CFUNCTYPE(result, *arguments)(int(made[f"gpu_external_{name}"]))
        alloc = function(ctypes.c_void_p, [ctypes.c_size_t], "alloc")
        return alloc, function(None, [ctypes.c_void_p], "free"), function(None, [], "empty_cache"), made

    def test_the_provider_calls_them(self):
        before = [live(0), live(1)]
        alloc, free, empty, made = self.provider()
        second = self.provider(device=1)[0]
        self.assertEqual(made["device_id"], "0")
        self.assertNotIn("user_compute_stream", made)
        held = [alloc(MIB), alloc(1), second(MIB)]
        ctypes.memset(held[0], 7, MIB)
        self.assertEqual(ctypes.string_at(held[0], MIB), b"\7" * MIB)
        self.assertEqual([live(0) - before[0], live(1) - before[1]], [2, 1])
        [free(pointer) for pointer in held]
        empty()
        self.assertEqual([live(0), live(1)], before)
        self.assertIsNone(alloc(0))
        self.assertIsNone(alloc(1 << 63))
        self.assertIn("out of memory", omniheap.onnxruntime.explain_oom())
        # No allocation has this address. The provider's hook cannot report that.
        free(held[0]), free(4096), free(None)

    def test_a_stream_of_its_own(self):
        alloc, free, _, made = self.provider(stream=0x700)
        self.assertEqual(made["user_compute_stream"], str(0x700))
        self.assertEqual(self.provider(stream=0x700)[3], made)
        self.assertNotEqual(self.provider()[3]["gpu_external_alloc"], made["gpu_external_alloc"])
        first = alloc(4 * MIB)
        free(first)
        again = alloc(4 * MIB)
        self.assertEqual(again, first, "in the order of its stream at once")
        free(again)

    def test_what_is_wrong(self):
        for wrong, words in (({"device": -1}, "device is -1"), ({"device": 64}, "64 at most"), ({"device": "cuda:0"}, "whole number"), ({"device": 63}, "device: "), ({"stream": True}, "stream is True")):
            with self.assertRaisesRegex(OmniheapError, words):
                omniheap.onnxruntime.options(**wrong)


class Warp(OnHost):
    """Warp's allocator protocol. A device has the fields that allocators read."""

    def device(self, stream=None):
        return types.SimpleNamespace(ordinal=0, is_cuda=True, stream=types.SimpleNamespace(cuda_stream=stream))

    def test_arrays(self):
        before, device = live(), self.device()
        allocator = omniheap.warp.Allocator(device)
        pointer = allocator.allocate(size_in_bytes=MIB)
        ctypes.memset(pointer, 7, MIB)
        # The program goes on with another stream.
        device.stream.cuda_stream = 5
        allocator.deallocate(ptr=pointer, size_in_bytes=MIB)
        self.assertEqual((live(), allocator.allocate(0)), (before, 0))
        allocator.deallocate(0, 0)
        with self.assertRaisesRegex(OmniheapError, "freed twice"):
            allocator.deallocate(pointer, MIB)
        with self.assertRaises(MemoryError):
            allocator.allocate(1 << 63)

    def test_each_device_has_one(self):
        devices, chosen = [self.device(), self.device(9)], {}
        warp = types.SimpleNamespace(get_cuda_devices=lambda: devices, set_device_allocator=lambda device, it: chosen.update({id(device): it}))
        stand_in(self, {"warp": warp})
        omniheap.warp.enable()
        self.assertEqual([chosen[id(device)]._device for device in devices], devices)

    def test_what_is_wrong(self):
        blind = types.SimpleNamespace(get_cuda_devices=lambda: [], set_device_allocator=None)
        for module, words in ((None, "pip install warp-lang"), (types.SimpleNamespace(__version__="1.12"), "1.12 takes no allocator"), (blind, "sees no GPU")):
            stand_in(self, {"warp": module})
            with self.assertRaisesRegex(OmniheapError, words):
                omniheap.warp.enable()

    @unittest.skipUnless(importlib.util.find_spec("warp"), "Warp is not here")
    def test_warp_itself_takes_it(self):
        import warp

        allocator = omniheap.warp.Allocator(self.device())
        self.assertIsInstance(allocator, warp.Allocator)
        warp._src.context._validate_allocator(allocator)


class Rmm(OnHost):
    def setUp(self):
        stream = lambda handle: types.SimpleNamespace(__cuda_stream__=lambda: (0, handle))
        self.streams = stream(0), stream(9)
        self.chosen = {}
        resource = lambda allocate, deallocate: types.SimpleNamespace(allocate=allocate, deallocate=deallocate)
        self.mr = types.SimpleNamespace(CallbackMemoryResource=resource, set_per_device_resource=self.chosen.__setitem__)
        stand_in(self, {"rmm": types.SimpleNamespace(mr=self.mr, __version__="26.08")})

    def test_a_resource(self):
        before, made = live(), omniheap.rmm.resource()
        default, other = self.streams
        pointer = made.allocate(MIB, default)
        ctypes.memset(pointer, 7, MIB)
        made.deallocate(pointer, MIB, other)
        self.assertEqual((live(), made.allocate(0, other)), (before, 0))
        # RMM would end the process if that raised.
        made.deallocate(pointer, MIB, default)
        self.assertEqual(live(), before)
        with self.assertRaises(MemoryError):
            made.allocate(1 << 63, default)

    def test_each_device_has_one(self):
        count = [(0, 2)]
        runtime = types.ModuleType("cuda.bindings.runtime")
        runtime.cudaGetDeviceCount = lambda: count[0]
        bindings = types.ModuleType("cuda.bindings")
        bindings.runtime = runtime
        stand_in(self, {"cuda": types.ModuleType("cuda"), "cuda.bindings": bindings, "cuda.bindings.runtime": runtime})
        omniheap.rmm.enable()
        before = live(1)
        pointer = self.chosen[1].allocate(MIB, self.streams[0])
        self.assertEqual((sorted(self.chosen), live(1)), ([0, 1], before + 1))
        self.chosen[1].deallocate(pointer, MIB, self.streams[0])
        for count[0] in ((100, 0), (0, 0)):
            with self.assertRaisesRegex(OmniheapError, "sees no GPU"):
                omniheap.rmm.enable()

    def test_what_is_wrong(self):
        for module, words in ((None, "install rmm-cu13"), (types.SimpleNamespace(mr=types.SimpleNamespace(), __version__="0.10"), "RMM 0.10 has no")):
            stand_in(self, {"rmm": module})
            with self.assertRaisesRegex(OmniheapError, words):
                omniheap.rmm.resource()


@unittest.skipUnless(importlib.util.find_spec("rmm"), "RMM is not here")
class RmmItself(OnHost):
    def test_its_resource_calls_ours(self):
        try:
            from rmm.pylibrmm.stream import DEFAULT_STREAM
        except Exception as error:
            self.skipTest(f"RMM cannot be imported: {error}")
        before, made = live(), omniheap.rmm.resource()
        pointer = made.allocate(MIB, DEFAULT_STREAM)
        ctypes.memset(pointer, 7, MIB)
        self.assertEqual(live(), before + 1)
        made.deallocate(pointer, MIB, DEFAULT_STREAM)
        self.assertEqual(live(), before)
        with self.assertRaisesRegex(MemoryError, "out of memory"):
            made.allocate(1 << 63, DEFAULT_STREAM)


class _Pointer:
    """Numba's pointers, as far as their life goes."""

    def __init__(self, context, pointer, size, owner=None, finalizer=None):
        self.handle, self.size, self._finalizer = pointer.value, size, weakref.finalize(self, finalizer)


class _Manager:
    def __init__(self, *args, context):
        self.context, self.was_reset = context, False

    def reset(self):
        self.was_reset = True


class _ApiError(Exception):
    def __init__(self, code, msg):
        super().__init__(code, msg)
        self.code = code


def numba_modules():
    """Modules that stand for Numba's, which is not here."""
    ipc = type("GetIpcHandleMixin", (), {"get_ipc_handle": lambda self, memory: "a handle"})
    driver = types.SimpleNamespace(CudaAPIError=_ApiError, driver=types.SimpleNamespace(cuMemGetInfo=None))
    info = lambda free, total: types.SimpleNamespace(free=free, total=total)
    cuda = types.ModuleType("numba.cuda")
    vars(cuda).update(GetIpcHandleMixin=ipc, HostOnlyCUDAMemoryManager=_Manager, MemoryPointer=_Pointer, MemoryInfo=info, set_memory_manager=None)
    cudadrv, package = types.ModuleType("numba.cuda.cudadrv"), types.ModuleType("numba")
    cudadrv.driver, package.cuda = driver, cuda
    return {"numba": package, "numba.cuda": cuda, "numba.cuda.cudadrv": cudadrv, "numba.cuda.cudadrv.driver": driver}


class Context:
    """A context of Numba, to which pointers have weak references."""

    device = types.SimpleNamespace(id=0)


class Numba(OnHost):
    def setUp(self):
        try:
            importlib.import_module("numba.cuda")
        except Exception:
            # Not here, or without CUDA's libraries.
            stand_in(self, numba_modules())
        self.addCleanup(sys.modules.pop, "omniheap.numba", None)
        self.module = importlib.import_module("omniheap.numba")
        self.context = Context()

    def manager(self):
        made = self.module._numba_memory_manager(context=self.context)
        made.initialize()
        return made

    def test_arrays(self):
        before, manager = live(), self.manager()
        self.assertEqual(manager.interface_version, 1)
        held = [manager.memalloc(MIB), manager.memalloc(1)]
        address = int(held[0].handle)
        ctypes.memset(address, 7, MIB)
        self.assertEqual((live() - before, held[0].size), (2, MIB))
        del held
        gc.collect()
        self.assertEqual(live(), before)
        self.assertFalse(manager._live)

    def test_a_reset_frees_what_lives_once(self):
        # Numba makes one without a context to ask for its version, and may reset one that was never initialised.
        self.module.MemoryManager(context=None).reset()
        before, manager = live(), self.manager()
        array = manager.memalloc(MIB)
        manager.reset()
        self.assertEqual(live(), before)
        other = manager.memalloc(MIB)
        del array
        gc.collect()
        self.assertEqual(live(), before + 1, "the finalizer of what was reset frees nothing")
        del other

    def test_a_shortage_is_numbas_own(self):
        error = self.module._driver.CudaAPIError
        for size in (1 << 40, 1 << 63):
            with self.assertRaisesRegex(error, "out of memory") as caught:
                self.manager().memalloc(size)
            self.assertEqual(caught.exception.code, 2)

    def test_figures_and_handles(self):
        manager = self.manager()
        with mock.patch.object(self.module._driver, "driver", types.SimpleNamespace(cuMemGetInfo=lambda: (7, 64 * MIB))):
            info = manager.get_memory_info()
        self.assertEqual((info.free - _library.stats()["free_bytes"], info.total), (7, 64 * MIB))
        with self.assertRaisesRegex(OmniheapError, "paged=False"):
            manager.get_ipc_handle(None)

    def test_it_is_chosen(self):
        with mock.patch.object(self.module._cuda, "set_memory_manager") as chosen:
            self.module.enable()
        chosen.assert_called_once_with(self.module.MemoryManager)

    def test_without_numba(self):
        stand_in(self, {"numba": None})
        sys.modules.pop("omniheap.numba")
        with self.assertRaisesRegex(OmniheapError, "pip install numba-cuda"):
            importlib.import_module("omniheap.numba")


if __name__ == "__main__":
    unittest.main()

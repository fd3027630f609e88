"""Memory that kernels take inside of operators: measured around each of them, kept in a file, added to fake steps."""

import contextlib
import importlib.util
import json
import os
import tempfile
import types
import unittest
import warnings
from unittest import mock

import omniheap.fit
from omniheap import OmniheapError
from omniheap.fit import _kernels, _upstream, _workspaces
from omniheap.fit._devices import Gpu
from omniheap.fit._ledger import Ledger
from omniheap.fit._workspaces import Workspaces

_HAS_TORCH = importlib.util.find_spec("torch") is not None
_MIB = 1 << 20
_H200 = Gpu("NVIDIA H200")


class Tensor:
    """Stand-in for the parts of a tensor that a key is made of."""

    def __init__(self, *shape, dtype="torch.float32"):
        self.shape, self.dtype = shape, dtype

    def numel(self):
        product = 1
        for size in self.shape:
            product *= size
        return product

    def element_size(self):
        return 4


def convolution(batch, channels=64):
    return [Tensor(batch, 3, 32, 32), Tensor(channels, 3, 3, 3)]


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "workspaces.json")

    def known(self, *calls, device="NVIDIA H200", torch="2.11", kept_bytes=(0, 0), fixed_bytes=0):
        workspaces = Workspaces(device, torch, kept_bytes, fixed_bytes)
        for tensors, taken in calls:
            taken = taken if isinstance(taken, tuple) else ((taken, 0),) if taken else ()
            workspaces.add(_workspaces.key_of("conv", tensors), _workspaces.bytes_of(tensors), taken)
        return workspaces

    def bytes(self, known, operator, tensors):
        return sum(size for size, _ in known.taken(operator, tensors))

    def test_a_class_has_the_largest_that_was_seen(self):
        known = self.known((convolution(7), 5 * _MIB), (convolution(5), 3 * _MIB), (convolution(8), 4 * _MIB))
        self.assertEqual(self.bytes(known, "conv", convolution(6)), 5 * _MIB)
        self.assertEqual(len(known), 1)
        for tensors in ([Tensor(16, 3, 32, 64), Tensor(64, 3, 3, 3)], convolution(16, 256), [Tensor(8, 3, 32, 32, dtype="torch.float16"), Tensor(64, 3, 3, 3)], convolution(8)[:1]):
            self.assertEqual(self.bytes(known, "conv", tensors), 0, "another layer")
        self.assertEqual(self.bytes(known, "sort", convolution(8)), 0)

    def test_other_batches_of_a_layer_are_on_a_line(self):
        one = self.known((convolution(2), 2 * _MIB))
        self.assertEqual(self.bytes(one, "conv", convolution(64)), 2 * _MIB, "one batch says no slope")
        # Bytes are those of images and weights; the line goes through the two nearest.
        several = self.known((convolution(2), 2 * _MIB), (convolution(4), 4 * _MIB), (convolution(32), 4 * _MIB))
        self.assertEqual(self.bytes(several, "conv", convolution(128)), 4 * _MIB)
        self.assertEqual(self.bytes(several, "conv", convolution(1)), _MIB)
        wider = self.known((convolution(2, 32), 2 * _MIB), (convolution(4, 64), 8 * _MIB))
        self.assertEqual(self.bytes(wider, "conv", convolution(8, 128)), 0, "a layer with other weights is another one")
        falling = self.known((convolution(2), 2 * _MIB), (convolution(4), 0))
        self.assertEqual(self.bytes(falling, "conv", convolution(64)), 0, "never less than nothing")

    def test_each_workspace_of_a_call_has_its_line(self):
        two = self.known((convolution(2), ((2 * _MIB, 0), (6 * _MIB, 0))), (convolution(4), ((4 * _MIB, 1), (8 * _MIB, 0), (_MIB, 0))))
        two.save(self.path)
        read = Workspaces.load(self.path)
        self.assertEqual(read.taken("conv", convolution(2)), ((2 * _MIB, 0), (6 * _MIB, 0)), "as it was measured")
        self.assertEqual(read.taken("conv", convolution(8)), ((8 * _MIB, 1), (12 * _MIB, 0), (2 * _MIB, 0)), "what only the larger batch has grows with the batch")
        self.assertEqual(read.taken("conv", convolution(1)), ((_MIB, 1), (5 * _MIB, 0)), "what only the larger batch has begins there")

    def test_files_that_have_the_largest_alone_are_read(self):
        rows = [["conv", "float32,float32", "2x4x32x32,64x4x4x4", 24576, size] for size in (7, 0)]
        for row, taken in zip(rows, (((7, 0),), ())):
            with open(self.path, "w") as file:
                json.dump({"version": 2, "device": "NVIDIA H200", "torch": "2.11", "kept_bytes": [0, 0], "fixed_bytes": 0, "workspaces": [row]}, file)
            self.assertEqual(Workspaces.load(self.path).taken("conv", convolution(2)), taken)

    def test_files_are_merged_and_keep_what_is_larger(self):
        one = self.known((convolution(2), 2 * _MIB), (convolution(16), 3 * _MIB), kept_bytes=(32 * _MIB, 1), fixed_bytes=1)
        other = self.known((convolution(2), 1 * _MIB), (convolution(64), 9 * _MIB), kept_bytes=(8 * _MIB, 2), fixed_bytes=500 * _MIB)
        one.merged_with(other).save(self.path)
        read = Workspaces.load(self.path)
        self.assertEqual([self.bytes(read, "conv", convolution(batch)) // _MIB for batch in (2, 16, 64)], [2, 3, 9])
        self.assertEqual((read.kept_bytes, read.fixed_bytes, read.device, read.torch, len(read)), ([32 * _MIB, 2], 500 * _MIB, "NVIDIA H200", "2.11", 3))
        for other in (self.known(device="NVIDIA A100"), self.known(torch="2.12")):
            with self.assertRaisesRegex(OmniheapError, "measured on NVIDIA H200 with PyTorch 2.11.*another file"):
                read.merged_with(other)

    def test_operators_without_workspaces_are_not_written(self):
        known = self.known((convolution(2), 2 * _MIB), (convolution(4), 0))
        known.add(_workspaces.key_of("relu", [Tensor(4)]), 16, ())
        known.save(self.path)
        read = Workspaces.load(self.path)
        self.assertEqual(len(read), 2, "that a convolution had none at one batch is known")
        self.assertEqual(self.bytes(read, "conv", convolution(4)), 0)

    def test_one_is_shipped(self):
        shipped = Workspaces.shipped()
        self.assertEqual((shipped.device, shipped.torch), ("NVIDIA H200", "2.11"))
        # Two handles of cuBLAS, one for each pass, with 32 MiB each.
        self.assertTrue(all(each >= 32 * _MIB for each in shipped.kept_bytes))
        self.assertGreater(shipped.fixed_bytes, 500 * _MIB)
        # The first layer of a ResNet.
        self.assertGreater(self.bytes(shipped, "aten.convolution.default", [Tensor(8, 3, 224, 224), Tensor(64, 3, 7, 7)]), 20 * _MIB)
        with self.assertRaisesRegex(OmniheapError, "no workspaces of 'NVIDIA H20'"):
            Workspaces.shipped("NVIDIA H20")

    def test_other_files_are_refused(self):
        head = {"version": 2, "device": "NVIDIA H200", "torch": "2.11", "kept_bytes": [0, 0], "fixed_bytes": 0, "workspaces": []}
        bad = [{**head, "version": 1}, {**head, "kept_bytes": [0, -1]}, {**head, "kept_bytes": [0]}, {**head, "kept_bytes": 0}, {**head, "fixed_bytes": None}, {**head, "ran": 1}, {**head, "workspaces": [["conv", "float32", "4", 16]]}, {**head, "workspaces": [["conv", "float32", "4", 16, 1.5]]}, {**head, "workspaces": [["conv", "float32", "4", 16, [[1]]]]}, {**head, "workspaces": [["conv", "float32", "4", 16, [[1, -1]]]]}, {"version": 2}, []]
        for text in [*map(json.dumps, bad), "", "{"]:
            with open(self.path, "w") as file:
                file.write(text)
            with self.subTest(text=text), self.assertRaisesRegex(OmniheapError, "measure them with"):
                Workspaces.load(self.path)


class Allocator:
    """Has a history as PyTorch's has on a GPU; operators say what they take."""

    def __init__(self):
        self.entries, self._who, self._reserved = [], "", 0

    def asks(self, address, size):
        self._reserved += size
        self.entries.append({"action": "alloc", "addr": address, "size": size, "user_metadata": self._who})

    def frees(self, address):
        self.entries += [{"action": action, "addr": address, "size": 0, "user_metadata": self._who} for action in ("free_requested", "free_completed")]

    def _is_for(self, who):
        self._who = who

    @contextlib.contextmanager
    def recording(self, torch):
        self.entries.clear()
        stands = {"_record_memory_history": lambda *_, **__: None, "_snapshot": lambda _: {"device_traces": [list(self.entries)]}, "_set_memory_metadata": self._is_for}
        # The driver's figure has 7 MiB that PyTorch did not reserve.
        driver = {"get_device_name": lambda _: "Stand-in", "memory_reserved": lambda _: self._reserved, "mem_get_info": lambda _: ((1 << 40) - self._reserved - 7 * _MIB, 1 << 40)}
        with mock.patch.multiple(torch.cuda.memory, **stands), mock.patch.multiple(torch.cuda, **driver), mock.patch.object(torch._C, "_cuda_isHistoryEnabled", lambda: False):
            yield


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class Steps(unittest.TestCase):
    """An operator of the test takes three times its input inside, then four times, and the first call 1 MiB for good."""

    # Addresses, and what is asked for there in shares of the input; 0 frees it.
    takes = ((2, 3), (2, 0), (2, 4), (2, 0))

    @classmethod
    def setUpClass(cls):
        import torch

        library = torch.library.Library("omniheap_workspaces", "DEF")
        library.define("sorts(Tensor x) -> Tensor")
        cls.addClassCleanup(library._destroy)
        cls.allocator, cls.keeps = Allocator(), [_MIB]

        def sorts(x):
            result = x.clone()
            cls.allocator.asks(result.untyped_storage().data_ptr(), result.nbytes)
            for size in cls.keeps:
                cls.allocator.asks(1, size)
            cls.keeps.clear()
            for address, times in cls.takes:
                cls.allocator.asks(address, times * result.nbytes) if times else cls.allocator.frees(address)
            return result

        library.impl("sorts", sorts, "CPU")
        library.impl("sorts", lambda x: torch.empty_like(x), "Meta")
        cls.torch = torch

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path, self.trace = (os.path.join(folder.name, name) for name in ("workspaces.json", "step.omt"))

    def step(self, rows):
        torch = self.torch
        return lambda: torch.ops.omniheap_workspaces.sorts(torch.ones(rows, 1024)).add(1)

    def measure(self, rows):
        with self.allocator.recording(self.torch):
            return omniheap.fit.measure_workspaces(lambda: self.step(rows), self.path, device="cpu", steps=1)

    def recorded(self, rows, steps=1, **options):
        lives = []
        born = Ledger.born
        with mock.patch.object(Ledger, "born", lambda *given: lives.append(born(*given)) or lives[-1]):
            recording = omniheap.fit.record_step(lambda: self.step(rows), self.trace, device="cpu", steps=steps, **options)
        return recording.peak_live_bytes, [("/".join(life.name()), life.size) for life in lives if "workspace" in life.marks]

    def test_what_was_measured_is_in_fake_steps(self):
        self.keeps[:] = [_MIB]
        input = 64 * 1024 * 4
        for count, rows in ((1, 64), (2, 128), (2, 128)):
            self.measure(rows)
            self.assertEqual(len(Workspaces.load(self.path)), count, "files get what is new")
        self.assertEqual(Workspaces.load(self.path).kept_bytes, [_MIB, 0], "taken once")
        self.assertEqual(Workspaces.load(self.path).fixed_bytes, 7 * _MIB)
        plain, none = self.recorded(64)
        peak, found = self.recorded(64, workspaces=self.path)
        name = "temporary/omniheap_workspaces.sorts.default[workspace] uint8"
        self.assertEqual(none, [])
        self.assertEqual(found, [(name, 3 * input), (name, 4 * input)], "what libraries keep comes with the first product")
        # Input, result and the larger workspace at once; without it, input, result and sum.
        self.assertEqual((plain, peak), (2 * input, 6 * input))
        self.assertEqual(self.recorded(64, steps=2, workspaces=self.path)[0], peak, "a workspace is gone when its operator is")
        # Batches that were not measured.
        for rows in (256, 1024):
            self.assertEqual(self.recorded(rows, workspaces=self.path)[1], [(name, 3 * rows * 1024 * 4), (name, 4 * rows * 1024 * 4)])

    def test_a_step_that_runs_what_no_measured_step_ran_says_so(self):
        torch = self.torch
        self.measure(64)
        self.assertIn("aten.add.Tensor", Workspaces.load(self.path).ran)
        self.measure(128)
        names = lambda step: [str(each.message).partition(", and no measured")[0] for each in self.warned(step) if "no measured step" in str(each.message)]
        images = lambda: torch.nn.functional.conv2d(torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3))
        self.assertEqual(names(images), ["this step runs aten.convolution.default"])
        trained = lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.GELU(), torch.nn.Conv2d(4, 4, 3))(torch.ones(2, 3, 64, 64)).sum().backward()
        with self.assertWarnsRegex(UserWarning, "aten.convolution.default, .* and no measured step did"):
            omniheap.fit.draft_step(lambda: trained, device="cpu", steps=1, min_bytes=1, speed=omniheap.fit.Speed(), workspaces=self.path)
        self.assertEqual(names(self.step(64)), [])
        self.assertEqual(names(lambda: torch.ones(4, 4).tanh()), [], "it has no workspace")
        # Files that are older do not say what ran.
        with open(self.path) as file:
            saved = json.load(file)
        del saved["ran"]
        with open(self.path, "w") as file:
            json.dump(saved, file)
        self.assertEqual(names(images), [])
        # Nor does one that was added to.
        self.measure(256)
        self.assertEqual(names(images), [])

    def warned(self, step):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            omniheap.fit.record_step(lambda: step, self.trace, device="cpu", steps=1, workspaces=self.path)
        return caught

    def test_gradients_of_sparse_embeddings_are_measured(self):
        torch = self.torch

        def setup():
            table = torch.nn.Embedding(64, 8, sparse=True)
            optimizer = torch.optim.SparseAdam(table.parameters())

            def step():
                table(torch.arange(4)).sum().backward()
                self.step(64)()
                optimizer.step()

            return step

        with self.allocator.recording(torch):
            found = omniheap.fit.measure_workspaces(setup, self.path, device="cpu")
        self.assertIn("aten._coalesce.default", found.ran)

    def test_workspaces_that_live_together_do_so_in_fake_steps(self):
        input = 64 * 1024 * 4
        # The first lives until the third does; its place is used by what is returned to the program later on.
        with mock.patch.object(Steps, "takes", ((2, 3), (3, 1), (3, 0), (4, 2), (2, 0), (4, 0), (5, 1), (5, 0))):
            self.measure(64)
        known = Workspaces.load(self.path)
        self.assertEqual(known.taken("omniheap_workspaces.sorts.default", [Tensor(64, 1024)]), ((3 * input, 2), (input, 0), (2 * input, 0), (input, 0)))
        self.assertEqual(self.recorded(64, workspaces=self.path)[0], 7 * input)

    def test_what_libraries_keep_comes_with_the_first_product_of_a_pass(self):
        torch, seen = self.torch, []

        def step():
            x = torch.ones(64, 64, requires_grad=True)
            (torch.relu(x) @ x @ x).sum().backward()

        born = Ledger.born
        with mock.patch.object(Ledger, "born", lambda *given: seen.append((given[5], given[2])) or born(*given)):
            omniheap.fit.record_step(lambda: step, self.trace, device="cpu", steps=2, workspaces=Workspaces("Stand-in", _upstream.version(torch), (7, 5)))
        kept = [at for at, (operator, _) in enumerate(seen) if operator == "libraries"]
        self.assertEqual([seen[at][1] for at in kept], [7, 5], "once, however many steps there are")
        self.assertEqual([seen[at - 1][0] for at in kept], ["aten.mm.default"] * 2)
        self.assertNotIn("aten.mm.default", [operator for operator, _ in seen[: kept[0] - 1]])

    def test_an_operator_that_needs_its_result_alone_has_none(self):
        workspaces = Workspaces("Stand-in", "2.11")
        x = self.torch.ones(64, 1024)
        with self.allocator.recording(self.torch):
            meter = _workspaces.Meter(self.torch, self.torch.device("cpu"), workspaces)
            with meter.reading():
                for inside in ((), (512,), (_MIB,)):
                    meter.begins()
                    result = x.clone()
                    for size in inside:
                        # Memory that the operator frees is no result, also where the result has its place then.
                        self.allocator.asks(result.data_ptr(), size)
                        self.allocator.frees(result.data_ptr())
                    self.allocator.asks(result.data_ptr(), result.nbytes)
                    self.assertEqual(workspaces.kept_bytes, [0, 0])
                    operator = self.torch.ops.aten.relu.default if not inside or inside[0] < _MIB else self.torch.ops.aten.neg.default
                    meter.ran(operator, (x,), {}, result, (), False)
                    # Between operators; a result may be gone before anything else is asked for.
                    self.allocator.frees(result.data_ptr())
                    self.allocator.asks(9, _MIB)
        taken = [workspaces.taken(f"aten.{name}.default", [x]) for name in ("relu", "neg")]
        self.assertEqual((taken, workspaces.kept_bytes), ([(), ((_MIB, 0),)], [0, 0]), "a few bytes are none")

    def test_a_history_that_names_no_operators_is_refused(self):
        with self.allocator.recording(self.torch), mock.patch.object(self.torch.cuda.memory, "_set_memory_metadata", lambda _: None):
            with self.assertRaisesRegex(OmniheapError, "does not say which operator"):
                omniheap.fit.measure_workspaces(lambda: self.step(4), self.path, device="cpu")

    def test_a_step_that_fails_leaves_no_name_behind(self):
        def fails():
            self.torch.ones(4)
            self.torch.ones(4).add(self.torch.ones(3))

        with self.allocator.recording(self.torch), self.assertRaises(RuntimeError):
            omniheap.fit.measure_workspaces(lambda: fails, self.path, device="cpu")
        self.assertEqual((self.allocator._who, os.path.exists(self.path)), ("", False))

    def test_a_history_of_the_program_is_left_alone(self):
        with self.allocator.recording(self.torch), mock.patch.object(self.torch._C, "_cuda_isHistoryEnabled", lambda: True):
            with self.assertRaisesRegex(OmniheapError, "history of memory is being recorded"):
                omniheap.fit.measure_workspaces(lambda: self.step(4), self.path, device="cpu")

    def test_bad_input(self):
        Workspaces("Stand-in", "1.0").save(self.path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.recorded(4, workspaces=self.path)
        self.assertIn("measured with PyTorch 1.0", str(caught[0].message))
        with self.assertRaisesRegex(OmniheapError, "added to fake steps"):
            self.recorded(4, workspaces=self.path, fake=False)
        with self.assertRaisesRegex(OmniheapError, "write to another file"):
            self.measure(4)
        with self.assertRaises(FileNotFoundError):
            self.recorded(4, workspaces=self.path + ".none")


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class Rules(unittest.TestCase):
    """Measurements of an H200, with PyTorch 2.11 and cuDNN 9."""

    def tensor(self, *shape, dtype="float32", **options):
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta", **options)

    def test_sums_along_columns(self):
        import torch

        operator = torch.ops.aten.sum.dim_IntList
        for shape, dtype, dims, mib in (
            ((2048, 3072), "float32", [0], 48),
            ((2048, 3072), "float64", [0], 96),
            ((2048, 3072), "int64", [0], 96),
            ((2048, 3072), "complex64", [0], 96),
            # Half of the threads, so twice as many values for each.
            ((2048, 3072), "complex128", [0], 384),
            ((1024, 3072), "float32", [0], 24),
            ((2048, 768), "float32", [0], 12),
            ((2048, 32000), "float32", [0], 140.625),
            ((4096, 3072), "bfloat16", [0], 96),
            ((4, 512, 768), "float32", [0, 1], 12),
            # Many rows share what there is.
            ((32768, 3072), "float32", [0], 132),
            ((512, 3072), "float32", [0], 0),
            ((2048, 3072), "float32", [1], 0),
            ((2048, 3072), "float32", [0, 1], 0),
            ((0, 3072), "float32", [0], 0),
            ((), "float32", [-1], 0),
        ):
            tensor = self.tensor(*shape, dtype=dtype)
            self.assertEqual(_kernels.own(_H200, operator, (tensor, dims), tensor), [mib * _MIB], (shape, dtype, dims))
        self.assertIsNone(_kernels.own(_H200, torch.ops.aten.mm.default, (self.tensor(8, 8), self.tensor(8, 8)), None))

    def test_a_sum_in_another_type_copies_its_tensor(self):
        import torch

        operator = torch.ops.aten.sum.dim_IntList
        for dtype, result, mib in (("int32", "int64", [48, 96]), ("bool", "int64", [48, 96]), ("float32", "float64", [48, 96]), ("bfloat16", "float32", [48]), ("bfloat16", "float64", [48, 96])):
            sizes = _kernels.own(_H200, operator, (self.tensor(2048, 3072, dtype=dtype), [0]), self.tensor(3072, dtype=result))
            self.assertEqual(sizes, [each * _MIB for each in mib], (dtype, result))

    def test_tensors_of_more_than_two_gib_are_summed_in_parts(self):
        import torch

        operator, half = torch.ops.aten.sum.dim_IntList, 131072
        sizes = [_kernels.own(_H200, operator, (self.tensor(rows, 4096), [0]), self.tensor(4096)) for rows in (half - 1, half, 2 * half - 2)]
        self.assertEqual(sizes[0], sizes[2], "two halves after each other")
        self.assertEqual(sizes[1], _kernels.own(_H200, operator, (self.tensor(half // 2, 4096), [0]), self.tensor(4096)), "2 GiB are one byte too many")
        self.assertLess(sizes[1][0], sizes[0][0])

    def test_columns_that_are_apart_are_read_one_by_one(self):
        import torch

        tensor = self.tensor(2048, 6144)[:, ::2]
        self.assertNotEqual(_kernels.own(_H200, torch.ops.aten.sum.dim_IntList, (tensor, [0]), tensor), _kernels.own(_H200, torch.ops.aten.sum.dim_IntList, (tensor.contiguous(), [0]), tensor))

    def test_rows_that_are_apart_are_copied(self):
        import torch

        operator, rows = torch.ops.aten.native_layer_norm.default, self.tensor(4, 96, 56, 56)
        self.assertEqual(_kernels.own(_H200, operator, (rows.permute(0, 2, 3, 1), [96]), None), [rows.numel() * 4])
        self.assertEqual(_kernels.own(_H200, operator, (rows, [56]), None), [])

    def test_softmax_and_its_gradient(self):
        import torch

        # Measured of a T5: a byte for each score, and a product of gradient and result.
        scores = self.tensor(2, 8, 512, 512)
        self.assertEqual(_kernels.own(_H200, torch.ops.aten._safe_softmax.default, (scores, -1), scores), [4 << 20])
        self.assertEqual(_kernels.own(_H200, torch.ops.aten._softmax_backward_data.default, (scores, scores, -1, torch.float32), scores), [16 << 20])
        self.assertIsNone(_kernels.own(_H200, torch.ops.aten._log_softmax_backward_data.default, (scores, scores, -1, torch.float32), scores))

    def test_convolutions_copy_into_another_layout(self):
        import torch

        forward, backward = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default
        for image, weight, out, stride, groups, kib in (
            ((4, 3, 224, 224), (64, 3, 7, 7), (4, 64, 112, 112), 2, 1, 14932.75),
            ((4, 256, 56, 56), (512, 256, 1, 1), (4, 512, 28, 28), 2, 1, 18816),
            ((4, 128, 56, 56), (128, 128, 3, 3), (4, 128, 28, 28), 2, 1, 8416),
            # A plain product, and one for each channel.
            ((4, 256, 56, 56), (64, 256, 1, 1), (4, 64, 56, 56), 1, 1, 0),
            ((4, 96, 56, 56), (96, 1, 7, 7), (4, 96, 56, 56), 1, 96, 0),
        ):
            image, weight, out = (self.tensor(*shape) for shape in (image, weight, out))
            last = ([stride] * 2, [0, 0], [1, 1], False, [0, 0], groups)
            self.assertEqual(_kernels.cudnn(_H200, forward, (image, weight, None, *last), out), [(kib * 1024, 0)], weight.shape)
            self.assertEqual(_kernels.cudnn(_H200, backward, (out, image, weight, None, *last, [True] * 3), None)[:1], [(kib * 1024, 0)], weight.shape)
        # Measured of a ResNet: both gradients, with 147 bytes more, and 655 more.
        image, weight, out = (self.tensor(*shape) for shape in ((32, 256, 56, 56), (512, 256, 1, 1), (32, 512, 28, 28)))
        self.assertEqual(_kernels.cudnn(_H200, backward, (out, image, weight, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]), None), [(154140819 - 147, 0), (162529935 - 655, 0)])
        # Measured of a ConvNeXt.
        for channels, width, kernel, groups, size in ((96, 192, 2, 1, 294912), (192, 384, 2, 1, 1179648), (96, 192, 1, 1, 0), (96, 96, 7, 96, 0)):
            last, weight = self.tensor(4, channels, 56, 56).to(memory_format=torch.channels_last), self.tensor(width, channels // groups, kernel, kernel)
            self.assertEqual(_kernels.cudnn(_H200, forward, (last, weight, None, [2, 2], [0, 0], [1, 1], False, [0, 0], groups), out), [(size, 0)])

    def test_gradients_of_biases_are_sums_after_those_of_cudnn(self):
        import torch

        # Measured of a ConvNeXt, whose gradients have channels last; with channels first nothing is combined in memory.
        operator, rest = torch.ops.aten.convolution_backward.default, ([1, 1], [3, 3], [1, 1], False, [0, 0])
        for batch, channels, side, size in ((2, 96, 56, 1204224), (8, 96, 56, 4816896), (8, 192, 28, 9633792), (8, 768, 7, 0)):
            image, weight = self.tensor(batch, channels, side, side), self.tensor(channels, 1, 7, 7)
            last = image.to(memory_format=torch.channels_last)
            self.assertEqual(_kernels.cudnn(_H200, operator, (last, last, weight, [channels], *rest, channels, [True] * 3), None), [(0, 0), (size, 0)])
            self.assertEqual(_kernels.cudnn(_H200, operator, (image, image, weight, [channels], *rest, channels, [True] * 3), None), [(0, 0), (0, 0)])
            self.assertEqual(_kernels.cudnn(_H200, operator, (last, last, weight, None, *rest, channels, [True, True, False]), None), [(0, 0)])

    def test_images_in_another_order_are_copied_before_a_convolution(self):
        import torch

        # Measured of a CLIP, a U-Net of volumes and a wav2vec 2.0: a gradient with channels last, one that is a part of a larger tensor, and sound with channels last.
        rest = (None, [16, 16], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
        images, weight, gradient = self.tensor(8, 3, 224, 224), self.tensor(512, 3, 16, 16), self.tensor(8, 512, 14, 14)
        backward = lambda *given: _kernels.cudnn(_H200, torch.ops.aten.convolution_backward.default, (*given, *rest), None)
        copied = (8 * 512 * 14 * 14 * 4, 3)
        self.assertEqual(backward(gradient.to(memory_format=torch.channels_last), images, weight)[0], copied)
        self.assertEqual(backward(self.tensor(8, 1024, 14, 14)[:, :512], images, weight)[0], copied)
        self.assertEqual(len(backward(gradient, images, weight)), 2)
        last = images.to(memory_format=torch.channels_last)
        self.assertEqual(backward(gradient, last, weight)[0], (copied[0], 2))
        sound, weight = self.tensor(8, 99, 512).transpose(1, 2), self.tensor(512, 32, 128)
        taken = _kernels.cudnn(_H200, torch.ops.aten.convolution.default, (sound, weight, None, [1], [64], [1], False, [0], 16), self.tensor(8, 512, 100))
        self.assertEqual(taken[0], (8 * 99 * 512 * 4, 2))

    def test_groups_of_several_channels_are_copied_into_another_layout(self):
        import torch

        # Measured of a RegNet: 9,408 KiB.
        image, weight = self.tensor(8, 48, 56, 56), self.tensor(48, 24, 3, 3)
        taken = _kernels.cudnn(_H200, torch.ops.aten.convolution.default, (image, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2), image)
        self.assertEqual(taken, [((9408 << 10) + 48 * 24 * 9 * 4, 0)])

    def test_what_operators_of_pytorch_copy_and_sort(self):
        import torch

        # Measured of a network of points and of a Fourier operator: distances of 1,024 points, sums into rows, and an inverse transform.
        aten, points = torch.ops.aten, self.tensor(8, 1024, 64)
        self.assertEqual(_kernels.own(_H200, aten._euclidean_dist.default, (points, points), None), [2112 << 10] * 2)
        spectrum = torch.empty(8, 48, 128, 65, dtype=torch.complex64, device="meta")
        self.assertEqual(_kernels.own(_H200, aten._fft_c2r.default, (spectrum, [2, 3], 2, 128), None), [24960 << 10])
        numbers, values = torch.empty(8, 1024, 20, dtype=torch.int64, device="meta"), self.tensor(8, 1024, 20, 128)
        put = lambda values, accumulate: _kernels.own(_H200, aten.index_put.default, (points, [numbers], values, accumulate), None)
        self.assertEqual(put(values[..., :64], True), [5 * 1280 << 10, 40960 << 10])
        self.assertEqual(put(values, True), [5 * 1280 << 10])
        self.assertIsNone(put(values, False))
        gradient = self.tensor(128, 8, 512)
        embedding = lambda gradient: _kernels.own(_H200, aten.embedding_dense_backward.default, (gradient, numbers, 16000, -1, False), None)
        self.assertEqual(embedding(gradient.transpose(0, 1)), [2048 << 10])
        self.assertIsNone(embedding(gradient), "what was measured counts")
        self.assertEqual(_kernels.own(_H200, aten._softmax_backward_data.default, (points.transpose(1, 2), points, 1, torch.float32), None), [2048 << 10] * 2)

    def seen(self, setup):
        """MiB of the workspaces of a fake step, and their operators."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Ledger, "born", autospec=True, side_effect=Ledger.born) as born:
            omniheap.fit.record_step(setup, os.path.join(folder, "step.omt"), steps=1, gpu="NVIDIA H200")
        return [(call.args[2] >> 20, call.args[5]) for call in born.call_args_list if "workspace" in (call.args[8:] or [()])[0]]

    def test_a_fake_step_has_them(self):
        import torch

        def setup():
            model = torch.nn.Linear(768, 3072).cuda()
            return lambda: model(torch.ones(2048, 768, device="cuda")).square().sum().backward()

        self.assertEqual(self.seen(setup), [(33, "libraries"), (32, "libraries"), (48, "aten.sum.dim_IntList")])

    def test_gpus_are_not_taken_for_each_other(self):
        import torch

        def setup():
            model = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.Unflatten(1, (3, 32, 32)), torch.nn.Conv2d(3, 64, 3), torch.nn.Flatten(2), torch.nn.LSTM(900, 8, batch_first=True)).cuda()
            told.append(torch.cuda.get_device_capability())
            return lambda: model(torch.ones(2048, 768, device="cuda"))[0].square().sum().backward()

        told = []
        with tempfile.TemporaryDirectory() as folder:
            record = lambda **options: omniheap.fit.record_step(setup, os.path.join(folder, "step.omt"), steps=1, **options)
            measured, unnamed, other = record(gpu="NVIDIA H200"), record(), record(gpu="NVIDIA A100-SXM4-80GB")
            self.assertEqual((measured.unknown, unnamed.peak_live_bytes), ([], other.peak_live_bytes))
            self.assertGreater(measured.peak_live_bytes, unnamed.peak_live_bytes + (65 << 20))
            for recording, name in ((unnamed, "a GPU that is not named"), (other, "NVIDIA A100-SXM4-80GB")):
                left, assumed = recording.unknown
                for what in (name, "workspaces of cuBLAS", "partial sums of columns", "workspaces of aten.convolution.default", "workspaces of recurrent layers", "measure_workspaces"):
                    self.assertIn(what, left)
                self.assertIn(f"not known for {name}, and taken as on an NVIDIA H200: the compute capability, what cuDNN keeps of recurrent layers", assumed)
            here = types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB", major=8, minor=0, multi_processor_count=108, max_threads_per_multi_processor=2048)
            with mock.patch.object(torch.cuda, "is_available", lambda: True), mock.patch.object(torch.cuda, "get_device_properties", lambda _: here):
                gpu = Gpu.of(torch, torch.device("cuda", 0), None, None)
                self.assertEqual(Gpu.of(torch, torch.device("cuda", 0), None, "NVIDIA H200").processors, 132, "of the one that is named")
            self.assertEqual((gpu.name, gpu.capability, gpu.is_measured, gpu.library_bytes), (here.name, (8, 0), False, None))
            tensor = self.tensor(8192, 2048)
            bytes = [_kernels.own(each, torch.ops.aten.sum.dim_IntList, (tensor, [0]), tensor)[0] for each in (_H200, gpu, Gpu())]
            self.assertEqual((len(set(bytes)), bytes[2], gpu.unknown()), (3, 0, []))
            with self.assertRaisesRegex(OmniheapError, "measured on 'NVIDIA H200'; pass one of them"):
                record(gpu="another", workspaces=Workspaces.shipped())
            for wrong in ({"gpu": 3}, {"gpu": "NVIDIA H200", "fake": False, "device": "cpu"}):
                with self.assertRaisesRegex(OmniheapError, "gpu "):
                    record(**wrong)
        self.assertEqual(told, [(9, 0)] * 3)

    def test_a_fake_step_of_attention_in_products_has_those_of_softmax(self):
        import torch

        def step():
            # No fused kernel reads a transposed bias.
            query, bias = (torch.ones(2, 8, 512, size, device="cuda", requires_grad=True) for size in (64, 512))
            torch.nn.functional.scaled_dot_product_attention(query, query, query, bias.transpose(2, 3)).sum().backward()

        self.assertEqual([each for each in self.seen(step) if "softmax" in each[1]], [(4, "aten._safe_softmax.default"), (16, "aten._softmax_backward_data.default")])

    def test_other_devices_take_nothing(self):
        import torch

        def step():
            there = torch.ones(2048, 3072, device="cuda:1")
            for other in (torch.ones(2048, 3072), there):
                (other @ other.T).sum(0), other.sum(0)
            return torch.ones(8, device="cuda")

        with tempfile.TemporaryDirectory() as folder:
            recording = omniheap.fit.record_step(step, os.path.join(folder, "step.omt"))
        self.assertEqual((recording.allocations, recording.peak_live_bytes), (1, 32))


if __name__ == "__main__":
    unittest.main()

"""Memory that kernels take inside of operators: measured around each of them, kept in a file, added to fake steps."""

import contextlib
import importlib.util
import json
import os
import tempfile
import unittest
import warnings
from unittest import mock

import omniheap.torch
from omniheap import OmniheapError, _kernels, _workspaces
from omniheap._ledger import Ledger
from omniheap._workspaces import Workspaces

_HAS_TORCH = importlib.util.find_spec("torch") is not None
_MIB = 1 << 20


class Tensor:
    """What a key is made of."""

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
        for tensors, size in calls:
            workspaces.add("conv", tensors, size)
        return workspaces

    def test_a_class_has_the_largest_that_was_seen(self):
        known = self.known((convolution(7), 5 * _MIB), (convolution(5), 3 * _MIB), (convolution(8), 4 * _MIB))
        self.assertEqual(known.bytes("conv", convolution(6)), 5 * _MIB)
        self.assertEqual(len(known), 1)
        for tensors in ([Tensor(16, 3, 32, 64), Tensor(64, 3, 3, 3)], convolution(16, 256), [Tensor(8, 3, 32, 32, dtype="torch.float16"), Tensor(64, 3, 3, 3)], convolution(8)[:1]):
            self.assertEqual(known.bytes("conv", tensors), 0, "another layer")
        self.assertEqual(known.bytes("sort", convolution(8)), 0)

    def test_other_batches_of_a_layer_are_on_a_line(self):
        one = self.known((convolution(2), 2 * _MIB))
        self.assertEqual(one.bytes("conv", convolution(64)), 2 * _MIB, "one batch says no slope")
        # Bytes are those of images and weights; the line goes through the two nearest.
        several = self.known((convolution(2), 2 * _MIB), (convolution(4), 4 * _MIB), (convolution(32), 4 * _MIB))
        self.assertEqual(several.bytes("conv", convolution(128)), 4 * _MIB)
        self.assertEqual(several.bytes("conv", convolution(1)), _MIB)
        wider = self.known((convolution(2, 32), 2 * _MIB), (convolution(4, 64), 8 * _MIB))
        self.assertEqual(wider.bytes("conv", convolution(8, 128)), 0, "a layer with other weights is another one")
        falling = self.known((convolution(2), 2 * _MIB), (convolution(4), 0))
        self.assertEqual(falling.bytes("conv", convolution(64)), 0, "never less than nothing")

    def test_files_are_merged_and_keep_what_is_larger(self):
        one = self.known((convolution(2), 2 * _MIB), (convolution(16), 3 * _MIB), kept_bytes=(32 * _MIB, 1), fixed_bytes=1)
        other = self.known((convolution(2), 1 * _MIB), (convolution(64), 9 * _MIB), kept_bytes=(8 * _MIB, 2), fixed_bytes=500 * _MIB)
        one.merged_with(other).save(self.path)
        read = Workspaces.load(self.path)
        self.assertEqual([read.bytes("conv", convolution(batch)) // _MIB for batch in (2, 16, 64)], [2, 3, 9])
        self.assertEqual((read.kept_bytes, read.fixed_bytes, read.device, read.torch, len(read)), ([32 * _MIB, 2], 500 * _MIB, "NVIDIA H200", "2.11", 3))
        for other in (self.known(device="NVIDIA A100"), self.known(torch="2.12")):
            with self.assertRaisesRegex(OmniheapError, "measured on NVIDIA H200 with PyTorch 2.11.*another file"):
                read.merged_with(other)

    def test_operators_without_workspaces_are_not_written(self):
        known = self.known((convolution(2), 2 * _MIB), (convolution(4), 0))
        known.add("relu", [Tensor(4)], 0)
        known.save(self.path)
        read = Workspaces.load(self.path)
        self.assertEqual(len(read), 2, "that a convolution had none at one batch is known")
        self.assertEqual(read.bytes("conv", convolution(4)), 0)

    def test_one_is_shipped(self):
        shipped = Workspaces.shipped()
        self.assertEqual((shipped.device, shipped.torch), ("NVIDIA H200", "2.11"))
        # Two handles of cuBLAS, one for each pass, with 32 MiB each.
        self.assertTrue(all(each >= 32 * _MIB for each in shipped.kept_bytes))
        self.assertGreater(shipped.fixed_bytes, 500 * _MIB)
        # The first layer of a ResNet.
        self.assertGreater(shipped.bytes("aten.convolution.default", [Tensor(8, 3, 224, 224), Tensor(64, 3, 7, 7)]), 20 * _MIB)
        with self.assertRaisesRegex(OmniheapError, "no workspaces of 'NVIDIA H20'"):
            Workspaces.shipped("NVIDIA H20")

    def test_other_files_are_refused(self):
        head = {"version": 2, "device": "NVIDIA H200", "torch": "2.11", "kept_bytes": [0, 0], "fixed_bytes": 0, "workspaces": []}
        bad = [{**head, "version": 1}, {**head, "kept_bytes": [0, -1]}, {**head, "kept_bytes": [0]}, {**head, "kept_bytes": 0}, {**head, "fixed_bytes": None}, {**head, "workspaces": [["conv", "float32", "4", 16]]}, {**head, "workspaces": [["conv", "float32", "4", 16, 1.5]]}, {"version": 2}, []]
        for text in [*map(json.dumps, bad), "", "{"]:
            with open(self.path, "w") as file:
                file.write(text)
            with self.subTest(text=text), self.assertRaisesRegex(OmniheapError, "measure them with"):
                Workspaces.load(self.path)


class Allocator:
    """Counts as PyTorch's does on a GPU; operators say what they take."""

    def __init__(self):
        self._live = self._most = 0

    def takes(self, returned, workspace, kept=0):
        self._most = max(self._most, self._live + returned + kept + workspace)
        self._live += returned + kept

    def reset(self, _):
        self._most = self._live

    @contextlib.contextmanager
    def counting(self, torch):
        asked = lambda _: {"requested_bytes": {"all": {"current": self._live, "peak": self._most}}}
        stands = {"memory_stats_as_nested_dict": asked, "reset_peak_memory_stats": self.reset, "get_device_name": lambda _: "Stand-in"}
        # The driver's figure has 7 MiB that PyTorch did not reserve.
        stands.update(memory_reserved=lambda _: self._live + _MIB, mem_get_info=lambda _: ((1 << 30) - self._live - 8 * _MIB, 1 << 30))
        with mock.patch.multiple(torch.cuda, **stands):
            yield


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class Steps(unittest.TestCase):
    """An operator of the test takes three times its input inside, and the first call 1 MiB for good."""

    @classmethod
    def setUpClass(cls):
        import torch

        library = torch.library.Library("omniheap_workspaces", "DEF")
        library.define("sorts(Tensor x) -> Tensor")
        cls.addClassCleanup(library._destroy)
        cls.allocator, cls.keeps = Allocator(), [_MIB]

        def sorts(x):
            result = x.clone()
            cls.allocator.takes(result.nbytes, 3 * result.nbytes, cls.keeps.pop() if cls.keeps else 0)
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
        with self.allocator.counting(self.torch):
            return omniheap.torch.measure_workspaces(lambda: self.step(rows), self.path, device="cpu", steps=1)

    def recorded(self, rows, steps=1, **options):
        lives = []
        born = Ledger.born
        with mock.patch.object(Ledger, "born", lambda *given: lives.append(born(*given)) or lives[-1]):
            recording = omniheap.torch.record_step(lambda: self.step(rows), self.trace, device="cpu", steps=steps, **options)
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
        self.assertEqual(found, [(name, 3 * input)], "what libraries keep comes with the first product")
        # Input, result and workspace at once; without it, input, result and sum.
        self.assertEqual((plain, peak), (2 * input, 5 * input))
        self.assertEqual(self.recorded(64, steps=2, workspaces=self.path)[0], peak, "a workspace is gone when its operator is")
        # Batches that were not measured.
        for rows in (256, 1024):
            self.assertEqual(self.recorded(rows, workspaces=self.path)[1], [(name, 3 * rows * 1024 * 4)])

    def test_what_libraries_keep_comes_with_the_first_product_of_a_pass(self):
        torch, seen = self.torch, []

        def step():
            x = torch.ones(64, 64, requires_grad=True)
            (torch.relu(x) @ x @ x).sum().backward()

        born = Ledger.born
        with mock.patch.object(Ledger, "born", lambda *given: seen.append((given[5], given[2])) or born(*given)):
            omniheap.torch.record_step(lambda: step, self.trace, device="cpu", steps=2, workspaces=Workspaces("Stand-in", _workspaces.version(torch), (7, 5)))
        kept = [at for at, (operator, _) in enumerate(seen) if operator == "libraries"]
        self.assertEqual([seen[at][1] for at in kept], [7, 5], "once, however many steps there are")
        self.assertEqual([seen[at - 1][0] for at in kept], ["aten.mm.default"] * 2)
        self.assertNotIn("aten.mm.default", [operator for operator, _ in seen[: kept[0] - 1]])

    def test_an_operator_that_needs_its_result_alone_has_none(self):
        workspaces = Workspaces("Stand-in", "2.11")
        meter = _workspaces.Meter(self.torch, self.torch.device("cpu"), workspaces)
        x = self.torch.ones(64, 1024)
        with self.allocator.counting(self.torch):
            for takes in ((x.nbytes, 0), (x.nbytes + 512, 1024)):
                meter.begins()
                self.allocator.takes(*takes)
                meter.ran(self.torch.ops.aten.relu.default, (x,), {}, x.clone(), (), False)
        self.assertEqual((workspaces.bytes("aten.relu.default", [x]), workspaces.kept_bytes), (0, [0, 0]), "a few bytes are none")

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
    """What an H200 was measured to take, with PyTorch 2.11 and cuDNN 9."""

    def tensor(self, *shape, dtype="float32", **options):
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta", **options)

    def test_sums_along_columns(self):
        import torch

        operator = torch.ops.aten.sum.dim_IntList
        for shape, dtype, dims, mib in (
            ((2048, 3072), "float32", [0], 48),
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
            self.assertEqual(_kernels.own(operator, (self.tensor(*shape, dtype=dtype), dims)), mib * _MIB, (shape, dims))
        self.assertIsNone(_kernels.own(torch.ops.aten.mm.default, (self.tensor(8, 8), self.tensor(8, 8))))

    def test_rows_that_are_apart_are_copied(self):
        import torch

        operator, rows = torch.ops.aten.native_layer_norm.default, self.tensor(4, 96, 56, 56)
        self.assertEqual(_kernels.own(operator, (rows.permute(0, 2, 3, 1), [96])), rows.numel() * 4)
        self.assertEqual(_kernels.own(operator, (rows, [56])), 0)

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
            self.assertEqual(_kernels.cudnn(forward, (image, weight, None, *last), out), kib * 1024, weight.shape)
            self.assertEqual(_kernels.cudnn(backward, (out, image, weight, None, *last, [True] * 3), None), kib * 1024, weight.shape)
        last = image.to(memory_format=torch.channels_last)
        self.assertEqual(_kernels.cudnn(forward, (last, weight, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1), out), 0)

    def test_a_fake_step_has_them(self):
        import torch

        def setup():
            model = torch.nn.Linear(768, 3072).cuda()
            return lambda: model(torch.ones(2048, 768, device="cuda")).sum().backward()

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Ledger, "born", autospec=True, side_effect=Ledger.born) as born:
            omniheap.torch.record_step(setup, os.path.join(folder, "step.omt"), steps=1)
        seen = [(call.args[2] >> 20, call.args[5]) for call in born.call_args_list if "workspace" in (call.args[8:] or [()])[0]]
        self.assertEqual(seen, [(33, "libraries"), (32, "libraries"), (48, "aten.sum.dim_IntList")])

    def test_other_devices_take_nothing(self):
        import torch

        def step():
            there = torch.ones(2048, 3072, device="cuda:1")
            for other in (torch.ones(2048, 3072), there):
                (other @ other.T).sum(0), other.sum(0)
            return torch.ones(8, device="cuda")

        with tempfile.TemporaryDirectory() as folder:
            recording = omniheap.torch.record_step(step, os.path.join(folder, "step.omt"))
        self.assertEqual((recording.allocations, recording.peak_live_bytes), (1, 32))


if __name__ == "__main__":
    unittest.main()

"""Recording steps and asking whether they fit. What needs PyTorch is left out where it is not installed."""

import copy
import gc
import importlib.util
import json
import os
import sys
import tempfile
import threading
import types
import unittest
import warnings
import weakref
from unittest import mock

import omniheap.fit
from omniheap import OmniheapError
from omniheap.fit import _fit, _requests, _saved, _trace
from omniheap.fit._ledger import Ledger
from omniheap.fit._trace import Writer
from omniheap.fit._workspaces import Workspaces
from of_the_product import stand_in

_GPU = "NVIDIA H200"
_HAS_TORCH = importlib.util.find_spec("torch") is not None
_SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/trace/tests/data/step.omt")


class Written:
    """A writer that keeps what it is told."""

    def __init__(self):
        self.labels, self.events = [], []

    def allocate(self, time, size, label, stream=0):
        self.labels.append(label)
        self.events.append(("a", time, len(self.labels) - 1, size))
        return len(self.labels) - 1

    def free(self, time, number):
        self.events.append(("f", time, number))

    def rename(self, number, label):
        self.labels[number] = label


def write_sample(path):
    """A step of three storages: a parameter, what is kept of the forward pass, and what is not."""
    ledger = Ledger(Writer(path, "a step"))
    ledger.tick()
    ledger.born("w", 4096, "input", (), "aten.empty.memory_format", "float32", False)
    ledger.becomes("w", "parameter", ("h", "0"), "weight", "float32[32x32]")
    ledger.tick()
    ledger.born("t", 300, "activation", ("h", "0"), "aten.mm.default", "float32", True)
    ledger.born("y", 200, "activation", ("h", "0"), "aten.gelu.default", "float32", True).marks.add("output")
    ledger.died("t")
    ledger.tick()
    ledger.enters(True)
    ledger.born("g", 1 << 40, "temporary", ("h", "0"), "aten.mm.default", "float32", False)
    ledger.died("g")
    ledger.died("y")
    ledger.finish()
    ledger._writer.close()


class Traces(unittest.TestCase):
    def test_bytes_are_those_that_the_reader_is_tested_with(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "step.omt")
            write_sample(path)
            self.assertEqual(os.listdir(folder), ["step.omt"])
            with open(path, "rb") as written, open(_SAMPLE, "rb") as expected:
                self.assertEqual(written.read(), expected.read())

    def test_what_is_abandoned_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = Writer(os.path.join(folder, "step.omt"), "")
            writer.allocate(0, 1, ("x",))
            self.assertTrue(all(name.startswith(".") for name in os.listdir(folder)), "`omniheap ranks` would read it")
            writer.abandon()
            self.assertEqual(os.listdir(folder), [])

    def test_texts_are_whole_characters_whatever_they_were(self):
        self.assertEqual(_trace._text("x" + "\u00e9" * 30_000).decode(), "x" + "\u00e9" * 29_999)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "step.omt")
            writer = Writer(path, "title \udc80")
            writer.allocate(0, 1, ("label \udc80",))
            writer.close()
            with open(path, "rb") as file:
                written = file.read()
        self.assertTrue(b"title ?" in written and b"label ?" in written)


class Saved(unittest.TestCase):
    def test_what_was_there_stays_where_writing_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "h200.json")
            _saved.write(path, "before")
            with mock.patch.object(os, "replace", mock.Mock(side_effect=OSError("full"))), self.assertRaises(OSError):
                _saved.write(path, "after")
            with self.assertRaises(TypeError):
                _saved.write(path, None)
            self.assertEqual(os.listdir(folder), ["h200.json"])
            with open(path) as file:
                self.assertEqual(file.read(), "before")


class Ledgers(unittest.TestCase):
    def setUp(self):
        self.written = Written()
        self.ledger = Ledger(self.written)

    def born(self, key, category="activation", is_forward=True, size=10):
        return self.ledger.born(key, size, category, ("h",), "op", "float32", is_forward)

    def test_what_dies_before_the_backward_pass_was_temporary(self):
        for key in "abc":
            self.born(key)
        self.ledger.get("c").marks.add("output")
        self.ledger.died("a")
        self.ledger.died("c")
        self.ledger.enters(True)
        self.ledger.died("b")
        self.assertEqual([label[0] for label in self.written.labels], ["temporary", "activation", "activation"])

    def test_each_backward_pass_counts(self):
        for is_backward in (True, True, False, True):
            self.ledger.enters(is_backward)
        self.assertEqual(self.ledger.backwards, 2)
        self.assertEqual(self.born("g", "temporary", False).name()[-1], "op[backward] float32")

    def test_a_storage_that_grows_is_another_allocation(self):
        self.born("a")
        self.ledger.resized("a", 10)
        self.assertEqual(self.ledger.live_bytes, 10)
        self.ledger.resized("a", 0)
        self.assertEqual(self.ledger.live_bytes, 0)
        self.ledger.resized("a", 30)
        self.ledger.died("a")
        self.assertEqual(self.ledger.live_bytes, 0)
        self.assertEqual([event[0] for event in self.written.events], ["a", "f", "a", "f"])
        self.assertEqual(self.ledger.peak_live_bytes, 30)

    def test_strangers_are_left_alone(self):
        self.ledger.died("x")
        self.ledger.resized("x", 5)
        self.ledger.becomes("x", "gradient", (), "w", "float32")
        self.assertEqual(self.written.events, [])


class History(unittest.TestCase):
    """Steps that run, from PyTorch's history."""

    class Written:
        def __init__(self):
            self.events, self.numbers = [], 0

        def begin_step(self):
            self.events.append("step")

        def allocate(self, _, size, label, stream):
            self.events.append(("a", size, label, stream))
            self.numbers += 1
            return self.numbers - 1

        def free(self, _, number):
            self.events.append(("f", number))

    def test_requests_are_written_in_their_order(self):
        entry = lambda action, address, size, stream, time: {"action": action, "addr": address, "size": size, "stream": stream, "time_us": time}
        entries = [
            # The allocation was there before.
            entry("free_completed", 5, 512, 0, 1),
            entry("segment_alloc", 0, 2 << 20, 0, 2),
            entry("alloc", 7, 100, 0, 2),
            entry("alloc", 9, 30, 94710, 3),
            # Another stream uses it for a while.
            entry("free_requested", 7, 100, 0, 10),
            entry("alloc", 11, 1, 0, 11),
            entry("free_completed", 7, 100, 0, 12),
            entry("alloc", 7, 60, 0, 13),
        ]
        written = self.Written()
        requests = _requests.Requests(written)
        requests.write(entries, [3, 10])
        self.assertEqual(written.events, [("a", 100, (), 0), ("a", 30, (), 1), "step", ("a", 1, (), 0), ("f", 0), ("a", 60, (), 0)])
        self.assertEqual((requests.allocations, requests.live_bytes, requests.peak_live_bytes), (4, 91, 131))

    def steps(self, *steps, **options):
        """Returns what is written of steps: (address, bytes) is an allocation, an address alone is its free; each step has a second."""
        entries = []
        for second, step in enumerate(steps):
            for each in step:
                address, size = each if isinstance(each, tuple) else (each, 0)
                entries.append({"action": "alloc" if size else "free_completed", "addr": address, "size": size, "stream": 0, "time_us": second})
        written = self.Written()
        requests = _requests.Requests(written)
        requests.write(entries, range(1, len(steps)), **options)
        return requests, written.events

    def test_the_second_step_of_a_regular_program_is_the_first_without_what_it_left(self):
        setup, state = [(1, 10)], (5, 20)
        first, second = [(2, 7), state, (3, 8), 2, 3], [(4, 7), (6, 8), 4, 6]
        self.assertTrue(self.steps(setup, first, second)[0].is_regular)
        ran, written = self.steps(setup, first, is_regular=True)
        self.assertEqual(written, self.steps(setup, first, second)[1])
        self.assertEqual((ran.allocations, ran.live_bytes, ran.peak_live_bytes), (6, 30, 45))
        self.assertEqual(self.steps(setup, first)[1], written[:6], "a single step has no second one unless that is asked for")

    def test_other_programs_are_not_regular(self):
        first = [(2, 7), (3, 8), 2, 3]
        for name, steps in {
            "a size": [[], first, [(2, 7), (3, 9), 2, 3]],
            "an order of frees": [[], first, [(2, 7), (3, 8), 3, 2]],
            "more": [[], first, [*first, (4, 1), 4]],
            "what is kept for one step": [[], [(2, 7), (3, 8), 2], [(4, 7), (5, 8), 3, 4]],
            "what the first frees alone": [[(1, 9)], [1, *first], first],
            "a leak": [[], [*first, (5, 1)], [*first, (6, 1)]],
            "three steps": [[], first, first, first],
        }.items():
            self.assertFalse(self.steps(*steps)[0].is_regular, name)


class Asking(unittest.TestCase):
    """The search for a batch, with a step whose peak is a function of the batch."""

    def search(self, peak, lines=True, guess=None, make_step=None, regular=False, **options):
        self.ran = []

        def record(step, path, is_regular=False, **_):
            self.ran.append(1 if is_regular else 2)
            with open(path, "w") as file:
                file.write(str(step()))
            return types.SimpleNamespace(is_regular=regular, unknown=["the GPU"])

        def ask(_, *arguments):
            capacity, traces = 1000, [each.partition("=")[2].split(":") for each in arguments if each.startswith("--trace=")]
            rows = []
            for batch, path in traces:
                with open(path) as file:
                    bytes = int(file.read())
                rows.append({"batch": int(batch), "peak_reserved_bytes": bytes, "least_capacity_bytes": bytes, "fits": bytes <= capacity})
            is_known = lines and len(rows) > 2
            (*_, low, high), expected = [{}, *rows], None
            if lines and len(rows) == 2 and high["least_capacity_bytes"] > low["least_capacity_bytes"]:
                grown = (high["least_capacity_bytes"] - low["least_capacity_bytes"]) // (high["batch"] - low["batch"])
                expected = high["batch"] + (capacity - high["least_capacity_bytes"]) // grown
            return {"by": "lines" if is_known else "traces", "difference": None if is_known else "conv", "largest_batch": guess, "expected_batch": expected, "traces": rows, "capacity_bytes": capacity, "fixed_bytes": 0}

        with mock.patch.object(_fit, "record", record), mock.patch.object(_fit, "_ask", ask), mock.patch.object(_fit, "command", lambda: "omniheap"):
            return omniheap.fit.largest_batch(make_step or (lambda batch: lambda: peak(batch)), 1000, **options)

    def test_an_answer_on_the_lines_is_traced_itself(self):
        found = self.search(lambda batch: 10 * batch, guess=100)
        self.assertEqual((found.batch, found.peak_reserved_bytes, found.traced), (100, 1000, [2, 4, 100]))
        found = self.search(lambda batch: 10 * batch, guess=90)
        self.assertEqual((found.batch, found.peak_reserved_bytes, found.traced), (90, 900, [2, 4, 90, 100]))

    def test_a_guess_that_does_not_fit_is_not_said(self):
        found = self.search(lambda batch: 10 * batch + (50 if batch > 50 else 0), guess=100)
        self.assertEqual((found.batch, found.by), (95, "lines"))
        self.assertEqual(self.search(lambda batch: 2000, guess=None).batch, 0)

    def test_without_lines_candidates_are_traced(self):
        for largest in (0, 1, 2, 7, 63, 64, 65):
            found = self.search(lambda batch: 1000 if batch <= largest else 1001, lines=False, most=100)
            self.assertEqual((found.batch, found.difference), (largest, "conv"))
        self.assertEqual(self.search(lambda batch: 1, lines=False, most=100).batch, 100)

    def test_large_batches_of_regular_programs_run_one_step(self):
        self.search(lambda batch: 10 * batch, guess=90, regular=True)
        self.assertEqual(self.ran, [2, 2, 1, 1])
        self.search(lambda batch: 10 * batch, guess=90)
        self.assertEqual(self.ran, [2, 2, 2, 2])

    def test_a_jump_takes_few_traces(self):
        for largest in (299, 300, 877):
            found = self.search(lambda batch: batch + (50000 if batch > largest else 0), lines=False)
            self.assertEqual(found.batch, largest)
            self.assertLess(len(found.traced), 24)

    def test_nothing_above_the_most_is_said(self):
        for most in (1, 2, 3, 4, 5, 8):
            found = self.search(lambda batch: 1000 if batch <= 7 else 1001, lines=False, most=most)
            self.assertEqual(found.batch, min(most, 7))

    def test_candidates_are_looked_for_where_peaks_let_expect_them(self):
        # Sizes are lines nearly, and small batches show another slope than large ones.
        found = self.search(lambda batch: 300 + max(batch, 3) + batch // 7, lines=False, most=1 << 16)
        self.assertEqual(found.batch, 613)
        self.assertLess(len(found.traced), 12)

    def test_a_batch_that_nearly_fits_is_traced(self):
        # From 995 and 999, 1000 is expected to need 1001.
        found = self.search(lambda batch: 1000 if 997 <= batch <= 1001 else batch + (batch > 200), lines=False)
        self.assertEqual(found.batch, 1001)

    def test_batches_that_are_padded_are_followed_to_the_last_that_fits(self):
        for padding in (7, 8, 64):
            for largest in (98 // padding * padding, 6 * padding, 14 * padding):
                # The largest batch fills the device, so that the slope from the step of the padding is too steep for a larger one.
                found = self.search(lambda batch: -(-batch // padding) * padding * 1000 // largest, lines=False)
                self.assertEqual(found.batch, largest, padding)
                self.assertIn(found.batch + 1, found.traced, "the next one shows that no larger one fits")
                self.assertLess(len(found.traced), 24)
                self.assertLess(max(found.traced), 2000)

    def test_without_the_command_nothing_is_recorded(self):
        step = lambda: self.fail("recorded")
        with mock.patch.dict(os.environ, OMNIHEAP_COMMAND="/nowhere/omniheap"):
            for ask in (lambda: omniheap.fit.fit(step, "24GiB"), lambda: omniheap.fit.largest_batch(step, "24GiB"), lambda: omniheap.fit.plan_step(step, "24GiB")):
                with self.assertRaisesRegex(OmniheapError, "^the command `omniheap-lab` is not found beside /nowhere/omniheap, which OMNIHEAP_COMMAND names, .* install it with `cargo install --path lab/cli`$"):
                    ask()

    def test_sizes_are_whole_numbers_of_any_library(self):
        class Number:
            def __index__(self):
                return 24 << 30

        for size in (24 << 30, Number(), "24GiB", " 24 g "):
            self.assertIn(f"--capacity={24 << 30}", _fit._room(size, "torch", 0, {})[1])
        for wrong in ("24GB", 24e9, -1, True, "", None):
            with self.assertRaisesRegex(OmniheapError, f"capacity is no size: {wrong!r}.*'24GiB'.*powers of 1024"):
                _fit._room(wrong, "torch", 0, {})

    def test_a_quarter_of_what_is_expected_is_traced_first(self):
        for capacity, medium in ((1000, 250), (100, 25), (50, 16), (10, 10)):
            found = self.search(lambda batch: batch * 1000 // capacity, lines=False)
            self.assertEqual((found.batch, found.traced[2]), (capacity, medium))
        self.assertEqual(self.search(lambda batch: -(-batch // 10), lines=False).traced[2], 256)

    def test_a_batch_for_which_the_gpu_has_no_room_does_not_fit(self):
        class OutOfMemoryError(Exception):
            pass

        def peak(batch):
            if batch > 40:
                raise OutOfMemoryError
            return 10 * batch

        found = self.search(peak, lines=False)
        self.assertEqual((found.batch, found.peak_reserved_bytes), (40, 400))

        def make_step(batch):
            # The model may be made before the step, too.
            bytes = peak(batch)
            return lambda: bytes

        self.assertEqual(self.search(peak, make_step=make_step, lines=False).batch, 40)
        models = []

        class Cycle:
            def __init__(self):
                self.me = self
                models.append(weakref.ref(self))

        def make_step(batch):
            if any(model() for model in models):
                raise OutOfMemoryError
            model = Cycle()
            return lambda: 10 * batch if model else None

        self.assertEqual(self.search(peak, make_step=make_step, lines=False).batch, 100, "models of batches before are in no way")
        with self.assertRaisesRegex(OmniheapError, "batch 4 does not run"):
            self.search(lambda batch: 10 if batch < 4 else peak(100))

    def test_steps_on_a_gpu_have_no_labels(self):
        asked = []

        def record(step, path, **options):
            asked.append(options)
            raise ZeroDivisionError

        for options in ({}, {"fake": False}, {"fake": False, "device": "cpu"}, {"fake": False, "labels": True}):
            with mock.patch.object(_fit, "record", record), mock.patch.object(_fit, "command", lambda: "omniheap"), self.assertRaises(ZeroDivisionError):
                omniheap.fit.largest_batch(lambda batch: lambda: None, 1000, **options)
        self.assertEqual([each.get("labels", True) for each in asked], [True, False, True, True])

    def test_what_was_measured_beside_pytorch_is_no_room(self):
        workspaces = Workspaces("H200", "2.11", fixed_bytes=500)
        for options, room in (({}, 0), ({"workspaces": workspaces}, 500), ({"workspaces": workspaces, "fixed": 7}, 7)):
            fixed = options.pop("fixed", None)
            self.assertIn(f"--fixed={room}", _fit._room(1000, "torch", fixed, options)[1])

    def test_bad_arguments_are_refused(self):
        step = lambda: None
        for call, word in (
            (lambda: omniheap.fit.fit(step, 2.5), "capacity"),
            (lambda: omniheap.fit.fit(step, True), "capacity"),
            (lambda: omniheap.fit.fit(step, "24GiB", allocator="malloc"), "expandable"),
            (lambda: omniheap.fit.fit(step, "24GiB", fixed=-1), "fixed"),
            (lambda: omniheap.fit.largest_batch(step, "24GiB", most=0), "most"),
            (lambda: omniheap.fit.largest_batch(3, "24GiB"), "make_step"),
            (lambda: omniheap.fit.record_step(step, labels=False), "fake=False"),
            (lambda: omniheap.fit.record_step(step, steps=True), "steps is True"),
            (lambda: self.search(lambda batch: 1, lines=False, most=1) and _fit._Search(lambda batch: 5, (), "/nowhere", {}).record(1), "returned 5"),
        ):
            with self.assertRaises(OmniheapError) as caught:
                call()
            self.assertIn(word, str(caught.exception))

    def test_pytorch_is_needed_to_record(self):
        old = type(sys)("torch")
        old.__version__, old._C = "2.3", object()
        for module, word in ((None, "install it"), (old, "tested with 2.11 alone")):
            stand_in(self, {"torch": module})
            with self.assertRaises(OmniheapError) as caught:
                omniheap.fit.record_step(lambda: None, "never.omt")
            self.assertIn(word, str(caught.exception))
        self.assertFalse(os.path.exists("never.omt"))

    def test_the_command_is_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            command = os.path.join(folder, "omniheap-lab")
            with open(command, "w") as file:
                file.write(f"#!{sys.executable}\nimport json, sys\nif 'bad' in sys.argv: sys.exit('omniheap: no such thing')\nprint(json.dumps(sys.argv[1:]))\nsys.exit(1)\n")
            os.chmod(command, 0o755)
            with mock.patch.dict(os.environ, OMNIHEAP_COMMAND=os.path.join(folder, "omniheap")):
                self.assertEqual(_fit._ask("fit", "x"), ["fit", "x", "--json"])
                with self.assertRaises(OmniheapError) as caught:
                    _fit._ask("bad")
                self.assertIn("no such thing", str(caught.exception))
            with mock.patch.dict(os.environ, {"PATH": folder + "/none"}, clear=True), self.assertRaises(OmniheapError) as caught:
                _fit._ask("fit")
            self.assertIn("cargo install", str(caught.exception))


@unittest.skipUnless(_HAS_TORCH, "PyTorch is not installed")
class Steps(unittest.TestCase):
    """Steps on fake tensors; no GPU is needed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "step.omt")

    def labels(self, step, **options):
        """Records, and returns for each allocation its label and size, in order of birth."""
        kept = []
        born = Ledger.born
        with mock.patch.object(Ledger, "born", lambda *arguments, **more: kept.append(born(*arguments, **more)) or kept[-1]):
            self.recording = omniheap.fit.record_step(step, self.path, **options)
        return [("/".join(life.name()), life.size) for life in kept]

    def step(self, device="cuda"):
        import torch

        def setup():
            blocks = [torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)) for _ in range(2)]
            model = torch.nn.Sequential(*blocks).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

            def step():
                model(torch.ones(32, 64, device=device)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

            return step

        return setup

    def test_labels_say_what_a_storage_was_for(self):
        labels = self.labels(self.step())
        by = lambda start: [label for label, _ in labels if label.startswith(start)]
        self.assertEqual(len(by("parameter/")), 8)
        self.assertIn("parameter/0/0/weight float32[256x64]", by("parameter/"))
        self.assertEqual(len(by("gradient/")), 16, "of two steps")
        self.assertIn("optimizer/1/2/weight/exp_avg_sq float32[64x256]", by("optimizer/"))
        self.assertIn("activation/0/1/aten.gelu.default float32", by("activation/"))
        outputs = {label for label in by("activation/") if "[output]" in label}
        self.assertEqual(outputs, {f"activation/{block}/2/aten.addmm.default[output] float32" for block in (0, 1)})
        self.assertTrue(any("[backward]" in label for label in by("temporary/0/")))
        self.assertTrue(any("_foreach_sqrt" in label and "[optimizer]" in label for label in by("temporary/AdamW/")))
        self.assertEqual(self.recording.leaked_bytes, 0)

    def test_fake_tensors_live_as_real_ones_do(self):
        fake = self.labels(self.step())
        fakes_peak = self.recording.peak_live_bytes
        real = self.labels(self.step("cpu"), fake=False, device="cpu")
        # Copies from the host to the device are made once, and only on the fake device.
        made = len([label for label, _ in fake if label.startswith("parameter/")])
        self.assertEqual(made, len([label for label, _ in real if label.startswith("parameter/")]))
        # On the host the optimizer's scalars live there too.
        of_steps = lambda labels: [each for each in labels if not each[0].startswith(("parameter/", "optimizer/", "input/")) and each[1] > 4]
        self.assertEqual([size for _, size in of_steps(fake)], [size for _, size in of_steps(real)])
        self.assertAlmostEqual(fakes_peak, self.recording.peak_live_bytes, delta=256)

    def test_what_was_there_before_is_no_allocation(self):
        import torch

        weight, bias = torch.ones(64, 64, requires_grad=True), torch.zeros(64)

        def step():
            bias.add_(1)
            return (weight.detach().view(-1)[:64] + bias).sum()

        sizes = [size for _, size in self.labels(lambda: step, fake=False, device="cpu", steps=1)]
        self.assertEqual(sizes, [256, 4])

    def test_autocast_and_checkpoints_are_followed(self):
        import torch
        from torch.utils.checkpoint import checkpoint

        def setup():
            blocks = [torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Dropout(0.5)).cuda() for _ in range(2)]

            def step():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    for block in blocks:
                        value = checkpoint(block, torch.ones(8, 64, device="cuda"), use_reentrant=False)
                value.sum().backward()

            return step

        labels = [label for label, _ in self.labels(setup)]
        self.assertTrue(any(label.endswith("aten.addmm.default[backward] bfloat16") for label in labels), labels)
        self.assertTrue(any("native_dropout" in label and label.endswith("bool") for label in labels), labels)

    def test_autocast_is_that_of_a_gpu(self):
        import torch

        found = {}

        def step():
            weight = torch.ones(8, 8, device="cuda", requires_grad=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                half = torch.ones(8, 8, device="cuda") @ weight
                made = dict(half=half, softmax=half.softmax(-1), sum=half.sum(), norm=torch.nn.functional.layer_norm(half, (8,)), gelu=torch.nn.functional.gelu(half))
            sum(each.float().sum() for each in made.values()).backward()
            found.update({name: str(each.dtype) for name, each in made.items()}, gradient=str(weight.grad.dtype), is_cuda=weight.grad.is_cuda)

        omniheap.fit.record_step(step, self.path)
        single, half = "torch.float32", "torch.bfloat16"
        self.assertEqual(found, dict(half=half, softmax=single, sum=single, norm=single, gelu=half, gradient=single, is_cuda=True))

    def test_autocast_has_all_operators_of_a_gpu_and_casts_in_its_order(self):
        import torch
        from omniheap.fit import _autocast

        has = lambda name: torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
        theirs = {name[len("aten::"):] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and has(name)}
        ours = {*_autocast._IN_HALF, *_autocast._IN_FLOAT, *_autocast._TO_FLOAT, *_autocast._IN_WIDEST}
        # Names of dimensions are not followed; the first asks the device, the second is refused by autocast.
        rest = {name for name in theirs - ours if "imname" not in name} - {"_cudnn_rnn", "binary_cross_entropy"}
        self.assertEqual((ours - theirs, rest), (set(), set()))

        def step(device):
            def run():
                layer = torch.nn.Linear(8, 32, device=device)
                with torch.autocast(device, dtype=torch.bfloat16):
                    layer(torch.ones(16, 8, device=device)).sum().backward()

            return run

        casts = lambda *given, **options: [size for label, size in self.labels(*given, **options) if "_to_copy" in label and "backward" not in label]
        # The compiled casts run on a CPU; bias, weight, input.
        self.assertEqual(casts(step("cpu"), fake=False, device="cpu")[:3], [64, 512, 256])
        self.assertEqual(casts(step("cuda"))[:3], [64, 512, 256])

    def test_interpolation_is_in_single_precision_under_autocast(self):
        import torch

        found = []

        def step():
            image = torch.ones(1, 4, 8, 8, device="cuda", dtype=torch.bfloat16)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                found.append(torch.nn.functional.interpolate(image, scale_factor=2))
                found.append(torch.addcmul(image, image, image.float()))

        omniheap.fit.record_step(step, self.path)
        self.assertEqual([each.dtype for each in found], [torch.float32] * 2)

    def test_attention_is_the_one_that_the_program_allows(self):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def labels(dtype, *backends):
            def step():
                query = torch.ones(2, 4, 32, 16, device="cuda", dtype=dtype)
                with sdpa_kernel(list(backends)):
                    torch.nn.functional.scaled_dot_product_attention(query, query, query)

            return " ".join(label for label, _ in self.labels(step))

        flash, efficient, plain = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
        self.assertIn("_flash_attention", labels(torch.bfloat16, flash, efficient, plain))
        self.assertIn("_efficient_attention", labels(torch.bfloat16, efficient, plain))
        self.assertIn("_efficient_attention", labels(torch.float32, flash, efficient, plain))
        self.assertRegex(labels(torch.bfloat16, plain), "softmax")
        self.assertNotIn("_attention", labels(torch.bfloat16, plain))

    def test_attention_without_a_fused_kernel_is_that_of_a_gpu(self):
        import torch

        def labels(width=64, dtype=torch.float32, transposed=True, **options):
            def step():
                query = torch.randn(2, 8, 128, width, device="cuda", dtype=dtype, requires_grad=True)
                bias = torch.randn(128, 128, 8, device="cuda", dtype=dtype, requires_grad=True).permute(2, 0, 1)[None]
                bias = bias if transposed else bias.contiguous()
                torch.nn.functional.scaled_dot_product_attention(query, query, query, bias, dropout_p=0.1).sum().backward()

            return self.labels(step, **options)

        self.assertIn("_efficient_attention", str(labels(transposed=False)))
        self.assertIn("_efficient_attention", str(labels(transposed=False, dtype=torch.bfloat16)))
        # Rows of the bias are apart, or those of queries are not aligned.
        for width, dtype, transposed in ((64, torch.float32, True), (64, torch.bfloat16, True), (30, torch.float32, False), (36, torch.bfloat16, False)):
            found = labels(width, dtype, transposed)
            self.assertNotIn("_attention", str(found))
            scores = 2 * 8 * 128 * 128
            sizes = lambda *words: [size for label, size in found if all(word in label for word in words) and "workspace" not in label]
            # In 32 bits, with a byte for each that is dropped; the bias is added in place.
            self.assertEqual((sizes("_safe_softmax"), sizes("native_dropout.default")), ([4 * scores], [4 * scores, scores]))
            self.assertNotIn(4 * scores, sizes("add.Tensor"))

    def test_rows_are_padded_for_flash_attention(self):
        import torch

        def step():
            query = torch.randn(2, 8, 128, 30, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            result = torch.nn.functional.scaled_dot_product_attention(query, query, query)
            self.assertEqual(result.shape, query.shape)
            result.sum().backward()
            self.assertEqual(query.grad.shape, query.shape)

        found = self.labels(step, steps=1)
        self.assertIn(2 * 8 * 128 * 32 * 2, [size for label, size in found if "_flash_attention.default" in label])
        self.assertEqual(len([label for label, _ in found if "constant_pad_nd.default" in label and "activation" in label]), 3)

    def test_recurrent_layers_keep_what_cudnn_keeps(self):
        import torch

        # Measured on an H200: bytes that a layer keeps for its backward pass.
        for kind, layers, both, dtype, batch, time, hidden, dropout, bytes in (
            ("LSTM", 1, False, torch.float32, 8, 16, 256, 0, 655616),
            ("LSTM", 2, False, torch.float32, 8, 16, 256, 0.2, 1446144),
            ("LSTM", 2, True, torch.float32, 8, 16, 256, 0.2, 2900224),
            ("LSTM", 2, False, torch.bfloat16, 16, 64, 512, 0.2, 11600128),
            ("GRU", 3, False, torch.float32, 8, 16, 256, 0.2, 2629888),
            ("GRU", 1, True, torch.float32, 8, 16, 256, 0, 1573120),
            ("RNN", 3, False, torch.float32, 8, 16, 256, 0.2, 663808),
        ):
            found = {}

            def step():
                model = getattr(torch.nn, kind)(hidden, hidden, layers, batch_first=True, bidirectional=both, dropout=dropout, device="cuda", dtype=dtype)
                output, _ = model(torch.randn(batch, time, hidden, device="cuda", dtype=dtype, requires_grad=True))
                output.sum().backward()
                found.update(output=output.shape, gradients=[each.grad.shape == each.shape for each in model.parameters()], buffers={each.grad.untyped_storage()._cdata for each in model.parameters()})

            self.assertIn(bytes, [size for label, size in self.labels(step, gpu=_GPU) if label.startswith("activation") and "uint8" in label], (kind, layers, both))
            self.assertEqual((found["output"], all(found["gradients"]), len(found["buffers"])), ((batch, time, hidden * (1 + both)), True, 1))
            self.assertLess(self.recording.allocations, 60, "not one for each step of time")

    def test_recurrent_layers_share_a_workspace(self):
        import torch

        # Measured on an H200: MiB of the workspace.
        for kind, layers, both, batch, time, hidden, mib in (
            ("LSTM", 2, False, 16, 256, 1024, 177),
            ("LSTM", 2, False, 274, 256, 1024, 1745),
            ("LSTM", 1, False, 2048, 64, 512, 1596),
            ("GRU", 1, False, 512, 64, 1024, 810),
            ("GRU", 2, True, 32, 128, 512, 175),
            ("GRU", 2, True, 512, 128, 512, 1882),
            ("RNN", 2, False, 512, 128, 512, 694),
        ):
            def step():
                model = getattr(torch.nn, kind)(hidden, hidden, layers, batch_first=True, bidirectional=both, device="cuda")
                model(torch.randn(batch, time, hidden, device="cuda", requires_grad=True))[0].sum().backward()

            sizes = [size for label, size in self.labels(step, steps=1, gpu=_GPU) if label.startswith("temporary") and "uint8" in label and "libraries" not in label]
            self.assertTrue(any(abs(size / (mib << 20) - 1) < 0.02 for size in sizes), (kind, layers, both, batch, sizes))

    def test_gradients_of_recurrent_layers_are_in_the_order_of_time(self):
        import torch

        def step():
            data = torch.randn(4, 9, 8, device="cuda", requires_grad=True) * 2
            data.register_hook(lambda gradient: found.append(gradient.transpose(0, 1).is_contiguous()))
            torch.nn.GRU(8, 16, batch_first=True, device="cuda")(data)[0].sum().backward()

        found = []
        self.labels(step, steps=1)
        self.assertEqual(found, [True])

    def test_recurrent_layers_that_cudnn_gets_otherwise_are_followed(self):
        import torch

        def runs(make, **options):
            def step():
                model = torch.nn.LSTM(8, 16, 2, device="cuda", **options)
                result, _ = make(model)
                (result if isinstance(result, torch.Tensor) else result.data).sum().backward()
                self.assertEqual(model.weight_ih_l0.grad.shape, (64, 8))

            return any("uint8" in label for label, _ in self.labels(step, steps=1) if label.startswith("activation"))

        data = lambda *shape: torch.randn(*shape, device="cuda")
        self.assertTrue(runs(lambda model: model(data(5, 3, 8))))
        self.assertTrue(runs(lambda model: model(data(5, 8))), "one sequence")
        self.assertFalse(runs(lambda model: model(data(5, 3, 8)), proj_size=4), "PyTorch's own cells")
        with self.assertRaisesRegex(OmniheapError, "reads bytes"):
            runs(lambda model: model(torch.nn.utils.rnn.PackedSequence(data(11, 8), torch.tensor([3, 3, 2, 2, 1]))))

    def test_attention_of_cudnn_comes_first_where_pytorch_prefers_it(self):
        import torch

        def labels(version, dtype=torch.bfloat16, length=16, mask=None):
            def step():
                query = torch.ones(2, 4, length, 64, device="cuda", dtype=dtype, requires_grad=True)
                torch.nn.functional.scaled_dot_product_attention(query, query, query, mask and torch.ones(length, length, device="cuda", dtype=torch.bool)).sum().backward()

            with mock.patch.object(torch.backends.cudnn, "version", lambda: version):
                return " ".join(label for label, _ in self.labels(step))

        self.assertIn("_cudnn_attention_backward", labels(91900))
        self.assertIn("_cudnn_attention_backward", labels(91900, mask=True))
        for others in (labels(91500), labels(None), labels(91900, length=1), labels(91900, torch.float32)):
            self.assertNotIn("cudnn", others)
        with mock.patch.dict(os.environ, TORCH_CUDNN_SDPA_DEPRIORITIZED="1"):
            self.assertIn("_flash_attention", labels(91900))

    def test_sums_of_gradients_have_the_bytes_of_their_first_part(self):
        import torch

        def step(takes):
            x = torch.ones(64, 1024, device="cuda", requires_grad=True)
            y = x * 2
            # Each branch has a gradient for y, and they are added one by one.
            takes(y).backward()

        def sums(takes):
            return [label for label, size in self.labels(lambda: step(takes)) if "aten.add.Tensor[backward]" in label]

        self.assertEqual(sums(lambda y: (y * 3 + y * 4 + y * 5).sum()), [])
        # The gradient of a view is no tensor of its own while the view's is there.
        self.assertEqual(len(sums(lambda y: (y.view(-1) * 3).sum() + (y.view(-1) * 4).sum())), 1)

    def test_a_bias_is_added_in_place(self):
        import torch

        def added(*shape, is_turned=False, dtype=None):
            def step():
                layer, data = torch.nn.Linear(256, 256).cuda(), torch.ones(*shape, device="cuda")
                with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
                    layer(data.transpose(0, 1) if is_turned else data).sum().backward()

            return [label for label, size in self.labels(step) if "aten.add" in label and "backward" not in label]

        for found in (added(4, 8, 256), added(4, 8, 256, is_turned=True), added(2, 4, 8, 256), added(2, 4, 8, 256, dtype=torch.bfloat16)):
            self.assertEqual([label for label in found if "aten.addmm" not in label], [])

    def test_memory_belongs_to_the_stream_that_asks(self):
        import torch

        def step():
            side, other = torch.cuda.Stream(), torch.cuda.Stream()
            kept = [torch.ones(256, device="cuda")]
            with torch.cuda.stream(side):
                kept.append(torch.ones(256, device="cuda"))
                with torch.cuda.stream(other), torch.cuda.stream(None):
                    kept.append(torch.ones(256, device="cuda"))
                with torch.cuda.stream(torch.cuda.current_stream()):
                    kept.append(torch.ones(256, device="cuda"))
            kept.append(torch.ones(256, device="cuda"))

        streams, allocate = [], Writer.allocate
        with mock.patch.object(Writer, "allocate", lambda *given: streams.append(given[4]) or allocate(*given)):
            omniheap.fit.record_step(step, self.path)
        self.assertEqual(streams, [0, 1, 2, 1, 0])

    def test_rows_of_one_text_need_no_mask(self):
        import torch

        masks = types.SimpleNamespace(find_packed_sequence_indices=lambda positions: positions.cumsum(-1))
        seen = []

        def step():
            seen.append(masks.find_packed_sequence_indices(torch.ones(2, 8, device="cuda")))

        stand_in(self, {"transformers.masking_utils": masks})
        self.labels(lambda: torch.ones(1, device="cuda") is not None and step())
        self.assertEqual(seen, [None])
        self.assertEqual(masks.find_packed_sequence_indices(torch.ones(1, 2)).tolist(), [[1, 2]])

    def test_copies_of_modules_are_followed(self):
        import torch

        def setup():
            model = torch.nn.Linear(64, 64).cuda()
            averaged = copy.deepcopy(model)  # As models of averaged weights are made.
            optimizer = torch.optim.SGD(model.parameters(), 0.1)

            def step():
                model(torch.ones(32, 64, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                averaged(torch.ones(32, 64, device="cuda"))

            return step

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            labels = self.labels(setup)
        weights = [label for label, size in labels if label.startswith("parameter/") and size == 64 * 64 * 4]
        self.assertEqual(weights, ["parameter/weight float32[64x64]", "parameter/Linear/weight float32[64x64]"])

    def test_models_of_the_host_may_be_copied(self):
        import torch

        def setup():
            # The encoder makes its layers by copies of one.
            model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16), 3, enable_nested_tensor=False).cuda()

            return lambda: model(torch.ones(4, 2, 8, device="cuda")).sum().backward()

        weights = [label for label, _ in self.labels(setup) if label.startswith("parameter/") and "linear1/weight" in label]
        self.assertEqual(len(weights), 3)

    def test_pytorch_is_as_it_was(self):
        import torch

        before = (torch.nn.functional.dropout, torch.utils.swap_tensors, torch.cuda.is_bf16_supported, torch.amp.autocast_mode.autocast.__exit__)
        omniheap.fit.record_step(self.step(), self.path, steps=1)
        after = (torch.nn.functional.dropout, torch.utils.swap_tensors, torch.cuda.is_bf16_supported, torch.amp.autocast_mode.autocast.__exit__)
        self.assertEqual(before, after)

    def test_steps_are_recorded_one_after_the_other(self):
        import torch

        refused = []

        def record():
            try:
                omniheap.fit.record_step(self.step(), self.path + "2", steps=1)
            except OmniheapError as error:
                refused.append(str(error))

        def step():
            record()
            other = threading.Thread(target=record)
            other.start()
            other.join()
            return self.step()()

        before = (torch.nn.functional.dropout, torch.utils.swap_tensors, torch.amp.autocast_mode.autocast.__exit__)
        omniheap.fit.record_step(step, self.path, steps=1)
        self.assertEqual(before, (torch.nn.functional.dropout, torch.utils.swap_tensors, torch.amp.autocast_mode.autocast.__exit__))
        self.assertEqual(len(refused), 2)
        self.assertIn("already", refused[1])
        self.assertFalse(os.path.exists(self.path + "2"))
        with self.assertRaises(ZeroDivisionError):
            omniheap.fit.record_step(lambda: 1 / 0, self.path)
        record()
        self.assertEqual(len(refused), 2, "a step that failed is over")

    def test_cycles_end_with_their_step(self):
        import torch

        class Node:
            def __init__(self, **options):
                self.me, self.bytes = self, torch.ones(1 << 20, **options)

        for kept in (0, 1):

            def setup():
                nodes = []

                def step():
                    nodes.append(Node(device="cuda"))
                    del nodes[: len(nodes) - kept]

                return step

            for steps in (2, 3, 4):
                recording = omniheap.fit.record_step(setup, self.path, steps=steps)
                self.assertEqual((recording.leaked_bytes, recording.peak_live_bytes), (0, (1 + kept) << 22), (kept, steps))

    def test_the_collector_is_as_it_was(self):
        # Python 3.12 freezes some itself.
        before = gc.get_freeze_count()
        omniheap.fit.record_step(self.step(), self.path, steps=1)
        self.assertTrue(gc.isenabled())
        self.assertLessEqual(gc.get_freeze_count(), before)
        self.addCleanup(gc.unfreeze)
        gc.freeze()
        frozen = gc.get_freeze_count()
        gc.disable()
        self.addCleanup(gc.enable)
        omniheap.fit.record_step(self.step(), self.path, steps=1)
        self.assertFalse(gc.isenabled())
        # Some of what was frozen has died meanwhile.
        self.assertGreater(gc.get_freeze_count(), frozen // 2)

    def test_other_devices_are_left_out(self):
        import torch

        def step():
            torch.ones(256, device="cuda:1")
            return torch.ones(64, device="cuda").to("cuda:0").to(torch.float64).sum()

        sizes = [size for _, size in self.labels(step, device="cuda")]
        self.assertEqual(sizes, [256, 512, 8], "a copy to the same device is none")

    def test_a_leak_between_steps_is_counted(self):
        import torch

        kept = []
        step = lambda: lambda: kept.append(torch.ones(256, device="cuda"))
        self.assertEqual(omniheap.fit.record_step(step, self.path, steps=3).leaked_bytes, 1024)

    def test_a_step_that_asks_the_driver_is_explained(self):
        import torch

        if torch.cuda.is_available():
            self.skipTest("there is a driver to ask")
        for ask in (torch.cuda.mem_get_info, lambda: torch.Generator(device="cuda")):
            with self.assertRaises(OmniheapError) as caught:
                omniheap.fit.record_step(ask, self.path)
            self.assertIn("asks the driver", str(caught.exception))

    def test_what_fake_tensors_cannot_is_explained(self):
        import torch

        outside = torch.nn.Linear(4, 4)
        drawn = lambda: torch.randn(4, 4, device="cuda")

        class OptimizedModule(torch.nn.Module):
            def forward(self, value):
                return value

        for step, word in (
            (lambda: bool((drawn() > 0)[0, 0]), "needs a value"),
            (lambda: bool((drawn() > 0).any()), "(test_fit.py, line "),
            (lambda: bool((drawn() > 0).any()), "needs a value"),
            (lambda: int((drawn() > 0).sum()), "needs a value"),
            (lambda: drawn()[: (drawn() > 0).sum()], "needs a value"),
            (lambda: drawn().cpu().numpy(), "reads bytes"),
            (lambda: torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())).cuda()(drawn()).sum().backward(), "scripted"),
            (lambda: torch.nested.nested_tensor([drawn()], layout=torch.jagged) * 2, "nested tensor"),
            (lambda: drawn()[drawn() > 0], "depends on data"),
            (lambda: outside(torch.ones(4, 4)), "inside of the step"),
            (lambda: OptimizedModule()(drawn()), "compiled"),
            (lambda: torch.ones(4), "allocates nothing"),
            ("step", "pass a function"),
        ):
            with self.assertRaises(OmniheapError) as caught:
                omniheap.fit.record_step(step, self.path)
            self.assertIn(word, str(caught.exception))
            self.assertFalse(os.path.exists(self.path), "nothing half done")
        self.assertEqual(os.listdir(os.path.dirname(self.path)), [])

    def test_an_operator_without_a_fake_kernel_is_explained(self):
        import torch

        library = torch.library.Library("omniheap_fit", "DEF")
        self.addCleanup(library._destroy)
        library.define("opaque(Tensor x) -> Tensor")
        library.impl("opaque", lambda x: x.clone(), "CPU")

        library.define("writes(Tensor(a!) x) -> ()")
        library.impl("writes", lambda x: None, "CPU")
        with self.assertRaises(OmniheapError) as caught:
            omniheap.fit.record_step(lambda: torch.ops.omniheap_fit.opaque(torch.ones(4, device="cuda")), self.path)
        self.assertIn("register_fake", str(caught.exception))
        # One that only writes to what it is given needs none.
        self.assertEqual(len(self.labels(lambda: torch.ops.omniheap_fit.writes(torch.ones(4, device="cuda")))), 1)

    def test_fused_optimizers_are_followed(self):
        import torch

        def setup():
            weight = torch.ones(64, device="cuda", requires_grad=True)
            optimizers = [torch.optim.SGD([weight], momentum=0.9, fused=True), torch.optim.AdamW([weight], fused=True)]

            def step():
                weight.sum().backward()
                for each in optimizers:
                    each.step()

            return step

        self.assertEqual(self.bytes_of("optimizer", setup), 64 * 4 + 2 * 64 * 4 + 4)

    def bytes_of(self, category, step, **options):
        return sum(size for label, size in self.labels(step, **options) if label.startswith(f"{category}/"))

    def test_a_scaler_lets_its_optimizer_step(self):
        import torch

        def setup():
            weight = torch.ones(64, device="cuda", requires_grad=True)
            optimizer, scaler = torch.optim.AdamW([weight]), torch.amp.GradScaler("cuda")

            def step():
                scaler.scale(weight.sum()).backward()
                scaler.step(optimizer)
                scaler.update()

            return step

        self.assertEqual(self.bytes_of("optimizer", setup), 2 * 64 * 4)

    def test_values_are_finite(self):
        import torch

        def setup():
            weight = torch.ones(64, device="cuda", requires_grad=True)

            def step():
                y = weight * 2
                if not torch.isfinite(y).all() or y.isnan().any() or torch.any(torch.isinf(y)):
                    y = y.clamp(max=1e4)
                y.sum().backward()

            return step

        names = [label for label, _ in self.labels(setup)]
        self.assertTrue([name for name in names if "aten.mul" in name])
        self.assertFalse([name for name in names if "clamp" in name])
        self.assertFalse("isfinite" in vars(torch.Tensor), "what was replaced is there again")

    def test_values_that_are_known_are_asked_whether_they_are_finite(self):
        import torch

        found = []

        def step():
            rates = torch.tensor([1.0, float("inf")])
            found.append([bool(each) for each in (rates.isinf().any(), rates.isinf().all(), torch.isfinite(rates[1]).all(), torch.isfinite(torch.linspace(0, 1, 8)).all())])
            with torch.inference_mode():
                found.append(bool((torch.ones(8, device="cuda") * 2).isnan().any()))

        self.labels(step, steps=1)
        self.assertEqual(found, [[True, False, False, True], False])

    def test_answers_that_are_written_to_are_none(self):
        import torch

        def marked():
            found = torch.randn(8, device="cuda").isnan()
            found |= torch.randn(8, device="cuda") > 0
            return found.any()

        def combined():
            found = torch.isfinite(torch.randn(8, device="cuda")).all()
            found &= (torch.randn(8, device="cuda") > 2).all()
            return found

        for ask in (marked, combined):
            with self.assertRaisesRegex(OmniheapError, "needs a value"):
                self.labels(lambda: bool(ask()), steps=1)

    def test_whole_numbers_of_the_device_and_what_follows_from_them_have_values(self):
        import torch

        found = {}

        def step():
            widths = (torch.arange(4, device="cuda") * 8.0 + 4).int()
            mask = torch.ones_like(torch.randn(2, 4, device="cuda"), dtype=torch.long)
            mask[:, 3:] = 0
            labels = torch.randint(5, 6, (2, 4), device="cuda")
            data = torch.randn(2, 4, 16, device="cuda")
            found["list"] = widths.tolist()
            found["rows"] = mask.sum(-1).tolist()
            found["taken"] = tuple(data[mask.bool()].shape), tuple(labels.masked_select(mask > 0).shape), tuple(mask.nonzero().shape)
            found["is"] = bool(mask.all()), bool(labels.max() >= 5), torch.equal(labels, labels.clone())
            with torch.inference_mode():
                found["inside"] = torch.tensor([], device="cuda").numel(), bool((torch.ones(4, device="cuda") > 0).all())

        self.labels(step, steps=1)
        self.assertEqual(found.pop("list"), [4, 12, 20, 28])
        self.assertEqual(found, {"rows": [3, 3], "taken": ((6, 16), (6,), (6, 2)), "is": (False, True, True), "inside": (0, True)})

    def test_values_that_something_unknown_is_written_to_are_unknown_in_all_views(self):
        import torch

        def through_a_view(mask):
            mask[0].copy_(torch.randn(4, device="cuda") > 0)

        def drawn(mask):
            mask.random_(0, 2)

        def in_a_list(mask):
            torch._foreach_mul_([mask], [(torch.randn(4, device="cuda") > 0).long()])

        def by_name(mask):
            torch.add((torch.randn(2, 4, device="cuda") > 0).long(), 1, out=mask)

        for writes in (through_a_view, drawn, in_a_list, by_name):
            def step():
                mask = torch.ones(2, 4, dtype=torch.long, device="cuda")
                view = mask.view(-1)[:4]
                writes(mask)
                return int(view.sum())

            with self.assertRaisesRegex(OmniheapError, "needs a value"):
                self.labels(step, steps=1)

    def test_values_end_where_nobody_says_what_is_written(self):
        import torch

        def by_a_norm():
            mean, variance = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
            torch.nn.functional.batch_norm(torch.randn(8, 4, device="cuda"), mean, variance, training=True)
            return mean.sum()

        def by_other_ranks():
            count = torch.ones(1, dtype=torch.long, device="cuda")
            torch.distributed.all_reduce(count)
            return count

        def by_new_data():
            mask = torch.ones(4, dtype=torch.long, device="cuda")
            mask.data = (torch.randn(4, device="cuda") > 0).long()
            return mask.sum()

        def through_a_view_of_another_order():
            mask = torch.zeros_like(torch.randn(3, 4, device="cuda").t(), dtype=torch.long)
            mask.t().view(-1).copy_(torch.randn(12, device="cuda") > 0)
            return mask.sum()

        def by_a_comparison():
            found = torch.randn((), device="cuda") < 2
            return found.logical_not_()

        def on_the_host():
            found = torch.randn((), device="cuda").cpu().isnan()
            return found.logical_not_()

        for ask in (by_a_norm, by_other_ranks, by_new_data, through_a_view_of_another_order, by_a_comparison, on_the_host):
            with self.assertRaisesRegex(OmniheapError, "needs a value"):
                self.labels(lambda: int(ask()), steps=1, world=2)

    def test_values_are_in_the_order_of_their_tensors(self):
        import torch

        def step():
            numbers = torch.zeros_like(torch.randn(3, 4, device="cuda").t(), dtype=torch.long)
            numbers[0, 1] = 7
            found.append(numbers.as_strided((12,), (1,)).tolist().index(7))

        found = []
        self.labels(step, steps=1)
        self.assertEqual(found, [4])

    def test_values_of_the_device_that_are_known_are_asked_whether_they_are_finite(self):
        import torch

        def step():
            torch.randn(8, device="cuda")
            found.append(bool(torch.tensor(float("inf")).cuda().isinf()))
            found.append(bool(torch.full((4,), float("-inf"), device="cuda").isinf().any()))

        found = []
        self.labels(step, steps=1)
        self.assertEqual(found, [True, True])

    def test_sizes_are_never_a_number_that_is_not_known(self):
        import torch

        count = lambda: (torch.randn(4, device="cuda") > 0).sum()
        for size in (
            lambda: torch.arange(count(), device="cuda"),
            lambda: torch.randn(8, device="cuda").narrow(0, count(), 2),
            lambda: torch.empty(count(), device="cuda"),
            lambda: torch.empty(int(count() * 0.5), device="cuda"),
        ):
            with self.assertRaisesRegex(OmniheapError, "needs a value"):
                self.labels(size, steps=1)

    def test_values_go_from_the_device_to_the_host(self):
        import torch

        def step():
            found.append(torch.arange(4, device="cuda").cpu().tolist())
            found.append(torch.tensor([1, 0, 1]).nonzero().device.type)
            found.append(torch.arange(3).repeat_interleave(torch.tensor([1, 2, 3])).tolist())

        found = []
        self.labels(step, steps=1)
        self.assertEqual(found, [[0, 1, 2, 3], "cpu", [0, 1, 1, 2, 2, 2]])

    def test_what_the_device_draws_changes_nothing_on_the_host(self):
        import torch

        def step():
            torch.manual_seed(0)
            first = torch.rand(1).item()
            torch.manual_seed(0)
            drawn = [torch.randint(0, 1 << 30, (8,), device="cuda").tolist() for _ in range(2)]
            found.append((first == torch.rand(1).item(), drawn[0] == drawn[1], drawn))

        found = []
        for _ in range(2):
            self.labels(step, steps=1)
        self.assertEqual(found[0][:2], (True, False))
        self.assertEqual(found[0], found[1], "a step is recorded twice in the same way")

    def test_a_number_that_is_read_is_one_and_said(self):
        import torch

        def setup():
            weight = torch.randn(64, device="cuda", requires_grad=True)
            optimizer = torch.optim.Adafactor([weight])

            def step():
                loss = weight.square().mean()
                if torch.isnan(loss):
                    raise ValueError("it is not")
                loss.backward()
                optimizer.step()
                found[:] = loss.item(), loss.detach().cpu().item(), (weight > 0).sum().item(), bool(loss < 2), bool(loss.detach() > loss + 1), max(2.0, loss), f"{loss:.2f}"

            return step

        found = []
        with self.assertWarnsRegex(UserWarning, r"a number is read from a fake tensor \(test_fit.py, line \d+\), and 1.0"):
            self.labels(setup)
        self.assertEqual(found[:3], [1.0, 1.0, 1.0])
        self.assertEqual(found[3:], [True, False, 2.0, "1.00"])
        self.assertIsInstance(found[2], float)

    def test_a_loss_of_sequences_has_a_table_for_the_longest(self):
        import torch

        def step():
            chances = torch.randn(50, 2, 8, device="cuda", requires_grad=True)
            labels, lengths = torch.randint(1, 8, (2, 12), device="cuda"), torch.tensor([12, 7], device="cuda")
            torch.nn.functional.ctc_loss(chances.log_softmax(-1), labels, torch.full((2,), 50, device="cuda"), lengths).backward()

        labels = self.labels(step, steps=1)
        table = 2 * 50 * (2 * 12 + 1) * 4
        self.assertIn(("activation/aten._ctc_loss.Tensor float32", table), labels)
        self.assertIn(("temporary/aten._ctc_loss_backward.Tensor[backward] float32", 50 * 2 * 8 * 4), labels)

    def test_functions_that_are_scripted_run_as_they_were(self):
        import torch

        def scaled(x, factor: float):
            return x * torch.tensor(factor)

        scripted = torch.jit.script(scaled)
        labels = self.labels(lambda: scripted(torch.randn(8, 64, device="cuda"), 2.0), steps=1)
        self.assertEqual(len([name for name, _ in labels if "aten.mul" in name]), 1)
        self.assertEqual(scripted(torch.ones(2), 2.0).tolist(), [2.0, 2.0], "what was replaced is there again")

    def test_distributions_and_counts_need_no_values(self):
        import torch

        def step():
            mean = torch.randn(8, 64, device="cuda")
            chance = torch.distributions.Normal(mean, mean.exp())
            drawn = torch.distributions.Categorical(logits=chance.rsample()).sample()
            found.append(torch.bincount(drawn, minlength=64).shape[0])

        found = []
        self.labels(step, steps=1)
        self.assertEqual(found, [64])
        self.assertTrue(torch.distributions.Distribution._validate_args, "what was replaced is there again")

    def test_masks_that_mask_nothing_are_none(self):
        import torch

        def step(mask):
            return lambda: tracing(mask())

        masks = types.ModuleType("transformers.masking_utils")
        tracing = lambda tensor: found.append(masks.is_tracing(tensor))
        masks.is_tracing = lambda tensor=None: tensor is not None
        found = []
        with mock.patch.dict(sys.modules, {"transformers": types.ModuleType("transformers"), "transformers.masking_utils": masks}):
            self.labels(step(lambda: torch.ones(2, 8, device="cuda")), steps=1)
            self.labels(step(lambda: torch.randn(2, 8, device="cuda")), steps=1)
            self.labels(step(lambda: torch.ones(2, 8, device="cuda").mul_(torch.randn(8, device="cuda"))), steps=1)
        self.assertEqual(found, [False, True, True])

    def test_texts_end_at_their_length(self):
        import torch

        class EosTokenCriteria:
            def __call__(self, ids, scores):
                return ids[:, -1] == 2

        def step():
            ids = torch.randn(2, 8, device="cuda").argmax(-1, keepdim=True)
            found.append(bool(criteria.EosTokenCriteria()(ids, None).any()))

        criteria, found = types.ModuleType("transformers.generation.stopping_criteria"), []
        criteria.EosTokenCriteria = EosTokenCriteria
        with mock.patch.dict(sys.modules, {"transformers": types.ModuleType("transformers"), criteria.__name__: criteria}):
            self.labels(step, steps=1)
        self.assertEqual(found, [False])
        self.assertEqual(EosTokenCriteria()(torch.tensor([[2], [1]]), None).tolist(), [True, False], "what was replaced is there again")

    def test_operators_are_taken_apart_without_autograd_too(self):
        import torch

        def step():
            with torch.inference_mode():
                torch.nn.functional.pairwise_distance(torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda"))

        def upsampled(context):
            with context():
                torch.nn.functional.interpolate(torch.randn(1, 3, 8, 8, device="cuda"), scale_factor=2, mode="bilinear")

        names = [label for label, _ in self.labels(step, steps=1)]
        self.assertIn("temporary/aten.sub.Tensor float32", names)
        self.assertEqual(*(self.labels(lambda: upsampled(context), steps=1) for context in (torch.inference_mode, torch.no_grad)))

    def test_tensors_that_no_module_has_are_parameters_of_their_optimizer(self):
        import torch

        class Nested(torch.optim.SGD):
            def step(self):
                self.state["calls"] = torch.zeros(())
                for parameter in self.param_groups[0]["params"]:
                    self.state[parameter]["parts"] = [torch.zeros_like(parameter)]

        def setup():
            weight = torch.ones(64, device="cuda", requires_grad=True)
            optimizer = Nested([weight])

            def step():
                weight.sum().backward()
                optimizer.step()
                optimizer.zero_grad()

            return step

        for category in ("parameter", "gradient", "optimizer"):
            self.assertEqual(self.bytes_of(category, setup, steps=1), 64 * 4, category)

    def test_a_storage_that_another_tensor_takes_over_has_unknown_values(self):
        import torch

        def step():
            one, other = torch.zeros(12, dtype=torch.long, device="cuda"), torch.arange(12, device="cuda")
            one.set_(other)
            one.add_(3)
            return int(other.sum())

        with self.assertRaisesRegex(OmniheapError, "needs a value"):
            omniheap.fit.record_step(step, self.path, steps=1)

    def test_data_is_loaded_without_workers(self):
        import torch

        sums = []

        def setup():
            model = torch.nn.Linear(16, 4).cuda()
            rows = torch.utils.data.TensorDataset(torch.ones(32, 16), torch.zeros(32, dtype=torch.long))
            loaders = [torch.utils.data.DataLoader(rows, 16, num_workers=2, persistent_workers=persists, timeout=9) for persists in (False, True)]

            def step():
                for loader in loaders:
                    for x, y in loader:
                        sums.append(tuple(x.shape))
                        torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                    self.assertEqual((loader.num_workers, loader.timeout), (2, 9), "as the program made it")

            return step

        omniheap.fit.record_step(setup, self.path)
        self.assertEqual(sums, [(16, 16)] * 8)
        rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 2)), 2, num_workers=1)
        self.assertEqual(type(iter(rows)).__name__, "_MultiProcessingDataLoaderIter", "elsewhere workers work")

    def test_rows_in_a_row_come_in_every_epoch_to_the_only_worker(self):
        import torch

        seen = []

        class Rows(torch.utils.data.IterableDataset):
            def __iter__(self):
                worker = torch.utils.data.get_worker_info()
                for _ in range(worker.id, 4, worker.num_workers):
                    yield torch.ones(16)

        def step():
            model = torch.nn.Linear(16, 4).cuda()
            loaders = [torch.utils.data.DataLoader(Rows(), 2, num_workers=2, persistent_workers=persists) for persists in (False, True)]
            for loader in loaders:
                for epoch in range(2):
                    for x in loader:
                        self.assertIsNone(torch.utils.data.get_worker_info(), "as the program sees it")
                        seen.append((loader.persistent_workers, epoch))
                        model(x.cuda()).sum().backward()
                self.assertIsNone(loader._iterator, "nothing of the recording stays")

        omniheap.fit.record_step(step, self.path, steps=1)
        self.assertEqual(seen, [(persists, epoch) for persists in (False, True) for epoch in (0, 0, 1, 1)])

    def test_what_cannot_be_recorded_says_what_to_do(self):
        import torch

        def encoder():
            layer = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
            model = torch.nn.TransformerEncoder(layer, 1).cuda().eval()
            with torch.no_grad():
                model(torch.ones(2, 4, 16, device="cuda"), src_key_padding_mask=torch.zeros(2, 4, dtype=torch.bool, device="cuda"))

        folder = os.path.dirname(self.path)
        some = lambda: torch.ones(4, device="cuda")
        for step, options, said in (
            (lambda: torch.save(torch.nn.Linear(2, 2).cuda().state_dict(), os.path.join(folder, "saved")), {}, "test_fit.py, line .* fake tensors, which have no bytes"),
            (encoder, {}, "enable_nested_tensor=False"),
            (some, {"device": "gpu"}, "device is 'gpu'; pass a device of PyTorch"),
            (some, {"path": os.path.join(folder, "none", "x.omt")}, "x.omt cannot be written .*in a folder that exists"),
            (some, {"path": folder}, "is a folder; name a file in it"),
        ):
            with self.subTest(said), self.assertRaisesRegex(OmniheapError, said):
                omniheap.fit.record_step(step, **{"path": self.path, **options})

    def test_small_tensors_of_the_host_have_values(self):
        import torch

        found = []

        def step():
            found.append([each.item() for each in torch.linspace(0, 3, 4)])
            found.append(sorted(torch.randperm(5).tolist()))
            found.append(torch.empty((), dtype=torch.int64).random_(7, 8).item())
            data = torch.utils.data.TensorDataset(torch.ones(4, 8))
            for (batch,) in torch.utils.data.DataLoader(data, 2, shuffle=True):
                batch.pin_memory().cuda(non_blocking=True)
            found.append(torch.tensor([1.0, 2.0]).cuda().sum().item())

        before = torch.get_rng_state()
        self.labels(step)
        self.assertEqual(found, [[0, 1, 2, 3], [0, 1, 2, 3, 4], 7, 3.0])
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_lists_are_indices(self):
        import torch

        def step():
            square = torch.ones(8, 8, device="cuda", requires_grad=True)
            (square[:, [1, 2]] * 2).sum().backward()
            square.detach()[[0]] = 0

        sizes = [size for label, size in self.labels(step) if "aten.empty" in label]
        self.assertEqual(sizes, [16, 16, 8], "the index of the forward pass, of the backward pass, and of what is written")

    def test_parts_of_sparse_tensors_are_followed(self):
        import torch

        def setup():
            table = torch.nn.Embedding(100, 16, sparse=True).cuda()
            optimizer = torch.optim.SGD(table.parameters(), 0.1)

            def step():
                table(torch.zeros(8, dtype=torch.int64, device="cuda")).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()

            return step

        self.assertEqual(self.bytes_of("gradient", setup, steps=1), 8 * 16 * 4)

        def doubled():
            return torch.sparse_coo_tensor(torch.ones(1, 8, dtype=torch.int64), torch.ones(8, 16), (4, 16)) * 2

        sizes = [size for label, size in self.labels(doubled, fake=False, device="cpu") if "aten.mul" in label]
        self.assertIn(8 * 16 * 4, sizes, "the values of a sparse result")

    def test_optimizers_take_lists_of_parameters_as_on_a_gpu(self):
        import torch

        def step():
            model = torch.nn.Linear(16, 16).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            model(torch.ones(4, 16, device="cuda")).sum().backward()
            optimizer.step()

        self.assertTrue(any("_foreach_sqrt" in label for label, _ in self.labels(step)), "AdamW chooses by the types of its parameters")

    def test_experts_in_single_precision_are_followed(self):
        import torch

        def step():
            weights = torch.ones(4, 16, 32, device="cuda", requires_grad=True)
            ends = torch.arange(8, 33, 8, dtype=torch.int32, device="cuda")
            if torch.cuda.get_device_capability() >= (8, 0):
                torch._grouped_mm(torch.ones(32, 16, device="cuda"), weights, offs=ends).sum().backward()

        sizes = [size for label, size in self.labels(step) if "_grouped_mm" in label]
        self.assertEqual(sizes[0], 32 * 32 * 4)

    def test_transformed_functions_are_followed(self):
        import torch

        def step():
            model = torch.nn.Linear(16, 16).cuda()
            weights = {name: each.detach() for name, each in model.named_parameters()}
            loss = lambda weights, one: torch.func.functional_call(model, weights, (one,)).sum()
            torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, torch.ones(8, 4, 16, device="cuda"))

        labels = self.labels(step)
        self.assertIn(("parameter/weight float32[16x16]", 16 * 16 * 4), labels)
        self.assertTrue(any(size == 8 * 16 * 16 * 4 for _, size in labels), "a gradient for each sample")

    def test_operators_that_take_functions_are_followed(self):
        import torch
        from torch.nn.attention.flex_attention import flex_attention

        def step():
            query = torch.ones(2, 4, 128, 16, device="cuda", requires_grad=True)
            flex_attention(query, query, query, score_mod=lambda score, batch, head, i, j: score + (i - j)).sum().backward()

        sizes = [size for label, size in self.labels(step) if "flex_attention" in label]
        self.assertIn(2 * 4 * 128 * 16 * 4, sizes)

    def test_what_outlives_a_step_that_failed_is_not_written(self):
        import torch

        kept = []

        def step():
            kept.append(torch.ones(8, device="cuda"))
            raise ValueError

        # Every record goes to the file at once.
        with mock.patch.object(_trace, "_CHUNK", 1), mock.patch.object(sys, "unraisablehook") as ignored:
            self.assertRaises(ValueError, omniheap.fit.record_step, step, self.path)
            kept.clear()
        ignored.assert_not_called()

    def test_models_of_each_step_are_gone_after_it(self):
        import torch

        def step():
            torch.nn.Linear(64, 64).cuda()(torch.ones(1, 64, device="cuda")).sum().backward()

        self.labels(lambda: step, steps=3)
        self.assertEqual(self.recording.leaked_bytes, 0)
        self.assertLess(self.recording.peak_live_bytes, 3 * 64 * 64 * 4)

    def test_accumulated_gradients_lists_and_random_numbers(self):
        import torch

        def setup():
            model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5)).cuda()
            batch = [torch.ones(8, 64, device="cuda") for _ in range(3)]

            def step():
                for part in batch:
                    model(part).sum().backward()
                model.zero_grad()

            return step

        before = torch.get_rng_state()
        labels = self.labels(setup, steps=1)
        self.assertTrue(torch.equal(torch.get_rng_state(), before), "a fake step draws no numbers")
        sizes = lambda category: [size for label, size in labels if label.startswith(f"{category}/")]
        self.assertEqual(sizes("input"), [8 * 64 * 4] * 3)
        self.assertEqual(sorted(sizes("gradient")), [64 * 4, 64 * 64 * 4], "each is there once, whatever is added to it")
        self.assertEqual(len([label for label, _ in labels if "native_dropout.default" in label]), 2 * 3, "results and masks")
        self.assertEqual(self.recording.leaked_bytes, 0)

    @unittest.skipUnless(os.environ.get("OMNIHEAP_COMMAND"), "OMNIHEAP_COMMAND names no command")
    def test_the_command_answers(self):
        answer = omniheap.fit.fit(self.step(), "1GiB")
        self.assertTrue(answer["fits"])
        known = {row["change"] for row in answer["changes"] if row["not_known"] is None}
        self.assertEqual(len(known), len(answer["changes"]), json.dumps(answer["changes"]))

        def make_step(batch):
            import torch

            def setup():
                # The gradient of a bias is a sum, which takes no line of bytes inside.
                model = torch.nn.Linear(1024, 1024, bias=False).cuda()
                return lambda: model(torch.ones(batch * 256, 1024, device="cuda")).sum().backward()

            return setup

        found = omniheap.fit.largest_batch(make_step, "256MiB", allocator="plan")
        self.assertEqual(found.by, "lines")
        self.assertGreater(found.batch, 8)
        self.assertLessEqual(found.peak_reserved_bytes, 256 << 20)


if __name__ == "__main__":
    unittest.main()

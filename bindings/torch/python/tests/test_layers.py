"""Layers whose weights come when they are needed, on the processor: copies are made at once there."""

import contextlib
import copy
import importlib.util
import io
import os
import unittest
from unittest import mock

import omniheap.torch
from omniheap import OmniheapError, _layers

_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../docs/python.md")
_HAS_TORCH = importlib.util.find_spec("torch") is not None
if _HAS_TORCH:
    import torch


class Choice(unittest.TestCase):
    """Choice of the layers that stay."""

    def test_all_where_there_is_room(self):
        self.assertEqual(_layers._resident([5, 5, 5], 15), [True] * 3)

    def test_spread_evenly_and_never_more_than_fit(self):
        stays = _layers._resident([10] * 12, 20 + 60)
        self.assertEqual(stays, [False, True] * 6)
        for sizes in ([3, 9, 1, 7, 7, 2, 0, 8], [1] * 9, [0, 0, 50, 1]):
            for limit in range(2 * max(sizes), sum(sizes)):
                chosen = sum(size for size, stays in zip(sizes, _layers._resident(sizes, limit)) if stays)
                self.assertLessEqual(chosen + 2 * max(sizes), limit)

    def test_too_little_room(self):
        with self.assertRaises(OmniheapError) as caught:
            _layers._resident([10, 30, 5], 44)
        self.assertIn("need 60", str(caught.exception))


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def model(self, depth=6):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(32, 64)
                self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)) for _ in range(depth))
                self.order = list(range(depth))

            def forward(self, x):
                x = self.first(x)
                for number in self.order:
                    x = self.blocks[number](x).tanh()
                return x

        return Model().eval()

    def stream(self, model, layers_resident=3, **options):
        # A layer is 64 x 64 weights and five vectors of 64, and a counter.
        return omniheap.torch.stream_layers(model, resident=layers_resident * (64 * 64 * 4 + 6 * 512), device="cpu", **options)

    def test_results_are_the_same_to_the_bit(self):
        model, batch = self.model(), torch.randn(8, 32)
        with torch.no_grad():
            wanted, names = model(batch), {name: each.clone() for name, each in model.state_dict().items()}
            streamed = self.stream(model)
            for _ in range(3):
                self.assertTrue(torch.equal(model(batch), wanted))
        figures = streamed.figures()
        self.assertEqual(figures["unexpected"], 0)
        self.assertGreater(figures["copied_bytes"], 0)
        self.assertTrue(all(torch.equal(each, names[name]) for name, each in model.state_dict().items()), "weights can be read at any time")
        streamed.remove()
        with torch.no_grad():
            self.assertTrue(torch.equal(model(batch), wanted))

    def test_weights_are_in_a_slot_while_their_layer_runs(self):
        model, seen = self.model(), []
        streamed = self.stream(model, 2)
        slots = [slot.memory.untyped_storage().data_ptr() for slot in streamed._slots]
        for block in model.blocks:
            block[0].register_forward_pre_hook(lambda module, _: seen.append(module.weight.untyped_storage().data_ptr()))
        with torch.no_grad():
            model(torch.randn(8, 32))
        self.assertEqual(seen, slots * 3, "one after the other")
        self.assertNotIn(model.blocks[0][0].weight.untyped_storage().data_ptr(), slots)

    def test_each_layer_is_copied_once_a_pass(self):
        model, batch = self.model(), torch.randn(8, 32)
        streamed = self.stream(model, 2)
        size = streamed._streamed[0].size
        with torch.no_grad():
            for turn in range(1, 4):
                model(batch)
                self.assertEqual(streamed.figures()["copied_bytes"], (6 * turn + 1) * size, "and the first one of the next pass")

    def test_weights_that_are_written_between_passes(self):
        model, batch = self.model(), torch.randn(8, 32)
        alone = copy.deepcopy(model)

        def load():
            other = self.model().state_dict()
            model.load_state_dict(other), alone.load_state_dict(other)

        def average(decay=0.5):
            for each in (model, alone):
                for parameter in each.parameters():
                    parameter.mul_(decay)

        with torch.no_grad():
            for resident in (2, 3):
                streamed = self.stream(model, resident)
                for write in (load, load, average, lambda: None, load):
                    write()
                    for _ in range(2):
                        self.assertTrue(torch.equal(model(batch), alone(batch)))
                    self.assertEqual(streamed.figures()["unexpected"], 0)
                streamed.remove()

    def test_another_order_is_learned(self):
        model, batch = self.model(), torch.randn(8, 32)
        model.order, counts = [3, 1, 1, 5, 0], []
        with torch.no_grad():
            wanted = model(batch)
            streamed = self.stream(model, 2)
            for _ in range(2):
                self.assertTrue(torch.equal(model(batch), wanted))
            model.order = [3, 1, 5, 0]
            for _ in range(4):
                model(batch)
                counts.append(streamed.figures()["unexpected"])
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts[1], counts[3])

    def test_everything_fits(self):
        model = self.model()
        streamed = self.stream(model, 100)
        self.assertEqual((streamed.figures()["copied_bytes"], streamed._hooks), (0, []))

    def test_what_layers_share_stays(self):
        model, batch = self.model(), torch.randn(8, 32)
        model.blocks[1][0].weight = model.blocks[4][0].weight
        model.blocks[2][0].weight = torch.nn.Parameter(model.blocks[3][0].weight.data)
        with torch.no_grad():
            wanted = model(batch)
            streamed = self.stream(model, 2)
            for shared in (model.blocks[number][0].weight for number in range(1, 5)):
                self.assertTrue(all(shared is not each for layer in streamed._streamed for each in layer.tensors))
            self.assertTrue(torch.equal(model(batch), wanted))

    def test_what_a_layer_writes_to_stays_on_the_device(self):
        class Caching(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weights, self.turn = torch.nn.Linear(64, 64), 0
                self.register_buffer("cache", torch.zeros(4, 64), persistent=False)

            def forward(self, x):
                self.cache[self.turn % 4], self.turn = x.mean(0), self.turn + 1
                return (self.weights(x) + self.cache.sum(0)).tanh()

        model, batches = torch.nn.Sequential(*(Caching() for _ in range(6))).eval(), torch.randn(5, 3, 64)
        alone = copy.deepcopy(model)
        with torch.no_grad():
            streamed = self.stream(model)
            before = streamed.figures()["resident_bytes"]
            for batch in batches:
                self.assertTrue(torch.equal(model(batch), alone(batch)))
        caches = len(streamed._streamed) * 4 * 64 * 4
        self.assertEqual(streamed.figures()["resident_bytes"], before + caches, "they are counted once")

    def test_running_statistics_learn_as_without_streaming(self):
        class Own(torch.nn.Module):
            """Statistics under names of its own, written by the same kernel."""

            def __init__(self):
                super().__init__()
                self.register_buffer("center", torch.zeros(64))
                self.register_buffer("spread", torch.ones(64))

            def forward(self, x):
                return torch.nn.functional.batch_norm(x, self.center, self.spread, training=True)

        norms = lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), Own())
        plain = torch.nn.Sequential(*(norms() for _ in range(6)))
        streamed = copy.deepcopy(plain)
        self.assertGreater(len(self.stream(streamed)._streamed), 2)
        with torch.no_grad():
            for batch in torch.randn(3, 8, 64):
                self.assertTrue(torch.equal(plain(batch), streamed(batch)))
        for name, each in plain.state_dict().items():
            self.assertTrue(torch.equal(each, streamed.state_dict()[name]), name)

    def test_an_exception_in_a_layer(self):
        model, batch = self.model(), torch.randn(8, 32)
        with torch.no_grad():
            wanted = model(batch)
            self.stream(model, 2)
            self.assertRaises(RuntimeError, model.blocks[2], torch.randn(8, 3))
            self.assertTrue(torch.equal(model(batch), wanted))

    def test_bad_input_changes_nothing(self):
        model = self.model()
        before = [each.data_ptr() for each in model.parameters()]
        for wrong in (0, -1, "much", None, 1.5, True):
            with self.assertRaises(OmniheapError):
                omniheap.torch.stream_layers(model, wrong, device="cpu")
        with self.assertRaises(OmniheapError):
            self.stream(model, 1)
        with self.assertRaises(OmniheapError):
            self.stream(model, 3, layers=[])
        with self.assertRaises(OmniheapError):
            omniheap.torch.stream_layers(torch.nn.Linear(2, 2), "1MiB", device="cpu")
        with self.assertRaises(OmniheapError):
            omniheap.torch.stream_layers("model", "1MiB", device="cpu")
        with torch.device("meta"):
            self.assertRaises(OmniheapError, self.stream, self.model())
        self.assertEqual(before, [each.data_ptr() for each in model.parameters()])

    def test_a_device_without_room_changes_nothing(self):
        model = self.model()
        before = [each.data_ptr() for each in (*model.parameters(), *model.buffers())]
        to, moved = torch.Tensor.to, []

        def full(tensor, *given, **options):
            if len(moved) == 2:
                raise torch.OutOfMemoryError("full")
            moved.append(to(tensor, *given, **options))
            return moved[-1].clone()

        with mock.patch.object(torch.Tensor, "to", full), self.assertRaises(torch.OutOfMemoryError):
            self.stream(model, 3)
        self.assertEqual(before, [each.data_ptr() for each in (*model.parameters(), *model.buffers())])
        self.assertFalse(any(module._forward_pre_hooks for module in model.modules()))

    def test_training_is_refused(self):
        model = self.model()
        self.stream(model, 2)
        with self.assertRaises(OmniheapError) as caught:
            model(torch.randn(8, 32))
        self.assertIn("no_grad", str(caught.exception))
        with torch.no_grad():
            model(torch.randn(8, 32))

    def test_a_refused_pass_after_a_write_changes_nothing(self):
        model, batch = self.model(), torch.randn(8, 32)
        alone = copy.deepcopy(model)
        streamed = self.stream(model, 2)
        with torch.no_grad():
            model(batch)
        other = self.model().state_dict()
        model.load_state_dict(other), alone.load_state_dict(other)
        before = streamed.figures()
        self.assertRaises(OmniheapError, model, batch)
        self.assertEqual(streamed.figures(), before, "no weight stays for good")
        with torch.no_grad():
            self.assertTrue(torch.equal(model(batch), alone(batch)))

    def test_the_example_of_the_documentation(self):
        with open(_PAGE) as file:
            examples = [each.split("```")[0] for each in file.read().split("```python\n")[1:]]
        (example,) = [each for each in examples if "stream_layers" in each]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(example, _PAGE, "exec"), {})
        self.assertIn("copied_bytes", said.getvalue())

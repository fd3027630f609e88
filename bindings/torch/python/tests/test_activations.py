"""Activations that wait in host memory. The way there is a stand-in that needs no GPU; the rest is PyTorch."""

import contextlib
import gc
import importlib.util
import io
import os
import unittest
from unittest import mock

import omniheap.torch
from omniheap import OmniheapError, _activations
from on_host import stand_in

_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../docs/python.md")
_HAS_TORCH = importlib.util.find_spec("torch") is not None
if _HAS_TORCH:
    import torch
    from torch.utils.checkpoint import checkpoint


class Copier:
    """Copies at once, and counts."""

    def __init__(self, room=1 << 40):
        self.room, self.sent, self.fetched, self.held, self.abandoned = room, 0, 0, 0, 0
        self.numbers, self.order = {}, []

    def is_open(self):
        return True

    def take(self, size):
        if size > self.room:
            return None
        self.room -= size
        self.held += 1
        return torch.empty(size, dtype=torch.uint8)

    def give_back(self, memory):
        self.room += memory.numel()
        self.held -= 1

    def send(self, storage, memory):
        self.sent += 1
        self.numbers[memory.data_ptr()] = self.sent
        self.order.append(self.sent)
        with torch.no_grad():
            memory.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
        return "sent"

    def fetch(self, memory, size):
        self.fetched += 1
        self.order.append(-self.numbers[memory.data_ptr()])
        return memory.clone().untyped_storage(), "fetched"

    def let_go(self, storage, sent):
        assert storage is not None and sent == "sent"

    def receive(self, storage, fetched):
        assert fetched == "fetched"

    def abandon(self, storage):
        self.abandoned += 1


class Memory:
    """As much of a tensor as a pool of memory looks at."""

    def __init__(self, size):
        self.numel = lambda: size


class HostMemory(unittest.TestCase):
    def test_it_is_kept_and_does_not_grow_with_sizes(self):
        made = []
        memory = _activations._HostMemory(lambda size: made.append(size) or Memory(size))
        for size in range(513, 1025):
            taken = [memory.take(size) for _ in range(2)]
            self.assertTrue(all(each.numel() >= size for each in taken))
            [memory.give_back(each) for each in taken]
        self.assertEqual(made, [1024, 1024])
        self.assertEqual(memory.take(1).numel(), 1)

    def test_a_refusal_is_none(self):
        for refusal in (RuntimeError, MemoryError):
            memory = _activations._HostMemory(mock.Mock(side_effect=refusal))
            self.assertIsNone(memory.take(8))


class Stream:
    """As much of a stream as a copier uses."""

    def __init__(self, device=None):
        self.waits_for = []

    def wait_stream(self, other):
        self.waits_for.append(other)

    def wait_event(self, event):
        self.waits_for.append(event)

    def record_event(self):
        return ("event of", self)


class CudaCopier(unittest.TestCase):
    """Streams that wait for copies, over a stand-in for PyTorch."""

    def setUp(self):
        pytorch = mock.MagicMock()
        pytorch.cuda.Stream = Stream
        self.current, self.other = Stream(), Stream()
        pytorch.cuda.current_stream = lambda _: self.current
        stand_in(self, {"torch": pytorch})
        self.copier = _activations._CudaCopier("cuda:0")
        self.bytes = pytorch.empty.return_value.set_.return_value

    def test_memory_goes_back_to_the_stream_that_sent_it_and_that_one_waits(self):
        sent = self.copier.send(mock.MagicMock(), mock.MagicMock())
        self.copier.let_go("storage", sent)
        self.assertEqual(self.current.waits_for, [("event of", self.copier._stream)])
        self.bytes.record_stream.assert_not_called()

    def test_memory_that_another_stream_lets_go_waits_for_the_copy_itself(self):
        home = self.current
        sent = self.copier.send(mock.MagicMock(), mock.MagicMock())
        self.current = self.other
        self.copier.let_go("storage", sent)
        self.assertEqual(home.waits_for, [("event of", self.copier._stream)])
        self.bytes.record_stream.assert_called_once_with(self.copier._stream)


if _HAS_TORCH:

    class Decoder(torch.nn.Module):
        """A layer as torchtune's decoders have them: RMS norms, grouped queries with rotations, causal attention, a gated MLP."""

        def __init__(self, width=64, heads=4, groups=2):
            super().__init__()
            self.heads, self.groups, self.each = heads, groups, width // heads
            self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2))
            self.query = torch.nn.Linear(width, width, bias=False)
            self.key, self.value = (torch.nn.Linear(width, groups * self.each, bias=False) for _ in range(2))
            self.out = torch.nn.Linear(width, width, bias=False)
            self.gate, self.up = (torch.nn.Linear(width, 3 * width, bias=False) for _ in range(2))
            self.down = torch.nn.Linear(3 * width, width, bias=False)

        def rotate(self, x):
            angles = torch.outer(torch.arange(x.shape[2]), 1e4 ** -torch.linspace(0, 1, self.each // 2))
            even, odd = x[..., ::2], x[..., 1::2]
            return torch.stack((even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()), -1).flatten(-2)

        def forward(self, x):
            split = lambda y, heads: y.view(*y.shape[:2], heads, self.each).transpose(1, 2)
            y = self.norms[0](x)
            query, key = self.rotate(split(self.query(y), self.heads)), self.rotate(split(self.key(y), self.groups))
            shared = (each.repeat_interleave(self.heads // self.groups, 1) for each in (key, split(self.value(y), self.groups)))
            y = torch.nn.functional.scaled_dot_product_attention(query, *shared, is_causal=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            y = self.norms[1](x)
            return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))

    class Experts(torch.nn.Module):
        """A mixture of experts: each token goes to two of four, so that sizes depend on the data; each expert is a checkpoint."""

        def __init__(self, width=64, experts=4):
            super().__init__()
            self.router = torch.nn.Linear(width, experts, bias=False)
            make = lambda: torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width))
            self.experts = torch.nn.ModuleList(make() for _ in range(experts))

        def forward(self, x):
            tokens = x.flatten(0, 1)
            weights, chosen = self.router(tokens).softmax(-1).topk(2)
            out = torch.zeros_like(tokens)
            for number, expert in enumerate(self.experts):
                rows, places = (chosen == number).nonzero(as_tuple=True)
                done = checkpoint(expert, tokens[rows], use_reentrant=False)
                out = out.index_add(0, rows, done * weights[rows, places, None])
            return x + out.view_as(x)


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class Activations(unittest.TestCase):
    def setUp(self):
        self.copier = Copier()
        patch = mock.patch.object(_activations, "_copier_of", lambda device: self.copier)
        patch.start()
        self.addCleanup(patch.stop)
        torch.manual_seed(0)

    def model(self, depth=4):
        layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)) for _ in range(depth)]
        return torch.nn.Sequential(*layers)

    def gradients(self, model, batch, offload=None, backward=lambda loss: loss.backward(), inside=False):
        model.zero_grad(set_to_none=True)
        run = lambda: model(batch).square().sum()
        if offload is None:
            loss = run()
        else:
            with offload:
                loss = run()
                inside and backward(loss)
        inside or backward(loss)
        return [loss.detach().clone(), *(each.grad.clone() for each in model.parameters())]

    def same(self, first, second):
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(first, second)))

    def offload(self, keep_last=2, min_bytes=1, most=None):
        return omniheap.torch.offload_activations(min_bytes=min_bytes, keep_last=keep_last, most=most)

    def test_gradients_are_the_same_to_the_bit(self):
        model, batch = self.model(), torch.randn(32, 64)
        plain = self.gradients(model, batch)
        for keep_last in (0, 1, 2, 100):
            for inside in (False, True):
                offload = self.offload(keep_last)
                for _ in range(3):
                    self.same(plain, self.gradients(model, batch, offload, inside=inside))
                self.assertEqual(offload.figures()["offloaded_bytes"] > 0, keep_last < 100)
                gc.collect()
                self.assertEqual(self.copier.held, 0, "host memory goes back")

    def test_parameters_and_small_storages_stay(self):
        model, batch = torch.nn.Linear(64, 64, bias=False), torch.randn(32, 64, requires_grad=True)
        for frozen in (False, True):
            model.weight.requires_grad_(not frozen)
            with self.offload(keep_last=0):
                loss = model(batch).sum() + (batch @ model.weight.t()).sum()
            self.assertEqual(self.copier.sent, 0)
            loss.backward()
        model.weight.requires_grad_()
        with self.offload(keep_last=0), torch.autocast("cpu", torch.bfloat16):
            loss = model(batch * 1.0).sum()
        self.assertEqual(self.copier.sent, 1, "autocast's copy of the batch, and not that of the weight")
        loss.backward()
        self.copier.sent = 0
        with self.offload(keep_last=0, min_bytes="1MiB"):
            (batch * 1.0).sin().sum().backward()
        self.assertEqual(self.copier.sent, 0)

    def test_views_of_one_storage_go_once(self):
        x = torch.randn(64, 64, requires_grad=True)

        def run():
            y = x * 2
            return y.sin().sum() + y.t().cos().sum() + y[3:].square().sum() + y.view(-1).sin().sum()

        plain = torch.autograd.grad(run(), x)[0]
        with self.offload(keep_last=0):
            loss = run()
        self.assertEqual(self.copier.sent, 1)
        self.assertTrue(torch.equal(torch.autograd.grad(loss, x)[0], plain))
        self.assertEqual(self.copier.fetched, 1)

    def test_a_change_in_place_is_noticed(self):
        for keep_last in (0, 9):
            x = torch.randn(64, requires_grad=True)
            with self.offload(keep_last):
                y = x * 1.0
                loss = y.sin().sum()
                y.add_(1)
            with self.assertRaises(RuntimeError) as caught:
                loss.backward()
            self.assertIn("inplace operation", str(caught.exception))
        small = torch.randn(2, requires_grad=True)
        with self.offload(min_bytes="1MiB"):
            y = small * 1.0
            loss = y.sin().sum()
            y.add_(1)
        self.assertRaises(RuntimeError, loss.backward)

    def test_a_storage_that_changed_between_two_saves_goes_twice(self):
        x = torch.randn(64, requires_grad=True)
        buffer = torch.ones(64)
        with self.offload(keep_last=0):
            first = (x * buffer).sum()
            first.backward()
            buffer.fill_(3.0)
            second = (x * buffer).sum()
        x.grad = None
        second.backward()
        self.assertTrue(torch.equal(x.grad, torch.full((64,), 3.0)))

    def test_a_storage_that_changed_while_it_was_saved_goes_twice(self):
        x, buffer = torch.randn(64, requires_grad=True), torch.ones(64)
        with self.offload(keep_last=0):
            kept = (x * buffer).sum()
            buffer.fill_(3.0)
            second = (x * buffer).sum()
            (x * 1.0).sin().sum()
        second.backward()
        self.assertTrue(torch.equal(x.grad, torch.full((64,), 3.0)))
        self.assertRaises(RuntimeError, kept.backward)

    def test_backward_twice_and_double_backward(self):
        model, batch = self.model(2), torch.randn(8, 64)

        def twice(loss):
            loss.backward(retain_graph=True)
            loss.backward()

        self.same(self.gradients(model, batch, backward=twice), self.gradients(model, batch, self.offload(0), backward=twice))

        def second(offload):
            x = torch.linspace(0, 1, 64, requires_grad=True)
            with offload:
                y = (x.sin() * x.exp()).sum()
                first = torch.autograd.grad(y, x, create_graph=True)[0]
                return torch.autograd.grad(first.square().sum(), x)[0]

        self.assertTrue(torch.equal(second(contextlib.nullcontext()), second(self.offload(0))))

    def test_what_is_not_plain_stays(self):
        class Sub(torch.Tensor):
            pass

        sub = torch.randn(64).as_subclass(Sub).requires_grad_()
        sparse = torch.eye(64).to_sparse()
        x = torch.randn(64, 64, requires_grad=True)
        with self.offload(0):
            loss = (sub * 2).sin().sum().as_subclass(torch.Tensor) + torch.sparse.mm(sparse, x).sum()
        loss.backward()
        self.assertEqual(float(x.grad.sum()), 64.0 * 64)
        self.assertTrue(torch.allclose(sub.grad.as_subclass(torch.Tensor), 2 * (sub.detach().as_subclass(torch.Tensor) * 2).cos()))

    def test_without_host_memory_tensors_stay_and_are_counted(self):
        model, batch = self.model(), torch.randn(32, 64)
        plain = self.gradients(model, batch)
        self.copier.room = 3 * 32 * 64 * 4
        offload = self.offload(0)
        self.same(plain, self.gradients(model, batch, offload))
        self.assertGreater(offload.figures()["kept_for_want_of_host_memory"], 0)
        self.assertGreater(self.copier.sent, 0)

    def test_an_exception_in_the_forward_pass(self):
        model, batch = self.model(), torch.randn(32, 64)
        plain, offload = self.gradients(model, batch), self.offload()
        with self.assertRaises(ZeroDivisionError):
            with offload:
                kept = model(batch)
                1 / 0
        del kept
        gc.collect()
        self.assertEqual(self.copier.held, 0)
        self.same(plain, self.gradients(model, batch, offload))

    def test_two_models_interleaved(self):
        models, batch, offload = [self.model(2), self.model(3)], torch.randn(16, 64), self.offload(1)
        plain = [self.gradients(model, batch) for model in models]
        [model.zero_grad(set_to_none=True) for model in models]
        with offload:
            losses = [model(batch).square().sum() for model in models]
        losses[0].backward()
        losses[1].backward()
        for model, expected in zip(models, plain):
            self.same(expected[1:], [each.grad for each in model.parameters()])
        del losses
        gc.collect()
        self.assertEqual(self.copier.held, 0)

    def test_beside_checkpoints(self):
        model, batch = self.model(), torch.randn(32, 64, requires_grad=True)
        wrapped = lambda batch: checkpoint(model, batch, use_reentrant=False)
        plain = torch.autograd.grad(wrapped(batch).square().sum(), batch)[0]
        with self.offload(0):
            loss = wrapped(batch).square().sum()
        self.assertTrue(torch.equal(plain, torch.autograd.grad(loss, batch)[0]))

    def test_models_like_torchtunes_and_mixtures_of_experts_with_checkpoints(self):
        decoder = torch.nn.Sequential(*(Decoder() for _ in range(3)))
        mixture = torch.nn.Sequential(*(layer for _ in range(3) for layer in (Decoder(), Experts())))
        for model in (decoder, mixture):
            batch = torch.randn(2, 16, 64)
            plain = self.gradients(model, batch)
            with_saved, saved = torch.autograd.graph.saved_tensors_hooks, []
            with with_saved(lambda each: saved.append(each.nbytes) or each, lambda each: each):
                model(batch)
            offload = self.offload(keep_last=2, min_bytes="4KiB")
            for _ in range(3):
                self.same(plain, self.gradients(model, batch, offload))
            figures = offload.figures()
            self.assertGreater(figures["offloaded_bytes"] / 3, 0.3 * sum(saved), figures)
            gc.collect()
            self.assertEqual(self.copier.held, 0, "host memory goes back")
            self.assertEqual(self.copier.sent, self.copier.fetched, "what went came back once")

    def test_a_graph_break(self):
        layers = self.model()

        def run(batch):
            y = layers[:2](batch)
            torch._dynamo.graph_break()
            return layers[2:](y)

        batch = torch.randn(32, 64)
        plain = self.gradients(layers, batch)
        broken = torch.compile(run, backend="eager")
        layers.zero_grad(set_to_none=True)
        with self.offload(keep_last=0):
            loss = broken(batch).square().sum()
        loss.backward()
        self.same(plain, [loss.detach(), *(each.grad for each in layers.parameters())])
        self.assertGreater(self.copier.sent, 0, "something went")
        self.assertEqual(self.copier.sent, self.copier.fetched)

    def test_what_comes_back_is_fetched_ahead_and_no_further(self):
        x, ahead = torch.randn(64, requires_grad=True), []

        class Look(torch.autograd.Function):
            """Notes what is here when the backward pass has come to this."""

            @staticmethod
            def forward(context, value):
                return value.view_as(value)

            @staticmethod
            def backward(context, gradient):
                ahead.append(self.copier.fetched)
                return gradient

        with self.offload(keep_last=2):
            y = x
            for _ in range(8):
                y = Look.apply((y * 1.0).sin())
        y.sum().backward()
        # The last two stayed, and the two before them are fetched when the first is wanted; then one more each time.
        self.assertEqual(ahead, [0, 2, 2, 3, 4, 5, 6, 6])
        self.assertEqual(self.copier.order, [*range(1, 7), *range(-6, 0)], "the nearest comes back first")
        self.assertEqual((self.copier.sent, self.copier.held), (6, 0))

    def test_a_limit_leaves_the_rest_and_spreads_the_copies(self):
        x, here, ahead = torch.randn(64, requires_grad=True), [], []

        class Look(torch.autograd.Function):
            """Notes what has left when the forward pass has come to this, and what is back when the backward pass has."""

            @staticmethod
            def forward(context, value):
                here.append(len(offload._leaving))
                return value.view_as(value)

            @staticmethod
            def backward(context, gradient):
                ahead.append(self.copier.fetched)
                return gradient

        offload = self.offload(keep_last=1, most=4 * 256)
        for block in range(3):
            self.copier.fetched = 0
            here.clear()
            ahead.clear()
            with offload:
                y = x
                for _ in range(8):
                    y = Look.apply((y * 1.0).sin())
            y.sum().backward()
            self.assertEqual(self.copier.sent, 4 * (block + 1), "half of it, which was saved first")
            if block == 0:
                self.assertEqual(here, [0, 1, 1, 1, 1, 1, 1, 1], "how much will be saved is not known yet")
            else:
                self.assertEqual(here, [0, 1, 1, 1, 2, 1, 1, 1], "one leaves while two are saved")
            # One is on its way when the first is used; then as much is back as half of what was used.
            self.assertEqual(ahead, [0, 1, 1, 1, 2, 2, 3, 4])
        self.assertEqual(self.copier.held, 0)

    def test_bad_settings(self):
        for wrong in (-1, "much", None, 1.5, True, ""):
            with self.assertRaises(OmniheapError) as caught:
                omniheap.torch.offload_activations(min_bytes=wrong)
            self.assertIn("1MiB", str(caught.exception))
        for wrong in (-1, None, "2", True, 1.0):
            self.assertRaises(OmniheapError, omniheap.torch.offload_activations, keep_last=wrong)
        for wrong in (-1, "much", 1.5, True, ""):
            self.assertRaisesRegex(OmniheapError, "8GiB", omniheap.torch.offload_activations, most=wrong)
        offload = self.offload()
        with offload:
            self.assertRaises(OmniheapError, offload.__enter__)

    def test_where_pytorch_forbids_hooks_none_is_left(self):
        offload, hooks = self.offload(), torch.nn.modules.module._global_forward_pre_hooks
        before = len(hooks)
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            with self.assertRaisesRegex(RuntimeError, "not here"):
                offload.__enter__()
        self.assertEqual(len(hooks), before)
        with offload:
            self.assertEqual(len(hooks), before + 1)
        self.assertEqual(len(hooks), before)

    def test_tensors_of_other_devices_stay(self):
        with mock.patch.object(_activations, "_copier_of", lambda device: _activations._NO_COPIER):
            offload = self.offload(0)
            model, batch = self.model(), torch.randn(32, 64)
            self.same(self.gradients(model, batch), self.gradients(model, batch, offload))
            self.assertEqual(offload.figures()["offloaded_bytes"], 0)

    def test_the_example_of_the_documentation(self):
        with open(_PAGE) as file:
            examples = [each.split("```")[0] for each in file.read().split("```python\n")[1:]]
        (example,) = [each for each in examples if "offload_activations" in each]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(example, _PAGE, "exec"), {})
        self.assertIn("offloaded_bytes", said.getvalue())

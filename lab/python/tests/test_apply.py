"""Plans that change a program, and models that follow them. On the CPU, with the command that OMNIHEAP_COMMAND names."""

import contextlib
import copy
import functools
import gc
import importlib.util
import inspect
import io
import os
import pickle
import shutil
import tempfile
import threading
import types
import unittest
import weakref
from unittest import mock

import omniheap.fit
from omniheap import OmniheapError, _activations
from omniheap.fit import _apply, _change, _operators

_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/fit.md")
_HAS_TORCH = importlib.util.find_spec("torch") is not None
_COMMAND = os.environ.get("OMNIHEAP_COMMAND") or shutil.which("omniheap-lab")
if _HAS_TORCH:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils._python_dispatch import TorchDispatchMode

    class Block(nn.Module):
        """A block of a transformer."""

        def __init__(self, width, dropout=0.0):
            super().__init__()
            self.first, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
            self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.dropout = dropout

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = self.into(self.first(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
            x = x + self.out(mixed)
            wide = functional.gelu(self.up(self.last(x)))
            if self.dropout:
                wide = torch.native_dropout(wide, self.dropout, True)[0]
            return x + self.down(wide)

    class Residual(nn.Module):
        """A block of a ResNet: statistics that change, operators in place, two branches."""

        def __init__(self, width):
            super().__init__()
            self.one, self.two = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

        def forward(self, x):
            out = functional.relu(self.norm_one(self.one(x)), inplace=True)
            out = self.norm_two(self.two(out))
            out += x
            return functional.relu(out, inplace=True)

    class WritesOver(nn.Module):
        """Something is computed from bytes that are then written over, and held."""

        def __init__(self, width):
            super().__init__()
            self.linear, self.held = nn.Linear(width, width), None

        def forward(self, x):
            self.held = self.linear(x)
            gate = self.held.sigmoid()
            self.held.mul_(2)
            return gate * x

    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.sin()
            ctx.save_for_backward(x, y)
            return y * y * y

        @staticmethod
        def backward(ctx, gradient):
            x, y = ctx.saved_tensors
            return gradient * 3 * y * y * x.cos()

    class Product(nn.Module):
        def forward(self, x):
            return x * 2

    class Between(nn.Module):
        """Products that layers save; between one and its layer runs something in which a plan has nothing to do."""

        def __init__(self):
            super().__init__()
            self.first, self.out, self.after, self.last, self.writes = Product(), nn.Linear(64, 64), Product(), nn.Linear(64, 64), False

        def plan(self):
            """Drops the products."""
            product = functools.partial(_operators.Planned, name="aten.mul.Tensor", family="mul", reads=(), types=["float32[8x64]"], saved={0: 2048}, runs_again=True)
            products = [product(call, outputs={0: _apply.RECOMPUTE}) for call in ("first", "after")]
            return types.SimpleNamespace(operators=lambda: products, peak_bytes=0, capacity_bytes=1 << 20)

        def forward(self, x):
            y = self.first(x)
            beside = x.abs()
            if self.writes:
                y.mul_(3)
            return self.last(self.after(self.out(y) + beside))

    class Scaled(Between):
        """A model whose result tells which instance ran."""

        scale = 1.0

        def forward(self, x):
            return super().forward(x) * self.scale

    def doubled(x):
        return x * 2

    class Spanning(Between):
        """A part of them is in a context that is opened between modules."""

        def __init__(self, context):
            super().__init__()
            self.context = context

        def forward(self, x):
            y = self.out(self.first(x)).abs()
            with self.context():
                return self.last(self.after(y))

    class Counting(TorchDispatchMode):
        """Counts operators, with other modes where they are given the same list."""

        def __init__(self, counts=None):
            super().__init__()
            self.counts = [0] if counts is None else counts

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            self.counts[0] += 1
            return function(*arguments, **(options or {}))

    class Custom(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x):
            shared = self.linear(x)
            left, right = Cubed.apply(shared), shared.tanh()
            return left * right + shared.exp().mul(0.1)


def plain_or_composed(is_composed):
    """Blocks with GELU, or with one of another name."""
    activation = nn.SiLU if is_composed else nn.GELU
    blocks = [nn.Sequential(nn.Linear(32, 128), activation(), nn.Linear(128, 32)) for _ in range(5)]
    return nn.Sequential(*blocks), lambda: torch.randn(128, 32)


def transformer(dropout=0.0):
    return nn.Sequential(*[Block(32, dropout) for _ in range(5)]), lambda: torch.randn(4, 32, 32)


def resnet():
    return nn.Sequential(*[Residual(8) for _ in range(5)]), lambda: torch.randn(4, 8, 16, 16)


def custom():
    return nn.Sequential(*[Custom(32) for _ in range(5)]), lambda: torch.randn(64, 32)


def make_step(make):
    """A step as plan_step takes it."""

    def setup():
        model, data = make()
        optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.1), data()

        def step():
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return setup


def planned(make, share=None, capacity=None, move=False, **options):
    """A plan for a share of what the plain step needs at most."""
    if capacity is None:
        capacity = 1 << 40 if share is None else int(plain_peak(make) * share)
    return omniheap.fit.plan_step(make_step(make), capacity, device="cpu", min_bytes=1024, move=move, **options)


@functools.lru_cache(maxsize=None)
def plain_peak(make):
    return planned(make).plain_peak_bytes


class Trained:
    """Three steps of training from one seed, and what they held."""

    def __init__(self, make, plan=None, calls=1):
        torch.manual_seed(7)
        model, data = make()
        batch, self.losses, self.figures = data(), [], None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        applied = omniheap.fit.apply(plan, model) if plan is not None else None

        def step():
            for _ in range(calls):
                loss = model(batch).square().mean()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            self.losses.append(loss.item())

        step()
        with tempfile.TemporaryDirectory() as folder:
            recording = omniheap.fit.record_step(lambda: step, os.path.join(folder, "step.omt"), fake=False, device="cpu")
        # Earlier tensors are not recorded.
        there = sum(each.untyped_storage().nbytes() for each in (*model.parameters(), *model.buffers(), batch))
        self.peak_bytes, self.state = there + recording.peak_live_bytes, {name: value.clone() for name, value in model.state_dict().items()}
        self.drawn = torch.rand(4).tolist()
        if applied is not None:
            self.figures, self.differences = applied.figures(), applied.differences()
            applied.remove()


@unittest.skipUnless(_HAS_TORCH and _COMMAND, "needs PyTorch, and the command omniheap-lab")
class Plans(unittest.TestCase):
    def assert_same(self, one, other):
        self.assertEqual(one.losses, other.losses)
        self.assertEqual(one.drawn, other.drawn, "random numbers after the steps")
        for name, value in one.state.items():
            self.assertTrue(torch.equal(value, other.state[name]), name)

    def check(self, make, shares, **options):
        """Trains by plans; the same to the bit as without, and within the bytes that were planned."""
        plain = Trained(make)
        for share in shares:
            with self.subTest(share=share):
                plan = planned(make, share, **options)
                self.assertLessEqual(plan.peak_bytes, plan.plain_peak_bytes * share)
                followed = Trained(make, plan)
                self.assert_same(plain, followed)
                self.assertEqual(followed.figures["missing"], 0)
                self.assertLess(followed.peak_bytes, plain.peak_bytes)
                self.assertLessEqual(followed.peak_bytes, plan.peak_bytes * 1.02)
        return plan, plain, followed

    def test_a_transformer_trains_the_same_in_fewer_bytes(self):
        plan, plain, followed = self.check(transformer, (0.9, 0.7, 0.5))
        # The planned bytes are held: not much less either.
        self.assertGreater(followed.peak_bytes, plan.peak_bytes * 0.9)
        self.assertLess(followed.peak_bytes, plain.peak_bytes * 0.56)
        self.assertGreater(followed.figures["recomputed_bytes"], 0)
        self.assertLessEqual(plan.least_cost_seconds, plan.cost_seconds)

    def test_batch_statistics_and_operators_in_place(self):
        plan, _, followed = self.check(resnet, (0.9, 0.6))
        self.assertIn("aten.relu_.default", {each.operator for each in plan.choices if each.choice == "recompute"})

    def test_what_is_written_in_place_may_read_what_is_younger(self):
        class Shorter(Residual):
            """As blocks of a ResNet that halve an image: the second branch begins when the storage of the sum is there."""

            def __init__(self, width):
                super().__init__(width)
                self.beside = nn.Sequential(nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width))

            def forward(self, x):
                out = functional.relu(self.norm_one(self.one(x)), inplace=True)
                out = self.norm_two(self.two(out))
                out += self.beside(x)
                return functional.relu(out, inplace=True)

        make = lambda: (nn.Sequential(*[Shorter(8) for _ in range(4)]), lambda: torch.randn(4, 8, 16, 16))
        self.check(make, (0.7,))

    def test_dropout_repeats_itself_and_others_do_not_notice(self):
        make = lambda: transformer(dropout=0.3)
        plan, _, _ = self.check(make, (0.6, 0.5))
        chosen = {each.operator for each in plan.choices if each.choice == "recompute"}
        self.assertIn("aten.native_dropout.default", chosen)

    def test_attention_without_dropout_draws_nothing(self):
        others = ("aten.addmm.default", "aten.gelu.default", "aten.native_layer_norm.default")
        plan = planned(transformer, 0.9, speed=omniheap.fit.Speed(times=dict.fromkeys(others, 1.0)))
        again = [each.name for each in plan.operators() if each.runs_again and "attention" in each.name]
        self.assertTrue(again, "attention runs again")
        with mock.patch.object(_apply, "_default_generator", side_effect=AssertionError):
            Trained(transformer, plan)
        attention = torch.ops.aten._scaled_dot_product_flash_attention.default
        self.assertTrue(_operators.draws(attention, (None, None, None, 0.1), {}))
        self.assertTrue(_operators.draws(attention, (None, None, None), {"dropout_p": 0.1}))
        self.assertFalse(_operators.draws(attention, (None, None, None), {}))
        self.assertTrue(_operators.draws(torch.ops.aten.native_dropout.default, (None, 0.1, True), {}))

    def test_custom_functions_shared_activations_and_branches(self):
        self.check(custom, (0.9, 0.7))

    def test_bytes_that_were_written_over_are_computed_again(self):
        make = lambda: (nn.Sequential(*[WritesOver(32) for _ in range(4)]), lambda: torch.randn(64, 32))
        plan, _, _ = self.check(make, (0.8,))
        self.assertIn("aten.sigmoid.default", {each.operator for each in plan.choices if each.choice == "recompute"})

    def test_a_recurrent_layer_in_one_kernel_is_kept(self):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.out = nn.LSTM(32, 64, 2, batch_first=True, dropout=0.2), nn.Linear(64, 100)

            def forward(self, x):
                return self.out(self.layer(x)[0]).log_softmax(-1)

        make = lambda: (Recurrent(), lambda: torch.randn(8, 40, 32))
        draft = omniheap.fit.draft_step(make_step(make), device="cpu", min_bytes=1024, move=False)
        # Room for moves is less than the bytes that can be computed again.
        plan = draft.plan(int(0.6 * draft.floor().bytes + 0.4 * draft.plain_peak_bytes))
        self.assert_same(Trained(make), Trained(make, plan))
        self.assertEqual({each.choice for each in plan.choices if "_rnn" in each.operator}, {"keep"})
        self.assertGreater(plan.bytes("recompute"), 0)

    def test_what_stands_for_the_results_of_recurrent_layers_does_not_move(self):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.out = nn.LSTM(512, 512, batch_first=True), nn.Sequential(*[nn.Linear(512, 512) for _ in range(24)])

            def forward(self, x):
                return self.out(self.layer(x)[0])

        def setup():
            with torch.device("cuda"):
                model = Recurrent()
            return lambda: model(torch.ones(64, 256, 512, device="cuda")).sum().backward()

        slow = omniheap.fit.Speed(times=dict.fromkeys(("aten.addmm.default", "aten.clone.default", "aten.add_.Tensor"), 1.0))
        draft = omniheap.fit.draft_step(setup, device="cuda:0", speed=slow)
        plan = draft.plan((draft.floor().bytes + draft.plain_peak_bytes) // 2)
        self.assertGreater(plan.bytes("move"), 0)
        self.assertFalse([each for each in plan.choices if each.choice == "move" and "empty" in each.operator])

    def test_what_libraries_take_is_planned(self):
        def setup():
            with torch.device("cuda"):
                model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
            return lambda: model(torch.ones(1024, 64, device="cuda")).sum().backward()

        peak = lambda gpu: omniheap.fit.draft_step(setup, steps=1, speed=omniheap.fit.Speed(), gpu=gpu).plain_peak_bytes
        self.assertEqual(peak("NVIDIA H200") - peak(None), 65 << 20)

    def test_a_rate_of_layers_is_a_number_where_the_host_is_the_device(self):
        class MayBeLeftOut(Block):
            def forward(self, x):
                return super().forward(x) if torch.rand([]) >= 0.0 else x

        self.check(lambda: (nn.Sequential(*[MayBeLeftOut(32) for _ in range(5)]), lambda: torch.randn(4, 32, 32)), (0.7,))

    def test_the_cycle_collector_is_not_needed(self):
        plan = planned(transformer, 0.6)
        gc.collect()
        gc.disable()
        try:
            model, data = transformer()
            with omniheap.fit.apply(plan, model):
                batch = data()
                model(batch).sum().backward()
                gc.collect()
                model(batch).sum().backward()
                from omniheap.fit._apply import _Node

                self.assertFalse([each for each in gc.get_objects() if isinstance(each, _Node)])
        finally:
            gc.enable()

    def test_moves_go_through_the_hooks_of_offloading(self):
        from of_the_product import Copier

        copier = Copier()
        plan = planned(transformer, 0.6, move=True, speed=omniheap.fit.Speed(flops=1e9, memory_bytes=1e9))
        self.assertGreater(plan.bytes("move"), 0)
        plain = Trained(transformer)
        with mock.patch.object(_activations, "_copier_of", lambda device: copier):
            followed = Trained(transformer, plan)
        self.assert_same(plain, followed)
        self.assertGreater(copier.sent, 0)
        self.assertEqual(copier.sent, copier.fetched)
        self.assertGreater(followed.figures["moved_bytes"], 0)

    def test_backward_passes_over_one_graph(self):
        plan = planned(transformer, 0.6)
        torch.manual_seed(1)
        model, data = transformer()
        batch, found = data(), []
        for applied in (None, omniheap.fit.apply(plan, model)):
            loss = model(batch).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()
            found.append([each.grad.clone() for each in model.parameters()])
            model.zero_grad()
        self.assertTrue(all(torch.equal(*pair) for pair in zip(*found)))
        self.assertGreater(applied.figures()["operators_run_again"], 0)

    def test_a_smaller_batch_and_no_gradients(self):
        plan = planned(transformer, 0.6)
        model, _ = transformer()
        small = torch.randn(1, 8, 32)
        wanted = torch.autograd.grad(model(small).sum(), model[0].up.weight)[0]
        with omniheap.fit.apply(plan, model) as applied:
            self.assertTrue(torch.equal(torch.autograd.grad(model(small).sum(), model[0].up.weight)[0], wanted))
            self.assertEqual(applied.figures()["missing"], 0)
            with torch.no_grad():
                model(small)
        self.assertFalse(model._forward_pre_hooks or model._forward_hooks or "forward" in model.__dict__)

    def test_an_exception_in_the_forward_pass_ends_it(self):
        plan = planned(transformer, 0.6)
        model, data = transformer()
        applied = omniheap.fit.apply(plan, model)
        with self.assertRaises(ValueError):
            model(torch.randn(4, 32))
        model(data()).sum().backward()
        self.assertEqual(applied.figures()["missing"], 0)

    def test_where_pytorch_forbids_hooks_nothing_is_left(self):
        modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack
        plan = planned(transformer, 0.6)
        model, data = transformer()
        applied = omniheap.fit.apply(plan, model)
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            with self.assertRaisesRegex(RuntimeError, "not here"):
                model(data())
        self.assertEqual(modes(), [])
        model(data()).sum().backward()
        self.assertEqual((applied.figures()["missing"], modes()), (0, []))

    def test_other_threads_run_beside_a_pass(self):
        modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack
        plan = planned(transformer, 0.6)
        model, data = transformer()
        batch, said = data(), []

        def in_thread(work):
            def run():
                try:
                    work()
                    said.append(len(modes()))
                except (OmniheapError, RuntimeError) as error:
                    said.append(str(error))

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()

        def beside(*_):
            if threading.current_thread() is threading.main_thread():
                in_thread(lambda: other(batch))
                in_thread(lambda: model(batch))

        applied = omniheap.fit.apply(plan, model)
        model(batch).sum().backward()
        want = [each.grad.clone() for each in model.parameters()]
        other = copy.deepcopy(model[0])
        for hooked in (model[1], model[3].first):
            hook = hooked.register_forward_pre_hook(beside)
            self.addCleanup(hook.remove)
        for _ in range(2):
            model.zero_grad()
            model(batch).sum().backward()
            self.assertTrue(all(torch.equal(one.grad, two) for one, two in zip(model.parameters(), want)))
            self.assertEqual((applied.figures()["missing"], applied.figures()["unplanned"], modes()), (0, 0, []))
        self.assertEqual(said[::2], [0] * 4, "another model is left alone")
        self.assertTrue(all("another thread" in each for each in said[1::2]), said)

    def test_every_call_of_a_step_follows_the_plan(self):
        plan = planned(transformer, 0.6)
        model, data = transformer()
        batch = data()
        with omniheap.fit.apply(plan, model) as applied:
            for calls in (1, 2, 3):
                before = applied.figures()["recomputed_bytes"]
                sum(model(batch).sum() for _ in range(calls)).backward()
                self.assertEqual(applied.figures()["recomputed_bytes"] - before, calls * plan.bytes("recompute"))

    def test_every_call_of_a_shared_block_follows_the_plan(self):
        class Repeated(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block(32)

            def forward(self, x):
                for _ in range(4):
                    x = self.block(x)
                return x

        plan, _, followed = self.check(lambda: (Repeated(), lambda: torch.randn(4, 32, 32)), (0.6,))
        calls = {each.module.partition("#")[2] for each in plan.choices if each.choice == "recompute"}
        self.assertGreater(len(calls), 1, "more than the first call is planned")
        # One step beside the two that are recorded.
        self.assertEqual(followed.figures["recomputed_bytes"], 3 * plan.bytes("recompute"))

    def test_a_plan_is_printed_saved_and_loaded(self):
        plan = planned(transformer, 0.6)
        printed = str(plan)
        self.assertRegex(printed, r"recompute +[\d,]+ +[\d.]+  1.up: aten.addmm.default")
        self.assertIn(f"peak {plan.peak_bytes:,} bytes instead of {plan.plain_peak_bytes:,}", printed)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            plan.save(path)
            loaded = omniheap.fit.StepPlan.load(path)
            self.assertEqual(str(loaded), printed)
            self.assert_same(Trained(transformer, loaded), Trained(transformer))
            with open(path, "w") as file:
                file.write('{"version": 9}')
            with self.assertRaisesRegex(OmniheapError, "no plan of version 2"):
                omniheap.fit.StepPlan.load(path)
            with open(path, "w") as file:
                file.write('{"version": 2, "figures": {}, "choices": [], "operators": []}')
            with self.assertRaisesRegex(OmniheapError, "no plan of version 2 .no figure capacity_bytes"):
                omniheap.fit.StepPlan.load(path)
            with self.assertRaisesRegex(OmniheapError, "cannot be written"):
                plan.save(os.path.join(folder, "none", "x"))
            self.assertEqual(os.listdir(folder), ["plan.json"])

    def test_what_fits_is_kept(self):
        plan = planned(transformer)
        self.assertEqual({each.choice for each in plan.choices}, {"keep"})
        self.assertEqual((plan.cost_seconds, [each.name for each in plan.operators() if each.runs_again or each.outputs]), (0, []))

    def test_a_capacity_below_the_floor_names_the_operator(self):
        with self.assertRaisesRegex(OmniheapError, r"aten\.\S+ alone needs \d+ bytes, whatever is recomputed or moved, and the capacity is 100000"):
            planned(transformer, capacity=100_000)

    def test_a_draft_is_planned_for_several_capacities_and_knows_its_floor(self):
        draft = omniheap.fit.draft_step(make_step(transformer), device="cpu", min_bytes=1024, move=False)
        floor, model = draft.floor(), transformer()[0]
        self.assertEqual(floor.bytes, sum(floor.parts.values()))
        self.assertEqual(floor.parts["parameter"], sum(-(-each.nbytes // 512) * 512 for each in model.parameters()))
        self.assertIn(f"{floor.operator} alone needs {floor.bytes} bytes (activation ", str(floor))
        with self.assertRaisesRegex(OmniheapError, rf"needs {floor.bytes} bytes.*and the capacity is {floor.bytes - 1} \(live then: .*parameter {floor.parts['parameter']}"):
            draft.plan(floor.bytes - 1)
        # No way to checkpoint passes it either.
        from torch.utils.checkpoint import checkpoint

        def checkpointed():
            model, data = transformer()
            for block in model:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
            return model, data

        self.assertGreater(Trained(checkpointed).peak_bytes, floor.bytes)
        costs = [draft.plan(int(floor.bytes + share * (draft.plain_peak_bytes - floor.bytes))).cost_seconds for share in (0.3, 0.6, 1)]
        self.assertEqual(sorted(costs, reverse=True), costs)
        self.assertEqual(costs[-1], 0)

    def test_operators_are_measured_where_the_device_is_at_hand(self):
        asked = []

        def measured(torch, device, operator):
            asked.append(operator.name)
            if "layer_norm" in operator.name:
                raise RuntimeError("out of memory")
            return 0.25

        speed = functools.partial(omniheap.fit.Speed, device="cpu", times={"aten.gelu.default": 0.5})
        drafted = lambda: omniheap.fit.draft_step(make_step(transformer), device="cpu", min_bytes=1024, move=False, speed=speed())._program.operators
        with mock.patch.object(omniheap.fit.Speed, "_measured", staticmethod(measured)):
            seconds = {each.name: each.seconds for each in drafted()}
        self.assertEqual(len([name for name in asked if name == "aten.addmm.default"]), 4, "four kinds of products, in five blocks")
        self.assertEqual((seconds["aten.addmm.default"], seconds["aten.gelu.default"]), (0.25, 0.5))
        self.assertNotIn("aten.gelu.default", asked, "the table says it")
        self.assertLess(seconds["aten.native_layer_norm.default"], 1e-3, "the estimate stays")
        before = torch.get_rng_state()
        real = {each.name: each.seconds for each in drafted()}
        self.assertTrue(torch.equal(torch.get_rng_state(), before))
        self.assertGreater(real["aten.addmm.default"], 0)

    def test_a_gpu_that_is_not_there_is_not_measured(self):
        speed = lambda device: omniheap.fit.Speed.known(torch, torch.device(device)).device
        with mock.patch.object(torch.cuda, "is_available", lambda: True), mock.patch.object(torch.cuda, "device_count", lambda: 1):
            self.assertEqual([speed(each) for each in ("cuda", "cuda:0", "cuda:1", "cpu")], [torch.device("cuda"), torch.device("cuda:0"), None, None])
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            self.assertIsNone(speed("cuda:0"))
            with self.assertRaisesRegex(OmniheapError, "no cuda:7 here.*leave device out"):
                omniheap.fit.draft_step(lambda: self.fail("nothing runs"), device="cpu", speed=omniheap.fit.Speed(device="cuda:7"))

    def test_times_come_from_a_table_and_else_from_the_device(self):
        def choices(seconds):
            plan = planned(transformer, 0.8, speed=omniheap.fit.Speed(times={"aten.gelu.default": seconds}))
            return {each.choice for each in plan.choices if each.operator == "aten.gelu.default"}

        self.assertIn("recompute", choices(1e-9))
        self.assertNotIn("recompute", choices(1.0))

    def test_the_example_of_the_documentation(self):
        with open(_PAGE) as file:
            examples = [each.split("```")[0] for each in file.read().split("```python\n")[1:]]
        (example,) = [each for each in examples if "plan_step" in each]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(example, _PAGE, "exec"), {})
        self.assertRegex(said.getvalue(), r"recompute +[\d,]+.*\n[^$]*'missing': 0")

    def test_bad_input(self):
        plan = planned(transformer, 0.6)
        model, data = transformer()
        for wrong, said in (((None, model), "what omniheap.fit.plan_step returned"), ((plan, None), "pass the torch.nn.Module")):
            with self.assertRaisesRegex(OmniheapError, said):
                omniheap.fit.apply(*wrong)
        with omniheap.fit.apply(plan, model):
            with self.assertRaisesRegex(OmniheapError, "follows a plan already"):
                omniheap.fit.apply(plan, model)
        around = nn.Sequential(nn.Sequential(model))
        with omniheap.fit.apply(plan, around), self.assertRaisesRegex(OmniheapError, "nothing of the plan was found"):
            around(data())
        for options, said in (({"capacity": "lots"}, "capacity"), ({"capacity": 1 << 30, "link": 0}, "link"), ({"capacity": 1 << 30, "steps": 0}, "steps")):
            with self.assertRaisesRegex(OmniheapError, said):
                omniheap.fit.plan_step(make_step(transformer), **options, device="cpu")
        with self.assertRaisesRegex(OmniheapError, "saves no activation"):
            omniheap.fit.plan_step(lambda: torch.ones(4), 1 << 30, device="cpu")

    def test_a_model_that_is_called_twice_in_a_step_is_refused_and_may_follow_a_plan_of_one_call(self):
        def setup():
            model, data = transformer()
            return lambda: (model(data()).sum() + model(data()).sum()).backward()

        with self.assertRaisesRegex(OmniheapError, "calls Sequential more than once"):
            omniheap.fit.plan_step(setup, 1 << 30, device="cpu")
        self.assert_same(Trained(transformer, planned(transformer, 0.6), calls=2), Trained(transformer, calls=2))


class Matching(unittest.TestCase):
    """Operators of a plan, looked for by hand."""

    def found(self, family, reads, type, can_run_again=True, times=1):
        planned = _operators.Planned("layer", "aten.mm.default", "mm", ("weight",), ["float32[64]"], saved={0: 256}, runs_again=True)
        matches = _operators.Matches([planned])
        return [matches.find_like("layer", family, reads, type, can_run_again) is planned for _ in range(times)]

    def test_what_is_like_an_operator_has_its_result_and_its_family_or_parameters(self):
        self.assertEqual(self.found("mm", ("other",), "float32[64]"), [True])
        self.assertEqual(self.found("exp", ("weight",), "float32[64]"), [True])
        self.assertEqual(self.found("exp", ("other",), "float32[64]"), [False])
        self.assertEqual(self.found("mm", ("weight",), "bfloat16[64]"), [False])

    def test_what_runs_again_is_found_by_what_can_and_once(self):
        self.assertEqual(self.found("mm", ("weight",), "float32[64]", can_run_again=False), [False])
        self.assertEqual(self.found("mm", ("weight",), "float32[64]", times=2), [True, False])

    def test_what_was_found_otherwise_is_not_found_again(self):
        first, second = (_operators.Planned("layer", "aten.mm.default", "mm", (), ["float32[64]"], saved={0: 256}) for _ in range(2))
        matches = _operators.Matches([first, second])
        matches.drop(first)
        self.assertIs(matches.find("layer", "mm", ()), second)
        matches = _operators.Matches([first])
        matches.drop(first)
        self.assertFalse(matches.may_find_like("layer"))


@unittest.skipUnless(_HAS_TORCH and _COMMAND, "needs PyTorch, and the command omniheap-lab")
class Differences(unittest.TestCase):
    """Runs that have other operators than the step that was planned."""

    def test_casts_of_a_gpu_are_found_in_the_order_of_a_run(self):
        # Planned for a GPU, and run on a CPU: both cast what a layer reads, the bias first.
        make = lambda: (nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]), lambda: torch.randn(64, 64))

        def setup():
            with torch.device("cuda"):
                model, data = make()
                batch = data()

            def step():
                with torch.autocast("cuda", torch.bfloat16):
                    loss = model(batch).square().mean()
                loss.backward()
                model.zero_grad()

            return step

        draft = omniheap.fit.draft_step(setup, min_bytes=1024, move=False)
        plan = draft.plan(int(0.6 * draft.floor().bytes + 0.4 * draft.plain_peak_bytes))
        dropped = {each.operator for each in plan.choices if each.choice == "recompute"}
        self.assertIn("aten._to_copy.default", dropped)
        model, data = make()
        with omniheap.fit.apply(plan, model) as applied, torch.autocast("cpu", torch.bfloat16):
            model(data()).square().mean().backward()
        self.assertEqual(applied.differences(), "")
        self.assertEqual((applied.figures()["missing"], applied.figures()["unplanned"]), (0, 0))

    def test_another_attention_is_counted_against_the_capacity(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        draft = omniheap.fit.draft_step(make_step(transformer), device="cpu", min_bytes=1024, move=False)
        capacity = int(draft.plain_peak_bytes * 0.8)
        plan = draft.plan(capacity)
        with sdpa_kernel(SDPBackend.MATH):
            wanted = Trained(transformer)
            with self.assertWarnsRegex(UserWarning, rf"may need \d+ bytes, where the capacity is {capacity}: plan it for \d+ to make up"):
                followed = Trained(transformer, plan)
            # A model that differs still computes the same.
            self.assertEqual(followed.losses, wanted.losses)
            figures = followed.figures
            self.assertGreater(figures["missing"], 0)
            # Five blocks keep a matrix of 32 x 32 for each of 4 x 4 heads, and more.
            self.assertGreaterEqual(figures["unplanned_bytes"], 5 * 4 * 4 * 32 * 32 * 4)
            self.assertGreater(followed.peak_bytes, capacity)
            self.assertLessEqual(followed.peak_bytes, plan.peak_bytes + figures["unplanned_bytes"])
            self.assertRegex(followed.differences, r"\d+ of \d+ activations that the plan drops were not saved by this model: aten")
            self.assertRegex(followed.differences, r"\d+ activations with \d+ bytes were kept that the plan does not keep: .*softmax")
        # In a step that allows this attention alone, it is what is recorded.
        def setup():
            step = make_step(transformer)()

            def run():
                with sdpa_kernel(SDPBackend.MATH):
                    step()

            return run

        plan = omniheap.fit.plan_step(setup, capacity=int(wanted.peak_bytes * 0.7), device="cpu", min_bytes=1024, move=False)
        with sdpa_kernel(SDPBackend.MATH):
            followed = Trained(transformer, plan)
        self.assertEqual((followed.figures["missing"], followed.figures["unplanned"], followed.differences), (0, 0, ""))
        self.assertLessEqual(followed.peak_bytes, plan.peak_bytes * 1.02)

    def test_an_operator_of_another_name_is_found_by_its_result(self):
        plan = planned(functools.partial(plain_or_composed, False), 0.7)
        dropped = {each.operator for each in plan.choices if each.choice == "recompute"}
        self.assertIn("aten.gelu.default", dropped)
        plain = Trained(functools.partial(plain_or_composed, True))
        followed = Trained(functools.partial(plain_or_composed, True), plan)
        self.assertEqual(followed.losses, plain.losses)
        self.assertEqual((followed.figures["missing"], followed.figures["unplanned"]), (0, 0))
        self.assertLess(followed.peak_bytes, plain.peak_bytes)


@unittest.skipUnless(_HAS_TORCH and _COMMAND, "needs PyTorch, and the command omniheap-lab")
class Tracks(unittest.TestCase):
    """Passes that follow an earlier one."""

    def setUp(self):
        torch.manual_seed(3)
        self.model, data = transformer()
        self.batch = data()
        # Little is dropped, so that there are modules in which nothing is to be done.
        self.plan = planned(transformer, 0.9)

    def gradients(self):
        self.model(self.batch).square().mean().backward()
        found = [each.grad.clone() for each in self.model.parameters()]
        self.model.zero_grad()
        return found

    def assert_gradients(self, wanted):
        self.assertTrue(all(torch.equal(*pair) for pair in zip(self.gradients(), wanted)))

    def test_only_the_first_pass_looks_for_its_operators(self):
        wanted, seen, run = self.gradients(), [], _apply._Pass.run

        def counted(self, function, *given):
            seen[-1] += 1
            return run(self, function, *given)

        with omniheap.fit.apply(self.plan, self.model) as applied, mock.patch.object(_apply._Pass, "run", counted):
            again = []
            for _ in range(3):
                seen.append(0)
                self.assert_gradients(wanted)
                again.append(applied.figures()["operators_run_again"])
            self.assertEqual(applied.figures()["searched"], 1)
        self.assertGreater(again[0], 0)
        self.assertEqual(again, [again[0], 2 * again[0], 3 * again[0]])
        self.assertEqual(seen[1], seen[2])
        self.assertLess(seen[1], seen[0], "modules in which nothing is to be done are looked at")

    def test_a_pass_that_takes_another_way_finds_the_rest_of_its_operators(self):
        with omniheap.fit.apply(self.plan, self.model) as applied:
            self.gradients()
            wanted = applied.figures()["operators_run_again"]
            # The blocks are the same, and something comes between them.
            between = self.model[2].register_forward_hook(lambda module, arguments, result: result + 0)
            self.gradients()
            self.assertEqual((applied.figures()["missing"], applied.figures()["operators_run_again"]), (0, 2 * wanted))
            between.remove()
            self.gradients()
            self.gradients()
            self.assertEqual((applied.figures()["missing"], applied.figures()["operators_run_again"]), (0, 4 * wanted))

    def test_a_mode_of_the_model_stays_where_it_is(self):
        mode = Counting()
        self.assert_each_pass_counts(mode, lambda: mode.counts[0])
        self.assertEqual(torch._C._len_torch_dispatch_stack(), 0)

    def test_autograd_asks_only_where_something_is_dropped(self):
        wanted, asked, packed = self.gradients(), [], _apply._Pass._packed

        def counted(self, tensor):
            asked[-1] += 1
            return packed(self, tensor)

        with omniheap.fit.apply(self.plan, self.model) as applied, mock.patch.object(_apply._Pass, "_packed", counted):
            for _ in range(3):
                asked.append(0)
                self.assert_gradients(wanted)
                self.assertEqual(applied.figures()["missing"], 0, "all that is dropped was asked for")
        self.assertEqual(asked[1], asked[2])
        self.assertLess(asked[1], asked[0])

    def test_hooks_of_the_model_stay_where_they_are(self):
        saved = []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(0) or tensor, lambda tensor: tensor)
        self.assert_each_pass_counts(hooks, lambda: len(saved))

    def assert_each_pass_counts(self, watched, count):
        """Checks that what the model itself watches an inner module by sees as much in each pass, also where the pass has nothing to do."""
        inner = nn.Linear(32, 32)

        def inside(x):
            with watched:
                y = inner(x)
            # A written tensor must be looked at, so only the inner module is one in which nothing is to be done.
            return y.clone().mul_(2)

        self.model[1].out.forward = inside
        with omniheap.fit.apply(self.plan, self.model):
            counts = []
            for _ in range(3):
                self.model(self.batch).sum().backward()
                counts.append(count())
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts, [counts[0], 2 * counts[0], 3 * counts[0]])

    def test_an_exception_where_nothing_is_to_be_done(self):
        wanted = self.gradients()
        with omniheap.fit.apply(self.plan, self.model) as applied:
            self.gradients()
            quiet = [each.module for each in applied.track.stretches if each.is_quiet and each.module is not None]
            self.assertTrue(quiet)
            with mock.patch.object(quiet[0], "forward", side_effect=ValueError):
                self.assertRaises(ValueError, self.gradients)
            self.assertEqual(torch._C._len_torch_dispatch_stack(), 0)
            self.assertIsNone(torch._C._autograd._top_saved_tensors_default_hooks(False))
            self.assert_gradients(wanted)


@unittest.skipUnless(_HAS_TORCH, "PyTorch is not installed")
class Inputs(unittest.TestCase):
    def test_what_should_move_and_is_never_saved_stays_for_what_is_computed_from_it(self):
        class Model(nn.Module):
            def forward(self, x):
                return (x * 2).exp()  # Autograd saves the result of `exp`, and nothing of the product.

        planned = functools.partial(_operators.Planned, "", reads=(), types=["float32[64]"])
        product = planned("aten.mul.Tensor", "mul", saved={}, outputs={0: _apply.MOVE})
        exponential = planned("aten.exp.default", "exp", saved={0: 256}, runs_again=True, outputs={0: _apply.RECOMPUTE})
        plan = types.SimpleNamespace(operators=lambda: [product, exponential], peak_bytes=0, capacity_bytes=1 << 20)
        x = torch.linspace(0, 1, 64, requires_grad=True)
        model = Model()
        (wanted,) = torch.autograd.grad(model(x).sum(), x)
        with _apply.Applied(plan, model):
            result = model(x).sum()
        gc.collect()
        (found,) = torch.autograd.grad(result, x)
        self.assertTrue(torch.equal(found, wanted))

    def test_what_is_dropped_is_asked_for_in_modules_in_which_nothing_is_to_be_done(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(64, 64)

            def forward(self, x):
                return self.out(x * 2)  # The layer saves the product, and nothing of its own.

        product = _operators.Planned("", "aten.mul.Tensor", "mul", (), ["float32[8x64]"], {0: 2048}, True, {0: _apply.RECOMPUTE})
        plan = types.SimpleNamespace(operators=lambda: [product], peak_bytes=0, capacity_bytes=1 << 20)
        model, x = Model(), torch.ones(8, 64)
        with _apply.Applied(plan, model) as applied:
            for passes in (1, 2, 3):
                model(x).sum().backward()
                figures = applied.figures()
                self.assertEqual((figures["missing"], figures["recomputed_bytes"]), (0, 2048 * passes))
            self.assertTrue([each for each in applied.track.stretches if each.is_quiet and each.saves])

    def test_passes_are_alike_where_autograd_saves_results_and_asks_nobody(self):
        class First(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(64))

            def forward(self, x):
                return x * 2, self.scale.exp()  # Autograd saves the second one, as it is made.

        class Model(Between):
            def forward(self, x):
                y, scale = self.first(x)
                return self.last(self.after(self.out(y) * scale))

        model, x = Model(), torch.ones(8, 64)
        model.first = First()
        with _apply.Applied(model.plan(), model) as applied:
            for passes in (1, 2, 3):
                model(x).sum().backward()
                figures = applied.figures()
                self.assertEqual((figures["searched"], figures["missing"], figures["recomputed_bytes"]), (1, 0, 4096 * passes))

    def test_what_is_written_where_nothing_is_looked_at_is_kept(self):
        model, x = Between(), torch.ones(8, 64)
        nn.init.eye_(model.last.weight)
        with _apply.Applied(model.plan(), model) as applied:
            model(x).sum().backward()
            self.assertEqual(applied.figures()["missing"], 0)
            self.assertTrue([each for each in applied.track.stretches if each.module is None and each.is_quiet], "what is written is not looked at")
            model.writes = True
            model.zero_grad()
            model(x).sum().backward()
        # The layer read 1 * 2 * 3, eight times, and was doubled.
        self.assertTrue(torch.equal(model.out.weight.grad, torch.full((64, 64), 96.0)))

    def test_what_is_computed_from_bytes_that_are_written_later_is_computed_from_what_they_were(self):
        class Model(Between):
            def forward(self, x):
                y = self.first(x)
                # Autograd saves nothing of `y`, so it may be written to.
                result = self.last(self.after(y)) + x.abs()
                if self.writes:
                    y.mul_(3)
                return self.out(result), y

        def gradient():
            model.zero_grad()
            results = model(torch.ones(8, 64))
            sum(each.sum() for each in results).backward()
            return model.last.weight.grad

        model = Model()
        plan = model.plan()
        plan.operators()[0].outputs[0] = _change.PASS
        wanted = gradient().clone()
        with _apply.Applied(plan, model) as applied:
            for model.writes in (False, True):
                self.assertTrue(torch.equal(gradient(), wanted))
                self.assertEqual(applied.figures()["missing"], 0)
            self.assertGreater(applied.figures()["recomputed_bytes"], 2048, "both passes compute it again")

    def test_an_interrupt_ends_the_pass(self):
        model, x = Between(), torch.ones(8, 64)
        with _apply.Applied(model.plan(), model) as applied:
            model(x).sum().backward()
            for interrupt in (KeyboardInterrupt, SystemExit, ValueError):
                with mock.patch.object(model.out, "forward", side_effect=interrupt):
                    self.assertRaises(interrupt, model, x)
                self.assertEqual(torch._C._len_torch_dispatch_stack(), 0)
                self.assertIsNone(torch._C._autograd._top_saved_tensors_default_hooks(False))
            before = applied.figures()["operators_run_again"]
            model(x).sum().backward()
            self.assertEqual(applied.figures()["operators_run_again"], before + 2, "the plan is followed again")

    def test_a_model_that_calls_itself_is_one_pass(self):
        class Twice(Between):
            def forward(self, x, is_first=True):
                return self(super().forward(x), False) if is_first else super().forward(x)

        model, x = Twice(), torch.ones(8, 64)
        with _apply.Applied(model.plan(), model) as applied:
            model(x).sum().backward()
            self.assertEqual((applied.figures()["missing"], applied.figures()["searched"]), (0, 1))

    def test_copies_and_files_of_a_model_follow_no_plan(self):
        model, x = Between(), torch.ones(8, 64)
        saved = io.BytesIO()
        with _apply.Applied(model.plan(), model) as applied:
            average = torch.optim.swa_utils.AveragedModel(model)
            torch.save(model, saved)
            saved.seek(0)
            copies = [copy.deepcopy(model), average.module, pickle.loads(pickle.dumps(model)), torch.load(saved, weights_only=False)]
            self.assertEqual(str(inspect.signature(model.forward)), "(x)")
            wanted = model(x)
            wanted.sum().backward()
            before = applied.figures()
            for each in copies:
                with torch.no_grad():
                    each.out.weight.mul_(2)
                self.assertFalse(torch.equal(each(x), wanted), "its own weights")
                self.assertIs(each.forward.__self__, each)
                each(x).sum().backward()
            self.assertEqual(applied.figures(), before)
            self.assertTrue(torch.equal(model(x), wanted))
        self.assertTrue(torch.equal(model(x), wanted))

    def test_shallow_copies_run_themselves(self):
        x = torch.ones(8, 64)
        for shallow in (copy.copy, nn.Module._replicate_for_data_parallel):
            with self.subTest(shallow.__name__):
                model = Scaled()
                wanted = model(x)
                applied = _apply.Applied(model.plan(), model)
                other = shallow(model)
                other.scale = 3.0
                self.assertTrue(torch.equal(other(x), wanted * 3), "with the plan")
                self.assertEqual(applied.figures()["searched"], 0, "the copy follows no plan")
                model(x).sum().backward()
                self.assertEqual((applied.figures()["missing"], applied.figures()["searched"]), (0, 1))
                applied.remove()
                self.assertIs(type(model), Scaled)
                self.assertTrue(torch.equal(other(x), wanted * 3), "without the plan")
                self.assertIs(type(pickle.loads(pickle.dumps(other))), Scaled)
                with _apply.Applied(other.plan(), other):
                    self.assertEqual(repr(other), repr(model))
                del model, applied
                self.assertTrue(torch.equal(other(x), wanted * 3), "without the model")

    def test_a_forward_that_somebody_else_put_there_is_copied_and_filed(self):
        model, x = Product(), torch.ones(8, 64)
        model.forward = doubled
        plan = Between().plan()
        with _apply.Applied(plan, model):
            for each in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                self.assertIs(each.forward, doubled)
            model.kept = model.forward
            for each in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                self.assertTrue(torch.equal(each.kept(x), x * 2), "as those keep it who put their own around it")
            del model.kept
            self.assertTrue(torch.equal(pickle.loads(pickle.dumps(model))(x), x * 2))
        self.assertIs(model.forward, doubled)

    def test_scripts_are_refused_in_one_sentence(self):
        model, x = Product(), torch.ones(8, 64)
        with _apply.Applied(Between().plan(), model):
            other = model._replicate_for_data_parallel()
            with self.assertRaisesRegex(OmniheapError, r"torch.jit.script.*call remove\(\)"):
                torch.jit.script(model)
            self.assertTrue(torch.equal(torch.jit.script(other)(x), x * 2))

    def test_compilers_and_exports_see_the_model_itself(self):
        model, x = Between(), torch.ones(8, 64)
        wanted = model(x)
        with _apply.Applied(model.plan(), model) as applied:
            self.assertTrue(torch.equal(torch.compile(model, backend="eager")(x), wanted))
            self.assertTrue(torch.equal(torch.export.export(model, (x,)).module()(x), wanted))
            self.assertEqual(applied.figures()["searched"], 0)

    def test_classes_that_look_at_their_sub_classes_see_none(self):
        class Registered(Between):
            def __init_subclass__(cls, name):
                self.fail("a name is asked for, and there is none")

        model = Registered()
        with _apply.Applied(model.plan(), model):
            model(torch.ones(8, 64)).sum().backward()

    def test_a_model_goes_without_the_cycle_collector(self):
        model = Between()
        gone = weakref.ref(model)
        applied = _apply.Applied(model.plan(), model)
        gc.disable()
        try:
            model(torch.ones(8, 64)).sum().backward()
            del model
            self.assertIsNone(gone())
        finally:
            gc.enable()
        applied.remove()

    def test_what_was_put_around_a_model_or_below_it_stays(self):
        model, x = Between(), torch.ones(8, 64)
        own = model.forward
        model.forward = lambda x: own(x) + 1
        below, wanted = model.forward, model(x)
        applied = _apply.Applied(model.plan(), model)
        self.assertTrue(torch.equal(model(x), wanted))
        applied.remove()
        self.assertIs(model.forward, below)
        applied = _apply.Applied(model.plan(), model)
        inner = model.forward
        model.forward = lambda x: inner(x) * 2
        applied.remove()
        self.assertTrue(torch.equal(model(x), wanted * 2), "somebody else's, which calls what is out of use")

    def test_function_transforms_are_refused(self):
        model = Between()
        with _apply.Applied(model.plan(), model), self.assertRaisesRegex(OmniheapError, r"torch.func.*call remove\(\)"):
            torch.func.grad(lambda x: model(x).sum())(torch.ones(8, 64))

    def test_storages_that_last_are_forgotten_after_each_pass(self):
        model, x = Between(), torch.ones(8, 64)
        with _apply.Applied(model.plan(), model) as applied:
            applied._moves._lasting.add(1)
            model(x).sum().backward()
            self.assertEqual(applied._moves._lasting, set(), "another storage may have this identity in the next one")

    def test_what_is_made_in_place_may_move(self):
        model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Linear(64, 64)), torch.ones(8, 64)
        rectified = _operators.Planned("1", "aten.relu_.default", "relu_", (), ["float32[8x64]"], {0: 2048}, outputs={0: _apply.MOVE})
        plan = types.SimpleNamespace(operators=lambda: [rectified], peak_bytes=0, capacity_bytes=1 << 20)
        with _apply.Applied(plan, model) as applied:
            for _ in range(2):
                model(x).sum().backward()
                self.assertEqual(applied.figures()["missing"], 0)

    def test_a_context_of_the_model_may_span_modules(self):
        seen, counts = [0], []
        model, x = Spanning(lambda: Counting(seen)), torch.ones(8, 64)
        with _apply.Applied(model.plan(), model) as applied:
            for passes in (1, 2, 3):
                model(x).sum().backward()
                counts.append(seen[0])
                figures = applied.figures()
                self.assertEqual((figures["missing"], figures["recomputed_bytes"]), (0, 4096 * passes))
        self.assertEqual(counts, [counts[0], 2 * counts[0], 3 * counts[0]])
        self.assertEqual(torch._C._len_torch_dispatch_stack(), 0)


if __name__ == "__main__":
    unittest.main()

"""Operators that run again in the backward pass give the gradients of plain PyTorch, to the bit: single cases, and random models. Plans here drop all that they can, and need no planner."""

import copy
import importlib.util
import random
import unittest
from unittest import mock

import omniheap.fit
from omniheap import OmniheapError
from omniheap.fit import _apply, _operators

_HAS_TORCH = importlib.util.find_spec("torch") is not None
if _HAS_TORCH:
    import torch
    from torch import nn
    from torch.nn import functional

WIDTH = 16


if _HAS_TORCH:

    class Net(nn.Module):
        """Blocks whose activations are computed by a function of the block and its linear layer's result."""

        def __init__(self, mix, blocks=2):
            super().__init__()
            self.mix, self.generator, self.taken = mix, torch.Generator(), []
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2 * blocks))
            self.scales = nn.ParameterList(torch.randn(WIDTH, WIDTH) * 0.3 + 1 for _ in range(blocks))

        def forward(self, x):
            self.generator.manual_seed(3)
            self.taken.clear()
            for number, scale in enumerate(self.scales):
                hidden = self.mix(self, scale, self.layers[2 * number](x))
                x = x + self.layers[2 * number + 1](functional.gelu(hidden) * scale)
            return x


def train(model, between=None):
    """A forward and a backward pass; `between` comes in between."""
    model.zero_grad()
    loss = model(torch.linspace(-1, 1, WIDTH * WIDTH).reshape(WIDTH, WIDTH)).square().mean()
    if between is not None:
        between(model)
    loss.backward()
    return loss


def everything(model, between=None):
    """A plan that drops all activations that can be computed again."""

    def setup():
        fake = Net(model.mix, len(model.scales))
        return lambda: (train(fake, between), None)[1]

    draft = omniheap.fit.draft_step(setup, device="cpu", min_bytes=1, move=False)
    chosen = {row["id"]: _apply.RECOMPUTE for row in draft._rows if "recompute" in row}
    return draft._answer(1 << 40, chosen, {"peak": 0, "cost": 0, "cost_lower_bound": 0})


class Drawn:
    """Results of a training step: loss, gradients, and the next number of each generator."""

    def __init__(self, model, between):
        torch.manual_seed(1)
        self.loss = train(model, between).detach()[None]
        self.gradients = [each.grad for each in model.parameters()]
        self.drawn = torch.rand(2), torch.rand(2, generator=model.generator)

    def same(self, other):
        pairs = [(self.loss, other.loss), *zip(self.gradients, other.gradients), *zip(self.drawn, other.drawn)]
        # By their bits: two that are no numbers are the same.
        return all(torch.equal(one.view(torch.uint8), two.view(torch.uint8)) for one, two in pairs)


def both(mix, between=None, blocks=2):
    """The step without and with a plan, and how many operators ran again."""
    torch.manual_seed(0)
    plain = Net(mix, blocks)
    planned = copy.deepcopy(plain)
    with omniheap.fit.apply(everything(plain, between), planned) as applied:
        wanted = Drawn(plain, between)
        return wanted, Drawn(planned, between), applied.figures()["operators_run_again"]


def written_later(model):
    for each in model.taken:
        each.mul_(0)


def take(model, tensor):
    """A detached alias leaves the model."""
    model.taken.append(tensor.detach())
    return tensor


CASES = {
    "tril_ of a transposed product": lambda model, scale, h: (h @ scale).t().tril_() * scale,
    "addmm_ into a transposed product": lambda model, scale, h: (h @ scale).t().addmm_(h, scale).t() * scale,
    "baddbmm_ into a transposed product": lambda model, scale, h: (h @ scale).t()[None].baddbmm_(h[None], scale[None])[0] * scale,
    "gt_ keeps the type": lambda model, scale, h: torch.tanh((h.detach().clone().gt_(0.5) - h.detach() + h) * scale),
    "logical_not_ keeps the type": lambda model, scale, h: (h + h.detach().clone().gt_(0.0).logical_not_()) * scale,
    "a mask in place": lambda model, scale, h: h * h.detach().clone().gt_(0.0),
    "what is added to itself": lambda model, scale, h: (h * scale).add_(h) * scale,
    "half of it written": lambda model, scale, h: torch.cat([(h * scale)[:8].sin(), h[8:]]).mul_(2) * scale,
    "a list in place": lambda model, scale, h: (torch._foreach_mul_([(copied := h * 1.5)], 0.5), copied * scale)[1],
    "bernoulli from a generator of its own": lambda model, scale, h: h * torch.bernoulli(torch.sigmoid(h), generator=model.generator),
    "normal from a generator of its own": lambda model, scale, h: h + torch.normal(h.detach(), 1.0, generator=model.generator) * scale,
    "randn": lambda model, scale, h: h + torch.randn(h.shape) * scale,
    "randn from a generator of its own": lambda model, scale, h: h + torch.randn(h.shape, generator=model.generator) * scale,
    "randint": lambda model, scale, h: h * torch.randint(0, 2, h.shape),
    "normal": lambda model, scale, h: h + torch.normal(0.0, 1.0, h.shape) * scale,
    "randn_like": lambda model, scale, h: h + torch.randn_like(h) * scale,
    "scatter": lambda model, scale, h: h.scatter(0, torch.zeros(1, WIDTH, dtype=torch.long), scale[:1]) * scale,
    "median": lambda model, scale, h: (h - h.median(0)[0]) * scale,
}


@unittest.skipUnless(_HAS_TORCH, "PyTorch is not installed")
class Cases(unittest.TestCase):
    def test_gradients_are_those_of_plain_pytorch(self):
        for name, mix in CASES.items():
            with self.subTest(name):
                wanted, found, again = both(mix)
                self.assertTrue(found.same(wanted))
                self.assertGreater(again, 0)

    def test_bytes_that_an_alias_writes_to_after_the_forward_pass_are_computed_again(self):
        # The sum saves nothing of `h`: only the plan wants it, and plain PyTorch has no reason to complain.
        for mix in (lambda model, scale, h: take(model, h * 1.5) + scale, lambda model, scale, h: functional.gelu(take(model, h + 1) + scale).exp()):
            wanted, found, again = both(mix, written_later)
            self.assertTrue(found.same(wanted))
            self.assertGreater(again, 0)

    def test_what_is_kept_and_written_meanwhile_is_an_error_though_its_tensor_is_gone(self):
        class Held(nn.Module):
            def forward(self, x):
                kept = x.scatter(0, torch.zeros(1, WIDTH, dtype=torch.long), x)  # Never runs again.
                return (kept + 1).sin(), kept.detach()

        sum_, sine = (
            _operators.Planned("", f"aten.{name}", name.partition(".")[0], (), ["float32[16x16]"], {0: 1024}, True, {0: choice})
            for name, choice in (("add.Tensor", _apply.RECOMPUTE), ("sin.default", "pass"))
        )
        plan = type("Plan", (), {"operators": lambda self: [sum_, sine], "peak_bytes": 0, "capacity_bytes": 1 << 20})()
        model = Held()
        with _apply.Applied(plan, model):
            result, alias = model(torch.ones(WIDTH, WIDTH, requires_grad=True))
            alias.mul_(0)
            self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", result.sum().backward)

    def test_a_parameter_that_was_given_back_meanwhile_is_an_error(self):
        def freed(model):
            # As sharding does, which nobody counts.
            with torch.autograd._unsafe_preserve_version_counter(model.layers[0].weight):
                model.layers[0].weight.untyped_storage().resize_(0)

        torch.manual_seed(0)
        model = Net(lambda model, scale, h: h.exp())
        with omniheap.fit.apply(everything(model), model), self.assertRaisesRegex(OmniheapError, r"shape \[16, 16\].*had 1024 bytes in the forward pass and has 0 now"):
            train(model, freed)

    def test_what_is_made_in_inference_mode_is_no_obstacle(self):
        def mix(model, scale, h):
            with torch.inference_mode():
                shift = h.detach().sin() * 2
            return (h + shift) + scale

        wanted, found, again = both(mix)
        self.assertTrue(found.same(wanted))
        self.assertGreater(again, 0)

    def test_an_operator_that_returns_something_else_when_it_runs_again_is_an_error(self):
        apart = _operators.apart
        torch.manual_seed(0)
        model = Net(CASES["randint"])
        for wrong in (lambda each: each.double(), lambda each: each.t().contiguous().t(), lambda each: each[:8]):
            with omniheap.fit.apply(everything(model), model), mock.patch.object(
                _operators, "apart", lambda function, arguments: [wrong(each) if each is arguments[0] and "gelu" in str(function) else each for each in apart(function, arguments)]
            ):
                self.assertRaisesRegex(OmniheapError, "aten.gelu.default returned other bytes when it ran again", train, model)

    def test_operators_that_are_not_known_to_repeat_themselves_do_not_run_again(self):
        aten = torch.ops.aten
        for function in (aten.scatter.src, aten.index_copy.default, aten.median.dim, aten.kthvalue.default, aten.mode.default, aten.cumsum.default, aten.index_add.default,
                         aten.empty.memory_format, aten.zeros_like.default, aten._foreach_mul_.Scalar, aten.topk.default, aten.multinomial.default, aten.uniform_.default, aten.mul.out):
            self.assertFalse(_operators.can_run_again(function, (torch.ones(2),)), function)
        for function in (aten.mm.default, aten.gelu.default, aten.tril_.default, aten.gt_.Scalar, aten.native_dropout.default, aten.randn.default, aten.convolution.default):
            self.assertTrue(_operators.can_run_again(function, (torch.ones(2, 2),)), function)
        whole = torch.ones(4, 4)
        self.assertFalse(_operators.can_run_again(aten.mul_.Tensor, (whole[:2], torch.ones(4))), "a part of its storage")
        self.assertFalse(_operators.can_run_again(aten.addmm_.default, (whole, whole.t(), torch.ones(4, 4))), "what it writes is read")


def part_of(model, scale, h):
    """Some of the bytes are written, by a view."""
    copied = h * scale
    copied[:, ::2].mul_(0.5)
    return copied


def written_after_use(model, scale, h):
    first = h + scale
    used = first.sin() * 2
    first.mul_(0.5)
    return used + first


def into(model, scale, h):
    result = torch.empty(WIDTH, WIDTH)
    torch.mul(h.detach(), 2, out=result)
    return h + result * scale


# Everything takes a square matrix, and returns one of its size.
STEPS = [
    *CASES.values(),
    part_of,
    written_after_use,
    into,
    lambda model, scale, h: take(model, h),
    lambda model, scale, h: take(model, h * scale) + 1,
    lambda model, scale, h: h.t(),
    lambda model, scale, h: h.flip(0)[::1].t().mul(scale).t(),
    lambda model, scale, h: h.view(4, 4, WIDTH).transpose(0, 1).reshape(WIDTH, WIDTH) * scale,
    lambda model, scale, h: h.as_strided((WIDTH, WIDTH), (1, WIDTH)).sigmoid_() if not h.requires_grad else h.sigmoid() * scale,
    lambda model, scale, h: (h + scale).relu_(),
    lambda model, scale, h: (h @ scale).t().clamp_(-0.5, 0.5),
    lambda model, scale, h: (h @ scale).t().masked_fill_(scale > 1, 0.1),
    lambda model, scale, h: (h * scale).t().triu_(1),
    lambda model, scale, h: torch.native_dropout(h, 0.3, True)[0] * scale,
    lambda model, scale, h: functional.softmax(h * scale, 0),
    lambda model, scale, h: functional.layer_norm(h.t(), (WIDTH,)) * scale,
    lambda model, scale, h: functional.batch_norm(h, torch.zeros(WIDTH), torch.ones(WIDTH), training=True) * scale,
    lambda model, scale, h: functional.max_pool2d(h[None, None], 3, 1, 1)[0, 0] * scale,
    lambda model, scale, h: functional.conv2d(h[None, None], scale[None, None, :3, :3], padding=1)[0, 0],
    lambda model, scale, h: functional.scaled_dot_product_attention(h[None, None], scale[None, None], h.t()[None, None])[0, 0],
    lambda model, scale, h: h.cumsum(0) * scale / WIDTH,
    lambda model, scale, h: h.index_add(0, torch.zeros(WIDTH, dtype=torch.long), scale) / WIDTH,
    lambda model, scale, h: (h.half().float().abs() + 0.1).sqrt() * scale,
    lambda model, scale, h: torch.where(h > 0, h, h.exp() * scale),
    lambda model, scale, h: h[torch.randperm(WIDTH, generator=model.generator)] * scale,
    lambda model, scale, h: h.to(torch.bfloat16).mul_(2).float() * scale,
]


@unittest.skipUnless(_HAS_TORCH, "PyTorch is not installed")
class Random(unittest.TestCase):
    """Models of random steps: what plain PyTorch computes, or an error that says why not."""

    def test_random_models(self):
        again, refused = 0, 0
        for seed in range(80):
            chosen = random.Random(seed).choices(STEPS, k=4)

            def mix(model, scale, h, chosen=chosen):
                for step in chosen:
                    h = step(model, scale, h)
                return h

            with self.subTest(seed=seed):
                torch.manual_seed(0)
                try:
                    train(Net(mix), written_later)
                except RuntimeError:
                    continue  # Plain PyTorch refuses it.
                try:
                    wanted, found, count = both(mix, written_later)
                except RuntimeError as error:
                    self.assertRegex(str(error), "modified by an inplace operation")
                    refused += 1
                    continue
                self.assertTrue(found.same(wanted), [STEPS.index(each) for each in chosen])
                again += count
        self.assertGreater(again, 1000)
        self.assertLess(refused, 20)


if __name__ == "__main__":
    unittest.main()

"""One rank of many, recorded without a GPU and without the others."""

import collections
import contextlib
import functools
import importlib.util
import tempfile
import unittest
from unittest import mock

import omniheap.fit
from omniheap import OmniheapError
from omniheap.fit import _ranks, _recorder
from omniheap.fit._devices import Gpu
from omniheap.fit._ledger import Ledger, Lives

_HAS_TORCH = importlib.util.find_spec("torch") is not None
if _HAS_TORCH:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

_BLOCKS, _WIDTH = 4, 128
_BLOCK = 2 * _WIDTH * 4 * _WIDTH + 5 * _WIDTH  # Elements.
_ALL = _BLOCKS * _BLOCK


def block(device="cuda"):
    return nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)).to(device)


def trained(model, device="cuda", optimizer=None):
    optimizer = (optimizer or torch.optim.AdamW)(model.parameters())
    batch = torch.randn(4, _WIDTH, device=device)

    def step():
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def setup(reshard=True):
    """Blocks are sharded as they are made, so that the model is never whole."""
    model = nn.Sequential(*[fully_shard(block(), reshard_after_forward=reshard) for _ in range(_BLOCKS)])
    fully_shard(model)
    return trained(model)


def tensor_parallel(replicas=1):
    """Each block over 8 ranks; with `replicas`, and over so many groups of those by FSDP."""
    mesh = init_device_mesh("cuda", (replicas, 8), mesh_dim_names=("data", "tensor"))
    blocks = [parallelize_module(block(), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()}) for _ in range(_BLOCKS)]
    if replicas == 1:
        return trained(nn.Sequential(*blocks))
    return trained(fully_shard(nn.Sequential(*(fully_shard(each, mesh=mesh["data"]) for each in blocks)), mesh=mesh["data"]))


def replicated(device="cuda", optimizer=None, **options):
    """A model that is whole on every rank, by DistributedDataParallel."""
    model = nn.Sequential(*(block(device) for _ in range(_BLOCKS)))
    return trained(nn.parallel.DistributedDataParallel(model, **options), device, optimizer or torch.optim.AdamW)


@contextlib.contextmanager
def alone():
    """A group of one that sends to itself: what waits for a result gets one."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


class Rank:
    """Allocations of rank 0."""

    def __init__(self, world, step=setup, fake=True, device="cuda:0"):
        lives, self._torch = Lives(), torch
        self.ledger = Ledger(lives)
        with _ranks.group(torch, world) if fake else alone():
            self.leaked = _recorder._run(torch, step, self.ledger, Gpu() if fake else None, torch.device(device), 2)
        self.ledger.finish()
        self.lives, self.peak = lives.all, self.ledger.peak_live_bytes

    def bytes(self, category):
        """Bytes of a category that live to the end."""
        return sum(size for size, _, death, label in self.lives if death is None and label[0] == category)

    def most_before_steps(self):
        """The most bytes that were live while the model was made: its batch comes after it."""
        ends = min(birth for _, birth, _, label in self.lives if "randn" in label[-1])
        live = lambda time: sum(size for size, birth, death, _ in self.lives if birth <= time and (death is None or death > time))
        return max(live(time) for time in range(ends))

    def buckets(self):
        """Bytes of what DistributedDataParallel makes of its own accord, in order."""
        return [size for size, _, _, label in self.lives if "DistributedDataParallel" in label]

    def made(self, sizes):
        """Those of some sizes that were made in this order, as far as they were."""
        wanted, found = list(sizes), []
        for size, _, _, label in self.lives:
            if wanted and size == wanted[0] and "parameter" not in label:
                found.append(wanted.pop(0))
        return found


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class Sharding(unittest.TestCase):
    def test_each_rank_holds_its_share(self):
        for world in (2, 8, 64):
            with self.subTest(world=world):
                rank = Rank(world)
                self.assertEqual(rank.leaked, 0)
                # Every shape here is a multiple of 64.
                self.assertEqual(rank.bytes("parameter"), 4 * _ALL // world)
                states = 2 * 4 * _ALL // world
                self.assertLessEqual(abs(rank.bytes("optimizer") - states), 16 * 4 * _BLOCKS)

    def test_tensor_parallel_models_hold_their_part(self):
        # The bias of the second layer is on every rank.
        part = 4 * _BLOCKS * (2 * _WIDTH * 4 * _WIDTH // 8 + 4 * _WIDTH // 8 + _WIDTH)
        rank = Rank(8, tensor_parallel)
        self.assertEqual((rank.bytes("parameter"), rank.leaked), (part, 0))
        self.assertLess(rank.peak, 16 * _ALL // 4)
        # No gradient is as large as a whole weight.
        whole = [label for size, birth, death, label in rank.lives if size >= 4 * _BLOCK // 2 and "backward" in str(label)]
        self.assertEqual(whole, [])
        both = Rank(64, lambda: tensor_parallel(8))
        self.assertEqual((both.bytes("parameter"), both.leaked), (part // 8, 0))
        self.assertLess(both.peak, rank.peak)

    def test_replicas_hold_everything_and_reduce_it(self):
        from torch.distributed._composable.replicate_with_fsdp import replicate

        rank = Rank(8, lambda: trained(replicate(nn.Sequential(*(replicate(block()) for _ in range(_BLOCKS))))))
        self.assertEqual((rank.bytes("parameter"), rank.leaked), (4 * _ALL, 0))
        self.assertGreater(rank.peak, 16 * _ALL)

    def test_gathers_are_events_and_are_freed(self):
        rank = Rank(8)
        gathered = [(birth, death) for size, birth, death, _ in rank.lives if size >= 4 * _BLOCK]
        # Blocks are gathered for the forward and for the backward pass of each of two steps.
        self.assertGreaterEqual(len(gathered), 2 * 2 * _BLOCKS)
        self.assertTrue(all(death is not None for _, death in gathered))
        kept = Rank(8, lambda: setup(reshard=False))
        self.assertGreater(kept.peak, rank.peak + 4 * _BLOCK, "what is not resharded stays gathered")

    def test_prefetches_are_events(self):
        def setup(ahead):
            blocks = [fully_shard(block()) for _ in range(_BLOCKS)]
            model = fully_shard(nn.Sequential(*blocks))
            for number, each in enumerate(blocks):
                each.set_modules_to_forward_prefetch(blocks[number + 1 : number + 1 + ahead])
            return trained(model)

        self.assertGreater(Rank(64, lambda: setup(3)).peak, Rank(64, lambda: setup(1)).peak + 4 * _BLOCK // 2)

    def test_peaks_are_near_the_formula_of_zero_three(self):
        # DeepSpeed's estimate for all sharded states, in float32 with Adam, and the largest layer gathered.
        for world in (8, 64):
            formula = 16 * _ALL // world + 4 * _BLOCK
            peak = Rank(world).peak
            self.assertGreater(peak, formula)
            # Beside it: one block ahead, a buffer for gathers and one for reductions, gradients of a block; activations are small.
            self.assertLess(peak, formula + 6 * 4 * _BLOCK)

    def test_more_ranks_need_less(self):
        peaks = [Rank(world).peak for world in (1, 8, 64)]
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        self.assertGreater(peaks[0], 16 * _ALL)

    def test_recordings_take_a_world_and_leave_no_group(self):
        with tempfile.TemporaryDirectory() as folder:
            recording = omniheap.fit.record_step(setup, f"{folder}/rank.omt", world=8)
        self.assertEqual(recording.peak_live_bytes, Rank(8).peak)
        self.assertFalse(torch.distributed.is_initialized())

    def test_bad_input(self):
        for world in (0, -1, 2.0, True, "8"):
            with self.assertRaisesRegex(OmniheapError, "world is"):
                omniheap.fit.record_step(setup, world=world)
        with mock.patch.object(torch.distributed, "is_initialized", lambda: True), self.assertRaisesRegex(OmniheapError, "exists already"):
            omniheap.fit.record_step(setup, world=2)

        def fails():
            raise ValueError("mine")

        with self.assertRaisesRegex(ValueError, "mine"):
            omniheap.fit.record_step(fails, world=2)
        self.assertFalse(torch.distributed.is_initialized())

    def test_replicas_have_the_buckets_of_the_original(self):
        # The original runs on a CPU, where its C++ has bytes to read.
        together = functools.partial(torch.optim.AdamW, foreach=True)
        for options in ({}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.2}, {"find_unused_parameters": True}):
            with self.subTest(**options):
                options = {**options, "optimizer": together}
                fake, real = Rank(8, lambda: replicated(**options)), Rank(8, lambda: replicated("cpu", **options), fake=False, device="cpu")
                self.assertEqual((fake.leaked, real.leaked), (0, 0))
                # They are made twice, unless a pass may leave parameters out.
                times = 1 if "find_unused_parameters" in options else 2
                self.assertEqual(sum(fake.buckets()), times * 4 * _ALL)
                self.assertEqual(real.made(fake.buckets()), fake.buckets())
                self.assertLessEqual(abs(fake.peak - real.peak), real.peak // 100)

    def test_gradients_that_are_views_of_buckets_need_no_bytes_of_their_own(self):
        copied, views = Rank(8, replicated), Rank(8, lambda: replicated(gradient_as_bucket_view=True))
        self.assertEqual(copied.bytes("gradient"), 4 * _ALL)
        self.assertLessEqual(abs(copied.peak - views.peak - 4 * _ALL), 4 * _ALL // 50)

    def test_passes_without_sums_leave_buckets_alone(self):
        def setup():
            model = nn.parallel.DistributedDataParallel(block(), gradient_as_bucket_view=True)
            batch = torch.randn(4, _WIDTH, device="cuda")

            def step():
                model(batch).sum().backward()
                model.zero_grad()
                with model.no_sync():
                    model(batch).sum().backward()
                # Gradients that nobody summed up are their own.
                seen.append({parameter.grad.untyped_storage().nbytes() == parameter.grad.nbytes for parameter in model.parameters()})
                model.zero_grad()

            return step

        seen = []
        Rank(2, setup)
        self.assertEqual(seen, [{True}, {True}])

    def test_zero_one_divides_the_state_and_nothing_else(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        whole = Rank(8, replicated)
        for as_views in (False, True):
            optimizer = lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, parameters_as_bucket_view=as_views)
            rank = Rank(8, lambda: replicated(optimizer=optimizer))
            self.assertEqual(rank.leaked, 0)
            # Parameters go to ranks whole, so that the largest matters: eight of them are of one size here, and each rank has one.
            self.assertAlmostEqual(rank.bytes("optimizer") / (8 * _ALL / 8), 1, delta=0.02)
            self.assertGreater(whole.peak - rank.peak, 8 * _ALL * 6 // 8)
            self.assertEqual(rank.bytes("gradient"), whole.bytes("gradient"))

    def test_hooks_of_communication_are_refused_in_words(self):
        def setup():
            model = nn.parallel.DistributedDataParallel(block())
            model.register_comm_hook(None, lambda state, bucket: None)

        with self.assertRaisesRegex(OmniheapError, "communication hooks.*fake=False"):
            omniheap.fit.record_step(setup, world=2)
        # Everything of PyTorch is its own again.
        self.assertEqual(torch.distributed.Reducer.__module__, "torch._C._distributed_c10d")


_DIVIDED = {"layers.*.0": "colwise", "layers.*.2": "rowwise"}


def by_name(own_plan=None, **options):
    """A step whose model is made on the CPU and sharded by names."""

    def setup():
        blocks = nn.Sequential(*(block("cpu") for _ in range(_BLOCKS)))
        model = nn.Sequential(collections.OrderedDict(layers=blocks, head=nn.Linear(_WIDTH, _WIDTH)))
        if own_plan is not None:
            model.tp_plan = own_plan
        return trained(omniheap.fit.shard(model, **options))

    return setup


def by_hand(ahead=None, reshard=True, tp=1, world=8):
    """The same by PyTorch's own functions."""

    def setup():
        mesh = init_device_mesh("cuda", (world // tp, tp), mesh_dim_names=("data", "tensor"))
        shard = lambda module: fully_shard(module, mesh=mesh["data"], reshard_after_forward=reshard)
        divided = lambda: parallelize_module(block(), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        blocks = [shard(divided() if tp > 1 else block()) for _ in range(_BLOCKS)]
        for number, each in enumerate(blocks if ahead else ()):
            each.set_modules_to_forward_prefetch(blocks[number + 1 : number + 1 + ahead])
            each.set_modules_to_backward_prefetch(blocks[max(0, number - ahead) : number][::-1])
        return trained(shard(nn.Sequential(*blocks, nn.Linear(_WIDTH, _WIDTH, device="cuda"))))

    return setup


@unittest.skipUnless(_HAS_TORCH, "needs PyTorch")
class ByName(unittest.TestCase):
    def test_names_stand_for_the_calls_of_pytorch(self):
        cases = [
            ({"fsdp": "full", "wrap": "layers.*"}, by_hand()),
            ({"fsdp": "grad_op", "wrap": ["layers.*"]}, by_hand(reshard=False)),
            ({"fsdp": "full", "wrap": "layers.*", "prefetch": 2}, by_hand(ahead=2)),
            ({"fsdp": "full", "wrap": "layers.*", "tp": 2, "tp_plan": _DIVIDED}, by_hand(tp=2)),
            ({"fsdp": "full", "wrap": "layers.*", "tp": 2, "own_plan": _DIVIDED}, by_hand(tp=2)),
        ]
        peaks = set()
        for options, hand in cases:
            with self.subTest(**options):
                rank, wanted = Rank(8, by_name(**options)), Rank(8, hand)
                self.assertEqual((rank.peak, rank.leaked), (wanted.peak, 0))
                self.assertEqual(rank.bytes("parameter"), wanted.bytes("parameter"))
                peaks.add(rank.peak)
        self.assertEqual(len(peaks), 4, "each way has a peak of its own")

    def test_a_finer_wrap_needs_less(self):
        wraps = ((), "layers.*", ["layers.*.0", "layers.*.2"])
        peaks = [Rank(8, by_name(fsdp="full", wrap=wrap)).peak for wrap in wraps]
        self.assertEqual(peaks, sorted(set(peaks), reverse=True))
        # A star is one part of a name: what is inside of a block is not wrapped with it.
        self.assertEqual(Rank(8, by_name(fsdp="full", wrap=["layers.*", "layers.?"])).peak, peaks[1])

    def test_a_model_is_never_whole_on_its_device(self):
        for options in ({"fsdp": "full", "wrap": "layers.*"}, {"tp": 8, "tp_plan": _DIVIDED}):
            self.assertLess(Rank(8, by_name(**options)).most_before_steps(), 4 * _ALL)
        replicas = Rank(8, by_name(fsdp="ddp"))
        self.assertGreater(replicas.peak, 16 * _ALL)
        self.assertEqual(replicas.bytes("parameter"), 4 * (_ALL + _WIDTH * _WIDTH + _WIDTH))

    def test_bad_input(self):
        full = {"fsdp": "full", "wrap": "layers.*"}
        cases = [
            ({"fsdp": "zero1"}, "ZeroRedundancyOptimizer"),
            ({"fsdp": "zero"}, "fsdp is 'zero'"),
            ({"fsdp": "ddp", "wrap": "layers.*"}, "wrap and prefetch"),
            ({"fsdp": "full", "wrap": "layer.*"}, "no module is named 'layer.*'; .* consists of layers, head"),
            ({**full, "prefetch": 0}, "prefetch is 0"),
            ({**full, "prefetch": True}, "prefetch is True"),
            ({**full, "tp": 3}, "tp is 3; .* world of 8"),
            ({**full, "tp": 2}, "how layers are divided is not known"),
            ({**full, "tp_plan": _DIVIDED}, "tp is 1"),
            ({"tp": 2, "tp_plan": _DIVIDED}, "makes 4 groups"),
            ({**full, "tp": 2, "tp_plan": {"layers.*.0": "diagonal"}}, "is 'diagonal'"),
            ({**full, "tp": 2, "tp_plan": {"layers.0.9": "colwise"}}, "no module is named 'layers.0.9'"),
        ]
        for options, text in cases:
            with self.subTest(**options), self.assertRaisesRegex(OmniheapError, text):
                Rank(8, by_name(**options))
        with self.assertRaisesRegex(OmniheapError, "no process group; record with world"):
            omniheap.fit.shard(nn.Linear(2, 2), "full")
        with self.assertRaisesRegex(OmniheapError, "pass a torch.nn.Module"):
            omniheap.fit.shard(3, "full")


if __name__ == "__main__":
    unittest.main()

"""Weights files into tensors on the processor: what a dict of them does, and when their memory goes."""

import copy
import json
import os
import pathlib
import pickle
import random
import tempfile
import threading
import unittest
from collections import OrderedDict
from collections.abc import Mapping
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

from omniheap import OmniheapError
from omniheap import weights

TYPES = {"F32": "float32", "BF16": "bfloat16", "I64": "int64", "BOOL": "bool", "U8": "uint8"}


def write(path, tensors):
    """A safetensors file; types that PyTorch lacks come as a triple of type, shape and bytes."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            dtype, shape, some = tensor
        else:
            dtype = next(ours for ours, theirs in TYPES.items() if getattr(torch, theirs) == tensor.dtype)
            shape, some = list(tensor.shape), bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(some)])
        data += some
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def some():
    torch.manual_seed(1)
    return {
        "embedding": torch.randn(100, 37),
        "half": torch.randn(3, 5, 7).to(torch.bfloat16),
        "flags": torch.tensor([True, False, True]),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "nothing": torch.empty(0, 4),
        "large": torch.arange(3 << 18, dtype=torch.int64).to(torch.float32),
        "last": torch.randn(5),
    }


@unittest.skipUnless(torch is not None, "this interpreter has no PyTorch")
class Weights(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.safetensors")
        self.wanted = some()
        write(self.path, self.wanted)

    def load(self, **how):
        return weights.load_safetensors(self.path, device="cpu", **how)

    def same(self, found, names=None):
        self.assertEqual(list(found), list(names or self.wanted))
        for name in found:
            wanted = self.wanted[name]
            self.assertEqual((found[name].dtype, found[name].shape), (wanted.dtype, wanted.shape), name)
            self.assertTrue(torch.equal(found[name], wanted) and found[name].is_contiguous(), name)

    def test_every_way_to_read_a_dict_finds_tensors(self):
        self.same(self.load())
        ways = {
            "dict": dict, "unpacked": lambda it: {**it}, "keywords": lambda it: dict(**it), "ordered": OrderedDict, "copy": lambda it: it.copy(),
            "shallow": copy.copy, "deep": copy.deepcopy, "pickle": lambda it: pickle.loads(pickle.dumps(it)), "or": lambda it: it | {}, "ror": lambda it: {} | it,
            "items": lambda it: dict(list(it.items())), "values": lambda it: dict(zip(it, it.values())), "get": lambda it: {name: it.get(name) for name in it},
            "pop": lambda it: {name: it.pop(name) for name in list(it)}, "setdefault": lambda it: {name: it.setdefault(name) for name in it},
            "popitem": lambda it: dict(reversed([it.popitem() for _ in range(len(it))])), "tree": lambda it: torch.utils._pytree.tree_map(lambda one: one.clone(), it),
            "type": lambda it: type(it)({name: one for name, one in it.items()}),
        }
        for name, way in ways.items():
            with self.subTest(name):
                self.same(way(self.load()))
        merged = {}
        merged.update(self.load())
        self.same(merged)

    def test_it_is_a_dict_that_changes(self):
        found = self.load()
        self.assertIsInstance(found, dict)
        self.assertIsInstance(found, Mapping)
        self.assertEqual(len(found), len(self.wanted))
        self.assertIn("half", found)
        self.assertIsNone(found.get("missing"))
        self.assertEqual(found.pop("missing", 3), 3)
        self.assertRaises(KeyError, lambda: found["missing"])
        found["half"] = None
        self.assertIsNone(found["half"], "what was set is not made again")
        del found["scalar"]
        self.assertNotIn("scalar", found)
        found.update({"flags": 1}, last=2)
        found |= {"nothing": 4}
        self.assertEqual((found["flags"], found["last"], found["nothing"]), (1, 2, 4))
        self.assertIn("'flags': 1", repr(found))
        found.clear()
        self.assertEqual((found, list(found.items())), ({}, []))

    def test_tensors_are_made_once_and_when_they_are_asked_for(self):
        found = self.load()
        self.assertEqual(len(found._waiting), len(self.wanted))
        self.assertIs(found["half"], found["half"])
        self.assertEqual(len(found._waiting), len(self.wanted) - 1)
        made, start = [], threading.Barrier(8)

        def ask():
            start.wait()
            made.append([found[name] for name in self.wanted])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertTrue(all(one is other for each in made for one, other in zip(made[0], each)))
        self.same(found)

    def test_memory_goes_with_the_last_tensor_in_it(self):
        for take in (lambda it, name: it.pop(name), lambda it, name: it.__delitem__(name), lambda it, name: it.__setitem__(name, None)):
            found = self.load()
            buffers = found._buffers._buffers
            self.assertEqual(len(buffers), 2, "the large one, and one for all others")
            take(found, "large")
            self.assertEqual([buffer is None for buffer in buffers], [False, True])
            for name in [name for name in self.wanted if name != "large"]:
                take(found, name)
            self.assertEqual(buffers, [None, None])
            self.assertEqual(found._buffers._typed, {})

    def test_tensors_may_be_written_and_trained(self):
        found = self.load()
        model = torch.nn.Linear(37, 100, bias=False)
        model.load_state_dict({"weight": found["embedding"]})
        self.assertTrue(torch.equal(model.weight, self.wanted["embedding"]))
        found["last"].mul_(torch.ones(5, requires_grad=True))
        self.assertIsNotNone(found["last"].grad_fn, "a tensor of its own for autograd, not one of many views")

    def test_some_are_chosen_by_name_or_by_a_function(self):
        self.same(self.load(only=["last", "half"]), ["half", "last"])
        self.same(self.load(only=lambda name: name.startswith("l")), ["large", "last"])
        self.assertEqual(self.load(only=[]), {})
        with self.assertRaisesRegex(OmniheapError, "no tensor 'missing'"):
            self.load(only=["last", "missing"])
        with self.assertRaisesRegex(OmniheapError, "cannot read"):
            weights.load_safetensors(self.path + "x", device="cpu")

    def test_what_progress_raises_ends_the_load(self):
        for error in (KeyboardInterrupt, ValueError):
            def stop(done, total):
                self.assertTrue(0 < done <= total)
                raise error

            self.assertRaises(error, self.load, progress=stop)
            self.assertRaises(error, self.load, progress=stop, only=["last"])
        self.same(self.load(progress=lambda done, total: None))

    def test_paths_are_texts_bytes_or_objects(self):
        for path in (self.path, os.fsencode(self.path), pathlib.Path(self.path), [os.fsencode(self.path)]):
            self.same(weights.load_safetensors(path, device="cpu"))

    def test_a_device_that_takes_no_weights_is_named(self):
        for device in ("meta", "mps"):
            with self.assertRaisesRegex(OmniheapError, f"not to {device}"):
                weights.load_safetensors(self.path, device=device)

    def test_a_file_of_empty_tensors_and_one_of_none(self):
        for tensors in ({"a": torch.empty(0), "b": torch.empty(3, 0)}, {}):
            write(self.path, tensors)
            self.wanted = tensors
            self.same(self.load())

    def test_types_that_pytorch_lacks_are_bytes(self):
        write(self.path, {"packed": ("F6_E2M3", [2, 8], bytes(range(12)))})
        found = self.load()["packed"]
        self.assertEqual((found.dtype, list(found.shape), found.flatten().tolist()), (torch.uint8, [2, 6], list(range(12))))

    def test_types_that_pytorch_packs_are_counted_by_bytes(self):
        write(self.path, {"packed": ("F4", [2, 8], bytes(range(8)))})
        found = self.load()["packed"]
        self.assertEqual((found.dtype, list(found.shape)), (getattr(torch, "float4_e2m1fn_x2", torch.uint8), [2, 4]))
        self.assertEqual(found.view(torch.uint8).flatten().tolist(), list(range(8)))
        # Models keep such weights as bytes.
        model = torch.nn.Module()
        model.register_buffer("packed", torch.zeros(2, 4, dtype=torch.uint8))
        weights.load_into(model, self.path)
        self.assertEqual(model.packed.flatten().tolist(), list(range(8)))

    def test_of_names_that_share_memory_the_last_one_of_the_model_stays(self):
        model = torch.nn.Sequential(torch.nn.Linear(512, 2048, bias=False), torch.nn.Linear(512, 2048, bias=False))
        model[1].weight = model[0].weight
        # The file has them the other way around.
        write(self.path, {"1.weight": torch.full((2048, 512), 1, dtype=torch.float32), "0.weight": torch.zeros(2048, 512)})
        self.assertEqual(weights.load_into(model, self.path), ([], []))
        self.assertTrue(bool((model[0].weight == 1).all()), "as load_state_dict does")

    def test_load_into_fills_a_model_and_refuses_what_differs(self):
        model = torch.nn.Module()
        self.wanted["bf16"] = self.wanted.pop("half")
        write(self.path, self.wanted)
        for name, tensor in self.wanted.items():
            model.register_buffer(name, torch.zeros_like(tensor))
        # Another type, and another layout, go through a copy.
        model.embedding = torch.zeros(37, 100).t()
        model.bf16 = torch.zeros(3, 5, 7, dtype=torch.float64)
        self.assertEqual(weights.load_into(model, self.path), ([], []))
        for name, tensor in self.wanted.items():
            self.assertTrue(torch.equal(model.state_dict()[name], tensor.to(model.state_dict()[name].dtype)), name)
        model.last = torch.zeros(6)
        with self.assertRaisesRegex(OmniheapError, "'last' has shape"):
            weights.load_into(model, self.path)
        del model.last
        with self.assertRaisesRegex(OmniheapError, "names differ"):
            weights.load_into(model, self.path)
        self.assertEqual(weights.load_into(model, self.path, strict=False), ([], ["last"]))

    def test_models_that_change_what_is_loaded_are_refused_and_stay_as_they_were(self):
        module = lambda: torch.nn.Linear(4, 4, bias=False)
        copies, before, after, extra, expanded, sparse, hidden, wrapped = (module() for _ in range(8))
        copies._register_state_dict_hook(lambda module, state, prefix, _: state.update({prefix + "weight": state[prefix + "weight"].detach().clone()}))
        before.register_load_state_dict_pre_hook(lambda module, state, *_: state.update(weight=state["weight"] * 2))
        after.register_load_state_dict_post_hook(lambda module, _: module.weight.data.mul_(2))
        expanded.weight = torch.nn.Parameter(torch.zeros(4, 1).expand(4, 4))
        sparse.weight = torch.nn.Parameter(torch.zeros(4, 4).to_sparse())

        class Converts(torch.nn.Linear):
            def _load_from_state_dict(self, state, prefix, *rest):
                super()._load_from_state_dict({name: each * 2 for name, each in state.items()}, prefix, *rest)

        class Wraps(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = module()

            def load_state_dict(self, state, strict=True):
                return self.inner.load_state_dict(state, strict)

        class Extra(torch.nn.Linear):
            def get_extra_state(self):
                return {"scale": 1.0}

            def set_extra_state(self, state):
                raise AssertionError

        hidden = torch.nn.Sequential(Converts(4, 4, bias=False))
        extra = Extra(4, 4, bias=False)
        cases = (
            (copies, "another tensor than the model's own"), (before, "hook or a method"), (after, "hook or a method"), (hidden, "'0' \\(Converts\\) has a hook or a method"),
            (Wraps(), "load_state_dict of its own"), (extra, "extra state"), (expanded, "expanded"), (sparse, "torch.sparse_coo"),
        )
        write(self.path, {name: torch.ones(4, 4) for name in ("weight", "0.weight", "_extra_state")})
        for model, said in cases:
            with self.subTest(said):
                earlier = {name: each.to_dense().clone() for name, each in model.named_parameters()}
                with self.assertRaisesRegex(OmniheapError, f"{said}.*(load_state_dict|contiguous)"):
                    weights.load_into(model, self.path, strict=False)
                self.assertTrue(all(torch.equal(each.to_dense(), earlier[name]) for name, each in model.named_parameters()))

    def test_parts_of_sharded_tensors_are_refused(self):
        class Part(torch.nn.Parameter):
            _local_tensor = None

        model = torch.nn.Module()
        model.register_parameter("weight", Part(torch.zeros(4, 4)))
        write(self.path, {"weight": torch.ones(4, 4)})
        with self.assertRaisesRegex(OmniheapError, "'weight' is a DTensor.*set_model_state_dict"):
            weights.load_into(model, self.path)

    def test_autograd_knows_that_weights_were_loaded(self):
        model, x = torch.nn.Linear(4, 4, bias=False), torch.ones(1, 4, requires_grad=True)
        write(self.path, {"weight": torch.ones(4, 4)})
        result = model(x).sum()
        weights.load_into(model, self.path)
        self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", result.backward)

    def test_copies_to_another_type_are_made_some_at_a_time(self):
        names = [f"{number}" for number in range(6)]
        self.wanted = {name: torch.randn(64, 4) for name in names}
        write(self.path, self.wanted)
        model, loads, said, load = torch.nn.Module(), [], [], weights._File.load
        for name in names:
            model.register_buffer(name, torch.zeros(64, 4, dtype=torch.float32 if name == "3" else torch.float64))

        def counted(self, torch, device, buffers, *rest):
            loads.append(len(buffers))
            return load(self, torch, device, buffers, *rest)

        with mock.patch.object(weights, "_COPIED", 2500), mock.patch.object(weights._File, "load", counted):
            weights.load_into(model, self.path, progress=lambda done, total: said.append((done, total)))
        self.assertEqual(loads, [1, 2, 2, 1])
        self.assertEqual((said[-1], sorted(said)), ((6 * 1024, 6 * 1024), said))
        self.assertTrue(all(torch.equal(getattr(model, name), each.double()) for name, each in self.wanted.items()))

    def test_running_statistics_are_not_taken_for_the_bytes_of_their_file(self):
        model, remembered = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)), []
        # Programs name their statistics as they like.
        large = {"large": torch.zeros(2, 1 << 18), "other": torch.zeros(3, 1 << 18), "whole": torch.zeros(1 << 19, dtype=torch.int64), "moving": torch.zeros(1 << 19)}
        write(self.path, {**model.state_dict(), **large})
        with mock.patch.object(weights._File, "remember", lambda _, torch, tensors, wanted: remembered.append((tensors, list(wanted)))):
            weights.load_into(model, self.path, strict=False)
            tensors = self.load()
        (into, _), (buffers, triples) = remembered
        self.assertEqual({each.data_ptr() for each in into}, {each.data_ptr() for each in (*model.parameters(), model[1].num_batches_tracked)})
        # Small tensors share a buffer, and statistics are among them.
        self.assertEqual({each.data_ptr() for each in buffers}, {tensors[name].data_ptr() for name in ("large", "other", "whole")})
        self.assertEqual(len(triples), 3 * 3)
        self.assertEqual(set(triples[1::3]), {0, 1, 2})

    def test_random_models_load_as_by_load_state_dict_or_are_refused(self):
        loaded = 0
        for seed in range(60):
            model = random_model(random.Random(seed))
            state = {name: torch.randint(0, 2, each.shape).to(each.dtype) if not each.is_floating_point() else torch.randn(each.shape).to(random_type(seed, name, each.dtype)) for name, each in model.state_dict().items()}
            write(self.path, state)
            def by(load):
                # A copy would not share what parameters of the model share.
                for each in model.state_dict().values():
                    each.zero_()
                return load(), {name: each.clone() for name, each in model.state_dict().items()}

            with self.subTest(seed=seed):
                wanted, values = by(lambda: model.load_state_dict(state, strict=False))
                try:
                    names, found = by(lambda: weights.load_into(model, self.path, strict=False))
                except OmniheapError as error:
                    self.assertRegex(str(error), "load_state_dict|contiguous")
                    continue
                self.assertEqual(names, (sorted(wanted.missing_keys), sorted(wanted.unexpected_keys)))
                for name, each in values.items():
                    self.assertTrue(torch.equal(each, found[name]), name)
                loaded += 1
        self.assertGreater(loaded, 30)


def random_type(seed, name, dtype):
    """The type in a file of what a model has in another one."""
    return random.Random(f"{seed}/{name}").choice([dtype, dtype, torch.float32, torch.bfloat16])


def random_model(some):
    """Layers, ties, views of other parameters, other types and layouts, buffers, and hooks now and then."""
    model = torch.nn.Sequential(*(some.choice([torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6), torch.nn.GRU(6, 6), torch.nn.Embedding(5, 6), torch.nn.LayerNorm(6)]) for _ in range(3)))
    for number in range(some.randrange(5)):
        base = some.choice(list(model.parameters()))
        model.register_parameter(f"p{number}", some.choice([
            lambda: base,
            lambda: torch.nn.Parameter(base.data),
            lambda: torch.nn.Parameter(base.data.t()),
            lambda: torch.nn.Parameter(base.data[:2]),
            lambda: torch.nn.Parameter(base.data[1:4]),
            lambda: torch.nn.Parameter(base.data.flatten()[::2]),
            lambda: torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.bfloat16).t()),
            lambda: torch.nn.Parameter(torch.zeros(0, 4)),
        ])())
    model.register_buffer("mask", torch.zeros(7, dtype=torch.bool), persistent=some.random() < 0.5)
    if some.random() < 0.2:
        some.choice(list(model)).register_load_state_dict_pre_hook(lambda module, state, *_: state.update({name: each * 2 for name, each in state.items()}))
    return model


if __name__ == "__main__":
    unittest.main()

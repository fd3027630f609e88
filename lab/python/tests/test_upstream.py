"""Versions of PyTorch that were not tested, and folders that the packages may lie in."""

import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import omniheap.fit
from omniheap import OmniheapError
from omniheap.fit import _fakes, _fit, _ranks, _upstream
from omniheap.fit._devices import Gpu
from of_the_product import stand_in

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")


class Versions(unittest.TestCase):
    def test_versions_that_were_not_tested_are_refused(self):
        step, plan = lambda: self.fail("ran"), omniheap.fit.StepPlan([], [], {})
        for version in ("2.10.1", "2.12.0+cu130", "2.1.1", "3.0.0a0+git"):
            other = types.ModuleType("torch")
            other.__version__ = version
            stand_in(self, {"torch": other})
            for call in (
                lambda: omniheap.fit.record_step(step, "never.omt"),
                lambda: omniheap.fit.record_step(step, "never.omt", fake=False),
                lambda: omniheap.fit.record_step(step, "never.omt", fake=False, labels=False),
                lambda: omniheap.fit.measure_workspaces(step, "never.json"),
                lambda: omniheap.fit.fit(step, "24GiB"),
                lambda: omniheap.fit.largest_batch(lambda batch: step, "24GiB"),
                lambda: omniheap.fit.draft_step(step),
                lambda: omniheap.fit.plan_step(step, "24GiB"),
                lambda: omniheap.fit.apply(plan, object()),
                lambda: omniheap.fit.shard(object(), "full"),
            ):
                wanted = f"^this is PyTorch {version.replace('+', '.')}, and omniheap-fit was tested with 2.11 alone: .*`pip install torch==2.11.*`"
                with mock.patch.object(_fit, "command", lambda: "omniheap-lab"), mock.patch("omniheap.fit._change.command"), self.assertRaisesRegex(OmniheapError, wanted):
                    call()
        self.assertFalse(os.path.exists("never.omt") or os.path.exists("never.json"))

    def test_the_documentation_has_the_same_list(self):
        with open(os.path.join(_ROOT, "docs/fit.md"), encoding="utf-8") as file:
            self.assertIn(f"tested with PyTorch {', '.join(_upstream.TESTED)};", file.read())


class Places(unittest.TestCase):
    """Folders in which the packages may lie."""

    def imports(self, *folders, missing=False):
        code = "import omniheap.fit, omniheap.torch; print(omniheap.fit.__version__, omniheap.fit.OmniheapError is omniheap.OmniheapError, omniheap.torch.is_enabled())"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), "" if missing else f"{omniheap.fit.__version__} True False", done.stderr)

    def test_folders_of_sources_and_one_folder_for_both(self):
        product, ours = (os.path.dirname(os.path.dirname(os.path.abspath(each))) for each in (omniheap.__file__, os.path.dirname(omniheap.fit.__file__)))
        with tempfile.TemporaryDirectory() as folder:
            apart, both = ([os.path.join(folder, each) for each in names] for names in (("product", "ours"), ("both", "both")))
            for (one, other), are_apart in ((apart, True), (both, False)):
                self._copy(os.path.join(product, "omniheap"), os.path.join(one, "omniheap"), {"fit"})
                self._copy(os.path.join(ours, "omniheap", "fit"), os.path.join(other, "omniheap", "fit"))
                self.imports(one, other)
                self.imports(other, one)
                if are_apart:
                    self.imports(one, missing=True)

    def _copy(self, source, target, but=()):
        os.makedirs(target)
        for name in os.listdir(source):
            if name.endswith((".py", ".json")) and name not in but:
                with open(os.path.join(source, name), "rb") as read, open(os.path.join(target, name), "wb") as written:
                    written.write(read.read())


# Modules of Transformers in which something is replaced, where they are imported.
_TRANSFORMERS = ("transformers.masking_utils", "transformers.generation.stopping_criteria")


def upstream(torch, owner, name):
    """Returns a short hash of a function, class or value of upstream: of its source, or of its C++ schemas and documentation."""
    original = inspect.getattr_static(owner, name, None) or getattr(owner, name, None)
    original = getattr(original, "fget", original)
    try:
        said = inspect.getsource(original)
    except (OSError, TypeError):
        of_class = {each: vars(original)[each].__doc__ for each in sorted(vars(original))} if inspect.isclass(original) else None
        schemas = list(map(str, torch._C._jit_get_schemas_for_operator(f"aten::{name}")))
        said = (of_class, schemas, original.__doc__) if callable(original) else original
    return hashlib.sha256(str(said).encode()).hexdigest()[:12]


class Replacements(unittest.TestCase):
    """Checks that every replaced part of upstream is the version that was read."""

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_what_is_replaced_is_as_it_was_read(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "replaced.json"), encoding="utf-8") as file:
            read = json.load(file)
        has_transformers = importlib.util.find_spec("transformers") is not None
        found = self._replaced(has_transformers)
        wanted = {name: said for version, names in read.items() if has_transformers or version.startswith("torch") for name, said in names.items()}
        other = {name: said for name, said in found.items() if wanted.get(name) != said}
        self.assertFalse(other, f"upstream has others than {', '.join(read)} had: read them, mend what stands for them, and put this into replaced.json: {json.dumps(other)}")
        self.assertFalse(wanted.keys() - found.keys(), "nothing stands for these any more: take them out of replaced.json")

    def _replaced(self, has_transformers):
        import torch
        from torch.amp.autocast_mode import autocast

        for name in _TRANSFORMERS if has_transformers else ():
            importlib.import_module(name)
        with _ranks.group(torch, 2):
            replaced = _fakes.replacements(torch, torch.device("cuda", 0), None, Gpu("NVIDIA H200"))
        replaced.append((autocast, "__exit__", None))
        prefix = lambda owner: f"{owner.__module__}.{owner.__name__}" if inspect.isclass(owner) else owner.__name__
        return {f"{prefix(owner)}.{name}": upstream(torch, owner, name) for owner, name, _ in replaced}


if __name__ == "__main__":
    unittest.main()

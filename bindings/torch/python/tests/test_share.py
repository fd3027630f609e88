"""Tensors that processes publish and attach, through an arbiter and host memory. Every user is a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import torch
except ImportError:
    torch = None

COMMAND = os.environ.get("OMNIHEAP_COMMAND") or shutil.which("omniheap")

START = """
import json, os, sys
import torch, omniheap.torch as oh

def weights():
    torch.manual_seed(1)
    return {
        "embedding": torch.randn(1000, 37),
        "half": torch.randn(3, 5, 7).to(torch.bfloat16),
        "transposed": torch.randn(64, 32).t(),
        "flag": torch.tensor([True, False, True]),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "nothing": torch.empty(0, 4),
        "large": torch.arange(3 << 20, dtype=torch.int32),
    }

def same(found):
    wanted = weights()
    assert list(found) == list(wanted), list(found)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name

def name_of(call):
    try:
        call()
    except oh.OmniheapError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
"""


@unittest.skipUnless(torch is not None, "this interpreter has no PyTorch")
@unittest.skipUnless(COMMAND, "no command: set OMNIHEAP_COMMAND")
class Sharing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        os.chmod(cls.folder, 0o755)
        cls.socket = os.path.join(cls.folder, "arbiter.sock")
        group = ["--group", "65534"] if os.getuid() == 0 else []
        cls.arbiter = subprocess.Popen([COMMAND, "serve", "--socket", cls.socket, "--capacity", "128MiB", *group])
        while not os.path.exists(cls.socket) and cls.arbiter.poll() is None:
            time.sleep(0.01)

    @classmethod
    def tearDownClass(cls):
        cls.arbiter.terminate()
        cls.arbiter.wait()
        shutil.rmtree(cls.folder)

    def tell(self, code, **variables):
        """Runs a story in a process of its own; returns what it printed."""
        environment = {**os.environ, "OMNIHEAP_ARBITER": self.socket, **variables}
        done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout.strip()

    def published(self):
        listed = subprocess.run([COMMAND, "tenants", "published", "--socket", self.socket, "--json"], capture_output=True, text=True, check=True)
        return [json.loads(line) for line in listed.stdout.splitlines()]

    def test_weights_outlive_their_publisher_and_are_there_once(self):
        self.tell("oh.publish('model', weights())")
        self.assertEqual(self.tell("""
one, two = oh.attach("model", "cpu"), oh.attach("model", "cpu", verify=True)
same(one), same(two)
# One copy: what one mapping writes, the other reads. Programs must not.
one["scalar"].fill_(8)
assert int(two["scalar"]) == 8
print(name_of(lambda: oh.attach("model", "cpu", verify=True)))
one["scalar"].fill_(7)
same(oh.attach("model", "cpu", verify=True))
"""), "ChangedError: the bytes are not those that were published: their digest differs")
        self.tell("oh.withdraw('model', 'cpu')")
        self.assertIn("NotPublishedError", self.tell("print(name_of(lambda: oh.attach('model', 'cpu')))"))

    def test_a_tensor_keeps_its_memory_attached(self):
        self.tell("oh.publish('kept', weights())")
        self.tell("""
kept = oh.attach("kept", "cpu")["large"]
import gc; gc.collect()
assert torch.equal(kept, weights()["large"])
oh.withdraw("kept", "cpu")
print(name_of(lambda: oh.attach("kept", "cpu")))
assert torch.equal(kept, weights()["large"]), "withdrawn, and still attached"
""")
        for _ in range(500):
            if not [one for one in self.published() if one["name"] == "kept"]:
                break
            time.sleep(0.01)
        self.assertEqual([one for one in self.published() if one["name"] == "kept"], [], "free with the last process that had it")

    def test_what_fails_has_a_name(self):
        self.tell("oh.publish('taken', weights())")
        told = self.tell("""
for call in (
    lambda: oh.attach("nothing", "cpu"),
    lambda: oh.withdraw("nothing", "cpu"),
    lambda: oh.publish("taken", weights()),
    lambda: oh.publish("large", {"x": torch.zeros(129 << 20, dtype=torch.uint8)}),
    lambda: oh.publish("a/b", weights()),
    lambda: oh.publish("empty", {}),
    lambda: oh.publish("meta", {"x": torch.empty(3, device="meta")}),
    lambda: oh.publish("list", [1, 2]),
    lambda: oh.attach(3, "cpu"),
):
    print(name_of(call))
""").splitlines()
        expected = [
            ("NotPublishedError", "nothing is published"), ("NotPublishedError", "nothing is published"), ("NameTakenError", "withdraw it first"),
            ("OmniheapError", "more than the device has"), ("OmniheapError", "is no name"), ("OmniheapError", "is no dict"),
            ("OmniheapError", "no dense tensor"), ("OmniheapError", "is no dict"), ("OmniheapError", "is no name"),
        ]
        self.assertEqual(len(told), len(expected), told)
        for line, (kind, words) in zip(told, expected):
            self.assertTrue(line.startswith(kind + ":") and words in line, line)
        self.assertEqual([one["name"] for one in self.published()], ["taken"], "a refusal leaves nothing")
        self.tell("oh.withdraw('taken', 'cpu')")

    def test_without_an_arbiter(self):
        for value, words in (("", "set OMNIHEAP_ARBITER"), ("/nowhere.sock", "OMNIHEAP_ARBITER names no arbiter")):
            self.assertIn(words, self.tell("print(name_of(lambda: oh.publish('x', weights())))", OMNIHEAP_ARBITER=value))

    def test_bytes_that_are_no_tensors(self):
        told = self.tell("""
from omniheap import _share
original = _share._Bytes.__init__
def broken(self, torch, tensors):
    original(self, torch, tensors)
    self._pieces = iter([memoryview(bytes([255]) * self.length)])
_share._Bytes.__init__ = broken
oh.publish("strange", weights())
print(name_of(lambda: oh.attach("strange", "cpu")))
oh.withdraw("strange", "cpu")
""")
        self.assertIn("holds no tensors of omniheap.torch.publish", told)

    @unittest.skipUnless(os.getuid() == 0, "only root can be another user")
    def test_another_user_sees_nothing(self):
        self.tell("oh.publish('private', weights())")
        told = self.tell("""
import pathlib
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(name_of(lambda: oh.attach("private", "cpu")))
print(name_of(lambda: oh.withdraw("private", "cpu")))
""").splitlines()
        self.assertTrue(all(line.startswith("NotPublishedError: ") and "for this user" in line for line in told), told)
        self.tell("same(oh.attach('private', 'cpu')); oh.withdraw('private', 'cpu')")


if __name__ == "__main__":
    unittest.main()

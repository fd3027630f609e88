"""Helpers of the tests of the package omniheap, which these tests use too."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bindings/torch/python/tests"))
from on_host import stand_in
from test_activations import Copier

__all__ = ["Copier", "stand_in"]

"""Builds the shared library and the command with cargo, and puts both into one wheel for every Python 3 of the platform.

No toolkit is needed: drivers are found at run time.
"""

import functools
import os
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

# setuptools replaces distutils: import it first.
from distutils.command.build_scripts import build_scripts

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libomniheap_torch.so"
COMMAND = "omniheap"


@functools.cache
def build():
    """Has cargo build the library and the command; returns the folder of both."""
    cargo = os.environ.get("CARGO") or shutil.which("cargo")
    if cargo is None:
        raise SystemExit("omniheap is written in Rust: install it from https://rustup.rs and try again")
    workspace = os.path.dirname(os.path.dirname(HERE))
    profile = os.environ.get("OMNIHEAP_CARGO_PROFILE") or "release"
    # Cargo builds dependencies again where it is asked for other packages than before.
    packages = (os.environ.get("OMNIHEAP_CARGO_PACKAGES") or "-p omniheap-torch -p omniheap-cli").split()
    subprocess.run([cargo, "build", "--lib", "--bin", COMMAND, "--profile", profile, *packages], cwd=workspace, check=True)
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(workspace, "target")
    # Cargo calls the folder of its profile "dev" by another name.
    return os.path.join(target, "debug" if profile == "dev" else profile)


class Build(build_py):
    def run(self):
        super().run()
        shutil.copy2(os.path.join(build(), NAME), os.path.join(self.build_lib, "omniheap", NAME))


class Scripts(build_scripts):
    """Takes the command as it is: setuptools knows scripts as text only."""

    def run(self):
        self.mkpath(self.build_dir)
        shutil.copy2(os.path.join(build(), COMMAND), self.build_dir)


class Wheel(bdist_wheel):
    """The library is opened with ctypes, and the command is a program: neither knows which Python 3 it is."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class Binary(Distribution):
    """The package holds machine code, whatever setuptools thinks."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "build_scripts": Scripts, "bdist_wheel": Wheel}, distclass=Binary, scripts=[COMMAND])

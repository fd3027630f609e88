"""Builds the shared library with cargo and puts it into the package. No toolkit is needed: drivers are found at run time."""

import os
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libomniheap_torch.so"


class Build(build_py):
    def run(self):
        super().run()
        cargo = os.environ.get("CARGO") or shutil.which("cargo")
        if cargo is None:
            raise SystemExit("omniheap is written in Rust: install it from https://rustup.rs and try again")
        workspace = os.path.dirname(os.path.dirname(HERE))
        profile = os.environ.get("OMNIHEAP_CARGO_PROFILE") or "release"
        # Cargo builds dependencies again where it is asked for other packages than before.
        packages = (os.environ.get("OMNIHEAP_CARGO_PACKAGES") or "-p omniheap-torch").split()
        subprocess.run([cargo, "build", "--lib", "--profile", profile, *packages], cwd=workspace, check=True)
        target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(workspace, "target")
        # Cargo calls the folder of its profile "dev" by another name.
        folder = "debug" if profile == "dev" else profile
        shutil.copy2(os.path.join(target, folder, NAME), os.path.join(self.build_lib, "omniheap", NAME))


class Binary(Distribution):
    """The package holds machine code, whatever setuptools thinks."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build}, distclass=Binary)

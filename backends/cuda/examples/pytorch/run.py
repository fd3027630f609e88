"""PyTorch's caching allocator with the sizes and the order of `speed.rs`, in a loop of its own C++ functions.

`python3 run.py [LIBRARY]`: LIBRARY is `loop.cpp` compiled before, for machines without a compiler or CUDA's headers;
without it, it is compiled here. Nanoseconds of one allocate and one free; no interpreter is in the measured loops.
"""

import ctypes
import pathlib
import subprocess
import sys
import tempfile

import torch

MASK = (1 << 64) - 1
LIVE, PAIRS = 2_000, 200_000


def compiled():
    """Compiles the loops against this PyTorch."""
    from torch.utils.cpp_extension import include_paths

    here = pathlib.Path(__file__).parent
    library = pathlib.Path(tempfile.mkdtemp()) / "loop.so"
    includes = [part for path in include_paths("cuda") for part in ("-I", path)]
    command = ["g++", "-O2", "-shared", "-fPIC", "-std=c++20", *includes, here / "loop.cpp", "-o", library]
    subprocess.run(command, check=True)
    return library


def splitmix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def sizes():
    random = splitmix(7)
    for _ in range(1024):
        base = 512 << (next(random) % 11)
        yield base + next(random) % base


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else compiled()
    torch.empty(1, device="cuda")
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    # The loops name a symbol of this library, which Python loads for itself alone.
    ctypes.CDLL(str(libraries / "libc10_cuda.so"), ctypes.RTLD_GLOBAL)
    loops = ctypes.CDLL(str(library))
    loops.pair_ns.restype = loops.churn_ns.restype = ctypes.c_double
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    for size in (512, 4 << 10, 64 << 10, 1 << 20, 16 << 20):
        best = min(loops.pair_ns(ctypes.c_uint64(size), ctypes.c_uint64(PAIRS)) for _ in range(4))
        print(f"allocate+free {size:<12} PyTorch {best:8.1f} ns")
    table = (ctypes.c_uint64 * 1024)(*sizes())
    number = ctypes.c_uint64
    best = loops.churn_ns(number(LIVE), number(PAIRS), number(1), table, number(1024))
    print(f"churn with {LIVE} live    PyTorch {best:8.1f} ns")


main()

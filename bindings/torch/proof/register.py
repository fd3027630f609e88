"""Registrable memory on one GPU: properties of its handles, NCCL's registration, import by a second process, and its cost.

    python bindings/torch/proof/register.py            # one GPU; PyTorch 2.11 with NCCL
    python bindings/torch/proof/register.py --check    # without a GPU: imports, names of functions, layouts

Prints one line for each check: `ok`, `refused` where PyTorch or the driver says that it cannot, or `FAILED`. Ends with 1 if anything failed.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
import traceback

MIB = 1 << 20
SIZE = 64 * MIB
STAMP = 0x5A
DESCRIPTOR, FABRIC = 1, 8
RDMA_SUPPORTED, FABRIC_SUPPORTED = 110, 128
_failed = []


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


class Library:
    """C functions of a library, whose results other than zero are raised."""

    def __init__(self, names):
        for name in names:
            try:
                self._library, self.name = ctypes.CDLL(name), name
                return
            except OSError as error:
                why = error
        raise RuntimeError(f"none of {names} can be loaded: {why}")

    def call(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} returned {code}")


def check(name, expected_refusal=None):
    """Runs a check at once, and prints its line. With a refusal, its error is what that text says, and no failure."""

    def run(work):
        try:
            print(f"ok       {name}: {work()}", flush=True)
        except Exception as error:  # noqa: BLE001 (each check stands for itself)
            line = str(error).splitlines()[0] if str(error) else repr(error)
            if expected_refusal:
                print(f"refused  {name}: {line} ({expected_refusal})", flush=True)
                return work
            print(f"FAILED   {name}: {line}", flush=True)
            traceback.print_exc()
            _failed.append(name)
        return work

    return run


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


def driver():
    return Library(["libcuda.so.1"])


def nccl():
    names = ["libnccl.so.2"]
    try:
        import nvidia.nccl

        names.insert(0, os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))
    except ImportError:
        pass
    return Library(names)


NCCL = ("ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRank", "ncclCommRegister", "ncclCommDeregister", "ncclCommDestroy", "ncclMemAlloc", "ncclMemFree")
WINDOWS = ("ncclCommWindowRegister", "ncclCommWindowDeregister")


def handle_of(cuda, address):
    """The driver's handle behind an address; the caller releases it."""
    handle = ctypes.c_ulonglong()
    cuda.call("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(address))
    return handle


def properties_of(cuda, address):
    handle, found = handle_of(cuda, address), Properties()
    try:
        cuda.call("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(found), handle)
    finally:
        cuda.call("cuMemRelease", handle)
    return found


def range_of(cuda, address):
    base, size = ctypes.c_ulonglong(), ctypes.c_size_t()
    cuda.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_ulonglong(address))
    return base.value, size.value


def attribute(cuda, number):
    value = ctypes.c_int()
    if getattr(cuda._library, "cuDeviceGetAttribute")(ctypes.byref(value), number, 0):
        return 0
    return value.value


def import_in_a_second_process(cuda, address, size):
    """Exports the handle, and lets a process without PyTorch map it and look for the stamp."""
    handle, descriptor = handle_of(cuda, address), ctypes.c_int(-1)
    try:
        cuda.call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, DESCRIPTOR, ctypes.c_ulonglong(0))
    finally:
        cuda.call("cuMemRelease", handle)
    try:
        call = [sys.executable, os.path.abspath(__file__), "--import", str(descriptor.value), str(size)]
        done = subprocess.run(call, pass_fds=(descriptor.value,), capture_output=True, text=True, timeout=120)
    finally:
        os.close(descriptor.value)
    expect(done.returncode == 0, f"the second process: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def imported(descriptor, size):
    """The second process."""
    cuda, context, handle, address = driver(), ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_ulonglong()
    cuda.call("cuInit", 0)
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    cuda.call("cuCtxSetCurrent", context)
    cuda.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), DESCRIPTOR)
    cuda.call("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0), ctypes.c_ulonglong(0))
    cuda.call("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
    access = Access(Location(1, 0), 3)
    cuda.call("cuMemSetAccess", address, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
    for offset in (0, size // 2, size - 4096):
        seen = (ctypes.c_ubyte * 4096)()
        cuda.call("cuMemcpyDtoH_v2", seen, ctypes.c_ulonglong(address.value + offset), ctypes.c_size_t(4096))
        expect(bytes(seen) == bytes([STAMP]) * 4096, f"other bytes at {offset}")
    print(f"{size} bytes mapped and read")


def without_a_gpu():
    """Checks what can be wrong before there is a GPU."""

    @check("layouts")
    def _():
        expect((ctypes.sizeof(Properties), ctypes.sizeof(Access), ctypes.sizeof(UniqueId)) == (32, 12, 128), "sizes differ from cuda.h's and nccl.h's")
        expect(Properties.rdma.offset == 25 and Properties.win32.offset == 16, "offsets differ from cuda.h's")
        return "as in cuda.h and nccl.h"

    @check("PyTorch")
    def _():
        import torch
        import torch.distributed._symmetric_memory as symmetric
        from torch._C._distributed_c10d import ProcessGroupNCCL

        expect(callable(symmetric.rendezvous) and torch.cuda.MemPool and torch.cuda.use_mem_pool, "functions are missing")
        return f"{torch.__version__}, {'; '.join(ProcessGroupNCCL.register_mem_pool.__doc__.strip().splitlines()[:1])}"

    @check("NCCL's functions")
    def _():
        library = nccl()
        for name in NCCL:
            getattr(library._library, name)
        windows = all(hasattr(library._library, name) for name in WINDOWS)
        return f"{library.name}, windows: {windows}"

    @check("omniheap")
    def _():
        import omniheap.torch
        from omniheap import _library

        return _library.address("omniheap_torch_registrable") and _library.path()


def on_a_gpu():
    import torch
    import torch.distributed as distributed

    import omniheap.torch

    torch.cuda.init()
    torch.cuda.set_device(0)
    cuda, pool = driver(), omniheap.torch.pool(registrable=True)
    granule = omniheap.torch.stats()["registrable"]
    print(f"         {torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, granularity {granule}", flush=True)
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.full((SIZE,), STAMP, dtype=torch.uint8, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    address = tensors[0].data_ptr()

    @check("one handle for each segment")
    def _():
        ranges = [range_of(cuda, tensor.data_ptr()) for tensor in tensors]
        expect(ranges[0] != ranges[1] and all(size == SIZE for _, size in ranges), f"{ranges}")
        expect([base for base, _ in ranges] == [tensor.data_ptr() for tensor in tensors], "a tensor does not begin its handle")
        return f"{len(ranges)} tensors, {len(set(ranges))} handles of {SIZE} bytes"

    @check("properties of the handle")
    def _():
        found = properties_of(cuda, address)
        expect(found.handle_types & DESCRIPTOR, f"handle types {found.handle_types}: no descriptor")
        has_rdma, has_fabric = attribute(cuda, RDMA_SUPPORTED), attribute(cuda, FABRIC_SUPPORTED)
        expect(bool(found.rdma) == bool(has_rdma), f"rdma {found.rdma}, and the device says {has_rdma}")
        return f"handle types {found.handle_types} (device has fabric: {has_fabric}), rdma {found.rdma}, location {found.location.type}:{found.location.id}"

    @check("a small tensor's segment is a multiple of the granularity")
    def _():
        before = omniheap.torch.stats()["reserved_bytes"]
        with torch.cuda.use_mem_pool(pool):
            small = torch.zeros(1, device="cuda")
        taken = omniheap.torch.stats()["reserved_bytes"] - before
        expect(taken > 0 and taken % granule == 0, f"{taken} bytes for {small.nbytes}")
        return f"{taken} bytes for {small.nbytes}"

    @check("import by a second process")
    def _():
        return import_in_a_second_process(cuda, address, SIZE)

    with_nccl_itself(torch, cuda, address)
    with_pytorch(torch, distributed, pool, tensors)
    cost(torch)


def with_nccl_itself(torch, cuda, address):
    library, communicator, unique = nccl(), ctypes.c_void_p(), UniqueId()

    @check("communicator of one rank")
    def _():
        library.call("ncclGetUniqueId", ctypes.byref(unique))
        library._library.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        library.call("ncclCommInitRank", ctypes.byref(communicator), 1, unique, 0)
        return "made"

    @check("ncclCommRegister")
    def _():
        handle = ctypes.c_void_p()
        library.call("ncclCommRegister", communicator, ctypes.c_void_p(address), ctypes.c_size_t(SIZE), ctypes.byref(handle))
        library.call("ncclCommDeregister", communicator, handle)
        return f"{SIZE} bytes registered and deregistered"

    @check("ncclCommWindowRegister")
    def _():
        window = ctypes.c_void_p()
        library.call("ncclCommWindowRegister", communicator, ctypes.c_void_p(address), ctypes.c_size_t(SIZE), ctypes.byref(window), 1)
        library.call("ncclCommWindowDeregister", communicator, window)
        return f"symmetric window of {SIZE} bytes ({window.value})"

    if communicator:
        library.call("ncclCommDestroy", communicator)


def with_pytorch(torch, distributed, pool, tensors):
    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    backend = distributed.group.WORLD._get_backend(torch.device("cuda"))

    @check("register_mem_pool and all-reduce")
    def _():
        distributed.all_reduce(torch.ones(1, device="cuda"))
        backend.register_mem_pool(pool)
        distributed.all_reduce(tensors[0])
        torch.cuda.synchronize()
        expect(int(tensors[0][-1]) == STAMP, "one rank's sum is its own value")
        backend.deregister_mem_pool(pool)
        return "registered, reduced, deregistered"

    @check("register_mem_pool(symm=True)", "this PyTorch or NCCL has no symmetric windows")
    def _():
        backend.register_mem_pool(pool, symm=True)
        distributed.all_reduce(tensors[0])
        torch.cuda.synchronize()
        backend.deregister_mem_pool(pool)
        return "registered, reduced, deregistered"

    for name in ("NCCL", "CUDA"):

        @check(f"symmetric memory, backend {name}: rendezvous of one", "PyTorch takes only what its own symm_mem.empty allocated")
        def _(name=name):
            import torch.distributed._symmetric_memory as symmetric

            symmetric.set_backend(name)
            shared = symmetric.rendezvous(tensors[1], distributed.group.WORLD)
            expect(shared.world_size == 1 and shared.rank == 0, "another world")
            return f"{shared.buffer_size} bytes"

    distributed.destroy_process_group()


def cost(torch, rounds=50):
    """Time of an allocation with its free against NCCL's own, taken in turns."""
    from omniheap import _library

    library, ours = nccl(), _library.load()

    def by_omniheap(size):
        address = ours.omniheap_torch_registrable(size, 0, None)
        expect(address, _library.explain_oom())
        return address

    def by_nccl(size):
        address = ctypes.c_void_p()
        library.call("ncclMemAlloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    pairs = (
        ("omniheap", by_omniheap, lambda address, size: ours.omniheap_torch_segment_free(address, size, 0, None)),
        ("ncclMemAlloc", by_nccl, lambda address, size: library.call("ncclMemFree", ctypes.c_void_p(address))),
    )
    for size in (2 * MIB, 64 * MIB, 1024 * MIB):

        @check(f"cost of {size // MIB} MiB")
        def _(size=size):
            taken, used = {name: [] for name, _, _ in pairs}, {}
            for turn in range(rounds):
                for name, allocate, free in pairs:
                    torch.cuda.synchronize()
                    before = torch.cuda.mem_get_info()[0]
                    start = time.perf_counter()
                    address = allocate(size)
                    taken[name].append(time.perf_counter() - start)
                    used[name] = before - torch.cuda.mem_get_info()[0]
                    free(address, size)
            ours_s, theirs_s = (statistics.median(taken[name][5:]) for name, _, _ in pairs)
            memory = used["omniheap"] / max(used["ncclMemAlloc"], 1)
            line = f"omniheap {ours_s * 1e6:.0f} us, ncclMemAlloc {theirs_s * 1e6:.0f} us, {ours_s / theirs_s:.2f} of its time (bar 1.2), {memory:.2f} of its memory (bar 1.0)"
            expect(ours_s <= 1.2 * theirs_s and memory <= 1.0, line)
            return line


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="only what needs no GPU")
    options.add_argument("--import", dest="imported", nargs=2, type=int, metavar=("FD", "BYTES"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.imported:
        imported(*given.imported)
        return 0
    without_a_gpu()
    if not given.check:
        on_a_gpu()
    print("all ok" if not _failed else f"FAILED: {', '.join(_failed)}")
    return int(bool(_failed))


if __name__ == "__main__":
    sys.exit(main())

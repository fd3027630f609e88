"""Replays, comparisons and plans of many traces as tasks of Ray, and limits from the fraction of a GPU that Ray gave a task.

    import omniheap.ray
    results = omniheap.ray.replay(["rank0.trace", "rank1.trace"], configs=[["--paged", "yes"], ["--paged", "no"]])
    picture = omniheap.ray.ranks(["rank0.trace", "rank1.trace"], report="job.html")

Ray schedules the tasks and runs those again whose worker was lost. Every node needs the command `omniheap` (in PATH, or named by
OMNIHEAP_COMMAND) and sees the traces under the same paths.
"""

import collections
import contextlib
import ctypes
import functools
import inspect
import json
import os
import shutil
import subprocess
import tempfile

from . import _library
from ._library import OmniheapError

__all__ = ["OmniheapError", "compare", "limit", "plan", "ranks", "remote", "replay", "share"]

_RETRIES = 3
# Tasks for each worker, where there are more traces than that.
_TURNS = 8


class _Ended(Exception):
    """Somebody ended the command, such as the system for want of memory: another node may have more."""


def replay(paths, configs=((),), num_cpus=1):
    """Returns what each trace would have needed: `omniheap replay --json` of every path with every config.

    paths: trace files, seen by every node.
    configs: lists of further arguments, such as ["--paged", "no"].
    num_cpus: cores that Ray sets aside for a task.

    Returns a list in the order of the paths, and for each path of the configs: dicts of `path`, `config`, and either `result`, as the
    command prints it, or `error`.
    """
    return _run("replay", paths, configs, num_cpus)


def compare(paths, configs=((),), num_cpus=1):
    """Compares how allocators serve each trace: `omniheap compare --json`, otherwise as `replay`."""
    return _run("compare", paths, configs, num_cpus)


def plan(paths, configs=((),), num_cpus=1):
    """Returns what each trace needs when it is planned ahead: `omniheap plan --json`, otherwise as `replay`."""
    return _run("plan", paths, configs, num_cpus)


def ranks(paths, report=None, num_cpus=1):
    """One picture of all ranks of a job, one trace each: what `omniheap ranks` makes of a folder, read by Ray's tasks.

    report: a page to write, here.

    Returns what `omniheap ranks --json` prints. Files that cannot be read are among its `problems`.
    """
    paths = _paths(paths)
    told = _tasks([["ranks", path, "--digest"] for path in paths], num_cpus)
    problems = [{"file": path, "why": each["error"]} for path, each in zip(paths, told) if "error" in each]
    if len(problems) == len(paths):
        raise OmniheapError(f"no rank could be read: {problems[0]['why']}")
    with tempfile.TemporaryDirectory() as folder:
        for name, each in zip(_names(paths), told):
            if "result" in each:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    json.dump(each["result"][0], file)
        # An absolute path: the command runs in this folder.
        page = [] if report is None else ["--out", os.path.abspath(os.fspath(report))]
        reduced = _command(["ranks", folder, "--json", *page])
    if "error" in reduced:
        raise OmniheapError(reduced["error"])
    picture = reduced["result"][0]
    picture["problems"] = sorted(picture["problems"] + problems, key=lambda problem: problem["file"])
    return picture


def share():
    """The part of a GPU that Ray gave this task or actor: 0.25, or 2.0 for two of them; 0.0 for none."""
    return float(_ray().get_runtime_context().get_assigned_resources().get("GPU", 0.0))


def limit(whole=None):
    """Limits this process to its share of a GPU. Returns the bytes; None where Ray gave a whole GPU, or none.

    The limit is a quota of the arbiter where OMNIHEAP_ARBITER names one, and OMNIHEAP_LIMIT otherwise.

    Call it in a task or an actor before anything is allocated; `remote` does. A limit that is set already and lower stays.
    whole: bytes of the GPU; by default what its driver says.
    """
    return _limit(whole)[0]


def _limit(whole):
    """As `limit`; also returns what takes the limit back."""
    part = share()
    if not 0.0 < part < 1.0:
        return None, lambda: None
    whole = _device_bytes() if whole is None else whole
    if not whole:
        raise OmniheapError("Ray gave this task a part of a GPU, and no driver tells how large one is; pass its bytes as `whole`")
    wanted = int(whole * part)
    if os.environ.get("OMNIHEAP_ARBITER"):
        return _limit_by_quota(wanted)
    before = os.environ.get("OMNIHEAP_LIMIT")
    if before:
        # A limit for several devices is somebody's careful choice.
        wanted = None if "=" in before else min(wanted, _library._parse(before))
    if wanted is not None:
        os.environ["OMNIHEAP_LIMIT"] = str(wanted)
    return wanted, functools.partial(_set_variable, before)


def _set_variable(value):
    os.environ.pop("OMNIHEAP_LIMIT", None)
    if value is not None:
        os.environ["OMNIHEAP_LIMIT"] = value


def _limit_by_quota(wanted):
    before = _quota()
    if before <= wanted:
        return before, lambda: None
    _quota(wanted)

    def undo():
        # Without its arbiter the next task is refused anyway.
        with contextlib.suppress(OmniheapError):
            _quota(before)

    return wanted, undo


def _quota(wanted=0):
    """Returns the arbiter's quota for this process on its GPU, the only one that Ray shows it; sets `wanted` instead where that is not zero."""
    function, before = _library.load().omniheap_share_quota, ctypes.c_uint64()
    function.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)]
    _library.check(function(0, wanted, ctypes.byref(before)))
    return before.value


def remote(num_gpus, whole=None, **options):
    """`ray.remote` for tasks and actors that hold no more of a GPU than their part of it.

        @omniheap.ray.remote(num_gpus=0.25)
        def train(): ...

    Ray itself counts `num_gpus` and enforces nothing.
    whole: as for `limit`.
    options: those of `ray.remote`.
    """
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, (int, float)) or not num_gpus > 0:
        raise OmniheapError(f"num_gpus is {num_gpus!r}; pass a part of a GPU such as 0.25, or a number of them")

    def wrap(target):
        wrapped = _limited_class(target, whole) if isinstance(target, type) else _limited(target, whole)
        return _ray().remote(num_gpus=num_gpus, **options)(wrapped)

    return wrap


def _limited(function, whole):
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise OmniheapError(f"{function.__name__} is async, and its limit would end before it runs; make it a plain function, or an actor")
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def yields(*arguments, **named):
            _, undo = _limit(whole)
            try:
                return (yield from function(*arguments, **named))
            finally:
                undo()

        return yields

    @functools.wraps(function)
    def run(*arguments, **named):
        _, undo = _limit(whole)
        try:
            return function(*arguments, **named)
        finally:
            # The worker may run another task, which has a part of its own.
            undo()

    return run


def _limited_class(actor, whole):
    class Limited(actor):
        def __init__(self, *arguments, **named):
            limit(whole)
            super().__init__(*arguments, **named)

    Limited.__name__, Limited.__qualname__, Limited.__doc__ = actor.__name__, actor.__qualname__, actor.__doc__
    return Limited


def _device_bytes():
    sizes = (_library.load().omniheap_torch_device_bytes(backend, 0) for backend in (b"cuda", b"hip"))
    return next((size for size in sizes if size), 0)


def _run(verb, paths, configs, num_cpus):
    orders = [(path, _config(config)) for path in _paths(paths) for config in configs]
    told = _tasks([[verb, path, *config, "--json"] for path, config in orders], num_cpus)
    return [{"path": path, "config": config, **each} for (path, config), each in zip(orders, told)]


def _tasks(orders, num_cpus):
    """Runs the command once for each list of arguments, as tasks of Ray."""
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    cores = ray.cluster_resources().get("CPU", 1)
    batches = _batches(orders, cores / num_cpus if num_cpus > 0 else cores)
    task = ray.remote(num_cpus=num_cpus, max_retries=_RETRIES, retry_exceptions=[_Ended])(_commands)
    return [each for batch in ray.get([task.remote(batch) for batch in batches]) for each in batch]


def _batches(orders, workers):
    """Orders in batches, in their order: a task costs Ray milliseconds, and several turns for each worker let all of them end at about the same time."""
    size = max(1, int(len(orders) / (_TURNS * max(1, workers))))
    return [orders[at:at + size] for at in range(0, len(orders), size)]


def _commands(orders):
    return [_command(order) for order in orders]


def _command(arguments):
    """Runs the command. Anything that it says is an answer: only what Ray can mend by running it elsewhere is raised."""
    command = os.environ.get("OMNIHEAP_COMMAND") or shutil.which("omniheap")
    if not command:
        return {"error": "the command omniheap is not in PATH on every node; install it, or set OMNIHEAP_COMMAND"}
    try:
        done = subprocess.run([command, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        return {"error": f"{command} cannot be run: {error}"}
    if done.returncode < 0:
        raise _Ended(f"omniheap {' '.join(arguments)} was ended by signal {-done.returncode}")
    if done.returncode:
        return {"error": _why(done.stderr) or f"omniheap {' '.join(arguments)} failed with code {done.returncode}"}
    return {"result": [json.loads(line) for line in done.stdout.splitlines() if line.strip()]}


def _why(said):
    """Returns the sentence of the command's error, which is one object with `--json`; other programs' lines as they are."""
    try:
        return json.loads(said)["error"]
    except (ValueError, KeyError, TypeError):
        return said.strip()


def _paths(paths):
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise OmniheapError("paths is one path; pass a list of paths")
    paths = [os.path.abspath(os.fspath(path)) for path in paths]
    if not paths:
        raise OmniheapError("there is no trace; pass a list of paths")
    return paths


def _config(config):
    if isinstance(config, str) or not all(isinstance(each, str) for each in config):
        raise OmniheapError(f"a config is {config!r}; pass a list of arguments, such as ['--paged', 'no']")
    return list(config)


def _names(paths):
    """The files' own names, from which ranks are read; a number before those that are not the only one."""
    names = [os.path.basename(path) for path in paths]
    times = collections.Counter(names)
    return [name if times[name] == 1 else f"{at:08}.{name}" for at, name in enumerate(names)]


def _ray():
    try:
        import ray
    except ImportError as error:
        raise OmniheapError(f"Ray cannot be imported ({error}); install it with `pip install ray`") from None
    return ray

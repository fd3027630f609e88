"""Will a step fit, and up to which batch: records steps and asks the command `omniheap`, which replays allocators exactly."""

import json
import os
import shutil
import subprocess
import tempfile

from ._library import OmniheapError
from ._record import record_step
from ._workspaces import Workspaces

_ALLOCATORS = ("torch", "expandable", "async", "omniheap", "plan")
_FIRST = (2, 4)


def fit(step, capacity, allocator="torch", fixed=None, **options):
    """Says whether a step fits: the answer of `omniheap fit --json` as a dict (docs/fit.schema.json).

    step, options: as for `record_step`.
    capacity: bytes of the device: a number, or a text such as "24GiB".
    allocator: "torch", "expandable", "async", "omniheap" or "plan".
    fixed: bytes that the driver's context and libraries take; by default what was measured with the workspaces, else none.
    """
    options, room = _room(capacity, allocator, fixed, options)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.omt")
        recording = record_step(step, path, **options)
        return {**_ask("fit", path, *room), "leaked_bytes": recording.leaked_bytes}


class LargestBatch:
    """The largest batch that fits, and how that is known."""

    def __init__(self, batch, peak_reserved_bytes, by, difference, traced):
        self.batch, self.peak_reserved_bytes, self.by, self.difference, self.traced = batch, peak_reserved_bytes, by, difference, traced

    def __repr__(self):
        return f"LargestBatch(batch={self.batch}, peak_reserved_bytes={self.peak_reserved_bytes}, by={self.by!r}, traced={self.traced})"


def largest_batch(make_step, capacity, allocator="torch", fixed=None, most=1 << 16, **options):
    """Finds the largest batch that fits. `.batch` is 0 when 1 does not fit.

    make_step: a function of a batch that returns a step as `record_step` takes it.
    most: look no farther than this.

    Two small batches are traced, and one that they let expect to fill the device; where every size is a line in the batch the answer
    follows from the lines. It is traced itself before it is said. Where sizes are no lines, candidates near by are traced, and
    `.difference` names the operator.
    """
    if not callable(make_step):
        raise OmniheapError(f"make_step is {make_step!r}; pass a function of a batch that returns a step")
    if not isinstance(most, int) or most < 1:
        raise OmniheapError(f"most is {most!r}; pass a whole number from 1 on")
    options, room = _room(capacity, allocator, fixed, options)
    with tempfile.TemporaryDirectory() as folder:
        search = _Search(make_step, room, folder, options)
        first, second = _FIRST
        third = max(2 * second, search.expected(first, second, most))
        traces = [f"--trace={batch}:{search.record(batch)}" for batch in (first, second, third)]
        guess = _ask("batch", *traces, *room, f"--most={most}")
        if guess["by"] == "lines":
            # Larger ones are known not to fit.
            most = guess["largest_batch"] or 0
            found = search.near(most, most)
        else:
            found = search.near(search.expected(second, third, most), most)
        return LargestBatch(found, search.peaks.get(found), guess["by"], guess["difference"], sorted(search.peaks))


class _Search:
    def __init__(self, make_step, room, folder, options):
        self._make_step, self._room, self._folder, self._options = make_step, room, folder, options
        # Peaks of batches that were traced and replayed.
        self.peaks, self._fits = {}, {}

    def record(self, batch):
        path = os.path.join(self._folder, f"{batch}.omt")
        if not os.path.exists(path):
            step = self._make_step(batch)
            if not callable(step):
                raise OmniheapError(f"make_step({batch}) returned {step!r}; return a function, as record_step takes it")
            record_step(step, path, **self._options)
        return path

    def fits(self, batch):
        if batch not in self._fits:
            answer = _ask("fit", self.record(batch), *self._room)
            self.peaks[batch], self._fits[batch] = answer["peak_reserved_bytes"], answer["fits"]
            self._left = answer["capacity_bytes"] - answer["fixed_bytes"]
        return self._fits[batch]

    def expected(self, one, other, most):
        """The batch that fills the device, on the line through the peaks of two; 1 to `most`."""
        for batch in (one, other):
            self.fits(batch)
        grown = max(1, self.peaks[other] - self.peaks[one])
        return max(1, min(one + (self._left - self.peaks[one]) * (other - one) // grown, most))

    def near(self, batch, most):
        """The largest batch that fits, up to `most`, from one near by: steps double until one fits and another does not."""
        low, high, stride = 0, most + 1, 1
        while low < batch < high:
            if self.fits(batch):
                low, batch = batch, batch + stride
            else:
                high, batch = batch, batch - stride
            stride *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low


def _room(capacity, allocator, fixed, options):
    """Options of `record_step`, with workspaces that are read once, and those of the command."""
    if allocator not in _ALLOCATORS:
        raise OmniheapError(f"allocator is {allocator!r}; choose one of {', '.join(_ALLOCATORS)}")
    workspaces = options.get("workspaces")
    if workspaces is not None:
        workspaces = workspaces if isinstance(workspaces, Workspaces) else Workspaces.load(workspaces)
        options = {**options, "workspaces": workspaces}
    if fixed is None:
        fixed = workspaces.fixed_bytes if workspaces is not None else 0
    return options, (f"--capacity={_bytes('capacity', capacity)}", f"--fixed={_bytes('fixed', fixed)}", f"--allocator={allocator}")


def _bytes(name, value):
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not is_number and not (isinstance(value, str) and value.strip()):
        raise OmniheapError(f"{name} is {value!r}; pass bytes, or a text such as '24GiB'")
    return str(value).replace(" ", "")


def _ask(*arguments):
    """What the command answers; a step that does not fit is an answer."""
    command = os.environ.get("OMNIHEAP_COMMAND") or shutil.which("omniheap")
    if command is None:
        raise OmniheapError("the command `omniheap` is not found; install it with `cargo install --path cli`, or set OMNIHEAP_COMMAND to it")
    done = subprocess.run([command, *arguments, "--json"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise OmniheapError(done.stderr.strip() or f"{command}: ended with code {done.returncode}") from None

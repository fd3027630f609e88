"""Will a step fit, and up to which batch: records steps and asks the command `omniheap-lab`, which replays allocators exactly."""

import gc
import json
import os
import shutil
import subprocess
import tempfile

from .._library import OmniheapError, parse_size
from ._recorder import record, record_step
from ._workspaces import Workspaces

_ALLOCATORS = ("torch", "expandable", "async", "omniheap", "plan")
_FIRST = (2, 4)
# Bounds of the middle batch, a quarter of what is expected, where sizes are no lines.
_MEDIUM = (16, 256)
# Factor by which an extrapolated batch may need more than there is and still fit, where sizes are no lines.
_NEARLY = 1.002
# Number of extrapolated candidates before plain bisection: next to a jump of the peak, extrapolation creeps by one batch at a time.
_GUESSES = 8


def fit(step, capacity, allocator="torch", fixed=None, **options):
    """Says whether a step fits: the answer of `omniheap fit --json` as a dict (docs/fit.schema.json).

    Needs the command `omniheap-lab`, which the package does not bring: `cargo install --path lab/cli`.

    step, options: as for `record_step`.
    capacity: bytes of the device: a number, or a text such as "24GiB".
    allocator: "torch", "expandable", "async", "omniheap" or "plan".
    fixed: bytes that the driver's context and libraries take; by default what was measured with the workspaces, else none.
    """
    options, room = _room(capacity, allocator, fixed, options)
    command()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.omt")
        recording = record_step(step, path, **options)
        return {**_ask("fit", path, *room), "leaked_bytes": recording.leaked_bytes, "unknown": recording.unknown}


class LargestBatch:
    """The largest batch that fits, and how that is known.

    batch: the answer, 0 where batch 1 does not fit. peak_reserved_bytes: what it reserves at most where nothing limits it, which may be more than the capacity: an allocator
    returns what it does not use before it fails. by: "lines" or "traces". difference: the operator whose sizes are no lines. traced: all batches that were traced.
    unknown: sentences about what is not known of the GPU.
    """

    def __init__(self, batch, peak_reserved_bytes, by, difference, traced, unknown):
        self.batch, self.peak_reserved_bytes, self.by, self.difference, self.traced, self.unknown = batch, peak_reserved_bytes, by, difference, traced, unknown

    def __repr__(self):
        return f"LargestBatch(batch={self.batch}, peak_reserved_bytes={self.peak_reserved_bytes}, by={self.by!r}, traced={self.traced})"


def largest_batch(make_step, capacity, allocator="torch", fixed=None, most=1 << 16, **options):
    """Finds the largest batch that fits. `.batch` is 0 when 1 does not fit.

    Needs the command `omniheap-lab`, which the package does not bring: `cargo install --path lab/cli`.

    make_step: a function of a batch that returns a step as `record_step` takes it.
    most: look no farther than this.

    Two small batches are traced, and one that they let expect to fill the device; where every size is a line in the batch the answer
    follows from the lines. It is traced itself before it is said. Where sizes are no lines, candidates near by are traced, also the batch above the answer,
    and `.difference` names the operator.

    With fake=False steps run on the GPU and the requests to its allocator are traced: faster, and kernels' workspaces are included. The GPU
    must have room for the answer, and for batch 4.
    """
    if not callable(make_step):
        raise OmniheapError(f"make_step is {make_step!r}; pass a function of a batch that returns a step")
    if not isinstance(most, int) or most < 1:
        raise OmniheapError(f"most is {most!r}; pass a whole number from 1 on")
    options, room = _room(capacity, allocator, fixed, options)
    if not options.get("fake", True) and str(options.get("device", "cuda")).startswith("cuda"):
        options = {"labels": False, **options}
    command()
    with tempfile.TemporaryDirectory() as folder:
        search = _Search(make_step, (*room, f"--most={most}"), folder, options)
        first, second = _FIRST
        search.record(first)
        if search.fits(second) is None or search.fits(first) is None:
            raise OmniheapError(f"batch {second} does not run on this GPU, which has too little free memory; leave fake=False out")
        third = search.expected(second, most)
        if search.answer["expected_batch"] is None:
            # Peaks of small batches extrapolate badly: if sizes are no lines, trace a medium batch first.
            third = min(third, max(_MEDIUM[0], min(third // 4, _MEDIUM[1])))
        search.fits(max(2 * second, third))
        guess = search.answer
        if guess["by"] == "lines":
            # Larger ones are known not to fit.
            batch = most = guess["largest_batch"] or 0
        else:
            batch = search.expected(max(search.traced()), most)
        found = search.near(batch, most)
        return LargestBatch(found, search.peak(found), guess["by"], guess["difference"], search.traced(), list(search.unknown))


class _Search:
    def __init__(self, make_step, asked, folder, options):
        self._make_step, self._asked, self._folder, self._options = make_step, asked, folder, options
        # Traces by their batch; None where memory ran out.
        self.paths, self._rows = {}, {}
        # For each batch that ran two steps: whether they were alike.
        self._regular = []
        self.unknown = {}

    def record(self, batch):
        path = os.path.join(self._folder, f"{batch}.omt")
        # Models of earlier batches may be alive in uncollected cycles: only a second failure, after a collection, counts.
        self.paths[batch] = path if self._records(batch, path) or self._records(batch, path) else None

    def _records(self, batch, path):
        """Records a batch; False if the GPU ran out of memory."""
        try:
            step = self._make_step(batch)
            if not callable(step):
                raise OmniheapError(f"make_step({batch}) returned {step!r}; return a function, as record_step takes it")
            self._record(step, path)
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
        else:
            return True
        # The error's traceback kept tensors alive until here.
        gc.collect()
        return False

    def _record(self, step, path):
        if len(self._regular) >= len(_FIRST) and all(self._regular):
            # At larger batches the second step will repeat the first too: do not run it.
            record(step, path, **self._options, is_regular=True)
        else:
            recording = record(step, path, **self._options)
            self._regular.append(recording.is_regular)
            self.unknown.update(dict.fromkeys(recording.unknown))

    def fits(self, batch):
        """Returns True if a batch fits; None where the GPU that it ran on had too little memory."""
        if batch not in self.paths:
            self.record(batch)
            if self.paths[batch]:
                # Traces far above the capacity do not help the extrapolation. Three traces tell whether sizes are lines; after that two are enough.
                most = max(batch, min((each for each, row in self._rows.items() if not row["fits"]), default=0))
                near = sorted(each for each, path in self.paths.items() if path and each <= most)[-3 if len(self._rows) < 3 else -2 :]
                self.answer = _ask("batch", *(f"--trace={each}:{self.paths[each]}" for each in {batch, *near}), *self._asked)
                self._rows.update((row["batch"], row) for row in self.answer["traces"])
        return self._rows[batch]["fits"] if batch in self._rows else None

    def peak(self, batch):
        return self._rows[batch]["peak_reserved_bytes"] if batch in self._rows else None

    def traced(self):
        """The batches that were traced."""
        return sorted(self._rows)

    def expected(self, batch, most):
        """The batch that should fill the device, extrapolated from the traces so far; 1 to `most`."""
        lines = self.answer["expected_batch"]
        return lines if lines is not None else int(self._on_peaks(batch, most))

    def _on_peaks(self, batch, most, share=1):
        """The same from the least capacities of a batch and of the next smaller one traced that needs less: for programs that differ by batch. share: of the capacity."""
        needs = {batch - 1: 0} if batch == min(self._rows) else {}
        needs.update((each, row["least_capacity_bytes"]) for each, row in self._rows.items())
        high = needs[batch]
        below = max((each for each, size in needs.items() if each < batch and size < high), default=None)
        if below is None:
            return most
        low = needs[below]
        left = (self.answer["capacity_bytes"] - self.answer["fixed_bytes"]) * share
        return max(1, min(below + (left - low) * (batch - below) / (high - low), most))

    def near(self, batch, most):
        """The largest batch that fits, up to `most`, searched from a batch near it."""
        low = max((each for each, row in self._rows.items() if row["fits"] and each <= most), default=0)
        high = min([most + 1, *(each for each in self.paths if low < each and not self.fits(each))])
        batch = min(max(batch, low + 1), high - 1)
        guesses, stride = 0, 1
        while low < batch < high:
            low, high = (batch, high) if self.fits(batch) else (low, batch)
            stride = stride if batch == low else 1
            batch, guesses = self._next(batch, low, high, most), guesses + 1
            if batch > low and guesses >= _GUESSES:
                batch = (low + high) // 2
            if batch == low:
                # Padded batches are the same step up to the next multiple: only one that does not fit shows that no larger one does.
                batch, stride = min(low + stride, high - 1), 2 * stride
        return low

    def _next(self, batch, low, high, most):
        """The batch to trace next; `low` if no larger one is expected to fit."""
        if batch in self._rows and self.answer["expected_batch"] is not None:
            return min(max(self.answer["expected_batch"], low), high - 1)
        if batch == low:
            # A batch that nearly fits is worth a trace.
            return min(max(low, round(self._on_peaks(batch, most)), int(self._on_peaks(batch, most, _NEARLY))), high - 1)
        expected = int(self._on_peaks(batch, most)) if batch in self._rows else 0
        return expected if low < expected < high else (low + high) // 2


def _room(capacity, allocator, fixed, options):
    """Options of `record_step`, with workspaces that are read once, and those of the command."""
    if allocator not in _ALLOCATORS:
        raise OmniheapError(f"allocator is {allocator!r}; choose one of {', '.join(_ALLOCATORS)}")
    workspaces = Workspaces.of(options.get("workspaces"))
    if workspaces is not None:
        options = {**options, "workspaces": workspaces}
    if fixed is None:
        fixed = workspaces.fixed_bytes if workspaces is not None else 0
    capacity, fixed = parse_size("capacity", capacity, "24GiB"), parse_size("fixed", fixed, "512MiB")
    return options, (f"--capacity={capacity}", f"--fixed={fixed}", f"--allocator={allocator}")


def command():
    """The command `omniheap-lab`: beside the one that OMNIHEAP_COMMAND names; on the path where it names none."""
    named = os.environ.get("OMNIHEAP_COMMAND")
    place = os.path.dirname(shutil.which(named) or named) if named else None
    found = shutil.which(os.path.join(place, "omniheap-lab") if named else "omniheap-lab")
    if found is None:
        where = f"beside {named}, which OMNIHEAP_COMMAND names" if named else "on the path"
        raise OmniheapError(f"the command `omniheap-lab` is not found {where}, and the package does not bring it; install it with `cargo install --path lab/cli`")
    return found


def _ask(*arguments):
    """Returns the command's answer; a step that does not fit is an answer."""
    program = command()
    done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise OmniheapError(_why(done.stderr) or f"{program}: ended with code {done.returncode}") from None


def _why(said):
    """Returns the sentence of the command's error, which is one object with `--json`; other programs' lines as they are."""
    try:
        return json.loads(said)["error"]
    except (ValueError, KeyError, TypeError):
        return said.strip()

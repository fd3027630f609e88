"""Live storages of a device during a step, and the labels that they have in the trace: category, module path, operator, type.

Knows storages by numbers and nothing of PyTorch, so that its rules are tested without it.
"""


class Life:
    """One storage."""

    __slots__ = ("number", "size", "category", "path", "operator", "type", "marks", "backwards", "is_forward", "label")

    def __init__(self, size, category, path, operator, type, backwards, is_forward):
        self.size, self.category, self.path, self.operator, self.type = size, category, path, operator, type
        self.marks, self.backwards, self.is_forward = set(), backwards, is_forward

    def name(self):
        """The label: a tuple of its parts."""
        marks = "".join(f"[{mark}]" for mark in sorted(self.marks))
        return (self.category, *self.path, f"{self.operator}{marks} {self.type}")


class Ledger:
    """Writes births and deaths. A label is final when its storage dies: only then is known what it was for."""

    def __init__(self, writer):
        self._writer, self._time = writer, 0
        # The stream on which the program asks for memory.
        self.stream = 0
        self._live, self.backwards, self._was_backward = {}, 0, False
        self.live_bytes = self.peak_live_bytes = self.allocations = 0

    @property
    def time(self):
        """Number of operators that have run."""
        return self._time

    def begin_step(self):
        """A step begins."""
        self._writer.begin_step()

    def tick(self):
        """An operator runs: a microsecond passes, so that curves have one column for each."""
        self._time += 1

    def enters(self, is_backward):
        """Says which pass the next operators belong to."""
        if is_backward and not self._was_backward:
            self.backwards += 1
        self._was_backward = is_backward

    def born(self, key, size, category, path, operator, type, is_forward, marks=()):
        """A storage begins to live."""
        life = Life(size, category, tuple(path), operator, type, self.backwards, is_forward)
        life.marks.update(marks)
        if self._was_backward:
            life.marks.add("backward")
        life.label = life.name()
        life.number = self._writer.allocate(self._time, size, life.label, self.stream)
        self._live[key] = life
        self.allocations += 1
        self.live_bytes += size
        self.peak_live_bytes = max(self.peak_live_bytes, self.live_bytes)
        return life

    def get(self, key):
        """The life of a storage; None when it is not one of the device."""
        return self._live.get(key)

    def resized(self, key, size):
        """A storage has other bytes than it was born with: they are new ones."""
        life = self._live.get(key)
        if life is None or life.size == size:
            return
        self._bury(life)
        if size:
            self.live_bytes += size
            self.peak_live_bytes = max(self.peak_live_bytes, self.live_bytes)
            life.size, life.label = size, life.name()
            life.number = self._writer.allocate(self._time, size, life.label, self.stream)
        else:
            life.size = 0

    def moved(self, key, other):
        """Moves a life from one storage to another one, with the same bytes."""
        life = self._live.pop(key, None)
        if life is not None:
            self._live[other] = life

    def becomes(self, key, category, path, name, type):
        """A storage turns out to be a parameter, a gradient or state."""
        life = self._live.get(key)
        if life is not None:
            life.category, life.path, life.operator, life.type = category, tuple(path), name, type
            life.marks, life.is_forward = set(), False

    def died(self, key):
        """A storage is gone."""
        life = self._live.pop(key, None)
        if life is None:
            return
        if life.is_forward and life.backwards == self.backwards and "output" not in life.marks:
            # No backward pass has begun since: nothing kept it but the forward pass itself.
            life.category = "temporary"
        self._bury(life)

    def _bury(self, life):
        if life.size:
            self._settle(life)
            self._writer.free(self._time, life.number)
            self.live_bytes -= life.size

    def _settle(self, life):
        label = life.name()
        if life.size and label != life.label:
            life.label = label
            self._writer.rename(life.number, label)

    def finish(self):
        """Gives what still lives its label."""
        for life in self._live.values():
            self._settle(life)


class Lives:
    """Keeps births and deaths, where a writer of traces would write them."""

    def __init__(self):
        self.all = []

    def begin_step(self):
        """Ignored: this ledger writes no trace."""

    def allocate(self, time, size, label, _):
        self.all.append([size, time, None, label])
        return len(self.all) - 1

    def free(self, time, number):
        self.all[number][2] = time

    def rename(self, number, label):
        self.all[number][3] = label


def dtype_of(tensor):
    """The element type of a tensor, as labels have it."""
    return str(tensor.dtype)[len("torch."):]


def type_of(tensor):
    """Element type and shape of a tensor, as labels have them."""
    shape = "x".join(str(int(size)) for size in tensor.shape)
    return f"{dtype_of(tensor)}[{shape}]" if shape else dtype_of(tensor)

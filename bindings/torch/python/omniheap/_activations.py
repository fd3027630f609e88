"""Activations that wait in host memory for the backward pass."""

import collections
import threading
import weakref

from ._library import OmniheapError, parse_size


class offload_activations:
    """Moves what autograd keeps inside the block to host memory, and brings it back before the backward pass needs it.

        with omniheap.torch.offload_activations(min_bytes="1MiB", keep_last=2):
            loss = model(batch)
        loss.backward()

    min_bytes: smaller storages stay: bytes, or a text such as "1MiB".
    keep_last: how many storages stay on the device because the backward pass begins with them. As many may be on their way to
    the host, and as many on their way back.
    most: at most so many bytes leave in one block, those that are saved first: bytes, a text such as "8GiB", or None for all. From the second block
    on their copies have the whole forward pass, and the whole backward pass to come back in. What the link copies in the time of a forward pass costs
    little (1 to 4 % of a step on an H200); what is above that costs its time.

    Parameters, buffers, tensors of other devices, sparse tensors, sub-classes, and what is saved while a graph is captured or
    compiled stay where they are. Losses and gradients are the same to the bit. `figures()` counts bytes. One object may be entered again
    and again, by one thread at a time; it needs no `enable()`.
    """

    def __init__(self, min_bytes="1MiB", keep_last=2, most=None):
        self._min_bytes = parse_size("min_bytes", min_bytes, "1MiB")
        self._most = None if most is None else parse_size("most", most, "8GiB")
        if isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 0:
            raise OmniheapError(f"keep_last is {keep_last!r}; pass a whole number, 0 or more")
        self._keep_last = keep_last
        self._entered = []
        self._figures = collections.Counter()
        self._lock = threading.RLock()
        self._copiers = {}
        # Storages that are not activations, by identity; entries by the storage that they stand for.
        self._lasting, self._known = set(), weakref.WeakValueDictionary()
        # In the order in which they were saved: those that wait here, those on their way to the host, and all that are away.
        self._waiting, self._leaving, self._order = collections.deque(), collections.deque(), []
        # Bytes of this block: saved, sent to the host, released on the device, used again by the backward pass, and prefetched.
        self._saved = self._sent = self._gone = self._used = self._fetched = 0
        # Fraction of the saved bytes that was sent in the last block, if there is a limit.
        self._pace = None

    def __enter__(self):
        import torch

        if self._entered:
            raise OmniheapError("offload_activations is open already; leave it first, or make another one")
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        # First, as PyTorch may refuse it: then there is nothing to undo.
        hooks.__enter__()
        self._entered = [hooks, torch.nn.modules.module.register_module_forward_pre_hook(self._note_module)]
        self._lasting.clear()
        return self

    def __exit__(self, *error):
        hooks, modules = self._entered
        self._entered = []
        modules.remove()
        hooks.__exit__(*error)
        self._finish()

    def _finish(self):
        """Sends everything that is still to be sent: the forward pass is over."""
        with self._lock:
            self._waiting.clear()
            while self._leaving:
                self._leaving.popleft().has_left()
            if self._most is not None and self._saved:
                self._pace = self._sent / self._saved
            self._saved = self._sent = self._gone = self._used = self._fetched = 0

    def figures(self):
        """Bytes that went to the host and came back, and how many storages stayed here because the host had no memory for them."""
        names = ("offloaded_bytes", "returned_bytes", "kept_for_want_of_host_memory")
        return {name: self._figures[name] for name in names}

    def _note_module(self, module, _):
        """Remembers the storages of a module, which are no activations."""
        with self._lock:
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None and is_plain(tensor):
                    self._lasting.add(tensor.untyped_storage()._cdata)

    def _pack(self, tensor):
        """Returns what autograd keeps instead of a tensor."""
        copier = self._copier(tensor)
        if copier is None:
            return Kept(tensor)
        with self._lock:
            storage = tensor.untyped_storage()
            if _is_parameter(tensor):
                self._lasting.add(storage._cdata)
            if storage._cdata in self._lasting or storage.nbytes() < max(self._min_bytes, 1):
                return Kept(tensor)
            entry = self._known.get(storage._cdata)
            if entry is None or not entry.stands_for(tensor, storage):
                entry = self._known[storage._cdata] = _Entry(self, copier, tensor, storage)
                self._waiting.append(weakref.ref(entry))
                self._saved += entry.size
                self._send()
            return Part(entry, tensor)

    def _send(self):
        """Starts to move all but the last, and lets go of what must have left by now."""
        while len(self._waiting) > self._keep_last:
            entry = self._waiting.popleft()()
            if entry is None or not entry.is_here():
                continue
            if self._most is not None and self._sent + entry.size > self._most:
                continue
            if not entry.leave():
                self._figures["kept_for_want_of_host_memory"] += 1
                continue
            self._figures["offloaded_bytes"] += entry.size
            self._sent += entry.size
            self._leaving.append(entry)
            while self._order and self._order[-1]() is None:
                self._order.pop()
            entry.place = len(self._order)
            self._order.append(weakref.ref(entry))
        while len(self._leaving) > self._ahead():
            size = self._leaving[0].size
            # Memory is short only at the end of the forward pass, so the copies are spread over all of it.
            if self._pace is not None and self._gone + size > self._saved * self._pace:
                break
            self._gone += size
            self._leaving.popleft().has_left()

    def _ahead(self):
        return max(self._keep_last, 1)

    def _unpack(self, kept):
        """The tensor that autograd kept, on the device."""
        if isinstance(kept, Kept):
            return kept.tensor()
        with self._lock:
            entry = kept.entry
            while self._leaving:
                self._leaving.popleft().has_left(still_wanted=entry)
            if not entry.is_used:
                entry.is_used, self._used = True, self._used + entry.size
            tensor = kept.tensor()
            self._fetch_ahead(len(self._order) if entry.place is None else entry.place)
            return tensor

    def _fetch_ahead(self, place):
        """Prefetches what the backward pass needs next, last saved first; with a limit, spreads the copies over the whole pass."""
        soon = place - self._ahead()
        for at in range(place - 1, -1, -1):
            entry = self._order[at]()
            if entry is None or not entry.is_wanted():
                continue
            if at < soon and (self._pace is None or self._fetched + entry.size > self._used * self._pace):
                break
            entry.fetch()

    def _came_back(self, size):
        self._figures["returned_bytes"] += size
        self._fetched += size

    def _copier(self, tensor):
        """The way between the tensor's device and the host; None for what stays where it is."""
        import torch

        if not is_plain(tensor) or torch.compiler.is_compiling():
            return None
        copier = self._copiers.get(tensor.device)
        if copier is None:
            copier = self._copiers[tensor.device] = _copier_of(tensor.device)
        return copier if copier.is_open() else None


class Kept:
    """A tensor that stays, and how often it had been changed."""

    def __init__(self, tensor):
        # Without its history: what autograd keeps must not keep autograd's graph.
        self._tensor, self._version = tensor.detach(), tensor._version

    def tensor(self):
        check_version(self._tensor, self._version)
        return self._tensor


class Part:
    """A tensor of a storage that may be away."""

    def __init__(self, entry, tensor):
        self.entry, self._version = entry, tensor._version
        self._shape = (tensor.storage_offset(), tensor.size(), tensor.stride())
        self._dtype, self._is_first = tensor.dtype, True
        # Has the tensor's version and none of its bytes.
        self._witness = tensor.detach()
        self._witness.data = tensor.new_empty(0)
        entry.wanted += 1

    def storage(self):
        """The bytes, on the device."""
        check_version(self._witness, self._version)
        return self.entry.storage()

    def tensor(self):
        import torch

        storage = self.storage()
        self.entry.was_used(self._is_first)
        self._is_first = False
        return torch.empty(0, dtype=self._dtype, device=self._witness.device).set_(storage, *self._shape)


class _Entry:
    """A storage: here, on its way, or in host memory. As long as a tensor of it is kept, so is this."""

    def __init__(self, owner, copier, tensor, storage):
        self._owner, self._copier, self._here = weakref.ref(owner), copier, storage
        self._version = tensor._version
        self.size, self.wanted, self.place, self.is_used = storage.nbytes(), 0, None, False
        self._away = self._left = self._arrives = None

    def stands_for(self, tensor, storage):
        """Returns True if a tensor has the bytes that this has. A storage that is gone may leave its identity to another one."""
        return self._here is not None and self._here._cdata == storage._cdata and tensor._version == self._version

    def is_here(self):
        return self._here is not None

    def is_wanted(self):
        return self._here is None and self.wanted > 0

    def leave(self):
        """Begins to copy to host memory; whether there is any."""
        self._away = self._copier.take(self.size)
        if self._away is None:
            return False
        self._left = self._copier.send(self._here, self._away)
        return True

    def has_left(self, still_wanted=None):
        """Lets go of the device's bytes: who uses them next comes after the copy."""
        if self._left is not None and still_wanted is not self:
            self._copier.let_go(self._here, self._left)
            self._here = self._left = None

    def fetch(self):
        """Begins to copy back."""
        self._here, self._arrives = self._copier.fetch(self._away, self.size)
        owner = self._owner()
        if owner is not None:
            owner._came_back(self.size)

    def storage(self):
        """The bytes, for work that comes next on the current stream."""
        if self._here is None:
            self.fetch()
        if self._arrives is not None:
            self._copier.receive(self._here, self._arrives)
            self._arrives = None
        return self._here

    def was_used(self, is_first):
        """One tensor less wants the bytes, if it is its first time. After the last one only the host has them, if it has."""
        self.wanted -= is_first
        if self.wanted == 0 and self._away is not None and self._left is None:
            self._here = None

    def __del__(self):
        if self._arrives is not None or self._left is not None:
            self._copier.abandon(self._here)
        if self._away is not None:
            self._copier.give_back(self._away)


class _HostMemory:
    """Host memory that is kept and used again. Sizes are powers of two, so that ever new sizes do not need ever more of it."""

    def __init__(self, allocate):
        self._allocate, self._free, self._lock = allocate, collections.defaultdict(list), threading.RLock()

    def take(self, size):
        """So many bytes or more; None where there is no memory for them."""
        size = 1 << (size - 1).bit_length()
        with self._lock:
            if self._free[size]:
                return self._free[size].pop()
        try:
            return self._allocate(size)
        except (RuntimeError, MemoryError):
            return None

    def give_back(self, memory):
        with self._lock:
            self._free[memory.numel()].append(memory)


class _CudaCopier:
    """Copies between a CUDA device and pinned host memory on a stream of its own.

    All copies are on that one stream, so host memory that is given back may be written by the next copy at once.
    """

    def __init__(self, device):
        import torch

        self._torch, self._device, self._stream = torch, device, torch.cuda.Stream(device)
        self._memory = _HostMemory(lambda size: torch.empty(size, dtype=torch.uint8, pin_memory=True))
        self.take, self.give_back = self._memory.take, self._memory.give_back

    def is_open(self):
        return not self._torch.cuda.is_current_stream_capturing()

    def _bytes(self, storage):
        return self._torch.empty(0, dtype=self._torch.uint8, device=self._device).set_(storage)

    def _current(self):
        return self._torch.cuda.current_stream(self._device)

    def _copy(self, to, source):
        """Copies after what the current stream has to do now; when it is done, and that stream, whose memory it is."""
        home = self._current()
        self._stream.wait_stream(home)
        with self._torch.cuda.stream(self._stream), self._torch.no_grad():
            to.copy_(source, non_blocking=True)
        return self._stream.record_event(), home

    def send(self, storage, memory):
        return self._copy(memory[: storage.nbytes()], self._bytes(storage))

    def fetch(self, memory, size):
        # Of the current stream, so that it is memory which that stream has just freed.
        arriving = self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
        return arriving.untyped_storage(), self._copy(arriving, memory[:size])

    def let_go(self, storage, sent):
        """Memory whose copy was sent may be freed from now on."""
        event, home = sent
        home.wait_event(event)
        if self._current() != home:
            # The stream that it was allocated on may have waited for that one already, and be given it again at once.
            self._bytes(storage).record_stream(self._stream)

    def receive(self, storage, fetched):
        """The current stream may use what was fetched from now on."""
        event, home = fetched
        self._current().wait_event(event)
        if self._current() != home:
            home.wait_event(event)
            self._bytes(storage).record_stream(self._current())

    def abandon(self, storage):
        """Memory may be freed while a copy uses it."""
        self._bytes(storage).record_stream(self._stream)


# One for each device, because pinned memory takes longer to make than to fill.
_cuda_copiers = {}


def _copier_of(device):
    if device.type != "cuda":
        return _NO_COPIER
    if device not in _cuda_copiers:
        _cuda_copiers[device] = _CudaCopier(device)
    return _cuda_copiers[device]


class _NoCopier:
    def is_open(self):
        return False


_NO_COPIER = _NoCopier()


def is_plain(tensor):
    """Returns True if a tensor is bytes of a storage, read by offset, sizes and strides."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    return not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.device.type == "meta")


def _may_be_statistics(tensor):
    """Returns True if a tensor of a module may be running statistics: kernels of batch norm write to them, and PyTorch does not count that."""
    import torch

    return not isinstance(tensor, torch.nn.Parameter) and _have_form_of_statistics(tensor.dim(), tensor.dtype)


def _have_form_of_statistics(dimensions, dtype):
    return dimensions == 1 and dtype.is_floating_point


def _is_parameter(tensor):
    """Returns True if a tensor, or what it is a view of, gets a gradient of its own, or is autocast's copy of one that does."""
    base = tensor._base if tensor._is_view() else tensor
    if base is None or not base.requires_grad:
        return False
    if base.is_leaf:
        return True
    made = base.grad_fn
    return type(made).__name__ == "ToCopyBackward0" and type(made.next_functions[0][0]).__name__ == "AccumulateGrad"


def check_version(tensor, version):
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"it is at version {tensor._version}; expected version {version} instead"
        )

"""Models larger than the device: layers whose weights come when they are needed."""

import collections
import itertools

from ._activations import is_plain, _may_be_statistics
from ._library import OmniheapError, parse_size

_UNIT = 512
# One layer runs while the next one arrives.
_SLOTS = 2


class stream_layers:
    """Keeps the weights of a model's layers in pinned host memory, and so many bytes of them on the device.

        streamed = omniheap.torch.stream_layers(model, resident="8GiB")
        with torch.no_grad():
            model(batch)

    resident: the most that layers have on the device at a time: bytes, or a text such as "8GiB".
    layers: the layers; without them, those of the largest `ModuleList` or `Sequential`.
    device: where the model runs; None is the current one.

    For inference: nothing is ever copied back to the host. Some layers stay on the device for good, as many as there is room for; each
    of the others is copied on a stream of its own while the one before it runs. The order is that of the last pass. What is not in a layer,
    what layers share, buffers of one dimension (running statistics, which kernels write to unseen), and what a layer writes to when it runs, such as
    a cache, stays on the device. `remove()` ends it and leaves the weights where they are.
    """

    def __init__(self, model, resident, layers=None, device=None):
        import torch

        self._torch = torch
        self._device = _device(torch, device)
        limit = parse_size("resident", resident, "8GiB", least=1)
        layers = _layers(torch, model) if layers is None else list(layers)
        if not layers or not all(isinstance(layer, torch.nn.Module) for layer in layers):
            raise OmniheapError("no layers were found; pass them: stream_layers(model, resident, layers=model.blocks)")
        own = _own(model, layers)
        sizes = [sum(map(_rounded, tensors)) for tensors in own]
        chosen = _resident(sizes, limit)
        self._hooks, self._at, self._following = [], None, {}
        self._streamed = [_Layer(torch, tensors) for tensors, stays in zip(own, chosen) if not stays]
        largest = max((layer.size for layer in self._streamed), default=0)
        self._slots = [_Slot(torch, largest, self._device) for _ in range(_SLOTS if largest else 0)]
        self._copier = _copier(torch, self._device)
        resident = sum(itertools.compress(sizes, chosen)) + len(self._slots) * largest
        self._figures = collections.Counter(resident_bytes=resident)
        moved = self._rest(model)
        # Nothing of the model has been changed so far, and all memory is there.
        for layer in self._streamed:
            layer.put(None)
        for tensor, data in moved:
            tensor.data = data
        for number, module in enumerate(layer for layer, stays in zip(layers, chosen) if not stays):
            self._hooks.append(module.register_forward_pre_hook(lambda *_, number=number: self._begin(number)))
            self._hooks.append(module.register_forward_hook(lambda *_, number=number: self._end(number), always_call=True))

    def remove(self):
        """Ends it. Layers that were streamed have their weights in host memory then."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._slots = [], []

    def figures(self):
        """Bytes that layers have on the device, bytes that were copied there, and how often a layer was not expected."""
        return {name: self._figures[name] for name in ("resident_bytes", "copied_bytes", "unexpected")}

    def _rest(self, model):
        """Everything else, with its bytes on the device."""
        streamed = {id(tensor) for layer in self._streamed for tensor in layer.tensors}
        tensors = itertools.chain(model.parameters(), model.buffers())
        return [(tensor, tensor.data.to(self._device)) for tensor in tensors if id(tensor) not in streamed]

    def _begin(self, number):
        """Gives a layer its weights, and has the next one's come."""
        if self._torch.is_grad_enabled():
            raise OmniheapError("layers are streamed for inference; call the model inside `with torch.no_grad():`")
        if self._at is not None:
            self._following[self._at] = number
        slot = self._slot_of(number)
        if slot is None:
            self._figures["unexpected"] += self._at is not None
            slot = self._fetch(number, busy=None)
        elif self._streamed[number].is_written():
            # Between passes, say by `load_state_dict`: the slot was filled before.
            self._fill(slot)
        self._copier.receive(slot)
        self._streamed[number].put(slot)
        self._at = number
        following = self._following.get(number, (number + 1) % len(self._streamed))
        if self._slot_of(following) is None:
            self._fetch(following, busy=slot)

    def _end(self, number):
        """A layer has run: what comes next into its slot comes after that."""
        if not self._streamed[number].is_placed:
            # A pass that was refused before the layer had its weights: what was written since then is nothing that the layer writes.
            return
        self._figures["resident_bytes"] += self._streamed[number].keep_written()
        self._streamed[number].put(None)
        slot = self._slot_of(number)
        if slot is not None:
            self._copier.release(slot)

    def _slot_of(self, number):
        return next((slot for slot in self._slots if slot.layer == number), None)

    def _fetch(self, number, busy):
        """Begins to copy a layer to the slot that was used the longest time ago."""
        slot = min((slot for slot in self._slots if slot is not busy), key=lambda slot: slot.used)
        slot.layer, slot.used = number, max(each.used for each in self._slots) + 1
        self._fill(slot)
        return slot

    def _fill(self, slot):
        """Begins to copy its layer to a slot, after every copy there before."""
        layer = self._streamed[slot.layer]
        layer.note_versions()
        self._copier.fetch(layer.host, slot)
        self._figures["copied_bytes"] += layer.size


class _Layer:
    """A layer's weights, side by side in host memory."""

    def __init__(self, torch, tensors):
        self.tensors, self.size = tensors, sum(map(_rounded, tensors))
        self.host = torch.empty(self.size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        starts = [0, *itertools.accumulate(map(_rounded, tensors))]
        self._places = [(start, tensor.nbytes, tensor.dtype, tensor.shape) for start, tensor in zip(starts, tensors)]
        with torch.no_grad():
            for tensor, view in zip(tensors, self._views(self.host)):
                view.copy_(tensor.data)

    def _views(self, memory):
        return [memory[start : start + size].view(dtype).view(shape) for start, size, dtype, shape in self._places]

    def put(self, slot):
        """Lets the weights be those of a slot; without one, those of the host."""
        for tensor, view in zip(self.tensors, self._views(self.host if slot is None else slot.memory)):
            tensor.data = view
        self.is_placed = slot is not None
        self.note_versions()

    def note_versions(self):
        self._versions = [_version(tensor) for tensor in self.tensors]

    def is_written(self):
        """Returns True if any of the weights was written since the versions were noted."""
        return any(self._each_written())

    def _each_written(self):
        return [_version(tensor) != version for tensor, version in zip(self.tensors, self._versions)]

    def keep_written(self):
        """Has what was written since the weights were put there keep its bytes where it is, for good; how many bytes these are."""
        is_written = self._each_written()
        written = list(itertools.compress(self.tensors, is_written))
        for tensor in written:
            tensor.data = tensor.data.clone()
        stays = [not it for it in is_written]
        self.tensors, self._places = (list(itertools.compress(each, stays)) for each in (self.tensors, self._places))
        return sum(map(_rounded, written))


class _Slot:
    """Room for one layer on the device."""

    def __init__(self, torch, size, device):
        self.memory = torch.empty(size, dtype=torch.uint8, device=device)
        # The layer that it has, when it was taken, when the copy is done, and when the layer has run.
        self.layer, self.used, self.arrives, self.ran = None, 0, None, None


class _CudaCopier:
    """Copies to a CUDA device on a stream of its own."""

    def __init__(self, torch, device):
        self._torch, self._device, self._stream = torch, device, torch.cuda.Stream(device)
        # The slots are memory of the current stream.
        self._stream.wait_stream(torch.cuda.current_stream(device))

    def fetch(self, host, slot):
        if slot.ran is not None:
            self._stream.wait_event(slot.ran)
        with self._torch.cuda.stream(self._stream), self._torch.no_grad():
            slot.memory[: host.numel()].copy_(host, non_blocking=True)
        slot.arrives = self._stream.record_event()

    def receive(self, slot):
        self._torch.cuda.current_stream(self._device).wait_event(slot.arrives)

    def release(self, slot):
        slot.ran = self._torch.cuda.current_stream(self._device).record_event()


class _PlainCopier:
    """Copies at once, for devices without streams."""

    def fetch(self, host, slot):
        slot.memory[: host.numel()].copy_(host)

    def receive(self, slot):
        pass

    def release(self, slot):
        pass


def _copier(torch, device):
    return _CudaCopier(torch, device) if device.type == "cuda" else _PlainCopier()


def _device(torch, device):
    if device is None:
        if not torch.cuda.is_available():
            raise OmniheapError("PyTorch sees no GPU here; pass device=")
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(device)


def _version(tensor):
    """Returns how often a tensor was written; None where PyTorch does not count that."""
    return None if tensor.is_inference() else tensor._version


def _rounded(tensor):
    return -(-tensor.nbytes // _UNIT) * _UNIT


def _layers(torch, model):
    """The children of the largest list of modules."""
    if not isinstance(model, torch.nn.Module):
        raise OmniheapError(f"the model is a {type(model).__name__}; pass a torch.nn.Module")
    lists = [module for module in model.modules() if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))]
    size = lambda module: sum(parameter.nbytes for parameter in module.parameters())
    return list(max(lists, key=size, default=()))


def _own(model, layers):
    """The tensors of each layer that nothing else has, by storage. What is not plain and dense stays out, and what may be written without a count."""
    own = [[*layer.parameters(), *layer.buffers()] for layer in layers]
    everything = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers(), *own)}
    if any(tensor.device.type == "meta" for tensor in everything.values()):
        raise OmniheapError("the model has no weights yet (device 'meta'); load them first")
    plain = {name for name, tensor in everything.items() if is_plain(tensor) and tensor.is_contiguous() and tensor.nbytes and not _may_be_statistics(tensor)}
    storage = lambda tensor: tensor.untyped_storage()._cdata
    users = collections.Counter(storage(everything[name]) for name in plain)
    layers_of = collections.Counter(name for tensors in own for name in {id(tensor) for tensor in tensors})
    is_own = lambda tensor: id(tensor) in plain and layers_of[id(tensor)] == 1 and users[storage(tensor)] == 1
    return [list({id(tensor): tensor for tensor in tensors if is_own(tensor)}.values()) for tensors in own]


def _resident(sizes, limit):
    """Returns the layers that stay on the device: all, or as many as leave room for the slots, spread evenly so that copies never pause for long."""
    if sum(sizes) <= limit:
        return [True] * len(sizes)
    room = limit - _SLOTS * max(sizes)
    if room < 0:
        raise OmniheapError(f"resident is {limit} bytes, and the largest layer has {max(sizes)}; two of them need {_SLOTS * max(sizes)}")
    stays, total, share = [], sum(sizes), 0
    for size in sizes:
        # Bytes so far that may stay, times the bytes of all layers.
        share += size * room
        stays.append(share >= size * total)
        share -= size * total * stays[-1]
    return stays

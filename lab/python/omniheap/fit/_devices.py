"""Behaviour of PyTorch on a GPU that is not there: choices of operators, streams, and its capability."""

import contextlib
import itertools
import os

from .._library import OmniheapError
from . import _recurrent

# The GPU on which rules were measured, and what others are not assumed to be like: multiprocessors and threads of each, and the workspaces that
# PyTorch 2.11 has cuBLAS keep for the forward and the backward pass.
_MEASURED = "NVIDIA H200"
_CAPABILITY, _PROCESSORS, _THREADS, _LIBRARY_BYTES = (9, 0), 132, 2048, (33 << 20, 32 << 20)


class Gpu:
    """The GPU that a step is recorded for: what is known of it, and what was asked for and is not.

    `name`: None where nobody says which one it is. `is_measured`: rules that were measured hold for it. Other attributes are None where they are not known.
    """

    def __init__(self, name=None, capability=None, processors=None, threads=None):
        self.name, self.is_measured = name, name == _MEASURED
        self.capability, self.processors, self.threads, self.library_bytes = capability, processors, threads, None
        if self.is_measured:
            self.capability, self.processors, self.threads, self.library_bytes = _CAPABILITY, _PROCESSORS, _THREADS, _LIBRARY_BYTES
        self._lacking, self._assumed = {}, {}

    @classmethod
    def of(cls, torch, device, workspaces, name):
        """The one that is named, or that workspaces were measured on, or that is here."""
        if name is not None and not isinstance(name, str):
            raise OmniheapError(f"gpu is {name!r}; pass the name of a GPU, such as {_MEASURED!r}")
        if workspaces is not None:
            if name not in (None, workspaces.device):
                raise OmniheapError(f"gpu is {name!r}, and the workspaces were measured on {workspaces.device!r}; pass one of them")
            name = workspaces.device
        here = torch.cuda.get_device_properties(device) if device.type == "cuda" and torch.cuda.is_available() else None
        if here is None or name not in (None, here.name):
            return cls(name)
        return cls(here.name, (here.major, here.minor), here.multi_processor_count, here.max_threads_per_multi_processor)

    def lacks(self, what):
        """Notes something that depends on the GPU, is not known, and left out."""
        self._lacking[what] = None

    def assumes(self, what):
        """Notes something that depends on the GPU, and is taken as it was measured on another one."""
        if not self.is_measured:
            self._assumed[what] = None

    def asked_capability(self):
        """The compute capability that programs are told."""
        if self.capability is None:
            self.assumes("the compute capability")
        return self.capability or _CAPABILITY

    def unknown(self):
        """Returns what is not known of the GPU and was asked for: sentences."""
        name, sentences = self.name or "a GPU that is not named", []
        if self._lacking:
            sentences.append(f"not known for {name}, and not in the answer: {', '.join(self._lacking)}; run omniheap.fit.measure_workspaces on it and pass workspaces=, or pass gpu={_MEASURED!r} if it is one")
        if self._assumed:
            sentences.append(f"not known for {name}, and taken as on an {_MEASURED}: {', '.join(self._assumed)}")
        return sentences


def local(tensor):
    """A rank's own part of a tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def choices(torch, device, gpu):
    """Functions that PyTorch makes of other operators on a GPU than elsewhere, which it decides by the device in C++."""
    functional, aten = torch.nn.functional, torch.ops.aten
    original_ctc_loss = functional.ctc_loss
    halves = (torch.float16, torch.bfloat16)

    def prefers_cudnn():
        # As PyTorch: the order of kernels of attention depends on the GPU, and on a version in which cuDNN's were mended.
        is_mended = (torch.backends.cudnn.version() or 0) > 91500 and not os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"
        return is_mended and gpu.asked_capability()[0] in (9, 10)

    def dropout(input, p=0.5, training=True, inplace=False):
        if not training or inplace or not 0.0 < p < 1.0:
            return NotImplemented
        return torch.native_dropout(input, p, True)[0]

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if query.dim() != 4 or key.size(-1) != value.size(-1):
            return NotImplemented
        allowed = torch.backends.cuda
        is_half = query.dtype in halves or torch.is_autocast_enabled(device.type)
        is_short = is_half and query.size(-1) % 8 == 0
        # Fused kernels read whole rows, and broadcast nothing but the bias: one that is transposed, for example, is not for them.
        is_read = all(each.stride(-1) == 1 for each in (query, key, value, attn_mask) if each is not None) and query.size(0) == key.size(0) == value.size(0)
        is_trained = attn_mask is not None and attn_mask.requires_grad
        is_cudnn = is_read and not is_trained and prefers_cudnn() and allowed.cudnn_sdp_enabled() and is_short and query.size(-1) <= 128 and key.size(2) > 1
        is_flash = is_read and allowed.flash_sdp_enabled() and attn_mask is None and is_half and query.size(-1) <= 256
        is_efficient = is_read and allowed.mem_efficient_sdp_enabled() and (is_short or not is_half and query.dtype == torch.float32 and query.size(-1) % 4 == 0)
        if torch.is_autocast_enabled(device.type):
            value, key, query = (each.to(torch.get_autocast_dtype(device.type)) for each in (value, key, query))
        wants_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
        if is_flash and not is_cudnn:
            return flash(query, key, value, dropout_p, is_causal, scale)
        if enable_gqa and not is_cudnn:
            key, value = (each.repeat_interleave(query.size(-3) // each.size(-3), -3) for each in (key, value))
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        if not is_cudnn and not is_efficient:
            return products(query, key, value, attn_mask, dropout_p, is_causal, scale)
        if attn_mask is not None:
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        if is_cudnn:
            return aten._scaled_dot_product_cudnn_attention(query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, False, scale=scale)[0]
        return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, scale=scale)[0]

    def flash(query, key, value, dropout_p, is_causal, scale):
        """Flash attention, for which rows are padded to 16 bytes."""
        width = query.size(-1)
        if width % 8:
            query, key, value = (functional.pad(each, (0, -width % 8)) for each in (query, key, value))
            scale = width**-0.5 if scale is None else scale
        result = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return result[..., :width] if width % 8 else result

    def products(query, key, value, bias, dropout_p, is_causal, scale):
        """Attention where no fused kernel is allowed, or can read what it is given."""
        dtype, factor = query.dtype, (query.size(-1) ** -0.5 if scale is None else scale) ** 0.5
        with torch.autocast(device.type, enabled=False):
            if dtype in halves and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
                query, key, value = (each.float() for each in (query, key, value))
            query = query * factor
            if is_causal:
                seen = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
                bias = torch.zeros_like(seen, dtype=query.dtype).masked_fill_(seen.logical_not(), float("-inf"))
            scores = query.matmul(key.transpose(-2, -1) * factor)
            if bias is not None:
                # In place for every tensor that is not of a subclass, as fake ones are.
                scores.add_(bias)
            weights = aten._safe_softmax(scores, -1)
            if dropout_p > 0:
                weights = torch.native_dropout(weights, dropout_p, True)[0]
            return weights.matmul(value).to(dtype)

    def linear(input, weight, bias=None):
        is_fused = input.dim() < 3 or input.dim() == 3 and input.is_contiguous()
        is_wrapped = local(input) is not input or torch._C._functorch.is_functorch_wrapped_tensor(input)
        if bias is None or is_fused or is_wrapped:
            return NotImplemented
        # The bias is added in place to every tensor that is not of a subclass, as fake ones are.
        product = functional.linear(input, weight)
        return product.add_(bias.to(product.dtype))

    def ctc_loss(input, targets, input_lengths, target_lengths, *arguments, **options):
        # Lengths of the host are given as lists, and the device gets a copy.
        lengths = (torch.as_tensor(each).to(input.device) for each in (input_lengths, target_lengths))
        return original_ctc_loss(input, targets, *lengths, *arguments, **options)

    def rms_norm(input, normalized_shape, weight=None, eps=None):
        return aten._fused_rms_norm(input, list(normalized_shape), weight, eps)[0]

    def instead(original, chosen):
        def call(input, *arguments, **options):
            result = NotImplemented
            if isinstance(input, torch.Tensor) and input.device.type == device.type:
                result = chosen(input, *arguments, **options)
            return original(input, *arguments, **options) if result is NotImplemented else result

        return call

    choices = [(functional, "dropout", dropout), (torch, "dropout", dropout), (functional, "scaled_dot_product_attention", attention), (functional, "linear", linear), (functional, "ctc_loss", ctc_loss), (functional, "rms_norm", rms_norm), (torch, "rms_norm", rms_norm)]
    patches = [(owner, name, instead(getattr(owner, name), chosen)) for owner, name, chosen in (*choices, *_recurrent.choices(torch, gpu))]
    # Programs choose kernels by it.
    return [*patches, (torch.cuda, "get_device_capability", lambda device=None: gpu.asked_capability())]


class _Stream:
    """A stream or an event of a device that is not there: everything happens at once, in order."""

    number = 0

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, *_):
        pass

    wait_event = wait = record = wait_stream

    def record_event(self, event=None):
        return event or _Stream()

    def query(self):
        return True


def streams(torch, device, ledger):
    """Streams, for programs that shard: they copy and compute on several. PyTorch gives memory of one stream to no other."""
    numbers = itertools.count(1)

    class Stream(_Stream):
        def __init__(self, *_, **__):
            self.number = next(numbers)

    def current(device=None):
        stream = _Stream()
        stream.number = ledger.stream
        return stream

    @contextlib.contextmanager
    def on(stream):
        before, ledger.stream = ledger.stream, ledger.stream if stream is None else stream.number
        try:
            yield
        finally:
            ledger.stream = before

    return [
        (torch.cuda, "Stream", Stream),
        (torch.cuda, "Event", _Stream),
        (torch.cuda, "current_stream", current),
        (torch.cuda, "stream", on),
        (torch.cuda, "current_device", lambda: device.index or 0),
        (torch.cuda, "synchronize", lambda device=None: None),
        (torch._C, "_get_accelerator", lambda *_: torch.device(device.type)),
    ]

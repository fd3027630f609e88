"""Workspaces of kernels that follow known rules. Fake tensors do not show them, and no measurement is needed.

The rules of PyTorch's own kernels are exact. cuDNN chooses its algorithms; its rules describe the most common choice, on an NVIDIA H200 alone.
"""

import math

from ._operators import base

# PyTorch's kernels use 32-bit offsets: it halves larger tensors until they fit.
_LARGEST = (1 << 31) - 1
# cuDNN computes a weight's gradient in parts and sums them at the end: the most parts, and the most bytes of all. Fitted to a ResNet-50 on an NVIDIA H200.
_PARTS, _PARTS_BYTES = 16, 9 << 20


def own(gpu, function, arguments, result):
    """Bytes of the workspaces that one of PyTorch's own kernels has at once; None if there is no rule."""
    name = base(function)
    if name in ("sum", "mean"):
        return _reduction(gpu, arguments[0], arguments[1] if len(arguments) > 1 else None, result.dtype)
    if name in ("native_layer_norm", "native_layer_norm_backward"):
        # The kernel copies inputs that are not contiguous.
        return [_bytes(each) for each in arguments[: 2 if name.endswith("backward") else 1] if not each.is_contiguous()]
    if name == "_softmax_backward_data":
        # The product of gradient and result, and once more in order.
        return [_bytes(arguments[0])] * (1 if arguments[0].is_contiguous() else 2)
    if name == "_fft_c2r":
        # The kernel destroys its input, so it works on a copy.
        return [_bytes(arguments[0])]
    if name == "_euclidean_dist":
        # Both, with two columns more: the distances are one product.
        return [_bytes(each) // max(each.size(-1), 1) * (each.size(-1) + 2) for each in arguments[:2]]
    if name == "embedding_dense_backward" and not arguments[0].is_contiguous():
        # The sort's workspace follows no rule, and is measured.
        return [_bytes(arguments[0])]
    if name in ("index_put", "index_put_", "_index_put_impl_") and len(arguments) > 3 and arguments[3]:
        return _sorted(arguments[1], arguments[2])
    if name == "_safe_softmax":
        # The mask of scores: a byte for each.
        return [arguments[0].numel()]
    if name == "_ctc_loss_backward":
        # For sums from the end, as many as the forward pass kept from the beginning.
        return [_bytes(arguments[6])]
    if name == "_scaled_dot_product_efficient_attention_backward":
        return [_sums_of_queries(arguments)]
    return None


def cudnn(gpu, function, arguments, result):
    """Typical workspaces of a cuDNN operator: bytes of each, and how many of those after it begin while it lives; None for other operators."""
    name = base(function)
    if name == "convolution":
        tensor, weight = arguments[:2]
        return _with_copies((tensor,), tensor, weight, [_layouts(tensor, weight, arguments[3], arguments[8], result)])
    if name == "convolution_backward":
        gradient, tensor, weight = arguments[:3]
        sizes = _gradients(tensor, weight, arguments[4], arguments[9], gradient) + _bias(gpu, gradient, arguments[10])
        return _with_copies((gradient, tensor), tensor, weight, sizes)
    if name == "_scaled_dot_product_cudnn_attention_backward":
        return [(_sums_of_queries(arguments), 0)]
    return None


def _with_copies(images, tensor, weight, sizes):
    """Workspaces after each other, and before them copies of images that are not in the order of the others; those live on."""
    is_last = _is_last(tensor) or _is_last(weight)
    copied = [_bytes(each) for each in images if not (each.movedim(1, -1) if is_last else each).is_contiguous()]
    return [(size, len(copied) + len(sizes)) for size in copied] + [(size, 0) for size in sizes]


def _is_last(tensor):
    """Returns True if the channels of images are last in memory."""
    return tensor.dim() in (4, 5) and not tensor.is_contiguous() and tensor.movedim(1, -1).is_contiguous()


def _sorted(indexes, values):
    """Sums into elements that are named several times: the indices and their order are sorted, and values that are not in order are copied."""
    numbers = max((each.numel() for each in indexes if each is not None), default=0)
    return [5 * 8 * numbers, *([] if values.is_contiguous() else [_bytes(values)])]


def _sums_of_queries(arguments):
    """A 32-bit accumulator for the gradient of the queries."""
    return 4 * arguments[1].numel()


def _reduction(gpu, tensor, dims, dtype):
    """A copy of the tensor in the type of the sum, unless kernels convert it themselves (16 to 32 bits), and the partial sums that thread blocks combine in global memory."""
    is_wider = dtype != tensor.dtype and not (tensor.element_size() == 2 and tensor.is_floating_point() and dtype.itemsize == 4)
    size = dtype.itemsize if is_wider else tensor.element_size()
    copied = [tensor.numel() * size] if is_wider else []
    # 16-bit types are summed in 32 bits, all others in their own type.
    return [*copied, _combined(gpu, tensor, dims, size, max(size, 4) if dtype.is_floating_point else size)]


def _combined(gpu, tensor, dims, size, sum_size):
    """Column sums are split across thread blocks that combine in global memory, as PyTorch's `setReduceConfig` does."""
    dims = {at % tensor.dim() for at in dims} if tensor.dim() and isinstance(dims, (list, tuple)) else set()
    kept = [at for at in range(tensor.dim()) if at not in dims]
    columns = math.prod(tensor.shape[at] for at in kept)
    if not dims or not kept or not tensor.numel() or min(tensor.stride(at) for at in kept) > min(tensor.stride(at) for at in dims):
        return 0
    rows, fastest = tensor.numel() // columns, min(kept, key=tensor.stride)
    while rows * columns * size > _LARGEST and rows > 1:
        rows -= rows // 2
    vector = next(size for size in (4, 2, 1) if tensor.shape[fastest] % size == 0) if tensor.stride(fastest) == 1 else 1
    # For 128-bit complex numbers PyTorch uses half as many threads.
    wide, threads = columns // vector, (256 if sum_size == 16 else 512) // vector
    height = min(_power(rows), threads // min(_power(wide), 32))
    width = min(_power(wide), threads // height)
    values, grid = -(-rows // height), -(-wide // width)
    if values < 256:
        return 0
    if gpu.processors is None:
        gpu.lacks("partial sums of columns")
        return 0
    most = gpu.processors * (gpu.threads // (width * height))
    if grid > most:
        return 0
    blocks = max(min(-(-most // grid), -(-values // 16)), -(-values // 256))
    return sum_size * columns * blocks * width * vector if blocks > 1 else 0


def _power(number):
    """The largest power of two up to a number."""
    return 1 << number.bit_length() - 1


def _layouts(tensor, weight, stride, groups, other):
    """A convolution copies its tensors to the layout of its kernels; a 1x1 convolution with stride 1 is a matrix product and copies nothing."""
    is_point = all(size == 1 for size in weight.shape[2:])
    # Groups of one channel have kernels of their own.
    if groups > 1 and weight.size(1) == 1 or is_point and all(each == 1 for each in stride):
        return 0
    if _is_last(tensor):
        # Only the weight is copied: the images are in the kernel's layout already.
        return 0 if is_point else _bytes(weight)
    return _bytes(tensor) + _bytes(other) + (0 if is_point else _bytes(weight))


def _gradients(tensor, weight, stride, groups, other):
    """Workspaces for the gradients of the images and of the weight, which is computed in parts."""
    copied, size = _layouts(tensor, weight, stride, groups, other), _bytes(weight)
    if not copied or _is_last(tensor):
        return [copied]
    return [copied, _bytes(tensor) + _bytes(other) + size * min(_PARTS, _PARTS_BYTES // max(size, 1))]


def _bias(gpu, tensor, wanted):
    """PyTorch sums a bias's gradient itself, after cuDNN's."""
    return _reduction(gpu, tensor, [at for at in range(tensor.dim()) if at != 1], tensor.dtype) if wanted[2] else []


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()

"""Workspaces of kernels that follow known rules. Fake tensors do not show them, and no measurement is needed.

The rules of PyTorch's own kernels are exact. cuDNN chooses its algorithms; its rules describe the most common choice.
"""

import math

from ._operators import base

# Of an H200: multiprocessors, threads per multiprocessor, and PyTorch's cuBLAS workspaces for the forward and the backward pass.
_PROCESSORS, _THREADS = 132, 2048
# PyTorch's kernels use 32-bit offsets: it halves larger tensors until they fit.
_LARGEST = (1 << 31) - 1
CUBLAS_BYTES = (33 << 20, 32 << 20)
# cuDNN computes a weight's gradient in parts and sums them at the end: the most parts, and the most bytes of all. Fitted to a ResNet-50.
_PARTS, _PARTS_BYTES = 16, 9 << 20


def own(function, arguments, result):
    """Bytes of the workspaces that one of PyTorch's own kernels has at once; None if there is no rule."""
    name = base(function)
    if name in ("sum", "mean"):
        return _reduction(arguments[0], arguments[1] if len(arguments) > 1 else None, result.dtype)
    if name in ("native_layer_norm", "native_layer_norm_backward"):
        # It copies inputs that are not contiguous.
        return [_bytes(each) for each in arguments[: 2 if name.endswith("backward") else 1] if not each.is_contiguous()]
    if name == "_softmax_backward_data":
        # The product of gradient and result.
        return [_bytes(arguments[0])]
    if name == "_safe_softmax":
        # Which scores are masked, a byte for each.
        return [arguments[0].numel()]
    if name == "_ctc_loss_backward":
        # For sums from the end, as many as the forward pass kept from the beginning.
        return [_bytes(arguments[6])]
    if name == "_scaled_dot_product_efficient_attention_backward":
        return [_sums_of_queries(arguments)]
    return None


def cudnn(function, arguments, result):
    """Typical bytes of the workspaces that a cuDNN operator has after each other; None for other operators."""
    name = base(function)
    if name == "convolution":
        return [_layouts(arguments[0], arguments[1], arguments[3], arguments[8], result)]
    if name == "convolution_backward":
        return _gradients(arguments[1], arguments[2], arguments[4], arguments[9], arguments[0]) + _bias(arguments[0], arguments[10])
    if name == "_scaled_dot_product_cudnn_attention_backward":
        return [_sums_of_queries(arguments)]
    return None


def _sums_of_queries(arguments):
    """A 32-bit accumulator for the gradient of the queries."""
    return 4 * arguments[1].numel()


def _reduction(tensor, dims, dtype):
    """A copy of the tensor in the type of the sum, unless kernels convert it themselves (16 to 32 bits), and the partial sums that thread blocks combine in global memory."""
    is_wider = dtype != tensor.dtype and not (tensor.element_size() == 2 and tensor.is_floating_point() and dtype.itemsize == 4)
    size = dtype.itemsize if is_wider else tensor.element_size()
    copied = [tensor.numel() * size] if is_wider else []
    # 16-bit types are summed in 32 bits, all others in their own type.
    return [*copied, _combined(tensor, dims, size, max(size, 4) if dtype.is_floating_point else size)]


def _combined(tensor, dims, size, sum_size):
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
    values, grid, most = -(-rows // height), -(-wide // width), _PROCESSORS * (_THREADS // (width * height))
    if values < 256 or grid > most:
        return 0
    blocks = max(min(-(-most // grid), -(-values // 16)), -(-values // 256))
    return sum_size * columns * blocks * width * vector if blocks > 1 else 0


def _power(number):
    """The largest power of two up to a number."""
    return 1 << number.bit_length() - 1


def _layouts(tensor, weight, stride, groups, other):
    """A convolution copies its tensors to the layout of its kernels; a 1x1 convolution with stride 1 is a matrix product and copies nothing."""
    is_point = all(size == 1 for size in weight.shape[2:])
    if groups > 1 or is_point and all(each == 1 for each in stride):
        return 0
    if not tensor.is_contiguous():
        # Only the weight is copied: the images are in the kernel's layout already.
        return 0 if is_point else _bytes(weight)
    return _bytes(tensor) + _bytes(other) + (0 if is_point else _bytes(weight))


def _gradients(tensor, weight, stride, groups, other):
    """Workspaces for the gradients of the images and of the weight, which is computed in parts."""
    copied, size = _layouts(tensor, weight, stride, groups, other), _bytes(weight)
    if not copied or not tensor.is_contiguous():
        return [copied]
    return [copied, _bytes(tensor) + _bytes(other) + size * min(_PARTS, _PARTS_BYTES // max(size, 1))]


def _bias(tensor, wanted):
    """PyTorch sums a bias's gradient itself, after cuDNN's."""
    return _reduction(tensor, [at for at in range(tensor.dim()) if at != 1], tensor.dtype) if wanted[2] else []


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()

"""Autocast as on a GPU, for fake tensors: what PyTorch does in C++ asks the device, and is told another one."""

import contextlib
import warnings

# Autocast on a GPU (PyTorch's list in "Automatic Mixed Precision", and its C++ registrations).
_IN_HALF = """linear matmul mm mv bmm addmm addmv addr addbmm baddbmm chain_matmul linalg_multi_dot linalg_vecdot prelu conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution _convolution _convolution.deprecated cudnn_convolution
    cudnn_convolution_transpose einsum scaled_dot_product_attention _scaled_dot_product_flash_attention _thnn_fused_lstm_cell _thnn_fused_gru_cell
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell""".split()
_IN_FLOAT = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus
    layer_norm native_layer_norm group_norm norm.Scalar norm.ScalarOpt_dim norm.names_ScalarOpt_dim frobenius_norm.dim nuclear_norm nuclear_norm.dim
    linalg_vector_norm linalg_matrix_norm linalg_matrix_norm.str_ord cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa""".split()
_TO_FLOAT = "softmax.int log_softmax.int cumprod cumsum prod prod.dim_int sum sum.dim_IntList".split()
_IN_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()


@contextlib.contextmanager
def as_on_a_gpu(torch):
    """Autocast's kernels of a GPU in Python: the original ones ask the device, and are told another one."""
    from torch.utils import _pytree as pytree

    key = torch._C.DispatchKey.AutocastCUDA
    cache = {}

    def is_cast(value):
        return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64 and value.device.type == "cuda"

    def cast(value, dtype):
        if isinstance(value, (list, tuple)):
            return type(value)(cast(each, dtype) for each in value)
        if not is_cast(value) or value.dtype == dtype:
            return value
        # As the original: leaves are cast once while the outermost context lasts.
        is_kept = dtype != torch.float32 and value.dtype == torch.float32 and value.requires_grad and value.is_leaf and torch.is_autocast_cache_enabled()
        if not is_kept:
            return value.to(dtype)
        if id(value) not in cache:
            cache[id(value)] = (value, value.to(dtype))
        return cache[id(value)][1]

    def in_type(operator, arguments, options, dtype):
        # The last argument is cast first, as the compiler of PyTorch's wheels orders it: a plan's operators are found by their order.
        options = {name: cast(options[name], dtype) for name in reversed(options)}
        arguments = [cast(value, dtype) for value in reversed(arguments)]
        return operator(*reversed(arguments), **options)

    def in_widest(operator, arguments, options):
        given = [each for each in pytree.tree_leaves((arguments, options)) if is_cast(each)]
        is_wide = any(each.dtype == torch.float32 for each in given)
        return in_type(operator, arguments, options, torch.float32 if is_wide else torch.get_autocast_dtype("cuda"))

    def to_float(operator, arguments, options):
        # These are asked for another result, and read what they are given.
        names = [argument.name for argument in operator._schema.arguments]
        options = {**dict(zip(names[1:], arguments[1:])), **options}
        if arguments[0].dtype in (torch.float16, torch.bfloat16) and options.get("dtype") is None:
            options["dtype"] = torch.float32
        return operator(arguments[0], **options)

    calls = (
        (_IN_HALF, lambda *call: in_type(*call, torch.get_autocast_dtype("cuda"))),
        (_IN_FLOAT, lambda *call: in_type(*call, torch.float32)),
        (_TO_FLOAT, to_float),
        (_IN_WIDEST, in_widest),
    )

    def kernel(operator, run):
        def call(*arguments, **options):
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return run(operator, arguments, options)

        return call

    leave = torch.amp.autocast_mode.autocast.__exit__

    def leaves(self, *rest):
        result = leave(self, *rest)
        if not torch.is_autocast_enabled("cuda"):
            cache.clear()
        return result

    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            # The warning is that these kernels replace others for a while, as they should.
            warnings.simplefilter("ignore")
            for names, run in calls:
                for name in names:
                    base, _, overload = name.partition(".")
                    packet = getattr(torch.ops.aten, base, None)
                    if packet is not None and (overload or "default") in packet.overloads():
                        operator = getattr(packet, overload or "default")
                        library.impl(name, kernel(operator, run), "AutocastCUDA", allow_override=True)
        torch.amp.autocast_mode.autocast.__exit__ = leaves
        yield
    finally:
        torch.amp.autocast_mode.autocast.__exit__ = leave
        library._destroy()

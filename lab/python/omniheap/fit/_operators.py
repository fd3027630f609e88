"""Facts about operators: which can run again with the same result, and how those of a plan are found again in a run.

An operator of a plan is known by the call of a module in which it ran, its family, the parameters that it reads and its number
among such. These are the same on fake tensors and on a GPU, where an operator may have another kernel, and for smaller batches. What a
run has under another name is found by type and shape of its result.
"""

import collections
import functools

VIEW, RUNS_AGAIN, RANDOM, IN_PLACE, OPAQUE = "view", "runs again", "random", "in place", "opaque"

# These share bytes with what they read, and do not say so.
_VIEWS = ("_unsafe_view", "lift_fresh")
# Operators that may run again, beside those that PyTorch tags as pointwise: the same arguments give the same bits, and nothing else changes. Sums whose
# order depends on the moment (scatter, index_add, cumsum) and what picks among equals (median, topk) are not here.
_AGAIN = frozenset("""
    mm addmm bmm baddbmm addbmm mv addmv addr dot vdot _addmm_activation _grouped_mm _scaled_mm _scaled_grouped_mm linear _trilinear
    _to_copy copy contiguous fill zero cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d tril triu flip roll repeat pixel_shuffle pixel_unshuffle native_channel_shuffle im2col col2im select_scatter slice_scatter
    embedding _embedding_bag _embedding_bag_forward_only index index_select gather take
    glu hardswish leaky_relu log_sigmoid_forward _prelu_kernel prelu _conj_physical complex polar
    sum mean prod amax amin aminmax max min any all var std var_mean std_mean logsumexp norm linalg_vector_norm argmax argmin
    mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits nll_loss_forward
    _softmax _log_softmax _safe_softmax _masked_softmax
    native_layer_norm native_group_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _fused_rms_norm _weight_norm_interface
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
    _scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable _flash_attention_forward _efficient_attention_forward
    _cudnn_attention_forward _thnn_fused_lstm_cell _thnn_fused_gru_cell
    native_dropout _fused_dropout bernoulli poisson normal rand randn randint
    convolution _convolution convolution_overrideable cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu cudnn_convolution_transpose
    mkldnn_convolution miopen_convolution miopen_convolution_relu miopen_convolution_add_relu miopen_convolution_transpose miopen_depthwise_convolution
    conv_depthwise3d _conv_depthwise2d _slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d
    slow_conv_transpose3d
    max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    grid_sampler_2d grid_sampler_3d _fft_r2c _fft_c2r _fft_c2c
""".split())
_FAMILIES = (("_batch_norm", "batch_norm"), ("_scaled_dot_product", "scaled_dot_product_attention"), ("_fused_rms_norm", "rms_norm"))


def base(function):
    """An operator's name without namespace and overload."""
    # Operators that take functions have no schema.
    return function._schema.name.rpartition("::")[2] if hasattr(function, "_schema") else str(function)


@functools.lru_cache(maxsize=None)
def family(function):
    """The operator without its overload; kernels of one operator are one family."""
    name = base(function)
    for part, known in _FAMILIES:
        if part in name:
            return known
    return name


@functools.lru_cache(maxsize=None)
def kind(function):
    """Returns the kind of an operator: how it can run again, if it can."""
    import torch

    if not isinstance(function, torch._ops.OpOverload):
        return OPAQUE
    schema, name = function._schema, base(function)
    if not written(function) and (name in _VIEWS or any(value.alias_info is not None for value in schema.returns)):
        return VIEW
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    if written(function):
        is_plain = written(function) == (0,) and is_in_place(function) and name.endswith("_") and not is_random
        return IN_PLACE if is_plain and _may_run_again(schema, name[:-1]) else OPAQUE
    return (RANDOM if is_random else RUNS_AGAIN) if _may_run_again(schema, name) else OPAQUE


def _may_run_again(schema, name):
    """Returns True if an operator, named as the one that writes to nothing, is known to compute the same once more."""
    import torch

    packet = getattr(torch.ops.aten, name, None)
    is_pointwise = packet is not None and any(torch.Tag.pointwise in getattr(packet, each).tags for each in packet.overloads())
    return schema.name.startswith("aten::") and (name in _AGAIN or is_pointwise)


@functools.lru_cache(maxsize=None)
def written(function):
    """The numbers of the arguments that an operator writes to."""
    schema = getattr(function, "_schema", None)
    arguments = enumerate(schema.arguments) if schema is not None else ()
    return tuple(number for number, argument in arguments if argument.alias_info is not None and argument.alias_info.is_write)


@functools.lru_cache(maxsize=None)
def is_in_place(function):
    """Returns True if an operator returns what it has written to."""
    schema = getattr(function, "_schema", None)
    return schema is not None and any(value.alias_info is not None and value.alias_info.is_write for value in schema.returns)


def targets(function, arguments, options):
    """The tensors that an operator writes to, those in lists among them."""
    import torch

    found = []
    for number in written(function):
        name = function._schema.arguments[number].name
        given = arguments[number] if number < len(arguments) else options.get(name)
        found += [each for each in (given if isinstance(given, (list, tuple)) else (given,)) if isinstance(each, torch.Tensor)]
    return found


def can_run_again(function, arguments):
    """Returns True if this call can be made once more, for the same result."""
    found = kind(function)
    return found in (RUNS_AGAIN, RANDOM) or found == IN_PLACE and _is_whole(*arguments)


def _is_whole(first, *others):
    """Returns True if a tensor is all of its storage, and no other argument reads from that."""
    import torch

    if first.layout is not torch.strided:
        return False
    storage = first.untyped_storage()
    read = (each for each in others if isinstance(each, torch.Tensor) and each.layout is torch.strided)
    return first.numel() * first.element_size() == storage.nbytes() and all(each.untyped_storage()._cdata != storage._cdata for each in read)


@functools.lru_cache(maxsize=None)
def _rate(function):
    """Returns the position of the argument that is a rate of dropout."""
    return next((number for number, argument in enumerate(function._schema.arguments) if argument.name == "dropout_p"), None)


def draws(function, arguments, options):
    """Returns True if a call draws random numbers: attention does only with dropout."""
    if kind(function) != RANDOM:
        return False
    number = _rate(function)
    if number is None:
        return True
    return bool(arguments[number] if number < len(arguments) else options.get("dropout_p", 0.0))


def settled(function, arguments):
    """The arguments as a second call takes them: running statistics of a batch norm are left out, which were updated the first time."""
    if family(function) == "batch_norm" and len(arguments) > 5 and arguments[5]:
        # The statistics of this batch give the result.
        return *arguments[:3], None, None, *arguments[5:]
    return arguments


def apart(function, arguments):
    """The arguments of a call that writes to nothing which exists: an operator in place gets a copy to write to."""
    return (_copied(arguments[0]), *arguments[1:]) if kind(function) == IN_PLACE else arguments


def _copied(tensor):
    """The tensor over a copy of its whole storage."""
    import torch

    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).clone()
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(whole.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


class Calls:
    """Names calls of modules while a model runs. `root` is the module that was called by nobody."""

    def __init__(self, root):
        self._names = {module: name for name, module in root.named_modules()}
        self._held = {}
        self._counts = collections.Counter()
        self._stack = []

    def look_for_tensors(self, root):
        """Learns the parameters and buffers, which `reads` names."""
        held = (*root.named_parameters(), *root.named_buffers())
        self._held = {getattr(tensor, "_local_tensor", tensor).untyped_storage()._cdata: name for name, tensor in reversed(held)}

    def enter(self, module):
        """A module begins; modules that are not below the root are parts of the one that calls them."""
        name = self._names.get(module)
        if name is None:
            name = f"{self._stack[-1]}/{type(module).__name__}" if self._stack else type(module).__name__
        self._counts[name] += 1
        number = self._counts[name]
        self._stack.append(name if number == 1 else f"{name}#{number}")

    def leave(self):
        self._stack.pop()

    def current(self):
        """The innermost call, by a name of its own."""
        return self._stack[-1]

    def holds(self, tensor):
        """Returns True if a tensor is a parameter or a buffer."""
        return tensor.untyped_storage()._cdata in self._held

    def reads(self, arguments):
        """The parameters and buffers among an operator's arguments, by name."""
        import torch

        flat = (part for each in arguments for part in (each if isinstance(each, (list, tuple)) else (each,)))
        names = (self._held.get(each.untyped_storage()._cdata) for each in flat if isinstance(each, torch.Tensor) and each.layout is torch.strided)
        return tuple(name for name in names if name is not None)


class Planned:
    """An operator of a plan.

    call, family, reads: what it is found by. types: those of each result, with shapes, None for what is no tensor of the device.
    saved: bytes of the results that autograd saves, by number. runs_again: whether it is noted, to run once more.
    outputs: what is done with results, by number; those that are not named stay.
    """

    __slots__ = ("call", "name", "family", "reads", "types", "saved", "runs_again", "outputs")

    def __init__(self, call, name, family, reads, types, saved, runs_again=False, outputs=None):
        self.call, self.name, self.family, self.reads, self.types, self.saved = call, name, family, tuple(reads), types, saved
        self.runs_again, self.outputs = runs_again, outputs if outputs is not None else {}

    def listed(self):
        """As JSON has it."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_list(cls, listed):
        call, name, family, reads, types, saved, runs_again, outputs = listed
        by_number = lambda given: {int(number): value for number, value in given.items()}
        return cls(call, name, family, reads, types, by_number(saved), runs_again, by_number(outputs))


class Matches:
    """Finds the operators of a plan while a model runs."""

    def __init__(self, operators):
        self._waiting, self._left = {}, {}
        for each in operators:
            self._waiting.setdefault((each.call, each.family, each.reads), collections.deque()).append(each)
            if each.runs_again or each.outputs or each.saved:
                self._left.setdefault(each.call, {})[each] = None

    def find(self, call, family, reads):
        """The next operator of that family that reads these parameters; None if the plan has no other one."""
        waiting = self._waiting.get((call, family, reads))
        if not waiting:
            return None
        found = waiting.popleft()
        self._left.get(call, {}).pop(found, None)
        return found

    def drop(self, planned):
        """An operator was found otherwise."""
        waiting = self._waiting[planned.call, planned.family, planned.reads]
        if planned in waiting:
            waiting.remove(planned)
        self._left.get(planned.call, {}).pop(planned, None)

    def may_find_like(self, call):
        """Returns True if there is something left in the plan for this call that `find_like` could find."""
        return bool(self._left.get(call))

    def find_like(self, call, family, reads, type, can_run_again):
        """An operator of the plan that has another name, or reads other parameters, and whose first result has this type and shape.

        Should the operator itself run later, it is found all the same: more is dropped than was planned then, and not less.
        """
        left = self._left.get(call, {})
        for each in left:
            is_alike = each.types[:1] == [type] and (each.family == family or each.reads == reads)
            if is_alike and (can_run_again or not each.runs_again):
                del left[each]
                return each
        return None

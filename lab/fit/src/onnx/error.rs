//! Reason why a model was refused, and what to do next.

/// A model that was refused. Nothing of it is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no ONNX model, or only its beginning.
    #[error("byte {byte}: not an ONNX model, or cut off; copy or export it again")]
    Malformed {
        /// Position at which the reader stopped.
        byte: u64,
    },
    /// There is no graph in it.
    #[error("no graph is in it, so it is not an ONNX model; export it again")]
    NoGraph,
    /// Too many nodes, tensors or graphs inside graphs.
    #[error("more than {limit} {what}; plan a part of the model")]
    OverLimit {
        /// Name of the things that are too many.
        what: &'static str,
        /// Number that is read at most.
        limit: usize,
    },
    /// A tensor has no shape, or a dimension of it has neither size nor name.
    #[error(
        "the shape of tensor {tensor:?} ({origin}) is not in the file; run onnx.shape_inference.infer_shapes(model, data_prop=True) and save what it returns"
    )]
    NoShape {
        /// The tensor.
        tensor: String,
        /// The node that makes it, or that it is an input.
        origin: String,
    },
    /// A dimension has a name, and no size was given for it.
    #[error(
        "tensor {tensor:?} has a dimension {dim:?}; say how large it is, such as --dim {dim}=8"
    )]
    NoSize {
        /// The tensor.
        tensor: String,
        /// Name of the dimension.
        dim: String,
    },
    /// A size was given for a dimension that no tensor has.
    #[error(
        "no dimension is called {dim:?}, the model has {known}; correct the --dim, or leave it out"
    )]
    UnknownDim {
        /// The name that was given.
        dim: String,
        /// Names that there are.
        known: String,
    },
    /// A tensor's bytes are not known, or do not fit 64 bits.
    #[error("the bytes of tensor {tensor:?} are not known: it {why}; leave it out of the model")]
    NoBytes {
        /// The tensor.
        tensor: String,
        /// Description of the tensor's type.
        why: &'static str,
    },
    /// A node reads what was not written before it.
    #[error(
        "{node} reads {tensor:?} before anything writes it: the nodes are not in order, form a cycle, or lack one; see what onnx.checker.check_model says"
    )]
    Unwritten {
        /// The tensor.
        tensor: String,
        /// The node.
        node: String,
    },
    /// Two nodes write one tensor, or two tensors have one name.
    #[error(
        "{tensor:?} is written twice; names are unique in ONNX: see what onnx.checker.check_model says"
    )]
    WrittenTwice {
        /// The name.
        tensor: String,
    },
    /// A node calls a function of the model, inside of which tensors have no shapes.
    #[error(
        "{node} calls a function of the model, whose tensors have no shapes; run onnx.inliner.inline_local_functions, and then onnx.shape_inference.infer_shapes"
    )]
    Function {
        /// The node.
        node: String,
    },
}

//! Errors of refused files and failed loads: the file, the place in it, the reason, and what to do next.

use omniheap_core::AllocateError;
use std::io;
use std::path::{Path, PathBuf};

/// A weights file that was refused, or a load that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", lead(.path, *.offset))]
pub struct Error {
    path: PathBuf,
    offset: Option<u64>,
    kind: ErrorKind,
}

/// Returns the beginning of a message: the file, and the byte in it.
fn lead(path: &Path, offset: Option<u64>) -> String {
    match (path.as_os_str().is_empty(), offset) {
        (true, None) => String::new(),
        (true, Some(offset)) => format!("byte {offset}: "),
        (false, None) => format!("{}: ", path.display()),
        (false, Some(offset)) => format!("{}, byte {offset}: ", path.display()),
    }
}

impl Error {
    pub(crate) fn new(path: &Path, fault: impl Into<Fault>) -> Self {
        let Fault { offset, kind } = fault.into();
        Self { path: path.into(), offset, kind }
    }

    /// Returns the file; empty where no file is to blame.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the byte of the file where it failed.
    #[must_use]
    pub const fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// Returns the kind of error.
    #[must_use]
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

/// An error whose file is not known yet.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) offset: Option<u64>,
    pub(crate) kind: ErrorKind,
}

impl Fault {
    pub(crate) fn at(offset: u64, kind: ErrorKind) -> Self {
        Self { offset: Some(offset), kind }
    }
}

impl From<ErrorKind> for Fault {
    fn from(kind: ErrorKind) -> Self {
        Self { offset: None, kind }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        ErrorKind::Io(error).into()
    }
}

/// Kinds of errors, each with advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a call.
    #[error("cannot read: {0}; check the path, its permissions and the disk")]
    Io(#[source] io::Error),
    /// No path was given.
    #[error("no weights file was named; name at least one")]
    NoFiles,
    /// The path is a directory, FIFO, socket or device.
    #[error("not a regular file; name a .safetensors, .index.json, .gguf or PyTorch zip file")]
    NotAFile,
    /// The first bytes belong to no format that is read here.
    #[error(
        "not a weights file: expected safetensors, GGUF, a PyTorch zip file or an index.json; convert old PyTorch files by loading and saving them again"
    )]
    UnknownFormat,
    /// The file is shorter than its header says.
    #[error("the file has {has} bytes, but needs {needs}: it was cut off; download it again")]
    Truncated {
        /// Bytes that the header asks for.
        needs: u64,
        /// Bytes in the file.
        has: u64,
    },
    /// Bytes behind the last tensor.
    #[error(
        "{0} bytes follow the last tensor: the header does not belong to this file; download it again"
    )]
    Trailing(u64),
    /// The header is longer than any real one.
    #[error("the header has {length} bytes, more than {limit}; do not trust this file")]
    HeaderTooLong {
        /// Bytes of the header.
        length: u64,
        /// Most bytes that are read.
        limit: u64,
    },
    /// The header makes no sense.
    #[error("the header is damaged: {0}; download the file again")]
    Header(String),
    /// Names must be UTF-8.
    #[error("a name is not UTF-8; write the file again with plain names")]
    NotUtf8,
    /// A name has a zero byte, where C programs end it.
    #[error(
        "the name of tensor {0:?} has a zero byte; do not trust this file, or write it again with plain names"
    )]
    ZeroByte(String),
    /// Two tensors have one name.
    #[error("tensor {0:?} is there twice; names must be unique")]
    DuplicateName(String),
    /// An element type that is not known here.
    #[error(
        "tensor {name:?} has element type {dtype}, which is unknown here; update omniheap, or save another type"
    )]
    UnknownDtype {
        /// Name of the tensor.
        name: String,
        /// Type as the file says it.
        dtype: String,
    },
    /// The shape's bytes do not fit 64 bits, or are no whole bytes or blocks.
    #[error(
        "tensor {name:?}: {shape:?} elements of {dtype} are no whole number of bytes or blocks"
    )]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Its element type.
        dtype: &'static str,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// The shape needs other bytes than the file has for it.
    #[error("tensor {name:?} needs {needs} bytes by its shape, but has {has}")]
    SizeMismatch {
        /// Name of the tensor.
        name: String,
        /// Bytes by shape.
        needs: u64,
        /// Bytes by offsets.
        has: u64,
    },
    /// The end of a tensor lies before its start.
    #[error("tensor {0:?} ends before it starts; the header is damaged")]
    Backwards(String),
    /// Two tensors share bytes.
    #[error("tensor {0:?} shares bytes with the tensor before it; the header is damaged")]
    Overlap(String),
    /// Bytes that no tensor has.
    #[error("{bytes} bytes before tensor {name:?} belong to no tensor; the header is damaged")]
    Hole {
        /// Tensor behind the hole.
        name: String,
        /// Bytes of the hole.
        bytes: u64,
    },
    /// GGUF written on a machine of the other byte order.
    #[error("the file has the other byte order; convert it with gguf_convert_endian.py")]
    Endianness,
    /// A version of the format that is not read here.
    #[error("GGUF version {0} is not read here; versions 2 and 3 are, so convert the file again")]
    Version(u32),
    /// `general.alignment` is zero or not a power of two.
    #[error("alignment {0} is not a power of two; the header is damaged")]
    Alignment(u64),
    /// More of something than a real file has.
    #[error("more than {limit} {what}; do not trust this file")]
    OverLimit {
        /// Name of the things that are too many.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A zip entry is compressed.
    #[error("zip entry {0:?} is compressed; save the file with torch.save, which stores")]
    Compressed(String),
    /// A zip entry is encrypted.
    #[error("zip entry {0:?} is encrypted; decrypt the file first")]
    Encrypted(String),
    /// A zip entry that the pickle names is missing.
    #[error("zip entry {0:?} is missing; download the file again")]
    MissingEntry(String),
    /// The pickle names a class or function that loading weights does not need.
    #[error(
        "the pickle wants to run {}; weights never need that: do not trust this file, or save its state_dict() as safetensors",
        .0.as_deref().unwrap_or("code")
    )]
    Forbidden(Option<String>),
    /// A tensor whose elements are not one behind the other.
    #[error("tensor {0:?} is a strided view; save a contiguous copy of it")]
    NotContiguous(String),
    /// A tensor whose elements are to be conjugated or negated when it is loaded.
    #[error(
        "tensor {0:?} is to be conjugated or negated by who loads it; save tensor.resolve_conj().resolve_neg() instead"
    )]
    Unresolved(String),
    /// A sparse, quantised or nested tensor of PyTorch, with the function that makes it.
    #[error("the file has a tensor that is no run of elements ({0}); save a dense copy of it")]
    Layout(String),
    /// The index names a file that is not there.
    #[error("the index names {0:?}, which is missing; download all shards")]
    MissingShard(String),
    /// The index names a file outside of its folder.
    #[error("the index names {0:?}, which is outside of its folder; do not trust this index")]
    UnsafePath(String),
    /// The index names a tensor that its shard does not have.
    #[error(
        "the index says that tensor {0:?} is here, but it is not; download index and shards again"
    )]
    MissingTensor(String),
    /// The file was changed since it was opened.
    #[error("the file changed while it was loaded; nothing was kept: load it again")]
    Changed,
    /// No tensor has this name.
    #[error("there is no tensor {0:?} in these files; list them with `omniheap weights`")]
    NoSuchTensor(String),
    /// A destination is smaller than its tensor.
    #[error("the destination of tensor {name:?} has {has} bytes, but the tensor has {needs}")]
    DestinationSize {
        /// Name of the tensor.
        name: String,
        /// Bytes of the tensor.
        needs: u64,
        /// Bytes of the destination.
        has: u64,
    },
    /// A destination the device cannot copy to.
    #[error("the destination of tensor {name:?} is refused: {error}")]
    Destination {
        /// Name of the tensor.
        name: String,
        /// The device's reason.
        #[source]
        error: omniheap_core::Error,
    },
    /// The device refused a call.
    #[error("the device failed: {0}")]
    Device(#[source] omniheap_core::Error),
    /// Memory for the tensors could not be allocated; everything is free again.
    #[error("cannot allocate the tensors: {0}")]
    Allocate(#[source] Box<AllocateError>),
    /// The progress callback stopped the load.
    #[error("the load was cancelled; nothing was kept")]
    Cancelled,
}

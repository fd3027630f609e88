//! One tensor of a file.

use crate::Dtype;
use crate::error::ErrorKind;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, Range};
use std::sync::Arc;

/// A tensor's name: a slice of the shared header text, so that tens of thousands of names need no allocation each.
#[derive(Clone)]
pub struct Name {
    text: Arc<String>,
    part: Range<usize>,
}

impl Name {
    /// Returns `name` as a slice of `text`, or with a text of its own if it is not a slice of it.
    pub(crate) fn within(text: &Arc<String>, name: &str) -> Self {
        let start = name.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
        match start.checked_add(name.len()) {
            Some(end) if end <= text.len() => Self { text: Arc::clone(text), part: start..end },
            _ => name.into(),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text[self.part.clone()]
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self
    }
}

impl<T: Into<String>> From<T> for Name {
    fn from(name: T) -> Self {
        let text = Arc::new(name.into());
        Self { part: 0..text.len(), text }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// A tensor's name, type, shape and place in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name, unique among the files that were opened together.
    pub name: Name,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Shape, slowest dimension first. Tensors of one shape may share it.
    pub shape: Arc<[u64]>,
    /// Number of its file, in the order of [`WeightsFile::files`](crate::WeightsFile::files).
    pub file: usize,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

impl Tensor {
    /// Returns the number of elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Returns the first byte behind the tensor in its file.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.size
    }
}

/// Returns the bytes of a shape; refuses what overflows, and what is no whole number of blocks.
pub(crate) fn bytes_of(name: &str, dtype: Dtype, shape: &[u64]) -> Result<u64, ErrorKind> {
    let refused =
        || ErrorKind::Shape { name: name.into(), dtype: dtype.name(), shape: shape.into() };
    // Every partial product is checked, so that a zero further on hides no overflow.
    let elements = shape.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent));
    elements.and_then(|elements| dtype.bytes(elements)).ok_or_else(refused)
}

//! One tensor of a file.

use crate::Dtype;
use crate::error::ErrorKind;

/// A tensor's name, type, shape and place in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name, unique among the files that were opened together.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Shape, slowest dimension first.
    pub shape: Vec<u64>,
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

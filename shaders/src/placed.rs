//! Kernels with a table that may lie in more than one place.
use omniheap_core::Kernel;

/// A kernel with a table, once for each place where the table may lie.
///
/// The table is the first argument in all of them, and has [`bytes`](Self::bytes) bytes.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Rows of the table, 16 bytes each.
    pub rows: u32,
    /// Reads the table through the constant cache.
    pub constant: Kernel,
    /// Reads the table from device memory.
    pub device: Kernel,
    /// Copies the table to shared memory first, once for every group.
    pub shared: Kernel,
}

impl Placed {
    /// Bytes of the table.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.rows as u64 * 16
    }
}

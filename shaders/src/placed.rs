//! Kernels with a table that may lie in more than one place.
use omniheap_placement::Region;
use omniheap_seam::Kernel;

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
    /// Copies the table to shared memory first, once for every group; only for tables that are not too large for that.
    pub shared: Option<Kernel>,
}

impl Placed {
    /// Returns the variant for a table that the policy placed in `region`.
    #[must_use]
    pub const fn in_region(&self, region: Region) -> &Kernel {
        match (region, &self.shared) {
            (Region::Constant, _) => &self.constant,
            (Region::Shared, Some(shared)) => shared,
            _ => &self.device,
        }
    }

    /// Returns the common name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.device.name
    }

    /// Returns the bytes of the table.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.rows as u64 * 16
    }
}

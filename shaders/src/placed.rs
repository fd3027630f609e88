//! Kernels with a table that may lie in more than one place.
use omniheap_placement::{Dependence, Pattern, Region, Request, Work, Writer};
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
    pub const fn name(&self) -> &'static str {
        self.device.name
    }

    /// Returns the bytes of the table.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.rows as u64 * 16
    }
}

/// A kernel that does nothing but look up a table, and how it does.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// The kernel, with its table in every place.
    pub table: Placed,
    /// Access pattern.
    pub pattern: Pattern,
    /// Arithmetic per element.
    pub work: Work,
    /// Dependence between reads.
    pub dependence: Dependence,
    /// Bytes of the table that one item reads.
    pub reads: u32,
    /// Bytes of the table that a group touches with one item for each thread; zero for all of them.
    pub touches: u32,
}

impl Lookup {
    /// Returns the request of its table, for workgroups of 256 threads with `load` items each.
    #[must_use]
    pub fn request(&self, load: u32) -> Request<'static> {
        let reuse = u64::from(self.reads) * 256 * u64::from(load) / self.table.bytes();
        let request = Request::new(self.table.bytes()).writer(Writer::HostOnce);
        let request = request.pattern(self.pattern).name(self.table.name());
        let request = request.work(self.work).dependence(self.dependence);
        let request = request.reuse(u32::try_from(reuse).unwrap_or(u32::MAX));
        match u64::from(self.touches) * u64::from(load) {
            0 => request,
            touched => request.touches(touched.min(self.table.bytes())),
        }
    }
}

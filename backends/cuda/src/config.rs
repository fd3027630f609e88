//! Options for opening a device.
use omniheap_stream::BlockSource;

/// Options for opening a device.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub(crate) block_source: BlockSource,
    pub(crate) bank_kernels: Option<String>,
    pub(crate) is_light: bool,
}

impl Config {
    /// Returns the defaults: plain blocks, and a constant bank that only our own kernel reads.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses what gives blocks of the device heap.
    #[must_use]
    pub fn block_source(self, block_source: BlockSource) -> Self {
        Self { block_source, ..self }
    }

    /// Leaves out what loads code, may wait for work of the context, or asks another library: for a context whose program does not know
    /// of this one.
    ///
    /// There is no managed memory, device code is loaded with the first batch of moves, and limits are read without NVML.
    #[must_use]
    pub fn light(self) -> Self {
        Self { is_light: true, ..self }
    }

    /// Adds CUDA C++ source to the constant bank's module.
    ///
    /// A `__constant__` symbol is visible inside its module only, so kernels that read constant blocks are compiled into
    /// it; they see the bank as [`BANK_SYMBOL`](crate::BANK_SYMBOL). Needs the run-time compiler.
    #[must_use]
    pub fn bank_kernels(self, source: impl Into<String>) -> Self {
        Self { bank_kernels: Some(source.into()), ..self }
    }
}

//! Options for opening a device.
use crate::driver::Coherence;
use omniheap_stream::BlockSource;

/// Options for opening a device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub(crate) block_source: BlockSource,
    pub(crate) device_coherence: Coherence,
    pub(crate) pinned_coherence: Coherence,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// Returns the defaults: plain blocks, coarse-grained on the device and fine-grained in pinned memory, as HIP has them.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            block_source: BlockSource::Plain,
            device_coherence: Coherence::Coarse,
            pinned_coherence: Coherence::Fine,
        }
    }

    /// Chooses what gives blocks of the device heap.
    #[must_use]
    pub const fn block_source(self, block_source: BlockSource) -> Self {
        Self { block_source, ..self }
    }

    /// Chooses the coherence of the device heap's blocks, pages and the asynchronous pool aside.
    ///
    /// Not every device has fine-grained memory; where it has none, the runtime decides what an allocation gets.
    #[must_use]
    pub const fn device_coherence(self, device_coherence: Coherence) -> Self {
        Self { device_coherence, ..self }
    }

    /// Chooses the coherence of pinned memory.
    #[must_use]
    pub const fn pinned_coherence(self, pinned_coherence: Coherence) -> Self {
        Self { pinned_coherence, ..self }
    }
}

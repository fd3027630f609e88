//! Backends as the command line names them.
use clap::ValueEnum;
use omniheap::BackendKind;

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Host memory.
    Host,
    /// CUDA.
    Cuda,
    /// HIP.
    Hip,
    /// Vulkan.
    Vulkan,
    /// wgpu.
    Wgpu,
}

impl Backend {
    /// Returns the backend as the library names it.
    pub const fn kind(self) -> BackendKind {
        match self {
            Self::Host => BackendKind::Host,
            Self::Cuda => BackendKind::Cuda,
            Self::Hip => BackendKind::Hip,
            Self::Vulkan => BackendKind::Vulkan,
            Self::Wgpu => BackendKind::Wgpu,
        }
    }
}

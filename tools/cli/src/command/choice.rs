//! Backends as the command line names them.
use clap::ValueEnum;
use omniheap::BackendKind;

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    Host,
    Cuda,
    Hip,
    Vulkan,
    Wgpu,
}

impl Backend {
    pub(super) const fn kind(self) -> BackendKind {
        match self {
            Self::Host => BackendKind::Host,
            Self::Cuda => BackendKind::Cuda,
            Self::Hip => BackendKind::Hip,
            Self::Vulkan => BackendKind::Vulkan,
            Self::Wgpu => BackendKind::Wgpu,
        }
    }
}

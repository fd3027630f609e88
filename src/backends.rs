//! Every backend that is built in, by name: the one place where vendors are wired.
use crate::sharing;
use core::fmt;
use core::str::FromStr;
use omniheap_core::{AnyBackend, ErrorKind, Result, erase};
use omniheap_host::Host;

/// Backend kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// This machine's memory.
    Host,
    /// NVIDIA's driver.
    Cuda,
    /// AMD's runtime.
    Hip,
    /// Any Vulkan driver.
    Vulkan,
    /// Any device that wgpu finds.
    Wgpu,
}

impl BackendKind {
    /// Every backend, best first.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::Hip, Self::Vulkan, Self::Wgpu, Self::Host];

    /// Returns its name: one lower-case word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::Vulkan => "vulkan",
            Self::Wgpu => "wgpu",
        }
    }

    /// Returns whether the backend was built in; the features of this crate say so.
    #[must_use]
    pub const fn is_built_in(self) -> bool {
        match self {
            Self::Host => true,
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Hip => cfg!(feature = "hip"),
            Self::Vulkan => cfg!(feature = "vulkan"),
            Self::Wgpu => cfg!(feature = "wgpu"),
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = omniheap_core::Error;

    /// Reads a name as [`BackendKind::name`] writes it.
    fn from_str(name: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|kind| kind.name() == name);
        named.ok_or(
            ErrorKind::Unsupported.because("a backend is one of cuda, hip, vulkan, wgpu, host"),
        )
    }
}

/// Opens a device of a backend; devices are numbered from 0.
///
/// # Errors
///
/// `Unsupported` when the backend is not built in, its driver is not here, or it has no device of that number; what
/// the driver says otherwise. `InvalidConfig` when `OMNIHEAP_LIMIT` is set and is no size: a limit that cannot be read must not be
/// ignored. The same when `OMNIHEAP_ARBITER` is set and no arbiter accepts this process there.
pub fn open(backend: BackendKind, ordinal: u32) -> Result<AnyBackend> {
    if !backend.is_built_in() {
        return Err(ErrorKind::Unsupported.because(
            "the backend is not built in; enable the feature of its name in the crate `omniheap`",
        ));
    }
    sharing::check_limit(ordinal)?;
    sharing::opened(open_alone(backend, ordinal)?, ordinal)
}

/// Opens a device whatever other processes do with it.
fn open_alone(backend: BackendKind, ordinal: u32) -> Result<AnyBackend> {
    match backend {
        BackendKind::Host if ordinal == 0 => Ok(erase(Host::new())),
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => Ok(erase(omniheap_cuda::Cuda::open(ordinal)?)),
        #[cfg(feature = "hip")]
        BackendKind::Hip => Ok(erase(omniheap_hip::Hip::open(ordinal)?)),
        #[cfg(feature = "vulkan")]
        BackendKind::Vulkan => Ok(erase(omniheap_vulkan::Vulkan::open(index(ordinal)?)?)),
        #[cfg(feature = "wgpu")]
        BackendKind::Wgpu => Ok(erase(omniheap_wgpu::Wgpu::open(index(ordinal)?)?)),
        _ => Err(ErrorKind::Unsupported.because("host memory is one device, number 0")),
    }
}

#[cfg(any(feature = "vulkan", feature = "wgpu"))]
fn index(ordinal: u32) -> Result<usize> {
    usize::try_from(ordinal)
        .map_err(|_| ErrorKind::Unsupported.because("no device has this number"))
}

/// Opens the best device here: a device of its own before one that shares the processor, and host memory when there
/// is nothing else.
///
/// # Errors
///
/// Those of opening host memory.
pub fn open_best() -> Result<AnyBackend> {
    let real = |device: &AnyBackend| !is_software(&device.caps().device.name);
    // On Linux wgpu reaches what Vulkan reaches, and nothing else.
    let covered = |kind| {
        kind == BackendKind::Wgpu && cfg!(target_os = "linux") && BackendKind::Vulkan.is_built_in()
    };
    let kinds =
        BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Host && !covered(*kind));
    let mut found = kinds.filter_map(|kind| open(kind, 0).ok().filter(real));
    found.next().map_or_else(|| open(BackendKind::Host, 0), Ok)
}

/// Returns whether a device's name says that it is the processor in disguise.
fn is_software(name: &str) -> bool {
    let name = name.to_lowercase();
    ["llvmpipe", "lavapipe", "swiftshader", "noop"].iter().any(|software| name.contains(software))
}

/// One device that was looked for.
pub struct Found {
    /// Its backend.
    pub backend: BackendKind,
    /// Its number, for [`open`].
    pub ordinal: u32,
    /// The opened device, or why there is none.
    pub device: Result<AnyBackend>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.device.as_ref().map(|device| &device.caps().device);
        f.debug_struct("Found").field("backend", &self.backend).field("device", &name).finish()
    }
}

/// Opens every device of every backend. A backend without a device gives one entry that says why.
#[must_use]
pub fn devices() -> Vec<Found> {
    BackendKind::ALL.into_iter().flat_map(devices_of).collect()
}

fn devices_of(backend: BackendKind) -> Vec<Found> {
    let look = |ordinal| Found { backend, ordinal, device: open(backend, ordinal) };
    let mut found = vec![look(0)];
    if found[0].device.is_ok() {
        found.extend((1..).map(look).take_while(|found| found.device.is_ok()));
    }
    found
}

#[cfg(test)]
mod tests;

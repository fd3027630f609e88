#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cgroup;
mod nvml;
mod size;

use core::fmt;
use omniheap_seam::{LimitKind, LimitValue, SystemLimit};
use std::path::PathBuf;
use std::sync::Arc;

pub use nvml::ProcessCount;
pub use size::parse_size;

/// The variable that limits every device of omniheap.
pub const VARIABLE: &str = "OMNIHEAP_LIMIT";
const MPS: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
const HAMI: &str = "CUDA_DEVICE_MEMORY_LIMIT";

/// The kind of device, which decides whose limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// `OMNIHEAP_LIMIT` alone.
    Any,
    /// `OMNIHEAP_LIMIT`, MPS, `HAMi`, NVML, and the regions of NVIDIA's driver in `dmem`.
    Nvidia,
    /// `OMNIHEAP_LIMIT`, and the regions of AMD's driver in `dmem`.
    Amd,
}

type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reads the limits of one device. Nothing is kept: every reading is fresh.
///
/// # Examples
/// ```
/// use omniheap_limits::{SystemLimits, Vendor};
/// use omniheap_seam::LimitValue;
///
/// let set = |name: &str| (name == "OMNIHEAP_LIMIT").then(|| "8GiB".to_owned());
/// let limits = SystemLimits::new(Vendor::Nvidia, 0).within("/nowhere", set).read();
/// assert_eq!((&*limits[0].source, &limits[0].value), ("OMNIHEAP_LIMIT", &LimitValue::Bytes(8 << 30)));
/// ```
#[derive(Clone)]
pub struct SystemLimits {
    vendor: Vendor,
    ordinal: u32,
    /// Its identity, and the bytes that its driver says it has.
    device: Option<([u8; 16], u64)>,
    root: PathBuf,
    variables: Variables,
}

impl fmt::Debug for SystemLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, ordinal, root, .. } = self;
        f.debug_struct("SystemLimits")
            .field("vendor", vendor)
            .field("ordinal", ordinal)
            .field("root", root)
            .finish_non_exhaustive()
    }
}

impl SystemLimits {
    /// Limits of the device that the process knows by this number.
    #[must_use]
    pub fn new(vendor: Vendor, ordinal: u32) -> Self {
        let variables: Variables = Arc::new(|name| std::env::var(name).ok());
        Self { vendor, ordinal, device: None, root: "/".into(), variables }
    }

    /// The same with what NVML tells of the device with this identity, whose driver says that it has `total` bytes.
    #[must_use]
    pub fn device(self, uuid: Option<[u8; 16]>, total: u64) -> Self {
        Self { device: uuid.map(|uuid| (uuid, total)), ..self }
    }

    /// The same with files below another root and other variables: for tests, and for processes that look into a container.
    #[must_use]
    pub fn within(
        self,
        root: impl Into<PathBuf>,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { root: root.into(), variables: Arc::new(variables), ..self }
    }

    /// Reads all limits that are set. One that cannot be read is listed with the reason.
    #[must_use]
    pub fn read(&self) -> Vec<SystemLimit> {
        let mut limits = Vec::new();
        limits.extend(self.variable(VARIABLE, Shape::Either));
        if self.vendor == Vendor::Nvidia {
            limits.extend(self.variable(MPS, Shape::ByDevice));
            // The variable of one device stands above that of all.
            let own = self.variable(&format!("{HAMI}_{}", self.ordinal), Shape::Plain);
            limits.extend(own.or_else(|| self.variable(HAMI, Shape::Plain)));
            let library = (self.variables)(nvml::VARIABLE).filter(|name| !name.is_empty());
            let told =
                self.device.map(|(uuid, total)| nvml::read(library.as_deref(), &uuid, total));
            limits.extend(told.into_iter().flatten());
        }
        let region = match self.vendor {
            Vendor::Any => return limits,
            Vendor::Nvidia => "nvidia/",
            Vendor::Amd => "drm/",
        };
        limits.extend(cgroup::read(&self.root, region));
        limits
    }

    /// Reads one variable; `None` where it is not set, or says nothing about this device.
    fn variable(&self, name: &str, shape: Shape) -> Option<SystemLimit> {
        let text = (self.variables)(name)?;
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let value = match (shape, text.contains('=')) {
            (Shape::Either | Shape::ByDevice, true) => size::of_device(text, self.ordinal)?,
            (Shape::Either | Shape::Plain, false) => parse_size(text),
            _ => None,
        };
        let value = value.map_or_else(|| unreadable(text), LimitValue::Bytes);
        Some(SystemLimit { source: name.to_owned(), kind: LimitKind::Hard, value })
    }
}

/// Forms in which a variable may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `8GiB`.
    Plain,
    /// `0=8G,1=4G`.
    ByDevice,
    /// One or the other.
    Either,
}

fn unreadable(text: &str) -> LimitValue {
    let shown: String = text.chars().take(64).collect();
    LimitValue::Unreadable(format!("{shown:?} is no size such as 8GiB"))
}

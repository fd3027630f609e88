//! Optional device features, as one set.
#![forbid(unsafe_code)]
use ash::vk;
use core::ffi::CStr;

/// An ability that a device may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Timeline semaphores: `timelineSemaphore`, core 1.2 or `VK_KHR_timeline_semaphore`.
    TimelineSemaphore,
    /// Buffer addresses: `bufferDeviceAddress`, core 1.2 or `VK_KHR_buffer_device_address`.
    BufferDeviceAddress,
    /// Both `sparseBinding` and `sparseResidencyBuffer`, and a queue that binds.
    SparseBuffers,
    /// `VK_EXT_memory_budget`.
    MemoryBudget,
    /// `VK_EXT_memory_priority` with `memoryPriority`.
    MemoryPriority,
    /// `VK_KHR_external_memory_fd`.
    ExternalMemoryFd,
    /// `VK_AMD_device_coherent_memory` with `deviceCoherentMemory`.
    DeviceCoherentMemory,
    /// `VK_EXT_debug_utils` on the instance.
    DebugUtils,
    /// `protectedMemory`, core 1.1. Devices that this backend opens itself never have it.
    ProtectedMemory,
}

/// A set of [`Feature`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(u16);

impl Features {
    pub(crate) const fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u16) != 0
    }

    pub(crate) const fn with(self, feature: Feature) -> Self {
        Self(self.0 | (1 << feature as u16))
    }

    pub(crate) const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u16))
    }
}

/// Says that an engine's device is without a feature that it was said to have.
macro_rules! missing {
    ($name:literal) => {
        concat!(
            "`enabled` names ",
            $name,
            ", which the device lacks or was not created with; enable it there, or leave it out"
        )
    };
}

impl Feature {
    /// Returns the sentence about a device that was wrapped and is without it.
    pub(crate) const fn missing(self) -> &'static str {
        match self {
            Self::TimelineSemaphore => missing!("timelineSemaphore"),
            Self::BufferDeviceAddress => missing!("bufferDeviceAddress"),
            Self::SparseBuffers => missing!("sparseBinding with sparseResidencyBuffer"),
            Self::MemoryBudget => missing!("VK_EXT_memory_budget"),
            Self::MemoryPriority => missing!("VK_EXT_memory_priority"),
            Self::ExternalMemoryFd => missing!("VK_KHR_external_memory_fd"),
            Self::DeviceCoherentMemory => missing!("VK_AMD_device_coherent_memory"),
            Self::DebugUtils => missing!("VK_EXT_debug_utils"),
            Self::ProtectedMemory => missing!("protectedMemory"),
        }
    }

    /// Returns a function that the device has only with this feature, where there is one; `api` is the device's version.
    pub(crate) const fn function(self, api: u32) -> Option<&'static CStr> {
        let is_core = api >= vk::API_VERSION_1_2;
        match self {
            Self::TimelineSemaphore if is_core => Some(c"vkWaitSemaphores"),
            Self::TimelineSemaphore => Some(c"vkWaitSemaphoresKHR"),
            Self::BufferDeviceAddress if is_core => Some(c"vkGetBufferDeviceAddress"),
            Self::BufferDeviceAddress => Some(c"vkGetBufferDeviceAddressKHR"),
            Self::ExternalMemoryFd => Some(c"vkGetMemoryFdKHR"),
            Self::DebugUtils => Some(c"vkSetDebugUtilsObjectNameEXT"),
            _ => None,
        }
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(Self::default(), Self::with)
    }
}

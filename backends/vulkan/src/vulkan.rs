//! The backend's own type: everything that was opened, in the order it is dropped.
#![forbid(unsafe_code)]
use crate::{
    Feature, MemorySource, caps::Table, copy::Copier, device::Device, export::Sharing,
    launch::Programs, pages::Pages, timeline::Lines, validation::Messages,
};
use ash::vk;
use core::fmt;
use std::sync::Arc;

/// One Vulkan device.
///
/// Dropping it waits until the device is idle. Blocks and resources that are still alive keep the device open, so any
/// order of dropping is safe.
pub struct Vulkan {
    /// Before the timelines, for whose launches they wait.
    pub(crate) programs: Programs,
    pub(crate) lines: Lines,
    pub(crate) pages: Pages,
    pub(crate) copier: Copier,
    pub(crate) table: Table,
    pub(crate) sharing: Sharing,
    /// The queue that binds sparse memory, where there is one.
    pub(crate) binder: usize,
    /// Bytes of the largest sparse buffer.
    pub(crate) sparse_limit: u64,
    /// Memory types that a block's buffer may be bound to.
    pub(crate) buffer_types: u32,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) messages: Option<Messages>,
    /// An engine's allocator that gives the blocks' memory.
    pub(crate) source: Option<Arc<dyn MemorySource>>,
    pub(crate) device: Arc<Device>,
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // A lost device has nothing to wait for.
        let _ = self.device.wait_idle();
    }
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vulkan").field("device", &self.table.caps.device).finish_non_exhaustive()
    }
}

impl Vulkan {
    /// The device, for an engine's own calls.
    ///
    /// It stays valid while this backend, a block or a resource of it lives. Queues belong to
    /// [`with_queue`](Self::with_queue).
    #[must_use]
    pub fn ash_device(&self) -> &ash::Device {
        &self.device.raw
    }

    /// The instance that the device came from.
    #[must_use]
    pub fn ash_instance(&self) -> &ash::Instance {
        &self.device.instance.raw
    }

    /// The loader that the instance came from.
    #[must_use]
    pub fn ash_entry(&self) -> &ash::Entry {
        &self.device.instance.entry
    }

    /// The physical device.
    #[must_use]
    pub fn physical_device(&self) -> vk::PhysicalDevice {
        self.device.physical
    }

    /// Whether an ability is enabled on the device.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.device.features.has(feature)
    }
}

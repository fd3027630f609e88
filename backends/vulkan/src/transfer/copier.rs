//! Which way bytes go inside the device: by the driver's own copies, or by the compaction kernel.
use crate::{Feature, driver::device::Device, transfer::kernel::Kernel};
use ash::vk;
use omniheap_seam::lock;
use std::sync::{Arc, Mutex};

/// Implementation of copies inside the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// The way that was measured to be faster: the driver's copies for a few short moves and on software devices, else
    /// the kernel.
    #[default]
    Fastest,
    /// The driver's copies alone.
    Commands,
    /// The compaction kernel, wherever the device has addresses and the queue computes.
    Kernel,
}

/// Fewer moves than this, and fewer bytes, are left to the driver's own copies: up to there both cost one start.
const FEW: usize = 4;
const SHORT: u64 = 1 << 20;

/// The kernel, built when it is first needed.
#[derive(Debug)]
pub(crate) struct Copier {
    kernel: Mutex<Option<Arc<Kernel>>>,
    copies: Copies,
}

impl Copier {
    pub(crate) fn new(device: &Device, kind: vk::PhysicalDeviceType, copies: Copies) -> Self {
        let software = kind == vk::PhysicalDeviceType::CPU && copies == Copies::Fastest;
        let able = device.features.has(Feature::BufferDeviceAddress) && !software;
        Self { kernel: Mutex::default(), copies: if able { copies } else { Copies::Commands } }
    }

    /// Returns the kernel, if it is the way for this count of moves and bytes.
    pub(crate) fn kernel(
        &self,
        device: &Arc<Device>,
        queue: usize,
        (count, bytes): (usize, u64),
    ) -> Option<Arc<Kernel>> {
        let worth = match self.copies {
            Copies::Commands => false,
            Copies::Kernel => true,
            Copies::Fastest => count >= FEW || bytes >= SHORT,
        };
        if !worth || !device.queues[queue].flags.contains(vk::QueueFlags::COMPUTE) {
            return None;
        }
        let mut kernel = lock(&self.kernel);
        if kernel.is_none() {
            // Short of memory, the driver's own copies still work; the next batch tries again.
            *kernel = Kernel::create(device).ok().map(Arc::new);
        }
        kernel.clone()
    }
}

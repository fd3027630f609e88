//! gpu-allocator and omniheap side by side: its allocator as our source of blocks, and its calls over our pools.
#![doc = ""]
#![doc = include_str!("../migrating-from-gpu-allocator.md")]
#![expect(unsafe_code, reason = "signs the contract of MemorySource")]
use crate::{MemorySource, Piece, driver::device::lock};
use ash::vk;
use core::fmt;
use gpu_allocator::{AllocationError, vulkan};
use omniheap_seam::{Error, ErrorKind, Result};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

mod adapter;

pub use adapter::{Allocation, Allocator};
pub use gpu_allocator::{
    MemoryLocation,
    vulkan::{AllocationCreateDesc, AllocationScheme},
};

/// Blocks from an engine's gpu-allocator.
pub struct GpuAllocator {
    allocator: Arc<Mutex<vulkan::Allocator>>,
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    by_token: BTreeMap<u64, vulkan::Allocation>,
    next: u64,
}

impl GpuAllocator {
    /// Shares an allocator with the engine.
    ///
    /// It was created with `buffer_device_address` if the device has that enabled.
    #[must_use]
    pub fn new(allocator: Arc<Mutex<vulkan::Allocator>>) -> Self {
        Self { allocator, live: Mutex::default() }
    }

    /// Returns the number of live pieces.
    #[must_use]
    pub fn live(&self) -> u64 {
        lock(&self.live).by_token.len() as u64
    }
}

impl fmt::Debug for GpuAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuAllocator").field("live", &self.live()).finish_non_exhaustive()
    }
}

fn error(why: &AllocationError) -> Error {
    let kind = match why {
        AllocationError::OutOfMemory => ErrorKind::OutOfDeviceMemory,
        AllocationError::NoCompatibleMemoryTypeFound => ErrorKind::NoSuchHeap,
        AllocationError::FailedToMap(_) => ErrorKind::NotMappable,
        AllocationError::InvalidAllocationCreateDesc => ErrorKind::InvalidAlignment,
        _ => ErrorKind::Driver,
    };
    kind.into()
}

// SAFETY: gpu-allocator gives disjoint ranges of the asked size and alignment in one of the asked memory types, maps
// what the host can see for life, and `new` asks for an allocator that serves addresses.
unsafe impl MemorySource for GpuAllocator {
    fn allocate(&self, asked: vk::MemoryRequirements) -> Result<Piece> {
        let wish = AllocationCreateDesc {
            name: "omniheap block",
            requirements: asked,
            // One memory type is asked for, so there is nothing left to choose.
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let allocation = lock(&self.allocator).allocate(&wish).map_err(|why| error(&why))?;
        let mut live = lock(&self.live);
        let token = live.next;
        live.next += 1;
        // SAFETY: the memory is used only while the allocation lies in `live`.
        let memory = unsafe { allocation.memory() };
        let (offset, mapped) = (allocation.offset(), allocation.mapped_ptr());
        live.by_token.insert(token, allocation);
        Ok(Piece { memory, offset, mapped, token })
    }

    unsafe fn free(&self, piece: Piece) {
        let allocation = lock(&self.live).by_token.remove(&piece.token);
        if let Some(allocation) = allocation {
            // It fails only for an allocation that is not its own, and this one is.
            let _ = lock(&self.allocator).free(allocation);
        }
    }
}

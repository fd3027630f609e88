//! `gpu_allocator::vulkan::Allocator` as the source of blocks.
//!
//! # Moving over from gpu-allocator
//!
//! An engine keeps its allocator and hands it over; from then on both draw from the same memory:
//!
//! ```
//! # use gpu_allocator::{MemoryLocation, vulkan::{AllocationCreateDesc, AllocationScheme, Allocator}};
//! # use omniheap_core::{Backend, HeapKind};
//! # use omniheap_vulkan::{Block, Existing, GpuAllocator, Options, Vulkan, ash::{self, vk}};
//! # use std::{error::Error, sync::{Arc, Mutex}};
//! // Before: every buffer asks gpu-allocator.
//! fn before(device: &ash::Device, allocator: &Mutex<Allocator>, buffer: vk::Buffer) -> Result<(), Box<dyn Error>> {
//!     let allocation = allocator.lock().expect("not poisoned").allocate(&AllocationCreateDesc {
//!         name: "vertices",
//!         requirements: unsafe { device.get_buffer_memory_requirements(buffer) },
//!         location: MemoryLocation::GpuOnly,
//!         linear: true,
//!         allocation_scheme: AllocationScheme::GpuAllocatorManaged,
//!     })?;
//!     unsafe { device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset()) }?;
//!     Ok(())
//! }
//!
//! // After: omniheap asks it for blocks, and divides them.
//! fn after(existing: Existing, allocator: Arc<Mutex<Allocator>>, buffer: vk::Buffer) -> Result<Block, Box<dyn Error>> {
//!     let source = Arc::new(GpuAllocator::new(allocator));
//!     let vulkan = unsafe { Vulkan::wrap(existing, Options::default())?.with_source(source) };
//!     let needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Device) }?;
//!     let block = vulkan.allocate(needs.heaps[0], needs.layout.size)?;
//!     unsafe { vulkan.bind_buffer(buffer, &needs, &block, 0) }?;
//!     Ok(block)
//! }
//! ```
//!
//! | gpu-allocator | here |
//! |---|---|
//! | `MemoryLocation::GpuOnly` | [`HeapKind::Device`](omniheap_core::HeapKind::Device) |
//! | `MemoryLocation::CpuToGpu` | [`HeapKind::Unified`](omniheap_core::HeapKind::Unified) |
//! | `MemoryLocation::GpuToCpu` | [`HeapKind::Staging`](omniheap_core::HeapKind::Staging), a heap whose host access is `Cached` |
//! | `linear: false` | [`Class::Tiled`](omniheap_core::Class::Tiled) |
//! | `AllocationScheme::DedicatedBuffer` | [`Vulkan::allocate_alone`](crate::Vulkan::allocate_alone) |
//! | `allocation.mapped_slice_mut()` | [`Map::map`](omniheap_core::Map::map), then flush where the heap is `Incoherent` |
#![expect(unsafe_code, reason = "signs the contract of MemorySource")]
use crate::{MemorySource, Piece, device::lock};
use ash::vk;
use core::fmt;
use gpu_allocator::{
    AllocationError, MemoryLocation,
    vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator},
};
use omniheap_core::{Error, ErrorKind, Result};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Blocks from an engine's gpu-allocator.
pub struct GpuAllocator {
    allocator: Arc<Mutex<Allocator>>,
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    by_token: BTreeMap<u64, Allocation>,
    next: u64,
}

impl GpuAllocator {
    /// Shares an allocator with the engine.
    ///
    /// It was created with `buffer_device_address` if the device has that enabled.
    #[must_use]
    pub fn new(allocator: Arc<Mutex<Allocator>>) -> Self {
        Self { allocator, live: Mutex::default() }
    }

    /// How many pieces are out.
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

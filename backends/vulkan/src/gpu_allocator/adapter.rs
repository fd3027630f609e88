//! gpu-allocator's calls over a manager: what lets an engine move over one file at a time.
#![expect(unsafe_code, reason = "works on handles that the caller names")]
use crate::{Alone, Native, Needs, Vulkan};
use ash::vk;
use core::{ffi::c_void, fmt, ptr::NonNull};
use gpu_allocator::{
    MemoryLocation,
    vulkan::{AllocationCreateDesc, AllocationScheme},
};
use omniheap_core::{AllocateError, Allocation as Managed, Manager, ManagerConfig, Sharing};
use omniheap_seam::{Backend as _, Class, HeapKind, HostAccess, Map as _};

/// An allocator with the calls of `gpu_allocator::vulkan::Allocator`, over omniheap's pools.
#[derive(Debug)]
pub struct Allocator {
    manager: Manager<Vulkan>,
}

impl Allocator {
    /// Manages memory on a device.
    ///
    /// # Safety
    ///
    /// Every buffer or image that a description names as dedicated belongs to this device and has the requirements that
    /// the description says.
    #[must_use]
    pub unsafe fn new(vulkan: Vulkan) -> Self {
        // Resources are bound to memory, and pages that move have none of their own.
        Self { manager: Manager::with_config(vulkan, ManagerConfig::default().plain()) }
    }

    /// Returns the manager behind it, for what gpu-allocator has no call for: reports, budgets, requests by intent.
    #[must_use]
    pub const fn manager(&self) -> &Manager<Vulkan> {
        &self.manager
    }

    /// Allocates memory for a resource. What the host sees is coherent and stays mapped.
    ///
    /// # Errors
    ///
    /// `ZeroSize`, `InvalidAlignment`, `NoSuchHeap`, `ExceedsLimit` for what can never be served, out of memory with its
    /// numbers, the driver's error.
    pub fn allocate(&self, desc: &AllocationCreateDesc<'_>) -> Result<Allocation, AllocateError> {
        let class = if desc.linear { Class::Linear } else { Class::Tiled };
        let kind = match desc.location {
            MemoryLocation::GpuOnly | MemoryLocation::Unknown => HeapKind::Device,
            MemoryLocation::CpuToGpu => HeapKind::Unified,
            MemoryLocation::GpuToCpu => HeapKind::Staging,
        };
        let mut needs = self.vulkan().needs(desc.requirements, Alone::No, class, kind)?;
        self.narrow(&mut needs, desc.location)?;
        match desc.allocation_scheme {
            AllocationScheme::GpuAllocatorManaged => self.share(&needs, desc.name),
            AllocationScheme::DedicatedBuffer(buffer) => self.dedicate(buffer, &needs),
            AllocationScheme::DedicatedImage(image) => self.dedicate(image, &needs),
        }
    }

    /// Takes an allocation back at once, as dropping it does: the device is done with its bytes.
    pub fn free(&self, allocation: Allocation) {
        drop(allocation);
    }

    fn vulkan(&self) -> &Vulkan {
        self.manager.backend()
    }

    /// Leaves only coherent heaps for what the host sees, cached ones first where it reads.
    fn narrow(&self, needs: &mut Needs, location: MemoryLocation) -> Result<(), AllocateError> {
        let host = |id| self.vulkan().caps().heap(id).map_or(HostAccess::None, |heap| heap.host);
        match location {
            MemoryLocation::GpuOnly | MemoryLocation::Unknown => return Ok(()),
            MemoryLocation::CpuToGpu => {}
            MemoryLocation::GpuToCpu => {
                needs.heaps.sort_by_key(|id| host(*id) != HostAccess::Cached);
            }
        }
        needs.heaps.retain(|id| matches!(host(*id), HostAccess::Cached | HostAccess::Combined));
        match needs.heaps.is_empty() {
            true => Err(omniheap_seam::Error::from(omniheap_seam::ErrorKind::NoSuchHeap).into()),
            false => Ok(()),
        }
    }

    fn share(&self, needs: &Needs, name: &str) -> Result<Allocation, AllocateError> {
        let mut last = None;
        for request in needs.requests() {
            match self.manager.allocate(&request.name(name)) {
                Ok(managed) => return self.describe(managed, Sharing::Shared),
                Err(why) => last = Some(why),
            }
        }
        Err(last.expect("needs name a heap, or `narrow` refused them"))
    }

    fn dedicate<H: Native>(&self, handle: H, needs: &Needs) -> Result<Allocation, AllocateError> {
        // SAFETY: who made this allocator promised that such handles are the device's, with these needs.
        let managed = unsafe { Vulkan::allocate_alone(&self.manager, handle, needs) }?;
        self.describe(managed, Sharing::Dedicated)
    }

    fn describe(
        &self,
        managed: Managed<Vulkan>,
        sharing: Sharing,
    ) -> Result<Allocation, AllocateError> {
        // Pinned, so the place outlives the binding.
        let binding = managed.binding();
        let (block, start) = (binding.block(), binding.span().offset);
        let raw = block.memory().ok_or(omniheap_seam::ErrorKind::Unsupported)?;
        let (described, slot) = self.vulkan().heap(block.heap())?;
        let mapped = match described.host.is_visible() {
            // SAFETY: the span lies in the mapping of its block.
            true => Some(Pointer(unsafe { self.vulkan().map(block)?.add(index(start)) })),
            false => None,
        };
        let (offset, properties) = (block.memory_offset() + start, slot.flags);
        drop(binding);
        Ok(Allocation { raw, offset, mapped, properties, sharing, managed })
    }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a mapping fits the address space")
}

/// Host pointer.
#[derive(Clone, Copy, Debug)]
struct Pointer(NonNull<u8>);

// SAFETY: an address; who dereferences it answers for races.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// Memory with the calls of `gpu_allocator::vulkan::Allocation`. Dropping it frees it.
pub struct Allocation {
    raw: vk::DeviceMemory,
    offset: u64,
    mapped: Option<Pointer>,
    properties: vk::MemoryPropertyFlags,
    sharing: Sharing,
    managed: Managed<Vulkan>,
}

impl Allocation {
    /// Returns the memory it lies in.
    ///
    /// # Safety
    ///
    /// The handle is not used after the allocation is freed, and never freed by the caller.
    #[must_use]
    pub const unsafe fn memory(&self) -> vk::DeviceMemory {
        self.raw
    }

    /// Returns the bytes from the start of that memory: what `bind_buffer_memory` wants.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.managed.size()
    }

    /// Returns whether the memory is for one resource alone.
    #[must_use]
    pub const fn is_dedicated(&self) -> bool {
        matches!(self.sharing, Sharing::Dedicated)
    }

    /// Returns the memory's property flags.
    #[must_use]
    pub const fn memory_properties(&self) -> vk::MemoryPropertyFlags {
        self.properties
    }

    /// Returns the host pointer, if it is mapped.
    #[must_use]
    pub fn mapped_ptr(&self) -> Option<NonNull<c_void>> {
        self.mapped.map(|Pointer(start)| start.cast())
    }

    /// Returns the bytes, if the host sees them.
    ///
    /// # Safety
    ///
    /// The device writes none of them while they are borrowed.
    #[must_use]
    pub unsafe fn mapped_slice(&self) -> Option<&[u8]> {
        let Pointer(start) = self.mapped?;
        // SAFETY: mapped for that many bytes as long as `self` lives; the caller keeps the device away.
        Some(unsafe { core::slice::from_raw_parts(start.as_ptr(), index(self.size())) })
    }

    /// Returns the bytes to write, if the host sees them.
    ///
    /// # Safety
    ///
    /// The device neither reads nor writes any of them while they are borrowed.
    #[must_use]
    pub unsafe fn mapped_slice_mut(&mut self) -> Option<&mut [u8]> {
        let Pointer(start) = self.mapped?;
        // SAFETY: as for `mapped_slice`, and `&mut self` keeps other borrows of these bytes away.
        Some(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), index(self.size())) })
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("offset", &self.offset)
            .field("size", &self.size())
            .field("dedicated", &self.is_dedicated())
            .finish_non_exhaustive()
    }
}

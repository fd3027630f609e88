//! The host's view of allocations: mapping, which counts; flushes and invalidations; copies.
#![expect(unsafe_code, reason = "copies between host memory and mapped memory")]
use crate::abi::{VmaAllocation, VmaAllocator};
use crate::allocator::{Allocator, on, with};
use crate::args::{array, put};
use crate::call::Refused;
use crate::memory::{About, Managed, Memory};
use crate::slots::Slot;
use ash::vk::{self, Handle as _, MemoryPropertyFlags as F};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use omniheap_seam::{Backend as _, ErrorKind};
use omniheap_vulkan::Block;

/// Direction in which bytes become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Bytes that the host wrote become visible to the device.
    Flush,
    /// Bytes that the device wrote become visible to the host.
    Invalidate,
}

fn unmappable(why: &'static str) -> Refused {
    Refused::new(vk::Result::ERROR_MEMORY_MAP_FAILED, why)
}

impl Allocator {
    /// Maps the block of an allocation, once, and returns the address of the allocation's first byte.
    pub(crate) fn mapping(&self, slot: &Slot<Memory>) -> Result<*mut u8, Refused> {
        let known = slot.facts.host.load(Relaxed);
        if known != 0 {
            return Ok(ptr::with_exposed_provenance_mut(known));
        }
        let mapped = slot.with(|memory| match memory {
            Memory::Default(managed) | Memory::Pooled(managed, _) => self.map_block(managed),
            Memory::Linear(pool, number, _) => {
                let mapped = pool.linear_block(*number, |block| self.map_block(block));
                mapped.unwrap_or_else(|| Err(ErrorKind::Stale.into()))
            }
        });
        let base = mapped.ok_or_else(|| unmappable("the allocation was freed meanwhile"))??;
        slot.facts.set_place(slot.facts.offset.load(Relaxed), base);
        Ok(ptr::with_exposed_provenance_mut(slot.facts.host.load(Relaxed)))
    }

    /// Maps a block, and stores its host address in the block.
    fn map_block(&self, managed: &Managed) -> omniheap_seam::Result<u64> {
        let binding = managed.binding();
        let block = binding.block().downcast_ref::<Block>().ok_or(ErrorKind::Foreign)?;
        let map = self.vulkan.as_map().ok_or(ErrorKind::NotMappable)?;
        let base = map.map(block)?.as_ptr().expose_provenance();
        let base = u64::try_from(base).map_err(|_| ErrorKind::NotMappable)?;
        block.user_data().store(base, Relaxed);
        Ok(base)
    }

    /// Returns the address of an allocation that the program may map.
    fn checked_mapping(&self, slot: &Slot<Memory>) -> Result<*mut u8, Refused> {
        if !About::of(&slot.facts).may_map() {
            return Err(unmappable(
                "the memory is not host-visible, or was allocated with VMA_MEMORY_USAGE_AUTO and no flag HOST_ACCESS",
            ));
        }
        self.mapping(slot)
    }

    /// Returns the range for the driver, in whole atoms. `None` if the memory is coherent or the range is empty.
    fn range(
        &self,
        allocation: VmaAllocation,
        offset: u64,
        size: u64,
    ) -> Result<Option<vk::MappedMemoryRange<'static>>, Refused> {
        let slot = self.slot(allocation)?;
        let flags = self.type_flags(About::of(&slot.facts).memory_type());
        // Before the range is looked at: programs round ranges up and never hear of it where memory is coherent.
        if size == 0 || !flags.contains(F::HOST_VISIBLE) || flags.contains(F::HOST_COHERENT) {
            return Ok(None);
        }
        let whole = slot.facts.size.load(Relaxed);
        let size = if size == vk::WHOLE_SIZE { whole.saturating_sub(offset) } else { size };
        if offset.checked_add(size).is_none_or(|end| end > whole) {
            return Err(Refused::invalid("the range leaves the allocation"));
        }
        if size == 0 {
            return Ok(None);
        }
        self.mapping(slot)?;
        let atom = self.limits().non_coherent_atom_size.max(1);
        let first = slot.facts.offset.load(Relaxed) + offset;
        let start = first / atom * atom;
        let end = (first + size).next_multiple_of(atom).min(slot.facts.block_size.load(Relaxed));
        let memory = vk::DeviceMemory::from_raw(slot.facts.memory.load(Relaxed));
        let range = vk::MappedMemoryRange::default().memory(memory);
        Ok(Some(range.offset(start).size(end - start)))
    }

    fn sync(
        &self,
        direction: Sync,
        asked: impl Iterator<Item = (VmaAllocation, u64, u64)>,
    ) -> Result<(), Refused> {
        let mut ranges = Vec::new();
        for (allocation, offset, size) in asked {
            ranges.extend(self.range(allocation, offset, size)?);
        }
        if ranges.is_empty() {
            return Ok(());
        }
        let device = self.device();
        Ok(match direction {
            // SAFETY: whole atoms of live memory that is mapped.
            Sync::Flush => unsafe { device.flush_mapped_memory_ranges(&ranges) },
            // SAFETY: as above.
            Sync::Invalidate => unsafe { device.invalidate_mapped_memory_ranges(&ranges) },
        }?)
    }

    /// Checks a copy, and returns the address in the allocation and the number of bytes.
    fn copied(
        &self,
        allocation: VmaAllocation,
        offset: u64,
        size: u64,
    ) -> Result<(*mut u8, usize), Refused> {
        let slot = self.slot(allocation)?;
        if offset.checked_add(size).is_none_or(|end| end > slot.facts.size.load(Relaxed)) {
            return Err(Refused::invalid("the range leaves the allocation"));
        }
        let bytes = |count: u64| {
            usize::try_from(count).map_err(|_| Refused::invalid("the range is too long"))
        };
        let start = self.checked_mapping(slot)?.wrapping_add(bytes(offset)?);
        Ok((start, bytes(size)?))
    }
}

/// Maps an allocation, and returns the address of its first byte. Calls are counted: each needs one `vmaUnmapMemory`.
///
/// # Safety
///
/// `data` is null or may be written; no other thread destroys the allocator. The same holds for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaMapMemory(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    data: *mut *mut c_void,
) -> vk::Result {
    let work = |of: &Allocator| {
        let slot = of.slot(allocation)?;
        let start = of.checked_mapping(slot)?;
        // SAFETY: the caller's promise.
        unsafe { put(data, start.cast(), "ppData") }?;
        slot.facts.maps.fetch_add(1, Relaxed);
        Ok(())
    };
    // SAFETY: as above.
    unsafe { with("vmaMapMemory", allocator, work) }
}

/// Undoes one call of `vmaMapMemory`.
///
/// # Safety
///
/// As for [`vmaMapMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaUnmapMemory(allocator: VmaAllocator, allocation: VmaAllocation) {
    let work = |of: &Allocator| {
        let maps = &of.slot(allocation)?.facts.maps;
        let less = |count: u32| count.checked_sub(1);
        match maps.fetch_update(Relaxed, Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::invalid("the allocation is not mapped by vmaMapMemory")),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { on("vmaUnmapMemory", allocator, work) };
}

/// Makes the host's writes visible to the device.
///
/// # Safety
///
/// As for [`vmaMapMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaFlushAllocation(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    offset: u64,
    size: u64,
) -> vk::Result {
    let work = |of: &Allocator| of.sync(Sync::Flush, core::iter::once((allocation, offset, size)));
    // SAFETY: the caller's promise.
    unsafe { with("vmaFlushAllocation", allocator, work) }
}

/// Makes the device's writes visible to the host.
///
/// # Safety
///
/// As for [`vmaMapMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaInvalidateAllocation(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    offset: u64,
    size: u64,
) -> vk::Result {
    let work =
        |of: &Allocator| of.sync(Sync::Invalidate, core::iter::once((allocation, offset, size)));
    // SAFETY: the caller's promise.
    unsafe { with("vmaInvalidateAllocation", allocator, work) }
}

/// Arrays as `vmaFlushAllocations` takes them.
#[derive(Clone, Copy)]
struct Arrays {
    count: u32,
    allocations: *const VmaAllocation,
    offsets: *const u64,
    sizes: *const u64,
}

impl Arrays {
    /// Flushes or invalidates all of them. Offsets that are null are zero, and sizes that are null go to the end.
    ///
    /// # Safety
    ///
    /// The arrays are null or have `count` elements.
    unsafe fn sync(self, of: &Allocator, direction: Sync) -> Result<(), Refused> {
        let count = usize::try_from(self.count).unwrap_or(0);
        let part = |from: *const u64| if from.is_null() { 0 } else { count };
        // SAFETY: the caller's promise.
        let allocations = unsafe { array(self.allocations, count, "allocations") }?;
        // SAFETY: as above.
        let offsets = unsafe { array(self.offsets, part(self.offsets), "offsets") }?;
        // SAFETY: as above.
        let sizes = unsafe { array(self.sizes, part(self.sizes), "sizes") }?;
        let one = |(at, allocation): (usize, &VmaAllocation)| {
            let offset = offsets.get(at).copied().unwrap_or(0);
            (*allocation, offset, sizes.get(at).copied().unwrap_or(vk::WHOLE_SIZE))
        };
        of.sync(direction, allocations.iter().enumerate().map(one))
    }
}

/// Flushes several allocations at once.
///
/// # Safety
///
/// As for [`vmaMapMemory`]; the arrays have `count` elements, and the last two may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaFlushAllocations(
    allocator: VmaAllocator,
    count: u32,
    allocations: *const VmaAllocation,
    offsets: *const u64,
    sizes: *const u64,
) -> vk::Result {
    let arrays = Arrays { count, allocations, offsets, sizes };
    // SAFETY: the caller's promise.
    let work = |of: &Allocator| unsafe { arrays.sync(of, Sync::Flush) };
    // SAFETY: as above.
    unsafe { with("vmaFlushAllocations", allocator, work) }
}

/// Invalidates several allocations at once.
///
/// # Safety
///
/// As for [`vmaFlushAllocations`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaInvalidateAllocations(
    allocator: VmaAllocator,
    count: u32,
    allocations: *const VmaAllocation,
    offsets: *const u64,
    sizes: *const u64,
) -> vk::Result {
    let arrays = Arrays { count, allocations, offsets, sizes };
    // SAFETY: the caller's promise.
    let work = |of: &Allocator| unsafe { arrays.sync(of, Sync::Invalidate) };
    // SAFETY: as above.
    unsafe { with("vmaInvalidateAllocations", allocator, work) }
}

/// Copies bytes of the host into an allocation, and makes them visible to the device.
///
/// # Safety
///
/// As for [`vmaMapMemory`]; `from` has `size` bytes, and nobody uses the allocation's meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCopyMemoryToAllocation(
    allocator: VmaAllocator,
    from: *const c_void,
    allocation: VmaAllocation,
    offset: u64,
    size: u64,
) -> vk::Result {
    let work = |of: &Allocator| {
        if size == 0 {
            return Ok(());
        }
        if from.is_null() {
            return Err(Refused::invalid("pSrcHostPointer is null"));
        }
        let (start, bytes) = of.copied(allocation, offset, size)?;
        // SAFETY: the caller's promise, and `copied` checked the range of mapped memory.
        unsafe { start.copy_from(from.cast(), bytes) };
        of.sync(Sync::Flush, core::iter::once((allocation, offset, size)))
    };
    // SAFETY: the caller's promise.
    unsafe { with("vmaCopyMemoryToAllocation", allocator, work) }
}

/// Copies bytes of an allocation to the host, as the device wrote them.
///
/// # Safety
///
/// As for [`vmaMapMemory`]; `to` has room for `size` bytes, and nobody writes the allocation's meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCopyAllocationToMemory(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    offset: u64,
    to: *mut c_void,
    size: u64,
) -> vk::Result {
    let work = |of: &Allocator| {
        if size == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(Refused::invalid("pDstHostPointer is null"));
        }
        let (start, bytes) = of.copied(allocation, offset, size)?;
        of.sync(Sync::Invalidate, core::iter::once((allocation, offset, size)))?;
        // SAFETY: the caller's promise, and `copied` checked the range of mapped memory.
        unsafe { start.copy_to(to.cast(), bytes) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with("vmaCopyAllocationToMemory", allocator, work) }
}

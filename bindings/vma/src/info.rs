//! Calls about single allocations: facts, names, frees.
#![expect(unsafe_code, reason = "reads and writes through the caller's pointers")]
use crate::abi::{
    VmaAllocation, VmaAllocationCreateInfo, VmaAllocationInfo, VmaAllocationInfo2, VmaAllocator,
};
use crate::allocator::{Allocator, on, with};
use crate::args::{array, put, put_if, read, read_info, text};
use crate::call::{Refused, complain};
use crate::choice::Access;
use crate::memory::{About, Ask, Content, Memory, Resource};
use crate::slots::{Handle, Slot};
use ash::vk::{self, Handle as _};
use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

/// Returns the C handle of a slot.
pub(crate) fn shown(handle: Handle) -> VmaAllocation {
    VmaAllocation(ptr::without_provenance_mut(handle.address()))
}

/// Returns the description of an allocation for C.
pub(crate) fn describe(slot: &Slot<Memory>) -> VmaAllocationInfo {
    let (facts, about) = (&slot.facts, About::of(&slot.facts));
    let is_mapped = about.is_mapped() || facts.maps.load(Relaxed) > 0;
    let host = if is_mapped { facts.host.load(Relaxed) } else { 0 };
    VmaAllocationInfo {
        memory_type: about.memory_type(),
        device_memory: vk::DeviceMemory::from_raw(facts.memory.load(Relaxed)),
        offset: facts.offset.load(Relaxed),
        size: facts.size.load(Relaxed),
        p_mapped_data: ptr::with_exposed_provenance_mut(host),
        p_user_data: facts.user_data.load(Relaxed),
        p_name: slot.name(),
    }
}

/// Requirements without a resource.
const fn untied(asked: &vk::MemoryRequirements, next: *const c_void) -> Ask {
    Ask {
        size: asked.size,
        align: asked.alignment,
        types: asked.memory_type_bits,
        resource: Resource::None,
        content: Content::Unknown,
        access: Access::Unknown,
        usage: 0,
        needs_own: false,
        likes_own: false,
        next,
    }
}

/// Allocates, and writes handle and description.
///
/// # Safety
///
/// `allocation` was written before; `info` is null or may be written.
#[inline]
pub(crate) unsafe fn hand_out<'a>(
    of: &'a Allocator,
    ask: Ask,
    wanted: &VmaAllocationCreateInfo,
    allocation: *mut VmaAllocation,
    info: *mut VmaAllocationInfo,
) -> Result<&'a Slot<Memory>, Refused> {
    let slot = of.allocate(ask, wanted)?;
    // SAFETY: the caller's promise.
    unsafe { put_if(info, || describe(slot)) };
    // SAFETY: as above.
    unsafe { put(allocation, shown(slot.handle()), "pAllocation") }?;
    Ok(slot)
}

/// Allocates what `ask` makes of requirements.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`].
unsafe fn make(
    of: &Allocator,
    requirements: *const vk::MemoryRequirements,
    wanted: *const VmaAllocationCreateInfo,
    ask: impl FnOnce(&vk::MemoryRequirements) -> Ask,
    (allocation, info): (*mut VmaAllocation, *mut VmaAllocationInfo),
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    let asked = unsafe { read(requirements, "pVkMemoryRequirements") }?;
    // SAFETY: as above.
    let wanted = unsafe { read_info(wanted, of.layout) }?;
    // SAFETY: as above.
    unsafe { put(allocation, VmaAllocation::NULL, "pAllocation") }?;
    // SAFETY: as above.
    unsafe { hand_out(of, ask(&asked), &wanted, allocation, info) }.map(drop)
}

/// Allocates memory without a resource.
///
/// # Safety
///
/// Pointers are null, or what C says; no other thread destroys the allocator. The same holds for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaAllocateMemory(
    allocator: VmaAllocator,
    requirements: *const vk::MemoryRequirements,
    wanted: *const VmaAllocationCreateInfo,
    allocation: *mut VmaAllocation,
    info: *mut VmaAllocationInfo,
) -> vk::Result {
    let ask = |asked: &_| untied(asked, ptr::null());
    // SAFETY: the caller's promise.
    let work = |of: &Allocator| unsafe { make(of, requirements, wanted, ask, (allocation, info)) };
    // SAFETY: as above.
    unsafe { with("vmaAllocateMemory", allocator, work) }
}

/// Allocates memory of its own, with a chain for the driver.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`]; `next` is null or a chain that may extend `VkMemoryAllocateInfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaAllocateDedicatedMemory(
    allocator: VmaAllocator,
    requirements: *const vk::MemoryRequirements,
    wanted: *const VmaAllocationCreateInfo,
    next: *mut c_void,
    allocation: *mut VmaAllocation,
    info: *mut VmaAllocationInfo,
) -> vk::Result {
    let ask = |asked: &_| Ask { needs_own: true, ..untied(asked, next) };
    // SAFETY: the caller's promise.
    let work = |of: &Allocator| unsafe { make(of, requirements, wanted, ask, (allocation, info)) };
    // SAFETY: as above.
    unsafe { with("vmaAllocateDedicatedMemory", allocator, work) }
}

/// Allocates several times. If one fails, all are freed.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`]; the arrays have `count` elements, and the last may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaAllocateMemoryPages(
    allocator: VmaAllocator,
    requirements: *const vk::MemoryRequirements,
    wanted: *const VmaAllocationCreateInfo,
    count: usize,
    allocations: *mut VmaAllocation,
    infos: *mut VmaAllocationInfo,
) -> vk::Result {
    let work = |of: &Allocator| {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let asked = unsafe { read(requirements, "pVkMemoryRequirements") }?;
        // SAFETY: as above.
        let wanted = unsafe { read_info(wanted, of.layout) }?;
        for at in 0..count {
            // SAFETY: as above.
            unsafe { put(allocations.wrapping_add(at), VmaAllocation::NULL, "pAllocations") }?;
        }
        for at in 0..count {
            let info = if infos.is_null() { infos } else { infos.wrapping_add(at) };
            let to = allocations.wrapping_add(at);
            // SAFETY: as above.
            let made = unsafe { hand_out(of, untied(&asked, ptr::null()), &wanted, to, info) };
            if let Err(why) = made {
                for made in 0..at {
                    // SAFETY: written just now.
                    let one = unsafe {
                        read(allocations.wrapping_add(made).cast_const(), "pAllocations")
                    }?;
                    of.free(one)?;
                    // SAFETY: as above.
                    unsafe {
                        put(allocations.wrapping_add(made), VmaAllocation::NULL, "pAllocations")
                    }?;
                }
                return Err(why);
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { with("vmaAllocateMemoryPages", allocator, work) }
}

/// Frees an allocation. The device has finished with it.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaFreeMemory(allocator: VmaAllocator, allocation: VmaAllocation) {
    // SAFETY: the caller's promise.
    unsafe { on("vmaFreeMemory", allocator, |of| of.free(allocation)) };
}

/// Frees several allocations; those that are null or not live are passed over.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`]; `allocations` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaFreeMemoryPages(
    allocator: VmaAllocator,
    count: usize,
    allocations: *const VmaAllocation,
) {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        let allocations = unsafe { array(allocations, count, "pAllocations") }?;
        for one in allocations.iter().rev() {
            if let Err(why) = of.free(*one) {
                complain("vmaFreeMemoryPages", why.why());
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { on("vmaFreeMemoryPages", allocator, work) };
}

/// Writes the state and the place of an allocation.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetAllocationInfo(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    info: *mut VmaAllocationInfo,
) {
    let work = |of: &Allocator| {
        let slot = of.slot(allocation)?;
        // SAFETY: the caller's promise.
        unsafe { put(info, describe(slot), "pAllocationInfo") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetAllocationInfo", allocator, work) };
}

/// Writes the state and the place of an allocation, and facts about its block.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetAllocationInfo2(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    info: *mut VmaAllocationInfo2,
) {
    let work = |of: &Allocator| {
        let slot = of.slot(allocation)?;
        let shown = VmaAllocationInfo2 {
            allocation_info: describe(slot),
            block_size: slot.facts.block_size.load(Relaxed),
            dedicated_memory: vk::Bool32::from(About::of(&slot.facts).is_alone()),
        };
        // SAFETY: the caller's promise.
        unsafe { put(info, shown, "pAllocationInfo") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetAllocationInfo2", allocator, work) };
}

/// Sets the program's own pointer.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaSetAllocationUserData(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    user_data: *mut c_void,
) {
    let work = |of: &Allocator| {
        of.slot(allocation)?.facts.user_data.store(user_data, Relaxed);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on("vmaSetAllocationUserData", allocator, work) };
}

/// Names an allocation, for reports; null takes the name away.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`]; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaSetAllocationName(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    name: *const c_char,
) {
    let work = |of: &Allocator| {
        let slot = of.slot(allocation)?;
        // SAFETY: the caller's promise.
        slot.set_name(unsafe { text(name) });
        if let Some(name) = slot.name_text() {
            slot.with(|memory| memory.set_name(&name));
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { on("vmaSetAllocationName", allocator, work) };
}

/// Writes the properties of an allocation's memory type.
///
/// # Safety
///
/// As for [`vmaAllocateMemory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetAllocationMemoryProperties(
    allocator: VmaAllocator,
    allocation: VmaAllocation,
    flags: *mut vk::MemoryPropertyFlags,
) {
    let work = |of: &Allocator| {
        let found = of.type_flags(About::of(&of.slot(allocation)?.facts).memory_type());
        // SAFETY: the caller's promise.
        unsafe { put(flags, found, "pFlags") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetAllocationMemoryProperties", allocator, work) };
}

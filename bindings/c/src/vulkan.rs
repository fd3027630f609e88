//! Memory for Vulkan buffers and images that the caller made.
#![expect(unsafe_code, reason = "works on handles that the caller owns")]
use crate::allocation::publish;
use crate::handle::{
    ALLOCATIONS, Holder, Native, OmniheapAllocation, OmniheapManager, Pool, holder,
};
use crate::sized::{empty, fill, grows};
use crate::status::{Failure, OmniheapStatus, call, check, put, text};
use crate::timeline::named;
use crate::{
    OMNIHEAP_KIND_DEVICE, OMNIHEAP_KIND_STAGING, OMNIHEAP_KIND_UNIFIED, OMNIHEAP_MOVED_ON_CONSENT,
};
use ash::vk::{self, Handle as _};
use core::{ffi::c_char, ptr};
use omniheap::arbiter::Arbitrated;
use omniheap::layers::Wrapped;
use omniheap::vulkan::{self, Alone, Block, MemoryExtras, Needs, Vulkan};
use omniheap::{
    AllocateError, Allocation, AnyBackend, ErrorKind, HeapId, Request,
    placement::{Sharing, Substitution},
    seam::{AnyBlock, Class, Epoch, HeapKind, Layout},
};
use std::sync::Arc;

mod bind;
pub use bind::*;

/// Place of an allocation in Vulkan's words. Start from `omniheap_vulkan_placed_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapVulkanPlace {
    /// Bytes of this struct, which `omniheap_vulkan_placed_default` sets.
    pub struct_size: usize,
    /// The `VkDeviceMemory`.
    pub memory: u64,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes that were asked for.
    pub size: u64,
}

grows!(filled OmniheapVulkanPlace to size: "place" from "omniheap_vulkan_placed_default");

fn vulkan(holder: &Holder) -> Result<&Vulkan, Failure> {
    arbitrated(holder).map(|vulkan| vulkan.inner())
}

fn arbitrated(holder: &Holder) -> Result<&Arbitrated<Vulkan>, Failure> {
    match &holder.native {
        Native::Vulkan(vulkan) => Ok(vulkan),
        _ => {
            let message = "this manager is not of a Vulkan device; use omniheap_wrap_vulkan";
            Err(Failure::new(OmniheapStatus::Unsupported, message))
        }
    }
}

fn kind(number: u32) -> Result<HeapKind, Failure> {
    match number {
        OMNIHEAP_KIND_DEVICE => Ok(HeapKind::Device),
        OMNIHEAP_KIND_STAGING => Ok(HeapKind::Staging),
        OMNIHEAP_KIND_UNIFIED => Ok(HeapKind::Unified),
        other => Err(Failure::invalid(format!(
            "kind is {other}; pass OMNIHEAP_KIND_DEVICE, _STAGING or _UNIFIED"
        ))),
    }
}

fn class(number: u32) -> Result<Class, Failure> {
    match number {
        crate::OMNIHEAP_CLASS_LINEAR => Ok(Class::Linear),
        crate::OMNIHEAP_CLASS_TILED => Ok(Class::Tiled),
        other => Err(Failure::invalid(format!("class_ is {other}; pass OMNIHEAP_CLASS_…"))),
    }
}

/// Memory that a resource is to get, beyond what it needs.
struct Wanted<'a> {
    request: Request<'a>,
    pool: Option<Arc<Pool>>,
    /// For memory of its own.
    extras: MemoryExtras,
    /// Memory of its own that is tied to it, whatever the driver wants.
    is_tied: bool,
}

impl<'a> Wanted<'a> {
    /// Memory with a name that never moves, unless `flags` says otherwise.
    fn plain(flags: u32, name: Option<&'a str>) -> Result<Self, Failure> {
        let mut request = match flags {
            0 => Request::new(0).pinned(),
            OMNIHEAP_MOVED_ON_CONSENT => Request::new(0).moved_on_consent(),
            other => {
                let message = format!("flags is {other:#x}; pass 0 or OMNIHEAP_MOVED_ON_CONSENT");
                return Err(Failure::invalid(message));
            }
        };
        request.name = name;
        Ok(Self { request, pool: None, extras: MemoryExtras::default(), is_tied: false })
    }

    /// The heaps to try, best first.
    fn heaps<'n>(&self, needs: &'n Needs) -> Result<&'n [HeapId], Failure> {
        let pool = self.pool.as_ref().map(|pool| pool.with(|pool| pool.heap())).transpose()?;
        let only = |heap| {
            let at = needs.heaps.iter().position(|one| *one == heap).ok_or_else(|| {
                let message = "this resource cannot live in the heap of the request or the pool; ask omniheap_vulkan_heap for one that fits";
                Failure::new(OmniheapStatus::NoSuchHeap, message)
            })?;
            Ok(&needs.heaps[at..=at])
        };
        match (pool, self.request.heap) {
            (Some(heap), _) | (None, Some(heap)) => only(heap),
            _ if self.request.substitution == Substitution::Forbidden => Ok(&needs.heaps[..1]),
            _ => Ok(&needs.heaps),
        }
    }
}

/// Memory that a resource gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Part of a block that others share.
    Shared,
    /// Memory of its own that is not tied to it.
    Own,
    /// Memory of its own that is tied to it.
    Tied,
    /// As `Tied`, and as `Shared` where there is no memory left for that.
    RatherTied,
}

impl Way {
    /// Chooses as [`Vulkan::allocate_for`] does. `is_aligned` says whether blocks begin at multiples of what the resource needs.
    const fn of(alone: Alone, is_aligned: bool, sharing: Sharing, is_tied: bool) -> Self {
        match (alone, sharing) {
            _ if is_tied || !is_aligned || matches!(alone, Alone::Required) => Self::Tied,
            (_, Sharing::Dedicated) => Self::Own,
            (Alone::Preferred, _) => Self::RatherTied,
            _ => Self::Shared,
        }
    }
}

/// Allocates what a resource needs, from the first heap that has it: tied to it where the driver insists.
///
/// # Safety
///
/// `resource` is of the manager's device, and `needs` are its own.
unsafe fn allocate<H: vulkan::Native>(
    holder: &Holder,
    resource: H,
    needs: &Needs,
    wanted: &Wanted<'_>,
) -> Result<Allocation<AnyBackend>, Failure> {
    if vulkan(holder)?.has_destroyed() {
        // Frees the memory of resources that were destroyed meanwhile. The calls below report a lost device.
        let _ = holder.manager.retire();
    }
    let Layout { size, align } = needs.layout;
    let layout = Layout { size, align: align.max(wanted.request.layout.align) };
    let mut last = Failure::from(ErrorKind::NoSuchHeap);
    for heap in wanted.heaps(needs)? {
        let request = wanted.request.layout(layout).class(needs.class).heap(*heap);
        // SAFETY: the caller's promise.
        match unsafe { allocate_in(holder, resource, needs, &request, wanted) }? {
            Ok(allocation) => return Ok(allocation),
            Err(error) if error.kind().is_out_of_memory() => last = error.into(),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last)
}

/// Allocates from the heap that the request names.
///
/// # Safety
///
/// As for [`allocate`].
unsafe fn allocate_in<H: vulkan::Native>(
    holder: &Holder,
    resource: H,
    needs: &Needs,
    request: &Request<'_>,
    wanted: &Wanted<'_>,
) -> Result<Result<Allocation<AnyBackend>, AllocateError>, Failure> {
    let heap = request.heap.ok_or(ErrorKind::NoSuchHeap)?;
    let base = holder.manager.caps().heap(heap).map(|heap| heap.align);
    let is_aligned = base.is_none_or(|base| needs.layout.align <= base);
    let way = Way::of(needs.alone, is_aligned, request.sharing, wanted.is_tied);
    if let Some(pool) = &wanted.pool {
        if way == Way::Tied {
            let message =
                "this resource has memory of its own, which is in no pool; leave bind.pool zero";
            return Err(Failure::new(OmniheapStatus::Unsupported, message));
        }
        // Others may lie beside it, and the extras are its own.
        let extras = if way == Way::Own { wanted.extras } else { MemoryExtras::default() };
        return pool.with(|pool| extras.scoped(|| pool.allocate(request)));
    }
    match way {
        Way::Shared => return Ok(holder.manager.allocate(request)),
        Way::Own => return Ok(wanted.extras.scoped(|| holder.manager.allocate(request))),
        Way::Tied | Way::RatherTied => {}
    }
    // SAFETY: the caller's promise.
    let made = unsafe { allocate_tied(holder, resource, needs, request, wanted) }?;
    match made {
        Err(error) if way == Way::RatherTied && error.kind().is_out_of_memory() => {
            Ok(holder.manager.allocate(request))
        }
        made => Ok(made),
    }
}

/// Allocates memory of its own for a resource, tied to it, from the heap that the request names.
///
/// # Safety
///
/// As for [`allocate`].
unsafe fn allocate_tied<H: vulkan::Native>(
    holder: &Holder,
    resource: H,
    needs: &Needs,
    request: &Request<'_>,
    wanted: &Wanted<'_>,
) -> Result<Result<Allocation<AnyBackend>, AllocateError>, Failure> {
    let (arbitrated, size) = (arbitrated(holder)?, needs.layout.size);
    let heap = request.heap.ok_or(ErrorKind::NoSuchHeap)?;
    // SAFETY: the caller's promise.
    let tied = || unsafe { arbitrated.inner().memory_for(resource, needs, heap) };
    // SAFETY: made by the device that is wrapped, for this heap and these bytes.
    let make = || unsafe { arbitrated.allocate_made(heap, size, tied) };
    let make = || wanted.extras.scoped(make).map(|block| Box::new(block) as AnyBlock);
    // SAFETY: made by the manager's own device, for this heap and these bytes, and tied to the resource.
    Ok(unsafe { holder.manager.allocate_made(request, make) })
}

/// # Safety
///
/// `name` is null or a C string.
unsafe fn optional<'a>(name: *const c_char) -> Result<Option<&'a str>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text(name, "name") }.map(Some)
}

fn block<'a>(binding: &'a omniheap::Binding<'_, AnyBackend>) -> Result<&'a Block, Failure> {
    let block = binding.block().downcast_ref::<Wrapped<Block>>();
    block.map(Wrapped::inner).ok_or_else(|| ErrorKind::Foreign.into())
}

/// Allocates memory for a `VkBuffer` and binds it. The buffer stays the caller's; free the allocation after destroying it.
///
/// `flags` is 0 for memory that never moves, or `OMNIHEAP_MOVED_ON_CONSENT`: then `omniheap_defragment_pass` asks about each move,
/// and the caller binds a new buffer at the new place.
///
/// `EXCEEDS_LIMIT` says that too many handles are live. The buffer may be bound then, and has no memory: destroy it.
///
/// # Safety
///
/// `buffer` is a live buffer of the manager's device without memory; `name` is null or a C string; `allocation` is null or may
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_bind_buffer(
    manager: OmniheapManager,
    buffer: u64,
    kind_: u32,
    flags: u32,
    name: *const c_char,
    allocation: *mut OmniheapAllocation,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let (vulkan, buffer) = (vulkan(&holder)?, vk::Buffer::from_raw(buffer));
        if buffer.is_null() {
            return Err(Failure::null("buffer"));
        }
        check(allocation, "allocation")?;
        // SAFETY: the caller's promise.
        let name = unsafe { optional(name) }?;
        // SAFETY: as above.
        let needs = unsafe { vulkan.buffer_needs(buffer, kind(kind_)?) }?;
        // SAFETY: as above.
        let made = unsafe { allocate(&holder, buffer, &needs, &Wanted::plain(flags, name)?) }?;
        let binding = made.binding();
        // SAFETY: as above; the needs are the buffer's own, and the allocation keeps the block.
        unsafe { vulkan.bind_buffer(buffer, &needs, block(&binding)?, binding.span().offset) }?;
        drop(binding);
        // SAFETY: as above.
        unsafe { publish(&holder, made, ptr::null_mut(), allocation) }
    })
}

/// Allocates memory for a `VkImage` and binds it. `class_` is `OMNIHEAP_CLASS_LINEAR` for linear tiling alone; `flags` is as for
/// `omniheap_vulkan_bind_buffer`.
///
/// # Safety
///
/// As for `omniheap_vulkan_bind_buffer`; the image is not disjoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_bind_image(
    manager: OmniheapManager,
    image: u64,
    class_: u32,
    kind_: u32,
    flags: u32,
    name: *const c_char,
    allocation: *mut OmniheapAllocation,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let (vulkan, image) = (vulkan(&holder)?, vk::Image::from_raw(image));
        if image.is_null() {
            return Err(Failure::null("image"));
        }
        check(allocation, "allocation")?;
        let class = class(class_)?;
        // SAFETY: the caller's promise.
        let name = unsafe { optional(name) }?;
        // SAFETY: as above.
        let needs = unsafe { vulkan.image_needs(image, class, kind(kind_)?) }?;
        // SAFETY: as above.
        let made = unsafe { allocate(&holder, image, &needs, &Wanted::plain(flags, name)?) }?;
        let binding = made.binding();
        // SAFETY: as above; the needs are the image's own, and the allocation keeps the block.
        unsafe { vulkan.bind_image(image, &needs, block(&binding)?, binding.span().offset) }?;
        drop(binding);
        // SAFETY: as above.
        unsafe { publish(&holder, made, ptr::null_mut(), allocation) }
    })
}

/// Says the best heap of a kind among the memory types of `memory_type_bits` (`VkMemoryRequirements::memoryTypeBits`).
///
/// For allocations that the caller binds itself: set the heap in the request, and bind at what `omniheap_vulkan_place` says.
///
/// # Safety
///
/// `heap` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_heap(
    manager: OmniheapManager,
    memory_type_bits: u32,
    kind_: u32,
    heap: *mut u32,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let heaps = vulkan(&holder)?.candidates(memory_type_bits, kind(kind_)?);
        let first = heaps.first().ok_or(ErrorKind::NoSuchHeap)?;
        // SAFETY: the caller's promise.
        unsafe { put(heap, u32::from(first.0), "heap") }
    })
}

/// Says where an allocation lies, for `vkBind…Memory` calls of the caller's own.
///
/// # Safety
///
/// `place` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_place(
    allocation: OmniheapAllocation,
    place: *mut OmniheapVulkanPlace,
) -> OmniheapStatus {
    call(|| {
        let bytes = ALLOCATIONS.get(allocation.id)?;
        let binding = bytes.allocation().binding();
        let block = block(&binding)?;
        let memory = block.memory().ok_or_else(|| {
            let message = "this allocation is made of pages, which have no VkDeviceMemory; open with config.paged = 0";
            Failure::new(OmniheapStatus::Unsupported, message)
        })?;
        let offset = binding.span().offset;
        let (memory, size) = (memory.as_raw(), bytes.allocation().size());
        let found = OmniheapVulkanPlace { memory, offset, size, ..empty() };
        // SAFETY: the caller's promise.
        unsafe { fill(place, &found) }
    })
}

/// Gives the queue of a timeline to the caller, who submits in `submit`; nothing else uses the queue meanwhile.
///
/// # Safety
///
/// `submit` is called once, on this thread, with the `VkQueue`, its family and `user`; it does not call omniheap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_with_queue(
    manager: OmniheapManager,
    timeline: u32,
    submit: Option<unsafe extern "C" fn(queue: u64, family: u32, user: *mut core::ffi::c_void)>,
    user: *mut core::ffi::c_void,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let submit = submit.ok_or_else(|| Failure::null("submit"))?;
        let run = |queue: vk::Queue, family| {
            // SAFETY: the caller's promise.
            unsafe { submit(queue.as_raw(), family, user) };
        };
        Ok(vulkan(&holder)?.with_queue(named(timeline)?, run)?)
    })
}

/// Destroys a handle once all work submitted so far has ended, and then frees the memory behind it.
///
/// # Safety
///
/// As for [`Vulkan::retire`].
unsafe fn retire<H: vulkan::Object>(
    handle: H,
    what: &str,
    allocation: OmniheapAllocation,
) -> Result<(), Failure> {
    if handle.is_null() {
        return Err(Failure::null(what));
    }
    let live = ALLOCATIONS.get(allocation.id)?;
    let vulkan = vulkan(live.owner.holder())?;
    let freed = ALLOCATIONS.remove(allocation.id)?;
    // SAFETY: the caller's promise.
    let point = unsafe { vulkan.retire(handle) };
    if point.epoch != Epoch::START {
        // Only one call removes the allocation and gets here, so nothing is set yet.
        let _ = freed.after.set(point);
    }
    Ok(())
}

/// Destroys a `VkBuffer` and frees the memory behind it, once all work submitted so far has ended. Waits for nothing.
///
/// Work counts if it was submitted in `omniheap_vulkan_with_queue`, or by omniheap. For work on other queues set
/// `device.frames_in_flight`. The handles are stale at once.
///
/// # Safety
///
/// `buffer` is of the allocation's device, nobody else destroys it, and no work that uses it is submitted from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_retire_buffer(
    buffer: u64,
    allocation: OmniheapAllocation,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { retire(vk::Buffer::from_raw(buffer), "buffer", allocation) })
}

/// Destroys a `VkImage` as `omniheap_vulkan_retire_buffer` destroys a buffer. Views stay the caller's: destroy each when no work uses it.
///
/// # Safety
///
/// As for `omniheap_vulkan_retire_buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_retire_image(
    image: u64,
    allocation: OmniheapAllocation,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { retire(vk::Image::from_raw(image), "image", allocation) })
}

/// Counts a frame of an engine that set `device.frames_in_flight`: call it once a frame, after its last submission.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_vulkan_end_frame(manager: OmniheapManager) -> OmniheapStatus {
    call(|| Ok(vulkan(&*holder(manager)?)?.end_frame()?))
}

#[cfg(test)]
mod tests;

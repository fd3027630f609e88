//! Buffers and images that are created and bound as a request says, one or many at once.
#![expect(unsafe_code, reason = "works on handles that the caller owns")]
use super::{Wanted, allocate, arbitrated, block, class, kind, vulkan};
use crate::handle::{
    ALLOCATIONS, Bytes, Holder, OmniheapAllocation, OmniheapManager, OmniheapPool, POOLS, holder,
};
use crate::request::{Asked, OmniheapRequest, read};
use crate::sized::{fill, grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, call, check};
use crate::{
    OMNIHEAP_CLASS_TILED, OMNIHEAP_DEDICATED, OMNIHEAP_KIND_DEVICE, OMNIHEAP_MOVED_ON_CONSENT,
    OMNIHEAP_NO_GROW, OMNIHEAP_NO_SUBSTITUTE, OMNIHEAP_PINNED,
};
use ash::vk::{self, Handle as _};
use core::{ffi::c_void, ptr};
use omniheap::vulkan::{Bind, MemoryExtras, Needs, Vulkan};
use omniheap::{
    Allocation, AnyBackend, ErrorKind, Request,
    placement::Mobility,
    seam::{Class, HeapKind},
};
use std::sync::Arc;

/// A buffer or image, and the memory that it is to get. Start from `omniheap_vulkan_bind_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapVulkanBind {
    /// Bytes of this struct, which `omniheap_vulkan_bind_default` sets.
    pub struct_size: usize,
    /// The `VkBuffer`; zero for an image. `omniheap_vulkan_create_buffer` sets it.
    pub buffer: u64,
    /// The `VkImage`; zero for a buffer. `omniheap_vulkan_create_image` sets it.
    pub image: u64,
    /// Set by the call: the memory. Free it after the resource was destroyed, or call `omniheap_vulkan_retire_buffer` or `…_image`.
    pub allocation: OmniheapAllocation,
    /// Name, tag, user, timeline and heap of the memory; of the flags `OMNIHEAP_DEDICATED`, `_PINNED`, `_NO_GROW`, `_MOVED_ON_CONSENT` and
    /// `_NO_SUBSTITUTE`, which tries one heap only. May be null. The size is the resource's, and so is the alignment unless a larger one is asked for.
    /// Without `OMNIHEAP_MOVED_ON_CONSENT` the memory never moves.
    pub request: *const OmniheapRequest,
    /// A pool of blocks for the memory; zero for none in particular.
    pub pool: OmniheapPool,
    /// Chain of `VkBindBufferMemoryInfo` or `VkBindImageMemoryInfo`; may be null.
    pub next: *const c_void,
    /// Chain of `VkMemoryAllocateInfo`; may be null. The resource then has memory of its own, tied to it. Without `VkMemoryDedicatedAllocateInfo`,
    /// `VkMemoryAllocateFlagsInfo` and `VkMemoryPriorityAllocateInfoEXT`, which the library adds itself.
    pub memory_next: *const c_void,
    /// `OMNIHEAP_KIND_DEVICE`, `_STAGING` or `_UNIFIED`.
    pub kind: u32,
    /// For an image that exists: `OMNIHEAP_CLASS_LINEAR` for linear tiling alone.
    pub class_: u32,
    /// Cost of an eviction, from 0 to 1. Used for memory of its own, on devices that take such hints.
    pub priority: f32,
}

grows!(OmniheapVulkanBind to priority: "bind" from "omniheap_vulkan_bind_default");

/// Device memory for a resource; C has it as an inline function.
#[must_use]
pub fn omniheap_vulkan_bind_default() -> OmniheapVulkanBind {
    OmniheapVulkanBind {
        struct_size: size_of::<OmniheapVulkanBind>(),
        buffer: 0,
        image: 0,
        allocation: OmniheapAllocation { id: 0 },
        request: ptr::null(),
        pool: OmniheapPool { id: 0 },
        next: ptr::null(),
        memory_next: ptr::null(),
        kind: OMNIHEAP_KIND_DEVICE,
        class_: OMNIHEAP_CLASS_TILED,
        priority: 0.5,
    }
}

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_vulkan_bind_default` is the short way.
///
/// # Safety
///
/// `bind` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_bind_init(
    bind: *mut OmniheapVulkanBind,
    struct_size: usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(bind, struct_size, &omniheap_vulkan_bind_default()) }
}

/// A resource that gets memory.
#[derive(Clone, Copy)]
enum Resource {
    Buffer(vk::Buffer),
    Image(vk::Image, Class),
}

impl Resource {
    /// The only handle that a description has.
    fn of(bind: &OmniheapVulkanBind) -> Result<Self, Failure> {
        match (bind.buffer, bind.image) {
            (0, 0) => Err(Failure::null("bind.buffer")),
            (buffer, 0) => Ok(Self::Buffer(vk::Buffer::from_raw(buffer))),
            (0, image) => Ok(Self::Image(vk::Image::from_raw(image), class(bind.class_)?)),
            _ => {
                let message = "bind.buffer and bind.image are both set; leave one of them zero";
                Err(Failure::invalid(message))
            }
        }
    }

    /// # Safety
    ///
    /// It is of this device.
    unsafe fn needs(self, vulkan: &Vulkan, kind: HeapKind) -> Result<Needs, Failure> {
        Ok(match self {
            // SAFETY: the caller's promise.
            Self::Buffer(buffer) => unsafe { vulkan.buffer_needs(buffer, kind) }?,
            // SAFETY: as above.
            Self::Image(image, class) => unsafe { vulkan.image_needs(image, class, kind) }?,
        })
    }
}

/// A resource with memory that it is not bound to yet.
struct Ready {
    resource: Resource,
    needs: Needs,
    made: Allocation<AnyBackend>,
    next: *const c_void,
    user: *mut c_void,
}

/// Refuses flags that memory of a resource cannot have.
fn check_flags(flags: u32) -> Result<(), Failure> {
    let known = OMNIHEAP_DEDICATED
        | OMNIHEAP_PINNED
        | OMNIHEAP_NO_GROW
        | OMNIHEAP_MOVED_ON_CONSENT
        | OMNIHEAP_NO_SUBSTITUTE;
    if flags & !known == 0 {
        return Ok(());
    }
    let message = format!(
        "request.flags has {:#x}, which memory of a resource cannot have; allocate, and bind at what omniheap_vulkan_place says",
        flags & !known
    );
    Err(Failure::new(OmniheapStatus::Unsupported, message))
}

/// Reads the memory that a description wants, and its owner's pointer.
///
/// # Safety
///
/// The request of `bind` is null or a request, and its chain what its field says.
unsafe fn wanted<'a>(
    holder: &Arc<Holder>,
    bind: &OmniheapVulkanBind,
) -> Result<(Wanted<'a>, *mut c_void), Failure> {
    let mut asked = Asked { request: Request::new(0), user: ptr::null_mut(), flags: 0 };
    if !bind.request.is_null() {
        // SAFETY: the caller's promise.
        asked = unsafe { read(bind.request) }?;
    }
    check_flags(asked.flags)?;
    if !(0.0..=1.0).contains(&bind.priority) {
        let message = format!("bind.priority is {}; pass a number from 0 to 1", bind.priority);
        return Err(Failure::invalid(message));
    }
    let mut request = asked.request;
    if request.mobility != Mobility::OnConsent {
        request = request.pinned();
    }
    let pool = match bind.pool.id {
        0 => None,
        id => Some(POOLS.get(id)?),
    };
    if pool.as_ref().is_some_and(|pool| !Arc::ptr_eq(pool.owner.holder(), holder)) {
        return Err(ErrorKind::Foreign.into());
    }
    let extras = MemoryExtras::default().priority(bind.priority);
    // SAFETY: the caller's promise; they are used before the call returns.
    let extras = unsafe { extras.next(bind.memory_next) };
    let is_tied = !bind.memory_next.is_null();
    Ok((Wanted { request, pool, extras, is_tied }, asked.user))
}

/// Allocates memory for a resource.
///
/// # Safety
///
/// `bind` holds, and `resource` is of the manager's device.
unsafe fn ready(
    holder: &Arc<Holder>,
    resource: Resource,
    bind: &OmniheapVulkanBind,
) -> Result<Ready, Failure> {
    // SAFETY: the caller's promise.
    let (wanted, user) = unsafe { wanted(holder, bind) }?;
    // SAFETY: as above.
    let needs = unsafe { resource.needs(vulkan(holder)?, kind(bind.kind)?) }?;
    let made = match resource {
        // SAFETY: as above; the needs are its own.
        Resource::Buffer(buffer) => unsafe { allocate(holder, buffer, &needs, &wanted) }?,
        // SAFETY: as above.
        Resource::Image(image, _) => unsafe { allocate(holder, image, &needs, &wanted) }?,
    };
    Ok(Ready { resource, needs, made, next: bind.next, user })
}

/// Binds resources to their memory: all buffers in one call of the driver, all images in another.
///
/// # Safety
///
/// The resources are live, of this device and without memory, and their chains hold.
unsafe fn bind_ready(vulkan: &Vulkan, ready: &[Ready]) -> Result<(), Failure> {
    let bindings: Vec<_> = ready.iter().map(|one| one.made.binding()).collect();
    let (mut buffers, mut images) = (Vec::new(), Vec::new());
    for (one, binding) in ready.iter().zip(&bindings) {
        let (block, offset) = (block(binding)?, binding.span().offset);
        let (needs, next) = (&one.needs, one.next);
        match one.resource {
            Resource::Buffer(handle) => buffers.push(Bind { handle, needs, block, offset, next }),
            Resource::Image(handle, _) => images.push(Bind { handle, needs, block, offset, next }),
        }
    }
    // SAFETY: the caller's promise; the needs are their own, and the allocations keep the blocks.
    unsafe { vulkan.bind_buffers(&buffers) }?;
    // SAFETY: as above.
    Ok(unsafe { vulkan.bind_images(&images) }?)
}

/// Gives all memory handles, or none of it.
fn handles(holder: &Arc<Holder>, ready: Vec<Ready>) -> Result<Vec<OmniheapAllocation>, Failure> {
    let mut made = Vec::with_capacity(ready.len());
    for one in ready {
        let bytes = Bytes::new(one.made, holder);
        bytes.set_user(one.user);
        match ALLOCATIONS.insert(bytes) {
            Ok(id) => made.push(OmniheapAllocation { id }),
            Err(failure) => {
                made.iter().for_each(|one| drop(ALLOCATIONS.remove(one.id)));
                return Err(failure);
            }
        }
    }
    Ok(made)
}

/// Allocates memory for many buffers and images, each as it says, and binds them: the buffers in one call of the driver, the images in another.
/// Sets `allocation` of each.
///
/// On failure no memory is kept. Where a bind fails, some of the resources may be bound: destroy all of them.
///
/// # Safety
///
/// `binds` is null, or `count` descriptions lie there, each with the same `struct_size`, which may be written. Their buffers and images are live, of
/// the manager's device, without memory, and not disjoint; their chains are what the fields say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_bind_many(
    manager: OmniheapManager,
    binds: *mut OmniheapVulkanBind,
    count: usize,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let vulkan = vulkan(&holder)?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let places = unsafe { places(binds, count) }?;
        let (mut said, mut all) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for place in &places {
            // SAFETY: as above.
            let bind = unsafe { read_sized(*place, omniheap_vulkan_bind_default()) }?;
            // SAFETY: as above.
            all.push(unsafe { ready(&holder, Resource::of(&bind)?, &bind) }?);
            said.push(bind);
        }
        // SAFETY: as above.
        unsafe { bind_ready(vulkan, &all) }?;
        let made = handles(&holder, all)?;
        for ((place, bind), allocation) in places.into_iter().zip(said).zip(made) {
            // SAFETY: as above.
            unsafe { fill(place, &OmniheapVulkanBind { allocation, ..bind }) }?;
        }
        Ok(())
    })
}

/// Returns the address of each description. The first one's `struct_size` is the distance between two.
///
/// # Safety
///
/// As for `omniheap_vulkan_bind_many`.
unsafe fn places(
    binds: *mut OmniheapVulkanBind,
    count: usize,
) -> Result<Vec<*mut OmniheapVulkanBind>, Failure> {
    // SAFETY: the caller's promise.
    let first = unsafe { read_sized(binds, omniheap_vulkan_bind_default()) }?;
    let stride = first.struct_size;
    let whole = stride.checked_mul(count).filter(|bytes| isize::try_from(*bytes).is_ok());
    whole.ok_or(ErrorKind::SizeOverflow)?;
    let at = |which: usize| binds.cast::<u8>().wrapping_add(which * stride).cast();
    let places: Vec<*mut OmniheapVulkanBind> = (0..count).map(at).collect();
    for (which, place) in places.iter().enumerate() {
        check(*place, "bind")?;
        // SAFETY: the caller promises so many descriptions of this size, which start with it.
        let said = unsafe { place.cast::<usize>().read() };
        if said != stride {
            let message = format!(
                "binds[{which}].struct_size is {said}, and that of the first {stride}; start all from omniheap_vulkan_bind_default()"
            );
            return Err(Failure::invalid(message));
        }
    }
    Ok(places)
}

/// Creates a `VkBuffer`, allocates memory for it as `bind` says, and binds it. Sets `bind.buffer` and `bind.allocation`; on failure nothing is left.
///
/// End it with `omniheap_vulkan_retire_buffer`, or destroy the buffer and free the allocation.
///
/// # Safety
///
/// `info` is null or a `VkBufferCreateInfo` that is valid for the manager's device; `bind` is null or a description that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_create_buffer(
    manager: OmniheapManager,
    info: *const c_void,
    bind: *mut OmniheapVulkanBind,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let info = info.cast::<vk::BufferCreateInfo<'_>>();
        // SAFETY: the caller's promise.
        let said = unsafe { described(info, vk::StructureType::BUFFER_CREATE_INFO, bind) }?;
        let device = vulkan(&holder)?.ash_device();
        // SAFETY: as above; `described` checked the pointer.
        let info = unsafe { &*info };
        // SAFETY: as above.
        let buffer = unsafe { device.create_buffer(info, None) }.map_err(refused)?;
        // SAFETY: as above; created just now.
        let made = unsafe { finish(&holder, Resource::Buffer(buffer), &said) };
        // SAFETY: created just now, and never used.
        let made = made.inspect_err(|_| unsafe { device.destroy_buffer(buffer, None) })?;
        let made = OmniheapVulkanBind { buffer: buffer.as_raw(), allocation: made, ..said };
        // SAFETY: as above.
        unsafe { fill(bind, &made) }
    })
}

/// Creates a `VkImage`, as `omniheap_vulkan_create_buffer` does a buffer. Its class is that of its tiling. Sets `bind.image`.
///
/// # Safety
///
/// `info` is null or a `VkImageCreateInfo` that is valid for the manager's device, and not disjoint; `bind` is null or a description that may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_vulkan_create_image(
    manager: OmniheapManager,
    info: *const c_void,
    bind: *mut OmniheapVulkanBind,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let info = info.cast::<vk::ImageCreateInfo<'_>>();
        // SAFETY: the caller's promise.
        let said = unsafe { described(info, vk::StructureType::IMAGE_CREATE_INFO, bind) }?;
        let device = vulkan(&holder)?.ash_device();
        // SAFETY: as above; `described` checked the pointer.
        let info = unsafe { &*info };
        let linear = info.tiling == vk::ImageTiling::LINEAR;
        let class = if linear { Class::Linear } else { Class::Tiled };
        // SAFETY: as above.
        let image = unsafe { device.create_image(info, None) }.map_err(refused)?;
        // SAFETY: as above; created just now.
        let made = unsafe { finish(&holder, Resource::Image(image, class), &said) };
        // SAFETY: created just now, and never used.
        let made = made.inspect_err(|_| unsafe { device.destroy_image(image, None) })?;
        let made = OmniheapVulkanBind { image: image.as_raw(), allocation: made, ..said };
        // SAFETY: as above.
        unsafe { fill(bind, &made) }
    })
}

/// Checks that `info` begins as a structure of Vulkan of this type, and reads what is said of the memory.
///
/// # Safety
///
/// `info` is null, or not aligned, or a structure of Vulkan; `bind` is null or a description.
unsafe fn described<T>(
    info: *const T,
    of: vk::StructureType,
    bind: *const OmniheapVulkanBind,
) -> Result<OmniheapVulkanBind, Failure> {
    check(info, "info")?;
    // SAFETY: not null and aligned, and every structure of Vulkan begins with its type.
    let found = unsafe { info.cast::<vk::StructureType>().read() };
    if found != of {
        let message = format!("info.sType is {}; pass {of:?}", found.as_raw());
        return Err(Failure::invalid(message));
    }
    // SAFETY: the caller's promise.
    let said = unsafe { read_sized(bind, omniheap_vulkan_bind_default()) }?;
    if (said.buffer, said.image) != (0, 0) {
        let message = "bind.buffer and bind.image are made by the call; leave them zero, or call omniheap_vulkan_bind_many";
        return Err(Failure::invalid(message));
    }
    Ok(said)
}

/// Allocates memory for a fresh resource and binds it.
///
/// # Safety
///
/// As for [`ready`]; the resource has no memory.
unsafe fn finish(
    holder: &Arc<Holder>,
    resource: Resource,
    said: &OmniheapVulkanBind,
) -> Result<OmniheapAllocation, Failure> {
    // SAFETY: the caller's promise.
    let one = [unsafe { ready(holder, resource, said) }?];
    // SAFETY: as above.
    unsafe { bind_ready(arbitrated(holder)?.inner(), &one) }?;
    Ok(handles(holder, one.into())?[0])
}

/// The driver's answer to a resource that it does not make.
fn refused(result: vk::Result) -> Failure {
    let status = match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => OmniheapStatus::OutOfDeviceMemory,
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => OmniheapStatus::OutOfHostMemory,
        vk::Result::ERROR_DEVICE_LOST => OmniheapStatus::DeviceLost,
        _ => OmniheapStatus::Driver,
    };
    Failure::new(status, format!("the driver does not make the resource: {result}"))
}

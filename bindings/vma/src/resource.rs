//! Calls that make buffers and images with their memory, bind them, and find their memory types.
#![expect(unsafe_code, reason = "makes and binds resources of the program's device")]
use crate::abi::{
    VMA_ALLOCATION_CREATE_DONT_BIND_BIT, VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT,
    VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE5_BIT, VmaAllocation, VmaAllocationCreateInfo,
    VmaAllocationInfo, VmaAllocator,
};
use crate::allocator::{Allocator, on, with};
use crate::args::{chained, put, read, read_info};
use crate::call::Refused;
use crate::choice::Access;
use crate::info::hand_out;
use crate::memory::{Ask, Content, Resource};
use crate::slots::Facts;
use ash::vk::{self, Handle};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

type BufferInfo = vk::BufferCreateInfo<'static>;
type ImageInfo = vk::ImageCreateInfo<'static>;

/// Buffers or images: both are made, queried and bound in the same way.
trait Kind: Handle + Copy {
    type Info: Copy;

    /// Refuses descriptions that no driver accepts. Returns usage and content.
    ///
    /// # Safety
    ///
    /// The chain of `info` is valid.
    unsafe fn check(of: &Allocator, info: &Self::Info) -> Result<(Access, Content, u32), Refused>;

    /// # Safety
    ///
    /// `info` is valid.
    unsafe fn create(of: &Allocator, info: &Self::Info) -> Result<Self, Refused>;

    /// # Safety
    ///
    /// The device's own, and nothing uses it.
    unsafe fn destroy(self, of: &Allocator);

    /// Asks what it needs; of Vulkan 1.0 without a chain, which then stays as it is.
    ///
    /// # Safety
    ///
    /// The device's own.
    unsafe fn needs(self, of: &Allocator, needs: &mut vk::MemoryRequirements2<'_>);

    /// Asks what a resource would need, without making it.
    ///
    /// # Safety
    ///
    /// `info` is valid, and the device can be asked so.
    unsafe fn needs_of(of: &Allocator, info: &Self::Info, needs: &mut vk::MemoryRequirements2<'_>);

    /// # Safety
    ///
    /// The device's own and not bound; the memory suits it, and the chain is valid.
    unsafe fn bind(
        self,
        of: &Allocator,
        memory: vk::DeviceMemory,
        offset: u64,
        next: *const c_void,
    ) -> ash::prelude::VkResult<()>;

    fn resource(self) -> Resource;
}

/// Returns the refusal of a resource that the driver cannot make.
fn empty(what: &'static str) -> Refused {
    Refused::quietly(vk::Result::ERROR_INITIALIZATION_FAILED, what)
}

impl Kind for vk::Buffer {
    type Info = BufferInfo;

    unsafe fn check(of: &Allocator, info: &BufferInfo) -> Result<(Access, Content, u32), Refused> {
        let mut usage = info.usage.as_raw();
        if of.flags & VMA_ALLOCATOR_CREATE_KHR_MAINTENANCE5_BIT != 0 {
            let kind = vk::StructureType::BUFFER_USAGE_FLAGS_2_CREATE_INFO_KHR;
            // SAFETY: the caller's promise.
            let longer =
                unsafe { chained::<vk::BufferUsageFlags2CreateInfoKHR<'_>>(info.p_next, kind) };
            if let Some(longer) = longer {
                // The lower half has the same bits; the upper ones are uses by the device.
                let (low, high) =
                    (longer.usage.as_raw() & u64::from(u32::MAX), longer.usage.as_raw() >> 32);
                usage = u32::try_from(low).unwrap_or(0) | if high == 0 { 0 } else { 1 << 31 };
            }
        }
        if info.size == 0 {
            return Err(empty("the size of the buffer is zero"));
        }
        let flags = vk::BufferUsageFlags::from_raw(usage);
        let has_address = flags.contains(vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS);
        if has_address && of.flags & VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT == 0 {
            return Err(Refused::invalid(
                "a buffer with a device address needs VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT",
            ));
        }
        let access = if usage == 0 { Access::Unknown } else { Access::of_buffer(flags) };
        Ok((access, Content::Buffer, usage))
    }

    unsafe fn create(of: &Allocator, info: &BufferInfo) -> Result<Self, Refused> {
        // SAFETY: the caller's promise.
        Ok(unsafe { of.device().create_buffer(info, of.callbacks.as_ref()) }?)
    }

    unsafe fn destroy(self, of: &Allocator) {
        // SAFETY: the caller's promise.
        unsafe { of.device().destroy_buffer(self, of.callbacks.as_ref()) };
    }

    unsafe fn needs(self, of: &Allocator, needs: &mut vk::MemoryRequirements2<'_>) {
        if !of.newer.asks_chains {
            // SAFETY: the caller's promise.
            needs.memory_requirements = unsafe { of.device().get_buffer_memory_requirements(self) };
            return;
        }
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(self);
        // SAFETY: the caller's promise.
        unsafe { of.device().get_buffer_memory_requirements2(&info, needs) };
    }

    unsafe fn needs_of(of: &Allocator, info: &BufferInfo, needs: &mut vk::MemoryRequirements2<'_>) {
        let info = vk::DeviceBufferMemoryRequirements::default().create_info(info);
        // SAFETY: the caller's promise.
        unsafe { of.device().get_device_buffer_memory_requirements(&info, needs) };
    }

    unsafe fn bind(
        self,
        of: &Allocator,
        memory: vk::DeviceMemory,
        offset: u64,
        next: *const c_void,
    ) -> ash::prelude::VkResult<()> {
        if next.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { of.device().bind_buffer_memory(self, memory, offset) };
        }
        let mut info = vk::BindBufferMemoryInfo::default().buffer(self).memory(memory);
        (info.memory_offset, info.p_next) = (offset, next);
        // SAFETY: the caller's promise.
        unsafe { of.device().bind_buffer_memory2(&[info]) }
    }

    fn resource(self) -> Resource {
        Resource::Buffer(self)
    }
}

impl Kind for vk::Image {
    type Info = ImageInfo;

    unsafe fn check(_: &Allocator, info: &ImageInfo) -> Result<(Access, Content, u32), Refused> {
        let extent = info.extent;
        let sizes = [extent.width, extent.height, extent.depth, info.mip_levels, info.array_layers];
        if sizes.contains(&0) {
            return Err(empty("the image has no texels"));
        }
        let content = match info.tiling {
            vk::ImageTiling::LINEAR => Content::ImageLinear,
            _ => Content::ImageOptimal,
        };
        let access =
            if info.usage.is_empty() { Access::Unknown } else { Access::of_image(info.usage) };
        Ok((access, content, info.usage.as_raw()))
    }

    unsafe fn create(of: &Allocator, info: &ImageInfo) -> Result<Self, Refused> {
        // SAFETY: the caller's promise.
        Ok(unsafe { of.device().create_image(info, of.callbacks.as_ref()) }?)
    }

    unsafe fn destroy(self, of: &Allocator) {
        // SAFETY: the caller's promise.
        unsafe { of.device().destroy_image(self, of.callbacks.as_ref()) };
    }

    unsafe fn needs(self, of: &Allocator, needs: &mut vk::MemoryRequirements2<'_>) {
        if !of.newer.asks_chains {
            // SAFETY: the caller's promise.
            needs.memory_requirements = unsafe { of.device().get_image_memory_requirements(self) };
            return;
        }
        let info = vk::ImageMemoryRequirementsInfo2::default().image(self);
        // SAFETY: the caller's promise.
        unsafe { of.device().get_image_memory_requirements2(&info, needs) };
    }

    unsafe fn needs_of(of: &Allocator, info: &ImageInfo, needs: &mut vk::MemoryRequirements2<'_>) {
        let info = vk::DeviceImageMemoryRequirements::default().create_info(info);
        // SAFETY: the caller's promise.
        unsafe { of.device().get_device_image_memory_requirements(&info, needs) };
    }

    unsafe fn bind(
        self,
        of: &Allocator,
        memory: vk::DeviceMemory,
        offset: u64,
        next: *const c_void,
    ) -> ash::prelude::VkResult<()> {
        if next.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { of.device().bind_image_memory(self, memory, offset) };
        }
        let mut info = vk::BindImageMemoryInfo::default().image(self).memory(memory);
        (info.memory_offset, info.p_next) = (offset, next);
        // SAFETY: the caller's promise.
        unsafe { of.device().bind_image_memory2(&[info]) }
    }

    fn resource(self) -> Resource {
        Resource::Image(self)
    }
}

/// Queries the memory requirements of a resource.
///
/// # Safety
///
/// `resource` is the device's own.
unsafe fn ask<K: Kind>(of: &Allocator, resource: K, known: (Access, Content, u32)) -> Ask {
    let mut own = vk::MemoryDedicatedRequirements::default();
    let mut needs = vk::MemoryRequirements2::default().push_next(&mut own);
    // SAFETY: the caller's promise.
    unsafe { resource.needs(of, &mut needs) };
    let needs = needs.memory_requirements;
    Ask {
        size: needs.size,
        align: needs.alignment,
        types: needs.memory_type_bits,
        resource: resource.resource(),
        content: known.1,
        access: known.0,
        usage: known.2,
        needs_own: own.requires_dedicated_allocation == vk::TRUE,
        likes_own: own.prefers_dedicated_allocation == vk::TRUE,
        next: ptr::null(),
    }
}

/// Out-pointers of a call that makes a resource.
struct Out<K> {
    resource: *mut K,
    allocation: *mut VmaAllocation,
    info: *mut VmaAllocationInfo,
}

/// Arguments of such a call beside its two structs.
struct More {
    align: u64,
    /// True if the resource must have memory of its own.
    is_alone: bool,
    next: *const c_void,
}

const NO_MORE: More = More { align: 1, is_alone: false, next: ptr::null() };

/// Makes a resource with its memory. A failure leaves nothing behind.
///
/// # Safety
///
/// As for the exported functions.
unsafe fn create<K: Kind>(
    of: &Allocator,
    info: *const K::Info,
    wanted: *const VmaAllocationCreateInfo,
    more: &More,
    out: &Out<K>,
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    unsafe { put(out.resource, K::from_raw(0), "the resource") }?;
    // SAFETY: as above.
    unsafe { put(out.allocation, VmaAllocation::NULL, "pAllocation") }?;
    let align = more.align.max(1);
    if !align.is_power_of_two() {
        return Err(Refused::invalid(format!("minAlignment {align} is no power of two")));
    }
    // SAFETY: as above.
    let info = unsafe { read(info, "the description of the resource") }?;
    // SAFETY: as above.
    let wanted = unsafe { read_info(wanted, of.layout) }?;
    // SAFETY: as above.
    let known = unsafe { K::check(of, &info) }?;
    // SAFETY: as above.
    let resource = unsafe { K::create(of, &info) }?;
    // SAFETY: made just now.
    let asked = unsafe { ask(of, resource, known) };
    let needs_own = asked.needs_own || more.is_alone;
    let asked = Ask { align: asked.align.max(align), needs_own, next: more.next, ..asked };
    // SAFETY: the caller's promise; the handle's place was written above.
    let made = unsafe { hand_out(of, asked, &wanted, out.allocation, out.info) };
    let bound = made.and_then(|slot| match wanted.flags & VMA_ALLOCATION_CREATE_DONT_BIND_BIT {
        // SAFETY: made here, with its own memory.
        0 => unsafe { bind_at(of, &slot.facts, 0, resource, ptr::null()) },
        _ => Ok(()),
    });
    if let Err(why) = bound {
        // SAFETY: made here, and nothing used it.
        unsafe { resource.destroy(of) };
        // SAFETY: written above, and again if memory was made.
        let allocation = unsafe { read(out.allocation, "pAllocation") }?;
        of.free(allocation)?;
        // SAFETY: the caller's promise.
        unsafe { put(out.allocation, VmaAllocation::NULL, "pAllocation") }?;
        return Err(why);
    }
    // SAFETY: as above.
    unsafe { put(out.resource, resource, "the resource") }
}

/// Binds a resource at an offset of an allocation.
///
/// # Safety
///
/// The resource is the device's own and not bound, and the chain is valid.
unsafe fn bind<K: Kind>(
    of: &Allocator,
    allocation: VmaAllocation,
    offset: u64,
    resource: K,
    next: *const c_void,
) -> Result<(), Refused> {
    let facts = &of.slot(allocation)?.facts;
    if resource.is_null() {
        return Err(Refused::invalid("the buffer or image is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { bind_at(of, facts, offset, resource, next) }
}

/// As [`bind`], to an allocation that is live.
///
/// # Safety
///
/// As for [`bind`].
#[inline]
unsafe fn bind_at<K: Kind>(
    of: &Allocator,
    facts: &Facts,
    offset: u64,
    resource: K,
    next: *const c_void,
) -> Result<(), Refused> {
    if offset >= facts.size.load(Relaxed) {
        return Err(Refused::invalid("the offset lies behind the allocation"));
    }
    if !next.is_null() && !of.newer.binds_chains {
        let why = "a chain needs Vulkan 1.1 or VK_KHR_bind_memory2";
        return Err(Refused::new(vk::Result::ERROR_EXTENSION_NOT_PRESENT, why));
    }
    let memory = vk::DeviceMemory::from_raw(facts.memory.load(Relaxed));
    // SAFETY: the caller's promise; live memory.
    Ok(unsafe { resource.bind(of, memory, facts.offset.load(Relaxed) + offset, next) }?)
}

/// Makes a resource over bytes of an allocation that others may share.
///
/// # Safety
///
/// As for the exported functions.
unsafe fn create_over<K: Kind>(
    of: &Allocator,
    allocation: VmaAllocation,
    offset: u64,
    info: *const K::Info,
    out: *mut K,
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    unsafe { put(out, K::from_raw(0), "the resource") }?;
    // SAFETY: as above.
    let info = unsafe { read(info, "the description of the resource") }?;
    let whole = of.slot(allocation)?.facts.size.load(Relaxed);
    // SAFETY: as above.
    let known = unsafe { K::check(of, &info) }?;
    // SAFETY: as above.
    let resource = unsafe { K::create(of, &info) }?;
    // SAFETY: made just now.
    let needed = unsafe { ask(of, resource, known) }.size;
    let bound = match offset.checked_add(needed).is_some_and(|end| end <= whole) {
        // SAFETY: made just now.
        true => unsafe { bind(of, allocation, offset, resource, ptr::null()) },
        false => Err(Refused::invalid("the resource leaves the allocation")),
    };
    if let Err(why) = bound {
        // SAFETY: made here, and nothing used it.
        unsafe { resource.destroy(of) };
        return Err(why);
    }
    // SAFETY: the caller's promise.
    unsafe { put(out, resource, "the resource") }
}

/// Destroys a resource and frees its memory; either may be null. If the memory is not live, the resource stays: it may have been
/// destroyed already, and its handle must not reach the driver again.
///
/// # Safety
///
/// As for the exported functions.
unsafe fn destroy<K: Kind>(
    of: &Allocator,
    resource: K,
    allocation: VmaAllocation,
) -> Result<(), Refused> {
    // If several threads destroy both, the call that ends the allocation destroys the resource.
    of.free_after(allocation, || {
        if !resource.is_null() {
            // SAFETY: the caller's promise.
            unsafe { resource.destroy(of) };
        }
    })
}

/// Allocates memory for a resource of the program, and does not bind it.
///
/// # Safety
///
/// As for the exported functions.
unsafe fn allocate_for<K: Kind>(
    of: &Allocator,
    resource: K,
    content: Content,
    wanted: *const VmaAllocationCreateInfo,
    (allocation, info): (*mut VmaAllocation, *mut VmaAllocationInfo),
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    unsafe { put(allocation, VmaAllocation::NULL, "pAllocation") }?;
    // SAFETY: as above.
    let wanted = unsafe { read_info(wanted, of.layout) }?;
    if resource.is_null() {
        return Err(Refused::invalid("the buffer or image is null"));
    }
    // SAFETY: as above.
    let asked = unsafe { ask(of, resource, (Access::Unknown, content, 0)) };
    // SAFETY: as above; the handle's place was written.
    unsafe { hand_out(of, asked, &wanted, allocation, info) }?;
    Ok(())
}

/// Finds the memory type that would serve a resource.
///
/// # Safety
///
/// As for the exported functions.
unsafe fn find_for<K: Kind>(
    of: &Allocator,
    info: *const K::Info,
    wanted: *const VmaAllocationCreateInfo,
    found: *mut u32,
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    let info = unsafe { read(info, "the description of the resource") }?;
    // SAFETY: as above.
    let wanted = unsafe { read_info(wanted, of.layout) }?;
    // SAFETY: as above.
    let known = unsafe { K::check(of, &info) }?;
    let mut needs = vk::MemoryRequirements2::default();
    if of.newer.asks_infos {
        // SAFETY: as above.
        unsafe { K::needs_of(of, &info, &mut needs) };
    } else {
        // SAFETY: as above.
        let resource = unsafe { K::create(of, &info) }?;
        // SAFETY: made just now.
        unsafe { resource.needs(of, &mut needs) };
        // SAFETY: made just now, and nothing used it.
        unsafe { resource.destroy(of) };
    }
    let types = needs.memory_requirements.memory_type_bits;
    let memory_type = of.types.find(types, &wanted, known.0)?;
    // SAFETY: the caller's promise.
    unsafe { put(found, memory_type, "pMemoryTypeIndex") }
}

/// Exports a function of an allocator that returns a result.
macro_rules! export {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),* $(,)?) = |$of:ident| $work:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Pointers are null, or what C says; the resources are the device's own. No other thread destroys the allocator.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(allocator: VmaAllocator, $($argument: $kind),*) -> vk::Result {
            // SAFETY: the caller's promise.
            let work = |$of: &Allocator| unsafe { $work };
            // SAFETY: as above.
            unsafe { with(stringify!($name), allocator, work) }
        }
    )*};
}

export! {
    /// Makes a buffer with its memory.
    vmaCreateBuffer(
        info: *const BufferInfo,
        wanted: *const VmaAllocationCreateInfo,
        resource: *mut vk::Buffer,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| create(of, info, wanted, &NO_MORE, &Out { resource, allocation, info: shown });

    /// Makes a buffer with its memory, at a multiple of `align`.
    vmaCreateBufferWithAlignment(
        info: *const BufferInfo,
        wanted: *const VmaAllocationCreateInfo,
        align: u64,
        resource: *mut vk::Buffer,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| create(of, info, wanted, &More { align, ..NO_MORE }, &Out { resource, allocation, info: shown });

    /// Makes a buffer with memory of its own, and a chain for the driver.
    vmaCreateDedicatedBuffer(
        info: *const BufferInfo,
        wanted: *const VmaAllocationCreateInfo,
        next: *mut c_void,
        resource: *mut vk::Buffer,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| create(of, info, wanted, &More { is_alone: true, next, ..NO_MORE }, &Out { resource, allocation, info: shown });

    /// Makes an image with its memory.
    vmaCreateImage(
        info: *const ImageInfo,
        wanted: *const VmaAllocationCreateInfo,
        resource: *mut vk::Image,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| create(of, info, wanted, &NO_MORE, &Out { resource, allocation, info: shown });

    /// Makes an image with memory of its own, and a chain for the driver.
    vmaCreateDedicatedImage(
        info: *const ImageInfo,
        wanted: *const VmaAllocationCreateInfo,
        next: *mut c_void,
        resource: *mut vk::Image,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| create(of, info, wanted, &More { is_alone: true, next, ..NO_MORE }, &Out { resource, allocation, info: shown });

    /// Makes a buffer over the first bytes of an allocation.
    vmaCreateAliasingBuffer(
        allocation: VmaAllocation,
        info: *const BufferInfo,
        buffer: *mut vk::Buffer,
    ) = |of| create_over(of, allocation, 0, info, buffer);

    /// Makes a buffer over bytes of an allocation.
    vmaCreateAliasingBuffer2(
        allocation: VmaAllocation,
        offset: u64,
        info: *const BufferInfo,
        buffer: *mut vk::Buffer,
    ) = |of| create_over(of, allocation, offset, info, buffer);

    /// Makes an image over the first bytes of an allocation.
    vmaCreateAliasingImage(
        allocation: VmaAllocation,
        info: *const ImageInfo,
        image: *mut vk::Image,
    ) = |of| create_over(of, allocation, 0, info, image);

    /// Makes an image over bytes of an allocation.
    vmaCreateAliasingImage2(
        allocation: VmaAllocation,
        offset: u64,
        info: *const ImageInfo,
        image: *mut vk::Image,
    ) = |of| create_over(of, allocation, offset, info, image);

    /// Allocates memory for a buffer, and does not bind it.
    vmaAllocateMemoryForBuffer(
        buffer: vk::Buffer,
        wanted: *const VmaAllocationCreateInfo,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| allocate_for(of, buffer, Content::Buffer, wanted, (allocation, shown));

    /// Allocates memory for an image, and does not bind it.
    vmaAllocateMemoryForImage(
        image: vk::Image,
        wanted: *const VmaAllocationCreateInfo,
        allocation: *mut VmaAllocation,
        shown: *mut VmaAllocationInfo,
    ) = |of| allocate_for(of, image, Content::ImageUnknown, wanted, (allocation, shown));

    /// Binds a buffer to an allocation.
    vmaBindBufferMemory(
        allocation: VmaAllocation,
        buffer: vk::Buffer,
    ) = |of| bind(of, allocation, 0, buffer, ptr::null());

    /// Binds a buffer at an offset of an allocation, with a chain.
    vmaBindBufferMemory2(
        allocation: VmaAllocation,
        offset: u64,
        buffer: vk::Buffer,
        next: *const c_void,
    ) = |of| bind(of, allocation, offset, buffer, next);

    /// Binds an image to an allocation.
    vmaBindImageMemory(
        allocation: VmaAllocation,
        image: vk::Image,
    ) = |of| bind(of, allocation, 0, image, ptr::null());

    /// Binds an image at an offset of an allocation, with a chain.
    vmaBindImageMemory2(
        allocation: VmaAllocation,
        offset: u64,
        image: vk::Image,
        next: *const c_void,
    ) = |of| bind(of, allocation, offset, image, next);

    /// Finds the memory type that would serve a buffer.
    vmaFindMemoryTypeIndexForBufferInfo(
        info: *const BufferInfo,
        wanted: *const VmaAllocationCreateInfo,
        found: *mut u32,
    ) = |of| find_for::<vk::Buffer>(of, info, wanted, found);

    /// Finds the memory type that would serve an image.
    vmaFindMemoryTypeIndexForImageInfo(
        info: *const ImageInfo,
        wanted: *const VmaAllocationCreateInfo,
        found: *mut u32,
    ) = |of| find_for::<vk::Image>(of, info, wanted, found);
}

/// Finds the memory type among those whose bits are set that suits best.
///
/// # Safety
///
/// As for [`vmaCreateBuffer`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaFindMemoryTypeIndex(
    allocator: VmaAllocator,
    types: u32,
    wanted: *const VmaAllocationCreateInfo,
    found: *mut u32,
) -> vk::Result {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        let wanted = unsafe { read_info(wanted, of.layout) }?;
        let memory_type = of.types.find(types, &wanted, Access::Unknown)?;
        // SAFETY: as above.
        unsafe { put(found, memory_type, "pMemoryTypeIndex") }
    };
    // SAFETY: as above.
    unsafe { with("vmaFindMemoryTypeIndex", allocator, work) }
}

/// Destroys a buffer and frees its memory; either may be null.
///
/// # Safety
///
/// As for [`vmaCreateBuffer`]; the device has finished with both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaDestroyBuffer(
    allocator: VmaAllocator,
    buffer: vk::Buffer,
    allocation: VmaAllocation,
) {
    // SAFETY: the caller's promise.
    let work = |of: &Allocator| unsafe { destroy(of, buffer, allocation) };
    // SAFETY: as above.
    unsafe { on("vmaDestroyBuffer", allocator, work) };
}

/// Destroys an image and frees its memory; either may be null.
///
/// # Safety
///
/// As for [`vmaDestroyBuffer`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaDestroyImage(
    allocator: VmaAllocator,
    image: vk::Image,
    allocation: VmaAllocation,
) {
    // SAFETY: the caller's promise.
    let work = |of: &Allocator| unsafe { destroy(of, image, allocation) };
    // SAFETY: as above.
    unsafe { on("vmaDestroyImage", allocator, work) };
}

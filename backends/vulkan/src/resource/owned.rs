//! A buffer or image together with its memory, in one call.
#![expect(unsafe_code, reason = "works on handles that the caller describes")]
use crate::{
    Block, Needs, Vulkan,
    driver::check,
    timeline::{
        retired::{Object, Retired},
        whole::{When, Whole},
    },
};
use ash::vk;
use omniheap_core::{AllocateError, Allocation, Manager};
use omniheap_seam::{Class, Epoch, HeapKind, Point, Result, TimelineId};
use std::sync::Arc;

/// A buffer or image handle.
pub trait Native: Object + sealed::Sealed {}
impl Native for vk::Buffer {}
impl Native for vk::Image {}

pub(crate) mod sealed {
    use super::vk;

    pub trait Sealed {
        fn dedicated(self) -> vk::MemoryDedicatedAllocateInfo<'static>;
    }

    impl Sealed for vk::Buffer {
        fn dedicated(self) -> vk::MemoryDedicatedAllocateInfo<'static> {
            vk::MemoryDedicatedAllocateInfo::default().buffer(self)
        }
    }

    impl Sealed for vk::Image {
        fn dedicated(self) -> vk::MemoryDedicatedAllocateInfo<'static> {
            vk::MemoryDedicatedAllocateInfo::default().image(self)
        }
    }
}

/// A buffer or image with its memory, which counts against its manager's budgets.
///
/// Dropping it waits for nothing. Both are [retired](Vulkan::retire): they are destroyed once all work submitted so far has ended.
///
/// Two kinds of drop lock a timeline, and would deadlock inside its [`with_queue`](Vulkan::with_queue): memory with
/// [`use_on`](Allocation::use_on) that timeline, and a secret, because it is zeroed there.
#[derive(Debug)]
pub struct Resource<H: Native> {
    handle: H,
    memory: Option<Allocation<Vulkan>>,
    whole: Arc<Whole>,
}

impl<H: Native> Resource<H> {
    /// Returns the native handle; never destroy it.
    #[must_use]
    pub const fn handle(&self) -> H {
        self.handle
    }

    /// Returns the memory behind it.
    ///
    /// # Panics
    ///
    /// Never: the memory leaves only in `drop`.
    pub const fn memory(&self) -> &Allocation<Vulkan> {
        self.memory.as_ref().expect("a finished resource has its memory")
    }

    /// Returns the handle, for a twin to take its place.
    pub(super) const fn handle_mut(&mut self) -> &mut H {
        &mut self.handle
    }

    /// Destroys it without waiting.
    ///
    /// # Safety
    ///
    /// No device work uses it any more.
    pub unsafe fn destroy_now(self) {
        // SAFETY: the caller's promise.
        let memory = unsafe { self.destroy_handle() };
        drop(memory);
    }

    /// Destroys the handle without waiting, and returns the memory.
    ///
    /// # Safety
    ///
    /// No device work uses it any more.
    pub(super) unsafe fn destroy_handle(mut self) -> Option<Allocation<Vulkan>> {
        let memory = self.memory.take()?;
        // SAFETY: made for this device by `finish`; `drop` finds no memory and does nothing more. For the rest, the caller's promise.
        self.whole.destroy(unsafe { Retired::new(self.handle) });
        Some(memory)
    }
}

impl<H: Native> Drop for Resource<H> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // SAFETY: made for this device by `finish`, given up once because the memory is taken now; `Whole` destroys it when the work
        // so far has ended, and the owner submits none any more that uses it.
        match self.whole.retire(unsafe { Retired::new(self.handle) }) {
            When::Now => drop(memory),
            When::At(epoch) => {
                memory.free_after(Point { timeline: TimelineId::ALL, epoch: Epoch(epoch) });
            }
        }
    }
}

impl Vulkan {
    /// Creates a buffer, allocates memory for it as [`allocate_for`](Self::allocate_for) does, and binds it.
    ///
    /// # Errors
    ///
    /// As for [`buffer_needs`](Self::buffer_needs) and [`allocate_for`](Self::allocate_for); the driver's error. Nothing is left
    /// behind.
    ///
    /// # Safety
    ///
    /// `info` is valid for the manager's device, as the specification says.
    // Inline: compiled where it is called, and with it the manager, which takes four times as long as the rest of this crate.
    #[inline]
    pub unsafe fn create_buffer(
        manager: &Manager<Self>,
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Buffer>, AllocateError> {
        // SAFETY: the caller's promise.
        let (handle, needs) = unsafe { manager.backend().new_buffer(info, kind) }?;
        // SAFETY: fresh, with its own needs.
        unsafe { finish_buffer(manager, handle, needs) }
    }

    /// Creates a buffer as [`create_buffer`](Self::create_buffer) does, in memory that a pass of
    /// [`begin_defragment`](omniheap_core::Manager::begin_defragment) may move if the owner agrees. Dedicated memory does not move.
    ///
    /// The owner decides [`OwnerCopies`](omniheap_core::Decision::OwnerCopies), and makes a [`Twin`](crate::Twin) at the new place.
    ///
    /// # Errors
    ///
    /// As for [`create_buffer`](Self::create_buffer).
    ///
    /// # Safety
    ///
    /// As for [`create_buffer`](Self::create_buffer). After a move of its memory was committed, the handle is not used until
    /// [`switch_to`](Resource::switch_to) has replaced it. All work that used the old handle has ended by then.
    #[inline] // as above
    pub unsafe fn create_movable_buffer(
        manager: &Manager<Self>,
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Buffer>, AllocateError> {
        // SAFETY: the caller's promise.
        let (handle, needs) = unsafe { manager.backend().new_buffer(info, kind) }?;
        // SAFETY: fresh, with its own needs.
        unsafe { finish_buffer(manager, handle, needs.map(Needs::moved_on_consent)) }
    }

    /// Creates an image, allocates memory for it as [`allocate_for`](Self::allocate_for) does, and binds it.
    ///
    /// # Errors
    ///
    /// As for [`create_buffer`](Self::create_buffer).
    ///
    /// # Safety
    ///
    /// `info` is valid for the manager's device, as the specification says, and not disjoint.
    #[inline] // as above
    pub unsafe fn create_image(
        manager: &Manager<Self>,
        info: &vk::ImageCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Image>, AllocateError> {
        // SAFETY: the caller's promise.
        let (handle, needs) = unsafe { manager.backend().new_image(info, kind) }?;
        // SAFETY: fresh, with its own needs.
        unsafe { finish_image(manager, handle, needs) }
    }

    /// Creates an image as [`create_image`](Self::create_image) does, in memory that may move like that of a [movable
    /// buffer](Self::create_movable_buffer).
    ///
    /// # Errors
    ///
    /// As for [`create_image`](Self::create_image).
    ///
    /// # Safety
    ///
    /// As for [`create_image`](Self::create_image) and [`create_movable_buffer`](Self::create_movable_buffer).
    #[inline] // as above
    pub unsafe fn create_movable_image(
        manager: &Manager<Self>,
        info: &vk::ImageCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Image>, AllocateError> {
        // SAFETY: the caller's promise.
        let (handle, needs) = unsafe { manager.backend().new_image(info, kind) }?;
        // SAFETY: fresh, with its own needs.
        unsafe { finish_image(manager, handle, needs.map(Needs::moved_on_consent)) }
    }

    /// Creates a buffer without memory; returns it with its needs.
    ///
    /// # Safety
    ///
    /// As for [`create_buffer`](Self::create_buffer).
    pub(super) unsafe fn new_buffer(
        &self,
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<(vk::Buffer, Result<Needs>)> {
        // SAFETY: the caller's promise.
        let handle = check(unsafe { self.device.raw.create_buffer(info, None) })?;
        // SAFETY: created just above.
        Ok((handle, unsafe { self.buffer_needs(handle, kind) }))
    }

    /// Creates an image without memory; returns it with its needs.
    ///
    /// # Safety
    ///
    /// As for [`create_image`](Self::create_image).
    pub(super) unsafe fn new_image(
        &self,
        info: &vk::ImageCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<(vk::Image, Result<Needs>)> {
        let linear = info.tiling == vk::ImageTiling::LINEAR;
        let class = if linear { Class::Linear } else { Class::Tiled };
        // SAFETY: the caller's promise.
        let handle = check(unsafe { self.device.raw.create_image(info, None) })?;
        // SAFETY: created just above.
        Ok((handle, unsafe { self.image_needs(handle, class, kind) }))
    }
}

/// Allocates and binds memory of a fresh buffer. See [`finish`].
///
/// # Safety
///
/// The buffer is fresh, of the manager's device, and these are its needs.
pub(super) unsafe fn finish_buffer(
    manager: &Manager<Vulkan>,
    handle: vk::Buffer,
    needs: Result<Needs>,
) -> Result<Resource<vk::Buffer>, AllocateError> {
    finish(manager, handle, needs, |needs, block, offset| {
        // SAFETY: the caller's promise; the resource keeps the memory, which stays unless its owner moves it.
        unsafe { manager.backend().bind_buffer(handle, needs, block, offset) }
    })
}

/// Allocates and binds memory of a fresh image. See [`finish`].
///
/// # Safety
///
/// As for [`finish_buffer`].
pub(super) unsafe fn finish_image(
    manager: &Manager<Vulkan>,
    handle: vk::Image,
    needs: Result<Needs>,
) -> Result<Resource<vk::Image>, AllocateError> {
    finish(manager, handle, needs, |needs, block, offset| {
        // SAFETY: as in `finish_buffer`.
        unsafe { manager.backend().bind_image(handle, needs, block, offset) }
    })
}

/// Allocates and binds; on failure the handle is destroyed.
fn finish<H: Native>(
    manager: &Manager<Vulkan>,
    handle: H,
    needs: Result<Needs>,
    bind: impl FnOnce(&Needs, &Block, u64) -> Result<()>,
) -> Result<Resource<H>, AllocateError> {
    let whole = &manager.backend().whole;
    let bound = needs.map_err(AllocateError::from).and_then(|needs| {
        // SAFETY: the only callers pass a handle that they have just created, with its needs.
        let memory = unsafe { Vulkan::allocate_for(manager, handle, &needs) }?;
        let binding = memory.binding();
        bind(&needs, binding.block(), binding.span().offset)?;
        drop(binding);
        Ok(memory)
    });
    match bound {
        Ok(memory) => Ok(Resource { handle, memory: Some(memory), whole: Arc::clone(whole) }),
        Err(why) => {
            // SAFETY: created by the caller of this function, never used.
            whole.destroy(unsafe { Retired::new(handle) });
            Err(why)
        }
    }
}

//! Memory for an engine's own buffers and images.
#![expect(unsafe_code, reason = "works on handles that the caller owns")]
pub(crate) mod owned;
pub(crate) mod recipe;
pub(crate) mod sleepable;
pub(crate) mod texels;
pub(crate) mod twin;

use crate::{
    Block, Native, Vulkan,
    block::Shared,
    caps::{Table, features::Feature},
    driver::{
        check,
        objects::{Ask, Memory, Share},
        physical::budgets,
    },
};
use ash::vk;
use core::ffi::c_void;
use omniheap_core::{AllocateError, Allocation, Manager, Request};
use omniheap_seam::{Align, Class, ErrorKind, HeapBudget, HeapId, HeapKind, Layout, Result};

/// Preference of a resource for a dedicated allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The resource may share a block.
    No,
    /// The driver would be faster.
    Preferred,
    /// The driver insists.
    Required,
}

/// Memory requirements of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Bytes and alignment.
    pub layout: Layout,
    /// Class, which decides what may be its neighbour.
    pub class: Class,
    /// Preference for a dedicated allocation.
    pub alone: Alone,
    /// The heaps it may live in, best first; never empty.
    pub heaps: Vec<HeapId>,
    types: u32,
    mobility: Mobility,
}

/// A buffer or image, and the place that it is bound to: see [`Vulkan::bind_buffers`].
#[derive(Clone, Copy, Debug)]
pub struct Bind<'a, H: Native> {
    /// The buffer or image.
    pub handle: H,
    /// Its needs.
    pub needs: &'a Needs,
    /// The block that it is bound to.
    pub block: &'a Block,
    /// Bytes from the block's start.
    pub offset: u64,
    /// Chain of its `VkBind…MemoryInfo`; may be null.
    pub next: *const c_void,
}

/// Permission to move the memory of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mobility {
    Pinned,
    OnConsent,
    /// Pinned, and it goes back to the driver by itself when the resource sleeps.
    Leaving,
}

impl Needs {
    /// Returns the same needs in memory that may move when the owner agrees. The owner then creates the resource again at the new place.
    ///
    /// Dedicated memory never moves.
    #[must_use]
    pub const fn moved_on_consent(mut self) -> Self {
        self.mobility = Mobility::OnConsent;
        self
    }

    /// Returns the same needs in the best heap alone, and if possible in memory that is for the resource alone: it goes back to the driver as a whole.
    pub(crate) fn leaving_by_itself(mut self) -> Self {
        self.heaps.truncate(1);
        self.mobility = Mobility::Leaving;
        self.alone = match self.alone {
            Alone::No => Alone::Preferred,
            alone => alone,
        };
        self
    }

    /// Returns requests to try, best heap first. They are pinned, because a resource is bound for life, unless the needs say
    /// otherwise.
    ///
    /// They share blocks. [`Vulkan::allocate_for`] also gives a resource memory of its own where it wants some.
    pub fn requests(&self) -> impl Iterator<Item = Request<'static>> + '_ {
        self.heaps.iter().map(|heap| self.request(*heap))
    }

    fn request(&self, heap: HeapId) -> Request<'static> {
        let request = Request::new(self.layout.size).heap(heap);
        let request = request.align(self.layout.align).class(self.class);
        match self.mobility {
            Mobility::Pinned | Mobility::Leaving => request.pinned(),
            Mobility::OnConsent => request.moved_on_consent(),
        }
    }
}

impl Vulkan {
    /// Returns the heaps whose memory type is in `type_bits`, best first for `kind`, those with special properties left out.
    ///
    /// If one is full, skip those with the same [`physical`](omniheap_seam::Heap::physical) and try the next.
    #[must_use]
    pub fn candidates(&self, type_bits: u32, kind: HeapKind) -> Vec<HeapId> {
        self.table.candidates(type_bits, kind)
    }

    /// Returns the heaps whose memory type is in `type_bits` and has all of `flags`: how special memory is asked for.
    #[must_use]
    pub fn heaps_with(&self, type_bits: u32, flags: vk::MemoryPropertyFlags) -> Vec<HeapId> {
        self.table.with_flags(type_bits, flags)
    }

    /// Returns the driver's budget of every one of its own heaps, by one call; `None` where it tells none.
    #[must_use]
    pub fn budgets(&self) -> Option<[HeapBudget; vk::MAX_MEMORY_HEAPS]> {
        let tells = self.device.features.has(Feature::MemoryBudget);
        // SAFETY: the physical device is this instance's, and has the extension.
        tells.then(|| unsafe { budgets(&self.device.instance, self.device.physical) })
    }

    /// Returns the memory type behind a heap.
    #[must_use]
    pub fn memory_type(&self, heap: HeapId) -> Option<u32> {
        self.table.slots.get(usize::from(heap.0)).map(|slot| slot.memory_type)
    }

    /// Returns the alignment that offsets into a shared buffer need for these uses.
    #[must_use]
    pub fn offset_align(&self, usage: vk::BufferUsageFlags) -> Align {
        use vk::BufferUsageFlags as U;
        let limits = &self.limits;
        let texel = U::UNIFORM_TEXEL_BUFFER | U::STORAGE_TEXEL_BUFFER;
        let descriptors = U::RESOURCE_DESCRIPTOR_BUFFER_EXT | U::SAMPLER_DESCRIPTOR_BUFFER_EXT;
        [
            (U::UNIFORM_BUFFER, limits.min_uniform_buffer_offset_alignment),
            (U::STORAGE_BUFFER, limits.min_storage_buffer_offset_alignment),
            (texel, limits.min_texel_buffer_offset_alignment),
            (descriptors, self.alignments.descriptors),
            (U::SHADER_BINDING_TABLE_KHR, self.alignments.binding_table),
            // The specification's own number.
            (U::ACCELERATION_STRUCTURE_STORAGE_KHR, 256),
        ]
        .into_iter()
        .filter(|(flag, _)| usage.intersects(*flag))
        .map(|(_, align)| crate::caps::power(align))
        .fold(Align::ONE, Align::max)
    }

    /// Translates what the driver asks for on behalf of a resource.
    ///
    /// # Errors
    ///
    /// `ZeroSize`, `InvalidAlignment`, `NoSuchHeap` when no heap fits both the resource and `kind`, `ExceedsLimit` when
    /// all that do are too small.
    pub fn needs(
        &self,
        asked: vk::MemoryRequirements,
        alone: Alone,
        class: Class,
        kind: HeapKind,
    ) -> Result<Needs> {
        let align = Align::new(asked.alignment).ok_or(ErrorKind::InvalidAlignment)?;
        if asked.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let mut heaps = self.candidates(asked.memory_type_bits, kind);
        if heaps.is_empty() {
            return Err(ErrorKind::NoSuchHeap.into());
        }
        heaps.retain(|id| self.table.caps.heap(*id).is_some_and(|h| h.max_block >= asked.size));
        if heaps.is_empty() {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let layout = Layout { size: asked.size, align };
        let (types, mobility) = (asked.memory_type_bits, Mobility::Pinned);
        Ok(Needs { layout, class, alone, heaps, types, mobility })
    }

    /// Returns the memory requirements of a buffer.
    ///
    /// # Errors
    ///
    /// As for [`needs`](Self::needs).
    ///
    /// # Safety
    ///
    /// `buffer` belongs to this device.
    pub unsafe fn buffer_needs(&self, buffer: vk::Buffer, kind: HeapKind) -> Result<Needs> {
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        let mut own = vk::MemoryDedicatedRequirements::default();
        let mut asked = vk::MemoryRequirements2::default().push_next(&mut own);
        // SAFETY: the caller's promise; the chain outlives the call.
        unsafe { self.device.raw.get_buffer_memory_requirements2(&info, &mut asked) };
        let asked = asked.memory_requirements;
        self.needs(asked, alone(own), Class::Linear, kind)
    }

    /// Returns the memory requirements of an image; `class` is [`Class::Linear`] only for linear tiling.
    ///
    /// # Errors
    ///
    /// As for [`needs`](Self::needs).
    ///
    /// # Safety
    ///
    /// `image` belongs to this device and is not disjoint.
    pub unsafe fn image_needs(
        &self,
        image: vk::Image,
        class: Class,
        kind: HeapKind,
    ) -> Result<Needs> {
        let info = vk::ImageMemoryRequirementsInfo2::default().image(image);
        let mut own = vk::MemoryDedicatedRequirements::default();
        let mut asked = vk::MemoryRequirements2::default().push_next(&mut own);
        // SAFETY: the caller's promise; the chain outlives the call.
        unsafe { self.device.raw.get_image_memory_requirements2(&info, &mut asked) };
        let asked = asked.memory_requirements;
        self.needs(asked, alone(own), class, kind)
    }

    /// Binds a buffer at `offset` of a block. Two resources may be bound to the same bytes: they then alias.
    ///
    /// # Errors
    ///
    /// `Foreign`, `Unsupported` (paged, exportable, imported, or dedicated to another resource), `NoSuchHeap` (the buffer cannot live
    /// there), `Misaligned`, `OutOfRange`; the driver's error.
    ///
    /// # Safety
    ///
    /// `buffer` belongs to this device, is not bound, and `needs` are its own; the block outlives its use.
    pub unsafe fn bind_buffer(
        &self,
        buffer: vk::Buffer,
        needs: &Needs,
        block: &Block,
        offset: u64,
    ) -> Result<()> {
        let memory = self.fits(buffer, needs, block, offset)?;
        // SAFETY: the caller's promise, and `fits` checked type, alignment and range.
        check(unsafe { self.device.raw.bind_buffer_memory(buffer, memory, offset) })
    }

    /// Binds an image at `offset` of a block, as [`bind_buffer`](Self::bind_buffer) does a buffer.
    ///
    /// # Errors
    ///
    /// As for [`bind_buffer`](Self::bind_buffer).
    ///
    /// # Safety
    ///
    /// As for [`bind_buffer`](Self::bind_buffer).
    pub unsafe fn bind_image(
        &self,
        image: vk::Image,
        needs: &Needs,
        block: &Block,
        offset: u64,
    ) -> Result<()> {
        let memory = self.fits(image, needs, block, offset)?;
        // SAFETY: the caller's promise, and `fits` checked type, alignment and range.
        check(unsafe { self.device.raw.bind_image_memory(image, memory, offset) })
    }

    /// Binds buffers in one call of the driver, each with a chain of its own.
    ///
    /// # Errors
    ///
    /// As for [`bind_buffer`](Self::bind_buffer), before any is bound; the driver's error, and then nobody knows which are bound:
    /// destroy them.
    ///
    /// # Safety
    ///
    /// As for [`bind_buffer`](Self::bind_buffer), for each; each `next` is null or a chain that may extend `VkBindBufferMemoryInfo`.
    pub unsafe fn bind_buffers(&self, binds: &[Bind<'_, vk::Buffer>]) -> Result<()> {
        let info = |bind: &Bind<'_, vk::Buffer>| {
            let memory = self.fits(bind.handle, bind.needs, bind.block, bind.offset)?;
            let info = vk::BindBufferMemoryInfo::default().buffer(bind.handle).memory(memory);
            Ok(vk::BindBufferMemoryInfo { p_next: bind.next, ..info.memory_offset(bind.offset) })
        };
        let infos = binds.iter().map(info).collect::<Result<Vec<_>>>()?;
        if infos.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise, and `fits` checked type, alignment and range of each.
        check(unsafe { self.device.raw.bind_buffer_memory2(&infos) })
    }

    /// Binds images in one call of the driver, as [`bind_buffers`](Self::bind_buffers) does buffers.
    ///
    /// # Errors
    ///
    /// As for [`bind_buffers`](Self::bind_buffers).
    ///
    /// # Safety
    ///
    /// As for [`bind_image`](Self::bind_image), for each; each `next` is null or a chain that may extend `VkBindImageMemoryInfo`.
    pub unsafe fn bind_images(&self, binds: &[Bind<'_, vk::Image>]) -> Result<()> {
        let info = |bind: &Bind<'_, vk::Image>| {
            let memory = self.fits(bind.handle, bind.needs, bind.block, bind.offset)?;
            let info = vk::BindImageMemoryInfo::default().image(bind.handle).memory(memory);
            Ok(vk::BindImageMemoryInfo { p_next: bind.next, ..info.memory_offset(bind.offset) })
        };
        let infos = binds.iter().map(info).collect::<Result<Vec<_>>>()?;
        if infos.is_empty() {
            return Ok(());
        }
        // SAFETY: as for buffers.
        check(unsafe { self.device.raw.bind_image_memory2(&infos) })
    }

    fn fits<H: Native>(
        &self,
        handle: H,
        needs: &Needs,
        block: &Block,
        offset: u64,
    ) -> Result<vk::DeviceMemory> {
        block.belongs_to(&self.device)?;
        let memory = block.memory().ok_or(ErrorKind::Unsupported)?;
        if block.shared() != Shared::No {
            let why = "the block is shared by descriptor, and only its own buffer was made for that; bind other memory";
            return Err(ErrorKind::Unsupported.because(why));
        }
        let (_, slot) = self.heap(block.heap())?;
        if needs.types & (1 << slot.memory_type) == 0 {
            return Err(ErrorKind::NoSuchHeap.into());
        }
        let own = block.owner().is_some_and(|owner| owner == handle.as_raw());
        if !own && (block.owner().is_some() || needs.alone == Alone::Required) {
            return Err(ErrorKind::Unsupported.into());
        }
        if !needs.layout.align.divides(offset) || own && offset != 0 {
            return Err(ErrorKind::Misaligned.into());
        }
        block.covers(offset, needs.layout.size)?;
        Ok(memory)
    }

    /// Returns whether anything that was retired has been destroyed since the last call. The memory behind it is freed by the next
    /// [`Manager::retire`](omniheap_core::Manager::retire), which [`allocate_for`](Self::allocate_for) calls by itself.
    pub fn has_destroyed(&self) -> bool {
        self.whole.has_destroyed()
    }

    /// Allocates memory for this buffer or image, as the driver wants it.
    ///
    /// A resource that [requires](Alone::Required) memory of its own gets it. One that [prefers](Alone::Preferred) it gets it too,
    /// unless no heap has room for that, or so many driver allocations live that the device may refuse more. So does one whose
    /// alignment is above what blocks of its heaps have: memory of its own starts at offset zero, which meets every alignment.
    /// Everything else shares blocks. Heaps are tried in the order of `needs`, and all of it counts against the manager's budgets.
    ///
    /// Pages cannot be bound to a resource, so where the manager's pools are made of pages each resource gets memory of its own; make
    /// the manager with [`ManagerConfig::plain`](omniheap_core::ManagerConfig::plain) to let resources share blocks.
    ///
    /// # Errors
    ///
    /// As for [`Manager::allocate`], about the last heap tried.
    ///
    /// # Safety
    ///
    /// `handle` belongs to the manager's device and `needs` are its own.
    pub unsafe fn allocate_for<H: Native>(
        manager: &Manager<Self>,
        handle: H,
        needs: &Needs,
    ) -> Result<Allocation<Self>, AllocateError> {
        let vulkan = manager.backend();
        if vulkan.has_destroyed() {
            // Frees the memory of resources that were destroyed meanwhile. The calls below report a lost device.
            let _ = manager.retire();
        }
        let (caps, align) = (manager.caps(), needs.layout.align);
        let has_align = |heap: &HeapId| caps.heap(*heap).is_some_and(|heap| align <= heap.align);
        let may_share = needs.alone != Alone::Required && needs.heaps.iter().all(has_align);
        let prefers_alone = needs.alone == Alone::Preferred && !vulkan.device.is_near_limit();
        if prefers_alone || !may_share {
            // SAFETY: the caller's promise.
            let made = unsafe { Self::allocate_alone(manager, handle, needs) };
            match made {
                // What leaves by itself takes no hole of a shared block: it would give nothing back, and others can make room for it.
                Err(why)
                    if may_share
                        && needs.mobility != Mobility::Leaving
                        && why.kind().is_out_of_memory() => {}
                made => return made,
            }
        }
        let shared = vulkan.table.first_that_gives(&needs.heaps, AllocateError::kind, |heap| {
            manager.allocate(&needs.request(heap))
        })?;
        if shared.binding().block().memory().is_some() {
            return Ok(shared);
        }
        drop(shared);
        // SAFETY: the caller's promise.
        unsafe { Self::allocate_alone(manager, handle, needs) }
    }

    /// Allocates memory that is only for this buffer or image: what [`Alone`] prefers or requires.
    ///
    /// The memory counts against the manager's budgets. Heaps are tried in the order of `needs`; when one is full, so
    /// are the others of its physical memory.
    ///
    /// # Errors
    ///
    /// As for [`Manager::allocate_made`], about the last heap tried.
    ///
    /// # Safety
    ///
    /// `handle` belongs to the manager's device and `needs` are its own.
    pub unsafe fn allocate_alone<H: Native>(
        manager: &Manager<Self>,
        handle: H,
        needs: &Needs,
    ) -> Result<Allocation<Self>, AllocateError> {
        let vulkan = manager.backend();
        vulkan.table.first_that_gives(&needs.heaps, AllocateError::kind, |heap| {
            // SAFETY: the caller's promise.
            let make = || unsafe { vulkan.memory_for(handle, needs, heap) };
            // SAFETY: made by the manager's own device, in this heap, with these bytes, for this resource alone.
            unsafe { manager.allocate_made(&needs.request(heap), make) }
        })
    }

    /// Allocates dedicated memory for this buffer or image, in one heap.
    ///
    /// No manager counts it by itself: it is what [`Manager::allocate_made`] wants made. [`allocate_alone`](Self::allocate_alone)
    /// does both.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `Unsupported` for a heap that needs a feature which is not enabled; the driver's error.
    ///
    /// # Safety
    ///
    /// `handle` belongs to this device and `needs` are its own.
    pub unsafe fn memory_for<H: Native>(
        &self,
        handle: H,
        needs: &Needs,
        heap: HeapId,
    ) -> Result<Block> {
        // SAFETY: the caller's promise.
        unsafe { self.memory_tied(heap, needs.layout.size, handle) }
    }

    /// Allocates memory as [`memory_for`](Self::memory_for) does, for a size that the caller knows.
    ///
    /// # Errors
    ///
    /// As for [`memory_for`](Self::memory_for).
    ///
    /// # Safety
    ///
    /// `handle` belongs to this device, needs `size` bytes, and may live in this heap.
    pub unsafe fn memory_tied<H: Native>(
        &self,
        heap: HeapId,
        size: u64,
        handle: H,
    ) -> Result<Block> {
        let block = self.memory_alone(heap, size, Some(handle.dedicated()))?;
        Ok(block.owned_by(handle.as_raw()))
    }

    /// Allocates exactly `size` bytes of device memory that is not tied to a resource. [`Manager::allocate_made`] takes such a block.
    ///
    /// # Errors
    ///
    /// As for [`memory_for`](Self::memory_for), and `ZeroSize`.
    pub fn memory_untied(&self, heap: HeapId, size: u64) -> Result<Block> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        self.memory_alone(heap, size, None)
    }

    fn memory_alone(
        &self,
        heap: HeapId,
        size: u64,
        dedicated: Option<vk::MemoryDedicatedAllocateInfo<'static>>,
    ) -> Result<Block> {
        let (_, slot) = self.heap(heap)?;
        self.enabled(slot)?;
        let (memory_type, share) = (slot.memory_type, Share::No);
        let ask = Ask { size, memory_type, priority: None, dedicated, share };
        let memory = Memory::allocate(&self.device, ask)?;
        Ok(Block::with_memory(&self.device, heap, size, None, memory, Shared::No))
    }
}

fn alone(own: vk::MemoryDedicatedRequirements<'_>) -> Alone {
    match (own.requires_dedicated_allocation, own.prefers_dedicated_allocation) {
        (vk::TRUE, _) => Alone::Required,
        (_, vk::TRUE) => Alone::Preferred,
        _ => Alone::No,
    }
}

impl Table {
    /// Returns the heaps whose memory type is in `type_bits` and has all of `flags`, in ranked order, special ones too.
    pub(crate) fn with_flags(&self, type_bits: u32, flags: vk::MemoryPropertyFlags) -> Vec<HeapId> {
        self.in_types(type_bits)
            .filter(|(_, slot, _)| slot.flags.contains(flags))
            .map(|(id, ..)| id)
            .collect()
    }

    /// Tries `heaps` in turn. If one is full, so are the others of its physical memory.
    ///
    /// # Errors
    ///
    /// `DeviceLost` at once, else what the last heap that was asked says; `NoSuchHeap` where there is none to ask.
    pub(crate) fn first_that_gives<T, E: From<ErrorKind>>(
        &self,
        heaps: &[HeapId],
        kind: impl Fn(&E) -> ErrorKind,
        mut ask: impl FnMut(HeapId) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut full = Vec::new();
        let mut outcome = Err(ErrorKind::NoSuchHeap.into());
        for id in heaps.iter().copied() {
            let Some(heap) = self.caps.heap(id).filter(|heap| !full.contains(&heap.physical))
            else {
                continue;
            };
            outcome = ask(id);
            match &outcome {
                Err(why) if kind(why) == ErrorKind::OutOfDeviceMemory => full.push(heap.physical),
                Err(why) if kind(why) != ErrorKind::DeviceLost => {}
                _ => break,
            }
        }
        outcome
    }
}

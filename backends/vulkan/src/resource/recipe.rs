//! Descriptions by which buffers and images are created again, and by which their bytes come and go.
#![expect(unsafe_code, reason = "works on handles of resources that sleep")]
use super::{
    Needs,
    owned::{Native, Resource, finish_buffer, finish_image},
    texels::Texels,
};
use crate::{
    Exclusive, Vulkan,
    transfer::{Staged, region},
};
use ash::vk;
use core::{fmt, slice::from_raw_parts};
use omniheap_core::{AllocateError, Manager};
use omniheap_seam::{ErrorKind, HeapKind, Result, TimelineId};

/// Timeline on which bytes come and go.
pub(super) const ON: TimelineId = TimelineId::MAIN;

/// State of a resource for copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Without contents.
    Fresh,
    /// Its bytes are being copied in.
    Filling,
    /// As its owner uses it.
    Resting,
    /// Its bytes are being copied out.
    Leaving,
}

/// Description of a buffer or image, from which it can be created again.
pub(super) trait Recipe<H: Native>: fmt::Debug + Send + Sync {
    /// Returns the number of bytes that come and go.
    fn size(&self) -> u64;

    /// Creates it with memory, without contents.
    ///
    /// # Safety
    ///
    /// The description is valid for the manager's device.
    unsafe fn make(&self, manager: &Manager<Vulkan>) -> Result<Resource<H>, AllocateError>;

    /// Makes it ready for what comes next.
    fn turn(&self, vulkan: &Vulkan, handle: H, from: Phase, to: Phase) -> Result<()>;

    /// Copies bytes to it that start `at` bytes in it, while it is filled.
    fn send(&self, vulkan: &Vulkan, handle: H, at: u64, bytes: &[u8]) -> Result<()>;

    /// Copies bytes from it that start `at` bytes in it, while it leaves; waits for them.
    fn fetch(&self, vulkan: &Vulkan, handle: H, at: u64, bytes: &mut [u8]) -> Result<()>;
}

const BOTH_WAYS: &str =
    "a resource that sleeps is copied both ways; add TRANSFER_SRC and TRANSFER_DST to its usage";
const OWN_PLACE: &str = "the buffer has flags (sparse, protected, or a captured address), or keeps acceleration structures or micromaps, which do not live at another address; implement `Sleepable` for it";
const CHAINED: &str = "the description has a `p_next` chain, which cannot be kept; implement `Sleepable` for this resource";

/// Description of a buffer.
#[derive(Clone, Debug)]
pub(super) struct BufferRecipe {
    size: u64,
    usage: vk::BufferUsageFlags,
    sharing: vk::SharingMode,
    families: Vec<u32>,
    kind: HeapKind,
}

impl BufferRecipe {
    /// # Safety
    ///
    /// `info` is valid.
    pub(super) unsafe fn of(
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
        main: u32,
    ) -> Result<Self> {
        use vk::BufferUsageFlags as U;
        if !info.p_next.is_null() {
            return Err(ErrorKind::Unsupported.because(CHAINED));
        }
        if !info.usage.contains(U::TRANSFER_SRC | U::TRANSFER_DST) {
            return Err(ErrorKind::Unsupported.because(BOTH_WAYS));
        }
        let at_home = U::ACCELERATION_STRUCTURE_STORAGE_KHR | U::MICROMAP_STORAGE_EXT;
        if !info.flags.is_empty() || info.usage.intersects(at_home) {
            return Err(ErrorKind::Unsupported.because(OWN_PLACE));
        }
        let (all, count) = (info.p_queue_family_indices, info.queue_family_index_count);
        // SAFETY: the caller's promise.
        let families = unsafe { families(info.sharing_mode, all, count, main) }?;
        let (size, usage, sharing) = (info.size, info.usage, info.sharing_mode);
        Ok(Self { size, usage, sharing, families, kind })
    }
}

impl Recipe<vk::Buffer> for BufferRecipe {
    fn size(&self) -> u64 {
        self.size
    }

    unsafe fn make(
        &self,
        manager: &Manager<Vulkan>,
    ) -> Result<Resource<vk::Buffer>, AllocateError> {
        let info = vk::BufferCreateInfo::default()
            .size(self.size)
            .usage(self.usage)
            .sharing_mode(self.sharing)
            .queue_family_indices(&self.families);
        // SAFETY: the caller's promise.
        let (handle, needs) = unsafe { manager.backend().new_buffer(&info, self.kind) }?;
        // SAFETY: fresh, with its own needs.
        unsafe { finish_buffer(manager, handle, needs.map(Needs::leaving_by_itself)) }
    }

    fn turn(&self, _: &Vulkan, _: vk::Buffer, _: Phase, _: Phase) -> Result<()> {
        Ok(())
    }

    fn send(&self, vulkan: &Vulkan, handle: vk::Buffer, at: u64, bytes: &[u8]) -> Result<()> {
        let timeline = vulkan.timelines.get(ON)?;
        Vulkan::send(&timeline, bytes, |commands, piece| {
            let region = region(piece.start, at + piece.offset, piece.size);
            vulkan.record_copy(commands, piece.buffer, handle, &[region]);
        })
    }

    fn fetch(&self, vulkan: &Vulkan, handle: vk::Buffer, at: u64, bytes: &mut [u8]) -> Result<()> {
        let timeline = vulkan.timelines.get(ON)?;
        Vulkan::fetch(&timeline, bytes, |commands, piece| {
            let region = region(at + piece.offset, piece.start, piece.size);
            vulkan.record_copy(commands, handle, piece.buffer, &[region]);
        })
    }
}

/// Description of an image.
#[derive(Clone, Debug)]
pub(super) struct ImageRecipe {
    flags: vk::ImageCreateFlags,
    shape: vk::ImageType,
    format: vk::Format,
    extent: vk::Extent3D,
    levels: u32,
    layers: u32,
    tiling: vk::ImageTiling,
    usage: vk::ImageUsageFlags,
    sharing: vk::SharingMode,
    families: Vec<u32>,
    kind: HeapKind,
    texels: Texels,
    /// The layout that it has for its owner.
    layout: vk::ImageLayout,
}

impl ImageRecipe {
    /// # Safety
    ///
    /// `info` is valid.
    pub(super) unsafe fn of(
        info: &vk::ImageCreateInfo<'_>,
        layout: vk::ImageLayout,
        kind: HeapKind,
        main: u32,
    ) -> Result<Self> {
        use vk::{ImageCreateFlags as F, ImageLayout as L, ImageUsageFlags as U};
        if !info.p_next.is_null() {
            return Err(ErrorKind::Unsupported.because(CHAINED));
        }
        if !info.usage.contains(U::TRANSFER_SRC | U::TRANSFER_DST) {
            return Err(ErrorKind::Unsupported.because(BOTH_WAYS));
        }
        let special = F::SPARSE_BINDING | F::PROTECTED | F::DISJOINT | F::SUBSAMPLED_EXT;
        let is_plain = info.samples == vk::SampleCountFlags::TYPE_1
            && matches!(info.tiling, vk::ImageTiling::OPTIMAL | vk::ImageTiling::LINEAR)
            && !info.flags.intersects(special);
        let texels = Texels::of(info).filter(|_| is_plain).ok_or_else(|| {
            let why = "the image has several samples, planes or aspects, or texels of 3, 6 or 12 bytes; implement `Sleepable` for it";
            ErrorKind::Unsupported.because(why)
        })?;
        if info.initial_layout != L::UNDEFINED || matches!(layout, L::UNDEFINED | L::PREINITIALIZED)
        {
            let why = "a resource that sleeps starts UNDEFINED, and has a layout with contents between uses";
            return Err(ErrorKind::InvalidConfig.because(why));
        }
        let (all, count) = (info.p_queue_family_indices, info.queue_family_index_count);
        // SAFETY: the caller's promise.
        let families = unsafe { families(info.sharing_mode, all, count, main) }?;
        Ok(Self {
            flags: info.flags,
            shape: info.image_type,
            format: info.format,
            extent: info.extent,
            levels: info.mip_levels,
            layers: info.array_layers,
            tiling: info.tiling,
            usage: info.usage,
            sharing: info.sharing_mode,
            families,
            kind,
            texels,
            layout,
        })
    }

    const fn layout_in(&self, phase: Phase) -> vk::ImageLayout {
        match phase {
            Phase::Fresh => vk::ImageLayout::UNDEFINED,
            Phase::Filling => vk::ImageLayout::TRANSFER_DST_OPTIMAL,
            Phase::Resting => self.layout,
            Phase::Leaving => vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
        }
    }

    /// Returns the copies between the image and a piece in the ring, of bytes that start `at` bytes in the image.
    fn regions(&self, at: u64, piece: &Staged) -> Vec<vk::BufferImageCopy> {
        let start = at + piece.offset;
        self.texels.regions(start..start + piece.size, piece.start)
    }
}

impl Recipe<vk::Image> for ImageRecipe {
    fn size(&self) -> u64 {
        self.texels.size()
    }

    unsafe fn make(&self, manager: &Manager<Vulkan>) -> Result<Resource<vk::Image>, AllocateError> {
        let info = vk::ImageCreateInfo::default()
            .flags(self.flags)
            .image_type(self.shape)
            .format(self.format)
            .extent(self.extent)
            .mip_levels(self.levels)
            .array_layers(self.layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(self.tiling)
            .usage(self.usage)
            .sharing_mode(self.sharing)
            .queue_family_indices(&self.families);
        // SAFETY: the caller's promise.
        let (handle, needs) = unsafe { manager.backend().new_image(&info, self.kind) }?;
        // SAFETY: fresh, with its own needs.
        unsafe { finish_image(manager, handle, needs.map(Needs::leaving_by_itself)) }
    }

    fn turn(&self, vulkan: &Vulkan, image: vk::Image, from: Phase, to: Phase) -> Result<()> {
        let [from, to] = [from, to].map(|phase| self.layout_in(phase));
        let range = vk::ImageSubresourceRange::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .level_count(self.levels)
            .layer_count(self.layers);
        let all = [Exclusive::Image { image, range, from, to }];
        // SAFETY: the image is of this device and in that layout, as its owner promised and the calls before it left it. It is exclusive, or shared
        // with this family too: on one timeline no family changes, and what remains is a barrier that either may have. A copy is waited for
        // before the image is destroyed, and an image that was not filled is retired.
        unsafe { vulkan.change_family(&all, ON, ON) }
    }

    fn send(&self, vulkan: &Vulkan, handle: vk::Image, at: u64, bytes: &[u8]) -> Result<()> {
        let layout = self.layout_in(Phase::Filling);
        let timeline = vulkan.timelines.get(ON)?;
        Vulkan::send(&timeline, bytes, |commands, piece| {
            let (regions, raw) = (self.regions(at, &piece), &vulkan.device.raw);
            // SAFETY: recording; the regions lie in the image and in the piece, and the image is in that layout since `turn`.
            unsafe {
                raw.cmd_copy_buffer_to_image(commands, piece.buffer, handle, layout, &regions);
            }
        })
    }

    fn fetch(&self, vulkan: &Vulkan, handle: vk::Image, at: u64, bytes: &mut [u8]) -> Result<()> {
        let layout = self.layout_in(Phase::Leaving);
        let timeline = vulkan.timelines.get(ON)?;
        Vulkan::fetch(&timeline, bytes, |commands, piece| {
            let (regions, raw) = (self.regions(at, &piece), &vulkan.device.raw);
            // SAFETY: as in `send`.
            unsafe {
                raw.cmd_copy_image_to_buffer(commands, handle, layout, piece.buffer, &regions);
            }
        })
    }
}

/// Returns the families of a description that several share. `main` is that of the main timeline, which copies.
///
/// # Safety
///
/// The description is valid: where it is shared, `all` points to `count` numbers.
unsafe fn families(
    sharing: vk::SharingMode,
    all: *const u32,
    count: u32,
    main: u32,
) -> Result<Vec<u32>> {
    if sharing != vk::SharingMode::CONCURRENT {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    let all = unsafe { from_raw_parts(all, count as usize) };
    if !all.contains(&main) {
        let why = "the families that share the resource lack that of the main timeline, which copies it; add it";
        return Err(ErrorKind::InvalidConfig.because(why));
    }
    Ok(all.to_vec())
}

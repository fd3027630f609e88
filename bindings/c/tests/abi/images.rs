//! Images of an engine that a pass moves: the engine makes a twin at the new place, copies the pixels, and keeps whichever the outcome says. The
//! validation layer listens where it is installed.
use super::*;
use ash::vk::{self, Handle as _};
use omniheap::TimelineId;
use omniheap::vulkan::{Feature, Options, Validation, Vulkan};
use std::collections::HashMap;
use wrap::{described, engine};

const SIDE: u32 = 128;
const BYTES: usize = (SIDE * SIDE * 4) as usize;
const EXTENT: vk::Extent3D = vk::Extent3D { width: SIDE, height: SIDE, depth: 1 };
const COLOR: vk::ImageAspectFlags = vk::ImageAspectFlags::COLOR;
const LAYERS: vk::ImageSubresourceLayers = vk::ImageSubresourceLayers {
    aspect_mask: COLOR,
    mip_level: 0,
    base_array_layer: 0,
    layer_count: 1,
};
const RANGE: vk::ImageSubresourceRange = vk::ImageSubresourceRange {
    aspect_mask: COLOR,
    base_mip_level: 0,
    level_count: 1,
    base_array_layer: 0,
    layer_count: 1,
};

/// A picture, by its allocation.
struct Picture {
    image: vk::Image,
    color: u8,
}

/// Work of an engine when its images move.
struct Mover<'a> {
    engine: &'a Vulkan,
    manager: OmniheapManager,
    pool: vk::CommandPool,
    pictures: HashMap<u64, Picture>,
    /// Images at new places, until the outcome is told.
    twins: HashMap<u64, vk::Image>,
    /// Moves of one pass.
    asked: u64,
    /// The allocation whose place was asked for, which cancelled its move.
    looked_at: Option<u64>,
    moved: u64,
    stayed: Vec<u64>,
}

/// A command buffer, submitted to the queue that a callback gets.
struct Submission<'a>(&'a ash::Device, vk::CommandBuffer);

unsafe extern "C" fn submit(queue: u64, _: u32, user: *mut c_void) {
    // SAFETY: `Mover::run` passes its own.
    let Submission(device, commands) =
        unsafe { user.cast::<Submission<'_>>().as_ref() }.expect("its own");
    let buffers = [*commands];
    let info = [vk::SubmitInfo::default().command_buffers(&buffers)];
    // SAFETY: recorded, and the queue is the callback's for now.
    unsafe { device.queue_submit(vk::Queue::from_raw(queue), &info, vk::Fence::null()) }
        .expect("room");
}

impl Mover<'_> {
    fn of(engine: &Vulkan, manager: OmniheapManager, pool: vk::CommandPool) -> Mover<'_> {
        let (pictures, twins) = (HashMap::new(), HashMap::new());
        let (asked, looked_at, moved, stayed) = (0, None, 0, vec![]);
        Mover { engine, manager, pool, pictures, twins, asked, looked_at, moved, stayed }
    }

    fn device(&self) -> &ash::Device {
        self.engine.ash_device()
    }

    /// Records work, submits it on the manager's queue, and waits for it, all through the C functions.
    fn run(&self, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) {
        let device = self.device();
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .command_buffer_count(1);
        // SAFETY: the pool is this thread's own.
        let commands = unsafe { device.allocate_command_buffers(&info) }.expect("room")[0];
        let begin = vk::CommandBufferBeginInfo::default();
        // SAFETY: fresh.
        unsafe { device.begin_command_buffer(commands, &begin) }.expect("fresh");
        record(device, commands);
        // SAFETY: begun above.
        unsafe { device.end_command_buffer(commands) }.expect("whole");
        let (mut submission, mut epoch) = (Submission(device, commands), 0);
        let user = (&raw mut submission).cast();
        assert_eq!(c!(omniheap_vulkan_with_queue(self.manager, 0, Some(submit), user)), Status::Ok);
        assert_eq!(c!(omniheap_timeline_mark(self.manager, 0, &raw mut epoch)), Status::Ok);
        assert_eq!(omniheap_timeline_wait(self.manager, 0, epoch), Status::Ok, "{}", message());
        // SAFETY: its work has finished.
        unsafe { device.free_command_buffers(self.pool, &[commands]) };
    }

    fn image(&self) -> vk::Image {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R8G8B8A8_UNORM)
            .extent(EXTENT)
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
        // SAFETY: a plain image, which every device takes.
        unsafe { self.device().create_image(&info, None) }.expect("small")
    }

    /// A picture of one colour.
    fn paint(&mut self, color: u8) -> OmniheapAllocation {
        let (image, mut bound) = (self.image(), OmniheapAllocation { id: 0 });
        let status = c!(omniheap_vulkan_bind_image(
            self.manager,
            image.as_raw(),
            OMNIHEAP_CLASS_TILED,
            OMNIHEAP_KIND_DEVICE,
            OMNIHEAP_MOVED_ON_CONSENT,
            ptr::null(),
            &raw mut bound
        ));
        assert_eq!(status, Status::Ok, "{}", message());
        let value = f32::from(color) / 255.0;
        self.run(|device, commands| {
            turn(device, commands, image, vk::ImageLayout::UNDEFINED, TARGET);
            let color = vk::ClearColorValue { float32: [value; 4] };
            // SAFETY: the image is in this layout.
            unsafe { device.cmd_clear_color_image(commands, image, TARGET, &color, &[RANGE]) };
            turn(device, commands, image, TARGET, SOURCE);
        });
        self.pictures.insert(bound.id, Picture { image, color });
        bound
    }

    /// Copies a picture into a new image in memory that is given.
    fn copy(&self, from: vk::Image, memory: u64, offset: u64) -> vk::Image {
        let to = self.image();
        let memory = vk::DeviceMemory::from_raw(memory);
        // SAFETY: the same description as the image that moves, so the place that was chosen for it fits.
        unsafe { self.device().bind_image_memory(to, memory, offset) }.expect("a place for it");
        self.run(|device, commands| {
            turn(device, commands, to, vk::ImageLayout::UNDEFINED, TARGET);
            let region = vk::ImageCopy {
                src_subresource: LAYERS,
                dst_subresource: LAYERS,
                extent: EXTENT,
                ..Default::default()
            };
            // SAFETY: both have this size and are in these layouts.
            unsafe { device.cmd_copy_image(commands, from, SOURCE, to, TARGET, &[region]) };
            turn(device, commands, to, TARGET, SOURCE);
        });
        to
    }

    fn destroy(&self, image: vk::Image) {
        // SAFETY: `run` waits for all work.
        unsafe { self.device().destroy_image(image, None) };
    }

    /// Reads each picture into a mapped buffer.
    fn check(&self) {
        let usage = vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(BYTES as u64).usage(usage);
        // SAFETY: a plain buffer.
        let buffer = unsafe { self.device().create_buffer(&info, None) }.expect("small");
        let (mut bound, mut bytes) = (OmniheapAllocation { id: 0 }, ptr::null_mut());
        let (kind, to) = (OMNIHEAP_KIND_STAGING, &raw mut bound);
        let made = c!(omniheap_vulkan_bind_buffer(
            self.manager,
            buffer.as_raw(),
            kind,
            0,
            ptr::null(),
            to
        ));
        assert_eq!(made, Status::Ok, "{}", message());
        assert_eq!(c!(omniheap_map(bound, &raw mut bytes)), Status::Ok);
        for picture in self.pictures.values() {
            self.run(|device, commands| read_back(device, commands, picture.image, buffer));
            assert_eq!(omniheap_invalidate(bound, 0, BYTES as u64), Status::Ok);
            // SAFETY: mapped, and the device has finished with it.
            let pixels = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), BYTES) };
            assert!(pixels.iter().all(|byte| *byte == picture.color), "picture {}", picture.color);
        }
        // SAFETY: `run` waits for all work.
        unsafe { self.device().destroy_buffer(buffer, None) };
        assert_eq!(omniheap_free(bound), Status::Ok);
    }
}

const TARGET: vk::ImageLayout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
const SOURCE: vk::ImageLayout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;

/// Records a copy of an image into a buffer that the host reads.
fn read_back(device: &ash::Device, commands: vk::CommandBuffer, image: vk::Image, to: vk::Buffer) {
    let region = [vk::BufferImageCopy {
        image_subresource: LAYERS,
        image_extent: EXTENT,
        ..Default::default()
    }];
    // SAFETY: the image is in this layout, and the buffer has room for its pixels.
    unsafe { device.cmd_copy_image_to_buffer(commands, image, SOURCE, to, &region) };
    let seen = [vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .dst_access_mask(vk::AccessFlags::HOST_READ)];
    let (from, to) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST);
    let none = vk::DependencyFlags::empty();
    // SAFETY: recording.
    unsafe { device.cmd_pipeline_barrier(commands, from, to, none, &seen, &[], &[]) };
}

fn turn(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    image: vk::Image,
    from: vk::ImageLayout,
    to: vk::ImageLayout,
) {
    let barrier = [vk::ImageMemoryBarrier::default()
        .old_layout(from)
        .new_layout(to)
        .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .dst_access_mask(vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .image(image)
        .subresource_range(RANGE)];
    // Behind everything: what lay at the place before may have been used otherwise.
    let stage = vk::PipelineStageFlags::ALL_COMMANDS;
    let none = vk::DependencyFlags::empty();
    // SAFETY: recording.
    unsafe { device.cmd_pipeline_barrier(commands, stage, stage, none, &[], &[], &barrier) };
}

unsafe extern "C" fn twin(one: *const OmniheapMove, user: *mut c_void) -> u32 {
    // SAFETY: the pass shows a move.
    let one = unsafe { one.read() };
    // SAFETY: the test passes its own.
    let mover = unsafe { user.cast::<Mover<'_>>().as_mut() }.expect("not null");
    assert!(one.from_memory != 0 && one.to_memory != 0, "Vulkan's memory has handles: {one:?}");
    assert!((one.from_memory, one.from_offset) != (one.to_memory, one.to_offset), "{one:?}");
    assert_eq!(one.needs_consent, 1);
    let from = mover.pictures[&one.allocation.id].image;
    let twin = mover.copy(from, one.to_memory, one.to_offset);
    mover.twins.insert(one.allocation.id, twin);
    mover.asked += 1;
    if mover.looked_at.is_none() {
        mover.looked_at = Some(one.allocation.id);
        let mut place = OmniheapVulkanPlace::default();
        assert_eq!(c!(omniheap_vulkan_place(one.allocation, &raw mut place)), Status::Ok);
        assert_eq!((place.memory, place.offset), (one.from_memory, one.from_offset));
    }
    OMNIHEAP_MOVE_OWNER_COPIES
}

unsafe extern "C" fn keep(one: *const OmniheapMove, outcome: u32, user: *mut c_void) {
    // SAFETY: the pass shows a move.
    let one = unsafe { one.read() };
    // SAFETY: the test passes its own.
    let mover = unsafe { user.cast::<Mover<'_>>().as_mut() }.expect("not null");
    let twin = mover.twins.remove(&one.allocation.id).expect("it was asked about");
    let mut place = OmniheapVulkanPlace::default();
    assert_eq!(c!(omniheap_vulkan_place(one.allocation, &raw mut place)), Status::Ok);
    if outcome != OMNIHEAP_OUTCOME_MOVED {
        assert_eq!((place.memory, place.offset), (one.from_memory, one.from_offset));
        mover.stayed.push(one.allocation.id);
        return mover.destroy(twin);
    }
    assert_eq!((place.memory, place.offset), (one.to_memory, one.to_offset));
    let picture = mover.pictures.get_mut(&one.allocation.id).expect("it lives");
    let old = core::mem::replace(&mut picture.image, twin);
    mover.moved += 1;
    mover.destroy(old);
}

/// Passes until there is nothing to gain.
fn pass(mover: &mut Mover<'_>) -> u64 {
    let mut returned = 0;
    loop {
        let (budget, mut moved) = (omniheap_budget_default(), OmniheapMoved::default());
        let (manager, user, to) = (mover.manager, (&raw mut *mover).cast(), &raw mut moved);
        let status = c!(omniheap_defragment_pass(
            manager,
            &raw const budget,
            Some(twin),
            Some(keep),
            user,
            to
        ));
        assert_eq!(status, Status::Ok, "{}", message());
        returned += moved.returned_bytes;
        if core::mem::take(&mut mover.asked) == 0 {
            return returned;
        }
    }
}

/// A manager of an engine's device and of one of its queues, and that queue's family.
pub(super) fn wrapped(engine: &Vulkan, enabled: u32) -> (OmniheapManager, u32) {
    let entry = engine.ash_entry().expect("this engine has loaded it");
    let (queue, family) =
        engine.with_queue(TimelineId::MAIN, |queue, family| (queue, family)).expect("a queue");
    let address = usize::try_from(queue.as_raw()).expect("a pointer of this machine");
    let queues = [OmniheapVulkanQueue { queue: ptr::without_provenance_mut(address), family }];
    let described = OmniheapVulkanDevice {
        queues: queues.as_ptr(),
        queue_count: 1,
        enabled,
        ..described(engine, entry)
    };
    let mut manager = OmniheapManager { id: 0 };
    let wrapped = c!(omniheap_wrap_vulkan(&raw const described, ptr::null(), &raw mut manager));
    assert_eq!(wrapped, Status::Ok, "{}", message());
    (manager, family)
}

#[test]
fn images_move_with_their_pixels() {
    let options = Options::default().validation(Validation::IfPresent);
    let Some(engine) = engine("vulkan", Vulkan::open_with(options)) else { return };
    // Without features, epochs are fences.
    move_images(&engine, 0);
    if engine.has(Feature::TimelineSemaphore) {
        move_images(&engine, OMNIHEAP_VULKAN_TIMELINE_SEMAPHORE);
    }
    let heard = engine.messages().map_or_else(Vec::new, |heard| heard.texts());
    assert_eq!(heard, Vec::<String>::new());
}

fn move_images(engine: &Vulkan, enabled: u32) {
    let (manager, family) = wrapped(engine, enabled);
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    // SAFETY: a family of the device.
    let pool = unsafe { engine.ash_device().create_command_pool(&info, None) }.expect("small");
    let mut mover = Mover::of(engine, manager, pool);
    let all: Vec<_> = (0..120).map(|color| mover.paint(color)).collect();
    for (_, one) in all.iter().enumerate().filter(|(at, _)| at % 6 != 0) {
        let picture = mover.pictures.remove(&one.id).expect("painted");
        mover.destroy(picture.image);
        assert_eq!(omniheap_free(*one), Status::Ok);
    }
    let returned = pass(&mut mover);
    assert!(mover.moved > 0 && returned > 0, "{} moves, {returned} bytes", mover.moved);
    assert_eq!(mover.stayed.first().copied(), mover.looked_at, "its place was asked for");
    mover.check();
    for (id, picture) in core::mem::take(&mut mover.pictures) {
        mover.destroy(picture.image);
        assert_eq!(omniheap_free(OmniheapAllocation { id }), Status::Ok);
    }
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
    // SAFETY: all work has finished.
    unsafe { engine.ash_device().destroy_command_pool(pool, None) };
}

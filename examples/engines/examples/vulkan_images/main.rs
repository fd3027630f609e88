//! Images in memory from omniheap: create, upload, move until nothing is gained, read back, and the driver's budget.
//!
//! `cargo run -p omniheap-engines --example vulkan_images`; `docs/vulkan.md` explains it.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
#[path = "../vulkan_engine/device.rs"]
mod device;

use core::error::Error;
use device::Device;
use omniheap_core::{
    Allocation, Backend as _, Budget, Decision, HeapKind, Manager, MoveOutcome, Request, Usage,
};
use omniheap_vulkan::{Resource, Vulkan, ash::vk};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Image = Resource<vk::Image>;
const SIZE: vk::Extent3D = vk::Extent3D { width: 128, height: 128, depth: 1 };
const BYTES: usize = 128 * 128 * 4;
/// Layout of all images: one for all copies keeps this short, and engines have better ones.
const GENERAL: vk::ImageLayout = vk::ImageLayout::GENERAL;
const COLOR: vk::ImageSubresourceLayers = vk::ImageSubresourceLayers {
    aspect_mask: vk::ImageAspectFlags::COLOR,
    mip_level: 0,
    base_array_layer: 0,
    layer_count: 1,
};

fn main() -> Outcome<()> {
    // The engine's own device. `device.rs` lists features that are worth enabling.
    let Some(device) = Device::open()? else {
        println!("no Vulkan 1.3 device here");
        return Ok(());
    };
    let manager = Manager::new(device.memory()?);
    scene(&Engine { device: &device, manager: &manager })
    // The manager ends before the device, and waits once: for dropped resources, and for the rest.
}

struct Engine<'a> {
    device: &'a Device,
    manager: &'a Manager<Vulkan>,
}

/// Fills 200 images, drops three of four, moves the others together and reads them.
fn scene(engine: &Engine<'_>) -> Outcome<()> {
    let manager = engine.manager;
    let mut images = Vec::new();
    for number in 0..200u8 {
        // SAFETY: every device makes such an image; `tidy` uses no old handle after a move.
        let image = unsafe { Vulkan::create_movable_image(manager, &info(), HeapKind::Device) }?;
        engine.upload(&image, &[number; BYTES])?;
        images.push((number, image));
    }
    images.retain(|(number, _)| number % 4 == 0); // waits for nothing
    manager.backend().wait_idle()?; // a frame loop need not: what was dropped is found by later calls
    manager.retire()?;
    let before = manager.totals();
    let mut moved = 0;
    while let Some(moves) = engine.tidy(&mut images)? {
        moved += moves;
    }
    let after = manager.totals();
    println!("  {moved} moves: {} of {} bytes held", after.reserved_bytes, before.reserved_bytes);
    println!("  largest hole: {} bytes, {} before", after.largest_hole, before.largest_hole);
    assert!(moved > 0 && after.free_bytes <= before.free_bytes, "something is gained");
    for (number, image) in &images {
        assert_eq!(engine.read(image)?, [*number; BYTES], "image {number} kept its pixels");
    }
    tell_budget(manager)
}

/// One description for images and their twins.
fn info() -> vk::ImageCreateInfo<'static> {
    use vk::ImageUsageFlags as U;
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(SIZE)
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(U::SAMPLED | U::TRANSFER_SRC | U::TRANSFER_DST)
}

/// Returns the buffer under an allocation, and an image's region of it.
fn place(staging: &Allocation<Vulkan>) -> (vk::Buffer, [vk::BufferImageCopy; 1]) {
    let binding = staging.binding();
    let buffer = binding.block().buffer().expect("staging memory takes buffers");
    let region = vk::BufferImageCopy::default().image_subresource(COLOR).image_extent(SIZE);
    (buffer, [region.buffer_offset(binding.span().offset)])
}

impl Engine<'_> {
    fn upload(&self, image: &Image, pixels: &[u8]) -> Outcome<()> {
        let staging = self.manager.allocate(&Request::new(BYTES as u64).usage(Usage::Upload))?;
        staging.write(0, pixels)?;
        let ((from, region), to) = (place(&staging), image.handle());
        self.run(|commands| {
            self.begin(commands, to);
            let raw = &self.device.raw;
            // SAFETY: recording; both live until `run` has waited.
            unsafe { raw.cmd_copy_buffer_to_image(commands, from, to, GENERAL, &region) };
        })
    }

    fn read(&self, image: &Image) -> Outcome<Vec<u8>> {
        let staging = self.manager.allocate(&Request::new(BYTES as u64).usage(Usage::Readback))?;
        let (from, (to, region)) = (image.handle(), place(&staging));
        self.run(|commands| {
            let raw = &self.device.raw;
            // SAFETY: as in `upload`.
            unsafe { raw.cmd_copy_image_to_buffer(commands, from, GENERAL, to, &region) };
            let visible = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ)];
            let (before, after) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST);
            let none = vk::DependencyFlags::empty();
            // SAFETY: recording.
            unsafe { raw.cmd_pipeline_barrier(commands, before, after, none, &visible, &[], &[]) };
        })?;
        let mut pixels = vec![0; BYTES];
        staging.read(0, &mut pixels)?;
        Ok(pixels)
    }

    /// Makes one pass of at most a megabyte. Returns the number of images that moved, or `None` if nothing can be gained.
    fn tidy(&self, images: &mut [(u8, Image)]) -> Outcome<Option<usize>> {
        let mut pass = self.manager.begin_defragment(&Budget::new().bytes(1 << 20))?;
        if pass.is_empty() {
            return Ok(None);
        }
        let mut twins = Vec::new();
        for (at, planned) in pass.moves().enumerate() {
            let is_it = |(_, image): &(u8, Image)| image.memory().id() == planned.allocation();
            let Some(which) = images.iter().position(is_it) else { continue };
            // SAFETY: the image's own description; the pass lives until the commit below.
            let twin = unsafe { self.manager.backend().twin_of_image(&info(), &planned.to()) }?;
            twins.push((at, which, twin));
        }
        for (at, ..) in &twins {
            pass.decide(*at, Decision::OwnerCopies)?; // what nobody decides on stays
        }
        pass.start()?;
        let region = [vk::ImageCopy::default().src_subresource(COLOR).dst_subresource(COLOR)];
        let (region, raw) = (region.map(|region| region.extent(SIZE)), &self.device.raw);
        self.run(|commands| {
            for (_, which, twin) in &twins {
                let (from, to) = (images[*which].1.handle(), twin.handle());
                self.begin(commands, to);
                // SAFETY: recording; both images have that size, and live until `run` has waited.
                unsafe { raw.cmd_copy_image(commands, from, GENERAL, to, GENERAL, &region) };
            }
        })?;
        // `run` has waited for all uses of the old places, so they may be freed.
        let outcome = pass.commit()?;
        for (at, which, twin) in twins {
            let switched = images[which].1.switch_to(twin);
            assert_eq!(switched, outcome.moves[at].1 == MoveOutcome::Moved);
        }
        Ok(Some(outcome.moves.len()))
    }

    /// Records commands, submits them on the main timeline and waits; an engine waits a frame later, on the point.
    fn run(&self, record: impl FnOnce(vk::CommandBuffer)) -> Outcome<()> {
        let submitted = self.device.submit(self.manager, record)?;
        self.device.finish(self.manager, submitted)
    }

    /// Brings a fresh image into the layout of all copies.
    fn begin(&self, commands: vk::CommandBuffer, image: vk::Image) {
        use vk::{AccessFlags as A, PipelineStageFlags as S};
        let whole = vk::ImageSubresourceRange::default().aspect_mask(COLOR.aspect_mask);
        let barrier = [vk::ImageMemoryBarrier::default()
            .image(image)
            .new_layout(GENERAL)
            .dst_access_mask(A::TRANSFER_WRITE)
            .subresource_range(whole.level_count(1).layer_count(1))];
        let (raw, none) = (&self.device.raw, vk::DependencyFlags::empty());
        let (before, after) = (S::ALL_COMMANDS, S::TRANSFER);
        // SAFETY: recording; the image is bound.
        unsafe { raw.cmd_pipeline_barrier(commands, before, after, none, &[], &[], &barrier) };
    }
}

/// Prints this process's budget of each heap, if the driver reports it.
fn tell_budget(manager: &Manager<Vulkan>) -> Outcome<()> {
    let Some(driver) = manager.backend().as_budget() else { return Ok(()) };
    for (heap, about) in manager.caps().heap_ids() {
        if let Ok(told) = driver.budget(heap) {
            println!("  {:?} {heap:?}: {} of {} bytes used", about.kind, told.used, told.budget);
        }
    }
    Ok(())
}

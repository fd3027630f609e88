//! Textures of three times a budget: those that were not used for the longest time wait in host memory, and every byte comes back.
//!
//! `cargo run -p omniheap-engines --example vulkan_residents`; `docs/vulkan.md` explains it.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
#[path = "../vulkan_engine/device.rs"]
mod device;

use core::error::Error;
use device::Device;
use omniheap_core::{
    Allocation, HeapKind, Limits, Manager, ManagerConfig, Request, Sleepable as _, Usage,
};
use omniheap_residency::{HostStore, Resident, Residents};
use omniheap_vulkan::{SleepableResource, Vulkan, ash::vk};
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Texture = Arc<SleepableResource<vk::Image>>;

const TEXTURES: u8 = 48;
/// Textures that the budget has room for.
const ROOM: u64 = 16;
/// Textures that a frame draws.
const SHOWN: usize = 10;
const FRAMES: usize = 120;
const SIZE: vk::Extent3D = vk::Extent3D { width: 128, height: 128, depth: 1 };
const BYTES: usize = 128 * 128 * 4;
/// Layout of textures between uses: copies read from it, and shaders of an engine would have another.
const LAYOUT: vk::ImageLayout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;

fn main() -> Outcome<()> {
    // The engine's own device. `device.rs` lists features that are worth enabling.
    let Some(device) = Device::open()? else {
        println!("no Vulkan 1.3 device here");
        return Ok(());
    };
    let manager = Manager::with_config(device.memory()?, ManagerConfig::default().plain());
    let scene = Scene::load(&device, &manager)?;
    scene.run()
}

struct Scene<'a> {
    device: &'a Device,
    manager: &'a Manager<Vulkan>,
    residents: Residents<Vulkan>,
    textures: Vec<Texture>,
    /// The target of a frame: host memory, a place for each texture shown.
    picture: Allocation<Vulkan>,
    limit: u64,
}

impl<'a> Scene<'a> {
    /// Loads all textures; from the seventeenth on, each sends another one away.
    fn load(device: &'a Device, manager: &'a Manager<Vulkan>) -> Outcome<Self> {
        let request = Request::new((SHOWN * BYTES) as u64).usage(Usage::Readback).dedicated();
        let picture = manager.allocate(&request)?;
        let (residents, store) = (Residents::of(manager), HostStore::new());
        let (mut textures, mut limit) = (Vec::<Texture>::new(), 0);
        for value in 0..TEXTURES {
            // SAFETY: every device makes such an image; frames use it only while it is held, and leave it in this layout.
            let made = unsafe {
                Vulkan::create_sleepable_image(manager, &info(), LAYOUT, HeapKind::Device)
            };
            let texture = Arc::new(made?);
            if value == 0 {
                let (heap, one) = (texture.heap(), texture.residence().device);
                limit = manager.heap_use(heap)?.reserved + (ROOM - 1) * one;
                manager.set_budget(heap, Limits::hard(limit))?;
            }
            texture.write(&[value; BYTES])?;
            residents.add(&texture, Resident::to(Arc::clone(&store)))?;
            textures.push(texture);
        }
        Ok(Self { device, manager, residents, textures, picture, limit })
    }

    /// Draws frames over a view that moves on, then asks for each texture in turn.
    fn run(&self) -> Outcome<()> {
        let (mut stand_ins, mut moved) = (0, 0);
        for frame in 0..FRAMES {
            let first = frame / 4;
            let shown: Vec<_> = (first..first + SHOWN).map(|at| at % self.textures.len()).collect();
            stand_ins += self.frame(&shown)?;
            let step = self.residents.settle()?; // So that runs are alike; a frame loop does not wait.
            moved += step.slept + step.woken;
        }
        println!("  {FRAMES} frames: {moved} textures came or went, {stand_ins} stand-ins drawn");
        for (value, texture) in (0..).zip(&self.textures) {
            let _held = self.residents.hold(texture)?; // waits until it is there
            let mut pixels = vec![0; BYTES];
            texture.read(&mut pixels)?;
            assert!(pixels.iter().all(|pixel| *pixel == value), "texture {value} kept its pixels");
            self.check_budget()?;
        }
        let awake = self.textures.iter().filter(|one| !one.residence().asleep).count();
        println!("  {TEXTURES} textures are as they should be, {awake} of them on the device");
        assert!(moved > 0 && awake as u64 <= ROOM);
        Ok(())
    }

    /// Draws the textures that are there. Returns the number of those that are not.
    fn frame(&self, shown: &[usize]) -> Outcome<usize> {
        self.residents.step()?;
        let mut held = Vec::new();
        for (place, at) in shown.iter().enumerate() {
            let texture = &self.textures[*at];
            // An engine makes views again where `texture.wakes()` changed: the image is another one then.
            if let Some(hold) = self.residents.hold_if_awake(texture)? {
                held.push((place, *at, texture.handle().expect("it is held"), hold));
            }
        }
        let work = self.device.submit(self.manager, |commands| {
            held.iter().for_each(|(place, _, image, _)| self.draw(commands, *place, *image));
            let visible = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ)];
            let (before, after) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST);
            let (raw, none) = (&self.device.raw, vk::DependencyFlags::empty());
            // SAFETY: recording.
            unsafe { raw.cmd_pipeline_barrier(commands, before, after, none, &visible, &[], &[]) };
        })?;
        self.device.finish(self.manager, work)?;
        for (place, at, ..) in &held {
            let mut pixel = [0; 4];
            self.picture.read((place * BYTES) as u64, &mut pixel)?;
            assert_eq!(pixel.map(usize::from), [*at; 4], "texture {at} is drawn");
        }
        self.check_budget()?;
        Ok(shown.len() - held.len())
    }

    /// Copies a texture to its place of the picture: what drawing is here.
    fn draw(&self, commands: vk::CommandBuffer, place: usize, image: vk::Image) {
        let binding = self.picture.binding();
        let buffer = binding.block().buffer().expect("host memory takes buffers");
        let color = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .layer_count(1);
        let region = [vk::BufferImageCopy::default()
            .buffer_offset(binding.span().offset + (place * BYTES) as u64)
            .image_subresource(color)
            .image_extent(SIZE)];
        let raw = &self.device.raw;
        // SAFETY: recording; the image is held, and the work is waited for.
        unsafe { raw.cmd_copy_image_to_buffer(commands, image, LAYOUT, buffer, &region) };
    }

    fn check_budget(&self) -> Outcome<()> {
        let held = self.manager.heap_use(self.textures[0].heap())?.reserved;
        assert!(held <= self.limit, "{held} bytes are above the budget of {}", self.limit);
        Ok(())
    }
}

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

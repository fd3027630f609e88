//! Meshes and textures on the device.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use crate::{
    device::Device,
    image::{Image, Shape, whole},
};
use core::error::Error;
use omniheap_core::{Align, Allocation, AllocationId, Manager, PoolConfig, Request, Usage, Writer};
use omniheap_engines::{Scene, Texture};
use omniheap_vulkan::{Vulkan, ash, ash::vk};

/// A scene's data on the device; dropped parts are `None`. All of it may move between frames.
pub(crate) struct Assets {
    pub(crate) meshes: Vec<Option<Allocation<Vulkan>>>,
    pub(crate) textures: Vec<Option<Image>>,
}

impl Assets {
    pub(crate) fn load(
        device: &Device,
        manager: &Manager<Vulkan>,
        scene: &Scene,
    ) -> Result<Self, Box<dyn Error>> {
        // Both come and go, so they get a pool of small blocks, each of which can be emptied and given back.
        let mesh = |bytes: &[u8]| {
            Request::new(bytes.len() as u64)
                .align(Align::of(16))
                .writer(Writer::HostOnce)
                .name("mesh")
        };
        let heap = manager.explain(&mesh(&[0; 4]))?.placement.heaps.as_slice()[0];
        let pool = manager.create_pool(heap, PoolConfig::new().block(1 << 20))?;
        let mut meshes = Vec::new();
        for one in &scene.meshes {
            let allocation = pool.allocate(&mesh(&one.bytes))?;
            allocation.write(0, &one.bytes)?;
            meshes.push(Some(allocation));
        }
        use vk::ImageUsageFlags as U;
        let image = |texture: &Texture| {
            let shape = Shape {
                size: (texture.size, texture.size),
                format: vk::Format::R8G8B8A8_UNORM,
                usage: U::SAMPLED | U::TRANSFER_DST | U::TRANSFER_SRC,
                aspect: vk::ImageAspectFlags::COLOR,
            };
            Image::create(manager, shape, |request| pool.allocate(request))
        };
        let textures = scene.textures.iter().map(image).collect::<Result<Vec<_>, _>>()?;
        upload(device, manager, &scene.textures, &textures)?;
        Ok(Self { meshes, textures: textures.into_iter().map(Some).collect() })
    }

    /// Drops the objects that `stays` does not keep, and the textures that no object uses any more.
    pub(crate) fn keep(&mut self, scene: &Scene, stays: impl Fn(usize) -> bool) {
        let mut used = vec![false; self.textures.len()];
        for (index, object) in scene.objects.iter().enumerate() {
            match stays(index) {
                true => used[object.texture] = true,
                false => self.meshes[index] = None,
            }
        }
        for (texture, _) in self.textures.iter_mut().zip(used).filter(|(_, used)| !used) {
            *texture = None;
        }
    }

    /// Returns the texture that lives in an allocation.
    pub(crate) fn texture_of(&self, allocation: AllocationId) -> Option<usize> {
        let is = |image: &Image| image.allocation() == allocation;
        self.textures.iter().position(|texture| texture.as_ref().is_some_and(is))
    }
}

/// Fills all textures through one piece of staging memory, in one submission.
fn upload(
    device: &Device,
    manager: &Manager<Vulkan>,
    textures: &[Texture],
    images: &[Image],
) -> Result<(), Box<dyn Error>> {
    let total: u64 = textures.iter().map(|texture| texture.pixels.len() as u64).sum();
    let staging = manager.allocate(
        &Request::new(total).usage(Usage::Upload).align(Align::of(16)).name("texture upload"),
    )?;
    let view = staging.map()?;
    let mut offset = 0;
    for texture in textures {
        view.write(offset, &texture.pixels)?;
        offset += texture.pixels.len() as u64;
    }
    view.flush(0, total)?;
    let binding = staging.binding();
    let buffer = binding.block().buffer().ok_or("staging memory has a buffer")?;
    let mut from = binding.span().offset;
    let work = device.submit(manager, |commands| {
        for (texture, image) in textures.iter().zip(images) {
            use vk::{AccessFlags as A, ImageLayout as L, PipelineStageFlags as S};
            let to = L::TRANSFER_DST_OPTIMAL;
            let steps = [(L::UNDEFINED, A::empty()), (to, A::TRANSFER_WRITE)];
            let fill = (steps[0], (to, A::TRANSFER_WRITE), S::TOP_OF_PIPE, S::TRANSFER);
            let read = (L::SHADER_READ_ONLY_OPTIMAL, A::SHADER_READ);
            let show = (steps[1], read, S::TRANSFER, S::FRAGMENT_SHADER);
            turn(&device.raw, commands, image.native.handle, fill);
            let region = [region(from, texture.size)];
            // SAFETY: recording; the buffer holds the pixels, and the image is in that layout.
            unsafe {
                device.raw.cmd_copy_buffer_to_image(
                    commands,
                    buffer,
                    image.native.handle,
                    to,
                    &region,
                );
            };
            turn(&device.raw, commands, image.native.handle, show);
            from += texture.pixels.len() as u64;
        }
    })?;
    device.finish(manager, work)
}

/// A layout and who uses the image in it.
pub(crate) type Use = (vk::ImageLayout, vk::AccessFlags);

/// Transitions a color image from one use to the next.
pub(crate) fn turn(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    image: vk::Image,
    (from, to, before, after): (Use, Use, vk::PipelineStageFlags, vk::PipelineStageFlags),
) {
    let barrier = [vk::ImageMemoryBarrier::default()
        .old_layout(from.0)
        .src_access_mask(from.1)
        .new_layout(to.0)
        .dst_access_mask(to.1)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .image(image)
        .subresource_range(whole(vk::ImageAspectFlags::COLOR))];
    let none = vk::DependencyFlags::empty();
    // SAFETY: recording; the image is the device's.
    unsafe { device.cmd_pipeline_barrier(commands, before, after, none, &[], &[], &barrier) };
}

fn region(offset: u64, size: u32) -> vk::BufferImageCopy {
    vk::BufferImageCopy {
        buffer_offset: offset,
        image_subresource: vk::ImageSubresourceLayers {
            aspect_mask: vk::ImageAspectFlags::COLOR,
            layer_count: 1,
            ..Default::default()
        },
        image_extent: vk::Extent3D { width: size, height: size, depth: 1 },
        ..Default::default()
    }
}

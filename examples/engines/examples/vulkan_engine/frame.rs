//! One frame: uniforms in, draw calls, pixels out.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use crate::{
    assets::{Assets, turn},
    device::Device,
    image::{Image, Shape, whole},
    pipeline::Pipeline,
};
use core::error::Error;
use omniheap_core::{Align, Allocation, Binding, Manager, Request, Usage};
use omniheap_engines::{OBJECT, Picture, SIZE, Scene};
use omniheap_vulkan::{Vulkan, ash::vk};

pub(crate) const COLOUR: vk::Format = vk::Format::R8G8B8A8_UNORM;
pub(crate) const DEPTH: vk::Format = vk::Format::D32_SFLOAT;
const CLEAR: [f32; 4] = [0.05, 0.06, 0.09, 1.0];

/// Returns the whole render area.
pub(crate) fn area() -> vk::Rect2D {
    vk::Rect2D { extent: vk::Extent2D { width: SIZE.0, height: SIZE.1 }, ..Default::default() }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand pixels")]
pub(crate) fn port() -> vk::Viewport {
    vk::Viewport {
        width: SIZE.0 as f32,
        height: SIZE.1 as f32,
        max_depth: 1.0,
        ..Default::default()
    }
}

/// Pipeline, targets and buffers shared by all frames.
pub(crate) struct Renderer<'a> {
    pub(crate) device: &'a Device,
    pub(crate) manager: &'a Manager<Vulkan>,
    pub(crate) scene: &'a Scene,
    pub(crate) pipeline: Pipeline,
    colour: Image,
    depth: Image,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(
        device: &'a Device,
        manager: &'a Manager<Vulkan>,
        scene: &'a Scene,
        assets: &Assets,
    ) -> Result<Self, Box<dyn Error>> {
        use vk::{ImageAspectFlags as A, ImageUsageFlags as U};
        let usage = U::COLOR_ATTACHMENT | U::TRANSFER_SRC;
        let colour = Shape { size: SIZE, format: COLOUR, usage, aspect: A::COLOR };
        let usage = U::DEPTH_STENCIL_ATTACHMENT;
        let depth = Shape { size: SIZE, format: DEPTH, usage, aspect: A::DEPTH };
        let [colour, depth] = [colour, depth]
            .map(|shape| Image::create(manager, shape, |request| manager.allocate(request)));
        let (colour, depth) = (colour?, depth?);
        let pipeline = Pipeline::create(&device.raw, assets)?;
        Ok(Self { device, manager, scene, pipeline, colour, depth })
    }

    /// Renders the objects whose index is in `visible` and that still have a mesh.
    pub(crate) fn render(
        &self,
        assets: &Assets,
        visible: &[usize],
    ) -> Result<Picture, Box<dyn Error>> {
        // A binding keeps its mesh in place until the frame is done; all others may move meanwhile.
        let meshes: Vec<_> = visible
            .iter()
            .filter_map(|index| Some((*index, assets.meshes[*index].as_ref()?.binding())))
            .collect();
        let (uniforms, step) = self.uniforms(&meshes)?;
        let uniforms = uniforms.binding();
        let buffer = uniforms.block().buffer().ok_or("uniforms have a buffer")?;
        self.pipeline.aim(buffer, uniforms.span().offset);
        let bytes = u64::from(SIZE.0) * u64::from(SIZE.1) * 4;
        let pixels = self.manager.allocate(
            &Request::new(bytes).usage(Usage::Readback).align(Align::of(16)).name("pixels"),
        )?;
        let target = pixels.binding();
        let into = target.block().buffer().ok_or("read-back memory has a buffer")?;
        let work = self.device.submit(self.manager, |commands| {
            self.begin(commands);
            self.draw(commands, &meshes, step);
            self.end(commands, into, target.span().offset);
        })?;
        self.device.finish(self.manager, work)?;
        drop(target);
        let mut picture = vec![0; usize::try_from(bytes)?];
        pixels.read(0, &mut picture)?;
        Ok(Picture::new(SIZE, picture))
    }

    /// One piece of memory for all objects of the frame, and the bytes between two of them.
    fn uniforms(
        &self,
        meshes: &[(usize, Binding<'_, Vulkan>)],
    ) -> Result<(Allocation<Vulkan>, u32), Box<dyn Error>> {
        let align = self.manager.backend().offset_align(vk::BufferUsageFlags::UNIFORM_BUFFER);
        let step = align.up(u64::from(OBJECT)).ok_or("a small number")?;
        let size = step * meshes.len().max(1) as u64;
        let uniforms = self
            .manager
            .allocate(&Request::new(size).usage(Usage::Upload).align(align).name("uniforms"))?;
        let view = uniforms.map()?;
        for (n, (index, _)) in (0u64..).zip(meshes) {
            view.write(n * step, &self.scene.objects[*index].uniforms())?;
        }
        view.flush(0, size)?;
        drop(view);
        Ok((uniforms, u32::try_from(step)?))
    }

    fn begin(&self, commands: vk::CommandBuffer) {
        use vk::{AccessFlags as A, ImageLayout as L, PipelineStageFlags as S};
        let raw = &self.device.raw;
        let fresh = (L::UNDEFINED, A::empty());
        let drawn = (L::COLOR_ATTACHMENT_OPTIMAL, A::COLOR_ATTACHMENT_WRITE);
        turn(
            raw,
            commands,
            self.colour.native.handle,
            (fresh, drawn, S::TRANSFER, S::COLOR_ATTACHMENT_OUTPUT),
        );
        let tests = S::EARLY_FRAGMENT_TESTS | S::LATE_FRAGMENT_TESTS;
        let access = A::DEPTH_STENCIL_ATTACHMENT_READ | A::DEPTH_STENCIL_ATTACHMENT_WRITE;
        let deep = [vk::ImageMemoryBarrier::default()
            .new_layout(L::DEPTH_ATTACHMENT_OPTIMAL)
            .src_access_mask(A::DEPTH_STENCIL_ATTACHMENT_WRITE)
            .dst_access_mask(access)
            .image(self.depth.native.handle)
            .subresource_range(whole(vk::ImageAspectFlags::DEPTH))];
        let none = vk::DependencyFlags::empty();
        // SAFETY: recording; here and below, all handles are the device's own.
        unsafe { raw.cmd_pipeline_barrier(commands, tests, tests, none, &[], &[], &deep) };
        let colour = vk::ClearValue { color: vk::ClearColorValue { float32: CLEAR } };
        let far =
            vk::ClearValue { depth_stencil: vk::ClearDepthStencilValue { depth: 1.0, stencil: 0 } };
        let clear = vk::RenderingAttachmentInfo::default().load_op(vk::AttachmentLoadOp::CLEAR);
        let colours = [clear
            .image_view(self.colour.native.view)
            .image_layout(L::COLOR_ATTACHMENT_OPTIMAL)
            .store_op(vk::AttachmentStoreOp::STORE)
            .clear_value(colour)];
        let depth = clear
            .image_view(self.depth.native.view)
            .image_layout(L::DEPTH_ATTACHMENT_OPTIMAL)
            .store_op(vk::AttachmentStoreOp::DONT_CARE)
            .clear_value(far);
        let info = vk::RenderingInfo::default()
            .render_area(area())
            .layer_count(1)
            .color_attachments(&colours)
            .depth_attachment(&depth);
        // SAFETY: as above.
        unsafe { raw.cmd_begin_rendering(commands, &info) };
    }

    /// One draw call for each mesh, straight from the block it lies in.
    fn draw(
        &self,
        commands: vk::CommandBuffer,
        meshes: &[(usize, Binding<'_, Vulkan>)],
        step: u32,
    ) {
        let (raw, pipeline) = (&self.device.raw, &self.pipeline);
        let graphics = vk::PipelineBindPoint::GRAPHICS;
        // SAFETY: recording; here and below, all handles are alive until the frame is done.
        unsafe { raw.cmd_bind_pipeline(commands, graphics, pipeline.raw) };
        for (n, (index, binding)) in (0u32..).zip(meshes) {
            let Some(buffer) = binding.block().buffer() else { continue };
            let (mesh, object) = (&self.scene.meshes[*index], &self.scene.objects[*index]);
            let (at, sets) =
                (binding.span().offset, [pipeline.object, pipeline.textures[object.texture]]);
            // SAFETY: as above.
            unsafe {
                raw.cmd_bind_descriptor_sets(
                    commands,
                    graphics,
                    pipeline.layout,
                    0,
                    &sets,
                    &[n * step],
                );
            };
            // SAFETY: as above.
            unsafe { raw.cmd_bind_vertex_buffers(commands, 0, &[buffer], &[at]) };
            let (indices, kind) = (at + mesh.indices_at, vk::IndexType::UINT32);
            // SAFETY: as above.
            unsafe { raw.cmd_bind_index_buffer(commands, buffer, indices, kind) };
            // SAFETY: as above; the mesh has that many indices.
            unsafe { raw.cmd_draw_indexed(commands, mesh.indices, 1, 0, 0, 0) };
        }
    }

    fn end(&self, commands: vk::CommandBuffer, into: vk::Buffer, offset: u64) {
        use vk::{AccessFlags as A, ImageLayout as L, PipelineStageFlags as S};
        let raw = &self.device.raw;
        // SAFETY: recording since `begin`.
        unsafe { raw.cmd_end_rendering(commands) };
        let drawn = (L::COLOR_ATTACHMENT_OPTIMAL, A::COLOR_ATTACHMENT_WRITE);
        let read = (L::TRANSFER_SRC_OPTIMAL, A::TRANSFER_READ);
        turn(
            raw,
            commands,
            self.colour.native.handle,
            (drawn, read, S::COLOR_ATTACHMENT_OUTPUT, S::TRANSFER),
        );
        let region = [vk::BufferImageCopy {
            buffer_offset: offset,
            image_subresource: vk::ImageSubresourceLayers {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                layer_count: 1,
                ..Default::default()
            },
            image_extent: vk::Extent3D { width: SIZE.0, height: SIZE.1, depth: 1 },
            ..Default::default()
        }];
        let from = L::TRANSFER_SRC_OPTIMAL;
        // SAFETY: recording; the memory holds all pixels.
        unsafe {
            raw.cmd_copy_image_to_buffer(commands, self.colour.native.handle, from, into, &region);
        };
        let seen = [vk::MemoryBarrier::default()
            .src_access_mask(A::TRANSFER_WRITE)
            .dst_access_mask(A::HOST_READ | A::TRANSFER_READ)];
        let none = vk::DependencyFlags::empty();
        let after = S::HOST | S::TRANSFER;
        // SAFETY: recording.
        unsafe { raw.cmd_pipeline_barrier(commands, S::TRANSFER, after, none, &seen, &[], &[]) };
    }
}

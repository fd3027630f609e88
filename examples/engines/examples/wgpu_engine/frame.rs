//! One frame: uniforms in, draw calls, pixels out.
use crate::{Meshes, setup};
use core::error::Error;
use omniheap_core::{
    Align, AllocateError, Allocation, Binding, Manager, Request, Span, Usage, Writer,
};
use omniheap_engines::{OBJECT, Picture, SIZE, Scene};
use omniheap_wgpu::{Bind, Texture, Wgpu, wgpu};

const CLEAR: wgpu::Color = wgpu::Color { r: 0.05, g: 0.06, b: 0.09, a: 1.0 };
const EXTENT: wgpu::Extent3d =
    wgpu::Extent3d { width: SIZE.0, height: SIZE.1, depth_or_array_layers: 1 };

/// Pipeline, targets and buffers shared by all frames.
pub(crate) struct Renderer<'a> {
    manager: &'a Manager<Wgpu>,
    scene: &'a Scene,
    pipeline: wgpu::RenderPipeline,
    surfaces: Vec<setup::Surface>,
    colour: Texture,
    depth: Texture,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(manager: &'a Manager<Wgpu>, scene: &'a Scene) -> Result<Self, AllocateError> {
        let pipeline = setup::pipeline(manager.backend().device());
        let surfaces = setup::surfaces(manager, &pipeline, scene)?;
        use wgpu::TextureUsages as U;
        let usage = U::RENDER_ATTACHMENT | U::COPY_SRC;
        let colour = setup::image(manager, EXTENT, setup::COLOUR, usage)?;
        let depth = setup::image(manager, EXTENT, setup::DEPTH, U::RENDER_ATTACHMENT)?;
        Ok(Self { manager, scene, pipeline, surfaces, colour, depth })
    }

    /// Returns the number of textures in the manager's memory.
    pub(crate) fn placed(&self) -> usize {
        let textures = self.surfaces.iter().map(|surface| &surface.texture);
        let all = textures.chain([&self.colour, &self.depth]);
        all.filter(|texture| texture.allocation().is_some()).count()
    }

    /// Renders the objects that still have a mesh.
    pub(crate) fn render(&self, meshes: &Meshes) -> Result<Picture, Box<dyn Error>> {
        let wgpu = self.manager.backend();
        // A binding keeps its mesh in place until the frame is done.
        let bound: Vec<_> = meshes
            .iter()
            .enumerate()
            .filter_map(|(index, mesh)| Some((index, mesh.as_ref()?.binding())))
            .collect();
        let (uniforms, step) = self.uniforms(&bound)?;
        let place = uniforms.binding();
        let first = Span { size: u64::from(OBJECT), ..place.span() };
        let window = wgpu.bind(place.block(), first, Bind::Uniform)?;
        let object = wgpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[setup::entry(0, wgpu::BindingResource::Buffer(window))],
        });
        let bytes = u64::from(SIZE.0) * u64::from(SIZE.1) * 4;
        let request =
            Request::new(bytes).usage(Usage::Readback).align(Align::of(256)).name("pixels");
        let pixels = self.manager.allocate(&request)?;
        let target = pixels.binding();
        let mut encoder = wgpu.device().create_command_encoder(&Default::default());
        self.draw(&mut encoder, &bound, &object, step);
        let layout = wgpu::TexelCopyBufferLayout {
            offset: target.span().offset,
            bytes_per_row: Some(SIZE.0 * 4),
            rows_per_image: None,
        };
        let into = wgpu::TexelCopyBufferInfo { buffer: target.block().buffer(), layout };
        encoder.copy_texture_to_buffer(self.colour.raw().as_image_copy(), into, EXTENT);
        wgpu.queue().submit([encoder.finish()]);
        drop(target);
        let mut picture = vec![0; usize::try_from(bytes)?];
        pixels.read(0, &mut picture)?;
        Ok(Picture::new(SIZE, picture))
    }

    /// One piece of memory for all objects of the frame, and the bytes between two of them.
    fn uniforms(
        &self,
        bound: &[(usize, Binding<'_, Wgpu>)],
    ) -> Result<(Allocation<Wgpu>, u32), Box<dyn Error>> {
        let align = self.manager.backend().bind_align(Bind::Uniform);
        let step = align.up(u64::from(OBJECT)).ok_or("a small number")?;
        let mut bytes = vec![0; usize::try_from(step)? * bound.len().max(1)];
        for (to, (index, _)) in bytes.chunks_mut(usize::try_from(step)?).zip(bound) {
            let uniforms = self.scene.objects[*index].uniforms();
            to[..uniforms.len()].copy_from_slice(&uniforms);
        }
        let request = Request::new(bytes.len() as u64).align(align).writer(Writer::HostOnce);
        let uniforms = self.manager.allocate(&request.name("uniforms"))?;
        uniforms.write(0, &bytes)?;
        Ok((uniforms, u32::try_from(step)?))
    }

    fn draw(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        bound: &[(usize, Binding<'_, Wgpu>)],
        object: &wgpu::BindGroup,
        step: u32,
    ) {
        let view = self.colour.raw().create_view(&Default::default());
        let depth = self.depth.raw().create_view(&Default::default());
        let (load, store) = (wgpu::LoadOp::Clear(CLEAR), wgpu::StoreOp::Store);
        let (far, discard) = (wgpu::LoadOp::Clear(1.0), wgpu::StoreOp::Discard);
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations { load, store },
            })],
            depth_stencil_attachment: Some(wgpu::RenderPassDepthStencilAttachment {
                view: &depth,
                depth_ops: Some(wgpu::Operations { load: far, store: discard }),
                stencil_ops: None,
            }),
            ..Default::default()
        });
        pass.set_pipeline(&self.pipeline);
        for (n, (index, binding)) in (0u32..).zip(bound) {
            let (mesh, buffer) = (&self.scene.meshes[*index], binding.block().buffer());
            let start = binding.span().offset;
            let (indices, end) = (start + mesh.indices_at, start + mesh.bytes.len() as u64);
            pass.set_bind_group(0, object, &[n * step]);
            pass.set_bind_group(1, &self.surfaces[self.scene.objects[*index].texture].group, &[]);
            pass.set_vertex_buffer(0, buffer.slice(start..indices));
            pass.set_index_buffer(buffer.slice(indices..end), wgpu::IndexFormat::Uint32);
            pass.draw_indexed(0..mesh.indices, 0, 0..1);
        }
    }
}

const _: () = assert!(SIZE.0.is_multiple_of(64), "wgpu copies rows of whole 256 bytes");

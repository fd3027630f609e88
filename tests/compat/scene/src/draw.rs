//! Textured objects that come and go, drawn into one picture that is read back.
use crate::memory::{Random, buffer, texture, write};
use std::{cell::RefCell, error::Error};

const SIZE: u32 = 256;
const COLOUR: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;
const DEPTH: wgpu::TextureFormat = wgpu::TextureFormat::Depth32Float;

const SHADER: &str = "
struct Object { place: vec4<f32>, tint: vec4<f32> }
@group(0) @binding(0) var<uniform> object: Object;
@group(0) @binding(1) var image: texture_2d<f32>;
@group(0) @binding(2) var filtering: sampler;
struct Corner { @builtin(position) at: vec4<f32>, @location(0) uv: vec2<f32> }
@vertex fn shape(@location(0) at: vec2<f32>, @location(1) uv: vec2<f32>) -> Corner {
    return Corner(vec4(at * object.place.w + object.place.xy, object.place.z, 1.0), uv);
}
@fragment fn surface(corner: Corner) -> @location(0) vec4<f32> {
    return textureSample(image, filtering, corner.uv) * object.tint;
}";

/// A mesh, its uniforms and its texture.
struct Object {
    vertices: wgpu::Buffer,
    indices: wgpu::Buffer,
    count: u32,
    group: wgpu::BindGroup,
}

/// Everything that frames share, and the objects that are alive.
pub struct Renderer<'a> {
    device: &'a wgpu::Device,
    queue: &'a wgpu::Queue,
    pipeline: wgpu::RenderPipeline,
    filtering: wgpu::Sampler,
    colour: wgpu::Texture,
    depth: wgpu::Texture,
    pixels: wgpu::Buffer,
    objects: RefCell<Vec<Object>>,
    random: RefCell<Random>,
}

/// Objects alive at most.
const MOST: usize = 48;

impl<'a> Renderer<'a> {
    pub fn new(device: &'a wgpu::Device, queue: &'a wgpu::Queue) -> Self {
        use wgpu::TextureUsages as U;
        let pixels = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("pixels"),
            size: u64::from(SIZE * SIZE * 4),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        Self {
            pipeline: pipeline(device),
            filtering: device.create_sampler(&wgpu::SamplerDescriptor {
                mag_filter: wgpu::FilterMode::Linear,
                ..Default::default()
            }),
            colour: target(device, COLOUR, U::RENDER_ATTACHMENT | U::COPY_SRC),
            depth: target(device, DEPTH, U::RENDER_ATTACHMENT),
            pixels,
            objects: RefCell::default(),
            random: RefCell::new(Random::new(9)),
            device,
            queue,
        }
    }

    /// Spawns three objects, despawns some, draws, and returns the picture.
    pub fn frame(&self, frame: u32) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut random = self.random.borrow_mut();
        let mut objects = self.objects.borrow_mut();
        for _ in 0..3 {
            objects.push(self.spawn(frame, &mut random));
        }
        while objects.len() > MOST {
            let at = random.below(u32::try_from(objects.len())?);
            drop(objects.swap_remove(at as usize));
        }
        let mut encoder = self.device.create_command_encoder(&Default::default());
        self.draw(&mut encoder, &objects);
        let layout =
            wgpu::TexelCopyBufferLayout { bytes_per_row: Some(SIZE * 4), ..Default::default() };
        let into = wgpu::TexelCopyBufferInfo { buffer: &self.pixels, layout };
        encoder.copy_texture_to_buffer(self.colour.as_image_copy(), into, self.colour.size());
        self.queue.submit([encoder.finish()]);
        self.read()
    }

    fn read(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        self.pixels.map_async(wgpu::MapMode::Read, .., |mapped| mapped.expect("it is mappable"));
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        let picture = self.pixels.get_mapped_range(..)?.to_vec();
        self.pixels.unmap();
        Ok(picture)
    }

    fn spawn(&self, frame: u32, random: &mut Random) -> Object {
        let side = 1 + random.below(24);
        let (points, triangles) = grid(side);
        let vertices = buffer(self.device, 16 * points.len() as u64, "vertices");
        self.queue.write_buffer(&vertices, 0, bytemuck::cast_slice(&points));
        let indices = self.create_with(wgpu::BufferUsages::INDEX, bytemuck::cast_slice(&triangles));
        let part = |n: u32| n as f32 / 1000.0;
        let uniforms: [f32; 8] = [
            part(random.below(1800)) - 0.9,
            part(random.below(1800)) - 0.9,
            part(random.below(1000)),
            0.05 + part(random.below(300)),
            part(random.below(1000)),
            part(random.below(1000)),
            1.0,
            1.0,
        ];
        let uniforms =
            self.create_with(wgpu::BufferUsages::UNIFORM, bytemuck::cast_slice(&uniforms));
        let side = 16 << random.below(5);
        let image = texture(self.device, side, "image");
        let pixels: Vec<u8> = (0..side * side)
            .flat_map(|n| [n ^ frame, n / side * 3 + frame, n * 7, 255].map(|n| (n & 255) as u8))
            .collect();
        write(self.queue, &image, side, &pixels);
        let view = image.create_view(&Default::default());
        let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[
                entry(0, uniforms.as_entire_binding()),
                entry(1, wgpu::BindingResource::TextureView(&view)),
                entry(2, wgpu::BindingResource::Sampler(&self.filtering)),
            ],
        });
        let count = u32::try_from(triangles.len()).expect("a small grid");
        Object { vertices, indices, count, group }
    }

    fn create_with(&self, usage: wgpu::BufferUsages, bytes: &[u8]) -> wgpu::Buffer {
        let made = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("data"),
            size: bytes.len().next_multiple_of(4) as u64,
            usage,
            mapped_at_creation: true,
        });
        made.get_mapped_range_mut(..)
            .expect("mapped at creation")
            .slice(..bytes.len())
            .copy_from_slice(bytes);
        made.unmap();
        made
    }

    fn draw(&self, encoder: &mut wgpu::CommandEncoder, objects: &[Object]) {
        let view = self.colour.create_view(&Default::default());
        let depth = self.depth.create_view(&Default::default());
        let (load, store) = (wgpu::LoadOp::Clear(wgpu::Color::BLACK), wgpu::StoreOp::Store);
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
        for object in objects {
            pass.set_bind_group(0, &object.group, &[]);
            pass.set_vertex_buffer(0, object.vertices.slice(..));
            pass.set_index_buffer(object.indices.slice(..), wgpu::IndexFormat::Uint32);
            pass.draw_indexed(0..object.count, 0, 0..1);
        }
    }
}

fn target(
    device: &wgpu::Device,
    format: wgpu::TextureFormat,
    usage: wgpu::TextureUsages,
) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: Some("target"),
        size: wgpu::Extent3d { width: SIZE, height: SIZE, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage,
        view_formats: &[],
    })
}

fn pipeline(device: &wgpu::Device) -> wgpu::RenderPipeline {
    let source = wgpu::ShaderSource::Wgsl(SHADER.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let attributes = wgpu::vertex_attr_array![0 => Float32x2, 1 => Float32x2];
    let vertices = wgpu::VertexBufferLayout {
        array_stride: 16,
        step_mode: wgpu::VertexStepMode::Vertex,
        attributes: &attributes,
    };
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: None,
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("shape"),
            compilation_options: Default::default(),
            buffers: &[Some(vertices)],
        },
        primitive: wgpu::PrimitiveState::default(),
        depth_stencil: Some(wgpu::DepthStencilState {
            format: DEPTH,
            depth_write_enabled: Some(true),
            depth_compare: Some(wgpu::CompareFunction::Less),
            stencil: Default::default(),
            bias: Default::default(),
        }),
        multisample: Default::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("surface"),
            compilation_options: Default::default(),
            targets: &[Some(COLOUR.into())],
        }),
        multiview_mask: None,
        cache: None,
    })
}

/// A square of `side` by `side` cells: corners with their texture coordinates, and triangles.
fn grid(side: u32) -> (Vec<[f32; 4]>, Vec<u32>) {
    let part = |n: u32| n as f32 / side as f32;
    let corner = |n: u32| {
        let (u, v) = (part(n % (side + 1)), part(n / (side + 1)));
        [2.0 * u - 1.0, 2.0 * v - 1.0, u, v]
    };
    let corners = (0..(side + 1) * (side + 1)).map(corner).collect();
    let cell = |n: u32| {
        let a = n / side * (side + 1) + n % side;
        [a, a + 1, a + side + 1, a + 1, a + side + 2, a + side + 1]
    };
    (corners, (0..side * side).flat_map(cell).collect())
}

/// A fingerprint of a picture (FNV-1a).
pub fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

//! Setup: the pipeline, its layouts, and the textures.
use core::num::NonZero;
use omniheap_core::{AllocateError, Manager};
use omniheap_engines::{OBJECT, SHADER, STRIDE, Scene, Texture};
use omniheap_wgpu::{self as memory, Wgpu, wgpu};

pub(crate) const COLOUR: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;
pub(crate) const DEPTH: wgpu::TextureFormat = wgpu::TextureFormat::Depth32Float;

pub(crate) fn entry(binding: u32, resource: wgpu::BindingResource<'_>) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry { binding, resource }
}

/// Returns a texture in memory of the manager, where wgpu lets it be placed.
pub(crate) fn image(
    manager: &Manager<Wgpu>,
    size: wgpu::Extent3d,
    format: wgpu::TextureFormat,
    usage: wgpu::TextureUsages,
) -> Result<memory::Texture, AllocateError> {
    let wanted = wgpu::TextureDescriptor {
        label: Some("texture"),
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage,
        view_formats: &[],
    };
    memory::Texture::create(manager, &wanted)
}

/// A texture and the group that binds it.
pub(crate) struct Surface {
    pub(crate) group: wgpu::BindGroup,
    /// Lives as long as it is bound.
    pub(crate) texture: memory::Texture,
}

pub(crate) fn surfaces(
    manager: &Manager<Wgpu>,
    pipeline: &wgpu::RenderPipeline,
    scene: &Scene,
) -> Result<Vec<Surface>, AllocateError> {
    let device = manager.backend().device();
    let filter = device.create_sampler(&wgpu::SamplerDescriptor {
        mag_filter: wgpu::FilterMode::Linear,
        min_filter: wgpu::FilterMode::Linear,
        address_mode_u: wgpu::AddressMode::Repeat,
        address_mode_v: wgpu::AddressMode::Repeat,
        ..Default::default()
    });
    let layout = pipeline.get_bind_group_layout(1);
    let surface = |texture: &Texture| {
        let texture = upload(manager, texture)?;
        let view = texture.raw().create_view(&Default::default());
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &[
                entry(0, wgpu::BindingResource::TextureView(&view)),
                entry(1, wgpu::BindingResource::Sampler(&filter)),
            ],
        });
        Ok(Surface { group, texture })
    };
    scene.textures.iter().map(surface).collect()
}

fn upload(manager: &Manager<Wgpu>, texture: &Texture) -> Result<memory::Texture, AllocateError> {
    let (width, height) = (texture.size, texture.size);
    let size = wgpu::Extent3d { width, height, depth_or_array_layers: 1 };
    use wgpu::TextureUsages as U;
    let made = image(manager, size, COLOUR, U::TEXTURE_BINDING | U::COPY_DST)?;
    let rows = wgpu::TexelCopyBufferLayout { bytes_per_row: Some(width * 4), ..Default::default() };
    let queue = manager.backend().queue();
    queue.write_texture(made.raw().as_image_copy(), &texture.pixels, rows, size);
    Ok(made)
}

pub(crate) fn pipeline(device: &wgpu::Device) -> wgpu::RenderPipeline {
    let source = wgpu::ShaderSource::Wgsl(SHADER.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let layouts = [object_layout(device), surface_layout(device)];
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        bind_group_layouts: &[Some(&layouts[0]), Some(&layouts[1])],
        ..Default::default()
    });
    let attributes = wgpu::vertex_attr_array![0 => Float32x3, 1 => Float32x3, 2 => Float32x2];
    let vertices = wgpu::VertexBufferLayout {
        array_stride: u64::from(STRIDE),
        step_mode: wgpu::VertexStepMode::Vertex,
        attributes: &attributes,
    };
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: None,
        layout: Some(&layout),
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

fn object_layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let uniforms = wgpu::BindingType::Buffer {
        ty: wgpu::BufferBindingType::Uniform,
        has_dynamic_offset: true,
        min_binding_size: NonZero::new(u64::from(OBJECT)),
    };
    layout(device, &[(wgpu::ShaderStages::VERTEX, uniforms)])
}

fn surface_layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let image = wgpu::BindingType::Texture {
        sample_type: wgpu::TextureSampleType::Float { filterable: true },
        view_dimension: wgpu::TextureViewDimension::D2,
        multisampled: false,
    };
    let filter = wgpu::BindingType::Sampler(wgpu::SamplerBindingType::Filtering);
    let stage = wgpu::ShaderStages::FRAGMENT;
    layout(device, &[(stage, image), (stage, filter)])
}

type Slot = (wgpu::ShaderStages, wgpu::BindingType);

fn layout(device: &wgpu::Device, slots: &[Slot]) -> wgpu::BindGroupLayout {
    let entry = |(binding, (visibility, ty)): (u32, &Slot)| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: *visibility,
        ty: *ty,
        count: None,
    };
    let entries: Vec<_> = (0u32..).zip(slots).map(entry).collect();
    let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
    device.create_bind_group_layout(&descriptor)
}

//! What is made once: the pipeline, its layouts, and the textures, which wgpu places itself.
use core::num::NonZero;
use omniheap_engines::{OBJECT, SHADER, STRIDE, Scene, Texture};
use omniheap_wgpu::{Wgpu, wgpu};

pub(crate) const COLOUR: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;
pub(crate) const DEPTH: wgpu::TextureFormat = wgpu::TextureFormat::Depth32Float;

pub(crate) fn entry(binding: u32, resource: wgpu::BindingResource<'_>) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry { binding, resource }
}

pub(crate) fn image(
    device: &wgpu::Device,
    size: wgpu::Extent3d,
    format: wgpu::TextureFormat,
    usage: wgpu::TextureUsages,
) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage,
        view_formats: &[],
    })
}

/// One group for each texture.
pub(crate) fn textures(
    wgpu: &Wgpu,
    pipeline: &wgpu::RenderPipeline,
    scene: &Scene,
) -> Vec<wgpu::BindGroup> {
    let filter = wgpu.device().create_sampler(&wgpu::SamplerDescriptor {
        mag_filter: wgpu::FilterMode::Linear,
        min_filter: wgpu::FilterMode::Linear,
        address_mode_u: wgpu::AddressMode::Repeat,
        address_mode_v: wgpu::AddressMode::Repeat,
        ..Default::default()
    });
    let layout = pipeline.get_bind_group_layout(1);
    let group = |texture: &Texture| {
        let view = upload(wgpu, texture);
        wgpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &[
                entry(0, wgpu::BindingResource::TextureView(&view)),
                entry(1, wgpu::BindingResource::Sampler(&filter)),
            ],
        })
    };
    scene.textures.iter().map(group).collect()
}

fn upload(wgpu: &Wgpu, texture: &Texture) -> wgpu::TextureView {
    let (width, height) = (texture.size, texture.size);
    let size = wgpu::Extent3d { width, height, depth_or_array_layers: 1 };
    use wgpu::TextureUsages as U;
    let made = image(wgpu.device(), size, COLOUR, U::TEXTURE_BINDING | U::COPY_DST);
    let rows = wgpu::TexelCopyBufferLayout { bytes_per_row: Some(width * 4), ..Default::default() };
    wgpu.queue().write_texture(made.as_image_copy(), &texture.pixels, rows, size);
    made.create_view(&Default::default())
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

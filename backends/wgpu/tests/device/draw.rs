//! Render passes over textures of [`Texture::create`]: clear, discard, load, sample, copy.
use crate::{
    Check, Target,
    texture::{flat, is_real, open, read},
};
use omniheap_core::{Backend, Manager};
use omniheap_wgpu::{Texture, Wgpu};
use wgpu::{
    Color, LoadOp, Operations, StoreOp, TextureDescriptor, TextureFormat, TextureUsages,
    TextureView,
};

pub(crate) const CASES: &[(&str, Check)] = &[
    ("a_discarded_target_reads_as_zeros", a_discarded_target_reads_as_zeros),
    ("a_discarded_target_can_be_loaded", a_discarded_target_can_be_loaded),
    ("discarded_depth_can_be_used_again", discarded_depth_can_be_used_again),
    ("a_sampled_texture_is_drawn", a_sampled_texture_is_drawn),
];

const SIDE: u32 = 64;
const TARGET: TextureUsages = TextureUsages::RENDER_ATTACHMENT
    .union(TextureUsages::COPY_SRC)
    .union(TextureUsages::TEXTURE_BINDING);

fn target_of(manager: &Manager<Wgpu>, format: TextureFormat) -> Texture {
    let wanted = TextureDescriptor { usage: TARGET, ..flat(format, SIDE, SIDE) };
    Texture::create(manager, &wanted).expect("every device draws to it")
}

fn view(texture: &Texture) -> TextureView {
    texture.raw().create_view(&Default::default())
}

/// Runs one pass over a colour target and what `draw` records.
fn pass(
    manager: &Manager<Wgpu>,
    target: &TextureView,
    ops: Operations<Color>,
    draw: impl FnOnce(&mut wgpu::RenderPass<'_>),
) {
    let wgpu = manager.backend();
    let mut encoder = wgpu.device().create_command_encoder(&Default::default());
    let colour = wgpu::RenderPassColorAttachment {
        view: target,
        depth_slice: None,
        resolve_target: None,
        ops,
    };
    let mut recorded = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
        color_attachments: &[Some(colour)],
        ..Default::default()
    });
    draw(&mut recorded);
    drop(recorded);
    wgpu.queue().submit([encoder.finish()]);
}

const WHITE: LoadOp<Color> = LoadOp::Clear(Color::WHITE);

fn a_discarded_target_reads_as_zeros(target: &Target) {
    let manager = open(target);
    if !is_real(&manager) {
        return;
    }
    let texture = target_of(&manager, TextureFormat::Rgba8Unorm);
    pass(&manager, &view(&texture), Operations { load: WHITE, store: StoreOp::Store }, |_| ());
    assert!(read(&manager, texture.raw()).iter().all(|byte| *byte == 255));
    pass(&manager, &view(&texture), Operations { load: WHITE, store: StoreOp::Discard }, |_| ());
    assert!(read(&manager, texture.raw()).iter().all(|byte| *byte == 0));
}

fn a_discarded_target_can_be_loaded(target: &Target) {
    let manager = open(target);
    if !is_real(&manager) {
        return;
    }
    let texture = target_of(&manager, TextureFormat::Rgba8Unorm);
    pass(&manager, &view(&texture), Operations { load: WHITE, store: StoreOp::Discard }, |_| ());
    let load = Operations { load: LoadOp::Load, store: StoreOp::Store };
    pass(&manager, &view(&texture), load, |_| ());
    assert!(read(&manager, texture.raw()).iter().all(|byte| *byte == 0));
}

/// As engines use depth: cleared and discarded in each frame, and loaded by one of them.
fn discarded_depth_can_be_used_again(target: &Target) {
    let manager = open(target);
    let depth = target_of(&manager, TextureFormat::Depth32Float);
    let (wgpu, view) = (manager.backend(), view(&depth));
    for load in [LoadOp::Clear(0.5), LoadOp::Clear(1.0), LoadOp::Load] {
        let mut encoder = wgpu.device().create_command_encoder(&Default::default());
        drop(encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            depth_stencil_attachment: Some(wgpu::RenderPassDepthStencilAttachment {
                view: &view,
                depth_ops: Some(Operations { load, store: StoreOp::Discard }),
                stencil_ops: None,
            }),
            ..Default::default()
        }));
        wgpu.queue().submit([encoder.finish()]);
    }
    wgpu.wait_idle().expect("the device is there");
}

const SHADER: &str = "
@group(0) @binding(0) var picture: texture_2d<f32>;
@vertex fn corner(@builtin(vertex_index) index: u32) -> @builtin(position) vec4f {
    return vec4f(f32(index & 1u) * 4.0 - 1.0, f32(index >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}
@fragment fn colour(@builtin(position) at: vec4f) -> @location(0) vec4f {
    return textureLoad(picture, vec2u(at.xy), 0);
}";

/// Makes a pipeline that fills a target with a texture of the same size.
fn pipeline(device: &wgpu::Device, format: TextureFormat) -> wgpu::RenderPipeline {
    let source = wgpu::ShaderSource::Wgsl(SHADER.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let targets = [Some(format.into())];
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: None,
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("corner"),
            compilation_options: Default::default(),
            buffers: &[],
        },
        primitive: Default::default(),
        depth_stencil: None,
        multisample: Default::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("colour"),
            compilation_options: Default::default(),
            targets: &targets,
        }),
        multiview_mask: None,
        cache: None,
    })
}

/// From a texture in our memory, through a discarded target that is sampled, to a target that is read.
fn a_sampled_texture_is_drawn(target: &Target) {
    let manager = open(target);
    if !is_real(&manager) {
        return;
    }
    let format = TextureFormat::Rgba8Unorm;
    let device = manager.backend().device();
    let pipeline = pipeline(device, format);
    let source = Texture::create(&manager, &flat(format, SIDE, SIDE)).expect("small");
    let bytes = crate::texture::write(&manager, source.raw(), 3);
    let (first, second) = (target_of(&manager, format), target_of(&manager, format));
    let copy = |from: &Texture, to: &Texture, store| {
        let entry = wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::TextureView(&view(from)),
        };
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[entry],
        });
        pass(&manager, &view(to), Operations { load: WHITE, store }, |pass| {
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.draw(0..3, 0..1);
        });
    };
    copy(&source, &first, StoreOp::Store);
    copy(&first, &second, StoreOp::Store);
    assert!(read(&manager, second.raw()) == bytes, "the picture is another");
    copy(&source, &first, StoreOp::Discard);
    copy(&first, &second, StoreOp::Store);
    assert!(read(&manager, second.raw()).iter().all(|byte| *byte == 0), "it was discarded");
}

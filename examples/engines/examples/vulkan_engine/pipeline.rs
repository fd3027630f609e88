//! Pipeline and descriptor sets: one set for the object, one for the texture.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use crate::{assets::Assets, frame};
use core::error::Error;
use omniheap_engines::{OBJECT, STRIDE, spirv};
use omniheap_vulkan::{ash, ash::vk};

/// A pipeline and the sets that its draw calls bind.
pub(crate) struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    pub(crate) layout: vk::PipelineLayout,
    /// The object's uniforms; every frame points it at its own memory.
    pub(crate) object: vk::DescriptorSet,
    /// One for each texture.
    pub(crate) textures: Vec<vk::DescriptorSet>,
    sampler: vk::Sampler,
    pool: vk::DescriptorPool,
    sets: [vk::DescriptorSetLayout; 2],
    device: ash::Device,
}

impl Pipeline {
    pub(crate) fn create(device: &ash::Device, assets: &Assets) -> Result<Self, Box<dyn Error>> {
        use vk::DescriptorType as D;
        let (vertex, fragment) = (vk::ShaderStageFlags::VERTEX, vk::ShaderStageFlags::FRAGMENT);
        let object = set_layout(device, &[(D::UNIFORM_BUFFER_DYNAMIC, vertex)])?;
        let surface = set_layout(device, &[(D::SAMPLED_IMAGE, fragment), (D::SAMPLER, fragment)])?;
        let sets = [object, surface];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        // SAFETY: the device is alive and made both layouts.
        let layout = unsafe { device.create_pipeline_layout(&info, None) }?;
        let filter = vk::SamplerCreateInfo::default()
            .mag_filter(vk::Filter::LINEAR)
            .min_filter(vk::Filter::LINEAR);
        // SAFETY: the device is alive.
        let sampler = unsafe { device.create_sampler(&filter, None) }?;
        let (pool, mut all) = allocate(device, sets, assets.textures.len())?;
        let object = all.remove(0);
        let raw = build(device, layout)?;
        let device = device.clone();
        let pipeline = Self { raw, layout, object, textures: all, sampler, pool, sets, device };
        for (index, image) in assets.textures.iter().enumerate() {
            if let Some(image) = image {
                pipeline.show(index, image.native.view);
            }
        }
        Ok(pipeline)
    }

    /// Points a texture's set at its image, now or after it moved.
    pub(crate) fn show(&self, texture: usize, view: vk::ImageView) {
        use vk::DescriptorType as D;
        let layout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;
        let view = [vk::DescriptorImageInfo::default().image_view(view).image_layout(layout)];
        let filter = [vk::DescriptorImageInfo::default().sampler(self.sampler)];
        let write = vk::WriteDescriptorSet::default().dst_set(self.textures[texture]);
        let writes = [
            write.dst_binding(0).descriptor_type(D::SAMPLED_IMAGE).image_info(&view),
            write.dst_binding(1).descriptor_type(D::SAMPLER).image_info(&filter),
        ];
        // SAFETY: all handles are this device's, and no work uses the set now.
        unsafe { self.device.update_descriptor_sets(&writes, &[]) };
    }

    /// Points the object's set at a frame's uniforms.
    pub(crate) fn aim(&self, buffer: vk::Buffer, offset: u64) {
        let range = u64::from(OBJECT);
        let info = [vk::DescriptorBufferInfo { buffer, offset, range }];
        let writes = [vk::WriteDescriptorSet::default()
            .dst_set(self.object)
            .descriptor_type(vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC)
            .buffer_info(&info)];
        // SAFETY: the last frame that used the set has finished, and the buffer lives until this one has.
        unsafe { self.device.update_descriptor_sets(&writes, &[]) };
    }
}

type Binding = (vk::DescriptorType, vk::ShaderStageFlags);

fn set_layout(
    device: &ash::Device,
    bindings: &[Binding],
) -> Result<vk::DescriptorSetLayout, vk::Result> {
    let binding = |(index, (kind, stage)): (u32, &Binding)| {
        vk::DescriptorSetLayoutBinding::default()
            .binding(index)
            .descriptor_type(*kind)
            .descriptor_count(1)
            .stage_flags(*stage)
    };
    let bindings: Vec<_> = (0u32..).zip(bindings).map(binding).collect();
    let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
    // SAFETY: the device is alive.
    unsafe { device.create_descriptor_set_layout(&info, None) }
}

/// One set for objects, then one for each texture.
fn allocate(
    device: &ash::Device,
    layouts: [vk::DescriptorSetLayout; 2],
    textures: usize,
) -> Result<(vk::DescriptorPool, Vec<vk::DescriptorSet>), Box<dyn Error>> {
    use vk::DescriptorType as D;
    let count = u32::try_from(textures)?;
    let size = |ty, count| vk::DescriptorPoolSize { ty, descriptor_count: count };
    let sizes = [
        size(D::UNIFORM_BUFFER_DYNAMIC, 1),
        size(D::SAMPLED_IMAGE, count),
        size(D::SAMPLER, count),
    ];
    let info = vk::DescriptorPoolCreateInfo::default().max_sets(count + 1).pool_sizes(&sizes);
    // SAFETY: the device is alive.
    let pool = unsafe { device.create_descriptor_pool(&info, None) }?;
    let mut wanted = vec![layouts[1]; textures + 1];
    wanted[0] = layouts[0];
    let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&wanted);
    // SAFETY: the pool has room for exactly these.
    Ok((pool, unsafe { device.allocate_descriptor_sets(&info) }?))
}

/// A vertex as the shader takes it apart.
const STREAM: vk::VertexInputBindingDescription = vk::VertexInputBindingDescription {
    binding: 0,
    stride: STRIDE,
    input_rate: vk::VertexInputRate::VERTEX,
};
const PARTS: [vk::VertexInputAttributeDescription; 3] = [
    part(0, vk::Format::R32G32B32_SFLOAT, 0),
    part(1, vk::Format::R32G32B32_SFLOAT, 12),
    part(2, vk::Format::R32G32_SFLOAT, 24),
];

const fn part(
    location: u32,
    format: vk::Format,
    offset: u32,
) -> vk::VertexInputAttributeDescription {
    vk::VertexInputAttributeDescription { location, binding: 0, format, offset }
}

fn build(device: &ash::Device, layout: vk::PipelineLayout) -> Result<vk::Pipeline, Box<dyn Error>> {
    let code = spirv()?;
    let info = vk::ShaderModuleCreateInfo::default().code(&code);
    // SAFETY: naga validated the module.
    let module = unsafe { device.create_shader_module(&info, None) }?;
    let stage = vk::PipelineShaderStageCreateInfo::default().module(module);
    let stages = [
        stage.stage(vk::ShaderStageFlags::VERTEX).name(c"shape"),
        stage.stage(vk::ShaderStageFlags::FRAGMENT).name(c"surface"),
    ];
    let built = assemble(device, layout, &stages);
    // SAFETY: pipelines do not need it once they are built.
    unsafe { device.destroy_shader_module(module, None) };
    Ok(built?)
}

fn assemble(
    device: &ash::Device,
    layout: vk::PipelineLayout,
    stages: &[vk::PipelineShaderStageCreateInfo<'_>],
) -> Result<vk::Pipeline, vk::Result> {
    let vertices = vk::PipelineVertexInputStateCreateInfo::default()
        .vertex_binding_descriptions(&[STREAM])
        .vertex_attribute_descriptions(&PARTS);
    let triangles = vk::PipelineInputAssemblyStateCreateInfo::default()
        .topology(vk::PrimitiveTopology::TRIANGLE_LIST);
    let (ports, areas) = ([frame::port()], [frame::area()]);
    let port = vk::PipelineViewportStateCreateInfo::default().viewports(&ports).scissors(&areas);
    let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
    let samples = vk::PipelineMultisampleStateCreateInfo::default()
        .rasterization_samples(vk::SampleCountFlags::TYPE_1);
    let depth = vk::PipelineDepthStencilStateCreateInfo::default()
        .depth_test_enable(true)
        .depth_write_enable(true)
        .depth_compare_op(vk::CompareOp::LESS);
    let all = vk::ColorComponentFlags::RGBA;
    let blends = [vk::PipelineColorBlendAttachmentState::default().color_write_mask(all)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blends);
    let mut targets = vk::PipelineRenderingCreateInfo::default()
        .color_attachment_formats(&[frame::COLOUR])
        .depth_attachment_format(frame::DEPTH);
    let info = vk::GraphicsPipelineCreateInfo::default()
        .stages(stages)
        .vertex_input_state(&vertices)
        .input_assembly_state(&triangles)
        .viewport_state(&port)
        .rasterization_state(&raster)
        .multisample_state(&samples)
        .depth_stencil_state(&depth)
        .color_blend_state(&blend)
        .layout(layout)
        .push_next(&mut targets);
    // SAFETY: everything named is alive and of this device.
    let built =
        unsafe { device.create_graphics_pipelines(vk::PipelineCache::null(), &[info], None) };
    built.map(|all| all[0]).map_err(|(_, why)| why)
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: the engine finished its work before it drops the pipeline; here and below.
        unsafe { self.device.destroy_pipeline(self.raw, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_descriptor_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_sampler(self.sampler, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_pipeline_layout(self.layout, None) };
        for set in self.sets {
            // SAFETY: as above.
            unsafe { self.device.destroy_descriptor_set_layout(set, None) };
        }
    }
}

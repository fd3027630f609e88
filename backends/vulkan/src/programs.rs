//! Kernels that are loaded: a compute pipeline each, and descriptor sets that come back.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
pub(crate) mod sets;

use self::sets::Sets;
use crate::driver::{check, device::Device};
use ash::vk;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, Kernel, ProgramId, Result, lock};
use std::{
    collections::BTreeMap,
    ffi::CString,
    sync::{Arc, Mutex},
};

/// Kernels that are loaded.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    loaded: Mutex<BTreeMap<u64, Arc<Program>>>,
    next: AtomicU64,
}

impl Programs {
    pub(crate) fn load(&self, program: Program) -> ProgramId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.loaded).insert(id, Arc::new(program));
        ProgramId(id)
    }

    /// Forgets a program after its launches. It stays where they cannot be waited for.
    pub(crate) fn unload(&self, program: ProgramId) -> Result<()> {
        self.get(program)?.sets.wait()?;
        let removed = lock(&self.loaded).remove(&program.0);
        removed.map(drop).ok_or(ErrorKind::Stale.into())
    }

    pub(crate) fn get(&self, program: ProgramId) -> Result<Arc<Program>> {
        lock(&self.loaded).get(&program.0).cloned().ok_or(ErrorKind::Stale.into())
    }
}

/// A pipeline and what it is made of.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) kernel: Kernel,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    /// Dropped before the pipeline's own objects, after `drop` has waited for every launch.
    pub(crate) sets: Sets,
    device: Arc<Device>,
}

impl Program {
    pub(crate) fn new(device: &Arc<Device>, kernel: &Kernel, shared: u64) -> Result<Self> {
        let sets = Sets::new(device, kernel.slots)?;
        let null = vk::PipelineLayout::null();
        let (pipeline, device) = (vk::Pipeline::null(), Arc::clone(device));
        // Owned from here on: what fails below drops what was made so far.
        let mut program = Self { kernel: *kernel, layout: null, pipeline, sets, device };
        program.layout = program.make_layout()?;
        program.pipeline = program.make_pipeline(shared)?;
        Ok(program)
    }

    fn make_layout(&self) -> Result<vk::PipelineLayout> {
        let layouts = [self.sets.layout()];
        let push = vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(self.kernel.parameters);
        let push = [push];
        let count = usize::from(self.kernel.parameters > 0);
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&layouts)
            .push_constant_ranges(&push[..count]);
        // SAFETY: the set layout is this device's and alive; the range was checked against the limit by `load`.
        check(unsafe { self.device.raw.create_pipeline_layout(&info, None) })
    }

    fn make_pipeline(&self, shared: u64) -> Result<vk::Pipeline> {
        let device = &self.device.raw;
        let name = CString::new(self.kernel.name).map_err(|_| {
            ErrorKind::InvalidConfig.because("the kernel's `name` has a zero byte; leave it out")
        })?;
        let words = u32::try_from(shared / 4).map_err(|_| ErrorKind::ExceedsLimit)?.max(1);
        let words = words.to_ne_bytes();
        let code = vk::ShaderModuleCreateInfo::default().code(self.kernel.spirv);
        // SAFETY: the words are a valid module: the kernel's author promised that to `Kernel::new`.
        let module = check(unsafe { device.create_shader_module(&code, None) })?;
        let entry = [vk::SpecializationMapEntry { constant_id: 0, offset: 0, size: 4 }];
        let special = vk::SpecializationInfo::default().map_entries(&entry).data(&words);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&name)
            .specialization_info(&special);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        let cache = vk::PipelineCache::null();
        // SAFETY: module and layout are this device's and alive; names and data outlive the call. The layout has what the
        // module binds: the author promised that its interface is the kernel's slots and parameters.
        let made = unsafe { device.create_compute_pipelines(cache, &info, None) };
        // SAFETY: ours, and a pipeline does not need its module once it is made.
        unsafe { device.destroy_shader_module(module, None) };
        check(made.map_err(|(_, why)| why)).map(|pipelines| pipelines[0])
    }

    /// Records one launch.
    pub(crate) fn record(
        &self,
        commands: vk::CommandBuffer,
        set: vk::DescriptorSet,
        groups: [u32; 3],
        parameters: &[u8],
    ) {
        let (device, point) = (&self.device.raw, vk::PipelineBindPoint::COMPUTE);
        // SAFETY: recording on a queue that computes, as `launch` saw; the pipeline lives until its launches are over.
        unsafe { device.cmd_bind_pipeline(commands, point, self.pipeline) };
        // SAFETY: as above; the set was made of the layout's own set layout.
        unsafe { device.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &[set], &[]) };
        if !parameters.is_empty() {
            let stage = vk::ShaderStageFlags::COMPUTE;
            // SAFETY: as above; `launch` saw that the parameters are as long as the layout's range.
            unsafe { device.cmd_push_constants(commands, self.layout, stage, 0, parameters) };
        }
        // SAFETY: as above; `launch` checked the counts.
        unsafe { device.cmd_dispatch(commands, groups[0], groups[1], groups[2]) };
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.sets.wait().is_err() {
            // Launches may still use all of it, so it is kept.
            return;
        }
        // SAFETY: ours, made once, and no launch uses it any more; null is allowed.
        unsafe { self.device.raw.destroy_pipeline(self.pipeline, None) };
        // SAFETY: as above.
        unsafe { self.device.raw.destroy_pipeline_layout(self.layout, None) };
    }
}

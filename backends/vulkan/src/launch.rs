//! Kernels: a compute pipeline each, and descriptor sets that come back.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
pub(crate) mod sets;

use self::sets::{Bindings, Sets};
use crate::{
    Block, Vulkan,
    driver::{
        check,
        device::{Device, lock},
    },
    timeline::queue::QueueTimeline,
};
use ash::vk;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{
    Align, Argument, ErrorKind, Kernel, Launch, ProgramId, Result, Slot, TimelineId,
};
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
    fn get(&self, program: ProgramId) -> Result<Arc<Program>> {
        lock(&self.loaded).get(&program.0).cloned().ok_or(ErrorKind::Stale.into())
    }
}

/// A pipeline and what it is made of.
#[derive(Debug)]
struct Program {
    kernel: Kernel,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    /// Dropped before the pipeline's own objects, after `drop` has waited for every launch.
    sets: Sets,
    device: Arc<Device>,
}

impl Program {
    fn new(device: &Arc<Device>, kernel: &Kernel, shared: u64) -> Result<Self> {
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
        let code = vk::ShaderModuleCreateInfo::default().code(self.kernel.spirv);
        // SAFETY: the words are a valid module: the kernel's author, for ours the build script, answers for that.
        let module = check(unsafe { device.create_shader_module(&code, None) })?;
        let name = CString::new(self.kernel.name).map_err(|_| ErrorKind::InvalidConfig)?;
        let words = u32::try_from(shared / 4).map_err(|_| ErrorKind::ExceedsLimit)?.max(1);
        let words = words.to_ne_bytes();
        let entry = [vk::SpecializationMapEntry { constant_id: 0, offset: 0, size: 4 }];
        let special = vk::SpecializationInfo::default().map_entries(&entry).data(&words);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&name)
            .specialization_info(&special);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        let cache = vk::PipelineCache::null();
        // SAFETY: module and layout are this device's and alive; names and data outlive the call.
        let made = unsafe { device.create_compute_pipelines(cache, &info, None) };
        // SAFETY: ours, and a pipeline does not need its module once it is made.
        unsafe { device.destroy_shader_module(module, None) };
        check(made.map_err(|(_, why)| why)).map(|pipelines| pipelines[0])
    }

    /// Records one launch.
    fn record(
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
        self.sets.wait();
        // SAFETY: ours, made once, and no launch uses it any more; null is allowed.
        unsafe { self.device.raw.destroy_pipeline(self.pipeline, None) };
        // SAFETY: as above.
        unsafe { self.device.raw.destroy_pipeline_layout(self.layout, None) };
    }
}

impl Vulkan {
    /// Refuses a kernel that the device can never run.
    fn check_kernel(&self, kernel: &Kernel, shared: u64) -> Result<()> {
        let limits = &self.limits;
        if kernel.spirv.is_empty() {
            return Err(ErrorKind::Unsupported.into());
        }
        if !shared.is_multiple_of(4) || !kernel.parameters.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        let threads = kernel.group.iter().try_fold(1u32, |product, &n| product.checked_mul(n));
        let fits = threads.is_some_and(|n| n <= limits.max_compute_work_group_invocations)
            && kernel.group.iter().zip(limits.max_compute_work_group_size).all(|(a, b)| *a <= b)
            && shared <= u64::from(limits.max_compute_shared_memory_size)
            && kernel.parameters <= limits.max_push_constants_size;
        if fits { Ok(()) } else { Err(ErrorKind::ExceedsLimit.into()) }
    }

    /// Returns the descriptor of a slot, checked against the limits of its kind.
    fn descriptor(
        &self,
        slot: Slot,
        argument: &Argument<'_, Block>,
    ) -> Result<vk::DescriptorBufferInfo> {
        let (place, size) = (argument.place, argument.size);
        let buffer = self.target(place, size)?;
        let limits = &self.limits;
        let (align, most) = match slot {
            Slot::Constant => {
                (limits.min_uniform_buffer_offset_alignment, limits.max_uniform_buffer_range)
            }
            Slot::Read | Slot::Write => {
                (limits.min_storage_buffer_offset_alignment, limits.max_storage_buffer_range)
            }
        };
        let align = Align::new(align).unwrap_or(Align::ONE);
        match () {
            () if size == 0 => Err(ErrorKind::ZeroSize.into()),
            () if size > u64::from(most) => Err(ErrorKind::ExceedsLimit.into()),
            () if !align.divides(place.offset) || !size.is_multiple_of(4) => {
                Err(ErrorKind::Misaligned.into())
            }
            () => Ok(vk::DescriptorBufferInfo { buffer, offset: place.offset, range: size }),
        }
    }

    /// Returns the timeline, if its queue computes.
    fn computes(&self, on: TimelineId) -> Result<Arc<QueueTimeline>> {
        let timeline = self.timelines.get(on)?;
        let flags = self.device.queues[timeline.home].flags;
        let computes = flags.contains(vk::QueueFlags::COMPUTE);
        if computes { Ok(timeline) } else { Err(ErrorKind::Unsupported.into()) }
    }
}

// SAFETY: the pipeline is the kernel's; each argument is bound to exactly its checked range, in the order of the slots; the
// timeline keeps the order.
unsafe impl Launch for Vulkan {
    type Block = Block;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        self.check_kernel(kernel, shared)?;
        let program = Arc::new(Program::new(&self.device, kernel, shared)?);
        let id = self.programs.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.programs.loaded).insert(id, program);
        Ok(ProgramId(id))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        let removed = lock(&self.programs.loaded).remove(&program.0);
        // Dropping the last holder waits for the launches.
        removed.map(drop).ok_or(ErrorKind::Stale.into())
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        let program = self.programs.get(program)?;
        let timeline = self.computes(on)?;
        let kernel = &program.kernel;
        kernel.check_launch(arguments.len(), parameters.len())?;
        if groups.contains(&0) {
            return Err(ErrorKind::ZeroSize.into());
        }
        if groups.iter().zip(self.limits.max_compute_work_group_count).any(|(a, b)| *a > b) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let pairs = kernel.slots.iter().zip(arguments);
        let infos: Bindings =
            pairs.map(|(slot, a)| self.descriptor(*slot, a)).collect::<Result<_>>()?;
        let mut state = timeline.hold();
        let set = program.sets.take(&infos)?;
        let record = |commands| program.record(commands, set, groups, parameters);
        let sent = timeline.run(&mut state, record);
        // A set that was not sent is free at once.
        program.sets.give_back(set, &timeline, *sent.as_ref().unwrap_or(&0));
        sent.map(drop)
    }
}

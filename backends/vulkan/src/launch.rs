//! Kernels, launched in the order of a timeline.
#![expect(unsafe_code, reason = "signs the contract of Launch")]
use crate::{
    Block, Vulkan,
    programs::{Program, sets::Bindings},
    timeline::queue::QueueTimeline,
};
use ash::vk;
use omniheap_seam::{
    Align, Argument, ErrorKind, Kernel, Launch, ProgramId, Result, Slot, TimelineId,
};
use std::sync::Arc;

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
        kernel.check()?;
        let threads = kernel.group.iter().try_fold(1u32, |product, &n| product.checked_mul(n));
        let fits = threads.is_some_and(|n| n <= limits.max_compute_work_group_invocations)
            && kernel.group.iter().zip(limits.max_compute_work_group_size).all(|(a, b)| *a <= b)
            && shared <= u64::from(limits.max_compute_shared_memory_size)
            && kernel.parameters <= limits.max_push_constants_size
            && has_room(limits, kernel.slots);
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

/// Returns whether a pipeline of this device can bind the slots.
fn has_room(limits: &vk::PhysicalDeviceLimits, slots: &[Slot]) -> bool {
    let constants = slots.iter().filter(|slot| **slot == Slot::Constant).count();
    let within = |count: usize, most: u32| u32::try_from(count).is_ok_and(|count| count <= most);
    within(slots.len(), limits.max_per_stage_resources)
        && within(constants, limits.max_per_stage_descriptor_uniform_buffers)
        && within(constants, limits.max_descriptor_set_uniform_buffers)
        && within(slots.len() - constants, limits.max_per_stage_descriptor_storage_buffers)
        && within(slots.len() - constants, limits.max_descriptor_set_storage_buffers)
}

// SAFETY: the pipeline is the kernel's; each argument is bound to exactly its checked range, in the order of the slots; the
// timeline keeps the order.
unsafe impl Launch for Vulkan {
    type Block = Block;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        self.check_kernel(kernel, shared)?;
        Ok(self.programs.load(Program::new(&self.device, kernel, shared)?))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        self.programs.unload(program)
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
        match sent {
            Ok(epoch) => program.sets.sent(set, &timeline, epoch),
            Err(_) => program.sets.give_back(set),
        }
        sent.map(drop)
    }
}

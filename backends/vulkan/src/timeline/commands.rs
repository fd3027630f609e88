//! Command buffers of one timeline: recorded between two barriers, submitted, and used again.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::driver::{
    check,
    device::{Device, Queue},
};
use ash::vk;
use omniheap_seam::Result;
use std::sync::Arc;

/// A pool and the command buffers that are free.
#[derive(Debug)]
pub(crate) struct Commands {
    pool: vk::CommandPool,
    spare: Vec<vk::CommandBuffer>,
    /// Pipeline stages of recorded work: copies, and kernels on a compute queue.
    stages: vk::PipelineStageFlags,
    access: vk::AccessFlags,
    device: Arc<Device>,
}

impl Commands {
    pub(crate) fn create(device: &Arc<Device>, queue: &Queue) -> Result<Self> {
        use vk::{AccessFlags as A, CommandPoolCreateFlags as F, PipelineStageFlags as S};
        let info = vk::CommandPoolCreateInfo::default()
            .flags(F::RESET_COMMAND_BUFFER | F::TRANSIENT)
            .queue_family_index(queue.family);
        // SAFETY: the device is alive and the family is one of its own.
        let pool = check(unsafe { device.raw.create_command_pool(&info, None) })?;
        let (mut stages, mut access) = (S::TRANSFER, A::TRANSFER_READ | A::TRANSFER_WRITE);
        if queue.flags.contains(vk::QueueFlags::COMPUTE) {
            stages |= S::COMPUTE_SHADER;
            access |= A::SHADER_READ | A::SHADER_WRITE | A::UNIFORM_READ;
        }
        Ok(Self { pool, spare: Vec::new(), stages, access, device: Arc::clone(device) })
    }

    /// Records what `body` says, after everything earlier on the queue and before everything later.
    pub(crate) fn record(
        &mut self,
        body: impl FnOnce(vk::CommandBuffer),
    ) -> Result<vk::CommandBuffer> {
        let commands = match self.spare.pop() {
            Some(commands) => commands,
            None => self.allocate()?,
        };
        let once = vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT;
        let info = vk::CommandBufferBeginInfo::default().flags(once);
        // SAFETY: ours, and not pending: `give_back` returns only what has finished. The pool allows the implied reset.
        let begun = check(unsafe { self.device.raw.begin_command_buffer(commands, &info) });
        if let Err(why) = begun {
            self.give_back(commands);
            return Err(why);
        }
        self.enter(commands);
        body(commands);
        self.leave(commands);
        // SAFETY: recording since the call above.
        match check(unsafe { self.device.raw.end_command_buffer(commands) }) {
            Ok(()) => Ok(commands),
            Err(why) => {
                // SAFETY: ours and never submitted; a buffer whose recording failed must not be begun again.
                unsafe { self.device.raw.free_command_buffers(self.pool, &[commands]) };
                Err(why)
            }
        }
    }

    /// Takes back a command buffer that is not pending.
    pub(crate) fn give_back(&mut self, commands: vk::CommandBuffer) {
        self.spare.push(commands);
    }

    fn allocate(&self) -> Result<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is alive as long as `self`, and the timeline's lock lets one caller in.
        Ok(check(unsafe { self.device.raw.allocate_command_buffers(&info) })?[0])
    }

    /// Makes copies run after everything before them, by whomever, and see its writes.
    fn enter(&self, commands: vk::CommandBuffer) {
        use vk::{AccessFlags as A, PipelineStageFlags as S};
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(A::MEMORY_READ | A::MEMORY_WRITE)
            .dst_access_mask(self.access);
        self.barrier(commands, S::ALL_COMMANDS, self.stages, memory);
    }

    /// Copies are finished and visible to whatever runs after, and to a host that waits.
    fn leave(&self, commands: vk::CommandBuffer) {
        use vk::{AccessFlags as A, PipelineStageFlags as S};
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(self.access)
            .dst_access_mask(A::MEMORY_READ | A::MEMORY_WRITE | A::HOST_READ);
        self.barrier(commands, self.stages, S::ALL_COMMANDS | S::HOST, memory);
    }

    fn barrier(
        &self,
        commands: vk::CommandBuffer,
        from: vk::PipelineStageFlags,
        to: vk::PipelineStageFlags,
        memory: vk::MemoryBarrier<'_>,
    ) {
        let none = vk::DependencyFlags::empty();
        let memory = [memory];
        // SAFETY: `commands` is recording; `create` chose stages that the queue has, and the others exist everywhere.
        unsafe {
            self.device.raw.cmd_pipeline_barrier(commands, from, to, none, &memory, &[], &[]);
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once; the timeline waited for its last batch.
        unsafe { self.device.raw.destroy_command_pool(self.pool, None) };
    }
}

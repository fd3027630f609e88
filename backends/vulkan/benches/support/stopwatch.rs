//! Measures device time by two timestamps around work of the main timeline.
#![expect(unsafe_code, reason = "records timestamps of its own")]
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
use omniheap_core::{Backend, TimelineId};
use omniheap_vulkan::{
    Vulkan,
    ash::{self, vk},
};

const MAIN: TimelineId = TimelineId::MAIN;

/// Two timestamps, the first of which waits until the host lets it go.
pub(crate) struct Stopwatch {
    device: ash::Device,
    queries: vk::QueryPool,
    commands: [vk::CommandBuffer; 2],
    pool: vk::CommandPool,
    gate: vk::Semaphore,
    /// Nanoseconds of a tick.
    period: f32,
}

impl Stopwatch {
    /// Two timestamps on the main timeline of a device.
    pub(crate) fn create(vulkan: &Vulkan) -> Self {
        let device = vulkan.ash_device().clone();
        // SAFETY: the physical device is that of the instance.
        let limits = unsafe {
            vulkan.ash_instance().get_physical_device_properties(vulkan.physical_device())
        }
        .limits;
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(2);
        // SAFETY: the device is alive, here and below.
        let queries = unsafe { device.create_query_pool(&info, None) }.unwrap();
        let family = vulkan.with_queue(MAIN, |_, family| family).unwrap();
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: as above.
        let pool = unsafe { device.create_command_pool(&info, None) }.unwrap();
        let info =
            vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(2);
        // SAFETY: as above.
        let commands = unsafe { device.allocate_command_buffers(&info) }.unwrap();
        let commands = [commands[0], commands[1]];
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: as above.
        let gate = unsafe { device.create_semaphore(&info, None) }.unwrap();
        let watch = Self { device, queries, commands, pool, gate, period: limits.timestamp_period };
        watch.record(0);
        watch.record(1);
        watch
    }

    /// Everything before, then the time.
    fn record(&self, index: u32) {
        let commands = self.commands[usize::from(index > 0)];
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        let (read, write) = (vk::AccessFlags::MEMORY_READ, vk::AccessFlags::MEMORY_WRITE);
        let memory =
            [vk::MemoryBarrier::default().src_access_mask(write).dst_access_mask(read | write)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: fresh, of this device, used by one thread; here and below.
        unsafe {
            self.device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default())
        }
        .unwrap();
        if index == 0 {
            // SAFETY: as above; both queries exist.
            unsafe { self.device.cmd_reset_query_pool(commands, self.queries, 0, 2) };
        }
        // SAFETY: as above.
        unsafe { self.device.cmd_pipeline_barrier(commands, all, all, none, &memory, &[], &[]) };
        let bottom = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: as above.
        unsafe { self.device.cmd_write_timestamp(commands, bottom, self.queries, index) };
        // SAFETY: as above.
        unsafe { self.device.end_command_buffer(commands) }.unwrap();
    }

    fn value(&self) -> u64 {
        // SAFETY: a timeline semaphore of this device.
        unsafe { self.device.get_semaphore_counter_value(self.gate) }.unwrap()
    }

    /// Queues the first timestamp behind a gate that only `stop` opens.
    pub(crate) fn start(&self, vulkan: &Vulkan) {
        let (gates, values) = ([self.gate], [self.value() + 1]);
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let mut times = vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&gates)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&self.commands[..1])
            .push_next(&mut times);
        self.submit(vulkan, &info);
    }

    /// Queues the second timestamp, opens the gate, and waits; nanoseconds between the two.
    pub(crate) fn stop(&self, vulkan: &Vulkan) -> u64 {
        self.submit(vulkan, &vk::SubmitInfo::default().command_buffers(&self.commands[1..]));
        let open = vk::SemaphoreSignalInfo::default().semaphore(self.gate).value(self.value() + 1);
        // SAFETY: a timeline semaphore of this device, which nothing else signals.
        unsafe { self.device.signal_semaphore(&open) }.unwrap();
        vulkan.wait_idle().unwrap();
        let mut ticks = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: both queries were written by work that has finished.
        unsafe { self.device.get_query_pool_results(self.queries, 0, &mut ticks, flags) }.unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive time"
        )]
        #[expect(clippy::cast_precision_loss, reason = "microseconds matter, not attoseconds")]
        let nanoseconds = ((ticks[1] - ticks[0]) as f64 * f64::from(self.period)) as u64;
        nanoseconds
    }

    fn submit(&self, vulkan: &Vulkan, info: &vk::SubmitInfo<'_>) {
        let batch = core::slice::from_ref(info);
        let none = vk::Fence::null();
        // SAFETY: what it names is alive and not pending: `stop` waits before anything is used again.
        let sent = vulkan
            .with_queue(MAIN, |queue, _| unsafe { self.device.queue_submit(queue, batch, none) });
        sent.unwrap().unwrap();
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        // SAFETY: made by `create`, idle since `stop`; here and below.
        unsafe { self.device.destroy_semaphore(self.gate, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_command_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_query_pool(self.queries, None) };
    }
}

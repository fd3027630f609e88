//! How fast bytes move inside the device: the compaction kernel against the driver's own copies.
//!
//! `cargo bench -p omniheap-vulkan --bench copies`. Device time is between two timestamps around batches that were all
//! queued before the first could run; host time is what one `copy` costs the calling thread.
#![expect(unsafe_code, reason = "records timestamps of its own")]
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
use core::time::Duration;
use omniheap_core::{Backend, HeapId, HeapKind, Move, Place, TimelineId, Transfer, Use};
use omniheap_vulkan::{Block, Copies, Options, Vulkan, ash::vk};
use std::time::Instant;

const MAIN: TimelineId = TimelineId::MAIN;
/// Batches between the two timestamps; their lists fit the kernel's ring together.
const BATCHES: u32 = 3;

fn main() {
    let device = Vulkan::devices().ok().and_then(|all| all.into_iter().next());
    let Some(device) = device else { return println!("no Vulkan device here") };
    println!("{}: GB copied per second of device time, best of 5", device.name);
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>14}",
        "moves", "bytes", "commands", "kernel", "kernel host µs"
    );
    let kib = 1u64 << 10;
    let many = [(10_000, 4 * kib), (10_000, 64 * kib), (1000, 1024 * kib)];
    let one = [4 * kib, 64 * kib, 256 * kib, 1024 * kib, 16 << 20, 1 << 30];
    for (count, size) in many.into_iter().chain(one.map(|size| (1, size))) {
        let [commands, kernel] = [Copies::Commands, Copies::Kernel].map(|copies| {
            let options = Options::default().copies(copies);
            Bench::open(options, count, size).map(|bench| bench.best())
        });
        let rate = |best: &Option<Best>| {
            let bytes = count * size * u64::from(BATCHES);
            // Tenths of a byte in a nanosecond.
            let tenths = best.as_ref().map(|best| bytes * 10 / best.device.max(1));
            tenths.map_or("-".into(), |tenths| format!("{}.{}", tenths / 10, tenths % 10))
        };
        let host = kernel.as_ref().map_or(0, |best| best.host.as_micros());
        println!("{count:>8} {size:>10} {:>10} {:>10} {host:>14}", rate(&commands), rate(&kernel));
    }
}

/// The least that was seen.
struct Best {
    /// Nanoseconds of all batches on the device.
    device: u64,
    /// One call of `copy`.
    host: Duration,
}

struct Bench {
    source: Block,
    target: Block,
    places: Vec<(u64, u64, u64)>,
    stopwatch: Stopwatch,
    vulkan: Vulkan,
}

impl Bench {
    /// Two blocks and moves between them in a scattered order; `None` where they do not fit.
    fn open(options: Options, count: u64, size: u64) -> Option<Self> {
        let vulkan = Vulkan::open_with(options).unwrap();
        let heap = device_heap(&vulkan);
        let bytes = count * size;
        let source = vulkan.allocate(heap, bytes).ok()?;
        let target = vulkan.allocate(heap, bytes).ok()?;
        vulkan.fill(MAIN, Place { block: &source, offset: 0 }, bytes, 1).unwrap();
        let place = |n: u64| (n * size, (n * 7919 % count) * size, size);
        let stopwatch = Stopwatch::create(&vulkan);
        Some(Self { source, target, places: (0..count).map(place).collect(), stopwatch, vulkan })
    }

    fn best(&self) -> Best {
        let moves: Vec<_> = self
            .places
            .iter()
            .map(|(from, to, size)| Move {
                from: Place { block: &self.source, offset: *from },
                to: Place { block: &self.target, offset: *to },
                size: *size,
            })
            .collect();
        let mut best = Best { device: u64::MAX, host: Duration::MAX };
        for _ in 0..5 {
            self.stopwatch.start(&self.vulkan);
            for _ in 0..BATCHES {
                let begun = Instant::now();
                self.vulkan.copy(MAIN, &moves).unwrap();
                best.host = best.host.min(begun.elapsed());
            }
            best.device = best.device.min(self.stopwatch.stop(&self.vulkan));
        }
        best
    }
}

fn device_heap(vulkan: &Vulkan) -> HeapId {
    let mut heaps = vulkan.caps().heap_ids().filter(|(_, heap)| heap.use_when == Use::Normal);
    let kind = |kind| move |(_, heap): &(HeapId, &omniheap_core::Heap)| heap.kind == kind;
    let found = heaps.find(kind(HeapKind::Device)).map(|(id, _)| id);
    found.unwrap_or_else(|| vulkan.caps().heap_ids().next().unwrap().0)
}

/// Two timestamps, the first of which waits until the host lets it go.
struct Stopwatch {
    device: ash::Device,
    queries: vk::QueryPool,
    commands: [vk::CommandBuffer; 2],
    pool: vk::CommandPool,
    gate: vk::Semaphore,
    /// Nanoseconds of a tick.
    period: f32,
}

impl Stopwatch {
    fn create(vulkan: &Vulkan) -> Self {
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
    fn start(&self, vulkan: &Vulkan) {
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

    /// Queues the second timestamp, opens the gate, and waits.
    fn stop(&self, vulkan: &Vulkan) -> u64 {
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

//! Drops wait for nothing: handles and memory are destroyed when their work has ended.
#![expect(unsafe_code, reason = "puts functions of its own between the backend and the driver")]
use crate::rig::{MAIN, Rig};
use core::{
    ffi::{CStr, c_char},
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    time::Duration,
};
use omniheap_core::{
    Align, Backend, Budget, Decision, ErrorKind, HeapKind, HostAccess, Limits, Manager,
    MoveOutcome, Point, Request, TimelineId,
};
use omniheap_vulkan::{
    Bare, Clocks, Existing, Feature, Needs, Options, Paging, Resource, Validation, Vulkan,
    ash::{self, vk},
};
use std::{sync::Mutex, thread};

crate::cases! {
    frames_that_drop_a_thousand_buffers_wait_for_nothing if |_| true;
    frames_that_drop_buffers_are_valid if |_| true;
    nothing_is_destroyed_while_work_uses_it if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    all_work_counts_whatever_its_queue if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    many_drops_share_a_mark if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    a_drop_waits_for_no_thread_that_holds_the_queue if |_| true;
    threads_drop_while_frames_are_submitted if |_| true;
    memory_that_is_short_takes_back_what_was_dropped if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    blocks_that_are_few_take_back_what_was_dropped if |_| true;
    frames_of_other_queues_are_counted if |_| true;
    a_bare_device_counts_frames if |_| true;
    a_map_is_refused_while_frames_use_the_bytes if |_| true;
    a_lost_device_destroys_at_once if |_| true;
    a_wait_tells_that_the_device_is_lost if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    what_a_driver_does_not_wait_for_is_left if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    a_pass_under_way_keeps_what_is_retired if |_| true;
    secrets_are_zeroed_behind_the_work_that_used_them if |_| true;
    secrets_wait_for_frames_of_other_queues if |_| true;
    what_is_retired_goes_in_its_order if |vulkan| vulkan.has(Feature::TimelineSemaphore);
    an_engines_device_has_plain_pools if |_| true;
}

/// Calls that waited for a queue or the device.
static WAITS: AtomicU64 = AtomicU64::new(0);
static SUBMITS: AtomicU64 = AtomicU64::new(0);
/// Buffers and images that live.
static LIVE: AtomicI64 = AtomicI64::new(0);
static LOST: AtomicBool = AtomicBool::new(false);
/// True if the driver refuses to wait for a queue.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Semaphores that live.
static SEMAPHORES: AtomicI64 = AtomicI64::new(0);
/// Buffers that were destroyed.
static GONE: Mutex<Vec<vk::Buffer>> = Mutex::new(Vec::new());
static REAL: Mutex<Option<Real>> = Mutex::new(None);

#[derive(Clone)]
struct Real {
    table: ash::DeviceFnV1_0,
    newer: ash::DeviceFnV1_2,
    look_up: vk::PFN_vkGetDeviceProcAddr,
}

fn real() -> Real {
    REAL.lock().unwrap().clone().expect("set before the first call")
}

fn unless_lost(call: impl FnOnce() -> vk::Result) -> vk::Result {
    if LOST.load(SeqCst) { vk::Result::ERROR_DEVICE_LOST } else { call() }
}

unsafe extern "system" fn queue_wait_idle(queue: vk::Queue) -> vk::Result {
    WAITS.fetch_add(1, SeqCst);
    if REFUSED.load(SeqCst) {
        return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    }
    // SAFETY: the backend's own call, passed on unchanged; here and below.
    unless_lost(|| unsafe { (real().table.queue_wait_idle)(queue) })
}

unsafe extern "system" fn device_wait_idle(device: vk::Device) -> vk::Result {
    WAITS.fetch_add(1, SeqCst);
    // SAFETY: as above.
    unless_lost(|| unsafe { (real().table.device_wait_idle)(device) })
}

unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    batches: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    SUBMITS.fetch_add(1, SeqCst);
    // SAFETY: as above.
    unless_lost(|| unsafe { (real().table.queue_submit)(queue, count, batches, fence) })
}

unsafe extern "system" fn get_semaphore_counter_value(
    device: vk::Device,
    semaphore: vk::Semaphore,
    value: *mut u64,
) -> vk::Result {
    // SAFETY: as above.
    unless_lost(|| unsafe { (real().newer.get_semaphore_counter_value)(device, semaphore, value) })
}

unsafe extern "system" fn get_fence_status(device: vk::Device, fence: vk::Fence) -> vk::Result {
    // SAFETY: as above.
    unless_lost(|| unsafe { (real().table.get_fence_status)(device, fence) })
}

unsafe extern "system" fn create_buffer(
    device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    buffer: *mut vk::Buffer,
) -> vk::Result {
    LIVE.fetch_add(1, SeqCst);
    // SAFETY: as above.
    unsafe { (real().table.create_buffer)(device, info, callbacks, buffer) }
}

unsafe extern "system" fn destroy_buffer(
    device: vk::Device,
    buffer: vk::Buffer,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    LIVE.fetch_sub(1, SeqCst);
    GONE.lock().unwrap().push(buffer);
    // SAFETY: as above.
    unsafe { (real().table.destroy_buffer)(device, buffer, callbacks) };
}

unsafe extern "system" fn destroy_semaphore(
    device: vk::Device,
    semaphore: vk::Semaphore,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    SEMAPHORES.fetch_sub(1, SeqCst);
    // SAFETY: as above.
    unsafe { (real().table.destroy_semaphore)(device, semaphore, callbacks) };
}

unsafe extern "system" fn create_semaphore(
    device: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    semaphore: *mut vk::Semaphore,
) -> vk::Result {
    SEMAPHORES.fetch_add(1, SeqCst);
    // SAFETY: as above.
    unsafe { (real().table.create_semaphore)(device, info, callbacks, semaphore) }
}

unsafe extern "system" fn look_up(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the binding passes names that end with a zero byte.
    let found = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"vkQueueWaitIdle" => queue_wait_idle as *const (),
        b"vkDeviceWaitIdle" => device_wait_idle as *const (),
        b"vkQueueSubmit" => queue_submit as *const (),
        b"vkGetSemaphoreCounterValue" => get_semaphore_counter_value as *const (),
        b"vkGetFenceStatus" => get_fence_status as *const (),
        b"vkCreateBuffer" => create_buffer as *const (),
        b"vkDestroyBuffer" => destroy_buffer as *const (),
        b"vkCreateSemaphore" => create_semaphore as *const (),
        b"vkDestroySemaphore" => destroy_semaphore as *const (),
        // SAFETY: the binding's own call, passed on unchanged.
        _ => return unsafe { (real().look_up)(device, name) },
    };
    // SAFETY: a function of the type that this name stands for.
    Some(unsafe { core::mem::transmute::<*const (), unsafe extern "system" fn()>(found) })
}

/// Returns the owner's device, seen through the functions above, and everything counted anew.
fn counted(owner: &Vulkan) -> ash::Device {
    let mut table = owner.ash_instance().fp_v1_0().clone();
    let device = owner.ash_device();
    let (real, newer) = (device.fp_v1_0().clone(), device.fp_v1_2().clone());
    *REAL.lock().unwrap() = Some(Real { table: real, newer, look_up: table.get_device_proc_addr });
    table.get_device_proc_addr = look_up;
    WAITS.store(0, SeqCst);
    SUBMITS.store(0, SeqCst);
    LIVE.store(0, SeqCst);
    SEMAPHORES.store(0, SeqCst);
    GONE.lock().unwrap().clear();
    REFUSED.store(false, SeqCst);
    LOST.store(false, SeqCst);
    // SAFETY: the owner's device, alive; `look_up` answers for every function.
    unsafe { ash::Device::load(&table, device.handle()) }
}

/// An engine's device, and a manager on it that has plain pools by itself.
fn guest(owner: &Vulkan, options: Options) -> Manager<Vulkan> {
    Manager::new(guest_backend(owner, options))
}

fn guest_backend(owner: &Vulkan, options: Options) -> Vulkan {
    let all = [Feature::TimelineSemaphore, Feature::BufferDeviceAddress, Feature::SparseBuffers];
    let enabled: Vec<_> = all.into_iter().filter(|feature| owner.has(*feature)).collect();
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let existing = Existing {
        entry: owner.ash_entry().cloned().unwrap(),
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: counted(owner),
        queues: &[(family, queue)],
        enabled: &enabled,
    };
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile.
    unsafe { Vulkan::wrap(existing, options) }.unwrap()
}

/// Options that an engine opens its device with.
fn usual(rig: &Rig) -> Options {
    rig.options.paging(Paging::OnOwnDevice)
}

fn make(manager: &Manager<Vulkan>, size: u64) -> Resource<vk::Buffer> {
    let usage = vk::BufferUsageFlags::TRANSFER_DST | vk::BufferUsageFlags::STORAGE_BUFFER;
    let info = vk::BufferCreateInfo::default().size(size).usage(usage);
    // SAFETY: a plain buffer.
    unsafe { Vulkan::create_buffer(manager, &info, HeapKind::Device) }.unwrap()
}

/// An engine's commands, one for each frame under way.
struct Engine<'a> {
    device: &'a ash::Device,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
    fences: Vec<vk::Fence>,
}

impl<'a> Engine<'a> {
    fn new(owner: &'a Vulkan, frames: u32) -> Self {
        let device = owner.ash_device();
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(owner.families()[0]);
        // SAFETY: the family is in use.
        let pool = unsafe { device.create_command_pool(&info, None) }.unwrap();
        let info = vk::CommandBufferAllocateInfo::default();
        let info = info.command_pool(pool).command_buffer_count(frames);
        // SAFETY: the pool was just created.
        let commands = unsafe { device.allocate_command_buffers(&info) }.unwrap();
        let done = vk::FenceCreateInfo::default().flags(vk::FenceCreateFlags::SIGNALED);
        // SAFETY: the device is alive.
        let fence = |_| unsafe { device.create_fence(&done, None) }.unwrap();
        Self { device, pool, commands, fences: (0..frames).map(fence).collect() }
    }

    /// Fills a buffer in one of the frames, behind a gate if there is one.
    fn fill(
        &self,
        vulkan: &Vulkan,
        frame: usize,
        buffer: vk::Buffer,
        gate: Option<(&Gate<'_>, u64)>,
    ) {
        let (commands, fence) = (self.commands[frame], [self.fences[frame]]);
        // SAFETY: the fence of this frame, which was submitted or is signalled; here and below.
        unsafe { self.device.wait_for_fences(&fence, true, u64::MAX) }.unwrap();
        // SAFETY: as above.
        unsafe { self.device.reset_fences(&fence) }.unwrap();
        let info = vk::CommandBufferBeginInfo::default();
        // SAFETY: the frame has ended.
        unsafe { self.device.begin_command_buffer(commands, &info) }.unwrap();
        // Older layers do not see that the host read a timeline semaphore before it used bytes again.
        use vk::{AccessFlags as A, PipelineStageFlags as S};
        let before = [vk::MemoryBarrier::default()
            .src_access_mask(A::MEMORY_WRITE)
            .dst_access_mask(A::TRANSFER_WRITE)];
        let none = vk::DependencyFlags::empty();
        let (from, to) = (S::ALL_COMMANDS, S::TRANSFER);
        // SAFETY: recording.
        unsafe { self.device.cmd_pipeline_barrier(commands, from, to, none, &before, &[], &[]) };
        // SAFETY: recording; the buffer is bound.
        unsafe { self.device.cmd_fill_buffer(commands, buffer, 0, vk::WHOLE_SIZE, 7) };
        // SAFETY: recording.
        unsafe { self.device.end_command_buffer(commands) }.unwrap();
        let sent = vulkan.with_queue(MAIN, |queue, _| {
            if let Some((gate, turn)) = gate {
                gate.stop(queue, turn);
            }
            let (commands, none) = ([commands], vk::SubmitInfo::default());
            let batch = [none.command_buffers(&commands)];
            // SAFETY: recorded above; the queue is held.
            unsafe { self.device.queue_submit(queue, &batch, fence[0]) }
        });
        sent.unwrap().unwrap();
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // SAFETY: the fences of all frames; here and below.
        unsafe { self.device.wait_for_fences(&self.fences, true, u64::MAX) }.unwrap();
        // SAFETY: no work is left.
        self.fences.iter().for_each(|fence| unsafe { self.device.destroy_fence(*fence, None) });
        // SAFETY: as above.
        unsafe { self.device.destroy_command_pool(self.pool, None) };
    }
}

/// A semaphore at which work waits, behind other work of its queue, until the test signals it.
struct Gate<'a> {
    device: &'a ash::Device,
    semaphore: vk::Semaphore,
}

impl<'a> Gate<'a> {
    fn new(device: &'a ash::Device) -> Self {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive and has timeline semaphores.
        let semaphore = unsafe { device.create_semaphore(&info, None) }.unwrap();
        Self { device, semaphore }
    }

    fn stop(&self, queue: vk::Queue, turn: u64) {
        let (gates, values) = ([self.semaphore], [turn]);
        let mut until = vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values);
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let wait = vk::SubmitInfo::default().wait_semaphores(&gates).wait_dst_stage_mask(&stages);
        let wait = [wait.push_next(&mut until)];
        // SAFETY: the queue is the caller's here, and the semaphore lives until the work has ended.
        unsafe { self.device.queue_submit(queue, &wait, vk::Fence::null()) }.unwrap();
    }

    fn open(&self, turn: u64) {
        let open = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(turn);
        // SAFETY: a timeline semaphore of this device whose value is lower.
        unsafe { self.device.signal_semaphore(&open) }.unwrap();
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        // SAFETY: whoever opened it last waited for the work behind it.
        unsafe { self.device.destroy_semaphore(self.semaphore, None) };
    }
}

fn is_deferred(manager: &Manager<Vulkan>) -> bool {
    manager.totals().deferred_bytes > 0
}

fn reserved(manager: &Manager<Vulkan>) -> u64 {
    manager.totals().reserved_bytes
}

fn frames_that_drop_a_thousand_buffers_wait_for_nothing(rig: &Rig) {
    // The layer would take most of the time.
    frames(rig, &rig.open_with(rig.options.validation(Validation::Off)), 1000);
}

fn frames_that_drop_buffers_are_valid(rig: &Rig) {
    frames(rig, &rig.open(), 50);
}

/// Draws 200 frames that drop the buffers they made.
fn frames(rig: &Rig, owner: &Vulkan, drops: usize) {
    let (manager, engine) = (guest(owner, usual(rig)), Engine::new(owner, 2));
    let (mut early, mut most) = (0, 0);
    for frame in 0..200 {
        let made: Vec<_> = (0..drops).map(|_| make(&manager, 256)).collect();
        engine.fill(manager.backend(), frame % 2, made[frame % drops].handle(), None);
        drop(made);
        most = LIVE.load(SeqCst).max(most);
        if frame < 20 {
            early = reserved(&manager);
        }
    }
    assert_eq!(WAITS.load(SeqCst), 0, "of {drops} drops a frame");
    assert!(reserved(&manager) <= early, "{} bytes, {early} after 20 frames", reserved(&manager));
    let kept = usize::try_from(most).unwrap() / drops;
    assert!(kept < 8, "what {kept} frames made is kept, where 2 are under way");
    assert!(SUBMITS.load(SeqCst) < 450, "{SUBMITS:?} submissions for 200 frames");
    drop(manager);
    assert!((1..=2).contains(&WAITS.load(SeqCst)), "the end waits");
    assert_eq!(LIVE.load(SeqCst), 0);
}

fn nothing_is_destroyed_while_work_uses_it(rig: &Rig) {
    let owner = rig.open();
    let (manager, engine) = (guest(&owner, usual(rig)), Engine::new(&owner, 1));
    let gate = Gate::new(owner.ash_device());
    let made = make(&manager, 5000);
    let before = LIVE.load(SeqCst);
    engine.fill(manager.backend(), 0, made.handle(), Some((&gate, 1)));
    drop(made);
    assert_eq!(manager.retire(), Ok(0));
    assert_eq!((LIVE.load(SeqCst), is_deferred(&manager)), (before, true));
    gate.open(1);
    manager.backend().wait_idle().unwrap();
    assert_eq!(LIVE.load(SeqCst), before - 1, "an idle device uses nothing");
    assert_eq!(manager.retire(), Ok(1));
    manager.backend().with_queue(MAIN, |_, _| ()).unwrap();
    manager.backend().wait_idle().unwrap();
    let submits = SUBMITS.load(SeqCst);
    drop(make(&manager, 5000));
    assert_eq!(LIVE.load(SeqCst), before - 1, "nor does it later");
    assert!(!is_deferred(&manager) && SUBMITS.load(SeqCst) == submits);
}

fn all_work_counts_whatever_its_queue(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig));
    let (vulkan, gate) = (manager.backend(), Gate::new(owner.ash_device()));
    let times = vulkan.as_timelines().expect("it has a queue");
    let line = times.open().unwrap();
    vulkan.with_queue(line, |queue, _| gate.stop(queue, 1)).unwrap();
    let epoch = times.mark(TimelineId::ALL).unwrap();
    let all = Point { timeline: TimelineId::ALL, epoch };
    assert_eq!(times.mark(TimelineId::ALL), Ok(epoch), "nothing was submitted since");
    assert!(times.reached(TimelineId::ALL).unwrap() < epoch);
    times.order(MAIN, all).unwrap();
    let behind = times.mark(MAIN).unwrap();
    assert!(times.reached(MAIN).unwrap() < behind, "it is ordered behind");
    let later = times.mark(TimelineId::ALL).unwrap();
    assert!(later > epoch, "work was submitted since");
    times.order(MAIN, Point { epoch: later, ..all }).unwrap();
    let never = omniheap_core::Epoch(later.0 + 1);
    let unknown = times.wait(Point { epoch: never, ..all }).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NoSuchTimeline);
    gate.open(1);
    times.wait(Point { epoch: later, ..all }).unwrap();
    assert!(times.reached(TimelineId::ALL).unwrap() >= later);
    times.close(line).unwrap();
    assert_eq!(times.close(TimelineId::ALL).unwrap_err().kind(), ErrorKind::NoSuchTimeline);
    vulkan.wait_idle().unwrap();
}

fn many_drops_share_a_mark(rig: &Rig) {
    let owner = rig.open();
    let (manager, engine) = (guest(&owner, usual(rig)), Engine::new(&owner, 50));
    let gate = Gate::new(owner.ash_device());
    let made: Vec<_> = (0..50).map(|_| make(&manager, 256)).collect();
    manager.backend().with_queue(MAIN, |queue, _| gate.stop(queue, 1)).unwrap();
    let mut own = 0;
    for (frame, one) in made.into_iter().enumerate() {
        engine.fill(manager.backend(), frame, one.handle(), None);
        let before = SUBMITS.load(SeqCst);
        drop(one);
        own += SUBMITS.load(SeqCst) - before;
    }
    assert_eq!(own, 1, "one mark is on its way, and all later drops share the next one");
    gate.open(1);
    manager.backend().wait_idle().unwrap();
    assert_eq!(manager.retire(), Ok(50));
}

fn a_drop_waits_for_no_thread_that_holds_the_queue(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig));
    let vulkan = manager.backend();
    let made = [(); 3].map(|()| make(&manager, 256));
    let before = LIVE.load(SeqCst);
    let [here, there, after] = made;
    vulkan
        .with_queue(MAIN, |_, _| {
            drop(here);
            // A drop that waited for the queue would never end.
            thread::scope(|scope| scope.spawn(|| drop(there)).join()).expect("no panic");
            assert_eq!(LIVE.load(SeqCst), before, "work of this closure may use them");
        })
        .unwrap();
    drop(after);
    vulkan.wait_idle().unwrap();
    assert_eq!(LIVE.load(SeqCst), before - 3);
    assert!(manager.retire().is_ok() && manager.totals().live == 0);
}

fn threads_drop_while_frames_are_submitted(rig: &Rig) {
    let owner = rig.open();
    let (manager, engine) = (guest(&owner, usual(rig)), Engine::new(&owner, 2));
    let vulkan = manager.backend();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    drop([(); 4].map(|()| make(&manager, 5000)));
                    manager.retire().unwrap();
                }
            });
        }
        scope.spawn(|| {
            let times = vulkan.as_timelines().expect("it has a queue");
            for _ in 0..300 {
                let epoch = times.mark(TimelineId::ALL).unwrap();
                let point = Point { timeline: TimelineId::ALL, epoch };
                times.order(MAIN, point).unwrap();
                times.wait(point).unwrap();
                assert!(times.reached(TimelineId::ALL).unwrap() >= epoch);
            }
        });
        for frame in 0..300 {
            let made = make(&manager, 5000);
            engine.fill(vulkan, frame % 2, made.handle(), None);
        }
    });
    vulkan.wait_idle().unwrap();
    manager.retire().unwrap();
    assert_eq!(manager.totals().live, 0);
    assert!(!is_deferred(&manager));
}

fn memory_that_is_short_takes_back_what_was_dropped(rig: &Rig) {
    let owner = rig.open();
    let (manager, engine) = (guest(&owner, usual(rig)), Engine::new(&owner, 1));
    let gate = Gate::new(owner.ash_device());
    let made = make(&manager, 3 << 20);
    let heap = made.memory().heap();
    manager.set_budget(heap, Limits::hard(reserved(&manager))).unwrap();
    engine.fill(manager.backend(), 0, made.handle(), Some((&gate, 1)));
    drop(made);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            gate.open(1);
        });
        let next = make(&manager, 3 << 20);
        assert_eq!(next.memory().heap(), heap);
    });
    assert_eq!(WAITS.load(SeqCst), 0, "it waits for the mark alone");
    // The layer learns that the gate is out of use.
    manager.backend().wait_idle().unwrap();
}

fn blocks_that_are_few_take_back_what_was_dropped(rig: &Rig) {
    let owner = rig.open();
    // One block is the ring's that is never used here, and one that of its lists.
    let (manager, engine) = (guest(&owner, usual(rig).max_blocks(6)), Engine::new(&owner, 1));
    let vulkan = manager.backend();
    for _ in 0..20 {
        // A resource alone in its memory, because of its alignment.
        let device = vulkan.ash_device();
        let info =
            vk::BufferCreateInfo::default().size(5000).usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: a plain buffer.
        let buffer = unsafe { device.create_buffer(&info, None) }.unwrap();
        // SAFETY: created just above.
        let mut needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Device) }.unwrap();
        needs.layout.align = Align::of(1 << 20);
        // SAFETY: the buffer's own needs, but that they are stricter.
        let memory = unsafe { Vulkan::allocate_for(&manager, buffer, &needs) }.unwrap();
        let binding = memory.binding();
        // SAFETY: fresh, with its own needs; the memory is freed behind it.
        unsafe { vulkan.bind_buffer(buffer, &needs, binding.block(), 0) }.unwrap();
        drop(binding);
        engine.fill(vulkan, 0, buffer, None);
        // SAFETY: this engine submits nothing more with it.
        memory.free_after(unsafe { vulkan.retire(buffer) });
    }
    assert_eq!(WAITS.load(SeqCst), 0);
}

fn frames_of_other_queues_are_counted(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig).frames_in_flight(2));
    let vulkan = manager.backend();
    let times = vulkan.as_timelines().expect("it has a queue");
    for _ in 0..3 {
        let made = make(&manager, 5000);
        let before = LIVE.load(SeqCst);
        drop(made);
        let epoch = times.mark(TimelineId::ALL).unwrap();
        let point = Point { timeline: TimelineId::ALL, epoch };
        for _ in 0..2 {
            vulkan.end_frame().unwrap();
            assert_eq!((LIVE.load(SeqCst), manager.retire()), (before, Ok(0)), "two are under way");
        }
        assert_eq!(times.wait(point).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(times.order(MAIN, point).unwrap_err().kind(), ErrorKind::Busy);
        vulkan.end_frame().unwrap();
        assert_eq!((LIVE.load(SeqCst), manager.retire()), (before - 1, Ok(1)));
        times.wait(point).unwrap();
        times.order(MAIN, point).unwrap();
    }
    let kept = make(&manager, 5000);
    drop(kept);
    drop(manager);
    assert_eq!(LIVE.load(SeqCst), 0, "the engine's frames have ended when the manager does");
}

fn a_bare_device_counts_frames(rig: &Rig) {
    let owner = rig.open();
    let bare = || Bare {
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: counted(&owner),
        enabled: &[],
    };
    // SAFETY: the owner outlives the guest; no work uses its memory.
    let at_once = unsafe { Vulkan::wrap_memory(bare(), Options::default()) }.unwrap();
    let manager = Manager::new(at_once);
    drop(make(&manager, 5000));
    assert_eq!((LIVE.load(SeqCst), is_deferred(&manager)), (0, false), "its frames are not known");
    let counting = Options::default().frames_in_flight(1);
    // SAFETY: as above.
    let manager = Manager::new(unsafe { Vulkan::wrap_memory(bare(), counting) }.unwrap());
    let times = manager.backend().as_timelines().expect("it counts frames");
    assert_eq!(times.open().unwrap_err().kind(), ErrorKind::Unsupported);
    drop(make(&manager, 5000));
    manager.backend().end_frame().unwrap();
    assert_eq!((LIVE.load(SeqCst), manager.retire()), (1, Ok(0)), "one is under way");
    let next = make(&manager, 5000);
    let point = Point { timeline: MAIN, epoch: times.mark(MAIN).unwrap() };
    assert_eq!(times.order(MAIN, point).unwrap_err().kind(), ErrorKind::Busy);
    manager.backend().end_frame().unwrap();
    assert_eq!((LIVE.load(SeqCst), manager.retire()), (1, Ok(1)));
    manager.backend().end_frame().unwrap();
    times.order(MAIN, point).unwrap();
    drop(next);
    manager.backend().wait_idle().unwrap();
    assert_eq!((LIVE.load(SeqCst), is_deferred(&manager)), (1, true), "idle queues say nothing");
    drop(manager);
    assert_eq!(LIVE.load(SeqCst), 0);
}

fn a_map_is_refused_while_frames_use_the_bytes(rig: &Rig) {
    let owner = rig.open();
    let bare = Bare {
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: counted(&owner),
        enabled: &[],
    };
    let counting = Options::default().frames_in_flight(1);
    // SAFETY: the owner outlives the guest; no work uses its memory.
    let manager = Manager::new(unsafe { Vulkan::wrap_memory(bare, counting) }.unwrap());
    let make = || manager.allocate(&Request::new(4096).on(MAIN)).unwrap();
    let first = make();
    if manager.backend().caps().heap(first.heap()).unwrap().host == HostAccess::None {
        return;
    }
    let place = first.binding().span().offset;
    drop(first);
    let next = make();
    assert_eq!(next.binding().span().offset, place, "its bytes");
    for _ in 0..2 {
        assert_eq!(next.map().unwrap_err().kind(), ErrorKind::Busy, "a frame may use them");
        manager.backend().end_frame().unwrap();
    }
    next.map().unwrap();
}

fn a_lost_device_destroys_at_once(rig: &Rig) {
    let owner = rig.open();
    let (manager, engine) = (guest(&owner, usual(rig)), Engine::new(&owner, 1));
    let made = [(); 2].map(|()| make(&manager, 5000));
    let before = LIVE.load(SeqCst);
    engine.fill(manager.backend(), 0, made[0].handle(), None);
    // The work ends, but the guest does not learn of it.
    owner.wait_idle().unwrap();
    // SAFETY: the only fence of the engine, which was submitted.
    unsafe { owner.ash_device().wait_for_fences(&engine.fences, true, u64::MAX) }.unwrap();
    LOST.store(true, SeqCst);
    // The first drop finds the loss, and the second one has nothing to wait for.
    drop(made);
    assert_eq!(LIVE.load(SeqCst), before - 1);
    drop(manager);
    assert_eq!(LIVE.load(SeqCst), 0);
    LOST.store(false, SeqCst);
}

fn a_wait_tells_that_the_device_is_lost(rig: &Rig) {
    let owner = rig.open();
    let (manager, gate) = (guest(&owner, usual(rig)), Gate::new(owner.ash_device()));
    let vulkan = manager.backend();
    vulkan.with_queue(MAIN, |queue, _| gate.stop(queue, 1)).unwrap();
    let times = vulkan.as_timelines().expect("it has a queue");
    let epoch = times.mark(TimelineId::ALL).unwrap();
    LOST.store(true, SeqCst);
    let told = times.wait(Point { timeline: TimelineId::ALL, epoch }).unwrap_err();
    LOST.store(false, SeqCst);
    assert_eq!(told.kind(), ErrorKind::DeviceLost, "and nobody waits for the gate");
    gate.open(1);
    vulkan.wait_idle().unwrap();
}

fn what_a_driver_does_not_wait_for_is_left(rig: &Rig) {
    // The layer would report the leaked handles.
    let owner = rig.open_with(rig.options.validation(Validation::Off));
    let device = owner.ash_device();
    let info = vk::BufferCreateInfo::default().size(64).usage(vk::BufferUsageFlags::TRANSFER_DST);
    // SAFETY: a plain buffer, which no work uses.
    let buffer = unsafe { device.create_buffer(&info, None) }.unwrap();
    let (vulkan, gate) = (guest_backend(&owner, usual(rig)), Gate::new(device));
    vulkan.with_queue(MAIN, |queue, _| gate.stop(queue, 1)).unwrap();
    // SAFETY: nobody uses it, and it is destroyed below only because the backend cannot.
    let _ = unsafe { vulkan.retire(buffer) };
    let before = LIVE.load(SeqCst);
    REFUSED.store(true, SeqCst);
    drop(vulkan);
    REFUSED.store(false, SeqCst);
    let left = LIVE.load(SeqCst);
    gate.open(1);
    owner.wait_idle().unwrap();
    assert_eq!(left, before, "work may still use it");
    let clocks = i64::from(rig.options.clocks == Clocks::Semaphores);
    assert_eq!(SEMAPHORES.load(SeqCst), clocks, "the mark is still on its way");
    // SAFETY: left by the backend; the queues are idle.
    unsafe { device.destroy_buffer(buffer, None) };
}

fn a_pass_under_way_keeps_what_is_retired(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig));
    let vulkan = manager.backend();
    let model = make(&manager, 100_000);
    // SAFETY: alive.
    let needs = unsafe { vulkan.buffer_needs(model.handle(), HeapKind::Device) }.unwrap();
    let request = needs.requests().next().unwrap().moved_on_consent();
    let all: Vec<_> = (0..400).map(|_| manager.allocate(&request).unwrap()).collect();
    let all: Vec<_> = all.into_iter().step_by(4).collect();
    let mut pass = manager.begin_defragment(&Budget::new()).unwrap();
    assert!(!pass.is_empty());
    let planned = pass.moves().len();
    for which in 0..planned {
        pass.decide(which, Decision::Copy).unwrap();
    }
    pass.start().unwrap();
    let device = vulkan.ash_device();
    for memory in all {
        let info =
            vk::BufferCreateInfo::default().size(64).usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: a plain buffer, which no work uses.
        let twin = unsafe { device.create_buffer(&info, None) }.unwrap();
        // SAFETY: created just above, used by nobody.
        memory.free_after(unsafe { vulkan.retire(twin) });
    }
    let outcome = pass.commit().unwrap();
    assert!(outcome.moves.iter().all(|(_, one)| *one == MoveOutcome::Freed));
    drop(model);
    vulkan.wait_idle().unwrap();
    manager.retire().unwrap();
    assert_eq!((manager.totals().live, is_deferred(&manager)), (0, false));
}

fn secrets_are_zeroed_behind_the_work_that_used_them(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig));
    let needs = drop_a_secret(&owner, &manager);
    manager.backend().wait_idle().unwrap();
    manager.retire().unwrap();
    assert_eq!((manager.totals().live, is_deferred(&manager)), (0, false));
    expect_zeros(&manager, &needs);
}

fn secrets_wait_for_frames_of_other_queues(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig).frames_in_flight(1));
    let kept = || manager.report().quarantined_bytes > 0;
    // Keeps the block, which a trim would give back with the bytes to look at.
    let _beside = make(&manager, 5000);
    let needs = drop_a_secret(&owner, &manager);
    for _ in 0..2 {
        manager.trim().unwrap();
        assert!(kept(), "a frame under way may use it");
        manager.backend().end_frame().unwrap();
    }
    manager.trim().unwrap();
    assert!(!kept() && !is_deferred(&manager));
    expect_zeros(&manager, &needs);
}

/// Fills a secret, and drops it behind that; returns its needs.
fn drop_a_secret(owner: &Vulkan, manager: &Manager<Vulkan>) -> Needs {
    let (vulkan, engine) = (manager.backend(), Engine::new(owner, 1));
    let info = vk::BufferCreateInfo::default().size(5000).usage(vk::BufferUsageFlags::TRANSFER_DST);
    // SAFETY: a plain buffer.
    let buffer = unsafe { vulkan.ash_device().create_buffer(&info, None) }.unwrap();
    // SAFETY: created just above.
    let needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Device) }.unwrap();
    let memory = manager.allocate(&needs.requests().next().unwrap().secret()).unwrap();
    let binding = memory.binding();
    // SAFETY: fresh, with its own needs; the memory is freed behind it.
    unsafe { vulkan.bind_buffer(buffer, &needs, binding.block(), binding.span().offset) }.unwrap();
    drop(binding);
    engine.fill(vulkan, 0, buffer, None);
    // SAFETY: this engine submits nothing more with it.
    memory.free_after(unsafe { vulkan.retire(buffer) });
    needs
}

/// Looks at the bytes that a secret had.
fn expect_zeros(manager: &Manager<Vulkan>, needs: &Needs) {
    let next = manager.allocate(&needs.requests().next().unwrap()).unwrap();
    let mut bytes = vec![1; 4996];
    next.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "the fill is gone");
}

fn what_is_retired_goes_in_its_order(rig: &Rig) {
    let owner = rig.open();
    let (device, vulkan) = (owner.ash_device(), guest_backend(&owner, usual(rig)));
    let info = vk::BufferCreateInfo::default().size(64).usage(vk::BufferUsageFlags::TRANSFER_DST);
    // SAFETY: a plain buffer, which no work uses.
    let made = [(); 2].map(|()| unsafe { device.create_buffer(&info, None) }.unwrap());
    let gate = Gate::new(device);
    vulkan.with_queue(MAIN, |queue, _| gate.stop(queue, 1)).unwrap();
    // SAFETY: nobody uses it.
    let _ = unsafe { vulkan.retire(made[0]) };
    gate.open(1);
    // SAFETY: no other thread uses the device.
    unsafe { device.device_wait_idle() }.unwrap();
    // SAFETY: as above.
    let _ = unsafe { vulkan.retire(made[1]) };
    let gone = core::mem::take(&mut *GONE.lock().unwrap());
    assert!(gone.ends_with(&made), "{made:?} of {gone:?}");
}

fn an_engines_device_has_plain_pools(rig: &Rig) {
    let owner = rig.open();
    let manager = guest(&owner, usual(rig));
    let small = make(&manager, 5000);
    assert!(
        manager.backend().as_remap().is_none()
            && small.memory().binding().block().memory().is_some()
    );
    let asked = guest(&owner, rig.options.paging(Paging::EveryHeap));
    assert_eq!(asked.backend().as_remap().is_some(), owner.has(Feature::SparseBuffers));
}

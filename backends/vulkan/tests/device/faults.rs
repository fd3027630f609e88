//! Every driver call fails once, at every place: the error is typed, nothing leaks, and the same call then works.
#![expect(unsafe_code, reason = "puts functions of its own between the backend and the driver")]
use crate::rig::{MAIN, Rig, at, first, pattern};
use crate::sleepers;
use core::{
    ffi::{CStr, c_char},
    sync::atomic::{AtomicI64, Ordering},
};
use omniheap_core::{
    AllocationId, Argument, Backend, BackingStore, ErrorKind, GetPiece, Manager, ManagerConfig,
    Move, Point, Privacy, PutPiece, Result, Sleep, Sleepable, TimelineId, Wake,
};
use omniheap_residency::{HostStore, Nothing};
use omniheap_shaders::SCALE;
use omniheap_vulkan::{
    Block, Existing, Feature, Options, Paging, Validation, Vulkan,
    ash::{self, vk},
};
use std::sync::{Arc, Mutex};

crate::cases! {
    every_failed_call_changes_nothing if |_| true;
    every_failed_opening_leaves_nothing if |_| true;
    every_failed_sleep_and_wake_loses_no_byte if |_| true;
    what_a_failed_write_left_under_way_ends_before_it_leaves if |_| true;
    an_image_that_is_not_turned_back_shows_no_handle if |_| true;
    a_mark_covers_a_long_transfer if |vulkan| vulkan.caps().device.name.contains("llvmpipe");
    a_long_transfer_needs_no_second_ring if |vulkan| vulkan.caps().device.name.contains("llvmpipe");
    every_failed_long_transfer_is_over if |vulkan| vulkan.caps().device.name.contains("llvmpipe");
}

/// Calls that still succeed before one fails; negative once it has, or while none shall.
static LEFT: AtomicI64 = AtomicI64::new(-1);
static REAL: Mutex<Option<(ash::DeviceFnV1_0, vk::PFN_vkGetDeviceProcAddr)>> = Mutex::new(None);

fn strikes() -> bool {
    LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left >= 0).then(|| left - 1))
        == Ok(0)
}

fn real() -> (ash::DeviceFnV1_0, vk::PFN_vkGetDeviceProcAddr) {
    REAL.lock().unwrap().clone().expect("set before the first call")
}

/// Wraps driver functions: `name(arguments) "vkName" fails with CODE`.
macro_rules! wrapped {
    ($($name:ident($($arg:ident: $kind:ty),*) $text:literal fails with $code:ident;)*) => {
        $(unsafe extern "system" fn $name($($arg: $kind),*) -> vk::Result {
            if strikes() {
                return vk::Result::$code;
            }
            let (table, _) = real();
            // SAFETY: the backend's own call, passed on unchanged.
            unsafe { (table.$name)($($arg),*) }
        })*

        fn find(name: &CStr) -> Option<*const ()> {
            match name.to_bytes() {
                $(bytes if bytes == $text.as_bytes() => {
                    let wrapped: unsafe extern "system" fn($($kind),*) -> vk::Result = $name;
                    Some(wrapped as *const ())
                })*
                _ => None,
            }
        }
    };
}

type Callbacks<'a> = *const vk::AllocationCallbacks<'a>;

wrapped! {
    allocate_memory(d: vk::Device, i: *const vk::MemoryAllocateInfo<'_>, c: Callbacks<'_>, o: *mut vk::DeviceMemory)
        "vkAllocateMemory" fails with ERROR_OUT_OF_DEVICE_MEMORY;
    create_buffer(d: vk::Device, i: *const vk::BufferCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::Buffer)
        "vkCreateBuffer" fails with ERROR_OUT_OF_HOST_MEMORY;
    bind_buffer_memory(d: vk::Device, b: vk::Buffer, m: vk::DeviceMemory, o: vk::DeviceSize)
        "vkBindBufferMemory" fails with ERROR_OUT_OF_DEVICE_MEMORY;
    map_memory(d: vk::Device, m: vk::DeviceMemory, o: u64, s: u64, f: vk::MemoryMapFlags, p: *mut *mut core::ffi::c_void)
        "vkMapMemory" fails with ERROR_MEMORY_MAP_FAILED;
    queue_submit(q: vk::Queue, n: u32, i: *const vk::SubmitInfo<'_>, f: vk::Fence)
        "vkQueueSubmit" fails with ERROR_OUT_OF_HOST_MEMORY;
    queue_bind_sparse(q: vk::Queue, n: u32, i: *const vk::BindSparseInfo<'_>, f: vk::Fence)
        "vkQueueBindSparse" fails with ERROR_OUT_OF_DEVICE_MEMORY;
    create_semaphore(d: vk::Device, i: *const vk::SemaphoreCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::Semaphore)
        "vkCreateSemaphore" fails with ERROR_OUT_OF_HOST_MEMORY;
    create_fence(d: vk::Device, i: *const vk::FenceCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::Fence)
        "vkCreateFence" fails with ERROR_OUT_OF_HOST_MEMORY;
    create_command_pool(d: vk::Device, i: *const vk::CommandPoolCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::CommandPool)
        "vkCreateCommandPool" fails with ERROR_OUT_OF_HOST_MEMORY;
    allocate_command_buffers(d: vk::Device, i: *const vk::CommandBufferAllocateInfo<'_>, o: *mut vk::CommandBuffer)
        "vkAllocateCommandBuffers" fails with ERROR_OUT_OF_HOST_MEMORY;
    create_descriptor_set_layout(d: vk::Device, i: *const vk::DescriptorSetLayoutCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::DescriptorSetLayout)
        "vkCreateDescriptorSetLayout" fails with ERROR_OUT_OF_HOST_MEMORY;
    create_pipeline_layout(d: vk::Device, i: *const vk::PipelineLayoutCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::PipelineLayout)
        "vkCreatePipelineLayout" fails with ERROR_OUT_OF_HOST_MEMORY;
    create_shader_module(d: vk::Device, i: *const vk::ShaderModuleCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::ShaderModule)
        "vkCreateShaderModule" fails with ERROR_OUT_OF_HOST_MEMORY;
    create_descriptor_pool(d: vk::Device, i: *const vk::DescriptorPoolCreateInfo<'_>, c: Callbacks<'_>, o: *mut vk::DescriptorPool)
        "vkCreateDescriptorPool" fails with ERROR_OUT_OF_HOST_MEMORY;
    allocate_descriptor_sets(d: vk::Device, i: *const vk::DescriptorSetAllocateInfo<'_>, o: *mut vk::DescriptorSet)
        "vkAllocateDescriptorSets" fails with ERROR_OUT_OF_HOST_MEMORY;
    begin_command_buffer(b: vk::CommandBuffer, i: *const vk::CommandBufferBeginInfo<'_>)
        "vkBeginCommandBuffer" fails with ERROR_OUT_OF_DEVICE_MEMORY;
}

unsafe extern "system" fn look_up(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the binding passes names that end with a zero byte.
    let text = unsafe { CStr::from_ptr(name) };
    match find(text) {
        Some(wrapped) => {
            // SAFETY: a function of the type that this name stands for.
            Some(unsafe { core::mem::transmute::<*const (), unsafe extern "system" fn()>(wrapped) })
        }
        // SAFETY: the binding's own call, passed on unchanged.
        None => unsafe { (real().1)(device, name) },
    }
}

/// Returns the owner's device, seen through our functions.
fn faulty(owner: &Vulkan) -> ash::Device {
    let mut table = owner.ash_instance().fp_v1_0().clone();
    let real = (owner.ash_device().fp_v1_0().clone(), table.get_device_proc_addr);
    *REAL.lock().unwrap() = Some(real);
    table.get_device_proc_addr = look_up;
    // SAFETY: the owner's device, alive; `look_up` answers for every function.
    unsafe { ash::Device::load(&table, owner.ash_device().handle()) }
}

/// Says that there is a second family, which only copies. Lavapipe has one queue and takes it under any name.
unsafe extern "system" fn two_families(
    _: vk::PhysicalDevice,
    count: *mut u32,
    families: *mut vk::QueueFamilyProperties,
) {
    let all = [vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE, vk::QueueFlags::empty()];
    for (at, flags) in all.into_iter().enumerate().filter(|_| !families.is_null()) {
        let queue_flags = flags | vk::QueueFlags::TRANSFER;
        let family =
            vk::QueueFamilyProperties { queue_flags, queue_count: 1, ..Default::default() };
        // SAFETY: the binding asks for as many as it was told.
        unsafe { families.wrapping_add(at).write(family) };
    }
    // SAFETY: the binding's own number.
    unsafe { count.write(2) };
}

/// As [`wrap`], with a queue that only copies.
fn wrap_with_copier(options: Options, owner: &Vulkan) -> Vulkan {
    let known = owner.ash_instance();
    let mut table = known.fp_v1_0().clone();
    table.get_physical_device_queue_family_properties = two_families;
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let existing = Existing {
        entry: owner.ash_entry().cloned().unwrap(),
        instance: ash::Instance::from_parts_1_3(
            known.handle(),
            table,
            known.fp_v1_1().clone(),
            known.fp_v1_3().clone(),
        ),
        physical_device: owner.physical_device(),
        device: faulty(owner),
        queues: &[(family, queue), (family + 1, queue)],
        enabled: &[Feature::TimelineSemaphore],
    };
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile.
    unsafe { Vulkan::wrap(existing, options) }.unwrap()
}

fn wrap(options: Options, owner: &Vulkan) -> Result<Vulkan> {
    let all = [Feature::TimelineSemaphore, Feature::BufferDeviceAddress, Feature::SparseBuffers];
    let enabled: Vec<_> = all.into_iter().filter(|feature| owner.has(*feature)).collect();
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let existing = Existing {
        entry: owner.ash_entry().cloned().unwrap(),
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: faulty(owner),
        // One queue under two names, so that timelines change queues.
        queues: &[(family, queue), (family, queue)],
        enabled: &enabled,
    };
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile.
    unsafe { Vulkan::wrap(existing, options) }
}

/// Work on a timeline of its own.
fn beside(vulkan: &Vulkan, line: TimelineId, a: &Block, b: &Block) -> Result<()> {
    let transfer = vulkan.as_transfer().expect("always");
    let times = vulkan.as_timelines().expect("always");
    let epoch = times.mark(MAIN)?;
    times.order(line, Point { timeline: MAIN, epoch })?;
    transfer.copy(line, &[Move { from: at(a, 0), to: at(b, 0), size: 5000 }])?;
    let mut bytes = [0; 8];
    transfer.read(line, at(b, 0), &mut bytes)?;
    assert_eq!(bytes, [7, 9, 9, 9, 9, 7, 7, 7]);
    Ok(())
}

/// Doubles numbers by a kernel that is loaded and unloaded.
fn kernel(vulkan: &Vulkan, a: &Block, b: &Block) -> Result<()> {
    let Some(kernels) = vulkan.as_launch() else { return Ok(()) };
    let program = kernels.load(&SCALE, 0)?;
    let (size, parameters) = (64, [16, 2f32.to_bits(), 0].map(u32::to_ne_bytes).concat());
    let arguments = [Argument { place: at(a, 0), size }, Argument { place: at(b, 0), size }];
    // SAFETY: sixteen numbers in, sixteen out; the blocks live until `unload` has waited.
    let launched = unsafe { kernels.launch(MAIN, program, [1; 3], &arguments, &parameters) };
    kernels.unload(program)?;
    launched
}

/// Runs a little of everything.
fn scenario(vulkan: &Vulkan) -> Result<()> {
    let (a, b) = (vulkan.allocate(first(vulkan), 5000)?, vulkan.allocate(first(vulkan), 5000)?);
    let transfer = vulkan.as_transfer().expect("always");
    let times = vulkan.as_timelines().expect("always");
    transfer.write(MAIN, at(&a, 0), &[7; 5000])?;
    transfer.fill(MAIN, at(&a, 1), 4, 9)?;
    let line = times.open()?;
    let outcome = beside(vulkan, line, &a, &b);
    // One call fails at most, so closing works at the second try.
    let closed = times.close(line);
    if closed.is_err() {
        times.close(line)?;
    }
    outcome.and(closed)?;
    kernel(vulkan, &a, &b)?;
    if let Some(remap) = vulkan.as_remap() {
        let heap = vulkan.caps().heap_ids().find_map(|(id, h)| Some((id, h.page?.get())));
        let (heap, page) = heap.expect("some heap has pages");
        let block = remap.reserve(heap, 2 * page)?;
        let mut pages = Vec::new();
        remap.create(heap, 2, &mut pages)?;
        // SAFETY: fresh pages at free positions.
        unsafe { remap.map_pages(&block, 0, &pages) }?;
        transfer.write(MAIN, at(&block, page - 4), &[3; 8])?;
        vulkan.wait_idle()?;
        // SAFETY: the device is idle.
        unsafe { remap.unmap_pages(&block, 0, 2) }?;
        // SAFETY: unmapped just above.
        unsafe { remap.destroy(heap, &pages) }?;
    }
    Ok(())
}

/// Runs `f` with the n-th call failing, for every n, until none fails any more.
fn each_failure(mut f: impl FnMut() -> Result<()>) {
    for n in 0..1000 {
        LEFT.store(n, Ordering::SeqCst);
        let outcome = f();
        let struck = LEFT.swap(-1, Ordering::SeqCst) < 0;
        match outcome {
            Ok(()) if !struck => {
                assert!(n > 1, "the functions of this file were called");
                return;
            }
            Ok(()) => {}
            Err(why) => {
                let known = why.kind().is_out_of_memory() || why.kind() == ErrorKind::NotMappable;
                assert!(struck && known, "call {n}: {why:?}");
            }
        }
    }
    panic!("a thousand calls and still not done");
}

fn every_failed_call_changes_nothing(rig: &Rig) {
    let owner = rig.open();
    // With so few blocks allowed, one that is lost or counted twice is soon missed.
    let tight = rig.options.paging(Paging::Off).max_blocks(6);
    for options in [rig.options, tight] {
        let guest = wrap(options, &owner).unwrap();
        each_failure(|| {
            let outcome = scenario(&guest);
            if outcome.is_err() {
                LEFT.store(-1, Ordering::SeqCst);
                scenario(&guest).expect("the same calls work right after");
            }
            outcome
        });
    }
    // A ring is made once for each timeline: fresh guests meet its failures too.
    each_failure(|| {
        let left = LEFT.swap(-1, Ordering::SeqCst);
        let fresh = wrap(rig.options, &owner).unwrap();
        LEFT.store(left, Ordering::SeqCst);
        scenario(&fresh)
    });
}

fn every_failed_opening_leaves_nothing(rig: &Rig) {
    let owner = rig.open();
    each_failure(|| wrap(rig.options, &owner).map(drop));
}

/// Puts all to sleep and wakes them.
fn come_and_go(all: &[&dyn Sleepable], store: &Arc<dyn BackingStore>) -> Result<()> {
    all.iter().try_for_each(|one| one.sleep(&Sleep::to(Arc::clone(store))).map(drop))?;
    all.iter().try_for_each(|one| Ok(one.wake(&Wake::all())?))
}

fn every_failed_sleep_and_wake_loses_no_byte(rig: &Rig) {
    let owner = rig.open();
    let config = ManagerConfig::default().plain();
    let manager = Manager::with_config(wrap(rig.options, &owner).unwrap(), config);
    let (image, buffer) = sleepers::pair(&manager);
    let (image, buffer) = (&*image, &*buffer);
    let store = HostStore::new();
    let bytes = [&pattern(1, 256 << 10)[..], &pattern(2, 100_000)];
    image.write(bytes[0]).unwrap();
    buffer.write(bytes[1]).unwrap();
    each_failure(|| {
        let outcome = come_and_go(&[image, buffer], &store);
        let left = LEFT.swap(-1, Ordering::SeqCst);
        for one in [image as &dyn Sleepable, buffer] {
            if one.residence().asleep {
                one.wake(&Wake::all()).expect("the same call works right after");
            }
        }
        let mut seen = [vec![0; 256 << 10], vec![0; 100_000]];
        image.read(&mut seen[0]).unwrap();
        buffer.read(&mut seen[1]).unwrap();
        assert!(seen.iter().zip(bytes).all(|(seen, bytes)| seen == bytes));
        LEFT.store(left, Ordering::SeqCst);
        outcome
    });
}

fn what_a_failed_write_left_under_way_ends_before_it_leaves(rig: &Rig) {
    let owner = rig.open();
    let config = ManagerConfig::default().plain();
    let manager = Manager::with_config(wrap(rig.options, &owner).unwrap(), config);
    let (image, _) = sleepers::pair(&manager);
    let bytes = pattern(1, 256 << 10);
    each_failure(|| {
        let outcome = image.write(&bytes);
        let left = LEFT.swap(-1, Ordering::SeqCst);
        // No copy, which would come behind what is under way.
        image.sleep(&Sleep::to(Nothing::new())).unwrap();
        image.wake(&Wake::all()).unwrap();
        assert!(image.handle().is_some());
        LEFT.store(left, Ordering::SeqCst);
        outcome
    });
}

/// A store that refuses bytes as the next call of the driver fails.
#[derive(Debug)]
struct Short;

impl BackingStore for Short {
    fn put(&self, _: AllocationId, _: u64, _: Privacy, _: &mut PutPiece<'_>) -> Result<()> {
        LEFT.store(0, Ordering::SeqCst);
        Err(ErrorKind::OutOfHostMemory.into())
    }

    fn get(&self, _: AllocationId, _: &mut GetPiece<'_>) -> Result<()> {
        Err(ErrorKind::Stale.into())
    }

    fn forget(&self, _: AllocationId) {}
}

fn an_image_that_is_not_turned_back_shows_no_handle(rig: &Rig) {
    let owner = rig.open();
    let config = ManagerConfig::default().plain();
    let manager = Manager::with_config(wrap(rig.options, &owner).unwrap(), config);
    let (image, _) = sleepers::pair(&manager);
    let bytes = pattern(1, 256 << 10);
    image.write(&bytes).unwrap();
    let handle = image.handle();
    let mends: [&dyn Fn(); 3] = [
        &|| assert_eq!(image.wake(&Wake::all()).unwrap_err().kind(), ErrorKind::AlreadyAwake),
        &|| image.read(&mut vec![0; 256 << 10]).unwrap(),
        &|| image.write(&bytes).unwrap(),
    ];
    for mend in mends {
        let refused = image.sleep(&Sleep::to(Arc::new(Short))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfHostMemory);
        assert!(LEFT.load(Ordering::SeqCst) < 0, "the way back failed");
        assert_eq!(image.handle(), None, "it is in another layout than its own");
        mend();
        assert_eq!(image.handle(), handle);
        let mut seen = vec![0; 256 << 10];
        image.read(&mut seen).unwrap();
        assert!(seen == bytes);
    }
    image.sleep(&Sleep::to(Arc::new(Short))).unwrap_err();
    come_and_go(&[&*image], &HostStore::new()).unwrap();
    assert!(image.handle().is_some());
    let mut seen = vec![0; 256 << 10];
    image.read(&mut seen).unwrap();
    assert!(seen == bytes);
}

/// Writes and reads so many bytes that they go by the queue that only copies, with short work before and after.
fn long(vulkan: &Vulkan, block: &Block, value: u8) -> Result<()> {
    const LEN: usize = 9 << 20;
    let transfer = vulkan.as_transfer().expect("always");
    let times = vulkan.as_timelines().expect("always");
    transfer.fill(MAIN, at(block, 0), LEN as u64, !value)?;
    transfer.write(MAIN, at(block, 0), &vec![value; LEN])?;
    transfer.fill(MAIN, at(block, 8), 8, 0)?;
    let mut bytes = vec![0; LEN];
    transfer.read(MAIN, at(block, 0), &mut bytes)?;
    assert_eq!(bytes[8..16], [0; 8]);
    bytes[8..16].fill(value);
    assert!(bytes.iter().all(|byte| *byte == value));
    let epoch = times.mark(MAIN)?;
    times.wait(Point { timeline: MAIN, epoch })
}

fn every_failed_long_transfer_is_over(rig: &Rig) {
    let owner = rig.open_with(rig.options.validation(Validation::Off));
    let options = rig.options.staging(8 << 20);
    each_failure(|| {
        let left = LEFT.swap(-1, Ordering::SeqCst);
        let guest = wrap_with_copier(options, &owner);
        let block = guest.allocate(first(&guest), 9 << 20).unwrap();
        LEFT.store(left, Ordering::SeqCst);
        let outcome = long(&guest, &block, 5);
        if outcome.is_err() {
            LEFT.store(-1, Ordering::SeqCst);
            long(&guest, &block, 6).expect("the same calls work right after");
        }
        outcome
    });
}

fn a_long_transfer_needs_no_second_ring(rig: &Rig) {
    let owner = rig.open_with(rig.options.validation(Validation::Off));
    // One block, and one ring.
    let guest = wrap_with_copier(rig.options.staging(8 << 20).max_blocks(2), &owner);
    let block = guest.allocate(first(&guest), 9 << 20).unwrap();
    guest.as_transfer().expect("always").write(MAIN, at(&block, 0), &[1; 8]).unwrap();
    long(&guest, &block, 5).unwrap();
}

fn a_mark_covers_a_long_transfer(rig: &Rig) {
    let owner = rig.open_with(rig.options.validation(Validation::Off));
    // Two pieces, for both of which there is room in the ring.
    let guest = wrap_with_copier(rig.options.staging(32 << 20), &owner);
    let times = guest.as_timelines().expect("always");
    if guest.semaphore(MAIN).unwrap().is_none() {
        return;
    }
    let block = guest.allocate(first(&guest), 9 << 20).unwrap();
    long(&guest, &block, 5).unwrap();
    let gate = Gate::new(owner.ash_device());
    let mut covered = 0;
    for turn in 1..1000 {
        guest.with_queue(MAIN, |queue, _| gate.stop(queue, turn)).unwrap();
        let before = times.mark(MAIN).unwrap();
        LEFT.store(i64::try_from(turn).unwrap() - 1, Ordering::SeqCst);
        let bytes = vec![7; 9 << 20];
        let outcome = guest.as_transfer().expect("always").write(MAIN, at(&block, 0), &bytes);
        let struck = LEFT.swap(-1, Ordering::SeqCst) < 0;
        let after = times.mark(MAIN).unwrap();
        gate.open(turn);
        times.wait(Point { timeline: MAIN, epoch: after }).unwrap();
        assert_eq!(outcome.is_err(), struck, "{outcome:?}");
        if !struck {
            assert!(after > before, "the copy was under way");
            break;
        }
        covered += u32::from(after > before);
    }
    assert!(covered > 0, "the first piece was under way where the second failed");
    guest.wait_idle().unwrap();
}

/// Work waits at it, behind other work of its queue, until it is opened.
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

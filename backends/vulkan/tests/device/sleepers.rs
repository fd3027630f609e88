//! An engine's own buffers and images that leave the device by budget, and come back with every byte.
#![expect(unsafe_code, reason = "creates native objects, as an engine does")]
use crate::rig::{MAIN, Rig, pattern};
use core::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use omniheap_core::{
    AllocationId, Backend as _, BackingStore, ErrorKind, GetPiece, HeapKind, Limits, Manager,
    ManagerConfig, Privacy, PutPiece, Request, Result, Sleep, Sleepable, TimelineId, Timelines,
    Wake,
};
use omniheap_residency::{Arena, ArenaConfig, HostStore, Nothing, Resident, Residents};
use omniheap_vulkan::{SleepableResource, Vulkan, ash::vk};
use std::{
    panic::catch_unwind,
    sync::{Arc, Mutex, Weak},
};

crate::cases! {
    textures_of_three_times_the_budget_keep_their_bytes if |_| true;
    every_level_layer_and_slice_comes_back if |_| true;
    a_frame_that_does_not_wait_finds_its_image_later if |_| true;
    who_wakes_does_not_send_a_higher_priority_away if |_| true;
    a_wake_takes_no_hole_of_a_shared_block if |_| true;
    what_a_store_refuses_stays_as_it_was if |_| true;
    a_store_that_lies_reaches_nothing_else if |_| true;
    a_store_that_sends_another_away_does_not_wait_for_itself if |_| true;
    work_that_was_submitted_is_done_before_it_leaves if |_| true;
    frames_that_used_it_end_before_it_leaves if |_| true;
    a_resource_that_is_dropped_asleep_leaves_nothing if |_| true;
    what_cannot_be_kept_is_refused if |_| true;
}

pub(crate) type Image = SleepableResource<vk::Image>;
pub(crate) type Buffer = SleepableResource<vk::Buffer>;
const READ: vk::ImageLayout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;
const MIB: u64 = 1 << 20;

fn manager(rig: &Rig) -> Manager<Vulkan> {
    Manager::with_config(rig.open(), ManagerConfig::default().plain())
}

/// A store in an arena of its own, so that what it keeps can be counted.
fn store() -> (Arena, Arc<dyn BackingStore>) {
    let mut config = ArenaConfig::default();
    (config.piece, config.threads) = (8 * MIB, Some(1));
    let arena = Arena::with_config(config).unwrap();
    let store = HostStore::within(&arena);
    (arena, store)
}

fn texture(format: vk::Format, [width, height]: [u32; 2]) -> vk::ImageCreateInfo<'static> {
    use vk::ImageUsageFlags as U;
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(format)
        .extent(vk::Extent3D { width, height, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(U::SAMPLED | U::TRANSFER_SRC | U::TRANSFER_DST)
}

fn image(manager: &Manager<Vulkan>, info: &vk::ImageCreateInfo<'_>) -> Arc<Image> {
    let kind = HeapKind::Device;
    // SAFETY: every device makes such an image; work is submitted only by the resource itself, or while it is held.
    Arc::new(unsafe { Vulkan::create_sleepable_image(manager, info, READ, kind) }.unwrap())
}

fn buffer(manager: &Manager<Vulkan>, size: u64) -> Arc<Buffer> {
    use vk::BufferUsageFlags as U;
    let usage = U::VERTEX_BUFFER | U::TRANSFER_SRC | U::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(size).usage(usage);
    // SAFETY: as in `image`.
    let made = unsafe { Vulkan::create_sleepable_buffer(manager, &info, HeapKind::Device) };
    Arc::new(made.unwrap())
}

/// An image of 256 KiB and a buffer of 100,000 bytes.
pub(crate) fn pair(manager: &Manager<Vulkan>) -> (Arc<Image>, Arc<Buffer>) {
    let info = texture(vk::Format::R8G8B8A8_UNORM, [256, 256]);
    (image(manager, &info), buffer(manager, 100_000))
}

/// Resources of one kind, each with the seed of its bytes.
trait Kept {
    fn put(&self, seed: u64);
    fn check(&self, seed: u64);
}

impl<H: omniheap_vulkan::Native> Kept for SleepableResource<H> {
    fn put(&self, seed: u64) {
        self.write(&pattern(seed, usize::try_from(self.size()).unwrap())).unwrap();
    }

    fn check(&self, seed: u64) {
        let mut seen = vec![0; usize::try_from(self.size()).unwrap()];
        self.read(&mut seen).unwrap();
        assert!(seen == pattern(seed, seen.len()), "{self:?} has other bytes than {seed}");
    }
}

/// Textures of three times a budget, and buffers, with the seeds of their bytes.
struct Scene {
    manager: Manager<Vulkan>,
    residents: Residents<Vulkan>,
    textures: Vec<Arc<Image>>,
    buffers: Vec<Arc<Buffer>>,
    limit: u64,
    _arena: Arena,
}

impl Scene {
    fn new(rig: &Rig) -> Self {
        let (manager, (arena, store)) = (manager(rig), store());
        let residents = Residents::of(&manager);
        let info = texture(vk::Format::R8G8B8A8_UNORM, [256, 256]);
        let one = image(&manager, &info).residence().device;
        manager.backend().wait_idle().unwrap();
        manager.trim().unwrap();
        let (textures, buffers) = (Vec::new(), Vec::new());
        let limit = 8 * one;
        let mut scene = Self { manager, residents, textures, buffers, limit, _arena: arena };
        for seed in 0..24 {
            let texture = image(&scene.manager, &info);
            if seed == 0 {
                scene.manager.set_budget(texture.heap(), Limits::hard(limit)).unwrap();
            }
            scene.residents.add(&texture, Resident::to(Arc::clone(&store))).unwrap();
            texture.put(seed);
            scene.textures.push(texture);
            if seed % 4 == 0 {
                let buffer = buffer(&scene.manager, one / 4);
                scene.residents.add(&buffer, Resident::to(Arc::clone(&store))).unwrap();
                buffer.put(100 + seed);
                scene.buffers.push(buffer);
            }
            scene.check_budget();
        }
        scene
    }

    fn check_budget(&self) {
        let held = self.manager.heap_use(self.textures[0].heap()).unwrap();
        assert!(held.reserved <= self.limit, "the budget holds: {held:?}");
    }
}

fn textures_of_three_times_the_budget_keep_their_bytes(rig: &Rig) {
    let scene = Scene::new(rig);
    for round in 0..3 {
        for (seed, one) in (0..).zip(&scene.textures) {
            let _held = scene.residents.hold(one).unwrap();
            one.check(seed + 1000 * round);
            one.put(seed + 1000 * (round + 1));
            scene.check_budget();
        }
        for (seed, one) in (100..).step_by(4).zip(&scene.buffers) {
            let _held = scene.residents.hold(one).unwrap();
            one.check(seed);
            scene.check_budget();
        }
    }
    let away = scene.textures.iter().filter(|one| one.residence().asleep).count();
    assert!(away >= 16, "8 fit, and {away} are away");
    let least = scene.textures.iter().map(|one| one.wakes()).min().unwrap();
    assert!(least >= 2, "each came back in each round but perhaps the first: {least}");
}

fn every_level_layer_and_slice_comes_back(rig: &Rig) {
    let (manager, (_arena, store)) = (manager(rig), store());
    let levels = texture(vk::Format::R8G8B8A8_UNORM, [300, 190]).mip_levels(9).array_layers(3);
    let volume = texture(vk::Format::R8_UNORM, [33, 7]).image_type(vk::ImageType::TYPE_3D);
    let mut volume = volume.mip_levels(4);
    volume.extent.depth = 5;
    let wide = texture(vk::Format::R32G32B32A32_SFLOAT, [4096, 3]);
    let small = texture(vk::Format::R16_SFLOAT, [1, 1]);
    for (seed, info) in (1..).zip([levels, volume, wide, small]) {
        let one = image(&manager, &info);
        assert_eq!(one.heap(), image(&manager, &info).heap());
        one.put(seed);
        let old = one.handle();
        assert!(old.is_some());
        let slept = one.sleep(&Sleep::to(Arc::clone(&store))).unwrap();
        assert_eq!((slept.live, slept.copied), (one.size(), one.size()));
        assert_eq!(
            (one.handle(), one.read(&mut []).unwrap_err().kind()),
            (None, ErrorKind::Asleep)
        );
        let again = one.sleep(&Sleep::to(Arc::clone(&store))).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyAsleep);
        one.wake(&Wake::all()).unwrap();
        assert_eq!(one.wake(&Wake::all()).unwrap_err().kind(), ErrorKind::AlreadyAwake);
        assert_eq!(one.wakes(), 1);
        one.check(seed);
        #[cfg(target_os = "linux")]
        {
            let file = omniheap_residency::FileStore::open(std::env::temp_dir()).unwrap();
            one.sleep(&Sleep::to(file)).unwrap();
            one.wake(&Wake::all()).unwrap();
            one.check(seed);
        }
        assert_eq!(one.write(&[0]).unwrap_err().kind(), ErrorKind::OutOfRange);
        one.sleep(&Sleep::to(Nothing::new())).unwrap();
        one.wake(&Wake::all()).unwrap();
        let mut seen = vec![1; usize::try_from(one.size()).unwrap()];
        one.read(&mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0), "a store that keeps nothing");
    }
}

fn a_frame_that_does_not_wait_finds_its_image_later(rig: &Rig) {
    let (manager, (_arena, store)) = (manager(rig), store());
    let residents = Residents::of(&manager);
    let info = texture(vk::Format::R8G8B8A8_UNORM, [256, 256]);
    let all: Vec<_> = (0..3).map(|_| image(&manager, &info)).collect();
    for (seed, one) in (0..).zip(&all) {
        residents.add(one, Resident::to(Arc::clone(&store))).unwrap();
        one.put(seed);
    }
    let (heap, one) = (all[0].heap(), all[0].residence().device);
    let limit = manager.heap_use(heap).unwrap().reserved - one;
    manager.set_budget(heap, Limits { soft: limit, hard: u64::MAX }).unwrap();
    residents.step().unwrap();
    assert_eq!(residents.settle().unwrap().slept, 1, "the budget shrank by one image");
    assert!(all[0].residence().asleep, "it was not used for the longest time");
    manager.set_budget(heap, Limits::hard(limit)).unwrap();
    assert!(residents.hold_if_awake(&all[0]).unwrap().is_none());
    residents.settle().unwrap();
    let held = residents.hold_if_awake(&all[0]).unwrap().expect("it was prefetched");
    all[0].check(0);
    drop(held);
    assert!(all[1].residence().asleep, "it made room");
    let use_now = manager.heap_use(heap).unwrap();
    assert!(use_now.reserved <= limit);
}

fn who_wakes_does_not_send_a_higher_priority_away(rig: &Rig) {
    let (manager, (_arena, store)) = (manager(rig), store());
    let residents = Residents::of(&manager);
    let info = texture(vk::Format::R8G8B8A8_UNORM, [256, 256]);
    let [low, high] = [0, 1].map(|priority| {
        let one = image(&manager, &info);
        residents.add(&one, Resident::to(Arc::clone(&store)).priority(priority)).unwrap();
        one
    });
    let heap = low.heap();
    let limit = manager.heap_use(heap).unwrap().reserved - low.residence().device;
    low.sleep(&Sleep::to(store)).unwrap();
    manager.set_budget(heap, Limits::hard(limit)).unwrap();
    let refused = residents.hold(&low).unwrap_err();
    assert!(refused.kind().is_out_of_memory(), "{refused}");
    assert!(!high.residence().asleep);
    low.wake(&Wake::all()).expect("what the program itself asks for comes before all");
    let _held = residents.hold(&high).unwrap();
    assert!(low.residence().asleep);
}

fn a_wake_takes_no_hole_of_a_shared_block(rig: &Rig) {
    let (manager, (_arena, store)) = (manager(rig), store());
    let buffer = buffer(&manager, 100_000);
    buffer.put(7);
    let (heap, memory) = (buffer.heap(), buffer.residence().device);
    buffer.sleep(&Sleep::to(Arc::clone(&store))).unwrap();
    let shared = |size| manager.allocate(&Request::new(size).heap(heap).pinned()).unwrap();
    let (hole, _stays) = (shared(MIB), shared(4096));
    drop(hole);
    manager.backend().wait_idle().unwrap();
    manager.retire().unwrap();
    let full = Limits::hard(manager.heap_use(heap).unwrap().reserved);
    manager.set_budget(heap, full).unwrap();
    assert!(manager.allocate(&Request::new(MIB).heap(heap)).is_ok(), "the hole is there");
    let refused = buffer.wake(&Wake::all()).unwrap_err();
    assert!(refused.kind().is_out_of_memory(), "{refused}");
    manager.set_budget(heap, Limits::hard(full.hard + memory)).unwrap();
    buffer.wake(&Wake::all()).unwrap();
    buffer.check(7);
    assert_eq!(buffer.sleep(&Sleep::to(store)).unwrap().returned, memory);
}

/// A store that refuses bytes, or to give them back, when told to, and panics as it flushes when told to.
#[derive(Debug)]
struct Broken {
    inner: Arc<dyn BackingStore>,
    refuses: AtomicBool,
    panics: AtomicBool,
}

impl BackingStore for Broken {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        self.inner.put(id, size, privacy, &mut |at, bytes| match self.refuses.load(Relaxed) {
            true => Err(ErrorKind::OutOfHostMemory.into()),
            false => copy(at, bytes),
        })
    }

    fn flush(&self, id: AllocationId) -> Result<()> {
        assert!(!self.panics.load(Relaxed), "as a store of an engine may");
        self.inner.flush(id)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        self.inner.get(id, &mut |at, bytes| match self.refuses.load(Relaxed) {
            true => Err(ErrorKind::Driver.into()),
            false => take(at, bytes),
        })
    }

    fn forget(&self, id: AllocationId) {
        self.inner.forget(id);
    }
}

fn what_a_store_refuses_stays_as_it_was(rig: &Rig) {
    let (manager, (arena, inner)) = (manager(rig), store());
    let one = image(&manager, &texture(vk::Format::R8G8B8A8_UNORM, [256, 256]));
    one.put(1);
    let [refuses, panics] = [true, false].map(AtomicBool::new);
    let broken = Arc::new(Broken { inner, refuses, panics });
    let sleep = || Sleep::to(Arc::<Broken>::clone(&broken));
    let handle = one.handle();
    assert_eq!(one.sleep(&sleep()).unwrap_err().kind(), ErrorKind::OutOfHostMemory);
    assert_eq!((one.handle(), arena.report().used), (handle, 0));
    one.check(1);
    broken.refuses.store(false, Relaxed);
    broken.panics.store(true, Relaxed);
    catch_unwind(AssertUnwindSafe(|| one.sleep(&sleep()))).unwrap_err();
    assert_eq!((one.handle(), arena.report().used), (handle, 0));
    one.check(1);
    broken.panics.store(false, Relaxed);
    let held = manager.heap_use(one.heap()).unwrap().reserved;
    let slept = one.sleep(&sleep()).unwrap();
    let left = manager.heap_use(one.heap()).unwrap().reserved;
    assert_eq!((slept.returned, held - left), (one.residence().stored, one.residence().stored));
    broken.refuses.store(true, Relaxed);
    assert_eq!(one.wake(&Wake::all()).unwrap_err().kind(), ErrorKind::Driver);
    assert!(one.residence().asleep);
    broken.refuses.store(false, Relaxed);
    one.wake(&Wake::all()).unwrap();
    one.check(1);
    assert_eq!(arena.report().used, 0, "the store forgot what came back");
}

/// A store that answers without a copy, or asks for a piece that is not one.
#[derive(Debug)]
struct Liar {
    piece: Option<(u64, usize)>,
    gives: bool,
}

impl BackingStore for Liar {
    fn put(&self, _: AllocationId, _: u64, _: Privacy, copy: &mut PutPiece<'_>) -> Result<()> {
        match self.piece {
            Some((at, len)) if !self.gives => copy(at, &mut vec![0; len]),
            _ => Ok(()),
        }
    }

    fn get(&self, _: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        self.piece.map_or(Ok(()), |(at, len)| take(at, &vec![0; len]))
    }

    fn forget(&self, _: AllocationId) {}
}

fn a_store_that_lies_reaches_nothing_else(rig: &Rig) {
    let manager = manager(rig);
    // Beside it, beyond all numbers, and less than a texel.
    for piece in [(0, 1 << 20), (1 << 20, 16), (u64::MAX - 15, 16), (0, 3), (2, 16)] {
        let (image, buffer) = pair(&manager);
        for one in [&*image as &dyn Sleepable, &*buffer] {
            let liar = |gives| Sleep::to(Arc::new(Liar { piece: Some(piece), gives }));
            let refused = one.sleep(&liar(false)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfRange, "{piece:?}");
            one.sleep(&liar(true)).unwrap();
            let refused = one.wake(&Wake::all()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfRange, "{piece:?}");
        }
    }
    // Without a copy nobody waits for the image but the sleep itself.
    let (image, _) = pair(&manager);
    image.sleep(&Sleep::to(Arc::new(Liar { piece: None, gives: false }))).unwrap();
}

/// A store that is short of memory, and puts another resource to sleep before it keeps the first.
#[derive(Debug)]
struct Nested {
    inner: Arc<dyn BackingStore>,
    this: Weak<Self>,
    other: Mutex<Option<Arc<Buffer>>>,
}

impl BackingStore for Nested {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        let other = self.other.lock().unwrap().take();
        if let (Some(other), Some(this)) = (other, self.this.upgrade()) {
            // Resources that share a lane go one after the other.
            let busy = other.sleep(&Sleep::to(this)).map_err(|error| error.kind()).err();
            assert!(busy.is_none_or(|why| why == ErrorKind::Busy), "{busy:?}");
        }
        self.inner.put(id, size, privacy, copy)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        self.inner.get(id, take)
    }

    fn forget(&self, id: AllocationId) {
        self.inner.forget(id);
    }
}

fn a_store_that_sends_another_away_does_not_wait_for_itself(rig: &Rig) {
    let (manager, (_arena, inner)) = (manager(rig), store());
    let all = [4096, 100_000].map(|size| buffer(&manager, size));
    (1..).zip(&all).for_each(|(seed, one)| one.put(seed));
    let other = Mutex::new(Some(Arc::clone(&all[1])));
    let store = Arc::new_cyclic(|this| Nested { inner, this: Weak::clone(this), other });
    all[0].sleep(&Sleep::to(store)).unwrap();
    for (seed, one) in (1..).zip(&all) {
        assert!(one.wake(&Wake::all()).is_ok() || one.wakes() == 0);
        one.check(seed);
    }
}

/// Submits a copy from one to the other on a timeline, and returns the pool of its commands. Nobody waits for it.
fn submit(vulkan: &Vulkan, on: TimelineId, [from, to]: [&Buffer; 2]) -> vk::CommandPool {
    let device = vulkan.ash_device();
    let family = vulkan.with_queue(on, |_, family| family).unwrap();
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    // SAFETY: the family is in use.
    let pool = unsafe { device.create_command_pool(&info, None) }.unwrap();
    let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    // SAFETY: the pool was just created.
    let commands = unsafe { device.allocate_command_buffers(&info) }.unwrap();
    let begin = vk::CommandBufferBeginInfo::default();
    // SAFETY: fresh.
    unsafe { device.begin_command_buffer(commands[0], &begin) }.unwrap();
    let all = [vk::BufferCopy { src_offset: 0, dst_offset: 0, size: from.size() }];
    let (from, to) = (from.handle().unwrap(), to.handle().unwrap());
    // SAFETY: recording; both are bound, that long, and held.
    unsafe { device.cmd_copy_buffer(commands[0], from, to, &all) };
    // SAFETY: recording.
    unsafe { device.end_command_buffer(commands[0]) }.unwrap();
    let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
    let sent = vulkan.with_queue(on, |queue, _| {
        // SAFETY: recorded above; the queue is held.
        unsafe { device.queue_submit(queue, &batch, vk::Fence::null()) }
    });
    sent.unwrap().unwrap();
    pool
}

fn work_that_was_submitted_is_done_before_it_leaves(rig: &Rig) {
    let (manager, (_arena, store)) = (manager(rig), store());
    let residents = Residents::of(&manager);
    let both = [buffer(&manager, 8 * MIB), buffer(&manager, 8 * MIB)];
    let [one, other] = &both;
    both.iter().for_each(|one| residents.add(one, Resident::to(Arc::clone(&store))).unwrap());
    let vulkan = manager.backend();
    for seed in 0..4 {
        let held = both.each_ref().map(|one| residents.hold(one).unwrap());
        one.put(seed);
        // The copies to the store run on the main timeline, and this work on another.
        let timeline = vulkan.open().unwrap();
        let point = omniheap_core::Point { timeline: MAIN, epoch: vulkan.mark(MAIN).unwrap() };
        vulkan.order(timeline, point).unwrap();
        let pool = submit(vulkan, timeline, [one, other]);
        drop(held);
        // No copy that would come behind the work anyway.
        one.sleep(&Sleep::to(Nothing::new())).unwrap();
        other.sleep(&Sleep::to(Arc::clone(&store))).unwrap();
        other.wake(&Wake::all()).unwrap();
        other.check(seed);
        vulkan.close(timeline).unwrap();
        // SAFETY: the timeline was waited for.
        unsafe { vulkan.ash_device().destroy_command_pool(pool, None) };
    }
}

fn frames_that_used_it_end_before_it_leaves(rig: &Rig) {
    let vulkan = rig.open_with(rig.options.frames_in_flight(2));
    let manager = Manager::with_config(vulkan, ManagerConfig::default().plain());
    let (one, (_arena, store)) = (buffer(&manager, 4096), store());
    one.put(1);
    for _ in 0..2 {
        let refused = one.sleep(&Sleep::to(Arc::clone(&store))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "a frame may still use it");
        assert!(one.handle().is_some());
        manager.backend().end_frame().unwrap();
    }
    manager.backend().end_frame().unwrap();
    one.sleep(&Sleep::to(store)).unwrap();
    one.wake(&Wake::all()).unwrap();
    one.check(1);
}

fn a_resource_that_is_dropped_asleep_leaves_nothing(rig: &Rig) {
    let (manager, (arena, store)) = (manager(rig), store());
    let one = image(&manager, &texture(vk::Format::R8G8B8A8_UNORM, [256, 256]));
    one.sleep(&Sleep::to(store)).unwrap();
    assert!(arena.report().used >= one.size());
    drop(one);
    assert_eq!((arena.report().used, manager.totals().live_bytes), (0, 0));
}

fn what_cannot_be_kept_is_refused(rig: &Rig) {
    use vk::{Format as F, ImageUsageFlags as U};
    let manager = manager(rig);
    let plain = texture(F::R8G8B8A8_UNORM, [64, 64]);
    let refuse = |info: &vk::ImageCreateInfo<'_>, layout, kind| {
        // SAFETY: refused before the driver sees it.
        let made =
            unsafe { Vulkan::create_sleepable_image(&manager, info, layout, HeapKind::Device) };
        assert_eq!(made.unwrap_err().kind(), kind, "{info:?}");
    };
    let unsupported = ErrorKind::Unsupported;
    refuse(&texture(F::D32_SFLOAT, [64, 64]), READ, unsupported);
    refuse(&texture(F::R8G8B8_UNORM, [64, 64]), READ, unsupported);
    refuse(&plain.samples(vk::SampleCountFlags::TYPE_4), READ, unsupported);
    refuse(&plain.usage(U::SAMPLED | U::TRANSFER_DST), READ, unsupported);
    refuse(&plain.flags(vk::ImageCreateFlags::SPARSE_BINDING), READ, unsupported);
    let shared = plain.sharing_mode(vk::SharingMode::CONCURRENT);
    let others = [u32::MAX - 1, u32::MAX];
    refuse(&shared.queue_family_indices(&others), READ, ErrorKind::InvalidConfig);
    let mut chained = vk::ImageFormatListCreateInfo::default();
    refuse(&plain.push_next(&mut chained), READ, unsupported);
    refuse(&plain, vk::ImageLayout::UNDEFINED, ErrorKind::InvalidConfig);
    let linear = plain.initial_layout(vk::ImageLayout::PREINITIALIZED);
    refuse(&linear, READ, ErrorKind::InvalidConfig);
    buffers_that_cannot_be_kept_are_refused(&manager);
    assert_eq!(manager.totals().live_bytes, 0);
}

fn buffers_that_cannot_be_kept_are_refused(manager: &Manager<Vulkan>) {
    use vk::{BufferCreateFlags as F, BufferUsageFlags as U};
    let info = vk::BufferCreateInfo::default().size(64);
    let both_ways = info.usage(U::TRANSFER_SRC | U::TRANSFER_DST);
    let structures = both_ways.usage(both_ways.usage | U::ACCELERATION_STRUCTURE_STORAGE_KHR);
    for info in [
        info.usage(U::VERTEX_BUFFER),
        both_ways.flags(F::SPARSE_BINDING),
        both_ways.flags(F::PROTECTED),
        both_ways.flags(F::DEVICE_ADDRESS_CAPTURE_REPLAY),
        structures,
    ] {
        // SAFETY: refused before the driver sees it.
        let made = unsafe { Vulkan::create_sleepable_buffer(manager, &info, HeapKind::Device) };
        assert_eq!(made.unwrap_err().kind(), ErrorKind::Unsupported, "{info:?}");
    }
}

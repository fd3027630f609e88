//! The interface of gpu-allocator on the devices that are here, with the validation layer listening.
//!
//! Without a device nothing is tested, unless `OMNIHEAP_REQUIRE` lists `vulkan`.
#![expect(unsafe_code, reason = "binds memory to resources")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use ash::vk;
use gpu_allocator::{
    AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation,
    vulkan::{
        Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
        WhenFull,
    },
};
use omniheap_core::{HeapKind, Relief};
use omniheap_vulkan::{Feature, Options, Validation, Vulkan};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// A device that an engine owns. Every message of the validation layer fails the test that drops it.
///
/// One at a time: older layers crash where threads open and close devices (Vulkan-ValidationLayers#4391).
struct Engine(Vulkan, #[expect(dead_code, reason = "held")] Option<Alone>);

type Alone = MutexGuard<'static, ()>;

impl Engine {
    fn open() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        Self::open_while(Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Two for one test.
    fn open_two() -> Option<(Self, Self)> {
        Some((Self::open()?, Self::open_while(None)?))
    }

    fn open_while(alone: Option<Alone>) -> Option<Self> {
        let options = Options::default().validation(Validation::IfPresent);
        let required = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
        match Vulkan::open_with(options) {
            Ok(vulkan) => Some(Self(vulkan, alone)),
            Err(why) if required.contains("vulkan") => panic!("no Vulkan device here: {why}"),
            Err(_) => None,
        }
    }

    fn desc(&self, allocation_sizes: AllocationSizes) -> AllocatorCreateDesc {
        AllocatorCreateDesc {
            instance: self.0.ash_instance().clone(),
            device: self.0.ash_device().clone(),
            physical_device: self.0.physical_device(),
            debug_settings: AllocatorDebugSettings::default(),
            buffer_device_address: self.0.has(Feature::BufferDeviceAddress),
            allocation_sizes,
        }
    }

    fn allocator(&self) -> Allocator {
        Allocator::new(&self.desc(AllocationSizes::default())).unwrap()
    }

    fn buffer(&self, size: u64) -> (vk::Buffer, vk::MemoryRequirements) {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: a plain buffer.
        let buffer = unsafe { self.0.ash_device().create_buffer(&info, None) }.unwrap();
        // SAFETY: created just above.
        (buffer, unsafe { self.0.ash_device().get_buffer_memory_requirements(buffer) })
    }

    fn bind(&self, buffer: vk::Buffer, to: &Allocation) {
        // SAFETY: kept as long as the buffer.
        let memory = unsafe { to.memory() };
        // SAFETY: fresh, and the memory was allocated from its requirements.
        unsafe { self.0.ash_device().bind_buffer_memory(buffer, memory, to.offset()) }.unwrap();
    }

    fn destroy(&self, buffer: vk::Buffer) {
        // SAFETY: no work ever used it.
        unsafe { self.0.ash_device().destroy_buffer(buffer, None) };
    }

    /// Requirements of a buffer with other bytes.
    fn asks(&self, size: u64) -> vk::MemoryRequirements {
        let (buffer, asked) = self.buffer(4096);
        self.destroy(buffer);
        vk::MemoryRequirements { size, ..asked }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let texts = self.0.messages().map(|messages| messages.texts()).unwrap_or_default();
        if !std::thread::panicking() {
            assert!(texts.is_empty(), "{texts:?}");
        }
    }
}

fn desc(
    name: &str,
    requirements: vk::MemoryRequirements,
    location: MemoryLocation,
) -> AllocationCreateDesc<'_> {
    let allocation_scheme = AllocationScheme::GpuAllocatorManaged;
    AllocationCreateDesc { name, requirements, location, linear: true, allocation_scheme }
}

const LOCATIONS: [MemoryLocation; 4] = [
    MemoryLocation::GpuOnly,
    MemoryLocation::CpuToGpu,
    MemoryLocation::GpuToCpu,
    MemoryLocation::Unknown,
];

#[test]
fn memory_of_every_location_is_bound_mapped_and_disjoint() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let mut made = Vec::new();
    for (n, location) in (1u8..).zip(LOCATIONS.into_iter().cycle().take(16)) {
        let (buffer, asked) = engine.buffer(3000 * u64::from(n));
        let mut wish = desc("piece", asked, location);
        if n > 8 {
            wish.allocation_scheme = AllocationScheme::DedicatedBuffer(buffer);
        }
        let mut piece = allocator.allocate(&wish).unwrap();
        assert_eq!((piece.is_dedicated(), piece.size()), (n > 8, asked.size));
        assert!(!piece.is_null() && piece.offset().is_multiple_of(asked.alignment));
        engine.bind(buffer, &piece);
        let visible = vk::MemoryPropertyFlags::HOST_VISIBLE;
        assert_eq!(piece.mapped_ptr().is_some(), piece.memory_properties().contains(visible));
        match piece.mapped_slice_mut() {
            Some(bytes) => bytes.fill(n),
            None => assert!(matches!(location, MemoryLocation::GpuOnly | MemoryLocation::Unknown)),
        }
        made.push((n, buffer, piece));
    }
    for (n, _, piece) in &made {
        let bytes = piece.mapped_slice().unwrap_or_default();
        assert!(bytes.iter().all(|byte| byte == n), "piece {n} kept its bytes");
    }
    for (_, buffer, piece) in made {
        engine.destroy(buffer);
        allocator.free(piece).unwrap();
    }
    assert_eq!(allocator.generate_report().total_allocated_bytes, 0);
    assert_eq!(allocator.manager().totals().live, 0);
}

#[test]
fn what_cannot_be_served_is_refused_and_changes_nothing() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let good = engine.asks(4096);
    let mut refused = |asked| allocator.allocate(&desc("bad", asked, MemoryLocation::GpuOnly));
    let with = |size, alignment, memory_type_bits| vk::MemoryRequirements {
        size,
        alignment,
        memory_type_bits,
    };
    let types = good.memory_type_bits;
    use AllocationError as E;
    assert!(matches!(refused(with(0, 16, types)), Err(E::InvalidAllocationCreateDesc)));
    assert!(matches!(refused(with(64, 0, types)), Err(E::InvalidAllocationCreateDesc)));
    assert!(matches!(refused(with(64, 3, types)), Err(E::InvalidAllocationCreateDesc)));
    assert!(matches!(refused(with(64, 16, 0)), Err(E::NoCompatibleMemoryTypeFound)));
    assert!(matches!(refused(with(u64::MAX, 16, types)), Err(E::OutOfMemory)));
    assert!(matches!(refused(with(1 << 50, 16, types)), Err(E::OutOfMemory)));
    assert_eq!(allocator.capacity(), 0, "nothing was taken");
    let nowhere = AllocatorCreateDesc {
        physical_device: vk::PhysicalDevice::null(),
        ..engine.desc(AllocationSizes::default())
    };
    assert!(matches!(Allocator::new(&nowhere), Err(E::InvalidAllocatorCreateDesc(_))));
    allocator.free(Allocation::default()).unwrap();
    let mut null = Allocation::default();
    allocator.rename_allocation(&mut null, "null").unwrap();
    assert!(null.is_null() && null.mapped_slice().is_none() && null.try_as_mapped_slab().is_none());
}

/// Answers of a device that is lost for a while.
unsafe extern "system" fn lose(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    if IS_LOST.load(Relaxed) {
        return vk::Result::ERROR_DEVICE_LOST;
    }
    let driver = DRIVER.get().unwrap();
    // SAFETY: handed on as it came.
    unsafe { driver(device, info, callbacks, memory) }
}

static IS_LOST: AtomicBool = AtomicBool::new(false);
static DRIVER: OnceLock<vk::PFN_vkAllocateMemory> = OnceLock::new();

#[test]
fn a_lost_device_is_an_error_that_changes_nothing() {
    let Some(engine) = Engine::open() else { return };
    let mut functions = engine.desc(AllocationSizes::default());
    DRIVER.get_or_init(|| functions.device.fp_v1_0().allocate_memory);
    let (instance, handle) = (functions.instance.clone(), functions.device.handle());
    let find = |name: &core::ffi::CStr| match name.to_bytes() {
        b"vkAllocateMemory" => lose as *const core::ffi::c_void,
        // SAFETY: a live device, and a name.
        _ => unsafe { instance.get_device_proc_addr(handle, name.as_ptr()) }
            .map_or(core::ptr::null(), |function| function as *const _),
    };
    // SAFETY: the device's own functions, but for one that has the same type and hands on to it.
    functions.device = unsafe { ash::Device::load_with(find, handle) };
    let mut allocator = Allocator::new(&functions).unwrap();
    let kept = allocator.allocate(&desc("kept", engine.asks(4096), MemoryLocation::GpuOnly));
    let held = allocator.capacity();
    IS_LOST.store(true, Relaxed);
    for location in LOCATIONS {
        let refused = allocator.allocate(&desc("lost", engine.asks(64 << 20), location));
        assert!(matches!(refused, Err(AllocationError::Internal(_))), "{refused:?}");
        assert_eq!(allocator.capacity(), held);
        assert_eq!(allocator.generate_report().allocations.len(), 1);
    }
    allocator.free(kept.unwrap()).unwrap();
    IS_LOST.store(false, Relaxed);
    let after = allocator.allocate(&desc("after", engine.asks(64 << 20), MemoryLocation::GpuOnly));
    allocator.free(after.unwrap()).unwrap();
}

#[test]
fn five_gibibytes_are_served_or_refused_as_out_of_memory() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let wish = desc("huge", engine.asks(5 << 30), MemoryLocation::GpuOnly);
    match allocator.allocate(&wish) {
        Ok(huge) => allocator.free(huge).unwrap(),
        Err(why) => assert!(matches!(why, AllocationError::OutOfMemory), "{why}"),
    }
    assert_eq!(allocator.capacity(), 0, "no such block is kept");
}

#[test]
fn allocations_of_another_allocator_are_refused() {
    let Some((one, two)) = Engine::open_two() else { return };
    let (mut a, mut b) = (one.allocator(), two.allocator());
    let asked = one.asks(4096);
    let of_a = a.allocate(&desc("a", asked, MemoryLocation::CpuToGpu)).unwrap();
    let mut of_b = b.allocate(&desc("b", asked, MemoryLocation::CpuToGpu)).unwrap();
    assert!(matches!(a.rename_allocation(&mut of_b, "c"), Err(AllocationError::Internal(_))));
    assert!(matches!(b.free(of_a), Err(AllocationError::Internal(_))));
    assert_eq!(a.manager().totals().live, 1, "it was not freed");
    b.free(of_b).unwrap();
}

#[test]
fn two_devices_at_once_serve_several_threads() {
    let Some((one, two)) = Engine::open_two() else { return };
    let asked = one.asks(100 << 10);
    std::thread::scope(|scope| {
        for engine in [&one, &two] {
            scope.spawn(move || {
                let mut allocator = engine.allocator();
                let made: Vec<_> = (0..100)
                    .map(|_| allocator.allocate(&desc("piece", asked, MemoryLocation::GpuOnly)))
                    .collect::<Result<_, _>>()
                    .unwrap();
                // Dropped on another thread than the one that made it.
                let back = std::thread::spawn(move || {
                    made.into_iter().for_each(|piece| allocator.free(piece).unwrap());
                    allocator.manager().totals().live
                });
                assert_eq!(back.join().unwrap(), 0);
            });
        }
    });
}

#[test]
fn what_was_freed_is_refused_though_its_slot_is_used_again() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let wish = desc("piece", engine.asks(4096), MemoryLocation::GpuOnly);
    let first = allocator.allocate(&wish).unwrap();
    // SAFETY: a bitwise copy, as a caller with a bug in its own unsafe code has it; it owns nothing.
    let copy = unsafe { std::ptr::read(&raw const first) };
    allocator.free(first).unwrap();
    let second = allocator.allocate(&wish).unwrap();
    assert!(matches!(allocator.free(copy), Err(AllocationError::Internal(_))));
    assert_eq!(allocator.manager().totals().live, 1, "the second one lives on");
    allocator.free(second).unwrap();
}

#[test]
fn thousands_of_memory_objects_are_the_drivers_to_refuse() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    // SAFETY: both live as long as the engine.
    let limits = unsafe {
        engine.0.ash_instance().get_physical_device_properties(engine.0.physical_device()).limits
    };
    let count = limits.max_memory_allocation_count.min(4096) + 64;
    let mut made = Vec::new();
    for _ in 0..count {
        let (buffer, asked) = engine.buffer(256);
        let wish = AllocationCreateDesc {
            allocation_scheme: AllocationScheme::DedicatedBuffer(buffer),
            ..desc("alone", asked, MemoryLocation::GpuOnly)
        };
        made.push((buffer, allocator.allocate(&wish).unwrap()));
    }
    // Beside them, small ones share.
    let wish = desc("small", engine.asks(4096), MemoryLocation::GpuOnly);
    let small: Vec<_> = (0..1000).map(|_| allocator.allocate(&wish).unwrap()).collect();
    let blocks = allocator.generate_report().blocks.len();
    assert!(blocks <= count as usize + 64, "{blocks} memory objects");
    small.into_iter().for_each(|piece| allocator.free(piece).unwrap());
    for (buffer, piece) in made {
        engine.destroy(buffer);
        allocator.free(piece).unwrap();
    }
}

#[test]
fn a_dropped_allocation_stays_until_the_allocator_is_dropped() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let asked = engine.asks(4096);
    allocator.allocate(&desc("leaked", asked, MemoryLocation::GpuOnly)).unwrap();
    let kept = allocator.allocate(&desc("kept", asked, MemoryLocation::GpuOnly)).unwrap();
    let names: Vec<_> =
        allocator.generate_report().allocations.into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["leaked", "kept"]);
    // From another thread, and before its allocation.
    std::thread::spawn(move || drop(allocator)).join().unwrap();
    assert_eq!(kept.size(), asked.size);
}

#[test]
fn empty_blocks_go_back_and_steady_churn_keeps_them() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let asked = engine.asks(3 << 20);
    let wish = desc("asset", asked, MemoryLocation::GpuOnly);
    let mut live: Vec<_> = (0..40).map(|_| allocator.allocate(&wish).unwrap()).collect();
    let peak = allocator.capacity();
    assert!(peak >= 120 << 20);
    for piece in live.split_off(4) {
        allocator.free(piece).unwrap();
    }
    let held = allocator.capacity();
    assert!(held <= (12 << 20) + (8 << 20) + (2 << 20), "{held} bytes for 12 MiB");
    let calls = allocator.manager().report().driver_calls;
    for _ in 0..1000 {
        let many: Vec<_> = (0..8).map(|_| allocator.allocate(&wish).unwrap()).collect();
        many.into_iter().for_each(|piece| allocator.free(piece).unwrap());
    }
    let calls = allocator.manager().report().driver_calls - calls;
    assert!(calls < 400, "{calls} driver calls for 8,000 allocations that come and go");
    live.into_iter().for_each(|piece| allocator.free(piece).unwrap());
}

#[test]
fn staging_and_unlike_sizes_lie_apart() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let mut memory = |name, kib: u64, location| {
        let wish = desc(name, engine.asks(kib << 10), location);
        let piece = allocator.allocate(&wish).unwrap();
        // SAFETY: only compared.
        unsafe { piece.memory() }
    };
    let device = MemoryLocation::GpuOnly;
    let (small, medium) = (memory("uniforms", 4, device), memory("mesh", 100, device));
    assert_ne!(small, medium);
    assert_eq!(memory("Unlabeled buffer", 32, device), small, "of an engine that labels nothing");
    assert_eq!(memory("", 256, device), medium);
    assert_ne!(memory("texture", 900, device), medium);
    let staging = memory("(wgpu internal) Staging", 4, MemoryLocation::CpuToGpu);
    assert!(staging != small && staging != medium);
    for (name, kib) in [("(wgpu internal) Staging", 300), ("Unlabeled buffer", 4), ("", 900)] {
        assert_eq!(memory(name, kib, MemoryLocation::CpuToGpu), staging, "{name:?}");
    }
    assert_ne!(memory("per frame", 4, MemoryLocation::CpuToGpu), staging);
}

#[test]
fn most_blocks_go_back_with_most_of_a_scene() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let mut scene = Vec::new();
    for n in 0..3000usize {
        // One of ten levels stays; staging comes and goes with each asset.
        let size = [4u64, 16, 64, 256, 1024][n * 7 % 5] << 10;
        let asked = engine.asks(size);
        let staging = desc("(wgpu internal) Staging", asked, MemoryLocation::CpuToGpu);
        let staging = allocator.allocate(&staging).unwrap();
        let made = allocator.allocate(&desc("asset", asked, MemoryLocation::GpuOnly)).unwrap();
        scene.push((n / 300 == 4, made));
        allocator.free(staging).unwrap();
    }
    let loaded = allocator.generate_report();
    let (live, held) = (loaded.total_allocated_bytes, loaded.total_capacity_bytes);
    assert!(held <= live + live / 10 + (8 << 20), "{held} bytes for {live} when all is loaded");
    let (kept, gone): (Vec<_>, Vec<_>) = scene.into_iter().partition(|(stays, _)| *stays);
    gone.into_iter().for_each(|(_, piece)| allocator.free(piece).unwrap());
    let after = allocator.generate_report();
    let (live, held) = (after.total_allocated_bytes, after.total_capacity_bytes);
    assert!(held <= live * 115 / 100 + (8 << 20), "{held} bytes for {live} after most is gone");
    kept.into_iter().for_each(|(_, piece)| allocator.free(piece).unwrap());
}

#[test]
fn block_sizes_are_an_upper_bound() {
    let Some(engine) = Engine::open() else { return };
    for bound in [4 << 20, 32 << 20, 256 << 20] {
        let mut allocator =
            Allocator::new(&engine.desc(AllocationSizes::new(bound, bound))).unwrap();
        for kib in [1, 40, 700, 1100, 3000, 5000] {
            let wish = desc("piece", engine.asks(kib << 10), MemoryLocation::GpuOnly);
            allocator.allocate(&wish).unwrap();
        }
        let report = allocator.generate_report();
        let shared = report.blocks.iter().filter(|block| block.allocations.len() > 1);
        assert!(shared.map(|block| block.size).all(|size| size <= bound));
        let alone = report.blocks.iter().map(|block| block.size).max().unwrap();
        assert!(alone <= bound.max(6 << 20), "{alone} bytes with a bound of {bound}");
    }
}

#[test]
fn full_device_memory_falls_back_or_fails_as_told() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let calls = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&calls);
    allocator.manager().on_pressure(move |_| {
        seen.fetch_add(1, Relaxed);
        Relief::Nothing
    });
    let caps = allocator.manager().caps().clone();
    for (heap, about) in caps.heap_ids() {
        if about.kind != HeapKind::Staging {
            allocator.manager().set_budget(heap, omniheap_core::Limits::hard(8 << 20)).unwrap();
        }
    }
    let wish = desc("target", engine.asks(16 << 20), MemoryLocation::GpuOnly);
    let has_host = caps.heaps.iter().any(|heap| heap.kind == HeapKind::Staging);
    match allocator.allocate(&wish) {
        Ok(piece) => {
            let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
            assert!(has_host && !piece.memory_properties().contains(local));
            let name = &allocator.generate_report().allocations[0].name;
            assert!(name.contains("the device was full"), "{name}");
            allocator.free(piece).unwrap();
        }
        Err(why) => assert!(!has_host && matches!(why, AllocationError::OutOfMemory), "{why}"),
    }
    assert!(calls.load(Relaxed) > 0, "the program was asked to free something");
    allocator.set_when_full(WhenFull::Fail);
    assert!(matches!(allocator.allocate(&wish), Err(AllocationError::OutOfMemory)));
    let small = desc("small", engine.asks(1 << 20), MemoryLocation::GpuOnly);
    let small = allocator.allocate(&small).unwrap();
    allocator.free(small).unwrap();
}

#[test]
fn names_slabs_and_reports_are_those_of_gpu_allocator() {
    let Some(engine) = Engine::open() else { return };
    let mut allocator = engine.allocator();
    let asked = engine.asks(4096);
    let mut piece = allocator.allocate(&desc("first", asked, MemoryLocation::CpuToGpu)).unwrap();
    allocator.rename_allocation(&mut piece, "second").unwrap();
    presser::copy_from_slice_to_offset(&[1u32, 2, 3], &mut piece, 8).unwrap();
    assert_eq!(piece.mapped_slice().unwrap()[8..12], 1u32.to_ne_bytes());
    assert_eq!(presser::Slab::size(&piece.try_as_mapped_slab().unwrap()), 4096);
    let report = allocator.generate_report();
    assert_eq!((report.allocations.len(), report.blocks.len()), (1, 1));
    assert_eq!(report.blocks[0].allocations, 0..1);
    assert_eq!((report.total_allocated_bytes, &*report.allocations[0].name), (4096, "second"));
    assert_eq!(report.total_capacity_bytes, allocator.capacity());
    let text = format!("{allocator:.1?}");
    assert!(text.contains("\"second\": 4.00 KB") && text.contains("4.00 KB / 256.00 KB"), "{text}");
    allocator.free(piece).unwrap();
    let report = allocator.generate_report();
    assert_eq!((report.allocations.len(), report.blocks.len()), (0, 1), "one empty block");
}

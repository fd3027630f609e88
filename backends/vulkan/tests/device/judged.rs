//! Random descriptions, bindings, copies and launches: what the backend takes, the validation layer takes too, and what the layer
//! would refuse, the backend refuses first. `OMNIHEAP_OPS` sets their number, `OMNIHEAP_SEED` the seed.
#![expect(unsafe_code, reason = "makes the calls that the layer judges")]
use crate::rig::{MAIN, Rig, at, pattern, transfer};
use core::{ffi::c_void, ptr};
use omniheap_core::{
    Argument, Backend, Class, Error, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig, Move,
    Result, Sleep, Sleepable, TimelineId, Wake,
};
use omniheap_residency::HostStore;
use omniheap_shaders::SCALE;
use omniheap_vulkan::{
    Block, Needs, SleepableResource, Vulkan,
    ash::{ext::debug_utils, vk},
};
use std::sync::Mutex;

crate::cases! {
    random_bindings_are_judged_as_by_the_layer if is_watched;
    random_resources_sleep_as_the_layer_allows if is_watched;
    random_transfers_are_judged_by_their_ranges if is_watched;
    random_launches_are_judged_by_the_limits if |vulkan| is_watched(vulkan) && vulkan.as_launch().is_some();
}

fn is_watched(vulkan: &Vulkan) -> bool {
    vulkan.messages().is_some()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Random(u64);

impl Random {
    fn new(of: &str) -> (Self, u64) {
        let (seed, rounds) = (setting("OMNIHEAP_SEED", 1), setting("OMNIHEAP_OPS", 1000));
        eprintln!("{of}: OMNIHEAP_SEED={seed} OMNIHEAP_OPS={rounds}");
        (Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), rounds)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Returns the usual value most of the time, so that enough descriptions have one thing wrong, or nothing.
    fn mostly<T: Copy>(&mut self, usual: T, others: &[T]) -> T {
        if self.below(6) > 0 { usual } else { self.pick(others) }
    }

    /// Returns each of the flags by chance, one time in `odds`.
    fn some<T: Copy + core::ops::BitOr<Output = T>>(&mut self, odds: u64, none: T, all: &[T]) -> T {
        all.iter().fold(none, |sum, one| if self.below(odds) == 0 { sum | *one } else { sum })
    }
}

/// The layer's opinion: calls that it objects to do not reach the driver.
struct Judge {
    utils: debug_utils::Instance,
    messenger: vk::DebugUtilsMessengerEXT,
    heard: Box<Mutex<Vec<String>>>,
}

unsafe extern "system" fn object(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a valid structure for the time of the call.
    let data = unsafe { &*data };
    // SAFETY: its message is a C string, or null.
    let text = unsafe { data.message_as_c_str() };
    let text = text.map_or(String::new(), |text| text.to_string_lossy().into_owned());
    // SAFETY: the judge's own list, which outlives its messenger.
    let heard = unsafe { &*user.cast_const().cast::<Mutex<Vec<String>>>() };
    heard.lock().unwrap().push(text);
    vk::TRUE
}

impl Judge {
    fn over(vulkan: &Vulkan) -> Self {
        use vk::DebugUtilsMessageSeverityFlagsEXT as Severity;
        let utils = debug_utils::Instance::new(vulkan.ash_entry().unwrap(), vulkan.ash_instance());
        let heard = Box::new(Mutex::default());
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(Severity::ERROR)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(object))
            .user_data(ptr::from_ref(&*heard).cast_mut().cast());
        // SAFETY: the instance has the extension, because the layer is watched.
        let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }.unwrap();
        Self { utils, messenger, heard }
    }

    /// Returns what the layer has said since the last call.
    fn said(&self) -> Vec<String> {
        core::mem::take(&mut self.heard.lock().unwrap())
    }

    #[track_caller]
    fn is_silent(&self, what: &dyn core::fmt::Debug) {
        let said = self.said();
        assert!(said.is_empty(), "{what:?}: {}", said.join("\n"));
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // SAFETY: made by this instance, which is alive.
        unsafe { self.utils.destroy_debug_utils_messenger(self.messenger, None) };
    }
}

/// A buffer or image without memory.
#[derive(Clone, Copy, Debug)]
enum Made {
    Buffer(vk::Buffer),
    Image(vk::Image),
}

impl Made {
    fn destroy(self, device: &ash::Device) {
        match self {
            // SAFETY: never used by the device.
            Self::Buffer(buffer) => unsafe { device.destroy_buffer(buffer, None) },
            // SAFETY: as above.
            Self::Image(image) => unsafe { device.destroy_image(image, None) },
        }
    }

    fn needs(self, vulkan: &Vulkan, kind: HeapKind, class: Class) -> Result<Needs> {
        match self {
            // SAFETY: of this device.
            Self::Buffer(buffer) => unsafe { vulkan.buffer_needs(buffer, kind) },
            // SAFETY: as above.
            Self::Image(image) => unsafe { vulkan.image_needs(image, class, kind) },
        }
    }

    /// Returns memory of its own.
    fn memory(self, vulkan: &Vulkan, needs: &Needs) -> Result<Block> {
        match self {
            // SAFETY: of this device, with its own needs.
            Self::Buffer(buffer) => unsafe { vulkan.memory_for(buffer, needs, needs.heaps[0]) },
            // SAFETY: as above.
            Self::Image(image) => unsafe { vulkan.memory_for(image, needs, needs.heaps[0]) },
        }
    }

    /// Binds by the backend, which checks.
    fn bind(self, vulkan: &Vulkan, needs: &Needs, block: &Block, offset: u64) -> Result<()> {
        match self {
            // SAFETY: fresh, with its own needs; whatever else is wrong, the backend or the layer refuses.
            Self::Buffer(buffer) => unsafe { vulkan.bind_buffer(buffer, needs, block, offset) },
            // SAFETY: as above.
            Self::Image(image) => unsafe { vulkan.bind_image(image, needs, block, offset) },
        }
    }

    /// Binds past the backend: only the layer stands before the driver.
    fn bind_anyhow(self, device: &ash::Device, memory: vk::DeviceMemory, offset: u64) {
        let _ = match self {
            // SAFETY: fresh; the layer stops the call where it is wrong.
            Self::Buffer(buffer) => unsafe { device.bind_buffer_memory(buffer, memory, offset) },
            // SAFETY: as above.
            Self::Image(image) => unsafe { device.bind_image_memory(image, memory, offset) },
        };
    }
}

const SIDES: &[u32] = &[1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 31, 33, 64];

fn buffer_info(random: &mut Random) -> vk::BufferCreateInfo<'static> {
    use vk::{BufferCreateFlags as F, BufferUsageFlags as U};
    let both = U::TRANSFER_SRC | U::TRANSFER_DST;
    let more = [
        U::UNIFORM_BUFFER,
        U::STORAGE_BUFFER,
        U::VERTEX_BUFFER,
        U::INDIRECT_BUFFER,
        U::UNIFORM_TEXEL_BUFFER,
        U::SHADER_DEVICE_ADDRESS,
    ];
    let usage = random.mostly(both, &[U::TRANSFER_SRC, U::TRANSFER_DST, U::empty()]);
    let flags = [F::SPARSE_BINDING, F::SPARSE_RESIDENCY, F::PROTECTED];
    let (small, large) = (1 + random.below(300), 1 + random.below(200_000));
    let size = random.pick(&[small, large, 1 << 16]);
    vk::BufferCreateInfo::default()
        .size(random.mostly(size, &[0, u64::MAX]))
        .flags(random.some(20, F::empty(), &flags))
        .usage(random.some(4, usage, &more))
}

fn image_info(random: &mut Random) -> vk::ImageCreateInfo<'static> {
    use vk::{
        ImageCreateFlags as F, ImageTiling as T, ImageUsageFlags as U, SampleCountFlags as S,
    };
    let (shape, other) = (vk::ImageType::TYPE_2D, [vk::ImageType::TYPE_1D, vk::ImageType::TYPE_3D]);
    let shape = random.mostly(shape, &other);
    let mut side = |usual: bool| if usual { random.pick(SIDES) } else { 1 };
    let mut extent = vk::Extent3D { width: side(true), height: side(true), depth: side(false) };
    match shape {
        vk::ImageType::TYPE_1D => extent.height = random.mostly(1, &[2]),
        vk::ImageType::TYPE_3D => extent.depth = random.pick(SIDES),
        _ => extent.depth = random.mostly(1, &[0, 2]),
    }
    let both = U::TRANSFER_SRC | U::TRANSFER_DST;
    let usage = random.mostly(both, &[U::TRANSFER_SRC, U::TRANSFER_DST, U::empty()]);
    let uses =
        [U::SAMPLED, U::STORAGE, U::COLOR_ATTACHMENT, U::INPUT_ATTACHMENT, U::TRANSIENT_ATTACHMENT];
    let flags = [
        F::SPARSE_BINDING,
        F::MUTABLE_FORMAT,
        F::CUBE_COMPATIBLE,
        F::TYPE_2D_ARRAY_COMPATIBLE,
        F::BLOCK_TEXEL_VIEW_COMPATIBLE,
        F::EXTENDED_USAGE,
        F::ALIAS,
        F::PROTECTED,
        F::DISJOINT,
        F::SPLIT_INSTANCE_BIND_REGIONS,
    ];
    let (any, usual) = (1 + random.below(184), random.pick(&[9, 16, 37, 97, 109, 131, 145, 157]));
    let format = random.pick(&[any, usual]);
    vk::ImageCreateInfo::default()
        .image_type(shape)
        .format(vk::Format::from_raw(i32::try_from(format).unwrap()))
        .extent(extent)
        .mip_levels(random.mostly(1, &[0, 2, 3, 4, 5, 6]))
        .array_layers(random.mostly(1, &[0, 2, 3, 6]))
        .samples(random.mostly(S::TYPE_1, &[S::TYPE_2, S::TYPE_4]))
        .tiling(random.mostly(T::OPTIMAL, &[T::LINEAR]))
        .flags(random.some(20, F::empty(), &flags))
        .usage(random.some(4, usage, &uses))
}

/// Makes a resource that the layer allows; `None` if it does not.
fn make(random: &mut Random, device: &ash::Device, judge: &Judge) -> Option<Made> {
    let made = match random.below(2) {
        // SAFETY: the layer stops the call where the description is wrong.
        0 => unsafe { device.create_buffer(&buffer_info(random), None) }.map(Made::Buffer),
        _ => {
            // Of a disjoint image each plane has needs of its own, so it is not for `image_needs`.
            let info = image_info(random);
            let info = info.flags(info.flags & !vk::ImageCreateFlags::DISJOINT);
            // SAFETY: as above.
            unsafe { device.create_image(&info, None) }.map(Made::Image)
        }
    };
    // What the layer objects to was not made.
    let said = judge.said();
    made.ok().filter(|_| said.is_empty())
}

/// Blocks of every kind: of each heap, exportable, of another process, of pages, and dedicated to a resource.
fn blocks(manager: &Manager<Vulkan>) -> Vec<Block> {
    let vulkan = manager.backend();
    let heaps: Vec<HeapId> = vulkan.caps().heap_ids().map(|(heap, _)| heap).collect();
    let mut all = Vec::new();
    for heap in heaps {
        all.extend([4096, 1 << 20].iter().filter_map(|size| vulkan.allocate(heap, *size).ok()));
        all.extend(vulkan.memory_untied(heap, 70_000).ok());
        if let Some(export) = vulkan.as_export()
            && let Ok(block) = export.allocate_exportable(heap, 1 << 20)
        {
            let exported = export.export(&block).unwrap();
            all.extend([block, export.import(heap, &exported).unwrap()]);
        }
        if let Some(remap) = vulkan.as_remap() {
            let page = vulkan.caps().heap(heap).unwrap().page.map(|page| page.get());
            all.extend(page.and_then(|page| remap.reserve(heap, 4 * page).ok()));
        }
    }
    all
}

fn random_bindings_are_judged_as_by_the_layer(rig: &Rig) {
    let (mut random, rounds) = Random::new("bindings");
    let manager = Manager::with_config(rig.open(), ManagerConfig::default().plain());
    let (vulkan, judge) = (manager.backend(), Judge::over(manager.backend()));
    let (device, blocks) = (vulkan.ash_device().clone(), blocks(&manager));
    let mut seen = [0; 2];
    for _ in 0..rounds {
        let Some(made) = make(&mut random, &device, &judge) else { continue };
        let kind = random.pick(&[HeapKind::Device, HeapKind::Staging, HeapKind::Unified]);
        if let Ok(needs) = made.needs(vulkan, kind, Class::Tiled) {
            let own = made.memory(vulkan, &needs).unwrap();
            let all: Vec<&Block> = blocks.iter().chain([&own]).collect();
            let block = random.pick(&all);
            let block = random.mostly(block, &[&own]);
            let is_bound = bind_somewhere(&mut random, (vulkan, &judge), made, &needs, block);
            seen[usize::from(is_bound)] += 1;
        }
        made.destroy(&device);
    }
    eprintln!("{} bound, {} refused", seen[1], seen[0]);
    assert!(seen.iter().all(|count| *count > rounds / 20), "both verdicts are seen: {seen:?}");
    drop((blocks, judge));
    rig.forgive();
}

/// Binds a resource at an offset that may be wrong; returns whether it was taken. Where the backend takes it, the layer is silent, and where
/// the backend refuses it, the layer refuses it too.
fn bind_somewhere(
    random: &mut Random,
    (vulkan, judge): (&Vulkan, &Judge),
    made: Made,
    needs: &Needs,
    block: &Block,
) -> bool {
    let (align, last) = (needs.layout.align, block.size().saturating_sub(needs.layout.size));
    let fine = align.down(random.below(last + 1));
    let offset = random.mostly(fine, &[0, 1, align.get() / 2, last, last + 1, align.down(!0)]);
    let bound = made.bind(vulkan, needs, block, offset);
    let what = (made, needs, block, offset, &bound);
    judge.is_silent(&what);
    if let (Err(_), Some(memory)) = (&bound, block.memory()) {
        made.bind_anyhow(vulkan.ash_device(), memory, offset);
        assert!(!judge.said().is_empty(), "only the backend refuses: {what:?}");
    }
    bound.is_ok()
}

/// Layouts that the usage of an image allows, and a few that a sleeping image never has.
fn layout(random: &mut Random, usage: vk::ImageUsageFlags) -> vk::ImageLayout {
    use vk::{ImageLayout as L, ImageUsageFlags as U};
    let mut all = vec![L::GENERAL];
    let allowed = [
        (U::SAMPLED | U::INPUT_ATTACHMENT, L::SHADER_READ_ONLY_OPTIMAL),
        (U::COLOR_ATTACHMENT, L::COLOR_ATTACHMENT_OPTIMAL),
        (U::TRANSFER_SRC, L::TRANSFER_SRC_OPTIMAL),
        (U::TRANSFER_DST, L::TRANSFER_DST_OPTIMAL),
    ];
    all.extend(allowed.iter().filter(|(some, _)| usage.intersects(*some)).map(|(_, it)| *it));
    let usual = random.pick(&all);
    random.mostly(usual, &[usual, L::UNDEFINED, L::PREINITIALIZED])
}

/// Puts a resource to sleep and wakes it: its bytes come back.
fn cycle<H: omniheap_vulkan::Native>(one: &SleepableResource<H>, seed: u64) {
    let bytes = pattern(seed, usize::try_from(one.size()).unwrap());
    let mut seen = vec![0; bytes.len()];
    one.write(&bytes).unwrap();
    one.sleep(&Sleep::to(HostStore::new())).unwrap();
    one.wake(&Wake::all()).unwrap();
    one.read(&mut seen).unwrap();
    assert!(seen == bytes, "{one:?} came back with other bytes");
}

/// Makes a random resource that sleeps and wakes; on failure returns why, and what it was.
fn sleep_one(
    random: &mut Random,
    manager: &Manager<Vulkan>,
    seed: u64,
) -> core::result::Result<(), (Error, String)> {
    let kind = random.pick(&[HeapKind::Device, HeapKind::Staging, HeapKind::Unified]);
    if random.below(4) == 0 {
        let info = buffer_info(random);
        // SAFETY: the layer stops the call where the description is wrong; nobody else uses the buffer.
        let made = unsafe { Vulkan::create_sleepable_buffer(manager, &info, kind) };
        return made
            .map(|one| cycle(&one, seed))
            .map_err(|error| (error.into(), format!("{info:?}")));
    }
    let info = image_info(random);
    let layout = layout(random, info.usage);
    // SAFETY: as for the buffer; the usage allows the layout.
    let made = unsafe { Vulkan::create_sleepable_image(manager, &info, layout, kind) };
    made.map(|one| cycle(&one, seed)).map_err(|error| (error.into(), format!("{info:?}")))
}

fn random_resources_sleep_as_the_layer_allows(rig: &Rig) {
    use ErrorKind::{ExceedsLimit, InvalidConfig, NoSuchHeap, OutOfDeviceMemory, Unsupported};
    let (mut random, rounds) = Random::new("sleepers");
    let manager = Manager::with_config(rig.open(), ManagerConfig::default().plain());
    let judge = Judge::over(manager.backend());
    let mut seen = [0; 3];
    for round in 0..rounds {
        let slept = sleep_one(&mut random, &manager, round);
        let said = judge.said();
        match slept {
            Ok(()) => {
                assert!(said.is_empty(), "round {round}: {}", said.join("\n"));
                seen[0] += 1;
            }
            // The description was wrong, and the driver never saw it.
            Err((_, what)) if !said.is_empty() => {
                assert!(said.iter().all(|text| text.contains("CreateInfo")), "{what}: {said:?}");
                seen[1] += 1;
            }
            Err((error, what)) => {
                let why = [ExceedsLimit, InvalidConfig, NoSuchHeap, OutOfDeviceMemory, Unsupported];
                assert!(why.contains(&error.kind()), "{what}: {error}");
                seen[2] += 1;
            }
        }
    }
    eprintln!("{} slept, {} were wrong, {} refused", seen[0], seen[1], seen[2]);
    assert!(seen.iter().all(|count| *count > rounds / 50), "all verdicts are seen: {seen:?}");
    manager.backend().wait_idle().unwrap();
    manager.retire().unwrap();
    assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (0, 0));
    drop(judge);
    rig.forgive();
}

/// Returns an offset or a size that is often near an end of `size` bytes, and sometimes nowhere near.
fn number(random: &mut Random, size: u64) -> u64 {
    let inside = random.below(size + 1);
    let odd = [0, 1, 4, size - 1, size, size + 1, u64::MAX - 3, u64::MAX, 1 << 63];
    let odd = random.pick(&odd);
    random.mostly(inside, &[odd])
}

fn lies_in(block: &Block, offset: u64, size: u64) -> bool {
    offset.checked_add(size).is_some_and(|end| end <= block.size())
}

/// Returns true if two ranges of `size` bytes share some.
fn meet(from: u64, to: u64, size: u64) -> bool {
    from.abs_diff(to) < size
}

fn random_transfers_are_judged_by_their_ranges(rig: &Rig) {
    let (mut random, rounds) = Random::new("transfers");
    let (vulkan, other) = (rig.open(), rig.open());
    let judge = Judge::over(&vulkan);
    let heap = crate::rig::first(&vulkan);
    let sizes = [1, 100, 4096, 300_000];
    let blocks: Vec<Block> = sizes.map(|size| vulkan.allocate(heap, size).unwrap()).into();
    let foreign = other.allocate(heap, 4096).unwrap();
    let gone = vulkan.as_timelines().unwrap().open().unwrap();
    let line = vulkan.as_timelines().unwrap().open().unwrap();
    vulkan.as_timelines().unwrap().close(gone).unwrap();
    let mut seen = [0; 2];
    for round in 0..10 * rounds {
        let all = [&blocks[0], &blocks[1], &blocks[2], &blocks[3]];
        let (from, to) = (random.pick(&all), random.pick(&all));
        let (from, to) = (random.mostly(from, &[from, from, &foreign]), random.mostly(to, &[to]));
        let on = random.pick(&[MAIN, line]);
        let on = random.mostly(on, &[on, on, on, gone, TimelineId::ALL, TimelineId(77)]);
        let (offset, size) = (number(&mut random, from.size()), number(&mut random, from.size()));
        let (place, target) = (at(from, offset), at(to, number(&mut random, to.size())));
        let calls = transfer(&vulkan);
        let step = Move { from: place, to: target, size };
        let short = usize::try_from(size.min(1 << 20)).unwrap();
        let (done, is_in) = match random.below(4) {
            0 => (calls.write(on, place, &vec![1; short]), lies_in(from, offset, short as u64)),
            1 => (calls.read(on, place, &mut vec![1; short]), lies_in(from, offset, short as u64)),
            2 => (calls.fill(on, place, size, 3), lies_in(from, offset, size)),
            _ => {
                let meets = ptr::eq(from, to) && meet(offset, target.offset, size);
                let is_in = lies_in(from, offset, size) && lies_in(to, target.offset, size);
                (calls.copy(on, &[step]), is_in && !meets)
            }
        };
        let what = (round, on, from, offset, to, target.offset, size);
        judge.is_silent(&what);
        let nothing = size == 0;
        let is_right = is_in && !ptr::eq(from, &raw const foreign) && [MAIN, line].contains(&on);
        assert!(done.is_ok() == is_right || nothing, "{what:?}: {done:?}");
        seen[usize::from(done.is_ok())] += 1;
    }
    assert!(seen.iter().all(|count| *count > rounds), "both verdicts are seen: {seen:?}");
}

fn random_launches_are_judged_by_the_limits(rig: &Rig) {
    let (mut random, rounds) = Random::new("launches");
    let manager = Manager::new(rig.open());
    let (vulkan, judge) = (manager.backend(), Judge::over(manager.backend()));
    let launch = vulkan.as_launch().expect("the case needs it");
    let program = launch.load(&SCALE, 0).unwrap();
    let blocks: Vec<Block> = blocks(&manager);
    let mut seen = [0; 2];
    for round in 0..rounds {
        let argument = |random: &mut Random| {
            let block = &blocks[usize::try_from(random.below(blocks.len() as u64)).unwrap()];
            let (fine, odd) =
                (256 * random.below(block.size() / 256), number(random, block.size()));
            let (offset, left) = (random.mostly(fine, &[odd]), block.size().saturating_sub(fine));
            let (size, odd) = (4 * (1 + random.below(left / 4)), number(random, block.size()));
            Argument { place: at(block, offset), size: random.mostly(size, &[odd]) }
        };
        let arguments = [argument(&mut random), argument(&mut random), argument(&mut random)];
        let count = usize::try_from(random.mostly(2, &[0, 1, 3])).unwrap();
        // No number is scaled, so nothing is written wherever the arguments are.
        let parameters = vec![0; usize::try_from(random.mostly(12, &[0, 4, 16])).unwrap()];
        let groups = [0; 3].map(|_| random.mostly(1, &[0, 2, u32::MAX]));
        let on = random.mostly(MAIN, &[MAIN, TimelineId::ALL, TimelineId(77)]);
        let arguments = &arguments[..count];
        // SAFETY: the kernel writes nothing for a count of zero.
        let sent = unsafe { launch.launch(on, program, groups, arguments, &parameters) };
        judge.is_silent(&(round, on, groups, arguments, &sent));
        seen[usize::from(sent.is_ok())] += 1;
    }
    vulkan.wait_idle().unwrap();
    judge.is_silent(&"the end");
    assert!(seen.iter().all(|count| *count > rounds / 20), "both verdicts are seen: {seen:?}");
    launch.unload(program).unwrap();
    drop(blocks);
}

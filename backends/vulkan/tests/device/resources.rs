//! An engine's own buffers and images.
#![expect(unsafe_code, reason = "creates and binds native objects, as an engine does")]
use crate::rig::{MAIN, Rig, first, free, read, write};
use omniheap_core::{Align, Backend, Class, ErrorKind, HeapKind, Limits, Manager, ManagerConfig};
use omniheap_vulkan::{Alone, Existing, Feature, Needs, Options, Resource, Vulkan, ash::vk};

crate::cases! {
    a_buffer_is_bound_where_it_was_put if |_| true;
    two_buffers_share_their_bytes if |_| true;
    buffer_and_memory_come_in_one_call if |_| true;
    small_resources_share_memory if |_| true;
    image_and_memory_come_in_one_call if |_| true;
    resources_count_against_the_budget if |_| true;
    dedicated_memory_serves_one_resource if |_| true;
    more_alignment_than_blocks_have_is_met_by_memory_of_its_own if |_| true;
    needs_without_an_answer_are_refused if |_| true;
    offsets_are_aligned_for_their_use if |_| true;
    a_borrowed_device_works_and_survives if |_| true;
    a_borrowed_device_is_asked_for_what_it_is_said_to_have if |vulkan| vulkan.has(Feature::ExternalMemoryFd);
}

fn info(size: u64) -> vk::BufferCreateInfo<'static> {
    use vk::BufferUsageFlags as U;
    vk::BufferCreateInfo::default().size(size).usage(U::TRANSFER_DST | U::TRANSFER_SRC)
}

fn buffer(vulkan: &Vulkan, size: u64) -> (vk::Buffer, Needs) {
    // SAFETY: a plain buffer.
    let buffer = unsafe { vulkan.ash_device().create_buffer(&info(size), None) }.unwrap();
    // SAFETY: created just above.
    let needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Device) }.unwrap();
    (buffer, needs)
}

fn destroy(vulkan: &Vulkan, buffer: vk::Buffer) {
    vulkan.wait_idle().unwrap();
    // SAFETY: created by this device, which is idle.
    unsafe { vulkan.ash_device().destroy_buffer(buffer, None) };
}

/// Fills an engine's buffer with an engine's own commands.
fn engine_fill(vulkan: &Vulkan, buffer: vk::Buffer, value: u32) {
    let device = vulkan.ash_device();
    let family = vulkan.with_queue(MAIN, |_, family| family).unwrap();
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    // SAFETY: the family is in use.
    let pool = unsafe { device.create_command_pool(&info, None) }.unwrap();
    let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    // SAFETY: the pool was just created.
    let commands = unsafe { device.allocate_command_buffers(&info) }.unwrap();
    let info = vk::CommandBufferBeginInfo::default();
    // SAFETY: fresh.
    unsafe { device.begin_command_buffer(commands[0], &info) }.unwrap();
    use vk::{AccessFlags as A, PipelineStageFlags as S};
    let before = [vk::MemoryBarrier::default()
        .src_access_mask(A::MEMORY_WRITE)
        .dst_access_mask(A::TRANSFER_WRITE)];
    let none = vk::DependencyFlags::empty();
    let (from, to) = (S::ALL_COMMANDS, S::TRANSFER);
    // SAFETY: recording.
    unsafe { device.cmd_pipeline_barrier(commands[0], from, to, none, &before, &[], &[]) };
    // SAFETY: recording; the buffer is bound.
    unsafe { device.cmd_fill_buffer(commands[0], buffer, 0, vk::WHOLE_SIZE, value) };
    // SAFETY: recording.
    unsafe { device.end_command_buffer(commands[0]) }.unwrap();
    let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
    let sent = vulkan.with_queue(MAIN, |queue, _| {
        // SAFETY: recorded above; the queue is held.
        unsafe { device.queue_submit(queue, &batch, vk::Fence::null()) }
    });
    sent.unwrap().unwrap();
    vulkan.wait_idle().unwrap();
    // SAFETY: the device is idle.
    unsafe { device.destroy_command_pool(pool, None) };
}

fn a_buffer_is_bound_where_it_was_put(rig: &Rig) {
    let vulkan = rig.open();
    let (buffer, needs) = buffer(&vulkan, 4096);
    let block = vulkan.allocate(needs.heaps[0], 1 << 20).unwrap();
    let offset = needs.layout.align.up(10_000).unwrap();
    write(&vulkan, &block, 0, &vec![0x11; 1 << 20]);
    // SAFETY: fresh, with its own needs.
    unsafe { vulkan.bind_buffer(buffer, &needs, &block, offset) }.unwrap();
    engine_fill(&vulkan, buffer, 0x2222_2222);
    let seen = read(&vulkan, &block, offset - 1, 4098);
    assert_eq!((seen[0], seen[1], seen[4096], seen[4097]), (0x11, 0x22, 0x22, 0x11));
    destroy(&vulkan, buffer);
    free(&vulkan, block).unwrap();
}

fn two_buffers_share_their_bytes(rig: &Rig) {
    let vulkan = rig.open();
    let ((a, needs), (b, more)) = (buffer(&vulkan, 4096), buffer(&vulkan, 8192));
    let block = vulkan.allocate(more.heaps[0], 65536).unwrap();
    // SAFETY: fresh, with its own needs.
    unsafe { vulkan.bind_buffer(a, &needs, &block, 0) }.unwrap();
    // SAFETY: as above.
    unsafe { vulkan.bind_buffer(b, &more, &block, 0) }.unwrap();
    engine_fill(&vulkan, b, 0x3333_3333);
    engine_fill(&vulkan, a, 0x4444_4444);
    let seen = read(&vulkan, &block, 0, 8192);
    assert_eq!((seen[0], seen[4095], seen[4096], seen[8191]), (0x44, 0x44, 0x33, 0x33));
    destroy(&vulkan, a);
    destroy(&vulkan, b);
}

fn buffer_and_memory_come_in_one_call(rig: &Rig) {
    let manager = Manager::new(rig.open());
    for kind in [HeapKind::Device, HeapKind::Staging, HeapKind::Unified] {
        // SAFETY: a plain buffer.
        let made = unsafe { Vulkan::create_buffer(&manager, &info(50_000), kind) }.unwrap();
        engine_fill(manager.backend(), made.handle(), 7);
        assert!(made.memory().size() >= 50_000);
        let host = manager.caps().heap(made.memory().heap()).unwrap().host;
        assert!(kind == HeapKind::Device || host.is_visible(), "{kind:?} is in {host:?}");
        // SAFETY: `engine_fill` waited.
        unsafe { made.destroy_now() };
    }
}

fn small_resources_share_memory(rig: &Rig) {
    let manager = Manager::with_config(rig.open(), ManagerConfig::default().plain());
    // SAFETY: a plain buffer.
    let make = || unsafe { Vulkan::create_buffer(&manager, &info(5000), HeapKind::Device) };
    let (one, two) = (make().unwrap(), make().unwrap());
    let place = |made: &Resource<vk::Buffer>| {
        let binding = made.memory().binding();
        (binding.block().memory(), binding.span().offset)
    };
    let (first, second) = (place(&one), place(&two));
    // SAFETY: alive.
    let needs = unsafe { manager.backend().buffer_needs(one.handle(), HeapKind::Device) }.unwrap();
    let shares = needs.alone == Alone::No;
    assert_eq!(first.0 == second.0, shares, "one block for both, unless the driver objects");
    assert!(!shares || first.1 != second.1);
    // The bytes of one are not those of the other.
    engine_fill(manager.backend(), one.handle(), 0x1111_1111);
    engine_fill(manager.backend(), two.handle(), 0x2222_2222);
    let mut bytes = [0; 4996];
    one.memory().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0x11; 4996]);
}

fn image_info(size: u32) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: size, height: size, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST)
}

fn image_and_memory_come_in_one_call(rig: &Rig) {
    let manager = Manager::new(rig.open());
    let vulkan = manager.backend();
    // SAFETY: every device samples this format.
    let made = unsafe { Vulkan::create_image(&manager, &image_info(64), HeapKind::Device) };
    assert!(made.unwrap().memory().size() >= 64 * 64 * 4);
    // SAFETY: as above.
    let image = unsafe { vulkan.ash_device().create_image(&image_info(64), None) }.unwrap();
    // SAFETY: created just above.
    let needs = unsafe { vulkan.image_needs(image, Class::Tiled, HeapKind::Device) }.unwrap();
    let block = vulkan.allocate(needs.heaps[0], 4 << 20).unwrap();
    let offset = needs.layout.align.up(1).unwrap();
    // SAFETY: fresh, with its own needs.
    unsafe { vulkan.bind_image(image, &needs, &block, offset) }.unwrap();
    // SAFETY: never used by the device.
    unsafe { vulkan.ash_device().destroy_image(image, None) };
}

fn dedicated_memory_serves_one_resource(rig: &Rig) {
    let manager = Manager::new(rig.open());
    let vulkan = manager.backend();
    let ((one, needs), (other, _)) = (buffer(vulkan, 4096), buffer(vulkan, 4096));
    // SAFETY: the needs are its own.
    let memory = unsafe { Vulkan::allocate_alone(&manager, one, &needs) }.unwrap();
    let binding = memory.binding();
    // SAFETY: refused before anything is bound.
    let refused = unsafe { vulkan.bind_buffer(other, &needs, binding.block(), 0) };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    // SAFETY: fresh, with its own needs.
    unsafe { vulkan.bind_buffer(one, &needs, binding.block(), 0) }.unwrap();
    engine_fill(vulkan, one, 1);
    destroy(vulkan, one);
    destroy(vulkan, other);
}

fn resources_count_against_the_budget(rig: &Rig) {
    let manager = Manager::new(rig.open());
    let heaps: Vec<_> = manager.caps().heap_ids().map(|(heap, _)| heap).collect();
    let held = || heaps.iter().map(|heap| manager.heap_use(*heap).unwrap().reserved).sum::<u64>();
    // SAFETY: a plain buffer.
    let make = |size| unsafe { Vulkan::create_buffer(&manager, &info(size), HeapKind::Device) };
    let made = make(1 << 20).unwrap();
    assert!(held() >= made.memory().size(), "the manager knows of it");
    heaps.iter().for_each(|heap| manager.set_budget(*heap, Limits::hard(2 << 20)).unwrap());
    assert_eq!(make(4 << 20).unwrap_err().kind(), ErrorKind::OverBudget);
    assert_eq!(manager.totals().live, 1, "a refused one leaves nothing");
    drop(made);
    assert_eq!(manager.totals().live, 0);
    manager.trim().unwrap();
    assert_eq!(held(), 0);
}

/// A driver may ask for more than blocks are known to have: for images with large pages, say.
fn more_alignment_than_blocks_have_is_met_by_memory_of_its_own(rig: &Rig) {
    let manager = Manager::with_config(rig.open(), ManagerConfig::default().plain());
    let vulkan = manager.backend();
    for alone in [Alone::No, Alone::Preferred, Alone::Required] {
        let (buffer, mut needs) = buffer(vulkan, 5000);
        (needs.layout.align, needs.alone) = (Align::of(1 << 20), alone);
        // SAFETY: the buffer's own needs, but that they are stricter.
        let memory = unsafe { Vulkan::allocate_for(&manager, buffer, &needs) }.unwrap();
        let binding = memory.binding();
        // SAFETY: fresh, with its own needs; the memory outlives it.
        unsafe { vulkan.bind_buffer(buffer, &needs, binding.block(), binding.span().offset) }
            .unwrap();
        drop(binding);
        destroy(vulkan, buffer);
    }
    assert_eq!(manager.totals().live, 0);
}

fn needs_without_an_answer_are_refused(rig: &Rig) {
    let vulkan = rig.open();
    let asked = |size, alignment, memory_type_bits| {
        let asked = vk::MemoryRequirements { size, alignment, memory_type_bits };
        vulkan.needs(asked, Alone::No, Class::Linear, HeapKind::Device)
    };
    let refused = |size, align, bits| asked(size, align, bits).unwrap_err().kind();
    assert_eq!(refused(4096, 0, !0), ErrorKind::InvalidAlignment);
    assert_eq!(refused(4096, 48, !0), ErrorKind::InvalidAlignment);
    assert_eq!(refused(0, 16, !0), ErrorKind::ZeroSize);
    assert_eq!(refused(4096, 16, 0), ErrorKind::NoSuchHeap);
    assert_eq!(refused(u64::MAX, 16, !0), ErrorKind::ExceedsLimit);
    let (buffer, needs) = buffer(&vulkan, 4096);
    let block = vulkan.allocate(needs.heaps[0], 65536).unwrap();
    // SAFETY: refused before anything is bound, each for the reason asserted.
    let bind = |offset| unsafe { vulkan.bind_buffer(buffer, &needs, &block, offset) };
    let far = needs.layout.align.down(u64::MAX);
    assert_eq!(bind(1).unwrap_err().kind(), ErrorKind::Misaligned);
    assert_eq!(bind(far).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(bind(65536).unwrap_err().kind(), ErrorKind::OutOfRange);
    let stranger = rig.open();
    // SAFETY: refused before anything is bound.
    let foreign = unsafe { stranger.bind_buffer(buffer, &needs, &block, 0) };
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::Foreign);
    destroy(&vulkan, buffer);
}

fn offsets_are_aligned_for_their_use(rig: &Rig) {
    use vk::BufferUsageFlags as U;
    let vulkan = rig.open();
    assert_eq!(vulkan.offset_align(U::VERTEX_BUFFER), Align::ONE);
    let constant = vulkan.caps().constant.unwrap().align;
    assert_eq!(vulkan.offset_align(U::UNIFORM_BUFFER), constant);
    // SAFETY: the physical device is the instance's.
    let limits =
        unsafe { vulkan.ash_instance().get_physical_device_properties(vulkan.physical_device()) }
            .limits;
    let (storage, texel) =
        (limits.min_storage_buffer_offset_alignment, limits.min_texel_buffer_offset_alignment);
    assert_eq!(vulkan.offset_align(U::STORAGE_BUFFER).get(), storage);
    for usage in [U::UNIFORM_TEXEL_BUFFER, U::STORAGE_TEXEL_BUFFER] {
        assert_eq!(vulkan.offset_align(usage).get(), texel);
    }
    let all = U::UNIFORM_BUFFER | U::STORAGE_BUFFER | U::STORAGE_TEXEL_BUFFER;
    assert_eq!(vulkan.offset_align(all).get(), constant.get().max(storage).max(texel));
    // The specification's number, and those of extensions that the device may lack.
    assert_eq!(vulkan.offset_align(U::ACCELERATION_STRUCTURE_STORAGE_KHR).get(), 256);
    let descriptors = vulkan.offset_align(U::RESOURCE_DESCRIPTOR_BUFFER_EXT);
    assert_eq!(descriptors, vulkan.offset_align(U::SAMPLER_DESCRIPTOR_BUFFER_EXT));
}

fn a_borrowed_device_works_and_survives(rig: &Rig) {
    let owner = rig.open();
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let all = [
        Feature::TimelineSemaphore,
        Feature::BufferDeviceAddress,
        Feature::SparseBuffers,
        Feature::MemoryBudget,
        Feature::MemoryPriority,
        Feature::ExternalMemoryFd,
        Feature::DebugUtils,
    ];
    let enabled: Vec<_> = all.into_iter().filter(|feature| owner.has(*feature)).collect();
    let existing = |queues| Existing {
        entry: owner.ash_entry().cloned().unwrap(),
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: owner.ash_device().clone(),
        queues,
        enabled: &enabled,
    };
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile.
    let none = unsafe { Vulkan::wrap(existing(&[]), Options::default()) };
    assert_eq!(none.unwrap_err().kind(), ErrorKind::InvalidConfig);
    let queues = [(family, queue)];
    // SAFETY: as above.
    let guest = unsafe { Vulkan::wrap(existing(&queues), rig.options) }.unwrap();
    let block = guest.allocate(first(&guest), 10_000).unwrap();
    write(&guest, &block, 3, b"guest");
    assert_eq!(read(&guest, &block, 3, 5), b"guest");
    drop(guest);
    drop(block);
    let block = owner.allocate(first(&owner), 64).unwrap();
    write(&owner, &block, 0, b"still here");
    assert_eq!(read(&owner, &block, 0, 10), b"still here");
}

fn a_borrowed_device_is_asked_for_what_it_is_said_to_have(rig: &Rig) {
    let owner = rig.open();
    let (instance, family) = (owner.ash_instance(), owner.families()[0]);
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    // SAFETY: the physical device is the instance's; nothing is enabled.
    let device = unsafe { instance.create_device(owner.physical_device(), &info, None) }.unwrap();
    // SAFETY: the device was created with one queue of this family.
    let queues = [(family, unsafe { device.get_device_queue(family, 0) })];
    let wrap = |enabled: &[Feature]| {
        let existing = Existing {
            entry: owner.ash_entry().cloned().unwrap(),
            instance: instance.clone(),
            physical_device: owner.physical_device(),
            device: device.clone(),
            queues: &queues,
            enabled,
        };
        // SAFETY: the handles belong together. What is said to be enabled is not: that is refused, or never used.
        unsafe { Vulkan::wrap(existing, Options::default()) }
    };
    let refused = |feature| wrap(&[feature]).map(drop).unwrap_err().kind();
    assert_eq!(refused(Feature::ExternalMemoryFd), ErrorKind::InvalidConfig, "not enabled");
    if !owner.has(Feature::DeviceCoherentMemory) {
        assert_eq!(refused(Feature::DeviceCoherentMemory), ErrorKind::InvalidConfig, "not there");
    }
    drop(wrap(&[]).expect("a plain device is enough"));
    // SAFETY: nothing was made that is not gone.
    unsafe { device.destroy_device(None) };
}

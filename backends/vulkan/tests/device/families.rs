//! An engine's exclusive resources on every family: written on one, read on another.
#![expect(unsafe_code, reason = "records commands of its own, as an engine does")]
use crate::rig::{MAIN, Rig, pattern};
use omniheap_core::{ErrorKind, HeapKind, Manager, TimelineId, Timelines as _};
use omniheap_vulkan::{Exclusive, Resource, Vulkan, ash::vk};

crate::cases! {
    an_exclusive_buffer_crosses_families if |_| true;
    an_exclusive_image_crosses_families if |_| true;
    nothing_crosses_to_a_timeline_that_is_gone if |_| true;
}

/// Runs commands on a timeline and keeps them until the device is idle.
fn submit(vulkan: &Vulkan, on: TimelineId, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) {
    let device = vulkan.ash_device();
    let family = vulkan.with_queue(on, |_, family| family).unwrap();
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    // SAFETY: the family is in use.
    let pool = unsafe { device.create_command_pool(&info, None) }.unwrap();
    let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    // SAFETY: the pool was just created.
    let commands = unsafe { device.allocate_command_buffers(&info) }.unwrap();
    // SAFETY: fresh.
    unsafe { device.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default()) }
        .unwrap();
    record(device, commands[0]);
    // SAFETY: recording.
    unsafe { device.end_command_buffer(commands[0]) }.unwrap();
    let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
    let sent = vulkan.with_queue(on, |queue, _| {
        // SAFETY: recorded above; the queue is held.
        unsafe { device.queue_submit(queue, &batch, vk::Fence::null()) }
    });
    sent.unwrap().unwrap();
    let epoch = vulkan.mark(on).unwrap();
    vulkan.wait(omniheap_core::Point { timeline: on, epoch }).unwrap();
    // SAFETY: the timeline has passed it.
    unsafe { device.destroy_command_pool(pool, None) };
}

/// Makes earlier writes on the queue visible to copies.
fn barrier(device: &ash::Device, commands: vk::CommandBuffer) {
    use vk::{AccessFlags as A, PipelineStageFlags as S};
    let memory = [vk::MemoryBarrier::default()
        .src_access_mask(A::MEMORY_WRITE)
        .dst_access_mask(A::TRANSFER_READ | A::TRANSFER_WRITE | A::HOST_READ)];
    let (all, none) = (S::ALL_COMMANDS, vk::DependencyFlags::empty());
    // SAFETY: recording.
    unsafe { device.cmd_pipeline_barrier(commands, all, all | S::HOST, none, &memory, &[], &[]) };
}

fn buffer(manager: &Manager<Vulkan>, size: u64, kind: HeapKind) -> Resource<vk::Buffer> {
    use vk::BufferUsageFlags as U;
    let info = vk::BufferCreateInfo::default().size(size).usage(U::TRANSFER_SRC | U::TRANSFER_DST);
    // SAFETY: a plain buffer.
    unsafe { Vulkan::create_buffer(manager, &info, kind) }.unwrap()
}

/// Returns every pair of families, as timelines.
fn pairs(vulkan: &Vulkan) -> Vec<(TimelineId, TimelineId)> {
    let open = |family: &u32| vulkan.open_timeline_on(*family).unwrap();
    let lines: Vec<_> = vulkan.families().iter().map(open).collect();
    lines.iter().flat_map(|a| lines.iter().map(|b| (*a, *b))).collect()
}

/// Returns the bytes of a host-visible resource.
fn seen(of: &Resource<vk::Buffer>, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    of.memory().map().unwrap().read(0, &mut bytes).unwrap();
    bytes
}

fn an_exclusive_buffer_crosses_families(rig: &Rig) {
    let manager = Manager::new(rig.open());
    let vulkan = manager.backend();
    for (value, (here, there)) in (1u32..).zip(pairs(vulkan)) {
        let own = buffer(&manager, 4096, HeapKind::Device);
        let back = buffer(&manager, 4096, HeapKind::Staging);
        submit(vulkan, here, |device, commands| {
            // SAFETY: recording; the buffer is bound.
            unsafe { device.cmd_fill_buffer(commands, own.handle(), 0, 4096, value) };
        });
        let one = [Exclusive::Buffer(own.handle())];
        // SAFETY: exclusive, last used on `here`, and alive to the end of this turn.
        unsafe { vulkan.change_family(&one, here, there) }.unwrap();
        submit(vulkan, there, |device, commands| {
            let all = [vk::BufferCopy { src_offset: 0, dst_offset: 0, size: 4096 }];
            // SAFETY: recording; both are bound and that long.
            unsafe { device.cmd_copy_buffer(commands, own.handle(), back.handle(), &all) };
            barrier(device, commands);
        });
        let words = value.to_ne_bytes().repeat(1024);
        assert_eq!(seen(&back, 4096), words, "{here:?} to {there:?}");
    }
}

fn an_exclusive_image_crosses_families(rig: &Rig) {
    let manager = Manager::new(rig.open());
    let vulkan = manager.backend();
    let bytes = pattern(9, 64 * 64 * 4);
    for (here, there) in pairs(vulkan) {
        let from = buffer(&manager, bytes.len() as u64, HeapKind::Staging);
        let back = buffer(&manager, bytes.len() as u64, HeapKind::Staging);
        from.memory().map().unwrap().write(0, &bytes).unwrap();
        let image = image(&manager);
        use vk::ImageLayout as L;
        let whole = |from, to| {
            let range = vk::ImageSubresourceRange {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                level_count: 1,
                layer_count: 1,
                ..Default::default()
            };
            [Exclusive::Image { image: image.handle(), range, from, to }]
        };
        // SAFETY: fresh, so no family owns it yet.
        unsafe { vulkan.change_family(&whole(L::UNDEFINED, L::TRANSFER_DST_OPTIMAL), here, here) }
            .unwrap();
        submit(vulkan, here, |device, commands| {
            let (image, to) = (image.handle(), L::TRANSFER_DST_OPTIMAL);
            // SAFETY: recording; the layout is the one it was brought to.
            unsafe {
                device.cmd_copy_buffer_to_image(commands, from.handle(), image, to, &[region()]);
            }
        });
        let step = whole(L::TRANSFER_DST_OPTIMAL, L::TRANSFER_SRC_OPTIMAL);
        // SAFETY: exclusive, last used on `here`, and alive to the end of this turn.
        unsafe { vulkan.change_family(&step, here, there) }.unwrap();
        submit(vulkan, there, |device, commands| {
            let (image, from) = (image.handle(), L::TRANSFER_SRC_OPTIMAL);
            // SAFETY: recording; the layout is the one it was brought to.
            unsafe {
                device.cmd_copy_image_to_buffer(commands, image, from, back.handle(), &[region()]);
            }
            barrier(device, commands);
        });
        assert!(seen(&back, bytes.len()) == bytes, "{here:?} to {there:?}");
    }
}

fn image(manager: &Manager<Vulkan>) -> Resource<vk::Image> {
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: 64, height: 64, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: a plain image.
    unsafe { Vulkan::create_image(manager, &info, HeapKind::Device) }.unwrap()
}

fn region() -> vk::BufferImageCopy {
    vk::BufferImageCopy {
        image_subresource: vk::ImageSubresourceLayers {
            aspect_mask: vk::ImageAspectFlags::COLOR,
            layer_count: 1,
            ..Default::default()
        },
        image_extent: vk::Extent3D { width: 64, height: 64, depth: 1 },
        ..Default::default()
    }
}

fn nothing_crosses_to_a_timeline_that_is_gone(rig: &Rig) {
    let vulkan = rig.open();
    let before = vulkan.mark(MAIN).unwrap();
    // SAFETY: no resource is named.
    let refused = unsafe { vulkan.change_family(&[], MAIN, TimelineId(77)) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSuchTimeline);
    // SAFETY: as above.
    unsafe { vulkan.change_family(&[], MAIN, MAIN) }.unwrap();
    assert_eq!(vulkan.mark(MAIN).unwrap(), before, "nothing was submitted");
}

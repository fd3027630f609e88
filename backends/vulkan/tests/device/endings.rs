//! Every order of dropping, with work still under way.
use crate::rig::{MAIN, Rig, at, first, pattern, transfer, write};
use omniheap_core::{AnyBlock, Backend, BlockOffset, HeapKind, Manager, erase};
use omniheap_vulkan::{Vulkan, ash::vk};

crate::cases! {
    a_block_outlives_its_backend if |_| true;
    a_block_is_dropped_while_the_device_uses_it if |_| true;
    a_backend_is_dropped_with_timelines_busy if |_| true;
    a_resource_outlives_its_backend if |_| true;
    pages_and_reservations_outlive_their_backend if |v| v.as_remap().is_some();
    an_erased_backend_behaves_the_same if |_| true;
    many_devices_open_and_close if |_| true;
}

fn busy(vulkan: &Vulkan) -> omniheap_vulkan::Block {
    let block = vulkan.allocate(first(vulkan), 4 << 20).unwrap();
    write(vulkan, &block, 0, &pattern(1, 1 << 20));
    transfer(vulkan).fill(MAIN, at(&block, 1 << 20), 3 << 20, 9).unwrap();
    block
}

fn a_block_outlives_its_backend(rig: &Rig) {
    let vulkan = rig.open();
    let blocks = [busy(&vulkan), busy(&vulkan)];
    drop(vulkan);
    drop(blocks);
}

fn a_block_is_dropped_while_the_device_uses_it(rig: &Rig) {
    let vulkan = rig.open();
    for _ in 0..10 {
        drop(busy(&vulkan));
    }
}

fn a_backend_is_dropped_with_timelines_busy(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let block = busy(&vulkan);
    for _ in 0..3 {
        let line = times.open().unwrap();
        let epoch = times.mark(MAIN).unwrap();
        times.order(line, omniheap_core::Point { timeline: MAIN, epoch }).unwrap();
        transfer(&vulkan).fill(line, at(&block, 0), 1 << 20, 3).unwrap();
        let epoch = times.mark(line).unwrap();
        times.order(MAIN, omniheap_core::Point { timeline: line, epoch }).unwrap();
        transfer(&vulkan).fill(MAIN, at(&block, 0), 1 << 20, 4).unwrap();
    }
    drop(vulkan);
    drop(block);
}

#[expect(unsafe_code, reason = "creates native objects, as an engine does")]
fn a_resource_outlives_its_backend(rig: &Rig) {
    let manager = Manager::new(rig.open());
    let info =
        vk::BufferCreateInfo::default().size(4096).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: a plain buffer.
    let made = unsafe { Vulkan::create_buffer(&manager, &info, HeapKind::Device) }.unwrap();
    drop(manager);
    drop(made);
}

#[expect(unsafe_code, reason = "Remap's verbs are unsafe")]
fn pages_and_reservations_outlive_their_backend(rig: &Rig) {
    let vulkan = rig.open();
    let remap = vulkan.as_remap().expect("the case needs it");
    let heap = vulkan.caps().heap_ids().find_map(|(id, h)| Some((id, h.page?.get())));
    let (heap, page) = heap.expect("the case needs one");
    let block = remap.reserve(heap, 2 * page).unwrap();
    let mut pages = Vec::new();
    remap.create(heap, 2, &mut pages).unwrap();
    // SAFETY: fresh pages at free positions.
    unsafe { remap.map_pages(&block, 0, &pages) }.unwrap();
    transfer(&vulkan).fill(MAIN, at(&block, 0), 2 * page, 1).unwrap();
    drop(vulkan);
    drop(block);
}

fn an_erased_backend_behaves_the_same(rig: &Rig) {
    let erased = erase(rig.open());
    let (heap, _) = erased.caps().heap_ids().next().unwrap();
    let block: AnyBlock = erased.allocate(heap, 4096).unwrap();
    let transfer = erased.as_transfer().expect("always");
    transfer.write(MAIN, BlockOffset { block: &block, offset: 1 }, b"erased").unwrap();
    let mut bytes = [0; 6];
    transfer.read(MAIN, BlockOffset { block: &block, offset: 1 }, &mut bytes).unwrap();
    assert_eq!(&bytes, b"erased");
    drop(erased);
    drop(block);
}

fn many_devices_open_and_close(rig: &Rig) {
    for _ in 0..5 {
        let (a, b) = (rig.open(), rig.open());
        let block = busy(&a);
        drop((b, a));
        drop(block);
    }
}

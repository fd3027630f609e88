//! Pages: mapped, moved, refused.
#![expect(unsafe_code, reason = "Remap's verbs are unsafe")]
use crate::rig::{MAIN, Rig, at, first, free, pattern, read, transfer, write};
use omniheap_core::{Backend, ErrorKind, HeapId, Page, Remap};
use omniheap_vulkan::{Block, Vulkan};

crate::cases! {
    bytes_survive_remapping if has;
    pages_come_all_or_none if has;
    half_mapped_blocks_are_half_usable if has;
    positions_are_checked if has;
    reservations_are_checked if has;
    many_pages_need_few_blocks if has;
    scattered_pages_land_where_they_should if has;
    destroyed_pages_are_unknown if has;
}

fn has(vulkan: &Vulkan) -> bool {
    vulkan.as_remap().is_some()
}

fn paged(vulkan: &Vulkan) -> (HeapId, u64) {
    let heap = vulkan.caps().heap_ids().find_map(|(id, h)| Some((id, h.page?.get())));
    heap.expect("the case needs one")
}

fn remap(vulkan: &Vulkan) -> &dyn Remap<Block = Block> {
    vulkan.as_remap().expect("the case needs it")
}

fn create(vulkan: &Vulkan, heap: HeapId, count: u64) -> Vec<Page> {
    let mut pages = Vec::new();
    remap(vulkan).create(heap, count, &mut pages).expect("a few pages fit");
    assert_eq!(pages.len() as u64, count);
    pages
}

fn map(vulkan: &Vulkan, block: &Block, first: u64, pages: &[Page]) {
    // SAFETY: block and pages come from this device, and none is mapped.
    unsafe { remap(vulkan).map_pages(block, first, pages) }.expect("free positions");
}

fn unmap(vulkan: &Vulkan, block: &Block, first: u64, count: u64) {
    vulkan.wait_idle().unwrap();
    // SAFETY: the device is idle.
    unsafe { remap(vulkan).unmap_pages(block, first, count) }.expect("mapped positions");
}

fn destroy(vulkan: &Vulkan, heap: HeapId, pages: &[Page]) {
    // SAFETY: of this heap, and unmapped by the caller.
    unsafe { remap(vulkan).destroy(heap, pages) }.expect("known pages");
}

fn bytes_survive_remapping(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let (a, b) = (remap(&vulkan).reserve(heap, 4 * page), remap(&vulkan).reserve(heap, 4 * page));
    let (a, b) = (a.unwrap(), b.unwrap());
    let pages = create(&vulkan, heap, 4);
    map(&vulkan, &a, 0, &pages);
    let len = usize::try_from(page).unwrap();
    let contents: Vec<_> = (0..4).map(|n| pattern(n, len)).collect();
    for (n, bytes) in (0u64..).zip(&contents) {
        write(&vulkan, &a, n * page, bytes);
    }
    unmap(&vulkan, &a, 0, 4);
    let turned: Vec<_> = pages.iter().rev().copied().collect();
    map(&vulkan, &b, 0, &turned);
    for (n, bytes) in (0u64..).zip(contents.iter().rev()) {
        assert!(read(&vulkan, &b, n * page, len) == *bytes, "page {n}");
    }
    unmap(&vulkan, &b, 0, 4);
    destroy(&vulkan, heap, &pages);
    free(&vulkan, a).unwrap();
    free(&vulkan, b).unwrap();
}

fn pages_come_all_or_none(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let mut pages = create(&vulkan, heap, 2);
    let all = vulkan.caps().heap(heap).unwrap().size / page;
    for count in [all + 1, u64::MAX] {
        let refused = remap(&vulkan).create(heap, count, &mut pages).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfDeviceMemory);
        assert_eq!(pages.len(), 2, "nothing was appended");
    }
    remap(&vulkan).create(heap, 0, &mut pages).unwrap();
    assert_eq!(pages.len(), 2);
    destroy(&vulkan, heap, &pages);
}

fn half_mapped_blocks_are_half_usable(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let block = remap(&vulkan).reserve(heap, 3 * page).unwrap();
    let pages = create(&vulkan, heap, 1);
    map(&vulkan, &block, 1, &pages);
    write(&vulkan, &block, page, b"here");
    assert_eq!(read(&vulkan, &block, page, 4), b"here");
    for offset in [0, page - 1, 2 * page - 1, 2 * page] {
        let refused = transfer(&vulkan).write(MAIN, at(&block, offset), b"ab").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfRange, "{offset}");
    }
    let refused = vulkan.as_map().expect("always").map(&block).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotMappable);
    unmap(&vulkan, &block, 1, 1);
    destroy(&vulkan, heap, &pages);
}

fn positions_are_checked(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let block = remap(&vulkan).reserve(heap, 2 * page).unwrap();
    let pages = create(&vulkan, heap, 2);
    map(&vulkan, &block, 0, &pages[..1]);
    let remap = remap(&vulkan);
    let kind = |result: omniheap_core::Result<()>| result.unwrap_err().kind();
    // SAFETY: refused before anything is bound, each for the reason asserted.
    let busy = unsafe { remap.map_pages(&block, 0, &pages[1..]) };
    assert_eq!(kind(busy), ErrorKind::Busy);
    // SAFETY: as above.
    let past = unsafe { remap.map_pages(&block, 2, &pages[1..]) };
    assert_eq!(kind(past), ErrorKind::OutOfRange);
    // SAFETY: as above.
    let wrapped = unsafe { remap.map_pages(&block, u64::MAX, &pages[1..]) };
    assert_eq!(kind(wrapped), ErrorKind::OutOfRange);
    // SAFETY: as above.
    let unmapped = unsafe { remap.unmap_pages(&block, 0, 2) };
    assert_eq!(kind(unmapped), ErrorKind::OutOfRange);
    let plain = vulkan.allocate(first(&vulkan), page).unwrap();
    // SAFETY: as above.
    let plain = unsafe { remap.map_pages(&plain, 0, &pages[1..]) };
    assert_eq!(kind(plain), ErrorKind::Unsupported);
    unmap(&vulkan, &block, 0, 1);
    destroy(&vulkan, heap, &pages);
}

fn reservations_are_checked(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let refused = |heap, size| remap(&vulkan).reserve(heap, size).unwrap_err().kind();
    assert_eq!(refused(heap, 0), ErrorKind::ZeroSize);
    assert_eq!(refused(heap, page + 1), ErrorKind::Misaligned);
    assert_eq!(refused(heap, 1 << 63), ErrorKind::ExceedsLimit);
    assert_eq!(refused(HeapId(99), page), ErrorKind::NoSuchHeap);
    let plain = vulkan.caps().heap_ids().find(|(_, heap)| heap.page.is_none());
    if let Some((plain, _)) = plain {
        assert_eq!(refused(plain, page), ErrorKind::Unsupported);
    }
}

fn many_pages_need_few_blocks(rig: &Rig) {
    let heap_pages = |vulkan: &Vulkan| {
        let (heap, page) = paged(vulkan);
        vulkan.caps().heap(heap).unwrap().size / page
    };
    // So few that one block for each page would not do.
    let limit = heap_pages(&rig.open()) / 5;
    let vulkan = rig.open_with(rig.options.max_blocks(limit));
    let (heap, _) = paged(&vulkan);
    let mut pages = Vec::new();
    for _ in 0..200 {
        remap(&vulkan).create(heap, 1, &mut pages).unwrap();
    }
    let mut blocks: Vec<_> = pages.iter().map(|page| page.0 >> 24).collect();
    blocks.dedup();
    assert!(blocks.len() <= 10, "20 pages or more in each block, not {}", blocks.len());
    let mut sorted: Vec<_> = pages.iter().map(|page| page.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 200, "no page twice");
    destroy(&vulkan, heap, &pages[..150]);
    let again = create(&vulkan, heap, 150);
    assert!(again.iter().all(|page| !pages[150..].contains(page)), "no live page twice");
    destroy(&vulkan, heap, &pages[150..]);
    destroy(&vulkan, heap, &again);
}

fn scattered_pages_land_where_they_should(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let block = remap(&vulkan).reserve(heap, 64 * page).unwrap();
    let pages = create(&vulkan, heap, 64);
    let scattered: Vec<_> = (0..64).map(|n| pages[(n * 13) % 64]).collect();
    map(&vulkan, &block, 0, &scattered);
    for n in 0u64..64 {
        write(&vulkan, &block, n * page + 17, &n.to_le_bytes());
    }
    unmap(&vulkan, &block, 0, 64);
    map(&vulkan, &block, 0, &pages);
    for n in 0u64..64 {
        let place = (n * 13) % 64;
        let seen = read(&vulkan, &block, place * page + 17, 8);
        assert_eq!(seen, n.to_le_bytes(), "page {n}");
    }
    unmap(&vulkan, &block, 0, 64);
    destroy(&vulkan, heap, &pages);
}

fn destroyed_pages_are_unknown(rig: &Rig) {
    let vulkan = rig.open();
    let (heap, page) = paged(&vulkan);
    let block = remap(&vulkan).reserve(heap, page).unwrap();
    let pages = create(&vulkan, heap, 1);
    destroy(&vulkan, heap, &pages);
    // SAFETY: refused before anything is bound.
    let stale = unsafe { remap(&vulkan).map_pages(&block, 0, &pages) };
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::Stale);
    // SAFETY: refused; the page is gone already.
    let twice = unsafe { remap(&vulkan).destroy(heap, &pages) };
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Stale);
}

//! Pages: reserve, create, map, unmap.
#![expect(unsafe_code, reason = "maps and unmaps pages")]
use super::support::{DEVICE, MAIN, allocate, assert_same, at, free, kind, pattern, read, write};
use crate::own::{Block, Device, Memory};
use omniheap_core::{Backend, DriverBudget, ErrorKind, HeapId, Page, Remap, Transfer};

cases! {
    Pages: contents_survive_being_mapped_elsewhere, every_position_has_its_page,
        a_page_that_is_none_is_refused, mapped_positions_are_busy, unmapped_bytes_are_refused,
        wrong_reservations_are_refused, a_mapped_reservation_is_not_freed,
        destroyed_pages_give_their_memory_back, a_reservation_grows_at_its_tail,
        reservations_are_aligned, reservations_cost_no_memory;
}

fn page_size(device: &Device) -> u64 {
    device.caps().heaps[0].page.expect("the case needs pages").get()
}

fn create(device: &Device, count: u64) -> Vec<Page> {
    let mut pages = Vec::new();
    device.create(DEVICE, count, &mut pages).expect("a few pages fit");
    assert_eq!(pages.len() as u64, count);
    pages
}

fn reserve(device: &Device, count: u64) -> Block {
    let block = device.reserve(DEVICE, count * page_size(device)).expect("addresses are plenty");
    assert_eq!(block.memory(), Memory::Reserved);
    block
}

fn map(device: &Device, block: &Block, first: u64, pages: &[Page]) {
    // SAFETY: block and pages are this case's own, and the pages are not mapped.
    unsafe { device.map_pages(block, first, pages) }.expect("free positions");
}

fn unmap(device: &Device, block: &Block, first: u64, count: u64) {
    device.wait_idle().expect("the device works");
    // SAFETY: the device is idle.
    unsafe { device.unmap_pages(block, first, count) }.expect("mapped positions");
}

fn destroy(device: &Device, pages: &[Page]) {
    // SAFETY: the pages are this case's own, and not mapped.
    unsafe { device.destroy(DEVICE, pages) }.expect("the driver takes them back");
}

fn contents_survive_being_mapped_elsewhere(device: &Device) {
    let (page, first, second) = (page_size(device), reserve(device, 4), reserve(device, 4));
    let pages = create(device, 2);
    map(device, &first, 0, &pages);
    let bytes = pattern(usize::try_from(2 * page).expect("small"), 1);
    write(device, &first, 0, &bytes);
    unmap(device, &first, 0, 2);
    map(device, &second, 1, &pages);
    assert_same(&read(device, &second, page, bytes.len()), &bytes, "mapped elsewhere");
    unmap(device, &second, 1, 2);
    destroy(device, &pages);
    free(device, first);
    free(device, second);
}

fn every_position_has_its_page(device: &Device) {
    let (page, block) = (page_size(device), reserve(device, 8));
    let pages = create(device, 8);
    // One by one, so that page `n` holds `n` whatever a run does.
    for (value, single) in (0..8u8).zip(pages.chunks(1)) {
        map(device, &block, 0, single);
        device.fill(MAIN, at(&block, 0), page, value).expect("mapped");
        unmap(device, &block, 0, 1);
    }
    map(device, &block, 0, &pages[6..]);
    map(device, &block, 2, &pages[..6]);
    for (position, value) in (0..8u64).zip([6, 7, 0, 1, 2, 3, 4, 5]) {
        assert_eq!(read(device, &block, position * page + page - 4, 4), [value; 4], "{position}");
    }
    // In the middle, one call for several mappings, and the rest stays.
    unmap(device, &block, 2, 3);
    assert_eq!(read(device, &block, page, 1), [7]);
    assert_eq!(read(device, &block, 5 * page, 1), [3]);
    unmap(device, &block, 0, 2);
    unmap(device, &block, 5, 3);
    destroy(device, &pages);
    free(device, block);
}

fn a_page_that_is_none_is_refused(device: &Device) {
    let (block, pages) = (reserve(device, 4), create(device, 2));
    let broken = [pages[0], pages[1], Page(0)];
    // SAFETY: the third page is none, which is refused; the others are free.
    let result = unsafe { device.map_pages(&block, 0, &broken) };
    assert!(result.is_err(), "no page has the number zero");
    let refused = device.fill(MAIN, at(&block, 0), 1, 0);
    assert_eq!(kind(refused), Some(ErrorKind::OutOfRange), "nothing stayed mapped");
    map(device, &block, 0, &pages);
    device.fill(MAIN, at(&block, 0), 2 * page_size(device), 3).expect("mapped");
    assert_eq!(read(device, &block, page_size(device), 1), [3]);
    unmap(device, &block, 0, 2);
    destroy(device, &pages);
    free(device, block);
}

fn mapped_positions_are_busy(device: &Device) {
    let (block, pages) = (reserve(device, 3), create(device, 3));
    map(device, &block, 1, &pages[..1]);
    // SAFETY: the pages are free; the call is refused.
    let busy = unsafe { device.map_pages(&block, 0, &pages[1..]) };
    assert_eq!(kind(busy), Some(ErrorKind::Busy));
    // SAFETY: as above.
    let outside = unsafe { device.map_pages(&block, 2, &pages[1..]) };
    assert_eq!(kind(outside), Some(ErrorKind::OutOfRange));
    // SAFETY: nothing uses the positions; the call is refused.
    let unmapped = unsafe { device.unmap_pages(&block, 0, 2) };
    assert_eq!(kind(unmapped), Some(ErrorKind::OutOfRange));
    unmap(device, &block, 1, 1);
    destroy(device, &pages);
    free(device, block);
}

fn unmapped_bytes_are_refused(device: &Device) {
    let (page, block, pages) = (page_size(device), reserve(device, 2), create(device, 1));
    let refused = Some(ErrorKind::OutOfRange);
    assert_eq!(kind(device.write(MAIN, at(&block, 0), &[1])), refused);
    map(device, &block, 0, &pages);
    assert_eq!(device.write(MAIN, at(&block, page - 1), &[1]), Ok(()));
    assert_eq!(kind(device.write(MAIN, at(&block, page - 1), &[1, 2])), refused);
    assert_eq!(kind(device.fill(MAIN, at(&block, 0), 2 * page, 1)), refused);
    unmap(device, &block, 0, 1);
    destroy(device, &pages);
    free(device, block);
}

fn wrong_reservations_are_refused(device: &Device) {
    let page = page_size(device);
    assert_eq!(kind(device.reserve(DEVICE, page + 1)), Some(ErrorKind::Misaligned));
    assert_eq!(kind(device.reserve(DEVICE, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(kind(device.reserve(HeapId(1), page)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(device.reserve(HeapId(99), page)), Some(ErrorKind::NoSuchHeap));
    let endless = device.reserve(DEVICE, u64::MAX / 2 / page * page);
    assert!(endless.is_err(), "no address space is that long");
    let plain = allocate(device, DEVICE, page);
    // SAFETY: the block is not reserved; the call is refused.
    let result = unsafe { device.map_pages(&plain, 0, &[]) };
    assert_eq!(kind(result), Some(ErrorKind::Unsupported));
    free(device, plain);
}

fn a_mapped_reservation_is_not_freed(device: &Device) {
    let (block, pages) = (reserve(device, 1), create(device, 1));
    map(device, &block, 0, &pages);
    // SAFETY: refused, because a page is mapped; addresses and page stay with the process.
    let result = unsafe { device.free(block) };
    assert_eq!(kind(result), Some(ErrorKind::Busy));
}

fn destroyed_pages_give_their_memory_back(device: &Device) {
    let used = || device.budget(DEVICE).expect("the driver tells").used;
    let (before, size) = (used(), 64 * page_size(device));
    let pages = create(device, 64);
    assert!(used() >= before + size, "a page is memory");
    destroy(device, &pages);
    assert!(used() < before + size, "a destroyed page is none");
}

fn reservations_cost_no_memory(device: &Device) {
    let used = || device.budget(DEVICE).expect("the driver tells").used;
    let before = used();
    // As much as the device has, eight times over.
    let count = device.caps().heaps[0].size / page_size(device);
    let blocks: Vec<_> = (0..8).map(|_| reserve(device, count)).collect();
    assert!(used() <= before + 64 * page_size(device), "{before} then {}", used());
    blocks.into_iter().for_each(|block| free(device, block));
}

fn a_reservation_grows_at_its_tail(device: &Device) {
    // HIP 7.2 refuses access to a tail alone, depending on where the reservations lie.
    let blocks = [reserve(device, 32), reserve(device, 32), reserve(device, 32)];
    let page = page_size(device);
    let (mut pages, mut end) = (Vec::new(), 0);
    for step in [2, 4, 1, 7] {
        for block in &blocks {
            let tail = create(device, step);
            map(device, block, end, &tail);
            let value = u8::try_from(pages.len()).expect("small");
            device.fill(MAIN, at(block, 0), (end + step) * page, value).expect("all is mapped");
            assert_eq!(read(device, block, (end + step) * page - 1, 1), [value]);
            pages.extend(tail);
        }
        end += step;
    }
    for block in blocks {
        unmap(device, &block, 0, end);
        free(device, block);
    }
    destroy(device, &pages);
}

fn reservations_are_aligned(device: &Device) {
    let blocks: Vec<_> = (1..9).map(|count| reserve(device, count)).collect();
    for block in &blocks {
        assert!(block.address().is_multiple_of(page_size(device)), "{block:?}");
    }
    for (one, other) in blocks.iter().zip(&blocks[1..]) {
        let (low, high) = if one.address() < other.address() { (one, other) } else { (other, one) };
        assert!(low.address() + low.size() <= high.address(), "{low:?} and {high:?}");
    }
    blocks.into_iter().for_each(|block| free(device, block));
}

//! Pages: reserve, create, map, unmap.
#![expect(unsafe_code, reason = "maps and unmaps pages")]
use crate::support::{DEVICE, MAIN, allocate, assert_same, at, free, kind, pattern, read, write};
use omniheap_core::{Backend, DriverBudget, ErrorKind, HeapId, Page, Remap, Transfer};
use omniheap_hip::{Block, Hip, Memory};

crate::cases! {
    Pages: contents_survive_being_mapped_elsewhere, every_position_has_its_page,
        a_page_that_is_none_is_refused, mapped_positions_are_busy, unmapped_bytes_are_refused,
        wrong_reservations_are_refused, a_mapped_reservation_is_not_freed,
        destroyed_pages_give_their_memory_back, a_reservation_grows_at_its_tail,
        a_page_is_destroyed_once, reservations_are_aligned, reservations_cost_no_memory;
}

fn page_size(hip: &Hip) -> u64 {
    hip.caps().heaps[0].page.expect("the case needs pages").get()
}

fn create(hip: &Hip, count: u64) -> Vec<Page> {
    let mut pages = Vec::new();
    hip.create(DEVICE, count, &mut pages).expect("a few pages fit");
    assert_eq!(pages.len() as u64, count);
    pages
}

fn reserve(hip: &Hip, count: u64) -> Block {
    let block = hip.reserve(DEVICE, count * page_size(hip)).expect("addresses are plenty");
    assert_eq!(block.memory(), Memory::Reserved);
    block
}

fn map(hip: &Hip, block: &Block, first: u64, pages: &[Page]) {
    // SAFETY: block and pages are this case's own, and the pages are not mapped.
    unsafe { hip.map_pages(block, first, pages) }.expect("free positions");
}

fn unmap(hip: &Hip, block: &Block, first: u64, count: u64) {
    hip.wait_idle().expect("the device works");
    // SAFETY: the device is idle.
    unsafe { hip.unmap_pages(block, first, count) }.expect("mapped positions");
}

fn destroy(hip: &Hip, pages: &[Page]) {
    // SAFETY: the pages are this case's own, and not mapped.
    unsafe { hip.destroy(DEVICE, pages) }.expect("the driver takes them back");
}

fn contents_survive_being_mapped_elsewhere(hip: &Hip) {
    let (page, first, second) = (page_size(hip), reserve(hip, 4), reserve(hip, 4));
    let pages = create(hip, 2);
    map(hip, &first, 0, &pages);
    let bytes = pattern(usize::try_from(2 * page).expect("small"), 1);
    write(hip, &first, 0, &bytes);
    unmap(hip, &first, 0, 2);
    map(hip, &second, 1, &pages);
    assert_same(&read(hip, &second, page, bytes.len()), &bytes, "mapped elsewhere");
    unmap(hip, &second, 1, 2);
    destroy(hip, &pages);
    free(hip, first);
    free(hip, second);
}

fn every_position_has_its_page(hip: &Hip) {
    let (page, block) = (page_size(hip), reserve(hip, 8));
    let pages = create(hip, 8);
    // One by one, so that page `n` holds `n` whatever a run does.
    for (value, single) in (0..8u8).zip(pages.chunks(1)) {
        map(hip, &block, 0, single);
        hip.fill(MAIN, at(&block, 0), page, value).expect("mapped");
        unmap(hip, &block, 0, 1);
    }
    map(hip, &block, 0, &pages[6..]);
    map(hip, &block, 2, &pages[..6]);
    for (position, value) in (0..8u64).zip([6, 7, 0, 1, 2, 3, 4, 5]) {
        assert_eq!(read(hip, &block, position * page + page - 4, 4), [value; 4], "{position}");
    }
    // In the middle, one call for several mappings, and the rest stays.
    unmap(hip, &block, 2, 3);
    assert_eq!(read(hip, &block, page, 1), [7]);
    assert_eq!(read(hip, &block, 5 * page, 1), [3]);
    unmap(hip, &block, 0, 2);
    unmap(hip, &block, 5, 3);
    destroy(hip, &pages);
    free(hip, block);
}

fn a_page_that_is_none_is_refused(hip: &Hip) {
    let (block, pages) = (reserve(hip, 4), create(hip, 2));
    let broken = [pages[0], pages[1], Page(0)];
    // SAFETY: the third page is none, which is refused; the others are free.
    let result = unsafe { hip.map_pages(&block, 0, &broken) };
    assert_eq!(kind(result), Some(ErrorKind::Foreign), "no page has the number zero");
    let refused = hip.fill(MAIN, at(&block, 0), 1, 0);
    assert_eq!(kind(refused), Some(ErrorKind::OutOfRange), "nothing stayed mapped");
    map(hip, &block, 0, &pages);
    hip.fill(MAIN, at(&block, 0), 2 * page_size(hip), 3).expect("mapped");
    assert_eq!(read(hip, &block, page_size(hip), 1), [3]);
    unmap(hip, &block, 0, 2);
    destroy(hip, &pages);
    free(hip, block);
}

fn mapped_positions_are_busy(hip: &Hip) {
    let (block, pages) = (reserve(hip, 3), create(hip, 3));
    map(hip, &block, 1, &pages[..1]);
    // SAFETY: the pages are free; the call is refused.
    let busy = unsafe { hip.map_pages(&block, 0, &pages[1..]) };
    assert_eq!(kind(busy), Some(ErrorKind::Busy));
    // SAFETY: as above.
    let outside = unsafe { hip.map_pages(&block, 2, &pages[1..]) };
    assert_eq!(kind(outside), Some(ErrorKind::OutOfRange));
    // SAFETY: nothing uses the positions; the call is refused.
    let unmapped = unsafe { hip.unmap_pages(&block, 0, 2) };
    assert_eq!(kind(unmapped), Some(ErrorKind::OutOfRange));
    unmap(hip, &block, 1, 1);
    destroy(hip, &pages);
    free(hip, block);
}

fn unmapped_bytes_are_refused(hip: &Hip) {
    let (page, block, pages) = (page_size(hip), reserve(hip, 2), create(hip, 1));
    let refused = Some(ErrorKind::OutOfRange);
    assert_eq!(kind(hip.write(MAIN, at(&block, 0), &[1])), refused);
    map(hip, &block, 0, &pages);
    assert_eq!(hip.write(MAIN, at(&block, page - 1), &[1]), Ok(()));
    assert_eq!(kind(hip.write(MAIN, at(&block, page - 1), &[1, 2])), refused);
    assert_eq!(kind(hip.fill(MAIN, at(&block, 0), 2 * page, 1)), refused);
    unmap(hip, &block, 0, 1);
    destroy(hip, &pages);
    free(hip, block);
}

fn wrong_reservations_are_refused(hip: &Hip) {
    let page = page_size(hip);
    assert_eq!(kind(hip.reserve(DEVICE, page + 1)), Some(ErrorKind::Misaligned));
    assert_eq!(kind(hip.reserve(DEVICE, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(kind(hip.reserve(HeapId(1), page)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(hip.reserve(HeapId(99), page)), Some(ErrorKind::NoSuchHeap));
    let endless = hip.reserve(DEVICE, u64::MAX / 2 / page * page);
    assert!(endless.is_err(), "no address space is that long");
    let plain = allocate(hip, DEVICE, page);
    // SAFETY: the block is not reserved; the call is refused.
    let result = unsafe { hip.map_pages(&plain, 0, &[]) };
    assert_eq!(kind(result), Some(ErrorKind::Unsupported));
    free(hip, plain);
}

fn a_mapped_reservation_is_not_freed(hip: &Hip) {
    let (block, pages) = (reserve(hip, 1), create(hip, 1));
    map(hip, &block, 0, &pages);
    // SAFETY: refused, because a page is mapped; addresses and page stay with the process.
    let result = unsafe { hip.free(block) };
    assert_eq!(kind(result), Some(ErrorKind::Busy));
}

fn destroyed_pages_give_their_memory_back(hip: &Hip) {
    let used = || hip.budget(DEVICE).expect("the driver tells").used;
    let (before, size) = (used(), 64 * page_size(hip));
    let pages = create(hip, 64);
    assert!(used() >= before + size, "a page is memory");
    destroy(hip, &pages);
    assert!(used() < before + size, "a destroyed page is none");
}

fn reservations_cost_no_memory(hip: &Hip) {
    let used = || hip.budget(DEVICE).expect("the driver tells").used;
    let before = used();
    // As much as the device has, eight times over.
    let count = hip.caps().heaps[0].size / page_size(hip);
    let blocks: Vec<_> = (0..8).map(|_| reserve(hip, count)).collect();
    assert!(used() <= before + 64 * page_size(hip), "{before} then {}", used());
    blocks.into_iter().for_each(|block| free(hip, block));
}

fn a_reservation_grows_at_its_tail(hip: &Hip) {
    // HIP 7.2 refuses access to a tail alone, depending on where the reservations lie.
    let blocks = [reserve(hip, 32), reserve(hip, 32), reserve(hip, 32)];
    let page = page_size(hip);
    let (mut pages, mut end) = (Vec::new(), 0);
    for step in [2, 4, 1, 7] {
        for block in &blocks {
            let tail = create(hip, step);
            map(hip, block, end, &tail);
            let value = u8::try_from(pages.len()).expect("small");
            hip.fill(MAIN, at(block, 0), (end + step) * page, value).expect("all is mapped");
            assert_eq!(read(hip, block, (end + step) * page - 1, 1), [value]);
            pages.extend(tail);
        }
        end += step;
    }
    for block in blocks {
        unmap(hip, &block, 0, end);
        free(hip, block);
    }
    destroy(hip, &pages);
}

fn a_page_is_destroyed_once(hip: &Hip) {
    let pages = create(hip, 2);
    destroy(hip, &pages[..1]);
    // SAFETY: the first page is gone, which is refused; the second goes all the same.
    let again = unsafe { hip.destroy(DEVICE, &pages) };
    assert_eq!(kind(again), Some(ErrorKind::Foreign));
    // SAFETY: as above, for both.
    let again = unsafe { hip.destroy(DEVICE, &pages) };
    assert_eq!(kind(again), Some(ErrorKind::Foreign));
}

fn reservations_are_aligned(hip: &Hip) {
    let blocks: Vec<_> = (1..9).map(|count| reserve(hip, count)).collect();
    for block in &blocks {
        assert!(block.address().is_multiple_of(page_size(hip)), "{block:?}");
    }
    for (one, other) in blocks.iter().zip(&blocks[1..]) {
        let (low, high) = if one.address() < other.address() { (one, other) } else { (other, one) };
        assert!(low.address() + low.size() <= high.address(), "{low:?} and {high:?}");
    }
    blocks.into_iter().for_each(|block| free(hip, block));
}

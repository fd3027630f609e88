//! Pages: reserve, create, map, unmap.
#![expect(unsafe_code, reason = "maps and unmaps pages")]
use crate::support::{DEVICE, MAIN, allocate, assert_same, at, free, kind, pattern, read, write};
use omniheap_core::{Backend, DriverBudget, ErrorKind, HeapId, Page, Remap, Transfer};
use omniheap_cuda::{Block, Cuda, Memory};

crate::cases! {
    Pages: contents_survive_being_mapped_elsewhere, every_position_has_its_page,
        a_failing_map_rolls_back, mapped_positions_are_busy, unmapped_bytes_are_refused,
        wrong_reservations_are_refused, a_mapped_reservation_is_not_freed,
        destroyed_pages_give_their_memory_back, reservations_cost_no_memory;
}

fn page_size(cuda: &Cuda) -> u64 {
    cuda.caps().heaps[0].page.expect("the case needs pages").get()
}

fn create(cuda: &Cuda, count: u64) -> Vec<Page> {
    let mut pages = Vec::new();
    cuda.create(DEVICE, count, &mut pages).expect("a few pages fit");
    assert_eq!(pages.len() as u64, count);
    pages
}

fn reserve(cuda: &Cuda, count: u64) -> Block {
    let block = cuda.reserve(DEVICE, count * page_size(cuda)).expect("addresses are plenty");
    assert_eq!(block.memory(), Memory::Reserved);
    block
}

fn map(cuda: &Cuda, block: &Block, first: u64, pages: &[Page]) {
    // SAFETY: block and pages are this case's own, and the pages are not mapped.
    unsafe { cuda.map_pages(block, first, pages) }.expect("free positions");
}

fn unmap(cuda: &Cuda, block: &Block, first: u64, count: u64) {
    cuda.wait_idle().expect("the device works");
    // SAFETY: the device is idle.
    unsafe { cuda.unmap_pages(block, first, count) }.expect("mapped positions");
}

fn destroy(cuda: &Cuda, pages: &[Page]) {
    // SAFETY: the pages are this case's own, and not mapped.
    unsafe { cuda.destroy(DEVICE, pages) }.expect("the driver takes them back");
}

fn contents_survive_being_mapped_elsewhere(cuda: &Cuda) {
    let (page, first, second) = (page_size(cuda), reserve(cuda, 4), reserve(cuda, 4));
    let pages = create(cuda, 2);
    map(cuda, &first, 0, &pages);
    let bytes = pattern(usize::try_from(2 * page).expect("small"), 1);
    write(cuda, &first, 0, &bytes);
    unmap(cuda, &first, 0, 2);
    map(cuda, &second, 1, &pages);
    assert_same(&read(cuda, &second, page, bytes.len()), &bytes, "mapped elsewhere");
    unmap(cuda, &second, 1, 2);
    destroy(cuda, &pages);
    free(cuda, first);
    free(cuda, second);
}

fn every_position_has_its_page(cuda: &Cuda) {
    let (page, block) = (page_size(cuda), reserve(cuda, 8));
    let pages = create(cuda, 8);
    // One by one, so that page `n` holds `n` whatever a run does.
    for (value, single) in (0..8u8).zip(pages.chunks(1)) {
        map(cuda, &block, 0, single);
        cuda.fill(MAIN, at(&block, 0), page, value).expect("mapped");
        unmap(cuda, &block, 0, 1);
    }
    map(cuda, &block, 0, &pages[6..]);
    map(cuda, &block, 2, &pages[..6]);
    for (position, value) in (0..8u64).zip([6, 7, 0, 1, 2, 3, 4, 5]) {
        assert_eq!(read(cuda, &block, position * page + page - 4, 4), [value; 4], "{position}");
    }
    // In the middle, one call for several mappings, and the rest stays.
    unmap(cuda, &block, 2, 3);
    assert_eq!(read(cuda, &block, page, 1), [7]);
    assert_eq!(read(cuda, &block, 5 * page, 1), [3]);
    unmap(cuda, &block, 0, 2);
    unmap(cuda, &block, 5, 3);
    destroy(cuda, &pages);
    free(cuda, block);
}

fn a_failing_map_rolls_back(cuda: &Cuda) {
    let (block, pages) = (reserve(cuda, 4), create(cuda, 2));
    let broken = [pages[0], pages[1], Page(0)];
    // SAFETY: the third page is none, which the driver refuses; the others are free.
    let result = unsafe { cuda.map_pages(&block, 0, &broken) };
    assert!(result.is_err(), "no page has the number zero");
    let refused = cuda.fill(MAIN, at(&block, 0), 1, 0);
    assert_eq!(kind(refused), Some(ErrorKind::OutOfRange), "nothing stayed mapped");
    map(cuda, &block, 0, &pages);
    cuda.fill(MAIN, at(&block, 0), 2 * page_size(cuda), 3).expect("mapped");
    assert_eq!(read(cuda, &block, page_size(cuda), 1), [3]);
    unmap(cuda, &block, 0, 2);
    destroy(cuda, &pages);
    free(cuda, block);
}

fn mapped_positions_are_busy(cuda: &Cuda) {
    let (block, pages) = (reserve(cuda, 3), create(cuda, 3));
    map(cuda, &block, 1, &pages[..1]);
    // SAFETY: the pages are free; the call is refused.
    let busy = unsafe { cuda.map_pages(&block, 0, &pages[1..]) };
    assert_eq!(kind(busy), Some(ErrorKind::Busy));
    // SAFETY: as above.
    let outside = unsafe { cuda.map_pages(&block, 2, &pages[1..]) };
    assert_eq!(kind(outside), Some(ErrorKind::OutOfRange));
    // SAFETY: nothing uses the positions; the call is refused.
    let unmapped = unsafe { cuda.unmap_pages(&block, 0, 2) };
    assert_eq!(kind(unmapped), Some(ErrorKind::OutOfRange));
    unmap(cuda, &block, 1, 1);
    destroy(cuda, &pages);
    free(cuda, block);
}

fn unmapped_bytes_are_refused(cuda: &Cuda) {
    let (page, block, pages) = (page_size(cuda), reserve(cuda, 2), create(cuda, 1));
    let refused = Some(ErrorKind::OutOfRange);
    assert_eq!(kind(cuda.write(MAIN, at(&block, 0), &[1])), refused);
    map(cuda, &block, 0, &pages);
    assert_eq!(cuda.write(MAIN, at(&block, page - 1), &[1]), Ok(()));
    assert_eq!(kind(cuda.write(MAIN, at(&block, page - 1), &[1, 2])), refused);
    assert_eq!(kind(cuda.fill(MAIN, at(&block, 0), 2 * page, 1)), refused);
    unmap(cuda, &block, 0, 1);
    destroy(cuda, &pages);
    free(cuda, block);
}

fn wrong_reservations_are_refused(cuda: &Cuda) {
    let page = page_size(cuda);
    assert_eq!(kind(cuda.reserve(DEVICE, page + 1)), Some(ErrorKind::Misaligned));
    assert_eq!(kind(cuda.reserve(DEVICE, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(kind(cuda.reserve(HeapId(1), page)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(cuda.reserve(HeapId(99), page)), Some(ErrorKind::NoSuchHeap));
    let endless = cuda.reserve(DEVICE, u64::MAX / 2 / page * page);
    assert!(endless.is_err(), "no address space is that long");
    let plain = allocate(cuda, DEVICE, page);
    // SAFETY: the block is not reserved; the call is refused.
    let result = unsafe { cuda.map_pages(&plain, 0, &[]) };
    assert_eq!(kind(result), Some(ErrorKind::Unsupported));
    free(cuda, plain);
}

fn a_mapped_reservation_is_not_freed(cuda: &Cuda) {
    let (block, pages) = (reserve(cuda, 1), create(cuda, 1));
    map(cuda, &block, 0, &pages);
    // SAFETY: refused, because a page is mapped; the addresses stay with the context.
    let result = unsafe { cuda.free(block) };
    assert_eq!(kind(result), Some(ErrorKind::Busy));
    destroy(cuda, &pages);
}

fn destroyed_pages_give_their_memory_back(cuda: &Cuda) {
    let used = || cuda.budget(DEVICE).expect("the driver tells").used;
    let (before, size) = (used(), 64 * page_size(cuda));
    let pages = create(cuda, 64);
    assert!(used() >= before + size, "a page is memory");
    destroy(cuda, &pages);
    assert!(used() < before + size, "a destroyed page is none");
}

fn reservations_cost_no_memory(cuda: &Cuda) {
    let used = || cuda.budget(DEVICE).expect("the driver tells").used;
    let before = used();
    // As much as the device has, eight times over.
    let count = cuda.caps().heaps[0].size / page_size(cuda);
    let blocks: Vec<_> = (0..8).map(|_| reserve(cuda, count)).collect();
    assert!(used() <= before + 64 * page_size(cuda), "{before} then {}", used());
    blocks.into_iter().for_each(|block| free(cuda, block));
}

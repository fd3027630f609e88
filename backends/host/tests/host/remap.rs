//! Page mapping: bytes stay with their page, mistakes are refused.
#![expect(unsafe_code, reason = "maps pages")]
use crate::common::{HEAP, MAIN, MIB, at, free, host, kind, read, used};
use omniheap_core::{Align, Backend, ErrorKind, HeapId, HeapKind, Page, Remap, Result, Transfer};
use omniheap_host::{Block, Host, heap};

pub(crate) fn map(host: &Host, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
    map_on(host, block, first, pages)
}

pub(crate) fn map_on<T: Send + Sync + 'static>(
    remap: &dyn Remap<Block = T>,
    block: &T,
    first: u64,
    pages: &[Page],
) -> Result<()> {
    // SAFETY: the host checks everything that the contract asks for; that is what these tests show.
    unsafe { remap.map_pages(block, first, pages) }
}

pub(crate) fn unmap(host: &Host, block: &Block, first: u64, count: u64) -> Result<()> {
    // SAFETY: as in `map_on`.
    unsafe { host.unmap_pages(block, first, count) }
}

pub(crate) fn destroy(host: &Host, pages: &[Page]) -> Result<()> {
    destroy_on(host, pages)
}

pub(crate) fn destroy_on<T: Send + Sync + 'static>(
    remap: &dyn Remap<Block = T>,
    pages: &[Page],
) -> Result<()> {
    // SAFETY: as in `map_on`.
    unsafe { remap.destroy(HEAP, pages) }
}

fn pages(host: &Host, count: u64) -> Vec<Page> {
    let mut pages = Vec::new();
    host.create(HEAP, count, &mut pages).expect("fits");
    pages
}

fn small(size: u64) -> Host {
    let heap = heap(HeapKind::Device, size).page(Some(Align::of(4096)));
    Host::builder().heap(heap).open().expect("valid")
}

#[test]
fn bytes_move_with_their_pages() {
    let host = small(MIB);
    let block = host.reserve(HEAP, 64 << 12).expect("addresses");
    let p = pages(&host, 4);
    map(&host, &block, 0, &p).expect("empty");
    for (i, value) in [11, 22, 33, 44].into_iter().enumerate() {
        host.fill(MAIN, at(&block, (i as u64) << 12), 4096, value).expect("mapped");
    }
    host.wait_idle().expect("alive");
    unmap(&host, &block, 0, 4).expect("idle");
    let other = host.reserve(HEAP, 8 << 12).expect("addresses");
    map(&host, &other, 1, &[p[2], p[3], p[0]]).expect("empty");
    map(&host, &block, 60, &[p[1]]).expect("empty");
    let first = |block: &Block, page: u64| read(&host, MAIN, block, page << 12, 4096)[4095];
    assert_eq!((first(&other, 1), first(&other, 2), first(&other, 3)), (33, 44, 11));
    assert_eq!(first(&block, 60), 22);
    unmap(&host, &other, 1, 3).expect("idle");
    map(&host, &other, 5, &[p[0], p[2], p[3]]).expect("empty");
    assert_eq!(
        (first(&other, 5), first(&other, 6), first(&other, 7)),
        (11, 33, 44),
        "a gap in numbers"
    );
    unmap(&host, &other, 5, 3).expect("idle");
    unmap(&host, &block, 60, 1).expect("idle");
    destroy(&host, &p).expect("unmapped");
    free(&host, block).expect("empty");
    free(&host, other).expect("empty");
    assert_eq!(used(&host), 0);
}

#[test]
fn positions_without_a_page_are_refused_not_touched() {
    let host = small(MIB);
    let block = host.reserve(HEAP, 8 << 12).expect("addresses");
    let p = pages(&host, 2);
    map(&host, &block, 1, &p).expect("empty");
    host.fill(MAIN, at(&block, 4096), 8192, 1).expect("mapped");
    for (offset, size) in [(4095, 2), (4096, 8193), (0, 1), (7 << 12, 4096)] {
        assert_eq!(kind(host.fill(MAIN, at(&block, offset), size, 1)), ErrorKind::OutOfRange);
    }
    host.wait_idle().expect("alive");
    unmap(&host, &block, 1, 2).expect("idle");
    assert_eq!(kind(host.read(MAIN, at(&block, 4096), &mut [0])), ErrorKind::OutOfRange);
    destroy(&host, &p).expect("unmapped");
    free(&host, block).expect("empty");
}

#[test]
fn mistakes_are_refused_and_change_nothing() {
    let host = small(MIB);
    let block = host.reserve(HEAP, 8 << 12).expect("addresses");
    let p = pages(&host, 4);
    map(&host, &block, 0, &p[..2]).expect("empty");
    assert_eq!(kind(map(&host, &block, 1, &p[2..3])), ErrorKind::Busy, "position taken");
    map(&host, &block, 5, &p[..1]).expect("a second position, as for a move");
    assert_eq!(kind(map(&host, &block, 6, &[p[2], p[0]])), ErrorKind::Busy, "a third");
    unmap(&host, &block, 5, 1).expect("idle");
    assert_eq!(kind(map(&host, &block, 4, &[p[2]; 3])), ErrorKind::Busy, "three in one call");
    assert_eq!(kind(map(&host, &block, 7, &p[2..])), ErrorKind::OutOfRange);
    assert_eq!(kind(map(&host, &block, u64::MAX, &p[2..])), ErrorKind::OutOfRange);
    assert_eq!(kind(map(&host, &block, 4, &[Page(99)])), ErrorKind::Stale);
    map(&host, &block, 4, &p[2..]).expect("the refused calls left nothing behind");
    assert_eq!(kind(unmap(&host, &block, 0, 3)), ErrorKind::OutOfRange, "one is not mapped");
    assert_eq!(kind(destroy(&host, &p[..1])), ErrorKind::Busy, "mapped");
    unmap(&host, &block, 0, 2).expect("idle");
    unmap(&host, &block, 4, 2).expect("idle");
    destroy(&host, &p).expect("unmapped");
    assert_eq!(kind(destroy(&host, &p)), ErrorKind::Stale);
    assert_eq!(kind(map(&host, &block, 0, &p)), ErrorKind::Stale);
    let plain = host.allocate(HEAP, 4096).expect("fits");
    assert_eq!(kind(map(&host, &plain, 0, &p)), ErrorKind::Unsupported);
    free(&host, plain).expect("idle");
    free(&host, block).expect("empty");
}

#[test]
fn a_page_at_two_positions_is_mapped_until_it_has_left_both() {
    let host = small(MIB);
    let block = host.reserve(HEAP, 8 << 12).expect("addresses");
    let p = pages(&host, 2);
    map(&host, &block, 0, &p[..1]).expect("empty");
    map(&host, &block, 5, &p[..1]).expect("a second position, as for a move");
    destroy(&host, &p[1..]).expect("another page of the same call, mapped nowhere");
    unmap(&host, &block, 0, 1).expect("idle");
    assert_eq!(kind(destroy(&host, &p[..1])), ErrorKind::Busy, "mapped at the second position");
    unmap(&host, &block, 5, 1).expect("idle");
    destroy(&host, &p[..1]).expect("unmapped");
    free(&host, block).expect("empty");
}

#[test]
fn pages_in_use_stay_mapped() {
    let host = small(MIB);
    let block = host.reserve(HEAP, 4 << 12).expect("addresses");
    let p = pages(&host, 4);
    map(&host, &block, 0, &p).expect("empty");
    let hold = host.hold(MAIN).expect("alive");
    host.fill(MAIN, at(&block, 4096), 4096, 1).expect("mapped");
    assert_eq!(kind(unmap(&host, &block, 0, 4)), ErrorKind::Busy);
    unmap(&host, &block, 2, 2).expect("nobody uses these");
    drop(hold);
    host.wait_idle().expect("alive");
    unmap(&host, &block, 0, 2).expect("idle");
    map(&host, &block, 0, &p[..1]).expect("empty");
    assert_eq!(kind(free(&host, block)), ErrorKind::Busy, "a page is mapped");
    destroy(&host, &p).expect("the block is gone, so nothing is mapped");
}

#[test]
fn pages_count_against_the_heap() {
    let host = host(8 * MIB);
    let p = pages(&host, 3);
    assert_eq!(used(&host), 6 * MIB);
    let mut more = Vec::new();
    assert_eq!(kind(host.create(HEAP, 2, &mut more)), ErrorKind::OutOfDeviceMemory);
    assert_eq!(kind(host.create(HEAP, u64::MAX, &mut more)), ErrorKind::OutOfDeviceMemory);
    assert!(more.is_empty(), "all or none");
    let block = host.allocate(HEAP, 2 * MIB).expect("what is left");
    assert_eq!(kind(host.create(HEAP, 1, &mut more)), ErrorKind::OutOfDeviceMemory);
    destroy(&host, &p).expect("unmapped");
    free(&host, block).expect("idle");
    assert_eq!(used(&host), 0);
}

#[test]
fn what_the_system_refuses_is_not_counted() {
    let host = small(1 << 63);
    let mut pages = Vec::new();
    assert_eq!(kind(host.create(HEAP, 1 << 51, &mut pages)), ErrorKind::OutOfHostMemory);
    assert_eq!(kind(host.allocate(HEAP, 1 << 60)), ErrorKind::OutOfHostMemory);
    assert_eq!((used(&host), pages.len()), (0, 0));
}

#[test]
fn odd_reservations_are_refused() {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 8 * MIB))
        .heap(heap(HeapKind::Staging, 8 * MIB))
        .open()
        .expect("valid");
    assert_eq!(kind(host.reserve(HEAP, 0)), ErrorKind::ZeroSize);
    assert_eq!(kind(host.reserve(HEAP, MIB)), ErrorKind::Misaligned);
    assert_eq!(kind(host.reserve(HeapId(1), 2 * MIB)), ErrorKind::Unsupported);
    assert_eq!(kind(host.reserve(HeapId(9), 2 * MIB)), ErrorKind::NoSuchHeap);
    assert_eq!(kind(host.reserve(HEAP, 1 << 60)), ErrorKind::OutOfHostMemory);
}

#[test]
fn hundreds_of_gibibytes_reserve_and_map_without_memory() {
    let host = host(64 << 30);
    let block = host.reserve(HEAP, 512 << 30).expect("addresses");
    let p = pages(&host, 24 << 9);
    map(&host, &block, 1000, &p).expect("empty");
    let reversed: Vec<_> = p.iter().rev().copied().collect();
    unmap(&host, &block, 1000, 24 << 9).expect("idle");
    map(&host, &block, 0, &reversed).expect("empty");
    assert_eq!(resident(&host, &block), 0, "nothing was touched");
    unmap(&host, &block, 0, 24 << 9).expect("idle");
    destroy(&host, &p).expect("unmapped");
    free(&host, block).expect("empty");
}

#[test]
fn destroyed_pages_return_their_memory() {
    let host = host(64 * MIB);
    let block = host.reserve(HEAP, 64 * MIB).expect("addresses");
    let mut file = 0;
    for _ in 0..4 {
        let p = pages(&host, 16);
        map(&host, &block, 0, &p).expect("empty");
        assert_eq!(read(&host, MAIN, &block, 0, 1), [0], "fresh pages are zero");
        host.fill(MAIN, at(&block, 0), 32 * MIB, 1).expect("mapped");
        host.wait_idle().expect("alive");
        file = file_of(&host, &block);
        assert!(bytes_of(file) >= 32 * MIB, "they are in it now");
        unmap(&host, &block, 0, 16).expect("idle");
        destroy(&host, &p).expect("unmapped");
    }
    assert_eq!(bytes_of(file), 0, "128 MiB were written and given back, not kept");
    free(&host, block).expect("empty");
}

/// Returns the lines of this process's map of memory that are about a block, each with its first two words.
///
/// Only these: other tests use memory of this process at the same time.
fn map_of(host: &Host, block: &Block, file: &str) -> Vec<String> {
    let start = host.as_address().expect("host memory").address(block);
    let end = start + block.size();
    let text = std::fs::read_to_string(file).expect("Linux");
    let mut is_ours = false;
    let lines = text.lines().filter(|line| {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
            is_ours = from >= start && to <= end;
        }
        is_ours
    });
    lines.map(str::to_owned).collect()
}

/// Returns the bytes of a block that are in memory.
fn resident(host: &Host, block: &Block) -> u64 {
    let lines = map_of(host, block, "/proc/self/smaps");
    let kibibytes = lines.iter().filter_map(|line| line.strip_prefix("Rss:")?.strip_suffix("kB"));
    let counts: Vec<u64> =
        kibibytes.map(|number| number.trim().parse().expect("a number")).collect();
    assert!(!counts.is_empty(), "the block is in the map");
    counts.iter().sum::<u64>() << 10
}

/// Returns the number of the anonymous file that a block's first page is in.
fn file_of(host: &Host, block: &Block) -> u64 {
    let lines = map_of(host, block, "/proc/self/maps");
    let line = lines.first().expect("a page is mapped");
    let word = line.split_whitespace().nth(4).expect("range, access, offset, device, file");
    word.parse().expect("a number")
}

/// Returns the bytes of memory that a file of this process holds.
fn bytes_of(file: u64) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    let mut ours = entries.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    ours.find(|found| found.ino() == file).expect("it is open").blocks() * 512
}
